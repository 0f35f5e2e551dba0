"""Many rankings at once, seen from their relevant entries: what every measure of ranking is computed from."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..labels import Signs

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Flags = NDArray[np.bool_]


class Rankings:
    """Rankings of judged entries by descending score, one a row; tied entries stay in the order they are given in.

    Labels are mostly irrelevant, so after the one sort only the relevant entries ("hits") are kept, row after row and
    best first: every measure is a sum over them. Entries never judged take no place.

    Parameters
    ----------
    signs : array of shape (n_rows, n_entries), int8
        +1 relevant, -1 irrelevant, 0 never judged.
    scores : array of shape (n_rows, n_entries), float64 without NaN

    Attributes
    ----------
    order : array of shape (n_rows, n_entries)
        Which entry is at a place; those never judged come last.
    n_judged, n_relevant, n_irrelevant : arrays of shape (n_rows,)
    row : array of shape (n_hits,)
        The row a hit is in.
    place : array of shape (n_hits,)
        Where it is ranked, from 0.
    nth : array of shape (n_hits,)
        How many hits are ranked before it.
    start, end : arrays of shape (n_hits,)
        The entries with its score are at the places ``start, ..., end - 1``: so many have a larger score, and so many
        at least its score.
    hits_to_end : array of shape (n_hits,)
        How many hits have at least its score.
    in_mixed_tie : array of shape (n_hits,)
        Whether an irrelevant entry has its score.
    """

    def __init__(self, signs: Signs, scores: Floats) -> None:
        known = signs != 0
        # NaN sorts last, behind every score, and equals nothing: what was never judged is neither ranked nor tied.
        keys = np.negative(scores, where=known, out=np.full(signs.shape, np.nan))
        self.order, keys = _sorted(keys)
        self.row, self.place = np.nonzero(np.take_along_axis(signs, self.order, axis=1) > 0)
        self.n_judged: Ints = known.sum(axis=1)
        self.n_relevant: Ints = np.bincount(self.row, minlength=len(signs))
        self.n_irrelevant: Ints = self.n_judged - self.n_relevant
        self.nth: Ints = np.arange(len(self.row)) - (np.cumsum(self.n_relevant) - self.n_relevant)[self.row]
        self._find_ties(keys)

    def _find_ties(self, keys: Floats) -> None:
        """Blocks of equal scores, from the sorted keys, shape (n_rows, n_entries)."""
        n_entries = keys.shape[1]
        is_first = np.ones(keys.shape, dtype=np.bool_)
        np.not_equal(keys[:, 1:], keys[:, :-1], out=is_first[:, 1:])
        bounds = np.append(np.flatnonzero(is_first), keys.size)
        block = (np.cumsum(is_first) - 1)[self.row * n_entries + self.place]
        self.start: Ints = bounds[block] - self.row * n_entries
        self.end: Ints = bounds[block + 1] - self.row * n_entries
        # Hits of one block follow each other: they are a run.
        is_new = np.diff(block, prepend=-1) > 0
        first = np.flatnonzero(is_new)
        n_hits = np.diff(first, append=len(block))
        run = np.cumsum(is_new) - 1
        self.hits_to_end: Ints = (self.nth[first] + n_hits)[run]
        self.in_mixed_tie: Flags = self.end - self.start > n_hits[run]

    def __len__(self) -> int:
        return len(self.order)

    @property
    def has_both(self) -> Flags:
        """Which rows have a relevant and an irrelevant entry, shape (n_rows,)."""
        return (self.n_relevant > 0) & (self.n_irrelevant > 0)

    def sums(self, values: NDArray) -> Floats:
        """Sum over the hits of each row of ``values``, shape (n_hits,); the result has shape (n_rows,)."""
        return np.bincount(self.row, weights=values, minlength=len(self)).astype(np.float64, copy=False)

    def n_tied(self, cut: int | None = None) -> int:
        """Count the rows where a relevant and an irrelevant entry have one score, with `cut` only across that place."""
        tied = self.in_mixed_tie
        if cut is not None:
            tied = tied & (self.start < cut) & (cut < self.end)
        return int(np.count_nonzero(np.bincount(self.row[tied])))


def _sorted(keys: Floats) -> tuple[Ints, Floats]:
    """Stable order of each row, and the keys in that order; both of shape (n_rows, n_entries)."""
    order = np.argsort(keys, axis=1)
    ordered = np.take_along_axis(keys, order, axis=1)
    # The default sort is much faster than the stable one, and differs from it only in rows that have ties.
    tied = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
    order[tied] = np.argsort(keys[tied], axis=1, kind="stable")
    return order, ordered
