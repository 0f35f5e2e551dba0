"""Local descriptors beside slow obvious references, and what must hold for any picture."""

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
from kernelweave.images.base import Picture, What
from kernelweave.images.local import ColourPatch, Gradients, LocalBinaryPatterns, RobustHue, SelfSimilarity
from kernelweave.images.places import DenseGrid, RandomWindows, Together

WHATS = (
    RobustHue(),
    RobustHue(5),
    LocalBinaryPatterns(),
    Gradients(),
    Gradients(20, signed=False),
    SelfSimilarity(),
    SelfSimilarity(10, 3, patch=3, noise=5.0),
    ColourPatch(),
    ColourPatch(3, "lab"),
)
HISTOGRAMS = tuple(what for what in WHATS if isinstance(what, (RobustHue, LocalBinaryPatterns, Gradients)))

each_what = pytest.mark.parametrize("what", WHATS, ids=lambda what: what.label)


def noise(height: int = 40, width: int = 50, seed: int = 0) -> Picture:
    coarse = np.random.default_rng(seed).integers(0, 256, (-(-height // 2), -(-width // 2), 3), dtype=np.uint8)
    return Picture(cv2.resize(coarse, (width, height), interpolation=cv2.INTER_LINEAR))


def flat(height: int, width: int, colour: tuple[int, int, int] = (90, 90, 90)) -> Picture:
    return Picture(np.full((height, width, 3), colour, dtype=np.uint8))


def pixels(grey: NDArray, x: float, y: float, radius: float):
    """Pixels of a square with the eight around each, the border of the picture repeated."""
    height, width = grey.shape
    for row in range(math.floor(y - radius), math.ceil(y + radius) + 1):
        for column in range(math.floor(x - radius), math.ceil(x + radius) + 1):
            if abs(row - y) < radius and abs(column - x) < radius:
                rows = np.clip(np.arange(row - 1, row + 2), 0, height - 1)
                columns = np.clip(np.arange(column - 1, column + 2), 0, width - 1)
                yield rows[1], columns[1], grey[np.ix_(rows, columns)].astype(np.float64)


def to_circle(histogram: NDArray, turns: float, weight: float) -> None:
    position = turns % 1 * len(histogram)
    histogram[int(position) % len(histogram)] += weight * (1 - position % 1)
    histogram[(int(position) + 1) % len(histogram)] += weight * (position % 1)


def slow_hue(what: RobustHue, picture: Picture, place: NDArray) -> NDArray:
    histogram = np.zeros(what.bins)
    for row, column, _ in pixels(picture.grey, *place):
        red, green, blue = map(float, picture.rgb[row, column])
        first, second = (red - green) / math.sqrt(2), (red + green - 2 * blue) / math.sqrt(6)
        to_circle(histogram, math.atan2(first, second) / (2 * math.pi), math.hypot(first, second))
    return histogram / histogram.sum()


def slow_lbp(what: LocalBinaryPatterns, picture: Picture, place: NDArray) -> NDArray:
    histogram = np.zeros(10)
    s = math.sqrt(0.5)
    for _, _, around in pixels(picture.grey, *place):
        bits = []
        for dy, dx in ((0, 1), (-1, 1), (-1, 0), (-1, -1), (0, -1), (1, -1), (1, 0), (1, 1)):
            point = around[1 + dy, 1 + dx] - around[1, 1]
            if dx and dy:
                beside = around[1 + dy, 1] + around[1, 1 + dx] - 2 * around[1, 1]
                point = s * s * point + s * (1 - s) * beside
            bits.append(point >= 0)
        changes = sum(bits[i] != bits[i - 1] for i in range(8))
        histogram[sum(bits) if changes <= 2 else 9] += 1
    return histogram / histogram.sum()


def slow_gradients(what: Gradients, picture: Picture, place: NDArray) -> NDArray:
    histogram = np.zeros(what.bins)
    for _, _, around in pixels(picture.grey, *place):
        dx, dy = around[1, 2] - around[1, 0], around[0, 1] - around[2, 1]
        turns = math.atan2(dy, dx) / (2 * math.pi)
        to_circle(histogram, turns if what.signed else 2 * turns, math.hypot(dx, dy))
    return histogram / histogram.sum()


def slow_self_similarity(what: SelfSimilarity, picture: Picture, place: NDArray) -> NDArray:
    half, reach = what.patch // 2, max(1, int(place[2]) - what.patch // 2)
    margin = reach + half
    grey = np.pad(picture.grey, margin, mode="edge").astype(np.float64)
    x, y = math.floor(place[0] + 0.5) + margin, math.floor(place[1] + 0.5) + margin

    def distance(dx: int, dy: int) -> float:
        here = grey[y - half : y + half + 1, x - half : x + half + 1]
        there = grey[y + dy - half : y + dy + half + 1, x + dx - half : x + dx + half + 1]
        return float(((here - there) ** 2).sum())

    scale = max(distance(dx, dy) for dx in (-1, 0, 1) for dy in (-1, 0, 1))
    scale = max(scale, what.patch**2 * what.noise**2)
    best: dict[tuple[int, int], float] = {}
    for dy in range(-reach, reach + 1):
        for dx in range(-reach, reach + 1):
            far = math.hypot(dx, dy)
            if 0 < far <= reach:
                ring = int(what.rings * math.log(far) / math.log(reach + 1))
                # rounded: an offset may lie on the border of two angles
                angle = int(round(math.degrees(math.atan2(-dy, dx)) % 360, 6) / (360 / what.angles)) % what.angles
                best[ring, angle] = max(best.get((ring, angle), 0), math.exp(-distance(dx, dy) / scale))
    least, greatest = min(best.values()), max(best.values())
    out = np.zeros((what.rings, what.angles))
    for place_of_bin, value in best.items():
        out[place_of_bin] = (value - least) / (greatest - least)
    return out.ravel()


def slow_patch(what: ColourPatch, picture: Picture, place: NDArray) -> NDArray:
    """Shares of pixels in each part, as matrices, of a picture with its border repeated."""
    margin = 30
    channels = np.pad(picture.channels(what.colour).astype(np.float64), ((0, 0), (margin,) * 2, (margin,) * 2), "edge")

    def shares(centre: float, n: int) -> NDArray:
        edges = np.linspace(centre - place[2], centre + place[2], what.side + 1)
        pixel = np.arange(-margin, n + margin)
        overlap = np.minimum(edges[1:, None], pixel + 0.5) - np.maximum(edges[:-1, None], pixel - 0.5)
        return np.maximum(overlap, 0) / (edges[1] - edges[0])

    return (shares(place[1], picture.height) @ channels @ shares(place[0], picture.width).T).ravel() / 255


SLOW = {
    RobustHue: slow_hue,
    LocalBinaryPatterns: slow_lbp,
    Gradients: slow_gradients,
    SelfSimilarity: slow_self_similarity,
    ColourPatch: slow_patch,
}


@each_what
def test_agrees_with_the_definition(what: What) -> None:
    picture = noise()
    places = [(20, 15, 8), (24.5, 20.5, 4), (30.25, 19.7, 6.4), (0, 0, 5), (49, 20, 10), (25, 39, 3), (5, 5, 20)]
    expected = [SLOW[type(what)](what, picture, np.array(place, dtype=np.float64)) for place in places]
    np.testing.assert_allclose(what.describe(picture, np.array(places, dtype=np.float32)), expected, atol=1e-4)


# What must hold of all


@each_what
@given(height=st.integers(1, 25), width=st.integers(1, 25), radius=st.floats(0.125, 30, width=32))
@settings(max_examples=20, deadline=None)
def test_any_picture_is_described(what: What, height: int, width: int, radius: float) -> None:
    picture = noise(height, width)
    corners = [(0, 0), (width - 1, 0), (width - 0.5, height - 0.5), (width / 2 - 0.5, height / 2 - 0.5)]
    described = what.describe(picture, np.array([(x, y, radius) for x, y in corners], dtype=np.float32))
    assert described.shape == (4, what.length) and described.dtype == np.float32
    assert np.isfinite(described).all()
    assert described.min() >= 0 and described.max() <= 1 + 1e-5


@each_what
def test_no_places_give_no_descriptors(what: What) -> None:
    assert what.describe(noise(), np.empty((0, 3), dtype=np.float32)).shape == (0, what.length)


@each_what
def test_moves_with_the_picture(what: What) -> None:
    picture = noise()
    moved = Picture(np.roll(picture.rgb, (3, 7), axis=(0, 1)))
    places = np.array([(20, 15, 6), (24.5, 20.25, 4.3)], dtype=np.float32)
    there = places + np.array([7, 3, 0], dtype=np.float32)
    np.testing.assert_allclose(what.describe(picture, places), what.describe(moved, there), atol=1e-5)


@each_what
def test_a_square_over_the_border_sees_the_border_repeated(what: What) -> None:
    picture = noise(20, 20)
    larger = Picture(np.pad(picture.rgb, ((30, 30), (30, 30), (0, 0)), mode="edge"))
    places = np.array([(0, 0, 6), (19, 10, 4.5), (3, 17.25, 12)], dtype=np.float32)
    there = places + np.array([30, 30, 0], dtype=np.float32)
    np.testing.assert_allclose(what.describe(picture, places), what.describe(larger, there), atol=1e-5)


@each_what
def test_threads_do_not_disturb_each_other(what: What) -> None:
    where = Together((DenseGrid(6, (4.0, 7.0)), RandomWindows(10)))

    def describe(seed: int) -> NDArray:
        picture = noise(40, 50, seed)
        return what.describe(picture, where.places(picture))

    alone = [describe(seed) for seed in range(6)]
    together = Parallel(n_jobs=3, backend="threading")(delayed(describe)(seed) for seed in range(6))
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one, other)


@each_what
def test_survives_a_file(what: What) -> None:
    again = from_spec(json.loads(json.dumps(to_spec(what))), SLOW)
    assert again == what and hash(again) == hash(what)


def test_labels_tell_settings_apart() -> None:
    assert RobustHue().label == "hue"
    assert Gradients(20, signed=False).label == "gradients(bins=20, signed=False)"
    assert len({what.label for what in WHATS}) == len(WHATS)


@pytest.mark.parametrize("size", [(1, 1), (1, 30), (33, 21)])
@pytest.mark.parametrize("what", [RobustHue(), Gradients(), SelfSimilarity()], ids=lambda what: what.label)
def test_without_contrast_all_is_zero(what: What, size: tuple[int, int]) -> None:
    for level in (0, 77, 255):
        picture = flat(*size, (level, level, level))
        places = DenseGrid(8, (4.0, 8.0)).places(picture)
        assert not what.describe(picture, places).any()


@pytest.mark.parametrize("what", HISTOGRAMS, ids=lambda what: what.label)
def test_histograms_sum_to_one(what: What) -> None:
    described = what.describe(noise(), DenseGrid(7, (5.0,)).places(noise()))
    np.testing.assert_allclose(described.sum(axis=1), 1, atol=1e-5)


# What must hold of each


def test_patterns_do_not_change_with_a_quarter_of_a_turn() -> None:
    picture = noise(31, 31)
    turned = Picture(np.rot90(picture.rgb).copy())
    middle = np.array([[15, 15, 9.5]], dtype=np.float32)
    what = LocalBinaryPatterns()
    np.testing.assert_array_equal(what.describe(picture, middle), what.describe(turned, middle))


@pytest.mark.filterwarnings("ignore:Applying `local_binary_pattern` to floating-point images")
def test_patterns_are_those_of_scikit_image() -> None:
    feature = pytest.importorskip("skimage.feature")
    picture = noise(60, 60)
    codes = feature.local_binary_pattern(picture.grey.astype(np.float64), 8, 1, "uniform")
    expected = np.bincount(codes[10:31, 20:41].astype(int).ravel(), minlength=10) / 21**2
    described = LocalBinaryPatterns().describe(picture, np.array([[30, 20, 10.5]], dtype=np.float32))
    np.testing.assert_allclose(described[0], expected, atol=1e-6)


def test_gradients_turn_with_the_picture() -> None:
    picture = noise(31, 31)
    turned = Picture(np.rot90(picture.rgb).copy())  # counter-clockwise
    middle = np.array([[15, 15, 9.5]], dtype=np.float32)
    expected = np.roll(Gradients(16).describe(picture, middle), 4, axis=1)
    np.testing.assert_allclose(Gradients(16).describe(turned, middle), expected, atol=1e-5)


def test_unsigned_gradients_do_not_see_which_side_is_brighter() -> None:
    picture = noise()
    negative = Picture(255 - picture.rgb)
    places = DenseGrid(9, (6.0,)).places(picture)
    unsigned, signed = Gradients(20, signed=False), Gradients(20)
    np.testing.assert_allclose(unsigned.describe(picture, places), unsigned.describe(negative, places), atol=1e-5)
    opposite = np.roll(signed.describe(negative, places), 10, axis=1)
    np.testing.assert_allclose(signed.describe(picture, places), opposite, atol=1e-5)


def test_hue_does_not_see_brightness_added_to_all_colours() -> None:
    picture = Picture(noise().rgb // 2)
    brighter = Picture(picture.rgb + 60)
    places = DenseGrid(9, (6.0,)).places(picture)
    np.testing.assert_allclose(RobustHue().describe(picture, places), RobustHue().describe(brighter, places), atol=1e-5)


def test_self_similarity_finds_the_repetition() -> None:
    rgb = noise(61, 61).rgb
    rgb[25:36, 41:52] = rgb[25:36, 25:36]  # what is in the middle again, 16 pixels to the right
    described = SelfSimilarity().describe(Picture(rgb), np.array([[30, 30, 25]], dtype=np.float32))[0].reshape(4, 20)
    outer = described[3]
    assert outer[0] == pytest.approx(1, abs=1e-5)
    assert outer[1:].max() < 0.9


def test_patch_of_whole_pixels_is_the_picture() -> None:
    picture = noise(40, 40)
    described = ColourPatch(8).describe(picture, np.array([[15.5, 19.5, 8]], dtype=np.float32))
    expected = cv2.resize(picture.rgb[12:28, 8:24].astype(np.float32), (8, 8), interpolation=cv2.INTER_AREA)
    np.testing.assert_allclose(described.reshape(3, 8, 8), np.moveaxis(expected, 2, 0) / 255, atol=1e-5)


# Bad input


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RobustHue(0), "bins of RobustHue"),
        (lambda: Gradients(2.5), "bins of Gradients"),  # type: ignore[arg-type]
        (lambda: Gradients(signed="no"), "signed of Gradients"),  # type: ignore[arg-type]
        (lambda: SelfSimilarity(patch=4), "odd side"),
        (lambda: SelfSimilarity(noise=-1.0), "noise of SelfSimilarity"),
        (lambda: ColourPatch(0), "side of ColourPatch"),
        (lambda: ColourPatch(colour="sepia"), "one of .* got 'sepia'"),
    ],
)
def test_bad_settings_are_named(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@each_what
def test_places_outside_are_refused(what: What) -> None:
    with pytest.raises(ValueError, match="place 0 is x=40"):
        what.describe(flat(9, 9), np.array([[40, 2, 8]], dtype=np.float32))
