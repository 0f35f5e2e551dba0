"""Where the values of a bank are kept: packed in memory, packed in a file, or nowhere."""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import triangle
from .bank import Bank
from .fitted import RightRows, TrainingBlocks, training_rows
from .fitting import ROWS_AT_ONCE, Fitting, Track, fit_completed
from .triangle import packed_length


class Store(Protocol):
    """Where packed arrays come from."""

    def allocate(self, n_kernels: int, n: int, dtype: np.dtype) -> NDArray:
        """An array (n_kernels, n * (n + 1) / 2) to be written."""

    def finish(self, data: NDArray) -> NDArray:
        """The array to be read, once all is written."""


class Memory:
    """Packed arrays in memory."""

    def allocate(self, n_kernels: int, n: int, dtype: np.dtype) -> NDArray:
        return np.empty((n_kernels, packed_length(n)), dtype)

    def finish(self, data: NDArray) -> NDArray:
        return data


class Files:
    """Packed arrays in memory-mapped ``.npy`` files, each removed when the last bank that reads it is gone.

    Parameters
    ----------
    directory : Path, optional
        Where the files are; by default each has a temporary directory of its own.
    """

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory

    def allocate(self, n_kernels: int, n: int, dtype: np.dtype) -> NDArray:
        shape = (n_kernels, packed_length(n))
        place = Path(tempfile.mkdtemp(prefix="kernelweave-")) if self._directory is None else self._directory
        place.mkdir(parents=True, exist_ok=True)
        needed, free = int(np.prod(shape)) * dtype.itemsize, shutil.disk_usage(place).free
        if needed > free:
            raise OSError(f"the kernels need {needed:,} bytes but only {free:,} bytes are free in {place}")
        # The name says "partial" until all is written, so an interrupted run leaves nothing that looks complete.
        path = place / f"kernels-{uuid.uuid4().hex}.npy.partial"
        data = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)
        weakref.finalize(data, _remove, path, self._directory is None)
        return data

    def finish(self, data: NDArray) -> NDArray:
        assert isinstance(data, np.memmap)
        data.flush()
        partial = Path(str(data.filename))
        path = partial.with_suffix("")
        os.replace(partial, path)
        complete = np.load(path, mmap_mode="c")  # copy on write: writable arrays share compiled code
        weakref.finalize(complete, _remove, path, self._directory is None)
        return complete


def _remove(path: Path, with_directory: bool) -> None:
    path.unlink(missing_ok=True)
    if with_directory and not any(path.parent.glob("*")):
        path.parent.rmdir()


