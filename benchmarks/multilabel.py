"""Label rankers beside one-vs-rest SVMs, ML-kNN and least squares on real multi-label data, complete and incomplete.

    python benchmarks/multilabel.py --data FOLDER [--sets scene,birds] [--splits 5] [--jobs 2] [--output results.jsonl]
    python benchmarks/multilabel.py --output results.jsonl --tables

FOLDER (or the environment variable KERNELWEAVE_DATA) holds one file a set, such as scene.npz, with the label matrix Y
of 0 and 1 and the features X, or X_data, X_indices, X_indptr and X_shape for a sparse matrix. The output has a line of
JSON a fit; what is there already is not run again. A set may be cut to its most frequent labels: delicious@50.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed, parallel_config
from multilabel_tables import print_tables
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.preprocessing import StandardScaler, normalize

from kernelweave import MKLClassifier
from kernelweave.baselines import MLLS, MLkNN
from kernelweave.evaluation import (
    MultilabelStratifiedShuffleSplit,
    RemovedLabels,
    evaluate,
    most_frequent_labels,
    remove_labels,
    subpopulations,
)
from kernelweave.kernels import Gaussian, KernelBank
from kernelweave.machines import MLRGL, MLRL1, SVM, Machine, MLRPairwise, ROCArea

#: The slowest first, so that no long one is left for the end. Rows of words and indicators are scaled to length one.
WORDS = ("delicious", "corel5k", "bibtex", "enron", "tmc2007_500")
SETS = (*WORDS, "mirflickr_pml", "mirflickr_noisy", "scene", "birds", "emotions")
MOST_LABELS, MOST_TRAINING, MOST_TEST = 200, 1000, 2000
#: Sets with fewer training samples, for all methods: pairs of labels are too many.
FEWER = {"delicious": 400}
FRACTIONS = (0.0, 0.2, 0.4, 0.6)
ACCURACY, ACCURACY_OF_CHOICE = 1e-3, 1e-2
#: The path of parameters of a slow method ends where the held-out AUC is this much below its best.
FALL = 0.002
MEASURES = ("image_auc", "image_ap", "category_auc", "one_error")


# --- data -------------------------------------------------------------------------------------------------------------


@dataclass
class Part:
    """What a method sees: training samples with their kernel, and new samples."""

    X: NDArray
    X_new: NDArray
    K: NDArray
    K_new: NDArray

    def within(self, train: NDArray, held: NDArray) -> Part:
        """Some of the training samples held out as new ones."""
        K = np.ascontiguousarray(self.K[np.ix_(train, train)])
        return Part(self.X[train], self.X[held], K, np.ascontiguousarray(self.K[np.ix_(held, train)]))


def load(folder: Path, name: str) -> tuple[NDArray, NDArray, NDArray]:
    """Features, labels to learn from, and labels to test with: the same, but for noisy candidates."""
    name, _, most = name.partition("@")
    noisy = name == "mirflickr_noisy"
    file = np.load(folder / ("mirflickr_pml.npz" if noisy else f"{name}.npz"), allow_pickle=False)
    if "X" in file.files:
        X = file["X"].astype(np.float64)
    else:
        parts = (file["X_data"].astype(np.float64), file["X_indices"], file["X_indptr"])
        X = csr_matrix(parts, shape=file["X_shape"]).toarray()
    truth = file["Y"]
    kept = most_frequent_labels(truth, min(int(most or MOST_LABELS), truth.shape[1]))
    given = file["Y_candidate"] if noisy else truth
    return X, given[:, kept], truth[:, kept]


def split(
    X: NDArray, given: NDArray, truth: NDArray, name: str, n_splits: int, most: int = MOST_TRAINING
) -> Iterator[tuple[Part, NDArray, NDArray]]:
    """Training and test part of every split, with the labels of the training rows and those of the test rows."""
    base = name.partition("@")[0]
    n_train = min(FEWER.get(base, most), most, round(2 * len(X) / 3))
    n_test = min(MOST_TEST, len(X) - n_train)
    splitter = MultilabelStratifiedShuffleSplit(n_splits, train_size=n_train, test_size=n_test, random_state=0)
    for train, test in splitter.split(X, truth):
        train = train[given[train].any(axis=1)]
        if base in WORDS:
            X_train, X_test = normalize(X[train]), normalize(X[test])
        else:
            scale = StandardScaler().fit(X[train])
            X_train, X_test = scale.transform(X[train]), scale.transform(X[test])
        bank = KernelBank(Gaussian()).build(X_train)
        K_new = bank.expansion([0], np.arange(len(train))).cross(X_test)[0]
        yield Part(X_train, X_test, bank.gram(0), K_new), given[train], truth[test]


# --- methods ----------------------------------------------------------------------------------------------------------


@dataclass
class Outcome:
    """Scores of new and of training samples, and what it took."""

    new: NDArray
    training: NDArray
    steps: int = 0
    gap: float = float("nan")


@dataclass(frozen=True)
class Method:
    """A name, the values its parameter is chosen from, and how it is run: (part, labels, parameter, accuracy)."""

    name: str
    grid: tuple[float, ...]
    run: Callable[[Part, NDArray, float, float], Outcome]
    complete_only: bool = False
    slow: bool = False
    #: The method whose choice this one takes over.
    chosen_as: str | None = None


def machine(make: Callable[[float, int], Machine]) -> Callable[[Part, NDArray, float, float], Outcome]:
    """A machine by its parameter and the number of labels."""

    def run(part: Part, Y: NDArray, value: float, accuracy: float) -> Outcome:
        solution = make(value, Y.shape[1]).solve(part.K, np.where(Y > 0, 1.0, -1.0), accuracy=accuracy)
        new, training = (K @ solution.coef + solution.intercept for K in (part.K_new, part.K))
        return Outcome(new, training, int(solution.steps), float(solution.gap / solution.primal))

    return run


def platt(part: Part, Y: NDArray, value: float, accuracy: float) -> Outcome:
    model = MKLClassifier("precomputed", weights="average", C=value, tol=accuracy, probability=True, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of labels without an example, which are many
        model.fit(part.K[None], Y)
    return Outcome(model.predict_proba(part.K_new[None]), model.predict_proba(part.K[None]))


def ml_knn(part: Part, Y: NDArray, value: float, accuracy: float) -> Outcome:
    distances = 2 - 2 * part.K
    model = MLkNN(int(value), metric="precomputed").fit(distances, Y)
    np.fill_diagonal(distances, 4.0)  # no training sample is its own neighbour
    return Outcome(model.decision_function(2 - 2 * part.K_new), model.decision_function(distances))


def least_squares(part: Part, Y: NDArray, value: float, accuracy: float) -> Outcome:
    model = MLLS(beta=value).fit(part.X, Y)
    return Outcome(model.decision_function(part.X_new), model.decision_function(part.X))


def kernel_least_squares(part: Part, Y: NDArray, value: float, accuracy: float) -> Outcome:
    """MLLS on features whose products are the kernel."""
    sizes, vectors = np.linalg.eigh(part.K.astype(np.float64))
    kept = sizes > 1e-6 * sizes[-1]  # what single precision leaves of them
    features = vectors[:, kept] / np.sqrt(sizes[kept])
    model = MLLS(beta=value).fit(part.K @ features, Y)
    return Outcome(model.decision_function(part.K_new @ features), model.decision_function(part.K @ features))


COSTS, SMALLER_COSTS = (0.01, 0.1, 1.0, 10.0, 100.0), (0.001, 0.01, 0.1, 1.0, 10.0)
METHODS = (
    Method("SVM", COSTS, machine(lambda C, m: SVM(C))),
    Method("SVM, no bias", COSTS, machine(lambda C, m: SVM(C, fit_intercept=False))),
    Method("SVM, Platt", COSTS, platt, chosen_as="SVM"),
    Method("MLR-L1", COSTS, machine(lambda C, m: MLRL1(C))),
    Method("MLR-L1, ridge 1", COSTS, machine(lambda C, m: MLRL1(C, ridge=1.0))),
    Method("MLR-L1, wide box", SMALLER_COSTS, machine(lambda C, m: MLRL1(C, box="wide")), slow=True),
    Method("MLR-L1, wide, ridge 1", SMALLER_COSTS, machine(lambda C, m: MLRL1(C, ridge=1.0, box="wide")), slow=True),
    Method("pairwise", SMALLER_COSTS, machine(lambda C, m: MLRPairwise(C)), slow=True),
    Method("MLR-GL", SMALLER_COSTS, machine(lambda C, m: MLRGL(C)), slow=True),
    Method("MLR-GL, eta m/2", SMALLER_COSTS, machine(lambda C, m: MLRGL(C, eta=m / 2))),
    Method("MLR-GL, eta 2m", SMALLER_COSTS, machine(lambda C, m: MLRGL(C, eta=2.0 * m))),
    Method("ML-kNN", (5, 10, 20, 40), ml_knn),
    Method("MLLS", (0.001, 0.01, 0.1, 1.0, 10.0), least_squares),
    Method("MLLS, kernel", (0.0001, 0.001, 0.01, 0.1, 1.0), kernel_least_squares),
    Method("ROC area", COSTS, machine(lambda C, m: ROCArea(C)), complete_only=True),
)


# --- the experiment ---------------------------------------------------------------------------------------------------


def choose(method: Method, part: Part, Y: NDArray) -> tuple[float, list[float]]:
    """Parameter with the best image AUC on a quarter of the training rows, and the AUCs of those tried."""
    splitter = MultilabelStratifiedShuffleSplit(1, test_size=0.25, random_state=0)
    train, held = next(splitter.split(Y, Y))
    within = part.within(train, held)
    tried: list[float] = []
    for value in method.grid:
        scores = method.run(within, Y[train], value, ACCURACY_OF_CHOICE).new
        tried.append(evaluate(Y[held], scores, ["image_auc"])["image_auc"].value)
        if method.slow and tried[-1] < max(tried) - FALL:
            break
    return method.grid[int(np.argmax(tried))], tried


def recovery(case: RemovedLabels, scores: NDArray) -> float:
    """Share of pairs in which a removed label of a training row is above one that the row never had."""
    candidates = np.where(case.removed, 1.0, np.where(case.Y > 0, np.nan, 0.0))
    return evaluate(candidates, scores, ["image_auc"])["image_auc"].value


def one_fit(method: Method, value: float, part: Part, case: RemovedLabels, Y_new: NDArray) -> dict[str, Any]:
    begin = time.perf_counter()
    outcome = method.run(part, case.Y, value, ACCURACY)
    seconds = time.perf_counter() - begin
    table = evaluate(Y_new, outcome.new, MEASURES, by=subpopulations(Y_new))
    record = {name: table[name].value for name in MEASURES}
    record |= {name: group["image_auc"].value for name, group in table.groups.items()}
    record |= {"recovery": recovery(case, outcome.training) if case.removed.any() else None}
    return record | {"seconds": seconds, "steps": outcome.steps, "gap": outcome.gap}


def run_set(folder: Path, output: Path, name: str, fraction: float, methods: Sequence[Method], n_splits: int) -> None:
    """All methods on all splits of one set with one share of labels removed; a line of the output a fit."""
    done = {(r["method"], r["split"]): r for r in records(output) if (r["set"], r["fraction"]) == (name, fraction)}
    wanted = [m for m in methods if fraction == 0 or not (m.complete_only or name == "mirflickr_noisy")]
    if all((method.name, number) in done for method in wanted for number in range(n_splits)):
        return
    X, given, truth = load(folder, name)
    chosen = {r["method"]: (r["value"], r["tried"]) for r in done.values()}
    for number, (part, Y, Y_new) in enumerate(split(X, given, truth, name, n_splits)):
        case = remove_labels(Y, [fraction], random_state=number)[0]
        about = {"set": name, "fraction": fraction, "split": number, "realised": case.realised}
        about |= {"n": len(Y), "m": Y.shape[1], "labels_a_row": float(Y.sum(axis=1).mean()), "n_new": len(Y_new)}
        for method in wanted:
            if (method.name, number) in done:
                continue
            begin = time.perf_counter()
            if method.name not in chosen:  # on the first split, for all of them
                chooser = next(m for m in METHODS if m.name == (method.chosen_as or method.name))
                chosen[method.name] = chosen.get(chooser.name) or choose(chooser, part, case.Y)
            value, tried = chosen[method.name]
            record = about | {"method": method.name, "value": value, "tried": tried}
            record |= one_fit(method, value, part, case, Y_new)
            append(output, record)
            report(record, time.perf_counter() - begin)


def report(record: dict[str, Any], total: float) -> None:
    cell = "{set:<14s} {fraction:3.1f} split {split} {method:<17s} {value:<6g} AUC {image_auc:.4f}".format(**record)
    cost = "{seconds:7.2f} s ({0:.1f} s in all), {steps} steps, gap {gap:.1e}".format(total, **record)
    print(f"{cell} {cost}", flush=True)


def append(output: Path, record: dict[str, Any]) -> None:
    """One line in one write, so that lines of several processes do not mix."""
    descriptor = os.open(output, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, (json.dumps(record) + "\n").encode())
    finally:
        os.close(descriptor)


def records(output: Path) -> list[dict[str, Any]]:
    if not output.exists():
        return []
    return [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]


def picked(names: str | None, known: dict[str, Any], what: str) -> list[Any]:
    """Those of a list of names with commas; all without one."""
    if names is None:
        return list(known.values())
    wanted = [name.strip() for name in names.split(";" if ";" in names else ",")]
    unknown = [name for name in wanted if name.partition("@")[0] not in known]
    if unknown:
        sys.exit(f"No {what} is called {unknown[0]!r}; there are {'; '.join(known)}.")
    return [known.get(name, name) for name in wanted]


def found(data: str | None, sets: Sequence[str]) -> Path:
    """The folder, if it holds the sets; leaves the program if not, with an error only where a folder was named."""
    if data is None:
        print("No data: give the folder of the multi-label sets with --data or in KERNELWEAVE_DATA. Nothing was run.")
        sys.exit(0)
    files = [Path(data) / f"{name.partition('@')[0].replace('_noisy', '_pml')}.npz" for name in sets]
    missing = [str(file) for file in files if not file.exists()]
    if missing:
        sys.exit(f"Data sets are missing: {', '.join(missing)}. Name those that are there with --sets.")
    return Path(data)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("KERNELWEAVE_DATA"), help="folder of the .npz files")
    parser.add_argument("--sets", help="names with commas between them; all by default")
    parser.add_argument("--methods", help="names with semicolons between them; all by default")
    parser.add_argument("--fractions", type=float, nargs="+", default=list(FRACTIONS), help="of labels removed")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2, help="processes, each with one thread")
    parser.add_argument("--output", type=Path, default=Path("multilabel.jsonl"))
    parser.add_argument("--tables", action="store_true", help="print the tables of the output and run nothing")
    arguments = parser.parse_args()
    if arguments.tables:
        print_tables(records(arguments.output))
        return
    methods = picked(arguments.methods, {method.name: method for method in METHODS}, "method")
    sets = picked(arguments.sets, {name: name for name in SETS}, "set")
    folder = found(arguments.data, sets)
    tasks = [(name, fraction) for name in sets for fraction in arguments.fractions]
    with parallel_config("loky", n_jobs=arguments.jobs, inner_max_num_threads=1):
        Parallel()(
            delayed(run_set)(folder, arguments.output, name, fraction, methods, arguments.splits)
            for name, fraction in tasks
        )


if __name__ == "__main__":
    main()
