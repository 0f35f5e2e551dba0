"""Models in files: arrays and JSON in one zip file, opened without running code.

A file holds what a fitted estimator needs to predict and to be inspected and fitted again, and no more: of the training
data, only the samples that count in the model. :func:`estimator_state` and :func:`estimator_from_state` are for files
that hold an estimator among other things.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from . import __version__
from ._archive import MAX_BYTES, read_archive, write_archive
from ._learned import LEARNED, OF_COLUMNS, check_learned
from ._packing import Packer, unpack

#: What a file that holds one estimator and nothing else says it is.
KIND = "estimator"
#: What stands in the place of an estimator that is part of another one.
_ESTIMATOR = "estimator"


def save(model: BaseEstimator, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator to a file, whole or not at all.

    Parameters
    ----------
    model : MKLClassifier, MKLRegressor, LabelRanker, InfiniteKernelClassifier, LPBeta, or another fitted estimator
        Predictions of what :func:`load` gives back are the same to the last bit. Numbers of numpy among its parameters
        come back as Python's, paths as text. A `random_state` that is a generator is not kept (None comes back): only
        the next fit would draw from it.
    path : path
        An existing file is replaced.

    Raises
    ------
    TypeError
        If the model holds what a file without code cannot: functions (``FromFunction``, ``ParametricFamily``,
        ``SampledFamily``), classes of your own, splitters given as ``cv``. A parameter that only another fit would
        need, such as a `SampledFamily`, can be set to its default before saving.

    Examples
    --------
    >>> import tempfile
    >>> import kernelweave as kw
    >>> from kernelweave.model_files import load, save
    >>> views, y = kw.datasets.make_views(n_samples=60, random_state=0)
    >>> model = kw.MKLClassifier().fit(views, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(model, f"{folder}/model.kw")
    ...     again = load(f"{folder}/model.kw")
    >>> bool((again.decision_function(views) == model.decision_function(views)).all())
    True
    """
    write_archive(path, KIND, *estimator_state(model))


def load(path: str | os.PathLike[str], max_bytes: int = MAX_BYTES) -> Any:
    """Read an estimator that :func:`save` wrote. No code from the file is run.

    Parameters
    ----------
    path : path
    max_bytes : int, default=4 GiB
        Refuse a file that says it holds more than this.

    Returns
    -------
    The fitted estimator.

    Raises
    ------
    ValueError
        If the file is damaged, is no model file, or was written in a newer format. The message says which.
    """
    archive = read_archive(path, max_bytes)
    if archive.kind != KIND:
        raise ValueError(f"{os.fspath(path)} holds a {archive.kind!r}, not an estimator alone: open it as that")
    try:
        return estimator_from_state(archive.content, archive.arrays)
    except ValueError as error:
        raise ValueError(
            f"{os.fspath(path)}, written by kernelweave {archive.written_by}, holds no estimator that this version "
            f"({__version__}) can make: {error}"
        ) from error


def estimator_state(model: BaseEstimator, prefix: str = "") -> tuple[dict[str, Any], dict[str, NDArray]]:
    """A fitted estimator as plain data and arrays, for a file that holds more than it.

    Parameters
    ----------
    model : as in :func:`save`
    prefix : str
        What the names of the arrays begin with, such as ``"ranker/"``.

    Returns
    -------
    state : dict
        What JSON can hold.
    arrays : dict of str to array
    """
    name, learned = type(model).__name__, LEARNED.get(type(model))
    if learned is None:
        raise TypeError(_no_estimator(model))
    check_is_fitted(model)
    parameters = model.get_params(deep=False)
    attributes = {key: value for key, value in vars(model).items() if key not in parameters}
    strange = sorted(set(attributes) - set(learned) - set(OF_COLUMNS))
    if strange:
        raise TypeError(f"{name} has the attribute(s) {strange}, which a model file does not keep: delete them first")
    packer = Packer(prefix)
    state: dict[str, Any] = {"is": name, "parameters": {}, "learned": {}}
    for part, values in (("parameters", parameters), ("learned", attributes)):
        for key, value in values.items():
            try:
                if type(value) in LEARNED:
                    inner, arrays = estimator_state(value, f"{prefix}{key}/")
                    state[part][key] = {"is": _ESTIMATOR, "of": inner}
                    packer.arrays.update(arrays)
                else:
                    state[part][key] = packer.pack(value, key)
            except TypeError as error:
                raise TypeError(f"{name} cannot be kept in a file because of its {key}: {error}") from None
    return state, packer.arrays


def estimator_from_state(state: Mapping[str, Any], arrays: Mapping[str, NDArray]) -> Any:
    """The estimator that :func:`estimator_state` was given.

    Parameters
    ----------
    state : mapping
    arrays : mapping of str to array
        Others among them do no harm.

    Raises
    ------
    ValueError
        If they do not describe an estimator.
    """
    estimators = {kind.__name__: kind for kind in LEARNED}
    name = state.get("is")
    if not isinstance(name, str) or name not in estimators:
        raise ValueError(f"unknown estimator {name!r}; known are {', '.join(estimators)}")
    kind = estimators[name]
    parameters, learned = _unpacked(state, "parameters", arrays), _unpacked(state, "learned", arrays)
    try:
        model = kind(**parameters)
    except TypeError as error:
        raise ValueError(f"{name} cannot be made of its parameters: {error}") from error
    check_learned(kind, learned)
    vars(model).update(learned)
    return model


def _unpacked(state: Mapping[str, Any], part: str, arrays: Mapping[str, NDArray]) -> dict[str, Any]:
    packed = state.get(part)
    if not isinstance(packed, dict):
        raise ValueError(f"{part} are missing")
    try:
        return {
            key: estimator_from_state(value["of"], arrays)
            if isinstance(value, dict) and value.get("is") == _ESTIMATOR and isinstance(value.get("of"), dict)
            else unpack(value, arrays)
            for key, value in packed.items()
        }
    except RecursionError:
        raise ValueError(f"{part} are nested without end") from None


def _no_estimator(model: Any) -> str:
    name = type(model).__name__
    base = next((kind.__name__ for kind in LEARNED if isinstance(model, kind)), None)
    if base is not None:
        return f"{name} is a class of your own, made from {base}: a model file has no code; keep it with joblib.dump"
    known = ", ".join(kind.__name__ for kind in LEARNED)
    return (
        f"a model file holds one of {known}, got {name}: of a search save its best_estimator_, of a pipeline its last "
        "step; keep others with joblib.dump"
    )
