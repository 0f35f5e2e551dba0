"""The digits' views are right, informative, and their noise is noise."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsClassifier

from kernelweave.datasets import digits_views


def accuracy(x, y):
    return cross_val_score(KNeighborsClassifier(5), x, y, cv=3).mean()


def test_views_describe_the_digits():
    views, y = digits_views(noise=6, random_state=0)
    digits = load_digits()
    np.testing.assert_array_equal(y, digits.target)
    np.testing.assert_array_equal(views["pixels"] * 16, digits.data)
    assert [views[f"noise{k}"].shape[1] for k in range(6)] == [64, 16, 32, 16, 16, 64]
    image = digits.images[5] / 16
    np.testing.assert_allclose(views["profiles"][5], np.concatenate([image.mean(axis=1), image.mean(axis=0)]))
    np.testing.assert_allclose(views["zones"][5][:2], [image[:2, :2].mean(), image[:2, 2:4].mean()])
    np.testing.assert_allclose(views["frequencies"][5][0], image.sum() / 8)  # the constant coefficient
    for name in ("pixels", "profiles", "gradients", "zones"):
        assert views[name].min() >= 0


def test_gradients_see_the_direction_of_an_edge():
    views, _ = digits_views(noise=0)
    image = load_digits().images[0] / 16
    down, right = np.gradient(image)
    total = np.hypot(down, right).reshape(2, 4, 2, 4).mean(axis=(1, 3)).ravel()
    np.testing.assert_allclose(views["gradients"][0].reshape(4, 8).sum(axis=1), total)
    sector = int((np.arctan2(down[2, 2], right[2, 2]) + np.pi) / (2 * np.pi) * 8) % 8
    assert views["gradients"][0].reshape(4, 8)[0, sector] >= np.hypot(down[2, 2], right[2, 2]) / 16


def test_every_real_view_informs_and_no_noise_view_does():
    views, y = digits_views(noise=5, random_state=0)
    for name in views.names:
        score = accuracy(views[name], y)
        if name.startswith("noise"):
            assert score == pytest.approx(0.1, abs=0.03)
        else:
            assert score > 0.8, name


def test_noise_is_decided_by_the_seed_and_the_real_views_are_not():
    first, _ = digits_views(noise=2, random_state=1)
    again, _ = digits_views(noise=2, random_state=1)
    other, _ = digits_views(noise=2, random_state=2)
    np.testing.assert_array_equal(first["noise1"], again["noise1"])
    assert not np.array_equal(first["noise1"], other["noise1"])
    np.testing.assert_array_equal(first["gradients"], other["gradients"])


def test_negative_noise_is_refused():
    with pytest.raises(ValueError, match="cannot be negative; got -1"):
        digits_views(noise=-1)
