"""The dual solver that asks a kernel for nothing but products: against the compiled one, on NumPy and on torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from problems import binary, gaussian

from kernelweave.kernels.operators import Operator
from kernelweave.machines import MLRL1, SVM, NuSVM
from kernelweave.machines.decomposition import BoxDual, maximise_all
from kernelweave.machines.products import Duals


class InMemory(Operator):
    """A matrix that is only multiplied; counts how often."""

    def __init__(self, K: NDArray) -> None:
        self.K, self.shape, self.dtype = K, K.shape, K.dtype
        self.n_products = 0

    def product(self, V: NDArray) -> NDArray:
        self.n_products += 1
        return self.K.astype(np.float64) @ V

    def block(self, rows: NDArray, columns: NDArray) -> NDArray:
        raise AssertionError("products are enough")

    def diagonal(self) -> NDArray:
        return self.K.diagonal()


def on_torch(K: NDArray) -> Any:
    torch = pytest.importorskip("torch", reason="products on torch are tested where torch is installed")
    from kernelweave.kernels.device import DeviceKernel

    return DeviceKernel(torch.from_numpy(np.ascontiguousarray(K)))


PLACES = {"numpy": InMemory, "torch": on_torch}


@pytest.fixture(params=list(PLACES))
def placed(request: Any) -> Any:
    return PLACES[request.param]


def columns(n: int = 60, m: int = 4, seed: int = 0) -> tuple[NDArray, NDArray]:
    """A kernel with much in common between its samples, and label columns of different sizes."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5))
    Y = np.where(X @ rng.normal(size=(5, m)) + rng.normal(size=(n, m)) > np.linspace(-0.5, 1.0, m), 1.0, -1.0)
    return gaussian(X, 3.0), Y


MACHINES = [SVM(1.0), SVM(100.0), SVM(10.0, fit_intercept=False), SVM(5.0, class_weight="balanced"), NuSVM(0.2)]


@pytest.mark.parametrize("machine", MACHINES, ids=str)
@pytest.mark.parametrize("accuracy", [1e-2, 1e-6])
def test_the_gap_asked_for_is_reached_and_the_optimum_that_of_the_compiled_solver(placed, machine, accuracy):
    K, Y = columns()
    expected = machine.solve(K, Y, accuracy=1e-9)
    found = machine.solve(placed(K), Y, accuracy=accuracy)
    assert 0 <= found.gap <= accuracy * abs(found.primal) * (1 + 1e-9)
    slack = 1e-8 * abs(expected.primal)
    assert found.dual <= expected.primal + slack
    assert found.primal >= expected.dual - slack
    # What is reported is what the duals themselves say.
    assert_allclose(found.quadratic, 0.5 * np.sum(found.coef * (K @ found.coef)), rtol=1e-9)
    if accuracy < 1e-5:
        scores = [K @ s.coef + s.intercept for s in (found, expected)]
        assert_allclose(scores[0], scores[1], atol=2e-3 * np.abs(scores[1]).max())


@pytest.mark.parametrize("machine", MACHINES, ids=str)
def test_constraints_hold_to_rounding(placed, machine):
    K, Y = columns()
    found = machine.solve(placed(K), Y, accuracy=1e-4)
    for y, v in zip(Y.T, found.coef.T, strict=True):
        assert machine.box(y).feasible(np.ascontiguousarray(v), machine.feasible_start(y))


def test_single_precision_kernels_give_exact_certificates(placed):
    K, Y = columns()
    machine = SVM(10.0)
    found = machine.solve(placed(K.astype(np.float32)), Y, accuracy=1e-5)
    exact = machine.solve(K.astype(np.float32).astype(np.float64), Y, accuracy=1e-9)
    assert found.gap <= 1e-5 * found.primal
    assert found.dual <= exact.primal * (1 + 1e-9)
    assert found.primal >= exact.dual * (1 - 1e-9)


def test_labels_that_nobody_judged_take_no_part(placed):
    K, Y = columns()
    Y[:20, 0] = 0.0
    Y[:, 1] = 0.0
    found = SVM(1.0).solve(placed(K), Y, accuracy=1e-6)
    alone = SVM(1.0).solve(K[20:, 20:], Y[20:, [0]], accuracy=1e-8)
    assert (found.coef[:20, 0] == 0).all()
    assert (found.coef[:, 1] == 0).all()
    assert_allclose(found.coef[20:, 0], alone.coef[:, 0], atol=1e-3)


