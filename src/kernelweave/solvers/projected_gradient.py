"""GMKL: projected gradient on J(b) + R(b) with backtracking.

b+ = projection of  b - eta (R'(b) - h)  on B,     accepted if  F(b+) <= F + grad.(b+ - b) + |b+ - b|^2 / (2 eta)
"""

from __future__ import annotations

import numpy as np

from .line_search import backtrack
from .saddle import Array, Saddle


def projected_gradient(saddle: Saddle) -> None:
    """Needs a weight set with ``project``."""
    point = saddle.evaluate(saddle.initial)
    largest = float(np.abs(point.h - saddle.weights.slope(point.weights)).max())
    eta = float(np.linalg.norm(point.weights)) / max(largest, np.finfo(float).tiny)
    while saddle.proceed(point):
        origin, gradient = point.weights, saddle.weights.slope(point.weights) - point.h

        def propose(eta: float, origin: Array = origin, gradient: Array = gradient) -> Array:
            return saddle.weights.project(origin - eta * gradient)

        def required(eta: float, weights: Array, origin: Array = origin, gradient: Array = gradient) -> float:
            move = weights - origin
            return -float(gradient @ move + move @ move / (2 * eta))

        point, eta = backtrack(saddle, point, propose, required, 2 * eta)
