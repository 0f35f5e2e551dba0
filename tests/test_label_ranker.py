"""LabelRanker as users meet it: what a fit gives, forms of X and Y, labels never judged."""

from __future__ import annotations

import pickle
import warnings

import cvxpy as cp
import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.sparse import csr_array, csr_matrix
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

import kernelweave as kw
from kernelweave.evaluation import MultilabelStratifiedKFold, auc, scorer
from kernelweave.kernels import FromFunction, Gaussian, Linear
from kernelweave.labels import as_labels
from kernelweave.machines import MLRGL, MLRL1, MLRPairwise

LOSSES = ["pairwise", "group"]
#: Kernels that do not depend on which samples are there. Fits to a gap of 1e-8 have scores within 1e-3 of the optimum:
#: the primal is strongly convex in the scores, so their error is at most the root of twice the gap.
FIXED = kw.KernelBank([Gaussian(gamma=0.02), Gaussian(gamma=0.1)], dtype="float64")
LINEAR = kw.KernelBank(Linear(), dtype="float64")


@parametrize_with_checks([kw.LabelRanker(loss) for loss in LOSSES])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def tagged():
    views, Y = kw.datasets.make_tagged_views(n_samples=120, n_labels=6, n_tags=2.0, random_state=0)
    assert np.all((Y.sum(axis=1) > 0) & (Y.sum(axis=1) < 6))
    return views, Y


@pytest.fixture(scope="module")
def small():
    """Fewer samples, for fits to the last digit."""
    views, Y = kw.datasets.make_tagged_views(n_samples=60, n_labels=5, n_tags=1.8, n_noise=0, random_state=3)
    informative = np.flatnonzero(Y.sum(axis=1) < 5)[:50]
    return views[informative], Y[informative]


@pytest.fixture(scope="module")
def fitted(tagged):
    return kw.LabelRanker(random_state=0).fit(*tagged)


def exact(loss="pairwise", **settings):
    return kw.LabelRanker(loss, **{"kernels": FIXED, "tol": 1e-8, "random_state": 0} | settings)


def signs_of(Y):
    return as_labels(Y).signs.astype(float)


def silently(function, *args):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return function(*args)


# --- what a fit gives ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loss", "weights"),
    [("pairwise", name) for name in ("l1", "l2", "l4", "linf", "average", "sum", "best", "alignment", "entropy")]
    + [("group", name) for name in ("l1", "l2", "average", "best")],
)
def test_every_named_weight_set_learns(tagged, loss, weights):
    views, Y = tagged
    ranker = kw.LabelRanker(loss, weights=weights, random_state=0).fit(views[:80], Y[:80])
    assert 0 <= ranker.gap_ <= 1e-3
    assert ranker.converged_
    assert ranker.weights_.shape == (len(ranker.kernel_names_),) == (9,)
    assert np.all(ranker.weights_ >= 0)
    assert ranker.history_["upper"][-1] == ranker.objective_
    assert ranker.n_uninformative_ == 0
    assert ranker.score(views[80:], Y[80:]) > (0.75 if weights == "best" else 0.85)


@pytest.mark.parametrize(
    ("loss", "weights", "solver"),
    [("pairwise", "l1", name) for name in ("cutting-plane", "level", "reduced-gradient", "projected-gradient")]
    + [("pairwise", "l2", name) for name in ("cutting-plane", "level", "projected-gradient", "alternating")]
    + [("group", "l1", name) for name in ("cutting-plane", "level", "mirror-descent", "alternating")],
)
def test_solvers_agree(small, loss, weights, solver):
    reference = exact(loss, weights=weights, solver="newton").fit(*small)
    ranker = exact(loss, weights=weights, solver=solver, tol=1e-3).fit(*small)
    assert ranker.gap_ <= 1e-3
    assert (1 - 1e-8) * reference.objective_ <= ranker.objective_ <= reference.objective_ * (1 + 1e-3)


