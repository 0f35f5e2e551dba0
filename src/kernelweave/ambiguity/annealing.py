"""Alternation and deterministic annealing over the hidden labels of instances, or over the witnesses of bags.

Both minimise half the squared norm of f plus weighted squared hinge losses, over f and over what is hidden. Alternation
takes turns between the two. Annealing replaces the hidden choice by probabilities p, subtracts the temperature T times
their entropy, which makes a problem without sharp choices, and cools down:

    at each temperature T   minimise over f   F(f) = min over p of  |f|^2 / 2 + losses(f, p) - T entropy(p)

The best p at given scores is known in closed form, or by one root a bag (``hidden.py``), so that F has derivatives, and
Newton's method (``machines/newton.py``) follows its minimum. Temperatures on the way are left as soon as a step gains
little, as the next one mends what is missing; the last is settled. The published method takes turns between f and p
instead, which also lowers F, by less and less where labels are decided.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .._validation import check_cost, check_number
from ..machines.hinge_losses import asked_duals, hinge_loss, without_dust
from ..machines.newton import Bend, Move
from ..machines.squared_hinge import Point, WeightedProblem
from .hidden import Hidden

Array = NDArray[np.float64]

#: Steps at one temperature, or turns of an alternation, after which it goes on: a guard, never reached on real data.
_MAX_TURNS = 1000
#: Largest change of a probability in a Newton step, and the least and largest parts of a step that are tried.
_LARGE, _SHORTEST, _LONGEST = 0.4, 1e-3, 100.0
#: What a Newton step need not gain, beside the accuracy: probabilities are finer than the gap.
_NOTHING = 1e-4
#: Instances that keep more than this probability of being the witness are witnesses.
WITNESS_PROBABILITY = 1e-3
#: Gap of the first solve, where temperatures of C and more are still to come: nothing is decided yet.
_ROUGH = 1e-2
#: A temperature that is passed ends with a step that moves no probability by more, and gains no larger share.
_NEAR, _LITTLE = 0.1, 5e-4
#: Probabilities that change by less than this from one temperature to the next are the same: small beside the last.
_STAYED = 1e-4


@dataclass(frozen=True)
class Schedule:
    """How temperatures fall. They are in units of the cost C.

    Parameters
    ----------
    initial_temperature : float
    cooling : float
        What the temperature is divided by.
    min_temperature : float
        Below it, cooling ends.
    entropy : float
        Hidden labels whose total entropy (in nats) is below this are decided: cooling ends.
    tol : float
        Largest change of a probability, in a step or a turn at the last temperature, that counts as none.
    """

    initial_temperature: float = 10.0
    cooling: float = 1.5
    min_temperature: float = 1e-8
    entropy: float = 1e-2
    tol: float = 1e-3

    def __post_init__(self) -> None:
        for name in ("initial_temperature", "min_temperature", "tol"):
            check_cost(name, getattr(self, name))
        check_number("cooling", self.cooling, "above 1", lambda by: 1 < by < np.inf, "it divides the temperature")


@dataclass
class Outcome:
    """Where alternation or annealing ended.

    Attributes
    ----------
    p : array of shape (n_instances,)
    point : Point
        The solution for the weights of these probabilities.
    solves : int
        Machines solved, and Newton steps.
    path : list of tuples
        Temperature, entropy, free energy and solves at the end of every temperature, the last one settled; of an
        alternation, 0, 0, the objective and 1 for every turn.
    labels : array of shape (n_instances,)
        Zeros and ones that the solution is for; probabilities while they are not decided.
    """

    p: Array
    point: Point
    solves: int
    path: list[tuple[float, float, float, int]]
    labels: Array


#: Fields of the rows of `Outcome.path`.
PATH = np.dtype([("temperature", "f8"), ("entropy", "f8"), ("free_energy", "f8"), ("solves", "i8")])


def anneal(
    problem: WeightedProblem,
    hidden: Hidden,
    schedule: Schedule,
    accuracy: float = 1e-8,
    p: Array | None = None,
    report: Callable[[str], None] | None = None,
) -> Outcome:
    """Track the minimum of the free energy while the temperature falls.

    Parameters
    ----------
    problem : WeightedProblem
        The kernel of all instances.
    hidden : Hidden
    schedule : Schedule
    accuracy : float
        Relative duality gap at the end.
    p : array of shape (n_instances,), optional
        Probabilities to start from, instead of those of largest entropy.
    report : callable, optional
        Told a line at the end of every temperature.
    """
    p = hidden.start() if p is None else p
    T, solves = schedule.initial_temperature * hidden.C, 1
    point = problem.solve(*hidden.weights(p), accuracy=max(accuracy, _ROUGH * min(schedule.initial_temperature, 1.0)))
    path: list[tuple[float, float, float, int]] = []
    while True:
        last = p
        here, steps = _lower(problem, hidden, T, _place(hidden, T, point), accuracy, _NEAR, _LITTLE)
        stayed = float(np.abs(here.p - last).max()) < _STAYED
        decided = hidden.settled(here.p, here.point.scores, stayed, schedule.entropy)
        ends = decided or schedule.min_temperature * hidden.C > T
        if ends:
            here, more = _settle(problem, hidden, T, here, accuracy, schedule.tol)
            steps += more
        p, point, solves = here.p, here.point, solves + steps
        path.append((T, float(hidden.entropy(p).sum()), here.value, steps + (not path)))
        if report is not None:
            report(f"temperature {T:.3g}: entropy {path[-1][1]:.4g}, free energy {path[-1][2]:.6g}, {steps} solves")
        if ends:
            return Outcome(p, point, solves, path, p)
        T /= schedule.cooling


@dataclass
class _Place:
    """A function, the probabilities that are best for it, and the free energy of both."""

    point: Point
    p: Array
    value: float


def _place(hidden: Hidden, T: float, point: Point, move: Move | None = None, share: float = 1.0) -> _Place:
    """The place of a point, or of where a share of a move leads to from there."""
    coef, intercept, fitted = point.coef, point.intercept, point.fitted
    if move is not None:
        coef, fitted = coef + share * move.coef, fitted + share * move.fitted
        intercept += share * move.intercept
    p = hidden.probabilities(fitted + intercept, T)
    loss, quadratic = hinge_loss(fitted, intercept, *hidden.weights(p)), 0.5 * float(coef @ fitted)
    point = Point(coef, intercept, fitted, 0.0, loss, quadratic, factor=point.factor)
    return _Place(point, p, hidden.free_energy(point, p, T))


def _lower(
    problem: WeightedProblem, hidden: Hidden, T: float, here: _Place, accuracy: float, near: float, little: float
) -> tuple[_Place, int]:
    """Steps at one temperature until one moves no p by more than `near` and gains no larger share than `little`.

    Returns where they end, and how many they were.
    """
    steps, goes_on = 0, True
    while goes_on and steps < _MAX_TURNS:
        steps, before, here = steps + 1, here, _step(problem, hidden, T, here, accuracy)
        goes_on = np.abs(here.p - before.p).max() > near or before.value - here.value > little * abs(here.value)
    return here, steps


def _settle(
    problem: WeightedProblem, hidden: Hidden, T: float, here: _Place, accuracy: float, tol: float
) -> tuple[_Place, int]:
    """Steps at one temperature until a whole turn changes no p; ends at the certified solution for that p."""
    total = 0
    while True:
        here, steps = _lower(problem, hidden, T, here, accuracy, tol, accuracy)
        total += steps
        w = hidden.weights(here.p)
        point = problem.certify(here.point, *w)
        if not point.within(accuracy):
            point = problem.solve(*w, here.point, accuracy)
        turned = _place(hidden, T, point)
        if np.abs(turned.p - here.p).max() < tol or turned.value >= here.value or total >= _MAX_TURNS:
            return replace(here, point=point), total
        here = turned


def _step(problem: WeightedProblem, hidden: Hidden, T: float, here: _Place, accuracy: float) -> _Place:
    """A Newton step on the free energy; if that fails, on the machine while p is held; if that fails, a whole turn.

    Steps that would turn a probability around are shortened, or fail: they could decide labels otherwise than turns do.
    """
    w_plus, w_minus = without_dust(*hidden.weights(here.p))
    f = here.point.scores
    residual = asked_duals(f, w_plus, w_minus) - here.point.coef
    following = hidden.bend(f, here.p, T, w_plus, w_minus)
    for bend in (following, Bend.diagonal(following.bound)):
        reached = _newton(problem, hidden, T, here, residual, bend, accuracy)
        if reached is not None:
            return reached
    return _place(hidden, T, problem.solve(*hidden.weights(here.p), here.point, accuracy))


def _newton(
    problem: WeightedProblem, hidden: Hidden, T: float, here: _Place, residual: Array, bend: Bend, accuracy: float
) -> _Place | None:
    """Where a Newton step leads to, or its first half, quarter, ... that can be trusted and lowers the free energy.

    Where the free energy does not curve upwards in its direction, the step is doubled instead, while that lowers it.
    None if no part of the step will do.
    """

    def is_far(place: _Place) -> bool:
        return bool(np.abs(place.p - here.p).max() > _LARGE)

    point = here.point
    enough = _NOTHING * accuracy * abs(point.primal)
    move, point.factor = problem.newton(residual, bend, point.factor, enough)  # the factor serves the next try, too
    reached = _place(hidden, T, point, move)
    if not move.curved:
        return None if is_far(reached) else _doubled(hidden, T, here, reached, move, is_far)
    share = 1.0
    while reached.value > here.value or is_far(reached):
        share *= 0.5
        if share < _SHORTEST:
            return None
        reached = _place(hidden, T, point, move, share)
    return reached


def _doubled(
    hidden: Hidden, T: float, here: _Place, reached: _Place, move: Move, is_far: Callable[[_Place], bool]
) -> _Place | None:
    """The longest step, by doubling, that still lowers the free energy and does not lead too far."""
    best, share = here, 1.0
    while reached.value < best.value and not is_far(reached) and share < _LONGEST:
        share *= 2
        best, reached = reached, _place(hidden, T, here.point, move, share)
    return None if best is here else best


def alternate(
    problem: WeightedProblem,
    hidden: Hidden,
    p: Array,
    point: Point | None = None,
    accuracy: float = 1e-8,
    turns: int | None = None,
) -> Outcome:
    """Take turns between the machine and what is hidden until nothing changes; the objective never increases.

    Parameters
    ----------
    problem : WeightedProblem
    hidden : Hidden
    p : array of shape (n_instances,)
        Where to begin, zeros and ones.
    point : Point, optional
        Where the first solve starts.
    accuracy : float
    turns : int, optional
        How many to take at most.
    """
    path: list[tuple[float, float, float, int]] = []
    while True:
        point = problem.solve(*hidden.weights(p), point, accuracy)
        path.append((0.0, 0.0, point.primal + hidden.penalty(p), 1))
        new = hidden.choice(point.scores)
        if np.array_equal(new, p) or len(path) == (turns or _MAX_TURNS):
            return Outcome(p, point, len(path), path, p)
        p = new
