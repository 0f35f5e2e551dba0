"""Weights bounded in the lp norm, and their penalised twin."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from ._equations import aligned, conjugate, norm, positive_root, project_simplex
from .base import LinearConstraints, Vector, WeightSet, check_parameter

EPS = float(np.finfo(float).eps)


@dataclass(frozen=True)
class LpBall(WeightSet):
    """lp weights: ``b >= 0, ||b||_p <= 1`` and R = 0. Dense for p > 1, ever more even as p grows.

    With 1/p + 1/q = 1 ::

        support(h)   ||h||_q
        respond(h)   b_j = (h_j / ||h||_q)^(q-1)
        update(N)    b_j = N_j^(2/(p+1)) / (sum_k N_k^(2p/(p+1)))^(1/p)

    p = 1 gives the optima of `Simplex` (which is the set to use for multiplicative steps), p = inf the box
    ``0 <= b <= 1``, whose best response is `Sum`.

    Parameters
    ----------
    p : float
        At least 1, possibly ``inf``.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.weights import LpBall
    >>> LpBall(2).respond(np.array([3.0, 4.0]))
    array([0.6, 0.8])
    >>> LpBall(2).support(np.array([3.0, 4.0]))
    5.0
    """

    p: float

    def __post_init__(self) -> None:
        check_parameter(
            self, "p", 1.0, np.inf, advice="Below 1 the problem is not convex; for the sparsest weights use p = 1 (l1)."
        )

    def start(self, n_kernels: int) -> Vector:
        return np.full(n_kernels, float(n_kernels) ** (-1.0 / self.p))

    def respond(self, h: Vector) -> Vector:
        return aligned(h, self.p)

    def support(self, h: Vector) -> float:
        return norm(h, conjugate(self.p))

    def project(self, b: Vector) -> Vector:
        return project_lp_ball(b, self.p)

    def update(self, norms: Vector) -> Vector:
        largest = norms.max()
        if largest <= 0.0:  # any b is best
            return self.start(len(norms))
        b = (norms / largest) ** (2.0 / (self.p + 1.0))
        return b / norm(b, self.p)

    def feasible(self, b: Vector, tol: float = 1e-9) -> bool:
        return bool(np.all(b >= -tol)) and norm(b, self.p) <= 1.0 + tol

    def linear_constraints(self, n_kernels: int) -> LinearConstraints:
        if self.p == np.inf:
            return LinearConstraints(None, None, None, None, [(0.0, 1.0)] * n_kernels)
        if self.p == 1.0:
            return LinearConstraints(np.ones((1, n_kernels)), np.ones(1), None, None, [(0.0, None)] * n_kernels)
        self._refuse("a linear master problem")

    def penalised(self, h_optimal: Vector) -> TikhonovLp:
        """The penalised problem whose solution (b, a) at the same C is the one found here, at energies `h_optimal`.

        Its strength is ``||h||_q`` and its optimal value is larger by strength / 2.
        """
        return TikhonovLp(self.p, self.support(h_optimal))

    @property
    def is_linear(self) -> bool:
        return self.p in (1.0, np.inf)

    @property
    def is_smooth(self) -> bool:
        return self.p > 1.0


@dataclass(frozen=True)
class TikhonovLp(WeightSet):
    """lp weights by a penalty: ``b >= 0`` and ``R(b) = strength/2 ||b||_p^2``. The form that SMO solves.

    With w the answer of `LpBall` ::

        support(h)   ||h||_q^2 / (2 strength)
        respond(h)   (||h||_q / strength) w
        update(N)    r w,  r^3 = A / (2 strength),  A = sum_j N_j^2 / w_j      (the minimum of A/(2r) + strength/2 r^2)

    Parameters
    ----------
    p : float
        At least 1, possibly ``inf``.
    strength : float, default=1.0
        Positive.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.weights import TikhonovLp
    >>> TikhonovLp(p=2, strength=5.0).respond(np.array([3.0, 4.0]))
    array([0.6, 0.8])
    """

    p: float
    strength: float = 1.0

    def __post_init__(self) -> None:
        check_parameter(
            self, "p", 1.0, np.inf, advice="Below 1 the problem is not convex; for the sparsest weights use p = 1."
        )
        check_parameter(self, "strength", 0.0, np.finfo(float).max, open_low=True)

    def start(self, n_kernels: int) -> Vector:
        return LpBall(self.p).start(n_kernels)

    def respond(self, h: Vector) -> Vector:
        return norm(h, conjugate(self.p)) / self.strength * aligned(h, self.p)

    def support(self, h: Vector) -> float:
        return norm(h, conjugate(self.p)) ** 2 / (2.0 * self.strength)

    def penalty(self, b: Vector) -> float:
        return self.strength / 2.0 * norm(b, self.p) ** 2

    def slope(self, b: Vector) -> Vector:
        """``strength ||b||_p (b_j / ||b||_p)^(p-1)``; at p = inf, where ties have no gradient, a subgradient."""
        return self.strength * norm(b, self.p) * aligned(b, conjugate(self.p))

    def project(self, b: Vector) -> Vector:
        return np.maximum(b, 0.0)

    def update(self, norms: Vector) -> Vector:
        w = LpBall(self.p).update(norms)
        # at the best w, sum N^2 / w = ||N||^2 in the block norm of exponent 2p / (p + 1): no division by a zero weight
        exponent = 2.0 if self.p == np.inf else 2.0 * self.p / (self.p + 1.0)
        return float(np.cbrt(norm(norms, exponent) ** 2 / (2.0 * self.strength))) * w

    def feasible(self, b: Vector, tol: float = 1e-9) -> bool:
        return bool(np.all(b >= -tol))

    def constrained(self, b_optimal: Vector) -> tuple[LpBall, float]:
        """The constrained problem with the same classifier, and the factor r on C that it needs.

        If (b, a) solves the penalised problem at cost C and ``r = ||b||_p``, then (b / r, r a) solves the constrained
        one at cost ``r * C``.
        """
        factor = norm(b_optimal, self.p)
        if factor == 0.0:
            raise ValueError(
                "TikhonovLp.constrained: all optimal weights are zero, so no constrained problem has them."
            )
        return LpBall(self.p), factor

    @property
    def has_gradient(self) -> bool:
        return self.p < np.inf

    @property
    def is_smooth(self) -> bool:
        return self.p > 1.0


def project_lp_ball(z: Vector, p: float) -> Vector:
    """Nearest point of ``b >= 0, ||b||_p <= 1``.

    Outside the ball it solves ``b_j + lam b_j^(p-1) = x_j, ||b||_p = 1`` with x = max(z, 0): the norm falls as lam
    grows, so lam is a scalar root. Its bracket: lam = b.(x - b) <= ||x||_q, and the triangle inequality
    ||x||_p <= 1 + lam ||b^(p-1)||_p from below.
    """
    x = np.maximum(z, 0.0)
    if p == np.inf:
        return np.minimum(x, 1.0)
    size = norm(x, p)
    if size <= 1.0 + 64.0 * EPS:
        return x / max(size, 1.0)
    if p == 1.0:
        return project_simplex(x)
    if p == 2.0:
        return x / size
    q = conjugate(p)

    def weights(log_lam: float) -> Vector:
        lam = float(np.exp(log_lam))
        if p > 2.0:
            return positive_root(1.0, lam, p - 1.0, x)
        t = positive_root(lam, 1.0, q - 1.0, x)  # t = b^(p-1), so that lam t + t^(q-1) = x is convex
        return np.where(2.0 * lam * t < x, x - lam * t, t ** (q - 1.0))  # of the two forms of b the more exact

    low = (size - 1.0) / max(1.0, len(x) ** (1.0 / p - 1.0 / q))
    log_lam = brentq(
        lambda value: norm(weights(value), p) - 1.0,
        np.log(low) - 1.0,
        np.log(norm(x, q)) + 1.0,
        xtol=1e-15,
        rtol=4.0 * EPS,
    )
    b = weights(log_lam)
    return b / norm(b, p)
