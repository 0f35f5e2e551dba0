"""Fitting: from kernels a user wrote and training data to fitted kernels, filling packed triangles on the way."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .._config import in_threads
from .checks import check_finite_kernel, check_positive, check_source
from .fitted import JoinedNode, Leaf, MeanNode, Node, ProductNode, gram_columns
from .functions import Joined, Kernel
from .quantities import PRECOMPUTED, Quantity
from .steps import fit_step, unwrap
from .triangle import diagonal_positions, pack_rows, packed_length, sum_and_squares

ROWS_AT_ONCE = 128  # rows of a quantity computed before they are packed
CHUNK = 1 << 15  # entries transformed at a time, so that several passes over them stay in cache
CHUNKS_A_TASK = 8  # so that handing a task to a thread costs little beside it


#: The fitted form of the kernels that are made of other kernels.
NODES: dict[type[Joined], type[JoinedNode]] = {node.joined: node for node in (ProductNode, MeanNode)}

#: Wraps a sequence in a progress bar.
Track = Callable[[Iterable], Iterable]


@dataclass(frozen=True)
class Item:
    """One kernel of a bank: its name, the view it is on (None for a product over views) and what the user wrote."""

    name: str
    view: str | None
    kernel: Kernel


@dataclass(frozen=True)
class PackedQuantity:
    """A packed quantity of one view with its means over pairs of different samples."""

    packed: NDArray
    mean: float
    mean_square: float


class Fitting:
    """Fits kernels on training data.

    Parameters
    ----------
    items : sequence of Item
    features : Views or KernelStack
        Training data.
    dtype : dtype
        Precision of the packed triangles.
    normalise : tuple of str
        Normalisations of every kernel, after its own.
    check : {"auto", "always", "never"}
        Which kernels have their eigenvalues checked.
    """

    def __init__(
        self, items: tuple[Item, ...], features: Any, dtype: DTypeLike, normalise: tuple[str, ...], check: str
    ) -> None:
        self.items = items
        self.features = features
        self.dtype = np.dtype(dtype)
        self.n = len(features)
        self._normalise = normalise
        self._check = check
        self.names = tuple(item.name for item in items)

    def run(self, slot: Callable[[int, bool], NDArray], track: Track = iter) -> tuple[Node, ...]:
        """Fit all kernels.

        Parameters
        ----------
        slot : callable
            ``slot(j, shared)`` gives the packed array (n * (n + 1) / 2,) kernel j is written to. ``shared`` says that
            other kernels are still to be made from what is written there first, so it must not be handed out again
            meanwhile.
        track : callable
            Wraps the groups of kernels in a progress bar.

        Returns
        -------
        tuple of Node
            The fitted kernels, in order.
        """
        nodes: dict[int, Node] = {}
        for view, quantity, members in track(self._groups()):
            if quantity is None:
                (j,) = members
                nodes[j] = self._fit(self.items[j], slot(j, False))
                continue
            # The quantity waits in the slot of the last kernel of the group, which is transformed in place at the end.
            last = slot(members[-1], True)
            base = self._compute(view, quantity, last, [self.items[j] for j in members])
            for j in members:
                nodes[j] = self._fit(self.items[j], last if j == members[-1] else slot(j, False), base)
        return tuple(nodes[j] for j in range(len(self.items)))

    def _groups(self) -> list[tuple[str, Quantity | None, list[int]]]:
        """Kernels that start from the same quantity of the same view; those made of others stand alone."""
        groups: dict[Any, tuple[str, Quantity | None, list[int]]] = {}
        for j, item in enumerate(self.items):
            core, _ = unwrap(item.kernel)
            if isinstance(core, Joined):
                groups[j] = ("", None, [j])
            else:
                assert item.view is not None
                groups.setdefault((item.view, core.quantity), (item.view, core.quantity, []))[2].append(j)
        return list(groups.values())

    def _fit(self, item: Item, out: NDArray, base: PackedQuantity | None = None) -> Node:
        """Fit one kernel and leave it, packed, in ``out``; check it."""
        node = self._fit_node(item, out, base, self._normalise)
        check_finite_kernel(out, item.name)
        if self._check == "always" or (self._check == "auto" and not item.kernel.positive):
            check_positive(out, self.n, item.name)
        return node

    def _fit_node(
        self, item: Item, out: NDArray, base: PackedQuantity | None = None, normalise: tuple[str, ...] = ()
    ) -> Node:
        core, steps = unwrap(item.kernel)
        if isinstance(core, Joined):
            factors = self._fit_factors(item, core, out)
            return NODES[type(core)](factors, self._fit_steps(item.name, (*steps, *normalise), out))
        assert item.view is not None
        if base is None:
            base = self._compute(item.view, core.quantity, out, [item])
        rate = core.rate(base.mean, base.mean_square)
        transform(core, base.packed, rate, out)
        return Leaf(item.view, core, rate, self._fit_steps(item.name, (*steps, *normalise), out))

    def _fit_factors(self, item: Item, joined: Joined, out: NDArray) -> tuple[Node, ...]:
        nodes = []
        other = np.empty(out.shape if len(joined.factors) > 1 else 0, out.dtype)
        for position, (view, kernel) in enumerate(joined.factors):
            target = out if position == 0 else other
            nodes.append(self._fit_node(Item(item.name, view or item.view, kernel), target))
            if position > 0:
                joined.join(out, other)
        joined.finish(out, len(nodes))
        return tuple(nodes)

    def _fit_steps(self, name: str, steps: tuple[str, ...], out: NDArray) -> tuple:
        if steps:
            check_finite_kernel(out, name)
        return tuple(fit_step(step, out, self.n, name) for step in steps)

    def _compute(self, view: str, quantity: Quantity, out: NDArray, items: list[Item]) -> PackedQuantity:
        """Write a quantity between all training samples into ``out``, packed; take its means where they are needed."""
        rows = self.features[view]
        check_source(quantity, rows, view)
        fill_triangle(rows, quantity, out)
        scaled = [item.name for item in items if unwrap(item.kernel)[0].needs_mean]
        if not scaled:
            return PackedQuantity(out, 1.0, 1.0)
        mean, mean_square = _pair_means(out, self.n)
        if not (mean > 0 and mean_square > 0):
            warnings.warn(
                f"all training samples are equal in view {view!r}, or nearly so: the mean distance for {scaled} "
                "is 0; 1 is used instead, and the kernel tells nothing about the samples",
                stacklevel=2,
            )
            mean = mean_square = 1.0
        return PackedQuantity(out, mean, mean_square)


def fill_triangle(rows: Any, quantity: Quantity, out: NDArray) -> None:
    """Write a quantity between all samples, given by the rows of a view, into the packed array ``out``."""
    n = len(rows)
    right = gram_columns(rows, np.arange(n)) if quantity is PRECOMPUTED else quantity.prepare(rows, out.dtype)

    def fill(start: int) -> None:
        stop = min(start + ROWS_AT_ONCE, n)
        block = np.empty((stop - start, stop), out.dtype)
        quantity.block(rows[start:stop], right, block)
        pack_rows(block, start, out)

    starts = range(0, n, ROWS_AT_ONCE)
    if quantity.serial:
        in_threads(fill, starts)
    else:
        for start in starts:
            fill(start)
    if quantity.zero_to_itself:
        out[diagonal_positions(n)] = 0.0


def transform(kernel: Kernel, q: NDArray, rate: float, out: NDArray) -> None:
    """Apply the element-wise function of a kernel to packed quantities, chunk by chunk."""

    def apply(begin: int) -> None:
        with np.errstate(over="ignore", invalid="ignore"):  # a kernel that overflows is refused by name afterwards
            for start in range(begin, min(begin + CHUNKS_A_TASK * CHUNK, len(q)), CHUNK):
                part = out[start : start + CHUNK]
                kernel.transform(part if q is out else q[start : start + CHUNK], rate, part)

    in_threads(apply, range(0, len(q), CHUNKS_A_TASK * CHUNK))


def _pair_means(packed: NDArray, n: int) -> tuple[float, float]:
    """Mean and mean square over pairs of different samples of a packed distance (its diagonal is zero)."""
    pairs = packed_length(n) - n
    if pairs == 0:
        return 0.0, 0.0
    total, squares = sum_and_squares(packed)
    return total / pairs, squares / pairs
