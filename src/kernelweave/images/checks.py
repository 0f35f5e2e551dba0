"""Checks of the fields of recipes, with messages that name the recipe and the field."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def check_whole(recipe: Any, name: str, least: int = 1, most: float = math.inf) -> None:
    """Refuse a field that is no whole number in a range."""
    value = getattr(recipe, name)
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not least <= value <= most:
        allowed = f"from {least} to {most}" if most < math.inf else f"of at least {least}"
        raise ValueError(f"{name} of {type(recipe).__name__} is a whole number {allowed}, got {value!r}")


def check_positive(recipe: Any, name: str) -> None:
    """Refuse a field that is no positive number."""
    value = getattr(recipe, name)
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not 0 < value < math.inf:
        raise ValueError(f"{name} of {type(recipe).__name__} is a positive number, got {value!r}")


def check_choice(recipe: Any, name: str, choices: tuple[str, ...]) -> None:
    """Refuse a field that is none of the choices."""
    value = getattr(recipe, name)
    if value not in choices:
        raise ValueError(f"{name} of {type(recipe).__name__} is one of {list(choices)}, got {value!r}")


def check_several(recipe: Any, name: str, choices: tuple[str, ...] = ()) -> None:
    """Refuse a field that is no tuple of one or more different names, all of them choices if there are any."""
    values = getattr(recipe, name)
    if not isinstance(values, tuple) or not values or len(set(values)) < len(values):
        raise ValueError(f"{name} of {type(recipe).__name__} is a tuple of different names, got {values!r}")
    for value in values if choices else ():
        if value not in choices:
            raise ValueError(f"{name} of {type(recipe).__name__} are of {list(choices)}, got {value!r}")
