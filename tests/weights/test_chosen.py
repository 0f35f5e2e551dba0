"""Weights chosen from the data: the best single kernel and kernel-target alignment."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.svm import SVC

from kernelweave import machines
from kernelweave.machines import SVM
from kernelweave.weights import Alignment, Average, Best, Fixed, Single, Unsupported, chosen


class StackBank:
    """A kernel bank that is only a stack of matrices (s, n, n), and counts what it hands out."""

    def __init__(self, stack: np.ndarray) -> None:
        self.stack = np.asarray(stack)
        self.n_kernels, self.n_samples = self.stack.shape[:2]
        self.names = [f"kernel {j}" for j in range(self.n_kernels)]
        self.asked: list[int] = []
        self.largest_block = 0

    def gram(self, j: int) -> np.ndarray:
        self.asked.append(j)
        return self.stack[j]

    def rows(self, samples: np.ndarray) -> np.ndarray:
        self.largest_block = max(self.largest_block, len(samples))
        return self.stack[:, samples]

    def quadratics(self, V: np.ndarray) -> np.ndarray:
        return 0.5 * np.einsum("ik,jil,lk->j", V, self.stack, V)


class SupportVectors(SVM):
    """A machine: scikit-learn's SVC on each column."""

    def restrict(self, samples):
        return self

    kind = "classifier"

    def solve(self, K: np.ndarray, Y: np.ndarray, start=None, accuracy: float = 1e-3) -> SimpleNamespace:
        coef, intercept = np.zeros(Y.shape), np.zeros(Y.shape[1])
        for k, y in enumerate(Y.T):
            model = SVC(kernel="precomputed").fit(K, y)
            coef[model.support_, k], intercept[k] = model.dual_coef_[0], model.intercept_[0]
        return SimpleNamespace(coef=coef, intercept=intercept)


class Ridge(machines.Ridge):
    """A machine for real targets."""

    def restrict(self, samples):
        return self

    kind = "regressor"

    def solve(self, K: np.ndarray, Y: np.ndarray, start=None, accuracy: float = 1e-3) -> SimpleNamespace:
        return SimpleNamespace(coef=np.linalg.solve(K + 0.1 * np.eye(len(K)), Y), intercept=np.zeros(Y.shape[1]))


def linear_kernels(*views: np.ndarray) -> np.ndarray:
    return np.array([view @ view.T for view in views])


@pytest.fixture
def data() -> tuple[np.ndarray, np.ndarray]:
    """Five kernels of which number 2 knows the labels best, and the labels (n, 1)."""
    rng = np.random.default_rng(0)
    y = np.where(rng.random(45) < 0.3, 1.0, -1.0)
    views = [rng.normal(size=(45, 3)) + strength * y[:, None] for strength in (0.0, 0.4, 1.5, 0.8, 0.0)]
    return linear_kernels(*views), y[:, None]


def test_best_is_the_kernel_that_cross_validation_prefers(data) -> None:
    stack, Y = data
    for shift in range(3):  # whichever place the best kernel has
        bank = StackBank(np.roll(stack, shift, axis=0))
        folds = StratifiedKFold(4, shuffle=True, random_state=7)
        scores = [
            cross_val_score(SVC(kernel="precomputed"), K, Y[:, 0], cv=folds, scoring="balanced_accuracy").mean()
            for K in bank.stack
        ]
        found = Best(cv=4, random_state=7).resolve(bank, SupportVectors(), Y)
        assert found == Fixed(np.eye(5)[np.argmax(scores)].tolist())
        assert np.argmax(scores) == (2 + shift) % 5
        assert bank.asked == list(range(5))  # one kernel at a time, each once


def test_equal_kernels_give_the_first(data) -> None:
    stack, Y = data
    found = Best().resolve(StackBank(stack[[0, 2, 2]]), SupportVectors(), Y)
    np.testing.assert_array_equal(found.start(3), [0, 1, 0])


def test_best_over_several_columns_and_rare_labels(data) -> None:
    stack, Y = data
    rare = -np.ones((len(Y), 1))
    rare[3] = 1.0  # in some training folds only one class is left: they are passed over
    found = Best().resolve(StackBank(stack), SupportVectors(), np.hstack([Y, -Y, rare]))
    np.testing.assert_array_equal(found.start(5), np.eye(5)[2])


def test_best_for_regression_goes_by_squared_error() -> None:
    rng = np.random.default_rng(1)
    views = rng.normal(size=(3, 30, 2))
    targets = views[1] @ np.array([[1.0], [-2.0]]) + 0.1 * rng.normal(size=(30, 1))
    found = Best().resolve(StackBank(linear_kernels(*views)), Ridge(), targets)
    np.testing.assert_array_equal(found.start(3), [0, 1, 0])


def test_fewer_folds_when_a_class_is_small(data) -> None:
    stack, _ = data
    y = -np.ones((45, 1))
    y[:2] = 1.0
    found = Best(cv=5).resolve(StackBank(stack), SupportVectors(), y)
    assert sum(found.weights) == 1.0
    y[1] = -1.0
    with pytest.raises(ValueError, match="a class has a single sample"):
        Best(cv=5).resolve(StackBank(stack), SupportVectors(), y)


def test_best_needs_something_to_compare(data) -> None:
    stack, Y = data
    with pytest.raises(ValueError, match="at least 2 samples, got 1"):
        Best().resolve(StackBank(stack[:, :1, :1]), SupportVectors(), Y[:1])
    with pytest.raises(ValueError, match="no training fold has samples of two classes"):
        Best().resolve(StackBank(stack), SupportVectors(), np.ones((45, 2)))
    with pytest.raises(ValueError, match="cv must be a number of folds, at least 2, got 1"):
        Best(cv=1)


