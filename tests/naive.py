"""Slow, obvious references: every formula as it is written in the books, in double precision, with plain loops."""

from __future__ import annotations

import numpy as np

from kernelweave import kernels as kn


def pairwise(function, A, B):
    """Apply a function of two rows to all pairs: (len(A), len(B))."""
    return np.array([[function(a.astype(float), b.astype(float)) for b in B] for a in A]).reshape(len(A), len(B))


def chi_squared(x, y):
    total = 0.0
    for a, b in zip(x, y, strict=True):
        if a + b > 0:
            total += (a - b) ** 2 / (a + b) / 2
    return total


def additive_chi_squared(x, y):
    return sum(2 * a * b / (a + b) for a, b in zip(x, y, strict=True) if a + b > 0)


DISTANCES = {
    "euclidean": lambda x, y: np.sqrt(np.sum((x - y) ** 2)),
    "cityblock": lambda x, y: np.sum(np.abs(x - y)),
    "chi2": chi_squared,
}


def mean_over_pairs(D):
    """Mean over pairs of different samples: upper triangle without the diagonal."""
    return D[np.triu_indices(len(D), 1)].mean()


def kernel(k, A, B, train):
    """Values of a kernel between rows A and B, with what it learns taken from the rows ``train``."""
    if isinstance(k, kn.Linear):
        return pairwise(np.dot, A, B)
    if isinstance(k, kn.Polynomial):
        return (k.scale * pairwise(np.dot, A, B) + k.offset) ** k.degree
    if isinstance(k, kn.ChiSquared):
        mean = mean_over_pairs(pairwise(chi_squared, train, train))
        gamma = 1 / (k.multiplier * mean) if k.gamma is None else k.gamma
        return np.exp(-gamma * pairwise(chi_squared, A, B))
    if isinstance(k, kn.AdditiveChiSquared):
        return pairwise(additive_chi_squared, A, B)
    if isinstance(k, kn.HistogramIntersection):
        return pairwise(lambda x, y: np.minimum(x, y).sum(), A, B)
    if isinstance(k, kn.FromFunction):
        return k.function(A, B)
    return of_distance(k, A, B, train)


def of_distance(k, A, B, train):
    metric = DISTANCES[k.metric]
    D = pairwise(metric, A, B)
    mean = mean_over_pairs(pairwise(metric, train, train) ** 2)
    gamma = 1 / (k.multiplier * mean) if k.gamma is None else k.gamma
    return {
        kn.Gaussian: lambda: np.exp(-gamma * D**2),
        kn.Laplacian: lambda: np.exp(-np.sqrt(gamma) * D),
        kn.InverseSquaredDistance: lambda: 1 / (gamma * D**2 + 1),
        kn.InverseDistance: lambda: 1 / (np.sqrt(gamma) * D + 1),
    }[type(k)]()


def normalised(step, K, new=None, diagonal=None):
    """Normalise a training kernel K; or, given ``new`` (n_new, n) and the ``diagonal`` of new samples, that.

    Returns the kernel and the diagonal of its left-hand samples.
    """
    n = len(K)
    block, diagonal = (K, np.diag(K)) if new is None else (new, diagonal)
    if step == "trace":
        return n * block / np.trace(K), n * diagonal / np.trace(K)
    if step == "variance":
        variance = np.trace(K) / n - K.sum() / n**2
        return block / variance, diagonal / variance
    if step == "spherical":
        return block / np.sqrt(np.outer(diagonal, np.diag(K))), np.ones(len(block))
    if step == "center":
        return (
            block - block.mean(axis=1)[:, None] - K.mean(axis=0)[None, :] + K.mean(),
            diagonal - 2 * block.mean(axis=1) + K.mean(),
        )
    raise ValueError(step)


def unpack(packed, n):
    K = np.zeros((n, n))
    position = 0
    for i in range(n):
        for k in range(i + 1):
            K[i, k] = K[k, i] = packed[position]
            position += 1
    return K


def pack(K):
    return np.array([K[i, k] for i in range(len(K)) for k in range(i + 1)])


def combine(stack, weights):
    return sum(w * K for w, K in zip(weights, stack, strict=True))


def quadratics(stack, V):
    V = V.reshape(len(V), -1)
    return np.array([sum(v @ K @ v for v in V.T) / 2 for K in stack])


def products(stack, V, samples):
    return np.stack([(K @ V)[samples] for K in stack])


def scores(cross, weights, coef):
    weights = np.broadcast_to(weights, (coef.shape[1], len(cross)))
    return np.stack(
        [sum(w * K @ coef[:, k] for w, K in zip(weights[k], cross, strict=True)) for k in range(coef.shape[1])], axis=1
    )
