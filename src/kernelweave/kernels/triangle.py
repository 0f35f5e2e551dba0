"""Loops over packed kernels: one row of ``data`` is the lower triangle of a symmetric matrix, row after row.

Entry (i, k) with k <= i of an n x n kernel stands at ``i * (i + 1) // 2 + k``, so any run of rows is one contiguous
stretch of memory. ``data`` has the shape (n_slots, n * (n + 1) // 2); ``slots`` says which of its rows are meant.
"""

from __future__ import annotations

import numba
import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

from .._config import FASTMATH, in_threads, parallel_loop

ROW_BLOCK = 16  # rows mirrored at a time: sixteen single-precision numbers are one cache line of the other triangle
CHUNK = 16384  # entries summed over all kernels before moving on: short stretches waste the hardware's reading ahead

ROWS_AT_ONCE = 256  # rows unpacked for a matrix product
MANY_COLUMNS = 16  # from here on matrix products are faster than loops


def packed_length(n: int) -> int:
    """Length of the packed lower triangle of an n x n matrix."""
    return n * (n + 1) // 2


def diagonal_positions(n: int) -> NDArray:
    """Positions (n,) of the diagonal in a packed triangle."""
    return np.arange(n) * (np.arange(n) + 3) // 2


def pack_rows(block: NDArray, first: int, packed: NDArray) -> None:
    """Write rows ``first, first + 1, ...`` of a kernel, given at least up to their diagonal, into ``packed``."""
    for a, row in enumerate(block):
        i = first + a
        start = packed_length(i)
        packed[start : start + i + 1] = row[: i + 1]


def combine(data: NDArray, slots: NDArray, weights: NDArray, out: NDArray) -> None:
    """Write the weighted sum of packed kernels into ``out`` (n, n), both triangles."""
    if len(slots) == 0:
        out[:] = 0
        return
    slots, weights = in_fours(slots, weights)
    with parallel_loop(len(slots) * data.shape[1]):
        _combine(data, slots, weights, out, np.empty((numba.get_num_threads(), CHUNK), out.dtype))


def in_fours(slots: NDArray, weights: NDArray) -> tuple[NDArray, NDArray]:
    """Four kernels are added at a time; one that is in the cache anyway, with weight zero, fills up the last four."""
    missing = -len(slots) % 4
    return np.append(slots, np.repeat(slots[-1:], missing)), np.append(weights, np.zeros(missing, weights.dtype))


def quadratics(data: NDArray, slots: NDArray, V: NDArray) -> NDArray:
    """Half of trace(V' K_j V) for every kernel j, from one pass over the rows where V (n, m) is not zero.

    With G = V V', that is the sum of the entries of K_j times those of G: G is formed once for all kernels, run by run.
    """
    support = np.flatnonzero(V.any(axis=1))
    starts = np.empty(len(support) + 1, np.intp)
    starts = starts[: _run_starts(support, starts)]
    n_workers = numba.get_num_threads()
    partial = np.zeros((n_workers, len(slots)))
    gram = np.empty((n_workers, max(CHUNK, len(V))))
    with parallel_loop((len(slots) + V.shape[1]) * packed_length(len(support))):
        _quadratics(data, slots, support, starts, _plain(V), _plain(V.T), gram, partial)
    return partial.sum(axis=0)


def _plain(array: NDArray) -> NDArray:
    """An array of the one kind the loops are compiled for: read-only ones would be compiled for again."""
    return np.require(array, np.float64, ["C", "W"])


def products(data: NDArray, slots: NDArray, V: NDArray, samples: NDArray) -> NDArray:
    """``(K_j V)[samples]`` for every kernel: (n_kernels, n_samples, m), from one pass over the rows that matter.

    Many columns are multiplied by BLAS, in the precision of the kernels.
    """
    used = np.union1d(np.flatnonzero(V.any(axis=1)), samples)
    if V.shape[1] >= MANY_COLUMNS:
        vectors, wanted = V[used].astype(data.dtype), np.searchsorted(used, samples)
        return np.stack(in_threads(lambda slot: _product_of_blocks(data[slot], used, vectors)[wanted], slots))
    sums = np.zeros((len(slots), V.shape[1], len(used)))
    buffer = np.empty((len(slots), 4, len(used)), data.dtype)
    with parallel_loop(sums.size * len(used)):
        _products(data, slots, used, _plain(V[used].T), buffer, sums)
    return np.ascontiguousarray(sums[:, :, np.searchsorted(used, samples)].transpose(0, 2, 1))


