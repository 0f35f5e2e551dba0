"""Data to try things on, and readers for data that people have.

Generated: views and points with a known answer, scenes drawn by code. Bundled: handwritten digits seen in several ways.
Read and written: labelled pictures (folders, tables, sidecars), and files of features.
"""

from __future__ import annotations

from .bags import make_bags
from .digits import digits_views
from .feature_files import FeatureSet, load_arff, load_libsvm, load_npz
from .generated import make_chessboard, make_regression_views, make_tagged_views, make_two_clouds, make_views
from .picture_sets import PictureSet, read_pictures
from .privileged import make_privileged
from .scenes import Scenes, make_scenes, write_scenes
from .writers import write_csv, write_jsonl, write_sidecars, write_table
from .xmp import read_keywords, write_keywords

__all__ = [
    "FeatureSet",
    "PictureSet",
    "Scenes",
    "digits_views",
    "load_arff",
    "load_libsvm",
    "load_npz",
    "make_bags",
    "make_chessboard",
    "make_privileged",
    "make_regression_views",
    "make_scenes",
    "make_tagged_views",
    "make_two_clouds",
    "make_views",
    "read_keywords",
    "read_pictures",
    "write_csv",
    "write_jsonl",
    "write_keywords",
    "write_scenes",
    "write_sidecars",
    "write_table",
]
