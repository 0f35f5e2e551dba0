"""Box-constrained dual problems by decomposition: the one compiled solver under every hinge-loss machine.

    max over v   p'v - 1/2 v'Kv     lower <= v <= upper,   sum of v over each group stays what it is at the start

In the signed duals v = alpha * y labels appear only in p and in the box. An SVM with bias has one group (all samples),
a nu-SVM two (the classes), an SVM without bias none. With the gradient g = p - Kv and one multiplier b a group,

    gap = min over b of   sum_i  max(0, g_i - b) (upper_i - v_i) + max(0, b - g_i) (v_i - lower_i)

is the exact primal value minus the dual value (for the SVM, b is the bias), so it costs one sort. It stops the solver.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numba.extending import intrinsic
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: As in ``_config.FASTMATH``, plus "no NaN": inputs are finite here, and maxima then become vector instructions.
_FAST = {"reassoc", "contract", "nsz", "nnan"}
_BLOCK = 256
#: A sub-problem is copied out when it keeps less than this share of the samples: the copy costs about n^2 reads.
_SHRINK_BELOW = 0.6
_TINY = 1e-12
#: Rounds without a larger dual value after which rounding is taken to be in the way.
_PATIENCE = 20


@dataclass
class BoxDual:
    """The data of one dual problem, without the kernel.

    Parameters
    ----------
    linear : array of shape (n,)
        The vector p.
    lower, upper : arrays of shape (n,)
        The box.
    groups : array of shape (n_groups, n), bool
        Membership of the samples in the groups whose sum is kept; no rows: nothing is kept.
    """

    linear: Array
    lower: Array
    upper: Array
    groups: NDArray[np.bool_]

    def restrict(self, samples: NDArray[np.intp], linear: Array) -> BoxDual:
        """The problem in the given samples only, all others held where they are."""
        return BoxDual(linear, self.lower[samples], self.upper[samples], self.groups[:, samples])

    def feasible(self, v: Array, sums: Array) -> bool:
        """Whether `v` lies in the box and its group sums are `sums` (up to rounding)."""
        size = max(float(np.abs(v).sum()), 1.0)
        inside = bool(np.all(v >= self.lower) and np.all(v <= self.upper))
        return inside and bool(np.allclose(self.groups @ v, sums, rtol=0, atol=1e-9 * size))


@dataclass
class BoxSolution:
    """Where the solver stopped: duals `v` (n,), gradient `g` = p - Kv (n,), group multipliers, gap and steps taken."""

    v: Array
    g: Array
    multipliers: Array
    gap: float
    steps: int


def gradient(K: NDArray, problem: BoxDual, v: Array) -> Array:
    """``p - K v`` in float64 whatever the type of K."""
    g = problem.linear.copy()
    _subtract_rows(K, np.flatnonzero(v), v, g)
    return g


def certificate(problem: BoxDual, v: Array, g: Array) -> tuple[float, Array]:
    """The exact gap at `v` and the group multipliers that attain it."""
    up, down = problem.upper - v, v - problem.lower
    if not len(problem.groups):
        return float(np.maximum(g, 0) @ up + np.maximum(-g, 0) @ down), np.zeros(0)
    shifted = g.copy()
    multipliers = np.zeros(len(problem.groups))
    for c, members in enumerate(problem.groups):
        if not members.any():  # a sub-problem need not have samples of every group
            continue
        multipliers[c] = _best_multiplier(g[members], up[members], down[members])
        shifted[members] -= multipliers[c]
    return float(np.maximum(shifted, 0) @ up + np.maximum(-shifted, 0) @ down), multipliers


def _best_multiplier(g: Array, up: Array, down: Array) -> float:
    """Minimiser of the convex piecewise linear sum: where its slope, rising by the box width at each g, passes zero."""
    order = np.argsort(g)
    slope = np.cumsum((up + down)[order]) - up.sum()
    k = int(np.searchsorted(slope, 0.0))
    k = min(k, len(g) - 1)
    # A slope of exactly zero makes a whole interval optimal: its middle is the most stable choice.
    if slope[k] <= _TINY * max(float(up.sum()), _TINY) and k + 1 < len(g):
        return float(0.5 * (g[order[k]] + g[order[k + 1]]))
    return float(g[order[k]])


def maximise(
    K: NDArray, problem: BoxDual, v: Array, accuracy: float, max_steps: int = 10_000_000, g: Array | None = None
) -> BoxSolution:
    """Solve the dual problem from the feasible point `v` until the exact gap is at most `accuracy` (absolute).

    Whoever knows the gradient `g` at `v` gives it, which saves reading the kernel for it.

    Rounds of coordinate steps alternate with the certificate. Except in the first round of a cold start, samples that
    sit at a bound and pull outwards are left out (shrinking): if enough of them are, the rest is copied into a matrix
    of its own, so that the inner loops keep reading contiguous rows.
    """
    v = v.copy()
    g = gradient(K, problem, v) if g is None else g.copy()
    gap, multipliers = certificate(problem, v, g)
    steps, budget = 0, max(len(v) // 4, 100)
    started = bool(np.any((v > problem.lower) & (v < problem.upper)))  # then bounds already mean something
    value, idle = _value(problem, v, g), 0
    while gap > max(accuracy, _rounding(problem, v, g)) and steps < max_steps and idle < _PATIENCE:
        active = _unshrunk(problem, v, g, multipliers) if started else None
        started = True
        if active is None:
            taken = _run(K, problem, v, g, budget)
        else:
            taken = _run_on_subset(K, problem, v, g, active, 0.5 * accuracy, 8 * budget)
        steps += taken
        gap, multipliers = certificate(problem, v, g)
        before, value = value, _value(problem, v, g)
        idle = 0 if value > before + 0.01 * _rounding(problem, v, g) else idle + 1
        if taken == 0:
            break
    return BoxSolution(v, g, multipliers, gap, steps)


def _value(problem: BoxDual, v: Array, g: Array) -> float:
    """The dual value p'v - 1/2 v'Kv."""
    return 0.5 * float((problem.linear + g) @ v)


def _rounding(problem: BoxDual, v: Array, g: Array) -> float:
    """The gap that rounding alone can leave: no accuracy below it can be asked for."""
    size = np.abs(v)
    return 1e-14 * float(np.abs(problem.linear) @ size + np.abs(problem.linear - g) @ size)


def _run_on_subset(
    K: NDArray, problem: BoxDual, v: Array, g: Array, active: NDArray[np.intp], accuracy: float, budget: int
) -> int:
    """Rounds on a copied sub-matrix until its own gap is small; then all samples get their gradient."""
    part = np.empty((len(active), len(active)), dtype=K.dtype)
    _copy_block(K, active, part)
    before, part_v, part_g = v[active], v[active], g[active]
    part_problem = problem.restrict(active, part_g)
    steps = 0
    while steps < budget:
        taken = _run(part, part_problem, part_v, part_g, max(len(active) // 4, 100))
        steps += taken
        if taken == 0 or certificate(part_problem, part_v, part_g)[0] <= accuracy:
            break
    moved = np.flatnonzero(part_v != before)
    change = np.zeros_like(v)
    change[active[moved]] = part_v[moved] - before[moved]
    _subtract_rows(K, active[moved], change, g)
    v[active] = part_v
    return steps


def _unshrunk(problem: BoxDual, v: Array, g: Array, multipliers: Array) -> NDArray[np.intp] | None:
    """Samples that may still move, or None when too many of them can for a copy to pay."""
    shifted = g - multipliers @ problem.groups if len(problem.groups) else g
    # How far beyond its bound a sample must pull before it counts as settled: the multipliers still move this much.
    free = (v > problem.lower) & (v < problem.upper)
    margin = float(np.abs(shifted[free]).max()) if free.any() else np.inf
    settled = ((v <= problem.lower) & (shifted < -margin)) | ((v >= problem.upper) & (shifted > margin))
    active = np.flatnonzero(~settled)
    return active if 0 < len(active) < _SHRINK_BELOW * len(v) else None


def _run(K: NDArray, problem: BoxDual, v: Array, g: Array, budget: int) -> int:
    """Up to `budget` coordinate steps, in place; returns how many were taken."""
    if not len(problem.groups):
        inverse = 1.0 / np.maximum(np.diagonal(K).astype(np.float64), _TINY)
        return int(_single_steps(K, inverse, v, g, problem.lower, problem.upper, budget))
    diagonal = np.diagonal(K).astype(np.float32)
    up = np.where((v < problem.upper) & problem.groups, 0.0, -np.inf)
    low = np.where((v > problem.lower) & problem.groups, 0.0, np.inf)
    tops = np.empty((len(problem.groups), -(-len(v) // _BLOCK)))
    bottoms = np.empty_like(tops)
    return int(_pair_steps(K, diagonal, v, g, problem.lower, problem.upper, up, low, tops, bottoms, budget))


# --- compiled loops -------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True, fastmath=_FAST)
def _subtract_rows(K, rows, v, g):
    """g -= K[rows]' v[rows]: whole rows, so that memory is read in order."""
    for r in range(len(rows)):
        i = rows[r]
        t = v[i]
        row = K[i]
        for k in range(len(g)):
            g[k] -= t * row[k]


