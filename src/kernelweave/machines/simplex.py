"""The machine of input-output kernels: a squared-hinge nu-SVM without a bias whose labels are inside the kernel.

    min  1/2 |f|^2 + 1/2 sum_i C_i max(0, rho - f(x_i))^2 - rho
    max  - 1/2 sum_i a_i^2 / C_i - 1/2 a'Ka          a >= 0,  sum a = 1

A kernel ``y_i y_j k(x_i, x_j)`` makes f what it should be: the margin of its sample. With known labels it is the usual
machine, and where a kernel is a mixture over several labellings there are no labels to speak of.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .base import Array, Machine, Products, Solution, projected_curvature
from .decomposition import BoxDual, maximise_all

#: A dual smaller than this share of the largest counts as zero.
_ZERO = 1e-8


@dataclass
class SimplexSVM(Machine):
    """Squared-hinge nu-SVM without a bias, over duals that sum to one; see the module docstring.

    Parameters
    ----------
    C : float or array of shape (n_samples,)
        Cost of a squared margin error, sample by sample. The margin rho is found with the rest, so that only ratios of
        costs to kernel values matter.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.machines.simplex import SimplexSVM
    >>> machine = SimplexSVM(C=1.0)
    >>> solution = machine.solve(np.eye(4), np.ones((4, 1)), accuracy=1e-9)
    >>> solution.coef[:, 0]
    array([0.25, 0.25, 0.25, 0.25])
    >>> round(solution.primal, 6), round(solution.dual, 6)
    (-0.25, -0.25)
    """

    C: ArrayLike = 1.0

    def __post_init__(self) -> None:
        costs = np.asarray(self.C, dtype=np.float64)
        if costs.ndim > 1 or not np.all((costs > 0) & (costs < np.inf)):
            raise ValueError(f"C must be positive and finite, a number or one a sample, got {self.C!r}.")

    def solve(self, K: NDArray, Y: Array, start: Solution | None = None, accuracy: float = 1e-3) -> Solution:
        """See :meth:`Machine.solve`. `Y` has one column and is not looked at: labels are inside the kernel."""
        n = len(K)
        costs = self._costs(n)
        ridged = K.copy()
        ridged[np.diag_indices(n)] += 1.0 / costs
        problem = BoxDual(np.zeros(n), np.zeros(n), np.ones(n), np.ones((1, n), dtype=bool))
        begin = np.full(n, 1.0 / n)
        if start is not None:
            near = np.maximum(start.coef[:, 0], 0.0)
            begin = near / near.sum()
        part = maximise_all(ridged, [problem], begin[None], accuracy)[0]
        a = part.v / part.v.sum()  # the sum is kept up to rounding
        spent = 0.5 * float(a @ (a / costs))
        margins = -part.g - part.v / costs
        return Solution(
            coef=a[:, None],
            intercept=np.zeros(1),
            linear=-spent,
            loss=least_loss(margins, costs),
            quadratic=0.5 * float(a @ margins),
            steps=part.steps,
            state=ridged,
        )

    def curvature(self, K: NDArray, Y: Array, solution: Solution, bank: Products) -> Array:
        """See :meth:`Machine.curvature`. Only samples with a dual respond to the weights."""
        a = solution.coef[:, 0]
        free = np.flatnonzero(a > _ZERO * a.max())
        ridged = solution.state
        if ridged is None:
            ridged = K.copy()
            ridged[np.diag_indices(len(K))] += 1.0 / self._costs(len(K))
        return projected_curvature(ridged, free, np.ones((1, len(free))), bank.products(a, free))

    def restrict(self, samples: NDArray[np.intp]) -> SimplexSVM:
        """See :meth:`Machine.restrict`."""
        return self if np.ndim(self.C) == 0 else replace(self, C=np.asarray(self.C)[samples])

    def _costs(self, n: int) -> Array:
        costs = np.asarray(self.C, dtype=np.float64)
        if costs.ndim and len(costs) != n:
            raise ValueError(f"C has {len(costs)} entries for {n} samples: give a number, or one a sample.")
        return np.broadcast_to(costs, n)


def least_loss(margins: Array, costs: Array) -> float:
    """``min over rho of 1/2 sum_i costs_i max(0, rho - margins_i)^2 - rho``.

    At the best rho the costs of all samples below it, times what they miss, sum to one.
    """
    order = np.argsort(margins)
    f, C = margins[order], costs[order]
    total = np.cumsum(C)
    rho = (1.0 + np.cumsum(C * f)) / total  # if the first samples are those below it
    last = np.append(0, 1 + np.flatnonzero(rho[1:] > f[1:]))[-1]  # the lowest always is, but for rounding
    missed = rho[last] - f[: last + 1]
    return float(0.5 * (C[: last + 1] @ missed**2) - rho[last])
