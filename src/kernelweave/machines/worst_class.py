"""The worst of several label columns as one machine: shared weights that no column has to pay for.

    max over k, a_k in A_k    S(a_k) - 1/2 v_k' K v_k        =   max_k J_k(K)

Every column is solved, because each needs its decision function and any could be the worst; the largest value alone
counts. The duals of that column are a feasible point of the joint problem, so the cut and the lower bound they give
hold, and the largest of the primal values is an upper bound: whatever works with cuts works with this machine.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .._config import in_threads
from .base import Array, Machine, Products, Solution


@dataclass
class WorstClass(Machine):
    """The column with the largest optimal value, of a machine that treats columns separately.

    Parameters
    ----------
    machine : Machine
        Solved for each column by itself.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.machines import SVM, WorstClass
    >>> X = np.array([[0.0], [1.0], [3.0], [4.0]])
    >>> Y = np.array([[-1.0, -1.0], [-1.0, 1.0], [1.0, 1.0], [1.0, 1.0]])
    >>> solution = WorstClass(SVM(C=10.0)).solve(X @ X.T, Y, accuracy=1e-9)
    >>> [round(part.primal, 6) for part in solution.inner], round(solution.primal, 6), solution.coef.shape
    ([0.5, 2.0], 2.0, (4, 2))
    """

    machine: Machine
    additive = False

    def __post_init__(self) -> None:
        self.kind = self.machine.kind
        if self.kind == "ranker":
            raise ValueError(
                f"{type(self.machine).__name__} learns all labels together, so there is no worst one among them: use "
                "the machine itself."
            )

    def solve(self, K: NDArray, Y: Array, start: Solution | None = None, accuracy: float = 1e-3) -> Solution:
        """See :meth:`Machine.solve`. Each column reaches `accuracy` beside its own value; `inner` holds the columns.

        The coefficients are those of all columns; the values are those of the worst, see :meth:`cut`.
        """
        n_columns = Y.shape[1]
        starts = [None] * n_columns if start is None else start.inner
        parts: list[Solution] = in_threads(lambda k: self.column(K, Y, k, starts[k], accuracy), range(n_columns))
        worst = parts[_worst(parts)]
        return Solution(
            coef=np.hstack([part.coef for part in parts]),
            intercept=np.concatenate([part.intercept for part in parts]),
            linear=worst.linear,
            loss=max(part.primal for part in parts) - worst.quadratic,
            quadratic=worst.quadratic,
            steps=sum(part.steps for part in parts),
            inner=parts,
        )

    def column(self, K: NDArray, Y: Array, k: int, start: Solution | None, accuracy: float) -> Solution:
        """Solve column k alone."""
        part = self.machine.solve(K, Y[:, [k]], start=start, accuracy=accuracy)
        return replace(part, state=None)  # which may be as large as a kernel, and there are many columns

    def cut(self, solution: Solution) -> Array:
        """See :meth:`Machine.cut`: the duals of the worst column, shape (n_samples, 1)."""
        return solution.inner[_worst(solution.inner)].coef

    def curvature(self, K: NDArray, Y: Array, solution: Solution, bank: Products) -> Array:
        """See :meth:`Machine.curvature`. There is none: the value has kinks where the worst column changes."""
        raise TypeError("The worst of several columns has no second derivative in the kernel weights.")

    def restrict(self, samples: NDArray[np.intp]) -> WorstClass:
        """See :meth:`Machine.restrict`."""
        return replace(self, machine=self.machine.restrict(samples))


def _worst(parts: list[Solution]) -> int:
    """The column with the largest proven value."""
    return int(np.argmax([part.dual for part in parts]))
