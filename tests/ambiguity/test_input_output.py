"""Input-output kernels: the master problem against a conic solver, special cases, and the two estimators."""

from __future__ import annotations

import pickle
import tracemalloc
import warnings

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
from conic import root, solve
from labelled_problems import all_labelings, bank, kernels
from sklearn.base import clone
from sklearn.datasets import load_iris, make_blobs, make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import kernelweave as kw
from kernelweave.ambiguity.bags import Bags
from kernelweave.ambiguity.input_output import best_threshold
from kernelweave.ambiguity.labelings import BagRepresentatives, SemiSupervised
from kernelweave.generation.labelled_bank import InputKernels, LabelledBank
from kernelweave.machines.simplex import SimplexSVM
from kernelweave.solvers import Saddle, Stopping, run
from kernelweave.weights import GroupSparse

N, M, T = 20, 3, 6


def conic(Ks, signs, theta, C, norms=(2.0, 1.0), unit_of=None):
    """Value and duals of the problem as the source has it, with kernels as matrices.

    min 1/2 sum a^2/C + gamma + theta sum zeta, |h_t| <= gamma + zeta_t. Other norms across candidates have no cap.
    """
    n_candidates, n_kernels, n = signs.shape
    unit_of = np.arange(n) if unit_of is None else unit_of
    a, gamma = cp.Variable(len(C), nonneg=True), cp.Variable(nonneg=True)
    zeta, h = cp.Variable(n_candidates, nonneg=True), cp.Variable((n_candidates, n_kernels))
    e = cp.Variable(n_candidates)
    inside, across = (p / (p - 1) if p > 1 else np.inf for p in norms)
    limits = [cp.sum(a) == 1]
    for t in range(n_candidates):
        for m in range(n_kernels):
            limits.append(cp.sum_squares(root(Ks[m]).T @ cp.multiply(signs[t, m], a[unit_of])) / 2 <= h[t, m])
        limits.append(cp.norm(h[t], inside) <= e[t])
    slack = cp.sum_squares(cp.multiply(a, 1 / np.sqrt(C))) / 2
    if norms[1] == 1:
        limits.append(e <= gamma + zeta)
        value = slack + gamma + theta * cp.sum(zeta)
    else:
        value = slack + cp.norm(e, across)
    return -solve(cp.Problem(cp.Minimize(value), limits)), a.value


# -- the problem -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("theta", [1.0, 0.5, 0.3, 0.2, 1 / T, 0.08])
@pytest.mark.parametrize("solver", ["newton", "alternating", "projected-gradient"])
def test_master_reaches_the_conic_optimum(theta, solver):
    """From the hard margin to caps that do not sum to one."""
    rng = np.random.default_rng(0)
    Ks, signs, C = kernels(N), rng.choice([-1, 1], size=(T, M, N)).astype(np.int8), rng.choice([1.0, 30.0], size=N)
    tol = 1e-4 if solver == "alternating" and theta == 1.0 else 1e-6
    labelled, ones = LabelledBank(InputKernels(bank(Ks)), signs), np.ones((N, 1))
    saddle = run(solver, Saddle(labelled, SimplexSVM(C), GroupSparse(M, theta), ones, Stopping(tol, 5000)))
    expected, _ = conic(Ks, signs, theta, C)
    assert saddle.converged
    assert saddle.lower - 1e-7 * abs(expected) <= expected <= saddle.upper + 1e-7 * abs(expected)
    assert saddle.upper == pytest.approx(expected, rel=3 * tol)


