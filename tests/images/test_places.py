"""Where to look: inside the picture, the same every time, and somewhere in every picture."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelweave._spec import from_spec, to_spec
from kernelweave.images.base import Picture, Where
from kernelweave.images.places import DenseGrid, EdgePoints, HarrisLaplace, RandomWindows, Together, check_places

WHERES = (
    DenseGrid(),
    DenseGrid(3, (2.0, 5.5)),
    HarrisLaplace(),
    HarrisLaplace(most=3, octaves=2),
    EdgePoints(),
    EdgePoints(most=7, radius=3.0),
    RandomWindows(),
    RandomWindows(5, seed=2, smallest=3.0),
    Together((DenseGrid(10), RandomWindows(4))),
)


def noise(height: int, width: int, seed: int = 0) -> Picture:
    return Picture(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


def flat(height: int, width: int) -> Picture:
    return Picture(np.full((height, width, 3), 120, dtype=np.uint8))


def with_square(side: int, centre: int = 60) -> Picture:
    rgb = np.zeros((120, 120, 3), dtype=np.uint8)
    first = centre - side // 2
    rgb[first : first + side, first : first + side] = 255
    return Picture(rgb)


@pytest.mark.parametrize("where", WHERES, ids=lambda where: where.label)
@given(height=st.integers(1, 70), width=st.integers(1, 70), plain=st.booleans())
@settings(max_examples=15, deadline=None)
def test_every_picture_has_sound_places(where: Where, height: int, width: int, plain: bool) -> None:
    picture = flat(height, width) if plain else noise(height, width)
    places = where.places(picture)
    assert places.dtype == np.float32
    assert len(places) > 0
    np.testing.assert_array_equal(check_places(picture, places), places)


@pytest.mark.parametrize("where", WHERES, ids=lambda where: where.label)
def test_places_are_the_same_every_time(where: Where) -> None:
    np.testing.assert_array_equal(where.places(noise(60, 80)), where.places(noise(60, 80)))


@pytest.mark.parametrize("where", WHERES, ids=lambda where: where.label)
def test_survives_a_file(where: Where) -> None:
    classes = (DenseGrid, HarrisLaplace, EdgePoints, RandomWindows, Together)
    again = from_spec(json.loads(json.dumps(to_spec(where))), classes)
    assert again == where
    assert hash(again) == hash(where)


def test_labels_are_short_and_tell_settings_apart() -> None:
    assert DenseGrid().label == "dense"
    assert DenseGrid(10, (4, 8.5)).label == "dense(step=10, radii=4,8.5)"
    assert len({where.label for where in WHERES}) == len(WHERES)


# Dense grids


def test_grid_goes_radius_by_radius_row_by_row() -> None:
    places = DenseGrid(10, (4.0, 8.0)).places(flat(40, 60))
    first, second = places[places[:, 2] == 4], places[places[:, 2] == 8]
    np.testing.assert_array_equal(places, np.vstack([first, second]))
    for grid in (first, second):
        rows, columns = np.unique(grid[:, 1]), np.unique(grid[:, 0])
        np.testing.assert_array_equal(grid[:, 0], np.tile(columns, len(rows)))
        np.testing.assert_array_equal(grid[:, 1], np.repeat(rows, len(columns)))
        np.testing.assert_array_equal(np.diff(columns), 10)


@given(height=st.integers(1, 80), width=st.integers(1, 80), step=st.integers(1, 12), radius=st.floats(0.5, 20))
@settings(max_examples=50, deadline=None)
def test_grid_squares_are_inside_and_no_more_would_fit(height: int, width: int, step: int, radius: float) -> None:
    places = DenseGrid(step, (radius,)).places(flat(height, width)).astype(np.float64)
    for side, centres in ((width, np.unique(places[:, 0])), (height, np.unique(places[:, 1]))):
        before, after = centres[0] - radius + 0.5, side - 0.5 - (centres[-1] + radius)
        if len(centres) > 1 or (before >= 0 and after >= 0):
            assert before >= -1e-5 and after >= -1e-5
            assert before + after < step + 2
            assert abs(before - after) <= 2
        else:
            assert centres[0] == (side - 1) / 2


# Corners


def test_corner_scale_follows_the_size_of_a_blob() -> None:
    radii = []
    for side in (3, 5, 9, 13):
        x, y, radius = HarrisLaplace().places(with_square(side))[0]
        assert abs(x - 60) <= 1 and abs(y - 60) <= 1
        radii.append(float(radius))
    assert radii == sorted(radii) and radii[-1] > 2.5 * radii[0]


def test_corners_of_a_square_are_found() -> None:
    places = HarrisLaplace().places(with_square(20))
    for corner in ((50, 50), (50, 69), (69, 50), (69, 69)):
        assert np.hypot(*(places[:, :2] - corner).T).min() < 5


def test_strongest_corners_come_first() -> None:
    picture = noise(80, 80)
    all_of_them = HarrisLaplace(most=10**6).places(picture)
    assert len(all_of_them) > 10
    np.testing.assert_array_equal(HarrisLaplace(most=10).places(picture), all_of_them[:10])


def test_a_faint_picture_has_no_corners_but_its_middle() -> None:
    faint = Picture((with_square(9).rgb // 255).astype(np.uint8))
    np.testing.assert_array_equal(HarrisLaplace().places(faint), [[59.5, 59.5, 60]])


# Edges


def test_edge_points_are_on_the_edge() -> None:
    rgb = np.zeros((50, 60, 3), dtype=np.uint8)
    rgb[:, 30:] = 200
    places = EdgePoints(most=1000, radius=4.0).places(Picture(rgb))
    assert len(places) >= 48
    assert set(places[:, 0]) <= {29.0, 30.0}


def test_edge_points_are_thinned_evenly() -> None:
    rgb = np.zeros((101, 60, 3), dtype=np.uint8)
    rgb[:, 30:] = 200
    rows = EdgePoints(most=11).places(Picture(rgb))[:, 1]
    assert len(rows) == 11
    np.testing.assert_allclose(np.diff(rows), 10, atol=1)


# Random windows


def test_windows_are_inside_and_depend_on_the_seed_and_the_size_only() -> None:
    x, y, radius = RandomWindows(500).places(flat(50, 90)).T
    assert (x - radius >= -0.501).all() and (x + radius <= 89.501).all()
    assert (y - radius >= -0.501).all() and (y + radius <= 49.501).all()
    assert radius.min() >= 8 and radius.max() > 20
    np.testing.assert_array_equal(RandomWindows().places(flat(50, 90)), RandomWindows().places(noise(50, 90)))
    assert not np.array_equal(RandomWindows().places(flat(50, 90)), RandomWindows(seed=1).places(flat(50, 90)))
    assert not np.array_equal(RandomWindows().places(flat(50, 90)), RandomWindows().places(flat(90, 50)))


def test_windows_fill_a_picture_too_small_for_them() -> None:
    for side in range(1, 17):
        places = RandomWindows(3).places(flat(side, side))
        np.testing.assert_allclose(places, [[(side - 1) / 2, (side - 1) / 2, side / 2]] * 3, atol=1e-5)


# Together


def test_together_is_one_after_the_other() -> None:
    picture = noise(50, 60)
    parts = DenseGrid(), HarrisLaplace(most=5)
    expected = np.vstack([part.places(picture) for part in parts])
    np.testing.assert_array_equal(Together(parts).places(picture), expected)


# Bad input


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DenseGrid(0), "step of DenseGrid"),
        (lambda: DenseGrid(2.5), "step of DenseGrid"),  # type: ignore[arg-type]
        (lambda: DenseGrid(radii=()), "radii of a DenseGrid"),
        (lambda: DenseGrid(radii=(4.0, -1.0)), "radii of a DenseGrid"),
        (lambda: HarrisLaplace(most=0), "most of HarrisLaplace"),
        (lambda: HarrisLaplace(contrast=float("nan")), "contrast of HarrisLaplace"),
        (lambda: EdgePoints(radius=0.0), "radius of EdgePoints"),
        (lambda: EdgePoints(low=200.0), "low <= high"),
        (lambda: RandomWindows(True), "n of RandomWindows"),
        (lambda: RandomWindows(seed=-1), "seed of RandomWindows"),
        (lambda: Together(()), "Together needs"),
        (lambda: Together(("dense",)), "Together needs"),  # type: ignore[arg-type]
    ],
)
def test_bad_settings_are_named(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("place", [(20, 5, 4), (5, -3, 4), (5, 5, 0), (5, 5, np.nan), (np.nan, 5, 4), (5, 5, np.inf)])
def test_bad_places_are_named(place: tuple[float, ...]) -> None:
    places = np.array([(5, 5, 4), place], dtype=np.float32)
    with pytest.raises(ValueError, match="place 1 is"):
        check_places(flat(10, 10), places)


def test_places_of_the_wrong_shape_are_refused() -> None:
    with pytest.raises(ValueError, match="rows of x, y and radius"):
        check_places(flat(10, 10), np.zeros((3, 2), dtype=np.float32))
