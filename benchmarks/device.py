"""The device bank on a GPU: kernels, fits with shared and with own weights, label ranking, growth with n.

    python benchmarks/device.py [--parts check,grams,mkl,per_class,ranking,slope] [--device cuda] [--n 36864]
                                [--json results.json] [--quick]

Prints a line a measurement, with the floor beside it: the bytes that must be read over the bandwidth measured in the
same run, or the operations over the rate measured in the same run. Everything takes two minutes on an H200 with sixteen
cores. What was measured is kept in results/, by date and device.

    check      Triton kernels against plain torch, product solver against itself in double precision, at small sizes
    grams      ten chi-squared Gram matrices, d = 200 to 500
    mkl        l1-MKL on that bank, weights shared by 18 classes, relative gap 1e-3, kernels in memory
    per_class  weights of each class on its own: one class after another, then --jobs threads that read kernels together
    ranking    MLR-L1 with 100 labels, gap 1e-3, at n and at --cpu-n, where the CPU of the same machine does the same
    slope      three kernels and an l1 fit for n = 5,000 to 60,000
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

try:
    import torch
except ImportError:
    print("torch is not installed: pip install kernelweave[gpu], then run this on a machine with a GPU")
    sys.exit(0)

from kernelweave.kernels import ChiSquared, KernelBank
from kernelweave.kernels.device import DeviceKernel
from kernelweave.machines import MLRL1, SVM
from kernelweave.solvers import Saddle, Stopping, run
from kernelweave.weights import Simplex

WIDTHS = tuple(np.linspace(200, 500, 10).astype(int).tolist())
#: Operations of a lane for one feature of one pair, of which a fused multiply-add is one: 11 for two features.
CHI2_OPERATIONS = 5.5


class Bench:
    """Settings, rates measured on this machine, and the rows printed so far."""

    def __init__(self, settings: argparse.Namespace) -> None:
        self.settings = settings
        self.device = torch.device(settings.device)
        self.rows: list[dict[str, Any]] = []
        self.bandwidth = self._bandwidth()
        self.rate = self._rate(torch.float32)
        self.rate64 = self._rate(torch.float64)

    def sync(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def timed(self, function: Callable[[], Any]) -> tuple[float, Any]:
        self.sync()
        begin = time.perf_counter()
        result = function()
        self.sync()
        return time.perf_counter() - begin, result

    def row(self, part: str, what: str, seconds: float, floor: float | None = None, **more: Any) -> None:
        line = f"{part:<10} {what:<58} {seconds:>9.3f} s"
        if floor is not None:
            line += f"   floor {floor:>8.3f} s ({seconds / floor:.1f}x)"
        extra = ", ".join(
            f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in more.items()
        )
        print(line + (f"   {extra}" if extra else ""), flush=True)
        self.rows.append({"part": part, "what": what, "seconds": seconds, "floor": floor, **more})
        self.write()

    def write(self) -> None:
        if self.settings.json:
            about = {
                "date": time.strftime("%Y-%m-%d"),
                "device": torch.cuda.get_device_name(self.device)
                if self.device.type == "cuda"
                else platform.processor(),
                "torch": torch.__version__,
                "python": platform.python_version(),
                "bytes_a_second": self.bandwidth,
                "operations_a_second": self.rate,
                "operations_a_second_double": self.rate64,
                "settings": {name: value for name, value in vars(self.settings).items() if name != "json"},
            }
            Path(self.settings.json).write_text(json.dumps(about | {"rows": self.rows}, indent=1) + "\n")

    def _bandwidth(self) -> float:
        """Bytes a second that a sum reads."""
        data = torch.ones(1 << (28 if self.device.type == "cuda" else 24), device=self.device)
        data.sum()
        seconds = min(self.timed(data.sum)[0] for _ in range(5))
        return data.numel() * 4 / seconds

    def _rate(self, dtype: torch.dtype) -> float:
        """Operations a second (a multiply-add is two) of a matrix product without reduced precision."""
        size = 8192 if self.device.type == "cuda" else 1024
        A = torch.ones((size, size), device=self.device, dtype=dtype)
        A @ A
        seconds = min(self.timed(lambda: A @ A)[0] for _ in range(3))
        return 2 * size**3 / seconds


@contextmanager
def counted() -> Iterator[dict[str, int]]:
    """Counts the quick and the exact products of all kernels."""
    counts = {"times": 0, "exactly": 0}
    originals = {name: getattr(DeviceKernel, name) for name in counts}

    def counting(name: str) -> Callable:
        def product(self: DeviceKernel, V: Any) -> Any:
            counts[name] += 1
            return originals[name](self, V)

        return product

    for name in counts:
        setattr(DeviceKernel, name, counting(name))
    try:
        yield counts
    finally:
        for name, original in originals.items():
            setattr(DeviceKernel, name, original)


def histograms(
    n: int, widths: tuple[int, ...], n_classes: int, seed: int = 0
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Views that know less and less about the classes, as histograms of soft counts; classes 0 .. n_classes - 1."""
    rng = np.random.default_rng(seed)
    y = rng.integers(n_classes, size=n)
    views = {}
    for j, d in enumerate(widths):
        centres = rng.normal(size=(n_classes, 8)).astype(np.float32) * (1.2 - 0.1 * j)
        hidden = centres[y] + 2.0 * rng.standard_normal((n, 8), dtype=np.float32)
        counts = np.exp(0.5 * hidden @ rng.normal(size=(8, d)).astype(np.float32))
        views[f"view{j}"] = counts / counts.sum(axis=1, keepdims=True)
    return views, y


