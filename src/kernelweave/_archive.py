"""The container of model files: one zip file of plain arrays and JSON, checked to the last byte when it is read.

``model.json`` comes first. It says what the file is and in which version of the format, holds whatever the writer
describes in plain data, and lists the size and the SHA-256 of every array. Arrays are ``.npy`` members. The SHA-256 of
``model.json`` itself is the comment of the zip file. Nothing that is read is ever run.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from . import __version__
from ._files import atomic_write

FORMAT = "kernelweave-model"
#: Raised whenever older versions could not read, or would misread, what is written.
VERSION = 1
#: Bytes that the members of a file may claim to have, all together, unless the reader allows more.
MAX_BYTES = 4 << 30

_HEAD = "model.json"
_ARRAY_NAME = re.compile(r"[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*")
#: Kinds of arrays that are plain numbers, text or dates; "V" is a record of them.
_PLAIN_KINDS = "biufcSUMmV"
#: What zipfile, zlib, json and numpy raise on damaged input. RuntimeError: encrypted, or nested without end.
_BROKEN = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, ValueError, OverflowError, RuntimeError, MemoryError)


class _Refused(Exception):
    """What is wrong with a file, as the end of a sentence that begins with its name."""


@dataclass(frozen=True)
class Archive:
    """What a file holds.

    Attributes
    ----------
    kind : str
        What it is, in a word of the writer.
    content : dict
        Plain data.
    arrays : dict of str to array
    written_by : str
        The version of kernelweave that wrote it.
    """

    kind: str
    content: dict[str, Any]
    arrays: dict[str, NDArray]
    written_by: str


def write_archive(
    path: str | os.PathLike[str], kind: str, content: Mapping[str, Any], arrays: Mapping[str, NDArray]
) -> None:
    """Write a file, whole or not at all. The same things give the same bytes.

    Parameters
    ----------
    path : path
        An existing file is replaced when the new one is complete, not before.
    kind : str
        What it is, for the reader.
    content : mapping
        What JSON can hold: text, finite numbers, None, lists, and mappings with text as keys. Tuples come back as
        lists.
    arrays : mapping of str to array
        Numbers, text or records of them; no objects. Names are made of letters, digits, ``_``, ``-``, ``.`` and ``/``.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from kernelweave._archive import read_archive, write_archive
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_archive(f"{folder}/a.kw", "note", {"text": "woven"}, {"words/0": np.arange(3)})
    ...     archive = read_archive(f"{folder}/a.kw")
    >>> archive.kind, archive.content, archive.arrays
    ('note', {'text': 'woven'}, {'words/0': array([0, 1, 2])})
    """
    checked = {name: _checked_array(name, array) for name, array in arrays.items()}
    head = {
        "format": FORMAT,
        "version": VERSION,
        "written_by": __version__,
        "kind": kind,
        "content": _checked_content(content, "content"),
        "members": {f"{name}.npy": _measured(array) for name, array in checked.items()},
    }
    text = json.dumps(head, allow_nan=False, indent=1).encode("ascii")
    with atomic_write(path) as file, zipfile.ZipFile(file, "w") as archive:
        archive.writestr(_entry(_HEAD, zipfile.ZIP_DEFLATED), text)
        for name, array in checked.items():
            # Arrays of numbers hardly shrink; stored, they are read as fast as the disk allows.
            with archive.open(_entry(f"{name}.npy", zipfile.ZIP_STORED), "w", force_zip64=True) as member:
                _write_array(member, array)
        archive.comment = _sha256(text).encode()


def read_archive(path: str | os.PathLike[str], max_bytes: int = MAX_BYTES) -> Archive:
    """Read a file that `write_archive` wrote, after checking all of it.

    Parameters
    ----------
    path : path
    max_bytes : int
        Refuse a file that says it holds more than this, before reading any of it.

    Returns
    -------
    Archive

    Raises
    ------
    ValueError
        If the file is damaged, is no file of this kind, is too large, or was written in a newer format. The message
        says which.
    """
    with open(path, "rb") as file:
        try:
            return _read(file, max_bytes)
        except _Refused as refusal:
            raise ValueError(f"{os.fspath(path)} {refusal}") from refusal.__cause__
        except OSError as error:
            if error.errno != errno.EINVAL:  # an error of the disk, not of what is on it
                raise
            raise ValueError(f"{os.fspath(path)} is damaged: its parts are not where it says they are") from error


# -- writing ----------------------------------------------------------------------------------------------------------


class _Measure:
    """Takes the place of a file: counts bytes and sums them up."""

    def __init__(self) -> None:
        self.n_bytes = 0
        self.sha256 = hashlib.sha256()

    def write(self, data: bytes) -> None:
        self.n_bytes += len(data)
        self.sha256.update(data)


def _measured(array: NDArray) -> dict[str, Any]:
    measure = _Measure()
    _write_array(measure, array)
    return {"bytes": measure.n_bytes, "sha256": measure.sha256.hexdigest()}


def _write_array(file: Any, array: NDArray) -> None:
    np.lib.format.write_array(file, array, allow_pickle=False)


def _entry(name: str, compression: int) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name)  # with the date 1980, whatever the clock says
    entry.compress_type = compression
    entry.external_attr = 0o600 << 16
    return entry


def _checked_array(name: str, array: NDArray) -> NDArray:
    if not isinstance(name, str) or not _ARRAY_NAME.fullmatch(name):
        raise ValueError(
            f"an array in a file has a name of letters, digits, '_', '-', '.' and '/', such as 'words/0', got {name!r}"
        )
    if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
        raise TypeError(f"array {name!r} must be a plain numpy array, got {type(array).__name__}")
    if array.dtype.kind not in _PLAIN_KINDS or array.dtype.hasobject:
        raise TypeError(
            f"array {name!r} is of {array.dtype}, which only pickle can write, and a file that is opened without "
            "running code has no pickles: give numbers or text"
        )
    return np.asarray(array)


def _checked_content(value: Any, where: str) -> Any:
    """Plain data as JSON will give it back, after a check that nothing changes on the way."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        if not np.isfinite(value):
            raise ValueError(f"{where} is {value}, but JSON has finite numbers only: write None or a text")
        return value
    if isinstance(value, (list, tuple)):
        return [_checked_content(part, f"{where}[{i}]") for i, part in enumerate(value)]
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"{where} has the key {key!r}; keys in JSON are text")
        return {key: _checked_content(part, f"{where}[{key!r}]") for key, part in value.items()}
    raise TypeError(f"{where} is of type {type(value).__name__}, which JSON cannot hold; arrays are given as arrays")


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# -- reading ----------------------------------------------------------------------------------------------------------