def test_one_kernel_and_known_labels_are_a_squared_hinge_svm():
    """f of the fit against the primal problem of that machine, min 1/2|f|^2 + C/2 sum max(0, rho - y f)^2 - rho."""
    K, y = kernels(N, s=1)[0], np.where(np.arange(N) % 3, 1.0, -1.0)
    L = root(K)
    w, rho = cp.Variable(L.shape[1]), cp.Variable()
    value = cp.sum_squares(w) / 2 + 2.0 * cp.sum_squares(cp.pos(rho - cp.multiply(y, L @ w))) - rho
    best = solve(cp.Problem(cp.Minimize(value)))
    spec = kw.KernelBank("precomputed", dtype="float64")
    clf = kw.InputOutputKernelClassifier(kernels=spec, C=4.0, tol=1e-8).fit(K[None], (y > 0).astype(int))
    assert clf.objective_ == pytest.approx(best, rel=1e-6)
    np.testing.assert_allclose(clf.decision_function(K[None]), L @ w.value, atol=1e-4)
    assert clf.weights_.shape == (1, 1) and clf.violation_ == 0.0


# -- settings, against the problem with explicit kernels ---------------------------------------------------------------

TWO = [kw.kernels.Gaussian(), kw.kernels.Laplacian()]


def explicit_kernels(X, center=True):
    """The kernels `TWO` as matrices in double precision, (2, n, n)."""
    built = kw.KernelBank(TWO, dtype="float64").build(X)
    centre = np.eye(len(X)) - center / len(X)
    return np.stack([centre @ built.gram(m) @ centre for m in range(2)])


def assert_solved(model, X, C, theta=None, norms=(2.0, 1.0), center=True, unit_of=None):
    """Objective and gap enclose the value of the conic solver, and the weights reach it within the tolerance."""
    signs, Ks = model.candidates_, explicit_kernels(X, center)
    cap = np.inf if model.margin == "hard" else model.c_theta / len(signs) if theta is None else theta
    expected, _ = conic(Ks, signs, min(cap, 1.0), C, norms, unit_of)
    rounding = 1e-5 * abs(expected)  # the kernels of the model are in single precision
    assert model.objective_ - model.gap_ * abs(model.objective_) - rounding <= expected
    assert expected <= model.objective_ + rounding
    assert model.gap_ <= model.tol
    unit_of = np.arange(len(X)) if unit_of is None else unit_of
    B = np.equal.outer(np.arange(len(C)), unit_of).astype(float)
    combined = sum(
        K * (y.T @ (D[:, None] * y)) for K, D, y in zip(Ks, model.weights_, signs.swapaxes(0, 1), strict=True)
    )
    L, a = root(B @ combined @ B.T), cp.Variable(len(C), nonneg=True)
    value = cp.sum_squares(cp.multiply(a, 1 / np.sqrt(C))) / 2 + cp.sum_squares(L.T @ a) / 2
    reached = -solve(cp.Problem(cp.Minimize(value), [cp.sum(a) == 1]))
    assert expected - rounding <= reached <= expected + model.tol * abs(expected) + rounding


SETTINGS = [
    {"c_theta": 1.2},
    {"c_theta": 50.0},
    {"theta": 0.3},
    {"theta": 0.6},
    {"margin": "hard"},
    {"margin": "hard", "norms": (1.0, 1.0)},
    {"margin": "hard", "norms": (2.0, 2.0)},
    {"margin": "hard", "norms": (1.0, 2.0)},
    {"norms": (1.0, 1.0)},
    {"center": False},
    {"candidates": "shared"},
    {"C": 20.0, "C_unlabelled": 0.2},
    {"C": 1e7, "C_unlabelled": 5.0},
    {"tol": 1e-5},
]


