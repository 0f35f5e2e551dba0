"""Support vector machine with the squared hinge loss and two weights a sample, one for each label it may have.

min  1/2 |f|^2 + sum_i w+_i max(0, 1 - f_i)^2 + w-_i max(0, 1 + f_i)^2                    f_i = f(x_i) + b
max  sum_i a+_i + a-_i - a+_i^2 / (4 w+_i) - a-_i^2 / (4 w-_i) - 1/2 v'Kv                 v = a+ - a-
     over a+, a- >= 0   [1'v = 0 with a bias]

A sample of known label has one of the two weights. Where labels are guesses it has both, in proportion to what is
believed, and still takes one row only. If all have one, the dual is that of a hard-margin machine on K + diag(1 / 2w),
which coordinate steps solve (``decomposition.py``). Else, and to finish, there is Newton's method for the primal, which
is piecewise quadratic: with W the sum of the weights whose loss is active and t their mean label, on the samples S
where W > 0,

    (K_SS + diag(1 / 2W)) v_S + b = t_S            [1'v_S = 0]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.linalg import cho_solve, solve_triangular

from .._validation import check_cost
from .base import Array, Machine, Products, Solution, Values
from .decomposition import NO_NANS, coordinate_steps, copy_block
from .hinge_losses import asked_duals, best_values, second_derivatives, without_dust
from .newton import Bend, Factor, Move, add_rows, lower_factor, newton_move
from .svm import SVM

#: Newton steps after which a solve goes on with exact ones, or another way; ten are many.
_MAX_STEPS = 100
#: Factor by which weights rise between exact solves, and the gap of those on the way.
_RISE, _ROUGHLY = 10.0, 1e-3
#: Coordinate steps leave the rest to Newton's method at this relative gap, or after so many steps a sample.
_FINE, _COORDINATE_STEPS = 1e-7, 100
#: Steps of a solve, roughly: samples without weight are left out where that saves more than copying the others costs.
_USUAL_STEPS = 1000
#: Differences of primal values below this share are rounding.
_ROUNDING = 1e-14
#: Times a step is halved before there is nothing left to gain but rounding.
_HALVINGS = 25
#: A factorisation costs as much as n_active^2 / (12 * (n_active + n_samples)) products and back-substitutions.
_ITERATIONS_A_FACTOR = 12
#: Iterations that even a fresh factor would need at the next step.
_CHEAP = 5


@dataclass
class Point(Values):
    """Where a solve ended; a start for the next one on the same kernel.

    Attributes
    ----------
    coef : array of shape (n_samples,)
        Signed duals v, feasible.
    intercept : float
    fitted : array of shape (n_samples,)
        ``K @ coef``.
    linear, loss, quadratic : float
        As in :class:`Solution`.
    steps : int
        Newton steps and coordinate steps.
    factor : Factor, optional
        The last one that was computed, of these or earlier weights.
    """

    coef: Array
    intercept: float
    fitted: Array
    linear: float
    loss: float
    quadratic: float
    steps: int = 0
    factor: Factor | None = field(default=None, repr=False)

    @property
    def scores(self) -> Array:
        """Decision values of the samples, shape (n_samples,)."""
        return self.fitted + self.intercept

    def within(self, accuracy: float) -> bool:
        """Whether the gap is this small beside the value. Rounding may make it negative, but not by more."""
        return abs(self.gap) <= accuracy * abs(self.primal)


def nearer(one: Point, other: Point) -> Point:
    """Of two feasible points the one with the smaller gap."""
    return other if abs(other.gap) < abs(one.gap) else one


class WeightedProblem:
    """One kernel, to be solved for many choices of weights.

    Parameters
    ----------
    K : array of shape (n_samples, n_samples), float32 or float64
        Symmetric and positive semi-definite; must not change while the object is in use.
    fit_intercept : bool

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.machines.squared_hinge import WeightedProblem
    >>> X = np.array([[-2.0], [-1.0], [1.0], [2.0]])
    >>> problem = WeightedProblem(X @ X.T)
    >>> sure = problem.solve(np.array([0.0, 0, 1, 1]), np.array([1.0, 1, 0, 0]))
    >>> unsure = problem.solve(np.array([0.0, 0.5, 1, 1]), np.array([1.0, 0.5, 0, 0]), start=sure)
    >>> sure.gap < 1e-8, unsure.primal > sure.primal
    (True, True)
    """

    def __init__(self, K: NDArray, fit_intercept: bool = True) -> None:
        self.K = np.ascontiguousarray(K)
        self.fit_intercept = fit_intercept
        self._copied: tuple[NDArray[np.intp], NDArray] | None = None  # samples, and their kernel plus a ridge
        self._is_hopeless = (
            False  # whether rising weights did not help once: costs are too large for the precision of K
        )

    def solve(self, w_plus: Array, w_minus: Array, start: Point | None = None, accuracy: float = 1e-9) -> Point:
        """Solve for one choice of weights.

        Parameters
        ----------
        w_plus, w_minus : arrays of shape (n_samples,)
            Cost of not being positive, and of not being negative; none below zero.
        start : Point, optional
            An earlier solution for this kernel.
        accuracy : float
            Largest allowed duality gap, relative to the primal value.
        """
        w_plus, w_minus = without_dust(w_plus, w_minus)
        here = self.start(np.zeros(len(self.K))) if start is None else start
        here = self._point(here.coef, here.fitted, here.intercept, w_plus, w_minus)
        factor = None if start is None else start.factor
        best, steps = self._feasible(here, w_plus, w_minus), 0
        if not best.within(accuracy) and not np.any((w_plus > 0) & (w_minus > 0)):
            here, steps = self._decompose(best, w_plus, w_minus, accuracy)
            best = self._feasible(here, w_plus, w_minus)
        if not best.within(accuracy):
            best, factor, more = self._newton_steps(here, best, factor, w_plus, w_minus, accuracy)
            steps += more
        if not best.within(accuracy):
            best, more = self._exact_steps(best, w_plus, w_minus, accuracy)
            steps += more
        return replace(best, steps=steps, factor=factor)

    def certify(self, here: Point, w_plus: Array, w_minus: Array) -> Point:
        """The duals that the scores of a point ask for, made feasible, and the values for these weights.

        They are those of the point where it is a solution. Where it nearly is, duals of tiny weights may still be many
        times what they should be, which costs more of the dual value than they are worth.
        """
        w_plus, w_minus = without_dust(w_plus, w_minus)
        coef = asked_duals(here.scores, w_plus, w_minus)
        asked = self.start(coef, here.intercept)
        known = self._point(coef, asked.fitted, here.intercept, w_plus, w_minus)
        return replace(self._feasible(known, w_plus, w_minus), factor=here.factor)

    def start(self, coef: Array, intercept: float = 0.0) -> Point:
        """Any duals, of another kernel perhaps, as a start."""
        rows = np.flatnonzero(coef)
        return Point(coef, intercept, self.product(rows, coef[rows]), 0.0, 0.0, 0.0)

    def product(self, rows: NDArray[np.intp], x: Array) -> Array:
        """``K[:, rows] @ x`` in double precision."""
        out = np.zeros(len(self.K))
        add_rows(self.K, rows, x, out)
        return out

    # -- decomposition --------------------------------------------------------------------------------------------

    def _decompose(self, here: Point, w_plus: Array, w_minus: Array, accuracy: float) -> tuple[Point, int]:
        """Coordinate steps from a feasible point where every sample has one label only; and how many they were.

        Then this is a hard-margin machine on ``K + diag(1 / 2w)``.
        """
        n, rows = len(w_plus), np.flatnonzero(w_plus + w_minus)
        if len(rows) ** 2 > _USUAL_STEPS * (n - len(rows)):
            rows = np.arange(n)
        coef, fitted, goal = here.coef.copy(), here.fitted.copy(), max(accuracy, _FINE)
        rows, block = self._block(rows)
        b, steps = _coordinate_rounds(
            self.K, rows, block, w_plus, w_minus, coef, fitted, self.fit_intercept, here.intercept, goal
        )
        return self._point(coef, fitted, b, w_plus, w_minus), steps

    def _block(self, rows: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray]:
        """Some samples, in any order, and a copy of their kernel in that order, whose diagonal may have changed since.

        Of as many samples as last time only those that are new are copied: one witness for another is two rows.
        """
        if self._copied is None or len(rows) != len(self._copied[0]):
            self._copied = rows, np.empty((len(rows), len(rows)), dtype=self.K.dtype)
            copy_block(self.K, *self._copied)
        else:
            _exchange(self.K, rows, *self._copied)
        return self._copied

    # -- Newton's method ------------------------------------------------------------------------------------------

    def _newton_steps(
        self, here: Point, best: Point, factor: Factor | None, w_plus: Array, w_minus: Array, accuracy: float
    ) -> tuple[Point, Factor | None, int]:
        """Steps that are solved roughly, by conjugate gradients, from a point and the best feasible one so far.

        Returns the best feasible point, the last factor, and how many steps they were.
        """
        steps = 0
        while steps < _MAX_STEPS and not best.within(accuracy):
            steps += 1
            bend = Bend.diagonal(second_derivatives(here.scores, w_plus, w_minus))
            residual = asked_duals(here.scores, w_plus, w_minus) - here.coef
            enough, old, before = 0.01 * accuracy * abs(here.primal), factor, abs(best.gap)
            move, factor = self.newton(residual, bend, factor, enough)
            reached = self._along(here, move, w_plus, w_minus)
            if reached is None and factor is old:  # too rough a step: one with a factor of this point
                move, factor = self.newton(residual, bend, None, enough)
                reached = self._along(here, move, w_plus, w_minus)
            if reached is None:
                break
            rounded, here = reached.primal >= here.primal, reached
            best = nearer(best, self._feasible(here, w_plus, w_minus))
            if abs(best.gap) <= 0.5 * before:
                continue
            if rounded:
                break
            if factor is old:  # Newton's method does better: the factor is in the way
                factor = None
        return best, factor, steps

    def _exact_steps(self, best: Point, w_plus: Array, w_minus: Array, accuracy: float) -> tuple[Point, int]:
        """Exact steps from zero, and if they do not arrive for weights that rise to these: slow, but nearly sure.

        Returns the best feasible point, and how many steps they were.
        """
        size = float((w_plus + w_minus).max() * self.K.diagonal().mean())
        rising = _RISE ** -np.arange(max(np.log(max(size, 1.0)) / np.log(_RISE), 0.0))[::-1]
        zeros, total = np.zeros(len(self.K)), 0
        nothing = self._point(zeros, zeros, best.intercept, w_plus, w_minus)
        best = nearer(best, nothing)
        for scales in (np.ones(1), np.empty(0) if self._is_hopeless else rising):
            here = nothing
            for scale in scales if not best.within(accuracy) else ():
                plus, minus = scale * w_plus, scale * w_minus
                here = self._point(here.coef, here.fitted, here.intercept, plus, minus)
                here, reached, steps = self._exactly(here, plus, minus, max(accuracy, _ROUGHLY * (scale < 1)))
                best, total = nearer(best, reached) if scale == 1 else best, total + steps
        self._is_hopeless = self._is_hopeless or not best.within(accuracy)
        return best, total

    def _exactly(self, here: Point, w_plus: Array, w_minus: Array, accuracy: float) -> tuple[Point, Point, int]:
        """Newton's method, each step an exact one that aims at the optimum of the losses that are active before it.

        Near the end rounding may hide that a step gains something, but not that its gap is smaller. Returns where the
        steps end, the best feasible point, and how many they were.
        """
        best, steps = self._feasible(here, w_plus, w_minus), 0
        while steps < _MAX_STEPS and not best.within(accuracy):
            aim, before, steps = self._aim(here, w_plus, w_minus), abs(best.gap), steps + 1
            best = nearer(best, self._feasible(aim, w_plus, w_minus))
            way = Move(aim.coef - here.coef, aim.intercept - here.intercept, aim.fitted - here.fitted, 0, True)
            reached = self._along(here, way, w_plus, w_minus)
            if reached is None and abs(best.gap) > 0.5 * before:
                break
            here = aim if reached is None else reached
        return here, best, steps

    def _aim(self, here: Point, w_plus: Array, w_minus: Array) -> Point:
        """The optimum if the losses that are active at a point were those that count, wherever they lead."""
        bend = second_derivatives(here.scores, w_plus, w_minus)
        active, coef, b = np.flatnonzero(bend), np.zeros(len(bend)), here.intercept
        if len(active):
            labels = (asked_duals(here.scores, w_plus, w_minus) + bend * here.scores)[active] / bend[active]
            lower, _ = lower_factor(self.K, active, 1 / bend[active], np.float64)
            sides = np.stack([labels, np.ones(len(active))], axis=1)
            duals, ones = cho_solve((lower, True), sides, check_finite=False).T
            if self.fit_intercept:
                b = duals.sum() / ones.sum()
                duals = duals - b * ones
                duals -= duals.sum() / ones.sum() * ones  # once more for the rounding
            coef[active] = duals
        return self._point(coef, self.start(coef).fitted, b, w_plus, w_minus)

    def newton(self, residual: Array, bend: Bend, factor: Factor | None, enough: float) -> tuple[Move, Factor]:
        """A Newton step, and the factor it used: the old one, until the iterations it cost are worth a new one.

        Parameters
        ----------
        residual : array of shape (n_samples,)
            The duals plus the gradient of the loss, negated.
        bend : Bend
            Second derivatives of the loss.
        factor : Factor, optional
        enough : float
            What need not be gained.
        """
        active = np.count_nonzero(bend.bound)
        if factor is None or factor.spent >= active**2 / (_ITERATIONS_A_FACTOR * (active + len(residual))):
            factor = Factor.at(self.K, bend.bound)
        move = newton_move(self.K, residual, bend, factor, self.fit_intercept, enough)
        factor.spent += max(move.iterations - _CHEAP, 0)
        return move, factor

    def _along(self, here: Point, move: Move, w_plus: Array, w_minus: Array) -> Point | None:
        """The full step if it lowers the primal value, else a shorter one; None if none does.

        Any decrease will do: the best part of a step ends at a kink of the loss, and from kink to kink the way is long.
        Where all that is left is rounding of the primal value, a full step may still close the gap.
        """
        slack, share = _ROUNDING * abs(here.primal), 1.0
        for _ in range(_HALVINGS):
            v, fitted = here.coef + share * move.coef, here.fitted + share * move.fitted
            reached = self._point(v, fitted, here.intercept + share * move.intercept, w_plus, w_minus)
            if reached.primal < here.primal + slack:
                return reached
            share, slack = 0.5 * share, 0.0
        return None

    def _point(self, v: Array, fitted: Array, intercept: float, w_plus: Array, w_minus: Array) -> Point:
        intercept, *values = best_values(v, fitted, w_plus, w_minus, self.fit_intercept, intercept)
        return Point(v, intercept, fitted, *values)

    def _feasible(self, here: Point, w_plus: Array, w_minus: Array) -> Point:
        """The point with its duals on the right side of zero and summing to zero, by changes of few of them.

        A sample without one of its weights cannot pull that way.
        """
        v = here.coef
        if _is_feasible(v, w_plus, w_minus, self.fit_intercept):
            return here
        fixed = _made_feasible(v, w_plus, w_minus, self.fit_intercept)
        changed = np.flatnonzero(fixed != v)
        fitted = here.fitted + self.product(changed, (fixed - v)[changed])
        return self._point(fixed, fitted, here.intercept, w_plus, w_minus)


@dataclass
class SquaredHinge(Machine):
    """Support vector machine with the squared hinge loss, with or without a bias.

    Parameters
    ----------
    C : float
        Weight of a squared margin error (there is no factor of one half).
    fit_intercept : bool
    sample_weight : array of shape (n_samples,), optional
        Multiplies C sample by sample; a weight of zero leaves the sample out.
    class_weight : mapping with the keys -1 and 1, "balanced" or None
        Multiplies C by side of each label column.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.machines import SquaredHinge
    >>> X = np.array([[0.0], [1.0], [3.0], [4.0]])
    >>> solution = SquaredHinge(C=1e6).solve(X @ X.T, np.array([[-1.0], [-1.0], [1.0], [1.0]]), accuracy=1e-9)
    >>> round(float(solution.intercept[0]), 4), round(solution.primal, 4)
    (-2.0, 0.5)
    """

    C: float = 1.0
    fit_intercept: bool = True
    sample_weight: Array | None = None
    class_weight: Mapping[int, float] | str | None = None

    def __post_init__(self) -> None:
        check_cost("C", self.C, "it is the cost of a margin error")

    def weights(self, y: Array) -> tuple[Array, Array]:
        """The weights w+ and w- of the samples of one label column, each of shape (n_samples,)."""
        costs = SVM(self.C, self.fit_intercept, self.sample_weight, self.class_weight)._costs(y)
        return np.where(y > 0, costs, 0.0), np.where(y < 0, costs, 0.0)

    def solve(self, K: NDArray, Y: Array, start: Solution | None = None, accuracy: float = 1e-3) -> Solution:
        """See :meth:`Machine.solve`."""
        weights = [self.weights(y) for y in Y.T]
        return self.solve_weighted(
            K, np.stack([w for w, _ in weights], axis=1), np.stack([w for _, w in weights], axis=1), start, accuracy
        )

    def solve_weighted(
        self, K: NDArray, w_plus: Array, w_minus: Array, start: Solution | None = None, accuracy: float = 1e-3
    ) -> Solution:
        """Solve with weights for both labels of every sample, each of shape (n_samples, n_tasks); C has no part in it.

        For many solves on one kernel, :class:`WeightedProblem` remembers more.
        """
        problem = WeightedProblem(K, self.fit_intercept)
        points = []
        for k in range(w_plus.shape[1]):
            begin = None if start is None else problem.start(start.coef[:, k].copy(), float(start.intercept[k]))
            points.append(problem.solve(w_plus[:, k], w_minus[:, k], begin, accuracy))
        return Solution(
            coef=np.stack([point.coef for point in points], axis=1),
            intercept=np.array([point.intercept for point in points]),
            linear=sum(point.linear for point in points),
            loss=sum(point.loss for point in points),
            quadratic=sum(point.quadratic for point in points),
            steps=sum(point.steps for point in points),
        )

    def curvature(self, K: NDArray, Y: Array, solution: Solution, bank: Products) -> Array:
        """See :meth:`Machine.curvature`. Samples that err or lie within the margin respond to the weights."""
        H = np.zeros((bank.n_kernels, bank.n_kernels))
        for y, v in zip(Y.T, solution.coef.T, strict=True):
            w_plus, w_minus = self.weights(y)
            active = np.flatnonzero(v)
            if len(active) == 0:
                continue
            lower, _ = lower_factor(K, active, 0.5 / (w_plus + w_minus)[active], np.float64)
            ones = np.ones((1, len(active)))[: int(self.fit_intercept)]
            R = np.vstack([bank.products(v, active), ones])
            half = solve_triangular(lower, R.T, lower=True, check_finite=False)
            products = half.T @ half
            H += products[: len(H), : len(H)]
            if self.fit_intercept:
                held = products[-1, :-1]
                H -= np.outer(held, held) / products[-1, -1]
        return H

    def restrict(self, samples: NDArray[np.intp]) -> SquaredHinge:
        """See :meth:`Machine.restrict`."""
        return self if self.sample_weight is None else replace(self, sample_weight=self.sample_weight[samples])


# --- compiled loops -------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _exchange(K, wanted, samples, block):
    """Make ``block = K[samples][:, samples]`` that of as many other samples: who is new takes the place of who left."""
    stays, there = np.zeros(len(K), dtype=np.bool_), np.zeros(len(K), dtype=np.bool_)
    stays[wanted], there[samples] = True, True
    places = np.flatnonzero(~stays[samples])
    samples[places] = wanted[~there[wanted]]
    for place in places:
        row = K[samples[place]]
        for b in range(len(samples)):
            block[place, b] = row[samples[b]]
    for b in range(len(samples)):
        row = K[samples[b]]
        for place in places:
            block[b, place] = row[samples[place]]


@njit(cache=True, nogil=True, fastmath=NO_NANS)
def _coordinate_rounds(K, rows, block, w_plus, w_minus, coef, fitted, fit_intercept, b, accuracy):
    """Rounds of steps on the duals of some samples until the gap is small beside the value; returns bias and steps.

    With a sign y and a ridge ``1 / 2w`` a sample the gradient is ``g = y - K v - ridge * v``, which tells K v without
    a product. Between rounds the gap is that of the squared hinge, which the hard margin's own overstates.
    """
    n = len(rows)
    v, g, inner = np.empty(n), np.empty(n), np.empty(n)
    y, ridge, diagonal = np.zeros(n), np.empty(n), np.empty(n)
    lower, upper = np.zeros(n), np.zeros(n)
    plus, minus = w_plus[rows], w_minus[rows]
    for j in range(n):
        i = rows[j]
        if plus[j] > 0:
            y[j], upper[j] = 1.0, np.inf
        elif minus[j] > 0:
            y[j], lower[j] = -1.0, -np.inf
        own = np.float64(K[i, i])
        block[j, j] = own + (0.5 / (plus[j] + minus[j]) if y[j] != 0 else 1.0)
        diagonal[j] = block[j, j]  # rounded to the precision of the kernel, and with it the ridge
        ridge[j], v[j] = diagonal[j] - own, coef[i]
        g[j] = y[j] - fitted[i] - ridge[j] * v[j]
    groups = np.ones((1 if fit_intercept else 0, n), dtype=np.bool_)
    steps, between, budget = 0, max(n // 8, 50), _COORDINATE_STEPS * n
    while True:
        taken = coordinate_steps(block, diagonal, v, g, lower, upper, groups, between)
        steps += taken
        for j in range(n):
            inner[j] = y[j] - g[j] - ridge[j] * v[j]
        b, linear, loss, quadratic = best_values(v, inner, plus, minus, fit_intercept, b)
        gap = quadratic + loss - (linear - quadratic)
        if gap <= accuracy * (quadratic + loss) or taken == 0 or steps >= budget:
            break
    if n < len(coef):
        moved = np.flatnonzero(v != coef[rows])
        add_rows(K, rows[moved], v[moved] - coef[rows[moved]], fitted)
    coef[rows] = v
    fitted[rows] = inner
    return b, steps


@njit(cache=True, nogil=True)
def _made_feasible(v, w_plus, w_minus, balanced):
    """Duals without those on the wrong side of zero; if they are to sum to zero, one or few of them change for it.

    The excess goes to the sample with most room for it, of both weights or on the side where it is, or if none has
    enough it shrinks the heavier side.
    """
    fixed, excess = v.copy(), 0.0
    for i in range(len(v)):
        if (v[i] > 0 and w_plus[i] == 0) or (v[i] < 0 and w_minus[i] == 0):
            fixed[i] = 0.0
        excess += fixed[i]
    if not balanced:
        return fixed
    best, most, heavy = 0, -1.0, 0.0
    for i in range(len(v)):
        moved, room = fixed[i] - excess, min(w_plus[i], w_minus[i])
        if moved * fixed[i] > 0:
            room = max(room, min(abs(fixed[i]), abs(moved)))
        if room > most:
            best, most = i, room
        if fixed[i] * excess > 0:
            heavy += fixed[i]
    if most >= abs(excess):
        fixed[best] -= excess
        fixed[best] -= np.sum(fixed)  # once more for the rounding
    elif heavy != 0:
        for i in range(len(v)):
            if fixed[i] * excess > 0:
                fixed[i] *= 1 - excess / heavy
    return fixed


@njit(cache=True, nogil=True)
def _is_feasible(v, w_plus, w_minus, balanced):
    total, size = 0.0, 0.0
    for i in range(len(v)):
        if (v[i] > 0 and w_plus[i] == 0) or (v[i] < 0 and w_minus[i] == 0):
            return False
        total += v[i]
        size += abs(v[i])
    return not balanced or abs(total) <= 1e-13 * size
