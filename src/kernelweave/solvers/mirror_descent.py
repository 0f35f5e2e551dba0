"""MKL-MD / VSKL: entropic mirror descent on a product of simplices, with backtracking.

    b_j+  ~  b_j exp(eta (h_j - R'_j(b)))  within each group,
    accepted if  F(b+) <= F + grad.(b+ - b) + KL(b+, b) / eta

Weights never reach zero on the way: the smallest are dropped by ``WeightSet.clean`` when the fit is done.
"""

from __future__ import annotations

import numpy as np
from scipy.special import rel_entr

from .line_search import backtrack
from .saddle import Array, Saddle


def mirror_descent(saddle: Saddle) -> None:
    """Needs a weight set that is a product of simplices."""
    point = saddle.evaluate(saddle.initial)
    groups = saddle.weights.simplices(len(point.weights)) or []
    spread = max(float(np.ptp(point.h[g])) for g in groups)
    # Kernels that are all alike say nothing about the size of a step.
    eta = 1.0 / max(spread, 1e-12 * float(point.h.max()), np.finfo(float).tiny ** 0.5)
    while saddle.proceed(point):
        origin, gradient = point.weights, saddle.weights.slope(point.weights) - point.h

        def propose(eta: float, origin: Array = origin, gradient: Array = gradient) -> Array:
            return _multiply(origin, -eta * gradient, groups)

        def required(eta: float, weights: Array, origin: Array = origin, gradient: Array = gradient) -> float:
            return -float(gradient @ (weights - origin) + rel_entr(weights, origin).sum() / eta)

        point, eta = backtrack(saddle, point, propose, required, 2 * eta)


def _multiply(weights: Array, exponent: Array, groups: list) -> Array:
    """weights * exp(exponent), each group renormalised; in logarithms, floored at 1e-300, so nothing overflows."""
    logs = np.log(np.maximum(weights, 1e-300)) + exponent
    result = np.empty_like(weights)
    for group in groups:
        part = np.exp(logs[group] - logs[group].max())
        result[group] = np.maximum(part / part.sum(), 1e-300)
    return result