def signs(y: np.ndarray) -> np.ndarray:
    return np.where(y[:, None] == np.arange(y.max() + 1), 1.0, -1.0)


def check(bench: Bench) -> None:
    """Numbers before times: raises if something is wrong."""
    from kernelweave.kernels import device_kernels

    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    if device_kernels.has_triton(bench.device):
        from kernelweave.kernels.triton_kernels import sum_features

        for term, plain in device_kernels._PLAIN.items():
            for n_a, n_b, d in ((1, 1, 1), (130, 65, 7), (300, 513, 200)):
                A, B = (torch.rand((n, d), device=bench.device) + 1e-18 for n in (n_a, n_b))
                A[A < 0.4] = 1e-18
                found, expected = (torch.full((n_a, n_b), torch.nan, device=bench.device) for _ in range(2))
                seconds, _ = bench.timed(lambda: sum_features(term, A, B, found))
                plain(A, B, expected)
                error = float((found - expected).abs().max() / expected.abs().max())
                assert error < 1e-5, (term, n_a, n_b, d, error)
                bench.row("check", f"{term} by Triton, {n_a} x {n_b} x {d} (first call compiles)", seconds, error=error)
    views, y = histograms(1500, WIDTHS[:3], 4)
    Y = signs(y)
    fits = {}
    for dtype in ("float32", "float64", "float16"):
        bank = KernelBank(ChiSquared(), dtype=dtype, device=bench.settings.device).build(views)
        seconds, fits[dtype] = bench.timed(lambda: fit(bank, Y, 1e-4))
        bench.row("check", f"l1 fit, n=1500, {dtype}", seconds, objective=fits[dtype].upper, gap=fits[dtype].gap)
    assert abs(fits["float32"].upper / fits["float64"].upper - 1) < 3e-4
    assert abs(fits["float16"].upper / fits["float64"].upper - 1) < 3e-2
    books = fit(KernelBank(ChiSquared(), dtype="float64").build(views), Y, 1e-4)
    assert abs(fits["float64"].upper / books.upper - 1) < 3e-4, (fits["float64"].upper, books.upper)
    bench.row("check", "the same on the CPU", float(books.history["seconds"][-1]), objective=books.upper)
    rank_problem = labels(rng, views, 20)
    bank = KernelBank(ChiSquared(), device=bench.settings.device).build(views)
    K = bank.combine(np.full(3, 1 / 3))
    seconds, solution = bench.timed(lambda: MLRL1(1.0).solve(K, rank_problem, accuracy=1e-3))
    assert solution.gap <= 1e-3 * solution.primal
    bench.row("check", "MLR-L1, n=1500, 20 labels", seconds, objective=solution.primal)


def fit(bank: Any, Y: np.ndarray, tol: float = 1e-3, C: float = 1.0) -> Saddle:
    return run("auto", Saddle(bank, SVM(C), Simplex(), Y, Stopping(tol=tol)))


