"""Banks of low rank: maps against their formulas, normalisations of features, landmarks, and what is refused."""

import tracemalloc
from itertools import pairwise

import naive
import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.kernel_approximation import AdditiveChi2Sampler

from kernelweave.kernels import (
    AdditiveChiSquared,
    ChiSquared,
    FromFunction,
    Gaussian,
    HistogramIntersection,
    InverseDistance,
    KernelBank,
    Laplacian,
    Linear,
    Normalised,
    Polynomial,
    Precomputed,
    Product,
    Repaired,
)
from kernelweave.kernels.feature_maps import Homogeneous, Nystrom, Rows

N = 90


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(3)
    return rng.random((N, 5)) + 0.5 * rng.integers(0, 3, size=(N, 1))


def dense(K):
    return K.block(np.arange(len(K)), np.arange(len(K)))


def exact(kernel, X, **settings):
    return KernelBank(kernel, dtype="float64", **settings).build(X).gram(0)


def low(kernel, X, rank, **settings):
    return KernelBank(kernel, dtype="float64", rank=rank, **settings).build(X)


# -- maps -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("landmarks", ["kmeans", "leverage", "uniform"])
@pytest.mark.parametrize("kernel", [Gaussian(), ChiSquared(), HistogramIntersection(), InverseDistance(), Polynomial()])
def test_nystrom_is_its_formula(X, kernel, landmarks):
    bank = low(kernel, X, 20, landmarks=landmarks)
    L = bank._landmarks[0].rows["x"]
    assert len(L) == 20
    across, between = naive.kernel(kernel, X, L, X), naive.kernel(kernel, L, L, X)
    expected = across @ np.linalg.pinv(between, rcond=1e-13, hermitian=True) @ across.T
    assert_allclose(dense(bank.gram(0)), expected, atol=1e-6 * expected.max())


@pytest.mark.parametrize("landmarks", ["leverage", "uniform"])
def test_what_nystrom_misses_is_positive_semi_definite(X, landmarks):
    missed = exact(Gaussian(), X) - dense(low(Gaussian(), X, 15, landmarks=landmarks).gram(0))
    assert np.linalg.eigvalsh(missed)[0] > -1e-9
    assert np.trace(missed) > 0.01


@pytest.mark.parametrize("landmarks", ["kmeans", "leverage", "uniform"])
def test_the_error_falls_with_the_rank(X, landmarks):
    K = exact(Gaussian(), X)
    errors = [np.linalg.norm(K - dense(low(Gaussian(), X, r, landmarks=landmarks).gram(0))) for r in (3, 10, 30, N)]
    assert all(a > 2 * b for a, b in pairwise(errors))
    assert errors[-1] < 1e-6


def test_leverage_finds_samples_that_are_alone():
    rng = np.random.default_rng(0)
    X = np.vstack([0.01 * rng.normal(size=(300, 2)), [[50.0, 0], [0, 50.0], [-50.0, 0]]])
    bank = low(Gaussian(gamma=1.0), X, 8, landmarks="leverage")
    assert_allclose(bank.diagonals()[0, 300:], 1.0, atol=1e-6)


@pytest.mark.parametrize(
    "kernel", [Gaussian(), Laplacian(), Laplacian(metric="cityblock"), ChiSquared(), Laplacian(metric="chi2")], ids=repr
)
def test_random_fourier_features(kernel):
    X = np.random.default_rng(0).random((500, 3))
    bank = low(kernel, X, 500, approximation="fourier")
    K = dense(bank.gram(0))
    assert_allclose(np.diag(K), 1.0, rtol=1e-12)
    error = K - exact(kernel, X)
    assert np.sqrt(np.mean(error**2)) < 1.5 / np.sqrt(250)  # of 250 frequencies, each with a variance of at most 1
    new = X[:7] + 0.1
    close = bank.expansion([0], np.arange(500)).cross(new)[0]
    expected = KernelBank(kernel, dtype="float64").build(X).expansion([0], np.arange(500)).cross(new)[0]
    assert np.sqrt(np.mean((close - expected) ** 2)) < 1.5 / np.sqrt(250)


