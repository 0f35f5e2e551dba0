"""The squared-hinge machine against its definition, a conic solver, scikit-learn and duplicated rows."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from conic import root, solve
from numpy.typing import NDArray
from problems import bank_of, binary
from sklearn.svm import LinearSVC

import kernelweave as kw
from kernelweave.machines import Solution, SquaredHinge
from kernelweave.machines.hinge_losses import best_intercept
from kernelweave.machines.squared_hinge import Point, WeightedProblem


def problem(n: int = 50, seed: int = 0) -> tuple[NDArray, NDArray]:
    Ks, y = binary(n, seed)
    return 0.7 * Ks[1] + 0.3 * Ks[2], y


def two_weights(n: int, seed: int = 0) -> tuple[NDArray, NDArray]:
    """Samples of all kinds: one weight, the other, both, none."""
    rng = np.random.default_rng(seed)
    plus, minus = rng.uniform(0, 3, (2, n))
    plus[: n // 4], minus[n // 4 : n // 2], plus[-2:], minus[-2:] = 0, 0, 0, 0
    return plus, minus


def primal(K: NDArray, plus: NDArray, minus: NDArray, point: Point) -> float:
    """The objective as it is written."""
    f = K @ point.coef + point.intercept
    loss = plus @ np.maximum(0, 1 - f) ** 2 + minus @ np.maximum(0, 1 + f) ** 2
    return float(0.5 * point.coef @ K @ point.coef + loss)


def conic_value(K: NDArray, plus: NDArray, minus: NDArray, fit_intercept: bool) -> float:
    L = root(K)
    z, b = cp.Variable(L.shape[1]), cp.Variable()
    f = L @ z + (b if fit_intercept else 0.0)
    loss = plus @ cp.square(cp.pos(1 - f)) + minus @ cp.square(cp.pos(1 + f))
    return solve(cp.Problem(cp.Minimize(0.5 * cp.sum_squares(z) + loss)))


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_agrees_with_the_conic_solver(fit_intercept: bool, seed: int) -> None:
    K, _ = problem(40, seed)
    plus, minus = two_weights(40, seed)
    point = WeightedProblem(K, fit_intercept).solve(plus, minus, accuracy=1e-11)
    assert point.gap <= 1e-11 * point.primal
    assert point.primal == pytest.approx(conic_value(K, plus, minus, fit_intercept), rel=1e-7)
    assert point.primal == pytest.approx(primal(K, plus, minus, point), rel=1e-12)


@pytest.mark.parametrize("n", [50, 300])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_optimality_conditions(n: int, fit_intercept: bool) -> None:
    K, _ = problem(n)
    plus, minus = two_weights(n)
    point = WeightedProblem(K, fit_intercept).solve(plus, minus, accuracy=1e-13)
    f = K @ point.coef + point.intercept
    a_plus, a_minus = 2 * plus * np.maximum(0, 1 - f), 2 * minus * np.maximum(0, 1 + f)
    np.testing.assert_allclose(point.coef, a_plus - a_minus, atol=1e-6)
    np.testing.assert_allclose(point.scores, f, atol=1e-10)
    if fit_intercept:
        assert abs(point.coef.sum()) <= 1e-11 * np.abs(point.coef).sum()
    spent = [(a[w > 0] ** 2 / (4 * w[w > 0])).sum() for a, w in ((a_plus, plus), (a_minus, minus))]
    dual = a_plus.sum() + a_minus.sum() - 0.5 * point.coef @ K @ point.coef - sum(spent)
    assert point.dual == pytest.approx(dual, rel=1e-9)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_the_gap_bounds_the_error_wherever_it_stops(fit_intercept: bool) -> None:
    K, _ = problem(300)
    plus, minus = two_weights(300)
    best = WeightedProblem(K, fit_intercept).solve(plus, minus, accuracy=1e-13).primal
    for accuracy in (1.0, 1e-1, 1e-2, 1e-4):
        point = WeightedProblem(K, fit_intercept).solve(plus, minus, accuracy=accuracy)
        assert point.gap <= accuracy * point.primal
        assert point.dual <= best * (1 + 1e-12) and best <= point.primal * (1 + 1e-12)


def test_agrees_with_linear_svc_without_a_bias() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 4))
    y = np.where(X[:, 0] + 0.7 * rng.standard_normal(60) > 0, 1.0, -1.0)
    theirs = LinearSVC(C=0.7, fit_intercept=False, tol=1e-12, dual=False).fit(X, y)
    ours = SquaredHinge(0.7, fit_intercept=False).solve(X @ X.T, y[:, None], accuracy=1e-12)
    np.testing.assert_allclose(X.T @ ours.coef[:, 0], theirs.coef_[0], atol=1e-5)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_two_weights_are_two_rows(fit_intercept: bool) -> None:
    K, _ = problem(40)
    plus, minus = two_weights(40)
    merged = WeightedProblem(K, fit_intercept).solve(plus, minus, accuracy=1e-12)
    twice = np.tile(np.arange(40), 2)
    y = np.repeat([1.0, -1.0], 40)
    machine = SquaredHinge(1.0, fit_intercept, sample_weight=np.concatenate([plus, minus]))
    rows = machine.solve(K[np.ix_(twice, twice)], y[:, None], accuracy=1e-12)
    assert rows.primal == pytest.approx(merged.primal, rel=1e-10)
    np.testing.assert_allclose(rows.coef[:40, 0] + rows.coef[40:, 0], merged.coef, atol=1e-5)


@pytest.mark.parametrize("n", [60, 400])  # below and above the size where old factors are used again
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_a_walk_of_warm_starts_stays_certified(n: int, fit_intercept: bool) -> None:
    """Weights that drift, samples that come and go: always the cold solution."""
    K, _ = problem(n)
    rng = np.random.default_rng(1)
    plus, minus = two_weights(n)
    plus, minus = 30 * plus, 30 * minus
    ours, point = WeightedProblem(K, fit_intercept), None
    for _ in range(8):
        point = ours.solve(plus, minus, point, accuracy=1e-10)
        reference = WeightedProblem(K, fit_intercept).solve(plus, minus, accuracy=1e-12)
        assert point.gap <= 1e-10 * point.primal
        assert point.primal == pytest.approx(reference.primal, rel=2e-10)
        assert point.primal == pytest.approx(primal(K, plus, minus, point), rel=1e-10)
        plus, minus = (w * rng.uniform(0.9, 1.1, n) for w in (plus, minus))
        plus[rng.integers(0, n, 2)], minus[rng.integers(0, n, 2)] = 0.0, 1.0


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("n_left_out", [100, 101, 130])
def test_samples_that_take_turns(fit_intercept: bool, n_left_out: int) -> None:
    """Other samples of the same number, of which some, all or none are new: always their kernel, and their solution."""
    K, y = problem(300)
    rng = np.random.default_rng(n_left_out)
    ours, out, point = WeightedProblem(K, fit_intercept), np.arange(n_left_out), None
    for exchanged in (0, 3, 0, 50, n_left_out, 1):
        here = np.setdiff1d(np.arange(300), out)
        out = np.concatenate([out[exchanged:], rng.choice(here, exchanged, replace=False)])
        cost = np.full(300, 5.0)
        cost[out] = 0.0
        samples, block = ours._block(np.flatnonzero(cost))
        np.testing.assert_array_equal(np.sort(samples), np.flatnonzero(cost))
        ridge = np.diag(np.diag(block) - K[samples, samples])  # of the last solve
        np.testing.assert_allclose(block - ridge, K[np.ix_(samples, samples)], rtol=1e-14)
        plus, minus = np.where(y > 0, cost, 0.0), np.where(y < 0, cost, 0.0)
        point = ours.solve(plus, minus, point, accuracy=1e-10)
        cold = WeightedProblem(K, fit_intercept).solve(plus, minus, accuracy=1e-12)
        assert point.gap <= 1e-10 * point.primal
        assert point.primal == pytest.approx(cold.primal, rel=2e-10)


def test_a_warm_start_saves_steps() -> None:
    K, y = problem(60)
    plus, minus = SquaredHinge(1000.0).weights(y)
    ours = WeightedProblem(K)
    near = ours.solve(plus, minus)
    warm, cold = ours.solve(1.01 * plus, minus, near), ours.solve(1.01 * plus, minus)
    assert warm.steps < cold.steps
    assert warm.primal == pytest.approx(cold.primal, rel=2e-9)


def test_the_same_weights_again_take_no_step() -> None:
    K, y = problem()
    machine = SquaredHinge(2.0)
    first = machine.solve(K, y[:, None], accuracy=1e-10)
    again = machine.solve(K, y[:, None], start=first, accuracy=1e-9)
    assert first.steps > 0 and again.steps == 0
    np.testing.assert_array_equal(again.coef, first.coef)


def test_any_start_will_do() -> None:
    K, y = problem()
    rng = np.random.default_rng(0)
    cold = SquaredHinge(2.0).solve(K, y[:, None], accuracy=1e-11)
    start = Solution(rng.standard_normal((50, 1)), np.array([7.0]), 0.0, 0.0, 0.0)
    warm = SquaredHinge(2.0).solve(K, y[:, None], start=start, accuracy=1e-11)
    assert warm.primal == pytest.approx(cold.primal, rel=1e-10)


def test_columns_are_separate_problems_and_unjudged_samples_are_not_there() -> None:
    K, y = problem()
    part = np.where(np.arange(50) % 3 == 0, 0.0, y)
    machine = SquaredHinge(2.0)
    together = machine.solve(K, np.stack([y, part], axis=1), accuracy=1e-11)
    apart = [machine.solve(K, column[:, None], accuracy=1e-11) for column in (y, part)]
    np.testing.assert_array_equal(together.coef, np.hstack([s.coef for s in apart]))
    assert together.primal == pytest.approx(sum(s.primal for s in apart), rel=1e-12)
    kept = np.flatnonzero(part)
    alone = machine.solve(K[np.ix_(kept, kept)], y[kept, None], accuracy=1e-11)
    assert apart[1].primal == pytest.approx(alone.primal, rel=1e-10)
    assert np.all(apart[1].coef[part == 0] == 0)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_single_precision_kernel(fit_intercept: bool) -> None:
    K, _ = problem(300)
    plus, minus = two_weights(300)
    stored = K.astype(np.float32)
    point = WeightedProblem(stored, fit_intercept).solve(plus, minus, accuracy=1e-9)
    assert point.gap <= 1e-9 * point.primal and point.coef.dtype == np.float64
    assert point.primal == pytest.approx(primal(stored.astype(np.float64), plus, minus, point), rel=1e-10)


@pytest.mark.parametrize("C", [1e-6, 1e6])
def test_extreme_costs(C: float) -> None:
    K, y = problem()
    solution = SquaredHinge(C).solve(K, y[:, None], accuracy=1e-8)
    assert solution.gap <= 1e-8 * solution.primal


def value_of_features(X: NDArray, plus: NDArray, minus: NDArray) -> float:
    """The optimum with a linear kernel and a bias: least squares of the active samples until they stay."""
    rows = np.vstack([np.column_stack([X, np.ones(len(X))]), np.eye(X.shape[1], X.shape[1] + 1)])

    def objective(x: NDArray) -> float:
        f = rows[: len(X)] @ x
        return 0.5 * x[:-1] @ x[:-1] + plus @ np.maximum(0, 1 - f) ** 2 + minus @ np.maximum(0, 1 + f) ** 2

    x = np.zeros(X.shape[1] + 1)
    for _ in range(100):
        f = rows[: len(X)] @ x
        above, below = plus * (f < 1), minus * (f > -1)
        root = np.sqrt(np.append(2 * (above + below), np.ones(X.shape[1])))
        targets = np.append((above - below) / np.maximum(above + below, 1e-300), np.zeros(X.shape[1]))
        step = np.linalg.lstsq(root[:, None] * rows, root * targets, rcond=None)[0] - x
        shares = 0.5 ** np.arange(30.0)
        best = min(shares, key=lambda share: objective(x + share * step))
        if objective(x + best * step) >= objective(x):
            break
        x = x + best * step
    return objective(x)


@pytest.mark.parametrize("C", [1e4, 1e6, 1e8])
@pytest.mark.parametrize("n", [30, 100])
@pytest.mark.parametrize("sure", [True, False])
def test_few_features_and_large_costs(C: float, n: int, sure: bool) -> None:
    """Where 1 / 2w is nothing beside a kernel of low rank, single precision cannot tell how to step."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    positive = X[:, 0] + rng.normal(size=n) > 0
    share = positive.astype(float) if sure else rng.uniform(size=n)
    point = WeightedProblem(X @ X.T).solve(C * share, C * (1 - share), accuracy=1e-8)
    assert point.gap <= 1e-8 * point.primal
    assert point.primal == pytest.approx(value_of_features(X, C * share, C * (1 - share)), rel=1e-6)


