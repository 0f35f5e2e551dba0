"""Distances with a matrix: what `Gaussian(metric=...)` starts from when a metric was learned."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .quantities import SQEUCLIDEAN, Quantity

#: Entries of a matrix may differ this much from their mirror images, and eigenvalues be negative, beside the largest.
_ROUNDING = 1e-8
#: Directions with a smaller eigenvalue than this, beside the largest, count nothing.
_NOTHING = 1e-15


@dataclass(frozen=True, eq=False, repr=False)
class LearnedMetric(Quantity):
    """Squared distances ``(x - y)' M (x - y)``. Two of them are equal if their matrices are.

    Parameters
    ----------
    matrix : array of shape (n_features, n_features)
        Symmetric and positive semi-definite; a read-only copy is kept.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.kernels import Gaussian
    >>> kernel = Gaussian(metric=np.diag([4.0, 0.0]))
    >>> kernel, kernel.label
    (Gaussian(metric=LearnedMetric(2 features)), 'Gaussian(metric=learned)')
    >>> kernel == Gaussian(metric=np.diag([4.0, 0.0]))
    True
    """

    matrix: NDArray
    _factor: NDArray = field(init=False)
    _digest: bytes = field(init=False)

    name = "learned metric"
    zero_to_itself = True
    serial = True

    def __post_init__(self) -> None:
        matrix = _checked(self.matrix)
        values, vectors = np.linalg.eigh(matrix)
        if values[0] < -_ROUNDING * max(values[-1], 0.0) or values[-1] < 0:
            raise ValueError(
                f"a metric must be positive semi-definite, but this matrix has the eigenvalue {values[0]:.3g}, with "
                f"{values[-1]:.3g} as the largest"
            )
        kept = values > _NOTHING * len(values) * values[-1]
        factor = vectors[:, kept] * np.sqrt(values[kept]) if kept.any() else np.zeros((len(matrix), 1))
        matrix.setflags(write=False)
        digest = blake2b(matrix.tobytes(), digest_size=8).digest()  # the same in every process, unlike a hash
        for name, value in (("matrix", matrix), ("_factor", factor), ("_digest", digest)):
            object.__setattr__(self, name, value)

    @classmethod
    def of(cls, metric: Any) -> LearnedMetric:
        """From a matrix, from something fitted that has one as ``metric_``, or from another one."""
        if isinstance(metric, cls):
            return metric
        return cls(getattr(metric, "metric_", metric))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LearnedMetric) and np.array_equal(self.matrix, other.matrix)

    def __hash__(self) -> int:
        return hash(self._digest)

    def __repr__(self) -> str:
        return f"LearnedMetric({len(self.matrix)} features)"

    def __str__(self) -> str:
        return "learned"

    def check(self, X: Any, view: str) -> None:
        if X.shape[1] != len(self.matrix):
            raise ValueError(
                f"view {view!r} has {X.shape[1]} columns, but the metric of its kernel is for {len(self.matrix)}: "
                "learn it on the features of this view"
            )

    def prepare(self, X: Any, dtype: DTypeLike) -> Any:
        return SQEUCLIDEAN.prepare(X @ self._factor, dtype)

    def block(self, A: Any, right: Any, out: NDArray) -> None:
        SQEUCLIDEAN.block(A @ self._factor, right, out)

    def diagonal(self, A: Any) -> NDArray:
        return np.zeros(len(A))


def _checked(matrix: Any) -> NDArray:
    """A symmetric, finite copy in double precision."""
    try:
        array = np.array(matrix, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(
            "a metric is 'euclidean', 'cityblock', 'chi2', a positive semi-definite matrix, or a fitted estimator with "
            f"one as metric_ (such as ITML); got {matrix!r}"
        ) from None
    if array.ndim != 2 or array.shape[0] != array.shape[1] or array.size == 0:
        raise ValueError(f"the matrix of a metric must have the shape (n_features, n_features), got {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError("the matrix of a metric must be finite, but has NaN or infinity in it")
    if np.abs(array - array.T).max() > _ROUNDING * np.abs(array).max():
        raise ValueError("the matrix of a metric must be symmetric: pass (M + M.T) / 2 if that is what you mean")
    return 0.5 * (array + array.T)
