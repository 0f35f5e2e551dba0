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

    factors: tuple[Leaf | JoinedNode, ...]
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


Node = Leaf | JoinedNode


def all_steps(node: Node) -> tuple[Step, ...]:
    """Every step of a kernel and of the kernels inside it."""
    inside = () if isinstance(node, Leaf) else tuple(s for factor in node.factors for s in all_steps(factor))
    return inside + node.steps


def at_samples(node: Node, samples: NDArray) -> Node:
    """A fitted kernel that knows only some of the training samples, numbered as they are given."""
    steps = tuple(step.at(samples) for step in node.steps)
    if isinstance(node, Leaf):
        return replace(node, steps=steps)
    return replace(node, factors=tuple(at_samples(factor, samples) for factor in node.factors), steps=steps)


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

    def __init__(self, left: Any, n_left: int, n_right: int, right: RightRows) -> None:
        self.left = left
        self.shape = (n_left, n_right)
        self.right = right
        self._quantities: dict[tuple[str, Quantity], NDArray] = {}

    def kernel(self, node: Node) -> NDArray:
        """Values of one kernel, a new array of shape (n_left, n_right)."""
        needs_diagonal = any(step.needs_diagonal for step in all_steps(node))
        return self._evaluate(node, needs_diagonal)[0]

    def _evaluate(self, node: Node, needs_diagonal: bool) -> tuple[NDArray, NDArray | None]:
        if isinstance(node, Leaf):
            quantity = node.kernel.quantity
            q = self._quantity(node.view, quantity)
            block, diagonal = np.empty_like(q), None
            node.kernel.transform(q, node.rate, block)
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

    def _quantity(self, view: str, quantity: Quantity) -> NDArray:
        key = (view, quantity)
        if key not in self._quantities:
            block = np.empty(self.shape, self.right.dtype)
            quantity.block(self.left[view], self.right.prepared(view, quantity), block)
            self._quantities[key] = self._corrected(quantity, block)
        return self._quantities[key]

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
    """

    def __init__(self, features: Any, rows: NDArray, columns: NDArray, right: RightRows) -> None:
        left = LazyRows(features, rows)
        super().__init__(left, len(rows), len(columns), right)
        self.rows, self.columns = rows, columns

    def kernel(self, node: Node) -> NDArray:
        return self._evaluate(node, needs_diagonal=False)[0]

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

    def _apply(self, step: Step, block: NDArray, diagonal: NDArray | None) -> NDArray | None:
        return step.on_new(block, diagonal, self.columns)


class LazyRows:
    """Some rows of every view, taken when a view is asked for."""

    def __init__(self, features: Any, rows: NDArray | slice) -> None:
        self._features, self._rows = features, rows

    def __getitem__(self, view: str) -> Any:
        return self._features[view][self._rows]


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
