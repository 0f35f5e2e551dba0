"""Input-output kernel learning beside methods of scikit-learn: few labels, clusters, bags; and what its settings do.

    python benchmarks/semi_supervised_tables.py --data FOLDER [--out results.jsonl] [--parts ssl] [--methods IOKL]
    python benchmarks/semi_supervised_tables.py --out results.jsonl --tables [--sets digit1 bci]

FOLDER has the sub-folder ssl_chapelle with NAME.npz files that hold X (or the parts of a sparse one), y, and the splits
as rows of indices, labeled_10 and labeled_100 or labeled_50; multiview, with the views X0 and X1 of webkb_course, rows
of which are taken at unit length, and labelled ones drawn here; and mil, with X, bag and y. The protocol is the
published one: accuracy on the unlabelled samples, whose balance is known (and, in one more row, taken from the labelled
samples); kernels by mean distances; C = 100 for labelled and 1 for unlabelled samples; the cap is 1.5 over the number
of candidates. Nothing is tuned, for any method; others than ours have all views side by side. Clusters are those of
pairs of scikit-learn's digits. A line of results is added when a fit is done; what is in the output already is not run
again.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
from rows import paired
from scipy.sparse import csr_matrix
from scipy.stats import rankdata
from sklearn.cluster import KMeans, SpectralClustering
from sklearn.datasets import load_digits
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, normalize
from sklearn.semi_supervised import LabelPropagation, LabelSpreading, SelfTrainingClassifier
from sklearn.svm import SVC

from kernelweave import InputOutputKernelClassifier, InputOutputKernelClustering, KernelBank, MKLClassifier, Views
from kernelweave.ambiguity.bags import BagKFold, Bags
from kernelweave.ambiguity.input_output import FOUR_KERNELS, best_threshold
from kernelweave.kernels import Mean

SETS = ("g241c", "g241n", "digit1", "coil2", "bci", "coil", "g50c", "text1", "webkb_course")
BAG_SETS = ("musk1", "elephant", "tiger")
PAIRS = ((3, 8), (1, 7), (2, 7), (8, 9), (4, 9), (5, 6))
CAPS = (1.05, 1.2, 1.5, 2.0, 3.0, 6.0)
NORMS = ((2, 1), (1, 1), (2, 2), (1, 2))
MOST = 20


def unit_rate(X):
    """1 over the mean squared distance of the samples: the rate of the default Gaussian kernel."""
    return 1 / (2 * X.var(axis=0).sum() * len(X) / (len(X) - 1))


def side_by_side(views):
    return np.hstack([views[name] for name in views.names])


def few_label_methods(views, balance):
    """Name -> estimator that takes -1 for unlabelled, or the labelled samples alone (True)."""
    rate = unit_rate(side_by_side(views))

    def other(model):
        return make_pipeline(FunctionTransformer(side_by_side), model)

    bank = KernelBank(list(FOUR_KERNELS), normalise="center")

    def ours(**settings):
        return InputOutputKernelClassifier(**{"max_candidates": MOST, "balance": balance} | settings)

    return {
        "SVM": (other(SVC(C=100.0, gamma=rate)), True),
        "self-training": (
            other(SelfTrainingClassifier(SVC(C=100.0, gamma=rate, probability=True, random_state=0))),
            False,
        ),
        "label propagation": (other(LabelPropagation(kernel="knn", n_neighbors=10, max_iter=5000)), False),
        "label spreading": (other(LabelSpreading(kernel="knn", n_neighbors=10)), False),
        "l2-MKL": (MKLClassifier(kernels=bank, weights="l2", C=100.0), True),
        "IOKL-HM": (ours(margin="hard"), False),
        "IOKL-SM": (ours(), False),
        "IOKL-SM, balance unknown": (ours(balance="labelled"), False),
    }


def of_settings(views, balance):
    """Name -> estimator, for the curves over the cap and the comparison of norms."""

    def ours(**settings):
        return InputOutputKernelClassifier(max_candidates=MOST, balance=balance, **settings)

    caps = {f"cap {c:g}": ours(c_theta=c) for c in CAPS}
    norms = {f"norms {p},{q}": ours(margin="hard", norms=(p, q)) for p, q in NORMS}
    average = ours(margin="hard", kernels=Mean(dict.fromkeys(views.names, Mean(*FOUR_KERNELS))))
    fewer = {"one kernel": ours(kernels=FOUR_KERNELS[0])}
    if len(views.names) > 1:
        fewer |= {f"one view: {name}": ours(kernels={name: list(FOUR_KERNELS)}) for name in views.names}
    return caps | norms | {"average first": average, "shared candidates": ours(candidates="shared")} | fewer


def load_ssl(data, name):
    """Views of all samples, their classes from 0, and number of labels -> rows of labelled samples, one a split."""
    if name == "webkb_course":
        return load_webkb(data)
    with np.load(data / "ssl_chapelle" / f"{name}.npz", allow_pickle=False) as file:
        arrays = dict(file)
    X = arrays["X"] if "X" in arrays else dense(arrays, "X")
    splits = {int(key.split("_")[1]): value for key, value in arrays.items() if key.startswith("labeled_")}
    return Views({"x": X.astype(np.float64)}), np.unique(arrays["y"], return_inverse=True)[1], splits


def load_webkb(data):
    """Course pages or others, by the text of links and of the page."""
    with np.load(data / "multiview" / "webkb_course.npz", allow_pickle=False) as file:
        arrays = dict(file)
    views = Views({name: normalize(dense(arrays, part)) for name, part in (("links", "X0"), ("page", "X1"))})
    y = arrays["y"].astype(int)
    splits = {
        n: [rows for rows, _ in StratifiedShuffleSplit(12, train_size=n, random_state=0).split(y, y)] for n in (10, 100)
    }
    return views, y, splits


def dense(arrays, name):
    parts = (arrays[f"{name}_data"], arrays[f"{name}_indices"], arrays[f"{name}_indptr"])
    return csr_matrix(parts, shape=arrays[f"{name}_shape"]).toarray().astype(np.float64)


def balance_of(y):
    """The true share of the positive class, or of several classes each."""
    shares = np.bincount(y) / len(y)
    return shares[1] if len(shares) == 2 else dict(enumerate(shares.tolist()))


def candidates_of(model):
    """Candidates that were generated, and those with weight; of several classes the mean."""
    if not hasattr(model, "candidates_"):
        return {}
    problems = model.weights_ if isinstance(model.weights_, list) else [model.weights_]
    sizes = [np.linalg.norm(weights, axis=0) for weights in problems]
    kept = [np.count_nonzero(of > 1e-3 * of.max()) for of in sizes]
    return {"candidates": np.mean([len(of) for of in sizes]), "kept": np.mean(kept)}


def few_labels(data, arguments, write, make):
    for name in arguments.sets:
        X, y, splits = load_ssl(data, name)
        for n_labelled, rows in splits.items():
            for split in range(min(arguments.splits, len(rows))):
                few = np.full(len(y), -1)
                few[rows[split]] = y[rows[split]]
                hidden = few < 0
                for method, (model, alone) in make(X, balance_of(y[hidden])).items():
                    key = {"set": name, "labels": n_labelled, "split": split, "method": method}
                    if write.has(key):
                        continue
                    begin = time.perf_counter()
                    model.fit(X[~hidden] if alone else X, few[~hidden] if alone else few)
                    seconds = time.perf_counter() - begin
                    found = model.predict(X[hidden])
                    write(key, accuracy=100 * np.mean(found == y[hidden]), seconds=seconds, **candidates_of(model))


def clusters(data, arguments, write):
    X, y = load_digits(return_X_y=True)
    for pair in PAIRS:
        few = np.isin(y, pair)
        A, truth = X[few], (y[few] == pair[1]).astype(int)
        rate = unit_rate(A)
        methods = {
            "k-means": KMeans(2, n_init=10, random_state=0),
            "spectral, rbf": SpectralClustering(2, gamma=rate, random_state=0),
            "spectral, neighbours": SpectralClustering(2, affinity="nearest_neighbors", random_state=0),
            "IOKL-HM": InputOutputKernelClustering(margin="hard", max_candidates=MOST),
            "IOKL-SM": InputOutputKernelClustering(max_candidates=MOST),
        }
        for method, model in methods.items():
            key = {"pair": f"{pair[0]}-{pair[1]}", "method": method}
            if write.has(key):
                continue
            begin = time.perf_counter()
            right = np.mean(model.fit_predict(A) == truth)
            seconds = time.perf_counter() - begin
            write(key, accuracy=100 * max(right, 1 - right), seconds=seconds, **candidates_of(model))


class InheritedLabels:
    """Every instance has the label of its bag, one SVM; the bag's threshold is chosen as ours is."""

    def fit(self, bags, y):
        self._machine = SVC(C=10.0, gamma=unit_rate(bags.instances)).fit(bags.instances, y[bags.bag_of])
        self._threshold = best_threshold(self._scores(bags), np.where(y > 0, 1, -1))
        return self

    def predict(self, bags):
        return (self._scores(bags) > self._threshold).astype(int)

    def _scores(self, bags):
        return bags.reduce(np.maximum, self._machine.decision_function(bags.instances))


