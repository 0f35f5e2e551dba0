"""The estimators: one distance in all its forms, agreement with each other, and bad input."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import kernelweave as kw
from kernelweave.datasets import make_privileged
from kernelweave.metric import EuclideanMetric, PairSet, WhitenedMetric

LEARNERS = [kw.ITML(), kw.ITMLPlus(), kw.PartialITMLPlus(), kw.ITMLS()]
ALL = [*LEARNERS, EuclideanMetric(), WhitenedMetric()]
each = pytest.mark.parametrize("estimator", ALL, ids=lambda e: type(e).__name__)
each_learner = pytest.mark.parametrize("estimator", LEARNERS, ids=lambda e: type(e).__name__)
each_privileged = pytest.mark.parametrize("estimator", LEARNERS[1:], ids=lambda e: type(e).__name__)


@pytest.mark.filterwarnings("ignore:no privileged features")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(ALL)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def identities(n: int = 8, seed: int = 0):
    """X, Z, y and 60 pairs: few enough for ITML+ to be feasible."""
    X, Z, y = make_privileged(n_identities=n, n_shots=6, random_state=seed)
    return X, Z, y, PairSet.from_classes(y, max_positives=30, random_state=seed)


def fitted(estimator, **settings):
    X, Z, _, pairs = identities()
    return clone(estimator).set_params(**settings).fit_pairs(pairs, X, Z)


# --- one distance in all its forms ------------------------------------------------------------------------------------


@each
def test_every_form_of_the_distance_agrees(estimator):
    model, (X, *_) = fitted(estimator), identities()
    A, B = X[:10], X[10:20]
    squared = np.einsum("kd,de,ke->k", A - B, model.metric_, A - B)
    np.testing.assert_allclose(model.pair_distance(A, B) ** 2, squared, rtol=1e-9)
    np.testing.assert_allclose(model.score_pairs(A, B), -squared, rtol=1e-9)
    np.testing.assert_allclose(np.sum((model.transform(A) - model.transform(B)) ** 2, axis=1), squared, rtol=1e-9)
    np.testing.assert_allclose(model.transform(A), A @ model.components_.T, rtol=1e-9, atol=1e-12)
    metric = pickle.loads(pickle.dumps(model.get_metric()))
    np.testing.assert_allclose([metric(a, b) ** 2 for a, b in zip(A, B, strict=True)], squared, rtol=1e-9)
    assert model.get_feature_names_out().shape == (model.transform(A).shape[1],)


@each
def test_neighbours_take_the_metric_and_the_transformed_samples(estimator):
    model, (X, _, y, _) = fitted(estimator), identities()
    by_metric = KNeighborsClassifier(3, metric=model.get_metric(), algorithm="brute").fit(X[::2], y[::2])
    by_map = KNeighborsClassifier(3, algorithm="brute").fit(model.transform(X[::2]), y[::2])
    np.testing.assert_array_equal(by_metric.predict(X[1::2]), by_map.predict(model.transform(X[1::2])))


@each
def test_a_fitted_model_survives_a_file(estimator):
    model, (X, *_) = fitted(estimator), identities()
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).transform(X), model.transform(X))


@each
def test_pairs_of_unequal_number_and_unfitted_models(estimator):
    X, *_ = identities()
    with pytest.raises(ValueError, match="one row a pair"):
        fitted(estimator).pair_distance(X[:3], X[:4])
    for use in (lambda e: e.transform(X), lambda e: e.get_metric(), lambda e: e.metric_):
        with pytest.raises(NotFittedError):
            use(clone(estimator))


@each_learner
def test_seeds_decide_and_labels_make_pairs(estimator):
    X, Z, y, _ = identities()
    estimator = clone(estimator).set_params(max_positives=30, random_state=3)
    one, same = (clone(estimator).fit(X, y, Z=Z) for _ in range(2))
    np.testing.assert_array_equal(one.metric_, same.metric_)
    assert one.pairs_.n_similar == one.pairs_.n_dissimilar
    np.testing.assert_array_equal(np.where(y[one.pairs_.first] == y[one.pairs_.second], 1, -1), one.pairs_.similar)


def test_frames_and_output_frames():
    X, _, y, _ = identities()
    frame = pd.DataFrame(X, columns=[f"f{i}" for i in range(X.shape[1])])
    model = kw.ITML(random_state=0).set_output(transform="pandas").fit(frame, y)
    assert model.feature_names_in_[0] == "f0"
    assert list(model.transform(frame).columns)[:2] == ["itml0", "itml1"]


def test_a_pipeline_in_a_grid_search_on_real_data():
    X, y = load_wine(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), kw.ITML(max_positives=500, random_state=0), KNeighborsClassifier())
    search = GridSearchCV(pipeline, {"itml__gamma": [0.1, 1.0]}, cv=3).fit(X, y)
    assert search.best_score_ > 0.95
    assert search.best_score_ > cross_val_score(KNeighborsClassifier(), X, y, cv=3).mean() + 0.2


def test_privileged_features_go_through_pipelines_and_searches():
    X, Z, y, _ = identities()
    model = kw.ITMLPlus(max_positives=30, random_state=0)
    expected = clone(model).fit(X, y, Z=Z).transform(X)
    np.testing.assert_array_equal(clone(model).fit_transform(X, y, Z=Z), expected)
    pipeline = make_pipeline(model, KNeighborsClassifier(1))
    np.testing.assert_array_equal(pipeline.fit(X, y, itmlplus__Z=Z)[:-1].transform(X), expected)
    search = GridSearchCV(pipeline, {"itmlplus__gamma": [0.1, 1.0]}, cv=3, error_score="raise")
    assert 0 < search.fit(X, y, itmlplus__Z=Z).best_score_ <= 1


# --- certificates -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "estimator",
    [kw.ITML(), kw.ITMLPlus(), kw.ITMLPlus(slack=0.1), kw.PartialITMLPlus(slack=0.1), kw.ITMLS()],
    ids=lambda e: type(e).__name__,
)
def test_the_certificate_is_what_was_asked_for(estimator):
    for tol in (1e-2, 1e-5):
        model = fitted(estimator, tol=tol, max_sweeps=2000)
        assert model.converged_ and model.feasible_
        assert model.gap_ <= tol
        assert model.gap_ == pytest.approx(
            abs(model.objective_ - model.dual_objective_) / max(model.objective_, model.dual_objective_)
        )
        assert model.n_sweeps_ == len(model.history_) == model.history_["sweep"][-1]
        assert (np.diff(model.history_["dual_objective"]) >= -1e-9).all()
        assert model.multipliers_.shape == (len(model.pairs_),) and (model.multipliers_ >= 0).all()


def test_stationarity_in_the_features_as_they_came():
    X, Z, _, pairs = identities()
    model = kw.ITMLPlus(prior="covariance", tol=1e-4, random_state=0).fit_pairs(pairs, X, Z)
    dx, dz = pairs.differences(X), pairs.differences(Z)
    inverse = np.cov(X, rowvar=False) + (dx.T * (pairs.similar * model.multipliers_)) @ dx
    np.testing.assert_allclose(np.linalg.inv(model.metric_), inverse, atol=1e-8 * np.abs(inverse).max())
    L = model.privileged_distance_.embed(np.eye(Z.shape[1]))
    inverse = np.eye(Z.shape[1]) - (dz.T * model.privileged_multipliers_) @ dz
    np.testing.assert_allclose(np.linalg.inv(L @ L.T), inverse, atol=1e-8 * np.abs(inverse).max())


def test_a_fit_that_stops_short_says_what_to_do():
    with pytest.warns(ConvergenceWarning, match="Raise max_sweeps or tol, or lower gamma"):
        model = fitted(kw.ITML(), gamma=10.0, max_sweeps=2, tol=1e-6)
    assert not model.converged_ and model.feasible_ and model.gap_ > 1e-6


def test_an_infeasible_fit_says_what_to_do():
    X, Z, y, _ = identities(20)
    pairs = PairSet.from_classes(np.random.default_rng(0).permutation(y), random_state=0)  # no sense in these
    with pytest.warns(ConvergenceWarning, match=r"no distances satisfy all pairs.*slack=0.1"):
        model = kw.ITMLPlus(random_state=0).fit_pairs(pairs, X, Z)
    assert not model.feasible_ and not model.converged_ and model.violation_ > 0.1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert kw.ITMLPlus(slack=0.1, max_sweeps=2000, random_state=0).fit_pairs(pairs, X, Z).converged_


def test_the_published_rule_stops_after_ten_sweeps_or_at_a_small_change():
    X, Z, _, pairs = identities()
    early = kw.ITMLPlus(stopping="published", tol=1e-12, max_sweeps=1, random_state=0).fit_pairs(pairs, X, Z)
    assert 1 < early.n_sweeps_ <= 10
    assert early.converged_ == (early.history_["change"][-1] < 1e-3)
    soon = kw.ITML(gamma=0.01, stopping="published", random_state=0).fit_pairs(pairs, X)
    assert soon.converged_ and soon.n_sweeps_ < 10


def test_the_printed_algorithm_ends_feasible_and_no_better():
    X, Z, _, pairs = identities()
    best = kw.ITMLPlus(tol=1e-6, max_sweeps=5000, random_state=0).fit_pairs(pairs, X, Z)
    printed = kw.ITMLPlus(dual_correction=False, tol=1e-6, max_sweeps=5000, random_state=0).fit_pairs(pairs, X, Z)
    assert printed.converged_ and printed.violation_ < 1e-3
    assert printed.objective_ > best.objective_ * 1.001


def test_verbose_prints_a_line_a_sweep(capsys):
    model = fitted(kw.ITML(), verbose=1)
    assert capsys.readouterr().err.count("[kernelweave] sweep") == model.n_sweeps_


# --- agreement with each other ----------------------------------------------------------------------------------------


def test_partial_is_itml_without_and_itml_plus_with_all_privileged_pairs():
    X, Z, _, pairs = identities()
    settings = {"gamma": 0.5, "random_state": 0}
    partial = kw.PartialITMLPlus(**settings)
    none = partial.fit_pairs(pairs.with_privileged(0.0), X, Z).metric_
    np.testing.assert_array_equal(none, kw.ITML(**settings).fit_pairs(pairs, X).metric_)
    every = partial.fit_pairs(pairs.with_privileged(1.0), X, Z).metric_
    np.testing.assert_array_equal(every, kw.ITMLPlus(**settings).fit_pairs(pairs, X, Z).metric_)
    half = partial.fit_pairs(pairs.with_privileged(0.5), X, Z).metric_
    assert not np.allclose(half, none) and not np.allclose(half, every)


def test_unknown_rows_and_unmarked_pairs_are_the_same():
    X, Z, _, pairs = identities()
    holes = Z.copy()
    holes[::3, 0] = np.nan
    by_rows = kw.PartialITMLPlus(random_state=0).fit_pairs(pairs, X, holes)
    marked = by_rows.pairs_.privileged
    assert 0 < marked.sum() < len(pairs)
    assert not np.isnan(holes[pairs.first[marked]]).any() and not np.isnan(holes[pairs.second[marked]]).any()
    by_pairs = kw.PartialITMLPlus(random_state=0).fit_pairs(by_rows.pairs_, X, Z)
    np.testing.assert_allclose(by_rows.metric_, by_pairs.metric_, rtol=1e-6)


def test_itmls_leaves_out_the_pairs_that_look_wrong():
    X, Z, _, pairs = identities()
    model = kw.ITMLS(removed=0.2, random_state=0).fit_pairs(pairs, X, Z)
    distance = model.privileged_model_.pair_distance(Z[pairs.first], Z[pairs.second])
    kept = {pair for pair in zip(model.pairs_.first.tolist(), model.pairs_.second.tolist(), strict=True)}
    left_out = np.array([pair not in kept for pair in zip(pairs.first.tolist(), pairs.second.tolist(), strict=True)])
    for sign in (1, -1):
        members = pairs.similar == sign
        assert left_out[members].sum() == round(0.2 * members.sum())
        assert (sign * distance[members & left_out]).min() >= (sign * distance[members & ~left_out]).max()
    same = kw.ITMLS(removed=0.0, random_state=np.random.RandomState(0)).fit_pairs(pairs, X, Z)
    np.testing.assert_allclose(
        same.metric_, kw.ITML(random_state=0).fit_pairs(pairs, X).metric_, atol=0.1 * np.abs(same.metric_).max()
    )


def test_features_that_outnumber_samples_learn_in_the_span_of_the_samples():
    """Columns of zeros and a rotation make features outnumber samples, and change no distance."""
    X, Z, _, pairs = identities()
    rng = np.random.default_rng(0)
    wide = [np.linalg.qr(rng.standard_normal((90, F.shape[1])))[0].T for F in (X, Z)]
    narrow = kw.ITMLPlus(random_state=0).fit_pairs(pairs, X, Z)
    model = kw.ITMLPlus(random_state=0).fit_pairs(pairs, X @ wide[0], Z @ wide[1])
    assert model.distance_.basis.shape[1] <= len(X)
    np.testing.assert_allclose(
        model.pair_distance(X[:9] @ wide[0], X[9:18] @ wide[0]), narrow.pair_distance(X[:9], X[9:18]), rtol=1e-6
    )
    outside = rng.standard_normal((1, 90))
    outside -= outside @ wide[0].T @ wide[0]
    assert model.pair_distance(outside, np.zeros((1, 90)))[0] == pytest.approx(np.linalg.norm(outside))
    np.testing.assert_allclose(model.metric_, model.metric_.T, atol=1e-12)


def test_priors_are_what_a_fit_without_violations_ends_at():
    X, _, _, pairs = identities()
    easy = {"targets": (1.0, 2.0), "gamma": 1e-10}  # at such a price no pair pulls
    A = np.random.default_rng(0).standard_normal((X.shape[1], X.shape[1]))
    for prior, matrix in (("identity", np.eye(20)), ("covariance", np.linalg.inv(np.cov(X.T))), (A @ A.T, A @ A.T)):
        model = kw.ITML(prior=prior, **easy).fit_pairs(pairs, X)
        assert model.converged_
        np.testing.assert_allclose(model.metric_, matrix, atol=1e-6 * np.abs(matrix).max())


def test_wrong_labels_hurt_less_with_privileged_features():
    X, Z, y = make_privileged(n_identities=60, random_state=0)
    train, test = y < 20, y >= 20
    given = y[train].copy()
    rng = np.random.default_rng(0)
    wrong = rng.random(len(given)) < 0.3
    given[wrong] = rng.permutation(given[wrong])
    new = PairSet.from_classes(y[test], random_state=1)

    def area(model):
        return roc_auc_score(new.similar, model.score_pairs(X[test][new.first], X[test][new.second]))

    plain = area(kw.ITML(random_state=0).fit(X[train], given))
    plus = area(kw.ITMLPlus(stopping="published", random_state=0, lam=0.3).fit(X[train], given, Z=Z[train]))
    assert area(EuclideanMetric().fit(X)) + 0.05 < plain < plus - 0.02


# --- bad input --------------------------------------------------------------------------------------------------------


@each_learner
@pytest.mark.parametrize(("sign", "message"), [(1, "all 30 pairs are similar"), (-1, "all 30 pairs are dissimilar")])
def test_one_sided_pairs_are_pointed_out(estimator, sign, message):
    X, Z, _, pairs = identities()
    with pytest.warns(UserWarning, match=message):
        clone(estimator).fit_pairs(pairs.subset(pairs.similar == sign), X, Z)


@each_privileged
def test_missing_privileged_features_are_pointed_out(estimator):
    X, _, _, pairs = identities()
    with pytest.warns(
        UserWarning, match=f"no privileged features Z.*{type(estimator).__name__} learns what ITML would"
    ):
        model = clone(estimator).set_params(random_state=0).fit_pairs(pairs, X)
    np.testing.assert_array_equal(model.metric_, kw.ITML(random_state=0).fit_pairs(pairs, X).metric_)


def test_privileged_features_that_are_unknown_everywhere():
    X, Z, _, pairs = identities()
    nothing = np.full_like(Z, np.nan)
    with pytest.warns(UserWarning, match="a row of Z has a NaN"):
        kw.PartialITMLPlus().fit_pairs(pairs, X, nothing)
    with pytest.raises(ValueError, match=r"60 of 60 pairs have no privileged features.*PartialITMLPlus"):
        kw.ITMLPlus().fit_pairs(pairs, X, nothing)
    with pytest.raises(ValueError, match=r"60 of 60 pairs have a NaN in Z.*PartialITMLPlus"):
        kw.ITMLS().fit_pairs(pairs, X, nothing)


@each_privileged
def test_privileged_features_of_other_samples(estimator):
    X, Z, _, pairs = identities()
    with pytest.raises(ValueError, match=r"one row a sample, as X has: got 47 and 48"):
        clone(estimator).fit_pairs(pairs, X, Z[1:])
    with pytest.raises(ValueError, match="infinity"):
        clone(estimator).fit_pairs(pairs, X, np.where(Z > 0, np.inf, Z))


def test_views_on_different_scales_are_pointed_out():
    X, Z, _, pairs = identities()
    with pytest.warns(UserWarning, match="Scale both alike"):
        kw.ITMLPlus(slack=0.1).fit_pairs(pairs, X, 1000 * Z)


@each_learner
def test_pairs_of_copies_are_left_out(estimator):
    X, Z, _, pairs = identities()
    X = X.copy()
    X[pairs.second[0]] = X[pairs.first[0]]
    with pytest.warns(UserWarning, match="of 60 pairs are left out|of 54 pairs are left out"):
        model = clone(estimator).fit_pairs(pairs, X, Z)
    assert len(model.pairs_) < 60 and len(model.multipliers_) == len(model.pairs_)
    with pytest.raises(ValueError, match=r"same features: nothing to learn from|all samples in X are the same"):
        clone(estimator).fit_pairs(pairs, np.ones_like(X), Z)


@each_learner
def test_constant_and_repeated_columns_do_no_harm(estimator):
    X, Z, _, pairs = identities()
    more = np.hstack([X, np.full((len(X), 2), 7.0), X[:, :3]])
    model = clone(estimator).fit_pairs(pairs, more, np.hstack([Z, np.ones((len(Z), 1))]))
    assert model.converged_ and np.linalg.eigvalsh(model.metric_).min() > 0
    np.testing.assert_allclose(model.metric_[20:22], np.eye(25)[20:22], atol=1e-8)  # nothing was learned about them
    with pytest.raises(ValueError, match=r"span 20 of 25 features only.*PCA"):
        clone(estimator).set_params(prior="covariance").fit_pairs(pairs, more, Z)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gamma": 0.0}, "gamma must be positive"),
        ({"gamma": np.nan}, "gamma must be positive"),
        ({"lam": -1.0}, "lam must be positive"),
        ({"slack": -1.0}, "slack must be zero"),
        ({"slack_cost": 0.0}, "slack_cost must be positive"),
        ({"tol": 0.0}, "tol must be positive"),
        ({"max_sweeps": 0}, "max_sweeps must be at least 1"),
        ({"stopping": "soon"}, "'gap' or 'published'"),
        ({"targets": (3.0, 1.0)}, "0 < similar <= dissimilar"),
        ({"percentiles": (97, 3)}, "0 <= similar <= dissimilar"),
        ({"prior": "none"}, "prior must be 'identity', 'covariance' or a matrix"),
        ({"prior": np.eye(3)}, r"symmetric matrix of shape \(20, 20\)"),
        ({"prior": -np.eye(20)}, "prior must be positive definite"),
        ({"privileged_prior": "none"}, "privileged_prior must be"),
    ],
)
def test_settings_that_make_no_sense(settings, message):
    with pytest.raises(ValueError, match=message):
        fitted(kw.ITMLPlus(), **settings)


def test_other_things_that_make_no_sense():
    X, Z, y, pairs = identities()
    with pytest.raises(ValueError, match="removed must be a share"):
        kw.ITMLS(removed=1.0).fit(X, y, Z=Z)
    with pytest.raises(TypeError, match="pairs must be a PairSet"):
        kw.ITML().fit_pairs([(0, 1)], X)
    with pytest.raises(ValueError, match="but X has 10 rows"):
        kw.ITML().fit_pairs(pairs, X[:10])
    with pytest.raises(ValueError, match="no pairs to learn from"):
        kw.ITML().fit_pairs(pairs.subset([]), X)
    with pytest.raises(ValueError, match="call fit_pairs"):
        kw.ITML().fit(X)
    with pytest.raises(ValueError, match="n_components must be at least 1"):
        WhitenedMetric(0).fit(X)
    with pytest.raises(ValueError, match="nothing to whiten"):
        WhitenedMetric().fit(np.ones((4, 2)))
