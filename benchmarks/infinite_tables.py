"""Infinite kernel learning beside MKL on a grid and a tuned SVM, on public sets with two or more classes.

    python benchmarks/infinite_tables.py --data FOLDER --output results.jsonl [--sets heart pima] [--splits 5]
    python benchmarks/infinite_tables.py --output results.jsonl --tables

FOLDER has the sub-folders uci_binary and uci_multiclass with files NAME.npz that hold X (n, d) and y (n,). A line of
results is added when a fit is done; what is in the output already is not run again. Bandwidths for every feature of a
set with many of them, or with many classes, take long: ``--methods`` chooses.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.model_selection import StratifiedKFold, StratifiedShuffleSplit
from sklearn.svm import SVC

from kernelweave import MKLClassifier
from kernelweave.infinite import InfiniteKernelClassifier
from kernelweave.kernels import Gaussian, GaussianFamily, KernelBank

#: Samples to train with, as published where that is not more than time allows.
TRAINING = {
    "wpbc": 140,
    "wine": 90,
    "heart": 170,
    "breast_cancer": 200,
    "titanic": 150,
    "ionosphere": 200,
    "balance_scale": 200,
    "ecoli": 200,
    "vehicle": 250,
    "banana": 300,
    "ringnorm": 300,
    "twonorm": 300,
    "pima": 300,
    "australian": 300,
    "image": 300,
    "segment": 250,
    "splice": 300,
    "spambase": 300,
    "optdigits": 300,
    "letter": 520,
}
TEST = 2000
COSTS = (0.1, 1.0, 10.0, 100.0)
RATES = 1 / np.array([1, 2, 3, 5, 10, 20, 30, 40, 50, 75, 100, 125, 150])
GRID = [Gaussian(gamma=float(rate)) for rate in RATES]
FOLDS = 3


def each_column(d):
    """All features together, and each by itself, as views of one array."""
    return {"all": slice(0, d)} | {f"feature{j}": [j] for j in range(d)}


def methods(d):
    """Name -> (function of C and an extra setting that makes an estimator, the extra settings)."""
    return {
        "SVM": (lambda C, rate: SVC(C=C, gamma=rate, cache_size=200), RATES[::2]),
        "MKL single": (lambda C, _: MKLClassifier(GRID, C=C), (None,)),
        "MKL separate": (lambda C, _: MKLClassifier(KernelBank(GRID, columns=each_column(d)), C=C), (None,)),
        "IKL single": (lambda C, _: infinite("single", C), (None,)),
        "IKL separate": (lambda C, _: infinite("separate", C), (None,)),
        "IKL product": (lambda C, _: infinite("product", C), (None,)),
    }


def infinite(kind, C):
    return InfiniteKernelClassifier(GaussianFamily(kind, 30.0), C=C, tol=1e-2, random_state=0)


def load(data, name):
    (path,) = [p for p in (data / "uci_binary" / f"{name}.npz", data / "uci_multiclass" / f"{name}.npz") if p.exists()]
    with np.load(path, allow_pickle=False) as file:
        return file["X"].astype(np.float64), file["y"]


def split(X, y, n_train, seed):
    classes, counts = np.unique(y, return_counts=True)
    kept = np.isin(y, classes[counts >= 10])  # fewer cannot be in all folds
    X, y = X[kept], y[kept]
    n_test = min(TEST, len(y) - n_train)
    train, test = next(StratifiedShuffleSplit(1, train_size=n_train, test_size=n_test, random_state=seed).split(X, y))
    mean, spread = X[train].mean(axis=0), X[train].std(axis=0)
    X = (X - mean) / np.where(spread > 0, spread, 1.0)
    return X[train], y[train], X[test], y[test]


def choose(make, extras, X, y):
    """C and the extra setting with the fewest errors in cross-validation."""
    folds = list(StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(X, y))
    scores = {
        (C, extra): np.mean([make(C, extra).fit(X[a], y[a]).score(X[b], y[b]) for a, b in folds])
        for C in COSTS
        for extra in extras
    }
    return max(scores, key=lambda setting: scores[setting])


def run(data, name, wanted, splits, output, done):
    X, y = load(data, name)
    chosen = {}
    for seed in range(splits):
        train_X, train_y, test_X, test_y = split(X, y, TRAINING[name], seed)
        for method, (make, extras) in methods(X.shape[1]).items():
            if method not in wanted or (name, method, seed) in done:
                continue
            begin = time.perf_counter()
            if method not in chosen:  # on the first split that is run, then fixed
                chosen[method] = choose(make, extras, train_X, train_y)
            middle = time.perf_counter()
            model = make(*chosen[method]).fit(train_X, train_y)
            end = time.perf_counter()
            weights = getattr(model, "weights_", np.ones((1, 1)))
            record = {
                **{"set": name, "method": method, "split": seed, "n": len(train_y), "d": X.shape[1]},
                **{"classes": len(np.unique(y)), "error": 100 * (1 - model.score(test_X, test_y))},
                **{"kernels": float(np.mean(np.count_nonzero(np.atleast_2d(weights), axis=1)))},
                **{"objective": float(np.sum(getattr(model, "objective_", np.nan))), "C": chosen[method][0]},
                **{"seconds": end - middle, "choosing": middle - begin},
            }
            with output.open("a") as file:
                file.write(json.dumps(record) + "\n")
            print(name, seed, method, f"{record['error']:.1f} %, {end - begin:.1f} s", flush=True)


def print_tables(records):
    """Error with the standard deviation over splits, and kernels a class; and the objectives of the same C."""
    names = [name for name in TRAINING if any(record["set"] == name for record in records)]
    columns = list(methods(1))
    print(".. csv-table:: Test error in per cent (kernels with weight)\n   :header-rows: 1\n   :delim: |\n")
    print(f"   set | classes | features | training | {' | '.join(columns)}")
    for name in names:
        of = [record for record in records if record["set"] == name]
        cells = []
        for method in columns:
            part = [record for record in of if record["method"] == method]
            if not part:
                cells.append("")
                continue
            errors = [record["error"] for record in part]
            kernels = "" if method == "SVM" else f" ({np.mean([record['kernels'] for record in part]):.1f})"
            cells.append(f"{np.mean(errors):.1f} ± {np.std(errors):.1f}{kernels}")
        first = of[0]
        print(f"   {name} | {first['classes']} | {first['d']} | {first['n']} | {' | '.join(cells)}")
    print(f"\nSplits: {sorted({(name, len({r['split'] for r in records if r['set'] == name})) for name in names})}")
    for method in columns:
        seconds = [record["seconds"] for record in records if record["method"] == method]
        print(f"{method}: median {np.median(seconds):.2f} s a fit")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--output", type=Path, default=Path("infinite.jsonl"))
    parser.add_argument("--sets", nargs="+", choices=list(TRAINING), default=list(TRAINING))
    parser.add_argument("--methods", nargs="+", choices=list(methods(1)), default=list(methods(1)))
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--tables", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    lines = arguments.output.read_text().splitlines() if arguments.output.exists() else []
    records = [json.loads(line) for line in lines]
    if arguments.tables:
        print_tables(records)
        return
    if arguments.data is None:
        print("No data: give the folder of the sets with --data. Nothing was run.")
        return
    done = {(record["set"], record["method"], record["split"]) for record in records}
    for name in arguments.sets:
        run(arguments.data, name, arguments.methods, arguments.splits, arguments.output, done)


if __name__ == "__main__":
    main()
