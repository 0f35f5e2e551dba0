"""Laws of the problem itself, which every way of solving it must respect: limits, scales, symmetries, closed forms."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from conic import root
from numpy.typing import NDArray
from problems import binary, gaussian, regression, solve

from kernelweave.machines import SVM, NuSVM, Ridge
from kernelweave.solvers import SOLVERS, Saddle
from kernelweave.weights import (
    Average,
    BlockElasticNet,
    CappedSimplex,
    ElasticNet,
    ElasticNetBall,
    Entropy,
    Fixed,
    Grouped,
    LpBall,
    Simplex,
    Single,
    Sum,
    TikhonovLp,
    WeightSet,
)

EXACT = 1e-8


def solvers_of(*sets: WeightSet) -> list[tuple[str, WeightSet]]:
    works = {name: solver for name, solver in SOLVERS.items() if solver.machine.fits(SVM(), 1)}
    return [(name, weight_set) for weight_set in sets for name, solver in works.items() if solver.fits(weight_set)]


def value(weight_set: WeightSet, C: float = 1.0, tol: float = EXACT) -> float:
    saddle = solve("auto", weight_set, SVM(C), *binary(), tol=tol, max_iter=20_000)
    assert saddle.converged
    return saddle.upper


def decision(saddle: Saddle, Ks: NDArray) -> NDArray:
    best = saddle.best
    return (np.tensordot(best.effective, Ks, axes=1) @ best.solution.coef)[:, 0] + best.solution.intercept


# --- limits ---------------------------------------------------------------------------------------------------------


def test_large_p_tends_to_the_sum_kernel() -> None:
    values = [value(LpBall(p), tol=1e-7) for p in (2.0, 16.0, 256.0, 4096.0)]
    assert np.all(np.diff(values) < 0)
    assert values[-1] == pytest.approx(value(Sum()), rel=1e-3)
    assert value(LpBall(np.inf)) == pytest.approx(value(Sum()), rel=2 * EXACT)
    weights = solve("auto", LpBall(4096.0), SVM(1.0), *binary(), tol=1e-7).best.weights
    assert weights.min() > 0.99


def test_p_near_one_tends_to_l1() -> None:
    values = [value(LpBall(p), tol=1e-7) for p in (1.5, 1.1, 1.01, 1.001)]
    assert np.all(np.diff(values) > 0)
    assert values[-1] == pytest.approx(value(Simplex()), rel=2e-3)
    assert value(LpBall(1.0)) == pytest.approx(value(Simplex()), rel=2 * EXACT)


@pytest.mark.parametrize("tau", [1e-2, 1e-3])
def test_weak_entropy_tends_to_l1(tau: float) -> None:
    """The entropy of s weights lies between 0 and ln s, so the values differ by at most tau ln s."""
    entropic = value(Entropy(tau), tol=1e-6)
    assert value(Simplex()) - tau * np.log(5) - 1e-5 <= entropic <= value(Simplex()) + 1e-5


def test_strong_entropy_tends_to_the_average() -> None:
    tau = 1e4
    saddle = solve("auto", Entropy(tau), SVM(1.0), *binary(), tol=1e-12)
    np.testing.assert_allclose(saddle.best.weights, 0.2, atol=1e-3)
    assert saddle.upper + tau * np.log(5) == pytest.approx(value(Average()), rel=1e-3)


def test_ends_of_the_elastic_nets() -> None:
    assert value(ElasticNetBall(1.0)) == pytest.approx(value(Simplex()), rel=2 * EXACT)
    assert value(ElasticNetBall(0.0)) == pytest.approx(value(LpBall(2.0)), rel=2 * EXACT)
    between = [value(ElasticNetBall(v)) for v in (0.0, 0.2, 0.6, 0.95, 1.0)]
    assert np.all(np.diff(between) > 0)
    assert value(BlockElasticNet(1.0)) == pytest.approx(value(Sum()), rel=2 * EXACT)
    assert value(BlockElasticNet(0.9999), tol=1e-6) == pytest.approx(value(Sum()), rel=1e-3)


def test_block_elastic_net_tends_to_the_group_lasso() -> None:
    """mu -> 0 is sum_j |f_j| + C' loss: the solution of l1 at cost C if C' = C / sum_j |f_j|."""
    Ks, y = binary()
    squared = solve("newton", Simplex(), SVM(1.0), Ks, y, tol=EXACT)
    R = squared.best.norms.sum()
    lasso = solve("auto", BlockElasticNet(1e-4), SVM(1.0 / R), Ks, y, tol=1e-6, max_iter=20_000)
    expected = R + squared.best.solution.loss / R
    assert lasso.converged
    assert lasso.upper == pytest.approx(expected, rel=1e-3)


def test_groups_at_their_ends() -> None:
    assert value(Grouped([0] * 5)) == pytest.approx(value(Simplex()), rel=2 * EXACT)
    assert value(Grouped(range(5))) == pytest.approx(value(Sum()), rel=2 * EXACT)
    one_group = [value(Grouped([0] * 5, r=r), tol=1e-6) for r in (2.0, np.inf)]
    np.testing.assert_allclose(one_group, value(Simplex()), rtol=3e-6)
    # r = inf with groups of one kernel: 1/2 max_g |f_g|^2, the smallest regulariser of all
    assert value(Grouped(range(5), r=np.inf), tol=1e-5) < value(Grouped(range(5), r=2.0), tol=1e-5) < value(Sum())


def test_learned_weights_beat_every_point_of_their_set() -> None:
    l1 = value(Simplex())
    assert l1 <= value(Average())
    assert all(l1 <= value(Single(j)) for j in range(5))
    rng = np.random.default_rng(0)
    for weight_set in (Simplex(), LpBall(2.0), ElasticNetBall(0.5), Grouped([0, 0, 1, 1, 1]), CappedSimplex(nu=0.5)):
        best = value(weight_set)
        for _ in range(5):
            b = weight_set.project(rng.exponential(size=5))
            assert best <= value(Fixed(b), tol=1e-6) * (1 + 1e-6)


def test_average_is_fixed_uniform_weights() -> None:
    assert value(Average()) == value(Fixed([0.2] * 5))
    assert value(Sum(), C=1.0) == pytest.approx(value(Average(), C=5.0) / 5, rel=2 * EXACT)


# --- scales ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "weight_set", [Simplex(), LpBall(2.0), LpBall(4 / 3), ElasticNetBall(0.5), CappedSimplex(nu=0.5)], ids=repr
)
@pytest.mark.parametrize("factor", [1e-3, 7.0, 1e4])
def test_scaling_kernels_and_cost_leaves_the_decision_function(weight_set: WeightSet, factor: float) -> None:
    Ks, y = binary()
    plain = solve("newton", weight_set, SVM(2.0), Ks, y, tol=EXACT)
    scaled = solve("newton", weight_set, SVM(2.0 / factor), factor * Ks, y, tol=EXACT)
    assert scaled.converged
    assert factor * scaled.upper == pytest.approx(plain.upper, rel=2 * EXACT)
    np.testing.assert_allclose(scaled.best.weights, plain.best.weights, atol=2e-3)
    np.testing.assert_allclose(decision(scaled, factor * Ks), decision(plain, Ks), atol=5e-3)


@pytest.mark.parametrize("p", [1.0, 4 / 3, 2.0, 4.0])
def test_value_at_uniform_weights_is_the_average_at_a_larger_cost(p: float) -> None:
    """Uniform lp weights s^(-1/p) act like the average kernel at cost s^(1 - 1/p) C."""
    Ks, y = binary()
    size = 5.0 ** (1 - 1 / p)
    uniform = solve("auto", Fixed(LpBall(p).start(5)), SVM(2.0), Ks, y, tol=EXACT)
    average = solve("auto", Average(), SVM(2.0 * size), Ks, y, tol=EXACT)
    assert size * uniform.upper == pytest.approx(average.upper, rel=2 * EXACT)


# --- symmetries -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("solver", "weight_set"), solvers_of(Simplex(), LpBall(2.0)), ids=repr)
def test_permuting_kernels_permutes_the_weights(solver: str, weight_set: WeightSet) -> None:
    Ks, y = binary()
    order = np.array([3, 0, 4, 2, 1])
    plain = solve(solver, weight_set, SVM(1.0), Ks, y, tol=1e-5)
    permuted = solve(solver, weight_set, SVM(1.0), Ks[order], y, tol=1e-5)
    assert permuted.upper == pytest.approx(plain.upper, rel=2e-5)
    np.testing.assert_allclose(permuted.best.weights, plain.best.weights[order], atol=2e-2)


@pytest.mark.parametrize(("solver", "weight_set"), solvers_of(Simplex(), LpBall(2.0)), ids=repr)
def test_duplicate_kernels_share_their_weight(solver: str, weight_set: WeightSet) -> None:
    Ks, y = binary()
    doubled = np.concatenate([Ks, Ks[:1]])
    saddle = solve(solver, weight_set, SVM(1.0), doubled, y, tol=1e-5)
    assert saddle.converged
    weights = saddle.best.weights
    if isinstance(weight_set, Simplex):
        once = solve(solver, weight_set, SVM(1.0), Ks, y, tol=1e-5)
        assert saddle.upper == pytest.approx(once.upper, rel=2e-5)
        assert weights[0] + weights[5] == pytest.approx(once.best.weights[0], abs=2e-2)
    else:  # a strictly convex set has one solution, and it is symmetric
        assert weights[0] == pytest.approx(weights[5], abs=1e-3)


@pytest.mark.parametrize(
    ("solver", "weight_set"),
    solvers_of(
        *(Simplex(), LpBall(2.0), ElasticNetBall(0.5), BlockElasticNet(0.5), Grouped([0, 0, 1, 1, 1, 1])),
        *(CappedSimplex(theta=0.4), ElasticNet(10.0)),
    ),
    ids=repr,
)
def test_a_zero_kernel_gets_no_weight(solver: str, weight_set: WeightSet) -> None:
    Ks, y = binary()
    saddle = solve(solver, weight_set, SVM(1.0), np.concatenate([Ks, np.zeros_like(Ks[:1])]), y, tol=1e-6)
    assert saddle.converged
    # at p = 2 the value depends on this weight only in second order
    assert saddle.best.weights[5] <= 1e-2 * saddle.best.weights.max()
    smaller = Grouped([0, 0, 1, 1, 1]) if isinstance(weight_set, Grouped) else weight_set
    assert saddle.upper == pytest.approx(value(smaller), rel=2e-6)


@pytest.mark.parametrize(("solver", "weight_set"), solvers_of(Simplex(), LpBall(2.0), LpBall(1.0)), ids=repr)
def test_only_zero_kernels(solver: str, weight_set: WeightSet) -> None:
    """The best function is a constant that errs on the smaller class, whatever the weights."""
    _, y = binary()
    saddle = solve(solver, weight_set, SVM(0.7), np.zeros((3, len(y), len(y))), y, tol=1e-6)
    assert saddle.converged
    assert saddle.upper == pytest.approx(2 * 0.7 * min((y > 0).sum(), (y < 0).sum()))


@pytest.mark.parametrize(
    ("solver", "weight_set"),
    solvers_of(
        *(Simplex(), LpBall(2.0), LpBall(np.inf), ElasticNetBall(0.5), Entropy(1.0), Grouped([0])),
        CappedSimplex(nu=0.5),
    ),
    ids=repr,
)
def test_one_kernel_is_the_plain_machine(solver: str, weight_set: WeightSet) -> None:
    Ks, y = binary()
    saddle = solve(solver, weight_set, SVM(2.0), Ks[:1], y, tol=1e-7)
    alone = SVM(2.0).solve(Ks[0], y[:, None], accuracy=1e-10)
    assert saddle.converged
    assert saddle.upper == pytest.approx(alone.primal, rel=2e-7)
    np.testing.assert_allclose(saddle.best.weights, [1.0], atol=1e-9)


# --- closed forms ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("solver", "weight_set"), solvers_of(Simplex(), LpBall(2.0)), ids=repr)
def test_small_cost_has_a_closed_form(solver: str, weight_set: WeightSet) -> None:
    """If C y_i (K_j y)_i <= 1 for all i, j, all duals are C, so u_j = C^2 y'K_j y: unnormalised alignment decides."""
    Ks, y = binary()
    C = 0.9 / max(np.max(y * (K @ y)) for K in Ks)
    h = 0.5 * C**2 * np.array([y @ K @ y for K in Ks])
    saddle = solve(solver, weight_set, SVM(C, fit_intercept=False), Ks, y, tol=1e-8)
    expected = h.max() if isinstance(weight_set, Simplex) else np.linalg.norm(h)
    assert saddle.converged
    assert len(y) * C - saddle.upper == pytest.approx(expected, rel=1e-6)
    assert np.argmax(saddle.best.weights) == np.argmax(h)


