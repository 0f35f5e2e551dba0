"""How far apart pairs should be: small for similar pairs, large for dissimilar ones, as squared distances."""

from __future__ import annotations

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray
from scipy.spatial.distance import pdist

Array = NDArray[np.float64]

#: All distances are measured up to so many samples; so many random ones where there are more.
ALL_UP_TO = 1000
SAMPLED = 100_000


def percentile_targets(X: Array, percentiles: tuple[float, float], rng: RandomState) -> tuple[float, float]:
    """Two percentiles of the squared distances between the rows of X that differ.

    Parameters
    ----------
    X : ndarray, shape (n_samples, n_features)
    percentiles : (similar, dissimilar)
        Between 0 and 100, in this order.
    rng : RandomState
        Chooses distances where there are too many.

    Returns
    -------
    (similar, dissimilar) : tuple of float

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.metric.targets import percentile_targets
    >>> percentile_targets(np.arange(5.0)[:, None], (10, 100), np.random.RandomState(0))
    (1.0, 16.0)
    """
    low, high = _two(percentiles, "percentiles")
    if not 0 <= low <= high <= 100:
        raise ValueError(
            f"percentiles must be (similar, dissimilar) with 0 <= similar <= dissimilar <= 100, got {percentiles}: "
            "similar pairs are to be nearer than dissimilar ones."
        )
    squared = _squared_distances(X, rng)
    squared = squared[squared > 0]  # a target of zero could not be reached
    if not len(squared):
        raise ValueError("all samples in X are the same, so there is no distance to learn.")
    similar, dissimilar = np.percentile(squared, (low, high))
    return float(similar), float(dissimilar)


def given_targets(targets: tuple[float, float]) -> tuple[float, float]:
    """Targets that the user set, checked."""
    similar, dissimilar = _two(targets, "targets")
    if not 0 < similar <= dissimilar < np.inf:
        raise ValueError(
            f"targets must be the squared distances (similar, dissimilar) with 0 < similar <= dissimilar, got "
            f"{targets}: similar pairs are to be nearer than dissimilar ones."
        )
    return similar, dissimilar


def _two(values: tuple[float, float], name: str) -> tuple[float, float]:
    try:
        first, second = (float(value) for value in values)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be two numbers, (similar, dissimilar); got {values!r}.") from None
    return first, second


def _squared_distances(X: Array, rng: RandomState) -> Array:
    n = len(X)
    if n <= ALL_UP_TO:
        return pdist(X, "sqeuclidean")
    i = rng.randint(n, size=SAMPLED)
    j = (i + rng.randint(1, n, size=SAMPLED)) % n  # never i itself
    blocks = np.array_split(np.arange(SAMPLED), max(1, SAMPLED * X.shape[1] // (1 << 20)))
    return np.concatenate([np.sum((X[i[block]] - X[j[block]]) ** 2, axis=1) for block in blocks])