def labels(rng: np.random.Generator, views: dict[str, np.ndarray], m: int) -> np.ndarray:
    """About 5 in 100 labels a sample, functions of the views with noise: +1 and -1."""
    X = np.log(np.hstack([views[name][:, :40] for name in list(views)[:3]]) + 1e-6)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    scores = X @ rng.normal(size=(X.shape[1], m)) / np.sqrt(X.shape[1]) + 0.5 * rng.normal(size=(len(X), m))
    return np.where(scores > np.quantile(scores, 0.95), 1.0, -1.0)


def build(bench: Bench, views: dict[str, np.ndarray], dtype: str = "float32") -> tuple[float, Any]:
    return bench.timed(lambda: KernelBank(ChiSquared(), dtype=dtype, device=bench.settings.device).build(views))


def grams(bench: Bench, views: dict[str, np.ndarray]) -> Any:
    n = len(next(iter(views.values())))
    build(bench, {name: rows[:500] for name, rows in views.items()})  # compiles
    seconds, bank = build(bench, views)
    operations = n * n / 2 * sum(rows.shape[1] for rows in views.values()) * CHI2_OPERATIONS
    written = len(views) * n * n * 4 * 3  # distances, then read and written once more by the exponential
    floor = operations / (bench.rate / 2) + written / bench.bandwidth
    what = f"{len(views)} chi-squared Gram matrices, n={n}, d={min(WIDTHS)} to {max(WIDTHS)}"
    bench.row("grams", what, seconds, floor, reach="3 s", bytes=bank.nbytes)
    return bank


def reading_floor(bench: Bench, bank: Any, counts: dict[str, int], books: Saddle, m: int) -> float:
    """Seconds to read what the fit reads: the combined kernel a product, the bank for combinations and quadratics."""
    square = bank.n_samples**2 * 4
    product = max(square / bench.bandwidth, 2 * bank.n_samples**2 * m / bench.rate)
    exact = max(square / bench.bandwidth, 2 * bank.n_samples**2 * m / bench.rate64)
    bank_reads = (books.adds + books.solves * bank.n_kernels) * square / bench.bandwidth
    return counts["times"] * product + counts["exactly"] * exact + bank_reads


def mkl(bench: Bench, bank: Any, y: np.ndarray) -> None:
    Y = signs(y)
    for C in (1.0, 10.0):
        with counted() as counts:
            seconds, books = bench.timed(lambda: fit(bank, Y, C=C))
        last = books.history[-1]
        parts = {name: float(last[f"seconds_{name}"]) for name in ("combine", "machine", "quadratics", "master")}
        floor = reading_floor(bench, bank, counts, books, Y.shape[1])
        what = f"l1, {Y.shape[1]} classes share weights, n={bank.n_samples}, C={C:g}"
        more = {"gap": books.gap, "solves": books.solves, "products": sum(counts.values())}
        bench.row("mkl", what, seconds, floor, reach="20 s", **more, **parts)


def per_class(bench: Bench, bank: Any, y: np.ndarray) -> None:
    from joblib import Parallel, delayed

    Y = signs(y)[:, : bench.settings.classes]

    def one(k: int) -> float:
        with bank.task():
            return fit(bank, Y[:, [k]]).gap

    one(0)
    with counted() as counts:
        after, gaps = bench.timed(lambda: [one(k) for k in range(Y.shape[1])])
    floor = sum(counts.values()) * bank.n_samples**2 * 4 / bench.bandwidth
    what = f"l1, {Y.shape[1]} classes with weights of their own, n={bank.n_samples}"
    bench.row("per_class", f"{what}, one after another", after, floor, gap=max(gaps), products=sum(counts.values()))
    jobs = min(bench.settings.jobs, Y.shape[1])
    together, gaps = bench.timed(
        lambda: (
            bank.expect(jobs),
            Parallel(n_jobs=jobs, prefer="threads")(delayed(one)(k) for k in range(Y.shape[1])),
        )[1]
    )
    bench.row(
        "per_class", f"{what}, {jobs} at a time", together, floor, gap=max(gaps), ratio=after / together, reach="3x"
    )


def ranking(bench: Bench, views: dict[str, np.ndarray]) -> None:
    Y = labels(np.random.default_rng(1), views, bench.settings.labels)
    few = {name: views[name] for name in list(views)[:3]}
    for n in sorted({min(bench.settings.cpu_n, len(Y)), len(Y)}):
        _ranking_at(bench, {name: rows[:n] for name, rows in few.items()}, Y[:n])


