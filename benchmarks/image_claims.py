"""Published claims about multiple kernel learning, tried on the kernels of real pictures.

    python benchmarks/image_claims.py --data FOLDER [--cache CACHE] [--only noise,solvers] [--splits 5]

FOLDER and CACHE are as for images.py, which has the claims about accuracy against the number of training pictures
(``--curves``). A part prints one table or more. Parameters are chosen by cross-validation on the first split of each
case, as there.
"""

from __future__ import annotations

import argparse
import functools
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from image_data import Described, Kernels, Pictures, describe, found, load, noise
from images import CLASSIFIERS, Method, choose, classifier, measured, one_fit, precomputed, spread, used_kernels
from multilabel_tables import show
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from kernelweave import MKLClassifier
from kernelweave.images import SIFT, BagOfWords, BoxWords, DenseGrid, KMeans, Prototypes, pyramid
from kernelweave.kernels import KernelBank
from kernelweave.machines import SVM
from kernelweave.solvers import PUBLISHED, Saddle, StochasticApproximation, run
from kernelweave.views import KernelStack
from kernelweave.weights import parse_weights

METHODS = {method.name: method for method in CLASSIFIERS}
L1_SOLVERS = (
    *("newton", "level", "cutting-plane", "alternating"),
    *("mirror-descent", "projected-gradient", "reduced-gradient"),
)
#: Descriptors of the experiments with codebooks and boxes.
GRID = DenseGrid(step=10, radii=(8.0, 16.0))


@dataclass(frozen=True)
class Case:
    """Kernels of one split with the classes of its pictures."""

    kernels: Kernels
    y: NDArray
    y_new: NDArray


@dataclass(frozen=True)
class Lab:
    """Where the pictures are, and how many splits are made."""

    folder: Path
    cache: Path | None
    splits: int

    def pictures(self, name: str) -> Pictures:
        return load(self.folder, name)

    @functools.cache  # noqa: B019  # one lab lives as long as the program
    def described(self, name: str, preset: str) -> Described:
        return describe(self.pictures(name), preset, self.cache)

    @functools.cache  # noqa: B019
    def case(self, name: str, preset: str, n_train: int, split: int = 0) -> Case:
        train, test = list(self.pictures(name).splits(split + 1, n_train))[split]
        return case_of(self.pictures(name), self.described(name, preset), train, test)

    def cases(self, name: str, preset: str, n_train: int) -> list[Case]:
        return [self.case(name, preset, n_train, split) for split in range(self.splits)]

    def cases_of(
        self, pictures: Pictures, described: Described, n_train: int, normalise: str | None = None
    ) -> list[Case]:
        splits = pictures.splits(self.splits, n_train)
        return [case_of(pictures, described, train, test, normalise) for train, test in splits]


def case_of(
    pictures: Pictures, described: Described, train: NDArray, test: NDArray, normalise: str | None = None
) -> Case:
    return Case(described.kernels(train, test, normalise), pictures.y[train], pictures.y[test])


def trial(method: Method, cases: Sequence[Case]) -> list[dict[str, Any]]:
    """A fit on every split with what is chosen on the first."""
    position, _ = choose(method, cases[0].kernels, cases[0].y)
    return [one_fit(method, position, case.kernels, case.y, case.y_new) for case in cases]


def compare(title: str, rows: Iterable[tuple[str, Sequence[Case]]], names: Sequence[str]) -> None:
    """Mean recall and kernels used, a line a case and a column a method."""
    lines = []
    for label, cases in rows:
        results = [trial(METHODS[name], cases) for name in names]
        cells = [
            spread(r, "recall") + (f" ({np.mean([x['used'] for x in r]):.1f})" if name.startswith("l1") else "")
            for name, r in zip(names, results, strict=True)
        ]
        lines.append([label, *cells])
        print("   " + " | ".join(lines[-1]), flush=True)
    show(f"{title}: mean recall (kernels a class)", ["", *names], lines)


# --- accuracy ---------------------------------------------------------------------------------------------------------


