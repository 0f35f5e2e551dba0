"""Every pairing of solver, weight set and machine reaches the optimum that a conic solver finds."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from conic import optimum
from problems import bank_of, binary, regression, solve

from kernelweave.machines import SVM, Machine, NuSVM, Ridge
from kernelweave.solvers import SOLVERS, check_pairing
from kernelweave.weights import (
    Average,
    BlockElasticNet,
    CappedSimplex,
    ElasticNet,
    ElasticNetBall,
    Entropy,
    Fixed,
    Grouped,
    LpBall,
    PowerPenalty,
    Simplex,
    Single,
    Sum,
    TikhonovLp,
    WeightSet,
)

GROUPS = ((0, 2), (1,), (3, 4))

MACHINES: dict[str, Machine] = {
    "svm C=1": SVM(1.0),
    "svm C=0.1": SVM(0.1),
    "svm C=100": SVM(100.0),
    "svm without bias C=1": SVM(1.0, fit_intercept=False),
    "svm without bias C=100": SVM(100.0, fit_intercept=False),
    "svm sample weights": SVM(1.0, sample_weight=np.linspace(0.0, 2.0, 36)),
    "nu-svm": NuSVM(0.4),
    "ridge": Ridge(1.0),
    "ridge without bias": Ridge(1.0, fit_intercept=False),
}

SETS: tuple[WeightSet, ...] = (
    Simplex(),
    LpBall(1.0),
    LpBall(4 / 3),
    LpBall(2.0),
    LpBall(4.0),
    LpBall(np.inf),
    Entropy(0.5),
    CappedSimplex(nu=0.3),
    CappedSimplex(nu=0.6),
    CappedSimplex(theta=0.4),
    ElasticNet(0.1),
    ElasticNet(10.0),
    PowerPenalty(1.5, 1.0),
    PowerPenalty(3.0, 2.0),
    ElasticNetBall(0.0),
    ElasticNetBall(0.5),
    ElasticNetBall(1.0),
    BlockElasticNet(0.5),
    BlockElasticNet(1.0),
    Grouped(GROUPS),
    Grouped(GROUPS, r=2.0),
    Grouped(GROUPS, r=np.inf),
    TikhonovLp(1.0, 2.0),
    TikhonovLp(4 / 3, 2.0),
    TikhonovLp(2.0, 2.0),
    TikhonovLp(np.inf, 2.0),
    Fixed((0.5, 0.0, 1.5, 0.2, 0.1)),
    Average(),
    Sum(),
    Single(1),
)

#: Machines other than the first meet fewer sets: one of each kind of master problem.
FEWER: tuple[WeightSet, ...] = (
    Simplex(),
    LpBall(4 / 3),
    LpBall(2.0),
    Entropy(0.5),
    CappedSimplex(nu=0.6),
    ElasticNet(1.0),
    PowerPenalty(3.0, 2.0),
    ElasticNetBall(0.5),
    Grouped(GROUPS, r=2.0),
    Average(),
)


def admitted(solver: str, weight_set: WeightSet, machine: Machine) -> bool:
    try:
        check_pairing(solver, weight_set, machine)
    except ValueError:
        return False
    return True


PAIRINGS = [
    (solver, weight_set, name)
    for name, machine in MACHINES.items()
    for weight_set in (SETS if name == "svm C=1" else FEWER)
    for solver in SOLVERS
    if admitted(solver, weight_set, machine)
]


def data_of(name: str) -> tuple[np.ndarray, np.ndarray]:
    return regression() if MACHINES[name].kind == "regressor" else binary()


@cache
def reference(weight_set: WeightSet, name: str) -> float:
    return optimum(weight_set, MACHINES[name], *data_of(name)).value


@pytest.mark.parametrize(("solver", "weight_set", "name"), PAIRINGS, ids=lambda x: x if isinstance(x, str) else repr(x))
def test_reaches_the_conic_optimum(solver: str, weight_set: WeightSet, name: str) -> None:
    saddle = solve(solver, weight_set, MACHINES[name], *data_of(name), tol=1e-5, max_iter=500)
    expected = reference(weight_set, name)
    rounding = 1e-7 * abs(expected)  # of the conic solver
    assert saddle.converged
    assert saddle.lower - rounding <= expected <= saddle.upper + rounding
    assert saddle.upper == pytest.approx(expected, rel=1e-4)
    assert saddle.lower == pytest.approx(expected, rel=1e-4)
    assert weight_set.feasible(saddle.best.weights)


@pytest.mark.parametrize("weight_set", [Simplex(), LpBall(2.0)], ids=repr)
@pytest.mark.parametrize("solver", SOLVERS)
def test_several_label_columns_share_one_weight_vector(solver: str, weight_set: WeightSet) -> None:
    Ks, y = binary()
    turn = np.arange(len(y))
    Y = np.stack([y, np.where(turn % 3 == 0, 1.0, -1.0), np.where(turn < 5, -y, y)], axis=1)
    machine = SVM(1.0)
    if solver == "smo" or not admitted(solver, weight_set, machine):
        with pytest.raises(ValueError, match=f"solver='{solver}' needs"):
            solve(solver, weight_set, machine, Ks, Y)
        return
    saddle = solve(solver, weight_set, machine, Ks, Y, tol=1e-5, max_iter=500)
    expected = optimum(weight_set, machine, Ks, Y).value
    assert saddle.converged
    assert saddle.lower * (1 - 1e-7) <= expected <= saddle.upper * (1 + 1e-7)
    assert saddle.best.solution.coef.shape == Y.shape


@pytest.mark.parametrize("solver", SOLVERS)
def test_single_precision_kernels(solver: str) -> None:
    """float32 values are about 1e-7 off, and so is the problem that they state: far below the tolerance."""
    Ks, y = binary()
    for weight_set in (Simplex(), LpBall(2.0)):
        if admitted(solver, weight_set, MACHINES["svm C=1"]):
            saddle = solve(solver, weight_set, MACHINES["svm C=1"], bank_of(Ks, "float32"), y, tol=1e-4, max_iter=500)
            assert saddle.converged
            assert saddle.upper == pytest.approx(reference(weight_set, "svm C=1"), rel=1.1e-4)
            assert saddle.lower == pytest.approx(reference(weight_set, "svm C=1"), rel=1.1e-4)


@pytest.mark.parametrize("weight_set", SETS, ids=repr)
def test_automatic_choice_converges(weight_set: WeightSet) -> None:
    saddle = solve("auto", weight_set, MACHINES["svm C=1"], *binary(), tol=1e-5)
    assert saddle.converged
    assert saddle.upper == pytest.approx(reference(weight_set, "svm C=1"), rel=1.1e-5)
