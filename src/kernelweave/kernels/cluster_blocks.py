"""What one worker of a cluster keeps of a bank, and every operation on it.

The lower triangle of all kernels is cut into strips: `HEIGHT` rows with the columns up to the last of them, a plain
array (height, last) for each kernel, so that matrix products apply. The square on the diagonal is whole; what is left
of it stands for both triangles. A panel holds some strips of every kernel, so kernels are combined where they are.

Every number that is asked of a bank is a sum of what its panels answer. Panels know nothing of Dask.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numba
import numpy as np
from numba import njit
from numpy.typing import NDArray

from .._config import FASTMATH, in_threads
from .fitted import LazyRows, Leaf, Node, RightRows, TrainingBlocks
from .functions import Kernel
from .triangle import add_kernels, dots, in_fours

#: Rows of a strip: the same as are computed at a time in one process, so that values are rounded alike.
HEIGHT = 128
#: Rows converted to double precision at a time, so that they are still in the cache when they are multiplied.
CONVERTED = 32
#: Columns from which matrix products of copied rows and columns are faster than loops that look them up.
MANY_COLUMNS = 4
#: Entries added over all kernels at a time.
CHUNK = 16384


@dataclass(frozen=True)
class Strip:
    """Rows ``first`` to ``last - 1``, kept at ``begin`` and after in the flat arrays of a panel."""

    first: int
    last: int
    begin: int

    @property
    def height(self) -> int:
        """Number of rows."""
        return self.last - self.first

    @property
    def entries(self) -> slice:
        """Where it is in a flat array."""
        return slice(self.begin, self.begin + self.height * self.last)

    def of(self, flat: NDArray) -> NDArray:
        """The strip in flat entries of one kernel (or in those of several, stacked): (..., height, last)."""
        return flat[..., self.entries].reshape(*flat.shape[:-1], self.height, self.last)


def dealt(n: int, n_panels: int) -> list[list[Strip]]:
    """All strips, from the longest on, each dealt to the panel that has least; panels that get none are left out."""
    panels: list[list[Strip]] = [[] for _ in range(n_panels)]
    ends = [0] * n_panels
    for first in reversed(range(0, n, HEIGHT)):
        panel = ends.index(min(ends))
        panels[panel].append(Strip(first, min(first + HEIGHT, n), ends[panel]))
        ends[panel] = panels[panel][-1].entries.stop
    return [strips for strips in panels if strips]


def write_strips(strips: Iterable[Strip], flat: NDArray, out: NDArray) -> None:
    """Write strips, kept one after the other, into both triangles of ``out``."""
    for strip in strips:
        values = strip.of(flat)
        out[strip.first : strip.last, : strip.last] = values
        out[: strip.first, strip.first : strip.last] = values[:, : strip.first].T


# Messages name a quantity by a kernel that is made of it: there is one object for it on each side, which is not sent.


@dataclass(frozen=True)
class Means:
    """Asks for the sum, and the sum of squares, of the quantity of a kernel over pairs of different samples."""

    view: str
    kernel: Kernel


@dataclass(frozen=True, eq=False)
class Statistics:
    """Asks for the diagonal and the sums of the rows of a kernel that is fitted so far."""

    node: Node


@dataclass(frozen=True)
class Waiting:
    """A quantity that waits in the place of a kernel until what it is made into is known."""

    slot: int
    view: str
    kernel: Kernel


def waiting_of(nodes: Sequence[Node]) -> list[Waiting]:
    """The quantities of fitted kernels on one view, each in the place of the last kernel that is made of it."""
    last = {(node.view, node.kernel.quantity): (j, node) for j, node in enumerate(nodes) if isinstance(node, Leaf)}
    return [Waiting(slot, node.view, node.kernel) for slot, node in last.values()]


class Panel:
    """Some strips of every kernel of a bank.

    Parameters
    ----------
    strips : list of Strip
    n_kernels, n : int
        Kernels, and samples of the bank.
    dtype : str
        Precision of the kernel values.
    threads : int
        How many threads may work.
    """

    def __init__(self, strips: list[Strip], n_kernels: int, n: int, dtype: str, threads: int) -> None:
        self.strips = strips
        self.n = n
        self._threads = threads
        length = strips[-1].entries.stop if strips else 0
        self._data = np.empty((n_kernels, length), dtype)
        self._waiting: list[Waiting] = []
        self._features: Any = None
        self._right: Any = None
        self._ids = np.arange(n)
        self._combined: NDArray | None = None
        self._shared: tuple[str, NDArray] = ("", np.empty(0))
        self._combined_of: bytes | None = None
        self._lock = Lock()

    # -- building -----------------------------------------------------------------------------------------------------

    def load(self, features: Any, ids: NDArray) -> None:
        """Take the training data, and the numbers of the samples that the bank is about."""
        self._features, self._ids = features, ids
        self._right = self._unprepared()

    def hold(self, waiting: list[Waiting]) -> None:
        """Compute quantities into the places of the kernels that they are made into at the end."""
        for each in waiting:
            # One after the other: what is prepared of the features of all views would take as much memory as they do.
            self._right = self._unprepared()
            self._each(lambda strip, each=each: self._compute(strip, each))
        self._right = self._unprepared()
        self._waiting = waiting

    def _compute(self, strip: Strip, wanted: Waiting) -> None:
        strip.of(self._data[wanted.slot])[:] = self._blocks(strip).quantity(wanted.view, wanted.kernel.quantity)

    def answer(self, requests: Sequence[Means | Statistics]) -> list[NDArray]:
        """What fitting asks for: [sum, sum of squares], or [diagonal, row sums] of shape (2, n); this panel's part."""
        parts = [np.zeros(2) if isinstance(each, Means) else np.zeros((2, self.n)) for each in requests]

        def add(strip: Strip) -> None:
            blocks = self._blocks(strip)
            for request, part in zip(requests, parts, strict=True):
                if isinstance(request, Means):
                    values = blocks.quantity(request.view, request.kernel.quantity)
                    with self._lock:
                        _add_pairs(values, strip.first, part)
                else:
                    values = _values(blocks, request.node)
                    with self._lock:
                        _add_rows(values, strip.first, part)

        self._each(add)
        return parts

    def fill(self, nodes: tuple[Node, ...]) -> list[tuple[int, int, int, float]]:
        """Compute all kernels; returns (kernel, row, column, value) where one is not finite."""
        if not self._waiting:
            self.hold(waiting_of(nodes))
        held = {each.slot for each in self._waiting}
        order = sorted(range(len(nodes)), key=lambda j: j in held)  # a quantity is overwritten when no other needs it
        found: list[tuple[int, int, int, float]] = []

        def compute(strip: Strip) -> None:
            blocks = self._blocks(strip)
            for j in order:
                values = _values(blocks, nodes[j])
                square = values[:, strip.first :]
                square[:] = np.tril(square) + np.tril(square, -1).T  # rounding may differ between its two triangles
                strip.of(self._data[j])[:] = values
                if not np.isfinite(values).all():
                    row, column = (int(at[0]) for at in np.nonzero(~np.isfinite(values)))
                    found.append((j, strip.first + row, column, float(values[row, column])))

        self._each(compute)
        self._waiting, self._features, self._right = [], None, None
        return found

    def _unprepared(self) -> RightRows:
        return RightRows(LazyRows(self._features, self._ids), self._data.dtype)  # type: ignore[arg-type]

    def _blocks(self, strip: Strip) -> TrainingBlocks:
        columns = self._ids[: strip.last]
        blocks = TrainingBlocks(self._features, columns[strip.first :], columns, self._right)
        for each in self._waiting:
            blocks.give(each.view, each.kernel.quantity, strip.of(self._data[each.slot]))
        return blocks

    # -- operations on all kernels ------------------------------------------------------------------------------------

    def quadratics(self, slots: NDArray, support: NDArray, V: NDArray) -> NDArray:
        """Half of ``trace(V' K_j V)`` for every kernel; V has the rows ``support``, all others are zero."""
        slots, support = _writable(slots, support)
        spread = _spread(V, support, self.n)
        sums = np.zeros(len(slots))

        def add(strip: Strip) -> None:
            rows = _within(support, strip)
            begins = strip.begin + (rows - strip.first) * strip.last
            part = np.zeros(len(slots))
            # The square holds both triangles; what is left of it counts twice.
            if spread.shape[1] == 1:
                right = spread[: strip.last, 0].copy()
                right[strip.first :] *= 0.5
                _dot_rows_with_one(self._data, slots, begins, spread[rows, 0], right, part)
            else:
                gram = spread[rows] @ spread[: strip.last].T
                gram[:, strip.first :] *= 0.5
                _dot_rows(self._data, slots, begins, gram, part)
            with self._lock:
                np.add(sums, part, out=sums)

        self._each(add)
        return sums

    def products(self, slots: NDArray, support: NDArray, V: NDArray, samples: NDArray) -> NDArray:
        """``(K_j V)[samples]`` for every kernel, (n_kernels, len(samples), m); ``samples`` are sorted."""
        support, V, samples = _writable(support, V, samples)
        out = np.zeros((len(slots), len(samples), V.shape[1]))

        def add(place: int) -> None:
            flat = self._data[slots[place]]
            for strip in self.strips:
                _add_products(strip.of(flat), strip, support, V, samples, out[place])

        self._each_of(add, range(len(slots)))
        return out

    def rows(self, slots: NDArray, samples: NDArray) -> NDArray:
        """Rows of every kernel, (n_kernels, len(samples), n)."""
        out = np.zeros((len(slots), len(samples), self.n), self._data.dtype)
        for strip in self.strips:
            inside = np.flatnonzero((samples >= strip.first) & (samples < strip.last))
            above = np.flatnonzero(samples < strip.first)
            for place, slot in enumerate(slots):
                block = strip.of(self._data[slot])
                out[place, inside, : strip.last] = block[samples[inside] - strip.first]
                out[place, above, strip.first : strip.last] = block[:, samples[above]].T
        return out

    def diagonals(self, slots: NDArray) -> NDArray:
        """Diagonals of every kernel, (n_kernels, n)."""
        out = np.zeros((len(slots), self.n), self._data.dtype)
        for strip in self.strips:
            for place, slot in enumerate(slots):
                out[place, strip.first : strip.last] = strip.of(self._data[slot])[:, strip.first :].diagonal()
        return out

    # -- operations on a combined kernel ------------------------------------------------------------------------------

    def combined(self, slots: NDArray, weights: NDArray) -> NDArray:
        """The flat entries of a weighted sum of kernels; the last one asked for is kept."""
        key = slots.tobytes() + weights.tobytes()
        if self._combined is None or key != self._combined_of:
            if self._combined is None:
                self._combined = np.empty(self._data.shape[1], self._data.dtype)
            self._combined_of = None
            out, fours = self._combined, in_fours(slots, weights.astype(self._data.dtype))
            if len(slots):
                begins = range(0, len(out), 64 * CHUNK)
                self._each_of(lambda begin: _add_chunks(self._data, *fours, begin, out), begins)
            else:
                out[:] = 0
            self._combined_of = key
        return self._combined

    def write(self, path: str, slots: NDArray, weights: NDArray) -> bool:
        """Write a weighted sum of kernels to an array in memory that is shared; whether it is, on this machine."""
        if not os.path.exists(path):
            return False
        if self._shared[0] != path:  # to open it anew costs as much as to write to it
            self._shared = path, np.memmap(path, self._data.dtype, "r+", shape=(self.n, self.n))
        write_strips(self.strips, self.combined(slots, weights), self._shared[1])
        return True

    def product(self, slots: NDArray, weights: NDArray, support: NDArray, V: NDArray) -> NDArray:
        """``K V`` with a combined kernel, (n, m); V has the rows ``support``, all others are zero.

        Strips are multiplied in the precision of V, and added in double precision.
        """
        support, V = _writable(support, V)
        flat = self.combined(slots, weights)
        out = np.zeros((self.n, V.shape[1]))
        every = np.arange(self.n)

        def add(strip: Strip) -> None:
            part = np.zeros((strip.last, V.shape[1]))
            _add_products(strip.of(flat), strip, support, V, every[: strip.last], part)
            with self._lock:
                np.add(out[: strip.last], part, out=out[: strip.last])

        self._each(add)
        return out

    def block(self, slots: NDArray, weights: NDArray, rows: NDArray, columns: NDArray) -> NDArray:
        """``K[rows][:, columns]`` of a combined kernel."""
        flat = self.combined(slots, weights)
        out = np.zeros((len(rows), len(columns)), self._data.dtype)
        for strip in self.strips:
            values = strip.of(flat)
            inside, left = np.flatnonzero((rows >= strip.first) & (rows < strip.last)), columns < strip.last
            out[np.ix_(inside, left)] = values[np.ix_(rows[inside] - strip.first, columns[left])]
            inside = np.flatnonzero((columns >= strip.first) & (columns < strip.last))
            left = rows < strip.first
            out[np.ix_(left, inside)] = values[np.ix_(columns[inside] - strip.first, rows[left])].T
        return out

    def squares(self, slots: NDArray, weights: NDArray, height: int) -> list[NDArray]:
        """All blocks of ``height`` rows and the same columns along the diagonal of a combined kernel."""
        parts = (np.arange(first, min(first + height, self.n)) for first in range(0, self.n, height))
        return [self.block(slots, weights, part, part) for part in parts]

    def _each(self, function: Any) -> None:
        self._each_of(function, self.strips)

    def _each_of(self, function: Any, items: Sequence[Any]) -> None:
        numba.set_num_threads(min(self._threads, numba.config.NUMBA_NUM_THREADS))  # type: ignore[attr-defined]
        in_threads(function, items)