def number_of_kernels(lab: Lab) -> None:
    """C7: kernels added in the order of their l1 weights."""
    for n_train in (15, 25):
        cases = lab.cases("caltech101_20", "caltech48", n_train)
        position, _ = choose(METHODS["l1"], cases[0].kernels, cases[0].y)
        C = METHODS["l1"].candidates(cases[0].kernels)[position][0]
        models = [classifier(weights="l1")(C).fit(case.kernels.stack, case.y) for case in cases]
        orders = [np.argsort(-model.weights_.mean(axis=0)) for model in models]
        print("first ten of the first split:", ", ".join(cases[0].kernels.names[j] for j in orders[0][:10]))
        rows = (
            (str(k), [with_kernels(c, order[:k]) for c, order in zip(cases, orders, strict=True)])
            for k in (1, 2, 5, 10, 15, 20, 30, 40, len(cases[0].kernels))
        )
        compare(f"caltech48, {n_train} a class, best kernels by l1 weight", rows, ("average", "l1", "l2"))


def noise_kernels(lab: Lab) -> None:
    """Kernels of random vectors beside those of the flowers."""
    cases = lab.cases("flowers17", "flowers", 40)

    def with_noise(n_kernels: int) -> list[Case]:
        if n_kernels == 0:
            return cases
        return [
            Case(c.kernels.and_also(noise(n_kernels, len(c.y), len(c.y_new), seed)), c.y, c.y_new)
            for seed, c in enumerate(cases)
        ]

    rows = ((str(k), with_noise(k)) for k in (0, 7, 14, 28, 56))
    compare("flowers, 40 a class, noise kernels", rows, ("average", "product", "l1", "l2", "l1, shared"))


def products(lab: Lab) -> None:
    """C2, C10: what the narrow products of pyramid levels among the 48 kernels, and their scale, do to l1."""
    for n_train in (5, 10, 15, 25):
        cases = lab.cases("caltech101_20", "caltech48", n_train)
        ways = (
            *(("as they are", as_they_are), ("products as geometric means", widened_products)),
            *(("without products", without_products), ("variance 1", of_unit_variance)),
        )
        rows = ((label, [Case(change(c.kernels), c.y, c.y_new) for c in cases]) for label, change in ways)
        compare(f"caltech48, {n_train} a class", rows, ("average", "l1", "l2", "l1, shared"))


def as_they_are(kernels: Kernels) -> Kernels:
    return kernels


def widened_products(kernels: Kernels) -> Kernels:
    """Every product with all its bandwidths times the number of its factors."""
    powers = [1 / max(n, 1) for n in kernels.factors]
    return changed(kernels, lambda K, power: K**power, powers)


def without_products(kernels: Kernels) -> Kernels:
    return kernels.some(np.flatnonzero(kernels.factors < 2))


def of_unit_variance(kernels: Kernels) -> Kernels:
    """Every kernel divided by the variance of the training pictures in its feature space."""
    variances = [K.trace() / len(K) - K.mean(dtype=np.float64) for K in kernels.between]
    return changed(kernels, lambda K, variance: K / variance, variances)


def changed(kernels: Kernels, change: Callable[[NDArray, float], NDArray], by: Sequence[float]) -> Kernels:
    between, new = (
        np.stack([change(K, value) for K, value in zip(stack, by, strict=True)]).astype(np.float32)
        for stack in (kernels.between, kernels.new)
    )
    return Kernels(kernels.names, between, new, kernels.factors)


def normalisation(lab: Lab) -> None:
    """C10: kernels scaled in different ways; the cost is chosen for each."""
    ways: tuple[str | None, ...] = (None, "trace", "spherical", "variance", "center")
    pictures, described = lab.pictures("caltech101_20"), lab.described("caltech101_20", "quick")
    rows = ((way or "none", lab.cases_of(pictures, described, 15, way)) for way in ways)
    compare("quick, caltech101_20, 15 a class", rows, ("average", "l1", "l2"))


