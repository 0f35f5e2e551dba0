"""Normalisations and repairs of kernels."""

import naive
import numpy as np
import pytest
from numpy.testing import assert_allclose

from kernelweave import KernelStack
from kernelweave.kernels import FromFunction, Gaussian, KernelBank, Linear, Normalised, Polynomial, Product, Repaired

X = np.random.default_rng(0).normal(size=(50, 4)) + 1.0
NEW = np.random.default_rng(1).normal(size=(6, 4)) + 1.0
CHAINS = [
    ("trace",),
    ("spherical",),
    ("variance",),
    ("center",),
    ("center", "spherical"),
    ("spherical", "center", "trace"),
    ("trace", "center", "variance"),
]


@pytest.mark.parametrize("storage", ["packed", "recompute"])
@pytest.mark.parametrize("chain", CHAINS, ids="-".join)
@pytest.mark.parametrize("kernel", [Linear(), Polynomial(), Gaussian()], ids=lambda kernel: kernel.label)
def test_normalisations_are_their_formulas(kernel, chain, storage):
    bank = KernelBank(kernel, normalise=chain, storage=storage, dtype="float64").build(X)
    K, cross = naive.kernel(kernel, X, X, X), naive.kernel(kernel, NEW, X, X)
    diagonal = np.array([naive.kernel(kernel, x[None], x[None], X)[0, 0] for x in NEW])
    for step in chain:
        cross, diagonal = naive.normalised(step, K, cross, diagonal)
        K, _ = naive.normalised(step, K)
    assert_allclose(bank.gram(0), K, atol=1e-11)
    assert_allclose(bank.expansion([0], [9, 30]).cross(NEW)[0], cross[:, [9, 30]], atol=1e-11)


def test_what_normalisations_promise():
    grams = {
        step: KernelBank(Polynomial(3), normalise=step, dtype="float64").build(X).gram(0)
        for step in ("trace", "spherical", "variance", "center")
    }
    assert_allclose(np.trace(grams["trace"]), 50)
    assert_allclose(np.diag(grams["spherical"]), 1)
    assert_allclose(np.trace(grams["variance"]) / 50 - grams["variance"].mean(), 1)
    assert_allclose(grams["center"].sum(axis=0), 0, atol=1e-8)


def test_centring_a_linear_kernel_is_centring_the_features():
    bank = KernelBank(Normalised(Linear(), "center"), dtype="float64").build(X)
    mean = X.mean(axis=0)
    assert_allclose(bank.expansion([0], [3, 4]).cross(NEW)[0], (NEW - mean) @ (X[[3, 4]] - mean).T, atol=1e-12)


def test_bank_wide_normalisation_comes_after_that_of_a_kernel():
    both = KernelBank(Normalised(Linear(), "center"), normalise="trace", dtype="float64").build(X)
    chain = KernelBank(Linear(), normalise=("center", "trace"), dtype="float64").build(X)
    assert_allclose(both.gram(0), chain.gram(0))


def test_normalised_factors_of_a_product():
    kernel = Product(Normalised(Linear(), "center"), Normalised(Polynomial(), "spherical"))
    gram = KernelBank(kernel, dtype="float64").build(X).gram(0)
    one, _ = naive.normalised("center", X @ X.T)
    two, _ = naive.normalised("spherical", (X @ X.T + 1) ** 2)
    assert_allclose(gram, one * two, atol=1e-11)


@pytest.mark.parametrize("step", ["trace", "variance", "spherical", "center"])
def test_zero_kernels_cannot_be_normalised(step):
    with pytest.raises(ValueError, match=r"kernel 'x:Linear' cannot be"):
        KernelBank(Linear(), normalise=step).build(np.zeros((10, 3)))


@pytest.mark.parametrize("step", ["variance", "center"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_constant_kernels_have_no_variance(step, dtype):
    with pytest.raises(ValueError, match="is the same for all pairs"):
        KernelBank(Linear(), normalise=step, dtype=dtype).build(np.full((10, 3), 0.1))


@pytest.mark.parametrize("step", ["variance", "center"])
def test_kernels_of_negative_variance_are_not_called_constant(step):
    distances = np.abs(X[:, :1] - X[:, 0])
    with pytest.raises(ValueError, match=r"'K0' cannot be normalised .*: it is not positive semi-definite"):
        KernelBank("precomputed", normalise=step).build(KernelStack(1.0 + distances))


def test_unit_diagonal_names_the_zero_sample():
    zero = X.copy()
    zero[17] = 0.0
    with pytest.raises(ValueError, match=r"'x:Linear' cannot be given a unit diagonal.*sample 17 with itself is 0"):
        KernelBank(Linear(), normalise="spherical").build(zero)


def test_a_new_sample_that_is_zero_resembles_nothing():
    expansion = KernelBank(Linear(), normalise="spherical").build(X).expansion([0], [0, 1])
    assert (expansion.cross(np.zeros((1, 4))) == 0).all()


def test_repair_leaves_a_good_kernel_alone():
    for method in ("clip", "shift"):
        bank = KernelBank(Repaired(Gaussian(), method), dtype="float64").build(X)
        assert_allclose(bank.gram(0), naive.kernel(Gaussian(), X, X, X), atol=1e-9)


def test_clipping_removes_negative_eigenvalues():
    def sigmoid(A, B):
        return np.tanh(A @ B.T - 3)

    bank = KernelBank(Repaired(FromFunction(sigmoid)), dtype="float64", check="always").build(X)
    values = np.linalg.eigvalsh(bank.gram(0))
    before = np.linalg.eigvalsh(sigmoid(X, X))
    assert before[0] < -0.1
    assert values[0] > -1e-6 * values[-1]
    assert_allclose(values[-1], before[-1])


def test_bad_steps_are_refused():
    with pytest.raises(ValueError, match=r"normalisations are .*got 'unit'"):
        Normalised(Linear(), "unit")
    with pytest.raises(ValueError, match="method of Repaired is one of"):
        Repaired(Linear(), "flip")
    with pytest.raises(TypeError, match="Normalised wraps a kernel, got 'linear'"):
        Normalised("linear")
    with pytest.raises(ValueError, match="normalise first"):
        Normalised(Repaired(Linear()), "spherical")
    with pytest.raises(ValueError, match="is clipped and cannot"):
        KernelBank(Repaired(Linear()), normalise="spherical")