@njit(cache=True, nogil=True)
def _copy_block(K, samples, out):
    for a in range(len(samples)):
        row = K[samples[a]]
        for b in range(len(samples)):
            out[a, b] = row[samples[b]]


def _emit_larger(typing_context: Any, a: Any, b: Any) -> Any:
    """The larger of two numbers that are not NaN. numba's own max keeps NaN apart, which stops vectorisation."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        above = builder.fcmp_ordered(">", args[0], args[1], flags=("nnan", "nsz"))
        return builder.select(above, args[0], args[1], flags=("nnan", "nsz"))

    return a(a, b), emit


_larger: Any = intrinsic(_emit_larger)


# Blocks are taken as slices: an index that provably starts at zero needs no wrap-around test, so the loops vectorise.


@njit(cache=True, nogil=True, fastmath=_FAST)
def _move_and_scan(g, t, row_i, row_j, up, low, tops, bottoms):
    """g -= t (row_i - row_j); in the same pass, per group, the block maxima of what can go up and (negated) down."""
    block = 0
    for start in range(0, len(g), _BLOCK):
        part = g[start : start + _BLOCK]
        part_i, part_j = row_i[start : start + _BLOCK], row_j[start : start + _BLOCK]
        for k in range(len(part)):
            part[k] -= t * part_i[k] - t * part_j[k]  # multiplied first: a float32 difference would lose digits
        for c in range(up.shape[0]):
            may_rise, may_fall = up[c, start : start + _BLOCK], low[c, start : start + _BLOCK]
            top, bottom = -np.inf, -np.inf
            for k in range(len(part)):
                top = _larger(part[k] + may_rise[k], top)
                bottom = _larger(-may_fall[k] - part[k], bottom)
            tops[c, block] = top
            bottoms[c, block] = bottom
        block += 1


@njit(cache=True, nogil=True, fastmath=_FAST)
def _widest(g, up, tops, bottoms):
    """Group with the largest violation, its steepest sample and that violation (0 if none)."""
    group, i, widest, top = 0, -1, 0.0, 0.0
    for c in range(up.shape[0]):
        block = int(np.argmax(tops[c]))
        violation = tops[c, block] + np.max(bottoms[c])
        if violation > widest:
            group, widest, top = c, violation, tops[c, block]
            i = block * _BLOCK
    if i < 0:
        return group, i, 0.0, 0.0
    while g[i] + up[group, i] != top:
        i += 1
    return group, i, top, widest


@njit(cache=True, nogil=True, fastmath=_FAST)
def _gain(row, diagonal, g, low, top, own, k):
    """What moving sample k down against the steepest one gains: (top - g_k)^2 / (K_ii + K_kk - 2 K_ik)."""
    drop = _larger(np.float32(top - g[k] - low[k]), np.float32(0.0))
    curve = _larger(own + diagonal[k] - np.float32(2.0) * np.float32(row[k]), np.float32(1e-12))
    return drop * drop / curve


@njit(cache=True, nogil=True, fastmath=_FAST)
def _partner(row, diagonal, g, low, top, own):
    """Second-order choice of the partner: largest gain, in float32 because a choice needs no more."""
    best, where = np.float32(0.0), -1
    for start in range(0, len(g), _BLOCK):
        part, part_row = g[start : start + _BLOCK], row[start : start + _BLOCK]
        part_diagonal, may_fall = diagonal[start : start + _BLOCK], low[start : start + _BLOCK]
        most = np.float32(0.0)
        for k in range(len(part)):
            most = _larger(_gain(part_row, part_diagonal, part, may_fall, top, own, k), most)
        if most > best:
            best, where = most, start
    if where < 0:
        return -1
    pick, most = where, np.float32(-1.0)
    for k in range(where, min(where + _BLOCK, len(g))):
        gain = _gain(row, diagonal, g, low, top, own, k)
        if gain > most:
            pick, most = k, gain
    return pick


@njit(cache=True, nogil=True, fastmath=_FAST)
def _pair_steps(K, diagonal, v, g, lower, upper, up, low, tops, bottoms, budget):
    """Sequential minimal optimisation: the steepest sample goes up, its best partner in the same group down."""
    _move_and_scan(g, 0.0, K[0], K[0], up, low, tops, bottoms)
    for step in range(budget):
        group, i, top, widest = _widest(g, up, tops, bottoms)
        if widest <= 1e-12:
            return step
        j = _partner(K[i], diagonal, g, low[group], top, diagonal[i])
        if j < 0:
            return step
        curve = max(K[i, i] + K[j, j] - 2.0 * K[i, j], 1e-12)
        t = min((g[i] - g[j]) / curve, min(upper[i] - v[i], v[j] - lower[j]))
        v[i] = upper[i] if t == upper[i] - v[i] else v[i] + t
        v[j] = lower[j] if t == v[j] - lower[j] else v[j] - t
        for k in (i, j):
            up[group, k] = 0.0 if v[k] < upper[k] else -np.inf
            low[group, k] = 0.0 if v[k] > lower[k] else np.inf
        _move_and_scan(g, t, K[i], K[j], up, low, tops, bottoms)
    return budget


@njit(cache=True, nogil=True, fastmath=_FAST)
def _clipped_gain(g, inverse, v, lower, upper, k):
    """Twice what the Newton step of sample k, clipped to its box, gains."""
    move = -_larger(-_larger(g[k] * inverse[k], lower[k] - v[k]), v[k] - upper[k])
    return move * (2.0 * g[k] - move / inverse[k])


@njit(cache=True, nogil=True, fastmath=_FAST)
def _move_and_choose(g, t, row, inverse, v, lower, upper):
    """g -= t row; in the same pass the block whose best clipped Newton step gains most, then the sample in it."""
    best, where = 0.0, -1
    for start in range(0, len(g), _BLOCK):
        part, part_row, part_v = g[start : start + _BLOCK], row[start : start + _BLOCK], v[start : start + _BLOCK]
        part_inverse = inverse[start : start + _BLOCK]
        part_lower, part_upper = lower[start : start + _BLOCK], upper[start : start + _BLOCK]
        most = 0.0
        for k in range(len(part)):
            part[k] -= t * part_row[k]
            most = _larger(_clipped_gain(part, part_inverse, part_v, part_lower, part_upper, k), most)
        if most > best:
            best, where = most, start
    if where < 0:
        return -1
    pick, most = where, -1.0
    for k in range(where, min(where + _BLOCK, len(g))):
        gain = _clipped_gain(g, inverse, v, lower, upper, k)
        if gain > most:
            pick, most = k, gain
    return pick


@njit(cache=True, nogil=True, fastmath=_FAST)
def _single_steps(K, inverse_diagonal, v, g, lower, upper, budget):
    """Coordinate ascent without a bias: the sample whose clipped Newton step gains most."""
    i = _move_and_choose(g, 0.0, K[0], inverse_diagonal, v, lower, upper)
    for step in range(budget):
        if i < 0:
            return step
        t = min(max(g[i] * inverse_diagonal[i], lower[i] - v[i]), upper[i] - v[i])
        if t == 0.0:
            return step
        # Exactly on the bound, not beside it by rounding: only then the sample counts as bounded.
        v[i] = upper[i] if t == upper[i] - v[i] else (lower[i] if t == lower[i] - v[i] else v[i] + t)
        i = _move_and_choose(g, t, K[i], inverse_diagonal, v, lower, upper)
    return budget