def sharing(lab: Lab) -> None:
    """C9, C20, C21: one weight vector for all classes."""
    for n_train in (15, 25):
        cases = lab.cases("caltech101_20", "caltech48", n_train)
        position, _ = choose(METHODS["l1"], cases[0].kernels, cases[0].y)
        ways: list[tuple[str, dict[str, Any]]] = [
            ("none, l1", {"sharing": "none"}),
            ("none, l2", {"sharing": "none", "weights": "l2"}),
            ("sum", {"sharing": "sum"}),
            ("worst case, level", {"sharing": "worst-case"}),
            ("worst case, stochastic", {"sharing": "worst-case", "solver": sa()}),
        ]
        if n_train == 15:
            ways += [
                (f"delta {delta:g}", {"sharing": "worst-case", "solver": sa(smoothing=delta)}) for delta in (0, 0.5)
            ]
            ways += [
                (f"weight step {w:g}", {"sharing": "worst-case", "solver": sa(weight_step=w)}) for w in (0.1, 10.0)
            ]
            ways += [(f"class step {w:g}", {"sharing": "worst-case", "solver": sa(class_step=w)}) for w in (0.002, 0.2)]
        rows = []
        for label, settings in ways:
            method = Method(label, classifier(**settings), shrink=settings.get("weights") == "l2")
            results = [one_fit(method, position, c.kernels, c.y, c.y_new) for c in cases]
            cells = [spread(results, key) for key in ("recall", "category_ap11")]
            cells += [f"{np.median([r[key] for r in results]):.2f}" for key in ("seconds", "seconds to predict")]
            rows.append([label, *cells, f"{max(r['gap'] for r in results):.1e}"])
            print("   " + " | ".join(rows[-1]), flush=True)
        head = ["sharing", "recall", "MAP", "seconds", "to predict", "largest gap"]
        show(f"caltech48, {n_train} a class, shared weights", head, rows)


def sa(**settings: float) -> StochasticApproximation:
    return StochasticApproximation(random_state=0, **settings)  # type: ignore[arg-type]  # all of these are floats


# --- solvers ----------------------------------------------------------------------------------------------------------


def every_solver(lab: Lab) -> None:
    """C6, C12 to C16: every solver on the same problems, as published (40 iterations) and to the same gap."""
    case = lab.case("caltech101_20", "caltech48", 25)
    tried = [("l1", solver) for solver in L1_SOLVERS]
    tried += [(p, solver) for p in ("l2", "l4") for solver in ("newton", "cutting-plane", "alternating", "smo")]
    head = ["weights, solver", "seconds a class", "iterations", "SVMs", "kernels read", "combining", "machine"]
    head += ["kernels", "largest gap", "recall", "MAP"]
    for C, stopping in ((10.0, "published"), (10.0, "gap"), (100.0, "published")):
        rows = [solver_row(case, weights, solver, C, stopping) for weights, solver in tried]
        show(f"caltech48, 25 a class, C = {C:g}, stopping={stopping!r}", head, rows)


def solver_row(case: Case, weights: str, solver: str, C: float, stopping: str) -> list[str]:
    shrink = 1.0 if weights == "l1" else len(case.kernels) ** (1 - 1 / float(weights[1:]))
    model = MKLClassifier(precomputed(), weights=weights, solver=solver, C=C / shrink, stopping=stopping)
    stack = case.kernels.stack
    begin = time.perf_counter()
    model.fit(stack, case.y)
    seconds = time.perf_counter() - begin
    results = measured(case.y_new, model.decision_function(case.kernels.new))
    last = [history[-1] for history in model.history_]
    n, total = len(last), sum(row["seconds"] for row in last)
    row = [f"{weights}, {solver}", f"{seconds / n:.3f}", f"{np.mean([len(h) for h in model.history_]):.1f}"]
    row += [f"{model.n_svm_solves_ / n:.1f}", f"{model.kernel_adds_ / n:.0f}"]
    row += [f"{100 * sum(r[f'seconds_{part}'] for r in last) / total:.0f} %" for part in ("combine", "machine")]
    row += [f"{used_kernels(model).sum(axis=1).mean():.1f}", f"{model.gap_:.1e}"]
    row += [f"{100 * results[name]:.1f}" for name in ("recall", "category_ap11")]
    print("   " + " | ".join(row), flush=True)
    return row


