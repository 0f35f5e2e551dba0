"""Support vector machines in C-form and nu-form, for one or many label columns on one kernel.

C-form   min  1/2 |f|^2 + sum_i C_i max(0, 1 - y_i (f(x_i) + b))
         max  1'a - 1/2 v'Kv          0 <= a_i <= C_i   [, y'a = 0 with a bias]

nu-form  min  1/2 |f|^2 + sum_i max(0, rho - y_i (f(x_i) + b)) / (nu n) - rho
         max     - 1/2 v'Kv          0 <= a_i <= 1/(nu n),  sum of a over each class = 1/2

A target of 0 was never judged: its sample has no part in that column, as if it were not there.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .._validation import check_cost
from .base import Array, Machine, Products, Solution, projected_curvature
from .decomposition import BoxDual, maximise_all

#: A dual closer to its bound than this share of the box counts as bounded.
_BOUND = 1e-8


class HingeMachine(Machine):
    """Shared by both forms: every label column is one box-constrained dual problem on the same kernel."""

    @abstractmethod
    def box(self, y: Array) -> BoxDual:
        """The dual problem of one label column."""

    @abstractmethod
    def feasible_start(self, y: Array) -> Array:
        """Some feasible duals of that problem."""

    @abstractmethod
    def _intercept(self, multipliers: Array) -> float:
        """The bias, from the multipliers of the kept sums."""

    def solve(self, K: NDArray, Y: Array, start: Solution | None = None, accuracy: float = 1e-3) -> Solution:
        """See :meth:`Machine.solve`. Label columns are solved side by side, by all threads."""
        problems = [self.box(y) for y in Y.T]
        begins = np.stack([self.feasible_start(y) for y in Y.T])
        if start is not None:
            for problem, begin, v in zip(problems, begins, np.ascontiguousarray(start.coef.T), strict=True):
                if problem.feasible(v, begin):
                    begin[:] = v
        parts = maximise_all(K, problems, begins, accuracy)
        linear = sum(float(q.linear @ s.v) for q, s in zip(problems, parts, strict=True))
        quadratic = sum(0.5 * float((q.linear - s.g) @ s.v) for q, s in zip(problems, parts, strict=True))
        return Solution(
            coef=np.stack([s.v for s in parts], axis=1),
            intercept=np.array([self._intercept(s.multipliers) for s in parts]),
            linear=linear,
            loss=linear - 2 * quadratic + sum(s.gap for s in parts),
            quadratic=quadratic,
            steps=sum(s.steps for s in parts),
        )

    def curvature(self, K: NDArray, Y: Array, solution: Solution, bank: Products) -> Array:
        """See :meth:`Machine.curvature`. Only samples strictly inside their box respond to the weights."""
        H = np.zeros((bank.n_kernels, bank.n_kernels))
        for y, v in zip(Y.T, solution.coef.T, strict=True):
            problem = self.box(y)
            slack = _BOUND * (problem.upper - problem.lower)
            free = np.flatnonzero((v > problem.lower + slack) & (v < problem.upper - slack))
            if len(free):
                members = problem.groups[:, free]
                kept = members[members.any(axis=1)].astype(np.float64)
                H += projected_curvature(K, free, kept, bank.products(v, free))
        return H


@dataclass
class SVM(HingeMachine):
    """Support vector machine in C-form.

    Parameters
    ----------
    C : float
        Cost of a margin error.
    fit_intercept : bool
        Whether there is a bias b, hence the constraint that the signed duals sum to zero.
    sample_weight : array of shape (n_samples,), optional
        Multiplies C sample by sample; a weight of zero leaves the sample out.
    class_weight : mapping with the keys -1 and 1, "balanced" or None
        Multiplies C by side of each label column.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.machines import SVM
    >>> X = np.array([[0.0], [1.0], [3.0], [4.0]])
    >>> machine = SVM(C=10.0)
    >>> solution = machine.solve(X @ X.T, np.array([[-1.0], [-1.0], [1.0], [1.0]]), accuracy=1e-9)
    >>> round(float(solution.intercept[0]), 6), round(solution.primal, 6)
    (-2.0, 0.5)
    """

    C: float = 1.0
    fit_intercept: bool = True
    sample_weight: Array | None = None
    class_weight: Mapping[int, float] | str | None = None

    def __post_init__(self) -> None:
        check_cost("C", self.C, "it is the cost of a margin error")

    def _costs(self, y: Array) -> Array:
        costs = np.full(len(y), float(self.C))
        if self.sample_weight is not None:
            costs *= self.sample_weight
        if self.class_weight is None:
            return costs
        if self.class_weight == "balanced":
            sides = {side: int((side * y > 0).sum()) for side in (-1, 1)}
            weight = {side: sum(sides.values()) / (2 * max(count, 1)) for side, count in sides.items()}
        elif isinstance(self.class_weight, Mapping):
            weight = {side: float(self.class_weight.get(side, 1.0)) for side in (-1, 1)}
        else:
            raise ValueError(f"class_weight must be a mapping, 'balanced' or None, got {self.class_weight!r}.")
        return costs * np.where(y > 0, weight[1], weight[-1])

    def box(self, y: Array) -> BoxDual:
        signs = np.sign(y)
        signed = signs * self._costs(y)
        groups = (y != 0)[None][: int(self.fit_intercept)]
        return BoxDual(signs, np.minimum(signed, 0.0), np.maximum(signed, 0.0), groups)

    def feasible_start(self, y: Array) -> Array:
        return np.zeros(len(y))

    def _intercept(self, multipliers: Array) -> float:
        return float(multipliers[0]) if self.fit_intercept else 0.0

    def restrict(self, samples: NDArray[np.intp]) -> SVM:
        """See :meth:`Machine.restrict`."""
        return self if self.sample_weight is None else replace(self, sample_weight=self.sample_weight[samples])


@dataclass
class NuSVM(HingeMachine):
    """Support vector machine in nu-form: at most a share nu of margin errors, at least a share nu of support vectors.

    Parameters
    ----------
    nu : float in (0, 1]
        Must not exceed twice the share of the smaller class.
    """

    nu: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.nu <= 1:
            raise ValueError(f"nu must lie in (0, 1], got {self.nu!r}.")

    def box(self, y: Array) -> BoxDual:
        sides = np.stack([y > 0, y < 0])
        n, smaller = int(sides.sum()), int(sides.sum(axis=1).min())
        if self.nu * n > 2 * smaller * (1 + 1e-12):
            raise ValueError(
                f"nu={self.nu:g} is infeasible: the smaller class has {smaller} of {n} samples, "
                f"so nu may be at most {2 * smaller / n:g}."
            )
        cost = 1.0 / (self.nu * max(n, 1))
        return BoxDual(np.zeros(len(y)), np.where(y < 0, -cost, 0.0), np.where(y > 0, cost, 0.0), sides)

    def feasible_start(self, y: Array) -> Array:
        positive, negative = max(int((y > 0).sum()), 1), max(int((y < 0).sum()), 1)
        return np.where(y > 0, 0.5 / positive, np.where(y < 0, -0.5 / negative, 0.0))

    def _intercept(self, multipliers: Array) -> float:
        return float(multipliers.mean())

    def restrict(self, samples: NDArray[np.intp]) -> NuSVM:
        """See :meth:`Machine.restrict`."""
        return self
