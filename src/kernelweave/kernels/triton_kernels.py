"""Sums over features between all pairs of two sets of rows, compiled by Triton for CUDA devices.

A program computes a tile of pairs and walks over the features, two at a time: rows are laid out feature by feature, so
that neighbouring lanes read neighbouring samples, and nothing but the result is ever written.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

#: Pairs of a tile, and warps that share it.
ROWS, COLUMNS, WARPS = 64, 64, 4

_TERMS = {"chi2": 0, "minimum": 1, "cityblock": 2}


def sum_features(term: str, A: Tensor, B: Tensor, out: Tensor) -> None:
    """Write a sum over features between rows A (n_a, d) and B (n_b, d), single precision, into ``out``, (n_a, n_b).

    Rows are positive, as `device_kernels` prepares them; ``out`` has contiguous rows.
    """
    left, right = _by_feature(A), _by_feature(B)
    grid = (triton.cdiv(len(A), ROWS), triton.cdiv(len(B), COLUMNS))
    with torch.cuda.device(out.device):
        _sum_features[grid](
            left,
            right,
            out,
            len(A),
            len(B),
            left.shape[0],
            left.stride(0),
            right.stride(0),
            out.stride(0),
            TERM=_TERMS[term],
            ROWS=ROWS,
            COLUMNS=COLUMNS,
            num_warps=WARPS,
        )


def _by_feature(A: Tensor) -> Tensor:
    """(d, n), with one more feature that adds nothing where their number is odd: both samples have the same there."""
    turned = A.T.contiguous()
    if len(turned) % 2:
        # As small as what was added to all features: a minimum of it adds as good as nothing.
        turned = torch.cat([turned, torch.full_like(turned[:1], 1e-18)])
    return turned


@triton.jit
def _sum_features(
    left,
    right,
    out,
    n_rows,
    n_columns,
    d,
    left_stride,
    right_stride,
    out_stride,
    TERM: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    k = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    sums = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    x_at, y_at = left + i, right + k
    for _ in range(0, d, 2):
        x0 = tl.load(x_at, mask=i < n_rows, other=1.0)[:, None]
        x1 = tl.load(x_at + left_stride, mask=i < n_rows, other=1.0)[:, None]
        y0 = tl.load(y_at, mask=k < n_columns, other=1.0)[None, :]
        y1 = tl.load(y_at + right_stride, mask=k < n_columns, other=1.0)[None, :]
        if TERM == 0:
            # a/b + c/d = (a d + c b) / (b d): one division for two features.
            s0, s1, d0, d1 = x0 + y0, x1 + y1, x0 - y0, x1 - y1
            sums += (d0 * d0 * s1 + d1 * d1 * s0) / (s0 * s1)
        elif TERM == 1:
            sums += tl.minimum(x0, y0) + tl.minimum(x1, y1)
        else:
            sums += tl.abs(x0 - y0) + tl.abs(x1 - y1)
        x_at += 2 * left_stride
        y_at += 2 * right_stride
    if TERM == 0:
        sums *= 0.5
    # In 64 bits: the last entry of a large matrix is further away than 32 bits reach.
    at = out + i.to(tl.int64)[:, None] * out_stride + k[None, :]
    tl.store(at, sums, mask=(i < n_rows)[:, None] & (k < n_columns)[None, :])
