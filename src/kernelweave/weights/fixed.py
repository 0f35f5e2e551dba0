"""Weights that are not learned: B is a single point."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .base import LinearConstraints, Vector, WeightSet, index_of


class OnePoint(WeightSet):
    """B = {w}: a subclass only says, in `start`, which w."""

    @abstractmethod
    def start(self, n_kernels: int) -> Vector: ...

    def respond(self, h: Vector) -> Vector:
        return self.start(len(h))

    def project(self, b: Vector) -> Vector:
        return self.start(len(b))

    def update(self, norms: Vector) -> Vector:
        return self.start(len(norms))

    def clean(self, b: Vector) -> Vector:
        return self.start(len(b))

    def feasible(self, b: Vector, tol: float = 1e-9) -> bool:
        return bool(np.all(np.abs(b - self.start(len(b))) <= tol))

    def linear_constraints(self, n_kernels: int) -> LinearConstraints:
        return LinearConstraints(None, None, None, None, [(w, w) for w in self.start(n_kernels).tolist()])

    @property
    def is_smooth(self) -> bool:
        return True


@dataclass(frozen=True)
class Fixed(OnePoint):
    """Given weights.

    Parameters
    ----------
    weights : sequence of float, shape (n_kernels,)
        At least zero, and at least one of them positive.

    Examples
    --------
    >>> from kernelweave.weights import Fixed
    >>> Fixed([0.5, 0.0, 2.0]).start(3)
    array([0.5, 0. , 2. ])
    """

    weights: Sequence[float]

    def __post_init__(self) -> None:
        try:
            values = np.asarray(self.weights, dtype=float)
        except (TypeError, ValueError):
            raise ValueError(f"Fixed: weights must be numbers, one a kernel, got {self.weights!r}.") from None
        if values.ndim != 1 or len(values) == 0:
            raise ValueError(f"Fixed: weights must be one number a kernel, got an array of shape {values.shape}.")
        if not np.all(np.isfinite(values)) or np.any(values < 0.0) or not np.any(values > 0.0):
            raise ValueError(
                f"Fixed: weights must be finite, none negative and at least one positive, got {values.tolist()}."
            )
        object.__setattr__(self, "weights", tuple(values.tolist()))  # a tuple compares and hashes by value

    def start(self, n_kernels: int) -> Vector:
        if n_kernels != len(self.weights):
            raise ValueError(
                f"Fixed: {len(self.weights)} weights were given for {n_kernels} kernels; give one a kernel."
            )
        return np.array(self.weights)


@dataclass(frozen=True)
class Average(OnePoint):
    """The average kernel: b_j = 1/s. The baseline that learned weights must beat.

    Examples
    --------
    >>> from kernelweave.weights import Average
    >>> Average().start(4)
    array([0.25, 0.25, 0.25, 0.25])
    """

    def start(self, n_kernels: int) -> Vector:
        return np.full(n_kernels, 1.0 / n_kernels)


@dataclass(frozen=True)
class Sum(OnePoint):
    """The sum kernel: b_j = 1, that is the average kernel with s times the C.

    Examples
    --------
    >>> from kernelweave.weights import Sum
    >>> Sum().start(3)
    array([1., 1., 1.])
    """

    def start(self, n_kernels: int) -> Vector:
        return np.ones(n_kernels)


@dataclass(frozen=True)
class Single(OnePoint):
    """One kernel alone, with weight 1.

    Parameters
    ----------
    index : int or str
        Its position from zero, or its name in the bank (looked up by `resolve`).

    Examples
    --------
    >>> from kernelweave.weights import Single
    >>> Single(1).start(3)
    array([0., 1., 0.])
    """

    index: int | str

    def __post_init__(self) -> None:
        if isinstance(self.index, bool) or not isinstance(self.index, (int, np.integer, str)):
            raise TypeError(f"Single: index must be a kernel's position or name, got {self.index!r}.")

    def resolve(self, bank: Any, machine: Any, Y: NDArray[np.float64]) -> Single:
        if isinstance(self.index, str):
            return replace(self, index=index_of(self.index, bank.names, "Single"))
        return self

    def start(self, n_kernels: int) -> Vector:
        if isinstance(self.index, str):
            raise ValueError(f"Single: the name {self.index!r} has not been looked up yet; call resolve first.")
        if not 0 <= self.index < n_kernels:
            raise ValueError(f"Single: index {self.index} is not one of the {n_kernels} kernels 0 to {n_kernels - 1}.")
        b = np.zeros(n_kernels)
        b[self.index] = 1.0
        return b
