"""A combined kernel that is no NumPy array, because its numbers are in factors, on another device or on other machines.

What `Bank.combine` returns and a machine solves on is either an array (n, n) or one of these. How a machine solves is
chosen by its type (`functools.singledispatch`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod

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

    @abstractmethod
    def product(self, V: NDArray) -> NDArray:
        """``K @ V`` for V of shape (n_samples, m), accumulated in double precision as far as the place allows."""

    @abstractmethod
    def block(self, rows: NDArray, columns: NDArray) -> NDArray:
        """``K[rows][:, columns]`` as an array in memory: (len(rows), len(columns)). Meant for small blocks."""

    @abstractmethod
    def diagonal(self) -> NDArray:
        """The diagonal, shape (n_samples,)."""
