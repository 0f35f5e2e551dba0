"""What the classifiers of bags share: reading bags and their labels, and turning scores into predictions."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from .._estimator import BankReader
from .._validation import check_cost
from ..kernels import Bank, Gaussian, KernelBank
from ..machines.squared_hinge import Point
from ..views import KernelStack, Views, as_views
from ..weights import parse_weights
from ..weights.fixed import OnePoint
from .bags import Bags, as_bags, bag_labels, is_list_of_bags, positive_bags

Array = NDArray[np.float64]

#: Instances, evenly spaced, whose distances stand for those of all.
_MEDIAN_OF = 2000
#: Squared distances below this share of the largest squared norm are rounding.
_SAME = 1e-13


def median_gaussian(X: NDArray, scale: float = 1.0) -> Gaussian:
    """``exp(-|x - x'|^2 / (2 s^2))`` where s is `scale` times the median distance between rows of X.

    Parameters
    ----------
    X : array of shape (n_samples, n_features)
        Of many rows, 2000 evenly spaced ones are used.
    scale : float

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.ambiguity import median_gaussian
    >>> median_gaussian(np.array([[0.0], [1.0], [2.0]])).gamma
    0.5
    """
    rows = np.asarray(X[:: -(-len(X) // _MEDIAN_OF)], dtype=np.float64)
    rows = rows - rows.mean(axis=0)  # what all rows share would drown small distances in rounding
    squares = euclidean_distances(rows, squared=True)[~np.eye(len(rows), dtype=bool)]  # every pair twice
    squares[squares <= _SAME * np.einsum("ij,ij->i", rows, rows).max()] = 0.0
    distances = np.sqrt(squares)
    middle = float(np.median(distances)) if len(distances) else 0.0
    middle = middle or float(distances.mean() if len(distances) else 0.0) or 1.0  # most, or all, rows may be equal
    return Gaussian(gamma=0.5 / (scale * middle) ** 2)


class BagClassifier(ClassifierMixin, BankReader):
    """Base of the classifiers of bags into two classes."""

    kernels: Any
    weights: Any
    C: float
    tol: float
    fit_intercept: bool
    class_weight: Any
    classes_: NDArray

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    # -- reading --------------------------------------------------------------------------------------------------

    def _bags(self, X: Any, groups: Iterable | None, reset: bool) -> Bags:
        """X as bags; plain arrays and frames go through scikit-learn's own checks."""
        if isinstance(X, Bags) or is_list_of_bags(X):
            bags = as_bags(X, groups)
            rows = self._read(bags.instances, reset)
            cut = isinstance(rows, np.ndarray) and rows.shape[0] != rows.shape[-1]
            if reset and cut and self._spec().kernels == "precomputed":
                raise ValueError(
                    f"a precomputed kernel is square, got an array of shape {rows.shape}: Bags(KernelStack(K), groups) "
                    "knows that samples are on both sides, so that parts of it can be taken."
                )
            return bags.holding(rows)
        return Bags(self._read(X, reset), groups)

    def _positive(self, y: Any, bags: Bags) -> NDArray[np.bool_]:
        """Which bags are of the second class; sets `classes_`."""
        self.classes_, positive = positive_bags(y, bags, type(self).__name__)
        return positive

    def _class_factors(self, positive: NDArray[np.bool_]) -> tuple[float, float]:
        """What multiplies C for the positive and for the negative class."""
        check_cost("C", self.C, "it is the cost of a margin error")
        factors = compute_class_weight(self.class_weight, classes=self.classes_, y=self.classes_[positive.astype(int)])
        return float(factors[1]), float(factors[0])

    def _bag_weight(self, bag_weight: ArrayLike | None, bags: Bags) -> Array:
        return _check_sample_weight(bag_weight, np.empty((len(bags), 1)), dtype=np.float64, ensure_non_negative=True)

    def _instance_bank(self, instances: Any) -> tuple[Bank, Array]:
        """The kernels of instances, and their weights."""
        if self.kernels is None and not isinstance(instances, KernelStack):
            views = instances if isinstance(instances, Views) else as_views(instances)
            spec = KernelBank({name: median_gaussian(views[name]) for name in views.names})
        elif self.kernels is None:
            raise ValueError("X is a KernelStack: give kernels='precomputed'.")
        else:
            spec = self._spec()
        weights = parse_weights(self.weights)
        if not isinstance(weights, OnePoint):
            raise ValueError(
                f"weights must be given or fixed, such as 'average', got {self.weights!r}: this classifier does not "
                "learn them. InputOutputKernelClassifier does."
            )
        bank = spec.build(instances, verbose=bool(self.verbose))
        return bank, weights.resolve(bank, None, np.empty((0, 1))).start(bank.n_kernels)

    def _certify(self, point: Point) -> None:
        """Set `gap_`, and warn if it is not what was asked for."""
        self.gap_ = point.gap / max(abs(point.primal), np.finfo(float).tiny)
        if not abs(self.gap_) <= self.tol:
            warnings.warn(
                f"The last solve stopped at a relative duality gap of {self.gap_:.2g}, short of {self.tol:.2g}: C, or "
                "the values of the kernel, are too large for its precision, or it is far from positive semi-definite. "
                "Scale the features, lower C, or take KernelBank(..., dtype='float64').",
                ConvergenceWarning,
                stacklevel=4,
            )

    # -- predicting -----------------------------------------------------------------------------------------------

    @abstractmethod
    def _bag_scores(self, bags: Bags) -> Array: ...

    def decision_function(self, X: Any, groups: Iterable | None = None) -> Array:
        """Scores of bags, positive for ``classes_[1]``.

        Parameters
        ----------
        X, groups : as in `fit`

        Returns
        -------
        array of shape (n_bags,)
        """
        check_is_fitted(self)
        return self._bag_scores(self._bags(X, groups, reset=False))

    def predict(self, X: Any, groups: Iterable | None = None) -> NDArray:
        """Classes of bags, shape (n_bags,); a score of exactly zero is negative."""
        scores = self.decision_function(X, groups)
        return self.classes_[(scores > 0).astype(int)]

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None, groups: Iterable | None = None) -> float:
        """Share of bags that are predicted right.

        Parameters
        ----------
        X, y, groups : as in `fit`
        sample_weight : array of shape (n_bags,), optional
        """
        check_is_fitted(self)
        bags = self._bags(X, groups, reset=False)
        right = self.classes_[(self._bag_scores(bags) > 0).astype(int)] == bag_labels(y, bags)
        return float(np.average(right, weights=self._bag_weight(sample_weight, bags)))
