"""Stratified splits: exact sizes, even spread, every form of labels."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.model_selection import GridSearchCV, KFold, ShuffleSplit, cross_val_score

from kernelweave.evaluation.splits import (
    MultilabelStratifiedKFold,
    MultilabelStratifiedShuffleSplit,
    RepeatedMultilabelStratifiedKFold,
)
from kernelweave.labels import as_labels
from kernelweave.views import Views

NAN = float("nan")
matrices = st.tuples(st.integers(2, 25), st.integers(1, 5)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=st.sampled_from([1.0, 0.0, 0.0, NAN]))
)
seeds = st.integers(0, 2**32 - 1)


def skewed(n=600, m=40, unknown=0.0, seed=0):
    """Labels from common to rare, the rarest with about n / 100 positives."""
    rng = np.random.default_rng(seed)
    Y = (rng.random((n, m)) < np.maximum(0.5 / np.arange(1, m + 1), 0.01)).astype(float)
    Y[rng.random((n, m)) < unknown] = NAN
    return Y


def folds_of(cv, Y):
    return [test for _, test in cv.split(np.zeros((len(Y), 1)), Y)]


def spread(Y, folds, value=1):
    """Largest minus smallest count of a value over the folds, for every label."""
    counts = np.array([(Y[fold] == value).sum(axis=0) for fold in folds])
    return counts.max(axis=0) - counts.min(axis=0)


def slow_folds(Y, n_splits):
    """The same method in plain loops over sets, samples in order, ties to the first fold."""
    strata = {}
    for k in range(Y.shape[1]):
        for side, value in enumerate((1, 0)):
            strata[k, side] = {i for i in range(len(Y)) if Y[i, k] == value}
    rooms = [len(Y) // n_splits + (j < len(Y) % n_splits) for j in range(n_splits)]
    folds = [set() for _ in range(n_splits)]
    waiting = set(range(len(Y)))
    while left := {key: members & waiting for key, members in strata.items() if members & waiting}:
        members = strata[min(left, key=lambda key: (len(left[key]), key))]
        for i in sorted(members & waiting):
            open_folds = [j for j in range(n_splits) if len(folds[j]) < rooms[j]]
            best = min(open_folds, key=lambda j: (len(folds[j] & members), len(folds[j]) - rooms[j], j))
            folds[best].add(i)
            waiting.remove(i)
    for i in sorted(waiting):
        next(fold for fold, room in zip(folds, rooms, strict=True) if len(fold) < room).add(i)
    return [sorted(fold) for fold in folds]


@given(matrices, st.integers(2, 6))
def test_folds_are_those_of_plain_loops(Y, n_splits):
    n_splits = min(n_splits, len(Y))
    folds = folds_of(MultilabelStratifiedKFold(n_splits), Y)
    assert [fold.tolist() for fold in folds] == slow_folds(Y, n_splits)


@given(matrices, st.integers(2, 6), st.booleans(), seeds)
def test_folds_partition_the_samples_in_equal_sizes(Y, n_splits, shuffle, seed):
    n_splits = min(n_splits, len(Y))
    cv = MultilabelStratifiedKFold(n_splits, shuffle=shuffle, random_state=seed if shuffle else None)
    pairs = list(cv.split(Y, Y))
    assert len(pairs) == n_splits == cv.get_n_splits()
    assert_array_equal(np.sort(np.concatenate([test for _, test in pairs])), np.arange(len(Y)))
    for train, test in pairs:
        assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(len(Y)))
    sizes = [len(test) for _, test in pairs]
    assert max(sizes) - min(sizes) <= 1


@given(matrices, st.integers(2, 6), st.booleans())
def test_the_rarest_side_of_a_label_is_spread_exactly(Y, n_splits, shuffle):
    n_splits = min(n_splits, len(Y))
    totals = np.stack([(Y == 1).sum(axis=0), (Y == 0).sum(axis=0)], axis=1).ravel()
    if totals.any():
        rarest = np.argmin(np.where(totals == 0, totals.max() + 1, totals))
        folds = folds_of(MultilabelStratifiedKFold(n_splits, shuffle=shuffle, random_state=0 if shuffle else None), Y)
        assert spread(Y[:, [rarest // 2]], folds, value=1 - rarest % 2) <= 1


@pytest.mark.parametrize("unknown", [0.0, 0.4])
@pytest.mark.parametrize("n_splits", [5, 7])
def test_rare_labels_are_spread_far_better_than_by_chance(unknown, n_splits):
    Y = skewed(unknown=unknown)
    ours = spread(Y, folds_of(MultilabelStratifiedKFold(n_splits, shuffle=True, random_state=0), Y))
    plain = spread(Y, folds_of(KFold(n_splits, shuffle=True, random_state=0), Y))
    rare = (Y == 1).sum(axis=0) <= 20
    assert rare.sum() >= 15
    assert ours[rare].max() <= 2
    assert ours.mean() < plain.mean() / 3


def test_rare_negatives_are_spread_too():
    # Few judgements, and hardly any "no" among them: plain folds often get none of those.
    Y = np.where(skewed(n=300, m=10, seed=1) == 1, 0.0, 1.0)
    Y[np.random.default_rng(2).random(Y.shape) < 0.5] = NAN
    folds = folds_of(MultilabelStratifiedKFold(5), Y)
    assert spread(Y, folds, value=0).max() <= 2
    scarce = (Y == 0).sum(axis=0) < 20
    assert scarce.any()
    assert spread(Y, folds_of(KFold(5), Y), value=0)[scarce].max() > 2


def test_entries_nobody_judged_count_for_neither_side():
    # Label 0 was judged for the first ten samples only: these are what is spread, five of each kind.
    Y = np.full((40, 2), NAN)
    Y[:5, 0], Y[5:10, 0] = 1, 0
    for test in folds_of(MultilabelStratifiedKFold(5), Y):
        assert (Y[test, 0] == 1).sum() == 1
        assert (Y[test, 0] == 0).sum() == 1
        assert len(test) == 8


def test_single_positives_of_many_labels_do_not_pile_up():
    # 101 samples: the fold that is larger by one takes one more, it is not the home of every singleton.
    Y = np.zeros((101, 20))
    Y[np.arange(20), np.arange(20)] = 1
    counts = [Y[test].sum() for test in folds_of(MultilabelStratifiedKFold(5), Y)]
    assert counts == [5, 4, 4, 4, 3]


@pytest.mark.parametrize(
    "cv",
    [
        MultilabelStratifiedKFold(4, shuffle=True, random_state=7),
        RepeatedMultilabelStratifiedKFold(4, n_repeats=2, random_state=7),
        MultilabelStratifiedShuffleSplit(3, test_size=0.3, random_state=7),
    ],
    ids=lambda cv: type(cv).__name__,
)
def test_the_same_seed_gives_the_same_split_in_every_form_of_labels(cv):
    Y = skewed(n=60, m=5)
    signs = as_labels(Y).signs
    names = list("abcde")
    expected = list(cv.split(Y, Y))
    assert len(expected) == cv.get_n_splits()
    for form in (
        Y,
        signs,
        sparse.csr_matrix(Y),
        sparse.coo_array(Y),
        pd.DataFrame(Y, columns=names),
        pl.DataFrame(Y, schema=names),
        Y.tolist(),
        [[names[k] for k in np.flatnonzero(row)] for row in Y],
    ):
        for (train, test), (same_train, same_test) in zip(expected, cv.split(np.zeros(60), form), strict=True):
            assert_array_equal(train, same_train)
            assert_array_equal(test, same_test)


def test_ties_are_broken_at_random_when_shuffling():
    Y = np.zeros((10, 1))
    Y[3] = 1
    homes = set()
    for seed in range(60):
        folds = folds_of(MultilabelStratifiedKFold(5, shuffle=True, random_state=seed), Y)
        homes.add(next(j for j, fold in enumerate(folds) if 3 in fold))
    assert homes == set(range(5))


def test_other_seeds_give_other_splits():
    Y = skewed(n=60, m=5)
    one, other = (folds_of(MultilabelStratifiedKFold(4, shuffle=True, random_state=seed), Y) for seed in (0, 1))
    assert any(a.tolist() != b.tolist() for a, b in zip(one, other, strict=True))
    repeats = folds_of(RepeatedMultilabelStratifiedKFold(2, n_repeats=2, random_state=0), Y)
    assert repeats[0].tolist() not in (repeats[2].tolist(), repeats[3].tolist())
    draws = folds_of(MultilabelStratifiedShuffleSplit(2, random_state=0), Y)
    assert sorted(draws[0]) != sorted(draws[1])


@given(matrices, st.integers(1, 4), seeds)
def test_repeats_are_partitions(Y, n_repeats, seed):
    cv = RepeatedMultilabelStratifiedKFold(2, n_repeats=n_repeats, random_state=seed)
    folds = folds_of(cv, Y)
    assert len(folds) == 2 * n_repeats == cv.get_n_splits()
    for first, second in zip(folds[::2], folds[1::2], strict=True):
        assert_array_equal(np.sort(np.concatenate([first, second])), np.arange(len(Y)))


@pytest.mark.parametrize(
    "sizes", [{}, {"test_size": 0.3}, {"test_size": 17}, {"train_size": 0.5}, {"train_size": 40, "test_size": 0.1}]
)
def test_random_parts_have_the_sizes_of_scikit_learn(sizes):
    Y = skewed(n=103, m=6, unknown=0.2)
    plain = next(ShuffleSplit(1, **sizes).split(Y))
    for train, test in MultilabelStratifiedShuffleSplit(3, **sizes, random_state=0).split(Y, Y):
        assert (len(train), len(test)) == (len(plain[0]), len(plain[1]))
        assert len(np.unique(np.concatenate([train, test]))) == len(train) + len(test)


def test_random_parts_have_the_shares_of_every_label():
    Y = skewed(n=1000, m=30, unknown=0.2)
    positives = (Y == 1).sum(axis=0)
    cv = MultilabelStratifiedShuffleSplit(5, test_size=0.25, random_state=0)
    plain = ShuffleSplit(5, test_size=0.25, random_state=0)
    error, plain_error = (
        np.mean([np.abs((Y[test] == 1).sum(axis=0) - 0.25 * positives) for _, test in splits.split(Y, Y)])
        for splits in (cv, plain)
    )
    assert error < 0.8
    assert error < plain_error / 3
    for train, test in cv.split(Y, Y):
        assert ((Y[test] == 1).sum(axis=0) > 0).all()
        assert ((Y[train] == 1).sum(axis=0) > 0).all()


class Shares(BaseEstimator):
    """Scores a label by its share of positives among the known, plus a constant: takes NaN in y, ignores X."""

    def __init__(self, shift=0.0):
        self.shift = shift

    def fit(self, X, y):
        self.shares_ = as_labels(y).relevant.sum(axis=0) / as_labels(y).known.sum(axis=0)
        return self

    def score(self, X, y):
        return -float(np.abs(as_labels(y).relevant.mean(axis=0) - self.shares_ - self.shift).mean())


@pytest.mark.parametrize("cv", [MultilabelStratifiedKFold(3), MultilabelStratifiedShuffleSplit(3, random_state=0)])
@pytest.mark.parametrize("wrap", [np.asarray, pd.DataFrame, np.ma.masked_invalid], ids=["array", "frame", "masked"])
def test_cross_validation_and_searches_take_labels_nobody_judged(cv, wrap):
    Y = wrap(skewed(n=90, m=6, unknown=0.3))
    for X in (np.zeros((90, 2)), Views({"a": np.zeros((90, 2)), "b": np.ones((90, 3))})):
        scores = cross_val_score(Shares(), X, Y, cv=cv)
        assert scores.shape == (3,)
        assert np.isfinite(scores).all()
    search = GridSearchCV(Shares(), {"shift": [0.0, 1.0]}, cv=cv).fit(np.zeros((90, 2)), Y)
    assert search.best_params_ == {"shift": 0.0}


def test_cross_validation_takes_tags():
    tags = [["sky"] * (i % 2) + ["sea"] * (i % 3 == 0) for i in range(30)]
    splits = list(MultilabelStratifiedKFold(3).split(np.zeros((30, 1)), tags))
    assert all(sum("sea" in tags[i] for i in test) in (3, 4) for _, test in splits)


def test_they_print_as_scikit_learn_prints():
    assert (
        repr(MultilabelStratifiedKFold(3)) == "MultilabelStratifiedKFold(n_splits=3, random_state=None, shuffle=False)"
    )
    assert (
        repr(RepeatedMultilabelStratifiedKFold(3, n_repeats=2, random_state=1))
        == "RepeatedMultilabelStratifiedKFold(n_repeats=2, n_splits=3, random_state=1)"
    )
    assert "test_size=0.2" in repr(MultilabelStratifiedShuffleSplit(2, test_size=0.2))


def test_wrong_settings_are_refused():
    with pytest.raises(ValueError, match="at least one train/test split"):
        MultilabelStratifiedKFold(1)
    with pytest.raises(ValueError, match="random_state has no effect since shuffle is False"):
        MultilabelStratifiedKFold(3, random_state=0)
    with pytest.raises(ValueError, match="at least one train/test split"):
        RepeatedMultilabelStratifiedKFold(1)
    with pytest.raises(ValueError, match="n_repeats must be a whole number, 1 or more, got 0"):
        RepeatedMultilabelStratifiedKFold(3, n_repeats=0)


def test_wrong_data_are_refused():
    Y = np.eye(4)
    for cv in (
        MultilabelStratifiedKFold(2),
        RepeatedMultilabelStratifiedKFold(2),
        MultilabelStratifiedShuffleSplit(2),
    ):
        with pytest.raises(ValueError, match=r"stratifies by labels: call split\(X, Y\) with the label matrix Y"):
            next(cv.split(Y))
        with pytest.raises(ValueError, match="inconsistent numbers of samples"):
            next(cv.split(Y[:3], Y))
        with pytest.raises(ValueError, match="must be a label matrix"):
            next(cv.split(Y, [0, 1, 0, 1]))
    with pytest.raises(ValueError, match="n_splits=5 greater than the number of samples"):
        next(MultilabelStratifiedKFold(5).split(Y, Y))
    with pytest.raises(ValueError, match="test_size=9"):
        next(MultilabelStratifiedShuffleSplit(2, test_size=9).split(Y, Y))
