"""What a tagger says about pictures: scores, tags, suggestions, and how good they are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..evaluation import evaluate
from ..labels import Labels, Signs
from .labelled import Problem

Array = NDArray[np.float64]


class Tag(NamedTuple):
    """A label of a picture, its score, and whether the model would give it to the picture."""

    label: str
    score: float
    given: bool


class Suggestion(NamedTuple):
    """A label that a picture probably lacks: which of the pictures given, its name, the label, by how much it stands
    out, and, where pictures have one class, the class that it would replace ("" for a picture that has none)."""

    row: int
    picture: str
    label: str
    score: float
    instead_of: str


@dataclass(frozen=True, eq=False)
class Tagged:
    """Scores of those pictures that could be read.

    Attributes
    ----------
    rows : array of int of shape (n_readable,)
        Which of the pictures given these are.
    scores : array of shape (n_readable, n_labels)
    problems : list of (picture, reason)
        The others.
    n_known : int
        How many of them are training pictures with scores of models that have not learned from them.
    """

    rows: NDArray[np.intp]
    scores: Array
    problems: list[Problem]
    n_known: int = 0


def measures(labels: Labels, scores: Array, single: bool) -> dict[str, float]:
    """Measures of scores, (n_pictures, n_labels), without those that say nothing here; the first is the main one."""
    found = {name: of.value for name, of in evaluate(labels, scores).items()}
    first = {"accuracy": 1.0 - found["one_error"]} if single else {"category_ap": found["category_ap"]}
    return {name: value for name, value in (first | found).items() if not math.isnan(value)}


def other_classes(signs: Signs, scores: Array) -> tuple[NDArray, NDArray, Array]:
    """Pictures, (n_found,), whose best class is not the one they have, that class, and by how much it is better.

    For pictures without a class: than the second best.
    """
    if scores.shape[1] < 2:
        return np.empty(0, np.intp), np.empty(0, np.intp), np.empty(0)
    best = scores.argmax(axis=1)
    has = (signs > 0).any(axis=1)
    own = scores[np.arange(len(scores)), (signs > 0).argmax(axis=1)]
    second = np.partition(scores, -2, axis=1)[:, -2]
    ahead = scores.max(axis=1) - np.where(has, own, second)
    rows = np.flatnonzero((signs[np.arange(len(signs)), best] <= 0) & (ahead > 0))
    return rows, best[rows], ahead[rows]
