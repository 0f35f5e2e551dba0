"""What a report is made of, checked, and which part of it the page shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .report_markup import left_out
from .report_results import LabelResults

#: Labels that have charts and pictures of their own; every label is in the table of labels.
MOST_LABELS = 24


@dataclass
class ReportContent:
    """What a report is made of. All but the title may be left out; the page then says less.

    Attributes
    ----------
    title : str
    facts : dict of str to str
        What was trained, on how many pictures, when, with which version and settings.
    label_names : tuple of str, (n_labels,)
    kernel_names, view_of : tuples of str, (n_kernels,)
        The kernels, and the view each of them describes.
    weights : array of shape (n_kernels,) or (n_labels, n_kernels)
    histories : list of structured arrays
        ``history_`` of the fit, or of each fit: iteration, gap, objective, active and seconds are read.
    scores, Y : arrays of shape (n_pictures, n_labels)
        Of held-out pictures: the scores, and 1, 0 or NaN (not judged).
    names : list of str, (n_pictures,)
    thumbnails : dict of int to bytes
        Small JPEG pictures by row; `pictures_to_show` says which rows are needed.
    views : tuple of str, (n_views,)
    contributions : array of shape (n_views, n_labels)
        Share of each view in the scores of each label.
    choice : list of dict
        Settings that were tried: method, weights, C, mean, std, chosen.
    problems : list of (what, reason)
        Pictures that were left out.
    measures : dict of str to float

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.app.report_content import ReportContent
    >>> content = ReportContent("Beach or not", label_names=("beach",), Y=np.array([[1], [0]]),
    ...                         scores=np.array([[0.7], [-0.2]]), names=["a.jpg", "b.jpg"])
    >>> content.facts["pictures"] = "2"
    """

    title: str
    facts: dict[str, str] = field(default_factory=dict)
    label_names: tuple[str, ...] = ()
    kernel_names: tuple[str, ...] = ()
    view_of: tuple[str, ...] = ()
    weights: NDArray | None = None
    histories: Sequence[NDArray] = ()
    scores: NDArray | None = None
    Y: NDArray | None = None
    names: Sequence[str] = ()
    thumbnails: Mapping[int, bytes] = field(default_factory=dict)
    views: tuple[str, ...] = ()
    contributions: NDArray | None = None
    choice: Sequence[Mapping[str, Any]] = ()
    problems: Sequence[tuple[str, str]] = ()
    measures: Mapping[str, float] = field(default_factory=dict)


class Page:
    """The content, checked, with what several sections say of it."""

    def __init__(self, content: ReportContent) -> None:
        self.content = content
        n_labels, n_kernels = len(content.label_names), len(content.kernel_names)
        self.weights = self._matrix("weights", content.weights)
        if self.weights is not None and self.weights.shape not in {(1, n_kernels), (n_labels, n_kernels)}:
            raise ValueError(
                f"weights must have the shape ({n_kernels},) or ({n_labels}, {n_kernels}), one number a kernel and "
                f"perhaps one row a label; got {np.asarray(content.weights).shape}."
            )
        if content.view_of and len(content.view_of) != n_kernels:
            raise ValueError(f"view_of must name the view of {n_kernels} kernels; got {len(content.view_of)} names.")
        self.contributions = self._matrix("contributions", content.contributions)
        expected = (len(content.views), n_labels)
        if self.contributions is not None and self.contributions.shape != expected:
            raise ValueError(
                f"contributions must have the shape {expected}, (n_views, n_labels); got {self.contributions.shape}."
            )
        self.results = self._read_results(n_labels)

    @staticmethod
    def _matrix(what: str, values: NDArray | None) -> NDArray[np.float64] | None:
        """Numbers as a matrix, a vector as one row; None if there are none."""
        if values is None or np.size(values) == 0:
            return None
        matrix = np.atleast_2d(np.asarray(values, dtype=np.float64))
        if matrix.ndim > 2:
            raise ValueError(f"{what} must be a vector or a matrix; got an array of shape {matrix.shape}.")
        return matrix

    def _read_results(self, n_labels: int) -> LabelResults | None:
        scores, Y, names = self.content.scores, self.content.Y, self.content.names
        if (scores is None) != (Y is None):
            raise ValueError("scores and Y belong together: give both, or neither.")
        if scores is None or np.size(scores) == 0:
            return None
        results = LabelResults(Y, scores)
        n_pictures, n_columns = results.scores.shape
        if n_columns != n_labels:
            raise ValueError(f"scores have {n_columns} columns, but label_names has {n_labels} names.")
        if len(names) not in (0, n_pictures):
            raise ValueError(f"scores have {n_pictures} rows, but names has {len(names)} names.")
        return results

    @cached_property
    def labels_shown(self) -> list[int]:
        """The labels that have a chart and pictures of their own."""
        if self.results is None:
            return list(range(min(len(self.content.label_names), MOST_LABELS)))
        return self.results.most_frequent(MOST_LABELS)

    @cached_property
    def rows_shown(self) -> tuple[int, ...]:
        if self.results is None:
            return ()
        return tuple(sorted(set().union(*(self.results.shown(label).rows for label in self.labels_shown))))

    @property
    def labels_left_out(self) -> str:
        """A sentence on the labels that are not in a chart; empty if all are."""
        return left_out(len(self.content.label_names) - len(self.labels_shown), "label", "with fewer pictures")

    def view_of(self, kernel: int) -> str:
        """The view that a kernel describes; empty if the views are not known."""
        return str(self.content.view_of[kernel]) if self.content.view_of else ""

    def label(self, index: int) -> str:
        return str(self.content.label_names[index])

    def picture(self, row: int) -> str:
        """The name of a picture, or its number, from 1, if there are no names."""
        return str(self.content.names[row]) if len(self.content.names) else f"picture {row + 1}"
