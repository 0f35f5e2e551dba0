"""Small problems with unknown labels, and every possible labelling of them."""

from __future__ import annotations

from itertools import product

import numpy as np
from sklearn.datasets import make_moons

import kernelweave as kw
from kernelweave.ambiguity.bags import Bags
from kernelweave.ambiguity.labelings import (
    BagRepresentatives,
    Clustering,
    InstanceBags,
    PartlyKnown,
    SemiSupervised,
    Supervised,
)
from kernelweave.kernels import KernelBank
from kernelweave.views import KernelStack


def kernels(n, seed=0, s=3):
    """Centred Gaussian kernels of two clouds, (s, n, n)."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3)) + 1.5 * rng.choice([-1, 1], size=(n, 1))
    D = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    centre = np.eye(n) - 1 / n
    return np.stack([centre @ np.exp(-D * g) @ centre + 1e-9 * np.eye(n) for g in (0.05, 0.2, 0.6)[:s]])


def bank(Ks, dtype="float64"):
    return KernelBank("precomputed", dtype=dtype, check="never").build(KernelStack(Ks))


def bags(sizes):
    return Bags(np.zeros((sum(sizes), 1)), groups=np.repeat(np.arange(len(sizes)), sizes))


def scenarios(n=10):
    """One of each kind, about n items."""
    known = np.zeros(n)
    known[:2] = 1, -1
    five = bags([3, 2, n - 8, 2, 1])
    return {
        "supervised": Supervised(np.where(np.arange(n) % 3, 1, -1)),
        "semi": SemiSupervised(known, 0.5),
        "interval": SemiSupervised(known, (0.25, 0.75)),
        "clustering": Clustering(n, 2),
        "instances": InstanceBags(five, [1, -1, 1, -1, 1]),
        "ratio": InstanceBags(five, [1, -1, 1, -1, 1], positives=0.6),
        "representatives": BagRepresentatives(five, [1, -1, 1, -1, 1]),
    }


def all_labelings(scenario):
    """Every possible labelling, (number, n_items), by the definition of the scenario and nothing else."""
    n = scenario.n_items
    if isinstance(scenario, PartlyKnown):
        options = [(-1, 1) if y == 0 else (int(y),) for y in scenario.known]
        every = np.array(list(product(*options)), dtype=np.int8)
        count = (every[:, scenario.known == 0] > 0).sum(axis=1)
        return every[(count >= scenario.low) & (count <= scenario.high)]
    fixed = scenario.y[scenario.bags.bag_of] < 0
    if isinstance(scenario, InstanceBags):
        every = np.array(list(product(*[(-1,) if f else (-1, 1) for f in fixed])), dtype=np.int8)
        for members, needed in zip(scenario.positive, scenario.needed, strict=True):
            every = every[(every[:, members] > 0).sum(axis=1) >= needed]
        return every
    every = []
    for chosen in product(*scenario.positive):
        signs = np.where(fixed, -1, 0).astype(np.int8)
        signs[list(chosen)] = 1
        every.append(signs)
    assert n == len(fixed)
    return np.array(every)


def moons(n=100, labelled=8, seed=0):
    X, y = make_moons(n, noise=0.05, random_state=seed)
    few = np.full(n, -1)
    for c in (0, 1):
        few[np.flatnonzero(y == c)[: labelled // 2]] = c
    return X, y, few


def narrow(**settings):
    return kw.InputOutputKernelClassifier(kernels=[kw.kernels.Gaussian(0.1), kw.kernels.Laplacian(0.3)], **settings)


TWO = [kw.kernels.Gaussian(), kw.kernels.Laplacian()]


def explicit_kernels(X, center=True):
    """The kernels `TWO` as matrices in double precision, (2, n, n)."""
    built = kw.KernelBank(TWO, dtype="float64").build(X)
    centre = np.eye(len(X)) - center / len(X)
    return np.stack([centre @ built.gram(m) @ centre for m in range(2)])
