"""SVM+ by a primal-dual interior-point method: some 15 to 30 factorisations, however singular the kernels are.

With multipliers p, q >= 0 of a, c >= 0, a step (da, dc, db, drho) of Newton's method solves

    (YKY + P) da + G/lam de + y db + drho = r_a        P = p / a,  Q = q / c  (diagonal),  de = da + dc
            Q dc + G/lam de        + drho = r_c        y'da = 0,  1'de = 0

Two factorisations of size n do: M = (G/lam + Q)^-1 gives de = M (Q da + r_c - drho), and then
(YKY + P + Q - Q M Q) da + y db + Q M 1 drho = r_a - r_c + Q M r_c.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

from .base import Array, blas_threads

if TYPE_CHECKING:
    from .svm_plus import PlusPoint, PlusSolution

_MAX_ITERATIONS = 80
#: Share of the way to the boundary that a step may go.
_INSIDE = 0.995
#: A step this short means that rounding is in the way.
_STUCK = 1e-10
#: Where the gap of this method is this much ahead of the certified one, rounding keeps them apart.
_AHEAD = 1e-4
#: How far beyond the accuracy to go, so that there is room for the next.
_BEYOND = 0.01
#: A dual a below one of these shares of its multiplier, in units of C and of margins, may be set to zero.
_SMALL = (1e-2, 1e-3, 1e-4, 1e-5)


def interior_point(point: PlusPoint, accuracy: float) -> PlusSolution:
    """Solve to the given relative gap, with as many samples left out of f as that allows.

    Parameters
    ----------
    point : PlusPoint
        The problem; where it stands does not count, since a good start for this method is far from all bounds.
    accuracy : float
        Relative gap.
    """
    # Numbers that grow out of bounds end the path; they are no news to the user.
    with blas_threads(len(point.y)), np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        best, p = _follow(point, accuracy)
    a, c = point.a, point.c
    for share in _SMALL:
        # Inside, no dual is zero. What is taken from a goes to c, so that s, which 1/lam makes sensitive, stays.
        kept = _even(point.y, np.where(a < share * point.C * p, 0.0, a))
        point.move_to(kept, c + (a - kept))
        sparse = point.solution()
        if sparse.reaches(accuracy):
            return sparse
    return best


def _follow(point: PlusPoint, accuracy: float) -> tuple[PlusSolution, Array]:
    """Go along the central path; the best solution found, and the multipliers p where `point` is left."""
    y, n = point.y, len(point.y)
    positive, negative = int(np.sum(y > 0)), int(np.sum(y < 0))
    a = point.C * 0.5 * min(positive, negative) / np.where(y > 0, positive, negative)
    point.move_to(a, np.full(n, point.C - a.sum() / n))
    best = point.solution()
    b, rho = best.intercept, best.offset + 1.0  # slack is of the order of margins: one
    p, q = _multipliers(point, b, rho)
    for _ in range(_MAX_ITERATIONS):
        now = float(point.a @ p + point.c @ q)
        if best.reaches(_BEYOND * accuracy) or now <= _AHEAD * accuracy * abs(best.primal):
            break
        # What rounding has left of the conditions on p and q.
        rest_a, rest_c = (kept - due for kept, due in zip((p, q), _multipliers(point, b, rho), strict=True))
        try:
            system = _System(point, p / point.a, q / point.c)
            da, dc, dp, dq, _, _ = system.moves(rest_a, rest_c, -p, -q)
        except np.linalg.LinAlgError:  # the numbers on the diagonals have outgrown the kernels
            break
        t = _longest((point.a, da), (point.c, dc), (p, dp), (q, dq))
        ahead = float((point.a + t * da) @ (p + t * dp) + (point.c + t * dc) @ (q + t * dq))
        centre = now / (2 * n) * (ahead / now) ** 3
        wanted = (centre - da * dp) / point.a - p, (centre - dc * dq) / point.c - q  # Mehrotra's correction
        da, dc, dp, dq, db, drho = system.moves(rest_a, rest_c, *wanted)
        t = _INSIDE * _longest((point.a, da), (point.c, dc), (p, dp), (q, dq))
        if not t > _STUCK:
            break
        a, c = _even(y, point.a + t * da), point.c + t * dc
        point.move_to(a, c * ((n * point.C - a.sum()) / c.sum()))  # as feasible as rounding lets them be
        p, q, b, rho = p + t * dp, q + t * dq, b + t * db, rho + t * drho
        found = point.solution()
        best = found if found.gap < best.gap else best
    return best, p


def _multipliers(point: PlusPoint, b: float, rho: float) -> tuple[Array, Array]:
    """What makes the Lagrangian stationary: by how much the two constraints of the primal hold."""
    return rho + point.s - point.y * (point.g - b), rho + point.s


def _longest(*pairs: tuple[Array, Array]) -> float:
    """The largest step of at most 1 that leaves all values not negative."""
    return min(1.0, *(float(np.min(-value[move < 0] / move[move < 0], initial=1.0)) for value, move in pairs))


def _even(y: Array, a: Array) -> Array:
    """The duals a with the same sum in both classes: the smaller of the two."""
    positive, negative = float(a[y > 0].sum()), float(a[y < 0].sum())
    least = min(positive, negative)
    return a * np.where(y > 0, least / positive, least / negative) if least > 0 else np.zeros_like(a)


class _System:
    """The factorised equations of one iteration, with diagonals P and Q."""

    def __init__(self, point: PlusPoint, P: Array, Q: Array) -> None:
        self._P, self._Q = P, Q
        self._M = _inverse(point.G, 1.0 / point.lam, Q)
        system = np.array(point.K, dtype=np.float64).T  # symmetric: this is the order LAPACK likes
        system *= point.y[:, None] * point.y
        system -= (Q[:, None] * Q) * self._M
        system[np.diag_indices(len(Q))] += P + Q
        self._factor = _factor(system)
        self._kept = np.stack([point.y, Q * self._times_M(np.ones(len(Q)))], axis=1)
        self._bent = self._solve(self._kept)
        # The border: y'da = 0 and 1'de = 1'M(Q da + r_c) - 1'M1 drho = 0.
        self._border = self._kept.T @ self._bent
        self._border[1, 1] += float(self._times_M(np.ones(len(Q))).sum())

    def moves(
        self, rest_a: Array, rest_c: Array, wanted_p: Array, wanted_q: Array
    ) -> tuple[Array, Array, Array, Array, float, float]:
        """da, dc, dp, dq, db and drho with ``dp = wanted_p - P da`` and ``dq = wanted_q - Q dc``."""
        r_a, r_c = rest_a + wanted_p, rest_c + wanted_q
        inner = self._times_M(r_c)
        free = self._solve(r_a - r_c + self._Q * inner)
        db, drho = np.linalg.solve(self._border, self._kept.T @ free + [0.0, float(inner.sum())])
        da = free - self._bent @ [db, drho]
        dc = inner + self._times_M(self._Q * da - drho) - da
        return da, dc, wanted_p - self._P * da, wanted_q - self._Q * dc, float(db), float(drho)

    def _times_M(self, x: Array) -> Array:
        return blas.dsymv(1.0, self._M, x, lower=1)

    def _solve(self, right: Array) -> Array:
        return lapack.dpotrs(self._factor, right, lower=1)[0]


def _inverse(G: NDArray, scale: float, diagonal: Array) -> Array:
    """Lower triangle of (scale G + diagonal)^-1."""
    matrix = np.array(G, dtype=np.float64).T
    matrix *= scale
    matrix[np.diag_indices(len(matrix))] += diagonal
    return lapack.dpotri(_factor(matrix), lower=1, overwrite_c=1)[0]


def _factor(matrix: Array) -> Array:
    """Lower Cholesky factor; a ridge, grown until the factorisation succeeds, stands in for lost definiteness."""
    ridge = 0.0
    mean = float(np.diagonal(matrix).mean())
    for _ in range(10):
        shifted = matrix.copy(order="F")
        shifted[np.diag_indices(len(matrix))] += ridge
        factor, info = lapack.dpotrf(shifted, lower=1, overwrite_a=1, clean=0)
        if info == 0:
            return factor
        ridge = max(10 * ridge, 1e-14 * mean)
    raise np.linalg.LinAlgError("The kernels are far from positive semi-definite: check them.")