@pytest.mark.parametrize(("loss", "machine"), [("pairwise", MLRL1(0.5, ridge=1.0, box="wide")), ("group", MLRGL(0.5))])
def test_one_kernel_is_the_machine_alone(small, loss, machine):
    views, Y = small
    kernel = kw.KernelBank({"useful0": Gaussian(gamma=0.1)}, dtype="float64")
    ranker = exact(loss, kernels=kernel, C=0.5).fit(views, Y)
    K = rbf_kernel(views["useful0"], gamma=0.1)
    alone = machine.solve(K, signs_of(Y), accuracy=1e-8)
    assert ranker.weights_.tolist() == [1.0]
    assert ranker.objective_ == pytest.approx(alone.primal, rel=1e-7)
    np.testing.assert_allclose(ranker.decision_function(views), K @ alone.coef, atol=1e-3)


@pytest.mark.parametrize("machine", [MLRL1(0.5, ridge=1.0), MLRL1(0.5, box="wide"), MLRPairwise(0.5), MLRGL(0.5)])
def test_average_is_the_given_machine_on_the_mean_kernel(small, machine):
    views, Y = small
    ranker = exact(weights="average", machine=machine).fit(views, Y)
    K = FIXED.build(views).combine(np.full(4, 0.25))
    alone = machine.solve(K, signs_of(Y), accuracy=1e-8)
    np.testing.assert_allclose(ranker.decision_function(views), K @ alone.coef, atol=1e-3)


@pytest.mark.parametrize("loss", LOSSES)
def test_weights_meet_the_conditions_of_optimality(small, loss):
    views, Y = small
    bank = FIXED.build(views)
    for weights in ("l1", "l2"):
        ranker = exact(loss, weights=weights).fit(views, Y)
        B = np.zeros(Y.shape)
        B[ranker.support_] = ranker.dual_coef_.T
        h = bank.quadratics(B)
        if weights == "l1":  # energies are equal where a kernel is used, and nowhere larger
            assert ranker.weights_.sum() == pytest.approx(1.0)
            assert np.all(h <= h[ranker.weights_ > 0].min() * (1 + 1e-3))
        else:
            np.testing.assert_allclose(ranker.weights_, h / np.linalg.norm(h), atol=1e-3)


@pytest.mark.parametrize("loss", LOSSES)
def test_cutting_planes_give_exactly_sparse_weights_and_the_best_seen(tagged, loss):
    views, Y = tagged
    kernels = kw.KernelBank([Gaussian(0.5), Gaussian(2.0)], dtype="float64")
    machine = MLRL1(1.0) if loss == "pairwise" else None  # whose loss is written out below
    ranker = kw.LabelRanker(loss, kernels, solver="cutting-plane", machine=machine).fit(views, Y)
    assert ranker.gap_ <= 1e-3
    assert 0 < np.count_nonzero(ranker.weights_) < len(ranker.weights_)
    with pytest.warns(ConvergenceWarning, match="gap of up to"):
        early = kw.LabelRanker(loss, kernels, solver="cutting-plane", machine=machine, max_iter=2).fit(views, Y)
    assert not early.converged_
    values = early.history_["objective"]
    assert early.objective_ <= values.min() < values[-1]  # the weights of cutting planes jump about
    for fit in (ranker, early):
        assert fit.weights_.sum() == pytest.approx(1.0)
        assert fit.objective_ == pytest.approx(l1_objective(fit, kernels.build(views), Y), rel=1e-6)


def l1_objective(ranker, bank, Y):
    """1/2 (sum_j |f_j|)^2 + loss, label by label and written out."""
    B = np.zeros(Y.shape)
    B[ranker.support_] = ranker.dual_coef_.T
    norms = ranker.weights_ * np.sqrt(2 * bank.quadratics(B))
    value = 0.5 * norms.sum() ** 2
    for f, y in zip(bank.combine(ranker.weights_) @ B, signs_of(Y), strict=True):
        if ranker.loss == "group":
            errors = np.maximum(0.0, 1 - f[y > 0][:, None] + f[y < 0][None])
            value += np.sqrt((errors**2).sum(axis=0)).sum()
        else:
            value += min(np.maximum(0.0, 1 - y * (f - b)).sum() for b in f - y)
    return value


