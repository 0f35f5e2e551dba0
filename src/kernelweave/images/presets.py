"""Presets: the feature lists of published studies and a quick one, each a plain list to read, copy and edit.

>>> from kernelweave.images import preset
>>> features = preset("quick")
>>> features[0]
ColourHistogram(colour='hsv', bins=8, layouts=('1x1', '2x2'), pooling='mean', name='')
"""

from __future__ import annotations

from collections.abc import Callable

from .bag import BagOfWords, BoxWords
from .base import Feature
from .histograms import HOG, PHOG, ColourHistogram, LBPHistogram
from .joint import ProductOf
from .layouts import pyramid
from .local import ColourPatch, Gradients, LocalBinaryPatterns, RobustHue, SelfSimilarity
from .places import DenseGrid, EdgePoints, HarrisLaplace, RandomWindows, Together
from .sift import SIFT
from .whole import GIST, GeometricBlur, RegionCovariance, V1Like
from .words import KMeans, Prototypes

#: Every class a list of features is made of; what a file may name.
RECIPES: tuple[type, ...] = (
    *(BagOfWords, BoxWords, KMeans, Prototypes),
    *(DenseGrid, EdgePoints, HarrisLaplace, RandomWindows, Together),
    *(SIFT, ColourPatch, Gradients, LocalBinaryPatterns, RobustHue, SelfSimilarity),
    *(HOG, PHOG, ColourHistogram, LBPHistogram, GIST, GeometricBlur, RegionCovariance, V1Like),
    ProductOf,
)


def quick() -> list[Feature]:
    """A good bank in seconds for a hundred pictures: colours, textures, edges, words and the whole scene."""
    dense = DenseGrid(step=8, radii=(8.0, 16.0))
    return [
        ColourHistogram("hsv", bins=8, layouts=("1x1", "2x2")),
        LBPHistogram(layouts=("1x1+2x2+4x4",)),
        PHOG(bins=20, signed=False, layouts=("1x1+2x2+4x4",)),
        GIST(),
        RegionCovariance(layouts=("2x2",)),
        BagOfWords(dense, SIFT("grey"), KMeans(300), layouts=("1x1", "2x2"), name="sift"),
        BagOfWords(dense, SIFT("opponent"), KMeans(300), name="opponent-sift"),
        BagOfWords(dense, RobustHue(), KMeans(100), name="hue"),
    ]


def voc15() -> list[Feature]:
    """The 15 kernels of the VOC 2007 study: GIST, colour histograms, words of SIFT and of hue on two kinds of places.

    Vocabulary sizes and bins were not published with it; they are those of the recipe it cites (1000 words of SIFT, 100
    of hue; 16 bins a channel, 12 in three strips).
    """
    colours = [
        ColourHistogram(colour, bins=bins, layouts=(layout,))
        for colour in ("rgb", "lab", "hsv")
        for bins, layout in ((16, "1x1"), (12, "3x1"))
    ]
    words = [
        BagOfWords(where, what, KMeans(n_words), layouts=("1x1", "3x1"))
        for where in (DenseGrid(step=8, radii=(8.0, 16.0)), HarrisLaplace())
        for what, n_words in ((SIFT(), 1000), (RobustHue(), 100))
    ]
    return [GIST(), *colours, *words]


def imagenet10() -> list[Feature]:
    """The 10 kernels of the ImageNet study: one vocabulary of 1000 words pooled in four ways, and colour histograms.

    The second layout of the words is 2x2 in one of its two publications and 4x4 in the other; here it is 2x2.
    """
    everywhere = Together((DenseGrid(step=8, radii=(8.0, 16.0)), HarrisLaplace()))
    words = BagOfWords(everywhere, SIFT(), KMeans(1000), layouts=("1x1", "2x2"), poolings=("mean", "max"))
    colours = [
        ColourHistogram(colour, bins=8, pooling=pooling)
        for colour in ("rgb", "lab", "hsv")
        for pooling in ("mean", "max")
    ]
    return [words, *colours]


