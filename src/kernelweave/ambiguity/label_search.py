"""The oracle of input-output kernels: the possible labelling with the largest energy.

    max over possible y of   |h(y)|,      h_m(y) = 1/2 (a o y)' K_m (a o y)

is the maximum of a convex function, so that its linear bound at y lies below it: the labelling that is best for the
bound (a sort) is never worse. This ascent stops at a labelling that depends much on where it begins, so it begins at
several: at both signs of the first eigenvectors of ``H = K_m o (aa')``, and at the best one known. H is never formed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np
from numpy.typing import NDArray

from ..generation.columns import Proposal
from ..generation.labelled_bank import InputKernels, rows_times
from ..weights._equations import aligned, conjugate, norm
from .labelings import InstanceBags, Labelings, Signs

Array = NDArray[np.float64]

#: Steps of an ascent, and the least gain, as a share, to go on for: the last few signs take most of the steps.
_MOST_STEPS, _LEAST_GAIN = 30, 1e-3
#: After so many steps only so many of the ascents go on, the best ones.
_BROAD_STEPS, _FEW = 5, 2
#: Steps of the subspace iteration, from a random start and from the last vectors.
_COLD_STEPS, _WARM_STEPS = 8, 3
#: Vectors beyond those that are asked for: they make the iteration converge faster.
_SPARE = 2
#: Samples without a dual have no say, but their labels follow their scores by this share of the largest dual.
_FAINT = 1e-9
#: Shares of the diagonal that steps leave out, one after the other where no step gains.
_HELD = (0.0, 1.0, 0.5)
#: Instances of a bag whose labellings are all tried.
_SMALL_BAG = 12


@dataclass
class LabelOracle:
    """Proposes the labelling of largest energy that it finds; see :class:`kernelweave.generation.columns.Oracle`.

    Parameters
    ----------
    inputs : InputKernels
    labelings : Labelings
    shared : bool
        Whether all kernels of a candidate have the same labelling, or each one its own.
    p : float
        Norm inside groups of the weight set.
    n_starts : int
        Eigenvectors to begin at, each with both signs.
    enumerate_bags : bool
        Whether, after the ascent, all labellings of one bag after the other are tried, for bags of few instances.
    """

    inputs: InputKernels
    labelings: Labelings
    shared: bool = False
    p: float = 2.0
    n_starts: int = 3
    enumerate_bags: bool = False
    _vectors: dict[int, Array] = field(default_factory=dict, init=False, repr=False)

    def propose(self, V: Array, known: Sequence[Signs], most: int, level: float, accuracy: float) -> Proposal:
        """One candidate, (M, n_items) signs, unless it is known; `V` are the duals of the units, (n_units, 1)."""
        if self.labelings.is_certain and known:
            return Proposal([], np.empty((0, self.inputs.n_kernels)), level)
        duals = V[self.inputs.unit_of, 0]
        every = np.arange(self.inputs.n_kernels)
        groups = [every] if self.shared else [every[m : m + 1] for m in every]
        found = [self._search(group, duals, known) for group in groups]
        signs = np.concatenate([np.broadcast_to(y, (len(g), len(y))) for g, (y, _) in zip(groups, found, strict=True)])
        if self.labelings.is_symmetric:
            # A labelling and its opposite are one kernel, but a decision function that mixes them would be none.
            first = known[0][0] if known else signs[0]
            signs = np.where((signs @ first.astype(np.float64) < 0)[:, None], -signs, signs)
        if any(np.array_equal(signs, other) for other in known):
            return Proposal([], np.empty((0, self.inputs.n_kernels)), np.inf)
        return Proposal([signs], np.concatenate([h for _, h in found])[None], np.inf)

    def _search(self, kernels: NDArray[np.intp], duals: Array, known: Sequence[Signs]) -> tuple[Signs, Array]:
        """The best labelling for some kernels together, and their energies."""
        ascent = Ascent(self.inputs, kernels, duals, self.labelings, self.p)
        starts = self.labelings.linear_argmax(self._spectral(kernels, ascent))
        if known:
            known_signs = np.stack([candidate[kernels[0]] for candidate in known])
            best = int(np.argmax(ascent.values(known_signs)[0]))
            starts = np.concatenate([starts, known_signs[best : best + 1]])
        signs, energies = ascent.run(starts)
        if self.enumerate_bags and isinstance(self.labelings, InstanceBags):
            signs, energies = ascent.run(enumerate_bags(ascent, signs, self.labelings)[None])
        return signs, energies

    def _spectral(self, kernels: NDArray[np.intp], ascent: Ascent) -> Array:
        """Plus and minus the first eigenvectors of H, summed over the kernels, as rows."""
        n = self.inputs.n_items
        block = min(self.n_starts + _SPARE, n)
        place = int(kernels[0])
        last = self._vectors.get(place)
        steps = _COLD_STEPS if last is None else _WARM_STEPS
        rows = np.random.default_rng(0).standard_normal((block, n)) if last is None else last
        for _ in range(steps):
            rows = np.linalg.qr(ascent.weighted_products(rows).T)[0].T
        # The order among the vectors, by their quotients.
        _, turn = np.linalg.eigh(rows @ ascent.weighted_products(rows).T)
        rows = turn.T[::-1] @ rows
        self._vectors[place] = rows
        first = rows[: self.n_starts]
        return np.concatenate([first, -first])


class Ascent:
    """Steps to better labellings for some kernels together, at given duals.

    Parameters
    ----------
    inputs : InputKernels
    kernels : array of int
    duals : array of shape (n_items,)
        Of the unit of each item.
    labelings : Labelings
    p : float
        The energies of several kernels count by their norm conjugate to p.
    """

    def __init__(
        self, inputs: InputKernels, kernels: NDArray[np.intp], duals: Array, labelings: Labelings, p: float
    ) -> None:
        self.duals = duals
        self.labelings = labelings
        self.p = p
        self._support = np.flatnonzero(duals)
        every = len(self._support) == len(duals)
        self._rows = [inputs.values[m] if every else inputs.values[m][self._support] for m in kernels]
        self._diagonals = np.stack([inputs.values[m].diagonal() for m in kernels]).astype(np.float64)
        self._faint = np.maximum(duals, _FAINT * duals.max())

    def _products(self, rows: Array) -> Array:
        """``K_m (a o y)`` for every kernel and every row y: (n_kernels, n_rows, n_items)."""
        weighted = self.duals[self._support] * rows[:, self._support]
        return np.stack([rows_times(weighted, K) for K in self._rows])

    def weighted_products(self, rows: Array) -> Array:
        """``H y`` for every row y, H summed over the kernels: (n_rows, n_items)."""
        return self.duals * self._products(rows).sum(axis=0)

    def values(self, signs: Signs) -> tuple[Array, Array, Array]:
        """What rows of labellings are worth, (n_rows,); their energies, (n_kernels, n_rows); and the products."""
        products = self._products(signs.astype(np.float64))
        energies = 0.5 * np.einsum("mri,ri->mr", products, signs * self.duals)
        return np.array([norm(h, conjugate(self.p)) for h in energies.T]), energies, products

    def run(self, signs: Signs) -> tuple[Signs, Array]:
        """Ascend from every row at once; the best labelling that was reached, (n_items,), and its energies.

        The diagonal of H holds every sign where it is, and as signs are squared in the energy it is of no account:
        where a step no longer gains, one without it (or with a part of it) may, but is not sure to.
        """
        values, energies, products = self.values(signs)
        attempts = np.zeros(len(signs), dtype=np.intp)
        for step in range(_MOST_STEPS):
            if step == _BROAD_STEPS:
                attempts[np.argsort(-values, kind="stable")[_FEW:]] = len(_HELD)
            moving = np.flatnonzero(attempts < len(_HELD))
            if not len(moving):
                break
            pulls = np.stack([aligned(h, self.p) for h in energies.T[moving]])
            held = np.array(_HELD)[attempts[moving], None] * (pulls @ self._diagonals) * self.duals * signs[moving]
            scores = np.einsum("rm,mri->ri", pulls, products[:, moving]) - held
            trial = self.labelings.linear_argmax(self._faint * scores)
            tried, tried_energies, tried_products = self.values(trial)
            better = tried > values[moving] * (1.0 + _LEAST_GAIN)
            attempts[moving] = np.where(better, 0, attempts[moving] + 1)
            which = moving[better]
            signs[which], values[which] = trial[better], tried[better]
            energies[:, which], products[:, which] = tried_energies[:, better], tried_products[:, better]
        best = int(np.argmax(values))
        return signs[best], energies[:, best]


def enumerate_bags(ascent: Ascent, signs: Signs, scenario: InstanceBags) -> Signs:
    """Try all labellings of one positive bag after the other, the rest as it is, until nothing changes.

    Bags of more than a dozen instances are left as they are.
    """
    signs = signs.copy()
    value = ascent.values(signs[None])[0][0]
    changed = True
    while changed:
        changed = False
        for members, needed in zip(scenario.positive, scenario.needed, strict=True):
            if len(members) > _SMALL_BAG:
                continue
            options = np.array(
                [c for c in product((-1, 1), repeat=len(members)) if c.count(1) >= needed], dtype=np.int8
            )
            trials = np.tile(signs, (len(options), 1))
            trials[:, members] = options
            values = ascent.values(trials)[0]
            best = int(np.argmax(values))
            if values[best] > value * (1.0 + 1e-12):
                signs, value, changed = trials[best], values[best], True
    return signs
