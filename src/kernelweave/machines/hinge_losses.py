"""The squared hinge loss of scores, with two weights a sample: values, slopes, best bias, what duals are worth.

sum_i w+_i max(0, 1 - f_i)^2 + w-_i max(0, 1 + f_i)^2           f_i = f(x_i) + b
"""

from __future__ import annotations

import numpy as np
from numba import njit

#: Weights below this share of the largest one are zero: they change nothing but the condition of the linear systems.
_DUST = 1e-12


@njit(cache=True, nogil=True)
def hinge_loss(fitted, b, w_plus, w_minus):
    """Sum of the weighted squared hinge losses at the scores ``fitted + b``."""
    total = 0.0
    for i in range(len(fitted)):
        f = fitted[i] + b
        if f < 1:
            total += w_plus[i] * (1 - f) ** 2
        if f > -1:
            total += w_minus[i] * (1 + f) ** 2
    return total


@njit(cache=True, nogil=True)
def asked_duals(f, w_plus, w_minus):
    """The signed duals that belong to scores at a solution: the slopes of the losses, negated."""
    asked = np.empty(len(f))
    for i in range(len(f)):
        asked[i] = 2 * (w_plus[i] * max(0.0, 1 - f[i]) - w_minus[i] * max(0.0, 1 + f[i]))
    return asked


@njit(cache=True, nogil=True)
def second_derivatives(f, w_plus, w_minus):
    """Those of the losses in the scores: twice the weights of the active ones."""
    bend = np.empty(len(f))
    for i in range(len(f)):
        bend[i] = 2 * ((w_plus[i] if f[i] < 1 else 0.0) + (w_minus[i] if f[i] > -1 else 0.0))
    return bend


@njit(cache=True, nogil=True)
def best_intercept(fitted, w_plus, w_minus, b):
    """The bias that minimises the loss of given scores without one, by Newton's method inside a bracket, from a guess.

    Where many values are best (one class only), it is the first that is found from there.
    """
    low, high, last = -np.inf, np.inf, np.inf
    for _ in range(200):
        slope, pull = 0.0, 0.0
        for i in range(len(fitted)):
            f = fitted[i] + b
            if f < 1:
                slope += w_plus[i]
                pull += w_plus[i] * (1 - f)
            if f > -1:
                slope += w_minus[i]
                pull -= w_minus[i] * (1 + f)
        near = 1e-15 * (1 + abs(b))
        if pull > 0:
            low = b
        else:
            high = b
        if abs(pull) <= near * slope or high - low <= near:
            break
        step = pull / slope
        if low > -np.inf and high < np.inf and (not low < b + step < high or abs(step) > 0.5 * last):
            step = 0.5 * (low + high) - b
        last = abs(step)
        b += step
    return b


@njit(cache=True, nogil=True)
def _linear(v, w_plus, w_minus):
    """S of the duals: the largest value over all ways to write v as a difference of non-negative a+ and a-."""
    total = 0.0
    for i in range(len(v)):
        both = w_plus[i] + w_minus[i]
        if both > 0:
            plus = (4 * w_minus[i] + v[i]) * w_plus[i] / both
            minus = (4 * w_plus[i] - v[i]) * w_minus[i] / both
            if plus < 0:
                plus, minus = 0.0, -v[i]
            elif minus < 0:
                plus, minus = v[i], 0.0
            total += plus + minus
            if w_plus[i] > 0:
                total -= 0.25 * plus * plus / w_plus[i]
            if w_minus[i] > 0:
                total -= 0.25 * minus * minus / w_minus[i]
    return total


@njit(cache=True, nogil=True)
def best_values(v, fitted, w_plus, w_minus, fit_intercept, b):
    """The best bias, and with it the terms of the primal and the dual value: linear, loss, quadratic."""
    if fit_intercept:
        b = best_intercept(fitted, w_plus, w_minus, b)
    square = 0.0
    for i in range(len(v)):
        square += v[i] * fitted[i]
    return b, _linear(v, w_plus, w_minus), hinge_loss(fitted, b, w_plus, w_minus), 0.5 * square


@njit(cache=True, nogil=True)
def without_dust(w_plus, w_minus):
    """The weights, zero where they are too small to count."""
    plus, minus, largest = w_plus.copy(), w_minus.copy(), 0.0
    for i in range(len(plus)):
        largest = max(largest, plus[i], minus[i])
    for i in range(len(plus)):
        if plus[i] <= _DUST * largest:
            plus[i] = 0.0
        if minus[i] <= _DUST * largest:
            minus[i] = 0.0
    return plus, minus
