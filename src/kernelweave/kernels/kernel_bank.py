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
from .cluster import build_on_cluster
from .cluster_workers import address_of, check_place
from .device import build_on_device, device_bytes, fits_on_gpu
from .fitting import Fitting, Item, leaves
from .functions import Kernel, Precomputed
from .low_rank import build_low_rank
from .map_fitting import APPROXIMATIONS, LANDMARKS
from .missing import WAYS, check_training
from .steps import normalisation_names, step_names
from .storage import STORAGES, Builder
from .triangle import packed_length

#: Share of the available memory a bank may take when no limit is given.
SHARE_OF_MEMORY = 0.7

#: Every place a bank can be in: what builds it there, and how the choice is told.
PLACES: dict[str, tuple[Builder, str]] = {
    "packed": (STORAGES["packed"], "in memory"),
    "memmap": (STORAGES["memmap"], "in a file"),
    "recompute": (STORAGES["recompute"], "computed at every call"),
    "low-rank": (build_low_rank, "approximated by features in memory"),
    "cluster": (build_on_cluster, "over the workers of a cluster"),
    "device": (build_on_device, "on a device"),
}

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
        call. "auto" is low rank when a rank is given, and never otherwise; else "packed" when that fits, else on
        a CUDA device if there is one with enough memory, else "memmap" when a directory is given.
    dtype : {"float32", "float64", "float16"}
        Precision of stored kernel values. Single precision has seven digits: enough, unless the differences that matter
        are a millionth of the values, as in linear kernels of features far from the origin. Half precision, with three
        digits, is for devices.
    memory_limit : int, optional
        Bytes a packed bank may take in memory; 70 % of the available memory by default.
    directory : path, optional
        Where "memmap" keeps its file while the bank is in use; a temporary directory by default.
    check : {"auto", "always", "never"}
        Whether kernels are tested for negative eigenvalues (on at most 500 samples): those that may have some, all, or
        none.
    rank : int, optional
        Approximate every kernel by at most so many features a sample, ``K_j = Z_j Z_j'``: memory and time then grow
        with n * rank instead of n * n. More than n is reduced to n, with a warning. See the page "Bigger than memory".
    approximation : {"auto", "nystrom", "fourier", "explicit"}
        Where the features come from, with a rank. "nystrom" works for every kernel, "fourier" (random Fourier features)
        for Gaussian, Laplacian and chi-squared kernels, "explicit" for linear, additive chi-squared and intersection
        kernels. "auto": linear kernels exactly if their columns fit the rank, all others "nystrom".
    landmarks : {"kmeans", "leverage", "uniform"}
        Which landmarks "nystrom" takes: centres of clusters, samples by leverage scores, or random samples. Kernels on
        several views, and those of functions, have no centres, and take leverage scores instead.
    random_state : int or None, default=0
        Seed of landmarks, frequencies, and of the sample of 2000 (or 4 * rank) training samples that mean distances
        are taken from if there are more.
    missing : {"error", "zero", "rescale"}
        What is done about samples that lack a view (a row of NaN): refuse them, set their kernel values to zero, or let
        the views that they have count for those that they lack. In training and in new data.
    cluster : dask.distributed.Client, str or int, optional
        Keep the kernels over the workers of a Dask cluster: of a client, of the scheduler at an address, or so many
        workers started on this machine and ended with the bank. Each worker has some rows of every kernel. A combined
        kernel of at most ``memory_limit`` bytes (1 GiB by default) is brought to this process; a larger one stays, and
        machines ask for products with it. See the page "Bigger than memory".
    device : str or torch.device, optional
        Compute and keep the kernels there by torch: "cuda", "cuda:1", "mps", or "cpu". Data that comes as torch tensors
        is kept on their device without being asked. Where single precision does not fit into its memory, half precision
        is taken, with a warning.

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

    With a rank, kernels are kept as features:

    >>> KernelBank(Gaussian(), rank=10).build(views)
    <LowRankBank: 2 kernels, 30 samples, float32, 0.0 MB>
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
        rank: int | None = None,
        approximation: str = "auto",
        landmarks: str = "kmeans",
        random_state: int | None = 0,
        missing: str = "error",
        cluster: Any = None,
        device: Any = None,
    ) -> None:
        self.kernels = kernels
        self.columns = columns
        self.normalise = normalise
        self.storage = storage
        self.dtype = dtype
        self.memory_limit = memory_limit
        self.directory = directory
        self.check = check
        self.rank = rank
        self.approximation = approximation
        self.landmarks = landmarks
        self.random_state = random_state
        self.missing = missing
        self.cluster = cluster
        self.device = device
        self._check_arguments()

    def estimate_bytes(self, n_samples: int, n_views: int = 1) -> int:
        """Bytes the packed kernels take, or on a device the whole ones, or with a rank their features, at most.

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
        return n_kernels * self._numbers_a_kernel(n_samples) * np.dtype(self.dtype).itemsize

    def _numbers_a_kernel(self, n_samples: int) -> int:
        if self.device is not None:
            return n_samples**2
        return packed_length(n_samples) if self.rank is None else n_samples * min(self.rank, n_samples)

    def build(self, X: Any, verbose: bool = False) -> Bank:
        """Fit the kernels on training data and compute them.

        Parameters
        ----------
        X : Views, mapping, array (n_samples, n_columns), frame; with "precomputed" a KernelStack or (n_kernels, n, n)
            Training data.
        verbose : bool
            Say where the kernels are kept, and show progress when on a terminal.

        Returns
        -------
        Bank
        """
        features = self._features(X)
        items = self._items(features)
        fitting = Fitting(items, features, self.dtype, normalisation_names(self.normalise), self.check, self.missing)
        check_training(features, self.missing, fitting.views)
        needed = len(items) * self._numbers_a_kernel(len(features)) * fitting.dtype.itemsize
        place = self._chosen_storage(needed, features)
        if place == "device":
            needed = device_bytes(len(items), len(features), fitting.dtype.name)
        builder, where = PLACES[place]
        if verbose:
            told = f"{len(items)} kernels of {len(features)} samples {where}, storage {place!r}"
            print(f"[kernelweave] {told}" + ("" if place == "recompute" else f", {needed:,} bytes"), file=sys.stderr)
        return builder(fitting, self, progress(verbose, "kernels"))

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
        for name, allowed in (
            ("storage", ("auto", *STORAGES)),
            ("check", ("auto", "always", "never")),
            ("approximation", APPROXIMATIONS),
            ("landmarks", LANDMARKS),
            ("missing", WAYS),
        ):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} is one of {list(allowed)}, got {getattr(self, name)!r}")
        self._check_rank()
        self._check_cluster()
        self._check_device()

    def _check_rank(self) -> None:
        if self.rank is None:
            return
        if isinstance(self.rank, bool) or not isinstance(self.rank, (int, np.integer)) or self.rank < 1:
            raise ValueError(f"rank is None or a number of features of at least 1, got {self.rank!r}")
        if self.storage != "auto":
            raise ValueError(
                f"rank={self.rank} keeps features in place of kernel values, but storage={self.storage!r} keeps kernel "
                "values: leave one of the two out"
            )
        if self.kernels == "precomputed":
            raise ValueError(
                "a rank needs features to map, and precomputed kernels have none: leave rank out, or give the features"
            )

    def _check_cluster(self) -> None:
        if self.cluster is None:
            return
        check_place(self.cluster)
        if self.storage != "auto" or self.rank is not None:
            other = f"rank={self.rank}" if self.rank is not None else f"storage={self.storage!r}"
            raise ValueError(f"cluster keeps exact kernels over workers, and {other} elsewhere: leave one of them out")
        if self.kernels == "precomputed":
            raise ValueError(
                "workers of a cluster compute kernels from features, and precomputed kernels are in memory already: "
                "leave cluster out, or give the features"
            )

    def _check_device(self) -> None:
        half = np.dtype(self.dtype) == np.float16
        if np.dtype(self.dtype) not in (np.float32, np.float64) and not (half and self.device is not None):
            hint = ": half precision is for devices, device='cuda'" if half else ""
            raise ValueError(f"dtype is 'float32' or 'float64', got {self.dtype!r}{hint}")
        if self.device is None:
            return
        others = {"storage": self.storage != "auto", "rank": self.rank is not None, "cluster": self.cluster is not None}
        for name in (name for name, given in others.items() if given):
            raise ValueError(
                f"device={str(self.device)!r} keeps exact kernels on that device, and {name}={getattr(self, name)!r} "
                "keeps them elsewhere: leave one of them out"
            )

    def __getstate__(self) -> dict[str, Any]:
        """Clients stay where they are: copies and files have the address of the scheduler instead."""
        device = None if self.device is None else str(self.device)
        return vars(self) | {"cluster": address_of(self.cluster), "device": device}

    def _features(self, X: Any) -> Views | KernelStack:
        if self.kernels != "precomputed":
            return as_views(X, self.columns, incomplete=True)
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

    def _chosen_storage(self, needed: int, features: Views | KernelStack) -> str:
        if self.cluster is not None:
            return "cluster"
        tensors = getattr(features, "device", None) is not None and self.storage == "auto" and self.rank is None
        if self.device is not None or tensors:
            return "device"
        limit = SHARE_OF_MEMORY * available_memory() if self.memory_limit is None else self.memory_limit
        if self.storage in ("memmap", "recompute") or (needed <= limit):
            in_memory = "packed" if self.rank is None else "low-rank"
            return in_memory if self.storage == "auto" else self.storage
        if self.rank is not None:
            raise MemoryError(
                f"the features of rank {self.rank} need {needed:,} bytes, more than the limit of {int(limit):,} bytes: "
                "a smaller rank, fewer kernels or samples, or a higher memory_limit make them fit"
            )
        if self.storage == "auto" and fits_on_gpu(2 * needed):
            return "device"
        if self.storage == "auto" and self.directory is not None:
            return "memmap"
        raise MemoryError(
            f"the kernels need {needed:,} bytes, more than the limit of {int(limit):,} bytes. Five ways out: "
            "storage='memmap' with a directory keeps them on disk; storage='recompute' keeps nothing and is slower; "
            "device='cuda' keeps them on a GPU; rank=256 approximates them; fewer kernels, fewer samples or a higher "
            "memory_limit make them fit"
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