def _product_of_blocks(packed: NDArray, used: NDArray, V: NDArray) -> NDArray:
    """``K[used][:, used] @ V``, summed in double precision over blocks of rows of the triangle: (n_used, m)."""
    out = np.zeros(V.shape)
    buffer = np.empty((ROWS_AT_ONCE, len(used)), packed.dtype)
    for first in range(0, len(used), ROWS_AT_ONCE):
        last = min(first + ROWS_AT_ONCE, len(used))
        block = buffer[: last - first, :last]
        _unpack_block(packed, used, first, block)
        out[first:last] += block @ V[:last]
        out[:first] += block[:, :first].T @ V[first:last]
    return out


def rows(data: NDArray, slots: NDArray, samples: NDArray, out: NDArray) -> None:
    """Write whole rows of every kernel into ``out`` (n_kernels, n_samples, n)."""
    with parallel_loop(out.size):
        _rows(data, slots, samples, out)


def restrict(data: NDArray, slots: NDArray, samples: NDArray, out: NDArray) -> None:
    """Write the packed triangles of ``K_j[samples][:, samples]`` into the rows of ``out``."""
    with parallel_loop(out.size):
        _restrict(data, slots, samples, out)


@njit(cache=True, nogil=True, fastmath=FASTMATH, parallel=True)
def _combine(data, slots, weights, out, scratch):
    n = out.shape[0]
    n_blocks = (n + ROW_BLOCK - 1) // ROW_BLOCK
    n_workers = scratch.shape[0]
    for worker in prange(n_workers):
        # Every worker takes blocks from the whole range, because later rows are longer.
        for block in range(worker, n_blocks, n_workers):
            first = block * ROW_BLOCK
            last = min(first + ROW_BLOCK, n)
            low, end = first * (first + 1) // 2, last * (last + 1) // 2
            i, column = first, 0
            while low < end:
                high = min(low + CHUNK, end)
                add_kernels(data, slots, weights, low, high, scratch[worker])
                i, column = _unpack(scratch[worker, : high - low], i, column, out)
                low = high
            _mirror(out, first, last)


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def add_kernels(data, slots, weights, low, high, scratch):
    """Write the weighted sum of entries ``low`` to ``high - 1`` of kernels, a multiple of four, to ``scratch``."""
    total = scratch[: high - low]
    total[:] = 0
    for j in range(0, slots.size, 4):
        _add_four(
            data[slots[j], low:high],
            data[slots[j + 1], low:high],
            data[slots[j + 2], low:high],
            data[slots[j + 3], low:high],
            weights[j : j + 4],
            total,
        )


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _add_four(a, b, c, d, weights, total):
    wa, wb, wc, wd = weights[0], weights[1], weights[2], weights[3]
    for k in range(total.size):
        total[k] += (wa * a[k] + wb * b[k]) + (wc * c[k] + wd * d[k])


@njit(cache=True, nogil=True)
def _unpack(entries, i, column, out):
    """Write packed entries, which begin at (i, column), into the rows of ``out``; return where the next ones begin."""
    done = 0
    while done < entries.size:
        count = min(i + 1 - column, entries.size - done)
        out[i, column : column + count] = entries[done : done + count]
        done += count
        column += count
        if column > i:
            i, column = i + 1, 0
    return i, column


@njit(cache=True, nogil=True)
def _mirror(out, first, last):
    for k in range(last):
        for i in range(max(first, k + 1), last):
            out[k, i] = out[i, k]


