"""One support vector machine a kernel: its cost by cross-validation, and scores of samples it has not seen.

The machines of all classes and all folds are columns of one problem on one kernel matrix. In the columns of a fold, the
samples that it holds out have the target 0, that is, no part in the problem; their scores are out of fold.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold, check_cv

from .._config import one_blas_thread
from ..kernels import Bank
from ..machines import SVM, Solution
from ..machines.base import product

Array = NDArray[np.float64]
Index = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Trained:
    """The machines of one kernel, a column a class (one column for two classes).

    Attributes
    ----------
    coef : array of shape (n_samples, n_columns)
        Signed duals of the machines trained on all samples.
    intercept : array of shape (n_columns,)
    scores : array of shape (n_samples, n_columns)
        Out of fold, at the same cost.
    C : float
        The cost of the best accuracy, the smallest of equals.
    accuracies : array of shape (n_costs,)
        Share of samples classified right out of fold.
    """

    coef: Array
    intercept: Array
    scores: Array
    C: float
    accuracies: Array


def train_each(
    bank: Bank, codes: Index, fold: Index, costs: Sequence[float], accuracy: float, n_jobs: int | None
) -> list[Trained]:
    """Machines for every kernel of a bank; kernels are taken from it one at a time (by joblib, a few).

    Parameters
    ----------
    bank : Bank
    codes : array of shape (n_samples,)
        Classes 0, 1, ...
    fold : array of shape (n_samples,)
        Which fold holds each sample out.
    costs : sequence of float, ascending
    accuracy : float
        Relative duality gap of the machines.
    n_jobs : int, optional
        Kernels at a time.
    """
    grams = (bank.gram(j) for j in range(bank.n_kernels))
    if n_jobs in (None, 1):
        return [train(K, codes, fold, costs, accuracy) for K in grams]
    return Parallel(n_jobs=n_jobs)(delayed(train)(K, codes, fold, costs, accuracy) for K in grams)


def train(K: NDArray, codes: Index, fold: Index, costs: Sequence[float], accuracy: float) -> Trained:
    """Machines for one kernel K (n_samples, n_samples); other parameters as in :func:`train_each`.

    Each cost starts from the solution for the one before it, and the machines on all samples from those of the folds.
    """
    Y = class_columns(codes)
    n_folds = int(fold.max()) + 1
    kept = fold[:, None] != np.arange(n_folds)
    targets = (kept[:, :, None] * Y[:, None, :]).reshape(len(Y), -1)
    accuracies = np.zeros(len(costs))
    best, solution, held_back = None, None, True
    for k, C in enumerate(costs):
        if held_back:
            solution = SVM(C).solve(K, targets, start=solution, accuracy=accuracy)
            scores = _held_out_scores(K, solution, fold)
        assert solution is not None
        accuracies[k] = share_right(scores, codes)
        if best is None or accuracies[k] > accuracies[:k].max():
            best = (float(C), solution.coef, scores)
        held_back = bool(np.abs(solution.coef).max() >= C)  # if no dual is, a larger cost changes nothing
    assert best is not None
    C, coef, scores = best
    # Every sample is in all folds but one, so this is a feasible point for all samples.
    mean = coef.reshape(len(Y), n_folds, -1).sum(axis=1) / (n_folds - 1)
    final = SVM(C).solve(K, Y, start=Solution(mean, np.zeros(Y.shape[1]), 0.0, 0.0, 0.0), accuracy=accuracy)
    return Trained(final.coef, final.intercept, scores, C, accuracies)


def _held_out_scores(K: NDArray, solution: Solution, fold: Index) -> Array:
    """Scores of every sample by the columns of the fold that holds it out, (n_samples, n_columns)."""
    n_folds = int(fold.max()) + 1
    coef = solution.coef.reshape(len(K), n_folds, -1)
    intercept = solution.intercept.reshape(n_folds, -1)
    scores = np.empty((len(K), coef.shape[2]))
    with one_blas_thread():  # products between two runs of compiled loops, whose threads would be in the way of BLAS's
        for k in range(n_folds):
            held = np.flatnonzero(fold == k)
            scores[held] = product(K[held], coef[:, k]) + intercept[k]
    return scores


def class_columns(codes: Index) -> Array:
    """Targets -1 and +1 of shape (n_samples, n_classes), or one column for two classes."""
    n_classes = int(codes.max()) + 1
    return np.where(codes[:, None] == np.arange(1 if n_classes == 2 else 0, n_classes), 1.0, -1.0)


def share_right(scores: Array, codes: Index) -> float:
    """Accuracy of scores (n_samples, n_columns); one column decides between two classes by its sign."""
    predicted = scores.argmax(axis=1) if scores.shape[1] > 1 else (scores[:, 0] > 0).astype(np.intp)
    return float(np.mean(predicted == codes))


def assign_folds(codes: Index, classes: NDArray, cv: Any, random_state: Any) -> Index:
    """Which fold holds each sample out, the same for all kernels; shape (n_samples,).

    Parameters
    ----------
    codes : array of shape (n_samples,)
        Positions in `classes`.
    classes : array of shape (n_classes,)
    cv : int, splitter or iterable of (train, held) index arrays
        Must hold every sample out exactly once, and never all samples of a class.
    random_state : int, RandomState or None
        Shuffles the samples before `cv`, a number, cuts them.
    """
    if isinstance(cv, Integral) and not isinstance(cv, bool):
        splitter = StratifiedKFold(_usable_folds(codes, classes, int(cv)), shuffle=True, random_state=random_state)
    else:
        splitter = check_cv(cv, codes, classifier=True)
    times, fold = np.zeros(len(codes), dtype=np.intp), np.zeros(len(codes), dtype=np.intp)
    for k, (train, held) in enumerate(splitter.split(np.zeros((len(codes), 1)), codes)):
        missing = np.setdiff1d(codes, codes[train])
        if len(missing):
            raise ValueError(
                f"Fold {k} holds out all samples of class {classes.tolist()[missing[0]]!r}, so nothing is known of it "
                "from the others: use fewer or stratified folds (cv=5), or leave the class out."
            )
        times[held] += 1
        fold[held] = k
    if np.any(times != 1):
        sample = int(np.argmax(times != 1))
        raise ValueError(
            f"cv must hold out every sample exactly once, but sample {sample} is held out {times[sample]} times: "
            "out-of-fold scores are needed for all samples; use KFold, StratifiedKFold or a number."
        )
    return fold


def _usable_folds(codes: Index, classes: NDArray, n_folds: int) -> int:
    """As many folds as were asked for, or (with a warning) as the rarest class has samples."""
    if n_folds < 2:
        raise ValueError(f"cv must be at least 2 folds, got {n_folds}.")
    counts = np.bincount(codes, minlength=len(classes))
    rarest, fewest = classes.tolist()[int(counts.argmin())], int(counts.min())
    if fewest < 2:
        raise ValueError(
            f"Class {rarest!r} has only one sample: out-of-fold scores need at least two of every class, so that one "
            "can be held out. Give more samples, or leave the class out."
        )
    if fewest < n_folds:
        warnings.warn(
            f"Class {rarest!r} has {fewest} samples, fewer than the {n_folds} folds asked for: {fewest} are used.",
            UserWarning,
            stacklevel=4,
        )
    return min(fewest, n_folds)
