"""Which solver goes with which weight set and machine: one table, one check, one automatic choice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches

from ..machines import Machine
from ..machines.svm import HingeMachine
from ..weights import (
    BlockElasticNet,
    ElasticNetBall,
    Entropy,
    Grouped,
    LpBall,
    Simplex,
    TikhonovLp,
    WeightSet,
)
from ..weights.fixed import OnePoint
from ..weights.simplex import OnSimplices
from .alternating import alternating
from .cutting_plane import cutting_plane
from .level import level
from .mirror_descent import mirror_descent
from .newton import newton
from .projected_gradient import projected_gradient
from .reduced_gradient import reduced_gradient
from .saddle import Saddle
from .smo import smo


@dataclass(frozen=True)
class Solver:
    """A solver, the test a weight set must pass for it, and that test in words."""

    function: Callable[[Saddle], None]
    fits: Callable[[WeightSet], bool]
    needs: str
    hinge_only: bool = False


def _on_simplices(w: WeightSet) -> bool:
    return isinstance(w, OnSimplices)


SOLVERS: dict[str, Solver] = {
    "newton": Solver(
        newton,
        lambda w: w.has_projection and not w.has_penalty and not w.has_scale,
        "a projection and no penalty",
    ),
    "cutting-plane": Solver(
        cutting_plane,
        lambda w: w.is_linear or w.is_smooth,
        "either linear constraints only or a differentiable support function",
    ),
    "level": Solver(
        level, lambda w: w.has_projection and not w.has_penalty and not w.has_scale, "a projection and no penalty"
    ),
    "reduced-gradient": Solver(reduced_gradient, lambda w: isinstance(w, Simplex), "the plain simplex"),
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
        hinge_only=True,
    ),
}

#: Norm from which the closed form needs no more solves than Newton's method, and each is cheaper.
_CLOSED_FORM_FROM = 4.0

#: One of each set, to list what goes with what.
_EXAMPLES = (
    Simplex(),
    LpBall(2.0),
    LpBall(float("inf")),
    Entropy(1.0),
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
    >>> pairings()["reduced-gradient"]
    ['Simplex()']
    """
    return {name: [repr(w) for w in _EXAMPLES if solver.fits(w)] for name, solver in SOLVERS.items()}


def check_pairing(name: str, weights: WeightSet, machine: Machine, n_tasks: int = 1) -> Solver:
    """The solver of that name, or an error that says why it cannot work here and which ones would.

    Weights that are fixed ask nothing of a solver, so any goes.
    """
    if name not in SOLVERS:
        near = get_close_matches(name, SOLVERS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(SOLVERS)} or 'auto'."
        raise ValueError(f"There is no solver named {name!r}: {hint}")
    solver = SOLVERS[name]
    if isinstance(weights, OnePoint):
        return solver
    would = [other for other, s in SOLVERS.items() if s.fits(weights) and _machine_fits(s, machine, n_tasks)]
    if not solver.fits(weights):
        raise ValueError(
            f"solver={name!r} needs a weight set with {solver.needs}, which {weights!r} is not. "
            f"Solvers that work with it: {', '.join(would)}."
        )
    if not _machine_fits(solver, machine, n_tasks):
        raise ValueError(
            f"solver={name!r} needs a hinge-loss machine with one label column, got {type(machine).__name__} with "
            f"{n_tasks}. Solvers that work here: {', '.join(would)}."
        )
    return solver


def _machine_fits(solver: Solver, machine: Machine, n_tasks: int) -> bool:
    return not solver.hinge_only or (isinstance(machine, HingeMachine) and n_tasks == 1)


def choose(weights: WeightSet) -> str:
    """The solver that ``solver="auto"`` stands for: what the benchmarks show to need least time."""
    if isinstance(weights, LpBall) and weights.p >= _CLOSED_FORM_FROM:
        return "alternating"
    for name in ("newton", "alternating", "mirror-descent", "projected-gradient"):
        if SOLVERS[name].fits(weights):
            return name
    raise AssertionError(f"no solver is known for {weights!r}")


def run(name: str, saddle: Saddle) -> Saddle:
    """Solve a saddle problem by the named solver ("auto": chosen by the weight set); returns the filled books.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.kernels import Gaussian, KernelBank, Linear
    >>> from kernelweave.machines import SVM
    >>> from kernelweave.weights import Simplex
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(40, 3))
    >>> y = np.sign(X[:, :1])
    >>> bank = KernelBank([Linear(), Gaussian()]).build(X)
    >>> saddle = run("newton", Saddle(bank, SVM(C=1.0), Simplex(), y))
    >>> saddle.gap <= 1e-3, saddle.lower <= saddle.upper
    (True, True)
    """
    name = choose(saddle.weights) if name == "auto" else name
    solver = check_pairing(name, saddle.weights, saddle.machine, saddle.Y.shape[1])
    if isinstance(saddle.weights, OnePoint):
        # Nothing to move: the machine alone has to reach the tolerance.
        saddle.proceed(saddle.evaluate(saddle.initial, accuracy=saddle.stopping.tol))
        return saddle
    solver.function(saddle)
    return saddle
