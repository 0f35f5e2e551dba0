"""Models, kernels and settings as plain data and arrays, and back: what stands in model files.

Text, finite numbers, None and lists stand for themselves. Everything else is ``{"is": its kind, ...}`` with its parts.
Only the kinds in the table below are written or made: what a file names is looked up there and never imported.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.neighbors import NearestNeighbors

from . import kernels, machines, weights
from .infinite import Violator
from .kernels import (
    Expansion,
    Family,
    FromFunction,
    Kernel,
    KernelBank,
    Mean,
    ParametricFamily,
    Product,
    SampledFamily,
)
from .kernels.device import DeviceExpansion
from .kernels.expansion import Part
from .kernels.feature_maps import Coordinates, Fourier, Homogeneous, MappedKernel, Nystrom, Origin, Stretch, UnitLength
from .kernels.fitted import Leaf, MeanNode, Partial, ProductNode
from .kernels.functions import Joined
from .kernels.learned import LearnedMetric
from .kernels.low_rank import LowRankExpansion
from .kernels.quantities import GramColumns
from .kernels.steps import Center, Clip, Scale, Shift, Spherical
from .machines import Machine
from .metric import Mahalanobis, PairSet
from .solvers import StochasticApproximation
from .weights import WeightSet


class Packer:
    """Turns values into plain data, and sets their arrays aside.

    Parameters
    ----------
    prefix : str
        What the names of the arrays begin with.

    Attributes
    ----------
    arrays : dict of str to array

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave._packing import Packer, unpack
    >>> from kernelweave.kernels import Gaussian
    >>> packer = Packer("model/")
    >>> packer.pack(Gaussian(0.5), "kernels")
    {'is': 'Gaussian', 'multiplier': 0.5, 'gamma': None, 'metric': 'euclidean'}
    >>> packer.pack((1, np.ones(2)), "weights_")
    {'is': 'tuple', 'of': [1, {'is': 'array', 'name': 'model/weights_'}]}
    >>> unpack(_, packer.arrays)
    (1, array([1., 1.]))
    """

    def __init__(self, prefix: str = "") -> None:
        self.arrays: dict[str, NDArray] = {}
        self._prefix = prefix

    def pack(self, value: Any, name: str) -> Any:
        """A value as plain data, with arrays under ``name``; a TypeError says what cannot be written and what to do."""
        value = _simpler(value)
        if isinstance(value, np.ndarray) and value.dtype != object:
            return {"is": "array", "name": self._set_aside(value, name)}
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else {"is": "float", "of": str(value)}
        if value is None or isinstance(value, (bool, int, str)):
            return value
        if isinstance(value, list):
            return [self.pack(part, name) for part in value]
        kind = _KINDS.get(type(value).__name__)
        if kind is None or kind.type is not type(value):
            raise TypeError(_why_not(value))
        return {"is": type(value).__name__} | {key: self.pack(part, name) for key, part in kind.parts(value).items()}

    def _set_aside(self, array: NDArray, name: str) -> str:
        full, count = self._prefix + name, 0
        while full in self.arrays:
            count += 1
            full = f"{self._prefix}{name}.{count}"
        self.arrays[full] = array
        return full


def unpack(packed: Any, arrays: Mapping[str, NDArray]) -> Any:
    """What `Packer.pack` was given; a ValueError if it cannot be made."""
    if isinstance(packed, list):
        return [unpack(part, arrays) for part in packed]
    if not isinstance(packed, dict):
        return packed
    name = packed.get("is")
    parts = {key: unpack(part, arrays) for key, part in packed.items() if key != "is"}
    if name not in ("array", "float", *_KINDS):
        raise ValueError(f"unknown kind {name!r}")
    try:
        if name == "array":
            return arrays[parts["name"]]
        if name == "float":
            return float(parts["of"])
        return _KINDS[name].make(**parts)
    except Exception as error:  # parts that are not what they should be can offend anywhere
        raise ValueError(f"{name} cannot be made of what is given: {error}") from error


def _simpler(value: Any) -> Any:
    """What is written in place of some values: the same to the estimators, but for generators of random numbers."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return np.asarray(value) if not isinstance(value, np.ma.MaskedArray) else value
    if isinstance(value, range):
        return list(value)
    if isinstance(value, DeviceExpansion):
        return value.plain()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, (np.random.RandomState, np.random.Generator)):
        return None  # only the next fit would draw from it
    return value


# -- kinds ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Kind:
    """A class that is written by its name: the parts of an object, and how one is made of them."""

    type: type
    parts: Callable[[Any], dict[str, Any]]
    make: Callable[..., Any]


def _record(kind: type) -> _Kind:
    """A dataclass: its parts are its fields."""
    names = [field.name for field in fields(kind)]
    return _Kind(kind, lambda value: {name: getattr(value, name) for name in names}, kind)


def _vocabulary(module: Any, *bases: type) -> list[type]:
    """The dataclasses that a folder offers."""
    offered = [getattr(module, name) for name in module.__all__]
    return [kind for kind in offered if isinstance(kind, type) and issubclass(kind, bases) and is_dataclass(kind)]


