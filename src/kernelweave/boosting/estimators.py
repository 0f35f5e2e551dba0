"""LPBeta, LPB, LPBoost and CGBoost: from data to predictions."""

from __future__ import annotations

import time
import warnings
from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import blas
from sklearn.base import ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_consistent_length, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from .._config import in_threads
from .._estimator import BankReader
from .._validation import check_cost, check_number, check_tol
from ..kernels import Bank
from .logistic import kernel_logistic
from .out_of_fold import Trained, assign_folds, class_columns, share_right, train_each
from .programs import SLACKS, check_nu, combined, solve_path

Array = NDArray[np.float64]
Index = NDArray[np.intp]

#: Costs and shares of margin errors to choose from, as in the published experiments.
COSTS = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
NUS = tuple(round(0.05 * k, 2) for k in range(1, 20))
#: Weights up to this are left out, with the kernels that have no others.
DROPPED = 1e-8


class KernelEnsemble(ClassifierMixin, BankReader):
    """Base of the estimators below: one set of coefficients a kernel, whose scores are then combined."""

    classes_: NDArray
    support_: Index
    dual_coef_: Array  # (n_selected, n_columns, n_support)

    @abstractmethod
    def _combined(self, scores: Array) -> Array:
        """Decision values, (n,) or (n, n_classes), from those of every selected kernel, (n, n_selected, n_columns)."""

    def _codes(self, X: Any, y: Any) -> Index:
        """Classes as 0, 1, ...; sets `classes_`."""
        name = type(self).__name__
        if y is None:
            raise ValueError(f"This {name} requires y to be passed, but the target y is None.")
        check_classification_targets(y)
        self.classes_, codes = np.unique(column_or_1d(y, warn=True), return_inverse=True)
        check_consistent_length(np.empty(self._n_samples(X)), codes)
        if len(self.classes_) < 2:
            raise ValueError(
                f"{name} needs samples of at least 2 classes, but y contains only one class: "
                f"{self.classes_.tolist()[0]!r}."
            )
        return codes.astype(np.intp)

    def _bank(self, X: Any) -> Bank:
        bank = self._build(X)
        self.kernel_names_ = bank.names
        return bank

    def _keep(self, bank: Bank, kernels: Index, coef: Array) -> None:
        """Keep some kernels, their coefficients (n_kernels, n_samples, n_columns), and the samples that have any."""
        self.support_ = np.flatnonzero(coef.any(axis=(0, 2)))
        self.dual_coef_ = np.ascontiguousarray(coef[:, self.support_].transpose(0, 2, 1))
        self._expansion = bank.expansion(kernels, self.support_)

    def _each(self, X: Any) -> Array:
        """Scores of new samples by every kernel that was kept, without intercepts: (n, n_selected, n_columns)."""
        n_kernels, n_columns, n_support = self.dual_coef_.shape
        own = np.repeat(np.eye(n_kernels), n_columns, axis=0)  # every column of coefficients is for one kernel
        coef = self.dual_coef_.reshape(-1, n_support).T
        return self._expansion.scores(self._read(X, reset=False), own, coef).reshape(-1, n_kernels, n_columns)

    def decision_function(self, X: Any) -> Array:
        """Scores of shape (n_samples,) for two classes (positive: ``classes_[1]``), else (n_samples, n_classes)."""
        check_is_fitted(self)
        return self._combined(self._each(X))

    def predict(self, X: Any) -> NDArray:
        """Classes of shape (n_samples,)."""
        scores = self.decision_function(X)
        return self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)]


