"""Estimators on banks of low rank: the same call with one more argument, and the gap of the approximated problem."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score

import kernelweave as kw
from kernelweave.kernels import ChiSquared, Gaussian, HistogramIntersection, KernelBank, Linear, Normalised
from kernelweave.machines import MLRGL, MLRL1, SVM, MLRPairwise, NuSVM, ROCArea
from kernelweave.model_files import load, save
from kernelweave.solvers import SOLVERS, Saddle, Stopping, run
from kernelweave.views import KernelStack
from kernelweave.weights import CappedSimplex, ElasticNet, Entropy, Grouped, LpBall, PowerPenalty, Simplex

KERNELS = [Gaussian(0.3), Gaussian(), Linear()]


@pytest.fixture(scope="module")
def data():
    views, y = kw.datasets.make_views(n_samples=360, n_useful=2, n_noise=1, random_state=0)
    return views, y, np.arange(240), np.arange(240, 360)


def bank(rank=20, **settings):
    return KernelBank(KERNELS, rank=rank, **settings)


def stack_of(built):
    every = np.arange(built.n_samples)
    return KernelStack(np.stack([built.gram(j).block(every, every) for j in range(built.n_kernels)]).astype(float))


SETS = [
    Simplex(),
    LpBall(2.0),
    LpBall(float("inf")),
    Entropy(1.0),
    CappedSimplex(nu=0.5),
    ElasticNet(1.0),
    PowerPenalty(1.5),
    Grouped((0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3)),
]


@pytest.mark.parametrize("solver", [name for name in SOLVERS if name not in ("stochastic", "smo")])
def test_every_solver_and_weight_set_finds_the_optimum_of_the_approximated_problem(data, solver):
    views, y, train, _ = data
    train = train[:120]
    built = bank(dtype="float64").build(views[train])
    whole = KernelBank("precomputed", dtype="float64", check="never").build(stack_of(built))
    Y = np.where(y[train] == y.max(), 1.0, -1.0)[:, None]
    fitting = [weights for weights in SETS if SOLVERS[solver].fits(weights)]
    assert fitting
    for weights in fitting:
        ours, theirs = (run(solver, Saddle(b, SVM(1.0), weights, Y, Stopping(1e-3, 2000))) for b in (built, whole))
        assert ours.gap <= 1e-3
        assert ours.lower <= theirs.upper * (1 + 1e-9)
        assert theirs.lower <= ours.upper * (1 + 1e-9)


def test_smo_too(data):
    views, y, train, _ = data
    model = kw.MKLClassifier(bank(8), weights="l2", solver="smo").fit(views[train[:60]], y[train[:60]])
    assert model.gap_ <= 1e-3


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"weights": "l2", "C": 10.0},
        {"weights": "average"},
        {"weights": "best"},
        {"weights": "alignment"},
        {"fit_intercept": False},
        {"machine": NuSVM(0.3)},
        {"machine": ROCArea(10.0)},
        {"class_weight": "balanced", "probability": True},
    ],
    ids=str,
)
def test_classifier(data, settings, tmp_path):
    views, y, train, test = data
    exact = kw.MKLClassifier(KernelBank(KERNELS), **settings).fit(views[train], y[train])
    model = kw.MKLClassifier(bank(60), **settings).fit(views[train], y[train])
    assert model.gap_ <= 1e-3
    assert model.kernel_names_ == exact.kernel_names_
    if "machine" not in settings or not isinstance(settings["machine"], ROCArea):
        assert model.score(views[test], y[test]) >= exact.score(views[test], y[test]) - 0.05
    scores = model.decision_function(views[test])
    assert np.corrcoef(scores, exact.decision_function(views[test]))[0, 1] > 0.9
    save(model, tmp_path / "model.kw")
    again = load(tmp_path / "model.kw")
    assert (again.decision_function(views[test]) == scores).all()
    assert again.kernels.rank == 60
    assert (pickle.loads(pickle.dumps(model)).decision_function(views[test]) == scores).all()
    if settings.get("probability"):
        probabilities = model.predict_proba(views[test])
        assert_allclose(probabilities.sum(axis=1), 1.0)
        assert (again.predict_proba(views[test]) == probabilities).all()


@pytest.mark.parametrize("sharing", ["none", "sum", "worst-case"])
def test_several_classes(sharing):
    views, y = kw.datasets.make_views(n_samples=200, n_classes=3, random_state=0)
    model = kw.MKLClassifier(bank(15), sharing=sharing).fit(views[:150], y[:150])
    assert model.gap_ <= 1e-3
    assert model.score(views[150:], y[150:]) > 0.6
    side_by_side = kw.MKLClassifier(bank(15), sharing=sharing, n_jobs=2).fit(views[:150], y[:150])
    assert_allclose(side_by_side.weights_, model.weights_, atol=1e-6)


@pytest.mark.filterwarnings("ignore:.*no pair of a relevant:UserWarning")
@pytest.mark.parametrize(
    "settings",
    [
        {"loss": "pairwise"},
        {"loss": "group"},
        {"machine": MLRL1(1.0)},
        {"machine": MLRPairwise(0.3)},
        {"machine": MLRGL(0.5)},
    ],
    ids=str,
)
def test_label_ranker(settings, tmp_path):
    views, Y = kw.datasets.make_views(n_samples=150, multilabel=True, n_classes=4, random_state=0)
    exact = kw.LabelRanker(kernels=KernelBank(KERNELS), weights="l2", **settings).fit(views[:110], Y[:110])
    model = kw.LabelRanker(kernels=bank(40), weights="l2", **settings).fit(views[:110], Y[:110])
    assert model.gap_ <= model.tol
    scores = model.decision_function(views[110:])
    assert np.corrcoef(scores.ravel(), exact.decision_function(views[110:]).ravel())[0, 1] > 0.9
    model.predict(views[110:])
    save(model, tmp_path / "ranker.kw")
    assert (load(tmp_path / "ranker.kw").decision_function(views[110:]) == scores).all()


def test_regressor(tmp_path):
    views, y = kw.datasets.make_regression_views(n_samples=240, random_state=0)
    weight = np.r_[np.zeros(10), np.ones(170)]
    exact = kw.MKLRegressor(KernelBank(KERNELS), C=10.0).fit(views[:180], y[:180], sample_weight=weight)
    model = kw.MKLRegressor(bank(100), C=10.0).fit(views[:180], y[:180], sample_weight=weight)
    assert model.gap_ <= 1e-3
    assert model.score(views[180:], y[180:]) >= exact.score(views[180:], y[180:]) - 0.05
    save(model, tmp_path / "model.kw")
    assert (load(tmp_path / "model.kw").predict(views[180:]) == model.predict(views[180:])).all()


def test_every_map_and_normalisation_goes_to_a_file_and_back(tmp_path):
    rng = np.random.default_rng(0)
    X = {"a": rng.random((80, 4)), "b": rng.random((80, 3))}
    y = (X["a"][:, 0] + X["b"][:, 1] > 1).astype(int)
    cases = [
        ({"a": [ChiSquared(), Normalised(Gaussian(), ("center", "spherical"))], "b": Linear()}, {"normalise": "trace"}),
        ({"a": [Gaussian(), ChiSquared()]}, {"approximation": "fourier"}),
        (
            {"a": [HistogramIntersection(), Linear()]},
            {"approximation": "explicit", "normalise": ("center", "variance")},
        ),
        ({"both": kw.kernels.Product({"a": Gaussian(), "b": Normalised(Linear(), "spherical")})}, {}),
    ]
    for kernels, settings in cases:
        model = kw.MKLClassifier(KernelBank(kernels, rank=20, **settings), weights="average").fit(X, y)
        save(model, tmp_path / "model.kw")
        again = load(tmp_path / "model.kw")
        new = {name: array[:9] * 0.9 for name, array in X.items()}
        assert (again.decision_function(new) == model.decision_function(new)).all()


def test_a_damaged_expansion_is_refused(data):
    views, y, train, _ = data
    model = kw.MKLClassifier(KernelBank(Gaussian(), rank=10)).fit(views[train], y[train])
    state = model._expansion.to_state()
    kind = type(model._expansion)
    kind.from_state(state)
    for key, value in (("support", state["support"][:, 1:]), ("landmarks", ()), ("names", ("a",))):
        with pytest.raises(ValueError, match="do not fit together"):
            kind.from_state({**state, key: value})


def test_only_active_kernels_are_kept(data):
    views, y, train, test = data
    model = kw.MKLClassifier(bank(10), C=1.0).fit(views[train], y[train])
    active = np.flatnonzero(model.weights_)
    assert 0 < len(active) < 12
    assert model._expansion.n_kernels == len(active)
    needed = {model.kernel_names_[j].split(":")[0] for j in active}
    scores = model.decision_function({name: views[name][test] for name in needed})
    assert (scores == model.decision_function(views[test])).all()


def test_cross_validation_and_searches(data):
    views, y, train, _ = data
    model = kw.MKLClassifier(bank(10))
    assert clone(model).kernels is not None
    assert cross_val_score(model, views[train], y[train], cv=3).mean() > 0.8
    search = GridSearchCV(model, {"C": [0.1, 1.0], "kernels": [bank(5), bank(15)]}, cv=2).fit(views[train], y[train])
    assert search.best_params_["kernels"].rank in (5, 15)


def test_verbose_says_where_the_kernels_are(data, capsys):
    views, y, train, _ = data
    kw.MKLClassifier(bank(10), verbose=1).fit(views[train], y[train])
    assert "12 kernels of 240 samples approximated by features in memory, storage 'low-rank'" in capsys.readouterr().err


def test_what_needs_the_whole_matrix_says_so(data):
    views, y, train, _ = data
    with pytest.raises(TypeError, match=r"needs the whole kernel matrix \(240, 240\) .*the bank keeps Factors"):
        kw.LPBeta(bank(10)).fit(views[train], y[train])


def test_more_samples_than_features_without_a_matrix_of_all_pairs():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 4))
    y = np.sign(X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=3000))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = kw.MKLClassifier(KernelBank([Gaussian(0.3), Linear()], rank=60), C=10.0).fit(X[:2500], y[:2500])
    exact = kw.MKLClassifier([Gaussian(0.3), Linear()], C=10.0).fit(X[:2500], y[:2500])
    assert model.gap_ <= 1e-3
    assert model.score(X[2500:], y[2500:]) > exact.score(X[2500:], y[2500:]) - 0.03
