"""What a person looks at after a fit: measures, pictures and text bars of the weights, the certificate over time."""

from __future__ import annotations

from .measures import average_precision, mean_average_precision
from .plots import plot_history, plot_weights, weight_bars

__all__ = ["average_precision", "mean_average_precision", "plot_history", "plot_weights", "weight_bars"]