def test_large_costs_from_a_solution_of_other_ones() -> None:
    """What other weights left may be worth less than nothing, and its sum of duals is far from zero by rounding."""
    rng = np.random.default_rng(1)
    X = 100 * rng.normal(size=(80, 3))
    problem, start = WeightedProblem(X @ X.T), None
    for _ in range(20):
        plus, minus = 1e3 * rng.uniform(size=(2, 80)) * (rng.random((2, 80)) < 0.7)
        start = problem.solve(plus, minus, start, accuracy=1e-8)
        assert start.gap <= 1e-8 * start.primal
        assert start.primal == pytest.approx(value_of_features(X, plus, minus), rel=1e-6)


@pytest.mark.parametrize("sure", [True, False])
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("n", "d", "C"), [(40, 1, 1e3), (100, 1, 1e4), (100, 3, 1e4)])
def test_kernels_rounded_to_single_precision_and_large_costs(n: int, d: int, C: float, seed: int, sure: bool) -> None:
    """The kernel that is stored is the one to be solved for, though it may be a little indefinite."""
    rng = np.random.default_rng(seed)
    X, share = rng.normal(size=(n, d)), np.round(rng.random(n))
    if not sure:
        share = np.where(rng.random(n) < 0.5, share, rng.random(n))
    point = WeightedProblem((X @ X.T).astype(np.float32)).solve(C * share, C * (1 - share), accuracy=1e-6)
    assert abs(point.gap) <= 1e-6 * point.primal
    assert point.primal == pytest.approx(value_of_features(X, C * share, C * (1 - share)), rel=0.01)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("C", [1e6, 1e7])
