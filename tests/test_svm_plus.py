"""SVMPlus as users meet it."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import parametrize_with_checks

import kernelweave as kw
from kernelweave.kernels import Gaussian, KernelBank, Linear
from kernelweave.machines.svm_plus import solve_plus


@parametrize_with_checks([kw.SVMPlus()])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def problem(n=80, n_classes=2, seed=0):
    """Noisy features (n, 5), clean ones (n, 5), classes as texts."""
    rng = np.random.default_rng(seed)
    codes = rng.permutation(n) % n_classes
    clean = rng.standard_normal((n, 5)) + 2.5 * np.eye(5)[codes]
    return clean + rng.standard_normal((n, 5)), clean, np.array(["ape", "bee", "cat"])[codes]


def test_two_classes_are_one_problem():
    X, Z, y = problem()
    model = kw.SVMPlus(Gaussian(gamma=0.1), Gaussian(gamma=0.2), C=2.0, lam=0.5, tol=1e-6).fit(X, y, Z)
    K = np.exp(-0.1 * ((X[:, None] - X) ** 2).sum(axis=2))
    G = np.exp(-0.2 * ((Z[:, None] - Z) ** 2).sum(axis=2))
    alone = solve_plus(K, G, np.where(y == "bee", 1.0, -1.0), 2.0, 0.5, 1e-6)
    assert model.objective_ == pytest.approx(alone.primal, rel=2e-6)
    np.testing.assert_allclose(model.decision_function(X), K @ alone.coef + alone.intercept, atol=1e-4)
    assert model.dual_coef_.shape == (1, len(model.support_))
    assert model.intercept_.shape == model.privileged_intercept_.shape == (1,)
    assert model.privileged_coef_.shape == (1, len(y))
    slack = G @ model.privileged_coef_[0] + model.privileged_intercept_[0]
    margins = np.where(y == "bee", 1, -1) * model.decision_function(X)
    assert slack.min() >= -1e-8 and np.min(margins - 1 + slack) >= -1e-6
    assert 0 <= model.gap_ <= 1e-6 and model.converged_ and model.n_iter_ >= 1
    np.testing.assert_array_equal(model.predict(X), np.where(model.decision_function(X) > 0, "bee", "ape"))


def test_three_classes_are_one_against_the_rest():
    X, Z, y = problem(90, 3)
    model = kw.SVMPlus(C=2.0, lam=0.2, tol=1e-6).fit(X, y, Z)
    scores = model.decision_function(X)
    assert scores.shape == (90, 3) and model.objective_.shape == (3,)
    for k, name in enumerate(model.classes_):
        one = kw.SVMPlus(C=2.0, lam=0.2, tol=1e-6).fit(X, y == name, Z)
        np.testing.assert_allclose(scores[:, k], one.decision_function(X), atol=1e-4)
    np.testing.assert_array_equal(model.predict(X), model.classes_[scores.argmax(axis=1)])
    assert model.score(X, y) > 0.8


def test_without_privileged_features_it_is_an_ordinary_machine():
    X, y = load_iris(return_X_y=True)
    y = y > 1
    model = kw.SVMPlus(Gaussian(gamma=0.3), C=3.0, tol=1e-7).fit(X, y)
    peer = SVC(C=3.0, gamma=0.3, tol=1e-7).fit(X, y)
    np.testing.assert_allclose(model.decision_function(X), peer.decision_function(X), atol=1e-4)
    assert model.privileged_coef_ is None and model.privileged_intercept_ is None


def test_prediction_needs_and_reads_no_privileged_features():
    X, Z, y = problem()
    model = kw.SVMPlus(lam=0.1).fit(X, y, Z)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_allclose(again.decision_function(X[:5]), model.decision_function(X)[:5], rtol=1e-12)


def test_privileged_features_help_where_they_tell_hard_samples():
    """Labels are noisy, and the privileged feature says how far on its own side of the border a sample really is."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 10))
    y = np.where(X[:, 0] + rng.standard_normal(600) > 0, 1, -1)
    Z, truth = (y * X[:, 0])[:, None], np.where(X[:, 0] > 0, 1, -1)
    few, new = slice(0, 60), slice(60, None)
    costs = (0.01, 0.1, 1.0, 10.0)
    plain = max(kw.SVMPlus(Linear(), C=C).fit(X[few], y[few]).score(X[new], truth[new]) for C in costs)
    gifted = max(
        kw.SVMPlus(Linear(), C=C, lam=0.1).fit(X[few], y[few], Z[few]).score(X[new], truth[new]) for C in costs
    )
    assert gifted > plain + 0.05


