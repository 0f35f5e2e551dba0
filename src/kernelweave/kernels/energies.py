"""Energies of parametric kernels, ``T(theta) = 1/2 sum_k v_k' K_theta v_k``, where duals v are not zero.

With ``G = V V'`` between these samples, ``T = 1/2 sum_ij G_ij k(x_i, x_j; theta)``. Values and gradients are matrix
products: nothing of the size samples x samples x features is ever made.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import pdist, squareform

Array = NDArray[np.float64]
#: A value and its first three derivatives.
Derivatives = tuple[float, float, float, float]

#: Pairs of samples taken at a time, so that several passes over them stay in cache.
_CHUNK = 1 << 14
#: Pairs a bin of distances from which sorting them into bins pays, and the widest bins.
_WORTH_BINS, _WIDEST = 4, 0.1


class Energy(Protocol):
    """What a search climbs."""

    def value_and_gradient(self, theta: Array) -> tuple[float, Array]:
        """T and its gradient, (n_parameters,)."""


class Duals:
    """Duals V of shape (n_samples, m) as energies need them.

    Attributes
    ----------
    ids : array of int
        Samples with a dual that is not zero.
    G : array of shape (len(ids), len(ids))
        ``V V'`` between them.
    """

    def __init__(self, V: Array) -> None:
        self.ids = np.flatnonzero(V.any(axis=1))
        self.G = V[self.ids] @ V[self.ids].T

    @cached_property
    def pairs(self) -> Array:
        """The entries of G between different samples, each pair once, as `scipy.spatial.distance.pdist` has them."""
        return squareform(self.G, checks=False)


class Exponential:
    """``T(s) = 1/2 sum_ij G_ij exp(-s D_ij)`` of one rate s: the difference of two convex, decreasing functions.

    Parameters
    ----------
    X : array of shape (n, d)
        Rows of the samples ``duals.ids``, with the squared Euclidean distances D.
    duals : Duals
    largest : float
        The largest rate.
    tolerated : float
        Pairs of nearly the same distance are taken together where T stays the same up to this number.

    Attributes
    ----------
    error : float
        P and N in ``T = P - N`` are too small by at most this number, both together.
    """

    def __init__(self, X: Array, duals: Duals, largest: float, tolerated: float = 0.0) -> None:
        D, c = pdist(X, "sqeuclidean"), duals.pairs
        self._constant = 0.5 * float(np.trace(duals.G))
        # A pair counts twice, half each time. Pairs that pull up and pairs that pull down are kept apart.
        sides = [(D[side], np.abs(c[side])) for side in (c > 0, c < 0)]
        self.error = 0.0
        width = _bin_width(sum(float(weights.sum()) for _, weights in sides), tolerated)
        if width > 0 and len(D) > _WORTH_BINS * np.log1p(largest * float(D.max(initial=0.0)) / width) / width:
            self.error = tolerated
            sides = [_binned(*side, width / largest, width) for side in sides]
        self._up, self._down = sides
        self._buffer = np.empty(min(_CHUNK, max(len(side[0]) for side in sides)))

    def parts(self, s: float) -> tuple[Derivatives, Derivatives]:
        """P and N at s, where T = P - N: each with its first three derivatives."""
        P, slope, bend, jerk = self._sums(self._up, s)
        return (self._constant + P, slope, bend, jerk), self._sums(self._down, s)

    def value_and_gradient(self, theta: Array) -> tuple[float, Array]:
        """See `Energy`."""
        P, N = self.parts(float(theta[0]))
        return P[0] - N[0], np.array([P[1] - N[1]])

    def _sums(self, pairs: tuple[Array, Array], s: float) -> Derivatives:
        """``sum c exp(-s D)`` and its derivatives in s."""
        D, c = pairs
        total = slope = bend = jerk = 0.0
        for start in range(0, len(D), _CHUNK):
            distances = D[start : start + _CHUNK]
            terms = self._buffer[: len(distances)]
            np.multiply(distances, -s, out=terms)
            np.exp(terms, out=terms)
            terms *= c[start : start + _CHUNK]
            total += float(terms.sum())
            terms *= distances
            slope -= float(terms.sum())
            terms *= distances
            bend += float(terms.sum())
            jerk -= float(terms @ distances)
        return total, slope, bend, jerk


def _bin_width(weight: float, tolerated: float) -> float:
    """How wide bins of distances may be, in units of the distance, for an error of at most `tolerated`.

    Within a bin ``[lo, lo (1 + w)]`` the mean distance stands for all: exp(-s D) is convex, so its mean is too small by
    at most ``(s lo w)^2 / 8 exp(-s lo) <= w^2 e^-2 / 2`` whatever s is. The first bin is ``[0, w / largest rate]``,
    with an error of at most ``w^2 / 8``.
    """
    return min(float(np.sqrt(8.0 * tolerated / weight)), _WIDEST) if weight > 0 else 0.0


def _binned(D: Array, c: Array, first: float, width: float) -> tuple[Array, Array]:
    """Mean distances and weights of bins: the first up to `first`, each other up to 1 + `width` times its start."""
    bins = np.log(np.maximum(D / first, 1.0))
    bins /= np.log1p(width)
    numbers = np.ceil(bins).astype(np.int64)
    weights: Array = np.bincount(numbers, c).astype(np.float64)
    used = np.flatnonzero(weights)
    return np.bincount(numbers, c * D)[used] / weights[used], weights[used]


class GaussianProduct:
    """Gaussian kernels with one rate a feature, ``exp(-sum_d s_d (x_d - y_d)**2)``.

    With ``M = G * K`` and its row sums r, ``dT/ds_d = -(sum_i r_i x_id**2 - x_d' M x_d)``.
    """

    def __init__(self, X: Array, G: Array) -> None:
        self._X = X - X.mean(axis=0)
        self._G = G

    def value_and_gradient(self, theta: Array) -> tuple[float, Array]:
        """See `Energy`."""
        M = gaussian_block(self._X, theta)
        M *= self._G
        r = M.sum(axis=1)
        gradient = np.einsum("ij,ij->j", self._X, M @ self._X) - r @ self._X**2
        return 0.5 * float(r.sum()), gradient


def gaussian_block(X: Array, rates: Array) -> Array:
    """``exp(-sum_d rates_d (x_d - y_d)**2)`` between all rows: (n, n)."""
    used = np.flatnonzero(rates)
    scaled = X[:, used] * np.sqrt(rates[used])
    norms = np.einsum("ij,ij->i", scaled, scaled)
    K = 2.0 * scaled @ scaled.T
    K -= norms[:, None]
    K -= norms
    np.minimum(K, 0.0, out=K)
    return np.exp(K, out=K)


class PolynomialProduct:
    """Polynomial kernels of unit diagonal, ``(B_ij / sqrt(B_ii B_jj))**degree`` with ``B = 1 + sum_d s_d x_d y_d``.

    With ``Q = B / sqrt(b b')``, b the diagonal of B and r the row sums of ``G * Q**degree``:
    ``dT/ds_d = degree/2 (x_d' (G * Q**(degree-1) / sqrt(b b')) x_d - sum_i r_i x_id**2 / b_i)``.
    """

    def __init__(self, X: Array, G: Array, degree: int) -> None:
        self._X, self._G, self._degree = X, G, degree

    def value_and_gradient(self, theta: Array) -> tuple[float, Array]:
        """See `Energy`."""
        X = self._X
        b = 1.0 + X**2 @ theta
        Q = (X * theta) @ X.T
        Q += 1.0
        Q /= np.sqrt(np.outer(b, b))
        lower = self._G * Q ** (self._degree - 1)
        r = np.einsum("ij,ij->i", lower, Q)
        scaled = X / np.sqrt(b)[:, None]
        gradient = np.einsum("ij,ij->j", scaled, lower @ scaled) - r @ scaled**2
        return 0.5 * float(r.sum()), 0.5 * self._degree * gradient


class SameRate:
    """An energy of one rate a feature, along the line where all are equal."""

    def __init__(self, energy: Energy, n_features: int) -> None:
        self._energy, self._n = energy, n_features

    def value_and_gradient(self, theta: Array) -> tuple[float, Array]:
        """See `Energy`."""
        value, gradient = self._energy.value_and_gradient(np.full(self._n, theta[0]))
        return value, np.array([gradient.sum()])


class DistanceProduct:
    """``exp(-sum_k s_k d_k)`` of several distances, (n_distances, n, n): ``dT/ds_k = -1/2 sum_ij M_ij d_k``."""

    def __init__(self, distances: Array, G: Array) -> None:
        self._distances, self._G = distances, G

    def value_and_gradient(self, theta: Array) -> tuple[float, Array]:
        """See `Energy`."""
        M = np.exp(-np.tensordot(theta, self._distances, axes=1))
        M *= self._G
        return 0.5 * float(M.sum()), np.array([-0.5 * float(np.vdot(M, d)) for d in self._distances])


class FromFunctions:
    """Kernels that are functions a user wrote; without a gradient, differences of values stand in for it."""

    def __init__(self, X: Array, G: Array, value: Callable, gradient: Callable | None, low: Array, high: Array) -> None:
        self._X, self._G, self._low, self._high = X, G, low, high
        self._value, self._gradient = value, gradient

    def value(self, theta: Array) -> float:
        """T."""
        return 0.5 * float(np.vdot(self._G, np.asarray(self._value(self._X, self._X, theta), dtype=np.float64)))

    def value_and_gradient(self, theta: Array) -> tuple[float, Array]:
        """See `Energy`."""
        value = self.value(theta)
        if self._gradient is None:
            return value, self.differences(theta)
        return value, 0.5 * np.asarray(self._gradient(self._X, self._X, theta, self._G), dtype=np.float64)

    def differences(self, theta: Array) -> Array:
        """The gradient by central differences, one-sided at the ends of the box."""
        gradient = np.empty(len(theta))
        for d, width in enumerate(1e-5 * (self._high - self._low)):
            left, right = theta.copy(), theta.copy()
            left[d], right[d] = max(theta[d] - width, self._low[d]), min(theta[d] + width, self._high[d])
            gradient[d] = (self.value(right) - self.value(left)) / (right[d] - left[d])
        return gradient
