"""The ARFF format of WEKA: attributes with names and types, then rows, dense ``1,2,?`` or sparse ``{0 1, 3 2.5}``."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

YES_OR_NO = {"1": 1.0, "0": 0.0, "yes": 1.0, "no": 0.0, "true": 1.0, "false": 0.0}

#: A value in single or in double quotation marks, or without.
TOKEN = re.compile(r"""\s*(?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)"|([^\s,{}'"]+))""")


@dataclass(frozen=True)
class Attribute:
    """A column: its name, its kind, and the values of a nominal one."""

    name: str
    kind: Literal["numeric", "nominal", "text"]
    values: tuple[str, ...] = ()

    @property
    def yes_or_no(self) -> bool:
        """Whether it is nominal and its values say yes and no."""
        return self.kind == "nominal" and all(value.lower() in YES_OR_NO for value in self.values)


@dataclass(frozen=True)
class Column:
    """An attribute with its values, None where they are missing, and the lines they stand in."""

    attribute: Attribute
    cells: tuple[str | None, ...]
    lines: tuple[int, ...]
    path: Path

    def error(self, row: int, reason: str) -> ValueError:
        return ValueError(f"{self.path}, line {self.lines[row]}, attribute {self.attribute.name!r}: {reason}")

    def categories(self) -> list[str | None]:
        """Values of a nominal attribute, after a check that they are among the declared ones."""
        known = set(self.attribute.values)
        for row, cell in enumerate(self.cells):
            if cell is not None and cell not in known:
                raise self.error(row, f"{cell!r} is not one of {', '.join(map(repr, self.attribute.values))}")
        return list(self.cells)

    def numbers(self) -> Array:
        """Values as numbers, yes and no as 1 and 0, missing ones as NaN: (n_rows,)."""
        if self.attribute.yes_or_no:
            return np.array([math.nan if cell is None else YES_OR_NO[cell.lower()] for cell in self.categories()])
        numbers = np.empty(len(self.cells))
        for row, cell in enumerate(self.cells):
            try:
                numbers[row] = math.nan if cell is None else float(cell)
            except ValueError:
                raise self.error(row, f"{cell!r} is not a number") from None
        return numbers


@dataclass(frozen=True)
class ArffFile:
    """The name of the relation, and the columns."""

    relation: str
    columns: list[Column]


def read_arff(path: Path) -> ArffFile:
    """Read an ARFF file. Errors name the line."""
    relation, attributes, in_data = "", list[Attribute](), False
    rows: list[list[str | None]] = []
    lines: list[int] = []
    with open(path, encoding="utf-8-sig", errors="surrogateescape") as file:
        for number, line in enumerate(file, start=1):
            line = line.strip()
            if not line or line.startswith("%"):
                continue
            try:
                if in_data:
                    rows.append(_row(line, attributes))
                    lines.append(number)
                    continue
                keyword, rest = (*line.split(maxsplit=1), "")[:2]
                if keyword.lower() == "@relation":
                    relation = rest
                elif keyword.lower() == "@attribute":
                    attributes.append(_attribute(rest))
                elif keyword.lower() == "@data":
                    in_data = True
                else:
                    raise ValueError(f"expected @relation, @attribute or @data, got {line[:40]!r}")
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: {error}") from None
    if not rows or not attributes:
        raise ValueError(f"{path} is not an ARFF file with data: it has {len(attributes)} attributes, {len(rows)} rows")
    names = [attribute.name for attribute in attributes]
    twice = next((name for k, name in enumerate(names) if name in names[:k]), None)
    if twice is not None:
        raise ValueError(f"{path} has two attributes named {twice!r}")
    cells = zip(*rows, strict=True)
    columns = [Column(one, values, tuple(lines), path) for one, values in zip(attributes, cells, strict=True)]
    return ArffFile(relation, columns)


def _attribute(text: str) -> Attribute:
    name, position = _token(text, 0)
    kind = text[position:].strip()
    word = kind.split(maxsplit=1)[0].lower() if kind else ""
    if not name:
        raise ValueError("an attribute must have a name")
    if kind.startswith("{") and kind.endswith("}"):
        return Attribute(name, "nominal", tuple(value for value in _list(kind[1:-1]) if value is not None))
    if word in ("numeric", "real", "integer"):
        return Attribute(name, "numeric")
    if word in ("string", "date"):
        return Attribute(name, "text")
    raise ValueError(
        f"attribute {name!r} has the type {kind!r}; known are numeric, {{nominal values}}, string and date"
    )


def _row(line: str, attributes: list[Attribute]) -> list[str | None]:
    """One cell an attribute."""
    if not line.startswith("{"):
        cells = _list(line)
        if len(cells) != len(attributes):
            raise ValueError(f"there are {len(cells)} values for {len(attributes)} attributes")
        return cells
    if not line.endswith("}"):
        raise ValueError("a sparse row must end with a }")
    # What a sparse row leaves out is 0, or the first of the nominal values.
    cells = [attribute.values[0] if attribute.values else "0" for attribute in attributes]
    inside, position = line[1:-1].strip(), 0
    while position < len(inside):
        index, position = _token(inside, position)
        value, position = _token(inside, position)
        if index is None or not index.isdecimal() or int(index) >= len(cells):
            raise ValueError(f"attribute numbers of sparse rows go from 0 to {len(cells) - 1}, got {index!r}")
        cells[int(index)] = value
        position = _past_comma(inside, position)
    return cells


def _list(text: str) -> list[str | None]:
    """Values with commas between them."""
    if "'" not in text and '"' not in text:  # nearly always, and much faster
        return [None if (cell := part.strip()) == "?" else cell for part in text.split(",")]
    values: list[str | None] = []
    position = 0
    while position < len(text):
        value, position = _token(text, position)
        values.append(value)
        position = _past_comma(text, position)
    return values


def _token(text: str, position: int) -> tuple[str | None, int]:
    """The value that starts here, None for a question mark, and where it ends."""
    found = TOKEN.match(text, position)
    if found is None:
        raise ValueError(f"expected a value, got {text[position : position + 20]!r}")
    single, double, bare = found.groups()
    if bare is not None:
        return (None if bare == "?" else bare), found.end()
    return re.sub(r"\\(.)", r"\1", single if double is None else double), found.end()


def _past_comma(text: str, position: int) -> int:
    rest = text[position:].lstrip()
    if rest and not rest.startswith(","):
        raise ValueError(f"expected a comma before {rest[:20]!r}")
    return len(text) - len(rest) + (1 if rest else 0)
