"""Kernels computed by torch: quantities between rows, their element-wise functions and the steps after them.

What a kernel is made of is described by the same objects as in memory (`Quantity`, `Kernel`, `Step`); here are their
torch counterparts. What has none, a function a user wrote for example, is computed in memory block by block and sent.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from . import functions, quantities
from .fitted import NewBlocks, RightRows, gram_columns
from .functions import Kernel
from .quantities import PRECOMPUTED, TINY, GramColumns, Quantity
from .steps import Center, Clip, Scale, Shift, Spherical, Step

#: Bytes of temporary values at a time.
TEMPORARY = 1 << 28
#: Rows of a kernel that are computed at a time where there are no temporary values: what lies above the diagonal in
#: them is computed in vain, and with fewer of them a device has too little to do.
WITHOUT_TEMPORARY = 2048
#: The same for loops of several element-wise operations, whose temporaries then stay in cache.
IN_CACHE = 1 << 22


def wide(device: torch.device) -> torch.dtype:
    """The widest floating type of a device: double precision, where it has that."""
    return torch.float32 if device.type == "mps" else torch.float64


def sent(array: NDArray, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """An array on a device, in the precision asked for or, as far as the device has it, its own."""
    if dtype is None:
        dtype = wide(device) if array.dtype == np.float64 else torch.float32
    host = torch.from_numpy(
        np.require(array, requirements=["C", "W"])
    )  # torch warns of arrays that must not be written to
    return host.to(dtype).to(device) if device.type == "mps" else host.to(device, dtype)


def row_blocks(n: int, bytes_a_row: int, limit: int | None = None) -> list[slice]:
    """Slices of n rows of limited size each."""
    height = max(1, (TEMPORARY if limit is None else limit) // max(1, bytes_a_row))
    return [slice(start, min(start + height, n)) for start in range(0, n, height)]


# -- quantities: prepare(right rows, dtype of the values) gives what block(left rows, prepared, columns, out) reads --


def _prepare_dot(B: Tensor, dtype: torch.dtype) -> Tensor:
    return B.to(wide(B.device))


def _dot(A: Tensor, B: Tensor, columns: slice, out: Tensor) -> None:
    out.copy_(A.to(B.dtype) @ B[columns].T)


def _prepare_sqeuclidean(B: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    B = B.to(wide(B.device))
    centre = B.mean(0)
    centred = B - centre
    return centre, centred, (centred * centred).sum(1)


def _sqeuclidean(A: Tensor, right: tuple[Tensor, Tensor, Tensor], columns: slice, out: Tensor) -> None:
    centre, B, norms = right
    A = A.to(B.dtype) - centre
    distances = torch.addmm(norms[columns], A, B[columns].T, alpha=-2.0)
    distances += (A * A).sum(1)[:, None]
    out.copy_(distances.clamp_(min=0.0))


def _prepare_sum(B: Tensor, dtype: torch.dtype) -> tuple[float, Tensor]:
    largest = float(B.abs().max()) or 1.0
    return largest, _scaled(B, largest, dtype)


def _scaled(A: Tensor, largest: float, dtype: torch.dtype) -> Tensor:
    """Rows beside their largest value, plus a number so small that 0/0 counts 0 and nothing else changes."""
    return (A * (1.0 / largest)).to(dtype) + TINY


def _feature_sum(term: str) -> Callable[[Tensor, tuple[float, Tensor], slice, Tensor], None]:
    def block(A: Tensor, right: tuple[float, Tensor], columns: slice, out: Tensor) -> None:
        largest, B = right
        A, B = _scaled(A, largest, B.dtype), B[columns]
        if has_triton(A.device) and B.dtype == torch.float32:
            from .triton_kernels import sum_features

            sum_features(term, A, B, out)
        else:
            _PLAIN[term](A, B, out)
        out.mul_(largest)

    return block


def _chi2_by_torch(A: Tensor, B: Tensor, out: Tensor) -> None:
    # Feature by feature in a block that stays in cache: a temporary of (rows, columns, features) would be far larger.
    for rows in row_blocks(len(A), 3 * len(B) * B.element_size(), None if A.is_cuda else IN_CACHE):
        left, part = A[rows], out[rows]
        part.zero_()
        sums, squares = torch.empty_like(part), torch.empty_like(part)
        for f in range(A.shape[1]):
            x, y = left[:, f, None], B[None, :, f]
            torch.sub(x, y, out=squares)
            squares.mul_(squares)
            torch.add(x, y, out=sums)
            part.addcdiv_(squares, sums, value=0.5)


def _cityblock_by_torch(A: Tensor, B: Tensor, out: Tensor) -> None:
    out.copy_(torch.cdist(A, B, p=1.0))


def _minimum_by_torch(A: Tensor, B: Tensor, out: Tensor) -> None:
    """``min(x, y) = (x + y - |x - y|) / 2``, summed."""
    exact = wide(A.device)
    sums = A.sum(1, dtype=exact)[:, None] + B.sum(1, dtype=exact)
    out.copy_(0.5 * (sums - torch.cdist(A.to(exact), B.to(exact), p=1.0)))


_PLAIN = {"chi2": _chi2_by_torch, "cityblock": _cityblock_by_torch, "minimum": _minimum_by_torch}


@cache
def _triton_installed() -> bool:
    return importlib.util.find_spec("triton") is not None


def has_triton(device: torch.device) -> bool:
    """Whether Triton compiles for that device."""
    return device.type == "cuda" and _triton_installed()


def _prepare_additive(B: Tensor, dtype: torch.dtype) -> tuple[Any, Tensor]:
    return _prepare_sum(B, dtype), B.sum(1, dtype=wide(B.device))


def _additive(A: Tensor, right: tuple[Any, Tensor], columns: slice, out: Tensor) -> None:
    prepared, sums = right
    _feature_sum("chi2")(A, prepared, columns, out)
    both = A.sum(1, dtype=sums.dtype)[:, None] + sums[columns]
    out.copy_((0.5 * both - out).clamp_(min=0.0))


_TORCH: dict[Quantity, tuple[Callable, Callable]] = {
    quantities.DOT: (_prepare_dot, _dot),
    quantities.SQEUCLIDEAN: (_prepare_sqeuclidean, _sqeuclidean),
    quantities.CHI2: (_prepare_sum, _feature_sum("chi2")),
    quantities.CITYBLOCK: (_prepare_sum, _feature_sum("cityblock")),
    quantities.MINIMUM: (_prepare_sum, _feature_sum("minimum")),
    quantities.ADDITIVE_CHI2: (_prepare_additive, _additive),
}


#: Those that Triton computes without temporary values.
_SUMS = (quantities.CHI2, quantities.CITYBLOCK, quantities.MINIMUM)


class Rows:
    """The right-hand rows of one quantity on a device.

    Parameters
    ----------
    quantity : Quantity
    rows : array of shape (n, d), `GramRows` or `GramColumns`
    n : int
        How many rows these are.
    dtype : torch.dtype
        Precision of the blocks.
    device : torch.device
    """

    def __init__(self, quantity: Quantity, rows: Any, n: int, dtype: torch.dtype, device: torch.device) -> None:
        self.quantity, self.n, self.dtype, self.device = quantity, n, dtype, device
        prepare: Callable | None
        self._block: Callable | None
        prepare, self._block = _TORCH.get(quantity, (None, None))
        # What torch does not compute is computed in memory, in the precision that the compiled loops there have.
        self._memory_dtype = np.float64 if dtype == torch.float64 else np.float32
        self._right: Any
        if prepare is not None:
            self._right = prepare(sent(rows, device), dtype)
        elif quantity is PRECOMPUTED:
            self._right = rows if isinstance(rows, GramColumns) else gram_columns(rows, np.arange(n))
        else:
            self._right = quantity.prepare(rows, self._memory_dtype)

    def blocks_of_rows(self, n: int, width: int) -> list[slice]:
        """Slices of n left-hand rows that are computed at a time."""
        if has_triton(self.device) and self.quantity in _SUMS and self.dtype == torch.float32:
            return row_blocks(n, 1, WITHOUT_TEMPORARY)
        return row_blocks(n, width * 16)

    def block(self, left: Any, width: int, out: Tensor) -> None:
        """Write the quantity between left-hand rows and the first `width` right-hand ones into ``out``."""
        if self._block is not None:
            A = sent(left, self.device)
            for rows in self.blocks_of_rows(len(A), width):
                self._block(A[rows], self._right, slice(0, width), out[rows])
            return
        for rows in row_blocks(len(left), width * 16):
            values = np.empty((rows.stop - rows.start, width), self._memory_dtype)
            self.quantity.block(left[rows], self._right, values)
            out[rows] = sent(values, self.device, out.dtype)


def fill(rows: Any, quantity: Quantity, out: Tensor) -> None:
    """Write a quantity between all training samples, given by the rows of a view, into ``out``, (n, n), symmetric."""
    n = len(rows)
    right = Rows(quantity, rows, n, out.dtype, out.device)
    for part in right.blocks_of_rows(n, n):
        right.block(rows[part], part.stop, out[part, : part.stop])
    mirror(out)
    if quantity.zero_to_itself:
        out.fill_diagonal_(0.0)


def mirror(K: Tensor) -> None:
    """Copy the lower triangle into the upper one."""
    for part in row_blocks(len(K), len(K) * K.element_size(), TEMPORARY // 4):
        K[: part.start, part] = K[part, : part.start].T
        square = K[part, part]
        square.copy_(square.tril() + square.tril(-1).T)


# -- the element-wise functions ------------------------------------------------------------------------------------


def _copy(kernel: Any, q: Tensor, rate: float, out: Tensor) -> None:
    if out is not q:
        out.copy_(q)


def _polynomial(kernel: Any, q: Tensor, rate: float, out: Tensor) -> None:
    torch.mul(q, kernel.scale, out=out)
    out.add_(kernel.offset)
    out.pow_(int(kernel.degree))


def _of_squared_distance(kernel: Any, q: Tensor, rate: float, out: Tensor) -> Tensor:
    return torch.mul(q, rate, out=out) if kernel._squared else torch.mul(q, q, out=out).mul_(rate)


def _of_distance(kernel: Any, q: Tensor, rate: float, out: Tensor) -> Tensor:
    return torch.mul(q, rate, out=out).sqrt_() if kernel._squared else torch.mul(q, rate**0.5, out=out)


#: By the function it stands for, so that a subclass with a function of its own is not mistaken for its parent.
_TRANSFORMS: dict[Any, Callable[[Any, Tensor, float, Tensor], Any]] = {
    functions.Linear.transform: _copy,
    functions.AdditiveChiSquared.transform: _copy,
    functions.HistogramIntersection.transform: _copy,
    functions.Precomputed.transform: _copy,
    functions.FromFunction.transform: _copy,
    functions.Polynomial.transform: _polynomial,
    functions.Gaussian.transform: lambda kernel, q, rate, out: _of_squared_distance(kernel, q, -rate, out).exp_(),
    functions.Laplacian.transform: lambda kernel, q, rate, out: _of_distance(kernel, q, rate, out).neg_().exp_(),
    functions.InverseSquaredDistance.transform: lambda kernel, q, rate, out: (
        _of_squared_distance(kernel, q, rate, out).add_(1.0).reciprocal_()
    ),
    functions.InverseDistance.transform: lambda kernel, q, rate, out: (
        _of_distance(kernel, q, rate, out).add_(1.0).reciprocal_()
    ),
    functions.ExponentialKernel.transform: lambda kernel, q, rate, out: torch.mul(q, -rate, out=out).exp_(),
}


def transform(kernel: Kernel, q: Tensor, rate: float, out: Tensor) -> None:
    """Apply the element-wise function of a kernel; ``out`` may be ``q``."""
    known = _TRANSFORMS.get(type(kernel).transform)
    if known is not None:
        known(kernel, q, rate, out)
        return
    for rows in row_blocks(len(q), q.shape[1] * 16):
        values = q[rows].cpu().numpy().astype(np.float64)
        kernel.transform(values, rate, values)
        out[rows] = sent(values, q.device, out.dtype)


# -- steps ---------------------------------------------------------------------------------------------------------


class Square:
    """A training kernel on a device, as steps are fitted on: see `steps.Symmetric`."""

    def __init__(self, K: Tensor) -> None:
        self._K = K
        self.n = len(K)

    def diagonal(self) -> NDArray:
        return self._K.diagonal().to(wide(self._K.device)).cpu().numpy().astype(np.float64)

    def row_sums(self) -> NDArray:
        return self._K.sum(1, dtype=wide(self._K.device)).cpu().numpy().astype(np.float64)

    def dense(self) -> NDArray:
        return self._K.cpu().numpy().astype(np.float64)


def apply_to_training(step: Step, K: Tensor) -> None:
    """Change a whole training kernel by a step, in place."""
    if isinstance(step, Shift):
        K.diagonal().add_(step.amount)
        return
    if isinstance(step, Clip):
        vectors, values = sent(step.vectors, K.device), sent(step.values, K.device)
        for rows in row_blocks(len(K), len(K) * 16):
            K[rows] -= ((vectors[rows] * values) @ vectors.T).to(K.dtype)
    elif isinstance(step, Center):
        means = sent(step.means, K.device)
        _subtract(K, means - step.total, means)
    else:
        diagonal = step.inverse_norms**-2.0 if isinstance(step, Spherical) else None
        apply_to_new(step, K, diagonal, np.arange(len(K)))
    mirror(K)


def apply_to_new(step: Step, block: Tensor, diagonal: NDArray | None, columns: NDArray) -> NDArray | None:
    """Change kernels of new samples with training samples ``columns`` in place: see `Step.on_new`."""
    if isinstance(step, Scale):
        block.mul_(step.factor)
        return None if diagonal is None else diagonal * step.factor
    if isinstance(step, Spherical):
        assert diagonal is not None
        norms = np.sqrt(np.maximum(diagonal, 0.0))
        inverse = np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)
        block.mul_(sent(inverse, block.device, block.dtype)[:, None])
        block.mul_(sent(step.inverse_norms[columns], block.device, block.dtype))
        return (norms > 0).astype(np.float64)
    if isinstance(step, Center):
        means = block.mean(1, dtype=wide(block.device))
        _subtract(block, means - step.total, sent(step.means[columns], block.device))
        own = means.cpu().numpy().astype(np.float64)
        return None if diagonal is None else diagonal - 2 * own + step.total
    if isinstance(step, Clip):
        vectors = sent(step.vectors[columns], block.device, block.dtype)
        block.sub_((block @ vectors) @ vectors.T)
        return diagonal
    if isinstance(step, Shift):
        return None if diagonal is None else diagonal + step.amount
    raise TypeError(f"the step {type(step).__name__} is not known on a device: build the bank without device")


def _subtract(block: Tensor, of_rows: Tensor, of_columns: Tensor) -> None:
    """``block -= of_rows + of_columns`` without losing the digits these two have beyond the block's."""
    for rows in row_blocks(len(block), block.shape[1] * 16):
        block[rows] = (block[rows].to(of_rows.dtype) - of_rows[rows, None] - of_columns).to(block.dtype)


