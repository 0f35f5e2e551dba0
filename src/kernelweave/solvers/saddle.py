"""The one problem every solver solves, and its books: bounds, counts, seconds.

    min over b in B   max over a in A    S(a) - b.h(a) + R(b),      h_j(a) = 1/2 sum_k v_k' K_j v_k

A solver proposes weights; :meth:`Saddle.evaluate` combines the kernels, runs the machine and returns a :class:`Point`.
Each point bounds the optimum from both sides, whatever the accuracy of the machine:

    upper   loss(f) + b.h + R(b)           (or less: the best weights for the same f_j, where B has that in closed form)
    lower   S(a) - max over b' in B of (b'.h - R(b'))

and the best of each, over all points, is the certificate of the fit and its stopping rule.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..machines import Machine, Solution
from ..weights import WeightSet

if TYPE_CHECKING:
    from ..kernels import Bank

Array = NDArray[np.float64]

#: The machine is solved this much more accurately than the bounds are apart, never more coarsely than to 1 %.
_MACHINE_SHARE = 0.1
_COARSEST = 0.01
#: Bounds that cross by less than this many units of rounding of a kernel value agree.
_ROUNDING = 1e3

HISTORY = np.dtype(
    [("iteration", np.int64), ("objective", float), ("upper", float), ("lower", float), ("gap", float)]
    + [("active", np.int64), ("solves", np.int64), ("adds", np.int64)]
    + [(f"seconds_{part}", float) for part in ("combine", "machine", "quadratics", "master")]
    + [("seconds", float)]
)


@dataclass(frozen=True)
class Stopping:
    """When to stop.

    Parameters
    ----------
    tol : float
        Relative duality gap, (upper - lower) / abs(upper).
    max_iter : int
        Iterations of the solver.
    weight_change : float, optional
        Also stop, as published comparisons did, when no weight moved by this much in an iteration.
    """

    tol: float = 1e-3
    max_iter: int = 500
    weight_change: float | None = None


#: The regime of the published comparisons: at most 40 iterations, weight change 1e-4, gap 1e-3.
PUBLISHED = Stopping(tol=1e-3, max_iter=40, weight_change=1e-4)


def relative_gap(upper: float, lower: float) -> float:
    """Distance of two bounds on the optimum beside the upper one; infinite as long as one is missing."""
    if not np.isfinite(upper - lower):
        return np.inf
    return max(upper - lower, 0.0) / max(abs(upper), np.finfo(float).tiny)


@dataclass
class Point:
    """Weights, the machine's answer to them, and what both say about the optimum.

    Attributes
    ----------
    weights : array of shape (n_kernels,)
        What the solver moves.
    effective : array of shape (n_kernels,)
        What multiplies the kernels; differs from `weights` only for grouped sets with r > 1.
    h : array of shape (n_kernels,)
        Minus the slope of the optimal value in the weights (without the penalty).
    value, lower : float
        Upper bound at these weights, and lower bound over all weights.
    """

    weights: Array
    effective: Array
    solution: Solution
    h: Array
    value: float
    lower: float

    @property
    def norms(self) -> Array:
        """RKHS norms of the parts f_j of the decision function, shape (n_kernels,)."""
        return np.sqrt(2 * self.weights * self.effective * np.maximum(self.h, 0))


@dataclass
class Saddle:
    """A bank, a machine and a weight set, with targets `Y` of shape (n_samples, n_tasks).

    Who knows a nearby problem sets `initial`, the weights that solvers begin with, and gives `start`, the machine's
    answer to them.
    """

    bank: Bank
    machine: Machine
    weights: WeightSet
    Y: Array
    stopping: Stopping = field(default_factory=Stopping)
    on_iteration: Callable[[np.void], None] | None = None
    start: Solution | None = None

    initial: Array = field(init=False)
    upper: float = field(default=np.inf, init=False)
    lower: float = field(default=-np.inf, init=False)
    best: Point | None = field(default=None, init=False)
    tightest: Point | None = field(default=None, init=False)
    #: By how much the bounds crossed, beside the value, where that was more than rounding: so unsure is what they say.
    crossed: float = field(default=0.0, init=False)
    solves: int = field(default=0, init=False)
    adds: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.initial = self.weights.start(self.bank.n_kernels)
        self._rows: list[tuple] = []
        self._seconds = dict.fromkeys(("combine", "machine", "quadratics", "master"), 0.0)
        self._begin = time.perf_counter()
        self._kernel: NDArray | None = None
        self._kernel_of: Array | None = None
        self._last: Point | None = None
        self._latest: Solution | None = None

    @property
    def gap(self) -> float:
        """Relative duality gap reached so far, or by how much the bounds crossed."""
        return max(relative_gap(self.upper, self.lower), self.crossed)

    @property
    def machine_accuracy(self) -> float:
        """Relative gap at which the machine's own error is small beside what the weights still have to gain."""
        return min(_MACHINE_SHARE * max(self.gap, self.stopping.tol), _COARSEST)

    @property
    def converged(self) -> bool:
        """Whether the gap asked for was reached."""
        return self.gap <= self.stopping.tol

    @property
    def history(self) -> NDArray:
        """A row an iteration; see ``HISTORY`` for the columns."""
        return np.array(self._rows, dtype=HISTORY)

    @contextmanager
    def clock(self, part: str) -> Iterator[None]:
        """Book the time of a block under combine, machine, quadratics or master."""
        begin = time.perf_counter()
        yield
        self._seconds[part] += time.perf_counter() - begin

    def kernel(self, weights: Array) -> NDArray:
        """K(weights), in the one n x n buffer of the fit; kept while the weights stay the same."""
        if self._kernel_of is None or not np.array_equal(weights, self._kernel_of):
            with self.clock("combine"):
                self._kernel = self.bank.combine(weights, out=self._kernel)
            self._kernel_of = weights.copy()
            self.adds += int(np.count_nonzero(weights))
        assert self._kernel is not None
        return self._kernel

    def evaluate(self, weights: Array, near: Point | None = None, accuracy: float | None = None) -> Point:
        """Run the machine at these weights, starting from the solution of a nearby point.

        For a weight set whose adversary owns a scale per group (grouped, r > 1), machine and scale take turns until
        their own gap is as small as the machine's has to be.
        """
        if accuracy is None:
            accuracy = self.machine_accuracy
        solution = near.solution if near else self.start
        if self._latest is not None:
            self._latest.state = None  # as large as a kernel, and of use only while its point is the newest
        scale = None
        while True:
            effective = weights if scale is None else weights * scale
            K = self.kernel(effective)
            with self.clock("machine"):
                solution = self.machine.solve(K, self.Y, start=solution, accuracy=accuracy)
            self.solves += 1
            with self.clock("quadratics"):
                h = self.bank.quadratics(self.machine.cut(solution))
            value = solution.loss + self.weights.cost(weights, h, scale)
            proposal = self.weights.scale(weights, h)
            if proposal is None:
                break
            reached = solution.linear - float(weights @ (proposal * h))
            settled = scale is not None and value - reached <= 2 * accuracy * abs(value)
            scale = proposal
            if settled:
                h = scale * h
                break
        self._latest = solution
        point = Point(weights, effective, solution, h, value, solution.linear - self.weights.support(h))
        self._book(point)
        return point

    def _book(self, point: Point) -> None:
        upper = point.value
        if self.machine.additive and self.weights.has_update and point.effective is point.weights:
            upper = min(upper, point.solution.loss + self._least_cost(point))
        if upper < self.upper:
            self.upper, self.best = upper, point
        if self.tightest is None or point.lower > self.tightest.lower:
            self.tightest = point
        self.raise_lower(point.lower)

    def raise_lower(self, bound: float) -> None:
        """Take note of a lower bound on the optimum.

        Both bounds hold at any accuracy of the machine, so they can only cross by the rounding of the kernels, and then
        agree. If they cross by more, the problem is not the convex one that they are bounds for, and they prove no more
        than that.
        """
        self.lower = max(self.lower, bound)
        if self.lower > self.upper:
            # The value itself can be zero (a nu-SVM on inseparable classes), the terms it is the sum of are not.
            terms = float(self.best.h.sum()) if self.best is not None else 0.0
            share = (self.lower - self.upper) / max(abs(self.upper), terms)
            if share > max(_ROUNDING * float(np.finfo(self.bank.dtype).eps), 1e-9):
                self.crossed = max(self.crossed, share)
                warnings.warn(
                    f"The bounds on the optimum crossed by {share:.1e} of its value: kernel values are too large for "
                    "their precision, or a kernel is not positive semi-definite. Scale the features, or build the bank "
                    "with dtype='float64', or with check='always', which names the kernel.",
                    RuntimeWarning,
                    stacklevel=2,
                )
            self.lower = self.upper

    def _least_cost(self, point: Point) -> float:
        """Regulariser of the same f_j = b_j K_j v under the weights that suit them best."""
        norms = point.norms
        best = self.weights.update(norms)
        used = norms > 0
        if np.any(best[used] <= 0):
            return np.inf
        return 0.5 * float((norms[used] ** 2 / best[used]).sum()) + self.weights.penalty(best)

    def curvature(self, point: Point, kernels: NDArray[np.intp]) -> Array:
        """Second derivative of the optimal value in the weights of some kernels, (len(kernels), len(kernels))."""
        if not len(kernels):
            return np.zeros((0, 0))
        K = self.kernel(point.effective)
        with self.clock("quadratics"):
            return self.machine.curvature(K, self.Y, point.solution, self.bank.select(kernels))

    def proceed(self, point: Point) -> bool:
        """Write the row of this iteration; False when it is time to stop."""
        bounds = (point.value, self.upper, self.lower, self.gap)
        counts = (int(np.count_nonzero(point.weights)), self.solves, self.adds)
        row = (len(self._rows) + 1, *bounds, *counts, *self._seconds.values(), time.perf_counter() - self._begin)
        self._rows.append(row)
        if self.on_iteration is not None:
            self.on_iteration(np.array([row], dtype=HISTORY)[0])
        last, self._last = self._last, point
        # A solver that comes back with the point it was given has nothing left to try.
        stuck = point is last or self.crossed > self.stopping.tol  # bounds that crossed come no closer
        change = self.stopping.weight_change
        if change is not None and last is not None:
            stuck = stuck or bool(np.abs(point.weights - last.weights).max() < change)
        return not (self.converged or stuck or len(self._rows) >= self.stopping.max_iter)
