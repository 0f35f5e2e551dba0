"""Input-output kernels: the master problem and what estimators report, against a conic solver and explicit kernels."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from conic import root, solve
from labelled_problems import TWO, all_labelings, bank, explicit_kernels, kernels, moons, narrow
from sklearn.datasets import load_wine, make_moons
from sklearn.exceptions import ConvergenceWarning

import kernelweave as kw
from kernelweave.ambiguity.bags import Bags
from kernelweave.ambiguity.labelings import BagRepresentatives, SemiSupervised
from kernelweave.generation.labelled_bank import InputKernels, LabelledBank
from kernelweave.machines.simplex import SimplexSVM
from kernelweave.solvers import Saddle, Stopping, run
from kernelweave.weights import GroupSparse

N, M, T = 20, 3, 6


def conic(Ks, signs, theta, C, norms=(2.0, 1.0), unit_of=None):
    """Value and duals of the problem as the source has it, with kernels as matrices.

    min 1/2 sum a^2/C + gamma + theta sum zeta, |h_t| <= gamma + zeta_t. Other norms across candidates have no cap.
    """
    n_candidates, n_kernels, n = signs.shape
    unit_of = np.arange(n) if unit_of is None else unit_of
    a, gamma = cp.Variable(len(C), nonneg=True), cp.Variable(nonneg=True)
    zeta, h = cp.Variable(n_candidates, nonneg=True), cp.Variable((n_candidates, n_kernels))
    e = cp.Variable(n_candidates)
    inside, across = (p / (p - 1) if p > 1 else np.inf for p in norms)
    limits = [cp.sum(a) == 1]
    for t in range(n_candidates):
        for m in range(n_kernels):
            limits.append(cp.sum_squares(root(Ks[m]).T @ cp.multiply(signs[t, m], a[unit_of])) / 2 <= h[t, m])
        limits.append(cp.norm(h[t], inside) <= e[t])
    slack = cp.sum_squares(cp.multiply(a, 1 / np.sqrt(C))) / 2
    if norms[1] == 1:
        limits.append(e <= gamma + zeta)
        value = slack + gamma + theta * cp.sum(zeta)
    else:
        value = slack + cp.norm(e, across)
    return -solve(cp.Problem(cp.Minimize(value), limits)), a.value


# -- the problem -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("theta", [1.0, 0.5, 0.3, 0.2, 1 / T, 0.08])
@pytest.mark.parametrize("solver", ["newton", "alternating", "projected-gradient"])
def test_master_reaches_the_conic_optimum(theta, solver):
    """From the hard margin to caps that do not sum to one."""
    rng = np.random.default_rng(0)
    Ks, signs, C = kernels(N), rng.choice([-1, 1], size=(T, M, N)).astype(np.int8), rng.choice([1.0, 30.0], size=N)
    tol = 1e-4 if solver == "alternating" and theta == 1.0 else 1e-6
    labelled, ones = LabelledBank(InputKernels(bank(Ks)), signs), np.ones((N, 1))
    saddle = run(solver, Saddle(labelled, SimplexSVM(C), GroupSparse(M, theta), ones, Stopping(tol, 5000)))
    expected, _ = conic(Ks, signs, theta, C)
    assert saddle.converged
    assert saddle.lower - 1e-7 * abs(expected) <= expected <= saddle.upper + 1e-7 * abs(expected)
    assert saddle.upper == pytest.approx(expected, rel=3 * tol)


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


# -- settings, against the problem with explicit kernels ---------------------------------------------------------------


def assert_solved(model, X, C, theta=None, norms=(2.0, 1.0), center=True, unit_of=None):
    """Objective and gap enclose the value of the conic solver, and the weights reach it within the tolerance."""
    signs, Ks = model.candidates_, explicit_kernels(X, center)
    cap = np.inf if model.margin == "hard" else model.c_theta / len(signs) if theta is None else theta
    expected, _ = conic(Ks, signs, min(cap, 1.0), C, norms, unit_of)
    rounding = 1e-5 * abs(expected)  # the kernels of the model are in single precision
    assert model.objective_ - model.gap_ * abs(model.objective_) - rounding <= expected
    assert expected <= model.objective_ + rounding
    assert model.gap_ <= model.tol
    unit_of = np.arange(len(X)) if unit_of is None else unit_of
    B = np.equal.outer(np.arange(len(C)), unit_of).astype(float)
    combined = sum(
        K * (y.T @ (D[:, None] * y)) for K, D, y in zip(Ks, model.weights_, signs.swapaxes(0, 1), strict=True)
    )
    L, a = root(B @ combined @ B.T), cp.Variable(len(C), nonneg=True)
    value = cp.sum_squares(cp.multiply(a, 1 / np.sqrt(C))) / 2 + cp.sum_squares(L.T @ a) / 2
    reached = -solve(cp.Problem(cp.Minimize(value), [cp.sum(a) == 1]))
    assert expected - rounding <= reached <= expected + model.tol * abs(expected) + rounding


SETTINGS = [
    {"c_theta": 1.2},
    {"c_theta": 50.0},
    {"theta": 0.3},
    {"theta": 0.6},
    {"margin": "hard"},
    {"margin": "hard", "norms": (1.0, 1.0)},
    {"margin": "hard", "norms": (2.0, 2.0)},
    {"margin": "hard", "norms": (1.0, 2.0)},
    {"norms": (1.0, 1.0)},
    {"center": False},
    {"candidates": "shared"},
    {"C": 20.0, "C_unlabelled": 0.2},
    {"C": 1e7, "C_unlabelled": 5.0},
    {"tol": 1e-5},
]


@pytest.mark.filterwarnings("ignore:The search for labellings:sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_settings_of_few_labels(settings):
    X, _, few = moons(24, labelled=6)
    clf = kw.InputOutputKernelClassifier(kernels=TWO, **{"max_candidates": 4, "tol": 1e-2, "violation": 0.0} | settings)
    clf.fit(X, few)
    C = np.where(few < 0, clf.C_unlabelled, clf.C if clf.C < 1e7 else np.inf)  # a margin that is as good as hard
    assert clf.weights_.shape[1] > 1
    assert_solved(clf, X, C, clf.theta, clf.norms, clf.center)


@pytest.mark.parametrize("settings", [{}, {"C": 7.0}, {"imbalance": 0.5, "theta": 0.5}], ids=str)
def test_settings_of_clusterings(settings):
    X, _, _ = moons(24)
    model = kw.InputOutputKernelClustering(kernels=TWO, max_candidates=3, tol=1e-2, **settings).fit(X)
    assert_solved(model, X, np.full(24, model.C), model.theta)


@pytest.mark.parametrize("C", [1.0, 9.0])
@pytest.mark.parametrize("level", ["instance", "bag"])
def test_settings_of_bags(level, C):
    """All instances at C_unlabelled; or positive bags at that, and of negative ones all instances together."""
    sizes, y = np.array([3, 2, 4, 1, 5, 3]), np.array([1, 0, 1, 0, 0, 1])
    X = np.random.default_rng(0).standard_normal((18, 2)) + np.repeat(y, sizes)[:, None]
    bags = Bags(X, groups=np.repeat(np.arange(6), sizes))
    settings = {"level": level, "max_candidates": 3, "tol": 1e-2}
    clf = kw.InputOutputKernelClassifier("multiple-instance", TWO, C=50.0, C_unlabelled=C, **settings).fit(bags, y)
    by_bag = BagRepresentatives(bags, 2 * y - 1).unit_of if level == "bag" else None
    costs = np.full(18, C) if level == "instance" else C / np.array([1, 1, 1, 2, 2, 1, 5, 5, 5, 5, 5])
    assert_solved(clf, X, costs, unit_of=by_bag)


def test_violation_is_that_of_all_labellings():
    """One candidate: duals of the conic solver, energies of all labellings there are."""
    X, _, few = moons(16, labelled=6)
    Ks, known = explicit_kernels(X), np.where(few < 0, 0, 2 * few - 1)
    settings = {"max_candidates": 1, "tol": 1e-6, "margin": "hard", "C_unlabelled": 100.0}
    with pytest.warns(
        ConvergenceWarning, match="labellings stopped at 1 candidates.*Raise max_candidates or violation"
    ):
        clf = kw.InputOutputKernelClassifier(kernels=TWO, **settings).fit(X, few)
    _, a = conic(Ks, clf.candidates_, 1.0, np.full(16, 100.0))
    energies = [0.5 * np.einsum("ti,ik,tk->t", every * a, K, every * a) for K in Ks for every in [all_of(known)]]
    used = [0.5 * (a * y) @ K @ (a * y) for K, y in zip(Ks, clf.candidates_[0], strict=True)]
    expected = np.linalg.norm(np.max(energies, axis=1)) / np.linalg.norm(used) - 1
    assert clf.violation_ == pytest.approx(expected, rel=1e-3) and expected > 0.02


def all_of(known):
    return all_labelings(SemiSupervised(known, 0.5))


@pytest.mark.parametrize("violation", [0.02, 0.2])
def test_violation_to_stop_at(violation):
    """Every candidate but the first exceeded it when it was added, and no other one does."""
    X, _, few = moons(60, labelled=6)
    clf = narrow(margin="hard", violation=violation, max_candidates=60, tol=1e-4).fit(X, few)
    rows, n_candidates = clf.history_, clf.weights_.shape[1]
    excess = rows["found"] / rows["level"] - 1
    before = np.flatnonzero(np.diff(rows["generated"]))
    assert np.all(excess[before] > violation) and len(before) == n_candidates - 1 > 0
    assert clf.violation_ == pytest.approx(max(excess[-1], 0.0)) and 1e-2 < clf.violation_ <= violation


@pytest.mark.parametrize("seed", [16, 20, 24])
def test_a_soft_margin_ends_by_one_of_its_rules(seed):
    """The last candidate hardly changes the objective, or no other exceeds those in use; to weigh finer is neither."""
    X, y = make_moons(40, noise=0.2, random_state=seed)
    rng = np.random.default_rng(seed)
    rng.permutation(40)
    few, known = np.full(40, -1), rng.permutation(40)[:24]
    few[known] = y[known]
    clf = kw.InputOutputKernelClassifier(kernels=[kw.kernels.Gaussian(0.3), kw.kernels.Gaussian(2.0)]).fit(X, few)
    rows = clf.history_
    before = rows["upper"][rows["kernels"] < rows["kernels"][-1]]
    changed = abs(before[-1] / rows["upper"][-1] - 1) if len(before) else np.inf
    assert clf.violation_ <= clf.violation or changed <= clf.tol or rows["kernels"][-1] == clf.max_candidates


@pytest.mark.filterwarnings("ignore:The search for labellings:sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("norms", [(3.0, 3.0), (2.0, 2.0), (2.0, 1.0)])
@pytest.mark.parametrize("seed", [34, 35, 36])
def test_weights_attain_the_objective(norms, seed):
    """The machine at the weights that are reported is as good as the value that is reported, within its gap."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(12, 40))
    X = rng.normal(size=(n, 2))
    y = (X[:, 0] + 0.5 * rng.normal(size=n) > 0).astype(int)
    few = np.full(n, -1)
    for c in (0, 1):
        few[np.flatnonzero(y == c)[:3]] = c
    spec = kw.KernelBank([kw.kernels.Gaussian(0.1), kw.kernels.Linear()], normalise="center", dtype="float64")
    clf = kw.InputOutputKernelClassifier(kernels=spec, margin="hard", norms=norms, C_unlabelled=100.0).fit(X, few)
    combined = LabelledBank(InputKernels(spec.build(X)), clf.candidates_).combine(clf.weights_.T.ravel())
    solution = SimplexSVM(100.0).solve(combined, np.ones((n, 1)), accuracy=1e-10)
    assert solution.primal == pytest.approx(clf.objective_, rel=1.01 * clf.gap_ + 1e-8)
    assert clf.gap_ <= clf.tol


