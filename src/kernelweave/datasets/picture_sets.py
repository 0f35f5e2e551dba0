"""Pictures with their labels, from the forms people have them in: tables, sidecars, a folder a class, or none."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .._files import PICTURE_SUFFIXES
from ..views import as_row_index
from .label_tables import Judgement, LabelTable, Problem, read_label_table
from .xmp import find_sidecar, read_sidecar

#: Label files that are found in a folder by themselves, the first one counts.
LABEL_FILES = ("metadata.csv", "metadata.jsonl", "labels.csv")


@dataclass(frozen=True, eq=False)
class PictureSet:
    """Pictures and what is known about them.

    Attributes
    ----------
    paths : tuple of Path
        The pictures. None of them was opened.
    Y : array of shape (n_pictures, n_labels) or None
        1 the label applies, 0 it does not, NaN nobody judged. None when there are no labels at all.
    label_names : tuple of str
        Names of the columns of Y.
    single : bool
        Whether every picture has exactly one class (or was not judged), as with a folder a class.
    problems : tuple of (what, reason)
        What was left out or is contradictory, and why.

    Notes
    -----
    ``pictures[rows]``, with an integer array, a mask or a slice, is the `PictureSet` of these pictures.
    """

    paths: tuple[Path, ...]
    Y: NDArray[np.float64] | None = None
    label_names: tuple[str, ...] = ()
    single: bool = False
    problems: tuple[Problem, ...] = ()

    @property
    def classes(self) -> NDArray[np.str_]:
        """Names of the classes, (n_pictures,), when every picture has one; "" where it was not judged."""
        if not self.single or self.Y is None:
            raise ValueError("these pictures have no classes, but labels of which several can apply: use Y")
        return class_names(self.Y, self.label_names)

    @property
    def judged(self) -> NDArray[np.bool_]:
        """Whether at least one label of a picture was judged, (n_pictures,)."""
        if self.Y is None:
            return np.zeros(len(self), dtype=bool)
        return np.any(~np.isnan(self.Y), axis=1)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, rows: Any) -> PictureSet:
        chosen = np.arange(len(self))[as_row_index(rows, len(self))]
        Y = None if self.Y is None else self.Y[chosen]
        return replace(self, paths=tuple(self.paths[row] for row in chosen), Y=Y)


def read_pictures(
    source: str | os.PathLike[str],
    labels: str | os.PathLike[str] | None = None,
    unlisted: Literal["no", "unknown"] = "no",
    strict: bool = False,
) -> PictureSet:
    """Find pictures and their labels.

    What `source` is is found out in this order:

    1. A table, .csv, .tsv, .jsonl or .ndjson (see the notes): the pictures it lists, relative to its folder.
    2. A folder with ``metadata.csv`` or ``metadata.jsonl`` (as Hugging Face has them) or ``labels.csv``, or any folder
       when the table is given as `labels`: all pictures below the folder. Those the table does not list are not judged.
    3. A folder whose pictures have XMP sidecars with keywords (``photo.jpg.xmp`` or ``photo.xmp``): all pictures below
       it. Those without keywords are not judged.
    4. A folder with at least two sub-folders of pictures: the sub-folders are classes, whatever is below them.
       Pictures beside the sub-folders are not judged.
    5. Any other folder: pictures without labels.

    Files and folders whose names start with a dot are skipped.

    Parameters
    ----------
    source : path
        A table or a folder.
    labels : path, optional
        A table for the pictures below the folder `source`; the names in it are relative to `source`.
    unlisted : {"no", "unknown"}, default="no"
        What a list of tags says about the labels that it does not have: that they do not apply, or nothing. Classes and
        tables with a column a label leave no such question.
    strict : bool, default=False
        Whether to stop at the first thing that would be listed in ``problems``: names without a file, contradictory
        lines about one picture, lines, sidecars and folders that cannot be read.

    Returns
    -------
    PictureSet
        In the order of the table, or else sorted by path.

    Raises
    ------
    ValueError
        When there are no pictures, or a table cannot be understood: the message says where.

    Notes
    -----
    A table names the picture in its first column or in the one called path, file, file_name, filename or image, and has

    - one column of classes, called label, class, species or category (or anything, if it is the only one);
    - or one column of tags, called labels, tags or keywords: separated by ``;`` or ``|`` or, in quotation marks, by
      ``,``; in JSON a list. A column of classes with ``;`` or ``|`` in it is one of tags, too;
    - or one column a label, with 1, yes or true; 0, -1, no or false; or nothing where nobody judged. In JSON Lines this
      may also be one object, ``"labels": {"cat": 1, "dog": 0}``.

    Labels that do not apply can be listed as ``-dog`` among tags, and in JSON as ``"not": ["dog"]``; then labels in
    neither list are not judged, whatever `unlisted` says. A picture with an empty cell was not judged. Columns besides
    the one of classes or tags are ignored, and so is ``text``.

    CSV is UTF-8, with comma, semicolon or tab. Relative names must stay below the folder; absolute ones may be
    anywhere. Several lines about one picture are joined; labels about which they disagree are not judged, and listed.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from kernelweave.datasets import read_pictures
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in ("a.jpg", "b.jpg"):
    ...         _ = (Path(folder) / name).write_bytes(b"...")
    ...     table = Path(folder) / "labels.csv"
    ...     _ = table.write_text("path,tags\\na.jpg,sea;sky\\nb.jpg,sky\\nlost.jpg,sea\\n")
    ...     pictures = read_pictures(folder)
    >>> pictures.label_names, pictures.Y.tolist()
    (('sea', 'sky'), [[1.0, 1.0], [0.0, 1.0]])
    >>> pictures.problems[0][0]
    'lost.jpg'
    """
    if unlisted not in ("no", "unknown"):
        raise ValueError(f"unlisted must be 'no' or 'unknown', got {unlisted!r}")
    source, rest = Path(source), 0.0 if unlisted == "no" else np.nan
    if source.is_dir():
        problems: list[Problem] = []
        pictures = _in_folder(source, labels, rest, find_pictures(source, problems), problems)
    elif labels is not None:
        raise ValueError(f"labels={os.fspath(labels)!r} goes with a folder of pictures, but {source} is no folder")
    elif source.suffix.lower() in PICTURE_SUFFIXES:
        raise ValueError(f"{source} is a picture; give its folder, or a table of pictures and labels")
    elif not source.exists():
        raise FileNotFoundError(f"there is no file or folder {source}")
    else:
        pictures = _in_table(read_label_table(source, rest), source.parent, ())
    if strict and pictures.problems:
        what, reason = pictures.problems[0]
        more = len(pictures.problems) - 1
        raise ValueError(f"{what}: {reason}{f' (and {more} more problems)' if more else ''}")
    if not pictures.paths:
        why = "".join(f"; {what}: {reason}" for what, reason in pictures.problems[:3])
        raise ValueError(f"there are no pictures in {source} ({', '.join(sorted(PICTURE_SUFFIXES))}){why}")
    return pictures


def find_pictures(folder: Path, problems: list[Problem]) -> list[Path]:
    """All files named like pictures below a folder, sorted. What cannot be read is added to `problems`."""
    found: list[Path] = []
    waiting, seen = [folder], set()
    while waiting:
        here = waiting.pop()
        real = os.path.realpath(here)
        if real in seen:  # a link back to a folder above
            continue
        seen.add(real)
        try:
            entries = sorted(os.scandir(here), key=lambda entry: entry.name)
        except OSError as error:
            problems.append((str(here), f"the folder cannot be read: {error.strerror}"))
            continue
        for entry in entries:
            path = Path(entry.path)
            if entry.name.startswith("."):
                continue
            if entry.is_dir():
                waiting.append(path)
            elif path.suffix.lower() in PICTURE_SUFFIXES:
                if os.path.isfile(path):
                    found.append(path)
                else:
                    problems.append((str(path), "is no file that can be read (a broken link?)"))
    return sorted(found)


def name_inside(folder: str | os.PathLike[str], path: str | os.PathLike[str]) -> Path | None:
    """A path relative to a folder that it is in; None when it is not."""
    full, base = Path(os.path.abspath(path)), Path(os.path.abspath(folder))
    return full.relative_to(base) if full.is_relative_to(base) else None


def class_names(Y: NDArray[np.float64], label_names: Sequence[str]) -> NDArray[np.str_]:
    """The name of the one label of every row, (n,), and "" for rows without one."""
    names = np.array([*label_names, ""])
    has = (Y == 1).any(axis=1)
    return names[np.where(has, np.nan_to_num(Y).argmax(axis=1), len(label_names))]


def _in_folder(
    folder: Path, labels: str | os.PathLike[str] | None, rest: float, found: list[Path], problems: list[Problem]
) -> PictureSet:
    tables = (folder / name for name in LABEL_FILES) if labels is None else iter([Path(labels)])
    table = next((path for path in tables if labels is not None or os.path.isfile(path)), None)
    if table is not None:
        pictures = _in_table(read_label_table(table, rest), folder, found)
        return replace(pictures, problems=(*problems, *pictures.problems))
    sidecars = _sidecars(found, rest, problems)
    if any(judgement.yes for judgement in sidecars):
        return _assembled(found, sidecars, None, False, problems)
    classes = _class_folders(folder, found, problems)
    if classes:
        return _assembled(found, classes, None, True, problems)
    return PictureSet(tuple(found), problems=tuple(problems))


def _in_table(table: LabelTable, folder: Path, found: Iterable[Path]) -> PictureSet:
    """The pictures of a table, then those that were found in the folder besides."""
    problems = list(table.problems)
    located = []
    for judgement in table.judgements:
        try:
            located.append(replace(judgement, name=str(_located(folder, judgement.name))))
        except ValueError as error:
            problems.append((judgement.name, f"{judgement.where}: {error}"))
    if problems and not located:
        what, reason = problems[0]
        raise ValueError(
            f"none of the pictures of the table was found in {folder}; {what}: {reason}. If they are elsewhere, give "
            "the folder they are in, and the table as labels="
        )
    listed = [Path(judgement.name) for judgement in located]
    return _assembled([*listed, *found], located, table.label_names, table.single, problems)


def _located(folder: Path, name: str) -> Path:
    """The file that a table means; ValueError with the reason when there is none."""
    for spelling in (name, name.strip(), name.strip().replace("\\", "/")):
        inside = name_inside(folder, folder / spelling)
        if inside is None and not os.path.isabs(spelling):
            raise ValueError("the name leads out of the folder; write such names absolute")
        path = Path(spelling) if inside is None else folder / inside
        if os.path.isfile(path):
            return path
        if os.path.isdir(path):
            raise ValueError("is a folder, not a picture")
    raise ValueError("there is no such file")


def _sidecars(found: list[Path], rest: float, problems: list[Problem]) -> list[Judgement]:
    judgements = []
    for picture in found:
        path = find_sidecar(picture)
        if path is None:
            continue
        try:
            sidecar = read_sidecar(path)
        except (OSError, ValueError) as error:
            problems.append((str(path), str(error)))
            continue
        yes, no = frozenset(sidecar.keywords), frozenset(sidecar.absent or ())
        # Programs write sidecars without keywords, too: such a picture was not judged.
        others = rest if yes and sidecar.absent is None else np.nan
        judgements.append(Judgement(str(picture), str(path), yes, no, others))
    return judgements


def _class_folders(folder: Path, found: list[Path], problems: list[Problem]) -> list[Judgement]:
    """Judgements by the sub-folder a picture is in; none when there are fewer than two sub-folders with pictures."""
    parts = {path: path.relative_to(folder).parts for path in found}
    classes = {names[0] for names in parts.values() if len(names) > 1}
    if len(classes) < 2:
        return []
    for entry in sorted(folder.iterdir()):
        if entry.is_dir() and not entry.name.startswith(".") and entry.name not in classes:
            problems.append((str(entry), "the folder has no pictures, so there is no such class"))
    return [
        Judgement(str(path), str(path.parent), frozenset({names[0]}), rest=0.0)
        for path, names in parts.items()
        if len(names) > 1
    ]


def _assembled(
    paths: Sequence[Path],
    judgements: Sequence[Judgement],
    label_names: Sequence[str] | None,
    single: bool,
    problems: list[Problem],
) -> PictureSet:
    """Put together what is said about every picture. Without names of labels they are those that occur, sorted."""
    if label_names is None:
        label_names = sorted({label for judgement in judgements for label in judgement.yes | judgement.no})
    rows = {path: row for row, path in enumerate(dict.fromkeys(paths))}
    if not label_names:
        return PictureSet(tuple(rows), problems=tuple(problems))
    by_row: dict[int, list[Judgement]] = {}
    for judgement in judgements:
        by_row.setdefault(rows[Path(judgement.name)], []).append(judgement)
    place = {label: column for column, label in enumerate(label_names)}
    Y = np.full((len(rows), len(label_names)), np.nan)
    for row, said in by_row.items():
        yes: frozenset[str] = frozenset().union(*(judgement.yes for judgement in said))
        no: frozenset[str] = frozenset().union(*(judgement.no for judgement in said))
        disputed = yes & no | (yes if single and len(yes) > 1 else frozenset())
        if disputed:
            where = "; ".join(judgement.where for judgement in said)
            problems.append((said[0].name, f"contradictory labels {', '.join(sorted(disputed))} ({where})"))
        if not (single and disputed) and any(judgement.rest == 0 for judgement in said):
            Y[row] = 0
        for state, labels in ((1, yes), (0, no), (np.nan, disputed)):
            Y[row, [place[label] for label in labels]] = state
    return PictureSet(tuple(rows), Y, tuple(label_names), single, tuple(problems))
