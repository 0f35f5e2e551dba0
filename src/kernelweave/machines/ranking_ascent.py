"""How the label-ranking machines climb their duals: sweeps over the samples, then steps in the face they arrived at.

A sweep solves the block of one sample after the other with all others held. It finds quickly which duals end at their
bounds, and is slow to agree on the rest when kernel values between different samples are large. The rest is a
quadratic problem without bounds: conjugate gradients on it, at one matrix product a step, do what hundreds of sweeps
would; what leaves the constraint set is projected back, and kept only if the dual value rises (Moré & Toraldo's way
with bound-constrained problems).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dgemm, sgemm

from .base import Array, Machine, Products, Solution, product
from .ranking_loops import ordered_shares

Signs = NDArray[np.int8]

#: Samples whose effect on all scores is one matrix product.
_BLOCK = 256
#: Scores are recomputed from the duals after at most this many sweeps, and always before a certificate is given.
_REFRESH = 50
#: A smaller relative rise of the dual value than this between two refreshes is rounding.
_RISE = 1e-12
#: Sweeps between steps in a face: enough to find the next one.
_SWEEPS = 2
#: Steps in a face end after this many, or when one gains less than this share of the best.
_FACE_STEPS, _LITTLE = 10, 0.2
#: The same for the response of the duals to the weights, whose model of the value has to be better.
_RESPONSE_STEPS, _RESPONSE_LITTLE = 20, 0.1
#: A direction this much flatter than the steepest is flat but for rounding.
_FLAT = 1e-12
#: Fractions of a step that are tried.
_FRACTIONS = (1.0, 0.25, 0.0625)


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
    """

    signs: Signs
    duals: Array
    B: Array
    F: NDArray
    extra: dict[str, Any]


@dataclass
class Values:
    """Terms of the primal and the dual value at a point; the quadratic is without the ridge."""

    linear: float
    loss: float
    quadratic: float

    @property
    def dual(self) -> float:
        return self.linear - self.quadratic

    @property
    def primal(self) -> float:
        return self.loss + self.quadratic

    @property
    def gap(self) -> float:
        return self.primal - self.dual


@dataclass
class Face:
    """The part of a constraint set around a point in which the duals can move both ways.

    Attributes
    ----------
    tangent : function
        Projects a direction on the face.
    curvature : array or float
        What the second derivative has on its diagonal beside the kernel's part.
    """

    tangent: Callable[[Array], Array]
    curvature: Any


