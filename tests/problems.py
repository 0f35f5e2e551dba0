"""Small problems that the tests of machines and solvers share."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelweave.kernels import KernelBank
from kernelweave.machines import Machine
from kernelweave.solvers import Saddle, Stopping, run
from kernelweave.views import KernelStack
from kernelweave.weights import WeightSet


def bank_of(Ks: NDArray, dtype: str = "float64") -> Any:
    """A real bank that holds the given kernels (s, n, n)."""
    return KernelBank("precomputed", dtype=dtype, check="never").build(KernelStack(np.asarray(Ks)))


@lru_cache
def binary(n: int = 36, seed: int = 0) -> tuple[NDArray, NDArray]:
    """Five kernels, (5, n, n): two good ones, a linear one of low rank, a weak one and noise; labels (n,)."""
    rng = np.random.default_rng(seed)
    y = np.where(rng.permutation(n) < 0.45 * n, 1.0, -1.0)
    A, B, C, noise = (shift * y[:, None] + rng.standard_normal((n, 3)) for shift in (0.8, 0.6, 0.3, 0.0))
    Ks = np.stack([gaussian(A), gaussian(B), B @ B.T / 3, gaussian(C), gaussian(noise)])
    return Ks, y


@lru_cache
def regression(n: int = 36, seed: int = 0) -> tuple[NDArray, NDArray]:
    """The kernels of `binary` and real targets with an offset, (n,)."""
    Ks, y = binary(n, seed)
    rng = np.random.default_rng(seed + 100)
    return Ks, 3.0 + y + Ks[0] @ rng.standard_normal(n) + 0.3 * rng.standard_normal(n)


def gaussian(X: NDArray, width: float = 1.0) -> NDArray:
    """exp(-|x - y|^2 / (width * mean)), mean over pairs."""
    D = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    return np.exp(-D / (width * D[np.triu_indices(len(X), 1)].mean()))


def solve(
    solver: str, weight_set: WeightSet, machine: Machine, Ks: Any, Y: NDArray, tol: float = 1e-5, **settings: Any
) -> Saddle:
    """The filled books of one fit; `Ks` may be a bank; `settings` of `Saddle`, or ``max_iter``."""
    bank = bank_of(Ks) if isinstance(Ks, np.ndarray) else Ks
    stopping = settings.pop("stopping", None) or Stopping(tol=tol, max_iter=settings.pop("max_iter", 2000))
    return run(solver, Saddle(bank, machine, weight_set, Y.reshape(len(Y), -1), stopping, **settings))
