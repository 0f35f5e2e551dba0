"""Alternation and annealing beside the same loops over cold fits, in one process.

    python benchmarks/multiple_instance.py --data FOLDER [--sets musk1 elephant] [--limit 120]

FOLDER holds ``NAME.npz`` with X (n_instances, d), bag (n_instances,) and y (n_bags,). The kernel, Gaussian of the
median distance between instances, is given to all. Two peers take the turns of the published loops, each solve from
scratch:

* scikit-learn: ``SVC(kernel="precomputed")``. The squared hinge is its hard margin on a kernel with 1 / (2 w) added to
  the diagonal, on rows that are there twice where a label is not decided; tolerance 1e-3, the default.
* NumPy: Newton's method by the published formula, one Cholesky factorisation a step, until the active samples stay.

Probabilities are computed by our compiled code for all. Everything runs on one thread, and seconds are those of the
processor, so that other work on the machine counts little. A peer that has not ended after --limit seconds is stopped:
its row then says how many solves it did, and the ratio is a lower bound. Our solves are turns of an alternation, and
Newton steps on the free energy of annealing.

MI-SVM begins with the first instances here, for ours and for the peers. Last, annealing beside alternation: the loops
alone, as means over the training bags of ten folds, where MI-SVM begins with the means of bags as published, and solves
their machine first; and fits as a user calls them, from the instances, kernel included, and on a kernel that is given.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from pathlib import Path

import numpy as np
from mkl import show
from scipy.linalg import cho_factor, cho_solve
from scipy.spatial.distance import pdist, squareform
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

from kernelweave.ambiguity import BagKFold, Bags, MIClassifier
from kernelweave.ambiguity.annealing import Schedule, alternate, anneal
from kernelweave.ambiguity.hidden import InstanceLabels, Witnesses
from kernelweave.machines.squared_hinge import WeightedProblem
from kernelweave.views import KernelStack

ACCURACY = 1e-6
#: Weights below this share of C are nothing to the peers.
DUST = 1e-9


class OutOfTime(Exception):
    """A peer has run for too long."""


class ColdNewton:
    """The published formula: exact Newton steps from zero, halved while they do not lower the objective."""

    def __init__(self, K):
        self.K = K

    def scores(self, w_plus, w_minus):
        K, n = self.K, len(self.K)
        beta, b, f = np.zeros(n), 0.0, np.zeros(n)
        value, pattern = np.inf, None
        while True:
            plus, minus = w_plus * (f < 1), w_minus * (f > -1)
            S = np.flatnonzero(plus + minus)
            if pattern is not None and np.array_equal(pattern, (plus > 0, minus > 0)):
                return f
            pattern = (plus > 0, minus > 0)
            W = (plus + minus)[S]
            A = K[np.ix_(S, S)]
            A[np.diag_indices(len(S))] += 0.5 / W
            factor = cho_factor(A, lower=True, overwrite_a=True, check_finite=False)
            u, v = cho_solve(factor, (plus - minus)[S] / W), cho_solve(factor, np.ones(len(S)))
            new_b = u.sum() / v.sum()
            new = np.zeros(n)
            new[S] = u - new_b * v
            share, g = 1.0, K @ new + new_b
            while True:
                at = f + share * (g - f)
                mixed, mixed_b = beta + share * (new - beta), b + share * (new_b - b)
                loss = w_plus @ np.maximum(1 - at, 0) ** 2 + w_minus @ np.maximum(1 + at, 0) ** 2
                tried = 0.5 * mixed @ (at - mixed_b) + loss
                if tried <= value or share < 1e-6:
                    break
                share /= 2
            beta, b, f, value = mixed, mixed_b, at, tried


class ColdSVC:
    """scikit-learn on duplicated rows: a hard margin, with what the weights are worth on the diagonal."""

    def __init__(self, K):
        self.K = K

    def scores(self, w_plus, w_minus):
        plus, minus = np.flatnonzero(w_plus), np.flatnonzero(w_minus)
        rows = np.concatenate([plus, minus])
        y = np.repeat([1, -1], [len(plus), len(minus)])
        Q = self.K[np.ix_(rows, rows)]
        Q[np.diag_indices(len(rows))] += 0.5 / np.concatenate([w_plus[plus], w_minus[minus]])
        svc = SVC(C=1e10, kernel="precomputed", cache_size=1000).fit(Q, y)
        return self.K[:, rows[svc.support_]] @ svc.dual_coef_[0] + svc.intercept_[0]


def peer_turns(peer, hidden, p, update, deadline):
    """Published turns at one temperature: p and the scores."""
    while True:
        if time.process_time() > deadline:
            raise OutOfTime
        f = peer.scores(*(np.where(w > DUST * hidden.C, w, 0.0) for w in hidden.weights(p)))
        new = update(f)
        peer.solves += 1
        if np.abs(new - p).max() < Schedule().tol:
            return new, f
        p = new


def peer_anneal(peer, hidden, deadline):
    schedule, p, T = Schedule(), hidden.start(), 10 * hidden.C
    while True:
        last, (p, f) = p, peer_turns(peer, hidden, p, lambda f, T=T: hidden.probabilities(f, T), deadline)
        stayed = np.abs(p - last).max() < Schedule().tol
        if hidden.settled(p, f, stayed, schedule.entropy) or schedule.min_temperature * hidden.C > T:
            return
        T /= schedule.cooling


def run_peer(peer, hidden, start, limit):
    """Seconds of a peer's alternation from a start, or of its annealing; and whether it was stopped."""
    peer.solves, begin, note = 0, time.process_time(), ""
    try:
        if start is None:
            peer_anneal(peer, hidden, begin + limit)
        else:
            peer_turns(peer, hidden, start, hidden.choice, begin + limit)
    except OutOfTime:
        note = ", stopped"
    return time.process_time() - begin, note


