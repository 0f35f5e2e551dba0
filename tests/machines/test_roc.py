"""The ROC-area machine against conic solvers, plain loops over pairs and its own definition."""

from __future__ import annotations

from functools import cache

import cvxpy as cp
import numpy as np
import pytest
from conic import root, support
from conic import solve as solve_conic
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from problems import bank_of, binary, solve
from scipy.optimize import linprog
from sklearn.metrics import roc_auc_score

from kernelweave.machines import SVM, Solution
from kernelweave.machines.roc import ROCArea, _Column
from kernelweave.weights import LpBall, Simplex, WeightSet


def problem(n: int = 40, seed: int = 0) -> tuple[NDArray, NDArray]:
    """One kernel with overlapping classes."""
    Ks, y = binary(n, seed)
    return 0.7 * Ks[1] + 0.3 * Ks[2], y


def columns() -> tuple[NDArray, NDArray]:
    """The five kernels of `binary` and two label columns, the second with entries never judged, (36, 2)."""
    Ks, y = binary()
    turn = np.arange(len(y))
    return Ks, np.stack([y, np.where(turn % 4 == 0, 0.0, np.where(turn < 6, -y, y))], axis=1)


def pairwise_loss(f: NDArray, y: NDArray) -> float:
    """Mean hinge loss over the pairs, one by one."""
    losses = [max(0.0, 1.0 - f[i] + f[j]) for i in np.flatnonzero(y > 0) for j in np.flatnonzero(y < 0)]
    return sum(losses) / max(len(losses), 1)


def in_dual_set(v: NDArray, y: NDArray, C: float) -> bool:
    """Whether pair multipliers with the margins v exist, by a linear program."""
    up, down = v[y > 0], -v[y < 0]
    rows = np.kron(np.eye(len(up)), np.ones(len(down)))
    cols = np.kron(np.ones(len(up)), np.eye(len(down)))
    found = linprog(
        np.zeros(rows.shape[1]),
        A_eq=np.vstack([rows, cols]),
        b_eq=np.concatenate([up, down]),
        bounds=(0, C / (len(up) * len(down))),
    )
    return bool(found.status == 0 and np.all(v[y == 0] == 0))


@cache
def optimum(weight_set: WeightSet, C: float) -> float:
    """The saddle point on `columns`, with one multiplier a pair."""
    Ks, Y = columns()
    linear, constraints, duals = 0.0, [], []
    for y in Y.T:
        positive, negative = np.eye(len(y))[y > 0], np.eye(len(y))[y < 0]
        Z = cp.Variable((len(positive), len(negative)), nonneg=True)
        constraints.append(cp.max(Z) <= C / (len(positive) * len(negative)))
        linear += cp.sum(Z)
        duals.append(positive.T @ cp.sum(Z, axis=1) - negative.T @ cp.sum(Z, axis=0))
    V = cp.vstack(duals).T
    norms = cp.Variable(len(Ks), nonneg=True)
    constraints += [cp.norm(root(K).T @ V, "fro") <= norms[j] for j, K in enumerate(Ks)]
    return solve_conic(cp.Problem(cp.Maximize(linear - support(weight_set, norms, constraints)), constraints))


# --- the optimum -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("C", [0.5, 5.0, 100.0])
def test_linear_kernel_agrees_with_the_primal_in_feature_space(C: float) -> None:
    rng = np.random.default_rng(1)
    y = np.where(np.arange(30) < 9, 1.0, -1.0)
    X = rng.standard_normal((30, 4)) + 0.7 * y[:, None]
    w = cp.Variable(4)
    margins = (X[y > 0] @ w)[:, None] - (X[y < 0] @ w)[None, :]
    value = solve_conic(cp.Problem(cp.Minimize(cp.sum_squares(w) / 2 + C * cp.sum(cp.pos(1 - margins)) / (9 * 21))))
    ours = ROCArea(C).solve(X @ X.T, y[:, None], accuracy=1e-9)
    assert ours.primal == pytest.approx(value, rel=1e-7)
    np.testing.assert_allclose((X.T @ ours.coef)[:, 0], w.value, atol=1e-4)


