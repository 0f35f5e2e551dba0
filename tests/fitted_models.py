"""One fitted model of every kind that can be kept in a file, each with samples it has not seen."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd
import polars as pl
from scipy import sparse

import kernelweave as kw
from kernelweave.kernels import (
    AdditiveChiSquared,
    ChiSquared,
    ChiSquaredGaussianFamily,
    DistanceProductFamily,
    FiniteFamily,
    Gaussian,
    GaussianFamily,
    HistogramIntersection,
    KernelBank,
    Laplacian,
    Linear,
    LinearMapFamily,
    Mean,
    Normalised,
    Polynomial,
    PolynomialFamily,
    Precomputed,
    Product,
    Repaired,
    SampledFamily,
)
from kernelweave.machines import MLRGL, MLRL1, SVM, MLRPairwise, NuSVM
from kernelweave.metric import EuclideanMetric, WhitenedMetric
from kernelweave.solvers import StochasticApproximation
from kernelweave.weights import ElasticNetBall, Fixed, Grouped, LpBall

N, TRAIN, SHAPE = 60, 45, 20


def views(n_classes=2, multilabel=False, dtype=np.float64):
    X, y = kw.datasets.make_views(N, n_classes=n_classes, multilabel=multilabel, random_state=0)
    return kw.Views({name: X[name].astype(dtype) for name in X.names[:4]}), y


def positive_views():
    X, y = views()
    return kw.Views({name: np.abs(X[name]) for name in X.names}), y


def array(n_classes=2, dtype=np.float64):
    X, y = views(n_classes)
    return np.hstack([X[name] for name in X.names]).astype(dtype), y


def frame(kind):
    X, y = array()
    names = [f"{'colour' if j < 8 else 'shape'}.{j}" for j in range(X.shape[1])]
    return (pd.DataFrame(X, columns=names) if kind == "pandas" else pl.DataFrame(X, schema=names)), y


def texts(y):
    return np.array(["naïve", "sky", "tree"], dtype=object)[y]


def tagged(form="matrix"):
    X, Y = kw.datasets.make_tagged_views(N, n_labels=5, random_state=0)
    if form == "tags":
        names = np.array(["sky", "sea", "Größe", "tree", "dog"])
        return X, [names[row > 0].tolist() for row in Y]
    if form == "nan":
        Y = Y.astype(float)
        Y[::3, 1] = np.nan
        Y[:, 4] = np.nan
    if form == "frame":
        return X, pd.DataFrame(Y, columns=["sky", "sea", "Größe", "tree", "dog"])
    return X, Y


def stack():
    X, y = views(3)
    K = np.stack([X[name] @ X[name].T for name in X.names])
    return kw.KernelStack(K, names=[f"gram {name}" for name in X.names]), y


def mixed(kernels):
    """Views with one that is itself a kernel."""
    X, y = views()
    gram = X["useful0"] @ X["useful0"].T
    train, test = slice(None, TRAIN), slice(TRAIN, None)
    fitted = fit(kw.MKLClassifier(kernels), {"gram": gram[train, train], "noise": X["noise0"][train]}, y[train])
    return fitted, {"gram": gram[test, train], "noise": X["noise0"][test]}, y[test]


def rows(data, part):
    if isinstance(data, (list, np.ndarray, kw.Views, kw.KernelStack, pl.DataFrame)):
        return data[part]
    return data.iloc[part] if hasattr(data, "iloc") else data.tocsr()[part]


def fit(model, X, y, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # kernels and labels that teach little are meant here
        return model.fit(X, y, **options)


@dataclass
class Case:
    """A fitted model with samples it has not seen."""

    name: str
    make: Callable

    @cache  # noqa: B019
    def built(self):
        return self.make()

    def __hash__(self):
        return hash(self.name)


def case(name, model, data):
    def make():
        X, y = data()
        return (
            fit(model, rows(X, slice(TRAIN)), rows(y, slice(TRAIN))),
            rows(X, slice(TRAIN, N)),
            rows(y, slice(TRAIN, N)),
        )

    return Case(name, make)


def drawn():
    """Kernels drawn by a function; they can be kept, the function cannot."""
    X, y = views()
    family = SampledFamily(lambda rng: (X.names[rng.integers(len(X.names))], Gaussian(float(rng.uniform(0.2, 5.0)))), 5)
    model = fit(I(family, max_kernels=5, random_state=0), X[:TRAIN], y[:TRAIN])
    return model.set_params(family=None), X[TRAIN:], y[TRAIN:]


def bags():
    """Bags of three instances, those of the first class with one far off."""
    rng = np.random.default_rng(0)
    y = np.arange(N) % 2
    X = rng.normal(size=(N, 3, 4))
    X[:, 0] += 3.0 * y[:, None]
    return list(X), y


def few_labels(n_classes=2):
    X, y = array(n_classes)
    return X, np.where(np.arange(N) % 3 == 0, y, -1)


def with_privileged(model):
    """A model that is told more of the training samples than of new ones."""
    X, y = array()
    Z = X[:, :3] + 0.1
    return fit(model, X[:TRAIN], y[:TRAIN], Z=Z[:TRAIN]), X[TRAIN:], y[TRAIN:]


def metric(model):
    changed = ", ".join(name for name, value in model.get_params().items() if isinstance(value, np.ndarray))
    return Case(f"distance: {type(model).__name__} {changed}", lambda: with_privileged(model))


C, L, R, I = kw.MKLClassifier, kw.LabelRanker, kw.MKLRegressor, kw.InfiniteKernelClassifier
BANK = KernelBank(
    {
        "useful0": [Gaussian(0.5), Normalised(Linear(), ("center", "trace"))],
        "useful1": (Laplacian(metric="cityblock"), Polynomial(2, offset=0.5)),
        "redundant0": [Repaired(Polynomial(3, offset=-2.0), "clip"), Repaired(Gaussian(metric="chi2"), "shift")],
        "noise0": Normalised(Product(Linear(), Gaussian()), "spherical"),
        "both": Product({"useful0": Gaussian(), "noise0": Normalised(Linear(), "trace")}),
        "mean": Mean({"useful1": Linear()}, {"noise0": Product(Gaussian(), Linear())}),
    },
    normalise="trace",
    dtype="float64",
)
CASES = [
    case("two classes", C(random_state=0), views),
    case("single precision", C(), lambda: views(dtype=np.float32)),
    case("three classes", C(weights="l2", class_weight="balanced"), lambda: views(3)),
    case("classes are texts", C(), lambda: (views(3)[0], texts(views(3)[1]))),
    case("classes are fixed-width texts", C(), lambda: (views(3)[0], texts(views(3)[1]).astype(str))),
    case("classes are truth values", C(class_weight={False: 1.0, True: 2}), lambda: (views()[0], views()[1] > 0)),
    case("labels", C(), lambda: views(4, multilabel=True)),
    case("labels in a frame", C(), lambda: tagged("frame")),
    case("labels not judged", C(probability=True), lambda: tagged("nan")),
    case("shared sum", C(sharing="sum"), lambda: views(3)),
    case("shared worst case", C(sharing="worst-case", probability=True), lambda: views(3)),
    case(
        "stochastic",
        C(sharing="worst-case", solver=StochasticApproximation(passes=2, random_state=np.random.RandomState(0))),
        lambda: views(3),
    ),
    case("calibrated", C(probability=True, weights=LpBall(np.inf)), views),
    case("calibrated, three classes", C(probability=True, random_state=np.random.RandomState(0)), lambda: views(3)),
    case("one kernel", C(Gaussian(), weights="average"), array),
    case("a learned metric", C([Gaussian(metric=np.diag(1.0 + np.arange(20)))], weights="average"), array),
    case("fixed weights as an array", C([Linear(), Gaussian()], weights=np.array([0.2, 0.8])), array),
    case("fixed weights", C([Linear(), Gaussian()], weights=Fixed([0.2, 0.8]), C=np.float32(0.1)), array),
    case("one array in single precision", C(), lambda: array(dtype=np.float32)),
    case(
        "one array with columns",
        C(KernelBank(Gaussian(), columns={"a": slice(0, 5), "b": np.arange(5, 12), "c": range(3), "d": 4})),
        array,
    ),
    case("pandas", C(), lambda: frame("pandas")),
    case("polars", C({"colour": Linear(), "shape": [Gaussian()]}), lambda: frame("polars")),
    case(
        "pandas with columns",
        C(KernelBank(Linear(), columns={"a": pd.Index(["colour.0", "shape.9"]), "b": slice(0, 4)})),
        lambda: frame("pandas"),
    ),
    case("every kind of kernel", C(BANK, weights="average"), positive_views),
    case("histograms", C([ChiSquared(), AdditiveChiSquared(), HistogramIntersection()]), positive_views),
    case(
        "spherical", C(KernelBank([Linear(), Polynomial(3)], normalise="spherical"), weights=ElasticNetBall(0.5)), views
    ),
    case("groups", C(weights=Grouped(["a"] * 6 + ["b"] * 6, r=2.0)), views),
    case("machine", C(machine=NuSVM(0.3)), views),
    case("machine with arrays", C(machine=SVM(2.0, False, np.linspace(0.5, 1, TRAIN), {-1: 1.0, 1: 2.0})), views),
    case("precomputed", C("precomputed"), stack),
    case("precomputed and spherical", C(KernelBank("precomputed", normalise="spherical")), stack),
    Case("a view is a kernel", lambda: mixed({"gram": Precomputed(), "noise": Gaussian()})),
    Case("a view is a repaired kernel", lambda: mixed({"gram": Repaired(Precomputed()), "noise": Gaussian()})),
    case("regression", R(), lambda: kw.datasets.make_regression_views(N, random_state=0)),
    case("two targets", R(weights="l2"), lambda: (views()[0], np.random.default_rng(0).random((N, 2)))),
    case("ranking", L(random_state=0), tagged),
    case("ranking tags", L(), lambda: tagged("tags")),
    case("ranking a frame", L(loss="group", weights="average"), lambda: tagged("frame")),
    case("ranking, labels not judged", L(), lambda: tagged("nan")),
    case("ranking, one kernel", L(kernels=Linear(), machine=MLRPairwise(0.5)), tagged),
    case("ranking, ridge an array", L(machine=MLRL1(1.0, np.linspace(0.5, 1, TRAIN), box="wide")), tagged),
    case("ranking, published update", L(machine=MLRGL(1.0, eta=3.0), weights="average"), tagged),
    case("ranking classes", L(), lambda: (views(3)[0], texts(views(3)[1]))),
    case("neighbours", kw.MLkNN(4), lambda: (array()[0], tagged()[1])),
    case("neighbours of classes", kw.MLkNN(4, metric="cityblock"), lambda: array(dtype=np.float32)),
    case("neighbours in a sparse matrix", kw.MLkNN(4), lambda: (sparse.csr_matrix(np.round(array()[0])), tagged()[1])),
    case("neighbours, tags", kw.MLkNN(), lambda: (array()[0], tagged("tags")[1])),
    case("least squares", kw.MLLS(n_components=2), lambda: (array()[0], tagged("nan")[1])),
    case("least squares, frame", kw.MLLS(), lambda: (frame("pandas")[0], texts(array(3)[1]))),
    case("one rate", I(GaussianFamily("single"), max_kernels=6), array),
    case("one feature at a time", I(GaussianFamily("separate"), max_kernels=6, probability=True), lambda: array(3)),
    case("a rate for every feature", I([GaussianFamily("product", 5.0)], max_kernels=5, random_state=0), array),
    case("rates of polynomials", I(PolynomialFamily((1, 2)), sharing="sum", max_kernels=6), lambda: views(3)),
    case("linear maps", I(LinearMapFamily(2), max_kernels=4, random_state=0), array),
    case("between chi-squared and Gaussian", I(ChiSquaredGaussianFamily((-0.5, 0.0)), max_kernels=4), positive_views),
    case("rates of views", I(DistanceProductFamily({"useful0": "euclidean", "noise0": "cityblock"})), views),
    case("families of views", I({"useful0": FiniteFamily([Linear(), Gaussian()]), "noise0": GaussianFamily()}), views),
    case("a finite family", I(FiniteFamily([Linear(), Gaussian(), Normalised(Polynomial(2), "trace")])), views),
    case("a family of given kernels", I(FiniteFamily("precomputed")), stack),
    Case("a drawn family that is given up", drawn),
    case("one weight a kernel", kw.LPBeta(C=(0.1, 10.0), nu=(0.2, 0.6), random_state=0), lambda: views(3)),
    case("one weight a kernel, two classes", kw.LPBeta(C=1.0, nu=0.5, random_state=0), views),
    case("one weight a kernel, precomputed", kw.LPBeta("precomputed", C=1.0, nu=0.5, random_state=0), stack),
    case("one weight a class and kernel", kw.LPB(BANK.kernels["useful0"], C=1.0, nu=0.5), lambda: views(3)),
    case("one weight a class and kernel, two classes", kw.LPB(C=1.0, nu=0.5), array),
    case("two classes boosted", kw.LPBoost(C=1.0, nu=(0.3, 0.5)), lambda: (views()[0], texts(views()[1]))),
    case("all kernel values", kw.CGBoost(), lambda: views(3)),
    case("bags, one witness each", kw.MIClassifier(), bags),
    case("bags, every instance", kw.MIClassifier("instance", "alp", [Linear(), Gaussian()]), bags),
    case("bags as wholes", kw.BagKernelClassifier(kernels=[Linear(), Gaussian()], power=2.0), bags),
    case("statistics of bags", kw.BagKernelClassifier("statistics"), bags),
    case("few labels", kw.InputOutputKernelClassifier(max_candidates=4), few_labels),
    case("few labels, three classes", kw.InputOutputKernelClassifier(max_candidates=3), lambda: few_labels(3)),
    case("labels of bags", kw.InputOutputKernelClassifier("multiple-instance", max_candidates=3), bags),
    case("no labels", kw.InputOutputKernelClustering(max_candidates=3), array),
    Case("privileged features", lambda: with_privileged(kw.SVMPlus())),
    *map(metric, (EuclideanMetric(), WhitenedMetric(2), kw.ITML(random_state=0), kw.ITML(prior=np.eye(SHAPE)))),
    *map(metric, (kw.ITMLPlus(max_sweeps=5), kw.PartialITMLPlus(max_sweeps=5, random_state=0), kw.ITMLS(max_sweeps=5))),
    case("all kernel values, two classes", kw.CGBoost(C=0.1), lambda: frame("pandas")),
]
