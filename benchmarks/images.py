"""Ways to combine the kernels of pictures, on real pictures: best single, average, product, l1 and l2; and rankers.

    python benchmarks/images.py --data FOLDER [--sets flowers17] [--curves] [--cache CACHE] [--output images.jsonl]
    python benchmarks/images.py --output images.jsonl --tables

FOLDER holds the sets flowers17, caltech101_20 and miml_scene (see image_data.py). CACHE keeps what was computed from
the pictures. The output has a line of JSON a fit; what is there already is not run again. Parameters are chosen by
three-fold cross-validation on the training part of the first split and used for all splits.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from image_data import CORE, TRAINING, Kernels, Pictures, describe, found, load
from multilabel import append, picked, records
from multilabel_tables import show
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold

from kernelweave import LabelRanker, MKLClassifier
from kernelweave.evaluation import MultilabelStratifiedKFold, evaluate, mean_average_precision, summary_table
from kernelweave.kernels import KernelBank
from kernelweave.machines import MLRL1
from kernelweave.views import KernelStack

PRESETS = {
    "flowers17": ("flowers", "quick"),
    "caltech101_20": ("caltech48", "quick"),
    "miml_scene": ("voc15", "quick"),
}
#: Training pictures, of every class or (miml_scene) in all.
CURVES = {"flowers17": (10, 20, 40, 60), "caltech101_20": (5, 10, 15, 25), "miml_scene": (50, 100, 250, 1000)}
COSTS = (1.0, 10.0, 100.0, 1000.0)
#: With the ridge of the default ranker nothing changes any more above 1.
RANKING_COSTS, LARGER_COSTS = (0.01, 0.1, 1.0, 10.0), (0.1, 1.0, 10.0, 100.0)
MEASURES = ("category_ap11", "image_auc", "lrap", "one_error", "coverage")
FOLDS = 3
#: A kernel counts as used with at least this share of the weights.
USED = 1e-3

Estimator = MKLClassifier | LabelRanker


# --- methods ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Method:
    """A name, the costs to choose from, an estimator by its cost, and which kernels it sees.

    Weights of the l2 ball sum to as much as the root of the number of kernels, those of the simplex to 1. The costs of
    l2 are divided by that root, so that all methods search the same range.
    """

    name: str
    make: Callable[[float], Estimator]
    costs: tuple[float, ...] = COSTS
    kernels: str = "all"
    shrink: bool = False

    def candidates(self, kernels: Kernels) -> list[tuple[float, Kernels]]:
        if self.kernels == "product":
            seen = [kernels.geometric_mean()]
        elif self.kernels == "each":
            seen = [kernels.some([j]) for j in range(len(kernels))]
        else:
            seen = [kernels]
        return [(self.cost(C, part), part) for part in seen for C in self.costs]

    def cost(self, C: float, kernels: Kernels) -> float:
        return C / math.sqrt(len(kernels)) if self.shrink else C


def precomputed() -> KernelBank:
    return KernelBank("precomputed", check="never")  # they were checked when they were made


def classifier(**settings: Any) -> Callable[[float], Estimator]:
    return lambda C: MKLClassifier(precomputed(), C=C, **settings)


def ranker(weights: str) -> Callable[[float], Estimator]:
    return lambda C: LabelRanker(kernels=precomputed(), weights=weights, C=C, random_state=0)


def ranker_without_ridge(weights: str) -> Callable[[float], Estimator]:
    """As `ranker`, but nothing is added to the diagonal of the kernel."""
    return lambda C: LabelRanker(kernels=precomputed(), weights=weights, machine=MLRL1(C, box="wide"), random_state=0)


CLASSIFIERS = (
    Method("best single", classifier(weights="average"), kernels="each"),
    Method("average", classifier(weights="average")),
    Method("product", classifier(weights="average"), kernels="product"),
    Method("l1", classifier(weights="l1")),
    Method("l2", classifier(weights="l2"), shrink=True),
    Method("l1, shared", classifier(weights="l1", sharing="sum")),
)
RANKERS = (
    Method("ranker, average", ranker("average"), RANKING_COSTS),
    Method("ranker, l1", ranker("l1"), RANKING_COSTS),
    Method("ranker, l2", ranker("l2"), RANKING_COSTS, shrink=True),
    Method("ranker without ridge, average", ranker_without_ridge("average"), LARGER_COSTS),
    Method("ranker without ridge, l2", ranker_without_ridge("l2"), LARGER_COSTS, shrink=True),
)


# --- the experiment ---------------------------------------------------------------------------------------------------


def mean_recall(y: NDArray, scores: NDArray) -> float:
    """Mean over the classes of the share of their pictures that are recognised; classes are 0, 1, ..."""
    hits = scores.argmax(axis=1) == y
    return float(np.mean([hits[y == label].mean() for label in np.unique(y)]))


def of_interest(y: NDArray, scores: NDArray) -> float:
    """What parameters are chosen by."""
    return mean_recall(y, scores) if y.ndim == 1 else evaluate(y, scores, ["image_auc"])["image_auc"].value


def measured(y: NDArray, scores: NDArray) -> dict[str, float]:
    if y.ndim == 1:
        Y = np.eye(scores.shape[1], dtype=int)[y]
        return {"recall": mean_recall(y, scores), "category_ap11": mean_average_precision(Y, scores, "11-point")}
    table = evaluate(y, scores, MEASURES)
    return {name: table[name].value for name in MEASURES}


def choose(method: Method, kernels: Kernels, y: NDArray) -> tuple[int, list[float]]:
    """Position of the best candidate by cross-validation, and what each reached."""
    splitter = (StratifiedKFold if y.ndim == 1 else MultilabelStratifiedKFold)(FOLDS, shuffle=True, random_state=0)
    folds = list(splitter.split(np.empty(len(y)), y))
    reached = []
    for C, part in method.candidates(kernels):
        stack = KernelStack(part.between)
        fold_scores = [method.make(C).fit(stack[a], y[a]).decision_function(stack[b]) for a, b in folds]
        values = [of_interest(y[b], scores) for (_, b), scores in zip(folds, fold_scores, strict=True)]
        reached.append(float(np.mean(values)))
    return int(np.argmax(reached)), reached


def used_kernels(model: Estimator) -> NDArray[np.bool_]:
    """Which kernels count, (n_problems, n_kernels)."""
    weights = np.atleast_2d(model.weights_)
    return weights > USED * weights.sum(axis=1, keepdims=True)


def one_fit(method: Method, chosen: int, kernels: Kernels, y: NDArray, y_new: NDArray) -> dict[str, Any]:
    C, part = method.candidates(kernels)[chosen]
    begin = time.perf_counter()
    model = method.make(C).fit(KernelStack(part.between), y)
    seconds = time.perf_counter() - begin
    begin = time.perf_counter()
    scores = model.decision_function(part.new)
    predicting = time.perf_counter() - begin
    used = used_kernels(model)
    return measured(y_new, scores) | {
        "C": C,
        "kernels": "each" if len(part) > 1 else part.names[0],
        "used": float(used.sum(axis=1).mean()),
        "used by some": int(used.any(axis=0).sum()),
        "seconds": seconds,
        "seconds to predict": predicting,
        "gap": float(model.gap_),
    }


def run_preset(pictures: Pictures, preset: str, arguments: argparse.Namespace) -> None:
    """All methods on all splits with all numbers of training pictures; a line of the output a fit."""
    output: Path = arguments.output
    methods = CLASSIFIERS + (RANKERS if pictures.has_labels else ())
    sizes = CURVES[pictures.name] if arguments.curves else (TRAINING[pictures.name],)
    earlier = [r for r in records(output) if (r["set"], r["preset"]) == (pictures.name, preset)]
    done = {(r["n"], r["split"], r["method"]) for r in earlier}
    if done >= {(n, k, m.name) for n in sizes for k in range(arguments.splits) for m in methods}:
        return
    described = describe(pictures, preset, arguments.cache)
    print(f"{pictures.name}, {preset}: described in {described.seconds:.0f} s", flush=True)
    for n in sizes:
        chosen = {r["method"]: (r["chosen"], r["tried"]) for r in earlier if r["n"] == n}
        for number, (train, test) in enumerate(pictures.splits(arguments.splits, n)):
            wanted = [method for method in methods if (n, number, method.name) not in done]
            if not wanted:
                continue
            kernels = described.kernels(train, test)
            y, y_new = pictures.y[train], pictures.y[test]
            about = {"set": pictures.name, "preset": preset, "n": n, "split": number, "s": len(kernels)}
            about |= {"seconds of kernels": kernels.seconds}
            for method in wanted:
                begin = time.perf_counter()
                if method.name not in chosen:  # on the first split, for all of them
                    chosen[method.name] = choose(method, kernels, y)
                position, tried = chosen[method.name]
                record = about | {"method": method.name, "chosen": position, "tried": tried}
                record |= one_fit(method, position, kernels, y, y_new)
                append(output, record)
                report(record, time.perf_counter() - begin)


def report(record: dict[str, Any], total: float) -> None:
    value = record["recall"] if "recall" in record else record["image_auc"]
    text = "{set} {preset} n={n} split {split} {method:<15s} C={C:<6.3g} {0:.4f}".format(value, **record)
    cost = "{used:.1f} kernels, {seconds:.2f} s ({0:.1f} s in all)".format(total, **record)
    print(f"{text}  {cost}", flush=True)


# --- tables -----------------------------------------------------------------------------------------------------------


def print_tables(results: Sequence[dict[str, Any]]) -> None:
    if not results:
        print("The output holds no results yet.")
    for name in dict.fromkeys(r["set"] for r in results):
        for preset in dict.fromkeys(r["preset"] for r in results if r["set"] == name):
            part = [r for r in results if (r["set"], r["preset"]) == (name, preset)]
            print_methods([r for r in part if r["n"] == TRAINING[name]], f"{name}, {preset}")
            for measure in ("recall", "category_ap11") if "recall" in part[0] else ("category_ap11", "image_auc"):
                print_curve(part, f"{name}, {preset}: {measure} against training pictures", measure)


def print_methods(results: Sequence[dict[str, Any]], title: str) -> None:
    measures = [m for m in ("recall", *MEASURES) if results and m in results[0]]
    rows = []
    for method in dict.fromkeys(r["method"] for r in results):
        part = [r for r in results if r["method"] == method]
        cells = [spread(part, m, 1 if m == "coverage" else 100) for m in measures]
        used = f"{np.mean([r['used'] for r in part]):.1f} / {np.mean([r['used by some'] for r in part]):.1f}"
        rows.append([method, *cells, used, f"{part[0]['C']:.3g}", f"{np.mean([r['seconds'] for r in part]):.2f}"])
    if rows:
        show(title, ["method", *measures, "kernels a class / in all", "C", "seconds a fit"], rows)


def print_curve(results: Sequence[dict[str, Any]], title: str, measure: str) -> None:
    if len({r["n"] for r in results}) < 2:
        return
    table = summary_table(sorted(results, key=lambda r: r["n"]), rows="method", columns="n", value=measure)
    rows = [
        [str(name), *(f"{100 * m:.1f} ± {100 * d:.1f}" for m, d in zip(means, deviations, strict=True))]
        for name, means, deviations in zip(table.rows, table.mean, table.std, strict=True)
    ]
    show(title, ["method", *map(str, table.columns)], rows)


def spread(results: Sequence[dict[str, Any]], key: str, scale: float = 100.0) -> str:
    values = scale * np.array([r[key] for r in results])
    digits = 1 if scale == 100 else 2
    deviation = f" ± {values.std(ddof=1):.{digits}f}" if len(values) > 1 else ""
    return f"{values.mean():.{digits}f}{deviation}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder of the picture sets")
    parser.add_argument("--sets", help="names with commas between them; all by default")
    parser.add_argument("--presets", help="names with commas between them; those of each set by default")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--curves", action="store_true", help="also with fewer and with more training pictures")
    parser.add_argument("--cache", type=Path, help="folder that keeps what was computed from the pictures")
    parser.add_argument("--output", type=Path, default=Path("images.jsonl"))
    parser.add_argument("--tables", action="store_true", help="print the tables of the output and run nothing")
    arguments = parser.parse_args()
    if arguments.tables:
        print_tables(records(arguments.output))
        return
    sets = picked(arguments.sets, {name: name for name in CORE}, "set")
    folder = found(arguments.data, sets)
    for name in sets:
        pictures = load(folder, name)
        presets = arguments.presets.split(",") if arguments.presets else PRESETS[name]
        for preset in presets:
            run_preset(pictures, preset, arguments)


if __name__ == "__main__":
    main()
