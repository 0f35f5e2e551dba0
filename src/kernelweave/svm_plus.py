"""SVM+: classification with features that are known of the training samples only."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_consistent_length, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted

from ._config import in_threads
from ._estimator import Array, BankReader
from ._validation import check_cost
from .kernels import Bank, Gaussian, KernelBank
from .machines import SVM
from .machines.svm_plus import PlusSolution, solve_plus


class SVMPlus(ClassifierMixin, BankReader):
    """Support vector machine that learns with privileged features: SVM+ (Vapnik and Vashist).

    Training data often know more than test data: a clean picture beside a blurred one, a report beside a measurement.
    Where an ordinary machine has one free slack a sample, SVM+ has a function of the privileged features, which says
    how hard a sample is. Samples that are hard by what is known of them then pull less at the decision function. New
    samples need no privileged features.

    ``min  1/2 |f|^2 + lam/2 |s|^2 + C sum_i (s(z_i) + rho)`` with ``y_i (f(x_i) + b) >= 1 - (s(z_i) + rho)`` and
    ``s(z_i) + rho >= 0``. Of more than two classes, each has a problem of its own (one-vs-rest).

    Parameters
    ----------
    kernel, privileged_kernel : kernel, KernelBank, mapping of view names to kernels, list of kernels, "precomputed" or\
 None
        What f and s are functions in; None: ``Gaussian()`` on each view. Of several kernels, the mean.
    C : float, default=1.0
        Cost of slack.
    lam : float, default=1.0
        Cost of the size of s. Small, with a kernel that can tell all samples apart: any slack can be had, as in an
        ordinary machine. Large: all samples have nearly the same slack.
    tol : float, default=1e-3
        Relative duality gap to stop at.
    verbose : int, default=0

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    support_ : array of shape (n_support,)
    dual_coef_ : array of shape (n_problems, n_support)
        Coefficients of f; one problem for two classes.
    intercept_ : array of shape (n_problems,)
    privileged_coef_ : array of shape (n_problems, n_samples), or None if fitted without privileged features
        Coefficients of s.
    privileged_intercept_ : array of shape (n_problems,), or None
        The offset rho.
    gap_ : float
        Relative duality gap reached (the largest of all problems).
    objective_ : float, or array of shape (n_classes,)
    converged_ : bool
    n_iter_ : int
        Steps of the solver, the most of all problems.
    kernel_names_ : tuple of str

    Notes
    -----
    With a privileged kernel of few dimensions (a linear one, say), the slack that separates the classes may not be
    worth its price: f = 0 with slack 1 for all is then optimal, and nothing is learned. The objective is then C times
    the number of samples; take a Gaussian privileged kernel or a larger C.

    Examples
    --------
    >>> import numpy as np
    >>> import kernelweave as kw
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1], 40)
    >>> clean = rng.normal(size=(80, 3)) + 2 * y[:, None]
    >>> noisy = clean + rng.normal(size=(80, 3))
    >>> model = kw.SVMPlus(C=10.0, lam=0.1).fit(noisy, y, Z=clean)
    >>> model.gap_ <= 1e-3, model.predict(noisy[:2]).shape
    (True, (2,))
    """

    def __init__(
        self,
        kernel: Any = None,
        privileged_kernel: Any = None,
        C: float = 1.0,
        lam: float = 1.0,
        tol: float = 1e-3,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.privileged_kernel = privileged_kernel
        self.C = C
        self.lam = lam
        self.tol = tol
        self.verbose = verbose

    def fit(self, X: Any, y: ArrayLike, Z: Any = None) -> SVMPlus:
        """Learn the decision function.

        Parameters
        ----------
        X : Views, mapping, array of shape (n_samples, n_features), frame, KernelStack or (n_kernels, n, n) array
        y : array of shape (n_samples,)
            Classes.
        Z : as X, optional
            Privileged features of the same samples. Without, every sample has a slack of its own: this is then an
            ordinary support vector machine, and `lam` has no part in it.
        """
        self._check_settings()
        X = self._read(X, reset=True)
        Y = self._columns(y)
        check_consistent_length(np.empty(self._n_samples(X)), Y)
        privileged = None if Z is None else self._privileged_gram(Z, len(Y))
        bank = self._build(X)
        K = _mean(bank)
        coef = self._solve_alone(K, Y) if privileged is None else self._solve(K, privileged, Y)
        if not self.converged_:
            warnings.warn(
                f"SVMPlus stopped at a relative duality gap of {self.gap_:.2g}, short of tol={self.tol:.2g}: rounding "
                "is in the way. Raise tol or lam, or use a KernelBank with dtype='float64'.",
                ConvergenceWarning,
                stacklevel=2,
            )
        self.kernel_names_ = bank.names
        self.support_ = np.flatnonzero(coef.any(axis=1))
        self.dual_coef_ = np.ascontiguousarray(coef[self.support_].T)
        self._expansion = bank.expansion(np.arange(bank.n_kernels), self.support_)
        return self

    def decision_function(self, X: Any) -> Array:
        """Scores of shape (n_samples,) for two classes (positive: ``classes_[1]``), else (n_samples, n_classes)."""
        check_is_fitted(self)
        weights = np.full(self._expansion.n_kernels, 1.0 / self._expansion.n_kernels)
        scores = self._expansion.scores(self._read(X, reset=False), weights, self.dual_coef_.T) + self.intercept_
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> NDArray:
        """Classes of shape (n_samples,)."""
        scores = self.decision_function(X)
        return self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)]

    # -- reading --------------------------------------------------------------------------------------------------

    def _check_settings(self) -> None:
        for name, meaning in (
            ("C", "the cost of slack"),
            ("lam", "the cost of the size of the slack function"),
            ("tol", "the relative duality gap to stop at"),
        ):
            check_cost(name, getattr(self, name), f"it is {meaning}")

    def _spec(self) -> KernelBank:
        return _bank_of(self.kernel)

    def _columns(self, y: Any) -> Array:
        """Targets as columns of -1 and +1; sets `classes_`."""
        if y is None:
            raise ValueError("This SVMPlus requires y to be passed, but the target y is None.")
        check_classification_targets(y)
        self.classes_, codes = np.unique(column_or_1d(y, warn=True), return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"SVMPlus needs samples of at least 2 classes, but y contains only one class: "
                f"{self.classes_.tolist()[0]!r}."
            )
        if len(self.classes_) == 2:
            return np.where(codes == 1, 1.0, -1.0)[:, None]
        return np.where(codes[:, None] == np.arange(len(self.classes_)), 1.0, -1.0)

    def _privileged_gram(self, Z: Any, n_samples: int) -> NDArray:
        """The privileged kernel between the training samples, (n_samples, n_samples)."""
        spec = _bank_of(self.privileged_kernel)
        if isinstance(Z, (np.ndarray, list)) and spec.kernels != "precomputed":
            Z = check_array(Z, dtype=[np.float64, np.float32], input_name="Z")
        bank = spec.build(Z, verbose=bool(self.verbose))
        if bank.n_samples != n_samples:
            raise ValueError(
                f"Z has {bank.n_samples} samples, but y has {n_samples}: privileged features are of the same samples, "
                "in the same order."
            )
        return _mean(bank)

    # -- solving --------------------------------------------------------------------------------------------------

    def _solve(self, K: NDArray, G: NDArray, Y: Array) -> Array:
        """Coefficients of f, (n_samples, n_problems); keeps all else."""

        def one(y: Array) -> PlusSolution:
            return solve_plus(K, G, y, self.C, self.lam, self.tol)

        found = in_threads(one, np.ascontiguousarray(Y.T))
        self.intercept_ = np.array([part.intercept for part in found])
        self.privileged_coef_: Array | None = np.stack([part.correction for part in found])
        self.privileged_intercept_: Array | None = np.array([part.offset for part in found])
        self._keep([part.primal for part in found], [part.gap for part in found], [part.steps for part in found])
        self.converged_ = all(part.reaches(self.tol) for part in found)
        return np.stack([part.coef for part in found], axis=1)

    def _solve_alone(self, K: NDArray, Y: Array) -> Array:
        """The same for a machine without privileged features."""
        machine = SVM(self.C)
        found = in_threads(lambda y: machine.solve(K, y[:, None], accuracy=self.tol), np.ascontiguousarray(Y.T))
        self.intercept_ = np.array([part.intercept[0] for part in found])
        self.privileged_coef_ = self.privileged_intercept_ = None
        self._keep([part.primal for part in found], [part.gap for part in found], [part.steps for part in found])
        self.converged_ = bool(self.gap_ <= self.tol)
        return np.hstack([part.coef for part in found])

    def _keep(self, primal: list[float], gap: list[float], steps: list[int]) -> None:
        self.objective_ = float(primal[0]) if len(primal) == 1 else np.array(primal)
        self.gap_ = float(max(short / abs(value) if value else short for short, value in zip(gap, primal, strict=True)))
        self.n_iter_ = int(max(steps))


def _bank_of(kernel: Any) -> KernelBank:
    """In double precision if nothing else is said: 1/lam multiplies what rounding leaves."""
    if isinstance(kernel, KernelBank):
        return kernel
    return KernelBank(Gaussian() if kernel is None else kernel, dtype="float64")


def _mean(bank: Bank) -> NDArray:
    return bank.combine(np.full(bank.n_kernels, 1.0 / bank.n_kernels))
