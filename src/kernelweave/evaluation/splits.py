"""Splits of multi-label data that give every part its share of each label.

The method is iterative stratification (Sechidis, Tsoumakas & Vlahavas 2011): again and again take the rarest label
among the samples not yet placed, and give each of its samples to the part that lacks this label most. Here a label has
two strata, the samples it is relevant for and those it was judged irrelevant for, so that both sides of every label are
spread; an entry never judged belongs to neither. Sizes are exact: a part that is full takes no more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numba import njit
from numpy.random import RandomState
from numpy.typing import NDArray
from sklearn.model_selection import BaseCrossValidator, KFold, ShuffleSplit
from sklearn.utils import check_random_state

from ..labels import Signs, as_labels

Index = NDArray[np.int64]


class MultilabelStratifiedKFold(KFold):
    """K-fold cross-validation whose folds have like shares of every label.

    Each sample is in exactly one test fold and the sizes of the folds differ by at most one. The positives and the
    judged negatives of each label are spread as evenly as the others allow: exactly (counts differ by at most one) for
    the rarest of all, nearly so for the rest.

    Parameters
    ----------
    n_splits : int, default=5
    shuffle : bool, default=False
        Take the samples in random order and break ties at random.
    random_state : int, RandomState or None
        With `shuffle` only.

    Notes
    -----
    ``split(X, Y)`` takes Y in any form `as_labels` reads, NaN included.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.evaluation import MultilabelStratifiedKFold
    >>> Y = np.array([[1, 0]] * 3 + [[0, 1]] * 3 + [[0, 0]] * 3)
    >>> [Y[test].sum(axis=0).tolist() for _, test in MultilabelStratifiedKFold(3).split(Y, Y)]
    [[1, 1], [1, 1], [1, 1]]
    """

    def __init__(
        self, n_splits: int = 5, *, shuffle: bool = False, random_state: int | RandomState | None = None
    ) -> None:
        super().__init__(n_splits, shuffle=shuffle, random_state=random_state)

    def _iter_test_indices(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[Index]:
        signs = _read(y, self)
        n_samples = len(signs)
        sizes = np.full(self.n_splits, n_samples // self.n_splits)
        sizes[: n_samples % self.n_splits] += 1
        rng = check_random_state(self.random_state) if self.shuffle else None
        # All folds want the same share of a label, also those that are larger by one sample.
        folds = _parts(signs, np.ones(self.n_splits, dtype=np.int64), sizes, rng)
        for fold in range(self.n_splits):
            yield np.flatnonzero(folds == fold)


class RepeatedMultilabelStratifiedKFold(BaseCrossValidator):
    """`MultilabelStratifiedKFold` several times, shuffled differently each time.

    Parameters
    ----------
    n_splits : int, default=5
    n_repeats : int, default=10
    random_state : int, RandomState or None

    Examples
    --------
    >>> from kernelweave.evaluation import RepeatedMultilabelStratifiedKFold
    >>> cv = RepeatedMultilabelStratifiedKFold(n_splits=2, n_repeats=3, random_state=0)
    >>> cv.get_n_splits()
    6
    """

    def __init__(
        self, n_splits: int = 5, *, n_repeats: int = 10, random_state: int | RandomState | None = None
    ) -> None:
        KFold(n_splits)  # refuses a wrong number of folds here, not at the first split
        if not isinstance(n_repeats, (int, np.integer)) or n_repeats < 1:
            raise ValueError(f"n_repeats must be a whole number, 1 or more, got {n_repeats!r}.")
        self.n_splits = n_splits
        self.n_repeats = n_repeats
        self.random_state = random_state

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Number of (train, test) pairs: `n_splits` times `n_repeats`."""
        return self.n_splits * self.n_repeats

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[tuple[Index, Index]]:
        """Training and test indices, all folds of the first repeat first.

        Parameters
        ----------
        X : data of n_samples rows
        y : label matrix of shape (n_samples, n_labels)
            In any form `as_labels` reads.
        groups : ignored

        Yields
        ------
        train, test : arrays of int
        """
        rng = check_random_state(self.random_state)
        for _ in range(self.n_repeats):
            yield from MultilabelStratifiedKFold(self.n_splits, shuffle=True, random_state=rng).split(X, y, groups)


