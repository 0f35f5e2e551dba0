"""MKL-SIP / SILP: go where the cuts collected so far are lowest.

    b  =  argmin over B of  max_i (S_i - b.h_i) + R(b)

On the simplex early iterates are extremely sparse (at most one kernel a cut) and jump; bounds are monotone, J is not.
"""

from __future__ import annotations

from .bundle import Bundle
from .saddle import Saddle


def cutting_plane(saddle: Saddle) -> None:
    """Works with every weight set."""
    bundle = Bundle(saddle.weights)
    point = saddle.evaluate(saddle.initial)
    while True:
        bundle.add(point)
        with saddle.clock("master"):
            weights, bound = bundle.minimum()
        saddle.lower = max(saddle.lower, bound)
        if not saddle.proceed(point):
            return
        point = saddle.evaluate(weights, near=point)