def _ranking_at(bench: Bench, views: dict[str, np.ndarray], Y: np.ndarray) -> None:
    n, m = Y.shape
    K, machine = build(bench, views)[1].combine(np.full(3, 1 / 3)), MLRL1(bench.settings.rank_C)
    with counted() as counts:
        seconds, solution = bench.timed(lambda: machine.solve(K, Y, accuracy=1e-3))
    products = sum(counts.values())
    floor = products * max(n * n * 4 / bench.bandwidth, 2 * n * n * m / bench.rate)
    what = f"MLR-L1, n={n}, {m} labels"
    bench.row("ranking", what, seconds, floor, products=products, objective=solution.primal)
    if n > bench.settings.cpu_n:
        print(f"ranking    the CPU is not asked for n={n}: --cpu-n {n} does that", flush=True)
    else:
        host = K.values.cpu().numpy()
        machine.solve(host[:300, :300].copy(), Y[:300], accuracy=1e-2)  # compiles
        begin = time.perf_counter()
        there = machine.solve(host, Y, accuracy=1e-3)
        taken = time.perf_counter() - begin
        bench.row("ranking", f"{what}, CPU", taken, objective=there.primal, ratio=taken / seconds, reach="30x")


def slope(bench: Bench) -> None:
    sizes = (500, 1000) if bench.settings.quick else (5_000, 10_000, 20_000, 40_000, 60_000)
    views, y = histograms(max(sizes), WIDTHS[:3], 18)
    few = {name: rows[: sizes[0]] for name, rows in views.items()}
    fit(build(bench, few)[1], signs(y)[: sizes[0]])  # pays for what is done once
    taken = [_whole_fit(bench, {name: rows[:n] for name, rows in views.items()}, signs(y)[:n]) for n in sizes]
    found = float(np.polyfit(np.log(sizes), np.log(taken), 1)[0])
    print(f"slope      of time over n: {found:.2f}, reach 2.1", flush=True)
    bench.rows.append({"part": "slope", "what": "slope of log time over log n", "slope": found})
    bench.write()


def _whole_fit(bench: Bench, views: dict[str, np.ndarray], Y: np.ndarray) -> float:
    seconds, bank = build(bench, views)
    fitting, books = bench.timed(lambda: fit(bank, Y))
    bench.row("slope", f"3 kernels and an l1 fit, n={len(Y)}", seconds + fitting, kernels=seconds, gap=books.gap)
    return seconds + fitting


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--parts", default="check,grams,mkl,per_class,ranking,slope")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--n", type=int, default=36_864)
    parser.add_argument("--classes", type=int, default=18, help="classes of the per_class part")
    parser.add_argument("--jobs", type=int, default=18, help="threads of the per_class part")
    parser.add_argument("--labels", type=int, default=100)
    parser.add_argument("--rank-C", type=float, default=1.0)
    parser.add_argument("--cpu-n", type=int, default=12_288, help="largest n that the CPU is asked for, too")
    parser.add_argument(
        "--tf32", action="store_true", help="quick products in reduced precision; certificates stay exact"
    )
    parser.add_argument("--json", help="file that rows are written to")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that everything runs")
    settings = parser.parse_args()
    if settings.quick:
        settings.n, settings.cpu_n, settings.labels, settings.classes = 1200, 600, 10, 2
    if settings.device.startswith("cuda") and not torch.cuda.is_available():
        print("no CUDA device here: run with --device cpu --quick to see the parts, or on a machine with a GPU")
        return
    if settings.tf32:
        torch.set_float32_matmul_precision("high")
    bench = Bench(settings)
    print(
        f"{settings.device}: reads {bench.bandwidth / 1e9:.0f} GB/s, products {bench.rate / 1e12:.2f} and "
        f"{bench.rate64 / 1e12:.2f} TFLOP/s in single and double precision",
        flush=True,
    )
    parts = settings.parts.split(",")
    if "check" in parts:
        check(bench)
    if set(parts) & {"grams", "mkl", "per_class", "ranking"}:
        views, y = histograms(settings.n, WIDTHS, 18)
        bank = grams(bench, views) if set(parts) & {"grams", "mkl", "per_class"} else None
        if "mkl" in parts:
            mkl(bench, bank, y)
        if "per_class" in parts:
            per_class(bench, bank, y)
        del bank
        if "ranking" in parts:
            ranking(bench, views)
    if "slope" in parts:
        slope(bench)


if __name__ == "__main__":
    main()
