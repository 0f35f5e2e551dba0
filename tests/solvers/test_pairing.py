"""Which solver goes with which weight set: the table, and what a refusal says."""

from __future__ import annotations

import numpy as np
import pytest
from problems import bank_of, binary

from kernelweave.machines import SVM, Machine, Ridge
from kernelweave.machines.worst_class import WorstClass
from kernelweave.solvers import SOLVERS, Saddle, StochasticApproximation, check_pairing, choose, pairings, run
from kernelweave.solvers.newton import newton
from kernelweave.solvers.pairing import _EXAMPLES
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

#: Written by hand from the theory: what each method needs of the weight set.
WORKS = {
    "newton": [
        *(Simplex(), LpBall(1.5), LpBall(np.inf), ElasticNetBall(0.5), Grouped([0, 0, 1])),
        *(CappedSimplex(nu=0.5), ElasticNet(), PowerPenalty(3.0)),
    ],
    "cutting-plane": [
        *(Simplex(), LpBall(1.0), LpBall(1.5), LpBall(np.inf), Entropy(), ElasticNetBall(0.5), BlockElasticNet(0.5)),
        *(Grouped([0, 0, 1]), TikhonovLp(2.0), CappedSimplex(nu=0.5), ElasticNet(), PowerPenalty(1.5)),
    ],
    "level": [Simplex(), LpBall(1.5), LpBall(np.inf), ElasticNetBall(0.5), Grouped([0, 0, 1]), CappedSimplex(nu=0.5)],
    "reduced-gradient": [Simplex()],
    "projected-gradient": [
        *(Simplex(), LpBall(1.5), ElasticNetBall(0.5), Grouped([0, 0, 1], r=2.0), TikhonovLp(2.0)),
        *(CappedSimplex(nu=0.5), ElasticNet(), PowerPenalty(1.5)),
    ],
    "mirror-descent": [
        *(Simplex(), Entropy(), Grouped([0, 0, 1]), Grouped([0, 0, 1], r=2.0), ElasticNet(), PowerPenalty(1.5)),
    ],
    "alternating": [
        *(Simplex(), LpBall(1.5), LpBall(np.inf), ElasticNetBall(0.5), BlockElasticNet(0.5), TikhonovLp(2.0)),
        *(CappedSimplex(nu=0.5), ElasticNet(), PowerPenalty(1.5)),
    ],
    "smo": [
        *(LpBall(1.1), LpBall(4.0), Entropy(), ElasticNetBall(0.5), BlockElasticNet(0.5), TikhonovLp(2.0)),
        *(ElasticNet(), PowerPenalty(1.5)),
    ],
}
REFUSED = {
    "newton": [Entropy(), BlockElasticNet(0.5), TikhonovLp(2.0), Grouped([0, 0, 1], r=2.0), PowerPenalty(1.5)],
    "level": [Entropy(), BlockElasticNet(0.5), TikhonovLp(2.0), ElasticNet()],
    "reduced-gradient": [LpBall(1.0), LpBall(2.0), Entropy(), Grouped([0, 0, 1]), CappedSimplex(nu=0.5)],
    "mirror-descent": [LpBall(2.0), ElasticNetBall(0.5), BlockElasticNet(0.5), TikhonovLp(2.0), CappedSimplex(nu=0.5)],
    "alternating": [Entropy()],
    "smo": [Simplex(), LpBall(1.0), ElasticNetBall(1.0), Grouped([0, 0, 1]), TikhonovLp(1.0), CappedSimplex(nu=0.5)],
}


def flat(table: dict[str, list[WeightSet]]) -> list[tuple[str, WeightSet]]:
    return [(solver, weight_set) for solver, sets in table.items() for weight_set in sets]


@pytest.mark.parametrize(("solver", "weight_set"), flat(WORKS), ids=repr)
def test_accepts(solver: str, weight_set: WeightSet) -> None:
    assert check_pairing(solver, weight_set, SVM()) is SOLVERS[solver]


@pytest.mark.parametrize(("solver", "weight_set"), flat(REFUSED), ids=repr)
def test_refusal_names_solver_set_and_alternatives(solver: str, weight_set: WeightSet) -> None:
    with pytest.raises(ValueError) as refusal:
        check_pairing(solver, weight_set, SVM())
    message = str(refusal.value)
    assert f"solver={solver!r}" in message
    assert repr(weight_set) in message
    proposed = message.split("Solvers that work with it: ")[1].rstrip(".").split(", ")
    assert proposed and solver not in proposed
    for other in SOLVERS:
        assert (other in proposed) == accepted(other, weight_set)


def accepted(solver: str, weight_set: WeightSet, machine: Machine | None = None, n_tasks: int = 1) -> bool:
    try:
        check_pairing(solver, weight_set, machine or SVM(), n_tasks)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize(("machine", "n_tasks"), [(Ridge(), 1), (SVM(), 3)], ids=["ridge", "three columns"])
