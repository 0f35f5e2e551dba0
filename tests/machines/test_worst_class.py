"""The worst of several label columns: as a machine, and as the shared-weights problem that methods of cuts solve."""

from __future__ import annotations

from functools import cache

import cvxpy as cp
import numpy as np
import pytest
from conic import conjugate, lp_norm, root
from conic import solve as conic_value
from numpy.typing import NDArray
from problems import binary, solve

from kernelweave.machines import MLRL1, SVM, Machine, NuSVM
from kernelweave.machines.worst_class import WorstClass
from kernelweave.weights import LpBall, Simplex, WeightSet


@cache
def several(seed: int = 0) -> tuple[NDArray, NDArray]:
    """The five kernels of `binary` with four label columns, to which different kernels matter."""
    Ks, y = binary()
    rng = np.random.default_rng(seed)
    f = np.stack([Ks[j] @ rng.standard_normal(len(y)) for j in (1, 2, 4)], axis=1)
    f += 0.4 * rng.standard_normal(f.shape)
    return Ks, np.column_stack([y, np.where(f > np.median(f, axis=0), 1.0, -1.0)])


def joint_dual(weight_set: WeightSet, machine: SVM, Ks: NDArray, Y: NDArray) -> float:
    """Optimal value in r_k = share_k * v_k: jointly concave, because each energy is a square over a share."""
    m = Y.shape[1]
    R, share = cp.Variable(Y.shape), cp.Variable(m, nonneg=True)
    energies = cp.Variable(len(Ks), nonneg=True)
    alpha = cp.multiply(R, Y)
    constraints = [cp.sum(share) == 1, alpha >= 0]
    constraints += [alpha[:, k] <= machine.C * share[k] for k in range(m)]
    constraints += [cp.sum(R, axis=0) == 0] if machine.fit_intercept else []
    for j, K in enumerate(Ks):
        L = root(K)
        spent = [cp.quad_over_lin(L.T @ R[:, k], share[k]) for k in range(m)]
        constraints.append(energies[j] >= 0.5 * cp.sum(cp.hstack(spent)))
    p = 1.0 if isinstance(weight_set, Simplex) else weight_set.p
    objective = cp.sum(alpha) - lp_norm(energies, conjugate(p))
    return conic_value(cp.Problem(cp.Maximize(objective), constraints))


# --- the machine ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("machine", [SVM(1.0), SVM(5.0, fit_intercept=False), NuSVM(0.3)], ids=repr)
@pytest.mark.parametrize("accuracy", [1e-2, 1e-9])
def test_values_are_those_of_the_worst_column(machine: Machine, accuracy: float) -> None:
    Ks, Y = several()
    K = Ks.mean(axis=0)
    alone = [machine.solve(K, Y[:, [k]], accuracy=accuracy) for k in range(4)]
    solution = WorstClass(machine).solve(K, Y, accuracy=accuracy)
    assert solution.primal == pytest.approx(max(s.primal for s in alone), rel=1e-12)
    assert solution.dual == pytest.approx(max(s.dual for s in alone), rel=1e-12)
    assert 0 <= solution.gap <= accuracy * abs(solution.primal) * (1 + 1e-9)
    np.testing.assert_array_equal(solution.coef, np.hstack([s.coef for s in alone]))
    np.testing.assert_array_equal(solution.intercept, np.concatenate([s.intercept for s in alone]))
    V = WorstClass(machine).cut(solution)
    assert 0.5 * np.sum(V * (K @ V)) == pytest.approx(solution.quadratic, rel=1e-9)


def test_cut_is_below_the_worst_value_at_every_kernel() -> None:
    Ks, Y = several()
    machine = WorstClass(SVM(1.0))
    solution = machine.solve(Ks[0], Y, accuracy=1e-2)
    V = machine.cut(solution)
    rng = np.random.default_rng(0)
    for _ in range(10):
        K = np.tensordot(rng.dirichlet(np.ones(5)), Ks, axes=1)
        assert solution.linear - 0.5 * np.sum(V * (K @ V)) <= machine.solve(K, Y, accuracy=1e-9).primal


def test_one_column_is_the_machine_itself() -> None:
    Ks, Y = several()
    worst, plain = (m.solve(Ks[0], Y[:, :1], accuracy=1e-6) for m in (WorstClass(SVM(2.0)), SVM(2.0)))
    for part in ("coef", "intercept", "linear", "quadratic", "steps"):
        np.testing.assert_array_equal(getattr(worst, part), getattr(plain, part))
    assert worst.loss == pytest.approx(plain.loss, rel=1e-12)


def test_warm_start_from_the_solution_takes_no_step() -> None:
    Ks, Y = several()
    first = WorstClass(SVM(2.0)).solve(Ks[0], Y, accuracy=1e-6)
    again = WorstClass(SVM(2.0)).solve(Ks[0], Y, start=first, accuracy=1e-6)
    assert first.steps > 0 and again.steps == 0
    np.testing.assert_array_equal(again.coef, first.coef)


def test_columns_that_were_never_judged_are_never_the_worst() -> None:
    Ks, Y = several()
    silent = np.hstack([np.zeros((len(Y), 1)), Y])
    solution = WorstClass(SVM(1.0)).solve(Ks[0], silent, accuracy=1e-9)
    assert solution.primal == WorstClass(SVM(1.0)).solve(Ks[0], Y, accuracy=1e-9).primal
    assert np.all(solution.coef[:, 0] == 0)


