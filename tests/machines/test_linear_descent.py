"""Machines on kernels of low rank, against the same machines on the whole matrix Z Z'."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from numpy.typing import NDArray

from kernelweave.kernels import Gaussian, KernelBank, Linear
from kernelweave.kernels.factors import Columns, Factors
from kernelweave.machines import MLRGL, MLRL1, SVM, MLRPairwise, NuSVM, Ridge, ROCArea, WorstClass, linear_descent
from kernelweave.machines.decomposition import BoxDual, certificate, gradient, maximise_all
from kernelweave.machines.linear_descent import _restore


def factors(Z: NDArray, weights: Any = (1.0,)) -> Factors:
    """Z (n, width) as kernels of equal width, with weights; there are columns of no kernel between them."""
    width = Z.shape[1] // len(weights)
    starts = np.arange(len(weights)) * (width + 1)
    stored = np.full((len(Z), len(weights) * (width + 1)), np.nan, Z.dtype)
    for k, start in enumerate(starts):
        stored[:, start : start + width] = Z[:, k * width : (k + 1) * width]
    ranges = np.stack([starts, starts + width], axis=1)
    squares = (Z[:, : width * len(weights)].astype(float) ** 2).reshape(len(Z), len(weights), width).sum(axis=2).T
    return Factors(Columns(stored, np.arange(len(Z)), ranges), np.asarray(weights, dtype=float), squares)


def whole(K: Factors) -> NDArray:
    every = np.arange(len(K))
    F = K.features(every)
    return F @ F.T


def random_problem(seed: int, n: int, n_groups: int) -> tuple[Factors, BoxDual, NDArray]:
    """Features of random width and scale, a box with some sides closed, and a feasible point inside."""
    rng = np.random.default_rng(seed)
    K = factors(rng.standard_normal((n, 2 * rng.integers(1, 6))) * 10.0 ** rng.uniform(-1, 1), rng.random(2) + 0.1)
    lower, upper = -rng.exponential(size=n) * (rng.random(n) < 0.8), rng.exponential(size=n) * (rng.random(n) < 0.8)
    side = rng.permutation(n) < max(n // 2, 1)
    groups = {0: np.zeros((0, n), bool), 1: np.ones((1, n), bool), 2: np.stack([side, ~side])}[min(n_groups, n)]
    start = lower + rng.random(n) * (upper - lower)
    # As in the machines: a linear part has the signs of v, and no sums but zero are kept with one.
    linear = np.zeros(n) if len(groups) else 3 * rng.random(n) * np.sign(start)
    return K, BoxDual(linear, lower, upper, groups), start


def check(K: Factors, problem: BoxDual, start: NDArray, accuracy: float) -> None:
    (found,), (expected,) = (maximise_all(M, [problem], start[None], accuracy) for M in (K, whole(K)))
    D = whole(K)
    assert np.all((found.v >= problem.lower) & (found.v <= problem.upper))
    assert_allclose(problem.groups @ found.v, problem.groups @ start, atol=1e-9)
    g = gradient(D, problem, found.v)
    assert_allclose(found.g, g, atol=1e-9 * (1 + np.abs(g).max()))
    assert_allclose(found.gap, certificate(problem, found.v, g)[0], rtol=1e-6, atol=1e-9)
    values = [float(problem.linear @ s.v - 0.5 * s.v @ D @ s.v) for s in (found, expected)]
    # The value may vanish beside the terms that it is the sum of, and then is known up to their rounding.
    terms = float(np.diag(D) @ np.maximum(found.v**2, expected.v**2)) + float(np.abs(problem.linear) @ np.abs(found.v))
    rounding = 1e-15 * len(start) * terms
    size = abs(values[1]) + found.gap + expected.gap
    # Where the value is zero, neither solver can get below rounding: then ours is no worse than the other.
    assert found.gap <= max(2 * accuracy * size + 1e-12 * terms, expected.gap)
    assert values[0] >= values[1] - found.gap - 1e-9 * size - rounding
    assert values[1] >= values[0] - expected.gap - 1e-9 * size - rounding


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.sampled_from((0, 1, 2)))
@example(14472, 11, 1)  # most samples inside their boxes, and a value that is small beside the kernel
def test_random_boxes_and_groups(seed: int, n: int, n_groups: int) -> None:
    check(*random_problem(seed, n, n_groups), accuracy=1e-4)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.booleans(), st.sampled_from((0.01, 1.0, 30.0)))
def test_random_support_vector_machines(seed: int, n: int, bias: bool, C: float) -> None:
    rng = np.random.default_rng(seed)
    K = factors(rng.standard_normal((n, 6)).astype(rng.choice(["f4", "f8"])), (0.3, 0.0, 2.0)[: rng.integers(1, 4)])
    y = np.where(rng.random(n) < 0.4, 1.0, -1.0) * (rng.random(n) < 0.9)
    machine = SVM(C, bias, sample_weight=rng.random(n))
    check(K, machine.box(y), machine.feasible_start(y), accuracy=1e-5)


@pytest.fixture(scope="module")
def data() -> tuple[Any, NDArray]:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(400, 3))
    Y = np.sign(X @ rng.normal(size=(3, 4)) + 0.5 * rng.normal(size=(400, 4)) + 0.3)
    Y[rng.random(Y.shape) < 0.1] = 0.0
    bank = KernelBank([Gaussian(), Gaussian(0.2), Linear()], rank=25, dtype="float64").build(X)
    return bank, Y


SVMS = [SVM(0.1), SVM(10.0), SVM(1.0, fit_intercept=False), SVM(1.0, class_weight="balanced"), NuSVM(0.5)]
MACHINES = [*SVMS, ROCArea(10.0), WorstClass(SVM(1.0)), Ridge(10.0), Ridge(0.1, fit_intercept=False)]
RANKERS = [MLRL1(1.0), MLRL1(0.3, ridge=0.5, box="wide"), MLRPairwise(0.2), MLRGL(0.5)]


@pytest.mark.parametrize("machine", [*MACHINES, *RANKERS], ids=repr)
def test_every_machine_agrees_with_the_whole_matrix(data: Any, machine: Any) -> None:
    bank, Y = data
    K = bank.combine([0.5, 0.0, 0.2])
    Y = Y[:150] if machine.kind == "ranker" else Y
    K = K.restrict(np.arange(len(Y)))
    ours, theirs = (machine.solve(M, Y, accuracy=1e-5) for M in (K, whole(K)))
    assert ours.coef.shape == theirs.coef.shape
    for solution in (ours, theirs):
        assert -1e-9 * abs(theirs.primal) <= solution.gap <= 1e-5 * abs(theirs.primal) * (1 + 1e-9) * Y.shape[1]
        assert solution.dual <= min(ours.primal, theirs.primal) + 1e-9 * abs(theirs.primal)
    assert_allclose(K.product(ours.coef), whole(K) @ ours.coef, rtol=1e-9, atol=1e-9)
    warm = machine.solve(K, Y, start=ours, accuracy=1e-4)
    assert warm.steps <= 0.5 * ours.steps or machine.kind == "regressor"
    assert warm.gap <= 1e-4 * abs(warm.primal) * Y.shape[1]


@pytest.mark.parametrize("machine", [SVM(0.1), SVM(5.0), SVM(1.0, fit_intercept=False)], ids=repr)
def test_passes_alone_reach_the_gap(data: Any, machine: Any, monkeypatch: Any) -> None:
    bank, Y = data
    K = bank.combine([0.5, 0.3, 0.2])
    usual = machine.solve(K, Y, accuracy=1e-3)
    monkeypatch.setattr(linear_descent._Column, "_working_set", lambda column: None)
    passes = machine.solve(K, Y, accuracy=1e-3)
    for solution in (usual, passes):
        assert solution.gap <= 1e-3 * solution.primal
    assert passes.dual <= usual.primal
    assert usual.dual <= passes.primal


def test_small_working_sets_reach_the_gap(data: Any, monkeypatch: Any) -> None:
    bank, Y = data
    monkeypatch.setattr(linear_descent, "_SMALLEST", 120)
    monkeypatch.setattr(linear_descent, "_LARGEST", 120)
    solution = SVM(3.0).solve(bank.combine([0.5, 0.3, 0.2]), Y, accuracy=1e-6)
    assert solution.gap <= 1e-6 * solution.primal


def test_the_same_numbers_every_time_and_for_every_column_by_itself(data: Any) -> None:
    bank, Y = data
    K = bank.combine([0.5, 0.3, 0.2])
    first, again = (SVM(1.0).solve(K, Y, accuracy=1e-4).coef for _ in range(2))
    assert (first == again).all()
    alone = SVM(1.0).solve(K, Y[:, :1], accuracy=1e-4).coef
    assert_allclose(alone[:, 0], first[:, 0], atol=1e-9)


def test_a_kernel_that_is_zero() -> None:
    K = KernelBank(Linear(), rank=2).build(np.ones((6, 2))).combine([0.0])
    y = np.array([[1.0], [1.0], [1.0], [1.0], [-1.0], [-1.0]])
    solution = SVM(1.0).solve(K, y, accuracy=1e-6)
    assert_allclose(solution.primal, 4.0)  # f = 0 with the bias of the larger class
    assert solution.intercept[0] >= 1.0 - 1e-9


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 20), st.sampled_from((1, 2)))
def test_sums_are_restored_inside_the_box(seed: int, n: int, n_groups: int) -> None:
    rng = np.random.default_rng(seed)
    lower, upper = -rng.random(n), rng.random(n)
    member = rng.integers(0, n_groups, size=n)
    sums = np.array([(lower + rng.random(n) * (upper - lower))[member == c].sum() for c in range(n_groups)])
    v = np.clip(lower + (rng.random(n) * 1.4 - 0.2) * (upper - lower), lower, upper)
    bounded = (v == lower) | (v == upper)
    before = v.copy()
    _restore(lower, upper, member, sums, v)
    assert np.all((v >= lower) & (v <= upper))
    for c in range(n_groups):
        inside = (member == c) & ~bounded
        assert_allclose(v[member == c].sum(), sums[c], atol=1e-12)
        change = sums[c] - before[member == c].sum()
        room = (upper - before if change > 0 else before - lower)[inside].sum()
        if room > abs(change) * (1 + 1e-9):  # then samples at their bounds stay there
            assert (v[(member == c) & bounded] == before[(member == c) & bounded]).all()


@pytest.mark.parametrize("machine", [SVM(1.0), SVM(1.0, fit_intercept=False), Ridge(3.0), ROCArea(5.0)], ids=repr)
@pytest.mark.parametrize("rank", [6, 60])
def test_curvature_agrees_with_the_whole_matrix(rank: int, machine: Any) -> None:
    """With fewer features than samples that respond, a ridge stands in for what is not there, so only where they do."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3))
    y = np.sign(X[:, :1] + 0.8 * rng.normal(size=(80, 1)))
    bank = KernelBank([Gaussian(), Gaussian(0.3), Linear()], rank=rank, dtype="float64").build(X)
    b = np.array([0.5, 0.3, 0.2])
    K = bank.combine(b)
    solution = machine.solve(K, y, accuracy=1e-10)
    ours, theirs = (machine.curvature(M, y, solution, bank) for M in (K, whole(K)))
    assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6 * np.abs(theirs).max())


