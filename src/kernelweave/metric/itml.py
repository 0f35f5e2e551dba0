"""ITML: a distance close to a given one that brings similar pairs together and keeps dissimilar ones apart."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from .._validation import check_cost, check_number
from .base import MetricEstimator
from .cyclic import PUBLISHED, Outcome, Stopping, advice, run
from .pairs import AS_MANY, PairSet
from .projections import Problem, squared_distances
from .space import Space
from .targets import given_targets, percentile_targets

Array = NDArray[np.float64]

#: Squared distances below this share of the mean one are those of a sample and its copy.
_COPY = 1e-18


class ITML(MetricEstimator):
    """Information-theoretic metric learning.

    Learns the matrix M of the squared distance ``(a - b)' M (a - b)`` that is closest to a prior, in LogDet divergence,
    while similar pairs come nearer than a small target and dissimilar pairs farther than a large one. Every pair may
    miss its target at a price, `gamma`, so that there is always a solution; its duality gap is known.

    Parameters
    ----------
    gamma : float, default=1.0
        Price of missing targets. Large: the pairs decide; small: the distance stays close to the prior.
    targets : (similar, dissimilar), optional
        Squared distances, under the prior, that similar pairs are to come below and dissimilar ones above. Left out,
        they are percentiles of the data.
    percentiles : (similar, dissimilar), default=(3, 97)
        Percentiles of the squared distances, under the prior, between training samples.
    prior : "identity", "covariance" or matrix of shape (n_features, n_features), default="identity"
        The distance that is known without any pair. "covariance" is the inverse of the covariance of the data.
    negatives : int or "as many as positives", default="as many as positives"
        Number of dissimilar pairs that `fit` draws, see :meth:`PairSet.from_classes`.
    max_positives : int or None, default=10_000
        `fit` takes all similar pairs there are, or so many random ones if there are more.
    stopping : "gap" or "published", default="gap"
        "gap" stops at a relative duality gap of `tol`; "published" after ten sweeps over the pairs, or when the
        multipliers change by less than a thousandth in one.
    tol : float, default=1e-3
    max_sweeps : int, default=200
        Sweeps over all pairs.
    shuffle : bool, default=True
        Go through the pairs in a new random order each sweep. The other choice, the order given, can be many times
        slower, above all where all similar pairs come first.
    random_state : int, RandomState or None, default=None
        Draws pairs and orders.
    verbose : int, default=0
        If true, print a line each sweep.

    Attributes
    ----------
    metric_ : ndarray, shape (n_features, n_features)
        M.
    components_ : ndarray, shape (n_components, n_features)
        The map of :meth:`transform`; ``metric_ = components_.T @ components_``.
    distance_ : Mahalanobis
        What :meth:`get_metric` returns.
    targets_ : (similar, dissimilar)
    pairs_ : PairSet
        The pairs learned from; pairs of a sample and its copy, which say nothing about distances, are left out.
    multipliers_ : ndarray, shape (n_pairs,)
        How hard every pair of `pairs_` pulls; zero for pairs that are right by themselves.
    objective_, dual_objective_ : float
        Value reached, and a bound that no distance is below.
    gap_ : float
        Difference of the two, relative.
    violation_ : float
        Worst relative violation of a pair, with the slacks that belong to the multipliers.
    feasible_ : bool
        Always true here, where every pair has slack.
    converged_ : bool
    n_sweeps_ : int
    history_ : structured ndarray, a row a sweep
    n_features_in_ : int

    See Also
    --------
    kernelweave.ITMLPlus : with features that only training samples have.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.model_selection import cross_val_score
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> from sklearn.pipeline import make_pipeline
    >>> import kernelweave as kw
    >>> X, y = load_wine(return_X_y=True)
    >>> print(round(cross_val_score(KNeighborsClassifier(), X, y).mean(), 2))
    0.69
    >>> learned = make_pipeline(kw.ITML(prior="covariance", random_state=0), KNeighborsClassifier())
    >>> print(round(cross_val_score(learned, X, y).mean(), 2))
    0.98
    """

    def __init__(
        self,
        gamma: float = 1.0,
        targets: tuple[float, float] | None = None,
        percentiles: tuple[float, float] = (3.0, 97.0),
        prior: str | ArrayLike = "identity",
        negatives: int | str = AS_MANY,
        max_positives: int | None = 10_000,
        stopping: str = "gap",
        tol: float = 1e-3,
        max_sweeps: int = 200,
        shuffle: bool = True,
        random_state: int | RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.gamma = gamma
        self.targets = targets
        self.percentiles = percentiles
        self.prior = prior
        self.negatives = negatives
        self.max_positives = max_positives
        self.stopping = stopping
        self.tol = tol
        self.max_sweeps = max_sweeps
        self.shuffle = shuffle
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def fit(self, X: Any, y: Any = None, Z: Any = None) -> ITML:
        """Learn from pairs that are made of classes.

        Parameters
        ----------
        X : array-like, shape (n_samples, n_features)
        y : array-like, shape (n_samples,)
            Classes.
        Z : array-like, shape (n_samples, n_privileged_features), optional
            Privileged features, for the estimators that use them.

        Returns
        -------
        self
        """
        if y is None:
            raise ValueError(
                f"This {type(self).__name__} requires y to be passed, but the target y is None; with pairs instead of "
                "classes, call fit_pairs."
            )
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2)
        rng = check_random_state(self.random_state)
        return self._fit(PairSet.from_classes(y, self.negatives, self.max_positives, rng), X, Z, rng)

    def fit_pairs(self, pairs: PairSet, X: Any, Z: Any = None) -> ITML:
        """Learn from pairs.

        Parameters
        ----------
        pairs : PairSet
        X : array-like, shape (n_samples, n_features)
        Z : array-like, shape (n_samples, n_privileged_features), optional
            Privileged features, for the estimators that use them.

        Returns
        -------
        self
        """
        X = validate_data(self, X, dtype=np.float64, ensure_min_samples=2)
        if not isinstance(pairs, PairSet):
            raise TypeError(f"pairs must be a PairSet, got {type(pairs).__name__}: PairSet(first, second, similar).")
        pairs.check_rows(len(X))
        return self._fit(pairs, X, Z, check_random_state(self.random_state))

    def _fit(self, pairs: PairSet, X: Array, Z: Any, rng: RandomState) -> ITML:
        stopping = self._stopping()
        check_cost("gamma", self.gamma)
        _warn_one_sided(pairs)
        self._space = Space.of(X, self.prior, "prior")
        rows = self._space.rows
        self.targets_ = (
            percentile_targets(rows, self.percentiles, rng) if self.targets is None else given_targets(self.targets)
        )
        pairs, privileged_rows = self._privileged(pairs, Z, len(X))
        self.pairs_ = _without_copies(pairs, rows, privileged_rows)
        targets = np.where(self.pairs_.similar > 0, *self.targets_)
        problem = Problem(rows, privileged_rows, self.pairs_, targets, self.gamma, **self._privileged_settings())
        corrected = self._corrected()
        outcome = run(problem, stopping, corrected, self.shuffle, rng, self._say if self.verbose else None)
        message = advice(outcome, problem, stopping)
        if message is not None:
            warnings.warn(message, ConvergenceWarning, stacklevel=3)
        self._store(outcome, stopping)
        return self

    def _stopping(self) -> Stopping:
        if self.stopping not in ("gap", "published"):
            raise ValueError(f"stopping must be 'gap' or 'published', got {self.stopping!r}.")
        if self.stopping == "published":
            return PUBLISHED
        check_cost("tol", self.tol)
        check_number("max_sweeps", self.max_sweeps, "at least 1", lambda most: most >= 1)
        # Without the correction the limit is not the optimum, and no gap closes.
        return Stopping("gap" if self._corrected() else "change", self.tol, self.max_sweeps)

    def _corrected(self) -> bool:
        return True

    def _privileged(self, pairs: PairSet, Z: Any, n_samples: int) -> tuple[PairSet, Array]:
        """The pairs, marked where privileged features can be used, and these features: here there are none."""
        return pairs.with_privileged(0.0), np.zeros((n_samples, 0))

    def _privileged_settings(self) -> dict[str, float]:
        return {}

    def _store(self, outcome: Outcome, stopping: Stopping) -> None:
        certificate = outcome.certificate
        self.distance_ = self._space.distance(outcome.state.M)
        del self._space  # holds the training samples
        self.multipliers_ = outcome.state.a
        self.objective_ = certificate.objective
        self.dual_objective_ = certificate.dual
        self.gap_ = certificate.gap
        self.violation_ = certificate.violation
        self.feasible_ = not outcome.infeasible and certificate.hard_violation <= stopping.tol
        self.converged_ = outcome.converged
        self.n_sweeps_ = len(outcome.history)
        self.history_ = outcome.history

    def _say(self, row: np.void) -> None:
        print(
            f"[kernelweave] sweep {row['sweep']}: objective {row['objective']:.6g}, gap {row['gap']:.2g}, "
            f"violation {row['violation']:.2g}, {row['seconds']:.2f} s",
            file=sys.stderr,
        )


def _warn_one_sided(pairs: PairSet) -> None:
    if not len(pairs):
        raise ValueError("there are no pairs to learn from.")
    if pairs.n_similar and pairs.n_dissimilar:
        return
    kind, other, consequence = (
        ("similar", "dissimilar", "shrinks every direction they differ in")
        if pairs.n_similar
        else ("dissimilar", "similar", "stretches every direction they differ in")
    )
    warnings.warn(
        f"all {len(pairs)} pairs are {kind}: a distance learned from them only {consequence}. Add {other} pairs.",
        UserWarning,
        stacklevel=4,
    )


def _without_copies(pairs: PairSet, rows: Array, privileged_rows: Array) -> PairSet:
    """The pairs, without those that no matrix can bring nearer or farther because both samples are the same."""
    squared = squared_distances(rows, np.eye(rows.shape[1]), pairs)
    same = squared <= _COPY * squared.mean()
    known = np.flatnonzero(pairs.privileged)
    if len(known):
        squared = squared_distances(privileged_rows, np.eye(privileged_rows.shape[1]), pairs.subset(known))
        same[known] |= squared <= _COPY * squared.mean()
    if not same.any():
        return pairs
    if same.all():
        raise ValueError(
            f"in each of the {len(pairs)} pairs both samples have the same features: nothing to learn from."
        )
    warnings.warn(
        f"{np.count_nonzero(same)} of {len(pairs)} pairs are left out: their two samples have the same features (main "
        "or privileged), and no distance can tell them apart.",
        UserWarning,
        stacklevel=4,
    )
    return pairs.subset(~same)
