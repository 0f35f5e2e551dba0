"""MKLClassifier with one weight vector for all labels, and with labels that were never judged."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from conic import optimum
from problems import gaussian
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel

import kernelweave as kw
from kernelweave.kernels import FromFunction, Gaussian
from kernelweave.labels import as_labels
from kernelweave.machines import SVM, NuSVM
from kernelweave.mkl import _sigmoid
from kernelweave.solvers import StochasticApproximation
from kernelweave.weights import LpBall, Simplex

FIXED = kw.KernelBank([Gaussian(gamma=0.05), Gaussian(gamma=0.3)], dtype="float64")
EXACT = kw.KernelBank("precomputed", dtype="float64")


def stacked(n=40, m=4, seed=0):
    """Kernels (5, n, n) of which the first two say something about the labels (n, m), 0 and 1."""
    rng = np.random.default_rng(seed)
    Z = rng.standard_normal((n, 4))
    parts = [Z[:, :2], Z[:, 2:] + 0.3 * rng.standard_normal((n, 2)), *rng.standard_normal((3, n, 2))]
    f = Z @ rng.standard_normal((4, m)) + 0.5 * rng.standard_normal((n, m))
    return np.stack([gaussian(part) for part in parts]), (f > np.median(f, axis=0)).astype(int)


@pytest.fixture(scope="module")
def labelled():
    """Views of 90 samples and four labels (90, 4) of 0 and 1, each on both sides."""
    views, y = kw.datasets.make_views(n_samples=90, n_useful=2, n_redundant=0, n_noise=1, n_classes=4, random_state=0)
    Y = (y[:, None] == np.unique(y)).astype(int)
    Y[:, 0] |= Y[:, 1]
    return views, Y


def with_gaps(Y, share=0.3, seed=0):
    """Y with NaN at random places."""
    Y = Y.astype(float)
    Y[np.random.default_rng(seed).random(Y.shape) < share] = np.nan
    return Y


# --- one weight vector for the sum ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weights", "weight_set", "solvers"),
    [
        ("l1", Simplex(), "newton cutting-plane level reduced-gradient projected-gradient mirror-descent alternating"),
        ("l2", LpBall(2.0), "newton cutting-plane level projected-gradient alternating"),
    ],
)
def test_every_wrapper_reaches_the_conic_optimum_of_the_sum(weights, weight_set, solvers):
    Ks, Y = stacked()
    expected = optimum(weight_set, SVM(2.0), Ks, 2.0 * Y - 1).value
    for solver in ("auto", *solvers.split()):
        clf = kw.MKLClassifier(EXACT, weights, solver=solver, sharing="sum", C=2.0, tol=1e-4, max_iter=2000).fit(Ks, Y)
        assert clf.converged_
        assert clf.objective_ * (1 - clf.gap_) - 1e-6 <= expected <= clf.objective_ * (1 + 1e-7)
        assert clf.weights_.shape == (5,)
        assert weight_set.feasible(clf.weights_, tol=1e-6)


def test_shared_weights_are_one_vector_with_its_books(labelled):
    views, Y = labelled
    for sharing in ("sum", "worst-case"):
        clf = kw.MKLClassifier(sharing=sharing, probability=True, random_state=0).fit(views, Y)
        assert clf.weights_.shape == (len(clf.kernel_names_),)
        assert clf.gap_ <= 1e-3 and clf.converged_
        assert clf.objective_ == clf.history_["upper"][-1]
        assert clf.dual_coef_.shape == (4, len(clf.support_))
        assert clf.intercept_.shape == (4,)
        assert clf.decision_function(views).shape == clf.predict_proba(views).shape == Y.shape
        assert np.mean(clf.predict(views) == Y) > 0.85


def test_classes_share_too(labelled):
    views, Y = labelled
    y = np.array(["a", "b", "c"])[np.argmax(Y[:, 1:], axis=1)]
    for sharing in ("sum", "worst-case"):
        clf = kw.MKLClassifier(sharing=sharing).fit(views, y)
        assert clf.weights_.ndim == 1
        assert clf.decision_function(views).shape == (90, 3)
        assert clf.score(views, y) > 0.8


@pytest.mark.parametrize("sharing", ["sum", "worst-case"])
def test_prediction_evaluates_each_active_kernel_once_for_all_labels(labelled, sharing):
    views, Y = labelled
    seen = []

    def spy(name):
        def function(A, B):
            seen.append(name)
            return rbf_kernel(A, B, gamma=0.1)

        return FromFunction(function)

    clf = kw.MKLClassifier({name: spy(name) for name in views.names}, sharing=sharing, C=0.3).fit(views, Y)
    seen.clear()
    got = clf.decision_function(views[:10])
    active = [name for name, w in zip(views.names, clf.weights_, strict=True) if w > 0]
    assert sorted(seen) == sorted(active)
    K = sum(
        w * rbf_kernel(views[name][:10], views[name][clf.support_], gamma=0.1)
        for name, w in zip(views.names, clf.weights_, strict=True)
    )
    np.testing.assert_allclose(got, K @ clf.dual_coef_.T + clf.intercept_, atol=1e-5)


@pytest.mark.parametrize("sharing", ["sum", "worst-case"])
def test_two_classes_have_nothing_to_share(labelled, sharing):
    views, Y = labelled
    alone = kw.MKLClassifier().fit(views, Y[:, 0])
    shared = kw.MKLClassifier(sharing=sharing).fit(views, Y[:, 0])
    np.testing.assert_array_equal(shared.weights_, alone.weights_)
    np.testing.assert_array_equal(shared.decision_function(views), alone.decision_function(views))


@pytest.mark.parametrize("sharing", ["sum", "worst-case"])
def test_equal_label_columns_learn_what_one_learns(sharing):
    Ks, Y = stacked()
    alone = kw.MKLClassifier(EXACT, tol=1e-6).fit(Ks, Y[:, 0])
    shared = kw.MKLClassifier(EXACT, sharing=sharing, tol=1e-6).fit(Ks, Y[:, [0, 0, 0]])
    np.testing.assert_allclose(shared.weights_, alone.weights_, atol=1e-2)
    assert shared.objective_ == pytest.approx(alone.objective_ * (3 if sharing == "sum" else 1), rel=3e-6)


@pytest.mark.parametrize("sharing", ["sum", "worst-case"])
def test_order_of_labels_and_kernels_does_not_matter(sharing):
    Ks, Y = stacked()
    labels, kernels = [2, 0, 3, 1], [3, 0, 4, 2, 1]
    plain = kw.MKLClassifier(EXACT, sharing=sharing, tol=1e-6).fit(Ks, Y)
    other = kw.MKLClassifier(EXACT, sharing=sharing, tol=1e-6).fit(Ks[kernels], Y[:, labels])
    np.testing.assert_allclose(other.weights_, plain.weights_[kernels], atol=1e-2)
    np.testing.assert_allclose(other.decision_function(Ks[kernels]), plain.decision_function(Ks)[:, labels], atol=5e-2)


def test_fixed_and_chosen_weights_are_one_for_all_labels(labelled):
    views, Y = labelled
    for weights in ("average", "best", "alignment", [0.5, 0.1, 0.4]):
        clf = kw.MKLClassifier(Gaussian(), weights, sharing="worst-case").fit(views, Y)
        assert clf.weights_.shape == (3,)
        assert clf.gap_ <= 1e-3
    apart = kw.MKLClassifier(Gaussian(), "average").fit(views, Y)
    shared = kw.MKLClassifier(Gaussian(), "average", sharing="sum").fit(views, Y)
    np.testing.assert_allclose(shared.decision_function(views), apart.decision_function(views), atol=1e-5)


# --- the worst case ---------------------------------------------------------------------------------------------------


def worst_objective(Ks, Y, weights, C):
    K = np.tensordot(weights, Ks, axes=1)
    return max(SVM(C).solve(K, 2.0 * Y[:, [k]] - 1, accuracy=1e-7).primal for k in range(Y.shape[1]))


def test_worst_case_weights_help_the_worst_label():
    Ks, Y = stacked(seed=1)
    clf = {s: kw.MKLClassifier(EXACT, sharing=s, tol=1e-5).fit(Ks, Y) for s in ("sum", "worst-case")}
    exact = worst_objective(Ks, Y, clf["worst-case"].weights_, 1.0)
    assert clf["worst-case"].objective_ == pytest.approx(exact, rel=1e-4)
    assert exact < worst_objective(Ks, Y, clf["sum"].weights_, 1.0)
    assert exact < worst_objective(Ks, Y, np.full(5, 0.2), 1.0)


def test_all_labels_are_learned_at_the_worst_case_weights():
    Ks, Y = stacked()
    clf = kw.MKLClassifier(EXACT, sharing="worst-case", tol=1e-7).fit(Ks, Y)
    K = np.tensordot(clf.weights_, Ks, axes=1)
    for k in range(Y.shape[1]):
        alone = SVM(1.0).solve(K, 2.0 * Y[:, [k]] - 1, accuracy=1e-9)
        np.testing.assert_allclose(clf.decision_function(Ks)[:, k], (K @ alone.coef + alone.intercept)[:, 0], atol=1e-2)


def test_solvers_of_the_worst_case_agree():
    Ks, Y = stacked()
    fits = [
        kw.MKLClassifier(EXACT, sharing="worst-case", solver=solver, tol=1e-5, max_iter=1000).fit(Ks, Y)
        for solver in ("auto", "level", "cutting-plane", StochasticApproximation(refine=True, random_state=0))
    ]
    for clf in fits:
        assert clf.converged_
        assert clf.objective_ == pytest.approx(fits[0].objective_, rel=2e-5)


def test_stochastic_solver_reports_its_gap():
    Ks, Y = stacked()
    with pytest.warns(ConvergenceWarning, match=r"gap of up to 0\.\d+, short of 0\.001\. solver='stochastic' approx"):
        clf = kw.MKLClassifier(EXACT, sharing="worst-case", solver="stochastic", random_state=0).fit(Ks, Y)
    exact = kw.MKLClassifier(EXACT, sharing="worst-case", tol=1e-5).fit(Ks, Y)
    assert not clf.converged_ and clf.gap_ > 1e-3
    assert clf.objective_ * (1 - clf.gap_) <= exact.objective_ <= clf.objective_ * (1 + 1e-5)
    assert clf.weights_.sum() == pytest.approx(1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        again = kw.MKLClassifier(EXACT, sharing="worst-case", solver="stochastic", random_state=0).fit(Ks, Y)
    np.testing.assert_array_equal(again.weights_, clf.weights_)


def test_a_solver_with_settings_clones_and_pickles():
    Ks, Y = stacked()
    solver = StochasticApproximation(passes=2, refine=True, random_state=1)
    clf = clone(kw.MKLClassifier(EXACT, sharing="worst-case", solver=solver))
    assert clf.solver == solver
    clf.fit(Ks, Y)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(clf)).decision_function(Ks), clf.decision_function(Ks))


def test_what_cannot_be_shared_is_refused_by_name(labelled):
    views, Y = labelled
    for solver in ("newton", "reduced-gradient", "projected-gradient", "mirror-descent", "alternating"):
        with pytest.raises(ValueError, match=rf"solver='{solver}' needs .* smooth .*level, stochastic"):
            kw.MKLClassifier(sharing="worst-case", solver=solver).fit(views, Y)
    with pytest.raises(ValueError, match="solver='stochastic' needs the worst of several label columns"):
        kw.MKLClassifier(sharing="sum", solver="stochastic").fit(views, Y)
    with pytest.raises(ValueError, match=r"solver='stochastic' needs .* plain simplex, which LpBall\(p=2.0\) is not"):
        kw.MKLClassifier(weights="l2", sharing="worst-case", solver="stochastic").fit(views, Y)
    with pytest.raises(ValueError, match="sharing must be 'none', 'sum' or 'worst-case', got 'mean'"):
        kw.MKLClassifier(sharing="mean").fit(views, Y)
    with pytest.raises(TypeError, match="solver must be a name"):
        kw.MKLClassifier(solver=3).fit(views, Y)


# --- labels that were never judged ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [{}, {"fit_intercept": False}, {"class_weight": "balanced"}, {"class_weight": {1: 3.0}}, {"machine": NuSVM(0.2)}],
    ids=repr,
)
def test_a_missing_label_leaves_that_pair_out(labelled, settings):
    views, Y = labelled
    gaps = with_gaps(Y)
    exact = kw.MKLClassifier(FIXED, weights="l2", tol=1e-9, **settings)
    clf = clone(exact).fit(views, gaps)
    scores = clf.decision_function(views)
    for k in range(Y.shape[1]):
        judged = np.flatnonzero(~np.isnan(gaps[:, k]))
        alone = clone(exact).fit(views[judged], Y[judged, k])
        assert clf.objective_[k] == pytest.approx(alone.objective_, rel=1e-8, abs=1e-12)
        np.testing.assert_allclose(clf.weights_[k], alone.weights_, atol=1e-4)
        np.testing.assert_allclose(scores[:, k], alone.decision_function(views), atol=1e-3)
        assert set(np.flatnonzero(clf.dual_coef_[k])) <= set(np.flatnonzero(np.isin(clf.support_, judged)))


@pytest.mark.parametrize("sharing", ["sum", "worst-case"])
def test_missing_labels_leave_the_shared_problem_too(labelled, sharing):
    """A sample judged for no label at all might as well not be there."""
    views, Y = labelled
    gaps = with_gaps(Y, 0.1)
    gaps[::5] = np.nan
    kept = np.flatnonzero(~np.isnan(gaps).all(axis=1))
    exact = kw.MKLClassifier(FIXED, sharing=sharing, tol=1e-6)
    whole, part = clone(exact).fit(views, gaps), clone(exact).fit(views[kept], gaps[kept])
    assert whole.objective_ == pytest.approx(part.objective_, rel=2e-6)
    np.testing.assert_allclose(whole.decision_function(views), part.decision_function(views), atol=2e-2)
    assert set(whole.support_) <= set(kept)


def test_every_way_to_write_labels_is_the_same_model(labelled):
    views, Y = labelled
    gaps = with_gaps(Y)
    expected = kw.MKLClassifier().fit(views, gaps)
    assert expected.classes_.tolist() == [0, 1, 2, 3]
    scores = expected.decision_function(views)
    names = ["sky", "sea", "tree", "dog"]
    missing = np.isnan(gaps)
    frames = [
        pd.DataFrame(gaps, columns=names),
        pd.DataFrame(gaps, columns=names).astype("Int64"),
        pl.DataFrame({name: [None if v != v else int(v) for v in gaps[:, k]] for k, name in enumerate(names)}),
    ]
    plain = [np.ma.masked_array(Y, missing), np.where(missing, np.nan, 2 * Y - 1), gaps.tolist(), as_labels(gaps)]
    for form in (*plain, *frames):
        clf = kw.MKLClassifier().fit(views, form)
        np.testing.assert_array_equal(clf.decision_function(views), scores)
        assert clf.classes_.tolist() == (names if hasattr(form, "columns") else [0, 1, 2, 3])


def test_complete_labels_sparse_or_as_tags(labelled):
    views, Y = labelled
    scores = kw.MKLClassifier().fit(views, Y).decision_function(views)
    np.testing.assert_array_equal(kw.MKLClassifier().fit(views, csr_matrix(Y)).decision_function(views), scores)
    names = np.array(["sky", "sea", "tree", "dog"])
    clf = kw.MKLClassifier().fit(views, [set(names[row > 0]) for row in Y])
    assert clf.classes_.tolist() == ["dog", "sea", "sky", "tree"]
    np.testing.assert_array_equal(clf.decision_function(views)[:, [2, 1, 3, 0]], scores)
    assert clf.predict(views).shape == Y.shape


def test_one_label_with_gaps(labelled):
    views, Y = labelled
    gaps = with_gaps(Y[:, :1])
    judged = np.flatnonzero(~np.isnan(gaps[:, 0]))
    clf = kw.MKLClassifier(FIXED, tol=1e-8).fit(views, gaps)
    alone = kw.MKLClassifier(FIXED, tol=1e-8).fit(views[judged], Y[judged, 0])
    assert clf.predict(views).shape == (90, 1)
    np.testing.assert_allclose(clf.decision_function(views)[:, 0], alone.decision_function(views), atol=2e-3)
    for form in (pd.DataFrame({"sky": gaps[:, 0]}), np.ma.masked_invalid(gaps)):
        np.testing.assert_array_equal(
            kw.MKLClassifier(FIXED, tol=1e-8).fit(views, form).decision_function(views), clf.decision_function(views)
        )


@pytest.mark.parametrize("settings", [{}, {"fit_intercept": False}, {"sharing": "sum"}, {"sharing": "worst-case"}])
def test_columns_with_one_side_or_none(labelled, settings):
    views, Y = labelled
    gaps = Y.astype(float)
    gaps[:, 1] = np.nan
    gaps[Y[:, 2] == 0, 2] = np.nan
    gaps[Y[:, 3] == 1, 3] = np.nan
    with pytest.warns(UserWarning) as caught:
        clf = kw.MKLClassifier(probability=True, random_state=0, tol=1e-4, **settings).fit(views, gaps)
    messages = [str(w.message) for w in caught]
    assert any("column(s) [2, 3] are the same" in message for message in messages)
    assert any("column(s) [1] were never judged" in message for message in messages)
    scores, predicted, p = clf.decision_function(views), clf.predict(views), clf.predict_proba(views)
    assert predicted[:, 1:].tolist() == [[0, 1, 0]] * 90
    assert np.all(scores[:, 1] < scores[:, [0, 2, 3]].min(axis=1)) and np.all(np.isfinite(scores))
    assert np.all(p[:, 1] == 0) and np.all(p[:, 2] > 0.9) and np.all(p[:, 3] < 0.1)
    alone = kw.MKLClassifier(tol=1e-4, **settings).fit(views, Y[:, 0])
    np.testing.assert_allclose(scores[:, 0], alone.decision_function(views), atol=2e-2)


def test_probabilities_skip_what_was_not_judged(labelled):
    rng = np.random.default_rng(0)
    scores, y = rng.standard_normal(80), np.sign(rng.standard_normal(80))
    with_zeros = np.where(np.arange(80) % 3 == 0, 0.0, y)
    judged = with_zeros != 0
    np.testing.assert_array_equal(_sigmoid(scores, with_zeros), _sigmoid(scores[judged], y[judged]))
    views, Y = labelled
    p = kw.MKLClassifier(probability=True, random_state=0).fit(views, with_gaps(Y)).predict_proba(views)
    assert np.mean((p > 0.5) == Y) > 0.8


def test_labels_that_make_no_sense_are_named(labelled):
    views, Y = labelled
    fit = kw.MKLClassifier().fit
    with pytest.raises(ValueError, match="y mixes 0 and -1"):
        fit(views, np.where(np.arange(90)[:, None] % 2, Y, 2 * Y - 1))
    with pytest.raises(ValueError, match=r"y must hold 0 and 1, .* row 0, column 0 is 2"):
        fit(views, Y + 2)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        fit(views, with_gaps(Y)[:-1])


def test_score_counts_rows_whose_judged_labels_are_all_right() -> None:
    views, Y = kw.datasets.make_tagged_views(n_samples=120, n_labels=4, random_state=0)
    model = kw.MKLClassifier(sharing="sum").fit(views, Y)
    given = model.predict(views)
    assert model.score(views, Y) == pytest.approx((given == Y).all(axis=1).mean())
    gaps = Y.astype(float)
    gaps[given != Y] = np.nan
    gaps[:5] = np.nan
    assert model.score(views, gaps) == 1.0
    tags = [[int(k) for k in np.flatnonzero(row)] for row in Y]
    assert model.score(views, [set(row) for row in tags]) == model.score(views, Y)
    with pytest.raises(ValueError, match="nothing to score"):
        model.score(views, np.full(Y.shape, np.nan))
