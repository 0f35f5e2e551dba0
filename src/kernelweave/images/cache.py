"""What was computed from pictures, kept in one SQLite file so that nothing is computed twice.

The file holds numbers and names only; opening it runs no code of anybody. Everything is written in transactions: a
process that is killed loses what it had not yet handed over, and several processes may use one file at once.
"""

from __future__ import annotations

import os
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Seconds to wait for other processes that are writing.
PATIENCE = 60.0

#: Marks the SQLite file as ours ("KWFC"), and the form of its tables.
APPLICATION, FORM = 0x4B574643, 1

TABLES = (
    f"PRAGMA application_id = {APPLICATION}",
    f"PRAGMA user_version = {FORM}",
    "CREATE TABLE features (key TEXT PRIMARY KEY, checksum INTEGER, value BLOB)",
    "CREATE TABLE files (path BLOB PRIMARY KEY, stamp TEXT, content TEXT)",
    "CREATE TABLE learned (key TEXT, name TEXT, dtype TEXT, shape TEXT, checksum INTEGER, value BLOB, "
    "PRIMARY KEY (key, name))",
)

_BATCH = 500  # keys in one query; SQLite takes at least 999


class CacheError(OSError):
    """The cache cannot be used; the sentence says why and what to do."""


class FeatureCache:
    """Arrays by key in one SQLite file.

    Parameters
    ----------
    path : path
        The file; or a folder, which gets a file ``features.sqlite``. What does not exist is created, a path without
        suffix as a folder. The file may be deleted whenever nobody uses it.

    Notes
    -----
    An object belongs to the thread that made it. Keys are text, by convention the SHA-256 of everything the value
    depends on, so values never have to be changed.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from kernelweave.images import FeatureCache
    >>> with FeatureCache(tempfile.mkdtemp()) as cache:
    ...     cache.put_many({"a": np.array([1.0, 2.0], dtype=np.float32)})
    ...     cache.get_many(["a", "b"])
    {'a': array([1., 2.], dtype=float32)}
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        path = Path(path)
        # Asked for a file first: a folder that another process makes in between must not be taken for one.
        is_file = path.is_file() or (path.suffix != "" and not path.is_dir())
        self.path = path if is_file else path / "features.sqlite"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._cannot_be_written(error.strerror or str(error)) from error
        with self._explained():
            self._connection = sqlite3.connect(self.path, timeout=PATIENCE, isolation_level=None)
        try:
            with self._explained():
                self._prepare()
        except BaseException:
            self.close()
            raise

    def get_many(self, keys: Iterable[str]) -> dict[str, NDArray[np.float32]]:
        """The vectors of those keys that are known; read-only arrays."""
        rows = self._select("SELECT key, checksum, value FROM features WHERE key IN", keys)
        return {key: self._array(value, checksum, "<f4", np.float32) for key, checksum, value in rows}

    def put_many(self, values: Mapping[str, NDArray[np.float32]]) -> None:
        """Keep float32 vectors; all of them or, when something goes wrong, none."""
        for key, value in values.items():
            if value.dtype != np.float32 or value.ndim != 1:
                raise ValueError(f"the cache keeps float32 vectors, got {value.dtype} {value.shape} for {key!r}")
        encoded = ((key, value.astype("<f4", copy=False).tobytes()) for key, value in values.items())
        rows = ((key, zlib.crc32(data), data) for key, data in encoded)
        self._insert("INSERT OR REPLACE INTO features VALUES (?, ?, ?)", rows)

    def get_learned(self, key: str) -> dict[str, NDArray] | None:
        """What a feature learned: arrays by name, or None when nothing is known under this key."""
        columns = "name, dtype, shape, checksum, value"
        learned = {}
        for name, kind, shape, checksum, value in self._select(f"SELECT {columns} FROM learned WHERE key IN", [key]):
            try:
                dtype = _plain_dtype(kind)
                sides = tuple(int(side) for side in shape.split(",") if side)
                learned[name] = self._array(value, checksum, dtype, dtype.newbyteorder("=")).reshape(sides)
            except (ValueError, TypeError, AttributeError) as error:
                raise self._damaged(str(error)) from error
        return learned or None

    def put_learned(self, key: str, learned: Mapping[str, NDArray]) -> None:
        """Keep what a feature learned: arrays of numbers by name."""
        rows = []
        for name, array in learned.items():
            dtype = array.dtype.newbyteorder("<")
            data = array.astype(_plain_dtype(dtype.str), copy=False).tobytes()
            rows.append((key, name, dtype.str, ",".join(map(str, array.shape)), zlib.crc32(data), data))
        self._insert("INSERT OR REPLACE INTO learned VALUES (?, ?, ?, ?, ?, ?)", rows)

    def get_contents(self, stamps: Mapping[str, str]) -> dict[str, str]:
        """The content hashes of files that have not changed since they were kept: those with the same stamp.

        Parameters
        ----------
        stamps : mapping of path to text
            What changes when the file does: its size, times and so on.
        """
        rows = self._select(
            "SELECT path, stamp, content FROM files WHERE path IN", (os.fsencode(path) for path in stamps)
        )
        return {os.fsdecode(path): content for path, stamp, content in rows if stamps[os.fsdecode(path)] == stamp}

    def put_contents(self, contents: Mapping[str, tuple[str, str]]) -> None:
        """Keep the stamps and content hashes of files, by path."""
        rows = ((os.fsencode(path), stamp, content) for path, (stamp, content) in contents.items())
        self._insert("INSERT OR REPLACE INTO files VALUES (?, ?, ?)", rows)

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def __enter__(self) -> FeatureCache:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _prepare(self) -> None:
        run = self._connection.execute
        run("PRAGMA trusted_schema = OFF")  # a prepared file must not make us call anything
        with self._transaction():  # immediate: of two processes that make the file, one waits for the other
            (application,), (form,) = run("PRAGMA application_id").fetchone(), run("PRAGMA user_version").fetchone()
            (tables,) = run("SELECT count(*) FROM sqlite_master").fetchone()
            if application != APPLICATION and (application or tables):
                raise CacheError(
                    f"{self.path} is an SQLite file of another program, not a feature cache: choose another path"
                )
            if form > FORM:
                raise CacheError(
                    f"the feature cache {self.path} was written by a newer version of kernelweave: update kernelweave, "
                    "or choose another path"
                )
            if application != APPLICATION:
                for statement in TABLES:
                    run(statement)
        try:  # reading while another process writes; the file stays so once somebody made it so
            run("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:  # in use: whoever opens it next will
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
        run("PRAGMA synchronous = NORMAL")  # the file is never damaged; a power cut may lose the last transactions

    def _select(self, query: str, keys: Iterable[Any]) -> Iterator[tuple]:
        wanted = list(keys)
        for start in range(0, len(wanted), _BATCH):
            batch = wanted[start : start + _BATCH]
            with self._explained():
                rows = self._connection.execute(f"{query} ({','.join('?' * len(batch))})", batch).fetchall()
            yield from rows

    def _insert(self, statement: str, rows: Iterable[tuple]) -> None:
        with self._explained(), self._transaction():
            self._connection.executemany(statement, rows)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def _array(self, value: object, checksum: object, stored: Any, dtype: Any) -> NDArray:
        if not isinstance(value, bytes) or zlib.crc32(value) != checksum or len(value) % np.dtype(stored).itemsize:
            raise self._damaged("a value does not fit its checksum")
        return np.frombuffer(value, stored).astype(dtype, copy=False)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Errors of SQLite as sentences."""
        try:
            yield
        except sqlite3.Error as error:
            kind = getattr(error, "sqlite_errorcode", -1) & 0xFF  # the upper bits only give details
            if kind in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_FORMAT):
                raise self._damaged(str(error)) from error
            if kind in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise CacheError(
                    f"another process has been writing to the feature cache {self.path} for more than {PATIENCE:.0f} "
                    "seconds: wait for it, or choose another path"
                ) from error
            if kind in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
                raise self._cannot_be_written(str(error)) from error
            if kind in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
                raise CacheError(
                    f"the feature cache {self.path} cannot be used ({error}): is the disk full or gone?"
                ) from error
            raise

    def _damaged(self, detail: str) -> CacheError:
        return CacheError(
            f"the feature cache {self.path} is damaged ({detail}): delete it and the files {self.path.name}-wal and "
            f"{self.path.name}-shm beside it, if there are any, and run again; the features are then computed anew"
        )

    def _cannot_be_written(self, detail: str) -> CacheError:
        return CacheError(
            f"the feature cache {self.path} cannot be written ({detail}): choose a path where you may write, "
            "or no cache"
        )


def _plain_dtype(text: str) -> np.dtype:
    dtype = np.dtype(text)
    if dtype.kind not in "biuf":
        raise TypeError(f"the cache keeps arrays of numbers, got {dtype}")
    return dtype