@pytest.mark.parametrize("loss", LOSSES)
def test_the_default_cost_is_shared_by_the_labels(small, loss):
    views, Y = small
    default = exact(loss).fit(views, Y)
    assert default.objective_ == exact(loss, C=6.0 / Y.shape[1]).fit(views, Y).objective_


@pytest.mark.parametrize("loss", LOSSES)
def test_scores_sum_to_zero_over_the_labels(tagged, loss):
    views, Y = tagged
    scores = kw.LabelRanker(loss).fit(views, Y).decision_function(views)
    np.testing.assert_allclose(scores.sum(axis=1), 0.0, atol=1e-9)


def test_labels_are_ranked_best_first_and_top_takes_the_first(fitted, tagged):
    views, _ = tagged
    scores, order = fitted.decision_function(views), fitted.rank(views)
    assert np.all(np.diff(np.take_along_axis(scores, order, axis=1), axis=1) <= 0)
    assert np.array_equal(np.sort(order, axis=1), np.tile(np.arange(6), (120, 1)))
    for top in (1, 3, np.int64(6)):
        given = fitted.predict(views, top=top)
        assert np.all(given.sum(axis=1) == top)
        assert np.all(np.take_along_axis(given, order[:, :top], axis=1) == 1)
        assert fitted.tags(views, top=top) == order[:, :top].tolist()
    given = fitted.predict(views)
    assert [sorted(tags) for tags in fitted.tags(views)] == [np.flatnonzero(row).tolist() for row in given]


def test_score_is_the_image_based_area_under_the_curve(fitted, tagged):
    views, Y = tagged
    partly = Y.astype(float)
    partly[::3, :2] = np.nan
    partly[5] = 1.0
    scores = fitted.decision_function(views)
    for labels in (Y, 2 * Y - 1, partly, csr_array(Y)):
        assert fitted.score(views, labels) == pytest.approx(auc(labels, scores, by="image"), abs=1e-12)
    some = np.arange(120) < 30
    weighted = fitted.score(views, partly, sample_weight=some)
    assert weighted == pytest.approx(auc(partly[some], scores[some], by="image"), abs=1e-12)


def test_verbose_reports_iterations(tagged, capsys):
    kw.LabelRanker(verbose=1).fit(*tagged)
    assert "iteration 1" in capsys.readouterr().err


# --- classes: one label a sample -------------------------------------------------------------------------------------


def test_classes_give_the_machine_of_crammer_and_singer():
    X, y = load_iris(return_X_y=True)
    X, y = StandardScaler().fit_transform(X)[::2], np.array(["a", "b", "c"])[y[::2]]
    ranker = kw.LabelRanker(kernels=LINEAR, machine=MLRL1(2.0), tol=1e-9).fit(X, y)
    # A margin of 1 instead of 2: half the cost, and half the scores.
    svc = LinearSVC(multi_class="crammer_singer", C=1.0, fit_intercept=False, tol=1e-10, max_iter=10**6).fit(X, y)
    np.testing.assert_allclose(ranker.decision_function(X), 2 * X @ svc.coef_.T, atol=2e-3)
    assert ranker.classes_.tolist() == ["a", "b", "c"]
    assert np.array_equal(ranker.predict(X), svc.predict(X))
    assert ranker.score(X, y) == svc.score(X, y)