@pytest.mark.filterwarnings("ignore:The search for labellings:sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_settings_of_few_labels(settings):
    X, _, few = moons(24, labelled=6)
    clf = kw.InputOutputKernelClassifier(kernels=TWO, **{"max_candidates": 4, "tol": 1e-2, "violation": 0.0} | settings)
    clf.fit(X, few)
    C = np.where(few < 0, clf.C_unlabelled, clf.C if clf.C < 1e7 else np.inf)  # a margin that is as good as hard
    assert clf.weights_.shape[1] > 1
    assert_solved(clf, X, C, clf.theta, clf.norms, clf.center)


@pytest.mark.parametrize("settings", [{}, {"C": 7.0}, {"imbalance": 0.5, "theta": 0.5}], ids=str)
def test_settings_of_clusterings(settings):
    X, _, _ = moons(24)
    model = kw.InputOutputKernelClustering(kernels=TWO, max_candidates=3, tol=1e-2, **settings).fit(X)
    assert_solved(model, X, np.full(24, model.C), model.theta)


@pytest.mark.parametrize("C", [1.0, 9.0])
@pytest.mark.parametrize("level", ["instance", "bag"])
def test_settings_of_bags(level, C):
    """All instances at C_unlabelled; or positive bags at that, and of negative ones all instances together."""
    sizes, y = np.array([3, 2, 4, 1, 5, 3]), np.array([1, 0, 1, 0, 0, 1])
    X = np.random.default_rng(0).standard_normal((18, 2)) + np.repeat(y, sizes)[:, None]
    bags = Bags(X, groups=np.repeat(np.arange(6), sizes))
    settings = {"level": level, "max_candidates": 3, "tol": 1e-2}
    clf = kw.InputOutputKernelClassifier("multiple-instance", TWO, C=50.0, C_unlabelled=C, **settings).fit(bags, y)
    by_bag = BagRepresentatives(bags, 2 * y - 1).unit_of if level == "bag" else None
    costs = np.full(18, C) if level == "instance" else C / np.array([1, 1, 1, 2, 2, 1, 5, 5, 5, 5, 5])
    assert_solved(clf, X, costs, unit_of=by_bag)


def test_violation_is_that_of_all_labellings():
    """One candidate: duals of the conic solver, energies of all labellings there are."""
    X, _, few = moons(16, labelled=6)
    Ks, known = explicit_kernels(X), np.where(few < 0, 0, 2 * few - 1)
    settings = {"max_candidates": 1, "tol": 1e-6, "margin": "hard", "C_unlabelled": 100.0}
    with pytest.warns(
        ConvergenceWarning, match="labellings stopped at 1 candidates.*Raise max_candidates or violation"
    ):
        clf = kw.InputOutputKernelClassifier(kernels=TWO, **settings).fit(X, few)
    _, a = conic(Ks, clf.candidates_, 1.0, np.full(16, 100.0))
    energies = [0.5 * np.einsum("ti,ik,tk->t", every * a, K, every * a) for K in Ks for every in [all_of(known)]]
    used = [0.5 * (a * y) @ K @ (a * y) for K, y in zip(Ks, clf.candidates_[0], strict=True)]
    expected = np.linalg.norm(np.max(energies, axis=1)) / np.linalg.norm(used) - 1
    assert clf.violation_ == pytest.approx(expected, rel=1e-3) and expected > 0.02


def all_of(known):
    return all_labelings(SemiSupervised(known, 0.5))


@pytest.mark.parametrize("violation", [0.02, 0.2])
def test_violation_to_stop_at(violation):
    """Every candidate but the first exceeded it when it was added, and no other one does."""
    X, _, few = moons(60, labelled=6)
    clf = narrow(margin="hard", violation=violation, max_candidates=60, tol=1e-4).fit(X, few)
    rows, n_candidates = clf.history_, clf.weights_.shape[1]
    excess = rows["found"] / rows["level"] - 1
    before = np.flatnonzero(np.diff(rows["generated"]))
    assert np.all(excess[before] > violation) and len(before) == n_candidates - 1 > 0
    assert clf.violation_ == pytest.approx(max(excess[-1], 0.0)) and 1e-2 < clf.violation_ <= violation


def test_weights_that_are_not_found(monkeypatch):
    """Two steps of a master are not enough for a small gap, which is then reported and warned of."""
    monkeypatch.setattr("kernelweave.generation.columns._MASTER_ITERATIONS", 2)
    X, _, few = moons(40)
    with pytest.warns(ConvergenceWarning, match="duality gap of .*, short of 1e-08"):
        clf = narrow(max_candidates=4, tol=1e-8, violation=0.0).fit(X, few)
    assert clf.gap_ > 1e-8


# -- few labels --------------------------------------------------------------------------------------------------------


def moons(n=100, labelled=8, seed=0):
    X, y = make_moons(n, noise=0.05, random_state=seed)
    few = np.full(n, -1)
    for c in (0, 1):
        few[np.flatnonzero(y == c)[: labelled // 2]] = c
    return X, y, few


def narrow(**settings):
    return kw.InputOutputKernelClassifier(kernels=[kw.kernels.Gaussian(0.1), kw.kernels.Laplacian(0.3)], **settings)


@pytest.mark.filterwarnings("error::sklearn.exceptions.ConvergenceWarning")  # the gap asked for is reached
@pytest.mark.parametrize("margin", ["soft", "hard"])
@pytest.mark.parametrize("how", ["per-kernel", "shared"])
def test_moons(margin, how):
    X, y, few = moons()
    clf = narrow(margin=margin, candidates=how, max_candidates=10).fit(X, few)
    assert (clf.transduction_ == y).mean() >= 0.9
    np.testing.assert_array_equal(clf.transduction_[few >= 0], few[few >= 0])
    n_candidates = clf.weights_.shape[1]
    assert clf.weights_.shape == (2, n_candidates) and clf.candidates_.shape == (n_candidates, 2, 100)
    assert np.all(clf.candidates_[:, :, few == 1] == 1) and np.all(clf.candidates_[:, :, few == 0] == -1)
    assert np.all((clf.candidates_[:, :, few < 0] > 0).sum(axis=2) == 46)
    assert how == "per-kernel" or np.all(clf.candidates_ == clf.candidates_[:, :1])
    assert 0 <= clf.gap_ <= 1e-3 and clf.violation_ >= 0 and len(clf.history_) == clf.n_iter_


def test_no_matrix_for_every_candidate():
    """Three kernels and twelve candidates are 36 matrices; the fit never has more than fifteen."""
    n = 300
    rng = np.random.default_rng(0)
    y = np.arange(n) % 2
    X = rng.standard_normal((n, 5)) + 0.5 * (2 * y[:, None] - 1)
    few = np.where(np.arange(n) < 10, y, -1)
    kernels = [kw.kernels.Gaussian(), kw.kernels.Laplacian(), kw.kernels.Gaussian(4.0)]
    clf = kw.InputOutputKernelClassifier(kernels=kernels, max_candidates=12, violation=0.0, tol=1e-6)
    clf.fit(X, few)  # compiles, which takes memory of its own
    tracemalloc.start()
    clf.fit(X, few)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert clf.weights_.shape == (3, 12)
    assert peak < 15 * n * n * 4


def test_scores_of_new_samples_are_those_of_the_formula():
    """f(x) = sum_m sum_i a_i (sum_t d_mt y_i^mt) k_m(x, x_i), with centred kernels."""
    X, _, few = moons()
    clf = narrow(max_candidates=5).fit(X, few)
    np.testing.assert_array_equal(clf.predict(X)[few < 0], clf.transduction_[few < 0])
    new = X[:20] + 0.01
    spec = kw.KernelBank([kw.kernels.Gaussian(0.1), kw.kernels.Laplacian(0.3)], normalise="center")
    cross = spec.build(X).expansion([0, 1], clf.support_).cross(new)
    expected = np.einsum("mni,mi->n", cross, clf.dual_coef_[0])
    np.testing.assert_allclose(clf.decision_function(new), expected, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("C", [100.0, 1e-4])
def test_known_labels_are_kept(C):
    """Even a label that the decision function contradicts."""
    X, _, few = moons(60, labelled=10)
    wrong = np.flatnonzero(few == 0)[0]
    few[wrong] = 1
    clf = narrow(max_candidates=3, C=C).fit(X, few)
    assert clf.predict(X)[wrong] == 0 or C == 100.0
    np.testing.assert_array_equal(clf.transduction_, np.where(few < 0, clf.predict(X), few))


def test_all_labelled_is_supervised():
    X, y, _ = moons(60)
    clf = narrow().fit(X, y)
    assert clf.weights_.shape == (2, 1) and clf.score(X, y) > 0.9
    np.testing.assert_array_equal(clf.transduction_, y)


def test_several_classes():
    X, y = load_iris(return_X_y=True)
    rng = np.random.default_rng(0)
    few = np.full(150, -1)
    for c in range(3):
        few[rng.choice(np.flatnonzero(y == c), 5, replace=False)] = c
    clf = kw.InputOutputKernelClassifier(max_candidates=4, balance={0: 1 / 3, 1: (0.3, 0.4), 2: 1 / 3}).fit(X, few)
    assert len(clf.weights_) == len(clf.candidates_) == len(clf.history_) == 3
    assert clf.decision_function(X).shape == (150, 3) and clf.violation_.shape == (3,)
    assert (clf.transduction_ == y).mean() > 0.85


def test_names_of_classes():
    X, _, few = moons()
    named = np.where(few < 0, "-1", np.where(few == 1, "yes", "no"))
    clf = narrow(max_candidates=3).fit(X, named)
    assert clf.classes_.tolist() == ["no", "yes"] and set(clf.transduction_) == {"no", "yes"}
    numbers_among_names = np.array([-1 if f < 0 else ("yes" if f else "no") for f in few], dtype=object)
    floats_among_names = [-1.0 if f < 0 else ("yes" if f else "no") for f in few]
    for same in (
        numbers_among_names,
        floats_among_names,
        named.astype(object),
        pd.Series(named),
        pd.Categorical(named),
        named.tolist(),
    ):
        np.testing.assert_array_equal(narrow(max_candidates=3).fit(X, same).transduction_, clf.transduction_)


def test_views_precomputed_kernels_and_frames_agree():
    X, _, few = moons()
    spec = kw.KernelBank(kw.kernels.Gaussian(0.1), normalise="center", dtype="float64")
    settings = {"max_candidates": 3, "tol": 1e-6}
    one = kw.InputOutputKernelClassifier(kernels=spec, **settings).fit(X, few)
    views = kw.InputOutputKernelClassifier(kernels=spec, **settings).fit(kw.Views({"x": X}), few)
    stack = np.stack([spec.build(X).gram(0)])
    given = kw.KernelBank("precomputed", dtype="float64")
    precomputed = kw.InputOutputKernelClassifier(kernels=given, **settings).fit(stack, few)
    np.testing.assert_allclose(views.decision_function(kw.Views({"x": X})), one.decision_function(X), rtol=1e-12)
    np.testing.assert_allclose(precomputed.decision_function(stack), one.decision_function(X), atol=1e-6)


def test_copies():
    X, _, few = moons(60)
    clf = narrow(max_candidates=3).fit(X, few)
    again = pickle.loads(pickle.dumps(clf))
    np.testing.assert_array_equal(again.decision_function(X), clf.decision_function(X))
    np.testing.assert_array_equal(clone(clf).fit(X, few).decision_function(X), clf.decision_function(X))


def test_search_over_settings():
    X, y, few = moons()
    found = GridSearchCV(narrow(max_candidates=2), {"c_theta": [1.2, 3.0]}, cv=2).fit(X, y)
    assert found.best_score_ > 0.7 and few.min() == -1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"task": "supervised"}, "task must be"),
        ({"margin": "firm"}, "margin must be"),
        ({"norms": (2, 2)}, "soft margin needs"),
        ({"candidates": "own"}, "candidates must be"),
        ({"level": "bags"}, "level must be"),
        ({"C": 0.0}, "C must be"),
        ({"C_unlabelled": np.inf}, "C_unlabelled must be"),
        ({"max_candidates": 0}, "max_candidates"),
        ({"tol": 0.0}, "tol must be"),
        ({"violation": np.nan}, "violation must be"),
        ({"c_theta": -1.0}, "c_theta"),
        ({"balance": "equal"}, "balance must be"),
        ({"balance": 1.2}, "contradictory"),
        ({"balance": (0.7, 0.3)}, "contradictory"),
        ({"balance": {0: 0.8, 1: 0.8}}, "contradictory"),
        ({"balance": {0: 0.1, 1: 0.2}}, "contradictory"),
        ({"balance": {"x": 0.5}}, "a share for each"),
        ({"balance": {}}, "a share for each"),
        ({"balance": ("a", "b")}, r"balance is a share .* got \('a', 'b'\)"),
        ({"balance": {0: "x"}}, "balance is a share .* got 'x'"),
        ({"norms": 2}, "norms must be a pair .* got 2"),
        ({"norms": (2,)}, r"norms must be a pair .* got \(2,\)"),
        ({"norms": (2, "1")}, "norms must be a pair"),
        ({"norms": (0.5, 1), "margin": "hard"}, "norms must be a pair"),
        ({"tol": "small"}, "tol must be positive, got 'small'"),
        ({"violation": None}, "violation must be at least 0, got None"),
        ({"C": "1"}, "C must be positive and finite, got '1'"),
        ({"C_unlabelled": True}, "C_unlabelled must be positive and finite, got True"),
        ({"max_candidates": None}, "max_candidates must be an integer, got None"),
        ({"theta": "a"}, "theta must be a number"),
        ({"c_theta": None}, "c_theta must be positive, got None"),
    ],
)
def test_bad_settings(settings, message):
    X, _, few = moons(30)
    with pytest.raises((TypeError, ValueError), match=message):
        kw.InputOutputKernelClassifier(**settings).fit(X, few)


