"""Descriptors of pictures beside OpenCV, one thread each, in one run: medians of both times, and their ratio.

    python benchmarks/image_descriptors.py [--quick]

Times of ours and of theirs are taken in turns, so that a busy machine disturbs both alike.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from kernelweave.images.base import Picture
from kernelweave.images.places import DenseGrid
from kernelweave.images.sift import SIFT


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
            f"{self.what:<48} {self.against:<34} {self.ours * 1e3:>9.2f} {self.theirs * 1e3:>10.2f} "
            f"{ratio:>7.1f}x {self.reach:>6.1f}x  {self.note}"
        )


def medians(repeats: int, *functions: Callable[[], object]) -> list[float]:
    """Median seconds of each function, called in turns after one call that compiles and warms up."""
    for function in functions:
        function()
    seconds: list[list[float]] = [[] for _ in functions]
    for _ in range(repeats):
        for taken, function in zip(seconds, functions, strict=True):
            start = time.perf_counter()
            function()
            taken.append(time.perf_counter() - start)
    return [float(np.median(taken)) for taken in seconds]


def drawn(height: int = 480, width: int = 640) -> NDArray[np.uint8]:
    """A picture with contrast at many scales."""
    rng = np.random.default_rng(0)
    total = np.zeros((height, width, 3))
    for coarse in (2, 5, 12, 30, 80):
        small = rng.normal(size=(height // coarse + 1, width // coarse + 1, 3)) * coarse**0.7
        total += cv2.resize(small, (width, height), interpolation=cv2.INTER_CUBIC)
    return ((total - total.min()) / np.ptp(total) * 255).astype(np.uint8)


def dense_sift(quick: bool) -> Iterator[Row]:
    """SIFT on a grid, with cells of 4 pixels. Ours starts from the colour picture, theirs from the grey one."""
    rgb = drawn()
    places = DenseGrid(step=8, radii=(8.0,)).places(Picture(rgb))
    key_points = [cv2.KeyPoint(float(x), float(y), float(radius) / 3, 0.0) for x, y, radius in places]
    grey, sift = np.rint(Picture(rgb).grey).astype(np.uint8), cv2.SIFT_create()
    ours, theirs = medians(
        10 if quick else 40,
        lambda: SIFT().describe(Picture(rgb), places),
        lambda: sift.compute(grey, key_points),
    )
    described = SIFT().describe(Picture(rgb), places), sift.compute(grey, key_points)[1]
    similar = np.median([np.corrcoef(a, b)[0, 1] for a, b in zip(*described, strict=True)])
    note = f"{len(places)} places, median correlation {similar:.3f}"
    yield Row("dense SIFT, 640x480, step 8, 4-pixel bins", "cv2.SIFT.compute, same grid", ours, theirs, 3.0, note)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer repetitions, for a look")
    quick = parser.parse_args().quick
    cv2.setNumThreads(1)
    print(f"{'ours':<48} {'against':<34} {'ours ms':>9} {'theirs ms':>10} {'ratio':>8} {'reach':>7}")
    for rows in (dense_sift,):
        for row in rows(quick):
            print(row, flush=True)


if __name__ == "__main__":
    main()
