"""Measures of ranked results. The many measures of multi-label ranking will join these two."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

#: Recall levels of the interpolated average precision.
_LEVELS = np.linspace(0.0, 1.0, 11)


def average_precision(relevant: ArrayLike, scores: ArrayLike, interpolation: str = "exact") -> float:
    """Average precision of a ranking by descending scores; tied scores keep the order they are given in.

    Parameters
    ----------
    relevant : array of shape (n,)
        True (or a positive number) where an item is relevant.
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
    >>> round(average_precision([1, 0, 1, 0], [4, 3, 2, 1]), 4)
    0.8333
    >>> round(average_precision([1, 0, 1, 0], [4, 3, 2, 1], interpolation="11-point"), 4)
    0.8485
    """
    if interpolation not in ("exact", "11-point"):
        raise ValueError(f"interpolation must be 'exact' or '11-point', got {interpolation!r}.")
    hits = np.asarray(relevant).ravel() > 0
    scores = np.asarray(scores, dtype=np.float64).ravel()
    if len(hits) != len(scores):
        raise ValueError(f"relevant and scores must have the same length, got {len(hits)} and {len(scores)}.")
    if np.isnan(scores).any():
        raise ValueError("scores must not contain NaN: an item without a score has no rank.")
    if not hits.any():
        return float("nan")
    hits = hits[np.argsort(-scores, kind="stable")]
    found = np.cumsum(hits)
    precision = found / np.arange(1, len(hits) + 1)
    if interpolation == "exact":
        return float(precision[hits].mean())
    recall = found / found[-1]
    # The largest precision from each cut-off on; recall never falls, so a level begins at one cut-off.
    best_from = np.maximum.accumulate(precision[::-1])[::-1]
    return float(best_from[np.searchsorted(recall, _LEVELS - 1e-12)].mean())


def mean_average_precision(Y: ArrayLike, scores: ArrayLike, interpolation: str = "exact") -> float:
    """Mean over the columns (classes) of their `average_precision`; columns without a relevant item are left out.

    Parameters
    ----------
    Y : array of shape (n_samples, n_classes)
    scores : array of shape (n_samples, n_classes)
    interpolation : {"exact", "11-point"}

    Examples
    --------
    >>> mean_average_precision([[1, 0], [0, 1]], [[0.9, 0.1], [0.2, 0.8]])
    1.0
    """
    Y, scores = np.asarray(Y), np.asarray(scores, dtype=np.float64)
    if Y.ndim != 2 or Y.shape != scores.shape:
        raise ValueError(f"Y and scores must be matrices of the same shape, got {Y.shape} and {scores.shape}.")
    each = np.array([average_precision(y, s, interpolation) for y, s in zip(Y.T, scores.T, strict=True)])
    return float(np.nanmean(each)) if not np.isnan(each).all() else float("nan")
