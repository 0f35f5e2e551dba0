"""What a person looks at after a fit: measures, pictures and text bars of the weights, the certificate over time."""

from __future__ import annotations

from .formulas import MEASURES, Measured
from .measures import (
    auc,
    average_precision,
    coverage,
    f1_at,
    lrap,
    mean_average_precision,
    measure,
    one_error,
    precision_at,
    ranking_loss,
    recall_at,
)
from .pairs import (
    Verification,
    cumulative_match,
    one_gallery_split,
    plot_cumulative_match,
    plot_distances,
    privileged_ratio_curve,
    verification,
)
from .plots import plot_history, plot_weights, weight_bars
from .protocol import RemovedLabels, most_frequent_labels, remove_labels, rows_with_at_least
from .scorers import scorer
from .splits import MultilabelStratifiedKFold, MultilabelStratifiedShuffleSplit, RepeatedMultilabelStratifiedKFold
from .summary import DEFAULT_MEASURES, Evaluation, evaluate, subpopulations
from .tables import Table, summary_table

__all__ = [
    "DEFAULT_MEASURES",
    "MEASURES",
    "Evaluation",
    "Measured",
    "MultilabelStratifiedKFold",
    "MultilabelStratifiedShuffleSplit",
    "RemovedLabels",
    "RepeatedMultilabelStratifiedKFold",
    "Table",
    "Verification",
    "auc",
    "average_precision",
    "coverage",
    "cumulative_match",
    "evaluate",
    "f1_at",
    "lrap",
    "mean_average_precision",
    "measure",
    "most_frequent_labels",
    "one_error",
    "one_gallery_split",
    "plot_cumulative_match",
    "plot_distances",
    "plot_history",
    "plot_weights",
    "precision_at",
    "privileged_ratio_curve",
    "ranking_loss",
    "recall_at",
    "remove_labels",
    "rows_with_at_least",
    "scorer",
    "subpopulations",
    "summary_table",
    "verification",
    "weight_bars",
]