def alignment(b: np.ndarray, stack: np.ndarray, Y: np.ndarray, centered: bool) -> float:
    """The definition, with whole matrices."""
    n = len(Y)
    H = np.eye(n) - 1 / n if centered else np.eye(n)
    K = H @ np.tensordot(b, stack, 1) @ H
    return np.sum(K * (Y @ Y.T)) / np.linalg.norm(K)


@pytest.mark.parametrize("centered", [True, False])
@pytest.mark.parametrize("n_columns", [1, 2])
def test_alignment_is_the_largest(data, centered: bool, n_columns: int) -> None:
    stack, y = data
    Y = np.hstack([y, np.sign(np.random.default_rng(3).normal(size=y.shape))])[:, :n_columns]
    b = Alignment(centered).resolve(StackBank(stack), SVM(), Y).start(5)
    best = alignment(b, stack, Y, centered)
    assert np.all(b >= 0) and b.sum() == pytest.approx(1)
    rng = np.random.default_rng(4)
    others = [*np.eye(5), np.ones(5), *rng.exponential(size=(100, 5)), *(b * rng.uniform(0.9, 1.1, size=(100, 5)))]
    assert max(alignment(other, stack, Y, centered) for other in others) <= best * (1 + 1e-12)


@pytest.mark.parametrize("centered", [True, False])
def test_alignment_by_blocks_is_the_same_and_bounds_memory(data, centered: bool, monkeypatch) -> None:
    stack, Y = data
    whole = Alignment(centered).resolve(StackBank(stack), SVM(), Y)
    monkeypatch.setattr(chosen, "BLOCK_BYTES", 8 * 5 * 45 * 4)  # four rows of every kernel
    bank = StackBank(stack)
    np.testing.assert_allclose(Alignment(centered).resolve(bank, SVM(), Y).weights, whole.weights, atol=1e-10)
    assert bank.largest_block == 4
    assert bank.asked == []


def test_centred_alignment_ignores_offsets_and_constant_kernels(data) -> None:
    stack, Y = data
    plain = Alignment().resolve(StackBank(stack), SVM(), Y).start(5)
    moved = Alignment().resolve(StackBank(stack + 1e5 / 3), SVM(), Y).start(5)
    np.testing.assert_allclose(moved, plain, atol=1e-8)
    with_constant = np.concatenate([stack, np.full((1, 45, 45), 1 / 3)])
    found = Alignment().resolve(StackBank(with_constant), SVM(), Y).start(6)
    np.testing.assert_allclose(found, [*plain, 0.0], atol=1e-10)


def test_alignment_of_zero_duplicate_and_scaled_kernels(data) -> None:
    stack, Y = data
    plain = Alignment().resolve(StackBank(stack), SVM(), Y).start(5)
    extended = np.concatenate([stack, stack[2:3], np.zeros((1, 45, 45))])
    found = Alignment().resolve(StackBank(extended), SVM(), Y).start(7)
    np.testing.assert_allclose([*found[:2], found[2] + found[5], *found[3:5], found[6]], [*plain, 0.0], atol=1e-8)
    factors = np.array([1e-6, 1.0, 1e6, 1.0, 1e3])
    scaled = Alignment().resolve(StackBank(factors[:, None, None] * stack), SVM(), Y).start(5) * factors
    np.testing.assert_allclose(scaled / scaled.sum(), plain, atol=1e-8)


def test_nothing_aligned_gives_the_average() -> None:
    nothing = StackBank(np.zeros((3, 6, 6)))
    found = Alignment().resolve(nothing, SVM(), np.ones((6, 1)))
    np.testing.assert_array_equal(found.start(3), Average().start(3))


@pytest.mark.parametrize("weight_set", [Best(), Alignment()], ids=repr)
def test_use_before_resolve_is_refused(weight_set) -> None:
    for call in (
        lambda: weight_set.start(3),
        lambda: weight_set.respond(np.ones(3)),
        lambda: weight_set.feasible(np.ones(3)),
    ):
        with pytest.raises(Unsupported, match="resolve"):
            call()


def test_single_kernel_by_name(data) -> None:
    bank = StackBank(data[0])
    assert Single("kernel 3").resolve(bank, None, data[1]) == Single(3)
    with pytest.raises(ValueError, match=r"Single: there is no kernel named 'x'\. The kernels are: 'kernel 0'"):
        Single("x").resolve(bank, None, data[1])


def test_labels_never_judged_count_for_neither_side(data) -> None:
    stack, Y = data
    judged = np.arange(45) % 4 != 0
    gaps = np.where(judged[:, None], Y, 0.0)
    bank = StackBank(stack)
    targets = np.where(judged[:, None], Y - Y[judged].mean(), 0.0)
    expected = chosen._best_aligned(Alignment()._products(bank), 2.0 * bank.quadratics(targets))
    np.testing.assert_allclose(Alignment().resolve(bank, SVM(), gaps).weights, expected)
    assert np.argmax(Best().resolve(bank, SVM(), gaps).weights) == 2
    # two columns, of which one was never judged, are the one that was
    both = np.hstack([Y, np.zeros_like(Y)])
    assert Best().resolve(bank, SVM(), both).weights == Best().resolve(bank, SVM(), np.hstack([Y, Y])).weights
