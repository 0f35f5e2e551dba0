"""Process-wide settings: the lock around parallel compiled code and the compiler flags all hot loops share."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any

#: Held while a parallel (``prange``) function runs: some numba threading layers abort when entered from two threads.
parallel_lock = threading.RLock()

#: Operations below which a loop is run by the calling thread alone: waking the others, and waiting for them where other
#: programs are busy, takes longer.
SMALL_LOOP = 1 << 20

#: Re-association lets sums become vector instructions. NaN and infinity keep their meaning, so checks stay valid.
FASTMATH = {"reassoc", "contract", "nsz", "arcp"}


@contextmanager
def parallel_loop(operations: float) -> Iterator[None]:
    """A ``with`` block for one call of a parallel (``prange``) function of about so many operations."""
    import numba

    with parallel_lock:
        threads = numba.get_num_threads()
        if operations < SMALL_LOOP:
            numba.set_num_threads(1)
        try:
            yield
        finally:
            numba.set_num_threads(threads)


def progress(verbose: int, what: str, total: int | None = None) -> Callable[[Iterable[Any]], Iterable[Any]]:
    """Wraps a sequence, or `total` things that come one after the other, in a progress bar; only on a terminal."""
    if not (verbose and total != 0 and sys.stderr.isatty()):
        return iter
    from rich.console import Console
    from rich.progress import track

    return lambda items: track(items, description=what, total=total, console=Console(stderr=True))


def in_threads(function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
    """``[function(item) for item in items]`` by as many threads as compiled loops use, each with one BLAS thread.

    For functions that spend their time in NumPy, BLAS or serial compiled loops, all of which let other threads run.
    """
    import numba

    items = list(items)
    workers = min(len(items), numba.get_num_threads())
    with one_blas_thread():
        if workers <= 1:
            return [function(item) for item in items]
        with ThreadPoolExecutor(workers) as pool:
            return list(pool.map(function, items))


def one_blas_thread() -> AbstractContextManager[Any]:
    """Keep BLAS on the calling thread in a ``with`` block.

    After a parallel call its threads wait in a busy loop, and so do those of the compiled loops: where the two take
    turns every few milliseconds, they take the cores from each other, and small factorisations become slower by far.
    """
    return _blas().limit(limits=1)


@cache
def _blas() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")
