"""Speed of the metric learners: sweeps of ITML and ITML+, and whole fits beside metric-learn's ITML.

    python benchmarks/metric.py [--quick] [--peer-python PATH]

First, seconds a sweep on one core at 150 features in both views, beside a loop of NumPy calls a pair. Then, with
--peer-python, fits on digits and wine beside metric-learn's ITML: the same pairs in the same order, targets and number
of sweeps, so that both end at the same matrix. metric-learn does not run on current scikit-learn: PATH is the
interpreter of an environment of its own (``pip install metric-learn "scikit-learn<1.3" "numpy<2"``), which runs the
stored script metric_peer.py; pairs and times are exchanged by files. Both sides have one thread, and what is counted is
processor time, which other programs disturb less.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from rows import Row, print_rows
from sklearn.datasets import load_digits, load_wine
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

import kernelweave as kw
from kernelweave.metric.projections import Problem, State, sweep
from kernelweave.metric.targets import percentile_targets


def problem(n_pairs, width=150, privileged=True, seed=0):
    """Pairs of 26 identities of 14 shots, as in the published protocol, in two views."""
    rng = np.random.RandomState(seed)
    X, Z, y = kw.datasets.make_privileged(26, 14, n_features=width, n_privileged=width, n_latent=20, random_state=seed)
    pairs = kw.PairSet.from_classes(y, negatives=n_pairs, random_state=seed)
    pairs = pairs.subset(rng.permutation(len(pairs))[:n_pairs]).with_privileged(float(privileged))
    similar, dissimilar = percentile_targets(X, (3, 97), rng)
    targets = np.where(pairs.similar > 0, similar, dissimilar)
    return Problem(X, Z, pairs, targets, gamma=1.0, lam=1.0)


def numpy_sweep(problem, state, order):
    """One sweep with NumPy calls a pair: what one would write without a compiler; ITML+ where privileged."""
    dx, dz = problem.pairs.differences(problem.X), problem.pairs.differences(problem.Z)
    gamma, lam, a, inverse_xi, M, P = problem.gamma, problem.lam, state.a, state.inverse_xi, state.M, state.P
    for k in order:
        y, Mx = problem.signs[k], M @ dx[k]
        r = dx[k] @ Mx
        if problem.pairs.privileged[k]:
            Pz = P @ dz[k]
            s = dz[k] @ Pz
            delta = max(y * (gamma * inverse_xi[k] + lam / s - (lam + gamma) / r) / (lam + gamma + 1), -a[k])
            beta = lam / (lam + gamma) * (gamma / s - gamma * inverse_xi[k] + y * delta)
            P += beta / (lam - beta * s) * np.outer(Pz, Pz)
            inverse_xi[k] = 1 / s - beta / lam
        else:
            delta = max(y * gamma / (gamma + 1) * (inverse_xi[k] - 1 / r), -a[k])
            inverse_xi[k] -= y * delta / gamma
        a[k] += delta
        M -= y * delta / (1 + y * delta * r) * np.outer(Mx, Mx)


def medians(repeats, *functions):
    """Median processor seconds of each function, called in turns after one call that compiles and warms up."""
    for function in functions:
        function()
    seconds = [[] for _ in functions]
    for _ in range(repeats):
        for taken, function in zip(seconds, functions, strict=True):
            begin = time.process_time()
            function()
            taken.append(time.process_time() - begin)
    return [float(np.median(taken)) for taken in seconds]


def sweep_rows(repeats, sizes):
    for privileged in (False, True):
        for n_pairs in sizes:
            task = problem(n_pairs, privileged=privileged)
            order = np.arange(n_pairs)
            ours, theirs = (State.start(task) for _ in range(2))
            seconds = medians(repeats, lambda: sweep(task, ours, order, True), lambda: numpy_sweep(task, theirs, order))
            apart = np.abs(ours.M - theirs.M).max() / np.abs(theirs.M).max()
            name = f"{'ITML+' if privileged else 'ITML'} sweep, {n_pairs} pairs, 150 features"
            yield Row(name, "NumPy calls a pair", *seconds, 1.0, f"matrices differ by {apart:.0e}")


def peer_rows(python, repeats, sweeps):
    for name, load in (("wine", load_wine), ("digits", load_digits)):
        X, y = load(return_X_y=True)
        X = StandardScaler().fit_transform(X)
        pairs = kw.PairSet.from_classes(y, max_positives=2000, random_state=0)
        targets = percentile_targets(X, (3, 97), np.random.RandomState(0))
        settings = {"gamma": 1.0, "targets": targets, "max_sweeps": sweeps, "shuffle": False, "tol": 1e-300}

        def fit():
            return kw.ITML(**settings).fit_pairs(pairs, X)

        (ours,) = medians(repeats, fit)
        peer = run_peer(
            python,
            first=X[pairs.first],
            second=X[pairs.second],
            similar=pairs.similar.astype(int),
            bounds=np.array(targets),
            gamma=1.0,
            sweeps=sweeps,
            repeats=repeats,
        )
        matrix = fit().metric_
        apart = np.abs(matrix - peer["matrix"]).max() / np.abs(matrix).max()
        yield Row(
            f"ITML on {name}, {len(pairs)} pairs, {X.shape[1]} features, {sweeps} sweeps",
            f"metric-learn {peer['version']}",
            ours,
            float(np.median(peer["seconds"])),
            10.0,
            f"matrices differ by {apart:.0e}",
        )


def run_peer(python, **task):
    with tempfile.TemporaryDirectory() as folder:
        given, answer = Path(folder, "task.npz"), Path(folder, "result.npz")
        np.savez(given, **task)
        script = Path(__file__).with_name("metric_peer.py")
        one_thread = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
        subprocess.run([python, str(script), str(given), str(answer)], check=True, env=os.environ | one_thread)
        with np.load(answer) as result:
            return dict(result)


def gap_rows():
    """Seconds to a relative gap of 1e-3, orders of the pairs compared: the order decides more than the code."""
    X, y = load_digits(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    pairs = kw.PairSet.from_classes(y, max_positives=2000, random_state=0)
    for shuffle in (True, False):
        model = kw.ITML(shuffle=shuffle, random_state=0)
        begin = time.process_time()
        model.fit_pairs(pairs, X)
        order = "shuffled" if shuffle else "similar pairs first"
        print(
            f"digits, {len(pairs)} pairs, {order}: {model.n_sweeps_} sweeps, "
            f"{time.process_time() - begin:.2f} s, gap {model.gap_:.1e}"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--peer-python", help="interpreter of an environment with metric-learn")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    with threadpool_limits(1):
        print_rows(sweep_rows(1, (500,)) if arguments.quick else sweep_rows(3, (2500, 5000, 10_000, 20_000)))
        print()
        gap_rows()
        if arguments.peer_python is None:
            print("\nwithout --peer-python there is no comparison with metric-learn")
        else:
            print()
            print_rows(peer_rows(arguments.peer_python, *((1, 2) if arguments.quick else (3, 10))))


if __name__ == "__main__":
    main()
