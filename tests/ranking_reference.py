"""Slow, obvious references for label ranking: every formula as it is written, row by row, and conic optima.

Labels are +1 (relevant), -1 (irrelevant) or 0 (never judged); P and N are the relevant and irrelevant labels of a row,
a and b their numbers. `Ranking` names the four problems ::

    narrow     sum_i min over b of  sum_k C [1 - y_k (f_k - b)]+          0 <= alpha <= C,            y'alpha = 0
    wide       the same with cost C b_i on P and C a_i on N               0 <= alpha <= C b_i, C a_i, y'alpha = 0
    pairwise   sum_i sum_P sum_N C [2 - f_p + f_q]+                       alpha = margins of z in [0, C]^(a x b)
    group      sum_i sum_N C ||[1 - f_P + f_q]+||                         alpha = margins of z, ||z_(:,q)|| <= C

always plus 1/2 sum_k ||f_k||^2, f_k = sum_i B_ik K(x_i, .), B = Y alpha; S = sum alpha (half of that for "group"). A
ridge is one more kernel, diagonal. Taken from the package: only the parameters of its machines and weight sets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import cvxpy as cp
import numpy as np
from conic import root, support
from conic import solve as solve_conic
from numpy.typing import NDArray
from problems import gaussian
from scipy.sparse import csr_array

from kernelweave.machines import Machine
from kernelweave.machines.ranking import MLRGL, MLRL1, MLRPairwise
from kernelweave.weights import LpBall, Simplex, WeightSet


@dataclass(frozen=True)
class Ranking:
    """A ranking problem; `ridge`, a number or (n,), is added to the diagonal of the kernel."""

    kind: str
    C: float = 1.0
    ridge: Any = 0.0

    @property
    def share(self) -> float:
        """What multiplies sum alpha in the dual."""
        return 0.5 if self.kind == "group" else 1.0

    def ridged(self, K: NDArray) -> NDArray:
        return K + np.diag(np.broadcast_to(np.asarray(self.ridge, dtype=float), len(K)))


def stated(machine: Machine) -> Ranking:
    """The problem that a machine of the package says it solves."""
    match machine:
        case MLRL1():
            return Ranking(machine.box, machine.C, machine.ridge)
        case MLRPairwise():
            return Ranking("pairwise", machine.C)
        case MLRGL():
            return Ranking("group", machine.C)
    raise ValueError(f"no reference of {machine!r} was written")


def sides(y: NDArray) -> tuple[NDArray, NDArray]:
    """Relevant and irrelevant labels of one row."""
    return np.flatnonzero(y > 0), np.flatnonzero(y < 0)


def caps(problem: Ranking, Y: NDArray) -> NDArray:
    """Largest alpha of each label, (n, m); zero where nobody judged and in rows that compare nothing."""
    cap = np.zeros(Y.shape)
    for i, y in enumerate(Y):
        P, N = sides(y)
        if len(P) and len(N):
            wide = problem.kind != "narrow"
            cap[i, P] = problem.C * (len(N) if wide else 1)
            cap[i, N] = problem.C * (len(P) if wide else 1)
    return cap


# --- data ---------------------------------------------------------------------------------------------------------


def fixture() -> tuple[NDArray, NDArray]:
    """Two kernels (2, 5, 5) and labels (5, 4) for which values were published."""
    places = np.array([[0.0, 1.0, 2.0, 4.0, 5.0], [0.0, 3.0, 1.0, 2.0, 5.0]])
    Ks = np.exp(-((places[:, :, None] - places[:, None]) ** 2) / 4)
    return Ks, np.where(np.array([list(row) for row in ("++--", "+---", "-++-", "--++", "+++-")]) == "+", 1.0, -1.0)


@lru_cache
def labelled(n: int = 20, m: int = 5, seed: int = 0, unknown: float = 0.0) -> tuple[NDArray, NDArray]:
    """Four kernels (4, n, n), the last of them noise, and labels (n, m) of which a share is unknown."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 6))
    signal = X[:, :4] @ rng.standard_normal((4, m)) + 0.7 * rng.standard_normal((n, m))
    Y = np.where(signal > 0.4, 1.0, -1.0)
    Y[rng.random((n, m)) < unknown] = 0.0
    return np.stack([gaussian(X[:, :2]), gaussian(X[:, 2:4]), X[:, :4] @ X[:, :4].T / 4, gaussian(X[:, 4:])]), Y


