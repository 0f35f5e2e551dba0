"""Lists of features as people write them: the name of a preset, or a JSON file to read and edit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .._spec import from_spec, to_spec
from ..images.base import Feature
from ..images.extraction import ImageFeatures
from ..images.presets import PRESETS, RECIPES, preset

#: Largest JSON file that is read, in bytes.
MOST_BYTES = 2**20


def read_features(given: str) -> str | list[Feature]:
    """The name of a preset as it is, or the list in a JSON file.

    Parameters
    ----------
    given : str
        A preset, or the path of a file that holds what `features_as_data` gives.
    """
    if given in PRESETS:
        return given
    path = Path(given)
    if not path.is_file():
        raise ValueError(
            f"{given!r} is neither a preset ({', '.join(PRESETS)}) nor a JSON file of features; "
            "'kernelweave info quick --json' prints one to start from"
        )
    if path.stat().st_size > MOST_BYTES:
        raise ValueError(f"{given} is too large for a list of features: it has more than {MOST_BYTES:,} bytes")
    try:
        specs = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(specs, list):
            raise ValueError(f"it must hold a list, got {type(specs).__name__}")
        features = [from_spec(spec, RECIPES) for spec in specs]
        ImageFeatures(features).kernel_bank()  # refuses what is no feature, an empty list, and names that occur twice
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{given} holds no list of features: {error}") from error
    return features


def features_as_data(features: str | list[Feature]) -> list[dict[str, Any]]:
    """A preset or a list of features as JSON holds it.

    Examples
    --------
    >>> from kernelweave.app.feature_lists import features_as_data
    >>> from kernelweave.images.histograms import LBPHistogram
    >>> features_as_data([LBPHistogram()])
    [{'is': 'LBPHistogram', 'layouts': ['1x1'], 'name': ''}]
    """
    return [to_spec(feature) for feature in (preset(features) if isinstance(features, str) else features)]
