"""Kernel ridge regression as a machine: squared loss, one linear system for all target columns.

min  1/2 |f|^2 + 1/2 sum_i C_i (y_i - f(x_i) - b)^2
max  v'y - 1/2 sum_i v_i^2 / C_i - 1/2 v'Kv          [1'v = 0 with a bias],      v_i = C_i (y_i - f(x_i) - b)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from .._validation import check_cost
from ..kernels.operators import Operator
from .base import Array, Machine, Products, Solution, blas_threads, product


class System:
    """``K + diag(ridge)``, factorised: one matrix of the size of K.

    Parameters
    ----------
    K : array of shape (n, n)
    ridge : array of shape (n,)
    """

    def __init__(self, K: NDArray, ridge: Array) -> None:
        whole = K.T.astype(np.float64, order="F")  # the transpose of a symmetric C array is laid out as LAPACK wants
        whole[np.diag_indices(len(K))] += ridge
        self._factor = cho_factor(whole, lower=True, overwrite_a=True, check_finite=False)

    def solve(self, B: Array) -> Array:
        """The solution for right-hand sides of shape (n,) or (n, m)."""
        return cho_solve(self._factor, B, check_finite=False)


@singledispatch
def system(K: Any, ridge: Array) -> Any:
    """The factorised system of a kernel; kernels of other types have theirs registered where they are written."""
    return System(K, ridge)


@system.register(Operator)
def _refused(K: Operator, ridge: Array) -> Any:
    raise TypeError(
        f"kernel ridge regression solves one system with the whole kernel, which {type(K).__name__} does not hold: "
        "build the bank with storage='packed', or with a rank"
    )


@dataclass
class Ridge(Machine):
    """Kernel ridge regression, with or without an unpenalised bias.

    Parameters
    ----------
    C : float
        Weight of the squared errors; 1/C is the ridge on the diagonal of the kernel.
    fit_intercept : bool
    sample_weight : array of shape (n_samples,), optional
        Positive; multiplies C sample by sample.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.machines import Ridge
    >>> X = np.array([[0.0], [1.0], [2.0]])
    >>> solution = Ridge(C=1e6).solve(X @ X.T, np.array([[1.0], [3.0], [5.0]]))
    >>> np.round(X @ X.T @ solution.coef + solution.intercept, 3).ravel().tolist()
    [1.0, 3.0, 5.0]
    """

    C: float = 1.0
    fit_intercept: bool = True
    sample_weight: Array | None = None
    kind = "regressor"

    def __post_init__(self) -> None:
        check_cost("C", self.C, "it is the weight of the squared errors")
        if self.sample_weight is not None and not np.all(self.sample_weight > 0):
            raise ValueError("Ridge needs positive sample weights: leave samples of weight zero out of the data.")

    def _ridge(self, n: int) -> Array:
        return 1.0 / (self.C * (np.ones(n) if self.sample_weight is None else self.sample_weight))

    def solve(self, K: NDArray, Y: Array, start: Solution | None = None, accuracy: float = 1e-3) -> Solution:
        """See :meth:`Machine.solve`. The system is solved directly, so `start` and `accuracy` have nothing to do."""
        with blas_threads(len(Y)):
            return self._solve(K, Y)

    def _solve(self, K: NDArray, Y: Array) -> Solution:
        ridge = self._ridge(len(Y))
        factor = system(K, ridge)
        V = factor.solve(Y)
        intercept = np.zeros(Y.shape[1])
        if self.fit_intercept:
            ones = factor.solve(np.ones(len(Y)))
            intercept = V.sum(axis=0) / ones.sum()
            V -= np.outer(ones, intercept)
        fitted = product(K, V)
        residual = Y - fitted - intercept
        return Solution(
            coef=V,
            intercept=intercept,
            linear=float((V * Y).sum() - 0.5 * (ridge @ V**2).sum()),
            loss=0.5 * float((residual**2 / ridge[:, None]).sum()),
            quadratic=0.5 * float((V * fitted).sum()),
            steps=1,
            state=factor,
        )

    def curvature(self, K: NDArray, Y: Array, solution: Solution, bank: Products) -> Array:
        """See :meth:`Machine.curvature`. Exact: the optimal value is smooth in the weights."""
        with blas_threads(len(Y)):
            return self._curvature(K, Y, solution, bank)

    def _curvature(self, K: NDArray, Y: Array, solution: Solution, bank: Products) -> Array:
        everyone = np.arange(len(Y))
        H = np.zeros((bank.n_kernels, bank.n_kernels))
        factor = system(K, self._ridge(len(Y))) if solution.state is None else solution.state
        ones = factor.solve(np.ones(len(Y)))
        for v in solution.coef.T:
            R = bank.products(v, everyone)
            H += R @ factor.solve(R.T)
            if self.fit_intercept:
                held = R @ ones
                H -= np.outer(held, held) / ones.sum()
        return H

    def merit(self, scores: Array, Y: Array) -> float:
        """See :meth:`Machine.merit`: minus the mean squared error."""
        return -float(np.mean((scores - Y) ** 2))

    def restrict(self, samples: NDArray[np.intp]) -> Ridge:
        """See :meth:`Machine.restrict`."""
        return self if self.sample_weight is None else replace(self, sample_weight=self.sample_weight[samples])
