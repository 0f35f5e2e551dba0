"""Weights that sum to one, over all kernels or in each group: sparse by nature."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ._equations import project_simplex
from .base import LinearConstraints, Vector, WeightSet, check_parameter
from .lp import LpBall, TikhonovLp


class OnSimplices(WeightSet):
    """B is a product of simplices, named by `simplices`; what does not depend on the penalty is here."""

    @abstractmethod
    def simplices(self, n_kernels: int) -> list[NDArray[np.intp]]: ...

    def start(self, n_kernels: int) -> Vector:
        b = np.empty(n_kernels)
        for members in self.simplices(n_kernels):
            b[members] = 1.0 / len(members)
        return b

    def project(self, b: Vector) -> Vector:
        nearest = np.empty_like(b)
        for members in self.simplices(len(b)):
            nearest[members] = project_simplex(b[members])
        return nearest

    def feasible(self, b: Vector, tol: float = 1e-9) -> bool:
        sums = [b[members].sum() for members in self.simplices(len(b))]
        return bool(np.all(b >= -tol) and np.all(np.abs(np.array(sums) - 1.0) <= tol))


class LinearOnSimplices(OnSimplices):
    """A product of simplices without penalty: everything is per simplex the l1 row of the theory."""

    def respond(self, h: Vector) -> Vector:
        """All weight on the largest h of each simplex; exact ties share it."""
        b = np.empty_like(h)
        for members in self.simplices(len(h)):
            best = h[members] == h[members].max()
            b[members] = best / best.sum()
        return b

    def support(self, h: Vector) -> float:
        return float(sum(h[members].max() for members in self.simplices(len(h))))

    def update(self, norms: Vector) -> Vector:
        """b_j = N_j / sum of N over its simplex."""
        b = np.empty_like(norms)
        for members in self.simplices(len(norms)):
            b[members] = LpBall(1.0).update(norms[members])
        return b

    def linear_constraints(self, n_kernels: int) -> LinearConstraints:
        simplices = self.simplices(n_kernels)
        A_eq = np.zeros((len(simplices), n_kernels))
        for row, members in zip(A_eq, simplices, strict=True):
            row[members] = 1.0
        return LinearConstraints(None, None, A_eq, np.ones(len(simplices)), [(0.0, None)] * n_kernels)


@dataclass(frozen=True)
class Simplex(LinearOnSimplices):
    """l1 weights: ``b >= 0, sum b = 1`` and R = 0. Sparse: kernels that do not help get exactly zero.

    Best response: all on the largest energy; support ``max_j h_j``; update ``N_j / sum N``.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.weights import Simplex
    >>> Simplex().respond(np.array([1.0, 3.0, 2.0]))
    array([0., 1., 0.])
    >>> Simplex().project(np.array([1.0, 0.5, -1.0]))
    array([0.75, 0.25, 0.  ])
    """

    def simplices(self, n_kernels: int) -> list[NDArray[np.intp]]:
        return [np.arange(n_kernels)]

    def penalised(self, h_optimal: Vector) -> TikhonovLp:
        """The penalised problem with the same solution at the same C; see `LpBall.penalised`."""
        return LpBall(1.0).penalised(h_optimal)


@dataclass(frozen=True)
class Entropy(OnSimplices):
    """Entropy on the simplex: ``b >= 0, sum b = 1`` and ``R(b) = tau sum_j b_j ln b_j``. Dense.

    Best response: ``softmax(h / tau)``; support ``tau ln sum_j exp(h_j / tau)``. tau -> 0 is `Simplex`, tau -> inf is
    `Average`. tau competes with the energies, so its useful range moves with C and with the scale of the kernels.

    Parameters
    ----------
    tau : float, default=1.0
        Strength, positive.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.weights import Entropy
    >>> Entropy(tau=0.5).respond(np.array([0.0, 0.0]))
    array([0.5, 0.5])
    """

    tau: float = 1.0

    def __post_init__(self) -> None:
        check_parameter(self, "tau", 0.0, np.finfo(float).max, open_low=True)

    def simplices(self, n_kernels: int) -> list[NDArray[np.intp]]:
        return [np.arange(n_kernels)]

    def respond(self, h: Vector) -> Vector:
        b = np.exp(self._exponents(h))
        return b / b.sum()

    def support(self, h: Vector) -> float:
        return float(h.max() + self.tau * np.log(np.exp(self._exponents(h)).sum()))

    def penalty(self, b: Vector) -> float:
        positive = b[b > 0.0]  # 0 ln 0 = 0
        return float(self.tau * np.sum(positive * np.log(positive)))

    def slope(self, b: Vector) -> Vector:
        """``tau (ln b_j + 1)``, with b_j kept off zero by the smallest normal number."""
        return self.tau * (np.log(np.maximum(b, np.finfo(float).tiny)) + 1.0)

    def _exponents(self, h: Vector) -> Vector:
        with np.errstate(over="ignore"):  # minus infinity is the right exponent of a hopeless kernel
            return (h - h.max()) / self.tau

    @property
    def is_smooth(self) -> bool:
        return True

    @property
    def has_gradient(self) -> bool:
        return False  # ln b has no bound at zero