def test_labels_without_rhyme_that_cost_much(C: float, seed: int) -> None:
    """Nearly a hard margin, of labels that the kernel must contort itself for."""
    rng = np.random.default_rng(seed)
    X, plus = rng.normal(size=(60, 2)), C * np.round(rng.random(60))
    K = np.exp(-0.5 * np.square(X[:, None] - X).sum(axis=2))
    point = WeightedProblem(K).solve(plus, C - plus, accuracy=1e-6)
    assert abs(point.gap) <= 1e-6 * point.primal


@pytest.mark.parametrize("seed", range(8))
def test_never_worse_than_nothing(seed: int) -> None:
    """Where costs are too large for the precision of the kernel: no duals at all have a gap, too."""
    rng = np.random.default_rng(seed)
    X, share = rng.normal(size=(100, 3)), np.round(rng.random(100))
    problem, C = WeightedProblem((1e3 * X @ X.T).astype(np.float32)), 1e9
    point = problem.solve(C * share, C * (1 - share), accuracy=1e-6)
    assert abs(point.gap) <= 4 * C * share.sum() * (1 - share.mean()) * (1 + 1e-9)


def test_one_class_only() -> None:
    K, _ = problem()
    with_bias = SquaredHinge(1.0).solve(K, np.ones((50, 1)))
    assert with_bias.primal == with_bias.dual == 0.0 and np.all(with_bias.coef == 0)
    assert with_bias.intercept[0] >= 1.0
    without = SquaredHinge(1.0, fit_intercept=False).solve(K, np.ones((50, 1)), accuracy=1e-10)
    assert without.primal == pytest.approx(conic_value(K, np.ones(50), np.zeros(50), False), rel=1e-7)


