"""MKL-SIP / SILP: go where the cuts collected so far are lowest.

    b  =  argmin over B of  max_i (S_i - b.h_i) + R(b)

On the simplex early iterates are extremely sparse (at most one kernel a cut) and jump; bounds are monotone, J is not.
"""

from __future__ import annotations

import numpy as np

from .bundle import Bundle
from .line_search import settle
from .saddle import Saddle

_SAME = 1e-10


def cutting_plane(saddle: Saddle) -> None:
    """Works with every weight set."""
    bundle = Bundle(saddle.weights)
    point = saddle.evaluate(saddle.initial)
    while True:
        bundle.add(point)
        with saddle.clock("master"):
            weights, bound = bundle.minimum()
        saddle.raise_lower(bound)
        if not saddle.proceed(point):
            return
        if np.abs(weights - point.weights).max() <= _SAME * weights.max():
            # The same weights would bring the same cut, unless the machine can still do better.
            settled = settle(saddle, point)
            if settled is point:
                return
            point = settled
        else:
            point = saddle.evaluate(weights, near=point)
