"""Dual problems solved by products with the kernel alone, all label columns at once.

    max over V   <P, V> - 1/2 <V, (K + ridge) V>      lower <= V <= upper,   sums of V over groups stay what they are

Nothing but ``K @ V`` is asked for, so the kernel may be on a device or on other machines. The groups of a hinge machine
lie along the columns, each column is a problem of its own, and all share every product; those of MLR-L1 are the rows,
and couple the columns to one problem.

A round is a few projected-gradient steps, which find the bounds, then conjugate gradients in the face they arrive at,
which agree on the rest; what leaves the box there is projected back. Every step is followed by an exact line search, so
the value only rises. The gap is that of ``decomposition.py``: exact, from a weighted median of the gradient in each
group. It stops the solver, and counts only once the product it is computed from is one in double precision.

Arrays are NumPy's or torch's, wherever `Operator.place` puts them: the code uses what both have in common.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels.device_batches import WeightedKernels, together
from ..kernels.operators import Operator, fetched
from .base import Array
from .decomposition import BoxDual, BoxSolution, maximise_all

#: Projected-gradient steps of a round.
_PROJECTED = 3
#: Steps in the first face, and at most: one more where the line search took more than half the way, half as many else.
_FIRST_STEPS, _MOST_STEPS = 2, 30
#: Steps in a face end when one gains less than this share of the best, in all problems.
_LITTLE = 0.1
#: Rounds after which products are computed anew in double precision.
_REFRESH = 10
#: Rounds without a larger value after which rounding is taken to be in the way.
_PATIENCE = 5
#: A dual closer to its bound than this share of its box counts as bounded.
_BOUND = 1e-10
#: Imbalance of a projection, relative to the sum of all entries, that counts as rounding.
_BALANCED = 1e-13
#: Power iterations for the direction that the samples have most in common.
_POWER_STEPS = 3
#: A direction this much flatter than the diagonal is flat but for rounding.
_FLAT = 1e-14
_TINY = 1e-300


@dataclass
class Duals:
    """The constraints and the linear part of problems that share a kernel.

    Parameters
    ----------
    linear, lower, upper : arrays of shape (n, m)
        P and the box.
    groups : list of arrays of shape (n, m)
        One where a dual is a member of the group whose sum is kept, else zero; a dual is in at most one group.
    kept : list of arrays of shape (1, m) or (n, 1)
        These sums.
    axis : int
        0: groups are parts of columns, 1: of rows.
    apart : bool
        Whether every column is a problem of its own.
    ridge : array of shape (n, 1) or float
        Added to the diagonal of the kernel.
    """

    linear: Any
    lower: Any
    upper: Any
    groups: list[Any]
    kept: list[Any]
    axis: int = 0
    apart: bool = True
    ridge: Any = 0.0

    def __post_init__(self) -> None:
        # In the box of a group all others are zero, so a sum over the group is a sum over everything.
        self._boxes = [(self.lower * group, self.upper * group) for group in self.groups]

    def dots(self, A: Any, B: Any) -> Any:
        """Inner products, one a problem: (1, m), or (1, 1)."""
        columns = (A * B).sum(0)[None]
        return columns if self.apart else columns.sum(1)[None]

    def sums(self, A: Any) -> Any:
        """Sums over the axis of the groups, kept as a dimension."""
        return A.sum(self.axis)[None] if self.axis == 0 else A.sum(self.axis)[:, None]

    def project(self, T: Any, near: Sequence[Any]) -> Any:
        """The nearest point that fulfils the constraints; `near` guesses what is taken off the groups for that."""
        for group, box, kept, guess in zip(self.groups, self._boxes, self.kept, near, strict=True):
            T = T - group * self._shift(T, box, kept, guess)
        return T.clip(self.lower, self.upper)

    def _shift(self, T: Any, box: tuple[Any, Any], kept: Any, guess: Any) -> Any:
        """The number b a group at which ``clip(T - b)`` has the sum kept: Newton on a piecewise linear function."""
        xp = module_of(T)
        lower, upper = box
        if xp is not np and T.is_cuda and importlib.util.find_spec("triton") is not None:
            from ..kernels.triton_shift import shift

            values, low, high = (self._in_rows(A) for A in (T, lower, upper))
            guesses = (0.0 * kept + guess).reshape(-1)
            return shift(values, low, high, kept.reshape(-1), guesses, _BALANCED).reshape(kept.shape)
        wide = lower < upper
        left = xp.amin(xp.where(wide, T - upper, 0.0), axis=self.axis, keepdims=True)
        right = xp.amax(xp.where(wide, T - lower, 0.0), axis=self.axis, keepdims=True)
        b = xp.minimum(xp.maximum(0.0 * left + guess, left), right)
        for _ in range(100):
            moved = T - b
            inside = moved.clip(lower, upper)
            excess = self.sums(inside) - kept
            if bool((abs(excess) <= _BALANCED * self.sums(abs(inside)) + _TINY).all()):
                break
            left, right = xp.where(excess > 0, b, left), xp.where(excess < 0, b, right)
            free = self.sums(((moved > lower) & (moved < upper)) * wide)
            newton = b + excess / free.clip(1)
            outside = (free == 0) | (newton <= left) | (newton >= right)
            b = xp.where(excess == 0, b, xp.where(outside, 0.5 * (left + right), newton))
        return b

    def free(self, V: Any) -> Any:
        """One where a dual lies inside its box, else zero."""
        slack = _BOUND * (self.upper - self.lower)
        return ((self.lower + slack < V) & (self.upper - slack > V)) * (0.0 * V + 1.0)

    def tangent(self, free: Any) -> Callable[[Any], Any]:
        """The projection of directions on the face in which these duals are free."""
        members = [(group * free, 1.0 / self.sums(group * free).clip(1)) for group in self.groups]

        def project(D: Any) -> Any:
            D = D * free
            for part, share in members:
                D = D - part * (share * self.sums(part * D))
            return D

        return project

    def certificate(self, V: Any, G: Any) -> tuple[Any, list[Any]]:
        """The exact gap of every problem at V with the gradient G, and the multipliers that attain it."""
        shifted, multipliers = G, []
        for group, (lower, upper) in zip(self.groups, self._boxes, strict=True):
            b = self._balance(V * group, G, lower, upper)
            shifted = shifted - group * b
            multipliers.append(b)
        gaps = shifted.clip(0) * (self.upper - V) + (-shifted).clip(0) * (V - self.lower)
        return self.dots(gaps, 0.0 * gaps + 1.0), multipliers

    def _balance(self, V: Any, G: Any, lower: Any, upper: Any) -> Any:
        """The weighted median of G in each group that minimises the gap: see ``decomposition._balance``."""
        xp = module_of(V)
        widths, values = self._in_rows(upper - lower), self._in_rows(G)
        values = xp.where(widths > 0, values, np.inf)
        order = xp.argsort(values, 1)
        values, reached = _taken(values, order), _taken(widths, order).cumsum(1)
        need = self.sums(upper - V).reshape(-1, 1)
        slack = 1e-12 * need.clip(1e-12)
        last = ((widths > 0).sum(1)[:, None] - 1).clip(0)
        place = xp.minimum((reached < need - slack).sum(1)[:, None], last)
        following = xp.minimum(place + 1, last)
        here, there = _taken(values, place), _taken(values, following)
        level = abs(_taken(reached, place) - need) <= slack
        b = xp.where(level, 0.5 * (here + there), here)
        b = xp.where(xp.isfinite(b), b, 0.0)  # a group need not have members that can move
        return b.T if self.axis == 0 else b

    def _in_rows(self, A: Any) -> Any:
        """The groups as contiguous rows, which sort and add up faster than columns."""
        if self.axis == 1:
            return A
        return np.ascontiguousarray(A.T) if isinstance(A, np.ndarray) else A.T.contiguous()

    def best_multiple(self, V: Any, F: Any) -> Any:
        """The best factor for V within the box, (1, m) or (1, 1); one where sums are kept that are not zero."""
        xp = module_of(V)
        slope, bend = self.dots(self.linear, V), self.dots(F, V)
        bound = xp.where(V > 0, self.upper, self.lower)
        room = xp.amin(xp.where(V != 0, bound / xp.where(V != 0, V, 1.0), np.inf), axis=0, keepdims=True)
        if not self.apart:
            room = xp.amin(room, axis=1, keepdims=True)
        fixed = any(bool((kept != 0).any()) for kept in self.kept)
        factor = xp.minimum(_ratio(slope, bend), room)
        return xp.where((bend > _TINY) & (slope > 0) & (not fixed), factor, 1.0)


@dataclass
class Reached:
    """Where the ascent stopped: duals, their product with kernel and ridge, gaps, multipliers, rounds."""

    V: Any
    F: Any
    gaps: Any
    multipliers: list[Any]
    steps: int


def module_of(array: Any) -> Any:
    """The module an array is of: numpy or torch."""
    return np if isinstance(array, np.ndarray) else sys.modules["torch"]


def _taken(A: Any, order: Any) -> Any:
    return np.take_along_axis(A, order, 1) if isinstance(A, np.ndarray) else A.take_along_dim(order, 1)


@dataclass
class Ascent:
    """Climbs the dual values of problems on one kernel.

    Parameters
    ----------
    K : Operator
    duals : Duals
        With arrays where ``K.place`` puts them.
    """

    K: Operator
    duals: Duals

    def __post_init__(self) -> None:
        # One column, or one for every column of V where these have kernels of their own.
        diagonal = np.asarray(self.K.diagonal(), dtype=np.float64).reshape(len(self.K), -1)
        size = diagonal.mean(axis=0, keepdims=True)
        size[size <= 0] = 1.0
        self._diagonal = self.K.place(diagonal)
        self._rate: Any = self.K.place(1.0 / size)
        self._flat = _FLAT * float(size.min())
        self._steps = _FIRST_STEPS
        self._common, self._rest = self._in_common()

    def run(self, V: Any, accuracy: Any, max_rounds: int = 1000) -> Reached:
        """Climb from the feasible V until each gap is at most `accuracy`, a number or (1, m), beside the value."""
        duals = self.duals
        F = self._exactly(V)
        factor = duals.best_multiple(V, F)
        V, F = (factor * V).clip(duals.lower, duals.upper), factor * F
        rounds, exact, idle, values = 0, False, 0, -np.inf
        while True:
            G = duals.linear - F
            gaps, multipliers = duals.certificate(V, G)
            open_ = gaps > self._allowed(V, G, gaps, accuracy)
            if not bool(open_.any()) or idle >= _PATIENCE or rounds >= max_rounds:
                if exact:
                    return Reached(V, F, gaps, multipliers, rounds)
                F, exact = self._exactly(V), True
                continue
            V, F = self._climb_face(*self._climb_box(V, F, open_, multipliers), open_)
            rounds += 1
            exact = rounds % _REFRESH == 0
            F = self._exactly(V) if exact else F
            before, values = values, duals.dots(2 * duals.linear - F, V)
            rose = open_ & (values > before + 1e-14 * abs(values))
            idle = 0 if bool(rose.any()) else idle + 1

    def _times(self, V: Any) -> Any:
        return self.K.times(V) + self.duals.ridge * V

    def _exactly(self, V: Any) -> Any:
        return self.K.exactly(V) + self.duals.ridge * V

    def _allowed(self, V: Any, G: Any, gaps: Any, accuracy: Any) -> Any:
        """The gap that is small beside the value; see ``decomposition._tolerated`` for problems without linear part."""
        duals, xp = self.duals, module_of(V)
        values = 0.5 * duals.dots(duals.linear + G, V) + gaps
        own = 1e-12 * duals.dots(self._diagonal * V, V)
        none = duals.dots(duals.linear, duals.linear) == 0
        size = duals.dots(abs(duals.linear) + abs(duals.linear - G), abs(V))
        rounding = (1e-14 if _is_double(V) else 1e-6) * size
        return xp.maximum(xp.maximum(accuracy * abs(values), xp.where(none, own, 0.0)), rounding)

    def _climb_box(self, V: Any, F: Any, open_: Any, multipliers: list[Any]) -> tuple[Any, Any]:
        """Projected-gradient steps, each as long as the curvature met by the last one suggests."""
        duals, xp = self.duals, module_of(V)
        for _ in range(_PROJECTED):
            near = [self._rate * b for b in multipliers]
            D = (duals.project(V + self._rate * (duals.linear - F), near) - V) * open_
            V, F, _, bend = self._search(V, F, D)
            length = duals.dots(D, D)
            bend = xp.maximum(bend, self._flat * length)
            self._rate = xp.where(bend > _TINY, _ratio(length, bend), self._rate)
        return V, F

    def _climb_face(self, V: Any, F: Any, open_: Any) -> tuple[Any, Any]:
        """Conjugate gradients in the face, projected back."""
        duals = self.duals
        D = duals.project(V + self._maximum_on_face(V, (duals.linear - F) * open_), [0.0] * len(duals.groups)) - V
        V, F, step, _ = self._search(V, F, D * open_)
        good = float((step * open_).sum()) > 0.5 * float((open_ * 1.0).sum())
        self._steps = min(self._steps + 1, _MOST_STEPS) if good else max(self._steps // 2, 1)
        return V, F

    def _search(self, V: Any, F: Any, D: Any) -> tuple[Any, Any, Any, Any]:
        """The best point between V and V + D, its product, the step and the curvature met."""
        duals, xp = self.duals, module_of(V)
        response = self._times(D)
        slope, bend = duals.dots(D, duals.linear - F), duals.dots(D, response)
        step = xp.where(slope >= bend, 1.0, _ratio(slope, bend)) * (slope > 0)
        # Clipped, because the sum may lie beside a bound by rounding.
        return (V + step * D).clip(duals.lower, duals.upper), F + step * response, step, bend

    def _maximum_on_face(self, V: Any, G: Any) -> Any:
        """The way to the maximum over the face, by conjugate gradients, preconditioned by one common direction."""
        duals = self.duals
        free = duals.free(V)
        tangent = duals.tangent(free)
        inverse = 1.0 / (self._rest + duals.ridge)
        scaled = inverse * self._common
        normalise = 1.0 / (1.0 + (scaled * self._common * free).sum(0)[None])

        def precondition(P: Any) -> Any:
            return tangent(inverse * P - scaled * (normalise * (scaled * P).sum(0)[None]))

        total, residual = 0.0 * V, tangent(G)
        along = precondition(residual)
        square, best = duals.dots(residual, along), 0.0
        for _ in range(self._steps):
            bent = tangent(self._times(along))
            bend = duals.dots(along, bent)
            bends = bend > self._flat * duals.dots(along, along)
            step = _ratio(square, bend * bends)
            gain = step * square
            total = total + step * along
            best = gain.clip(best)
            if bool((gain <= _LITTLE * best).all()):
                break
            residual = residual - step * bent
            conditioned = precondition(residual)
            square, before = duals.dots(residual, conditioned), square
            along = conditioned + _ratio(square, before * bends) * along
        return total

    def _in_common(self) -> tuple[Any, Any]:
        """The kernel is like ``common common' + rest * identity``: the first of ``ranking_ascent.in_common``."""
        xp = module_of(self._diagonal)
        common = 0.0 * self._diagonal + 1.0
        size = common.sum(0)[None]
        for _ in range(_POWER_STEPS):
            common = self.K.times(common)
            size = (common * common).sum(0)[None] ** 0.5
            common = common / xp.where(size > 0, size, 1.0)
        trace = self._diagonal.sum(0)[None]
        rest = xp.maximum(trace - size, 1e-3 * trace) / len(common)
        return common * size**0.5, xp.where(rest > 0, rest, 1.0)


