"""Features of the whole picture that are no histograms: GIST, a model of the first visual area, covariances of regions,
and geometric blur.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import cv2
import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy import fft

from .._config import FASTMATH
from ..kernels import Kernel, Laplacian, Repaired
from ..kernels.matching import Matching
from .base import Array, Picture
from .checks import check_choice, check_whole
from .histograms import CellFeature, WholeFeature, edge_gradients, resized, square
from .layouts import check_layouts, pixel_cells

#: Centre frequency of the finest filters of GIST in cycles a pixel, and the ratio from one scale to the next.
GIST_FREQUENCY, GIST_STEP = 0.3, 1.85
#: Cycles a picture below which brightness counts as illumination, and the contrast (of logarithms) that counts as none.
GIST_ILLUMINATION, GIST_CONTRAST = 4.0, 0.2
#: Frequencies of the V1-like filters in cycles a pixel, and the width of their envelope in pixels.
V1_FREQUENCIES, V1_ENVELOPE = (1 / 2, 1 / 3, 1 / 4, 1 / 6, 1 / 11, 1 / 18), 9.0
#: Pixels the V1-like filters see beyond the picture: half of the size at which they are cut.
V1_REACH = 21
#: Added to the diagonal of a covariance of features on scales of 0 to 1, so that flat regions have a logarithm.
COVARIANCE_RIDGE = 1e-5
#: Orientations of edges that geometric blur tells apart.
N_CHANNELS = 4


@dataclass(frozen=True)
class GIST(WholeFeature):
    """Energies of oriented band-pass filters at several scales, averaged over a coarse grid (Oliva and Torralba).

    The grey picture is brought to a square, its local contrast made even, and filtered in the Fourier domain. The
    usual recipe, four scales of eight orientations on 4x4 cells, gives 512 numbers, all non-negative: scale by scale,
    orientation by orientation, cell by cell.

    Parameters
    ----------
    orientations : tuple of int
        Orientations of every scale, fine to coarse.
    cells : int
        Rows and columns of the grid.
    side : int
        Side of the square in pixels.
    name : str
        Replaces the name of the view.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.images import GIST, Picture
    >>> feature = GIST()
    >>> feature.views
    ('gist',)
    >>> feature.describe(Picture(np.zeros((30, 40, 3), dtype=np.uint8)), {})[0].shape
    (512,)
    """

    orientations: tuple[int, ...] = (8, 8, 8, 8)
    cells: int = 4
    side: int = 128
    name: str = ""

    def __post_init__(self) -> None:
        numbers = self.orientations
        if not isinstance(numbers, tuple) or not 1 <= len(numbers) <= 8 or not all(n in range(1, 65) for n in numbers):
            raise ValueError(f"orientations of GIST is a tuple of 1 to 8 whole numbers from 1 to 64, got {numbers!r}")
        check_whole(self, "side", 32, 1024)
        check_whole(self, "cells", 1, 16)

    @property
    def stem(self) -> str:
        return "gist"

    def vector(self, picture: Picture) -> NDArray:
        margin = self.side // 8
        even = _even_contrast(_mirrored(np.log1p(square(picture, self.side)), margin))
        spectrum = fft.fft2(even)
        inside = slice(margin, margin + self.side)
        energies = [
            _grid_means(np.abs(fft.ifft2(spectrum * gabor))[inside, inside], self.cells)
            for gabor in gist_filters(self.orientations, len(even))
        ]
        return np.concatenate(energies)


@dataclass(frozen=True)
class V1Like(WholeFeature):
    """Responses of a population of Gabor filters, normalised as in the first visual area (after V1S of Pinto et al.).

    Grey picture in a square; every pixel less the mean of its 3x3 neighbourhood, divided by the norm of that when it is
    above 1; 96 Gabor filters (6 frequencies, 16 orientations); responses cut to the range 0 to 1; the same
    normalisation over 3x3 pixels and all filters; means over a grid. What differs from the published V1S+: the picture
    becomes a square of 100 pixels (there, its longer side 150), a grid of 6x6 cells (there, 30x30 samples, reduced
    by principal components learned from training pictures), and no colour histograms or raw pixels are added.

    Parameters
    ----------
    orientations : int
        Orientations over 180 degrees, of each of the six frequencies.
    cells : int
        Rows and columns of the grid; the length is ``6 * orientations * cells ** 2``.
    side : int
        Side of the square in pixels.
    name : str
        Replaces the name of the view.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.images import Picture, V1Like
    >>> feature = V1Like()
    >>> feature.views, feature.kernel
    (('v1',), Laplacian())
    >>> feature.describe(Picture(np.zeros((30, 40, 3), dtype=np.uint8)), {})[0].shape
    (3456,)
    """

    orientations: int = 16
    cells: int = 6
    side: int = 100
    name: str = ""

    def __post_init__(self) -> None:
        check_whole(self, "orientations", 1, 64)
        check_whole(self, "side", 32, 512)
        check_whole(self, "cells", 1, 32)

    @property
    def stem(self) -> str:
        return "v1"

    @property
    def kernel(self) -> Kernel:
        return Laplacian()

    def vector(self, picture: Picture) -> NDArray:
        seen = _mirrored(_even_neighbourhoods(square(picture, self.side)[None])[0], V1_REACH)
        size = fft.next_fast_len(len(seen), real=True)
        spectrum = fft.rfft2(seen, (size, size))
        responses = np.empty((len(V1_FREQUENCIES) * self.orientations, self.side, self.side), np.float32)
        for out, gabor in zip(responses, v1_filters(self.orientations, size), strict=True):
            # A filter that begins at the corner gives the response around a pixel V1_REACH later, in both directions.
            whole = fft.irfft2(spectrum * gabor, (size, size))
            np.clip(whole[2 * V1_REACH : len(seen), 2 * V1_REACH : len(seen)], 0.0, 1.0, out=out)
        return np.concatenate([_grid_means(response, self.cells) for response in _even_neighbourhoods(responses)])


@dataclass(frozen=True)
class RegionCovariance(CellFeature):
    """Covariance of simple features of the pixels of a cell, mapped to a flat space by the matrix logarithm.

    Of every pixel: place (x, y), brightness (or red, green, blue), and the sizes of the first and second derivatives
    along x and y. A covariance becomes the numbers on and above the diagonal of its logarithm, those above it times
    ``sqrt(2)``: the Euclidean distance of two vectors is the log-Euclidean distance of the covariances.

    Parameters
    ----------
    layouts : tuple of str
        One view for each; 28 numbers a cell for "grey", 45 for "rgb".
    colour : {"grey", "rgb"}
    name : str
        Replaces the beginning of the names of the views.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.images import Picture, RegionCovariance
    >>> feature = RegionCovariance(("1x1", "2x2"))
    >>> feature.views, feature.kernel
    (('covariance/1x1', 'covariance/2x2'), Laplacian())
    >>> [len(vector) for vector in feature.describe(Picture(np.zeros((30, 40, 3), dtype=np.uint8)), {})]
    [28, 112]
    """

    layouts: tuple[str, ...] = ("1x1",)
    colour: str = "grey"
    name: str = ""

    def __post_init__(self) -> None:
        check_choice(self, "colour", ("grey", "rgb"))
        check_layouts(self)

    @property
    def stem(self) -> str:
        return "covariance" + ("-rgb" if self.colour == "rgb" else "")

    @property
    def kernel(self) -> Kernel:
        return Laplacian()

    def cells(self, picture: Picture, layout: str) -> NDArray:
        pixels = picture.once(("pixel features", self.colour), lambda: pixel_features(picture, self.colour))
        return np.stack([log_vector(_covariance(pixels[:, *cell])) for cell in pixel_cells(layout, *pixels.shape[1:])])


@dataclass(frozen=True)
class GeometricBlur(WholeFeature):
    """Sparse oriented edges around points of a picture, blurred more the farther from the point (Berg and Malik).

    Around each of a fixed number of edge points, the four orientation channels of the edges are sampled at the point
    and on circles around it; at radius r they are blurred with a Gaussian of width ``blur * r + 1``. Descriptors have
    the norm 1 (or 0, far from any edge) and stand one after the other in one view, for the `Matching` kernel, which
    compares them as sets. That kernel is made positive by a shift of its diagonal: new pictures then are compared with
    the support vectors only, where clipped eigenvalues would need all training pictures.

    Parameters
    ----------
    points : int
        Points of every picture, spread over its edges. A picture with fewer edge pixels repeats them.
    radii : tuple of float
        Radii of the circles in pixels.
    angles : int
        Samples on a circle.
    blur : float
        Growth of the blur with the radius.
    side : int
        Longer side of the picture in pixels when this is done.
    name : str
        Replaces the name of the view.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.images import GeometricBlur, Picture
    >>> feature = GeometricBlur()
    >>> feature.views, feature.kernel.label
    (('geometric-blur',), 'Repaired(Matching(76), shift)')
    >>> feature.describe(Picture(np.zeros((30, 40, 3), dtype=np.uint8)), {})[0].shape
    (3800,)
    """

    points: int = 50
    radii: tuple[float, ...] = (6.0, 14.0, 28.0)
    angles: int = 6
    blur: float = 0.5
    side: int = 200
    name: str = ""

    def __post_init__(self) -> None:
        check_whole(self, "points", 1, 1000)
        check_whole(self, "angles", 1, 64)
        check_whole(self, "side", 32, 1024)
        radii = self.radii
        if not isinstance(radii, tuple) or not radii or not all(0 < radius <= self.side for radius in radii):
            raise ValueError(f"radii of GeometricBlur is a tuple of numbers above 0 and up to the side, got {radii!r}")
        if not 0 <= self.blur <= 2:
            raise ValueError(f"blur of GeometricBlur is a number from 0 to 2, got {self.blur!r}")

    @property
    def stem(self) -> str:
        return "geometric-blur"

    @property
    def length(self) -> int:
        """Numbers in one descriptor."""
        return N_CHANNELS * (1 + len(self.radii) * self.angles)

    @property
    def kernel(self) -> Kernel:
        return Repaired(Matching(self.length), "shift")

    def vector(self, picture: Picture) -> NDArray:
        scale = self.side / max(picture.height, picture.width)
        grey = resized(picture.grey, *(max(1, round(size * scale)) for size in picture.grey.shape))
        dx, dy, edges = edge_gradients(grey)
        chosen = spread_points(edges, self.points)
        return self._descriptors(oriented_edges(dx, dy, edges), chosen).ravel()

    def _descriptors(self, channels: Array, chosen: NDArray) -> NDArray:
        """Descriptors (n_points, length) around points (n_points, 2), given as row and column."""
        turns = 2 * np.pi * np.arange(self.angles) / self.angles
        circle = np.stack([np.sin(turns), np.cos(turns)], axis=1)
        samples = [_sampled(_blurred(channels, 1.0), chosen[:, None])]
        for radius in self.radii:
            places = chosen[:, None] + radius * circle
            samples.append(_sampled(_blurred(channels, self.blur * radius + 1.0), places))
        descriptors = np.concatenate(samples, axis=1).reshape(len(chosen), -1)
        norms = np.linalg.norm(descriptors, axis=1, keepdims=True)
        return np.divide(descriptors, norms, out=np.zeros_like(descriptors), where=norms > 0)


@cache
def gist_filters(orientations: tuple[int, ...], size: int) -> Array:
    """Transfer functions of the filters of GIST for pictures (size, size): (n_filters, size, size).

    Each passes one side of the Fourier plane only, so that the size of the complex response is the local energy.
    """
    across, down = np.meshgrid(fft.fftfreq(size), fft.fftfreq(size))
    radius, direction = np.hypot(across, down), np.arctan2(down, across)
    filters = []
    for scale, number in enumerate(orientations):
        band = np.exp(-3.5 * (radius / (GIST_FREQUENCY / GIST_STEP**scale) - 1.0) ** 2)
        for turn in np.pi * np.arange(number) / number:
            away = (direction - turn + np.pi) % (2 * np.pi) - np.pi
            filters.append(band * np.exp(-2.0 * np.pi * (number / 8.0) ** 2 * away**2))
    return _kept(np.stack(filters).astype(np.float32))


@cache
def v1_filters(orientations: int, size: int) -> NDArray[np.complex64]:
    """Fourier transforms of the V1-like filters, without mean and of norm 1: (n_filters, size, size // 2 + 1)."""
    steps = np.arange(-V1_REACH, V1_REACH + 1)
    x, y = np.meshgrid(steps, steps)
    envelope = np.exp(-(x**2 + y**2) / (2 * V1_ENVELOPE**2))
    filters = []
    for frequency in V1_FREQUENCIES:
        for turn in np.pi * np.arange(orientations) / orientations:
            gabor = envelope * np.cos(2 * np.pi * frequency * (x * np.cos(turn) + y * np.sin(turn)))
            gabor -= gabor.mean()
            filters.append(gabor / np.linalg.norm(gabor))
    return _kept(fft.rfft2(np.stack(filters).astype(np.float32), (size, size)))


@cache
def _illumination_filter(size: int) -> Array:
    across, down = np.meshgrid(fft.rfftfreq(size, 1 / size), fft.fftfreq(size, 1 / size))
    return _kept(np.exp(-np.log(2.0) * (across**2 + down**2) / GIST_ILLUMINATION**2).astype(np.float32))


@cache
def _averaging(cells: int, size: int) -> Array:
    """What takes the means over `cells` parts of a line of `size` numbers: (cells, size)."""
    means = np.zeros((cells, size), np.float32)
    for row, (part, _) in zip(means, pixel_cells(f"{cells}x1", size, 1), strict=True):
        row[part] = 1.0 / (part.stop - part.start)
    return _kept(means)


def _kept(array: NDArray) -> NDArray:
    array.flags.writeable = False  # it is kept and handed out again
    return array


def _mirrored(image: Array, margin: int) -> Array:
    return np.pad(image, margin, mode="symmetric")


def _grid_means(image: NDArray, cells: int) -> NDArray:
    """Means over the cells of a grid on a square, row by row: (cells ** 2,)."""
    averaging = _averaging(cells, len(image))
    return (averaging @ image @ averaging.T).ravel()


def _even_contrast(image: NDArray) -> NDArray:
    """A square picture less what varies slowly, divided by the local contrast of what is left."""

    def smooth(what: NDArray) -> NDArray:
        return fft.irfft2(fft.rfft2(what) * _illumination_filter(len(image)), image.shape)

    details = image - smooth(image)
    return details / (GIST_CONTRAST + np.sqrt(np.abs(smooth(details**2))))


def _even_neighbourhoods(channels: Array) -> Array:
    """Every number of (n_channels, height, width) less the mean of the 3x3 neighbourhood in all channels, divided by
    the norm of what is left of that neighbourhood, when this is above 1."""
    total = 9.0 * len(channels)
    sums, squares = (
        cv2.boxFilter(summed, cv2.CV_32F, (3, 3), normalize=False, borderType=cv2.BORDER_REPLICATE)
        for summed in (channels.sum(axis=0), np.einsum("cij,cij->ij", channels, channels))
    )
    norms = np.sqrt(np.maximum(squares - sums**2 / total, 1.0))
    return (channels - sums / total) / norms


def pixel_features(picture: Picture, colour: str) -> Array:
    """Features of every pixel, on scales of about 0 to 1: (n_features, height, width)."""
    height, width = picture.height, picture.width
    x = np.broadcast_to(((np.arange(width) + 0.5) / width).astype(np.float32), (height, width))
    y = np.broadcast_to(((np.arange(height) + 0.5) / height).astype(np.float32)[:, None], (height, width))
    grey = picture.grey / np.float32(255.0)
    derivatives = [
        np.abs(cv2.Sobel(grey, cv2.CV_32F, *order, ksize=1, borderType=cv2.BORDER_REPLICATE))
        for order in ((1, 0), (0, 1), (2, 0), (0, 2))
    ]
    return np.stack([x, y, *(picture.channels(colour) / np.float32(255.0)), *derivatives])


def log_vector(covariance: NDArray) -> NDArray:
    """The logarithm of a positive definite matrix (d, d) as a vector of the same norm: (d * (d + 1) / 2,).

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.images.whole import log_vector
    >>> log_vector(np.diag([1.0, np.e])).round(6)
    array([0., 0., 1.])
    """
    values, vectors = np.linalg.eigh(covariance)
    logarithm = (vectors * np.log(values)) @ vectors.T
    rows, columns = np.triu_indices(len(covariance))
    return logarithm[rows, columns] * np.where(rows == columns, 1.0, np.sqrt(2.0))


def _covariance(pixels: Array) -> NDArray:
    flat = pixels.reshape(len(pixels), -1)
    centred = flat - flat.mean(axis=1, keepdims=True)
    return (centred @ centred.T).astype(np.float64) / flat.shape[1] + COVARIANCE_RIDGE * np.eye(len(flat))


def oriented_edges(dx: NDArray, dy: NDArray, edges: NDArray) -> Array:
    """Gradients of edge pixels shared by the two nearest of the orientation channels: (height, width, n_channels)."""
    channels = np.zeros((*edges.shape, N_CHANNELS), np.float32)
    _share_orientations(dx, dy, edges, channels)
    return channels


def spread_points(edges: NDArray, count: int) -> NDArray[np.float64]:
    """Rows and columns (count, 2) of edge pixels far from each other, the first near the centre of all.

    Every next point is the one farthest from those chosen. Fewer edge pixels are repeated; a picture without edges has
    its centre for all points.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.images.whole import spread_points
    >>> spread_points(np.array([[1, 1, 0, 0, 1]]), 4)[:, 1]
    array([1., 4., 0., 1.])
    """
    pixels = np.argwhere(edges).astype(np.float64)
    if not len(pixels):
        pixels = (np.array([edges.shape], dtype=np.float64) - 1) / 2
    chosen = np.zeros(min(count, len(pixels)), np.intp)
    chosen[0] = np.square(pixels - pixels.mean(axis=0)).sum(axis=1).argmin()
    _choose_farthest(pixels, np.full(len(pixels), np.inf), chosen)
    return pixels[np.resize(chosen, count)]


def _blurred(channels: NDArray, width: float) -> NDArray:
    return cv2.GaussianBlur(channels, (0, 0), width, borderType=cv2.BORDER_CONSTANT)  # no edges outside of a picture


def _sampled(channels: NDArray, places: NDArray) -> NDArray:
    """Channels at places (n, k, 2), given as row and column and interpolated; 0 outside: (n, k, n_channels)."""
    y, x = np.moveaxis(places.astype(np.float32), 2, 0)
    return cv2.remap(channels, x, y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_CONSTANT, borderValue=0.0)


@njit(cache=True, nogil=True)
def _share_orientations(dx, dy, edges, channels):
    n_channels = channels.shape[2]
    for r in range(edges.shape[0]):
        for c in range(edges.shape[1]):
            if edges[r, c]:
                x, y = np.float64(dx[r, c]), np.float64(dy[r, c])
                place = (np.arctan2(y, x) / np.pi) % 1.0 * n_channels
                first = np.int64(place)
                strength, share = np.sqrt(x * x + y * y), place - first
                channels[r, c, first % n_channels] += strength * (1.0 - share)
                channels[r, c, (first + 1) % n_channels] += strength * share


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _choose_farthest(pixels, distances, chosen):
    # distances: scratch, infinite at first; the squared distance of every pixel to the nearest chosen one.
    for k in range(1, chosen.shape[0]):
        row, column = pixels[chosen[k - 1], 0], pixels[chosen[k - 1], 1]
        farthest = 0
        for i in range(pixels.shape[0]):
            away = (pixels[i, 0] - row) ** 2 + (pixels[i, 1] - column) ** 2
            distances[i] = min(distances[i], away)
            if distances[i] > distances[farthest]:
                farthest = i
        chosen[k] = farthest