def _joined(kind: type[Joined]) -> _Kind:
    """A kernel made of others, each on the view it names or on the view of the whole (None)."""

    def make(factors: list) -> Joined:
        return kind(*(kernel if view is None else {view: kernel} for view, kernel in factors))

    return _Kind(kind, lambda value: {"factors": [list(factor) for factor in value.factors]}, make)


def _make_slice(start: int | None, stop: int | None, step: int | None) -> slice:
    return slice(start, stop, step)


def _bank_parts(bank: KernelBank) -> dict[str, Any]:
    return bank.__getstate__() | {"columns": _plain_columns(bank.columns), "dtype": np.dtype(bank.dtype).name}


def _expansion_parts(expansion: Expansion) -> dict[str, Any]:
    state = expansion.to_state()
    return state | {"columns": _plain_columns(state["columns"])}


def _plain_columns(columns: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Columns of views, which users give as slices or as anything with numbers or names in it."""
    if columns is None:
        return None
    several = {view: isinstance(which, Iterable) and not isinstance(which, str) for view, which in columns.items()}
    return {view: list(which) if several[view] else which for view, which in columns.items()}


def _objects_parts(array: NDArray) -> dict[str, Any]:
    if array.ndim != 1:
        raise TypeError(_why_not(array))
    return {"of": array.tolist()}


def _neighbors_parts(search: NearestNeighbors) -> dict[str, Any]:
    # Of given distances, those between training samples have done their work: only their number still counts.
    samples = search.n_samples_fit_ if search.metric == "precomputed" else search._fit_X
    return {"n_neighbors": search.n_neighbors, "metric": search.metric, "n_jobs": search.n_jobs, "samples": samples}


def _make_neighbors(n_neighbors: int, metric: str, n_jobs: int | None, samples: Any) -> NearestNeighbors:
    if metric == "precomputed":
        samples = sparse.identity(samples, format="csr")
    return NearestNeighbors(n_neighbors=n_neighbors, metric=metric, n_jobs=n_jobs).fit(samples)


def _sparse(kind: Any) -> _Kind:
    def parts(matrix: Any) -> dict[str, Any]:
        return {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr, "shape": matrix.shape}

    def make(data: NDArray, indices: NDArray, indptr: NDArray, shape: tuple[int, int]) -> Any:
        matrix = kind((data, indices, indptr), shape=shape)
        matrix.check_format(full_check=True)  # compiled loops trust the numbers of its columns
        return matrix

    return _Kind(kind, parts, make)


#: Kernels and families that are made of functions, which no file keeps.
_OF_FUNCTIONS = (FromFunction, ParametricFamily, SampledFamily)
_KINDS: dict[Any, _Kind] = {
    kind.type.__name__: kind
    for kind in (
        _Kind(tuple, lambda value: {"of": list(value)}, lambda of: tuple(of)),
        _Kind(dict, lambda value: {"of": [list(item) for item in value.items()]}, lambda of: dict(of)),
        _Kind(slice, lambda value: {"start": value.start, "stop": value.stop, "step": value.step}, _make_slice),
        _Kind(np.ndarray, _objects_parts, lambda of: np.fromiter(of, dtype=object, count=len(of))),
        *map(_sparse, (sparse.csr_matrix, sparse.csr_array)),
        _Kind(NearestNeighbors, _neighbors_parts, _make_neighbors),
        *map(_joined, (Product, Mean)),
        _Kind(KernelBank, _bank_parts, KernelBank),
        _Kind(Expansion, _expansion_parts, lambda **state: Expansion.from_state(state)),
        _Kind(LowRankExpansion, _expansion_parts, lambda **state: LowRankExpansion.from_state(state)),
        *map(_record, (MappedKernel, Coordinates, Homogeneous, Fourier, Nystrom, Stretch, UnitLength, Origin)),
        *map(_record, (StochasticApproximation, Part, Leaf, ProductNode, MeanNode, Partial, GramColumns)),
        *map(_record, (Scale, Spherical, Center, Clip, Shift)),
        _Kind(LearnedMetric, lambda value: {"matrix": value.matrix}, LearnedMetric),
        *(_record(kind) for kind in _vocabulary(kernels, Kernel, Family) if kind not in _OF_FUNCTIONS),
        *map(_record, (Violator, PairSet, Mahalanobis)),
        *map(_record, _vocabulary(machines, Machine)),
        *map(_record, _vocabulary(weights, WeightSet)),
    )
}


def _why_not(value: Any) -> str:
    if isinstance(value, _OF_FUNCTIONS) or callable(value):
        what = f"{value!r} is a function of yours"
    elif isinstance(value, (Kernel, Family, Machine, WeightSet)):
        what = f"{type(value).__name__} is a class of your own"
    else:
        what = f"{value!r} is of type {type(value).__name__}"
    return (
        f"{what}, and a model file, which is opened without running code, has no place for it: use what kernelweave "
        "offers (for a kernel of your own kernels='precomputed'), or keep the model with joblib.dump"
    )
