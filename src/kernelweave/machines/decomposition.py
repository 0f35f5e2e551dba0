"""Box-constrained dual problems by decomposition: the one compiled solver under every hinge-loss machine.

    max over v   p'v - 1/2 v'Kv     lower <= v <= upper,   sum of v over each group stays what it is at the start

In the signed duals v = alpha * y labels appear only in p and in the box. An SVM with bias has one group (all samples),
a nu-SVM two (the classes), an SVM without bias none. With the gradient g = p - Kv and one multiplier b a group,

    gap = min over b of   sum_i  max(0, g_i - b) (upper_i - v_i) + max(0, b - g_i) (v_i - lower_i)

is the exact primal value minus the dual value (for the SVM, b is the bias): a weighted median, found in O(n). It stops
the solver.

Many problems on one kernel (label columns) are solved side by side, each by one compiled call that takes steps until
its gap is small. The few that need many steps then go on with shrinking, which for the others costs more than it saves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any

import numpy as np
from numba import get_num_threads, njit, prange
from numba.extending import intrinsic
from numpy.typing import NDArray

from .._config import in_threads, parallel_loop

Array = NDArray[np.float64]

#: As in ``_config.FASTMATH``, plus "no NaN": inputs are finite here, and maxima then become vector instructions.
NO_NANS = {"reassoc", "contract", "nsz", "nnan"}
_BLOCK = 64
#: A sample with this share of the largest gain is the one with it: computed again, a gain may differ by rounding.
_AS_GOOD = 1 - 1e-6
#: A sub-problem is copied out when it keeps less than this share of the samples: the copy costs about n^2 reads.
_SHRINK_BELOW = 0.6
_TINY = 1e-12
#: Rounds without a larger dual value after which rounding is taken to be in the way.
_PATIENCE = 20
#: The most samples inside their boxes for which an exact solve is tried when steps gain nothing any more.
_FEW = 500
#: A start is left as it is when its best multiple is this close.
_SAME_SCALE = 1e-3
#: Problems take this many steps a sample, and at least so many, before they go on with shrinking.
_UNSHRUNK_SHARE, _UNSHRUNK_LEAST = 0.5, 500


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
        groups = np.ascontiguousarray(self.groups[:, samples])
        return BoxDual(linear, self.lower[samples], self.upper[samples], groups)

    def feasible(self, v: Array, like: Array) -> bool:
        """Whether `v` lies in the box and has the group sums of the feasible point `like` (up to rounding)."""
        return bool(_feasible(v, like, self.lower, self.upper, self.groups))


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
    multipliers = np.zeros(len(problem.groups))
    return float(_certify(v, g, problem.lower, problem.upper, problem.groups, multipliers)), multipliers


@singledispatch
def maximise_all(K: Any, problems: Sequence[BoxDual], starts: Array, accuracy: float) -> list[BoxSolution]:
    """Solve several problems on one kernel until each gap is at most `accuracy` beside the primal value.

    Parameters
    ----------
    K : array of shape (n, n)
        Kernels of other types have methods of their own, registered where they are written.
    problems : sequence of m BoxDual
        With the same number of groups; where there is a linear part, the kept sums must be zero.
    starts : array of shape (m, n)
        A feasible point of each problem.
    accuracy : float
        Relative gap.
    """
    m, n = starts.shape
    diagonal = np.diagonal(K).astype(np.float64)
    linear, lower, upper, groups = (
        np.stack([getattr(problem, part) for problem in problems]) for part in ("linear", "lower", "upper", "groups")
    )
    v, g, multipliers = starts.copy(), np.empty((m, n)), np.zeros(groups.shape[:2])
    gaps, steps = np.empty(m), np.empty(m, dtype=np.int64)
    budget = max(int(_UNSHRUNK_SHARE * n), _UNSHRUNK_LEAST)
    columns = (linear, lower, upper, groups, v, g, multipliers)
    if m == 1:  # without the lock: callers may solve such problems in threads of their own
        column = (linear[0], lower[0], upper[0], groups[0], v[0], g[0], multipliers[0])
        gaps[0], steps[0] = _ascend(K, diagonal, *column, accuracy, budget)
    else:
        with parallel_loop(m * K.size):
            _ascend_all(K, diagonal, *columns, accuracy, budget, gaps, steps, get_num_threads())
    parts = [BoxSolution(v[k], g[k], multipliers[k], float(gaps[k]), int(steps[k])) for k in range(m)]
    unfinished = np.flatnonzero(steps >= budget)
    finished = in_threads(lambda k: _finish(K, diagonal, problems[k], parts[k], accuracy), unfinished)
    for k, part in zip(unfinished, finished, strict=True):
        parts[k] = part
    return parts


def _finish(K: NDArray, diagonal: Array, problem: BoxDual, begun: BoxSolution, accuracy: float) -> BoxSolution:
    """Tighten the absolute gap until it is small beside the value reached, which is not known before."""
    result, steps = begun, begun.steps
    while True:
        target = _tolerated(diagonal, problem.linear, result.v, result.g, result.gap, accuracy)
        if result.gap <= target:
            return replace(result, steps=steps)
        before = result
        result = maximise(K, problem, result.v, 0.99 * target, g=result.g)
        steps += result.steps
        if result.steps == 0 or result.gap >= before.gap:
            return replace(result if result.gap < before.gap else before, steps=steps)


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
        if idle and not len(problem.groups):
            _solve_free(K, problem, v, g)
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


def _solve_free(K: NDArray, problem: BoxDual, v: Array, g: Array) -> None:
    """Go to the maximum over the samples inside their boxes, or to the first bound on the way, in place.

    One coordinate at a time hardly moves where the kernel is nearly singular. The ridge makes a flat direction that
    still gains a long one, so that it ends at a bound, as it should.
    """
    free = np.flatnonzero((v > problem.lower) & (v < problem.upper))
    if not 0 < len(free) <= _FEW:
        return
    system = K[np.ix_(free, free)].astype(np.float64)
    system[np.diag_indices(len(free))] += max(1e-13 * float(np.trace(system)), 1e-150)
    step = np.linalg.solve(system, g[free])
    with np.errstate(divide="ignore", invalid="ignore"):
        room = np.where(step > 0, problem.upper[free] - v[free], problem.lower[free] - v[free]) / step
    share = min(1.0, float(np.min(room, where=step != 0, initial=1.0)))
    v[free] = np.clip(v[free] + share * step, problem.lower[free], problem.upper[free])
    g[:] = gradient(K, problem, v)


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
    copy_block(K, active, part)
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
    diagonal = np.diagonal(K).astype(np.float64)
    return int(coordinate_steps(K, diagonal, v, g, problem.lower, problem.upper, problem.groups, budget))


# --- compiled loops -------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True, fastmath=NO_NANS)
def _subtract_rows(K, rows, v, g):
    """g -= K[rows]' v[rows]: whole rows, so that memory is read in order."""
    for r in range(len(rows)):
        i = rows[r]
        t = v[i]
        row = K[i]
        for k in range(len(g)):
            g[k] -= t * row[k]


