"""The direct method: its own dual, step by step."""

from __future__ import annotations

import numpy as np
import pytest
from problems import bank_of, binary, solve

from kernelweave.machines import SVM, NuSVM
from kernelweave.machines.svm import HingeMachine
from kernelweave.solvers import Saddle
from kernelweave.solvers.smo import _Ascent
from kernelweave.weights import (
    BlockElasticNet,
    ElasticNet,
    ElasticNetBall,
    Entropy,
    LpBall,
    PowerPenalty,
    TikhonovLp,
    WeightSet,
)

SETS = (
    LpBall(1.1),
    LpBall(2.0),
    LpBall(4.0),
    TikhonovLp(2.0, 2.0),
    Entropy(0.5),
    ElasticNet(1.0),
    PowerPenalty(3.0, 2.0),
    ElasticNetBall(0.5),
    BlockElasticNet(0.5),
)
MACHINES = {"bias": SVM(1.0), "no bias": SVM(1.0, fit_intercept=False), "nu": NuSVM(0.4)}


def ascent_of(machine: HingeMachine, weight_set: WeightSet) -> _Ascent:
    Ks, y = binary()
    saddle = Saddle(bank_of(Ks), machine, weight_set, y[:, None])
    return _Ascent(saddle, machine.box(y), machine.feasible_start(y))


@pytest.mark.parametrize("weight_set", SETS, ids=repr)
@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_dual_never_falls_and_stays_feasible(machine: HingeMachine, weight_set: WeightSet) -> None:
    Ks, y = binary()
    ascent = ascent_of(machine, weight_set)
    box, sums = ascent.problem, ascent.problem.groups @ ascent.v
    values = [ascent.value()]
    for _ in range(60):
        ascent.run(1)
        values.append(ascent.value())
        assert np.all((ascent.v >= box.lower) & (ascent.v <= box.upper))
    assert np.all(np.diff(values) >= -1e-12 * np.abs(values[1:]))
    np.testing.assert_allclose(box.groups @ ascent.v, sums, atol=1e-12)
    np.testing.assert_allclose(ascent.F, Ks @ ascent.v, atol=1e-10)
    np.testing.assert_allclose(ascent.h, [0.5 * ascent.v @ K @ ascent.v for K in Ks], atol=1e-10)
    optimum = solve("auto", weight_set, machine, Ks, y, tol=1e-7, max_iter=5000)
    assert values[0] < values[-1] <= optimum.upper + 1e-9


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_a_step_along_a_pair_is_exact(machine: HingeMachine) -> None:
    """No other length of the first step gives a larger dual value."""
    Ks, _ = binary()
    ascent = ascent_of(machine, LpBall(2.0))
    ascent.run(5)
    before = ascent.v.copy()
    ascent.run(1)
    direction = ascent.v - before
    assert 1 <= np.count_nonzero(direction) <= 2

    def dual(v: np.ndarray) -> float:
        return float(ascent.problem.linear @ v) - LpBall(2.0).support(0.5 * np.einsum("i,jik,k->j", v, Ks, v))

    for t in (0.5, 0.9, 0.99, 1.01, 1.1):
        other = before + t * direction
        if np.all((other >= ascent.problem.lower) & (other <= ascent.problem.upper)):
            assert dual(other) <= dual(ascent.v) + 1e-12


@pytest.mark.parametrize("machine", [SVM(1.0), SVM(1.0, fit_intercept=False)], ids=["bias", "no bias"])
def test_runs_until_no_step_is_left(machine: SVM) -> None:
    ascent = ascent_of(machine, LpBall(2.0))
    for _ in range(200):
        if not ascent.run(100):
            break
    else:
        pytest.fail("steps never ran out")
    optimum = solve("newton", LpBall(2.0), machine, *binary(), tol=1e-9)
    assert ascent.value() == pytest.approx(optimum.upper, rel=1e-7)
    # the weights of the penalised form: ||d||_p = ||h||_q / strength
    twin = ascent_of(machine, TikhonovLp(2.0, 3.0))
    twin.run(2000)
    assert np.linalg.norm(twin.weights()) == pytest.approx(np.linalg.norm(twin.h) / 3.0, rel=1e-12)


def test_kernels_are_not_combined_by_the_steps() -> None:
    Ks, y = binary()
    saddle = solve("smo", LpBall(2.0), SVM(1.0), Ks, y, tol=1e-5)
    assert saddle.converged
    assert saddle.adds <= len(Ks) * (len(saddle.history) + 1)
