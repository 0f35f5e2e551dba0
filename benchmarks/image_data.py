"""What the picture benchmarks share: sets with their labels, splits that leak nothing, and the kernels of each split.

A folder holds the sets, each with ``images/`` and a ``labels.csv``: the columns filename, label and class_name, or
filename and a column of 0 and 1 a label. Codebooks are learned from the *core* alone, a few pictures that are in the
training part of every split, so that one extraction serves all splits and no codebook has seen a test picture.
Bandwidths are learned on the training pictures of each split.
"""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kernelweave.evaluation import MultilabelStratifiedShuffleSplit
from kernelweave.images import Feature, ImageFeatures
from kernelweave.kernels import Kernel, KernelBank, Mean, Product, Repaired
from kernelweave.views import KernelStack, Views

#: Pictures of every class, or (with labels) in all, that codebooks are learned from, and how many are for training.
CORE = {"flowers17": 8, "caltech101_20": 3, "miml_scene": 200}
TRAINING = {"flowers17": 60, "caltech101_20": 15, "miml_scene": 1000}
N_TEST_WITH_LABELS = 1000

Index = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Pictures:
    """A set of pictures: paths, one class (n,) or labels (n, m) each, and the core."""

    name: str
    paths: list[Path]
    y: NDArray[np.int64]
    core: Index

    @property
    def has_labels(self) -> bool:
        return self.y.ndim == 2

    def splits(self, n_splits: int, n_train: int | None = None) -> Iterator[tuple[Index, Index]]:
        """Training and test pictures; `n_train` of every class, or in all where pictures have labels."""
        n_train = n_train or TRAINING[self.name]
        for seed in range(n_splits):
            yield self._labelled_split(n_train, seed) if self.has_labels else self._class_split(n_train, seed)

    def _class_split(self, n_train: int, seed: int) -> tuple[Index, Index]:
        rng = np.random.default_rng(seed)
        train: list[Index] = []
        for label in np.unique(self.y):
            members = np.flatnonzero(self.y == label)
            core = np.intersect1d(members, self.core)
            others = rng.permutation(np.setdiff1d(members, core))
            train += [core, others[: n_train - len(core)]]
        chosen = np.sort(np.concatenate(train))
        return chosen, np.setdiff1d(np.arange(len(self.y)), chosen)

    def _labelled_split(self, n_train: int, seed: int) -> tuple[Index, Index]:
        """Of fewer training pictures than the core has, some of the core."""
        rest = np.setdiff1d(np.arange(len(self.y)), self.core)
        n_more = max(n_train - len(self.core), 0)
        splitter = MultilabelStratifiedShuffleSplit(
            1, train_size=n_more or 1, test_size=N_TEST_WITH_LABELS, random_state=seed
        )
        more, test = next(splitter.split(self.y[rest], self.y[rest]))
        if n_more:
            return np.sort(np.concatenate([self.core, rest[more]])), rest[test]
        if n_train == len(self.core):
            return self.core, rest[test]
        fewer = MultilabelStratifiedShuffleSplit(1, train_size=n_train, random_state=seed)
        some, _ = next(fewer.split(self.y[self.core], self.y[self.core]))
        return self.core[some], rest[test]


def load(folder: Path, name: str) -> Pictures:
    with (folder / name / "labels.csv").open(encoding="utf-8", newline="") as file:
        head, *rows = list(csv.reader(file))
    paths = [folder / name / "images" / row[0] for row in rows]
    if "class_name" in head:
        y = np.array([int(row[head.index("label")]) for row in rows])
        rng = np.random.default_rng(12345)
        drawn = [rng.choice(np.flatnonzero(y == k), CORE[name], replace=False) for k in np.unique(y)]
        return Pictures(name, paths, y, np.sort(np.concatenate(drawn)))
    Y = np.array([[int(cell) for cell in row[1:]] for row in rows])
    splitter = MultilabelStratifiedShuffleSplit(1, train_size=CORE[name], random_state=12345)
    core, _ = next(splitter.split(Y, Y))
    return Pictures(name, paths, Y, np.sort(core))


def found(data: str | None, names: Sequence[str]) -> Path:
    """The folder, if it holds the sets; leaves the program if not, with an error only where a folder was named."""
    if data is None:
        print(f"No data: give the folder that holds {', '.join(CORE)} with --data. Nothing was run.")
        sys.exit(0)
    missing = [name for name in names if not (Path(data) / name / "labels.csv").exists()]
    if missing:
        sys.exit(f"{data} has no {', '.join(f'{name}/labels.csv' for name in missing)}. Name the others with --sets.")
    return Path(data)