class PackedBank(Bank):
    """Lower triangles of all kernels, one after another, in memory or in a file.

    Parameters
    ----------
    store : Store
        Where arrays of restricted banks come from.
    data : array of shape (n_slots, n * (n + 1) / 2)
        Packed kernels.
    slots : array of int of shape (n_kernels,)
        The rows of ``data`` that belong to this bank.
    """

    def __init__(self, store: Store, data: NDArray, slots: NDArray, *description: Any) -> None:
        super().__init__(*description)
        self._store = store
        self._data = data
        self._slots = slots

    @property
    def nbytes(self) -> int:
        return len(self._slots) * self._data.shape[1] * self.dtype.itemsize

    def combine(self, weights: ArrayLike, out: NDArray | None = None) -> NDArray:
        weights = self._checked_weights(weights)
        out = self._checked_out(out)
        active = np.flatnonzero(weights)
        triangle.combine(self._data, self._slots[active], weights[active].astype(self.dtype), out)
        return out

    def quadratics(self, V: ArrayLike) -> NDArray:
        return triangle.quadratics(self._data, self._slots, self._checked_vectors(V))

    def products(self, V: ArrayLike, samples: ArrayLike) -> NDArray:
        vectors = self._checked_vectors(V)
        result = triangle.products(self._data, self._slots, vectors, self._sample_index(samples))
        return result[..., 0] if np.ndim(V) == 1 else result

    def rows(self, samples: ArrayLike) -> NDArray:
        wanted = self._sample_index(samples)
        out = np.empty((self.n_kernels, len(wanted), self.n_samples), self.dtype)
        triangle.rows(self._data, self._slots, wanted, out)
        return out

    def diagonals(self) -> NDArray:
        return np.asarray(self._data[np.ix_(self._slots, triangle.diagonal_positions(self.n_samples))])

    def restrict(self, samples: ArrayLike) -> PackedBank:
        wanted = self._sample_index(samples)
        data = self._store.allocate(self.n_kernels, len(wanted), self.dtype)
        triangle.restrict(self._data, self._slots, wanted, data)
        every = np.arange(self.n_kernels)
        return self._like(self._store.finish(data), every, self.names, self._nodes, self._ids[wanted])

    def select(self, kernels: ArrayLike) -> PackedBank:
        chosen = self._kernel_index(kernels)
        names, nodes = tuple(self.names[j] for j in chosen), tuple(self._nodes[j] for j in chosen)
        return self._like(self._data, self._slots[chosen], names, nodes, self._ids)

    def _like(self, data: NDArray, slots: NDArray, names: tuple, nodes: tuple, ids: NDArray) -> PackedBank:
        return PackedBank(self._store, data, slots, names, nodes, self._features, ids, self.dtype, self._columns)


class RecomputedBank(Bank):
    """Nothing is kept: blocks of kernel values are computed from the features at every call."""

    @property
    def nbytes(self) -> int:
        return 0

    def combine(self, weights: ArrayLike, out: NDArray | None = None) -> NDArray:
        weights = self._checked_weights(weights)
        out = self._checked_out(out)
        out[:] = 0
        active = np.flatnonzero(weights)
        every = np.arange(self.n_samples)
        for start, stop, blocks in self._lower_blocks(every, active):
            lower = out[start:stop, :stop]
            for j in active:
                lower += self.dtype.type(weights[j]) * blocks.kernel(self._nodes[j])
            out[:start, start:stop] = lower[:, :start].T
            square = lower[:, start:]
            square[:] = np.tril(square) + np.tril(square, -1).T  # rounding may differ between its two triangles
        return out

    def quadratics(self, V: ArrayLike) -> NDArray:
        vectors = self._checked_vectors(V)
        support = np.flatnonzero(vectors.any(axis=1))
        vectors = vectors[support]
        result = np.zeros(self.n_kernels)
        for start, stop, blocks in self._lower_blocks(support, range(self.n_kernels)):
            gram = vectors[start:stop] @ vectors[:stop].T
            gram[:, start:] *= 0.5  # the square on the diagonal holds both triangles; what is left of it counts twice
            for j, node in enumerate(self._nodes):
                result[j] += np.vdot(gram, blocks.kernel(node))
        return result

    def products(self, V: ArrayLike, samples: ArrayLike) -> NDArray:
        vectors = self._checked_vectors(V)
        support = np.flatnonzero(vectors.any(axis=1))
        wanted = self._sample_index(samples)
        out = np.zeros((self.n_kernels, len(wanted), vectors.shape[1]))
        for start, stop, blocks in self._row_blocks(wanted, support):
            for j, node in enumerate(self._nodes):
                out[j, start:stop] = blocks.kernel(node).astype(np.float64) @ vectors[support]
        return out[..., 0] if np.ndim(V) == 1 else out

    def rows(self, samples: ArrayLike) -> NDArray:
        wanted = self._sample_index(samples)
        out = np.empty((self.n_kernels, len(wanted), self.n_samples), self.dtype)
        for start, stop, blocks in self._row_blocks(wanted, np.arange(self.n_samples)):
            for j, node in enumerate(self._nodes):
                out[j, start:stop] = blocks.kernel(node)
        return out

    def diagonals(self) -> NDArray:
        out = np.empty((self.n_kernels, self.n_samples), self.dtype)
        for start in range(0, self.n_samples, ROWS_AT_ONCE):
            few = np.arange(start, min(start + ROWS_AT_ONCE, self.n_samples))
            for _, _, blocks in self._row_blocks(few, few):
                for j, node in enumerate(self._nodes):
                    out[j, few] = blocks.kernel(node).diagonal()
        return out

    def restrict(self, samples: ArrayLike) -> RecomputedBank:
        ids = self._ids[self._sample_index(samples)]
        return RecomputedBank(self.names, self._nodes, self._features, ids, self.dtype, self._columns)

    def select(self, kernels: ArrayLike) -> RecomputedBank:
        chosen = self._kernel_index(kernels)
        names, nodes = tuple(self.names[j] for j in chosen), tuple(self._nodes[j] for j in chosen)
        return RecomputedBank(names, nodes, self._features, self._ids, self.dtype, self._columns)

    def _right(self, columns: NDArray, kernels: Iterable[int]) -> RightRows:
        nodes = [self._nodes[j] for j in kernels]
        return RightRows(training_rows(self._features, nodes, self._ids[columns]), self.dtype)

    def _lower_blocks(self, samples: NDArray, kernels: Iterable[int]) -> Iterator[tuple[int, int, TrainingBlocks]]:
        """Blocks of rows of the kernels between ``samples``, each with the columns up to its last row."""
        right = self._right(samples, kernels)
        ids = self._ids[samples]
        for start in range(0, len(samples), ROWS_AT_ONCE):
            stop = min(start + ROWS_AT_ONCE, len(samples))
            yield start, stop, TrainingBlocks(self._features, ids[start:stop], ids[:stop], right)

    def _row_blocks(self, samples: NDArray, columns: NDArray) -> Iterator[tuple[int, int, TrainingBlocks]]:
        right = self._right(columns, range(self.n_kernels))
        for start in range(0, len(samples), ROWS_AT_ONCE):
            stop = min(start + ROWS_AT_ONCE, len(samples))
            yield start, stop, TrainingBlocks(self._features, self._ids[samples[start:stop]], self._ids[columns], right)


