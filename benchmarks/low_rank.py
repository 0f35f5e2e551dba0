"""Kernels of low rank: a fit that would not fit in memory otherwise, and what the approximation costs in accuracy.

    python benchmarks/low_rank.py [--quick] [--n 100000] [--s 10] [--rank 256] [--exact 5000] [--data FOLDER]
                                  [--only large|accuracy|data]

The first part builds `--s` chi-squared kernels on histograms of 200 to 500 bins and learns their weights (l1, relative
gap 1e-3). It prints the seconds of each part, the peak of memory, and beside them the floor: the bytes of the features
over the measured bandwidth, times the passes that were made at least. The second part fits the exact kernels and their
approximations on `--exact` samples, and prints accuracies on as many new ones; the third does so on data sets.
"""

from __future__ import annotations

import argparse
import resource
import time
import warnings
from pathlib import Path

import numba
import numpy as np

import kernelweave as kw
from kernelweave._config import in_threads
from kernelweave.kernels import ChiSquared, Gaussian, KernelBank
from kernelweave.machines import SVM
from kernelweave.solvers import Saddle, Stopping, run
from kernelweave.weights import Simplex

GAP = 1e-3


def histograms(n, s, seed=0):
    """Views of 200 to 500 bins, counts of 500 words of 40 topics; in half of the views topics depend on the class."""
    rng = np.random.default_rng(seed)
    y = rng.choice([-1, 1], size=n)
    views = {}
    for j in range(s):
        d = int(np.linspace(200, 500, s)[j])
        topics = rng.dirichlet(np.full(d, 0.05), size=40)
        rates = rng.gamma(1.0, size=(2, 40))
        rates[1] = rates[0] if j % 2 else 0.7 * rates[0] + 0.3 * rates[1]
        array = np.empty((n, d), np.float32)
        for start in range(0, n, 5000):
            part = slice(start, min(start + 5000, n))
            shares = rng.gamma(0.3 * (2.0 + rates[(y[part] + 1) // 2]))
            array[part] = rng.poisson(500 * (shares / shares.sum(axis=1, keepdims=True)) @ topics)
        views[f"view{j}"] = array / np.maximum(array.sum(axis=1, keepdims=True), 1)
    flipped = rng.random(n) < 0.05
    return kw.Views(views), np.where(flipped, -y, y)


def peak():
    """Most memory this process has had, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def bandwidth():
    """Bytes a second that two sums side by side read from memory."""
    array = np.ones(1 << 27, np.float32)
    halves = np.array_split(array, numba.get_num_threads())
    best = np.inf
    for _ in range(3):
        begin = time.perf_counter()
        in_threads(np.sum, halves)
        best = min(best, time.perf_counter() - begin)
    return array.nbytes / best


def large(n, s, rank):
    begin = time.perf_counter()
    views, y = histograms(n, s)
    print(f"data: {time.perf_counter() - begin:.1f} s, {sum(views[name].nbytes for name in views.names) / 1e9:.2f} GB")
    bank = KernelBank(ChiSquared(), rank=rank)
    estimate = bank.estimate_bytes(n, n_views=s)
    begin = time.perf_counter()
    built = bank.build(views)
    building = time.perf_counter() - begin
    print(f"build: {building:.1f} s, {built.nbytes / 1e9:.2f} GB (estimated {estimate / 1e9:.2f})", flush=True)
    begin = time.perf_counter()
    saddle = Saddle(built, SVM(1.0), Simplex(), y[:, None].astype(float), Stopping(GAP), on_iteration=tell)
    run("auto", saddle)
    fitting = time.perf_counter() - begin
    rate = bandwidth()
    passes = 4 * saddle.solves  # of each solve: the start, the certificate at its end, and the quadratic forms
    floor = passes * built.nbytes / rate
    active = np.count_nonzero(saddle.best.weights)
    print(f"fit: {fitting:.1f} s, gap {saddle.gap:.1e}, {saddle.solves} solves, {active} kernels")
    print(f"floor: {passes} passes over {built.nbytes / 1e9:.2f} GB at {rate / 1e9:.1f} GB/s = {floor:.1f} s")
    print(f"together: {building + fitting:.1f} s, peak of memory {peak():.2f} GB", flush=True)


def tell(row):
    parts = " ".join(f"{name} {row['seconds_' + name]:.1f}" for name in ("combine", "machine", "quadratics", "master"))
    print(f"  {row['iteration']:3d}: gap {row['gap']:.1e}, {row['active']} kernels, {row['solves']} solves, {parts} s")


def accuracy(n, s, rank):
    views, y = histograms(2 * n, s, seed=1)
    compare(f"generated, n={n}", KernelBank(ChiSquared()), views, y, np.arange(n), np.arange(n, 2 * n), rank, C=1.0)


def real(folder, rank):
    """Sets of single arrays; the first half, shuffled, for training."""
    for name in ("ringnorm", "spambase", "optdigits", "letter"):
        (path,) = sorted(Path(folder).rglob(f"{name}.npz")) or [None]
        if path is None:
            print(f"{name}: not in {folder}")
            continue
        content = np.load(path, allow_pickle=False)
        X, y = content["X"].astype(np.float64), content["y"]
        X = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-12)
        order = np.random.default_rng(0).permutation(len(y))
        half = min(len(y) // 2, 5000)
        spec = KernelBank([Gaussian(0.1), Gaussian(0.3), Gaussian()])
        compare(f"{name}, n={half}", spec, kw.Views({"x": X}), y, order[:half], order[half : 2 * half], rank)


def compare(name, spec, views, y, train, test, rank, C=10.0):
    """Exact kernels beside several approximations of them."""
    ways = [(rank, "nystrom", "kmeans"), (rank, "nystrom", "leverage"), (rank, "nystrom", "uniform")]
    ways += [(rank, "fourier", "kmeans"), (rank // 4, "nystrom", "kmeans")]
    print(f"\n{name:<40s} {'accuracy':>8s} {'seconds':>9s} {'gap':>9s} {'kernels':>8s}")
    for way in (None, *ways):
        settings = {} if way is None else dict(zip(("rank", "approximation", "landmarks"), way, strict=True))
        begin = time.perf_counter()
        bank = KernelBank(spec.kernels, **settings)
        model = kw.MKLClassifier(bank, C=C, tol=GAP, sharing="sum").fit(views[train], y[train])
        seconds = time.perf_counter() - begin
        label = "exact" if way is None else f"rank {way[0]}, {way[1]}" + (f", {way[2]}" if way[1] == "nystrom" else "")
        score, active = model.score(views[test], y[test]), np.count_nonzero(model.weights_)
        print(f"{label:<40s} {score:8.4f} {seconds:9.1f} {model.gap_:9.1e} {active:8d}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few samples, to see that it runs")
    parser.add_argument("--n", type=int, default=100_000)
    parser.add_argument("--s", type=int, default=10)
    parser.add_argument("--rank", type=int, default=256)
    parser.add_argument("--exact", type=int, default=5000, help="samples of the comparison with exact kernels")
    parser.add_argument("--data", help="folder with data sets, to compare accuracies on them too")
    parser.add_argument("--only", choices=["large", "accuracy", "data"], help="one part")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    n, exact = (2000, 500) if given.quick else (given.n, given.exact)
    print(f"{numba.get_num_threads()} threads; n={n}, {given.s} kernels of rank {given.rank}, relative gap {GAP:g}")
    if given.only in (None, "large"):
        large(n, given.s, given.rank)
    if given.only in (None, "accuracy"):
        accuracy(exact, given.s, given.rank)
    if given.only in (None, "data") and given.data:
        real(given.data, given.rank)


if __name__ == "__main__":
    main()
