"""Input-output kernels: what a candidate costs, where the time of a fit goes, and ours beside explicit matrices.

    python benchmarks/input_output.py [--quick] [--n 1500] [--candidates 20]

One semi-supervised fit (five kernels, ten labels, hard and soft margin) with the processor time of each of its parts,
the passes over the kernels against the number of candidates, and two pieces beside what a user of NumPy and
scikit-learn would write: combining and measuring M x T kernels that are stored as matrices, and the machine as a
one-class SVM. To measure one core, run with OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 NUMBA_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from contextlib import contextmanager

import numba
import numpy as np
from mkl import show, timed
from sklearn.svm import OneClassSVM

from kernelweave import InputOutputKernelClassifier, KernelBank
from kernelweave.ambiguity.label_search import LabelOracle
from kernelweave.generation.labelled_bank import InputKernels, LabelledBank
from kernelweave.kernels import Gaussian, InverseDistance, InverseSquaredDistance, Laplacian
from kernelweave.machines.simplex import SimplexSVM

KERNELS = [Gaussian(), Laplacian(), InverseSquaredDistance(), InverseDistance(), Gaussian(4.0)]


def problem(n, d=20, n_labelled=10, seed=0):
    """Two Gaussian clouds that overlap; the labels of few samples."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    X = rng.standard_normal((n, d)) + 0.35 * (2 * y[:, None] - 1)
    few = np.full(n, -1)
    few[:n_labelled] = y[:n_labelled]
    return X, y, few


@contextmanager
def clocks(*methods):
    """Processor seconds spent in some methods, (class, name), while the block runs."""
    seconds = defaultdict(float)
    before = [getattr(owner, name) for owner, name in methods]

    def watched(function, label):
        def call(*args, **settings):
            begin = time.process_time()
            try:
                return function(*args, **settings)
            finally:
                seconds[label] += time.process_time() - begin

        return call

    for (owner, name), function in zip(methods, before, strict=True):
        setattr(owner, name, watched(function, f"{owner.__name__}.{name}"))
    try:
        yield seconds
    finally:
        for (owner, name), function in zip(methods, before, strict=True):
            setattr(owner, name, function)


def fit_rows(X, y, few, most):
    hidden = few < 0
    for margin in ("soft", "hard"):
        # A tolerance that is not reached, so that all candidates are generated.
        model = InputOutputKernelClassifier(
            kernels=KERNELS, margin=margin, max_candidates=most, violation=0.0, tol=1e-4, balance=0.5
        )
        parts = [(LabelOracle, "propose"), (LabelledBank, "combine"), (LabelledBank, "quadratics")]
        parts += [(SimplexSVM, "solve"), (SimplexSVM, "curvature")]
        begin, busy = time.perf_counter(), time.process_time()
        with clocks(*parts) as seconds:
            model.fit(X, few)
        total, busy = time.perf_counter() - begin, time.process_time() - busy
        accuracy = np.mean(model.transduction_[hidden] == y[hidden])
        print(
            f"\n{margin} margin: {total:.2f} s ({busy:.2f} s of processor time), {model.weights_.shape[1]} candidates, "
            f"{model.n_solves_} solves, ",
            end="",
        )
        print(f"gap {model.gap_:.1e}, violation {model.violation_:.1e}, accuracy {accuracy:.3f}")
        for name, part in sorted(seconds.items(), key=lambda item: -item[1]):
            print(f"    {name:<28s} {part:7.2f} s  {100 * part / busy:5.1f} %")
        print(f"    {'kernels and the rest':<28s} {busy - sum(seconds.values()):7.2f} s")


