"""Infinite kernel learning: the kernels are chosen from a family, not from a list."""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from ._estimator import Array, Fit
from ._validation import check_tol
from .generation import FamilyOracle, Generated, GrowingBank, KernelColumn, Rules, generate
from .generation.columns import check_weights
from .generation.growing import without_values
from .kernels import Bank, FiniteFamily, GaussianFamily, Kernel, KernelBank, Linear
from .kernels.families import FamilySpec, all_pieces, as_families
from .kernels.fitted import Node
from .kernels.fitting import Item
from .machines import Machine
from .mkl import MKLClassifier
from .weights import WeightSet, parse_weights


@dataclass(frozen=True)
class Violator:
    """The kernel of largest energy that the last search found.

    Attributes
    ----------
    name : str
        Its name, as in ``kernel_names_``.
    kernel : Kernel
    energy : float
        ``1/2 v' K v`` at the duals v that the lower bound comes from.
    level : float
        The energy of the kernels in use: those above it would improve the objective.
    bound : float
        No kernel of the family has a larger energy; infinite without a certificate.
    """

    name: str
    kernel: Kernel
    energy: float
    level: float
    bound: float


@dataclass
class _Problem:
    """One solved problem, with kernels of its own."""

    fit: Fit
    items: tuple[Item, ...]
    nodes: tuple[Node, ...]
    certified: bool
    violator: Violator | None


