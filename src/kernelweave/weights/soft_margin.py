"""The simplex with a penalty that grows with a power of the weights: soft-margin MKL with smooth losses.

With ``SVM_j(a) = S(a) - h_j(a)``, a kernel may miss the common margin tau at a price that is a power of its slack, ::

    max over a, tau, zeta    tau - theta/2 sum_j max(0, zeta_j)^q      such that   SVM_j(a) >= tau - zeta_j

and the weight of a kernel is the slope of that price at its slack. In terms of the weights, with 1/p + 1/q = 1 ::

    b >= 0, sum b = 1,      R(b) = s^(p-1)/p sum_j b_j^p,      s = 2 (p-1) / (theta p)

q = 2 is the squared hinge (SM2MKL); q -> 1 is the hinge, `CappedSimplex`.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from ._equations import positive_root, project_simplex
from .base import Vector, check_parameter
from .simplex import OnSimplices


class SoftMargin(OnSimplices):
    """What the powers have in common."""

    theta: float

    @property
    @abstractmethod
    def _power(self) -> float:
        """p above."""

    @property
    def _scale(self) -> float:
        """s above: the penalty's slope is ``(s b)^(p-1)``, its inverse ``t^(1/(p-1)) / s``."""
        return 2.0 * (self._power - 1.0) / (self.theta * self._power)

    def simplices(self, n_kernels: int) -> list[NDArray[np.intp]]:
        return [np.arange(n_kernels)]

    def penalty(self, b: Vector) -> float:
        return float(self._scale ** (self._power - 1.0) / self._power * np.sum(b**self._power))

    def slope(self, b: Vector) -> Vector:
        return (self._scale * np.maximum(b, 0.0)) ** (self._power - 1.0)

    def curvature(self, b: Vector) -> Vector:
        return (self._power - 1.0) * self._scale ** (self._power - 1.0) * np.maximum(b, 0.0) ** (self._power - 2.0)

    def update(self, norms: Vector) -> Vector:
        """``c b_j^(p+1) + lam b_j^2 = N_j^2 / 2`` with ``c = s^(p-1)`` and lam, of any sign, such that sum b = 1."""
        largest = norms.max()
        if largest <= 0.0:
            return self.start(len(norms))
        halves = 0.5 * (norms / largest) ** 2
        c = self._scale ** (self._power - 1.0) / largest**2

        def weights(lam: float) -> Vector:
            return _penalised_roots(c, self._power, lam, halves)

        # the largest weight has the largest norm and lies between the uniform weight and one: lam as a function of it
        low, high = (0.5 / b**2 - c * b ** (self._power - 1.0) for b in (1.0, 1.0 / len(norms)))
        size = 0.5 * len(norms) ** 2 + c
        lam = brentq(  # to its own digits, however small: for large p the small weights hang on them
            lambda value: weights(value).sum() - 1.0,
            low - 1e-9 * size,
            high + 1e-9 * size,
            xtol=1e-40 * size,
            rtol=4.0 * np.finfo(float).eps,
            maxiter=500,
        )
        b = weights(lam)
        return b / b.sum()

    @property
    def is_smooth(self) -> bool:
        return True

    @property
    def has_curvature(self) -> bool:
        return self._power >= 2.0  # below, it has no bound at zero