@pytest.mark.parametrize("C", [1.0, 30.0, 1000.0])
@pytest.mark.parametrize("accuracy", [1e-2, 1e-5, 1e-9])
def test_primal_dual_and_gap_are_what_the_definitions_say(C: float, accuracy: float) -> None:
    K, y = problem()
    solution = ROCArea(C).solve(K, y[:, None], accuracy=accuracy)
    v = solution.coef[:, 0]
    assert in_dual_set(v, y, C)
    assert solution.linear == pytest.approx(v[y > 0].sum(), rel=1e-12)
    assert solution.quadratic == pytest.approx(0.5 * v @ K @ v, rel=1e-10)
    assert solution.loss == pytest.approx(C * pairwise_loss(K @ v, y), rel=1e-9, abs=1e-12 * C)
    assert -1e-14 * C <= solution.gap <= accuracy * solution.primal  # a difference of two sums: rounding has a sign
    assert solution.intercept.tolist() == [0.0]


def test_one_pair_in_closed_form() -> None:
    K = np.array([[2.0, 0.5], [0.5, 1.0]])  # the difference of the two scores is 2 v
    y = np.array([[1.0], [-1.0]])
    np.testing.assert_allclose(ROCArea(10.0).solve(K, y, accuracy=1e-12).coef[:, 0], [0.5, -0.5])
    np.testing.assert_allclose(ROCArea(0.2).solve(K, y, accuracy=1e-12).coef[:, 0], [0.2, -0.2])


def test_no_other_scores_have_a_smaller_objective() -> None:
    """Least pairwise objective of all functions, that of an SVM at any scale among them."""
    K, y = problem(60)
    C = 50.0
    ours = ROCArea(C).solve(K, y[:, None], accuracy=1e-6)
    theirs = SVM(1.0).solve(K, y[:, None], accuracy=1e-6).coef[:, 0]
    for scale in (0.3, 1.0, 3.0):
        v = scale * theirs
        assert ours.dual <= 0.5 * v @ K @ v + C * pairwise_loss(K @ v, y)
    f = K @ ours.coef[:, 0]
    assert pairwise_loss(f, y) >= 1 - roc_auc_score(y, f)  # the hinge is above the error it stands for
    assert roc_auc_score(y, f) > 0.9


def test_separable_classes_at_huge_cost_have_every_pair_in_order() -> None:
    X = np.array([[0.0], [1.0], [3.0], [4.0]])
    y = np.array([-1.0, -1.0, 1.0, 1.0])
    solution = ROCArea(1e6).solve(X @ X.T, y[:, None], accuracy=1e-9)
    assert (X.T @ solution.coef).item() == pytest.approx(0.5, rel=1e-6)
    assert solution.primal == pytest.approx(0.125, rel=1e-6)


def test_a_kernel_that_says_nothing_costs_every_pair() -> None:
    y = np.array([1.0, 1, -1, -1, -1])
    for K in (np.zeros((5, 5)), np.full((5, 5), 3.0)):
        solution = ROCArea(7.0).solve(K, y[:, None], accuracy=1e-9)
        assert solution.primal == pytest.approx(7.0)
        assert solution.gap <= 1e-9 * 7.0


# --- invariants ------------------------------------------------------------------------------------------------------


def scores(K: NDArray, Y: NDArray, C: float = 30.0) -> NDArray:
    return K @ ROCArea(C).solve(K, Y.reshape(len(K), -1), accuracy=1e-11).coef


def test_order_of_samples_and_exchange_of_sides() -> None:
    K, y = problem()
    order = np.random.default_rng(0).permutation(len(y))
    f = scores(K, y)
    np.testing.assert_allclose(scores(K[np.ix_(order, order)], y[order]), f[order], atol=1e-4)
    np.testing.assert_allclose(scores(K, -y), -f, atol=1e-4)


def test_adding_a_constant_to_the_kernel_changes_nothing() -> None:
    K, y = problem()
    plain = ROCArea(30.0).solve(K, y[:, None], accuracy=1e-11)
    shifted = ROCArea(30.0).solve(K + 5.0, y[:, None], accuracy=1e-11)
    assert plain.coef.sum() == pytest.approx(0.0, abs=1e-12)
    assert shifted.primal == pytest.approx(plain.primal, rel=1e-9)
    np.testing.assert_allclose(K @ shifted.coef, K @ plain.coef, atol=1e-4)


def test_kernel_scale_and_cost_trade_off() -> None:
    K, y = problem()
    scaled = ROCArea(30.0).solve(5 * K, y[:, None], accuracy=1e-11)
    costly = ROCArea(150.0).solve(K, y[:, None], accuracy=1e-11)
    assert 5 * scaled.primal == pytest.approx(costly.primal, rel=1e-9)
    np.testing.assert_allclose(5 * K @ scaled.coef, K @ costly.coef, atol=1e-4)


