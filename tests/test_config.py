"""Settings of the process: threads are held back only while they should be."""

from __future__ import annotations

import numba
import pytest

from kernelweave._config import SMALL_LOOP, parallel_loop


def test_small_loops_stay_on_the_calling_thread_and_large_ones_do_not():
    before = numba.get_num_threads()
    with parallel_loop(SMALL_LOOP - 1):
        assert numba.get_num_threads() == 1
        with parallel_loop(SMALL_LOOP):
            assert numba.get_num_threads() == 1
    assert numba.get_num_threads() == before
    with parallel_loop(SMALL_LOOP):
        assert numba.get_num_threads() == before


def test_threads_come_back_after_an_error():
    before = numba.get_num_threads()
    with pytest.raises(ZeroDivisionError), parallel_loop(1):
        1 / 0  # noqa: B018
    assert numba.get_num_threads() == before
