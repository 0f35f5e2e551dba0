"""What is hidden in bags of known label: the labels of instances, or the witness of each positive bag.

Both are choices that annealing replaces by probabilities p. Here are what p means for a machine, the best p for given
scores, at a temperature or without one, and how the free energy bends in the scores where p follows them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ..machines.hinge_losses import second_derivatives
from ..machines.newton import Bend
from ..machines.squared_hinge import Point, WeightedProblem
from .bags import Bags

Array = NDArray[np.float64]

#: Bags that expect no more than one positive, up to this, are held there.
_ONE = 1e-9
#: A temperature, in units of C, at which nothing but equal losses is undecided; probabilities that differ by less than
#: this from what they are there are not undecided because it is hot.
_COLD, _DECIDED = 1e-12, 0.25


class Hidden(ABC):
    """What is hidden in bags of known label: probabilities p of the instances, and what they mean for a machine.

    Parameters
    ----------
    bags : Bags
    positive : array of bool of shape (n_bags,)
    C : float
    weights : tuple of two floats
        Multiplies C for positives and for negatives.
    bag_weight : array of shape (n_bags,), optional
        Multiplies everything that a bag adds to the objective.
    """

    def __init__(
        self,
        bags: Bags,
        positive: NDArray[np.bool_],
        C: float = 1.0,
        weights: tuple[float, float] = (1.0, 1.0),
        bag_weight: Array | None = None,
    ) -> None:
        self.bags, self.positive, self.C = bags, positive, float(C)
        each = np.ones(len(bags)) if bag_weight is None else bag_weight
        self.rows = bags.rows(np.flatnonzero(positive))  # of positive bags, one bag after the other
        self.ends = np.cumsum(bags.sizes[positive])
        self.starts = self.ends - bags.sizes[positive]
        self.negative_rows = np.flatnonzero(~positive[bags.bag_of])
        self.bag_weight = each[positive]
        self._row_weight = each[bags.bag_of[self.rows]]
        self._costs = self.C * weights[0], self.C * weights[1]
        self.cost_plus, self.cost_minus = (cost * each[bags.bag_of] for cost in self._costs)

    def losses(self, f: Array) -> tuple[Array, Array]:
        """Costs of the instances of positive bags, were they positive, and were they negative, at scores f."""
        return _losses(f, self.rows, *self._costs)

    def spread(self, values: Array) -> Array:
        """Values of the instances of positive bags at their rows, zero elsewhere: shape (n_instances,)."""
        p = np.zeros(self.bags.n_instances)
        p[self.rows] = values
        return p

    @abstractmethod
    def start(self) -> Array:
        """The probabilities of largest entropy, shape (n_instances,)."""

    @abstractmethod
    def weights(self, p: Array) -> tuple[Array, Array]:
        """Weights of the machine, w+ and w-, each of shape (n_instances,)."""

    @abstractmethod
    def probabilities(self, f: Array, T: float) -> Array:
        """The best p at scores f and temperature T."""

    @abstractmethod
    def choice(self, f: Array) -> Array:
        """The best p of zeros and ones at scores f."""

    @abstractmethod
    def entropy(self, p: Array) -> Array:
        """Entropies of the positive bags, in nats."""

    def settled(self, p: Array, f: Array, stayed: bool, entropy: float) -> bool:
        """Whether cooling has nothing left to decide: p stays, and would in the cold.

        Its entropy need not vanish: several instances of the same loss stay witnesses, and a balance may split a label.
        Where it is so hot that nothing is decided p stays, too, but far from what it would be in the cold.

        Parameters
        ----------
        p, f : arrays of shape (n_instances,)
            Probabilities and scores at the end of a temperature.
        stayed : bool
            Whether p is that of the last temperature.
        entropy : float
            What counts as none.
        """
        return stayed and float(np.abs(self.probabilities(f, _COLD * self.C) - p).max()) < _DECIDED

    def highest(self, f: Array) -> NDArray[np.intp]:
        """Rows of the instances of highest score, one a positive bag."""
        return _highest(f, self.rows, self.starts, self.ends)

    def penalty(self, p: Array) -> float:
        """What the objective has beside the machine's."""
        return 0.0

    def free_energy(self, point: Point, p: Array, T: float) -> float:
        """What annealing minimises at a temperature."""
        return point.primal + self.penalty(p) - T * float(self.bag_weight @ self.entropy(p))

    def bend(self, f: Array, p: Array, T: float, w_plus: Array, w_minus: Array) -> Bend:
        """Second derivatives of the free energy in the scores f, where p follows them.

        Where p stays they are twice the weights of active losses. As p follows a rising loss down, they are less: with
        the slope s of the loss in p, and q, what p responds to a push by, by the rank-one terms and diagonal of
        ``q s^2 - strength (q s)(q s)'``.
        """
        bound = second_derivatives(f, w_plus, w_minus)
        slope, response, strength = self._response(f[self.rows], p[self.rows], T)
        along = np.where(bound[self.rows] > 0, slope * response, 0.0)
        own = bound.copy()
        own[self.rows] -= self._row_weight * slope * along
        return Bend(bound, own, self.spread(along), self.bag_weight * strength, self.rows, self.starts, self.ends)

    @abstractmethod
    def _response(self, f: Array, p: Array, T: float) -> tuple[Array, Array, Array]:
        """Of instances of positive bags, the slope of the loss in p and the response of p; of bags, the strength."""