def test_values_too_large_for_their_precision():
    """Products of unscaled features: nobody vouches for more than the kernels in single precision tell."""
    X, y = load_wine(return_X_y=True)
    with pytest.warns(ConvergenceWarning, match="short of 1e-05. Scale the features, take KernelBank"):
        clf = kw.InputOutputKernelClassifier(kernels=kw.kernels.Linear(), tol=1e-5).fit(X[y < 2], y[y < 2])
    assert clf.gap_ > clf.tol
    spec = kw.KernelBank(kw.kernels.Linear(), normalise="center", dtype="float64")
    assert kw.InputOutputKernelClassifier(kernels=spec).fit(X[y < 2], y[y < 2]).gap_ <= 1e-3


def test_costs_beyond_all_measure():
    X, _, _ = moons(40)
    model = kw.InputOutputKernelClustering(C=1e17, max_candidates=3).fit(X)
    assert set(model.labels_) == {0, 1} and model.gap_ <= 1e-3


def test_weights_that_are_not_found(monkeypatch):
    """Two steps of a master are not enough for a small gap, which is then reported and warned of."""
    monkeypatch.setattr("kernelweave.generation.columns._MASTER_ITERATIONS", 2)
    X, _, few = moons(40)
    with pytest.warns(ConvergenceWarning, match="duality gap of .*, short of 1e-08"):
        clf = narrow(max_candidates=4, tol=1e-8, violation=0.0).fit(X, few)
    assert clf.gap_ > 1e-8
