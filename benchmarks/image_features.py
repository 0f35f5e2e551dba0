"""Features of pictures beside OpenCV and scikit-image, on one thread, in one run: medians of both times, their ratio.

    python benchmarks/image_features.py

Times of ours and of theirs are taken in turns, so that a busy machine disturbs both alike.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import cv2
import numba
import numpy as np
from numpy.typing import NDArray
from rows import Row, medians, print_rows
from skimage import feature

from kernelweave.images.base import Array, Picture
from kernelweave.images.histograms import LBPHistogram, binary_patterns, hog, square, uniform_bins
from kernelweave.images.places import DenseGrid
from kernelweave.images.sift import SIFT

REPEATS = 15


def drawn(height: int = 480, width: int = 640) -> Picture:
    """A picture with contrast at many scales."""
    rng = np.random.default_rng(0)
    total = np.zeros((height, width, 3))
    for coarse in (2, 5, 12, 30, 80):
        small = rng.normal(size=(height // coarse + 1, width // coarse + 1, 3)) * coarse**0.7
        total += cv2.resize(small, (width, height), interpolation=cv2.INTER_CUBIC)
    return Picture(((total - total.min()) / np.ptp(total) * 255).astype(np.uint8))


def dense_sift_row(scene: Picture) -> Iterator[Row]:
    """SIFT on a grid, with cells of 4 pixels. Ours starts from the colour picture, theirs from the grey one."""
    rgb = scene.rgb
    places = DenseGrid(step=8, radii=(8.0,)).places(Picture(rgb))
    key_points = [cv2.KeyPoint(float(x), float(y), float(radius) / 3, 0.0) for x, y, radius in places]
    grey, sift = np.rint(Picture(rgb).grey).astype(np.uint8), cv2.SIFT_create()
    ours, theirs = medians(
        REPEATS,
        lambda: SIFT().describe(Picture(rgb), places),
        lambda: sift.compute(grey, key_points),
    )
    described = SIFT().describe(Picture(rgb), places), sift.compute(grey, key_points)[1]
    similar = np.median([np.corrcoef(a, b)[0, 1] for a, b in zip(*described, strict=True)])
    note = f"{len(places)} places, median correlation {similar:.3f}"
    yield Row("dense SIFT, 640x480, step 8, 4-pixel bins", "cv2.SIFT.compute, same grid", ours, theirs, 3.0, note)


def binary_pattern_rows(scene: Picture) -> Iterator[Row]:
    """Uniform local binary patterns, and their histogram from the colour picture on."""
    grey = np.rint(scene.grey)
    whole = grey.astype(np.uint8)

    def their_patterns() -> NDArray:
        return feature.local_binary_pattern(whole, P=8, R=1, method="uniform")

    def their_histogram() -> NDArray:
        return np.bincount(their_patterns().astype(np.intp).ravel(), minlength=10)

    same = (uniform_bins()[binary_patterns(grey)] == their_patterns()).mean()
    ours, theirs = medians(REPEATS, lambda: uniform_bins()[binary_patterns(grey)], their_patterns)
    yield Row("LBP(8, 1) of every pixel, 640x480", "local_binary_pattern", ours, theirs, 3.0, f"{same:.1%} equal")
    ours, theirs = medians(REPEATS, lambda: LBPHistogram().describe(Picture(scene.rgb), {}), their_histogram)
    yield Row("LBPHistogram, 640x480, with the grey picture", "the same and bincount", ours, theirs, 3.0)


def gradient_rows(scene: Picture) -> Iterator[Row]:
    """Histograms of oriented gradients of the whole picture, and of the small square the feature `HOG` is made of."""

    def theirs_of(grey: Array) -> NDArray:
        return feature.hog(grey, 9, (8, 8), (2, 2), block_norm="L2-Hys")

    for what, grey in (("640x480", scene.grey), ("64x64, the square of HOG()", square(scene, 64))):
        difference = np.abs(hog(grey) - theirs_of(grey)).max()
        ours, theirs = medians(REPEATS, lambda: hog(grey), lambda: theirs_of(grey))
        yield Row(f"HOG, {what}", "hog", ours, theirs, 3.0, f"largest difference {difference:.1g}")


def main() -> None:
    """Print the table."""
    warnings.filterwarnings("ignore", "Applying `local_binary_pattern`")
    cv2.setNumThreads(1)
    numba.set_num_threads(1)
    print_rows(row for rows in (dense_sift_row, binary_pattern_rows, gradient_rows) for row in rows(drawn()))


if __name__ == "__main__":
    main()