def test_the_explicit_map_of_additive_chi_squared_is_that_of_scikit_learn(X):
    X = X.copy()
    X[3, 2] = 0.0
    for order, step in ((1, 0.8), (2, 0.5)):
        ours = Homogeneous("x", 5, "chi2", order, step).features(Rows({"x": X}, N, ()))
        theirs = AdditiveChi2Sampler(sample_steps=order + 1, sample_interval=step).fit_transform(X)
        assert ours.shape == theirs.shape
        assert_allclose(ours @ ours.T, theirs @ theirs.T, rtol=1e-10)


@pytest.mark.parametrize(
    ("kernel", "kept"),
    [
        (AdditiveChiSquared(), lambda cut: 2 / np.pi * np.arctan(np.sinh(np.pi * cut))),
        (HistogramIntersection(), lambda cut: 2 / np.pi * np.arctan(2 * cut)),
    ],
)
def test_explicit_maps_miss_the_part_of_the_spectrum_that_is_cut_off(X, kernel, kept):
    K = exact(kernel, X)
    errors = []
    for rank in (15, 25, 55):
        bank = low(kernel, X, rank, approximation="explicit")
        assert bank.nbytes == N * rank * 8
        found = bank._maps[0].map
        errors.append(np.abs(dense(bank.gram(0)) - K).max() / K.max())
        assert errors[-1] < 1 - kept((found.order + 0.5) * found.step) + 0.01
    assert errors[0] > errors[1] > errors[2]


def test_linear_kernels_are_exact_if_they_fit(X):
    bank = low(Linear(), X, 5)
    assert_allclose(dense(bank.gram(0)), X @ X.T, rtol=1e-12)
    assert isinstance(low(Linear(), X, 4)._maps[0].map, Nystrom)
    assert bank.nbytes == N * 5 * 8


def test_products_functions_and_kernels_of_one_view_share_landmarks(X):
    def tanh(A, B):
        return np.exp(A @ B.T / 20)

    views = {"a": X[:, :3], "b": X[:, 3:]}
    kernels = {
        "a": [Gaussian(), Gaussian(0.2), ChiSquared()],
        "both": Product({"a": Normalised(Gaussian(), "spherical"), "b": Normalised(Linear(), "variance")}),
        "b": FromFunction(tanh),
    }
    bank = KernelBank(kernels, rank=N, dtype="float64").build(views)
    whole = KernelBank(kernels, dtype="float64").build(views)
    for j in range(5):
        assert_allclose(dense(bank.gram(j)), whole.gram(j), atol=1e-7)
    small = KernelBank(kernels, rank=12, dtype="float64").build(views)
    places = [each.map.place for each in small._maps]
    assert places[0] == places[1] == places[2] != places[3] != places[4]
    for j in (3, 4):  # samples, not means of samples
        rows = small._landmarks[places[j]].rows["b"]
        assert all((row == views["b"]).all(axis=1).any() for row in rows)
    assert len(small.expansion([3], [0, 1])._landmarks) == 1


# -- what is learned from training data -------------------------------------------------------------------------------


STEPS = [("trace",), ("spherical",), ("variance",), ("center",), ("center", "spherical", "trace")]


@pytest.mark.parametrize("steps", STEPS, ids="-".join)
def test_normalisations_of_features_are_those_of_the_kernel(X, steps):
    new = X[:9] + 0.2
    plain = low(Gaussian(), X, 12)
    K, cross = dense(plain.gram(0)), plain.expansion([0], np.arange(N)).cross(new)[0]
    Z = plain._maps[0].map.features(Rows({"x": new}, 9, plain._landmarks))
    diagonal = (Z**2).sum(axis=1)
    for step in steps:
        cross, diagonal = naive.normalised(step, K, cross, diagonal)
        K, _ = naive.normalised(step, K)
    for bank in (low(Gaussian(), X, 12, normalise=steps), low(Normalised(Gaussian(), steps), X, 12)):
        assert_allclose(dense(bank.gram(0)), K, atol=1e-9)
        assert_allclose(bank.expansion([0], np.arange(N)).cross(new)[0], cross, atol=1e-9)
        assert_allclose(bank.diagonals()[0], np.diag(K), atol=1e-9)


