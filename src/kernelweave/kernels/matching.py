"""The kernel for pictures described by sets of local descriptors: the mean distance of every descriptor to the nearest
one of the other picture.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import DTypeLike, NDArray

from .._config import FASTMATH
from .functions import ExponentialKernel
from .quantities import Quantity

LANES = 16  # right-hand sets whose minima are taken side by side, one a vector lane
SETS_AT_ONCE = 4  # left-hand sets multiplied with a tile of right-hand sets: the distances then stay in cache


@dataclass(frozen=True, repr=False)
class Matching(ExponentialKernel):
    """``exp(-gamma * d)`` with the matching distance ``d`` between two sets of descriptors.

    ``d(A, B) = 1/2 (mean over a of min over b |a - b|  +  mean over b of min over a |a - b|)`` with the Euclidean
    distance of single descriptors. A row of the view is a set: its descriptors one after the other, in any order, the
    same number in every row. The kernel is not positive semi-definite in general; wrap it in `Repaired`.

    Parameters
    ----------
    length : int
        Numbers in one descriptor.
    multiplier : float
        Without `gamma`, ``gamma = 1 / (multiplier * mean(d))``, the mean over pairs of different training samples.
        When that mean is zero (all samples equal, or one sample), 1 stands in for it, with a warning.
    gamma : float, optional
        Fixed value, not learned from the data.

    Examples
    --------
    Two sets of two descriptors with two numbers each. The order within a set does not matter:

    >>> import numpy as np
    >>> from kernelweave.kernels import KernelBank, Repaired
    >>> from kernelweave.kernels.matching import Matching
    >>> sets = np.array([[0.0, 0.0, 5.0, 5.0], [5.0, 5.0, 0.0, 0.0], [0.0, 1.0, 5.0, 6.0]])
    >>> KernelBank(Repaired(Matching(2, gamma=1.0), "shift")).build(sets).gram(0).round(3)
    array([[1.   , 1.   , 0.368],
           [1.   , 1.   , 0.368],
           [0.368, 0.368, 1.   ]], dtype=float32)
    """

    length: int
    multiplier: float = 1.0
    gamma: float | None = None

    def __post_init__(self) -> None:
        if isinstance(self.length, bool) or not isinstance(self.length, (int, np.integer)) or self.length < 1:
            raise ValueError(f"the length of a descriptor in Matching is an integer of at least 1, got {self.length!r}")
        super().__post_init__()

    @property
    def quantity(self) -> Quantity:
        return MatchingDistance(int(self.length))

    @property
    def positive(self) -> bool:
        return False


@dataclass(frozen=True)
class MatchingDistance(Quantity):
    """Matching distances between sets of descriptors.

    Squared distances of single descriptors are one matrix product, ``[-2a, |a|^2, 1] . [b, 1, |b|^2]``, in double
    precision and of centred descriptors, because what is left of large numbers is what counts. Right-hand sets are laid
    out in tiles of `LANES` sets, descriptor by descriptor, so that neighbouring numbers of the product belong to
    neighbouring sets and minima need no sum across a vector.
    """

    length: int
    name = "matching distance"
    zero_to_itself = True
    serial = True

    def check(self, X: Any, view: str) -> None:
        if X.shape[1] % self.length:
            raise ValueError(
                f"view {view!r} has {X.shape[1]} columns, which is no multiple of {self.length}: its matching kernel "
                f"takes sets of descriptors of {self.length} numbers, one after the other in a row"
            )

    def prepare(self, X: Any, dtype: DTypeLike) -> tuple[NDArray, NDArray]:
        points = _points(X, self.length)
        centre = points.mean(axis=(0, 1)) if points.size else np.zeros(self.length)
        n, n_points = points.shape[:2]
        padded = np.zeros((-(-n // LANES) * LANES, n_points, self.length + 2))
        padded[:n, :, :-2] = points - centre
        padded[:n, :, -2] = 1.0
        padded[:n, :, -1] = np.square(padded[:n, :, :-2]).sum(axis=2)
        tiles = padded.reshape(-1, LANES, n_points, self.length + 2).swapaxes(1, 2)
        return centre, np.ascontiguousarray(tiles).reshape(len(tiles), n_points * LANES, self.length + 2)

    def block(self, A: Any, right: tuple[NDArray, NDArray], out: NDArray) -> None:
        centre, tiles = right
        points = _points(A, self.length) - centre
        n, n_points = points.shape[:2]
        left = np.empty((n, n_points, self.length + 2))
        np.multiply(points, -2.0, out=left[:, :, :-2])
        left[:, :, -2] = np.square(points).sum(axis=2)
        left[:, :, -1] = 1.0
        products = np.empty((SETS_AT_ONCE * n_points, n_points * LANES))
        nearest = np.empty((n_points + 2, LANES))
        for t in range(-(-out.shape[1] // LANES)):
            columns = slice(t * LANES, min((t + 1) * LANES, out.shape[1]))
            for start in range(0, n, SETS_AT_ONCE):
                some = left[start : start + SETS_AT_ONCE]
                squares = products[: len(some) * n_points]
                np.matmul(some.reshape(len(squares), -1), tiles[t].T, out=squares)
                _mean_of_nearest(
                    squares.reshape(len(some), n_points, n_points, LANES),
                    nearest,
                    out[start : start + len(some), columns],
                )

    def diagonal(self, A: Any) -> NDArray:
        return np.zeros(len(A))


def _points(X: NDArray, length: int) -> NDArray:
    """Descriptors (n_sets, n_points, length) in double precision."""
    return np.asarray(X, dtype=np.float64).reshape(len(X), X.shape[1] // length, length)


@njit(cache=True, nogil=True, fastmath=FASTMATH, error_model="numpy")
def _mean_of_nearest(squares, nearest, out):
    # squares (n_left, n_points, n_points, LANES): squared distances of descriptor i of a left-hand set to descriptor q
    # of LANES right-hand sets. nearest: scratch (n_points + 2, LANES), the nearest to every q, to i, and the sums.
    n_left, n_points = squares.shape[0], squares.shape[1]
    to_i, sums = nearest[n_points], nearest[n_points + 1]
    zero = squares.dtype.type(0)
    for s in range(n_left):
        nearest[:n_points] = squares[s, 0]
        sums[:] = zero
        for i in range(n_points):
            to_i[:] = squares[s, i, 0]
            for q in range(n_points):
                found, to_q = squares[s, i, q], nearest[q]
                for k in range(LANES):
                    v = found[k]
                    to_i[k] = min(to_i[k], v)
                    to_q[k] = min(to_q[k], v)
            for k in range(LANES):
                sums[k] += np.sqrt(max(to_i[k], zero))  # rounding may leave a little less than nothing
        for q in range(n_points):
            for k in range(LANES):
                sums[k] += np.sqrt(max(nearest[q, k], zero))
        for k in range(out.shape[1]):
            out[s, k] = sums[k] / (2 * n_points)
