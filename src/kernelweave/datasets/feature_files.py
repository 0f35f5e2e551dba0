"""Features and labels from the files that other programs write: libsvm, ARFF (WEKA, MULAN, MEKA) and npz (NumPy)."""

from __future__ import annotations

import bz2
import gzip
import math
import os
import re
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from ..labels import Labels, as_labels
from ..views import Views
from .arff import ArffFile, Column, read_arff
from .picture_sets import class_names
from .xmp import read_xml

#: Most bytes that a sparse file may fill as a dense array.
MOST_BYTES = 2**33

PathLike = str | os.PathLike[str]


@dataclass(frozen=True, eq=False)
class FeatureSet:
    """Views and labels from a file.

    Attributes
    ----------
    views : Views
    Y : array of shape (n_samples, n_labels) or None
        1 the label applies, 0 it does not, NaN nobody judged. None when the file has no labels.
    label_names : tuple of str
        Names of the columns of Y.
    single : bool
        Whether every sample has exactly one class.
    """

    views: Views
    Y: NDArray[np.float64] | None = None
    label_names: tuple[str, ...] = ()
    single: bool = False

    @property
    def classes(self) -> NDArray[np.str_]:
        """Names of the classes, (n_samples,), when every sample has one; "" where it was not judged."""
        if not self.single or self.Y is None:
            raise ValueError("these samples have no classes, but labels of which several can apply: use Y")
        return class_names(self.Y, self.label_names)


def load_libsvm(path: PathLike, n_features: int | None = None) -> FeatureSet:
    """Read a file of libsvm (svmlight), also with several labels a line, and also packed (.gz, .bz2).

    Parameters
    ----------
    path : path
        Lines such as ``2 1:0.5 7:1`` with one class, or ``1,3 1:0.5 7:1`` with several labels.
    n_features : int, optional
        Number of columns; needed when the file may lack the last columns of another one.

    Returns
    -------
    FeatureSet
        With one view ``"x"``. Labels are called as in the file, in the order of their numbers.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from kernelweave.datasets import load_libsvm
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "some.libsvm").write_text("1,3 1:0.5 2:1\\n3 2:2\\n")
    ...     loaded = load_libsvm(Path(folder) / "some.libsvm")
    >>> loaded.views["x"].tolist(), loaded.label_names, loaded.Y.tolist()
    ([[0.5, 1.0], [0.0, 2.0]], ('1', '3'), [[1.0, 1.0], [0.0, 1.0]])
    """
    from sklearn.datasets import load_svmlight_file

    path = Path(path)
    with _opened(path) as file:
        several = _has_label_lists(file)
        file.seek(0)
        try:
            X, y = load_svmlight_file(file, n_features=n_features, multilabel=several)
            if X.shape[0] * X.shape[1] * 8 > MOST_BYTES:
                raise ValueError(f"{X.shape[0]} rows and {X.shape[1]} columns are too many for a dense array")
            views = Views({"x": X.toarray()})
        except ValueError as error:
            file.seek(0)
            raise ValueError(f"{path}{_first_bad_line(file)}: {error}") from None
    numbers = sorted({number for row in y for number in (row if several else (row,))})
    uneven = next((number for number in numbers if number != int(number)), None)
    if uneven is not None:
        raise ValueError(f"{path}: classes are whole numbers, but there is a {uneven:g}; is this file for regression?")
    # A set a row, since lists of numbers would be a matrix.
    labels = as_labels([{*row} if several else {row} for row in y], names=numbers)
    return _feature_set(views, labels, [f"{number:.0f}" for number in numbers], single=not several)


