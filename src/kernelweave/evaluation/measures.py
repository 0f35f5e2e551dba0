"""Measures of ranked labels.

Three rankings can be made of a matrix of scores, and they answer different questions:

- *by image*: for each row, the labels are ranked, and the measure is averaged over rows (scikit-learn: "samples");
- *by category*: for each column, the samples are ranked, and the measure is averaged over columns ("macro");
- *micro*: all entries of the matrix are ranked in one list.

Entries that were never judged (NaN in `Y`) take no rank and are neither hit nor miss. A row or column that says nothing
about a measure, such as one without a relevant entry, is skipped and counted, never scored 0 or 1. Ties between a
relevant and an irrelevant entry are counted too: such pairs are worth one half in AUC and ranking loss, tied entries
share the worst of their ranks in coverage and LRAP, and average precision, one-error and the measures at k take tied
entries in the order of the columns (rows, by category).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..labels import as_labels
from .formulas import Measured, Scored, as_numbers, parse

#: The formula of each way to interpolate average precision.
_INTERPOLATIONS = {"exact": "ap", "11-point": "ap11"}


def measure(name: str, Y: Any, scores: ArrayLike) -> Measured:
    """Compute a measure by name, with what it was computed from.

    Parameters
    ----------
    name : str
        One of ``MEASURES``; for those that end in "@k" with a number for k, as in "image_precision@5".
    Y : label matrix of shape (n_samples, n_labels)
        0 and 1, or -1 and +1, NaN or masked where a label was never judged; sparse, a frame, or tags.
    scores : array of shape (n_samples, n_labels)
        The larger, the more relevant.

    Returns
    -------
    Measured

    Examples
    --------
    >>> from kernelweave.evaluation import measure
    >>> result = measure("image_auc", [[1, 0, 0], [1, 1, 1], [0, 1, float("nan")]], [[3, 2, 1], [3, 2, 1], [2, 2, 9]])
    >>> result.value, result.each.tolist(), result.n_used, result.n_skipped, result.n_tied
    (0.75, [1.0, nan, 0.5], 2, 1, 1)
    """
    return parse(name)(Scored.read(Y, scores))


def auc(Y: Any, scores: ArrayLike, by: str = "image") -> float:
    """Area under the ROC curve; a relevant and an irrelevant entry with the same score count one half.

    Parameters
    ----------
    Y : label matrix of shape (n_samples, n_labels)
        0 and 1, or -1 and +1, NaN or masked where a label was never judged; sparse, a frame, or tags.
    scores : array of shape (n_samples, n_labels)
    by : {"image", "pooled", "category", "micro"}
        "image": mean over rows, equal to 1 - `ranking_loss`. "pooled": the true and false positives among the first k
        labels are summed over rows, which makes one curve with a point for each k (tied labels share their places
        evenly). "category": mean over columns. "micro": one ranking of all judged entries. Rows (columns) without a
        relevant or without an irrelevant label are skipped, except in "micro".

    Returns
    -------
    float
        NaN if everything was skipped.

    Examples
    --------
    >>> from kernelweave.evaluation import auc
    >>> Y, scores = [[1, 0, 1], [0, 0, 1]], [[0.9, 0.5, 0.1], [0.3, 0.2, 0.8]]
    >>> [round(auc(Y, scores, by), 4) for by in ("image", "pooled", "category", "micro")]
    [0.75, 0.7222, 1.0, 0.6667]
    """
    return _value("auc", Y, scores, by, "image", "pooled", "category", "micro")


def average_precision(relevant: ArrayLike, scores: ArrayLike, interpolation: str = "exact") -> float:
    """Average precision of one ranking by descending scores; tied scores keep the order they are given in.

    Parameters
    ----------
    relevant : array of shape (n,)
        True (or 1) where an item is relevant, False (0 or -1) where it is not, NaN or masked where nobody judged.
    scores : array of shape (n,)
    interpolation : {"exact", "11-point"}
        "exact": mean of the precision at every relevant item. "11-point": mean over the recall levels 0, 0.1, ..., 1 of
        the largest precision at that recall or a larger one, as in the PASCAL VOC 2007 challenge.

    Returns
    -------
    float
        NaN if nothing is relevant.

    Examples
    --------
    >>> from kernelweave.evaluation import average_precision
    >>> round(average_precision([1, 0, 1, 0], [4, 3, 2, 1]), 4)
    0.8333
    >>> round(average_precision([1, 0, 1, 0], [4, 3, 2, 1], interpolation="11-point"), 4)
    0.8485
    """
    items, places = np.asanyarray(relevant).reshape(1, -1), as_numbers(scores).reshape(1, -1)
    if items.shape != places.shape:
        raise ValueError(f"relevant and scores must have the same length, got {items.size} and {places.size}.")
    return mean_average_precision(as_labels(items, what="relevant"), places, interpolation, by="image")


def mean_average_precision(Y: Any, scores: ArrayLike, interpolation: str = "exact", by: str = "category") -> float:
    """Mean of `average_precision` over columns or rows; those without a relevant entry are skipped.

    Parameters
    ----------
    Y : label matrix of shape (n_samples, n_labels)
        0 and 1, or -1 and +1, NaN or masked where a label was never judged; sparse, a frame, or tags.
    scores : array of shape (n_samples, n_labels)
    interpolation : {"exact", "11-point"}
    by : {"category", "image", "micro"}
        Mean over columns, mean over rows, or one ranking of all judged entries.

    Returns
    -------
    float
        NaN if everything was skipped.

    Examples
    --------
    >>> from kernelweave.evaluation import mean_average_precision
    >>> mean_average_precision([[1, 0], [0, 1]], [[0.9, 0.1], [0.2, 0.8]])
    1.0
    """
    if interpolation not in _INTERPOLATIONS:
        raise ValueError(f"interpolation must be 'exact' or '11-point', got {interpolation!r}.")
    return _value(_INTERPOLATIONS[interpolation], Y, scores, by, "category", "image", "micro")


def precision_at(Y: Any, scores: ArrayLike, k: int, by: str = "image") -> float:
    """Share of relevant labels among the first k of each row.

    Parameters
    ----------
    Y : label matrix of shape (n_samples, n_labels)
        0 and 1, or -1 and +1, NaN or masked where a label was never judged; sparse, a frame, or tags.
    scores : array of shape (n_samples, n_labels)
    k : int
        At most n_labels. Of a row with fewer judged labels, all are taken.
    by : {"image", "category", "micro"}
        How hits and misses among the labels taken are counted: row by row and averaged, column by column and averaged,
        or all together. Rows without a judged label, and columns that are never taken, are skipped.

    Returns
    -------
    float

    Examples
    --------
    >>> from kernelweave.evaluation import precision_at
    >>> precision_at([[1, 0, 1], [0, 0, 1]], [[0.9, 0.5, 0.1], [0.3, 0.2, 0.8]], k=2)
    0.5
    """
    return _value("precision", Y, scores, by, "image", "category", "micro", k=k)


def recall_at(Y: Any, scores: ArrayLike, k: int, by: str = "image") -> float:
    """Share of the relevant labels that are among the first k of their row.

    Parameters
    ----------
    Y, scores, k, by
        As in `precision_at`. Rows and columns without a relevant label are skipped.

    Returns
    -------
    float

    Examples
    --------
    >>> from kernelweave.evaluation import recall_at
    >>> recall_at([[1, 0, 1], [0, 0, 1]], [[0.9, 0.5, 0.1], [0.3, 0.2, 0.8]], k=2)
    0.75
    """
    return _value("recall", Y, scores, by, "image", "category", "micro", k=k)


def f1_at(Y: Any, scores: ArrayLike, k: int, by: str = "image") -> float:
    """Harmonic mean of precision and recall at k.

    Parameters
    ----------
    Y, scores, k, by
        As in `precision_at`; "image" and "category" are means of the F1 of each row or column. Rows and columns without
        a relevant label are skipped; a column that has one but is never taken counts 0.

    Returns
    -------
    float

    Examples
    --------
    >>> from kernelweave.evaluation import f1_at
    >>> round(f1_at([[1, 0, 1], [0, 0, 1]], [[0.9, 0.5, 0.1], [0.3, 0.2, 0.8]], k=2), 4)
    0.5833
    """
    return _value("f1", Y, scores, by, "image", "category", "micro", k=k)


def one_error(Y: Any, scores: ArrayLike) -> float:
    """Share of rows whose first label is not relevant.

    Rows without a relevant or without an irrelevant label are skipped: no ranking of them could be better or worse.

    Examples
    --------
    >>> from kernelweave.evaluation import one_error
    >>> one_error([[1, 0, 1], [0, 0, 1]], [[0.9, 0.5, 0.1], [0.3, 0.8, 0.2]])
    0.5
    """
    return measure("one_error", Y, scores).value


def coverage(Y: Any, scores: ArrayLike) -> float:
    """How many labels must be read, from the first on, to see all relevant ones of a row; mean over rows.

    Tied labels are read together. As `sklearn.metrics.coverage_error`, except that rows without a relevant or without
    an irrelevant label are skipped (there they count 0 and n_labels).

    Examples
    --------
    >>> from kernelweave.evaluation import coverage
    >>> coverage([[1, 0, 1], [0, 0, 1]], [[0.9, 0.5, 0.1], [0.3, 0.2, 0.8]])
    2.0
    """
    return measure("coverage", Y, scores).value


def ranking_loss(Y: Any, scores: ArrayLike) -> float:
    """Share of (relevant, irrelevant) pairs of labels in the wrong order, ties counting one half; mean over rows.

    As `sklearn.metrics.label_ranking_loss`, except for ties (there a tie is a whole error) and for rows without a
    relevant or without an irrelevant label, which are skipped (there they count 0).

    Examples
    --------
    >>> from kernelweave.evaluation import ranking_loss
    >>> ranking_loss([[1, 0, 1], [0, 0, 1]], [[0.9, 0.5, 0.1], [0.3, 0.2, 0.8]])
    0.25
    """
    return measure("ranking_loss", Y, scores).value


def lrap(Y: Any, scores: ArrayLike) -> float:
    """Label ranking average precision: of the labels ranked down to a relevant one, how many are relevant; mean.

    First over the relevant labels of a row, then over rows. Tied labels share the worst of their ranks. As
    `sklearn.metrics.label_ranking_average_precision_score`, except that rows without a relevant or without an
    irrelevant label are skipped (there they count 1).

    Examples
    --------
    >>> from kernelweave.evaluation import lrap
    >>> round(lrap([[1, 0, 1], [0, 0, 1]], [[0.9, 0.5, 0.1], [0.3, 0.2, 0.8]]), 4)
    0.9167
    """
    return measure("lrap", Y, scores).value


def _value(formula: str, Y: Any, scores: ArrayLike, by: str, *ways: str, k: int | None = None) -> float:
    """The value of a formula that can be taken in several ways, of which `by` names one."""
    if by not in ways:
        raise ValueError(f"by must be one of {', '.join(map(repr, ways))}; got {by!r}.")
    return measure(f"{by}_{formula}" + ("" if k is None else f"@{k}"), Y, scores).value
