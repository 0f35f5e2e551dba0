"""Identities in a noisy and in a clean view."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from kernelweave.datasets import make_privileged
from kernelweave.metric import EuclideanMetric, PairSet


def separation(features, y):
    pairs = PairSet.from_classes(y, random_state=0)
    scores = EuclideanMetric().fit(features).score_pairs(features[pairs.first], features[pairs.second])
    return roc_auc_score(pairs.similar, scores)


def test_the_clean_view_tells_identities_apart_and_the_noisy_one_hardly():
    X, Z, y = make_privileged(n_identities=30, random_state=0)
    assert X.shape == (300, 20) and Z.shape == (300, 10)
    np.testing.assert_array_equal(np.bincount(y), np.full(30, 10))
    assert separation(Z, y) > 0.97
    assert 0.5 < separation(X, y) < 0.8


def test_both_views_show_the_same_appearance():
    X, Z, _ = make_privileged(n_identities=40, noise=1e-3, clean_noise=1e-3, nuisance=0.0, random_state=0)
    centred = Z - Z.mean(axis=0)
    best = centred @ np.linalg.lstsq(centred, X - X.mean(axis=0), rcond=None)[0]
    assert np.sum((X - X.mean(axis=0) - best) ** 2) < 1e-2 * np.sum((X - X.mean(axis=0)) ** 2)


def test_seeds_decide():
    for one, same, other in zip(*(make_privileged(random_state=seed) for seed in (0, 0, 1)), strict=True):
        np.testing.assert_array_equal(one, same)
        assert one.dtype == other.dtype
    assert not np.array_equal(make_privileged(random_state=0)[0], make_privileged(random_state=1)[0])


@pytest.mark.parametrize("sizes", [{"n_identities": 1}, {"n_shots": 0}, {"n_features": 4}, {"n_latent": 0}])
def test_sizes_that_make_no_sense(sizes):
    with pytest.raises(ValueError, match="make_privileged needs"):
        make_privileged(**sizes)


def test_no_room_for_nuisance_is_no_nuisance():
    X, _, y = make_privileged(n_features=5, nuisance=100.0, random_state=0)
    assert np.abs(X).max() < 20 and len(X) == len(y)
