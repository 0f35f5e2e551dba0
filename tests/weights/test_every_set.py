"""What must hold for every weight set. A new set is one line in CASES."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, fields
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from kernelweave.weights import (
    Average,
    BlockElasticNet,
    CappedSimplex,
    ElasticNet,
    ElasticNetBall,
    Entropy,
    Fixed,
    Grouped,
    GroupSparse,
    LpBall,
    PowerPenalty,
    Simplex,
    Single,
    Sum,
    TikhonovLp,
    Unsupported,
    WeightSet,
)


@dataclass
class Case:
    """A weight set for any number of kernels, and the same set written for a conic solver.

    ``conic(b)`` returns the constraints and the penalty; None where no conic solver is exact (p near 1 or huge).
    """

    name: str
    make: Callable[[int], WeightSet]
    conic: Callable[[cp.Variable], tuple[list[Any], Any]] | None


def groups_of(n_kernels: int) -> list[int]:
    return [j % 3 for j in range(n_kernels)]


def ball(p: float) -> Callable[[cp.Variable], tuple[list[Any], Any]]:
    return lambda b: ([b >= 0, cp.pnorm(b, p) <= 1], 0.0)


def in_groups(b: cp.Variable) -> tuple[list[Any], Any]:
    labels = np.array(groups_of(b.size))
    return [b >= 0, *(cp.sum(b[np.flatnonzero(labels == g)]) == 1 for g in np.unique(labels))], 0.0


def pairs_of(n_kernels: int) -> int:
    return 1 if n_kernels % 2 else 2


def sparse_groups(b: cp.Variable, theta: float, q: float) -> tuple[list[Any], Any]:
    norms = cp.norm(cp.reshape(b, (b.size // pairs_of(b.size), pairs_of(b.size)), order="C"), 2, axis=1)
    return [b >= 0, norms <= theta, cp.pnorm(norms, q) <= 1], 0.0


CASES = [
    Case("fixed", lambda s: Fixed(np.arange(1.0, s + 1).tolist()), lambda b: ([b == np.arange(1.0, b.size + 1)], 0.0)),
    Case("average", lambda s: Average(), lambda b: ([b == 1 / b.size], 0.0)),
    Case("sum", lambda s: Sum(), lambda b: ([b == 1], 0.0)),
    Case("single", lambda s: Single(s - 1), lambda b: ([b == np.eye(b.size)[-1]], 0.0)),
    Case("simplex", lambda s: Simplex(), lambda b: ([b >= 0, cp.sum(b) == 1], 0.0)),
    Case("entropy", lambda s: Entropy(0.7), lambda b: ([b >= 0, cp.sum(b) == 1], -0.7 * cp.sum(cp.entr(b)))),
    *(
        Case(
            f"capped nu={nu}",
            lambda s, nu=nu: CappedSimplex(nu=nu),
            lambda b, nu=nu: ([b >= 0, b <= 1 / (nu * b.size), cp.sum(b) == 1], 0.0),
        )
        for nu in (0.05, 0.3, 0.6, 0.8)
    ),
    Case(
        "capped theta",
        lambda s: CappedSimplex(theta=max(0.27, 1 / s)),
        lambda b: ([b >= 0, b <= max(0.27, 1 / b.size), cp.sum(b) == 1], 0.0),
    ),
    *(
        Case(
            f"elastic net {theta}",
            lambda s, theta=theta: ElasticNet(theta),
            lambda b, theta=theta: ([b >= 0, cp.sum(b) == 1], cp.sum_squares(b) / (2 * theta)),
        )
        for theta in (0.01, 0.5, 20.0)
    ),
    *(
        Case(
            f"power {p} {theta}",
            lambda s, p=p, theta=theta: PowerPenalty(p, theta),
            lambda b, p=p, theta=theta: (
                [b >= 0, cp.sum(b) == 1],
                (2 * (p - 1) / (theta * p)) ** (p - 1) / p * cp.sum(cp.power(b, p)),
            ),
        )
        for p, theta in ((1.25, 2.0), (1.5, 0.1), (2.0, 1.0), (3.0, 2.0), (8.0, 3.0))
    ),
    Case("power 1.01", lambda s: PowerPenalty(1.01, 1.0), None),
    Case("l1 ball", lambda s: LpBall(1), ball(1)),
    Case("l1.001", lambda s: LpBall(1.001), None),
    Case("l4/3", lambda s: LpBall(4 / 3), ball(4 / 3)),
    Case("l2", lambda s: LpBall(2), ball(2)),
    Case("l4", lambda s: LpBall(4), ball(4)),
    Case("l1000", lambda s: LpBall(1000), None),
    Case("linf", lambda s: LpBall(np.inf), lambda b: ([b >= 0, b <= 1], 0.0)),
    Case("tikhonov l1", lambda s: TikhonovLp(1, 0.5), lambda b: ([b >= 0], 0.25 * cp.square(cp.sum(b)))),
    Case("tikhonov l1.5", lambda s: TikhonovLp(1.5, 3), lambda b: ([b >= 0], 1.5 * cp.square(cp.pnorm(b, 1.5)))),
    Case("tikhonov l3", lambda s: TikhonovLp(3, 0.1), lambda b: ([b >= 0], 0.05 * cp.square(cp.pnorm(b, 3)))),
    Case("tikhonov linf", lambda s: TikhonovLp(np.inf, 2), lambda b: ([b >= 0], cp.square(cp.norm_inf(b)))),
    *(
        Case(
            f"elastic ball {v}",
            lambda s, v=v: ElasticNetBall(v),
            lambda b, v=v: ([b >= 0, v * cp.sum(b) + (1 - v) * cp.sum_squares(b) <= 1], 0.0),
        )
        for v in (0.0, 0.3, 0.9, 1.0)
    ),
    *(
        Case(
            f"block elastic net {mu}",
            lambda s, mu=mu: BlockElasticNet(mu),
            # b / (1 - mu b) = (1 / (1 - mu b) - 1) / mu
            lambda b, mu=mu: (
                [b >= 0, b <= 1 / mu],
                (1 - mu) ** 2 / (2 * mu) * cp.sum(cp.inv_pos(1 - mu * b) - 1) if mu < 1 else 0.0,
            ),
        )
        for mu in (0.2, 0.9, 1.0)
    ),
    Case("grouped", lambda s: Grouped(groups_of(s)), in_groups),
    *(
        Case(
            f"sparse groups {theta} {q}",
            lambda s, theta=theta, q=q: GroupSparse(pairs_of(s), theta, q=q),
            lambda b, theta=theta, q=q: sparse_groups(b, theta, q),
        )
        for theta, q in ((1.0, 1.0), (0.3, 1.0), (0.1, 1.0), (1.0, 2.0))
    ),
    Case("grouped r=2", lambda s: Grouped(groups_of(s), r=2), in_groups),  # b lies in the same set for every r
]


def cases(*having: str) -> Any:
    """The cases whose set has all the named capabilities, as a parametrisation."""
    found = [case for case in CASES if all(getattr(case.make(3), capability) for capability in having)]
    return pytest.mark.parametrize("case", found, ids=lambda case: case.name)


def conic_cases(*having: str) -> Any:
    """The same, of those that a conic solver can check; `Single` forbids the functions that the update is given."""
    found = [c for c in CASES if c.conic and all(getattr(c.make(3), capability) for capability in having)]
    if "has_update" in having:
        found = [c for c in found if c.name != "single"]
    return pytest.mark.parametrize("case", found, ids=lambda case: case.name)


# zeros, ties, and magnitudes from 1e-12 to 1e12
magnitudes = st.builds(lambda m, e: m * 10.0**e, st.floats(1, 9.9), st.integers(-12, 11))
entries = st.one_of(st.sampled_from([0.0, 1.0, 2.0]), st.floats(0.01, 10), magnitudes)
nonnegative = st.lists(entries, min_size=1, max_size=30).map(np.array)
signed = st.lists(
    st.one_of(st.sampled_from([0.0, 1.0]), st.floats(-3, 3), st.floats(-1e6, 1e6)), min_size=1, max_size=30
)
seeds = st.integers(0, 2**32 - 1)


def feasible_points(weight_set: WeightSet, n_kernels: int, seed: int, n_points: int = 20) -> list[np.ndarray]:
    """Random points of B: convex combinations of best responses, so that `project` is not used to test itself."""
    rng = np.random.default_rng(seed)
    energies = rng.exponential(size=(6, n_kernels)) ** 3 * 10.0 ** rng.uniform(-2, 2, size=(6, 1))
    corners = np.array([weight_set.start(n_kernels), *(weight_set.respond(h) for h in energies)])
    return list(rng.dirichlet(np.full(len(corners), 0.3), size=n_points) @ corners)


def value_and_size(weight_set: WeightSet, b: np.ndarray, h: np.ndarray) -> tuple[float, float]:
    """b.h - R(b), and how much of it a relative change of the terms and of b can move: what rounding is relative to."""
    penalty = weight_set.penalty(b)
    return b @ h - penalty, b @ (h + np.abs(weight_set.slope(b))) + abs(penalty)


@cases()
@pytest.mark.parametrize("n_kernels", [1, 2, 7])
def test_start_is_feasible_and_positive(case: Case, n_kernels: int) -> None:
    b = case.make(n_kernels).start(n_kernels)
    assert b.shape == (n_kernels,) and b.dtype == np.float64
    assert case.make(n_kernels).feasible(b)
    assert np.all(b > 0) or case.name == "single"


@cases()
@given(h=nonnegative, seed=seeds)
@settings(max_examples=40, deadline=None)
def test_best_response_is_best(case: Case, h: np.ndarray, seed: int) -> None:
    weight_set = case.make(len(h))
    b, support = weight_set.respond(h), weight_set.support(h)
    value, size = value_and_size(weight_set, b, h)
    assert b.shape == h.shape and weight_set.feasible(b)
    assert support == pytest.approx(value, abs=1e-9 * size)
    for other in feasible_points(weight_set, len(h), seed):
        assert weight_set.feasible(other)
        value, size = value_and_size(weight_set, other, h)
        assert value <= support + 1e-9 * (size + abs(support))


@cases()
@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_support_is_convex_and_the_response_is_its_slope(case: Case, data: st.DataObject) -> None:
    h = data.draw(nonnegative)
    other = data.draw(st.lists(entries, min_size=len(h), max_size=len(h)).map(np.array))
    weight_set = case.make(len(h))
    b = weight_set.respond(h)
    supports = [weight_set.support(x) for x in (h, other, 0.5 * (h + other))]
    size = sum(map(abs, supports)) + b @ (h + other)
    assert supports[2] <= 0.5 * (supports[0] + supports[1]) + 1e-9 * size
    assert supports[1] >= supports[0] + b @ (other - h) - 1e-9 * size
    if not weight_set.has_penalty:
        assert weight_set.support(3.0 * h) == pytest.approx(3.0 * supports[0], rel=1e-12)


@cases("is_smooth")
@pytest.mark.parametrize("n_kernels", [1, 6])
def test_smooth_support_has_the_response_as_gradient(case: Case, n_kernels: int) -> None:
    weight_set = case.make(n_kernels)
    h = np.random.default_rng(3).uniform(0.5, 1.5, n_kernels)
    if case.name == "l1.001":
        h = 1.0 + 1e-3 * h  # its gradient moves over differences of this size only
    step = 1e-7 * np.eye(n_kernels)
    gradient = [(weight_set.support(h + e) - weight_set.support(h - e)) / 2e-7 for e in step]
    np.testing.assert_allclose(gradient, weight_set.respond(h), atol=2e-6)


@cases("has_projection")
@given(z=signed.map(np.array), seed=seeds)
@settings(max_examples=40, deadline=None)
def test_projection_is_nearest(case: Case, z: np.ndarray, seed: int) -> None:
    weight_set = case.make(len(z))
    b = weight_set.project(z)
    assert weight_set.feasible(b)
    np.testing.assert_allclose(weight_set.project(b), b, rtol=0, atol=1e-12 * max(1.0, b.max()))
    for other in feasible_points(weight_set, len(z), seed):  # the angle at the projection is never sharp
        assert (z - b) @ (other - b) <= 1e-9 * (1.0 + np.abs(z).max()) * (1.0 + other.max() + b.max()) * len(z)


def update_objective(weight_set: WeightSet, norms: np.ndarray, b: np.ndarray) -> float:
    """1/2 sum norms^2 / b + R(b), with 0/0 = 0."""
    with np.errstate(divide="ignore"):
        ratios = np.divide(norms**2, b, out=np.zeros_like(b), where=norms > 0)
    return float(0.5 * ratios.sum() + weight_set.penalty(b))


@cases("has_update")
@given(norms=nonnegative, seed=seeds)
@settings(max_examples=40, deadline=None)
def test_update_is_optimal(case: Case, norms: np.ndarray, seed: int) -> None:
    if case.name == "single":
        norms[:-1] = 0.0  # no function lives in a kernel of weight zero
    weight_set = case.make(len(norms))
    b = weight_set.update(norms)
    assert b.shape == norms.shape and weight_set.feasible(b)
    best = update_objective(weight_set, norms, b)
    assert np.isfinite(best)
    nearby = [0.9 * b + 0.1 * other for other in feasible_points(weight_set, len(norms), seed)]
    for other in feasible_points(weight_set, len(norms), seed) + nearby:
        assert update_objective(weight_set, norms, other) >= best * (1.0 - 1e-9)


@cases("has_penalty")
@given(n_kernels=st.integers(1, 20), seed=seeds)
@settings(max_examples=30, deadline=None)
def test_slope_is_a_subgradient_of_the_penalty(case: Case, n_kernels: int, seed: int) -> None:
    weight_set = case.make(n_kernels)
    b, *others = feasible_points(weight_set, n_kernels, seed)
    slope = weight_set.slope(b)
    assert slope.shape == b.shape and np.all(np.isfinite(slope))
    for other in others:
        sizes = abs(weight_set.penalty(b)) + abs(weight_set.penalty(other)) + np.abs(slope) @ (b + other)
        assert weight_set.penalty(other) >= weight_set.penalty(b) + slope @ (other - b) - 1e-9 * sizes


@cases()
def test_without_a_penalty_slope_is_zero(case: Case) -> None:
    weight_set = case.make(4)
    b = weight_set.start(4)
    if not weight_set.has_penalty:
        assert weight_set.penalty(b) == 0.0
        np.testing.assert_array_equal(weight_set.slope(b), np.zeros(4))
    assert np.all(np.isfinite(weight_set.slope(np.zeros(4))))


@cases("is_linear")
def test_linear_program_over_the_constraints_gives_the_support(case: Case) -> None:
    weight_set = case.make(5)
    h = np.array([0.3, 1.0, 0.0, 2.5, 0.7])
    result = linprog(-h, **weight_set.linear_constraints(5)._asdict())
    assert -result.fun == pytest.approx(weight_set.support(h), abs=1e-9)


@cases()
def test_simplices_partition_the_kernels_and_hold_one_each(case: Case) -> None:
    weight_set = case.make(7)
    simplices = weight_set.simplices(7)
    kinds = ("simplex", "entropy", "grouped", "grouped r=2", "capped", "elastic net", "power")
    on_simplices = case.name.startswith(kinds)
    assert (simplices is not None) == on_simplices
    for b in feasible_points(weight_set, 7, seed=0) if simplices else []:
        assert sorted(np.concatenate(simplices)) == list(range(7))
        np.testing.assert_allclose([b[members].sum() for members in simplices], 1.0)


@cases()
def test_clean_removes_dust_and_stays_feasible(case: Case) -> None:
    weight_set = case.make(5)
    b = weight_set.project(np.array([0.9, -5.0, 0.4, 0.3, 0.8]))
    dusty = b.copy()
    dusty[1] = 1e-12 * b.max()
    before = dusty.copy()
    cleaned = weight_set.clean(dusty)
    np.testing.assert_array_equal(dusty, before)  # the argument is left alone
    assert weight_set.feasible(cleaned, tol=1e-12)
    if case.name in ("fixed", "average", "sum", "single"):
        np.testing.assert_array_equal(cleaned, b)
    else:
        assert cleaned[1] == 0.0
        np.testing.assert_allclose(cleaned, np.where(dusty < 1e-9 * dusty.max(), 0.0, dusty), rtol=1e-8)


@cases()
def test_feasible_refuses_what_is_outside(case: Case) -> None:
    weight_set = case.make(3)
    inside = weight_set.start(3)
    assert not weight_set.feasible(inside - np.array([0.0, inside[1] + 1e-3, 0.0]))
    if not case.name.startswith("tikhonov"):  # which is unbounded
        assert not weight_set.feasible(inside + 6.0)


@cases()
def test_missing_capabilities_are_refused_by_name(case: Case) -> None:
    weight_set = case.make(3)
    b = weight_set.start(3)
    for capability, call in [
        ("has_projection", lambda: weight_set.project(b)),
        ("has_update", lambda: weight_set.update(b)),
        ("is_linear", lambda: weight_set.linear_constraints(3)),
    ]:
        if getattr(weight_set, capability):
            call()
        else:
            with pytest.raises(Unsupported, match=type(weight_set).__name__):
                call()
    assert (weight_set.scale(b, np.ones(3)) is not None) == weight_set.has_scale


@cases()
def test_cost_without_factors_is_energy_plus_penalty(case: Case) -> None:
    weight_set = case.make(4)
    b, h = weight_set.start(4), np.array([1.0, 0.5, 2.0, 0.0])
    if not weight_set.has_scale:
        assert weight_set.cost(b, h) == pytest.approx(b @ h + weight_set.penalty(b), rel=1e-14)


@cases()
def test_sets_are_values(case: Case) -> None:
    weight_set = case.make(4)
    assert weight_set == case.make(4) == pickle.loads(pickle.dumps(weight_set))
    assert hash(weight_set) == hash(case.make(4))
    assert repr(weight_set).startswith(type(weight_set).__name__ + "(")
    assert weight_set.resolve(bank=None, machine=None, Y=np.zeros((0, 1))) == weight_set
    for field in fields(weight_set):  # type: ignore[arg-type]
        with pytest.raises(FrozenInstanceError):
            setattr(weight_set, field.name, 1)


def solve(objective: Any, constraints: list[Any]) -> float:
    return cp.Problem(objective, constraints).solve(solver=cp.CLARABEL)


@conic_cases()
def test_support_equals_the_conic_optimum(case: Case) -> None:
    for h in (np.array([0.4, 2.0, 0.0, 1.3, 1.9]), np.array([1.0, 1.0, 0.02, 0.5, 0.9])):
        b = cp.Variable(5)
        constraints, penalty = case.conic(b)
        optimum = solve(cp.Maximize(h @ b - penalty), constraints)
        assert case.make(5).support(h) == pytest.approx(optimum, rel=1e-6, abs=1e-7)


@conic_cases("has_projection")
def test_projection_equals_the_conic_one(case: Case) -> None:
    for z in (np.array([0.4, 2.0, -0.7, 1.3, 1.9]), np.array([0.1, 0.05, -0.2, 0.0, 0.3])):
        b = cp.Variable(5)
        optimum = solve(cp.Minimize(cp.sum_squares(b - z)), case.conic(b)[0])
        nearest = case.make(5).project(z)
        assert np.sum((nearest - z) ** 2) == pytest.approx(optimum, rel=1e-7, abs=1e-8)
        np.testing.assert_allclose(nearest, b.value, atol=1e-4)  # the square root of the solver's accuracy


@conic_cases("has_update")
def test_update_equals_the_conic_optimum(case: Case) -> None:
    weight_set, norms = case.make(5), np.array([0.4, 2.0, 0.05, 1.3, 0.9])
    b = cp.Variable(5)
    constraints, penalty = case.conic(b)
    optimum = solve(cp.Minimize(0.5 * (norms**2) @ cp.inv_pos(b) + penalty), constraints)
    assert update_objective(weight_set, norms, weight_set.update(norms)) == pytest.approx(optimum, rel=1e-6)
