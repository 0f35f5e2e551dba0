"""Pair sets: what is drawn from classes, what is refused, and the targets that go with them."""

from __future__ import annotations

import pickle
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelweave.metric import PairSet
from kernelweave.metric import targets as targets_module
from kernelweave.metric.targets import given_targets, percentile_targets


def together(pairs: PairSet, similar: int) -> set[frozenset[int]]:
    kept = pairs.similar == similar
    return {frozenset(pair) for pair in zip(pairs.first[kept].tolist(), pairs.second[kept].tolist(), strict=True)}


@given(st.lists(st.integers(0, 4), min_size=3, max_size=25), st.integers(1, 400), st.integers(0, 5))
def test_from_classes_takes_all_positives_and_so_many_negatives(y, negatives, seed):
    alike = {frozenset(pair) for pair in combinations(range(len(y)), 2) if y[pair[0]] == y[pair[1]]}
    unlike = {frozenset(pair) for pair in combinations(range(len(y)), 2) if y[pair[0]] != y[pair[1]]}
    if not alike or not unlike:
        with pytest.raises(ValueError, match="similar pairs"):
            PairSet.from_classes(y)
        return
    pairs = PairSet.from_classes(y, negatives=negatives, random_state=seed)
    assert together(pairs, 1) == alike
    assert together(pairs, -1) <= unlike
    assert pairs.n_similar == len(alike)
    assert pairs.n_dissimilar == len(together(pairs, -1)) == min(negatives, len(unlike))  # none twice
    fewer = PairSet.from_classes(y, max_positives=3, random_state=seed)
    assert together(fewer, 1) <= alike
    assert fewer.n_similar == len(together(fewer, 1)) == min(3, len(alike))
    assert fewer.n_dissimilar == min(fewer.n_similar, len(unlike))


def test_every_negative_is_as_likely():
    y = ["a", "a", "b", "c", "c", "c"]
    drawn = np.zeros((6, 6))
    for seed in range(600):
        pairs = PairSet.from_classes(y, negatives=2, random_state=seed)
        kept = pairs.similar < 0
        np.add.at(drawn, (pairs.first[kept], pairs.second[kept]), 1)
    counts = (drawn + drawn.T)[np.triu_indices(6, 1)]
    np.testing.assert_allclose(counts[counts > 0], 1200 / 11, rtol=0.35)
    assert np.count_nonzero(counts) == 11


def test_seeds_decide():
    y = np.arange(100) % 7
    one, same, other = (PairSet.from_classes(y, random_state=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.second, same.second)
    assert together(one, -1) != together(other, -1)


def test_numbers_of_pairs_that_no_memory_would_hold():
    y = np.arange(60_000) % 2
    pairs = PairSet.from_classes(y, max_positives=500, negatives=700, random_state=0)
    assert (pairs.n_similar, pairs.n_dissimilar) == (500, 700)
    np.testing.assert_array_equal(np.where(y[pairs.first] == y[pairs.second], 1, -1), pairs.similar)
    assert np.unique(pairs.first).size > 900  # from everywhere


def test_first_share_of_each_kind_is_privileged():
    pairs = PairSet(np.arange(10), np.arange(1, 11), [1, -1] * 2 + [-1] * 6)
    assert pairs.with_privileged(0.0).privileged.sum() == 0
    assert pairs.with_privileged(1.0).privileged.all()
    np.testing.assert_array_equal(np.flatnonzero(pairs.with_privileged(0.5).privileged), [0, 1, 3, 4, 5])
    with pytest.raises(ValueError, match="share must be between 0 and 1, got 50"):
        pairs.with_privileged(50)


def test_subsets_differences_and_copies():
    pairs = PairSet([0, 0, 1], [1, 2, 2], [True, False, False], [True, False, True])
    assert pairs.similar.tolist() == [1, -1, -1]
    turned = pairs.subset([2, 0])
    assert (turned.first.tolist(), turned.privileged.tolist()) == ([1, 0], [True, True])
    assert len(pairs.subset(pairs.similar < 0)) == 2
    np.testing.assert_array_equal(pairs.differences(np.array([[1.0], [3.0], [7.0]]))[:, 0], [-2, -6, -4])
    back = pickle.loads(pickle.dumps(pairs))
    np.testing.assert_array_equal(back.second, pairs.second)
    with pytest.raises(ValueError, match="read-only"):
        pairs.first[0] = 2
    given_rows = np.array([0, 1])
    PairSet(given_rows, [2, 3], [1, 1])
    given_rows[0] = 5  # what the caller has stays his


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (([0, 1], [1, 1], [1, 1]), "pair 1 is sample 1 with itself"),
        (([0, 1], [1, 2], [1, 0]), r"\+1 \(similar\) and -1"),
        (([0, 1], [1], [1, 1]), "same length, got"),
        (([0, -1], [1, 2], [1, 1]), "rows are numbered from 0"),
        (([0.0, 1.0], [1, 2], [1, 1]), "row numbers"),
        (([[0, 1]], [[1, 2]], [1, 1]), "row numbers"),
        (([0, 1], [1, 2], [1, 1], [1, 0]), "vector of booleans"),
    ],
)
def test_refused_pairs(parts, message):
    with pytest.raises(ValueError, match=message):
        PairSet(*parts)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"y": [1, 1, 1]}, "one class"),
        ({"y": [1, 2, 3]}, "single sample"),
        ({"y": [0, 0, 1], "negatives": 0}, "negatives must be"),
        ({"y": [0, 0, 1], "negatives": "many"}, "negatives must be"),
        ({"y": [0, 0, 1], "max_positives": 0}, "max_positives must be"),
        ({"y": [0.5, 0.25, 0.1]}, "continuous"),
    ],
)
def test_classes_that_make_no_pairs(arguments, message):
    with pytest.raises(ValueError, match=message):
        PairSet.from_classes(**arguments)