def _ratio(a: Any, b: Any) -> Any:
    """``a / b``, and zero where b is."""
    xp = module_of(b)
    divides = b > _TINY
    return xp.where(divides, a / xp.where(divides, b, 1.0), 0.0)


def _is_double(array: Any) -> bool:
    return str(array.dtype).endswith("float64")


@maximise_all.register(Operator)
def _maximise_by_products(K: Operator, problems: Sequence[BoxDual], starts: Array, accuracy: Any) -> list[BoxSolution]:
    """See `maximise_all`; `accuracy` may also be an array with a number for each problem."""
    linear, lower, upper = (
        K.place(np.stack([getattr(problem, part) for problem in problems], axis=1))
        for part in ("linear", "lower", "upper")
    )
    masks = np.stack([problem.groups for problem in problems], axis=2).astype(np.float64)
    V = np.ascontiguousarray(starts.T)
    kept = [K.place((mask * V).sum(axis=0, keepdims=True)) for mask in masks]
    duals = Duals(linear, lower, upper, [K.place(mask) for mask in masks], kept)
    reached = Ascent(K, duals).run(K.place(V), accuracy if np.ndim(accuracy) == 0 else K.place(accuracy[None]))
    gradient, V = fetched(duals.linear - reached.F), fetched(reached.V)
    gaps = fetched(reached.gaps).ravel()
    multipliers = np.zeros((len(masks), len(problems)))
    for row, b in zip(multipliers, reached.multipliers, strict=True):
        row[:] = fetched(b).ravel()
    return [
        BoxSolution(V[:, k].copy(), gradient[:, k].copy(), multipliers[:, k], float(gaps[k]), reached.steps)
        for k in range(len(problems))
    ]


