"""Simplex with a power of the weights as penalty: limits, conditions, relations to the other sets, parameters."""

from __future__ import annotations

import numpy as np
import pytest

from kernelweave.weights import (
    CappedSimplex,
    ElasticNet,
    ElasticNetBall,
    PowerPenalty,
    Simplex,
    TikhonovLp,
    Unsupported,
)
from kernelweave.weights._equations import project_simplex

POWERS = (1.01, 1.3, 2.0, 3.0, 16.0)
THETAS = (1e-5, 1e-2, 1.0, 1e3)


def energies(seed: int, s: int = 7) -> np.ndarray:
    return np.random.default_rng(seed).exponential(size=s) ** 2


def test_square_power_is_the_elastic_net() -> None:
    for seed, theta in enumerate(THETAS):
        h, net, power = energies(seed), ElasticNet(theta), PowerPenalty(2.0, theta)
        np.testing.assert_allclose(power.respond(h), net.respond(h), atol=1e-12)
        b = net.respond(h)
        assert net.penalty(b) == pytest.approx(b @ b / (2 * theta), rel=1e-14)
        assert power.penalty(b) == net.penalty(b)
        np.testing.assert_allclose(net.slope(b), b / theta)
        np.testing.assert_allclose(net.curvature(b), 1 / theta)
        np.testing.assert_array_equal(power.update(h), net.update(h))


def test_elastic_net_answers_by_projection() -> None:
    h = energies(0)
    for theta in THETAS:
        np.testing.assert_allclose(ElasticNet(theta).respond(h), project_simplex(theta * h), atol=1e-13)
    np.testing.assert_array_equal(ElasticNet(1e300).respond(np.array([1.0, 3.0, 1e200])), [0.0, 0.0, 1.0])


@pytest.mark.parametrize("p", POWERS)
@pytest.mark.parametrize("theta", THETAS)
def test_slack_and_weight_are_conjugate(p: float, theta: float) -> None:
    """b is the slope of the price of slack, theta/2 zeta^q, at zeta = h - T; and zeta = R'(b) where b > 0."""
    h, weight_set = energies(3), PowerPenalty(p, theta)
    b = weight_set.respond(h)
    slack = weight_set.slope(b)
    q = p / (p - 1)
    np.testing.assert_allclose(theta / 2 * q * slack ** (q - 1), b, rtol=1e-8, atol=1e-12)
    level = (h - slack)[b > 1e-9]
    assert np.ptp(level) <= 1e-8 * (h.max() + slack.max())
    assert np.all(h[b == 0] <= level.max() + 1e-8 * h.max())


@pytest.mark.parametrize("p", [1.3, 2.0, 3.0, 16.0])
def test_limits_of_the_price(p: float) -> None:
    """Energies are near one: with R' = (s b)^(p-1) at 1e8 for equal weights nothing else counts, at 1e-8 all else."""
    h = energies(5)
    dear, cheap = (PowerPenalty(p, 2 * (p - 1) / (p * s)) for s in (7 * 1e8 ** (1 / (p - 1)), 1e-8 ** (1 / (p - 1))))
    np.testing.assert_allclose(dear.respond(h), 1 / 7, atol=1e-5)
    np.testing.assert_allclose(cheap.respond(h), Simplex().respond(h), atol=1e-6)
    assert cheap.support(h) == pytest.approx(h.max(), rel=1e-6)


def test_large_powers_tend_to_a_cap_at_half_the_price() -> None:
    h = np.array([3.0, 2.5, 2.0, 0.5, 0.1])
    capped = CappedSimplex(theta=0.4)
    distances = [np.abs(PowerPenalty(p, 0.8).respond(h) - capped.respond(h)).max() for p in (2.0, 4.0, 16.0)]
    assert distances[0] > distances[1] > distances[2]
    assert distances[2] < 0.05


@pytest.mark.parametrize("p", POWERS)
@pytest.mark.parametrize("theta", THETAS)
def test_update_satisfies_its_condition(p: float, theta: float) -> None:
    """-N^2 / (2 b^2) + R'(b) is the same number for all kernels."""
    norms, weight_set = energies(7) + 0.01, PowerPenalty(p, theta)
    b = weight_set.update(norms)
    terms = 0.5 * (norms / b) ** 2, weight_set.slope(b)
    multiplier = terms[1] - terms[0]
    assert np.ptp(multiplier) <= 1e-9 * (terms[0] + terms[1]).max()
    assert b.sum() == pytest.approx(1.0, abs=1e-12)


def test_update_can_give_weight_to_a_kernel_without_norm() -> None:
    """A strong ridge prefers equal weights: unlike on the plain simplex, a kernel can come back from zero."""
    b = ElasticNet(1e-3).update(np.array([1.0, 2.0, 0.0]))
    np.testing.assert_allclose(b, 1 / 3, atol=0.01)
    assert ElasticNet(1e3).update(np.array([1.0, 2.0, 0.0]))[2] == 0.0
    np.testing.assert_allclose(ElasticNet().update(np.zeros(4)), 0.25)


@pytest.mark.parametrize("v", [0.0, 0.4, 0.95])
def test_ball_and_net_have_the_same_best_response(v: float) -> None:
    """The map is an identity of best responses already: at the energies r^2 h of the scaled duals, respond is b / r."""
    ball, h = ElasticNetBall(v), energies(11)
    b = ball.respond(h)
    net, r = ball.on_simplex(b, h)
    assert r == pytest.approx(b.sum())
    np.testing.assert_allclose(net.respond(r**2 * h), b / r, atol=1e-10)
    np.testing.assert_allclose(ElasticNet(net.theta * r**2).respond(h), b / r, atol=1e-10)  # duals of a nu-SVM


def test_ball_without_a_twin() -> None:
    h = energies(0)
    with pytest.raises(ValueError, match="v = 1 is l1"):
        ElasticNetBall(1.0).on_simplex(Simplex().respond(h), h)
    with pytest.raises(ValueError, match="all energies are zero"):
        ElasticNetBall(0.5).on_simplex(np.full(3, 0.4), np.zeros(3))


def test_curvature_is_only_where_it_is_bounded() -> None:
    assert ElasticNet().has_curvature and PowerPenalty(3.0).has_curvature and Simplex().has_curvature
    assert not PowerPenalty(1.5).has_curvature and not TikhonovLp(2.0).has_curvature
    b = np.array([0.2, 0.3, 0.5])
    step = 1e-6 * np.eye(3)
    for weight_set in (ElasticNet(0.3), PowerPenalty(1.5, 2.0), PowerPenalty(3.0, 0.7)):
        change = [(weight_set.slope(b + e) - weight_set.slope(b - e))[j] / 2e-6 for j, e in enumerate(step)]
        np.testing.assert_allclose(weight_set.curvature(b), change, rtol=1e-6)
    np.testing.assert_array_equal(Simplex().curvature(b), 0.0)
    with pytest.raises(Unsupported, match="no bounded second derivative"):
        TikhonovLp(2.0).curvature(b)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: ElasticNet(0.0), ValueError, r"ElasticNet: theta must be a number in \(0, "),
        (lambda: ElasticNet(np.inf), ValueError, "theta must be"),
        (lambda: ElasticNet("1"), TypeError, "of type str"),
        (lambda: PowerPenalty(1.0), ValueError, r"p must be a number in \[1.01, 16\], got 1.0.*Simplex.*CappedSimplex"),
        (lambda: PowerPenalty(17.0), ValueError, "p must be"),
        (lambda: PowerPenalty(2.0, -1.0), ValueError, "theta must be"),
    ],
)
def test_parameters_out_of_range(make, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        make()
