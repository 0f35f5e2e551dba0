"""Labels of pictures into files that other programs read, and :func:`~kernelweave.datasets.read_pictures` reads back.

Every file is replaced in one step: it is there whole or not at all. No picture is ever changed. What is written is the
data as it is: a spreadsheet may take a label that starts with "=" for a formula.
"""

from __future__ import annotations

import csv
import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from .._files import atomic_write
from ..labels import Labels, as_labels
from .label_tables import CLASS_NAMES, TAGS_NAMES
from .picture_sets import name_inside
from .xmp import check_label, find_sidecar, write_keywords

PathLike = str | os.PathLike[str]


def write_csv(path: PathLike, pictures: Sequence[PathLike], label_names: ArrayLike, Y: Any) -> None:
    """Write labels as a table with one column a label: 1 yes, 0 no, empty where nobody judged.

    Parameters
    ----------
    path : path
        The table; names of pictures below its folder are written relative to it, others absolute.
    pictures : sequence of n_pictures paths
    label_names : array of shape (n_labels,)
    Y : labels of shape (n_pictures, n_labels), in any form that `kernelweave.labels.as_labels` reads

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from kernelweave.datasets import write_csv
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table = Path(folder) / "labels.csv"
    ...     write_csv(table, [Path(folder) / "a.jpg"], ["sea", "sky", "tree"], [[1, 0, float("nan")]])
    ...     print(table.read_text().strip())
    "file_name","sea","sky","tree"
    a.jpg,1,0,
    """
    labels = _checked(pictures, label_names, Y)
    names = labels.names.tolist()
    if len(names) == 1 and names[0].lower() in CLASS_NAMES | TAGS_NAMES:
        raise ValueError(f"a table with the one label {names[0]!r} would be read as a column of classes; rename it")
    rows = ([name, *_states(signs)] for name, signs in zip(_names(path, pictures), labels.signs, strict=True))
    write_table(path, ["file_name", *names], rows, "csv")


def write_jsonl(path: PathLike, pictures: Sequence[PathLike], label_names: ArrayLike, Y: Any) -> None:
    """Write labels as JSON Lines, one object a picture: ``{"file_name": "a.jpg", "labels": {"sea": 1, "sky": 0}}``,
    with null where nobody judged. Parameters as in :func:`write_csv`.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from kernelweave.datasets import write_jsonl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table = Path(folder) / "metadata.jsonl"
    ...     write_jsonl(table, [Path(folder) / "a.jpg"], ["sea", "sky"], [[1, float("nan")]])
    ...     print(table.read_text().strip())
    {"file_name": "a.jpg", "labels": {"sea": 1, "sky": null}}
    """
    labels = _checked(pictures, label_names, Y)
    names = labels.names.tolist()
    rows = (
        [name, dict(zip(names, _states(signs), strict=True))]
        for name, signs in zip(_names(path, pictures), labels.signs, strict=True)
    )
    write_table(path, ["file_name", "labels"], rows, "jsonl")


def write_sidecars(pictures: Sequence[PathLike], label_names: ArrayLike, Y: Any) -> list[Path]:
    """Write labels into XMP sidecars beside the pictures.

    A label that applies becomes a keyword, one that does not is taken away from the keywords and noted as absent, and
    one that nobody judged is left as it is. So are all other keywords and all else in a sidecar. A picture's sidecar is
    ``photo.jpg.xmp``, or a ``photo.xmp`` that no other of the pictures shares; a picture without one gets
    ``photo.jpg.xmp``, unless none of its labels was judged.

    Parameters
    ----------
    pictures : sequence of n_pictures paths
    label_names : array of shape (n_labels,)
    Y : labels of shape (n_pictures, n_labels), in any form that `kernelweave.labels.as_labels` reads

    Returns
    -------
    list of Path
        The sidecars that were written.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from kernelweave.datasets import write_sidecars
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     picture = Path(folder) / "a.jpg"
    ...     [path.name for path in write_sidecars([picture], ["sea", "sky"], [[1, 0]])]
    ['a.jpg.xmp']
    """
    labels = _checked(pictures, label_names, Y)
    paths = [Path(picture) for picture in pictures]
    found = [find_sidecar(picture) for picture in paths]
    shared = Counter(found)
    written = []
    for picture, sidecar, signs in zip(paths, found, labels.signs, strict=True):
        if not signs.any():
            continue
        if sidecar is None or shared[sidecar] > 1:
            sidecar = picture.with_name(picture.name + ".xmp")
        write_keywords(sidecar, labels.names[signs > 0].tolist(), absent=labels.names[signs < 0].tolist())
        written.append(sidecar)
    return written


