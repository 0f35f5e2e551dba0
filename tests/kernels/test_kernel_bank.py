"""What users write: views to kernels, names, limits, checks of data."""

import copy

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone

from kernelweave import KernelStack
from kernelweave.kernels import (
    AdditiveChiSquared,
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
from kernelweave.kernels.kernel_bank import available_memory

RNG = np.random.default_rng(0)
A, B = RNG.random((30, 5)), RNG.random((30, 2))
VIEWS = {"a": A, "b": B}


def sigmoid(X, Y):
    return np.tanh(X @ Y.T - 1.0)


def test_a_list_is_for_every_view():
    bank = KernelBank([Linear(), Gaussian(), Product({"a": Linear(), "b": Linear()})]).build(VIEWS)
    assert bank.names == ("a:Linear", "b:Linear", "a:Gaussian", "b:Gaussian", "Product(a:Linear, b:Linear)")


def test_one_array_with_columns():
    columns = {"shape": slice(0, 3), "colour": [3, 4]}
    bank = KernelBank({"shape": Linear(), "colour": Linear()}, columns=columns, dtype="float64").build(A)
    assert_allclose(bank.gram(1), A[:, 3:] @ A[:, 3:].T)
    assert_allclose(bank.expansion([1], [0]).cross(A[:2])[0], A[:2, 3:] @ A[:1, 3:].T)


def test_frames_for_training_and_for_new_data():
    frame = pd.DataFrame(np.hstack([A, B]), columns=[f"a.{k}" for k in range(5)] + ["b.0", "b.1"])
    bank = KernelBank({"b": Linear()}, dtype="float64").build(frame)
    assert_allclose(bank.expansion([0], [2, 1]).cross(frame[:4])[0], B[:4] @ B[[2, 1]].T)
    bank = KernelBank(Linear(), columns={"mine": ["a.1", "b.0"]}, dtype="float64").build(frame)
    mine = np.column_stack([A[:, 1], B[:, 0]])
    assert_allclose(bank.expansion([0], [2, 1]).cross(frame[:4])[0], mine[:4] @ mine[[2, 1]].T)


def test_read_only_arrays():
    X, v = A.copy(), np.ones(30)
    X.flags.writeable = v.flags.writeable = False
    bank = KernelBank([Linear(), ChiSquared()]).build(X)
    assert_allclose(bank.quadratics(v)[0], (A.sum(axis=0) ** 2).sum() / 2, rtol=1e-6)
    assert_allclose(bank.products(v, [3])[0, 0], A[3] @ A.sum(axis=0), rtol=1e-6)


def test_equal_kernels_get_different_names():
    bank = KernelBank({"a": [Gaussian(), Gaussian(), Gaussian()]}).build(VIEWS)
    assert bank.names == ("a:Gaussian", "a:Gaussian #2", "a:Gaussian #3")
    assert (bank.gram(0) == bank.gram(2)).all()


def test_it_clones_copies_and_shows_what_it_is():
    bank = KernelBank({"a": [Gaussian(0.5), Linear()], "b": Normalised(Linear(), "center")}, normalise="trace")
    assert repr(bank) == (
        "KernelBank({'a': [Gaussian(0.5), Linear()], 'b': Normalised(Linear(), steps='center')}, normalise='trace')"
    )
    for other in (clone(bank, safe=False), copy.deepcopy(bank)):
        assert repr(other) == repr(bank)
        assert other.kernels == bank.kernels


def test_float32_and_integer_features():
    single = KernelBank(Gaussian()).build(A.astype(np.float32)).gram(0)
    assert_allclose(single, KernelBank(Gaussian()).build(A).gram(0), atol=1e-6)
    counts = RNG.integers(0, 9, size=(20, 4))
    assert_allclose(KernelBank(Linear()).build(counts).gram(0), counts @ counts.T)


@pytest.mark.parametrize("kernel", [Gaussian(), Laplacian(metric="cityblock"), ChiSquared()])
@pytest.mark.parametrize("rows", [1, 6])
def test_equal_samples_give_a_kernel_of_ones_and_a_warning(kernel, rows):
    X = np.full((rows, 3), 0.3)
    with pytest.warns(UserWarning, match=r"all training samples are equal in view 'x'.*\['x:"):
        bank = KernelBank(kernel).build(X)
    assert (bank.gram(0) == 1).all()
    assert np.isfinite(bank.expansion([0], [0]).cross(X + 1)).all()


def test_a_zero_kernel_is_allowed_without_normalisation():
    assert (KernelBank(Linear()).build(np.zeros((4, 2))).gram(0) == 0).all()


def test_a_constant_column_is_harmless():
    X = np.column_stack([A, np.full(30, 7.0)])
    assert_allclose(KernelBank(Gaussian()).build(X).gram(0), KernelBank(Gaussian()).build(A).gram(0), atol=1e-6)


def test_estimate_of_bytes():
    bank = KernelBank([Linear(), Gaussian()], dtype="float64")
    assert bank.estimate_bytes(30, n_views=2) == bank.build(VIEWS).nbytes == 4 * 465 * 8
    assert KernelBank({"a": [Linear(), Gaussian()], "b": Linear()}).estimate_bytes(10) == 3 * 55 * 4
    assert KernelBank("precomputed").estimate_bytes(10, n_views=7) == 7 * 55 * 4


def test_without_a_limit_the_available_memory_decides(monkeypatch):
    monkeypatch.setattr("kernelweave.kernels.kernel_bank.available_memory", lambda: 1000)
    with pytest.raises(MemoryError, match="limit of 700 bytes"):
        KernelBank({"a": Linear()}).build(VIEWS)
    monkeypatch.undo()
    assert 10**6 < available_memory() < 10**15


def test_above_the_limit():
    message = r"need 1,860 bytes, more than the limit of 1,000 bytes.*memmap.*recompute.*memory_limit"
    with pytest.raises(MemoryError, match=message):
        KernelBank({"a": Linear()}, memory_limit=1000).build(VIEWS)
    with pytest.raises(MemoryError, match="ways out"):
        KernelBank({"a": Linear()}, memory_limit=1000, storage="packed").build(VIEWS)


def test_above_the_limit_with_a_directory_goes_to_a_file(tmp_path):
    bank = KernelBank({"a": Linear()}, memory_limit=1000, directory=tmp_path).build(VIEWS)
    assert len(list(tmp_path.iterdir())) == 1
    assert_allclose(bank.gram(0), A @ A.T, rtol=1e-6)


def test_no_bar_is_shown_away_from_a_terminal(capsys):
    KernelBank(Linear()).build(VIEWS, verbose=True)
    told = "[kernelweave] 2 kernels of 30 samples in memory, storage 'packed', 3,720 bytes\n"
    assert capsys.readouterr() == ("", told)
    KernelBank(Linear()).build(VIEWS)
    assert capsys.readouterr() == ("", "")


def test_progress_is_shown_on_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    bank = KernelBank([Linear(), Gaussian()]).build(VIEWS, verbose=True)
    assert bank.n_kernels == 4
    assert "kernels" in capsys.readouterr().err


@pytest.mark.parametrize("kernel", [ChiSquared(), AdditiveChiSquared(), HistogramIntersection()])
def test_histogram_kernels_refuse_negative_features(kernel):
    X = A.copy()
    X[4, 2] = -0.5
    with pytest.raises(ValueError, match=r"view 'a' has the negative value -0.5 at row 4, column 2"):
        KernelBank({"a": kernel}).build({"a": X})


def test_indefinite_kernels_are_refused_by_name_and_a_repair_is_offered():
    X = RNG.normal(size=(60, 3))
    with pytest.raises(ValueError, match=r"'x:FromFunction\(sigmoid\)' is not positive.*Repaired\(kernel"):
        KernelBank(FromFunction(sigmoid)).build(X)
    assert KernelBank(FromFunction(sigmoid), check="never").build(X).n_kernels == 1
    assert KernelBank(Repaired(FromFunction(sigmoid))).build(X).n_kernels == 1
    K = -np.eye(5)
    with pytest.raises(ValueError, match=r"kernel 'K0' is not positive semi-definite.*smallest eigenvalue is -1"):
        KernelBank("precomputed").build(K)
    with pytest.raises(ValueError, match=r"Polynomial\(1, offset=-50\)"):
        KernelBank(Polynomial(1, offset=-50.0)).build(X)


def test_rounding_is_no_reason_to_refuse():
    X = RNG.normal(size=(300, 2)).astype(np.float32)
    K = (X @ X.T).astype(np.float32)  # rank 2: 298 eigenvalues are rounding errors of either sign
    assert KernelBank("precomputed").build(K).n_kernels == 1
    assert KernelBank([Linear(), Gaussian(100.0)], check="always").build(X).n_kernels == 2


def test_kernels_that_are_not_finite_are_refused_by_name():
    def bad_pair(X, Y):
        pair = (X[:, :1] == 60) & (Y[:, 0] == 7) | (X[:, :1] == 7) & (Y[:, 0] == 60)
        return np.where(pair, np.inf, np.ones((len(X), len(Y))))

    for n in (90, 1000):  # symmetry is checked on all samples, or on some
        with pytest.raises(
            ValueError, match=r"'x:FromFunction\(bad_pair\)' has the value inf between samples 60 and 7"
        ):
            KernelBank(FromFunction(bad_pair)).build(np.arange(float(n))[:, None])
    with pytest.raises(ValueError, match=r"kernel 'x:Polynomial\(9\)' has the value inf between samples"):
        KernelBank(Polynomial(9)).build(A * 1e5)
    with pytest.raises(ValueError, match="contains NaN at row 1, column 2"):
        KernelStack(np.where(np.arange(9).reshape(3, 3) == 5, np.nan, np.eye(3)))


def test_functions_are_checked_for_shape_and_symmetry():
    with pytest.raises(ValueError, match=r"must return an array of shape \(30, 30\)"):
        KernelBank({"a": FromFunction(lambda X, Y: np.ones(len(X)))}).build(VIEWS)
    with pytest.raises(ValueError, match=r"kernel function .* on view 'a' is not symmetric"):
        KernelBank({"a": FromFunction(lambda X, Y: X[:, :1] + 2 * Y[:, :1].T)}).build(VIEWS)


def test_precomputed_must_be_square_and_symmetric():
    with pytest.raises(ValueError, match=r"square shape \(n_kernels, n, n\), got \(2, 3, 4\)"):
        KernelBank("precomputed").build(np.ones((2, 3, 4)))
    K = np.stack([np.eye(4), np.eye(4)])
    K[1, 3, 0] = 0.5
    with pytest.raises(
        ValueError, match=r"kernel 'K1' is not symmetric: entry \(0, 3\) is 0 but entry \(3, 0\) is 0.5"
    ):
        KernelBank("precomputed").build(K)


def test_views_and_kernels_must_fit():
    with pytest.raises(ValueError, match=r"kernel 'c:Linear' is on view 'c', but the views are \['a', 'b'\]"):
        KernelBank({"c": Linear()}).build(VIEWS)
    with pytest.raises(ValueError, match="is on view 'z'"):
        KernelBank(Product({"a": Linear(), "z": Linear()})).build(VIEWS)
    with pytest.raises(ValueError, match="view 'a' is a precomputed kernel for some kernels and features for others"):
        KernelBank({"a": [Precomputed(), Linear()]}).build({"a": np.eye(3)})
    with pytest.raises(TypeError, match="a KernelStack holds precomputed kernels"):
        KernelBank(Linear()).build(KernelStack(np.eye(3)))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"kernels": "rbf"}, ValueError, "or as 'precomputed'; got 'rbf'"),
        ({"kernels": [Linear(), "rbf"]}, TypeError, "made of kernels such as Gaussian"),
        ({"kernels": 3}, TypeError, "got 3"),
        ({"kernels": []}, ValueError, "at least one kernel"),
        ({"kernels": Linear(), "storage": "disk"}, ValueError, "storage is one of"),
        ({"kernels": Linear(), "check": "maybe"}, ValueError, "check is one of"),
        ({"kernels": Linear(), "dtype": "int8"}, ValueError, "dtype is 'float32' or 'float64', got 'int8'"),
        ({"kernels": Linear(), "normalise": "l2"}, ValueError, "normalisations are"),
    ],
)
def test_bad_specifications(arguments, error, message):
    with pytest.raises(error, match=message):
        KernelBank(**arguments)
