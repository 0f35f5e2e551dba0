"""MKL-Level: the cutting-plane model, but step only as far as a level between the bounds asks for.

    level = 0.8 upper + 0.2 lower,     b+ = projection of b on  { b in B :  S_i - b.h_i <= level  for all cuts i }

The projection is solved through its dual, one multiplier a cut: for given mu the inner minimum is the projection on B
of b + sum_i mu_i h_i, so any weight set with a projection works.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from ..weights import WeightSet
from .bundle import Bundle
from .saddle import Array, Saddle

_SHARE_OF_UPPER = 0.8


def level(saddle: Saddle) -> None:
    """Needs a weight set with ``project`` and no penalty."""
    bundle = Bundle(saddle.weights)
    point = saddle.evaluate(saddle.initial)
    while True:
        bundle.add(point)
        with saddle.clock("master"):
            _, bound = bundle.minimum()
        saddle.raise_lower(bound)
        if not saddle.proceed(point):
            return
        height = _SHARE_OF_UPPER * saddle.upper + (1 - _SHARE_OF_UPPER) * saddle.lower
        with saddle.clock("master"):
            weights = project_on_level(saddle.weights, point.weights, bundle.constants, bundle.slopes, height)
        point = saddle.evaluate(weights, near=point)


def project_on_level(weight_set: WeightSet, b: Array, S: Array, H: Array, height: float) -> Array:
    """Nearest point of B at which no cut ``S_i - b.H_i`` is above `height`."""
    size = np.linalg.norm(H, axis=1)
    size = np.where(size > 0, size, 1.0)
    H, excess = H / size[:, None], (S - height) / size

    def negated_dual(mu: Array) -> tuple[float, Array]:
        nearest = weight_set.project(b + mu @ H)
        slack = excess - H @ nearest
        return -(0.5 * float((nearest - b) @ (nearest - b)) + float(mu @ slack)), -slack

    answer = minimize(
        negated_dual,
        np.zeros(len(S)),
        jac=True,
        bounds=[(0.0, None)] * len(S),
        method="L-BFGS-B",
        options={"ftol": 1e-15, "gtol": 1e-10, "maxiter": 500},
    )
    return weight_set.clean(weight_set.project(b + answer.x @ H))
