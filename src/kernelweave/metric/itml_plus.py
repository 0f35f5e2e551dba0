"""ITML with privileged information: for all pairs, for some of them, and the two-step method."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array

from .._validation import check_cost, check_number
from .cyclic import Outcome, Stopping
from .itml import ITML
from .pairs import AS_MANY, PairSet
from .space import Space

Array = NDArray[np.float64]

#: Mean squared distances of X and Z that differ by more than this factor are on different scales.
_OTHER_SCALE = 100.0


class ITMLPlus(ITML):
    """ITML+: the distance of a pair in privileged features says how far apart it is to be.

    Training samples have features Z that new samples will not have: depth beside colour, a clean picture beside a noisy
    one. A second matrix P, thrown away after training, measures pairs in Z, and takes the place of the slack of
    :class:`~kernelweave.ITML`: similar pairs are to be nearer than their privileged distance, dissimilar ones farther.

    Unlike ITML this asks something of every pair, and with many more pairs than the matrices have entries there may be
    no solution. That is noticed, usually proved, and said in a :class:`~sklearn.exceptions.ConvergenceWarning`; a
    residual `slack` makes every problem solvable.

    Parameters
    ----------
    gamma : float, default=1.0
        Price of privileged distances that miss the targets.
    lam : float, default=1.0
        Price of a P far from its prior.
    slack : float, default=0.0
        Residual slack of every pair as a share of its target, at `slack_cost`; 0 is the published method. With slack,
        the duality gap is a bound, as it is for ITML.
    slack_cost : float, default=1.0
    targets : (similar, dissimilar), optional
        Squared distances, under the prior, that similar pairs are to come below and dissimilar ones above. Left out,
        they are percentiles of the data.
    percentiles : (similar, dissimilar), default=(3, 97)
        Percentiles of the squared distances, under the prior, between training samples.
    prior, privileged_prior : "identity", "covariance" or matrix, default="identity"
        M and P without any pair. X and Z should be on one scale under them: a warning says so if they are not.
    dual_correction : bool, default=True
        Let multipliers shrink again. False is the algorithm as it was printed: it ends at a point that satisfies the
        pairs but is not the optimum, and stops when the multipliers change by less than `tol` in a sweep.
    negatives : int or "as many as positives", default="as many as positives"
        Number of dissimilar pairs that `fit` draws, see :meth:`PairSet.from_classes`.
    max_positives : int or None, default=10_000
        `fit` takes all similar pairs there are, or so many random ones if there are more.
    stopping : "gap" or "published", default="gap"
        "gap" stops when relative duality gap and worst relative violation are below `tol`; "published" after ten sweeps
        over the pairs, or when the multipliers change by less than a thousandth in one.
    tol : float, default=1e-3
    max_sweeps : int, default=200
        Sweeps over all pairs.
    shuffle : bool, default=True
        Go through the pairs in a new random order each sweep.
    random_state : int, RandomState or None, default=None
        Draws pairs and orders.
    verbose : int, default=0
        If true, print a line each sweep.

    Attributes
    ----------
    privileged_distance_ : Mahalanobis or None
        The distance of P, for privileged features; None if there were none.
    privileged_multipliers_ : ndarray, shape (n_pairs,)
        Multipliers b of ``xi_k = s_k``; zero for pairs without privileged features.
    feasible_ : bool
        Whether no pair is violated by more than `tol`, relative.
    others
        As in :class:`~kernelweave.ITML`. Without slack, `objective_` is the value at matrices that violate pairs by up
        to `violation_`, so that it may be a little below `dual_objective_`, which is a bound always.

    Examples
    --------
    >>> import kernelweave as kw
    >>> X, Z, y = kw.datasets.make_privileged(n_identities=8, random_state=0)
    >>> model = kw.ITMLPlus(gamma=0.1, max_positives=100, random_state=0).fit(X, y, Z=Z)
    >>> model.feasible_, model.gap_ < 1e-3
    (True, True)
    >>> model.transform(X).shape == X.shape  # privileged features are no longer needed
    True
    """

    def __init__(
        self,
        gamma: float = 1.0,
        lam: float = 1.0,
        slack: float = 0.0,
        slack_cost: float = 1.0,
        targets: tuple[float, float] | None = None,
        percentiles: tuple[float, float] = (3.0, 97.0),
        prior: str | ArrayLike = "identity",
        privileged_prior: str | ArrayLike = "identity",
        dual_correction: bool = True,
        negatives: int | str = AS_MANY,
        max_positives: int | None = 10_000,
        stopping: str = "gap",
        tol: float = 1e-3,
        max_sweeps: int = 200,
        shuffle: bool = True,
        random_state: int | RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            gamma=gamma,
            targets=targets,
            percentiles=percentiles,
            prior=prior,
            negatives=negatives,
            max_positives=max_positives,
            stopping=stopping,
            tol=tol,
            max_sweeps=max_sweeps,
            shuffle=shuffle,
            random_state=random_state,
            verbose=verbose,
        )
        self.lam = lam
        self.slack = slack
        self.slack_cost = slack_cost
        self.privileged_prior = privileged_prior
        self.dual_correction = dual_correction

    def _corrected(self) -> bool:
        return self.dual_correction

    def _privileged_settings(self) -> dict[str, float]:
        check_cost("lam", self.lam)
        check_cost("slack_cost", self.slack_cost)
        check_number("slack", self.slack, "zero (none) or positive", lambda slack: 0 <= slack < np.inf)
        return {"lam": self.lam, "slack": self.slack, "slack_cost": self.slack_cost}

    def _privileged(self, pairs: PairSet, Z: Any, n_samples: int) -> tuple[PairSet, Array]:
        self._privileged_space: Space | None = None
        if Z is None:
            _warn_no_privileged(self, "no privileged features Z were given")
            return pairs.with_privileged(0.0), np.zeros((n_samples, 0))
        Z, known = _read_privileged(Z, n_samples)
        pairs = self._usable(pairs, known)
        if not pairs.privileged.any():
            return pairs, np.zeros((n_samples, 0))
        self._privileged_space = Space.of(Z[known], self.privileged_prior, "privileged_prior")
        rows = np.zeros((n_samples, self._privileged_space.n_axes))
        rows[known] = self._privileged_space.rows
        _warn_other_scale(self._space.rows, self._privileged_space.rows)
        return pairs, rows

    def _usable(self, pairs: PairSet, known: NDArray[np.bool_]) -> PairSet:
        """The pairs, marked where privileged features are known: here all must be."""
        lacking = ~(pairs.privileged & known[pairs.first] & known[pairs.second])
        if lacking.any():
            raise ValueError(
                f"{np.count_nonzero(lacking)} of {len(pairs)} pairs have no privileged features (not marked as "
                "privileged, or NaN in Z). Use PartialITMLPlus, which takes them as they are."
            )
        return pairs

    def _store(self, outcome: Outcome, stopping: Stopping) -> None:
        super()._store(outcome, stopping)
        space = self._privileged_space
        self.privileged_distance_ = None if space is None else space.distance(outcome.state.P)
        del self._privileged_space
        self.privileged_multipliers_ = outcome.state.b


class PartialITMLPlus(ITMLPlus):
    """ITML+ where privileged features are known for some pairs only.

    Pairs with privileged features are treated as by :class:`~kernelweave.ITMLPlus`, the others as by
    :class:`~kernelweave.ITML`; with all or none of them it is the same as these. A pair counts as privileged if the
    pair set marks it and neither of its rows of Z has a NaN.

    Parameters and attributes are those of :class:`~kernelweave.ITMLPlus`.

    Examples
    --------
    >>> import numpy as np
    >>> import kernelweave as kw
    >>> X, Z, y = kw.datasets.make_privileged(n_identities=8, random_state=0)
    >>> Z[: len(Z) // 2] = np.nan  # nobody measured these
    >>> model = kw.PartialITMLPlus(gamma=0.1, max_positives=100, random_state=0).fit(X, y, Z=Z)
    >>> bool(model.pairs_.privileged.mean() < 0.5)
    True
    """

    def _usable(self, pairs: PairSet, known: NDArray[np.bool_]) -> PairSet:
        usable = pairs.privileged & known[pairs.first] & known[pairs.second]
        if pairs.privileged.any() and not usable.any():
            _warn_no_privileged(self, "in every pair that is marked as privileged, a row of Z has a NaN")
        return PairSet(pairs.first, pairs.second, pairs.similar, usable)


class ITMLS(ITML):
    """Two steps: pairs that look wrong in privileged features are left out, and ITML learns from the others.

    ITML on Z first; then the similar pairs with the largest and the dissimilar pairs with the smallest distances
    learned there are removed; then ITML on X.

    Parameters
    ----------
    gamma : float, default=1.0
        Price of missing targets, in both steps.
    removed : float, default=0.1
        Share of the similar and of the dissimilar pairs that is removed.
    targets, percentiles, prior, negatives, max_positives, stopping, tol, max_sweeps, shuffle, random_state, verbose
        As for :class:`~kernelweave.ITML`; `targets` and `prior` are for X, and Z has percentiles and the identity.

    Attributes
    ----------
    privileged_model_ : ITML or None
        The first step; None if there were no privileged features.
    others
        As in :class:`~kernelweave.ITML`; `pairs_` are those that were kept.

    Examples
    --------
    >>> import kernelweave as kw
    >>> X, Z, y = kw.datasets.make_privileged(n_identities=8, random_state=0)
    >>> model = kw.ITMLS(removed=0.2, max_positives=100, random_state=0).fit(X, y, Z=Z)
    >>> model.pairs_
    PairSet(80 similar, 80 dissimilar, 0 with privileged features)
    """

    def __init__(
        self,
        gamma: float = 1.0,
        removed: float = 0.1,
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
        super().__init__(
            gamma=gamma,
            targets=targets,
            percentiles=percentiles,
            prior=prior,
            negatives=negatives,
            max_positives=max_positives,
            stopping=stopping,
            tol=tol,
            max_sweeps=max_sweeps,
            shuffle=shuffle,
            random_state=random_state,
            verbose=verbose,
        )
        self.removed = removed

    def _fit(self, pairs: PairSet, X: Array, Z: Any, rng: RandomState) -> ITML:
        if not 0 <= self.removed < 1:
            raise ValueError(f"removed must be a share in [0, 1), got {self.removed!r}.")
        self.privileged_model_ = None
        if Z is None:
            _warn_no_privileged(self, "no privileged features Z were given")
            return super()._fit(pairs, X, None, rng)
        Z, known = _read_privileged(Z, len(X))
        unknown = ~(known[pairs.first] & known[pairs.second])
        if unknown.any():
            raise ValueError(
                f"{np.count_nonzero(unknown)} of {len(pairs)} pairs have a NaN in Z. ITMLS must see every pair; leave "
                "these out (pairs.subset), or use PartialITMLPlus."
            )
        first_step = ITML(
            gamma=self.gamma,
            percentiles=self.percentiles,
            stopping=self.stopping,
            tol=self.tol,
            max_sweeps=self.max_sweeps,
            shuffle=self.shuffle,
            random_state=rng,
            verbose=self.verbose,
        )
        self.privileged_model_ = first_step.fit_pairs(pairs, np.where(known[:, None], Z, 0.0))
        distances = self.privileged_model_.pair_distance(Z[pairs.first], Z[pairs.second])
        return super()._fit(pairs.subset(_plausible(pairs, distances, self.removed)), X, None, rng)


def _plausible(pairs: PairSet, distances: Array, removed: float) -> NDArray[np.intp]:
    """Pairs, in their order, without the share `removed` of each kind whose distances fit the kind least."""
    kept = []
    for sign in (1, -1):
        members = np.flatnonzero(pairs.similar == sign)
        best_first = members[np.argsort(sign * distances[members], kind="stable")]
        kept.append(best_first[: len(members) - round(removed * len(members))])
    return np.sort(np.concatenate(kept))


def _read_privileged(Z: Any, n_samples: int) -> tuple[Array, NDArray[np.bool_]]:
    """Privileged features and the rows that have no NaN."""
    Z = check_array(Z, dtype=np.float64, ensure_all_finite="allow-nan", input_name="Z")
    if len(Z) != n_samples:
        raise ValueError(f"Z must have one row a sample, as X has: got {len(Z)} and {n_samples} rows.")
    return Z, ~np.isnan(Z).any(axis=1)


def _warn_no_privileged(estimator: ITML, reason: str) -> None:
    warnings.warn(f"{reason}: {type(estimator).__name__} learns what ITML would learn.", UserWarning, stacklevel=5)


def _warn_other_scale(rows: Array, privileged_rows: Array) -> None:
    ratio = np.mean(np.sum(rows**2, axis=1)) / max(np.mean(np.sum(privileged_rows**2, axis=1)), np.finfo(float).tiny)
    if not 1 / _OTHER_SCALE < ratio < _OTHER_SCALE:
        warnings.warn(
            f"squared distances in X are {ratio:.2g} times those in Z: privileged distances start far from all "
            "targets. Scale both alike (a StandardScaler for each, say), or set privileged_prior.",
            UserWarning,
            stacklevel=5,
        )
