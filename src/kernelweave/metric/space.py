"""The coordinates a distance is learned in: the prior distance is the Euclidean one, and no more axes than samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import LinAlgError, cholesky, eigh, svd

from .base import Mahalanobis

Array = NDArray[np.float64]

#: Eigenvalues of a covariance below this share of the largest one: the data do not span their space.
_SINGULAR = 1e-12


@dataclass(frozen=True, eq=False)
class Space:
    """Training samples as the projections see them.

    LogDet divergences do not change with the coordinates. So features are first mapped by a root of the prior, after
    which the prior is the identity; and where features outnumber samples, a learned matrix differs from the identity
    only in the span of the samples, of which an orthonormal basis is enough. The latter is the kernelised form of the
    method for the linear kernel, without its Gram matrices.
    """

    rows: Array  # (n_samples, n_axes), centred
    first: Array | None  # root of the prior, (n_features, n_features)
    basis: Array | None  # (n_features, n_axes)

    @classmethod
    def of(cls, X: Array, prior: str | ArrayLike, name: str) -> Space:
        """The space of samples X, (n_samples, n_features); `name` is what errors call the prior."""
        first = _root_of_prior(X, prior, name)
        rows = X - X.mean(axis=0)
        if first is not None:
            rows = rows @ first
        if rows.shape[1] <= len(rows):
            return cls(np.ascontiguousarray(rows), first, None)
        left, spread, basis = svd(rows, full_matrices=False)
        kept = spread > len(rows) * np.finfo(float).eps * max(spread[0], np.finfo(float).tiny)
        return cls(np.ascontiguousarray(left[:, kept] * spread[kept]), first, np.ascontiguousarray(basis[kept].T))

    @property
    def n_axes(self) -> int:
        return self.rows.shape[1]

    def distance(self, M: Array) -> Mahalanobis:
        """The distance of a matrix M, (n_axes, n_axes), for the features as they came."""
        values, vectors = eigh(M)
        root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
        return Mahalanobis(self.first, self.basis, root)


def _root_of_prior(X: Array, prior: str | ArrayLike, name: str) -> Array | None:
    """A matrix R with prior R R', or None for the identity."""
    h = X.shape[1]
    if isinstance(prior, str):
        if prior == "identity":
            return None
        if prior != "covariance":
            raise ValueError(f"{name} must be 'identity', 'covariance' or a matrix, got {prior!r}.")
        values, vectors = eigh(np.atleast_2d(np.cov(X, rowvar=False)))
        rank = np.count_nonzero(values > _SINGULAR * max(values[-1], np.finfo(float).tiny))
        if rank < h:
            raise ValueError(
                f"{name}='covariance' needs the inverse of the covariance, but the {len(X)} samples span {rank} of "
                f"{h} features only. Leave out constant and repeated columns, reduce the features by PCA, or use "
                f"{name}='identity'."
            )
        return vectors / np.sqrt(values)
    prior = np.asarray(prior, dtype=float)
    if prior.shape != (h, h) or not np.allclose(prior, prior.T, rtol=1e-8, atol=1e-12 * np.abs(prior).max(initial=0)):
        raise ValueError(f"{name} must be a symmetric matrix of shape {(h, h)}, got shape {prior.shape}.")
    try:
        return cholesky(prior, lower=True)
    except (LinAlgError, ValueError):
        raise ValueError(f"{name} must be positive definite, and it is not.") from None
