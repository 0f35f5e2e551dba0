"""Labels of pictures from tables: CSV and JSON Lines, in the forms people have.

A table has a column with the name of the picture, and either one column with its class or its tags, or one column of
yes and no for every label. Which it is follows from the names of the columns and from what is in them.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .._files import PICTURE_SUFFIXES
from .xmp import check_label

PATH_NAMES = frozenset({"path", "file", "file_name", "filename", "image"})
CLASS_NAMES = frozenset({"label", "class", "species", "category"})
TAGS_NAMES = frozenset({"labels", "tags", "keywords", "classes", "categories"})
IGNORED_NAMES = frozenset({"text"})  # captions in image folders of Hugging Face
NOES_NAME = "not"

CSV_SUFFIXES = frozenset({".csv", ".tsv"})
JSON_LINES_SUFFIXES = frozenset({".jsonl", ".ndjson"})

Problem = tuple[str, str]


@dataclass(frozen=True)
class Judgement:
    """What one line of a table, one sidecar or one folder says about one picture.

    Attributes
    ----------
    name : str
        The picture, as it is written there.
    where : str
        Where this is said, for messages.
    yes, no : frozenset of str
        Labels that are said to apply, and not to apply.
    rest : float
        What holds for all other labels: 0 (they do not apply) or NaN (nobody judged).
    """

    name: str
    where: str
    yes: frozenset[str] = frozenset()
    no: frozenset[str] = frozenset()
    rest: float = math.nan


@dataclass(frozen=True)
class LabelTable:
    """All judgements of a table, with the labels in order, whether a picture has exactly one class, and the lines that
    could not be read."""

    judgements: list[Judgement]
    label_names: tuple[str, ...]
    single: bool
    problems: list[Problem]


def read_label_table(path: Path, unlisted: float) -> LabelTable:
    """Read a table of labels.

    Parameters
    ----------
    path : Path
        Named .csv, .tsv, .jsonl or .ndjson.
    unlisted : float
        What a list of tags says about the labels that are not in it: 0 or NaN.
    """
    if path.suffix.lower() in CSV_SUFFIXES:
        table = _read_csv(path)
    elif path.suffix.lower() in JSON_LINES_SUFFIXES:
        table = _read_json_lines(path)
    else:
        endings = ", ".join(sorted(CSV_SUFFIXES | JSON_LINES_SUFFIXES))
        raise ValueError(f"{path} is no table of labels that can be read: its name must end in one of {endings}")
    _check_columns(table)
    labels = [column for column in range(len(table.columns)) if column != table.path_column and table.columns[column]]
    listed = _list_column(table, labels)
    if listed is None:
        return _from_columns(table, labels)
    return _from_lists(table, listed, unlisted)


@dataclass(frozen=True)
class _Table:
    """A table before it is known what its columns mean: names, and for every row its line number and its cells."""

    path: Path
    columns: list[str]
    rows: list[tuple[int, list[Any]]]
    problems: list[Problem]

    @property
    def path_column(self) -> int:
        named = (column for column, name in enumerate(self.columns) if name.lower() in PATH_NAMES)
        return next(named, 0)

    def where(self, line: int, column: int | None = None) -> str:
        return f"{self.path}, line {line}" + ("" if column is None else f", column {self.columns[column]!r}")

    def pictures(self) -> Iterator[tuple[int, str, list[Any]]]:
        """Line number, picture and cells of every row that names a picture; others become problems."""
        column = self.path_column
        for line, cells in self.rows:
            name = cells[column]
            if isinstance(name, str) and name.strip():
                yield line, name, cells
            else:
                self.problems.append((self.where(line), f"no picture named in column {self.columns[column]!r}"))


def _read_csv(path: Path) -> _Table:
    text = _text(path)
    header, _, _ = text.lstrip("\r\n").partition("\n")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(header), strict=True)
    columns: list[str] = []
    rows: list[tuple[int, list[Any]]] = []
    problems: list[Problem] = []
    try:
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            if not columns:
                columns = [cell.strip() for cell in cells]
            elif len(cells) == len(columns):
                rows.append((reader.line_num, cells))
            else:
                where = f"{path}, line {reader.line_num}"
                problems.append((where, f"has {len(cells)} cells, but the first line has {len(columns)}"))
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: {error}; is a quotation mark missing?") from None
    return _Table(path, columns, rows, problems)


def _read_json_lines(path: Path) -> _Table:
    objects: list[tuple[int, dict[str, Any]]] = []
    problems: list[Problem] = []
    for number, line in enumerate(_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            problems.append((f"{path}, line {number}", f"is not JSON: {error}"))
            continue
        if isinstance(value, dict):
            objects.append((number, value))
        else:
            problems.append((f"{path}, line {number}", f"is not a JSON object {{...}} but {type(value).__name__}"))
    columns = list(dict.fromkeys(key for _, value in objects for key in value))
    if objects and not any(column.lower() in PATH_NAMES for column in columns):
        raise ValueError(f'{path}: no line names its picture; write it as {{"file_name": ...}}')
    return _Table(path, columns, [(number, [value.get(key) for key in columns]) for number, value in objects], problems)


def _text(path: Path) -> str:
    raw = path.read_bytes()
    if b"\0" in raw[:4096]:
        raise ValueError(f"{path} is not UTF-8 text (UTF-16, perhaps, or no text at all); save it as UTF-8")
    # Names of files may be any bytes; labels are checked one by one.
    return raw.decode("utf-8-sig", errors="surrogateescape")


def _delimiter(header: str) -> str:
    """The most frequent of comma, semicolon and tab outside quotation marks."""
    bare = "".join(header.split('"')[::2])
    return max(",;\t", key=bare.count)


def _check_columns(table: _Table) -> None:
    if not table.columns:
        what = "; ".join(f"{where}: {reason}" for where, reason in table.problems[:1])
        raise ValueError(f"{table.path} has no lines that can be read{': ' + what if what else ''}")
    picture = next((name for name in table.columns if Path(name.lower()).suffix in PICTURE_SUFFIXES), None)
    if picture is not None and table.columns[table.path_column].lower() not in PATH_NAMES:
        raise ValueError(
            f"{table.path}, line 1: {picture!r} looks like a picture, but this line names the columns; put a line such "
            "as 'path,label' before it"
        )
    labels = [name for column, name in enumerate(table.columns) if column != table.path_column and name]
    twice = next((name for k, name in enumerate(labels) if name in labels[:k]), None)
    if twice is not None:
        raise ValueError(f"{table.path}: two columns are named {twice!r}; rename or remove one")


def _list_column(table: _Table, columns: list[int]) -> int | None:
    """The column with the class or the tags of a picture; None when every label has a column of its own."""
    yes_or_no = {column: _all_states(cells[column] for _, cells in table.rows) for column in columns}
    if len(columns) > 1 and all(yes_or_no.values()):
        return None
    named = [column for column in columns if table.columns[column].lower() in CLASS_NAMES | TAGS_NAMES]
    if len(named) > 1:
        names = " and ".join(repr(table.columns[column]) for column in named)
        raise ValueError(f"{table.path} has labels in the columns {names}; keep or rename all but one")
    if named:
        return named[0]
    left = [column for column in columns if table.columns[column].lower() not in IGNORED_NAMES]
    return left[0] if len(left) == 1 and not yes_or_no[left[0]] else None


def _from_columns(table: _Table, columns: list[int]) -> LabelTable:
    kept = [
        column
        for column in columns
        if table.columns[column].lower() not in IGNORED_NAMES or _all_states(cells[column] for _, cells in table.rows)
    ]
    names = tuple(table.columns[column] for column in kept)
    for name in names:
        check_label(name, f"{table.path}, line 1")
    judgements = []
    for line, picture, cells in table.pictures():
        named = dict(zip(names, (cells[column] for column in kept), strict=True))
        judgements.append(_of_states(picture, table.where(line), named))
    return LabelTable(judgements, names, False, table.problems)


def _from_lists(table: _Table, column: int, unlisted: float) -> LabelTable:
    """Read the column of classes or tags; with JSON, those under "not" as well."""
    noes = next((k for k, name in enumerate(table.columns) if name.lower() == NOES_NAME), None)
    cells = [row[column] for _, row in table.rows]
    texts = [cell for cell in cells if isinstance(cell, str)]
    is_tags = table.columns[column].lower() in TAGS_NAMES
    separator = next((mark for mark in (";|," if is_tags else ";|") if any(mark in text for text in texts)), None)
    several = separator is not None or noes is not None or any(isinstance(cell, (list, dict)) for cell in cells)
    single = not is_tags and not several
    judgements: list[Judgement] = []
    in_order: dict[str, None] = {}
    for line, picture, row in table.pictures():
        where, cell = table.where(line, column), row[column]
        if isinstance(cell, dict):
            in_order.update(dict.fromkeys(cell))
            judged = _of_states(picture, where, cell)
        elif single:
            judged = _of_class(picture, where, cell)
        else:
            judged = _of_tags(picture, where, cell, None if noes is None else row[noes], separator, unlisted)
        for label in cell if isinstance(cell, dict) else judged.yes | judged.no:
            check_label(label, where)
        judgements.append(replace(judged, where=table.where(line)))
    others = {label for judged in judgements for label in judged.yes | judged.no} - in_order.keys()
    return LabelTable(judgements, (*in_order, *sorted(others)), single, table.problems)


def _of_states(picture: str, where: str, cells: Mapping[str, Any]) -> Judgement:
    """One cell a label: yes, no or empty."""
    found: dict[float, list[str]] = {1.0: [], 0.0: []}
    for label, cell in cells.items():
        try:
            state = _state(cell)
        except (KeyError, ValueError):
            raise ValueError(
                f"{where}, label {label!r}: {cell!r} is neither yes (1, yes, true) nor no (0, -1, no, false) nor empty "
                "(not judged). Name a column of classes 'label' and one of tags 'labels'; leave out what is no label."
            ) from None
        if state == state:
            found[state].append(label)
    return Judgement(picture, where, frozenset(found[1.0]), frozenset(found[0.0]))


def _of_class(picture: str, where: str, cell: Any) -> Judgement:
    label = _label(cell, where)
    return Judgement(picture, where, frozenset({label}), rest=0.0) if label else Judgement(picture, where)


def _of_tags(picture: str, where: str, cell: Any, noes: Any, separator: str | None, unlisted: float) -> Judgement:
    """Tags in a text, where a "-" marks a label that does not apply, or in a list, with those that do not in `noes`."""
    if noes is not None and not isinstance(noes, list):
        raise ValueError(f"{where}: what does not apply ({NOES_NAME!r}) must be a list of labels, got {noes!r}")
    no = {_label(tag, where) for tag in noes or ()}
    if isinstance(cell, list):
        yes = {_label(tag, where) for tag in cell}
    else:
        text = _label(cell, where)
        tags = {tag.strip() for tag in (text.split(separator) if separator else [text])} - {""}
        yes = {tag for tag in tags if not tag.startswith("-")}
        no |= {tag[1:].strip() for tag in tags - yes}
    # An empty text is a picture nobody looked at; an empty list says that nothing applies. And whoever writes down what
    # does not apply has not judged what is missing from both lists.
    looked = isinstance(cell, list) or bool(yes)
    rest = unlisted if looked and not no and noes is None else math.nan
    return Judgement(picture, where, frozenset(yes), frozenset(no), rest)


def _label(cell: Any, where: str) -> str:
    """A class or tag as text; "" for an empty cell."""
    if cell is None:
        return ""
    if isinstance(cell, (str, int)) and not isinstance(cell, bool):
        return str(cell).strip()
    raise ValueError(f"{where}: a label is a text, got {cell!r}")


STATES = {"1": 1.0, "yes": 1.0, "true": 1.0, "0": 0.0, "no": 0.0, "false": 0.0, "-1": 0.0, "": math.nan}


def _state(cell: Any) -> float:
    """1 for yes, 0 for no, NaN for not judged; KeyError or ValueError for anything else."""
    if cell is None:
        return math.nan
    word = str(cell).strip().lower()
    if word in STATES:
        return STATES[word]
    number = float(word)  # 1.0, 0.0 and nan, as data frames write numbers with gaps
    return math.nan if math.isnan(number) else STATES[f"{number:g}"]


def _all_states(cells: Iterable[Any]) -> bool:
    try:
        for cell in set(cells):
            _state(cell)
    except (KeyError, ValueError, TypeError):  # the last for lists, which a set does not take
        return False
    return True