@pytest.mark.parametrize("form", ["views", "mapping", "frame", "precomputed"])
def test_forms_of_data(form):
    X, Z, y = problem()
    names = [f"left.{k}" if k < 2 else f"right.{k}" for k in range(5)]
    parts = {"left": X[:, :2], "right": X[:, 2:]}
    kernel = Linear()
    expected = kw.SVMPlus(kernel, kernel, lam=0.5, tol=1e-7).fit(0.5**0.5 * X, y, Z).decision_function(0.5**0.5 * X)
    forms = {
        "views": lambda: (kw.Views(parts), Z, kernel, kernel),
        "mapping": lambda: (
            parts,
            {"z": Z},
            KernelBank({"left": Linear(), "right": Linear()}, dtype="float64"),
            kernel,
        ),
        "frame": lambda: (pd.DataFrame(X, columns=names), pd.DataFrame(Z, columns=list("abcde")), kernel, kernel),
        "precomputed": lambda: (
            kw.KernelStack(np.stack([part @ part.T for part in parts.values()])),
            kw.KernelStack((Z @ Z.T)[None]),
            "precomputed",
            "precomputed",
        ),
    }
    data, privileged, of_X, of_Z = forms[form]()
    model = kw.SVMPlus(of_X, of_Z, lam=0.5, tol=1e-7).fit(data, y, privileged)
    np.testing.assert_allclose(model.decision_function(data), expected, atol=1e-3)


def test_searches_cut_privileged_features_with_the_samples():
    X, Z, y = problem(60)
    for privileged in (Z, kw.Views({"a": Z})):
        scores = cross_val_score(kw.SVMPlus(lam=0.1), X, y, cv=3, params={"Z": privileged})
        assert scores.mean() > 0.7
    with sklearn.config_context(enable_metadata_routing=True):
        model = kw.SVMPlus().set_fit_request(Z=True)
        search = GridSearchCV(model, {"C": [0.1, 1.0], "lam": [0.1, 1.0]}, cv=3).fit(X, y, Z=Z)
    assert search.best_estimator_.privileged_coef_.shape == (1, 60)


def test_clone_and_repr():
    model = clone(kw.SVMPlus(Gaussian(0.5), lam=3.0))
    assert repr(model) == "SVMPlus(kernel=Gaussian(0.5), lam=3.0)"


@pytest.mark.parametrize(
    "settings,data,match",
    [
        ({"C": 0.0}, {}, "C must be positive"),
        ({"lam": -1.0}, {}, "lam must be positive"),
        ({"lam": np.inf}, {}, "lam must be positive"),
        ({"tol": 0.0}, {}, "tol must be positive"),
        ({}, {"Z": np.eye(7)}, "Z has 7 samples, but y has 80"),
        ({}, {"Z": np.full((80, 2), np.nan)}, "Z contains NaN"),
        ({}, {"y": np.zeros(80)}, "only one class"),
        ({}, {"y": np.arange(3)}, "inconsistent numbers of samples"),
        ({}, {"X": np.ones((80, 2, 2))}, "dim 3"),
    ],
)
def test_bad_input_is_named(settings, data, match):
    X, Z, y = problem()
    with pytest.raises(ValueError, match=match):
        kw.SVMPlus(**settings).fit(**({"X": X, "y": y, "Z": Z} | data))


def test_a_kernel_must_be_one():
    X, Z, y = problem()
    with pytest.raises(TypeError, match="made of kernels"):
        kw.SVMPlus(kernel=3).fit(X, y, Z)
    with pytest.raises(ValueError, match="got 'rbf'"):
        kw.SVMPlus(privileged_kernel="rbf").fit(X, y, Z)


def test_constant_privileged_features_say_nothing():
    X, _, y = problem()
    with pytest.warns(UserWarning, match="all training samples are equal"):
        model = kw.SVMPlus(C=1.0, tol=1e-6).fit(X, y, np.ones((80, 2)))
    assert model.converged_
    assert model.objective_ <= 80.0 * (1 + 1e-6)  # slack 1 for all