# --- objectives -----------------------------------------------------------------------------------------------------


def threshold_loss(f: NDArray, y: NDArray, cap: NDArray) -> float:
    """``min over b of sum_k cap_k [1 - y_k (f_k - b)]+``: piecewise linear in b, so the least value is at a kink."""
    known = np.flatnonzero(cap)
    if len(known) == 0:
        return 0.0
    f, y, cap = f[known], y[known], cap[known]
    return min(float(cap @ np.maximum(0, 1 - y * (f - b))) for b in f - y)


def sorted_loss(f: NDArray, y: NDArray) -> float:
    """The t-th worst relevant label against the t-th best irrelevant one: the closed form of the narrow box, C = 1."""
    P, N = sides(y)
    worst, best = np.sort(f[P]), np.sort(f[N])[::-1]
    return float(sum(max(0.0, 2 - p + q) for p, q in zip(worst, best, strict=False)))


def pairwise_loss(f: NDArray, y: NDArray) -> float:
    P, N = sides(y)
    return float(sum(max(0.0, 2 - f[p] + f[q]) for p in P for q in N))


def group_loss(f: NDArray, y: NDArray) -> float:
    P, N = sides(y)
    return float(sum(np.sqrt(sum(max(0.0, 1 - f[p] + f[q]) ** 2 for p in P)) for q in N))


def loss(problem: Ranking, F: NDArray, Y: NDArray) -> float:
    """What the scores F (n, m) cost, with C."""
    if problem.kind == "pairwise":
        return problem.C * sum(pairwise_loss(f, y) for f, y in zip(F, Y, strict=True))
    if problem.kind == "group":
        return problem.C * sum(group_loss(f, y) for f, y in zip(F, Y, strict=True))
    return sum(threshold_loss(f, y, cap) for f, y, cap in zip(F, Y, caps(problem, Y), strict=True))


def primal(problem: Ranking, K: NDArray, Y: NDArray, B: NDArray) -> float:
    F = problem.ridged(K) @ B
    return 0.5 * float(np.sum(B * F)) + loss(problem, F, Y)


def dual(problem: Ranking, K: NDArray, Y: NDArray, B: NDArray) -> float:
    return problem.share * float(np.sum(Y * B)) - 0.5 * float(np.sum(B * (problem.ridged(K) @ B)))


def surrogate(K: NDArray, C: float, eta: float, B: NDArray, Z: dict[int, NDArray]) -> float:
    """The function that the published update of the group problem climbs; Z[i] = C gamma_i, (a, b)."""
    kappa = np.diag(K)
    value = sum(float(z.sum()) for z in Z.values()) - 0.5 * float(np.sum(B * (K @ B)))
    value += 0.5 * float(kappa @ (B**2).sum(axis=1))
    return value - eta * sum(float(kappa[i] * np.sum(z**2)) for i, z in Z.items())


# --- projection on the balanced box ---------------------------------------------------------------------------------


def clipped(v: NDArray, y: NDArray, cap: NDArray, shift: float) -> NDArray:
    return np.clip(v + shift * y, 0.0, cap)


def project_by_sorting(v: NDArray, y: NDArray, cap: NDArray) -> tuple[NDArray, float]:
    """The point of {0 <= a <= cap, y'a = 0} nearest to v, and the shift lam with a = clip(v + lam y, 0, cap).

    y'a rises with lam along a broken line: evaluate it at every kink, and interpolate where it changes sign.
    """
    kinks = np.sort(np.concatenate([(0 - v) * y, (cap - v) * y])[np.tile(cap > 0, 2)])
    if len(kinks) == 0:
        return np.zeros_like(v), 0.0
    balance = np.array([y @ clipped(v, y, cap, lam) for lam in kinks])
    after = int(np.argmax(balance >= 0)) if np.any(balance >= 0) else len(kinks) - 1
    lam = kinks[after]
    if after > 0 and balance[after] > 0:
        before = after - 1
        lam -= balance[after] * (kinks[after] - kinks[before]) / (balance[after] - balance[before])
    return clipped(v, y, cap, lam), float(lam)