class InfiniteKernelClassifier(MKLClassifier):
    """Classification with kernels that are found in a family while the weights are learned.

    Kernels are added where they violate the optimality conditions most, and removed when they lose all weight. Where
    the search of the family is certified, so is the fit: no kernel of the family, in use or not, can improve the
    objective by more than the gap. One problem a class (one-vs-rest) or label, each with kernels of its own, or one for
    two classes.

    Parameters
    ----------
    family : Family, list of families, or mapping of view names to either, optional
        By default ``GaussianFamily("single")``. A family is taken on every view, unless it names its views. A
        `FiniteFamily` is a list of kernels, or "precomputed" ones. Standardise features: rates then mean the same for
        all of them.
    weights : str or WeightSet, default="l1"
        With "l1" there is an optimum over the whole family. In other sets, such as "l2", the objective falls as long as
        kernels are added (N copies of a kernel are one that is sqrt(N) times as large): the fit stops when it falls by
        less than `tol`, or at `max_kernels`, and is never certified.
    C : float, default=1.0
        Cost of a margin error.
    sharing : {"none", "sum"}, default="none"
        Whether several classes or labels have kernels and weights of their own, or share them.
    fit_intercept, machine, class_weight, probability
        As in :class:`MKLClassifier`.
    tol : float, default=1e-3
        Relative gap to stop at. A small one adds many kernels of small weight; stopping early is a regulariser.
    max_kernels : int, default=200
        Most kernels that are generated for a problem, those removed again included.
    n_price : int, default=5
        Most kernels that are added in a round.
    dtype : {"float32", "float64"}
        Precision of stored kernel values.
    n_jobs : int, optional
        Problems solved in parallel, by joblib.
    verbose : int, default=0
    random_state : int, RandomState or None
        Draws random starts of searches and samples of pools; shuffles the calibration folds.

    Attributes
    ----------
    kernels_ : tuple of Kernel
        The kernels that were chosen; products over views name their views.
    kernel_names_ : tuple of str
    weights_ : array of shape (n_kernels,), or (n_classes, n_kernels) for more than two classes or labels, not shared
    certified_ : bool
        Whether the gap is one over all kernels of the family, for all problems. If not, it is one over the kernels that
        were found.
    gap_, objective_, converged_, support_, dual_coef_, intercept_, classes_, n_svm_solves_
        As in :class:`MKLClassifier`.
    most_violated_ : list of Violator, one a problem
    n_iter_ : int
        Rounds.
    history_ : structured array with a row a round, or a list of them, one a problem
        Columns: objective, upper, lower, gap, level, found, bound, iteration, kernels, active, generated, solves, and
        seconds.

    Examples
    --------
    >>> import kernelweave as kw
    >>> X, y = kw.datasets.make_chessboard(n_samples=100, n_noise=0, random_state=0)
    >>> clf = kw.InfiniteKernelClassifier(kw.kernels.GaussianFamily("single"), C=10.0).fit(X, y)
    >>> clf.certified_, clf.gap_ <= 1e-3, clf.score(X, y) > 0.95
    (True, True, True)
    """

    def __init__(
        self,
        family: FamilySpec | None = None,
        weights: Any = "l1",
        C: float = 1.0,
        sharing: str = "none",
        fit_intercept: bool = True,
        machine: Machine | None = None,
        class_weight: Any = None,
        probability: bool = False,
        tol: float = 1e-3,
        max_kernels: int = 200,
        n_price: int = 5,
        dtype: str = "float32",
        n_jobs: int | None = None,
        verbose: int = 0,
        random_state: Any = None,
    ) -> None:
        self.family = family
        self.weights = weights
        self.C = C
        self.sharing = sharing
        self.fit_intercept = fit_intercept
        self.machine = machine
        self.class_weight = class_weight
        self.probability = probability
        self.tol = tol
        self.max_kernels = max_kernels
        self.n_price = n_price
        self.dtype = dtype
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    def _check_settings(self) -> None:
        self._rules()
        check_weights(parse_weights(self.weights))

    def _solve_columns(
        self, X: Any, machine: Machine, weights: WeightSet, columns: list[Array]
    ) -> tuple[Bank, list[Fit]]:
        features = self._spec()._features(X)
        problems = self._generate(features, machine, weights, columns, self._rules())
        self.certified_ = all(problem.certified for problem in problems)
        self.most_violated_ = [problem.violator for problem in problems]
        bank = self._union(features, problems)
        return bank, [problem.fit for problem in problems]

    def _rules(self) -> Rules:
        for name in ("max_kernels", "n_price"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
                raise ValueError(f"{name} must be an integer of at least 1, got {value!r}.")
        check_tol(self.tol)
        return Rules(self.tol, int(self.max_kernels), int(self.n_price))

    def _family(self) -> FamilySpec:
        return GaussianFamily() if self.family is None else self.family

    def _spec(self) -> KernelBank:
        """How X is read: as the bank of a finite family says, or as it comes."""
        spec = self._family()
        banks = [] if isinstance(spec, dict) else [f.bank for f in as_families(spec) if isinstance(f, FiniteFamily)]
        return banks[0] if banks else KernelBank(Linear())

    def _shared(self) -> bool:
        if self.sharing == "worst-case":
            raise ValueError("sharing must be 'none' or 'sum' where kernels are generated, got 'worst-case'.")
        return super()._shared()

    # -- solving --------------------------------------------------------------------------------------------------

    def _generate(
        self, features: Any, machine: Machine, weights: WeightSet, parts: list[Array], rules: Rules
    ) -> list[_Problem]:
        draws = check_random_state(self.random_state).randint(np.iinfo(np.int32).max, size=len(parts))
        spec, columns = self._family(), self._spec().columns

        def solve(k: int, report: Any = None) -> _Problem:
            return solve_problem(
                features, spec, machine, weights, parts[k], rules, self.dtype, columns, int(draws[k]), report
            )

        if len(parts) == 1 or self.n_jobs in (None, 1):
            problems = [solve(k, self._reporter(k, len(parts))) for k in range(len(parts))]
        else:
            problems = Parallel(n_jobs=self.n_jobs)(delayed(solve)(k) for k in range(len(parts)))
        short = [problem.fit.gap for problem in problems if not problem.fit.converged]
        if short:
            warnings.warn(
                f"{len(short)} of {len(problems)} problem(s) stopped at a relative gap of up to {max(short):.2g}, "
                f"short of {rules.tol:.2g}. Raise max_kernels or tol.",
                ConvergenceWarning,
                stacklevel=3,
            )
        return problems

    def _union(self, features: Any, problems: list[_Problem]) -> Bank:
        """One bank with the kernels in use of all problems; the weights of every problem are set among them."""
        numbers: dict[Hashable, int] = {}
        items: list[Item] = []
        nodes: list[Node] = []
        places = []
        for problem in problems:
            used = np.flatnonzero(problem.fit.weights)
            place = []
            for j in used:
                item = problem.items[j]
                same = (item.view, item.kernel)
                if same not in numbers:
                    numbers[same] = len(items)
                    items.append(item)
                    nodes.append(problem.nodes[j])
                place.append(numbers[same])
            places.append((place, problem.fit.weights[used]))
        for problem, (place, weights) in zip(problems, places, strict=True):
            whole = np.zeros(len(items))
            np.add.at(whole, place, weights)
            problem.fit = replace(problem.fit, weights=whole)
        self.kernels_ = tuple(item.kernel for item in items)
        names = tuple(item.name for item in items)
        return without_values(names, tuple(nodes), features, self.dtype, self._spec().columns)


def solve_problem(
    features: Any,
    spec: FamilySpec,
    machine: Machine,
    weights: WeightSet,
    Y: Array,
    rules: Rules,
    dtype: str,
    columns: Any,
    seed: int,
    report: Any = None,
) -> _Problem:
    """Generate the kernels of one problem; a function of its own so that joblib can carry it elsewhere."""
    bank = GrowingBank(features, dtype, columns)
    oracle = FamilyOracle(all_pieces(spec, features), np.random.default_rng(seed))
    result = generate(bank, oracle, machine, weights, Y, rules, on_round=report)
    fit = Fit.of(result, result.saddle.best)
    return _Problem(fit, bank.items, bank.nodes, result.certified, _violator(result))


def _violator(result: Generated) -> Violator | None:
    if not result.proposal.columns:
        return None
    column: KernelColumn = result.proposal.columns[0]
    energy = float(result.proposal.energies[0])
    return Violator(column.item.name, column.item.kernel, energy, result.level, result.proposal.bound)
