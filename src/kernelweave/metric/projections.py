"""Cyclic projections: one pair after the other is put right by a rank-one change of the matrices.

The problem, in coordinates in which both priors are the identity (see :mod:`.space`):

    min  D(M, I) + lam D(P, I) + gamma sum_k l(xi_k, target_k) + slack_cost sum_k l(p_k, 1)
    such that   sign_k (r_k - xi_k) <= 0      and      xi_k = s_k + slack_k p_k   for privileged pairs

with squared distances r_k under M (main features) and s_k under P (privileged features), D the LogDet divergence and
l(x, t) = x/t - log(x/t) - 1. A pair without privileged features has its xi_k free, and p_k is there only where
slack_k > 0. The multipliers a_k >= 0 of the inequality and b_k of the equality hold everything:

    inv(M) = I + sum_k sign_k a_k dx_k dx_k'               1/xi_k = 1/target_k + (b_k - sign_k a_k) / gamma
    inv(P) = I - sum_k b_k dz_k dz_k' / lam                1/p_k  = 1 - slack_k b_k / slack_cost

and a projection is the exact maximum of the dual over a_k and b_k, with the others as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from .._config import FASTMATH
from .pairs import PairSet

Array = NDArray[np.float64]

#: Projections after which the matrices are made anew from the multipliers, so that rounding does not add up.
_REBUILD_AFTER = 200_000
#: Beyond this condition the sum over multipliers is mostly cancellation: the running matrix is the better one.
_ILL_CONDITIONED = 1e12
#: Numbers in one block of differences between samples.
_BLOCK = 1 << 21


@dataclass(frozen=True, eq=False)
class Problem:
    """What the projections work on; n samples, N pairs.

    Parameters
    ----------
    X : ndarray, shape (n, n_axes)
    Z : ndarray, shape (n, n_privileged_axes)
        Privileged features; rows of samples that are in no privileged pair are not read. May have no columns.
    pairs : PairSet
        `pairs.privileged` says which pairs have privileged features.
    targets : ndarray, shape (N,)
    gamma, lam : float
    slack : float
        Residual slack of a privileged pair, as a share of its target.
    slack_cost : float
    """

    X: Array
    Z: Array
    pairs: PairSet
    targets: Array
    gamma: float
    lam: float = 1.0
    slack: float = 0.0
    slack_cost: float = 1.0
    signs: Array = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "signs", self.pairs.similar.astype(float))

    @property
    def hard(self) -> NDArray[np.bool_]:
        """Pairs without any slack: together they may be impossible to satisfy."""
        return self.pairs.privileged if self.slack == 0 else np.zeros(len(self.pairs), bool)


@dataclass(eq=False)
class State:
    """Where the projections are: matrices, multipliers, and the reciprocals of xi and p."""

    M: Array
    P: Array
    a: Array
    b: Array
    inverse_xi: Array
    inverse_p: Array
    since_rebuilt: int = 0

    @classmethod
    def start(cls, problem: Problem) -> State:
        N = len(problem.pairs)
        return cls(
            M=np.eye(problem.X.shape[1]),
            P=np.eye(problem.Z.shape[1]),
            a=np.zeros(N),
            b=np.zeros(N),
            inverse_xi=1 / problem.targets,
            inverse_p=np.ones(N),
        )


def sweep(problem: Problem, state: State, order: NDArray[np.intp], corrected: bool) -> None:
    """Project on the pairs in the given order, in place; `corrected` lets multipliers shrink again."""
    pairs = problem.pairs
    _sweep(
        order,
        pairs.first,
        pairs.second,
        problem.signs,
        pairs.privileged,
        problem.X,
        problem.Z,
        problem.gamma,
        problem.lam,
        problem.slack * problem.targets,
        problem.slack_cost,
        corrected,
        state.M,
        state.P,
        state.a,
        state.b,
        state.inverse_xi,
        state.inverse_p,
        np.zeros((3, problem.X.shape[1])),
        np.zeros((3, problem.Z.shape[1])),
    )
    state.since_rebuilt += len(order)
    if state.since_rebuilt >= _REBUILD_AFTER:
        rebuild(problem, state)


def rebuild(problem: Problem, state: State) -> None:
    """Make the matrices anew from the multipliers."""
    for matrix, weighted in (
        (state.M, weighted_outer(problem.X, problem.pairs, problem.signs * state.a)),
        (state.P, weighted_outer(problem.Z, problem.pairs, -state.b / problem.lam)),
    ):
        matrix += matrix.T
        matrix *= 0.5
        exact = _inverse(np.eye(len(matrix)) + weighted)
        if exact is not None:
            matrix[...] = exact
    state.since_rebuilt = 0


def weighted_outer(X: Array, pairs: PairSet, weights: Array) -> Array:
    """``sum_k weights_k d_k d_k'`` over the differences d_k of the pairs, in blocks."""
    used, total = np.flatnonzero(weights), np.zeros((X.shape[1], X.shape[1]))
    size = max(1, _BLOCK // max(X.shape[1], 1))
    for begin in range(0, len(used), size):
        block = used[begin : begin + size]
        differences = X[pairs.first[block]] - X[pairs.second[block]]
        total += (differences * weights[block, None]).T @ differences
    return total


def squared_distances(X: Array, M: Array, pairs: PairSet) -> Array:
    """``d_k' M d_k`` of every pair, shape (N,)."""
    squared = np.empty(len(pairs))
    _squared_distances(X, X @ M, pairs.first, pairs.second, squared)
    return squared


def _inverse(A: Array) -> Array | None:
    """The inverse of a positive definite matrix, or None where rounding forbids it."""
    if not len(A):
        return A
    try:
        factor = cho_factor(A)
    except (LinAlgError, ValueError):
        return None
    diagonal = np.diag(factor[0])
    if (diagonal.max() / diagonal.min()) ** 2 > _ILL_CONDITIONED:
        return None
    inverse = cho_solve(factor, np.eye(len(A)))
    return (inverse + inverse.T) / 2


# --- compiled ---------------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _sweep(
    order, first, second, signs, privileged, X, Z, gamma, lam, slack, slack_cost, corrected,
    M, P, a, b, inverse_xi, inverse_p, buffers_x, buffers_z,
):  # fmt: skip
    dx, wx, spare_x = buffers_x[0], buffers_x[1], buffers_x[2]
    dz, wz, spare_z = buffers_z[0], buffers_z[1], buffers_z[2]
    cx, cz = 0.0, 0.0  # M - cx wx wx' and P - cz wz wz' are the matrices: a change waits for the next product
    for k in order:
        sign, floor = signs[k], -a[k] if corrected else 0.0
        _difference(X, first[k], second[k], dx)
        # Most pairs are right already, and half of M is enough to see that.
        if cx == 0 and a[k] == 0 and not privileged[k] and sign * (_quadratic(M, dx) * inverse_xi[k] - 1) <= 0:
            continue
        r = _change_and_multiply(M, cx, wx, dx, spare_x)
        wx, spare_x = spare_x, wx
        cx = 0.0
        if privileged[k]:
            _difference(Z, first[k], second[k], dz)
            s = _change_and_multiply(P, cz, wz, dz, spare_z)
            wz, spare_z = spare_z, wz
            cz = 0.0
            step, beta, inverse_r = _project_privileged(
                sign, floor, 1 / r, 1 / s, inverse_xi[k], inverse_p[k], gamma, lam, slack[k], slack_cost
            )
            inverse_s = 1 / s - beta / lam
            if not (0 < inverse_r < np.inf and 0 < inverse_s < np.inf):
                continue  # rounding of a pair that is much larger or smaller than all else
            cz = _scale(wz, -beta / (lam * s * inverse_s))
            b[k] += beta
            inverse_p[k] -= slack[k] * beta / slack_cost
            inverse_xi[k] = _parallel(inverse_s, inverse_p[k], slack[k])
        else:
            step, inverse_r = _project(sign, floor, 1 / r, inverse_xi[k], gamma)
            if not (0 < inverse_r < np.inf and inverse_xi[k] - step / gamma > 0):
                continue
            inverse_xi[k] -= step / gamma
        cx = _scale(wx, step / (r * inverse_r))
        a[k] = max(a[k] + sign * step, 0.0)
    _subtract(M, cx, wx)
    _subtract(P, cz, wz)


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _project(sign, floor, inverse_r, inverse_xi, gamma):
    """Change of 1/r, and the new 1/r: a weighted harmonic mean, unless that would make the multiplier negative."""
    mean = (inverse_r + gamma * inverse_xi) / (1 + gamma)
    step = mean - inverse_r
    if sign * step >= floor:
        return step, mean
    step = sign * floor
    return step, inverse_r + step


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _project_privileged(sign, floor, inverse_r, inverse_s, inverse_xi, inverse_p, gamma, lam, slack, slack_cost):
    """Change of 1/r, change of b, and the new 1/r."""
    rates = 1 / lam, slack / slack_cost
    pull = gamma * inverse_xi + inverse_r
    beta = _correction(1 + gamma, pull, inverse_s, inverse_p, slack, rates)
    common = _parallel(inverse_s - beta * rates[0], inverse_p - beta * rates[1], slack)
    step = common - inverse_r
    if sign * step >= floor:
        return step, beta, common
    step = sign * floor
    beta = _correction(gamma, gamma * inverse_xi - step, inverse_s, inverse_p, slack, rates)
    return step, beta, inverse_r + step


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _correction(weight, pull, inverse_s, inverse_p, slack, rates):
    """The beta with ``weight / (s(beta) + slack p(beta)) = pull + beta``, 1/s and 1/p falling at the given rates.

    The left side less the right is concave and falls: from the right of its root, Newton's steps come down to it.
    """
    if slack == 0:
        return (weight * inverse_s - pull) / (1 + weight * rates[0])
    beta = 0.0
    if weight * _parallel(inverse_s, inverse_p, slack) > pull:
        beta = min(inverse_s / rates[0], inverse_p / rates[1])
    for _ in range(60):
        A, B = inverse_s - beta * rates[0], inverse_p - beta * rates[1]
        total = B + slack * A
        slope = weight * (B * B * rates[0] + slack * A * A * rates[1]) / (total * total) + 1
        change = (weight * A * B / total - pull - beta) / slope
        beta += change
        if abs(change) <= 1e-15 * (abs(beta) + pull):
            break
    return beta


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _parallel(inverse_s, inverse_p, slack):
    """``1 / (s + slack p)``."""
    return inverse_s * inverse_p / (inverse_p + slack * inverse_s)


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _difference(X, i, j, out):
    for t in range(len(out)):
        out[t] = X[i, t] - X[j, t]


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _scale(w, c):
    """Make ``c w w'`` into ``sign w w'``, and return the sign: products of entries then round to a symmetric matrix."""
    root = np.sqrt(abs(c))
    for t in range(len(w)):
        w[t] *= root
    return np.sign(c)


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _change_and_multiply(M, c, w, d, out):
    """Take ``c w w'`` from M and put ``M d`` in `out` in one pass over M; returns ``d' M d``."""
    squared = 0.0
    for i in range(len(d)):
        row, total = M[i], 0.0
        if c == 0:
            for j in range(len(d)):
                total += row[j] * d[j]
        else:
            scaled = c * w[i]
            for j in range(len(d)):
                row[j] -= scaled * w[j]
                total += row[j] * d[j]
        out[i] = total
        squared += total * d[i]
    return squared


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _quadratic(M, d):
    """``d' M d`` from the lower triangle of M."""
    squared = 0.0
    for i in range(len(d)):
        total = 0.5 * M[i, i] * d[i]
        for j in range(i):
            total += M[i, j] * d[j]
        squared += 2 * total * d[i]
    return squared


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _squared_distances(X, mapped, first, second, out):
    for k in range(len(out)):
        i, j, total = first[k], second[k], 0.0
        for t in range(X.shape[1]):
            total += (X[i, t] - X[j, t]) * (mapped[i, t] - mapped[j, t])
        out[k] = total


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _subtract(M, c, w):
    for i in range(len(w)):
        for j in range(len(w)):
            M[i, j] -= c * w[i] * w[j]
