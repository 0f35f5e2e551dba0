"""The column-generation loop: solve with the columns there are, ask for better ones, add them, remove those of no use.

    restricted master   the saddle problem on the kernels of the columns in use
    oracle              columns of large energy T = 1/2 sum_k v_k' K v_k at the duals v of the master

With weights on the simplex, an optimum has no column whose energy exceeds the largest of those in use. At any duals,

    S(a) - max over ALL columns of T   <=   optimum over all columns   <=   value of the restricted master

so an oracle that bounds T over all columns makes a certificate. What a column is, only store and oracle know: it may be
several kernels that come and go together, all columns alike. Their energies then are a block, and T is what the weight
set makes of a block alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..kernels import Bank
from ..machines import Machine, Solution
from ..solvers import Saddle, Stopping, run
from ..solvers.saddle import Point, relative_gap
from ..weights import WeightSet
from ..weights.base import DUST
from ..weights.chosen import Chosen
from ..weights.fixed import OnePoint
from ..weights.grouped import Grouped

Array = NDArray[np.float64]

#: Of the tolerated gap, the share left to the master, the share left to the oracle, and the least gain of a new column.
_MASTER_SHARE, _ORACLE_SHARE, _GAIN_SHARE = 0.3, 0.3, 0.1
#: Where no column is left to add and the gap is still open, masters are solved more accurately, down to this share.
_FINEST_SHARE, _TIGHTER = 0.01, 0.2
#: While much is to be gained from new columns, the master is solved only this much more accurately.
_WHILE_FAR = 0.1
_COARSEST = 0.1
#: How well the first columns are chosen; duals then have the size 1, and energies are at most 2 a task.
_START_ACCURACY = 1e-3
#: Iterations of a master.
_MASTER_ITERATIONS = 500
#: Share of uniform weights that masters begin with where a weight of zero could not grow.
_UNIFORM = 0.1
#: Columns that stand for endless ones.
_ENDLESS = 1000

ROUNDS = np.dtype(
    [(name, float) for name in ("objective", "upper", "lower", "gap", "level", "found", "bound")]
    + [(name, np.int64) for name in ("iteration", "kernels", "active", "generated", "solves")]
    + [(name, float) for name in ("seconds_master", "seconds_search", "seconds")]
)


@dataclass
class Proposal:
    """What an oracle found.

    Attributes
    ----------
    columns : list
        Different columns, of the largest energies first.
    energies : array of shape (len(columns),), or (len(columns), n_kernels of a column)
    bound : float
        No column at all has a larger energy; infinite if that is not known.
    """

    columns: list[Any]
    energies: Array
    bound: float


class Oracle(Protocol):
    """Proposes columns."""

    def propose(self, V: Array, known: Sequence[Any], most: int, level: float, accuracy: float) -> Proposal:
        """At most so many columns of large energy at the duals V, (n_samples, m).

        `known` columns are in use or were once. Energies up to `level` are of no use, and nobody cares which of two
        columns is better by less than `accuracy`.
        """


class Store(Protocol):
    """Keeps the kernels of the columns in use."""

    @property
    def bank(self) -> Bank: ...

    def add(self, columns: Sequence[Any]) -> None: ...

    def keep(self, kept: NDArray[np.bool_]) -> None: ...


@dataclass(frozen=True)
class Rules:
    """When to stop and how much to add.

    Parameters
    ----------
    tol : float
        Relative gap between the bounds.
    max_columns : int
        Most columns that are generated, those removed again included.
    n_price : int
        Most columns added in a round.
    violation : float, optional
        If given, the columns worth adding are those whose energy exceeds the largest in use by this share, whatever
        they would gain: for weights without an optimum over endless columns, where every column gains something.
    removes : bool
        Whether columns without weight are removed.
    """

    tol: float = 1e-3
    max_columns: int = 200
    n_price: int = 5
    violation: float | None = None
    removes: bool = True


@dataclass
class Generated:
    """The last master and what is known about it.

    Attributes
    ----------
    columns : list
        The columns of the bank, in its order.
    saddle : Saddle
        The filled books of the last master.
    upper, lower : float
        Bounds on the optimum over all columns; the lower one holds for all columns if `certified`, else for all that
        were found.
    certified, converged : bool
    proposal : Proposal
        The last answer of the oracle: its first column is the most violated one that was found.
    found : array of shape (len(proposal.columns),)
        Energies of the proposed columns.
    crossed : float
        The largest of what bounds of masters crossed by; see :class:`kernelweave.solvers.Saddle`.
    level : float
        The energy that a column must exceed to be of use. Level and energies are at the duals of ``saddle.tightest``.
    solves, adds : int
    rounds : list of tuple
        Rows of ``ROUNDS``.
    """

    columns: list[Any]
    saddle: Saddle
    upper: float = np.inf
    lower: float = -np.inf
    certified: bool = False
    converged: bool = False
    proposal: Proposal = field(default_factory=lambda: Proposal([], np.empty(0), np.inf))
    found: Array = field(default_factory=lambda: np.empty(0))
    crossed: float = 0.0
    level: float = 0.0
    solves: int = 0
    adds: int = 0
    rounds: list[tuple] = field(default_factory=list)

    @property
    def gap(self) -> float:
        """Relative gap between the bounds, or by how much those of a master crossed."""
        return max(relative_gap(self.upper, self.lower), self.crossed)

    @property
    def history(self) -> NDArray:
        """A row a round; see ``ROUNDS`` for the columns."""
        return np.array(self.rounds, dtype=ROUNDS)


def check_weights(weights: WeightSet, n_kernels: int = 1) -> None:
    """Refuse weight sets that mean nothing where the number of columns, of so many kernels each, is not fixed."""
    if isinstance(weights, (OnePoint, Chosen, Grouped)):
        raise ValueError(
            f"{weights!r} is about a given number of kernels, but here kernels are generated one after the other: use "
            "weights='l1', or a set such as 'l2' that takes any number of kernels."
        )
    try:
        weights.start(n_kernels)
    except ValueError as error:
        raise ValueError(
            f"{weights!r} cannot weigh a single column ({n_kernels} kernels), which generation may start from: {error}"
        ) from error


def has_limit(weights: WeightSet, n_kernels: int = 1) -> bool:
    """Whether columns that add nothing (many copies, or energies of zero) leave the optimum as it is.

    Then an optimum over all columns, of so many kernels each, exists. It does on the simplex. In an l2 ball, N copies
    of a kernel are a kernel sqrt(N) times as large; where a cap falls with the number of columns, none keeps
    its weight.
    """
    alone = np.ones(n_kernels)
    copies = np.ones(_ENDLESS * n_kernels)
    beside_nothing = np.concatenate([alone, np.zeros((_ENDLESS - 1) * n_kernels)])
    return bool(np.allclose([weights.support(copies), weights.support(beside_nothing)], weights.support(alone)))


def column_energies(weights: WeightSet, blocks: Array) -> Array:
    """Energies of columns, (n_columns,), from those of their kernels, (n_columns,) or (n_columns, n_kernels)."""
    if blocks.ndim == 1 or blocks.shape[1] == 1:
        return blocks.reshape(-1)
    return np.array([weights.support(block) for block in blocks])


def generate(
    store: Store,
    oracle: Oracle,
    machine: Machine,
    weights: WeightSet,
    Y: Array,
    rules: Rules,
    initial: Sequence[Any] = (),
    on_round: Callable[[np.void], None] | None = None,
) -> Generated:
    """Generate columns until none improves the objective by more than the tolerance.

    Parameters
    ----------
    store : Store
        Empty.
    oracle : Oracle
    machine, weights, Y
        As in :class:`kernelweave.solvers.Saddle`.
    rules : Rules
    initial : sequence of columns
        To begin with; by default those that agree best with the targets.
    on_round : callable, optional
        Called with each row of the history.
    """
    begin = time.perf_counter()
    columns = list(initial) or oracle.propose(_aligned(Y), [], rules.n_price, 0.0, _START_ACCURACY).columns
    store.add(columns)
    width = store.bank.n_kernels // len(columns)
    check_weights(weights, width)
    limited = has_limit(weights, width)
    searching = time.perf_counter() - begin
    removed: list[Any] = []
    generated, accuracy = len(columns), _COARSEST
    guess: Array | None = None
    solution: Solution | None = None
    result: Generated | None = None
    while True:
        clock = time.perf_counter()
        saddle = _solve_master(store.bank, machine, weights, Y, accuracy, guess, solution)
        mastering = time.perf_counter() - clock
        result = _book_master(result, columns, saddle)
        searching += _price(result, oracle, machine, weights, columns + removed, rules, limited)
        row = _row(result, columns, generated, mastering, searching, time.perf_counter() - begin)
        result.rounds.append(row)
        if on_round is not None:
            on_round(np.array([row], dtype=ROUNDS)[0])
        searching = 0.0

        new = _worth_adding(result, weights, rules)[: rules.max_columns - generated]
        # A finer master may find columns that gain something; not where a violation, or their number, ends the search.
        enough = generated >= rules.max_columns or (rules.violation is not None and not limited)
        finest = rules.tol * (_MASTER_SHARE if enough else _FINEST_SHARE)
        exact = accuracy <= _MASTER_SHARE * rules.tol
        result.converged = _settled(result, limited, rules) and (exact or limited)
        if result.converged or (not new and accuracy <= finest):
            return result
        accuracy = _next_accuracy(accuracy, result.gap, bool(new), rules.tol)
        assert saddle.best is not None
        kept = _in_use(saddle, len(columns)) if rules.removes else np.ones(len(columns), dtype=bool)
        removed += [column for column, keep in zip(columns, kept, strict=True) if not keep]
        columns = [column for column, keep in zip(columns, kept, strict=True) if keep] + new
        store.keep(kept)
        store.add(new)
        generated += len(new)
        guess = np.concatenate([saddle.best.weights[np.repeat(kept, width)], np.zeros(len(new) * width)])
        if not weights.feasible(guess):  # weights of fewer columns may be too large: then old bounds do not hold either
            result.upper = np.inf
        solution = saddle.best.solution


def attained(saddle: Saddle, tol: float) -> Point:
    """The best point of a master, with weights that attain its value within the tolerance.

    An upper bound may be that of other weights, which suit the same functions better: then these are taken, in turns.
    """
    point = saddle.best
    assert point is not None
    for _ in range(_MASTER_ITERATIONS):
        if not saddle.weights.has_update or relative_gap(point.value, saddle.lower) <= tol:
            break
        point = saddle.evaluate(saddle.weights.update(point.norms), near=point)
    return point


def _in_use(saddle: Saddle, n_columns: int) -> NDArray[np.bool_]:
    """Columns with a kernel that has weight at the best point, or where the lower bound comes from."""
    assert saddle.best is not None and saddle.tightest is not None
    used = [b > DUST * b.max() for b in (saddle.best.weights, saddle.tightest.weights)]
    return np.any(used, axis=0).reshape(n_columns, -1).any(axis=1)


def _next_accuracy(accuracy: float, gap: float, grows: bool, tol: float) -> float:
    """How accurately the next master is solved: in keeping with what there is still to gain."""
    if grows:
        return min(accuracy, max(_WHILE_FAR * gap, _MASTER_SHARE * tol))
    return min(_TIGHTER * accuracy, _MASTER_SHARE * tol)


def _aligned(Y: Array) -> Array:
    """Duals as if all samples of a side counted alike, (n_samples, n_tasks): energies then are alignments with Y."""
    positive, negative = np.maximum((Y > 0).sum(axis=0), 1), np.maximum((Y < 0).sum(axis=0), 1)
    return np.where(Y > 0, 1.0 / positive, np.where(Y < 0, -1.0 / negative, 0.0))


def _solve_master(
    bank: Bank,
    machine: Machine,
    weights: WeightSet,
    Y: Array,
    accuracy: float,
    guess: Array | None,
    solution: Solution | None,
) -> Saddle:
    saddle = Saddle(bank, machine, weights, Y, Stopping(accuracy, _MASTER_ITERATIONS), start=solution)
    if guess is not None:
        if weights.simplices(1) is None or weights.has_penalty:  # solvers for these may need positive weights
            guess = (1 - _UNIFORM) * guess + _UNIFORM * saddle.initial
        if not weights.feasible(guess) and weights.has_projection:
            guess = weights.project(guess)
        if weights.feasible(guess):
            saddle.initial = guess
    return run("auto", saddle)


def _book_master(result: Generated | None, columns: list[Any], saddle: Saddle) -> Generated:
    if result is None:
        result = Generated(columns, saddle)
    result.columns, result.saddle = columns, saddle
    result.upper, result.crossed = min(result.upper, saddle.upper), max(result.crossed, saddle.crossed)
    result.solves += saddle.solves
    result.adds += saddle.adds
    return result


def _price(
    result: Generated,
    oracle: Oracle,
    machine: Machine,
    weights: WeightSet,
    known: list[Any],
    rules: Rules,
    limited: bool,
) -> float:
    """Ask the oracle, and take note of the lower bound; returns the seconds it took."""
    clock = time.perf_counter()
    point = result.saddle.tightest  # of all duals, those nearest to the best: others would call for kernels of no use
    assert point is not None
    blocks = point.h.reshape(len(result.columns), -1)
    compared = limited or rules.violation is not None
    result.level = float(column_energies(weights, blocks).max()) if compared else 0.0
    wanted = _ORACLE_SHARE * rules.tol * abs(result.upper)
    V = machine.cut(point.solution)
    result.proposal = proposal = oracle.propose(V, known, rules.n_price, result.level, wanted)
    result.found = column_energies(weights, proposal.energies)
    before = result.lower if result.certified else -np.inf
    result.certified = limited and bool(np.isfinite(proposal.bound))
    if not limited:  # only the kernels at hand have an optimum
        result.lower = min(result.saddle.lower, result.upper)
        return time.perf_counter() - clock
    largest = np.zeros(blocks.shape[1])
    largest[0] = proposal.bound if result.certified else result.found.max(initial=0.0)  # by whichever of its kernels
    lower = point.solution.linear - weights.support(np.append(point.h, largest))
    # A bound over the columns that were found holds for no others, so only certified ones are kept.
    result.lower = min(max(lower, before) if result.certified else lower, result.upper)
    return time.perf_counter() - clock


def _gains(result: Generated, weights: WeightSet) -> Array:
    """How much the lower bound of the master would fall at once by each proposed column alone."""
    point = result.saddle.tightest
    assert point is not None
    now = weights.support(point.h)
    return np.array([weights.support(np.append(point.h, block)) - now for block in result.proposal.energies])


def _worth_adding(result: Generated, weights: WeightSet, rules: Rules) -> list[Any]:
    if rules.violation is not None:
        gains, least = result.found, (1.0 + rules.violation) * result.level
    else:
        gains, least = _gains(result, weights), _GAIN_SHARE * rules.tol * abs(result.upper)
    return [column for column, gain in zip(result.proposal.columns, gains, strict=True) if gain > least]


def _settled(result: Generated, limited: bool, rules: Rules) -> bool:
    if limited:
        return result.gap <= rules.tol
    # Without an optimum over all columns: when the last columns have hardly changed the objective.
    history = result.history
    before = history["upper"][history["kernels"] < len(result.columns)][-1:]
    return bool(np.all(np.abs(before - result.upper) <= rules.tol * abs(result.upper))) and len(before) > 0


def _row(
    result: Generated, columns: list[Any], generated: int, mastering: float, searching: float, seconds: float
) -> tuple:
    point = result.saddle.best
    assert point is not None
    found = float(result.found.max(initial=0.0))
    bounds = (result.saddle.upper, result.upper, result.lower, result.gap, result.level, found, result.proposal.bound)
    active = int(np.count_nonzero(point.weights))
    return (
        *bounds,
        len(result.rounds) + 1,
        len(columns),
        active,
        generated,
        result.solves,
        mastering,
        searching,
        seconds,
    )
