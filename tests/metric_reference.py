"""The problems of metric learning as the books have them: a conic solver, and plain loops over projections."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
from conic import solve
from numpy.typing import NDArray

from kernelweave.metric.pairs import PairSet
from kernelweave.metric.projections import Problem


def clustered(
    n_pairs: int = 12,
    h: int = 3,
    g: int = 3,
    gamma: float = 1.0,
    lam: float = 1.0,
    slack: float = 0.0,
    privileged: float = 1.0,
    seed: int = 0,
) -> Problem:
    """Pairs of 20 samples in four clusters, seen in two views; targets between the distances there are."""
    rng = np.random.default_rng(seed)
    y = np.arange(20) % 4
    X, Z = (rng.standard_normal((4, width))[y] + 0.5 * rng.standard_normal((20, width)) for width in (h, g))
    pairs = PairSet.from_classes(y, max_positives=n_pairs // 2, random_state=seed)
    pairs = pairs.with_privileged(privileged)
    targets = np.where(pairs.similar > 0, 0.4 * h, 1.5 * h)
    return Problem(X, Z, pairs, targets, gamma, lam=lam, slack=slack, slack_cost=0.7)


@dataclass
class Optimum:
    value: float
    M: NDArray
    P: NDArray


def optimum(problem: Problem) -> Optimum:
    """Both matrices and the value, from a conic solver; the privileged pairs must be feasible."""
    dx, dz = problem.pairs.differences(problem.X), problem.pairs.differences(problem.Z)
    known, targets = problem.pairs.privileged, problem.targets
    M, P = (cp.Variable((d.shape[1], d.shape[1]), PSD=True) for d in (dx, dz))
    value: Any = divergence(M) + problem.lam * divergence(P)
    constraints = []
    for k in range(len(targets)):
        xi: Any = quadratic(P, dz[k]) if known[k] else cp.Variable()
        if known[k] and problem.slack > 0:
            p = cp.Variable()
            xi = xi + problem.slack * targets[k] * p
            value += problem.slack_cost * (p - cp.log(p) - 1)
        value += problem.gamma * (xi / targets[k] - cp.log(xi / targets[k]) - 1)
        constraints.append(problem.signs[k] * (quadratic(M, dx[k]) - xi) <= 0)
    return Optimum(solve(cp.Problem(cp.Minimize(value), constraints)), M.value, P.value)


def is_feasible(problem: Problem) -> bool:
    """Whether some M and P, both at least the identity (the constraints have no scale), satisfy all pairs."""
    dx, dz = problem.pairs.differences(problem.X), problem.pairs.differences(problem.Z)
    M, P = (cp.Variable((d.shape[1], d.shape[1]), PSD=True) for d in (dx, dz))
    constraints = [M >> np.eye(dx.shape[1]), P >> np.eye(dz.shape[1])]
    constraints += [
        sign * (quadratic(M, x) - quadratic(P, z)) <= 0 for sign, x, z in zip(problem.signs, dx, dz, strict=True)
    ]
    task = cp.Problem(cp.Minimize(0), constraints)
    task.solve(solver=cp.CLARABEL)
    assert task.status in ("optimal", "infeasible"), task.status
    return task.status == "optimal"


def dual_value(problem: Problem, a: NDArray, b: NDArray) -> float:
    """The dual at multipliers a >= 0 and b; minus infinity where it is not defined."""
    dx, dz = problem.pairs.differences(problem.X), problem.pairs.differences(problem.Z)
    parts = (
        (1.0, np.linalg.eigvalsh(np.eye(dx.shape[1]) + (dx.T * (problem.signs * a)) @ dx)),
        (problem.lam, np.linalg.eigvalsh(np.eye(dz.shape[1]) - (dz.T * b) @ dz / problem.lam)),
        (problem.gamma, 1 + problem.targets * (b - problem.signs * a) / problem.gamma),
        (problem.slack_cost, 1 - problem.slack * problem.targets * b / problem.slack_cost),
    )
    if min(values.min() for _, values in parts) <= 0:
        return -np.inf
    return float(sum(weight * np.log(values).sum() for weight, values in parts))


def divergence(M: Any) -> Any:
    """LogDet divergence from the identity."""
    return cp.trace(M) - cp.log_det(M) - M.shape[0]


def quadratic(M: Any, d: NDArray) -> Any:
    return cp.sum(cp.multiply(np.outer(d, d), M))


def plain_projections(problem: Problem, order: NDArray, corrected: bool = True) -> tuple[NDArray, ...]:
    """One sweep, pair by pair, with the increments as they are printed; M, P, a, b, xi."""
    gamma, lam = problem.gamma, problem.lam
    M, P = np.eye(problem.X.shape[1]), np.eye(problem.Z.shape[1])
    a, b, xi = np.zeros(len(problem.targets)), np.zeros(len(problem.targets)), problem.targets.copy()
    dx, dz = problem.pairs.differences(problem.X), problem.pairs.differences(problem.Z)
    for k in order:
        y, r = problem.signs[k], dx[k] @ M @ dx[k]
        floor = -a[k] if corrected else 0.0
        if problem.pairs.privileged[k]:
            s = dz[k] @ P @ dz[k]
            delta = max(y * (gamma / xi[k] + lam / s - (lam + gamma) / r) / (lam + gamma + 1), floor)
            beta = lam / (lam + gamma) * (gamma / s - gamma / xi[k] + y * delta)
            b[k] += beta
            P += beta / (lam - beta * s) * np.outer(P @ dz[k], P @ dz[k])
            xi[k] = lam * s / (lam - s * beta)
        else:
            delta = max(y * gamma / (gamma + 1) * (1 / xi[k] - 1 / r), floor)
            xi[k] = 1 / (1 / xi[k] - y * delta / gamma)
        a[k] += delta
        M -= y * delta / (1 + y * delta * r) * np.outer(M @ dx[k], M @ dx[k])
    return M, P, a, b, xi


def kernelised_itml(K: NDArray, pairs: PairSet, targets: NDArray, gamma: float, sweeps: int) -> NDArray:
    """S of the matrix ``I + X' S X`` that ITML ends at after some sweeps, from the Gram matrix K = X X' only."""
    n, a, inverse_xi = len(K), np.zeros(len(targets)), 1 / targets
    current, S = K.copy(), np.zeros((n, n))
    for _ in range(sweeps):
        for k, (i, j, y) in enumerate(zip(pairs.first, pairs.second, pairs.similar, strict=True)):
            e = np.zeros(n)
            e[i], e[j] = 1, -1
            c, w = current @ e, e + S @ (K @ e)
            r = c[i] - c[j]
            delta = max(y * gamma / (gamma + 1) * (inverse_xi[k] - 1 / r), -a[k])
            factor = y * delta / (1 + y * delta * r)
            current -= factor * np.outer(c, c)
            S -= factor * np.outer(w, w)
            a[k] += delta
            inverse_xi[k] -= y * delta / gamma
    return S
