"""Tables of means and standard deviations over the repeats of an experiment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Table:
    """Means and standard deviations, made by :func:`summary_table`.

    Attributes
    ----------
    rows, columns : tuple
        What the rows and columns stand for.
    mean : array of shape (n_rows, n_columns)
        Mean of the values that are numbers; NaN in a cell without any.
    std : array of shape (n_rows, n_columns)
        Their standard deviation (with n - 1 in the denominator); NaN in a cell with fewer than two.
    count : array of shape (n_rows, n_columns), int
        How many values are numbers.
    missing : array of shape (n_rows, n_columns), int
        How many were NaN and left out.
    """

    rows: tuple[Any, ...]
    columns: tuple[Any, ...]
    mean: NDArray[np.float64] = field(repr=False)
    std: NDArray[np.float64] = field(repr=False)
    count: NDArray[np.int64] = field(repr=False)
    missing: NDArray[np.int64] = field(repr=False)

    def text(self, digits: int = 1, scale: float = 1.0, best: Literal["largest", "smallest"] | None = None) -> str:
        """The table in plain text.

        Parameters
        ----------
        digits : int
            Digits after the point.
        scale : float
            Factor of all numbers: 100 prints per cent.
        best : {"largest", "smallest"}, optional
            Which mean of each column is marked, with a star here and in bold in Markdown; all that print alike are.

        Returns
        -------
        str
            A cell that left out NaN says how many values it has, as in ``71.2 ± 0.4 (n=4)``.
        """
        cells = self._cells(digits, scale, best, "{}*")
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in cells]
        return "\n".join(lines)

    def markdown(self, digits: int = 1, scale: float = 1.0, best: Literal["largest", "smallest"] | None = None) -> str:
        """The table in Markdown; parameters as in :meth:`text`."""
        cells = self._cells(digits, scale, best, "**{}**")
        head, *body = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells]
        return "\n".join([head, "|---" + "|---:" * len(self.columns) + "|", *body])

    def __str__(self) -> str:
        return self.text()

    def _repr_markdown_(self) -> str:
        return self.markdown()

    def _cells(self, digits: int, scale: float, best: str | None, mark: str) -> list[list[str]]:
        """All cells as strings, the head row and the head column among them."""
        if best not in (None, "largest", "smallest"):
            raise ValueError(f"best must be 'largest', 'smallest' or None, got {best!r}.")
        means = [[f"{mean * scale:.{digits}f}" for mean in row] for row in self.mean]
        marked = np.zeros(self.mean.shape, dtype=bool)
        if best is not None:
            printed = np.array(means, dtype=np.float64)
            marked = printed == (np.fmax if best == "largest" else np.fmin).reduce(printed, axis=0)
        cells = [["", *map(str, self.columns)]]
        for i, row in enumerate(self.rows):
            shown = [mark.format(mean) if marked[i, k] else mean for k, mean in enumerate(means[i])]
            cells.append([str(row), *(self._with_deviation(mean, i, k, digits, scale) for k, mean in enumerate(shown))])
        return cells

    def _with_deviation(self, mean: str, i: int, k: int, digits: int, scale: float) -> str:
        if self.count[i, k] == 0:
            return "-"
        deviation = f" ± {self.std[i, k] * abs(scale):.{digits}f}" if self.count[i, k] > 1 else ""
        return mean + deviation + (f" (n={self.count[i, k]})" if self.missing[i, k] else "")


def summary_table(
    results: Mapping[tuple[Any, Any], Any] | Iterable[Mapping[str, Any]],
    rows: str | None = None,
    columns: str | None = None,
    value: str | None = None,
) -> Table:
    """Mean and standard deviation of repeated results.

    Parameters
    ----------
    results : mapping of (row, column) to values, or records
        Records are mappings, one a run, such as ``{"method": "ranker", "data": "scene", "auc": 0.91}``.
    rows, columns, value : str
        For records: the keys whose values name the row and the column, and the key of the number.

    Returns
    -------
    Table
        Rows and columns in the order in which they first occur.

    Examples
    --------
    >>> from kernelweave.evaluation import summary_table
    >>> table = summary_table({("ranker", "scene"): [0.90, 0.92], ("ranker", "birds"): [0.71, 0.75],
    ...                        ("one-vs-rest", "scene"): [0.88, 0.89], ("one-vs-rest", "birds"): [0.70, float("nan")]})
    >>> print(table.text(scale=100, best="largest"))
                         scene        birds
    ranker         91.0* ± 1.4  73.0* ± 2.8
    one-vs-rest     88.5 ± 0.7   70.0 (n=1)
    >>> runs = [{"method": "ranker", "data": "scene", "auc": auc} for auc in (0.90, 0.92)]
    >>> print(summary_table(runs, rows="method", columns="data", value="auc").markdown(digits=3))
    |  | scene |
    |---|---:|
    | ranker | 0.910 ± 0.014 |
    """
    if isinstance(results, Mapping):
        if (rows, columns, value) != (None, None, None):
            raise ValueError("rows, columns and value are for records; the keys of a mapping are pairs (row, column).")
        cells = _from_mapping(results)
    elif rows is None or columns is None or value is None:
        raise ValueError(
            "For records give rows, columns and value: the keys that name the row, the column, the number."
        )
    else:
        cells = _from_records(results, rows, columns, value)
    if not cells:
        raise ValueError("There are no results to summarise: results is empty.")
    row_names = tuple(dict.fromkeys(row for row, _ in cells))
    column_names = tuple(dict.fromkeys(column for _, column in cells))
    shape = len(row_names), len(column_names)
    mean, std = np.full(shape, np.nan), np.full(shape, np.nan)
    count, missing = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    for (row, column), values in cells.items():
        at = row_names.index(row), column_names.index(column)
        numbers = values[~np.isnan(values)]
        count[at], missing[at] = len(numbers), len(values) - len(numbers)
        if len(numbers):
            mean[at] = numbers.mean()
        if len(numbers) > 1:
            std[at] = numbers.std(ddof=1)
    return Table(row_names, column_names, mean, std, count, missing)


def _from_mapping(results: Mapping[Any, Any]) -> dict[tuple[Any, Any], NDArray]:
    for key in results:
        if not isinstance(key, tuple) or len(key) != 2:
            raise ValueError(f"Keys of results must be pairs (row, column), got {key!r}.")
    return {key: _values(values, f"results[{key!r}]") for key, values in results.items()}


def _from_records(
    records: Iterable[Mapping[str, Any]], rows: str, columns: str, value: str
) -> dict[tuple[Any, Any], NDArray]:
    cells: dict[tuple[Any, Any], list[NDArray]] = {}
    for i, record in enumerate(records):
        if not isinstance(record, Mapping):
            raise TypeError(
                f"Record {i} must be a mapping of keys to values, got {type(record).__name__}; a frame gives its "
                "records by to_dict('records') (pandas) or to_dicts() (polars)."
            )
        lacking = [key for key in (rows, columns, value) if key not in record]
        if lacking:
            raise ValueError(f"Record {i} has no {lacking[0]!r}; it has {', '.join(map(repr, record))}.")
        numbers = _values(record[value], f"{value!r} of record {i}")
        cells.setdefault((record[rows], record[columns]), []).append(numbers)
    return {key: np.concatenate(parts) for key, parts in cells.items()}


def _values(values: Any, what: str) -> NDArray[np.float64]:
    """One number, or several, as a vector; None is NaN."""
    try:
        return np.atleast_1d(np.asarray(values, dtype=np.float64)).ravel()
    except (TypeError, ValueError):
        raise ValueError(f"{what} must be a number or a list of numbers, got {values!r}.") from None
