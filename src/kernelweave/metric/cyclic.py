"""Sweeps of projections over all pairs until the certificate is good, and what to say if it does not get good."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray

from .certificates import Certificate, certify, proves_infeasible
from .projections import Problem, State, rebuild, sweep

#: A row a sweep. `change` is the relative change of the multipliers, by which the published rule stops.
HISTORY = np.dtype(
    [("sweep", np.int64)]
    + [
        (name, np.float64)
        for name in ("objective", "dual_objective", "gap", "violation", "change", "largest_multiplier", "seconds")
    ]
)
#: Growth of the largest multiplier over the second half of the sweeps that looks like growth without end.
_RUNAWAY = 2.0
#: Multipliers, times the smallest target, that are past all sense.
_LOST = 1e30


@dataclass(frozen=True)
class Stopping:
    """When to stop: at a relative gap of `tol` (``by="gap"``), or at such a change of the multipliers."""

    by: str = "gap"
    tol: float = 1e-3
    max_sweeps: int = 200

    def reached(self, certificate: Certificate, change: float) -> bool:
        if self.by == "change":
            return change < self.tol
        return certificate.gap <= self.tol and certificate.hard_violation <= self.tol


#: Ten sweeps at most, or a relative change of the multipliers below a thousandth.
PUBLISHED = Stopping(by="change", tol=1e-3, max_sweeps=10)


@dataclass(frozen=True, eq=False)
class Outcome:
    """Where the sweeps ended; `infeasible` if it is proved that the problem has no solution."""

    state: State
    certificate: Certificate
    history: NDArray
    converged: bool
    infeasible: bool

    @property
    def runs_away(self) -> bool:
        """Whether the multipliers look as if they would grow without end."""
        largest = self.history["largest_multiplier"]
        return len(largest) >= 8 and largest[-1] > _RUNAWAY * largest[len(largest) // 2]


def run(
    problem: Problem,
    stopping: Stopping,
    corrected: bool,
    shuffle: bool,
    rng: RandomState,
    on_sweep: Callable[[np.void], None] | None = None,
) -> Outcome:
    """Sweep over the pairs, in a new random order each time if `shuffle`.

    A problem that is proved to have no solution is left: from then on all distances only shrink.
    """
    state, order, begin = State.start(problem), np.arange(len(problem.pairs)), time.perf_counter()
    history, converged, infeasible = np.zeros(stopping.max_sweeps, HISTORY), False, False
    for number in range(1, stopping.max_sweeps + 1):
        before = np.concatenate([state.a, state.b])
        if shuffle:
            rng.shuffle(order)
        sweep(problem, state, order, corrected)
        certificate = certify(problem, state)
        change = _change(before, np.concatenate([state.a, state.b]))
        seconds = time.perf_counter() - begin
        history[number - 1] = (
            number,
            certificate.objective,
            certificate.dual,
            certificate.gap,
            certificate.violation,
            change,
            state.a.max(initial=0.0),
            seconds,
        )
        if on_sweep is not None:
            on_sweep(history[number - 1])
        converged = stopping.reached(certificate, change)
        if not converged and _time_for_a_proof(number, stopping.max_sweeps):
            infeasible = proves_infeasible(problem, state)
        if converged or infeasible or state.a.max(initial=0.0) * problem.targets.min() > _LOST:
            break
    rebuild(problem, state)
    return Outcome(state, certify(problem, state), history[:number].copy(), converged, infeasible)


def _time_for_a_proof(number: int, max_sweeps: int) -> bool:
    """At 10, 20, 40, 80 sweeps and so on: a few are worth their while even where there is no solution."""
    tens, rest = divmod(number, 10)
    return number == max_sweeps or (rest == 0 and tens & (tens - 1) == 0)


def advice(outcome: Outcome, problem: Problem, stopping: Stopping) -> str | None:
    """What to tell the user of an outcome that is not what was asked for; None if it is."""
    hard = int(np.count_nonzero(problem.hard))
    freedom = sum(width * (width + 1) // 2 for width in (problem.X.shape[1], problem.Z.shape[1]))
    way_out = (
        f"The {hard} pairs without slack have {freedom} degrees of freedom (a solution can be hoped for up to about as "
        "many pairs). Give the pairs slack (slack=0.1), use fewer pairs or more features, or stop early with "
        "stopping='published'; until then the distance is only good for comparing, its scale means nothing."
    )
    sweeps, certificate = len(outcome.history), outcome.certificate
    if outcome.infeasible:
        return f"After {sweeps} sweep(s) it is proved that no distances satisfy all pairs. {way_out}"
    if outcome.converged or stopping is PUBLISHED:
        return None
    if hard and outcome.runs_away and certificate.hard_violation > stopping.tol:
        return (
            f"The pairs are probably infeasible: multipliers still grow fast after {sweeps} sweeps, and the worst "
            f"pair is violated by {certificate.hard_violation:.0%}. {way_out}"
        )
    perhaps = " If that does not help, the pairs may be infeasible: try slack=0.1." if hard else ""
    return (
        f"The fit stopped after {sweeps} sweeps at a relative duality gap of {certificate.gap:.2g} and a worst "
        f"relative violation of {certificate.violation:.2g}, short of {stopping.tol:.2g}. Raise max_sweeps or tol, or "
        f"lower gamma.{perhaps}"
    )


def _change(before: NDArray, after: NDArray) -> float:
    size = float(np.linalg.norm(before) + np.linalg.norm(after))
    return float(np.linalg.norm(after - before)) / size if size > 0 else 0.0
