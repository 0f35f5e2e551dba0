"""Small pictures drawn by code, with several labels each: every label shows in another way.

=============================  =====================================================================================
label                          what makes it apply
=============================  =====================================================================================
circle, triangle, star         the outline of some object, whatever its colour
red, blue                      the colour of some object, whatever its outline
striped, dotted                the pattern of some object, or of the wall behind
night                          the picture is dark and bluish
horizon                        the background is a sky above a ground
=============================  =====================================================================================

So outlines, colours, patterns and the layout of the picture all count, and no single kind of feature knows every label.
Objects also come as squares, crosses and leaves, in other colours, and plain.
"""

from __future__ import annotations

import colorsys
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator, RandomState
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from .._files import atomic_write
from .writers import write_csv

Array = NDArray[np.floating[Any]]  # pictures and masks while they are drawn: 0 to 1

LABELS = ("circle", "triangle", "star", "red", "blue", "striped", "dotted", "night", "horizon")

#: Outlines, colours and patterns of objects, and how often each is drawn.
OUTLINES = {"circle": 0.18, "triangle": 0.18, "star": 0.18, "square": 0.16, "cross": 0.15, "leaf": 0.15}
COLOURS = {"red": 0.18, "orange": 0.1, "yellow": 0.16, "green": 0.17, "teal": 0.11, "blue": 0.18, "purple": 0.1}
PATTERNS = {"plain": 0.7, "striped": 0.15, "dotted": 0.15}

#: How far objects are tilted at most, in turns.
TILT = 0.06

#: Hues of the colours, in turns. They vary by 0.02.
HUES = {"red": 0.985, "orange": 0.08, "yellow": 0.15, "green": 0.34, "teal": 0.47, "blue": 0.61, "purple": 0.78}


@dataclass(frozen=True, eq=False)
class Scenes:
    """Drawn pictures and their labels.

    Attributes
    ----------
    pictures : list of n_scenes arrays of shape (height, width, 3), uint8
        Red, green, blue. One side has the given size, the other is the same or up to a quarter longer.
    Y : array of shape (n_scenes, n_labels), int
        1 the label applies, 0 it does not.
    label_names : tuple of str
    """

    pictures: list[NDArray[np.uint8]]
    Y: NDArray[np.int64]
    label_names: tuple[str, ...] = LABELS

    def __len__(self) -> int:
        return len(self.pictures)


def make_scenes(n_scenes: int = 300, size: int = 96, random_state: int | RandomState | None = None) -> Scenes:
    """Draw scenes with one to four objects.

    Parameters
    ----------
    n_scenes : int, default=300
    size : int, default=96
        The shorter side in pixels, at least 32.
    random_state : int, RandomState or None, default=None
        A number draws the same scenes each time; the first of many are those of few.

    Returns
    -------
    Scenes
        With nine labels, each for 20 to 45 % of the scenes, about three a scene.

    Examples
    --------
    >>> from kernelweave.datasets import make_scenes
    >>> scenes = make_scenes(n_scenes=3, random_state=0)
    >>> len(scenes), scenes.Y.shape, min(scenes.pictures[0].shape[:2])
    (3, (3, 9), 96)
    """
    if n_scenes < 1 or size < 32:
        raise ValueError(f"n_scenes must be at least 1 and size at least 32, got {n_scenes} and {size}")
    seeds = check_random_state(random_state).randint(2**31 - 1, size=n_scenes)
    drawn = [_scene(np.random.default_rng(seed), size) for seed in seeds]
    Y = np.array([[label in labels for label in LABELS] for _, labels in drawn], dtype=np.int64)
    return Scenes([picture for picture, _ in drawn], Y)


