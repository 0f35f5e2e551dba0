"""A kernel of features that each have a weight of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .functions import Joined, Kernel
from .quantities import PRECOMPUTED, Quantity
from .steps import Normalised, Repaired


@dataclass(frozen=True)
class ScaledQuantity(Quantity):
    """A quantity of rows whose columns are multiplied by the roots of ``rates``; columns of rate 0 are not read."""

    inner: Quantity
    rates: tuple[float, ...]

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"scaled {self.inner.name}"

    @property
    def zero_to_itself(self) -> bool:  # type: ignore[override]
        return self.inner.zero_to_itself

    @property
    def serial(self) -> bool:  # type: ignore[override]
        return self.inner.serial

    def check(self, X: Any, view: str) -> None:
        if X.shape[1] != len(self.rates):
            raise ValueError(f"a kernel with {len(self.rates)} rates was given view {view!r} of {X.shape[1]} columns")
        self.inner.check(X, view)

    def prepare(self, X: Any, dtype: DTypeLike) -> Any:
        return self.inner.prepare(self._scaled(X), dtype)

    def block(self, A: Any, right: Any, out: NDArray) -> None:
        self.inner.block(self._scaled(A), right, out)

    def diagonal(self, A: Any) -> NDArray:
        return self.inner.diagonal(self._scaled(A))

    def _scaled(self, X: Any) -> NDArray:
        rates = np.array(self.rates)
        used = np.flatnonzero(rates)
        return np.asarray(X, dtype=np.float64)[:, used] * np.sqrt(rates[used])


@dataclass(frozen=True, repr=False)
class Scaled(Kernel):
    """A kernel of features that are multiplied by the roots of rates, so that squares and products get the rates.

    ``Scaled(Gaussian(gamma=1.0), rates)`` is ``exp(-sum_d rates_d (x_d - y_d)**2)``, a Gaussian kernel with a bandwidth
    of its own for every feature; ``Scaled(Polynomial(2), rates)`` is ``(1 + sum_d rates_d x_d y_d)**2``.

    Parameters
    ----------
    kernel : Kernel
        A kernel on features: no product, no normalisation and nothing precomputed; those go around it.
    rates : tuple of float
        One number a feature, not negative. Features of rate zero do not count.

    Examples
    --------
    >>> from kernelweave.kernels import Gaussian, Scaled
    >>> Scaled(Gaussian(gamma=1.0), (0.0, 2.5, 0.0)).label
    'Scaled(Gaussian(gamma=1), 1: 2.5)'
    """

    kernel: Kernel
    rates: tuple[float, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.kernel, Kernel) or isinstance(self.kernel, (Joined, Normalised, Repaired)):
            raise TypeError(f"Scaled takes a kernel on features such as Gaussian(), got {self.kernel!r}")
        if self.kernel.quantity is PRECOMPUTED:
            raise TypeError("Scaled takes a kernel on features; a precomputed kernel has none to scale")
        rates = np.asarray(self.rates, dtype=np.float64)
        if rates.ndim != 1 or not np.all((rates >= 0) & np.isfinite(rates)):
            raise ValueError(f"the rates of Scaled are finite numbers of at least 0, one a feature, got {self.rates!r}")
        object.__setattr__(self, "rates", tuple(rates.tolist()))

    @property
    def quantity(self) -> Quantity:
        return ScaledQuantity(self.kernel.quantity, self.rates)

    @property
    def positive(self) -> bool:
        return self.kernel.positive

    @property
    def needs_mean(self) -> bool:
        return self.kernel.needs_mean

    def rate(self, mean: float, mean_square: float) -> float:
        return self.kernel.rate(mean, mean_square)

    def transform(self, q: NDArray, rate: float, out: NDArray) -> None:
        self.kernel.transform(q, rate, out)

    @property
    def label(self) -> str:
        used = ", ".join(f"{d}: {rate:.4g}" for d, rate in enumerate(self.rates) if rate)
        return f"Scaled({self.kernel.label}, {used or 'nothing'})"
