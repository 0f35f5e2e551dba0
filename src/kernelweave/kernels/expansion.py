"""Kernels between new samples and the training samples a model kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from .._config import one_blas_thread
from ..views import KernelStack, as_views, check_finite
from .fitted import LazyRows, NewBlocks, Node, Partial, RightRows, all_steps, at_samples, training_rows, with_samples
from .missing import check_new
from .quantities import PRECOMPUTED, GramColumns

#: Bytes of kernel values computed at a time.
CHUNK_BYTES = 1 << 25


@dataclass(frozen=True)
class Part:
    """Kernels that need the same training samples: those that count in the model, or all of them.

    Attributes
    ----------
    positions : tuple of int
        Which kernels of the expansion these are.
    nodes : tuple of Node
        The kernels; the samples that they know something about are numbered as the rows are.
    rows : dict
        Training samples of every view, as right-hand rows of blocks.
    n_rows : int
        How many training samples these are.
    kept : array of int or slice
        Which of them count in the model.
    """

    positions: tuple[int, ...]
    nodes: tuple[Node, ...]
    rows: dict[str, Any]
    n_rows: int
    kept: NDArray | slice

    def check(self, n_samples: int) -> None:
        """Refuse a part whose pieces do not fit together, which can only come from a file."""
        kept = np.arange(self.n_rows)[self.kept]
        fits = len(self.positions) == len(self.nodes) and kept.shape == (n_samples,)
        for node in self.nodes:
            known = self.n_rows
            if isinstance(node, Partial):
                fits &= node.positions.shape == node.factors.shape == (self.n_rows,)
                known = int((node.positions >= 0).sum())
                fits &= np.array_equal(node.positions[node.positions >= 0], np.arange(known))
            fits &= all(step.n_samples in (None, known) for step in all_steps(node))
        for leaf in (leaf for node in self.nodes for leaf in node.leaves):
            rows = self.rows[leaf.view]
            if leaf.kernel.quantity is PRECOMPUTED:
                fits &= isinstance(rows, GramColumns) and rows.ids.shape == rows.positions.shape == (self.n_rows,)
            else:
                fits &= isinstance(rows, np.ndarray) and rows.dtype.kind == "f" and rows.ndim == 2
                fits &= len(rows) == self.n_rows
        if not fits:
            raise ValueError("its kernels and the training samples they need do not fit together")


def _part(nodes: tuple[Node, ...], needs_all: list[bool], whole: bool, features: Any, samples: NDArray) -> Part:
    positions = tuple(j for j, needs in enumerate(needs_all) if needs == whole)
    ids = np.arange(len(features)) if whole else samples
    chosen = tuple(at_samples(nodes[j], ids) for j in positions)
    return Part(positions, chosen, training_rows(features, chosen, ids), len(ids), samples if whole else slice(None))


class Expansion:
    """Fitted kernels with the training samples that count; made by `Bank.expansion`.

    Centred kernels and kernels repaired by clipping need all training samples for new data, and keep them; the others
    keep only the samples that count.

    Parameters
    ----------
    names : tuple of str
        Names of the kernels.
    nodes : tuple of Node
        The kernels.
    features : Views or KernelStack
        Training data.
    samples : array of int
        The training samples that count.
    dtype : dtype
        Precision of the kernel values.
    columns : mapping, optional
        The columns of views, for new data that comes as one array.
    """

    def __init__(
        self,
        names: tuple[str, ...],
        nodes: tuple[Node, ...],
        features: Any,
        samples: NDArray,
        dtype: DTypeLike,
        columns: Mapping[str, Any] | None,
    ) -> None:
        self.names = names
        self.dtype = np.dtype(dtype)
        self.n_samples = len(samples)
        self._columns = columns
        self._stack_names = features.names if isinstance(features, KernelStack) else None
        needs_all = [any(step.needs_all_training for step in all_steps(node)) for node in nodes]
        self._parts = tuple(_part(nodes, needs_all, whole, features, samples) for whole in sorted(set(needs_all)))

    @property
    def n_kernels(self) -> int:
        """Number of kernels."""
        return len(self.names)

    def to_state(self) -> dict[str, Any]:
        """All it is made of, for a file: text, numbers, arrays, and the objects that describe fitted kernels."""
        return {
            "names": self.names,
            "dtype": self.dtype.name,
            "n_samples": self.n_samples,
            "columns": self._columns,
            "stack_names": self._stack_names,
            "parts": self._parts,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Expansion:
        """The expansion that `to_state` was called on; a ValueError if the pieces do not fit together."""
        expansion = cls.__new__(cls)
        expansion.names = state["names"]
        expansion.dtype = np.dtype(state["dtype"])
        expansion.n_samples = state["n_samples"]
        expansion._columns = state["columns"]
        expansion._stack_names = state["stack_names"]
        expansion._parts = state["parts"]
        for part in expansion._parts:
            part.check(expansion.n_samples)
        if sorted(j for part in expansion._parts for j in part.positions) != list(range(expansion.n_kernels)):
            raise ValueError("its kernels are not numbered one after the other")
        return expansion

    def check_of_two_samples(self) -> None:
        """Refuse kernels whose values depend on more than the two samples that they compare."""
        nodes = [node for part in self._parts for node in part.nodes]
        lone = all(step.n_samples is None for node in nodes for step in all_steps(node))
        if not lone or any(leaf.kernel.quantity is PRECOMPUTED for node in nodes for leaf in node.leaves):
            raise ValueError(
                "this needs kernels that depend on two samples only: centred, repaired and precomputed ones depend on "
                "all training samples. Leave these out."
            )

    def on(self, X: Any) -> Expansion:
        """The same kernels with other samples in the place of the training samples; see `check_of_two_samples`.

        Parameters
        ----------
        X : Views, mapping, array or frame
        """
        self.check_of_two_samples()
        others, n_others = self._read(X, range(self.n_kernels))
        (part,) = self._parts  # none of the kernels needs all training samples
        nodes = tuple(with_samples(node, others) for node in part.nodes)
        return Expansion(self.names, nodes, others, np.arange(n_others), self.dtype, self._columns)

    def cross(self, X: Any) -> NDArray:
        """Kernels between new samples and the training samples kept.

        Parameters
        ----------
        X : Views, mapping, array or frame; with precomputed kernels a KernelStack or (n_kernels, n_new, n_training)
            New samples.

        Returns
        -------
        array of shape (n_kernels, n_new, n_samples)
        """
        new, n_new = self._read(X, range(self.n_kernels))
        out = np.empty((self.n_kernels, n_new, self.n_samples), self.dtype)
        for rows, j, block in self._blocks(new, n_new, range(self.n_kernels)):
            out[j, rows] = block
        return out

    def scores(self, X: Any, weights: ArrayLike, coef: ArrayLike) -> NDArray:
        """Decision values ``sum_j weights[k, j] K_j(X, samples) coef[:, k]`` without keeping the kernels.

        Parameters
        ----------
        X : as in `cross`
        weights : array of shape (n_kernels,), or (m, n_kernels) for weights of every column
            Kernels whose weights are all zero are not computed.
        coef : array of shape (n_samples, m)

        Returns
        -------
        array of shape (n_new, m), float64
        """
        weights, coef = np.asarray(weights, dtype=np.float64), np.asarray(coef, dtype=np.float64)
        if coef.ndim != 2 or len(coef) != self.n_samples:
            raise ValueError(f"coef must have the shape ({self.n_samples}, m), got {coef.shape}")
        if weights.shape not in ((self.n_kernels,), (coef.shape[1], self.n_kernels)):
            raise ValueError(
                f"weights must have the shape ({self.n_kernels},) or ({coef.shape[1]}, {self.n_kernels}), "
                f"got {weights.shape}"
            )
        with one_blas_thread():
            return self._scores(X, weights, coef)

    def _scores(self, X: Any, weights: NDArray, coef: NDArray) -> NDArray:
        active = np.flatnonzero(np.atleast_2d(weights).any(axis=0))
        new, n_new = self._read(X, active)
        scores = np.zeros((n_new, coef.shape[1]))
        if self.n_samples == 0:
            return scores
        if weights.ndim == 2:
            for rows, j, block in self._blocks(new, n_new, active):
                used = np.flatnonzero(weights[:, j])
                scores[rows, used] += (block @ coef[:, used]) * weights[used, j]
            return scores
        # One weight vector for all columns: add the kernels first, then multiply once.
        for rows, total in self._weighted_sums(new, n_new, active, weights):
            scores[rows] += total @ coef
        return scores

    def _weighted_sums(self, new: Any, n_new: int, active: Any, weights: NDArray) -> Iterator[tuple[slice, NDArray]]:
        rows, total = slice(0), np.empty(0)
        for block_rows, j, block in self._blocks(new, n_new, active):
            if block_rows != rows:
                if total.size:
                    yield rows, total
                rows, total = block_rows, np.zeros(block.shape)
            total += weights[j] * block
        if total.size:
            yield rows, total

    def _blocks(self, new: Any, n_new: int, kernels: Any) -> Iterator[tuple[slice, int, NDArray]]:
        """Blocks of new samples, kernel by kernel: (rows, kernel, values (n_rows, n_samples))."""
        wanted = {int(j) for j in kernels}
        for part in self._parts:
            members = [(j, node) for j, node in zip(part.positions, part.nodes, strict=True) if j in wanted]
            if not members:
                continue
            right = RightRows(part.rows, self.dtype)
            height = max(1, CHUNK_BYTES // (8 * max(1, part.n_rows)))
            for start in range(0, n_new, height):
                rows = slice(start, min(start + height, n_new))
                blocks = NewBlocks(LazyRows(new, rows), rows.stop - start, np.arange(part.n_rows), right)
                for j, node in members:
                    yield rows, j, blocks.kernel(node)[:, part.kept]

    def _read(self, X: Any, kernels: Any) -> tuple[Any, int]:
        """New data as a mapping of view names to rows, checked for the given kernels."""
        new = as_views(X, self._columns, incomplete=True) if self._stack_names is None else self._read_stack(X)
        partial = [node for part in self._parts for node in part.nodes if isinstance(node, Partial)]
        check_new(new, "zero" if partial else "error")
        for view in {view for node in partial for views in node.kernels for view in views}:
            self._check_there(new, view, "the number of views that a sample has")
        wanted = {int(j) for j in kernels}
        for part in self._parts:
            for j, node in zip(part.positions, part.nodes, strict=True):
                for leaf in node.leaves if j in wanted else ():
                    self._check_rows(new, leaf.view, part.rows[leaf.view], self.names[j])
                    leaf.kernel.quantity.check(new[leaf.view], leaf.view)
        return new, len(new)

    def _read_stack(self, X: Any) -> Any:
        assert self._stack_names is not None
        if isinstance(X, KernelStack):
            return X
        stack = np.asarray(X)
        stack = stack[None] if stack.ndim == 2 else stack
        if stack.ndim != 3 or len(stack) != len(self._stack_names):
            raise ValueError(
                "precomputed kernels of new samples must have the shape "
                f"({len(self._stack_names)}, n_new, n_training), got {np.shape(X)}"
            )
        return _RawStack(self._stack_names, stack)

    @staticmethod
    def _check_there(new: Any, view: str, who: str) -> None:
        if view not in new:
            raise ValueError(f"view {view!r} is missing from the new data but {who} needs it; it has {list(new.names)}")

    @staticmethod
    def _check_width(rows: Any, view: str, expected: int) -> None:
        if rows.shape[1] != expected:
            raise ValueError(
                f"view {view!r} of the new data has {rows.shape[1]} columns, but the kernel was trained with {expected}"
            )

    @classmethod
    def _check_rows(cls, new: Any, view: str, trained: Any, kernel: str) -> None:
        cls._check_there(new, view, f"kernel {kernel!r}")
        rows = new[view]
        expected = trained.shape[1] if not isinstance(trained, GramColumns) else trained.n_training
        if isinstance(new, KernelStack):
            assert isinstance(trained, GramColumns)
            expected = trained.n_base
        cls._check_width(rows, view, expected)
        if isinstance(new, _RawStack):
            check_finite(rows, f"precomputed kernel {view!r}")


class _RawStack:
    """Precomputed kernels (n_kernels, n_new, n_training) under their names."""

    def __init__(self, names: tuple[str, ...], stack: NDArray) -> None:
        self.names = names
        self._stack = stack

    def __len__(self) -> int:
        return self._stack.shape[1]

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __getitem__(self, name: str) -> NDArray:
        return self._stack[self.names.index(name)]
