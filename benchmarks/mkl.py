"""SVM duals and whole MKL fits, ours beside what a user would write with scikit-learn, in one process.

    python benchmarks/mkl.py [--quick] [--peers all|fast] [--n 2000 4000]

Prints a row a comparison: both times (medians), the ratio, the gaps reached and the number of SVM solves.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
import warnings

import numba
import numpy as np
import peers
from sklearn.svm import SVC

from kernelweave.kernels import Gaussian, KernelBank
from kernelweave.machines import SVM
from kernelweave.solvers import Saddle, Stopping, run
from kernelweave.views import Views
from kernelweave.weights import LpBall, Simplex

GAP = 1e-3


def problem(n, s=48, seed=0):
    """Sixteen views of which eight carry strong, medium or weak information, three Gaussian kernels on each."""
    rng = np.random.default_rng(seed)
    y = rng.choice([-1.0, 1.0], size=n)
    views = {}
    for j in range(s // 3):
        X = rng.normal(size=(n, 6))
        strength = [0.9, 0.5, 0.25][j % 3] if j < s // 6 else 0.0
        X[:, 0] += strength * y
        X[:, 1] *= np.where(y > 0, 1 + strength, 1.0)
        views[f"view{j}"] = X
    return KernelBank([Gaussian(0.5), Gaussian(1.0), Gaussian(2.0)]).build(Views(views)), y


def timed(function, repeats):
    """Median time after one run to warm up, and the last result."""
    function()
    return median(function, repeats)


def median(function, repeats):
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        result = function()
        times.append(time.perf_counter() - begin)
    return float(np.median(times)), result


def show(name, ours, theirs, note=""):
    print(f"{name:<52s} {ours:9.3f} s {theirs:9.3f} s {theirs / ours:8.1f}x   {note}", flush=True)


def svm_rows(n, repeats):
    """The SVM dual on a given K: cold, and along the kernels that an l1 fit visits."""
    bank, y = problem(n)
    for C in (1.0, 10.0, 100.0):
        path = []
        saddle = Saddle(bank, SVM(C), Simplex(), y[:, None], Stopping(GAP))
        keep = saddle.evaluate

        def remember(weights, near=None, accuracy=None, keep=keep, path=path):
            path.append(weights)
            return keep(weights, near, accuracy)

        saddle.evaluate = remember
        run("level", saddle)
        kernels = [bank.combine(w) for w in path[-8:]]
        K, K64 = kernels[-1], kernels[-1].astype(np.float64)
        machine, Y = SVM(C), y[:, None]
        theirs, model = timed(lambda C=C, K64=K64: SVC(C=C, kernel="precomputed", cache_size=2000).fit(K64, y), repeats)
        accuracy = relative_gap(K64, y, C, model)
        ours, solution = timed(lambda m=machine, K=K, a=accuracy: m.solve(K, Y, accuracy=a), repeats)
        note = f"same gap {accuracy:.1e}; {len(model.support_)} support vectors, {solution.steps} steps"
        show(f"SVM dual, cold, n={n}, C={C:g}", ours, theirs, note)

        def warm(m=machine, kernels=kernels, a=accuracy):
            solution = m.solve(kernels[0], Y, accuracy=a)
            begin = time.perf_counter()
            for K in kernels[1:]:
                solution = m.solve(K, Y, start=solution, accuracy=a)
            return time.perf_counter() - begin

        warm()
        ours = float(np.median([warm() for _ in range(repeats)]))
        doubles = [K.astype(np.float64) for K in kernels[1:]]
        theirs, _ = timed(lambda C=C, d=doubles: [SVC(C=C, kernel="precomputed").fit(K, y) for K in d], repeats)
        show(f"SVM dual, warm, {len(doubles)} kernels of an MKL path, C={C:g}", ours, theirs)


def relative_gap(K, y, C, model):
    """The gap at which SVC stopped, so that both solve the same problem equally well."""
    v = np.zeros(len(y))
    v[model.support_] = model.dual_coef_[0]
    f = K @ v + model.intercept_[0]
    quadratic = 0.5 * v @ K @ v
    primal = quadratic + C * np.maximum(0, 1 - y * f).sum()
    return (primal - (np.abs(v).sum() - quadratic)) / primal


def fit(bank, y, C, weights, solver="auto"):
    return run(solver, Saddle(bank, SVM(C), weights, y[:, None], Stopping(GAP)))


def mkl_rows(n, repeats, slow):
    bank, y = problem(n)
    stack = np.stack([bank.gram(j).astype(np.float64) for j in range(bank.n_kernels)])
    for C in (1.0, 10.0):
        ours, saddle = timed(lambda C=C: fit(bank, y, C, Simplex()), repeats)
        row = saddle.history[-1]
        parts = ", ".join(f"{p} {row[f'seconds_{p}']:.3f}" for p in ("combine", "machine", "quadratics", "master"))
        print(f"l1-MKL n={n} s={bank.n_kernels} C={C:g}: gap {saddle.gap:.1e}, {saddle.solves} solves, ", end="")
        print(f"{np.count_nonzero(saddle.best.weights)} kernels; seconds: {parts}")
        competitors = {"newton over SVC + NumPy": peers.newton, "level over SVC": peers.level}
        if slow:
            competitors["SILP over SVC + HiGHS"] = peers.silp
        for name, peer in competitors.items():
            tries = 1 if peer is peers.silp else min(repeats, 3)  # SILP takes minutes
            theirs, (_, gap, solves) = median(lambda peer=peer, C=C: peer(stack, y, C, GAP), tries)
            show(f"l1-MKL n={n}, C={C:g}: {name}", ours, theirs, f"peer: gap {gap:.1e}, {solves} solves")
        ours, saddle = timed(lambda C=C: fit(bank, y, C, LpBall(2.0)), repeats)
        theirs, (_, gap, solves) = median(lambda C=C: peers.group_lasso(stack, y, C, GAP), min(repeats, 3))
        note = f"ours: {saddle.solves} solves; peer: gap {gap:.1e}, {solves} solves"
        show(f"l2-MKL n={n}, C={C:g}: MKL-GL over SVC", ours, theirs, note)
    easy_mkl(stack, y, bank, n)


def easy_mkl(stack, y, bank, n):
    try:
        from MKLpy.algorithms import EasyMKL
    except ImportError:
        print("EasyMKL: MKLpy is not installed (pip install MKLpy), row left out")
        return
    import torch

    kernels = [torch.from_numpy(K) for K in stack]
    theirs, _ = median(
        lambda: EasyMKL(lam=0.1, learner=SVC(C=1.0, kernel="precomputed")).fit(kernels, torch.tensor(y)), 3
    )
    ours, saddle = timed(lambda: fit(bank, y, 1.0, Simplex()), 3)
    show(f"MKLpy EasyMKL + SVC, n={n}", ours, theirs, f"ours: gap {saddle.gap:.1e}; peer: none given")


def solver_rows(n, repeats):
    """Every solver on the same problem, to see why auto chooses as it does."""
    bank, y = problem(n)
    for weights, solvers in (
        (Simplex(), ("newton", "level", "projected-gradient", "mirror-descent", "alternating", "cutting-plane")),
        (LpBall(2.0), ("newton", "alternating", "cutting-plane", "projected-gradient", "level")),
        (LpBall(4.0), ("newton", "alternating", "cutting-plane")),
        (LpBall(1.1), ("newton", "alternating", "cutting-plane")),
    ):
        for solver in solvers:
            for C in (1.0, 10.0):
                seconds, saddle = timed(lambda w=weights, s=solver, C=C: fit(bank, y, C, w, s), 1)
                print(f"{weights!r:<16s} {solver:<20s} C={C:<5g} {seconds:8.3f} s  {saddle.solves:4d} solves", end="")
                print(f"  gap {saddle.gap:.1e}  kernel reads {saddle.adds}", flush=True)


def growth_rows(repeats, sizes, kernels):
    """How the time of an l1 fit grows: slopes on log-log axes."""
    seconds = []
    for n in sizes:
        bank, y = problem(n)
        seconds.append(timed(lambda: fit(bank, y, 1.0, Simplex()), repeats)[0])
        print(f"l1 fit, s=48, n={n}: {seconds[-1]:.3f} s", flush=True)
    print(f"slope in n: {np.polyfit(np.log(sizes), np.log(seconds), 1)[0]:.2f}")
    seconds = []
    for s in kernels:
        bank, y = problem(2000, s)
        seconds.append(timed(lambda: fit(bank, y, 1.0, Simplex()), repeats)[0])
        print(f"l1 fit, n=2000, s={s}: {seconds[-1]:.3f} s", flush=True)
    print(f"slope in s: {np.polyfit(np.log(kernels), np.log(seconds), 1)[0]:.2f}")


def memory_row(n):
    """Peak memory of a fit beyond the bank, in units of n^2 float32."""
    bank, y = problem(n)
    for name, weights in (("l1", Simplex()), ("l2", LpBall(2.0))):
        fit(bank, y, 10.0, weights)
        tracemalloc.start()
        fit(bank, y, 10.0, weights)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        beyond = peak / (4 * n * n)
        print(f"peak memory of an {name} fit, n={n}: bank ({bank.nbytes / 1e6:.0f} MB) + {beyond:.2f} n^2 floats")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--peers", choices=["all", "fast"], default="all", help="fast leaves out the SILP loop")
    parser.add_argument("--n", type=int, nargs="+", default=[2000, 4000])
    parser.add_argument("--only", choices=["svm", "mkl", "solvers", "growth", "memory"], help="one part")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    sizes, repeats = ([400], 1) if arguments.quick else (arguments.n, 5)

    def wanted(part):
        return arguments.only in (None, part)

    print(f"{numba.get_num_threads()} threads; medians of {repeats}, of three for whole fits of peers, SILP once\n")
    print(f"{'':<52s} {'ours':>11s} {'peer':>11s} {'ratio':>9s}")
    for n in sizes:
        if wanted("svm"):
            svm_rows(n, repeats)
        if wanted("mkl"):
            mkl_rows(n, repeats, arguments.peers == "all")
    if wanted("solvers"):
        solver_rows(sizes[0], repeats)
    if wanted("growth"):
        growth_rows(repeats, [300, 600] if arguments.quick else [500, 1000, 2000, 4000], [12, 24, 48, 96])
    if wanted("memory"):
        memory_row(sizes[0])


if __name__ == "__main__":
    main()
