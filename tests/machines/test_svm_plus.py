"""SVM+ on two kernels against a conic solver, its limits and its certificate."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from conic import root, solve
from problems import gaussian

from kernelweave.machines import SVM
from kernelweave.machines.svm_plus import PlusPoint, solve_plus, take_steps
from kernelweave.machines.svm_plus_interior import interior_point


def problem(n=40, seed=0):
    """Noisy features, the clean ones behind them, and classes."""
    rng = np.random.default_rng(seed)
    y = np.where(rng.permutation(n) < 0.4 * n, 1.0, -1.0)
    clean = rng.standard_normal((n, 6))
    clean[:, :2] += y[:, None]
    return clean + 1.2 * rng.standard_normal((n, 6)), clean, y


def kernels(name, X, Z):
    linear = {"linear": lambda A: A @ A.T, "gaussian": gaussian, "thin": lambda A: A[:, :2] @ A[:, :2].T}
    of_X, of_Z = name.split("+")
    return linear[of_X](X), linear[of_Z](Z)


def primal(K, G, y, C, lam):
    """Optimal value and decision values, written as the books have them."""
    A, B = root(K), root(G)
    w, v, b, rho = cp.Variable(A.shape[1]), cp.Variable(B.shape[1]), cp.Variable(), cp.Variable()
    slack = B @ v + rho
    cost = 0.5 * cp.sum_squares(w) + 0.5 * lam * cp.sum_squares(v) + C * cp.sum(slack)
    value = solve(cp.Problem(cp.Minimize(cost), [slack >= 0, cp.multiply(y, A @ w + b) >= 1 - slack]))
    return value, A @ w.value + b.value


def certified(K, G, y, C, lam, solution):
    """Primal and dual values from the definition alone; raises if one of the points is not feasible."""
    v, e = solution.coef, lam * solution.correction
    a = v * y
    c = e + C - a
    scale = len(y) * C
    assert a.min() >= 0 and c.min() >= -1e-9 * scale
    assert abs(v.sum()) <= 1e-9 * scale and abs(e.sum()) <= 1e-9 * scale
    slack = G @ solution.correction + solution.offset
    assert slack.min() >= -1e-9 * (1 + abs(solution.offset))
    assert np.min(y * (K @ v + solution.intercept) - 1 + slack) >= -1e-9 * (1 + abs(solution.offset))
    size = 0.5 * v @ K @ v + 0.5 / lam * e @ G @ e
    return size + C * slack.sum(), a.sum() - size


@pytest.mark.parametrize("C,lam", [(1.0, 1.0), (10.0, 0.1), (1, 1e-4), (100.0, 1e-2), (0.01, 100)])
@pytest.mark.parametrize("pair", ["gaussian+gaussian", "gaussian+linear", "linear+gaussian", "linear+thin"])
def test_agrees_with_a_conic_solver(pair, C, lam):
    X, Z, y = problem()
    K, G = kernels(pair, X, Z)
    solution = solve_plus(K, G, y, C, lam, accuracy=1e-8)
    value, scores = primal(K, G, y, C, lam)
    assert solution.primal == pytest.approx(value, rel=1e-7)
    assert 0 <= solution.gap <= 1e-8 * solution.primal
    np.testing.assert_allclose(K @ solution.coef + solution.intercept, scores, atol=2e-3 * max(1, np.abs(scores).max()))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("pair,C,lam", [("gaussian+gaussian", 1.0, 0.1), ("gaussian+linear", 10.0, 1e-3)])
def test_the_certificate_is_what_the_definition_says(pair, C, lam, dtype):
    X, Z, y = problem(120)
    K, G = (kernel.astype(dtype) for kernel in kernels(pair, X, Z))
    solution = solve_plus(K, G, y, C, lam, accuracy=1e-4)
    exact = certified(K.astype(np.float64), G.astype(np.float64), y, C, lam, solution)
    np.testing.assert_allclose([solution.primal, solution.dual], exact, rtol=1e-9)
    assert 0 <= solution.gap <= 1e-4 * solution.primal


def test_the_gap_of_any_duals_bounds_the_distance_to_the_optimum():
    X, Z, y = problem()
    K, G = gaussian(X), gaussian(Z)
    optimum = solve_plus(K, G, y, 2.0, 0.5, accuracy=1e-9).primal
    point, seen = PlusPoint(K, G, y, 2.0, 0.5), []
    for _ in range(6):
        seen.append(take_steps(point, 1e-12, budget=1))
        primal_value, dual_value = certified(K, G, y, 2.0, 0.5, point.solution())
        assert dual_value <= optimum * (1 + 1e-8) and optimum <= primal_value * (1 + 1e-8)
    duals = [point.dual for point in seen]
    assert duals[-1] > duals[0]


@pytest.mark.parametrize("pair", ["gaussian+gaussian", "gaussian+linear"])
def test_steps_and_interior_points_meet(pair):
    X, Z, y = problem(60)
    K, G = kernels(pair, X, Z)
    by_steps = take_steps(PlusPoint(K, G, y, 1.0, 1.0), 1e-7, budget=200_000)
    inside = interior_point(PlusPoint(K, G, y, 1.0, 1.0), 1e-7)
    for solution in (by_steps, inside):
        assert 0 <= solution.gap <= 1e-7 * solution.primal
    assert by_steps.primal == pytest.approx(inside.primal, rel=2e-7)


@pytest.mark.parametrize("C,lam", [(1.0, 1.0), (10.0, 1e-3)])
def test_interior_points_end_at_few_support_vectors(C, lam):
    X, Z, y = problem(60)
    K, G = gaussian(X), gaussian(Z)
    solution = interior_point(PlusPoint(K, G, y, C, lam), 1e-4)
    certified(K, G, y, C, lam, solution)
    exact = take_steps(PlusPoint(K, G, y, C, lam), 1e-6, budget=1_000_000)
    assert 0 <= solution.gap <= 1e-4 * solution.primal
    assert np.sum(solution.coef != 0) <= np.sum(exact.coef != 0) + 2 < len(y)


def test_small_lam_gives_the_ordinary_machine():
    X, Z, y = problem(60)
    K = gaussian(X)
    ordinary = SVM(1.0).solve(K, y[:, None], accuracy=1e-10)
    away = []
    for lam in (1e-2, 1e-4, 1e-6):
        solution = solve_plus(K, gaussian(Z, 0.1), y, 1.0, lam, accuracy=1e-9)
        away.append(np.abs(solution.coef - ordinary.coef[:, 0]).max())
        assert solution.primal >= ordinary.primal * (1 - 1e-7)
    assert away[0] > away[1] > away[2] and away[2] < 1e-4


def test_slack_that_may_be_anything_costs_the_more_the_larger_lam():
    X, Z, y = problem()
    values = [solve_plus(gaussian(X), gaussian(Z), y, 1.0, lam, 1e-7).primal for lam in (1e-3, 1e-1, 1e1, 1e3)]
    assert values == sorted(values)


def test_scales_of_kernels_costs_and_lam_are_exchangeable():
    X, Z, y = problem()
    K, G = gaussian(X), gaussian(Z)
    one = solve_plus(K, G, y, 2.0, 0.3, 1e-9)
    # s -> s in a kernel twice as large has half the squared norm; f likewise, with C in proportion.
    two = solve_plus(K, 2.0 * G, y, 2.0, 0.6, 1e-9)
    three = solve_plus(4.0 * K, G, y, 0.5, 0.3 / 4.0, 1e-9)
    for other, factor in ((two, 1.0), (three, 0.25)):
        assert other.primal == pytest.approx(factor * one.primal, rel=1e-7)
        np.testing.assert_allclose(other.coef, factor * one.coef, atol=1e-4 * factor)


def test_order_of_samples_and_swapped_classes():
    X, Z, y = problem()
    K, G = gaussian(X), gaussian(Z)
    one = solve_plus(K, G, y, 1.0, 0.5, 1e-9)
    order = np.random.default_rng(1).permutation(len(y))
    mixed = solve_plus(K[np.ix_(order, order)], G[np.ix_(order, order)], y[order], 1.0, 0.5, 1e-9)
    swapped = solve_plus(K, G, -y, 1.0, 0.5, 1e-9)
    np.testing.assert_allclose(mixed.coef, one.coef[order], atol=1e-4)
    np.testing.assert_allclose(swapped.coef, -one.coef, atol=1e-4)
    assert mixed.intercept == pytest.approx(one.intercept, abs=1e-4)
    assert swapped.intercept == pytest.approx(-one.intercept, abs=1e-4)


@pytest.mark.parametrize("K_rank", [0, 1])
@pytest.mark.parametrize("G_rank", [0, 1])
def test_kernels_of_no_or_one_dimension(K_rank, G_rank):
    rng = np.random.default_rng(0)
    y = np.where(np.arange(20) < 7, 1.0, -1.0)
    K, G = (np.outer(v, v) * rank for v, rank in zip(rng.standard_normal((2, 20)), (K_rank, G_rank), strict=True))
    solution = solve_plus(K, G, y, 1.0, 1.0, 1e-6)
    assert solution.primal == pytest.approx(primal(K, G, y, 1.0, 1.0)[0], rel=1e-5)
    assert 0 <= solution.gap <= 1e-6 * solution.primal


def test_two_samples():
    X = np.array([[0.0], [2.0]])
    solution = solve_plus(X @ X.T, np.eye(2), np.array([-1.0, 1.0]), C=100.0, accuracy=1e-9)
    np.testing.assert_allclose(X @ X.T @ solution.coef + solution.intercept, [-1.0, 1.0], atol=1e-6)
