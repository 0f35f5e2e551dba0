"""What a machine is: the set A, the function S(a) and the decision function for ONE kernel.

    max over a in A   S(a) - 1/2 sum_k v_k' K v_k           v_k = a_k * y_k, one column per task

A machine knows nothing of weights or banks beyond :meth:`Machine.curvature`, which asks a bank for products.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import singledispatch
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular

from .._config import one_blas_thread
from ..kernels.operators import Operator, block_of

Array = NDArray[np.float64]

#: Size from which a factorisation gains more from a second thread than the compiled loops around it lose.
_WORTH_THREADS = 2000


class Products(Protocol):
    """The part of a kernel bank that curvature needs."""

    @property
    def n_kernels(self) -> int: ...

    def products(self, V: Any, samples: Any) -> NDArray: ...


class Values:
    """Primal value, dual value and gap, from the terms both are made of.

    linear : S(a);  loss : the primal objective without its regulariser;  quadratic : the regulariser, and what the dual
    subtracts from S.
    """

    linear: float
    loss: float
    quadratic: float

    @property
    def primal(self) -> float:
        """Primal value: an upper bound on the optimum."""
        return self.quadratic + self.loss

    @property
    def dual(self) -> float:
        """Dual value: a lower bound on the optimum."""
        return self.linear - self.quadratic

    @property
    def gap(self) -> float:
        """Duality gap, primal minus dual."""
        return self.primal - self.dual


@dataclass
class Solution(Values):
    """A pair of primal and dual points of a machine on one kernel.

    Attributes
    ----------
    coef : array of shape (n_samples, n_tasks)
        Signed duals v; the decision function is ``K @ coef + intercept``.
    intercept : array of shape (n_tasks,)
    linear : float
        S(a).
    loss : float
        The primal objective without its regulariser, at this decision function.
    quadratic : float
        1/2 sum_k v_k' K v_k: the regulariser, and what the dual subtracts from S.
    steps : int
        Inner iterations spent.
    state : Any
        What the machine would like to find again in :meth:`Machine.curvature`, but can do without.
    inner : Any
        What a warm start needs beside `coef`, for machines whose `coef` is a sum of other duals.
    """

    coef: Array
    intercept: Array
    linear: float
    loss: float
    quadratic: float
    steps: int = 0
    state: Any = field(default=None, repr=False)
    inner: Any = field(default=None, repr=False)


class Machine(ABC):
    """Learns on one kernel; see the module docstring for the problem."""

    #: "classifier" (targets are -1 and +1, 0 where a label was never judged), "ranker" (the same) or "regressor".
    kind: str = "classifier"

    #: Whether the primal objective is a loss plus half the squared norm of the decision function, as the problem above
    #: says: then it is smooth in the kernel weights, and the parts f_j can be re-weighted. A maximum of several is not.
    additive: bool = True

    @property
    def open_because(self) -> str:
        """Why the gap of the machine does not close however long it runs; empty if it does."""
        return ""

    @abstractmethod
    def solve(self, K: NDArray, Y: Array, start: Solution | None = None, accuracy: float = 1e-3) -> Solution:
        """Solve for one kernel.

        Parameters
        ----------
        K : array of shape (n_samples, n_samples), float32 or float64
        Y : array of shape (n_samples, n_tasks)
        start : Solution, optional
            Where to start from: any earlier solution on the same samples, typically for a nearby kernel.
        accuracy : float
            Largest allowed duality gap, relative to the primal value.
        """

    @abstractmethod
    def curvature(self, K: NDArray, Y: Array, solution: Solution, bank: Products) -> Array:
        """Second derivative of the optimal value in the kernel weights, shape (n_kernels, n_kernels)."""

    def cut(self, solution: Solution) -> Array:
        """The signed duals whose S and energies make up the value, shape (n_samples, any): all, where it is a sum."""
        return solution.coef

    def merit(self, scores: Array, Y: Array) -> float:
        """How good scores of held-out samples are, the larger the better; here balanced accuracy, mean over columns.

        Only judged samples count, and columns with any.
        """
        recalls = [
            np.mean([np.mean(side * scores[side * y > 0, k] > 0) for side in (1, -1) if np.any(side * y > 0)])
            for k, y in enumerate(Y.T)
            if y.any()
        ]
        return float(np.mean(recalls)) if recalls else float("nan")

    @abstractmethod
    def restrict(self, samples: NDArray[np.intp]) -> Machine:
        """The same machine for a part of the samples (per-sample settings are cut accordingly)."""


def product(K: NDArray | Operator, V: Array, block: int = 512) -> Array:
    """``K @ V`` accumulated in float64 without a float64 copy of all of K."""
    if isinstance(K, Operator):
        return K.product(V)
    if K.dtype == np.float64:
        return K @ V
    return np.concatenate([K[i : i + block].astype(np.float64) @ V for i in range(0, len(K), block)])


def blas_threads(size: int) -> AbstractContextManager[Any]:
    """One BLAS thread for factorisations of up to a moderate size, all threads for large ones."""
    return one_blas_thread() if size < _WORTH_THREADS else nullcontext()


@singledispatch
def projected_curvature(K: Any, free: NDArray[np.intp], constraints: Array, R: Array) -> Array:
    """``R P R'`` with ``P = A^-1 - A^-1 E (E'A^-1 E)^-1 E'A^-1``: curvature of a quadratic under kept sums.

    Parameters
    ----------
    K : array of shape (n, n), or an operator of which the block of the free samples fits in memory
        Other types have methods of their own, registered where they are written.
    free : array of f indices
        ``A = K[free, free]``, positive definite up to rounding.
    constraints : array of shape (n_constraints, f)
        Rows of E'.
    R : array of shape (n_kernels, f)
    """
    with blas_threads(len(free)):
        factor = _factor(K, free)
        Z = solve_triangular(factor, R.T, lower=True, check_finite=False)
        H = Z.T @ Z
        if len(constraints):
            E = solve_triangular(factor, constraints.T, lower=True, check_finite=False)
            Q, _ = np.linalg.qr(E)
            held = Q.T @ Z
            H -= held.T @ held
        return H


def _factor(K: NDArray, free: NDArray[np.intp]) -> Array:
    """Cholesky factor in place; a ridge, grown until the factorisation succeeds, stands in for lost definiteness."""
    ridge = 1e-7 * max(float(K.diagonal()[free].mean()), np.finfo(np.float64).tiny)
    for _ in range(8):
        A = block_of(K, free, free).astype(np.float64, order="F")
        A[np.diag_indices(len(free))] += ridge
        try:
            return cholesky(A, lower=True, overwrite_a=True, check_finite=False)
        except np.linalg.LinAlgError:
            ridge *= 100
    raise np.linalg.LinAlgError("The kernel matrix is far from positive semi-definite: check the kernels of the bank.")
