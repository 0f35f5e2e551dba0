"""Soft-margin MKL as a whole: ends, optimality conditions, relations between its forms, both machines."""

from __future__ import annotations

import numpy as np
import pytest
from conic import optimum
from problems import bank_of, binary, gaussian, solve
from sklearn.svm import SVC

import kernelweave as kw
from kernelweave.machines import SVM, Machine, NuSVM
from kernelweave.solvers import Saddle, Stopping, choose, run
from kernelweave.weights import (
    Average,
    CappedSimplex,
    ElasticNet,
    ElasticNetBall,
    LpBall,
    PowerPenalty,
    Simplex,
    TikhonovLp,
    WeightSet,
)

FORMS: dict[str, Machine] = {"C": SVM(1.0), "nu": NuSVM(0.4)}
each_form = pytest.mark.parametrize("machine", FORMS.values(), ids=FORMS)
SM1 = tuple(CappedSimplex(nu=nu) for nu in (0.125, 0.2, 0.4, 0.7, 1.0))
SM2 = tuple(ElasticNet(theta) for theta in (1e-2, 1.0, 100.0))


def eight(n: int = 40, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Five Gaussian kernels of which some tell the classes apart, and three of rank 3 that do not."""
    rng = np.random.default_rng(seed)
    y = np.where(rng.permutation(n) < n // 2, 1.0, -1.0)
    good = [gaussian(shift * y[:, None] + rng.standard_normal((n, 3))) for shift in (0.9, 0.7, 0.5, 0.3, 0.1)]
    noise = [F @ F.T / 3 for F in rng.standard_normal((3, n, 3))]
    return np.stack(good + noise), y


def duals(saddle: Saddle) -> np.ndarray:
    return saddle.best.solution.coef[:, 0]


# --- the optimum ----------------------------------------------------------------------------------------------------


@each_form
@pytest.mark.parametrize("weight_set", [*SM1, *SM2, PowerPenalty(1.5, 1.0), PowerPenalty(4.0, 1.0)], ids=repr)
@pytest.mark.parametrize("seed", [0, 1])
def test_value_and_weights_of_the_conic_solver(machine: Machine, weight_set: WeightSet, seed: int) -> None:
    Ks, y = eight(seed=seed)
    expected = optimum(weight_set, machine, Ks, y)
    saddle = solve("auto", weight_set, machine, Ks, y, tol=1e-6, max_iter=5000)
    assert saddle.converged
    assert saddle.upper == pytest.approx(expected.value, rel=1e-5)
    np.testing.assert_allclose(saddle.best.h, expected.h, rtol=2e-2, atol=2e-3 * expected.h.max())


@each_form
@pytest.mark.parametrize("weight_set", [CappedSimplex(nu=0.4), ElasticNet(1.0), PowerPenalty(3.0, 1.0)], ids=repr)
def test_block_descent_never_rises_and_gaps_close(machine: Machine, weight_set: WeightSet) -> None:
    saddle = solve("alternating", weight_set, machine, *eight(), tol=1e-4, max_iter=3000)
    rows = saddle.history
    assert saddle.converged
    assert np.all(rows["gap"] >= 0)
    # each value is known up to the machine's gap, a tenth of what is left
    assert np.all(np.diff(rows["objective"]) <= 0.1 * rows["gap"][:-1] * np.abs(rows["objective"][:-1]) + 1e-12)


@pytest.mark.parametrize("weight_set", [CappedSimplex(nu=0.3), ElasticNet(1.0)], ids=repr)
def test_newton_is_the_default_and_needs_few_solves(weight_set: WeightSet) -> None:
    assert choose(weight_set) == "newton" and choose(PowerPenalty(1.5)) == "mirror-descent"
    slow = solve("alternating", weight_set, SVM(10.0), *eight(), tol=1e-5, max_iter=20_000)
    fast = solve("newton", weight_set, SVM(10.0), *eight(), tol=1e-5)
    assert slow.converged and fast.converged
    assert fast.upper == pytest.approx(slow.upper, rel=1e-5)
    assert fast.solves <= 15


# --- SM1: the capped simplex ----------------------------------------------------------------------------------------


@each_form
def test_ends_of_nu_are_l1_and_the_average(machine: Machine) -> None:
    Ks, y = eight()
    for end, twin in ((1 / 8, Simplex()), (1.0, Average())):
        saddle = solve("auto", CappedSimplex(nu=end), machine, Ks, y, tol=1e-7)
        other = solve("auto", twin, machine, Ks, y, tol=1e-7)
        assert saddle.upper == pytest.approx(other.upper, rel=2e-7)
        np.testing.assert_allclose(saddle.best.weights, other.best.weights, atol=1e-3)


def test_nu_of_one_is_one_svm_on_the_mean_kernel() -> None:
    Ks, y = eight()
    saddle = solve("auto", CappedSimplex(nu=1.0), SVM(1.0), Ks, y, tol=1e-9)
    np.testing.assert_array_equal(saddle.best.weights, 1 / 8)
    model = SVC(C=1.0, kernel="precomputed", tol=1e-8).fit(Ks.mean(axis=0), y)
    found = Ks.mean(axis=0) @ duals(saddle) + saddle.best.solution.intercept
    np.testing.assert_allclose(found, model.decision_function(Ks.mean(axis=0)), atol=1e-4)


@each_form
def test_value_grows_with_nu(machine: Machine) -> None:
    """A smaller cap is a smaller set to minimise over."""
    values = [solve("auto", CappedSimplex(nu=nu), machine, *eight(), tol=1e-7).upper for nu in np.linspace(0.1, 1, 10)]
    assert np.all(np.diff(values) >= -1e-6 * np.abs(values[0]))


@each_form
@pytest.mark.parametrize("nu", [0.2, 0.3, 0.45, 0.7])
def test_nu_property_and_threshold(machine: Machine, nu: float) -> None:
    weight_set = CappedSimplex(nu=nu)
    saddle = solve("newton", weight_set, machine, *eight(), tol=1e-8)
    b, h, cap = saddle.best.weights, saddle.best.h, weight_set.cap(8)
    assert saddle.converged
    full, used = b >= cap * (1 - 1e-9), b > 0
    assert full.sum() <= nu * 8 * (1 + 1e-9) and nu * 8 * (1 - 1e-9) <= used.sum()
    slack = 1e-3 * h.max()
    assert h[~used].max(initial=-np.inf) <= h[used].min() + slack
    assert h[~full].max(initial=-np.inf) <= h[full].min(initial=np.inf) + slack
    between = used & ~full
    assert np.ptp(h[between]) <= slack if between.any() else True


def test_scaling_the_kernels_leaves_the_nu_form_alone() -> None:
    Ks, y = eight()
    machine, weight_set = NuSVM(0.4), CappedSimplex(nu=0.4)
    plain = solve("newton", weight_set, machine, Ks, y, tol=1e-9)
    scaled = solve("newton", weight_set, machine, 7 * Ks, y, tol=1e-9)
    np.testing.assert_allclose(scaled.best.weights, plain.best.weights, atol=1e-4)
    np.testing.assert_allclose(duals(scaled), duals(plain), atol=1e-4)
    assert scaled.upper == pytest.approx(7 * plain.upper, rel=1e-7)


@pytest.mark.parametrize("solver", ["newton", "level", "cutting-plane", "projected-gradient", "alternating"])
def test_a_cap_that_cannot_sum_to_one_is_refused_before_anything_runs(solver: str) -> None:
    Ks, y = eight()
    with pytest.raises(ValueError, match=r"8 weights of at most theta=0\.1 cannot sum to one"):
        solve(solver, CappedSimplex(theta=0.1), SVM(), Ks, y)


# --- SM2: the elastic net -------------------------------------------------------------------------------------------


@each_form
@pytest.mark.parametrize("weight_set", [*SM2, PowerPenalty(4.0, 1.0)], ids=repr)
def test_weights_are_the_response_to_their_energies(machine: Machine, weight_set: WeightSet) -> None:
    saddle = solve("newton", weight_set, machine, *eight(), tol=1e-10)
    assert saddle.converged
    np.testing.assert_allclose(saddle.best.weights, weight_set.respond(saddle.best.h), atol=2e-3)


@each_form
def test_ends_of_theta_are_the_average_and_l1(machine: Machine) -> None:
    Ks, y = eight()
    small = solve("auto", ElasticNet(1e-8), machine, Ks, y, tol=1e-12)
    np.testing.assert_allclose(small.best.weights, 1 / 8, atol=1e-5)
    large = solve("auto", ElasticNet(1e9), machine, Ks, y, tol=1e-7)
    assert large.upper == pytest.approx(solve("auto", Simplex(), machine, Ks, y, tol=1e-7).upper, rel=1e-6)


@pytest.mark.parametrize("v", [0.2, 0.5, 0.9])
@each_form
def test_elastic_net_ball_has_a_twin_on_the_simplex(machine: Machine, v: float) -> None:
    Ks, y = eight()
    ball = solve("newton", ElasticNetBall(v), machine, Ks, y, tol=1e-10)
    b, h = ball.best.weights, ball.best.h
    net, r = ElasticNetBall(v).on_simplex(b, h)
    if isinstance(machine, SVM):
        twin = solve("newton", net, SVM(r * machine.C), Ks, y, tol=1e-10)
        np.testing.assert_allclose(duals(twin), r * duals(ball), atol=5e-3 * r)
    else:
        twin = solve("newton", ElasticNet(net.theta * r**2), machine, Ks, y, tol=1e-10)
        np.testing.assert_allclose(duals(twin), duals(ball), atol=1e-3)
    np.testing.assert_allclose(twin.best.weights, b / r, atol=1e-3)


# --- the square loss ------------------------------------------------------------------------------------------------


def test_square_loss_is_l2_whatever_its_price() -> None:
    """R = |b|^2 / (2 theta) on all of b >= 0, nu-form: theta scales the weights and leaves the duals alone."""
    Ks, y = eight()
    machine = NuSVM(0.4)
    l2 = solve("newton", LpBall(2.0), machine, Ks, y, tol=1e-10)
    for theta in (0.3, 40.0):
        square = solve("alternating", TikhonovLp(2.0, 1 / theta), machine, Ks, y, tol=1e-9, max_iter=5000)
        assert square.converged
        np.testing.assert_allclose(duals(square), duals(l2), atol=1e-3)
        weights = square.best.weights
        np.testing.assert_allclose(weights / np.linalg.norm(weights), l2.best.weights, atol=1e-3)
        np.testing.assert_allclose(weights, theta * square.best.h, rtol=1e-2, atol=1e-3 * weights.max())


# --- symmetries and degenerate input --------------------------------------------------------------------------------


@pytest.mark.parametrize("weight_set", [CappedSimplex(nu=0.4), ElasticNet(1.0)], ids=repr)
def test_permuting_kernels_permutes_the_weights(weight_set: WeightSet) -> None:
    Ks, y = eight()
    order = np.random.default_rng(0).permutation(8)
    plain = solve("newton", weight_set, SVM(1.0), Ks, y, tol=1e-8)
    permuted = solve("newton", weight_set, SVM(1.0), Ks[order], y, tol=1e-8)
    np.testing.assert_allclose(permuted.best.weights, plain.best.weights[order], atol=1e-3)


@each_form
@pytest.mark.parametrize("weight_set", [CappedSimplex(theta=0.31), ElasticNet(10.0)], ids=repr)
@pytest.mark.parametrize("solver", ["newton", "projected-gradient", "cutting-plane"])
def test_a_zero_kernel_gets_no_weight_where_there_is_room(solver: str, weight_set: WeightSet, machine: Machine) -> None:
    if isinstance(machine, NuSVM) and isinstance(weight_set, ElasticNet):
        weight_set = ElasticNet(1e4)  # energies of duals that sum to one are small
    Ks, y = eight()
    saddle = solve(solver, weight_set, machine, np.concatenate([Ks, 0 * Ks[:1]]), y, tol=1e-6)
    assert saddle.converged
    assert saddle.best.weights[8] <= 1e-3


@pytest.mark.parametrize("weight_set", [CappedSimplex(nu=0.5), ElasticNet(1.0)], ids=repr)
@each_form
def test_only_zero_kernels_leave_finite_weights(weight_set: WeightSet, machine: Machine) -> None:
    _, y = eight()
    saddle = solve("auto", weight_set, machine, np.zeros((4, len(y), len(y))), y, tol=1e-6, max_iter=50)
    assert weight_set.feasible(saddle.best.weights) and np.all(np.isfinite(duals(saddle)))


@pytest.mark.parametrize("weight_set", [CappedSimplex(nu=0.5), ElasticNet(1.0)], ids=repr)
def test_inseparable_classes_end_the_nu_form(weight_set: WeightSet) -> None:
    """One kernel of rank 3 and overlapping classes: the optimum is zero, where a relative gap means nothing."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 3))
    y = np.where(np.arange(40) % 2 == 0, 1.0, -1.0)
    for Ks in (np.stack([X @ X.T]), np.stack([X @ X.T, 2 * X @ X.T])):
        saddle = run("auto", Saddle(bank_of(Ks), NuSVM(0.2), weight_set, y[:, None], Stopping(1e-3, max_iter=30)))
        assert np.all(np.isfinite(duals(saddle))) and weight_set.feasible(saddle.best.weights)
        assert abs(saddle.best.weights @ saddle.best.h) <= 1e-6


@pytest.mark.parametrize("weight_set", [CappedSimplex(nu=0.5), ElasticNet(0.1)], ids=repr)
def test_several_label_columns(weight_set: WeightSet) -> None:
    Ks, y = binary()
    Y = np.stack([y, np.where(np.arange(len(y)) % 3 == 0, 1.0, -1.0)], axis=1)
    saddle = solve("auto", weight_set, SVM(1.0), Ks, Y, tol=1e-5)
    expected = optimum(weight_set, SVM(1.0), Ks, Y).value
    assert saddle.converged and saddle.upper == pytest.approx(expected, rel=2e-5)


# --- in the estimator -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weight_set", [CappedSimplex(nu=0.5), ElasticNet(0.1), PowerPenalty(3.0)], ids=repr)
def test_classifier_takes_the_sets(weight_set: WeightSet) -> None:
    views, y = kw.datasets.make_views(n_samples=90, n_noise=3, n_classes=3, random_state=0)
    model = kw.MKLClassifier(kernels=kw.kernels.Gaussian(), weights=weight_set).fit(views, y)
    assert model.converged_ and model.score(views, y) > 0.8
    for weights in model.weights_:
        assert weight_set.feasible(weights)


def test_classifier_names_a_cap_that_is_too_small() -> None:
    views, y = kw.datasets.make_views(n_samples=60, random_state=0)
    with pytest.raises(ValueError, match="cannot sum to one"):
        kw.MKLClassifier(kernels=kw.kernels.Gaussian(), weights=CappedSimplex(theta=0.01)).fit(views, y)
