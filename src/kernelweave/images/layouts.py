"""How a picture is cut into cells, each described by itself: grids written "rows x columns", and boxes drawn at random.

"1x1" is the whole picture, "3x1" three horizontal strips, "2x2" and "4x4" are the next levels of the spatial pyramid.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .checks import check_several

#: Most rows or columns of a grid, far beyond what has a use.
MOST = 64


def pyramid(levels: int) -> tuple[str, ...]:
    """The grids of a spatial pyramid, coarse to fine.

    Examples
    --------
    >>> from kernelweave.images import pyramid
    >>> pyramid(3)
    ('1x1', '2x2', '4x4')
    """
    if not 1 <= levels <= 7:
        raise ValueError(f"a pyramid has 1 to 7 levels, got {levels!r}")
    return tuple(f"{2**level}x{2**level}" for level in range(levels))


def grid(layout: str) -> tuple[int, int]:
    """Rows and columns of a grid.

    Examples
    --------
    >>> from kernelweave.images.layouts import grid
    >>> grid("3x1")
    (3, 1)
    """
    found = re.fullmatch(r"(\d{1,2})x(\d{1,2})", layout) if isinstance(layout, str) else None
    rows, columns = (int(number) for number in found.groups()) if found else (0, 0)
    if not (1 <= rows <= MOST and 1 <= columns <= MOST):
        raise ValueError(f"a layout is rows x columns, such as '1x1', '3x1' or '4x4', got {layout!r}")
    return rows, columns


def grids(layout: str) -> list[str]:
    """The grids whose cells a layout puts side by side: "1x1+2x2" is one view with the cells of both.

    Examples
    --------
    >>> from kernelweave.images.layouts import grids
    >>> grids("1x1+2x2")
    ['1x1', '2x2']
    """
    parts = layout.split("+") if isinstance(layout, str) else [layout]
    for part in parts:
        grid(part)
    return parts


def check_layouts(recipe: Any) -> None:
    """Refuse a recipe whose `layouts` are no tuple of different layouts."""
    check_several(recipe, "layouts")
    for layout in recipe.layouts:
        grids(layout)


def cell_numbers(layout: str, x: NDArray, y: NDArray) -> NDArray[np.intp]:
    """The cell of each place, row by row: (n_places,), from relative coordinates ``0 <= x, y <= 1``.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.images.layouts import cell_numbers
    >>> cell_numbers("2x2", np.array([0.1, 0.9, 1.0]), np.array([0.1, 0.2, 1.0]))
    array([0, 1, 3])
    """
    rows, columns = grid(layout)
    row = np.minimum((np.asarray(y) * rows).astype(np.intp), rows - 1)
    column = np.minimum((np.asarray(x) * columns).astype(np.intp), columns - 1)
    return row * columns + column


def pixel_cells(layout: str, height: int, width: int) -> list[tuple[slice, slice]]:
    """Rows and columns of pixels of every cell. Cells share no pixel, unless there are fewer pixels than cells.

    Examples
    --------
    >>> from kernelweave.images.layouts import pixel_cells
    >>> pixel_cells("2x1", 5, 3)
    [(slice(0, 2, None), slice(0, 3, None)), (slice(2, 5, None), slice(0, 3, None))]
    """
    rows, columns = grid(layout)
    return [(down, across) for down in _parts(height, rows) for across in _parts(width, columns)]


@cache
def random_boxes(n_boxes: int, seed: int = 0) -> NDArray[np.float64]:
    """Boxes drawn uniformly: (n_boxes, 4), left, top, right and bottom in relative coordinates.

    Two uniform numbers, sorted, are the ends of each side. Small boxes are favoured (mean area 1/9), and the centre is
    covered most (a point (u, v) with probability ``4 u (1 - u) v (1 - v)``).

    Examples
    --------
    >>> from kernelweave.images import random_boxes
    >>> random_boxes(5).shape
    (5, 4)
    """
    ends = np.sort(np.random.default_rng(seed).random((n_boxes, 2, 2)), axis=2)
    boxes = np.concatenate([ends[:, :, 0], ends[:, :, 1]], axis=1)
    boxes.flags.writeable = False  # it is kept and handed out again
    return boxes


def _parts(length: int, count: int) -> list[slice]:
    edges = [(part * length) // count for part in range(count + 1)]
    return [slice(min(a, length - 1), max(b, min(a, length - 1) + 1)) for a, b in pairwise(edges)]
