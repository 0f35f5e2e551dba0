"""The compiled dual solver by itself: random boxes and groups, its certificate, its shortcuts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from conic import root
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from problems import binary

from kernelweave.machines import SVM, NuSVM, decomposition
from kernelweave.machines.decomposition import BoxDual, certificate, gradient, maximise, maximise_all

N_GROUPS = (0, 1, 2)


def random_problem(seed: int, n: int, n_groups: int, dtype: Any = np.float64) -> tuple[NDArray, BoxDual, NDArray]:
    """A kernel of random rank and scale, a box around zero with some sides closed, and a feasible point inside."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, rng.integers(1, n + 2))) * 10.0 ** rng.uniform(-2, 2)
    K = (X @ X.T).astype(dtype)
    lower, upper = -rng.exponential(size=n) * (rng.random(n) < 0.8), rng.exponential(size=n) * (rng.random(n) < 0.8)
    side = rng.permutation(n) < max(n // 2, 1)
    groups = {0: np.zeros((0, n), bool), 1: np.ones((1, n), bool), 2: np.stack([side, ~side])}[min(n_groups, n)]
    start = lower + rng.random(n) * (upper - lower)
    return K, BoxDual(rng.standard_normal(n) * 3, lower, upper, groups), start


def value(K: NDArray, problem: BoxDual, v: NDArray) -> float:
    return float(problem.linear @ v - 0.5 * v @ K.astype(float) @ v)


def reference(K: NDArray, problem: BoxDual, start: NDArray) -> float:
    v = cp.Variable(len(K))
    kept = [problem.groups.astype(float) @ v == problem.groups @ start] if len(problem.groups) else []
    objective = cp.Maximize(problem.linear @ v - 0.5 * cp.sum_squares(root(K).T @ v))
    return float(cp.Problem(objective, [v >= problem.lower, v <= problem.upper, *kept]).solve(solver=cp.CLARABEL))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.sampled_from(N_GROUPS))
@example(1, 3, 0)  # a step to the bound ended one rounding error beyond it
@example(10052, 12, 2)  # low rank, large scale: the gap stays where it is for hundreds of rounds
def test_reaches_the_optimum_of_random_problems(seed: int, n: int, n_groups: int) -> None:
    K, problem, start = random_problem(seed, n, n_groups)
    expected = reference(K, problem, start)
    size = 1 + abs(expected)
    result = maximise(K, problem, start, 1e-7 * size)
    reached = value(K, problem, result.v)
    assert 0 <= result.gap <= 1e-7 * size
    assert reached - 1e-6 * size <= expected <= reached + result.gap + 1e-6 * size
    assert np.all((result.v >= problem.lower) & (result.v <= problem.upper))
    np.testing.assert_allclose(problem.groups @ result.v, problem.groups @ start, atol=1e-10)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.sampled_from(N_GROUPS))
def test_certificate_is_the_least_over_all_multipliers(seed: int, n: int, n_groups: int) -> None:
    """The sum is piecewise linear in each multiplier, with its kinks at the g_i: trying them all is enough."""
    K, problem, v = random_problem(seed, n, n_groups)
    g = gradient(K, problem, v)

    def total(shifted: NDArray, up: NDArray, down: NDArray) -> float:
        return float(np.maximum(shifted, 0) @ up + np.maximum(-shifted, 0) @ down)

    up, down = problem.upper - v, v - problem.lower
    least = total(g, up, down)
    if len(problem.groups):
        least = sum(min((total(g[m] - b, up[m], down[m]) for b in g[m]), default=0.0) for m in problem.groups)
    gap, multipliers = certificate(problem, v, g)
    assert gap == pytest.approx(least, rel=1e-9, abs=1e-12)
    assert len(multipliers) == len(problem.groups)


