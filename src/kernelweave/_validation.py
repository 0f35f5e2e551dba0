"""Checks of the numbers that users set."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np


def check_number(name: str, value: Any, what: str, holds: Callable[[Any], bool], advice: str = "") -> None:
    """Raise unless a setting is a number that is what it must be.

    Examples
    --------
    >>> from kernelweave._validation import check_number
    >>> check_number("share", 0.1, "positive", lambda share: share > 0)
    >>> check_number("share", "0.1", "positive", lambda share: share > 0)
    Traceback (most recent call last):
    TypeError: share must be positive, got '0.1'.
    """
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or not holds(value):
        error = ValueError if is_number else TypeError
        raise error(f"{name} must be {what}, got {value!r}{advice and ': '}{advice}.")


def check_cost(name: str, value: Any, advice: str = "") -> None:
    """Raise unless a setting is a positive and finite number."""
    check_number(name, value, "positive and finite", lambda cost: 0 < cost < np.inf, advice)


def check_tol(value: Any, advice: str = "it is the relative duality gap to stop at") -> None:
    """Raise unless the setting `tol` is a positive number."""
    check_number("tol", value, "positive", lambda tol: tol > 0, advice)