class MultilabelStratifiedShuffleSplit(ShuffleSplit):
    """Random splits into a training and a test part that have like shares of every label.

    The sizes are exactly those of scikit-learn's `ShuffleSplit`. Samples are drawn anew for every split.

    Parameters
    ----------
    n_splits : int, default=10
    test_size, train_size : float, int or None
        Share, or number, of samples; what is not given is the rest. By default a tenth is for testing.
    random_state : int, RandomState or None

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.evaluation import MultilabelStratifiedShuffleSplit
    >>> Y = np.array([[1, 0]] * 4 + [[0, 1]] * 4)
    >>> train, test = next(MultilabelStratifiedShuffleSplit(1, test_size=0.25, random_state=0).split(Y, Y))
    >>> Y[test].sum(axis=0).tolist(), Y[train].sum(axis=0).tolist()
    ([1, 1], [3, 3])
    """

    def __init__(
        self,
        n_splits: int = 10,
        *,
        test_size: float | None = None,
        train_size: float | None = None,
        random_state: int | RandomState | None = None,
    ) -> None:
        super().__init__(n_splits, test_size=test_size, train_size=train_size, random_state=random_state)

    def _iter_indices(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[tuple[Index, Index]]:
        signs = _read(y, self)
        rng = check_random_state(self.random_state)
        plain = ShuffleSplit(1, test_size=self.test_size, train_size=self.train_size, random_state=0)
        n_train, n_test = (len(part) for part in next(plain.split(signs)))
        sizes = np.array([n_train, n_test, len(signs) - n_train - n_test])
        for _ in range(self.n_splits):
            parts = _parts(signs, sizes, sizes, rng)
            yield rng.permutation(np.flatnonzero(parts == 0)), rng.permutation(np.flatnonzero(parts == 1))


def _read(Y: Any, splitter: object) -> Signs:
    if Y is None:
        raise ValueError(f"{type(splitter).__name__} stratifies by labels: call split(X, Y) with the label matrix Y.")
    return as_labels(Y).signs


def _parts(signs: Signs, shares: Index, sizes: Index, rng: RandomState | None) -> Index:
    """The part each sample goes to.

    Parameters
    ----------
    signs : array of shape (n_samples, n_labels)
    shares : array of shape (n_parts,)
        How much of every stratum a part should have, in proportion.
    sizes : array of shape (n_parts,)
        How many samples a part takes; together all.
    rng : RandomState or None
        None: samples in the order given, ties to the first part.
    """
    n_samples, n_labels = signs.shape
    order = np.arange(n_samples) if rng is None else rng.permutation(n_samples)
    luck = np.zeros(n_samples) if rng is None else rng.uniform(size=n_samples)
    signs = np.ascontiguousarray(signs[order])
    parts = np.full(n_samples, -1)
    room = sizes.copy()
    total = np.stack([(signs > 0).sum(axis=0), (signs < 0).sum(axis=0)], axis=1)
    have = np.zeros((len(sizes), n_labels, 2), dtype=np.int64)
    _stratify(signs, np.ascontiguousarray(signs.T), shares, luck, total, total.copy(), have, room, parts)
    # Samples of which nothing is known are all alike: they fill the room that is left.
    parts[parts < 0] = np.repeat(np.arange(len(room)), room)
    return parts[np.argsort(order)]


# --- compiled loops -------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _stratify(signs, by_label, shares, luck, total, waiting, have, room, parts):
    """Fill `parts`, for samples of which something is known.

    `by_label` is the transpose of `signs`. Of every (label, side), `total` counts all samples, `waiting` those not yet
    placed, and `have` those of each part; `room` is what each part can still take.
    """
    label, side = _rarest(waiting)
    while label >= 0:
        sign = 1 - 2 * side
        for i in range(len(signs)):
            if parts[i] < 0 and by_label[label, i] == sign:
                parts[i] = _neediest(shares, total[label, side], have[:, label, side], room, luck[i])
                room[parts[i]] -= 1
                _count(signs[i], have[parts[i]], 1)
                _count(signs[i], waiting, -1)
        label, side = _rarest(waiting)


@njit(cache=True, nogil=True)
def _count(row, counts, step):
    """Add `step` to the count of every (label, side) a sample belongs to; side 0 is relevant, 1 irrelevant."""
    for k in range(len(row)):
        if row[k] > 0:
            counts[k, 0] += step
        elif row[k] < 0:
            counts[k, 1] += step


@njit(cache=True, nogil=True)
def _rarest(waiting):
    """The (label, side) with the fewest samples left, at least one; (-1, -1) when none is left."""
    label, side = -1, -1
    for k in range(len(waiting)):
        for s in range(2):
            if waiting[k, s] > 0 and (label < 0 or waiting[k, s] < waiting[label, side]):
                label, side = k, s
    return label, side


@njit(cache=True, nogil=True)
def _neediest(shares, total, have, room, luck):
    """The part with room that lacks most of a stratum; among equals that with most room, then one by luck in [0, 1).

    The lack, share / sum of shares * total - have, is compared as a whole number: ties are ties, not rounding.
    """
    everything = shares.sum()
    best, ties = -1, 0
    for j in range(len(shares)):
        if room[j] > 0:
            lead = 1 if best < 0 else (shares[j] - shares[best]) * total - (have[j] - have[best]) * everything
            if lead == 0:
                lead = room[j] - room[best]
            if lead > 0:
                best, ties = j, 0
            if lead >= 0:
                ties += 1
    chosen = int(luck * ties)
    for j in range(best, len(shares)):
        if room[j] == room[best] and (shares[j] - shares[best]) * total == (have[j] - have[best]) * everything:
            if chosen == 0:
                return j
            chosen -= 1
    return best
