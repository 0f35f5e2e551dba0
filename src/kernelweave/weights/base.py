"""What a weight set is: the set B of allowed kernel weights and the penalty R(b) on them.

Every method of this package is the saddle point ::

    min over b in B   max over a    S(a) - b.h(a) + R(b),        h_j = 1/2 sum_k v_k' K_j v_k

and a solver sees the weights only through the methods below. A set implements what it has in closed form and leaves out
the rest; whether a method was implemented is asked in one place, the ``has_...`` and ``is_...`` properties.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from difflib import get_close_matches
from numbers import Real
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

#: Weights below this fraction of the largest one are numerical dust, which `WeightSet.clean` removes.
DUST = 1e-9


class Unsupported(TypeError):
    """A weight set was asked for something that it cannot do."""


class LinearConstraints(NamedTuple):
    """A polytope in the keywords of `scipy.optimize.linprog`: ``linprog(c, **constraints._asdict())``."""

    A_ub: NDArray[np.float64] | None
    b_ub: Vector | None
    A_eq: NDArray[np.float64] | None
    b_eq: Vector | None
    bounds: list[tuple[float, float | None]]


class WeightSet(ABC):
    """The set B of kernel weights and the penalty R on it.

    All arrays are float64 of length s, the number of kernels. Energies ``h`` are at least zero; where a formula needs
    that, negative round-off counts as zero. Sets are immutable, compare by value and print as they are made.
    """

    # -- what every set has ---------------------------------------------------------------------------------------

    @abstractmethod
    def start(self, n_kernels: int) -> Vector:
        """Uniform feasible weights, strictly positive unless the set itself fixes a weight to zero."""

    @abstractmethod
    def respond(self, h: Vector) -> Vector:
        """Best response: the b in B that maximises ``b.h - R(b)``. Ties share; all-zero energies are allowed."""

    @abstractmethod
    def feasible(self, b: Vector, tol: float = 1e-9) -> bool:
        """Whether b lies in B up to `tol`."""

    def support(self, h: Vector) -> float:
        """``max over b in B of b.h - R(b)``: the lower bound of the saddle point is ``S - support(h)``."""
        b = self.respond(h)
        return float(b @ h) - self.penalty(b)

    def penalty(self, b: Vector) -> float:
        """R(b)."""
        return 0.0

    def slope(self, b: Vector) -> Vector:
        """Gradient of R at b."""
        return np.zeros_like(b)

    def curvature(self, b: Vector) -> Vector:
        """Diagonal of the second derivative of R at b, which is a sum over kernels where this exists."""
        if self.has_penalty:
            self._refuse("bounded second derivative of its penalty")
        return np.zeros_like(b)

    def clean(self, b: Vector) -> Vector:
        """Set numerical dust to exactly zero; where weights sum to one, make them do so again.

        The sets that are not made of simplices contain, with a point, every smaller one, so they need no repair.
        """
        b = np.where(b < DUST * b.max(), 0.0, b)
        for members in self.simplices(len(b)) or ():
            b[members] /= b[members].sum()
        return b

    def resolve(self, bank: Any, machine: Any, Y: NDArray[np.float64]) -> WeightSet:
        """The set to solve with, now that the data are known: itself, unless it refers to data or to kernel names."""
        return self

    # -- what some sets have --------------------------------------------------------------------------------------

    def project(self, b: Vector) -> Vector:
        """Point of B nearest to b in the Euclidean norm."""
        self._refuse("a Euclidean projection")

    def update(self, norms: Vector) -> Vector:
        """Minimiser over B of ``1/2 sum_j norms_j**2 / b_j + R(b)``, where ``norms_j = ||f_j|| = b_j sqrt(2 h_j)``.

        A zero norm gives a zero weight where the set allows it, so alternating solvers must start strictly positive.
        """
        self._refuse("a closed-form update")

    def linear_constraints(self, n_kernels: int) -> LinearConstraints:
        """B as a polytope. Only sets without penalty have this: it says that master problems are linear programs."""
        self._refuse("a linear master problem")

    def simplices(self, n_kernels: int) -> list[NDArray[np.intp]] | None:
        """Index arrays of the groups of kernels whose weights sum to one, each up to `cap`; None for other sets."""
        return None

    def cap(self, n_kernels: int) -> float:
        """Largest weight on the `simplices`: one, unless the set says less."""
        return 1.0

    def scale(self, b: Vector, h: Vector) -> Vector | None:
        """Factors owned by the maximising side: the machine uses the weights ``b * scale`` and the energies that b
        answers to are ``scale * h``. None means ones; only `Grouped` with r > 1 has any."""
        return None

    def cost(self, b: Vector, h: Vector, scale: Vector | None = None) -> float:
        """Regulariser in the primal problem at the functions ``f_j = b_j scale_j K_j v``, plus R(b)."""
        return float(b @ h) + self.penalty(b)

    # -- capabilities ---------------------------------------------------------------------------------------------

    @property
    def has_projection(self) -> bool:
        """`project` exists."""
        return self._overrides("project")

    @property
    def has_update(self) -> bool:
        """`update` exists."""
        return self._overrides("update")

    @property
    def has_penalty(self) -> bool:
        """R is not zero."""
        return self._overrides("penalty")

    @property
    def has_gradient(self) -> bool:
        """R is zero, or differentiable with a bounded gradient on B."""
        return True

    @property
    def has_curvature(self) -> bool:
        """R is zero, or `curvature` exists and is bounded on B."""
        return not self.has_penalty

    @property
    def has_scale(self) -> bool:
        """The maximising side owns part of the weights (`scale` is not None)."""
        return False

    @property
    def is_linear(self) -> bool:
        """B is a polytope and R is zero (`linear_constraints` exists)."""
        return self._overrides("linear_constraints")

    @property
    def is_smooth(self) -> bool:
        """`support` is differentiable for positive h: the best response is unique and continuous."""
        return False

    def _overrides(self, method: str) -> bool:
        return getattr(type(self), method) is not getattr(WeightSet, method)

    def _refuse(self, what: str) -> NoReturn:
        raise Unsupported(f"{self!r} has no {what}; choose another solver or another weight set.")


def check_parameter(
    owner: WeightSet, name: str, low: float, high: float, *, open_low: bool = False, advice: str = ""
) -> None:
    """Raise unless ``owner.name`` is a number in [low, high], or in (low, high] if `open_low`."""
    value = getattr(owner, name)
    wanted = f"a number in {'(' if open_low else '['}{low:g}, {high:g}]"
    kind = type(owner).__name__
    if not isinstance(value, Real) or isinstance(value, bool):
        raise TypeError(f"{kind}: {name} must be {wanted}, got {value!r} of type {type(value).__name__}.")
    if not low <= float(value) <= high or (open_low and value == low):  # written so that NaN fails
        raise ValueError(f"{kind}: {name} must be {wanted}, got {value!r}.{' ' + advice if advice else ''}")


def index_of(name: str, names: Sequence[str], owner: str) -> int:
    """Position of a kernel's name among `names`, or an error that proposes the nearest one."""
    if name in names:
        return list(names).index(name)
    near = get_close_matches(name, names, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else f" The kernels are: {', '.join(map(repr, names))}."
    raise ValueError(f"{owner}: there is no kernel named {name!r}.{hint}")
