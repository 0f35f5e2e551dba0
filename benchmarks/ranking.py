"""Label ranking, ML-kNN and shared kernel weights, ours beside what a user would write, in one process.

    python benchmarks/ranking.py [--quick] [--only svc,growth,sweep,knn,kernels,sharing,real] [--data FOLDER]

FOLDER (or the environment variable KERNELWEAVE_DATA) holds the sets of ``multilabel.py``. Prints a row a comparison:
both times, the ratio and the ratio aimed at. Times are medians of three, or one run where it takes more than twenty
seconds. Compiled loops are warmed up before. Everything that is drawn is seeded.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from functools import partial
from pathlib import Path

import numba
import numpy as np
import peers as core_peers
import ranking_peers as peers
from multilabel import load
from sklearn.datasets import make_multilabel_classification
from threadpoolctl import threadpool_info

from kernelweave import MKLClassifier, MLkNN
from kernelweave.datasets import make_views
from kernelweave.kernels import ChiSquared, Gaussian, KernelBank
from kernelweave.machines import MLRL1, Solution
from kernelweave.solvers import Saddle, Stopping, run
from kernelweave.views import Views
from kernelweave.weights import Simplex

GAP = 1e-3
#: A longer run than this, in seconds, is not repeated.
LONG = 20.0
#: Of more labels than the first number, the second stand for all in the peer's time, which is scaled.
MANY, SAMPLE = 100, 40


def histograms(n, m, labels=5, d=200, seed=0):
    """Bags of words of samples with about so many of m labels, as shares: chi-squared kernels, easy for the machine."""
    X, Y = make_multilabel_classification(n, d, n_classes=m, n_labels=labels, length=200, random_state=seed)
    return X / X.sum(axis=1, keepdims=True), np.where(Y > 0, 1.0, -1.0)


def latent(n, m, d=6, seed=0):
    """About five of m labels by where a sample is in six dimensions: Gaussian kernels with a long spectrum, hard."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    scores = np.tanh(X @ rng.normal(size=(d, m))) + 0.5 * rng.normal(size=(n, m))
    return X, np.where(scores > np.quantile(scores, 1 - 5 / m), 1.0, -1.0)


def easy(n, m, labels=5):
    X, Y = histograms(n, m, labels)
    return KernelBank([ChiSquared()]).build(X).gram(0), Y


