"""The simplex machine against scikit-learn's one-class SVM, a conic solver and its own certificate."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from problems import bank_of, binary
from scipy.optimize import minimize_scalar
from sklearn.svm import OneClassSVM

from kernelweave.machines.simplex import SimplexSVM, least_loss

ONES = np.ones((36, 1))


def labelled_kernel(j=0):
    Ks, y = binary()
    return Ks[j] * np.outer(y, y)


def costs(seed=0):
    return np.random.default_rng(seed).choice([0.5, 5.0, 50.0], size=36)


@pytest.mark.parametrize("C", [0.3, 10.0, costs()], ids=["0.3", "10", "mixed"])
@pytest.mark.parametrize("kernel", [0, 2, 4])
def test_is_a_one_class_svm(C, kernel):
    K = labelled_kernel(kernel)
    solution = SimplexSVM(C).solve(K, ONES, accuracy=1e-10)
    ridged = K + np.diag(np.broadcast_to(1 / np.asarray(C), 36))
    theirs = OneClassSVM(kernel="precomputed", nu=1 / 36, tol=1e-10).fit(ridged)
    a = np.zeros(36)
    a[theirs.support_] = theirs.dual_coef_[0]
    np.testing.assert_allclose(solution.coef[:, 0], a / a.sum(), atol=1e-5)


@pytest.mark.parametrize("C", [1.0, costs(1)], ids=["1", "mixed"])
def test_value_of_the_primal_problem(C):
    K = labelled_kernel()
    L = np.linalg.cholesky(K + 1e-10 * np.eye(36))
    w, rho = cp.Variable(36), cp.Variable()
    missed = cp.pos(rho - L @ w)
    value = cp.sum_squares(w) / 2 + cp.sum(cp.multiply(np.broadcast_to(C, 36), cp.square(missed))) / 2 - rho
    best = cp.Problem(cp.Minimize(value)).solve(solver=cp.CLARABEL)
    solution = SimplexSVM(C).solve(K, ONES, accuracy=1e-9)
    assert solution.primal == pytest.approx(best, rel=1e-6)
    assert solution.dual == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("accuracy", [1e-1, 1e-3, 1e-6])
def test_gap_is_what_was_asked_for(accuracy):
    solution = SimplexSVM(costs(2)).solve(labelled_kernel(1), ONES, accuracy=accuracy)
    assert -1e-14 <= solution.gap <= accuracy * abs(solution.primal)
    assert solution.coef.min() >= 0 and solution.coef.sum() == pytest.approx(1.0, abs=1e-14)


def test_warm_start_takes_no_steps():
    K = labelled_kernel()
    cold = SimplexSVM(1.0).solve(K, ONES, accuracy=1e-6)
    warm = SimplexSVM(1.0).solve(K, ONES, start=cold, accuracy=1e-6)
    assert warm.steps == 0 < cold.steps
    np.testing.assert_allclose(warm.coef, cold.coef, atol=1e-12)


def test_large_costs_are_no_ridge():
    """Samples that may not be missed: the duals go to those of the hard margin, and their slack to zero."""
    K = labelled_kernel() + 0.05 * np.eye(36)
    hard = SimplexSVM(1e9).solve(K, ONES, accuracy=1e-8)
    a = hard.coef[:, 0]
    margins = K @ a
    np.testing.assert_allclose(margins[a > 1e-6], margins.min(), rtol=1e-4)
    assert np.all(a / 1e9 < 1e-8)


def test_the_best_margin():
    rng = np.random.default_rng(3)
    for _ in range(20):
        f, C = rng.standard_normal(12), rng.exponential(size=12) * 10.0 ** rng.integers(-2, 3)
        best = minimize_scalar(
            lambda rho, f=f, C=C: 0.5 * C @ np.maximum(rho - f, 0) ** 2 - rho,
            bounds=(f.min(), f.max() + 2 / C.min()),
            method="bounded",
            options={"xatol": 1e-12},
        ).fun
        assert least_loss(f, C) <= best + 1e-12 * abs(best)
        assert least_loss(f, C) == pytest.approx(best, rel=1e-6, abs=1e-9)


def test_curvature_is_the_second_derivative():
    Ks, y = binary()
    Ks = Ks[[0, 1, 3]] * np.outer(y, y)
    machine, bank, b = SimplexSVM(5.0), bank_of(Ks), np.array([0.5, 0.3, 0.2])

    def slope(weights):
        a = machine.solve(np.tensordot(weights, Ks, 1), ONES, accuracy=1e-13).coef
        return -bank.quadratics(a)

    K = np.tensordot(b, Ks, 1)
    H = machine.curvature(K, ONES, machine.solve(K, ONES, accuracy=1e-13), bank)
    step = 1e-5 * np.eye(3)
    expected = np.array([(slope(b + e) - slope(b - e)) / 2e-5 for e in step])
    np.testing.assert_allclose(H, expected, rtol=1e-3, atol=1e-6)


def test_curvature_without_state():
    Ks, y = binary()
    K = Ks[0] * np.outer(y, y)
    machine, bank = SimplexSVM(2.0), bank_of(K[None])
    solution = machine.solve(K, ONES, accuracy=1e-9)
    with_state = machine.curvature(K, ONES, solution, bank)
    solution.state = None
    np.testing.assert_allclose(machine.curvature(K, ONES, solution, bank), with_state, rtol=1e-12)


def test_restricted_costs():
    part = SimplexSVM(np.arange(1.0, 6.0)).restrict(np.array([0, 2]))
    np.testing.assert_array_equal(part.C, [1.0, 3.0])
    assert SimplexSVM(2.0).restrict(np.array([0])).C == 2.0


@pytest.mark.parametrize("C", [0.0, -1.0, np.inf, np.nan, np.ones((2, 2))])
def test_bad_costs(C):
    with pytest.raises(ValueError, match="C must be"):
        SimplexSVM(C)


def test_costs_of_other_samples():
    with pytest.raises(ValueError, match="3 entries for 36"):
        SimplexSVM(np.ones(3)).solve(labelled_kernel(), ONES)