@njit(cache=True, nogil=True)
def copy_block(K, samples, out):
    """``out = K[samples][:, samples]``, in the precision of `out`."""
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


@njit(cache=True, nogil=True, fastmath=NO_NANS)
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


@njit(cache=True, nogil=True, fastmath=NO_NANS)
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


@njit(cache=True, nogil=True, fastmath=NO_NANS)
def _gain(row, diagonal, g, low, top, own, k):
    """What moving sample k down against the steepest one gains: (top - g_k)^2 / (K_ii + K_kk - 2 K_ik)."""
    drop = _larger(np.float32(top - g[k] - low[k]), np.float32(0.0))
    curve = _larger(own + diagonal[k] - np.float32(2.0) * np.float32(row[k]), np.float32(1e-12))
    return drop * drop / curve


@njit(cache=True, nogil=True, fastmath=NO_NANS)
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
    enough = best * np.float32(_AS_GOOD)
    for k in range(where, min(where + _BLOCK, len(g))):
        if _gain(row, diagonal, g, low, top, own, k) >= enough:
            return k
    return where


@njit(cache=True, nogil=True, fastmath=NO_NANS)
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


@njit(cache=True, nogil=True, fastmath=NO_NANS)
def _clipped_gain(g, inverse, v, lower, upper, k):
    """Twice what the Newton step of sample k, clipped to its box, gains."""
    move = -_larger(-_larger(g[k] * inverse[k], lower[k] - v[k]), v[k] - upper[k])
    return move * (2.0 * g[k] - move / inverse[k])