def test_entries_never_judged_are_left_out() -> None:
    K, y = problem()
    judged = np.arange(len(y)) % 3 != 0
    whole = ROCArea(30.0).solve(K, np.where(judged, y, 0.0)[:, None], accuracy=1e-11)
    part = ROCArea(30.0).solve(K[np.ix_(judged, judged)], y[judged, None], accuracy=1e-11)
    assert np.all(whole.coef[~judged] == 0)
    assert whole.primal == pytest.approx(part.primal, rel=1e-10)
    np.testing.assert_allclose(K[judged] @ whole.coef, K[np.ix_(judged, judged)] @ part.coef, atol=1e-4)


def test_columns_are_separate_problems() -> None:
    Ks, Y = columns()
    Y = np.tile(Y, (1, 20))  # more than are solved side by side
    machine = ROCArea(30.0)
    together = machine.solve(Ks[0], Y, accuracy=1e-8)
    apart = [machine.solve(Ks[0], Y[:, [k]], accuracy=1e-8) for k in range(2)]
    expected = Ks[0] @ np.tile(np.hstack([s.coef for s in apart]), 20)
    np.testing.assert_allclose(Ks[0] @ together.coef, expected, atol=2e-3)
    assert together.primal == pytest.approx(20 * sum(s.primal for s in apart), rel=2e-8)
    assert together.dual == pytest.approx(20 * sum(s.dual for s in apart), rel=2e-8)


@pytest.mark.parametrize("column", [np.ones(40), -np.ones(40), np.zeros(40)], ids=["positive", "negative", "unknown"])
def test_a_column_without_pairs_is_zero(column: NDArray) -> None:
    K, y = problem()
    machine = ROCArea(3.0)
    solution = machine.solve(K, np.stack([column, y], axis=1), accuracy=1e-6)
    assert np.all(solution.coef[:, 0] == 0)
    assert solution.primal == pytest.approx(machine.solve(K, y[:, None], accuracy=1e-6).primal, rel=1e-6)
    empty = machine.solve(K, column[:, None])
    assert empty.primal == empty.dual == 0.0
    again = machine.solve(K, np.stack([column, y], axis=1), start=solution, accuracy=1e-6)
    assert again.steps == 0


def test_single_precision_kernel() -> None:
    K, y = problem()
    K32 = K.astype(np.float32)
    exact = ROCArea(30.0).solve(K32.astype(np.float64), y[:, None], accuracy=1e-9)
    ours = ROCArea(30.0).solve(K32, y[:, None], accuracy=1e-7)
    assert ours.coef.dtype == np.float64
    assert ours.primal == pytest.approx(exact.primal, rel=2e-7)
    v = ours.coef[:, 0]
    assert ours.quadratic == pytest.approx(0.5 * v @ K32.astype(np.float64) @ v, rel=1e-12)


def test_restriction_has_nothing_to_cut() -> None:
    assert ROCArea(2.0).restrict(np.arange(3)) == ROCArea(2.0)


@pytest.mark.parametrize("C", [0.0, -1.0, np.inf, np.nan])
def test_refuses_costs_that_are_not_positive(C: float) -> None:
    with pytest.raises(ValueError, match="C must be positive and finite, got"):
        ROCArea(C)


# --- the dual set ----------------------------------------------------------------------------------------------------


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 2**32 - 1), st.booleans())
def test_feasibility_agrees_with_a_linear_program(n_positive: int, n_negative: int, seed: int, inside: bool) -> None:
    rng = np.random.default_rng(seed)
    y = np.repeat([1.0, -1.0, 0.0], [n_positive, n_negative, 1])
    if inside:
        Z = rng.integers(0, 3, (n_positive, n_negative)) / 2
        v = np.concatenate([Z.sum(axis=1), -Z.sum(axis=0), [0.0]])
    else:  # balanced margins with room on every side, but not necessarily for pairs of at most one each
        up = rng.integers(0, n_negative + 1, n_positive).astype(float)
        v = np.concatenate([up, -rng.multinomial(int(up.sum()), np.full(n_negative, 1 / n_negative)), [0.0]])
    C = float(n_positive * n_negative)
    assert _Column(y, C).feasible(v[None] / C) == in_dual_set(v, y, C)
    assert not inside or in_dual_set(v, y, C)


@given(st.integers(0, 2**32 - 1))
def test_the_corner_sees_the_whole_loss_even_with_ties(seed: int) -> None:
    rng = np.random.default_rng(seed)
    y = rng.choice([-1.0, 0.0, 1.0], 12)
    f = rng.integers(-3, 4, 12) / 2  # differences of exactly one, which is where rounding would break a tie
    column = _Column(y, 1.0)
    point = column.corner(f)
    assert point[y > 0].sum() - point @ f == pytest.approx(pairwise_loss(f, y), abs=1e-12)
    assert point.sum() == pytest.approx(0.0, abs=1e-12)
    assert not column.n_pairs or column.feasible(point[None])


