"""LPBeta, LPB, LPBoost and CGBoost as users meet them, and against slow references."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, LeaveOneOut, ShuffleSplit, StratifiedKFold, cross_val_score
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import parametrize_with_checks

import kernelweave as kw
from kernelweave.boosting import LPB, CGBoost, LPBeta, LPBoost, lp_b, lp_beta
from kernelweave.boosting.estimators import sum_of_squares
from kernelweave.boosting.logistic import kernel_logistic
from kernelweave.boosting.out_of_fold import assign_folds, train
from kernelweave.kernels import FromFunction, Gaussian, Linear
from kernelweave.kernels.combined import geometric_mean

PROGRAMS = [LPBeta, LPB, LPBoost]
FEW = {"C": (0.1, 10.0), "nu": (0.2, 0.6), "random_state": 0}
each_program = pytest.mark.parametrize("method", PROGRAMS)
EACH = [LPBeta(**FEW), LPB(**FEW), LPBoost(**FEW), CGBoost()]
each_estimator = pytest.mark.parametrize("estimator", EACH, ids=lambda e: type(e).__name__)


@parametrize_with_checks(EACH)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def data(n_classes=3, n=90, n_noise=2, seed=0):
    return kw.datasets.make_views(
        n_samples=n, n_classes=n_classes, n_useful=2, n_redundant=0, n_noise=n_noise, random_state=seed
    )


def double(*kernels):
    return kw.KernelBank(list(kernels) or [Gaussian()], dtype="float64")


def grams(bank, views):
    built = bank.build(views)
    return np.stack([built.gram(j) for j in range(built.n_kernels)])


# --- machines of single kernels --------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 4])
def test_out_of_fold_scores_are_those_of_a_loop_over_svc(n_classes):
    views, y = data(n_classes)
    codes = np.unique(y, return_inverse=True)[1]
    K = grams(double(), views)[0]
    fold = assign_folds(codes, np.unique(y), 4, random_state=1)
    costs = [0.1, 1.0, 10.0]
    trained = train(K, codes, fold, costs, accuracy=1e-10)
    columns = range(n_classes) if n_classes > 2 else [1]
    naive, final = np.empty((len(costs), len(y), len(columns))), np.empty((len(y), len(columns)))
    for k, c in enumerate(columns):
        side = np.where(codes == c, 1, -1)
        for a, C in enumerate(costs):
            for f in range(4):
                kept, held = np.flatnonzero(fold != f), np.flatnonzero(fold == f)
                svc = SVC(C=C, kernel="precomputed", tol=1e-10).fit(K[np.ix_(kept, kept)], side[kept])
                naive[a, held, k] = svc.decision_function(K[np.ix_(held, kept)])
        final[:, k] = SVC(C=trained.C, kernel="precomputed", tol=1e-10).fit(K, side).decision_function(K)
    guesses = naive.argmax(axis=2) if n_classes > 2 else (naive[:, :, 0] > 0).astype(int)
    accuracies = (guesses == codes).mean(axis=1)
    np.testing.assert_allclose(trained.accuracies, accuracies)
    assert costs[int(accuracies.argmax())] == trained.C
    np.testing.assert_allclose(trained.scores, naive[accuracies.argmax()], atol=1e-5)
    np.testing.assert_allclose(K @ trained.coef + trained.intercept, final, atol=1e-5)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_no_label_has_a_part_in_its_own_scores(n_classes):
    views, y = data(n_classes)
    codes = np.unique(y, return_inverse=True)[1]
    fold = assign_folds(codes, np.unique(y), 5, random_state=0)
    for K in grams(double(), views)[:2]:
        for i in (0, 17, 60):
            flipped = codes.copy()
            flipped[i] = (codes[i] + 1) % n_classes
            before, after = (train(K, labels, fold, [3.0], accuracy=1e-6).scores for labels in (codes, flipped))
            same_fold = fold == fold[i]
            np.testing.assert_array_equal(before[same_fold], after[same_fold])
            assert np.abs(before[~same_fold] - after[~same_fold]).max() > 1e-3  # but in those of the others


def test_a_cost_that_holds_no_dual_back_is_the_last_to_be_solved(monkeypatch):
    views, y = data(3)
    solved = []

    class Counted(kw.machines.SVM):
        def solve(self, *args, **kwargs):
            solved.append(self.C)
            return super().solve(*args, **kwargs)

    K = grams(double(Gaussian(0.1)), views)[0]
    codes = np.unique(y, return_inverse=True)[1]
    fold = assign_folds(codes, np.unique(y), 3, random_state=0)
    costs = [1.0, 10.0, 1e3, 1e4, 1e5]
    expected = train(K, codes, fold, [1e5], accuracy=1e-9)
    monkeypatch.setattr("kernelweave.boosting.out_of_fold.SVM", Counted)
    trained = train(K, codes, fold, costs, accuracy=1e-9)
    assert max(solved[:-1]) < 1e4  # the last one is on all samples
    assert trained.accuracies[-1] == expected.accuracies[-1]


def test_folds_are_stratified_and_the_same_for_the_same_seed():
    codes = np.repeat([0, 1, 2], [10, 20, 35])
    fold = assign_folds(codes, np.array(list("abc")), 5, random_state=3)
    for k in range(5):
        np.testing.assert_array_equal(np.bincount(codes[fold == k]), [2, 4, 7])
    np.testing.assert_array_equal(fold, assign_folds(codes, np.array(list("abc")), 5, random_state=3))
    by_splitter = assign_folds(codes, np.array(list("abc")), StratifiedKFold(4), None)
    assert by_splitter.max() == 3


# --- combinations ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "n_classes"), [(LPBeta, 2), (LPBeta, 3), (LPB, 2), (LPB, 3), (LPBoost, 2)])
def test_weights_solve_the_program_of_the_out_of_fold_scores(method, n_classes):
    views, y = data(n_classes)
    clf = method(double(), C=(0.1, 1.0, 10.0), nu=0.4, cv=4, tol=1e-6, random_state=1).fit(views, y)
    codes = np.unique(y, return_inverse=True)[1]
    fold = assign_folds(codes, clf.classes_, 4, random_state=1)
    machines = [train(K, codes, fold, [C], 1e-6) for K, C in zip(grams(double(), views), clf.C_, strict=True)]
    S = np.stack([machine.scores for machine in machines], axis=1)
    if n_classes == 2:
        S = np.concatenate([-S, S], axis=2) / (2 if method is LPBoost else 1)
    found = (lp_b if method is LPB else lp_beta)(S, codes, 0.4)
    np.testing.assert_allclose(clf.weights_, found.weights, atol=1e-2)  # the machines are accurate to 1e-6 only
    assert clf.objective_ == pytest.approx(found.value, rel=1e-3)
    assert abs(clf.gap_) < 1e-9
    assert clf.nu_ == 0.4
    assert np.isnan(clf.nu_accuracies_).all()


@each_program
def test_what_a_fit_tells_satisfies_the_nu_property(method):
    views, y = data(2 if method is LPBoost else 3)
    clf = method(**FEW).fit(views, y)
    assert np.mean(clf.margins_ < clf.rho_ - 1e-8) <= clf.nu_ <= np.mean(clf.margins_ <= clf.rho_ + 1e-8)
    assert clf.sample_weights_.sum() == pytest.approx(1)
    assert clf.sample_weights_.shape == (90, len(clf.classes_))
    weights, edges = np.atleast_2d(clf.weights_), np.atleast_2d(clf.edges_)
    assert edges.shape == weights.shape
    np.testing.assert_allclose(edges[weights > 0], np.repeat(edges.max(axis=1), (weights > 0).sum(axis=1)), atol=1e-8)
    assert clf.nu_ == clf.nu[::-1][int(np.argmax(clf.nu_accuracies_[::-1]))]
    assert clf.C_.shape == clf.kernel_accuracies_.shape == (len(clf.kernel_names_),) == (12,)
    np.testing.assert_array_equal(clf.selected_, np.flatnonzero(weights.any(axis=0)))


def test_shapes_of_weights():
    views, y = data(3)
    assert LPBeta(**FEW).fit(views, y).weights_.shape == (12,)
    assert LPB(**FEW).fit(views, y).weights_.shape == (3, 12)
    assert LPB(**FEW).fit(views, y == y[0]).weights_.shape == (2, 12)
    for clf in (LPBeta(**FEW).fit(views, y), CGBoost().fit(views, y)):
        assert clf.decision_function(views).shape == (90, 3)
        assert clf.fit(views, y == y[0]).decision_function(views).shape == (90,)


@each_program
def test_one_kernel_gives_its_machine(method):
    views, y = data(2 if method is LPBoost else 3, n=120)
    train_on, new = np.arange(80), np.arange(80, 120)
    one = {"useful0": Gaussian()}
    clf = method(kw.KernelBank(one, dtype="float64"), C=2.0, tol=1e-9).fit(views[train_on], y[train_on])
    svm = kw.MKLClassifier(kw.KernelBank(one, dtype="float64"), weights="average", C=2.0, tol=1e-9)
    svm.fit(views[train_on], y[train_on])
    np.testing.assert_array_equal(clf.weights_, np.ones_like(clf.weights_))
    np.testing.assert_allclose(clf.decision_function(views[new]), svm.decision_function(views[new]), atol=1e-4)


@each_program
def test_copies_of_a_kernel_are_that_kernel(method):
    views, y = data(2)
    kernel = Gaussian(gamma=0.05)
    several, one = (method(double(*([kernel] * k)), **FEW).fit(views, y) for k in (3, 1))
    assert several.nu_ == one.nu_ and several.objective_ == pytest.approx(one.objective_)
    np.testing.assert_allclose(several.decision_function(views), one.decision_function(views), atol=1e-9)


@each_program
def test_scores_are_the_weighted_scores_of_the_machines(method):
    views, y = data(2 if method is LPBoost else 3)
    clf = method(double(), **FEW).fit(views, y)
    each = clf.kernel_scores(views)
    Ks = grams(double(), views)[clf.selected_][:, :, clf.support_]
    weights = clf.weights_[..., clf.selected_]
    for j, K in enumerate(Ks):
        expected = K @ clf.dual_coef_[j].T + clf.intercept_[j]
        np.testing.assert_allclose(each[:, j].reshape(expected.shape), expected, atol=1e-9)
    how = "imc,cm->ic" if method is LPB else ("im,m->i" if method is LPBoost else "imc,m->ic")
    np.testing.assert_allclose(clf.decision_function(views), np.einsum(how, each, weights), atol=1e-9)


def test_two_classes_are_alike_in_lpbeta_and_lpboost():
    views, y = data(2)
    both, binary = LPBeta(**FEW).fit(views, y), LPBoost(**FEW).fit(views, y)
    np.testing.assert_allclose(both.weights_, binary.weights_, atol=1e-9)
    np.testing.assert_allclose(both.decision_function(views), binary.decision_function(views), atol=1e-9)
    assert both.rho_ == pytest.approx(2 * binary.rho_)
    per_class = LPB(**FEW).fit(views, y)
    mean = 0.5 * (per_class.weights_[:, per_class.selected_].sum(axis=0))
    np.testing.assert_allclose(per_class.decision_function(views), per_class.kernel_scores(views) @ mean, atol=1e-9)


def test_weight_of_every_class_is_never_worse():
    views, y = data(4, n=120)
    fixed = {"nu": 0.3, "C": 3.0, "random_state": 0}
    assert LPB(**fixed).fit(views, y).objective_ <= LPBeta(**fixed).fit(views, y).objective_ + 1e-9


def test_only_selected_kernels_are_computed_for_new_samples():
    asked = []

    def counted(name, gamma):
        def kernel(X, Y):
            asked.append(name)
            return np.exp(-gamma * ((X[:, None] - Y) ** 2).sum(axis=2))

        return FromFunction(kernel)

    views, y = data(3, n_noise=3)
    kernels = {view: counted(view, 0.1) for view in views.names}
    clf = LPBeta(kernels, C=1.0, nu=0.7, random_state=0).fit(views, y)
    assert 0 < len(clf.selected_) < 5
    asked.clear()
    clf.predict(views)
    assert set(asked) == {views.names[j] for j in clf.selected_}


def test_order_of_kernels_and_names_of_classes_do_not_matter():
    views, y = data(3)
    names = list(views.names)
    fixed = {"C": 3.0, "nu": 0.43, "cv": KFold(5), "tol": 1e-8}
    clf = LPBeta(kw.KernelBank(dict.fromkeys(names, Gaussian()), dtype="float64"), **fixed).fit(views, y)
    backwards = LPBeta(kw.KernelBank(dict.fromkeys(names[::-1], Gaussian()), dtype="float64"), **fixed)
    backwards.fit(views, np.array(["z", "m", "a"])[np.unique(y, return_inverse=True)[1]])
    np.testing.assert_allclose(backwards.weights_[::-1], clf.weights_, atol=1e-6)
    np.testing.assert_allclose(backwards.decision_function(views)[:, ::-1], clf.decision_function(views), atol=1e-5)
    assert backwards.classes_.tolist() == ["a", "m", "z"]


def test_noise_kernels_hurt_the_average_not_lp_beta():
    views, y = kw.datasets.make_views(300, n_classes=3, n_useful=2, n_redundant=0, n_noise=16, random_state=1)
    fit, new = np.arange(200), np.arange(200, 300)
    few = {"C": (1.0, 10.0), "nu": (0.3, 0.6), "random_state": 0}
    clf = LPBeta(Gaussian(), **few).fit(views[fit], y[fit])
    clean = LPBeta({"useful0": Gaussian(), "useful1": Gaussian()}, **few).fit(views[fit], y[fit])
    average = kw.MKLClassifier(Gaussian(), weights="average", C=10.0).fit(views[fit], y[fit])
    assert clf.score(views[new], y[new]) >= clean.score(views[new], y[new]) - 0.05
    assert clf.score(views[new], y[new]) > average.score(views[new], y[new]) + 0.05
    assert set(np.argsort(clf.kernel_accuracies_)[-2:]) == {0, 1}


def test_a_weight_for_every_pair_is_another_program():
    views, y = data(4, n=120)
    clf = LPBeta(**(FEW | {"slack": "pair", "nu": 0.3})).fit(views, y)
    most = 1 / (0.3 * 120 * 3)
    assert clf.sample_weights_.max() <= most + 1e-9
    assert clf.score(views, y) > 0.8


# --- CG-Boost --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("C", [1e-3, 1.0, 100.0])
def test_cg_boost_is_logistic_regression_on_all_kernel_values(C):
    views, y = data(2, n=120)
    fit, new = np.arange(70), np.arange(70, 120)
    bank = double(Gaussian(), Linear())
    clf = CGBoost(bank, C=C, tol=1e-13).fit(views[fit], y[fit])
    built = bank.build(views[fit])
    features = np.hstack(list(grams(bank, views[fit])))
    reference = LogisticRegression(C=C, solver="newton-cholesky", tol=1e-14, max_iter=1000).fit(features, y[fit])
    cross = np.hstack(list(built.expansion(np.arange(built.n_kernels), np.arange(70)).cross(views[new])))
    expected = reference.decision_function(cross)
    np.testing.assert_allclose(clf.decision_function(views[new]), expected, atol=1e-7 * np.abs(expected).max())


def test_cg_boost_in_features_is_cg_boost_in_the_gram_matrix():
    views, y = data(3, n=120)
    fit, new = np.arange(70), np.arange(70, 120)
    clf = CGBoost(double(Gaussian(), Linear()), C=0.5).fit(views[fit], y[fit])
    built = double(Gaussian(), Linear()).build(views[fit])
    Ks = grams(double(Gaussian(), Linear()), views[fit])
    G = sum_of_squares(built)
    np.testing.assert_allclose(G, np.einsum("mij,mkj->ik", Ks, Ks), rtol=1e-12)
    cross = built.expansion(np.arange(len(Ks)), np.arange(70)).cross(views[new])
    for k, c in enumerate(clf.classes_):
        found = kernel_logistic(G, np.where(y[fit] == c, 1.0, -1.0), 0.5, 1e-6, 100)
        in_gram = np.einsum("mij,mkj->ik", cross, Ks) @ found.coef + found.intercept
        np.testing.assert_allclose(clf.decision_function(views[new])[:, k], in_gram, atol=1e-9)


@pytest.mark.parametrize("C", [1e-4, 1.0, 1e3])
def test_logistic_duals_close_the_gap(C):
    views, y = data(2)
    Ks = grams(double(), views)
    G = np.einsum("mij,mkj->ik", Ks, Ks)
    signs = np.where(y == y[0], 1.0, -1.0)
    found = kernel_logistic(G, signs, C, tol=1e-12, max_iter=100)
    assert -1e-12 <= found.gap <= 1e-12
    f = G @ found.coef + found.intercept
    s = found.coef * signs
    np.testing.assert_allclose(s, C * expit(-signs * f), atol=1e-6 * C)
    assert found.coef.sum() == pytest.approx(0, abs=1e-8 * np.abs(found.coef).sum())
    inside = np.clip(s, 1e-300, C)
    entropy = inside * np.log(inside / C) + (C - inside) * np.log1p(-inside / C)
    assert found.dual == pytest.approx(-0.5 * found.coef @ G @ found.coef - entropy.sum(), rel=1e-6)
    assert found.primal == pytest.approx(0.5 * found.coef @ G @ found.coef + C * np.logaddexp(0, -signs * f).sum())


def test_cg_boost_reports_its_certificate():
    views, y = data(3)
    clf = CGBoost().fit(views, y)
    assert clf.converged_
    assert 0 <= clf.gap_ <= 1e-6
    assert clf.objective_.shape == clf.dual_objective_.shape == (3,)
    assert np.all(clf.dual_objective_ <= clf.objective_)
    assert clf.dual_coef_.shape == (12, 3, 90)
    with pytest.warns(ConvergenceWarning, match="Raise max_iter"):
        clf.set_params(max_iter=1, tol=1e-12).fit(views, y)
    assert not clf.converged_


# --- inputs and neighbours -------------------------------------------------------------------------------------------


def predictions(estimator, X, y, X_new):
    model = pickle.loads(pickle.dumps(clone(estimator).fit(X, y)))
    return model.decision_function(X_new)


@each_estimator
def test_all_forms_of_data_agree(estimator):
    views, y = data(2)
    fit, new = np.arange(60), np.arange(60, 90)
    names = views.names
    kernels = dict.fromkeys(names, Gaussian(gamma=0.05))
    # Kernel values of a stack may differ by rounding, which takes the machines other ways. Within a relative gap of
    # 1e-10 they then end up to its root, 1e-5, apart, times the size of scores and objective.
    estimator = clone(estimator).set_params(tol=1e-10)
    expected = predictions(estimator.set_params(kernels=double_of(kernels)), views[fit], y[fit], views[new])
    mapping = {name: views[name] for name in names}
    part, rest = ({k: v[rows] for k, v in mapping.items()} for rows in (fit, new))
    np.testing.assert_allclose(predictions(estimator, part, y[fit], rest), expected, atol=1e-12)
    edges = np.cumsum([0] + [mapping[name].shape[1] for name in names])
    columns = {name: slice(*edges[i : i + 2]) for i, name in enumerate(names)}
    array = np.hstack(list(mapping.values()))
    estimator.set_params(kernels=kw.KernelBank(kernels, columns=columns, dtype="float64"))
    np.testing.assert_allclose(predictions(estimator, array[fit], y[fit], array[new]), expected, atol=1e-12)
    frame = pd.DataFrame(array, columns=[f"x{i}" for i in range(array.shape[1])])
    named = {name: [f"x{i}" for i in range(*edges[k : k + 2])] for k, name in enumerate(names)}
    estimator.set_params(kernels=kw.KernelBank(kernels, columns=named, dtype="float64"))
    np.testing.assert_allclose(predictions(estimator, frame.iloc[fit], y[fit], frame.iloc[new]), expected, atol=1e-12)
    stack = kw.KernelStack(grams(double_of(kernels), views))
    estimator.set_params(kernels=kw.KernelBank("precomputed", dtype="float64"))
    np.testing.assert_allclose(predictions(estimator, stack[fit], y[fit], stack[new]), expected, atol=1e-4)
    Ks = grams(double_of(kernels), views)
    raw = predictions(estimator, Ks[:, :60, :60], y[fit], Ks[:, 60:, :60])
    np.testing.assert_allclose(raw, expected, atol=1e-4)


def double_of(kernels):
    return kw.KernelBank(kernels, dtype="float64")


@each_estimator
def test_works_in_searches_and_cross_validation(estimator):
    views, y = data(2)
    names = np.where(y == y[0], "cat", "dog")
    grid = {"C": [0.1, 10.0]} if isinstance(estimator, CGBoost) else {"nu": [0.2, 0.7]}
    search = GridSearchCV(estimator, grid, cv=3).fit(views, names)
    assert search.score(views, names) > 0.8
    assert set(search.predict(views)) == {"cat", "dog"}
    assert cross_val_score(estimator, views, names, cv=3).mean() > 0.7


def test_jobs_change_nothing():
    views, y = data(2)
    alone, together = (LPBeta(**FEW, n_jobs=n_jobs).fit(views, y) for n_jobs in (1, 2))
    np.testing.assert_allclose(together.weights_, alone.weights_, atol=1e-12)
    np.testing.assert_allclose(together.decision_function(views), alone.decision_function(views), atol=1e-12)


def test_storages_agree():
    views, y = data(3)
    results = [
        LPBeta(kw.KernelBank([Gaussian()], storage=storage), **FEW).fit(views, y).decision_function(views)
        for storage in ("packed", "recompute")
    ]
    np.testing.assert_allclose(results[0], results[1], atol=1e-4)


def test_verbose_tells_where_the_time_went(capsys):
    views, y = data(2)
    LPBeta(verbose=1, **FEW).fit(views, y)
    assert "machines" in capsys.readouterr().err


def test_the_product_kernel_is_a_baseline_of_one_kernel():
    views, y = data(3)
    clf = kw.MKLClassifier(geometric_mean(dict.fromkeys(views.names, Gaussian())), weights="average").fit(views, y)
    assert clf.weights_.shape == (3, 1)
    assert clf.score(views, y) > 0.8


# --- bad input -------------------------------------------------------------------------------------------------------


@each_program
@pytest.mark.parametrize("nu", [0.0, -1.0, 1.5, (0.2, 2.0)])
def test_refuses_nu_out_of_range(method, nu):
    views, y = data(2)
    with pytest.raises(ValueError, match=r"nu must lie in \(0, 1\]"):
        method(nu=nu).fit(views, y)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"nu": ()}, "nu must be a number or several"),
        ({"nu": "high"}, "nu must be a number or several"),
        ({"nu": np.nan}, "nu must be a number or several"),
        ({"C": 0.0}, "C must be positive"),
        ({"C": (1.0, -1.0)}, "C must be positive"),
        ({"slack": "both"}, "slack must be one of"),
        ({"tol": 0.0}, "tol must be positive"),
        ({"cv": 1}, "at least 2 folds"),
        ({"cv": ShuffleSplit(3, random_state=0)}, "exactly once"),
        ({"kernels": FromFunction(lambda X, Y: -(X @ Y.T))}, "not positive semi-definite"),
    ],
)
def test_refuses_bad_settings(settings, message):
    views, y = data(2)
    with pytest.raises(ValueError, match=message):
        LPBeta(**settings).fit(views, y)


@pytest.mark.parametrize(
    ("settings", "message"), [({"C": -1.0}, "C must"), ({"tol": 0}, "tol"), ({"max_iter": 0}, "max")]
)
def test_cg_boost_refuses_bad_settings(settings, message):
    views, y = data(2)
    with pytest.raises(ValueError, match=message):
        CGBoost(**settings).fit(views, y)


@each_estimator
def test_refuses_bad_targets_and_data(estimator):
    views, y = data(2)
    with pytest.raises(ValueError, match="only one class: 'a'"):
        estimator.fit(views, np.full(90, "a"))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        estimator.fit(views, y[:50])
    with pytest.raises(ValueError, match="1d array"):
        estimator.fit(views, np.eye(2, dtype=int)[np.arange(90) % 2])
    broken = {name: views[name].copy() for name in views.names}
    broken["useful0"][3, 0] = np.nan
    with pytest.raises(ValueError, match="useful0"):
        estimator.fit(broken, y)


def test_refuses_classes_that_cannot_be_held_out():
    views, y = data(3)
    rare = np.where(np.arange(90) == 7, "rare", y.astype(str))
    with pytest.raises(ValueError, match="Class 'rare' has only one sample"):
        LPBeta(**FEW).fit(views, rare)
    sorted_by_class = np.repeat(["a", "b", "c"], 30)
    with pytest.raises(ValueError, match="Fold 0 holds out all samples of class 'a'"):
        LPBeta(**(FEW | {"cv": KFold(3)})).fit(views, sorted_by_class)
    few = np.where(np.arange(90) < 3, "few", y.astype(str))
    with pytest.warns(UserWarning, match="Class 'few' has 3 samples, fewer than the 5 folds"):
        clf = LPBeta(**FEW).fit(views, few)
    assert clf.score(views, few) > 0.8


def test_takes_any_folds_that_hold_each_sample_out_once():
    views, y = data(2, n=40)
    assert LPBeta(**(FEW | {"cv": LeaveOneOut(), "C": 1.0})).fit(views, y).margins_.shape == (40,)
    folds = [(np.arange(20, 40), np.arange(20)), (np.arange(20), np.arange(20, 40))]
    assert LPBeta(**(FEW | {"cv": folds})).fit(views, y).margins_.shape == (40,)


def test_lp_boost_refuses_three_classes():
    views, y = data(3)
    with pytest.raises(ValueError, match="use LPBeta"):
        LPBoost(**FEW).fit(views, y)
