"""Choosing labels and samples, and taking labels away."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_array_equal
from scipy import sparse

from kernelweave.evaluation.protocol import most_frequent_labels, remove_labels, rows_with_at_least

NAN = float("nan")
#: Relevant counts of the columns: 2, 3, 1, 3, 0; of the rows: 3, 2, 4, 0.
Y = np.array([[1, 1, 0, 1, 0], [0, 1, 0, 1, 0], [1, 1, 1, 1, 0], [0, 0, 0, 0, 0]])
FORMS = {
    "array": Y,
    "-1 and +1": 2 * Y - 1,
    "sparse": sparse.csr_array(Y),
    "pandas": pd.DataFrame(Y, columns=list("abcde")),
    "polars": pl.DataFrame(Y, schema=list("abcde")),
    "lists": Y.tolist(),
}

matrices = st.sampled_from([0, -1]).flatmap(
    lambda low: st.tuples(st.integers(1, 7), st.integers(1, 8)).flatmap(
        lambda shape: arrays(np.float64, shape, elements=st.sampled_from([1.0, 1.0, float(low), NAN]))
    )
)
fraction_lists = st.lists(st.floats(0, 1), min_size=1, max_size=4)
seeds = st.integers(0, 2**32 - 1)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_frequent_labels_and_well_labelled_rows_in_every_form(form):
    assert most_frequent_labels(form, 3).tolist() == [1, 3, 0]
    assert most_frequent_labels(form, 5).tolist() == [1, 3, 0, 2, 4]
    assert rows_with_at_least(form, 3).tolist() == [True, False, True, False]
    assert rows_with_at_least(form, 0).all()
    assert not rows_with_at_least(form, 6).any()


def test_tags_count_too():
    tags = [["sky", "sea"], ["sky"], ["tree", "sky", "sea"]]
    assert most_frequent_labels(tags, 2).tolist() == [1, 0]  # sea, sky, tree
    assert rows_with_at_least(tags, 2).tolist() == [True, False, True]


@given(matrices)
def test_counts_are_those_of_a_loop(Y):
    n, m = Y.shape
    counts = [sum(Y[i, k] == 1 for i in range(n)) for k in range(m)]
    assert most_frequent_labels(Y, m).tolist() == sorted(range(m), key=lambda k: (-counts[k], k))
    for k in range(m + 2):
        assert rows_with_at_least(Y, k).tolist() == [sum(Y[i] == 1) >= k for i in range(n)]


@pytest.mark.parametrize("m", [0, 6, -1, 2.0, "all"])
def test_a_wrong_number_of_labels(m):
    with pytest.raises(ValueError, match=f"from 1 to the 5 labels of Y, got {m!r}"):
        most_frequent_labels(Y, m)


@pytest.mark.parametrize("k", [-1, 2.5, None])
def test_a_wrong_number_of_labels_a_row(k):
    with pytest.raises(ValueError, match=f"0 or more, got {k!r}"):
        rows_with_at_least(Y, k)


@given(matrices, fraction_lists, seeds)
def test_every_row_loses_its_share_and_keeps_a_label(Y, fractions, seed):
    cases = remove_labels(Y, fractions, random_state=seed)
    assert [case.fraction for case in cases] == fractions
    for case in cases:
        total = 0
        for before, after, removed in zip(Y, case.Y, case.removed, strict=True):
            a = int((before == 1).sum())
            r = max(min(round(case.fraction * a), a - 1), 0)
            assert removed.sum() == r
            assert (after == 1).sum() == a - r
            assert not a or (after == 1).any()
            total += r
        assert case.realised == pytest.approx(total / max((Y == 1).sum(), 1))


@given(matrices, fraction_lists, seeds)
def test_larger_fractions_remove_what_smaller_ones_did(Y, fractions, seed):
    cases = sorted(remove_labels(Y, fractions, random_state=seed), key=lambda case: case.fraction)
    for less, more in pairwise(cases):
        assert (more.removed >= less.removed).all()


@given(matrices, st.floats(0, 1), seeds)
def test_only_removed_labels_change_and_values_keep_their_meaning(Y, fraction, seed):
    low = -1 if (Y == -1).any() else 0
    for to, value in (("irrelevant", low), ("unknown", NAN)):
        (case,) = remove_labels(Y, [fraction], random_state=seed, to=to)
        expected = Y.copy()
        expected[case.removed] = value
        assert_array_equal(case.Y, expected)
        assert (Y[case.removed] == 1).all()
        assert case.Y.dtype.kind == ("f" if np.isnan(expected).any() else "i")


def test_the_choice_is_the_seeds_alone():
    first, again, other = (remove_labels(np.ones((50, 8)), random_state=seed) for seed in (3, 3, 4))
    unknown = remove_labels(np.ones((50, 8)), random_state=3, to="unknown")
    for a, b, c, d in zip(first[1:], again[1:], other[1:], unknown[1:], strict=True):
        assert_array_equal(a.removed, b.removed)
        assert_array_equal(a.removed, d.removed)
        assert (a.removed != c.removed).any()


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_removal_from_every_form(form):
    low = -1 if form is FORMS["-1 and +1"] else 0
    cases = remove_labels(form, random_state=0)
    assert [case.fraction for case in cases] == [0.0, 0.2, 0.4, 0.6]
    assert_array_equal(cases[0].Y, np.where(Y == 1, 1, low))
    assert not cases[0].removed.any()
    # round(0.6 * (3, 2, 4)) = (2, 1, 2) of 9 labels
    assert_array_equal((cases[3].Y == 1).sum(axis=1), [1, 1, 2, 0])
    assert cases[3].realised == pytest.approx(5 / 9)
    assert isinstance(cases[3].Y, np.ndarray)


def test_every_label_of_a_row_is_as_likely_to_go():
    (case,) = remove_labels(np.ones((6000, 4), dtype=int), [0.5], random_state=0)
    share = case.removed.mean(axis=0)
    # Four standard deviations of a share of 6000 fair draws.
    assert np.abs(share - 0.5).max() < 4 * 0.5 / np.sqrt(6000)
    together = (case.removed[:, 0] & case.removed[:, 1]).mean()
    assert together == pytest.approx(1 / 6, abs=4 * np.sqrt(1 / 6 * 5 / 6 / 6000))


def test_nothing_to_remove():
    (case,) = remove_labels([[0, NAN], [0, 0]], [0.9])
    assert case.realised == 0
    assert_array_equal(case.Y, [[0, NAN], [0, 0]])


@pytest.mark.parametrize("fractions", [[0.2, 1.5], [-0.1], [NAN], [[0.2]]])
def test_wrong_fractions(fractions):
    with pytest.raises(ValueError, match="numbers from 0 to 1, got"):
        remove_labels(Y, fractions)


def test_a_wrong_fate():
    with pytest.raises(ValueError, match="'irrelevant' or 'unknown', got 'gone'"):
        remove_labels(Y, to="gone")