class InstanceLabels(Hidden):
    """Every instance has a label, and each positive bag a positive instance; p is the probability to be positive.

    Parameters
    ----------
    bags, positive, C, weights, bag_weight : as in :class:`Hidden`
    D : float
        Cost of the squared difference between the number of positives in a positive bag and its target.
    positive_fraction : float
        The target, as a share of the bag.
    """

    def __init__(
        self,
        bags: Bags,
        positive: NDArray[np.bool_],
        C: float = 1.0,
        weights: tuple[float, float] = (1.0, 1.0),
        bag_weight: Array | None = None,
        D: float = 0.0,
        positive_fraction: float = 0.5,
    ) -> None:
        super().__init__(bags, positive, C, weights, bag_weight)
        self.D, self.positive_fraction = float(D), float(positive_fraction)

    def start(self) -> Array:
        return self.spread(np.where(np.repeat(self.ends - self.starts, self.ends - self.starts) == 1, 1.0, 0.5))

    def all_positive(self) -> Array:
        """Every instance has the label of its bag."""
        return self.spread(np.ones(len(self.rows)))

    def weights(self, p: Array) -> tuple[Array, Array]:
        return self.cost_plus * p, self.cost_minus * (1 - p)

    def probabilities(self, f: Array, T: float) -> Array:
        plus, minus = self.losses(f)
        p = np.empty(len(self.rows))
        _label_probabilities((minus - plus) / T, self.starts, self.ends, self.D / T, self.positive_fraction, p)
        return self.spread(p)

    def _response(self, f: Array, p: Array, T: float) -> tuple[Array, Array, Array]:
        """The strength is that of the balance, or where one positive is left, what keeps it one."""
        return _label_response(f, p, T, *self._costs, self.D, self.starts, self.ends)

    def choice(self, f: Array) -> Array:
        plus, minus = self.losses(f)
        p = np.empty(len(self.rows))
        _best_labels(plus - minus, self.starts, self.ends, self.D, self.positive_fraction, p)
        return self.spread(p)

    def entropy(self, p: Array) -> Array:
        return _label_entropies(p, self.rows, self.starts, self.ends)

    def settled(self, p: Array, f: Array, stayed: bool, entropy: float) -> bool:
        return float(self.entropy(p).sum()) <= entropy or super().settled(p, f, stayed, entropy)

    def penalty(self, p: Array) -> float:
        if self.D == 0:
            return 0.0
        excess = np.add.reduceat(p[self.rows], self.starts) - (self.ends - self.starts) * self.positive_fraction
        return self.D * float(self.bag_weight @ excess**2)