def _values(blocks: TrainingBlocks, node: Node) -> NDArray:
    with np.errstate(over="ignore", invalid="ignore"):  # a kernel that overflows is refused by name afterwards
        return blocks.kernel(node)


def _spread(V: NDArray, support: NDArray, n: int) -> NDArray:
    out = np.zeros((n, V.shape[1]))
    out[support] = V
    return out


def _writable(*arrays: NDArray) -> Any:
    """Arrays as loops are compiled for them: what comes over a network is read-only, which is another type."""
    return tuple(np.require(array, requirements=["C", "W"]) for array in arrays)


def _within(sorted_samples: NDArray, strip: Strip) -> NDArray:
    first, last = np.searchsorted(sorted_samples, (strip.first, strip.last))
    return sorted_samples[first:last]


def _add_products(block: NDArray, strip: Strip, support: NDArray, V: NDArray, samples: NDArray, out: NDArray) -> None:
    """Add what a strip has to ``(K V)[samples]``; ``V`` has the rows ``support`` of the vectors; both are sorted."""
    a, b = np.searchsorted(support, (strip.first, strip.last))
    c, d = np.searchsorted(samples, (strip.first, strip.last))
    scattered = isinstance(_run(support[:b]), np.ndarray) or isinstance(_run(samples[:d]), np.ndarray)
    if V.shape[1] < MANY_COLUMNS and scattered:
        _add_few(block, strip.first, support, V, samples, (a, b, c, d), out)
        return
    # As rows of the kernel, and as columns by symmetry.
    height = HEIGHT if block.dtype == V.dtype else CONVERTED
    for begin in range(c, d, height):
        end = min(begin + height, d)
        out[begin:end] += _picked(block, samples[begin:end] - strip.first, support[:b], V.dtype) @ V[:b]
    for begin in range(a, b, height):
        end = min(begin + height, b)
        out[:c] += _picked(block, support[begin:end] - strip.first, samples[:c], V.dtype).T @ V[begin:end]


