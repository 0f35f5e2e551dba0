"""Input-output kernel learning: several kernels at once, and labels that are not fully known."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin, ClusterMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_consistent_length, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from .._estimator import BankReader
from .._validation import check_cost, check_number, check_tol
from ..generation.columns import Rules, attained, generate
from ..generation.labelled_bank import InputKernels, LabelledStore
from ..kernels import Bank, Gaussian, InverseDistance, InverseSquaredDistance, KernelBank, Laplacian
from ..labels import has_missing
from ..machines.simplex import SimplexSVM
from ..solvers.saddle import relative_gap
from ..weights import GroupSparse
from .bags import Bags, as_bags, bag_labels, is_list_of_bags, positive_bags
from .label_search import LabelOracle
from .labelings import (
    BagRepresentatives,
    Clustering,
    InstanceBags,
    Labelings,
    SemiSupervised,
    Supervised,
    class_shares,
)

Array = NDArray[np.float64]

#: Kernels on each view when none are given: four ways in which similarity falls with distance.
FOUR_KERNELS = (Gaussian(), Laplacian(), InverseSquaredDistance(), InverseDistance())
#: What scikit-learn writes where a label is not known, and what becomes of it, or of -1.0, among names.
UNLABELLED = (-1, "-1", "-1.0")


@dataclass
class Learned:
    """One solved problem.

    Attributes
    ----------
    weights : array of shape (n_kernels, n_candidates)
    candidates : array of shape (n_candidates, n_kernels, n_items), int8
        Signs.
    coef : array of shape (n_kernels, n_items)
        Coefficients of the decision function, kernel by kernel, weights included.
    scores : array of shape (n_items,)
        Decision values of the items.
    objective, gap, violation : float
    solves : int
    history : structured array
    """

    weights: Array
    candidates: NDArray[np.int8]
    coef: Array
    scores: Array
    objective: float
    gap: float
    violation: float
    solves: int
    history: NDArray


class InputOutputBase(BankReader):
    """What classification and clustering share: the settings of the problem, its solution and scores of new samples."""

    margin: str
    theta: float | None
    c_theta: float
    norms: tuple[float, float]
    candidates: str
    C: float
    max_candidates: int
    tol: float
    violation: float
    center: bool

    def _spec(self) -> KernelBank:
        if isinstance(self.kernels, KernelBank):
            return self.kernels
        kernels = list(FOUR_KERNELS) if self.kernels is None else self.kernels
        return KernelBank(kernels, normalise="center" if self.center else None)

    # -- settings -------------------------------------------------------------------------------------------------

    def _rules(self) -> Rules:
        if not isinstance(self.max_candidates, (int, np.integer)):
            raise TypeError(f"max_candidates must be an integer, got {self.max_candidates!r}.")
        check_number("max_candidates", self.max_candidates, "at least 1", lambda most: most >= 1)
        check_tol(self.tol)
        check_number("violation", self.violation, "at least 0", lambda share: share >= 0)
        return Rules(self.tol, int(self.max_candidates), n_price=1, violation=self.violation, removes=False)

    def _weight_set(self, n_kernels: int) -> GroupSparse:
        p, q = as_norms(self.norms)
        if self.margin == "hard":
            return GroupSparse(n_kernels, p=p, q=q)
        if self.margin != "soft":
            raise ValueError(f"margin must be 'soft' or 'hard', got {self.margin!r}.")
        if q != 1:
            raise ValueError(f"a soft margin needs norms=(p, 1), got {self.norms!r}; take margin='hard'.")
        if self.theta is not None:
            return GroupSparse(n_kernels, theta=self.theta, p=p)
        check_number("c_theta", self.c_theta, "positive", lambda multiple: multiple > 0)
        return GroupSparse(n_kernels, c_theta=self.c_theta, p=p)

    def _check_settings(self) -> None:
        """Refuse wrong settings before the data is looked at."""
        self._rules()
        self._weight_set(1)
        if self.candidates not in ("per-kernel", "shared"):
            raise ValueError(f"candidates must be 'per-kernel' or 'shared', got {self.candidates!r}.")
        check_cost("C", self.C)

    # -- solving --------------------------------------------------------------------------------------------------

    def _learn(self, inputs: InputKernels, labelings: Labelings, costs: Array, name: str = "") -> Learned:
        """Solve one problem, with a cost for each unit."""
        weights, shared = self._weight_set(inputs.n_kernels), self.candidates == "shared"
        oracle = LabelOracle(inputs, labelings, shared, weights.p)
        start = labelings.initial(inputs.values.mean(axis=0))
        initial = [np.tile(start, (inputs.n_kernels, 1))]
        machine, store = SimplexSVM(costs), LabelledStore(inputs)
        targets = np.ones((inputs.n_units, 1))
        result = generate(store, oracle, machine, weights, targets, self._rules(), initial, self._reporter(name))
        counted, best = result.saddle.solves, attained(result.saddle, self.tol)
        D = weights.clean(best.weights).reshape(-1, inputs.n_kernels)
        signs = store.bank.signs
        coef = np.einsum("tm,tmi->mi", D, signs) * best.solution.coef[inputs.unit_of, 0]
        scores = sum(inputs.products(m, coef[m : m + 1])[0] for m in range(inputs.n_kernels))
        found = float(result.found.max(initial=0.0))
        violation = max(found / result.level - 1.0, 0.0) if result.level > 0 else 0.0
        gap = max(relative_gap(best.value, result.saddle.lower), result.crossed, result.saddle.crossed)
        solves = result.solves + result.saddle.solves - counted
        learned = Learned(D.T, signs, coef, scores, best.value, gap, violation, solves, result.history)
        self._warn_if_short(learned, f" of {name}" if name else "")
        return learned

    def _warn_if_short(self, learned: Learned, of: str) -> None:
        warn = partial(warnings.warn, category=ConvergenceWarning, stacklevel=4)
        if learned.gap > self.tol:
            warn(
                f"The weights{of} stopped at a relative duality gap of {learned.gap:.2g}, short of {self.tol:.2g}. "
                "Scale the features, take KernelBank(..., dtype='float64'), or raise tol; norms are slow unless "
                "the first is 2 or both are equal."
            )
        # A soft margin is another problem with every candidate: there their number is a setting, not a limit.
        full = self.margin == "hard" and len(learned.candidates) >= self.max_candidates
        if full and learned.violation > self.violation:
            warn(
                f"The search for labellings{of} stopped at {self.max_candidates} candidates and a violation of "
                f"{learned.violation:.2g}, short of {self.violation:.2g}. Raise max_candidates or violation."
            )

    def _reporter(self, name: str) -> Callable[[np.void], None] | None:
        if not self.verbose:
            return None

        def report(row: np.void) -> None:
            above = max(row["found"] / row["level"] - 1, 0) if row["level"] > 0 else 0.0
            self._say(
                f"{name}{name and ', '}{row['kernels']} candidates: objective {row['objective']:.6g}, "
                f"violation {above:.2g}, {row['seconds']:.2f} s"
            )

        return report

    def _store(self, bank: Bank, parts: list[Learned]) -> None:
        """Keep what prediction and inspection need."""
        one = len(parts) == 1
        self.kernel_names_ = bank.names
        self.weights_ = parts[0].weights if one else [part.weights for part in parts]
        self.candidates_ = parts[0].candidates if one else [part.candidates for part in parts]
        self.objective_ = parts[0].objective if one else np.array([part.objective for part in parts])
        self.violation_ = parts[0].violation if one else np.array([part.violation for part in parts])
        self.history_ = parts[0].history if one else [part.history for part in parts]
        self.gap_ = max(part.gap for part in parts)
        self.n_iter_ = max(len(part.history) for part in parts)
        self.n_solves_ = sum(part.solves for part in parts)
        coef = np.stack([part.coef for part in parts])
        self.support_ = np.flatnonzero(np.any(coef != 0, axis=(0, 1)))
        self.dual_coef_ = coef[:, :, self.support_]
        self._expansion = bank.expansion(np.arange(bank.n_kernels), self.support_)

    def _scores(self, X: Any) -> Array:
        """Decision values of items, (n_items, n_problems): every kernel has coefficients of its own."""
        n_problems, n_kernels, n_support = self.dual_coef_.shape
        own = np.tile(np.eye(n_kernels), (n_problems, 1))
        coef = self.dual_coef_.reshape(-1, n_support).T
        each = self._expansion.scores(self._read(X, reset=False), own, coef)
        return each.reshape(-1, n_problems, n_kernels).sum(axis=2)


class InputOutputKernelClassifier(ClassifierMixin, InputOutputBase):
    """Classification with several kernels where only few samples, or only bags of them, are labelled (IOKL).

    Every input kernel is multiplied by the outer product of a possible labelling, a candidate, and the weights of all
    these input-output kernels are learned together: few candidates have weight, and in each of them all kernels may.
    The candidates themselves are found one after the other, as those that violate optimality most.

    Parameters
    ----------
    task : {"semi-supervised", "multiple-instance"}, default="semi-supervised"
        Semi-supervised: y is -1 where the label is not known; one problem a class, or one for two classes.
        Multiple-instance: X are bags, y has one of two labels for each.
    kernels : KernelBank, mapping of view names to kernels, list of kernels, kernel, "precomputed" or None
        None: Gaussian, Laplacian and the two inverse distance kernels on each view.
    margin : {"soft", "hard"}, default="soft"
        Soft caps the weight of a candidate, so that several share it.
    c_theta : float, default=1.5
        Cap of a soft margin, as a multiple of the mean weight of the candidates so far: 1 gives all the same weight, a
        large value is a hard margin.
    theta : float, optional
        The cap itself, in place of `c_theta`, whatever the number of candidates.
    norms : (float, float), default=(2.0, 1.0)
        Norm of the weights inside candidates and across them. A soft margin needs 1 across. Fits are slow, and may stop
        short of `tol`, unless the first is 2 or both are equal.
    candidates : {"per-kernel", "shared"}, default="per-kernel"
        Whether every kernel has labellings of its own.
    C : float, default=100.0
        Cost of a squared margin error of a labelled sample.
    C_unlabelled : float, default=1.0
        The same of a sample whose label is not known, and, with multiple instances, of every bag or instance.
    balance : "labelled", float, (low, high), or mapping of classes to either, default="labelled"
        Share of the second class (of ``classes_``) among unlabelled samples, or the least and the largest it may be;
        for more than two classes, a mapping. "labelled": the shares among the labelled samples.
    level : {"instance", "bag"}, default="instance"
        With multiple instances: whether all instances of positive bags take part, or one that represents each bag.
    positives : int or float, default=1
        At level "instance": least number (an integer) or share (a float) of positive instances of a positive bag.
    max_candidates : int, default=30
        Most candidates of a problem. A hard margin gains from each, so that a warning says if more would exceed
        `violation`. A soft margin's cap falls with their number: there this is a stopping rule like the others.
    tol : float, default=1e-3
        Relative gap of the weights, and change of the objective by the last candidate, to stop at.
    violation : float, default=1e-2
        Candidates are added as long as one exceeds the energy of those in use by this share.
    center : bool, default=True
        Whether kernels are centred, unless they are given as a `KernelBank`. Without it the largest margin is that of
        labellings that are nearly constant.
    verbose : int, default=0

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    transduction_ : array of shape (n_samples,)
        Labels of the training samples: those given, and the predicted ones where there were none. Semi-supervised only.
    weights_ : array of shape (n_kernels, n_candidates), or a list of them, one a class
    candidates_ : array of shape (n_candidates, n_kernels, n_samples), int8, or a list of them, one a class
        Signs of the training samples (or instances); 0: not the instance that represents its bag.
    gap_ : float
        Relative duality gap of the weights, given the candidates (the largest of all problems).
    violation_ : float, or array of shape (n_classes,)
        How much the energy of the best candidate that was found exceeds those in use, as a share.
    objective_ : float, or array of shape (n_classes,)
    threshold_ : float
        Multiple instances only: the score that a bag must exceed to be positive, chosen on the training bags.
    history_ : structured array with a row a round, or a list of them, one a class
        As in :class:`kernelweave.InfiniteKernelClassifier`; ``kernels`` counts candidates. A round adds a candidate, or
        weighs the same ones more accurately.
    kernel_names_ : tuple of str
    support_ : array of shape (n_support,)
    dual_coef_ : array of shape (n_problems, n_kernels, n_support)
    n_iter_, n_solves_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import make_moons
    >>> import kernelweave as kw
    >>> X, y = make_moons(80, noise=0.05, random_state=0)
    >>> few = np.full(80, -1)
    >>> few[:8] = y[:8]
    >>> clf = kw.InputOutputKernelClassifier(kernels=kw.kernels.Gaussian(0.1), max_candidates=10).fit(X, few)
    >>> bool((clf.transduction_ == y).mean() > 0.9), clf.gap_ <= 1e-3
    (True, True)
    """

    def __init__(
        self,
        task: str = "semi-supervised",
        kernels: Any = None,
        margin: str = "soft",
        c_theta: float = 1.5,
        theta: float | None = None,
        norms: tuple[float, float] = (2.0, 1.0),
        candidates: str = "per-kernel",
        C: float = 100.0,
        C_unlabelled: float = 1.0,
        balance: Any = "labelled",
        level: str = "instance",
        positives: int | float = 1,
        max_candidates: int = 30,
        tol: float = 1e-3,
        violation: float = 1e-2,
        center: bool = True,
        verbose: int = 0,
    ) -> None:
        self.task = task
        self.kernels = kernels
        self.margin = margin
        self.c_theta = c_theta
        self.theta = theta
        self.norms = norms
        self.candidates = candidates
        self.C = C
        self.C_unlabelled = C_unlabelled
        self.balance = balance
        self.level = level
        self.positives = positives
        self.max_candidates = max_candidates
        self.tol = tol
        self.violation = violation
        self.center = center
        self.verbose = verbose

    def fit(self, X: Any, y: ArrayLike, groups: Any = None) -> InputOutputKernelClassifier:
        """Learn candidates, weights and the decision function.

        Parameters
        ----------
        X : Views, mapping, array of shape (n_samples, n_features), frame, KernelStack or (n_kernels, n, n) array
            With multiple instances: `Bags`, a list of one array a bag, or all instances, with `groups`.
        y : array of shape (n_samples,)
            Classes, -1 where not known; with multiple instances, one of two labels a bag.
        groups : sequence of n_instances ids, optional
            The bag of each instance.
        """
        self._check_settings()
        if self.task == "multiple-instance":
            return self._fit_bags(as_bags(X, groups), y)
        self._refuse_bags(X, groups)
        return self._fit_samples(X, y)

    def _check_settings(self) -> None:
        super()._check_settings()
        for name, allowed in (("task", ("semi-supervised", "multiple-instance")), ("level", ("instance", "bag"))):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be {' or '.join(map(repr, allowed))}, got {getattr(self, name)!r}.")
        check_cost("C_unlabelled", self.C_unlabelled)

    # -- few labels -----------------------------------------------------------------------------------------------

    def _fit_samples(self, X: Any, y: ArrayLike) -> InputOutputKernelClassifier:
        X = self._read(X, reset=True)
        labels, judged = self._labels(y)
        check_consistent_length(np.empty(self._n_samples(X)), labels)
        known = self._columns(labels, judged)
        scenarios = self._scenarios(known)
        bank = self._build(X)
        inputs = InputKernels(bank)
        costs = np.where(judged, float(self.C), float(self.C_unlabelled))
        names = [f"class {c!r}" for c in self.classes_.tolist()] if len(scenarios) > 1 else [""]
        parts = [self._learn(inputs, s, costs, name) for s, name in zip(scenarios, names, strict=True)]
        self._store(bank, parts)
        scores = np.stack([part.scores for part in parts], axis=1)
        self.transduction_ = np.where(judged, labels, self._classes_of(scores))
        self.__dict__.pop("threshold_", None)  # of an earlier fit with the other task
        return self

    def _labels(self, y: Any) -> tuple[NDArray, NDArray[np.bool_]]:
        """Labels, and whether each is known; sets `classes_`."""
        if y is None:
            raise ValueError(f"This {type(self).__name__} requires y to be passed, but the target y is None.")
        if has_missing(y):
            raise ValueError("y contains NaN or None: where a label is not known, write -1.")
        labels = column_or_1d(y, warn=True)
        judged = np.array([label not in UNLABELLED for label in labels.tolist()], dtype=bool)
        if np.any(judged):
            check_classification_targets(labels[judged])
        self.classes_ = np.unique(labels[judged])
        if not len(self.classes_):
            raise ValueError(
                "no sample is labelled: all of y is -1, which means unlabelled. Label some, or use "
                "InputOutputKernelClustering."
            )
        if len(self.classes_) < 2:
            raise ValueError(
                f"The classifier needs labelled samples of at least 2 classes, but there is only one class: "
                f"{self.classes_.tolist()[0]!r}. A label of -1 means unlabelled; if it is a class, call it otherwise."
            )
        return labels, judged

    def _columns(self, labels: NDArray, judged: NDArray[np.bool_]) -> NDArray[np.int8]:
        """Known labels as signs, 0 where not known: (n_problems, n_samples)."""
        positive = self.classes_[1:] if len(self.classes_) == 2 else self.classes_
        return np.where(judged, np.where(np.equal.outer(positive, labels), 1, -1), 0).astype(np.int8)

    def _scenarios(self, known: NDArray[np.int8]) -> list[Labelings]:
        """What is possible, problem by problem."""
        if np.all(known):
            return [Supervised(y) for y in known]
        shares = class_shares(self.balance, self.classes_.tolist(), known)
        return [SemiSupervised(y, share) for y, share in zip(known, shares, strict=True)]

    # -- bags -----------------------------------------------------------------------------------------------------

    def _fit_bags(self, bags: Bags, y: ArrayLike) -> InputOutputKernelClassifier:
        self.classes_, positive = positive_bags(y, bags, type(self).__name__)
        signs = np.where(positive, 1, -1)
        scenario: Labelings
        if self.level == "instance":
            scenario = InstanceBags(bags, signs, self.positives)
        else:
            scenario = BagRepresentatives(bags, signs)
        bank = self._build(self._read(bags.instances, reset=True))
        part = self._learn(InputKernels(bank, scenario.unit_of), scenario, float(self.C_unlabelled) * scenario.shares)
        self._store(bank, [part])
        self.threshold_ = best_threshold(bags.reduce(np.maximum, part.scores), signs)
        self.__dict__.pop("transduction_", None)  # of an earlier fit with the other task
        return self

    def instance_scores(self, X: Any, groups: Any = None) -> Array:
        """Decision values of the instances of bags, (n_instances,), in the order of ``Bags.instances``."""
        check_is_fitted(self)
        if self.task != "multiple-instance":
            raise AttributeError("instance_scores needs task='multiple-instance'.")
        return self._scores(as_bags(X, groups).instances)[:, 0]

    def _refuse_bags(self, X: Any, groups: Any) -> None:
        if groups is not None:
            raise ValueError("groups are bags: they go with task='multiple-instance'.")
        # A list of precomputed kernels is a stack of them.
        if isinstance(X, Bags) or (is_list_of_bags(X) and self._spec().kernels != "precomputed"):
            raise ValueError(f"X holds bags, but the task is {self.task!r}: set task='multiple-instance'.")

    # -- new samples ----------------------------------------------------------------------------------------------

    def decision_function(self, X: Any, groups: Any = None) -> Array:
        """Scores of samples, (n_samples,) for two classes, else (n_samples, n_classes); or of bags, (n_bags,).

        The score of a bag is that of its best instance above `threshold_`.
        """
        check_is_fitted(self)
        if self.task == "multiple-instance":
            bags = as_bags(X, groups)
            return bags.reduce(np.maximum, self._scores(bags.instances)[:, 0]) - self.threshold_
        self._refuse_bags(X, groups)
        scores = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any, groups: Any = None) -> NDArray:
        """Classes of samples or bags."""
        scores = self.decision_function(X, groups)
        return self._classes_of(scores.reshape(len(scores), -1))

    def score(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None, groups: Any = None) -> float:
        """Share of samples, or of bags, that are predicted right.

        Parameters
        ----------
        X, groups : as in `fit`
        y : array of shape (n_samples,); with multiple instances one label a bag, or one a row
        sample_weight : array of shape (n_samples,) or (n_bags,), optional
        """
        if self.task == "multiple-instance":
            X = as_bags(X, groups)
            y = bag_labels(y, X)
        else:
            self._refuse_bags(X, groups)
        return super().score(X, y, sample_weight)

    def _classes_of(self, scores: Array) -> NDArray:
        """Classes from scores of shape (n, n_problems)."""
        return self.classes_[(scores[:, 0] > 0).astype(int) if scores.shape[1] == 1 else scores.argmax(axis=1)]


class InputOutputKernelClustering(ClusterMixin, InputOutputBase):
    """Two clusters with the largest margin, by several kernels at once (maximum-margin clustering as IOKL).

    All labels are unknown, and candidates are labellings of about balanced sizes. There are always two clusters.

    Parameters
    ----------
    imbalance : float, default=0.2
        Largest difference between the sizes of the clusters, as a share of all samples. Without a bound one cluster of
        all samples would be best.
    C : float, default=1.0
        Cost of a squared margin error.
    kernels, margin, c_theta, theta, norms, candidates, max_candidates, tol, violation, center, verbose
        As in :class:`InputOutputKernelClassifier`.

    Attributes
    ----------
    labels_ : array of shape (n_samples,)
        0 or 1; the first sample is in cluster 0.
    weights_, candidates_, gap_, violation_, objective_, history_, kernel_names_, support_, dual_coef_, n_iter_
        As in :class:`InputOutputKernelClassifier`.

    Examples
    --------
    >>> import kernelweave as kw
    >>> from sklearn.datasets import make_blobs
    >>> X, y = make_blobs(60, centers=2, cluster_std=0.5, random_state=0)
    >>> labels = kw.InputOutputKernelClustering(max_candidates=5).fit_predict(X)
    >>> bool(abs((labels == y).mean() - 0.5) == 0.5)
    True
    """

    def __init__(
        self,
        kernels: Any = None,
        imbalance: float = 0.2,
        margin: str = "soft",
        c_theta: float = 1.5,
        theta: float | None = None,
        norms: tuple[float, float] = (2.0, 1.0),
        candidates: str = "per-kernel",
        C: float = 1.0,
        max_candidates: int = 30,
        tol: float = 1e-3,
        violation: float = 1e-2,
        center: bool = True,
        verbose: int = 0,
    ) -> None:
        self.kernels = kernels
        self.imbalance = imbalance
        self.margin = margin
        self.c_theta = c_theta
        self.theta = theta
        self.norms = norms
        self.candidates = candidates
        self.C = C
        self.max_candidates = max_candidates
        self.tol = tol
        self.violation = violation
        self.center = center
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> InputOutputKernelClustering:
        """Find the clusters.

        Parameters
        ----------
        X : as in :meth:`InputOutputKernelClassifier.fit`
        y : ignored
        """
        self._check_settings()
        X = self._read(X, reset=True)
        n = self._n_samples(X)
        if n < 2:
            raise ValueError(f"Two clusters need at least 2 samples, got n_samples={n}.")
        bank = self._build(X)
        part = self._learn(InputKernels(bank), Clustering(n, self.imbalance * n), np.full(n, float(self.C)))
        if part.scores[0] > 0:  # a labelling and its opposite are the same clusters
            part.coef, part.scores, part.candidates = -part.coef, -part.scores, -part.candidates
        self._store(bank, [part])
        self.labels_ = (part.scores > 0).astype(int)
        return self

    def _check_settings(self) -> None:
        super()._check_settings()
        check_number("imbalance", self.imbalance, "at least 0 and less than 1", lambda share: 0 <= share < 1)

    def decision_function(self, X: Any) -> Array:
        """Scores of samples, (n_samples,); positive in cluster 1."""
        check_is_fitted(self)
        return self._scores(X)[:, 0]

    def predict(self, X: Any) -> NDArray:
        """Clusters of samples, 0 or 1."""
        return (self.decision_function(X) > 0).astype(int)


def as_norms(norms: Any) -> tuple[float, float]:
    """The norms inside candidates and across them; an error unless they are two numbers."""
    pair = tuple(norms) if isinstance(norms, (tuple, list, np.ndarray)) and np.ndim(norms) == 1 else ()
    if len(pair) != 2 or not all(isinstance(norm, Real) and float(norm) >= 1 for norm in pair):
        raise ValueError(f"norms must be a pair (inside candidates, across them), at least 1 each, got {norms!r}.")
    return pair


def best_threshold(scores: Array, signs: NDArray) -> float:
    """The middle between two neighbouring scores at which the two classes are told apart best, on average."""
    values = np.unique(scores)
    if len(values) == 1:
        return float(values[0])
    cuts = 0.5 * (values[1:] + values[:-1])
    above = scores > cuts[:, None]
    recalls = above[:, signs > 0].mean(axis=1) + (~above[:, signs < 0]).mean(axis=1)
    best = np.flatnonzero(recalls >= recalls.max() - 1e-12)
    return float(cuts[best[len(best) // 2]])