def test_a_warm_start_saves_products():
    K, Y = columns(120)
    near = K + 0.01 * gaussian(np.random.default_rng(5).normal(size=(120, 2)))
    machine = SVM(1.0)
    start = machine.solve(InMemory(K), Y, accuracy=1e-4)
    cold, warm = InMemory(near), InMemory(near)
    machine.solve(cold, Y, accuracy=1e-3)
    machine.solve(warm, Y, start=start, accuracy=1e-3)
    assert warm.n_products < cold.n_products / 2
    again = InMemory(K)
    assert machine.solve(again, Y, start=start, accuracy=1e-3).steps == 0


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 25), n_groups=st.sampled_from([0, 1, 2]), m=st.integers(1, 3))
def test_any_box_with_any_groups(seed, n, n_groups, m):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, rng.integers(1, n + 2))) * 10.0 ** rng.uniform(-1, 1)
    K = X @ X.T
    side = rng.permutation(n) < max(n // 2, 1)
    groups = {0: np.zeros((0, n), bool), 1: np.ones((1, n), bool), 2: np.stack([side, ~side])}[n_groups]
    problems, starts = [], []
    for _ in range(m):
        lower, upper = -rng.exponential(size=n) * (rng.random(n) < 0.8), rng.exponential(size=n) * (rng.random(n) < 0.8)
        sums_kept = n_groups > 0 and rng.random() < 0.3  # other than zero they may be only if nothing is linear
        problems.append(BoxDual(rng.standard_normal(n) * 3 * (not sums_kept), lower, upper, groups))
        starts.append((lower + rng.random(n) * (upper - lower)) * sums_kept)
    begin = np.stack(starts)
    found = maximise_all(InMemory(K), problems, begin, 1e-5)
    expected = maximise_all(K, problems, begin, 1e-8)
    for problem, start, a, b in zip(problems, begin, found, expected, strict=True):
        values = [float(problem.linear @ s.v - 0.5 * s.v @ K @ s.v) for s in (a, b)]
        size = abs(values[1]) + a.gap + float(np.abs(problem.linear) @ np.abs(a.v))
        size += 1e-6 * float(K.diagonal() @ (problem.upper - problem.lower) ** 2)  # where the optimum itself is zero
        assert problem.feasible(a.v, start)
        assert a.gap >= -1e-12 * size
        own = float(
            K.diagonal() @ a.v**2
        )  # without a linear part the optimum may be zero, and no gap is small beside it
        assert a.gap <= max(1e-5 * abs(values[0] + a.gap), 1e-12 * own, 1e-11 * size)
        assert values[0] <= values[1] + b.gap + 1e-9 * size
        assert values[0] + a.gap >= values[1] - 1e-9 * size


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 12), axis=st.sampled_from([0, 1]))
def test_projections_are_nearest_points(seed, n, axis):
    rng = np.random.default_rng(seed)
    shape = (n, 3) if axis == 0 else (3, n)
    lower, upper = -rng.exponential(size=shape) * (rng.random(shape) < 0.7), rng.exponential(size=shape)
    inside = lower + rng.random(shape) * (upper - lower)
    kept = inside.sum(axis=axis, keepdims=True)
    duals = Duals(np.zeros(shape), lower, upper, [np.ones(shape)], [kept], axis)
    T = 3 * rng.standard_normal(shape)
    projected = duals.project(T, [rng.normal()])
    assert (projected >= lower).all()
    assert (projected <= upper).all()
    assert_allclose(projected.sum(axis=axis, keepdims=True), kept, atol=1e-10)
    # The nearest point of a convex set: no other point of it lies in the direction of T.
    assert ((T - projected) * (inside - projected)).sum() <= 1e-8


RANKERS = [MLRL1(1.0), MLRL1(10.0), MLRL1(1.0, ridge=0.5), MLRL1(0.3, box="wide")]


@pytest.mark.parametrize("machine", RANKERS, ids=str)
def test_label_ranking_agrees_with_the_sweeps(placed, machine):
    K, Y = columns(50, 6)
    Y[3] = 1.0  # no pair of labels to rank
    Y[5, 2:] = 0.0  # not judged
    expected = machine.solve(K, Y, accuracy=1e-7)
    found = machine.solve(placed(K), Y, accuracy=1e-4)
    assert found.gap <= 1e-4 * found.primal
    assert found.dual <= expected.primal * (1 + 1e-9)
    assert found.primal >= expected.dual * (1 - 1e-9)
    assert_allclose(found.coef.sum(axis=1), 0, atol=1e-9 * np.abs(found.coef).max())
    warm = machine.solve(placed(K), Y, start=found, accuracy=1e-4)
    assert warm.steps == 0


def test_one_column_one_sample(placed):
    K, y = binary()
    found = SVM(1.0).solve(placed(K[0]), y[:, None], accuracy=1e-6)
    expected = SVM(1.0).solve(K[0], y[:, None], accuracy=1e-8)
    assert_allclose(found.primal, expected.primal, rtol=1e-5)
    alone = SVM(2.0, fit_intercept=False).solve(placed(np.array([[4.0]])), np.array([[1.0]]))
    assert_allclose(alone.coef, [[0.25]], rtol=1e-6)


def test_a_kernel_of_zeros(placed):
    found = SVM(2.0).solve(placed(np.zeros((4, 4))), np.array([[1.0], [1.0], [-1.0], [-1.0]]), accuracy=1e-6)
    assert_allclose(np.abs(found.coef), 2.0)
    assert_allclose(found.primal, 8.0)
