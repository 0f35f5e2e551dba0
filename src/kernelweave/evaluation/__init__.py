"""What a person looks at after a fit: pictures and text bars of the weights, the certificate over time."""

from __future__ import annotations

from .plots import plot_history, plot_weights, weight_bars

__all__ = ["plot_history", "plot_weights", "weight_bars"]
