"""Compiled loops of the label-ranking machines: one function a kind of block update, one a kind of loss.

A block is a run of consecutive samples. Its rows are visited in order; each row is solved with all others held, and
what it changes is passed on to the rows after it at once. What a block changes in the scores of all other samples is
one matrix product, done by the caller. So the iterates are those of one row at a time, at the speed of BLAS-3.

Arrays of a block of q samples and m labels: K (q, q); F scores (q, m), updated in place; B signed duals (q, m), updated
in place; signs (q, m) int8; delta (q, m) receives the change of B. Pair multipliers of sample r are the slice
``pairs[offsets[r] : offsets[r + 1]]``, the relevant labels of one irrelevant label side by side.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from .._config import FASTMATH

Array = NDArray[np.float64]

#: Newton steps before the shift of a projection is found by sorting instead.
_NEWTON_STEPS = 25
#: A step on multipliers in the unit ball that leaves only its direction: for samples on which the kernel is zero.
_FLAT = 1e8
#: Imbalance, relative to the sum of all entries, that counts as rounding.
_BALANCED = 1e-14


def project_balanced_box(T: Array, lower: Array, upper: Array) -> tuple[Array, Array]:
    """Project rows on a box and a zero sum: ``B = clip(T + shift, lower, upper)`` with ``B.sum(axis=1) = 0``.

    Newton steps on the piecewise linear sum, which end at the exact root after a few; where they would not, the root is
    read off the sorted breakpoints. So the worst case is O(m log m) a row.

    Parameters
    ----------
    T, lower, upper : arrays of shape (n_rows, m)
        Boxes must contain rows of zero sum: ``lower.sum(axis=1) <= 0 <= upper.sum(axis=1)``.

    Returns
    -------
    B : array of shape (n_rows, m)
    shift : array of shape (n_rows,)

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.machines.ranking_loops import project_balanced_box
    >>> B, shift = project_balanced_box(np.array([[1.0, -1, -1, -1]]), np.array([[0.0, -1, -1, -1]]), np.eye(1, 4))
    >>> np.round(B, 4).tolist(), round(float(shift[0]), 4)
    ([[1.0, -0.3333, -0.3333, -0.3333]], 0.6667)
    """
    T, lower, upper = (np.ascontiguousarray(A, dtype=np.float64) for A in (T, lower, upper))
    shift = np.zeros(len(T))
    _project_rows(T, lower, upper, shift)
    return np.clip(T + shift[:, None], lower, upper), shift


def pair_offsets(signs: NDArray[np.int8]) -> NDArray[np.int64]:
    """Where the pair multipliers of each sample begin, shape (n + 1,): relevant times irrelevant labels each."""
    return np.concatenate([[0], np.cumsum((signs > 0).sum(axis=1) * (signs < 0).sum(axis=1))]).astype(np.int64)


def group_starts(signs: NDArray[np.int8]) -> NDArray[np.int64]:
    """Where the multipliers of each irrelevant label begin, over all samples, and the end."""
    sizes = np.repeat((signs > 0).sum(axis=1), (signs < 0).sum(axis=1))
    return np.concatenate([[0], np.cumsum(sizes[sizes > 0])]).astype(np.int64)


@njit(cache=True, nogil=True)
def pair_sums(signs, offsets, pairs, B):
    """Signed duals from pair multipliers: what each label of a sample takes part in."""
    m = signs.shape[1]
    relevant, irrelevant = np.empty(m, np.int64), np.empty(m, np.int64)
    B[:] = 0.0
    for r in range(len(signs)):
        a, b = _sides(signs[r], relevant, irrelevant)
        at = offsets[r]
        for l in range(b):
            for k in range(a):
                B[r, relevant[k]] += pairs[at]
                B[r, irrelevant[l]] -= pairs[at]
                at += 1


@njit(cache=True, nogil=True)
def pair_differences(signs, offsets, F, out):
    """``f_p - f_q`` for all pairs: the transpose of :func:`pair_sums`."""
    m = signs.shape[1]
    relevant, irrelevant = np.empty(m, np.int64), np.empty(m, np.int64)
    for r in range(len(signs)):
        a, b = _sides(signs[r], relevant, irrelevant)
        at = offsets[r]
        for l in range(b):
            for k in range(a):
                out[at] = F[r, relevant[k]] - F[r, irrelevant[l]]
                at += 1


@njit(cache=True, nogil=True)
def _project_rows(T, lower, upper, shift):
    for r in range(len(T)):
        shift[r] = _balance(T[r], lower[r], upper[r], 0.0)


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _balance(t, lower, upper, shift):
    """The shift at which ``clip(t + shift, lower, upper)`` sums to zero; starts from the one given."""
    left, right = np.inf, -np.inf
    for k in range(len(t)):
        left, right = min(left, lower[k] - t[k]), max(right, upper[k] - t[k])
    shift = min(max(shift, left), right)
    for _ in range(_NEWTON_STEPS):
        total, size, free = 0.0, 0.0, 0.0
        for k in range(len(t)):
            x = t[k] + shift
            c = min(max(x, lower[k]), upper[k])
            total += c
            size += abs(c)
            free += 1.0 if lower[k] < x and x < upper[k] else 0.0
        if abs(total) <= _BALANCED * size:
            return shift
        if total > 0:
            right = shift
        else:
            left = shift
        shift = shift - total / free if free > 0 else left
        if not (left < shift and shift < right):
            shift = 0.5 * (left + right)
    return _balance_by_sorting(t, lower, upper)


@njit(cache=True, nogil=True)
def _balance_by_sorting(t, lower, upper):
    """Walk along the sorted breakpoints: the sum starts at ``lower.sum()`` and rises by one a ramp under way."""
    points = np.concatenate((lower - t, upper - t))
    order = np.argsort(points)
    total, slope = lower.sum(), 0.0
    for place in range(len(order)):
        here = points[order[place]]
        if place > 0:
            rise = slope * (here - points[order[place - 1]])
            if total + rise >= 0:
                return here - (total + rise) / slope if slope > 0 else here
            total += rise
        slope += 1.0 if order[place] < len(t) else -1.0
    return points[order[-1]]


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _pass_on(K, r, change, F):
    """What a change of row r does to the scores of the rows after it."""
    for other in range(r + 1, len(F)):
        w = K[r, other]
        for k in range(len(change)):
            F[other, k] += w * change[k]


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def box_block(K, ridge, signs, cap_relevant, cap_irrelevant, F, B, shift, delta):
    """Each row exactly: the projection of (y - f_without_it) / kappa on its balanced box."""
    m = F.shape[1]
    t, lower, upper = np.empty(m), np.empty(m), np.empty(m)
    for r in range(len(F)):
        if cap_relevant[r] <= 0:
            delta[r] = 0.0
            continue
        own = np.float64(K[r, r])
        bend = own + ridge[r]
        # Without curvature the largest total is best: any this small leads there.
        scale = 1.0 / bend if bend > 0 else 2.0 * max(cap_relevant[r], cap_irrelevant[r])
        for k in range(m):
            y = np.float64(signs[r, k])
            t[k] = (y - F[r, k] + own * B[r, k]) * scale
            lower[k] = min(y, 0.0) * cap_irrelevant[r]
            upper[k] = max(y, 0.0) * cap_relevant[r]
        shift[r] = _balance(t, lower, upper, shift[r])
        largest = 0.0
        for k in range(m):
            b = min(max(t[k] + shift[r], lower[k]), upper[k])
            delta[r, k] = b - B[r, k]
            largest = max(largest, abs(delta[r, k]))
            B[r, k] = b
        if largest > 0:
            _pass_on(K, r, delta[r], F)


@njit(cache=True, nogil=True)
def _sides(signs, relevant, irrelevant):
    """Write the label indices of both sides; returns their numbers."""
    a = b = 0
    for k in range(len(signs)):
        if signs[k] > 0:
            relevant[a] = k
            a += 1
        elif signs[k] < 0:
            irrelevant[b] = k
            b += 1
    return a, b


@njit(cache=True, nogil=True)
def _renew(pairs, unit, relevant, irrelevant, b, delta):
    """Signed duals of a row from its pair multipliers (never by adding up changes: zeros stay zeros); their change."""
    for k in range(len(b)):
        delta[k] = -b[k]
        b[k] = 0.0
    at = 0
    for q in irrelevant:
        for p in relevant:
            b[p] += unit * pairs[at]
            b[q] -= unit * pairs[at]
            at += 1
    for k in range(len(b)):
        delta[k] += b[k]


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def pairwise_block(K, signs, C, offsets, pairs, F, B, delta, visits):
    """Coordinate ascent over the pairs of each row: ``z <- clip(z + (2 - f_p + f_q) / (2 kappa), 0, C)``."""
    m = F.shape[1]
    relevant, irrelevant, f = np.empty(m, np.int64), np.empty(m, np.int64), np.empty(m)
    for r in range(len(F)):
        delta[r] = 0.0
        if offsets[r] == offsets[r + 1]:
            continue
        own = np.float64(K[r, r])
        step = 0.5 / own if own > 0 else C
        a, b = _sides(signs[r], relevant, irrelevant)
        f[:] = F[r]
        for _ in range(visits):
            at = offsets[r]
            for l in range(b):
                q = irrelevant[l]
                for k in range(a):
                    p = relevant[k]
                    z = min(max(pairs[at] + (2.0 - f[p] + f[q]) * step, 0.0), C)
                    change = z - pairs[at]
                    pairs[at] = z
                    f[p] += own * change
                    f[q] -= own * change
                    at += 1
        _renew(pairs[offsets[r] : offsets[r + 1]], 1.0, relevant[:a], irrelevant[:b], B[r], delta[r])
        _pass_on(K, r, delta[r], F)


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def group_block(K, signs, C, offsets, pairs, F, B, delta, visits):
    """A proximal step an irrelevant label: ``g <- Proj(g + u / (C kappa (1 + a)))`` on the non-negative unit ball.

    1 + a is the Lipschitz constant of one label's multipliers; all labels together would have m.
    """
    m = F.shape[1]
    relevant, irrelevant, f, new = np.empty(m, np.int64), np.empty(m, np.int64), np.empty(m), np.empty(m)
    for r in range(len(F)):
        delta[r] = 0.0
        if offsets[r] == offsets[r + 1]:
            continue
        own = np.float64(K[r, r])
        a, b = _sides(signs[r], relevant, irrelevant)
        f[:] = F[r]
        step = 1.0 / (C * own * (1.0 + a)) if own > 0 else _FLAT
        for _ in range(visits):
            for l in range(b):
                q, at = irrelevant[l], offsets[r] + l * a
                square = 0.0
                for k in range(a):
                    new[k] = max(pairs[at + k] + (1.0 - f[relevant[k]] + f[q]) * step, 0.0)
                    square += new[k] * new[k]
                shrink = 1.0 / max(1.0, np.sqrt(square))
                moved = 0.0
                for k in range(a):
                    change = new[k] * shrink - pairs[at + k]
                    pairs[at + k] += change
                    moved += change
                    f[relevant[k]] += own * C * change
                f[q] -= own * C * moved
        _renew(pairs[offsets[r] : offsets[r + 1]], C, relevant[:a], irrelevant[:b], B[r], delta[r])
        _pass_on(K, r, delta[r], F)


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def smoothed_group_block(K, signs, C, eta, squares, F, B, delta):
    """The published closed form: ``g = Proj(u_without_it / (2 eta C kappa))``; `squares` receives the sums of g^2."""
    m = F.shape[1]
    relevant, irrelevant = np.empty(m, np.int64), np.empty(m, np.int64)
    f, new, b_new = np.empty(m), np.empty(m), np.empty(m)
    for r in range(len(F)):
        delta[r] = 0.0
        own = np.float64(K[r, r])
        a, b = _sides(signs[r], relevant, irrelevant)
        if a == 0 or b == 0:
            continue
        step = 1.0 / (2.0 * eta * C * own) if own > 0 else _FLAT
        squares[r] = 0.0
        for k in range(m):
            f[k] = F[r, k] - own * B[r, k]
            b_new[k] = 0.0
        for l in range(b):
            q = irrelevant[l]
            square = 0.0
            for k in range(a):
                new[k] = max((1.0 - f[relevant[k]] + f[q]) * step, 0.0)
                square += new[k] * new[k]
            shrink = 1.0 / max(1.0, np.sqrt(square))
            squares[r] += square * shrink * shrink
            for k in range(a):
                b_new[relevant[k]] += C * new[k] * shrink
                b_new[q] -= C * new[k] * shrink
        for k in range(m):
            delta[r, k] = b_new[k] - B[r, k]
            B[r, k] = b_new[k]
        _pass_on(K, r, delta[r], F)


@njit(cache=True, nogil=True)
def _smallest_first(values, count):
    """Bring the `count` smallest values to the front, in order; the rest is left as it comes."""
    first, last = 0, len(values) - 1
    while count <= last and first < last:  # quickselect: the places before `first` and after `last` are settled
        pivot, i, j = values[(first + last) // 2], first, last
        while i <= j:
            while values[i] < pivot:
                i += 1
            while values[j] > pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if count <= j:
            last = j
        elif count >= i:
            first = i
        else:
            break
    values[: min(int(count), len(values))].sort()


@njit(cache=True, nogil=True)
def box_loss(F, signs, cap_relevant, cap_irrelevant):
    """Sum over rows of ``min over b of sum_k cap_k max(0, 1 - y_k (f_k - b))``.

    The worst relevant label meets the best irrelevant one, and so on, as long as they are less than 2 apart and have
    cost left: a pair each when all caps are equal.
    """
    m = F.shape[1]
    low, high = np.empty(m), np.empty(m)
    loss = 0.0
    for r in range(len(F)):
        if cap_relevant[r] <= 0:
            continue
        least, most = np.inf, -np.inf
        for k in range(m):
            if signs[r, k] > 0:
                least = min(least, F[r, k])
            elif signs[r, k] < 0:
                most = max(most, F[r, k])
        a = b = 0
        for k in range(m):  # only labels that some label of the other side comes too close to can cost anything
            if signs[r, k] > 0 and F[r, k] < most + 2.0:
                low[a] = F[r, k]
                a += 1
            elif signs[r, k] < 0 and F[r, k] > least - 2.0:
                high[b] = -F[r, k]
                b += 1
        _smallest_first(low[:a], np.ceil(b * (cap_irrelevant[r] / cap_relevant[r])))
        _smallest_first(high[:b], np.ceil(a * (cap_relevant[r] / cap_irrelevant[r])))
        i = j = 0
        left_i, left_j = cap_relevant[r], cap_irrelevant[r]
        while i < a and j < b:
            error = 2.0 - low[i] - high[j]
            if error <= 0:
                break
            cost = min(left_i, left_j)
            loss += cost * error
            left_i -= cost
            left_j -= cost
            if left_i <= 0:
                i, left_i = i + 1, cap_relevant[r]
            if left_j <= 0:
                j, left_j = j + 1, cap_irrelevant[r]
    return loss


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def pairwise_loss(F, signs):
    """Sum over rows and pairs of ``max(0, 2 - f_p + f_q)``."""
    m = F.shape[1]
    relevant, irrelevant = np.empty(m, np.int64), np.empty(m, np.int64)
    loss = 0.0
    for r in range(len(F)):
        a, b = _sides(signs[r], relevant, irrelevant)
        for l in range(b):
            for k in range(a):
                loss += max(0.0, 2.0 - F[r, relevant[k]] + F[r, irrelevant[l]])
    return loss


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def group_loss(F, signs):
    """Sum over rows and irrelevant labels q of ``sqrt(sum_p max(0, 1 - f_p + f_q)^2)``."""
    m = F.shape[1]
    relevant, irrelevant = np.empty(m, np.int64), np.empty(m, np.int64)
    loss = 0.0
    for r in range(len(F)):
        a, b = _sides(signs[r], relevant, irrelevant)
        for l in range(b):
            square = 0.0
            for k in range(a):
                u = max(0.0, 1.0 - F[r, relevant[k]] + F[r, irrelevant[l]])
                square += u * u
            loss += np.sqrt(square)
    return loss


@njit(cache=True, nogil=True)
def ordered_shares(F, signs):
    """For every row the share of pairs in the right order, a tie counting half; NaN where there is no pair."""
    m = F.shape[1]
    shares = np.empty(len(F))
    relevant, irrelevant = np.empty(m, np.int64), np.empty(m, np.int64)
    for r in range(len(F)):
        a, b = _sides(signs[r], relevant, irrelevant)
        right = 0.0
        for l in range(b):
            for k in range(a):
                difference = F[r, relevant[k]] - F[r, irrelevant[l]]
                right += 1.0 if difference > 0 else (0.5 if difference == 0 else 0.0)
        shares[r] = right / (a * b) if a * b > 0 else np.nan
    return shares
