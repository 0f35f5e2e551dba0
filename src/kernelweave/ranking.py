"""Ranking the labels of each sample: MLR-L1, MLR-GL, and with several kernels MK-MLR."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.model_selection import KFold
from sklearn.utils import check_consistent_length, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from ._estimator import Array, BankEstimator, Fit, below_all_others, held_out_scores
from .kernels import Bank
from .labels import Labels, Signs, as_labels, is_label_matrix
from .machines import MLRGL, MLRL1, Machine
from .machines.ranking_loops import ordered_shares
from .weights import parse_weights

#: Folds in which training samples are held out; the fits of the rest may be this much less accurate than `tol`, up to
#: the accuracy that thresholds need at least.
_FOLDS, _FOLD_SLACK, _FOLD_ACCURACY = 3, 10.0, 1e-2

#: Default cost of a ranking error, times the number of labels: a label meets about that many others.
_COST_OF_ALL = 6.0


class LabelRanker(ClassifierMixin, BankEstimator):
    """Learns to rank the labels of a sample, all labels together, from label rows that may be incomplete.

    A label is told apart from the other labels of the same sample, not from the same label elsewhere, so scores can be
    compared between labels. There is no bias. One kernel or many; with many, one weight vector for all labels.

    Parameters
    ----------
    loss : {"pairwise", "group"}, default="pairwise"
        "pairwise": relevant labels above irrelevant ones, at a cost linear in the number of labels. It is MLR-L1 with
        the wide box and the ridge of its printed algorithm, which did best on real data; ``machine=MLRL1(C)`` is the
        published problem itself. "group" is MLR-GL: the errors of each irrelevant label are pooled in a norm, so that a
        label which is relevant but was not given costs less.
    kernels : KernelBank, mapping of view names to kernels, list of kernels, kernel, "precomputed" or None
        As in :class:`MKLClassifier`.
    weights : str, WeightSet or list of float, default="l1"
        As in :class:`MKLClassifier`; "l1" is MK-MLR, "average" AVG-MLR.
    solver : str, default="auto"
        As in :class:`MKLClassifier`; "cutting-plane" is the published one.
    C : float, optional
        Cost of a ranking error. None: 6 / n_labels, which did best on real data where no search was made.
    machine : Machine, optional
        Used instead of what `loss` and `C` stand for: for example ``kernelweave.machines.MLRL1(C, ridge=1.0)``,
        ``MLRGL(C, eta=20)`` or ``MLRPairwise(C)``.
    tol : float, default=1e-3
        Relative duality gap to stop at.
    max_iter : int, default=500
    stopping : {"gap", "published"}, default="gap"
    verbose : int, default=0
    random_state : int, RandomState or None
        Shuffles the folds in which training samples are held out.

    Attributes
    ----------
    classes_ : array of shape (n_labels,)
        Names of the labels.
    weights_ : array of shape (n_kernels,)
    thresholds_ : array of shape (n_labels,)
        Score above which `predict` gives a label: the best for F1 on scores of samples held out. Infinite for a label
        that is relevant for no training sample. Zero, and not used, for a vector of classes.
    n_uninformative_ : int
        Training samples with no pair of a relevant and an irrelevant label: there is nothing to rank in them.
    gap_, objective_, converged_, n_iter_, history_, kernel_names_, support_, dual_coef_
        As in :class:`MKLClassifier`.

    Examples
    --------
    >>> import kernelweave as kw
    >>> X, Y = kw.datasets.make_tagged_views(n_samples=150, n_labels=8, random_state=0)
    >>> ranker = kw.LabelRanker().fit(X, Y)
    >>> ranker.gap_ <= 1e-3
    True
    >>> ranker.rank(X).shape == Y.shape
    True
    >>> ranker.predict(X, top=2).sum(axis=1).tolist()[:3]
    [2, 2, 2]
    """

    n_jobs = None  # there is one problem only

    def __init__(
        self,
        loss: str = "pairwise",
        kernels: Any = None,
        weights: Any = "l1",
        solver: str = "auto",
        C: float | None = None,
        machine: Machine | None = None,
        tol: float = 1e-3,
        max_iter: int = 500,
        stopping: str = "gap",
        verbose: int = 0,
        random_state: Any = None,
    ) -> None:
        self.loss = loss
        self.kernels = kernels
        self.weights = weights
        self.solver = solver
        self.C = C
        self.machine = machine
        self.tol = tol
        self.max_iter = max_iter
        self.stopping = stopping
        self.verbose = verbose
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    # -- learning ---------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any) -> LabelRanker:
        """Learn kernel weights and the ranking.

        Parameters
        ----------
        X : Views, mapping, array of shape (n_samples, n_features), frame, KernelStack or (n_kernels, n, n) array
        y : label matrix of shape (n_samples, n_labels), frame, list of tags a sample, or vector of classes
            See :func:`kernelweave.labels.as_labels`. NaN: never judged, neither relevant nor irrelevant. In a vector
            every sample has one label, its class.
        """
        X = self._read(X, reset=True)
        signs = self._read_labels(y).signs
        check_consistent_length(np.empty(self._n_samples(X)), signs)
        self._check_machine()
        weights = parse_weights(self.weights)
        self._report(signs)
        bank = self._build(X)
        machine = self._machine(bank)
        fits = self._solve(bank, machine, [(weights, signs.astype(np.float64))])
        self._store(bank, fits, one_vector=True)
        if self._one_class_each:
            self.thresholds_ = np.zeros(len(self.classes_))  # `predict` takes the best label
        else:
            self._held_out = self._score_held_out(bank, machine, signs, fits[0])
            self.thresholds_ = np.array(list(map(best_threshold, self._held_out.T, signs.T)))
        return self

    def _read_labels(self, y: Any) -> Labels:
        """Labels with three states; sets `classes_`."""
        if y is None:
            raise ValueError("This LabelRanker requires y to be passed, but the target y is None.")
        self._one_class_each = not is_label_matrix(y)
        if self._one_class_each:
            check_classification_targets(y)
            y = column_or_1d(y, warn=True)
            self.classes_ = np.unique(y)
            labels = Labels(np.where(y[:, None] == self.classes_, 1, -1).astype(np.int8), self.classes_)
        else:
            labels = as_labels(y, what="y")
            self.classes_ = labels.names
        if len(self.classes_) < 2:
            raise ValueError(
                f"LabelRanker needs at least 2 classes or labels to rank, got only one class: "
                f"{self.classes_.tolist()[0]!r}. For a single label use MKLClassifier."
            )
        return labels

    def _report(self, signs: Signs) -> None:
        """Say what cannot be learned from."""
        relevant, irrelevant = signs > 0, signs < 0
        silent = ~(relevant.any(axis=1) & irrelevant.any(axis=1))
        unknown = (signs == 0).all(axis=1)
        self.n_uninformative_ = int(silent.sum())
        if silent.all():
            raise ValueError(
                "No sample has both a relevant and an irrelevant label, so there is nothing to rank: check y."
            )
        if np.count_nonzero(~unknown) < 2:
            raise ValueError("LabelRanker needs at least 2 samples with judged labels, got only 1 sample.")
        if self.n_uninformative_:
            _warn(
                f"{self.n_uninformative_} of {len(signs)} samples have no pair of a relevant and an irrelevant label "
                f"({unknown.sum()} have nothing judged at all), so there is nothing to rank in them; the first is row "
                f"{np.flatnonzero(silent)[0]}."
            )
        self._never_judged = (signs == 0).all(axis=0)
        if self._never_judged.any():
            _warn(f"Label(s) {self._names(self._never_judged)} were never judged: they are ranked below all others.")
        never = ~relevant.any(axis=0) & ~self._never_judged
        if never.any():
            _warn(f"Label(s) {self._names(never)} are relevant for no training sample.")

    def _names(self, which: NDArray[np.bool_]) -> str:
        names = self.classes_[which].tolist()
        return ", ".join(map(str, names[:5])) + (f" and {len(names) - 5} more" if len(names) > 5 else "")

    def _check_machine(self) -> None:
        """Before the kernels are built."""
        if self.machine is not None:
            if not isinstance(self.machine, Machine) or self.machine.kind != "ranker":
                raise ValueError(
                    "machine must be one that ranks labels, such as MLRL1(C=1.0), MLRPairwise(C=1.0) or MLRGL(C=1.0), "
                    f"got {self.machine!r}."
                )
            return
        if self.loss not in ("pairwise", "group"):
            raise ValueError(f"loss must be 'pairwise' or 'group', got {self.loss!r}.")
        MLRL1(self._cost())  # refuses a wrong cost

    def _cost(self) -> float:
        return _COST_OF_ALL / len(self.classes_) if self.C is None else self.C

    def _machine(self, bank: Bank) -> Machine:
        if self.machine is not None:
            return self.machine
        if self.loss == "group":
            return MLRGL(self._cost())
        # What the comparison on real data favours: bounds as wide as the pairwise problem needs them, which survives
        # missing labels, and a ridge as large as the diagonal of the kernels, which is better at the top ranks.
        return MLRL1(self._cost(), ridge=bank.diagonals().mean(axis=0), box="wide")

    def _score_held_out(self, bank: Bank, machine: Machine, signs: Signs, fit: Fit) -> Array:
        """Scores of every training sample by a machine that has not seen it, at the learned weights."""
        judged = np.flatnonzero(signs.any(axis=1))  # the others change nothing, not even how these are split
        split = KFold(min(_FOLDS, len(judged)), shuffle=True, random_state=self.random_state).split(judged)
        folds = [(judged[train], np.setdiff1d(np.arange(len(signs)), judged[train])) for train, _ in split]
        K = bank.combine(fit.weights)
        accuracy = min(_FOLD_SLACK * self.tol, _FOLD_ACCURACY)
        return held_out_scores(K, machine, signs.astype(np.float64), fit, folds, accuracy)

    # -- new samples ------------------------------------------------------------------------------------------------

    def _all_scores(self, X: Any) -> Array:
        check_is_fitted(self)
        return below_all_others(self._scores(X), self._never_judged)

    def decision_function(self, X: Any) -> Array:
        """Scores of shape (n_samples, n_labels); for a vector of two classes those of ``classes_[1]``, (n_samples,)."""
        scores = self._all_scores(X)
        return scores[:, 1] if self._one_class_each and len(self.classes_) == 2 else scores

    def rank(self, X: Any) -> NDArray[np.intp]:
        """Label indices of each sample, best first, shape (n_samples, n_labels)."""
        return _best_first(self._all_scores(X))

    def predict(self, X: Any, top: int | None = None) -> NDArray:
        """Labels as an indicator matrix, (n_samples, n_labels); for a vector of classes the best class, (n_samples,).

        Parameters
        ----------
        X : as in :meth:`fit`
        top : int, optional
            Give every sample its best `top` labels, always as an indicator matrix. None: those above their thresholds.
        """
        given = self._given(self._all_scores(X), top)
        if self._one_class_each and top is None:
            return self.classes_[given.argmax(axis=1)]
        return given.astype(int)

    def tags(self, X: Any, top: int | None = None) -> list[list[Any]]:
        """Names of the labels that :meth:`predict` gives, best first, a list a sample."""
        scores = self._all_scores(X)
        given = self._given(scores, top)
        names = self.classes_.tolist()
        return [[names[k] for k in row if keep[k]] for row, keep in zip(_best_first(scores), given, strict=True)]

    def _given(self, scores: Array, top: int | None) -> NDArray[np.bool_]:
        """Which labels each sample is given, shape (n_samples, n_labels)."""
        if top is None and not self._one_class_each:
            return scores > self.thresholds_
        count = 1 if top is None else _checked_top(top, len(self.classes_))
        given = np.zeros(scores.shape, dtype=bool)
        np.put_along_axis(given, _best_first(scores)[:, :count], True, axis=1)
        return given

    def missing_labels(self, X: Any, Y: Any, top: int | None = None) -> NDArray:
        """Labels that the given rows do not have and probably should.

        Parameters
        ----------
        X : as in :meth:`fit`, or None
            None stands for the samples of :meth:`fit`, each scored by a ranker that has not seen it. The model itself
            has learned that labels they were not given are irrelevant, so it hardly finds what they lack.
        Y : labels of these samples, as in :meth:`fit`
            Both irrelevant labels and those never judged are candidates.
        top : int, optional
            How many to name at most, over all rows. None: all candidates above their thresholds.

        Returns
        -------
        structured array with the fields row, label (its name) and score
            Best first; the score is by how much the label exceeds its threshold. A label that was relevant for no
            training sample is never named.

        Examples
        --------
        >>> import kernelweave as kw
        >>> X, Y = kw.datasets.make_tagged_views(n_samples=150, n_labels=8, random_state=0)
        >>> incomplete = kw.evaluation.remove_labels(Y, (0.3,), random_state=0)[0]
        >>> ranker = kw.LabelRanker(random_state=0).fit(X, incomplete.Y)
        >>> found = ranker.missing_labels(None, incomplete.Y, top=20)
        >>> bool(incomplete.removed[found["row"], found["label"]].mean() > 0.7)
        True
        """
        check_is_fitted(self)
        if self._one_class_each:
            raise ValueError("y of fit was a vector of classes, so every sample has its one label: none are missing.")
        count = None if top is None else _checked_top(top)
        scores = (self._held_out if X is None else self._all_scores(X)) - self.thresholds_
        signs = as_labels(Y, names=self.classes_).signs
        if signs.shape != scores.shape:
            raise ValueError(f"X and Y must have the same rows, got {len(scores)} and {len(signs)}.")
        rows, columns = np.nonzero((signs <= 0) & (scores > (0.0 if count is None else -np.inf)))
        values = scores[rows, columns]
        best = np.argsort(-values, kind="stable")[:count]
        found = np.empty(len(best), dtype=[("row", np.intp), ("label", self.classes_.dtype), ("score", np.float64)])
        found["row"], found["label"], found["score"] = rows[best], self.classes_[columns[best]], values[best]
        return found

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Share of (relevant, irrelevant) label pairs in the right order, mean over samples that have such pairs.

        For a vector of classes: the accuracy.
        """
        check_is_fitted(self)
        if self._one_class_each:
            return float(super().score(X, y, sample_weight))
        scores = self._all_scores(X)
        signs = as_labels(y, names=self.classes_, what="y").signs
        check_consistent_length(scores, signs)
        shares = ordered_shares(scores, signs)
        used = ~np.isnan(shares)
        if not used.any():
            raise ValueError("No sample has both a relevant and an irrelevant label: there is nothing to score.")
        weights = _check_sample_weight(sample_weight, scores, dtype=np.float64, ensure_non_negative=True)
        return float(np.average(shares[used], weights=weights[used]))


