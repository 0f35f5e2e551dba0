"""MKL-SMO: the dual of weights and machine together, two duals (or, without a bias, one) at a time.

    max over v    p'v - support(h(v)),    h_j(v) = 1/2 v' K_j v        (the support function of B, with R inside)

Its gradient is that of an SVM whose kernel weights are always the best response to the current h. Along a pair
direction every h_j is a parabola in the step t, so the exact step is the root of a decreasing function of one variable.
Kernels are never combined: a step reads two rows of each. The support function must be differentiable.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq

from ..machines.decomposition import BoxDual
from .saddle import Array, Saddle

#: Steps between certificates, as a multiple of the number of samples.
_ROUND = 1.0


def smo(saddle: Saddle) -> None:
    """Needs a smooth weight set, and a hinge machine with one label column."""
    problem: BoxDual = saddle.machine.box(saddle.Y[:, 0])  # type: ignore[attr-defined]
    ascent = _Ascent(saddle, problem, saddle.machine.feasible_start(saddle.Y[:, 0]))  # type: ignore[attr-defined]
    point = saddle.evaluate(saddle.initial)
    while saddle.proceed(point):
        with saddle.clock("machine"):
            moved = ascent.run(int(_ROUND * saddle.bank.n_samples) + 1)
        weights = ascent.weights()
        saddle.raise_lower(ascent.value())
        point = saddle.evaluate(weights, near=point)
        if not moved:
            saddle.proceed(point)
            return


class _Ascent:
    """The state of the direct method: v, the products F_j = K_j v of shape (s, n), and h."""

    def __init__(self, saddle: Saddle, problem: BoxDual, v: Array) -> None:
        self.bank, self.weight_set, self.problem = saddle.bank, saddle.weights, problem
        self.diagonals = self.bank.diagonals()
        self.v = v.copy()
        self.F = self.bank.products(self.v, np.arange(len(v)))
        self.h = 0.5 * self.F @ self.v

    def weights(self) -> Array:
        return self.weight_set.respond(self.h)

    def value(self) -> float:
        """Dual value, a lower bound on the optimum."""
        return float(self.problem.linear @ self.v) - self.weight_set.support(self.h)

    def run(self, steps: int) -> bool:
        """Take steps; False if none was possible any more."""
        for count in range(steps):
            b = self.weights()
            g = self.problem.linear - b @ self.F
            pair = self._single(b, g) if not len(self.problem.groups) else self._pair(b, g)
            if pair is None:
                return count > 0
            self._move(*pair)
        # Rounding gathers in the running sums: start the next round from exact ones.
        self.F = self.bank.products(self.v, np.arange(len(self.v)))
        self.h = 0.5 * self.F @ self.v
        return True

    def _pair(self, b: Array, g: Array) -> tuple[int, int, float] | None:
        """Steepest sample that can rise and its best partner (second order, weights held) in the group to fall."""
        best: tuple[int, int, float] | None = None
        widest = 1e-9
        for members in self.problem.groups:
            rising = np.flatnonzero(members & (self.v < self.problem.upper))
            falling = np.flatnonzero(members & (self.v > self.problem.lower))
            if not len(rising) or not len(falling):
                continue
            i = int(rising[np.argmax(g[rising])])
            drop = g[i] - g[falling]
            if drop.max() <= widest:
                continue
            widest = float(drop.max())
            row = b @ self.bank.rows(np.array([i]))[:, 0]
            own = b @ self.diagonals
            curve = np.maximum(own[i] + own[falling] - 2 * row[falling], 1e-12)
            j = int(falling[np.argmax(np.where(drop > 0, drop**2 / curve, -1.0))])
            room = min(self.problem.upper[i] - self.v[i], self.v[j] - self.problem.lower[j])
            best = (i, j, float(room))
        return best

    def _single(self, b: Array, g: Array) -> tuple[int, int, float] | None:
        """Without a bias: the sample whose clipped Newton step, weights held, gains most; it moves by itself."""
        own = np.maximum(b @ self.diagonals, 1e-12)
        move = np.clip(g / own, self.problem.lower - self.v, self.problem.upper - self.v)
        gain = move * (g - 0.5 * move * own)
        i = int(np.argmax(gain))
        if gain[i] <= 1e-18:
            return None
        room = self.problem.upper[i] - self.v[i] if move[i] > 0 else self.problem.lower[i] - self.v[i]
        return i, -1, float(room)

    def _move(self, i: int, j: int, room: float) -> None:
        """The exact step along e_i - e_j (or e_i), at most `room`."""
        p = self.problem.linear
        if j >= 0:
            rows = self.bank.rows(np.array([i, j]))
            direction = rows[:, 0].astype(np.float64) - rows[:, 1]
            rate, slope = p[i] - p[j], self.F[:, i] - self.F[:, j]
            bend = direction[:, i] - direction[:, j]
        else:
            direction = self.bank.rows(np.array([i]))[:, 0].astype(np.float64)
            rate, slope, bend = p[i], self.F[:, i], self.diagonals[:, i].astype(np.float64)

        def derivative(t: float) -> float:
            h = np.maximum(self.h + t * slope + 0.5 * t * t * bend, 0.0)
            return float(rate - self.weight_set.respond(h) @ (slope + t * bend))

        outward = derivative(room) * np.sign(room) >= 0
        t = room if outward else float(brentq(derivative, 0.0, room, xtol=1e-15 + 1e-14 * abs(room)))
        self.v[i] = self._bounded(i, self.v[i] + t)
        if j >= 0:
            self.v[j] = self._bounded(j, self.v[j] - t)
        self.h = np.maximum(self.h + t * slope + 0.5 * t * t * bend, 0.0)
        self.F += t * direction

    def _bounded(self, i: int, value: float) -> float:
        """Exactly on the bound when rounding alone keeps it off, so that the sample counts as bounded from now on."""
        low, high = self.problem.lower[i], self.problem.upper[i]
        slack = 1e-14 * (high - low)
        return low if value <= low + slack else high if value >= high - slack else value