# --- warm starts -----------------------------------------------------------------------------------------------------


def test_warm_start_from_the_solution_takes_no_step() -> None:
    K, y = problem()
    first = ROCArea(100.0).solve(K, y[:, None], accuracy=1e-7)
    again = ROCArea(100.0).solve(K, y[:, None], start=first, accuracy=1e-7)
    assert first.steps > 0 and again.steps == 0
    np.testing.assert_allclose(again.coef, first.coef, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("whole", [True, False], ids=["with its points", "duals only"])
def test_warm_start_from_a_near_kernel_is_shorter(whole: bool) -> None:
    K, y = problem(300)
    machine = ROCArea(300.0)
    near = machine.solve(K, y[:, None], accuracy=1e-4)
    other = K + 0.01 * binary(300)[0][0]
    cold = machine.solve(other, y[:, None], accuracy=1e-4)
    start = near if whole else Solution(near.coef, near.intercept, near.linear, near.loss, near.quadratic)
    warm = machine.solve(other, y[:, None], start=start, accuracy=1e-4)
    assert warm.primal == pytest.approx(cold.primal, rel=2e-4)
    assert warm.steps < cold.steps


@pytest.mark.parametrize("C", [3.0, 30.0, 300.0])
def test_warm_start_from_another_cost(C: float) -> None:
    K, y = problem()
    start = ROCArea(30.0).solve(K, y[:, None], accuracy=1e-6)
    warm = ROCArea(C).solve(K, y[:, None], start=start, accuracy=1e-8)
    assert warm.primal == pytest.approx(ROCArea(C).solve(K, y[:, None], accuracy=1e-8).primal, rel=2e-8)
    assert in_dual_set(warm.coef[:, 0], y, C)


def test_infeasible_warm_start_is_ignored() -> None:
    K, y = problem()
    cold = ROCArea(30.0).solve(K, y[:, None], accuracy=1e-8)
    for coef in (-cold.coef, 1000 * cold.coef, np.where(y > 0, 1, 0.5)[:, None] * cold.coef):
        warm = ROCArea(30.0).solve(K, y[:, None], start=Solution(coef, np.zeros(1), 0.0, 0.0, 0.0), accuracy=1e-8)
        np.testing.assert_array_equal(warm.coef, cold.coef)
    other = ROCArea(30.0).solve(K, -y[:, None], start=cold, accuracy=1e-8)
    np.testing.assert_array_equal(other.coef, ROCArea(30.0).solve(K, -y[:, None], accuracy=1e-8).coef)


# --- many kernels ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("C", [3.0, 30.0, 300.0])
def test_derivatives_of_the_optimal_value(C: float) -> None:
    Ks, Y = columns()
    machine, b, step = ROCArea(C), np.array([0.3, 0.2, 0.1, 0.25, 0.15]), 1e-5

    def energies(b: NDArray) -> NDArray:
        V = machine.solve(np.tensordot(b, Ks, axes=1), Y, accuracy=1e-13).coef
        return np.array([0.5 * np.sum(V * (K @ V)) for K in Ks])

    K = np.tensordot(b, Ks, axes=1)
    H = machine.curvature(K, Y, machine.solve(K, Y, accuracy=1e-13), bank_of(Ks))
    numeric = np.stack([(energies(b - step * d) - energies(b + step * d)) / (2 * step) for d in np.eye(5)])
    assert np.abs(numeric).max() > 0
    np.testing.assert_allclose(H, numeric, atol=1e-4 * np.abs(numeric).max())


PAIRINGS = [(name, Simplex()) for name in ("level", "cutting-plane", "mirror-descent", "alternating", "newton")]
PAIRINGS += [(name, LpBall(2.0)) for name in ("level", "cutting-plane", "alternating", "newton")]


@pytest.mark.parametrize("C", [1.0, 30.0])
@pytest.mark.parametrize(("solver", "weight_set"), PAIRINGS, ids=lambda x: x if isinstance(x, str) else repr(x))
def test_solvers_reach_the_conic_optimum(solver: str, weight_set: WeightSet, C: float) -> None:
    saddle = solve(solver, weight_set, ROCArea(C), *columns(), tol=1e-5, max_iter=500)
    expected = optimum(weight_set, C)
    assert saddle.converged
    assert saddle.lower * (1 - 1e-7) <= expected <= saddle.upper * (1 + 1e-7)
