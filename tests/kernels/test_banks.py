"""One body of tests for every way to store a bank, against full double-precision kernels."""

import gc
import pickle
import tracemalloc
from types import SimpleNamespace

import naive
import numpy as np
import pytest
from numpy.testing import assert_allclose

from kernelweave import KernelStack, Views
from kernelweave.kernels import (
    ChiSquared,
    FromFunction,
    Gaussian,
    HistogramIntersection,
    KernelBank,
    Laplacian,
    Linear,
    Normalised,
    Polynomial,
    Precomputed,
    Product,
    Repaired,
)

N = 83
STORAGES = [
    ("packed", "float32"),
    ("packed", "float64"),
    ("memmap", "float32"),
    ("recompute", "float32"),
    ("low rank", "float64"),  # at full rank; for others, and single precision, see test_low_rank.py
    ("cluster", "float32"),
    ("cluster", "float64"),
    ("device", "float32"),
    ("device", "float64"),
]
KERNELS = {
    "a": [Gaussian(0.5), Linear(), Gaussian(2.0), Normalised(Linear(), ("center", "trace")), ChiSquared()],
    "b": [HistogramIntersection(), Normalised(Polynomial(), "spherical"), Laplacian()],
    "both": Product({"a": Gaussian(), "b": Normalised(Linear(), "variance")}),
}


def reference(A, B, A_train, B_train):
    """The kernels above between rows A, B of the two views and the training rows."""
    own = {"a": A, "b": B}
    train = {"a": A_train, "b": B_train}

    def plain(view, kernel):
        return naive.kernel(kernel, own[view], train[view], train[view])

    def normal(view, kernel, steps):
        K = naive.kernel(kernel, train[view], train[view], train[view])
        new = plain(view, kernel)
        diagonal = np.array([naive.kernel(kernel, x[None], x[None], train[view])[0, 0] for x in own[view]])
        for step in steps:
            new, diagonal = naive.normalised(step, K, new, diagonal)
            K, _ = naive.normalised(step, K)
        return new

    return np.stack(
        [
            *(plain("a", kernel) for kernel in (Gaussian(0.5), Linear(), Gaussian(2.0))),
            normal("a", Linear(), ("center", "trace")),
            plain("a", ChiSquared()),
            plain("b", HistogramIntersection()),
            normal("b", Polynomial(), ("spherical",)),
            plain("b", Laplacian()),
            plain("a", Gaussian()) * normal("b", Linear(), ("variance",)),
        ]
    )


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(7)
    A, B = rng.random((N + 12, 6)), rng.random((N + 12, 3))
    V = rng.normal(size=(N, 5))
    V[rng.random(N) < 0.4] = 0.0
    return SimpleNamespace(
        train=Views({"a": A[:N], "b": B[:N]}),
        new={"a": A[N:], "b": B[N:]},
        stack=reference(A[:N], B[:N], A[:N], B[:N]),
        cross=reference(A[N:], B[N:], A[:N], B[:N]),
        V=V,
        samples=np.array([70, 3, 3, 41]),
    )


@pytest.fixture(scope="module", params=STORAGES, ids="-".join)
def bank(request, data, tmp_path_factory):
    storage, dtype = request.param
    if storage == "cluster":
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("kernelweave.kernels.cluster_blocks.HEIGHT", 16)  # several strips a worker
            return KernelBank(KERNELS, dtype=dtype, cluster=request.getfixturevalue("client")).build(data.train)
    if storage == "low rank":
        return KernelBank(KERNELS, rank=N, dtype=dtype).build(data.train)
    if storage == "device":
        pytest.importorskip("torch", reason="the device bank is tested where torch is installed")
        return KernelBank(KERNELS, dtype=dtype, device="cpu").build(data.train)
    directory = tmp_path_factory.mktemp("kernels") if storage == "memmap" else None
    return KernelBank(KERNELS, storage=storage, dtype=dtype, directory=directory).build(data.train)


def dense(K):
    """A combined kernel as an array, wherever it is."""
    return K if isinstance(K, np.ndarray) else K.block(np.arange(len(K)), np.arange(len(K)))


@pytest.fixture
def close(bank):
    tolerance = 3e-6 if bank.dtype == np.float32 else 1e-11
    if type(bank).__name__ == "LowRankBank":
        # The distance of a landmark to the same sample is rounding, 1e-16 of the others; a Laplacian takes its root.
        tolerance = 1e-7

    def check(actual, expected):
        assert actual.shape == expected.shape
        assert_allclose(actual, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())

    return check


