"""Input-output kernels: every input kernel under every candidate labelling, without a matrix for each of them.

    K_mt = B (K_m o (s_mt s_mt')) B'            s_mt: signs that candidate t gives the items for kernel m

Items are what the input kernels are about, units what the machine learns on. They are the same (B is the identity),
unless a unit is a bag, of which a candidate chooses items: the others have the sign 0, and B adds up the items of a
bag. With S_m the signs of all candidates, (T, n_items), and D the weights,

    K(D)   = sum_m B (K_m o (S_m' diag(D_m) S_m)) B'
    1/2 a'K_mt a = 1/2 v'K_m v,     v = s_mt o (B'a)

are matrix products of M kernels, whatever the number of candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from .._config import FASTMATH, in_threads
from ..kernels import Bank

#: Rows of the combined kernel that are made at a time, so that the mixed signs stay in the cache.
ROWS_AT_ONCE = 128
#: Up to so many rows, products with a matrix are taken row by row.
FEW_ROWS = 6


class InputKernels:
    """The input kernels between items, as square matrices, and the unit of each item.

    Parameters
    ----------
    bank : Bank
        Of M kernels between n_items items.
    unit_of : array of int of shape (n_items,), optional
        The unit of each item; by default each is a unit of its own.

    Attributes
    ----------
    values : array of shape (M, n_items, n_items)
    unit_of : array of int of shape (n_items,)
    """

    def __init__(self, bank: Bank, unit_of: ArrayLike | None = None) -> None:
        self.bank = bank
        self.values: NDArray = np.empty((bank.n_kernels, bank.n_samples, bank.n_samples), dtype=bank.dtype)
        for m, values in enumerate(self.values):
            values[:] = bank.gram(m)
        self.is_plain = unit_of is None
        self.unit_of = np.arange(bank.n_samples) if unit_of is None else np.asarray(unit_of, dtype=np.intp)
        self.n_units = int(self.unit_of.max()) + 1

    @property
    def n_kernels(self) -> int:
        """M."""
        return len(self.values)

    @property
    def n_items(self) -> int:
        """Number of items."""
        return self.values.shape[1]

    def products(self, kernel: int, V: NDArray) -> NDArray:
        """``V K_m`` for rows V, (k, n_items), in double precision; only items that are in some row are read."""
        used = np.flatnonzero(V.any(axis=0))
        rows = self.values[kernel] if len(used) == self.n_items else self.values[kernel][used]
        return rows_times(V[:, used], rows)


class LabelledBank(Bank):
    """All input-output kernels of some candidates, candidate after candidate, M kernels each; see the module docstring.

    Parameters
    ----------
    inputs : InputKernels
    signs : array of shape (T, M, n_items), int8
        For every candidate and kernel, the sign of each item: -1, +1, or 0 where it is not chosen.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.generation.labelled_bank import InputKernels, LabelledBank
    >>> from kernelweave.kernels import KernelBank, Linear
    >>> bank = KernelBank(Linear(), dtype="float64").build(np.array([[1.0], [2.0]]))
    >>> labelled = LabelledBank(InputKernels(bank), np.array([[[1, 1]], [[1, -1]]], dtype=np.int8))
    >>> labelled.combine([1.0, 0.5])
    array([[1.5, 1. ],
           [1. , 6. ]])
    """

    def __init__(self, inputs: InputKernels, signs: NDArray[np.int8], chosen: NDArray[np.intp] | None = None) -> None:
        self.inputs = inputs
        self.signs = signs
        every = np.arange(signs.shape[0] * signs.shape[1])
        self._chosen = every if chosen is None else chosen
        base = inputs.bank
        names = tuple(f"{base.names[j % signs.shape[1]]} | candidate {j // signs.shape[1]}" for j in self._chosen)
        super().__init__(names, (), None, np.arange(inputs.n_units), base.dtype, None)

    @property
    def nbytes(self) -> int:
        return self.inputs.values.nbytes + self.signs.nbytes

    def combine(self, weights: ArrayLike, out: NDArray | None = None) -> NDArray:
        weights = self._checked_weights(weights)
        out = self._checked_out(out)
        of_all = np.zeros(self.signs.shape[0] * self.signs.shape[1])
        of_all[self._chosen] = weights
        D = of_all.reshape(self.signs.shape[:2])
        parts = []
        for m in np.flatnonzero(D.any(axis=0)):
            used = np.flatnonzero(D[:, m])
            signs = self.signs[used, m].astype(self.dtype)
            parts.append((self.inputs.values[m], signs, D[used, m, None].astype(self.dtype) * signs))
        if self.inputs.is_plain:
            _combine(parts, out)
        else:
            whole = np.empty((self.inputs.n_items, self.inputs.n_items), self.dtype)
            _combine(parts, whole)
            out[:] = 0
            _add_up(whole, self.inputs.unit_of, out)
            _mirror(out)  # sums in another order differ by rounding
        return out

    def quadratics(self, V: ArrayLike) -> NDArray:
        vectors = self._checked_vectors(V)
        result = np.zeros(self.signs.shape[:2])
        for v in vectors.T:
            for m in range(self.inputs.n_kernels):
                signed = self.signs[:, m] * v[self.inputs.unit_of]
                result[:, m] += 0.5 * np.einsum("ti,ti->t", signed, self.inputs.products(m, signed))
        return result.ravel()[self._chosen]

    def products(self, V: ArrayLike, samples: ArrayLike) -> NDArray:
        vectors = self._checked_vectors(V)
        wanted = self._sample_index(samples)
        out = np.empty((self.n_kernels, len(wanted), vectors.shape[1]))
        kernel_of = self._chosen % self.inputs.n_kernels
        for k, v in enumerate(vectors.T):
            for m in np.unique(kernel_of):
                places = np.flatnonzero(kernel_of == m)
                signs = self.signs[self._chosen[places] // self.inputs.n_kernels, m]
                scores = signs * self.inputs.products(m, signs * v[self.inputs.unit_of])
                out[places, :, k] = self._per_unit(scores)[:, wanted]
        return out[..., 0] if np.ndim(V) == 1 else out

    def rows(self, samples: ArrayLike) -> NDArray:
        wanted = self._sample_index(samples)
        units = np.eye(self.n_samples)[:, wanted]
        return self.products(units, np.arange(self.n_samples)).transpose(0, 2, 1).astype(self.dtype)

    def diagonals(self) -> NDArray:
        return np.stack([self.gram(j).diagonal() for j in range(self.n_kernels)])

    def restrict(self, samples: ArrayLike) -> LabelledBank:
        units = self._sample_index(samples)
        items_of = [np.flatnonzero(self.inputs.unit_of == unit) for unit in units]
        items = np.concatenate(items_of)
        unit_of = None if self.inputs.is_plain else np.repeat(np.arange(len(units)), [len(of) for of in items_of])
        inputs = InputKernels(self.inputs.bank.restrict(items), unit_of)
        return LabelledBank(inputs, self.signs[..., items], self._chosen)

    def select(self, kernels: ArrayLike) -> LabelledBank:
        return LabelledBank(self.inputs, self.signs, self._chosen[self._kernel_index(kernels)])

    def _per_unit(self, scores: NDArray) -> NDArray:
        if self.inputs.is_plain:
            return scores
        sums = np.zeros((len(scores), self.n_samples))
        np.add.at(sums.T, self.inputs.unit_of, scores.T)
        return sums


class LabelledStore:
    """Candidates in use; see :class:`kernelweave.generation.columns.Store`. A column is an (M, n_items) int8 array."""

    def __init__(self, inputs: InputKernels) -> None:
        self._inputs = inputs
        self._signs = np.empty((0, inputs.n_kernels, inputs.n_items), dtype=np.int8)

    @property
    def bank(self) -> LabelledBank:
        return LabelledBank(self._inputs, self._signs)

    def add(self, columns: Sequence[Any]) -> None:
        """Append candidates."""
        if columns:
            self._signs = np.concatenate([self._signs, np.stack(columns)])

    def keep(self, kept: NDArray[np.bool_]) -> None:
        """Remove the candidates that are not kept."""
        self._signs = self._signs[kept]


def rows_times(V: NDArray, K: NDArray) -> NDArray:
    """``V K`` in double precision, computed in that of K.

    A product of matrices first copies all of K, so that few rows are faster one after the other.
    """
    V = V.astype(K.dtype)
    if len(V) > FEW_ROWS:
        return (V @ K).astype(np.float64)
    out = np.empty((len(V), K.shape[1]))
    for row, v in zip(out, V, strict=True):
        row[:] = v @ K
    return out


def _combine(parts: list[tuple[NDArray, NDArray, NDArray]], out: NDArray) -> None:
    """``sum of K o (signs' weighted)`` over triples (K, signs, weighted), both triangles, by blocks of rows."""
    n = len(out)

    def block(first: int) -> None:
        last = min(first + ROWS_AT_ONCE, n)
        rows = out[first:last, :last]
        rows[:] = 0
        mixed = np.empty((last - first, last), out.dtype)
        for K, signs, weighted in parts:
            np.matmul(weighted[:, first:last].T, signs[:, :last], out=mixed)
            _add_product(K[first:last], mixed, rows)

    in_threads(block, range(0, n, ROWS_AT_ONCE))
    _mirror(out)


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _add_product(K, mixed, out):
    """out += K o mixed, in the columns that `mixed` has."""
    for i in range(mixed.shape[0]):
        row, signs, total = K[i, : mixed.shape[1]], mixed[i], out[i]
        for k in range(len(signs)):
            total[k] += row[k] * signs[k]


@njit(cache=True, nogil=True)
def _mirror(out):
    """Copy the lower triangle to the upper one, in squares that fit in the cache."""
    n = len(out)
    for first in range(0, n, 32):
        for second in range(0, first + 1, 32):
            for i in range(first, min(first + 32, n)):
                for k in range(second, min(second + 32, i)):
                    out[k, i] = out[i, k]


@njit(cache=True, nogil=True)
def _add_up(K, unit_of, out):
    """Sums over the items of each pair of units."""
    for i in range(len(K)):
        row, total = K[i], out[unit_of[i]]
        for k in range(len(row)):
            total[unit_of[k]] += row[k]
