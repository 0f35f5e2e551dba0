"""Bags of points in the plane, of which those in a region make a bag positive."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import ceil

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from .._validation import check_number

Array = NDArray[np.float64]

#: Points lie in the square from -HALF to +HALF in both directions.
HALF = 3.0
#: Draws in a row that all miss a side of a region before it is refused.
_PATIENCE = 10_000


def in_disc(points: Array) -> NDArray[np.bool_]:
    """Whether points, (n, 2), lie in the disc of radius 1.5 around the origin."""
    return (points**2).sum(axis=1) < 1.5**2


def in_half_plane(points: Array) -> NDArray[np.bool_]:
    """Whether points, (n, 2), lie to the right of the origin."""
    return points[:, 0] > 0


REGIONS: dict[str, Callable[[Array], NDArray[np.bool_]]] = {"disc": in_disc, "half-plane": in_half_plane}


def make_bags(
    n_bags: int = 30,
    positive_fraction: float = 0.5,
    region: str | Callable[[Array], NDArray[np.bool_]] = "disc",
    max_size: int = 10,
    random_state: int | RandomState | None = None,
) -> tuple[list[Array], NDArray[np.int64], NDArray[np.int64]]:
    """Generate bags of points in a square: a bag is positive if some of its points lie in a region.

    Each bag is positive or negative by a fair coin and has 1 to `max_size` points. All points of a negative bag are
    uniform outside the region; of the m points of a positive one, ``ceil(positive_fraction * m)`` are uniform inside.

    Parameters
    ----------
    n_bags : int, default=30
    positive_fraction : float in (0, 1], default=0.5
        Share of the points of a positive bag that lie in the region, at least.
    region : {"disc", "half-plane"} or callable, default="disc"
        The disc of radius 1.5 in the middle of the square from -3 to 3, its right half, or a function of points (n, 2)
        that says which are inside.
    max_size : int, default=10
    random_state : int, RandomState or None

    Returns
    -------
    bags : list of arrays of shape (size of the bag, 2)
    y : array of int of shape (n_bags,)
        1 for positive bags, 0 for negative ones.
    instance_labels : array of int of shape (n_instances,)
        1 for points in the region, 0 for others, one bag after the other.

    Examples
    --------
    >>> from kernelweave.datasets import make_bags
    >>> bags, y, inside = make_bags(n_bags=4, positive_fraction=0.3, random_state=0)
    >>> [bag.shape for bag in bags], y.tolist(), inside.shape
    ([(4, 2), (4, 2), (8, 2), (10, 2)], [0, 1, 1, 0], (26,))
    """
    for name, count in (("n_bags", n_bags), ("max_size", max_size)):
        if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or count < 1:
            raise ValueError(f"{name} must be a whole number, at least 1, got {count!r}.")
    check_number("positive_fraction", positive_fraction, "in (0, 1]", lambda share: 0 < share <= 1)
    if not callable(region) and region not in REGIONS:
        raise ValueError(f"region must be one of {list(REGIONS)} or a function of points (n, 2), got {region!r}.")
    inside = region if callable(region) else REGIONS[region]
    rng = check_random_state(random_state)
    y = rng.randint(0, 2, size=n_bags)
    sizes = rng.randint(1, max_size + 1, size=n_bags)
    share = Fraction(float(positive_fraction)).limit_denominator(1000)  # 0.3 of 10 is 3, whatever 0.3 is in binary
    counts = np.where(y == 1, [ceil(share * int(m)) for m in sizes], 0)
    bags = [
        np.concatenate([_draw(rng, k, inside, True), _draw(rng, m - k, inside, False)])
        for m, k in zip(sizes, counts, strict=True)
    ]
    labels = [np.repeat([1, 0], [k, m - k]) for m, k in zip(sizes, counts, strict=True)]
    return bags, y.astype(np.int64), np.concatenate(labels).astype(np.int64)


def _draw(rng: RandomState, n: int, inside: Callable[[Array], NDArray[np.bool_]], wanted: bool) -> Array:
    """Uniform points of the square on one side of the region, (n, 2)."""
    found = np.empty((0, 2))
    missed = 0
    while len(found) < n:
        points = rng.uniform(-HALF, HALF, size=(20, 2))
        kept = points[np.asarray(inside(points), dtype=bool) == wanted]
        missed = 0 if len(kept) else missed + len(points)
        if missed >= _PATIENCE:
            raise ValueError(
                f"the region has no points {'inside' if wanted else 'outside'} in the square from -3 to 3."
            )
        found = np.concatenate([found, kept])
    return found[:n]
