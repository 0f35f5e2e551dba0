"""Histograms of pictures against slow references and, where it is installed, against scikit-image."""

import cv2
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from kernelweave.images.base import Picture
from kernelweave.images.histograms import (
    HOG,
    LOCAL_CELLS,
    PHOG,
    ColourHistogram,
    LBPHistogram,
    binary_patterns,
    edge_gradients,
    hog,
    uniform_bins,
)
from kernelweave.images.layouts import pixel_cells, pyramid

COUNTS = [ColourHistogram(bins=4), ColourHistogram("lab", 3), LBPHistogram(), PHOG(12), PHOG(8, signed=False)]


def scene(height=45, width=60, seed=0):
    """Smooth random colours with a few sharp shapes."""
    rng = np.random.default_rng(seed)
    rgb = cv2.GaussianBlur(rng.integers(0, 256, (height, width, 3), dtype=np.uint8), (0, 0), 3.0)
    rgb = cv2.normalize(rgb, None, 0, 255, cv2.NORM_MINMAX)
    cv2.circle(rgb, (width // 3, height // 2), height // 5, (250, 20, 30), -1)
    cv2.rectangle(rgb, (width // 2, 5), (width - 8, height // 3), (10, 200, 90), -1)
    return Picture(rgb)


def only(feature, picture):
    (vector,) = feature.describe(picture, {})
    return vector


def with_layouts(feature, *layouts):
    return type(feature)(**{**vars(feature), "layouts": layouts})


@pytest.mark.parametrize("feature", COUNTS, ids=lambda feature: feature.stem)
def test_cells_add_up_to_the_whole(feature):
    picture = scene()
    whole, quarters, strips = with_layouts(feature, "1x1", "2x2", "3x1").describe(picture, {})
    assert whole.sum() == pytest.approx(1.0, abs=1e-5)
    for cells, number in ((quarters, 4), (strips, 3)):
        assert len(cells) == number * len(whole)
        assert_allclose(cells.reshape(number, -1).sum(axis=0), whole, atol=1e-6)


@pytest.mark.parametrize("feature", [*COUNTS, ColourHistogram(bins=4, pooling="max")], ids=lambda feature: feature.stem)
def test_grids_joined_by_plus_are_one_view(feature):
    picture = scene()
    joined = with_layouts(feature, "1x1+2x2+3x1")
    assert joined.views == (f"{feature.stem}/1x1+2x2+3x1",)
    parts = [feature.cells(picture, layout).ravel() for layout in ("1x1", "2x2", "3x1")]
    expected = np.concatenate(parts) / np.concatenate(parts).sum()
    assert_allclose(only(joined, picture), expected, rtol=1e-5)


@pytest.mark.parametrize("colour, bins", [("rgb", 16), ("lab", 5), ("hsv", 12)])
def test_colour_histogram_is_a_count_of_pixels(colour, bins):
    picture = scene(12, 9)
    expected = np.zeros((2, bins, bins, bins))
    channels = picture.channels(colour)
    for cell, (rows, columns) in enumerate(pixel_cells("2x1", 12, 9)):
        for first, second, third in channels[:, rows, columns].reshape(3, -1).T:
            expected[cell, int(first * bins / 256), int(second * bins / 256), int(third * bins / 256)] += 1
    vector = only(ColourHistogram(colour, bins, ("2x1",)), picture)
    assert vector.dtype == np.float32
    assert_allclose(vector, expected.ravel() / 108, rtol=1e-6)


def test_max_pooling_takes_the_largest_share_of_any_local_histogram():
    picture = scene(40, 48)
    feature = ColourHistogram("rgb", 4, ("1x1", "2x2"), pooling="max")
    codes = (picture.channels("rgb") / 64).astype(int)
    codes = (codes[0] * 4 + codes[1]) * 4 + codes[2]
    for layout, vector in zip(feature.layouts, feature.describe(picture, {}), strict=True):
        expected = []
        for cell in pixel_cells(layout, 40, 48):
            part = codes[cell]
            local = [part[small].ravel() for small in pixel_cells(LOCAL_CELLS, *part.shape)]
            expected.append(np.max([np.bincount(s, minlength=64) / len(s) for s in local], axis=0))
        expected = np.concatenate(expected)
        assert_allclose(vector, expected / expected.sum(), rtol=1e-5)


def test_max_pooling_does_not_forget_small_things():
    rgb = np.full((64, 64, 3), 255, np.uint8)
    rgb[8:16, 8:16] = (255, 0, 0)
    picture = Picture(rgb)
    red, white = 4, 7
    mean = only(ColourHistogram(bins=2), picture)
    largest = only(ColourHistogram(bins=2, pooling="max"), picture)
    assert_allclose(mean[[red, white]], [1 / 64, 63 / 64])
    assert_allclose(largest[[red, white]], [0.5, 0.5])


def slow_patterns(grey):
    """Bits of the points at 0, 45, ... 315 degrees, interpolated in double precision, and how close the closest was."""
    padded = np.pad(grey.astype(float), 1)
    s = np.sqrt(0.5)
    rows, columns = np.mgrid[1 : grey.shape[0] + 1, 1 : grey.shape[1] + 1]
    margins = []
    for up, right in ((0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1), (-1, 0), (-1, 1)):
        near, far = padded[rows, columns], padded[rows - up, columns + right]
        if up and right:
            sides = padded[rows - up, columns] + padded[rows, columns + right]
            far = (1 - s) ** 2 * near + s * (1 - s) * sides + s * s * far
        margins.append(far - near)
    margins = np.array(margins)
    return margins, np.abs(margins).min(axis=0)


@pytest.mark.parametrize("levels", [2, 256, None])
def test_binary_patterns_are_comparisons_around_a_pixel(levels):
    rng = np.random.default_rng(1)
    grey = (rng.random((30, 40)) if levels is None else rng.integers(0, levels, (30, 40))).astype(np.float32)
    margins, _ = slow_patterns(grey)
    bits = margins >= -1e-9  # whole numbers that are equal in the real numbers count as equal
    assert_array_equal(binary_patterns(grey), (bits << np.arange(8)[:, None, None]).sum(axis=0))


def test_uniform_bins_by_hand():
    bins = uniform_bins()
    assert bins[0] == 0 and bins[255] == 8 and bins[0b00000001] == 1 and bins[0b10000001] == 2
    assert bins[0b00000101] == 9 and bins[0b01010101] == 9
    assert (np.bincount(bins) == [1, 8, 8, 8, 8, 8, 8, 8, 1, 198]).all()
    for pattern in range(256):  # turning the picture by 45 degrees changes nothing
        assert bins[pattern] == bins[(pattern << 1 | pattern >> 7) & 255]


@pytest.mark.filterwarnings("ignore:Applying `local_binary_pattern` to floating-point images")
def test_binary_patterns_agree_with_scikit_image():
    texture = pytest.importorskip("skimage.feature.texture")
    grey = np.random.default_rng(2).random((60, 80)).astype(np.float32)
    theirs = texture.local_binary_pattern(grey.astype(float), P=8, R=1, method="uniform")
    ours = uniform_bins()[binary_patterns(grey)]
    assert_array_equal(ours, theirs)
    grey = np.rint(scene().grey)
    ours = uniform_bins()[binary_patterns(grey)]
    theirs = texture.local_binary_pattern(grey.astype(np.uint8), P=8, R=1, method="uniform")
    _, closest = slow_patterns(grey)
    # They round the place of a diagonal point to five digits: whole numbers that are equal may then differ.
    assert_array_equal(ours[closest > 1e-3], theirs[closest > 1e-3])
    assert (closest > 1e-3).mean() > 0.5


def test_lbp_of_a_picture_turned_by_90_degrees_is_the_same_but_for_its_border():
    grey = scene().grey
    inner = np.bincount(uniform_bins()[binary_patterns(grey)][1:-1, 1:-1].ravel(), minlength=10)
    turned = np.rot90(grey).copy()
    assert_array_equal(np.bincount(uniform_bins()[binary_patterns(turned)][1:-1, 1:-1].ravel(), minlength=10), inner)


def test_lbp_histogram_counts_patterns():
    picture = scene()
    bins = uniform_bins()[binary_patterns(picture.grey)]
    expected = [np.bincount(bins[cell].ravel(), minlength=10) for cell in pixel_cells("2x2", 45, 60)]
    assert_allclose(only(LBPHistogram(("2x2",)), picture), np.concatenate(expected) / bins.size, rtol=1e-6)


def step(dark_first, turned=False):
    line = np.where(np.arange(32) < 16, 20 if dark_first else 220, 220 if dark_first else 20).astype(np.uint8)
    rgb = np.repeat(np.broadcast_to(line, (32, 32))[..., None], 3, axis=2)
    return Picture(np.rot90(rgb).copy() if turned else rgb)


def test_phog_of_steps():
    for dark_first, turned, signed, unsigned in ((1, 0, 0, 0), (0, 0, 20, 0), (1, 1, 30, 10), (0, 1, 10, 10)):
        picture = step(dark_first, turned)
        assert only(PHOG(40), picture)[signed] == pytest.approx(1.0)
        assert only(PHOG(20, signed=False), picture)[unsigned] == pytest.approx(1.0)


def test_phog_is_a_sum_over_edges():
    picture = scene()
    dx, dy, edges = edge_gradients(picture.grey)
    assert 0 < (edges > 0).sum() < edges.size / 3
    for signed, turn in ((True, 360.0), (False, 180.0)):
        expected = np.zeros((4, 15))
        for cell, (rows, columns) in enumerate(pixel_cells("2x2", 45, 60)):
            on = edges[rows, columns] > 0
            x, y = dx[rows, columns][on].astype(float), dy[rows, columns][on].astype(float)
            numbers = np.floor(np.degrees(np.arctan2(y, x)) / (turn / 15) + 0.5).astype(int) % 15
            np.add.at(expected[cell], numbers, np.hypot(x, y))
        vector = only(PHOG(15, signed, ("2x2",)), picture)
        assert_allclose(vector, expected.ravel() / expected.sum(), atol=1e-6)


def test_phog_turned_by_90_degrees_moves_by_a_quarter():
    picture = scene()
    turned = Picture(np.rot90(picture.rgb).copy())
    # A step to the right becomes a step upwards, which is -90 degrees where y grows downwards.
    assert np.abs(np.roll(only(PHOG(8), picture), -2) - only(PHOG(8), turned)).sum() < 0.1


def test_edges_of_a_drawing_on_a_flat_background():
    rgb = np.full((80, 80, 3), 200, np.uint8)
    rgb[30:50, 30:50] = 190
    _, _, edges = edge_gradients(Picture(rgb).grey)
    assert 60 <= (edges > 0).sum() <= 100  # the outline of the square, and nothing else
    rgb[30:50, 30:50] = 197
    assert not edge_gradients(Picture(rgb).grey)[2].any()


def slow_hog(grey, cell, block, bins):
    grey = grey.astype(float)
    y, x = np.zeros_like(grey), np.zeros_like(grey)
    y[1:-1], x[:, 1:-1] = grey[2:] - grey[:-2], grey[:, 2:] - grey[:, :-2]
    number = ((np.degrees(np.arctan2(y, x)) % 180) / (180 / bins)).astype(int) % bins
    rows, columns = grey.shape[0] // cell, grey.shape[1] // cell
    sums = np.zeros((rows, columns, bins))
    for r in range(rows * cell):
        for c in range(columns * cell):
            sums[r // cell, c // cell, number[r, c]] += np.hypot(x[r, c], y[r, c]) / cell**2
    out = []
    for r in range(rows - block + 1):
        for c in range(columns - block + 1):
            part = sums[r : r + block, c : c + block].ravel()
            part = np.minimum(part / np.sqrt((part**2).sum() + 1e-10), 0.2)
            out.append(part / np.sqrt((part**2).sum() + 1e-10))
    return np.concatenate(out)


@pytest.mark.parametrize("cell, block, bins", [(8, 2, 9), (5, 3, 6), (16, 1, 12), (8, 2, 4)])
def test_hog_is_its_definition(cell, block, bins):
    grey = scene(53, 67).grey
    assert_allclose(hog(grey, cell, block, bins), slow_hog(grey, cell, block, bins), atol=2e-6)


def test_hog_agrees_with_scikit_image():
    feature = pytest.importorskip("skimage.feature")
    picture = scene(96, 120)
    grey = cv2.resize(picture.grey, (64, 64), interpolation=cv2.INTER_AREA)
    theirs = feature.hog(grey, orientations=9, pixels_per_cell=(8, 8), cells_per_block=(2, 2), block_norm="L2-Hys")
    assert_allclose(only(HOG(), picture), theirs, atol=2e-6)


def test_hog_needs_one_block():
    with pytest.raises(ValueError, match="larger picture"):
        hog(np.zeros((15, 40), np.float32))


def test_names():
    assert ColourHistogram("hsv", layouts=("1x1", "3x1")).views == ("colour-hsv/1x1", "colour-hsv/3x1")
    assert ColourHistogram("lab", pooling="max").views == ("colour-lab-max/1x1",)
    assert PHOG(20, signed=False, layouts=pyramid(2), name="edges").views == ("edges/1x1", "edges/2x2")
    assert HOG(name="gradients").views == ("gradients",)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: ColourHistogram("grey"), "colour of ColourHistogram"),
        (lambda: ColourHistogram(bins=64), "bins of ColourHistogram"),
        (lambda: ColourHistogram(pooling="sum"), "pooling of ColourHistogram"),
        (lambda: LBPHistogram("1x1"), "layouts of LBPHistogram"),
        (lambda: LBPHistogram(()), "layouts of LBPHistogram"),
        (lambda: LBPHistogram(("2x2", "2x2")), "layouts of LBPHistogram"),
        (lambda: LBPHistogram(("2x2+",)), "rows x columns"),
        (lambda: LBPHistogram((2,)), "rows x columns"),
        (lambda: PHOG(1), "bins of PHOG"),
        (lambda: HOG(cell=40), "block of HOG"),
        (lambda: HOG(side=2.5), "side of HOG"),
    ],
)
def test_arguments_are_checked(make, message):
    with pytest.raises(ValueError, match=message):
        make()