def iterates(lab: Lab) -> None:
    """C11 and section 10.6: test MAP and active kernels along the iterations, mean over the classes."""
    case = lab.case("caltech101_20", "caltech48", 15)
    kernels, y = case.kernels, case.y
    bank = precomputed().build(kernels.stack)
    rows = []
    searching = "reduced-gradient"  # whose line searches evaluate many points an iteration
    ways = [("l1", solver) for solver in L1_SOLVERS if solver != searching]
    for weights, solver in (*ways, ("l2", "cutting-plane"), ("l4", "cutting-plane")):
        shrink = 1.0 if weights == "l1" else len(kernels) ** (1 - 1 / float(weights[1:]))
        paths = [
            path_of(bank, kernels, np.where(y == k, 1.0, -1.0), weights, solver, 10.0 / shrink) for k in np.unique(y)
        ]
        length = max(len(scores) for scores, _ in paths)
        # A class that has finished stays where it ended.
        at = [[path[0][min(t, len(path[0]) - 1)] for path in paths] for t in range(length)]
        maps = [measured(case.y_new, np.column_stack(scores))["category_ap11"] for scores in at]
        active = [np.mean([path[1][min(t, len(path[1]) - 1)] for path in paths]) for t in range(length)]
        late = 100 * np.array(maps[5:] or maps[-1:])
        marks = [t for t in (0, 1, 2, 4, 9, 19, 39) if t < length]
        rows.append([f"{weights}, {solver}", str(length), f"{late.min():.1f} to {late.max():.1f}"])
        rows[-1].append(", ".join(f"{100 * maps[t]:.1f}" for t in marks))
        rows[-1].append(", ".join(f"{active[t]:.1f}" for t in marks))
        print("   " + " | ".join(rows[-1]), flush=True)
    head = ["weights, solver", "SVMs of the longest", "MAP from the sixth on", "MAP at SVM 1, 2, 3, 5, 10, 20, 40"]
    show("caltech48, 15 a class, C = 10, along the iterations", [*head, "kernels at the same"], rows)


def path_of(
    bank: Any, kernels: Kernels, y: NDArray, weights: str, solver: str, C: float
) -> tuple[list[NDArray], list[int]]:
    """Test scores and number of active kernels at every point that the solver evaluates."""
    saddle = Saddle(bank, SVM(C), parse_weights(weights).resolve(bank, SVM(C), y[:, None]), y[:, None], PUBLISHED)
    evaluated, scores, active = saddle.evaluate, [], []

    def remember(*arguments: Any, **settings: Any) -> Any:
        point = evaluated(*arguments, **settings)
        combined = np.tensordot(point.effective.astype(np.float32), kernels.new, 1)
        scores.append((combined @ point.solution.coef + point.solution.intercept)[:, 0])
        active.append(int((point.effective > 1e-6 * point.effective.sum()).sum()))
        return point

    saddle.evaluate = remember  # type: ignore[method-assign]
    run(solver, saddle)
    return scores, active


def growth(lab: Lab) -> None:
    """C17, C18: seconds against the number of pictures and of kernels."""
    pictures, described = lab.pictures("miml_scene"), lab.described("miml_scene", "voc15")
    rng = np.random.default_rng(0)
    order, sizes = rng.permutation(len(pictures.paths)), (125, 250, 500, 1000, 2000)
    ways = (("l1", "newton"), ("l1", "cutting-plane"), ("l1", "level"), ("l2", "newton"), ("l2", "cutting-plane"))
    whole = described.kernels(order, order[:1]).between
    parts = {n: KernelStack(np.ascontiguousarray(whole[:, :n, :n])) for n in sizes}
    rows = []
    for weights, solver in ways:
        times = [seconds_of(weights, solver, parts[n], pictures.y[order[:n]]) for n in sizes]
        slope = np.polyfit(np.log(sizes), np.log(times), 1)[0]
        last = np.log(times[-1] / times[-2]) / np.log(2)
        rows.append([f"{weights}, {solver}", *(f"{t:.3f}" for t in times), f"{slope:.2f}", f"{last:.2f}"])
        print("   " + " | ".join(rows[-1]), flush=True)
    head = ["weights, solver", *map(str, sizes), "slope", "slope of the last doubling"]
    show("voc15, miml_scene: seconds for five labels, published stopping, against pictures", head, rows)
    against_kernels(lab)


