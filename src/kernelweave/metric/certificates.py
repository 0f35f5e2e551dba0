"""How good a point is: primal and dual values, violations, and proofs that a problem has no solution."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .projections import Problem, State, squared_distances, weighted_outer

Array = NDArray[np.float64]

#: Eigenvalues may be negative by this share of the largest: that is rounding.
_ROUNDING = 1e-10
#: Values below this are those of the prior, which has the value zero, and rounding.
_NOTHING = 1e-8


@dataclass(frozen=True)
class Certificate:
    """Value of a point, a bound that no point is below, and how far the point is from what is asked."""

    objective: float
    dual: float
    violation: float  # worst of all pairs, relative
    hard_violation: float  # worst of the pairs that have no slack

    @property
    def gap(self) -> float:
        """Relative duality gap. Where pairs have no slack, the objective is that of a point that violates them by
        `hard_violation`, and the gap says something only together with it."""
        return abs(self.objective - self.dual) / max(abs(self.objective), abs(self.dual), _NOTHING)


def certify(problem: Problem, state: State) -> Certificate:
    """Primal and dual value at the matrices and multipliers of `state`."""
    pairs, targets = problem.pairs, problem.targets
    r = squared_distances(problem.X, state.M, pairs)
    s = np.ones(len(pairs))
    known = pairs.privileged
    if known.any():
        s[known] = squared_distances(problem.Z, state.P, pairs.subset(known))
    xi = np.where(known, s + problem.slack * targets / state.inverse_p, 1 / state.inverse_xi)
    violations = np.maximum(problem.signs * (r - xi) / np.maximum(r, xi), 0.0)
    log_det_m, log_det_p = _log_det(state.M), _log_det(state.P)
    dual = (
        -log_det_m
        - problem.lam * log_det_p
        + problem.gamma * float(np.log(targets * state.inverse_xi).sum())
        + problem.slack_cost * float(np.log(state.inverse_p).sum())
    )
    fixed = np.trace(state.M) - log_det_m - len(state.M)
    objective = fixed + min(_rest(problem, state, r, s, log_det_p, scale) for scale in _scales(problem, state, r, s))
    return Certificate(
        objective=float(objective),
        dual=float(dual),
        violation=float(violations.max(initial=0.0)),
        hard_violation=float(violations[problem.hard].max(initial=0.0)),
    )


def _scales(problem: Problem, state: State, r: Array, s: Array) -> list[float]:
    """Factors of P with which slack can make M feasible; just 1 where there is no such slack.

    A dissimilar pair needs s < r, and shrinking P makes it so: enough to keep the slack that its multipliers stand for,
    or nearly down to r where that is more than r.
    """
    apart = problem.pairs.privileged & (problem.signs < 0)
    if problem.slack == 0 or not apart.any():
        return [1.0]
    r, s, kept = r[apart], s[apart], (problem.slack * problem.targets / state.inverse_p)[apart]
    shrunk = min(1.0, float(np.max([(r - kept) / s, 0.9 * r / s], axis=0).min()))
    return [1.0, shrunk] if (s < r).all() else [shrunk]


def _rest(problem: Problem, state: State, r: Array, s: Array, log_det_p: float, scale: float) -> float:
    """The objective without its term in M, at P times `scale` and the slacks nearest to those of the multipliers."""
    similar, known, targets = problem.signs > 0, problem.pairs.privileged, problem.targets
    xi = np.where(similar, np.maximum(r, targets), np.minimum(r, targets))
    p = 1 / state.inverse_p  # 1 for pairs without slack
    if problem.slack > 0:
        needed = (r - scale * s) / (problem.slack * targets)
        p[known] = np.where(similar, np.maximum(p, needed), np.minimum(p, needed))[known]
    xi[known] = (scale * s + problem.slack * targets * p)[known]
    log_det_p += len(state.P) * np.log(scale)
    return (
        problem.lam * (scale * np.trace(state.P) - log_det_p - len(state.P))
        + problem.gamma * _divergence(xi / targets)
        + problem.slack_cost * _divergence(p)
    )


def proves_infeasible(problem: Problem, state: State) -> bool:
    """Whether the multipliers prove that no distances satisfy all pairs that have no slack.

    With A = sum_k sign_k a_k dx_k dx_k' and B = - sum_k sign_k a_k dz_k dz_k' over these pairs, any solution (M, P) has
    tr(M A) + tr(P B) = sum_k a_k sign_k (r_k - s_k) <= 0: impossible if A and B have no negative eigenvalue and are not
    both zero. Multipliers of a problem without a solution grow into such a proof.
    """
    weights = np.where(problem.hard, problem.signs * state.a, 0.0)
    if not weights.any():
        return False
    ranges = [
        np.linalg.eigvalsh(sign * weighted_outer(features, problem.pairs, weights))
        for features, sign in ((problem.X, 1.0), (problem.Z, -1.0))
    ]
    return all(np.isfinite(values).all() and values[0] >= -_ROUNDING * values[-1] for values in ranges) and any(
        values[-1] > 0 for values in ranges
    )


def _log_det(M: Array) -> float:
    return float(np.linalg.slogdet(M)[1])


def _divergence(ratios: Array) -> float:
    return float(np.sum(ratios - np.log(ratios) - 1))