def test_bad_labels():
    X, y, few = moons(30)
    with pytest.raises(ValueError, match="no sample is labelled"):
        narrow().fit(X, np.full(30, -1))
    with pytest.raises(ValueError, match="only one class"):
        narrow().fit(X, np.where(few == 1, 1, -1))
    with pytest.raises(ValueError, match="share of one class"):
        narrow(balance=0.5).fit(X, np.arange(30) % 4 - 1)
    with pytest.raises(ValueError, match="groups are bags"):
        narrow().fit(X, few, groups=np.arange(30))
    fitted = narrow(max_candidates=1).fit(X, few)
    for use in (fitted.predict, fitted.decision_function, lambda X, groups: fitted.score(X, y, groups=groups)):
        with pytest.raises(ValueError, match="groups are bags"):
            use(X, groups=np.arange(30))
    with pytest.raises(ValueError, match="X contains NaN at row 7, column 1"):
        narrow().fit(np.where(np.arange(60).reshape(30, 2) == 15, np.nan, X), few)
    for missing in (np.where(few < 0, np.nan, few), [None if label < 0 else "ab"[label] for label in few]):
        with pytest.raises(ValueError, match="where a label is not known, write -1"):
            narrow().fit(X, missing)
    with pytest.raises(AttributeError, match="multiple-instance"):
        narrow(max_candidates=1).fit(X, y).instance_scores(X)
    with pytest.raises(TypeError, match="max_candidates"):
        narrow(max_candidates=2.5).fit(X, few)


