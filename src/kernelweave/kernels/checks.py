"""Checks of built kernels: finite, symmetric, positive semi-definite; each error names the kernel."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from ..views import GramRows, check_symmetric
from .quantities import PRECOMPUTED, FunctionQuantity, Quantity
from .triangle import gather

#: Negative eigenvalues down to this share of the largest are rounding of single-precision kernels.
EIGENVALUE_TOLERANCE = 1e-5
#: Samples on which symmetry and eigenvalues are looked at.
SUBSET = 500


def check_finite_kernel(packed: NDArray, name: str) -> None:
    """Refuse a packed kernel with NaN or infinity."""
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(packed.sum()):
            return
    bad = np.flatnonzero(~np.isfinite(packed))
    if len(bad):
        row = int((np.sqrt(8.0 * bad[0] + 1) - 1) / 2)
        refuse_value(name, row, int(bad[0]) - row * (row + 1) // 2, float(packed[bad[0]]))


def refuse_value(name: str, row: int, column: int, value: float) -> NoReturn:
    """Refuse a kernel because of one value that is not finite."""
    raise ValueError(
        f"kernel {name!r} has the value {value} between samples {row} and {column}: "
        "kernels must be finite; scale the features, or use dtype='float64' if single precision overflows"
    )


def check_source(quantity: Quantity, rows: Any, view: str) -> None:
    """Refuse features a quantity is not defined for, and kernels users computed that are not square or symmetric."""
    quantity.check(rows, view)
    if quantity is PRECOMPUTED and not isinstance(rows, GramRows):  # a KernelStack was checked when it was made
        if rows.shape[0] != rows.shape[1]:
            raise ValueError(f"view {view!r} is a precomputed kernel and must be square for training, got {rows.shape}")
        check_symmetric(rows, f"precomputed kernel {view!r}")
    if isinstance(quantity, FunctionQuantity):
        ids = subset(len(rows), SUBSET // 5)
        values = np.empty((len(ids), len(ids)))
        quantity.block(rows[ids], rows[ids], values)
        if np.isfinite(values).all():  # the whole kernel is checked for that later
            check_symmetric(values, f"the kernel function {quantity.function_name} on view {view!r}", ids)


def check_positive(packed: NDArray, n: int, name: str) -> None:
    """Refuse a packed kernel with a clearly negative eigenvalue on at most `SUBSET` random samples."""
    some = subset(n, SUBSET)
    block = np.empty((len(some), len(some)))
    gather(packed, some, block)
    check_positive_block(block, name)


def check_positive_block(block: NDArray, name: str) -> None:
    """Refuse a kernel between some samples with a clearly negative eigenvalue."""
    values = linalg.eigvalsh(block)
    if values[0] < -EIGENVALUE_TOLERANCE * np.abs(values).max():
        raise ValueError(
            f"kernel {name!r} is not positive semi-definite: on {len(block)} samples its smallest eigenvalue is "
            f"{values[0]:.3g}, {-values[0] / np.abs(values).max():.2%} of the largest in size; wrap it as "
            "kernelweave.kernels.Repaired(kernel, method='clip' or 'shift'), or build the bank with check='never'"
        )


def subset(n: int, size: int) -> NDArray:
    """At most ``size`` of n samples, always the same ones."""
    return np.arange(n) if n <= size else np.sort(np.random.default_rng(0).choice(n, size, replace=False))
