"""Multiple instances: support vector machines for bags whose instances have no labels of their own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from .._validation import check_number, check_tol
from ..machines.squared_hinge import WeightedProblem
from .annealing import PATH, WITNESS_PROBABILITY, Outcome, Schedule, alternate, anneal
from .bag_estimator import Array, BagClassifier
from .bags import Bags
from .hidden import Hidden, InstanceLabels, Witnesses

#: What can be learned in each scenario.
METHODS = {
    "instance": ("alternation", "annealing", "alp", "single-instance"),
    "witness": ("alternation", "annealing"),
}


class MIClassifier(BagClassifier):
    """Classification of bags by the scores of their instances: a bag scores as its best instance does.

    A positive bag holds at least one positive instance, a negative bag none. In the *instance* scenario every instance
    is positive or negative, and all their labels are learned together with the classifier (mi-SVM). In the *witness*
    scenario one instance explains each positive bag and its others do not count (MI-SVM). Both are problems of hidden
    choices, found by alternation or by deterministic annealing (AL-SVM, AW-SVM), which ends in better optima. Good
    optima of the instance scenario have few positives: "alp" (ALP-SVM) balances them, by a cost for the difference
    between the share of positives in a positive bag and a target. The loss is the squared hinge.

    Parameters
    ----------
    scenario : {"instance", "witness"}, default="witness"
    method : {"alternation", "annealing", "alp", "single-instance"}, default="annealing"
        "alp" and "single-instance" are for the instance scenario. The last is the plain baseline: every instance has
        the label of its bag.
    kernels : KernelBank, mapping of view names to kernels, list of kernels, kernel, "precomputed" or None
        None: on each view a Gaussian kernel whose bandwidth is the median distance between instances.
    weights : {"average", "sum"}, list of float or fixed WeightSet, default="average"
        How several kernels are combined.
    C : float, default=1.0
        Weight of a squared margin error (there is no factor of one half). Annealing of instance labels needs a larger
        one: it leaves few positives, and where errors cost little all scores stay negative.
    D : float, default=1.0
        "alp" only: cost of the squared difference between the number of positives in a positive bag and its target.
    positive_fraction : float in (0, 1], default=0.5
        "alp" only: the target, as a share of the instances of the bag. Choose it by cross-validation.
    class_weight : mapping of classes to float, "balanced" or None
        Multiplies C by the label of the instance; "balanced" by the frequencies of the labels of bags.
    fit_intercept : bool, default=True
    initial_temperature : float, default=10.0
        Where annealing begins, in units of C.
    cooling : float, default=1.5
        What the temperature is divided by.
    min_temperature : float, default=1e-8
        Where annealing ends, if nothing is left to decide before; in units of C.
    tol : float, default=1e-6
        Relative duality gap of the machine in every turn of an alternation, and where annealing ends.
    verbose : int, default=0

    Attributes
    ----------
    classes_ : array of shape (2,)
        The second class is the positive one.
    p_ : array of shape (n_instances,)
        Probability, where annealing ended, that an instance is positive, or the witness of its bag; zero for the
        instances of negative bags.
    instance_labels_ : array of int of shape (n_instances,)
        1 and -1; in the witness scenario 0 for instances of positive bags that do not count.
    witness_ : array of int of shape (n_bags,)
        Row of the instance of highest score of each positive bag, -1 for negative bags.
    positive_fraction_ : float
        Share of the instances of positive bags that are positive: by their labels, or in the witness scenario by score.
    objective_ : float
        Half the squared norm of the classifier plus its losses at the labels or witnesses found.
    gap_ : float
        Relative duality gap of the last solve of the machine. The labels are a local optimum only.
    temperature_path_ : structured array
        Temperature, entropy, free_energy and solves, a row a temperature; those of alternation have temperature zero.
    n_svm_solves_ : int
        Machines solved, and Newton steps of annealing.
    kernel_names_, weights_, support_, dual_coef_, intercept_
        As in :class:`kernelweave.MKLClassifier`; rows are instances.

    Examples
    --------
    >>> import kernelweave as kw
    >>> bags, y, inside = kw.datasets.make_bags(n_bags=40, random_state=0)
    >>> clf = kw.MIClassifier("witness", "annealing", C=100.0).fit(bags, y)
    >>> clf.score(bags, y)
    1.0
    >>> clf.decision_function(bags[:2]).shape, clf.instance_scores(bags[:2]).shape
    ((2,), (7,))
    """

    def __init__(
        self,
        scenario: str = "witness",
        method: str = "annealing",
        kernels: Any = None,
        weights: Any = "average",
        C: float = 1.0,
        D: float = 1.0,
        positive_fraction: float = 0.5,
        class_weight: Any = None,
        fit_intercept: bool = True,
        initial_temperature: float = 10.0,
        cooling: float = 1.5,
        min_temperature: float = 1e-8,
        tol: float = 1e-6,
        verbose: int = 0,
    ) -> None:
        self.scenario = scenario
        self.method = method
        self.kernels = kernels
        self.weights = weights
        self.C = C
        self.D = D
        self.positive_fraction = positive_fraction
        self.class_weight = class_weight
        self.fit_intercept = fit_intercept
        self.initial_temperature = initial_temperature
        self.cooling = cooling
        self.min_temperature = min_temperature
        self.tol = tol
        self.verbose = verbose

    # -- fitting --------------------------------------------------------------------------------------------------

    def fit(
        self, X: Any, y: ArrayLike, groups: Iterable | None = None, bag_weight: ArrayLike | None = None
    ) -> MIClassifier:
        """Learn from labelled bags.

        Parameters
        ----------
        X : Bags, list of arrays of shape (size of the bag, n_features), or instances of all bags
            Instances are an array of shape (n_instances, n_features), Views, a mapping, a frame, or with precomputed
            kernels a KernelStack or an array of shape (n_instances, n_instances).
        y : array of shape (n_bags,), or (n_instances,) with equal labels within a bag
        groups : sequence of n_instances ids, optional
            The bag of each instance, if X is instances; without groups each is a bag of its own.
        bag_weight : array of shape (n_bags,), optional
            Multiplies all that a bag adds to the objective, as if it were there several times.
        """
        self._check_settings()
        bags = self._bags(X, groups, reset=True)
        positive = self._positive(y, bags)
        hidden = self._hidden(bags, positive, self._bag_weight(bag_weight, bags))
        bank, weights = self._instance_bank(bags.instances)
        outcome = self._solve(WeightedProblem(bank.combine(weights), self.fit_intercept), hidden)
        self._store(bank, weights, outcome, hidden)
        return self

    def _check_settings(self) -> None:
        if self.scenario not in METHODS:
            raise ValueError(f"scenario must be 'instance' or 'witness', got {self.scenario!r}.")
        if self.method not in METHODS[self.scenario]:
            where = [name for name, methods in METHODS.items() if self.method in methods]
            hint = f" {self.method!r} is for scenario={where[0]!r}." if where else ""
            raise ValueError(
                f"method must be one of {list(METHODS[self.scenario])} for scenario={self.scenario!r}, got "
                f"{self.method!r}.{hint}"
            )
        balance = "it is the cost of a wrong balance"
        check_number("D", self.D, "finite and not negative", lambda D: 0 <= D < np.inf, balance)
        check_number("positive_fraction", self.positive_fraction, "in (0, 1]", lambda share: 0 < share <= 1)
        check_tol(self.tol, "it is the relative duality gap of a solve")
        self._schedule()

    def _schedule(self) -> Schedule:
        return Schedule(self.initial_temperature, self.cooling, self.min_temperature)

    def _hidden(self, bags: Bags, positive: NDArray[np.bool_], bag_weight: Array) -> Hidden:
        factors = self._class_factors(positive)
        if self.scenario == "witness":
            return Witnesses(bags, positive, self.C, factors, bag_weight)
        return InstanceLabels(
            bags,
            positive,
            self.C,
            factors,
            bag_weight,
            D=float(self.D) if self.method == "alp" else 0.0,
            positive_fraction=self.positive_fraction,
        )

    def _solve(self, problem: WeightedProblem, hidden: Hidden) -> Outcome:
        """Annealing with its end, or alternation from its start."""
        if self.method in ("annealing", "alp"):
            report = self._say if self.verbose else None
            outcome = anneal(problem, hidden, self._schedule(), self.tol, report=report)
            return self._decide(problem, hidden, outcome)
        if isinstance(hidden, Witnesses):
            start = hidden.choice(hidden.mean_scores(problem, self.tol))
            outcome = alternate(problem, hidden, start, accuracy=self.tol)
            return replace(outcome, solves=outcome.solves + 1)
        assert isinstance(hidden, InstanceLabels)
        turns = 1 if self.method == "single-instance" else None
        return alternate(problem, hidden, hidden.all_positive(), accuracy=self.tol, turns=turns)

    def _decide(self, problem: WeightedProblem, hidden: Hidden, annealed: Outcome) -> Outcome:
        """From probabilities to labels, polished by alternation; or to witnesses, of which a bag may keep several."""
        if isinstance(hidden, Witnesses):
            chosen = (annealed.p > WITNESS_PROBABILITY).astype(np.float64)
            point = problem.solve(*hidden.weights(chosen), annealed.point, self.tol)
            return replace(annealed, point=point, solves=annealed.solves + 1)
        polished = alternate(problem, hidden, (annealed.p > 0.5).astype(np.float64), annealed.point, self.tol)
        return Outcome(
            annealed.p, polished.point, annealed.solves + polished.solves, annealed.path + polished.path, polished.p
        )

    def _store(self, bank: Any, weights: Array, outcome: Outcome, hidden: Hidden) -> None:
        """Keep what was found, and what prediction needs: active kernels and support rows."""
        point = outcome.point
        positive = hidden.positive[hidden.bags.bag_of]
        self.p_ = outcome.p
        self.witness_ = np.full(len(hidden.bags), -1)
        self.witness_[hidden.positive] = hidden.highest(point.scores)
        if isinstance(hidden, Witnesses):
            unsure = np.where(outcome.p > WITNESS_PROBABILITY, 1, 0)
            self.objective_ = hidden.objective(point)
            self.positive_fraction_ = float(np.mean(point.scores[positive] > 0))
        else:
            unsure = np.where(outcome.labels > 0.5, 1, -1)
            self.objective_ = point.primal + hidden.penalty(outcome.labels)
            self.positive_fraction_ = float(np.mean(outcome.labels[positive]))
        self.instance_labels_ = np.where(positive, unsure, -1)
        self._certify(point)
        self.temperature_path_ = np.array(outcome.path, dtype=PATH)
        self.n_svm_solves_ = outcome.solves
        self.n_iter_ = len(outcome.path)
        self.kernel_names_ = bank.names
        self.weights_ = weights
        self.support_ = np.flatnonzero(point.coef)
        self.dual_coef_ = point.coef[self.support_][None]
        self.intercept_ = np.array([point.intercept])
        self._active = np.flatnonzero(weights)
        self._expansion = bank.expansion(self._active, self.support_)

    # -- new bags -------------------------------------------------------------------------------------------------

    def instance_scores(self, X: Any) -> Array:
        """Scores of instances, positive for ``classes_[1]``.

        Parameters
        ----------
        X : Bags, list of bags, or instances
            Of a list, one bag after the other.

        Returns
        -------
        array of shape (n_instances,)
        """
        check_is_fitted(self)
        return self._instance_scores(self._bags(X, None, reset=False))

    def _instance_scores(self, bags: Bags) -> Array:
        weights = self.weights_[self._active]
        return self._expansion.scores(bags.instances, weights, self.dual_coef_.T)[:, 0] + self.intercept_[0]

    def predict_instances(self, X: Any) -> NDArray:
        """Classes of instances, shape (n_instances,)."""
        scores = self.instance_scores(X)
        return self.classes_[(scores > 0).astype(int)]

    def _bag_scores(self, bags: Bags) -> Array:
        return bags.reduce(np.maximum, self._instance_scores(bags))