def test_two_classes_give_the_support_vector_machine_without_bias():
    X, y = load_iris(return_X_y=True)
    X, y = StandardScaler().fit_transform(X)[50:], np.array(["no", "yes"])[y[50:] - 1]
    ranker = kw.LabelRanker(kernels=LINEAR, machine=MLRL1(1.0), tol=1e-9).fit(X, y)
    svc = LinearSVC(loss="hinge", C=1.0, fit_intercept=False, tol=1e-10, max_iter=10**6).fit(X, y)
    assert ranker.decision_function(X).shape == (100,)
    np.testing.assert_allclose(ranker.decision_function(X), svc.decision_function(X), atol=2e-3)
    assert np.array_equal(ranker.predict(X), svc.predict(X))
    assert ranker.rank(X).shape == (100, 2)


def test_classes_and_their_indicator_matrix_give_the_same_ranking():
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])
    by_class = kw.LabelRanker(kernels=FIXED).fit(X, names[y])
    by_label = kw.LabelRanker(kernels=FIXED, random_state=0).fit(X, np.eye(3, dtype=int)[y])
    np.testing.assert_array_equal(by_class.decision_function(X), by_label.decision_function(X))
    assert by_class.tags(X) == by_class.predict(X)[:, None].tolist()
    assert np.array_equal(by_class.predict(X, top=2), by_label.predict(X, top=2))
    with pytest.raises(ValueError, match="vector of classes"):
        by_class.missing_labels(X, np.eye(3)[y])


# --- forms of X and of Y ---------------------------------------------------------------------------------------------


def test_every_form_of_x_gives_the_same_model(tagged):
    views, Y = tagged
    kernels = {name: [Gaussian(), Linear()] for name in views.names}
    expected = kw.LabelRanker(kernels=kernels).fit(views, Y).decision_function(views)
    as_dict = {name: views[name] for name in views.names}
    np.testing.assert_array_equal(kw.LabelRanker(kernels=kernels).fit(as_dict, Y).decision_function(as_dict), expected)
    X = np.hstack(list(as_dict.values()))
    columns = {name: slice(10 * i, 10 * i + 10) for i, name in enumerate(views.names)}
    by_columns = kw.LabelRanker(kernels=kw.KernelBank(kernels, columns=columns)).fit(X, Y)
    np.testing.assert_allclose(by_columns.decision_function(X), expected, atol=1e-9)
    names = [f"{name}.{i}" for name in views.names for i in range(10)]
    for frame in (pd.DataFrame(X, columns=names), pl.DataFrame(dict(zip(names, X.T, strict=True)))):
        got = kw.LabelRanker(kernels=kernels).fit(frame, Y).decision_function(frame)
        np.testing.assert_allclose(got, expected, atol=1e-9)


def test_precomputed_kernels_predict_and_cross_validate(tagged):
    views, Y = tagged
    Ks = np.stack([rbf_kernel(views[name], gamma=0.05) for name in views.names])
    train, test = np.arange(0, 120, 2), np.arange(1, 120, 2)
    raw = kw.LabelRanker(kernels="precomputed").fit(Ks[:, train][:, :, train], Y[train])
    stack = kw.KernelStack(Ks)
    ranker = kw.LabelRanker(kernels="precomputed").fit(stack[train], Y[train])
    np.testing.assert_allclose(
        ranker.decision_function(stack[test]), raw.decision_function(Ks[:, test][:, :, train]), atol=1e-6
    )
    assert ranker.score(stack[test], Y[test]) > 0.85
    folds = MultilabelStratifiedKFold(3)
    assert cross_val_score(kw.LabelRanker(kernels="precomputed"), stack, Y, cv=folds).mean() > 0.85