def best_of(function, repeats):
    seconds = []
    for _ in range(repeats):
        begin = time.process_time()
        result = function()
        seconds.append(time.process_time() - begin)
    return min(seconds), result


def rows(name, bags, positive, K, C, limit, repeats):
    single = K.astype(np.float32)
    cases = {
        "mi-SVM (alternation)": (InstanceLabels(bags, positive, C), True),
        "AL-SVM (annealing)": (InstanceLabels(bags, positive, C), False),
        "ALP-SVM, D=C, 60 %": (InstanceLabels(bags, positive, C, D=C, positive_fraction=0.6), False),
        "MI-SVM (alternation)": (Witnesses(bags, positive, C), True),
        "AW-SVM (annealing)": (Witnesses(bags, positive, C), False),
    }
    for label, (hidden, turns) in cases.items():
        if turns:
            start = hidden.all_positive() if isinstance(hidden, InstanceLabels) else hidden.choice(np.zeros(len(K)))
        else:
            start = None

        def mine(hidden=hidden, start=start):  # on a problem of its own, that remembers nothing of the last run
            if start is None:
                return anneal(WeightedProblem(single), hidden, Schedule(), ACCURACY)
            return alternate(WeightedProblem(single), hidden, start, accuracy=ACCURACY)

        for peer in (ColdNewton(K), ColdSVC(K)):
            # Both by turns, so that a machine whose speed changes changes it for both; what takes long, a few times.
            ours, theirs = np.inf, np.inf
            for _ in range(10 * repeats if turns else repeats):
                taken, outcome = best_of(mine, 1)
                ours = min(ours, taken)
                if turns or np.isinf(theirs):
                    taken, note = run_peer(peer, hidden, start, limit)
                    theirs = min(theirs, taken)
                if theirs > 1 and turns:
                    break
            solves = f"solves: ours {outcome.solves}, {type(peer).__name__} {peer.solves}{note}"
            each = f"; a solve: {1000 * ours / outcome.solves:.1f} ms, {1000 * theirs / max(peer.solves, 1):.1f} ms"
            show(f"{name}, C={C:g}, {label}", ours, theirs, solves + each)


