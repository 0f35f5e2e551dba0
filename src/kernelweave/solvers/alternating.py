"""MKL-GL: the machine and the closed-form weights take turns.

    N_j = |f_j| = b_j sqrt(2 h_j),      b  <-  argmin over B of  1/2 sum_j N_j^2 / b_j + R(b)

J never rises. A weight of zero stays zero, so it starts inside B and never thresholds.
"""

from __future__ import annotations

from .saddle import Saddle


def alternating(saddle: Saddle) -> None:
    """Needs a weight set with ``update``."""
    point = saddle.evaluate(saddle.initial)
    while saddle.proceed(point):
        with saddle.clock("master"):
            weights = saddle.weights.update(point.norms)
        point = saddle.evaluate(weights, near=point)