@pytest.mark.parametrize("p", [1.0, 4 / 3, 2.0, 4.0])
@pytest.mark.parametrize("C", [1.0, 20.0])
def test_value_of_the_block_norm_problem(p: float, C: float) -> None:
    """Minimised over the weights the regulariser is 1/2 (sum_j |f_j|^r)^(2/r), r = 2p / (p + 1): solved in features."""
    Ks, y = binary()
    r = 2 * p / (p + 1)
    roots = [root(K) for K in Ks]
    parts = [cp.Variable(L.shape[1]) for L in roots]
    bias = cp.Variable()
    f = sum(L @ w for L, w in zip(roots, parts, strict=True)) + bias
    norms = cp.hstack([cp.norm(w) for w in parts])
    block = cp.sum(norms) if p == 1 else cp.pnorm(norms, r)
    objective = 0.5 * cp.square(block) + C * cp.sum(cp.pos(1 - cp.multiply(y, f)))
    expected = cp.Problem(cp.Minimize(objective)).solve(solver=cp.CLARABEL)
    saddle = solve("newton", LpBall(p), SVM(C), Ks, y, tol=1e-7)
    assert saddle.upper == pytest.approx(expected, rel=1e-5)
    found = saddle.best.norms
    assert 0.5 * np.sum(found**r) ** (2 / r) == pytest.approx(saddle.best.weights @ saddle.best.h, rel=1e-3)
    lengths = np.array([np.linalg.norm(w.value) for w in parts])
    np.testing.assert_allclose(found, lengths, atol=2e-2 * lengths.max())


