"""Multiple kernel learning with a fixed bank: classification and regression."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.base import ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.utils import check_consistent_length, column_or_1d
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_array, check_is_fitted

from ._estimator import Array, BankEstimator, Fit, below_all_others, held_out_scores
from .kernels import Bank
from .labels import Labels, as_labels, is_label_matrix, share_all_right
from .machines import SVM, Machine, Ridge
from .machines.worst_class import WorstClass
from .solvers import StochasticApproximation
from .weights import WeightSet, parse_weights
from .weights.chosen import Chosen
from .weights.fixed import OnePoint

#: Folds for the out-of-fold scores that probabilities are calibrated on.
_CALIBRATION_FOLDS = 5


def _wants_probability(estimator: MKLClassifier) -> bool:
    if not estimator.probability:
        raise AttributeError("predict_proba needs MKLClassifier(probability=True) before fit.")
    return True


class MKLClassifier(ClassifierMixin, BankEstimator):
    """Classification with a learned combination of kernels.

    One problem a class (one-vs-rest) or label, or one for two classes. Each has its own kernel weights, or all share
    one vector of them (`sharing`), and carries a duality gap. See the page "the four nouns" for what `weights` and
    `solver` may be combined to.

    Parameters
    ----------
    kernels : KernelBank, mapping of view names to kernels, list of kernels, kernel, "precomputed" or None
        None: three Gaussian kernels (narrow, medium, wide) on each view.
    weights : str, WeightSet or list of float, default="l1"
        The set the kernel weights come from: "l1" (sparse), "l2", "l4", ..., "linf", "average", "sum", "best" (single
        kernel by cross-validation), "alignment", "entropy", an object of :mod:`kernelweave.weights`, or the weights.
    solver : str or StochasticApproximation, default="auto"
        "newton", "cutting-plane", "level", "reduced-gradient", "projected-gradient", "mirror-descent", "alternating",
        "smo", or "auto": what the benchmarks show to be fastest for the weight set. With ``sharing="worst-case"``:
        "level" (auto) or "cutting-plane", which are exact, or "stochastic" (ML-MKL-SA), cheap and approximate, whose
        settings are those of :class:`kernelweave.solvers.StochasticApproximation`.
    sharing : {"none", "sum", "worst-case"}, default="none"
        What several classes or labels have in common. "none": each learns weights of its own. "sum" (ML-MKL-Sum): one
        weight vector that is best for the sum of their objectives. "worst-case": one weight vector that is best for the
        class whose objective is largest. A shared vector is learned several times faster where there are many classes,
        and predicts with one combined kernel. It changes nothing for two classes. Weights that are not learned but
        chosen ("best", "alignment") are then chosen once for all classes.
    C : float, default=1.0
        Cost of a margin error. It means different things in different weight sets (uniform l2 weights are larger than
        uniform l1 weights): tune it for each.
    fit_intercept : bool, default=True
    machine : Machine, optional
        Used instead of ``SVM(C, fit_intercept)``, for example ``kernelweave.machines.NuSVM(0.3)``.
    class_weight : dict, "balanced" or None
        Multiplies C by class. With an indicator matrix, "balanced" or a dict with the keys -1 and 1, for each label.
    probability : bool, default=False
        Whether to calibrate probabilities (Platt) on out-of-fold scores; adds five SVM solves a problem.
    tol : float, default=1e-3
        Relative duality gap to stop at.
    max_iter : int, default=500
    stopping : {"gap", "published"}, default="gap"
        "published" stops as the published comparisons did (40 iterations, weight change 1e-4, gap 1e-3).
    n_jobs : int, optional
        Problems solved in parallel, by joblib; compiled loops use all threads in any case.
    verbose : int, default=0
    random_state : int, RandomState or None
        Shuffles the calibration folds; seeds the draws of ``solver="stochastic"``.

    Attributes
    ----------
    weights_ : array of shape (n_kernels,), or (n_classes, n_kernels) for more than two classes or labels, not shared
    kernel_names_ : tuple of str
    classes_ : array of shape (n_classes,)
        The classes, or the names of the labels: columns of a frame, tags, or 0, 1, ...
    gap_ : float
        Relative duality gap reached (the largest of all problems).
    objective_ : float, or array of shape (n_classes,) if nothing is shared
    converged_ : bool
    n_iter_ : int
    history_ : structured array with a row an iteration, or a list of them, one a problem
    support_ : array of shape (n_support,)
    dual_coef_ : array of shape (n_problems, n_support)
    intercept_ : array of shape (n_problems,)
    n_svm_solves_, kernel_adds_ : int
        Runs of the machine, and kernels read by all combinations.

    Examples
    --------
    >>> import kernelweave as kw
    >>> views, y = kw.datasets.make_views(n_samples=120, n_useful=2, n_noise=2, random_state=0)
    >>> clf = kw.MKLClassifier(weights="l1", C=1.0).fit(views, y)
    >>> clf.gap_ <= 1e-3
    True
    >>> clf.weights_.shape == (len(clf.kernel_names_),)
    True
    """

    def __init__(
        self,
        kernels: Any = None,
        weights: Any = "l1",
        solver: str | StochasticApproximation = "auto",
        sharing: str = "none",
        C: float = 1.0,
        fit_intercept: bool = True,
        machine: Machine | None = None,
        class_weight: Any = None,
        probability: bool = False,
        tol: float = 1e-3,
        max_iter: int = 500,
        stopping: str = "gap",
        n_jobs: int | None = None,
        verbose: int = 0,
        random_state: Any = None,
    ) -> None:
        self.kernels = kernels
        self.weights = weights
        self.solver = solver
        self.sharing = sharing
        self.C = C
        self.fit_intercept = fit_intercept
        self.machine = machine
        self.class_weight = class_weight
        self.probability = probability
        self.tol = tol
        self.max_iter = max_iter
        self.stopping = stopping
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> MKLClassifier:
        """Learn kernel weights and support vectors.

        Parameters
        ----------
        X : Views, mapping, array of shape (n_samples, n_features), frame, KernelStack or (n_kernels, n, n) array
        y : array of shape (n_samples,), or labels
            Classes; or a label matrix of shape (n_samples, n_labels) of 0 and 1 or of -1 and +1, dense, sparse or a
            frame, with NaN, None or a mask where a label was never judged; or a list of tags a sample. A sample takes
            no part in the problem of a label that was not judged for it.
        sample_weight : array of shape (n_samples,), optional
            Multiplies C sample by sample.
        """
        self._check_settings()
        X = self._read(X, reset=True)
        Y = self._columns(y)
        check_consistent_length(np.empty(self._n_samples(X)), Y)
        machine = self._machine(y, sample_weight, len(Y))
        weights = parse_weights(self.weights)
        shared = self._shared()
        # A column with one side only has nothing to learn: it takes no part, and its constant is set afterwards.
        learned = np.any(Y > 0, axis=0) & np.any(Y < 0, axis=0)
        targets = np.where(learned, Y, 0.0)
        # Weights that no column can change need one combined kernel only: all columns are one problem.
        together = shared or isinstance(weights, OnePoint)
        columns = [targets] if together else [targets[:, [k]] for k in range(Y.shape[1])]
        bank, fits = self._solve_columns(X, self._joint(machine, weights, Y.shape[1]), weights, columns)
        self._store(bank, fits, one_vector=shared or (Y.shape[1] == 1 and not self._multilabel))
        self.intercept_ = np.where(learned, self.intercept_, np.sign(Y.sum(axis=0)))
        self._never_judged = np.asarray(~Y.any(axis=0))
        if self.probability:
            self._platt = self._calibrate(bank, machine, Y, targets, fits)
        return self

    def _check_settings(self) -> None:
        """Refuse settings of a subclass before the data is looked at."""

    def _solve_columns(
        self, X: Any, machine: Machine, weights: WeightSet, columns: list[Array]
    ) -> tuple[Bank, list[Fit]]:
        """The kernels, and one solved problem for each of some target columns, (n_samples, n_columns)."""
        bank = self._build(X)
        return bank, self._solve(bank, machine, [(weights, part) for part in columns])

    def _shared(self) -> bool:
        """Whether there is one weight vector for all columns."""
        if self.sharing not in ("none", "sum", "worst-case"):
            raise ValueError(f"sharing must be 'none', 'sum' or 'worst-case', got {self.sharing!r}.")
        return self.sharing != "none"

    def _joint(self, machine: Machine, weights: WeightSet, n_columns: int) -> Machine:
        """The machine of the problem that weights are learned for; where none are learned there is no worst class."""
        learned = not isinstance(weights, OnePoint | Chosen)
        return WorstClass(machine) if self.sharing == "worst-case" and learned and n_columns > 1 else machine

    def _solver(self) -> str | StochasticApproximation:
        return StochasticApproximation(random_state=self.random_state) if self.solver == "stochastic" else self.solver

    def _columns(self, y: Any) -> Array:
        """Targets as columns of -1 and +1, with 0 where a label was never judged; sets `classes_`."""
        if y is None:
            raise ValueError("This MKLClassifier requires y to be passed, but the target y is None.")
        self._multilabel = is_label_matrix(y)
        if self._multilabel:
            labels = as_labels(y, what="y")
            self.classes_ = labels.names
            _warn_of_constant_columns(labels)
            return labels.signs.astype(np.float64)
        check_classification_targets(y)
        y = column_or_1d(y, warn=True)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"The classifier needs samples of at least 2 classes, but y contains only one class: "
                f"{self.classes_.tolist()[0]!r}."
            )
        if len(self.classes_) == 2:
            return np.where(codes == 1, 1.0, -1.0)[:, None]
        return np.where(codes[:, None] == np.arange(len(self.classes_)), 1.0, -1.0)

    def _machine(self, y: ArrayLike, sample_weight: ArrayLike | None, n_samples: int) -> Machine:
        if self.machine is not None:
            if sample_weight is not None or self.class_weight is not None:
                raise ValueError(
                    "Give sample or class weights to the machine itself, or leave machine=None and use C and "
                    "fit_intercept of the classifier."
                )
            return self.machine
        factors = _sample_weights(sample_weight, n_samples)
        if self.class_weight is None or self._multilabel:
            return SVM(self.C, self.fit_intercept, factors, self.class_weight)
        by_class = compute_sample_weight(self.class_weight, column_or_1d(y))
        return SVM(self.C, self.fit_intercept, by_class if factors is None else by_class * factors)

    def _calibrate(self, bank: Bank, machine: Machine, Y: Array, targets: Array, fits: list[Fit]) -> Array:
        """Slope and offset of a sigmoid for each column, from scores of samples held out at the learned weights."""
        scores = np.empty_like(Y)
        folds = list(self._folds(Y))
        start = 0
        for fit in fits:
            part = slice(start, start + len(fit.intercept))
            start = part.stop
            K = bank.combine(fit.weights)
            scores[:, part] = held_out_scores(K, machine, targets[:, part], fit, folds, self.tol)
        return np.array([_sigmoid(scores[:, k], Y[:, k]) for k in range(Y.shape[1])])

    def _folds(self, Y: Array) -> Any:
        if self._multilabel:
            return KFold(min(_CALIBRATION_FOLDS, len(Y)), shuffle=True, random_state=self.random_state).split(Y)
        codes = Y.argmax(axis=1) if Y.shape[1] > 1 else (Y[:, 0] > 0).astype(int)
        rarest = int(np.bincount(codes).min())
        if rarest < 2:
            raise ValueError("probability=True needs at least two samples of every class to hold some out.")
        return StratifiedKFold(min(_CALIBRATION_FOLDS, rarest), shuffle=True, random_state=self.random_state).split(
            Y, codes
        )

    def decision_function(self, X: Any) -> Array:
        """Scores of shape (n_samples,) for two classes (positive: ``classes_[1]``), else (n_samples, n_classes).

        Labels that nobody judged are below all others, and negative.
        """
        check_is_fitted(self)
        scores = below_all_others(self._scores(X), self._never_judged)
        return scores[:, 0] if len(self.classes_) == 2 and not self._multilabel else scores

    def predict(self, X: Any) -> NDArray:
        """Classes of shape (n_samples,), or an indicator matrix if y was one."""
        scores = self.decision_function(X)
        if self._multilabel:
            return (scores > 0).astype(int)
        return self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)]

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Accuracy; with labels, the share of samples for which all that was judged is predicted right."""
        check_is_fitted(self)
        if not self._multilabel:
            return float(super().score(X, y, sample_weight))
        return share_all_right(self.predict(X), as_labels(y, names=self.classes_, what="y"), sample_weight)

    @available_if(_wants_probability)
    def predict_proba(self, X: Any) -> Array:
        """Calibrated probabilities of shape (n_samples, n_classes); with an indicator matrix, of each label."""
        check_is_fitted(self)
        scores = self._scores(X)
        each = expit(self._platt[:, 0] * scores + self._platt[:, 1])
        if self._multilabel:
            return each
        if each.shape[1] == 1:
            return np.hstack([1 - each, each])
        total = each.sum(axis=1, keepdims=True)
        return np.where(total > 0, each / np.where(total > 0, total, 1.0), 1.0 / each.shape[1])