@njit(cache=True, nogil=True)
def _run_starts(support, starts):
    """Cut sorted rows into runs without gaps of at most `CHUNK` packed entries (or one row).

    Writes the position where every run begins, then the number of rows; returns how many numbers were written.
    """
    runs, length = 0, 0
    for a in range(support.size):
        length += support[a] + 1
        if a == 0 or support[a] != support[a - 1] + 1 or length > CHUNK:
            starts[runs] = a
            runs += 1
            length = support[a] + 1
    starts[runs] = support.size
    return runs + 1


@njit(cache=True, nogil=True, fastmath=FASTMATH, parallel=True)
def _quadratics(data, slots, support, starts, V, transposed, gram, partial):
    n_workers = partial.shape[0]
    for worker in prange(n_workers):
        for run in range(worker, starts.size - 1, n_workers):
            first = support[starts[run]]
            low, length = first * (first + 1) // 2, 0
            for a in range(starts[run], starts[run + 1]):
                i = support[a]
                _gram_row(V[i], transposed, gram[worker, length : length + i + 1])
                length += i + 1
            dots(data, slots, low, gram[worker, :length], partial[worker])


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _gram_row(v, transposed, row):
    """Write the inner products of one row of V with the rows up to itself; its own counts half."""
    row[:] = 0.0
    m = 0
    while m + 4 <= v.size:
        a, b, c, d = transposed[m], transposed[m + 1], transposed[m + 2], transposed[m + 3]
        va, vb, vc, vd = v[m], v[m + 1], v[m + 2], v[m + 3]
        for k in range(row.size):
            row[k] += (va * a[k] + vb * b[k]) + (vc * c[k] + vd * d[k])
        m += 4
    while m < v.size:
        a, va = transposed[m], v[m]
        for k in range(row.size):
            row[k] += va * a[k]
        m += 1
    row[row.size - 1] *= 0.5


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def dots(data, slots, low, gram, sums):
    """Add the inner products of ``gram`` with the entries of every kernel from ``low`` on to ``sums``."""
    high = low + gram.size
    j = 0
    while j + 4 <= slots.size:
        a, b = data[slots[j], low:high], data[slots[j + 1], low:high]
        c, d = data[slots[j + 2], low:high], data[slots[j + 3], low:high]
        sa, sb, sc, sd = 0.0, 0.0, 0.0, 0.0
        for k in range(gram.size):
            sa += a[k] * gram[k]
            sb += b[k] * gram[k]
            sc += c[k] * gram[k]
            sd += d[k] * gram[k]
        sums[j] += sa
        sums[j + 1] += sb
        sums[j + 2] += sc
        sums[j + 3] += sd
        j += 4
    while j < slots.size:
        a, sa = data[slots[j], low:high], 0.0
        for k in range(gram.size):
            sa += a[k] * gram[k]
        sums[j] += sa
        j += 1


@njit(cache=True, nogil=True, fastmath=FASTMATH, parallel=True)
def _products(data, slots, used, V, buffer, sums):
    for j in prange(slots.size):
        packed = data[slots[j]]
        for first in range(0, used.size, 4):
            height = min(4, used.size - first)
            for r in range(height):
                start = used[first + r] * (used[first + r] + 1) // 2
                for b in range(first + r + 1):
                    buffer[j, r, b] = packed[start + used[b]]
            for m in range(V.shape[0]):
                _corner(buffer[j], first, height, V[m], sums[j, m])
                if height == 4:
                    _four_rows(buffer[j], first, V[m], sums[j, m])
                else:
                    for r in range(height):
                        _one_row(buffer[j, r], first, first + r, V[m], sums[j, m])