class ProgramEnsemble(KernelEnsemble):
    """Base of LP-beta, LP-B and LPBoost: train a machine a kernel, then solve a linear program for the weights."""

    _per_class = False
    #: What the scores of the two sides, -f and f, of two classes are multiplied by in the program.
    _unit = 1.0

    def __init__(
        self,
        kernels: Any = None,
        C: float | ArrayLike = COSTS,
        nu: float | ArrayLike = NUS,
        slack: str = "sample",
        cv: Any = 5,
        tol: float = 1e-3,
        n_jobs: int | None = None,
        verbose: int = 0,
        random_state: Any = None,
    ) -> None:
        self.kernels = kernels
        self.C = C
        self.nu = nu
        self.slack = slack
        self.cv = cv
        self.tol = tol
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    def fit(self, X: Any, y: ArrayLike) -> ProgramEnsemble:
        """Train the machines and combine them.

        Parameters
        ----------
        X : Views, mapping, array of shape (n_samples, n_features), frame, KernelStack or (n_kernels, n, n) array
        y : array of shape (n_samples,)
            Classes.
        """
        costs, nus = self._settings()
        X = self._read(X, reset=True)
        codes = self._codes(X, y)
        fold = assign_folds(codes, self.classes_, self.cv, self.random_state)
        bank = self._bank(X)
        begin = time.perf_counter()
        machines = train_each(bank, codes, fold, costs, self.tol, self.n_jobs)
        between = time.perf_counter()
        self._weigh(np.stack([machine.scores for machine in machines], axis=1), codes, fold, nus)
        if self.verbose:
            self._say(
                f"{len(machines)} kernels: machines {between - begin:.2f} s, "
                f"linear programs {time.perf_counter() - between:.2f} s"
            )
        self._store_machines(bank, machines)
        return self

    def _settings(self) -> tuple[list[float], list[float]]:
        """Costs and nus to choose from, ascending."""
        costs, nus = _grid(self.C, "C"), _grid(self.nu, "nu")
        if not 0 < costs[0] <= costs[-1] < np.inf:
            raise ValueError(f"C must be positive and finite, got {self.C!r}: it is the cost of a margin error.")
        for nu in nus:
            check_nu(nu)
        if self._slack() not in SLACKS:
            raise ValueError(f"slack must be one of {SLACKS}, got {self.slack!r}.")
        check_tol(self.tol, "it is the relative duality gap of the machines")
        return costs, nus

    def _slack(self) -> str:
        return self.slack

    def _weigh(self, scores: Array, codes: Index, fold: Index, nus: list[float]) -> None:
        """Choose nu and find the weights, from out-of-fold scores (n, n_kernels, n_columns)."""
        S = _of_classes(scores) * (self._unit if scores.shape[2] == 1 else 1.0)
        self.nu_accuracies_ = np.full(len(nus), np.nan)
        if len(nus) > 1:
            settings = (nus, self._per_class, self._slack())
            right = in_threads(lambda k: _count_right(S, codes, fold == k, *settings), range(fold.max() + 1))
            self.nu_accuracies_ = np.sum(right, axis=0) / len(codes)
        # Of equals the largest: the most samples then have a say.
        self.nu_ = nus[len(nus) - 1 - int(np.argmax(self.nu_accuracies_[::-1]))]
        found = next(solve_path(S, codes, [self.nu_], self._per_class, self._slack()))
        self.weights_ = np.where(found.weights > DROPPED, found.weights, 0.0)
        self.selected_ = np.flatnonzero(np.atleast_2d(self.weights_).any(axis=0))
        self.rho_, self.margins_, self.edges_ = found.rho, found.margins, found.edges
        self.sample_weights_ = found.duals
        self.objective_, self.gap_ = found.value, found.gap

    def _store_machines(self, bank: Bank, machines: list[Trained]) -> None:
        self.C_ = np.array([machine.C for machine in machines])
        self.kernel_accuracies_ = np.array([machine.accuracies.max() for machine in machines])
        chosen = [machines[j] for j in self.selected_]
        self.intercept_ = np.stack([machine.intercept for machine in chosen])
        self._keep(bank, self.selected_, np.stack([machine.coef for machine in chosen]))

    def kernel_scores(self, X: Any) -> Array:
        """Scores of the machines of the selected kernels.

        Returns
        -------
        array of shape (n_samples, n_selected), for two classes, or (n_samples, n_selected, n_classes)
        """
        check_is_fitted(self)
        scores = self._each(X) + self.intercept_
        return scores[:, :, 0] if scores.shape[2] == 1 else scores

    def _combined(self, scores: Array) -> Array:
        T = combined(_of_classes(scores + self.intercept_), self.weights_[..., self.selected_])
        return 0.5 * (T[:, 1] - T[:, 0]) if T.shape[1] == 2 else T


