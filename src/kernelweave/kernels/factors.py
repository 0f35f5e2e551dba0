"""A combined kernel kept as factors: ``K = Z diag(w) Z'`` with the features Z of all kernels side by side.

Nothing here is as large as n x n, and the features are never copied as a whole: samples and kernels are numbers of rows
and ranges of columns of the one array that the bank keeps. Sums run in double precision, over blocks of rows.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from .._config import in_threads
from .operators import Operator, Running

#: Bytes of features that are brought to double precision at a time: they stay in cache.
BLOCK_BYTES = 1 << 20


class Columns:
    """Some rows and some ranges of columns of an array of features.

    Parameters
    ----------
    Z : array of shape (n_base, width)
    ids : array of int of shape (n,)
        The rows that are samples.
    ranges : array of int of shape (k, 2)
        First column and the one after the last, of each kernel.
    """

    def __init__(self, Z: NDArray, ids: NDArray, ranges: NDArray) -> None:
        self.Z, self.ids, self.ranges = Z, ids, ranges
        self.widths = ranges[:, 1] - ranges[:, 0]
        self.width = int(self.widths.sum())
        self.ends = np.concatenate([[0], np.cumsum(self.widths)]).astype(np.intp)

    def rows(self, samples: NDArray) -> NDArray:
        """Features of some samples, double precision: (len(samples), width)."""
        ids = self.ids[samples]
        out = np.empty((len(ids), self.width))
        for (first, last), begin, end in self._runs():
            out[:, begin:end] = self.Z[ids, first:last]
        return out

    def transposed_product(self, V: NDArray) -> NDArray:
        """``Z' V`` for V of shape (n, m): (width, m). Samples where V is zero are not read."""
        used = np.flatnonzero(V.any(axis=1))

        def add_up(part: NDArray) -> NDArray:
            out = np.zeros((self.width, V.shape[1]))
            for block in self._blocks(part):
                out += self.rows(block).T @ V[block]
            return out

        parts = in_threads(add_up, self._shares(used))
        return sum(parts[1:], start=parts[0]) if parts else np.zeros((self.width, V.shape[1]))

    def product(self, P: NDArray, samples: NDArray | None = None) -> NDArray:
        """``Z P`` for P of shape (width, m), of some samples or of all: (n, m)."""
        samples = np.arange(len(self.ids)) if samples is None else samples
        out = np.empty((len(samples), P.shape[1]))

        def fill(part: NDArray) -> None:
            for block in self._blocks(part):
                out[block] = self.rows(samples[block]) @ P

        in_threads(fill, self._shares(np.arange(len(samples))))
        return out

    def gram(self, scale: NDArray) -> NDArray:
        """``Z' diag(scale) Z`` for a scale of shape (n,): (width, width)."""
        used = np.flatnonzero(scale)

        def add_up(part: NDArray) -> NDArray:
            out = np.zeros((self.width, self.width))
            for block in self._blocks(part, least=self.width // 4):
                rows = self.rows(block)
                out += (rows * scale[block, None]).T @ rows
            return out

        parts = in_threads(add_up, self._shares(used))
        return sum(parts[1:], start=parts[0]) if parts else np.zeros((self.width, self.width))

    def _runs(self) -> Iterator[tuple[tuple[int, int], int, int]]:
        """Ranges of columns of Z, neighbours as one, and where they stand side by side."""
        k = 0
        while k < len(self.ranges):
            first = k
            while k + 1 < len(self.ranges) and self.ranges[k + 1, 0] == self.ranges[k, 1]:
                k += 1
            yield (int(self.ranges[first, 0]), int(self.ranges[k, 1])), int(self.ends[first]), int(self.ends[k + 1])
            k += 1

    def _shares(self, samples: NDArray) -> list[NDArray]:
        """Samples dealt out to threads."""
        import numba

        workers = max(1, min(numba.get_num_threads(), len(samples) * max(self.width, 1) // 100_000))
        return [part for part in np.array_split(samples, workers) if len(part)]

    def _blocks(self, samples: NDArray, least: int = 16) -> Iterator[NDArray]:
        height = max(least, BLOCK_BYTES // (8 * max(self.width, 1)), 1)
        for start in range(0, len(samples), height):
            yield samples[start : start + height]


class Factors(Operator):
    """``sum_j weights_j Z_j Z_j'``, what `LowRankBank.combine` returns.

    Parameters
    ----------
    columns : Columns
        The features of the kernels that have a weight.
    weights : array of shape (k,)
    squares : array of shape (k, n)
        Squared lengths of the features: the diagonals of the kernels.
    """

    sweeps = True

    def __init__(self, columns: Columns, weights: NDArray, squares: NDArray) -> None:
        n = len(columns.ids)
        self.shape = (n, n)
        self.dtype = columns.Z.dtype
        self.columns = columns
        self.weights = weights
        self._squares = squares

    @property
    def spread(self) -> NDArray:
        """The weight of every column, shape (width,)."""
        return np.repeat(self.weights, self.columns.widths)

    def product(self, V: NDArray) -> NDArray:
        inner = self.columns.transposed_product(np.asarray(V, dtype=np.float64))
        return self.columns.product(self.spread[:, None] * inner)

    def block(self, rows: NDArray, columns: NDArray) -> NDArray:
        left = self.features(rows)
        right = left if np.array_equal(rows, columns) else self.features(columns)
        return (left @ right.T).astype(self.dtype)

    def diagonal(self) -> NDArray:
        return self.weights @ self._squares

    def features(self, samples: NDArray) -> NDArray:
        """Rows of a factor F with ``K = F F'``: (len(samples), width), double precision."""
        return self.columns.rows(samples) * np.sqrt(self.spread)

    def restrict(self, samples: NDArray) -> Factors:
        part = Columns(self.columns.Z, self.columns.ids[samples], self.columns.ranges)
        return Factors(part, self.weights, self._squares[:, samples])

    def running(self, F: NDArray) -> Running:
        return _RunningFactors(self, F)


class _RunningFactors(Running):
    """A product whose change is kept in the space of the features, so that a block of rows costs itself alone."""

    def __init__(self, K: Factors, F: NDArray) -> None:
        super().__init__(K, F)
        self._factors = K
        self._change = np.zeros((K.columns.width, F.shape[1]))

    def at(self, rows: slice) -> NDArray:
        Z = self._factors.columns.rows(np.arange(rows.start, rows.stop))
        return self.F[rows] + Z @ self._change

    def add(self, rows: slice, delta: NDArray) -> None:
        if delta.any():
            Z = self._factors.columns.rows(np.arange(rows.start, rows.stop))
            self._change += self._factors.spread[:, None] * (Z.T @ delta)

    def finish(self) -> None:
        self.F += self._factors.columns.product(self._change).astype(self.F.dtype, copy=False)
        self._change[:] = 0
