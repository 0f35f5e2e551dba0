"""SimpleMKL: reduced gradient with maximal steps, then a golden-section search.

The largest weight absorbs what the others do, so directions sum to zero. While the largest feasible step along the
direction still lowers J it is taken, and the weight that hit zero leaves the direction; golden section finds the rest.
Every J is one run of the machine: few iterations, many solves.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .saddle import Array, Point, Saddle

_GOLDEN = (np.sqrt(5) - 1) / 2
_SMALL = 1e-8
#: Entries of a direction below this share of the largest are rounding.
_ROUNDING = 1e-12
#: Golden section ends when its interval is this share of the largest step; finer if nothing was gained.
_INTERVAL = 0.1
_FINEST = 1e-8
#: Golden section compares values that differ little: the machine is run this much more accurately than otherwise.
_PRECISION = 1e-4


def reduced_gradient(saddle: Saddle) -> None:
    """Needs the simplex."""
    point = _evaluate(saddle, saddle.initial)
    interval = _INTERVAL
    while saddle.proceed(point):
        direction, pivot = _direction(point)
        moved, direction, longest = _maximal_steps(saddle, point, direction, pivot)
        if longest > 0:
            moved = _golden_section(saddle, moved, direction, longest, interval)
        if moved.value < point.value:
            point, interval = moved, _INTERVAL
        elif interval > _FINEST:
            # A finer search may still gain something: a new point in name, so that it does not count as stuck.
            point, interval = replace(point), interval / 10


def _direction(point: Point) -> tuple[Array, int]:
    pivot = int(np.argmax(point.weights))
    direction = point.h - point.h[pivot]
    direction[(point.weights <= 0) & (direction < 0)] = 0.0
    direction[pivot] = 0.0
    direction[pivot] = -direction.sum()
    return direction, pivot


def _maximal_steps(saddle: Saddle, point: Point, direction: Array, pivot: int) -> tuple[Point, Array, float]:
    """Walk while the largest feasible step lowers J; returns the direction left and its largest step (0: none left)."""
    direction = direction.copy()
    # What rounding leaves of a direction that is used up must not empty the last weight.
    nothing = _ROUNDING * np.abs(direction).max()
    while direction.min() < -nothing and direction.max() > nothing:
        falling = np.flatnonzero(direction < -nothing)
        ratios = -point.weights[falling] / direction[falling]
        blocking, step = int(falling[np.argmin(ratios)]), float(ratios.min())
        weights = point.weights + step * direction
        weights[blocking] = 0.0
        trial = _evaluate(saddle, _tidy(weights), point)
        if trial.value >= point.value:
            return point, direction, step
        point = trial
        if blocking == pivot:
            break
        direction[pivot] += direction[blocking]
        direction[blocking] = 0.0
    return point, direction, 0.0


def _golden_section(saddle: Saddle, point: Point, direction: Array, longest: float, interval: float) -> Point:
    left, right = 0.0, longest
    inner = [right - _GOLDEN * (right - left), left + _GOLDEN * (right - left)]
    trials = [_at(saddle, point, direction, step) for step in inner]
    best = min([point, *trials], key=lambda p: p.value)
    while right - left > interval * longest:
        if trials[0].value < trials[1].value:
            right = inner[1]
            inner = [right - _GOLDEN * (right - left), inner[0]]
            trials = [_at(saddle, point, direction, inner[0]), trials[0]]
        else:
            left = inner[0]
            inner = [inner[1], left + _GOLDEN * (right - left)]
            trials = [trials[1], _at(saddle, point, direction, inner[1])]
        best = min([best, *trials], key=lambda p: p.value)
        if saddle.converged:
            break
    return best


def _at(saddle: Saddle, point: Point, direction: Array, step: float) -> Point:
    return _evaluate(saddle, _tidy(point.weights + step * direction), point)


def _evaluate(saddle: Saddle, weights: Array, near: Point | None = None) -> Point:
    return saddle.evaluate(weights, near, accuracy=_PRECISION * saddle.machine_accuracy)


def _tidy(weights: Array) -> Array:
    weights = np.where(weights < _SMALL, 0.0, weights)
    return weights / weights.sum()
