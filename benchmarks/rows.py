"""What benchmarks share: timing in turns, a table of the ratios, and methods compared on the same splits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Row:
    """One comparison: seconds of ours and theirs, and the ratio to reach."""

    what: str
    against: str
    ours: float
    theirs: float
    reach: float
    note: str = ""

    def __str__(self) -> str:
        ratio = self.theirs / self.ours
        return (
            f"{self.what:<48} {self.against:<34} {self.ours * 1e3:>9.1f} {self.theirs * 1e3:>10.1f} "
            f"{ratio:>7.1f}x {self.reach:>6.1f}x  {self.note}"
        )


def medians(repeats: int, *functions: Callable[[], object]) -> list[float]:
    """Median seconds of each function, called in turns after one call that compiles and warms up."""
    for function in functions:
        function()
    seconds: list[list[float]] = [[] for _ in functions]
    for _ in range(repeats):
        for taken, function in zip(seconds, functions, strict=True):
            time.sleep(0.05)  # idle threads of the other library keep spinning for some time
            start = time.perf_counter()
            function()
            taken.append(time.perf_counter() - start)
    return [float(np.median(taken)) for taken in seconds]


def print_rows(rows: Iterable[Row]) -> None:
    """Print a table as its rows are measured."""
    print(f"{'ours':<48} {'against':<34} {'ours ms':>9} {'theirs ms':>10} {'ratio':>8} {'reach':>7}")
    for row in rows:
        print(row, flush=True)


def paired(lines: Sequence[Mapping[str, Any]], one: str, other: str) -> str:
    """How much more accurate a method is than another on the same splits: mean and standard error, and how often.

    Lines of results have the keys method, set, split and accuracy.
    """
    of = {(line["method"], line["set"], line["split"]): line["accuracy"] for line in lines}
    gains = np.array([of[one, *key] - of[other, *key] for method, *key in of if method == one and (other, *key) in of])
    error = gains.std(ddof=1) / np.sqrt(len(gains))
    counts = f"{np.sum(gains > 0)} better, {np.sum(gains < 0)} worse, of {len(gains)}"
    return f"{one} - {other}: {gains.mean():.2f} ± {error:.2f} ({counts})"