# -- bags --------------------------------------------------------------------------------------------------------------


def toy_bags(n_bags=24, size=5, seed=0, n_true=3):
    """Positive bags have some instances from a cloud of their own; labels 0 and 1."""
    rng = np.random.default_rng(seed)
    y = np.arange(n_bags) % 2
    X = [rng.standard_normal((size, 3)) for _ in range(n_bags)]
    for bag, label in zip(X, y, strict=True):
        bag[: n_true * label] += 3.0
    return Bags(X), y


@pytest.mark.parametrize("settings", [{"positives": 0.6}, {"positives": 1}, {"level": "bag"}], ids=str)
@pytest.mark.parametrize("margin", ["soft", "hard"])
def test_bags(settings, margin):
    train, y = toy_bags()
    test, truth = toy_bags(seed=1)
    clf = kw.InputOutputKernelClassifier("multiple-instance", margin=margin, max_candidates=8, **settings)
    clf.fit(train, y)
    assert clf.score(train, y) >= 0.9 and clf.score(test, truth) >= 0.8
    scores = clf.instance_scores(test)
    np.testing.assert_allclose(
        clf.decision_function(test), scores.reshape(-1, 5).max(axis=1) - clf.threshold_, rtol=1e-12
    )
    of_true = np.tile(np.arange(5) < 3, 12)
    positive = np.repeat(truth == 1, 5)
    assert scores[positive][of_true].mean() > scores[positive][~of_true].mean()
    assert not hasattr(clf, "transduction_")


