"""MKLClassifier and MKLRegressor as users meet them. A new estimator is one line in ESTIMATORS."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import parametrize_with_checks

import kernelweave as kw
from kernelweave.kernels import FromFunction, Gaussian, Linear

ESTIMATORS = [kw.MKLClassifier(), kw.MKLRegressor()]

# scikit-learn's own LinearSVC and NuSVC are excused from this check as well. It asks for decision values equal to 1e-7,
# which needs the exact optimum, and the bandwidth of the default kernels is the mean distance of the samples given.
# What the check is about, with a fixed bandwidth and a small tolerance, is tested below.
EXCUSED = {"check_sample_weight_equivalence_on_dense_data": "kernel bandwidths are means over the given samples"}


@parametrize_with_checks(ESTIMATORS, expected_failed_checks=lambda estimator: EXCUSED)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def two_classes():
    return kw.datasets.make_views(n_samples=160, n_useful=2, n_redundant=0, n_noise=3, random_state=0)


@pytest.fixture(scope="module")
def three_classes():
    return kw.datasets.make_views(n_samples=150, n_useful=2, n_redundant=0, n_noise=1, n_classes=3, random_state=1)


def stacked(views):
    return np.hstack([views[name] for name in views.names])


def columns_of(views):
    edges = np.cumsum([0] + [views[name].shape[1] for name in views.names])
    return {name: slice(*edges[i : i + 2]) for i, name in enumerate(views.names)}


# --- what a fit gives ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", ["l1", "l2", "l4", "linf", "average", "sum", "best", "alignment", "entropy"])
def test_every_named_weight_set_learns(two_classes, weights):
    views, y = two_classes
    clf = kw.MKLClassifier(weights=weights).fit(views, y)
    assert 0 <= clf.gap_ <= 1e-3
    assert clf.converged_
    assert clf.weights_.shape == (len(clf.kernel_names_),) == (15,)
    assert np.all(clf.weights_ >= 0)
    assert clf.history_["upper"][-1] == clf.objective_
    assert clf.score(views, y) > 0.8


def test_average_equals_svc_on_the_mean_kernel(two_classes):
    views, y = two_classes
    bank = kw.KernelBank([Gaussian()], dtype="float64")
    clf = kw.MKLClassifier(bank, weights="average", C=2.0, tol=1e-9).fit(views, y)
    K = bank.build(views).combine(np.full(5, 0.2))
    svc = SVC(C=2.0, kernel="precomputed", tol=1e-10).fit(K, y)
    np.testing.assert_allclose(clf.decision_function(views), svc.decision_function(K), atol=1e-4)


def test_l1_objective_is_below_average_and_every_single_kernel(two_classes):
    views, y = two_classes
    l1 = kw.MKLClassifier(weights="l1").fit(views, y)
    average = kw.MKLClassifier(weights="average").fit(views, y)
    assert l1.objective_ <= average.objective_
    for j in range(len(l1.kernel_names_)):
        single = kw.MKLClassifier(weights=kw.weights.Single(j)).fit(views, y)
        assert l1.objective_ * (1 - 1e-3) <= single.objective_


def test_noise_kernels_hurt_the_average_not_l1():
    views, y = kw.datasets.make_views(n_samples=500, n_useful=2, n_redundant=0, n_noise=14, random_state=3)
    train, test = np.arange(300), np.arange(300, 500)
    clean = ["useful0", "useful1"]
    accuracy = {}
    for weights, C in (("average", 3.0), ("l1", 3.0)):
        for name, kernels in (("clean", {v: Gaussian() for v in clean}), ("noisy", Gaussian())):
            clf = kw.MKLClassifier(kernels, weights=weights, C=C).fit(views[train], y[train])
            accuracy[weights, name] = clf.score(views[test], y[test])
    assert accuracy["l1", "noisy"] >= accuracy["l1", "clean"] - 0.03
    assert accuracy["average", "noisy"] < accuracy["average", "clean"] - 0.03
    assert accuracy["l1", "noisy"] > accuracy["average", "noisy"]


def test_more_than_two_classes_get_a_weight_vector_each(three_classes):
    views, y = three_classes
    clf = kw.MKLClassifier().fit(views, y)
    assert clf.weights_.shape == (3, len(clf.kernel_names_))
    assert clf.objective_.shape == (3,)
    assert len(clf.history_) == 3
    assert clf.decision_function(views).shape == (150, 3)
    assert clf.score(views, y) > 0.8
    for k in range(3):
        alone = kw.MKLClassifier().fit(views, np.where(y == clf.classes_[k], 1, 0))
        np.testing.assert_allclose(clf.weights_[k], alone.weights_, atol=1e-10)


def test_indicator_matrix(three_classes):
    views, y = three_classes
    Y = (y[:, None] == np.unique(y)).astype(int)
    Y[:, 0] |= Y[:, 1]
    clf = kw.MKLClassifier(probability=True, random_state=0).fit(views, Y)
    assert clf.predict(views).shape == Y.shape
    assert clf.weights_.shape == (3, len(clf.kernel_names_))
    assert np.mean(clf.predict(views) == Y) > 0.85
    assert clf.predict_proba(views).shape == Y.shape


def test_constant_label_is_reported_and_predicted(three_classes):
    views, y = three_classes
    Y = (y[:, None] == np.unique(y)).astype(int)
    Y[:, 1] = 1
    with pytest.warns(UserWarning, match=r"column\(s\) \[1\]"):
        clf = kw.MKLClassifier().fit(views, Y)
    assert np.all(clf.predict(views)[:, 1] == 1)


def test_string_labels(two_classes):
    views, y = two_classes
    names = np.where(y == np.unique(y)[0], "cat", "dog")
    clf = kw.MKLClassifier().fit(views, names)
    assert set(clf.predict(views)) <= {"cat", "dog"}
    assert clf.score(views, names) > 0.8


def test_probabilities_are_calibrated(two_classes, three_classes):
    for views, y in (two_classes, three_classes):
        clf = kw.MKLClassifier(probability=True, random_state=0).fit(views, y)
        p = clf.predict_proba(views)
        np.testing.assert_allclose(p.sum(axis=1), 1.0)
        assert np.mean(clf.classes_[p.argmax(axis=1)] == clf.predict(views)) > 0.9
        assert np.log(p[np.arange(len(y)), np.searchsorted(clf.classes_, y)]).mean() > np.log(1 / len(clf.classes_))
    assert not hasattr(kw.MKLClassifier(), "predict_proba")


def test_weights_of_samples_and_classes():
    X, y = load_breast_cancer(return_X_y=True)
    X, y = StandardScaler().fit_transform(X)[:150], y[:150]
    plain = kw.MKLClassifier(C=0.01).fit(X, y)
    balanced = kw.MKLClassifier(C=0.01, class_weight="balanced").fit(X, y)
    counts = np.bincount(y)
    by_hand = kw.MKLClassifier(C=0.01).fit(X, y, sample_weight=(len(y) / (2 * counts))[y])
    np.testing.assert_allclose(balanced.decision_function(X), by_hand.decision_function(X), atol=1e-8)
    assert np.abs(balanced.decision_function(X) - plain.decision_function(X)).max() > 1e-3
    exact = kw.MKLClassifier(Gaussian(gamma=0.1), tol=1e-8)
    left_out = clone(exact).fit(X, y, sample_weight=np.r_[np.zeros(20), np.ones(130)])
    without = clone(exact).fit(X[20:], y[20:])
    np.testing.assert_allclose(left_out.decision_function(X), without.decision_function(X), atol=1e-4)


@pytest.mark.parametrize("estimator", [kw.MKLClassifier, kw.MKLRegressor])
def test_a_sample_of_weight_two_is_the_sample_twice(two_classes, estimator):
    views, y = two_classes
    kernels = [Gaussian(gamma=0.05), Gaussian(gamma=0.2)]
    bank = kw.KernelBank(kernels, dtype="float64")
    weight = np.random.default_rng(0).integers(0, 3, size=len(y))
    weighted = estimator(bank, weights="l2", tol=1e-9).fit(views, y, sample_weight=weight)
    repeated = estimator(bank, weights="l2", tol=1e-9).fit(
        views[np.repeat(np.arange(len(y)), weight)], np.repeat(y, weight)
    )
    scores = "decision_function" if estimator is kw.MKLClassifier else "predict"
    np.testing.assert_allclose(getattr(weighted, scores)(views), getattr(repeated, scores)(views), atol=1e-4)


def test_best_kernel_by_cross_validation_takes_sample_weights(two_classes):
    views, y = two_classes
    weight = np.where(np.arange(len(y)) < 100, 1.0, 0.0)
    clf = kw.MKLClassifier(Gaussian(), weights="best").fit(views, y, sample_weight=weight)
    assert np.count_nonzero(clf.weights_) == 1
    assert clf.kernel_names_[clf.weights_.argmax()].startswith("useful")
    assert clf.support_.max() < 100


def test_nu_machine(two_classes):
    views, y = two_classes
    clf = kw.MKLClassifier(machine=kw.machines.NuSVM(0.5)).fit(views, y)
    assert clf.gap_ <= 1e-3
    assert clf.score(views, y) > 0.8
    with pytest.raises(ValueError, match="to the machine itself"):
        kw.MKLClassifier(machine=kw.machines.NuSVM(0.5), class_weight="balanced").fit(views, y)


@pytest.mark.parametrize("solver", ["newton", "cutting-plane", "level", "projected-gradient", "mirror-descent"])
def test_solvers_agree(two_classes, solver):
    views, y = two_classes
    reference = kw.MKLClassifier(solver="newton", tol=1e-5).fit(views, y)
    clf = kw.MKLClassifier(solver=solver, tol=1e-4).fit(views, y)
    assert clf.objective_ == pytest.approx(reference.objective_, rel=2e-4)


def test_published_stopping_is_the_published_one(two_classes):
    views, y = two_classes
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        clf = kw.MKLClassifier(solver="alternating", C=10.0, stopping="published").fit(views, y)
    assert clf.n_iter_ <= 40


def test_stopping_short_warns_with_the_gap(two_classes):
    views, y = two_classes
    with pytest.warns(ConvergenceWarning, match="gap of up to"):
        clf = kw.MKLClassifier(solver="cutting-plane", max_iter=2).fit(views, y)
    assert not clf.converged_
    assert clf.gap_ > 1e-3


def test_jobs_change_nothing(three_classes):
    views, y = three_classes
    one = kw.MKLClassifier().fit(views, y)
    two = kw.MKLClassifier(n_jobs=2).fit(views, y)
    # Sums over threads come in another order there: equal up to rounding, not to the bit.
    np.testing.assert_allclose(one.weights_, two.weights_, atol=1e-6)


def test_verbose_reports_iterations(two_classes, capsys):
    views, y = two_classes
    kw.MKLClassifier(verbose=1).fit(views, y)
    text = capsys.readouterr().err
    assert "iteration 1" in text
    assert "gap" in text


# --- forms of X ------------------------------------------------------------------------------------------------------


def test_every_form_of_x_gives_the_same_model(two_classes):
    views, y = two_classes
    kernels = {name: [Gaussian(), Linear()] for name in views.names}
    expected = kw.MKLClassifier(kernels).fit(views, y).decision_function(views)
    as_dict = {name: views[name] for name in views.names}
    np.testing.assert_array_equal(kw.MKLClassifier(kernels).fit(as_dict, y).decision_function(as_dict), expected)
    X = stacked(views)
    by_columns = kw.MKLClassifier(kw.KernelBank(kernels, columns=columns_of(views)))
    np.testing.assert_allclose(by_columns.fit(X, y).decision_function(X), expected, atol=1e-9)
    names = [f"{name}.{i}" for name in views.names for i in range(views[name].shape[1])]
    for frame in (pd.DataFrame(X, columns=names), pl.DataFrame(dict(zip(names, X.T, strict=True)))):
        got = kw.MKLClassifier(kernels).fit(frame, y).decision_function(frame)
        np.testing.assert_allclose(got, expected, atol=1e-9)


def test_float32_input(two_classes):
    views, y = two_classes
    small = kw.Views({name: views[name].astype(np.float32) for name in views.names})
    a, b = kw.MKLClassifier().fit(views, y), kw.MKLClassifier().fit(small, y)
    np.testing.assert_allclose(a.decision_function(views), b.decision_function(small), atol=1e-3)


def test_precomputed_kernels_predict_and_cross_validate(two_classes):
    views, y = two_classes
    X = stacked(views)
    Ks = np.stack([rbf_kernel(X, gamma=g) for g in (0.01, 0.1)])
    train, test = np.arange(0, 160, 2), np.arange(1, 160, 2)
    raw = kw.MKLClassifier("precomputed").fit(Ks[:, train][:, :, train], y[train])
    scores = raw.decision_function(Ks[:, test][:, :, train])
    stack = kw.KernelStack(Ks)
    clf = kw.MKLClassifier("precomputed").fit(stack[train], y[train])
    np.testing.assert_allclose(clf.decision_function(stack[test]), scores, atol=1e-6)
    assert cross_val_score(kw.MKLClassifier("precomputed"), stack, y, cv=3).mean() > 0.7


def test_views_in_grid_search_and_arrays_in_a_pipeline(two_classes):
    views, y = two_classes
    search = GridSearchCV(kw.MKLClassifier(), {"C": [0.1, 1.0], "weights": ["l1", "l2"]}, cv=2).fit(views, y)
    assert search.best_score_ > 0.7
    X, y = load_iris(return_X_y=True)
    assert cross_val_score(make_pipeline(StandardScaler(), kw.MKLClassifier()), X, y, cv=3).mean() > 0.9


def test_clone_and_pickle(two_classes):
    views, y = two_classes
    clf = kw.MKLClassifier(kw.KernelBank(Gaussian()), weights=kw.weights.LpBall(1.5)).fit(views, y)
    again = pickle.loads(pickle.dumps(clf))
    np.testing.assert_array_equal(again.decision_function(views), clf.decision_function(views))
    assert not hasattr(clone(clf), "weights_")
    assert clone(clf).weights == kw.weights.LpBall(1.5)


def test_a_pickled_model_holds_no_gram_matrices():
    views, y = kw.datasets.make_views(n_samples=400, n_noise=5, random_state=0)
    clf = kw.MKLClassifier().fit(views, y)
    assert len(pickle.dumps(clf)) < 400 * 400 * 4


def test_prediction_uses_only_active_kernels_and_support_rows(two_classes):
    views, y = two_classes
    seen = []

    def spy(name):
        def function(A, B):
            seen.append((name, len(B)))
            return rbf_kernel(A, B, gamma=0.1)

        return FromFunction(function)

    clf = kw.MKLClassifier({name: spy(name) for name in views.names}, C=0.1).fit(views, y)
    seen.clear()
    got = clf.decision_function(views[:10])
    active = {name.split(":")[0] for name, w in zip(clf.kernel_names_, clf.weights_, strict=True) if w > 0}
    assert {name for name, _ in seen} == active
    assert len(active) < len(views.names)
    assert {rows for _, rows in seen} == {len(clf.support_)}
    dense = sum(
        w * rbf_kernel(views[name][:10], views[name][clf.support_], gamma=0.1) @ clf.dual_coef_[0]
        for name, w in zip(views.names, clf.weights_, strict=True)
    )
    np.testing.assert_allclose(got, dense + clf.intercept_, atol=1e-5)


# --- regression ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", ["l1", "l2", "average", "best"])
def test_regression(weights):
    views, y = kw.datasets.make_regression_views(n_samples=200, random_state=0)
    model = kw.MKLRegressor(weights=weights, C=10.0).fit(views[:150], y[:150])
    assert model.gap_ <= 1e-3
    assert model.score(views[150:], y[150:]) > (0.2 if weights == "best" else 0.4)


def test_regression_with_several_targets_shares_one_weight_vector():
    views, y = kw.datasets.make_regression_views(n_samples=120, random_state=0)
    model = kw.MKLRegressor(C=10.0).fit(views, np.column_stack([y, -2 * y]))
    assert model.predict(views).shape == (120, 2)
    assert model.weights_.shape == (len(model.kernel_names_),)
    np.testing.assert_allclose(model.predict(views)[:, 1], -2 * model.predict(views)[:, 0], atol=1e-6)


def test_regression_leaves_out_samples_of_weight_zero():
    views, y = kw.datasets.make_regression_views(n_samples=120, random_state=0)
    kernel = Gaussian(gamma=0.1)
    weight = np.r_[np.zeros(20), np.ones(100)]
    a = kw.MKLRegressor(kernel, tol=1e-8).fit(views, y, sample_weight=weight)
    b = kw.MKLRegressor(kernel, tol=1e-8).fit(views[20:], y[20:])
    np.testing.assert_allclose(a.predict(views), b.predict(views), atol=1e-3)
    assert a.support_.min() >= 20


# --- bad input -------------------------------------------------------------------------------------------------------


def broken(views, name, value):
    arrays = {v: views[v].copy() for v in views.names}
    arrays[name][3, 1] = value
    return arrays


def test_bad_input_is_named(two_classes):
    views, y = two_classes
    fit = kw.MKLClassifier().fit
    for value in (np.nan, np.inf):
        with pytest.raises(ValueError, match="useful1"):
            fit(broken(views, "useful1", value), y)
    with pytest.raises(ValueError, match="only one class"):
        fit(views, np.ones(len(y)))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        fit(views, y[:-1])
    with pytest.raises(ValueError, match="noise0"):
        fit({"a": views["useful0"], "noise0": views["noise0"][:-1]}, y)
    with pytest.raises(ValueError, match="useful0"):
        fit(views, y).predict({name: views[name] for name in views.names if name != "useful0"})
    with pytest.raises(ValueError, match="C must be positive"):
        kw.MKLClassifier(C=0).fit(views, y)
    with pytest.raises(ValueError, match="LpBall"):
        kw.MKLClassifier(weights="l0.5").fit(views, y)
    with pytest.raises(ValueError, match="stopping"):
        kw.MKLClassifier(stopping="soon").fit(views, y)
    with pytest.raises(ValueError, match="did you mean 'newton'"):
        kw.MKLClassifier(solver="newtn").fit(views, y)
    with pytest.raises(ValueError, match="tol must be positive"):
        kw.MKLClassifier(tol=0).fit(views, y)


def test_pairings_that_cannot_work_are_refused_with_those_that_can(two_classes):
    views, y = two_classes
    with pytest.raises(ValueError, match=r"smo.*Simplex.*newton"):
        kw.MKLClassifier(weights="l1", solver="smo").fit(views, y)
    with pytest.raises(ValueError, match=r"mirror-descent.*LpBall.*alternating"):
        kw.MKLClassifier(weights="l2", solver="mirror-descent").fit(views, y)
    with pytest.raises(ValueError, match=r"smo.*hinge"):
        kw.MKLRegressor(weights="l2", solver="smo").fit(views, y.astype(float))


def test_kernels_that_are_no_kernels_are_named(two_classes):
    views, y = two_classes
    n = len(y)
    good = np.eye(n)
    with pytest.raises(ValueError, match="square"):
        kw.MKLClassifier("precomputed").fit(np.ones((1, n, n - 1)), y)
    asymmetric = good.copy()
    asymmetric[0, 1] = 1.0
    with pytest.raises(ValueError, match="symmetric"):
        kw.MKLClassifier("precomputed").fit(np.stack([good, asymmetric]), y)

    def sigmoid(A, B):
        return np.tanh(0.5 * A @ B.T - 1.0)

    with pytest.raises(ValueError, match="Repaired"):
        kw.MKLClassifier(FromFunction(sigmoid)).fit(views, y)


def test_one_kernel_duplicate_kernels_and_zero_kernels(two_classes):
    views, y = two_classes
    one = kw.MKLClassifier(Gaussian(), tol=1e-6).fit(views["useful0"], y)
    twice = kw.MKLClassifier([Gaussian(), Gaussian()], tol=1e-6).fit(views["useful0"], y)
    assert one.weights_ == pytest.approx([1.0])
    assert twice.objective_ == pytest.approx(one.objective_, rel=1e-5)
    K = np.stack([rbf_kernel(views["useful0"]), np.zeros((len(y), len(y)))])
    clf = kw.MKLClassifier("precomputed").fit(K, y)
    assert clf.weights_.tolist() == [1.0, 0.0]


def test_constant_columns_are_reported_by_name(two_classes):
    views, y = two_classes
    arrays = {"fine": views["useful0"], "flat": np.ones((len(y), 3))}
    with pytest.warns(UserWarning, match="view 'flat'"):
        clf = kw.MKLClassifier(Gaussian()).fit(arrays, y)
    assert clf.weights_.tolist() == [1.0, 0.0]
