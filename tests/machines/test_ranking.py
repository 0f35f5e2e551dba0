"""Ranking machines: published values, agreement with conic optima, and what holds for every solution."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import ranking_reference as ref
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from ranking_reference import Ranking, fixture, labelled, stated

from kernelweave.machines import MLRGL, MLRL1, Machine, MLRPairwise, Solution
from kernelweave.machines.ranking import project_balanced_box

#: Every machine that closes its gap.
EXACT = {
    "narrow": MLRL1(1.0),
    "wide": MLRL1(0.3, box="wide"),
    "ridge": MLRL1(1.0, ridge=0.5),
    "ridges": MLRL1(1.0, ridge=np.linspace(0, 2, 20)),
    "pairwise": MLRPairwise(0.3),
    "group": MLRGL(0.5),
}
each_machine = pytest.mark.parametrize("machine", EXACT.values(), ids=EXACT)
#: Scores from the conic solver are about as exact as the root of its tolerance.
CONIC_SCORES = 1e-4


def distance_from_optimum(solution: Solution, K: NDArray) -> float:
    """How far a score can be from the optimal one: 1/2 |f - f*|^2 is at most the gap."""
    return float(np.sqrt(2 * max(solution.gap, 0.0) * K.diagonal().max())) + 1e-9


def check(machine: Machine, K: NDArray, Y: NDArray, solution: Solution, accuracy: float) -> None:
    """Everything that a solution promises, against the definitions."""
    problem = stated(machine)
    B, cap = solution.coef, ref.caps(problem, Y)
    assert B.shape == Y.shape and B.dtype == np.float64
    np.testing.assert_array_equal(solution.intercept, np.zeros(Y.shape[1]))
    assert np.all(B * Y >= 0) and np.all(B[Y == 0] == 0)
    assert np.all(np.abs(B) <= cap * (1 + 1e-12))
    assert np.abs(B.sum(axis=1)).max() <= 1e-9 * problem.C * Y.shape[1]
    primal, dual = ref.primal(problem, K, Y, B), ref.dual(problem, K, Y, B)
    size = max(np.abs(B).sum(), primal)  # of the terms that the values are the sum of
    assert solution.primal == pytest.approx(primal, abs=1e-10 * size)
    assert solution.dual == pytest.approx(dual, abs=1e-10 * size)
    assert solution.quadratic == pytest.approx(0.5 * np.sum(B * (K @ B)), abs=1e-10 * size)
    smooth = 0.5 * np.sum(np.broadcast_to(problem.ridge, len(Y)) @ B**2)
    assert solution.linear == pytest.approx(problem.share * np.abs(B).sum() - smooth, abs=1e-10 * size)
    assert -1e-12 * size <= solution.gap <= accuracy * solution.primal + 1e-12 * size


# --- published values -------------------------------------------------------------------------------------------------

SCORES = np.array(
    [
        [1.021863, 0.571623, -0.615349, -0.978137],
        [0.622875, 0.460360, 0.096512, -1.179747],
        [-0.269075, 0.268143, 0.968981, -0.968049],
        [-0.734754, -0.372335, 1.265246, -0.158158],
        [-0.244397, -0.244397, 0.816603, -0.327808],
    ]
)
DUALS = np.array(
    [
        [0.626643, 1, 1, 0.626643],
        [1, 1, 0, 0],
        [1, 1, 1, 1],
        [0.915682, 1, 0.915682, 1],
        [0.554611, 0.445389, 0, 1],
    ]
)


def test_published_mlr_l1() -> None:
    (K, _), Y = fixture()
    solution = MLRL1(1.0).solve(K, Y, accuracy=1e-12)
    assert solution.primal == pytest.approx(11.481663, abs=1e-6)
    assert solution.dual == pytest.approx(11.481663, abs=1e-6)
    np.testing.assert_allclose(K @ solution.coef, SCORES, atol=1e-6)
    np.testing.assert_allclose(Y * solution.coef, DUALS, atol=2e-6)


def test_published_half_update_is_the_ridge() -> None:
    """As printed: a unit ridge with half the C and twice the scores; its value is that in the stated dual."""
    (K, _), Y = fixture()
    B = 2 * MLRL1(0.5, ridge=np.diag(K)).solve(K, Y, accuracy=1e-12).coef
    np.testing.assert_allclose(B, ref.balanced(Ranking("narrow"), K, Y, sweeps=150, half=True), atol=1e-6)
    assert ref.dual(Ranking("narrow"), K, Y, B) == pytest.approx(11.360831, abs=1e-6)
    np.testing.assert_allclose((K @ B)[0], (1.207915, 0.696349, -0.739240, -1.165024), atol=1e-6)


def test_published_group() -> None:
    (K, _), Y = fixture()
    solution = MLRGL(1.0).solve(K, Y, accuracy=1e-12)
    assert solution.primal == pytest.approx(5.890692, abs=1e-6)
    assert solution.dual == pytest.approx(5.890692, abs=1e-6)
    np.testing.assert_allclose((K @ solution.coef)[0], (0.952831, 0.349056, -0.650944, -0.650944), atol=1e-6)


def test_published_group_with_eta() -> None:
    (K, _), Y = fixture()
    solution = MLRGL(1.0, eta=2.0).solve(K, Y, accuracy=1e-10)
    assert solution.state.extra["monitor"][-1] == pytest.approx(4.510414, abs=1e-6)
    assert solution.primal == pytest.approx(6.884554, abs=1e-6)
    assert solution.dual == pytest.approx(5.247417, abs=1e-6)
    np.testing.assert_allclose((K @ solution.coef)[0], (0.967840, 0.203649, -0.427620, -0.743869), atol=1e-6)


def test_published_sandwich() -> None:
    (K, _), Y = fixture()
    machines = (MLRL1(1.0), MLRPairwise(1.0), MLRL1(1.0, box="wide"))
    values = [machine.solve(K, Y, accuracy=1e-10).dual for machine in machines]
    assert values == pytest.approx([11.481663, 17.241439, 17.262950], abs=1e-6)


# --- optima -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unknown", [0.0, 0.3])
@each_machine
def test_agrees_with_the_conic_optimum(machine: Machine, unknown: float) -> None:
    Ks, Y = labelled(unknown=unknown)
    for K in (Ks[0], Ks[2]):  # the second one is linear, of rank four
        expected = ref.conic_primal(stated(machine), K, Y)
        solution = machine.solve(K, Y, accuracy=1e-8)
        check(machine, K, Y, solution, 1e-8)
        assert solution.primal == pytest.approx(expected.value, rel=1e-7)
        scores = stated(machine).ridged(K) @ solution.coef
        np.testing.assert_allclose(scores, expected.scores, atol=distance_from_optimum(solution, K) + CONIC_SCORES)


@pytest.mark.parametrize("accuracy", [0.3, 1e-2, 1e-5, 1e-9])
@each_machine
def test_values_are_what_the_definitions_say(machine: Machine, accuracy: float) -> None:
    Ks, Y = labelled(unknown=0.1, seed=1)
    check(machine, Ks[1], Y, machine.solve(Ks[1], Y, accuracy=accuracy), accuracy)


@pytest.mark.parametrize("C", [1e-3, 0.1, 10.0, 1e3])
@pytest.mark.parametrize("name", ["narrow", "wide", "pairwise", "group"])
def test_small_and_large_costs(name: str, C: float) -> None:
    machine = {
        "narrow": MLRL1(C),
        "wide": MLRL1(C, box="wide"),
        "pairwise": MLRPairwise(C),
        "group": MLRGL(C),
    }[name]
    Ks, Y = labelled(n=12, m=4, seed=2)
    solution = machine.solve(Ks[0], Y, accuracy=1e-4)
    check(machine, Ks[0], Y, solution, 1e-4)
    expected = ref.conic_dual(stated(machine), Ks[0], Y).value
    assert solution.dual * (1 - 1e-7) <= expected <= solution.primal * (1 + 1e-7)


@st.composite
def small_problems(draw: st.DrawFn) -> tuple[NDArray, NDArray, float]:
    n, m = draw(st.integers(1, 12)), draw(st.integers(2, 6))
    C = 10 ** draw(st.floats(-3, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    X = rng.standard_normal((n, 3))
    kind = draw(st.sampled_from(["gaussian", "linear", "zero rows", "repeated", "scaled"]))
    if kind == "repeated":
        X = X[rng.integers(0, n, n)]
    K = X @ X.T if kind == "linear" or n == 1 else np.exp(-((X[:, None] - X[None]) ** 2).sum(axis=2))
    if kind == "zero rows":
        K = K * np.outer(*2 * [rng.random(n) < 0.7])
    if kind == "scaled":
        K = K * np.outer(*2 * [10 ** rng.uniform(-1, 1, n)])
    Y = np.where(rng.random((n, m)) < draw(st.sampled_from([0.2, 0.5, 0.8])), 1.0, -1.0)
    Y[rng.random((n, m)) < draw(st.sampled_from([0.0, 0.2, 0.6]))] = 0.0
    return K, Y, C


@settings(max_examples=25)
@given(small_problems(), st.sampled_from(["narrow", "wide", "ridge", "pairwise", "group"]))
def test_random_problems_agree_with_the_conic_optimum(drawn: tuple[NDArray, NDArray, float], name: str) -> None:
    K, Y, C = drawn
    machine = {
        "narrow": MLRL1(C),
        "wide": MLRL1(C, box="wide"),
        "ridge": MLRL1(C, ridge=0.3),
        "pairwise": MLRPairwise(C),
        "group": MLRGL(C),
    }[name]
    solution = machine.solve(K, Y, accuracy=1e-3)
    check(machine, K, Y, solution, 1e-3)
    expected = ref.conic_dual(stated(machine), K, Y).value
    rounding = 1e-6 * abs(expected) + 1e-7
    assert solution.dual - rounding <= expected <= solution.primal + rounding


# --- what holds at the optimum ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("box", ["narrow", "wide"])
@pytest.mark.parametrize("C", [0.1, 1.0, 10.0])
def test_optimality_conditions_of_the_balanced_box(box: str, C: float) -> None:
    Ks, Y = labelled(unknown=0.1)
    K, machine = Ks[0], MLRL1(C, box=box)
    solution = machine.solve(K, Y, accuracy=1e-11)
    F, cap = K @ solution.coef, ref.caps(stated(machine), Y)
    slack = 2 * distance_from_optimum(solution, K)
    for i in np.flatnonzero(cap.any(axis=1)):
        low, high = ref.threshold_interval(F[i], np.abs(solution.coef[i]), Y[i], cap[i], near=1e-6 * C)
        assert low <= high + slack


def test_optimality_conditions_of_pairs() -> None:
    """A label whose every pair is in order has no dual; one whose every pair is an error has the largest."""
    Ks, Y = labelled(seed=3)
    K, machine = Ks[1], MLRPairwise(0.5)
    solution = machine.solve(K, Y, accuracy=1e-11)
    F, slack = K @ solution.coef, 2 * distance_from_optimum(solution, K)
    seen = {"none": 0, "all": 0}
    for i, y in enumerate(Y):
        P, N = ref.sides(y)
        for p in P:
            errors = 2 - F[i, p] + F[i, N]
            if len(N) and np.all(errors < -slack):
                assert solution.coef[i, p] == pytest.approx(0, abs=1e-6)
                seen["none"] += 1
            if len(N) and np.all(errors > slack):
                assert solution.coef[i, p] == pytest.approx(0.5 * len(N), abs=1e-6)
                seen["all"] += 1
    assert min(seen.values()) > 0


def test_optimality_conditions_of_groups() -> None:
    """The multipliers of a group in error point along its errors, and have length C; those in order are zero."""
    Ks, Y = labelled(seed=3)
    K, machine = Ks[1], MLRGL(0.5)
    solution = machine.solve(K, Y, accuracy=1e-12)
    F, slack = K @ solution.coef, 10 * distance_from_optimum(solution, K)
    seen = 0
    for i, y in enumerate(Y):
        P, N = ref.sides(y)
        if len(P) == 0:
            continue
        for q in N:
            u = 1 - F[i, P] + F[i, q]
            if u.max() > 1e-2:
                direction = np.maximum(u, 0) / np.linalg.norm(np.maximum(u, 0))
                assert -solution.coef[i, q] == pytest.approx(0.5 * direction.sum(), abs=100 * slack)
                seen += 1
            elif u.max() < -slack:
                assert solution.coef[i, q] == pytest.approx(0, abs=1e-6)
    assert seen > 5


@each_machine
def test_scores_of_a_sample_sum_to_zero(machine: Machine) -> None:
    Ks, Y = labelled(unknown=0.2)
    solution = machine.solve(Ks[0], Y, accuracy=1e-2)
    np.testing.assert_allclose((Ks[3] @ solution.coef).sum(axis=1), 0, atol=1e-9)


@pytest.mark.parametrize("C", [0.05, 1.0, 20.0])
def test_sandwich(C: float) -> None:
    """The narrow box lies inside the pairwise set, which lies inside the wide box; dropping the balance helps too."""
    Ks, Y = labelled(unknown=0.1)
    narrow, pairwise, wide = (
        machine.solve(Ks[0], Y, accuracy=1e-6) for machine in (MLRL1(C), MLRPairwise(C), MLRL1(C, box="wide"))
    )
    assert narrow.dual <= pairwise.primal and pairwise.dual <= wide.primal
    known = np.where(ref.caps(Ranking("narrow"), Y) > 0, Y, 0.0)
    alone = ref.one_versus_all(Ks[0], known, C, sweeps=30)
    bound = 0.5 * np.sum(alone * (Ks[0] @ alone)) + C * np.sum(
        (known != 0) * np.maximum(0, 1 - known * (Ks[0] @ alone))
    )
    assert narrow.dual <= bound


@pytest.mark.parametrize(
    ("machine", "row_loss"),
    [
        (MLRL1(0.7), lambda a, b: 2 * min(a, b)),
        (MLRL1(0.7, box="wide"), lambda a, b: 2 * a * b),
        (MLRPairwise(0.7), lambda a, b: 2 * a * b),
        (MLRGL(0.7), lambda a, b: b * np.sqrt(a)),
    ],
    ids=["narrow", "wide", "pairwise", "group"],
)
def test_value_of_knowing_nothing(machine: Machine, row_loss: Callable[[int, int], float]) -> None:
    """All scores zero is good enough for an accuracy of one, and its value has a closed form."""
    Ks, Y = labelled(unknown=0.1)
    solution = machine.solve(Ks[0], Y, accuracy=1.0)
    assert solution.steps == 0 and not solution.coef.any() and solution.dual == 0
    assert solution.primal == pytest.approx(0.7 * sum(row_loss((y > 0).sum(), (y < 0).sum()) for y in Y))


@each_machine
def test_the_dual_never_falls(machine: Machine) -> None:
    Ks, Y = labelled(unknown=0.1, seed=4)
    solution, values = None, []
    for accuracy in 10.0 ** -np.arange(0, 8.1, 0.5):
        solution = machine.solve(Ks[2], Y, start=solution, accuracy=accuracy)
        values.append(solution.dual)
        assert solution.gap >= -1e-12 * solution.primal
    assert len(set(values)) > 5
    assert np.diff(values).min() >= -1e-12 * values[-1]


# --- the published group update ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("eta", [1.01, 2.0, 2.5, 5.0, 50.0])
@pytest.mark.parametrize("unknown", [0.0, 0.3])
def test_published_update(eta: float, unknown: float) -> None:
    Ks, Y = labelled(unknown=unknown)
    K, machine = Ks[0], MLRGL(0.5, eta=eta)
    solution = machine.solve(K, Y, accuracy=1e-9)
    surrogate = np.array(solution.state.extra["monitor"])
    assert len(surrogate) == solution.steps > 1
    assert np.diff(surrogate).min() >= -1e-12 * abs(surrogate[-1])
    B, _, values = ref.group_published(K, Y, 0.5, eta, sweeps=solution.steps)
    np.testing.assert_allclose(solution.coef, B, atol=1e-9)
    np.testing.assert_allclose(surrogate, values[len(Y) - 1 :: len(Y)], rtol=1e-9)
    again = ref.group_published(K, Y, 0.5, eta, sweeps=solution.steps + 30)[0]
    np.testing.assert_allclose(solution.coef, again, atol=1e-5)  # a fixed point
    check(machine, K, Y, solution, accuracy=np.inf)
    best = ref.conic_dual(stated(machine), K, Y).value
    assert solution.dual < best * (1 - 1e-4) < best * (1 + 1e-4) < solution.primal
    if eta >= Y.shape[1] / 2:
        assert surrogate[-1] == pytest.approx(ref.conic_surrogate(K, Y, 0.5, eta).value, rel=1e-6)


# --- the projection ---------------------------------------------------------------------------------------------------


def signed(V: NDArray, Y: NDArray, cap: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    return Y * V, np.where(Y < 0, -cap, 0.0), np.where(Y > 0, cap, 0.0)


def test_projection_of_the_first_block() -> None:
    y = np.array([[1.0, -1.0, -1.0, -1.0]])
    B, shift = project_balanced_box(*signed(np.ones((1, 4)), y, np.ones((1, 4))))
    np.testing.assert_allclose(y * B, [[1, 1 / 3, 1 / 3, 1 / 3]], atol=1e-15)
    np.testing.assert_allclose(shift, [2 / 3], atol=1e-15)


@settings(max_examples=200)
@given(st.integers(1, 9), st.integers(0, 2**32 - 1), st.sampled_from([1e-3, 1.0, 1e4]), st.booleans(), st.booleans())
@example(m=4, seed=0, spread=0.0, wide=False, ties=False)
def test_projection_agrees_with_sorting(m: int, seed: int, spread: float, wide: bool, ties: bool) -> None:
    rng = np.random.default_rng(seed)
    Y = rng.choice([-1.0, 0.0, 1.0], (7, m), p=[0.5, 0.1, 0.4])
    cap = ref.caps(Ranking("wide" if wide else "narrow", 10 ** rng.uniform(-2, 2)), Y)
    V = spread * rng.standard_normal((7, m))
    if ties:
        V = np.round(V)
    B, shift = project_balanced_box(*signed(V, Y, cap))
    expected = np.stack([y * ref.project_by_sorting(v, y, c)[0] for v, y, c in zip(V, Y, cap, strict=True)])
    scale = max(cap.max(), 1e-300)
    np.testing.assert_allclose(B, expected, atol=1e-12 * max(scale, spread))
    lower, upper = signed(V, Y, cap)[1:]
    np.testing.assert_array_equal(B, np.clip(Y * V + shift[:, None], lower, upper))
    assert np.abs(B.sum(axis=1)).max() <= 1e-12 * max(scale, spread) * m


def test_projection_leaves_feasible_rows_alone() -> None:
    T = np.array([[0.5, 0.25, -0.75, 0.0], [0.0, 0.0, 0.0, 0.0]])
    Y = np.array([[1.0, 1.0, -1.0, 0.0], [1.0, -1.0, -1.0, -1.0]])
    B, _ = project_balanced_box(T, *signed(T, Y, np.abs(Y))[1:])
    np.testing.assert_allclose(B, T, atol=1e-15)