def bracket(f: NDArray, kappa: float, y: NDArray, C: float, version: str) -> tuple[float, float]:
    """Where the multiplier of the balance is looked for; f are leave-one-out scores.

    version: "corrected", "thesis" (printed, wrong) or "2009" (printed, valid but wider).
    """
    P, N = sides(y)
    eta_P, eta_N = 1 - f[P], 1 + f[N]
    a_min, b_min = -C * kappa + eta_N.min(), -eta_P.max()
    a_max, b_max = C * kappa - eta_P.min(), eta_N.max()
    if version == "2009":
        return min(a_min, b_min), max(a_max, b_max)
    if version == "thesis":
        return max(a_min, b_min), min(a_max, b_max)
    low = max(a_min, b_min) if len(P) <= len(N) else b_min
    high = min(a_max, b_max) if len(P) >= len(N) else b_max
    return low, high


def project_by_bisection(
    f: NDArray, kappa: float, y: NDArray, C: float, version: str = "corrected"
) -> tuple[NDArray, float]:
    """tau_k = clip((1 + lam y_k - y_k f_k) / kappa, 0, C) with y'tau = 0, and lam."""
    known = y != 0

    def tau(lam: float) -> NDArray:
        return np.where(known, np.clip((1 + lam * y - y * f) / kappa, 0.0, C), 0.0)

    low, high = bracket(f, kappa, y, C, version)
    start = y @ tau(0.0)
    if start == 0:
        return tau(0.0), 0.0
    low, high = (0.0, high) if start < 0 else (low, 0.0)
    for _ in range(100):
        middle = 0.5 * (low + high)
        if y @ tau(middle) < 0:
            low = middle
        else:
            high = middle
    return tau(0.5 * (low + high)), 0.5 * (low + high)


# --- one row at a time ----------------------------------------------------------------------------------------------

#: Called after every row with the coefficients, to watch the way.
Watch = Callable[[NDArray], None]


def nothing(B: NDArray) -> None:
    pass


def most_without_curvature(y: NDArray, cap: NDArray) -> NDArray:
    """A balanced alpha of the largest sum: what a sample with K_ii = 0, whose scores are all zero, ends at."""
    P, N = sides(y)
    alpha, total = np.zeros(len(y)), min(cap[P].sum(), cap[N].sum())
    if total > 0:
        alpha[P], alpha[N] = total / len(P), total / len(N)
    return alpha


def balanced(
    problem: Ranking, K: NDArray, Y: NDArray, sweeps: int, half: bool = False, watch: Watch = nothing
) -> NDArray:
    """Block ascent for "narrow" and "wide"; `half`: as printed, with half the leave-one-out scores."""
    B, cap = np.zeros(Y.shape), caps(problem, Y)
    kappa = np.diag(problem.ridged(K))
    for _ in range(sweeps):
        for i, y in enumerate(Y):
            if kappa[i] > 0:
                f = K[i] @ B - K[i, i] * B[i]
                B[i] = y * project_by_sorting((1 - y * f * (0.5 if half else 1.0)) / kappa[i], y, cap[i])[0]
            else:
                B[i] = y * most_without_curvature(y, cap[i])
            watch(B)
    return B


def one_versus_all(K: NDArray, Y: NDArray, C: float, sweeps: int) -> NDArray:
    """The same without the balance: a no-bias SVM for every label."""
    B = np.zeros(Y.shape)
    for _ in range(sweeps):
        for i, y in enumerate(Y):
            f = K[i] @ B - K[i, i] * B[i]
            B[i] = y * np.clip((1 - y * f) / K[i, i], 0, C)
    return B


def from_pairs(y: NDArray, z: NDArray) -> NDArray:
    """The row of B of pair multipliers z, (a, b)."""
    P, N = sides(y)
    row = np.zeros(len(y))
    row[P], row[N] = z.sum(axis=1), -z.sum(axis=0)
    return row


def no_pairs(Y: NDArray) -> dict[int, NDArray]:
    return {i: np.zeros((len(sides(y)[0]), len(sides(y)[1]))) for i, y in enumerate(Y)}


def pairwise(K: NDArray, Y: NDArray, C: float, sweeps: int, watch: Watch = nothing) -> NDArray:
    """One multiplier at a time."""
    B, Z = np.zeros(Y.shape), no_pairs(Y)
    for _ in range(sweeps):
        for i, y in enumerate(Y):
            P, N = sides(y)
            for s, p in enumerate(P):
                for t, q in enumerate(N):
                    f_p, f_q = K[i] @ B[:, p], K[i] @ B[:, q]
                    step = (2 - f_p + f_q) / (2 * K[i, i]) if K[i, i] > 0 else np.inf
                    Z[i][s, t] = np.clip(Z[i][s, t] + step, 0, C)
                    B[i] = from_pairs(y, Z[i])
            watch(B)
    return B