def _sample_weights(sample_weight: ArrayLike | None, n_samples: int) -> Array | None:
    if sample_weight is None:
        return None
    return _check_sample_weight(sample_weight, np.empty((n_samples, 1)), dtype=np.float64, ensure_non_negative=True)


def _warn_of_constant_columns(labels: Labels) -> None:
    relevant, irrelevant = np.any(labels.signs > 0, axis=0), np.any(labels.signs < 0, axis=0)
    for found, what in (
        (relevant ^ irrelevant, "are the same wherever they were judged: the constant is predicted"),
        (~relevant & ~irrelevant, "were never judged: they are predicted as irrelevant, below every other label"),
    ):
        if found.any():
            names = labels.names[found].tolist()
            warnings.warn(f"Label column(s) {names} {what}. Nothing can be learned there.", UserWarning, stacklevel=4)


def _sigmoid(scores: Array, y: Array) -> Array:
    """Platt's calibration: a logistic regression on one score, towards targets drawn in from 0 and 1."""
    if not y.any():  # never judged, predicted as irrelevant
        return np.array([0.0, -np.inf])
    scores, y = scores[y != 0], y[y != 0]
    positive, negative = int((y > 0).sum()), int((y < 0).sum())
    target = np.where(y > 0, (positive + 1) / (positive + 2), 1 / (negative + 2))
    spread = max(float(scores.std()), np.finfo(float).tiny)
    twice = np.concatenate([scores, scores])[:, None] / spread
    sides = np.repeat([1, 0], len(scores))
    model = LogisticRegression(C=1e6).fit(twice, sides, sample_weight=np.concatenate([target, 1 - target]))
    return np.array([model.coef_[0, 0] / spread, model.intercept_[0]])


