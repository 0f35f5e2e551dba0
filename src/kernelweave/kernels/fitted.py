"""Fitted kernels: everything learned from training data, and how blocks of kernel values come out of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..views import GramRows
from .functions import Joined, Kernel, Mean, Product
from .missing import length_factors, present
from .quantities import PRECOMPUTED, GramColumns, Quantity
from .steps import Step


@dataclass(frozen=True)
class Leaf:
    """A fitted kernel on one view."""

    view: str
    kernel: Kernel
    rate: float
    steps: tuple[Step, ...]

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """Itself: see `JoinedNode`."""
        return (self,)


@dataclass(frozen=True)
class JoinedNode:
    """A fitted kernel that is made of other kernels."""

    joined: ClassVar[type[Joined]]

    factors: tuple[Node, ...]
    steps: tuple[Step, ...]

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The kernels on one view it is made of."""
        return tuple(leaf for factor in self.factors for leaf in factor.leaves)


@dataclass(frozen=True)
class ProductNode(JoinedNode):
    """A fitted `Product`."""

    joined = Product


@dataclass(frozen=True)
class MeanNode(JoinedNode):
    """A fitted `Mean`."""

    joined = Mean


@dataclass(frozen=True, eq=False)
class Partial:
    """A fitted kernel for data in which samples may lack its views; see `missing.py`.

    Attributes
    ----------
    node : Leaf or JoinedNode
        Fitted on the samples that have the views; these alone it knows, by their own numbers.
    positions : array of int of shape (n,)
        The number of every training sample among them; -1 where it lacks a view.
    factors : array of shape (n,)
        What kernel values of every training sample are multiplied by.
    kernels : tuple of tuple of str
        The views of all kernels that such factors of new samples count; none: all factors are 1.
    """

    node: Node
    positions: NDArray
    factors: NDArray
    kernels: tuple[tuple[str, ...], ...]

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The kernels on one view it is made of."""
        return self.node.leaves

    @property
    def views(self) -> tuple[str, ...]:
        """The views it needs."""
        return tuple(sorted({leaf.view for leaf in self.leaves}))


Node = Leaf | JoinedNode | Partial


def all_steps(node: Node) -> tuple[Step, ...]:
    """Every step of a kernel and of the kernels inside it."""
    if isinstance(node, Partial):
        return all_steps(node.node)
    inside = () if isinstance(node, Leaf) else tuple(s for factor in node.factors for s in all_steps(factor))
    return inside + node.steps


def at_samples(node: Node, samples: NDArray) -> Node:
    """A fitted kernel that knows only some of the training samples, numbered as they are given."""
    if isinstance(node, Partial):
        old = node.positions[samples]
        here = old >= 0
        inner = at_samples(node.node, old[here])
        return Partial(inner, np.where(here, np.cumsum(here) - 1, -1), node.factors[samples], node.kernels)
    steps = tuple(step.at(samples) for step in node.steps)
    if isinstance(node, Leaf):
        return replace(node, steps=steps)
    return replace(node, factors=tuple(at_samples(factor, samples) for factor in node.factors), steps=steps)


def with_samples(node: Node, features: Any) -> Node:
    """A fitted kernel whose values depend on two samples alone, with other samples as those it knows."""
    if not isinstance(node, Partial):
        return node
    here = present(features, node.views)
    factors = length_factors(features, node.kernels) if node.kernels else np.ones(len(features))
    return replace(node, positions=np.where(here, np.cumsum(here) - 1, -1), factors=factors)


class RightRows:
    """Training rows as the right-hand side of blocks, prepared once for every quantity.

    Parameters
    ----------
    rows : mapping of str to array (n, d), `GramRows` or `GramColumns`
        The training samples of every view that is needed.
    dtype : dtype
        Precision of the blocks.
    """

    def __init__(self, rows: Mapping[str, Any], dtype: DTypeLike) -> None:
        self.rows = rows
        self.dtype = np.dtype(dtype)
        self._prepared: dict[tuple[str, Quantity], Any] = {}

    def prepared(self, view: str, quantity: Quantity) -> Any:
        """The rows of a view in the form ``quantity.block`` reads."""
        key = (view, quantity)
        if key not in self._prepared:
            rows = self.rows[view]
            self._prepared[key] = rows if quantity is PRECOMPUTED else quantity.prepare(rows, self.dtype)
        return self._prepared[key]

    def __reduce__(self) -> tuple:
        return RightRows, (self.rows, self.dtype)  # what is prepared can be prepared again

    def at(self, chosen: NDArray) -> RightRows:
        """Some of the rows."""
        some = {}
        for view, rows in self.rows.items():
            if isinstance(rows, GramColumns):
                some[view] = replace(rows, ids=rows.ids[chosen], positions=rows.positions[chosen])
            else:
                some[view] = rows[chosen]
        return RightRows(some, self.dtype)


class Blocks(ABC):
    """Kernel values between some left-hand rows and the right-hand rows; every quantity is computed once.

    Parameters
    ----------
    left : mapping of str to rows
        Left-hand samples of every view that is needed.
    n_left, n_right : int
        Shape of the blocks.
    right : RightRows
    """

    columns: NDArray  # which training samples the right-hand rows are

    def __init__(self, left: Any, n_left: int, n_right: int, right: RightRows) -> None:
        self.left = left
        self.shape = (n_left, n_right)
        self.right = right
        self._quantities: dict[tuple[str, Quantity], NDArray] = {}
        self._parts: dict[tuple[tuple[str, ...], bytes], Blocks] = {}

    def kernel(self, node: Node) -> NDArray:
        """Values of one kernel, a new array of shape (n_left, n_right)."""
        if isinstance(node, Partial):
            return self._completed(node)
        return self._values(node)

    def _values(self, node: Node) -> NDArray:
        needs_diagonal = any(step.needs_diagonal for step in all_steps(node))
        return self._evaluate(node, needs_diagonal)[0]

    def with_diagonal(self, node: Node) -> tuple[NDArray, NDArray]:
        """Values of one kernel, and of the left-hand samples with themselves, (n_left,)."""
        block, diagonal = self._evaluate(node, needs_diagonal=True)
        assert diagonal is not None
        return block, diagonal

    def _completed(self, node: Partial) -> NDArray:
        """Values of a kernel between the samples that have its views, zeros elsewhere, times the factors."""
        left, factors = self._left_of(node)
        right = np.flatnonzero(node.positions[self.columns] >= 0)
        if (len(left), len(right)) == self.shape:
            block = self._values(node.node)
        else:
            block = np.zeros(self.shape, self.right.dtype)
            key = (node.views, node.positions.tobytes())
            if len(left) and len(right):
                if key not in self._parts:
                    self._parts[key] = self._part(node, left, right)
                block[np.ix_(left, right)] = self._parts[key].kernel(node.node)
        if len(node.kernels):
            block *= factors.astype(block.dtype)[:, None]
            block *= node.factors[self.columns].astype(block.dtype)
        return block

    def _left_of(self, node: Partial) -> tuple[NDArray, NDArray]:
        """Which left-hand rows have the views of a kernel, and the factors of all of them."""
        raise TypeError(f"{type(self).__name__} are of samples that have all views")

    def _part(self, node: Partial, left: NDArray, right: NDArray) -> Blocks:
        """Blocks between some of the rows, numbered as the kernel inside `node` numbers its samples."""
        raise TypeError(f"{type(self).__name__} are of samples that have all views")

    def _evaluate(self, node: Node, needs_diagonal: bool) -> tuple[NDArray, NDArray | None]:
        assert not isinstance(node, Partial)  # which stands around a whole kernel, never inside one
        if isinstance(node, Leaf):
            quantity = node.kernel.quantity
            q = self.quantity(node.view, quantity)
            block, diagonal = self._transformed(node.kernel, q, node.rate), None
            if needs_diagonal:
                diagonal = np.array(self._diagonal(node.view, quantity), dtype=np.float64)
                node.kernel.transform(diagonal, node.rate, diagonal)
        else:
            block, diagonal = self._evaluate(node.factors[0], needs_diagonal)
            for factor in node.factors[1:]:
                other, other_diagonal = self._evaluate(factor, needs_diagonal)
                node.joined.join(block, other)
                if diagonal is not None and other_diagonal is not None:
                    node.joined.join(diagonal, other_diagonal)
            for part in (block, diagonal):
                if part is not None:
                    node.joined.finish(part, len(node.factors))
        for step in node.steps:
            diagonal = self._apply(step, block, diagonal)
        return block, diagonal

    def give(self, view: str, quantity: Quantity, values: NDArray) -> None:
        """Values (n_left, n_right) of a quantity that is known already; they are only read."""
        self._quantities[view, quantity] = values

    def quantity(self, view: str, quantity: Quantity) -> NDArray:
        """Values of one quantity, (n_left, n_right), not to be written to."""
        key = (view, quantity)
        if key not in self._quantities:
            block = np.empty(self.shape, self.right.dtype)
            quantity.block(self.left[view], self.right.prepared(view, quantity), block)
            self._quantities[key] = self._corrected(quantity, block)
        return self._quantities[key]

    def _transformed(self, kernel: Kernel, q: NDArray, rate: float) -> NDArray:
        block = np.empty_like(q)
        kernel.transform(q, rate, block)
        return block

    def _corrected(self, quantity: Quantity, block: NDArray) -> NDArray:
        return block

    def _diagonal(self, view: str, quantity: Quantity) -> NDArray:
        return quantity.diagonal(self.left[view])

    @abstractmethod
    def _apply(self, step: Step, block: NDArray, diagonal: NDArray | None) -> NDArray | None:
        """Change a block by a fitted step, in place."""


class TrainingBlocks(Blocks):
    """Blocks ``K[rows][:, columns]`` between training samples.

    Parameters
    ----------
    features : Views or KernelStack
        Training data.
    rows, columns : array of int
        Training samples; `right` holds the samples ``columns`` and perhaps more after them.
    left : mapping of str to rows, optional
        The rows themselves, where they are numbered otherwise than in the features.
    """

    def __init__(self, features: Any, rows: NDArray, columns: NDArray, right: RightRows, left: Any = None) -> None:
        super().__init__(LazyRows(features, rows) if left is None else left, len(rows), len(columns), right)
        self.rows, self.columns = rows, columns

    def _values(self, node: Node) -> NDArray:
        return self._evaluate(node, needs_diagonal=False)[0]

    def _left_of(self, node: Partial) -> tuple[NDArray, NDArray]:
        return np.flatnonzero(node.positions[self.rows] >= 0), node.factors[self.rows]

    def _part(self, node: Partial, left: NDArray, right: NDArray) -> Blocks:
        numbers = (node.positions[self.rows[left]], node.positions[self.columns[right]])
        return TrainingBlocks(None, *numbers, self.right.at(right), LazyRows(self.left, left))

    def _corrected(self, quantity: Quantity, block: NDArray) -> NDArray:
        if quantity.zero_to_itself:
            block[self.rows[:, None] == self.columns] = 0.0
        return block

    def _apply(self, step: Step, block: NDArray, diagonal: NDArray | None) -> NDArray | None:
        step.on_training(block, self.rows, self.columns)
        return None


class NewBlocks(Blocks):
    """Blocks between new samples and training samples ``columns``."""

    def __init__(self, new: Any, n_new: int, columns: NDArray, right: RightRows) -> None:
        super().__init__(new, n_new, len(columns), right)
        self.columns = columns

    def _left_of(self, node: Partial) -> tuple[NDArray, NDArray]:
        here = np.flatnonzero(self.left.present(node.views))
        return here, self.left.length_factors(node.kernels) if len(node.kernels) else np.ones(self.shape[0])

    def _part(self, node: Partial, left: NDArray, right: NDArray) -> Blocks:
        numbers = node.positions[self.columns[right]]
        return NewBlocks(LazyRows(self.left, left), len(left), numbers, self.right.at(right))

    def _apply(self, step: Step, block: NDArray, diagonal: NDArray | None) -> NDArray | None:
        return step.on_new(block, diagonal, self.columns)


class LazyRows:
    """Some rows of every view, taken when a view is asked for."""

    def __init__(self, features: Any, rows: NDArray | slice) -> None:
        self._features, self._rows = features, rows

    def __getitem__(self, view: str) -> Any:
        return self._features[view][self._rows]

    def present(self, views: Sequence[str]) -> NDArray[np.bool_]:
        """Which of the rows have all of some views."""
        return present(self._features, views)[self._rows]

    def length_factors(self, kernels: Sequence[Sequence[str]]) -> NDArray:
        """See `missing.length_factors`."""
        return length_factors(self._features, kernels)[self._rows]


def training_rows(features: Any, nodes: Sequence[Node], ids: NDArray) -> dict[str, Any]:
    """The samples ``ids`` of every view some kernels need, as right-hand rows."""
    rows: dict[str, Any] = {}
    for leaf in (leaf for node in nodes for leaf in node.leaves):
        if leaf.kernel.quantity is PRECOMPUTED:
            rows[leaf.view] = gram_columns(features[leaf.view], ids)
        elif leaf.view not in rows:
            rows[leaf.view] = features[leaf.view][ids]
    return rows


def gram_columns(gram: Any, ids: NDArray) -> GramColumns:
    """All that is kept of training samples ``ids`` of a precomputed kernel: the numbers of their columns."""
    base = gram.ids if isinstance(gram, GramRows) else np.arange(len(gram))
    return GramColumns(base[ids], ids, len(gram), gram.shape[1])
