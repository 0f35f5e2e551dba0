"""A bank over two Dask workers on this machine, beside one process that keeps it in a file.

    python benchmarks/cluster.py [--quick] [--n 8000] [--s 20] [--workers 2] [--gap 1e-6] [--directory ...] [--stay]

Chi-squared and Gaussian kernels on histograms; l1 weights, an SVM, the same relative gap for both. The memory limit of
a worker is below the size of the bank, so that no worker could keep all of it. Prints the seconds of each part, the
floor (bytes of the bank over the measured bandwidth, times the passes that were made), the ratio, and how far weights
and scores of new samples are apart. With --stay combined kernels stay with the workers, as they do when they are larger
than memory_limit, and the machine works with products; then the gap should be 1e-4 or so.
"""

from __future__ import annotations

import argparse
import importlib.util
import tempfile
import time
import warnings

import numba
import numpy as np
from low_rank import bandwidth, histograms

from kernelweave.kernels import ChiSquared, Gaussian, KernelBank
from kernelweave.kernels.cluster_workers import start_workers
from kernelweave.machines import SVM
from kernelweave.solvers import Saddle, Stopping, run
from kernelweave.weights import Simplex

#: Share of the bank that a worker has memory for: its own half, and what Python, buffers and Dask need beside it.
SHARE, OVERHEAD = 0.75, 500_000_000


def fitted(views, y, gap, **place):
    """Weights and scores of a fit somewhere, with its books and seconds."""
    begin = time.perf_counter()
    bank = KernelBank([ChiSquared(), Gaussian()], **place).build(views)
    building = time.perf_counter() - begin
    begin = time.perf_counter()
    saddle = run("auto", Saddle(bank, SVM(1.0), Simplex(), y[:, None], Stopping(gap, max_iter=1000)))
    return bank, saddle, building, time.perf_counter() - begin


def scored(bank, saddle, new):
    point = saddle.best
    support = np.flatnonzero(point.solution.coef.any(axis=1))
    expansion = bank.expansion(np.arange(bank.n_kernels), support)
    return expansion.scores(new, point.effective, point.solution.coef[support]) + point.solution.intercept


def told(name, saddle, building, fitting):
    row = saddle.history[-1]
    parts = ", ".join(f"{part} {row['seconds_' + part]:.1f}" for part in ("combine", "machine", "quadratics", "master"))
    print(f"{name:<10s} build {building:6.1f} s, fit {fitting:6.1f} s ({parts}); {saddle.solves} solves", end="")
    print(f", gap {saddle.gap:.1e}", flush=True)


def compare(given, directory):
    from distributed import Client

    views, y = histograms(given.n + 1000, given.s // 2)
    new, views, y = views[given.n :], views[: given.n], y[: given.n].astype(float)
    size = given.s * given.n * (given.n + 1) // 2 * 4
    # A process needs more beside its kernels than a small bank has, so small ones have no limit.
    limit = int(SHARE * size + OVERHEAD) if given.n >= 5000 else 0
    print(f"bank {size / 1e9:.2f} GB; {given.workers} workers, memory limit {limit / 1e9:.2f} GB each", flush=True)
    with (
        start_workers(given.workers, memory_limit=limit) as workers,
        Client(workers, direct_to_workers=True) as client,
    ):
        few = np.arange(300)
        for place in ({"cluster": client}, {"storage": "memmap", "directory": directory}):
            fitted(views[few], y[few], 1e-3, **place)  # compiles
        on_cluster = {"cluster": client} | ({"memory_limit": 0} if given.stay else {})
        bank, over, *ours = fitted(views, y, given.gap, **on_cluster)
        told("cluster", over, *ours)
        scores = scored(bank, over, new)
        del bank
    bank, single, *theirs = fitted(views, y, given.gap, storage="memmap", directory=directory)
    told("memmap", single, *theirs)
    apart = np.abs(scores - scored(bank, single, new)).max()
    weights = np.abs(over.best.weights - single.best.weights).max()
    rate = bandwidth()
    passes = 1 + 2 * single.solves  # written once; then every solve has one sum of all kernels, and their energies
    print(
        f"floor      {passes} passes over {size / 1e9:.2f} GB at {rate / 1e9:.1f} GB/s = {passes * size / rate:.1f} s"
    )
    print(f"ratio      {sum(theirs) / sum(ours):.2f} (memmap over cluster; 1 or more: not slower)")
    print(f"apart      weights {weights:.1e}, scores of {len(scores)} new samples {apart:.1e}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few samples, to see that it runs")
    parser.add_argument("--n", type=int, default=8000)
    parser.add_argument("--s", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--gap", type=float, default=1e-6)
    parser.add_argument("--directory", help="where the file of the single process is; default: a temporary directory")
    parser.add_argument("--stay", action="store_true", help="combined kernels stay with the workers")
    given = parser.parse_args()
    if importlib.util.find_spec("distributed") is None:
        print("Dask is not installed: pip install 'kernelweave[cluster]'. Nothing was run.")
        return
    warnings.simplefilter("ignore")
    given.n = 600 if given.quick else given.n
    print(f"{numba.get_num_threads()} threads; n={given.n}, {given.s} kernels, relative gap {given.gap:g}")
    with tempfile.TemporaryDirectory() as temporary:
        compare(given, given.directory or temporary)


if __name__ == "__main__":
    main()
