"""Weights computed once from the data, before the machine is trained: the cheap baselines.

These sets know their point only after `resolve`, which returns `Fixed` weights.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from ..kernels.operators import Operator, part_of, product_of
from .base import Unsupported, Vector, WeightSet
from .fixed import Fixed

if TYPE_CHECKING:
    from ..kernels.bank import Bank

#: Bytes of the largest block of kernel rows that `Alignment` holds at once.
BLOCK_BYTES = 64 * 2**20


class Chosen(WeightSet):
    """A set that must be resolved first; any other use is refused."""

    @abstractmethod
    def resolve(self, bank: Any, machine: Any, Y: NDArray[np.float64]) -> Fixed: ...

    def start(self, n_kernels: int) -> Vector:
        raise self._not_resolved()

    def respond(self, h: Vector) -> Vector:
        raise self._not_resolved()

    def feasible(self, b: Vector, tol: float = 1e-9) -> bool:
        raise self._not_resolved()

    def _not_resolved(self) -> Unsupported:
        return Unsupported(f"{self!r} needs the data first: use the result of resolve(bank, machine, Y).")


@dataclass(frozen=True)
class Best(Chosen):
    """The one kernel with the best cross-validated score, with weight 1; the first of equals.

    The score is the machine's own ``merit``: balanced accuracy of a classifier, the negative mean squared error of a
    regressor, the share of ordered label pairs of a ranker; over several columns, their mean. Kernels are taken one at
    a time, so only one n x n array is held.

    Parameters
    ----------
    cv : int, default=3
        Folds, at least 2; fewer are used when the rarer class of a single column has fewer samples.
    random_state : int, default=0
        Seed of the shuffle before the folds are cut.

    Examples
    --------
    >>> from kernelweave.weights import Best
    >>> Best(cv=5)
    Best(cv=5, random_state=0)
    """

    cv: int = 3
    random_state: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.cv, Integral) or isinstance(self.cv, bool) or self.cv < 2:
            raise ValueError(f"Best: cv must be a number of folds, at least 2, got {self.cv!r}.")

    def resolve(self, bank: Bank, machine: Any, Y: NDArray[np.float64]) -> Fixed:
        """Solve ``machine`` on each kernel and fold; Y has shape (n_samples, n_columns)."""
        stratified = machine.kind == "classifier" and Y.shape[1] == 1
        folds = list(self._folds(Y, stratified))
        scores = [_cross_validated_score(bank.gram(j), Y, machine, folds) for j in range(bank.n_kernels)]
        return Fixed(np.eye(bank.n_kernels)[int(np.argmax(scores))].tolist())

    def _folds(self, Y: NDArray[np.float64], stratified: bool) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        from sklearn.model_selection import KFold, StratifiedKFold  # here, because it takes a second to import

        if len(Y) < 2:
            raise ValueError(f"Best: cross-validation needs at least 2 samples, got {len(Y)}.")
        shuffled: dict[str, Any] = {"shuffle": True, "random_state": self.random_state}
        if stratified:
            rarest = int(min((Y > 0).sum(), (Y < 0).sum()))
            if rarest < 2:
                raise ValueError(
                    "Best: a class has a single sample, so it cannot be in both parts of a fold; use 'average'."
                )
            return StratifiedKFold(min(self.cv, rarest), **shuffled).split(Y, Y[:, 0] > 0)
        return KFold(min(self.cv, len(Y)), **shuffled).split(Y)


@dataclass(frozen=True)
class Alignment(Chosen):
    """Weights whose kernel is best aligned with the targets: max ``<K(b), YY'> / ||K(b)||_F`` over b >= 0.

    With ``M_ij = <K_i, K_j>_F`` and ``a_j = <K_j, YY'>_F`` they are, up to scale, the minimiser of the non-negative
    least-squares problem ``b'Mb - 2 a.b``; scaled to sum to one, so that C means what it does for `Average`.

    Parameters
    ----------
    centered : bool, default=True
        Centre the kernels in feature space first (HKH), which keeps a constant offset from looking like alignment.

    Examples
    --------
    >>> from kernelweave.weights import Alignment
    >>> Alignment()
    Alignment(centered=True)
    """

    centered: bool = True

    def resolve(self, bank: Bank, machine: Any, Y: NDArray[np.float64]) -> Fixed:
        """Y has shape (n_samples, n_columns), 0 where a label was never judged."""
        known = np.ones(Y.shape, dtype=bool) if machine.kind == "regressor" else Y != 0
        mean = Y.sum(axis=0) / np.maximum(known.sum(axis=0), 1)
        targets = np.where(known, Y - mean, 0.0) if self.centered else Y  # <HKH, YY'> = <K, HY(HY)'>
        return Fixed(_best_aligned(self._products(bank), 2.0 * bank.quadratics(targets)).tolist())

    def _products(self, bank: Bank) -> NDArray[np.float64]:
        """All <K_i, K_j>_F, shape (n_kernels, n_kernels), from blocks of rows.

        Centring the rows in a second pass, instead of correcting the sums, keeps the digits of kernels that are nearly
        constant. A kernel of which centring leaves only rounding counts as zero.
        """
        s, n = bank.n_kernels, bank.n_samples
        means, squares = np.zeros((s, n)), np.zeros(s)
        if self.centered:
            for samples, block in _row_blocks(bank):
                means[:, samples] = block.mean(axis=2)
                squares += np.einsum("jik,jik->j", block, block)
        products = np.zeros((s, s))
        for samples, block in _row_blocks(bank):
            if self.centered:
                block += (means.mean(axis=1)[:, None] - means[:, samples])[:, :, None]
                block -= means[:, None, :]
            flat = block.reshape(s, -1)
            products += flat @ flat.T
        left = np.diag(products) > 1e-20 * squares
        return products * np.outer(left, left)


def _row_blocks(bank: Bank) -> Iterator[tuple[NDArray[np.intp], NDArray[np.float64]]]:
    """Samples and their kernel rows (n_kernels, n_block, n_samples), as float64 copies that the caller may change."""
    size = max(1, BLOCK_BYTES // (8 * bank.n_kernels * bank.n_samples))
    for first in range(0, bank.n_samples, size):
        samples = np.arange(first, min(first + size, bank.n_samples))
        yield samples, np.array(bank.rows(samples), dtype=np.float64)


def _best_aligned(products: NDArray[np.float64], targets: Vector) -> Vector:
    """argmax over b >= 0 of ``b.targets / sqrt(b' products b)``, summing to one; uniform when nothing is aligned."""
    sizes = np.sqrt(np.maximum(np.diag(products), 0.0))
    used = sizes > 0.0
    uniform = np.full(len(targets), 1.0 / len(targets))
    if not used.any():
        return uniform
    inverse = np.divide(1.0, sizes, out=np.zeros_like(sizes), where=used)
    values, vectors = np.linalg.eigh(products * np.outer(inverse, inverse))
    kept = values > 1e-10 * values[-1]  # duplicates make it singular; the targets lie in its range
    roots = np.sqrt(values[kept])
    b = inverse * nnls(roots[:, None] * vectors[:, kept].T, (vectors[:, kept].T @ (inverse * targets)) / roots)[0]
    total = b.sum()
    return b / total if total > 0.0 else uniform


def _cross_validated_score(K: NDArray[Any] | Operator, Y: NDArray[np.float64], machine: Any, folds: list[Any]) -> float:
    """Mean over folds of the merit of a machine trained on the kernel K (n, n)."""
    scores = []
    for train, test in folds:
        columns = np.arange(Y.shape[1])
        if machine.kind == "classifier":  # a column of one class in the training part teaches nothing
            columns = np.flatnonzero((Y[train] > 0).any(axis=0) & (Y[train] < 0).any(axis=0))
        if len(columns) == 0:
            continue
        solution = machine.restrict(train).solve(part_of(K, train), Y[np.ix_(train, columns)])
        decision = product_of(K, test, train, solution.coef) + solution.intercept
        scores.append(machine.merit(decision, Y[np.ix_(test, columns)]))
    if np.isnan(scores).all():
        raise ValueError("Best: no training fold has samples of two classes in any column; give more data.")
    return float(np.nanmean(scores))
