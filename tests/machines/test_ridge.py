"""Kernel ridge regression against its closed form, scikit-learn and a conic solver."""

from __future__ import annotations

import numpy as np
import pytest
from conic import optimum
from numpy.typing import NDArray
from problems import regression
from sklearn.kernel_ridge import KernelRidge

from kernelweave.machines import Ridge
from kernelweave.weights import Fixed


def problem(columns: int = 1) -> tuple[NDArray, NDArray]:
    Ks, y = regression(40)
    return 0.5 * Ks[0] + Ks[2], np.stack([y, y**2 - 3, -y], axis=1)[:, :columns]


@pytest.mark.parametrize("C", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_without_bias_agrees_with_sklearn(C: float, weighted: bool) -> None:
    K, Y = problem(3)
    weight = np.linspace(0.5, 2, len(Y)) if weighted else None
    theirs = KernelRidge(alpha=1 / C, kernel="precomputed").fit(K, Y, sample_weight=weight)
    ours = Ridge(C, fit_intercept=False, sample_weight=weight).solve(K, Y)
    np.testing.assert_allclose(K @ ours.coef, theirs.predict(K), rtol=1e-8)
    np.testing.assert_array_equal(ours.intercept, 0.0)


@pytest.mark.parametrize("weighted", [False, True])
def test_with_bias_solves_the_bordered_system(weighted: bool) -> None:
    K, Y = problem(3)
    n = len(Y)
    weight = np.linspace(0.5, 2, n) if weighted else np.ones(n)
    ours = Ridge(5.0, sample_weight=weight).solve(K, Y)
    bordered = np.block([[K + np.diag(1 / (5.0 * weight)), np.ones((n, 1))], [np.ones((1, n)), np.zeros((1, 1))]])
    expected = np.linalg.solve(bordered, np.vstack([Y, np.zeros((1, 3))]))
    np.testing.assert_allclose(ours.coef, expected[:n], atol=1e-9)
    np.testing.assert_allclose(ours.intercept, expected[n], rtol=1e-9)
    np.testing.assert_allclose(ours.coef.sum(axis=0), 0, atol=1e-9)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("C", [0.1, 10.0])
def test_agrees_with_the_conic_solver(fit_intercept: bool, C: float) -> None:
    K, Y = problem(2)
    machine = Ridge(C, fit_intercept=fit_intercept, sample_weight=np.linspace(0.5, 2, len(Y)))
    ours = machine.solve(K, Y)
    expected = optimum(Fixed([1.0]), machine, K[None], Y)
    assert ours.primal == pytest.approx(expected.value, rel=1e-7)
    np.testing.assert_allclose(ours.coef, expected.coef, atol=1e-3)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_primal_and_dual_are_what_the_definitions_say(fit_intercept: bool) -> None:
    K, Y = problem(3)
    weight = np.linspace(0.5, 2, len(Y))
    s = Ridge(5.0, fit_intercept=fit_intercept, sample_weight=weight).solve(K, Y)
    norm = 0.5 * np.sum(s.coef * (K @ s.coef))
    errors = Y - K @ s.coef - s.intercept
    assert s.primal == pytest.approx(norm + 0.5 * np.sum(5.0 * weight[:, None] * errors**2), rel=1e-11)
    assert s.dual == pytest.approx(
        np.sum(s.coef * Y) - 0.5 * np.sum(s.coef**2 / (5.0 * weight[:, None])) - norm, rel=1e-11
    )
    assert abs(s.gap) <= 1e-10 * s.primal


def test_columns_are_separate_problems() -> None:
    K, Y = problem(3)
    together = Ridge(2.0).solve(K, Y)
    apart = [Ridge(2.0).solve(K, Y[:, [k]]) for k in range(3)]
    np.testing.assert_allclose(together.coef, np.hstack([s.coef for s in apart]), rtol=1e-8)
    assert together.primal == pytest.approx(sum(s.primal for s in apart), rel=1e-10)


@pytest.mark.parametrize("n", [40, 700])
def test_single_precision_kernel(n: int) -> None:
    Ks, y = regression(n)
    K32 = Ks[0].astype(np.float32)
    exact = Ridge(2.0).solve(K32.astype(np.float64), y[:, None])
    ours = Ridge(2.0).solve(K32, y[:, None])
    np.testing.assert_allclose(ours.coef, exact.coef, atol=1e-9)
    assert ours.primal == pytest.approx(exact.primal, rel=1e-10)


def test_the_kernel_is_left_alone() -> None:
    K, Y = problem()
    before = K.copy()
    Ridge(2.0).solve(K, Y)
    np.testing.assert_array_equal(K, before)


@pytest.mark.parametrize("K", [np.zeros((6, 6)), np.full((6, 6), 2.0)], ids=["zero", "constant"])
def test_kernels_that_say_nothing_give_the_mean(K: NDArray) -> None:
    y = np.array([1.0, 2, 3, 4, 5, 9])
    s = Ridge(2.0).solve(K, y[:, None])
    np.testing.assert_allclose(K @ s.coef[:, 0] + s.intercept, y.mean())
    assert s.primal == pytest.approx(np.sum((y - y.mean()) ** 2))


def test_one_sample() -> None:
    s = Ridge(2.0).solve(np.array([[3.0]]), np.array([[5.0]]))
    assert s.intercept[0] == pytest.approx(5.0) and s.primal == pytest.approx(0.0)
    s = Ridge(2.0, fit_intercept=False).solve(np.array([[3.0]]), np.array([[5.0]]))
    assert s.coef[0, 0] == pytest.approx(5.0 / 3.5)


def test_restriction_cuts_the_sample_weights() -> None:
    machine = Ridge(2.0, sample_weight=np.arange(1.0, 6.0))
    np.testing.assert_array_equal(machine.restrict(np.array([0, 3])).sample_weight, [1.0, 4.0])
    assert Ridge(2.0).restrict(np.array([0, 3])) == Ridge(2.0)


@pytest.mark.parametrize("C", [0.0, -1.0, np.nan])
def test_refuses_costs_that_are_not_positive(C: float) -> None:
    with pytest.raises(ValueError, match="C must be positive and finite, got"):
        Ridge(C)


@pytest.mark.parametrize("weight", [0.0, -1.0])
def test_refuses_sample_weights_that_are_not_positive(weight: float) -> None:
    with pytest.raises(ValueError, match="positive sample weights"):
        Ridge(1.0, sample_weight=np.array([1.0, weight]))