def _picked(block: NDArray, rows: NDArray, columns: NDArray, dtype: np.dtype) -> NDArray:
    """Some rows and columns, given in order, in some precision."""
    part = block[_run(rows)]
    return part[:, _run(columns)].astype(dtype, copy=False)


def _run(numbers: NDArray) -> NDArray | slice:
    """Different sorted numbers as a slice, if there is no gap between them."""
    if len(numbers) and numbers[-1] - numbers[0] == len(numbers) - 1:
        return slice(int(numbers[0]), int(numbers[-1]) + 1)
    return numbers


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _add_few(block, first, support, V, samples, ends, out):
    a, b, c, d = ends
    for m in range(V.shape[1]):
        for r in range(c, d):
            row, total = block[samples[r] - first], 0.0
            for k in range(b):
                total += row[support[k]] * V[k, m]
            out[r, m] += total
        for k in range(a, b):
            row, v = block[support[k] - first], V[k, m]
            for r in range(c):
                out[r, m] += row[samples[r]] * v


@njit(cache=True, nogil=True)
def _add_chunks(data, slots, weights, begin, out):
    for low in range(begin, min(begin + 64 * CHUNK, out.size), CHUNK):
        high = min(low + CHUNK, out.size)
        add_kernels(data, slots, weights, low, high, out[low:high])


