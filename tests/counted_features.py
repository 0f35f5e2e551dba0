"""Small features whose calls are counted, pictures for them, and what they should give."""

import threading
from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

import cv2
import numpy as np
from numpy.testing import assert_array_equal

from kernelweave.images.base import Feature
from kernelweave.images.pictures import read_picture
from kernelweave.kernels import Gaussian

CALLS = Counter()
LOCK = threading.Lock()


def count(what):
    with LOCK:
        CALLS[what] += 1


@dataclass(frozen=True)
class MeanColour(Feature):
    """Mean and spread of the colours: two views of different lengths."""

    scale: float = 1.0
    name: str = "colour"

    @property
    def views(self):
        return (f"{self.name}.mean", f"{self.name}.spread")

    def describe(self, picture, learned):
        count(self)
        pixels = picture.rgb.reshape(-1, 3) * self.scale
        return [pixels.mean(axis=0).astype(np.float32), np.array([pixels.std() + 1], dtype=np.float32)]


@dataclass(frozen=True)
class Size(Feature):
    """Height and width."""

    views: ClassVar = ("size",)

    @property
    def kernel(self):
        return Gaussian()

    def describe(self, picture, learned):
        count(self)
        return [np.array(picture.rgb.shape[:2], dtype=np.float32)]


@dataclass(frozen=True)
class Words(Feature):
    """How many pixels are nearest to each of some colours drawn from training pictures."""

    n_words: int = 4
    views: ClassVar = ("words",)
    learns: ClassVar[bool] = True

    def sample(self, picture, rng):
        count("sample")
        pixels = picture.rgb.reshape(-1, 3)
        return pixels[rng.choice(len(pixels), 5)].astype(np.float32)

    def learn(self, samples, rng):
        count("learn")
        return {"words": samples[rng.choice(len(samples), self.n_words)], "n": np.array(len(samples))}

    def describe(self, picture, learned):
        count(self)
        distances = np.abs(picture.rgb.reshape(-1, 1, 3) - learned["words"]).sum(axis=2)
        return [np.bincount(distances.argmin(axis=1), minlength=self.n_words).astype(np.float32) + 1]


FEATURES = [MeanColour(), Size()]


def pixels(number):
    return np.random.default_rng(number).integers(0, 256, (20 + number % 7, 30, 3), dtype=np.uint8)


def write_pictures(folder, n=12):
    """Pictures ``00.png``, ``01.png``, ... in a new folder."""
    folder.mkdir()
    for number in range(n):
        cv2.imwrite(str(folder / f"{number:02d}.png"), pixels(number))
    return folder


def expected(feature, paths, learned=None, max_side=300):
    rows = [feature.describe(read_picture(path, max_side), learned or {}) for path in paths]
    return {view: np.stack([row[k] for row in rows]) for k, view in enumerate(feature.views)}


def same(views, other):
    assert views.names == other.names
    for name in views.names:
        assert_array_equal(views[name], other[name])


def described():
    """How many pictures were described by all features together."""
    return sum(calls for what, calls in CALLS.items() if isinstance(what, Feature))
