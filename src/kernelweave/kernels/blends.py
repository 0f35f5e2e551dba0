"""Kernels between the chi-squared and the Gaussian one, for non-negative features, and the family of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import DTypeLike, NDArray

from .._config import FASTMATH
from .energies import Array, Duals, Exponential
from .families import BoxPiece, Family, Piece, check_largest, make_item, mean_of, rate_starts, rows_of, some_rows
from .fitting import Item
from .functions import ExponentialKernel
from .quantities import CHI2, Quantity

#: In place of a rate of zero, which a kernel does not take: its values differ from those at zero by rounding.
_NEARLY_ZERO = 1e-12
#: Samples that mean distances are taken of.
_FEW = 500


@dataclass(frozen=True)
class BlendedDistance(Quantity):
    """``sum_i (x_i + y_i)**power (x_i - y_i)**2``, in which 0/0 counts 0."""

    power: float
    name = "blended"
    zero_to_itself = True
    serial = True

    def check(self, X: Any, view: str) -> None:
        CHI2.check(X, view)

    def prepare(self, X: Any, dtype: DTypeLike) -> NDArray:
        return np.ascontiguousarray(X, dtype=np.float64)

    def block(self, A: Any, right: NDArray, out: NDArray) -> None:
        _between(np.ascontiguousarray(A, dtype=np.float64), right[: out.shape[1]], self.power, out)

    def diagonal(self, A: Any) -> NDArray:
        return np.zeros(len(A))


@dataclass(frozen=True, repr=False)
class ChiSquaredGaussian(ExponentialKernel):
    """``exp(-gamma * sum_i (x_i + y_i)**power (x_i - y_i)**2)`` of non-negative features.

    A power of -1 is the chi-squared kernel (with twice its distance), 0 the Gaussian one. It is positive semi-definite
    for all powers between: of vectors that sum to zero, the form of the distance is an integral in which, by Hardy's
    inequality, the negative part outweighs the positive one.

    Parameters
    ----------
    power : float
        From -1 to 0.
    multiplier : float
        Without `gamma`, ``gamma = 1 / (multiplier * mean(d))``, the mean over pairs of different training samples.
    gamma : float, optional
        Fixed value, not learned from the data.

    Examples
    --------
    >>> from kernelweave.kernels import ChiSquaredGaussian
    >>> ChiSquaredGaussian(-0.5).label
    'ChiSquaredGaussian(-0.5)'
    """

    power: float
    multiplier: float = 1.0
    gamma: float | None = None

    def __post_init__(self) -> None:
        _check_power(self, self.power)
        super().__post_init__()

    @property
    def quantity(self) -> Quantity:
        return BlendedDistance(float(self.power))


@dataclass(frozen=True)
class ChiSquaredGaussianFamily(Family):
    """Kernels `ChiSquaredGaussian` of some powers, with rates up to `largest` over the mean distance.

    The rates of each power are searched by branch and bound, with a certificate.

    Parameters
    ----------
    powers : tuple of float, default=(-1.0, -0.75, -0.5, -0.25, 0.0)
    largest : float, default=10.0
        Means are over pairs of (at most 500) training samples.

    Examples
    --------
    >>> from kernelweave.kernels import ChiSquaredGaussianFamily
    >>> ChiSquaredGaussianFamily(powers=(-1.0, 0.0))
    ChiSquaredGaussianFamily(powers=(-1.0, 0.0), largest=10.0)
    """

    powers: tuple[float, ...] = (-1.0, -0.75, -0.5, -0.25, 0.0)
    largest: float = 10.0

    def __post_init__(self) -> None:
        check_largest(self)
        if not self.powers:
            raise ValueError("ChiSquaredGaussianFamily needs at least one power")
        for power in self.powers:
            _check_power(self, power)

    def pieces(self, features: Any, view: str) -> list[Piece]:
        X = rows_of(features, view)
        CHI2.check(X, view)
        return [_PowerPiece(view, X, float(power), self.largest) for power in self.powers]


class _PowerPiece(BoxPiece):
    """The kernels of one power."""

    def __init__(self, view: str, X: Array, power: float, largest: float) -> None:
        self._view, self._X, self._power = view, X, power
        self.low, self.high = np.zeros(1), np.array([largest / mean_of(self._distances(some_rows(len(X), _FEW)))])

    def item(self, theta: Any) -> Item:
        return make_item(self._view, ChiSquaredGaussian(self._power, gamma=max(float(theta[0]), _NEARLY_ZERO)))

    def energy(self, duals: Duals, tolerated: float = 0.0) -> Exponential:
        return Exponential(self._distances(duals.ids), duals, float(self.high[0]), tolerated)

    def starts(self) -> list[Array]:
        return rate_starts(self.high)

    def _distances(self, ids: NDArray) -> Array:
        out = np.empty(len(ids) * (len(ids) - 1) // 2)
        _pairs(self._X[ids], self._power, out)
        return out


def _check_power(owner: Any, power: float) -> None:
    if isinstance(power, bool) or not isinstance(power, (int, float, np.number)) or not -1 <= power <= 0:
        raise ValueError(f"the power of {type(owner).__name__} is a number from -1 to 0, got {power!r}")


@njit(cache=True, nogil=True, fastmath=FASTMATH, error_model="numpy")
def _distance(x, y, power):
    total = 0.0
    for i in range(len(x)):
        s, d = x[i] + y[i], x[i] - y[i]
        if d != 0:
            total += d * d * s**power
    return total


@njit(cache=True, nogil=True, fastmath=FASTMATH, error_model="numpy")
def _between(A, B, power, out):
    for i in range(len(A)):
        for j in range(len(B)):
            out[i, j] = _distance(A[i], B[j], power)


@njit(cache=True, nogil=True, fastmath=FASTMATH, error_model="numpy")
def _pairs(X, power, out):
    """Distances of all pairs, each once, in the order of scipy.spatial.distance.pdist."""
    p = 0
    for i in range(len(X)):
        for j in range(i + 1, len(X)):
            out[p] = _distance(X[i], X[j], power)
            p += 1
