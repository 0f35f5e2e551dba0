"""The methods we compare with, written as a user with scikit-learn, NumPy and SciPy would write them.

Every function takes the full float64 stack of kernels (n_kernels, n, n), labels in {-1, 1}, C and the relative gap to
stop at, and returns (weights, relative gap reached, number of SVM solves).
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import linprog, minimize
from sklearn.svm import SVC


def svm(Ks, y, C, b, tol=1e-4):
    """SVC on the combined kernel: objective, h_j = 1/2 v'K_j v, signed duals, combined kernel."""
    K = np.tensordot(b, Ks, 1)
    model = SVC(C=C, kernel="precomputed", tol=tol, cache_size=2000).fit(K, y)
    v = np.zeros(len(y))
    v[model.support_] = model.dual_coef_[0]
    s = model.support_
    h = 0.5 * np.array([v[s] @ (Kj[np.ix_(s, s)] @ v[s]) for Kj in Ks])
    S = float(np.abs(v).sum())
    return S - float(b @ h), S, h, v, K


def silp(Ks, y, C, tol, max_rounds=2000):
    """Cutting planes: one SVM and one linear program a round."""
    s = len(Ks)
    b = np.full(s, 1 / s)
    cuts, constants, upper, lower = [], [], np.inf, -np.inf
    for solves in range(1, max_rounds + 1):  # noqa: B007 (returned)
        J, S, h, _, _ = svm(Ks, y, C, b)
        upper = min(upper, J)
        cuts.append(np.append(-h, -1.0))
        constants.append(-S)
        answer = linprog(
            np.append(np.zeros(s), 1.0),
            A_ub=np.array(cuts),
            b_ub=constants,
            A_eq=np.append(np.ones(s), 0.0)[None],
            b_eq=[1.0],
            bounds=[(0, None)] * s + [(None, None)],
            method="highs",
        )
        b, lower = np.maximum(answer.x[:-1], 0), max(lower, answer.x[-1])
        b /= b.sum()
        if upper - lower <= tol * abs(upper):
            break
    return b, (upper - lower) / abs(upper), solves


def level(Ks, y, C, tol, max_rounds=500, share=0.8):
    """The level method: the same cuts, a step to the level set only (SLSQP for the projection)."""
    s = len(Ks)
    b = np.full(s, 1 / s)
    H, S_all, upper, lower = [], [], np.inf, -np.inf
    for _ in range(max_rounds):
        J, S, h, *_ = svm(Ks, y, C, b)
        upper = min(upper, J)
        H.append(h)
        S_all.append(S)
        A, c = np.array(H), np.array(S_all)
        answer = linprog(
            np.append(np.zeros(s), 1.0),
            A_ub=np.hstack([-A, -np.ones((len(A), 1))]),
            b_ub=-c,
            A_eq=np.append(np.ones(s), 0.0)[None],
            b_eq=[1.0],
            bounds=[(0, None)] * s + [(None, None)],
            method="highs",
        )
        lower = max(lower, answer.x[-1])
        if upper - lower <= tol * abs(upper):
            break
        height, here = share * upper + (1 - share) * lower, b
        size = abs(height)
        answer = minimize(
            lambda z: (0.5 * ((z - here) ** 2).sum(), z - here),
            np.maximum(answer.x[:-1], 0),
            jac=True,
            bounds=[(0, 1)] * s,
            constraints=[
                {"type": "eq", "fun": lambda z: z.sum() - 1, "jac": np.ones_like},
                {"type": "ineq", "fun": lambda z: (height - c + A @ z) / size, "jac": lambda z: A / size},
            ],
            method="SLSQP",
            options={"maxiter": 300, "ftol": 1e-10},
        )
        b = np.maximum(answer.x, 0)
        b /= b.sum()
    return b, (upper - lower) / abs(upper), len(H)


def newton(Ks, y, C, tol, max_rounds=100):
    """Second-order master over SVC: Newton model on the free support vectors, SLSQP on the simplex, halving steps."""
    s = len(Ks)
    b = np.full(s, 1 / s)
    J, _, h, v, K = svm(Ks, y, C, b, tol=1e-5)
    solves = 1
    while h.max() - b @ h > tol * abs(J) and solves < max_rounds:
        free = np.flatnonzero((np.abs(v) > 1e-8 * C) & (np.abs(v) < C * (1 - 1e-8)))
        R = np.array([Kj[free] @ v for Kj in Ks])
        A = K[np.ix_(free, free)] + 1e-10 * np.trace(K) / len(K) * np.eye(len(free))
        factor = cho_factor(A)
        Z, one = cho_solve(factor, R.T), cho_solve(factor, np.ones(len(free)))
        H = R @ Z - np.outer(R @ one, R @ one) / one.sum()
        here = b
        answer = minimize(
            lambda z: (-h @ (z - here) + 0.5 * (z - here) @ H @ (z - here), -h + H @ (z - here)),
            b,
            jac=True,
            bounds=[(0, 1)] * s,
            constraints=[{"type": "eq", "fun": lambda z: z.sum() - 1, "jac": np.ones_like}],
            method="SLSQP",
            options={"maxiter": 300, "ftol": 1e-12},
        )
        target = np.maximum(answer.x, 0)
        target /= target.sum()
        step, slope, before = 1.0, h @ (target - b), J
        while True:
            trial = here + step * (target - here)
            J, _, h, v, K = svm(Ks, y, C, trial, tol=1e-5)
            solves += 1
            if before - 1e-4 * step * slope >= J or step < 1e-3:
                break
            step /= 2
        b = np.where(trial < 1e-9, 0, trial)
    return b, (h.max() - b @ h) / abs(J), solves


def group_lasso(Ks, y, C, tol, p=2.0, max_rounds=500):
    """MKL-GL: SVC and the closed-form lp weights take turns."""
    s, q = len(Ks), p / (p - 1)
    b = np.full(s, s ** (-1 / p))
    for solves in range(1, max_rounds + 1):  # noqa: B007 (returned)
        J, S, h, _, _ = svm(Ks, y, C, b)
        lower = S - (h**q).sum() ** (1 / q)
        if J - lower <= tol * abs(J):
            break
        norms = b * np.sqrt(2 * h)
        b = norms ** (2 / (p + 1)) / (norms ** (2 * p / (p + 1))).sum() ** (1 / p)
    return b, (J - lower) / abs(J), solves
