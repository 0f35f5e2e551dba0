"""Few groups of kernels, many kernels in each: a mixed norm with a cap on what one group may have.

A group is what cannot be torn apart, such as all input kernels under one guess of unknown labels. As in the capped
simplex, the cap is the price of slack, here on the norm of a group's energies.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ._equations import aligned, conjugate, norm, project_simplex
from .base import Vector, WeightSet, check_parameter
from .capped import CappedSimplex, project_capped
from .lp import LpBall, project_lp_ball

#: Caps that add up to one but for rounding.
_ROUNDING = 1e-12
#: Halvings of a stretch until it is rounding.
_BISECTIONS = 100


@dataclass(frozen=True)
class GroupSparse(WeightSet):
    """lp inside groups, lq across them, no group above a cap: ``(sum_t e_t^q)^(1/q) <= 1``, ``e_t <= theta``, R = 0.

    Here ``e_t = ||b_t||_p`` is the norm of group t. Weights are laid out group after group, `n_inner` kernels each.
    With ``1/p + 1/p* = 1`` and ``n_t = ||h_t||_p*``, the norm of a group's energies ::

        support(h)   theta times the largest n_t, until the shares sum to one      (q = 1; without a cap max_t n_t)
        respond(h)   e_t times the vector of norm one that is aligned with h_t
        update(N)    e_t N_t^(2/(p+1)) / ||.||_p,  e the update of the outer set for the block norms ||N_t||_{2p/(p+1)}

    One kernel a group is `CappedSimplex`, or ``LpBall(q)``; a single group is ``LpBall(p)``. There may be too few
    groups for the caps to sum to one: then every group has norm theta.

    Parameters
    ----------
    n_inner : int
        Kernels of a group.
    theta : float, default=1.0
        The cap. 1 or more is no cap (hard margin).
    c_theta : float, optional
        The cap as a multiple of the mean share: ``theta = c_theta / n_groups``, whatever the number of groups. Then
        `theta` is not used.
    p, q : float, default=2.0 and 1.0
        Norms inside and across groups, at least 1. A cap needs q = 1.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.weights import GroupSparse
    >>> h = np.array([3.0, 4.0, 0.3, 0.4, 0.0, 1.0])
    >>> GroupSparse(n_inner=2).respond(h)
    array([0.6, 0.8, 0. , 0. , 0. , 0. ])
    >>> GroupSparse(n_inner=2, theta=0.5).respond(h)
    array([0.3, 0.4, 0. , 0. , 0. , 0.5])
    """

    n_inner: int
    theta: float = 1.0
    c_theta: float | None = None
    p: float = 2.0
    q: float = 1.0

    def __post_init__(self) -> None:
        if isinstance(self.n_inner, bool) or not isinstance(self.n_inner, (int, np.integer)) or self.n_inner < 1:
            raise ValueError(f"GroupSparse: n_inner must be an integer of at least 1, got {self.n_inner!r}.")
        check_parameter(self, "theta", 0.0, np.inf, open_low=True, advice="1 or more is no cap.")
        if self.c_theta is not None:
            check_parameter(self, "c_theta", 0.0, np.inf, open_low=True, advice="1 gives every group the same norm.")
        for name in ("p", "q"):
            check_parameter(self, name, 1.0, np.inf)
        if self.q != 1.0 and (self.c_theta is not None or self.theta < 1.0):
            raise ValueError(f"GroupSparse: a cap on groups needs q=1, got q={self.q!r}; leave theta at 1.")

    def group_cap(self, n_groups: int) -> float:
        """The largest norm that a group may have, at most one."""
        return min(self.theta if self.c_theta is None else self.c_theta / n_groups, 1.0)

    def start(self, n_kernels: int) -> Vector:
        n_groups = len(self._groups(np.empty(n_kernels)))
        size = min(n_groups ** (-1.0 / self.q), self.group_cap(n_groups))
        return np.full(n_kernels, size * self.n_inner ** (-1.0 / self.p))

    def respond(self, h: Vector) -> Vector:
        groups = self._groups(h)
        sizes = self._shares(self._norms(groups, conjugate(self.p)))
        return np.concatenate([size * aligned(group, self.p) for size, group in zip(sizes, groups, strict=True)])

    def support(self, h: Vector) -> float:
        energies = self._norms(self._groups(h), conjugate(self.p))
        return float(self._shares(energies) @ energies)

    def project(self, b: Vector) -> Vector:
        """For p = 2 every group keeps its direction, and the norms go to the nearest ones that are allowed.

        Without a cap, p = q is one ball for all kernels; with a cap, p = q = 1 is a simplex of capped groups. Other
        norms have no closed form.
        """
        if not self.has_projection:
            self._refuse("a Euclidean projection unless p = 2, p = q without a cap, or p = q = 1")
        if self.p != 2.0:
            cap = self.group_cap(len(self._groups(b)))
            return project_lp_ball(b, self.p) if cap >= 1.0 else project_capped_groups(self._groups(b), cap).ravel()
        groups = np.maximum(self._groups(b), 0.0)
        norms = np.linalg.norm(groups, axis=1)
        wanted = self._project_norms(norms)
        factors = np.divide(wanted, norms, out=np.zeros_like(norms), where=norms > 0.0)
        return (factors[:, None] * groups).ravel()

    def update(self, norms: Vector) -> Vector:
        groups = self._groups(norms)
        inner = 2.0 if self.p == np.inf else 2.0 * self.p / (self.p + 1.0)
        blocks = self._norms(groups, inner)
        n_groups, cap = len(blocks), self.group_cap(len(blocks))
        if cap * n_groups <= 1.0 + _ROUNDING:
            sizes = np.full(n_groups, cap)
        else:
            outer = LpBall(self.q) if cap >= 1.0 else CappedSimplex(theta=cap)
            sizes = outer.update(blocks)
        ball = LpBall(self.p)
        return np.concatenate([size * ball.update(group) for size, group in zip(sizes, groups, strict=True)])

    def feasible(self, b: Vector, tol: float = 1e-9) -> bool:
        sizes = self._norms(self._groups(b), self.p)
        within = np.all(sizes <= self.group_cap(len(sizes)) + tol) and norm(sizes, self.q) <= 1.0 + tol
        return bool(np.all(b >= -tol) and within)

    @property
    def has_projection(self) -> bool:
        return self.p == 2.0 or self.p == self.q  # a cap has q = 1

    def _groups(self, b: Vector) -> NDArray[np.float64]:
        """Vectors of kernels as (n_groups, n_inner)."""
        if len(b) % self.n_inner:
            raise ValueError(
                f"GroupSparse: {len(b)} kernels are not groups of {self.n_inner}; give n_inner kernels for every group."
            )
        return b.reshape(-1, self.n_inner)

    @staticmethod
    def _norms(groups: NDArray[np.float64], exponent: float) -> Vector:
        return np.array([norm(group, exponent) for group in groups])

    def _shares(self, energies: Vector) -> Vector:
        """Norms of the groups that answer best to their energies."""
        n_groups, cap = len(energies), self.group_cap(len(energies))
        if cap * n_groups <= 1.0 + _ROUNDING:
            return np.full(n_groups, cap)
        return aligned(energies, self.q) if cap >= 1.0 else CappedSimplex(theta=cap).respond(energies)

    def _project_norms(self, norms: Vector) -> Vector:
        cap = self.group_cap(len(norms))
        if self.q != 1.0:
            return project_lp_ball(norms, self.q)
        capped = np.minimum(norms, cap)
        return capped if capped.sum() <= 1.0 else project_capped(norms, cap)


def project_capped_groups(groups: NDArray[np.float64], cap: float) -> NDArray[np.float64]:
    """Nearest weights of a sum of at most one, in rows whose sums are at most a cap below one.

    Rows above the cap go to their nearest weights of that sum. If all together are above one, the others lose the same
    of every weight. That many rows reach the cap and one more would be too many: what is lost lies within one of the
    largest weight of this next row.
    """
    rows = np.maximum(groups, 0.0)
    capped = np.array([row if row.sum() <= cap else cap * project_simplex(row / cap) for row in rows])
    if capped.sum() <= 1.0:
        return capped
    next_row = np.sort(rows.max(axis=1))[::-1][min(int(1.0 / cap), len(rows) - 1)]
    above, low, high = rows - next_row, 0.0, 1.0
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        left = np.maximum(above + middle, 0.0)
        low, high = (middle, high) if np.minimum(left.sum(axis=1), cap).sum() <= 1.0 else (low, middle)
    left = np.maximum(above + low, 0.0)
    return np.where(left.sum(axis=1, keepdims=True) > cap, capped, left)
