"""The Newton master by itself: which kernels a step is about, and its model."""

from __future__ import annotations

import numpy as np
import pytest
from problems import solve

from kernelweave.machines import SVM
from kernelweave.solvers.newton import in_question, minimise_model
from kernelweave.weights import CappedSimplex, ElasticNet, Grouped, LpBall, Simplex, WeightSet


def test_kernels_in_question() -> None:
    b, h = np.array([0.5, 0.5, 0.0, 0.0, 0.0]), np.array([3.0, 1.0, 2.0, 1.0, 0.9])
    np.testing.assert_array_equal(in_question(Simplex(), b, h), [0, 1, 2, 3])  # the last deserves less than any other
    np.testing.assert_array_equal(in_question(LpBall(2.0), b, h), np.arange(5))


def test_kernels_in_question_group_by_group() -> None:
    """A kernel is compared with those of its own group only."""
    weights = Grouped([[0, 1], [2, 3]], r=1)
    chosen = in_question(weights, np.array([1.0, 0.0, 1.0, 0.0]), np.array([9.0, 8.0, 1.0, 2.0]))
    np.testing.assert_array_equal(chosen, [2, 3])  # the first group has nothing to exchange


def test_kernels_in_question_below_a_cap() -> None:
    """At the cap and above all that is below it: nothing to give; without weight and below all that have some: none."""
    b, pull = np.array([0.4, 0.4, 0.2, 0.0, 0.0]), np.array([5.0, 2.0, 3.0, 2.5, 1.0])
    np.testing.assert_array_equal(in_question(CappedSimplex(theta=0.4), b, pull), [1, 2, 3])
    settled = np.array([0.5, 0.5, 0.0, 0.0])
    assert not len(in_question(CappedSimplex(nu=0.5), settled, np.array([3.0, 2.0, 1.0, 0.0])))


def test_model_respects_the_cap_and_the_sum() -> None:
    rng = np.random.default_rng(1)
    A = rng.standard_normal((5, 5))
    H, pull, b = A @ A.T + 0.1 * np.eye(5), np.array([9.0, 1.5, 0.1, 1.7, 1.0]), np.full(5, 0.2)
    weights = CappedSimplex(nu=0.5)
    z = minimise_model(weights, b, pull, H, np.arange(5), 1e-9)
    assert weights.feasible(z) and z[0] == pytest.approx(0.4)
    slope = pull - H @ (z - b)
    best = weights.respond(slope - slope.min())  # stationary: no point of the set lies further along the slope
    assert best @ slope == pytest.approx(z @ slope, abs=1e-6)


def test_model_leaves_the_others_alone() -> None:
    rng = np.random.default_rng(0)
    A = rng.standard_normal((3, 3))
    H, h, b = A @ A.T + np.eye(3), np.array([2.0, 1.5, 0.1, 1.7]), np.array([0.3, 0.7, 0.0, 0.0])
    kernels = np.array([0, 1, 3])
    z = minimise_model(Simplex(), b, h, H, kernels, 1e-8)

    def model(z: np.ndarray) -> float:
        d = (z - b)[kernels]
        return float(-h[kernels] @ d + 0.5 * d @ H @ d)

    assert z[2] == 0.0
    assert abs(z.sum() - 1.0) < 1e-12
    others = rng.dirichlet(np.ones(3), 2000)
    grid = np.zeros((2000, 4))
    grid[:, kernels] = others
    assert model(z) <= min(model(point) for point in grid) + 1e-6


@pytest.mark.parametrize("weight_set", [Simplex(), CappedSimplex(theta=0.4), LpBall(1.2), ElasticNet(10.0)], ids=repr)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_gap_closes_at_a_kink(weight_set: WeightSet, seed: int) -> None:
    """Kernels of rank two on binary features: the machine has many solutions, and no one of them proves the optimum."""
    rng = np.random.default_rng(seed)
    y = np.where(rng.permutation(60) < 30, 1.0, -1.0)
    X = np.where(rng.random((60, 8)) < 0.5 + 0.2 * y[:, None], 1.0, 0.0)
    Ks = np.stack([1 + np.outer(x, x) for x in X.T])
    saddle = solve("newton", weight_set, SVM(0.3), Ks, y, tol=1e-4, max_iter=200)
    assert saddle.converged