@dataclass(frozen=True)
class PowerPenalty(SoftMargin):
    """Simplex with a power of the weights as penalty: ``R(b) = s^(p-1)/p sum b^p``, ``s = 2 (p-1) / (theta p)``.

    Soft-margin MKL in which a slack zeta of a kernel costs ``theta/2 max(0, zeta)^q``, 1/p + 1/q = 1. Its best response
    is ``b_j = max(0, h_j - T)^(q-1) / s``. Small theta is `Average`, large theta `Simplex`; p = 2 is `ElasticNet`.
    theta competes with the energies, so its useful range moves with C and with the scale of the kernels.

    Parameters
    ----------
    p : float
        In [1.01, 16]; the larger, the more the penalty is a cap at theta/2 (`CappedSimplex`).
    theta : float, default=1.0
        Price of slack, positive.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.weights import PowerPenalty
    >>> PowerPenalty(p=3.0, theta=2.0).respond(np.array([0.0, 1.0, 1.0])).round(6)
    array([0. , 0.5, 0.5])
    """

    p: float
    theta: float = 1.0

    def __post_init__(self) -> None:
        advice = "The limits are sets of their own: Simplex (p = 1) and CappedSimplex (p = inf)."
        check_parameter(self, "p", 1.01, 16.0, advice=advice)
        check_parameter(self, "theta", 0.0, np.finfo(float).max, open_low=True)

    @property
    def _power(self) -> float:
        return self.p

    def respond(self, h: Vector) -> Vector:
        """``sum_j (h_j - T)_+^k = s`` with k = q - 1, solved for the logarithm of u = max h - T."""
        k, s = 1.0 / (self.p - 1.0), self._scale
        below = h.max() - h

        def ratios(log_u: float) -> Vector:
            with np.errstate(over="ignore"):  # a kernel infinitely far below gets nothing, as it should
                return np.maximum(1.0 - below * np.exp(-log_u), 0.0) ** k

        # u^k / s is the largest weight, between the uniform one and one
        low, high = (np.log(s) - np.log(len(h))) / k, np.log(s) / k
        log_u = brentq(
            lambda value: np.log(ratios(value).sum()) + k * value - np.log(s), low - 1e-9, high + 1e-9, xtol=1e-15
        )
        b = ratios(log_u)
        return b / b.sum()


@dataclass(frozen=True)
class ElasticNet(SoftMargin):
    """Simplex with a ridge: ``b >= 0, sum b = 1`` and ``R(b) = sum b^2 / (2 theta)``. SM2MKL; sparse by a threshold.

    Soft-margin MKL in which a slack zeta of a kernel costs ``theta/2 max(0, zeta)^2``. Its best response is the
    projection of ``theta h`` on the simplex, ``b_j = theta max(0, h_j - T)``. theta -> 0 is `Average`, theta -> inf is
    `Simplex`. theta competes with the energies, so its useful range moves with C and with the scale of the kernels.

    Parameters
    ----------
    theta : float, default=1.0
        Price of slack, positive.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.weights import ElasticNet
    >>> ElasticNet(theta=0.5).respond(np.array([0.0, 1.0, 2.0]))
    array([0.  , 0.25, 0.75])
    """

    theta: float = 1.0

    def __post_init__(self) -> None:
        check_parameter(self, "theta", 0.0, np.finfo(float).max, open_low=True)

    @property
    def _power(self) -> float:
        return 2.0

    def respond(self, h: Vector) -> Vector:
        with np.errstate(over="ignore"):  # what is more than one below the largest gets nothing in any case
            return project_simplex(np.maximum(self.theta * (h - h.max()), -2.0))


def _penalised_roots(c: float, p: float, lam: float, x: Vector) -> Vector:
    """Element-wise root b >= 0 of ``c b^(p+1) + lam b^2 = x`` for x >= 0; if lam < 0, that with c b^(p-1) >= -lam."""
    if lam >= 0.0:
        return np.sqrt(positive_root(lam, c, 0.5 * (p + 1.0), x))
    least = (-lam / c) ** (1.0 / (p - 1.0))  # where the left side is zero; from there on it is convex and rises
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):  # p near 1: `least` may be as good as zero
        by_slope = least + x / ((p - 1.0) * -lam * least)
        by_terms = np.maximum((2.0 * x / c) ** (1.0 / (p + 1.0)), (-2.0 * lam / c) ** (1.0 / (p - 1.0)))
    b = np.fmin(by_slope, by_terms)  # both are above the root, from where Newton's steps never overshoot
    for _ in range(100):
        power = c * b ** (p - 1.0)
        value, derivative = (power + lam) * b * b - x, ((p + 1.0) * power + 2.0 * lam) * b
        step = np.divide(value, derivative, out=np.zeros_like(b), where=derivative > 0.0)
        b = b - step
        if np.all(step <= 4.0 * np.finfo(float).eps * b):
            break
    return b
