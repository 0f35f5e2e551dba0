"""Kernel banks beside scikit-learn and NumPy, in one run: medians of both times, and their ratio.

    python benchmarks/kernels.py [--quick]

Times of ours and of theirs are taken in turns, so that a busy machine disturbs both alike.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numba
import numpy as np
from numba import njit, prange
from numpy.typing import NDArray
from rows import Row, medians, print_rows
from sklearn.metrics.pairwise import chi2_kernel, rbf_kernel

from kernelweave.kernels import Bank, ChiSquared, Gaussian, KernelBank


def chi_squared_gram(quick: bool) -> Iterator[Row]:
    """Exponential chi-squared kernel of histograms, from the features to the full matrix."""
    n, d = (1000, 500) if quick else (2000, 1000)
    X = np.random.default_rng(0).random((n, d))
    X /= X.sum(axis=1, keepdims=True)
    all_threads = numba.get_num_threads()
    for threads in sorted({1, all_threads}):
        numba.set_num_threads(threads)
        ours, theirs = medians(3, lambda: KernelBank(ChiSquared()).build(X).gram(0), lambda: chi2_kernel(X))
        what = f"chi-squared Gram, n={n}, d={d}, {threads} thread{'s' * (threads > 1)}"
        yield Row(what, "sklearn chi2_kernel (1 thread)", ours, theirs, 20.0)
    numba.set_num_threads(all_threads)


def gaussian_grams(quick: bool) -> Iterator[Row]:
    """Ten Gaussian bandwidths on one view."""
    n = 1000 if quick else 2000
    for d in (100, 1000):
        X = np.random.default_rng(0).normal(size=(n, d))
        powers = 2.0 ** np.arange(-3, 7)
        ours, theirs = medians(
            5,
            lambda X=X, powers=powers: KernelBank([Gaussian(float(p)) for p in powers]).build(X),
            lambda X=X, powers=powers, d=d: [rbf_kernel(X, gamma=1 / (2 * d * p)) for p in powers],
        )
        yield Row(f"10 Gaussian Grams, n={n}, d={d}", "sklearn rbf_kernel, 10 times", ours, theirs, 3.0)


def whole_bank(quick: bool) -> Iterator[Row]:
    """Weighted sums and quadratic forms of 48 kernels."""
    n, s = (2000 if quick else 4000), 48
    X = np.random.default_rng(0).normal(size=(n, 8))
    bank = KernelBank([Gaussian(float(p)) for p in np.geomspace(0.1, 10, s)]).build(X)
    stack = np.empty((s, n, n))  # what a user without a bank holds
    for j in range(s):
        stack[j] = bank.gram(j)
    yield combine(bank, stack)
    yield quadratics(bank, stack)


def combine(bank: Bank, stack: NDArray) -> Row:
    """Weighted sum, also as a share of the bandwidth with which the bank can be read at all."""
    s, n = len(stack), stack.shape[1]
    weights = np.random.default_rng(1).random(s)
    out, full = np.empty((n, n), np.float32), np.empty((n, n))
    entries, sums = np.ravel(bank._data), np.empty(numba.get_num_threads(), np.float32)  # type: ignore[attr-defined]
    ours, theirs, reading = medians(
        9,
        lambda: bank.combine(weights, out=out),
        lambda: np.copyto(full, np.tensordot(weights, stack, axes=1)),
        lambda: _read(entries, sums),
    )
    assert np.allclose(out, full, rtol=1e-4)
    gigabytes = bank.nbytes / 1e9
    note = f"{gigabytes / ours:.1f} GB/s of {gigabytes / reading:.1f} read: {reading / ours:.0%} (reach 80 %)"
    return Row(f"combine, n={n}, s={s}", "np.tensordot, float64 stack", ours, theirs, 4.0, note)


def quadratics(bank: Bank, stack: NDArray) -> Row:
    """Quadratic forms of all kernels with twenty columns, as one-vs-rest needs them."""
    s, n = len(stack), stack.shape[1]
    V = np.random.default_rng(2).normal(size=(n, 20))
    ours, theirs = medians(3, lambda: bank.quadratics(V), lambda: np.array([(V * (K @ V)).sum() / 2 for K in stack]))
    return Row(f"quadratics, n={n}, s={s}, 20 columns", "one product per kernel, float64", ours, theirs, 5.0)


@njit(parallel=True, fastmath=True)
def _read(entries: NDArray, sums: NDArray) -> None:
    """Sum all entries: as fast as memory can be read by this many threads."""
    part = entries.size // sums.size
    for worker in prange(sums.size):
        mine = entries[worker * part : (worker + 1) * part]
        total = np.float32(0)
        for k in range(mine.size):
            total += mine[k]
        sums[worker] = total


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="smaller problems, for a look")
    quick = parser.parse_args().quick
    print(f"{numba.get_num_threads()} threads")
    print_rows(row for rows in (whole_bank, gaussian_grams, chi_squared_gram) for row in rows(quick))


if __name__ == "__main__":
    main()
