"""ML-MKL-SA: its steps, its averages, its bounds, its refinement."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from problems import bank_of, binary, gaussian, solve

from kernelweave.machines import SVM, NuSVM, Ridge
from kernelweave.machines.worst_class import WorstClass
from kernelweave.solvers import Saddle, StochasticApproximation, Stopping, run
from kernelweave.solvers.stochastic import _Walk, estimates
from kernelweave.weights import Simplex


def many(n: int = 60, m: int = 12, seed: int = 0) -> tuple[NDArray, NDArray]:
    """Two kernels that all label columns need, four of noise: (6, n, n) and labels (n, m) of differing difficulty."""
    rng = np.random.default_rng(seed)
    Z = rng.standard_normal((n, 6))
    good = [gaussian(Z[:, :3] + 0.2 * rng.standard_normal((n, 3))), gaussian(Z[:, 3:])]
    noise = [gaussian(rng.standard_normal((n, 3))) for _ in range(4)]
    f = Z @ rng.standard_normal((6, m)) + np.linspace(0.2, 1.5, m) * rng.standard_normal((n, m))
    return np.stack(good + noise), np.where(f > np.median(f, axis=0), 1.0, -1.0)


def books(solver: Any, C: float = 1.0, tol: float = 1e-3, problem: Any = None) -> Saddle:
    Ks, Y = many() if problem is None else problem
    return run(solver, Saddle(bank_of(Ks), WorstClass(SVM(C)), Simplex(), Y, Stopping(tol=tol)))


def test_estimates_are_right_on_average() -> None:
    """Enumerated over all draws: exactly the slopes of sum_k g_k J_k in b and in g."""
    Ks, Y = many()
    b, m = np.array([0.3, 0.2, 0.2, 0.1, 0.1, 0.1]), Y.shape[1]
    K = np.tensordot(b, Ks, axes=1)
    parts = [SVM(1.0).solve(K, Y[:, [k]], accuracy=1e-9) for k in range(m)]
    H = np.array([[0.5 * float((p.coef * (K_j @ p.coef)).sum()) for K_j in Ks] for p in parts])
    J = np.array([p.dual for p in parts])
    shares = np.random.default_rng(0).dirichlet(np.full(m, 0.3))
    for smoothing in (0.2, 0.7, 1.0):
        drawn = StochasticApproximation(smoothing=smoothing).smoothed(shares)
        assert drawn.sum() == pytest.approx(1.0)
        each = [estimates(shares, drawn, k, H[k], J[k]) for k in range(m)]
        np.testing.assert_allclose(sum(q * e[0] for q, e in zip(drawn, each, strict=True)), -shares @ H, rtol=1e-12)
        np.testing.assert_allclose(sum(q * e[1] for q, e in zip(drawn, each, strict=True)), J, rtol=1e-12)


@pytest.mark.parametrize("variant", ["sampling", "mixing"])
def test_weights_and_shares_stay_on_their_simplices(variant: str) -> None:
    Ks, Y = many()
    saddle = Saddle(bank_of(Ks), WorstClass(SVM(100.0)), Simplex(), Y)
    # steps far too long: without logarithms they would overflow
    settings = StochasticApproximation(variant=variant, weight_step=1e3, class_step=1e3, random_state=0)
    walk = _Walk(settings, saddle, saddle.evaluate(saddle.initial))
    for _ in range(3 * Y.shape[1]):
        walk.draw()
        for mean in (walk.mean_weights, walk.mean_shares):
            assert np.all(mean >= 0) and mean.sum() == pytest.approx(1.0)
    assert np.all(np.isfinite(walk.log_weights)) and np.all(np.isfinite(walk.log_shares))
    point = walk.certify()
    assert Simplex().feasible(point.weights)
    np.testing.assert_array_equal(point.weights, walk.mean_weights)


def test_mixing_keeps_every_share_above_its_part() -> None:
    Ks, Y = many()
    saddle = Saddle(bank_of(Ks), WorstClass(SVM(1.0)), Simplex(), Y)
    settings = StochasticApproximation(variant="mixing", class_step=1.0, smoothing=0.3, random_state=0)
    walk = _Walk(settings, saddle, saddle.evaluate(saddle.initial))
    for _ in range(30):
        walk.draw()
    assert walk.mean_shares.min() >= 0.3 / Y.shape[1] - 1e-12


@pytest.mark.parametrize("seed", range(3))
def test_one_pass_improves_on_uniform_weights(seed: int) -> None:
    saddle = books(StochasticApproximation(random_state=seed))
    uniform, averaged = saddle.history["objective"]
    assert averaged < uniform
    assert saddle.upper == averaged
    assert saddle.best.weights[:2].sum() > 0.4  # a third at the start
    assert saddle.solves == 2 + many()[1].shape[1]


@pytest.mark.parametrize("variant", ["sampling", "mixing"])
@pytest.mark.parametrize("C", [1.0, 10.0])
def test_bounds_hold(variant: str, C: float) -> None:
    exact = books("level", C, tol=1e-6)
    for passes in (1, 4):
        saddle = books(StochasticApproximation(passes=passes, variant=variant, random_state=1), C)
        assert saddle.lower <= exact.upper and exact.lower <= saddle.upper
        assert saddle.gap == pytest.approx((saddle.upper - saddle.lower) / saddle.upper)
        assert 0 < saddle.gap < 0.5
        rows = saddle.history
        assert len(rows) == passes + 1
        assert np.all(np.diff(rows["upper"]) <= 0) and np.all(np.diff(rows["lower"]) >= 0)


def test_gap_of_the_averages_falls_with_more_passes() -> None:
    def mean_gap(passes: int) -> float:
        return float(np.mean([books(StochasticApproximation(passes, random_state=seed)).gap for seed in range(4)]))

    assert mean_gap(8) < mean_gap(1)


def test_the_best_point_is_kept_even_if_averages_are_worse() -> None:
    saddle = books(StochasticApproximation(weight_step=100.0, class_step=1.0, random_state=0))
    assert saddle.upper == saddle.history["objective"].min()


@pytest.mark.parametrize("C", [1.0, 10.0])
def test_refinement_reaches_the_optimum(C: float) -> None:
    refined = books(StochasticApproximation(refine=True, random_state=0), C, tol=1e-5)
    exact = books("level", C, tol=1e-5)
    assert refined.converged
    assert refined.upper == pytest.approx(exact.upper, rel=2e-5)


def test_one_column_approaches_ordinary_weights() -> None:
    Ks, y = binary()
    exact = solve("newton", Simplex(), SVM(1.0), Ks, y, tol=1e-6)
    saddle = books(StochasticApproximation(passes=60, random_state=0), problem=(Ks, y[:, None]))
    assert exact.lower <= saddle.upper <= 1.05 * exact.upper
    assert saddle.upper < saddle.history["objective"][0]


def test_draws_are_reproducible() -> None:
    one, same, other = (books(StochasticApproximation(random_state=seed)) for seed in (3, 3, 4))
    np.testing.assert_array_equal(one.best.weights, same.best.weights)
    assert np.any(one.best.weights != other.best.weights)


def test_nothing_to_learn_ends_at_once() -> None:
    Ks, Y = many()
    saddle = books("stochastic", problem=(np.stack([Ks[0]] * 3), Y), tol=2e-2)
    assert saddle.converged and len(saddle.history) == 1


def test_values_that_are_negative_or_of_another_loss() -> None:
    Ks, Y = many()
    for machine in (NuSVM(0.4), Ridge(1.0)):
        saddle = run(
            StochasticApproximation(passes=2, random_state=0), Saddle(bank_of(Ks), WorstClass(machine), Simplex(), Y)
        )
        exact = solve("level", Simplex(), WorstClass(machine), Ks, Y, tol=1e-4, max_iter=300)
        slack = 1e-9 * abs(exact.upper)
        assert exact.lower - slack <= saddle.upper and saddle.lower <= exact.upper + slack
        assert Simplex().feasible(saddle.best.weights)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"passes": 0}, "passes must be a whole number"),
        ({"passes": 1.5}, "passes must be a whole number"),
        ({"weight_step": 0.0}, "weight_step must be positive"),
        ({"class_step": np.inf}, "class_step must be positive"),
        ({"smoothing": 1.2}, "smoothing must lie in"),
        ({"variant": "both"}, "variant must be 'sampling' or 'mixing', got 'both'"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StochasticApproximation(**settings)
