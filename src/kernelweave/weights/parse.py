"""From what a user writes for ``weights=`` to a weight set."""

from __future__ import annotations

import re
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

import numpy as np

from .base import WeightSet
from .chosen import Alignment, Best
from .fixed import Average, Fixed, Sum
from .lp import LpBall
from .simplex import Entropy, Simplex

NAMES: dict[str, Callable[[], WeightSet]] = {
    "l1": Simplex,
    "l2": lambda: LpBall(2.0),
    "linf": lambda: LpBall(np.inf),
    "average": Average,
    "sum": Sum,
    "best": Best,
    "alignment": Alignment,
    "entropy": Entropy,
}


def parse_weights(spec: Any) -> WeightSet:
    """The weight set meant by a name, a list of numbers, or a weight set.

    Parameters
    ----------
    spec : str, WeightSet, or sequence of float
        ``"l1"``, ``"l2"``, ``"l1.5"`` (any number from 1 after the l), ``"linf"``, ``"average"``, ``"sum"``,
        ``"best"``, ``"alignment"``, ``"entropy"``; a weight set, returned as it is; or one fixed weight a kernel.

    Examples
    --------
    >>> from kernelweave.weights import parse_weights
    >>> parse_weights("l1"), parse_weights("l1.5"), parse_weights([0.3, 0.7])
    (Simplex(), LpBall(p=1.5), Fixed(weights=(0.3, 0.7)))
    """
    if isinstance(spec, WeightSet):
        return spec
    choices = f"one of {', '.join(map(repr, NAMES))}, a norm such as 'l1.5', a list of weights, or a WeightSet"
    if isinstance(spec, str):
        name = spec.strip().lower()
        if name in NAMES:
            return NAMES[name]()
        if re.fullmatch(r"l\d+(\.\d+)?", name):
            p = float(name[1:])
            return Simplex() if p == 1.0 else LpBall(p)
        near = get_close_matches(name, NAMES, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"weights={spec!r} is not known.{hint} Give {choices}.")
    if isinstance(spec, (list, tuple)) or (isinstance(spec, np.ndarray) and spec.ndim > 0):
        return Fixed(spec)  # type: ignore[arg-type]
    if isinstance(spec, type) and issubclass(spec, WeightSet):
        raise TypeError(f"weights is the class {spec.__name__}; give an instance of it, with its parameters.")
    raise TypeError(f"weights={spec!r} of type {type(spec).__name__} is not a set of weights. Give {choices}.")
