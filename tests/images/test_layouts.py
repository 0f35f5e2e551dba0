"""Grids partition the places and the pixels of a picture; boxes cover its points as often as the formula says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from kernelweave.images.layouts import MOST, cell_numbers, grid, pixel_cells, pyramid, random_boxes

LAYOUTS = ["1x1", "2x2", "3x1", "1x3", "4x4", "7x5"]
sides = st.integers(1, 40)
unit = st.floats(0, 1)


def test_a_pyramid_doubles_rows_and_columns_at_every_level():
    assert pyramid(1) == ("1x1",)
    assert [grid(layout) for layout in pyramid(7)] == [(2**level, 2**level) for level in range(7)]


@pytest.mark.parametrize("levels", [0, -1, 8])
def test_pyramids_without_levels_or_with_too_many_are_refused(levels):
    with pytest.raises(ValueError, match="1 to 7 levels"):
        pyramid(levels)


@pytest.mark.parametrize(
    "layout", ["", "2", "2x", "x2", "0x1", "1x0", "2X2", "2x2x2", " 2x2", "-1x2", "65x1", "100x1", 2, None]
)
def test_what_is_no_grid_is_refused_by_name(layout):
    with pytest.raises(ValueError, match="rows x columns") as refused:
        grid(layout)
    assert repr(layout) in str(refused.value)


def test_the_largest_grid_is_accepted():
    assert grid(f"{MOST}x{MOST}") == (MOST, MOST)


@given(st.sampled_from(LAYOUTS), st.lists(st.tuples(unit, unit), min_size=1, max_size=20))
def test_every_place_is_in_the_one_cell_whose_edges_enclose_it(layout, places):
    rows, columns = grid(layout)
    x, y = np.array(places).T
    found = cell_numbers(layout, x, y)
    for number, u, v in zip(found, x, y, strict=True):
        row, column = divmod(int(number), columns)
        assert 0 <= row < rows
        assert row / rows <= v + 1e-12
        assert v <= (row + 1) / rows + 1e-12
        assert column / columns <= u + 1e-12
        assert u <= (column + 1) / columns + 1e-12


@pytest.mark.parametrize("layout", LAYOUTS)
def test_cells_are_numbered_row_by_row(layout):
    rows, columns = grid(layout)
    y, x = np.mgrid[:rows, :columns].reshape(2, -1)
    assert_array_equal(cell_numbers(layout, (x + 0.5) / columns, (y + 0.5) / rows), np.arange(rows * columns))


@given(st.sampled_from(LAYOUTS), sides, sides)
def test_pixel_cells_partition_pictures_with_pixels_enough(layout, height, width):
    rows, columns = grid(layout)
    cells = pixel_cells(layout, height, width)
    covered = np.zeros((height, width), dtype=int)
    for down, across in cells:
        assert covered[down, across].size > 0
        covered[down, across] += 1
    assert len(cells) == rows * columns
    assert covered.min() >= 1
    if height >= rows and width >= columns:
        assert covered.max() == 1


@given(st.sampled_from(["2x2", "4x4", "2x1"]), st.integers(1, 8), st.integers(1, 8))
def test_pixels_and_places_agree_on_cells_where_cells_are_whole_pixels(layout, down, across):
    rows, columns = grid(layout)
    height, width = rows * down, columns * across
    by_place = np.empty((height, width), dtype=int)
    y, x = np.mgrid[:height, :width].reshape(2, -1)
    by_place[y, x] = cell_numbers(layout, (x + 0.5) / width, (y + 0.5) / height)
    for number, (rows_of, columns_of) in enumerate(pixel_cells(layout, height, width)):
        assert (by_place[rows_of, columns_of] == number).all()


# Boxes ----------------------------------------------------------------------------------------------------------------


def test_boxes_have_their_corners_in_order_and_inside_the_picture():
    left, top, right, bottom = random_boxes(500, seed=3).T
    assert (left >= 0).all() and (left <= right).all() and (right <= 1).all()
    assert (top >= 0).all() and (top <= bottom).all() and (bottom <= 1).all()


def test_boxes_depend_on_the_seed_only_and_more_boxes_begin_with_the_same_ones():
    assert_array_equal(random_boxes(7, seed=1), random_boxes(7, seed=1))
    assert_array_equal(random_boxes(20, seed=1)[:7], random_boxes(7, seed=1))
    assert not np.array_equal(random_boxes(7, seed=1), random_boxes(7, seed=2))


def test_boxes_that_are_handed_out_twice_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        random_boxes(7)[0, 0] = 0.5


@pytest.mark.parametrize("point", [(0.5, 0.5), (0.25, 0.5), (0.1, 0.1), (0.9, 0.3), (0.02, 0.5)])
def test_a_point_is_covered_as_often_as_the_formula_says(point):
    n_boxes = 40_000
    left, top, right, bottom = random_boxes(n_boxes, seed=0).T
    u, v = point
    covered = ((left <= u) & (u <= right) & (top <= v) & (v <= bottom)).mean()
    expected = 4 * u * (1 - u) * v * (1 - v)
    spread = np.sqrt(expected * (1 - expected) / n_boxes)
    assert abs(covered - expected) < 4 * spread


def test_widths_and_areas_are_those_of_two_sorted_uniform_numbers():
    boxes = random_boxes(40_000, seed=0)
    widths, heights = (boxes[:, 2:] - boxes[:, :2]).T
    # The width has the density 2 (1 - w), mean 1/3 and variance 1/18; sides are independent.
    for sides_of in (widths, heights):
        assert_allclose(sides_of.mean(), 1 / 3, atol=4 * np.sqrt(1 / 18 / len(boxes)))
        assert_allclose(np.quantile(sides_of, 0.5), 1 - np.sqrt(0.5), atol=0.01)
    area = widths * heights
    assert_allclose(area.mean(), 1 / 9, atol=4 * area.std() / np.sqrt(len(boxes)))
    assert abs(np.corrcoef(widths, heights)[0, 1]) < 4 / np.sqrt(len(boxes))