@njit(cache=True, nogil=True)
def _dot_rows(data, slots, begins, gram, sums):
    for a in range(begins.size):
        dots(data, slots, begins[a], gram[a], sums)


@njit(cache=True, nogil=True)
def _dot_rows_with_one(data, slots, begins, left, right, sums):
    """`_dot_rows` for the matrix left right', which need not be written."""
    row = np.empty(len(sums))
    for a in range(begins.size):
        row[:] = 0.0
        dots(data, slots, begins[a], right, row)
        sums += left[a] * row


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _add_pairs(block, first, sums):
    """Add the sum of the entries of a strip below the diagonal, and of their squares."""
    for r in range(block.shape[0]):
        total, squares = 0.0, 0.0
        for k in range(first + r):
            entry = np.float64(block[r, k])
            total += entry
            squares += entry * entry
        sums[0] += total
        sums[1] += squares


@njit(cache=True, nogil=True)
def _add_rows(block, first, out):
    """Add the diagonal to out[0], and the sums of the rows of the whole matrix that a strip knows of to out[1]."""
    diagonal, sums = out[0], out[1]
    for r in range(block.shape[0]):
        total = 0.0
        for k in range(first + r):
            total += block[r, k]
            sums[k] += block[r, k]
        sums[first + r] += total + block[r, first + r]
        diagonal[first + r] += block[r, first + r]
