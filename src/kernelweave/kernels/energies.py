"""Energies of parametric kernels, ``T(theta) = 1/2 sum_k v_k' K_theta v_k``, where duals v are not zero.

With ``G = V V'`` between these samples, ``T = 1/2 sum_ij G_ij k(x_i, x_j; theta)``. Values and gradients are matrix
products: nothing of the size samples x samples x features is ever made.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.spatial.distance import squareform

from .._config import FASTMATH
from .binning import in_bins, width_for, worth_it

Array = NDArray[np.float64]
#: A value and its first three derivatives.
Derivatives = tuple[float, float, float, float]


class Energy(Protocol):
    """What a search climbs."""

    def value_and_gradient(self, theta: Array) -> tuple[float, Array]:
        """T and its gradient, (n_parameters,)."""


@runtime_checkable
class SecondOrder(Energy, Protocol):
    """What a search can climb by Newton's method."""

    def hessian(self, theta: Array) -> Array:
        """Second derivatives of T, (n_parameters, n_parameters)."""


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

    @cached_property
    def weight_of_pairs(self) -> float:
        """The sum of their sizes."""
        return float(np.abs(self.pairs).sum())


class Exponential:
    """``T(s) = 1/2 sum_ij G_ij exp(-s D_ij)`` of one rate s: the difference of two convex, decreasing functions.

    Parameters
    ----------
    D : array of shape (n_pairs,)
        Distances between the samples ``duals.ids``, each pair once, as `scipy.spatial.distance.pdist` has them.
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

    def __init__(self, D: Array, duals: Duals, largest: float, tolerated: float = 0.0) -> None:
        c = duals.pairs
        self._constant = 0.5 * float(np.trace(duals.G))
        width = width_for(duals.weight_of_pairs, tolerated)
        self.error = tolerated if worth_it(D, largest, width) else 0.0
        # A pair counts twice, half each time. Pairs that pull up and pairs that pull down are kept apart.
        if self.error:
            sides = in_bins(D, c, largest, width)
        else:
            sides = [(D[side], np.abs(c[side])) for side in (c > 0, c < 0)]
        self._up, self._down = sides

    def parts(self, s: float) -> tuple[Derivatives, Derivatives]:
        """P and N at s, where T = P - N: each with its first three derivatives."""
        (D_up, c_up), (D_down, c_down) = self._up, self._down
        P, slope, bend, jerk = _sums(D_up, c_up, s)
        return (self._constant + P, slope, bend, jerk), _sums(D_down, c_down, s)

    def value_and_gradient(self, theta: Array) -> tuple[float, Array]:
        """See `Energy`."""
        P, N = self.parts(float(theta[0]))
        return P[0] - N[0], np.array([P[1] - N[1]])


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _sums(D, c, s):
    """``sum c exp(-s D)`` and its first three derivatives in s."""
    total = slope = bend = jerk = 0.0
    for p in range(len(D)):
        distance = D[p]
        term = c[p] * np.exp(-s * distance)
        total += term
        term *= distance
        slope -= term
        term *= distance
        bend += term
        jerk -= term * distance
    return total, slope, bend, jerk


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

    def hessian(self, theta: Array) -> Array:
        """Second derivatives, (n_features, n_features): ``1/2 sum_ij M_ij (x_id - x_jd)**2 (x_ie - x_je)**2``."""
        X, squares = self._X, self._X**2
        M = gaussian_block(X, theta)
        M *= self._G
        # The product of the squares has nine terms; those with i and j exchanged are the same.
        mixed = squares.T @ (X * (M @ X))
        H = squares.T @ (M.sum(axis=1)[:, None] * squares) + squares.T @ (M @ squares) - 2.0 * (mixed + mixed.T)
        for d in range(X.shape[1]):
            both = X[:, [d]] * X
            H[d] += 2.0 * np.einsum("ie,ie->e", both, M @ both)
        return H


def gaussian_block(X: Array, rates: Array) -> Array:
    """``exp(-sum_d rates_d (x_d - y_d)**2)`` between all rows: (n, n)."""
    used = np.flatnonzero(rates)
    return squared_exponential(X[:, used] * np.sqrt(rates[used]))


def squared_exponential(X: Array) -> Array:
    """``exp(-|x - y|**2)`` between all rows: (n, n)."""
    norms = np.einsum("ij,ij->i", X, X)
    K = 2.0 * X @ X.T
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
