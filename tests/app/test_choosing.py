"""Settings chosen by cross-validation: every picture is judged by a model that has not seen it."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, average_precision_score

import kernelweave as kw
from kernelweave.app import choosing
from kernelweave.app.choosing import (
    Setting,
    all_settings,
    choose,
    few_enough,
    held_out_scores,
    kernel_stack,
    make_folds,
    quality,
    why_nothing,
)
from kernelweave.kernels import Gaussian, KernelBank
from kernelweave.labels import Labels, as_labels

#: The width does not depend on the data, so that kernels of a part are parts of the kernels.
BANK = KernelBank([Gaussian(gamma=0.3)])


@pytest.fixture(scope="module")
def tagged():
    views, Y = kw.datasets.make_tagged_views(n_samples=60, n_labels=5, random_state=0)
    return views, as_labels(Y)


def ranker(kernels, setting, gap):
    return kw.LabelRanker(kernels=kernels, weights=setting.weights, C=setting.C, tol=gap, random_state=0)


def classes(*counts):
    """One class a picture, so many of each."""
    codes = np.repeat(np.arange(len(counts)), counts)
    return Labels(np.where(codes[:, None] == np.arange(len(counts)), 1, -1).astype(np.int8), np.arange(len(counts)))


class Recorder:
    """An estimator that remembers what it was given, and scores with the number of its fit."""

    def __init__(self, fits):
        self.fits = fits

    def fit(self, X, labels):
        self.seen = set(X.tolist())
        self.fits.append(self.seen)
        return self

    def decision_function(self, X):
        assert not self.seen & set(X.tolist())
        return np.full((len(X), 2), float(len(self.fits)))


# --- settings --------------------------------------------------------------------------------------------------------


def test_settings_go_from_simple_to_complex():
    settings = all_settings({"ranker": [3.0, 1.0], "classifier": [5.0]}, ["average", "l2"])
    assert [(setting.method, setting.weights, setting.C) for setting in settings] == [
        ("ranker", "average", 1.0),
        ("ranker", "average", 3.0),
        ("ranker", "l2", 1.0),
        ("ranker", "l2", 3.0),
        ("classifier", "average", 5.0),
        ("classifier", "l2", 5.0),
    ]


def test_quality_is_accuracy_for_classes():
    labels, rng = classes(4, 3, 5), np.random.default_rng(0)
    scores = rng.normal(size=(12, 3))
    expected = accuracy_score(labels.signs.argmax(axis=1), scores.argmax(axis=1))
    assert quality(labels, scores, single=True) == pytest.approx(expected)


def test_quality_is_mean_average_precision_for_labels(tagged):
    _, labels = tagged
    scores = np.random.default_rng(0).normal(size=labels.signs.shape)
    expected = average_precision_score(labels.relevant, scores, average="macro")
    assert quality(labels, scores, single=False) == pytest.approx(expected)


# --- folds -----------------------------------------------------------------------------------------------------------


def test_folds_hold_out_every_picture_once(tagged):
    _, labels = tagged
    folds = make_folds(labels, ranks=True, n_folds=3, random_state=0)
    assert len(folds) == 3
    assert sorted(np.concatenate([held for _, held in folds]).tolist()) == list(range(60))
    assert all(not set(train) & set(held) for train, held in folds)


@pytest.mark.parametrize(("counts", "expected"), [((9, 9), 4), ((9, 3), 3), ((9, 2), 2), ((9, 1, 9), 4)])
def test_a_rare_class_means_fewer_folds(counts, expected):
    """A class of one picture cannot be in every part anyway."""
    folds = make_folds(classes(*counts), ranks=False, n_folds=4, random_state=0)
    assert len(folds) == expected


def test_no_folds_if_a_part_has_nothing_to_learn():
    assert make_folds(classes(1, 1), ranks=False, n_folds=2, random_state=0) == []


def test_why_nothing_can_be_learned():
    same = np.array([[1, -1], [1, -1]], dtype=np.int8)
    unranked = np.array([[1, 1], [-1, -1]], dtype=np.int8)
    assert "no label divides" in why_nothing(same, ranks=False)
    assert "nothing to rank" in why_nothing(unranked, ranks=True)
    assert why_nothing(unranked, ranks=False) == ""


def test_many_pictures_are_sampled_by_number_and_by_memory(monkeypatch):
    labels = classes(60, 30)
    assert few_enough(labels, 10, random_state=0).tolist() == list(range(90))
    monkeypatch.setattr(choosing, "MOST_PICTURES", 30)
    rows = few_enough(labels, 10, random_state=0)
    assert len(set(rows.tolist())) == 30
    assert labels.relevant[rows].sum(axis=0).tolist() == [20, 10]
    monkeypatch.setattr(choosing, "STACK_BYTES", 4 * 10 * 12**2)
    assert len(few_enough(labels, 10, random_state=0)) == 12


# --- held-out scores -------------------------------------------------------------------------------------------------


def test_pictures_are_scored_by_models_that_have_not_seen_them():
    fits: list[set[int]] = []
    labels = classes(6, 6)
    folds = make_folds(labels, ranks=False, n_folds=3, random_state=0)
    scores = held_out_scores(lambda: Recorder(fits), np.arange(12), labels, folds)
    assert [len(seen) for seen in fits] == [8, 8, 8]
    for number, (_, held) in enumerate(folds, start=1):
        assert np.all(scores[held] == number)


def test_scores_from_the_stack_are_those_of_fits_on_the_views(tagged):
    views, labels = tagged
    setting = Setting("ranker", "l1", 1.0)
    folds = make_folds(labels, ranks=True, n_folds=3, random_state=0)
    on_views = held_out_scores(lambda: ranker(BANK, setting, 1e-6), views, labels, folds)
    stack = kernel_stack(BANK, views)
    on_stack = held_out_scores(lambda: ranker("precomputed", setting, 1e-6), stack, labels, folds)
    np.testing.assert_allclose(on_stack, on_views, atol=1e-3 * np.abs(on_views).max())


def test_a_label_without_a_training_picture_is_below_all_others():
    rng = np.random.default_rng(0)
    labels = classes(1, 6, 6)
    views = kw.Views({"x": rng.normal(size=(13, 2)) + 3 * labels.signs[:, 1:]})
    folds = make_folds(labels, ranks=False, n_folds=3, random_state=0)
    scores = held_out_scores(lambda: kw.MKLClassifier(kernels=BANK, weights="average"), views, labels, folds)
    assert scores[0].argmin() == 0


# --- the choice ------------------------------------------------------------------------------------------------------


def test_the_choice_is_the_best_mean_over_the_folds(tagged):
    views, labels = tagged
    folds = make_folds(labels, ranks=True, n_folds=3, random_state=0)
    stack = kernel_stack(BANK, views)
    settings = all_settings({"ranker": [0.01, 1.0]}, ["average", "l1"])
    choice = choose(settings, ranker, stack, labels, folds, single=False)
    assert [(tried.weights, tried.C) for tried in choice.settings] == [(one.weights, one.C) for one in settings]
    assert choice.best.score == max(tried.score for tried in choice.settings)
    by_fold = [
        average_precision_score(labels.relevant[held], choice.held_out[held], average="macro") for _, held in folds
    ]
    assert choice.best.score == pytest.approx(np.mean(by_fold))
    assert choice.best.std == pytest.approx(np.std(by_fold))


def test_of_equal_settings_the_simplest_is_taken(tagged):
    views, labels = tagged
    folds = make_folds(labels, ranks=True, n_folds=2, random_state=0)
    stack = kernel_stack(KernelBank({"useful0": Gaussian()}), views)  # with one kernel all weights are the same
    settings = [Setting("ranker", weights, 1.0) for weights in ("average", "l1", "average")]
    choice = choose(settings, ranker, stack, labels, folds, single=False)
    assert choice.best is choice.settings[0]
