"""Distances and machines with and without privileged features: verification, identification, classification.

    python benchmarks/privileged_tables.py --data FOLDER --out results.jsonl [--splits 5] [--sets orl wikipedia]
    python benchmarks/privileged_tables.py --out results.jsonl --tables

FOLDER holds ``faces/NAME_32x32.npz`` with grey levels X (n, 1024) and ``multiview/NAME.npz`` with views X0, X1, ...;
both have classes y. Each set has a main view, which is all that a test sample has, and a privileged one: see SETS.

Faces and leaves are split by identity: half of the people are for training, the other half for testing. The others are
split by sample, half and half. Every view is reduced by principal components of the training part (at most 50, and at
most a third of the samples) and scaled to a mean squared distance of one. Training pairs are as many similar as
dissimilar ones, at most 600 of each, and no more in all than the matrices have entries, beyond which ITML+ has no
solution; test pairs are at most 2000 similar and three times as many dissimilar ones. Parameters are chosen on a third
of the training part ("validated", after which all of it is used again) and, as the published numbers were, by the test
result itself ("best on test"). The grids are coarser than the published ones: see GAMMAS and LAMS. Stopping is the
published one, ten sweeps; "ITML+ printed" is the algorithm without the correction. Machines have Gaussian kernels on
both views, and splits by sample for all sets; they are left out where there are more than 40 classes. Lines already in
the output are not computed again.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from sklearn.decomposition import PCA
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier, NeighborhoodComponentsAnalysis

import kernelweave as kw
from kernelweave.evaluation import cumulative_match, one_gallery_split, privileged_ratio_curve, verification
from kernelweave.images import GIST, Picture
from kernelweave.metric import EuclideanMetric, WhitenedMetric

GAMMAS = (1e-3, 1e-2, 1e-1, 1.0)
LAMS = (1e-2, 1e-1, 1.0, 1e1)
COSTS, SVM_LAMS = (1.0, 10.0, 100.0), (1e-2, 1e-1, 1.0)
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
COMPONENTS, MOST_POSITIVES, TEST_POSITIVES, NEGATIVES_A_POSITIVE = 50, 600, 2000, 3
#: Samples that machines are trained on, and classes, each of which has one.
MOST_SAMPLES, MOST_CLASSES = 400, 40
#: Samples of a class that count in all.
MOST_OF_A_CLASS = {"yaleb": 20}
NEIGHBOURS = 5
PUBLISHED = {"stopping": "published", "random_state": 0}
METRICS = {
    "L2": (EuclideanMetric, {}, {}),
    "whitened": (WhitenedMetric, {}, {}),
    "NCA": (NeighborhoodComponentsAnalysis, {"max_iter": 20, "random_state": 0}, {}),
    "ITML": (kw.ITML, PUBLISHED, {"gamma": GAMMAS}),
    "ITML-S": (kw.ITMLS, PUBLISHED, {"gamma": GAMMAS}),
    "ITML+": (kw.ITMLPlus, PUBLISHED, {"gamma": GAMMAS, "lam": LAMS}),
    "ITML+ printed": (kw.ITMLPlus, PUBLISHED | {"dual_correction": False}, {"gamma": GAMMAS, "lam": LAMS}),
}
MACHINES = {"SVM": {"C": COSTS}, "SVM+": {"C": COSTS, "lam": SVM_LAMS}}


# --- data -------------------------------------------------------------------------------------------------------------


def small_and_noisy(pictures, seed=0):
    """Half the resolution, noise of 20 grey levels, and a grey square of six pixels somewhere in each."""
    rng = np.random.default_rng(seed)
    small = pictures.reshape(-1, 16, 2, 16, 2).mean(axis=(2, 4)) + 20.0 * rng.standard_normal((len(pictures), 16, 16))
    for picture, (row, column) in zip(small, rng.integers(0, 11, (len(pictures), 2)), strict=True):
        picture[row : row + 6, column : column + 6] = 128.0
    return small.reshape(len(small), -1)


def gist(pictures):
    """Energies of oriented filters of the clean picture, which hardly depend on the light."""
    feature = GIST()
    return np.array([feature.vector(Picture(np.repeat(p.astype(np.uint8)[:, :, None], 3, axis=2))) for p in pictures])


def read_faces(folder, name, privileged):
    with np.load(folder / "faces" / f"{name}_32x32.npz") as file:
        pictures, y = file["X"].reshape(-1, 32, 32).transpose(0, 2, 1).astype(float), file["y"]
    return small_and_noisy(pictures), privileged(pictures), y


def read_views(folder, name, main, privileged):
    with np.load(folder / "multiview" / f"{name}.npz") as file:
        return file[f"X{main}"].astype(float), file[f"X{privileged}"].astype(float), file["y"]


#: Readers, what the privileged view is, and whether people or species are split, not samples.
SETS = {
    "orl": (lambda f: read_faces(f, "orl", lambda p: p.reshape(len(p), -1)), "clean pixels for small noisy ones", True),
    "yaleb": (lambda f: read_faces(f, "yaleb", gist), "GIST of the clean picture for small noisy pixels", True),
    "pie_face": (lambda f: read_views(f, "pie_face", 0, 2), "third descriptor for the first", True),
    "leaves100": (lambda f: read_views(f, "leaves100", 1, 2), "texture for shape", True),
    "wikipedia": (lambda f: read_views(f, "wikipedia", 0, 1), "text topics for SIFT words", False),
    "landuse21": (lambda f: read_views(f, "landuse21", 0, 1), "PHOG for GIST", False),
    "msrc_v1": (lambda f: read_views(f, "msrc_v1", 0, 1), "HOG for colour moments", False),
}


def few(name, X, Z, y, seed):
    """Some of the samples, where there are many of a class."""
    order = np.random.default_rng(seed).permutation(len(y))
    kept = np.concatenate([order[y[order] == label][: MOST_OF_A_CLASS.get(name)] for label in np.unique(y)])
    return X[kept], Z[kept], y[kept]


def split(y, by_class, seed, share=0.5):
    """Samples for training and for testing: of different classes, or of the same."""
    if not by_class:
        return train_test_split(np.arange(len(y)), test_size=share, stratify=y, random_state=seed)
    names, _ = train_test_split(np.unique(y), test_size=share, random_state=seed)
    return np.flatnonzero(np.isin(y, names)), np.flatnonzero(~np.isin(y, names))


def reduced(features, train):
    """Principal components of the training samples, for all samples, with a mean squared distance of one."""
    model = PCA(min(COMPONENTS, features.shape[1], len(train) // 3), random_state=0).fit(features[train])
    rows = model.transform(features)
    return rows / np.sqrt(2 * rows[train].var(axis=0).sum())


@dataclass
class Part:
    """Samples to learn from and samples to judge by."""

    X: np.ndarray
    Z: np.ndarray
    y: np.ndarray
    new: np.ndarray
    new_y: np.ndarray
    by_class: bool

    @classmethod
    def of(cls, X, Z, y, train, test, by_class):
        X, Z = reduced(X, train), reduced(Z, train)
        return cls(X[train], Z[train], y[train], X[test], y[test], by_class)

    @property
    def pairs(self):
        entries = sum(width * (width + 1) // 2 for width in (self.X.shape[1], self.Z.shape[1]))
        return kw.PairSet.from_classes(self.y, max_positives=min(MOST_POSITIVES, entries // 2), random_state=0)


# --- distances --------------------------------------------------------------------------------------------------------


def learn(method, part, **parameters):
    kind, settings, _ = METRICS[method]
    model = kind(**settings, **parameters)
    begin = time.perf_counter()
    if method == "NCA":
        model.fit(part.X, part.y)
    else:
        model.fit_pairs(part.pairs, part.X, part.Z)
    return model, time.perf_counter() - begin


def judge(model, part):
    """Average precision and AUC of new pairs, and the rank-1 rate or the accuracy of nearest neighbours, in percent."""
    new, known = model.transform(part.new), model.transform(part.X)
    sizes = np.unique(part.new_y, return_counts=True)[1]
    similar = min(TEST_POSITIVES, int(np.sum(sizes * (sizes - 1) // 2)))
    test = kw.PairSet.from_classes(
        part.new_y, max_positives=similar, negatives=NEGATIVES_A_POSITIVE * similar, random_state=0
    )
    found = verification(-np.sum((new[test.first] - new[test.second]) ** 2, axis=1), test.similar)
    if part.by_class:
        gallery, probes = one_gallery_split(part.new_y, random_state=0)
        distances = np.linalg.norm(new[probes, None] - new[gallery], axis=2)
        right = cumulative_match(distances, part.new_y[gallery], part.new_y[probes])[0]
    else:
        right = KNeighborsClassifier(NEIGHBOURS).fit(known, part.y).score(new, part.new_y)
    return {"ap": 100 * found.average_precision, "auc": 100 * found.auc, "right": 100 * float(right)}


def training_auc(model, part):
    """How far the similar and the dissimilar pairs that were learned from are apart."""
    rows, pairs = model.transform(part.X), part.pairs
    return 100 * verification(-np.sum((rows[pairs.first] - rows[pairs.second]) ** 2, axis=1), pairs.similar).auc


def distance_lines(name, X, Z, y, seed, done):
    by_class = SETS[name][2]
    train, test = split(y, by_class, seed)
    inner, outer = split(y[train], by_class, seed, share=1 / 3)
    whole = Part.of(X, Z, y, train, test, by_class)
    fold = Part.of(X[train], Z[train], y[train], inner, outer, by_class)
    for method in METRICS:
        key = {"set": name, "split": seed, "method": method}
        if tuple(key.values()) in done:
            continue
        grid = METRICS[method][2]
        points = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
        chosen = points[0]
        if len(points) > 1:
            chosen = max(points, key=lambda point: judge(learn(method, fold, **point)[0], fold)["ap"])
        results, seconds, models = [], [], []
        for point in points:
            model, taken = learn(method, whole, **point)
            results.append(judge(model, whole))
            seconds.append(taken / getattr(model, "n_sweeps_", 1))
            models.append(model)
        at = points.index(chosen)
        line = key | {"validated": results[at], "chosen": chosen, "seconds_a_sweep": float(np.median(seconds))}
        line["best"] = {measure: max(r[measure] for r in results) for measure in results[0]}
        line["training_auc"] = training_auc(models[at], whole)
        line["pairs"], line["feasible"] = len(whole.pairs), bool(getattr(models[at], "feasible_", True))
        if method == "ITML+":
            curve = []
            partial = kw.PartialITMLPlus(**PUBLISHED, **chosen)
            privileged_ratio_curve(
                partial, whole.pairs, whole.X, whole.Z, lambda model: curve.append(judge(model, whole)) or 0.0, SHARES
            )
            line["shares"] = curve
        yield line


# --- machines ---------------------------------------------------------------------------------------------------------


def machine_lines(name, X, Z, y, seed, done):
    if len(np.unique(y)) > MOST_CLASSES:
        return
    train, test = split(y, False, seed)
    if len(train) > MOST_SAMPLES:
        train, _ = train_test_split(train, train_size=MOST_SAMPLES, stratify=y[train], random_state=seed)
    inner, outer = split(y[train], False, seed, share=1 / 3)
    whole = Part.of(X, Z, y, train, test, False)
    fold = Part.of(X[train], Z[train], y[train], inner, outer, False)
    for method, grid in MACHINES.items():
        key = {"set": name, "split": seed, "method": method}
        if tuple(key.values()) in done:
            continue
        points = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]

        def right(part, point, method=method):
            model = kw.SVMPlus(tol=1e-2, **point).fit(part.X, part.y, part.Z if method == "SVM+" else None)
            return 100 * float(model.score(part.new, part.new_y))

        begin = time.perf_counter()
        chosen = max(points, key=lambda point: right(fold, point))
        results = [right(whole, point) for point in points]
        yield key | {
            "validated": {"right": results[points.index(chosen)]},
            "best": {"right": max(results)},
            "chosen": chosen,
            "seconds": time.perf_counter() - begin,
        }


# --- tables -----------------------------------------------------------------------------------------------------------


KINDS = {"validated": "parameters chosen on validation", "best": "best on test"}
MEASURES = {"ap": "Average precision of test pairs", "auc": "AUC of test pairs", "right": "Rank-1 rate or accuracy"}


def csv_table(title, head, rows):
    """Print a table as reStructuredText."""
    print(f".. csv-table:: {title}\n   :header-rows: 1\n   :delim: |\n")
    for row in (head, *rows):
        print("   " + " | ".join(row))
    print()


def values(lines, name, method, kind, measure):
    """One number a split, in the order of the splits."""
    own = sorted((x["split"], x[kind][measure]) for x in lines if (x["set"], x["method"]) == (name, method))
    return np.array([value for _, value in own])


def means(lines, methods, kind, measure, title):
    """Mean and standard deviation over splits, a row a set and a column a method."""
    rows = []
    for name in dict.fromkeys(line["set"] for line in lines):
        found = [values(lines, name, method, kind, measure) for method in methods]
        best = max(np.mean(v).round(1) for v in found if len(v))
        cells = [
            (f"**{np.mean(v):.1f}**" if np.mean(v).round(1) == best else f"{np.mean(v):.1f}") + f" ± {np.std(v):.1f}"
            if len(v)
            else ""
            for v in found
        ]
        rows.append([name, *cells])
    csv_table(f"{title}, {KINDS[kind]}", ["set", *methods], rows)


def differences(lines, one, other, measures):
    """Mean over splits of what one method is above another, with the standard error of that mean."""
    rows = []
    for name in dict.fromkeys(line["set"] for line in lines):
        cells = []
        for kind, measure in product(KINDS, measures):
            first, second = (values(lines, name, method, kind, measure) for method in (one, other))
            n = min(len(first), len(second))
            gain = first[:n] - second[:n]
            cells.append(f"{gain.mean():+.2f} ± {gain.std(ddof=1) / n**0.5:.2f}" if n > 1 else "")
        rows.append([name, *cells])
    head = ["set", *(f"{measure}, {kind}" for kind, measure in product(KINDS, measures))]
    csv_table(f"{one} less {other}", head, rows)


def print_tables(lines):
    distances = [line for line in lines if line["method"] in METRICS]
    machines = [line for line in lines if line["method"] in MACHINES]
    counts = {method: sum(line["method"] == method for line in distances) for method in METRICS}
    methods = [method for method in METRICS if counts[method] == max(counts.values())]  # means over the same splits
    for measure, kind in product(MEASURES, KINDS):
        means(distances, methods, kind, measure, MEASURES[measure])
    differences(distances, "ITML+", "ITML", MEASURES)
    differences(distances, "ITML+ printed", "ITML", MEASURES)
    differences(distances, "ITML-S", "ITML", MEASURES)
    for kind in KINDS:
        means(machines, MACHINES, kind, "right", "Accuracy of machines")
    differences(machines, "SVM+", "SVM", ["right"])
    rows = []
    for name, measure in product(dict.fromkeys(line["set"] for line in distances), MEASURES):
        curves = [[at[measure] for at in x["shares"]] for x in distances if x["set"] == name and "shares" in x]
        if curves:
            rows.append([name, measure, *(f"{value:.2f}" for value in np.mean(curves, axis=0))])
    csv_table("Share of pairs with privileged features", ["set", "", *(f"{share:.0%}" for share in SHARES)], rows)
    rows = []
    for name in dict.fromkeys(line["set"] for line in distances):
        own = {m: [x for x in distances if (x["set"], x["method"]) == (name, m)] for m in methods}
        apart = [f"{np.mean([x['training_auc'] for x in own[m]]):.1f}" for m in methods]
        feasible = [f"{sum(x['feasible'] for x in own['ITML+'])} of {len(own['ITML+'])}"]
        rows.append([name, str(own["L2"][0]["pairs"]), *apart, *feasible])
    csv_table("AUC of the training pairs", ["set", "pairs", *methods, "ITML+ feasible"], rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, default=Path("privileged.jsonl"))
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--sets", nargs="*", default=list(SETS), choices=list(SETS))
    parser.add_argument("--only", choices=["distances", "machines"], help="one part")
    parser.add_argument("--tables", action="store_true", help="print what is in the output")
    arguments = parser.parse_args()
    lines = [json.loads(line) for line in arguments.out.read_text().splitlines()] if arguments.out.exists() else []
    if arguments.tables:
        print_tables(lines)
        return
    if arguments.data is None:
        print("No data: give the folder of the sets with --data. Nothing was run.")
        return
    warnings.simplefilter("ignore")
    done = {(line["set"], line["split"], line["method"]) for line in lines}
    for seed, name in product(range(arguments.splits), arguments.sets):
        X, Z, y = few(name, *SETS[name][0](arguments.data), seed)
        for part in (distance_lines, machine_lines):
            if arguments.only and not part.__name__.startswith(arguments.only[:-1]):
                continue
            for line in part(name, X, Z, y, seed, done):
                with arguments.out.open("a") as file:
                    file.write(json.dumps(line) + "\n")
                print(line["set"], line["split"], line["method"], line["validated"], line["chosen"], flush=True)


if __name__ == "__main__":
    main()