def sorted_certificate(problem: BoxDual, v: NDArray, g: NDArray) -> tuple[float, list[tuple[float, float]]]:
    """The certificate by a full sort, in exact integers: the gap, and a group's interval of optimal multipliers."""
    shifted, intervals = g.copy(), []
    for members in problem.groups:
        judged = np.flatnonzero(members & (problem.lower < problem.upper))
        interval = (0.0, 0.0)
        if len(judged):
            order = judged[np.argsort(g[judged])]
            slope = np.cumsum((problem.upper - problem.lower)[order]) - (problem.upper - v)[order].sum()
            k = int(np.searchsorted(slope, 0.0))
            interval = (float(g[order[k]]), float(g[order[min(k + (slope[k] == 0), len(order) - 1)]]))
        intervals.append(interval)
        shifted[members] -= 0.5 * sum(interval)
    up, down = problem.upper - v, v - problem.lower
    return float(np.maximum(shifted, 0) @ up + np.maximum(-shifted, 0) @ down), intervals


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.sampled_from(N_GROUPS), st.integers(1, 30))
def test_certificate_is_that_of_a_full_sort(seed: int, n: int, n_groups: int, n_values: int) -> None:
    """Whole numbers, so that sums are exact: ties, boxes that are points, samples in no group, flat stretches."""
    rng = np.random.default_rng(seed)
    lower, upper = -rng.integers(0, 3, n).astype(float), rng.integers(0, 3, n).astype(float)
    groups = rng.integers(0, n_groups + 1, n) == np.arange(1, n_groups + 1)[:, None]
    if n_groups == 1:  # as in an SVM: what is outside was never judged
        lower[~groups[0]] = upper[~groups[0]] = 0.0
    v = rng.integers(lower, upper + 1).astype(float)
    g = rng.integers(0, n_values, n).astype(float)
    problem = BoxDual(np.zeros(n), lower, upper, groups)
    gap, multipliers = certificate(problem, v, g)
    expected, intervals = sorted_certificate(problem, v, g)
    assert gap == expected
    np.testing.assert_array_equal(multipliers, [0.5 * sum(interval) for interval in intervals])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_groups", N_GROUPS)
@pytest.mark.parametrize("accuracy", [1e-2, 1e-4])
def test_many_problems_at_once_are_each_problem_by_itself(dtype: Any, n_groups: int, accuracy: float) -> None:
    n = 70
    made = [random_problem(seed, n, n_groups) for seed in range(6)]
    K, problems = made[0][0].astype(dtype), [replace(made[0][1], linear=problem.linear) for _, problem, _ in made]
    starts = np.zeros((6, n))
    together = maximise_all(K, problems, starts, accuracy)
    for problem, start, ours in zip(problems, starts, together, strict=True):
        (alone,) = maximise_all(K, [problem], start[None], accuracy)
        primal = value(K, problem, ours.v) + ours.gap
        assert 0 <= ours.gap <= accuracy * abs(primal)
        gap, _ = certificate(problem, ours.v, gradient(K, problem, ours.v))
        assert ours.gap == pytest.approx(gap, abs=1e-10 * abs(primal))
        assert value(K, problem, ours.v) == pytest.approx(value(K, problem, alone.v), abs=2 * accuracy * abs(primal))
        assert problem.feasible(ours.v, start)


def test_a_start_that_points_the_wrong_way() -> None:
    """Its best multiple is zero, where the optimum of this problem is; a negative one would leave the box."""
    K = np.array([[1.57, -0.84, -0.43], [-0.84, 1.13, 0.28], [-0.43, 0.28, 1.07]])
    problem = BoxDual(
        np.array([-3.62, -0.013, 1.97]),
        np.array([0.0, 0.0, -1.05]),
        np.array([1.47, 1.12, 0.0]),
        np.zeros((0, 3), bool),
    )
    (reached,) = maximise_all(K, [problem], np.array([[0.5, 0.4, -0.3]]), 1e-9)
    np.testing.assert_allclose(reached.v, 0.0, atol=1e-9)
    np.testing.assert_allclose(reached.g, gradient(K, problem, reached.v), atol=1e-12)


def test_problems_that_need_many_steps_go_on_with_shrinking(monkeypatch: pytest.MonkeyPatch) -> None:
    Ks, y = binary(120, 1)
    machine, Y = SVM(100.0), np.stack([y, np.where(np.arange(120) % 60 == 0, 1.0, -1.0)], axis=1)
    plain = machine.solve(Ks[2], Y, accuracy=1e-6)
    finished: list[int] = []
    original = decomposition.maximise

    def spy(K: NDArray, problem: BoxDual, *rest: Any, **named: Any) -> Any:
        finished.append(int((problem.linear > 0).sum()))
        return original(K, problem, *rest, **named)

    monkeypatch.setattr(decomposition, "maximise", spy)
    monkeypatch.setattr(decomposition, "_UNSHRUNK_LEAST", 40)
    handed_over = machine.solve(Ks[2], Y, accuracy=1e-6)
    assert int((y > 0).sum()) in finished
    assert handed_over.gap <= 1e-6 * handed_over.primal
    assert handed_over.primal == pytest.approx(plain.primal, rel=2e-6)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(N_GROUPS))
