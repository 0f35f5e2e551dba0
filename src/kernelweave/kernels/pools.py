"""Families that are pools of kernels, given or drawn at random, to be scanned: grids, codebooks, boxes of pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.random import Generator

from ..views import Views
from .bank import Bank
from .energies import Array
from .families import Family, Piece, PoolPiece, make_item
from .fitting import Item
from .functions import Kernel
from .kernel_bank import KernelBank
from .steps import Normalised, normalisation_names


@dataclass(frozen=True)
class FiniteFamily(Family):
    """A list of kernels, given as to a `KernelBank`. All or some of them are looked at in every round.

    With all, the fit is that of `MKLClassifier` on the same kernels, but only kernels in use are kept in memory: for
    thousands of them, such as one for each of many codebooks or boxes of pictures.

    Parameters
    ----------
    kernels : KernelBank, or what a KernelBank is made of
    draws : int, optional
        How many kernels are drawn at random to be looked at in a round, beside those that were of use before.

    Examples
    --------
    >>> from kernelweave.kernels import FiniteFamily, Gaussian
    >>> FiniteFamily([Gaussian(0.5), Gaussian(2.0)]).draws is None
    True
    """

    kernels: Any
    draws: int | None = None
    names_its_views = True

    def __post_init__(self) -> None:
        self.bank  # noqa: B018 (kernels that are none are refused here)
        if self.draws is not None:
            _check_draws(self)

    @property
    def bank(self) -> KernelBank:
        """The kernels as a bank's description."""
        return self.kernels if isinstance(self.kernels, KernelBank) else KernelBank(self.kernels)

    def pieces(self, features: Any, view: str) -> list[Piece]:
        return [_FinitePiece(self.bank, features, self.draws)]


class _FinitePiece(PoolPiece):
    def __init__(self, spec: KernelBank, features: Any, draws: int | None) -> None:
        self._items = spec._items(features)
        if spec.normalise is not None:
            # What a bank does to all its kernels is part of each, because a growing bank has kernels of several kinds.
            steps = normalisation_names(spec.normalise)
            self._items = tuple(replace(item, kernel=Normalised(item.kernel, steps)) for item in self._items)
        self._bank = _recomputed(spec, features)
        self._draws = draws

    def item(self, theta: int) -> Item:
        return self._items[theta]

    def scan(self, V: Array, known: Sequence[int], rng: Generator) -> tuple[list[Any], Array, bool]:
        n = self._bank.n_kernels
        if self._draws is None or self._draws >= n:
            return list(range(n)), self._bank.quadratics(V), True
        some = np.union1d(rng.choice(n, self._draws, replace=False), np.array(known, dtype=np.intp))
        return some.tolist(), self._bank.select(some).quadratics(V), len(some) == n


@dataclass(frozen=True)
class SampledFamily(Family):
    """Kernels drawn at random by a function, anew in every round.

    Parameters
    ----------
    draw : callable
        ``draw(rng)`` with a NumPy random generator returns ``(view, kernel)``.
    draws : int, default=50
        Kernels looked at in a round, beside those that were of use before.

    Examples
    --------
    >>> from kernelweave.kernels import Gaussian, SampledFamily
    >>> family = SampledFamily(lambda rng: ("x", Gaussian(gamma=float(rng.uniform(0.1, 10)))), draws=20)
    """

    draw: Callable[[Generator], tuple[str, Kernel]]
    draws: int = 50
    names_its_views = True

    def __post_init__(self) -> None:
        if not callable(self.draw):
            raise TypeError(f"draw of SampledFamily is a function of a random generator, got {self.draw!r}")
        _check_draws(self)

    def pieces(self, features: Any, view: str) -> list[Piece]:
        return [_SampledPiece(self, features)]


class _SampledPiece(PoolPiece):
    def __init__(self, family: SampledFamily, features: Views) -> None:
        self._family, self._features = family, features

    def item(self, theta: tuple[str, Kernel]) -> Item:
        return make_item(*theta)

    def scan(self, V: Array, known: Sequence[tuple[str, Kernel]], rng: Generator) -> tuple[list[Any], Array, bool]:
        drawn = list(known) + [self._family.draw(rng) for _ in range(self._family.draws)]
        by_view: dict[str, list[Kernel]] = {}
        for one in drawn:
            if not (isinstance(one, tuple) and len(one) == 2 and one[0] in self._features):
                raise ValueError(
                    f"draw of SampledFamily returns a view of {list(self._features.names)} and a kernel, got {one!r}"
                )
            by_view.setdefault(one[0], []).append(one[1])
        parameters = [(view, kernel) for view, kernels in by_view.items() for kernel in kernels]
        return parameters, _recomputed(KernelBank(by_view), self._features).quadratics(V), False


def _recomputed(spec: KernelBank, features: Any) -> Bank:
    """The kernels without a place where their values are kept: energies are computed between support vectors alone."""
    parts = {name: getattr(spec, name) for name in ("columns", "normalise", "dtype", "check")}
    return KernelBank(spec.kernels, storage="recompute", **parts).build(features)


def _check_draws(family: Any) -> None:
    if isinstance(family.draws, bool) or not isinstance(family.draws, (int, np.integer)) or family.draws < 1:
        raise ValueError(f"draws of {type(family).__name__} must be an integer of at least 1, got {family.draws!r}")
