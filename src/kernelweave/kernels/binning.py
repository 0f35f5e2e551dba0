"""Many pairs of samples as few: distances in bins, so that sums of ``exp(-s D)`` over pairs cost next to nothing.

The pairs of a bin are replaced by two distances with weights that have the same moments up to the third (Gauss
quadrature), so that the sums stay sums of exponentials with positive weights. The fourth derivative of ``exp(-s D)`` is
positive, so they come out too small, by at most ``m max(s^4 exp(-s D)) h^4 / (24 * 64)`` in a bin of width h and weight
m (because a monic polynomial of degree two can be kept below h^2/8). With bins ``[lo, lo (1 + w)]``, ``h <= w D``, that
is at most ``m w^4 (4/e)^4 / 1536`` whatever s is; and less in the first bin, ``[0, w / largest s]``.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from .._config import FASTMATH

Array = NDArray[np.float64]

#: What is lost at most, as a share of the weight, is this times the fourth power of the width.
_LOSS = (4.0 / np.e) ** 4 / 1536
#: The widest bins, and pairs a bin from which it pays to sort them.
_WIDEST, _WORTH = 0.25, 8
#: Bits of the fraction of a double: pairs are sorted by the first few of them.
_FRACTION = 52


def width_for(weight: float, tolerated: float) -> float:
    """How wide bins may be for sums that are too small by at most `tolerated`: a power of two, or 0."""
    if not weight > 0 or not tolerated > 0:
        return 0.0
    return float(2.0 ** np.floor(np.log2(min((tolerated / (_LOSS * weight)) ** 0.25, _WIDEST))))


def worth_it(D: Array, largest: float, width: float) -> bool:
    """Whether there are far fewer bins than pairs."""
    if width <= 0 or len(D) == 0:
        return False
    return len(D) > _WORTH * (1.0 + max(np.log2(largest * max(D.max(), 1.0 / largest) / width), 0.0)) / width


def in_bins(D: Array, c: Array, largest: float, width: float) -> list[tuple[Array, Array]]:
    """Distances and (positive) weights that stand for the pairs with c > 0, and for those with c < 0.

    Parameters
    ----------
    D : array of shape (n_pairs,)
        Distances, not negative.
    c : array of shape (n_pairs,)
        Weights of any sign.
    largest : float
        The largest s.
    width : float
        Of the bins, beside their distance; a power of two.
    """
    shift = _FRACTION + int(np.log2(width))  # a bin has all doubles that agree up to this bit
    first = int(_bits(np.array([width / largest]))[0] >> shift)
    n_bins = max(int(_bits(D.max(keepdims=True))[0] >> shift) - first, -1) + 2
    lows = np.append(0.0, ((first + np.arange(n_bins - 1)) << shift).view(np.float64))
    moments = np.zeros((2, n_bins, 4))
    _sort(D, _bits(D), c, shift, first - 1, lows, moments)
    return [_two_points(side, lows) for side in moments]


def _bits(numbers: Array) -> NDArray[np.int64]:
    return np.ascontiguousarray(numbers, dtype=np.float64).view(np.int64)


def _two_points(moments: Array, lows: Array) -> tuple[Array, Array]:
    """Two distances a bin with its moments 0 to 3, (n_bins, 4), which are about its low end."""
    used = np.flatnonzero(moments[:, 0])
    weight = moments[used, 0]
    mean, square, cube = (moments[used, 1:] / weight[:, None]).T
    variance = square - mean**2
    spread = np.sqrt(np.where(variance > 1e-14 * square, variance, 0.0))
    third = cube - 3.0 * mean * square + 2.0 * mean**3
    skew = np.divide(third, spread**3, out=np.zeros_like(third), where=spread > 0)
    root = np.sqrt(skew**2 + 4.0)
    up = 0.5 * (skew + root)  # the two points are up and -1/up standard deviations from the mean
    share = 1.0 / (1.0 + up**2)
    points = np.concatenate([mean + spread * up, mean - spread / up])
    points = np.maximum(points, 0.0) + np.tile(lows[used], 2)
    return points, np.concatenate([weight * share, weight * (1.0 - share)])


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _sort(D, bits, c, shift, before, lows, moments):
    """Add the pairs to the moments of their bins, (2, n_bins, 4): those with c > 0 first."""
    for p in range(len(D)):
        b = max((bits[p] >> shift) - before, 0)
        y = D[p] - lows[b]
        side, weight = (0, c[p]) if c[p] > 0 else (1, -c[p])
        moment = moments[side, b]
        moment[0] += weight
        weight *= y
        moment[1] += weight
        weight *= y
        moment[2] += weight
        moment[3] += weight * y
