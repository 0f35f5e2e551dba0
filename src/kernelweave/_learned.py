"""What estimators learn, by the names of their attributes: what a model file holds, and what is checked in one.

A new estimator is an entry of `LEARNED`. What an attribute may be is a list of forms:

* a type,
* ``(kinds, size, ...)``: an array whose dtype is of one of these kinds (``"f"``, ``"i"``, ...), with the names of its
  sizes, or
* ``(type, size, ...)``: something else that has sizes (see `_SIZES`).

The same name is the same size in all that a model has learned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from sklearn.neighbors import NearestNeighbors

from .ambiguity import BagKernelClassifier, MIClassifier
from .ambiguity.input_output import InputOutputKernelClassifier, InputOutputKernelClustering
from .baselines import MLLS, MLkNN
from .boosting import LPB, CGBoost, LPBeta, LPBoost
from .infinite import InfiniteKernelClassifier
from .kernels import Expansion
from .kernels.low_rank import LowRankExpansion
from .metric import ITML, ITMLS, EuclideanMetric, ITMLPlus, Mahalanobis, PairSet, PartialITMLPlus, WhitenedMetric
from .mkl import MKLClassifier, MKLRegressor
from .ranking import LabelRanker
from .svm_plus import SVMPlus

Forms = Mapping[str, list[Any]]

_BANK: Forms = {
    "kernel_names_": [(tuple, "kernels")],
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
    "_expansion": [(Expansion, "active", "support"), (LowRankExpansion, "active", "support")],
}
_CLASSES: Forms = {"classes_": [("biufSUOMm", "classes")]}
_CLASSIFIER: Forms = {
    **_BANK,
    **_CLASSES,
    "_multilabel": [bool],
    "_never_judged": [("b", "columns")],
    "_platt": [("f", "columns", 2)],
}
_PROGRAM: Forms = {
    **_CLASSES,
    "kernel_names_": [(tuple, "kernels")],
    "weights_": [("f", "kernels"), ("f", "classes", "kernels")],
    "edges_": [("f", "kernels"), ("f", "classes", "kernels")],
    "selected_": [("i", "selected")],
    "C_": [("f", "kernels")],
    "kernel_accuracies_": [("f", "kernels")],
    "nu_": [float],
    "nu_accuracies_": [("f", "nus")],
    "rho_": [float],
    "margins_": [("f", "samples")],
    "sample_weights_": [("f", "samples", "classes")],
    "objective_": [float],
    "gap_": [float],
    "support_": [("i", "support")],
    "dual_coef_": [("f", "selected", "columns", "support")],
    "intercept_": [("f", "selected", "columns")],
    "_expansion": [(Expansion, "selected", "support"), (LowRankExpansion, "selected", "support")],
}
_METRIC: Forms = {
    "targets_": [tuple],
    "pairs_": [(PairSet, "pairs")],
    "distance_": [(Mahalanobis, "inputs")],
    "multipliers_": [("f", "pairs")],
    "objective_": [float],
    "dual_objective_": [float],
    "gap_": [float],
    "violation_": [float],
    "feasible_": [bool],
    "converged_": [bool],
    "n_sweeps_": [int],
    "history_": [("V", "iterations")],
}
_METRIC_PLUS: Forms = {
    **_METRIC,
    "privileged_distance_": [(Mahalanobis, "privileged inputs")],
    "privileged_multipliers_": [("f", "pairs")],
}
_INPUT_OUTPUT: Forms = {
    "kernel_names_": [(tuple, "kernels")],
    "weights_": [("f", "kernels", "candidates"), list],
    "candidates_": [("i", "candidates", "kernels", "samples"), list],
    "objective_": [float, ("f", "columns")],
    "violation_": [float, ("f", "columns")],
    "gap_": [float, ("f", "columns")],
    "n_iter_": [int],
    "n_solves_": [int],
    "history_": [("V", "iterations"), list],
    "support_": [("i", "support")],
    "dual_coef_": [("f", "columns", "kernels", "support")],
    "_expansion": [(Expansion, "kernels", "support")],
}
LEARNED: Mapping[type, Forms] = {
    MKLClassifier: _CLASSIFIER,
    InfiniteKernelClassifier: {
        **_CLASSIFIER,
        "kernels_": [(tuple, "kernels")],
        "certified_": [bool],
        "most_violated_": [list],
    },
    MKLRegressor: {**_BANK, "_one_target": [bool]},
    LabelRanker: {
        **_BANK,
        **_CLASSES,
        "_one_class_each": [bool],
        "_never_judged": [("b", "columns")],
        "_held_out": [("f", "samples", "columns")],
        "thresholds_": [("f", "columns")],
        "n_uninformative_": [int],
    },
    LPBeta: _PROGRAM,
    LPB: _PROGRAM,
    LPBoost: _PROGRAM,
    CGBoost: {
        **_CLASSES,
        "kernel_names_": [(tuple, "kernels")],
        "objective_": [("f", "columns")],
        "dual_objective_": [("f", "columns")],
        "gap_": [float],
        "converged_": [bool],
        "n_iter_": [int],
        "support_": [("i", "support")],
        "dual_coef_": [("f", "kernels", "columns", "support")],
        "intercept_": [("f", "columns")],
        "_expansion": [(Expansion, "kernels", "support")],
    },
    SVMPlus: {
        **_CLASSES,
        "kernel_names_": [(tuple, "kernels")],
        "objective_": [float, ("f", "columns")],
        "gap_": [float],
        "converged_": [bool],
        "n_iter_": [int],
        "support_": [("i", "support")],
        "dual_coef_": [("f", "columns", "support")],
        "intercept_": [("f", "columns")],
        "privileged_coef_": [("f", "columns", "samples")],
        "privileged_intercept_": [("f", "columns")],
        "_expansion": [(Expansion, "kernels", "support")],
    },
    MIClassifier: {
        **_CLASSES,
        "kernel_names_": [(tuple, "kernels")],
        "weights_": [("f", "kernels")],
        "p_": [("f", "samples")],
        "witness_": [("i", "bags")],
        "instance_labels_": [("biufSUOMm", "samples")],
        "positive_fraction_": [float],
        "objective_": [float],
        "gap_": [float],
        "temperature_path_": [("V", "temperatures")],
        "n_iter_": [int],
        "n_svm_solves_": [int],
        "support_": [("i", "support")],
        "dual_coef_": [("f", "columns", "support")],
        "intercept_": [("f", "columns")],
        "_active": [("i", "active")],
        "_expansion": [(Expansion, "active", "support")],
    },
    BagKernelClassifier: {
        **_CLASSES,
        "kernel_names_": [(tuple, "kernels")],
        "weights_": [("f", "kernels")],
        "objective_": [float],
        "gap_": [float],
        "support_": [("i", "support")],
        "dual_coef_": [("f", "columns", "support")],
        "intercept_": [("f", "columns")],
        "_active": [("i", "active")],
        "_expansion": [(Expansion, "active", "instances")],
        "_instance_coef": [("f", "instances")],
    },
    InputOutputKernelClassifier: {
        **_INPUT_OUTPUT,
        **_CLASSES,
        "transduction_": [("biufSUOMm", "samples")],
        "threshold_": [float],
    },
    InputOutputKernelClustering: {**_INPUT_OUTPUT, "labels_": [("i", "samples")]},
    EuclideanMetric: {"distance_": [(Mahalanobis, "inputs")]},
    WhitenedMetric: {"distance_": [(Mahalanobis, "inputs")]},
    ITML: _METRIC,
    ITMLPlus: _METRIC_PLUS,
    PartialITMLPlus: _METRIC_PLUS,
    ITMLS: {**_METRIC, "privileged_model_": [ITML]},
    MLkNN: {
        **_CLASSES,
        "multilabel_": [bool],
        "n_neighbors_": [(int, "neighbours")],
        "prior_": [("f", "columns")],
        "log_odds_": [("f", "columns", "counts")],
        "_carries": [("f", "samples", "columns")],
        "_search": [(NearestNeighbors, "samples", "neighbours", "counts")],
    },
    MLLS: {
        **_CLASSES,
        "multilabel_": [bool],
        "coef_": [("f", "columns", "features")],
        "intercept_": [("f", "columns")],
        "components_": [("f", "components", "features")],
    },
}
#: What scikit-learn's own checks learn where X is one array or a frame.
OF_COLUMNS: Forms = {"n_features_in_": [(int, "inputs")], "feature_names_in_": [("O", "inputs")]}
#: What a fit learns only if it was asked to, or if the data is of a certain form.
OPTIONAL = frozenset({"_platt", "_held_out", "transduction_", "threshold_", *OF_COLUMNS})
#: Attributes that are numbers of things, with the size that says how many there are.
_NUMBERS_OF = {"_active": "kernels", "selected_": "kernels"}
#: The sizes of what is no array. Of some neighbours, the number of those with a label is one of `counts`.
_SIZES: dict[type, Callable[[Any], tuple[int | None, ...]]] = {
    int: lambda number: (number,),
    tuple: lambda several: (len(several),),
    Expansion: lambda expansion: (expansion.n_kernels, expansion.n_samples),
    LowRankExpansion: lambda expansion: (expansion.n_kernels, expansion.n_samples),
    NearestNeighbors: lambda search: (search.n_samples_fit_, search.n_neighbors, search.n_neighbors + 1),
    PairSet: lambda pairs: (len(pairs),),
    Mahalanobis: lambda distance: (_n_features(distance),),
}


def _n_features(distance: Mahalanobis) -> int | None:
    """Features that a distance is of; any number, if it is the Euclidean one.

    It is tried on a row of zeros, which arrays that do not fit together fail.
    """
    parts = [part for part in (distance.first, distance.basis, distance.inner) if part is not None]
    if not parts:
        return None
    try:
        embedded = distance.embed(np.zeros((1, parts[0].shape[0])))
    except Exception as error:  # parts that are not what they should be can offend anywhere
        raise ValueError(f"a distance has arrays that do not fit together: {error}") from error
    if embedded.ndim != 2:
        raise ValueError("a distance has arrays that do not fit together: its map must be a matrix")
    return parts[0].shape[0]


def check_learned(kind: type, learned: Mapping[str, Any]) -> None:
    """Refuse what is not what an estimator of this kind learns: names, types, sizes, and what does not fit together."""
    forms = {**LEARNED[kind], **OF_COLUMNS}
    wrong = sorted((set(learned) - set(forms)) | (set(forms) - OPTIONAL - set(learned)))
    if wrong:
        raise ValueError(f"{kind.__name__} has too much or too little: {wrong}")
    sizes: dict[str, int] = {}
    for name, value in learned.items():
        _check_form(name, value, forms[name], sizes)
    fits = all(
        np.all((learned[name] >= 0) & (learned[name] < sizes[size]))
        for name, size in _NUMBERS_OF.items()
        if name in learned
    )
    if "classes" in sizes:
        # Two classes are one column, but not where labels are ranked.
        fits &= sizes["columns"] == sizes["classes"] or (sizes["columns"], sizes["classes"]) == (1, 2)
    if not fits:
        raise ValueError(f"what {kind.__name__} has learned does not fit together")


def _check_form(name: str, value: Any, forms: list[Any], sizes: dict[str, int]) -> None:
    """Refuse a value of no known form; `sizes` are those seen so far, and are added to."""
    if type(value) in forms:
        return
    if isinstance(value, np.ndarray):
        given, what = value.shape, f"an array of {value.dtype}"
        shapes = [form for form in forms if isinstance(form, tuple) and isinstance(form[0], str)]
        names = [form[1:] for form in shapes if value.dtype.kind in form[0]]
    else:
        names = [form[1:] for form in forms if isinstance(form, tuple) and form[0] is type(value)]
        if not names:
            raise ValueError(f"{name} is of type {type(value).__name__}")
        given, what = _SIZES[type(value)](value), f"a {type(value).__name__}"
    for wanted in names:
        expected = [size if isinstance(size, int) else sizes.get(size) for size in wanted]
        if len(wanted) == len(given) and all(e is None or g in (None, e) for e, g in zip(expected, given, strict=True)):
            known = zip(wanted, given, strict=True)
            sizes.update({size: g for size, g in known if isinstance(size, str) and g is not None})
            return
    raise ValueError(f"{name} is {what} of shape {given}, which does not fit the rest")