def loops(name, bags, positive, K, C, repeats):
    """What annealing costs beside alternation where both are given the kernel.

    Means over the training bags of ten folds: in how many steps annealing finds its way is much by chance.
    """
    taken = {}
    for train, _ in BagKFold(10).split(bags, positive):
        rows, part, sides = bags.rows(train), bags[train], positive[train]
        single, witnesses = K[np.ix_(rows, rows)].astype(np.float32), Witnesses(part, sides, C)
        labels, balanced = (InstanceLabels(part, sides, C, D=D, positive_fraction=0.6) for D in (0.0, C))

        def turns(hidden, start, single=single):
            problem = WeightedProblem(single)
            return alternate(problem, hidden, start(problem), accuracy=ACCURACY)

        def cooled(hidden, single=single):
            return anneal(WeightedProblem(single), hidden, Schedule(), ACCURACY)

        for method, loop in {
            "mi-SVM": partial(turns, labels, lambda _, labels=labels: labels.all_positive()),
            "AL-SVM": partial(cooled, labels),
            "ALP-SVM, D=C, 60 %": partial(cooled, balanced),
            "MI-SVM": partial(
                turns, witnesses, lambda problem, w=witnesses: w.choice(w.mean_scores(problem, ACCURACY))
            ),
            "AW-SVM": partial(cooled, witnesses),
        }.items():
            seconds, outcome = best_of(loop, repeats)
            taken.setdefault(method, []).append((seconds, outcome.solves))
    mean = {method: np.mean(each, axis=0) for method, each in taken.items()}
    for method, other in (("AL-SVM", "mi-SVM"), ("ALP-SVM, D=C, 60 %", "mi-SVM"), ("AW-SVM", "MI-SVM")):
        (ours, steps), (theirs, turned) = mean[method], mean[other]
        print(
            f"{name}, C={C:g}, loop: {method} {1000 * ours:.2f} ms, {steps:.1f} steps; {other} {1000 * theirs:.2f} ms, "
            f"{turned:.1f} turns: {ours / theirs:.1f} times"
        )


def fits(name, X, groups, positive, C, repeats, given, kernels=None):
    """What annealing costs beside alternation when a user calls fit."""
    for scenario, methods in (("instance", ("annealing", "alp")), ("witness", ("annealing",))):

        def seconds(method, scenario=scenario):
            clf = MIClassifier(scenario, method, kernels, C=C, D=C, positive_fraction=0.6)
            return best_of(lambda: clf.fit(X, positive.astype(int), groups), repeats)[0]

        turns = seconds("alternation")
        for method in methods:
            cooled = seconds(method)
            print(
                f"{name}, C={C:g}, {given}, {scenario}: fit by {method} {cooled:.3f} s, by alternation {turns:.3f} s: "
                f"{cooled / turns:.1f} times"
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder with NAME.npz")
    parser.add_argument("--sets", nargs="+", default=["musk1", "elephant"])
    parser.add_argument("--costs", nargs="+", type=float, default=[1.0, 10.0])
    parser.add_argument("--limit", type=float, default=120.0, help="seconds after which a peer is stopped")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.data is None:
        print("No data: give the folder of the multiple-instance sets with --data. Nothing was run.")
        return
    print(f"{'':<52s} {'ours':>11s} {'peer':>11s} {'ratio':>9s}")
    for name in arguments.sets:
        with np.load(Path(arguments.data) / f"{name}.npz") as data:
            X, groups, y = data["X"].astype(np.float64), data["bag"], data["y"] > 0
        spread = X.std(axis=0)
        X = (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
        distances = pdist(X)
        K = np.exp(-(squareform(distances) ** 2) / (2 * np.median(distances) ** 2))
        with threadpool_limits(1):
            alternate(WeightedProblem(K[:50, :50].astype(np.float32)), *_small())  # compiles
            for C in arguments.costs:
                rows(name, Bags(X, groups), y, K, C, arguments.limit, arguments.repeats)
                loops(name, Bags(X, groups), y, K, C, arguments.repeats)
                fits(name, X, groups, y, C, arguments.repeats, "from instances")
                fits(
                    name,
                    KernelStack(K.astype(np.float32)),
                    groups,
                    y,
                    C,
                    arguments.repeats,
                    "kernel given",
                    "precomputed",
                )


def _small():
    hidden = InstanceLabels(Bags(np.zeros((50, 1)), np.repeat(np.arange(10), 5)), np.arange(10) < 5)
    return hidden, hidden.all_positive()


if __name__ == "__main__":
    main()
