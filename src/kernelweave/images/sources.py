"""The pictures a user gives, files or arrays, and what is in them: a SHA-256 that changes when a picture does."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .base import Picture
from .pictures import UnreadablePicture, decode_picture, read_file, shown_name, shrink

#: Seconds a file must have been left alone before its size and times are trusted to tell whether it changed: clocks of
#: file systems may tick this slowly.
SETTLED = 2.0


@dataclass(frozen=True, eq=False)
class Source:
    """A picture that was given."""

    name: str
    where: str | NDArray  #: the path of a file, or the pixels
    content: str | None = None  #: SHA-256 of what is in it, where it is known

    def picture(self, max_side: int | None) -> Picture:
        """Read it; `UnreadablePicture` when that cannot be."""
        if isinstance(self.where, np.ndarray):
            return Picture(shrink(self.where, max_side))
        try:
            data = read_file(self.where)
        except UnreadablePicture as problem:
            raise UnreadablePicture(self.name, problem.reason) from None
        if self.content is not None and hashlib.sha256(data).hexdigest() != self.content:
            raise UnreadablePicture(self.name, "the file was changed while features were computed")
        return decode_picture(data, self.name, max_side)


def as_sources(pictures: Iterable[Any]) -> list[Source]:
    """Read what a user gave for pictures.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.images.sources import as_sources
    >>> [source.name for source in as_sources(["a.jpg", np.zeros((4, 6, 3), dtype=np.uint8)])]
    ['a.jpg', 'picture 1']
    """
    if isinstance(pictures, (str, os.PathLike)):
        raise TypeError(
            f"pictures is a list of paths or arrays; for those in a folder give "
            f"kernelweave.datasets.read_pictures({str(pictures)!r}).paths"
        )
    sources = [_as_source(number, picture) for number, picture in enumerate(pictures)]
    if not sources:
        raise ValueError("no pictures were given; at least one is needed")
    return sources


def content_of_array(pixels: NDArray) -> str:
    """SHA-256 of the pixels of a picture in memory."""
    return hashlib.sha256(f"array {pixels.shape} ".encode() + pixels.tobytes()).hexdigest()


def content_of_file(path: str) -> tuple[str | None, str | None]:
    """SHA-256 of a file, None if it cannot be read, and its stamp, None if that might not change with the file."""
    begun = time.time()
    before = stamp_of_file(path)
    try:
        content = hashlib.sha256(read_file(path)).hexdigest()
    except UnreadablePicture:
        return None, None
    if before is None or before != stamp_of_file(path):
        return content, None
    _, modified, changed, _ = (int(number) for number in before.split())
    return content, before if begun - max(modified, changed) / 1e9 >= SETTLED else None


def stamp_of_file(path: str) -> str | None:
    """What changes when the file does; None when there is none.

    Size and modification time alone are not enough: tools that copy or unpack set the time as they like. They cannot
    set the time of the last change of any kind, nor the number of the file.
    """
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return f"{found.st_size} {found.st_mtime_ns} {found.st_ctime_ns} {found.st_ino}"


def _as_source(number: int, picture: Any) -> Source:
    if isinstance(picture, (str, os.PathLike)):
        path = os.fspath(picture)
        return Source(shown_name(path), path if os.path.isabs(path) else os.path.join(os.getcwd(), path))
    if not isinstance(picture, np.ndarray):
        raise TypeError(f"a picture is a path or an array, but number {number} is {type(picture).__name__}")
    if picture.ndim != 3 or picture.shape[2] != 3 or picture.dtype != np.uint8 or picture.size == 0:
        raise ValueError(
            f"a picture in memory is an 8-bit array (height, width, 3), red first, but number {number} is "
            f"{picture.dtype} {picture.shape}"
        )
    return Source(f"picture {number}", picture)
