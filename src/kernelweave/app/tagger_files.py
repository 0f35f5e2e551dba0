"""A tagger in one file of JSON and arrays, opened without running code."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._archive import Archive, read_archive, write_archive
from .._packing import Packer, unpack
from ..images.extraction import ImageFeatures
from ..images.presets import RECIPES
from ..labels import Labels
from ..model_files import estimator_from_state, estimator_state
from .choosing import Setting
from .tagger import PictureTagger

#: What the file says it is.
KIND = "picture-tagger"

#: Parameters that are kept; the others are about the machine it was trained on.
PARAMETERS = ("method", "weights", "C", "folds", "max_side", "random_state")


def write_tagger(tagger: PictureTagger, path: str | os.PathLike[str]) -> None:
    """Write a fitted tagger, whole or not at all; see `PictureTagger.save`."""
    packer = Packer("parameters/")
    features, learned = tagger.features_.to_state()
    model, arrays = estimator_state(tagger.model_, "model/")
    content = {
        "parameters": {name: packer.pack(getattr(tagger, name), name) for name in PARAMETERS},
        "preset": tagger.features if isinstance(tagger.features, str) else None,
        "features": features,
        "model": model,
        "label_names": list(tagger.label_names_),
        "single": tagger.single_,
        "setting": _plain(tagger.setting_),
        "choice": [_plain(setting) for setting in tagger.choice_],
        "measures": tagger.measures_,
        "view_names": list(tagger.view_names_),
        "view_of": list(tagger.view_of_),
        "paths": list(tagger.paths_),
        "problems": [list(problem) for problem in tagger.problems_],
        "notes": list(tagger.notes_),
    }
    arrays |= packer.arrays
    arrays |= {f"features/{name}": array for name, array in learned.items()}
    arrays |= {f"thumbnails/{row}": np.frombuffer(data, np.uint8) for row, data in tagger.thumbnails_.items()}
    arrays |= {
        "signs": tagger.Y_.signs,
        "held_out": tagger.held_out_,
        "thresholds": tagger.thresholds_,
        "contributions": tagger.contributions_,
        "keys": np.frombuffer(b"".join(tagger.keys_), np.uint8).reshape(len(tagger.keys_), -1),
    }
    write_archive(path, KIND, content, arrays)


def read_tagger(path: str | os.PathLike[str]) -> PictureTagger:
    """Read a tagger; see `PictureTagger.load`."""
    archive = read_archive(path)
    if archive.kind != KIND:
        raise ValueError(f"{os.fspath(path)} holds a {archive.kind!r}, not a picture tagger")
    try:
        return _tagger(archive)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{os.fspath(path)} holds no picture tagger that can be used: {error!r}") from error


def _tagger(archive: Archive) -> PictureTagger:
    content, arrays = archive.content, archive.arrays
    parameters = {name: unpack(content["parameters"][name], arrays) for name in PARAMETERS}
    features = ImageFeatures.from_state(content["features"], _below(arrays, "features/"), RECIPES)
    tagger = PictureTagger(content["preset"] or features.features, **parameters)
    tagger.features_ = features
    tagger.model_ = estimator_from_state(content["model"], arrays)
    tagger.label_names_ = tuple(map(str, content["label_names"]))
    tagger.single_ = bool(content["single"])
    tagger.setting_ = _setting(content["setting"])
    tagger.choice_ = tuple(_setting(row) for row in content["choice"])
    tagger.measures_ = {str(name): float(value) for name, value in content["measures"].items()}
    tagger.view_names_ = tuple(map(str, content["view_names"]))
    tagger.view_of_ = tuple(map(int, content["view_of"]))
    tagger.paths_ = tuple(map(str, content["paths"]))
    tagger.problems_ = [(str(what), str(reason)) for what, reason in content["problems"]]
    tagger.notes_ = list(map(str, content["notes"]))
    tagger.Y_ = Labels(arrays["signs"].astype(np.int8), np.array(tagger.label_names_))
    tagger.held_out_ = arrays["held_out"]
    tagger.thresholds_ = arrays["thresholds"]
    tagger.contributions_ = arrays["contributions"]
    tagger.keys_ = [row.tobytes() for row in arrays["keys"]]
    tagger.thumbnails_ = {int(row): data.tobytes() for row, data in _below(arrays, "thumbnails/").items()}
    _check(tagger)
    return tagger


def _check(tagger: PictureTagger) -> None:
    """Refuse parts that are right one by one, but are not of one tagger."""
    n_pictures, n_labels, n_views = len(tagger.paths_), len(tagger.label_names_), len(tagger.view_names_)
    shapes = {tagger.Y_.signs.shape, tagger.held_out_.shape, (len(tagger.keys_), len(tagger.model_.classes_))}
    fits = shapes == {(n_pictures, n_labels)} and tagger.thresholds_.shape == (n_labels,)
    fits &= tagger.contributions_.shape == (n_labels, n_views)
    fits &= len(tagger.view_of_) == len(tagger.model_.kernel_names_)
    fits &= all(0 <= view < n_views for view in tagger.view_of_)
    if not fits:
        raise ValueError("its parts do not fit together")


def _below(arrays: Mapping[str, NDArray], prefix: str) -> dict[str, NDArray]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _plain(setting: Setting) -> list[Any]:
    """A setting as JSON holds it; weights that are objects are only named."""
    numbers = [None if number != number else number for number in (setting.score, setting.std)]
    return [setting.method, str(setting.weights), setting.C, *numbers]


def _setting(row: list[Any]) -> Setting:
    method, weights, C, *numbers = row
    score, std = (float("nan") if number is None else float(number) for number in numbers)
    return Setting(str(method), str(weights), float(C), score, std)
