"""The matching kernel against its formula, written as loops."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from kernelweave._spec import from_spec, to_spec
from kernelweave.kernels import KernelBank, Repaired
from kernelweave.kernels.matching import LANES, Matching, MatchingDistance


def distance(a, b, length):
    a, b = (np.asarray(row, dtype=float).reshape(-1, length) for row in (a, b))
    to_b = [min(np.linalg.norm(p - q) for q in b) for p in a]
    to_a = [min(np.linalg.norm(p - q) for p in a) for q in b]
    return (np.mean(to_b) + np.mean(to_a)) / 2


def distances(A, B, length):
    return np.array([[distance(a, b, length) for b in B] for a in A])


@pytest.fixture(scope="module")
def sets():
    rng = np.random.default_rng(0)
    return rng.normal(size=(21, 4 * 3)), rng.normal(size=(5, 4 * 3))


@pytest.mark.parametrize("n_points", [1, 2, 7])
@pytest.mark.parametrize("n_left, n_right", [(1, 1), (3, LANES - 1), (5, LANES), (6, LANES + 1), (9, 2 * LANES + 3)])
def test_distance_is_its_formula(n_left, n_right, n_points):
    rng = np.random.default_rng(n_points)
    A, B = rng.random((n_left, n_points * 3)), rng.random((n_right, n_points * 3))
    quantity = MatchingDistance(3)
    out = np.full((n_left, n_right), np.nan)
    quantity.block(A, quantity.prepare(B, out.dtype), out)
    assert_allclose(out, distances(A, B, 3), rtol=1e-12)


def test_block_of_the_first_rows_only(sets):
    train, new = sets
    quantity = MatchingDistance(3)
    out = np.empty((len(new), LANES - 3))
    quantity.block(new, quantity.prepare(train, out.dtype), out)
    assert_allclose(out, distances(new, train[: LANES - 3], 3), rtol=1e-12)


@pytest.mark.parametrize("dtype, tolerance", [("float32", 2e-6), ("float64", 1e-12)])
@pytest.mark.parametrize("storage", ["packed", "recompute"])
def test_bank_and_new_samples(sets, dtype, tolerance, storage):
    train, new = sets
    pairs = distances(train, train, 3)
    gamma = 1 / (1.5 * pairs[np.triu_indices(len(train), 1)].mean())
    bank = KernelBank(Matching(3, 1.5), dtype=dtype, check="never", storage=storage).build(train)
    assert_allclose(bank.gram(0), np.exp(-gamma * pairs), rtol=tolerance)
    cross = bank.expansion([0], np.arange(4, len(train))).cross(new)[0]
    assert_allclose(cross, np.exp(-gamma * distances(new, train[4:], 3)), rtol=tolerance)


def test_fixed_gamma(sets):
    gram = KernelBank(Matching(3, gamma=0.25), dtype="float64", check="never").build(sets[0]).gram(0)
    assert_allclose(gram, np.exp(-0.25 * distances(sets[0], sets[0], 3)), rtol=1e-12)


def test_order_within_a_set_does_not_matter(sets):
    train, new = sets
    other = new.reshape(len(new), 4, 3)[:, [2, 0, 3, 1]].reshape(len(new), -1)
    expansion = KernelBank(Matching(3), dtype="float64", check="never").build(train).expansion([0], np.arange(21))
    assert_allclose(expansion.cross(other), expansion.cross(new), rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equal_sets_far_from_the_origin_have_distance_zero(dtype):
    X = (1e4 + np.random.default_rng(1).normal(size=(20, 12))).astype(dtype)
    X[10:] = X[:10]
    gram = KernelBank(Matching(3), check="never").build(X).gram(0)
    assert_allclose(np.diagonal(gram[10:, :10]), 1.0, atol=1e-6)
    assert (np.diagonal(gram) == 1.0).all()


def test_bandwidths_share_the_distances(sets, monkeypatch):
    calls = []
    prepare = MatchingDistance.prepare
    monkeypatch.setattr(MatchingDistance, "prepare", lambda *a: calls.append(1) or prepare(*a))
    KernelBank([Matching(3), Matching(3, 2.0), Matching(4)], check="never").build(sets[0])
    assert len(calls) == 2  # one for each length


@pytest.mark.parametrize("method", ["clip", "shift"])
def test_indefinite_kernel_is_refused_and_repaired(method):
    X = np.random.default_rng(0).normal(size=(40, 8))
    assert not Matching(1).positive
    with pytest.raises(ValueError, match="not positive semi-definite"):
        KernelBank(Matching(1, 20.0)).build(X)
    bank = KernelBank(Repaired(Matching(1, 20.0), method), dtype="float64").build(X)
    values = np.linalg.eigvalsh(bank.gram(0))
    assert values[0] > -1e-10 * values[-1]
    assert bank.expansion([0], np.arange(40)).cross(X[:3] + 0.1).shape == (1, 3, 40)


def test_shift_leaves_kernels_of_new_samples_as_they_are(sets):
    train, new = sets
    plain, repaired = (
        KernelBank(kernel, check="never").build(train).expansion([0], np.arange(len(train))).cross(new)
        for kernel in (Matching(3), Repaired(Matching(3), "shift"))
    )
    assert_allclose(repaired, plain, rtol=1e-7)


def test_arguments_are_checked():
    for length in (0, -2, 2.0, True, "3"):
        with pytest.raises(ValueError, match="length"):
            Matching(length)
    with pytest.raises(ValueError, match="multiplier"):
        Matching(3, 0.0)
    with pytest.raises(ValueError, match="gamma"):
        Matching(3, gamma=-1.0)
    with pytest.raises(ValueError, match="view 'blur' has 10 columns, which is no multiple of 3"):
        KernelBank({"blur": Matching(3)}).build({"blur": np.zeros((4, 10))})


def test_plain_data_and_back():
    kernel = Repaired(Matching(52, 1.5), "shift")
    assert from_spec(to_spec(kernel), [Repaired, Matching]) == kernel
    assert Matching(52, gamma=0.5).label == "Matching(52, gamma=0.5)"
