"""What holds along the way of every solver: bounds, monotone values, counts, stopping, the point returned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from problems import bank_of, binary, regression, solve

from kernelweave.machines import SVM, Machine, Ridge, Solution
from kernelweave.solvers import HISTORY, PUBLISHED, SOLVERS, Saddle, Stopping, check_pairing, run
from kernelweave.weights import (
    Average,
    BlockElasticNet,
    CappedSimplex,
    ElasticNet,
    ElasticNetBall,
    Entropy,
    Grouped,
    LpBall,
    PowerPenalty,
    Simplex,
    TikhonovLp,
    WeightSet,
)

SETS = (
    Simplex(),
    LpBall(4 / 3),
    LpBall(2.0),
    Entropy(0.5),
    CappedSimplex(nu=0.5),
    ElasticNet(1.0),
    PowerPenalty(1.5, 1.0),
    ElasticNetBall(0.5),
    BlockElasticNet(0.5),
    Grouped((0, 1, 0, 2, 2), r=1.0),
    Grouped((0, 1, 0, 2, 2), r=2.0),
    TikhonovLp(2.0, 2.0),
)


def works(solver: str, weight_set: WeightSet) -> bool:
    return SOLVERS[solver].fits(weight_set) and SOLVERS[solver].machine.fits(SVM(), 1)


PAIRINGS = [(solver, weight_set) for solver in SOLVERS for weight_set in SETS if works(solver, weight_set)]
each_pairing = pytest.mark.parametrize(("solver", "weight_set"), PAIRINGS, ids=repr)
on_simplex = pytest.mark.parametrize("solver", [solver for solver in SOLVERS if works(solver, Simplex())])


@dataclass
class ExactSVM(SVM):
    """An SVM that always solves to rounding, so that its own error does not blur what is tested; it counts its runs."""

    solved: int = 0

    def solve(self, K: NDArray, Y: NDArray, start: Solution | None = None, accuracy: float = 1e-3) -> Solution:
        self.solved += 1
        return super().solve(K, Y, start, accuracy=1e-13)


class SpyBank:
    """A bank that writes down which weights it was asked to combine."""

    def __init__(self, bank: Any) -> None:
        self._bank, self.combined = bank, []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bank, name)

    def combine(self, weights: NDArray, out: NDArray | None = None) -> NDArray:
        self.combined.append(np.array(weights))
        return self._bank.combine(weights, out=out)


# --- bounds ---------------------------------------------------------------------------------------------------------


@each_pairing
@pytest.mark.parametrize("C", [0.1, 30.0])
def test_bounds_hold_in_every_row(solver: str, weight_set: WeightSet, C: float) -> None:
    saddle = solve(solver, weight_set, SVM(C), *binary(), tol=1e-3, max_iter=500)
    rows = saddle.history
    assert saddle.converged
    assert np.all(rows["lower"] <= rows["upper"])
    assert np.all(rows["gap"] >= 0)
    assert np.all(np.diff(rows["upper"]) <= 0)
    assert np.all(np.diff(rows["lower"]) >= 0)
    assert np.all(rows["upper"] <= rows["objective"])
    np.testing.assert_allclose(rows["gap"], (rows["upper"] - rows["lower"]) / np.abs(rows["upper"]))
    best = solve("auto", weight_set, SVM(C), *binary(), tol=1e-7)
    assert np.all(rows["lower"] <= best.upper) and np.all(best.lower <= rows["upper"])


@pytest.mark.parametrize(
    ("solver", "weight_set"),
    [
        pair
        for pair in PAIRINGS
        if pair[0] in ("reduced-gradient", "projected-gradient", "mirror-descent", "alternating")
    ],
    ids=repr,
)
@pytest.mark.parametrize("C", [0.1, 30.0])
def test_descent_methods_never_raise_the_objective(solver: str, weight_set: WeightSet, C: float) -> None:
    saddle = solve(solver, weight_set, ExactSVM(C), *binary(), tol=1e-4, max_iter=500)
    values = saddle.history["objective"]
    # grouped sets with r > 1: machine and scale take turns only until their gap is small beside the tolerance
    slack = 1e-4 if getattr(weight_set, "r", 1.0) > 1 else 1e-10
    assert len(values) > 2
    # The last trial may end the fit by its lower bound alone, whatever its value: the best point is kept anyway.
    assert np.all(np.diff(values[:-1]) <= slack * np.abs(values[1:-1]))


@pytest.mark.parametrize(("solver", "weight_set"), [pair for pair in PAIRINGS if pair[0] != "smo"], ids=repr)
def test_squared_loss_bounds_hold_too(solver: str, weight_set: WeightSet) -> None:
    rows = solve(solver, weight_set, Ridge(1.0), *regression(), tol=1e-3, max_iter=500).history
    assert rows["gap"][-1] <= 1e-3
    assert np.all(rows["lower"] <= rows["upper"])
    assert np.all(np.diff(rows["upper"]) <= 0) and np.all(np.diff(rows["lower"]) >= 0)


# --- optimality -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "solver", ["newton", "reduced-gradient", "projected-gradient", "mirror-descent", "alternating"]
)
@pytest.mark.parametrize("machine", [SVM(1.0), SVM(10.0, fit_intercept=False)], ids=["bias", "no bias"])
def test_active_kernels_share_the_largest_energy(solver: str, machine: Machine) -> None:
    """Not for cutting planes and levels: their bounds belong to different points, so h at the best one says less."""
    saddle = solve(solver, Simplex(), machine, *binary(), tol=1e-5, max_iter=1000)
    b, h = saddle.best.weights, saddle.best.h
    assert saddle.converged
    active = b > 1e-2
    assert 0 < active.sum() < len(b)
    np.testing.assert_allclose(h[active], h.max(), rtol=1e-2)
    assert b @ (h.max() - h) <= 1e-3 * saddle.upper


@pytest.mark.parametrize("p", [1.1, 4 / 3, 2.0, 4.0, 50.0])
def test_lp_weights_are_a_power_of_the_energies(p: float) -> None:
    saddle = solve("newton", LpBall(p), SVM(1.0), *binary(), tol=1e-9)
    q = p / (p - 1)
    h = saddle.best.h
    expected = (h / np.linalg.norm(h, q)) ** (q - 1)
    assert saddle.converged
    np.testing.assert_allclose(saddle.best.weights, expected, atol=1e-4)
    assert np.all(saddle.best.weights > 0)


@pytest.mark.parametrize("weight_set", SETS, ids=repr)
def test_the_best_response_to_the_solution_is_the_solution(weight_set: WeightSet) -> None:
    """b attains max over B of b.h - R(b), which is the optimality condition of every set."""
    saddle = solve("auto", weight_set, SVM(1.0), *binary(), tol=1e-7, max_iter=5000)
    b, h = saddle.best.weights, saddle.best.h
    assert saddle.converged
    assert b @ h - weight_set.penalty(b) == pytest.approx(weight_set.support(h), rel=1e-4)


@on_simplex
def test_identical_kernels_leave_nothing_to_learn(solver: str) -> None:
    Ks, y = binary()
    saddle = solve(solver, Simplex(), SVM(1.0), np.stack([Ks[0]] * 4), y, tol=1e-6)
    assert len(saddle.history) == 1 and saddle.solves == 1
    assert saddle.gap <= 1e-6


# --- the point returned ---------------------------------------------------------------------------------------------


@each_pairing
@pytest.mark.parametrize("max_iter", [1, 3, 500])
def test_the_best_point_is_returned(solver: str, weight_set: WeightSet, max_iter: int) -> None:
    """The primal objective of its decision function, taken from scratch, is the upper bound on the books."""
    Ks, y = binary()
    machine = SVM(10.0)
    saddle = solve(solver, weight_set, machine, Ks, y, tol=1e-3, max_iter=max_iter)
    best, v = saddle.best, saddle.best.solution.coef[:, 0]
    assert len(saddle.history) <= max_iter
    assert weight_set.feasible(best.weights)
    assert saddle.upper <= saddle.history["objective"].min()
    f = np.tensordot(best.effective, Ks, axes=1) @ v
    loss = 10.0 * np.maximum(0, 1 - y * (f + best.solution.intercept)).sum()
    norms = best.effective * np.sqrt([v @ K @ v for K in Ks])
    assert saddle.upper == pytest.approx(loss + least_regulariser(weight_set, norms, best.weights), rel=1e-7)


def least_regulariser(weight_set: WeightSet, norms: NDArray, weights: NDArray) -> float:
    """``min over b of 1/2 sum N^2 / b + R(b)`` where B has that in closed form; at the weights reached elsewhere."""

    def at(b: NDArray) -> float:
        used = norms > 0
        return 0.5 * float(np.sum(norms[used] ** 2 / b[used])) + weight_set.penalty(b)

    if isinstance(weight_set, Grouped) and weight_set.r > 1:
        squares = [
            np.sum(norms[list(g)][norms[list(g)] > 0] ** 2 / weights[list(g)][norms[list(g)] > 0])
            for g in weight_set.groups
        ]
        return 0.5 * float(np.linalg.norm(squares, weight_set.r))
    return min(at(weight_set.update(norms)), at(weights)) if weight_set.has_update else at(weights)


def test_the_last_iterate_of_cutting_planes_is_not_the_best() -> None:
    """The reason for keeping the best: on the simplex the iterates jump."""
    saddle = solve("cutting-plane", Simplex(), SVM(10.0), *binary(), tol=1e-6, max_iter=4)
    assert saddle.history["objective"][-1] > 1.05 * saddle.upper


# --- books ----------------------------------------------------------------------------------------------------------


@each_pairing
def test_history_counts_solves_and_adds(solver: str, weight_set: WeightSet) -> None:
    Ks, y = binary()
    bank, machine = SpyBank(bank_of(Ks)), ExactSVM(1.0)
    seen: list[Any] = []
    saddle = Saddle(bank, machine, weight_set, y[:, None], Stopping(tol=1e-3, max_iter=30), on_iteration=seen.append)
    run(solver, saddle)
    rows = saddle.history
    assert rows.dtype == HISTORY
    np.testing.assert_array_equal(rows["iteration"], np.arange(1, len(rows) + 1))
    assert rows["solves"][-1] == saddle.solves == machine.solved
    assert rows["adds"][-1] <= saddle.adds == sum(np.count_nonzero(w) for w in bank.combined)
    for before, after in zip(bank.combined[:-1], bank.combined[1:], strict=True):
        assert not np.array_equal(before, after)  # the same kernel is not combined twice in a row
    for count in ("solves", "adds", "seconds"):
        assert np.all(np.diff(rows[count]) >= 0)
    assert np.all((rows["active"] >= 1) & (rows["active"] <= len(Ks)))
    parts = sum(rows[f"seconds_{part}"] for part in ("combine", "machine", "quadratics", "master"))
    assert np.all(parts <= rows["seconds"] + 1e-6)
    assert [row["iteration"] for row in seen] == rows["iteration"].tolist()
    assert [row["upper"] for row in seen] == rows["upper"].tolist()


@pytest.mark.parametrize("solver", ["cutting-plane", "level", "alternating"])
def test_one_solve_an_iteration(solver: str) -> None:
    saddle = solve(solver, Simplex(), SVM(1.0), *binary(), tol=1e-3, max_iter=500)
    np.testing.assert_array_equal(saddle.history["solves"], saddle.history["iteration"])


@pytest.mark.parametrize("C", [1.0, 10.0])
def test_cutting_planes_have_no_more_active_kernels_than_cuts(C: float) -> None:
    Ks, y = binary()
    many = np.concatenate([Ks, *(binary(seed=seed)[0] for seed in (1, 2, 3))])
    rows = solve("cutting-plane", Simplex(), SVM(C), many, y, tol=1e-3, max_iter=15).history
    assert len(rows) > 4
    assert np.all(rows["active"][1:] <= rows["iteration"][:-1])


def test_second_order_needs_few_solves() -> None:
    """Two to seven solves were measured on well-behaved problems, a few more near kinks; first order needs dozens."""
    for C in (0.1, 1.0, 10.0, 100.0):
        saddle = solve("newton", Simplex(), SVM(C), *binary(), tol=1e-4)
        assert saddle.converged and saddle.solves <= 12


# --- stopping -------------------------------------------------------------------------------------------------------


@each_pairing
def test_published_regime_stops_at_forty(solver: str, weight_set: WeightSet) -> None:
    saddle = solve(solver, weight_set, SVM(10.0), *binary(), stopping=PUBLISHED)
    assert len(saddle.history) <= 40
    assert np.all(saddle.history["gap"][:-1] > PUBLISHED.tol)


def test_published_regime_is_what_was_published() -> None:
    assert (PUBLISHED.tol, PUBLISHED.max_iter, PUBLISHED.weight_change) == (1e-3, 40, 1e-4)


def test_stops_when_the_weights_stand_still() -> None:
    Ks, y = binary()
    bank = SpyBank(bank_of(Ks))
    stopping = Stopping(tol=0.0, max_iter=5000, weight_change=1e-4)
    saddle = run("alternating", Saddle(bank, ExactSVM(1.0), Simplex(), y[:, None], stopping))
    changes = [np.abs(b - a).max() for a, b in zip(bank.combined[:-1], bank.combined[1:], strict=True)]
    assert not saddle.converged and len(saddle.history) < 5000
    assert changes[-1] < 1e-4 and min(changes[:-1]) >= 1e-4


@pytest.mark.parametrize("max_iter", [1, 2, 7])
@on_simplex
def test_iteration_limit(solver: str, max_iter: int) -> None:
    saddle = solve(solver, Simplex(), SVM(10.0), *binary(), tol=1e-12, max_iter=max_iter)
    assert len(saddle.history) == max_iter
    assert not saddle.converged and saddle.best is not None


@pytest.mark.parametrize("tol", [1e-1, 1e-3, 1e-6])
def test_stops_as_soon_as_the_gap_is_small_enough(tol: float) -> None:
    rows = solve("newton", Simplex(), SVM(1.0), *binary(), tol=tol).history
    assert rows["gap"][-1] <= tol
    assert np.all(rows["gap"][:-1] > tol)


def test_fixed_weights_take_one_iteration() -> None:
    Ks, y = binary()
    saddle = solve("auto", Average(), SVM(1.0), Ks, y, tol=1e-6)
    assert len(saddle.history) == saddle.solves == 1 and saddle.converged
    alone = SVM(1.0).solve(Ks.mean(axis=0), y[:, None], accuracy=1e-9)
    assert saddle.upper == pytest.approx(alone.primal, rel=2e-6)
    np.testing.assert_array_equal(saddle.best.weights, 0.2)


# --- zero weights ---------------------------------------------------------------------------------------------------


def test_alternating_keeps_a_zero_weight_at_zero() -> None:
    """Documented: the closed form multiplies. The bounds tell that the point is not the optimum."""
    Ks, y = binary()
    free = solve("newton", Simplex(), SVM(1.0), Ks, y, tol=1e-8)
    locked = int(np.argmax(free.best.weights))
    saddle = Saddle(bank_of(Ks), SVM(1.0), Simplex(), y[:, None], Stopping(tol=1e-4, max_iter=100))
    saddle.initial = np.where(np.arange(5) == locked, 0.0, 0.25)
    run("alternating", saddle)
    assert saddle.best.weights[locked] == 0.0
    assert not saddle.converged
    others = solve("newton", Simplex(), SVM(1.0), np.delete(Ks, locked, axis=0), y, tol=1e-8)
    assert saddle.upper == pytest.approx(others.upper, rel=1e-3)
    assert saddle.lower <= free.upper < saddle.upper


@pytest.mark.parametrize("solver", ["newton", "reduced-gradient", "projected-gradient", "level", "cutting-plane"])
def test_other_solvers_come_back_from_zero(solver: str) -> None:
    Ks, y = binary()
    saddle = Saddle(bank_of(Ks), SVM(1.0), Simplex(), y[:, None], Stopping(tol=1e-4, max_iter=500))
    saddle.initial = np.array([0.0, 0.0, 0.0, 0.0, 1.0])
    run(solver, saddle)
    assert saddle.converged
    assert saddle.upper == pytest.approx(solve("newton", Simplex(), SVM(1.0), Ks, y, tol=1e-8).upper, rel=1e-4)


def test_pairings_of_this_file_are_those_of_the_package() -> None:
    for solver, weight_set in PAIRINGS:
        assert check_pairing(solver, weight_set, SVM()) is SOLVERS[solver]
    assert {solver for solver, _ in PAIRINGS} == set(SOLVERS) - {"stochastic"}  # see test_stochastic.py


def test_bounds_that_cross_by_rounding_agree() -> None:
    """With float32 kernels the two bounds are computed from differently rounded sums; no row may show lower > upper."""
    Ks, y = binary()
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(len(y))
        part = Ks[:, order][:, :, order]
        saddle = run(
            "newton", Saddle(bank_of(part, "float32"), SVM(1.0), Simplex(), y[order, None], Stopping(1e-12, 30))
        )
        assert np.all(saddle.history["lower"] <= saddle.history["upper"])


def test_indefinite_kernels_are_suspected_when_bounds_cross() -> None:
    Ks, y = binary()
    saddle = Saddle(bank_of(Ks), SVM(1.0), Simplex(), y[:, None])
    saddle.upper = 1.0
    with pytest.warns(RuntimeWarning, match="not positive semi-definite"):
        saddle.raise_lower(1.1)
    assert saddle.gap == pytest.approx(0.1) and not saddle.converged  # bounds that contradict each other prove nothing
