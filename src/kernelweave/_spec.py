"""Small immutable objects (kernels, features) as plain data and back, for files and for the keys of caches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np


def to_spec(value: Any) -> Any:
    """A frozen dataclass of plain values as JSON can hold it: ``{"is": class name, field: value, ...}``.

    Examples
    --------
    >>> from kernelweave._spec import to_spec
    >>> from kernelweave.kernels import Gaussian
    >>> to_spec(Gaussian(0.5))
    {'is': 'Gaussian', 'multiplier': 0.5, 'gamma': None, 'metric': 'euclidean'}
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (tuple, list)):
        return [to_spec(part) for part in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {"is": type(value).__name__, **{f.name: to_spec(getattr(value, f.name)) for f in fields(value)}}
    raise TypeError(f"{value!r} cannot be written as plain data: it is no number, text, tuple or known description")


def from_spec(spec: Any, classes: Iterable[type]) -> Any:
    """What `to_spec` was given, made of the allowed classes only. Lists come back as tuples.

    Examples
    --------
    >>> from kernelweave._spec import from_spec
    >>> from kernelweave.kernels import Gaussian
    >>> from_spec({"is": "Gaussian", "multiplier": 0.5}, [Gaussian])
    Gaussian(0.5)
    """
    if isinstance(spec, list):
        return tuple(from_spec(part, classes) for part in spec)
    if not isinstance(spec, dict):
        return spec
    known = {known.__name__: known for known in classes}
    name = spec.get("is")
    if name not in known:
        raise ValueError(f"unknown kind {name!r}; known here are {sorted(known)}")
    try:
        return known[name](**{key: from_spec(part, known.values()) for key, part in spec.items() if key != "is"})
    except TypeError as error:
        raise ValueError(f"{name} cannot be made of {sorted(set(spec) - {'is'})}: {error}") from error
