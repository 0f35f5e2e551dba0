"""Second-order master: a Newton model of J on the weights, minimised over B, then a line search.

    z = argmin over B of  -h.(z - b) + 1/2 (z - b)' H (z - b),      H = second derivative of J (machine.curvature)

Where the machine is an SVM, H comes from its free support vectors alone. When the model is flat (no free support
vectors) or proposes no descent, the best response to h takes its place, as in Frank-Wolfe.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..machines.decomposition import BoxDual, maximise
from ..weights import WeightSet
from .saddle import Array, Point, Saddle

#: Share of the first-order decrease that a step must realise.
_SUFFICIENT = 1e-4
_HALVINGS = 30
#: How much more accurate than usual a machine is asked to be, at most.
_LEAST_SHARE = 1e-3


def newton(saddle: Saddle) -> None:
    """Needs a weight set without penalty that is a product of simplices or has ``project``."""
    point = saddle.evaluate(saddle.initial)
    share = 1.0
    while saddle.proceed(point):
        before = saddle.gap
        kernels = in_question(saddle.weights, point.weights, point.h)
        H = saddle.curvature(point, kernels)
        with saddle.clock("master"):
            target = saddle.weights.clean(minimise_model(saddle.weights, point.weights, point.h, H, kernels))
            if point.h @ (target - point.weights) <= 0:
                target = saddle.weights.respond(point.h)
        point = _search(saddle, point, target, share)
        # A step that gained nothing was judged too loosely: the next needs a more accurate machine.
        share = 1.0 if saddle.gap < before else max(0.1 * share, _LEAST_SHARE)


def _search(saddle: Saddle, point: Point, target: Array, share: float) -> Point:
    """Halve the step towards `target` until J falls; each trial is one run of the machine.

    A Newton step is nearly always right, so it is judged loosely: values count only up to the machine's own gap, the
    given share of what it usually is.
    """
    direction = target - point.weights
    slope, step = float(point.h @ direction), 1.0
    for _ in range(_HALVINGS):
        weights = np.maximum(point.weights + step * direction, 0.0)
        trial = saddle.evaluate(weights, near=point, accuracy=share * saddle.machine_accuracy)
        uncertain = trial.solution.gap + point.solution.gap
        if trial.value <= point.value - _SUFFICIENT * step * slope + uncertain or saddle.converged:
            return trial
        step /= 2
    return point


def in_question(weight_set: WeightSet, b: Array, h: Array) -> NDArray[np.intp]:
    """The kernels whose weights a step may change: on a simplex, those that have weight or deserve it as much.

    A kernel without weight whose h is below that of all kernels with weight can only be of use after they have changed,
    and then the next step sees it. Second derivatives, the dear part of a step, are needed of the others alone.
    """
    simplices = weight_set.simplices(len(b))
    if simplices is None:
        return np.arange(len(b))
    chosen = b > 0
    for members in simplices:
        used = members[chosen[members]]
        chosen[members] |= h[members] >= h[used].min(initial=np.inf)
    return np.flatnonzero(chosen)


def minimise_model(weight_set: WeightSet, b: Array, h: Array, H: Array, kernels: NDArray[np.intp]) -> Array:
    """Minimiser over B of ``-h.(z - b) + 1/2 (z - b)' H (z - b)``, to well below the decrease it promises.

    ``H`` is of the kernels in question, which alone move.
    """
    linear = h[kernels] + H @ b[kernels]
    simplices = weight_set.simplices(len(b))
    if simplices is None:
        return _accelerated(weight_set, linear, H, b)
    groups = np.array([np.isin(kernels, members) for members in simplices])
    # A product of simplices is a box with kept sums: the dual problem of an SVM, in kernels instead of samples.
    problem = BoxDual(linear, np.zeros(len(kernels)), np.ones(len(kernels)), groups)
    promised = float(weight_set.support(h) - b @ h)
    accuracy = 1e-4 * max(promised, np.finfo(float).tiny)
    z = np.zeros(len(b))
    z[kernels] = maximise(H, problem, b[kernels], accuracy, max_steps=200 * len(b) + 20_000).v
    return z


def _accelerated(weight_set: WeightSet, linear: Array, H: Array, b: Array, max_steps: int = 2000) -> Array:
    """Projected gradient with momentum, restarted when it points uphill."""
    steepest = max(float(np.linalg.eigvalsh(H)[-1]), np.finfo(float).tiny)
    # A flat model has no scale of its own: a step the size of B along the gradient is then the best it can ask for.
    steepest = max(steepest, float(np.linalg.norm(linear - H @ b)) / max(float(np.linalg.norm(b)), 1e-12) * 1e-3)
    z = ahead = b
    momentum = 1.0
    for _ in range(max_steps):
        previous, z = z, weight_set.project(ahead + (linear - H @ ahead) / steepest)
        if np.abs(z - previous).max() <= 1e-7 * np.abs(z).max():
            break
        if (ahead - z) @ (z - previous) > 0:
            momentum, ahead = 1.0, z
            continue
        following = 0.5 * (1 + np.sqrt(1 + 4 * momentum**2))
        ahead = z + (momentum - 1) / following * (z - previous)
        momentum = following
    return z