def test_nothing_to_learn() -> None:
    point = WeightedProblem(np.eye(3)).solve(np.zeros(3), np.zeros(3))
    assert point.primal == point.dual == 0.0 and np.all(point.coef == 0)


@pytest.mark.parametrize("K", [np.zeros((9, 9)), np.full((9, 9), 3.0)], ids=["zero", "constant"])
def test_kernels_that_say_nothing(K: NDArray) -> None:
    """With a bias the best constant is the difference of the class sizes over their sum."""
    y = np.array([1.0, 1, 1, -1, -1, -1, -1, -1, -1])
    solution = SquaredHinge(0.5).solve(K, y[:, None], accuracy=1e-12)
    assert solution.intercept[0] + (K @ solution.coef)[0, 0] == pytest.approx(-1 / 3)
    assert solution.primal == pytest.approx(0.5 * (3 * (4 / 3) ** 2 + 6 * (2 / 3) ** 2))


def test_best_intercept_is_the_minimum() -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        fitted, plus, minus = rng.standard_normal(12) * 3, *rng.uniform(0, 1, (2, 12))
        b = best_intercept(fitted, plus, minus, float(rng.uniform(-20, 20)))
        f = fitted + np.array([b - 1e-4, b, b + 1e-4])[:, None]
        values = (plus * np.maximum(0, 1 - f) ** 2 + minus * np.maximum(0, 1 + f) ** 2).sum(axis=1)
        assert values[1] == values.min()