def against_kernels(lab: Lab) -> None:
    """The most accurate 15 kernels once, and four times, again with other bandwidths."""
    case = lab.case("caltech101_20", "caltech48", 25)
    kernels, y = case.kernels, case.y
    _, tried = choose(Method("", classifier(weights="average"), (10.0,), "each"), kernels, y)
    ranked = [j for j in np.argsort(-np.array(tried)) if kernels.factors[j]]
    print("most accurate alone:", ", ".join(f"{kernels.names[j]} {100 * tried[j]:.1f}" for j in ranked[:5]))
    best = kernels.some(ranked[:15])
    variants = {len(kernels): kernels, len(kernels) + 15: kernels.and_also(best.wider(1.5))}
    many = kernels
    for multiplier in (1.5, 2.0, 0.67, 0.5):
        many = many.and_also(best.wider(multiplier))
    variants[len(many)] = many
    rows = []
    ways = (("l1", "newton"), ("l1", "cutting-plane"), ("l1", "level"), ("l2", "newton"))
    for weights, solver in (*ways, ("l2", "cutting-plane"), ("l4", "cutting-plane"), ("l2", "smo")):
        times = [seconds_of(weights, solver, part.stack, y) for part in variants.values()]
        rows.append([f"{weights}, {solver}", *(f"{t / len(np.unique(y)):.3f}" for t in times)])
        print("   " + " | ".join(rows[-1]), flush=True)
    head = ["weights, solver", *map(str, variants)]
    show("caltech48, 25 a class: seconds a class, published stopping, against kernels", head, rows)


def seconds_of(weights: str, solver: str, stack: KernelStack, y: NDArray) -> float:
    """Least of three fits with C = 10 (of its l1 scale)."""
    s = stack.n_kernels
    C = 10.0 if weights == "l1" else 10.0 / s ** (1 - 1 / float(weights[1:]))
    times = []
    for _ in range(3):
        model = MKLClassifier(precomputed(), weights=weights, solver=solver, C=C, stopping="published")
        begin = time.perf_counter()
        model.fit(stack, y)
        times.append(time.perf_counter() - begin)
    return min(times)


def prediction(lab: Lab) -> None:
    """C19: what prediction costs from features on, kernels between new and training pictures included."""
    pictures, described = lab.pictures("caltech101_20"), lab.described("caltech101_20", "caltech48")
    train, test = next(pictures.splits(1, 15))
    X, X_new = described.views[train], described.views[test]
    ways: list[tuple[str, dict[str, Any]]] = [
        ("average", {"weights": "average"}),
        ("l2, shared", {"weights": "l2", "sharing": "sum"}),
        ("l1, shared", {"sharing": "sum"}),
        ("l1", {}),
    ]
    rows = []
    for label, settings in ways:
        C = 10.0 / 48**0.5 if "l2" in label else 10.0
        model = MKLClassifier(KernelBank(described.bank.kernels), C=C, **settings).fit(X, pictures.y[train])
        begin = time.perf_counter()
        model.predict(X_new)
        used = np.atleast_2d(model.weights_) > 0
        rows.append([label, f"{used.sum(axis=1).mean():.1f}", str(used.any(axis=0).sum())])
        rows[-1] += [str(len(model.support_)), f"{time.perf_counter() - begin:.2f}"]
        print("   " + " | ".join(rows[-1]), flush=True)
    head = ["weights", "kernels a class", "kernels in all", "support pictures", f"seconds for {len(test)} pictures"]
    show("caltech48, 15 a class, C = 10: prediction", head, rows)


# --- codebooks and boxes ----------------------------------------------------------------------------------------------


