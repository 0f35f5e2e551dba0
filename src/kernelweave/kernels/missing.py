"""Samples that lack a view, and how their kernels are completed.

With the presence m_ij of kernel j for sample i (1 if the sample has all views of the kernel, else 0):

zero      K_j(i, k)  becomes  m_ij m_kj K_j(i, k)
rescale   K_j(i, k)  becomes  c_i c_k m_ij m_kj K_j(i, k),      c_i = sqrt(s / sum_j m_ij)   with s kernels

Both are ``D K_j D`` with a diagonal D, so they stay positive semi-definite, and linear in the kernel weights. With
"rescale", what a sample has counts for what it lacks: of two samples, only the views that both have are weighed, and
with equal weights and kernels of unit diagonal every sample has the same length, however many views it has. (To divide
by the number of views two samples have in common would not keep the kernel positive semi-definite.)

What is learned from training data - bandwidths, normalisations - is learned from the samples that have the views.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..views import Views, check_complete

#: What may be done about samples that lack a view.
WAYS = ("error", "zero", "rescale")

_ADVICE = (
    "build the bank with KernelBank(..., missing='zero'), which sets kernels of such samples to zero, or 'rescale', "
    "which also lets the views that they have count more; or leave these samples out"
)


def present(features: Any, views: Sequence[str]) -> NDArray[np.bool_]:
    """Which samples have all of some views: (n,). Those that the features do not name at all count as there."""
    here = np.ones(len(features), dtype=bool)
    if isinstance(features, Views) and not features.complete:
        for view in views:
            if view in features:
                here &= features.present(view)
    return here


def length_factors(features: Any, kernels: Sequence[Sequence[str]]) -> NDArray[np.float64]:
    """The numbers c_i of the module docstring, (n,); `kernels` has the views of each. Zero where nothing is there."""
    count = np.sum([present(features, views) for views in kernels], axis=0, dtype=np.float64)
    return np.sqrt(np.divide(len(kernels), count, out=np.zeros(len(features)), where=count > 0))


def check_training(features: Any, way: str, kernels: Sequence[Sequence[str]]) -> None:
    """Refuse training samples that lack a view if they are to be refused, and those that lack all of them."""
    if not isinstance(features, Views) or features.complete:
        return
    if way == "error":
        check_complete(features, _ADVICE)
    lost = np.flatnonzero(length_factors(features, kernels) == 0)
    if len(lost):
        raise ValueError(f"sample {lost[0]} lacks the views of all kernels, so nothing is known of it: leave it out")


def check_new(features: Any, way: str) -> None:
    """Refuse new samples that lack a view if the bank was built to."""
    if way == "error" and isinstance(features, Views):
        check_complete(features, _ADVICE)
