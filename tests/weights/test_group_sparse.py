"""Group-sparse weights against a conic solver, brute formulas and the sets they contain."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

from kernelweave.weights import CappedSimplex, GroupSparse, LpBall, Unsupported

NORMS = [(1.0, 1.0), (2.0, 2.0), (1.0, 2.0), (2.0, 1.0), (1.5, 3.0)]
THETAS = [1.0, 0.5, 0.3, 0.2, 0.1]


def conic_set(b, theta, p, q):
    """Constraints on b, (n_groups, n_inner)."""
    norms = cp.hstack([cp.pnorm(b[t], p) for t in range(b.shape[0])])
    return [b >= 0, norms <= theta, cp.pnorm(norms, q) <= 1]


def solved(objective, constraints):
    return cp.Problem(objective, constraints).solve(solver=cp.CLARABEL)


def cases():
    return [(1.0, p, q) for p, q in NORMS] + [(theta, 2.0, 1.0) for theta in THETAS] + [(0.3, 1.5, 1.0)]


@pytest.mark.parametrize(("theta", "p", "q"), cases())
def test_support_and_response_are_the_conic_ones(theta, p, q):
    rng = np.random.default_rng(0)
    weights = GroupSparse(3, theta, p=p, q=q)
    for _ in range(3):
        h = rng.exponential(size=(6, 3))
        b = cp.Variable((6, 3))
        best = solved(cp.Maximize(cp.sum(cp.multiply(h, b))), conic_set(b, theta, p, q))
        assert weights.support(h.ravel()) == pytest.approx(best, rel=1e-6)
        response = weights.respond(h.ravel())
        assert weights.feasible(response)
        assert response @ h.ravel() == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize(("theta", "p", "q"), cases())
def test_update_is_the_conic_one(theta, p, q):
    """Six groups: caps of 0.2 and more leave a choice, 0.1 leaves none."""
    rng = np.random.default_rng(1)
    weights = GroupSparse(3, theta, p=p, q=q)
    for _ in range(3):
        norms = rng.exponential(size=(6, 3))
        b = cp.Variable((6, 3))
        best = solved(cp.Minimize(0.5 * cp.sum(cp.multiply(norms**2, cp.inv_pos(b)))), conic_set(b, theta, p, q))
        updated = weights.update(norms.ravel())
        assert weights.feasible(updated)
        assert 0.5 * np.sum(norms.ravel() ** 2 / updated) == pytest.approx(best, rel=1e-6)


def test_update_is_the_published_loop():
    """The closed form as the source writes it, cap by cap."""
    rng = np.random.default_rng(2)
    for theta in (1.0, 0.4, 0.25, 0.2, 0.1):
        W = rng.exponential(size=(5, 4)) ** 2
        s = (W ** (4 / 3)).sum(axis=1)
        a = s**0.75
        order = np.argsort(-a)
        falling = a[order]
        w = 0
        while w < 5 and (1 - w * theta) * falling[w] > theta * falling[w:].sum():
            w += 1
        e = np.full(5, theta)
        if w < 5:
            e[order[w:]] = (1 - w * theta) * falling[w:] / falling[w:].sum()
        expected = e[:, None] * W ** (2 / 3) / np.sqrt(s)[:, None]
        np.testing.assert_allclose(GroupSparse(4, theta).update(W.ravel()), expected.ravel(), rtol=1e-12)


@pytest.mark.parametrize("p", [1.0, 2.0])
@pytest.mark.parametrize("theta", THETAS)
def test_projection_is_the_conic_one(theta, p):
    rng = np.random.default_rng(3)
    for size in (0.05, 0.3, 1.0):
        z = size * rng.standard_normal((6, 3))
        b = cp.Variable((6, 3))
        best = solved(cp.Minimize(cp.sum_squares(b - z)), conic_set(b, theta, p, 1.0))
        weights = GroupSparse(3, theta, p=p)
        nearest = weights.project(z.ravel())
        assert weights.feasible(nearest)
        assert np.sum((nearest - z.ravel()) ** 2) == pytest.approx(best, rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("size", [1e3, 1e10, 1e15, 1e20])
def test_projection_of_large_weights(size):
    """Gradient steps may be long: rows reach their caps in order of size, and nothing is lost to cancellation."""
    weights = GroupSparse(3, theta=0.4, p=1.0)
    nearest = weights.project(size * np.array([3, 2, 1, 0.5, 0.2, 0.1]))
    np.testing.assert_allclose(nearest, [0.4, 0, 0, 0.4, 0, 0], rtol=1e-12)
    nearest = weights.project(size * np.array([3, 2, 1, 0.5, 0.2, 0.1, 0.3, 0, 0]))
    np.testing.assert_allclose(nearest, [0.4, 0, 0, 0.4, 0, 0, 0.2, 0, 0], rtol=1e-12)
    assert weights.feasible(nearest)


def test_cap_as_a_multiple_of_the_mean_share():
    weights = GroupSparse(2, c_theta=1.5)
    assert [weights.group_cap(n) for n in (1, 2, 3, 10)] == [1.0, 0.75, 0.5, 0.15]
    np.testing.assert_array_equal(
        weights.respond(np.arange(1.0, 9.0)), GroupSparse(2, 0.375).respond(np.arange(1.0, 9.0))
    )
    np.testing.assert_allclose(
        GroupSparse(2, c_theta=1.0).respond(np.arange(1.0, 9.0)).reshape(4, 2) ** 2 @ [1, 1], 1 / 16
    )


def test_special_cases():
    rng = np.random.default_rng(4)
    h = rng.exponential(size=6)
    for method in ("respond", "update", "project"):
        one_group = getattr(GroupSparse(6), method)(h)
        np.testing.assert_allclose(one_group, getattr(LpBall(2.0), method)(h), rtol=1e-12)
        capped = getattr(GroupSparse(1, theta=0.3), method)(h)
        np.testing.assert_allclose(capped, getattr(CappedSimplex(theta=0.3), method)(h), rtol=1e-12)
        balls = getattr(GroupSparse(1, q=2.0), method)(h)
        np.testing.assert_allclose(balls, getattr(LpBall(2.0), method)(h), rtol=1e-12)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_the_same_norm_inside_and_across_is_one_ball(p):
    h = np.random.default_rng(6).exponential(size=6)
    for method in ("respond", "update", "project"):
        expected = getattr(LpBall(p), method)(h)
        np.testing.assert_allclose(getattr(GroupSparse(2, p=p, q=p), method)(h), expected, rtol=1e-10, atol=1e-12)


def test_a_cap_of_one_is_none():
    h = np.random.default_rng(5).exponential(size=8)
    for theta in (1.0, 3.0):
        weights = GroupSparse(2, theta=theta)
        assert weights.support(h) == pytest.approx(np.linalg.norm(h.reshape(4, 2), axis=1).max())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_inner": 0}, "n_inner"),
        ({"n_inner": 2, "theta": 0.0}, "theta"),
        ({"n_inner": 2, "c_theta": -1.0}, "c_theta"),
        ({"n_inner": 2, "p": 0.5}, "p must be"),
        ({"n_inner": 2, "theta": 0.5, "q": 2.0}, "needs q=1"),
        ({"n_inner": 2, "theta": float("nan")}, "theta"),
    ],
)
def test_bad_parameters(arguments, message):
    with pytest.raises(ValueError, match=message):
        GroupSparse(**arguments)


def test_kernels_that_are_no_groups_are_refused():
    with pytest.raises(ValueError, match="not groups of 3"):
        GroupSparse(3).start(4)


def test_no_projection_for_other_norms():
    weights = GroupSparse(2, p=1.5)
    assert not weights.has_projection and weights.has_update
    with pytest.raises(Unsupported, match="GroupSparse"):
        weights.project(np.ones(4))
