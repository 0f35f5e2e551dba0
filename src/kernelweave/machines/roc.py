"""ROC area as a machine: in each label column, positive samples above negative ones, all pairs counted.

    min  1/2 |f|^2 + c sum_{i positive, j negative} max(0, 1 - f(x_i) + f(x_j))            c = C / (n+ n-)
    max  sum z - 1/2 v'Kv          v_i = sum_j z_ij,   v_j = - sum_i z_ij,   0 <= z_ij <= c

The sum of z is that of v over the positive samples, so v alone is the dual point. The set Q it comes from has as many
corners as there are ways to rank the samples, and the best corner for scores f takes one sort: z_ij = c for every pair
that violates its margin. This is the most violated constraint of the structural SVM for ROC area; v is a mixture of the
corners met so far, and a small quadratic program over their weights alternates with the next corner.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .._config import in_threads
from .._validation import check_cost
from .base import Array, Machine, Products, Solution, product, projected_curvature
from .decomposition import BoxDual, maximise

#: Columns whose next corners are multiplied by the kernel in one product; bounds the memory that corners take.
_TOGETHER = 32
#: The small program is solved to this share of the gap: more precise mixtures meet no better corners.
_MIXTURE_SHARE = 0.1
#: A corner of the averaged scores is taken if it has at least this share of the largest violation. Averages move less
#: from round to round than the scores themselves, and half as many corners are met.
_GOOD_CORNER = 0.3
_MOST_ROUNDS = 5000
#: Rounds without a larger dual value after which rounding is taken to be in the way.
_PATIENCE = 10
_ROUNDING = 1e-14
#: A set of samples is tight if its slack is below this share of what one pair can carry.
_TIGHT = 1e-6


@dataclass
class ROCArea(Machine):
    """Support vector machine for the area under the ROC curve of each label column, without a bias.

    It ranks the samples within a column. Scores of different columns have no common scale, and none has a threshold.

    Parameters
    ----------
    C : float
        Cost of the mean hinge loss over the pairs of a column: the same for every column, however rare its label.

    Notes
    -----
    Targets of 0 (never judged) take part in no pair. A column without a positive or without a negative sample has no
    pairs and gets the function zero.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.machines import ROCArea
    >>> X = np.array([[0.0], [1.0], [3.0], [4.0]])
    >>> solution = ROCArea(C=10.0).solve(X @ X.T, np.array([[-1.0], [-1.0], [1.0], [1.0]]), accuracy=1e-9)
    >>> round((X.T @ solution.coef).item(), 6), round(solution.primal, 6)
    (0.5, 0.125)
    """

    C: float = 1.0

    def __post_init__(self) -> None:
        check_cost("C", self.C, "it is the cost of unordered pairs")

    def solve(self, K: NDArray, Y: Array, start: Solution | None = None, accuracy: float = 1e-3) -> Solution:
        """See :meth:`Machine.solve`. Label columns are independent; their steps are corners of the dual set."""
        parts: list[Solution] = []
        for first in range(0, Y.shape[1], _TOGETHER):
            columns = [_Column(y, self.C) for y in Y.T[first : first + _TOGETHER]]
            if start is not None:
                for k, column in enumerate(columns, start=first):
                    column.begin_at(*_mixture(start, k, self.C))
            _solve_together(K, columns, accuracy)
            parts += [column.solution() for column in columns]
        return Solution(
            coef=np.hstack([part.coef for part in parts]),
            intercept=np.zeros(len(parts)),
            linear=sum(part.linear for part in parts),
            loss=sum(part.loss for part in parts),
            quadratic=sum(part.quadratic for part in parts),
            steps=sum(part.steps for part in parts),
            inner=[part.inner for part in parts],
        )

    def curvature(self, K: NDArray, Y: Array, solution: Solution, bank: Products) -> Array:
        """See :meth:`Machine.curvature`. Only samples that share their score with others respond, block by block."""
        H = np.zeros((bank.n_kernels, bank.n_kernels))
        scores = product(K, solution.coef)
        for y, v, f in zip(Y.T, solution.coef.T, scores.T, strict=True):
            free, members = _Column(y, self.C).blocks(v, f)
            if len(free):
                H += projected_curvature(K, free, members, bank.products(v, free))
        return H

    def restrict(self, samples: NDArray[np.intp]) -> ROCArea:
        """See :meth:`Machine.restrict`."""
        return self


def _mixture(start: Solution, k: int, C: float) -> tuple[Array, Array]:
    """Points and shares that a column begins at. A dual vector without those it was mixed from is one point itself."""
    return start.inner[k] if start.inner else (start.coef[None, :, k] / C, np.ones(1))


def _solve_together(K: NDArray, columns: list[_Column], accuracy: float) -> None:
    """Rounds for several columns side by side: one product with the kernel a round serves all of them."""
    counts = [len(column.points) for column in columns]
    begun = product(K, np.concatenate([column.points for column in columns]).T).T
    for column, products in zip(columns, np.split(begun, np.cumsum(counts)[:-1]), strict=True):
        column.take_products(products)
    unfinished = columns
    while True:
        in_threads(_Column.measure, unfinished)
        unfinished = [column for column in unfinished if not column.finished(accuracy)]
        if not unfinished:
            return
        corners = [column.next_corner() for column in unfinished]
        moved = product(K, np.stack(corners, axis=1)).T
        in_threads(lambda job: job[0].add(*job[1:]), zip(unfinished, corners, moved, strict=True))


class _Column:
    """One label column under way. Points are those of Q at C = 1, the first of them zero; their weights sum to C."""

    def __init__(self, y: Array, C: float) -> None:
        self.C = C
        self.positive, self.negative = np.flatnonzero(y > 0), np.flatnonzero(y < 0)
        self.n_pairs = len(self.positive) * len(self.negative)
        self.points = np.zeros((1, len(y)))
        self.weights = np.array([C])
        self.rounds = self.idle = 0
        self.dual = -np.inf

    # -- the dual set ---------------------------------------------------------------------------------------------

    def corner(self, scores: Array) -> Array:
        """The point of Q with the largest loss at these scores, shape (n,)."""
        point = np.zeros(len(scores))
        # Both counts compare the same two rounded numbers, so that every pair is counted on both sides or on neither.
        above, below = scores[self.positive], scores[self.negative] + 1.0
        point[self.positive] = len(below) - np.searchsorted(np.sort(below), above, side="right")
        point[self.negative] = -np.searchsorted(np.sort(above), below, side="left")
        return point / max(self.n_pairs, 1)

    def feasible(self, points: Array) -> bool:
        """Whether all points (k, n) lie in Q: the condition of Gale and Ryser for z with these row and column sums."""
        up, down = points[:, self.positive], -points[:, self.negative]
        elsewhere = np.abs(points).sum(axis=1) - np.abs(up).sum(axis=1) - np.abs(down).sum(axis=1)
        unbalanced = up.sum(axis=1) - down.sum(axis=1)
        if not self.n_pairs or min(up.min(), down.min()) < 0 or max(elsewhere.max(), np.abs(unbalanced).max()) > 1e-10:
            return False
        rows = np.arange(1, len(self.positive) + 1)
        for most, sums in zip(np.cumsum(-np.sort(-up, axis=1), axis=1), np.sort(down, axis=1), strict=True):
            full = np.searchsorted(sums, rows / self.n_pairs)
            carried = np.append(0.0, np.cumsum(sums))[full] + (len(sums) - full) * rows / self.n_pairs
            if np.any(most > carried + 1e-10):
                return False
        return True

    def blocks(self, v: Array, f: Array) -> tuple[NDArray[np.intp], Array]:
        """Samples that can exchange duals at v with scores f, and which block each is in, (n_blocks, n_free).

        The sum of v over a set of p positive and q negative samples is at most c p (n- - q). Sets, in the order of the
        scores, at which this is attained cut the samples into blocks, and duals move within blocks only.
        """
        taking_part = np.concatenate([self.positive, self.negative])
        is_positive = np.arange(len(taking_part)) < len(self.positive)
        order = np.argsort(f[taking_part] + ~is_positive, kind="stable")
        taking_part, is_positive = taking_part[order], is_positive[order]
        most = np.cumsum(is_positive) * (len(self.negative) - np.cumsum(~is_positive))
        cost = self.C / max(self.n_pairs, 1)
        tight = cost * most - np.cumsum(v[taking_part]) <= _TIGHT * cost
        block = np.cumsum(np.append(0, tight[:-1]))
        sizes = np.bincount(block) if len(block) else np.zeros(0, dtype=int)
        shared = sizes[block] > 1
        members = block[shared] == np.flatnonzero(sizes > 1)[:, None]
        return taking_part[shared], members.astype(np.float64)

    # -- rounds ---------------------------------------------------------------------------------------------------

    def begin_at(self, points: Array, shares: Array) -> None:
        """Start from a mixture, unless its points do not belong to this column."""
        if len(points) and self.feasible(points):
            self.points = np.concatenate([self.points, points])
            self.weights = self.C * np.append(max(1.0 - shares.sum(), 0.0), shares)

    def take_products(self, products: Array) -> None:
        """Products of the kernel with all points, (n_points, n)."""
        self.products = products
        self.gram = self.points @ products.T
        self.centre = self.weights @ products

    def measure(self) -> None:
        """Values at the current mixture."""
        self.v, self.f = self.weights @ self.points, self.weights @ self.products
        self.worst = self.corner(self.f)
        self.linear = float(self.v[self.positive].sum())
        self.quadratic = 0.5 * float(self.v @ self.f)
        self.gap = max(self._violation(self.worst), 0.0)
        self.loss = self.linear - 2 * self.quadratic + self.gap
        before, self.dual = self.dual, max(self.dual, self.linear - self.quadratic)
        self.idle = 0 if self.dual > before + self._rounding else self.idle + 1

    def solution(self) -> Solution:
        """The column's part of the answer; `inner` holds the points in use and their shares of the dual."""
        used = self.weights > 0
        used[0] = False
        return Solution(
            coef=self.v[:, None],
            intercept=np.zeros(1),
            linear=self.linear,
            loss=self.loss,
            quadratic=self.quadratic,
            steps=self.rounds,
            inner=(self.points[used], self.weights[used] / self.C),
        )

    def _violation(self, point: Array) -> float:
        """How much more loss `point` sees at the scores than the mixture does."""
        seen = self.C * float(point[self.positive].sum() - point @ self.f)
        return seen - (self.linear - 2 * self.quadratic)

    @property
    def _rounding(self) -> float:
        return _ROUNDING * (self.C + self.quadratic)

    def finished(self, accuracy: float) -> bool:
        """Whether the gap is small enough, or cannot become smaller."""
        enough = max(accuracy * (self.loss + self.quadratic), self._rounding)
        return self.gap <= enough or self.idle >= _PATIENCE or self.rounds >= _MOST_ROUNDS

    def next_corner(self) -> Array:
        """The corner to add."""
        self.centre = 0.5 * (self.centre + self.f)
        corner = self.corner(self.centre)
        return corner if self._violation(corner) >= _GOOD_CORNER * self.gap else self.worst

    def add(self, corner: Array, moved: Array) -> None:
        """Add a corner and its product with the kernel, drop unused ones, and find the best weights of the rest."""
        used = self.weights > 0
        used[0] = True
        beside = self.points[used] @ moved
        gram = np.empty((len(beside) + 1, len(beside) + 1))
        gram[:-1, :-1] = self.gram[np.ix_(used, used)]
        gram[-1, :-1] = gram[:-1, -1] = beside
        gram[-1, -1] = corner @ moved
        self.gram = gram
        self.points = np.concatenate([self.points[used], corner[None]])
        self.products = np.concatenate([self.products[used], moved[None]])
        n_points = len(gram)
        program = BoxDual(
            self.points[:, self.positive].sum(axis=1),
            np.zeros(n_points),
            np.full(n_points, self.C),
            np.ones((1, n_points), dtype=bool),
        )
        begin = np.append(self.weights[used], 0.0)
        self.weights = maximise(self.gram, program, begin, _MIXTURE_SHARE * self.gap).v
        self.rounds += 1
