"""Bags of visual words: which words a picture holds, over the whole of it, over grids of cells, or in boxes."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..kernels import Kernel, Mean
from .base import Array, Feature, Learned, Picture, What, Where
from .checks import check_several, check_whole
from .layouts import cell_numbers, check_layouts, grid, grids, random_boxes
from .words import KMeans, Words, nearest_words, principal_directions, soft_weights, spacing

POOLINGS = ("mean", "max")


@dataclass(frozen=True)
class LocalWords(Feature):
    """What all features of visual words share: local descriptors, codebooks learned from them, the words found."""

    where: Where
    what: What
    words: Words = field(default=KMeans(300))
    _: KW_ONLY
    nearest: int = 1
    codebooks: int = 1
    per_picture: int = 100
    name: str = ""
    learns: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name, kind in (("where", Where), ("what", What), ("words", Words)):
            value = getattr(self, name)
            if not isinstance(value, kind):
                raise TypeError(f"{name} of {type(self).__name__} is a {kind.__name__} object, got {value!r}")
        check_whole(self, "nearest", most=self.words.n_words)
        check_whole(self, "codebooks")
        check_whole(self, "per_picture")

    @property
    @abstractmethod
    def parts(self) -> tuple[str, ...]:
        """How the names of the views of one codebook end."""

    @abstractmethod
    def pool(self, x: NDArray, y: NDArray, numbers: NDArray, weights: Array) -> list[Array]:
        """One vector a part.

        Parameters
        ----------
        x, y : arrays of shape (n_places,)
            Where the descriptors are, 0 to 1 from left to right and from top to bottom.
        numbers, weights : arrays of shape (n_places, nearest)
            The words found there, and how much each counts.
        """

    @property
    def stem(self) -> str:
        """What the names of the views begin with."""
        return self.name or f"{self.what.label}.{self.where.label}.{self.words.label}"

    @property
    def views(self) -> tuple[str, ...]:
        stem = self.stem
        digits = len(str(self.codebooks - 1))
        stems = [f"{stem}#{number:0{digits}d}" for number in range(self.codebooks)] if self.codebooks > 1 else [stem]
        return tuple(stem + part for stem in stems for part in self.parts)

    def sample(self, picture: Picture, rng: np.random.Generator) -> Array:
        """At most `per_picture` descriptors, drawn without repetition: (n_drawn, length)."""
        _, descriptors = local_descriptors(picture, self.where, self.what)
        if len(descriptors) <= self.per_picture:
            return descriptors
        return descriptors[rng.choice(len(descriptors), self.per_picture, replace=False)]

    def learn(self, samples: NDArray, rng: np.random.Generator) -> dict[str, NDArray]:
        """The codebooks, and what is needed to search them.

        Returns
        -------
        dict
            "words" (codebooks, n_words, length); "bandwidths" (codebooks,), for soft assignment; "directions" (length,
            n_directions), in which the words of all codebooks vary most.
        """
        if np.ndim(samples) != 2 or np.shape(samples)[1] != self.what.length:
            raise ValueError(
                f"{self.what!r} has descriptors of {self.what.length} numbers; samples of it are (n_samples, "
                f"{self.what.length}), got {np.shape(samples)}"
            )
        words = np.stack([self.words.learn(samples, rng) for _ in range(self.codebooks)])
        return {
            "words": words,
            "bandwidths": np.array([spacing(codebook) for codebook in words], dtype=np.float32),
            "directions": principal_directions(words.reshape(-1, words.shape[2])),
        }

    def describe(self, picture: Picture, learned: Learned) -> list[Array]:
        expected = (self.codebooks, self.words.n_words, self.what.length)
        found = np.shape(learned["words"]) if "words" in learned else None
        if found != expected:
            raise ValueError(
                f"{type(self).__name__} needs what its method learn gave, with words {expected}, got "
                + ("none" if found is None else f"words {found}")
            )
        places, _ = local_descriptors(picture, self.where, self.what)
        # Pixel centres are whole numbers, so the picture begins half a pixel before 0.
        x, y = np.clip((places[:, :2].T + 0.5) / [[picture.width], [picture.height]], 0.0, 1.0)
        return [
            vector
            for codebook in range(self.codebooks)
            for vector in self.pool(x, y, *self._assigned(picture, learned, codebook))
        ]

    def _assigned(self, picture: Picture, learned: Learned, codebook: int) -> tuple[NDArray, Array]:
        """Words found at every place and their weights, both (n_places, nearest); once for features that share them."""
        codebooks = learned["words"]

        def assign() -> tuple[NDArray, NDArray, Array]:
            _, descriptors = local_descriptors(picture, self.where, self.what)
            numbers, squared = nearest_words(descriptors, codebooks[codebook], self.nearest, learned["directions"])
            weights = soft_weights(squared, float(learned["bandwidths"][codebook]))
            return codebooks, numbers, weights  # codebooks that are kept alive keep their identity to themselves

        key = ("words", self.where, self.what, self.nearest, codebook, id(codebooks))
        _, numbers, weights = picture.once(key, assign)
        return numbers, weights


@dataclass(frozen=True)
class BagOfWords(LocalWords):
    """Histograms of visual words over the cells of grids: one view for each codebook, pooling and layout.

    Parameters
    ----------
    where : Where
        Where local descriptors are taken.
    what : What
        What they measure.
    words : KMeans or Prototypes
        How codebooks are learned.
    layouts : tuple of str
        Grids such as "1x1", "3x1" or "4x4"; "1x1+2x2" puts the cells of both into one view.
    poolings : tuple of {"mean", "max"}
        "mean": shares of the words, with the sum 1 over all cells of a layout. "max": the largest weight of a word in a
        cell, so with one nearest word whether it occurs there at all. A cell without descriptors is all zeros.
    nearest : int
        Words a descriptor counts for. With more than one, it counts for each by a Gaussian of the distance, in all 1;
        the bandwidth is the mean distance between neighbouring words.
    codebooks : int
        Codebooks learned independently of each other, each with its own views.
    per_picture : int
        Descriptors of each training picture from which words are learned, at most.
    name : str
        Replaces the beginning of the names of the views; needed where features differ in what names do not show.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.images import BagOfWords, KMeans, Picture
    >>> from kernelweave.images.places import DenseGrid
    >>> from kernelweave.images.sift import SIFT
    >>> feature = BagOfWords(DenseGrid(), SIFT(), KMeans(20), layouts=("1x1", "2x2"))
    >>> feature.views
    ('sift.dense.20/1x1', 'sift.dense.20/2x2')
    >>> rng = np.random.default_rng(0)
    >>> picture = Picture(rng.integers(0, 256, (80, 120, 3), dtype=np.uint8))
    >>> learned = feature.learn(feature.sample(picture, rng), rng)
    >>> [vector.shape for vector in feature.describe(picture, learned)]
    [(20,), (80,)]
    """

    layouts: tuple[str, ...] = ("1x1",)
    poolings: tuple[str, ...] = ("mean",)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_layouts(self)
        check_several(self, "poolings", POOLINGS)

    @property
    def parts(self) -> tuple[str, ...]:
        ends = {"mean": "", "max": ".max"}
        return tuple(f"{ends[pooling]}/{layout}" for pooling in self.poolings for layout in self.layouts)

    def pool(self, x: NDArray, y: NDArray, numbers: NDArray, weights: Array) -> list[Array]:
        pooled = {"mean": shares, "max": largest}
        return [
            pooled[pooling](*self._slots(layout, x, y, numbers, weights))
            for pooling in self.poolings
            for layout in self.layouts
        ]

    def _slots(
        self, layout: str, x: NDArray, y: NDArray, numbers: NDArray, weights: Array
    ) -> tuple[NDArray, Array, int]:
        """The entries of the view to which the words of each place belong, their weights, and how many entries it has.

        The cells of all grids come one after the other, and a place is in one cell of each.
        """
        slots: list[NDArray] = []
        n_slots = 0
        for part in grids(layout):
            rows, columns = grid(part)
            slots.append(n_slots + cell_numbers(part, x, y)[:, None] * self.words.n_words + numbers)
            n_slots += rows * columns * self.words.n_words
        return np.hstack(slots), np.tile(weights, (1, len(slots))), n_slots


@dataclass(frozen=True)
class BoxWords(LocalWords):
    """Histograms of the visual words in boxes drawn at random, one view a box: kernels of places that matter.

    Boxes are relative to the picture, and the same in every picture. Shares of words sum to 1 over a box, and are zeros
    where no descriptor is in it.

    Parameters
    ----------
    where, what, words, nearest, codebooks, per_picture, name
        As for `BagOfWords`.
    boxes : int
        Number of boxes.
    seed : int
        Which boxes are drawn.
    averaged : bool
        One kernel, the mean over all boxes (the subwindow kernel), instead of one for each.

    Examples
    --------
    >>> from kernelweave.images import BoxWords, KMeans
    >>> from kernelweave.images.places import DenseGrid
    >>> from kernelweave.images.sift import SIFT
    >>> BoxWords(DenseGrid(), SIFT(), KMeans(20), boxes=2).views
    ('sift.dense.20/box000', 'sift.dense.20/box001')
    """

    boxes: int = 100
    seed: int = 0
    averaged: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(self, "boxes")
        check_whole(self, "seed", 0)

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(f"/box{number:03d}" for number in range(self.boxes))

    @property
    def kernels(self) -> dict[str, Kernel]:
        each = super().kernels
        return {f"{self.stem}/boxes": Mean(each)} if self.averaged else each

    def pool(self, x: NDArray, y: NDArray, numbers: NDArray, weights: Array) -> list[Array]:
        vectors = []
        for left, top, right, bottom in random_boxes(self.boxes, self.seed):
            inside = (left <= x) & (x <= right) & (top <= y) & (y <= bottom)
            vectors.append(shares(numbers[inside], weights[inside], self.words.n_words))
        return vectors


def local_descriptors(picture: Picture, where: Where, what: What) -> tuple[Array, Array]:
    """Places (n_places, 3) and their descriptors (n_places, length), computed once a picture for all features."""
    places = picture.once(where, lambda: where.places(picture))
    return places, picture.once((where, what), lambda: what.describe(picture, places))


def shares(slots: NDArray, weights: Array, n_slots: int) -> Array:
    """Sums of the weights that belong to each slot, divided by their total: (n_slots,); zeros where there are none.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.images.bag import shares
    >>> shares(np.array([0, 2, 2, 2]), np.ones(4, dtype=np.float32), 3)
    array([0.25, 0.  , 0.75], dtype=float32)
    """
    sums = np.bincount(slots.ravel(), weights.ravel(), minlength=n_slots)
    return (sums / (sums.sum() or 1.0)).astype(np.float32)


def largest(slots: NDArray, weights: Array, n_slots: int) -> Array:
    """The largest weight that belongs to each slot: (n_slots,); zeros where there are none.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.images.bag import largest
    >>> largest(np.array([0, 2, 2]), np.array([1.0, 0.25, 0.5], dtype=np.float32), 3)
    array([1. , 0. , 0.5], dtype=float32)
    """
    highest = np.zeros(n_slots, dtype=np.float32)
    np.maximum.at(highest, slots.ravel(), weights.ravel())
    return highest
