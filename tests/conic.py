"""Optimal values from a conic solver: every machine and every weight set written as the books have them.

    max over v   S(v) - support(h(v)),      h_j = 1/2 sum_k ||L_j' v_k||^2,   K_j = L_j L_j'

The machine says what S and the constraints on v are, the weight set what its support function is. Both are written in
cvxpy only, with nothing taken from the package but the parameters. Meant for about 40 samples and 6 kernels.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from kernelweave.machines import SVM, Machine, NuSVM, Ridge
from kernelweave.weights import (
    BlockElasticNet,
    CappedSimplex,
    ElasticNet,
    ElasticNetBall,
    Entropy,
    Grouped,
    LpBall,
    PowerPenalty,
    Simplex,
    TikhonovLp,
    WeightSet,
)
from kernelweave.weights.fixed import OnePoint

#: Where 1e-9 is out of reach (mostly the simplex), the solver must still vouch for 1e-6 by its own residuals. The 1e-7
#: that tests allow for is therefore not its guarantee: it is what was seen beside certified bounds (at most 3e-8).
PRECISE = {f"tol_{what}": 1e-9 for what in ("gap_rel", "gap_abs", "feas")}
PRECISE |= {f"reduced_tol_{what}": 1e-6 for what in ("gap_rel", "gap_abs", "feas")}
#: Ways to the same precision. Close to it an iteration can break down by rounding, which processors do differently:
#: shorter steps, another factorisation or less regularisation then go another way.
WAYS: tuple[dict[str, Any], ...] = (
    {},
    {"max_step_fraction": 0.8},
    {"direct_solve_method": "faer"},
    {"static_regularization_constant": 1e-10},
)


@dataclass
class Optimum:
    """Optimal value, signed duals (n, m) and energies h (s,)."""

    value: float
    coef: NDArray
    h: NDArray


def optimum(weight_set: WeightSet, machine: Machine, Ks: NDArray, Y: NDArray) -> Optimum:
    """The saddle point of kernels `Ks` (s, n, n) with targets `Y`, (n,) or (n, m)."""
    Y = Y.reshape(len(Y), -1)
    V = cp.Variable(Y.shape)
    linear, constraints = dual_machine(machine, V, Y)
    norms = cp.Variable(len(Ks), nonneg=True)  # sqrt(2 h_j), or more where that costs nothing
    constraints += [cp.norm(root(K).T @ V, "fro") <= norms[j] for j, K in enumerate(Ks)]
    problem = cp.Problem(cp.Maximize(linear - support(weight_set, norms, constraints)), constraints)
    return Optimum(solve(problem), V.value, np.array([0.5 * np.sum(V.value * (K @ V.value)) for K in Ks]))


def solve(problem: cp.Problem) -> float:
    for way in WAYS:
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="Solution may be inaccurate")  # 1e-6 instead of 1e-9
                value = problem.solve(solver=cp.CLARABEL, warm_start=False, **PRECISE, **way)
        except cp.SolverError:
            continue
        assert problem.status in ("optimal", "optimal_inaccurate"), problem.status
        return float(value)
    raise AssertionError("the conic solver broke down in every way")


def root(K: NDArray) -> NDArray:
    """L with K = L L', without the directions that are rounding only."""
    values, vectors = np.linalg.eigh(np.asarray(K, dtype=float))
    kept = values > 1e-13 * max(values[-1], 1e-300)
    return vectors[:, kept] * np.sqrt(values[kept]) if kept.any() else np.zeros((len(K), 1))