def bag_tables(data, arguments, write):
    for name in BAG_SETS:
        with np.load(data / "mil" / f"{name}.npz", allow_pickle=False) as file:
            X, bag, y = file["X"].astype(np.float64), file["bag"], file["y"].astype(int)
        folds = list(BagKFold(10, shuffle=True, random_state=0).split(Bags(X, groups=bag), y))

        def ours(**settings):
            return InputOutputKernelClassifier("multiple-instance", max_candidates=10, **settings)

        methods = {
            "single-instance SVM": InheritedLabels(),
            "IOKL-HM, one positive": ours(margin="hard"),
            "IOKL-SM, one positive": ours(),
            "IOKL-SM, half positive": ours(positives=0.5),
            "IOKL-SM, bag level": ours(level="bag", C_unlabelled=10.0),
        }
        for fold, (train, test) in enumerate(folds):
            inside = np.isin(bag, train)
            spread = X[inside].std(axis=0)
            bags = Bags((X - X[inside].mean(axis=0)) / np.where(spread > 0, spread, 1.0), groups=bag)
            for method, model in methods.items():
                key = {"bags": name, "fold": fold, "method": method}
                if write.has(key):
                    continue
                begin = time.perf_counter()
                model.fit(bags[train], y[train])
                seconds = time.perf_counter() - begin
                right = (model.predict(bags[test]) == y[test]).tolist()
                write(key, accuracy=100 * np.mean(right), right=right, seconds=seconds, **candidates_of(model))