class Witnesses(Hidden):
    """One instance of each positive bag explains its label, the others do not count; p is the probability to be it."""

    def start(self) -> Array:
        sizes = self.ends - self.starts
        return self.spread(np.repeat(1 / sizes, sizes))

    def weights(self, p: Array) -> tuple[Array, Array]:
        return self.cost_plus * p, self._w_minus

    @cached_property
    def _w_minus(self) -> Array:
        return np.where(self.positive[self.bags.bag_of], 0.0, self.cost_minus)

    def probabilities(self, f: Array, T: float) -> Array:
        p = np.zeros(len(f))
        _witness_probabilities(f, self._costs[0] / T, self.rows, self.starts, self.ends, p)
        return p

    def _response(self, f: Array, p: Array, T: float) -> tuple[Array, Array, Array]:
        return -2 * self._costs[0] * np.maximum(0, 1 - f), p / T, np.full(len(self.starts), T)

    def choice(self, f: Array) -> Array:
        p = np.zeros(len(self.bags.bag_of))
        p[self.highest(f)] = 1.0
        return p

    def entropy(self, p: Array) -> Array:
        return _entropies(p, self.rows, self.starts, self.ends)

    def objective(self, point: Point) -> float:
        """The objective at the best witnesses of a solution."""
        plus, _ = self.losses(point.scores)
        negatives = np.maximum(0, 1 + point.scores[self.negative_rows]) ** 2
        loss = self.bag_weight @ np.minimum.reduceat(plus, self.starts)
        return point.quadratic + float(loss + self.cost_minus[self.negative_rows] @ negatives)

    def mean_scores(self, problem: WeightedProblem, accuracy: float) -> Array:
        """Scores of the instances by a machine that sees every positive bag as the mean of its instances.

        The mean is taken where the kernel is an inner product, so that no other kernel values are needed.
        """
        between = self._pooled(problem.K)
        means = np.repeat([True, False], [len(self.starts), len(self.negative_rows)])
        plus, minus = np.zeros(len(means)), np.zeros(len(means))
        plus[means], minus[~means] = self.cost_plus[self.rows[self.starts]], self.cost_minus[self.negative_rows]
        point = WeightedProblem(self._pooled(between.T), problem.fit_intercept).solve(plus, minus, accuracy=accuracy)
        return point.coef @ between + point.intercept

    def _pooled(self, rows: NDArray) -> NDArray:
        """Mean rows of positive bags, then the rows of negative instances."""
        sizes = (self.ends - self.starts).astype(rows.dtype)
        return np.vstack([np.add.reduceat(rows[self.rows], self.starts) / sizes[:, None], rows[self.negative_rows]])


# --- compiled loops -------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _highest(f, rows, starts, ends):
    """Row of the largest f of each bag, the first of several."""
    best = np.empty(len(starts), dtype=np.intp)
    for bag in range(len(starts)):
        here = rows[starts[bag] : ends[bag]]
        best[bag] = here[0]
        for i in here:
            if f[i] > f[best[bag]]:
                best[bag] = i
    return best


@njit(cache=True, nogil=True)
def _losses(f, rows, cost_plus, cost_minus):
    """Squared hinge losses of some rows, were they positive, and were they negative."""
    plus, minus = np.empty(len(rows)), np.empty(len(rows))
    for j in range(len(rows)):
        plus[j] = cost_plus * max(0.0, 1 - f[rows[j]]) ** 2
        minus[j] = cost_minus * max(0.0, 1 + f[rows[j]]) ** 2
    return plus, minus


@njit(cache=True, nogil=True)
def _label_response(f, p, T, cost_plus, cost_minus, D, starts, ends):
    """Slopes of the losses in p, responses of p, and of each bag the strength of what binds its p together."""
    slope, response, strength = np.empty(len(f)), np.empty(len(f)), np.empty(len(starts))
    for bag in range(len(starts)):
        expected = total = 0.0
        for j in range(starts[bag], ends[bag]):
            slope[j] = -2 * (cost_plus * max(0.0, 1 - f[j]) + cost_minus * max(0.0, 1 + f[j]))
            response[j] = p[j] * (1 - p[j]) / T
            expected += p[j]
            total += response[j]
        one = expected <= 1 + _ONE and total > 0
        strength[bag] = 1 / total if one else 2 * D / (1 + 2 * D * total)
    return slope, response, strength


@njit(cache=True, nogil=True)
def _surprise(p):
    """``-p log p``"""
    return -p * np.log(p) if p > 0 else 0.0


@njit(cache=True, nogil=True)
def _entropies(p, rows, starts, ends):
    """Of one choice a bag, with the probabilities of its rows."""
    sums = np.zeros(len(starts))
    for bag in range(len(starts)):
        for i in rows[starts[bag] : ends[bag]]:
            sums[bag] += _surprise(p[i])
    return sums


@njit(cache=True, nogil=True)
def _label_entropies(p, rows, starts, ends):
    """Of a choice between two for every row, summed over each bag."""
    sums = np.zeros(len(starts))
    for bag in range(len(starts)):
        for i in rows[starts[bag] : ends[bag]]:
            sums[bag] += _surprise(p[i]) + _surprise(1 - p[i])
    return sums


