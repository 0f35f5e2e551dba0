"""Histograms over all pixels of a picture or of its cells: colours, local binary patterns, orientations of edges.

A layout may join several grids by "+": "1x1+2x2+4x4" is one view with the cells of all three grids.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cache

import cv2
import numpy as np
from numba import njit
from numpy.typing import NDArray

from .._config import FASTMATH
from .base import Array, Feature, Learned, Picture
from .checks import check_choice, check_whole
from .layouts import check_layouts, grids, pixel_cells

#: Cells of the local histograms whose largest values "max" pooling takes.
LOCAL_CELLS = "8x8"
#: Blur before edges are found, in pixels.
EDGE_BLUR = 1.0
#: Share of pixels with less gradient than an edge needs to start, and the share of that gradient it needs to go on.
EDGE_SHARE, EDGE_GOES_ON = 0.7, 0.4
#: Height of the lowest step that starts an edge where most of the picture is flat, in grey levels.
LOWEST_STEP = 5.0
#: A 3x3 Sobel filter gives a step of one grey level the value 4; edges are found in whole numbers, of 1/16 of a level.
SOBEL, WHOLE_NUMBERS = 4.0, 16.0
#: Added to the squared norm of a block of HOG, and the largest share one number may have of the norm.
HOG_SMALL, HOG_CLIP = 1e-10, 0.2


class WholeFeature(Feature):
    """A feature with one view. Subclasses are frozen dataclasses with a field `name`."""

    name: str

    @property
    @abstractmethod
    def stem(self) -> str:
        """Name of the view when no other is given."""

    @property
    def views(self) -> tuple[str, ...]:
        return (self.name or self.stem,)

    def describe(self, picture: Picture, learned: Learned) -> list[Array]:
        return [np.asarray(self.vector(picture), dtype=np.float32)]

    @abstractmethod
    def vector(self, picture: Picture) -> NDArray:
        """The numbers of the only view."""


class CellFeature(Feature):
    """A feature of every cell of a layout, one view a layout. Subclasses are frozen dataclasses with fields `layouts`
    and `name`."""

    layouts: tuple[str, ...]
    name: str

    @property
    @abstractmethod
    def stem(self) -> str:
        """What the names of the views begin with when no name is given."""

    @property
    def views(self) -> tuple[str, ...]:
        return tuple(f"{self.name or self.stem}/{layout}" for layout in self.layouts)

    def describe(self, picture: Picture, learned: Learned) -> list[Array]:
        return [
            np.concatenate([self.cells(picture, part).ravel() for part in grids(layout)]).astype(np.float32)
            for layout in self.layouts
        ]

    @abstractmethod
    def cells(self, picture: Picture, layout: str) -> NDArray:
        """The numbers of every cell of a grid: (n_cells, length)."""


class HistogramFeature(CellFeature):
    """Non-negative numbers of every cell, with the sum 1 over all cells of a layout (or 0 when there is no content)."""

    def describe(self, picture: Picture, learned: Learned) -> list[Array]:
        return [vector / (vector.sum() or 1.0) for vector in super().describe(picture, learned)]


@dataclass(frozen=True)
class ColourHistogram(HistogramFeature):
    """Joint histogram of the three channels of a colour space, ``bins ** 3`` numbers a cell.

    Parameters
    ----------
    colour : {"rgb", "lab", "hsv"}
    bins : int
        Bins of every channel, 2 to 32. The usual recipe is 16 for the whole picture and 12 for three strips.
    layouts : tuple of str
        One view for each.
    pooling : {"mean", "max"}
        "mean" counts pixels. "max" makes a histogram of every part of a fixed 8x8 grid of the cell and takes the
        largest value of each bin, so that a small thing of one colour counts as much as a background.
    name : str
        Replaces the beginning of the names of the views.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.images import ColourHistogram, Picture
    >>> feature = ColourHistogram("rgb", bins=2)
    >>> feature.views
    ('colour-rgb/1x1',)
    >>> feature.describe(Picture(np.full((4, 6, 3), (255, 0, 0), dtype=np.uint8)), {})
    [array([0., 0., 0., 0., 1., 0., 0., 0.], dtype=float32)]
    """

    colour: str = "rgb"
    bins: int = 16
    layouts: tuple[str, ...] = ("1x1",)
    pooling: str = "mean"
    name: str = ""

    def __post_init__(self) -> None:
        check_choice(self, "colour", ("rgb", "lab", "hsv"))
        check_choice(self, "pooling", ("mean", "max"))
        check_whole(self, "bins", 2, 32)
        check_layouts(self)

    @property
    def stem(self) -> str:
        return f"colour-{self.colour}" + ("-max" if self.pooling == "max" else "")

    def cells(self, picture: Picture, layout: str) -> NDArray:
        codes = picture.once(("colour codes", self.colour, self.bins), lambda: self._codes(picture))
        if self.pooling == "mean":
            return cell_counts(codes, self.bins**3, layout)
        return np.stack([self._largest(codes[cell]) for cell in pixel_cells(layout, *codes.shape)])

    def _codes(self, picture: Picture) -> NDArray[np.uint16]:
        codes = np.empty((picture.height, picture.width), np.uint16)
        _joint_bins(picture.channels(self.colour), self.bins, codes)
        return codes

    def _largest(self, codes: NDArray) -> NDArray:
        counts = cell_counts(codes, self.bins**3, LOCAL_CELLS)
        return (counts / counts.sum(axis=1, keepdims=True)).max(axis=0)


@dataclass(frozen=True)
class LBPHistogram(HistogramFeature):
    """Histogram of uniform, rotation-invariant local binary patterns LBP(8, 1): 10 numbers a cell.

    Eight points on a circle of radius 1 around a pixel, diagonal ones interpolated, are compared with it. A pattern
    with at most two changes around the circle counts in the bin of its number of points that are not darker (0 to 8),
    all other patterns in the last bin. Points outside the picture count as black.

    Parameters
    ----------
    layouts : tuple of str
        One view for each.
    name : str
        Replaces the beginning of the names of the views.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.images import LBPHistogram, Picture
    >>> feature = LBPHistogram(layouts=("1x1", "1x1+2x2"))
    >>> feature.views
    ('lbp/1x1', 'lbp/1x1+2x2')
    >>> [len(vector) for vector in feature.describe(Picture(np.zeros((4, 6, 3), dtype=np.uint8)), {})]
    [10, 50]
    """

    layouts: tuple[str, ...] = ("1x1",)
    name: str = ""

    def __post_init__(self) -> None:
        check_layouts(self)

    @property
    def stem(self) -> str:
        return "lbp"

    def cells(self, picture: Picture, layout: str) -> NDArray:
        patterns = picture.once("binary patterns", lambda: binary_patterns(picture.grey))
        counts = cell_counts(patterns, 256, layout)
        return np.stack([np.bincount(uniform_bins(), weights=row, minlength=10) for row in counts])


@dataclass(frozen=True)
class PHOG(HistogramFeature):
    """Histogram of the gradient orientations of edges, weighted by the gradient: `bins` numbers a cell.

    Edges are Canny's, with thresholds that follow the picture. Bins are centred at multiples of their width, so that
    upright and level edges lie within a bin, not between two. With the layouts of a pyramid these are the features
    known as PHOG.

    Parameters
    ----------
    bins : int
        The usual recipe is 40 for signed and 20 for unsigned orientations.
    signed : bool
        Over 360 degrees, or over 180 degrees where dark on bright and bright on dark are the same.
    layouts : tuple of str
        One view for each.
    name : str
        Replaces the beginning of the names of the views.

    Examples
    --------
    >>> from kernelweave.images import PHOG
    >>> from kernelweave.images.layouts import pyramid
    >>> PHOG(layouts=pyramid(3)).views
    ('phog360/1x1', 'phog360/2x2', 'phog360/4x4')
    >>> PHOG(20, signed=False).views
    ('phog180/1x1',)
    """

    bins: int = 40
    signed: bool = True
    layouts: tuple[str, ...] = ("1x1",)
    name: str = ""

    def __post_init__(self) -> None:
        check_whole(self, "bins", 2, 180)
        check_layouts(self)

    @property
    def stem(self) -> str:
        return "phog360" if self.signed else "phog180"

    def cells(self, picture: Picture, layout: str) -> NDArray:
        numbers, strength = picture.once(("orientations", self.bins, self.signed), lambda: self._orientations(picture))
        parts = pixel_cells(layout, picture.height, picture.width)
        sums = np.zeros((len(parts), self.bins))
        for row, cell in zip(sums, parts, strict=True):
            _add_where(numbers[cell], strength[cell], row)
        return sums

    def _orientations(self, picture: Picture) -> tuple[NDArray[np.int16], Array]:
        """The bin of every pixel on an edge, -1 elsewhere, and its gradient."""
        dx, dy, edges = picture.once("edges", lambda: edge_gradients(picture.grey))
        numbers, strength = np.full(edges.shape, -1, np.int16), np.zeros(edges.shape, np.float32)
        turn = 2 * np.pi if self.signed else np.pi
        _orientation_bins(dx, dy, edges, self.bins, turn, numbers, strength)
        return numbers, strength


@dataclass(frozen=True)
class HOG(WholeFeature):
    """Histograms of oriented gradients (Dalal and Triggs) of the grey picture brought to a square.

    Parameters
    ----------
    cell : int
        Side of a cell in pixels.
    block : int
        Cells along the side of a block. Blocks overlap; each is normalised by itself ("L2-Hys": Euclidean norm 1,
        numbers cut at 0.2, norm 1 again).
    bins : int
        Orientations over 180 degrees.
    side : int
        Side of the square in pixels.
    name : str
        Replaces the name of the view.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.images import HOG, Picture
    >>> feature = HOG()
    >>> feature.views
    ('hog',)
    >>> feature.describe(Picture(np.zeros((30, 40, 3), dtype=np.uint8)), {})[0].shape
    (1764,)
    """

    cell: int = 8
    block: int = 2
    bins: int = 9
    side: int = 64
    name: str = ""

    def __post_init__(self) -> None:
        check_whole(self, "bins", 2, 180)
        check_whole(self, "side", 8, 1024)
        check_whole(self, "cell", 2, self.side)
        check_whole(self, "block", 1, self.side // self.cell)

    @property
    def stem(self) -> str:
        return "hog"

    def vector(self, picture: Picture) -> NDArray:
        return hog(square(picture, self.side), self.cell, self.block, self.bins)


def square(picture: Picture, side: int) -> Array:
    """The grey picture brought to (side, side)."""
    return picture.once(("square", side), lambda: resized(picture.grey, side, side))


def resized(grey: NDArray, height: int, width: int) -> NDArray:
    """A grey picture in another size: averaged where it shrinks, interpolated where it grows."""
    shrinks = height * width < grey.size
    return cv2.resize(grey, (width, height), interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR)


def cell_counts(codes: NDArray, n_codes: int, layout: str) -> NDArray[np.int64]:
    """How often every code is in every cell: (n_cells, n_codes), from whole numbers (height, width)."""
    parts = pixel_cells(layout, *codes.shape)
    counts = np.zeros((len(parts), n_codes), np.int64)
    for row, cell in zip(counts, parts, strict=True):
        _count(codes[cell], row)
    return counts


def binary_patterns(grey: Array) -> NDArray[np.uint8]:
    """Which of the eight points around a pixel are not darker than it, one a bit: (height, width).

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.images.histograms import binary_patterns
    >>> binary_patterns(np.array([[0, 0, 0], [0, 5, 9], [0, 0, 0]], dtype=np.float32))[1, 1]
    np.uint8(1)
    """
    padded = cv2.copyMakeBorder(grey, 1, 1, 1, 1, cv2.BORDER_CONSTANT, value=0.0)
    patterns = np.empty(grey.shape, np.uint8)
    _compare_around(padded, np.float32(np.sqrt(2.0) - 1.0), patterns)
    return patterns


@cache
def uniform_bins() -> NDArray[np.intp]:
    """The bin 0 to 9 of every binary pattern 0 to 255."""
    bits = np.arange(256)[:, None] >> np.arange(8) & 1
    changes = (bits != np.roll(bits, 1, axis=1)).sum(axis=1)
    bins = np.where(changes <= 2, bits.sum(axis=1), 9)
    bins.flags.writeable = False  # it is kept and handed out again
    return bins


def edge_gradients(grey: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """Gradients along x and along y, in some unit, and Canny's edges (not 0 on an edge): three times (height, width).

    A pixel with more gradient than 70 % of the pixels starts an edge; where most of the picture is flat, a step of five
    grey levels does.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.images.histograms import edge_gradients
    >>> step = np.repeat([[0.0, 0.0, 0.0, 90.0, 90.0, 90.0]], 6, axis=0).astype(np.float32)
    >>> np.flatnonzero(edge_gradients(step)[2][3])
    array([2])
    """
    smooth = cv2.GaussianBlur(grey, (0, 0), EDGE_BLUR)
    dx, dy = (
        np.rint(cv2.Sobel(smooth, cv2.CV_32F, *order, scale=WHOLE_NUMBERS, borderType=cv2.BORDER_REPLICATE))
        for order in ((1, 0), (0, 1))
    )
    some = np.hypot(dx[::2, ::2], dy[::2, ::2])  # a quarter of the pixels tells the share
    start = max(float(np.quantile(some, EDGE_SHARE)), LOWEST_STEP * SOBEL * WHOLE_NUMBERS)
    dx, dy = dx.astype(np.int16), dy.astype(np.int16)
    return dx, dy, cv2.Canny(dx, dy, EDGE_GOES_ON * start, start, L2gradient=True)


def hog(grey: Array, cell: int = 8, block: int = 2, bins: int = 9) -> Array:
    """Histograms of oriented gradients of a whole grey picture: all blocks row by row, in a block all cells row by row.

    Parameters
    ----------
    grey : array of shape (height, width)
        Pixels right and below of the last whole cell are left out.
    cell, block, bins : int
        As in `HOG`.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.images.histograms import hog
    >>> hog(np.zeros((16, 24), dtype=np.float32)).shape
    (72,)
    """
    rows, columns = grey.shape[0] // cell, grey.shape[1] // cell
    if rows < block or columns < block:
        raise ValueError(f"blocks of {block} cells of {cell} pixels need a larger picture than {grey.shape}")
    angles = np.pi * np.arange(1, bins) / bins
    borders = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    sums = np.zeros((rows, columns, bins), np.float32)
    scratch, which = np.empty((3, grey.shape[1]), np.float32), np.empty(grey.shape[1], np.int32)
    _add_gradients(np.ascontiguousarray(grey, dtype=np.float32), cell, borders, scratch, which, sums)
    sums /= cell * cell
    out = np.empty((rows - block + 1, columns - block + 1, block, block, bins), np.float32)
    _normalise_blocks(sums, np.float32(HOG_SMALL), np.float32(HOG_CLIP), out)
    return out.ravel()


@njit(cache=True, nogil=True)
def _count(codes, counts):
    for r in range(codes.shape[0]):
        for c in range(codes.shape[1]):
            counts[codes[r, c]] += 1


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _joint_bins(channels, bins, codes):
    scale = np.float32(bins / 256.0)
    for r in range(codes.shape[0]):
        first, second, third = channels[0, r], channels[1, r], channels[2, r]
        for c in range(codes.shape[1]):
            joint = (np.int32(first[c] * scale) * bins + np.int32(second[c] * scale)) * bins + np.int32(
                third[c] * scale
            )
            codes[r, c] = joint


@njit(cache=True, nogil=True)  # no re-association: differences of equal numbers must stay exactly 0
def _compare_around(padded, share, patterns):
    # A diagonal point is the mix of four pixels: (1 - s)^2 of the centre, s (1 - s) of two neighbours, s^2 of the
    # corner, with s = sqrt(1/2). Without the centre and divided by s^2: corner + (sqrt(2) - 1) (one + other).
    for r in range(patterns.shape[0]):
        above, here, below, out = padded[r], padded[r + 1], padded[r + 2], patterns[r]
        for c in range(patterns.shape[1]):
            centre = here[c + 1]
            east, north = here[c + 2] - centre, above[c + 1] - centre
            west, south = here[c] - centre, below[c + 1] - centre
            out[c] = (
                np.uint8(east >= 0)
                | np.uint8((above[c + 2] - centre) + share * (north + east) >= 0) << np.uint8(1)
                | np.uint8(north >= 0) << np.uint8(2)
                | np.uint8((above[c] - centre) + share * (north + west) >= 0) << np.uint8(3)
                | np.uint8(west >= 0) << np.uint8(4)
                | np.uint8((below[c] - centre) + share * (south + west) >= 0) << np.uint8(5)
                | np.uint8(south >= 0) << np.uint8(6)
                | np.uint8((below[c + 2] - centre) + share * (south + east) >= 0) << np.uint8(7)
            )


@njit(cache=True, nogil=True)
def _orientation_bins(dx, dy, edges, bins, turn, numbers, strength):
    for r in range(edges.shape[0]):
        for c in range(edges.shape[1]):
            if edges[r, c]:
                x, y = np.float64(dx[r, c]), np.float64(dy[r, c])
                numbers[r, c] = np.int64(np.floor(np.arctan2(y, x) * (bins / turn) + 0.5)) % bins
                strength[r, c] = np.sqrt(x * x + y * y)


@njit(cache=True, nogil=True)
def _add_where(numbers, strength, sums):
    for r in range(numbers.shape[0]):
        for c in range(numbers.shape[1]):
            if numbers[r, c] >= 0:
                sums[numbers[r, c]] += strength[r, c]


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _add_gradients(grey, cell, borders, scratch, which, sums):
    # The bin of an orientation is the number of borders between bins that it lies beyond: no arc tangent is needed.
    height, width = grey.shape
    x, y, strength = scratch[0], scratch[1], scratch[2]
    for r in range(sums.shape[0] * cell):
        here = grey[r]
        x[0] = x[width - 1] = 0  # no gradient across the border of the picture
        for c in range(1, width - 1):
            x[c] = here[c + 1] - here[c - 1]
        if r == 0 or r == height - 1:
            y[:] = 0
        else:
            above, below = grey[r - 1], grey[r + 1]
            for c in range(width):
                y[c] = below[c] - above[c]
        for c in range(width):
            strength[c] = np.sqrt(x[c] * x[c] + y[c] * y[c])
            turned = y[c] < 0 or (y[c] == 0 and x[c] < 0)  # orientations have no sign: 0 to 180 degrees
            x[c] = -x[c] if turned else x[c]
            y[c] = -y[c] if turned else y[c]
            which[c] = 0
        for k in range(borders.shape[0]):
            cosine, sine = borders[k, 0], borders[k, 1]
            for c in range(width):
                which[c] += np.int32(cosine * y[c] >= sine * x[c])  # exact on a diagonal; a difference would not be
        line = sums[r // cell]
        for j in range(line.shape[0]):
            for c in range(j * cell, (j + 1) * cell):
                line[j, which[c]] += strength[c]


@njit(cache=True, nogil=True, fastmath=FASTMATH, error_model="numpy")
def _normalise_blocks(sums, small, most, out):
    side, bins = out.shape[2], out.shape[4]
    for r in range(out.shape[0]):
        for c in range(out.shape[1]):
            numbers = out[r, c]
            total = small
            for i in range(side):
                for j in range(side):
                    for k in range(bins):
                        numbers[i, j, k] = sums[r + i, c + j, k]
                        total += numbers[i, j, k] ** 2
            scale, total = 1 / np.sqrt(total), small
            for i in range(side):
                for j in range(side):
                    for k in range(bins):
                        numbers[i, j, k] = min(numbers[i, j, k] * scale, most)
                        total += numbers[i, j, k] ** 2
            scale = 1 / np.sqrt(total)
            for i in range(side):
                for j in range(side):
                    for k in range(bins):
                        numbers[i, j, k] *= scale
