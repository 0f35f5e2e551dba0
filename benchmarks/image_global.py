"""Global features of pictures beside scikit-image, in one run on one thread: medians of both times, and their ratio.

    python benchmarks/image_global.py

Times of ours and of theirs are taken in turns, so that a busy machine disturbs both alike.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import cv2
import numba
import numpy as np
from kernels import Row, medians
from numpy.typing import NDArray
from skimage import feature

from kernelweave.images.base import Array, Picture
from kernelweave.images.histograms import LBPHistogram, binary_patterns, hog, square, uniform_bins

REPEATS = 9


def picture(height: int = 480, width: int = 640) -> Picture:
    """Smooth random colours with shapes and a little noise."""
    rng = np.random.default_rng(0)
    rgb = cv2.GaussianBlur(rng.normal(0, 1, (height, width, 3)).astype(np.float32), (0, 0), 12.0)
    rgb = cv2.normalize(rgb, None, 0, 255, cv2.NORM_MINMAX)
    for x, y, radius in rng.integers(20, 400, (20, 3)):
        cv2.circle(rgb, (int(x * 1.5), int(y)), int(radius // 6), rng.integers(0, 256, 3).tolist(), -1)
    return Picture(np.clip(rgb + rng.normal(0, 3, rgb.shape), 0, 255).astype(np.uint8))


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
    print(f"{'ours':<48} {'against':<34} {'ours ms':>9} {'theirs ms':>10} {'ratio':>8} {'reach':>7}")
    for rows in (binary_pattern_rows, gradient_rows):
        for row in rows(picture()):
            print(row, flush=True)


if __name__ == "__main__":
    main()