@dataclass(frozen=True, eq=False)
class Described:
    """All pictures of a set described by some features, and the bank of these features."""

    views: Views
    bank: KernelBank
    seconds: float

    def kernels(self, train: Index, test: Index, normalise: str | None = None) -> Kernels:
        """Kernels fitted on the training pictures."""
        begin = time.perf_counter()
        bank = KernelBank(self.bank.kernels, normalise=normalise).build(self.views[train])
        between = np.stack([bank.gram(j) for j in range(bank.n_kernels)])
        new = bank.expansion(np.arange(bank.n_kernels), np.arange(len(train))).cross(self.views[test])
        assert isinstance(self.bank.kernels, Mapping)
        factors = np.array([n_factors(kernel) for kernel in self.bank.kernels.values() if isinstance(kernel, Kernel)])
        return Kernels(bank.names, between, new, factors, time.perf_counter() - begin)


def n_factors(kernel: Kernel) -> int:
    """How many exponentials of distances a kernel is the product of; 0 where it is none: averages, repaired kernels.

    Every root of a product of them is a kernel.
    """
    if isinstance(kernel, Product):
        return sum(n_factors(factor) for _, factor in kernel.factors)
    return 0 if isinstance(kernel, Mean | Repaired) else 1


def describe(pictures: Pictures, features: str | list[Feature], cache: Path | None) -> Described:
    """Learn codebooks from the core and describe all pictures."""
    images = ImageFeatures(features, cache=cache, n_jobs=2, random_state=0)
    begin = time.perf_counter()
    images.fit([pictures.paths[row] for row in pictures.core])
    views = images.transform(pictures.paths)
    return Described(views, images.kernel_bank(), time.perf_counter() - begin)


@dataclass(frozen=True, eq=False)
class Kernels:
    """Kernels between training pictures (s, n, n) and from new to training pictures (s, n_new, n), with `n_factors`."""

    names: tuple[str, ...]
    between: NDArray
    new: NDArray
    factors: NDArray[np.int64]
    seconds: float = 0.0

    def __len__(self) -> int:
        return len(self.names)

    @property
    def stack(self) -> KernelStack:
        return KernelStack(self.between, names=self.names)

    def some(self, chosen: Sequence[int] | Index) -> Kernels:
        index = np.asarray(chosen)
        return Kernels(tuple(self.names[j] for j in index), self.between[index], self.new[index], self.factors[index])

    def and_also(self, other: Kernels) -> Kernels:
        return Kernels(
            self.names + other.names,
            np.concatenate([self.between, other.between]),
            np.concatenate([self.new, other.new]),
            np.concatenate([self.factors, other.factors]),
        )

    def geometric_mean(self) -> Kernels:
        """One kernel: the product of all with every bandwidth times their number, without those that have no roots."""
        chosen = np.flatnonzero(self.factors)
        roots = (np.exp(sum(np.log(K[j]) for j in chosen) / len(chosen)) for K in (self.between, self.new))
        between, new = (root[None].astype(np.float32) for root in roots)
        return Kernels(("product",), between, new, self.factors[chosen].sum(keepdims=True))

    def wider(self, multiplier: float) -> Kernels:
        """The same exponential kernels with their bandwidths times a number."""
        assert self.factors.all()
        names = tuple(f"{name} x{multiplier:g}" for name in self.names)
        power = 1 / multiplier
        return Kernels(names, self.between**power, self.new**power, self.factors)


def noise(n_kernels: int, n_train: int, n_new: int, seed: int) -> Kernels:
    """Gaussian kernels of random vectors in three dimensions, their bandwidth the median squared distance."""
    rng = np.random.default_rng(seed)
    between, new = [], []
    for _ in range(n_kernels):
        X = rng.normal(size=(n_train + n_new, 3))
        squared = ((X[:, None] - X[None, :n_train]) ** 2).sum(axis=2)
        rate = 1 / np.median(squared[:n_train][np.triu_indices(n_train, 1)])
        K = np.exp(-rate * squared).astype(np.float32)
        between.append(K[:n_train])
        new.append(K[n_train:])
    names = tuple(f"noise{number}" for number in range(n_kernels))
    return Kernels(names, np.stack(between), np.stack(new), np.ones(n_kernels, dtype=np.int64))
