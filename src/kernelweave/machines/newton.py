"""Newton steps of kernel machines with a bent loss: the linear system of

    min over v, b   1/2 v'Kv + L(f)          f = Kv + b,   1'v = 0 with a bias

around a point. Where the loss L has the gradient d and the second derivatives H, the step (s, t) solves

    s + H (K s + t) = -(v + d)          1's = 0

H is diagonal plus a rank-one term a group of samples, and need not be definite. Conjugate gradients find the step;
their preconditioner solves it for ``H = diag(D)``, by a Cholesky factor of ``K_SS + diag(1 / D)``, in single precision
unless D is large, where S are the samples of which D is not zero. D bounds the second derivatives, of this point or of
an earlier one: a factor serves for many steps. As it is rough, directions are made orthogonal to all earlier ones. The
solution tells the scores of S, too, so that an iteration reads the factor only; the kernel is read once a step, for
exact scores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.linalg import get_lapack_funcs

from .._config import FASTMATH
from .base import Array, blas_threads
from .decomposition import copy_block

#: A direction along which the model curves less than this share of its bound is not followed to its minimum; nor is one
#: of which earlier directions leave less than this share, as the rest is mostly rounding.
_FLAT, _NEW = 1e-9, 1e-6
#: Second derivatives, times the kernel of a sample with itself, from which on the rounding of single precision would
#: decide where steps lead.
_LARGE = 100.0
#: A full step in a direction gains something if the best length is above one half; this is safely so.
_DOWNHILL = 0.6
#: Conjugate gradients may leave this share of what a step can gain; the most iterations of a step.
_FORCING, _MAX_ITERATIONS = 1e-3, 30


class Bend(NamedTuple):
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
    """The preconditioner: samples S, 1 / D of them, the upper Cholesky factor, and the solution for ones by it."""

    samples: NDArray[np.intp]
    ridge: Array
    upper: NDArray
    ones: NDArray
    #: Iterations that were spent since on systems it nearly fits.
    spent: int = 0

    @classmethod
    def at(cls, K: NDArray, bound: Array) -> Factor:
        """The factor for the bound D of a point."""
        samples = np.flatnonzero(bound)
        largest = float(bound.max(initial=0.0)) * float(K.diagonal().mean())
        dtype: type = np.float32 if largest < _LARGE else np.float64
        lower, ridge = lower_factor(K, samples, 1 / bound[samples], dtype)
        upper = lower.T  # of a triangle that is laid out by columns: its rows are in order
        ones: NDArray = np.ones(len(samples), dtype=dtype)
        _back_and_forth(upper, ones)
        return cls(samples, ridge, upper, ones)


def lower_factor(K: NDArray, samples: NDArray[np.intp], ridge: Array, dtype: type) -> tuple[NDArray, Array]:
    """Cholesky factor of ``K_SS + diag(ridge)``, and the ridge. What is above the diagonal is not the factor's.

    Where rounding cost definiteness the ridge grows until it succeeds.
    """
    size = float(K.diagonal()[samples].sum()) / max(len(samples), 1)
    lost, least = 0.0, (1e-7 if dtype is np.float64 else 1e-6) * size
    block: NDArray = np.empty((len(samples), len(samples)), dtype=dtype)
    with blas_threads(len(samples)):
        for _ in range(8):
            copy_block(K, samples, block)
            A = block.T  # symmetric: laid out as LAPACK wants it
            A[np.diag_indices(len(samples))] += (ridge + lost).astype(dtype)
            (potrf,) = get_lapack_funcs(("potrf",), (A,))
            lower, failed = potrf(A, lower=1, overwrite_a=1, clean=0)  # no pass to clear what nobody reads
            if not failed:
                return lower, ridge + lost
            lost = max(100 * lost, least)
    raise np.linalg.LinAlgError("The kernel matrix is far from positive semi-definite: check the kernel.")


@dataclass
class Move:
    """A step: changes of the duals, of the bias and of ``K @ duals``, and the iterations that it took.

    Where the model is not curved in its direction it has no best length; `curved` says whether it has.
    """

    coef: Array
    intercept: float
    fitted: Array
    iterations: int
    curved: bool


def newton_move(
    K: NDArray, residual: Array, bend: Bend, factor: Factor, fit_intercept: bool, enough: float = 0.0
) -> Move:
    """The step, nearly.

    Parameters
    ----------
    K : array of shape (n_samples, n_samples)
    residual : array of shape (n_samples,)
        ``-(v + d)``.
    bend : Bend
    factor : Factor
    fit_intercept : bool
    enough : float
        Iterations end when one gains no more than this, or than a small share of all so far.
    """
    coef, fitted = np.zeros(len(K)), np.zeros(len(K))
    known = (factor.samples, factor.ridge, factor.upper, factor.ones)
    intercept, iterations, curved = _minimise(K, known, tuple(bend), residual, fit_intercept, enough, coef, fitted)
    return Move(coef, intercept, fitted, iterations, curved)


# --- compiled loops -------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True, fastmath=FASTMATH)
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


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _sum(a):
    """In double precision, whatever that of a."""
    total = 0.0
    for x in a:
        total += x
    return total


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _dot(a, b):
    total = 0.0
    for i in range(len(a)):
        total += a[i] * b[i]
    return total


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _add(a, t, b):
    """a += t * b"""
    for i in range(len(a)):
        a[i] += t * b[i]


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _back_and_forth(U, x):
    """Replace x by the solution y of ``U'U y = x``; rows of U are read in order, four at a time."""
    n = len(x)
    whole = n - n % 4
    for i in range(0, whole, 4):
        a, b, c, d = U[i], U[i + 1], U[i + 2], U[i + 3]
        p = x[i] / a[i]
        q = (x[i + 1] - p * a[i + 1]) / b[i + 1]
        r = (x[i + 2] - p * a[i + 2] - q * b[i + 2]) / c[i + 2]
        s = (x[i + 3] - p * a[i + 3] - q * b[i + 3] - r * c[i + 3]) / d[i + 3]
        x[i], x[i + 1], x[i + 2], x[i + 3] = p, q, r, s
        a, b, c, d, rest = a[i + 4 :], b[i + 4 :], c[i + 4 :], d[i + 4 :], x[i + 4 :]
        for j in range(len(rest)):
            rest[j] -= p * a[j] + q * b[j] + r * c[j] + s * d[j]
    for i in range(whole, n):
        x[i] /= U[i, i]
        _add(x[i + 1 :], -x[i], U[i, i + 1 :])
    for i in range(n - 1, whole - 1, -1):
        x[i] = (x[i] - _dot(U[i, i + 1 :], x[i + 1 :])) / U[i, i]
    for i in range(whole - 4, -1, -4):
        a, b, c, d, rest = U[i, i + 4 :], U[i + 1, i + 4 :], U[i + 2, i + 4 :], U[i + 3, i + 4 :], x[i + 4 :]
        p = q = r = s = x.dtype.type(0.0)
        for j in range(len(rest)):
            p += a[j] * rest[j]
            q += b[j] * rest[j]
            r += c[j] * rest[j]
            s += d[j] * rest[j]
        s = (x[i + 3] - s) / U[i + 3, i + 3]
        r = (x[i + 2] - r - s * U[i + 2, i + 3]) / U[i + 2, i + 2]
        q = (x[i + 1] - q - r * U[i + 1, i + 2] - s * U[i + 1, i + 3]) / U[i + 1, i + 1]
        p = (x[i] - p - q * U[i, i + 1] - r * U[i, i + 2] - s * U[i, i + 3]) / U[i, i]
        x[i], x[i + 1], x[i + 2], x[i + 3] = p, q, r, s


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _precondition(K, known, others, r, bias, v, f):
    """Write to v and f the duals and scores that solve the system for ``H = diag(D)``; returns the bias.

    `others` are the samples outside the factor that matter. The scores of the factor's own samples follow from their
    equation ``v + D f = r``, without a product.
    """
    samples, ridge, U, ones = known
    v[:], f[:] = 0.0, 0.0
    v[others] = r[others]
    add_rows(K, others, r[others], f)
    x = np.empty(len(samples), dtype=U.dtype)
    for j in range(len(samples)):
        x[j] = r[samples[j]] * ridge[j] - f[samples[j]]
    _back_and_forth(U, x)
    b = (_sum(x) + _sum(r[others])) / _sum(ones) if bias and len(samples) > 0 else 0.0
    f[:] = 0.0
    for j in range(len(samples)):
        i = samples[j]
        v[i] = x[j] - b * ones[j]
        f[i] = ridge[j] * (r[i] - v[i])
    for i in others:
        f[i] = b + _dot(K[i], v)
    return b


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _add_bent(H, x, out):
    """``out += H x``"""
    _, own, along, strength, members, starts, ends = H
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


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _minimise(K, known, H, residual, bias, enough, coef, fitted):
    """Conjugate gradients; the step is added to coef, and its product with K to fitted.

    Returns the step of the bias, the iterations, and whether the model curves in its direction. The functional that a
    direction (v, b) has in the metric of the model is ``A = v + H f``, as long as v sums to zero where there is a bias.
    """
    n, bound = len(residual), H[0]
    r, matter, flat = residual.copy(), (residual != 0) | (bound > 0), (residual != 0) & (bound == 0)
    matter[known[0]], flat[known[0]] = False, False
    others = np.flatnonzero(matter)
    vs, fs, As = np.empty((_MAX_ITERATIONS, n)), np.empty((_MAX_ITERATIONS, n)), np.empty((_MAX_ITERATIONS, n))
    bs, curves = np.empty(_MAX_ITERATIONS), np.empty(_MAX_ITERATIONS)
    intercept, total, kept, taken, curved = 0.0, 0.0, 0, 0, True
    while taken < _MAX_ITERATIONS:
        v, f, A = vs[kept], fs[kept], As[kept]
        b = _precondition(K, known, others, r, bias, v, f)
        A[:] = v
        _add_bent(H, f, A)
        before = _dot(f, A)
        for j in range(kept):
            overlap = -_dot(f, As[j]) / curves[j]
            b += overlap * bs[j]
            _add(v, overlap, vs[j])
            _add(f, overlap, fs[j])
            _add(A, overlap, As[j])
        curve, slope = _dot(f, A), _dot(r, f)
        bs[kept], curves[kept] = b, curve
        curved = curve > _FLAT * (_dot(f, v) + _dot(f, bound * f))
        if taken > 0 and (not curved or curve < _NEW * before):
            break
        length = slope / curve if curved else 1.0
        if taken == 0 and length > _DOWNHILL and np.any(flat):
            # where the loss is flat a full first step solves the system for good: those samples matter no more
            length, others = 1.0, np.flatnonzero(matter & ~flat)
        else:
            kept += 1
        gain = length * (slope - 0.5 * length * curve)
        intercept += length * b
        _add(coef, length, v)
        _add(r, -length, A)
        total += gain
        taken += 1
        if not curved or (taken > 1 and gain <= max(enough, _FORCING * total)):
            break
    moved = np.flatnonzero(coef)
    add_rows(K, moved, coef[moved], fitted)
    return intercept, taken, curved or taken > 1
