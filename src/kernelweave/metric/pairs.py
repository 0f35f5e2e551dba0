"""Pairs of samples that belong together or do not: what a distance is learned from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.random import sample_without_replacement

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

AS_MANY = "as many as positives"


@dataclass(frozen=True, eq=False)
class PairSet:
    """Pairs of training samples, each said to be similar or dissimilar.

    Parameters
    ----------
    first, second : array-like of int, shape (n_pairs,)
        Rows of the two samples of each pair.
    similar : array-like, shape (n_pairs,)
        +1 (or True) where the two belong together, -1 (or False) where they do not.
    privileged : array-like of bool, shape (n_pairs,), optional
        Pairs whose privileged features may be used; all of them if left out. Only
        :class:`~kernelweave.PartialITMLPlus` takes pairs without.

    Examples
    --------
    >>> from kernelweave.metric import PairSet
    >>> pairs = PairSet([0, 0, 1], [1, 2, 3], [1, -1, -1])
    >>> len(pairs), pairs.n_similar, pairs.n_dissimilar
    (3, 1, 2)
    >>> PairSet.from_classes([0, 0, 1, 1, 2, 2], random_state=0)
    PairSet(3 similar, 3 dissimilar, 6 with privileged features)
    """

    first: Indices
    second: Indices
    similar: NDArray[np.int8]
    privileged: NDArray[np.bool_]

    def __init__(
        self, first: ArrayLike, second: ArrayLike, similar: ArrayLike, privileged: ArrayLike | None = None
    ) -> None:
        columns: dict[str, NDArray] = {
            "first": _rows(first, "first"),
            "second": _rows(second, "second"),
            "similar": _signs(similar),
            "privileged": np.ones(np.size(first), bool) if privileged is None else _mask(privileged),
        }
        lengths = {name: len(column) for name, column in columns.items()}
        if len(set(lengths.values())) != 1:
            raise ValueError(f"all parts of a PairSet need the same length, got {lengths}.")
        same = np.flatnonzero(columns["first"] == columns["second"])
        if len(same):
            raise ValueError(
                f"a pair needs two different samples, but pair {same[0]} is sample {columns['first'][same[0]]} with "
                f"itself ({len(same)} such pair(s) in all). Leave these pairs out."
            )
        for name, column in columns.items():
            column.setflags(write=False)
            object.__setattr__(self, name, column)

    @classmethod
    def from_classes(
        cls,
        y: ArrayLike,
        negatives: int | str = AS_MANY,
        max_positives: int | None = None,
        random_state: int | RandomState | None = None,
    ) -> PairSet:
        """All pairs inside the classes, and random pairs across them.

        No pair comes twice, and none is a sample with itself. Similar pairs come first, each kind in the order of the
        classes.

        Parameters
        ----------
        y : array-like, shape (n_samples,)
            Classes, at least two, at least one of which has two samples.
        negatives : int or "as many as positives", default="as many as positives"
            Number of dissimilar pairs drawn, without replacement; all there are if there are not so many.
        max_positives : int, optional
            Draw so many similar pairs if there are more.
        random_state : int, RandomState or None, default=None

        Returns
        -------
        PairSet
        """
        classes = column_or_1d(y)
        check_classification_targets(classes)
        names, label, sizes = np.unique(classes, return_inverse=True, return_counts=True)
        if len(names) < 2:
            raise ValueError(
                f"y has one class, {names.tolist()}, and so no dissimilar pairs; give at least two classes."
            )
        if sizes.max() < 2:
            raise ValueError(
                f"all {len(names)} classes in y have a single sample, so there are no similar pairs; give at least one "
                "class of two samples."
            )
        if max_positives is not None and max_positives < 1:
            raise ValueError(f"max_positives must be at least 1, or None for all similar pairs; got {max_positives}.")
        rng = check_random_state(random_state)
        rows = np.argsort(label, kind="stable")  # samples of a class side by side
        place, ends = np.arange(len(rows)), np.cumsum(sizes)[label[rows]]
        positives = _draw(place + 1, ends, max_positives, rng)
        wanted = _number(negatives, len(positives[0]))
        others = _draw(ends, np.full(len(rows), len(rows)), wanted, rng)
        first, second = (rows[np.concatenate(parts)] for parts in zip(positives, others, strict=True))
        return cls(first, second, np.repeat([1, -1], [len(positives[0]), len(others[0])]))

    def __len__(self) -> int:
        return len(self.first)

    def __repr__(self) -> str:
        return (
            f"PairSet({self.n_similar} similar, {self.n_dissimilar} dissimilar, "
            f"{np.count_nonzero(self.privileged)} with privileged features)"
        )

    @property
    def n_similar(self) -> int:
        return int(np.count_nonzero(self.similar > 0))

    @property
    def n_dissimilar(self) -> int:
        return len(self) - self.n_similar

    def subset(self, which: Any) -> PairSet:
        """Some of the pairs, or all in another order: `which` is an index array, a mask or a slice."""
        return PairSet(self.first[which], self.second[which], self.similar[which], self.privileged[which])

    def with_privileged(self, share: float) -> PairSet:
        """The same pairs, with privileged features for the first `share` of the similar and of the dissimilar ones.

        Examples
        --------
        >>> from kernelweave.metric import PairSet
        >>> PairSet([0, 1, 2, 3], [1, 2, 3, 0], [1, 1, -1, -1]).with_privileged(0.5).privileged
        array([ True, False,  True, False])
        """
        if not 0 <= share <= 1:
            raise ValueError(f"share must be between 0 and 1, got {share!r}.")
        known = np.zeros(len(self), bool)
        for sign in (1, -1):
            members = np.flatnonzero(self.similar == sign)
            known[members[: round(share * len(members))]] = True
        return PairSet(self.first, self.second, self.similar, known)

    def differences(self, X: Array) -> Array:
        """First sample minus second, shape (n_pairs, n_features)."""
        self.check_rows(len(X))
        return X[self.first] - X[self.second]

    def check_rows(self, n_samples: int) -> None:
        """Refuse pairs of samples that there are not."""
        last = max(self.first.max(initial=-1), self.second.max(initial=-1))
        if last >= n_samples:
            raise ValueError(
                f"the pairs name sample {last}, but X has {n_samples} rows (numbered from 0); pairs and X belong to "
                "different data."
            )


def _rows(values: ArrayLike, name: str) -> Indices:
    rows = np.array(values, ndmin=1)  # a copy, which may be protected
    if rows.ndim != 1 or (rows.size and rows.dtype.kind not in "iu"):
        raise ValueError(
            f"{name} must be a vector of row numbers (integers), got an array of {rows.dtype} of shape {rows.shape}."
        )
    if rows.min(initial=0) < 0:
        raise ValueError(f"{name} holds the row number {rows.min()}; rows are numbered from 0.")
    return rows.astype(np.intp)


def _signs(values: ArrayLike) -> NDArray[np.int8]:
    similar = np.array(values, ndmin=1)
    if similar.dtype == bool:
        similar = np.where(similar, 1, -1)
    if similar.ndim != 1 or not np.isin(similar, (-1, 1)).all():
        raise ValueError(
            f"similar must be a vector of +1 (similar) and -1 (dissimilar), or of booleans; got values "
            f"{np.unique(similar)[:5].tolist()}."
        )
    return similar.astype(np.int8)


def _mask(values: ArrayLike) -> NDArray[np.bool_]:
    mask = np.array(values, ndmin=1)
    if mask.ndim != 1 or mask.dtype != bool:
        raise ValueError(f"privileged must be a vector of booleans, got {mask.dtype} of shape {mask.shape}.")
    return mask


def _number(negatives: int | str, n_positives: int) -> int:
    if isinstance(negatives, str) and negatives == AS_MANY:
        return n_positives
    if isinstance(negatives, str) or negatives != int(negatives) or negatives < 1:
        raise ValueError(f"negatives must be {AS_MANY!r} or a number of pairs, at least 1; got {negatives!r}.")
    return int(negatives)


def _draw(starts: Indices, ends: Indices, most: int | None, rng: RandomState) -> tuple[Indices, Indices]:
    """Pairs (i, j) with starts[i] <= j < ends[i], in order; a random part of them if there are more than `most`.

    A pair is found by its rank in the list of all pairs, so the list is never written down.
    """
    counts = ends - starts
    total = int(counts.sum())
    ranks = np.arange(total) if most is None or most >= total else _some(total, most, rng)
    before = np.cumsum(counts) - counts
    i = np.searchsorted(before + counts, ranks, side="right")
    return i, starts[i] + ranks - before[i]


def _some(total: int, number: int, rng: RandomState) -> Indices:
    return np.sort(sample_without_replacement(total, number, random_state=rng))
