"""Families of kernels that infinite kernel learning searches: what searches see of them, and the parametric ones.

A family is a small immutable description. On training data it becomes *pieces*: boxes of parameters, each with the
energies of its kernels (`BoxPiece`), or pools of kernels (`PoolPiece`, see ``pools.py``).
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.spatial.distance import pdist, squareform

from ..views import KernelStack
from .energies import (
    Array,
    DistanceProduct,
    Duals,
    Energy,
    Exponential,
    FromFunctions,
    GaussianProduct,
    PolynomialProduct,
    SameRate,
)
from .fitting import Item
from .functions import ChiSquared, FromFunction, Gaussian, Kernel, Laplacian, Polynomial, Product
from .quantities import CHI2, CITYBLOCK, SQEUCLIDEAN, Quantity
from .scaled import Scaled
from .steps import Normalised

#: Rates that searches start from, as shares of the largest; about the grid of the published comparisons.
RATE_GRID = np.geomspace(1 / 4500, 1.0, 13)
#: In place of a rate of zero where a kernel needs a positive one: its values differ from those at zero by rounding.
_NEARLY_ZERO = 1e-12
#: Samples on which mean distances are taken, and gradients are checked.
_FEW, _FEWER = 500, 30
#: A gradient may differ from differences of values by this share of its size.
_GRADIENT_TOLERANCE = 1e-3


# -- what searches see ------------------------------------------------------------------------------------------------


class Piece(ABC):
    """Some kernels of a family on training data, each named by a parameter."""

    @abstractmethod
    def item(self, theta: Any) -> Item:
        """The kernel with this parameter, to be added to a bank."""


class BoxPiece(Piece):
    """Kernels whose parameters are a box.

    Attributes
    ----------
    low, high : array of shape (n_parameters,)
    newton : bool
        Whether searches climb by Newton's method; the energies then have second derivatives.
    """

    low: Array
    high: Array
    newton: bool = False

    @abstractmethod
    def energy(self, duals: Duals, tolerated: float = 0.0) -> Energy:
        """The energies at some duals, up to an error that is tolerated."""

    @abstractmethod
    def starts(self) -> list[Array]:
        """Points worth looking at, in groups of neighbours: arrays (k, n_parameters)."""


class PoolPiece(Piece):
    """Kernels that can only be looked at one by one."""

    @abstractmethod
    def scan(self, V: Array, known: Sequence[Any], rng: Generator) -> tuple[list[Any], Array, bool]:
        """Parameters, the known ones among them, their energies, and whether these are all there are."""


class Family(ABC):
    """A set of kernels to choose from; subclasses are immutable descriptions."""

    #: Whether the family says itself which views its kernels are on; else it is taken on every view.
    names_its_views: bool = False

    @abstractmethod
    def pieces(self, features: Any, view: str) -> list[Piece]:
        """The family on training data.

        Parameters
        ----------
        features : Views or KernelStack
        view : str
            The view to take; a family that names its views does not ask.
        """


FamilySpec = Family | Sequence[Family] | Mapping[str, Family | Sequence[Family]]


def all_pieces(spec: FamilySpec, features: Any) -> list[Piece]:
    """Pieces of a family, of several, or of those given for each view."""
    if isinstance(spec, Mapping):
        missing = [view for view in spec if view not in features]
        if missing:
            raise ValueError(f"families are given for views {missing}, but the views are {list(features.names)}")
        by_view = [(view, family) for view, group in spec.items() for family in as_families(group)]
        return [piece for view, family in by_view for piece in family.pieces(features, view)]
    pieces: list[Piece] = []
    for family in as_families(spec):
        for view in ("",) if family.names_its_views else features.names:
            pieces += family.pieces(features, view)
    return pieces


def as_families(spec: Any) -> list[Family]:
    """One family or several as a list of families, checked."""
    families = list(spec) if isinstance(spec, (list, tuple)) else [spec]
    if not families or not all(isinstance(family, Family) for family in families):
        raise TypeError(f"a family of kernels such as GaussianFamily() was expected, or a list of them; got {spec!r}")
    return families


# -- Gaussian and polynomial ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GaussianFamily(Family):
    """Gaussian kernels ``exp(-sum_d rate_d (x_d - y_d)**2)`` with rates between 0 and `largest`.

    Parameters
    ----------
    kind : {"single", "separate", "product"}
        "single": one rate for all features. "separate": one feature at a time, with a rate. "product": a rate for every
        feature. The first two are searched by branch and bound, with a certificate; the third from many starting
        points, without one.
    largest : float, default=30.0
        The largest rate. A real choice, not a technical one: with a large rate the kernel matrix is close to the unit
        matrix, which acts like a ridge on the duals and is often chosen where labels are noisy. Standardise features
        (zero mean, unit variance), so that a rate means the same for all of them.
    climb : {"gradient", "newton"}, default="gradient"
        How kernels of the kind "product" are found: by L-BFGS-B, or by projected Newton steps. The latter are fewer
        and reach their maxima exactly, but cost about as many gradients each as there are features.

    Examples
    --------
    >>> from kernelweave.kernels import GaussianFamily
    >>> GaussianFamily("separate", largest=10.0)
    GaussianFamily(kind='separate', largest=10.0, climb='gradient')
    """

    kind: str = "single"
    largest: float = 30.0
    climb: str = "gradient"

    def __post_init__(self) -> None:
        _check_kind(self, self.kind, ("single", "separate", "product"))
        if self.climb not in ("gradient", "newton"):
            raise ValueError(f"climb of GaussianFamily is 'gradient' or 'newton', got {self.climb!r}")
        check_largest(self)

    def pieces(self, features: Any, view: str) -> list[Piece]:
        X = rows_of(features, view)
        if self.kind == "single":
            return [_RatePiece(view, X, None, self.largest)]
        if self.kind == "separate":
            return [_RatePiece(view, X, d, self.largest) for d in range(X.shape[1])]
        piece = _GaussianPiece(view, X, np.full(X.shape[1], float(self.largest)))
        piece.newton = self.climb == "newton"
        return [piece]


class _RatePiece(BoxPiece):
    """Gaussian kernels with one rate, on all features or on one."""

    def __init__(self, view: str, X: Array, feature: int | None, largest: float) -> None:
        self._view, self._X, self._feature = view, X, feature
        self.low, self.high = np.zeros(1), np.array([float(largest)])

    def item(self, theta: Sequence[float]) -> Item:
        rate = max(theta[0], _NEARLY_ZERO)
        if self._feature is None:
            return make_item(self._view, Gaussian(gamma=rate))
        rates = np.zeros(self._X.shape[1])
        rates[self._feature] = rate
        return make_item(self._view, Scaled(Gaussian(gamma=1.0), tuple(rates)))

    def energy(self, duals: Duals, tolerated: float = 0.0) -> Exponential:
        rows = self._X[duals.ids]
        if self._feature is not None:
            rows = rows[:, [self._feature]]
        return Exponential(pdist(rows, "sqeuclidean"), duals, float(self.high[0]), tolerated)

    def starts(self) -> list[Array]:
        return rate_starts(self.high)


class _ManyRates(BoxPiece):
    """Kernels with one rate a feature."""

    def __init__(self, view: str, X: Array, high: Array) -> None:
        self._view, self._X = view, X
        self.low, self.high = np.zeros(len(high)), high

    def starts(self) -> list[Array]:
        """All rates equal, and one rate alone."""
        alone = RATE_GRID[1::2, None, None] * np.diag(self.high)
        return [self.high * RATE_GRID[:, None], *np.swapaxes(alone, 0, 1)]


class _GaussianPiece(_ManyRates):
    def item(self, theta: Sequence[float]) -> Item:
        return make_item(self._view, Scaled(Gaussian(gamma=1.0), tuple(theta)))

    def energy(self, duals: Duals, tolerated: float = 0.0) -> Energy:
        return GaussianProduct(self._X[duals.ids], duals.G)


@dataclass(frozen=True)
class PolynomialFamily(Family):
    """Polynomial kernels ``(1 + sum_d rate_d x_d y_d) ** degree`` of unit diagonal, with rates up to `largest`.

    They are divided by the roots of their diagonals: without that, larger rates make a larger kernel, and the largest
    ones would always be chosen.

    Parameters
    ----------
    degrees : tuple of int, default=(1, 2, 3)
    kind : {"single", "product"}
        One rate for all features, or one for each.
    largest : float, default=10.0

    Examples
    --------
    >>> from kernelweave.kernels import PolynomialFamily
    >>> PolynomialFamily(degrees=(2,))
    PolynomialFamily(degrees=(2,), kind='single', largest=10.0)
    """

    degrees: tuple[int, ...] = (1, 2, 3)
    kind: str = "single"
    largest: float = 10.0

    def __post_init__(self) -> None:
        _check_kind(self, self.kind, ("single", "product"))
        check_largest(self)
        if not self.degrees:
            raise ValueError("PolynomialFamily needs at least one degree")
        for degree in self.degrees:
            Polynomial(degree)

    def pieces(self, features: Any, view: str) -> list[Piece]:
        X = rows_of(features, view)
        if self.kind == "single":
            return [_PolynomialLine(view, X, degree, self.largest) for degree in self.degrees]
        return [_PolynomialPiece(view, X, degree, self.largest) for degree in self.degrees]


class _PolynomialPiece(_ManyRates):
    def __init__(self, view: str, X: Array, degree: int, largest: float) -> None:
        super().__init__(view, X, np.full(X.shape[1], float(largest)))
        self._degree = degree

    def item(self, theta: Sequence[float]) -> Item:
        return make_item(self._view, Normalised(Scaled(Polynomial(self._degree), tuple(theta)), "spherical"))

    def energy(self, duals: Duals, tolerated: float = 0.0) -> Energy:
        return PolynomialProduct(self._X[duals.ids], duals.G, self._degree)


class _PolynomialLine(_PolynomialPiece):
    """The same with one rate."""

    def __init__(self, view: str, X: Array, degree: int, largest: float) -> None:
        super().__init__(view, X, degree, largest)
        self.low, self.high = self.low[:1], self.high[:1]

    def item(self, theta: Sequence[float]) -> Item:
        rate = max(theta[0], _NEARLY_ZERO)
        return make_item(self._view, Normalised(Polynomial(self._degree, scale=rate), "spherical"))

    def energy(self, duals: Duals, tolerated: float = 0.0) -> Energy:
        return SameRate(super().energy(duals), self._X.shape[1])

    def starts(self) -> list[Array]:
        return [self.high * RATE_GRID[:, None]]


# -- products of distances --------------------------------------------------------------------------------------------


_DISTANCES: dict[str, tuple[Quantity, Callable[[float], Kernel]]] = {
    "euclidean": (SQEUCLIDEAN, lambda rate: Gaussian(gamma=rate)),
    "chi2": (CHI2, lambda rate: ChiSquared(gamma=rate)),
    "cityblock": (CITYBLOCK, lambda rate: Laplacian(gamma=rate**2, metric="cityblock")),
}


@dataclass(frozen=True)
class DistanceProductFamily(Family):
    """Products over views, ``prod_k exp(-rate_k d_k(x, y) / mean(d_k))``, with rates between 0 and `largest`.

    Parameters
    ----------
    metrics : str or tuple of (view, metric) pairs, default="euclidean"
        The distance of every view, or of some: "euclidean" (squared), "chi2" or "cityblock". A mapping is taken too.
    largest : float, default=10.0
        Means are over pairs of (at most 500) training samples.

    Examples
    --------
    >>> from kernelweave.kernels import DistanceProductFamily
    >>> DistanceProductFamily({"colour": "chi2", "gist": "euclidean"}).metrics
    (('colour', 'chi2'), ('gist', 'euclidean'))
    """

    metrics: Any = "euclidean"
    largest: float = 10.0
    names_its_views = True

    def __post_init__(self) -> None:
        check_largest(self)
        if isinstance(self.metrics, Mapping):
            object.__setattr__(self, "metrics", tuple(self.metrics.items()))
        for metric in [self.metrics] if isinstance(self.metrics, str) else [metric for _, metric in self.metrics]:
            if metric not in _DISTANCES:
                raise ValueError(f"the metrics of DistanceProductFamily are {list(_DISTANCES)}, got {metric!r}")

    def pieces(self, features: Any, view: str) -> list[Piece]:
        metrics = [(v, self.metrics) for v in features.names] if isinstance(self.metrics, str) else list(self.metrics)
        missing = [v for v, _ in metrics if v not in features]
        if missing:
            raise ValueError(f"DistanceProductFamily names the views {missing}; there are {list(features.names)}")
        return [_DistancePiece(features, metrics, self.largest)]


class _DistancePiece(_ManyRates):
    def __init__(self, features: Any, metrics: list[tuple[str, str]], largest: float) -> None:
        self._rows = {view: rows_of(features, view) for view, _ in metrics}
        self._metrics = metrics
        some = some_rows(len(features), _FEW)
        means = [mean_of(squareform(d, checks=False)) for d in self._distances(some)]
        super().__init__("", np.empty((0, 0)), largest / np.array(means))

    def item(self, theta: Sequence[float]) -> Item:
        factors = {
            view: _DISTANCES[metric][1](rate)
            for (view, metric), rate in zip(self._metrics, theta, strict=True)
            if rate > 0
        }
        if not factors:
            view, metric = self._metrics[0]
            factors = {view: _DISTANCES[metric][1](_NEARLY_ZERO)}
        product = Product(factors)
        return Item(product.label, None, product)

    def energy(self, duals: Duals, tolerated: float = 0.0) -> Energy:
        return DistanceProduct(self._distances(duals.ids), duals.G)

    def _distances(self, ids: NDArray) -> Array:
        out = np.empty((len(self._metrics), len(ids), len(ids)))
        for (view, metric), block in zip(self._metrics, out, strict=True):
            quantity, rows = _DISTANCES[metric][0], self._rows[view][ids]
            quantity.check(rows, view)
            quantity.block(rows, quantity.prepare(rows, np.float64), block)
        return out


# -- functions of a user ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ParametricFamily(Family):
    """Kernels given by a function of two arrays of samples and parameters in a box, and its gradient.

    Parameters
    ----------
    value : callable
        ``value(A, B, theta)`` with A (n, d), B (m, d) and theta (p,) returns the (n, m) kernel values. An entry must
        depend on its two samples only. Kernels that are chosen are checked for negative eigenvalues.
    gradient : callable, optional
        ``gradient(A, B, theta, G)`` returns ``sum_ij G_ij d value_ij / d theta``, shape (p,). It is compared once with
        differences of values, with a warning where it is wrong. Without it differences are used throughout.
    low, high : tuple of p floats
        The box.
    starts : tuple of tuples of p floats, optional
        Where searches start; by default five points on the diagonal of the box.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.kernels import ParametricFamily
    >>> def laplacian(A, B, theta):
    ...     return np.exp(-theta[0] * np.abs(A[:, None] - B[None]).sum(axis=2))
    >>> ParametricFamily(laplacian, low=(0.01,), high=(10.0,)).high
    (10.0,)
    """

    value: Callable[..., NDArray]
    gradient: Callable[..., NDArray] | None = None
    low: tuple[float, ...] = (0.0,)
    high: tuple[float, ...] = (1.0,)
    starts: tuple[tuple[float, ...], ...] | None = None

    def __post_init__(self) -> None:
        for name in ("value", "gradient"):
            function = getattr(self, name)
            if not callable(function) and not (name == "gradient" and function is None):
                raise TypeError(f"{name} of ParametricFamily is a function, got {function!r}")
        low, high = np.atleast_1d(np.asarray(self.low, float)), np.atleast_1d(np.asarray(self.high, float))
        if low.shape != high.shape or low.ndim != 1 or not np.all(np.isfinite(low) & np.isfinite(high) & (low < high)):
            raise ValueError(
                f"low and high of ParametricFamily are as many finite numbers, each low below its high; "
                f"got {self.low!r} and {self.high!r}"
            )
        if self.starts is not None and np.shape(self.starts)[1:] != low.shape:
            raise ValueError(f"starts of ParametricFamily are points of {len(low)} numbers, got {self.starts!r}")

    def pieces(self, features: Any, view: str) -> list[Piece]:
        piece = _FunctionPiece(self, view, rows_of(features, view))
        if self.gradient is not None:
            _check_gradient(piece, getattr(self.gradient, "__name__", "gradient"))
        return [piece]


@dataclass(frozen=True)
class _At:
    """A kernel function with its parameter filled in."""

    value: Callable
    theta: tuple[float, ...]

    @property
    def __name__(self) -> str:
        name = getattr(self.value, "__name__", "value")
        return f"{name} at {', '.join(f'{number:.4g}' for number in self.theta)}"

    def __call__(self, A: NDArray, B: NDArray) -> NDArray:
        return self.value(A, B, np.array(self.theta))


class _FunctionPiece(BoxPiece):
    def __init__(self, family: ParametricFamily, view: str, X: Array) -> None:
        self._family, self._view, self._X = family, view, X
        self.low, self.high = (np.atleast_1d(np.asarray(end, float)) for end in (family.low, family.high))

    def item(self, theta: Sequence[float]) -> Item:
        return make_item(self._view, FromFunction(_At(self._family.value, tuple(map(float, theta)))))

    def energy(self, duals: Duals, tolerated: float = 0.0) -> FromFunctions:
        return FromFunctions(
            self._X[duals.ids], duals.G, self._family.value, self._family.gradient, self.low, self.high
        )

    def starts(self) -> list[Array]:
        if self._family.starts is not None:
            return [np.array([start], float) for start in self._family.starts]
        return [self.low + share * (self.high - self.low)[None] for share in (0.05, 0.25, 0.5, 0.75, 0.95)]


def _check_gradient(piece: _FunctionPiece, name: str) -> None:
    rng = np.random.default_rng(0)
    V = np.zeros((len(piece._X), 1))
    V[some_rows(len(V), _FEWER), 0] = rng.standard_normal(min(len(V), _FEWER))
    energy = piece.energy(Duals(V))
    for share in (0.3, 0.6):
        theta = piece.low + share * (piece.high - piece.low)
        given, expected = energy.value_and_gradient(theta)[1], energy.differences(theta)
        if given.shape != expected.shape:
            raise ValueError(f"{name} must return {len(theta)} numbers, one a parameter, got shape {given.shape}")
        wrong = np.abs(given - expected) > _GRADIENT_TOLERANCE * max(np.abs(expected).max(), np.abs(given).max())
        if wrong.any():
            d = int(np.flatnonzero(wrong)[0])
            warnings.warn(
                f"{name} looks wrong: at theta = {theta.tolist()} it gives {given[d]:.6g} for parameter {d}, but "
                f"differences of values give {expected[d]:.6g}. Searches climb by it: correct it, or leave it out.",
                UserWarning,
                stacklevel=5,
            )
            return


# -- helpers ----------------------------------------------------------------------------------------------------------


def make_item(view: str, kernel: Kernel) -> Item:
    return Item(f"{view}:{kernel.label}", view, kernel)


def rows_of(features: Any, view: str) -> Array:
    if isinstance(features, KernelStack):
        raise TypeError("parametric families need features; for precomputed kernels use FiniteFamily('precomputed')")
    return np.asarray(features[view], dtype=np.float64)


def rate_starts(high: Array) -> list[Array]:
    """Where branch and bound over one rate first looks."""
    return [high * RATE_GRID[::3, None]]


def mean_of(distances: Array) -> float:
    """The mean of distances between pairs; 1 if there are none, or none that is not zero."""
    return float(distances.mean()) or 1.0 if len(distances) else 1.0


def some_rows(n: int, most: int) -> NDArray[np.intp]:
    return np.arange(n) if n <= most else np.sort(np.random.default_rng(0).choice(n, most, replace=False))


def _check_kind(family: Family, kind: str, kinds: tuple[str, ...]) -> None:
    if kind not in kinds:
        raise ValueError(f"the kind of {type(family).__name__} is one of {list(kinds)}, got {kind!r}")


def check_largest(family: Any) -> None:
    if isinstance(family.largest, bool) or not 0 < float(family.largest) < np.inf:
        raise ValueError(f"largest of {type(family).__name__} must be a positive number, got {family.largest!r}")