def in_groups(z: NDArray, C: float) -> NDArray:
    """Projection of every column on the part of the ball of radius C with no negative entry."""
    z = np.maximum(z, 0.0)
    return np.stack([column / max(1.0, np.linalg.norm(column) / C) for column in z.T], axis=1) if z.size else z


def group(K: NDArray, Y: NDArray, C: float, sweeps: int, inner: int = 5, watch: Watch = nothing) -> NDArray:
    """Exact solver: proximal steps on z = C gamma, one row at a time."""
    B, Z = np.zeros(Y.shape), no_pairs(Y)
    for _ in range(sweeps):
        for i, y in enumerate(Y):
            P, N = sides(y)
            if K[i, i] == 0:
                Z[i] = np.full((len(P), len(N)), C / np.sqrt(max(len(P), 1)))
                B[i] = from_pairs(y, Z[i])
                continue
            for _ in range(inner):
                f = K[i] @ B
                Z[i] = in_groups(Z[i] + (1 - f[P][:, None] + f[N][None]) / (K[i, i] * (len(P) + len(N))), C)
                B[i] = from_pairs(y, Z[i])
            watch(B)
    return B


def group_published(
    K: NDArray, Y: NDArray, C: float, eta: float, sweeps: int
) -> tuple[NDArray, dict[int, NDArray], list[float]]:
    """The published update: B, pair multipliers and the value of the surrogate after every row."""
    B, Z, values = np.zeros(Y.shape), no_pairs(Y), []
    for _ in range(sweeps):
        for i, y in enumerate(Y):
            P, N = sides(y)
            f = K[i] @ B - K[i, i] * B[i]
            Z[i] = in_groups((1 - f[P][:, None] + f[N][None]) / (2 * eta * K[i, i]), C)
            B[i] = from_pairs(y, Z[i])
            values.append(surrogate(K, C, eta, B, Z))
    return B, Z, values


def rows(problem: Ranking, K: NDArray, Y: NDArray, sweeps: int, watch: Watch = nothing) -> NDArray:
    """The row-by-row solver of the problem."""
    if problem.kind == "pairwise":
        return pairwise(K, Y, problem.C, sweeps, watch)
    if problem.kind == "group":
        return group(K, Y, problem.C, sweeps, watch=watch)
    return balanced(problem, K, Y, sweeps, watch=watch)


# --- optimality conditions ------------------------------------------------------------------------------------------


def threshold_interval(f: NDArray, alpha: NDArray, y: NDArray, cap: NDArray, near: float) -> tuple[float, float]:
    """The thresholds that the optimality conditions of one balanced row allow; none if they are contradicted.

    An alpha within `near` of a bound counts as being there.
    """
    low, high = -np.inf, np.inf
    for k in np.flatnonzero(cap):
        at = f[k] - y[k]  # the threshold at which the label is exactly on its margin
        below, above = alpha[k] < cap[k] - near, alpha[k] > near  # alpha could grow; alpha could shrink
        if (below and y[k] > 0) or (above and y[k] < 0):
            high = min(high, at)
        if (above and y[k] > 0) or (below and y[k] < 0):
            low = max(low, at)
    return low, high


# --- conic optima ---------------------------------------------------------------------------------------------------


