"""Newton steps of kernel machines with a bent loss: the linear system of

    min over v, b   1/2 v'Kv + L(f)          f = Kv + b,   1'v = 0 with a bias

around a point. Where the loss L has the gradient d and the second derivatives H, the step (s, t) solves

    s + H (K s + t) = -(v + d)          1's = 0

H is diagonal plus a rank-one term a group of samples, and need not be definite. Conjugate gradients find the step, with
the Cholesky factor of ``K_SS + diag(1 / D)``, of this point or an earlier one, in single precision as preconditioner: D
is a diagonal that H does not exceed, S are the samples where it is not zero. As such a factor is rough, directions are
made orthogonal to all earlier ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.linalg import cholesky
from scipy.linalg.blas import dtrsv

from .base import Array, blas_threads

_FAST = {"reassoc", "contract", "nsz", "arcp"}
#: A direction along which the model curves less than this share of its bound is not followed to its minimum; nor is one
#: of which earlier directions leave less than this share, as the rest is mostly rounding.
_FLAT, _NEW = 1e-9, 1e-6


@dataclass
class Bend:
    """Second derivatives of a loss of scores: ``diag(own)`` plus, over groups, ``strength_g * along_g along_g'``.

    Attributes
    ----------
    bound : array of shape (n_samples,)
        A diagonal that they do not exceed; zero where the loss is flat, as all else must be there.
    own, along : arrays of shape (n_samples,)
    strength : array of shape (n_groups,)
    members, starts, ends : arrays of int
        The samples ``members[starts[g]:ends[g]]`` are the group g.
    """

    bound: Array
    own: Array
    along: Array
    strength: Array
    members: NDArray[np.intp]
    starts: NDArray[np.intp]
    ends: NDArray[np.intp]

    @classmethod
    def diagonal(cls, own: Array) -> Bend:
        """Without groups."""
        nothing = np.empty(0, dtype=np.intp)
        return cls(own, own, own, np.empty(0), nothing, nothing, nothing)


@dataclass
class Factor:
    """Cholesky factor of ``K_SS + diag(ridge)`` for samples S."""

    samples: NDArray[np.intp]
    ridge: Array
    lower: Array
    #: Iterations that were spent since on systems it nearly fits.
    spent: int = 0

    def solve(self, r: Array) -> Array:
        """Solution of the factored system."""
        return dtrsv(self.lower, dtrsv(self.lower, r, lower=1), lower=1, trans=1, overwrite_x=1)

    @cached_property
    def upper(self) -> NDArray[np.float32]:
        """The transposed factor in single precision, which halves the memory that is read."""
        return np.ascontiguousarray(self.lower.T, dtype=np.float32)


def factorise(K: NDArray, samples: NDArray[np.intp], ridge: Array) -> Factor:
    """Cholesky factor, with a larger ridge, grown until it succeeds, where rounding cost definiteness."""
    lost = 0.0
    with blas_threads(len(samples)):
        for _ in range(8):
            A = K[np.ix_(samples, samples)].astype(np.float64).T  # symmetric: laid out as LAPACK wants it
            A[np.diag_indices(len(samples))] += ridge + lost
            try:
                return Factor(samples, ridge, cholesky(A, lower=True, overwrite_a=True, check_finite=False))
            except np.linalg.LinAlgError:
                lost = max(100 * lost, 1e-7 * float(K.diagonal()[samples].mean()))
    raise np.linalg.LinAlgError("The kernel matrix is far from positive semi-definite: check the kernel.")


@dataclass
class Move:
    """A step: changes of the duals, of the bias and of ``K @ duals``, and the iterations that it took.

    Where the loss is not curved in its direction it has no best length; `curved` says whether it has.
    """

    coef: Array
    intercept: float
    fitted: Array
    iterations: int
    curved: bool


def newton_move(
    K: NDArray,
    residual: Array,
    bend: Bend,
    factor: Factor,
    fit_intercept: bool,
    enough: float,
    share: float,
    limit: int,
) -> Move:
    """The step, up to what an iteration gains at the end.

    Parameters
    ----------
    K : array of shape (n_samples, n_samples)
    residual : array of shape (n_samples,)
        ``-(v + d)``.
    bend : Bend
    factor : Factor
    fit_intercept : bool
    enough, share : float
        Iterations end when one gains at most this much, or at most this share of all so far.
    limit : int
        The most iterations.
    """
    coef, fitted = np.zeros(len(K)), np.zeros(len(K))
    H = (bend.bound, bend.own, bend.along, bend.strength, bend.members, bend.starts, bend.ends)
    known = (factor.samples, factor.ridge, factor.upper)
    intercept, iterations, curved = _minimise(
        K, *known, residual, *H, fit_intercept, enough, share, limit, coef, fitted
    )
    return Move(coef, intercept, fitted, iterations, curved)


# --- compiled loops -------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True, fastmath=_FAST)
def add_rows(K, rows, x, out):
    """``out += x @ K[rows]``, four rows at a time: reads only those rows, whatever the precision of K."""
    n_rows, n = len(rows), len(out)
    whole = n_rows - n_rows % 4
    for j in range(0, whole, 4):
        first, second, third, fourth = K[rows[j]], K[rows[j + 1]], K[rows[j + 2]], K[rows[j + 3]]
        a, b, c, d = x[j], x[j + 1], x[j + 2], x[j + 3]
        for i in range(n):
            out[i] += a * first[i] + b * second[i] + c * third[i] + d * fourth[i]
    for j in range(whole, n_rows):
        row, a = K[rows[j]], x[j]
        for i in range(n):
            out[i] += a * row[i]


@njit(cache=True, nogil=True, fastmath=_FAST)
def _sum(a):
    """In double precision, whatever that of a."""
    total = 0.0
    for x in a:
        total += x
    return total


@njit(cache=True, nogil=True, fastmath=_FAST)
def _dot(a, b):
    total = 0.0
    for i in range(len(a)):
        total += a[i] * b[i]
    return total


@njit(cache=True, nogil=True, fastmath=_FAST)
def _add(a, t, b):
    """a += t * b"""
    for i in range(len(a)):
        a[i] += t * b[i]


@njit(cache=True, nogil=True, fastmath=_FAST)
def _back_and_forth(U, x):
    """Solve ``U'U x = x`` in place, rows of U in order."""
    n = len(x)
    for i in range(n):
        x[i] /= U[i, i]
        row, rest, t = U[i, i + 1 :], x[i + 1 :], x[i]
        for j in range(len(rest)):
            rest[j] -= t * row[j]
    for i in range(n - 1, -1, -1):
        row, rest = U[i, i + 1 :], x[i + 1 :]
        total = np.float32(0.0)
        for j in range(len(rest)):
            total += row[j] * rest[j]
        x[i] = (x[i] - total) / U[i, i]


