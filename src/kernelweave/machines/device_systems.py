"""Linear systems with a kernel on a device, factorised there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..kernels.device import DeviceKernel
from ..kernels.device_batches import WeightedKernels
from ..kernels.operators import fetched
from .base import Array, projected_curvature
from .ridge import system

if TYPE_CHECKING:
    from torch import Tensor


class DeviceSystem:
    """``K + diag(ridge)``, factorised in the widest precision of the device: one matrix of the size of K, or two."""

    def __init__(self, K: DeviceKernel, ridge: Array) -> None:
        self._K = K
        placed = K.place(ridge)
        whole = K.values.to(placed.dtype, copy=True)
        whole.diagonal().add_(placed)
        self._factor = _cholesky(whole)

    def solve(self, B: Array) -> Array:
        """The solution for right-hand sides of shape (n,) or (n, m)."""
        import torch

        placed = self._K.place(B.reshape(len(B), -1))
        return fetched(torch.cholesky_solve(placed, self._factor)).astype(np.float64).reshape(B.shape)


@system.register(DeviceKernel)
def _system(K: DeviceKernel, ridge: Array) -> DeviceSystem:
    return DeviceSystem(K, ridge)


@projected_curvature.register(DeviceKernel)
@projected_curvature.register(WeightedKernels)
def _curvature(K: DeviceKernel | WeightedKernels, free: NDArray[np.intp], constraints: Array, R: Array) -> Array:
    """As for a matrix in memory, step by step."""
    import torch

    factor = _cholesky(K.part(free, free).to(K.place(R[:0]).dtype))
    Z = torch.linalg.solve_triangular(factor, K.place(R).T, upper=False)
    H = Z.T @ Z
    if len(constraints):
        E = torch.linalg.solve_triangular(factor, K.place(constraints).T, upper=False)
        held = torch.linalg.qr(E).Q.T @ Z
        H -= held.T @ held
    return fetched(H).astype(np.float64)


def _cholesky(A: Tensor) -> Any:
    """A factor of A; a ridge, grown until the factorisation succeeds, stands in for lost definiteness."""
    import torch

    ridge = 1e-7 * max(float(A.diagonal().mean()), float(np.finfo(np.float32).tiny))
    for _ in range(8):
        A.diagonal().add_(ridge)
        factor, failed = torch.linalg.cholesky_ex(A)
        if not bool(failed):
            return factor
        ridge *= 100
    raise np.linalg.LinAlgError("The kernel matrix is far from positive semi-definite: check the kernels of the bank.")