def test_every_form_of_y_gives_the_same_model(tagged):
    views, Y = tagged
    partly = Y.astype(float)
    partly[1, 2] = partly[7, 0] = np.nan
    names = [f"tag{k}" for k in range(6)]
    tags = [[names[k] for k in np.flatnonzero(row)] for row in Y]
    for same in (
        [Y, 2 * Y - 1, Y > 0, Y.astype(float), Y.tolist(), csr_array(Y), csr_matrix(Y), as_labels(Y)],
        [pd.DataFrame(Y, columns=names), pl.DataFrame(Y, schema=names), tags, list(map(set, tags)), pd.Series(tags)],
        [partly, 2 * partly - 1, np.ma.masked_array(Y, np.isnan(partly)), np.where(np.isnan(partly), None, partly)],
    ):
        rankers = [kw.LabelRanker(kernels=Gaussian(), random_state=0).fit(views, labels) for labels in same]
        for labels, ranker in zip(same, rankers, strict=True):
            np.testing.assert_array_equal(ranker.decision_function(views), rankers[0].decision_function(views))
            np.testing.assert_array_equal(ranker.thresholds_, rankers[0].thresholds_)
            assert ranker.classes_.tolist() == (names if same[0] is not Y and same[0] is not partly else [*range(6)])
            assert ranker.score(views, labels) == rankers[0].score(views, same[0])
            assert ranker.missing_labels(views, labels, top=9).tolist() == (
                rankers[0].missing_labels(views, same[0], top=9).tolist()
            )


def test_labels_of_new_samples_go_by_name(tagged):
    views, Y = tagged
    frame = pd.DataFrame(Y, columns=list("abcdef"))
    ranker = kw.LabelRanker(random_state=0).fit(views, frame)
    new = [["a", "c"], ["f"], None]
    found = ranker.missing_labels(views[:3], new, top=18)
    assert {"a", "c"}.isdisjoint(found["label"][found["row"] == 0])
    assert sorted(found["label"][found["row"] == 2]) == list("abcdef")
    assert set(found["label"]) <= set("abcdef")
    with pytest.raises(ValueError, match="not among the 6 known labels: zebra"):
        ranker.missing_labels(views[:1], [["zebra"]])
    with pytest.raises(ValueError, match="column 0 is 'b', expected 'a'"):
        ranker.score(views, frame[list("bacdef")])


def test_clone_and_pickle(tagged):
    views, Y = tagged
    ranker = kw.LabelRanker("group", kw.KernelBank(Gaussian()), weights=kw.weights.LpBall(1.5)).fit(views, Y)
    again = pickle.loads(pickle.dumps(ranker))
    np.testing.assert_array_equal(again.predict(views), ranker.predict(views))
    assert again.missing_labels(None, Y).tolist() == ranker.missing_labels(None, Y).tolist()
    assert not hasattr(clone(ranker), "weights_")
    assert clone(ranker).weights == kw.weights.LpBall(1.5)
    assert clone(kw.LabelRanker(machine=MLRL1(2.0))).machine == MLRL1(2.0)


def test_searches_with_labels_never_judged(tagged):
    views, Y = tagged
    partly = Y.astype(float)
    partly[np.random.default_rng(0).random(Y.shape) < 0.2] = np.nan
    folds = MultilabelStratifiedKFold(3, shuffle=True, random_state=0)
    search = silently(
        GridSearchCV(
            kw.LabelRanker(kernels=Gaussian()),
            {"C": [0.1, 1.0], "loss": LOSSES},
            scoring=scorer("neg_ranking_loss"),
            cv=folds,
        ).fit,
        views,
        partly,
    )
    assert -0.25 < search.best_score_ < 0
    own = silently(lambda: cross_val_score(search.best_estimator_, views, partly, cv=folds))
    assert own.mean() == pytest.approx(1 + search.best_score_)
    X = np.hstack([views[name] for name in views.names])
    pipeline = make_pipeline(StandardScaler(), kw.LabelRanker(random_state=0))
    lrap = silently(lambda: cross_val_score(pipeline, X, partly, cv=folds, scoring=scorer("lrap")))
    assert lrap.shape == (3,)
    assert lrap.min() > 0.7
    silently(pipeline.fit, X, partly)
    assert np.all(pipeline.predict(X, top=2).sum(axis=1) == 2)