def test_smo_needs_one_column_of_a_hinge_machine(machine: Machine, n_tasks: int) -> None:
    with pytest.raises(ValueError, match=r"solver='smo' needs a hinge-loss machine with one label column") as refusal:
        check_pairing("smo", LpBall(2.0), machine, n_tasks)
    assert type(machine).__name__ in str(refusal.value)
    assert "newton" in str(refusal.value).split("Solvers that work here: ")[1]
    for solver in ("newton", "cutting-plane", "level", "projected-gradient", "alternating"):
        assert accepted(solver, LpBall(2.0), machine, n_tasks)


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_worst_class_is_for_methods_of_cuts_and_draws(solver: str) -> None:
    if solver in ("level", "cutting-plane", "stochastic"):
        assert check_pairing(solver, Simplex(), WorstClass(SVM()), 3) is SOLVERS[solver]
        return
    with pytest.raises(ValueError, match=rf"solver='{solver}' needs .*: cutting-plane, level, stochastic\.$"):
        check_pairing(solver, Simplex(), WorstClass(SVM()), 3)


def test_automatic_choice_for_the_worst_class() -> None:
    worst = WorstClass(SVM())
    for weight_set in (Simplex(), LpBall(2.0), LpBall(8.0), ElasticNetBall(0.5), Grouped([0, 0, 1])):
        assert choose(weight_set, worst) == "level"
    for weight_set in (Entropy(), TikhonovLp(2.0), BlockElasticNet(0.5)):
        assert choose(weight_set, worst) == "cutting-plane"
    for solver in SOLVERS:
        with pytest.raises(ValueError, match=r"Grouped.*r=2.0.* scales its groups"):
            check_pairing(solver, Grouped([0, 0, 1], r=2.0), worst, 3)


def test_automatic_choice_avoids_second_derivatives_of_many_columns() -> None:
    assert choose(Simplex(), SVM(), 2) == choose(LpBall(1.5), SVM(), 2) == "newton"
    assert choose(Simplex(), SVM(), 50) == "level"
    assert choose(LpBall(1.5), SVM(), 50) == "alternating"
    assert choose(CappedSimplex(nu=0.5), SVM(), 50) == choose(ElasticNet(), SVM(), 50) == "projected-gradient"
    assert choose(Simplex(), Ridge(), 50) == "newton"


def test_a_solver_with_settings_stands_for_itself() -> None:
    settings = StochasticApproximation(passes=3)
    assert check_pairing(settings, Simplex(), WorstClass(SVM()), 3).function is settings
    with pytest.raises(ValueError, match="solver='stochastic' needs a weight set with the plain simplex"):
        check_pairing(settings, LpBall(2.0), WorstClass(SVM()), 3)
    with pytest.raises(ValueError, match="solver='stochastic' needs the worst of several label columns"):
        check_pairing(settings, Simplex(), SVM(), 3)
    with pytest.raises(TypeError, match="solver must be a name"):
        check_pairing(newton, Simplex(), SVM())


def test_refused_before_anything_runs() -> None:
    Ks, y = binary()
    saddle = Saddle(bank_of(Ks), SVM(), LpBall(2.0), y[:, None])
    with pytest.raises(ValueError, match="solver='mirror-descent' needs"):
        run("mirror-descent", saddle)
    assert saddle.solves == 0 and len(saddle.history) == 0


@pytest.mark.parametrize(
    ("written", "meant"), [("newtom", "newton"), ("cutting_plane", "cutting-plane"), ("SMO", None), ("levels", "level")]
)
@pytest.mark.parametrize("weight_set", [Simplex(), Average()], ids=repr)
def test_unknown_name(written: str, meant: str | None, weight_set: WeightSet) -> None:
    expected = f"did you mean '{meant}'" if meant else "choose one of newton, cutting-plane, "
    with pytest.raises(ValueError, match=f"There is no solver named '{written}': {expected}"):
        check_pairing(written, weight_set, SVM())
    Ks, y = binary()
    with pytest.raises(ValueError, match="There is no solver named"):
        run(written, Saddle(bank_of(Ks), SVM(), weight_set, y[:, None]))


def test_the_list_of_pairings_is_what_the_check_accepts() -> None:
    listed = pairings()
    assert list(listed) == list(SOLVERS)
    assert len(set(_EXAMPLES)) == len(_EXAMPLES)
    for solver, names in listed.items():
        machine = WorstClass(SVM()) if solver == "stochastic" else SVM()
        assert names == [repr(w) for w in _EXAMPLES if accepted(solver, w, machine)]
        assert names


@pytest.mark.parametrize("weight_set", [*_EXAMPLES, LpBall(1.0), ElasticNetBall(1.0), TikhonovLp(1.0)], ids=repr)
@pytest.mark.parametrize("machine", [SVM(), Ridge()], ids=repr)
def test_automatic_choice_is_always_a_pairing_that_works(weight_set: WeightSet, machine: Machine) -> None:
    assert accepted(choose(weight_set), weight_set, machine, n_tasks=3)
