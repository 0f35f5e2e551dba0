"""What a fixed parameter costs on real multi-label data, to choose defaults that need no search.

    python benchmarks/multilabel_defaults.py --data FOLDER [--sets scene,birds] [--jobs 2]

Data as for `multilabel.py`. One split, at most 500 training rows, complete labels and 40 % removed; no parameter is
chosen. Prints, for every setting, how far it is below the best of all settings on the same set: mean and worst of sets.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed, parallel_config
from multilabel import SETS, Outcome, Part, found, least_squares, load, machine, ml_knn, picked, platt, split
from multilabel_tables import show
from numpy.typing import NDArray

from kernelweave.evaluation import evaluate, remove_labels
from kernelweave.machines import MLRGL, MLRL1, SVM, MLRPairwise

MOST_TRAINING, ACCURACY, FRACTIONS = 500, 1e-2, (0.0, 0.4)
MEASURES = ("image_auc", "image_ap")
Run = Callable[[Part, NDArray, float, float], Outcome]


def scaled_least_squares(part: Part, Y: NDArray, value: float, accuracy: float) -> Outcome:
    """MLLS with a beta that does not depend on the unit of the features."""
    spread = float(((part.X - part.X.mean(axis=0)) ** 2).sum(axis=1).mean())
    return least_squares(part, Y, value * spread, accuracy)


#: Family, what its parameter is, the values, and how it is run. Costs of pairs and groups are given a label.
FAMILIES: tuple[tuple[str, str, tuple[float, ...], Run], ...] = (
    ("SVM", "C", (0.1, 1, 10, 100), machine(lambda C, m: SVM(C))),
    ("SVM, Platt", "C", (0.1, 1, 10, 100), platt),
    ("MLR-L1", "C", (0.1, 1, 10), machine(lambda C, m: MLRL1(C))),
    ("MLR-L1, C = 1", "ridge", (0.3, 1, 3, 10), machine(lambda ridge, m: MLRL1(1.0, ridge=ridge))),
    ("MLR-L1, C = 10", "ridge", (0.3, 1, 3, 10), machine(lambda ridge, m: MLRL1(10.0, ridge=ridge))),
    ("MLR-L1, wide box", "C m", (0.6, 2, 6, 20), machine(lambda cost, m: MLRL1(cost / m, box="wide"))),
    (
        "MLR-L1, wide box, ridge 1",
        "C m",
        (2, 6, 20, 60),
        machine(lambda cost, m: MLRL1(cost / m, ridge=1.0, box="wide")),
    ),
    ("MLR-L1, wide box, ridge 1", "C", (0.1, 1, 10), machine(lambda C, m: MLRL1(C, ridge=1.0, box="wide"))),
    ("pairwise", "C m", (0.6, 2, 6, 20), machine(lambda cost, m: MLRPairwise(cost / m))),
    ("MLR-GL", "C m", (0.6, 2, 6, 20), machine(lambda cost, m: MLRGL(cost / m))),
    ("MLR-GL", "C", (0.01, 0.1, 1), machine(lambda C, m: MLRGL(C))),
    ("MLR-GL, C = 1", "eta / m", (0.125, 0.25, 0.5, 1, 2), machine(lambda share, m: MLRGL(1.0, eta=share * m))),
    ("ML-kNN", "k", (5, 10, 20, 40), ml_knn),
    ("MLLS", "beta", (0.001, 0.01, 0.1, 1), least_squares),
    ("MLLS", "beta / spread", (0.003, 0.01, 0.03, 0.1), scaled_least_squares),
)


def run_set(folder: Path, name: str, fraction: float) -> list[dict[str, Any]]:
    X, given, truth = load(folder, name)
    part, Y, Y_new = next(split(X, given, truth, name, 1, MOST_TRAINING))
    Y = remove_labels(Y, [fraction], random_state=0)[0].Y
    results = []
    for family, parameter, values, run in FAMILIES:
        for value in values:
            begin = time.perf_counter()
            table = evaluate(Y_new, run(part, Y, value, ACCURACY).new, MEASURES)
            seconds = time.perf_counter() - begin
            setting = f"{family}, {parameter} = {value:g}"
            found = {measure: table[measure].value for measure in MEASURES}
            results.append({"set": name, "fraction": fraction, "setting": setting, "seconds": seconds} | found)
            auc, ap = (found[measure] for measure in MEASURES)
            print(f"{name:<14s} {fraction:3.1f} {setting:<32s} AUC {auc:.4f} AP {ap:.4f} {seconds:6.2f} s", flush=True)
    return results


def print_losses(results: list[dict[str, Any]]) -> None:
    settings = list(dict.fromkeys(result["setting"] for result in results))
    columns, cells = [], []
    for fraction in FRACTIONS:
        for measure, title in (("image_auc", "AUC"), ("image_ap", "AP")):
            part = [result for result in results if result["fraction"] == fraction]
            sets = list(dict.fromkeys(result["set"] for result in part))
            values = np.array([[r[measure] for r in part if r["set"] == name] for name in sets])
            losses = 100 * (values.max(axis=1, keepdims=True) - values)
            columns += [f"{title}, {100 * fraction:.0f} %: mean", "worst"]
            cells += [losses.mean(axis=0), losses.max(axis=0)]
    rows = [[name, *(f"{column[i]:.1f}" for column in cells)] for i, name in enumerate(settings)]
    show("Points below the best setting of the set", ["setting", *columns], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("KERNELWEAVE_DATA"), help="folder of the .npz files")
    parser.add_argument("--sets", help="names with commas between them; all by default")
    parser.add_argument("--jobs", type=int, default=2, help="processes, each with one thread")
    arguments = parser.parse_args()
    clean = {name: name for name in SETS if name != "mirflickr_noisy"}
    sets = picked(arguments.sets, clean, "set")
    folder = found(arguments.data, sets)
    with parallel_config("loky", n_jobs=arguments.jobs, inner_max_num_threads=1):
        parts = Parallel()(delayed(run_set)(folder, name, fraction) for name in sets for fraction in FRACTIONS)
    print_losses([result for part in parts for result in part])


if __name__ == "__main__":
    main()
