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
from .fitted import JoinedNode, Leaf, MeanNode, Node, Partial, ProductNode, gram_columns
from .functions import Joined, Kernel
from .missing import length_factors, present
from .quantities import PRECOMPUTED, Quantity
from .steps import Step, fit_step, unwrap
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
    missing : {"error", "zero", "rescale"}
        How kernels of samples that lack a view are completed.
    """

    def __init__(
        self,
        items: tuple[Item, ...],
        features: Any,
        dtype: DTypeLike,
        normalise: tuple[str, ...],
        check: str,
        missing: str = "error",
    ) -> None:
        self.items = items
        self.features = features
        self.dtype = np.dtype(dtype)
        self.n = len(features)
        self.normalise = normalise
        self.check = check
        self.missing = missing
        self.names = tuple(item.name for item in items)

    @property
    def views(self) -> tuple[tuple[str, ...], ...]:
        """The views of every kernel."""
        return tuple(tuple(sorted({str(view) for view, _ in leaves(i.kernel, i.view)})) for i in self.items)

    def patterns(self) -> list[tuple[list[int], NDArray]]:
        """Kernels that the same samples have the views of, and these samples."""
        found: dict[bytes, tuple[list[int], NDArray]] = {}
        for j, views in enumerate(self.views):
            here = present(self.features, views)
            found.setdefault(here.tobytes(), ([], np.flatnonzero(here)))[0].append(j)
        return list(found.values())

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
        for view, quantity, members in track(self.groups()):
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

    def groups(self) -> list[tuple[str, Quantity | None, list[int]]]:
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
        node = self._fit_node(item, out, base, self.normalise)
        self._check_finite(out, item.name)
        if self.check == "always" or (self.check == "auto" and not item.kernel.positive):
            self._check_positive(out, item.name)
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
        self._transform(core, base.packed, rate, out)
        return Leaf(item.view, core, rate, self._fit_steps(item.name, (*steps, *normalise), out))

    def _fit_factors(self, item: Item, joined: Joined, out: NDArray) -> tuple[Node, ...]:
        nodes = []
        other = np.empty(0) if len(joined.factors) == 1 else self._another(out)
        for position, (view, kernel) in enumerate(joined.factors):
            target = out if position == 0 else other
            nodes.append(self._fit_node(Item(item.name, view or item.view, kernel), target))
            if position > 0:
                joined.join(out, other)
        joined.finish(out, len(nodes))
        return tuple(nodes)

    def _fit_steps(self, name: str, steps: tuple[str, ...], out: NDArray) -> tuple:
        if steps:
            self._check_finite(out, name)
        return tuple(self._fit_step(step, out, name) for step in steps)

    def _compute(self, view: str, quantity: Quantity, out: NDArray, items: list[Item]) -> PackedQuantity:
        """Write a quantity between all training samples into ``out``, packed; take its means where they are needed."""
        check_source(quantity, self.features[view], view)
        self._fill(view, quantity, out)
        scaled = [item.name for item in items if unwrap(item.kernel)[0].needs_mean]
        if not scaled:
            return PackedQuantity(out, 1.0, 1.0)
        return PackedQuantity(out, *usable_means(*self._sums(out), self.n, view, scaled))

    # -- values in packed triangles; a subclass that keeps them elsewhere has its own --------------------------------

    def _another(self, out: NDArray) -> NDArray:
        """Place for one more kernel."""
        return np.empty_like(out)

    def _fill(self, view: str, quantity: Quantity, out: NDArray) -> None:
        """Write a quantity between all training samples into ``out``."""
        fill_triangle(self.features[view], quantity, out)

    def _sums(self, out: NDArray) -> tuple[float, float]:
        """Sum and sum of squares over all pairs of different samples of a quantity that is zero on the diagonal."""
        return sum_and_squares(out)

    def _transform(self, kernel: Kernel, q: NDArray, rate: float, out: NDArray) -> None:
        transform(kernel, q, rate, out)

    def _fit_step(self, step: str, out: NDArray, name: str) -> Step:
        """Fit a step on a kernel and apply it there."""
        return fit_step(step, out, self.n, name)

    def _check_finite(self, out: NDArray, name: str) -> None:
        check_finite_kernel(out, name)

    def _check_positive(self, out: NDArray, name: str) -> None:
        check_positive(out, self.n, name)


def leaves(kernel: Kernel, view: str | None) -> list[tuple[str | None, Kernel]]:
    """The kernels on one view that a kernel is made of; the view is None where it is not named."""
    core, _ = unwrap(kernel)
    if not isinstance(core, Joined):
        return [(view, core)]
    return [leaf for own, factor in core.factors for leaf in leaves(factor, own or view)]


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


def check_features(fitting: Fitting) -> None:
    """Refuse features that a kernel is not defined for, whether or not its fit looks at them."""
    for item in fitting.items:
        for view, leaf in leaves(item.kernel, item.view):
            leaf.quantity.check(fitting.features[view], str(view))


def fit_completed(fitting: Fitting, slot: Callable[[int, bool], NDArray], track: Track) -> tuple[Node, ...]:
    """`Fitting.run` for data in which samples may lack views, as `fitting.missing` says.

    Every kernel is fitted on the samples that have its views, packed at the front of its slot, and then spread out.
    """
    if fitting.missing == "error":
        return fitting.run(slot, track)
    check_features(fitting)
    completed: dict[int, Node] = {}
    rescaled = fitting.missing == "rescale"
    kernels = fitting.views if rescaled else ()
    factors = length_factors(fitting.features, kernels) if rescaled else np.ones(fitting.n)
    for members, ids in fitting.patterns():
        some = fitting.features if len(ids) == fitting.n else fitting.features[ids]
        items = tuple(fitting.items[j] for j in members)
        part = Fitting(items, some, fitting.dtype, fitting.normalise, fitting.check)
        nodes = part.run(_front(slot, members, packed_length(len(ids))), track)
        positions = np.full(fitting.n, -1)
        positions[ids] = np.arange(len(ids))
        for j, node in zip(members, nodes, strict=True):
            spread_triangle(slot(j, False), ids, fitting.n, factors)
            completed[j] = Partial(node, positions, factors, kernels)
    return tuple(completed[j] for j in range(len(fitting.items)))


def _front(slot: Callable[[int, bool], NDArray], members: list[int], length: int) -> Callable[[int, bool], NDArray]:
    return lambda j, shared: slot(members[j], shared)[:length]


def spread_triangle(packed: NDArray, ids: NDArray, n: int, factors: NDArray) -> None:
    """Give a kernel of samples `ids`, packed at the front, the rows and columns of n samples in place: zeros elsewhere.

    From the last row to the first, because every row moves towards the end.
    """
    above = n
    for a in range(len(ids) - 1, -1, -1):
        i = int(ids[a])
        scale = (factors[i] * factors[ids[: a + 1]]).astype(packed.dtype)
        row = packed[packed_length(a) : packed_length(a + 1)] * scale
        packed[packed_length(i) : packed_length(above)] = 0
        packed[packed_length(i) + ids[: a + 1]] = row
        above = i
    packed[: packed_length(above)] = 0


def transform(kernel: Kernel, q: NDArray, rate: float, out: NDArray) -> None:
    """Apply the element-wise function of a kernel to packed quantities, chunk by chunk."""

    def apply(begin: int) -> None:
        with np.errstate(over="ignore", invalid="ignore"):  # a kernel that overflows is refused by name afterwards
            for start in range(begin, min(begin + CHUNKS_A_TASK * CHUNK, len(q)), CHUNK):
                part = out[start : start + CHUNK]
                kernel.transform(part if q is out else q[start : start + CHUNK], rate, part)

    in_threads(apply, range(0, len(q), CHUNKS_A_TASK * CHUNK))


def usable_means(total: float, squares: float, n: int, view: str, kernels: list[str]) -> tuple[float, float]:
    """Mean and mean square of a distance over pairs of different samples, from sums over all pairs; 1 instead of 0."""
    pairs = max(packed_length(n) - n, 1)
    if total > 0 and squares > 0:
        return total / pairs, squares / pairs
    warnings.warn(
        f"all training samples are equal in view {view!r}, or nearly so: the mean distance for {kernels} "
        "is 0; 1 is used instead, and the kernel tells nothing about the samples",
        stacklevel=2,
    )
    return 1.0, 1.0
