"""What the report says of the held-out scores, label by label: numbers and rows, no markup."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..evaluation.formulas import Scored, parse

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

#: Pictures shown for a label: the best-ranked ones, and the mistakes of either kind.
N_BEST, N_MISTAKES = 8, 4


@dataclass(frozen=True)
class Shown:
    """Rows of the pictures that are shown for a label, shape (at most N_BEST or N_MISTAKES,) each.

    Attributes
    ----------
    best : array
        The highest scores of all, judged or not.
    extra : array
        The highest scores among pictures without the label that are above some picture with it.
    overlooked : array
        The lowest scores among pictures with the label that are below some picture without it.
    """

    best: Rows
    extra: Rows
    overlooked: Rows

    @property
    def rows(self) -> set[int]:
        return {int(row) for part in (self.best, self.extra, self.overlooked) for row in part}


class LabelResults:
    """Measures, curves and telling pictures of every label.

    Parameters
    ----------
    Y : label matrix of shape (n_samples, n_labels)
        0 and 1, NaN where a label was never judged.
    scores : array of shape (n_samples, n_labels)

    Examples
    --------
    >>> from kernelweave.app.report_results import LabelResults
    >>> results = LabelResults([[1], [0], [1], [float("nan")]], [[3.0], [2.0], [1.0], [0.0]])
    >>> results.n_with.tolist(), results.n_unjudged.tolist(), results.f1.round(2).tolist()
    ([2], [1], [0.8])
    >>> results.shown(0).extra.tolist(), results.shown(0).overlooked.tolist()
    ([1], [2])
    """

    def __init__(self, Y: Any, scores: ArrayLike) -> None:
        self.scored = Scored.read(Y, scores)
        self.signs, self.scores = self.scored.signs, self.scored.scores
        self._ranks = self.scored.category
        self.n_with = self._ranks.n_relevant
        self.n_unjudged = len(self.signs) - self._ranks.n_judged

    @property
    def n_samples(self) -> int:
        return len(self.signs)

    def value(self, name: str) -> float:
        """A measure of all labels together; NaN if nothing says anything about it."""
        return parse(name)(self.scored).value

    @cached_property
    def average_precision(self) -> Floats:
        """Shape (n_labels,), NaN for labels that no picture has; so are the next two where they say nothing."""
        return parse("category_ap")(self.scored).each

    @cached_property
    def roc_area(self) -> Floats:
        return parse("category_auc")(self.scored).each

    @cached_property
    def f1(self) -> Floats:
        """The largest F1 that any threshold on the scores of a label reaches."""
        ranks = self._ranks
        # A threshold takes all pictures with the same score or none, so a hit brings its whole tie with it.
        at_hit = 2.0 * ranks.hits_to_end / (ranks.end + ranks.n_relevant[ranks.row])
        largest = np.full(len(ranks), np.nan)
        np.fmax.at(largest, ranks.row, at_hit)
        return largest

    @cached_property
    def guessing(self) -> Floats:
        """Share of judged pictures that have the label: the precision of a random order; 0 where none is judged."""
        return self.n_with / np.maximum(self._ranks.n_judged, 1)

    @property
    def mean_guessing(self) -> float:
        """Mean of `guessing` over the labels that some picture has; NaN if there is none."""
        present = self.guessing[self.n_with > 0]
        return float(present.mean()) if len(present) else float("nan")

    def curve(self, label: int) -> tuple[Floats, Floats]:
        """Recall and precision at every picture with the label, best first, shape (n_with,) each."""
        first, end = np.searchsorted(self._ranks.row, [label, label + 1])
        hits = self._ranks.hits_to_end[first:end]
        return hits / max(end - first, 1), hits / self._ranks.end[first:end]

    def mean_curve(self, n_points: int = 100) -> tuple[Floats, Floats]:
        """Recall levels and the mean precision there over the labels that some picture has, shape (n_points,) each."""
        levels = np.arange(1, n_points + 1) / n_points
        total = np.zeros(n_points)
        labels = np.flatnonzero(self.n_with).tolist()
        for label in labels:
            recall, precision = self.curve(label)
            # Recall is a ratio of whole numbers, so a level that it meets exactly may miss it by the last bit.
            at = np.searchsorted(recall, levels - 1e-9)
            total += precision[np.minimum(at, len(recall) - 1)]
        return levels, total / max(len(labels), 1)

    def most_frequent(self, limit: int) -> list[int]:
        """The labels that most pictures have, at most `limit`, in the order of the columns."""
        order = np.argsort(-self.n_with, kind="stable")[:limit]
        return sorted(int(label) for label in order)

    def shown(self, label: int) -> Shown:
        """Which pictures to show for a label."""
        order = np.argsort(-self.scores[:, label], kind="stable")
        scores, signs = self.scores[order, label], self.signs[order, label]
        with_it, without = signs > 0, signs < 0
        if not (with_it.any() and without.any()):
            nothing = order[:0]
            return Shown(order[:N_BEST], nothing, nothing)
        extra = order[without & (scores > scores[with_it].min())]
        overlooked = order[with_it & (scores < scores[without].max())]
        return Shown(order[:N_BEST], extra[:N_MISTAKES], overlooked[::-1][:N_MISTAKES])
