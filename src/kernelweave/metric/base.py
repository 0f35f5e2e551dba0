"""What every learned distance can do once it is known, and the two distances that need no learning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import svd
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from .pairs import PairSet

Array = NDArray[np.float64]

#: Directions with less than this share of the largest spread are rounding.
_NO_SPREAD = 1e-10


@dataclass(frozen=True, eq=False)
class Mahalanobis:
    """The distance ``|E(a) - E(b)|`` of two feature vectors, with E a linear map; call it with two vectors.

    The map is ``E(x) = x @ first`` and then, with an orthonormal basis V, ``x + x V (inner - 1) V'``: nothing changes
    outside the space that V spans, and no matrix of all features is written down. Without a basis it is ``x @ inner``.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.metric import Mahalanobis
    >>> float(Mahalanobis(first=np.diag([3.0, 4.0]))([1.0, 1.0], [0.0, 0.0]))
    5.0
    """

    first: Array | None = None
    basis: Array | None = None
    inner: Array | None = None

    def embed(self, X: Array) -> Array:
        """Rows of X in the space where the distance is Euclidean."""
        if self.first is not None:
            X = X @ self.first
        if self.inner is None:
            return X
        if self.basis is None:
            return X @ self.inner
        return X + X @ self.basis @ (self.inner - np.eye(len(self.inner))) @ self.basis.T

    def __call__(self, a: ArrayLike, b: ArrayLike) -> float:
        difference = np.asarray(a, float) - np.asarray(b, float)
        return float(np.linalg.norm(self.embed(difference[None])))


class MetricEstimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Base of the distances: a subclass sets `distance_`, a :class:`Mahalanobis`, in `fit` and `fit_pairs`."""

    distance_: Mahalanobis

    @property
    def components_(self) -> Array:
        """The map, shape (n_components, n_features): ``transform(X) = X @ components_.T``."""
        check_is_fitted(self)
        return self.distance_.embed(np.eye(self.n_features_in_)).T

    @property
    def metric_(self) -> Array:
        """The matrix M of the squared distance ``(a - b)' M (a - b)``, shape (n_features, n_features)."""
        components = self.components_
        return components.T @ components

    @property
    def _n_features_out(self) -> int:
        return self.distance_.embed(np.zeros((1, self.n_features_in_))).shape[1]

    def transform(self, X: Any) -> Array:
        """Map samples to where the learned distance is the Euclidean one.

        scikit-learn's nearest neighbours, clustering and trees take what comes out: put this estimator before them in a
        pipeline. That is much faster than to hand them :meth:`get_metric`.

        Parameters
        ----------
        X : array-like, shape (n_samples, n_features)

        Returns
        -------
        ndarray, shape (n_samples, n_components)
        """
        check_is_fitted(self)
        return self.distance_.embed(validate_data(self, X, reset=False, dtype=np.float64))

    def pair_distance(self, A: Any, B: Any) -> Array:
        """Learned distances between the rows of A and the rows of B at the same place, shape (n_pairs,)."""
        A, B = self.transform(A), self.transform(B)
        if len(A) != len(B):
            raise ValueError(f"A and B must have one row a pair each, got {len(A)} and {len(B)} rows.")
        return np.linalg.norm(A - B, axis=1)

    def score_pairs(self, A: Any, B: Any) -> Array:
        """How alike the rows of A and of B at the same place are: minus the squared distance, shape (n_pairs,)."""
        return -(self.pair_distance(A, B) ** 2)

    def get_metric(self) -> Mahalanobis:
        """The distance as a function of two vectors, which scikit-learn's neighbours take as ``metric=``."""
        check_is_fitted(self)
        return self.distance_


class EuclideanMetric(MetricEstimator):
    """The distance one has without learning: what a learned one must beat.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.metric import EuclideanMetric
    >>> EuclideanMetric().fit(np.eye(2)).pair_distance([[0, 3]], [[4, 0]])
    array([5.])
    """

    def fit(self, X: Any, y: Any = None, Z: Any = None) -> EuclideanMetric:
        """Take note of the number of features; `y` and `Z` are not used."""
        validate_data(self, X, dtype=np.float64)
        self.distance_ = Mahalanobis()
        return self

    def fit_pairs(self, pairs: PairSet, X: Any, Z: Any = None) -> EuclideanMetric:
        """The same as :meth:`fit`: pairs and privileged features are not used."""
        return self.fit(X)


class WhitenedMetric(MetricEstimator):
    """The Mahalanobis distance of the data: every principal component counts the same.

    Directions in which the data have no spread do not count at all.

    Parameters
    ----------
    n_components : int, optional
        Keep so many principal components; all with spread if left out.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.metric import WhitenedMetric
    >>> X = np.random.default_rng(0).normal(size=(50, 3)) * [1, 10, 100]
    >>> np.allclose(np.cov(WhitenedMetric().fit_transform(X).T), np.eye(3))
    True
    """

    def __init__(self, n_components: int | None = None) -> None:
        self.n_components = n_components

    def fit(self, X: Any, y: Any = None, Z: Any = None) -> WhitenedMetric:
        """Find the principal components of X, shape (n_samples, n_features); `y` and `Z` are not used."""
        if self.n_components is not None and self.n_components < 1:
            raise ValueError(f"n_components must be at least 1, or None for all; got {self.n_components!r}.")
        X = validate_data(self, X, dtype=np.float64, ensure_min_samples=2)
        _, spread, directions = svd(X - X.mean(axis=0), full_matrices=False)
        if spread[0] == 0:
            raise ValueError("all samples in X are the same: there is nothing to whiten.")
        kept = np.flatnonzero(spread > _NO_SPREAD * spread[0])[: self.n_components]
        self.distance_ = Mahalanobis(first=directions[kept].T / spread[kept] * np.sqrt(len(X) - 1))
        return self

    def fit_pairs(self, pairs: PairSet, X: Any, Z: Any = None) -> WhitenedMetric:
        """The same as :meth:`fit`: pairs and privileged features are not used."""
        return self.fit(X)
