"""Measures as scikit-learn scorers."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import make_multilabel_classification
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

import kernelweave as kw
from kernelweave.evaluation import MEASURES, measure, scorer
from kernelweave.evaluation.formulas import LOSSES
from kernelweave.evaluation.scorers import label_scores


class Similar(ClassifierMixin, BaseEstimator):
    """Scores by the labels known for similar samples: takes NaN, or tags."""

    def __init__(self, width=1.0):
        self.width = width

    def fit(self, X, Y):
        labels = kw.labels.as_labels(Y)
        self.X_, self.signs_, self.classes_ = np.asarray(X), labels.signs, labels.names
        return self

    def predict_proba(self, X):
        near = np.exp(-(((np.asarray(X)[:, None] - self.X_) / self.width) ** 2).sum(axis=2))
        return 0.5 + near @ self.signs_ / (2 * near.sum(axis=1, keepdims=True) + 1e-300)


@pytest.fixture(scope="module")
def data():
    return make_multilabel_classification(80, n_features=6, n_classes=4, random_state=0)


@pytest.mark.parametrize("name", [name.replace("@k", "@2") for name in MEASURES])
def test_scorer_is_the_measure_and_larger_is_better(name, data):
    X, Y = data
    model = RidgeClassifier().fit(X[:50], Y[:50])
    value = measure(name, Y[50:], model.decision_function(X[50:])).value
    if name in LOSSES:
        assert scorer(f"neg_{name}")(model, X[50:], Y[50:]) == -value
    else:
        assert scorer(name)(model, X[50:], Y[50:]) == value


def test_cross_validation_and_grid_search(data):
    X, Y = data
    found = cross_val_score(RidgeClassifier(), X, Y, scoring=scorer("neg_ranking_loss"), cv=KFold(3))
    expected = []
    for train, test in KFold(3).split(X):
        model = RidgeClassifier().fit(X[train], Y[train])
        expected.append(-measure("ranking_loss", Y[test], model.decision_function(X[test])).value)
    np.testing.assert_array_equal(found, expected)
    scoring = {"auc": scorer("image_auc"), "f1": scorer("category_f1@2")}
    search = GridSearchCV(RidgeClassifier(), {"alpha": [0.1, 1e4]}, scoring=scoring, refit="auc", cv=3).fit(X, Y)
    assert np.isfinite(search.cv_results_["mean_test_f1"]).all()
    assert search.best_score_ == search.cv_results_["mean_test_auc"].max()


@pytest.mark.parametrize(
    "model",
    [
        KNeighborsClassifier(7),
        DecisionTreeClassifier(max_depth=3, random_state=0),
        MultiOutputClassifier(LogisticRegression()),
        make_pipeline(StandardScaler(), KNeighborsClassifier(7)),
        GridSearchCV(KNeighborsClassifier(), {"n_neighbors": [5, 7]}, cv=3),
    ],
    ids=lambda model: type(model).__name__,
)
def test_scores_from_a_list_of_probabilities(model, data):
    X, Y = data
    model.fit(X[:50], Y[:50])
    expected = np.column_stack([of[:, 1] for of in model.predict_proba(X[50:])])
    np.testing.assert_array_equal(label_scores(model, X[50:]), expected)
    assert scorer("image_auc")(model, X[50:], Y[50:]) == measure("image_auc", Y[50:], expected).value


def test_scores_from_a_matrix(data):
    X, Y = data
    model = OneVsRestClassifier(LogisticRegression()).fit(X, Y)
    np.testing.assert_array_equal(label_scores(model, X), model.decision_function(X))
    nearest = OneVsRestClassifier(KNeighborsClassifier()).fit(X, Y)
    np.testing.assert_array_equal(label_scores(nearest, X), nearest.predict_proba(X))


def test_a_label_that_is_constant_in_training_has_a_certain_score(data):
    X, Y = data
    Y = Y[:20].copy()
    Y[:, 0], Y[:, 1] = 0, 1
    for model in (KNeighborsClassifier(3), DummyClassifier()):
        scores = label_scores(model.fit(X[:20], Y), X)
        assert scores.shape == (80, 4)
        assert (scores[:, 0] == 0).all() and (scores[:, 1] == 1).all()


def test_one_label_has_one_column(data):
    X, Y = data
    model = LogisticRegression().fit(X, Y[:, 0])
    assert label_scores(model, X).shape == (80, 1)
    expected = measure("category_auc", Y[:, :1], model.decision_function(X)[:, None]).value
    assert scorer("category_auc")(model, X, Y[:, :1]) == expected


@pytest.mark.parametrize("name", ["image_auc", "neg_coverage", "micro_recall@2"])
def test_labels_never_judged(name, data):
    X, Y = data
    Y = np.where(np.random.default_rng(1).random(Y.shape) < 0.3, np.nan, Y)
    scores = cross_val_score(Similar(), X, Y, scoring=scorer(name), cv=KFold(3))
    assert np.isfinite(scores).all()
    search = GridSearchCV(Similar(), {"width": [0.3, 3.0]}, scoring=scorer(name), cv=KFold(3)).fit(X, Y)
    assert search.best_score_ == search.cv_results_["mean_test_score"].max()
    model = Similar().fit(X, Y)
    value = measure(name.removeprefix("neg_"), Y, model.predict_proba(X)).value
    assert abs(scorer(name)(model, X, Y)) == value


def test_tags_are_read_with_the_labels_of_the_model(data):
    X, Y = data
    tags = [[f"label {j}" for j in np.flatnonzero(row)] for row in Y]
    model = Similar().fit(X, tags)
    few = [i for i, row in enumerate(Y) if row[0] == 0]  # the first label is not among these
    assert scorer("image_auc")(model, X[few], [tags[i] for i in few]) == scorer("image_auc")(model, X[few], Y[few])


def test_kernel_classifier(data):
    X, Y = data
    scores = cross_val_score(kw.MKLClassifier(weights="average"), X, Y, scoring=scorer("image_ap"), cv=KFold(2))
    assert scores.shape == (2,) and (scores > 0.5).all()


def test_scorers_are_compared_printed_and_pickled_by_name():
    neg = scorer("neg_one_error")
    assert repr(neg) == "scorer('neg_one_error')"
    assert pickle.loads(pickle.dumps(neg)) == neg == scorer("neg_one_error") != scorer("lrap")


def test_bad_choices_are_named(data):
    X, Y = data
    with pytest.raises(ValueError, match="no scorer 'coverage': use 'neg_coverage'"):
        scorer("coverage")
    with pytest.raises(ValueError, match="no scorer 'neg_lrap': use 'lrap'"):
        scorer("neg_lrap")
    with pytest.raises(ValueError, match="no measure 'accuracy'"):
        scorer("accuracy")
    with pytest.raises(TypeError, match="LinearRegression has neither decision_function nor predict_proba"):
        scorer("lrap")(LinearRegression().fit(X, Y), X, Y)
    three = KNeighborsClassifier(3).fit(X, np.column_stack([Y[:, 0], Y[:, 1] + Y[:, 2]]))
    with pytest.raises(ValueError, match=r"for label 1 with the classes \[0, 1, 2\].*at most two"):
        scorer("lrap")(three, X, Y[:, :2])
