"""Constrained and penalised lp problems are the same problem: checked on whole problems by a conic solver."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

from kernelweave.weights import LpBall, Simplex, TikhonovLp
from kernelweave.weights._equations import conjugate

COST = 0.2  # small enough that some alpha reach it, so that the factor on C matters


def problem_data() -> tuple[np.ndarray, np.ndarray]:
    """Square roots of three kernels (3, 4, 12), so that u_j = ||root_j v||^2, and labels."""
    rng = np.random.default_rng(5)
    y = np.repeat([-1.0, 1.0], 6)
    roots = rng.normal(size=(3, 4, 12)) + np.array([0.5, 0.3, 0.1])[:, None, None] * y
    return roots, y


def solve_dual(weight_set: LpBall | TikhonovLp, cost: float) -> tuple[float, np.ndarray, np.ndarray]:
    """Value, alpha and energies h of max sum(alpha) - support(h(alpha)), 0 <= alpha <= cost."""
    roots, y = problem_data()
    alpha, bound = cp.Variable(12), cp.Variable(3)
    size = cp.pnorm(bound, conjugate(weight_set.p))
    support = size if isinstance(weight_set, LpBall) else cp.square(size) / (2 * weight_set.strength)
    energies = [cp.sum_squares(root @ cp.multiply(alpha, y)) / 2 for root in roots]
    constraints = [alpha >= 0, alpha <= cost, *(e <= bound[j] for j, e in enumerate(energies))]
    value = cp.Problem(cp.Maximize(cp.sum(alpha) - support), constraints).solve(solver=cp.CLARABEL)
    return value, alpha.value, np.array([e.value for e in energies])


@pytest.mark.parametrize("p", [1.0, 4 / 3, 2.0, 4.0])
def test_constrained_to_penalised_keeps_solution_and_cost(p: float) -> None:
    value, _, h = solve_dual(LpBall(p), COST)
    twin = LpBall(p).penalised(h)
    twin_value, _, twin_h = solve_dual(twin, COST)
    assert twin.p == p
    assert twin_value == pytest.approx(value + twin.strength / 2, rel=1e-6)
    np.testing.assert_allclose(twin_h, h, rtol=1e-3)
    if p > 1:  # at p = 1 the weights are not a function of h
        np.testing.assert_allclose(twin.respond(twin_h), LpBall(p).respond(h), atol=1e-3)


@pytest.mark.parametrize("p", [4 / 3, 2.0, 4.0])
def test_penalised_to_constrained_scales_the_cost(p: float) -> None:
    penalised = TikhonovLp(p, strength=0.3)
    _, alpha, h = solve_dual(penalised, COST)
    b = penalised.respond(h)
    ball, factor = penalised.constrained(b)
    assert ball == LpBall(p)
    _, ball_alpha, ball_h = solve_dual(ball, factor * COST)
    np.testing.assert_allclose(ball.respond(ball_h), b / factor, atol=1e-3)
    np.testing.assert_allclose(ball_alpha, factor * alpha, atol=1e-3 * factor * COST)


def test_there_and_back() -> None:
    h = np.array([0.2, 1.0, 0.7])
    for p in (1.5, 2.0, 5.0):
        twin = LpBall(p).penalised(h)
        ball, factor = twin.constrained(twin.respond(h))
        assert ball == LpBall(p) and factor == pytest.approx(1.0, rel=1e-12)
    assert Simplex().penalised(h) == TikhonovLp(1.0, 1.0)


def test_zero_weights_have_no_constrained_twin() -> None:
    with pytest.raises(ValueError, match="all optimal weights are zero"):
        TikhonovLp(2).constrained(np.zeros(3))
