"""Kernel logistic regression with a certificate: the machine of CG-Boost.

    min over a, b    1/2 a'Ga + C sum_i log(1 + exp(-y_i f_i)),                          f = Ga + b
    max over s       -1/2 (s*y)'G(s*y) - sum_i [s_i log(s_i/C) + (C - s_i) log(1 - s_i/C)],   0 <= s <= C,  y's = 0

At the optimum a = s*y and s_i = C / (1 + exp(y_i f_i)).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit, xlogy

Array = NDArray[np.float64]

#: Share of the promised decrease that a step must keep, and the shortest step.
_ARMIJO, _SHORTEST = 1e-4, 1e-10


@dataclass(frozen=True, eq=False)
class Logistic:
    """A solved problem: coefficients `coef` (n,) of the kernel G, `intercept`, primal and dual value, Newton steps."""

    coef: Array
    intercept: float
    primal: float
    dual: float
    steps: int

    @property
    def gap(self) -> float:
        """Duality gap relative to the primal value."""
        return (self.primal - self.dual) / max(self.primal, np.finfo(np.float64).tiny)


def kernel_logistic(G: Array, y: Array, C: float, tol: float, max_iter: int) -> Logistic:
    """Newton's method with step halving until the relative duality gap is at most `tol`.

    Parameters
    ----------
    G : array of shape (n, n), positive semi-definite
    y : array of shape (n,), -1 and +1, both present
    C : float
    tol : float
    max_iter : int
        Most Newton steps.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.boosting.logistic import kernel_logistic
    >>> X = np.array([[-2.0], [-1.0], [1.0], [2.0]])
    >>> found = kernel_logistic(X @ X.T, np.array([-1.0, -1.0, 1.0, 1.0]), C=1.0, tol=1e-9, max_iter=50)
    >>> bool(found.gap <= 1e-9), (X.T @ found.coef).round(3)
    (True, array([1.007]))
    """
    a, Ga = np.zeros(len(y)), np.zeros(len(y))
    b = float(np.log(np.sum(y > 0) / np.sum(y < 0)))
    for steps in range(max_iter + 1):
        primal = _primal(float(a @ Ga), y * (Ga + b), C)
        found = Logistic(a, b, primal, _dual(G, a, y, C), steps)
        if found.gap <= tol or steps == max_iter:
            break
        new_a, new_b = _newton(G, y, C, Ga + b)
        da, db = new_a - a, new_b - b
        Gda = G @ da
        t = _step_length(a, da, Ga, Gda, b, db, y, C, primal)
        if t == 0.0:  # rounding is in the way
            break
        a, Ga, b = a + t * da, Ga + t * Gda, b + t * db
    return found


def _newton(G: Array, y: Array, C: float, f: Array) -> tuple[Array, float]:
    """Coefficients and intercept that solve the problem with the loss replaced by its parabola at the scores f."""
    away = expit(-y * f)
    r, w = C * y * away, C * away * (1.0 - away)
    root = np.sqrt(w)
    B = root[:, None] * G * root
    B[np.diag_indices(len(B))] += 1.0
    factor = cho_factor(B, lower=True, overwrite_a=True, check_finite=False)
    # (I + WG)^-1 H without dividing by weights that may vanish
    H = np.stack([r + w * f, w], axis=1)
    solved = H - root[:, None] * cho_solve(factor, root[:, None] * (G @ H), check_finite=False)
    total, share = solved.sum(axis=0)
    b = total / share if share > 0 else 0.0
    return solved[:, 0] - b * solved[:, 1], float(b)


def _step_length(
    a: Array, da: Array, Ga: Array, Gda: Array, b: float, db: float, y: Array, C: float, primal: float
) -> float:
    """The first of 1, 1/2, 1/4, ... with enough decrease; 0 if there is none."""
    slope = float(da @ Ga - C * (y * expit(-y * (Ga + b))) @ (Gda + db))
    t = 1.0
    while t > _SHORTEST:
        f = Ga + b + t * (Gda + db)
        quadratic = float((a + t * da) @ (Ga + t * Gda))
        if _primal(quadratic, y * f, C) <= primal + _ARMIJO * t * min(slope, 0.0):
            return t
        t *= 0.5
    return 0.0


def _primal(quadratic: float, margins: Array, C: float) -> float:
    return float(0.5 * quadratic + C * np.logaddexp(0.0, -margins).sum())


def _dual(G: Array, a: Array, y: Array, C: float) -> float:
    """The dual value at the feasible point next to a*y: in the box, and with equal sums on both sides."""
    s = np.clip(a * y, 0.0, C)
    sides = {side: float(s[y == side].sum()) for side in (1.0, -1.0)}
    for side, total in sides.items():
        if total > 0:
            s[y == side] *= min(sides.values()) / total
    v = s * y
    return float(-0.5 * v @ (G @ v) - (xlogy(s, s / C) + xlogy(C - s, 1.0 - s / C)).sum())