def codebooks(lab: Lab) -> None:
    """Many codebooks of random prototypes: one, averages, and learned weights."""
    pictures, pool, rows = lab.pictures("caltech101_20"), 40, []
    for n_words in (10, 100, 300):
        feature = BagOfWords(GRID, SIFT(), Prototypes(n_words), codebooks=pool)
        cases = lab.cases_of(pictures, describe(pictures, [feature], lab.cache), 15)
        singles = [r for j in range(5) for r in trial(METHODS["average"], [with_kernels(c, [j]) for c in cases])]
        l1 = trial(METHODS["l1"], cases)
        few = round(np.mean([r["used"] for r in l1]))
        averages = [trial(METHODS["average"], [with_kernels(c, range(k)) for c in cases]) for k in (5, few, pool)]
        row = [str(n_words), *(spread(r, "recall") for r in (singles, *averages))]
        row += [f"{spread(l1, 'recall')} ({np.mean([r['used'] for r in l1]):.1f}, in all "]
        row[-1] += f"{np.mean([r['used by some'] for r in l1]):.1f})"
        row += [spread(trial(METHODS["l2"], cases), "recall")]
        rows.append(row)
        print("   " + " | ".join(row), flush=True)
    clustered = describe(pictures, [BagOfWords(GRID, SIFT(), KMeans(300))], lab.cache)
    one = trial(METHODS["average"], lab.cases_of(pictures, clustered, 15))
    print(f"one codebook of k-means, 300 words: {spread(one, 'recall')}")
    head = ["words", "one (five tried)", "average of 5", "average of as many as l1 uses", f"average of {pool}"]
    show("caltech101_20, 15 a class, codebooks of random prototypes: mean recall", [*head, "l1", "l2"], rows)


def with_kernels(case: Case, chosen: Iterable[int]) -> Case:
    return Case(case.kernels.some(list(chosen)), case.y, case.y_new)


def boxes(lab: Lab) -> None:
    """Pyramid levels and boxes drawn at random: one level, averages, and learned weights."""
    pictures, words = lab.pictures("caltech101_20"), KMeans(300)
    levels = describe(pictures, [BagOfWords(GRID, SIFT(), words, layouts=pyramid(4), name="words")], lab.cache)
    sampled = describe(pictures, [BoxWords(GRID, SIFT(), words, boxes=100, name="words")], lab.cache)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of boxes without a descriptor
        in_boxes = lab.cases_of(pictures, sampled, 15)
    in_levels = lab.cases_of(pictures, levels, 15)
    doubling = Method("2^l", classifier(weights=[2.0**level / 15 for level in range(4)]))
    rows = [
        [f"level {j} alone", spread(trial(METHODS["average"], [with_kernels(c, [j]) for c in in_levels]), "recall")]
        for j in range(4)
    ]
    rows += [
        [
            "levels 0 to 2, average",
            spread(trial(METHODS["average"], [with_kernels(c, range(3)) for c in in_levels]), "recall"),
        ]
    ]
    for label, cases in (("levels 0 to 3", in_levels), ("100 boxes", in_boxes)):
        for name in ("average", "l1", "l2"):
            results = trial(METHODS[name], cases)
            rows.append([f"{label}, {name}", spread(results, "recall")])
            rows[-1][-1] += f" ({np.mean([r['used'] for r in results]):.1f})" if name == "l1" else ""
    rows.append(["levels 0 to 3, weights 2^l", spread(trial(doubling, in_levels), "recall")])
    show("caltech101_20, 15 a class, 300 words of grey SIFT: mean recall", ["kernels", "recall"], rows)


PARTS: dict[str, Callable[[Lab], None]] = {
    "number": number_of_kernels,
    "noise": noise_kernels,
    "products": products,
    "normalisation": normalisation,
    "sharing": sharing,
    "solvers": every_solver,
    "iterates": iterates,
    "growth": growth,
    "prediction": prediction,
    "codebooks": codebooks,
    "boxes": boxes,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder of the picture sets")
    parser.add_argument("--only", help=f"some of {', '.join(PARTS)}, with commas between them")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--cache", type=Path, help="folder that keeps what was computed from the pictures")
    arguments = parser.parse_args()
    wanted = arguments.only.split(",") if arguments.only else list(PARTS)
    if set(wanted) - set(PARTS):
        parser.error(f"there is no part {(set(wanted) - set(PARTS)).pop()!r}; there are {', '.join(PARTS)}")
    folder = found(arguments.data, ["flowers17", "caltech101_20", "miml_scene"])
    warnings.simplefilter("ignore", ConvergenceWarning)  # forty iterations are not always enough; gaps are printed
    lab = Lab(folder, arguments.cache, arguments.splits)
    for name in wanted:
        begin = time.perf_counter()
        print(f"== {name}", flush=True)
        PARTS[name](lab)
        print(f"== {name}: {time.perf_counter() - begin:.0f} s\n", flush=True)


if __name__ == "__main__":
    main()
