"""The measures as scikit-learn scorers, for ``scoring=`` in ``cross_val_score`` and ``GridSearchCV``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..labels import as_labels, is_tags
from .formulas import LOSSES, Scored, parse


@dataclass(frozen=True)
class Scorer:
    """A measure as a function of a fitted estimator, samples and labels; larger is better. Made by `scorer`."""

    measure: str

    @property
    def name(self) -> str:
        """The name `scorer` knows it by."""
        return f"neg_{self.measure}" if self.measure in LOSSES else self.measure

    def __call__(self, estimator: Any, X: Any, Y: Any) -> float:
        """Score the estimator on samples `X` with the label matrix `Y` of shape (n_samples, n_labels)."""
        # Tags of a few samples need not name all labels, nor in the order of the scores: the estimator knows both.
        labels = as_labels(Y, names=getattr(estimator, "classes_", None) if is_tags(Y) else None)
        value = parse(self.measure)(Scored.read(labels, label_scores(estimator, X))).value
        return -value if self.measure in LOSSES else value

    def __repr__(self) -> str:
        return f"scorer({self.name!r})"


def scorer(name: str) -> Scorer:
    """Make a scikit-learn scorer of a measure.

    It takes the scores from ``decision_function``, or else from ``predict_proba``. `Y` may hold NaN where a label was
    never judged. For a classifier and a mere number of folds scikit-learn looks at the labels before any scorer does,
    and refuses NaN: give it a splitter then, such as ``cv=KFold(5)``.

    Parameters
    ----------
    name : str
        One of ``MEASURES``. Losses are negated, and called so: "neg_ranking_loss", "neg_coverage", "neg_one_error".

    Returns
    -------
    callable ``(estimator, X, Y) -> float``

    Examples
    --------
    >>> from sklearn.datasets import make_multilabel_classification
    >>> from sklearn.linear_model import RidgeClassifier
    >>> from sklearn.model_selection import cross_val_score
    >>> from kernelweave.evaluation import scorer
    >>> X, Y = make_multilabel_classification(random_state=0)
    >>> cross_val_score(RidgeClassifier(), X, Y, scoring=scorer("neg_ranking_loss"), cv=3).shape
    (3,)
    """
    measure = name.removeprefix("neg_")
    parse(measure)
    if (measure in LOSSES) != name.startswith("neg_"):
        other = f"neg_{measure}" if measure in LOSSES else measure
        raise ValueError(f"A larger score must be better, so there is no scorer {name!r}: use {other!r}.")
    return Scorer(measure)


def label_scores(estimator: Any, X: Any) -> NDArray[np.float64]:
    """Scores of all labels, shape (n_samples, n_labels), from ``decision_function`` or else ``predict_proba``.

    Parameters
    ----------
    estimator : fitted estimator
    X : samples, whatever the estimator takes

    Examples
    --------
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> from kernelweave.evaluation.scorers import label_scores
    >>> model = KNeighborsClassifier(1).fit([[0.0], [1.0]], [[1, 1], [0, 1]])
    >>> label_scores(model, [[0.1], [0.9]]).tolist()
    [[1.0, 1.0], [0.0, 1.0]]
    """
    if hasattr(estimator, "decision_function"):
        scores = estimator.decision_function(X)
    elif hasattr(estimator, "predict_proba"):
        scores = estimator.predict_proba(X)
    else:
        raise TypeError(
            f"{type(estimator).__name__} has neither decision_function nor predict_proba to rank labels by."
        )
    if isinstance(scores, list):
        scores = np.column_stack([_relevance(estimator, k, np.asarray(of)) for k, of in enumerate(scores)])
    scores = np.asarray(scores, dtype=np.float64)
    return scores[:, None] if scores.ndim == 1 else scores


def _relevance(estimator: Any, k: int, probabilities: NDArray) -> NDArray:
    """Probability that label k is relevant, from those of its classes, shape (n_samples, n_classes).

    There is one class only if a label was never, or always, relevant in training.
    """
    classes = np.asarray(estimator.classes_[k])
    if probabilities.shape[1:] != classes.shape or len(classes) > 2:
        raise ValueError(
            f"{type(estimator).__name__}.predict_proba gives an array of shape {probabilities.shape} for label {k} "
            f"with the classes {classes.tolist()}; expected a column for each of at most two classes."
        )
    return probabilities[:, classes > 0].sum(axis=1)