def test_bandwidths_are_exact_for_few_samples_and_from_a_sample_for_many(X, monkeypatch):
    whole = KernelBank(Gaussian(), dtype="float64").build(X)._nodes[0].rate
    assert_allclose(low(Gaussian(), X, 5)._maps[0].map.node.rate, whole, rtol=1e-12)
    monkeypatch.setattr("kernelweave.kernels.map_fitting.SAMPLE", 40)
    sampled = low(Gaussian(), X, 5)._maps[0].map.node.rate
    assert sampled != whole
    assert_allclose(sampled, whole, rtol=0.3)


def test_the_seed_decides(X):
    for settings in ({"landmarks": "uniform"}, {"landmarks": "kmeans"}, {"approximation": "fourier"}):
        first, again, other = (dense(low(Gaussian(), X, 9, random_state=s, **settings).gram(0)) for s in (0, 0, 1))
        assert (first == again).all()
        assert (first != other).any()


def test_single_precision_keeps_the_error_that_its_rounding_allows(X):
    bank = KernelBank(Gaussian(4.0), rank=N).build(X)
    K = exact(Gaussian(4.0), X)
    assert bank.combine([1.0]).dtype == bank._Z.dtype == np.float32
    # Eigenvalues below n * eps of the largest are left out; what is left is divided by their roots.
    floor = N * np.finfo(np.float32).eps * np.linalg.eigvalsh(K)[-1]
    assert np.abs(dense(bank.gram(0)) - K).max() < 2 * floor


def test_equal_samples_and_few_different_ones():
    X = np.repeat(np.eye(3), 40, axis=0)
    bank = low(Gaussian(), X, 10)
    assert_allclose(dense(bank.gram(0)), exact(Gaussian(), X), atol=1e-9)
    assert bank.nbytes == 120 * 3 * 8


def test_a_clipped_kernel_at_full_rank_is_the_clipped_kernel():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    kernel = Repaired(FromFunction(lambda A, B: np.tanh(A @ B.T)), "clip")
    bank, whole = low(kernel, X, 40), KernelBank(kernel, dtype="float64").build(X)
    assert_allclose(dense(bank.gram(0)), whole.gram(0), atol=1e-8)
    new = rng.normal(size=(5, 3))
    expected = whole.expansion([0], np.arange(40)).cross(new)
    assert_allclose(bank.expansion([0], np.arange(40)).cross(new), expected, atol=1e-8)


# -- memory -----------------------------------------------------------------------------------------------------------


