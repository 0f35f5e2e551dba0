"""Global features: what all of them promise, and each against a slow reference or something known."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import linalg
from scipy.ndimage import correlate, gaussian_filter

from kernelweave._spec import from_spec, to_spec
from kernelweave.images.base import Picture
from kernelweave.images.histograms import HOG, PHOG, ColourHistogram, HistogramFeature, LBPHistogram, edge_gradients
from kernelweave.images.layouts import pixel_cells
from kernelweave.images.whole import (
    COVARIANCE_RIDGE,
    GIST,
    V1_FREQUENCIES,
    V1_REACH,
    GeometricBlur,
    RegionCovariance,
    V1Like,
    _even_neighbourhoods,
    gist_filters,
    log_vector,
    oriented_edges,
    pixel_features,
    spread_points,
)
from kernelweave.kernels import ChiSquared, KernelBank, Laplacian, Repaired
from kernelweave.kernels.matching import Matching

LAYOUTS = ("1x1", "3x1", "1x1+2x2+4x4")
FEATURES = [
    ColourHistogram("rgb", 8, LAYOUTS),
    ColourHistogram("hsv", 4, LAYOUTS, pooling="max"),
    ColourHistogram("lab"),
    LBPHistogram(LAYOUTS),
    PHOG(layouts=LAYOUTS),
    PHOG(20, signed=False),
    HOG(),
    HOG(cell=6, block=3, bins=12, side=50),
    GIST(),
    GIST((6, 4), cells=3, side=50),
    V1Like(),
    V1Like(orientations=3, cells=5, side=33),
    RegionCovariance(LAYOUTS),
    RegionCovariance(colour="rgb"),
    GeometricBlur(),
    GeometricBlur(points=7, radii=(5.0, 40.0), angles=3, side=64),
]
SIZES = [(1, 1), (1, 37), (29, 1), (2, 3), (7, 5), (33, 48), (64, 31)]


def noise(height, width, seed=0):
    return Picture(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


def gratings(degrees, period, size=128):
    """A wave whose brightness changes along the given direction, counted from x towards y, which grows downwards."""
    y, x = np.mgrid[:size, :size]
    phase = 2 * np.pi / period * (x * np.cos(np.radians(degrees)) + y * np.sin(np.radians(degrees)))
    return Picture(np.repeat((127 + 100 * np.cos(phase)).astype(np.uint8)[..., None], 3, axis=2))


@pytest.mark.parametrize("feature", FEATURES, ids=lambda feature: feature.views[0])
def test_every_picture_gives_finite_vectors_of_one_length(feature):
    pictures = [noise(*size) for size in SIZES]
    pictures += [Picture(np.full((20, 30, 3), level, np.uint8)) for level in (0, 128, 255)]
    described = [feature.describe(picture, {}) for picture in pictures]
    lengths = [len(vector) for vector in described[0]]
    assert len(lengths) == len(feature.views) == len(set(feature.views))
    for vectors in described:
        assert [len(vector) for vector in vectors] == lengths
        for vector in vectors:
            assert vector.dtype == np.float32 and vector.ndim == 1 and np.isfinite(vector).all()
            if isinstance(feature, HistogramFeature):
                assert (vector >= 0).all()
                assert vector.sum() == pytest.approx(1.0, abs=1e-5) or (isinstance(feature, PHOG) and not vector.any())


@pytest.mark.parametrize("feature", FEATURES, ids=lambda feature: feature.views[0])
def test_the_same_picture_gives_the_same_vectors(feature):
    for first, second in zip(feature.describe(noise(40, 50), {}), feature.describe(noise(40, 50), {}), strict=True):
        assert_array_equal(first, second)


def test_pictures_are_described_in_threads_side_by_side():
    def describe(seed):
        picture = noise(40, 50, seed)
        return np.concatenate([vector for feature in FEATURES for vector in feature.describe(picture, {})])

    with ThreadPoolExecutor(4) as pool:
        for seed, vectors in enumerate(pool.map(describe, range(8))):
            assert_array_equal(vectors, describe(seed))


@pytest.mark.parametrize("feature", FEATURES, ids=lambda feature: feature.views[0])
def test_plain_data_and_back(feature):
    again = from_spec(to_spec(feature), [type(feature)])
    assert again == feature and hash(again) == hash(feature) and not feature.learns


@pytest.mark.parametrize("feature", FEATURES, ids=lambda feature: feature.views[0])
def test_kernel_of_pictures(feature):
    pictures = [noise(24, 30, seed) for seed in range(6)] + [gratings(30 * k, 7.0, 40) for k in range(6)]
    X = {
        view: np.stack(rows)
        for view, rows in zip(
            feature.views, zip(*(feature.describe(p, {}) for p in pictures), strict=True), strict=True
        )
    }
    bank = KernelBank(feature.kernel).build(X)
    cross = bank.expansion(range(bank.n_kernels), np.arange(12)).cross({view: rows[:2] for view, rows in X.items()})
    for j in range(bank.n_kernels):
        gram = bank.gram(j)
        values = np.linalg.eigvalsh(gram.astype(np.float64))
        assert values[0] > -1e-5 * values[-1]
        off = ~np.eye(12, dtype=bool)[:2]
        assert_allclose(cross[j][off], gram[:2][off], atol=1e-5)


def test_kernels():
    assert GIST().kernel == PHOG().kernel == ChiSquared()
    assert V1Like().kernel == RegionCovariance().kernel == Laplacian()
    feature = GeometricBlur(radii=(4.0,), angles=3)
    assert feature.length == 16 and feature.kernel == Repaired(Matching(16), "shift")


@pytest.mark.parametrize("period", [4.0, 12.0])
@pytest.mark.parametrize("orientation", range(8))
def test_gist_finds_orientation_and_scale_of_a_grating(orientation, period):
    vector = GIST().describe(gratings(22.5 * orientation, period), {})[0].reshape(4, 8, 16).mean(axis=2)
    scale, found = np.unravel_index(vector.argmax(), vector.shape)
    assert found == orientation
    assert scale == np.abs(np.log(0.3 / 1.85 ** np.arange(4) * period)).argmin()


def test_gist_filters_pass_one_side():
    filters = gist_filters((8, 8, 8, 8), 160)
    assert filters.shape == (32, 160, 160) and filters.dtype == np.float32
    assert filters.max() <= 1.0
    opposite = np.roll(filters[:, ::-1, ::-1], 1, axis=(1, 2))
    assert (filters * opposite).max() < 0.01
    with pytest.raises(ValueError, match="read-only"):
        filters[0] = 0


def test_gist_cells_lie_where_the_content_is():
    rgb = np.full((128, 128, 3), 127, np.uint8)
    rgb[64:, 96:] = noise(64, 32).rgb
    energy = GIST().describe(Picture(rgb), {})[0].reshape(32, 4, 4).sum(axis=0)
    assert energy[2:, 3].min() > 1.5 * np.delete(energy, 3, axis=1).max()
    assert energy[2:, 3].min() > 1.5 * energy[:2].max()


def test_gist_hardly_depends_on_illumination():
    rgb = noise(128, 128).rgb // 2 + 40
    first, second = (GIST().describe(Picture(picture), {})[0] for picture in (rgb, rgb // 2))
    assert np.linalg.norm(first - second) < 0.05 * np.linalg.norm(first)
    assert not GIST().describe(Picture(np.full((9, 9, 3), 77, np.uint8)), {})[0].any()


def slow_even(channels):
    padded = np.pad(channels.astype(float), ((0, 0), (1, 1), (1, 1)), mode="edge")
    out = np.empty(channels.shape)
    for r in range(channels.shape[1]):
        for c in range(channels.shape[2]):
            near = padded[:, r : r + 3, c : c + 3]
            out[:, r, c] = (channels[:, r, c] - near.mean()) / max(1.0, np.linalg.norm(near - near.mean()))
    return out


def test_neighbourhoods_are_normalised():
    channels = np.random.default_rng(0).normal(scale=0.4, size=(3, 8, 9)).astype(np.float32)
    assert_allclose(_even_neighbourhoods(channels), slow_even(channels), atol=1e-5)


def test_v1_is_its_definition():
    feature = V1Like(orientations=2, cells=4, side=32)
    picture = noise(32, 32)
    seen = slow_even(picture.grey[None])[0]
    steps = np.arange(-V1_REACH, V1_REACH + 1)
    x, y = np.meshgrid(steps, steps)
    responses = []
    for frequency in V1_FREQUENCIES:
        for along in (x, y):
            gabor = np.exp(-(x**2 + y**2) / 162) * np.cos(2 * np.pi * frequency * along)
            gabor -= gabor.mean()
            responses.append(np.clip(correlate(seen, gabor / np.linalg.norm(gabor), mode="reflect"), 0, 1))
    even = slow_even(np.array(responses))
    expected = even.reshape(12, 4, 8, 4, 8).mean(axis=(2, 4))
    assert_allclose(feature.describe(picture, {})[0], expected.ravel(), atol=1e-4)


def test_v1_finds_the_orientation_of_a_grating():
    for orientation in (0, 3, 8, 13):
        vector = V1Like().describe(gratings(11.25 * orientation, 6.0, 100), {})[0].reshape(6, 16, 36).mean(axis=2)
        assert vector[3].argmax() == orientation


@pytest.mark.parametrize("colour, length", [("grey", 7), ("rgb", 9)])
def test_covariance_distance_is_log_euclidean(colour, length):
    pictures = [noise(30, 40), gratings(20, 9.0, 40), Picture(np.full((5, 8, 3), 10, np.uint8))]
    for layout in ("1x1", "2x2"):
        vectors = [RegionCovariance((layout,), colour).describe(picture, {})[0] for picture in pictures]
        logarithms = []
        for picture in pictures:
            pixels = pixel_features(picture, colour).astype(float)
            assert pixels.shape == (length, picture.height, picture.width)
            cells = [pixels[:, rows, columns] for rows, columns in pixel_cells(layout, picture.height, picture.width)]
            covariances = [np.cov(cell.reshape(length, -1), bias=True) for cell in cells]
            logarithms.append([linalg.logm(c + COVARIANCE_RIDGE * np.eye(length)) for c in covariances])
        for a, A in zip(vectors, logarithms, strict=True):
            for b, B in zip(vectors, logarithms, strict=True):
                assert np.linalg.norm(a - b) == pytest.approx(np.linalg.norm(np.array(A) - np.array(B)), abs=0.02)


def test_log_vector_keeps_norms():
    rng = np.random.default_rng(0)
    A, B = (m @ m.T + 0.1 * np.eye(6) for m in rng.normal(size=(2, 6, 6)))
    expected = np.linalg.norm(linalg.logm(A) - linalg.logm(B))
    assert np.linalg.norm(log_vector(A) - log_vector(B)) == pytest.approx(expected, rel=1e-10)


def test_pixel_features_by_hand():
    grey = np.array([[0, 51, 153], [0, 51, 153]], np.uint8)
    pixels = pixel_features(Picture(np.repeat(grey[..., None], 3, axis=2)), "grey")
    assert_allclose(pixels[0, 0], [1 / 6, 3 / 6, 5 / 6], rtol=1e-6)
    assert_allclose(pixels[1, :, 0], [0.25, 0.75], rtol=1e-6)
    assert_allclose(pixels[2, 0], [0.0, 0.2, 0.6], atol=1e-6)
    assert_allclose(pixels[3, 0], [0.2, 0.6, 0.4], atol=1e-6)  # |I(x + 1) - I(x - 1)|, the border repeated
    assert_allclose(pixels[5, 0], [0.2, 0.2, 0.4], atol=1e-6)  # |I(x + 1) - 2 I(x) + I(x - 1)|
    assert_allclose(pixels[[4, 6]], 0.0, atol=1e-6)


def test_covariance_of_a_picture_upside_down_changes_the_sign_of_what_goes_with_y():
    first, second = (
        RegionCovariance().describe(Picture(rgb), {})[0] for rgb in (noise(30, 40).rgb, noise(30, 40).rgb[::-1].copy())
    )
    rows, columns = np.triu_indices(7)
    assert_allclose(first, np.where((rows == 1) ^ (columns == 1), -second, second), atol=1e-3)


def test_points_are_spread_over_edges():
    rng = np.random.default_rng(0)
    edges = (rng.random((40, 50)) < 0.1).astype(np.uint8)
    points = spread_points(edges, 30)
    assert points.shape == (30, 2) and len(np.unique(points, axis=0)) == 30
    assert edges[tuple(points.astype(int).T)].all()
    pixels = np.argwhere(edges).astype(float)
    for k in range(1, 30):  # every next point is farthest from those before
        away = np.linalg.norm(pixels[:, None] - points[None, :k], axis=2).min(axis=1)
        assert np.linalg.norm(points[k] - points[:k], axis=1).min() == pytest.approx(away.max())


def test_few_edges_are_repeated_and_none_is_the_centre():
    edges = np.zeros((5, 9), np.uint8)
    assert_array_equal(spread_points(edges, 3), [[2.0, 4.0]] * 3)
    edges[1, 2] = edges[4, 8] = 1
    points = spread_points(edges, 5)
    assert_array_equal(points[:2], points[2:4])
    assert_array_equal(points[4], points[0])


def test_oriented_edges_share_the_gradient():
    picture = gratings(35, 11.0, 50)
    dx, dy, edges = edge_gradients(picture.grey)
    channels = oriented_edges(dx, dy, edges)
    strength = np.where(edges > 0, np.hypot(dx.astype(float), dy.astype(float)), 0.0)
    assert_allclose(channels.sum(axis=2), strength, rtol=1e-5)
    place = channels.sum(axis=(0, 1)) @ np.arange(4) / channels.sum() * 45
    assert place == pytest.approx(35, abs=3)


def test_geometric_blur_is_its_definition():
    feature = GeometricBlur(points=6, radii=(5.0, 9.0), angles=4, side=48)
    picture = gratings(60, 16.0, 48)
    dx, dy, edges = edge_gradients(picture.grey)
    channels, points = oriented_edges(dx, dy, edges), spread_points(edges, 6)
    around = [(0.0, 0.0, 1.0)] + [
        (radius * np.sin(turn), radius * np.cos(turn), 0.5 * radius + 1.0)
        for radius in (5.0, 9.0)
        for turn in np.pi / 2 * np.arange(4)
    ]
    expected = np.zeros((6, 9, 4))
    for k, (row, column) in enumerate(points):
        for s, (down, right, width) in enumerate(around):
            r, c = round(row + down), round(column + right)
            if 0 <= r < 48 and 0 <= c < 48:
                for channel in range(4):
                    blurred = gaussian_filter(channels[..., channel].astype(float), width, mode="constant", truncate=4)
                    expected[k, s, channel] = blurred[r, c]
    expected = expected.reshape(6, -1)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    assert_allclose(feature.describe(picture, {})[0].reshape(6, -1), expected, atol=2e-3)


def test_geometric_blur_finds_the_same_shape_elsewhere():
    def box(left, top, size):
        rgb = np.full((200, 200, 3), 40, np.uint8)
        rgb[top : top + size, left : left + size] = 220
        return Picture(rgb)

    feature = GeometricBlur(points=30)
    pictures = [box(60, 60, 60), box(80, 70, 60), gratings(45, 20.0, 200)]
    X = np.stack([feature.describe(picture, {})[0] for picture in pictures])
    gram = KernelBank(feature.kernel).build(X).gram(0)
    assert gram[0, 1] > 0.8 > 0.5 > gram[0, 2]


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: GIST([8, 8]), "orientations of GIST"),
        (lambda: GIST((8, 0)), "orientations of GIST"),
        (lambda: GIST(side=4), "side of GIST"),
        (lambda: V1Like(cells=0), "cells of V1Like"),
        (lambda: RegionCovariance(colour="lab"), "colour of RegionCovariance"),
        (lambda: RegionCovariance(["1x1"]), "layouts of RegionCovariance"),
        (lambda: GeometricBlur(points=0), "points of GeometricBlur"),
        (lambda: GeometricBlur(radii=()), "radii of GeometricBlur"),
        (lambda: GeometricBlur(blur=-1.0), "blur of GeometricBlur"),
    ],
)
def test_arguments_are_checked(make, message):
    with pytest.raises(ValueError, match=message):
        make()
