"""Box-constrained dual problems on a kernel of low rank: coordinate descent on the weighted features.

    max over v   p'v - 1/2 |F'v|^2     lower <= v <= upper,   sum of v over each group stays what it is at the start

with ``K = F F'`` (see `kernels.factors.Factors`). The vector u = F'v is kept, so a step on one sample costs the width
of the features instead of n. Steps on single samples cannot keep a sum, so each group has a multiplier b and a penalty
(augmented Lagrangian): a round climbs

    p'v - 1/2 |F'v|^2 - b (sum v - s) - mu/2 (sum v - s)^2

in random order, with samples at a bound that pull outwards left out (shrinking); b follows by mu (sum v - s) after
every pass, and at the end of a round the little that is left of the difference is taken from samples inside their
boxes. So every round ends at a feasible point, whose gap is the exact one of `decomposition.py`, from a gradient
computed anew. Such rounds find out quickly which samples end at their bounds, and are slow to agree on the others. So
after a slow round the next solves for those others alone, and for the bounded ones that violate most, by the steps of
`decomposition.py` on their part of the kernel, a small matrix.

Label columns take their rounds side by side, and share the passes over the features that gradients need.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit
from numpy.typing import NDArray

from .._config import FASTMATH, in_threads
from ..kernels.factors import Factors
from .base import Array, product
from .decomposition import BoxDual, BoxSolution, _rescale, _tolerated, certificate, maximise, maximise_all

#: Most passes over the samples that may move before the gap is computed again.
_PASSES = 10
#: A round ends when the largest violation of a pass is below this share of that of its first pass.
_ENOUGH = 0.1
_MOST_ROUNDS = 2000
#: Rounds without a smaller gap, and with a rise of the dual value of less than this share of it, after which rounding
#: is taken to be in the way.
_PATIENCE, _LITTLE = 12, 0.01
#: A round that leaves more than this share of the gap was slow: the next solves for a few samples exactly.
_SLOW = 0.5
#: Fewest and most samples of such a round, and the share of them that may be inside their boxes.
_SMALLEST, _LARGEST, _INSIDE = 500, 6000, 0.8
#: Steps a sample that such a round may take, and steps that it always may.
_STEPS, _FEW_STEPS = 100, 100_000
#: The penalty of a kept sum, beside the mean diagonal of the kernel.
_PENALTY = 1.0


@maximise_all.register(Factors)
def maximise_all_factors(K: Factors, problems: Sequence[BoxDual], starts: Array, accuracy: float) -> list[BoxSolution]:
    """`decomposition.maximise_all` for a kernel of low rank."""
    diagonal = K.diagonal()
    given = zip(problems, starts, strict=True)
    columns = [_Column(K, diagonal, problem, start, seed) for seed, (problem, start) in enumerate(given)]
    unfinished, first = columns, True
    while unfinished:
        U = K.columns.transposed_product(np.stack([column.v for column in unfinished], axis=1))
        scores = K.columns.product(K.spread[:, None] * U)
        for column, u, f in zip(unfinished, U.T, scores.T, strict=True):
            column.measure(u, f, accuracy, first)
        unfinished, first = [column for column in unfinished if not column.finished], False
        in_threads(_Column.descend, unfinished)
    return [column.best for column in columns]


class _Column:
    """One problem under way; `measure` and `descend` take turns.

    Attributes
    ----------
    v, u, g : arrays of shape (n,), (width,), (n,)
        Duals, weighted features ``diag(w) Z'v`` and gradient.
    multipliers : array of shape (n_groups,)
        Those that passes move.
    tight : array of shape (n_groups,)
        Those that attain the gap.
    allowed : float
        The gap to reach.
    slow, exact : bool
        Whether the last round left much of the gap, and whether it was one on a few samples.
    """

    u: Array
    g: Array
    multipliers: Array
    tight: Array
    allowed: float
    slow: bool

    def __init__(self, K: Factors, diagonal: Array, problem: BoxDual, start: Array, seed: int) -> None:
        self.K, self.diagonal, self.problem = K, diagonal, problem
        self.v = start.copy()
        self.member = np.full(len(start), -1, dtype=np.int64)
        for c, group in enumerate(problem.groups):
            self.member[group] = c
        self.sums = problem.groups.astype(np.float64) @ start
        self.penalty = _PENALTY * max(float(diagonal.mean()), np.finfo(float).tiny)
        self.state = np.array([0x9E3779B97F4A7C15 + 2 * seed + 1], dtype=np.uint64)
        self.best = BoxSolution(self.v, problem.linear, np.zeros(len(problem.groups)), np.inf, 0)
        self.rounds = self.idle = self.steps = 0
        self.value = -np.inf
        self.finished = self.exact = False

    def measure(self, u: Array, f: Array, accuracy: float, first: bool) -> None:
        """The gap at v, from u = Z'v and the scores f = K v; a start is brought to its best scale before."""
        problem = self.problem
        g = problem.linear - f
        if first and problem.linear @ self.v > 0:
            before = float(np.abs(self.v).sum())
            _rescale(problem.linear, problem.lower, problem.upper, self.v, g)
            u = u * (float(np.abs(self.v).sum()) / before)
        gap, self.tight = certificate(problem, self.v, g)
        self.slow = gap > _SLOW * self.best.gap
        value = 0.5 * float((problem.linear + g) @ self.v)
        risen = value > self.value + _LITTLE * gap
        self.idle = 0 if risen or gap < self.best.gap else self.idle + 1
        if risen:
            self.value = value
        if gap < self.best.gap:
            self.best = BoxSolution(self.v.copy(), g, self.tight, gap, self.steps)
        if first or self.slow:
            self.multipliers = self.tight.copy()
        self.u, self.g = np.ascontiguousarray(u * self.K.spread), g
        self.allowed = _tolerated(self.diagonal, problem.linear, self.v, g, gap, accuracy)
        self.finished = bool(gap <= self.allowed or self.idle > _PATIENCE or self.rounds >= _MOST_ROUNDS)

    def descend(self) -> None:
        """One round, in whichever way promises more."""
        self.rounds += 1
        active = self._working_set() if self.slow and not self.exact else None
        self.exact = active is not None
        if active is None:
            self._pass_over_samples()
        else:
            self._solve_exactly(active)

    def _working_set(self) -> NDArray[np.intp] | None:
        """Samples inside their boxes and those that violate most, as many as a small matrix can be of; None: too many.

        The matrix takes no more memory than a quarter of the features.
        """
        problem, v, n = self.problem, self.v, len(self.v)
        limit = int(min(n, _LARGEST, max(_SMALLEST, 0.5 * np.sqrt(n * self.K.columns.width))))
        shifted = self.g - self.tight @ problem.groups if len(self.tight) else self.g
        inside = (v > problem.lower) & (v < problem.upper)
        if limit < n and inside.sum() > _INSIDE * limit:
            return None
        pull = np.where(v <= problem.lower, shifted, -shifted)  # at a bound: positive if it wants to leave it
        pull[inside | (problem.lower == problem.upper)] = -np.inf
        pull[inside] = np.inf
        chosen = np.argpartition(-pull, limit - 1)[:limit] if limit < n else np.arange(n)
        return np.sort(chosen[np.isfinite(pull[chosen]) | inside[chosen]])

    def _solve_exactly(self, active: NDArray[np.intp]) -> None:
        """The problem in a few samples, all others held, by `decomposition.maximise` on their part of the kernel."""
        K = self.K.block(active, active)
        linear = self.g[active] + product(K, self.v[active, None])[:, 0]
        part = self.problem.restrict(active, linear)
        budget = max(_STEPS * len(active), _FEW_STEPS)
        found = maximise(K, part, self.v[active], 0.1 * self.allowed, max_steps=budget, g=self.g[active])
        self.v[active] = found.v
        self.steps += found.steps

    def _pass_over_samples(self) -> None:
        K, problem = self.K, self.problem
        features = (K.columns.Z, K.columns.ids, K.columns.ranges, K.weights)
        bounds = (problem.linear, problem.lower, problem.upper, self.member)
        self.steps += _round(
            *features, self.diagonal, *bounds, self.sums, self.v, self.u, self.multipliers, self.penalty, self.state
        )
        _restore(problem.lower, problem.upper, self.member, self.sums, self.v)


