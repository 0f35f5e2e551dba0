"""Process-wide settings: the lock around parallel compiled code and the compiler flags all hot loops share."""

from __future__ import annotations

import threading

#: Held while a parallel (``prange``) function runs: some numba threading layers abort when entered from two threads.
parallel_lock = threading.RLock()

#: Re-association lets sums become vector instructions. NaN and infinity keep their meaning, so checks stay valid.
FASTMATH = {"reassoc", "contract", "nsz", "arcp"}
