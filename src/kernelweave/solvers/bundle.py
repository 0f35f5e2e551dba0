"""Cuts: lower models of the optimal value, shared by the cutting-plane and the level method.

A point (S, h) with any feasible a gives a cut   J(b) >= S - b.h.   The model's minimum over B,

    theta = min over b in B of      max_i (S_i - b.h_i) + R(b)
          = max over mu in simplex  mu.S - support(sum_i mu_i h_i),

is a lower bound on the optimum. On a polytope it is a linear program (HiGHS); elsewhere the right-hand side is a smooth
concave problem in one multiplier a cut, valid as a bound at every mu, with b the best response to sum_i mu_i h_i.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog, minimize

from ..weights import WeightSet
from .saddle import Array, Point

#: Beyond this many cuts, those with no multiplier for this many rounds are dropped: a linear program has room for many,
#: the smooth master takes time cubic in their number.
_MANY_LINEAR, _MANY_SMOOTH, _IDLE = 100, 24, 20
#: Ways to solve the linear program: where cuts are nearly parallel, HiGHS may fail in one and succeed in another. The
#: last is less precise, which costs tightness of the bound and nothing else: any multipliers give one.
_PRECISE = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
_WAYS: tuple[tuple[str, dict[str, float]], ...] = (
    ("highs", _PRECISE),
    ("highs-ds", _PRECISE | {"presolve": False}),
    ("highs-ipm", _PRECISE),
    ("highs", {}),
)


class Bundle:
    """Collects cuts and minimises their maximum over a weight set."""

    def __init__(self, weights: WeightSet) -> None:
        self.weights = weights
        self._constants: list[float] = []
        self._slopes: list[Array] = []
        self._multipliers: list[float] = []
        self._idle: list[int] = []

    @property
    def works(self) -> bool:
        """Whether the weight set allows a master problem."""
        return self.weights.is_linear or self.weights.is_smooth

    def add(self, point: Point) -> None:
        """The cut of a point."""
        self._constants.append(point.solution.linear)
        self._slopes.append(point.h)
        self._multipliers.append(0.0)
        self._idle.append(0)

    @property
    def constants(self) -> Array:
        """S_i, shape (n_cuts,)."""
        return np.array(self._constants)

    @property
    def slopes(self) -> Array:
        """h_i, shape (n_cuts, n_kernels)."""
        return np.array(self._slopes)

    def minimum(self) -> tuple[Array, float]:
        """Weights that minimise the model, and the lower bound they prove."""
        if self.weights.is_linear:
            weights, multipliers = self._linear_program()
        else:
            weights, multipliers = self._smooth_dual()
        mixture = multipliers @ self.slopes
        bound = float(multipliers @ self.constants) - self.weights.support(mixture)
        self._prune(multipliers)
        return weights, bound

    def _size(self) -> float:
        """What cuts are divided by, so that the latest is near one; S alone will not do: it is zero for a nu-SVM."""
        return max(abs(self._constants[-1]), float(np.abs(self._slopes[-1]).max()), np.finfo(float).tiny)

    def _linear_program(self) -> tuple[Array, Array]:
        S, H = self.constants, self.slopes
        size = self._size()
        A_ub, b_ub, A_eq, b_eq, bounds = self.weights.linear_constraints(H.shape[1])

        def widened(A: Array | None) -> Array | None:
            return None if A is None else np.hstack([A, np.zeros((len(A), 1))])

        cuts = np.hstack([-H / size, -np.ones((len(H), 1))])
        own = widened(A_ub)
        for method, options in _WAYS:
            answer = linprog(
                np.append(np.zeros(H.shape[1]), 1.0),
                A_ub=cuts if own is None else np.vstack([cuts, own]),
                b_ub=-S / size if own is None else np.concatenate([-S / size, b_ub]),
                A_eq=widened(A_eq),
                b_eq=b_eq,
                bounds=[*bounds, (None, None)],
                method=method,
                options=options,
            )
            if answer.status == 0:
                multipliers = np.maximum(-answer.ineqlin.marginals[: len(H)], 0.0)
                return np.maximum(answer.x[:-1], 0.0), multipliers / multipliers.sum()
        raise ArithmeticError(f"The linear program of the cutting-plane model failed: {answer.message}")

    def _smooth_dual(self) -> tuple[Array, Array]:
        S, H = self.constants, self.slopes
        size = self._size()

        def negated(mu: Array) -> tuple[float, Array]:
            mixture = np.maximum(mu, 0) @ H
            slope = S - H @ self.weights.respond(mixture)
            return (self.weights.support(mixture) - float(mu @ S)) / size, -slope / size

        start = np.array(self._multipliers)
        start = np.append(0.5 * start[:-1], 0.5) if len(start) > 1 and start.sum() > 0 else np.full(len(S), 1 / len(S))
        answer = minimize(
            negated,
            start / start.sum(),
            jac=True,
            bounds=[(0.0, 1.0)] * len(S),
            constraints={"type": "eq", "fun": lambda mu: mu.sum() - 1.0, "jac": np.ones_like},
            method="SLSQP",
            options={"ftol": 1e-13, "maxiter": 200},
        )
        multipliers = np.maximum(answer.x, 0.0)
        multipliers /= multipliers.sum()
        return self.weights.respond(multipliers @ H), multipliers

    def _prune(self, multipliers: Array) -> None:
        self._multipliers = list(multipliers)
        self._idle = [0 if m > 1e-12 else idle + 1 for m, idle in zip(multipliers, self._idle, strict=True)]
        linear = self.weights.is_linear
        if len(self._idle) > (_MANY_LINEAR if linear else _MANY_SMOOTH):
            keep = [i for i, idle in enumerate(self._idle) if idle <= (_IDLE if linear else _IDLE // 4)]
            self._constants = [self._constants[i] for i in keep]
            self._slopes = [self._slopes[i] for i in keep]
            self._multipliers = [self._multipliers[i] for i in keep]
            self._idle = [self._idle[i] for i in keep]