def test_restriction_reaches_the_machine_inside() -> None:
    kept = np.arange(0, 36, 2)
    machine = WorstClass(SVM(1.0, sample_weight=np.linspace(0.5, 2, 36))).restrict(kept)
    np.testing.assert_array_equal(machine.machine.sample_weight, np.linspace(0.5, 2, 36)[kept])


def test_what_has_no_worst_column_or_no_curvature_says_so() -> None:
    Ks, Y = several()
    with pytest.raises(ValueError, match="MLRL1 learns all labels together"):
        WorstClass(MLRL1())
    machine = WorstClass(SVM())
    with pytest.raises(TypeError, match="no second derivative"):
        machine.curvature(Ks[0], Y, machine.solve(Ks[0], Y), None)


# --- the shared-weights problem ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("weight_set", [Simplex(), LpBall(2.0)], ids=repr)
@pytest.mark.parametrize(
    "machine", [SVM(1.0), SVM(10.0), SVM(1.0, fit_intercept=False)], ids=["C=1", "C=10", "no bias"]
)
def test_methods_of_cuts_reach_the_conic_optimum(weight_set: WeightSet, machine: SVM) -> None:
    Ks, Y = several()
    expected = joint_dual(weight_set, machine, Ks, Y)
    for solver in ("level", "cutting-plane"):
        saddle = solve(solver, weight_set, WorstClass(machine), Ks, Y, tol=1e-5, max_iter=1000)
        assert saddle.converged
        assert saddle.lower - 1e-7 * expected <= expected <= saddle.upper + 1e-7 * expected
        assert saddle.upper == pytest.approx(expected, rel=2e-5)
        assert weight_set.feasible(saddle.best.weights)
        values = [machine.solve(np.tensordot(saddle.best.weights, Ks, axes=1), Y[:, [k]]).primal for k in range(4)]
        assert max(values) == pytest.approx(expected, rel=2e-3)


@pytest.mark.parametrize("solver", ["level", "cutting-plane"])
def test_bounds_are_monotone_and_in_order(solver: str) -> None:
    Ks, Y = several()
    rows = solve(solver, Simplex(), WorstClass(SVM(10.0)), Ks, Y, tol=1e-4, max_iter=500).history
    assert np.all(rows["lower"] <= rows["upper"]) and np.all(rows["upper"] <= rows["objective"])
    assert np.all(np.diff(rows["upper"]) <= 0) and np.all(np.diff(rows["lower"]) >= 0)


def test_worst_value_lies_between_the_columns_alone_and_any_shared_weights() -> None:
    Ks, Y = several()
    shared = solve("level", Simplex(), WorstClass(SVM(1.0)), Ks, Y, tol=1e-6)
    alone = [solve("newton", Simplex(), SVM(1.0), Ks, Y[:, [k]], tol=1e-6).upper for k in range(4)]
    summed = solve("newton", Simplex(), SVM(1.0), Ks, Y, tol=1e-6).best.weights
    at_sum = WorstClass(SVM(1.0)).solve(np.tensordot(summed, Ks, axes=1), Y, accuracy=1e-6).primal
    assert max(alone) * (1 - 2e-6) <= shared.upper <= at_sum * (1 + 2e-6)
    assert shared.upper < at_sum - 1e-3


@pytest.mark.parametrize("solver", ["level", "cutting-plane"])
def test_equal_columns_are_one_column(solver: str) -> None:
    Ks, y = binary()
    one = solve("newton", Simplex(), SVM(1.0), Ks, y, tol=1e-6)
    three = solve(solver, Simplex(), WorstClass(SVM(1.0)), Ks, np.stack([y, -y, y], axis=1), tol=1e-6)
    assert three.upper == pytest.approx(one.upper, rel=2e-6)
    np.testing.assert_allclose(three.best.weights, one.best.weights, atol=2e-2)


def test_order_of_columns_and_kernels_does_not_matter() -> None:
    Ks, Y = several()
    columns, kernels = [2, 0, 3, 1], [3, 0, 4, 2, 1]
    plain = solve("level", Simplex(), WorstClass(SVM(1.0)), Ks, Y, tol=1e-6)
    other = solve("level", Simplex(), WorstClass(SVM(1.0)), Ks[kernels], Y[:, columns], tol=1e-6)
    assert other.upper == pytest.approx(plain.upper, rel=2e-6)
    np.testing.assert_allclose(other.best.weights, plain.best.weights[kernels], atol=2e-2)
    np.testing.assert_allclose(other.best.solution.coef, plain.best.solution.coef[:, columns], atol=5e-2)


def test_nu_machine_inside() -> None:
    """Values are negative there, and the worst column is the one with the smallest margin."""
    Ks, Y = several()
    shared = solve("level", Simplex(), WorstClass(NuSVM(0.3)), Ks, Y, tol=1e-4, max_iter=500)
    alone = [solve("newton", Simplex(), NuSVM(0.3), Ks, Y[:, [k]], tol=1e-5).lower for k in range(4)]
    assert shared.converged
    assert max(alone) - 1e-9 <= shared.upper <= 0