# --- compiled loops -------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _dot(row, ranges, u):
    """Inner product of the features of a sample, in the ranges of columns that count, with u."""
    total, begin = 0.0, 0
    for r in range(len(ranges)):
        part = row[ranges[r, 0] : ranges[r, 1]]
        other = u[begin : begin + len(part)]
        for k in range(len(part)):
            total += part[k] * other[k]
        begin += len(part)
    return total


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _add(row, ranges, weights, t, u):
    """``u += t * weights * row``."""
    begin = 0
    for r in range(len(ranges)):
        part = row[ranges[r, 0] : ranges[r, 1]]
        other = u[begin : begin + len(part)]
        scaled = t * weights[r]
        for k in range(len(part)):
            other[k] += scaled * part[k]
        begin += len(part)


@njit(cache=True, nogil=True)
def _shuffle(order, count, state):
    """Random order of the first `count` entries (xorshift, so that every column has its own numbers)."""
    x = state[0]
    for i in range(count - 1, 0, -1):
        x ^= x << np.uint64(13)
        x ^= x >> np.uint64(7)
        x ^= x << np.uint64(17)
        j = np.int64(x % np.uint64(i + 1))
        order[i], order[j] = order[j], order[i]
    state[0] = x


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _round(Z, ids, ranges, weights, diagonal, linear, lower, upper, member, sums, v, u, multipliers, penalty, state):
    """Passes over the samples that may move; returns the number of visits."""
    n = len(v)
    order = np.empty(n, np.int64)
    excess = -sums
    count = 0
    for i in range(n):
        if member[i] >= 0:
            excess[member[i]] += v[i]
        if lower[i] < upper[i]:
            order[count] = i
            count += 1
    visits, outside, first = 0, np.inf, 0.0
    for _ in range(_PASSES):
        _shuffle(order, count, state)
        worst, s = 0.0, 0
        while s < count:
            i = order[s]
            row = Z[ids[i]]
            c = member[i]
            own, slope = diagonal[i], linear[i] - _dot(row, ranges, u)
            if c >= 0:
                slope -= multipliers[c] + penalty * excess[c]
                own += penalty
            visits += 1
            if (v[i] <= lower[i] and slope < 0.0) or (v[i] >= upper[i] and slope > 0.0):
                if abs(slope) > outside:  # far beyond all that moved in the last pass: not seen again in this round
                    count -= 1
                    order[s] = order[count]
                    continue
                s += 1
                continue
            worst = max(worst, abs(slope))
            t = min(max(v[i] + slope / max(own, 1e-300), lower[i]), upper[i]) - v[i]
            if t != 0.0:
                after = v[i] + t
                # Exactly on the bound, not beside it by rounding: only then the sample counts as bounded.
                v[i] = upper[i] if t == upper[i] - v[i] else (lower[i] if t == lower[i] - v[i] else after)
                _add(row, ranges, weights, t, u)
                if c >= 0:
                    excess[c] += t
            s += 1
        for c in range(len(excess)):
            multipliers[c] += penalty * excess[c]
            worst = max(worst, penalty * abs(excess[c]))
        outside = worst if worst > 0 else np.inf
        first = max(first, worst)
        if worst <= _ENOUGH * first or count == 0:
            break
    return visits


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _restore(lower, upper, member, sums, v):
    """Give every group its sum again: the difference is shared by samples inside their boxes, by the room they have.

    If these have too little, all samples of the group share what is left.
    """
    for c in range(len(sums)):
        for everyone in range(2):
            rest, size = sums[c], 0.0
            for i in range(len(v)):
                if member[i] == c:
                    rest -= v[i]
                    size += abs(v[i])
            if abs(rest) <= 1e-13 * size:  # rounding: to share it out would take bounded samples off their bounds
                break
            room = 0.0
            for i in range(len(v)):
                if member[i] == c and (everyone == 1 or lower[i] < v[i] < upper[i]):
                    room += upper[i] - v[i] if rest > 0 else v[i] - lower[i]
            if room <= 0.0:
                continue
            share = min(abs(rest) / room, 1.0)
            for i in range(len(v)):
                if member[i] == c and (everyone == 1 or lower[i] < v[i] < upper[i]):
                    if share == 1.0:
                        v[i] = upper[i] if rest > 0 else lower[i]
                    elif rest > 0:
                        v[i] += share * (upper[i] - v[i])
                    else:
                        v[i] -= share * (v[i] - lower[i])
