"""Banks of low rank: every kernel as ``Z_j Z_j'`` with a few hundred features a sample, never an n x n matrix."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from .._config import one_blas_thread
from ..views import as_views
from .bank import Bank
from .expansion import CHUNK_BYTES, Expansion
from .factors import Columns, Factors
from .feature_maps import FeatureStep, MappedKernel, Nystrom, Rows, as_landmarks, fit_feature_step
from .fitted import LazyRows, RightRows
from .fitting import Fitting, Track, check_features
from .map_fitting import MapFitting, normalisations
from .missing import check_new, length_factors, present


class LowRankBank(Bank):
    """Features of all kernels side by side, (n, sum of their widths), in single precision by default.

    Products with a kernel cost n times its rank instead of n times n. What is said of the kernels here is said of
    their approximations ``Z_j Z_j'``, the duality gap of a fit included.

    Parameters
    ----------
    Z : array of shape (n_base, width)
    ranges : array of int of shape (n_kernels, 2)
        The columns of every kernel.
    squares : array of shape (n_kernels, n_base)
        Squared lengths of the features.
    maps : tuple of MappedKernel
    landmarks : tuple of RightRows
    missing : {"error", "zero", "rescale"}
    kernels : tuple of tuple of str
        The views of all kernels that the bank was built with.
    """

    #: The features are large, are read by all, and compiled loops over them let other threads run.
    parallel = "threads"

    def __init__(
        self,
        Z: NDArray,
        ranges: NDArray,
        squares: NDArray,
        maps: tuple[MappedKernel, ...],
        landmarks: tuple[RightRows, ...],
        missing: str,
        kernels: tuple[tuple[str, ...], ...],
        *description: Any,
    ) -> None:
        super().__init__(*description)
        self._Z, self._ranges, self._squares = Z, ranges, squares
        self._maps, self._landmarks = maps, landmarks
        self._missing, self._kernels = missing, kernels

    @property
    def nbytes(self) -> int:
        return self.n_samples * self._columns_of(np.arange(self.n_kernels)).width * self.dtype.itemsize

    def combine(self, weights: ArrayLike, out: Any = None) -> Factors:  # type: ignore[override]
        """Weighted sum of the kernels as `Factors`, which costs nothing; `out` is an earlier one of the same bank."""
        weights = self._checked_weights(weights)
        if weights.min() < 0:
            raise ValueError(f"kernels of low rank are added with weights of at least 0, got {weights.min():.6g}")
        if out is not None and (not isinstance(out, Factors) or len(out) != self.n_samples):
            raise ValueError(f"out must be a combined kernel of low rank of {self.n_samples} samples, got {out!r}")
        active = np.flatnonzero(weights)
        combined = Factors(self._columns_of(active), weights[active], self._squares[np.ix_(active, self._ids)])
        if out is None:
            return combined
        vars(out).update(vars(combined))
        return out

    def quadratics(self, V: ArrayLike) -> NDArray:
        columns = self._columns_of(np.arange(self.n_kernels))
        inner = np.square(columns.transposed_product(self._checked_vectors(V))).sum(axis=1)
        return 0.5 * np.array([inner[a:b].sum() for a, b in zip(columns.ends, columns.ends[1:], strict=False)])

    def products(self, V: ArrayLike, samples: ArrayLike) -> NDArray:
        vectors, wanted = self._checked_vectors(V), self._sample_index(samples)
        out = np.empty((self.n_kernels, len(wanted), vectors.shape[1]))
        for j in range(self.n_kernels):
            columns = self._columns_of(np.array([j]))
            out[j] = columns.product(columns.transposed_product(vectors), wanted)
        return out[..., 0] if np.ndim(V) == 1 else out

    def rows(self, samples: ArrayLike) -> NDArray:
        wanted = self._sample_index(samples)
        out = np.empty((self.n_kernels, len(wanted), self.n_samples), self.dtype)
        for j in range(self.n_kernels):
            columns = self._columns_of(np.array([j]))
            out[j] = columns.product(columns.rows(wanted).T).T
        return out

    def diagonals(self) -> NDArray:
        return self._squares[:, self._ids].astype(self.dtype)

    def restrict(self, samples: ArrayLike) -> LowRankBank:
        """The same fitted kernels between some of the samples only; the features are not copied."""
        every = np.arange(self.n_kernels)
        return self._like(every, self._ids[self._sample_index(samples)])

    def select(self, kernels: ArrayLike) -> LowRankBank:
        return self._like(self._kernel_index(kernels), self._ids)

    def expansion(self, kernels: ArrayLike, samples: ArrayLike) -> LowRankExpansion:
        """See `Bank.expansion`. Landmarks of the kernels and features of the samples are kept."""
        chosen, ids = self._kernel_index(kernels), self._ids[self._sample_index(samples)]
        maps, landmarks = _with_own_landmarks([self._maps[j] for j in chosen], self._landmarks)
        rows = [self._Z[ids, first:last] for first, last in self._ranges[chosen]]
        support = np.hstack(rows) if rows else np.empty((len(ids), 0), self.dtype)
        names = tuple(self.names[j] for j in chosen)
        settings = (self._missing, self._kernels, self.dtype, self._columns)
        return LowRankExpansion(names, maps, landmarks, support, *settings)

    def _columns_of(self, kernels: NDArray) -> Columns:
        return Columns(self._Z, self._ids, self._ranges[kernels])

    def _like(self, chosen: NDArray, ids: NDArray) -> LowRankBank:
        names = tuple(self.names[j] for j in chosen)
        maps = tuple(self._maps[j] for j in chosen)
        stored = (self._Z, self._ranges[chosen], self._squares[chosen])
        completed = (self._missing, self._kernels)
        description = (names, (), self._features, ids, self.dtype, self._columns)
        return LowRankBank(*stored, maps, self._landmarks, *completed, *description)


def _with_own_landmarks(
    maps: Sequence[MappedKernel], landmarks: Sequence[RightRows]
) -> tuple[tuple[MappedKernel, ...], tuple[RightRows, ...]]:
    """Maps with the landmarks that they use, and no others."""
    used = sorted({each.map.place for each in maps if isinstance(each.map, Nystrom)})
    renumbered = []
    for each in maps:
        if isinstance(each.map, Nystrom):
            each = replace(each, map=replace(each.map, place=used.index(each.map.place)))
        renumbered.append(each)
    return tuple(renumbered), tuple(landmarks[place] for place in used)


class LowRankExpansion(Expansion):
    """Feature maps of kernels, with the features of the training samples that count; made by `LowRankBank.expansion`.

    Parameters
    ----------
    names : tuple of str
    maps : tuple of MappedKernel
    landmarks : tuple of RightRows
    support : array of shape (n_samples, sum of widths)
        Features of the training samples that count, of all kernels side by side.
    missing, kernels
        As in `LowRankBank`.
    dtype : dtype
        Precision of the kernel values.
    columns : mapping, optional
        The columns of views, for new data that comes as one array.
    """

    def __init__(
        self,
        names: tuple[str, ...],
        maps: tuple[MappedKernel, ...],
        landmarks: tuple[RightRows, ...],
        support: NDArray,
        missing: str,
        kernels: tuple[tuple[str, ...], ...],
        dtype: DTypeLike,
        columns: Mapping[str, Any] | None,
    ) -> None:
        self.names = names
        self.dtype = np.dtype(dtype)
        self.n_samples = len(support)
        self._maps, self._landmarks, self._support = maps, landmarks, support
        self._missing, self._kernels = missing, kernels
        self._columns = columns
        self._ends = np.cumsum([0, *(each.map.width for each in maps)])

    def to_state(self) -> dict[str, Any]:
        return {
            "names": self.names,
            "maps": self._maps,
            "landmarks": tuple(right.rows for right in self._landmarks),
            "support": self._support,
            "missing": self._missing,
            "kernels": self._kernels,
            "dtype": self.dtype.name,
            "columns": self._columns,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> LowRankExpansion:
        landmarks = tuple(as_landmarks(rows, state["dtype"]) for rows in state["landmarks"])
        expansion = cls(**{**state, "landmarks": landmarks})
        fits = all(isinstance(each, MappedKernel) and each.check(landmarks) for each in expansion._maps)
        fits &= len(expansion.names) == len(expansion._maps)
        fits &= expansion._support.ndim == 2 and expansion._support.shape[1] == expansion._ends[-1]
        if not fits:
            raise ValueError("its feature maps and the features of its samples do not fit together")
        return expansion

    def check_of_two_samples(self) -> None:
        """Products of features always are."""

    def on(self, X: Any) -> LowRankExpansion:
        kernels = range(self.n_kernels)
        others = self._read_new(X, kernels)
        features = np.empty((len(others), self._ends[-1]), self.dtype)
        for rows, j, Z in self._mapped(others, kernels):
            features[rows, self._ends[j] : self._ends[j + 1]] = Z
        settings = (self._missing, self._kernels, self.dtype, self._columns)
        return LowRankExpansion(self.names, self._maps, self._landmarks, features, *settings)

    def cross(self, X: Any) -> NDArray:
        kernels = range(self.n_kernels)
        new = self._read_new(X, kernels)
        out = np.empty((self.n_kernels, len(new), self.n_samples), self.dtype)
        with one_blas_thread():
            for rows, j, Z in self._mapped(new, kernels):
                out[j, rows] = Z @ self._of(j).T
        return out

    def _scores(self, X: Any, weights: NDArray, coef: NDArray) -> NDArray:
        active = np.flatnonzero(np.atleast_2d(weights).any(axis=0)).tolist()
        new = self._read_new(X, active)
        scores = np.zeros((len(new), coef.shape[1]))
        inner = {j: (self._of(j).T.astype(np.float64) @ coef) * weights[..., j] for j in active}
        for rows, j, Z in self._mapped(new, active):
            scores[rows] += Z @ inner[j]
        return scores

    def _of(self, j: int) -> NDArray:
        return self._support[:, self._ends[j] : self._ends[j + 1]]

    def _mapped(self, new: Any, kernels: Any) -> Iterator[tuple[slice, int, NDArray]]:
        """Features of new samples, kernel by kernel: (rows, kernel, (n_rows, width))."""
        widest = max((self._maps[j].map.width for j in kernels), default=1)
        factors = length_factors(new, self._kernels) if self._missing == "rescale" else np.ones(len(new))
        here = {j: present(new, tuple(self._maps[j].map.columns)) * factors for j in kernels}
        height = max(1, CHUNK_BYTES // (8 * widest))
        for start in range(0, len(new), height):
            rows = slice(start, min(start + height, len(new)))
            few = Rows(LazyRows(new, rows), rows.stop - start, self._landmarks)
            for j in kernels:
                yield rows, j, self._maps[j].features(few) * here[j][rows, None]

    def _read_new(self, X: Any, kernels: Any) -> Any:
        new = as_views(X, self._columns, incomplete=True)
        check_new(new, self._missing)
        wanted = self._kernels if self._missing == "rescale" else ()
        for view in {view for views in wanted for view in views}:
            self._check_there(new, view, "the number of views that a sample has")
        for j in kernels:
            for view, expected in self._maps[j].map.columns.items():
                self._check_there(new, view, f"kernel {self.names[j]!r}")
                self._check_width(new[view], view, expected)
            self._maps[j].map.check_rows(new)
        return new


def build_low_rank(fitting: Fitting, spec: Any, track: Track) -> LowRankBank:
    """A bank of low rank, as `KernelBank` describes it."""
    n, rank = fitting.n, spec.rank
    if rank > n:
        warnings.warn(
            f"rank={rank} is more than the {n} samples, which have a kernel of at most that rank: {n} is used",
            stacklevel=3,
        )
    check_features(fitting)
    kernels = fitting.views
    landmarks: list[RightRows] = []
    found: dict[int, Any] = {}
    for members, ids in fitting.patterns():
        some = fitting.features if len(ids) == n else fitting.features[ids]
        how = (rank, spec.approximation, spec.landmarks, spec.random_state)
        maps = MapFitting(some, fitting.dtype, fitting.check, *how)
        for j, each in zip(members, maps.run(tuple(fitting.items[j] for j in members)), strict=True):
            if isinstance(each, Nystrom):
                each = replace(each, place=each.place + len(landmarks))
            found[j] = each
        landmarks += maps.places
    widths = [found[j].width for j in range(len(kernels))]
    ends = np.cumsum([0, *widths])
    Z = np.empty((n, ends[-1]), fitting.dtype)
    _fill(Z, ends, [found[j] for j in range(len(kernels))], landmarks, fitting.features, track)
    ranges = np.stack([ends[:-1], ends[1:]], axis=1)
    factors = length_factors(fitting.features, kernels) if spec.missing == "rescale" else np.ones(n)
    steps, squares = [], np.empty((len(kernels), n))
    for j, item in enumerate(fitting.items):
        names = (*normalisations(item), *fitting.normalise)
        ids = np.flatnonzero(present(fitting.features, kernels[j]))
        steps.append(_normalise(Z[:, ends[j] : ends[j + 1]], names, ids, factors, squares[j], item.name))
    mapped = tuple(MappedKernel(found[j], steps[j]) for j in range(len(kernels)))
    completed = (spec.missing, kernels)
    description = (fitting.names, (), None, np.arange(n), fitting.dtype, spec.columns)
    return LowRankBank(Z, ranges, squares, mapped, tuple(landmarks), *completed, *description)


def _fill(Z: NDArray, ends: NDArray, maps: list, landmarks: list[RightRows], features: Any, track: Track) -> None:
    """Write the features of all samples, block by block, so that what kernels of one view share is computed once."""
    height = max(16, CHUNK_BYTES // (8 * max(1, *(each.width for each in maps))))
    for start in track(range(0, len(Z), height)):
        rows = slice(start, min(start + height, len(Z)))
        few = Rows(LazyRows(features, rows), rows.stop - start, landmarks)
        for j, each in enumerate(maps):
            Z[rows, ends[j] : ends[j + 1]] = each.features(few)


def _normalise(
    Z: NDArray, names: tuple[str, ...], ids: NDArray, factors: NDArray, squares: NDArray, name: str
) -> tuple[FeatureStep, ...]:
    """Fit and apply the normalisations of one kernel in place; `ids` are the samples that have its views."""
    steps = []
    _measure(Z, squares)
    if not np.isfinite(squares).all():
        raise ValueError(
            f"kernel {name!r} is not finite for sample {int(np.argmin(np.isfinite(squares)))}: scale the features, or "
            "use dtype='float64' if single precision overflows"
        )
    for step in names:
        mean = Z[ids].mean(axis=0, dtype=np.float64)
        steps.append(fit_feature_step(step, squares[ids], mean, name))
        steps[-1].apply(Z)
        _measure(Z, squares)
    here = np.zeros(len(Z))
    here[ids] = factors[ids]
    if not np.all(here == 1.0):
        Z *= here.astype(Z.dtype)[:, None]
        _measure(Z, squares)
    return tuple(steps)


def _measure(Z: NDArray, squares: NDArray) -> None:
    """Squared lengths of all rows, block by block."""
    for start in range(0, len(Z), 4096):
        block = Z[start : start + 4096].astype(np.float64)
        squares[start : start + 4096] = np.einsum("ij,ij->i", block, block)
