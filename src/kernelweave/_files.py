"""Writing a file whole or not at all, and the names pictures have."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

#: How the names of pictures end, in small letters.
PICTURE_SUFFIXES = frozenset({".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff"})


@contextmanager
def atomic_write(path: str | os.PathLike[str], text: bool = False) -> Iterator[IO[Any]]:
    """A file to write into that takes its name only when all is written: others see the old file or the new one.

    What is written goes to a neighbour in the same folder first. If anything goes wrong, Ctrl-C included, the neighbour
    is removed, and a file that was there before stays as it was.

    Parameters
    ----------
    path : path
        Its folder must exist. A file of this name is replaced, and its permissions are kept.
    text : bool, default=False
        Whether to write text, as UTF-8 with line ends as given, instead of bytes. File names that are not UTF-8 keep
        their bytes.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from kernelweave._files import atomic_write
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with atomic_write(Path(folder) / "note.txt", text=True) as file:
    ...         _ = file.write("woven")
    ...     (Path(folder) / "note.txt").read_text()
    'woven'
    """
    path = Path(path)
    folder = path.parent
    if not folder.is_dir():
        raise FileNotFoundError(f"cannot write {path}: there is no folder {folder}; make it first")
    if path.exists() and not path.is_file():
        raise IsADirectoryError(f"cannot write {path}: it is {'a folder' if path.is_dir() else 'not a plain file'}")
    neighbour = folder / f".{secrets.token_hex(8)}.part"
    try:
        with _new_file(neighbour, text) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            shutil.copymode(path, neighbour)
        os.replace(neighbour, path)
    except BaseException:
        neighbour.unlink(missing_ok=True)
        raise


def _new_file(path: Path, text: bool) -> IO[Any]:
    try:
        if text:
            return open(path, "x", encoding="utf-8", errors="surrogateescape", newline="")
        return open(path, "xb")
    except OSError as error:
        raise type(error)(f"cannot write in the folder {path.parent}: {error.strerror}") from error