def write_table(
    path: PathLike, columns: Sequence[str], rows: Iterable[Sequence[Any]], format: Literal["csv", "jsonl"] = "csv"
) -> None:
    """Write rows of texts and numbers as CSV, or as JSON Lines with one object a row.

    Parameters
    ----------
    path : path
    columns : sequence of str
        Names of the columns. In JSON Lines they are the keys, and differ.
    rows : iterable of sequences, one value a column
        None and NaN become an empty cell, in JSON null.
    format : {"csv", "jsonl"}

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from kernelweave.datasets import write_table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table = Path(folder) / "scores.jsonl"
    ...     write_table(table, ["picture", "label", "score"], [["a.jpg", "sea", 0.5], ["b.jpg", "sky", None]], "jsonl")
    ...     print(table.read_text().strip())
    {"picture": "a.jpg", "label": "sea", "score": 0.5}
    {"picture": "b.jpg", "label": "sky", "score": null}
    """
    if format not in ("csv", "jsonl"):
        raise ValueError(f"format must be 'csv' or 'jsonl', got {format!r}")
    if format == "jsonl" and len(set(columns)) < len(columns):
        raise ValueError(f"the columns of JSON Lines must have different names, got {list(columns)}")
    with atomic_write(path, text=True) as file:
        write_rows(file, columns, rows, format)


def write_rows(file: IO[str], columns: Sequence[str], rows: Iterable[Sequence[Any]], format: str) -> None:
    """As `write_table`, to a file that is open. In CSV a list is written with ";" between its parts."""
    cells = csv.writer(file)
    if format == "csv":
        # All names of columns are quoted: what separates columns is recognised by what is outside quotation marks.
        csv.writer(file, quoting=csv.QUOTE_ALL).writerow(columns)
    for row in rows:
        values = [_plain(value) for value in row]
        if len(values) != len(columns):
            raise ValueError(f"a row has {len(values)} values for {len(columns)} columns: {values}")
        if format == "csv":
            cells.writerow([";".join(value) if isinstance(value, list) else value for value in values])
        else:
            record = dict(zip(columns, values, strict=True))
            file.write(json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n")


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and math.isnan(value) else value


def _checked(pictures: Sequence[PathLike], label_names: ArrayLike, Y: Any) -> Labels:
    names = np.asarray(label_names)
    labels = as_labels(Y, names)
    if len(labels.signs) != len(pictures):
        raise ValueError(f"there are {len(pictures)} pictures, but Y has {len(labels.signs)} rows")
    for name in names.tolist():
        check_label(name, "label_names")
    return labels


def _states(signs: np.ndarray) -> list[int | None]:
    return [None if sign == 0 else int(sign > 0) for sign in signs.tolist()]


def _names(table: PathLike, pictures: Sequence[PathLike]) -> list[str]:
    """Names of pictures as a table in this place has them."""
    folder = os.path.dirname(os.path.abspath(table))
    inside = [name_inside(folder, picture) for picture in pictures]
    return [
        os.path.abspath(picture) if name is None else name.as_posix()
        for picture, name in zip(pictures, inside, strict=True)
    ]
