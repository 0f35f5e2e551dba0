"""Groups of kernels: the factors of the adversary for r > 1, and the ways to write groups."""

from __future__ import annotations

from types import SimpleNamespace

import cvxpy as cp
import numpy as np
import pytest

from kernelweave.weights import Grouped, Simplex, Sum

GROUPS = [[0, 3], [1], [2, 4, 5]]
R = [1.0, 1.2, 2.0, 5.0, np.inf]


def energies(seed: int) -> np.ndarray:
    """h_j = 1/2 v'K_j v of six random kernels."""
    rng = np.random.default_rng(seed)
    v = rng.normal(size=10)
    return np.array([0.5 * np.sum((rng.normal(size=(3, 10)) @ v) ** 2) for _ in range(6)])


def random_lambda(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return Grouped(GROUPS).update(rng.exponential(size=6))


def conjugate_exponent(r: float) -> float:
    return np.inf if r == 1 else 1.0 if r == np.inf else r / (r - 1)


@pytest.mark.parametrize("r", R[1:])
@pytest.mark.parametrize("seed", range(3))
def test_scale_is_the_adversary_s_best(r: float, seed: int) -> None:
    weight_set, h, b = Grouped(GROUPS, r), energies(seed), random_lambda(seed)
    scale = weight_set.scale(b, h)
    gamma = 1 / scale[[0, 1, 2]]
    r_star = conjugate_exponent(r)
    assert np.linalg.norm(gamma, r_star) == pytest.approx(1, rel=1e-12)
    assert scale[0] == scale[3] and scale[2] == scale[4] == scale[5]
    for other in np.random.default_rng(seed).exponential(size=(200, 3)):
        other_gamma = other / np.linalg.norm(other, r_star)
        assert b @ (h / other_gamma[[0, 1, 2, 0, 2, 2]]) >= b @ (h * scale) * (1 - 1e-12)


@pytest.mark.parametrize("r", R)
@pytest.mark.parametrize("seed", range(3))
def test_cost_is_the_primal_regulariser_and_meets_the_dual_at_the_best_scale(r: float, seed: int) -> None:
    weight_set, h, b = Grouped(GROUPS, r), energies(seed), random_lambda(seed)
    scale = weight_set.scale(b, h)
    factors = np.ones(6) if scale is None else scale
    norms = b * factors * np.sqrt(2 * h)
    squares = np.array([np.sum(norms[g] ** 2 / b[g]) for g in GROUPS])
    assert weight_set.cost(b, h, scale) == pytest.approx(0.5 * np.linalg.norm(squares, r), rel=1e-12)
    assert weight_set.cost(b, h, scale) == pytest.approx(b @ (factors * h), rel=1e-12)


@pytest.mark.parametrize("r", R)
@pytest.mark.parametrize("seed", range(3))
def test_dual_bound_is_the_mixed_norm(r: float, seed: int) -> None:
    """1/2 ||M||^2 in the norm 2r/(2r-1), M_g = max_k sqrt(u_gk), is the support of the scaled energies."""
    weight_set, h = Grouped(GROUPS, r), energies(seed)
    best = weight_set.respond(h)
    scale = weight_set.scale(best, h)
    scaled = h if scale is None else scale * h
    M = np.array([np.sqrt(2 * h[g].max()) for g in GROUPS])
    exponent = 1.0 if r == np.inf else 2 * r / (2 * r - 1)
    assert weight_set.support(scaled) == pytest.approx(0.5 * np.linalg.norm(M, exponent) ** 2, rel=1e-12)
    np.testing.assert_array_equal(weight_set.respond(scaled), best)


@pytest.mark.parametrize("r", [1.5, 2.0, 3.0])
def test_update_minimises_the_primal_regulariser(r: float) -> None:
    """Over lambda, 1/2 [sum_g (sum_k N_gk^2 / lambda_gk)^r]^(1/r) is 1/2 [sum_g (sum_k N_gk)^(2r)]^(1/r)."""
    norms = np.array([0.5, 1.1, 0.2, 2.0, 0.9, 0.4])
    b = cp.Variable(6)
    parts = cp.hstack([cp.sum(cp.multiply(norms[g] ** 2, cp.inv_pos(b[g]))) for g in GROUPS])
    constraints = [b >= 0, *(cp.sum(b[g]) == 1 for g in GROUPS)]
    optimum = cp.Problem(cp.Minimize(0.5 * cp.pnorm(parts, r)), constraints).solve(solver=cp.CLARABEL)
    found = Grouped(GROUPS, r).update(norms)
    squares = [np.sum(norms[g] ** 2 / found[g]) for g in GROUPS]
    assert 0.5 * np.linalg.norm(squares, r) == pytest.approx(optimum, rel=1e-6)
    assert optimum == pytest.approx(0.5 * np.linalg.norm([norms[g].sum() ** 2 for g in GROUPS], r), rel=1e-6)


def test_groups_without_energy_keep_finite_factors() -> None:
    weight_set = Grouped(GROUPS, r=2)
    b = weight_set.start(6)
    np.testing.assert_allclose(weight_set.scale(b, np.zeros(6)), np.sqrt(3))
    h = np.array([1.0, 0.0, 2.0, 1.0, 0.5, 0.5])
    scale = weight_set.scale(b, h)
    assert np.all(np.isfinite(scale))
    assert weight_set.cost(b, h, scale) == pytest.approx(b @ (scale * h), rel=1e-6)
    np.testing.assert_allclose(
        weight_set.update(np.array([1, 0, 0, 1, 0, 0.0])), [1 / 2, 1, 1 / 3, 1 / 2, 1 / 3, 1 / 3]
    )


def test_one_group_is_the_simplex_and_groups_of_one_the_sum() -> None:
    h = energies(0)
    np.testing.assert_array_equal(Grouped([0] * 6).respond(h), Simplex().respond(h))
    assert Grouped([0] * 6).support(h) == Simplex().support(h)
    np.testing.assert_allclose(Grouped([0] * 6, r=3).scale(Simplex().start(6), h), 1.0)
    np.testing.assert_array_equal(Grouped(range(6)).respond(h), Sum().respond(h))


def test_labels_and_lists_say_the_same() -> None:
    assert Grouped(["a", "b", "c", "a", "c", "c"]) == Grouped(np.array([5, 1, 2, 5, 2, 2])) == Grouped(GROUPS)
    assert Grouped([(0, 3), np.array([1]), [2, 4, 5]]) == Grouped(GROUPS)


def test_names_are_looked_up_in_the_bank() -> None:
    bank = SimpleNamespace(names=["sift", "gist", "hue"])
    named = Grouped([["hue", "sift"], ["gist"]], r=2)
    with pytest.raises(ValueError, match="call resolve first"):
        named.start(3)
    assert named.resolve(bank, None, None) == Grouped([[2, 0], [1]], r=2)
    with pytest.raises(ValueError, match=r"no kernel named 'gits'\. Did you mean 'gist'"):
        Grouped([["gits"], ["sift", "hue"]]).resolve(bank, None, None)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Grouped([]), "a label for each kernel or a list of lists"),
        (lambda: Grouped("abc"), "got 'abc'"),
        (lambda: Grouped([0, [1, 2]]), "a label for each kernel or a list of lists"),
        (lambda: Grouped([[0, 1], [1]]), "kernel 1 is in more than one"),
        (lambda: Grouped([[0, 1], []]), "one is empty"),
        (lambda: Grouped([[0], [1]], r=0.5), "r must be"),
        (lambda: Grouped([[0], [2]]).start(3), "kernel 1 is in no group"),
        (lambda: Grouped([[0], [1, 2]]).start(2), "kernel 2 is not among them"),
        (lambda: Grouped(["a", "b"]).start(3), "kernel 2 is in no group"),
    ],
)
def test_bad_groups_are_named(make, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()
