"""Infinite kernel learning beside l1-MKL on a grid of 200 kernels of the same family, from features to a fitted model.

    python benchmarks/infinite.py [--quick] [--n 1000 2000]

Prints a row a problem: both times (medians), the ratio, both objectives, and how many kernels were generated. The grid
is as fine as it has to be to reach the objective of the search, up to the tolerance of both.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numba
import numpy as np

from kernelweave import MKLClassifier
from kernelweave.datasets import make_chessboard, make_two_clouds
from kernelweave.infinite import InfiniteKernelClassifier
from kernelweave.kernels import Gaussian, GaussianFamily, KernelBank

TOL = 1e-3
LARGEST = 30.0
KERNELS = 200


def standardised(X):
    return (X - X.mean(axis=0)) / X.std(axis=0)


def additive(n, d=10, seed=0):
    """Classes that depend on a sum of functions of single features: what kernels of one feature are for."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    score = np.sin(3 * X[:, 0]) + X[:, 1] ** 2 - 1 + 0.7 * X[:, 2] + np.sin(5 * X[:, 3])
    return X, np.sign(score + 0.5 * rng.standard_normal(n))


def problems(n):
    """Name, samples, labels, kind of the family, columns and rates of the grid."""
    for name in ("ringnorm", "twonorm"):
        X, y = make_two_clouds(name, n, random_state=0)
        yield name, standardised(X), y, "single", None, np.geomspace(1e-3, LARGEST, KERNELS)
    X, y = make_chessboard(n, n_noise=2, gap=0.0, random_state=0)
    yield "chessboard", X, y, "single", None, np.geomspace(1e-3, LARGEST, KERNELS)
    X, y = additive(n)
    rates = np.geomspace(1e-2, LARGEST, KERNELS // X.shape[1])
    yield "additive", X, y, "separate", {f"feature{d}": [d] for d in range(X.shape[1])}, rates


def timed(function, repeats):
    """Median seconds after one run to warm up, and the last result."""
    function()
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        result = function()
        seconds.append(time.perf_counter() - begin)
    return float(np.median(seconds)), result


def row(name, X, y, kind, columns, rates, C, repeats):
    grid = KernelBank([Gaussian(gamma=float(rate)) for rate in rates], columns=columns)
    family = GaussianFamily(kind, LARGEST)
    ours, model = timed(lambda: InfiniteKernelClassifier(family, C=C, tol=TOL).fit(X, y), repeats)
    theirs, mkl = timed(lambda: MKLClassifier(grid, "l1", C=C, tol=TOL).fit(X, y), repeats)
    history = model.history_
    print(
        f"{name:<11s} {kind:<9s} n={len(y)} C={C:<4g} {ours:8.3f} s {theirs:8.3f} s {theirs / ours:7.1f}x   "
        f"objective {model.objective_:.6g} / {mkl.objective_:.6g} ({model.objective_ / mkl.objective_ - 1:+.0e}); "
        f"{history['generated'][-1]} generated, {len(model.kernels_)} used / {np.count_nonzero(mkl.weights_)} of "
        f"{len(mkl.weights_)}; search {history['seconds_search'].sum():.3f} s, "
        f"{'certified' if model.certified_ else 'NOT certified'} gap {model.gap_:.0e}",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--n", type=int, nargs="+", default=[1000, 2000])
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    sizes, repeats = ([300], 1) if arguments.quick else (arguments.n, 3)
    print(f"{numba.get_num_threads()} threads; medians of {repeats}; ours / l1-MKL on {KERNELS} kernels, gap {TOL:g}\n")
    for n in sizes:
        for problem in problems(n):
            for C in (1.0, 10.0):
                row(*problem, C, repeats)


if __name__ == "__main__":
    main()
