"""What kernels are functions of: inner products, distances and overlaps between rows of a view.

Every quantity knows one thing, the block between two sets of rows; triangles and cross kernels are made of blocks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit, prange
from numpy.typing import DTypeLike, NDArray

from .._config import FASTMATH, parallel_loop
from ..views import GramRows

LANES = 64  # columns of a block computed side by side, one a vector lane
STRIDE = 8  # features taken in one go: running sums then are loaded and stored once for eight features
TINY = 1e-18  # added to scaled features so that 0/0 counts 0; its square still is a normal single-precision number


class Quantity(ABC):
    """A number between two samples of one view. Equal quantities on one view are computed once."""

    name: str = ""
    #: Whether a sample has the quantity zero with itself (a distance); rounding is then removed from the diagonal.
    zero_to_itself: bool = False
    #: Whether a block is one serial computation, so that several blocks may be computed in threads side by side.
    serial: bool = False

    def check(self, X: Any, view: str) -> None:  # noqa: B027 (most quantities are defined for all rows)
        """Refuse rows the quantity is not defined for."""

    @abstractmethod
    def prepare(self, X: Any, dtype: DTypeLike) -> Any:
        """Bring the right-hand rows into the form `block` reads."""

    @abstractmethod
    def block(self, A: Any, right: Any, out: NDArray) -> None:
        """Write the quantity between rows A (n_a, d) and the first ``out.shape[1]`` prepared rows into ``out``."""

    @abstractmethod
    def diagonal(self, A: Any) -> NDArray:
        """The quantity of every row with itself: (n_a,)."""


class _Dot(Quantity):
    """Inner products, multiplied in double precision whatever the storage."""

    name = "dot"
    serial = True

    def prepare(self, X: Any, dtype: DTypeLike) -> NDArray:
        return np.asarray(X, dtype=np.float64)

    def block(self, A: Any, right: NDArray, out: NDArray) -> None:
        out[...] = np.asarray(A, dtype=np.float64) @ right[: out.shape[1]].T

    def diagonal(self, A: Any) -> NDArray:
        return np.einsum("ij,ij->i", A, A, dtype=np.float64)


class _SquaredEuclidean(Quantity):
    """Squared Euclidean distances by a matrix product of centred rows, in double precision.

    Centring takes away the common part of all rows, which would drown small distances in rounding.
    """

    name = "sqeuclidean"
    zero_to_itself = True
    serial = True

    def prepare(self, X: Any, dtype: DTypeLike) -> tuple[NDArray, NDArray, NDArray]:
        centre = X.mean(axis=0, dtype=np.float64)
        centred = X - centre
        return centre, centred, np.einsum("ij,ij->i", centred, centred)

    def block(self, A: Any, right: tuple[NDArray, NDArray, NDArray], out: NDArray) -> None:
        centre, B, norms = right
        A = A - centre
        distances = (-2.0 * A) @ B[: out.shape[1]].T
        distances += np.einsum("ij,ij->i", A, A)[:, None]
        distances += norms[: out.shape[1]]
        np.maximum(distances, 0.0, out=out, casting="same_kind")

    def diagonal(self, A: Any) -> NDArray:
        return np.zeros(len(A))


class _Precomputed(Quantity):
    """Entries of a kernel the user computed; what is prepared are the numbers of the columns to take."""

    name = "precomputed"

    def prepare(self, X: Any, dtype: DTypeLike) -> Any:
        raise TypeError("the columns of a precomputed kernel come from the numbers of the training samples")

    def block(self, A: Any, right: GramColumns, out: NDArray) -> None:
        width = out.shape[1]
        if isinstance(A, GramRows):
            out[...] = A.gram[np.ix_(A.ids, right.ids[:width])]
        else:
            out[...] = A[:, right.positions[:width]]

    def diagonal(self, A: Any) -> NDArray:
        if isinstance(A, GramRows):
            return np.asarray(A.gram[A.ids, A.ids], dtype=np.float64)
        raise ValueError(
            "unit-diagonal normalisation of a precomputed kernel needs the kernel of new samples with themselves, "
            "which an array (n_kernels, n_new, n_training) does not hold: pass a KernelStack, or normalise before"
        )


@dataclass(frozen=True)
class GramColumns:
    """Which columns of a precomputed kernel stand for training samples.

    Attributes
    ----------
    ids : array of int
        Numbers in the whole `KernelStack`.
    positions : array of int
        Numbers among the training samples.
    n_training : int
        How many training samples there are.
    n_base : int
        How many samples the whole `KernelStack` has.
    """

    ids: NDArray
    positions: NDArray
    n_training: int
    n_base: int


@dataclass(frozen=True)
class FunctionQuantity(Quantity):
    """Values of a function the user wrote."""

    function: Callable[[NDArray, NDArray], NDArray]
    name = "function"

    @property
    def function_name(self) -> str:
        """The name the function was defined with."""
        return getattr(self.function, "__name__", type(self.function).__name__)

    def prepare(self, X: Any, dtype: DTypeLike) -> Any:
        return X

    def block(self, A: Any, right: Any, out: NDArray) -> None:
        values = np.asarray(self.function(A, right[: out.shape[1]]))
        if values.shape != out.shape:
            raise ValueError(
                f"the kernel function {self.function_name} must return an array of shape {out.shape} for {len(A)} and "
                f"{out.shape[1]} samples, got {values.shape}"
            )
        out[...] = values

    def diagonal(self, A: Any) -> NDArray:
        return np.array([np.asarray(self.function(row[None], row[None]))[0, 0] for row in A], dtype=np.float64)


class _FeatureSum(Quantity):
    """A sum over features of a function of two numbers with ``f(c x, c y) = c f(x, y)``, computed by a compiled loop.

    The right-hand rows are laid out in tiles of `LANES` rows, feature by feature, so that neighbouring vector lanes
    hold neighbouring samples. Features are divided by their largest value, so that products of them stay in range.
    """

    def __init__(self, name: str, term: int, nonnegative: bool, zero_to_itself: bool) -> None:
        self.name = name
        self.zero_to_itself = zero_to_itself
        self._term = term
        self._nonnegative = nonnegative

    def check(self, X: Any, view: str) -> None:
        if self._nonnegative and X.size and X.min() < 0:
            row, column = np.unravel_index(int(X.argmin()), X.shape)
            raise ValueError(
                f"view {view!r} has the negative value {X[row, column]:.6g} at row {row}, column {column}: "
                f"its {self.name} kernel needs non-negative features such as histograms"
            )

    def prepare(self, X: Any, dtype: DTypeLike) -> tuple[float, NDArray]:
        largest = float(np.abs(X).max()) or 1.0
        rows = _scaled(X, largest, dtype)
        n_tiles = -(-len(rows) // LANES)
        tiles = np.full((n_tiles, rows.shape[1], LANES), TINY, rows.dtype)
        for t in range(n_tiles):
            part = rows[t * LANES : (t + 1) * LANES]
            tiles[t, :, : len(part)] = part.T
        return largest, tiles.reshape(n_tiles, -1)

    def block(self, A: Any, right: tuple[float, NDArray], out: NDArray) -> None:
        largest, tiles = right
        rows = _scaled(A, largest, tiles.dtype)
        sums = np.empty((-(-out.shape[1] // LANES), LANES), tiles.dtype)
        with parallel_loop(len(rows) * tiles.size):
            _sum_features(self._term, rows, tiles, sums, out)
        out *= largest

    def diagonal(self, A: Any) -> NDArray:
        return np.zeros(len(A)) if self.zero_to_itself else A.sum(axis=1, dtype=np.float64)


class _AdditiveChiSquared(Quantity):
    """``sum 2 x y / (x + y)``, which is the mean of the two row sums less the chi-squared distance."""

    name = "additive chi-squared"

    def check(self, X: Any, view: str) -> None:
        CHI2.check(X, view)

    def prepare(self, X: Any, dtype: DTypeLike) -> tuple[Any, NDArray]:
        return CHI2.prepare(X, dtype), X.sum(axis=1, dtype=np.float64)

    def block(self, A: Any, right: tuple[Any, NDArray], out: NDArray) -> None:
        prepared, sums = right
        CHI2.block(A, prepared, out)
        np.negative(out, out=out)
        out += (A.sum(axis=1, dtype=np.float64) / 2)[:, None]
        out += sums[: out.shape[1]] / 2
        np.maximum(out, 0, out=out)

    def diagonal(self, A: Any) -> NDArray:
        return A.sum(axis=1, dtype=np.float64)


def _scaled(X: NDArray, largest: float, dtype: DTypeLike) -> NDArray:
    n, d = X.shape
    rows = np.full((n, -(-d // STRIDE) * STRIDE), TINY, dtype=dtype)
    np.multiply(X, 1.0 / largest, out=rows[:, :d], casting="same_kind")
    rows[:, :d] += TINY
    return rows


_CHI2_TERM, _MINIMUM_TERM, _CITYBLOCK_TERM = 0, 1, 2


@njit(cache=True, nogil=True, fastmath=FASTMATH, error_model="numpy", parallel=True)
def _sum_features(term, rows, tiles, sums, out):
    n_columns = out.shape[1]
    for t in prange(sums.shape[0]):
        first = t * LANES
        last = min(first + LANES, n_columns)
        for i in range(rows.shape[0]):
            sums[t, :] = 0
            for f in range(0, rows.shape[1], STRIDE):
                x = rows[i, f : f + STRIDE]
                y = tiles[t, f * LANES : (f + STRIDE) * LANES]
                if term == _CHI2_TERM:
                    _add_chi2(x, y, sums[t])
                elif term == _MINIMUM_TERM:
                    _add_minimum(x, y, sums[t])
                else:
                    _add_cityblock(x, y, sums[t])
            out[i, first:last] = sums[t, : last - first]


@njit(cache=True, nogil=True, fastmath=FASTMATH, error_model="numpy")
def _two_ratios(x0, y0, x1, y1):
    # a/b + c/d = (a d + c b) / (b d): one division, the slowest operation here, for two features.
    s0, s1, d0, d1 = x0 + y0, x1 + y1, x0 - y0, x1 - y1
    return (d0 * d0 * s1 + d1 * d1 * s0) / (s0 * s1)


@njit(cache=True, nogil=True, fastmath=FASTMATH, error_model="numpy")
def _add_chi2(x, y, sums):
    x0, x1, x2, x3, x4, x5, x6, x7 = x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]
    half = x.dtype.type(0.5)
    for k in range(LANES):
        sums[k] += half * (
            _two_ratios(x0, y[k], x1, y[k + LANES])
            + _two_ratios(x2, y[k + 2 * LANES], x3, y[k + 3 * LANES])
            + _two_ratios(x4, y[k + 4 * LANES], x5, y[k + 5 * LANES])
            + _two_ratios(x6, y[k + 6 * LANES], x7, y[k + 7 * LANES])
        )


@njit(cache=True, nogil=True, fastmath=FASTMATH, error_model="numpy")
def _add_minimum(x, y, sums):
    x0, x1, x2, x3, x4, x5, x6, x7 = x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]
    for k in range(LANES):
        sums[k] += (
            (min(x0, y[k]) + min(x1, y[k + LANES]))
            + (min(x2, y[k + 2 * LANES]) + min(x3, y[k + 3 * LANES]))
            + (min(x4, y[k + 4 * LANES]) + min(x5, y[k + 5 * LANES]))
            + (min(x6, y[k + 6 * LANES]) + min(x7, y[k + 7 * LANES]))
        )


@njit(cache=True, nogil=True, fastmath=FASTMATH, error_model="numpy")
def _add_cityblock(x, y, sums):
    x0, x1, x2, x3, x4, x5, x6, x7 = x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]
    for k in range(LANES):
        sums[k] += (
            (abs(x0 - y[k]) + abs(x1 - y[k + LANES]))
            + (abs(x2 - y[k + 2 * LANES]) + abs(x3 - y[k + 3 * LANES]))
            + (abs(x4 - y[k + 4 * LANES]) + abs(x5 - y[k + 5 * LANES]))
            + (abs(x6 - y[k + 6 * LANES]) + abs(x7 - y[k + 7 * LANES]))
        )


DOT = _Dot()
SQEUCLIDEAN = _SquaredEuclidean()
CITYBLOCK = _FeatureSum("cityblock", _CITYBLOCK_TERM, nonnegative=False, zero_to_itself=True)
CHI2 = _FeatureSum("chi-squared", _CHI2_TERM, nonnegative=True, zero_to_itself=True)
MINIMUM = _FeatureSum("histogram intersection", _MINIMUM_TERM, nonnegative=True, zero_to_itself=False)
ADDITIVE_CHI2 = _AdditiveChiSquared()
PRECOMPUTED = _Precomputed()
