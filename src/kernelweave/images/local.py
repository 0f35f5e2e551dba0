"""What to measure around a place, besides SIFT: histograms of hues, patterns and gradients, self-similarity, colours.

Pixels belong to the square of a place when their centres are inside it.
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
from .checks import check_positive, check_whole
from .histograms import binary_patterns, uniform_bins
from .places import check_places, label_of
from .sift import NOISE, eighths


@dataclass(frozen=True)
class RobustHue(What):
    """Histogram of hues, each weighted by its saturation because the hue of a greyish pixel means little.

    Hue and saturation are direction and length in the plane of the two opponent colours ``(R - G) / sqrt(2)`` and
    ``(R + G - 2 B) / sqrt(6)`` (van de Weijer and Schmid). The histogram sums to 1; that of a grey square is zero.

    Parameters
    ----------
    bins : int

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.images import Picture, RobustHue
    >>> blue = Picture(np.full((9, 9, 3), (0, 0, 200), dtype=np.uint8))
    >>> np.flatnonzero(RobustHue(4).describe(blue, np.array([[4, 4, 3]], dtype=np.float32))[0])
    array([2])
    """

    bins: int = 36

    def __post_init__(self) -> None:
        check_whole(self, "bins")

    @property
    def label(self) -> str:
        return label_of(self, "hue")

    @property
    def length(self) -> int:
        return self.bins

    def describe(self, picture: Picture, places: Array) -> Array:
        turns, saturations = picture.once("hues", lambda: _hues(picture))
        return _histograms(turns * np.float32(self.bins), saturations, check_places(picture, places), self.bins)


@dataclass(frozen=True)
class LocalBinaryPatterns(What):
    """Histogram of the uniform, rotation-invariant local binary patterns of eight points at distance 1.

    Bins 0 to 8 count how many of the points are not darker than the pixel, where these are next to each other; bin 9
    is for all other patterns. The histogram sums to 1. A flat square has a pattern as well: bin 8 is 1.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.images import LocalBinaryPatterns, Picture
    >>> flat = Picture(np.full((9, 9, 3), 50, dtype=np.uint8))
    >>> np.flatnonzero(LocalBinaryPatterns().describe(flat, np.array([[4, 4, 3]], dtype=np.float32))[0])
    array([8])
    """

    @property
    def label(self) -> str:
        return "lbp"

    @property
    def length(self) -> int:
        return 10

    def describe(self, picture: Picture, places: Array) -> Array:
        codes = picture.once("patterns and border", lambda: _patterns(picture))
        return _histograms(codes, np.ones_like(codes), check_places(picture, places), self.length)


@dataclass(frozen=True)
class Gradients(What):
    """Histogram of gradient directions, weighted by the magnitude and shared between the two nearest bins.

    The histogram sums to 1; that of a flat square is zero. Directions count from brighter to the right (0) over
    brighter upwards (a quarter of a turn).

    Parameters
    ----------
    bins : int
    signed : bool
        Bins for a full turn (oriented gradients), or for half a turn: a dark line on bright is as a bright one on dark.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.images import Gradients, Picture
    >>> ramp = np.repeat(np.arange(0, 90, 10, dtype=np.uint8)[None, :, None], 9, axis=0).repeat(3, axis=2)
    >>> np.flatnonzero(Gradients(4).describe(Picture(ramp), np.array([[4, 4, 3]], dtype=np.float32))[0])
    array([0])
    """

    bins: int = 40
    signed: bool = True

    def __post_init__(self) -> None:
        check_whole(self, "bins")
        if not isinstance(self.signed, (bool, np.bool_)):
            raise ValueError(f"signed of Gradients is True or False, got {self.signed!r}")

    @property
    def label(self) -> str:
        return label_of(self, "gradients")

    @property
    def length(self) -> int:
        return self.bins

    def describe(self, picture: Picture, places: Array) -> Array:
        turns, magnitudes = picture.once("gradients and border", lambda: _gradients(picture))
        share = turns if self.signed else turns * np.float32(2) % np.float32(1)
        return _histograms(share * np.float32(self.bins), magnitudes, check_places(picture, places), self.bins)


@dataclass(frozen=True)
class SelfSimilarity(What):
    """How much the middle of a square looks like what surrounds it (Shechtman and Irani), in log-polar bins.

    The small patch in the middle is compared with all patches inside the circle by their sum of squared differences
    ``d``; the similarity is ``exp(-d / s)`` with s the greatest difference from the patches one pixel away, or from
    noise. A bin keeps the greatest similarity in it; all are stretched to 0 to 1. Zero where all are the same, and in
    bins too small to contain a pixel.

    Parameters
    ----------
    angles, rings : int
        Bins around and outwards, the rings on a logarithmic scale.
    patch : int
        Side of the patch in pixels, odd.
    noise : float
        Grey levels by which pixels that show the same differ.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.images import Picture, SelfSimilarity
    >>> picture = Picture(np.random.default_rng(0).integers(0, 256, (50, 50, 3), dtype=np.uint8))
    >>> SelfSimilarity().describe(picture, np.array([[25, 25, 20]], dtype=np.float32)).shape
    (1, 80)
    """

    angles: int = 20
    rings: int = 4
    patch: int = 5
    noise: float = 10.0

    def __post_init__(self) -> None:
        for name in ("angles", "rings", "patch"):
            check_whole(self, name)
        check_positive(self, "noise")
        if self.patch % 2 == 0:
            raise ValueError(f"the patch of SelfSimilarity has an odd side, so that it has a middle; got {self.patch}")

    @property
    def label(self) -> str:
        return label_of(self, "self-similarity")

    @property
    def length(self) -> int:
        return self.angles * self.rings

    def describe(self, picture: Picture, places: Array) -> Array:
        places = check_places(picture, places)
        out = np.empty((len(places), self.length), dtype=np.float32)
        reaches = np.maximum(1, places[:, 2].astype(np.int64) - self.patch // 2)
        same = float((self.patch * self.noise) ** 2)
        for reach in np.unique(reaches):
            region = np.empty((2 * reach + self.patch,) * 2, dtype=np.float32)
            distances = np.empty((2 * reach + 1,) * 2, dtype=np.float32)
            chosen = np.flatnonzero(reaches == reach)
            _self_similarities(picture.grey, places, chosen, self._bins(int(reach)), same, region, distances, out)
        return out

    def _bins(self, reach: int) -> NDArray[np.int64]:
        """The bin of every offset from the middle, -1 for the middle itself and outside the circle."""
        dy, dx = np.mgrid[-reach : reach + 1, -reach : reach + 1]
        distance = np.hypot(dx, dy)
        used = (distance > 0) & (distance <= reach)
        ring = np.log(np.maximum(distance, 1)) / math.log(reach + 1) * self.rings
        # Rounded, so that an angle on the border of two bins does not hang on the last digit of the arc tangent.
        angle = np.floor(np.round(np.arctan2(-dy, dx) / (2 * np.pi) * self.angles, 9)).astype(np.int64) % self.angles
        return np.where(used, ring.astype(np.int64) * self.angles + angle, -1)


@dataclass(frozen=True)
class ColourPatch(What):
    """The square itself, reduced or enlarged to a few pixels by the mean over their areas: channel by channel, 0 to 1.

    Parameters
    ----------
    side : int
        Pixels along a side.
    colour : str
        "grey" or a colour space.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.images import ColourPatch, Picture
    >>> picture = Picture(np.full((9, 9, 3), 255, dtype=np.uint8))
    >>> ColourPatch(2).describe(picture, np.array([[4, 4, 3]], dtype=np.float32)).mean()
    np.float32(1.0)
    """

    side: int = 8
    colour: str = "rgb"

    def __post_init__(self) -> None:
        check_whole(self, "side")
        if self.colour not in COLOURS:
            raise ValueError(f"the colour of a ColourPatch is one of {list(COLOURS)}, got {self.colour!r}")

    @property
    def label(self) -> str:
        return label_of(self, "patch")

    @property
    def length(self) -> int:
        return self.side**2 * (1 if self.colour == "grey" else 3)

    def describe(self, picture: Picture, places: Array) -> Array:
        channels = picture.channels(self.colour)
        out = np.empty((len(places), len(channels), self.side, self.side), dtype=np.float32)
        _mean_areas(channels, check_places(picture, places), out)
        return out.reshape(len(places), self.length)


def _hues(picture: Picture) -> tuple[Array, Array]:
    """Hue in turns and saturation of all pixels, and of one around the picture."""
    red, green, blue = _with_border(picture.channels("rgb"), 1)
    red_green, yellow_blue = (
        (red - green) / np.float32(math.sqrt(2)),
        (red + green - 2 * blue) / np.float32(math.sqrt(6)),
    )
    return _polar(yellow_blue, red_green)


def _patterns(picture: Picture) -> Array:
    """Bins of the binary patterns of all pixels, and of one around the picture."""
    around = _with_border(picture.grey[None], 2)[0]
    return uniform_bins().astype(np.float32)[binary_patterns(around)[1:-1, 1:-1]]


def _gradients(picture: Picture) -> tuple[Array, Array]:
    """Direction in turns and magnitude of the gradients of all pixels, and of one around the picture."""
    around = _with_border(picture.grey[None], 2)[0]
    return _polar(around[1:-1, 2:] - around[1:-1, :-2], around[:-2, 1:-1] - around[2:, 1:-1])


def _with_border(channels: Array, width: int) -> list[Array]:
    """Channels with their border repeated.

    Further out nothing changes any more: one pixel more than is looked at from a pixel stands for all that follow.
    """
    return [
        np.asarray(cv2.copyMakeBorder(channel, width, width, width, width, cv2.BORDER_REPLICATE), dtype=np.float32)
        for channel in channels
    ]


def _polar(x: Array, y: Array) -> tuple[Array, Array]:
    turns, lengths = np.empty_like(x), np.empty_like(x)
    _to_polar(np.ascontiguousarray(x), np.ascontiguousarray(y), turns, lengths)
    return turns, lengths


def _histograms(positions: Array, weights: Array, places: Array, bins: int) -> Array:
    """Histograms of squares that sum to 1 or are zero; the maps reach one pixel beyond the picture."""
    out = np.zeros((len(places), bins), dtype=np.float32)
    _add_up(positions, weights, places, out)
    total = out.sum(axis=1, keepdims=True)
    return np.divide(out, total, out=out, where=total > 0)


@njit(cache=True, nogil=True, fastmath=FASTMATH, error_model="numpy")
def _to_polar(x: NDArray, y: NDArray, turns: NDArray, lengths: NDArray) -> None:
    for r in range(x.shape[0]):
        for c in range(x.shape[1]):
            length = np.sqrt(x[r, c] * x[r, c] + y[r, c] * y[r, c])
            lengths[r, c] = length if length > NOISE else np.float32(0)
            turns[r, c] = eighths(x[r, c], y[r, c]) / np.float32(8)


@njit(cache=True, nogil=True)
def _inside(centre: float, radius: float) -> tuple[int, int]:
    """First and last pixel whose centre is inside, along one side; the nearest if there is none."""
    first, last = math.floor(centre - radius) + 1, math.ceil(centre + radius) - 1
    if last < first:
        first = last = math.floor(centre + 0.5)
    return first, last


@njit(cache=True, nogil=True)
def _clamped(pixel: int, n: int) -> int:
    """The pixel of a side of n that stands for one inside or outside."""
    return min(max(pixel, 0), n - 1)


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _add_up(positions: NDArray, weights: NDArray, places: NDArray, out: NDArray) -> None:
    """Add every weight to the two bins next to its position, on a circle of bins."""
    height, width = positions.shape
    bins = out.shape[1]
    for p in range(len(places)):
        left, right = _inside(places[p, 0], places[p, 2])
        top, bottom = _inside(places[p, 1], places[p, 2])
        sums = out[p]
        for row in range(top + 1, bottom + 2):  # the maps begin one pixel before the picture
            r = _clamped(row, height)
            for column in range(left + 1, right + 2):
                c = _clamped(column, width)
                lower = int(positions[r, c])
                upper_share = weights[r, c] * (positions[r, c] - np.float32(lower))
                lower = lower if lower < bins else lower - bins  # a full turn, by rounding
                sums[lower] += weights[r, c] - upper_share
                sums[lower + 1 if lower + 1 < bins else 0] += upper_share


@njit(cache=True, nogil=True, fastmath=FASTMATH, error_model="numpy")
def _self_similarities(
    grey: NDArray,
    places: NDArray,
    chosen: NDArray,
    bins: NDArray,
    same: float,
    region: NDArray,
    distances: NDArray,
    out: NDArray,
) -> None:
    """Descriptors of the chosen places, which all reach equally far."""
    height, width = grey.shape
    for p in chosen:
        left = math.floor(places[p, 0] + 0.5) - len(region) // 2
        top = math.floor(places[p, 1] + 0.5) - len(region) // 2
        for r in range(len(region)):
            for c in range(len(region)):
                region[r, c] = grey[_clamped(top + r, height), _clamped(left + c, width)]
        _compare(region, distances)
        reach = len(distances) // 2
        scale = same
        for r in range(reach - 1, reach + 2):
            for c in range(reach - 1, reach + 2):
                scale = max(scale, distances[r, c])
        _keep_nearest(distances, bins, out[p])
        _stretch(scale, out[p])


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _compare(region: NDArray, distances: NDArray) -> None:
    """Sums of squared differences between the patch in the middle of the region and the patch at each offset."""
    n = len(distances)
    patch = len(region) - n + 1
    for r in range(n):
        sums = distances[r]
        sums[:] = 0
        for i in range(patch):
            for j in range(patch):
                centre = region[n // 2 + i, n // 2 + j]
                there = region[r + i, j : j + n]
                for c in range(n):
                    difference = there[c] - centre
                    sums[c] += difference * difference


@njit(cache=True, nogil=True)
def _keep_nearest(distances: NDArray, bins: NDArray, out: NDArray) -> None:
    """The smallest distance in each bin, infinite in an empty one."""
    out[:] = np.inf
    for r in range(len(distances)):
        for c in range(len(distances)):
            if bins[r, c] >= 0:
                out[bins[r, c]] = min(out[bins[r, c]], distances[r, c])


@njit(cache=True, nogil=True)
def _stretch(scale: float, out: NDArray) -> None:
    """From distances to similarities between 0 (the least, and empty bins) and 1 (the greatest)."""
    least, greatest = np.float32(1), np.float32(0)
    for i in range(len(out)):
        empty = out[i] == np.inf
        out[i] = -1 if empty else math.exp(-out[i] / scale)
        if not empty:
            least, greatest = min(least, out[i]), max(greatest, out[i])
    span = greatest - least
    for i in range(len(out)):
        out[i] = (out[i] - least) / span if span > 1e-6 and out[i] >= 0 else 0


@njit(cache=True, nogil=True, fastmath=FASTMATH, error_model="numpy")
def _mean_areas(channels: NDArray, places: NDArray, out: NDArray) -> None:
    """Means over the parts of squares, 0 to 1. A pixel is an area of side 1 around its centre."""
    side = out.shape[2]
    for p in range(len(places)):
        cell = 2 * places[p, 2] / np.float64(side)
        for channel in range(len(channels)):
            for i in range(side):
                top = places[p, 1] - places[p, 2] + i * cell + 0.5
                for j in range(side):
                    left = places[p, 0] - places[p, 2] + j * cell + 0.5
                    out[p, channel, i, j] = _mean_area(channels[channel], left, top, cell) / 255


@njit(cache=True, nogil=True, fastmath=FASTMATH, error_model="numpy")
def _mean_area(image: NDArray, left: float, top: float, side: float) -> float:
    """Mean over a square whose coordinates count from the corner of the first pixel."""
    height, width = image.shape
    total = 0.0
    for r in range(math.floor(top), math.ceil(top + side)):
        line = image[_clamped(r, height)]
        tall = min(top + side, r + 1) - max(top, r)
        for c in range(math.floor(left), math.ceil(left + side)):
            total += tall * (min(left + side, c + 1) - max(left, c)) * line[_clamped(c, width)]
    return total / (side * side)