class DeviceRightRows(RightRows):
    """Training rows as the right-hand side of blocks on a device."""

    def __init__(self, rows: Any, n: int, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__(rows, np.float64 if dtype == torch.float64 else np.float32)
        self.n, self.values_dtype, self.device = n, dtype, device

    def prepared(self, view: str, quantity: Quantity) -> Rows:
        key = (view, quantity)
        if key not in self._prepared:
            self._prepared[key] = Rows(quantity, self.rows[view], self.n, self.values_dtype, self.device)
        return self._prepared[key]


class NewDeviceBlocks(NewBlocks):
    """Blocks between new samples and training samples, computed and left on a device."""

    right: DeviceRightRows

    def quantity(self, view: str, quantity: Quantity) -> Any:
        key = (view, quantity)
        if key not in self._quantities:
            block: Any = torch.empty(self.shape, dtype=self.right.values_dtype, device=self.right.device)
            self.right.prepared(view, quantity).block(self.left[view], self.shape[1], block)
            self._quantities[key] = block
        return self._quantities[key]

    def _transformed(self, kernel: Kernel, q: Any, rate: float) -> Any:
        block = torch.empty_like(q)
        transform(kernel, q, rate, block)
        return block

    def _apply(self, step: Step, block: Any, diagonal: NDArray | None) -> NDArray | None:
        return apply_to_new(step, block, diagonal, self.columns)
