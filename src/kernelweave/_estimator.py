"""What every estimator on a kernel bank shares: reading X, building the bank, solving, scoring new samples."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import validate_data

from ._validation import check_number, check_tol
from .kernels import Bank, Gaussian, KernelBank
from .kernels.missing import check_new
from .kernels.operators import Operator, part_of, product_of
from .machines import Machine, Solution
from .solvers import PUBLISHED, Saddle, StochasticApproximation, Stopping, run
from .solvers.pairing import named
from .solvers.saddle import Point
from .views import KernelStack, Views, as_views, check_finite, device_of
from .weights import WeightSet
from .weights.base import DUST

Array = NDArray[np.float64]

#: Kernels on each view when none are given: narrow, medium and wide beside the mean distance of the data.
DEFAULT_KERNELS = (Gaussian(0.25), Gaussian(1.0), Gaussian(4.0))


@dataclass
class Fit:
    """One solved problem: some label columns that share a weight vector."""

    weights: Array  # (n_kernels,), what multiplies the kernels
    coef: Array  # (n_samples, n_columns)
    intercept: Array  # (n_columns,)
    objective: float
    gap: float
    converged: bool
    solves: int
    adds: int
    history: NDArray

    @classmethod
    def of(cls, books: Any, best: Point | None) -> Fit:
        """What `books` (a `Saddle`, or whatever has its bounds and counts) say of the point it ended at."""
        assert best is not None
        effective = best.effective
        return cls(
            weights=np.where(effective < DUST * effective.max(), 0.0, effective),
            coef=best.solution.coef,
            intercept=best.solution.intercept,
            objective=books.upper,
            gap=books.gap,
            converged=books.converged,
            solves=books.solves,
            adds=books.adds,
            history=books.history,
        )


class BankReader(BaseEstimator):
    """Base of the estimators that take their data as a bank of kernels; has the arguments `kernels` and `verbose`."""

    kernels: Any
    verbose: int

    def _spec(self) -> KernelBank:
        if isinstance(self.kernels, KernelBank):
            return self.kernels
        return KernelBank(list(DEFAULT_KERNELS) if self.kernels is None else self.kernels)

    def _read(self, X: Any, reset: bool) -> Any:
        """X as the bank takes it. Plain arrays and frames go through scikit-learn's own checks of shape and names."""
        X = self._read_form(X, reset)
        check_new(X, self._spec().missing)  # not every estimator builds all its kernels through the bank
        return X

    def _read_form(self, X: Any, reset: bool) -> Any:
        if isinstance(X, (Views, KernelStack)):
            return X
        if isinstance(X, Mapping) and not issparse(X):
            return as_views(X, incomplete=True)
        if self._spec().kernels == "precomputed":
            return np.asarray(X)
        if device_of(X) is not None:
            if reset:
                self.n_features_in_ = X.shape[1]
            return as_views(X, self._spec().columns)
        if hasattr(X, "columns"):
            validate_data(self, X, reset=reset, skip_check_array=True)
            if reset:
                self.n_features_in_ = len(X.columns)
            return as_views(X, self._spec().columns, incomplete=True)
        X = validate_data(self, X, reset=reset, dtype=[np.float64, np.float32], ensure_all_finite=False)
        check_finite(X, "X")
        return X

    def _n_samples(self, X: Any) -> int:
        return X.shape[1] if isinstance(X, np.ndarray) and X.ndim == 3 else len(X)

    def _build(self, X: Any) -> Bank:
        if self.verbose:
            self._say("building the kernels; compiled loops are cached, so only the very first fit waits for them")
        return self._spec().build(X, verbose=bool(self.verbose))

    def _say(self, text: str) -> None:
        print(f"[kernelweave] {text}", file=sys.stderr)


