"""Input-output kernels: the master problem against a conic solver, special cases, the loop, and the two estimators."""

from __future__ import annotations

import pickle
import tracemalloc
import warnings

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
from conic import root, solve
from labelled_problems import all_labelings, bank, kernels, scenarios
from sklearn.base import clone
from sklearn.datasets import load_iris, make_blobs, make_moons
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import kernelweave as kw
from kernelweave.ambiguity.bags import Bags
from kernelweave.ambiguity.input_output import best_threshold
from kernelweave.ambiguity.label_search import LabelOracle
from kernelweave.ambiguity.labelings import SemiSupervised
from kernelweave.generation import Proposal, Rules, generate
from kernelweave.generation.columns import has_limit
from kernelweave.generation.labelled_bank import InputKernels, LabelledBank, LabelledStore
from kernelweave.machines.simplex import SimplexSVM
from kernelweave.solvers import Saddle, Stopping, run
from kernelweave.weights import CappedSimplex, GroupSparse, LpBall

N, M, T = 20, 3, 6


def candidates(n=N, count=T, seed=0):
    """Random labellings for every kernel, (count, M, n)."""
    return np.random.default_rng(seed).choice([-1, 1], size=(count, M, n)).astype(np.int8)


def costs(n=N, seed=0):
    return np.random.default_rng(seed).choice([1.0, 30.0], size=n)


def master(Ks, signs, weights, C, tol=1e-7, solver="auto"):
    saddle = Saddle(
        LabelledBank(InputKernels(bank(Ks)), signs), SimplexSVM(C), weights, np.ones((len(C), 1)), Stopping(tol, 5000)
    )
    return run(solver, saddle)


def conic_value(Ks, signs, theta, C):
    """The dual problem as the source has it: min 1/2 sum a^2/C + gamma + theta sum zeta, |h_t| <= gamma + zeta_t."""
    n_candidates, n_kernels, n = signs.shape
    a, gamma = cp.Variable(n, nonneg=True), cp.Variable(nonneg=True)
    zeta, h = cp.Variable(n_candidates, nonneg=True), cp.Variable((n_candidates, n_kernels))
    limits = [cp.sum(a) == 1]
    for t in range(n_candidates):
        for m in range(n_kernels):
            limits.append(cp.sum_squares(root(Ks[m]).T @ cp.multiply(signs[t, m], a)) / 2 <= h[t, m])
        limits.append(cp.norm(h[t]) <= gamma + zeta[t])
    value = cp.sum_squares(cp.multiply(a, 1 / np.sqrt(C))) / 2 + gamma + theta * cp.sum(zeta)
    return -solve(cp.Problem(cp.Minimize(value), limits))


# -- the problem -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("theta", [1.0, 0.5, 0.3, 0.2, 1 / T, 0.08])
@pytest.mark.parametrize("solver", ["newton", "alternating", "projected-gradient"])
def test_master_reaches_the_conic_optimum(theta, solver):
    """From the hard margin to caps that do not sum to one."""
    Ks, signs, C = kernels(N), candidates(), costs()
    tol = 1e-4 if solver == "alternating" and theta == 1.0 else 1e-6
    saddle = master(Ks, signs, GroupSparse(M, theta), C, tol, solver)
    expected = conic_value(Ks, signs, theta, C)
    assert saddle.converged
    assert saddle.lower - 1e-7 * abs(expected) <= expected <= saddle.upper + 1e-7 * abs(expected)
    assert saddle.upper == pytest.approx(expected, rel=3 * tol)


def test_gap_is_never_negative_and_closes():
    saddle = master(kernels(N), candidates(), GroupSparse(M, 0.3), costs(), 1e-7)
    rows = saddle.history
    assert np.all(rows["gap"] >= 0) and np.all(rows["upper"] >= rows["lower"]) and rows["gap"][-1] <= 1e-7
    norms = np.linalg.norm(saddle.best.weights.reshape(T, M), axis=1)
    assert norms.sum() <= 1 + 1e-9 and norms.max() <= 0.3 + 1e-9


@pytest.mark.parametrize(("p", "q"), [(1.0, 1.0), (2.0, 2.0), (1.0, 2.0), (1.5, 3.0)])
def test_other_norms_reach_their_certificate(p, q):
    """The gap is exact for any weight set, so that a small one is proof; the l1 ball is inside all others."""
    Ks, signs, C = kernels(N), candidates(), costs()
    saddle = master(Ks, signs, GroupSparse(M, p=p, q=q), C, 1e-3)
    assert saddle.converged
    assert saddle.lower <= master(Ks, signs, GroupSparse(M, p=1.0), C, 1e-3).upper