class Writer:
    """Adds lines to a file, and knows which are there, or not wanted."""

    def __init__(self, path, methods=None):
        self._path = path
        self._methods = methods
        self.records = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def has(self, key):
        if self._methods and not key["method"].startswith(tuple(self._methods)):
            return True
        return any(all(record.get(name) == value for name, value in key.items()) for record in self.records)

    def __call__(self, key, **found):
        record = key | {
            name: value if isinstance(value, (int, list)) else float(value) for name, value in found.items()
        }
        self.records.append(record)
        with self._path.open("a") as file:
            file.write(json.dumps(record) + "\n")
        print(" ".join(map(str, key.values())), f"{record['accuracy']:.1f} %, {record['seconds']:.1f} s", flush=True)


PARTS = {
    "ssl": lambda data, arguments, write: few_labels(data, arguments, write, few_label_methods),
    "settings": lambda data, arguments, write: few_labels(
        data, arguments, write, lambda X, balance: {name: (m, False) for name, m in of_settings(X, balance).items()}
    ),
    "clusters": clusters,
    "bags": bag_tables,
}


def table(records, row, column, title):
    """Mean accuracies, methods as rows, with mean ranks where every method has every column."""
    columns = list(dict.fromkeys(column(record) for record in records))
    rows = list(dict.fromkeys(record[row] for record in records))
    means = np.full((len(rows), len(columns)), np.nan)
    for i, method in enumerate(rows):
        for j, name in enumerate(columns):
            values = [r["accuracy"] for r in records if r[row] == method and column(r) == name]
            means[i, j] = np.mean(values) if values else np.nan
    ranks = np.mean([rankdata(-means[:, j]) for j in range(len(columns)) if not np.isnan(means[:, j]).any()], axis=0)
    print(f"\n.. csv-table:: {title}\n   :header-rows: 1\n   :delim: |\n")
    print(f"   method | {' | '.join(columns)} | mean rank | candidates (kept) | seconds")
    for i, method in enumerate(rows):
        of = [r for r in records if r[row] == method]
        counted = [(r["candidates"], r["kept"]) for r in of if "candidates" in r]
        count = "{:.1f} ({:.1f})".format(*np.mean(counted, axis=0)) if counted else ""
        cells = [f"{value:.1f}" for value in means[i]] + [f"{ranks[i]:.2f}" if np.ndim(ranks) else "", count]
        print(f"   {method} | {' | '.join(cells)} | {np.median([r['seconds'] for r in of]):.2f}")


