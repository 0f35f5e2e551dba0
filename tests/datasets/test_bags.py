"""Bags in the plane: every point on its side, in the numbers asked for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from kernelweave.datasets import make_bags
from kernelweave.datasets.bags import in_disc, in_half_plane

REGIONS = {"disc": in_disc, "half-plane": in_half_plane}


@pytest.mark.parametrize("region", REGIONS)
@pytest.mark.parametrize("fraction", [0.1, 0.3, 0.7, 1.0])
def test_positive_bags_have_their_share_inside_and_negative_ones_none(region: str, fraction: float) -> None:
    bags, y, labels = make_bags(60, fraction, region, random_state=0)
    start = 0
    for bag, label in zip(bags, y, strict=True):
        inside = REGIONS[region](bag)
        tenths = round(10 * fraction)
        assert inside.sum() == (-(-tenths * len(bag) // 10) if label else 0)
        np.testing.assert_array_equal(inside, labels[start : start + len(bag)] == 1)
        assert np.abs(bag).max() <= 3
        start += len(bag)
    assert start == len(labels)


def test_sizes_and_labels_are_uniform() -> None:
    bags, y, _ = make_bags(2000, 0.5, max_size=4, random_state=1)
    sizes = np.bincount([len(bag) for bag in bags], minlength=5)
    assert sizes[0] == 0 and abs(sizes[1:] - 500).max() < 5 * np.sqrt(375)
    assert abs(y.sum() - 1000) < 5 * np.sqrt(500)


def test_points_are_uniform_inside_and_outside() -> None:
    bags, _, labels = make_bags(2000, 0.5, "half-plane", random_state=2)
    points = np.concatenate(bags)
    for side, centre in ((1, 1.5), (0, -1.5)):
        mean = points[labels == side].mean(axis=0)
        np.testing.assert_allclose(mean, [centre, 0.0], atol=0.1)


def test_a_region_of_ones_own() -> None:
    def corner(points: NDArray) -> NDArray[np.bool_]:
        return points.min(axis=1) > 2

    bags, y, labels = make_bags(20, 1.0, corner, random_state=3)
    np.testing.assert_array_equal(corner(np.concatenate(bags)), labels == 1)
    assert 0 < y.sum() < 20


def test_the_same_seed_is_the_same_data() -> None:
    first, second = make_bags(10, random_state=5), make_bags(10, random_state=5)
    for a, b in zip(first[0], second[0], strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(first[1], second[1])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_bags": 0}, "n_bags must be a whole number, at least 1, got 0"),
        ({"max_size": 2.5}, "max_size must be a whole number"),
        ({"positive_fraction": 0.0}, r"positive_fraction must be in \(0, 1\], got 0.0"),
        ({"positive_fraction": 1.1}, r"positive_fraction must be in \(0, 1\]"),
        ({"positive_fraction": "half"}, r"positive_fraction must be in \(0, 1\], got 'half'"),
        ({"region": "circle"}, "region must be one of .*'disc'.*got 'circle'"),
        ({"region": lambda points: points[:, 0] > 9}, "no points inside"),
        ({"region": lambda points: points[:, 0] < 9}, "no points outside"),
    ],
)
def test_refuses(settings: dict[str, float | str | Callable], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        make_bags(**settings, random_state=0)  # type: ignore[arg-type]
