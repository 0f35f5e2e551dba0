"""The capped simplex by itself: its ends, its formulas beside slow ones, its parameters."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from kernelweave.weights import Average, CappedSimplex, Simplex
from kernelweave.weights.capped import project_capped


def random_caps(n_cases: int, seed: int = 0) -> list[tuple[np.ndarray, float]]:
    """Vectors of many sizes and scales, and caps that allow a sum of one."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 40, n_cases)
    return [(rng.normal(size=s) * 10 ** rng.uniform(-3, 3), 1 / (rng.uniform(1 / s, 1) * s)) for s in sizes]


def test_ends_are_the_simplex_and_the_average() -> None:
    h = np.array([0.3, 2.0, 1.0, 2.0, 0.7])
    for weight_set in (
        CappedSimplex(nu=1 / 5),
        CappedSimplex(nu=0.01),
        CappedSimplex(theta=1.0),
        CappedSimplex(theta=9),
    ):
        assert weight_set.cap(5) == 1.0
        for method in ("respond", "project", "update"):
            np.testing.assert_allclose(getattr(weight_set, method)(h), getattr(Simplex(), method)(h), atol=1e-15)
    for weight_set in (CappedSimplex(nu=1.0), CappedSimplex(theta=1 / 5)):
        for method in ("respond", "project", "update", "clean"):
            np.testing.assert_allclose(getattr(weight_set, method)(h), Average().start(5), atol=1e-15)


def test_nu_and_theta_are_the_same_cap() -> None:
    h = np.array([0.3, 2.0, 1.0, 1.9])
    assert CappedSimplex(nu=0.5).cap(4) == CappedSimplex(theta=0.5).cap(4) == 0.5
    np.testing.assert_array_equal(CappedSimplex(nu=0.5).respond(h), CappedSimplex(theta=0.5).respond(h))


@pytest.mark.parametrize("cap", [0.26, 0.4, 0.7])
def test_support_is_the_best_vertex(cap: float) -> None:
    """Vertices have weights 0 and cap, and at most one in between: all of them, listed."""
    h = np.array([0.4, 1.7, 0.9, 1.1, 0.2])
    full = int(1 / cap)
    rest = 1 - full * cap
    orders = itertools.permutations(range(5), full + 1)
    best = max(cap * h[list(order[:-1])].sum() + rest * h[order[-1]] for order in orders)
    assert CappedSimplex(theta=cap).support(h) == pytest.approx(best, rel=1e-12)


def test_ties_at_the_threshold_share() -> None:
    weights = CappedSimplex(theta=0.4).respond(np.array([3.0, 2.0, 2.0, 2.0, 1.0]))
    np.testing.assert_allclose(weights, [0.4, 0.2, 0.2, 0.2, 0.0])
    np.testing.assert_allclose(CappedSimplex(theta=0.4).respond(np.zeros(5)), 0.2)


def test_projection_is_feasible_to_rounding_and_unmoved_by_a_shift() -> None:
    for z, cap in random_caps(2000):
        b = project_capped(z, cap)
        assert abs(b.sum() - 1) <= 4e-15 * len(z) and b.min() >= 0 and b.max() <= cap + 1e-15
        np.testing.assert_allclose(project_capped(z + 3.0, cap), b, atol=1e-12 * (1 + np.abs(z).max()))


def test_projection_satisfies_its_conditions() -> None:
    """Some t has b = clip(z - t, 0, cap): what is between the bounds gives t, the others lie on their side of it."""
    for z, cap in random_caps(500, seed=1):
        b = project_capped(z, cap)
        slack = 1e-12 * (1 + np.abs(z).max())
        low = np.max((z - b)[b < cap - 1e-12], initial=-np.inf)
        high = np.min((z - b)[b > 1e-12], initial=np.inf)
        assert low <= high + slack


def test_update_is_proportional_below_the_cap() -> None:
    norms = np.array([8.0, 1.0, 4.0, 1.0, 2.0])
    b = CappedSimplex(theta=0.4).update(norms)
    np.testing.assert_allclose(b, [0.4, 0.075, 0.3, 0.075, 0.15])
    np.testing.assert_allclose(CappedSimplex(theta=0.3).update(norms), [0.3, 0.1, 0.3, 0.1, 0.2])


def test_update_gives_what_no_norm_asks_for_to_the_others() -> None:
    b = CappedSimplex(theta=0.4).update(np.array([5.0, 0.0, 3.0, 0.0]))
    np.testing.assert_allclose(b, [0.4, 0.1, 0.4, 0.1])
    np.testing.assert_allclose(CappedSimplex(theta=0.4).update(np.zeros(4)), 0.25)


def test_clean_keeps_sum_and_cap() -> None:
    weight_set = CappedSimplex(theta=0.4)
    cleaned = weight_set.clean(np.array([0.4, 0.4 - 1e-12, 1e-12, 0.2]))
    assert cleaned[2] == 0.0 and cleaned.max() <= 0.4 and cleaned.sum() == pytest.approx(1.0, abs=1e-15)
    # two kernels at this cap leave a trace that the third has to hold, however small
    tight = CappedSimplex(theta=0.5 - 5e-11)
    cleaned = tight.clean(np.array([0.5 - 5e-11, 0.5 - 5e-11, 1e-10]))
    assert tight.feasible(cleaned, tol=1e-15) and cleaned[2] > 0


def test_too_small_a_cap_is_refused_when_the_kernels_are_known() -> None:
    weight_set = CappedSimplex(theta=0.1)
    weight_set.start(10)
    for method in ("respond", "project", "update", "clean", "feasible"):
        with pytest.raises(ValueError, match=r"9 weights of at most theta=0.1 cannot sum to one.*theta >= 1/9.*nu"):
            getattr(weight_set, method)(np.ones(9))
    for method in ("start", "cap", "linear_constraints"):
        with pytest.raises(ValueError, match="cannot sum to one"):
            getattr(weight_set, method)(9)


@pytest.mark.parametrize(
    ("parameters", "error", "words"),
    [
        ({}, ValueError, "give either nu or theta.*nu=None and theta=None"),
        ({"nu": 0.5, "theta": 0.5}, ValueError, "give either nu or theta"),
        ({"nu": 0.0}, ValueError, r"nu must be a number in \(0, 1\], got 0.0.*average.*l1"),
        ({"nu": 1.2}, ValueError, r"nu must be a number in \(0, 1\]"),
        ({"nu": float("nan")}, ValueError, "nu must be"),
        ({"nu": "half"}, TypeError, "nu must be .* of type str"),
        ({"theta": 0.0}, ValueError, "theta must be"),
        ({"theta": -1.0}, ValueError, "theta must be"),
        ({"theta": True}, TypeError, "of type bool"),
    ],
)
def test_parameters_out_of_range(parameters: dict, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        CappedSimplex(**parameters)
