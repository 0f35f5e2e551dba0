"""The formulas of the measures, and their names.

A formula of one ranking gives a value a row of a `Rankings`. Taken of the rows of the score matrix, of its columns, or
of all its entries in one row, it makes the measures "image_...", "category_..." and "micro_...".
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..labels import Signs, as_labels
from .rankings import Floats, Ints, Rankings


@dataclass(frozen=True, eq=False)
class Measured:
    """A measure, and what it was computed from.

    Attributes
    ----------
    value : float
        NaN if everything was skipped.
    each : array of shape (n_samples,), (n_labels,) or (1,)
        What `value` is the mean of: a value a row, or a column, NaN where it was skipped. One value for measures that
        are not a mean (pooled, micro).
    n_used, n_skipped : int
        Rows (or columns, or the one list) that count, and those that say nothing about the measure.
    n_tied : int
        Rankings in which a relevant and an irrelevant entry have the same score, so that the tie rule mattered; for
        one-error and measures at k, only where the tie is across the cut.
    """

    value: float
    each: Floats = field(repr=False)
    n_used: int
    n_skipped: int
    n_tied: int

    def __float__(self) -> float:
        return self.value


@dataclass(frozen=True, eq=False)
class Scored:
    """Labels and their scores, with the rankings that several measures share.

    Attributes
    ----------
    signs : array of shape (n_samples, n_labels), int8
        +1 relevant, -1 irrelevant, 0 never judged.
    scores : array of shape (n_samples, n_labels), float64 without NaN
    """

    signs: Signs
    scores: Floats

    @classmethod
    def read(cls, Y: Any, scores: ArrayLike) -> Scored:
        """Read what a user gave: anything :func:`kernelweave.labels.as_labels` reads, and a matrix of scores."""
        signs, numbers = as_labels(Y).signs, as_numbers(scores)
        if signs.shape != numbers.shape:
            raise ValueError(f"Y and scores must be matrices of the same shape, got {signs.shape} and {numbers.shape}.")
        missing = np.isnan(numbers)
        if missing.any():
            i, k = np.argwhere(missing)[0]
            raise ValueError(
                f"scores must not hold NaN, for an entry without a score has no rank: row {i}, column {k} is NaN "
                f"({missing.sum()} in all). Labels never judged are NaN in Y, not in scores."
            )
        return cls(signs, numbers)

    def rows(self, chosen: NDArray[np.bool_]) -> Scored:
        """Some of the rows."""
        return Scored(self.signs[chosen], self.scores[chosen])

    @cached_property
    def image(self) -> Rankings:
        return Rankings(self.signs, self.scores)

    @cached_property
    def category(self) -> Rankings:
        return Rankings(np.ascontiguousarray(self.signs.T), np.ascontiguousarray(self.scores.T))

    @cached_property
    def micro(self) -> Rankings:
        return Rankings(self.signs.reshape(1, self.signs.size), self.scores.reshape(1, self.scores.size))


def parse(name: str) -> Callable[[Scored], Measured]:
    """The function that computes the measure called `name`; ValueError if there is none."""
    stem, at, k = name.partition("@")
    if at and stem in _AT_K and k.isdecimal():
        return partial(_AT_K[stem], k=int(k))
    if not at and stem in _WHOLE:
        return _WHOLE[stem]
    if stem in _AT_K:
        raise ValueError(
            f"{name!r} must end in a whole number k, how many labels are taken from each row, as in '{stem}@5'."
        )
    close = difflib.get_close_matches(name, MEASURES, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise ValueError(f"There is no measure {name!r}.{hint} Known are: {', '.join(MEASURES)}.")


def as_numbers(scores: ArrayLike) -> Floats:
    """Scores as float64, NaN where masked."""
    try:
        return np.ma.filled(np.ma.asarray(scores, dtype=np.float64), np.nan)
    except (TypeError, ValueError):
        raise ValueError(
            f"scores must be a dense matrix of numbers of shape (n_samples, n_labels), got a {type(scores).__name__}."
        ) from None


# Formulas of one ranking: a value a row, NaN for rows that say nothing.


def _auc(ranks: Rankings) -> Floats:
    return 1.0 - _ranking_loss(ranks)


def _ranking_loss(ranks: Rankings) -> Floats:
    # Of the entries above a hit, its tied ones counting half, all but the other hits are in the wrong place.
    above = ranks.sums((ranks.start + ranks.end - 1) / 2)
    wrong = above - ranks.n_relevant * (ranks.n_relevant - 1) / 2
    return _ratio(wrong, ranks.n_relevant * ranks.n_irrelevant)


def _ap(ranks: Rankings) -> Floats:
    return _ratio(ranks.sums((ranks.nth + 1) / (ranks.place + 1)), ranks.n_relevant)


def _ap11(ranks: Rankings) -> Floats:
    n_relevant = ranks.n_relevant[:, None]
    # Precision is largest at hits, so it is enough to look there: a column for the first hit, the second, ...
    precision = np.zeros((len(ranks), max(n_relevant.max(initial=0), 1)))
    precision[ranks.row, ranks.nth] = (ranks.nth + 1) / (ranks.place + 1)
    best_from = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
    # The hit at which the recall reaches 0, 0.1, ..., 1: a tenth, rounded up, of the number of hits.
    reached_at = np.maximum((np.arange(11) * n_relevant + 9) // 10 - 1, 0)
    return _ratio(np.take_along_axis(best_from, reached_at, axis=1).mean(axis=1), ranks.n_relevant > 0)


def _one_error(ranks: Rankings) -> Floats:
    return _ratio(1.0 - ranks.sums(ranks.place == 0), ranks.has_both)


def _coverage(ranks: Rankings) -> Floats:
    is_last = ranks.nth == ranks.n_relevant[ranks.row] - 1
    return _ratio(ranks.sums(np.where(is_last, ranks.end, 0)), ranks.has_both)


def _lrap(ranks: Rankings) -> Floats:
    return _ratio(ranks.sums(ranks.hits_to_end / ranks.end), ranks.n_relevant * ranks.has_both)


# Measures: a formula and the rankings it is taken of.


def _mean_over(formula: Callable[[Rankings], Floats], rankings: str, cut: int | None, scored: Scored) -> Measured:
    ranks: Rankings = getattr(scored, rankings)
    return _mean(formula(ranks), ranks.n_tied(cut))


def _pooled_auc(scored: Scored) -> Measured:
    """One curve with a point for each k: true and false positives among the first k labels, summed over rows."""
    ranks, used = scored.image, scored.image.has_both
    hits = used[ranks.row]
    n_places = scored.signs.shape[1]
    # Rows with a hit at each place; tied labels share their places evenly: a share from `start` on, gone from `end` on.
    share = 1.0 / (ranks.end - ranks.start)[hits]
    change = np.bincount(ranks.start[hits], share, n_places + 1) - np.bincount(ranks.end[hits], share, n_places + 1)
    true_at = np.cumsum(change)[:n_places]
    false_at = (ranks.n_judged[used, None] > np.arange(n_places)).sum(axis=0) - true_at
    area = np.sum(false_at * (np.cumsum(true_at) - true_at / 2))  # trapezoids, from the point (0, 0) on
    n_pairs = ranks.n_relevant[used].sum() * ranks.n_irrelevant[used].sum()
    return _whole(_ratio(area, n_pairs), used, ranks.n_tied())


@dataclass(frozen=True)
class _Taken:
    """The first k labels of each row, counted by row, by column, or all together."""

    hits: Ints
    taken: Ints
    relevant: Ints

    def precision(self) -> Floats:
        return _ratio(self.hits, self.taken)

    def recall(self) -> Floats:
        return _ratio(self.hits, self.relevant)

    def f1(self) -> Floats:
        return _ratio(2 * self.hits, (self.taken + self.relevant) * (self.relevant > 0))


def _taken(ranks: Rankings, k: int, by: str) -> _Taken:
    n_labels = ranks.order.shape[1]
    if not 1 <= k <= n_labels:
        raise ValueError(f"k must be between 1 and the number of labels, {n_labels}; got {k}.")
    first = ranks.place < k
    if by == "category":
        label = ranks.order[ranks.row, ranks.place]
        taken = ranks.order[:, :k][np.arange(k) < ranks.n_judged[:, None]]
        return _Taken(*(np.bincount(labels, minlength=n_labels) for labels in (label[first], taken, label)))
    rows = _Taken(np.bincount(ranks.row[first], minlength=len(ranks)), np.minimum(ranks.n_judged, k), ranks.n_relevant)
    if by == "image":
        return rows
    return _Taken(*(counts.sum(keepdims=True) for counts in (rows.hits, rows.taken, rows.relevant)))


def _at_k(formula: Callable[[_Taken], Floats], by: str, scored: Scored, k: int) -> Measured:
    each = formula(_taken(scored.image, k, by))
    n_tied = scored.image.n_tied(cut=k)
    return _whole(each, scored.image.n_judged > 0, n_tied) if by == "micro" else _mean(each, n_tied)


def _ratio(above: ArrayLike, below: ArrayLike) -> Floats:
    """``above / below``, NaN where `below` is 0: the value of a row that says nothing."""
    above, below = np.atleast_1d(above).astype(np.float64), np.atleast_1d(below)
    return np.divide(above, below, out=np.full(above.shape, np.nan), where=below != 0)


def _mean(each: Floats, n_tied: int) -> Measured:
    used = ~np.isnan(each)
    value = float(each[used].mean()) if used.any() else float("nan")
    return Measured(value, each, int(used.sum()), int((~used).sum()), n_tied)


def _whole(value: Floats, rows: NDArray[np.bool_], n_tied: int) -> Measured:
    """A value of all `rows` together, shape (1,)."""
    n_used = 0 if np.isnan(value).any() else int(rows.sum())
    return Measured(float(value[0]), value, n_used, len(rows) - n_used, n_tied)


_WHOLE: dict[str, Callable[[Scored], Measured]] = {
    **{
        f"{by}_{name}": partial(_mean_over, formula, by, None)
        for name, formula in (("auc", _auc), ("ap", _ap), ("ap11", _ap11))
        for by in ("image", "category", "micro")
    },
    "pooled_auc": _pooled_auc,
    "one_error": partial(_mean_over, _one_error, "image", 1),
    "coverage": partial(_mean_over, _coverage, "image", None),
    "ranking_loss": partial(_mean_over, _ranking_loss, "image", None),
    "lrap": partial(_mean_over, _lrap, "image", None),
}
_AT_K: dict[str, Callable[..., Measured]] = {
    f"{by}_{name}": partial(_at_k, formula, by)
    for name, formula in (("precision", _Taken.precision), ("recall", _Taken.recall), ("f1", _Taken.f1))
    for by in ("image", "category", "micro")
}

#: Names of all measures; "@k" stands for "@1", "@2", ...
MEASURES = (*_WHOLE, *(f"{name}@k" for name in _AT_K))

#: Those of which less is better.
LOSSES = frozenset({"one_error", "coverage", "ranking_loss"})