def _build_packed(store: Store, fitting: Fitting, columns: Any, track: Track) -> Bank:
    data = store.allocate(len(fitting.items), fitting.n, fitting.dtype)
    nodes = fit_completed(fitting, lambda j, shared: data[j], track)
    slots, ids = np.arange(len(nodes)), np.arange(fitting.n)
    data = store.finish(data)
    return PackedBank(store, data, slots, fitting.names, nodes, fitting.features, ids, fitting.dtype, columns)


def _build_in_memory(fitting: Fitting, spec: Any, track: Track) -> Bank:
    return _build_packed(Memory(), fitting, spec.columns, track)


def _build_in_files(fitting: Fitting, spec: Any, track: Track) -> Bank:
    directory = None if spec.directory is None else Path(spec.directory)
    return _build_packed(Files(directory), fitting, spec.columns, track)


def _build_recomputed(fitting: Fitting, spec: Any, track: Track) -> Bank:
    # Statistics of training data are taken from one kernel at a time, in two triangles that are then forgotten.
    scratch = np.empty((2, packed_length(fitting.n)), fitting.dtype)
    nodes = fit_completed(fitting, lambda j, shared: scratch[int(shared)], track)
    return RecomputedBank(fitting.names, nodes, fitting.features, np.arange(fitting.n), fitting.dtype, spec.columns)


#: A way to store a bank: a function of (fitting, the `KernelBank` that asks, progress) that returns a `Bank`.
Builder = Callable[[Fitting, Any, Track], Bank]
#: Those that keep exact kernel values on this machine.
STORAGES: dict[str, Builder] = {
    "packed": _build_in_memory,
    "memmap": _build_in_files,
    "recompute": _build_recomputed,
}
