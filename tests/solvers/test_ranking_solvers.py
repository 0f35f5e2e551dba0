"""Ranking machines under every solver and weight set: MK-MLR and its relatives against conic optima."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import ranking_reference as ref
from problems import bank_of, solve
from ranking_reference import fixture, labelled, stated

from kernelweave.machines import MLRGL, MLRL1, Machine, MLRPairwise
from kernelweave.solvers import SOLVERS, check_pairing
from kernelweave.weights import (
    Average,
    BlockElasticNet,
    ElasticNetBall,
    Entropy,
    Grouped,
    LpBall,
    Simplex,
    TikhonovLp,
    WeightSet,
)

MACHINES: dict[str, Machine] = {
    "narrow": MLRL1(1.0),
    "narrow, large C": MLRL1(20.0),
    "ridge": MLRL1(1.0, ridge=np.linspace(0, 1, 16)),
    "wide": MLRL1(0.3, box="wide"),
    "pairwise": MLRPairwise(0.3),
    "group": MLRGL(0.5),
}
FEW: tuple[WeightSet, ...] = (Simplex(), LpBall(2.0), LpBall(4 / 3))
MANY: tuple[WeightSet, ...] = (
    *FEW,
    LpBall(np.inf),
    Entropy(0.5),
    ElasticNetBall(0.5),
    BlockElasticNet(0.5),
    Grouped(((0, 2), (1, 3))),
    Grouped(((0, 2), (1, 3)), r=2.0),
    TikhonovLp(2.0, 2.0),
    Average(),
)
WRAPPERS = (
    *("newton", "cutting-plane", "level", "reduced-gradient", "projected-gradient", "mirror-descent", "alternating"),
)
on_simplex = pytest.mark.parametrize("solver", WRAPPERS)


def data() -> tuple[np.ndarray, np.ndarray]:
    """Four kernels and labels of which some were never judged."""
    return labelled(n=16, m=4, seed=1, unknown=0.1)


@cache
def reference(weight_set: WeightSet, name: str) -> float:
    return ref.conic_dual(stated(MACHINES[name]), *data(), weight_set).value


# --- optima -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("solver", "weight_set", "name"),
    [
        (solver, weight_set, name)
        for name in MACHINES
        for weight_set in (MANY if name == "narrow" else FEW)
        for solver in WRAPPERS
        if SOLVERS[solver].fits(weight_set)
    ],
    ids=lambda x: x if isinstance(x, str) else repr(x),
)
def test_reaches_the_conic_optimum(solver: str, weight_set: WeightSet, name: str) -> None:
    saddle = solve(solver, weight_set, MACHINES[name], *data(), tol=1e-4, max_iter=500)
    expected = reference(weight_set, name)
    rounding = 1e-7 * expected  # of the conic solver
    assert saddle.converged
    assert saddle.lower - rounding <= expected <= saddle.upper + rounding
    assert saddle.upper == pytest.approx(expected, rel=1.1e-4)
    assert weight_set.feasible(saddle.best.weights)
    rows = saddle.history
    assert np.all(np.diff(rows["upper"]) <= 0) and np.all(np.diff(rows["lower"]) >= 0)
    assert np.all(rows["lower"] <= rows["upper"])


@pytest.mark.parametrize("name", MACHINES)
def test_the_best_point_is_the_upper_bound(name: str) -> None:
    """The objective of the point returned, from scratch: block norm of its parts, and the loss of its scores."""
    Ks, Y = data()
    machine = MACHINES[name]
    problem = stated(machine)
    saddle = solve("cutting-plane", Simplex(), machine, Ks, Y, tol=1e-4)
    b, B = saddle.best.weights, saddle.best.solution.coef
    norms = b * np.sqrt([np.sum(B * (K @ B)) for K in Ks])
    ridge = np.broadcast_to(problem.ridge, len(Y))
    F = np.tensordot(b, Ks, axes=1) @ B + ridge[:, None] * B
    value = 0.5 * norms.sum() ** 2 + 0.5 * np.sum(ridge @ B**2) + ref.loss(problem, F, Y)
    assert saddle.upper == pytest.approx(value, rel=1e-9)


def test_published_weights() -> None:
    Ks, Y = fixture()
    for solver in WRAPPERS:
        saddle = solve(solver, Simplex(), MLRL1(1.0), Ks, Y, tol=1e-6)
        assert saddle.converged
        assert saddle.upper == pytest.approx(11.195607, abs=2e-5)
        assert saddle.lower == pytest.approx(11.195607, abs=2e-5)
    saddle = solve("newton", Simplex(), MLRL1(1.0), Ks, Y, tol=1e-9)
    np.testing.assert_allclose(saddle.best.weights, (0.6632, 0.3368), atol=5e-4)
    np.testing.assert_allclose(2 * saddle.best.h, 8.6056, atol=5e-3)


@pytest.mark.parametrize("weight_set", FEW, ids=repr)
@pytest.mark.parametrize("machine", [MLRL1(), MLRPairwise(), MLRGL()], ids=repr)
def test_smo_is_refused(machine: Machine, weight_set: WeightSet) -> None:
    with pytest.raises(ValueError, match="solver='smo' needs"):
        check_pairing("smo", weight_set, machine, n_tasks=4)


@pytest.mark.parametrize("name", MACHINES)
def test_the_automatic_choice_converges(name: str) -> None:
    for weight_set in FEW:
        saddle = solve("auto", weight_set, MACHINES[name], *data(), tol=1e-4)
        assert saddle.converged
        assert saddle.upper == pytest.approx(reference(weight_set, name), rel=1.1e-4)


# --- what holds at the optimum ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["narrow", "wide", "pairwise", "group"])
@pytest.mark.parametrize("solver", ["newton", "reduced-gradient", "projected-gradient"])
def test_active_kernels_share_the_largest_energy(solver: str, name: str) -> None:
    saddle = solve(solver, Simplex(), MACHINES[name], *data(), tol=1e-5)
    b, h = saddle.best.weights, saddle.best.h
    assert saddle.converged
    active = b > 1e-2
    assert active.sum() > 1
    np.testing.assert_allclose(h[active], h.max(), rtol=2e-2)
    assert b @ (h.max() - h) <= 1e-3 * saddle.upper


@pytest.mark.parametrize("name", MACHINES)
def test_cutting_planes_leave_exact_zeros(name: str) -> None:
    """Kernels that are a part of another one cannot help, and get nothing at all."""
    Ks, Y = data()
    weak = np.concatenate([Ks, 0.2 * Ks[:2], 0.1 * Ks[2:]])
    saddle = solve("cutting-plane", Simplex(), MACHINES[name], weak, Y, tol=1e-4)
    assert saddle.converged
    np.testing.assert_array_equal(saddle.best.weights[4:], 0.0)
    assert saddle.best.weights.sum() == pytest.approx(1.0)
    assert saddle.upper == pytest.approx(reference(Simplex(), name), rel=1.1e-4)


@on_simplex
def test_one_kernel_is_the_machine_alone(solver: str) -> None:
    Ks, Y = data()
    for machine in MACHINES.values():
        saddle = solve(solver, Simplex(), machine, Ks[:1], Y, tol=1e-5)
        alone = machine.solve(Ks[0], Y, accuracy=1e-7)
        assert saddle.converged
        np.testing.assert_array_equal(saddle.best.weights, 1.0)
        assert saddle.upper == pytest.approx(alone.primal, rel=1.1e-5)


@on_simplex
def test_duplicated_kernels_leave_the_optimum(solver: str) -> None:
    Ks, Y = data()
    for name in ("narrow", "group"):
        twice = solve(solver, Simplex(), MACHINES[name], np.concatenate([Ks, Ks]), Y, tol=1e-4, max_iter=500)
        assert twice.converged
        assert twice.upper == pytest.approx(reference(Simplex(), name), rel=1.1e-4)


@on_simplex
def test_identical_kernels_leave_nothing_to_learn(solver: str) -> None:
    Ks, Y = data()
    machine = MACHINES["narrow"]
    saddle = solve(solver, Simplex(), machine, np.stack([Ks[0]] * 3), Y, tol=1e-2)
    assert saddle.converged and len(saddle.history) == 1
    tight = solve(solver, Simplex(), machine, np.stack([Ks[0]] * 3), Y, tol=1e-6)
    alone = machine.solve(Ks[0], Y, accuracy=1e-8)
    scores = np.tensordot(tight.best.weights, np.stack([Ks[0]] * 3), axes=1) @ tight.best.solution.coef
    np.testing.assert_allclose(scores, Ks[0] @ alone.coef, atol=2 * np.sqrt(2e-6 * alone.primal))


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("solver", ["newton", "cutting-plane", "alternating"])
def test_order_of_the_kernels(solver: str, name: str) -> None:
    """Weights of an lp ball are unique, so they come out in the new order; so does the value."""
    Ks, Y = data()
    order = np.array([2, 0, 3, 1])
    one = solve(solver, LpBall(2.0), MACHINES[name], Ks, Y, tol=1e-6)
    other = solve(solver, LpBall(2.0), MACHINES[name], Ks[order], Y, tol=1e-6)
    assert one.converged and other.converged
    assert other.upper == pytest.approx(one.upper, rel=2e-6)
    np.testing.assert_allclose(other.best.weights, one.best.weights[order], atol=5e-3)


def test_order_of_samples_and_labels() -> None:
    Ks, Y = data()
    rng = np.random.default_rng(0)
    here, labels = rng.permutation(len(Y)), rng.permutation(Y.shape[1])
    moved = Ks[:, here][:, :, here]
    for name in ("narrow", "group"):
        one = solve("newton", LpBall(2.0), MACHINES[name], Ks, Y, tol=1e-6)
        other = solve("newton", LpBall(2.0), MACHINES[name], moved, Y[np.ix_(here, labels)], tol=1e-6)
        assert other.upper == pytest.approx(one.upper, rel=2e-6)
        np.testing.assert_allclose(other.best.weights, one.best.weights, atol=5e-3)


# --- the rest ---------------------------------------------------------------------------------------------------------


def test_the_first_iteration_is_the_average_kernel() -> None:
    Ks, Y = data()
    saddle = solve("cutting-plane", Simplex(), MLRL1(1.0), Ks, Y, tol=1e-6, max_iter=1)
    alone = MLRL1(1.0).solve(Ks.mean(axis=0), Y, accuracy=1e-8)
    assert alone.dual * (1 - 1e-9) <= saddle.history["objective"][0] <= alone.primal * 1.02


@pytest.mark.parametrize("solver", WRAPPERS)
def test_single_precision_kernels(solver: str) -> None:
    Ks, Y = data()
    for name in ("narrow", "pairwise", "group"):
        saddle = solve(solver, Simplex(), MACHINES[name], bank_of(Ks, "float32"), Y, tol=1e-3, max_iter=500)
        assert saddle.converged
        assert saddle.upper == pytest.approx(reference(Simplex(), name), rel=1.01e-3)
        assert saddle.lower == pytest.approx(reference(Simplex(), name), rel=1.01e-3)


def test_the_published_group_update_goes_with_fixed_weights_only() -> None:
    """It does not solve the stated problem, so its gap stays open; the bounds at fixed weights hold all the same."""
    Ks, Y = data()
    machine = MLRGL(0.5, eta=2.0)
    with pytest.raises(ValueError, match=r"smoothed problem.*fixed weights"):
        solve("auto", Simplex(), machine, Ks, Y)
    saddle = solve("auto", Average(), machine, Ks, Y, tol=1e-4)
    exact = solve("auto", Average(), MLRGL(0.5), Ks, Y, tol=1e-8)
    assert not saddle.converged
    assert saddle.lower < exact.lower <= exact.upper < saddle.upper


def test_rows_without_a_pair_and_a_label_without_judges() -> None:
    Ks, Y = data()
    odd = Y.copy()
    odd[:3] = [[1, 1, 1, 1], [0, 0, 0, 0], [0, -1, 0, -1]]
    odd[:, 3] = 0.0
    for name in MACHINES:
        saddle = solve("auto", Simplex(), MACHINES[name], Ks, odd, tol=1e-4)
        assert saddle.converged
        np.testing.assert_array_equal(saddle.best.solution.coef[:3], 0.0)
        np.testing.assert_array_equal(saddle.best.solution.coef[:, 3], 0.0)
        expected = ref.conic_dual(stated(MACHINES[name]), Ks, odd, Simplex()).value
        assert saddle.upper == pytest.approx(expected, rel=1.1e-4)