@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize(
    "machine",
    [
        SquaredHinge(1.0),
        SquaredHinge(1.0, fit_intercept=False),
        SquaredHinge(3.0, sample_weight=np.linspace(0.3, 2, 36)),
    ],
    ids=["bias", "no bias", "weights"],
)
def test_derivatives_of_the_optimal_value(machine: SquaredHinge, columns: int) -> None:
    Ks, y = binary()
    Y = np.stack([y, np.where(np.arange(36) < 6, -y, y)], axis=1)[:, :columns]
    b = np.array([0.3, 0.2, 0.1, 0.25, 0.15])

    def optimal(weights: NDArray) -> tuple[float, NDArray, NDArray]:
        K = np.tensordot(weights, Ks, axes=1)
        solution = machine.solve(K, Y, accuracy=1e-14)
        H = machine.curvature(K, Y, solution, bank_of(Ks))
        return solution.primal, np.array([0.5 * np.sum(solution.coef * (K @ solution.coef)) for K in Ks]), H

    _, h, H = optimal(b)
    rng = np.random.default_rng(0)
    for _ in range(3):
        step = 1e-5 * rng.standard_normal(5)
        (J_up, h_up, _), (J_down, h_down, _) = optimal(b + step), optimal(b - step)
        assert (J_up - J_down) / 2 == pytest.approx(-h @ step, rel=1e-3)
        np.testing.assert_allclose((h_up - h_down) / 2, -H @ step, rtol=0, atol=1e-3 * np.abs(H @ step).max())


@pytest.mark.parametrize("solver", ["newton", "cutting-plane"])
def test_multiple_kernel_learning_with_it(solver: str) -> None:
    Ks, y = binary()
    clf = kw.MKLClassifier("precomputed", weights="l1", solver=solver, machine=SquaredHinge(2.0), tol=1e-5)
    clf.fit(Ks, y)
    assert clf.gap_ <= 1e-5
    L = [root(K) for K in Ks]
    z, b = [cp.Variable(part.shape[1]) for part in L], cp.Variable()
    f = sum(part @ unknown for part, unknown in zip(L, z, strict=True)) + b
    norm = sum(cp.norm(unknown) for unknown in z)
    value = solve(cp.Problem(cp.Minimize(0.5 * cp.square(norm) + 2.0 * cp.sum_squares(cp.pos(1 - cp.multiply(y, f))))))
    assert clf.objective_ == pytest.approx(value, rel=2e-5)


def test_restriction_cuts_the_sample_weights() -> None:
    machine = SquaredHinge(2.0, sample_weight=np.arange(5.0))
    part = machine.restrict(np.array([1, 3]))
    assert part.sample_weight is not None and part.sample_weight.tolist() == [1.0, 3.0]
    assert SquaredHinge(2.0).restrict(np.array([0])) == SquaredHinge(2.0)


def test_classes_may_weigh_differently() -> None:
    K, y = problem()
    by_class = SquaredHinge(1.0, class_weight={1: 3.0}).solve(K, y[:, None], accuracy=1e-11)
    by_sample = SquaredHinge(1.0, sample_weight=np.where(y > 0, 3.0, 1.0)).solve(K, y[:, None], accuracy=1e-11)
    np.testing.assert_array_equal(by_class.coef, by_sample.coef)


@pytest.mark.parametrize("C", [0.0, -1.0, np.nan, np.inf])
def test_refuses_costs_that_are_not_positive(C: float) -> None:
    with pytest.raises(ValueError, match="C must be positive and finite, got"):
        SquaredHinge(C)