def dual_machine(machine: Machine, V: cp.Variable, Y: NDArray) -> tuple[Any, list[Any]]:
    """S(v) and the constraints on the signed duals v."""
    n = len(Y)
    if isinstance(machine, Ridge):
        weight = np.ones(n) if machine.sample_weight is None else machine.sample_weight
        spent = [cp.sum_squares(cp.multiply(V[:, k], 1 / np.sqrt(machine.C * weight))) for k in range(Y.shape[1])]
        kept = [cp.sum(V, axis=0) == 0] if machine.fit_intercept else []
        return cp.sum(cp.multiply(V, Y)) - 0.5 * cp.sum(cp.hstack(spent)), kept
    alpha = cp.multiply(V, Y)
    if isinstance(machine, NuSVM):
        sides = [cp.sum(alpha[Y[:, k] == side, k]) == 0.5 for k in range(Y.shape[1]) for side in (-1, 1)]
        return 0.0, [alpha >= 0, alpha <= 1 / (machine.nu * n), *sides]
    assert isinstance(machine, SVM) and machine.class_weight is None
    costs = machine.C * (np.ones(n) if machine.sample_weight is None else machine.sample_weight)
    kept = [cp.sum(V, axis=0) == 0] if machine.fit_intercept else []
    return cp.sum(alpha), [alpha >= 0, alpha <= np.tile(costs[:, None], Y.shape[1]), *kept]


def support(weight_set: WeightSet, norms: cp.Variable, constraints: list[Any]) -> Any:
    """``max over b in B of b.h - R(b)`` as a convex expression in ``norms_j = sqrt(2 h_j)``."""
    h = cp.square(norms) / 2
    match weight_set:
        case OnePoint():
            return weight_set.start(norms.size) @ h
        case Simplex():
            return cp.max(h)
        case LpBall(p=p):
            return lp_norm(h, conjugate(p))
        case TikhonovLp(p=p, strength=strength):
            return cp.square(lp_norm(h, conjugate(p))) / (2 * strength)
        case Entropy(tau=tau):
            return tau * cp.log_sum_exp(h / tau)
        case CappedSimplex():
            # Lagrange: min over tau of  tau + max over 0 <= b <= theta of  b.(h - tau), the price of the slacks
            tau = cp.Variable()
            return tau + cap_of(weight_set, norms.size) * cp.sum(cp.pos(h - tau))
        case ElasticNet(theta=theta):
            tau = cp.Variable()
            return tau + theta / 2 * cp.sum(cp.square(cp.pos(h - tau)))
        case PowerPenalty(p=p, theta=theta):
            tau = cp.Variable()
            return tau + theta / 2 * cp.sum(cp.power(cp.pos(h - tau), conjugate(p)))
        case ElasticNetBall(v=1.0):
            return cp.max(h)
        case ElasticNetBall(v=v):
            # Lagrange: min over eta of  eta + max over b >= 0 of  b.h - eta (v sum b + (1-v) sum b^2)
            eta, above = cp.Variable(nonneg=True), cp.Variable(norms.size, nonneg=True)
            constraints.append(above >= h - eta * v)
            return eta + cp.quad_over_lin(above, eta) / (4 * (1 - v))
        case BlockElasticNet(mu=mu):
            return cp.sum_squares(cp.pos(norms - (1 - mu))) / (2 * mu)
        case Grouped(groups=groups, r=r):
            largest = cp.hstack([cp.max(norms[list(members)]) for members in groups])
            return cp.square(lp_norm(largest, 1.0 if r == np.inf else 2 * r / (2 * r - 1))) / 2
    raise ValueError(f"no conic form of {weight_set!r} was written")


def cap_of(weight_set: CappedSimplex, n_kernels: int) -> float:
    return 1 / (weight_set.nu * n_kernels) if weight_set.theta is None else weight_set.theta


def conjugate(p: float) -> float:
    return np.inf if p == 1 else 1.0 if p == np.inf else p / (p - 1)


def lp_norm(x: Any, p: float) -> Any:
    return cp.max(x) if p == np.inf else cp.sum(x) if p == 1 else cp.pnorm(x, p)


def hinge_primal(machine: SVM, K: NDArray, y: NDArray) -> tuple[float, NDArray]:
    """Primal SVM in the feature space of K: value and decision values without the bias."""
    L = root(K)
    w, b = cp.Variable(L.shape[1]), cp.Variable()
    costs = machine.C * (np.ones(len(y)) if machine.sample_weight is None else machine.sample_weight)
    errors = cp.pos(1 - cp.multiply(y, L @ w + (b if machine.fit_intercept else 0.0)))
    problem = cp.Problem(cp.Minimize(cp.sum_squares(w) / 2 + costs @ errors))
    return solve(problem), L @ w.value
