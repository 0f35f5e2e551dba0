"""Soft-margin MKL, ours beside the published block descent over scikit-learn's SVC, in one process.

    python benchmarks/soft_margin.py [--quick] [--n 2000] [--limit 200] [--only fits|solvers]

Prints a row a comparison: both times, the ratio, the gaps reached and the number of SVM solves. The kernels are those
of the published protocol on data with eight variables: ten Gaussian widths and three polynomials, on all variables and
on each, 117 in all. The peer stops at --limit iterations if it has not reached the gap by then: its row says which gap
it reached, and the ratio is then only a lower bound.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numba
import numpy as np
import peers
from mkl import show, timed

from kernelweave.kernels import Gaussian, KernelBank, Polynomial
from kernelweave.machines import SVM
from kernelweave.solvers import SOLVERS, Saddle, Stopping, run
from kernelweave.views import Views
from kernelweave.weights import CappedSimplex, ElasticNet, PowerPenalty

GAP = 1e-3


def problem(n, d=8, seed=0):
    """Four variables tell the classes apart, in mean, in spread or together; the bank has 13 (d + 1) kernels."""
    rng = np.random.default_rng(seed)
    y = rng.choice([-1.0, 1.0], size=n)
    X = rng.normal(size=(n, d))
    X[:, 0] += 0.5 * y
    X[:, 1] *= np.where(y > 0, 1.6, 1.0)
    X[:, 3] = np.where(y > 0, X[:, 2], -X[:, 2]) * 0.4 + X[:, 3]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    views = Views({"all": X} | {f"x{j}": X[:, j : j + 1] for j in range(d)})
    kernels = [Gaussian(gamma=0.5 / 4.0**k) for k in range(-3, 7)] + [Polynomial(degree) for degree in (1, 2, 3)]
    return KernelBank(kernels, normalise="trace").build(views), y


def block_descent(Ks, y, C, weights, tol, limit):
    """The published loop: SVC on the combined kernel, then the closed-form weights; (gap, solves)."""
    b = weights.start(len(Ks))
    for solves in range(1, limit + 1):  # noqa: B007 (returned)
        J, S, h, *_ = peers.svm(Ks, y, C, b)
        gap = (J + weights.penalty(b) - (S - weights.support(h))) / abs(J + weights.penalty(b))
        if gap <= tol:
            break
        b = weights.update(b * np.sqrt(2 * np.maximum(h, 0)))
    return gap, solves


def fit(bank, y, C, weights, solver="auto", gap=GAP):
    return run(solver, Saddle(bank, SVM(C), weights, y[:, None], Stopping(gap, max_iter=2000)))


CASES = (
    ("SM1", CappedSimplex(nu=0.1)),
    ("SM1", CappedSimplex(nu=0.5)),
    ("SM2", ElasticNet(0.01)),
    ("SM2", ElasticNet(0.1)),
)


def fit_rows(bank, y, repeats, limit):
    stack = np.stack([bank.gram(j).astype(np.float64) for j in range(bank.n_kernels)])
    for C in (1.0, 10.0):
        for name, weights in CASES:
            ours, saddle = timed(lambda C=C, w=weights: fit(bank, y, C, w), repeats)
            begin = time.perf_counter()
            gap, solves = block_descent(stack, y, C, weights, GAP, limit)
            theirs = time.perf_counter() - begin
            active = np.count_nonzero(saddle.best.weights)
            note = f"ours: gap {saddle.gap:.1e}, {saddle.solves} solves, {active} kernels; "
            show(f"{name} {weights!r}, C={C:g}", ours, theirs, note + f"peer: gap {gap:.1e}, {solves} solves")


def solver_rows(bank, y):
    """Every solver on the same problems, to see why auto chooses as it does."""
    for name, weights in (*CASES, ("p-hinge", PowerPenalty(1.5, 0.1)), ("p-hinge", PowerPenalty(3.0, 0.1))):
        for solver in ("newton", "projected-gradient", "alternating", "mirror-descent", "level", "cutting-plane"):
            if not SOLVERS[solver].fits(weights):
                continue
            for C in (1.0, 10.0):
                begin = time.perf_counter()
                saddle = fit(bank, y, C, weights, solver)
                seconds = time.perf_counter() - begin
                print(f"{name:<8s} {weights!r:<36s} {solver:<20s} C={C:<4g} {seconds:8.3f} s  ", end="")
                print(f"{saddle.solves:4d} solves  gap {saddle.gap:.1e}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few samples, to see that it runs")
    parser.add_argument("--n", type=int, default=2000)
    parser.add_argument("--limit", type=int, default=200, help="iterations after which the peer is stopped")
    parser.add_argument("--only", choices=["fits", "solvers"], help="one part")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    bank, y = problem(200 if arguments.quick else arguments.n)
    print(f"{numba.get_num_threads()} threads; n={bank.n_samples}, {bank.n_kernels} kernels, relative gap {GAP:g}\n")
    if arguments.only != "solvers":
        print(f"{'':<52s} {'ours':>11s} {'peer':>11s} {'ratio':>9s}")
        fit_rows(bank, y, 1 if arguments.quick else 3, arguments.limit)
    if arguments.only != "fits":
        solver_rows(bank, y)


if __name__ == "__main__":
    main()
