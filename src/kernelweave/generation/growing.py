"""A bank that grows: every kernel is computed once, and the place of a kernel that is removed is used again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..kernels import Bank
from ..kernels.fitted import Node
from ..kernels.fitting import Fitting, Item
from ..kernels.storage import Memory, PackedBank, RecomputedBank
from ..kernels.triangle import packed_length


class HasItem(Protocol):
    """A column that is a kernel."""

    @property
    def item(self) -> Item: ...


class GrowingBank:
    """Packed kernels of the columns in use; see :class:`kernelweave.generation.columns.Store`.

    Parameters
    ----------
    features : Views or KernelStack
        Training data.
    dtype : {"float32", "float64"}
    columns : mapping, optional
        The columns of views, where data comes as one array.
    check : {"auto", "always", "never"}
        As in `KernelBank`.
    """

    def __init__(self, features: Any, dtype: DTypeLike = "float32", columns: Any = None, check: str = "auto") -> None:
        self._features = features
        self._dtype = np.dtype(dtype)
        self._columns = columns
        self._check = check
        self._data = Memory().allocate(0, len(features), self._dtype)
        self._slots: list[int] = []
        self._items: list[Item] = []
        self._nodes: list[Node] = []

    def add(self, columns: Sequence[HasItem]) -> None:
        """Compute the kernels of some columns and append them."""
        if not columns:
            return
        items = [column.item for column in columns]
        slots = self._free_slots(len(items))
        fitting = Fitting(tuple(items), self._features, self._dtype, (), self._check)
        self._nodes += fitting.run(lambda j, shared: self._data[slots[j]])
        self._items += items
        self._slots += slots

    def keep(self, kept: NDArray[np.bool_]) -> None:
        """Remove the kernels that are not kept."""
        chosen = np.flatnonzero(kept)
        self._slots = [self._slots[j] for j in chosen]
        self._items = [self._items[j] for j in chosen]
        self._nodes = [self._nodes[j] for j in chosen]

    @property
    def items(self) -> tuple[Item, ...]:
        """The kernels, in order."""
        return tuple(self._items)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The fitted kernels, in order; what predictions need, without the values."""
        return tuple(self._nodes)

    @property
    def bank(self) -> Bank:
        """The bank as it is now; its values are not copied, so it is of use until the next `add`."""
        names = tuple(item.name for item in self._items)
        return PackedBank(Memory(), self._data, np.array(self._slots, dtype=np.intp), *self._description(names))

    def _description(self, names: tuple[str, ...]) -> tuple:
        ids = np.arange(len(self._features))
        return names, self.nodes, self._features, ids, self._dtype, self._columns

    def _free_slots(self, n: int) -> list[int]:
        """Rows for n more kernels; there are half as many again as are needed when new ones must be made."""
        free = sorted(set(range(len(self._data))) - set(self._slots))
        if len(free) < n:
            rows = len(self._slots) + n
            data = np.empty((rows + rows // 2, packed_length(len(self._features))), self._dtype)
            for slot in self._slots:
                data[slot] = self._data[slot]
            self._data = data
            free = sorted(set(range(len(data))) - set(self._slots))
        return free[:n]


def without_values(
    names: tuple[str, ...], nodes: tuple[Node, ...], features: Any, dtype: DTypeLike, columns: Any
) -> Bank:
    """A bank of fitted kernels that computes values when it is asked for them."""
    return RecomputedBank(names, nodes, features, np.arange(len(features)), np.dtype(dtype), columns)
