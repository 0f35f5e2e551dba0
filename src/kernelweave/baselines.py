"""Two classics of multi-label learning that users compare with: ML-kNN and shared-subspace least squares.

Both work on features (or distances), not on a bank of kernels, and take a label matrix or a vector of classes.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import svd
from scipy.sparse import csr_array
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.neighbors import NearestNeighbors
from sklearn.utils import check_consistent_length, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from ._validation import check_cost
from .labels import Labels, Signs, as_labels, is_label_matrix, share_all_right

Array = NDArray[np.float64]

#: The default ridge of MLLS beside the spread of the features.
_SHARE_OF_SPREAD = 0.01
#: Computed distances (2 - 2 K for a kernel) may be negative by this share of the largest one: that is rounding.
_ROUNDING = 1e-5


class LabelScorer(ClassifierMixin, BaseEstimator):
    """Base of both: targets become columns of signs, scores of columns become predictions."""

    classes_: NDArray

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    @abstractmethod
    def _scores(self, X: Any) -> Array:
        """Scores of new samples, shape (n_samples, n_columns); positive where a label is more likely than not."""

    def _signs(self, y: Any) -> Signs:
        """Targets as columns of signs; sets `classes_` and `multilabel_`. Two classes are one column."""
        if y is None:
            raise ValueError(f"This {type(self).__name__} requires y to be passed, but the target y is None.")
        self.multilabel_ = is_label_matrix(y)
        if self.multilabel_:
            labels = as_labels(y)
            self.classes_ = labels.names
            self._warn_of_unjudged(labels)
            return labels.signs
        check_classification_targets(y)
        self.classes_, codes = np.unique(column_or_1d(y, warn=True), return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y must hold at least 2 classes, but has only one class: {self.classes_.tolist()[0]!r}.")
        columns = np.arange(1 if len(self.classes_) == 2 else 0, len(self.classes_))
        return np.where(codes[:, None] == columns, 1, -1).astype(np.int8)

    def _warn_of_unjudged(self, labels: Labels) -> None:
        unjudged = labels.names[~labels.known.any(axis=0)]
        if len(unjudged):
            warnings.warn(
                f"{len(unjudged)} label(s) were never judged, so nothing is known of them and both outcomes score "
                f"alike: {', '.join(map(str, unjudged[:5]))}{', ...' if len(unjudged) > 5 else ''}.",
                UserWarning,
                stacklevel=4,
            )

    def decision_function(self, X: Any) -> Array:
        """Scores of shape (n_samples, n_labels); for two classes (n_samples,), positive for ``classes_[1]``."""
        check_is_fitted(self)
        scores = self._scores(X)
        return scores[:, 0] if len(self.classes_) == 2 and not self.multilabel_ else scores

    def predict(self, X: Any) -> NDArray:
        """Classes of shape (n_samples,), or an indicator matrix of 0 and 1 if y was a label matrix."""
        scores = self.decision_function(X)
        if self.multilabel_:
            return (scores > 0).astype(int)
        return self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)]

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Accuracy; with labels, the share of samples for which all that was judged is predicted right."""
        check_is_fitted(self)
        if not self.multilabel_:
            return float(super().score(X, y, sample_weight))
        return share_all_right(self.predict(X), as_labels(y, names=self.classes_, what="y"), sample_weight)


