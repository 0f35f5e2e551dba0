"""Many measures of one prediction in a table, for all rows and for parts of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..labels import as_labels
from .formulas import Measured, Scored, parse

#: What `evaluate` computes unless told otherwise.
DEFAULT_MEASURES = (
    "image_auc",
    "pooled_auc",
    "category_auc",
    "micro_auc",
    "image_ap",
    "category_ap",
    "one_error",
    "coverage",
    "ranking_loss",
    "lrap",
)


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation(Mapping[str, Measured]):
    """Measures by name, with a readable ``str``.

    Attributes
    ----------
    results : dict of str to Measured
    n_samples : int
    groups : dict of str to Evaluation
        The same measures on parts of the rows; empty unless `evaluate` was given some.
    """

    results: dict[str, Measured]
    n_samples: int
    groups: dict[str, Evaluation]

    def __getitem__(self, name: str) -> Measured:
        return self.results[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    def __str__(self) -> str:
        head = ("measure", "value", "used", "skipped", "tied")
        lines = [
            (name, f"{of.value:.4f}", f"{of.n_used:,}", f"{of.n_skipped:,}", f"{of.n_tied:,}")
            for name, of in self.items()
        ]
        first, *others = (max(map(len, column)) for column in zip(head, *lines, strict=True))
        table = "\n".join(
            f"{name:<{first}}" + "".join(f"  {cell:>{width}}" for cell, width in zip(cells, others, strict=True))
            for name, *cells in (head, *lines)
        )
        parts = (
            f"\n\n{name} ({part.n_samples:,} of {self.n_samples:,} rows)\n{part}" for name, part in self.groups.items()
        )
        return table + "".join(parts)

    __repr__ = __str__


def evaluate(
    Y: Any,
    scores: ArrayLike,
    measures: Sequence[str] = DEFAULT_MEASURES,
    by: Mapping[str, ArrayLike] | None = None,
) -> Evaluation:
    """Compute several measures of one prediction; they share the sorting.

    Parameters
    ----------
    Y : label matrix of shape (n_samples, n_labels)
        0 and 1, or -1 and +1, NaN or masked where a label was never judged; sparse, a frame, or tags.
    scores : array of shape (n_samples, n_labels)
        The larger, the more relevant.
    measures : sequence of str
        Names from ``MEASURES``, for example ``(*DEFAULT_MEASURES, "image_f1@5")``.
    by : mapping of names to boolean arrays of shape (n_samples,), optional
        Parts of the rows to evaluate as well, for example those of `subpopulations`.

    Returns
    -------
    Evaluation

    Examples
    --------
    >>> from kernelweave.evaluation import evaluate, subpopulations
    >>> Y = [[1, 0, 1], [0, 0, 1], [0, 1, float("nan")], [0, 0, 0]]
    >>> scores = [[0.9, 0.5, 0.1], [0.3, 0.2, 0.8], [0.4, 0.4, 0.9], [0.1, 0.2, 0.3]]
    >>> table = evaluate(Y, scores, ["image_auc", "category_ap", "image_precision@1"], by=subpopulations(Y))
    >>> print(table)
    measure             value  used  skipped  tied
    image_auc          0.6667     3        1     1
    category_ap        0.7778     3        0     0
    image_precision@1  0.5000     4        0     1
    <BLANKLINE>
    one label (2 of 4 rows)
    measure             value  used  skipped  tied
    image_auc          0.7500     2        0     1
    category_ap        1.0000     2        1     0
    image_precision@1  0.5000     2        0     1
    <BLANKLINE>
    several labels (1 of 4 rows)
    measure             value  used  skipped  tied
    image_auc          0.5000     1        0     0
    category_ap        1.0000     2        1     0
    image_precision@1  1.0000     1        0     0
    >>> table["image_auc"].value == table.groups["several labels"]["image_auc"].value
    False
    """
    if isinstance(measures, str):
        raise TypeError(f"measures must be a list of names; got the string {measures!r}: write [{measures!r}].")
    for name in measures:
        parse(name)  # a misspelt name is refused before anything is computed
    scored = Scored.read(Y, scores)
    groups = {name: _flags(rows, len(scored.signs), name) for name, rows in (by or {}).items()}
    parts = {name: _evaluation(scored.rows(rows), measures) for name, rows in groups.items()}
    return _evaluation(scored, measures, parts)


def subpopulations(Y: Any) -> dict[str, NDArray[np.bool_]]:
    """Rows with exactly one relevant label, and rows with two or more.

    Parameters
    ----------
    Y : label matrix of shape (n_samples, n_labels)

    Returns
    -------
    dict of str to boolean array of shape (n_samples,)
        "one label" and "several labels".

    Examples
    --------
    >>> from kernelweave.evaluation import subpopulations
    >>> {name: rows.tolist() for name, rows in subpopulations([[1, 0], [1, 1], [0, 0]]).items()}
    {'one label': [True, False, False], 'several labels': [False, True, False]}
    """
    n_relevant = as_labels(Y).relevant.sum(axis=1)
    return {"one label": n_relevant == 1, "several labels": n_relevant >= 2}


def _evaluation(scored: Scored, measures: Sequence[str], groups: dict[str, Evaluation] | None = None) -> Evaluation:
    return Evaluation({name: parse(name)(scored) for name in measures}, len(scored.signs), groups or {})


def _flags(rows: ArrayLike, n_samples: int, name: str) -> NDArray[np.bool_]:
    flags = np.asarray(rows)
    if flags.dtype != np.bool_ or flags.shape != (n_samples,):
        raise ValueError(
            f"by[{name!r}] must be a boolean array of shape ({n_samples},), one value a row of Y; got {flags.dtype} of "
            f"shape {flags.shape}."
        )
    return flags