def test_prediction_uses_only_active_kernels_and_support_rows(tagged):
    views, Y = tagged
    seen = []

    def spy(name):
        def function(A, B):
            seen.append((name, len(A), len(B)))
            return rbf_kernel(A, B, gamma=0.05)

        return FromFunction(function)

    kernels = {name: spy(name) for name in views.names}
    partly = Y.astype(float)
    partly[100:] = np.nan  # these cannot be support rows
    ranker = silently(kw.LabelRanker(kernels=kernels, C=0.1).fit, views, partly)
    assert ranker.support_.max() < 100
    seen.clear()
    got = ranker.decision_function(views[:10])
    active = {name for name, w in zip(views.names, ranker.weights_, strict=True) if w > 0}
    assert len(active) < len(views.names)
    assert sorted(seen) == sorted((name, 10, len(ranker.support_)) for name in active)
    dense = sum(
        w * rbf_kernel(views[name][:10], views[name][ranker.support_], gamma=0.05) @ ranker.dual_coef_.T
        for name, w in zip(views.names, ranker.weights_, strict=True)
    )
    np.testing.assert_allclose(got, dense, atol=1e-5)
    seen.clear()
    ranker.missing_labels(None, partly)
    assert seen == []


# --- labels never judged, and order ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ranker", "margin"),
    [(exact(machine=MLRPairwise(1.0), kernels=LINEAR), 2.0), (exact("group", kernels=LINEAR, C=1.0), 1.0)],
)
def test_an_unjudged_label_takes_its_pairs_out(ranker, margin):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((14, 3))
    Y = (X @ rng.standard_normal((3, 4)) + rng.standard_normal((14, 4)) > 0).astype(float)
    Y[rng.random(Y.shape) < 0.3] = np.nan
    W = cp.Variable((3, 4))
    groups = []
    for i in range(14):
        for q in np.flatnonzero(Y[i] == 0):
            errors = [cp.pos(margin - X[i] @ W[:, p] + X[i] @ W[:, q]) for p in np.flatnonzero(Y[i] == 1)]
            if errors:
                groups.append(cp.norm(cp.hstack(errors), 2 if ranker.loss == "group" else 1))
    value = cp.Problem(cp.Minimize(cp.sum_squares(W) / 2 + sum(groups))).solve(solver="CLARABEL")
    silently(ranker.fit, X, Y)
    assert ranker.objective_ == pytest.approx(value, rel=1e-6)
    np.testing.assert_allclose(ranker.decision_function(X), X @ W.value, atol=1e-3)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_label_never_judged_is_a_label_left_out(small, loss):
    views, Y = small
    partly = np.insert(Y.astype(float), 2, np.nan, axis=1)
    with pytest.warns(UserWarning, match=r"Label\(s\) 2 were never judged"):
        ranker = exact(loss, tol=1e-10).fit(views, partly)
    without = exact(loss, tol=1e-10).fit(views, Y)
    scores = ranker.decision_function(views)
    others = [0, 1, 3, 4, 5]
    assert max(ranker.gap_, without.gap_) <= 1e-10
    assert ranker.objective_ == pytest.approx(without.objective_, rel=1e-10)
    # Strong convexity: each is within the root of twice its gap of the optimum. Folds behind thresholds have 10 tol.
    apart = 2 * np.sqrt(2 * 1e-10 * without.objective_)
    np.testing.assert_allclose(scores[:, others], without.decision_function(views), atol=apart, rtol=0)
    np.testing.assert_allclose(ranker.thresholds_[others], without.thresholds_, atol=np.sqrt(10) * apart, rtol=0)
    assert np.all(ranker.rank(views)[:, -1] == 2)
    assert ranker.thresholds_[2] == np.inf
    assert not ranker.predict(views)[:, 2].any()
    assert 2 not in ranker.missing_labels(views, partly, top=10**6)["label"]
    assert ranker.score(views, partly) == pytest.approx(without.score(views, Y))