class MLkNN(LabelScorer):
    """Multi-label nearest neighbours: how many neighbours carry a label decides it, by Bayes' rule (Zhang and Zhou).

    For each label, counts over the training samples say how often a sample that carries it, or does not, has exactly j
    neighbours that carry it, for j = 0, ..., k. With the share of samples that carry it as prior, this gives the
    posterior odds of a new sample from the number of its neighbours that carry the label. Scores are the logarithms of
    these odds, comparable across labels.

    Parameters
    ----------
    n_neighbors : int, default=10
        The k above. With fewer training samples than that, all others are neighbours of each.
    smoothing : float, default=1.0
        Added to every count (Laplace); positive.
    metric : str or callable, default="euclidean"
        As in :class:`sklearn.neighbors.NearestNeighbors`. "precomputed": X holds distances of shape
        (n_samples, n_training_samples), for example ``2 - 2 * K`` for a normalised kernel.
    n_jobs : int, optional
        For the search of neighbours.

    Attributes
    ----------
    classes_ : array of shape (n_labels,)
        Names of the labels, or classes.
    multilabel_ : bool
        Whether y was a label matrix.
    n_neighbors_ : int
        The k used.
    prior_ : array of shape (n_columns,)
    log_odds_ : array of shape (n_columns, k + 1)
        Logarithm of the posterior odds by the number of neighbours that carry the label.

    Notes
    -----
    Where a label of a sample was never judged, the sample enters neither the prior nor the counts of that label, and as
    a neighbour it does not count as carrying it. A label that was never judged at all gets the posterior 1/2.

    A vector of classes is read as one label a class (one in all for two classes, whose labels are complements).

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave import MLkNN
    >>> X = np.array([[0.0], [0.1], [0.2], [0.3], [1.0], [1.1], [1.2], [1.3]])
    >>> Y = np.array([[1, 0], [1, 0], [1, 0], [1, 1], [0, 1], [0, 1], [0, np.nan], [0, 1]])
    >>> model = MLkNN(n_neighbors=2).fit(X, Y)
    >>> model.predict([[0.06], [1.06]])
    array([[1, 0],
           [0, 1]])
    >>> model.predict_proba([[0.06], [1.06]]).round(2)
    array([[0.83, 0.42],
           [0.17, 0.52]])
    """

    def __init__(
        self, n_neighbors: int = 10, smoothing: float = 1.0, metric: Any = "euclidean", n_jobs: int | None = None
    ) -> None:
        self.n_neighbors = n_neighbors
        self.smoothing = smoothing
        self.metric = metric
        self.n_jobs = n_jobs

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.metric == "precomputed"
        tags.input_tags.sparse = not tags.input_tags.pairwise
        return tags

    def fit(self, X: Any, y: Any) -> MLkNN:
        """Count.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features), or distances (n_samples, n_samples)
        y : label matrix of shape (n_samples, n_labels), list of tags a sample, or classes of shape (n_samples,)
            NaN where a label was never judged; see :func:`kernelweave.labels.as_labels`.
        """
        _check_count("n_neighbors", self.n_neighbors)
        check_cost("smoothing", self.smoothing, "try 1.0")
        X = self._read(X, reset=True)
        signs = self._signs(y)
        check_consistent_length(X, signs)
        k = self.n_neighbors_ = min(int(self.n_neighbors), X.shape[0] - 1)
        self._search = NearestNeighbors(n_neighbors=k, metric=self.metric, n_jobs=self.n_jobs).fit(X)
        self._carries = (signs > 0).astype(np.float32)
        # Without an argument, no sample is its own neighbour.
        cells = self._cells(self._search.kneighbors(return_distance=False))
        seen = {side: np.bincount(cells[signs == side], minlength=signs.shape[1] * (k + 1)) for side in (1, -1)}
        carrying, lacking = (self.smoothing + seen[side].reshape(-1, k + 1) for side in (1, -1))
        likelihood_ratio = np.log(carrying / carrying.sum(axis=1, keepdims=True))
        likelihood_ratio -= np.log(lacking / lacking.sum(axis=1, keepdims=True))
        of, against = (self.smoothing + (signs == side).sum(axis=0) for side in (1, -1))
        self.prior_ = of / (of + against)
        self.log_odds_ = likelihood_ratio + np.log(of / against)[:, None]
        return self

    def _read(self, X: Any, reset: bool) -> Any:
        precomputed = isinstance(self.metric, str) and self.metric == "precomputed"
        X = validate_data(
            self,
            X,
            reset=reset,
            accept_sparse=False if precomputed else "csr",
            dtype=[np.float64, np.float32],
            ensure_min_samples=2 if reset else 1,
        )
        if not precomputed:
            return X
        if reset and X.shape[0] != X.shape[1]:
            raise ValueError(f"Distances between training samples must be a square matrix, got the shape {X.shape}.")
        if X.min() < -_ROUNDING * np.abs(X).max():
            raise ValueError(
                f"Distances must not be negative, got {X.min():g}. A kernel is no distance: give 2 - 2 * K instead."
            )
        return np.maximum(X, 0.0)

    def _cells(self, neighbors: NDArray[np.intp]) -> NDArray[np.intp]:
        """Where the number of neighbours carrying each label stands in the flattened table, (n, n_columns)."""
        n, k = neighbors.shape
        picked = csr_array(
            (np.ones(n * k, dtype=np.float32), neighbors.ravel(), np.arange(0, n * k + 1, k)),
            shape=(n, len(self._carries)),
        )
        return (picked @ self._carries).astype(np.intp) + np.arange(self._carries.shape[1]) * (k + 1)

    def _scores(self, X: Any) -> Array:
        neighbors = self._search.kneighbors(self._read(X, reset=False), return_distance=False)
        return self.log_odds_.ravel()[self._cells(neighbors)]

    def predict_proba(self, X: Any) -> Array:
        """Posteriors of the labels, shape (n_samples, n_labels); those of classes are normalised to sum to one."""
        posterior = expit(self.decision_function(X))
        if self.multilabel_:
            return posterior
        if posterior.ndim == 1:
            return np.stack([1 - posterior, posterior], axis=1)
        return posterior / posterior.sum(axis=1, keepdims=True)


