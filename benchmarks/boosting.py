"""LP-beta beside the same with SVC in a loop: 39 kernels, 17 classes, 700 samples.

    python benchmarks/boosting.py [--quick]

Both choose the cost of every kernel from six by five-fold cross-validation and train the machines on all samples. The
peer does so for a few of the kernels (said in the table), and its time is multiplied accordingly: all kernels are of
the same size, and the few are spread over good and bad ones. The linear programs are ours in both; their share of the
time of a fit is printed, for one nu and for nu chosen from nineteen.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray
from rows import Row, print_rows
from sklearn.model_selection import StratifiedKFold
from sklearn.svm import SVC

from kernelweave._config import in_threads
from kernelweave.boosting.estimators import COSTS, NUS
from kernelweave.boosting.out_of_fold import Trained, assign_folds, train_each
from kernelweave.boosting.programs import solve_path
from kernelweave.kernels import Bank, Gaussian, KernelBank
from kernelweave.views import Views

FOLDS = 5


def problem(n: int, n_kernels: int, n_classes: int) -> tuple[Bank, NDArray]:
    """Views between pure noise and good separation, a kernel each, and classes."""
    rng = np.random.default_rng(0)
    codes = np.arange(n) % n_classes
    views = {}
    for j, separation in enumerate(np.linspace(0.0, 0.6, n_kernels)):
        views[f"view{j}"] = rng.normal(size=(n, 30)) + separation * rng.normal(size=(n_classes, 30))[codes]
    return KernelBank(Gaussian()).build(Views(views)), codes


def loop_over_svc(K: NDArray, codes: NDArray) -> NDArray:
    """What a user of scikit-learn would write for one kernel: out-of-fold scores at the best cost, then a last fit."""
    classes = np.unique(codes)
    folds = list(StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(K, codes))
    best, reached = np.empty((len(codes), len(classes))), -1.0
    for C in COSTS:
        scores = np.empty((len(codes), len(classes)))
        for kept, held in folds:
            inner, outer = K[np.ix_(kept, kept)], K[np.ix_(held, kept)]
            for c in classes:
                machine = SVC(C=C, kernel="precomputed").fit(inner, codes[kept] == c)
                scores[held, c] = machine.decision_function(outer)
        if np.mean(scores.argmax(axis=1) == codes) > reached:
            best, reached, cost = scores, float(np.mean(scores.argmax(axis=1) == codes)), C
    for c in classes:
        SVC(C=cost, kernel="precomputed").fit(K, codes == c)
    return best


def seconds(function: Callable[[], object]) -> NDArray:
    """Seconds on the clock, and of processors: the latter tell more where other programs are busy."""
    begin = np.array([time.perf_counter(), time.process_time()])
    function()
    return np.array([time.perf_counter(), time.process_time()]) - begin


def median_seconds(function: Callable[[], object], repeats: int) -> NDArray:
    return np.median([seconds(function) for _ in range(repeats)], axis=0)


def processors(ours: NDArray, theirs: NDArray) -> str:
    return f"processor time {ours[1]:.1f} s against {theirs[1]:.1f} s"


def comparisons(quick: bool) -> Iterator[Row]:
    n, n_kernels, n_classes = (300, 9, 6) if quick else (700, 39, 17)
    bank, codes = problem(n, n_kernels, n_classes)
    fold = assign_folds(codes, np.unique(codes), FOLDS, random_state=0)
    few = np.linspace(0, n_kernels - 1, 3).astype(int)
    train_each(bank.select([0]), codes, fold, COSTS, 1e-3, None)  # compiles
    machines: list[Trained] = []

    def ours() -> None:
        machines[:] = train_each(bank, codes, fold, COSTS, 1e-3, None)

    grams = [bank.gram(int(j)).astype(float) for j in few]
    theirs = n_kernels * np.mean([seconds(partial(loop_over_svc, K, codes)) for K in grams], axis=0)
    own = median_seconds(ours, 1 if quick else 3)
    what = f"machines of {n_kernels} kernels, {n_classes} classes, n={n}"
    yield Row(what, f"SVC in a loop, from {len(few)} kernels", own[0], theirs[0], 5.0, processors(own, theirs))
    scores = np.stack([machine.scores for machine in machines], axis=1)

    def program(rows: NDArray, nus: tuple[float, ...]) -> None:
        list(solve_path(scores[rows], codes[rows], nus, per_class=False))

    everyone = np.ones(n, dtype=bool)
    one = median_seconds(lambda: program(everyone, (0.5,)), 3)
    many = one + median_seconds(lambda: in_threads(lambda k: program(fold != k, NUS), range(FOLDS)), 3)
    for name, lp in (("one nu", one), (f"nu of {len(NUS)} by {FOLDS} folds", many)):
        share = lp / (own + lp)
        note = f"; linear programs {lp[0]:.2f} s, {share[0]:.1%} of the fit ({share[1]:.1%} of processor time)"
        ours_in_all, theirs_in_all = own + lp, theirs + lp
        note = processors(ours_in_all, theirs_in_all) + note
        yield Row(f"whole fit, {name}", "the same with SVC in a loop", ours_in_all[0], theirs_in_all[0], 5.0, note)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smaller problem")
    print_rows(comparisons(parser.parse_args().quick))


if __name__ == "__main__":
    main()
