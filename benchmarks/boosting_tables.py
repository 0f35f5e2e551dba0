"""Combinations by boosting beside their rivals on real pictures: accuracy, kernels used, and kernels of pure noise.

    python benchmarks/boosting_tables.py --data FOLDER [--sets flowers17] [--cache CACHE] [--output boosting.jsonl]
    python benchmarks/boosting_tables.py --output boosting.jsonl --tables

FOLDER holds the sets flowers17 and caltech101_20 (see image_data.py); CACHE keeps what was computed from the pictures.
Every method chooses its parameters by cross-validation on the training part of each split. The output has a line of
JSON a fit; what is there already is not run again.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from image_data import Described, Kernels, Pictures, describe, found, load, noise
from images import mean_recall, precomputed, spread
from multilabel import append, picked, records
from multilabel_tables import show
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, StratifiedKFold

from kernelweave import MKLClassifier
from kernelweave.boosting import LPB, CGBoost, LPBeta
from kernelweave.evaluation import summary_table

PRESETS = {"flowers17": ("flowers", "quick"), "caltech101_20": ("caltech48", "quick")}
#: Training pictures of every class: of the tables, and of the curve of uninformative kernels.
SIZES = {"flowers17": (20, 60), "caltech101_20": (5, 15)}
NOISE, NOISE_SIZE = (0, 4, 8, 16, 32), 20
COSTS = (1.0, 10.0, 100.0, 1000.0)
LOGISTIC_COSTS = (0.1, 10.0, 1000.0)
#: For LP-B, whose programs are larger by the number of classes.
FEW_NUS = (0.2, 0.5, 0.8)
#: A kernel counts as used with at least this share of the weights.
USED = 1e-3


@dataclass(frozen=True)
class Outcome:
    """Scores of new pictures, the kernels used (a class, and in all) and the parameter chosen."""

    scores: NDArray
    used: float
    used_by_some: int
    parameter: float


def machine(kernels: Kernels, y: NDArray) -> LPBeta:
    """One kernel, or several: machines with costs chosen by cross-validation."""
    return LPBeta(precomputed(), nu=0.5, random_state=0).fit(kernels.stack, y)


def single(kernels: Kernels, y: NDArray) -> Outcome:
    best = int(machine(kernels, y).kernel_accuracies_.argmax())
    return alone(kernels.some([best]), y)


def alone(kernels: Kernels, y: NDArray) -> Outcome:
    """The machine of one kernel."""
    model = machine(kernels, y)
    return Outcome(model.decision_function(kernels.new), 1.0, 1, float(model.C_[0]))


def average(kernels: Kernels, y: NDArray) -> Outcome:
    between, new = (K.mean(axis=0, keepdims=True) for K in (kernels.between, kernels.new))
    outcome = alone(replace(kernels.some([0]), between=between, new=new), y)
    return Outcome(outcome.scores, len(kernels), len(kernels), outcome.parameter)


def product(kernels: Kernels, y: NDArray) -> Outcome:
    outcome = alone(kernels.geometric_mean(), y)
    return Outcome(outcome.scores, len(kernels), len(kernels), outcome.parameter)


def searched(model: Any, costs: Sequence[float], kernels: Kernels, y: NDArray) -> GridSearchCV:
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    return GridSearchCV(model, {"C": costs}, cv=folds).fit(kernels.stack, y)


def mkl(kernels: Kernels, y: NDArray) -> Outcome:
    search = searched(MKLClassifier(precomputed(), weights="l1"), COSTS, kernels, y)
    return with_weights(search.best_estimator_, kernels, search.best_params_["C"])


def cg_boost(kernels: Kernels, y: NDArray) -> Outcome:
    search = searched(CGBoost(precomputed(), tol=1e-4), LOGISTIC_COSTS, kernels, y)
    return Outcome(search.decision_function(kernels.new), len(kernels), len(kernels), search.best_params_["C"])


def program(model: LPBeta | LPB) -> Callable[[Kernels, NDArray], Outcome]:
    def fitted(kernels: Kernels, y: NDArray) -> Outcome:
        own = clone(model).fit(kernels.stack, y)
        return with_weights(own, kernels, own.nu_)

    return fitted


def with_weights(model: Any, kernels: Kernels, parameter: float) -> Outcome:
    weights = np.atleast_2d(model.weights_)
    used = weights > USED * weights.sum(axis=1, keepdims=True)
    return Outcome(
        model.decision_function(kernels.new), float(used.sum(axis=1).mean()), int(used.any(axis=0).sum()), parameter
    )


METHODS: dict[str, Callable[[Kernels, NDArray], Outcome]] = {
    "best single": single,
    "average": average,
    "product": product,
    "l1-MKL": mkl,
    "CG-Boost": cg_boost,
    "LP-beta": program(LPBeta(precomputed(), random_state=0)),
    "LP-B": program(LPB(precomputed(), nu=FEW_NUS, random_state=0)),
}


def run_split(
    about: dict[str, Any], kernels: Kernels, labels: tuple[NDArray, NDArray], arguments: argparse.Namespace
) -> None:
    """All methods wanted that the output does not hold yet."""
    y, y_new = labels
    done = {r["method"] for r in records(arguments.output) if about.items() <= r.items()}
    for name in picked(arguments.methods, {name: name for name in METHODS}, "method"):
        if name in done:
            continue
        method = METHODS[name]
        begin = time.perf_counter()
        outcome = method(kernels, y)
        seconds = time.perf_counter() - begin
        record = about | {
            "method": name,
            "s": len(kernels),
            "recall": mean_recall(y_new, outcome.scores),
            "used": outcome.used,
            "used by some": outcome.used_by_some,
            "parameter": outcome.parameter,
            "seconds": seconds,
        }
        append(arguments.output, record)
        print(
            "{set} {preset} n={n} noise={noise} split {split} {method:<12s} {recall:.4f} ({seconds:.1f} s)".format(
                **record
            ),
            flush=True,
        )


def run_set(pictures: Pictures, preset: str, arguments: argparse.Namespace) -> None:
    described = describe(pictures, preset, arguments.cache)
    about = {"set": pictures.name, "preset": preset, "noise": 0}
    for n in arguments.sizes or SIZES[pictures.name]:
        for number, (train, test) in enumerate(pictures.splits(arguments.splits, n)):
            kernels = described.kernels(train, test)
            labels = pictures.y[train], pictures.y[test]
            run_split(about | {"n": n, "split": number}, kernels, labels, arguments)
    if arguments.noise:
        run_noise(pictures, described, about, arguments)


def run_noise(pictures: Pictures, described: Described, about: dict[str, Any], arguments: argparse.Namespace) -> None:
    size = min(NOISE_SIZE, SIZES[pictures.name][-1])
    for number, (train, test) in enumerate(pictures.splits(arguments.splits, size)):
        informative = described.kernels(train, test)
        for count in NOISE[1:]:
            kernels = informative.and_also(noise(count, len(train), len(test), seed=1000 * number + count))
            labels = pictures.y[train], pictures.y[test]
            run_split(about | {"n": size, "split": number, "noise": count}, kernels, labels, arguments)


def print_tables(results: Sequence[dict[str, Any]]) -> None:
    for name, preset in dict.fromkeys((r["set"], r["preset"]) for r in results):
        part = [r for r in results if (r["set"], r["preset"]) == (name, preset)]
        for n in sorted({r["n"] for r in part}):
            own = [r for r in part if r["n"] == n]
            print_methods([r for r in own if r["noise"] == 0], f"{name}, {preset}: {n} training pictures a class")
            splits = {r["split"] for r in own if r["noise"] > 0}
            print_curves([r for r in own if r["split"] in splits], f"{name}, {preset}, {n} training pictures a class")


def print_methods(results: Sequence[dict[str, Any]], title: str) -> None:
    rows = []
    for method in METHODS:
        own = [r for r in results if r["method"] == method]
        if own:
            used = f"{np.mean([r['used'] for r in own]):.1f} / {np.mean([r['used by some'] for r in own]):.1f}"
            rows.append([method, spread(own, "recall"), used, f"{np.mean([r['seconds'] for r in own]):.1f}"])
    show(title, ["method", "recall", "kernels a class / in all", "seconds, with model selection"], rows)


def print_curves(results: Sequence[dict[str, Any]], title: str) -> None:
    """Recall, and kernels used in all, against the number of uninformative kernels."""
    for key, what, scale in (("recall", "recall", 100), ("used by some", "kernels used in all", 1)):
        if results:
            table = summary_table(sorted(results, key=lambda r: r["noise"]), rows="method", columns="noise", value=key)
            rows = [
                [str(method), *("" if np.isnan(mean) else f"{scale * mean:.1f}" for mean in means)]
                for method, means in zip(table.rows, table.mean, strict=True)
            ]
            show(f"{title}: {what} against uninformative kernels", ["method", *map(str, table.columns)], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder of the picture sets")
    parser.add_argument("--sets", help="names with commas between them; all by default")
    parser.add_argument("--presets", help="names with commas between them; those of each set by default")
    parser.add_argument(
        "--sizes", type=int, nargs="*", help="training pictures of every class; those of each set by default"
    )
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--methods", help="names with commas between them; all by default")
    parser.add_argument("--noise", action="store_true", help="also with uninformative kernels")
    parser.add_argument("--cache", type=Path, help="folder that keeps what was computed from the pictures")
    parser.add_argument("--output", type=Path, default=Path("boosting.jsonl"))
    parser.add_argument("--tables", action="store_true", help="print the tables of the output and run nothing")
    arguments = parser.parse_args()
    if arguments.tables:
        print_tables(records(arguments.output))
        return
    sets = picked(arguments.sets, {name: name for name in PRESETS}, "set")
    folder = found(arguments.data, sets)
    for name in sets:
        pictures = load(folder, name)
        for preset in arguments.presets.split(",") if arguments.presets else PRESETS[name]:
            run_set(pictures, preset, arguments)


if __name__ == "__main__":
    main()
