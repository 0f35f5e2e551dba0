"""Gaussian kernels of linearly mapped features, ``exp(-|A (x - y)|**2)``, and the family of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .energies import Array, Duals, squared_exponential
from .families import RATE_GRID, BoxPiece, Family, Piece, check_largest, rows_of
from .fitting import Item
from .functions import Gaussian

#: Rows of a map that a search does not start with are this small beside the others: from zero it could not leave.
_SMALL = 0.05
#: Directions in which a search starts, beside the axes: those of the largest variance, and random ones.
_PRINCIPAL, _RANDOM = 3, 6


@dataclass(frozen=True)
class LinearMapFamily(Family):
    """Gaussian kernels ``exp(-|A (x - y)|**2)`` with a matrix A of `rank` rows that is searched.

    They see features together: a direction in which classes differ, whatever the axes. The search starts from many
    points, and has no certificate. With many features there is much to choose from, so they overfit easily; standardise
    features, and keep `rank` small.

    Parameters
    ----------
    rank : int, default=1
        Rows of A.
    largest : float, default=30.0
        The entries of A are at most the root of this, so that a feature alone has at most this rate.

    Examples
    --------
    >>> from kernelweave.kernels import LinearMapFamily
    >>> LinearMapFamily(rank=2)
    LinearMapFamily(rank=2, largest=30.0)
    """

    rank: int = 1
    largest: float = 30.0

    def __post_init__(self) -> None:
        check_largest(self)
        if isinstance(self.rank, bool) or not isinstance(self.rank, (int, np.integer)) or self.rank < 1:
            raise ValueError(f"the rank of LinearMapFamily is an integer of at least 1, got {self.rank!r}")

    def pieces(self, features: Any, view: str) -> list[Piece]:
        return [_MapPiece(view, rows_of(features, view), int(self.rank), self.largest)]


class _MapPiece(BoxPiece):
    def __init__(self, view: str, X: Array, rank: int, largest: float) -> None:
        self._view, self._X, self._rank = view, X, rank
        self.high = np.full(rank * X.shape[1], np.sqrt(largest))
        self.low = -self.high

    def item(self, theta: Any) -> Item:
        A = np.reshape(theta, (self._rank, -1))
        kernel = Gaussian(gamma=1.0, metric=A.T @ A)
        largest = np.argsort(-np.abs(A[0]), kind="stable")[:3]
        described = " ".join(f"{A[0, d]:+.3g} x{d}" for d in largest) + (", ..." if A.size > len(largest) else "")
        return Item(f"{self._view}:LinearMap({described})", self._view, kernel)

    def energy(self, duals: Duals, tolerated: float = 0.0) -> MappedGaussian:
        return MappedGaussian(self._X[duals.ids], duals.G, self._rank)

    def starts(self) -> list[Array]:
        """Single directions at several rates, in the first row of the map; a group for each direction."""
        rng = np.random.default_rng(0)
        d = self._X.shape[1]
        axes = np.linalg.svd(self._X - self._X.mean(axis=0), full_matrices=False)[2][:_PRINCIPAL]
        random = rng.standard_normal((_RANDOM, d))
        directions = np.vstack([np.eye(d), axes, random / np.linalg.norm(random, axis=1, keepdims=True)])
        others = _SMALL * rng.standard_normal((self._rank - 1, d))
        scales = self.high[0] * np.sqrt(RATE_GRID[2::3])
        return [
            np.array([np.vstack([scale * direction, scale * others]).ravel() for scale in scales])
            for direction in directions
        ]


class MappedGaussian:
    """Energies of ``exp(-|A (x - y)|**2)``; with ``M = G * K`` and its row sums r,
    ``dT/dA = -2 A (sum_i r_i x_i x_i' - X' M X)``.
    """

    def __init__(self, X: Array, G: Array, rank: int) -> None:
        self._X, self._G, self._rank = X - X.mean(axis=0), G, rank

    def value_and_gradient(self, theta: Array) -> tuple[float, Array]:
        """See `Energy`."""
        A = np.reshape(theta, (self._rank, -1))
        mapped = self._X @ A.T
        M = squared_exponential(mapped)
        M *= self._G
        r = M.sum(axis=1)
        gradient = 2.0 * (mapped.T @ M - (r[:, None] * mapped).T) @ self._X
        return 0.5 * float(r.sum()), gradient.ravel()