def test_conditions_of_optimality():
    """Norms of energies: above a threshold at the cap, below it without weight; inside a group weights go with them."""
    saddle = master(kernels(N), candidates(), GroupSparse(M, 0.3), costs(), 1e-8)
    h = saddle.best.h.reshape(T, M)
    D = saddle.best.weights.reshape(T, M)
    energies, sizes = np.linalg.norm(h, axis=1), np.linalg.norm(D, axis=1)
    at_cap, without = sizes > 0.3 - 1e-5, sizes < 1e-5
    between = ~at_cap & ~without
    assert at_cap.any() and without.any()
    threshold = energies[between].mean() if between.any() else energies[at_cap].min()
    assert np.all(energies[at_cap] >= threshold * (1 - 1e-3))
    assert np.all(energies[without] <= threshold * (1 + 1e-3))
    np.testing.assert_allclose(energies[between], threshold, rtol=1e-3)
    used = ~without
    np.testing.assert_allclose(D[used] / sizes[used, None], h[used] / energies[used, None], atol=2e-3)


def test_a_large_cap_is_a_hard_margin():
    Ks, signs, C = kernels(N), candidates(), costs()
    hard = master(Ks, signs, GroupSparse(M), C).upper
    assert master(Ks, signs, GroupSparse(M, theta=2.0), C).upper == pytest.approx(hard, rel=1e-6)
    assert master(Ks, signs, GroupSparse(M, c_theta=T), C).upper == pytest.approx(hard, rel=1e-6)


def test_one_candidate_is_l2_mkl():
    """Weights go with the energies, and the problem is that of an l2 ball over the labelled kernels."""
    Ks, signs, C = kernels(N), candidates(count=1), costs()
    saddle = master(Ks, signs, GroupSparse(M), C, 1e-9)
    h = saddle.best.h
    np.testing.assert_allclose(saddle.best.weights, h / np.linalg.norm(h), atol=1e-4)
    labelled = np.stack([K * np.outer(y, y) for K, y in zip(Ks, signs[0], strict=True)])
    other = run("auto", Saddle(bank(labelled), SimplexSVM(C), LpBall(2.0), np.ones((N, 1)), Stopping(1e-9)))
    assert saddle.upper == pytest.approx(other.upper, rel=1e-8)


@pytest.mark.parametrize("theta", [1.0, 0.4, 1 / T])
def test_one_kernel_is_soft_margin_mkl_over_candidates(theta):
    Ks, signs, C = kernels(N), candidates()[:, :1], costs()
    saddle = master(Ks[:1], signs, GroupSparse(1, theta), C, 1e-8)
    labelled = np.stack([Ks[0] * np.outer(y, y) for y in signs[:, 0]])
    weights = CappedSimplex(theta=theta)
    other = run("auto", Saddle(bank(labelled), SimplexSVM(C), weights, np.ones((N, 1)), Stopping(1e-8)))
    assert saddle.upper == pytest.approx(other.upper, rel=1e-7)


def test_caps_of_the_mean_share_leave_no_choice():
    saddle = master(kernels(N), candidates(), GroupSparse(M, 1 / T), costs())
    np.testing.assert_allclose(np.linalg.norm(saddle.best.weights.reshape(T, M), axis=1), 1 / T, rtol=1e-6)


def test_a_candidate_given_twice_changes_nothing():
    Ks, signs, C = kernels(N), candidates(), costs()
    once = master(Ks, signs, GroupSparse(M), C)
    twice = master(Ks, np.concatenate([signs, signs[:2]]), GroupSparse(M), C)
    assert twice.upper == pytest.approx(once.upper, rel=1e-6)


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


# -- the loop ----------------------------------------------------------------------------------------------------------


class Enumeration:
    """The exact oracle: all labellings of every kernel are looked at, so that its answer is a bound."""

    def __init__(self, inputs, scenario):
        self.inputs, self.every = inputs, all_labelings(scenario)

    def propose(self, V, known, most, level, accuracy):
        v = self.every * V[:, 0]
        h = np.stack([0.5 * np.einsum("ti,ti->t", v @ K, v) for K in self.inputs.values])
        best = h.argmax(axis=1)
        signs = self.every[best]
        energies = h.max(axis=1)
        return Proposal([signs], energies[None], float(np.linalg.norm(energies)))


def grown(Ks, scenario, weights, oracle, **rules):
    inputs = InputKernels(bank(Ks))
    n = scenario.n_items
    start = [np.tile(scenario.initial(Ks.mean(axis=0)), (len(Ks), 1))]
    rules = Rules(n_price=1, **rules)
    store = LabelledStore(inputs)
    result = generate(store, oracle(inputs, scenario), SimplexSVM(1.0), weights, np.ones((n, 1)), rules, start)
    return result, store