@njit(cache=True, nogil=True)
def _witness_probabilities(f, scale, rows, starts, ends, p):
    """A softmax of ``-scale * max(0, 1 - f)^2`` in each bag."""
    for bag in range(len(starts)):
        here = rows[starts[bag] : ends[bag]]
        least = np.inf
        for i in here:
            p[i] = scale * max(0.0, 1 - f[i]) ** 2
            least = min(least, p[i])
        total = 0.0
        for i in here:
            p[i] = np.exp(least - p[i])
            total += p[i]
        for i in here:
            p[i] /= total


@njit(cache=True, nogil=True)
def _label_probabilities(a, starts, ends, pull, fraction, p):
    """Probabilities of labels at log-odds `a`, bag by bag: at least one positive is expected.

    Without that constraint ``p = sigma(a + x)``, where ``x = -2 pull (sum(p) - m fraction)``; if less than one positive
    is expected so, x is what makes it one. Log-odds count from the largest of the bag, as large ones would hide x.
    """
    for bag in range(len(starts)):
        here = a[starts[bag] : ends[bag]]
        out = p[starts[bag] : ends[bag]]
        m = len(here)
        if m == 1:
            out[0] = 1.0
            continue
        first, second = _two_largest(here)
        x = first
        if pull > 0:
            low, high = first - 2 * pull * m * (1 - fraction), first + 2 * pull * m * fraction
            x = _root(here, first, m * fraction + 0.5 * first / pull, 0.5 / pull, low, high, 0.5 * (low + high))
        if _sigmoids(here, first, x, out) < 1:
            # with e_j = exp(a_j - first), where one is all but certain e^-x = e^x * (sum of the other e): exact for two
            low, high, others = -np.log(m - 1.0), 0.5 * (first - second), -1.0
            for j in range(m):
                others += np.exp(here[j] - first)
            start = high if m == 2 or others <= 0 else min(max(-0.5 * np.log(others), low), high)
            x = _root(here, first, 1.0, 0.0, low, high, start)
            _sigmoids(here, first, x, out)


@njit(cache=True, nogil=True)
def _root(a, zero, total, slope, low, high, x):
    """The root in [low, high] of ``sum(sigma(a - zero + x)) + slope * x = total``, from a guess.

    Newton's method, and bisection where it leaves the bracket or a step is not half as long as the last. Without the
    linear term it is Newton's method for the logarithms of both sides: small probabilities grow like exp(x).
    """
    last = np.inf
    for _ in range(200):
        value, rise = slope * x - total, slope
        for j in range(len(a)):
            s = _sigmoid(a[j] - zero + x)
            value += s
            rise += s * (1 - s)
        if value > 0:
            high = x
        else:
            low = x
        near = 1e-15 * (1 + abs(x))
        if abs(value) <= near * rise + 1e-15 * abs(total) or high - low <= near:
            break
        if rise == 0:
            step = np.inf
        elif slope == 0:
            step = (total + value) / rise * np.log(total / (total + value))
        else:
            step = -value / rise
        if not low < x + step < high or abs(step) > 0.5 * last:
            step = 0.5 * (low + high) - x
        last = abs(step)
        x += step
    return x


@njit(cache=True, nogil=True)
def _sigmoid(x):
    if x >= 0:
        return 1 / (1 + np.exp(-x))
    e = np.exp(x)
    return e / (1 + e)


@njit(cache=True, nogil=True)
def _sigmoids(a, zero, x, out):
    """Write ``sigma(a - zero + x)`` and return the sum."""
    total = 0.0
    for j in range(len(a)):
        out[j] = _sigmoid(a[j] - zero + x)
        total += out[j]
    return total


@njit(cache=True, nogil=True)
def _two_largest(a):
    first, second = max(a[0], a[1]), min(a[0], a[1])
    for j in range(2, len(a)):
        if a[j] > first:
            first, second = a[j], first
        elif a[j] > second:
            second = a[j]
    return first, second


@njit(cache=True, nogil=True)
def _best_labels(d, starts, ends, D, fraction, p):
    """Labels 0 and 1, at least one positive a bag, of least ``sum of d over positives + D (count - m fraction)^2``."""
    for bag in range(len(starts)):
        here = d[starts[bag] : ends[bag]]
        order = np.argsort(here, kind="mergesort")
        m = len(here)
        total, best, count = 0.0, np.inf, 1
        for k in range(m):
            total += here[order[k]]
            value = total + D * (k + 1 - m * fraction) ** 2
            if value < best:
                best, count = value, k + 1
        p[starts[bag] : ends[bag]] = 0.0
        for k in range(count):
            p[starts[bag] + order[k]] = 1.0
