"""Models in files: arrays and JSON in one zip file, opened without running code.

A file holds what a fitted estimator needs to predict and to be inspected and fitted again, and no more: of the training
data, only the samples that count in the model. :func:`estimator_state` and :func:`estimator_from_state` are for files
that hold an estimator among other things.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.neighbors import NearestNeighbors
from sklearn.utils.validation import check_is_fitted

from . import __version__
from ._archive import MAX_BYTES, read_archive, write_archive
from ._estimator import BankEstimator
from ._packing import Packer, unpack
from .baselines import MLLS, MLkNN
from .kernels import Expansion
from .mkl import MKLClassifier, MKLRegressor
from .ranking import LabelRanker

#: What a file that holds one estimator and nothing else says it is.
KIND = "estimator"

# What the estimators learn. A value is of one of the types given, or an array: its kinds, then the names of its sizes,
# where the same name is the same size in all arrays of a model.
_BANK: dict[str, list[Any]] = {
    "kernel_names_": [tuple],
    "weights_": [("f", "kernels"), ("f", "columns", "kernels")],
    "support_": [("i", "support")],
    "dual_coef_": [("f", "columns", "support")],
    "intercept_": [("f", "columns")],
    "gap_": [float, int],
    "converged_": [bool],
    "n_iter_": [int],
    "n_svm_solves_": [int],
    "kernel_adds_": [int],
    "objective_": [float, int, ("f", "problems")],
    "history_": [("V", "iterations"), list],
    "_active": [("i", "active")],
    "_expansion": [Expansion],
}
_CLASSES: dict[str, list[Any]] = {"classes_": [("biufSUOMm", "classes")]}
_LEARNED: dict[type, dict[str, list[Any]]] = {
    MKLClassifier: _BANK
    | _CLASSES
    | {"_multilabel": [bool], "_never_judged": [("b", "columns")], "_platt": [("f", "columns", 2)]},
    MKLRegressor: _BANK | {"_one_target": [bool]},
    LabelRanker: _BANK
    | _CLASSES
    | {
        "_one_class_each": [bool],
        "_never_judged": [("b", "columns")],
        "_held_out": [("f", "samples", "columns")],
        "thresholds_": [("f", "columns")],
        "n_uninformative_": [int],
    },
    MLkNN: _CLASSES
    | {
        "multilabel_": [bool],
        "n_neighbors_": [int],
        "prior_": [("f", "columns")],
        "log_odds_": [("f", "columns", "counts")],
        "_carries": [("f", "samples", "columns")],
        "_search": [NearestNeighbors],
    },
    MLLS: _CLASSES
    | {
        "multilabel_": [bool],
        "coef_": [("f", "columns", "features")],
        "intercept_": [("f", "columns")],
        "components_": [("f", "components", "features")],
    },
}
#: What scikit-learn's own checks learn where X is one array or a frame.
_OF_COLUMNS: dict[str, list[Any]] = {"n_features_in_": [int], "feature_names_in_": [("O", "inputs")]}
#: What a fit learns only if it was asked to, or if the data is of a certain form.
_OPTIONAL = frozenset({"_platt", "_held_out", *_OF_COLUMNS})


def save(model: BaseEstimator, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator to a file, whole or not at all.

    Parameters
    ----------
    model : MKLClassifier, MKLRegressor, LabelRanker, MLkNN or MLLS
        Predictions of what :func:`load` gives back are the same to the last bit. Numbers of numpy among its parameters
        come back as Python's, paths as text. A `random_state` that is a generator is not kept (None comes back): only
        the next fit would draw from it.
    path : path
        An existing file is replaced.

    Raises
    ------
    TypeError
        If the model holds what a file without code cannot: functions (``FromFunction``), classes of your own.

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
    name, learned = type(model).__name__, _LEARNED.get(type(model))
    if learned is None:
        raise TypeError(_no_estimator(model))
    check_is_fitted(model)
    parameters = model.get_params(deep=False)
    attributes = {key: value for key, value in vars(model).items() if key not in parameters}
    strange = sorted(set(attributes) - set(learned) - set(_OF_COLUMNS))
    if strange:
        raise TypeError(f"{name} has the attribute(s) {strange}, which a model file does not keep: delete them first")
    packer = Packer(prefix)
    state: dict[str, Any] = {"is": name, "parameters": {}, "learned": {}}
    for part, values in (("parameters", parameters), ("learned", attributes)):
        for key, value in values.items():
            try:
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
    estimators = {kind.__name__: kind for kind in _LEARNED}
    name = state.get("is")
    if not isinstance(name, str) or name not in estimators:
        raise ValueError(f"unknown estimator {name!r}; known are {', '.join(estimators)}")
    kind = estimators[name]
    parameters, learned = _unpacked(state, "parameters", arrays), _unpacked(state, "learned", arrays)
    try:
        model = kind(**parameters)
    except TypeError as error:
        raise ValueError(f"{name} cannot be made of its parameters: {error}") from error
    expected = _LEARNED[kind] | _OF_COLUMNS
    wrong = sorted((set(learned) - set(expected)) | (set(_LEARNED[kind]) - _OPTIONAL - set(learned)))
    if wrong:
        raise ValueError(f"{name} has too much or too little: {wrong}")
    sizes: dict[str, int] = {}
    for key, value in learned.items():
        _check(key, value, expected[key], sizes)
    vars(model).update(learned)
    _check_together(model, sizes)
    return model


def _unpacked(state: Mapping[str, Any], part: str, arrays: Mapping[str, NDArray]) -> dict[str, Any]:
    packed = state.get(part)
    if not isinstance(packed, dict):
        raise ValueError(f"{part} are missing")
    try:
        return {key: unpack(value, arrays) for key, value in packed.items()}
    except RecursionError:
        raise ValueError(f"{part} are nested without end") from None


def _check(key: str, value: Any, allowed: list[Any], sizes: dict[str, int]) -> None:
    """Refuse a learned value of the wrong type or shape; ``sizes`` are those seen so far, and are added to."""
    if not isinstance(value, np.ndarray):
        if type(value) not in allowed:
            raise ValueError(f"{key} is of type {type(value).__name__}")
        return
    for kinds, *names in (shape for shape in allowed if isinstance(shape, tuple)):
        expected = [name if isinstance(name, int) else sizes.get(name) for name in names]
        fits = all(size in (None, given) for size, given in zip(expected, value.shape, strict=False))
        if value.dtype.kind in kinds and value.ndim == len(names) and fits:
            sizes.update({name: size for name, size in zip(names, value.shape, strict=True) if isinstance(name, str)})
            return
    raise ValueError(f"{key} is an array of {value.dtype} of shape {value.shape}, which does not fit the rest")


def _check_together(model: Any, sizes: dict[str, int]) -> None:
    """Refuse learned values that are right one by one, but are not of one model."""
    columns = sizes["columns"]
    fits = True
    if "classes" in sizes:
        # Two classes are one column, but not where labels are ranked.
        fits = columns == sizes["classes"] or (columns == 1 and sizes["classes"] == 2)
    if isinstance(model, MLkNN):
        search = model._search
        fits &= search.n_samples_fit_ == sizes["samples"]
        fits &= search.n_neighbors == model.n_neighbors_ == sizes["counts"] - 1
    elif isinstance(model, BankEstimator):
        fits &= len(model.kernel_names_) == sizes["kernels"]
        fits &= (model._expansion.n_kernels, model._expansion.n_samples) == (sizes["active"], sizes["support"])
        fits &= bool(np.all((model._active >= 0) & (model._active < sizes["kernels"])))
    if not fits:
        raise ValueError(f"what {type(model).__name__} has learned does not fit together")


def _no_estimator(model: Any) -> str:
    name = type(model).__name__
    base = next((kind.__name__ for kind in _LEARNED if isinstance(model, kind)), None)
    if base is not None:
        return f"{name} is a class of your own, made from {base}: a model file has no code; keep it with joblib.dump"
    known = ", ".join(kind.__name__ for kind in _LEARNED)
    return (
        f"a model file holds one of {known}, got {name}: of a search save its best_estimator_, of a pipeline its last "
        "step; keep others with joblib.dump"
    )
