"""How the label-ranking machines climb their duals: sweeps over the samples, then steps in the face they arrived at.

A sweep solves the block of one sample after the other with all others held. It finds quickly which duals end at their
bounds, and is slow to agree on the rest when kernel values between different samples are large. The rest is a
quadratic problem without bounds: conjugate gradients on it, at one matrix product a step, do what hundreds of sweeps
would. What leaves the constraint set the next sweep brings back, sample by sample and at no cost of its own; both
together are kept only if the dual value rises.

Samples have much in common: the mean of most kernels is well above zero, and a few more directions describe most of the
rest. These make some eigenvalues of K large and conjugate gradients slow, so they are preconditioned with a multiple of
the identity plus those directions.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels.operators import Operator, Running
from ..labels import Signs
from .base import Array, Machine, Products, Solution, Values, product
from .ranking_loops import ordered_shares

#: Samples whose effect on all scores is one matrix product.
_BLOCK = 256
#: Scores are recomputed from the duals after at most this many sweeps, and always before a certificate is given.
_REFRESH = 50
#: A smaller relative rise of the dual value than this between two refreshes is rounding.
_RISE = 1e-12
#: Steps in a face end when one gains less than this share of the best.
_LITTLE = 0.2
#: Steps in the first face: one more when the dual value rose, half as many when it did not.
_FIRST_STEPS = 2
#: Share of a force, in the norm of the preconditioner, that is worth a second direction.
_MUCH_LEFT = 0.03
#: A direction this much flatter than the steepest is flat but for rounding.
_FLAT = 1e-12
#: Directions that the samples have most in common, and power iterations to find them. More of them cost more to invert
#: for every label than they save.
_COMMON = 16
_POWER_STEPS = 2


@dataclass
class Work:
    """A fit under way.

    Attributes
    ----------
    signs : array of shape (n, m)
    duals : array
        What the machine moves: the signed duals themselves or pair multipliers.
    B : array of shape (n, m)
        Signed duals.
    F : array of shape (n, m), of the kernel's dtype
        ``K @ B``, kept up to date.
    extra : dict
        What the machine's loops need beside these.
    steps : int
        How many steps the next climb in a face may take.
    """

    signs: Signs
    duals: Array
    B: Array
    F: NDArray
    extra: dict[str, Any]
    steps: int = _FIRST_STEPS


@dataclass
class Reached(Values):
    """The values of a point on the way; the quadratic is without the ridge."""

    linear: float
    loss: float
    quadratic: float


@dataclass
class Face:
    """The part of a constraint set around a point in which the duals can move both ways.

    Attributes
    ----------
    tangent : function
        Projects a direction on the face.
    curvature : array or float
        What the second derivative has on its diagonal beside the kernel's part.
    precondition : function
        Roughly the inverse of the second derivative, applied to a direction in the face; stays in the face.
    """

    tangent: Callable[[Array], Array]
    curvature: Any
    precondition: Callable[[Array], Array] = field(default=lambda direction: direction)


class RankingMachine(Machine):
    """A machine whose dual has one block of constraints a sample."""

    kind = "ranker"

    #: Most steps in a face before the next sweep.
    _face_steps = 10

    # -- what a machine says about its problem ----------------------------------------------------------------------

    @abstractmethod
    def _prepare(self, signs: Signs) -> dict[str, Any]:
        """What the loops need beside labels and duals."""

    @abstractmethod
    def _start(self, signs: Signs, extra: dict[str, Any], start: Solution | None) -> Array:
        """Feasible duals to start from."""

    @abstractmethod
    def _coefficients(self, work: Work, duals: Array) -> Array:
        """Signed duals B, (n, m), from the machine's duals: a linear map."""

    @abstractmethod
    def _pull(self, work: Work, F: NDArray) -> Array:
        """The transpose of that map."""

    @abstractmethod
    def _slope(self, work: Work) -> Array:
        """Derivative of the dual value in the machine's duals."""

    @abstractmethod
    def _face(self, work: Work, slope: Array) -> Face:
        """Where the duals can still move both ways."""

    @abstractmethod
    def _solve_block(self, K: NDArray, rows: slice, work: Work, F: Array, delta: Array) -> None:
        """Visit the rows of a block: update ``work.duals``, ``work.B[rows]`` and `F`, write the change to `delta`."""

    @abstractmethod
    def _terms(self, work: Work, B: Array, F: NDArray) -> tuple[float, float]:
        """S(a) and the loss at the duals B with the scores F."""

    # -- the ascent -------------------------------------------------------------------------------------------------

    def solve(self, K: NDArray, Y: Array, start: Solution | None = None, accuracy: float = 1e-3) -> Solution:
        """See :meth:`Machine.solve`; Y holds +1, -1, and 0 for labels never judged. Steps are sweeps."""
        K = K if isinstance(K, Operator) else np.ascontiguousarray(K)
        signs = np.sign(Y).astype(np.int8, order="C")
        extra = self._prepare(signs)
        work = self._begin(K, signs, extra, start)
        values = now = self._values(work, work.B, work.F)
        if self._done(work, now, accuracy):
            values = self._refresh(K, work)
        sweeps = since = 0
        while not self._done(work, values, accuracy):
            now = self._climb_face(K, work, now) or self._swept(K, work)
            sweeps, since = sweeps + 1, since + 1
            if since < _REFRESH and not self._done(work, now, accuracy):
                continue
            before, values, since = values, self._refresh(K, work), 0
            now = values
            if self._stuck(work, before, values):
                break
        return Solution(
            coef=work.B,
            intercept=np.zeros(signs.shape[1]),
            linear=values.linear,
            loss=values.loss,
            quadratic=values.quadratic,
            steps=sweeps,
            state=work,
            inner=None if work.duals is work.B else work.duals,
        )

    def _done(self, work: Work, values: Values, accuracy: float) -> bool:
        return values.gap <= accuracy * abs(values.primal)

    def _stuck(self, work: Work, before: Values, now: Values) -> bool:
        """Whether nothing but rounding happened between two refreshes."""
        return now.dual - before.dual <= _RISE * abs(now.dual) and now.gap >= before.gap

    def _refresh(self, K: NDArray, work: Work) -> Values:
        """Signed duals and scores computed anew, in double precision, and the values they certify."""
        work.B = self._coefficients(work, work.duals)
        F = product(K, work.B) if work.B.any() else work.B
        work.F[:] = F
        return self._values(work, work.B, F)

    def _values(self, work: Work, B: Array, F: NDArray) -> Values:
        linear, loss = self._terms(work, B, F)
        return Reached(linear, loss, 0.5 * float(np.einsum("ik,ik->", B, F)))

    def _sweep(self, K: NDArray, work: Work) -> None:
        scores = K.running(work.F) if isinstance(K, Operator) else Running(K, work.F)
        for begin in range(0, len(K), _BLOCK):
            rows = slice(begin, min(begin + _BLOCK, len(K)))
            F = scores.at(rows)
            delta = np.empty_like(F)
            self._solve_block(scores.block(rows), rows, work, F, delta)
            scores.add(rows, delta)
        scores.finish()

    def _swept(self, K: NDArray, work: Work) -> Values:
        self._sweep(K, work)
        return self._values(work, work.B, work.F)

    def _climb_face(self, K: NDArray, work: Work, now: Values) -> Values | None:
        """Steps in the face, then a sweep; None, and nothing changed, if that does not raise the dual value."""
        kept = work.duals, work.B, work.F
        slope = self._slope(work)
        direction, response = self._maximum_on(self._face(work, slope), K, work, slope)
        work.duals = work.duals + direction  # in double precision, the steps are in that of the kernel
        work.B = self._coefficients(work, work.duals)
        work.F = work.F + response
        there = self._swept(K, work)
        if there.dual > now.dual:
            work.steps = min(work.steps + 1, self._face_steps)
            return there
        work.steps = max(work.steps // 2, 1)
        work.duals, work.B, work.F = kept
        return None

    def _maximum_on(self, face: Face, K: NDArray, work: Work, slope: NDArray) -> tuple[NDArray, NDArray]:
        """The way to the maximum over a face, and what it adds to the scores: preconditioned conjugate gradients."""
        total, response = np.zeros_like(slope), np.zeros_like(work.F)
        residual = face.tangent(slope)
        along = face.precondition(residual)
        square, best, steepest = float(np.vdot(residual, along)), 0.0, 0.0
        for _ in range(work.steps):
            F, bent = self._bent(face, K, work, along)
            bend, length = float(np.vdot(along, bent)), float(np.vdot(along, along))
            steepest = max(steepest, bend / max(length, np.finfo(float).tiny))
            if bend <= _FLAT * steepest * length:
                break
            step = square / bend
            gain = 0.5 * step * square
            total += step * along
            response += step * F
            best = max(best, gain)
            if gain <= _LITTLE * best:
                break
            residual = residual - step * bent
            conditioned = face.precondition(residual)
            square, before = float(np.vdot(residual, conditioned)), square
            along = conditioned + (square / before) * along
        return total, response

    def _bent(self, face: Face, K: NDArray, work: Work, along: NDArray) -> tuple[NDArray, NDArray]:
        """What a direction in the face adds to the scores, and minus the second derivative of the dual times it."""
        F = K @ self._coefficients(work, along).astype(K.dtype, copy=False)
        return F, face.tangent(self._pull(work, F) + face.curvature * along)

    def curvature(self, K: NDArray, Y: Array, solution: Solution, bank: Products) -> Array:
        """See :meth:`Machine.curvature`. Only duals inside the face respond to the weights.

        Their response is sought among one direction for each kernel, and a second one where much is left: a model of
        the value that is convex, and bends a little less than the value itself.
        """
        work = solution.state if isinstance(solution.state, Work) else self._resume(K, Y, solution)
        slope = self._slope(work)
        face = self._face(work, slope)
        forces = [
            face.tangent(self._pull(work, force)).astype(slope.dtype, copy=False)
            for force in bank.products(work.B, np.arange(len(work.B)))
        ]
        directions = [face.precondition(force) for force in forces]
        bent = [self._bent(face, K, work, along)[1] for along in directions]
        response, second = _Response(directions, bent, forces), []
        for force, along in zip(forces, directions, strict=True):
            left = response.left(force)
            more = face.precondition(left)
            if np.vdot(left, more) > _MUCH_LEFT * np.vdot(force, along):
                second.append(more)
        if not second:
            return response.energies()
        bent_again = [self._bent(face, K, work, along)[1] for along in second]
        return _Response(directions + second, bent + bent_again, forces).energies()

    def _resume(self, K: NDArray, Y: Array, solution: Solution) -> Work:
        """The fit that ended in this solution."""
        signs = np.sign(Y).astype(np.int8, order="C")
        return self._begin(K, signs, self._prepare(signs), solution)

    def _begin(self, K: NDArray, signs: Signs, extra: dict[str, Any], start: Solution | None) -> Work:
        """A fit from these duals, with scores in the precision of the kernel."""
        duals = self._start(signs, extra, start)
        work = Work(signs, duals, np.zeros(signs.shape), np.zeros(signs.shape, K.dtype), extra)
        work.B = self._coefficients(work, duals)
        if work.B.any():
            work.F = K @ work.B.astype(K.dtype)
        return work

    def merit(self, scores: Array, Y: Array) -> float:
        """See :meth:`Machine.merit`: the share of label pairs in the right order, mean over samples that have any."""
        shares = ordered_shares(scores, np.sign(Y).astype(np.int8, order="C"))
        return float(np.nanmean(shares)) if not np.isnan(shares).all() else float("nan")

    def restrict(self, samples: NDArray[np.intp]) -> Machine:
        """See :meth:`Machine.restrict`."""
        return self


class _Response:
    """The best response to forces among combinations of directions, whose second derivatives are given."""

    def __init__(self, directions: list[NDArray], bent: list[NDArray], forces: list[NDArray]) -> None:
        self._bent = bent
        bends, axes = np.linalg.eigh(_inner_products(directions, bent))
        kept = bends > 100 * np.finfo(directions[0].dtype).eps * bends[-1]
        self._axes = axes[:, kept] / np.sqrt(bends[kept])
        self._directions, self._forces = directions, forces

    def left(self, force: NDArray) -> NDArray:
        """What the response leaves of a force."""
        shares = self._axes @ (self._axes.T @ _inner_products(self._directions, [force])[:, 0])
        return force - sum(force.dtype.type(share) * bent for share, bent in zip(shares, self._bent, strict=True))

    def energies(self) -> Array:
        """Of the responses to each pair of forces, (n_forces, n_forces)."""
        reached = self._axes.T @ _inner_products(self._directions, self._forces)
        return reached.T @ reached


def _inner_products(left: list[NDArray], right: list[NDArray]) -> Array:
    """Of every array on the left with every array on the right, (len(left), len(right))."""
    return np.array([[np.vdot(a, b) for b in right] for a in left], dtype=np.float64)


def in_common(K: NDArray | Operator) -> tuple[NDArray, float]:
    """`common`, (n, r), and `rest`: the kernel is like ``common @ common.T + rest * identity``.

    From its leading eigenvectors, and the mean of its other eigenvalues.
    """
    n, trace = len(K), float(K.diagonal().sum(dtype=np.float64))
    basis = np.random.default_rng(0).standard_normal((n, max(1, min(_COMMON, n // 4)))).astype(K.dtype)
    basis[:, 0] = 1.0  # what they have most in common is near the mean
    for _ in range(_POWER_STEPS):
        basis, _ = np.linalg.qr(K @ basis)
    sizes, axes = np.linalg.eigh(basis.T @ (K @ basis))
    sizes = np.maximum(sizes, 0.0)
    rest = max(trace - float(sizes.sum()), 1e-3 * trace) / n
    rest = rest if rest > 0 else 1.0
    return basis @ (axes * np.sqrt(np.maximum(sizes - rest, 0.0))).astype(K.dtype), rest