class LPBeta(ProgramEnsemble):
    """Machines of single kernels combined with one weight a kernel, for all classes: LP-beta (Gehler and Nowozin).

    A support vector machine (one-vs-rest) is trained on every kernel, with a cost of its own. The weights then maximise
    the margin between the right class and its nearest rival, over scores that every sample gets from machines that have
    not seen it, with a share nu of the samples allowed to miss it. Many weights are zero; these kernels are not
    computed for new samples.

    Parameters
    ----------
    kernels : KernelBank, mapping of view names to kernels, list of kernels, kernel, "precomputed" or None
        None: three Gaussian kernels (narrow, medium, wide) on each view.
    C : float or sequence of float, default=(0.01, 0.1, 1, 10, 100, 1000)
        Cost of a margin error of the machines; of several, each kernel has the one of the best accuracy out of fold.
    nu : float or sequence of float in (0, 1], default=(0.05, 0.1, ..., 0.95)
        Share of the samples that may miss the margin; of several, the one of the best accuracy on folds that the
        weights have not seen.
    slack : {"sample", "pair"}, default="sample"
        What may miss the margin: samples (by their nearest rival), or pairs of a sample and a wrong class.
    cv : int, splitter or iterable of (train, held) index arrays, default=5
        Folds, the same for all kernels and for nu; stratified if a number. Each sample must be held out exactly once. A
        class with fewer samples than folds makes the folds fewer, with a warning.
    tol : float, default=1e-3
        Relative duality gap of the machines. The linear programs are solved exactly.
    n_jobs : int, optional
        Kernels trained in parallel, by joblib; compiled loops use all threads in any case.
    verbose : int, default=0
    random_state : int, RandomState or None
        Shuffles the folds.

    Attributes
    ----------
    weights_ : array of shape (n_kernels,)
        Not negative, sum to one.
    selected_ : array of int
        The kernels with weight.
    kernel_names_ : tuple of str
    classes_ : array of shape (n_classes,)
    C_ : array of shape (n_kernels,)
        The cost chosen for each kernel.
    kernel_accuracies_ : array of shape (n_kernels,)
        Accuracy of each kernel alone, out of fold.
    nu_ : float
    nu_accuracies_ : array of shape (n_nus,)
        NaN if only one nu was given.
    rho_ : float
        The margin. At most a share ``nu_`` of ``margins_`` is below it, at least a share ``nu_`` at or below it.
    margins_ : array of shape (n_samples,)
        Out of fold: combined score of the right class minus that of its nearest rival.
    sample_weights_ : array of shape (n_samples, n_classes)
        The dual solution: how much each pair of a sample and a wrong class counts; they sum to one.
    edges_ : array of shape (n_kernels,)
        What these make of each kernel; equal, and the largest, where ``weights_`` are positive.
    objective_, gap_ : float
        Value of the linear program, and its distance to that of the dual at ``sample_weights_``.
    support_ : array of shape (n_support,)
    dual_coef_ : array of shape (n_selected, n_columns, n_support)
        Of the machines; one column for two classes.
    intercept_ : array of shape (n_selected, n_columns)

    See Also
    --------
    LPB : one weight a class and kernel.
    MKLClassifier : one machine on a combined kernel.

    Examples
    --------
    >>> import kernelweave as kw
    >>> from kernelweave.boosting import LPBeta
    >>> views, y = kw.datasets.make_views(n_samples=120, n_classes=3, n_useful=2, n_noise=2, random_state=0)
    >>> clf = LPBeta(kw.kernels.Gaussian(), random_state=0).fit(views, y)
    >>> clf.weights_.shape, bool(abs(clf.weights_.sum() - 1) < 1e-6)
    ((5,), True)
    >>> bool((clf.margins_ < clf.rho_ - 1e-9).mean() <= clf.nu_)
    True
    """


