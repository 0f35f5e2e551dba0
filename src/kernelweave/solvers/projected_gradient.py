"""GMKL: projected gradient on J(b) + R(b) with Barzilai-Borwein steps and backtracking.

    b+ = projection of  b - eta (R'(b) - h)  on B,     accepted if  F(b+) <= F + share grad.(b+ - b)

The first step tried, ``eta = |d|^2 / d.e`` with d and e the latest changes of b and of the gradient, makes the step
what a Newton step would be if the curvature met so far were the same in all directions.
"""

from __future__ import annotations

import numpy as np

from .line_search import backtrack
from .saddle import Array, Saddle

#: Share of the first-order decrease that a step must realise.
_SUFFICIENT = 0.1
#: Where the gradient did not change along the step, there is no curvature to go by: the next is longer by this much.
_LONGER = 4.0


def projected_gradient(saddle: Saddle) -> None:
    """Needs a weight set with ``project``."""
    point = saddle.evaluate(saddle.initial)
    gradient = saddle.weights.slope(point.weights) - point.h
    eta = float(np.linalg.norm(point.weights)) / max(float(np.abs(gradient).max()), np.finfo(float).tiny)
    while saddle.proceed(point):
        origin = point.weights

        def propose(eta: float, origin: Array = origin, gradient: Array = gradient) -> Array:
            return saddle.weights.project(origin - eta * gradient)

        def required(eta: float, weights: Array, origin: Array = origin, gradient: Array = gradient) -> float:
            return -_SUFFICIENT * float(gradient @ (weights - origin))

        point, eta = backtrack(saddle, point, propose, required, eta)
        before, gradient = gradient, saddle.weights.slope(point.weights) - point.h
        moved, turned = point.weights - origin, gradient - before
        bend = float(moved @ turned)
        eta = float(moved @ moved) / bend if bend > 0 else _LONGER * eta