def _read(file: IO[bytes], max_bytes: int) -> Archive:
    try:
        archive = zipfile.ZipFile(file)
    except _BROKEN as error:
        raise _Refused(f"is no {FORMAT} file, or its end is missing: {error}") from error
    with archive:
        entries = _entries(archive, max_bytes)
        text = _bytes_of(archive, entries[_HEAD])
        head = _head(text)
        if archive.comment != _sha256(text).encode():
            raise _Refused(f"is damaged: {_HEAD} is not what was written")
        members = head["members"]
        if set(members) != set(entries) - {_HEAD}:
            missing, strange = set(members) - set(entries), set(entries) - set(members) - {_HEAD}
            raise _Refused(f"is damaged: {sorted(missing)} missing, {sorted(strange)} not part of it")
        arrays = {name.removesuffix(".npy"): _array(archive, entries[name], members[name]) for name in members}
    return Archive(head["kind"], head["content"], arrays, head["written_by"])


def _entries(archive: zipfile.ZipFile, max_bytes: int) -> dict[str, zipfile.ZipInfo]:
    """The members by name. Sizes are checked before anything is read: a small file may claim to unfold into a huge one,
    and no more than what it claims is ever read."""
    entries = {entry.filename: entry for entry in archive.infolist()}
    if len(entries) != len(archive.infolist()):
        raise _Refused("is damaged: two of its members have the same name")
    if _HEAD not in entries:
        raise _Refused(f"is a zip file, but no {FORMAT} file: {_HEAD} is missing")
    total = sum(entry.file_size for entry in entries.values())
    if total > max_bytes:
        raise _Refused(
            f"says it holds {total:,} bytes, more than the limit of {max_bytes:,}: if you trust it, give a larger "
            "max_bytes"
        )
    return entries


def _bytes_of(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise _Refused(f"is damaged: {entry.filename} is compressed in an unknown way")
    try:
        return archive.read(entry)
    except _BROKEN as error:
        raise _Refused(f"is damaged: {entry.filename} cannot be read ({error})") from error


def _head(text: bytes) -> dict[str, Any]:
    """The description of the file, after a check that this version understands it."""
    try:
        head = json.loads(text.decode("ascii"), parse_constant=_refuse_constant)
    except _BROKEN as error:
        raise _Refused(f"is damaged: {_HEAD} is no JSON ({error})") from error
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise _Refused(f"is no {FORMAT} file: its {_HEAD} is about something else")
    version, writer = head.get("version"), head.get("written_by")
    if isinstance(version, bool) or not isinstance(version, int) or version < 1 or not isinstance(writer, str):
        raise _Refused(f"is damaged: {_HEAD} gives the format as {version!r}, written by {writer!r}")
    if version > VERSION:
        raise _Refused(
            f"was written by kernelweave {writer} with format {version}, this version ({__version__}) reads up to "
            f"{VERSION}: update kernelweave"
        )
    kinds = {"kind": str, "content": dict, "members": dict}
    wrong = [name for name, kind in kinds.items() if not isinstance(head.get(name), kind)]
    if wrong:
        raise _Refused(f"is damaged: {_HEAD} has no {' and no '.join(wrong)}")
    return head


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, listed: Any) -> NDArray:
    """An array; its bytes are only looked at once they are known to be those that were written."""
    data = _bytes_of(archive, entry)
    if listed != {"bytes": len(data), "sha256": _sha256(data)}:
        raise _Refused(f"is damaged: {entry.filename} is not what was written (its SHA-256 differs)")
    try:
        return np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    except _BROKEN as error:
        raise _Refused(f"is damaged: {entry.filename} holds no plain array ({error})") from error
