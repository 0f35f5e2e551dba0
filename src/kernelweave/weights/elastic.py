"""Weights between sparse and dense: the elastic-net ball and the block elastic net."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from ._equations import aligned, positive_root
from .base import Vector, WeightSet, check_parameter
from .soft_margin import ElasticNet


@dataclass(frozen=True)
class ElasticNetBall(WeightSet):
    """``b >= 0, v sum b + (1-v) sum b^2 <= 1`` and R = 0: l1 at v = 1, l2 at v = 0.

    All three maps have the constraint tight and are found from sorted entries (the first k are active), w = 1 - v ::

        respond(h)   b_j = max(0, z_j - v) / (2w),  z = h/eta;   tight if  sum_active (z_j^2 - v^2) = 4w
        project(x)   b_j = max(0, x_j - lam v) / (1 + 2 lam w);  tight if  (w lam^2 + lam) (k v^2 + 4w) = v A + w Q - 1
                     with A and Q the sums of x and x^2 over the active
        update(N)    v b_j^2 + 2w b_j^3 = kappa N_j^2;           tight by a scalar root in kappa

    Parameters
    ----------
    v : float
        In [0, 1].

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.weights import ElasticNetBall
    >>> ElasticNetBall(0.5).respond(np.array([1.0, 1.0])).round(6)
    array([0.618034, 0.618034])
    """

    v: float

    def __post_init__(self) -> None:
        check_parameter(self, "v", 0.0, 1.0)

    def start(self, n_kernels: int) -> Vector:
        return self._tight(np.ones(n_kernels))

    def respond(self, h: Vector) -> Vector:
        v, w = self.v, 1.0 - self.v
        largest = h.max()
        if largest <= 0.0:
            return self.start(len(h))
        if w == 0.0:
            return aligned(h, 1.0)
        squares = (np.maximum(h, 0.0) / largest) ** 2
        falling = np.sort(squares)[::-1]
        sums, counts = np.cumsum(falling), np.arange(1, len(h) + 1)
        k = max(1, int(np.count_nonzero((4.0 * w + counts * v**2) * falling > v**2 * sums)))
        shares = squares / sums[k - 1]
        z = np.sqrt((4.0 * w + k * v**2) * shares)
        # (z - v) / 2w written as (z^2 - v^2) / (2w (z + v)): no cancellation for v near 1
        excess = 2.0 * shares + v**2 * (k * shares - 1.0) / (2.0 * w)
        return self._tight(np.maximum(0.0, excess) / np.maximum(z + v, np.finfo(float).tiny))

    def support(self, h: Vector) -> float:
        return float(self.respond(h) @ np.maximum(h, 0.0))

    def project(self, b: Vector) -> Vector:
        v, w = self.v, 1.0 - self.v
        x = np.maximum(b, 0.0)
        if self._constraint(x) <= 1.0:
            return x
        falling = np.sort(x)[::-1]
        counts = np.arange(1, len(x) + 1)
        excess = np.cumsum(v * falling + w * falling**2) - 1.0
        c = np.maximum(excess, 0.0) / (counts * v**2 + 4.0 * w)
        lams = 2.0 * c / (1.0 + np.sqrt(1.0 + 4.0 * w * c))
        lam = lams[max(1, int(np.count_nonzero(falling > v * lams))) - 1]
        nearest = np.maximum(x - lam * v, 0.0)
        # Far outside, rounding can leave nothing of the difference: then the largest entries alone matter.
        return self._tight(nearest if nearest.any() else (x == x.max()).astype(float))

    def update(self, norms: Vector) -> Vector:
        v, w = self.v, 1.0 - self.v
        largest = norms.max()
        if largest <= 0.0:
            return self.start(len(norms))
        squares = (norms / largest) ** 2

        def weights(log_kappa: float) -> Vector:
            return np.sqrt(positive_root(v, 2.0 * w, 1.5, np.exp(log_kappa) * squares))

        # the largest weight has N = 1 after scaling and lies between the uniform weight and 1
        bracket = [np.log(v * b**2 + 2.0 * w * b**3) for b in (0.9 * float(self.start(len(norms))[0]), 1.1)]
        log_kappa = brentq(lambda value: self._constraint(weights(value)) - 1.0, *bracket, xtol=1e-14)
        return self._tight(weights(log_kappa))

    def feasible(self, b: Vector, tol: float = 1e-9) -> bool:
        return bool(np.all(b >= -tol)) and self._constraint(b) <= 1.0 + tol

    def on_simplex(self, b_optimal: Vector, h_optimal: Vector) -> tuple[ElasticNet, float]:
        """The soft-margin problem with the same classifier, and the factor r on C that it needs.

        If (b, a) solves this problem at cost C, with energies h and ``r = sum b``, then (b / r, r a) solves that of
        `ElasticNet` at cost ``r * C``, where energies are ``r^2 h``. The multiplier lam of the constraint, from
        ``h_j = lam (v + 2 (1-v) b_j)``, gives ``theta = 1 / (2 lam (1-v) r^3)``. Duals of a nu-SVM do not change with
        the scale of the kernels: there C plays no part and theta is larger by r^2.
        """
        r, w = float(b_optimal.sum()), 1.0 - self.v
        lam = float(b_optimal @ h_optimal) / (self.v * r + 2.0 * w * float(b_optimal @ b_optimal))
        if w == 0.0 or lam <= 0.0:
            reason = "v = 1 is l1, which has no ridge" if w == 0.0 else "all energies are zero, so any weights are best"
            raise ValueError(f"ElasticNetBall.on_simplex: {reason}; no theta corresponds to it.")
        return ElasticNet(1.0 / (2.0 * lam * w * r**3)), r

    def _constraint(self, b: Vector) -> float:
        return float(self.v * b.sum() + (1.0 - self.v) * (b @ b))

    def _tight(self, b: Vector) -> Vector:
        """The multiple of b on the boundary: ``r^2 w sum b^2 + r v sum b = 1``."""
        first, second = self.v * b.sum(), (1.0 - self.v) * (b @ b)
        return b * (2.0 / (first + np.sqrt(first**2 + 4.0 * second)))

    @property
    def is_smooth(self) -> bool:
        return self.v < 1.0


@dataclass(frozen=True)
class BlockElasticNet(WeightSet):
    """Weights of the regulariser ``sum_j (1-mu) ||f_j|| + mu/2 ||f_j||^2``: sparse with a threshold, no budget shared.

    ``0 <= b < 1/mu`` and ``R(b) = 1/2 (1-mu)^2 sum_j b_j / (1 - mu b_j)``. With e_j = sqrt(2 h_j) ::

        support(h)   sum_j max(0, e_j - (1-mu))^2 / (2 mu)
        respond(h)   b_j = max(0, (1 - (1-mu)/e_j) / mu)
        update(N)    b_j = N_j / ((1-mu) + mu N_j)

    mu = 1 is the sum kernel.

    Parameters
    ----------
    mu : float
        In (0, 1].

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.weights import BlockElasticNet
    >>> BlockElasticNet(0.5).respond(np.array([0.1, 0.5, 2.0]))
    array([0. , 1. , 1.5])
    """

    mu: float

    def __post_init__(self) -> None:
        check_parameter(self, "mu", 0.0, 1.0, open_low=True)

    def start(self, n_kernels: int) -> Vector:
        return np.ones(n_kernels)

    def respond(self, h: Vector) -> Vector:
        if self.mu == 1.0:
            return self.start(len(h))
        threshold = 1.0 - self.mu
        energies = np.sqrt(2.0 * np.maximum(h, 0.0))
        return self.project((1.0 - threshold / np.maximum(energies, threshold)) / self.mu)

    def support(self, h: Vector) -> float:
        excess = np.sqrt(2.0 * np.maximum(h, 0.0)) - (1.0 - self.mu)
        return float(np.sum(np.maximum(excess, 0.0) ** 2)) / (2.0 * self.mu)

    def penalty(self, b: Vector) -> float:
        if self.mu == 1.0:
            return 0.0
        return 0.5 * (1.0 - self.mu) ** 2 * float(np.sum(b / self._room(b)))

    def slope(self, b: Vector) -> Vector:
        if self.mu == 1.0:
            return np.zeros_like(b)
        return 0.5 * ((1.0 - self.mu) / self._room(b)) ** 2

    def project(self, b: Vector) -> Vector:
        return np.clip(b, 0.0, self._largest)

    def update(self, norms: Vector) -> Vector:
        if self.mu == 1.0:
            return self.start(len(norms))
        return self.project(norms / ((1.0 - self.mu) + self.mu * norms))

    def feasible(self, b: Vector, tol: float = 1e-9) -> bool:
        return bool(np.all(b >= -tol) and np.all(b <= self._largest + tol))

    def _room(self, b: Vector) -> Vector:
        """1 - mu b, kept positive."""
        return np.maximum(1.0 - self.mu * b, np.finfo(float).eps)

    @property
    def _largest(self) -> float:
        """The penalty is infinite at 1/mu, so stay a little below; at mu = 1 it is zero and the end belongs to B."""
        return 1.0 if self.mu == 1.0 else (1.0 - 1e-12) / self.mu

    @property
    def is_smooth(self) -> bool:
        return True