class MKLRegressor(MultiOutputMixin, RegressorMixin, BankEstimator):
    """Regression (squared loss) with a learned combination of kernels.

    Several targets share one weight vector. The same weight sets and solvers as in :class:`MKLClassifier`, with kernel
    ridge regression in place of the SVM ("smo" needs a hinge loss and is refused).

    Parameters
    ----------
    kernels, weights, solver, tol, max_iter, stopping, n_jobs, verbose
        As in :class:`MKLClassifier`.
    C : float, default=1.0
        Weight of the squared errors: 1/C is the ridge.
    fit_intercept : bool, default=True

    Attributes
    ----------
    weights_ : array of shape (n_kernels,)
    gap_, objective_, converged_, n_iter_, history_, kernel_names_, intercept_, dual_coef_
        As in :class:`MKLClassifier`.

    Examples
    --------
    >>> import kernelweave as kw
    >>> views, y = kw.datasets.make_regression_views(n_samples=100, random_state=0)
    >>> model = kw.MKLRegressor(weights="l2", C=10.0).fit(views, y)
    >>> model.gap_ <= 1e-3, model.score(views, y) > 0.5
    (True, True)
    """

    def __init__(
        self,
        kernels: Any = None,
        weights: Any = "l1",
        solver: str = "auto",
        C: float = 1.0,
        fit_intercept: bool = True,
        tol: float = 1e-3,
        max_iter: int = 500,
        stopping: str = "gap",
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.kernels = kernels
        self.weights = weights
        self.solver = solver
        self.C = C
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.stopping = stopping
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> MKLRegressor:
        """Learn kernel weights and the ridge solution.

        Parameters
        ----------
        X : as in :meth:`MKLClassifier.fit`
        y : array of shape (n_samples,) or (n_samples, n_targets)
        sample_weight : array of shape (n_samples,), optional
            Multiplies C; samples of weight zero are left out.
        """
        X = self._read(X, reset=True)
        if y is None:
            raise ValueError("This MKLRegressor requires y to be passed, but the target y is None.")
        Y = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
        self._one_target = Y.ndim == 1
        Y = Y.reshape(len(Y), -1)
        check_consistent_length(np.empty(self._n_samples(X)), Y)
        bank = self._build(X)
        factors = _sample_weights(sample_weight, len(Y))
        kept = np.arange(len(Y)) if factors is None else np.flatnonzero(factors)
        machine = Ridge(self.C, self.fit_intercept, None if factors is None else factors[kept])
        part = bank if len(kept) == len(Y) else bank.restrict(kept)
        fits = self._solve(part, machine, [(parse_weights(self.weights), Y[kept])])
        self._store(part, fits, one_vector=True)
        self.support_ = kept[self.support_]
        return self

    def predict(self, X: Any) -> Array:
        """Predicted targets, shaped as y was."""
        check_is_fitted(self)
        scores = self._scores(X)
        return scores[:, 0] if self._one_target else scores
