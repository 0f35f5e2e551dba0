"""Which method, kernel weights and cost of errors: tried out by cross-validation on kernels that are computed once."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from .._estimator import BankEstimator, below_all_others
from ..evaluation import MultilabelStratifiedKFold, MultilabelStratifiedShuffleSplit, measure
from ..kernels import KernelBank
from ..labels import Labels, Signs
from ..views import KernelStack, Views

#: Weights that are tried, the simplest first: nothing learned, few views kept, all views kept.
WEIGHTS = ("average", "l1", "l2")

#: Most bytes that all kernels may take, and most pictures, while settings are tried.
STACK_BYTES, MOST_PICTURES = 1 << 30, 2000

#: With fewer pictures there is nothing to choose by.
FEWEST_PICTURES = 6

#: Settings are told apart by much more than this relative duality gap.
CHOICE_GAP = 1e-2

Fold = tuple[NDArray[np.int64], NDArray[np.int64]]
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Setting:
    """Method, kernel weights and cost of errors, with the score they had in cross-validation.

    Attributes
    ----------
    method : {"ranker", "classifier"}
    weights : str or WeightSet
    C : float
    score, std : float
        Mean and standard deviation over the folds; NaN if there was no cross-validation.
    """

    method: str
    weights: Any
    C: float
    score: float = math.nan
    std: float = math.nan

    @property
    def label(self) -> str:
        return f"{self.method}, {self.weights}, C={self.C:g}"


#: Makes an estimator from kernels, a setting and the duality gap to stop at.
Make = Callable[[Any, Setting, float], BankEstimator]


@dataclass(frozen=True, eq=False)
class Choice:
    """What cross-validation found.

    Attributes
    ----------
    settings : tuple of Setting
        All that were tried, in the order they were tried.
    best : Setting
        The one with the highest score; of equals the first.
    held_out : array of shape (n_pictures, n_labels)
        Scores of every picture by a model of the best setting that has not learned from it.
    """

    settings: tuple[Setting, ...]
    best: Setting
    held_out: Array


def all_settings(costs: Mapping[str, Sequence[float]], weights: Sequence[Any]) -> list[Setting]:
    """All to be tried: methods and weights in the order given, small costs (smooth models) before large ones.

    Examples
    --------
    >>> from kernelweave.app.choosing import all_settings
    >>> [setting.label for setting in all_settings({"ranker": [10.0, 1.0]}, ["average", "l1"])]
    ['ranker, average, C=1', 'ranker, average, C=10', 'ranker, l1, C=1', 'ranker, l1, C=10']
    """
    return [
        Setting(method, weight, float(cost)) for method in costs for weight in weights for cost in sorted(costs[method])
    ]


def quality(labels: Labels, scores: Array, single: bool) -> float:
    """What settings are compared by: accuracy where every picture has one class, else mean average precision by label.

    Parameters
    ----------
    labels : Labels of n_pictures
    scores : array of shape (n_pictures, n_labels)
    single : bool
    """
    if single:
        return 1.0 - measure("one_error", labels, scores).value
    return measure("category_ap", labels, scores).value


def make_folds(labels: Labels, ranks: bool, n_folds: int, random_state: int | None) -> list[Fold]:
    """Folds with like shares of every label; fewer than asked for if a label is too rare, and none if a part of the
    pictures would leave nothing to learn.

    A label of a single picture does not count: it is held out once, by a model that does not know the label.

    Parameters
    ----------
    labels : Labels of n_pictures
    ranks : bool
        Whether labels are ranked.
    n_folds : int
    random_state : int or None

    Returns
    -------
    list of (training rows, held-out rows)
    """
    counts = labels.relevant.sum(axis=0)
    rarest = min((int(count) for count in counts if count > 1), default=2)
    splitter = MultilabelStratifiedKFold(max(2, min(n_folds, rarest)), shuffle=True, random_state=random_state)
    folds = list(splitter.split(labels.signs, labels.write(labels.signs)))
    return folds if all(not why_nothing(labels.signs[train], ranks) for train, _ in folds) else []


def why_nothing(signs: Signs, ranks: bool) -> str:
    """Why nothing can be learned from labels, (n_pictures, n_labels); empty if something can.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.app.choosing import why_nothing
    >>> why_nothing(np.array([[1, -1], [-1, 1]]), ranks=True)
    ''
    """
    relevant, irrelevant = signs > 0, signs < 0
    if not np.any(relevant.any(axis=0) & irrelevant.any(axis=0)):
        return "no label divides the pictures: at least one must apply to some pictures and not to others"
    if ranks and np.count_nonzero(relevant.any(axis=1) & irrelevant.any(axis=1)) < 2:
        return (
            "fewer than two pictures have both a label that applies and one that does not, so there is nothing to "
            "rank: the method 'classifier' learns each label on its own"
        )
    return ""


def few_enough(labels: Labels, n_kernels: int, random_state: int | None) -> NDArray[np.intp]:
    """Rows of the pictures that settings are tried on: all, or as many as time and memory allow, stratified."""
    n_pictures = len(labels.signs)
    most = min(MOST_PICTURES, math.isqrt(STACK_BYTES // (4 * n_kernels)))
    if n_pictures <= most:
        return np.arange(n_pictures)
    splitter = MultilabelStratifiedShuffleSplit(1, train_size=most, random_state=random_state)
    rows, _ = next(splitter.split(labels.signs, labels.write(labels.signs)))
    return np.sort(rows)


def kernel_stack(bank: KernelBank, views: Views) -> KernelStack:
    """All kernels between the given pictures, (n_kernels, n, n) in single precision, for many fits on parts of them."""
    built = bank.build(views)
    stack = np.empty((built.n_kernels, len(views), len(views)), dtype=np.float32)
    for j, kernel in enumerate(stack):
        kernel[:] = built.gram(j)
    return KernelStack(stack, names=built.names)


def held_out_scores(make: Callable[[], BankEstimator], X: Any, labels: Labels, folds: Iterable[Fold]) -> Array:
    """Scores of every picture by a model that has not learned from it, (n_pictures, n_labels).

    Parameters
    ----------
    make : function that gives an unfitted estimator
    X : Views or KernelStack of n_pictures
    labels : Labels of n_pictures
    folds : iterable of (training rows, held-out rows)
    """
    scores = np.full(labels.signs.shape, np.nan)
    for train, held in folds:
        known = Labels(labels.signs[train], labels.names)
        with warnings.catch_warnings():
            # What parts of the pictures lack is no news: what all of them lack is said when the final model is fitted.
            warnings.simplefilter("ignore", UserWarning)
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = make().fit(X[train], known)
            found = model.decision_function(X[held])
        scores[held] = below_all_others(found, np.logical_not(known.relevant.any(axis=0)))
    return scores


def choose(
    settings: Sequence[Setting],
    make: Make,
    stack: KernelStack,
    labels: Labels,
    folds: Sequence[Fold],
    single: bool,
    track: Callable[[Sequence[Setting]], Iterable[Setting]] = iter,
) -> Choice:
    """Try settings by cross-validation.

    Parameters
    ----------
    settings : sequence of Setting, the simplest first
    make : function of (kernels, setting, gap) that gives an unfitted estimator
    stack : KernelStack of n_pictures
    labels : Labels of n_pictures
    folds : list of (training rows, held-out rows)
    single : bool
        Whether every picture has one class.
    track : function that passes the settings on, for a progress bar

    Returns
    -------
    Choice
    """
    kernels = KernelBank("precomputed", check="never")  # they were checked when they were computed
    tried: list[Setting] = []
    best, held_out = -1, np.empty(0)
    for setting in track(settings):
        scores = held_out_scores(
            lambda setting=setting: make(kernels, setting, CHOICE_GAP),  # type: ignore[misc]
            stack,
            labels,
            folds,
        )
        by_fold = [quality(Labels(labels.signs[held], labels.names), scores[held], single) for _, held in folds]
        by_fold = [value for value in by_fold if value == value] or [0.0]  # a fold in which nothing can be measured
        tried.append(replace(setting, score=float(np.mean(by_fold)), std=float(np.std(by_fold))))
        if best < 0 or tried[-1].score > tried[best].score + 1e-12:
            best, held_out = len(tried) - 1, scores
    return Choice(tuple(tried), tried[best], held_out)
