"""Feature maps: functions z of one sample with ``z(x) . z(y)`` equal or close to a kernel, and what normalises them.

====================  ================================================================  ============================
map                   of                                                                error
====================  ================================================================  ============================
`Coordinates`         `Linear`                                                          none
`Homogeneous`         `AdditiveChiSquared`, `HistogramIntersection`                     falls with columns a feature
`Fourier`             `Gaussian`, `Laplacian`, `ChiSquared`                             about 1 / sqrt(width)
`Nystrom`             every kernel                                                      falls as its eigenvalues do
====================  ================================================================  ============================

Normalisations are those of `steps.py`, of the features instead of the kernel: multiples, unit length, mean zero.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .fitted import NewBlocks, Node, RightRows
from .quantities import CHI2


class Rows:
    """Some samples, and their kernels with landmarks; what several kernels need is computed once.

    Parameters
    ----------
    views : mapping of str to array (n, d)
    n : int
    landmarks : sequence of RightRows
        Sets of landmarks; a map says which of them it uses.
    """

    def __init__(self, views: Any, n: int, landmarks: Sequence[RightRows]) -> None:
        self._views = views
        self._landmarks = landmarks
        self._blocks: dict[int, NewBlocks] = {}
        self.n = n

    def __getitem__(self, view: str) -> NDArray:
        return self._views[view]

    def kernel(self, place: int, node: Node) -> NDArray:
        """A kernel between these samples and a set of landmarks: (n, n_landmarks)."""
        if place not in self._blocks:
            right = self._landmarks[place]
            columns = np.arange(n_landmarks(right))
            self._blocks[place] = NewBlocks(self._views, self.n, columns, right)
        return self._blocks[place].kernel(node)


def n_landmarks(landmarks: RightRows) -> int:
    """How many there are in a set of landmarks."""
    return len(next(iter(landmarks.rows.values())))


class FeatureMap(ABC):
    """A function of one sample into the real numbers, `width` of them."""

    @property
    @abstractmethod
    def width(self) -> int:
        """Number of features."""

    @property
    @abstractmethod
    def columns(self) -> dict[str, int]:
        """The views it reads, and how many columns each has."""

    @abstractmethod
    def features(self, rows: Rows) -> NDArray:
        """Features of some samples: (rows.n, width)."""

    def check_rows(self, views: Any) -> None:  # noqa: B027 (most maps are defined for all rows)
        """Refuse samples that the kernel is not defined for."""

    def check(self, landmarks: Sequence[RightRows]) -> bool:
        """Whether its pieces fit together and to the landmarks; only what comes from a file does not."""
        return True


@dataclass(frozen=True, eq=False)
class Coordinates(FeatureMap):
    """The features as they are: the exact map of the linear kernel."""

    view: str
    n_columns: int

    @property
    def width(self) -> int:
        return self.n_columns

    @property
    def columns(self) -> dict[str, int]:
        return {self.view: self.n_columns}

    def features(self, rows: Rows) -> NDArray:
        return np.asarray(rows[self.view], dtype=np.float64)


#: Spectra of the kernels of one non-negative feature that are ``sqrt(x y)`` times a function of ``log(x / y)``.
SPECTRA: dict[str, Callable[[NDArray], NDArray]] = {
    "chi2": lambda frequency: 1.0 / np.cosh(np.pi * frequency),  # 2 x y / (x + y)
    "intersection": lambda frequency: 2.0 / (np.pi * (1.0 + 4.0 * frequency**2)),  # min(x, y)
}


@dataclass(frozen=True, eq=False)
class Homogeneous(FeatureMap):
    """The explicit map of additive kernels (Vedaldi and Zisserman): their spectrum, sampled at multiples of `step`.

    A sum over features of ``sqrt(x y) integral s(w) cos(w log(x / y)) dw`` with the spectrum s; the integral becomes a
    sum over 0, step, ..., order * step.
    """

    view: str
    n_columns: int
    spectrum: str
    order: int
    step: float

    @property
    def width(self) -> int:
        return self.n_columns * (2 * self.order + 1)

    @property
    def columns(self) -> dict[str, int]:
        return {self.view: self.n_columns}

    def features(self, rows: Rows) -> NDArray:
        X = np.asarray(rows[self.view], dtype=np.float64)
        n, d = X.shape
        out = np.empty((n, 2 * self.order + 1, d))
        logarithm = self.step * np.log(np.where(X > 0, X, 1.0))  # where it is not, the root in front is zero
        root = np.sqrt(X * self.step)
        strength = np.sqrt(SPECTRA[self.spectrum](self.step * np.arange(self.order + 1)))
        np.multiply(root, strength[0], out=out[:, 0])
        for k in range(1, self.order + 1):
            scaled = np.sqrt(2.0) * strength[k] * root
            np.multiply(scaled, np.cos(k * logarithm), out=out[:, 2 * k - 1])
            np.multiply(scaled, np.sin(k * logarithm), out=out[:, 2 * k])
        return out.reshape(n, -1)

    def check_rows(self, views: Any) -> None:
        CHI2.check(views[self.view], self.view)

    def check(self, landmarks: Sequence[RightRows]) -> bool:
        return self.spectrum in SPECTRA and self.order >= 0 and self.step > 0


@dataclass(frozen=True, eq=False)
class Fourier(FeatureMap):
    """Random Fourier features (Rahimi and Recht) of the features of another map: a cosine and a sine a frequency.

    The kernel of a sample with itself is exactly 1.
    """

    inner: FeatureMap
    frequencies: NDArray

    @property
    def width(self) -> int:
        return 2 * self.frequencies.shape[1]

    @property
    def columns(self) -> dict[str, int]:
        return self.inner.columns

    def features(self, rows: Rows) -> NDArray:
        angles = self.inner.features(rows) @ self.frequencies
        return np.hstack([np.cos(angles), np.sin(angles)]) / np.sqrt(max(self.frequencies.shape[1], 1))

    def check_rows(self, views: Any) -> None:
        self.inner.check_rows(views)

    def check(self, landmarks: Sequence[RightRows]) -> bool:
        fits = isinstance(self.inner, (Coordinates, Homogeneous)) and self.inner.check(landmarks)
        return fits and self.frequencies.shape[0] == self.inner.width


@dataclass(frozen=True, eq=False)
class Nystrom(FeatureMap):
    """``k(x, landmarks) W^-1/2`` with the kernel W between the landmarks: exact between samples that are landmarks.

    Attributes
    ----------
    place : int
        Which set of landmarks.
    node : Node
        The fitted kernel; where it knows something about single samples, these are the landmarks.
    projection : array of shape (n_landmarks, width)
        Eigenvectors of W over roots of eigenvalues; those that rounding could have made are left out.
    n_columns : dict of str to int
        Columns of the views of the kernel.
    """

    place: int
    node: Node
    projection: NDArray
    n_columns: dict[str, int]

    @property
    def width(self) -> int:
        return self.projection.shape[1]

    @property
    def columns(self) -> dict[str, int]:
        return self.n_columns

    def features(self, rows: Rows) -> NDArray:
        return rows.kernel(self.place, self.node).astype(np.float64) @ self.projection

    def check_rows(self, views: Any) -> None:
        for leaf in self.node.leaves:
            leaf.kernel.quantity.check(views[leaf.view], leaf.view)

    def check(self, landmarks: Sequence[RightRows]) -> bool:
        if not 0 <= self.place < len(landmarks):
            return False
        rows = landmarks[self.place].rows
        fits = all(view in rows and rows[view].shape[1] == d for view, d in self.n_columns.items())
        return fits and self.projection.shape[0] == n_landmarks(landmarks[self.place])


# -- normalisations of features ---------------------------------------------------------------------------------------


class FeatureStep(ABC):
    """What a normalisation does to the features Z (n, width) of samples, in place."""

    @abstractmethod
    def apply(self, Z: NDArray) -> None: ...


@dataclass(frozen=True)
class Stretch(FeatureStep):
    """Multiply all features by one number."""

    factor: float

    def apply(self, Z: NDArray) -> None:
        Z *= Z.dtype.type(self.factor)


@dataclass(frozen=True)
class UnitLength(FeatureStep):
    """Divide every sample by its length; a sample of length zero stays zero, and resembles nothing."""

    def apply(self, Z: NDArray) -> None:
        lengths = np.sqrt(np.einsum("ij,ij->i", Z, Z, dtype=np.float64))
        Z *= np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0).astype(Z.dtype)[:, None]


@dataclass(frozen=True, eq=False)
class Origin(FeatureStep):
    """Move the origin to the mean of the training samples."""

    mean: NDArray

    def apply(self, Z: NDArray) -> None:
        Z -= self.mean.astype(Z.dtype)


#: What is left of a kernel after taking its mean away counts as nothing below this share of it.
NOTHING_LEFT = 1e-6


def fit_feature_step(step: str, squares: NDArray, mean: NDArray, name: str) -> FeatureStep:
    """A normalisation from the squared lengths (n,) of the training samples and their mean (width,)."""
    diagonal = float(squares.mean()) if len(squares) else 0.0
    left = diagonal - float(mean @ mean)
    if step == "spherical":
        if squares.min() <= 0:
            raise ValueError(
                f"kernel {name!r} cannot be given a unit diagonal (spherical): the kernel of sample "
                f"{int(squares.argmin())} with itself is 0; drop that sample or use normalise='trace'"
            )
        return UnitLength()
    if not diagonal > 0:
        raise ValueError(f"kernel {name!r} cannot be normalised ({step}): it is zero; leave it out")
    if step == "trace":
        return Stretch(1.0 / np.sqrt(diagonal))
    if not left > NOTHING_LEFT * diagonal:
        raise ValueError(
            f"kernel {name!r} cannot be normalised ({step}): it is the same for all pairs of training samples, so "
            "nothing is left once its mean is taken away; leave it out"
        )
    return Stretch(1.0 / np.sqrt(left)) if step == "variance" else Origin(mean)


@dataclass(frozen=True, eq=False)
class MappedKernel:
    """One kernel of a low-rank bank: its map and its normalisations."""

    map: FeatureMap
    steps: tuple[FeatureStep, ...]

    def features(self, rows: Rows) -> NDArray:
        """Features of some samples, normalised: (rows.n, width), double precision."""
        Z = self.map.features(rows)
        if self.steps:
            Z = Z.copy()  # coordinates are the user's own array
        for step in self.steps:
            step.apply(Z)
        return Z

    def check(self, landmarks: Sequence[RightRows]) -> bool:
        """See `FeatureMap.check`."""
        shifts = [step.mean for step in self.steps if isinstance(step, Origin)]
        return self.map.check(landmarks) and all(mean.shape == (self.map.width,) for mean in shifts)


def as_landmarks(rows: Mapping[str, NDArray], dtype: Any) -> RightRows:
    """Landmarks as the right-hand side of blocks of kernel values."""
    return RightRows(dict(rows), dtype)
