"""Measures of distances against slow loops and scikit-learn, and their pictures."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.metrics import average_precision_score, roc_auc_score

from kernelweave.evaluation import (
    cumulative_match,
    one_gallery_split,
    plot_cumulative_match,
    plot_distances,
    privileged_ratio_curve,
    verification,
)
from kernelweave.metric import PairSet


def scored(n=60, seed=0, levels=None):
    rng = np.random.default_rng(seed)
    similar = np.where(rng.random(n) < 0.4, 1, -1)
    scores = rng.standard_normal(n) + similar
    return (scores if levels is None else np.round(levels * scores) / levels), similar


@pytest.mark.parametrize("levels", [None, 2, 1e-9])
def test_verification_is_what_loops_and_scikit_learn_say(levels):
    scores, similar = scored(levels=levels)
    found = verification(scores, similar)
    together, apart = scores[similar > 0], scores[similar < 0]
    pairs = [(a > b) + 0.5 * (a == b) for a in together for b in apart]
    precisions = [np.mean(similar[scores >= a] > 0) for a in together]
    assert found.auc == pytest.approx(np.mean(pairs), abs=1e-14)
    assert found.average_precision == pytest.approx(np.mean(precisions), abs=1e-14)
    assert found.auc == pytest.approx(roc_auc_score(similar, scores), abs=1e-14)
    assert found.average_precision == pytest.approx(average_precision_score(similar > 0, scores), abs=1e-12)
    assert (found.n_similar, found.n_dissimilar) == (len(together), len(apart))


def test_the_order_of_tied_pairs_does_not_matter():
    similar = np.repeat([1, -1], [3, 7])
    for order in (slice(None), slice(None, None, -1)):
        found = verification(np.zeros(10), similar[order])
        assert (found.average_precision, found.auc) == (0.3, 0.5)
    assert verification(np.zeros(10), similar > 0) == verification(np.zeros(10), similar)


@pytest.mark.parametrize(
    "scores,similar,match",
    [
        ([1.0, 2.0], [1, 1], "all 2 pairs are similar"),
        ([1.0, 2.0], [-1, -1], "all 2 pairs are dissimilar"),
        ([1.0, 2.0], [1, 0], r"got the values \[0, 1\]"),
        ([1.0, np.nan], [1, -1], "1 of 2 do"),
        ([1.0, 2.0, 3.0], [1, -1], r"\(3,\) and \(2,\)"),
        ([[1.0, 2.0]], [[1, -1]], "vectors"),
        ([], [], "all 0 pairs"),
    ],
)
def test_bad_pairs_are_refused(scores, similar, match):
    with pytest.raises(ValueError, match=match):
        verification(scores, similar)


@pytest.mark.parametrize("coarse", [False, True])
def test_cumulative_match_is_what_a_loop_says(coarse):
    rng = np.random.default_rng(0)
    gallery, probes = np.array(["d", "a", "c", "b"]), rng.choice(list("abcd"), 50)
    distances = rng.random((50, 4)) + 0.3 * (probes[:, None] != gallery)
    if coarse:
        distances = np.round(4 * distances)
    ranks = []
    for row, who in zip(distances, probes, strict=True):
        own = row[list(gallery).index(who)]
        ranks.append(1 + sum(d <= own for d, other in zip(row, gallery, strict=True) if other != who))
    expected = [np.mean(np.array(ranks) <= r) for r in (1, 2, 3, 4)]
    np.testing.assert_allclose(cumulative_match(distances, gallery, probes), expected, atol=1e-15)


def test_all_at_the_same_place_are_not_recognised():
    np.testing.assert_array_equal(cumulative_match(np.zeros((3, 4)), range(4), [0, 1, 2]), [0, 0, 0, 1])


@pytest.mark.parametrize(
    "shape,gallery,probes,match",
    [
        ((2, 3), "aab", "ab", "the gallery has 2 pictures of"),
        ((2, 3), "abc", "ax", "are not in the gallery"),
        ((3, 2), "abc", "ab", r"\(2, 3\)"),
        ((0, 3), "abc", "", "at least one"),
    ],
)
def test_galleries_that_cannot_be_searched(shape, gallery, probes, match):
    with pytest.raises(ValueError, match=match):
        cumulative_match(np.zeros(shape), list(gallery), list(probes))
    with pytest.raises(ValueError, match="NaN"):
        cumulative_match([[np.nan]], ["a"], ["a"])


def test_a_gallery_has_everybody_once():
    y = np.repeat(["x", "y", "z", "w"], [5, 1, 3, 2])
    seen = set()
    for seed in range(20):
        gallery, probes = one_gallery_split(y, random_state=seed)
        assert sorted(y[gallery]) == ["w", "x", "y", "z"]
        np.testing.assert_array_equal(np.sort(np.concatenate([gallery, probes])), np.arange(len(y)))
        np.testing.assert_array_equal(gallery, one_gallery_split(y, random_state=seed)[0])
        seen.update(gallery)
    assert seen == set(range(len(y)))
    with pytest.raises(ValueError, match="one sample only"):
        one_gallery_split([1, 2, 3])


class Counting(BaseEstimator):
    """Learns how many pairs had privileged features."""

    def fit_pairs(self, pairs, X, Z):
        self.known_ = pairs.privileged.sum()
        return self


def test_the_curve_knows_the_first_pairs_of_either_kind():
    pairs = PairSet(np.arange(12), np.arange(1, 13), np.repeat([1, -1], [8, 4]))
    model = Counting()
    curve = privileged_ratio_curve(model, pairs, None, None, lambda fitted: fitted.known_)
    np.testing.assert_array_equal(curve, [0, 3, 6, 9, 12])
    assert not hasattr(model, "known_")


# --- pictures ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def plt():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    yield plt
    plt.close("all")


def test_histograms_share_their_bins_and_have_area_one(plt):
    scores, similar = scored(200)
    ax = plot_distances(np.abs(scores), similar, bins=10)
    bars = np.array([[bar.get_x(), bar.get_width(), bar.get_height()] for bar in ax.patches]).reshape(2, 10, 3)
    np.testing.assert_allclose(bars[0, :, :2], bars[1, :, :2])
    np.testing.assert_allclose(np.sum(bars[:, :, 1] * bars[:, :, 2], axis=1), 1.0)
    assert ax.get_xlabel() == "distance"
    given = plt.subplots()[1]
    assert plot_distances(np.abs(scores), similar, ax=given) is given


def test_match_curves_start_at_rank_one(plt):
    ax = plot_cumulative_match({"learned": [0.5, 1.0], "plain": [0.25, 1.0]})
    for line, first in zip(ax.get_lines(), (0.5, 0.25), strict=True):
        np.testing.assert_array_equal(line.get_xdata(), [1, 2])
        assert line.get_ydata()[0] == first
    assert plot_cumulative_match([0.5, 1.0]).get_legend() is None
    with pytest.raises(ValueError, match="no curves"):
        plot_cumulative_match({})