def test_a_loose_fit_has_thresholds_of_machines_that_learned(small):
    """Whatever `tol` allows: from where they start, held-out fits would not move, and their thresholds mean nothing."""
    views, Y = small
    loose, tight = (kw.LabelRanker(kernels=FIXED, weights="average", tol=tol, random_state=0) for tol in (0.5, 1e-6))
    held_out = [ranker.fit(views, Y).missing_labels(None, Y, top=10**6) for ranker in (loose, tight)]
    scores = [
        {(row, label): score for row, label, score in zip(found["row"], found["label"], found["score"], strict=True)}
        for found in held_out
    ]
    assert scores[0].keys() == scores[1].keys()
    pairs = np.array([[scores[0][key], scores[1][key]] for key in scores[0]])
    assert np.corrcoef(pairs.T)[0, 1] > 0.9


@pytest.mark.parametrize("loss", LOSSES)
def test_a_row_with_nothing_judged_is_a_row_left_out(small, loss):
    views, Y = small
    partly = Y.astype(float)
    dark = [0, 17, 49]
    partly[dark] = np.nan
    with pytest.warns(UserWarning, match=r"3 of 50 samples .* \(3 have nothing judged at all\).* row 0"):
        ranker = exact(loss).fit(views, partly)
    rest = np.setdiff1d(np.arange(50), dark)
    without = exact(loss).fit(views[rest], Y[rest])
    assert ranker.n_uninformative_ == 3
    assert ranker.objective_ == pytest.approx(without.objective_, rel=1e-7)
    np.testing.assert_allclose(ranker.weights_, without.weights_, atol=1e-3)
    np.testing.assert_allclose(ranker.decision_function(views), without.decision_function(views), atol=1e-3)
    np.testing.assert_allclose(ranker.thresholds_, without.thresholds_, atol=0.02)  # folds are fitted to 1 %
    # They can still be scored: everything that looks relevant is missing there.
    found = ranker.missing_labels(None, partly, top=10**6)
    assert np.bincount(found["row"], minlength=50)[dark].tolist() == [5, 5, 5]


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_rows_without_a_pair_are_reported_and_change_no_scores(small, value):
    views, Y = small
    flat = Y.astype(float)
    flat[[4, 9]] = value
    with pytest.warns(UserWarning, match=r"2 of 50 samples have no pair .* \(0 have nothing judged at all\).* row 4"):
        ranker = exact().fit(views, flat)
    rest = np.delete(np.arange(50), [4, 9])
    assert ranker.n_uninformative_ == 2
    without = exact().fit(views[rest], Y[rest])
    np.testing.assert_allclose(ranker.decision_function(views), without.decision_function(views), atol=1e-3)


@pytest.mark.parametrize("loss", LOSSES)
def test_order_changes_nothing(small, loss):
    views, Y = small
    expected = exact(loss).fit(views, Y)
    scores = expected.decision_function(views)
    rng = np.random.default_rng(0)
    labels, samples = rng.permutation(5), rng.permutation(50)
    shuffled = exact(loss).fit(views, Y[:, labels])
    np.testing.assert_allclose(shuffled.decision_function(views), scores[:, labels], atol=1e-3)
    np.testing.assert_allclose(shuffled.weights_, expected.weights_, atol=1e-3)
    shuffled = exact(loss).fit(views[samples], Y[samples])
    np.testing.assert_allclose(shuffled.decision_function(views), scores, atol=1e-3)
    np.testing.assert_allclose(shuffled.weights_, expected.weights_, atol=1e-3)
    reverse = kw.KernelBank(FIXED.kernels[::-1], dtype="float64")
    turned = {name: views[name] for name in views.names[::-1]}
    shuffled = exact(loss, kernels=reverse).fit(turned, Y)
    np.testing.assert_allclose(shuffled.decision_function(turned), scores, atol=1e-3)
    np.testing.assert_allclose(shuffled.weights_[::-1], expected.weights_, atol=1e-3)
