"""LabelRanker as users meet it: thresholds, labels that are missing, bad input."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.exceptions import NotFittedError
from sklearn.metrics import f1_score, roc_auc_score

import kernelweave as kw
from kernelweave.evaluation import remove_labels
from kernelweave.machines import MLRL1, SVM, Ridge
from kernelweave.ranking import best_threshold

LOSSES = ["pairwise", "group"]


@pytest.fixture(scope="module")
def tagged():
    return kw.datasets.make_tagged_views(n_samples=120, n_labels=6, n_tags=2.0, random_state=0)


@pytest.fixture(scope="module")
def fitted(tagged):
    return kw.LabelRanker(random_state=0).fit(*tagged)


# --- thresholds ------------------------------------------------------------------------------------------------------


SCORES = st.one_of(st.sampled_from([0.0, 1.0, np.nextafter(1.0, 2.0)]), st.floats(-100, 100))
ENTRIES = st.lists(st.tuples(SCORES, st.sampled_from([-1, 0, 1])), min_size=1)


@given(ENTRIES.filter(lambda entries: any(sign > 0 for _, sign in entries)))
@example([(1.0, 1), (1.0, -1), (1.0, -1), (0.0, 1)])  # cutting between equal scores would be best
@example([(np.nextafter(1.0, 2.0), 1), (1.0, -1)])  # there is no number between
@example([(1.0, 1), (np.nextafter(1.0, 0.0), -1)])
def test_the_threshold_is_the_best_for_f1(entries):
    scores, signs = np.array([score for score, _ in entries]), np.array([sign for _, sign in entries], dtype=np.int8)
    judged = signs != 0

    best = best_f1(signs[judged] > 0, scores[judged])
    given = scores[judged] > best_threshold(scores, signs)
    assert f1(signs[judged] > 0, given) == pytest.approx(best, abs=1e-12)


def f1(relevant, given):
    return 2 * np.sum(relevant & given) / (relevant.sum() + given.sum())


def best_f1(relevant, scores):
    """By trying every threshold."""
    return max(f1(relevant, scores >= threshold) for threshold in scores)


def test_nothing_relevant_has_no_threshold():
    assert best_threshold(np.array([0.3, 0.1]), np.array([-1, -1], dtype=np.int8)) == np.inf
    assert best_threshold(np.array([0.3, 0.1]), np.array([0, 0], dtype=np.int8)) == np.inf


@pytest.mark.parametrize("loss", LOSSES)
def test_thresholds_serve_new_samples(loss):
    views, Y = kw.datasets.make_tagged_views(n_samples=300, n_labels=6, n_tags=2.0, random_state=1)
    ranker = kw.LabelRanker(loss, random_state=0).fit(views[:180], Y[:180])
    T, scores, given = Y[180:], ranker.decision_function(views[180:]), ranker.predict(views[180:])
    assert np.array_equal(given, scores > ranker.thresholds_)
    got = f1_score(T, given, average="macro")
    # The best there is on these very samples, and all labels for all.
    best = np.mean([best_f1(T[:, k] > 0, scores[:, k]) for k in range(6)])
    assert got > 0.9 * best
    assert got > f1_score(T, np.ones_like(T), average="macro") + 0.2


def test_labels_never_relevant_are_reported_and_never_given(tagged):
    views, Y = tagged
    never = Y.copy()
    never[:, 3] = 0
    with pytest.warns(UserWarning, match=r"Label\(s\) 3 are relevant for no training sample"):
        ranker = silently_uninformative(kw.LabelRanker(random_state=0), views, never)
    assert ranker.thresholds_[3] == np.inf
    assert not ranker.predict(views)[:, 3].any()
    assert 3 not in ranker.missing_labels(views, never, top=10**6)["label"]
    assert np.all(np.isfinite(ranker.missing_labels(views, never, top=10**6)["score"]))


def silently_uninformative(ranker, views, Y):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*have no pair.*")
        return ranker.fit(views, Y)


def test_many_labels_are_not_all_listed(tagged):
    views, Y = tagged
    wide = np.hstack([Y, np.zeros((120, 8), dtype=int)])
    with pytest.warns(UserWarning, match=r"Label\(s\) 6, 7, 8, 9, 10 and 3 more are"):
        kw.LabelRanker().fit(views, wide)


def test_the_random_state_decides_the_thresholds_and_nothing_else(tagged, fitted):
    views, Y = tagged
    again = kw.LabelRanker(random_state=0).fit(views, Y)
    other = kw.LabelRanker(random_state=1).fit(views, Y)
    np.testing.assert_array_equal(again.thresholds_, fitted.thresholds_)
    assert np.any(other.thresholds_ != fitted.thresholds_)
    np.testing.assert_array_equal(again.decision_function(views), fitted.decision_function(views))
    np.testing.assert_array_equal(other.decision_function(views), fitted.decision_function(views))


# --- missing labels --------------------------------------------------------------------------------------------------


def share_found(found, removed):
    return removed[found["row"], found["label"]].mean()


@pytest.mark.parametrize("loss", LOSSES)
def test_removed_labels_are_found_among_the_training_samples(loss):
    views, Y = kw.datasets.make_tagged_views(n_samples=200, n_labels=8, random_state=0)
    case = remove_labels(Y, (0.4,), random_state=0)[0]
    ranker = kw.LabelRanker(loss, random_state=0).fit(views, case.Y)
    chance = case.removed.sum() / (case.Y == 0).sum()
    found = ranker.missing_labels(None, case.Y, top=int(case.removed.sum()))
    assert share_found(found, case.removed) > 2.5 * chance
    assert share_found(found[:20], case.removed) > 4 * chance
    # What the model itself says of rows it was told to rank otherwise is much less: that is what None is for.
    own = ranker.missing_labels(views, case.Y, top=int(case.removed.sum()))
    assert share_found(own, case.removed) < share_found(found, case.removed) - 0.1


@pytest.mark.parametrize("loss", LOSSES)
def test_removed_labels_of_new_samples_are_found(loss):
    views, Y = kw.datasets.make_tagged_views(n_samples=300, n_labels=8, random_state=0)
    case = remove_labels(Y, (0.4,), random_state=0)[0]
    ranker = kw.LabelRanker(loss, random_state=0).fit(views[:200], Y[:200])
    removed, left = case.removed[200:], case.Y[200:]
    found = ranker.missing_labels(views[200:], left, top=10**6)
    assert len(found) == (left == 0).sum()
    assert roc_auc_score(removed[found["row"], found["label"]], found["score"]) > 0.85


def test_missing_labels_are_candidates_above_their_thresholds_best_first(fitted, tagged):
    views, Y = tagged
    partly = Y.astype(float)
    partly[::2, 1] = np.nan
    excess = fitted.decision_function(views) - fitted.thresholds_
    found = fitted.missing_labels(views, partly)
    expected = [(i, k) for i, k in np.argwhere(excess > 0).tolist() if partly[i, k] != 1]
    assert sorted(zip(found["row"].tolist(), found["label"].tolist(), strict=True)) == expected
    assert np.isnan(partly[found["row"], found["label"]]).any()
    np.testing.assert_array_equal(found["score"], excess[found["row"], found["label"]])
    assert np.all(np.diff(found["score"]) <= 0)
    assert fitted.missing_labels(views, partly, top=5).tolist() == found[:5].tolist()
    everything = fitted.missing_labels(views, partly, top=10**6)
    assert everything[: len(found)].tolist() == found.tolist()
    assert len(everything) == (partly != 1).sum()
    assert len(fitted.missing_labels(views, np.ones_like(Y))) == 0


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("top", [0, -1, 2.5, 2.0, "two", np.nan, 7])
def test_top_must_be_a_number_of_labels(fitted, tagged, top):
    views, Y = tagged
    for method in (fitted.predict, fitted.tags):
        with pytest.raises(ValueError, match=rf"top .* from 1 to the number of labels, 6, got {top!r}"):
            method(views, top=top)
    if top == 7:
        assert len(fitted.missing_labels(views, Y, top=top)) == 7  # over all rows
    else:
        with pytest.raises(ValueError, match=rf"top .* at least 1, got {top!r}"):
            fitted.missing_labels(views, Y, top=top)


def with_entry(Y, value):
    changed = Y.astype(float)
    changed[3, 1] = value
    return changed


def test_labels_that_cannot_be_read_or_ranked_are_named(tagged):
    views, Y = tagged
    fit = kw.LabelRanker().fit
    for labels, message in (
        (with_entry(Y, -1), "mixes 0 and -1"),
        (with_entry(Y, 3), "row 3, column 1 is 3"),
        (np.full(Y.shape, np.nan), "nothing to rank"),
        (np.ones_like(Y), "nothing to rank"),
        (Y[:-1], "inconsistent numbers of samples"),
        (Y[:, :1] * 0, "only one class: 0"),
        (csr_array(Y[:, :1]), "only one class: 0.*MKLClassifier"),
        (with_entry(Y, np.nan)[:, [1]], "only one class: 0.*MKLClassifier"),
        (pd.DataFrame(with_entry(Y, np.nan)[:, [1]], columns=["sky"]), "only one class: 'sky'.*MKLClassifier"),
        ([["sky"]] * 120, "only one class: 'sky'"),
        ([[1, 0], [1]] * 60, "rows of y differ in length"),
        (Y[None], "must be a label matrix"),
        (None, "requires y"),
        (np.linspace(0, 1, 120), "continuous"),
        (np.where(np.arange(120) < 3, np.nan, 1.0), "NaN"),
    ):
        with pytest.raises(ValueError, match=message), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fit(views, labels)
    with pytest.raises(ValueError, match="at least 2 samples with judged labels"):
        fit(views[:1], [[1, 0]])
    with pytest.raises(ValueError, match="at least 2 samples with judged labels"):
        fit(views[:3], [[np.nan] * 2, [1, 0], [np.nan] * 2])


def test_two_samples_and_two_labels_are_enough(tagged):
    ranker = kw.LabelRanker(random_state=0).fit(tagged[0][:2], [[1, 0], [0, 1]])
    assert ranker.rank(tagged[0][:2]).tolist() == [[0, 1], [1, 0]]
    assert np.all(np.isfinite(ranker.thresholds_))


def test_samples_that_cannot_be_read_are_named(fitted, tagged):
    views, Y = tagged
    arrays = {name: views[name].copy() for name in views.names}
    arrays["useful1"][3, 1] = np.nan
    with pytest.raises(ValueError, match=r"useful1.*row 3"):
        kw.LabelRanker().fit(arrays, Y)
    with pytest.raises(ValueError, match=r"useful1.*row 3"):
        fitted.predict(arrays)
    with pytest.raises(ValueError, match="NaN"):
        kw.LabelRanker().fit(arrays["useful1"], Y)
    with pytest.raises(ValueError, match="useful0"):
        fitted.rank({"useful1": views["useful1"]})


def test_labels_that_do_not_fit_the_model_are_named(fitted, tagged):
    views, Y = tagged
    for labels, message in ((Y[:, :-1], "5 label columns, expected 6"), (Y[:, 0], "label matrix")):
        with pytest.raises(ValueError, match=f"^Y .*{message}"):
            fitted.missing_labels(views, labels)
        with pytest.raises(ValueError, match=f"^y .*{message}"):
            fitted.score(views, labels)
    for X in (views, None):
        with pytest.raises(ValueError, match="same rows, got 120 and 119"):
            fitted.missing_labels(X, Y[:-1])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        fitted.score(views, Y[:-1])
    with pytest.raises(ValueError, match="nothing to score"):
        fitted.score(views, np.zeros_like(Y))
    with pytest.raises(ValueError, match="sample_weight"):
        fitted.score(views, Y, sample_weight=np.ones(3))


def test_settings_that_cannot_work_are_named(tagged):
    for settings, message in (
        ({"loss": "hinge"}, "loss must be 'pairwise' or 'group', got 'hinge'"),
        ({"machine": SVM()}, "ranks labels.*got SVM"),
        ({"machine": Ridge()}, "ranks labels.*got Ridge"),
        ({"machine": "MLRL1"}, "ranks labels.*got 'MLRL1'"),
        ({"machine": MLRL1}, "ranks labels.*got <class"),
        ({"C": 0.0}, "C must be positive"),
        ({"C": np.nan}, "C must be positive"),
        ({"weights": "l0.5"}, "LpBall"),
        ({"solver": "cuttingplane"}, "did you mean 'cutting-plane'"),
        ({"solver": "smo", "weights": "l2"}, r"smo.*hinge.*newton"),
        ({"solver": "mirror-descent", "weights": "l2"}, r"mirror-descent.*LpBall.*alternating"),
        ({"stopping": "soon"}, "stopping"),
        ({"tol": 0.0}, "tol must be positive"),
    ):
        with pytest.raises(ValueError, match=message):
            kw.LabelRanker(**settings).fit(*tagged)


def test_nothing_works_before_fit(tagged):
    views, Y = tagged
    for call in (
        lambda ranker: ranker.predict(views),
        lambda ranker: ranker.rank(views),
        lambda ranker: ranker.tags(views),
        lambda ranker: ranker.score(views, Y),
        lambda ranker: ranker.missing_labels(views, Y),
        lambda ranker: ranker.missing_labels(None, Y),
    ):
        with pytest.raises(NotFittedError):
            call(kw.LabelRanker())
