"""What belongs to one weight set: limits, extreme parameters, known values, and bad parameters."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from kernelweave.weights import (
    Average,
    BlockElasticNet,
    ElasticNetBall,
    Entropy,
    Fixed,
    LpBall,
    Simplex,
    Single,
    Sum,
    TikhonovLp,
)
from kernelweave.weights._equations import positive_root

H = np.array([0.4, 2.0, 0.7, 1.3, 1.9])
NORMS = np.array([0.5, 1.1, 0.2, 2.0, 0.9])


# -- limits: each pair must answer alike ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("near", "limit", "atol"),
    [
        (LpBall(1.001), Simplex(), 1e-12),
        (LpBall(1), Simplex(), 0),
        (LpBall(1e6), Sum(), 1e-5),
        (LpBall(np.inf), Sum(), 0),
        (Entropy(1e-3), Simplex(), 1e-12),
        (Entropy(1e9), Average(), 1e-8),
        (ElasticNetBall(0), LpBall(2), 1e-12),
        (ElasticNetBall(1e-9), LpBall(2), 1e-8),
        (ElasticNetBall(1), Simplex(), 0),
        (ElasticNetBall(1 - 1e-9), Simplex(), 1e-8),
        (BlockElasticNet(1), Sum(), 0),
        (BlockElasticNet(1 - 1e-9), Sum(), 1e-8),
    ],
    ids=repr,
)
def test_response_tends_to_its_limit(near, limit, atol) -> None:
    np.testing.assert_allclose(near.respond(H), limit.respond(H), atol=atol, rtol=0)


@pytest.mark.parametrize(
    ("near", "limit", "atol"),
    [
        (LpBall(1), Simplex(), 1e-15),
        (LpBall(1 + 1e-9), Simplex(), 1e-8),
        (LpBall(1e9), Sum(), 1e-8),
        (ElasticNetBall(0), LpBall(2), 1e-12),
        (ElasticNetBall(1), Simplex(), 1e-12),
        (BlockElasticNet(1), Sum(), 0),
        (TikhonovLp(2, 1e-9), TikhonovLp(2 + 1e-9, 1e-9), 1e-5),
    ],
    ids=repr,
)
def test_update_tends_to_its_limit(near, limit, atol) -> None:
    np.testing.assert_allclose(near.update(NORMS), limit.update(NORMS), atol=atol, rtol=0)


# -- known values -----------------------------------------------------------------------------------------------------


def test_ties_share_and_zero_energies_give_uniform_weights() -> None:
    np.testing.assert_array_equal(Simplex().respond(np.array([1.0, 2.0, 2.0])), [0.0, 0.5, 0.5])
    for weight_set in (Simplex(), LpBall(1), LpBall(1.5), LpBall(np.inf), ElasticNetBall(0.3), Entropy(2.0)):
        np.testing.assert_allclose(weight_set.respond(np.zeros(4)), weight_set.start(4))
    np.testing.assert_array_equal(TikhonovLp(2).respond(np.zeros(4)), np.zeros(4))  # the penalty decides


@pytest.mark.parametrize("weight_set", [Simplex(), LpBall(1), LpBall(2), LpBall(np.inf), ElasticNetBall(0.3)], ids=repr)
def test_zero_norms_give_uniform_weights(weight_set) -> None:
    np.testing.assert_allclose(weight_set.update(np.zeros(4)), weight_set.start(4))


def test_negative_round_off_counts_as_zero() -> None:
    h = np.array([1.0, -1e-17, 0.5])
    for weight_set in (LpBall(1.5), LpBall(3), TikhonovLp(1.5), ElasticNetBall(0.3), BlockElasticNet(0.4)):
        np.testing.assert_array_equal(weight_set.respond(h), weight_set.respond(np.maximum(h, 0)))
        assert weight_set.support(h) == weight_set.support(np.maximum(h, 0))


def test_block_elastic_net_threshold() -> None:
    mu = 0.3
    at_threshold = (1 - mu) ** 2 / 2  # sqrt(2h) = 1 - mu
    b = BlockElasticNet(mu).respond(np.array([0.999, 1.0, 1.001]) * at_threshold)
    assert b[0] == 0 and b[1] == pytest.approx(0, abs=1e-15) and b[2] > 1e-4


@pytest.mark.parametrize("mu", [0.01, 0.5, 0.999])
def test_block_elastic_net_stays_inside_where_its_penalty_is_finite(mu: float) -> None:
    weight_set = BlockElasticNet(mu)
    for b in (
        weight_set.respond(np.array([1e300])),
        weight_set.update(np.array([1e300])),
        weight_set.project(np.inf * np.ones(1)),
    ):
        assert b[0] < 1 / mu
        assert np.isfinite(weight_set.penalty(b)) and np.all(np.isfinite(weight_set.slope(b)))


def test_entropy_survives_extreme_temperatures() -> None:
    h = np.array([1e12, 1e12, 0.0])
    np.testing.assert_array_equal(Entropy(1e-300).respond(h), [0.5, 0.5, 0.0])
    assert Entropy(1e-300).support(h) == 1e12
    np.testing.assert_allclose(Entropy(1e300).respond(h), 1 / 3)
    assert Entropy(2.0).penalty(np.array([1.0, 0.0])) == 0.0  # 0 ln 0


@pytest.mark.parametrize("p", [1.0, 1.3, 2.0, 7.0])
def test_tikhonov_slope_is_the_derivative_of_its_penalty(p: float) -> None:
    weight_set, b = TikhonovLp(p, 0.8), np.array([0.3, 0.1, 1.2])
    steps = 1e-6 * np.eye(3)
    expected = [(weight_set.penalty(b + e) - weight_set.penalty(b - e)) / 2e-6 for e in steps]
    np.testing.assert_allclose(weight_set.slope(b), expected, atol=1e-8)
    assert weight_set.slope(np.array([0.5, 0.0]))[1] == (0.4 if p == 1 else 0.0)


# -- against scipy, at exponents that no cone represents --------------------------------------------------------------


@pytest.mark.parametrize("p", [1.05, 1.7, 11.0])
def test_lp_update_against_a_general_optimiser(p: float) -> None:
    def weights(x: np.ndarray) -> np.ndarray:
        return np.exp(x) / np.sum(np.exp(p * x)) ** (1 / p)

    found = minimize(lambda x: 0.5 * np.sum(NORMS**2 / weights(x)), np.zeros(5), method="BFGS", options={"gtol": 1e-9})
    np.testing.assert_allclose(LpBall(p).update(NORMS), weights(found.x), atol=1e-5)


@pytest.mark.parametrize("p", [1.05, 1.7, 11.0])
def test_tikhonov_update_against_a_general_optimiser(p: float) -> None:
    weight_set = TikhonovLp(p, 0.6)

    def objective(x: np.ndarray) -> float:
        return 0.5 * np.sum(NORMS**2 / np.exp(x)) + weight_set.penalty(np.exp(x))

    found = minimize(objective, np.zeros(5), method="BFGS", options={"gtol": 1e-9})
    np.testing.assert_allclose(weight_set.update(NORMS), np.exp(found.x), atol=1e-5)


# -- the lp projection, to 1e-12 --------------------------------------------------------------------------------------


@given(
    p=st.one_of(st.sampled_from([1.001, 1.1, 1.5, 1.999, 2.001, 3.0, 50.0, 1000.0]), st.floats(1.001, 1000)),
    z=st.lists(st.one_of(st.floats(-2, 2), st.floats(1e-9, 1e9)), min_size=1, max_size=30).map(np.array),
)
@settings(max_examples=300, deadline=None)
def test_lp_projection_is_exact(p: float, z: np.ndarray) -> None:
    b = LpBall(p).project(z)
    x = np.maximum(z, 0)
    assert LpBall(p).feasible(b, tol=1e-13)
    if LpBall(p).feasible(x, tol=0):
        np.testing.assert_array_equal(b, x)
        return
    lam = b @ (x - b)
    assert lam >= 0
    seen = b > 1e-300  # below, b^(p-1) cannot be computed from b: there x may only be small
    np.testing.assert_allclose(b[seen] + lam * b[seen] ** (p - 1), x[seen], rtol=1e-12, atol=1e-12)
    assert np.all(x[~seen] <= 1e-12 + lam * 1e-300 ** (p - 1) * (1 + 1e-9))


@given(
    k=st.floats(1, 1000),
    linear=st.one_of(st.just(0.0), st.floats(1e-6, 1e6)),
    power=st.floats(1e-6, 1e6),
    x=st.lists(st.one_of(st.just(0.0), st.floats(1e-12, 1e12)), min_size=1, max_size=10).map(np.array),
)
@settings(max_examples=200, deadline=None)
def test_positive_root_solves_its_equation(k: float, linear: float, power: float, x: np.ndarray) -> None:
    t = positive_root(linear, power, k, x)
    assert np.all(t >= 0)
    np.testing.assert_allclose(linear * t + power * t**k, x, rtol=1e-15 * (10 + 2 * k), atol=0)


# -- bad parameters ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: LpBall(0.5), ValueError, r"LpBall: p must be .*\[1, inf\], got 0.5.*not convex.*l1"),
        (lambda: LpBall(float("nan")), ValueError, "p must be"),
        (lambda: LpBall("2"), TypeError, "p must be .* of type str"),
        (lambda: LpBall(True), TypeError, "of type bool"),
        (lambda: Entropy(0), ValueError, r"Entropy: tau must be .*\(0, "),
        (lambda: Entropy(np.inf), ValueError, "tau must be"),
        (lambda: ElasticNetBall(1.1), ValueError, r"v must be .*\[0, 1\]"),
        (lambda: BlockElasticNet(0), ValueError, r"mu must be .*\(0, 1\]"),
        (lambda: TikhonovLp(0.9), ValueError, "TikhonovLp: p must be"),
        (lambda: TikhonovLp(2, -1), ValueError, "strength must be"),
        (lambda: Fixed([0.5, -0.1]), ValueError, "none negative"),
        (lambda: Fixed([0.0, 0.0]), ValueError, "at least one positive"),
        (lambda: Fixed([np.nan, 1.0]), ValueError, "finite"),
        (lambda: Fixed([[1.0]]), ValueError, r"shape \(1, 1\)"),
        (lambda: Fixed([]), ValueError, "one number a kernel"),
        (lambda: Fixed([1, 2]).start(3), ValueError, "2 weights were given for 3 kernels"),
        (lambda: Single(3).start(3), ValueError, "index 3 is not one of the 3 kernels 0 to 2"),
        (lambda: Single(-1).start(3), ValueError, "index -1"),
        (lambda: Single(1.5), TypeError, "position or name"),
        (lambda: Single("sift").start(3), ValueError, "call resolve first"),
    ],
)
def test_bad_parameters_are_named(make, error, words: str) -> None:
    with pytest.raises(error, match=words):
        make()
