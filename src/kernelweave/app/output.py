"""What the command line says and writes: results to stdout or a file, everything else to stderr."""

from __future__ import annotations

import json
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from .._files import PICTURE_SUFFIXES, atomic_write
from ..datasets.picture_sets import name_inside

#: Problems that are listed unless all are asked for.
MOST_PROBLEMS = 20

#: Bytes of the first line of a table that are looked at before it is replaced.
HEAD = 1 << 20


@dataclass(frozen=True)
class Output:
    """How much is said, and in which form.

    Attributes
    ----------
    quiet : bool
        Only results and errors.
    verbose : bool
        All problems, and where errors come from.
    json : bool
        Results as JSON.
    """

    quiet: bool = False
    verbose: bool = False
    json: bool = False

    @property
    def progress(self) -> int:
        """Whether to show progress bars, as estimators take it."""
        return 0 if self.quiet else 1

    def say(self, text: str) -> None:
        """A sentence for the person at the terminal."""
        if not self.quiet:
            print(printable(text), file=sys.stderr)

    def problems(self, problems: Sequence[tuple[str, str]], what: str = "left out") -> None:
        """List what could not be used."""
        shown = problems if self.verbose else problems[:MOST_PROBLEMS]
        for picture, reason in shown:
            self.say(f"{what}: {picture}: {reason}")
        if len(shown) < len(problems):
            self.say(f"{what}: {len(problems) - len(shown)} more (--verbose lists all)")

    def error(self, text: str) -> None:
        """Why the command did not do its work."""
        if self.verbose:
            traceback.print_exc()
        print(printable(f"kernelweave: {text}"), file=sys.stderr)

    def result(self, data: Any, show: Callable[[], None]) -> None:
        """The result: as JSON if that was asked for, else as `show` prints it."""
        if self.json:
            print(json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False))
        else:
            show()

    @contextmanager
    def notes(self) -> Iterator[None]:
        """Warnings as sentences, as long as it lasts."""
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_args, **_kwargs: self.say(f"note: {message}")
            yield


def print_table(columns: Mapping[str, str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table to stdout: fitted to the window on a terminal, else plain and never cut.

    Parameters
    ----------
    columns : mapping of names to "left" or "right"
    rows : sequence of rows of texts
    """
    cells = [[printable(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
        for row in ([*columns], *cells):
            padded = [
                cell.rjust(width) if side == "right" else cell.ljust(width)
                for cell, width, side in zip(row, widths, columns.values(), strict=True)
            ]
            print("  ".join(padded).rstrip())
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name, side in columns.items():
        table.add_column(name, justify="right" if side == "right" else "left", overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    Console(file=sys.stdout, highlight=False).print(table)


def file_name(picture: os.PathLike[str] | str, table: Path | None) -> str:
    """The name of a picture in a table: relative to the folder of the table if it is below it, else absolute; as it was
    given if the table goes to stdout."""
    if table is None:
        return os.fspath(picture)
    inside = name_inside(table.parent, picture)
    return os.path.abspath(picture) if inside is None else inside.as_posix()


def printable(text: str) -> str:
    """Text without characters that could move the cursor or hide something on a terminal."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


# -- files that are replaced --------------------------------------------------------------------------------------


def check_output(path: Path, kind: str) -> None:
    """Refuse, before any work is done, a path that cannot be written or where something else would be lost.

    Parameters
    ----------
    path : Path
    kind : {"model", "report", "features", "tags", "suggestions"}
        An existing file is only replaced if it is of the same kind.
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: there is no folder {path.parent}; make it first")
    if path.is_dir():
        raise IsADirectoryError(f"cannot write {path}: it is a folder; give the name of a file")
    if path.suffix.lower() in PICTURE_SUFFIXES:
        raise ValueError(f"{path} has the name of a picture; give the output another name")
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(f"cannot write {path}: there is no permission to write in {path.parent}")
    if not os.path.lexists(path):
        return
    if path.stat().st_size and not _KINDS[kind](path):
        raise FileExistsError(
            f"{path} exists and is no file of {_CALLED[kind]}: it is not replaced; choose another name, or delete it"
        )


TAG_COLUMNS = ("file_name", "labels", "scores")
SUGGESTION_COLUMNS = ("file_name", "label", "score", "instead_of")

_CALLED = {
    "model": "a kernelweave model",
    "report": "a kernelweave report",
    "features": "features of kernelweave",
    "tags": "tags by kernelweave",
    "suggestions": "suggestions by kernelweave",
}


def _first_member(path: Path, name: bytes) -> bool:
    """Whether a zip file begins with a member of this name."""
    with open(path, "rb") as file:
        head = file.read(30 + len(name))
    return head.startswith(b"PK\x03\x04") and head[30:] == name


def _is_report(path: Path) -> bool:
    page = path.read_bytes()
    return page.startswith(b"<!DOCTYPE html>") and b"kernelweave report" in page


def _is_table(path: Path, columns: Sequence[str], csv_columns: Sequence[str]) -> bool:
    """Whether the first line is one that `write_rows` writes."""
    with open(path, "rb") as file:
        line = file.readline(HEAD).decode("utf-8", "replace").rstrip("\r\n")
    if line.startswith("{"):
        try:
            return list(json.loads(line)) == list(columns)
        except ValueError:
            return False
    return line.startswith(",".join(f'"{name}"' for name in csv_columns))


_KINDS: dict[str, Callable[[Path], bool]] = {
    "model": lambda path: _first_member(path, b"model.json"),
    "report": _is_report,
    "features": lambda path: _first_member(path, b"names.npy"),
    "tags": lambda path: _is_table(path, TAG_COLUMNS, ("file_name", "labels", "tag_1", "score_1")),
    "suggestions": lambda path: _is_table(path, SUGGESTION_COLUMNS, SUGGESTION_COLUMNS),
}


@contextmanager
def opened(path: Path | None) -> Iterator[IO[str]]:
    """A file that appears when all is written, or stdout."""
    if path is None:
        yield sys.stdout
    else:
        with atomic_write(path, text=True) as file:
            yield file