def test_hard_margin_with_an_exact_oracle_is_certified():
    """All labellings of all kernels as one problem, or generated: the same value, enclosed from both sides."""
    scenario, Ks = SemiSupervised([1, -1, 0, 0, 0, 0, 0, 0], 0.5), kernels(8)[:2]
    result, _ = grown(Ks, scenario, GroupSparse(2), Enumeration, tol=1e-5)
    every = all_labelings(scenario)
    pairs = np.stack([np.stack([a, b]) for a in every for b in every])
    whole = master(Ks, pairs, GroupSparse(2), np.ones(8), 1e-6)
    assert result.certified and result.converged
    assert result.lower <= whole.upper * (1 - 1e-9) and result.upper >= whole.lower * (1 + 1e-9)
    assert result.upper == pytest.approx(whole.upper, rel=3e-5)
    rows = result.history
    assert np.all(np.diff(rows["upper"]) <= 0) and np.all(np.diff(rows["lower"]) >= 0)


def test_hard_margin_falls_with_every_candidate():
    """The restricted value never rises (it is a bound), and the gap of the loop never becomes negative."""
    scenario, Ks = scenarios(16)["semi"], kernels(16)
    result, store = grown(
        Ks, scenario, GroupSparse(3), LabelOracle, tol=1e-4, max_columns=12, violation=1e-3, removes=False
    )
    rows = result.history
    assert np.all(np.diff(rows["upper"]) <= 1e-12) and np.all(rows["gap"] >= 0)
    assert len(store.bank.signs) == rows["generated"][-1] == rows["kernels"][-1]
    assert not result.certified


def test_a_cap_that_falls_with_the_candidates():
    """theta = c/T: every master is the problem of its own cap, and its bounds are not those of others."""
    scenario, Ks = scenarios(16)["semi"], kernels(16)
    weights = GroupSparse(3, c_theta=1.2)
    result, store = grown(Ks, scenario, weights, LabelOracle, tol=1e-4, max_columns=8, violation=1e-3, removes=False)
    last = master(Ks, store.bank.signs, weights, np.ones(16), 1e-7)
    assert result.upper == pytest.approx(last.upper, rel=2e-4)
    assert result.upper >= last.lower and len(store.bank.signs) > 1
    assert all(scenario.is_feasible(y) for candidate in store.bank.signs for y in candidate)


def test_which_sets_have_an_optimum_over_all_candidates():
    assert has_limit(GroupSparse(3), 3)
    for settings in ({"theta": 0.3}, {"c_theta": 1.2}, {"c_theta": 50.0}, {"q": 2.0}):
        assert not has_limit(GroupSparse(3, **settings), 3)


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


@pytest.mark.parametrize("name", ["semi", "instances", "representatives", "clustering"])
def test_candidates_are_possible_and_different(name):
    scenario = scenarios(14)[name]
    inputs = InputKernels(bank(kernels(14)), scenario.unit_of)
    start = [np.tile(scenario.initial(kernels(14).mean(axis=0)), (3, 1))]
    store, rules = LabelledStore(inputs), Rules(max_columns=6, n_price=1, violation=1e-3, removes=False)
    oracle, machine = LabelOracle(inputs, scenario), SimplexSVM(scenario.shares)
    generate(store, oracle, machine, GroupSparse(3), np.ones((inputs.n_units, 1)), rules, start)
    signs = store.bank.signs
    assert len(signs) > 1
    assert all(scenario.is_feasible(y) for candidate in signs for y in candidate)
    assert len({candidate.tobytes() for candidate in signs}) == len(signs)


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
    for same in (numbers_among_names, named.astype(object), pd.Series(named), pd.Categorical(named), named.tolist()):
        np.testing.assert_array_equal(narrow(max_candidates=3).fit(X, same).transduction_, clf.transduction_)


@pytest.mark.parametrize(
    ("balance", "shares"),
    [
        ("labelled", (0.25, 0.25)),
        (0.4, (0.4, 0.4)),
        ((0.3, 0.6), (0.3, 0.6)),
        ({"b": 0.4}, (0.4, 0.4)),
        ({"a": (0.2, 0.3)}, (0.7, 0.8)),
        ({"a": 0.6, "b": 0.4}, (0.4, 0.4)),
    ],
)
def test_ways_to_say_the_balance(balance, shares):
    clf = kw.InputOutputKernelClassifier(balance=balance)
    clf.classes_ = np.array(["a", "b"])
    known = np.array([[1, -1, -1, -1, 0, 0]], dtype=np.int8)
    np.testing.assert_allclose(clf._balances(known)[0], shares)


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
    ],
)
def test_bad_settings(settings, message):
    X, _, few = moons(30)
    with pytest.raises(ValueError, match=message):
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


def test_bad_clusterings():
    with pytest.raises(ValueError, match="imbalance must be"):
        kw.InputOutputKernelClustering(imbalance=1.0).fit(np.random.default_rng(0).standard_normal((10, 2)))


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
