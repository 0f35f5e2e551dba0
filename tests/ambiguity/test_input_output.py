"""Input-output kernels: the two estimators, as they are used."""

from __future__ import annotations

import pickle
import tracemalloc
import warnings

import numpy as np
import pandas as pd
import pytest
from labelled_problems import explicit_kernels, moons, narrow
from sklearn.base import clone
from sklearn.datasets import load_iris, make_blobs
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import kernelweave as kw
from kernelweave.ambiguity.bags import Bags
from kernelweave.ambiguity.input_output import best_threshold

# -- few labels --------------------------------------------------------------------------------------------------------


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
    """Three kernels and twelve candidates are 36 matrices; the fit never has more than twelve."""
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
    assert peak < 12 * n * n * 4


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
