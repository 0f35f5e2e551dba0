"""Normalisations and repairs: what is done to a kernel after its element-wise function, with statistics of training
data.

A step is fitted on the packed training kernel and then knows how to change three things the same way: that triangle,
any block between training samples, and a block between new samples and training samples.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from .functions import Kernel
from .triangle import (
    diagonal_positions,
    gather,
    row_sums,
    scale_rows_and_columns,
    subtract_from_rows_and_columns,
)

#: What is left of a kernel after taking its mean away counts as nothing below this share of it (single precision).
NOTHING_LEFT = 1e-6
#: Eigenvalues above this share of the largest one, times minus one, are rounding and left alone by a repair.
ROUNDING = 1e-7


class Step(ABC):
    """A fitted normalisation or repair."""

    #: Whether new samples need their kernel with every training sample, not only with those that count in the model.
    needs_all_training = False
    #: Whether new samples need their kernel with themselves.
    needs_diagonal = False

    @abstractmethod
    def on_triangle(self, packed: NDArray) -> None:
        """Change the packed training kernel in place."""

    @abstractmethod
    def on_training(self, block: NDArray, rows: NDArray, columns: NDArray) -> None:
        """Change ``K[rows][:, columns]`` of the training kernel in place."""

    @abstractmethod
    def on_new(self, block: NDArray, diagonal: NDArray | None, columns: NDArray) -> NDArray | None:
        """Change the kernel of new samples with training samples ``columns`` in place.

        Takes and returns the kernel of the new samples with themselves, or None where no step needs it.
        """

    @property
    def n_samples(self) -> int | None:
        """How many training samples something is known about one by one; None: about none of them."""
        return None

    def at(self, samples: NDArray) -> Step:
        """The step for some training samples, numbered as they are given; all of them if `needs_all_training`."""
        return self


@dataclass(frozen=True)
class Scale(Step):
    """Multiply everything by one number."""

    factor: float

    def on_triangle(self, packed: NDArray) -> None:
        packed *= self.factor

    def on_training(self, block: NDArray, rows: NDArray, columns: NDArray) -> None:
        block *= self.factor

    def on_new(self, block: NDArray, diagonal: NDArray | None, columns: NDArray) -> NDArray | None:
        block *= self.factor
        return None if diagonal is None else diagonal * self.factor


@dataclass(frozen=True, eq=False)
class Spherical(Step):
    """Divide by the norms of both samples."""

    inverse_norms: NDArray
    needs_diagonal = True

    def on_triangle(self, packed: NDArray) -> None:
        scale_rows_and_columns(packed, self.inverse_norms)

    def on_training(self, block: NDArray, rows: NDArray, columns: NDArray) -> None:
        block *= self.inverse_norms[rows][:, None]
        block *= self.inverse_norms[columns]

    def on_new(self, block: NDArray, diagonal: NDArray | None, columns: NDArray) -> NDArray | None:
        assert diagonal is not None
        norms = np.sqrt(np.maximum(diagonal, 0.0))
        inverse = np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)  # a zero sample resembles nothing
        block *= inverse[:, None]
        block *= self.inverse_norms[columns]
        return (norms > 0).astype(np.float64)

    @property
    def n_samples(self) -> int:
        return len(self.inverse_norms)

    def at(self, samples: NDArray) -> Step:
        return Spherical(self.inverse_norms[samples])


@dataclass(frozen=True, eq=False)
class Center(Step):
    """Move the origin of the feature space to the mean of the training samples."""

    means: NDArray
    total: float
    needs_all_training = True

    def on_triangle(self, packed: NDArray) -> None:
        subtract_from_rows_and_columns(packed, self.means, self.total)

    def on_training(self, block: NDArray, rows: NDArray, columns: NDArray) -> None:
        block -= self.means[rows][:, None] - self.total
        block -= self.means[columns]

    def on_new(self, block: NDArray, diagonal: NDArray | None, columns: NDArray) -> NDArray | None:
        means = block.mean(axis=1, dtype=np.float64)
        block -= (means - self.total)[:, None]
        block -= self.means[columns]
        return None if diagonal is None else diagonal - 2 * means + self.total

    @property
    def n_samples(self) -> int:
        return len(self.means)


@dataclass(frozen=True, eq=False)
class Clip(Step):
    """Remove the directions with negative eigenvalues.

    New samples are projected on the remaining directions, as the training samples are: ``K_new (I - U U')``.
    """

    vectors: NDArray
    values: NDArray
    needs_all_training = True

    def on_triangle(self, packed: NDArray) -> None:
        for start in range(0, len(self.vectors), 256):
            stop = min(start + 256, len(self.vectors))
            block = -(self.vectors[start:stop] * self.values) @ self.vectors[:stop].T
            for a, i in enumerate(range(start, stop)):
                packed[i * (i + 1) // 2 : (i + 1) * (i + 2) // 2] += block[a, : i + 1].astype(packed.dtype)

    def on_training(self, block: NDArray, rows: NDArray, columns: NDArray) -> None:
        block -= (self.vectors[rows] * self.values) @ self.vectors[columns].T

    def on_new(self, block: NDArray, diagonal: NDArray | None, columns: NDArray) -> NDArray | None:
        block -= (block @ self.vectors[columns]) @ self.vectors[columns].T
        return diagonal

    @property
    def n_samples(self) -> int:
        return len(self.vectors)


@dataclass(frozen=True)
class Shift(Step):
    """Add a number to the diagonal. Kernels with new samples do not change: a new sample is no training sample."""

    amount: float

    def on_triangle(self, packed: NDArray) -> None:
        n = int((np.sqrt(8 * len(packed) + 1) - 1) / 2)
        packed[diagonal_positions(n)] += self.amount

    def on_training(self, block: NDArray, rows: NDArray, columns: NDArray) -> None:
        block[rows[:, None] == columns] += self.amount

    def on_new(self, block: NDArray, diagonal: NDArray | None, columns: NDArray) -> NDArray | None:
        return None if diagonal is None else diagonal + self.amount


class Summed(Protocol):
    """What normalisations are fitted on: sums over a training kernel, wherever its values are."""

    @property
    def n(self) -> int:
        """Training samples."""

    def diagonal(self) -> NDArray:
        """Its diagonal in double precision, (n,)."""

    def row_sums(self) -> NDArray:
        """Sums of its rows, (n,)."""


class Symmetric(Summed, Protocol):
    """What repairs are fitted on: a training kernel whose values can be had in one place."""

    def dense(self) -> NDArray:
        """All of it in double precision, (n, n)."""


@dataclass(frozen=True)
class Triangle:
    """A packed training kernel."""

    packed: NDArray
    n: int

    def diagonal(self) -> NDArray:
        return self.packed[diagonal_positions(self.n)].astype(np.float64)

    def row_sums(self) -> NDArray:
        sums = np.empty(self.n)
        row_sums(self.packed, sums)
        return sums

    def dense(self) -> NDArray:
        full = np.empty((self.n, self.n))
        gather(self.packed, np.arange(self.n), full)
        return full


def fit_trace(kernel: Summed, name: str) -> Step:
    """Mean of the diagonal becomes 1: ``n K / trace(K)``."""
    return Scale(1.0 / _mean_diagonal(kernel, name, "trace"))


def fit_variance(kernel: Summed, name: str) -> Step:
    """Mean squared distance of the training samples to their mean becomes 1."""
    diagonal = _mean_diagonal(kernel, name, "variance")
    return Scale(1.0 / _something_left(diagonal - kernel.row_sums().sum() / kernel.n**2, diagonal, name, "variance"))


def fit_spherical(kernel: Summed, name: str) -> Step:
    """Every diagonal entry becomes 1: ``K_ik / sqrt(K_ii K_kk)``."""
    diagonal = kernel.diagonal()
    if diagonal.min() <= 0:
        raise ValueError(
            f"kernel {name!r} cannot be given a unit diagonal (spherical): the kernel of sample "
            f"{int(diagonal.argmin())} with itself is {diagonal.min():.6g}; drop that sample or use normalise='trace'"
        )
    return Spherical(1.0 / np.sqrt(diagonal))


def fit_center(kernel: Summed, name: str) -> Step:
    """The training samples get the mean 0 in feature space: ``H K H`` with ``H = I - 1 1' / n``."""
    sums, n = kernel.row_sums(), kernel.n
    diagonal = float(kernel.diagonal().mean())
    _something_left(diagonal - sums.sum() / n**2, diagonal, name, "center")
    return Center(sums / n, float(sums.sum() / n**2))


def fit_clip(kernel: Symmetric, name: str) -> Step:
    """Negative eigenvalues become 0."""
    values, vectors = linalg.eigh(kernel.dense())
    negative = values < -ROUNDING * np.abs(values).max()
    return Clip(np.ascontiguousarray(vectors[:, negative]), values[negative])


def fit_shift(kernel: Symmetric, name: str) -> Step:
    """The most negative eigenvalue becomes 0 by adding its size to the diagonal."""
    smallest = linalg.eigvalsh(kernel.dense(), subset_by_index=[0, 0])[0]
    return Shift(max(0.0, -float(smallest)))


NORMALISATIONS: dict[str, Callable[[Summed, str], Step]] = {
    "trace": fit_trace,
    "spherical": fit_spherical,
    "variance": fit_variance,
    "center": fit_center,
}
REPAIRS: dict[str, Callable[[Symmetric, str], Step]] = {"clip": fit_clip, "shift": fit_shift}


@dataclass(frozen=True, repr=False)
class Normalised(Kernel):
    """A kernel normalised with statistics of the training data.

    Parameters
    ----------
    kernel : Kernel
        What to normalise.
    steps : str or tuple of str
        In the order they are applied: "trace" (mean diagonal 1), "spherical" (every diagonal entry 1), "variance" (mean
        squared distance to the mean 1), "center" (mean 0 in feature space; a model then keeps all training samples,
        because new samples are centred with them).

    Examples
    --------
    >>> from kernelweave.kernels import Linear, Normalised
    >>> Normalised(Linear(), ("center", "trace")).label
    'Normalised(Linear, center, trace)'
    """

    kernel: Kernel
    steps: str | tuple[str, ...] = "trace"

    def __post_init__(self) -> None:
        _check_kernel(self, self.kernel)
        names = normalisation_names(self.steps)
        if "spherical" in names and "clip" in step_names(self.kernel):
            raise ValueError(
                "a clipped kernel cannot be given a unit diagonal, because new samples have no clipped diagonal: "
                "normalise first, Repaired(Normalised(kernel, 'spherical'), 'clip')"
            )

    @property
    def positive(self) -> bool:
        return self.kernel.positive

    @property
    def label(self) -> str:
        return f"Normalised({', '.join((self.kernel.label, *normalisation_names(self.steps)))})"


@dataclass(frozen=True, repr=False)
class Repaired(Kernel):
    """A kernel made positive semi-definite on the training data.

    Parameters
    ----------
    kernel : Kernel
        What to repair.
    method : {"clip", "shift"}
        "clip" sets negative eigenvalues to zero; new samples are projected on the directions that stay, so a model
        keeps all training samples. "shift" adds the size of the most negative eigenvalue to the diagonal; kernels
        between new and training samples stay as they are. Both need one eigendecomposition, of a cost that grows with
        the cube of n.

    Examples
    --------
    >>> from kernelweave.kernels import Precomputed, Repaired
    >>> Repaired(Precomputed(), "shift").label
    'Repaired(Precomputed, shift)'
    """

    kernel: Kernel
    method: str = "clip"

    def __post_init__(self) -> None:
        _check_kernel(self, self.kernel)
        if self.method not in REPAIRS:
            raise ValueError(f"the method of Repaired is one of {list(REPAIRS)}, got {self.method!r}")

    @property
    def label(self) -> str:
        return f"Repaired({self.kernel.label}, {self.method})"


def unwrap(kernel: Kernel) -> tuple[Kernel, tuple[str, ...]]:
    """Take `Normalised` and `Repaired` off: the kernel inside, and the names of the steps in the order they apply."""
    return (unwrap(kernel.kernel)[0] if isinstance(kernel, (Normalised, Repaired)) else kernel), step_names(kernel)


def step_names(kernel: Kernel) -> tuple[str, ...]:
    """Names of the normalisations and repairs around a kernel, in the order they apply."""
    if isinstance(kernel, Normalised):
        return step_names(kernel.kernel) + normalisation_names(kernel.steps)
    if isinstance(kernel, Repaired):
        return (*step_names(kernel.kernel), kernel.method)
    return ()


def normalisation_names(steps: str | Sequence[str] | None) -> tuple[str, ...]:
    """Read the ways users name normalisations: None, one name, or several."""
    names = () if steps is None else (steps,) if isinstance(steps, str) else tuple(steps)
    for name in names:
        if name not in NORMALISATIONS:
            raise ValueError(f"normalisations are {list(NORMALISATIONS)}, or several of them in order; got {name!r}")
    return names


def fit_step(step: str, packed: NDArray, n: int, name: str) -> Step:
    """Fit a step on a packed training kernel and apply it there."""
    fitted = (NORMALISATIONS | REPAIRS)[step](Triangle(packed, n), name)
    fitted.on_triangle(packed)
    return fitted


def _check_kernel(wrapper: Kernel, kernel: object) -> None:
    if not isinstance(kernel, Kernel):
        raise TypeError(f"{type(wrapper).__name__} wraps a kernel, got {kernel!r}")


def _mean_diagonal(kernel: Summed, name: str, step: str) -> float:
    mean = float(kernel.diagonal().mean())
    if not mean > 0:
        raise ValueError(
            f"kernel {name!r} cannot be normalised ({step}): the mean of its diagonal is {mean:.6g}, "
            "so it is zero or not positive semi-definite; leave it out"
        )
    return mean


def _something_left(centred: float, diagonal: float, name: str, step: str) -> float:
    if centred < -NOTHING_LEFT * abs(diagonal):
        raise ValueError(
            f"kernel {name!r} cannot be normalised ({step}): centred, its diagonal has the mean {centred:.6g}: it is "
            "not positive semi-definite; wrap it as kernelweave.kernels.Repaired(kernel, method='clip' or 'shift')"
        )
    if not centred > NOTHING_LEFT * abs(diagonal):
        raise ValueError(
            f"kernel {name!r} cannot be normalised ({step}): it is the same for all pairs of training samples, so "
            "nothing is left once its mean is taken away; leave it out"
        )
    return centred