def test_pairs_of_other_data_are_refused():
    with pytest.raises(ValueError, match="sample 7, but X has 5 rows"):
        PairSet([0], [7], [1]).differences(np.zeros((5, 2)))


# --- targets ----------------------------------------------------------------------------------------------------------


def test_targets_are_percentiles_of_squared_distances():
    X = np.random.default_rng(0).standard_normal((60, 4))
    squared = [np.sum((a - b) ** 2) for a, b in combinations(X, 2)]
    assert percentile_targets(X, (3, 97), np.random.RandomState(0)) == pytest.approx(np.percentile(squared, (3, 97)))


def test_many_samples_are_sampled(monkeypatch):
    X = np.random.default_rng(0).standard_normal((900, 3))
    exact = percentile_targets(X, (3, 97), np.random.RandomState(0))
    monkeypatch.setattr(targets_module, "ALL_UP_TO", 400)
    sampled = percentile_targets(X, (3, 97), np.random.RandomState(0))
    assert sampled != exact
    assert sampled == pytest.approx(exact, rel=0.03)


def test_copies_of_samples_do_not_make_targets_zero():
    X = np.repeat(np.random.default_rng(0).standard_normal((4, 3)), 10, axis=0)
    assert percentile_targets(X, (3, 97), np.random.RandomState(0))[0] > 0
    with pytest.raises(ValueError, match="all samples in X are the same"):
        percentile_targets(np.ones((5, 2)), (3, 97), np.random.RandomState(0))


@pytest.mark.parametrize("percentiles", [(97, 3), (-1, 50), (3, 101), (np.nan, 50)])
def test_percentiles_out_of_order(percentiles):
    with pytest.raises(ValueError, match="0 <= similar <= dissimilar <= 100"):
        percentile_targets(np.arange(6.0)[:, None], percentiles, np.random.RandomState(0))


@pytest.mark.parametrize("targets", [(4.0, 1.0), (0.0, 1.0), (-1.0, 1.0), (1.0, np.inf), (np.nan, 1.0)])
def test_targets_out_of_order(targets):
    with pytest.raises(ValueError, match="0 < similar <= dissimilar"):
        given_targets(targets)


@pytest.mark.parametrize("targets", [1.0, (1.0,), (1.0, 2.0, 3.0), "ab"])
def test_targets_that_are_not_two_numbers(targets):
    with pytest.raises(ValueError, match="two numbers"):
        given_targets(targets)
