"""Kernels between bags as wholes, and classifiers with them: what methods that look into bags are compared with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .._validation import check_cost, check_tol
from ..kernels import Expansion, KernelBank
from ..machines.squared_hinge import WeightedProblem
from ..views import KernelStack, Views, as_views
from .bag_estimator import Array, BagClassifier, median_gaussian
from .bags import Bags, as_bags, is_frame

NORMALISATIONS = ("cosine", "mean", None)


def set_kernel(
    bags_a: Any,
    bags_b: Any = None,
    kernel: Any = None,
    normalise: str | None = "cosine",
    power: float = 1.0,
) -> Array:
    """Sum of a kernel over all pairs of instances of two bags (the set kernel, or MI-kernel).

    It is positive semi-definite if the kernel between instances is.

    Parameters
    ----------
    bags_a : Bags or list of bags
    bags_b : Bags or list of bags, optional
        By default `bags_a`.
    kernel : Kernel, list of kernels or KernelBank, optional
        Between instances; the average of several. Widths that depend on data come from `bags_a`. By default a Gaussian
        kernel whose bandwidth is the median distance between instances.
    normalise : {"cosine", "mean", None}
        "cosine": divided by the square roots of the kernels of both bags with themselves. "mean": by the numbers of
        pairs.
    power : float
        The kernel between instances is raised to it: high powers count close pairs only.

    Returns
    -------
    array of shape (len(bags_a), len(bags_b))

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.ambiguity import set_kernel
    >>> from kernelweave.kernels import Linear
    >>> bags = [np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[1.0, 0.0]])]
    >>> set_kernel(bags, kernel=Linear(), normalise=None)
    array([[2., 1.],
           [1., 1.]])
    """
    _check(normalise, power)
    columns = kernel.columns if isinstance(kernel, KernelBank) else None
    a = _without_frames(as_bags(bags_a), columns)
    b = a if bags_b is None else _without_frames(as_bags(bags_b), columns)
    spec = kernel if isinstance(kernel, KernelBank) else KernelBank(_default(kernel, a), dtype="float64")
    bank = spec.build(a.instances)
    everything = bank.expansion(np.arange(bank.n_kernels), np.arange(a.n_instances))
    pairs = InstanceKernel(everything, np.full(bank.n_kernels, 1.0 / bank.n_kernels), float(power))
    pooled = a.reduce(np.add, b.reduce(np.add, pairs(b.instances)).T)
    sizes_a, sizes_b = (_sizes(bags, normalise, partial(pairs.with_itself, bags)) for bags in (a, b))
    return pooled / np.outer(sizes_a, sizes_b)


def bag_statistics(X: Any, groups: Iterable | None = None) -> Array:
    """Minimum, maximum and mean of every column over each bag, shape (n_bags, 3 * n_features).

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.ambiguity import bag_statistics
    >>> bag_statistics([np.array([[1.0], [3.0]]), np.array([[5.0]])])
    array([[1., 3., 2.],
           [5., 5., 5.]])
    """
    bags = as_bags(X, groups)
    if isinstance(bags.instances, KernelStack):
        raise TypeError("statistics of bags are taken of features, got a KernelStack.")
    views = as_views(bags.instances)
    columns = np.hstack([views[name] for name in views.names])
    means = bags.reduce(np.add, columns) / bags.sizes[:, None]
    return np.hstack([bags.reduce(np.minimum, columns), bags.reduce(np.maximum, columns), means])


class InstanceKernel:
    """Kernels between instances as one: weighted, and raised to a power.

    Parameters
    ----------
    kernels : Expansion
        With the instances that others are compared with.
    weights : array of shape (n_kernels,)
    power : float
    """

    def __init__(self, kernels: Expansion, weights: Array, power: float) -> None:
        kernels.check_of_two_samples()  # else bags could be compared with the training bags, but not with themselves
        self._kernels, self._weights, self._power = kernels, weights, power

    def __call__(self, X: Any) -> Array:
        """Values between new instances and those kept, shape (n_new, n_kept)."""
        mixed = np.tensordot(self._weights, self._kernels.cross(X), axes=1).astype(np.float64)
        return _raised(mixed, self._power)

    def with_itself(self, bags: Bags) -> Array:
        """The sum over all pairs of instances of each bag, shape (n_bags,)."""
        return np.array([InstanceKernel(self._kernels.on(bag), self._weights, self._power)(bag).sum() for bag in bags])


def _raised(values: Array, power: float) -> Array:
    """Kernel values to a power; an error where that is no number."""
    if power == 1:
        return values
    with np.errstate(invalid="ignore", over="ignore"):
        raised = values**power
    if not np.all(np.isfinite(raised)):
        value = values.flat[int(np.argmin(np.isfinite(raised)))]
        raise ValueError(
            f"power={power:g} of the kernel value {value:g} is not a finite number: take a whole power for kernels "
            "with negative values, a lower one for large values, or kernels between 0 and 1."
        )
    return raised


def _sizes(bags: Bags, normalise: str | None, with_itself: Callable[[], Array]) -> Array:
    """What the sums over pairs are divided by, one factor a bag; `with_itself` sums over pairs of the same bag."""
    if normalise is None:
        return np.ones(len(bags))
    if normalise == "mean":
        return bags.sizes.astype(np.float64)
    own = with_itself()
    if own.min() <= 0:
        raise ValueError(
            f"bag {bags.ids[int(own.argmin())]!r} has the kernel {own.min():g} with itself, so that it has no cosine: "
            "use normalise='mean'."
        )
    return np.sqrt(own)


def _without_frames(bags: Bags, columns: Any) -> Bags:
    """The bags, with a frame of instances as Views."""
    if not is_frame(bags.instances):
        return bags
    return bags.holding(as_views(bags.instances, columns, incomplete=True))


def _default(kernel: Any, bags: Bags) -> Any:
    if kernel is not None:
        return kernel
    instances = bags.instances
    if isinstance(instances, Views):
        return {name: median_gaussian(instances[name]) for name in instances.names}
    return median_gaussian(instances)


def _check(normalise: str | None, power: float) -> None:
    if normalise not in NORMALISATIONS:
        raise ValueError(f"normalise must be 'cosine', 'mean' or None, got {normalise!r}.")
    check_cost("power", power)


class BagKernelClassifier(BagClassifier):
    """Support vector machine (squared hinge) with a kernel between bags as wholes.

    Parameters
    ----------
    of : {"instances", "statistics"}, default="instances"
        What the kernel compares: all pairs of instances (the set kernel, with a `power` the MI-kernel), or the minimum,
        maximum and mean of the columns over each bag (the statistics kernel).
    kernels, weights : as in :class:`MIClassifier`
        Between instances, or between the statistics of bags.
    normalise : {"cosine", "mean", None}, default="cosine"
    power : float, default=1.0
        See :func:`set_kernel`.
    C, fit_intercept, class_weight, tol : as in :class:`MIClassifier`
    verbose : int, default=0

    Attributes
    ----------
    classes_ : array of shape (2,)
    kernel_names_ : tuple of str
    weights_ : array of shape (n_kernels,)
    objective_, gap_ : float
        The optimal value and its relative duality gap.
    support_ : array of int
        Bags that count.
    dual_coef_ : array of shape (1, n_support)
    intercept_ : array of shape (1,)

    Examples
    --------
    >>> import kernelweave as kw
    >>> bags, y, _ = kw.datasets.make_bags(n_bags=40, positive_fraction=1.0, random_state=0)
    >>> kw.BagKernelClassifier(C=100.0).fit(bags, y).score(bags, y)
    1.0
    """

    def __init__(
        self,
        of: str = "instances",
        kernels: Any = None,
        weights: Any = "average",
        normalise: str | None = "cosine",
        power: float = 1.0,
        C: float = 1.0,
        class_weight: Any = None,
        fit_intercept: bool = True,
        tol: float = 1e-8,
        verbose: int = 0,
    ) -> None:
        self.of = of
        self.kernels = kernels
        self.weights = weights
        self.normalise = normalise
        self.power = power
        self.C = C
        self.class_weight = class_weight
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.verbose = verbose

    def fit(
        self, X: Any, y: ArrayLike, groups: Iterable | None = None, bag_weight: ArrayLike | None = None
    ) -> BagKernelClassifier:
        """Learn from labelled bags, given as for :meth:`MIClassifier.fit`; kernels cannot be precomputed."""
        _check(self.normalise, self.power)
        check_tol(self.tol, "it is the relative duality gap of the machine")
        if self.of not in ("instances", "statistics"):
            raise ValueError(f"of must be 'instances' or 'statistics', got {self.of!r}.")
        bags = self._bags(X, groups, reset=True)
        positive = self._positive(y, bags)
        plus, minus = self._class_factors(positive)
        each = self.C * self._bag_weight(bag_weight, bags)
        bags = self._compared(bags)
        bank, self.weights_ = self._instance_bank(bags.instances)
        self._active = np.flatnonzero(self.weights_)
        bank.expansion(self._active, []).check_of_two_samples()
        K = _raised(np.asarray(bank.combine(self.weights_), dtype=np.float64), float(self.power))
        K = bags.reduce(np.add, bags.reduce(np.add, K).T)
        sizes = _sizes(bags, self.normalise, K.diagonal)
        problem = WeightedProblem(0.5 * (K + K.T) / np.outer(sizes, sizes), self.fit_intercept)
        point = problem.solve(plus * each * positive, minus * each * ~positive, accuracy=self.tol)
        self.objective_ = point.primal
        self._certify(point)
        self.support_ = np.flatnonzero(point.coef)
        self.dual_coef_ = point.coef[self.support_][None]
        self.intercept_ = np.array([point.intercept])
        kept = bags.rows(self.support_)
        self.kernel_names_ = bank.names
        self._expansion = bank.expansion(self._active, kept)
        self._instance_coef = (point.coef / sizes)[bags.bag_of[kept]]
        return self

    def _compared(self, bags: Bags) -> Bags:
        """What the kernel compares: bags, or the statistics of each as a bag of one instance."""
        if isinstance(bags.instances, KernelStack) or self._spec().kernels == "precomputed":
            raise ValueError(
                "BagKernelClassifier needs instances as features, not precomputed kernels: sum these over pairs of "
                "instances and use MKLClassifier('precomputed')."
            )
        return bags if self.of == "instances" else Bags(bag_statistics(bags))

    def _bag_scores(self, bags: Bags) -> Array:
        bags = self._compared(bags)
        pairs = InstanceKernel(self._expansion, self.weights_[self._active], float(self.power))
        pooled = bags.reduce(np.add, pairs(bags.instances) @ self._instance_coef)
        sizes = _sizes(bags, self.normalise, partial(pairs.with_itself, bags))
        return pooled / sizes + self.intercept_[0]
