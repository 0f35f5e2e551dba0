"""Which solver goes with which weight set and machine: one table, one check, one automatic choice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import get_close_matches

from ..machines import Machine
from ..machines.svm import HingeMachine
from ..machines.worst_class import WorstClass
from ..weights import (
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
from ..weights.fixed import OnePoint
from ..weights.simplex import OnSimplices
from ..weights.soft_margin import SoftMargin
from .alternating import alternating
from .bundle import Bundle
from .cutting_plane import cutting_plane
from .level import level
from .mirror_descent import mirror_descent
from .newton import newton
from .projected_gradient import projected_gradient
from .reduced_gradient import reduced_gradient
from .saddle import Saddle
from .smo import smo
from .stochastic import StochasticApproximation


@dataclass(frozen=True)
class Asked:
    """What a solver asks of a machine and its number of label columns, as a test and in words."""

    fits: Callable[[Machine, int], bool]
    needs: str


_ANYTHING = Asked(lambda machine, n_tasks: True, "any machine")
_SMOOTH = Asked(
    lambda machine, n_tasks: machine.additive,
    "an objective that is smooth in the weights, which the worst of several label columns is not",
)
_ONE_HINGE_COLUMN = Asked(
    lambda machine, n_tasks: isinstance(machine, HingeMachine) and n_tasks == 1,
    "a hinge-loss machine with one label column",
)
_WORST_CLASS = Asked(
    lambda machine, n_tasks: isinstance(machine, WorstClass),
    "the worst of several label columns, sharing='worst-case', to draw columns from",
)


@dataclass(frozen=True)
class Solver:
    """A solver, the test a weight set must pass for it, that test in words, and what it asks of the machine."""

    function: Callable[[Saddle], None]
    fits: Callable[[WeightSet], bool]
    needs: str
    machine: Asked = _SMOOTH


def _on_simplices(w: WeightSet) -> bool:
    return isinstance(w, OnSimplices)


def _plain_simplex(w: WeightSet) -> bool:
    return isinstance(w, Simplex)


def _projected(w: WeightSet) -> bool:
    return w.has_projection and not w.has_penalty and not w.has_scale


SOLVERS: dict[str, Solver] = {
    "newton": Solver(
        newton,
        lambda w: w.has_projection and w.has_curvature and not w.has_scale,
        "a projection, and no penalty or one whose second derivative is bounded",
    ),
    "cutting-plane": Solver(
        cutting_plane,
        lambda w: Bundle(w).works,
        "either linear constraints only or a differentiable support function",
        _ANYTHING,
    ),
    "level": Solver(level, _projected, "a projection and no penalty", _ANYTHING),
    "reduced-gradient": Solver(reduced_gradient, _plain_simplex, "the plain simplex"),
    "projected-gradient": Solver(
        projected_gradient,
        lambda w: w.has_projection and w.has_gradient,
        "a projection and a penalty whose gradient is bounded and continuous",
    ),
    "mirror-descent": Solver(mirror_descent, _on_simplices, "a product of simplices"),
    "alternating": Solver(alternating, lambda w: w.has_update, "a closed-form update"),
    "smo": Solver(
        smo,
        lambda w: w.is_smooth and not w.has_scale,
        "a differentiable support function, such as an lp ball with p > 1",
        _ONE_HINGE_COLUMN,
    ),
    "stochastic": Solver(StochasticApproximation(), _plain_simplex, "the plain simplex", _WORST_CLASS),
}

#: Norm from which the closed form needs no more solves than Newton's method, and each is cheaper.
_CLOSED_FORM_FROM = 4.0
#: Label columns from which their second derivatives cost more than the solves they save.
_MANY_COLUMNS = 8

#: One of each set, to list what goes with what.
_EXAMPLES = (
    Simplex(),
    LpBall(2.0),
    LpBall(float("inf")),
    Entropy(1.0),
    CappedSimplex(nu=0.5),
    ElasticNet(1.0),
    PowerPenalty(1.5),
    ElasticNetBall(0.5),
    BlockElasticNet(0.5),
    Grouped((0, 0, 1, 1)),
    Grouped((0, 0, 1, 1), r=2.0),
    TikhonovLp(2.0, 1.0),
)


def pairings() -> dict[str, list[str]]:
    """Solver name -> the weight sets it works with, as they are written.

    Examples
    --------
    >>> from kernelweave.solvers import pairings
    >>> pairings()["reduced-gradient"]
    ['Simplex()']
    """
    return {name: [repr(w) for w in _EXAMPLES if solver.fits(w)] for name, solver in SOLVERS.items()}


def check_pairing(
    solver: str | StochasticApproximation, weights: WeightSet, machine: Machine, n_tasks: int = 1
) -> Solver:
    """The solver of that name, or an error that says why it cannot work here and which ones would.

    Weights that are fixed ask nothing of a solver, so any goes.
    """
    name, chosen = named(solver)
    if isinstance(weights, OnePoint):
        return chosen
    if machine.open_because:
        raise ValueError(
            f"Weights cannot be learned with this machine: {machine.open_because}, so the gap that would tell good "
            "weights from bad ones stays open. Use fixed weights, such as 'average', or a machine whose gap closes."
        )
    if weights.has_scale and not machine.additive:
        raise ValueError(
            f"{weights!r} scales its groups for each label column by itself, so no column is the worst for all scales: "
            "choose another weight set, or share the sum."
        )
    would = [other for other, s in SOLVERS.items() if s.fits(weights) and s.machine.fits(machine, n_tasks)]
    proposed = ", ".join(would)
    if not chosen.fits(weights):
        raise ValueError(
            f"solver={name!r} needs a weight set with {chosen.needs}, which {weights!r} is not. "
            f"Solvers that work with it: {proposed}."
        )
    if not chosen.machine.fits(machine, n_tasks):
        raise ValueError(
            f"solver={name!r} needs {chosen.machine.needs}, got {type(machine).__name__} with {n_tasks}. "
            f"Solvers that work here: {proposed}."
        )
    return chosen


def named(solver: str | StochasticApproximation) -> tuple[str, Solver]:
    """Name and entry of a solver; given settings take the place of the default ones."""
    if isinstance(solver, str):
        if solver in SOLVERS:
            return solver, SOLVERS[solver]
        near = get_close_matches(solver, SOLVERS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(SOLVERS)} or 'auto'."
        raise ValueError(f"There is no solver named {solver!r}: {hint}")
    if isinstance(solver, StochasticApproximation):
        return "stochastic", replace(SOLVERS["stochastic"], function=solver)
    raise TypeError(f"solver must be a name, 'auto' or a StochasticApproximation(...), got {solver!r}.")


def choose(weights: WeightSet, machine: Machine | None = None, n_tasks: int = 1, blocks: bool = True) -> str:
    """The solver that ``solver="auto"`` stands for: what the benchmarks show to need least time.

    Second derivatives of hinge-loss machines need blocks of the kernel, which a bank may not have (`Bank.has_blocks`).
    """
    hinge = isinstance(machine, HingeMachine)
    many = hinge and (n_tasks >= _MANY_COLUMNS or not blocks)
    if machine is not None and not machine.additive:
        preferred: tuple[str, ...] = ("level", "cutting-plane")
    elif many and isinstance(weights, Simplex):
        preferred = ("level",)
    elif isinstance(weights, LpBall) and (weights.p >= _CLOSED_FORM_FROM or (many and weights.p > 1)):
        preferred = ("alternating",)
    elif many and isinstance(weights, (CappedSimplex, SoftMargin)):
        preferred = ("projected-gradient",)
    elif isinstance(weights, SoftMargin):
        preferred = ("newton", "mirror-descent")
    else:
        preferred = ("newton", "alternating", "mirror-descent", "projected-gradient")
    for name in preferred:
        if SOLVERS[name].fits(weights) and (blocks or not hinge or name != "newton"):
            return name
    raise AssertionError(f"no solver is known for {weights!r}")


def run(solver: str | StochasticApproximation, saddle: Saddle) -> Saddle:
    """Solve a saddle problem by the named solver ("auto": chosen for what is to be solved); returns the filled books.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.kernels import Gaussian, KernelBank, Linear
    >>> from kernelweave.machines import SVM
    >>> from kernelweave.solvers import Saddle, run
    >>> from kernelweave.weights import Simplex
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(40, 3))
    >>> y = np.sign(X[:, :1])
    >>> bank = KernelBank([Linear(), Gaussian()]).build(X)
    >>> saddle = run("newton", Saddle(bank, SVM(C=1.0), Simplex(), y))
    >>> saddle.gap <= 1e-3, saddle.lower <= saddle.upper
    (True, True)
    """
    if solver == "auto":
        solver = choose(saddle.weights, saddle.machine, saddle.Y.shape[1], saddle.bank.has_blocks)
    chosen = check_pairing(solver, saddle.weights, saddle.machine, saddle.Y.shape[1])
    one_kernel = saddle.bank.n_kernels == 1 and not (saddle.weights.has_penalty or saddle.weights.has_scale)
    if isinstance(saddle.weights, OnePoint) or one_kernel:
        # Nothing to move: the machine alone has to reach the tolerance.
        saddle.proceed(saddle.evaluate(saddle.initial, accuracy=saddle.stopping.tol))
        return saddle
    chosen.function(saddle)
    return saddle
