"""First and second derivatives of the optimal value in the kernel weights, against finite differences."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from problems import bank_of, binary, regression

from kernelweave.machines import SVM, Machine, NuSVM, Ridge

MACHINES = {
    "svm": SVM(1.0),
    "svm without bias": SVM(1.0, fit_intercept=False),
    "svm, weights": SVM(1.0, sample_weight=np.linspace(0.3, 2, 36)),
    "svm, large C": SVM(50.0),
    "nu-svm": NuSVM(0.4),
    "ridge": Ridge(1.0),
    "ridge without bias": Ridge(1.0, fit_intercept=False),
    "ridge, weights": Ridge(1.0, sample_weight=np.linspace(0.3, 2, 36)),
}
WEIGHTS = np.array([0.3, 0.2, 0.1, 0.25, 0.15])


def problem(machine: Machine, columns: int) -> tuple[NDArray, NDArray]:
    Ks, y = regression() if machine.kind == "regressor" else binary()
    turn = np.arange(len(y))
    return Ks, np.stack([y, np.where(turn < 6, -y, y)], axis=1)[:, :columns]


def optimal(machine: Machine, Ks: NDArray, Y: NDArray, b: NDArray) -> tuple[float, NDArray]:
    """J(b) and h(b), as exactly as they go."""
    solution = machine.solve(np.tensordot(b, Ks, axes=1), Y, accuracy=1e-13)
    h = np.array([0.5 * np.sum(solution.coef * (K @ solution.coef)) for K in Ks])
    return 0.5 * (solution.primal + solution.dual), h


@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_derivatives_of_the_optimal_value(machine: Machine, columns: int) -> None:
    Ks, Y = problem(machine, columns)
    K = np.tensordot(WEIGHTS, Ks, axes=1)
    solution = machine.solve(K, Y, accuracy=1e-13)
    H = machine.curvature(K, Y, solution, bank_of(Ks))
    _, h = optimal(machine, Ks, Y, WEIGHTS)
    np.testing.assert_allclose(H, H.T, atol=1e-10 * np.abs(H).max())
    assert np.linalg.eigvalsh(H)[0] >= -1e-9 * np.abs(H).max()
    rng = np.random.default_rng(0)
    step = 2e-6  # short enough that no sample enters or leaves its box
    for _ in range(3):
        d = rng.standard_normal(len(Ks))
        (J_up, h_up), (J_down, h_down) = (optimal(machine, Ks, Y, WEIGHTS + t * step * d) for t in (1, -1))
        assert (J_up - J_down) / (2 * step) == pytest.approx(-h @ d, rel=1e-3, abs=1e-3 * np.abs(h).max())
        np.testing.assert_allclose((h_up - h_down) / (2 * step), -H @ d, rtol=0, atol=1e-3 * np.abs(H @ d).max())


def test_no_free_sample_means_no_curvature() -> None:
    Ks, y = binary()
    machine = SVM(1e-3, fit_intercept=False)
    K = Ks.mean(axis=0)
    solution = machine.solve(K, y[:, None], accuracy=1e-10)
    assert np.all(np.abs(solution.coef) == 1e-3)
    np.testing.assert_array_equal(machine.curvature(K, y[:, None], solution, bank_of(Ks)), 0.0)
