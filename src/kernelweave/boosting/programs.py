"""Linear programs that combine the scores of several machines: LP-beta, LP-B and nu-LPBoost (Gehler and Nowozin).

Scores S (n, F, Q) say what machine m thinks of class c for sample i. Weights w combine them to T (n, Q), and

    min over w, rho, xi    -rho + 1/(nu n) sum_i xi_i
    with                   T[i, y_i] - T[i, c] + xi_i >= rho   for all c != y_i,    xi >= 0,    w on the simplex

finds those with the largest margin rho that all but a share nu of the samples keep. LP-beta has one vector of weights,
``T[i, c] = sum_m w_m S[i, m, c]``; LP-B one a class, ``T[i, c] = sum_m w_cm S[i, m, c]``. The dual gives every sample
and wrong class a weight u >= 0, all together 1 and at most 1/(nu n) a sample, with the smallest edge:

    min over u   max_m edge_m,    edge_m = sum_ic u_ic (S[i, m, y_i] - S[i, m, c])        [LP-B: summed over classes]

Only samples near the margin need a slack and rows of their own (:class:`_Restriction`): those far above it have no
slack, and for those far below it the slack is a linear function, as long as the same class stays the nearest rival.
Both are relaxations, so that a solution which bears them out solves the whole program.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .warm import Columns, Program, WarmSolver

Array = NDArray[np.float64]
Index = NDArray[np.intp]

SLACKS = ("sample", "pair")
#: What counts as a violation; scores are scaled to at most one.
_VIOLATION = 1e-8
#: Samples on either side of the margin that get rows of their own at first, a weight.
_BAND_A_WEIGHT, _BAND_LEAST = 0.5, 20
#: Share of the samples up to the margin that get a row for their second nearest rival at first.
_DOUBTFUL = 0.2


@dataclass(frozen=True, eq=False)
class Combination:
    """A solved program.

    Attributes
    ----------
    weights : array of shape (n_machines,) or (n_classes, n_machines)
    rho : float
        The margin.
    margins : array of shape (n_samples,)
        Score of the right class minus that of its nearest rival. At most a share nu is below rho, at least a share nu
        at or below it.
    duals : array of shape (n_samples, n_classes)
        The weight u of every sample and wrong class; they sum to one.
    edges : array like weights
        Edge of every machine; the largest, where the weights are.
    value : float
        The objective.
    gap : float
        Value minus that of the dual at `duals`, not below zero but for rounding.
    rounds : int
        Linear programs solved.
    """

    weights: Array
    rho: float
    margins: Array
    duals: Array
    edges: Array
    value: float
    gap: float
    rounds: int


def lp_beta(scores: ArrayLike, codes: ArrayLike, nu: float, slack: str = "sample") -> Combination:
    """One weight a machine, for all classes.

    Parameters
    ----------
    scores : array of shape (n_samples, n_machines, n_classes)
        Of samples that the machines have not been trained on.
    codes : array of shape (n_samples,)
        The right class of each sample, 0, ..., n_classes - 1.
    nu : float in (0, 1]
    slack : {"sample", "pair"}
        One slack a sample, for its nearest rival, or one for every wrong class, of the cost 1/(nu n (n_classes - 1)).

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.boosting import lp_beta
    >>> good, noise = np.array([[2.0, 0.0], [0.0, 2.0], [1.0, 0.0]]), np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 0.0]])
    >>> found = lp_beta(np.stack([good, noise], axis=1), [0, 1, 0], nu=0.5)
    >>> found.weights, round(found.rho, 6)
    (array([1., 0.]), 2.0)
    """
    return next(solve_path(scores, codes, [nu], per_class=False, slack=slack))


def lp_b(scores: ArrayLike, codes: ArrayLike, nu: float, slack: str = "sample") -> Combination:
    """One weight for every class and machine; parameters as in :func:`lp_beta`.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.boosting import lp_b, lp_beta
    >>> scores = np.random.default_rng(0).normal(size=(9, 2, 3))
    >>> codes = np.arange(9) % 3
    >>> bool(lp_b(scores, codes, 0.5).value <= lp_beta(scores, codes, 0.5).value)
    True
    """
    return next(solve_path(scores, codes, [nu], per_class=True, slack=slack))


def lp_boost(scores: ArrayLike, signs: ArrayLike, nu: float) -> Combination:
    """The program for two classes, in which the margin of a sample is its sign times its combined score.

    Parameters
    ----------
    scores : array of shape (n_samples, n_machines)
    signs : array of shape (n_samples,), -1 and +1
    nu : float in (0, 1]

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.boosting import lp_boost
    >>> found = lp_boost(np.array([[1.0, -1.0], [2.0, 0.0], [-1.0, 0.5]]), [1, 1, -1], nu=0.3)
    >>> found.weights, found.rho
    (array([1., 0.]), 1.0)
    """
    return lp_beta(as_two_classes(scores), (np.asarray(signs) > 0).astype(np.intp), nu)


def as_two_classes(scores: ArrayLike) -> Array:
    """Scores f (n, F) of a two-class machine as those of both classes, -f/2 and f/2: their difference is f."""
    halves = 0.5 * np.asarray(scores, dtype=np.float64)
    return np.stack([-halves, halves], axis=2)


def solve_path(
    scores: ArrayLike, codes: ArrayLike, nus: Iterable[float], per_class: bool, slack: str = "sample"
) -> Iterator[Combination]:
    """Solve for one nu after the other; each starts from the weights and the rows of the one before."""
    if slack not in SLACKS:
        raise ValueError(f"slack must be one of {SLACKS}, got {slack!r}.")
    margins = _Margins(*_checked(scores, codes), per_class, apart=slack == "pair")
    values, known = margins.at(margins.start()), np.zeros(margins.shape, dtype=bool)
    solver = WarmSolver(*margins.names)
    for nu in nus:
        check_nu(nu)
        found, values = _solve(margins, float(nu), values, known, solver)
        yield found


def check_nu(nu: float) -> None:
    """Refuse a nu outside (0, 1]."""
    if not 0 < nu <= 1:
        raise ValueError(f"nu must lie in (0, 1], got {nu!r}: it is the share of samples that may miss the margin.")


def combined(scores: Array, weights: Array) -> Array:
    """T (n, Q) from scores (n, F, Q) and weights (F,) or (Q, F)."""
    return np.einsum("imc,m->ic" if weights.ndim == 1 else "imc,cm->ic", scores, weights, optimize=True)


def _checked(scores: ArrayLike, codes: ArrayLike) -> tuple[Array, Index]:
    S, y = np.asarray(scores, dtype=np.float64), np.asarray(codes)
    if S.ndim != 3 or 0 in S.shape or S.shape[2] < 2:
        raise ValueError(f"scores must have the shape (n_samples, n_machines, n_classes >= 2), got {S.shape}.")
    if not np.isfinite(S).all():
        i, m, c = np.argwhere(~np.isfinite(S))[0]
        raise ValueError(
            f"scores must be finite, but machine {m} gives sample {i} the score {S[i, m, c]} for class {c}."
        )
    if y.shape != S.shape[:1] or y.dtype.kind not in "iu" or y.min() < 0 or y.max() >= S.shape[2]:
        raise ValueError(f"codes must be {len(S)} integers from 0 to {S.shape[2] - 1}, one a sample.")
    return S, y.astype(np.intp)


class _Margins:
    """Margins as a linear function of the weights: items (rows) against rivals (columns), scaled to at most one.

    An item is what has a slack: a sample, with all wrong classes as rivals, or (`apart`) a sample with one of them.
    """

    def __init__(self, scores: Array, codes: Index, per_class: bool, apart: bool) -> None:
        n, _, n_classes = scores.shape
        self.scale = float(np.abs(scores).max()) or 1.0
        self.scores = np.ascontiguousarray(scores.transpose(0, 2, 1)) / self.scale  # (n, Q, F): sums over machines
        self.codes = codes
        self.per_class = per_class
        everyone = np.broadcast_to(np.arange(n_classes), (n, n_classes))
        rivals = everyone[everyone != codes[:, None]].reshape(n, n_classes - 1)
        self.samples = np.repeat(np.arange(n), n_classes - 1 if apart else 1)
        self.rivals = rivals.reshape(-1, 1) if apart else rivals
        self.shape = self.rivals.shape
        self.right = self.scores[np.arange(n), codes]  # (n, F): what every machine thinks of the right class
        n_machines = scores.shape[1]
        self.weight_shape = (n_classes, n_machines) if per_class else (n_machines,)
        self.n_weights = int(np.prod(self.weight_shape))
        # Of the dual program, how many columns there may be (a dual a pair, then edges), and rows (a weight each, then
        # a cap an item, then the sum of the duals).
        n_edges = self.n_weights // n_machines
        self.names = (self.rivals.size + n_edges, self.n_weights + len(self.rivals) + 1)

    def start(self) -> Array:
        """Weights to begin with: machines count by how far above chance they are alone."""
        n_classes, n_machines = self.scores.shape[1:]
        right = np.mean(self.scores.argmax(axis=1) == self.codes[:, None], axis=0)
        above = np.square(np.maximum(right - 1.0 / n_classes, 0.0))
        weights = above / above.sum() if above.any() else np.full(n_machines, 1.0 / n_machines)
        return np.broadcast_to(weights, self.weight_shape)

    def at(self, weights: Array) -> Array:
        """All margins, shape (n_items, n_rivals)."""
        n, n_classes, n_machines = self.scores.shape
        if self.per_class:
            T = np.einsum("icm,cm->ic", self.scores, weights)
        else:
            T = (self.scores.reshape(-1, n_machines) @ weights).reshape(n, n_classes)
        right = T[np.arange(len(T)), self.codes]
        return right[self.samples, None] - T[self.samples[:, None], self.rivals]

    def rows(self, items: Index, rivals: Index) -> tuple[Index, Array]:
        """Some margins as sums over weights: which weights, and what they are multiplied by, (len(items), n_terms)."""
        samples, classes = self.samples[items], self.rivals[items, rivals]
        right, wrong = self.right[samples], self.scores[samples, classes]
        n_machines = self.scores.shape[2]
        machines = np.arange(n_machines)
        if not self.per_class:
            return np.broadcast_to(machines, right.shape), right - wrong
        blocks = np.stack([self.codes[samples], classes], axis=1)[:, :, None] * n_machines + machines
        return blocks.reshape(len(items), 2 * n_machines), np.hstack([right, -wrong])

    def total(self, items: Index, rivals: Index) -> Array:
        """The sum of some margins, as what the weights are multiplied by: (n_weights,)."""
        places, terms = self.rows(items, rivals)
        if not self.per_class:
            return terms.sum(axis=0)
        return np.bincount(places.ravel(), terms.ravel(), minlength=self.n_weights).astype(np.float64, copy=False)

    def edges(self, duals: Array) -> Array:
        """What the duals (n_samples, n_classes) make of every machine, in the shape of the weights."""
        signed = -duals
        signed[np.arange(len(duals)), self.codes] += duals.sum(axis=1)
        if self.per_class:
            return np.einsum("ic,icm->cm", signed, self.scores)
        return signed.ravel() @ self.scores.reshape(signed.size, -1)


def _solve(
    margins: _Margins, nu: float, values: Array, known: NDArray[np.bool_], solver: WarmSolver
) -> tuple[Combination, Array]:
    """Solve restrictions until one is borne out; `known` collects the rows that were needed.

    The first is made around some margins, `values`; those of the solution are returned beside it.
    """
    cap = 1.0 / (nu * margins.shape[0])
    restriction = _Restriction.around(margins, values, cap, known)
    rounds, done = 0, False
    while not done:
        rounds += 1
        weights, rho, duals = restriction.solve(solver)
        values = margins.at(weights)
        done = restriction.borne_out(values, rho)
    worst = values.min(axis=1)
    value = float(-rho + cap * np.maximum(rho - worst, 0.0).sum())
    by_class = np.zeros((len(margins.codes), margins.scores.shape[1]))
    by_class[margins.samples[:, None], margins.rivals] = duals
    edges = margins.edges(by_class)
    scale = margins.scale
    nearest = worst.reshape(len(margins.codes), -1).min(axis=1)  # the items of a sample follow each other
    gap = value + float(np.atleast_2d(edges).max(axis=1).sum())
    found = Combination(
        weights, rho * scale, nearest * scale, by_class, edges * scale, value * scale, gap * scale, rounds
    )
    return found, values


class _Restriction:
    """The program with rows for some items only.

    An item is *open* (it has a slack variable and one row or more), *below* (its slack is rho minus its margin to one
    `anchor`, which may become negative) or neither (no slack). Items only ever become open, so this ends.
    """

    def __init__(self, margins: _Margins, cap: float, known: NDArray[np.bool_], below: NDArray, open_: NDArray) -> None:
        self.margins = margins
        self.cap = cap
        self.known = known
        self.below = below
        self.open = open_
        self.anchor = np.zeros(len(below), dtype=np.intp)

    @classmethod
    def around(cls, margins: _Margins, values: Array, cap: float, known: NDArray[np.bool_]) -> _Restriction:
        """Open items are those whose margins are next to the one that a share nu of them misses."""
        n = len(values)
        order = np.argsort(values.min(axis=1), kind="stable")
        middle = min(int(np.ceil(1.0 / cap)), n)
        band = int(_BAND_A_WEIGHT * margins.n_weights) + _BAND_LEAST
        below, open_ = np.zeros(n, dtype=bool), np.zeros(n, dtype=bool)
        below[order[: max(middle - band, 0)]] = True
        open_[order[max(middle - band, 0) : middle + band]] = True
        nearest = values.argmin(axis=1)
        if values.shape[1] > 1:
            # Where another rival is nearly as near, it may be the nearest of the solution, at the price of a round.
            distances = values - values[np.arange(n), nearest][:, None]
            distances[np.arange(n), nearest] = np.inf
            second = distances.min(axis=1)
            doubtful = below | open_
            place = int(_DOUBTFUL * (doubtful.sum() - 1))
            doubtful &= second <= np.partition(second[doubtful], place)[place]
            known[np.arange(n), distances.argmin(axis=1)] |= doubtful
            open_ |= doubtful
            below &= ~doubtful
        restriction = cls(margins, cap, known, below, open_)
        restriction.anchor = nearest
        known[np.arange(n), nearest] |= open_
        return restriction

    def solve(self, solver: WarmSolver) -> tuple[Array, float, Array]:
        """Weights, rho and the duals of every item and rival.

        The dual program is the one that is solved, because it has few rows: one for every weight, one for every item
        with several rivals, whose duals share a cap, and one for the sum of the duals. Its variables are the duals and
        an edge for every vector of weights; its multipliers are the weights and rho.
        """
        margins = self.margins
        n_weights, n_rivals = margins.n_weights, margins.shape[1]
        items, rivals = np.nonzero(self.known & self.open[:, None])
        lower = np.flatnonzero(self.below)
        several = np.bincount(items, minlength=len(self.open)) > 1
        sharing = np.flatnonzero(several)
        shared = np.where(several[items], np.cumsum(several)[items] - 1, -1)
        n_edges = n_weights // margins.weight_shape[-1]
        fixed = -self.cap * margins.total(lower, self.anchor[lower])
        x, multipliers = solver.solve(
            Program(
                cost=np.repeat([0.0, 1.0], [len(items), n_edges]),
                most=np.append(np.where(shared < 0, self.cap, np.inf), np.full(n_edges, np.inf)),
                A=_columns(*margins.rows(items, rivals), shared, n_edges, (n_weights, len(sharing))),
                limits=np.concatenate([fixed, np.full(len(sharing), self.cap), [1.0 - self.cap * len(lower)]]),
                n_free=n_edges,
                columns=np.append(items * n_rivals + rivals, margins.names[0] - n_edges + np.arange(n_edges)),
                rows=np.concatenate([np.arange(n_weights), n_weights + sharing, [margins.names[1] - 1]]),
            )
        )
        duals = np.zeros(margins.shape)
        duals[items, rivals] = np.maximum(x[: len(items)], 0.0)
        duals[lower, self.anchor[lower]] = self.cap
        weights = np.maximum(-multipliers[:n_weights], 0.0).reshape(margins.weight_shape)
        return weights / weights.sum(axis=-1, keepdims=True), float(multipliers[-1]), duals

    def borne_out(self, values: Array, rho: float) -> bool:
        """Whether the margins (n_items, n_rivals) are as was assumed; if not, what was not is opened."""
        every = np.arange(len(values))
        nearest = values.argmin(axis=1)
        worst, anchored = values[every, nearest], values[every, self.anchor]
        above = ~self.open & ~self.below & (worst < rho - _VIOLATION)
        crossed = self.below & (anchored > rho + _VIOLATION)
        other = self.below & (worst < anchored - _VIOLATION)
        # An open item has the slack that its rows ask for: a nearer rival without a row would ask for more.
        seen = np.where(self.known, values, np.inf).min(axis=1)
        nearer = self.open & (worst < np.minimum(seen, rho) - _VIOLATION)
        wrong = above | crossed | other | nearer
        self.known[every, nearest] |= wrong
        self.known[every, self.anchor] |= crossed | other
        self.open |= wrong
        self.below &= ~wrong
        return not wrong.any()


def _columns(weights: Index, pulls: Array, shared: Index, n_edges: int, n_rows: tuple[int, int]) -> Columns:
    """The dual program: rows of the weights, then of shared caps (`n_rows` says how many of each), then the sum.

    The column of a dual pulls at some weights, (n_duals, n_terms), and counts in the cap `shared`, or in none (-1), and
    in the sum. An edge is what its vector of weights is held below.
    """
    n_weights, n_shared = n_rows
    last = n_weights + n_shared
    rows = np.column_stack([weights, n_weights + shared, np.full(len(pulls), last)])
    values = np.column_stack([pulls, np.ones((len(pulls), 2))])
    used = np.ones(rows.shape, dtype=bool)
    used[:, -2] = shared >= 0
    ends = np.append(used.sum(axis=1), np.full(n_edges, n_weights // n_edges)).cumsum()
    return Columns(
        values=np.append(values[used], np.full(n_weights, -1.0)),
        rows=np.append(rows[used], np.arange(n_weights)),
        starts=np.append(0, ends),
    )