@dataclass
class Pairs:
    """All (relevant, irrelevant) pairs of a label matrix in one vector.

    ``B.ravel() = incidence @ z`` and ``incidence.T @ F.ravel()`` are the differences f_p - f_q; ``columns @ z``,
    reshaped to (largest a, n_groups) by columns, has one irrelevant label of one row in each column.
    """

    sample: NDArray
    incidence: Any
    columns: Any
    tallest: int

    @classmethod
    def of(cls, Y: NDArray) -> Pairs:
        m = Y.shape[1]
        found = [(i, p, q) for i, y in enumerate(Y) for q in sides(y)[1] for p in sides(y)[0]]
        tallest = max((len(sides(y)[0]) for y in Y), default=0)
        group_of: dict[tuple[int, int], list[int]] = {}
        for number, (i, _, q) in enumerate(found):
            group_of.setdefault((i, int(q)), []).append(number)
        rows = [g * tallest + place for g, members in enumerate(group_of.values()) for place in range(len(members))]
        members = [number for numbers in group_of.values() for number in numbers]
        count = len(found)
        cells = [i * m + p for i, p, _ in found] + [i * m + q for i, _, q in found]
        signs = np.repeat([1.0, -1.0], count)
        incidence = csr_array((signs, (cells, np.tile(np.arange(count), 2))), shape=(Y.size, count))
        columns = csr_array((np.ones(count), (rows, members)), shape=(tallest * len(group_of), count))
        return cls(np.array([i for i, _, _ in found], dtype=int), incidence, columns, tallest)

    def __len__(self) -> int:
        return len(self.sample)

    def group_norms(self, z: Any) -> Any:
        stacked = cp.reshape(self.columns @ z, (self.tallest, self.columns.shape[0] // self.tallest), order="F")
        return cp.norm(stacked, 2, axis=0)


@dataclass
class Conic:
    """Optimal value and scores on the training samples (n, m); from a dual also energies h and weights, (s,) each."""

    value: float
    scores: NDArray
    h: NDArray | None = None
    weights: NDArray | None = None


def feasible_duals(problem: Ranking, Y: NDArray) -> tuple[Any, list[Any]]:
    """B as a cvxpy expression, with its constraints."""
    if problem.kind in ("narrow", "wide"):
        # Only labels that can have a dual get a variable: fixed ones leave the conic solver without an interior.
        cap = caps(problem, Y).ravel()
        used = np.flatnonzero(cap)
        alpha = cp.Variable(len(used), nonneg=True)
        place = csr_array((Y.ravel()[used], (used, np.arange(len(used)))), shape=(Y.size, len(used)))
        B = cp.reshape(place @ alpha, Y.shape, order="C")
        row = csr_array((Y.ravel()[used], (used // Y.shape[1], np.arange(len(used)))), shape=(len(Y), len(used)))
        return B, [alpha <= cap[used], row[np.unique(used // Y.shape[1])] @ alpha == 0]
    pairs = Pairs.of(Y)
    if len(pairs) == 0:
        return cp.Constant(np.zeros(Y.shape)), []
    z = cp.Variable(len(pairs), nonneg=True)
    B = cp.reshape(pairs.incidence @ z, Y.shape, order="C")
    return B, [pairs.group_norms(z) <= problem.C if problem.kind == "group" else z <= problem.C]


def conic_dual(problem: Ranking, Ks: NDArray, Y: NDArray, weight_set: WeightSet | None = None) -> Conic:
    """``max S - 1/2 ridge - support(h)``: of one kernel (n, n), or of several (s, n, n) under a weight set."""
    if weight_set is None:
        return conic_dual_of_one(problem, Ks, Y)
    B, constraints = feasible_duals(problem, Y)
    ridge = np.broadcast_to(np.asarray(problem.ridge, dtype=float), len(Y))
    linear = problem.share * cp.sum(cp.multiply(Y, B))
    if ridge.any():
        linear -= 0.5 * cp.sum_squares(cp.multiply(np.tile(np.sqrt(ridge)[:, None], Y.shape[1]), B))
    norms = cp.Variable(len(Ks), nonneg=True)
    energies = [cp.norm(root(K).T @ B, "fro") <= norms[j] for j, K in enumerate(Ks)]
    constraints += energies
    value = solve_conic(cp.Problem(cp.Maximize(linear - support(weight_set, norms, constraints)), constraints))
    coef = np.asarray(B.value)
    # The slope of the support function in norm_j is b_j norm_j: the price of the constraint on that norm.
    weights = np.array([float(c.dual_value) for c in energies]) / np.maximum(norms.value, 1e-12)
    scores = np.tensordot(weights, Ks, axes=1) @ coef + ridge[:, None] * coef
    return Conic(value, scores, np.array([0.5 * np.sum(coef * (K @ coef)) for K in Ks]), weights)


def conic_dual_of_one(problem: Ranking, K: NDArray, Y: NDArray) -> Conic:
    """As a quadratic program. f(K, C) = f(c K, C/c): the conic solver likes variables of the size of one, and where it
    gives up on one scale (on about one problem in a thousand) it manages another."""
    if not caps(problem, Y).any():
        return Conic(0.0, np.zeros(Y.shape))
    for c in (min(problem.C, 1.0), 1.3 * problem.C, 0.1 * problem.C, 10 * problem.C):
        ridged = c * problem.ridged(K)
        B, constraints = feasible_duals(Ranking(problem.kind, problem.C / c), Y)
        value = problem.share * cp.sum(cp.multiply(Y, B)) - cp.sum_squares(root(ridged).T @ B) / 2
        try:
            best = solve_conic(cp.Problem(cp.Maximize(value), constraints))
        except cp.error.SolverError:
            continue
        return Conic(c * best, ridged @ B.value)
    raise ArithmeticError("the conic solver failed at every scale")


def conic_primal(problem: Ranking, Ks: NDArray, Y: NDArray, weight_set: WeightSet | None = None) -> Conic:
    """The primal in feature space; several kernels under the block norm of the simplex or of an lp ball.

    ``1/2 (sum_j ||f_j||^r)^(2/r)`` with r = 2p / (p+1), ||f_j||^2 summed over the labels.
    """
    Ks = Ks[None] if Ks.ndim == 2 else Ks
    ridge = np.diag(np.broadcast_to(np.asarray(problem.ridge, dtype=float), len(Y)))
    roots = [root(K) for K in Ks]
    W = [cp.Variable((L.shape[1], Y.shape[1])) for L in roots]
    F: Any = sum(L @ w for L, w in zip(roots, W, strict=True))
    norms = cp.hstack([cp.norm(w, "fro") for w in W])
    if len(Ks) == 1 or isinstance(weight_set, Simplex):
        regulariser = cp.square(cp.sum(norms)) / 2
    else:
        assert isinstance(weight_set, LpBall)
        regulariser = cp.square(cp.pnorm(norms, 2 * weight_set.p / (weight_set.p + 1))) / 2
    if ridge.any():
        spare = cp.Variable(Y.shape)
        F = F + np.sqrt(ridge) @ spare
        regulariser += cp.sum_squares(spare) / 2
    value = solve_conic(cp.Problem(cp.Minimize(regulariser + conic_loss(problem, F, Y))))
    return Conic(value, np.asarray(F.value))


def conic_loss(problem: Ranking, F: Any, Y: NDArray) -> Any:
    if problem.kind in ("narrow", "wide"):
        thresholds = cp.Variable((len(Y), 1))
        margins = cp.multiply(Y, F - thresholds @ np.ones((1, Y.shape[1])))
        return cp.sum(cp.multiply(caps(problem, Y), cp.pos(1 - margins)))
    pairs = Pairs.of(Y)
    if len(pairs) == 0:
        return cp.Constant(0.0)
    differences = pairs.incidence.T @ cp.vec(F, order="C")
    if problem.kind == "pairwise":
        return problem.C * cp.sum(cp.pos(2 - differences))
    return problem.C * cp.sum(pairs.group_norms(cp.pos(1 - differences)))


def conic_surrogate(K: NDArray, Y: NDArray, C: float, eta: float) -> Conic:
    """Optimum of the function that the published group update climbs; concave from eta = m / 2 on."""
    pairs = Pairs.of(Y)
    cross = np.kron(K - np.diag(np.diag(K)), np.eye(Y.shape[1]))
    Q = pairs.incidence.T @ cross @ pairs.incidence + 2 * eta * np.diag(np.diag(K)[pairs.sample])
    least = np.linalg.eigvalsh(Q)[0]
    assert least > -1e-9, f"not concave: eigenvalue {least}"
    z = cp.Variable(len(pairs), nonneg=True)
    objective = cp.sum(z) - cp.sum_squares(root(Q).T @ z) / 2
    value = solve_conic(cp.Problem(cp.Maximize(objective), [pairs.group_norms(z) <= C]))
    B = (pairs.incidence @ z.value).reshape(Y.shape)
    return Conic(value, K @ B)


def weston_watkins(K: NDArray, classes: NDArray, C: float) -> Conic:
    """Multi-class SVM of Weston and Watkins without bias, written with classes and not with labels."""
    L, n, m = root(K), len(K), int(classes.max()) + 1
    W = cp.Variable((L.shape[1], m))
    F = L @ W
    errors = [cp.pos(1 - F[i, classes[i]] + F[i, k]) for i in range(n) for k in range(m) if k != classes[i]]
    value = solve_conic(cp.Problem(cp.Minimize(cp.sum_squares(W) / 2 + C * cp.sum(cp.hstack(errors)))))
    return Conic(value, np.asarray(F.value))