def test_forms_of_bags():
    train, y = toy_bags(12)
    settings = {"task": "multiple-instance", "max_candidates": 2}
    expected = kw.InputOutputKernelClassifier(**settings).fit(train, y).decision_function(train)
    as_list = kw.InputOutputKernelClassifier(**settings).fit(list(train), y).decision_function(list(train))
    np.testing.assert_allclose(as_list, expected, rtol=1e-12)
    rows, groups = train.instances, train.bag_of
    by_group = kw.InputOutputKernelClassifier(**settings).fit(rows, y[groups], groups=groups)
    np.testing.assert_allclose(by_group.decision_function(rows, groups), expected, rtol=1e-12)
    np.testing.assert_array_equal(by_group.predict(rows, groups=groups), (expected > 0).astype(int))


def test_score_of_bags():
    """Shares of bags, however they are given; labels of rows are labels of their bags."""
    train, y = toy_bags(12)
    clf = kw.InputOutputKernelClassifier("multiple-instance", max_candidates=2).fit(train, y)
    rows, groups, wrong = train.instances, train.bag_of, np.where(np.arange(12) < 3, 1 - y, y)
    expected = np.mean(clf.predict(train) == wrong)
    assert 0 < expected < 1
    assert clf.score(train, wrong) == clf.score(list(train), wrong) == clf.score(train, wrong[groups]) == expected
    assert clf.score(rows, wrong, groups=groups) == clf.score(rows, wrong[groups], groups=groups) == expected
    weights = np.arange(1.0, 13)
    assert clf.score(train, wrong, weights) == pytest.approx(weights @ (clf.predict(train) == wrong) / weights.sum())
    with pytest.raises(ValueError, match="y has 11 labels"):
        clf.score(train, y[:11])


