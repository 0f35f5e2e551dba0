"""The kernels a user writes: small immutable descriptions, fitted later on training data by a `KernelBank`.

A kernel is an element-wise function (`transform`) of a *quantity* (inner products, squared distances, ...). Kernels on
one view that start from the same quantity share its computation: ten Gaussian bandwidths cost one matrix of distances.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import quantities
from .learned import LearnedMetric
from .quantities import Quantity

_METRICS = {"euclidean": quantities.SQEUCLIDEAN, "cityblock": quantities.CITYBLOCK, "chi2": quantities.CHI2}


class Kernel:
    """Base of all kernels: a subclass says which quantity it starts from and how to transform it."""

    @property
    def quantity(self) -> Quantity:
        """What is computed between two samples first."""
        raise TypeError(f"{type(self).__name__} has no quantity of its own")

    @property
    def positive(self) -> bool:
        """Whether the kernel is known to be positive semi-definite whatever the data."""
        return True

    @property
    def needs_mean(self) -> bool:
        """Whether `rate` depends on the training data."""
        return False

    def rate(self, mean: float, mean_square: float) -> float:
        """The number learned from training data: from the mean and mean square of the quantity over training pairs."""
        return 1.0

    def transform(self, q: NDArray, rate: float, out: NDArray) -> None:
        """Write the kernel values for the quantities ``q`` into ``out``, which has the same shape and may be ``q``."""
        raise TypeError(f"{type(self).__name__} is not a function of one quantity")

    @property
    def label(self) -> str:
        """Short name, as in the names of a bank: the class, and the arguments that are not the default."""
        arguments = self._arguments(str)
        return type(self).__name__ + (f"({arguments})" if arguments else "")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._arguments(repr)})"

    def _arguments(self, show: Callable[[Any], str]) -> str:
        parts = []
        for position, field in enumerate(fields(self)):  # type: ignore[arg-type]  # every subclass is a dataclass
            value = getattr(self, field.name)
            if field.default is MISSING or value != field.default:
                shown = f"{value:.6g}" if isinstance(value, float) else show(value)
                parts.append(shown if position == 0 else f"{field.name}={shown}")
        return ", ".join(parts)


@dataclass(frozen=True, repr=False)
class Linear(Kernel):
    """Inner product ``<x, y>``.

    Examples
    --------
    >>> from kernelweave.kernels import Linear
    >>> Linear().label
    'Linear'
    """

    @property
    def quantity(self) -> Quantity:
        return quantities.DOT

    def transform(self, q: NDArray, rate: float, out: NDArray) -> None:
        _copy(q, out)


@dataclass(frozen=True, repr=False)
class Polynomial(Kernel):
    """``(scale * <x, y> + offset) ** degree``.

    Parameters
    ----------
    degree : int
        At least 1.
    offset : float
        Below 0 the kernel may be indefinite, and is then checked.
    scale : float
        Positive.

    Examples
    --------
    >>> from kernelweave.kernels import Polynomial
    >>> Polynomial(3).label
    'Polynomial(3)'
    """

    degree: int = 2
    offset: float = 1.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.degree, (int, np.integer)) or self.degree < 1:
            raise ValueError(f"the degree of a Polynomial kernel is an integer of at least 1, got {self.degree!r}")
        if not math.isfinite(self.offset):
            raise ValueError(f"the offset of a Polynomial kernel must be a finite number, got {self.offset!r}")
        _check_positive(self, "scale")

    @property
    def quantity(self) -> Quantity:
        return quantities.DOT

    @property
    def positive(self) -> bool:
        return self.offset >= 0

    def transform(self, q: NDArray, rate: float, out: NDArray) -> None:
        np.multiply(q, self.scale, out=out)
        out += self.offset
        first_power = out.copy() if self.degree > 1 else out
        for _ in range(self.degree - 1):
            out *= first_power


@dataclass(frozen=True, repr=False)
class _DistanceKernel(Kernel):
    """A decreasing function of ``gamma * D ** 2`` with the distance D.

    Parameters
    ----------
    multiplier : float
        Without `gamma`, ``gamma = 1 / (multiplier * mean(D ** 2))``, the mean over pairs of different training samples.
        When that mean is zero (all samples equal, or one sample), 1 stands in for it, with a warning.
    gamma : float, optional
        Fixed value, not learned from the data.
    metric : {"euclidean", "cityblock", "chi2"}, or a learned metric
        The distance D; "chi2" is ``1/2 sum (x - y)**2 / (x + y)`` and needs non-negative features. A positive
        semi-definite matrix M, or anything fitted that has one as ``metric_``: ``D ** 2 = (x - y)' M (x - y)``.
    """

    multiplier: float = 1.0
    gamma: float | None = None
    metric: Any = "euclidean"

    def __post_init__(self) -> None:
        _check_positive(self, "multiplier")
        if self.gamma is not None:
            _check_positive(self, "gamma")
        if not isinstance(self.metric, str):
            object.__setattr__(self, "metric", LearnedMetric.of(self.metric))
        elif self.metric not in _METRICS:
            raise ValueError(f"the metric of {type(self).__name__} is one of {list(_METRICS)}, got {self.metric!r}")

    @property
    def quantity(self) -> Quantity:
        return self.metric if isinstance(self.metric, LearnedMetric) else _METRICS[self.metric]

    @property
    def needs_mean(self) -> bool:
        return self.gamma is None

    def rate(self, mean: float, mean_square: float) -> float:
        if self.gamma is not None:
            return self.gamma
        return 1.0 / (self.multiplier * (mean if self._squared else mean_square))

    @property
    def _squared(self) -> bool:
        # The quantity then is D ** 2, which needs no square root; others give D.
        return isinstance(self.metric, LearnedMetric) or self.metric == "euclidean"

    def _of_squared_distance(self, q: NDArray, rate: float, out: NDArray) -> None:
        """Write ``rate * D ** 2`` into ``out``."""
        if self._squared:
            np.multiply(q, rate, out=out)
        else:
            np.multiply(q, q, out=out)
            out *= rate

    def _of_distance(self, q: NDArray, rate: float, out: NDArray) -> None:
        """Write ``sqrt(rate) * D`` into ``out``."""
        if self._squared:
            np.multiply(q, rate, out=out)
            np.sqrt(out, out=out)
        else:
            np.multiply(q, math.sqrt(rate), out=out)


@dataclass(frozen=True, repr=False)
class Gaussian(_DistanceKernel):
    """``exp(-gamma * D ** 2)``.

    Parameters
    ----------
    multiplier : float
        Without `gamma`, ``gamma = 1 / (multiplier * mean(D ** 2))``, the mean over pairs of different training samples.
        When that mean is zero (all samples equal, or one sample), 1 stands in for it, with a warning.
    gamma : float, optional
        Fixed value, not learned from the data. A bandwidth sigma is ``gamma = 1 / (2 * sigma ** 2)``.
    metric : {"euclidean", "cityblock", "chi2"}, or a learned metric
        The distance D. A positive semi-definite matrix M of shape (n_features, n_features), or anything fitted that has
        one as ``metric_`` (such as :class:`kernelweave.ITML`), is a learned one: ``D ** 2 = (x - y)' M (x - y)``. Only
        the Euclidean and learned ones are sure to give a positive semi-definite kernel.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.kernels import Gaussian
    >>> Gaussian(0.5).label, Gaussian(gamma=2.0).label
    ('Gaussian(0.5)', 'Gaussian(gamma=2)')
    >>> Gaussian(metric=np.diag([1.0, 9.0]))
    Gaussian(metric=LearnedMetric(2 features))
    """

    @property
    def positive(self) -> bool:
        return self._squared

    def transform(self, q: NDArray, rate: float, out: NDArray) -> None:
        self._of_squared_distance(q, -rate, out)
        np.exp(out, out=out)


@dataclass(frozen=True, repr=False)
class Laplacian(_DistanceKernel):
    """``exp(-sqrt(gamma) * D)``, with the parameters of `Gaussian`; positive semi-definite for all metrics.

    Examples
    --------
    >>> from kernelweave.kernels import Laplacian
    >>> Laplacian(metric="cityblock").label
    'Laplacian(metric=cityblock)'
    """

    def transform(self, q: NDArray, rate: float, out: NDArray) -> None:
        self._of_distance(q, rate, out)
        np.negative(out, out=out)
        np.exp(out, out=out)


@dataclass(frozen=True, repr=False)
class InverseSquaredDistance(_DistanceKernel):
    """``1 / (gamma * D ** 2 + 1)``, with the parameters of `Gaussian`.

    Examples
    --------
    >>> from kernelweave.kernels import InverseSquaredDistance
    >>> InverseSquaredDistance(4.0).label
    'InverseSquaredDistance(4)'
    """

    @property
    def positive(self) -> bool:
        return self._squared

    def transform(self, q: NDArray, rate: float, out: NDArray) -> None:
        self._of_squared_distance(q, rate, out)
        out += 1.0
        np.reciprocal(out, out=out)


@dataclass(frozen=True, repr=False)
class InverseDistance(_DistanceKernel):
    """``1 / (sqrt(gamma) * D + 1)``, with the parameters of `Gaussian`; positive semi-definite for all metrics.

    Examples
    --------
    >>> from kernelweave.kernels import InverseDistance
    >>> InverseDistance().label
    'InverseDistance'
    """

    def transform(self, q: NDArray, rate: float, out: NDArray) -> None:
        self._of_distance(q, rate, out)
        out += 1.0
        np.reciprocal(out, out=out)


class ExponentialKernel(Kernel):
    """``exp(-gamma * d)`` with a quantity d that is a distance. Subclasses are dataclasses with the fields below."""

    multiplier: float
    gamma: float | None

    def __post_init__(self) -> None:
        _check_positive(self, "multiplier")
        if self.gamma is not None:
            _check_positive(self, "gamma")

    @property
    def needs_mean(self) -> bool:
        return self.gamma is None

    def rate(self, mean: float, mean_square: float) -> float:
        return 1.0 / (self.multiplier * mean) if self.gamma is None else self.gamma

    def transform(self, q: NDArray, rate: float, out: NDArray) -> None:
        np.multiply(q, -rate, out=out)
        np.exp(out, out=out)


@dataclass(frozen=True, repr=False)
class ChiSquared(ExponentialKernel):
    """``exp(-gamma * d)`` with the chi-squared distance ``d = 1/2 sum (x - y)**2 / (x + y)`` of non-negative features.

    Parameters
    ----------
    multiplier : float
        Without `gamma`, ``gamma = 1 / (multiplier * mean(d))``, the mean over pairs of different training samples.
        When that mean is zero (all samples equal, or one sample), 1 stands in for it, with a warning.
    gamma : float, optional
        Fixed value, not learned from the data.

    Examples
    --------
    >>> from kernelweave.kernels import ChiSquared
    >>> ChiSquared(1.5).label
    'ChiSquared(1.5)'
    """

    multiplier: float = 1.0
    gamma: float | None = None

    @property
    def quantity(self) -> Quantity:
        return quantities.CHI2


@dataclass(frozen=True, repr=False)
class AdditiveChiSquared(Kernel):
    """``sum 2 x y / (x + y)`` of non-negative features.

    Examples
    --------
    >>> from kernelweave.kernels import AdditiveChiSquared
    >>> AdditiveChiSquared().label
    'AdditiveChiSquared'
    """

    @property
    def quantity(self) -> Quantity:
        return quantities.ADDITIVE_CHI2

    def transform(self, q: NDArray, rate: float, out: NDArray) -> None:
        _copy(q, out)


@dataclass(frozen=True, repr=False)
class HistogramIntersection(Kernel):
    """``sum min(x, y)`` of non-negative features.

    Examples
    --------
    >>> from kernelweave.kernels import HistogramIntersection
    >>> HistogramIntersection().label
    'HistogramIntersection'
    """

    @property
    def quantity(self) -> Quantity:
        return quantities.MINIMUM

    def transform(self, q: NDArray, rate: float, out: NDArray) -> None:
        _copy(q, out)


@dataclass(frozen=True, repr=False)
class Precomputed(Kernel):
    """A view that is itself a kernel: (n, n) for training samples, (n_new, n) between new and training samples.

    For a whole stack of precomputed kernels, or for cross-validation, use ``KernelBank("precomputed")`` with a
    `KernelStack`.

    Examples
    --------
    >>> from kernelweave.kernels import Precomputed
    >>> Precomputed().label
    'Precomputed'
    """

    @property
    def quantity(self) -> Quantity:
        return quantities.PRECOMPUTED

    @property
    def positive(self) -> bool:
        return False

    def transform(self, q: NDArray, rate: float, out: NDArray) -> None:
        _copy(q, out)


@dataclass(frozen=True, repr=False)
class FromFunction(Kernel):
    """Any function of two arrays of samples.

    Parameters
    ----------
    function : callable
        ``function(X, Y)`` with X (n, d) and Y (m, d) returns the (n, m) kernel values. It is called on blocks of rows,
        so an entry must depend on its two samples only.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.kernels import FromFunction
    >>> def sigmoid(X, Y):
    ...     return np.tanh(X @ Y.T)
    >>> FromFunction(sigmoid).label
    'FromFunction(sigmoid)'
    """

    function: Callable[[NDArray, NDArray], NDArray]

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise TypeError(f"FromFunction takes a function of two arrays, got {self.function!r}")

    @property
    def quantity(self) -> Quantity:
        return quantities.FunctionQuantity(self.function)

    @property
    def positive(self) -> bool:
        return False

    def transform(self, q: NDArray, rate: float, out: NDArray) -> None:
        _copy(q, out)

    @property
    def label(self) -> str:
        return f"FromFunction({quantities.FunctionQuantity(self.function).function_name})"


class Joined(Kernel):
    """Base of the kernels that are made of other kernels, element by element.

    Parameters
    ----------
    *factors : Kernel, or one mapping of view names to kernels
        Kernels alone are all taken on the view the whole is given to; in a mapping, each on its own view.
    """

    def __init__(self, *factors: Kernel | Mapping[str, Kernel]) -> None:
        parts: list[tuple[str | None, Kernel]] = []
        for factor in factors:
            parts += list(factor.items()) if isinstance(factor, Mapping) else [(None, factor)]
        name = type(self).__name__
        if not parts:
            raise ValueError(f"{name} needs at least one kernel")
        for _, kernel in parts:
            if not isinstance(kernel, Kernel):
                raise TypeError(f"{name} takes kernels or a mapping of view names to kernels, got {kernel!r}")
        self.factors = tuple(parts)

    @staticmethod
    def join(out: NDArray, other: NDArray) -> None:
        """Take the values of one more kernel into ``out``."""
        raise TypeError("a kernel that is made of others says how they are joined")

    @staticmethod
    def finish(out: NDArray, n_factors: int) -> None:
        """Complete ``out`` when all kernels are in it."""

    @property
    def positive(self) -> bool:
        return all(kernel.positive for _, kernel in self.factors)

    @property
    def label(self) -> str:
        parts = (kernel.label if view is None else f"{view}:{kernel.label}" for view, kernel in self.factors)
        return f"{type(self).__name__}({', '.join(parts)})"

    def __repr__(self) -> str:
        parts = (repr(kernel) if view is None else f"{{{view!r}: {kernel!r}}}" for view, kernel in self.factors)
        return f"{type(self).__name__}({', '.join(parts)})"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.factors == other.factors

    def __hash__(self) -> int:
        return hash((type(self), self.factors))


class Product(Joined):
    """Element-wise product of other kernels.

    Parameters
    ----------
    *factors : Kernel, or one mapping of view names to kernels
        Kernels alone are all taken on the view the product is given to; in a mapping, each on its own view.

    Examples
    --------
    >>> from kernelweave.kernels import ChiSquared, Gaussian, Linear, Product
    >>> Product(Linear(), Gaussian()).label
    'Product(Linear, Gaussian)'
    >>> Product({"sift": ChiSquared(), "gist": Gaussian(0.5)}).label
    'Product(sift:ChiSquared, gist:Gaussian(0.5))'
    """

    @staticmethod
    def join(out: NDArray, other: NDArray) -> None:
        out *= other


class Mean(Joined):
    """Plain average of other kernels, as one kernel: it takes the place of its parts in a bank, and of their weights.

    Parameters
    ----------
    *factors : Kernel, or one mapping of view names to kernels
        Kernels alone are all taken on the view the mean is given to; in a mapping, each on its own view.

    Examples
    --------
    >>> from kernelweave.kernels import ChiSquared, Mean
    >>> Mean({"left": ChiSquared(), "right": ChiSquared()}).label
    'Mean(left:ChiSquared, right:ChiSquared)'
    """

    @staticmethod
    def join(out: NDArray, other: NDArray) -> None:
        out += other

    @staticmethod
    def finish(out: NDArray, n_factors: int) -> None:
        out /= n_factors


def _copy(q: NDArray, out: NDArray) -> None:
    if out is not q:
        out[...] = q


def _check_positive(kernel: Kernel, name: str) -> None:
    value = getattr(kernel, name)
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not 0 < float(value) < math.inf:
        raise ValueError(f"{name} of {type(kernel).__name__} must be a positive number, got {value!r}")
