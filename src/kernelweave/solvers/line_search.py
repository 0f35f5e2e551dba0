"""Backtracking, shared by the solvers that compare values along a path of weights."""

from __future__ import annotations

from collections.abc import Callable

from .saddle import Array, Point, Saddle

#: Halvings before the values, known only up to the machine's gap, count as too coarse to compare.
_HALVINGS = 12


def backtrack(
    saddle: Saddle,
    point: Point,
    propose: Callable[[float], Array],
    allowed: Callable[[float, Array], float],
    step: float,
) -> tuple[Point, float]:
    """Halve `step` until the value at ``propose(step)`` is at most ``point.value + allowed(step, weights)``.

    Each trial is one run of the machine. When no step will do, the machine's accuracy is the culprit: it is raised,
    the values are taken again, and the search starts anew.
    """
    for _ in range(3):
        shorter = step
        for _ in range(_HALVINGS):
            with saddle.clock("master"):
                weights = propose(shorter)
            trial = saddle.evaluate(weights, near=point)
            if trial.value <= point.value + allowed(shorter, weights) or saddle.converged:
                return trial, shorter
            shorter /= 2
        saddle.machine_share /= 10
        point = saddle.evaluate(point.weights, near=point)
    return point, step
