"""What solvers see of kernels: the interface of a built bank, whatever stores it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from ..views import as_row_index
from .expansion import Expansion
from .fitted import Node


class Bank(ABC):
    """Kernels between training samples, built by `KernelBank.build`.

    Subclasses differ in where kernel values are kept (memory, a file, nowhere) and nowhere else: all of them give the
    same numbers. Solvers and machines use only what is listed here.

    Attributes
    ----------
    names : tuple of str
        Names of the kernels.
    dtype : numpy.dtype
        Precision of the kernel values.
    """

    #: What joblib is to prefer for problems on this bank that are solved side by side: "processes" or "threads".
    parallel: str | None = None

    def __init__(
        self,
        names: tuple[str, ...],
        nodes: tuple[Node, ...],
        features: Any,
        ids: NDArray,
        dtype: DTypeLike,
        columns: Mapping[str, Any] | None,
    ) -> None:
        self.names = names
        self.dtype = np.dtype(dtype)
        self._nodes = nodes
        self._features = features
        self._ids = ids  # which rows of the features this bank is about, after `restrict`
        self._columns = columns

    @property
    def n_kernels(self) -> int:
        """Number of kernels."""
        return len(self.names)

    @property
    def n_samples(self) -> int:
        """Number of training samples."""
        return len(self._ids)

    @property
    def has_blocks(self) -> bool:
        """Whether large blocks of a combined kernel are at hand, as second derivatives of the value need them."""
        return True

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of stored kernel values."""

    @abstractmethod
    def combine(self, weights: ArrayLike, out: NDArray | None = None) -> NDArray:
        """Weighted sum of the kernels.

        Parameters
        ----------
        weights : array of shape (n_kernels,)
            Kernels of weight zero are not read.
        out : array of shape (n_samples, n_samples), optional
            Where to write; C-contiguous, of the dtype of the bank.

        Returns
        -------
        array of shape (n_samples, n_samples)
            Symmetric, both triangles filled.
        """

    @abstractmethod
    def quadratics(self, V: ArrayLike) -> NDArray:
        """Half the quadratic form of every kernel, ``1/2 sum_k v_k' K_j v_k``.

        Parameters
        ----------
        V : array of shape (n_samples,) or (n_samples, m)
            Only samples with an entry that is not zero are read.

        Returns
        -------
        array of shape (n_kernels,), float64
        """

    @abstractmethod
    def products(self, V: ArrayLike, samples: ArrayLike) -> NDArray:
        """Products ``(K_j V)[samples]`` with every kernel.

        Parameters
        ----------
        V : array of shape (n_samples,) or (n_samples, m)
        samples : array of int
            The rows of the products that are wanted.

        Returns
        -------
        array of shape (n_kernels, len(samples)) or (n_kernels, len(samples), m), float64
        """

    @abstractmethod
    def rows(self, samples: ArrayLike) -> NDArray:
        """Rows of every kernel: (n_kernels, len(samples), n_samples)."""

    @abstractmethod
    def diagonals(self) -> NDArray:
        """Diagonals of every kernel: (n_kernels, n_samples)."""

    @abstractmethod
    def restrict(self, samples: ArrayLike) -> Bank:
        """The same fitted kernels between some of the samples only."""

    @abstractmethod
    def select(self, kernels: ArrayLike) -> Bank:
        """Some of the kernels; their values are not copied."""

    def gram(self, kernel: int) -> NDArray:
        """One whole kernel: (n_samples, n_samples)."""
        weights = np.zeros(self.n_kernels)
        weights[kernel] = 1.0
        return self.combine(weights)

    def expansion(self, kernels: ArrayLike, samples: ArrayLike) -> Expansion:
        """What is needed to compute some kernels between new samples and some training samples, and nothing else.

        Parameters
        ----------
        kernels : array of int
            The kernels that count (of a non-zero weight).
        samples : array of int
            The training samples that count (support vectors).

        Returns
        -------
        Expansion
            Holds no kernel values; small enough to be pickled with a model.
        """
        chosen = self._kernel_index(kernels)
        return Expansion(
            tuple(self.names[j] for j in chosen),
            tuple(self._nodes[j] for j in chosen),
            self._features,
            self._ids[self._sample_index(samples)],
            self.dtype,
            self._columns,
        )

    def expect(self, n: int) -> None:  # noqa: B027 (most banks do not mind)
        """Told before so many workers enter `task` side by side."""

    def task(self) -> AbstractContextManager[Any]:
        """Entered by each of several workers that solve problems on this bank side by side."""
        return nullcontext()

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__}: {self.n_kernels} kernels, {self.n_samples} samples, {self.dtype}, "
            f"{self.nbytes / 1e6:.1f} MB>"
        )

    def _sample_index(self, samples: ArrayLike) -> NDArray:
        return np.arange(self.n_samples)[as_row_index(samples, self.n_samples)]

    def _kernel_index(self, kernels: ArrayLike) -> NDArray:
        return np.arange(self.n_kernels)[as_row_index(kernels, self.n_kernels)]

    def _checked_weights(self, weights: ArrayLike) -> NDArray:
        checked = np.asarray(weights, dtype=np.float64)
        if checked.shape != (self.n_kernels,) or not np.isfinite(checked).all():
            raise ValueError(
                f"weights must be {self.n_kernels} finite numbers, one a kernel, got shape {checked.shape}: {checked}"
            )
        return checked

    def _checked_out(self, out: NDArray | None) -> NDArray:
        shape = (self.n_samples, self.n_samples)
        if out is None:
            return np.empty(shape, self.dtype)
        if out.shape != shape or out.dtype != self.dtype or not out.flags.c_contiguous:
            raise ValueError(
                f"out must be a C-contiguous {self.dtype} array of shape {shape}, got {out.dtype} {out.shape}"
            )
        return out

    def _checked_vectors(self, V: ArrayLike) -> NDArray:
        """V as (n_samples, m), double precision."""
        checked = np.asarray(V, dtype=np.float64)
        if checked.ndim not in (1, 2) or len(checked) != self.n_samples:
            raise ValueError(f"V must have the shape ({self.n_samples},) or ({self.n_samples}, m), got {checked.shape}")
        return checked.reshape(self.n_samples, -1)
