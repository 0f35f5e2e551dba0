"""The shift that brings the sum of clipped numbers to a given value, for many groups at once, compiled by Triton.

The same search as written with arrays takes some twenty small operations a step, and starting them costs more than they
do. Here a program takes all the steps of one group, whose numbers stay in its cache.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

#: Numbers of a group read at a time, and warps that share them: in short groups, and in long ones.
SHORT, SHORT_WARPS = 128, 1
LONG, LONG_WARPS = 2048, 8
MAX_STEPS = 100


def shift(T: Tensor, lower: Tensor, upper: Tensor, kept: Tensor, guess: Tensor, rounding: float) -> Tensor:
    """The number b of each group at which ``clip(T - b, lower, upper)`` has the sum kept.

    Parameters
    ----------
    T, lower, upper : tensors of shape (n_groups, size), double precision, with contiguous rows
    kept, guess : tensors of n_groups numbers
    rounding : float
        Error of a sum, relative to the sum of sizes, that does not count.

    Returns
    -------
    tensor of shape (n_groups,)
    """
    out = torch.empty(len(T), dtype=T.dtype, device=T.device)
    short = T.shape[1] <= 8 * SHORT
    with torch.cuda.device(T.device):
        _shift[(len(T),)](
            T,
            lower,
            upper,
            kept.contiguous(),
            guess.contiguous(),
            out,
            T.shape[1],
            rounding,
            MAX_STEPS=MAX_STEPS,
            BLOCK=SHORT if short else LONG,
            num_warps=SHORT_WARPS if short else LONG_WARPS,
        )
    return out


@triton.jit
def _shift(T, lower, upper, kept, guess, out, size, rounding, MAX_STEPS: tl.constexpr, BLOCK: tl.constexpr):
    group = tl.program_id(0).to(tl.int64)
    T += group * size
    lower += group * size
    upper += group * size
    target = tl.load(kept + group)
    lane = tl.arange(0, BLOCK)
    left = tl.full((BLOCK,), float("inf"), tl.float64)
    right = tl.full((BLOCK,), float("-inf"), tl.float64)
    for start in range(0, size, BLOCK):
        here = start + lane < size
        t = tl.load(T + start + lane, mask=here, other=0.0)
        low = tl.load(lower + start + lane, mask=here, other=0.0)
        high = tl.load(upper + start + lane, mask=here, other=0.0)
        wide = here & (low < high)
        left = tl.where(wide, tl.minimum(left, t - high), left)
        right = tl.where(wide, tl.maximum(right, t - low), right)
    # A group of which nothing can move keeps its sum whatever is taken off.
    begin, end = tl.minimum(tl.min(left, 0), 0.0), tl.maximum(tl.max(right, 0), 0.0)
    b = tl.minimum(tl.maximum(tl.load(guess + group), begin), end)
    step = 0
    while step < MAX_STEPS:
        sums = tl.zeros((BLOCK,), tl.float64)
        sizes = tl.zeros((BLOCK,), tl.float64)
        free = tl.zeros((BLOCK,), tl.float64)
        for start in range(0, size, BLOCK):
            here = start + lane < size
            moved = tl.load(T + start + lane, mask=here, other=0.0) - b
            low = tl.load(lower + start + lane, mask=here, other=0.0)
            high = tl.load(upper + start + lane, mask=here, other=0.0)
            inside = tl.minimum(tl.maximum(moved, low), high)
            sums += inside
            sizes += tl.abs(inside)
            free += tl.where((moved > low) & (moved < high), 1.0, 0.0)
        excess = tl.sum(sums, 0) - target
        step += 1
        if tl.abs(excess) <= rounding * tl.sum(sizes, 0) + 1e-300:
            step = MAX_STEPS
        else:
            begin = tl.where(excess > 0, b, begin)
            end = tl.where(excess < 0, b, end)
            movable = tl.sum(free, 0)
            newton = b + excess / tl.maximum(movable, 1.0)
            halved = (movable == 0) | (newton <= begin) | (newton >= end)
            b = tl.where(halved, 0.5 * (begin + end), newton)
    tl.store(out + group, b)
