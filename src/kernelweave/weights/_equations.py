"""Norms, a projection and an equation that several weight sets share; exponents may be anything from 1 to infinity."""

from __future__ import annotations

import numpy as np

from .base import Vector


def conjugate(p: float) -> float:
    """The q with 1/p + 1/q = 1."""
    if p == 1.0:
        return np.inf
    return 1.0 if p == np.inf else p / (p - 1.0)


def norm(x: Vector, p: float) -> float:
    """||max(x, 0)||_p; divided by the largest entry first, so that no power overflows and not all underflow."""
    x = np.maximum(x, 0.0)
    largest = float(x.max())
    if largest == 0.0 or p == np.inf:
        return largest
    return largest * float(np.sum((x / largest) ** p)) ** (1.0 / p)


def aligned(h: Vector, p: float) -> Vector:
    """The b >= 0 with ||b||_p = 1 that maximises b.h, for h >= 0: ``(h_j / ||h||_q)**(q - 1)``.

    The exponent is infinite at p = 1 (all on the largest, ties share) and zero at p = inf (all ones): both are what
    numpy's power gives. All-zero h, where any b is best, gives the uniform one.
    """
    largest = h.max()
    if largest <= 0.0:
        return np.full(len(h), float(len(h)) ** (-1.0 / p))
    b = (np.maximum(h, 0.0) / largest) ** (conjugate(p) - 1.0)
    return b / norm(b, p)


def project_simplex(z: Vector) -> Vector:
    """Nearest point of ``b >= 0, sum b = 1``: ``max(z - t, 0)`` with t from the sorted entries."""
    z = z - z.max()  # a common shift changes nothing, and keeps every digit of large entries
    falling = np.sort(z)[::-1]
    thresholds = (np.cumsum(falling) - 1.0) / np.arange(1, len(z) + 1)
    n_active = np.count_nonzero(falling > thresholds)
    b = np.maximum(z - thresholds[n_active - 1], 0.0)
    return b / b.sum()


def positive_root(linear: float, power: float, k: float, x: Vector) -> Vector:
    """Element-wise root t >= 0 of ``linear * t + power * t**k = x`` for k >= 1, x >= 0, coefficients >= 0 (not both 0).

    The left side is convex and increasing, so Newton's steps from above never overshoot. At the start one term equals
    x and the other is at most x, hence the root lies between half the start and the start: a few steps are enough.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.fmin(x / linear, (x / power) ** (1.0 / k))
    for _ in range(60):
        t_power = power * t ** (k - 1.0)
        value, derivative = (linear + t_power) * t - x, linear + k * t_power
        step = np.divide(value, derivative, out=np.zeros_like(t), where=derivative > 0.0)
        t = t - step
        if np.all(step <= 4.0 * np.finfo(float).eps * t):
            break
    return t