def load_npz(path: PathLike) -> FeatureSet:
    """Read a file of NumPy arrays, as ``numpy.savez`` writes it. Nothing in it is run.

    Parameters
    ----------
    path : path
        Its arrays ``Y``, ``y`` or ``labels`` (at most one of them) are the labels: a vector of classes or a matrix with
        one column a label, NaN where nobody judged. ``label_names`` are the names of the columns, or of the classes 0,
        1, ... Arrays of text besides are passed over; every other array is a view of shape (n_samples, n_columns).

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from kernelweave.datasets import load_npz
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(Path(folder) / "some.npz", gist=np.ones((3, 4)), y=["cat", "dog", "cat"])
    ...     loaded = load_npz(Path(folder) / "some.npz")
    >>> loaded.views, loaded.classes.tolist()
    (Views(3 samples; 'gist': 4 columns), ['cat', 'dog', 'cat'])
    """
    path = Path(path)
    try:
        archive = np.load(path, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise ValueError("it holds one array without a name; save several with numpy.savez")
        with archive:
            arrays = {name: archive[name] for name in archive.files}
        names = arrays.pop("label_names", None)
        given = [name for name in ("Y", "y", "labels") if name in arrays]
        if len(given) > 1:
            raise ValueError(f"labels are in {' and '.join(given)}; keep one of them")
        Y = arrays.pop(given[0]) if given else None
        arrays = {name: array for name, array in arrays.items() if array.dtype.kind not in "SU"}
        if not arrays:
            raise ValueError("there are labels but no features in it" if given else "it is empty")
        views = Views(arrays)
        if Y is None:
            return FeatureSet(views)
        if len(Y) != views.n_samples:
            raise ValueError(f"{given[0]!r} has {len(Y)} rows, but the views have {views.n_samples}")
        if Y.ndim == 1:
            return _of_classes(views, *_class_list(Y, names))
        labels = as_labels(Y, names, what=repr(given[0]))
        return _feature_set(views, labels, [str(name) for name in labels.names.tolist()], single=False)
    except (ValueError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} cannot be read as features: {error}") from error


def load_arff(
    path: PathLike, labels: int | Sequence[str] | PathLike | None = None, missing: float | None = None
) -> FeatureSet:
    """Read an ARFF file of WEKA, MULAN or MEKA, with dense or sparse rows.

    Parameters
    ----------
    path : path
    labels : int, list of names or path of a MULAN label file (.xml), optional
        Which attributes are the labels: the last so many (the first, when negative), these, or those of the file. By
        default the file of the same name that ends in .xml, if there is one; else what ``-C`` in the name of the
        relation says (MEKA); else the attribute ``class``, or the last one if it is nominal (WEKA).
    missing : float, optional
        The number that stands for ``?`` in a feature, where kernels need one; without it that is an error. In a label
        ``?`` says that nobody judged.

    Returns
    -------
    FeatureSet
        With one view ``"x"``: numbers as they are, other nominal attributes as one column of 0 and 1 a value. Texts and
        dates are left out.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from kernelweave.datasets import load_arff
    >>> text = '''@relation 'birds: -C 2'
    ... @attribute wren {0,1}
    ... @attribute 'house sparrow' {0,1}
    ... @attribute pitch numeric
    ... @data
    ... 1,0,440
    ... {1 1, 2 220.5}'''
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "birds.arff").write_text(text)
    ...     loaded = load_arff(Path(folder) / "birds.arff")
    >>> loaded.label_names, loaded.Y.tolist(), loaded.views["x"].tolist()
    (('wren', 'house sparrow'), [[1.0, 0.0], [0.0, 1.0]], [[440.0], [220.5]])
    """
    path = Path(path)
    file = read_arff(path)
    chosen = _label_columns(path, file, labels)
    features = [_features(column, missing) for column in file.columns if column not in chosen]
    features = [block for block in features if block.shape[1]]
    if not features:
        raise ValueError(f"{path} has no numeric or nominal attributes besides its labels")
    views = Views({"x": np.hstack(features)})
    if not chosen:
        return FeatureSet(views)
    if len(chosen) == 1 and not chosen[0].attribute.yes_or_no:
        return _of_classes(views, chosen[0].categories(), chosen[0].attribute.values)
    Y = np.column_stack([column.numbers() for column in chosen])
    return FeatureSet(views, Y, tuple(column.attribute.name for column in chosen))


def _feature_set(views: Views, labels: Labels, names: Sequence[str], single: bool) -> FeatureSet:
    Y = np.where(labels.known, labels.relevant.astype(np.float64), np.nan)
    return FeatureSet(views, Y, tuple(names), single)


def _of_classes(views: Views, classes: Sequence[str | None], names: Sequence[str]) -> FeatureSet:
    """One class a sample, None where it was not judged."""
    Y = np.array([[np.nan if given is None else float(given == name) for name in names] for given in classes])
    return FeatureSet(views, Y, tuple(names), single=True)


def _class_list(y: NDArray, names: NDArray | None) -> tuple[list[str | None], list[str]]:
    """Classes as texts, None for NaN, and their names in order. Whole numbers may stand for given names."""
    if names is not None and y.dtype.kind in "iu":
        if y.min() < 0 or y.max() >= len(names):
            raise ValueError(f"classes go from {y.min()} to {y.max()}, but there are {len(names)} label_names")
        return [str(names[number]) for number in y], [str(name) for name in names]
    if y.dtype.kind == "f":
        known = np.unique(y[~np.isnan(y)])
        return [None if np.isnan(value) else f"{value:g}" for value in y], [f"{value:g}" for value in known]
    return [str(value) for value in y], [str(value) for value in np.unique(y)]


def _opened(path: Path) -> IO[bytes] | gzip.GzipFile | bz2.BZ2File:
    if path.suffix == ".gz":
        return gzip.open(path, "rb")
    return bz2.open(path, "rb") if path.suffix == ".bz2" else open(path, "rb")


def _has_label_lists(file: Iterable[bytes]) -> bool:
    """Whether some line of a libsvm file has several labels, or none."""
    starts = (line.split(b"#", 1)[0].split(None, 1)[:1] for line in file)
    return any(b"," in start[0] or b":" in start[0] for start in starts if start)


def _first_bad_line(file: Iterable[bytes]) -> str:
    """Which line is not made of labels and pairs, for a message; "" when all are."""
    for number, line in enumerate(file, start=1):
        words = line.decode("utf-8", errors="replace").split("#", 1)[0].split()
        labels = words[0].split(",") if words and ":" not in words[0] else []
        pairs = [word.partition(":") for word in (words[1:] if labels else words)]
        try:
            _ = [float(label) for label in labels], [int(index) for index, _, _ in pairs if index != "qid"]
            finite = all(math.isfinite(float(value)) for _, _, value in pairs)
        except ValueError:
            finite = False
        if not finite:
            return f", line {number} ({' '.join(words)[:60]!r})"
    return ""


def _label_columns(path: Path, file: ArffFile, labels: int | Sequence[str] | PathLike | None) -> list[Column]:
    """The columns that are labels: several that say yes or no, one with classes, or none."""
    if labels is None:
        beside = path.with_suffix(".xml")
        labels = beside if beside.is_file() else _meka_labels(file.relation)
    if labels is None:
        last = file.columns[-1]
        nominal = [column for column in file.columns if column.attribute.kind == "nominal"]
        named = [column for column in nominal if column.attribute.name.lower() == "class"]
        chosen = named[:1] or [column for column in nominal if column is last]
    elif isinstance(labels, int):
        if not 0 < abs(labels) < len(file.columns):
            raise ValueError(f"{path} has {len(file.columns)} attributes; {labels} of them cannot be the labels")
        chosen = file.columns[-labels:] if labels > 0 else file.columns[:-labels]
    else:
        names = _mulan_labels(Path(labels)) if isinstance(labels, (str, os.PathLike)) else list(labels)
        by_name = {column.attribute.name: column for column in file.columns}
        for name in names:
            if name not in by_name:
                raise ValueError(f"{path} has no attribute {name!r}, which should be a label")
        chosen = [by_name[name] for name in names]
    for column in chosen:
        attribute = column.attribute
        if not attribute.yes_or_no and (len(chosen) > 1 or attribute.kind != "nominal"):
            raise ValueError(f"{path}: {attribute.name!r} cannot be a label: its values must be {{0,1}}")
    return chosen


def _meka_labels(relation: str) -> int | None:
    found = re.search(r"-[cC]\s+(-?\d+)", relation)
    # MEKA counts labels from the start, and from the end when the number is negative.
    return -int(found.group(1)) if found else None


def _mulan_labels(path: Path) -> list[str]:
    names = [element.getAttribute("name") for element in read_xml(path).getElementsByTagName("label")]
    if not names:
        raise ValueError(f"{path} is not a label file of MULAN: it has no <label name=...>")
    return names


def _features(column: Column, missing: float | None) -> NDArray[np.float64]:
    """An attribute as columns of numbers, (n_samples, n_columns); a text has none."""
    kind = column.attribute.kind
    if kind == "text":
        return np.empty((len(column.cells), 0))
    if missing is None and None in column.cells:
        raise column.error(column.cells.index(None), "a value is missing (?); give missing=, a number to put there")
    if kind == "nominal" and not column.attribute.yes_or_no:
        values, cells = column.attribute.values, column.categories()
        block = np.array([[np.nan if cell is None else float(cell == value) for value in values] for cell in cells])
    else:
        block = column.numbers()[:, None]
    return block if missing is None else np.where(np.isnan(block), missing, block)
