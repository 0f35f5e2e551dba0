"""Linear systems with a kernel of low rank, ``K = F F'``: solved in the space of the features (Woodbury)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, cholesky, solve_triangular

from ..kernels.factors import Factors
from .base import Array, blas_threads, projected_curvature
from .ridge import System, system

#: Ridge beside the mean diagonal where more samples respond than there are features: only an inexact solution has so
#: many, and what it says about directions without any feature is not to be believed.
_DEGENERATE_RIDGE = 1e-4


class FeatureSystem:
    """``F F' + diag(ridge)`` by ``I + F' diag(1 / ridge) F``, a matrix of the width of the features."""

    def __init__(self, K: Factors, ridge: Array) -> None:
        self._K, self._inverse = K, 1.0 / ridge
        self._roots = np.sqrt(K.spread)
        inner = K.columns.gram(self._inverse) * np.outer(self._roots, self._roots)
        inner[np.diag_indices(len(inner))] += 1.0
        with blas_threads(len(inner)):
            self._factor = cho_factor(inner, lower=True, overwrite_a=True, check_finite=False)

    def solve(self, B: Array) -> Array:
        """The solution for right-hand sides of shape (n,) or (n, m)."""
        scaled = self._inverse[:, None] * B.reshape(len(B), -1)
        inner = self._roots[:, None] * self._K.columns.transposed_product(scaled)
        part = self._K.columns.product(self._roots[:, None] * cho_solve(self._factor, inner, check_finite=False))
        return (scaled - self._inverse[:, None] * part).reshape(B.shape)


@system.register(Factors)
def _system(K: Factors, ridge: Array) -> System | FeatureSystem:
    everyone = np.arange(len(K))
    if len(K) <= K.columns.width:  # the kernel itself is smaller than its features
        return System(K.block(everyone, everyone), ridge)
    return FeatureSystem(K, ridge)


@projected_curvature.register(Factors)
def _curvature(K: Factors, free: NDArray[np.intp], constraints: Array, R: Array) -> Array:
    if len(free) <= K.columns.width:
        return projected_curvature(K.block(free, free), np.arange(len(free)), constraints, R)
    part = K.restrict(free)
    roots = np.sqrt(K.spread)
    ridge = _DEGENERATE_RIDGE * max(float(part.diagonal().mean()), np.finfo(np.float64).tiny)
    inner = part.columns.gram(np.ones(len(free))) * np.outer(roots, roots)
    inner[np.diag_indices(len(inner))] += ridge
    sides = np.vstack([R, constraints]).T
    mapped = roots[:, None] * part.columns.transposed_product(sides)
    with blas_threads(len(inner)):
        half = solve_triangular(cholesky(inner, lower=True, overwrite_a=True), mapped, lower=True, check_finite=False)
    between = (sides.T @ sides - half.T @ half) / ridge  # sides' (F F' + ridge I)^-1 sides
    s = len(R)
    H = between[:s, :s]
    if len(constraints):
        H = H - between[:s, s:] @ np.linalg.solve(between[s:, s:], between[s:, :s])
    return (H + H.T) / 2
