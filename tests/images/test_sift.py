"""SIFT beside a slow obvious reference, beside OpenCV, and what must hold for any picture."""

from __future__ import annotations

import json
import math

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from joblib import Parallel, delayed
from numpy.typing import NDArray

from kernelweave._spec import from_spec, to_spec
from kernelweave.images.base import Picture
from kernelweave.images.places import DenseGrid, EdgePoints, HarrisLaplace, RandomWindows, Together
from kernelweave.images.sift import SIFT


def scene(height: int = 120, width: int = 150, seed: int = 0) -> Picture:
    """Blobs of many sizes in colours."""
    rng = np.random.default_rng(seed)
    total = np.zeros((height, width, 3))
    for coarse in (3, 7, 15, 40):
        small = rng.normal(size=(-(-height // coarse) + 1, -(-width // coarse) + 1, 3)) * coarse**0.7
        total += cv2.resize(small, (width, height), interpolation=cv2.INTER_CUBIC)
    total = (total - total.min()) / (np.ptp(total) + 1e-9)
    return Picture((total * 255).astype(np.uint8))


def flat(height: int, width: int, level: int = 120) -> Picture:
    return Picture(np.full((height, width, 3), level, dtype=np.uint8))


# The definition, pixel by pixel


def smoothed(channel: NDArray, radius: float) -> tuple[NDArray, int]:
    level = round(3 * math.log2(radius / 8))
    octave = max(0, level // 3)
    for _ in range(octave):
        channel = cv2.pyrDown(channel, borderType=cv2.BORDER_REPLICATE)
    sigma = 4 / 3 * 2 ** (level / 3) / 2**octave
    if sigma > 0.5:
        channel = cv2.GaussianBlur(channel, (0, 0), math.sqrt(sigma**2 - 0.25), borderType=cv2.BORDER_REPLICATE)
    return channel, octave


def slow_sift(channel: NDArray, x: float, y: float, radius: float) -> NDArray:
    image, octave = smoothed(channel, radius)
    image = np.pad(image, 40, mode="edge").astype(np.float64)
    x, y, cell = x / 2**octave + 40, y / 2**octave + 40, radius / 2 / 2**octave
    histogram = np.zeros((4, 4, 8))
    for row in range(math.floor(y - 3 * cell), math.ceil(y + 3 * cell) + 1):
        for column in range(math.floor(x - 3 * cell), math.ceil(x + 3 * cell) + 1):
            dx = image[row, column + 1] - image[row, column - 1]
            dy = image[row - 1, column] - image[row + 1, column]
            u, v = (column - x) / cell, (row - y) / cell
            strength = math.hypot(dx, dy) * math.exp(-(u * u + v * v) / 8)
            angle = math.atan2(dy, dx) / (2 * math.pi) * 8 % 8
            for i in range(4):
                for j in range(4):
                    share = max(0, 1 - abs(v - (i - 1.5))) * max(0, 1 - abs(u - (j - 1.5)))
                    if share > 0:
                        histogram[i, j, int(angle) % 8] += share * strength * (1 - angle % 1)
                        histogram[i, j, (int(angle) + 1) % 8] += share * strength * (angle % 1)
    descriptor = histogram.ravel()
    descriptor = np.minimum(descriptor / np.linalg.norm(descriptor), 0.2)
    return descriptor / np.linalg.norm(descriptor)


@pytest.mark.parametrize("radius", [1.0, 4.0, 6.3, 8.0, 10.5, 12.0, 16.0, 29.0, 40.0])
def test_agrees_with_the_definition(radius: float) -> None:
    picture = scene()
    places = np.array([(60, 50, radius), (61.3, 44.7, radius), (3, 118, radius), (149, 0, radius)], dtype=np.float32)
    expected = [slow_sift(picture.grey, *map(float, place)) for place in places]
    np.testing.assert_allclose(SIFT().describe(picture, places), expected, atol=1e-4)


@pytest.mark.parametrize("colour", ["rgb", "hsv", "opponent"])
def test_colours_are_described_channel_by_channel(colour: str) -> None:
    picture = scene()
    places = np.array([(60, 50, 8), (20, 70, 14)], dtype=np.float32)
    expected = [
        np.concatenate([slow_sift(channel, *map(float, place)) for channel in picture.channels(colour)])
        for place in places
    ]
    described = SIFT(colour).describe(picture, places)
    assert described.shape == (2, 384) == (2, SIFT(colour).length)
    np.testing.assert_allclose(described, expected, atol=1e-4)


# One definition, whether places share work or not


def one_by_one(what: SIFT, picture: Picture, places: NDArray) -> NDArray:
    return np.concatenate([what.describe(picture, place[None]) for place in places])


@pytest.mark.parametrize(
    "where",
    [
        DenseGrid(8, (8.0,)),
        DenseGrid(5, (3.0, 8.0, 21.0)),
        DenseGrid(40, (6.0,)),
        HarrisLaplace(most=60),
        EdgePoints(most=80),
        RandomWindows(40),
        Together((DenseGrid(16, (8.0, 16.0)), HarrisLaplace(most=20))),
    ],
    ids=lambda where: where.label,
)
@pytest.mark.parametrize("colour", ["grey", "hsv"])
def test_a_grid_gives_what_its_places_give_one_by_one(where, colour: str) -> None:
    picture = scene()
    places = where.places(picture)
    together = SIFT(colour).describe(picture, places)
    np.testing.assert_allclose(together, one_by_one(SIFT(colour), picture, places), atol=1e-5)


@given(seed=st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_any_sequence_of_places_gives_what_they_give_one_by_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    picture = scene(40, 50)
    # few different numbers, so that parts of grids come about in every order
    columns, rows, radii = rng.uniform(0, 49, 4).round(1), rng.uniform(0, 39, 3), rng.choice([3.0, 8.0, 17.0], 2)
    grids = [
        (x, y, radius)
        for radius in radii
        for y in np.sort(rows)
        for x in np.sort(columns)[: rng.integers(1, 5)]
        if rng.random() < 0.9
    ]
    places = np.array(
        grids + [(rng.choice(columns), rng.choice(rows), rng.choice(radii)) for _ in range(8)], np.float32
    )
    np.testing.assert_allclose(SIFT().describe(picture, places), one_by_one(SIFT(), picture, places), atol=1e-5)


# Beside OpenCV


def opencv(picture: Picture, places: NDArray, octave: int = 0) -> NDArray:
    """OpenCV's cells are 1.5 sizes wide; ours half a radius."""
    key_points = [cv2.KeyPoint(float(x), float(y), float(radius) / 3, 0.0, 1.0, octave) for x, y, radius in places]
    kept, described = cv2.SIFT_create().compute(np.rint(picture.grey).astype(np.uint8), key_points)
    assert len(kept) == len(places)
    return described / np.linalg.norm(described, axis=1, keepdims=True)


def correlations(a: NDArray, b: NDArray) -> NDArray:
    return np.array([np.corrcoef(one, other)[0, 1] for one, other in zip(a, b, strict=True)])


def interior(radius: float) -> NDArray[np.float32]:
    return np.array([(x, y, radius) for y in range(60, 140, 8) for x in range(60, 180, 8)], dtype=np.float32)


@pytest.mark.parametrize(("radius", "octave"), [(9.6, 0), (19.2, 1), (38.4, 2)])
def test_correlates_with_opencv_at_its_own_scales(radius: float, octave: int) -> None:
    # 9.6: where a third of a cell is the smoothing of 1.6 pixels that the first octave of OpenCV has
    picture = scene(200, 240)
    similar = correlations(SIFT().describe(picture, interior(radius)), opencv(picture, interior(radius), octave))
    assert np.median(similar) > 0.99
    assert similar.min() > 0.95


def test_correlates_with_opencv_on_a_dense_grid_of_four_pixel_cells() -> None:
    picture = scene(200, 240)
    places = DenseGrid(8, (8.0,)).places(picture)
    assert np.median(correlations(SIFT().describe(picture, places), opencv(picture, places))) > 0.95


# What must hold


@given(
    height=st.integers(1, 40),
    width=st.integers(1, 40),
    radius=st.floats(0.25, 60, width=32),
    colour=st.sampled_from(["grey", "opponent"]),
)
@settings(max_examples=60, deadline=None)
def test_any_picture_is_described(height: int, width: int, radius: float, colour: str) -> None:
    picture = scene(height, width)
    corners = [
        (0, 0),
        (width - 1, 0),
        (0, height - 1),
        (width - 0.5, height - 0.5),
        (width / 2 - 0.5, height / 2 - 0.5),
    ]
    places = np.array([(x, y, radius) for x, y in corners], dtype=np.float32)
    described = SIFT(colour).describe(picture, places)
    assert described.shape == (5, SIFT(colour).length) and described.dtype == np.float32
    lengths = np.linalg.norm(described.reshape(-1, 128), axis=1)
    assert np.all((np.abs(lengths - 1) < 1e-4) | (lengths == 0))
    assert (described >= 0).all()


@pytest.mark.parametrize("level", [0, 1, 77, 255])
@pytest.mark.parametrize("size", [(1, 1), (1, 30), (30, 1), (45, 61)])
def test_a_flat_picture_gives_zeros(size: tuple[int, int], level: int) -> None:
    picture = flat(*size, level)
    for where in (DenseGrid(8, (4.0, 8.0, 16.0)), RandomWindows(10)):
        assert not SIFT("rgb").describe(picture, where.places(picture)).any()


def test_no_places_give_no_descriptors() -> None:
    assert SIFT().describe(flat(5, 5), np.empty((0, 3), dtype=np.float32)).shape == (0, 128)


def test_brightness_and_contrast_do_not_matter() -> None:
    dark = Picture(scene().rgb // 4 * 2)
    bright = Picture(dark.rgb + 100)
    weak = Picture(dark.rgb // 2)
    places = DenseGrid(20, (8.0, 16.0)).places(dark)
    for other in (bright, weak):
        np.testing.assert_allclose(SIFT().describe(dark, places), SIFT().describe(other, places), atol=2e-3)


@pytest.mark.parametrize("radius", [8.0, 16.0])
def test_moves_with_the_picture(radius: float) -> None:
    picture = scene()
    moved = Picture(np.roll(picture.rgb, (4, 8), axis=(0, 1)))  # even numbers: large squares are seen at half the size
    places = np.array([(70, 60, radius), (75, 55, radius)], dtype=np.float32)
    there = places + np.array([8, 4, 0], dtype=np.float32)
    np.testing.assert_allclose(SIFT().describe(picture, places), SIFT().describe(moved, there), atol=1e-4)


def test_mirror_exchanges_cells_and_orientations() -> None:
    picture = scene(121, 121)
    mirrored = Picture(picture.rgb[:, ::-1].copy())
    middle = np.array([(60, 60, 8)], dtype=np.float32)
    expected = SIFT().describe(picture, middle).reshape(4, 4, 8)[:, ::-1, (4 - np.arange(8)) % 8]
    np.testing.assert_allclose(SIFT().describe(mirrored, middle).reshape(4, 4, 8), expected, atol=1e-4)


def test_a_square_over_the_border_sees_the_border_repeated() -> None:
    picture = scene(60, 60)
    larger = Picture(np.pad(picture.rgb, ((20, 20), (20, 20), (0, 0)), mode="edge"))
    places = np.array([(0, 0, 6), (59, 30, 6), (10, 57, 6)], dtype=np.float32)
    moved = places + np.array([20, 20, 0], dtype=np.float32)
    # not quite the same: here the smoothed picture is repeated, there the picture before it is smoothed
    similar = correlations(SIFT().describe(picture, places), SIFT().describe(larger, moved))
    assert similar.min() > 0.98


def test_threads_do_not_disturb_each_other() -> None:
    where = Together((DenseGrid(8, (8.0, 16.0)), RandomWindows(20)))

    def describe(seed: int) -> NDArray:
        picture = scene(60, 70, seed)
        return SIFT("hsv").describe(picture, where.places(picture))

    alone = [describe(seed) for seed in range(8)]
    together = Parallel(n_jobs=4, backend="threading")(delayed(describe)(seed) for seed in range(8))
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one, other)


def test_survives_a_file_and_has_a_name() -> None:
    for what in (SIFT(), SIFT("hsv")):
        assert from_spec(json.loads(json.dumps(to_spec(what))), [SIFT]) == what
    assert (SIFT().label, SIFT("opponent").label) == ("sift", "opponent-sift")


def test_unknown_colours_and_places_outside_are_refused() -> None:
    with pytest.raises(ValueError, match=r"colour of SIFT is one of .* got 'sepia'"):
        SIFT("sepia")
    with pytest.raises(ValueError, match="place 0 is x=40"):
        SIFT().describe(flat(9, 9), np.array([[40, 2, 8]], dtype=np.float32))