@maximise_all.register(WeightedKernels)
def _maximise_with_others(
    K: WeightedKernels, problems: Sequence[BoxDual], starts: Array, accuracy: float
) -> list[BoxSolution]:
    """See `maximise_all`: together with the problems of others that have weights of their own on the same bank."""
    return K.bank.ask(_maximise_together, K, problems, starts, accuracy)


def _maximise_together(
    requests: list[tuple[WeightedKernels, Sequence[BoxDual], Array, float]],
) -> list[list[BoxSolution]]:
    sizes = [len(problems) for _, problems, _, _ in requests]
    K = together([K for K, _, _, _ in requests], sizes)
    problems = [problem for _, some, _, _ in requests for problem in some]
    accuracies = np.repeat([accuracy for _, _, _, accuracy in requests], sizes)
    found = iter(
        _maximise_by_products(K, problems, np.concatenate([starts for _, _, starts, _ in requests]), accuracies)
    )
    return [[next(found) for _ in range(size)] for size in sizes]


def balanced_rows(
    K: Operator, signs: NDArray, lower: Array, upper: Array, ridge: Array, start: Array, accuracy: float
) -> tuple[Array, Array, float, int]:
    """The dual of MLR-L1: every row in its box with sum zero, all columns together.

    Parameters
    ----------
    K : Operator
    signs : array of shape (n, m)
        The linear part.
    lower, upper : arrays of shape (n, m)
    ridge : array of shape (n,)
    start : array of shape (n, m)
        Feasible.
    accuracy : float
        Relative gap.

    Returns
    -------
    V, F : arrays of shape (n, m)
        Duals and their product with the kernel, without the ridge.
    gap : float
    steps : int
        Rounds.
    """
    linear, low, high = (K.place(np.asarray(A, dtype=np.float64)) for A in (signs, lower, upper))
    zeros = K.place(np.zeros((len(signs), 1)))
    duals = Duals(linear, low, high, [0.0 * linear + 1.0], [zeros], 1, False, K.place(ridge[:, None]))
    reached = Ascent(K, duals).run(K.place(start), accuracy)
    return fetched(reached.V), fetched(reached.F - duals.ridge * reached.V), float(reached.gaps.sum()), reached.steps