def table_of_sets(records, title):
    splits = {r["set"]: len({s["split"] for s in records if s["set"] == r["set"]}) for r in records}
    table(records, "method", lambda r: r["set"], f"{title}; splits: {splits}")


def print_gains(records, one, other):
    """What a method gains over another on each set that both were tried on, and how its own accuracy varies."""
    for name in dict.fromkeys(r["set"] for r in records if r["method"] == one):
        of_set = [r for r in records if r["set"] == name]
        own = [r["accuracy"] for r in of_set if r["method"] == one]
        print(f"{name}: {paired(of_set, one, other)}; {one} varies by {np.std(own, ddof=1):.1f}")


def print_tables(records):
    settings = ("cap ", "norms ", "average first", "shared candidates", "one kernel", "one view")
    few = [r for r in records if "labels" in r]
    for n_labelled in sorted({r["labels"] for r in few}):
        part = [r for r in few if r["labels"] == n_labelled and not r["method"].startswith(settings)]
        if part:
            table_of_sets(part, f"{n_labelled} labels")
            for other in ("IOKL-HM", "l2-MKL"):
                print(f"all: {paired(part, 'IOKL-SM', other)}")
                print_gains(part, "IOKL-SM", other)
        part = [r for r in few if r["labels"] == n_labelled and r["method"].startswith(settings)]
        if part:
            table_of_sets(part, f"Settings, {n_labelled} labels")
            for method in dict.fromkeys(r["method"] for r in part):
                base = "norms 2,1" if method.startswith(("norms", "average")) else "cap 1.5"
                if method != base:
                    print_gains(part, method, base)
    for key, title in (("pair", "Pairs of digits"), ("bags", "Bags, ten folds")):
        part = [r for r in records if key in r]
        if part:
            table(part, "method", lambda r, key=key: r[key], title)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, default=Path("semi_supervised.jsonl"))
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--methods", nargs="+", help="only those whose names begin so, such as IOKL")
    parser.add_argument("--splits", type=int, default=12)
    parser.add_argument("--tables", action="store_true", help="print what is in --out, run nothing")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    write = Writer(arguments.out, arguments.methods)
    if arguments.tables:
        print_tables([r for r in write.records if "set" not in r or r["set"] in arguments.sets])
        return
    if arguments.data is None:
        print("No data: give the folder of the sets with --data. Nothing was run.")
        return
    for part in arguments.parts:
        PARTS[part](arguments.data, arguments, write)


if __name__ == "__main__":
    main()