def write_scenes(
    folder: str | os.PathLike[str],
    n_scenes: int = 300,
    random_state: int | RandomState | None = None,
    hidden: float = 0.0,
    size: int = 96,
) -> Scenes:
    """Draw scenes into a folder: ``scene-0001.png``, ... and ``labels.csv``, which `read_pictures` reads.

    Parameters
    ----------
    folder : path
        Made if it does not exist. Files with the same names are replaced.
    n_scenes, random_state, size
        As for :func:`make_scenes`.
    hidden : float, default=0.0
        Share of the labels that apply which ``labels.csv`` nevertheless says do not, as with tags that people forgot.

    Returns
    -------
    Scenes
        With all labels, the hidden ones as well.

    Examples
    --------
    >>> import tempfile
    >>> from kernelweave.datasets import read_pictures, write_scenes
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     scenes = write_scenes(folder, n_scenes=20, random_state=0, hidden=0.2)
    ...     pictures = read_pictures(folder)
    >>> pictures.paths[0].name, pictures.label_names == scenes.label_names
    ('scene-0001.png', True)
    >>> int(scenes.Y.sum() - pictures.Y.sum()) == round(0.2 * scenes.Y.sum())
    True
    """
    import cv2

    if not 0 <= hidden <= 1:
        raise ValueError(f"hidden is a share between 0 and 1, got {hidden}")
    folder, rng = Path(folder), check_random_state(random_state)
    scenes = make_scenes(n_scenes, size, rng)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"scene-{number:04d}.png" for number in range(1, n_scenes + 1)]
    for path, picture in zip(paths, scenes.pictures, strict=True):
        _, encoded = cv2.imencode(".png", cv2.cvtColor(picture, cv2.COLOR_RGB2BGR))
        with atomic_write(path) as file:
            file.write(encoded.tobytes())
    shown = scenes.Y.copy()
    given = np.flatnonzero(shown)
    shown.flat[rng.choice(given, size=round(hidden * len(given)), replace=False)] = 0
    write_csv(folder / "labels.csv", paths, scenes.label_names, shown)
    return scenes


def _scene(rng: Generator, size: int) -> tuple[NDArray[np.uint8], set[str]]:
    """A picture and the labels that apply."""
    longer = round(size * rng.uniform(1.0, 1.25))
    height, width = (size, longer) if rng.random() < 0.75 else (longer, size)
    labels: set[str] = set()
    picture = _background(rng, height, width, labels)
    _add_clutter(rng, picture)
    for x, y, radius in _positions(rng, height, width):
        _add_object(rng, picture, x, y, radius, labels)
    if rng.random() < 0.32:
        labels.add("night")
        _darken(rng, picture)
    picture += np.float32(rng.uniform(0.008, 0.025)) * rng.standard_normal(picture.shape, dtype=np.float32)
    return (np.clip(picture, 0, 1) * 255).astype(np.uint8), labels


def _background(rng: Generator, height: int, width: int, labels: set[str]) -> Array:
    """A landscape, or a wall that is plain or has a pattern: (height, width, 3)."""
    down, across = _coordinates(height, width)
    if rng.random() < 0.42:
        labels.add("horizon")
        sky = _blend(_pastel(rng, 0.5), _pastel(rng, 0.25), down / height)
        waves = sum(
            rng.uniform(0.1, 0.4) / k * np.sin(across * (k * rng.uniform(2, 7) / width) + rng.uniform(0, 6))
            for k in (1, 2, 3)
        )
        edge = height * (rng.uniform(0.45, 0.75) + 0.12 * waves)
        hue = rng.choice([0.1, 0.25, 0.3, 0.4, 0.55, 0.07])
        near, far = (_hsv(hue + rng.uniform(-0.03, 0.03), rng.uniform(0.15, 0.5), value) for value in (0.35, 0.65))
        ground = _blend(far, near, np.clip((down - edge) / (height - edge), 0, 1))
        return _blend(sky, ground, np.clip(down - edge, 0, 1))
    angle = rng.uniform(0, 2 * math.pi)
    slope = 0.5 + 0.7 * (math.sin(angle) * (down / height - 0.5) + math.cos(angle) * (across / width - 0.5))
    wall = _blend(_pastel(rng, 0.4), _pastel(rng, 0.3), np.clip(slope, 0, 1))
    if rng.random() < 0.25:
        name = str(rng.choice(["striped", "dotted"]))
        labels.add(name)
        ink = _pattern(rng, name, height, width, rng.uniform(0.1, 0.16) * min(height, width))
        wall = _blend(wall, wall * np.float32(rng.uniform(0.6, 0.8)), ink)
    return wall


