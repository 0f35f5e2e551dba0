"""Branch and bound against fine grids, climbing against random points, and what an oracle proposes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import pdist

from kernelweave.generation import FamilyOracle
from kernelweave.generation.search import BranchAndBound, climb, gradient_steps, largest_cubic, newton_steps
from kernelweave.kernels import FiniteFamily, Gaussian, GaussianFamily, PolynomialFamily
from kernelweave.kernels.energies import Duals, Exponential, GaussianProduct
from kernelweave.kernels.families import all_pieces
from kernelweave.views import Views


def problem(seed=0, n=40, d=3):
    """Samples whose label is the sign of a product, and duals of both sides that sum to zero, (n, 1)."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    y = np.sign(X[:, 0] * X[:, 1])
    v = y * rng.random(n)
    return X, (v - v.mean())[:, None]


def energy_of(seed=0):
    X, V = problem(seed)
    return Exponential(pdist(X, "sqeuclidean"), Duals(V), 30.0)


def value(energy, s):
    P, N = energy.parts(s)
    return P[0] - N[0]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000), st.floats(0.0, 29.0), st.floats(1e-3, 5.0))
def test_bounds_dominate(seed, a, width):
    """Both bounds hold at every point of any interval."""
    energy = energy_of(seed)
    b = a + width
    bound = BranchAndBound(energy, a, b, np.empty(0)).bound(a, b)
    inside = np.linspace(a, b, 101)
    largest = max(value(energy, s) for s in inside)
    assert bound >= largest - 1e-10
    assert energy.parts(a)[0][0] - energy.parts(b)[1][0] >= largest - 1e-10


@settings(max_examples=200, deadline=None)
@given(*(st.floats(-10, 10) for _ in range(3)), st.sampled_from([-3.0, -0.5, 0.2, 2.0]))
def test_largest_cubic(slope, bend, jerk, end):
    x = np.linspace(0, end, 2001)
    values = slope * x + bend * x**2 / 2 + jerk * x**3 / 6
    assert largest_cubic(slope, bend, jerk, end) == pytest.approx(values.max(), abs=1e-4)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("accuracy", [1e-1, 1e-4])
def test_branch_and_bound_finds_the_maximum(seed, accuracy):
    energy = energy_of(seed)
    search = BranchAndBound(energy, 0.0, 30.0, np.array([0.1, 1.0, 5.0]))
    # A level that is never exceeded leaves only the accuracy to stop at.
    bound = search.run(-np.inf, np.inf, accuracy)
    found = max(T for _, T in search.local_maxima())
    largest = max(value(energy, s) for s in np.linspace(0, 30, 10_001))
    assert found >= largest - accuracy
    assert largest <= bound <= found + accuracy + 1e-12


def test_a_better_value_elsewhere_saves_work_and_still_bounds():
    energy = energy_of(1)
    largest = max(value(energy, s) for s in np.linspace(0, 30, 3001))
    alone, beside = (BranchAndBound(energy, 0.0, 30.0, np.empty(0)) for _ in range(2))
    alone.run(-np.inf, np.inf, 1e-3)
    assert beside.run(2 * largest, np.inf, 1e-3) == pytest.approx(2 * largest + 1e-3)
    assert len(beside._parts) < len(alone._parts)


def test_running_out_of_boxes_leaves_a_valid_bound(monkeypatch):
    monkeypatch.setattr("kernelweave.generation.search._MOST_BOXES", 6)
    energy = energy_of(2)
    bound = BranchAndBound(energy, 0.0, 30.0, np.empty(0)).run(-np.inf, np.inf, 1e-9)
    largest = max(value(energy, s) for s in np.linspace(0, 30, 3001))
    assert bound >= largest
    assert bound > largest + 1e-6  # it did stop early


