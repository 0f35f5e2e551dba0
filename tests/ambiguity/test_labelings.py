"""Scenarios against all labellings that their definitions allow."""

from __future__ import annotations

import numpy as np
import pytest
from labelled_problems import all_labelings, bags, kernels, scenarios

from kernelweave.ambiguity.labelings import (
    BagRepresentatives,
    Clustering,
    InstanceBags,
    SemiSupervised,
    Supervised,
    class_shares,
    first_eigenvector,
)

NAMES = list(scenarios())


@pytest.mark.parametrize("name", NAMES)
def test_linear_maximisers_are_exact(name):
    scenario = scenarios()[name]
    every = all_labelings(scenario)
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((60, scenario.n_items)) + rng.choice([-1, 0, 1], size=(60, 1))
    found = scenario.linear_argmax(scores)
    assert found.dtype == np.int8
    np.testing.assert_allclose((found * scores).sum(axis=1), (scores @ every.T).max(axis=1), rtol=1e-12)
    np.testing.assert_array_equal(scenario.linear_argmax(scores[3]), found[3])


@pytest.mark.parametrize("name", NAMES)
def test_what_is_feasible(name):
    """Exactly the labellings of the definition, among all signs that differ from one of them in one or two items."""
    scenario = scenarios()[name]
    every = {tuple(y) for y in all_labelings(scenario).tolist()}
    assert all(scenario.is_feasible(y) for y in every)
    rng = np.random.default_rng(1)
    for y in list(every)[:20]:
        for _ in range(20):
            changed = np.array(y)
            changed[rng.integers(len(y), size=2)] = rng.choice([-1, 0, 1], size=2)
            assert scenario.is_feasible(changed) == (tuple(changed.tolist()) in every)


@pytest.mark.parametrize("name", NAMES)
def test_starts_are_feasible_and_certainty_is_true(name):
    scenario = scenarios()[name]
    assert scenario.is_feasible(scenario.initial(kernels(scenario.n_items).mean(axis=0)))
    assert scenario.is_certain == (len(all_labelings(scenario)) == 1)
    n_units = scenario.n_items if scenario.unit_of is None else scenario.unit_of.max() + 1
    assert scenario.shares.shape == (n_units,)


def test_start_of_semi_supervised_follows_the_labels():
    """Two clouds with a label each: the machine that learned the labels knows the others."""
    X = np.array([-3.0, -3.1, -2.9, -2.8, 3.0, 3.1, 2.9, 2.7])
    y = np.array([-1, 0, 0, 0, 1, 0, 0, 0])
    start = SemiSupervised(y, 0.5).initial(np.outer(X, X))
    np.testing.assert_array_equal(start, np.sign(X))


def test_start_of_clustering_is_the_first_eigenvector():
    K = kernels(12)[0]
    vector = first_eigenvector(K)
    expected = np.linalg.eigh(K)[1][:, -1]
    assert abs(vector @ expected) == pytest.approx(1.0, abs=1e-3)


def test_units_of_representatives():
    scenario = BagRepresentatives(bags([2, 3, 1]), [1, -1, 1])
    np.testing.assert_array_equal(scenario.unit_of, [0, 0, 2, 3, 4, 1])
    np.testing.assert_allclose(scenario.shares, [1, 1, 1 / 3, 1 / 3, 1 / 3])


def test_bags_smaller_than_the_number_of_positives():
    scenario = InstanceBags(bags([1, 4, 2]), [1, 1, -1], positives=3)
    assert scenario.needed == [1, 3]
    assert InstanceBags(bags([1, 4, 2]), [1, 1, -1], positives=0.5).needed == [1, 2]


def test_shares_become_counts():
    y = np.zeros(11)
    y[0] = 1
    assert (SemiSupervised(y, 0.33).low, SemiSupervised(y, 0.33).high) == (3, 3)
    assert (SemiSupervised(y, (0.25, 0.55)).low, SemiSupervised(y, (0.25, 0.55)).high) == (3, 5)
    assert (SemiSupervised(y, (0.31, 0.33)).low, SemiSupervised(y, (0.31, 0.33)).high) == (3, 3)
    odd = Clustering(7, 0)
    assert (odd.low, odd.high) == (3, 4)


def test_sizes_of_clusters_are_symmetric():
    """0.58 * 100 is a little less than 58, which makes no difference; sides exactly as unequal as allowed are."""
    for n in range(2, 130):
        for hundredths in range(100):
            scenario = Clustering(n, hundredths / 100 * n)
            most = max(hundredths * n // 100, n % 2)
            assert scenario.low + scenario.high == n and scenario.is_symmetric
            assert scenario.high - scenario.low == most - (n - most) % 2


@pytest.mark.parametrize("kind", [float, np.float64, np.float32])
def test_shares_in_any_precision(kind):
    for n in (5, 10, 30, 50):
        scenario = InstanceBags(bags([n, 1]), [1, -1], kind(0.6))
        assert scenario.needed == [3 * n // 5]
    assert InstanceBags(bags([4, 1]), [1, -1], kind(1e-7)).needed == [1]  # a positive bag has a positive instance
    assert SemiSupervised(np.zeros(10), kind(0.3)).low == SemiSupervised(np.zeros(10), kind(0.3)).high == 3


@pytest.mark.parametrize(
    ("balance", "shares"),
    [
        ("labelled", (0.25, 0.25)),
        (0.4, (0.4, 0.4)),
        ((0.3, 0.6), (0.3, 0.6)),
        ({"b": 0.4}, (0.4, 0.4)),
        ({"a": (0.2, 0.3)}, (0.7, 0.8)),
        ({"a": 0.6, "b": 0.4}, (0.4, 0.4)),
    ],
)
def test_ways_to_say_the_balance(balance, shares):
    known = np.array([[1, -1, -1, -1, 0, 0]], dtype=np.int8)
    np.testing.assert_allclose(class_shares(balance, ["a", "b"], known)[0], shares)


@pytest.mark.parametrize("balance", [-0.1, 1.1, (0.6, 0.4), (0.1, 0.2, 0.3), np.nan, None, "x", ("a", "b"), {0.5}])
def test_contradictory_balance(balance):
    with pytest.raises(ValueError, match="balance"):
        SemiSupervised([1, -1, 0, 0], balance)


@pytest.mark.parametrize("positives", [0, -1, 1.5, 0.0, True, "one"])
def test_bad_number_of_positives(positives):
    with pytest.raises(ValueError, match="positives"):
        InstanceBags(bags([2, 2]), [1, -1], positives)


def test_bad_scenarios():
    with pytest.raises(ValueError, match="SemiSupervised"):
        Supervised([1, 0, -1])
    with pytest.raises(ValueError, match="beta"):
        Clustering(5, 5)
    with pytest.raises(ValueError, match="no positive bag"):
        InstanceBags(bags([2, 2]), [-1, -1])
    with pytest.raises(ValueError, match="-1 or \\+1"):
        BagRepresentatives(bags([2, 2]), [0, 1])
