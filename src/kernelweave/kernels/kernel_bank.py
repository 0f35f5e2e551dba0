"""`KernelBank`: which kernels on which views, and how they are normalised, stored and checked."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._config import progress
from ..views import KernelStack, Views, as_views
from .bank import Bank
from .fitting import Fitting, Item
from .functions import Joined, Kernel, Precomputed
from .steps import normalisation_names, step_names, unwrap
from .storage import STORAGES
from .triangle import packed_length

#: Share of the available memory a bank may take when no limit is given.
SHARE_OF_MEMORY = 0.7

KernelsOfView = Kernel | Sequence[Kernel]


class KernelBank:
    """A description of kernels on views; `build` makes a bank of it from training data.

    Parameters
    ----------
    kernels : mapping of str to kernel or list of kernels, list of kernels, kernel, or "precomputed"
        In a mapping, the kernels of every view. A list or a single kernel is for every view. A name that is no view may
        be given to a `Product` or `Mean` whose factors name their own views.
    columns : mapping of str to slice, list of int or list of column names, optional
        The columns of every view, for data that comes as one array or frame.
    normalise : str or tuple of str, optional
        "trace", "spherical", "variance" or "center", or several of them in order, for every kernel; see `Normalised`.
    storage : {"auto", "packed", "memmap", "recompute"}
        "packed" keeps the lower triangles in memory, "memmap" in a file, "recompute" computes values again at every
        call. "auto" is "packed" when that fits, else "memmap" when a directory is given.
    dtype : {"float32", "float64"}
        Precision of stored kernel values. Single precision has seven digits: enough, unless the differences that matter
        are a millionth of the values, as in linear kernels of features far from the origin.
    memory_limit : int, optional
        Bytes a packed bank may take in memory; 70 % of the available memory by default.
    directory : path, optional
        Where "memmap" keeps its file while the bank is in use; a temporary directory by default.
    check : {"auto", "always", "never"}
        Whether kernels are tested for negative eigenvalues (on at most 500 samples): those that may have some, all, or
        none.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.kernels import Gaussian, KernelBank, Linear
    >>> rng = np.random.default_rng(0)
    >>> views = {"sift": rng.random((30, 4)), "gist": rng.random((30, 2))}
    >>> bank = KernelBank({"sift": Linear(), "gist": [Gaussian(0.5), Gaussian()]}).build(views)
    >>> bank.names
    ('sift:Linear', 'gist:Gaussian(0.5)', 'gist:Gaussian')
    >>> bank.combine([1.0, 0.0, 2.0]).shape
    (30, 30)
    """

    def __init__(
        self,
        kernels: Mapping[str, KernelsOfView] | KernelsOfView | str,
        columns: Mapping[str, Any] | None = None,
        normalise: str | tuple[str, ...] | None = None,
        storage: str = "auto",
        dtype: str = "float32",
        memory_limit: int | None = None,
        directory: str | os.PathLike | None = None,
        check: str = "auto",
    ) -> None:
        self.kernels = kernels
        self.columns = columns
        self.normalise = normalise
        self.storage = storage
        self.dtype = dtype
        self.memory_limit = memory_limit
        self.directory = directory
        self.check = check
        self._check_arguments()

    def estimate_bytes(self, n_samples: int, n_views: int = 1) -> int:
        """Bytes the packed kernels take.

        Parameters
        ----------
        n_samples : int
            Training samples.
        n_views : int
            Views of the data, which counts when the same kernels are given for every view; with "precomputed", the
            number of kernels.

        Examples
        --------
        >>> from kernelweave.kernels import Gaussian, KernelBank
        >>> KernelBank([Gaussian(), Gaussian(2.0)]).estimate_bytes(4000, n_views=24) / 1e9
        1.536384
        """
        if isinstance(self.kernels, str):
            n_kernels = n_views
        elif isinstance(self.kernels, Mapping):
            n_kernels = sum(len(_as_list(kernels)) for kernels in self.kernels.values())
        else:
            n_kernels = sum(1 if _names_its_views(kernel) else n_views for kernel in _as_list(self.kernels))
        return n_kernels * packed_length(n_samples) * np.dtype(self.dtype).itemsize

    def build(self, X: Any, verbose: bool = False) -> Bank:
        """Fit the kernels on training data and compute them.

        Parameters
        ----------
        X : Views, mapping, array (n_samples, n_columns), frame; with "precomputed" a KernelStack or (n_kernels, n, n)
            Training data.
        verbose : bool
            Show progress when on a terminal.

        Returns
        -------
        Bank
        """
        features = self._features(X)
        items = self._items(features)
        fitting = Fitting(items, features, self.dtype, normalisation_names(self.normalise), self.check)
        needed = len(items) * packed_length(len(features)) * fitting.dtype.itemsize
        directory = None if self.directory is None else Path(self.directory)
        return STORAGES[self._chosen_storage(needed)](fitting, directory, self.columns, progress(verbose, "kernels"))

    def __repr__(self) -> str:
        default = KernelBank("precomputed")
        parts = [repr(self.kernels)] + [
            f"{name}={value!r}"
            for name, value in vars(self).items()
            if name != "kernels" and value != getattr(default, name)
        ]
        return f"KernelBank({', '.join(parts)})"

    def _check_arguments(self) -> None:
        if isinstance(self.kernels, str):
            if self.kernels != "precomputed":
                raise ValueError(f"kernels are given as objects, or as 'precomputed'; got {self.kernels!r}")
        else:
            groups = self.kernels.values() if isinstance(self.kernels, Mapping) else [self.kernels]
            for kernel in (kernel for group in groups for kernel in _as_list(group)):
                if not isinstance(kernel, Kernel):
                    raise TypeError(f"a KernelBank is made of kernels such as Gaussian(), got {kernel!r}")
                if "spherical" in normalisation_names(self.normalise) and "clip" in step_names(kernel):
                    raise ValueError(
                        f"{kernel.label} is clipped and cannot be normalised to a unit diagonal afterwards: write "
                        "Repaired(Normalised(kernel, 'spherical'), 'clip') and no bank-wide 'spherical'"
                    )
            if not any(len(_as_list(group)) for group in groups):
                raise ValueError("a KernelBank needs at least one kernel")
        normalisation_names(self.normalise)
        for name, allowed in (("storage", ("auto", *STORAGES)), ("check", ("auto", "always", "never"))):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} is one of {list(allowed)}, got {getattr(self, name)!r}")
        if np.dtype(self.dtype) not in (np.dtype(np.float32), np.dtype(np.float64)):
            raise ValueError(f"dtype is 'float32' or 'float64', got {self.dtype!r}")

    def _features(self, X: Any) -> Views | KernelStack:
        if self.kernels != "precomputed":
            return as_views(X, self.columns)
        return X if isinstance(X, KernelStack) else KernelStack(X)

    def _items(self, features: Views | KernelStack) -> tuple[Item, ...]:
        """One item a kernel, with different names."""
        if isinstance(features, KernelStack):
            return tuple(Item(name, name, Precomputed()) for name in features.names)
        assert not isinstance(self.kernels, str)
        items: list[Item] = []
        if isinstance(self.kernels, Mapping):
            for key, group in self.kernels.items():
                view = key if key in features else None
                for kernel in _as_list(group):
                    own_name = view is None and _names_its_views(kernel)
                    items.append(Item(key if own_name else f"{key}:{kernel.label}", view, kernel))
        else:
            for kernel in _as_list(self.kernels):
                if _names_its_views(kernel):
                    items.append(Item(kernel.label, None, kernel))
                else:
                    items += [Item(f"{view}:{kernel.label}", view, kernel) for view in features.names]
        _check_views(items, features)
        return _with_different_names(items)

    def _chosen_storage(self, needed: int) -> str:
        limit = SHARE_OF_MEMORY * available_memory() if self.memory_limit is None else self.memory_limit
        if self.storage in ("memmap", "recompute") or (needed <= limit):
            return "packed" if self.storage == "auto" else self.storage
        if self.storage == "auto" and self.directory is not None:
            return "memmap"
        raise MemoryError(
            f"the kernels need {needed:,} bytes, more than the limit of {int(limit):,} bytes. Three ways out: "
            "storage='memmap' with a directory keeps them on disk; storage='recompute' keeps nothing and is slower; "
            "fewer kernels, fewer samples or a higher memory_limit make them fit"
        )


def available_memory() -> int:
    """Bytes of memory that can be taken without swapping, in a container without going over its limit."""
    try:
        facts = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        return min(int(facts["MemAvailable"].split()[0]) * 1024, _left_in_container())
    except (OSError, KeyError):
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return sys.maxsize  # neither Linux nor another POSIX system: the user decides


def _left_in_container() -> int:
    group = Path("/sys/fs/cgroup")
    try:
        return int((group / "memory.max").read_text()) - int((group / "memory.current").read_text())
    except (OSError, ValueError):  # no control group, or one whose limit is "max"
        return sys.maxsize


def _as_list(kernels: KernelsOfView) -> Sequence[Kernel]:
    return [kernels] if isinstance(kernels, Kernel) or not isinstance(kernels, Sequence) else kernels


def leaves(kernel: Kernel, view: str | None) -> list[tuple[str | None, Kernel]]:
    """The kernels on one view that a kernel is made of; the view is None where it is not named."""
    core, _ = unwrap(kernel)
    if not isinstance(core, Joined):
        return [(view, core)]
    return [leaf for own, factor in core.factors for leaf in leaves(factor, own or view)]


def _names_its_views(kernel: Kernel) -> bool:
    return all(view is not None for view, _ in leaves(kernel, None))


def _check_views(items: list[Item], features: Views) -> None:
    kinds: dict[str, set[bool]] = {}
    for item in items:
        for view, leaf in leaves(item.kernel, item.view):
            if view is None or view not in features:
                missing = item.name.split(":")[0] if view is None else view
                raise ValueError(
                    f"kernel {item.name!r} is on view {missing!r}, but the views are {list(features.names)}"
                )
            kinds.setdefault(view, set()).add(isinstance(leaf, Precomputed))
            if len(kinds[view]) == 2:
                raise ValueError(
                    f"view {view!r} is a precomputed kernel for some kernels and features for others, such as "
                    f"{item.name!r}: give them different views"
                )


def _with_different_names(items: Iterable[Item]) -> tuple[Item, ...]:
    seen: dict[str, int] = {}
    different = []
    for item in items:
        seen[item.name] = seen.get(item.name, 0) + 1
        name = item.name if seen[item.name] == 1 else f"{item.name} #{seen[item.name]}"
        different.append(Item(name, item.view, item.kernel))
    return tuple(different)
