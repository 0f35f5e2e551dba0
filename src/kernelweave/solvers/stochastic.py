"""ML-MKL-SA: stochastic approximation of the worst-class problem, one label column at a time.

    min over b   max over g     sum_k g_k J_k(b)                    b and g on simplices, J_k the value of column k

Mirror descent in the kernel weights b, mirror ascent in the class shares g. A draw takes column k with probability
q_k = (1 - delta) g_k + delta / m and solves the machine of that column alone, at K(b):

    b_j  ~  b_j exp(eta (g_k / q_k) h_kj / scale)           g_k  ~  g_k exp(eta' (1 / q_k) J_k / scale)

The factors g_k / q_k and 1 / q_k make both steps right on average. What is kept are the averages of b and g over all
draws: cheap, approximate shared weights, never exactly zero. How far from the optimum they are is known all the same:
with averaged shares the duals of all columns bound it from below, and so does every mixture of the cuts met on the way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy.special import softmax

from .._validation import check_cost
from .bundle import Bundle
from .level import level
from .saddle import Array, Point, Saddle

VARIANTS = ("sampling", "mixing")


@dataclass(frozen=True)
class StochasticApproximation:
    """The solver ``"stochastic"`` with settings, for ``MKLClassifier(sharing="worst-case", solver=...)``.

    Parameters
    ----------
    passes : int, default=1
        Draws, in multiples of the number of label columns. After each pass the averages are certified by solving all
        columns once.
    weight_step, class_step : float, default=1.0, 0.02
        First step sizes of the kernel weights and of the class shares; draw t uses them divided by sqrt(t). They are
        relative to the largest value of a column at uniform weights, so they need no change with C or with the number
        of samples.
    smoothing : float in [0, 1], default=0.2
        delta: share of the draws that is uniform over the columns.
    variant : {"sampling", "mixing"}, default="sampling"
        Where the smoothing acts: on the probabilities of the draws alone, or on the class shares themselves, which
        keeps them near uniform and the weights near those of ``sharing="sum"``.
    refine : bool, default=False
        Whether to go on with the level method from the averaged weights, until the gap asked for is reached.
    random_state : int, RandomState or None
        Seeds the draws.

    Examples
    --------
    >>> import kernelweave as kw
    >>> views, y = kw.datasets.make_views(n_samples=90, n_noise=2, n_classes=3, random_state=0)
    >>> solver = kw.solvers.StochasticApproximation(passes=2, refine=True, random_state=0)
    >>> clf = kw.MKLClassifier(sharing="worst-case", solver=solver).fit(views, y)
    >>> clf.converged_, clf.weights_.shape == (len(clf.kernel_names_),)
    (True, True)
    """

    passes: int = 1
    weight_step: float = 1.0
    class_step: float = 0.02
    smoothing: float = 0.2
    variant: str = "sampling"
    refine: bool = False
    random_state: Any = None

    #: What to do about a gap that is too large.
    advice: ClassVar[str] = (
        "solver='stochastic' approximates: StochasticApproximation(refine=True) or solver='level' reach the gap."
    )

    def __post_init__(self) -> None:
        if isinstance(self.passes, bool) or self.passes != int(self.passes) or self.passes < 1:
            raise ValueError(f"passes must be a whole number, at least 1, got {self.passes!r}.")
        for name in ("weight_step", "class_step"):
            check_cost(name, getattr(self, name))
        if not 0 <= self.smoothing <= 1:
            raise ValueError(f"smoothing must lie in [0, 1], got {self.smoothing!r}: it is a share of the draws.")
        if self.variant not in VARIANTS:
            raise ValueError(f"variant must be 'sampling' or 'mixing', got {self.variant!r}.")

    def __call__(self, saddle: Saddle) -> None:
        """Needs the simplex as weight set and :class:`WorstClass` as machine."""
        point = saddle.evaluate(saddle.initial)
        if not saddle.proceed(point):
            return
        walk = _Walk(self, saddle, point)
        for left in reversed(range(self.passes)):
            for _ in range(saddle.Y.shape[1]):
                walk.draw()
            if self.refine and not left:
                saddle.initial = walk.mean_weights
                return level(saddle)
            if not saddle.proceed(walk.certify()):
                return

    def smoothed(self, shares: Array) -> Array:
        """Probabilities of the draws, shape (n_columns,)."""
        return (1 - self.smoothing) * shares + self.smoothing / len(shares)


def estimates(shares: Array, drawn: Array, k: int, h: Array, value: float) -> tuple[Array, Array]:
    """Slopes of ``sum_k g_k J_k(b)`` in b and in g, right on average over k, from column k alone.

    Parameters
    ----------
    shares, drawn : arrays of shape (n_columns,)
        Class shares g and the probabilities q that k was drawn with.
    k : int
        The column drawn.
    h : array of shape (n_kernels,)
        Its energies.
    value : float
        Its value J_k(b).

    Returns
    -------
    arrays of shape (n_kernels,) and (n_columns,)
    """
    slope = np.zeros(len(shares))
    slope[k] = value / drawn[k]
    return -(shares[k] / drawn[k]) * h, slope


class _Walk:
    """Where b and g are, in logarithms so that nothing overflows, and where they have been on average."""

    def __init__(self, settings: StochasticApproximation, saddle: Saddle, point: Point) -> None:
        from sklearn.utils import check_random_state  # here, because it takes a second to import

        self.settings, self.saddle, self.point = settings, saddle, point
        self.columns = list(point.solution.inner)
        self.bundle = Bundle(saddle.weights)
        self.bundle.add(point)
        self.scale = max(abs(column.primal) for column in self.columns) or 1.0
        self.random = check_random_state(settings.random_state)
        self.log_weights = np.zeros(saddle.bank.n_kernels)
        self.log_shares = np.zeros(len(self.columns))
        self.weight_sum, self.share_sum = np.zeros_like(self.log_weights), np.zeros_like(self.log_shares)
        self.draws = 0

    @property
    def mean_weights(self) -> Array:
        return self.weight_sum / self.weight_sum.sum()

    @property
    def mean_shares(self) -> Array:
        return self.share_sum / self.share_sum.sum()

    def draw(self) -> None:
        """Draw a column, solve it, step on both sides."""
        settings = self.settings
        weights, shares = softmax(self.log_weights), softmax(self.log_shares)
        drawn = settings.smoothed(shares)
        if settings.variant == "mixing":
            shares, self.log_shares = drawn, np.log(np.maximum(drawn, 1e-300))
        self.weight_sum += weights
        self.share_sum += shares
        self.draws += 1
        k = int(self.random.choice(len(drawn), p=drawn))
        h, value = self._column(k, weights)
        slope, rise = estimates(shares, drawn, k, h, value)
        step = 1 / (np.sqrt(self.draws) * self.scale)
        self.log_weights -= settings.weight_step * step * slope
        self.log_shares += settings.class_step * step * rise

    def _column(self, k: int, weights: Array) -> tuple[Array, float]:
        """Energies and value of one column at the given weights."""
        saddle = self.saddle
        K = saddle.kernel(weights)
        with saddle.clock("machine"):
            solution = saddle.machine.column(  # type: ignore[attr-defined]
                K, saddle.Y, k, self.columns[k], saddle.machine_accuracy
            )
        saddle.solves += 1
        self.columns[k] = solution
        with saddle.clock("quadratics"):
            h = saddle.bank.quadratics(solution.coef)
        self.bundle.add(Point(weights, weights, solution, h, solution.primal, -np.inf))
        return h, solution.dual

    def certify(self) -> Point:
        """The point of the averaged weights, all columns solved, and the lower bounds known by now."""
        saddle, shares = self.saddle, self.mean_shares
        near = replace(self.point, solution=replace(self.point.solution, inner=self.columns))
        self.point = saddle.evaluate(self.mean_weights, near=near)
        self.columns = list(self.point.solution.inner)
        with saddle.clock("quadratics"):
            h = saddle.bank.quadratics(self.point.solution.coef * np.sqrt(shares))
        mixed = float(shares @ [column.linear for column in self.columns])
        saddle.raise_lower(mixed - saddle.weights.support(h))
        self.bundle.add(self.point)
        with saddle.clock("master"):
            _, bound = self.bundle.minimum()
        saddle.raise_lower(bound)
        return self.point
