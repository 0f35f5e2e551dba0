"""The steps around a multi-label experiment: which labels, which samples, and labels taken away on purpose.

Splits are in :mod:`kernelweave.evaluation.splits`, tables of the results in :mod:`kernelweave.evaluation.tables`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, Literal

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from ..labels import as_labels

Mask = NDArray[np.bool_]


def most_frequent_labels(Y: Any, m: int) -> NDArray[np.intp]:
    """Columns of the `m` labels that are relevant most often, most frequent first, ties in the order of the columns.

    Parameters
    ----------
    Y : label matrix of shape (n_samples, n_labels)
        In any form `as_labels` reads. Labels never judged (NaN) do not count.
    m : int
        How many labels, 1 to n_labels.

    Returns
    -------
    array of shape (m,)
        Indices of columns.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.evaluation import most_frequent_labels
    >>> Y = np.array([[1, 0, 1], [0, 0, 1], [0, 1, 1]])
    >>> most_frequent_labels(Y, 2).tolist()
    [2, 0]
    """
    frequency = as_labels(Y).relevant.sum(axis=0)
    if not isinstance(m, Integral) or not 1 <= m <= len(frequency):
        raise ValueError(f"m must be a whole number from 1 to the {len(frequency)} labels of Y, got {m!r}.")
    return np.argsort(-frequency, kind="stable")[: int(m)]


def rows_with_at_least(Y: Any, k: int) -> Mask:
    """Samples with `k` or more relevant labels.

    Parameters
    ----------
    Y : label matrix of shape (n_samples, n_labels)
        In any form `as_labels` reads. Labels never judged (NaN) do not count.
    k : int

    Returns
    -------
    array of shape (n_samples,), bool

    Examples
    --------
    >>> from kernelweave.evaluation import rows_with_at_least
    >>> rows_with_at_least([[1, 0, 1], [0, 0, 1]], 2).tolist()
    [True, False]
    """
    if not isinstance(k, Integral) or k < 0:
        raise ValueError(f"k must be a whole number of labels, 0 or more, got {k!r}.")
    return as_labels(Y).relevant.sum(axis=1) >= k


@dataclass(frozen=True, eq=False)
class RemovedLabels:
    """A label matrix some of whose relevant labels were taken away.

    Attributes
    ----------
    fraction : float
        The fraction asked for.
    realised : float
        Share of all relevant labels that are gone. It differs from `fraction` because every sample keeps a label and
        whole labels are removed; 0 where there was nothing to remove.
    Y : array of shape (n_samples, n_labels)
        What is left, in the values of the original (0 and 1, or -1 and +1): integers, or floats where some are NaN.
    removed : array of shape (n_samples, n_labels), bool
        What was removed.
    """

    fraction: float
    realised: float
    Y: NDArray = field(repr=False)
    removed: Mask = field(repr=False)


def remove_labels(
    Y: Any,
    fractions: Sequence[float] = (0.0, 0.2, 0.4, 0.6),
    random_state: int | RandomState | None = None,
    to: Literal["irrelevant", "unknown"] = "irrelevant",
) -> list[RemovedLabels]:
    """Take away a share of every sample's relevant labels, as if an annotator had given fewer.

    A sample with `a` relevant labels loses ``min(round(fraction * a), a - 1)`` of them, so that one is left. Every
    sample has one random order in which its labels go: what a fraction removes, a larger one removes too.

    Parameters
    ----------
    Y : label matrix of shape (n_samples, n_labels)
        In any form `as_labels` reads; for a fair test, of the training samples only.
    fractions : sequence of floats in [0, 1]
    random_state : int, RandomState or None
    to : {"irrelevant", "unknown"}
        What a removed label becomes: indistinguishable from a true "no" (the usual protocol), or never judged (NaN).

    Returns
    -------
    list of RemovedLabels
        One for each fraction, in their order.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.evaluation import remove_labels
    >>> Y = np.array([[1, 1, 1, 1, 0], [1, 0, 0, 0, 0]])
    >>> [(case.fraction, case.realised, case.Y.sum(axis=1).tolist()) for case in remove_labels(Y, (0.0, 0.5))]
    [(0.0, 0.0, [4, 1]), (0.5, 0.4, [2, 1])]
    """
    if to not in ("irrelevant", "unknown"):
        raise ValueError(f"to must be 'irrelevant' or 'unknown', got {to!r}.")
    shares = np.atleast_1d(np.asarray(fractions, dtype=np.float64))
    if shares.ndim != 1 or not ((shares >= 0) & (shares <= 1)).all():
        raise ValueError(f"fractions must be numbers from 0 to 1, got {fractions!r}.")
    labels = as_labels(Y)
    counts = labels.relevant.sum(axis=1)
    turn = _removal_order(labels.relevant, random_state)
    cases = []
    for share in shares:
        losses = np.clip(np.rint(share * counts).astype(np.int64), 0, np.maximum(counts - 1, 0))
        removed = turn < losses[:, None]
        left = np.where(removed, np.int8(-1 if to == "irrelevant" else 0), labels.signs)
        cases.append(
            RemovedLabels(float(share), float(losses.sum() / max(counts.sum(), 1)), labels.write(left), removed)
        )
    return cases


def _removal_order(relevant: Mask, random_state: int | RandomState | None) -> NDArray[np.int64]:
    """For every relevant label its place 0, 1, ... in a random order of its row; irrelevant ones come after all."""
    rows, columns = np.nonzero(relevant)
    shuffled = np.lexsort((check_random_state(random_state).uniform(size=len(rows)), rows))
    rows, columns = rows[shuffled], columns[shuffled]
    counts = relevant.sum(axis=1)
    turn = np.full(relevant.shape, relevant.shape[1])
    turn[rows, columns] = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    return turn
