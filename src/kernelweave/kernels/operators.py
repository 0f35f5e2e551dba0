"""A combined kernel that is no NumPy array, because its numbers are in factors, on another device or on other machines.

What `Bank.combine` returns and a machine solves on is either an array (n, n) or one of these. How a machine solves is
chosen by its type (`functools.singledispatch`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Operator(ABC):
    """A symmetric positive semi-definite matrix that can be multiplied.

    Attributes
    ----------
    shape : tuple of int
        (n_samples, n_samples)
    dtype : numpy.dtype
        Precision of its numbers.
    """

    shape: tuple[int, int]
    dtype: np.dtype
    #: Whether to go through the samples a few at a time pays: their part of a product costs little beside a whole one.
    sweeps: bool = False

    @abstractmethod
    def product(self, V: NDArray) -> NDArray:
        """``K @ V`` for V of shape (n_samples, m), accumulated in double precision as far as the place allows."""

    @abstractmethod
    def block(self, rows: NDArray, columns: NDArray) -> NDArray:
        """``K[rows][:, columns]`` as an array in memory: (len(rows), len(columns)). Meant for small blocks."""

    @abstractmethod
    def diagonal(self) -> NDArray:
        """The diagonal, shape (n_samples,)."""

    def place(self, V: NDArray) -> Any:
        """An array, in double precision, where `times` and `exactly` take it: here it stays as it is."""
        return V

    def times(self, V: Any) -> Any:
        """``K @ V`` of an array that was placed, in the precision that is quick there; the result stays there, too."""
        return self.product(V)

    def exactly(self, V: Any) -> Any:
        """`times`, accumulated in double precision as far as the place allows."""
        return self.product(V)

    def running(self, F: NDArray) -> Running:
        """A product F = K V that is kept up to date while rows of V change; F, (n_samples, m), may be written to."""
        return Running(self, F)

    def __matmul__(self, V: NDArray) -> NDArray:
        """`times` for a vector or a matrix in memory, in the precision of the operator."""
        placed = self.place(V.reshape(len(V), -1))
        return fetched(self.times(placed)).reshape(V.shape).astype(self.dtype, copy=False)

    def __len__(self) -> int:
        return self.shape[0]

    def restrict(self, samples: NDArray) -> Operator | NDArray:
        """The same kernel between some of the samples; here an array in memory, in subclasses of the same type."""
        return self.block(samples, samples)

    def __array__(self, *args: Any, **kwargs: Any) -> NDArray:
        raise self._no_array()

    def __getitem__(self, key: Any) -> NDArray:
        raise self._no_array()

    def _no_array(self) -> TypeError:
        return TypeError(
            f"this needs the whole kernel matrix {self.shape} in memory, but the bank keeps {type(self).__name__}: "
            "build the bank with storage='packed', without rank and device, or use a machine that takes products"
        )


class Running:
    """``F = K V`` while blocks of rows of V change one after the other.

    Parameters
    ----------
    K : Operator, or array (n, n)
    F : array of shape (n, m)
        The product at the start; changed in place.
    """

    def __init__(self, K: NDArray | Operator, F: NDArray) -> None:
        self.K, self.F = K, F

    def block(self, rows: slice) -> NDArray:
        """``K[rows, rows]``, contiguous."""
        if isinstance(self.K, Operator):
            ids = np.arange(rows.start, rows.stop)
            return self.K.block(ids, ids)
        return np.ascontiguousarray(self.K[rows, rows])

    def at(self, rows: slice) -> NDArray:
        """``F[rows]`` as it is now, in double precision."""
        return self.F[rows].astype(np.float64)

    def add(self, rows: slice, delta: NDArray) -> None:
        """Take note that V[rows] has grown by delta, (len(rows), m)."""
        moved = np.flatnonzero(delta.any(axis=1))
        if len(moved) == 0:
            return
        changed = delta.astype(self.F.dtype, copy=False)
        if isinstance(self.K, Operator):
            change = np.zeros(self.F.shape)
            change[rows] = delta
            self.F += self.K.product(change).astype(self.F.dtype, copy=False)
            return
        columns = self.K[:, rows]
        if len(moved) < 0.5 * len(delta):  # K is symmetric, and rows are quicker to gather
            columns, changed = self.K[rows][moved].T, changed[moved]
        self.F += columns @ changed

    def finish(self) -> None:
        """Bring all of F up to date."""


def fetched(array: Any) -> NDArray:
    """An array that `Operator.place` placed, or was computed there, as a NumPy array."""
    return array if isinstance(array, np.ndarray) else array.cpu().numpy()


def block_of(K: NDArray | Operator, rows: NDArray, columns: NDArray) -> NDArray:
    """``K[rows][:, columns]`` of an array or an operator."""
    return K.block(rows, columns) if isinstance(K, Operator) else K[np.ix_(rows, columns)]


def part_of(K: NDArray | Operator, samples: NDArray) -> Any:
    """K between some of the samples, in the form that machines solve on."""
    return K.restrict(samples) if isinstance(K, Operator) else np.ascontiguousarray(K[np.ix_(samples, samples)])


def product_of(K: NDArray | Operator, rows: NDArray, columns: NDArray, V: NDArray) -> NDArray:
    """``K[rows][:, columns] @ V`` of an array or an operator: (len(rows), m)."""
    if not isinstance(K, Operator):
        return K[np.ix_(rows, columns)] @ V
    spread = np.zeros((K.shape[1], V.shape[1]))
    spread[columns] = V
    return K.product(spread)[rows]