def dense(n, m):
    """The same with a fifth of the labels: few are rare, so an SVM for each has most samples as support vectors."""
    return easy(n, m, labels=m // 5)


def hard(n, m):
    X, Y = latent(n, m)
    return KernelBank([Gaussian()]).build(X).gram(0), Y


def timed(function):
    """Median of three times, or the first if it was long, and the last result."""
    times = []
    while len(times) < 3 and not (times and times[0] > LONG):
        begin = time.perf_counter()
        result = function()
        times.append(time.perf_counter() - begin)
    return float(np.median(times)), result


def show(name, ours, theirs, aim="", note=""):
    print(f"{name:<64s} {ours:9.3f} s {theirs:9.3f} s {theirs / ours:8.1f}x {aim:>8s}   {note}", flush=True)


def tell(name, ours, note=""):
    print(f"{name:<64s} {ours:9.3f} s {'':>11s} {'':>9s} {'':>8s}   {note}", flush=True)


def warm_up():
    """Compile, or read from the cache, every loop that is timed, for kernels of both precisions."""
    K, Y = easy(80, 6)
    for precision in (np.float32, np.float64):
        MLRL1(1.0).solve(K.astype(precision), Y, start=MLRL1(1.0).solve(K.astype(precision), Y, accuracy=1e-5))


def svc_rows(quick):
    """MLR-L1 to the gap, against one SVC a label on the same kernel."""
    n = 400 if quick else 4000
    for name, problem, m, costs in (
        ("histograms", easy, 20, (1.0,)),
        ("histograms", easy, 100, (0.1, 1.0, 10.0)),
        ("histograms", easy, 400, (1.0,)),
        ("many labels each", dense, 100, (1.0, 10.0)),
        ("latent", hard, 20, (1.0,)),
        ("latent", hard, 100, (0.1, 1.0, 10.0)),
        ("latent", hard, 400, (1.0,)),
    ):
        compare_with_svc(name, *problem(n, m), costs)


def compare_with_svc(name, K, Y, costs):
    """A row a cost: MLR-L1 on a kernel against one SVC a label."""
    n, m = Y.shape
    K64 = K.astype(np.float64)
    labels = usable = np.flatnonzero((Y > 0).any(axis=0) & (Y < 0).any(axis=0))
    if m > MANY:
        labels = np.random.default_rng(0).choice(usable, SAMPLE, replace=False)
    part = f"; peer from {len(labels)} of {len(usable)} labels" if m > MANY else ""
    for C in costs:
        ours, solution = timed(lambda: MLRL1(C).solve(K, Y, accuracy=GAP))
        theirs, _ = timed(lambda: peers.one_vs_rest(K64, Y, C, labels))
        note = f"{solution.steps} sweeps, gap {solution.gap / solution.primal:.1e}{part}"
        aim = "20" if m == 100 else ""
        theirs *= len(usable) / len(labels)
        show(f"MLR-L1, {name}, n={n}, m={m}, C={C:g}: SVC a label", ours, theirs, aim, note)


def real_rows(quick, folder):
    """The same on real data: Gaussian kernels of the features as they come, up to 4000 samples, at most 100 labels."""
    if folder is None:
        print("real: give the folder of the multi-label sets with --data, rows left out")
        return
    for name in ("delicious@100", "bibtex@100", "corel5k@100", "mirflickr_pml"):
        X, Y, _ = load(folder, name)
        rows = np.random.default_rng(0).permutation(len(X))[: 400 if quick else 4000]
        K = KernelBank([Gaussian()]).build(X[rows]).gram(0)
        compare_with_svc(name.partition("@")[0], K, np.where(Y[rows] > 0, 1.0, -1.0), (6.0 / Y.shape[1], 1.0, 10.0))


def growth_rows(quick):
    """How the time to the gap grows with the number of labels."""
    n, sizes = (300, [25, 50, 100]) if quick else (2000, [25, 50, 100, 200, 400, 800])
    for name, problem in (("histograms", easy), ("latent", hard)):
        seconds, sweeps = [], []
        for m in sizes:
            K, Y = problem(n, m)
            ours, solution = timed(lambda: MLRL1(1.0).solve(K, Y, accuracy=GAP))
            seconds.append(ours)
            sweeps.append(solution.steps)
            tell(f"MLR-L1, {name}, n={n}, m={m}", ours, f"{solution.steps} sweeps")
        slope, of_a_sweep = (
            np.polyfit(np.log(sizes), np.log(np.array(seconds) / each), 1)[0] for each in (1.0, np.array(sweeps))
        )
        print(f"  slope of log time over log m: {slope:.2f}, aim 1.05; of the time of a sweep: {of_a_sweep:.2f}")


def sweep_row(quick):
    """One sweep over all samples, from the duals after one sweep, so that most labels are at work."""
    n, m = (400, 40) if quick else (4000, 200)
    K, Y = easy(n, m)
    machine = MLRL1(1.0)
    # The steps of solve(), without its certificate.
    work = machine._resume(K, Y, Solution(np.zeros(Y.shape), np.zeros(m), 0.0, 0.0, 0.0))
    machine._sweep(K, work)
    B = work.B.copy()
    K64 = K.astype(np.float64)
    rows = np.sort(np.random.default_rng(0).choice(n, min(n, 400), replace=False))
    ours, _ = timed(lambda: machine._sweep(K, work))
    theirs, _ = timed(lambda: peers.sweep(K64, Y, 1.0, B.copy(), rows))
    note = f"peer from {len(rows)} of {n} rows" if len(rows) < n else ""
    show(f"one sweep, n={n}, m={m}: row by row in NumPy", ours, theirs * n / len(rows), "10", note)


def knn_rows(quick):
    """ML-kNN, fit and probabilities of as many new samples."""
    n, m = (200, 10) if quick else (2000, 100)
    X, Y = histograms(2 * n, m)
    X, X_new, Y = X[:n], X[n:], Y[:n]
    ours, p = timed(lambda: MLkNN(n_neighbors=10).fit(X, Y).predict_proba(X_new))
    theirs, q = timed(lambda: peers.LoopMLkNN(10).fit(X, Y).predict_proba(X_new))
    show(
        f"ML-kNN, n={n}, m={m}: loops over samples and labels", ours, theirs, "", f"differ by {np.abs(p - q).max():.0e}"
    )
    try:
        from skmultilearn.adapt import MLkNN as PeerMLkNN
    except ImportError:
        print("ML-kNN: scikit-multilearn-ng is not installed (pip install scikit-multilearn-ng), row left out")
        return
    from scipy.sparse import csr_matrix

    tags = csr_matrix((Y > 0).astype(int))
    theirs, q = timed(lambda: PeerMLkNN(k=10).fit(csr_matrix(X), tags).predict_proba(csr_matrix(X_new)))
    note = f"differ by {np.abs(p - q.toarray()).max():.0e}"
    show(f"ML-kNN, n={n}, m={m}: scikit-multilearn-ng", ours, theirs, "30", note)


def bank_of_histograms(n, m):
    """Twelve chi-squared kernels: three widths on four views, blends of the samples' own histograms and of others'."""
    X, Y = histograms(n, m, d=400)
    rng = np.random.default_rng(1)
    views = {}
    for j, own in enumerate((1.0, 0.7, 0.4, 0.0)):
        part = X[:, 100 * j : 100 * (j + 1)]
        views[f"view{j}"] = own * part + (1 - own) * rng.permutation(part)
    return KernelBank([ChiSquared(0.5), ChiSquared(1.0), ChiSquared(2.0)]).build(Views(views)), Y


def kernels_rows(quick):
    """MK-MLR against the same cutting planes with one product a kernel and a cold machine."""
    n, m = (300, 10) if quick else (2000, 50)
    bank, Y = bank_of_histograms(n, m)

    def fit(solver):
        return run(solver, Saddle(bank, MLRL1(1.0), Simplex(), Y, Stopping(GAP)))

    fit("auto")  # to compile
    stack = np.stack([bank.gram(j).astype(np.float64) for j in range(bank.n_kernels)])
    theirs, (_, gap, rounds) = timed(lambda: peers.silp(stack, Y, MLRL1(1.0), GAP))
    for solver in ("auto", "level", "cutting-plane"):
        ours, saddle = timed(lambda: fit(solver))
        name = f"MK-MLR, {bank.n_kernels} kernels, n={n}, m={m}, {solver}: SILP, cold"
        note = f"ours: gap {saddle.gap:.1e}, {saddle.solves} solves; peer: gap {gap:.1e}, {rounds} rounds"
        show(name, ours, theirs, "10" if solver == "auto" else "", note)
        print(f"  {np.count_nonzero(saddle.best.weights)} kernels; seconds: {parts(saddle.history)}")


def parts(history):
    """Where the time of a fit went."""
    return ", ".join(f"{p} {history[-1][f'seconds_{p}']:.3f}" for p in ("combine", "machine", "quadratics", "master"))


def sharing_rows(quick):
    """One weight vector for all classes, against one MKL a class: whole fits from views, and predictions."""
    n, classes = (150, 10) if quick else (1500, 100)
    views, y = make_views(2 * n, 8, 4, 4, n_classes=classes, n_features=20, separation=3.0, random_state=0)
    train, test = np.arange(n), np.arange(n, 2 * n)
    bank = KernelBank([Gaussian(0.5), Gaussian(1.0), Gaussian(2.0)])
    building, _ = timed(lambda: bank.build(views[train]))
    name = f"{classes} classes, {3 * len(views.names)} kernels, n={n}"
    tell(f"{name}: the bank, part of each fit", building)

    def fit(sharing, solver="auto"):
        model = MKLClassifier(bank, sharing=sharing, solver=solver, C=10.0, tol=GAP, random_state=0)
        return model.fit(views[train], y[train])

    def outcome(model):
        used = np.count_nonzero(np.any(np.atleast_2d(model.weights_) > 0, axis=0))
        return f"gap {model.gap_:.1e}, {used} kernels, accuracy {model.score(views[test], y[test]):.3f}"

    apart, one_each = timed(lambda: fit("none"))
    predict_apart, _ = timed(lambda: one_each.predict(views[test]))
    together, shared = timed(lambda: fit("sum"))
    show(f"{name}: one MKL a class", together, apart, "20", f"ours: {outcome(shared)}; peer: {outcome(one_each)}")
    print(f"  ours, seconds: {parts(shared.history_)}")
    built = bank.build(views[train])
    stack = np.stack([built.gram(j).astype(np.float64) for j in range(built.n_kernels)])
    few = 2 if quick else 5
    loops, _ = timed(
        lambda: [core_peers.newton(stack, np.where(y[train] == k, 1.0, -1.0), 10.0, GAP) for k in range(few)]
    )
    loops = building + loops * classes / few
    show(f"{name}: one Newton loop over SVC a class", together, loops, "20", f"peer from {few} classes, our bank")
    predict, _ = timed(lambda: shared.predict(views[test]))
    show(f"predict {n} samples: one MKL a class", predict, predict_apart)
    for solver in ("stochastic", "level"):
        worst, model = timed(lambda: fit("worst-case", solver))
        show(f"worst case, {solver}: one MKL a class", worst, apart, "", outcome(model))


SECTIONS = {
    "svc": svc_rows,
    "growth": growth_rows,
    "sweep": sweep_row,
    "knn": knn_rows,
    "kernels": kernels_rows,
    "sharing": sharing_rows,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--only", default=",".join([*SECTIONS, "real"]), help="sections, separated by commas")
    parser.add_argument("--data", type=Path, default=os.environ.get("KERNELWEAVE_DATA"), help="folder, for real")
    arguments = parser.parse_args()
    sections = SECTIONS | {"real": partial(real_rows, folder=arguments.data)}
    chosen = arguments.only.split(",")
    if unknown := set(chosen) - set(sections):
        parser.error(f"no section named {', '.join(sorted(unknown))}; there are {', '.join(sections)}")
    warnings.simplefilter("ignore")
    warm_up()
    blas = max(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")
    threads = f"{numba.get_num_threads()} threads, {blas} in BLAS"
    print(f"{threads}; medians of three, runs above {LONG:g} s once; gap {GAP:g}\n")
    print(f"{'':<64s} {'ours':>11s} {'peer':>11s} {'ratio':>9s} {'aim':>8s}")
    for name in chosen:
        sections[name](arguments.quick)


if __name__ == "__main__":
    main()