def test_never_a_matrix_of_all_pairs(monkeypatch):
    monkeypatch.setattr("kernelweave.kernels.map_fitting.SAMPLE", 100)
    monkeypatch.setattr("kernelweave.kernels.low_rank.CHUNK_BYTES", 1 << 16)
    n = 4000
    X = np.random.default_rng(0).random((n, 3))
    specification = KernelBank([Gaussian(), Gaussian(0.3)], rank=10)
    specification.build(X[:50])  # what is imported and compiled at the first use
    tracemalloc.start()
    bank = specification.build(X)
    bank.combine([1.0, 2.0]).product(np.ones((n, 2)))
    bank.quadratics(np.ones((n, 2)))
    bank.restrict(np.arange(0, n, 2)).products(np.ones(n // 2), np.arange(100))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert bank.nbytes == specification.estimate_bytes(n) == 2 * n * 10 * 4
    assert peak < 10 * bank.nbytes < n * n


def test_the_memory_limit_counts_for_features(X):
    with pytest.raises(MemoryError, match=r"features of rank 50 need 18,000 bytes, .*limit of 9,000.*smaller"):
        KernelBank(Gaussian(), rank=50, memory_limit=9000).build(X)
    KernelBank(Gaussian(), rank=10, memory_limit=9000).build(X)


def test_low_rank_is_never_chosen_without_a_rank(X, capsys):
    with pytest.raises(MemoryError, match="rank=256 approximates"):
        KernelBank(Gaussian(), memory_limit=100).build(X)
    KernelBank(Gaussian(), rank=8).build(X, verbose=True)
    told = "1 kernels of 90 samples approximated by features in memory, storage 'low-rank', 2,880 bytes"
    assert told in capsys.readouterr().err
    KernelBank(Gaussian()).build(X, verbose=True)
    assert "in memory, storage 'packed', 16,380 bytes" in capsys.readouterr().err


# -- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "settings", "message"),
    [
        (Linear(), {"approximation": "fourier"}, r"'fourier' is known for.*kernel 'x:Linear' is Linear: use 'nys"),
        (Gaussian(), {"approximation": "explicit"}, r"'explicit' is known for Linear.*kernel 'x:Gaussian' is Gaussian"),
        (HistogramIntersection(), {"approximation": "explicit"}, r"a rank of at least 15 .* on 5 columns, got rank=10"),
        (Linear(), {"approximation": "explicit", "rank": 3}, r"needs a rank of at least 5 .* got rank=3"),
        (Gaussian(), {"approximation": "fourier", "rank": 1}, "needs a rank of at least 2, got 1"),
        (Gaussian(metric="chi2"), {"approximation": "fourier", "check": "never"}, "'fourier' is known for"),
        (Repaired(Gaussian(), "shift"), {}, "repaired by 'shift', which a bank of low rank does only right after"),
        (Product(Gaussian(), Normalised(Linear(), "center")), {}, "has a kernel inside that is centred or clipped"),
    ],
)
def test_kernels_without_such_a_map_are_refused_by_name(X, kernel, settings, message):
    with pytest.raises(ValueError, match=message):
        KernelBank(kernel, **{"rank": 10, **settings}).build(X)


def test_precomputed_kernels_are_refused():
    with pytest.raises(ValueError, match="a rank needs features to map, and precomputed kernels have none"):
        KernelBank("precomputed", rank=5)
    with pytest.raises(ValueError, match="kernel 'k:Precomputed' is precomputed"):
        KernelBank({"k": Precomputed()}, rank=5).build({"k": np.eye(8)})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rank": 0}, "rank is None or a number of features of at least 1, got 0"),
        ({"rank": 2.5}, "got 2.5"),
        ({"rank": 5, "storage": "packed"}, "rank=5 keeps features in place of kernel values, but storage='packed'"),
        ({"rank": 5, "approximation": "best"}, "approximation is one of"),
        ({"rank": 5, "landmarks": "grid"}, "landmarks is one of"),
    ],
)
def test_bad_arguments(settings, message):
    with pytest.raises(ValueError, match=message):
        KernelBank(Gaussian(), **settings)


def test_a_rank_above_the_number_of_samples_is_reduced(X):
    with pytest.warns(UserWarning, match="rank=500 is more than the 90 samples, .*: 90 is used"):
        bank = KernelBank(Gaussian(), rank=500, dtype="float64").build(X)
    assert bank.nbytes <= 90 * 90 * 8


def test_values_that_a_kernel_is_not_defined_for_are_found_outside_the_sample_too(X, monkeypatch):
    monkeypatch.setattr("kernelweave.kernels.map_fitting.SAMPLE", 20)
    for row in range(0, N, 7):
        bad = X.copy()
        bad[row, 1] = -1.0
        with pytest.raises(ValueError, match=f"negative value -1 at row {row}, column 1"):
            KernelBank(ChiSquared(), rank=3).build(bad)


def test_kernels_that_are_not_positive_are_found():
    X = np.random.default_rng(0).normal(size=(60, 3))
    bad = FromFunction(lambda A, B: -(A @ B.T))
    with pytest.raises(ValueError, match="is not positive semi-definite"):
        KernelBank(bad, rank=10).build(X)
    with pytest.raises(ValueError, match=r"weights of at least 0, got -1"):
        KernelBank(Gaussian(), rank=10).build(X).combine([-1.0])
    with pytest.raises(ValueError, match=r"kernel 'x:Linear' is not finite for sample 3"), np.errstate(all="ignore"):
        KernelBank(Linear(), rank=3).build(np.where(np.arange(60)[:, None] == 3, 1e39, X))


def test_a_combined_kernel_is_not_taken_for_an_array(X):
    K = low(Gaussian(), X, 5).combine([1.0])
    with pytest.raises(TypeError, match=r"needs the whole kernel matrix \(90, 90\) .*the bank keeps Factors"):
        np.asarray(K)
    with pytest.raises(TypeError, match="needs the whole kernel matrix"):
        K[3]