def test_curvature_where_more_samples_respond_than_there_are_features() -> None:
    rng = np.random.default_rng(0)
    K = factors(rng.normal(size=(50, 6)), (1.0, 0.5))
    free, constraints, R = np.arange(0, 40), np.ones((1, 40)), rng.normal(size=(3, 40))
    from kernelweave.machines.base import projected_curvature
    from kernelweave.machines.low_rank_systems import _DEGENERATE_RIDGE

    A = whole(K)[:40, :40]
    inverse = np.linalg.inv(A + _DEGENERATE_RIDGE * np.diag(A).mean() * np.eye(40))
    held = inverse @ constraints.T
    P = inverse - held @ held.T / (constraints @ held)
    assert_allclose(projected_curvature(K, free, constraints, R), R @ P @ R.T, rtol=1e-6)


def test_ridge_regression_in_the_space_of_the_features() -> None:
    rng = np.random.default_rng(0)
    K = factors(rng.normal(size=(50, 6)), (1.0, 0.5))
    Y = rng.normal(size=(50, 2))
    machine = Ridge(2.0, sample_weight=rng.random(50) + 0.1)
    ours, theirs = machine.solve(K, Y), machine.solve(whole(K), Y)
    assert_allclose(ours.coef, theirs.coef, rtol=1e-8, atol=1e-10)
    assert_allclose(ours.intercept, theirs.intercept, rtol=1e-8)
    assert abs(ours.gap) <= 1e-9 * ours.primal
