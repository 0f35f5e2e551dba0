"""Banks over the workers of a Dask cluster: kernels are built, combined and multiplied where they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import cluster_fitting
from .bank import Bank
from .checks import SUBSET, check_positive_block, refuse_value, subset
from .cluster_blocks import write_strips
from .cluster_shared import path_of, shared
from .cluster_workers import Cluster, Panels
from .fitting import Fitting, Track
from .operators import Operator, Running

#: A combined kernel of at most so many bytes is brought to the client, where compiled solvers are at home.
BROUGHT = 1 << 30


class ClusterBank(Bank):
    """Kernels in strips of rows over the workers of a Dask cluster; vectors and what is learned are on the client.

    Parameters
    ----------
    panels : Panels
        The strips, one panel a worker.
    slots : array of int of shape (n_kernels,)
        The kernels of the panels that belong to this bank.
    limit : int
        Bytes up to which a combined kernel is brought to the client.
    """

    parallel = "threads"

    def __init__(self, panels: Panels, slots: NDArray, limit: int, *description: Any) -> None:
        super().__init__(*description)
        self._panels, self._slots, self._limit = panels, slots, limit
        self._diagonals: NDArray | None = None

    @property
    def nbytes(self) -> int:
        return self._panels.nbytes

    @property
    def brought(self) -> bool:
        """Whether combined kernels come to the client as arrays; else they stay, as `ClusterKernel`."""
        return self.n_samples**2 * self.dtype.itemsize <= self._limit

    @property
    def has_blocks(self) -> bool:
        """Blocks of a kernel that stays with the workers are brought, if they are not too large.

        They are between samples inside their boxes: taken to be a quarter of all samples at most.
        """
        return self.brought or (self.n_samples / 4) ** 2 * self.dtype.itemsize <= BROUGHT

    def combine(self, weights: ArrayLike, out: Any = None) -> Any:
        """Weighted sum of the kernels: an array if that may be brought to the client, else a `ClusterKernel`."""
        checked = self._checked_weights(weights)
        if not self.brought:
            return ClusterKernel(self, checked)
        array = shared(self.n_samples, self.dtype) if out is None else None
        array = self._checked_out(out) if array is None else array
        path = path_of(array)
        if path is None or not all(self._panels.ask("write", path, *self._active(checked))):
            flats = self._panels.ask("combined", *self._active(checked))
            for strips, flat in zip(self._panels.strips, flats, strict=True):
                write_strips(strips, flat, array)
        return array

    def quadratics(self, V: ArrayLike) -> NDArray:
        return self._panels.add("quadratics", self._slots, *_rows_that_count(self._checked_vectors(V)))

    def products(self, V: ArrayLike, samples: ArrayLike) -> NDArray:
        vectors, wanted = self._checked_vectors(V), self._sample_index(samples)
        different, places = np.unique(wanted, return_inverse=True)
        out = self._panels.add("products", self._slots, *_rows_that_count(vectors), different)[:, places]
        return out[..., 0] if np.ndim(V) == 1 else out

    def rows(self, samples: ArrayLike) -> NDArray:
        return self._panels.add("rows", self._slots, self._sample_index(samples))

    def diagonals(self) -> NDArray:
        if self._diagonals is None:
            self._diagonals = self._panels.add("diagonals", self._slots)
        return self._diagonals

    def restrict(self, samples: ArrayLike) -> ClusterBank:
        """The same fitted kernels between some of the samples only, computed anew by the workers."""
        ids = self._ids[self._sample_index(samples)]
        load, fill = ("load", (self._features, ids)), ("fill", (self._nodes,))
        panels = Panels(self._panels.cluster, self.n_kernels, len(ids), self.dtype, load, fill)
        return self._like(panels, np.arange(self.n_kernels), self.names, self._nodes, ids)

    def select(self, kernels: ArrayLike) -> ClusterBank:
        chosen = self._kernel_index(kernels)
        names, nodes = tuple(self.names[j] for j in chosen), tuple(self._nodes[j] for j in chosen)
        return self._like(self._panels, self._slots[chosen], names, nodes, self._ids)

    def close(self) -> None:
        """Close a local cluster that was started for this bank now, and not when the bank is forgotten."""
        self._panels.cluster.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a bank on a cluster cannot be sent to other processes, which would not know its workers: send the "
            "KernelBank, and build it there"
        )

    def part(self, weights: NDArray, rows: NDArray, columns: NDArray) -> NDArray:
        """``K[rows][:, columns]`` of a weighted sum of the kernels."""
        return self._panels.add("block", *self._active(weights), rows, columns)

    def multiplied(self, weights: NDArray, V: NDArray) -> NDArray:
        """``K V`` with a weighted sum of the kernels, (n_samples, m)."""
        return self._panels.add("product", *self._active(weights), *_rows_that_count(V))

    def along_diagonal(self, weights: NDArray, height: int) -> list[NDArray]:
        """Blocks of ``height`` rows and the same columns of a weighted sum of the kernels, one after the other."""
        return _added(self._panels.ask("squares", *self._active(weights), height))

    def _active(self, weights: NDArray) -> tuple[NDArray, NDArray]:
        active = np.flatnonzero(weights)
        return self._slots[active], weights[active]

    def _like(self, panels: Panels, slots: NDArray, names: tuple, nodes: tuple, ids: NDArray) -> ClusterBank:
        return ClusterBank(panels, slots, self._limit, names, nodes, self._features, ids, self.dtype, self._columns)


class ClusterKernel(Operator):
    """A weighted sum of the kernels of a `ClusterBank`, added up by the workers at its first use and kept by them.

    They keep one at a time: the weights go with every question, and a worker that holds another sum adds up this one.

    Parameters
    ----------
    bank : ClusterBank
    weights : array of shape (n_kernels,)
    """

    def __init__(self, bank: ClusterBank, weights: NDArray) -> None:
        self._bank, self._weights = bank, weights
        self._squares: dict[int, NDArray] = {}
        self.shape = (bank.n_samples, bank.n_samples)
        self.dtype = bank.dtype

    def product(self, V: NDArray) -> NDArray:
        return self._bank.multiplied(self._weights, np.asarray(V, dtype=np.float64))

    def times(self, V: NDArray) -> NDArray:
        """``K @ V``, multiplied in the precision of the kernel."""
        return self._bank.multiplied(self._weights, np.asarray(V, dtype=self.dtype))

    def block(self, rows: NDArray, columns: NDArray) -> NDArray:
        needed = len(rows) * len(columns) * self.dtype.itemsize
        if needed > BROUGHT:
            raise MemoryError(
                f"a block of {len(rows)} rows and {len(columns)} columns needs {needed:,} bytes, more than the "
                f"{BROUGHT:,} that may be brought from the cluster: use a solver without second derivatives, such as "
                "'level' or 'alternating'"
            )
        return self._bank.part(self._weights, np.asarray(rows), np.asarray(columns))

    def diagonal(self) -> NDArray:
        return self._weights @ self._bank.diagonals()

    def square(self, rows: slice) -> NDArray:
        """``K[rows, rows]``, for rows that are cut into parts of the same height: all parts are brought at once."""
        if rows.start not in self._squares or len(self._squares[rows.start]) != rows.stop - rows.start:
            parts = self._bank.along_diagonal(self._weights, rows.stop - rows.start)
            self._squares = {k * (rows.stop - rows.start): part for k, part in enumerate(parts)}
        return self._squares[rows.start]

    def running(self, F: NDArray) -> Running:
        return _Running(self, F)

    def restrict(self, samples: NDArray) -> Any:
        """The same kernel between some of the samples."""
        active = np.flatnonzero(self._weights)
        return self._bank.select(active).restrict(samples).combine(self._weights[active])


class _Running(Running):
    """Blocks on the diagonal are brought once for all sweeps: a step is one call to the workers, and not two."""

    def block(self, rows: slice) -> NDArray:
        assert isinstance(self.K, ClusterKernel)
        return self.K.square(rows)


def build_on_cluster(fitting: Fitting, spec: Any, track: Track) -> ClusterBank:
    """Build a bank on the cluster that ``spec.cluster`` names."""
    cluster_fitting.refuse(fitting)
    waiting = cluster_fitting.waiting(fitting)
    limit = BROUGHT if spec.memory_limit is None else spec.memory_limit
    cluster = Cluster(spec.cluster)
    ids = np.arange(fitting.n)
    panels = Panels(cluster, len(fitting.items), fitting.n, fitting.dtype, ("load", (fitting.features, ids)))
    nodes: tuple = ()
    for stage in track(range(3)):
        if stage == 0:
            panels.settle("hold", waiting)
        elif stage == 1:
            nodes = cluster_fitting.fit(fitting, lambda requests: _added(panels.ask("answer", requests)))
        else:
            _check_values([at for found in panels.settle("fill", nodes) for at in found], fitting.names)
    description = (fitting.names, nodes, fitting.features, ids, fitting.dtype, spec.columns)
    bank = ClusterBank(panels, np.arange(len(nodes)), limit, *description)
    _check_positive(bank, fitting)
    return bank


def _check_values(found: Sequence[tuple[int, int, int, float]], names: tuple[str, ...]) -> None:
    for kernel, row, column, value in sorted(found)[:1]:
        refuse_value(names[kernel], row, column, value)


def _check_positive(bank: ClusterBank, fitting: Fitting) -> None:
    """Look at the eigenvalues of the kernels that have to be looked at."""
    some = subset(fitting.n, SUBSET)
    for j, item in enumerate(fitting.items):
        if fitting.check == "always" or (fitting.check == "auto" and not item.kernel.positive):
            weights = np.zeros(bank.n_kernels)
            weights[j] = 1.0
            check_positive_block(bank.part(weights, some, some).astype(np.float64), item.name)


def _added(answers: list[list[NDArray]]) -> list[NDArray]:
    return [np.sum(parts, axis=0) for parts in zip(*answers, strict=True)]


def _rows_that_count(V: NDArray) -> tuple[NDArray, NDArray]:
    """Numbers of the rows of V that are not zero, and these rows: nothing else need travel."""
    support = np.flatnonzero(V.any(axis=1))
    return support, V[support]
