"""Second-order master: a Newton model of J on the weights, minimised over B, then a line search.

    z = argmin over B of  -(h - R'(b)).(z - b) + 1/2 (z - b)' (H + R''(b)) (z - b)

H is the second derivative of J (machine.curvature); where the machine is an SVM, it comes from its free support vectors
alone. When the model is flat (no free support vectors) or proposes no descent, the best response to h takes its place,
as in Frank-Wolfe. Where J has a kink, because the machine has several solutions, no model of one of them is any good:
when the gap has stood still, the next weights are those at which all cuts met so far are lowest, as in cutting planes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..machines.decomposition import BoxDual, maximise
from ..weights import WeightSet
from .bundle import Bundle
from .saddle import Array, Point, Saddle

#: Share of the first-order decrease that a step must realise.
_SUFFICIENT = 1e-4
_HALVINGS = 8
#: How much more accurate than usual a machine is asked to be, at most.
_LEAST_SHARE = 1e-3
#: Steps without a smaller gap after which cuts are asked instead.
_PATIENCE = 3


def newton(saddle: Saddle) -> None:
    """Needs a weight set with ``project`` whose penalty, if it has one, has a bounded second derivative."""
    point = saddle.evaluate(saddle.initial)
    bundle = Bundle(saddle.weights)
    bundle.add(point)
    share, idle = 1.0, 0
    while saddle.proceed(point):
        before, origin = saddle.gap, point
        if saddle.solves == 1 and _update_first(saddle.weights, len(point.weights)):
            target = saddle.weights.clean(saddle.weights.update(point.norms))
            # Often the last step: the machine must be good enough to tell.
            point = _search(saddle, point, target, saddle.stopping.tol / saddle.gap, bundle)
        elif idle < _PATIENCE or not bundle.works:
            point = _search(saddle, point, _target(saddle, point), share, bundle)
        if bundle.works and (idle >= _PATIENCE or point is origin):
            with saddle.clock("master"):
                weights, bound = bundle.minimum()
            saddle.raise_lower(bound)
            weights = saddle.weights.clean(weights)
            point = saddle.evaluate(weights, near=point, accuracy=share * saddle.machine_accuracy)
            bundle.add(point)
        # A step that gained nothing was judged too loosely: the next needs a more accurate machine.
        share, idle = (1.0, 0) if saddle.gap < before else (max(0.1 * share, _LEAST_SHARE), idle + 1)


def _update_first(weight_set: WeightSet, n_kernels: int) -> bool:
    """Whether to begin with the closed-form update, which needs no second derivatives.

    Under a cap it sends weights to the cap at once, which is most of what there is to do.
    """
    return weight_set.has_update and weight_set.cap(n_kernels) < 1


def _target(saddle: Saddle, point: Point) -> Array:
    """Where the model at `point` is lowest."""
    weight_set, b = saddle.weights, point.weights
    pull = point.h - weight_set.slope(b)
    kernels = in_question(weight_set, b, pull)
    H = saddle.curvature(point, kernels)
    H[np.diag_indices_from(H)] += weight_set.curvature(b)[kernels]
    with saddle.clock("master"):
        promised = weight_set.support(point.h) - float(b @ point.h) + weight_set.penalty(b)
        target = weight_set.clean(minimise_model(weight_set, b, pull, H, kernels, 1e-4 * promised))
        return target if pull @ (target - b) > 0 else weight_set.respond(point.h)


def _search(saddle: Saddle, point: Point, target: Array, share: float, bundle: Bundle) -> Point:
    """Halve the step towards `target` until J falls; each trial is one run of the machine, and a cut for the bundle.

    A Newton step is nearly always right, so it is judged loosely: values count only up to the machine's own gap, the
    given share of what it usually is.
    """
    direction = target - point.weights
    pull = point.h - saddle.weights.slope(point.weights)
    slope, step = float(pull @ direction), 1.0
    for _ in range(_HALVINGS):
        # Exactly the target at first: rounding must not move a weight off its bound.
        weights = target if step == 1.0 else np.maximum(point.weights + step * direction, 0.0)
        trial = saddle.evaluate(weights, near=point, accuracy=share * saddle.machine_accuracy)
        bundle.add(trial)
        uncertain = trial.solution.gap + point.solution.gap
        if trial.value <= point.value - _SUFFICIENT * step * slope + uncertain or saddle.converged:
            return trial
        step /= 2
    return point


def in_question(weight_set: WeightSet, b: Array, pull: Array) -> NDArray[np.intp]:
    """The kernels whose weights a step may change: on a simplex, those that could give or take weight with profit.

    A kernel without weight whose pull is below that of all kernels with weight can only be of use after they have
    changed, and then the next step sees it; likewise one at the cap whose pull is above that of all kernels below the
    cap. Second derivatives, the dear part of a step, are needed of the others alone.
    """
    simplices = weight_set.simplices(len(b))
    if simplices is None:
        return np.arange(len(b))
    giving, taking = b > 0, b < weight_set.cap(len(b))
    chosen = giving & taking
    for members in simplices:
        lowest = pull[members[giving[members]]].min(initial=np.inf)
        highest = pull[members[taking[members]]].max(initial=-np.inf)
        chosen[members] |= ~giving[members] & (pull[members] >= lowest)
        chosen[members] |= ~taking[members] & (pull[members] <= highest)
    return np.flatnonzero(chosen)


def minimise_model(
    weight_set: WeightSet, b: Array, pull: Array, H: Array, kernels: NDArray[np.intp], accuracy: float
) -> Array:
    """Minimiser over B of ``-pull.(z - b) + 1/2 (z - b)' H (z - b)``, on simplices to the given accuracy.

    ``H`` is of the kernels in question, which alone move.
    """
    linear = pull[kernels] + H @ b[kernels]
    simplices = weight_set.simplices(len(b))
    if simplices is None:
        return _accelerated(weight_set, linear, H, b)
    groups = np.array([np.isin(kernels, members) for members in simplices])
    # A product of simplices is a box with kept sums: the dual problem of an SVM, in kernels instead of samples.
    problem = BoxDual(linear, np.zeros(len(kernels)), np.full(len(kernels), weight_set.cap(len(b))), groups)
    z = b.copy()
    if len(kernels):
        accuracy = max(accuracy, np.finfo(float).tiny)
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
