"""A stand-in for numba on machines that have a GPU but no numba: compiled loops then run as plain Python.

Nothing that the device parts of `device.py` time goes through such a loop; comparisons with the CPU need numba itself.
"""

from __future__ import annotations

import sys
import types
from typing import Any

import numpy as np


def install() -> None:
    """Make ``import numba`` find the stand-in."""
    numba, extending = types.ModuleType("numba"), types.ModuleType("numba.extending")

    def njit(*args: Any, **options: Any) -> Any:
        return args[0] if args and callable(args[0]) else lambda function: function

    numba.njit = njit  # type: ignore[attr-defined]
    numba.prange = range  # type: ignore[attr-defined]
    numba.get_num_threads = lambda: 1  # type: ignore[attr-defined]
    numba.set_num_threads = lambda n: None  # type: ignore[attr-defined]
    numba.config = types.SimpleNamespace(NUMBA_NUM_THREADS=1)  # type: ignore[attr-defined]
    numba.extending = extending  # type: ignore[attr-defined]
    extending.intrinsic = lambda function: max  # type: ignore[attr-defined]  # its one use: the larger of two numbers
    sys.modules |= {"numba": numba, "numba.extending": extending}
    from kernelweave.machines import decomposition

    decomposition._feasible = feasible


def feasible(v: Any, like: Any, lower: Any, upper: Any, groups: Any) -> bool:
    """The one compiled loop on the way of every solve, as NumPy does it."""
    sums = groups @ (v - like)
    size = 1e-9 * max(float(np.abs(v).sum()), 1.0)
    return bool(np.all(v >= lower) and np.all(v <= upper) and np.all(np.abs(sums) <= size))
