"""Backtracking, shared by the solvers that compare values along a path of weights."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .saddle import Array, Point, Saddle

_HALVINGS = 40
#: Values are compared at this share of the decrease in question, so that the machine's own gap cannot decide.
_MACHINE_SHARE = 0.1
#: Relative differences of values below this are rounding: there is nothing to compare any more.
_ROUNDING = 1e-13


def backtrack(
    saddle: Saddle,
    point: Point,
    propose: Callable[[float], Array],
    required: Callable[[float, Array], float],
    step: float,
) -> tuple[Point, float]:
    """Halve `step` until the value at ``propose(step)`` is below that of `point` by ``required(step, weights)``.

    Each trial is one run of the machine, made as accurate as the required decrease asks for. Returns the point found
    and its step, or `point` itself when decreases have become too small to be told from rounding.
    """
    for _ in range(_HALVINGS):
        with saddle.clock("master"):
            weights = propose(step)
            decrease = required(step, weights)
        size = abs(point.value)
        if decrease <= _ROUNDING * size:
            # The weights have nothing left to gain; the machine may have.
            return settle(saddle, point), step
        accuracy = min(_MACHINE_SHARE * decrease / size, saddle.machine_accuracy)
        if point.solution.gap > 2 * accuracy * size:
            point = saddle.evaluate(point.weights, near=point, accuracy=accuracy)
        trial = saddle.evaluate(weights, near=point, accuracy=accuracy)
        # Both machines' gaps, and the rounding of the kernel values themselves.
        uncertain = trial.solution.gap + point.solution.gap + float(np.finfo(saddle.bank.dtype).eps) * size
        if trial.value <= point.value - decrease + uncertain or saddle.converged:
            return trial, step
        step /= 2
    return settle(saddle, point), step


def settle(saddle: Saddle, point: Point) -> Point:
    """The same weights with the machine as accurate as the fit asks for; `point` itself if it is already."""
    accuracy = _MACHINE_SHARE * saddle.stopping.tol
    if point.solution.gap <= accuracy * abs(point.value):
        return point
    return saddle.evaluate(point.weights, near=point, accuracy=accuracy)
