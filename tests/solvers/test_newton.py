"""The Newton master by itself: which kernels a step is about, and its model."""

from __future__ import annotations

import numpy as np

from kernelweave.solvers.newton import in_question, minimise_model
from kernelweave.weights import Grouped, LpBall, Simplex


def test_kernels_in_question() -> None:
    b, h = np.array([0.5, 0.5, 0.0, 0.0, 0.0]), np.array([3.0, 1.0, 2.0, 1.0, 0.9])
    np.testing.assert_array_equal(in_question(Simplex(), b, h), [0, 1, 2, 3])  # the last deserves less than any other
    np.testing.assert_array_equal(in_question(LpBall(2.0), b, h), np.arange(5))


def test_kernels_in_question_group_by_group() -> None:
    """A kernel is compared with those of its own group only."""
    weights = Grouped([[0, 1], [2, 3]], r=1)
    chosen = in_question(weights, np.array([1.0, 0.0, 1.0, 0.0]), np.array([9.0, 8.0, 1.0, 2.0]))
    np.testing.assert_array_equal(chosen, [0, 2, 3])


def test_model_leaves_the_others_alone() -> None:
    rng = np.random.default_rng(0)
    A = rng.standard_normal((3, 3))
    H, h, b = A @ A.T + np.eye(3), np.array([2.0, 1.5, 0.1, 1.7]), np.array([0.3, 0.7, 0.0, 0.0])
    kernels = np.array([0, 1, 3])
    z = minimise_model(Simplex(), b, h, H, kernels)

    def model(z: np.ndarray) -> float:
        d = (z - b)[kernels]
        return float(-h[kernels] @ d + 0.5 * d @ H @ d)

    assert z[2] == 0.0
    assert abs(z.sum() - 1.0) < 1e-12
    others = rng.dirichlet(np.ones(3), 2000)
    grid = np.zeros((2000, 4))
    grid[:, kernels] = others
    assert model(z) <= min(model(point) for point in grid) + 1e-6