@njit(cache=True, nogil=True, fastmath=NO_NANS)
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


@njit(cache=True, nogil=True, fastmath=NO_NANS)
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


@njit(cache=True, nogil=True, fastmath=NO_NANS)
def coordinate_steps(K, diagonal, v, g, lower, upper, groups, budget):
    """Up to `budget` coordinate steps, in pairs where sums are kept; returns how many were taken."""
    n_groups, n = groups.shape
    if n_groups == 0:
        return _single_steps(K, 1.0 / np.maximum(diagonal, _TINY), v, g, lower, upper, budget)
    up, low = np.empty((n_groups, n)), np.empty((n_groups, n))
    for c in range(n_groups):
        for i in range(n):
            up[c, i] = 0.0 if groups[c, i] and v[i] < upper[i] else -np.inf
            low[c, i] = 0.0 if groups[c, i] and v[i] > lower[i] else np.inf
    tops = np.empty((n_groups, (n + _BLOCK - 1) // _BLOCK))
    bottoms = np.empty_like(tops)
    return _pair_steps(K, diagonal.astype(np.float32), v, g, lower, upper, up, low, tops, bottoms, budget)


@njit(cache=True, nogil=True, fastmath=NO_NANS)
def _balance(values, weights, need):
    """The smallest value up to which the weights add up to `need`, by three-way quickselect; reorders both arrays.

    This minimises the sum of the certificate over b: its slope rises by the width of the box at each g, and passes zero
    there. A slope of exactly zero makes the whole interval to the next value optimal: then its middle, the most stable
    choice.
    """
    slack = _TINY * max(need, _TINY)
    start, end, before = 0, len(values), 0.0
    while True:
        a, b, c = values[start], values[(start + end) // 2], values[end - 1]
        pivot = max(min(a, b), min(max(a, b), c))
        below, same = 0.0, 0.0
        i, k, j = start, start, end  # smaller than the pivot: [start, i), equal: [i, k), not looked at: [k, j)
        while k < j:
            value, weight = values[k], weights[k]
            if value < pivot:
                below += weight
                values[k], weights[k] = values[i], weights[i]
                values[i], weights[i] = value, weight
                i += 1
                k += 1
            elif value > pivot:
                j -= 1
                values[k], weights[k] = values[j], weights[j]
                values[j], weights[j] = value, weight
            else:
                same += weight
                k += 1
        if i > start and before + below >= need - slack:
            end = i
        elif before + below + same >= need - slack or j == end:
            break
        else:
            before += below + same
            start = j
    if abs(before + below + same - need) > slack or j == len(values):
        return pivot
    return 0.5 * (pivot + np.min(values[j:]))  # all that follows is larger


@njit(cache=True, nogil=True, fastmath=NO_NANS)
def _certify(v, g, lower, upper, groups, multipliers):
    """The exact gap; fills in the multipliers that attain it. Samples whose box is a point have no say in them."""
    shifted = g.copy()
    values, widths = np.empty(len(v)), np.empty(len(v))
    for c in range(len(groups)):
        count, need = 0, 0.0
        for i in range(len(v)):
            if groups[c, i] and lower[i] < upper[i]:
                values[count], widths[count] = g[i], upper[i] - lower[i]
                need += upper[i] - v[i]
                count += 1
        if count == 0:  # a sub-problem need not have samples of every group
            multipliers[c] = 0.0
            continue
        multipliers[c] = _balance(values[:count], widths[:count], need)
        for i in range(len(v)):
            shifted[i] -= multipliers[c] * groups[c, i]
    gap = 0.0
    for i in range(len(v)):
        gap += max(shifted[i], 0.0) * (upper[i] - v[i]) + max(-shifted[i], 0.0) * (v[i] - lower[i])
    return gap


@njit(cache=True, nogil=True, fastmath=NO_NANS)
def _feasible(v, like, lower, upper, groups):
    """See :meth:`BoxDual.feasible`."""
    size = 0.0
    for i in range(len(v)):
        if v[i] < lower[i] or v[i] > upper[i]:
            return False
        size += abs(v[i])
    for c in range(len(groups)):
        difference = 0.0
        for i in range(len(v)):
            difference += (v[i] - like[i]) * groups[c, i]
        if abs(difference) > 1e-9 * max(size, 1.0):
            return False
    return True


@njit(cache=True, nogil=True, fastmath=NO_NANS)
def _rescale(linear, lower, upper, v, g):
    """Take the best multiple of v in the box: when a kernel is replaced by another, its scale is the first to change.

    Kept sums are zero where there is a linear part, so every multiple has them too.
    """
    slope, curvature, room = 0.0, 0.0, np.inf
    for i in range(len(v)):
        slope += linear[i] * v[i]
        curvature += (linear[i] - g[i]) * v[i]
        if v[i] != 0:
            room = min(room, (upper[i] if v[i] > 0 else lower[i]) / v[i])
    if curvature <= 0 or not np.any(linear):
        return
    t = max(min(slope / curvature, room), 0.0)  # on the other side of zero is not the box
    if abs(t - 1) <= _SAME_SCALE:
        return
    for i in range(len(v)):
        v[i] = min(max(t * v[i], lower[i]), upper[i])
        g[i] = linear[i] - t * (linear[i] - g[i])


@njit(cache=True, nogil=True, fastmath=NO_NANS)
def _tolerated(diagonal, linear, v, g, gap, accuracy):
    """The absolute gap that `accuracy` allows, relative to the primal value."""
    value, own, some = gap, 0.0, False
    for i in range(len(v)):
        value += 0.5 * (linear[i] + g[i]) * v[i]
        own += diagonal[i] * v[i] * v[i]
        some = some or linear[i] != 0
    # The value of a nu-SVM vanishes when the classes cannot be separated, and no gap is small beside zero.
    return max(accuracy * abs(value), 0.0 if some else 1e-12 * own)


@njit(cache=True, nogil=True, fastmath=NO_NANS)
def _ascend(K, diagonal, linear, lower, upper, groups, v, g, multipliers, accuracy, budget):
    """Scale v, then take steps until the gap is small beside the value, or the budget spent; returns gap and steps."""
    g[:] = linear
    _subtract_rows(K, np.flatnonzero(v), v, g)
    _rescale(linear, lower, upper, v, g)
    # Rounds of this length cost far more than a certificate, and in small problems no less than calling this function:
    # to stop any earlier would save nothing.
    taken, steps, between = 1, 0, max(len(v) // 16, 4000 // len(v))
    while True:
        gap = _certify(v, g, lower, upper, groups, multipliers)
        if gap <= _tolerated(diagonal, linear, v, g, gap, accuracy) or taken == 0 or steps >= budget:
            return gap, steps
        taken = coordinate_steps(K, diagonal, v, g, lower, upper, groups, between)
        steps += taken


@njit(cache=True, nogil=True, fastmath=NO_NANS, parallel=True)
def _ascend_all(K, diagonal, linear, lower, upper, groups, v, g, multipliers, accuracy, budget, gaps, steps, n_workers):
    """All problems; dealt out in turn, because neighbours (labels by frequency, say) cost alike."""
    for worker in prange(n_workers):
        for k in range(worker, len(v), n_workers):
            gaps[k], steps[k] = _ascend(
                K, diagonal, linear[k], lower[k], upper[k], groups[k], v[k], g[k], multipliers[k], accuracy, budget
            )
