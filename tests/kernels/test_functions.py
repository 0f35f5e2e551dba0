"""Every kernel against its formula: between training samples, and between new and training samples."""

import copy
import pickle

import naive
import numpy as np
import pytest
from numpy.testing import assert_allclose

from kernelweave.datasets import make_privileged
from kernelweave.kernels import (
    AdditiveChiSquared,
    ChiSquared,
    FromFunction,
    Gaussian,
    HistogramIntersection,
    InverseDistance,
    InverseSquaredDistance,
    KernelBank,
    Laplacian,
    Linear,
    Mean,
    Normalised,
    Polynomial,
    Precomputed,
    Product,
)
from kernelweave.metric import ITML


def cosine(X, Y):
    X, Y = np.asarray(X, float), np.asarray(Y, float)
    return X @ Y.T / np.outer(np.linalg.norm(X, axis=1), np.linalg.norm(Y, axis=1))


DISTANCE_KERNELS = [Gaussian, Laplacian, InverseSquaredDistance, InverseDistance]
KERNELS = [
    Linear(),
    Polynomial(),
    Polynomial(1),
    Polynomial(5, offset=0.5, scale=0.2),
    ChiSquared(),
    ChiSquared(1.5),
    ChiSquared(gamma=0.3),
    AdditiveChiSquared(),
    HistogramIntersection(),
    FromFunction(cosine),
    *[kind(metric=metric) for kind in DISTANCE_KERNELS for metric in ("euclidean", "cityblock", "chi2")],
    *[kind(0.5) for kind in DISTANCE_KERNELS],
    *[kind(gamma=0.7) for kind in DISTANCE_KERNELS],
]
TOLERANCE = {"float32": 2e-6, "float64": 1e-12}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    train, new = rng.random((70, 11)), rng.random((9, 11))
    train[rng.random(train.shape) < 0.3] = 0.0  # histograms have empty bins
    return train, new


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.label)
def test_kernel_is_its_formula(kernel, dtype, data):
    train, new = data
    bank = KernelBank(kernel, dtype=dtype, check="never").build(train)
    expected = naive.kernel(kernel, train, train, train)
    assert_allclose(bank.gram(0), expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] * np.abs(expected).max())

    cross = bank.expansion([0], np.arange(len(train))).cross(new)[0]
    expected = naive.kernel(kernel, new, train, train)
    assert_allclose(cross, expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] * np.abs(expected).max())


@pytest.mark.parametrize("kernel", [k for k in KERNELS if k.positive], ids=lambda kernel: kernel.label)
def test_kernels_called_positive_have_no_negative_eigenvalue(kernel, data):
    gram = KernelBank(kernel, dtype="float64").build(data[0]).gram(0)
    values = np.linalg.eigvalsh(gram)
    assert values[0] > -1e-10 * values[-1]


@pytest.mark.parametrize("kernel", [Gaussian(), Laplacian(), ChiSquared(), InverseDistance(metric="cityblock")])
def test_scale_of_features_does_not_matter_when_the_bandwidth_is_learned(kernel, data):
    train, _ = data
    small, large = (KernelBank(kernel, dtype="float64").build(train * c).gram(0) for c in (1e-6, 1e6))
    assert_allclose(small, large, rtol=1e-9)


def test_mean_distance_is_over_pairs_of_different_samples():
    X = np.array([[0.0], [1.0], [3.0]])  # squared distances 1, 4, 9
    gram = KernelBank(Gaussian(2.0), dtype="float64").build(X).gram(0)
    assert_allclose(gram[0, 1], np.exp(-1 / (2 * 14 / 3)), rtol=1e-14)