def _add_clutter(rng: Generator, canvas: Array) -> None:
    """Short strokes and specks that mean nothing."""
    import cv2

    height, width = canvas.shape[:2]
    for _ in range(rng.integers(3, 12)):
        x, y = rng.uniform(0, width), rng.uniform(0, height)
        length, angle = 0.07 * min(height, width) * rng.random(), rng.uniform(0, math.pi)
        end = round(x + length * math.cos(angle)), round(y + length * math.sin(angle))
        shade = canvas[int(y), int(x)] * rng.uniform(0.6, 1.3)
        cv2.line(canvas, (round(x), round(y)), end, shade.tolist(), int(rng.integers(1, 3)))


def _positions(rng: Generator, height: int, width: int) -> list[tuple[float, float, float]]:
    """Centres x, y and radii of one to four objects that hardly cover each other."""
    wanted = rng.choice([1, 2, 3, 4], p=[0.2, 0.35, 0.3, 0.15])
    placed: list[tuple[float, float, float]] = []
    for _ in range(30):
        radius = min(height, width) * rng.uniform(0.13, 0.23)
        x, y = rng.uniform(radius, width - radius), rng.uniform(radius, height - radius)
        if all(math.hypot(x - u, y - v) > 0.95 * (radius + r) for u, v, r in placed):
            placed.append((x, y, radius))
        if len(placed) == wanted:
            break
    return placed


def _add_object(rng: Generator, canvas: Array, x: float, y: float, radius: float, labels: set[str]) -> None:
    """Draw one object with a shadow, and add what it is to the labels."""
    import cv2

    outline, colour, pattern = _pick(rng, OUTLINES), _pick(rng, COLOURS), _pick(rng, PATTERNS)
    labels.update({outline, colour, pattern}.intersection(LABELS))
    reach = math.ceil(1.6 * radius)  # as far as the shadow goes
    top, left = max(0, int(y) - reach), max(0, int(x) - reach)
    part = canvas[top : int(y) + reach, left : int(x) + reach]
    points = radius * _outline(rng, outline) + (x - left, y - top)
    mask = _mask(points, part.shape[:2])
    shadow = cv2.GaussianBlur(mask, (0, 0), radius / 10)
    moved = cv2.warpAffine(shadow, np.array([[1, 0, radius / 9], [0, 1, radius / 7]]), shadow.shape[::-1])
    part *= 1 - 0.4 * moved[..., None]
    hue = HUES[colour] + rng.uniform(-0.02, 0.02)
    saturation, value = rng.uniform(0.7, 0.95), rng.uniform(0.8, 1.0)
    height, width = part.shape[:2]
    down, across = _coordinates(height, width)
    shading = np.clip(0.5 + (down - (y - top) + across - (x - left)) / (3 * radius), 0, 1)
    fill = _blend(_hsv(hue, saturation, value), _hsv(hue, saturation, 0.72 * value), shading)
    if pattern != "plain":
        ink = _hsv(hue, 0.15, 1.0) if rng.random() < 0.6 else _hsv(hue, saturation, 0.35 * value)
        fill = _blend(fill, ink, _pattern(rng, pattern, height, width, radius * rng.uniform(0.38, 0.55)))
    part[:] = _blend(part, fill, mask)


