"""Memory that the processes of one machine share: workers there write a combined kernel where the client reads it.

To send it instead takes longer than to add it up.
"""

from __future__ import annotations

import os
import uuid
import weakref
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

#: Files in memory, on Linux.
FOLDER = Path("/dev/shm")
#: Bytes from which sharing pays.
SHARED_FROM = 1 << 20


def shared(n: int, dtype: np.dtype) -> NDArray | None:
    """A new array (n, n) in shared memory; None where there is none, or too little, or where it does not pay."""
    size = n * n * dtype.itemsize
    if size < SHARED_FROM or not FOLDER.is_dir():
        return None
    _remove_left_behind()
    path = FOLDER / f"kernelweave-{os.getpid()}-{uuid.uuid4().hex}"
    try:
        with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600), "wb") as file:
            os.posix_fallocate(file.fileno(), 0, size)  # fails now, and not when the array is written to
        array = np.memmap(path, dtype, "r+", shape=(n, n))
    except (OSError, AttributeError):
        path.unlink(missing_ok=True)
        return None
    weakref.finalize(array, path.unlink, missing_ok=True)
    return array


def _remove_left_behind() -> None:
    """Remove files of processes that were killed. Whoever still reads one keeps it, and is sent the next kernel."""
    for path in FOLDER.glob("kernelweave-*-*"):
        try:
            os.kill(int(path.name.split("-")[1]), 0)
        except ProcessLookupError:
            path.unlink(missing_ok=True)
        except (OSError, ValueError):  # of somebody else
            continue


def path_of(array: NDArray) -> str | None:
    """The file of an array that `shared` made; None of any other."""
    name = str(getattr(array, "filename", ""))
    return name if name.startswith(str(FOLDER / "kernelweave-")) and os.path.exists(name) else None
