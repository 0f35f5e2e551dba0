"""Data to try things on: views generated with a known answer, and handwritten digits seen in several ways."""

from __future__ import annotations

from .digits import digits_views
from .generated import make_regression_views, make_tagged_views, make_views

__all__ = ["digits_views", "make_regression_views", "make_tagged_views", "make_views"]
