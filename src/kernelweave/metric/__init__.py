"""Distances learned from pairs that belong together and pairs that do not, with or without privileged information.

Privileged information is what training samples have and new ones will not: depth beside colour, a costly assay beside
a cheap one. It decides how hard each pair of training samples is pressed, and is not needed afterwards.
"""

from __future__ import annotations

from .base import EuclideanMetric, Mahalanobis, WhitenedMetric
from .itml import ITML
from .itml_plus import ITMLS, ITMLPlus, PartialITMLPlus
from .pairs import PairSet

__all__ = [
    "ITML",
    "ITMLS",
    "EuclideanMetric",
    "ITMLPlus",
    "Mahalanobis",
    "PairSet",
    "PartialITMLPlus",
    "WhitenedMetric",
]
