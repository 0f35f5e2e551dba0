"""The simplex with a cap on each weight: soft-margin MKL with the hinge loss (SM1MKL).

The cap is what slack variables on kernels turn into: with ``SVM_j(a) = S(a) - h_j(a)`` ::

    max over a, tau, zeta >= 0    tau - theta sum_j zeta_j      such that   SVM_j(a) >= tau - zeta_j

lets a kernel miss the common margin tau at the price theta, and the multiplier of its constraint, which is its weight,
can be at most that price.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ._equations import project_simplex
from .base import DUST, LinearConstraints, Vector, WeightSet, check_parameter

#: Caps and shares that differ from one by this much differ by rounding.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class CappedSimplex(WeightSet):
    """Weights that sum to one, none above a cap: ``0 <= b <= theta, sum b = 1`` and R = 0.

    Between `Simplex` (theta = 1) and `Average` (theta = 1/s, s the number of kernels), and sparse in between. The best
    response fills the largest energies first, theta each, so that at the optimum a threshold T parts the kernels:
    ``h_j >= T`` where ``b_j = theta``, ``h_j = T`` in between, ``h_j <= T`` where ``b_j = 0``.

    Parameters
    ----------
    nu : float, optional
        In (0, 1]; the cap is ``theta = 1 / (nu s)``. At most a share nu of the kernels is at the cap and at least a
        share nu has weight. ``nu = 1/s``, or less, is `Simplex`; ``nu = 1`` is `Average`.
    theta : float, optional
        The cap itself, at least 1/s, which is checked once the number of kernels is known. Give this or `nu`.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.weights import CappedSimplex
    >>> CappedSimplex(nu=0.5).respond(np.array([1.0, 3.0, 2.0, 4.0]))
    array([0. , 0.5, 0. , 0.5])
    >>> CappedSimplex(theta=0.4).project(np.array([1.0, 0.5, -1.0, 0.2]))
    array([0.4, 0.4, 0. , 0.2])
    """

    nu: float | None = None
    theta: float | None = None

    def __post_init__(self) -> None:
        if (self.nu is None) == (self.theta is None):
            raise ValueError(
                f"CappedSimplex: give either nu or theta = 1 / (nu * n_kernels), got nu={self.nu!r} and "
                f"theta={self.theta!r}."
            )
        if self.nu is not None:
            check_parameter(self, "nu", 0.0, 1.0, open_low=True, advice="nu = 1 is the average, small nu is l1.")
        else:
            check_parameter(self, "theta", 0.0, np.finfo(float).max, open_low=True)

    def cap(self, n_kernels: int) -> float:
        """The largest weight allowed, at most 1; an error if that many kernels cannot reach the sum of one."""
        cap = 1.0 / (self.nu * n_kernels) if self.theta is None else float(self.theta)  # type: ignore[operator]
        if cap * n_kernels < 1.0 - _ROUNDING:
            raise ValueError(
                f"CappedSimplex: {n_kernels} weights of at most theta={self.theta!r} cannot sum to one. Give "
                f"theta >= 1/{n_kernels} = {1.0 / n_kernels:.6g}, or nu in (0, 1] instead, which fits any number."
            )
        return min(max(cap, 1.0 / n_kernels), 1.0)

    def simplices(self, n_kernels: int) -> list[NDArray[np.intp]]:
        return [np.arange(n_kernels)]

    def start(self, n_kernels: int) -> Vector:
        self.cap(n_kernels)
        return np.full(n_kernels, 1.0 / n_kernels)

    def respond(self, h: Vector) -> Vector:
        """The cap for the largest energies until the sum is one; those that tie at the threshold share what is left."""
        cap = self.cap(len(h))
        order = np.argsort(-h, kind="stable")
        shares = np.clip(1.0 - cap * np.arange(len(h)), 0.0, cap)
        shares[shares < _ROUNDING] = 0.0
        b = np.empty_like(h)
        b[order] = shares
        threshold = h[order[np.count_nonzero(shares) - 1]]
        tied = h == threshold
        b[tied] = b[tied].mean()
        return b

    def project(self, b: Vector) -> Vector:
        return project_capped(b, self.cap(len(b)))

    def update(self, norms: Vector) -> Vector:
        """b_j proportional to N_j, the largest at the cap: their number w is the first at which nobody else exceeds it.

        Weights that no norm asks for are spread over the kernels without norm.
        """
        cap = self.cap(len(norms))
        order = np.argsort(-norms, kind="stable")
        falling = norms[order]
        rest = np.cumsum(falling[::-1])[::-1]
        counts = np.arange(len(norms))
        fits = (1.0 - counts * cap) * falling <= cap * rest
        w = int(np.argmax(fits)) if fits.any() else len(norms) - 1
        shares = np.full(len(norms), cap)
        left = max(1.0 - w * cap, 0.0)
        shares[w:] = left * falling[w:] / rest[w] if rest[w] > 0.0 else left / (len(norms) - w)
        b = np.empty_like(norms)
        b[order] = shares
        return b

    def feasible(self, b: Vector, tol: float = 1e-9) -> bool:
        return bool(np.all(b >= -tol) and np.all(b <= self.cap(len(b)) + tol) and abs(b.sum() - 1.0) <= tol)

    def clean(self, b: Vector) -> Vector:
        """Dust goes to exactly zero, and the others take over its weight as far as the cap lets them."""
        kept = b >= DUST * b.max()
        cap = self.cap(len(b))
        if np.count_nonzero(kept) * cap < 1.0:  # the dust is what the others have no room for
            kept = b > 0.0
        cleaned = np.zeros_like(b)
        cleaned[kept] = project_capped(b[kept], cap)
        return cleaned

    def linear_constraints(self, n_kernels: int) -> LinearConstraints:
        bounds: list[tuple[float, float | None]] = [(0.0, self.cap(n_kernels))] * n_kernels
        return LinearConstraints(None, None, np.ones((1, n_kernels)), np.ones(1), bounds)


def project_capped(z: Vector, cap: float) -> Vector:
    """Nearest point of ``0 <= b <= cap, sum b = 1``: ``clip(z - t, 0, cap)``.

    The sum falls with t and bends only where an entry reaches a bound, so bisection over these places finds the stretch
    on which it passes one. On it, the entries between the bounds share what the others leave.
    """
    if cap >= 1.0:
        return project_simplex(z)
    if cap * len(z) <= 1.0 + _ROUNDING:
        return np.full(len(z), 1.0 / len(z))
    bends = np.sort(np.concatenate([z, z - cap]))
    low, high = 0, len(bends) - 1  # all at the cap, all at zero
    while high - low > 1:
        middle = (low + high) // 2
        if np.clip(z - bends[middle], 0.0, cap).sum() >= 1.0:
            low = middle
        else:
            high = middle
    b, before = (np.clip(z - bends[k], 0.0, cap) for k in (high, low))
    moved = before - b
    between = moved > 0.5 * moved.max()  # all by the length of the stretch, the others by rounding alone
    part = z[between] - z[between].max()  # they lie within a cap of each other: no digit is lost to their size
    part += (1.0 - b[~between].sum() - part.sum()) / len(part)
    b[between] = np.clip(part, 0.0, cap)
    return b