class LPB(ProgramEnsemble):
    """Machines of single kernels combined with a weight for every class and kernel: LP-B (Gehler and Nowozin).

    As :class:`LPBeta`, which needs fewer samples and less time: there are n_classes times as many weights to find.

    Parameters
    ----------
    kernels, C, nu, slack, cv, tol, n_jobs, verbose, random_state
        As in :class:`LPBeta`.

    Attributes
    ----------
    weights_, edges_ : array of shape (n_classes, n_kernels)
        The weights of each class sum to one.
    selected_ : array of int
        The kernels with weight for any class.
    others
        As in :class:`LPBeta`.

    Examples
    --------
    >>> import kernelweave as kw
    >>> from kernelweave.boosting import LPB
    >>> views, y = kw.datasets.make_views(n_samples=120, n_classes=3, n_useful=2, n_noise=2, random_state=0)
    >>> clf = LPB(kw.kernels.Gaussian(), nu=0.5, random_state=0).fit(views, y)
    >>> clf.weights_.shape, clf.weights_.sum(axis=1).round(6)
    ((3, 5), array([1., 1., 1.]))
    """

    _per_class = True


class LPBoost(ProgramEnsemble):
    """Machines of single kernels combined by nu-LPBoost, for two classes.

    As :class:`LPBeta` with two classes and the same weights, but for its margins, which are half as large: the label
    times the combined score.

    Parameters
    ----------
    kernels, C, nu, cv, tol, n_jobs, verbose, random_state
        As in :class:`LPBeta`.

    Attributes
    ----------
    weights_ : array of shape (n_kernels,)
    others
        As in :class:`LPBeta`.

    Examples
    --------
    >>> import kernelweave as kw
    >>> from kernelweave.boosting import LPBoost
    >>> views, y = kw.datasets.make_views(n_samples=120, n_useful=2, n_noise=2, random_state=0)
    >>> clf = LPBoost(kw.kernels.Gaussian(), random_state=0).fit(views, y)
    >>> clf.weights_.shape, clf.kernel_names_[clf.weights_.argmax()]
    ((5,), 'useful0:Gaussian')
    """

    _unit = 0.5

    def __init__(
        self,
        kernels: Any = None,
        C: float | ArrayLike = COSTS,
        nu: float | ArrayLike = NUS,
        cv: Any = 5,
        tol: float = 1e-3,
        n_jobs: int | None = None,
        verbose: int = 0,
        random_state: Any = None,
    ) -> None:
        self.kernels = kernels
        self.C = C
        self.nu = nu
        self.cv = cv
        self.tol = tol
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def _slack(self) -> str:
        return "sample"  # a sample of two classes has one rival only

    def _codes(self, X: Any, y: Any) -> Index:
        codes = super()._codes(X, y)
        if len(self.classes_) > 2:
            raise ValueError(
                f"Only binary classification is supported. LPBoost is for two classes, but y contains "
                f"{len(self.classes_)}: use LPBeta, which gives the same for two."
            )
        return codes


