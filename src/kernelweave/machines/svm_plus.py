"""SVM+: a support vector machine whose slack is a function of privileged features, for one label column on two kernels.

    min  1/2 |f|^2 + lam/2 |s|^2 + C sum_i (s(z_i) + rho)
         over f and b, s and rho, with   s(z_i) + rho >= 0   and   y_i (f(x_i) + b) >= 1 - (s(z_i) + rho)

    max  1'a - 1/2 v'Kv - 1/(2 lam) e'Ge           v = a * y,   e = a + c - C,   a, c >= 0,   y'a = 0,   1'e = 0

K is the kernel of the features that new samples have too, G that of the privileged ones. From the duals follow
f = K v and s = G e / lam, and from these the best b and rho in closed form: b makes what the worst samples of the two
classes lack of their margin equal, and rho fills that, or the deepest -s. So any duals come with an exact primal
value, and the gap between the two stops the solver.

The dual is solved by steps in two or three samples (sequential minimal optimisation). The constraints keep the sum of a
over each class and the sum of c, but for a trade between the three. Elementary steps therefore are pairs within one of
these groups, and triples that trade c for one a of each class; together they reach the optimum. Pairs that move a
against c of the same sample are offered as well: they leave e alone, whose changes cost much when lam is small.
Each step is the best of the six on offer. Where the kernels are nearly singular, steps in few samples hardly move: when
they would cost more than it does, the interior-point method of :mod:`.svm_plus_interior` takes over.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numba import njit
from numpy.typing import NDArray

from .base import Array, Values, product
from .decomposition import _larger
from .svm_plus_interior import interior_point

#: As in ``_config.FASTMATH``, plus "no NaN": inputs are finite here, and maxima then become vector instructions.
_FAST = {"reassoc", "contract", "nsz", "nnan"}
_BLOCK = 256
#: Steps, beside n squared, that cost about what the interior-point method does.
_STEPS_A_FINISH = 0.02
#: The gap that rounding alone can leave, beside the terms it is made of.
_ROUNDING = 1e-13
#: Duals below this share of C are zero but for rounding.
_DUST = 1e-13


@dataclass
class PlusSolution(Values):
    """A pair of primal and dual points of SVM+.

    Attributes
    ----------
    coef : array of shape (n_samples,)
        Signed duals v; the decision function is ``K @ coef + intercept``.
    correction : array of shape (n_samples,)
        e / lam; the slack is ``G @ correction + offset``.
    intercept, offset : float
        b and rho.
    linear, loss, quadratic : float
        Sum of a; C times the sum of slacks; 1/2 |f|^2 + lam/2 |s|^2.
    steps : int
        Steps in two or three samples.
    """

    coef: Array
    correction: Array
    intercept: float
    offset: float
    linear: float
    loss: float
    quadratic: float
    steps: int

    def reaches(self, accuracy: float) -> bool:
        """Whether the gap is at most `accuracy` beside the primal value, or as small as rounding lets it be."""
        rounding = _ROUNDING * (abs(self.linear) + abs(self.loss) + self.quadratic)
        return self.gap <= max(accuracy * abs(self.primal), rounding)


class PlusPoint:
    """Duals a, c >= 0 of one problem, with what follows from them.

    Attributes
    ----------
    a, c : arrays of shape (n_samples,)
    g : array of shape (n_samples,)
        y - K v.
    s : array of shape (n_samples,)
        G e / lam.
    """

    def __init__(self, K: NDArray, G: NDArray, y: Array, C: float, lam: float) -> None:
        self.K, self.G, self.y, self.C, self.lam = K, G, y, float(C), float(lam)
        self.steps = 0
        self.move_to(np.zeros(len(y)), np.full(len(y), self.C))

    def move_to(self, a: Array, c: Array) -> None:
        """Take feasible duals, and compute what follows from them anew."""
        self.a, self.c = a, c
        self.g = self.y - product(self.K, a * self.y)
        self.s = product(self.G, a + c - self.C) / self.lam

    def solution(self) -> PlusSolution:
        """These duals, and the best primal point with their f and s."""
        f, e = self.y - self.g, self.a + self.c - self.C
        lacking = 1.0 - self.y * f - self.s
        positive, negative = float(lacking[self.y > 0].max()), float(lacking[self.y < 0].max())
        offset = max(float(np.max(-self.s)), 0.5 * (positive + negative))
        return PlusSolution(
            coef=self.a * self.y,
            correction=e / self.lam,
            intercept=0.5 * (positive - negative),
            offset=offset,
            linear=float(self.a.sum()),
            loss=self.C * float(np.sum(self.s + offset)),
            quadratic=0.5 * float((self.a * self.y) @ f + e @ self.s),
            steps=self.steps,
        )


def solve_plus(
    K: NDArray, G: NDArray, y: Array, C: float = 1.0, lam: float = 1.0, accuracy: float = 1e-3
) -> PlusSolution:
    """Solve SVM+ until the duality gap is at most `accuracy` beside the primal value.

    Parameters
    ----------
    K, G : arrays of shape (n_samples, n_samples), float32 or float64
        Kernels of the features and of the privileged features, positive semi-definite.
    y : array of shape (n_samples,)
        -1 and +1, both present.
    C, lam : float
        Cost of slack, and of the size of the function behind it.
    accuracy : float
        Relative gap.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.machines.svm_plus import solve_plus
    >>> X = np.array([[0.0], [1.0], [3.0], [4.0]])
    >>> solution = solve_plus(X @ X.T, np.eye(4), np.array([-1.0, -1.0, 1.0, 1.0]), C=10.0, accuracy=1e-6)
    >>> round(solution.intercept, 3), round(solution.primal, 3)
    (-2.0, 0.5)
    """
    point = PlusPoint(K, G, y, C, lam)
    budget = int(_STEPS_A_FINISH * len(y) ** 2) + 20 * len(y)
    stepped = take_steps(point, accuracy, budget // 4)
    if not stepped.reaches(accuracy) and stepped.reaches(accuracy**0.25):  # a quarter of the way, in digits
        stepped = take_steps(point, accuracy, budget - budget // 4)
    if stepped.reaches(accuracy):
        return stepped
    return replace(min(interior_point(point, accuracy), stepped, key=lambda found: found.gap), steps=point.steps)


def take_steps(point: PlusPoint, accuracy: float, budget: int) -> PlusSolution:
    """Up to `budget` steps, in place, until the gap is at most `accuracy` beside the primal value."""
    n = len(point.y)
    scores, up, down = np.empty((3, n)), np.empty((4, n)), np.empty((4, n))
    diagonal, privileged = (np.diagonal(kernel).astype(np.float64) for kernel in (point.K, point.G))
    kernels = (point.K, point.G, diagonal, privileged / point.lam, point.lam)
    best, spent = point.solution(), 0
    _start(point.y, point.g, point.s, point.a, point.c, scores, up, down)
    while not best.reaches(accuracy) and spent < budget:
        state = (point.y, point.a, point.c, scores, up, down)
        taken = _steps(*kernels, *state, _DUST * point.C, min(max(n // 2, 100), budget - spent))
        point.g, point.s = scores[0], -scores[1]
        spent += taken
        point.steps += taken
        found = point.solution()
        best = found if found.gap < best.gap else best
        if taken == 0:
            break
    return best


# --- compiled loops -------------------------------------------------------------------------------------------------
#
# Six kinds of steps. Of the first four, one sample rises and another falls, by the score of
#   0  v, with c in return (e stays)      score 0: g             1  c       score 1: -s
#   2  a of the negative class                                   3  a of the positive class     score 2: y g - s
# The last two trade:  4  a of both classes up, c down by both   5  the other way round.
# `up` is 0 where a sample may rise in a kind and -inf where not, `down` 0 where it may fall and inf where not.

_TINY = 1e-12


@njit(cache=True, nogil=True)
def _bar(y, a, c, k, up, down):
    """What sample k may do."""
    positive, some_a, some_c = y[k] > 0, a[k] > 0, c[k] > 0
    up[0, k] = 0.0 if (some_c if positive else some_a) else -np.inf
    down[0, k] = 0.0 if (some_a if positive else some_c) else np.inf
    up[1, k] = 0.0
    down[1, k] = 0.0 if some_c else np.inf
    own, other = (3, 2) if positive else (2, 3)
    up[own, k], up[other, k] = 0.0, -np.inf
    down[own, k], down[other, k] = 0.0 if some_a else np.inf, np.inf


@njit(cache=True, nogil=True)
def _start(y, g, s, a, c, scores, up, down):
    for k in range(len(y)):
        scores[0, k], scores[1, k], scores[2, k] = g[k], -s[k], y[k] * g[k] - s[k]
        _bar(y, a, c, k, up, down)


@njit(cache=True, nogil=True, fastmath=_FAST)
def _highest(score, up):
    """The sample with the largest score of those that may rise, or -1."""
    best = -np.inf
    for k in range(len(score)):
        best = _larger(score[k] + up[k], best)
    if best == -np.inf:
        return -1
    k = 0
    while score[k] + up[k] != best:
        k += 1
    return k


@njit(cache=True, nogil=True, fastmath=_FAST)
def _lowest(score, down):
    """The sample with the smallest score of those that may fall, or -1."""
    best = -np.inf
    for k in range(len(score)):
        best = _larger(-score[k] - down[k], best)
    if best == -np.inf:
        return -1
    k = 0
    while -score[k] - down[k] != best:
        k += 1
    return k


@njit(cache=True, nogil=True, fastmath=_FAST)
def _pair_gain(top, score, down, own, K_row, K_diagonal, K_part, G_row, G_diagonal, G_part, G_scale, k):
    """Twice what a pair gains: squared slope by curvature."""
    drop = _larger(top - score[k] - down[k], 0.0)
    curve = own + K_part * (K_diagonal[k] - 2.0 * K_row[k]) + G_part * (G_diagonal[k] - 2.0 * G_scale * G_row[k])
    return drop * drop / _larger(curve, _TINY)


@njit(cache=True, nogil=True, fastmath=_FAST)
def _partner(i, score, down, K_row, K_diagonal, K_part, G_row, G_diagonal, G_part, G_scale):
    """The sample that gains most by falling while sample i rises, or -1; the block it is in first, as fast loops go."""
    own = K_part * K_diagonal[i] + G_part * G_diagonal[i]
    best, where = 0.0, -1
    for start in range(0, len(score), _BLOCK):
        part, part_down = score[start : start + _BLOCK], down[start : start + _BLOCK]
        part_K, part_G = K_row[start : start + _BLOCK], G_row[start : start + _BLOCK]
        diagonal_K, diagonal_G = K_diagonal[start : start + _BLOCK], G_diagonal[start : start + _BLOCK]
        most = 0.0
        for k in range(len(part)):
            gain = _pair_gain(
                score[i], part, part_down, own, part_K, diagonal_K, K_part, part_G, diagonal_G, G_part, G_scale, k
            )
            most = _larger(gain, most)
        if most > best:
            best, where = most, start
    if where < 0:
        return -1
    pick, most = where, -1.0
    for k in range(where, min(where + _BLOCK, len(score))):
        gain = _pair_gain(score[i], score, down, own, K_row, K_diagonal, K_part, G_row, G_diagonal, G_part, G_scale, k)
        if gain > most:
            pick, most = k, gain
    return pick


@njit(cache=True, nogil=True)
def _propose(kind, K, G, K_diagonal, G_diagonal, lam, y, scores, down, high, low, samples, in_a, in_c):
    """Fill in the samples of a step of some kind and the directions of their a and c; how many samples, 0 if none.

    `high` and `low` are the samples that rise and fall first in the kinds of pairs.
    """
    if kind >= 4:
        rise = kind == 4
        samples[0], samples[1] = (high[2], high[3]) if rise else (low[2], low[3])
        samples[2] = low[1] if rise else high[1]
        for p in range(3):
            in_a[p], in_c[p] = 1.0 if rise else -1.0, 0.0
        in_a[2], in_c[2] = 0.0, -2.0 if rise else 2.0
        return 3 if min(samples[0], samples[1], samples[2]) >= 0 else 0
    i = high[kind]
    if i < 0:
        return 0
    K_part, G_part = 0.0 if kind == 1 else 1.0, 0.0 if kind == 0 else 1.0
    score = scores[min(kind, 2)]
    j = _partner(i, score, down[kind], K[i], K_diagonal, K_part, G[i], G_diagonal, G_part, 1.0 / lam)
    if j < 0:
        return 0
    samples[0], samples[1] = i, j
    for p in range(2):
        sign = 1.0 - 2.0 * p
        if kind == 0:
            in_a[p], in_c[p] = sign * y[samples[p]], -sign * y[samples[p]]
        else:
            in_a[p], in_c[p] = (0.0, sign) if kind == 1 else (sign, 0.0)
    return 2


@njit(cache=True, nogil=True)
def _length_and_gain(count, K, G, lam, y, a, c, scores, samples, in_a, in_c):
    """How far to go in a direction, to its maximum or to the first bound, and what that gains."""
    slope, curve, room = 0.0, 0.0, np.inf
    for p in range(count):
        i = samples[p]
        slope += in_a[p] * scores[2, i] + in_c[p] * scores[1, i]
        if in_a[p] < 0:
            room = min(room, -a[i] / in_a[p])
        if in_c[p] < 0:
            room = min(room, -c[i] / in_c[p])
        for q in range(count):
            j = samples[q]
            curve += in_a[p] * in_a[q] * y[i] * y[j] * K[i, j]
            curve += (in_a[p] + in_c[p]) * (in_a[q] + in_c[q]) * G[i, j] / lam
    if slope <= 0:
        return 0.0, 0.0
    t = min(slope / max(curve, _TINY), room)
    return t, t * (slope - 0.5 * t * curve)


@njit(cache=True, nogil=True, fastmath=_FAST)
def _add_row(out, t, row):
    for k in range(len(out)):
        out[k] += t * row[k]


@njit(cache=True, nogil=True, fastmath=_FAST)
def _steps(K, G, K_diagonal, G_diagonal, lam, y, a, c, scores, up, down, dust, budget):
    """Up to `budget` steps, in place; how many were taken."""
    samples, in_a, in_c = np.empty((6, 3), np.int64), np.empty((6, 3)), np.empty((6, 3))
    high, low = np.empty(4, np.int64), np.empty(4, np.int64)
    for step in range(budget):
        for kind in range(4):
            high[kind] = _highest(scores[min(kind, 2)], up[kind])
            low[kind] = _lowest(scores[min(kind, 2)], down[kind])
        best, chosen, most, length = -1, 0, 0.0, 0.0
        for kind in range(6):
            moved = samples[kind], in_a[kind], in_c[kind]
            count = _propose(kind, K, G, K_diagonal, G_diagonal, lam, y, scores, down, high, low, *moved)
            if count:
                t, gain = _length_and_gain(count, K, G, lam, y, a, c, scores, *moved)
                if gain > most:
                    best, chosen, most, length = kind, count, gain, t
        if best < 0:
            return step
        for p in range(chosen):
            i, da, dc = samples[best, p], length * in_a[best, p], length * in_c[best, p]
            a[i] = a[i] + da if a[i] + da > dust else 0.0
            c[i] = c[i] + dc if c[i] + dc > dust else 0.0
            _bar(y, a, c, i, up, down)
            if da != 0:
                _add_row(scores[0], -y[i] * da, K[i])
            if da + dc != 0:
                _add_row(scores[1], -(da + dc) / lam, G[i])
        for k in range(len(y)):
            scores[2, k] = y[k] * scores[0, k] + scores[1, k]
    return budget