@njit(cache=True, nogil=True, fastmath=_FAST)
def _times(own, along, strength, members, starts, ends, x, out):
    """``out += H x``"""
    for i in range(len(x)):
        out[i] += own[i] * x[i]
    for g in range(len(strength)):
        if strength[g] != 0:
            here = members[starts[g] : ends[g]]
            total = 0.0
            for i in here:
                total += along[i] * x[i]
            for i in here:
                out[i] += strength[g] * total * along[i]


@njit(cache=True, nogil=True, fastmath=_FAST)
def _minimise(
    K,
    known,
    ridge,
    U,
    residual,
    bound,
    own,
    along,
    strength,
    members,
    starts,
    ends,
    bias,
    enough,
    share,
    limit,
    coef,
    fitted,
):
    """Conjugate gradients; the step is added to coef and fitted. Returns the step of the bias, iterations, and
    whether the model curves.

    The preconditioner takes ``H = 1 / ridge`` on the known samples, and zero elsewhere.
    """
    n = len(residual)
    r, unknown = residual.copy(), np.ones(n, dtype=np.bool_)
    unknown[known] = False
    ones = np.ones(len(known), dtype=np.float32)
    _back_and_forth(U, ones)
    x, whole = np.empty(len(known), dtype=np.float32), _sum(ones)
    vs, fs, As = np.empty((limit, n)), np.empty((limit, n)), np.empty((limit, n))
    bs, curves = np.empty(limit), np.empty(limit)
    intercept, total, taken = 0.0, 0.0, 0
    for k in range(limit):
        v, f, A = vs[k], fs[k], As[k]
        v[:], f[:] = 0.0, 0.0
        away = np.flatnonzero(unknown & (r != 0))
        v[away] = r[away]
        add_rows(K, away, r[away], f)
        for j in range(len(known)):
            x[j] = r[known[j]] * ridge[j] - f[known[j]]
        _back_and_forth(U, x)
        b = (_sum(x) + _sum(r[away])) / whole if bias else 0.0
        for j in range(len(known)):
            v[known[j]] = x[j] - b * ones[j]
        f += b
        add_rows(K, known, v[known], f)
        A[:] = v
        _times(own, along, strength, members, starts, ends, f, A)
        before = _dot(f, A)
        for j in range(k):
            overlap = -_dot(f, As[j]) / curves[j]
            b += overlap * bs[j]
            _add(v, overlap, vs[j])
            _add(f, overlap, fs[j])
            _add(A, overlap, As[j])
        curves[k], bs[k] = _dot(f, A), b
        most = 0.0
        for i in range(n):
            most += f[i] * (v[i] + bound[i] * f[i])
        curved = curves[k] > _FLAT * most
        if k > 0 and (not curved or curves[k] < _NEW * before):
            break
        slope = _dot(r, f)
        length = slope / curves[k] if curved else 1.0
        intercept += length * b
        _add(coef, length, v)
        _add(fitted, length, f)
        _add(r, -length, A)
        gain = 0.5 * length * slope
        total += gain
        taken += 1
        if not curved or (k > 0 and gain <= max(enough, share * total)):
            break
    for i in range(n):
        fitted[i] -= intercept
    return intercept, taken, curved or k > 0