class RankingMachine(Machine):
    """A machine whose dual has one block of constraints a sample."""

    kind = "ranker"

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
    def _project(self, work: Work, duals: Array) -> Array:
        """Nearest feasible duals."""

    @abstractmethod
    def _solve_block(self, K: NDArray, rows: slice, work: Work, F: Array, delta: Array) -> None:
        """Visit the rows of a block: update ``work.duals``, ``work.B[rows]`` and `F`, write the change to `delta`."""

    @abstractmethod
    def _terms(self, work: Work, B: Array, F: NDArray) -> tuple[float, float]:
        """S(a) and the loss at the duals B with the scores F."""

    # -- the ascent -------------------------------------------------------------------------------------------------

    def solve(self, K: NDArray, Y: Array, start: Solution | None = None, accuracy: float = 1e-3) -> Solution:
        """See :meth:`Machine.solve`; Y holds +1, -1, and 0 for labels never judged. Steps are sweeps."""
        K = np.ascontiguousarray(K)
        signs = np.sign(Y).astype(np.int8, order="C")
        extra = self._prepare(signs)
        duals = self._start(signs, extra, start)
        work = Work(signs, duals, np.zeros(signs.shape), np.zeros(signs.shape, K.dtype), extra)
        values = self._refresh(K, work)
        sweeps = since = 0
        while not self._done(work, values, accuracy):
            self._sweep(K, work)
            sweeps, since = sweeps + 1, since + 1
            now = self._values(work, work.B, work.F)
            if sweeps % _SWEEPS == 0 and not self._done(work, now, accuracy):
                now = self._climb_face(K, work, now)
            if since < _REFRESH and not self._done(work, now, accuracy):
                continue
            before, values, since = values, self._refresh(K, work), 0
            if self._stuck(work, before, values):
                break
        return Solution(
            coef=work.B,
            intercept=np.zeros(signs.shape[1]),
            linear=values.linear,
            loss=values.loss,
            quadratic=values.quadratic,
            steps=sweeps,
            state=work.extra.get("monitor"),
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
        return Values(linear, loss, 0.5 * float(np.einsum("ik,ik->", B, F)))

    def _sweep(self, K: NDArray, work: Work) -> None:
        for begin in range(0, len(K), _BLOCK):
            rows = slice(begin, min(begin + _BLOCK, len(K)))
            F = work.F[rows].astype(np.float64)
            delta = np.empty_like(F)
            self._solve_block(np.ascontiguousarray(K[rows, rows]), rows, work, F, delta)
            add_product(work.F, K[rows], delta)

    def _climb_face(self, K: NDArray, work: Work, now: Values) -> Values:
        """Move to the maximum over the face, as far as the constraints allow and the dual value rises."""
        slope = self._slope(work)
        face = self._face(work, slope)
        direction = self._maximum_on(face, K, work, face.tangent(slope), _FACE_STEPS, _LITTLE)
        for fraction in _FRACTIONS:
            duals = self._project(work, work.duals + fraction * direction)
            B = self._coefficients(work, duals)
            F = work.F.copy()
            add_product(F, K, B - work.B)
            trial = self._values(work, B, F)
            if trial.dual > now.dual:
                work.duals, work.B, work.F = duals, B, F
                return trial
        return now

    def _maximum_on(self, face: Face, K: NDArray, work: Work, slope: Array, max_steps: int, little: float) -> Array:
        """Maximum of the quadratic with this slope (in the face) and the dual's curvature, by conjugate gradients."""
        residual = along = slope
        square, best, steepest = float(np.vdot(residual, residual)), 0.0, 0.0
        total = np.zeros_like(residual)
        for _ in range(max_steps):
            F = np.zeros_like(work.F)
            add_product(F, K, self._coefficients(work, along))
            bent = face.tangent(self._pull(work, F) + face.curvature * along)
            bend, length = float(np.vdot(along, bent)), float(np.vdot(along, along))
            steepest = max(steepest, bend / max(length, np.finfo(float).tiny))
            if bend <= _FLAT * steepest * length:
                break
            step = square / bend
            gain = 0.5 * step * square
            total += step * along
            best = max(best, gain)
            if gain <= little * best:
                break
            residual = residual - step * bent
            square, before = float(np.vdot(residual, residual)), square
            along = residual + (square / before) * along
        return total

    def curvature(self, K: NDArray, Y: Array, solution: Solution, bank: Products) -> Array:
        """See :meth:`Machine.curvature`. Only duals inside the face respond to the weights.

        A few steps of conjugate gradients find most of the response, which is good enough for a model of the value.
        What they leave out can make it indefinite by little, so its spectrum is cut off at zero.
        """
        work = self._resume(K, Y, solution)
        face = self._face(work, self._slope(work))
        forces = bank.products(work.B, np.arange(len(work.B)))
        H = np.empty((len(forces), len(forces)))
        for row, force in zip(H, forces, strict=True):
            pulled = face.tangent(self._pull(work, force))
            answer = self._maximum_on(face, K, work, pulled, _RESPONSE_STEPS, _RESPONSE_LITTLE)
            np.einsum("jik,ik->j", forces, self._coefficients(work, answer), out=row)
        values, vectors = np.linalg.eigh(0.5 * (H + H.T))
        return (vectors * np.maximum(values, 0.0)) @ vectors.T

    def _resume(self, K: NDArray, Y: Array, solution: Solution) -> Work:
        """The fit that ended in this solution."""
        signs = np.sign(Y).astype(np.int8, order="C")
        extra = self._prepare(signs)
        work = Work(signs, self._start(signs, extra, solution), solution.coef, np.zeros(signs.shape, K.dtype), extra)
        add_product(work.F, K, solution.coef)
        return work

    def merit(self, scores: Array, Y: Array) -> float:
        """See :meth:`Machine.merit`: the share of label pairs in the right order, mean over samples that have any."""
        shares = np.empty(len(scores))
        ordered_shares(scores, np.sign(Y).astype(np.int8, order="C"), shares)
        return float(np.nanmean(shares)) if not np.isnan(shares).all() else float("nan")

    def restrict(self, samples: NDArray[np.intp]) -> Machine:
        """See :meth:`Machine.restrict`."""
        return self


def add_product(F: NDArray, K_rows: NDArray, delta: Array) -> None:
    """``F += K_rows' delta`` in place, for C-ordered arrays, leaving out rows that did not change."""
    moved = np.flatnonzero(delta.any(axis=1))
    if len(moved) == 0:
        return
    if len(moved) < 0.5 * len(delta):
        K_rows, delta = K_rows[moved], delta[moved]
    gemm = sgemm if F.dtype == np.float32 else dgemm
    changed = np.ascontiguousarray(delta, dtype=F.dtype)
    # Transposed, C order is the column order that BLAS writes in: F' += delta' K_rows.
    out = gemm(1.0, changed.T, K_rows.T, beta=1.0, c=F.T, trans_b=True, overwrite_c=True)
    assert np.shares_memory(out, F)