class CGBoost(KernelEnsemble):
    """Logistic regression on all kernel values at once: CG-Boost (Bi, Zhang and Bennett).

    Every kernel value between a sample and a training sample is a feature, and each class (one-vs-rest; one problem for
    two classes) has a coefficient for it::

        min over alpha, b   1/2 sum_m |alpha_m|^2 + C sum_i log(1 + exp(-y_i (b + sum_m K_m(x_i)' alpha_m)))

    It is solved as kernel logistic regression with the kernel ``G = sum_m K_m K_m'``, to a duality gap. All kernels
    have coefficients, so all are needed for new samples.

    Parameters
    ----------
    kernels : KernelBank, mapping of view names to kernels, list of kernels, kernel, "precomputed" or None
        None: three Gaussian kernels (narrow, medium, wide) on each view.
    C : float, default=1.0
        Cost of the losses. There are as many features as kernels times samples: the more, the smaller C should be.
    tol : float, default=1e-6
        Relative duality gap to stop at.
    max_iter : int, default=100
        Most Newton steps a problem.
    verbose : int, default=0

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    kernel_names_ : tuple of str
    dual_coef_ : array of shape (n_kernels, n_columns, n_support)
        The alpha above; one column for two classes.
    intercept_ : array of shape (n_columns,)
    objective_, dual_objective_ : array of shape (n_columns,)
    gap_ : float
        Relative duality gap reached (the largest of all problems).
    converged_ : bool
    n_iter_ : int
    support_ : array of shape (n_support,)

    Examples
    --------
    >>> import kernelweave as kw
    >>> from kernelweave.boosting import CGBoost
    >>> views, y = kw.datasets.make_views(n_samples=120, n_useful=2, n_noise=2, random_state=0)
    >>> clf = CGBoost().fit(views, y)
    >>> clf.gap_ <= 1e-6
    True
    """

    def __init__(
        self, kernels: Any = None, C: float = 1.0, tol: float = 1e-6, max_iter: int = 100, verbose: int = 0
    ) -> None:
        self.kernels = kernels
        self.C = C
        self.tol = tol
        self.max_iter = max_iter
        self.verbose = verbose

    def fit(self, X: Any, y: ArrayLike) -> CGBoost:
        """Solve.

        Parameters
        ----------
        X : Views, mapping, array of shape (n_samples, n_features), frame, KernelStack or (n_kernels, n, n) array
        y : array of shape (n_samples,)
            Classes.
        """
        check_cost("C", self.C, "it is the cost of the losses")
        check_tol(self.tol)
        check_number("max_iter", self.max_iter, "at least 1", lambda most: most >= 1)
        X = self._read(X, reset=True)
        codes = self._codes(X, y)
        bank = self._bank(X)
        G = sum_of_squares(bank)
        columns = np.ascontiguousarray(class_columns(codes).T)
        fits = in_threads(lambda y: kernel_logistic(G, y, self.C, self.tol, self.max_iter), columns)
        self.intercept_ = np.array([fit.intercept for fit in fits])
        self.objective_ = np.array([fit.primal for fit in fits])
        self.dual_objective_ = np.array([fit.dual for fit in fits])
        self.gap_ = max(fit.gap for fit in fits)
        self.n_iter_ = max(fit.steps for fit in fits)
        self.converged_ = bool(self.gap_ <= self.tol)
        if not self.converged_:
            warnings.warn(
                f"CGBoost stopped at a relative duality gap of {self.gap_:.2g}, short of {self.tol:.2g}. "
                "Raise max_iter or tol, or lower C.",
                ConvergenceWarning,
                stacklevel=2,
            )
        coef = np.stack([fit.coef for fit in fits], axis=1)
        self._keep(bank, np.arange(bank.n_kernels), bank.products(coef, np.arange(bank.n_samples)))
        return self

    def _combined(self, scores: Array) -> Array:
        total = scores.sum(axis=1) + self.intercept_
        return total[:, 0] if total.shape[1] == 1 else total


def sum_of_squares(bank: Bank) -> Array:
    """``G = sum_m K_m K_m'`` in double precision, shape (n_samples, n_samples); one kernel at a time."""
    G = np.zeros((bank.n_samples, bank.n_samples), order="F")
    for j in range(bank.n_kernels):
        K = np.asfortranarray(bank.gram(j), dtype=np.float64)
        G = blas.dsyrk(1.0, K, beta=1.0, c=G, lower=1, overwrite_c=1)
    return np.tril(G) + np.tril(G, -1).T


def _grid(values: Any, name: str) -> list[float]:
    """A number, or several, as a list that ascends."""
    try:
        grid = np.unique(np.asarray(values, dtype=np.float64))
    except (TypeError, ValueError):
        grid = np.empty(0)
    if grid.size == 0 or not np.isfinite(grid).all():
        raise ValueError(f"{name} must be a number or several to choose from, got {values!r}.")
    return grid.tolist()


def _of_classes(scores: Array) -> Array:
    """Scores (n, n_machines, n_classes); one column stands for two classes, -f and f."""
    return np.concatenate([-scores, scores], axis=2) if scores.shape[2] == 1 else scores


def _count_right(
    S: Array, codes: Index, held: NDArray[np.bool_], nus: Iterable[float], per_class: bool, slack: str
) -> Array:
    """Held-out samples that weights found on the others classify right, for every nu."""
    path = solve_path(S[~held], codes[~held], nus, per_class, slack)
    return np.array([share_right(combined(S[held], found.weights), codes[held]) for found in path]) * held.sum()