class MLLS(LabelScorer):
    """Multi-label least squares with a shared subspace (Ji, Tang, Yu and Ye): ridge regression for related labels.

    The coefficients U of all labels are pulled towards a subspace that they share, spanned by the orthonormal columns
    of T, which is learned with them, in closed form::

        min over U, V, T'T = I   1/n |X U - Y|^2 + alpha |U - T V|^2 + beta |U|^2

    with targets +1 and -1. ``alpha=0``, or as many components as labels, is ridge regression with parameter `beta`; as
    alpha grows it becomes reduced-rank ridge regression.

    Parameters
    ----------
    n_components : int, optional
        Dimension of the subspace. None: four fifths of the number of label columns, rounded up.
    alpha : float, default=1.0
        Cost of coefficients outside the subspace.
    beta : float, optional
        Cost of all coefficients. None: a hundredth of the mean squared distance of a row of X from the mean row, so
        that the unit of the features does not matter.
    fit_intercept : bool, default=True

    Attributes
    ----------
    classes_ : array of shape (n_labels,)
        Names of the labels, or classes.
    multilabel_ : bool
        Whether y was a label matrix.
    coef_ : array of shape (n_columns, n_features)
    intercept_ : array of shape (n_columns,)
    components_ : array of shape (n_components, n_features)
        Orthonormal basis of the subspace; fewer rows than asked for if the features or labels have no more dimensions.

    Notes
    -----
    Where a label of a sample was never judged, its target is the mean of the judged ones of that label: with an
    intercept, zero after centring, so that it pulls neither way. A label that was never judged at all scores zero.

    The cost is that of a singular value decomposition of X, also with more features than samples.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave import MLLS
    >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    >>> Y = np.array([[0, 1, 1], [1, 0, 1], [1, 1, 1], [0, 0, 0]])
    >>> MLLS(n_components=2).fit(X, Y).predict(X)
    array([[0, 1, 1],
           [1, 0, 1],
           [1, 1, 1],
           [0, 0, 0]])
    """

    def __init__(
        self, n_components: int | None = None, alpha: float = 1.0, beta: float | None = None, fit_intercept: bool = True
    ) -> None:
        self.n_components = n_components
        self.alpha = alpha
        self.beta = beta
        self.fit_intercept = fit_intercept

    def fit(self, X: Any, y: Any) -> MLLS:
        """Solve.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
        y : label matrix of shape (n_samples, n_labels), list of tags a sample, or classes of shape (n_samples,)
            NaN where a label was never judged; see :func:`kernelweave.labels.as_labels`.
        """
        if self.n_components is not None:
            _check_count("n_components", self.n_components)
        for name, value in (("alpha", self.alpha), ("beta", 0.0 if self.beta is None else self.beta)):
            if not 0 <= value < np.inf:
                raise ValueError(f"{name} must be a finite number that is not negative, got {value!r}.")
        X = validate_data(self, X, dtype=np.float64)
        targets = _targets(self._signs(y))
        check_consistent_length(X, targets)
        centre, offset = np.zeros(X.shape[1]), np.zeros(targets.shape[1])
        if self.fit_intercept:
            centre, offset = X.mean(axis=0), targets.mean(axis=0)
        wanted = -(-4 * targets.shape[1] // 5) if self.n_components is None else int(self.n_components)
        beta = _SHARE_OF_SPREAD * float(X.var(axis=0).sum()) if self.beta is None else float(self.beta)
        U, T = shared_subspace(X - centre, targets - offset, wanted, float(self.alpha), beta)
        self.coef_, self.components_ = U.T, T.T
        self.intercept_ = offset - centre @ U
        return self

    def _scores(self, X: Any) -> Array:
        return validate_data(self, X, reset=False, dtype=np.float64) @ self.coef_.T + self.intercept_


def _targets(signs: Signs) -> Array:
    """Signs as numbers, with the mean of the judged ones of a column where nobody judged (zero if nobody ever did)."""
    known = signs != 0
    mean = signs.sum(axis=0, dtype=np.float64) / np.maximum(known.sum(axis=0), 1)
    return np.where(known, signs, mean)


def shared_subspace(X: Array, Y: Array, n_components: int, alpha: float, beta: float) -> tuple[Array, Array]:
    """Coefficients U (d, m) and basis T (d, r) of the problem of :class:`MLLS`, without intercept.

    With M = X'X/n + (alpha + beta) I, the span of T is that of the leading generalised eigenvectors of
    (M^-1 X'Y Y'X M^-1,  I - alpha M^-1), and U = (M - alpha T T')^-1 X'Y / n. All of it happens in the row space of X,
    where its right singular vectors make M diagonal.
    """
    n = len(X)
    left, sizes, right = svd(X, full_matrices=False, check_finite=False)
    kept = sizes > max(X.shape) * np.finfo(np.float64).eps * sizes.max(initial=0.0)
    left, sizes, right = left[:, kept], sizes[kept], right[kept]
    ridge = (sizes**2 / n + beta)[:, None]  # M - alpha I, whose diagonal is all there is
    M = ridge + alpha
    moments = sizes[:, None] * (left.T @ Y) / n
    leading, _, _ = svd(moments / np.sqrt(M * ridge), full_matrices=False, check_finite=False)
    T, _ = np.linalg.qr(leading[:, :n_components] * np.sqrt(M / ridge))
    # By Woodbury's formula; T'T - alpha T'M^-1 T is written without the difference, which vanishes for large alpha.
    U = moments / M
    U += alpha * (T / M) @ np.linalg.solve(T.T @ (ridge / M * T), T.T @ U)
    return right.T @ U, right.T @ T


def _check_count(name: str, value: Any) -> None:
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be a whole number, at least 1, got {value!r}.")
