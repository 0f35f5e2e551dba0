"""Generated views keep their promises: useful ones inform, redundant ones copy, noise says nothing about y."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import cross_val_score

from kernelweave.datasets import make_regression_views, make_views


def accuracy(x, y):
    return cross_val_score(LinearDiscriminantAnalysis(), x, y, cv=5).mean()


@pytest.mark.parametrize("make", [make_views, make_regression_views])
def test_names_shapes_and_order(make):
    views, y = make(n_samples=30, n_useful=3, n_redundant=4, n_noise=2, n_features=6, random_state=0)
    assert list(views.names) == (
        [f"useful{k}" for k in range(3)] + [f"redundant{k}" for k in range(4)] + [f"noise{k}" for k in range(2)]
    )
    assert all(views[name].shape == (30, 6) for name in views.names)
    assert y.shape == (30,)


@pytest.mark.parametrize("make", [make_views, make_regression_views])
def test_same_seed_same_data_and_another_seed_other_data(make):
    first, y_first = make(n_samples=40, random_state=7)
    again, y_again = make(n_samples=40, random_state=np.random.RandomState(7))
    other, _ = make(n_samples=40, random_state=8)
    np.testing.assert_array_equal(y_first, y_again)
    for name in first.names:
        np.testing.assert_array_equal(first[name], again[name])
        assert not np.allclose(first[name], other[name])


@pytest.mark.parametrize("n_classes", [2, 3, 7])
def test_classes_are_balanced(n_classes):
    _, y = make_views(n_samples=100, n_classes=n_classes, random_state=0)
    counts = np.bincount(y)
    assert len(counts) == n_classes
    assert counts.max() - counts.min() <= 1


def test_each_useful_view_reaches_the_promised_accuracy_and_together_they_beat_it():
    views, y = make_views(n_samples=4000, n_useful=2, separation=2.0, random_state=0)
    alone = [accuracy(views[name], y) for name in ("useful0", "useful1")]
    together = accuracy(np.hstack([views["useful0"], views["useful1"]]), y)
    assert alone == pytest.approx([norm.cdf(1.0)] * 2, abs=0.025)  # three standard errors and a little
    assert together == pytest.approx(norm.cdf(np.sqrt(2.0)), abs=0.02)


@pytest.mark.parametrize("n_classes", [2, 5])
def test_noise_views_are_at_chance(n_classes):
    views, y = make_views(n_samples=2000, n_noise=3, n_classes=n_classes, random_state=1)
    chance = 1 / n_classes
    spread = 4 * np.sqrt(chance * (1 - chance) / 2000)
    for k in range(3):
        assert accuracy(views[f"noise{k}"], y) == pytest.approx(chance, abs=spread)
    assert accuracy(views["useful0"], y) > chance + 5 * spread


def test_noise_views_look_like_useful_ones():
    views, _ = make_views(n_samples=5000, n_noise=1, separation=4.0, n_features=1, random_state=0)
    # Two clusters four standard deviations apart: variance 1 + 2^2 whether or not they are about y.
    assert views["useful0"].var() == pytest.approx(5.0, rel=0.05)
    assert views["noise0"].var() == pytest.approx(5.0, rel=0.05)


def test_redundant_view_adds_nothing_to_the_one_it_copies():
    views, y = make_views(n_samples=4000, n_useful=2, n_redundant=2, random_state=3)
    for k in (0, 1):
        original, copy = views[f"useful{k}"], views[f"redundant{k}"]
        assert LinearRegression().fit(original, copy).score(original, copy) > 0.7
        assert accuracy(copy, y) > 0.75
        assert accuracy(np.hstack([original, copy]), y) == pytest.approx(accuracy(original, y), abs=0.01)


def test_multilabel_labels_are_learnable_one_by_one():
    views, y = make_views(n_samples=1500, n_classes=4, n_features=8, multilabel=True, separation=3.0, random_state=0)
    assert y.shape == (1500, 4)
    assert set(np.unique(y)) == {0, 1}
    useful = np.hstack([views["useful0"], views["useful1"]])
    for label in range(4):
        assert accuracy(useful, y[:, label]) > 0.85
        assert accuracy(views["noise0"], y[:, label]) == pytest.approx(0.5, abs=0.06)


def test_regression_needs_every_useful_view():
    views, y = make_regression_views(n_samples=1500, n_useful=2, n_features=3, noise=0.1, random_state=0)
    assert y.var() == pytest.approx(2.0, rel=0.15)

    def r2(x):
        return cross_val_score(RandomForestRegressor(30, random_state=0), x, y, cv=3).mean()

    alone, noise = [r2(views["useful0"]), r2(views["useful1"])], r2(views["noise0"])
    together = r2(np.hstack([views["useful0"], views["useful1"]]))
    assert min(alone) > 0.25
    assert max(alone) < 0.55  # the other half of the variance comes from the other view
    assert together > max(alone) + 0.15
    assert noise < 0.02


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_samples": 0}, "n_samples=0"),
        ({"n_useful": 0}, "n_useful=0"),
        ({"n_noise": -1}, "cannot be negative"),
        ({"n_redundant": -2}, "cannot be negative"),
        ({"n_classes": 1}, "n_classes=1"),
        ({"n_features": 0}, "n_features=0"),
        ({"n_samples": 3, "n_classes": 4}, "at least one sample a class"),
    ],
)
def test_make_views_refuses_what_it_cannot_make(arguments, message):
    with pytest.raises(ValueError, match=message):
        make_views(**arguments)


@pytest.mark.parametrize("arguments", [{"noise": -0.1}, {"n_features": 0}, {"n_useful": 0}])
def test_make_regression_views_refuses_what_it_cannot_make(arguments):
    with pytest.raises(ValueError, match="at least"):
        make_regression_views(**arguments)