class BankEstimator(BankReader):
    """Base of the estimators that learn weights for the kernels of a bank.

    A subclass has the constructor arguments `kernels`, `weights`, `solver`, `tol`, `max_iter`, `stopping`, `n_jobs` and
    `verbose`, and turns its targets into columns.
    """

    weights: Any
    solver: str | StochasticApproximation
    tol: float
    max_iter: int
    stopping: str
    n_jobs: int | None

    def _build(self, X: Any) -> Bank:
        """The bank; settings of the fit that are wrong are found before the kernels are computed."""
        self._stopping()
        if self._solver() != "auto":
            named(self._solver())
        return super()._build(X)

    # -- solving --------------------------------------------------------------------------------------------------

    def _stopping(self) -> Stopping:
        if self.stopping == "published":
            return PUBLISHED
        if self.stopping != "gap":
            raise ValueError(f"stopping must be 'gap' or 'published', got {self.stopping!r}.")
        check_tol(self.tol)
        check_number("max_iter", self.max_iter, "at least 1", lambda most: most >= 1)
        return Stopping(tol=self.tol, max_iter=self.max_iter)

    def _solver(self) -> str | StochasticApproximation:
        """The solver as :func:`run` takes it."""
        return self.solver

    def _solve(self, bank: Bank, machine: Machine, tasks: list[tuple[WeightSet, Array]]) -> list[Fit]:
        """Solve one problem per task, a weight set and target columns of shape (n_samples, n_columns)."""
        stopping, solver = self._stopping(), self._solver()
        if len(tasks) == 1 or self.n_jobs in (None, 1):
            fits = [
                solve_task(bank, machine, *task, solver, stopping, self._reporter(k, len(tasks)))
                for k, task in enumerate(tasks)
            ]
        else:
            bank.expect(min(effective_n_jobs(self.n_jobs), len(tasks)))
            fits = Parallel(n_jobs=self.n_jobs, prefer=bank.parallel)(
                delayed(solve_task)(bank, machine, *task, solver, stopping) for task in tasks
            )
        short = [fit.gap for fit in fits if not fit.converged]
        if short:
            advice = getattr(solver, "advice", "Raise max_iter or tol, or choose another solver.")
            if machine.open_because:
                advice = f"This is to be expected: {machine.open_because}."
            warnings.warn(
                f"{len(short)} of {len(fits)} problem(s) stopped at a relative duality gap of up to {max(short):.2g}, "
                f"short of {stopping.tol:.2g}. {advice}",
                ConvergenceWarning,
                stacklevel=3,
            )
        return fits

    def _reporter(self, task: int, n_tasks: int) -> Callable[[np.void], None] | None:
        if not self.verbose:
            return None
        name = f"problem {task + 1} of {n_tasks}, " if n_tasks > 1 else ""

        def report(row: np.void) -> None:
            self._say(
                f"{name}iteration {row['iteration']}: objective {row['objective']:.6g}, gap {row['gap']:.2g}, "
                f"{row['active']} kernels, {row['seconds']:.2f} s"
            )

        return report

    def _store(self, bank: Bank, fits: list[Fit], one_vector: bool) -> None:
        """Keep what prediction and inspection need: active kernels, support rows, certificates."""
        weights = np.concatenate([np.tile(fit.weights, (len(fit.intercept), 1)) for fit in fits])
        coef = np.hstack([fit.coef for fit in fits])
        self.kernel_names_ = bank.names
        self.weights_ = weights[0] if one_vector else weights
        self.support_ = np.flatnonzero(np.any(coef != 0, axis=1))
        self.dual_coef_ = coef[self.support_].T
        self.intercept_ = np.concatenate([fit.intercept for fit in fits])
        self.gap_ = max(fit.gap for fit in fits)
        self.converged_ = all(fit.converged for fit in fits)
        self.n_iter_ = max(len(fit.history) for fit in fits)
        self.n_svm_solves_ = sum(fit.solves for fit in fits)
        self.kernel_adds_ = sum(fit.adds for fit in fits)
        self.objective_ = fits[0].objective if len(fits) == 1 else np.array([fit.objective for fit in fits])
        self.history_ = fits[0].history if len(fits) == 1 else [fit.history for fit in fits]
        self._active = np.flatnonzero(np.any(weights != 0, axis=0))
        self._expansion = bank.expansion(self._active, self.support_)

    # -- new samples ----------------------------------------------------------------------------------------------

    def _scores(self, X: Any) -> Array:
        """Decision values, shape (n_samples, n_columns)."""
        weights = self.weights_[..., self._active]
        return self._expansion.scores(self._read(X, reset=False), weights, self.dual_coef_.T) + self.intercept_


def solve_task(
    bank: Bank,
    machine: Machine,
    weights: WeightSet,
    Y: Array,
    solver: str | StochasticApproximation,
    stopping: Stopping,
    on_iteration: Callable[[np.void], None] | None = None,
) -> Fit:
    """Find the weights and duals of one problem; a function of its own so that joblib can carry it elsewhere."""
    with bank.task():
        weights = weights.resolve(bank, machine, Y)
        saddle = run(solver, Saddle(bank, machine, weights, Y, stopping, on_iteration=on_iteration))
        return Fit.of(saddle, saddle.best)


def held_out_scores(
    K: NDArray | Operator,
    machine: Machine,
    Y: Array,
    fit: Fit,
    folds: Iterable[tuple[NDArray, NDArray]],
    accuracy: float,
) -> Array:
    """Scores of every sample by a machine that has not seen it, on one combined kernel; shape of Y.

    Each fold starts from what the fit on all samples found for the samples it keeps, if the machine can use that: an
    SVM with an intercept cannot, because these duals no longer sum to zero.
    """
    scores = np.empty_like(Y)
    for train, held in folds:
        start = Solution(fit.coef[train], fit.intercept, 0.0, 0.0, 0.0)
        trained = machine.restrict(train).solve(part_of(K, train), Y[train], start=start, accuracy=accuracy)
        scores[held] = product_of(K, held, train, trained.coef) + trained.intercept
    return scores


def below_all_others(scores: Array, columns: NDArray[np.bool_]) -> Array:
    """Scores, (n_samples, n_columns), with some columns set below all others of their row, and negative."""
    lowest = scores[:, ~columns].min(axis=1, initial=0.0, keepdims=True)
    return np.where(columns, lowest - 1.0, scores)
