"""Weights that compete inside groups while every group is kept (mixed norms; variable-sparsity kernel learning)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._equations import conjugate, norm
from .base import Vector, check_parameter, index_of
from .lp import LpBall
from .simplex import LinearOnSimplices

#: The adversary's share of a group without energy, relative to the largest: its factor must stay finite.
SMALLEST_SHARE = 1e-12


@dataclass(frozen=True)
class Grouped(LinearOnSimplices):
    """l1 inside each group of kernels, l_{2r} across groups: ``1/2 [sum_g (sum_{k in g} ||f_gk||)^(2r)]^(1/r)``.

    The learned weights lie in a product of simplices, one a group. For r = 1 they are the kernel weights, and the
    support is ``sum_g max_{k in g} h_gk``. For r > 1 the maximising side owns factors 1/gamma_g as well, ::

        min over b   max over a and gamma >= 0, ||gamma||_{r*} <= 1    S(a) - sum_g 1/gamma_g sum_{k in g} b_gk h_gk

    with 1/r + 1/r* = 1, and a solver uses `scale`: kernel weights ``b * scale``, best response to ``scale * h``, norms
    ``b * scale * sqrt(2h)`` for `update`, and `cost` for the upper bound. One group is `Simplex`; groups of one kernel
    and r = 1 are `Sum`.

    Parameters
    ----------
    groups : sequence
        A label for each kernel, such as ``["colour", "colour", "shape"]``; or the groups as lists of kernel positions
        or names, such as ``[[0, 1], [2]]`` (names are looked up by `resolve`). Every kernel is in exactly one group.
    r : float, default=1.0
        At least 1, possibly ``inf``. The larger, the more evenly the groups are used.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.weights import Grouped
    >>> Grouped(["colour", "colour", "shape"]).respond(np.array([1.0, 2.0, 0.5]))
    array([0., 1., 1.])
    """

    groups: Sequence[Any]
    r: float = 1.0

    def __post_init__(self) -> None:
        check_parameter(self, "r", 1.0, np.inf)
        object.__setattr__(self, "groups", _as_tuples(self.groups))

    def resolve(self, bank: Any, machine: Any, Y: NDArray[np.float64]) -> Grouped:
        """Replace kernel names by their positions in ``bank.names``."""
        if not any(isinstance(member, str) for group in self.groups for member in group):
            return self
        groups = [[index_of(m, bank.names, "Grouped") if isinstance(m, str) else m for m in g] for g in self.groups]
        return replace(self, groups=groups)

    def simplices(self, n_kernels: int) -> list[NDArray[np.intp]]:
        members = [member for group in self.groups for member in group]
        if any(isinstance(member, str) for member in members):
            raise ValueError("Grouped: the groups hold kernel names that were not looked up yet; call resolve first.")
        wrong = sorted(set(members) ^ set(range(n_kernels)))
        if wrong:
            raise ValueError(
                f"Grouped: every one of the {n_kernels} kernels, 0 to {n_kernels - 1}, must be in one group; "
                f"kernel {wrong[0]} is {'in no group' if wrong[0] in range(n_kernels) else 'not among them'}."
            )
        return [np.array(group, dtype=np.intp) for group in self.groups]

    def scale(self, b: Vector, h: Vector) -> Vector | None:
        """1/gamma_g for each kernel: ``gamma_g ~ (sum_k b_gk h_gk)^(1/(r*+1)), ||gamma||_{r*} = 1``.

        That is the `LpBall` update: it minimises ``sum_g e_g / gamma_g`` over the r*-ball, e_g = sum_k b_gk h_gk.
        """
        if not self.has_scale:
            return None
        simplices = self.simplices(len(h))
        energies = np.array([b[members] @ h[members] for members in simplices])
        energies = np.maximum(energies, SMALLEST_SHARE * max(energies.max(), 0.0))
        gamma = LpBall(conjugate(self.r)).update(np.sqrt(energies))
        scale = np.empty_like(h)
        for share, members in zip(gamma, simplices, strict=True):
            scale[members] = 1.0 / share
        return scale

    def cost(self, b: Vector, h: Vector, scale: Vector | None = None) -> float:
        """``1/2 [sum_g (N_g^2)^r]^(1/r)`` with ``N_g^2 = sum_k ||f_gk||^2 / b_gk = 2 sum_k b_gk scale_g^2 h_gk``."""
        factors = np.ones_like(h) if scale is None else scale
        energies = b * factors**2 * h
        return norm(np.array([energies[members].sum() for members in self.simplices(len(h))]), self.r)

    @property
    def has_scale(self) -> bool:
        return self.r > 1.0


def _as_tuples(groups: Iterable[Any]) -> tuple[tuple[int | str, ...], ...]:
    """Groups as tuples of positions or names, from labels or from lists, checked to be disjoint and not empty."""
    items = [] if isinstance(groups, str) else list(groups)
    nested = [isinstance(item, (list, tuple, set, range, np.ndarray)) for item in items]
    if not items or (any(nested) and not all(nested)):
        raise ValueError(
            f"Grouped: groups must be a label for each kernel or a list of lists of kernels, got {groups!r}."
        )
    if not all(nested):
        by_label: dict[Any, list[int]] = {}
        for kernel, label in enumerate(items):
            by_label.setdefault(label, []).append(kernel)
        items = list(by_label.values())
    result = tuple(tuple(member if isinstance(member, str) else int(member) for member in group) for group in items)
    members = [member for group in result for member in group]
    repeated = [member for member in members if members.count(member) > 1]
    if repeated or not all(result):
        problem = f"kernel {repeated[0]!r} is in more than one" if repeated else "one is empty"
        raise ValueError(f"Grouped: groups must be disjoint and not empty, but {problem}; got {groups!r}.")
    return result