def growth_rows(X, counts, repeats):
    """Processor time of one master solve's passes over the kernels against the number of candidates: a line."""
    inputs = InputKernels(KernelBank(KERNELS, normalise="center").build(X))
    rng = np.random.default_rng(0)
    out, a = np.empty((len(X), len(X)), np.float32), rng.random((len(X), 1))
    cost = []
    for count in counts:
        bank = LabelledBank(inputs, rng.choice([-1, 1], size=(count, len(KERNELS), len(X))).astype(np.int8))
        taken = []
        for _ in range(repeats):
            begin = time.process_time()
            bank.combine(rng.random(bank.n_kernels), out=out)
            bank.quadratics(a / a.sum())
            taken.append(time.process_time() - begin)
        cost.append(min(taken))
    slope, constant = np.polyfit(counts, cost, 1)
    line = ", ".join(f"{1e3 * seconds:.1f} ms ({count})" for count, seconds in zip(counts, cost, strict=True))
    print(
        f"\ncombine and quadratics against candidates: {line}: {1e3 * constant:.1f} + {1e3 * slope:.2f} ms a candidate"
    )


def piece_rows(X, counts, repeats):
    """Combining and measuring input-output kernels, ours beside a stack of matrices; and the machine."""
    n = len(X)
    inputs = InputKernels(KernelBank(KERNELS, normalise="center").build(X))
    rng = np.random.default_rng(0)
    a = rng.random((n, 1))
    a /= a.sum()
    for count in counts:
        signs = rng.choice([-1, 1], size=(count, len(KERNELS), n)).astype(np.int8)
        b = rng.random(count * len(KERNELS))
        bank = LabelledBank(inputs, signs)
        stack = np.stack(
            [K * np.outer(y, y).astype(np.float32) for c in signs for K, y in zip(inputs.values, c, strict=True)]
        )
        out = np.empty((n, n), np.float32)
        ours, K = timed(lambda bank=bank, b=b, out=out: bank.combine(b, out=out), repeats)
        theirs, _ = timed(lambda stack=stack, b=b: np.tensordot(b.astype(np.float32), stack, 1), repeats)
        memory = f"{stack.nbytes / 1e6:.0f} MB of matrices instead of {inputs.values.nbytes / 1e6:.0f}"
        show(f"combine, {count} candidates", ours, theirs, memory)
        v = a[:, 0].astype(np.float32)
        ours, _ = timed(lambda bank=bank: bank.quadratics(a), repeats)
        theirs, _ = timed(lambda stack=stack, v=v: 0.5 * (stack @ v) @ v, repeats)
        show(f"quadratics, {count} candidates", ours, theirs, "")
        del stack
        machine_row(K.copy(), repeats)


def machine_row(K, repeats):
    n = len(K)
    for C in (1.0, 100.0):
        ours, solution = timed(lambda C=C: SimplexSVM(C).solve(K, np.ones((n, 1)), accuracy=1e-4), repeats)
        ridged = K.astype(np.float64) + np.eye(n) / C
        peer = OneClassSVM(kernel="precomputed", nu=1 / n)
        theirs, _ = timed(lambda peer=peer, ridged=ridged: peer.fit(ridged), 1)
        a = np.zeros(n)
        a[peer.support_] = peer.dual_coef_[0]
        a /= a.sum()
        value = 0.5 * a @ ridged @ a
        show(f"machine, C={C:g}", ours, theirs, f"ours {-solution.dual:.6g}, theirs {value:.6g} (to be minimised)")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few samples, to see that it runs")
    parser.add_argument("--n", type=int, default=1500)
    parser.add_argument("--candidates", type=int, default=20)
    arguments = parser.parse_args()
    n, most = (200, 5) if arguments.quick else (arguments.n, arguments.candidates)
    small = problem(100)
    InputOutputKernelClassifier(kernels=KERNELS, max_candidates=2).fit(small[0], small[2])  # compiles
    X, y, few = problem(n)
    print(f"{numba.get_num_threads()} threads; n={n}, {len(KERNELS)} kernels, up to {most} candidates")
    fit_rows(X, y, few, most)
    growth_rows(X, (1, 5, 10, 20, 40), 1 if arguments.quick else 7)
    print(f"\n{'':<52s} {'ours':>11s} {'peer':>11s} {'ratio':>9s}")
    piece_rows(X, (most // 2, most), 1 if arguments.quick else 3)


if __name__ == "__main__":
    main()