def test_threshold_parts_the_training_bags_best():
    train, y = toy_bags(n_true=1)
    clf = kw.InputOutputKernelClassifier("multiple-instance", max_candidates=3).fit(train, y)
    scores = clf.instance_scores(train).reshape(-1, 5).max(axis=1)
    right = [np.mean(scores[y == 1] > cut) + np.mean(scores[y == 0] <= cut) for cut in [clf.threshold_, *scores]]
    assert right[0] == max(right) and np.min(np.abs(scores - clf.threshold_)) > 0
    assert np.mean(scores[y == 1] > 0) + np.mean(scores[y == 0] <= 0) < right[0]  # zero would be no threshold


def test_refit_with_the_other_task():
    bags, of_bags = toy_bags(12)
    X, _, few = moons(30)
    clf = kw.InputOutputKernelClassifier(max_candidates=2).fit(X, few)
    clf.set_params(task="multiple-instance").fit(bags, of_bags)
    assert hasattr(clf, "threshold_") and not hasattr(clf, "transduction_")
    clf.set_params(task="semi-supervised").fit(X, few)
    assert hasattr(clf, "transduction_") and not hasattr(clf, "threshold_")


def test_bags_in_cross_validation():
    X, y = toy_bags()
    clf = kw.InputOutputKernelClassifier("multiple-instance", positives=0.6, max_candidates=3)
    assert cross_val_score(clf, X, y, cv=3).mean() > 0.7


def test_bad_bags():
    X, y = toy_bags(6)
    clf = kw.InputOutputKernelClassifier("multiple-instance")
    with pytest.raises(ValueError, match="InputOutputKernelClassifier needs positive and negative bags"):
        clf.fit(X, np.zeros(6))
    with pytest.raises(ValueError, match="with 6 classes: use OneVsRestClassifier"):
        clf.fit(X, np.arange(6))
    with pytest.raises(ValueError, match="positives"):
        kw.InputOutputKernelClassifier("multiple-instance", positives=0).fit(X, y)
    with pytest.raises(ValueError, match="y to be passed"):
        clf.fit(X, None)
    fitted = narrow(max_candidates=1).fit(*moons(30)[::2])
    for bags in (X, list(X)):
        for use in (narrow().fit, fitted.score):
            with pytest.raises(ValueError, match=r"X holds bags.*set task='multiple-instance'"):
                use(bags, y)
    of_kernels = list(explicit_kernels(moons(30)[0]))  # a list, too, but no bags
    kw.InputOutputKernelClassifier(kernels="precomputed", max_candidates=1).fit(of_kernels, moons(30)[2])