@pytest.mark.parametrize("weight_set", [Simplex(), LpBall(2.0)], ids=repr)
def test_slope_of_the_value_is_minus_h(weight_set: WeightSet) -> None:
    """(G) through the whole of Saddle.evaluate, penalty included where there is one."""
    Ks, y = binary()
    saddle = solve("newton", weight_set, SVM(1.0), Ks, y, tol=1e-2)
    b = np.array([0.3, 0.1, 0.15, 0.25, 0.2])
    point = saddle.evaluate(b, accuracy=1e-12)
    for j in range(5):
        step = 1e-5 * np.eye(5)[j]
        up, down = (saddle.evaluate(b + t * step, near=point, accuracy=1e-12).value for t in (1, -1))
        assert (up - down) / 2e-5 == pytest.approx(-point.h[j], rel=1e-4)


@pytest.mark.parametrize("p", [4 / 3, 2.0, 4.0])
def test_constrained_and_penalised_lp_have_the_same_solution(p: float) -> None:
    Ks, y = binary()
    ball = solve("newton", LpBall(p), SVM(1.0), Ks, y, tol=EXACT)
    twin = LpBall(p).penalised(ball.best.h)
    assert isinstance(twin, TikhonovLp)
    for solver in ("smo", "alternating", "projected-gradient", "cutting-plane"):
        penalised = solve(solver, twin, SVM(1.0), Ks, y, tol=1e-6, max_iter=5000)
        assert penalised.converged
        assert penalised.upper == pytest.approx(ball.upper + twin.strength / 2, rel=2e-6)
        np.testing.assert_allclose(penalised.best.weights, ball.best.weights, atol=5e-3)
    back, factor = twin.constrained(penalised.best.weights)
    assert back == LpBall(p) and factor == pytest.approx(1.0, abs=5e-3)


