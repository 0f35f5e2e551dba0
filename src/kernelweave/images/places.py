"""Where to look in a picture: regular grids, corners, edges, random windows, and several of these together."""

from __future__ import annotations

import math
from dataclasses import MISSING, dataclass, fields
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from .base import Array, Picture, Where
from .checks import check_positive, check_whole


@dataclass(frozen=True)
class DenseGrid(Where):
    """A regular grid of squares for every radius, all inside the picture where the picture is large enough.

    Parameters
    ----------
    step : int
        Pixels between the centres of neighbouring squares.
    radii : tuple of float
        Halves of the sides of the squares.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.images import DenseGrid, Picture
    >>> picture = Picture(np.zeros((20, 30, 3), dtype=np.uint8))
    >>> DenseGrid(step=8, radii=(4.0,)).places(picture)[:3]
    array([[ 6.,  5.,  4.],
           [14.,  5.,  4.],
           [22.,  5.,  4.]], dtype=float32)
    """

    step: int = 8
    radii: tuple[float, ...] = (8.0,)

    def __post_init__(self) -> None:
        radii = (self.radii,) if isinstance(self.radii, (int, float)) else self.radii
        object.__setattr__(self, "radii", tuple(float(radius) for radius in radii))
        check_whole(self, "step")
        if not self.radii or not all(0 < radius < math.inf for radius in self.radii):
            raise ValueError(f"the radii of a DenseGrid are one or more positive numbers, got {self.radii!r}")

    @property
    def label(self) -> str:
        return label_of(self, "dense")

    def places(self, picture: Picture) -> Array:
        """Radius by radius, row by row, left to right."""
        grids = []
        for radius in self.radii:
            xs, ys = (self._centres(side, radius) for side in (picture.width, picture.height))
            grids.append(
                np.column_stack([np.tile(xs, len(ys)), np.repeat(ys, len(xs)), np.full(len(xs) * len(ys), radius)])
            )
        return np.concatenate(grids).astype(np.float32)

    def _centres(self, side: int, radius: float) -> NDArray:
        """Coordinates of centres along a side of the picture: whole pixels, as far from one end as from the other."""
        first, last = math.ceil(radius - 0.5), math.floor(side - 0.5 - radius)
        if last < first:
            return np.array([(side - 1) / 2])
        return np.arange(first + (last - first) % self.step // 2, last + 1, self.step, dtype=np.float64)


@dataclass(frozen=True)
class HarrisLaplace(Where):
    """Corners at the scale where they stand out most (Mikolajczyk and Schmid), the strongest first.

    A place is a local maximum of the Harris measure at one of three scales an octave, where the scale-normalised
    Laplacian is greater than at the scale before and the scale after. The radius is six times the scale, so that a
    `SIFT` descriptor there has cells as wide as the literature has them. A picture without any corner gets one place,
    its middle.

    Parameters
    ----------
    most : int
        Number of places at most.
    smallest : float
        Standard deviation in pixels of the first scale.
    octaves : int
        How often the scale is doubled; scales whose square is larger than the picture are left out.
    contrast : float
        Corners weaker than this many grey levels are left out.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.images import HarrisLaplace, Picture
    >>> rgb = np.zeros((100, 100, 3), dtype=np.uint8)
    >>> rgb[47:54, 47:54] = 255
    >>> HarrisLaplace(most=4).places(Picture(rgb)).shape
    (4, 3)
    """

    most: int = 1000
    smallest: float = 1.2
    octaves: int = 4
    contrast: float = 2.0

    def __post_init__(self) -> None:
        check_whole(self, "most")
        check_positive(self, "smallest")
        check_whole(self, "octaves")
        check_positive(self, "contrast")

    @property
    def label(self) -> str:
        return label_of(self, "harris-laplace")

    def places(self, picture: Picture) -> Array:
        found = [np.empty((0, 4))]
        grey = picture.grey
        for octave in range(self.octaves):
            fits = min(picture.width, picture.height) / (2 * _RADIUS_OF_SCALE * 2**octave)
            found.append(self._corners(grey, fits) * [2**octave, 2**octave, 2**octave, 1])
            grey = np.asarray(cv2.pyrDown(grey, borderType=cv2.BORDER_REPLICATE), dtype=np.float32)
        corners = np.concatenate(found)
        if not len(corners):
            return _middle(picture, min(picture.width, picture.height) / 2)
        x, y, radius, strength = corners.T
        order = np.lexsort([x, y, radius, -strength])[: self.most]
        return corners[order, :3].astype(np.float32)

    def _corners(self, grey: Array, fits: float) -> NDArray:
        """Rows of x, y, radius and strength in pixels of this octave, for scales that are not greater than `fits`."""
        scales = [self.smallest * 2 ** (third / 3) for third in range(-1, 4)]
        if scales[1] > fits:
            return np.empty((0, 4))
        blobs = [_laplacian(grey, scale) for scale in scales]
        rows = []
        for before, blob, after, scale in zip(blobs, blobs[1:], blobs[2:], scales[1:], strict=False):
            strength = _harris(grey, scale)
            kept = (strength == cv2.dilate(strength, np.ones((3, 3), np.uint8))) & (strength > self.contrast**4)
            kept &= (blob > before) & (blob > after)
            y, x = np.nonzero(kept)
            if scale <= fits:
                rows.append(np.column_stack([x, y, np.full(len(x), _RADIUS_OF_SCALE * scale), strength[y, x]]))
        return np.concatenate(rows)


@dataclass(frozen=True)
class EdgePoints(Where):
    """Points on edges (Canny), thinned evenly; the middle of a picture without any edge.

    Parameters
    ----------
    most : int
        Number of places at most.
    radius : float
        Half the side of the squares.
    low, high : float
        Thresholds of the hysteresis on the sum of the absolute Sobel derivatives.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.images import EdgePoints, Picture
    >>> rgb = np.zeros((40, 40, 3), dtype=np.uint8)
    >>> rgb[:, 20:] = 255
    >>> EdgePoints(most=5).places(Picture(rgb)).shape
    (5, 3)
    """

    most: int = 1000
    radius: float = 8.0
    low: float = 50.0
    high: float = 100.0

    def __post_init__(self) -> None:
        check_whole(self, "most")
        check_positive(self, "radius")
        if not 0 <= self.low <= self.high < math.inf:
            raise ValueError(f"EdgePoints needs 0 <= low <= high, got low={self.low!r}, high={self.high!r}")

    @property
    def label(self) -> str:
        return label_of(self, "edges")

    def places(self, picture: Picture) -> Array:
        smooth = _blurred(picture.grey, 1.0)  # Canny's own derivatives do not smooth along the edge enough
        y, x = np.nonzero(cv2.Canny(np.rint(smooth).astype(np.uint8), self.low, self.high))
        if not len(x):
            return _middle(picture, self.radius)
        kept = np.linspace(0, len(x) - 1, min(len(x), self.most)).round().astype(np.intp)
        return np.column_stack([x[kept], y[kept], np.full(len(kept), self.radius)]).astype(np.float32)


@dataclass(frozen=True)
class RandomWindows(Where):
    """Random squares inside the picture, the same for all pictures of one size.

    Parameters
    ----------
    n : int
        Number of squares.
    seed : int
    smallest : float
        Smallest radius in pixels. Radii are drawn evenly on a logarithmic scale between this and half the shorter side
        of the picture, which a smaller picture has for all of them.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.images import Picture, RandomWindows
    >>> RandomWindows(7).places(Picture(np.zeros((40, 60, 3), dtype=np.uint8))).shape
    (7, 3)
    """

    n: int = 100
    seed: int = 0
    smallest: float = 8.0

    def __post_init__(self) -> None:
        check_whole(self, "n")
        check_positive(self, "smallest")
        check_whole(self, "seed", 0)

    @property
    def label(self) -> str:
        return label_of(self, "windows")

    def places(self, picture: Picture) -> Array:
        width, height = picture.width, picture.height
        rng = np.random.default_rng((self.seed, width, height))
        largest = min(width, height) / 2
        radius = np.exp(rng.uniform(math.log(min(self.smallest, largest)), math.log(largest), self.n))
        radius = np.minimum(radius, largest)  # against rounding
        x = rng.uniform(radius - 0.5, width - 0.5 - radius)
        y = rng.uniform(radius - 0.5, height - 0.5 - radius)
        return np.column_stack([x, y, radius]).astype(np.float32)


@dataclass(frozen=True)
class Together(Where):
    """The places of several `Where` objects, one after the other.

    Parameters
    ----------
    wheres : tuple of Where

    Examples
    --------
    >>> from kernelweave.images import DenseGrid, HarrisLaplace, Together
    >>> Together((DenseGrid(), HarrisLaplace())).label
    'dense+harris-laplace'
    """

    wheres: tuple[Where, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "wheres", tuple(self.wheres))
        if not self.wheres or not all(isinstance(where, Where) for where in self.wheres):
            raise ValueError(f"Together needs one or more places to look at such as DenseGrid(), got {self.wheres!r}")

    @property
    def label(self) -> str:
        return "+".join(where.label for where in self.wheres)

    def places(self, picture: Picture) -> Array:
        return np.concatenate([where.places(picture) for where in self.wheres])


def check_places(picture: Picture, places: Array) -> Array:
    """The places as a contiguous float32 array, all of them sound: centres inside the picture, positive radii."""
    checked = np.ascontiguousarray(places, dtype=np.float32)
    if checked.ndim != 2 or checked.shape[1] != 3:
        raise ValueError(f"places are rows of x, y and radius, got an array of shape {checked.shape}")
    x, y, radius = checked.T
    inside = (x >= -0.5) & (x <= picture.width - 0.5) & (y >= -0.5) & (y <= picture.height - 0.5)
    sound = inside & (radius > 0) & np.isfinite(radius)
    if not sound.all():
        row = int(np.argmin(sound))
        raise ValueError(
            f"place {row} is x={x[row]:g}, y={y[row]:g}, radius={radius[row]:g}; expected a centre inside the picture "
            f"of {picture.width} x {picture.height} pixels and a positive radius"
        )
    return checked


def label_of(recipe: Any, name: str) -> str:
    """The name, and in brackets the arguments that are not the default.

    Examples
    --------
    >>> from kernelweave.images import DenseGrid
    >>> from kernelweave.images.places import label_of
    >>> label_of(DenseGrid(10, (4, 8)), "dense")
    'dense(step=10, radii=4,8)'
    """
    parts = []
    for field in fields(recipe):
        value = getattr(recipe, field.name)
        if field.default is MISSING or value != field.default:
            values = value if isinstance(value, tuple) else (value,)
            shown = ",".join(f"{part:g}" if isinstance(part, float) else str(part) for part in values)
            parts.append(f"{field.name}={shown}")
    return f"{name}({', '.join(parts)})" if parts else name


#: SIFT cells are three times the scale wide in the literature, and the radius is two cells.
_RADIUS_OF_SCALE = 6.0


def _middle(picture: Picture, radius: float) -> Array:
    return np.array([[(picture.width - 1) / 2, (picture.height - 1) / 2, radius]], dtype=np.float32)


def _blurred(grey: Array, scale: float) -> Array:
    return np.asarray(cv2.GaussianBlur(grey, (0, 0), scale, borderType=cv2.BORDER_REPLICATE), dtype=np.float32)


def _laplacian(grey: Array, scale: float) -> Array:
    """Absolute Laplacian at a scale, multiplied by the square of the scale so that scales can be compared."""
    second = cv2.Laplacian(_blurred(grey, scale), cv2.CV_32F, borderType=cv2.BORDER_REPLICATE)
    return np.asarray(np.abs(second) * scale**2, dtype=np.float32)


def _harris(grey: Array, scale: float) -> Array:
    """Harris measure of scale-normalised derivatives, in grey levels to the fourth power."""
    fine = 0.7 * scale  # derivatives are taken at a finer scale than they are gathered at
    smooth = _blurred(grey, fine)
    dx, dy = (
        cv2.Sobel(smooth, cv2.CV_32F, *order, ksize=1, scale=fine / 2, borderType=cv2.BORDER_REPLICATE)
        for order in ((1, 0), (0, 1))
    )
    xx, yy, xy = (_blurred(product, scale) for product in (dx * dx, dy * dy, dx * dy))
    return xx * yy - xy * xy - 0.04 * (xx + yy) ** 2