def test_gap_bounds_the_distance_to_the_optimum_at_every_feasible_point(seed: int, n_groups: int) -> None:
    K, problem, v = random_problem(seed, 8, n_groups)
    gap, _ = certificate(problem, v, gradient(K, problem, v))
    expected = reference(K, problem, v)
    assert gap >= 0
    assert expected <= value(K, problem, v) + gap + 1e-6 * (1 + abs(expected))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_groups", N_GROUPS)
def test_gradient_is_exact_where_the_solver_stops(dtype: Any, n_groups: int) -> None:
    """Thousands of updates later it must still be p - K v of the stored kernel: the certificate is made of it."""
    K, problem, start = random_problem(3, 300, n_groups, dtype)
    result = maximise(K, problem, start, 1e-9)
    exact = problem.linear - K.astype(np.float64) @ result.v
    assert result.steps > 0
    np.testing.assert_allclose(result.g, exact, atol=1e-9 * np.abs(exact).max())


@pytest.mark.parametrize("n_groups", N_GROUPS)
def test_the_start_is_not_overwritten_and_the_value_never_falls(n_groups: int) -> None:
    K, problem, start = random_problem(5, 60, n_groups)
    before = start.copy()
    values = [value(K, problem, start)]
    for steps in (1, 200, 400, 1000):
        values.append(value(K, problem, maximise(K, problem, start, 1e-12, max_steps=steps).v))
    np.testing.assert_array_equal(start, before)
    assert np.all(np.diff(values) >= -1e-10 * np.abs(values[-1]))


@pytest.mark.parametrize("accuracy", [1e-16, 1e-20, 0.0])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_an_accuracy_below_rounding_stops_all_the_same(accuracy: float, fit_intercept: bool) -> None:
    Ks, y = binary()
    solution = SVM(1.0, fit_intercept=fit_intercept).solve(Ks[:2].mean(axis=0), y[:, None], accuracy=accuracy)
    assert solution.gap <= 1e-9 * solution.primal
    assert solution.steps < 100_000


@pytest.mark.parametrize("C", [1.0, 100.0, 1e4])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("accuracy", [1e-3, 1e-5])
def test_the_accuracy_asked_for_is_reached_at_any_cost(C: float, fit_intercept: bool, accuracy: float) -> None:
    """A kernel of low rank on classes that overlap: duals, and the quadratic form, grow with C, the value less so."""
    Ks, y = binary(80, 1)
    solution = SVM(C, fit_intercept=fit_intercept).solve(Ks[2], y[:, None], accuracy=accuracy)
    assert solution.gap <= accuracy * solution.primal


@pytest.mark.parametrize(
    "machine", [SVM(10.0), SVM(10.0, fit_intercept=False), NuSVM(0.3)], ids=["bias", "no bias", "nu"]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_shrinking_changes_nothing_but_the_work(machine: Any, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    Ks, y = binary(600, 2)
    K = (0.6 * Ks[0] + 0.4 * Ks[2]).astype(dtype)
    sizes: list[int] = []
    original = decomposition._run_on_subset

    def spy(K: NDArray, problem: BoxDual, v: NDArray, g: NDArray, active: NDArray, *rest: Any) -> int:
        sizes.append(len(active))
        return original(K, problem, v, g, active, *rest)

    monkeypatch.setattr(decomposition, "_run_on_subset", spy)
    monkeypatch.setattr(decomposition, "_UNSHRUNK_LEAST", 100)
    shrunk = machine.solve(K, y[:, None], accuracy=1e-6)
    assert sizes and max(sizes) < len(y)
    monkeypatch.setattr(decomposition, "_unshrunk", lambda *args: None)
    sizes.clear()
    whole = machine.solve(K, y[:, None], accuracy=1e-6)
    assert not sizes
    assert shrunk.primal == pytest.approx(whole.primal, rel=2e-6)
    K64, coef = K.astype(np.float64), shrunk.coef[:, 0]
    assert shrunk.gap <= 1e-6 * abs(shrunk.primal)
    assert shrunk.quadratic == pytest.approx(0.5 * coef @ K64 @ coef, rel=1e-9)