def test_noise_kernels_get_little_l1_weight() -> None:
    rng = np.random.default_rng(0)
    n = 150
    y = np.where(np.arange(n) % 2 == 0, 1.0, -1.0)
    good = [gaussian(1.2 * y[:, None] + rng.standard_normal((n, 3))) for _ in range(2)]
    noise = [gaussian(rng.standard_normal((n, 3)), width=4.0) for _ in range(8)]
    saddle = solve("newton", Simplex(), SVM(1.0), np.stack(good + noise), y, tol=1e-4)
    assert saddle.best.weights[:2].sum() > 0.8
    assert np.mean(saddle.best.weights[2:] == 0) >= 0.5


@pytest.mark.parametrize("machine", [NuSVM(0.4), Ridge(1.0)], ids=repr)
def test_machines_agree_on_the_laws(machine: NuSVM | Ridge) -> None:
    Ks, y = regression() if isinstance(machine, Ridge) else binary()
    l1 = solve("newton", Simplex(), machine, Ks, y, tol=1e-7)
    doubled = solve("newton", Simplex(), machine, np.concatenate([Ks, Ks]), y, tol=1e-7)
    assert l1.converged and doubled.converged
    assert doubled.upper == pytest.approx(l1.upper, rel=1e-6)
    alone = [machine.solve(K, y[:, None], accuracy=1e-9).primal for K in Ks]
    assert l1.upper <= min(alone) + 1e-9
