"""ML-kNN and shared-subspace least squares against plain loops, direct formulas and scikit-learn."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse import csr_array
from sklearn.datasets import make_multilabel_classification
from sklearn.exceptions import DataConversionWarning
from sklearn.linear_model import Ridge
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from kernelweave.baselines import MLLS, MLkNN, shared_subspace

ESTIMATORS = [MLkNN(), MLLS()]
each_estimator = pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)


@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def data(n: int = 60, missing: float = 0.0, seed: int = 0) -> tuple[NDArray, NDArray]:
    """Features (n, 8) and a label matrix (n, 5), with NaN in a share `missing` of it."""
    X, Y = make_multilabel_classification(n, 8, n_classes=5, n_labels=2, random_state=seed)
    rng = np.random.default_rng(seed)
    Y = np.where(rng.random(Y.shape) < missing, np.nan, Y)
    return X + rng.random(X.shape), Y  # no ties between distances


# --- targets, for both -----------------------------------------------------------------------------------------------


@each_estimator
def test_all_ways_to_write_labels_agree(estimator):
    X, Y = data()
    names = ["a", "b", "c", "d", "e"]
    expected = estimator.fit(X, Y).decision_function(X)
    tags = [{name for name, given in zip(names, row, strict=True) if given} for row in Y]
    for written in (2 * Y - 1, Y > 0, csr_array(Y), Y.astype(int).tolist(), pd.DataFrame(Y, columns=names), tags):
        np.testing.assert_array_equal(estimator.fit(X, written).decision_function(X), expected)
    assert estimator.classes_.tolist() == names
    assert estimator.fit(X, Y).classes_.tolist() == [0, 1, 2, 3, 4]


@each_estimator
def test_masked_entries_and_nan_are_the_same(estimator):
    X, Y = data(missing=0.3)
    masked = np.ma.masked_array(np.nan_to_num(Y), np.isnan(Y))
    expected = estimator.fit(X, Y).decision_function(X)
    np.testing.assert_array_equal(estimator.fit(X, masked).decision_function(X), expected)


@each_estimator
def test_score_takes_what_fit_takes(estimator):
    X, Y = data(80, missing=0.3)
    Y[3] = np.nan
    right = (estimator.fit(X, Y).predict(X) == Y) | np.isnan(Y)
    assert estimator.score(X, Y) == pytest.approx(right.all(axis=1)[~np.isnan(Y).all(axis=1)].mean())
    names = ["a", "b", "c", "d", "e"]
    tags = [{name for name, given in zip(names, row, strict=True) if given == 1} for row in Y]
    complete = np.array([[name in row for name in names] for row in tags])
    assert estimator.fit(X, tags).score(X, tags) == (estimator.predict(X) == complete).all(axis=1).mean()


@each_estimator
def test_predictions_of_a_label_matrix(estimator):
    X, Y = data(300, missing=0.2)
    estimator.fit(X, Y)
    scores, predicted = estimator.decision_function(X), estimator.predict(X)
    assert estimator.multilabel_
    np.testing.assert_array_equal(predicted, (scores > 0).astype(int))
    known, majority = ~np.isnan(Y), np.broadcast_to(np.nanmean(Y, axis=0) > 0.5, Y.shape)
    assert np.mean(predicted[known] == Y[known]) > np.mean(majority[known] == Y[known]) + 0.05


@each_estimator
def test_order_of_labels_does_not_matter(estimator):
    X, Y = data(missing=0.2)
    order = [3, 0, 4, 2, 1]
    expected = estimator.fit(X, Y).decision_function(X)[:, order]
    np.testing.assert_allclose(estimator.fit(X, Y[:, order]).decision_function(X), expected, atol=1e-10)


@each_estimator
def test_one_label_as_tags_has_one_column(estimator):
    X, Y = data()
    one = estimator.fit(X, [["it"] if y > 0 else [] for y in Y[:, 0]])
    assert one.decision_function(X).shape == one.predict(X).shape == (60, 1)
    scores = one.decision_function(X)[:, 0]
    classes = estimator.fit(X, np.where(Y[:, 0] > 0, "yes", "no"))
    np.testing.assert_allclose(classes.decision_function(X), scores, atol=1e-12)
    assert classes.predict(X).tolist() == np.where(scores > 0, "yes", "no").tolist()


@each_estimator
def test_a_column_of_classes_is_a_vector(estimator):
    X, Y = data()
    y = Y[:, :2].sum(axis=1).astype(int)
    assert set(y) == {0, 1, 2}
    expected = estimator.fit(X, y).predict(X)
    with pytest.warns(DataConversionWarning, match="column-vector"):
        estimator.fit(X, y[:, None])
    assert estimator.predict(X).tolist() == expected.tolist()


@each_estimator
def test_several_classes_are_one_label_each(estimator):
    X, Y = data(90)
    y = np.array(["x", "y", "z"])[Y[:, :2].sum(axis=1).astype(int)]
    by_class = estimator.fit(X, y).decision_function(X)
    assert estimator.predict(X).tolist() == estimator.classes_[by_class.argmax(axis=1)].tolist()
    by_label = estimator.fit(X, (y[:, None] == ["x", "y", "z"]).astype(int)).decision_function(X)
    np.testing.assert_allclose(by_class, by_label, atol=1e-12)


@each_estimator
def test_refuses_what_it_cannot_learn_from(estimator):
    X, Y = data()
    with pytest.raises(ValueError, match="only one class: 3"):
        estimator.fit(X, np.full(60, 3))
    with pytest.raises(ValueError, match="requires y to be passed"):
        estimator.fit(X, None)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        estimator.fit(X, Y[:50])
    with pytest.raises(ValueError, match="mixes 0 and -1"):
        estimator.fit(X, np.where(np.arange(5) < 2, Y, 2 * Y - 1))


# --- ML-kNN ----------------------------------------------------------------------------------------------------------


def naive_posteriors(X: NDArray, Y: NDArray, new: NDArray, k: int, s: float) -> NDArray:
    """Posteriors as they are defined, one pair of sample and label after the other."""

    def carrying(x: NDArray, label: int, left_out: int | None = None) -> int:
        others = [i for i in range(len(X)) if i != left_out]
        nearest = sorted(others, key=lambda i: float(np.linalg.norm(X[i] - x)))[:k]
        return sum(Y[i, label] == 1 for i in nearest)

    posteriors = np.zeros((len(new), Y.shape[1]))
    for label in range(Y.shape[1]):
        seen = {side: [0] * (k + 1) for side in (0, 1)}
        for i in range(len(X)):
            if not np.isnan(Y[i, label]):
                seen[int(Y[i, label])][carrying(X[i], label, left_out=i)] += 1
        n_of, n_against = sum(seen[1]), sum(seen[0])
        prior = (s + n_of) / (2 * s + n_of + n_against)
        for row, x in enumerate(new):
            j = carrying(x, label)
            of = prior * (s + seen[1][j]) / (s * (k + 1) + n_of)
            against = (1 - prior) * (s + seen[0][j]) / (s * (k + 1) + n_against)
            posteriors[row, label] = of / (of + against)
    return posteriors


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize(("k", "s"), [(1, 1.0), (5, 0.5), (12, 3.0)])
def test_posteriors_are_those_of_the_definition(missing, k, s):
    X, Y = data(40, missing)
    new = data(15, seed=1)[0]
    model = MLkNN(n_neighbors=k, smoothing=s).fit(X, Y)
    np.testing.assert_allclose(model.predict_proba(new), naive_posteriors(X, Y, new, k, s), rtol=1e-12)
    odds = model.predict_proba(new) / (1 - model.predict_proba(new))
    np.testing.assert_allclose(model.decision_function(new), np.log(odds), atol=1e-12)


def test_a_label_never_judged_is_reported_and_stays_open():
    X, Y = data()
    Y[:, 2] = np.nan
    with pytest.warns(UserWarning, match=r"1 label\(s\) were never judged.*: 2\."):
        model = MLkNN().fit(X, Y)
    assert model.prior_[2] == 0.5
    np.testing.assert_array_equal(model.predict_proba(X)[:, 2], 0.5)
    assert np.all(model.predict(X)[:, 2] == 0)


def test_rows_without_a_judgement_are_neighbours_only():
    X, Y = data()
    Y[:7] = np.nan
    model = MLkNN(n_neighbors=4).fit(X, Y)
    np.testing.assert_allclose(model.prior_, (1 + np.nansum(Y, axis=0)) / (2 + 53))
    np.testing.assert_allclose(model.predict_proba(X[:5]), naive_posteriors(X, Y, X[:5], 4, 1.0), rtol=1e-12)


def test_samples_are_not_their_own_neighbours_even_when_duplicated():
    X = np.repeat(np.arange(3.0), 2)[:, None]
    Y = np.array([[1], [0], [1], [0], [1], [0]])
    model = MLkNN(n_neighbors=1, smoothing=1.0).fit(X, Y)
    # The one neighbour is the other copy: of a sample with the label it never has it, of one without it always does.
    np.testing.assert_allclose(np.exp(model.log_odds_), [[4.0, 0.25]])


def test_distances_may_be_given():
    X, Y = data()
    new = data(20, seed=1)[0]
    expected = MLkNN().fit(X, Y).decision_function(new)
    D, D_new = (np.linalg.norm(A[:, None] - X[None], axis=2) for A in (X, new))
    model = MLkNN(metric="precomputed").fit(D, Y)
    np.testing.assert_array_equal(model.decision_function(D_new), expected)
    accuracy = cross_val_score(MLkNN(metric="precomputed"), D, Y[:, 0].astype(int), cv=3)
    np.testing.assert_allclose(accuracy, cross_val_score(MLkNN(), X, Y[:, 0].astype(int), cv=3))


def test_kernel_distances_with_rounding_are_distances():
    X, Y = data()
    squared = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    K = np.exp(-squared / squared.mean()).astype(np.float32)
    D = 2 - 2 * K
    D[0, 0] = -1e-6
    np.testing.assert_array_equal(
        MLkNN(metric="precomputed").fit(D, Y).decision_function(D), MLkNN().fit(X, Y).decision_function(X)
    )
    with pytest.raises(ValueError, match=r"must not be negative, got -1.*give 2 - 2 \* K"):
        MLkNN(metric="precomputed").fit(-K, Y)
    with pytest.raises(ValueError, match="square matrix"):
        MLkNN(metric="precomputed").fit(D[:, :50], Y)


def test_sparse_features():
    X, Y = data()
    X = np.where(X < 3, 0.0, X)
    expected = MLkNN().fit(X, Y).decision_function(X)
    np.testing.assert_allclose(MLkNN().fit(csr_array(X), Y).decision_function(csr_array(X)), expected)


def test_few_samples_are_all_neighbours():
    X, Y = data(6)
    model = MLkNN(n_neighbors=10).fit(X, Y)
    assert model.n_neighbors_ == 5
    np.testing.assert_allclose(model.predict_proba(X), naive_posteriors(X, Y, X, 5, 1.0), rtol=1e-12)


def test_probabilities_of_classes_sum_to_one():
    X, Y = data(90)
    for y in (Y[:, 0], Y[:, :2].sum(axis=1)):
        model = MLkNN().fit(X, y.astype(int))
        p = model.predict_proba(X)
        assert p.shape == (90, len(model.classes_))
        np.testing.assert_allclose(p.sum(axis=1), 1.0)
        np.testing.assert_array_equal(model.classes_[p.argmax(axis=1)], model.predict(X))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"n_neighbors": 0}, "n_neighbors must be a whole number, at least 1, got 0"),
        ({"n_neighbors": 2.5}, "n_neighbors must be a whole number, at least 1, got 2.5"),
        ({"smoothing": 0.0}, "smoothing must be positive and finite, got 0.0"),
        ({"smoothing": np.nan}, "smoothing must be positive and finite, got nan"),
    ],
)
def test_ml_knn_refuses_settings_without_meaning(setting, message):
    with pytest.raises(ValueError, match=message):
        MLkNN(**setting).fit(*data())


# --- shared-subspace least squares -----------------------------------------------------------------------------------


def direct(X: NDArray, Y: NDArray, r: int, alpha: float, beta: float) -> tuple[NDArray, NDArray]:
    """The closed form as it is printed, with d x d inverses and a generalised eigenproblem."""
    n, d = X.shape
    M = X.T @ X / n + (alpha + beta) * np.eye(d)
    inverse = np.linalg.inv(M)
    S1 = np.eye(d) - alpha * inverse
    S2 = inverse @ X.T @ Y @ Y.T @ X @ inverse
    T, _ = np.linalg.qr(eigh(S2, S1)[1][:, ::-1][:, :r])
    return np.linalg.solve(M - alpha * T @ T.T, X.T @ Y / n), T


def objective(X: NDArray, Y: NDArray, U: NDArray, T: NDArray, alpha: float, beta: float) -> float:
    outside = U - T @ (T.T @ U)
    return ((X @ U - Y) ** 2).sum() / len(X) + alpha * (outside**2).sum() + beta * (U**2).sum()


def regression(n: int, d: int, seed: int = 0) -> tuple[NDArray, NDArray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, np.sign(X @ rng.standard_normal((d, 6)) + rng.standard_normal((n, 6)))


@pytest.mark.parametrize("shape", [(50, 9), (20, 30), (8, 8)])
@pytest.mark.parametrize(("r", "alpha", "beta"), [(1, 1.0, 0.1), (3, 0.2, 1e-3), (4, 50.0, 0.5), (2, 1e4, 0.02)])
def test_agrees_with_the_generalised_eigenproblem(shape, r, alpha, beta):
    X, Y = regression(*shape)
    U, T = shared_subspace(X, Y, r, alpha, beta)
    expected, basis = direct(X, Y, r, alpha, beta)
    np.testing.assert_allclose(U, expected, atol=1e-8 * np.abs(expected).max())
    np.testing.assert_allclose(T.T @ T, np.eye(r), atol=1e-10)
    np.testing.assert_allclose(T @ T.T, basis @ basis.T, atol=1e-7)


def test_no_other_subspace_does_better():
    """Alternating minimisation from random subspaces ends at or above the closed form."""
    X, Y = regression(40, 7)
    n, alpha, beta = 40, 2.0, 0.05
    U, T = shared_subspace(X, Y, 2, alpha, beta)
    best = objective(X, Y, U, T, alpha, beta)
    ends = []
    for seed in range(5):
        T = np.linalg.qr(np.random.default_rng(seed).standard_normal((7, 2)))[0]
        for _ in range(300):
            M = X.T @ X / n + (alpha + beta) * np.eye(7) - alpha * T @ T.T
            U = np.linalg.solve(M, X.T @ Y / n)
            T = np.linalg.svd(U)[0][:, :2]
        ends.append(objective(X, Y, U, T, alpha, beta))
    assert min(ends) == pytest.approx(best, rel=1e-6)
    assert min(ends) >= best * (1 - 1e-12)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("settings", [{"alpha": 0.0, "n_components": 2}, {"alpha": 3.0, "n_components": 5}])
def test_without_sharing_it_is_ridge_regression(settings, fit_intercept):
    X, Y = data()
    model = MLLS(beta=0.3, fit_intercept=fit_intercept, **settings).fit(X, Y)
    ridge = Ridge(alpha=0.3 * len(X), fit_intercept=fit_intercept).fit(X, 2 * Y - 1)
    np.testing.assert_allclose(model.coef_, ridge.coef_, atol=1e-10)
    np.testing.assert_allclose(model.intercept_, np.broadcast_to(ridge.intercept_, 5), atol=1e-9)
    np.testing.assert_allclose(model.decision_function(X), ridge.predict(X), atol=1e-9)


def test_costly_deviations_make_it_reduced_rank_ridge_regression():
    X, Y = regression(50, 9)
    beta, r = 0.1, 2
    ridge = np.linalg.solve(X.T @ X / 50 + beta * np.eye(9), X.T @ Y / 50)
    # Least squares in the stacked rows of X / sqrt(n) and sqrt(beta) I: the leading directions of its fitted values.
    fitted = np.vstack([X / np.sqrt(50), np.sqrt(beta) * np.eye(9)]) @ ridge
    leading = np.linalg.svd(fitted)[2][:r].T
    U, _ = shared_subspace(X, Y, r, 1e9, beta)
    np.testing.assert_allclose(U, ridge @ leading @ leading.T, atol=1e-7)


def test_more_features_than_samples():
    X, Y = regression(15, 200)
    model = MLLS(n_components=2, beta=0.1).fit(X, (Y + 1) / 2)
    assert model.coef_.shape == (6, 200) and model.components_.shape == (2, 200)
    centred = X - X.mean(axis=0)
    expected, _ = direct(centred, Y - Y.mean(axis=0), 2, 1.0, 0.1)
    np.testing.assert_allclose(model.coef_, expected.T, atol=1e-9)


def test_default_ridge_does_not_depend_on_the_unit_of_the_features():
    X, Y = data()
    scores = MLLS(alpha=0.0).fit(X, Y).decision_function(X)
    np.testing.assert_allclose(
        MLLS(alpha=0.0).fit(1000 * X, Y).decision_function(1000 * X), scores, rtol=1e-9, atol=1e-9
    )
    by_hand = MLLS(alpha=0.0, beta=0.01 * np.mean(np.sum((X - X.mean(axis=0)) ** 2, axis=1))).fit(X, Y)
    np.testing.assert_allclose(by_hand.decision_function(X), scores)


def test_default_subspace_has_four_fifths_of_the_dimensions_of_the_labels():
    X, Y = data()
    assert MLLS().fit(X, Y).components_.shape == (4, 8)
    assert MLLS().fit(X, Y[:, 0].astype(int)).components_.shape == (1, 8)


def test_an_intercept_takes_up_any_shift_of_the_features():
    X, Y = data(missing=0.2)
    expected = MLLS().fit(X, Y).decision_function(X)
    np.testing.assert_allclose(MLLS().fit(X + 100.0, Y).decision_function(X + 100.0), expected, atol=1e-8)


def test_what_was_never_judged_has_the_mean_as_target():
    X, Y = data(missing=0.3)
    signs = 2 * Y - 1
    filled = np.where(np.isnan(signs), np.nanmean(signs, axis=0), signs)
    model = MLLS(n_components=2, beta=0.1).fit(X, Y)
    U, _ = shared_subspace(X - X.mean(axis=0), filled - filled.mean(axis=0), 2, 1.0, 0.1)
    np.testing.assert_allclose(model.coef_, U.T, atol=1e-12)
    np.testing.assert_allclose(model.decision_function(X).mean(axis=0), np.nanmean(signs, axis=0), atol=1e-12)


def test_a_label_never_judged_scores_zero():
    X, Y = data()
    Y[:, 1] = np.nan
    with pytest.warns(UserWarning, match="never judged"):
        model = MLLS().fit(X, Y)
    np.testing.assert_array_equal(model.decision_function(X)[:, 1], 0.0)


def test_features_that_never_change():
    X, Y = data()
    model = MLLS(beta=0.0).fit(np.full_like(X, 3.0), Y)
    np.testing.assert_array_equal(model.coef_, 0.0)
    np.testing.assert_allclose(model.intercept_, (2 * Y - 1).mean(axis=0))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"n_components": 0}, "n_components must be a whole number, at least 1, got 0"),
        ({"alpha": -1.0}, "alpha must be a finite number that is not negative, got -1.0"),
        ({"beta": np.inf}, "beta must be a finite number that is not negative, got inf"),
    ],
)
def test_least_squares_refuses_settings_without_meaning(setting, message):
    with pytest.raises(ValueError, match=message):
        MLLS(**setting).fit(*data())
