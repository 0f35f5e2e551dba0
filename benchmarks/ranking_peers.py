"""What the label-ranking benchmarks compare with, written as a user of scikit-learn, NumPy and SciPy would write it.

Label matrices hold +1 and -1; kernels are float64.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog
from sklearn.neighbors import NearestNeighbors
from sklearn.svm import SVC


def one_vs_rest(K, Y, C, labels):
    """One SVC a label, at its default tolerance."""
    return [SVC(C=C, kernel="precomputed", cache_size=2000).fit(K, Y[:, k]) for k in labels]


def balanced(t, lower, upper):
    """``clip(t + shift, lower, upper)`` with the shift at which it sums to zero, from the sorted breakpoints."""
    points = np.concatenate([lower - t, upper - t])
    order = np.argsort(points)
    points = points[order]
    slopes = np.cumsum(np.where(order < len(t), 1.0, -1.0))
    sums = lower.sum() + np.append(0.0, np.cumsum(slopes[:-1] * np.diff(points)))
    return np.clip(t + np.interp(0.0, sums, points), lower, upper)


def sweep(K, Y, C, B, rows):
    """MLR-L1 as it is printed in textbooks: one row after the other, each from its own product with all duals."""
    lower, upper = C * np.minimum(Y, 0), C * np.maximum(Y, 0)
    for i in rows:
        f = K[i] @ B - K[i, i] * B[i]
        B[i] = balanced((Y[i] - f) / K[i, i], lower[i], upper[i])


def silp(Ks, Y, machine, tol, max_rounds=500):
    """MK-MLR by cutting planes: a cold machine, one product a kernel and one linear program a round.

    The machine is ours, so what is compared is what happens around it. Returns weights, relative gap and rounds.
    """
    s = len(Ks)
    b, best = np.full(s, 1 / s), None
    cuts, constants, upper, lower = [], [], np.inf, -np.inf
    for rounds in range(1, max_rounds + 1):  # noqa: B007 (returned)
        solution = machine.solve(np.tensordot(b, Ks, 1), Y, accuracy=tol / 10)
        if solution.primal < upper:
            upper, best = solution.primal, b
        B = solution.coef
        q = np.array([np.sum(B * (K @ B)) for K in Ks])
        cuts.append(np.append(-0.5 * q, -1.0))
        constants.append(-np.abs(B).sum())
        answer = linprog(
            np.append(np.zeros(s), 1.0),
            A_ub=np.array(cuts),
            b_ub=constants,
            A_eq=np.append(np.ones(s), 0.0)[None],
            b_eq=[1.0],
            bounds=[(0, None)] * s + [(None, None)],
            method="highs",
        )
        lower = max(lower, answer.fun)
        if upper - lower <= tol * abs(upper):
            break
        b = np.maximum(answer.x[:-1], 0)
        b /= b.sum()
    return best, (upper - lower) / abs(upper), rounds


class LoopMLkNN:
    """ML-kNN with its counts made sample by sample and label by label, as the formulas are written."""

    def __init__(self, k=10, smoothing=1.0):
        self.k, self.s = k, smoothing

    def fit(self, X, Y):
        n, m = Y.shape
        self.Y, self.search = Y, NearestNeighbors(n_neighbors=self.k).fit(X)
        self.prior = np.array([(self.s + sum(Y[:, l] > 0)) / (2 * self.s + n) for l in range(m)])
        carrying, lacking = np.zeros((m, self.k + 1)), np.zeros((m, self.k + 1))
        neighbours = self.search.kneighbors(return_distance=False)
        for i in range(n):
            for l in range(m):
                count = sum(Y[j, l] > 0 for j in neighbours[i])
                (carrying if Y[i, l] > 0 else lacking)[l, count] += 1
        self.of = (self.s + carrying) / (self.s * (self.k + 1) + carrying.sum(axis=1, keepdims=True))
        self.against = (self.s + lacking) / (self.s * (self.k + 1) + lacking.sum(axis=1, keepdims=True))
        return self

    def predict_proba(self, X):
        neighbours = self.search.kneighbors(X, return_distance=False)
        posterior = np.empty((len(X), self.Y.shape[1]))
        for i in range(len(X)):
            for l in range(self.Y.shape[1]):
                count = sum(self.Y[j, l] > 0 for j in neighbours[i])
                of = self.prior[l] * self.of[l, count]
                against = (1 - self.prior[l]) * self.against[l, count]
                posterior[i, l] = of / (of + against)
        return posterior
