"""The device bank beyond what all banks share: where it goes, what does not fit, half precision, tensors as input."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose

from kernelweave import KernelStack, Views
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
    Repaired,
    Scaled,
)

torch = pytest.importorskip("torch", reason="the device bank is tested where torch is installed")

N = 70
#: Makes torch look as if it were not installed.
NO_TORCH = """
import sys
class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, NoTorch())
"""


@pytest.fixture(scope="module")
def views():
    rng = np.random.default_rng(3)
    A = rng.random((N, 11))
    A[rng.random(A.shape) < 0.4] = 0.0  # histograms have empty bins
    return {"a": A, "b": rng.normal(size=(N, 4)) + 100.0}


def function(X, Y):
    return (X @ Y.T) ** 2


EVERY_KERNEL = [
    Linear(),
    Polynomial(3, offset=0.5, scale=0.1),
    *(kernel(metric=m) for kernel in (Gaussian, Laplacian) for m in ("euclidean", "cityblock", "chi2")),
    *(kernel(2.0, metric=m) for kernel in (InverseDistance, InverseSquaredDistance) for m in ("euclidean", "chi2")),
    ChiSquared(),
    ChiSquared(gamma=0.7),
    AdditiveChiSquared(),
    HistogramIntersection(),
    FromFunction(function),
    Scaled(Gaussian(gamma=1.0), tuple(np.linspace(0.0, 2.0, 11))),
    Product(Gaussian(), Linear()),
    Mean(ChiSquared(), HistogramIntersection()),
    Normalised(Polynomial(), ("spherical", "center", "trace")),
    Normalised(Mean(Gaussian(), Normalised(Linear(), "variance")), "spherical"),
    Repaired(Gaussian(metric="chi2"), "clip"),
    Repaired(Gaussian(metric="chi2"), "shift"),
]


@pytest.mark.parametrize("kernel", EVERY_KERNEL, ids=lambda kernel: kernel.label)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_kernel_is_the_same_as_in_memory(views, kernel, dtype):
    tolerance = 3e-6 if dtype == "float32" else 1e-11
    here, there = (KernelBank({"a": kernel}, dtype=dtype, check="never", device=d).build(views) for d in (None, "cpu"))
    expected, found = here.gram(0), there.gram(0)
    assert_allclose(found, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())
    assert (found == found.T).all()
    assert type(there._nodes[0]) is type(here._nodes[0])
    new = {name: rows[:9] * 1.1 for name, rows in views.items()}
    expected, found = (bank.expansion([0], [5, 1, 60]).cross(new) for bank in (here, there))
    assert_allclose(found, expected, rtol=10 * tolerance, atol=10 * tolerance * np.abs(expected).max())


def test_small_distances_between_rows_far_from_the_origin(views):
    bank = KernelBank({"b": Gaussian()}, device="cpu").build({"b": views["b"].astype(np.float32)})
    X = views["b"].astype(np.float32).astype(np.float64)
    D = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    assert_allclose(bank.gram(0), np.exp(-D / (D.sum() / (N * (N - 1)))), atol=1e-6)


def test_precomputed_kernels_are_copied_over():
    rng = np.random.default_rng(0)
    F = [rng.normal(size=(40, 3)) for _ in range(2)]
    K = np.stack([f @ f.T for f in F])
    train = rng.permutation(40)[:25]
    bank = KernelBank("precomputed", dtype="float64", device="cpu").build(KernelStack(K)[train])
    assert_allclose(bank.gram(1), K[1][np.ix_(train, train)])
    assert_allclose(bank.expansion([0, 1], [3, 4]).cross(KernelStack(K)[[1, 2]]), K[:, [1, 2]][:, :, train[[3, 4]]])
    own = KernelBank({"g": Precomputed()}, device="cpu").build({"g": K[0]})
    assert_allclose(own.gram(0), K[0], rtol=1e-6)


@pytest.mark.parametrize("limit", [1, 3000, 10**9])
def test_blocks_of_any_size_give_the_same_numbers(views, monkeypatch, limit):
    monkeypatch.setattr("kernelweave.kernels.device_kernels.TEMPORARY", limit)
    monkeypatch.setattr("kernelweave.kernels.device_kernels.IN_CACHE", limit)
    monkeypatch.setattr("kernelweave.kernels.device.ADDED_AT_ONCE", limit)
    kernels = {"a": [ChiSquared(), HistogramIntersection(), Normalised(Linear(), "center")], "b": Gaussian()}
    here, there = (KernelBank(kernels, dtype="float64", device=d).build(views) for d in (None, "cpu"))
    weights, V = np.array([1.0, 0.0, 2.0, 0.5]), np.random.default_rng(0).normal(size=(N, 3))
    K = there.combine(weights)
    assert_allclose(K.block(np.arange(N), np.arange(N)), here.combine(weights), rtol=1e-10, atol=1e-10)
    assert_allclose(there.quadratics(V), here.quadratics(V), rtol=1e-10)
    assert_allclose(there.products(V, [3, 1]), here.products(V, [3, 1]), rtol=1e-9)
    assert_allclose(K.product(V), here.combine(weights) @ V, rtol=1e-9)


def test_quadratics_read_only_rows_that_count(views):
    bank = KernelBank({"a": [ChiSquared(), Linear()]}, device="cpu").build(views)
    v = np.zeros(N)
    v[[5, 6, 40]] = 1.0
    expected = bank.quadratics(v), bank.products(v, [5, 40])
    others = np.setdiff1d(np.arange(N), [5, 6, 40])
    for K in bank.kernels:
        K[torch.from_numpy(others)] = torch.nan
    assert_allclose(bank.quadratics(v), expected[0])
    assert_allclose(bank.products(v, [5, 40]), expected[1])


def test_half_precision(views):
    single, half = (
        KernelBank({"a": [ChiSquared(), Gaussian()]}, dtype=dtype, device="cpu").build(views)
        for dtype in ("float32", "float16")
    )
    assert half.nbytes == single.nbytes / 2
    assert half.dtype == np.float16
    assert_allclose(half.gram(0), single.gram(0), rtol=1e-3)
    K = half.combine([1.0, 2.0])
    assert K.dtype == np.float32
    everyone = np.arange(N)
    sums = half.gram(0) + 2 * half.gram(1)  # sums of what is stored are taken in single precision
    assert_allclose(K.block(everyone, everyone), sums, rtol=1e-6)
    V = np.random.default_rng(0).normal(size=(N, 2))
    expected = [0.5 * np.sum(V * (half.gram(j).astype(float) @ V)) for j in range(2)]
    assert_allclose(half.quadratics(V), expected, rtol=1e-9)
    assert half.expansion([0], [1]).cross(views).dtype == np.float32


def test_half_precision_overflow_names_the_kernel(views):
    large = {"a": 1000 * views["a"]}
    with pytest.raises(ValueError, match=r"kernel 'a:Linear' has values up to .* beyond 65504, the end of half"):
        KernelBank({"a": [Gaussian(), Linear()]}, dtype="float16", device="cpu").build(large)
    KernelBank({"a": [Gaussian(), Linear()]}, dtype="float16", device="cpu", normalise="trace").build(large)


def test_values_that_are_not_finite_name_kernel_and_samples():
    def broken(X, Y):
        return np.where(X + Y.T == 7.0, np.inf, 1.0)

    with pytest.raises(ValueError, match=r"'x:FromFunction\(broken\)' has the value inf between samples 3 and 4"):
        KernelBank(FromFunction(broken), check="never", device="cpu").build(np.arange(5.0)[:, None])


def test_kernels_with_negative_eigenvalues_are_refused(views):
    with pytest.raises(ValueError, match="not positive semi-definite"):
        KernelBank({"a": FromFunction(lambda X, Y: -X @ Y.T)}, device="cpu").build(views)


def test_too_little_memory_first_halves_the_bytes_then_says_so(views):
    kernels = {"a": [Gaussian(2.0**j) for j in range(8)]}
    needed = {dtype: N * N * (8 * size + beside) for dtype, size, beside in (("float32", 4, 12), ("float16", 2, 16))}
    with pytest.warns(UserWarning, match=f"need {needed['float32']:,} bytes in single precision.*half precision"):
        bank = KernelBank(kernels, device="cpu", memory_limit=needed["float16"]).build(views)
    assert bank.dtype == np.float16
    with pytest.raises(MemoryError, match=rf"need {needed['float32']:,} bytes on cpu .* only 1,000 may be taken"):
        KernelBank(kernels, device="cpu", memory_limit=1000).build(views)
    with pytest.raises(MemoryError, match="rank=256"):
        KernelBank(kernels, device="cpu", dtype="float64", memory_limit=needed["float16"]).build(views)


def test_devices_that_are_not_there(views, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RuntimeError, match=r"device='cuda' is not there: torch .* finds no CUDA device.*leave device"):
        KernelBank(Gaussian(), device="cuda").build(views)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(RuntimeError, match="device='cuda:3' is not there: this machine has 1 of them"):
        KernelBank(Gaussian(), device="cuda:3").build(views)
    with pytest.raises(ValueError, match=r"device is a torch device such as 'cuda'.*got 'graphics'"):
        KernelBank(Gaussian(), device="graphics").build(views)
    with pytest.raises(ValueError, match="others are not supported"):
        KernelBank(Gaussian(), device="meta").build(views)


def test_without_torch_the_error_says_what_to_install():
    code = (
        f"{NO_TORCH}\n"
        "import numpy as np, kernelweave.kernels as kk\n"
        "try: kk.KernelBank(kk.Gaussian(), device='cuda').build(np.eye(4))\n"
        "except ImportError as error: print(error)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "needs torch, which is not installed: pip install kernelweave[gpu]" in said


def test_importing_kernelweave_imports_no_torch():
    code = "import kernelweave.kernels, kernelweave.machines, sys; print('torch' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "False"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"storage": "memmap"}, "storage='memmap' keeps them elsewhere"),
        ({"rank": 5}, "rank=5 keeps them elsewhere"),
        ({"dtype": "int32"}, "dtype is 'float32' or"),
    ],
)
def test_settings_that_contradict_each_other(settings, message):
    with pytest.raises(ValueError, match=message):
        KernelBank(Gaussian(), device="cpu", **settings)


def test_half_precision_is_for_devices():
    with pytest.raises(ValueError, match="half precision is for devices"):
        KernelBank(Gaussian(), dtype="float16")


def test_tensors_take_the_bank_to_their_device(views):
    tensors = {name: torch.from_numpy(rows) for name, rows in views.items()}
    bank = KernelBank(Gaussian()).build(tensors)
    assert type(bank).__name__ == "DeviceBank"
    assert_allclose(bank.gram(1), KernelBank(Gaussian()).build(views).gram(1), atol=1e-6)
    part = Views(tensors)[[1, 2, 3]]
    assert part.device == torch.device("cpu")
    assert type(KernelBank(Gaussian()).build(part)).__name__ == "DeviceBank"
    one = KernelBank(Gaussian(), columns={"left": slice(0, 2)}).build(tensors["a"])
    assert (type(one).__name__, one.names) == ("DeviceBank", ("left:Gaussian",))
    halves = KernelBank(Linear()).build({"a": tensors["a"].to(torch.bfloat16)})
    assert_allclose(halves.gram(0), views["a"] @ views["a"].T, rtol=0.02, atol=0.02)
    assert type(KernelBank(Gaussian(), storage="packed").build(tensors)).__name__ == "PackedBank"


def test_tensors_on_two_devices_are_refused_by_name():
    tensors = {"a": torch.ones((3, 2)), "b": torch.ones((3, 2), device="meta")}
    with pytest.raises(ValueError, match="different devices \\('a' is on cpu, 'b' is on meta\\)"):
        KernelBank(Gaussian()).build(tensors)


def test_samples_that_lack_views_are_refused(views):
    rows = views["a"].copy()
    rows[4] = np.nan
    with pytest.raises(ValueError, match="some samples lack views, and device='cpu'"):
        KernelBank(Gaussian(), missing="zero", device="cpu").build({"a": rows, "b": views["b"]})


def test_what_does_not_fit_in_memory_goes_to_a_gpu_that_has_room(views, monkeypatch):
    spec = KernelBank(Gaussian(), memory_limit=10)
    asked = []
    monkeypatch.setattr("kernelweave.kernels.kernel_bank.fits_on_gpu", lambda needed: asked.append(needed) or True)
    assert spec._chosen_storage(1000, Views(views)) == "device"
    assert asked == [2000]  # both triangles
    monkeypatch.setattr("kernelweave.kernels.kernel_bank.fits_on_gpu", lambda needed: False)
    with pytest.raises(MemoryError, match="device='cuda' keeps them on a GPU"):
        spec.build(views)
    assert KernelBank(Gaussian(), device="cpu").estimate_bytes(100, n_views=2) == 2 * 100 * 100 * 4


def test_the_choice_is_told(views, capsys):
    KernelBank(Gaussian(), device="cpu").build(views, verbose=True)
    assert "2 kernels of 70 samples on a device, storage 'device'" in capsys.readouterr().err


def test_out_is_reused_and_checked(views):
    bank = KernelBank({"a": [Gaussian(), Linear()]}, device="cpu").build(views)
    first = bank.combine([1.0, 1.0])
    address = first.values.data_ptr()
    assert bank.combine([0.0, 1.0], out=first).values.data_ptr() == address
    with pytest.raises(ValueError, match=r"out must be a DeviceKernel of shape \(70, 70\)"):
        bank.combine([1.0, 1.0], out=np.empty((N, N)))


def test_a_combined_kernel_does_not_turn_into_an_array_by_accident(views):
    K = KernelBank({"a": Gaussian()}, device="cpu").build(views).combine([1.0])
    with pytest.raises(TypeError, match="DeviceKernel"):
        np.asarray(K)