def _warn(text: str) -> None:
    warnings.warn(text, UserWarning, stacklevel=4)


def _checked_top(top: Any, most: int | None = None) -> int:
    if not isinstance(top, (int, np.integer)) or top < 1 or (most is not None and top > most):
        allowed = "at least 1" if most is None else f"from 1 to the number of labels, {most}"
        raise ValueError(f"top must be a whole number, {allowed}, got {top!r}.")
    return int(top)


def _best_first(scores: Array) -> NDArray[np.intp]:
    """Label indices of each row by descending score, equal ones in the order of the labels."""
    return np.argsort(-scores, axis=1, kind="stable")


def best_threshold(scores: Array, signs: Signs) -> float:
    """The threshold above which F1 is largest among judged samples, midway between two scores.

    Infinite if nothing is relevant.
    """
    judged = signs != 0
    order = np.argsort(-scores[judged], kind="stable")
    ordered, relevant = scores[judged][order], signs[judged][order] > 0
    if not relevant.any():
        return float("inf")
    hits = np.cumsum(relevant)
    f1 = 2 * hits / (np.arange(1, len(hits) + 1) + hits[-1])
    last_of_ties = np.append(ordered[:-1] > ordered[1:], True)
    best = int(np.argmax(np.where(last_of_ties, f1, -1.0)))
    below = ordered[best + 1] if best + 1 < len(ordered) else ordered[best] - 1.0
    # Between neighbouring numbers, midway may be rounded to the upper one.
    return min(0.5 * float(ordered[best] + below), float(np.nextafter(ordered[best], -np.inf)))