def test_bandwidths_share_one_computation_of_distances(data, monkeypatch):
    from kernelweave.kernels.quantities import SQEUCLIDEAN

    calls = []
    prepare = type(SQEUCLIDEAN).prepare
    monkeypatch.setattr(type(SQEUCLIDEAN), "prepare", lambda *a: calls.append(1) or prepare(*a))
    bank = KernelBank([Gaussian(2.0**p) for p in range(-3, 7)] + [Laplacian()]).build(data[0])
    assert len(calls) == 1
    bank.expansion(np.arange(11), np.arange(20)).cross(data[1])
    assert len(calls) == 2


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equal_rows_far_from_the_origin_have_distance_zero(dtype):
    rng = np.random.default_rng(1)
    X = (1e4 + rng.normal(size=(60, 20))).astype(dtype)
    X[30:] = X[:30]
    gram = KernelBank(Gaussian(), dtype="float32").build(X).gram(0)
    assert_allclose(np.diagonal(gram[30:, :30]), 1.0, atol=1e-6)
    assert (np.diagonal(gram) == 1.0).all()
    expected = naive.kernel(Gaussian(), X[:5].astype(float), X.astype(float), X.astype(float))
    assert_allclose(gram[:5], expected, atol=1e-5)


def test_tiny_and_empty_bins_of_histograms():
    X = np.array([[0, 0, 1e-30, 1e-12], [0, 1e-30, 0, 1.0], [0, 0, 0, 0], [1e-20, 0, 3e-20, 0]])
    gram = KernelBank(ChiSquared(gamma=1.0), dtype="float64").build(X).gram(0)
    assert_allclose(gram, naive.kernel(ChiSquared(gamma=1.0), X, X, X), rtol=1e-12)
    single = KernelBank(ChiSquared(gamma=1.0)).build(X.astype(np.float32)).gram(0)
    assert_allclose(single, gram, rtol=1e-6)


@pytest.mark.parametrize("d", [1, 7, 8, 9, 65])
@pytest.mark.parametrize("n", [1, 2, 63, 64, 65, 130])
def test_every_remainder_of_the_compiled_tiles(n, d):
    X = np.random.default_rng(n * d).random((n, d))
    kernel = AdditiveChiSquared()
    assert_allclose(KernelBank(kernel, dtype="float64").build(X).gram(0), naive.kernel(kernel, X, X, X), atol=1e-12)


def test_product_on_one_view_and_over_views(data):
    train, new = data
    views, new_views = {"a": train, "b": train[:, :3]}, {"a": new, "b": new[:, :3]}
    one = naive.kernel(Gaussian(), new, train, train)
    two = naive.kernel(Polynomial(), new[:, :3], train[:, :3], train[:, :3])
    bank = KernelBank(
        {"a": Product(Gaussian(), Linear()), "both": Product({"a": Gaussian(), "b": Polynomial()})}, dtype="float64"
    ).build(views)
    assert bank.names == ("a:Product(Gaussian, Linear)", "both")
    cross = bank.expansion([0, 1], np.arange(70)).cross(new_views)
    assert_allclose(cross[0], one * (new @ train.T), rtol=1e-12)
    assert_allclose(cross[1], one * two, rtol=1e-12)


@pytest.mark.parametrize("storage", ["packed", "recompute"])
def test_mean_on_one_view_and_over_views(data, storage):
    train, new = data
    views, new_views = {"a": train, "b": train[:, :3]}, {"a": new, "b": new[:, :3]}
    one = naive.kernel(Gaussian(), new, train, train)
    two = naive.kernel(Polynomial(), new[:, :3], train[:, :3], train[:, :3])
    over = Mean({"a": Gaussian(), "b": Polynomial()})
    kernels = {"a": Mean(Gaussian(), Linear()), "both": [over, Normalised(over, "spherical")]}
    bank = KernelBank(kernels, dtype="float64", storage=storage).build(views)
    assert bank.names == ("a:Mean(Gaussian, Linear)", "both", "both #2")
    assert_allclose(bank.gram(2).diagonal(), 1.0)
    cross = bank.expansion([0, 1, 2], np.arange(70)).cross(new_views)
    assert_allclose(cross[0], (one + new @ train.T) / 2, rtol=1e-12)
    assert_allclose(cross[1], (one + two) / 2, rtol=1e-12)
    own = (1 + naive.kernel(Polynomial(), new[:, :3], new[:, :3], train[:, :3]).diagonal()) / 2
    assert_allclose(cross[2], cross[1] / np.sqrt(np.outer(own, bank.gram(1).diagonal())), rtol=1e-12)