def test_names_and_sizes(bank):
    assert bank.names[:3] == ("a:Gaussian(0.5)", "a:Linear", "a:Gaussian(2)")
    assert (bank.n_kernels, bank.n_samples) == (9, N)
    packed = 9 * N * (N + 1) // 2 * bank.dtype.itemsize
    squares = 9 * sum(h * (h - 1) // 2 for h in [16] * (N // 16) + [N % 16]) * bank.dtype.itemsize
    full = 9 * N * N * bank.dtype.itemsize
    expected = {"PackedBank": packed, "RecomputedBank": 0, "ClusterBank": packed + squares, "DeviceBank": full}
    expected["LowRankBank"] = N * sum((N, 6, N, 6, N, N, 10, N, N)) * bank.dtype.itemsize
    assert bank.nbytes == expected[type(bank).__name__]
    assert f"9 kernels, {N} samples" in repr(bank)


def test_combine(bank, data, close):
    weights = np.array([0.5, 0, 0, 1.0, 2.0, 0, 0.1, 0, 3.0])
    out = bank.combine(np.ones(9))
    if isinstance(out, np.ndarray):
        out[:] = np.nan
    combined = bank.combine(weights, out=out)
    assert combined is out
    result = dense(combined)
    close(result, naive.combine(data.stack, weights))
    assert (result == result.T).all()
    assert (dense(bank.combine(np.zeros(9))) == 0).all()


def test_gram_and_diagonals(bank, data, close):
    for j, K in enumerate(data.stack):
        close(dense(bank.gram(j)), K)
    close(bank.diagonals(), np.stack([np.diag(K) for K in data.stack]))


@pytest.mark.parametrize("m", [0, 1, 3, 4, 5])
def test_quadratics(bank, data, m, close):
    V = data.V[:, 0] if m == 0 else data.V[:, :m]
    result = bank.quadratics(V)
    assert result.dtype == np.float64
    close(result, naive.quadratics(data.stack, V))
    assert (bank.quadratics(np.zeros_like(V)) == 0).all()


def test_quadratics_agree_with_combine(bank, data):
    weights = np.arange(9.0)
    v = data.V[:, 0]
    assert_allclose(weights @ bank.quadratics(v), v @ dense(bank.combine(weights)).astype(float) @ v / 2, rtol=1e-5)


@pytest.mark.parametrize("samples", [[70, 3, 3, 41], np.arange(N), [0], [N - 1, 0]])
def test_products(bank, data, samples, close):
    close(bank.products(data.V, samples), naive.products(data.stack, data.V, samples))
    close(bank.products(data.V[:, 1], samples), naive.products(data.stack, data.V[:, 1], samples))
    assert bank.products(data.V, []).shape == (9, 0, 5)


def test_rows(bank, data, close):
    close(bank.rows(data.samples), data.stack[:, data.samples])


def test_restrict_keeps_what_was_fitted(bank, data, close):
    chosen = np.random.default_rng(0).permutation(N)[:40]
    part = bank.restrict(chosen)
    stack = data.stack[:, chosen][:, :, chosen]
    assert type(part) is type(bank)
    assert part.n_samples == 40
    close(dense(part.combine(np.ones(9))), naive.combine(stack, np.ones(9)))
    close(part.quadratics(data.V[:40]), naive.quadratics(stack, data.V[:40]))
    close(part.expansion(np.arange(9), [5, 0]).cross(data.new), data.cross[:, :, chosen[[5, 0]]])
    twice = part.restrict(slice(0, 10)).rows([3])
    close(twice, stack[:, [3]][:, :, :10])
    mask = np.arange(N) % 2 == 0
    close(dense(bank.restrict(mask).gram(0)), data.stack[0][mask][:, mask])


def test_select_kernels(bank, data, close):
    part = bank.select([4, 1, 8])
    assert part.names == tuple(bank.names[j] for j in (4, 1, 8))
    close(dense(part.combine([1.0, 0.0, 2.0])), data.stack[4] + 2 * data.stack[8])
    close(part.quadratics(data.V), naive.quadratics(data.stack[[4, 1, 8]], data.V))
    close(part.select([2]).expansion([0], [1, 2]).cross(data.new), data.cross[[8]][:, :, [1, 2]])


def test_cross_kernels_and_scores(bank, data, close):
    kernels, samples = np.array([0, 3, 4, 6, 8]), np.array([50, 2, 7])
    expansion = bank.expansion(kernels, samples)
    expected = data.cross[kernels][:, :, samples]
    close(expansion.cross(data.new), expected)

    coef, shared, own = data.V[:3, :4], np.array([1.0, 0, 2.0, 0.3, 0]), np.abs(data.V[:4, :5])
    own[:, 1] = 0.0
    close(expansion.scores(data.new, shared, coef), naive.scores(expected, shared, coef))
    close(expansion.scores(data.new, own, coef), naive.scores(expected, own, coef))


def test_scores_in_many_chunks_are_the_same(bank, data, monkeypatch):
    expansion = bank.expansion(np.arange(9), np.arange(20))
    coef = np.ones((20, 2))
    whole = expansion.scores(data.new, np.arange(9.0), coef)
    for module in ("expansion", "low_rank"):
        monkeypatch.setattr(f"kernelweave.kernels.{module}.CHUNK_BYTES", 1)
    assert_allclose(expansion.scores(data.new, np.arange(9.0), coef), whole, rtol=1e-6)


def test_expansion_is_small_and_pickles(bank, data, close):
    few = bank.expansion([0, 4], [1, 2, 3])
    landmarks = 2 * N * (N + 6) * 8 if type(bank).__name__ == "LowRankBank" else 0
    assert len(pickle.dumps(few)) < 3000 + landmarks
    again = pickle.loads(pickle.dumps(bank.expansion(np.arange(9), np.arange(5))))
    close(again.cross(data.new), data.cross[:, :, :5])


def test_bad_calls_are_refused(bank, data):
    with pytest.raises(ValueError, match=r"weights must be 9 finite numbers.*shape \(3,\)"):
        bank.combine([1, 2, 3])
    with pytest.raises(ValueError, match="9 finite numbers"):
        bank.combine(np.full(9, np.nan))
    with pytest.raises(ValueError, match="out must be a "):
        bank.combine(np.ones(9), out=np.empty((N, N), np.int32))
    with pytest.raises(ValueError, match=rf"V must have the shape \({N},\)"):
        bank.quadratics(np.ones(4))
    with pytest.raises(IndexError, match=f"sample {N} is out of range"):
        bank.rows([N])
    expansion = bank.expansion([0, 1], [0, 1])
    with pytest.raises(ValueError, match=r"coef must have the shape \(2, m\), got \(3, 1\)"):
        expansion.scores(data.new, [1, 1], np.ones((3, 1)))
    with pytest.raises(ValueError, match=r"weights must have the shape \(2,\)"):
        expansion.scores(data.new, [1, 1, 1], np.ones((2, 1)))


def test_new_data_that_does_not_fit_is_refused(bank, data):
    expansion = bank.expansion([0, 4, 5], [0, 1])
    with pytest.raises(ValueError, match="view 'b' is missing from the new data but kernel 'b:Hist"):
        expansion.cross({"a": data.new["a"]})
    with pytest.raises(ValueError, match="view 'a' of the new data has 5 columns, but the kernel was trained with 6"):
        expansion.cross({**data.new, "a": data.new["a"][:, :5]})
    with pytest.raises(ValueError, match="view 'b' contains NaN at row 0, column 1"):
        expansion.cross({**data.new, "b": np.array([[0, np.nan, 1.0]] * 12)})
    with pytest.raises(ValueError, match=r"view 'a' has the negative value -1 at row 0, column 0.*chi-squared"):
        expansion.cross({**data.new, "a": np.full((12, 6), -1.0)})
    expansion.scores({"a": data.new["a"]}, [1, 1, 0], np.ones((2, 1)))  # the kernel on view b has no weight


@pytest.mark.parametrize("storage", ["packed", "memmap", "recompute"])
def test_precomputed_stack_in_cross_validation(storage):
    rng = np.random.default_rng(3)
    F = [rng.normal(size=(40, 3)) for _ in range(3)]
    K = np.stack([f @ f.T for f in F])
    whole = KernelStack(K)
    train, test = rng.permutation(40)[:25], np.array([1, 30, 7])
    bank = KernelBank("precomputed", storage=storage, dtype="float64").build(whole[train])
    assert bank.names == ("K0", "K1", "K2")
    assert_allclose(bank.gram(1), K[1][np.ix_(train, train)])
    inner = np.array([4, 20, 9])
    expansion = pickle.loads(pickle.dumps(bank.restrict(inner).expansion([2, 0], [0, 2])))
    expected = K[[2, 0]][:, test][:, :, train[inner[[0, 2]]]]
    assert_allclose(expansion.cross(whole[test]), expected)
    assert_allclose(expansion.cross(K[:, test][:, :, train]), expected)
    assert len(pickle.dumps(expansion)) < 3000


def test_new_rows_of_precomputed_kernels_are_checked():
    K = np.stack([np.eye(6), np.ones((6, 6))])
    expansion = KernelBank("precomputed").build(K).expansion([0], [1, 2])
    with pytest.raises(ValueError, match=r"shape \(2, n_new, n_training\), got \(3, 4, 6\)"):
        expansion.cross(np.ones((3, 4, 6)))
    with pytest.raises(ValueError, match="has 5 columns, but the kernel was trained with 6"):
        expansion.cross(np.ones((2, 4, 5)))
    with pytest.raises(ValueError, match="precomputed kernel 'K0' contains NaN"):
        expansion.cross(np.full((2, 4, 6), np.nan))
    with pytest.raises(ValueError, match="has 7 columns"):
        expansion.cross(KernelStack(np.stack([np.eye(7)] * 2))[[0]])


def test_weight_zero_is_not_read(data):
    bank = KernelBank(KERNELS).build(data.train)
    bank._data[[1, 3]] = np.nan
    weights = np.ones(9)
    weights[[1, 3]] = 0
    assert np.isfinite(bank.combine(weights)).all()


def test_rows_without_a_coefficient_are_not_read(data):
    bank = KernelBank(KERNELS).build(data.train)
    v = np.zeros(N)
    v[[5, 6, 40]] = 1.0
    expected_quadratics, expected_products = bank.quadratics(v), bank.products(v, [6, 40])
    for i in set(range(N)) - {5, 6, 40}:
        bank._data[:, i * (i + 1) // 2 : (i + 1) * (i + 2) // 2] = np.nan
    assert_allclose(bank.quadratics(v), expected_quadratics)
    assert_allclose(bank.products(v, [6, 40]), expected_products)


def test_prediction_evaluates_only_active_kernels_and_support_rows(data):
    asked = []

    def spy(name):
        def function(X, Y):
            asked.append((name, len(X), len(Y)))
            return X @ Y.T

        return FromFunction(function)

    bank = KernelBank({"a": [spy("first"), spy("second"), spy("third")]}).build(data.train)
    asked.clear()
    bank.expansion([0, 2], [3, 9, 11]).scores(data.new, [1.0, 0.0], np.ones((3, 2)))
    assert asked == [("first", 12, 3)]


def test_files_are_removed_with_their_banks(data, tmp_path):
    bank = KernelBank(KERNELS, storage="memmap", directory=tmp_path / "new").build(data.train)
    (file,) = (tmp_path / "new").iterdir()
    assert file.suffix == ".npy"
    assert np.load(file, mmap_mode="r").shape == (9, N * (N + 1) // 2)
    part = bank.restrict([1, 2, 3]).select([0])
    gc.collect()
    assert len(list((tmp_path / "new").iterdir())) == 2
    del bank
    gc.collect()
    assert len(list((tmp_path / "new").iterdir())) == 1
    assert part.gram(0).shape == (3, 3)
    del part
    gc.collect()
    assert not list((tmp_path / "new").iterdir())


def test_temporary_files_are_removed_with_their_banks(data, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    bank = KernelBank(KERNELS, storage="memmap").build(data.train)
    part = bank.restrict([1, 2])
    assert len(list(tmp_path.iterdir())) == 2
    del bank, part
    gc.collect()
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_noticed_before_anything_is_written(data, tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda place: SimpleNamespace(free=1000))
    with pytest.raises(OSError, match=r"need 125,496 bytes but only 1,000 bytes are free"):
        KernelBank(KERNELS, storage="memmap", directory=tmp_path).build(data.train)


def test_a_failed_build_leaves_no_file(tmp_path):
    with pytest.raises(ValueError, match="finite"):
        KernelBank(
            FromFunction(lambda X, Y: np.full((len(X), len(Y)), np.inf)), storage="memmap", directory=tmp_path
        ).build(np.ones((5, 2)))
    gc.collect()
    assert not list(tmp_path.iterdir())


def test_building_and_combining_need_no_copy_of_the_bank():
    n, s = 600, 12
    X = np.random.default_rng(0).random((n, 4))
    specification = KernelBank([Gaussian(2.0**p) for p in range(s)])
    specification.build(X[:50]).combine(np.ones(s))  # compiled code is loaded before memory is counted
    tracemalloc.start()
    bank = specification.build(X)
    _, peak_building = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    out = np.empty((n, n), np.float32)
    before, _ = tracemalloc.get_traced_memory()
    bank.combine(np.ones(s), out=out)
    _, peak_combining = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    bank.quadratics(np.ones((n, 3)))
    _, peak_quadratics = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert bank.nbytes == specification.estimate_bytes(n) == s * n * (n + 1) // 2 * 4
    assert peak_building < bank.nbytes + 2 * n * n * 4
    assert peak_combining - before < n * n * 4 / 4
    assert peak_quadratics - before < n * n * 4


@pytest.mark.parametrize("n", [127, 128, 129, 300])
def test_recomputing_in_several_blocks_of_rows(n):
    rng = np.random.default_rng(n)
    X, V = rng.random((n, 3)), rng.normal(size=(n, 2))
    V[rng.random(n) < 0.3] = 0.0
    kernels = [Gaussian(), Normalised(Linear(), "center"), ChiSquared()]
    stored, recomputed = (KernelBank(kernels, storage=s, dtype="float64").build(X) for s in ("packed", "recompute"))
    assert_allclose(recomputed.combine([1, 2, 3]), stored.combine([1, 2, 3]), rtol=1e-10)
    assert_allclose(recomputed.quadratics(V), stored.quadratics(V), rtol=1e-10)
    everything = np.arange(n)
    assert_allclose(recomputed.products(V, everything), stored.products(V, everything), atol=1e-9)
    assert_allclose(recomputed.rows(everything), stored.rows(everything), atol=1e-12)
    assert_allclose(recomputed.diagonals(), stored.diagonals(), atol=1e-12)


def test_one_kernel_one_sample():
    bank = KernelBank(Linear()).build(np.array([[2.0, 1.0]]))
    assert_allclose(bank.combine([3.0]), [[15.0]])
    assert_allclose(bank.quadratics(np.array([2.0])), [10.0])
    assert_allclose(bank.products(np.array([2.0]), [0]), [[10.0]])


def test_repaired_kernels_are_the_same_for_every_storage():
    rng = np.random.default_rng(5)
    X, new = rng.normal(size=(60, 3)), rng.normal(size=(4, 3))

    def sigmoid(X, Y):
        return np.tanh(X @ Y.T - 1.0)

    K = sigmoid(X, X)
    values, vectors = np.linalg.eigh(K)
    assert values[0] < -0.1
    keep = vectors[:, values > 0]
    expected = {"clip": keep @ keep.T @ K, "shift": K - values[0] * np.eye(60)}
    for method, gram in expected.items():
        kernel = Normalised(Repaired(FromFunction(sigmoid), method), "trace")
        factor = 60 / np.trace(gram)
        for storage in ("packed", "recompute"):
            bank = KernelBank(kernel, storage=storage, dtype="float64").build(X)
            assert_allclose(bank.gram(0), gram * factor, atol=1e-9)
            cross = sigmoid(new, X) @ (keep @ keep.T) if method == "clip" else sigmoid(new, X)
            result = bank.expansion([0], [5, 1]).cross(new)[0]
            assert_allclose(result, cross[:, [5, 1]] * factor, atol=1e-8)


def test_precomputed_kernel_normalised_to_unit_diagonal_needs_the_new_diagonal():
    X = np.random.default_rng(0).normal(size=(20, 3))
    K = X @ X.T
    stack = KernelStack(K)
    expansion = KernelBank("precomputed", normalise="spherical").build(stack[:15]).expansion([0], [2, 3])
    norms = np.sqrt(np.diag(K))
    assert_allclose(expansion.cross(stack[15:])[0], (K / np.outer(norms, norms))[15:, [2, 3]], rtol=1e-5)
    with pytest.raises(ValueError, match="pass a KernelStack"):
        expansion.cross(K[None, 15:, :15])
    with pytest.raises(ValueError, match="'mine' is a precomputed kernel and must be square"):
        KernelBank({"mine": Precomputed()}).build({"mine": K[:, :7]})
