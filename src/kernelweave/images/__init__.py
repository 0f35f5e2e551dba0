"""From pictures to views: where to look, what to measure, which words, how to pool; and features of the whole picture.

A *preset* is a list of features; :class:`ImageFeatures` learns what it needs from training pictures and turns any
pictures into :class:`~kernelweave.Views`, a kernel for each.
"""

from .bag import BagOfWords, BoxWords
from .base import Feature, Picture, What, Where
from .cache import FeatureCache
from .extraction import Extracted, ImageFeatures
from .histograms import HOG, PHOG, ColourHistogram, LBPHistogram
from .joint import ProductOf
from .layouts import pyramid, random_boxes
from .local import ColourPatch, Gradients, LocalBinaryPatterns, RobustHue, SelfSimilarity
from .pictures import UnreadablePicture, read_picture
from .places import DenseGrid, EdgePoints, HarrisLaplace, RandomWindows, Together
from .presets import PRESETS, RECIPES, preset
from .sift import SIFT
from .whole import GIST, GeometricBlur, RegionCovariance, V1Like
from .words import KMeans, Prototypes

__all__ = [
    "GIST",
    "HOG",
    "PHOG",
    "PRESETS",
    "RECIPES",
    "SIFT",
    "BagOfWords",
    "BoxWords",
    "ColourHistogram",
    "ColourPatch",
    "DenseGrid",
    "EdgePoints",
    "Extracted",
    "Feature",
    "FeatureCache",
    "GeometricBlur",
    "Gradients",
    "HarrisLaplace",
    "ImageFeatures",
    "KMeans",
    "LBPHistogram",
    "LocalBinaryPatterns",
    "Picture",
    "ProductOf",
    "Prototypes",
    "RandomWindows",
    "RegionCovariance",
    "RobustHue",
    "SelfSimilarity",
    "Together",
    "UnreadablePicture",
    "V1Like",
    "What",
    "Where",
    "preset",
    "pyramid",
    "random_boxes",
    "read_picture",
]