def flowers() -> list[Feature]:
    """Seven kernels after the flower study: colour, shape and texture words, HOG, HSV, SIFT inside and on the boundary.

    The study cut the flower out of its background first; here corners stand for its inside and edges for its boundary.
    """
    dense = DenseGrid(step=8, radii=(8.0, 16.0))
    return [
        BagOfWords(DenseGrid(step=4, radii=(2.0,)), ColourPatch(side=3, colour="hsv"), KMeans(400), name="colour"),
        BagOfWords(dense, SIFT(), KMeans(1000), layouts=("1x1",), name="shape"),
        BagOfWords(dense, LocalBinaryPatterns(), KMeans(300), name="texture"),
        HOG(name="hog"),
        ColourHistogram("hsv", bins=12, name="hsv"),
        BagOfWords(HarrisLaplace(), SIFT(), KMeans(1000), name="siftint"),
        BagOfWords(EdgePoints(), SIFT(), KMeans(1000), name="siftbdy"),
    ]


def caltech48() -> list[Feature]:
    """The 48 kernels of the Caltech 101 study, one for each pyramid level.

    Three of its entries are unclear and read as follows. The four products multiply the levels of grey SIFT (300
    words), both edge histograms and HSV SIFT (300 words). The product "4 to 7" multiplies the combined LBP kernel and
    the first three levels of HSV SIFT. The second set of SIFT pyramids has three levels and a finer grid.
    """
    grid = DenseGrid(step=10, radii=(4.0, 8.0, 12.0, 16.0))
    finer = DenseGrid(step=6, radii=(8.0,))
    levels = pyramid(4)
    grey_300 = BagOfWords(grid, SIFT("grey"), KMeans(300), layouts=levels, name="sift-grey-300")
    hsv_300 = BagOfWords(grid, SIFT("hsv"), KMeans(300), layouts=levels, name="sift-hsv-300")
    unoriented = PHOG(bins=40, signed=False, layouts=levels)
    oriented = PHOG(bins=40, signed=True, layouts=levels)
    combined = LBPHistogram(layouts=("1x1+2x2+4x4",))
    windows = [
        BoxWords(grid, SIFT(colour), KMeans(1000), boxes=100, averaged=True, name=f"windows-{colour}")
        for colour in ("grey", "hsv")
    ]
    families = {"sift-grey-300": grey_300, "phog180": unoriented, "phog360": oriented, "sift-hsv-300": hsv_300}
    return [
        LBPHistogram(layouts=pyramid(3)),
        combined,
        hsv_300,
        BagOfWords(grid, SIFT("grey"), KMeans(1000), layouts=levels, name="sift-grey-1000"),
        BagOfWords(grid, SIFT("hsv"), KMeans(1000), layouts=levels, name="sift-hsv-1000"),
        *windows,
        grey_300,
        unoriented,
        oriented,
        *(ProductOf((family,), f"{name}/levels") for name, family in families.items()),
        V1Like(),
        RegionCovariance(layouts=pyramid(3)),
        ProductOf((combined, hsv_300), "lbp and sift-hsv-300", most=4),
        GeometricBlur(),
        BagOfWords(finer, SIFT("grey"), KMeans(300), layouts=pyramid(3), name="sift-grey-finer"),
        BagOfWords(finer, SIFT("hsv"), KMeans(300), layouts=pyramid(3), name="sift-hsv-finer"),
        BagOfWords(DenseGrid(step=10, radii=(20.0,)), SelfSimilarity(), KMeans(300), layouts=pyramid(2)),
    ]


PRESETS: dict[str, Callable[[], list[Feature]]] = {
    "quick": quick,
    "voc15": voc15,
    "imagenet10": imagenet10,
    "flowers": flowers,
    "caltech48": caltech48,
}


def preset(name: str) -> list[Feature]:
    """The list of features of that name: "quick", "voc15", "imagenet10", "flowers" or "caltech48".

    Examples
    --------
    >>> from kernelweave.images import preset
    >>> len(preset("voc15"))
    11
    """
    if name not in PRESETS:
        raise ValueError(f"no preset is called {name!r}; there are {', '.join(map(repr, PRESETS))}")
    return PRESETS[name]()
