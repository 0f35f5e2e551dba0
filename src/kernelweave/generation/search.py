"""Which kernel of a family has the largest energy: branch and bound, climbing from many starts, or scanning."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numba import njit
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.optimize import minimize

from .._config import in_threads
from ..kernels.energies import Derivatives, Duals, Energy, Exponential, SecondOrder
from ..kernels.families import BoxPiece, Piece, PoolPiece
from ..kernels.fitting import Item
from .columns import Proposal

Array = NDArray[np.float64]
#: From an energy, the ends of a box and a start to a local maximum and its value.
Climb = Callable[[Any, Array, Array, Array], tuple[Array, float]]

#: While the best column found is far above the level, it is enough to know it up to this share of the difference.
_SLACK_SHARE = 0.25
#: Pieces of a family searched side by side; what is found in some saves work in the next.
_AT_ONCE = 8
#: Of the accuracy, the share that energies of one rate may be wrong by.
_BIN_SHARE = 0.2
#: Where an interval that begins at zero is cut.
_FROM_ZERO = 0.3
#: Boxes that branch and bound looks at, at most; the bound of those left over then counts.
_MOST_BOXES = 4000
#: Climbs in a box of several parameters, at first and in all; the best so many of a group of starts; steps of a climb.
_CLIMBS, _MOST_CLIMBS, _A_GROUP, _CLIMB_STEPS = 10, 60, 2, 60
#: Random sparse starts, and parameters that are not zero in them.
_RANDOM, _SPARSE = 6, 3
#: Of a Newton step: the smallest curvature beside the largest, the share of the promised rise to be kept, the shortest
#: step, and the rise of the value beside its size at which it ends.
_FLATTEST, _SUFFICIENT, _SHORTEST, _NO_GAIN = 1e-6, 1e-4, 1e-6, 1e-10
#: Parameters that differ by less, beside their size, are the same.
_SAME = 1e-3


@dataclass(frozen=True, eq=False)
class KernelColumn:
    """A kernel of a family, named by its parameter: what is generated here."""

    piece: Piece
    theta: Any

    @cached_property
    def item(self) -> Item:
        """The kernel, to be added to a bank."""
        return self.piece.item(self.theta)


class Split(Protocol):
    """An energy ``T(s) = P(s) - N(s)``: P and N are sums of exp(-s D) with positive weights."""

    def parts(self, s: float) -> tuple[Derivatives, Derivatives]:
        """P and N at s, each with its first three derivatives."""


class FamilyOracle:
    """Searches all pieces of a family; see :class:`kernelweave.generation.columns.Oracle`.

    Parameters
    ----------
    pieces : sequence of Piece
    rng : Generator
        Draws random starts and samples of pools.
    """

    def __init__(self, pieces: Sequence[Piece], rng: Generator) -> None:
        self._pieces = list(pieces)
        self._rng = rng

    def propose(self, V: Array, known: Sequence[KernelColumn], most: int, level: float, accuracy: float) -> Proposal:
        """See :class:`kernelweave.generation.columns.Oracle`."""
        duals = Duals(V)
        found: list[tuple[float, KernelColumn]] = []
        best, bound = level, -np.inf
        for start in range(0, len(self._pieces), _AT_ONCE):
            pieces = self._pieces[start : start + _AT_ONCE]
            generators = self._rng.spawn(len(pieces))  # of their own, so that threads change nothing

            def search(k: int, pieces: list = pieces, generators: list = generators, best: float = best) -> Any:
                thetas = [column.theta for column in known if column.piece is pieces[k]]
                return self._search(pieces[k], V, duals, thetas, generators[k], best, level, accuracy)

            for piece, (candidates, piece_bound) in zip(pieces, in_threads(search, range(len(pieces))), strict=True):
                found += [(energy, KernelColumn(piece, theta)) for theta, energy in candidates]
                best = max([best, *(energy for _, energy in candidates)])
                bound = max(bound, piece_bound)
        found.sort(key=lambda pair: -pair[0])
        chosen = found[:most]
        return Proposal([column for _, column in chosen], np.array([energy for energy, _ in chosen]), bound)

    @staticmethod
    def _search(
        piece: Piece,
        V: Array,
        duals: Duals,
        known: list[Any],
        rng: Generator,
        best: float,
        level: float,
        accuracy: float,
    ) -> tuple[list[tuple[Any, float]], float]:
        """Parameters with their energies, and a bound for the whole piece."""
        if isinstance(piece, PoolPiece):
            thetas, energies, complete = piece.scan(V, known, rng)
            bound = float(energies.max(initial=0.0)) if complete else np.inf
            return list(zip(thetas, map(float, energies), strict=True)), bound
        assert isinstance(piece, BoxPiece)
        energy = piece.energy(duals, _BIN_SHARE * accuracy)
        if isinstance(energy, Exponential):
            points = np.concatenate([start[:, 0] for start in piece.starts()] + [[theta[0]] for theta in known])
            search = BranchAndBound(energy, float(piece.low[0]), float(piece.high[0]), points)
            bound = search.run(best, level, accuracy) + energy.error
            return [((s,), value) for s, value in search.local_maxima()], bound
        starts = promising_starts(energy, piece, known, rng)
        steps: Climb = newton_steps if piece.newton else gradient_steps
        found = climb(energy, piece.low, piece.high, starts[:_CLIMBS], steps)
        if all(value <= level + accuracy for _, value in found):
            # Only when it seems that nothing is left to be found, it is worth looking everywhere.
            found += climb(energy, piece.low, piece.high, starts[_CLIMBS:_MOST_CLIMBS], steps)
        return found, np.inf


# -- one parameter, with a bound --------------------------------------------------------------------------------------


class BranchAndBound:
    """The largest value of a split energy on an interval, by cutting the intervals that may hold it in two.

    On ``[a, b]``, cut at m, T is at most each of

    * ``P(a) - N(b)``,
    * the chord of P less the tangent of N at m, which is linear, so the larger of its two ends,
    * the Taylor polynomial of T at m of degree two, plus the third derivative on either side at its largest. Where P
      and N are large and nearly equal, this one is by far the smallest.

    Parameters
    ----------
    energy : Split
    low, high : float
    points : array of float
        Where to look first; the interval is cut there.
    """

    def __init__(self, energy: Split, low: float, high: float, points: Array) -> None:
        self._energy = energy
        self._parts: dict[float, tuple[Derivatives, Derivatives]] = {}
        inside = points[(points > low) & (points < high)]
        self._cuts = np.unique(np.concatenate([[low, high], inside])).tolist()
        for s in self._cuts:
            self._at(s)

    def run(self, best: float, level: float, accuracy: float) -> float:
        """Search, given the best value `best` known from elsewhere; returns a bound on T over the interval.

        The bound exceeds the best value by the accuracy, or by a share of what the best value is above the level.
        """
        best = max([best, *(P[0] - N[0] for P, N in self._parts.values())])
        heap = [(-self.bound(a, b), a, b) for a, b in zip(self._cuts[:-1], self._cuts[1:], strict=True)]
        heapq.heapify(heap)
        boxes = len(heap)
        while heap:
            enough = best + max(accuracy, _SLACK_SHARE * (best - level))
            largest, a, b = -heap[0][0], heap[0][1], heap[0][2]
            if largest <= enough:
                return enough
            middle = _middle(a, b)
            if boxes >= _MOST_BOXES or not a < middle < b:
                return largest
            heapq.heappop(heap)
            P, N = self._at(middle)
            best = max(best, P[0] - N[0])
            for part in ((a, middle), (middle, b)):
                heapq.heappush(heap, (-self.bound(*part), *part))
            boxes += 2
        return best + accuracy

    def bound(self, a: float, b: float) -> float:
        """An upper bound on T over [a, b]."""
        (P_a, _), (P_b, N_b) = self._at(a), self._at(b)
        m = _middle(a, b)
        P, N = self._at(m)
        chord = max(P_a[0] - N[0] - N[1] * (a - m), P_b[0] - N[0] - N[1] * (b - m))
        slope, bend = P[1] - N[1], P[2] - N[2]
        right, left = P_b[3] - N[3], P_a[3] - N[3]  # the largest and the smallest third derivative of T on either side
        cubic = P[0] - N[0] + max(largest_cubic(slope, bend, right, b - m), largest_cubic(slope, bend, left, a - m))
        return min(P_a[0] - N_b[0], chord, cubic)

    def local_maxima(self) -> list[tuple[float, float]]:
        """Points looked at that are better than their neighbours, with T there."""
        order = sorted(self._parts)
        values = np.array([self._parts[s][0][0] - self._parts[s][1][0] for s in order])
        padded = np.concatenate([[-np.inf], values, [-np.inf]])
        peaks = np.flatnonzero((values >= padded[:-2]) & (values > padded[2:]))
        return [(order[i], float(values[i])) for i in peaks]

    def _at(self, s: float) -> tuple[Derivatives, Derivatives]:
        if s not in self._parts:
            self._parts[s] = self._energy.parts(s)
        return self._parts[s]


@njit(cache=True, nogil=True)
def largest_cubic(slope: float, bend: float, jerk: float, end: float) -> float:
    """The maximum of ``slope x + bend x^2 / 2 + jerk x^3 / 6`` for x between 0 and `end`, which may be negative."""
    largest = max(0.0, end * (slope + end * (bend / 2 + end * jerk / 6)))
    root = bend**2 - 2 * jerk * slope
    if root >= 0:
        # Both stationary points without cancellation: their product is 2 slope / jerk.
        q = -(bend + math.copysign(math.sqrt(root), bend))
        for numerator, denominator in ((q, jerk), (2 * slope, q)):
            x = numerator / denominator if denominator != 0 else 0.0
            if 0 < x / end < 1:
                largest = max(largest, x * (slope + x * (bend / 2 + x * jerk / 6)))
    return largest


def _middle(a: float, b: float) -> float:
    """Where an interval of rates is cut: energies change with the ratio of rates more than with their difference."""
    return math.sqrt(a * b) if a > 0 else _FROM_ZERO * b


# -- several parameters, without --------------------------------------------------------------------------------------


def promising_starts(energy: Energy, piece: BoxPiece, known: Sequence[Any], rng: Generator) -> Array:
    """Points to climb from, (n_starts, n_parameters): the best few of every group, best first."""
    groups = [*piece.starts(), _random_starts(piece, rng)]
    if known:
        groups.append(np.array(known, dtype=np.float64))
    kept: list[tuple[float, Array]] = []
    for group in groups:
        values = np.array([energy.value_and_gradient(theta)[0] for theta in group])
        kept += [(float(values[i]), group[i]) for i in np.argsort(-values)[:_A_GROUP]]
    kept.sort(key=lambda pair: -pair[0])
    return np.array([theta for _, theta in kept])


def _random_starts(piece: BoxPiece, rng: Generator) -> Array:
    n = len(piece.low)
    shares = np.zeros((_RANDOM, n))
    for row in shares:
        used = rng.choice(n, min(n, _SPARSE), replace=False)
        row[used] = 10.0 ** rng.uniform(-3, 0, len(used))
    origin = np.clip(0.0, piece.low, piece.high)
    return origin + shares * (piece.high - origin)


def climb(
    energy: Energy, low: Array, high: Array, starts: Array, steps: Climb
) -> list[tuple[tuple[float, ...], float]]:
    """Local maxima reached from some points, different ones, best first."""
    reached = [(value, theta) for theta, value in (steps(energy, low, high, start) for start in starts)]
    reached.sort(key=lambda pair: -pair[0])
    different: list[tuple[tuple[float, ...], float]] = []
    for value, theta in reached:
        if all(np.abs(theta - other).max() >= _SAME * (1 + np.abs(theta).max()) for other, _ in different):
            different.append((tuple(theta.tolist()), value))
    return different


def gradient_steps(energy: Energy, low: Array, high: Array, start: Array) -> tuple[Array, float]:
    """The local maximum that L-BFGS-B reaches from a point, with its value."""
    scale = max(abs(energy.value_and_gradient(start)[0]), np.finfo(float).tiny)

    def downhill(theta: Array) -> tuple[float, Array]:
        value, gradient = energy.value_and_gradient(theta)
        return -value / scale, -gradient / scale

    result = minimize(
        downhill,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=list(zip(low, high, strict=True)),
        options={"maxiter": _CLIMB_STEPS},
    )
    return np.clip(result.x, low, high), -float(result.fun) * scale


def newton_steps(energy: SecondOrder, low: Array, high: Array, start: Array) -> tuple[Array, float]:
    """The local maximum that projected Newton steps reach from a point, with its value.

    Parameters at an end of the box that the gradient pushes against stay there. Of the others, the second derivative is
    made negative definite by the signs of its eigenvalues, and the step is halved until the value rises.
    """
    theta = np.clip(start, low, high)
    value, gradient = energy.value_and_gradient(theta)
    for _ in range(_CLIMB_STEPS):
        free = np.flatnonzero(((theta > low) | (gradient > 0)) & ((theta < high) | (gradient < 0)))
        if not len(free):
            break
        values, vectors = np.linalg.eigh(energy.hessian(theta)[np.ix_(free, free)])
        sizes = np.abs(values)
        sizes = np.maximum(sizes, _FLATTEST * max(sizes[-1], sizes[0], np.finfo(float).tiny))
        direction = np.zeros(len(theta))
        direction[free] = vectors @ ((vectors.T @ gradient[free]) / sizes)
        step = 1.0
        while step > _SHORTEST:
            trial = np.clip(theta + step * direction, low, high)
            new_value, new_gradient = energy.value_and_gradient(trial)
            if new_value >= value + _SUFFICIENT * gradient @ (trial - theta):
                break
            step /= 2
        else:
            break
        gain, theta, value, gradient = new_value - value, trial, new_value, new_gradient
        if gain <= _NO_GAIN * abs(value):
            break
    return theta, float(value)