def test_threshold():
    assert best_threshold(np.array([0.1, 0.2, 0.8, 0.9]), np.array([-1, -1, 1, 1])) == pytest.approx(0.5)
    assert best_threshold(np.array([0.3, 0.3]), np.array([-1, 1])) == 0.3
    assert best_threshold(np.array([0.0, 1.0, 2.0, 3.0]), np.array([-1, 1, -1, 1])) in (0.5, 2.5)


# -- clustering --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("margin", ["soft", "hard"])
def test_clusters(margin):
    X, y = make_blobs(90, centers=2, cluster_std=0.8, random_state=1)
    model = kw.InputOutputKernelClustering(margin=margin, max_candidates=8)
    labels = model.fit_predict(X)
    assert max((labels == y).mean(), (labels != y).mean()) > 0.95
    assert labels[0] == 0 and np.all(np.abs(model.candidates_.sum(axis=2)) <= 18)
    np.testing.assert_array_equal(model.predict(X), labels)
    # a labelling and its opposite are the same: all candidates are turned to agree with the first
    assert np.all(model.candidates_ @ model.candidates_[0, 0].astype(float) >= 0)


@pytest.mark.parametrize("imbalance", [0.0, 0.1, 0.58])
def test_imbalance(imbalance):
    """Clouds of 75 and 25, which are found if sides may differ by 50."""
    X, y = make_blobs([75, 25], centers=[[0, 0], [5, 5]], random_state=0)
    model = kw.InputOutputKernelClustering(imbalance=imbalance, max_candidates=5).fit(X)
    largest, allowed = np.abs(model.candidates_.sum(axis=2, dtype=int)).max(), round(100 * imbalance)
    assert min(allowed, 50) <= largest <= allowed
    assert (np.mean(model.labels_ == y) in (0, 1)) == (allowed >= 50)


@pytest.mark.parametrize("first", [0, 1])
def test_first_sample_is_in_cluster_0(first):
    X, y = make_blobs(40, centers=2, random_state=1)
    order = np.argsort(y != first, kind="stable")
    model = kw.InputOutputKernelClustering(max_candidates=2).fit(X[order])
    np.testing.assert_array_equal(model.labels_, np.arange(40) >= 20)
    np.testing.assert_array_equal(model.predict(X[order]), model.labels_)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"imbalance": 1.0}, "imbalance must be at least 0 and less than 1, got 1.0"),
        ({"imbalance": None}, "imbalance must be at least 0 and less than 1, got None"),
        *(({"C": C}, f"C must be positive and finite, got {C!r}") for C in (-1, 0, np.inf, "a")),
    ],
)
def test_bad_clusterings(settings, message):
    X = np.random.default_rng(0).standard_normal((10, 2))
    with pytest.raises((TypeError, ValueError), match=message):
        kw.InputOutputKernelClustering(kernels="refused before kernels are looked at", **settings).fit(X)


# -- scikit-learn ------------------------------------------------------------------------------------------------------

# With task="multiple-instance" X are bags, which these checks do not have: it shares all code of the constructor and of
# reading instances with the other task.
FAILED = {"check_classifiers_classes": "it has the classes -1 and 1, and -1 means unlabelled, as scikit-learn has it"}


@parametrize_with_checks(
    [
        kw.InputOutputKernelClassifier(max_candidates=3),
        kw.InputOutputKernelClustering(max_candidates=3),
    ],
    expected_failed_checks=lambda estimator: FAILED if isinstance(estimator, kw.InputOutputKernelClassifier) else {},
)
def test_scikit_learn_contract(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)