@njit(cache=True, nogil=True)
def _unpack_block(packed, used, first, out):
    """Write rows first, first + 1, ... of the kernel between the samples ``used``, up to the last of them."""
    for r in range(out.shape[0]):
        start = used[first + r] * (used[first + r] + 1) // 2
        for b in range(first + r + 1):
            out[r, b] = packed[start + used[b]]
        for c in range(r):
            out[c, first + r] = out[r, first + c]


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _corner(rows, first, height, v, sums):
    """Add the products with the square of rows first, ..., first + height - 1 and the same columns."""
    for r in range(height):
        sums[first + r] += rows[r, first + r] * v[first + r]
        for c in range(r):
            sums[first + r] += rows[r, first + c] * v[first + c]
            sums[first + c] += rows[r, first + c] * v[first + r]


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _four_rows(rows, first, v, sums):
    """Add the products with four rows left of the corner: as rows, and as columns by symmetry."""
    a, b, c, d = rows[0, :first], rows[1, :first], rows[2, :first], rows[3, :first]
    va, vb, vc, vd = v[first], v[first + 1], v[first + 2], v[first + 3]
    sa, sb, sc, sd = 0.0, 0.0, 0.0, 0.0
    left = sums[:first]
    for k in range(first):
        sa += a[k] * v[k]
        sb += b[k] * v[k]
        sc += c[k] * v[k]
        sd += d[k] * v[k]
        left[k] += (va * a[k] + vb * b[k]) + (vc * c[k] + vd * d[k])
    sums[first] += sa
    sums[first + 1] += sb
    sums[first + 2] += sc
    sums[first + 3] += sd


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _one_row(row, first, i, v, sums):
    total = 0.0
    for k in range(first):
        total += row[k] * v[k]
        sums[k] += row[k] * v[i]
    sums[i] += total


@njit(cache=True, nogil=True, parallel=True)
def _rows(data, slots, samples, out):
    for j in prange(slots.size):
        packed = data[slots[j]]
        for a in range(samples.size):
            i = samples[a]
            start = i * (i + 1) // 2
            for k in range(i + 1):
                out[j, a, k] = packed[start + k]
        # Right of the diagonal the packed rows of the other samples are read one after another, for all of `samples`.
        for k in range(out.shape[2]):
            start = k * (k + 1) // 2
            for a in range(samples.size):
                if samples[a] < k:
                    out[j, a, k] = packed[start + samples[a]]


@njit(cache=True, nogil=True, parallel=True)
def _restrict(data, slots, samples, out):
    for j in prange(slots.size):
        packed = data[slots[j]]
        place = 0
        for a in range(samples.size):
            for b in range(a + 1):
                i, k = max(samples[a], samples[b]), min(samples[a], samples[b])
                out[j, place] = packed[i * (i + 1) // 2 + k]
                place += 1


@njit(cache=True, nogil=True)
def gather(packed, samples, out):
    """Write ``K[samples][:, samples]`` of one packed kernel into ``out``."""
    for a in range(samples.size):
        for b in range(a + 1):
            i, k = max(samples[a], samples[b]), min(samples[a], samples[b])
            out[a, b] = out[b, a] = packed[i * (i + 1) // 2 + k]


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def sum_and_squares(packed):
    """Sum of the entries and of their squares, double precision."""
    total, squares = 0.0, 0.0
    for k in range(packed.size):
        entry = np.float64(packed[k])
        total += entry
        squares += entry * entry
    return total, squares


@njit(cache=True, nogil=True)
def row_sums(packed, sums):
    """Write the sums of the rows of the whole symmetric matrix into ``sums`` (n,), double precision."""
    sums[:] = 0.0
    for i in range(sums.size):
        start = i * (i + 1) // 2
        total = 0.0
        for k in range(i):
            total += packed[start + k]
            sums[k] += packed[start + k]
        sums[i] += total + packed[start + i]


@njit(cache=True, nogil=True)
def scale_rows_and_columns(packed, factors):
    """Multiply entry (i, k) by ``factors[i] * factors[k]`` in place."""
    for i in range(factors.size):
        start = i * (i + 1) // 2
        for k in range(i + 1):
            packed[start + k] *= factors[i] * factors[k]


@njit(cache=True, nogil=True)
def subtract_from_rows_and_columns(packed, means, total):
    """Subtract ``means[i] + means[k] - total`` from entry (i, k) in place."""
    for i in range(means.size):
        start = i * (i + 1) // 2
        for k in range(i + 1):
            packed[start + k] -= means[i] + means[k] - total