def test_joined_kernels_are_compared_by_kind_and_parts():
    assert Mean({"a": Linear()}) == Mean({"a": Linear()})
    assert Mean({"a": Linear()}) != Product({"a": Linear()})
    assert len({Mean(Linear()), Mean(Linear()), Product(Linear())}) == 2


def test_precomputed_view_beside_features(data):
    train, new = data
    K, K_new = train @ train.T, new @ train.T
    bank = KernelBank({"mine": Precomputed(), "x": Gaussian()}, dtype="float64").build({"mine": K, "x": train})
    assert_allclose(bank.gram(0), K)
    assert_allclose(bank.restrict([4, 2, 60]).gram(0), K[np.ix_([4, 2, 60], [4, 2, 60])])
    cross = bank.restrict([4, 2, 60]).expansion([0, 1], [0, 2]).cross({"mine": K_new, "x": new})
    assert_allclose(cross[0], K_new[:, [4, 60]])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Polynomial(0), "degree of a Polynomial kernel is an integer of at least 1, got 0"),
        (lambda: Polynomial(1.5), "integer"),
        (lambda: Polynomial(scale=-1), "scale of Polynomial must be a positive number, got -1"),
        (lambda: Polynomial(offset=np.nan), "offset"),
        (lambda: Gaussian(0.0), "multiplier of Gaussian must be a positive number, got 0.0"),
        (lambda: Gaussian(gamma=-1.0), "gamma of Gaussian"),
        (lambda: Gaussian(np.inf), "multiplier"),
        (lambda: Laplacian(metric="cosine"), "metric of Laplacian is one of"),
        (lambda: ChiSquared("2"), "multiplier of ChiSquared"),
        (lambda: Product(), "at least one kernel"),
    ],
)
def test_bad_arguments_are_refused_by_name(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_things_that_are_no_kernels():
    with pytest.raises(TypeError, match="function of two arrays, got 3"):
        FromFunction(3)
    with pytest.raises(TypeError, match="Product takes kernels"):
        Product(Linear(), "rbf")


def test_labels_and_reprs_are_short_and_readable():
    assert Gaussian(0.1, metric="cityblock").label == "Gaussian(0.1, metric=cityblock)"
    assert repr(Gaussian(metric="chi2")) == "Gaussian(metric='chi2')"
    assert repr(Product({"a": Linear()})) == "Product({'a': Linear()})"
    assert FromFunction(cosine).label == "FromFunction(cosine)"


# --- learned metrics --------------------------------------------------------------------------------------------------


def some_metric(d=11, rank=11, seed=3):
    B = np.random.default_rng(seed).standard_normal((d, rank))
    return B @ B.T


@pytest.mark.parametrize("rank", [1, 4, 11])
@pytest.mark.parametrize("kind", DISTANCE_KERNELS)
def test_a_learned_metric_is_its_formula(kind, rank, data):
    train, new = data
    M = some_metric(rank=rank)

    def squared(A, B):
        return np.array([[(a - b) @ M @ (a - b) for b in B] for a in A])

    gamma = 1 / (0.5 * squared(train, train)[np.triu_indices(len(train), 1)].mean())
    formula = {
        Gaussian: lambda D2: np.exp(-gamma * D2),
        Laplacian: lambda D2: np.exp(-np.sqrt(gamma * D2)),
        InverseSquaredDistance: lambda D2: 1 / (gamma * D2 + 1),
        InverseDistance: lambda D2: 1 / (np.sqrt(gamma * D2) + 1),
    }[kind]
    bank = KernelBank(kind(0.5, metric=M), dtype="float64").build(train)
    assert_allclose(bank.gram(0), formula(squared(train, train)), rtol=1e-6, atol=1e-9)
    cross = bank.expansion([0], np.arange(len(train))).cross(new)[0]
    assert_allclose(cross, formula(squared(new, train)), rtol=1e-6, atol=1e-9)


def test_the_identity_is_the_euclidean_metric(data):
    learned, plain = (KernelBank(Gaussian(metric=m), dtype="float64").build(data[0]).gram(0)
                      for m in (np.eye(11), "euclidean"))  # fmt: skip
    assert_allclose(learned, plain, rtol=1e-12)


def test_what_has_a_metric_is_one(data):
    class Fitted:
        metric_ = some_metric()

    kernel = Gaussian(0.5, metric=Fitted())
    assert kernel == Gaussian(0.5, metric=some_metric())
    for nothing in (object(), ITML()):
        with pytest.raises(TypeError, match="fitted estimator with one as metric_"):
            Gaussian(metric=nothing)


def test_a_bank_on_a_distance_that_was_learned():
    X, _, y = make_privileged(n_identities=4, random_state=0)
    learned = ITML(max_positives=50, random_state=0).fit(X, y)
    bank = KernelBank([Gaussian(), Gaussian(metric=learned)], dtype="float64").build(X)
    mapped = KernelBank(Gaussian(), dtype="float64").build(learned.transform(X))
    assert bank.names == ("x:Gaussian", "x:Gaussian(metric=learned)")
    assert_allclose(bank.gram(1), mapped.gram(0), rtol=1e-9)


def test_learned_metrics_are_values():
    M = some_metric()
    kernel, other = Gaussian(metric=M), Gaussian(metric=2 * M)
    again = pickle.loads(pickle.dumps(kernel))
    M[:] = 0  # the kernel has a copy
    assert kernel == again == copy.deepcopy(kernel) and hash(kernel) == hash(again)
    assert kernel != other and kernel != Gaussian() and len({kernel, again, other, Gaussian()}) == 3
    assert repr(kernel) == "Gaussian(metric=LearnedMetric(11 features))"
    assert Gaussian(2.0, metric=kernel.metric).label == "Gaussian(2, metric=learned)"
    assert not kernel.metric.matrix.flags.writeable


def test_bandwidths_of_a_learned_metric_share_its_distances(data, monkeypatch):
    from kernelweave.kernels.learned import LearnedMetric

    calls, prepare = [], LearnedMetric.prepare
    monkeypatch.setattr(LearnedMetric, "prepare", lambda *a: calls.append(1) or prepare(*a))
    M = some_metric()
    KernelBank([Gaussian(0.5, metric=M), Gaussian(2.0, metric=M.copy()), Laplacian(metric=M)]).build(data[0])
    assert len(calls) == 1


@pytest.mark.parametrize(
    "metric,match",
    [
        (np.ones((2, 3)), r"shape \(n_features, n_features\), got \(2, 3\)"),
        (np.ones(4), "shape"),
        (np.array([[1.0, 2.0], [0.0, 1.0]]), "symmetric"),
        (np.diag([1.0, -0.5]), "eigenvalue -0.5"),
        (-np.eye(2), "eigenvalue -1"),
        (np.diag([1.0, np.nan]), "finite"),
        ("manhattan", "is one of"),
    ],
)
def test_bad_metrics_are_refused(metric, match):
    with pytest.raises(ValueError, match=match):
        Gaussian(metric=metric)


def test_a_metric_of_other_features_is_refused(data):
    with pytest.raises(ValueError, match="view 'x' has 11 columns, but the metric of its kernel is for 3"):
        KernelBank(Gaussian(metric=np.eye(3))).build(data[0])


def test_a_metric_of_zeros_makes_all_samples_equal(data):
    with pytest.warns(UserWarning, match="all training samples are equal"):
        bank = KernelBank(Gaussian(metric=np.zeros((11, 11)))).build(data[0])
    assert_allclose(bank.gram(0), 1.0)
