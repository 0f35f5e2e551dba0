"""Newton steps by conjugate gradients against dense linear algebra."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from problems import binary

from kernelweave.machines.newton import Bend, Factor, _back_and_forth, lower_factor, newton_move


def kernel(n: int = 60, seed: int = 0) -> NDArray:
    Ks, _ = binary(n, seed)
    return 0.7 * Ks[1] + 0.3 * Ks[2]


def bent(n: int, seed: int = 0) -> Bend:
    """Second derivatives with a flat sixth, negative entries, and groups of four among the rest."""
    rng = np.random.default_rng(seed)
    flat = n // 6
    bound = np.concatenate([np.zeros(flat), rng.uniform(0.5, 3.0, n - flat)])
    own = bound * rng.uniform(-0.1, 1.0, n)
    along = np.where(bound > 0, rng.uniform(-0.3, 0.3, n), 0.0)
    members = rng.permutation(np.arange(flat, n))
    starts = np.arange(0, len(members) - 3, 4)
    return Bend(bound, own, along, rng.uniform(0.0, 0.2, len(starts)), members, starts, starts + 4)


def dense(bend: Bend) -> NDArray:
    H = np.diag(bend.own)
    for start, end, strength in zip(bend.starts, bend.ends, bend.strength, strict=True):
        u = np.zeros(len(H))
        u[bend.members[start:end]] = bend.along[bend.members[start:end]]
        H += strength * np.outer(u, u)
    return H


def exact(K: NDArray, bend: Bend, residual: NDArray, fit_intercept: bool) -> tuple[NDArray, float]:
    n, H = len(K), dense(bend)
    system = np.block([[np.eye(n) + H @ K, (H @ np.ones(n))[:, None]], [np.ones((1, n)), np.zeros((1, 1))]])
    if not fit_intercept:
        return np.linalg.solve(system[:n, :n], residual), 0.0
    solved = np.linalg.solve(system, np.append(residual, 0.0))
    return solved[:n], float(solved[n])


def gain(K: NDArray, bend: Bend, residual: NDArray, coef: NDArray, intercept: float) -> float:
    """How much the model falls along a step."""
    f = K @ coef + intercept
    return float(residual @ f - 0.5 * coef @ K @ coef - 0.5 * f @ dense(bend) @ f)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("old", [False, True], ids=["fresh factor", "old factor"])
@pytest.mark.parametrize("seed", range(4))
def test_finds_the_minimum_of_the_model(fit_intercept: bool, old: bool, seed: int) -> None:
    K, bend = kernel(seed=seed), bent(60, seed)
    rng = np.random.default_rng(seed + 10)
    residual = rng.standard_normal(60)
    # other samples, other bounds: the factor is only a preconditioner
    bound = np.where(rng.uniform(size=60) < 0.2, 0.0, rng.uniform(0.2, 6.0, 60)) if old else bend.bound
    factor = Factor.at(K, bound)
    move = newton_move(K, residual, bend, factor, fit_intercept)
    coef, intercept = exact(K, bend, residual, fit_intercept)
    best = gain(K, bend, residual, coef, intercept)
    assert best * (1 - 0.02) <= gain(K, bend, residual, move.coef, move.intercept) <= best * (1 + 1e-10)
    np.testing.assert_allclose(move.fitted, K @ move.coef, atol=1e-8)
    if fit_intercept:
        assert abs(move.coef.sum()) <= 1e-10 * np.abs(move.coef).sum()
    else:
        assert move.intercept == 0.0
    assert move.curved


def test_the_right_factor_needs_hardly_any_iterations() -> None:
    K, bound = kernel(), np.random.default_rng(0).uniform(0.5, 3.0, 60)
    residual = np.random.default_rng(1).standard_normal(60)
    move = newton_move(K, residual, Bend.diagonal(bound), Factor.at(K, bound), True)
    coef, intercept = exact(K, Bend.diagonal(bound), residual, True)
    assert move.iterations <= 2
    np.testing.assert_allclose(move.coef, coef, atol=1e-6 * np.abs(coef).max())
    assert move.intercept == pytest.approx(intercept, abs=1e-6)


def test_duals_of_samples_whose_loss_is_flat_vanish_altogether() -> None:
    """Were they only nearly solved, later iterations and later steps would have to read their kernel rows again."""
    K, bend = kernel(), bent(60)
    residual = np.random.default_rng(3).standard_normal(60)
    flat = np.flatnonzero(bend.bound == 0)
    move = newton_move(K, residual, bend, Factor.at(K, bend.bound), True)
    assert move.iterations > 2
    np.testing.assert_array_equal(move.coef[flat], residual[flat])


def test_a_model_that_falls_for_ever_is_followed_downhill_and_said_to_be() -> None:
    K, bound = kernel(), np.full(60, 2.0)
    bend = Bend.diagonal(bound)._replace(own=np.full(60, -50.0))
    residual = np.random.default_rng(1).standard_normal(60)
    move = newton_move(K, residual, bend, Factor.at(K, bound), True)
    assert not move.curved
    assert residual @ (move.fitted + move.intercept) > 0


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_a_loss_that_is_flat_everywhere_leaves_nothing_of_the_duals(fit_intercept: bool) -> None:
    K, duals = kernel(), np.random.default_rng(1).standard_normal(60)
    duals -= duals.mean()
    nothing = np.zeros(60)
    move = newton_move(K, -duals, Bend.diagonal(nothing), Factor.at(K, nothing), fit_intercept)
    np.testing.assert_allclose(move.coef, -duals, atol=1e-12)
    assert move.intercept == 0.0


@pytest.mark.parametrize("n", [0, 1, 3, 4, 5, 8, 30, 63])
def test_triangular_systems_are_solved_whatever_their_size(n: int) -> None:
    """Rows are taken four at a time, and those that are left one by one."""
    rng = np.random.default_rng(n)
    upper = np.triu(rng.uniform(-1, 1, (n, n))) / max(n, 1) + np.diag(rng.uniform(1, 2, n))
    x = rng.standard_normal(n)
    found = x.astype(np.float32)
    _back_and_forth(upper.astype(np.float32) + np.tril(np.full((n, n), np.nan, np.float32), -1), found)
    np.testing.assert_allclose(found, np.linalg.solve(upper.T @ upper, x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_ridge_grows_where_rounding_costs_definiteness(dtype: type) -> None:
    """A singular matrix without a ridge has no factor; with a small one it is still nearly the matrix."""
    X = np.random.default_rng(0).standard_normal((30, 3))
    K = (X @ X.T).astype(dtype)
    samples = np.arange(0, 30, 2)
    lower, ridge = lower_factor(K, samples, np.zeros(15), dtype)
    lower, size = np.tril(lower), float(K.diagonal().max())
    np.testing.assert_allclose(lower @ lower.T, K[np.ix_(samples, samples)] + np.diag(ridge), atol=3e-6 * size)
    assert np.all((ridge > 0) & (ridge < 2e-3 * size))


def test_refuses_kernels_that_are_far_from_definite() -> None:
    with pytest.raises(np.linalg.LinAlgError, match="far from positive semi-definite: check the kernel"):
        lower_factor(-np.eye(4), np.arange(3), np.full(3, 1e-3), np.float64)
