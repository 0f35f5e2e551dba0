"""Label ranking as machines: relevant labels of a sample above its irrelevant ones, all labels learned together.

With y_ik = +1 (relevant), -1 (irrelevant) or 0 (never judged: no part in anything), a_ik >= 0, B = y * a, F = K B:

MLR-L1    min  1/2 sum_k |f_k|^2 + C sum_i min over b of sum_k max(0, 1 - y_ik (f_k(x_i) - b))
          max  sum a - 1/2 tr B'KB          0 <= a_ik <= C,   sum_k B_ik = 0
pairwise  min  1/2 sum_k |f_k|^2 + C sum_i sum_{p relevant, q irrelevant} max(0, 2 - f_p(x_i) + f_q(x_i))
          max  sum a - 1/2 tr B'KB          a_ip = sum_q z_pq,  a_iq = sum_p z_pq,  0 <= z <= C
MLR-GL    min  1/2 sum_k |f_k|^2 + C sum_i sum_q sqrt(sum_p max(0, 1 - f_p(x_i) + f_q(x_i))^2)
          max  1/2 sum a - 1/2 tr B'KB      as pairwise with z = C g,  |g_q| <= 1 for every irrelevant label q
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._validation import check_cost
from ..kernels.operators import Operator
from ..labels import Signs
from .base import Array, Solution, Values
from .products import balanced_rows
from .ranking_ascent import Face, RankingMachine, Work, in_common
from .ranking_loops import (
    box_block,
    box_loss,
    group_block,
    group_loss,
    group_starts,
    pair_differences,
    pair_offsets,
    pair_sums,
    pairwise_block,
    pairwise_loss,
    project_balanced_box,
    smoothed_group_block,
)

#: What errors say of C.
_MEANING = "it is the cost of a ranking error"
#: Ascent steps on the pair multipliers of a row at each visit.
_VISITS = 3
#: A dual closer to its bound than this share of it counts as bounded.
_BOUND = 1e-8


@dataclass
class MLRL1(RankingMachine):
    """MLR-L1: the t-th worst relevant label against the t-th best irrelevant one, linear in the number of labels.

    Parameters
    ----------
    C : float
        Cost of a ranking error.
    ridge : float or array of shape (n_samples,)
        Added to the diagonal of the kernel while learning, not when predicting: a smoother loss. With kernels of unit
        diagonal, ``ridge=1`` with half the C and twice the scores is the algorithm as it was printed.
    box : {"narrow", "wide"}
        "narrow": every dual of a sample is at most C. "wide": C times the number of labels on the other side, which is
        as far as the pairwise problem can reach.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.machines import MLRL1
    >>> K = np.exp(-0.25 * np.subtract.outer([0, 1, 2, 4, 5], [0, 1, 2, 4, 5]) ** 2.0)
    >>> Y = np.array([[1, 1, -1, -1], [1, -1, -1, -1], [-1, 1, 1, -1], [-1, -1, 1, 1], [1, 1, 1, -1]], dtype=float)
    >>> solution = MLRL1(C=1.0).solve(K, Y, accuracy=1e-9)
    >>> round(solution.primal, 5), round(solution.dual, 5)
    (11.48166, 11.48166)
    """

    C: float = 1.0
    ridge: float | Array = 0.0
    box: str = "narrow"

    # Preconditioned steps gain most at once, and what more of them find is lost when the next sweep changes the face.
    _face_steps = 2

    def __post_init__(self) -> None:
        check_cost("C", self.C, _MEANING)
        if self.box not in ("narrow", "wide"):
            raise ValueError(f"box must be 'narrow' or 'wide', got {self.box!r}.")
        if not np.all(np.isfinite(self.ridge)) or np.any(np.asarray(self.ridge) < 0):
            raise ValueError(f"ridge must be finite and not negative, got {self.ridge!r}.")

    def solve(self, K: Any, Y: Array, start: Solution | None = None, accuracy: float = 1e-3) -> Solution:
        """See :meth:`Machine.solve`. A kernel that is best asked for whole products is, and steps are then rounds."""
        if not isinstance(K, Operator) or K.sweeps:
            return super().solve(K, Y, start, accuracy)
        signs = np.sign(Y).astype(np.int8, order="C")
        extra = self._prepare(signs)
        box = (extra["lower"], extra["upper"], extra["ridge"])
        B, F, gap, rounds = balanced_rows(K, signs, *box, self._start(signs, extra, start), accuracy)
        extra["common"], extra["rest"] = in_common(K)
        work = Work(signs, B, B, F.astype(K.dtype), extra)
        linear = float(np.abs(B).sum()) - self._smooth(work, B)
        quadratic = 0.5 * float(np.einsum("ik,ik->", B, F))
        return Solution(
            coef=B,
            intercept=np.zeros(signs.shape[1]),
            linear=linear,
            loss=linear - 2 * quadratic + gap,
            quadratic=quadratic,
            steps=rounds,
            state=work,
        )

    def _smooth(self, work: Work, B: Array) -> float:
        """What the ridge takes off the dual value."""
        return 0.5 * float(work.extra["ridge"] @ (B**2).sum(axis=1))

    def _caps(self, signs: Signs) -> tuple[Array, Array]:
        """Largest dual of the relevant and of the irrelevant labels of each sample; zero where there is no pair."""
        a, b = (signs > 0).sum(axis=1), (signs < 0).sum(axis=1)
        if self.box == "wide":
            return self.C * b * (a > 0), self.C * a * (b > 0)
        both = np.where((a > 0) & (b > 0), float(self.C), 0.0)
        return both, both

    def _prepare(self, signs: Signs) -> dict[str, Any]:
        relevant, irrelevant = self._caps(signs)
        return {
            "caps": (relevant, irrelevant),
            "lower": np.minimum(signs, 0) * irrelevant[:, None],
            "upper": np.maximum(signs, 0) * relevant[:, None],
            "ridge": np.broadcast_to(np.asarray(self.ridge, dtype=np.float64), (len(signs),)).copy(),
            "shift": np.zeros(len(signs)),
        }

    def _begin(self, K: NDArray, signs: Signs, extra: dict[str, Any], start: Solution | None) -> Work:
        extra["common"], extra["rest"] = in_common(K)  # for the preconditioner, which the other machines do not have
        return super()._begin(K, signs, extra, start)

    def _start(self, signs: Signs, extra: dict[str, Any], start: Solution | None) -> Array:
        if start is None:
            return np.zeros(signs.shape)
        # Too large for a smaller C: a multiple of a balanced row is balanced. The projection is for other leftovers.
        caps = np.maximum(*extra["caps"])[:, None]
        largest = np.maximum(np.abs(start.coef).max(axis=1, keepdims=True), np.finfo(float).tiny)
        return project_balanced_box(start.coef * (caps / np.maximum(caps, largest)), extra["lower"], extra["upper"])[0]

    def _coefficients(self, work: Work, duals: Array) -> Array:
        return duals

    def _pull(self, work: Work, F: NDArray) -> NDArray:
        return F

    def _slope(self, work: Work) -> NDArray:
        slope = work.signs - work.F
        ridge = work.extra["ridge"]
        return slope - (ridge[:, None] * work.B).astype(slope.dtype) if ridge.any() else slope

    def _face(self, work: Work, slope: Array) -> Face:
        lower, upper = work.extra["lower"], work.extra["upper"]
        slack = _BOUND * (upper - lower)
        inside = (lower + slack < work.B) & (upper - slack > work.B)
        free = inside.astype(work.F.dtype)
        share = 1.0 / np.maximum(free.sum(axis=1, keepdims=True), 1)
        # Inverse of rest + ridge + common common' on the free samples of each label, by Woodbury's identity.
        ridge = work.extra["ridge"].astype(work.F.dtype)
        common, rest = work.extra["common"], work.extra["rest"]
        inverse = 1.0 / (rest + ridge)[:, None]
        scaled = inverse * common
        within = _inverses(scaled, common, free)

        def tangent(P: Array) -> Array:
            P = P * free
            return (P - share * P.sum(axis=1, keepdims=True)) * free

        def precondition(P: Array) -> Array:
            return tangent(inverse * P - scaled @ np.einsum("kab,bk->ak", within, scaled.T @ P))

        return Face(tangent, ridge[:, None], precondition)

    def _solve_block(self, K: NDArray, rows: slice, work: Work, F: Array, delta: Array) -> None:
        extra = work.extra
        relevant, irrelevant = (caps[rows] for caps in extra["caps"])
        signs, ridge, shift = work.signs[rows], extra["ridge"][rows], extra["shift"][rows]
        box_block(K, ridge, signs, relevant, irrelevant, F, work.B[rows], shift, delta)

    def _terms(self, work: Work, B: Array, F: NDArray) -> tuple[float, float]:
        ridge, smooth = work.extra["ridge"], 0.0
        if ridge.any():
            F, smooth = F + ridge[:, None] * B, self._smooth(work, B)
        return float(np.abs(B).sum()) - smooth, box_loss(F, work.signs, *work.extra["caps"]) + smooth

    def restrict(self, samples: NDArray[np.intp]) -> MLRL1:
        """See :meth:`Machine.restrict`."""
        return self if np.ndim(self.ridge) == 0 else replace(self, ridge=np.asarray(self.ridge)[samples])


def _inverses(left: NDArray, right: NDArray, free: NDArray) -> NDArray:
    """``inv(1 + left[f].T @ right[f])``, symmetric, for the free samples f of every label: (m, r, r)."""
    r = right.shape[1]
    rows, columns = np.tril_indices(r)
    small = np.empty((free.shape[1], r, r))
    small[:, rows, columns] = small[:, columns, rows] = free.T @ (left[:, rows] * right[:, columns])
    return np.linalg.inv(small + np.eye(r)).astype(free.dtype)


class PairMachine(RankingMachine):
    """Shared by the machines with one multiplier a pair of a relevant and an irrelevant label."""

    #: What a unit of a pair multiplier adds to the duals of its two labels.
    unit: float
    #: By how much a relevant label is to be above an irrelevant one.
    margin: float

    def _prepare(self, signs: Signs) -> dict[str, Any]:
        return {"offsets": pair_offsets(signs)}

    def _start(self, signs: Signs, extra: dict[str, Any], start: Solution | None) -> Array:
        n_pairs = extra["offsets"][-1]
        if start is None or start.inner is None or start.inner.shape != (n_pairs,):
            return np.zeros(n_pairs)
        return self._within(extra, start.inner)

    @abstractmethod
    def _within(self, extra: dict[str, Any], pairs: Array) -> Array:
        """Nearest feasible multipliers."""

    def _coefficients(self, work: Work, duals: Array) -> Array:
        B = np.empty(work.signs.shape)
        pair_sums(work.signs, work.extra["offsets"], duals, B)
        return self.unit * B

    def _pull(self, work: Work, F: NDArray) -> Array:
        differences = np.empty(work.extra["offsets"][-1])
        pair_differences(work.signs, work.extra["offsets"], F, differences)
        return self.unit * differences

    def _slope(self, work: Work) -> Array:
        return self.unit * self.margin - self._pull(work, work.F)


@dataclass
class MLRPairwise(PairMachine):
    """Every relevant label against every irrelevant one: what MLR-L1 approximates, at a cost of pairs.

    Parameters
    ----------
    C : float
        Cost of a ranking error of one pair.
    """

    C: float = 1.0
    unit = 1.0
    margin = 2.0

    def __post_init__(self) -> None:
        check_cost("C", self.C, _MEANING)

    def _within(self, extra: dict[str, Any], pairs: Array) -> Array:
        return np.clip(pairs, 0.0, self.C)

    def _face(self, work: Work, slope: Array) -> Face:
        slack = _BOUND * self.C
        free = (work.duals > slack) & (work.duals < self.C - slack)
        return Face(lambda P: P * free, 0.0)

    def _solve_block(self, K: NDArray, rows: slice, work: Work, F: Array, delta: Array) -> None:
        offsets = work.extra["offsets"][rows.start : rows.stop + 1]
        pairwise_block(K, work.signs[rows], self.C, offsets, work.duals, F, work.B[rows], delta, _VISITS)

    def _terms(self, work: Work, B: Array, F: NDArray) -> tuple[float, float]:
        return float(np.abs(B).sum()), self.C * pairwise_loss(F, work.signs)


@dataclass
class MLRGL(PairMachine):
    """MLR-GL: the errors of each irrelevant label pooled in a norm, so that a label that is out of place costs less.

    Parameters
    ----------
    C : float
        Cost of a group of ranking errors.
    eta : float, optional
        None: the problem above, exactly. A number: the published closed-form update, which solves a smoothed problem;
        larger is smoother, half the number of labels is a good first try. The gap of the problem above then stays open.
    """

    C: float = 1.0
    eta: float | None = None
    margin = 1.0

    def __post_init__(self) -> None:
        check_cost("C", self.C, _MEANING)
        if self.eta is not None and not 0 < self.eta < np.inf:
            raise ValueError(f"eta must be None or positive and finite, got {self.eta!r}.")

    @property
    def unit(self) -> float:  # type: ignore[override]
        """The multipliers are shares of C."""
        return self.C

    @property
    def open_because(self) -> str:
        """See :attr:`Machine.open_because`."""
        return "" if self.eta is None else "MLRGL(eta=...) solves a smoothed problem, not the stated one"

    def solve(self, K: NDArray, Y: Array, start: Solution | None = None, accuracy: float = 1e-3) -> Solution:
        """See :meth:`Machine.solve`. With `eta`, `accuracy` is of the duals, `state` holds the values climbed."""
        if self.eta is not None:
            return _SmoothedGroup(self.C, self.eta).solve(K, Y, start, accuracy)
        return super().solve(K, Y, start, accuracy)

    def _prepare(self, signs: Signs) -> dict[str, Any]:
        return super()._prepare(signs) | {"groups": group_starts(signs)}

    def _within(self, extra: dict[str, Any], pairs: Array) -> Array:
        pairs = np.maximum(pairs, 0.0)
        return pairs / np.maximum(1.0, _spread(extra, np.sqrt(_group_sums(extra, pairs**2))))

    def _face(self, work: Work, slope: Array) -> Face:
        """Groups inside their ball move freely; those on its surface along it, held to it by their multiplier."""
        extra, g = work.extra, work.duals
        free = g > _BOUND
        pressure = _group_sums(extra, slope * g)
        on_surface = (_group_sums(extra, g**2) > (1 - _BOUND) ** 2) & (pressure > 0)
        outward = g * free * _spread(extra, on_surface.astype(np.float64))

        def tangent(P: Array) -> Array:
            P = P * free
            return P - outward * _spread(extra, _group_sums(extra, outward * P))

        return Face(tangent, _spread(extra, np.where(on_surface, pressure, 0.0)))

    def _solve_block(self, K: NDArray, rows: slice, work: Work, F: Array, delta: Array) -> None:
        offsets = work.extra["offsets"][rows.start : rows.stop + 1]
        group_block(K, work.signs[rows], self.C, offsets, work.duals, F, work.B[rows], delta, _VISITS)

    def _terms(self, work: Work, B: Array, F: NDArray) -> tuple[float, float]:
        return 0.5 * float(np.abs(B).sum()), self.C * group_loss(F, work.signs)


def _group_sums(extra: dict[str, Any], pairs: Array) -> Array:
    starts = extra["groups"]
    return np.add.reduceat(pairs, starts[:-1]) if len(starts) > 1 else np.zeros(0)


def _spread(extra: dict[str, Any], groups: Array) -> Array:
    return np.repeat(groups, np.diff(extra["groups"]))


@dataclass
class _SmoothedGroup(RankingMachine):
    """The published update of MLR-GL: |g 1|^2 + |g'1|^2 of each sample's own block replaced by 2 eta |g|^2.

    It climbs the dual value so changed, which has its maximum elsewhere. The multipliers need not be kept.
    """

    C: float
    eta: float

    def _prepare(self, signs: Signs) -> dict[str, Any]:
        return {"squares": np.zeros(len(signs)), "change": np.inf, "monitor": []}

    def _start(self, signs: Signs, extra: dict[str, Any], start: Solution | None) -> Array:
        return np.zeros(signs.shape) if start is None else start.coef.copy()

    def _coefficients(self, work: Work, duals: Array) -> Array:
        return duals

    def _solve_block(self, K: NDArray, rows: slice, work: Work, F: Array, delta: Array) -> None:
        squares = work.extra["squares"][rows]
        smoothed_group_block(K, work.signs[rows], self.C, self.eta, squares, F, work.B[rows], delta)

    def _sweep(self, K: NDArray, work: Work) -> None:
        before = work.B.copy()
        super()._sweep(K, work)
        work.extra["change"] = np.abs(work.B - before).max() / max(np.abs(work.B).max(), np.finfo(float).tiny)
        replaced = 2 * self.eta * self.C**2 * work.extra["squares"] - (work.B**2).sum(axis=1)
        climbed = self._values(work, work.B, work.F).dual - 0.5 * float(K.diagonal() @ replaced)
        work.extra["monitor"].append(climbed)

    def _climb_face(self, K: NDArray, work: Work, now: Values) -> Values | None:
        return None

    def _done(self, work: Work, values: Values, accuracy: float) -> bool:
        return work.extra["change"] <= accuracy

    def _stuck(self, work: Work, before: Values, now: Values) -> bool:
        climbed = work.extra["monitor"]
        return climbed[-1] - climbed[max(0, len(climbed) - 10)] <= 1e-12 * abs(climbed[-1])

    def _terms(self, work: Work, B: Array, F: NDArray) -> tuple[float, float]:
        return 0.5 * float(np.abs(B).sum()), self.C * group_loss(F, work.signs)

    def _pull(self, work: Work, F: NDArray) -> Array:
        return F.astype(np.float64)

    def _slope(self, work: Work) -> Array:
        return np.zeros(work.B.shape)

    def _face(self, work: Work, slope: Array) -> Face:
        return Face(np.zeros_like, 0.0)  # not known without the multipliers: no curvature, no steps
