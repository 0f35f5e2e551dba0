"""The vocabulary of image features: a picture, *where* in it to look, *what* to measure there, and what comes of it.

A line of a preset is a `Feature`. It turns a picture into one vector for each of its views, and may first learn
something from training pictures (a codebook). `Where` and `What` are the halves of local features, joined by a bag of
words.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping
from functools import cached_property
from typing import Any, ClassVar

import cv2
import numpy as np
from numpy.typing import NDArray

from ..kernels import ChiSquared, Kernel

Array = NDArray[np.float32]

#: What a feature learned from training pictures: arrays by name, so that it can be kept in a file.
Learned = Mapping[str, NDArray]

#: Weights of red, green and blue in the grey picture.
GREY = (0.3, 0.59, 0.11)

COLOURS = ("grey", "rgb", "hsv", "lab", "opponent")


class Picture:
    """A picture in memory, with what several features start from computed once.

    Parameters
    ----------
    rgb : array of shape (height, width, 3), uint8

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.images import Picture
    >>> picture = Picture(np.full((4, 6, 3), 100, dtype=np.uint8))
    >>> picture.height, picture.width, float(picture.grey[0, 0])
    (4, 6, 100.0)
    """

    def __init__(self, rgb: NDArray[np.uint8]) -> None:
        if rgb.ndim != 3 or rgb.shape[2] != 3 or rgb.dtype != np.uint8 or rgb.size == 0:
            raise ValueError(f"a picture is an 8-bit array (height, width, 3), got {rgb.dtype} {rgb.shape}")
        self.rgb = np.ascontiguousarray(rgb)
        self._made: dict[Hashable, Any] = {}

    @property
    def height(self) -> int:
        return self.rgb.shape[0]

    @property
    def width(self) -> int:
        return self.rgb.shape[1]

    @cached_property
    def grey(self) -> Array:
        """Brightness 0 to 255, (height, width) float32."""
        return np.asarray(cv2.transform(self.rgb.astype(np.float32), np.array([GREY], dtype=np.float32)), np.float32)

    def channels(self, colour: str) -> Array:
        """The picture in a colour space, (n_channels, height, width) float32, every channel on a scale of 0 to 255.

        "hsv": hue 0 to 255 is a full turn; "lab": L, a + 128, b + 128 as OpenCV scales 8-bit pictures; "opponent":
        ``(R - G) / 2``, ``(R + G - 2 B) / 4`` (both + 127.5) and ``(R + G + B) / 3``.
        """
        return self.once(("channels", colour), lambda: self._channels(colour))

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """What ``make()`` gave when it was first asked for under this key; for work that several features share."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def _channels(self, colour: str) -> Array:
        if colour == "grey":
            return self.grey[None]
        if colour == "opponent":
            red, green, blue = np.moveaxis(self.rgb.astype(np.float32), 2, 0)
            return np.stack([(red - green) / 2 + 127.5, (red + green - 2 * blue) / 4 + 127.5, (red + green + blue) / 3])
        codes = {"rgb": None, "hsv": cv2.COLOR_RGB2HSV_FULL, "lab": cv2.COLOR_RGB2LAB}
        if colour not in codes:
            raise ValueError(f"a colour space is one of {list(COLOURS)}, got {colour!r}")
        code = codes[colour]
        converted = self.rgb if code is None else cv2.cvtColor(self.rgb, code)
        return np.ascontiguousarray(np.moveaxis(converted, 2, 0), dtype=np.float32)


class Where(ABC):
    """Where in a picture to look. Subclasses are frozen dataclasses of plain values."""

    @property
    @abstractmethod
    def label(self) -> str:
        """Short name, part of the names of views."""

    @abstractmethod
    def places(self, picture: Picture) -> Array:
        """Places (n_places, 3) float32: column x and row y of the centre in pixels (pixel centres are integers), and
        the radius, half the side of the square that is described. Deterministic: the same picture gives the same
        places. At least one place for every picture, however small or empty."""


class What(ABC):
    """What to measure around a place. Subclasses are frozen dataclasses of plain values."""

    @property
    @abstractmethod
    def label(self) -> str:
        """Short name, part of the names of views."""

    @property
    @abstractmethod
    def length(self) -> int:
        """Numbers in one descriptor."""

    @abstractmethod
    def describe(self, picture: Picture, places: Array) -> Array:
        """Descriptors (n_places, length) float32, finite, for places (n_places, 3) as `Where.places` gives them. Parts
        of a square outside the picture see its border repeated; a square without contrast gives zeros."""


class Feature(ABC):
    """A line of a preset: from a picture to one vector for each view. Subclasses are frozen dataclasses of plain values
    and of `Where` and `What` objects, so that they can be compared, hashed and kept in a file."""

    #: Whether `sample` and `learn` must be called on training pictures before `describe`.
    learns: ClassVar[bool] = False

    @property
    @abstractmethod
    def views(self) -> tuple[str, ...]:
        """Names of the views, in the order of `describe`."""

    @property
    def kernel(self) -> Kernel:
        """The kernel that suits every one of the views."""
        return ChiSquared()

    @property
    def kernels(self) -> dict[str, Kernel]:
        """What the feature adds to a bank, by name: its kernel on every view, unless it joins views."""
        return dict.fromkeys(self.views, self.kernel)

    def sample(self, picture: Picture, rng: np.random.Generator) -> NDArray:
        """What is learned from one training picture: (n_drawn, length)."""
        raise TypeError(f"{type(self).__name__} learns nothing")

    def learn(self, samples: NDArray, rng: np.random.Generator) -> dict[str, NDArray]:
        """What is kept for `describe`, from the samples of all training pictures: arrays by name."""
        raise TypeError(f"{type(self).__name__} learns nothing")

    @abstractmethod
    def describe(self, picture: Picture, learned: Learned) -> list[Array]:
        """One float32 vector a view, always of the same length, finite."""
