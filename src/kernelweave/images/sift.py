"""Upright SIFT descriptors, fast on grids.

There is one definition and one loop. The weight of a pixel in a spatial cell (the triangle of the cell times the
Gaussian window of the descriptor) is a product of a weight for its column and a weight for its row, so the places of a
grid share their work: orientation maps are made once a row of pixels, gathered over rows for a whole row of places, and
then over columns for each place. A place that is in no grid is a grid of one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import cv2
import numpy as np
from numba import njit
from numpy.typing import NDArray

from .._config import FASTMATH
from .base import COLOURS, Array, Picture, What
from .places import check_places

_CELLS = 4  # along each side of the square
_ORIENTATIONS = 8
_LENGTH = _CELLS * _CELLS * _ORIENTATIONS
_REACH = 2.5  # how many cells from the centre a pixel still has weight: half the square and half a triangle

_RADIUS = 8.0  # pictures are halved until the radius is about this, so no descriptor costs more than some 1000 pixels
_LAYERS = 3  # different smoothings for each doubling of the radius
_SMOOTHING = 1 / 3  # standard deviation of the smoothing, in cells
_SHARP = 0.5  # standard deviation that a picture has by itself, in pixels

_WIDEST = _RADIUS * 2 / _CELLS * 2 ** ((_LAYERS - 0.5) / _LAYERS)  # pixels in a cell, at most
_BORDER = math.ceil(_REACH * _WIDEST) + 2
_TAPS = math.ceil(2 * _WIDEST / 4) * 4  # pixels across the triangle of a cell, at most, in fours
_ROWS = math.floor(2 * _REACH * _WIDEST) + 2  # rows of pixels that a descriptor reaches, at most

_CLIP = 0.2

#: Differences of grey levels below this are rounding, not contrast.
NOISE = np.float32(1e-3)


@dataclass(frozen=True)
class SIFT(What):
    """Histograms of gradient orientations in 4 x 4 cells, without rotation: 128 numbers for each colour channel.

    A cell is half a radius wide. The picture is smoothed with a third of that, rounded to one of three layers an
    octave as in the scale space of key point detectors. Gradients are shared among the nearest cells and orientations
    (trilinearly) under a Gaussian window of two cells. Each channel's descriptor is scaled to length 1, clipped at 0.2
    and scaled again; it is zero where there is no contrast. The numbers are in OpenCV's order.

    Parameters
    ----------
    colour : str
        "grey", or a colour space of which every channel is described.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.images import SIFT, Picture
    >>> picture = Picture(np.random.default_rng(0).integers(0, 256, (50, 60, 3), dtype=np.uint8))
    >>> SIFT().describe(picture, np.array([[20, 30, 8], [25, 30, 16]], dtype=np.float32)).shape
    (2, 128)
    >>> SIFT("hsv").length
    384
    """

    colour: str = "grey"

    def __post_init__(self) -> None:
        if self.colour not in COLOURS:
            raise ValueError(f"the colour of SIFT is one of {list(COLOURS)}, got {self.colour!r}")

    @property
    def label(self) -> str:
        return "sift" if self.colour == "grey" else f"{self.colour}-sift"

    @property
    def length(self) -> int:
        return _LENGTH * (1 if self.colour == "grey" else 3)

    def describe(self, picture: Picture, places: Array) -> Array:
        places = check_places(picture, places)
        out = np.empty((len(places), self.length // _LENGTH, _LENGTH), dtype=np.float32)
        grids = np.empty((len(places), 3), dtype=np.int64)
        grids = grids[: _find_grids(places, grids)]
        levels = np.rint(_LAYERS * np.log2(places[grids[:, 0], 2] / _RADIUS)).astype(np.int64)
        for level in np.unique(levels):
            octave, images = _scale_space(picture, self.colour, int(level))
            here = places / np.float32(2**octave)
            chosen = grids[levels == level]
            for channel, image in enumerate(images):
                _describe(image, here, chosen, *_scratch(image.shape[1], chosen[:, 1].max()), channel, out)
        return out.reshape(len(places), self.length)


def _scale_space(picture: Picture, colour: str, level: int) -> tuple[int, Array]:
    """How often the picture was halved for this level of smoothing, and its channels with their border repeated."""
    octave = max(0, level // _LAYERS)

    def smooth() -> Array:
        spread = _SMOOTHING * _RADIUS * 2 / _CELLS * 2 ** (level / _LAYERS - octave)
        missing = math.sqrt(max(spread**2 - _SHARP**2, 0.0))
        channels = _halved(picture, colour, octave)
        padded = np.empty((len(channels), *(side + 2 * _BORDER for side in channels.shape[1:])), dtype=np.float32)
        for image, out in zip(channels, padded, strict=True):
            if missing > 0:
                image = cv2.GaussianBlur(image, (0, 0), missing, borderType=cv2.BORDER_REPLICATE)
            cv2.copyMakeBorder(image, _BORDER, _BORDER, _BORDER, _BORDER, cv2.BORDER_REPLICATE, dst=out)
        return padded

    return octave, picture.once(("sift", colour, level), smooth)


def _halved(picture: Picture, colour: str, octave: int) -> Array:
    """Channels of the picture at half its size, `octave` times. Pixel (x, y) of the result is (2x, 2y) before."""
    if octave == 0:
        return picture.channels(colour)

    def halve() -> Array:
        finer = _halved(picture, colour, octave - 1)
        return np.stack([cv2.pyrDown(image, borderType=cv2.BORDER_REPLICATE) for image in finer])

    return picture.once(("halved", colour, octave), halve)


def _scratch(width: int, most: int) -> tuple[Array, Array, Array, Array]:
    """Space for the compiled loops; zeros, because taps without weight may read what was never written."""
    return (
        np.zeros((_ROWS, width * _ORIENTATIONS), dtype=np.float32),
        np.zeros((_CELLS, width * _ORIENTATIONS), dtype=np.float32),
        np.zeros((most + 1, _CELLS, _TAPS), dtype=np.float32),
        np.zeros((2, width), dtype=np.float32),
    )


@njit(cache=True, nogil=True)
def _find_grids(places: NDArray, grids: NDArray) -> int:
    """Cut the sequence of places into grids: rows of (first place, places in a row, rows); how many there are.

    Neighbours in a row overlap, so that no pixel between them is looked at in vain.
    """
    found, start, n = 0, 0, len(places)
    while start < n:
        y, radius = places[start, 1], places[start, 2]
        overlap = 4 * _REACH / _CELLS * radius
        wide = 1
        while start + wide < n and places[start + wide, 1] == y and places[start + wide, 2] == radius:
            apart = places[start + wide, 0] - places[start + wide - 1, 0]
            if not 0 < apart < overlap:
                break
            wide += 1
        high = 1
        while start + (high + 1) * wide <= n and _follows(places, start, wide, start + high * wide):
            high += 1
        grids[found] = start, wide, high
        found += 1
        start += wide * high
    return found


@njit(cache=True, nogil=True)
def _follows(places: NDArray, start: int, wide: int, row: int) -> bool:
    """Whether the places from `row` on are those from `start` on, further down."""
    y = places[row, 1]
    if y <= places[row - 1, 1]:
        return False
    for i in range(wide):
        same_column = places[row + i, 0] == places[start + i, 0]
        if not same_column or places[row + i, 1] != y or places[row + i, 2] != places[start, 2]:
            return False
    return True


@njit(cache=True, nogil=True)
def _describe(
    image: NDArray,
    places: NDArray,
    grids: NDArray,
    maps: NDArray,
    gathered: NDArray,
    weights: NDArray,
    polar: NDArray,
    channel: int,
    out: NDArray,
) -> None:
    """Descriptors of one channel, grid by grid."""
    for start, wide, high in grids:
        cell = places[start, 2] * 2 / _CELLS
        reach = _REACH * cell
        ring = math.floor(2 * reach) + 1  # rows of pixels whose maps are kept: few, to stay in the cache
        left = _first(places[start, 0], 0, cell)
        n = math.floor(places[start + wide - 1, 0] + reach) - left + 1
        for i in range(wide):
            _weigh(places[start + i, 0], cell, weights[i])
        made = -_BORDER  # rows of pixels before this one have their maps, as long as they are needed
        for first in range(start, start + wide * high, wide):
            y = places[first, 1]
            made = max(made, _first(y, 0, cell))
            while made <= y + reach:
                _orient(image, made + _BORDER, left + _BORDER, n, polar, maps[made % ring])
                made += 1
            _weigh(y, cell, weights[wide])
            for k in range(_CELLS):
                _gather_rows(maps, _first(y, k, cell), ring, n, weights[wide, k], gathered[k])
            for i in range(wide):
                _gather_columns(gathered, places[first + i, 0], left, cell, weights[i], out[first + i, channel])
                _normalise(out[first + i, channel])


@njit(cache=True, nogil=True)
def _first(centre: float, k: int, cell: float) -> int:
    """The first pixel inside the triangle of cell k."""
    return math.floor(centre + (k - _REACH) * cell) + 1


@njit(cache=True, nogil=True)
def _weigh(centre: float, cell: float, weights: NDArray) -> None:
    """Weights of rows or columns of pixels in each cell: its triangle, under the Gaussian window of the square."""
    for k in range(_CELLS):
        first = _first(centre, k, cell)
        for tap in range(_TAPS):
            u = (first + tap - centre) / cell
            triangle = 1 - abs(u - (k - (_CELLS - 1) / 2))
            weights[k, tap] = triangle * math.exp(-u * u * 2 / (_CELLS * _CELLS)) if triangle > 0 else 0.0


@njit(cache=True, nogil=True, fastmath=FASTMATH, error_model="numpy")
def _orient(image: NDArray, row: int, left: int, n: int, polar: NDArray, out: NDArray) -> None:
    """Magnitudes of the gradients of n pixels, each shared between its two nearest of eight orientations."""
    above, below = image[row - 1, left : left + n], image[row + 1, left : left + n]
    before, after = image[row, left - 1 : left + n - 1], image[row, left + 1 : left + n + 1]
    magnitudes, angles = polar[0, :n], polar[1, :n]
    for c in range(n):
        dx, dy = after[c] - before[c], above[c] - below[c]
        magnitude = np.sqrt(dx * dx + dy * dy)
        magnitudes[c] = magnitude if magnitude > NOISE else np.float32(0)
        angles[c] = eighths(dx, dy)
    out[: n * _ORIENTATIONS] = 0
    for c in range(n):
        lower = np.uint32(angles[c])
        upper = magnitudes[c] * (angles[c] - np.float32(lower))
        # A lower orientation of 8, from rounding, is 0.
        out[np.uintp(c * _ORIENTATIONS + (lower & np.uint32(7)))] = magnitudes[c] - upper
        out[np.uintp(c * _ORIENTATIONS + ((lower + np.uint32(1)) & np.uint32(7)))] = upper


@njit(cache=True, nogil=True, fastmath=FASTMATH, error_model="numpy")
def eighths(dx: np.float32, dy: np.float32) -> np.float32:
    """Direction in eighths of a turn, 0 to 8, to 3e-6; anything where both numbers are below `NOISE`."""
    ax, ay = abs(dx), abs(dy)
    t = min(ax, ay) / max(max(ax, ay), NOISE)
    s = t * t
    # 4 / pi * arctan(t) for t in [0, 1]: an odd polynomial of degree 11, fitted with the smallest greatest error
    series = np.float32(0.0670326834) + s * np.float32(-0.0149212626)
    series = np.float32(-0.148238803) + s * series
    series = np.float32(0.246423266) + s * series
    series = np.float32(-0.423508541) + s * series
    angle = t * (np.float32(1.27321054) + s * series)
    angle = np.float32(2) - angle if ay > ax else angle
    angle = np.float32(4) - angle if dx < 0 else angle
    return np.float32(8) - angle if dy < 0 else angle


@njit(cache=True, nogil=True, fastmath=FASTMATH, error_model="numpy")
def _gather_rows(maps: NDArray, first: int, ring: int, n: int, weights: NDArray, out: NDArray) -> None:
    """Sum the orientation maps of the rows of pixels in a row of cells, four rows at a time."""
    size = n * _ORIENTATIONS
    for tap in range(0, _TAPS, 4):
        w0, w1, w2, w3 = weights[tap], weights[tap + 1], weights[tap + 2], weights[tap + 3]
        if tap > 0 and w0 == 0:  # beyond the triangle
            break
        row = first + tap
        r0, r1 = maps[row % ring, :size], maps[(row + 1) % ring, :size]
        r2, r3 = maps[(row + 2) % ring, :size], maps[(row + 3) % ring, :size]
        if tap == 0:
            for c in range(size):
                out[c] = w0 * r0[c] + w1 * r1[c] + w2 * r2[c] + w3 * r3[c]
        else:
            for c in range(size):
                out[c] += w0 * r0[c] + w1 * r1[c] + w2 * r2[c] + w3 * r3[c]


@njit(cache=True, nogil=True, fastmath=FASTMATH, error_model="numpy")
def _gather_columns(gathered: NDArray, x: float, left: int, cell: float, weights: NDArray, out: NDArray) -> None:
    """Sum over the columns of pixels in each cell, for all rows of cells."""
    taps = math.ceil(2 * cell)
    for k in range(_CELLS):
        begin = (_first(x, k, cell) - left) * _ORIENTATIONS
        for row in range(_CELLS):
            source = gathered[row, begin:]
            # Eight sums by name stay in registers, which an array of eight would not.
            a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = np.float32(0)
            for tap in range(taps):
                weight = weights[k, tap]
                c = np.uintp(tap * _ORIENTATIONS)  # unsigned: no test for indices that count from the end
                a0 += weight * source[c]
                a1 += weight * source[c + np.uintp(1)]
                a2 += weight * source[c + np.uintp(2)]
                a3 += weight * source[c + np.uintp(3)]
                a4 += weight * source[c + np.uintp(4)]
                a5 += weight * source[c + np.uintp(5)]
                a6 += weight * source[c + np.uintp(6)]
                a7 += weight * source[c + np.uintp(7)]
            o = (row * _CELLS + k) * _ORIENTATIONS
            out[o], out[o + 1], out[o + 2], out[o + 3] = a0, a1, a2, a3
            out[o + 4], out[o + 5], out[o + 6], out[o + 7] = a4, a5, a6, a7


@njit(cache=True, nogil=True, fastmath=FASTMATH, error_model="numpy")
def _normalise(descriptor: NDArray) -> None:
    """To length 1, no number above 0.2, to length 1 again; zeros stay zeros."""
    total = np.float32(0)
    for i in range(_LENGTH):
        total += descriptor[i] * descriptor[i]
    if total == 0:
        return
    most = np.float32(_CLIP) * np.sqrt(total)
    total = np.float32(0)
    for i in range(_LENGTH):
        descriptor[i] = min(descriptor[i], most)
        total += descriptor[i] * descriptor[i]
    scale = np.float32(1) / np.sqrt(total)
    for i in range(_LENGTH):
        descriptor[i] *= scale