@pytest.mark.parametrize("steps", [gradient_steps, newton_steps])
def test_climbs_end_at_different_maxima_of_the_box(steps):
    X, V = problem()
    energy = GaussianProduct(X, V @ V.T)
    low, high = np.zeros(3), np.full(3, 30.0)
    starts = np.array([[1.0, 1.0, 1.0], [1.0, 1.0, 0.9], [20.0, 0.0, 0.0], [0.0, 0.0, 5.0]])
    found = climb(energy, low, high, starts, steps)
    thetas, values = np.array([theta for theta, _ in found]), np.array([T for _, T in found])
    assert np.all(np.diff(values) <= 0)
    assert np.all((thetas >= low) & (thetas <= high))
    apart = np.abs(thetas[:, None] - thetas[None]).max(axis=2) + np.eye(len(thetas))
    assert apart.min() >= 1e-3
    assert values[0] >= max(energy.value_and_gradient(start)[0] for start in starts)
    for theta, T in found:  # no step inside the box gains in first order
        gradient = energy.value_and_gradient(np.array(theta))[1]
        inward = np.where(np.array(theta) <= 1e-9, np.maximum(gradient, 0), gradient)
        inward = np.where(np.array(theta) >= 30 - 1e-9, np.minimum(inward, 0), inward)
        assert np.abs(inward).max() <= 1e-2 * max(T, 1.0)


@pytest.mark.parametrize("seed", range(4))
def test_newton_steps_end_where_nothing_is_left_to_gain(seed):
    """To many digits, and as high as gradient steps from the same point or at another maximum of the box."""
    X, V = problem(seed, n=50, d=4)
    energy = GaussianProduct(X, V @ V.T)
    low, high = np.zeros(4), np.full(4, 30.0)
    values = []
    for start in np.random.default_rng(seed).uniform(0, 3, (5, 4)):
        theta, value = newton_steps(energy, low, high, start)
        assert np.all((theta >= low) & (theta <= high))
        assert value == energy.value_and_gradient(theta)[0] >= energy.value_and_gradient(start)[0]
        gradient = energy.value_and_gradient(theta)[1]
        left = np.clip(theta + gradient, low, high) - theta
        assert np.abs(left).max() <= 1e-3 * max(value, 1.0)
        values.append((value, gradient_steps(energy, low, high, start)[1]))
    by_newton, by_gradient = np.max(values, axis=0)
    assert by_newton >= by_gradient * (1 - 1e-3)


def oracle_of(family, seed=0):
    X, V = problem(seed)
    return FamilyOracle(all_pieces(family, Views({"x": X})), np.random.default_rng(0)), V


def test_proposals_come_best_first_and_have_the_energies_they_say():
    oracle, V = oracle_of([GaussianFamily("separate"), PolynomialFamily((2,))])
    proposal = oracle.propose(V, [], 4, 0.0, 1e-3)
    assert 1 <= len(proposal.columns) <= 4
    assert np.all(np.diff(proposal.energies) <= 0)
    for column, energy in zip(proposal.columns, proposal.energies, strict=True):
        expected = column.piece.energy(Duals(V)).value_and_gradient(np.array(column.theta))[0]
        assert energy == pytest.approx(expected, rel=1e-10)
    assert proposal.bound == np.inf  # the polynomials have none


def test_one_feature_at_a_time_is_certified():
    """The bound of all features holds for a grid on each."""
    oracle, V = oracle_of(GaussianFamily("separate"))
    X, _ = problem()
    energies = [Exponential(pdist(X[:, [d]], "sqeuclidean"), Duals(V), 30.0) for d in range(3)]
    grid = [value(energy, s) for energy in energies for s in np.linspace(0, 30, 1001)]
    proposal = oracle.propose(V, [], 3, max(grid), 1e-4)
    assert max(grid) <= proposal.bound
    assert proposal.bound <= max(max(grid), proposal.energies[0]) + 2e-4


def test_a_scan_of_all_is_certified_and_of_some_is_not():
    kernels = [Gaussian(gamma=float(s)) for s in np.geomspace(0.01, 10, 15)]
    oracle, V = oracle_of(FiniteFamily(kernels))
    proposal = oracle.propose(V, [], 3, 0.0, 1e-3)
    assert proposal.bound == proposal.energies[0]
    oracle, V = oracle_of(FiniteFamily(kernels, draws=5))
    assert oracle.propose(V, [], 3, 0.0, 1e-3).bound == np.inf


def test_known_parameters_are_priced_again():
    """A climb starts from what was found before, so nothing that was good once is lost."""
    oracle, V = oracle_of(GaussianFamily("product"))
    first = oracle.propose(V, [], 1, 0.0, 1e-3)
    again = oracle.propose(V, first.columns, 1, 0.0, 1e-3)
    assert again.energies[0] >= first.energies[0] * (1 - 1e-6)