def _outline(rng: Generator, name: str) -> Array:
    """Corners of an outline about the origin, tilted at random, about 1 away at most: (n_corners, 2)."""
    if name == "circle":
        turns, radii = np.arange(48) / 48, np.ones(48)
    elif name == "triangle":
        turns, radii = np.arange(3) / 3 + rng.uniform(-0.04, 0.04, 3), np.full(3, 1.1)
    elif name == "star":
        turns, radii = np.arange(10) / 10, np.tile([1.1, rng.uniform(0.42, 0.52)], 5)
    elif name == "square":
        turns, radii = np.arange(4) / 4 + rng.uniform(-0.03, 0.03) * np.array([1, -1, 1, -1]), np.ones(4)
    elif name == "cross":
        half = rng.uniform(0.05, 0.065)  # of the width of an arm at its end
        turns = (np.arange(4)[:, None] / 4 + [-half, half, 0.125]).ravel()
        radii = np.tile([1.05, 1.05, 1.05 * math.sin(2 * math.pi * half) * math.sqrt(2)], 4)
    else:  # a leaf: two arcs that meet in points
        along = np.linspace(-1, 1, 17)
        x, y = np.append(along, along[::-1]), 0.48 * np.append(1 - along**2, along**2 - 1)
        turns, radii = np.arctan2(y, x) / (2 * math.pi), 1.1 * np.hypot(x, y)
    upright = {"square": -0.125, "leaf": 0.0}.get(name, -0.25)  # the first corner of the others is at the top
    angles = 2 * math.pi * (turns + upright + rng.uniform(-TILT, TILT))
    return np.column_stack([radii * np.cos(angles), radii * np.sin(angles)]).astype(np.float32)


def _mask(points: Array, shape: tuple[int, ...]) -> Array:
    """1 inside a polygon and 0 outside, with smooth edges."""
    import cv2

    mask = np.zeros(shape, dtype=np.uint8)
    cv2.fillPoly(mask, [np.round(points * 16).astype(np.int32)], 255, lineType=cv2.LINE_AA, shift=4)
    return mask.astype(np.float32) / 255


def _pattern(rng: Generator, name: str, height: int, width: int, period: float) -> Array:
    """Ink of stripes or dots in a random direction: (height, width)."""
    down, across = _coordinates(height, width)
    angle, frequency = rng.uniform(0, math.pi), 2 * math.pi / period
    right, up = frequency * math.cos(angle), frequency * math.sin(angle)
    wave = np.cos(right * across + up * down + rng.uniform(0, 2 * math.pi))
    if name == "dotted":
        wave += np.cos(right * down - up * across + rng.uniform(0, 2 * math.pi)) - 0.8
    return np.clip(0.25 * period * wave + 0.5, 0, 1)  # about a pixel between ink and no ink


def _darken(rng: Generator, picture: Array) -> None:
    """Moonlight: dim, bluish, darker towards the top, with a few stars in the darkest part."""
    height, width = picture.shape[:2]
    level = np.linspace(rng.uniform(0.28, 0.38), rng.uniform(0.45, 0.6), height, dtype=np.float32)
    picture *= level[:, None, None] * np.array([0.8, 0.9, 1.3], dtype=np.float32)
    for _ in range(rng.integers(4, 12)):
        picture[rng.integers(height // 2), rng.integers(width)] = rng.uniform(0.6, 0.9)


def _blend(first: Array, second: Array, share: Array) -> Array:
    """Pixels that are `second` by the share, else `first`; both are pictures or colours."""
    return first + (second - first) * share[..., None]


def _coordinates(height: int, width: int) -> tuple[Array, Array]:
    """Rows (height, 1) and columns (1, width) of pixels."""
    return np.arange(height, dtype=np.float32)[:, None], np.arange(width, dtype=np.float32)[None]


def _pastel(rng: Generator, saturation: float) -> Array:
    return _hsv(rng.random(), rng.uniform(0.05, saturation), rng.uniform(0.6, 0.95))


def _hsv(hue: float, saturation: float, value: float) -> Array:
    return np.array(colorsys.hsv_to_rgb(hue % 1, saturation, value), dtype=np.float32)


def _pick(rng: Generator, shares: dict[str, float]) -> str:
    return str(rng.choice(list(shares), p=list(shares.values())))
