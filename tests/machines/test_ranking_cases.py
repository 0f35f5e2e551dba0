"""Ranking machines: special cases that other methods solve, symmetries, missing labels, warm starts, odd input."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
import ranking_reference as ref
from numpy.typing import NDArray
from problems import bank_of, gaussian
from ranking_reference import labelled, stated
from sklearn.svm import LinearSVC

from kernelweave.machines import MLRGL, MLRL1, SVM, Machine, MLRPairwise, Solution

MACHINES = {
    "narrow": MLRL1(1.0),
    "wide": MLRL1(0.3, box="wide"),
    "ridge": MLRL1(1.0, ridge=0.5),
    "pairwise": MLRPairwise(0.3),
    "group": MLRGL(0.5),
}
each_machine = pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)


def distance(solution: Solution, K: NDArray) -> float:
    """How far a score can be from the optimal one: 1/2 |f - f*|^2 is at most the gap."""
    return float(np.sqrt(2 * max(solution.gap, 0.0) * K.diagonal().max())) + 1e-9


def closed(solution: Solution, accuracy: float) -> bool:
    """Whether the gap is what was asked for, and not negative by more than rounding."""
    return -1e-12 * solution.primal <= solution.gap <= accuracy * solution.primal


def scaled(machine: Machine, c: float) -> Machine:
    """The machine that on c times the kernel does what this one does."""
    if isinstance(machine, MLRL1):
        return replace(machine, C=machine.C / c, ridge=np.asarray(machine.ridge) * c)
    return replace(machine, C=machine.C / c)


# --- special cases ----------------------------------------------------------------------------------------------------


def one_label_each(n: int = 30, m: int = 4, seed: int = 0) -> tuple[NDArray, NDArray, NDArray]:
    """Features (n, 5), classes (n,) and the label matrix with one label a row."""
    rng = np.random.default_rng(seed)
    classes = np.concatenate([np.arange(m), rng.integers(0, m, n - m)])
    X = rng.standard_normal((n, 5)) + 0.8 * np.eye(m, 5)[classes]
    return X, classes, np.where(np.arange(m) == classes[:, None], 1.0, -1.0)


@pytest.mark.parametrize("C", [0.2, 2.0])
def test_one_label_each_is_crammer_singer(C: float) -> None:
    X, classes, Y = one_label_each()
    theirs = LinearSVC(multi_class="crammer_singer", C=C / 2, fit_intercept=False, tol=1e-11, max_iter=1_000_000)
    theirs.fit(X, classes)
    K = X @ X.T
    ours = MLRL1(C).solve(K, Y, accuracy=1e-12)
    assert closed(ours, 1e-12)
    np.testing.assert_allclose(K @ ours.coef, 2 * theirs.decision_function(X), atol=2e-6)


@pytest.mark.parametrize("C", [0.2, 2.0])
def test_one_label_each_is_weston_watkins(C: float) -> None:
    X, classes, Y = one_label_each()
    K = gaussian(X)
    pairwise = MLRPairwise(C).solve(K, Y, accuracy=1e-10)
    expected = ref.weston_watkins(K, classes, C / 2)
    assert pairwise.primal == pytest.approx(4 * expected.value, rel=1e-7)
    np.testing.assert_allclose(K @ pairwise.coef, 2 * expected.scores, atol=1e-4)
    group = MLRGL(C).solve(K, Y, accuracy=1e-10)
    expected = ref.weston_watkins(K, classes, C)
    assert group.primal == pytest.approx(expected.value, rel=1e-7)
    np.testing.assert_allclose(K @ group.coef, expected.scores, atol=1e-4)


@pytest.mark.parametrize("C", [0.1, 1.0, 30.0])
@pytest.mark.parametrize("machine", [MLRL1, MLRPairwise, MLRGL])
def test_two_labels_are_a_binary_machine_without_bias(machine: type, C: float) -> None:
    """The margin between the two scores is 2 (group: 1), so each is the binary score (half of it)."""
    X, _, Y = one_label_each(m=2)
    K = gaussian(X)
    share = 0.5 if machine is MLRGL else 1.0
    ours = machine(C).solve(K, Y, accuracy=1e-11)
    binary = SVM(C / share, fit_intercept=False).solve(K, Y[:, :1], accuracy=1e-11)
    assert closed(ours, 1e-11)
    np.testing.assert_allclose(ours.coef[:, 0], -ours.coef[:, 1], atol=1e-12 * C)
    F, f = K @ ours.coef, share * (K @ binary.coef)
    np.testing.assert_allclose(F, np.hstack([f, -f]), atol=distance(ours, K) + distance(binary, K))
    assert ours.primal == pytest.approx(2 * share**2 * binary.primal, rel=1e-9)


def test_one_relevant_label_makes_groups_into_pairs() -> None:
    """Groups of one error are plain hinges: with margin 1 and half the scores, the pairwise machine of twice the C."""
    X, _, Y = one_label_each(m=5)
    K = gaussian(X)
    group, pairwise = MLRGL(0.5).solve(K, Y, accuracy=1e-10), MLRPairwise(1.0).solve(K, Y, accuracy=1e-10)
    np.testing.assert_allclose(
        2 * K @ group.coef, K @ pairwise.coef, atol=2 * distance(group, K) + distance(pairwise, K)
    )


@pytest.mark.parametrize("m", [2, 3])
def test_the_three_sets_agree_where_every_row_has_one_pair(m: int) -> None:
    rng = np.random.default_rng(0)
    Y = np.stack([rng.permutation([1.0, -1.0] + [0.0] * (m - 2)) for _ in range(15)])
    K = gaussian(rng.standard_normal((15, 3)))
    values = [machine.solve(K, Y, accuracy=1e-9).primal for machine in (MLRL1(), MLRL1(box="wide"), MLRPairwise())]
    np.testing.assert_allclose(values, values[0], rtol=1e-8)
    assert 4 * MLRGL(0.5).solve(K, Y, accuracy=1e-9).primal == pytest.approx(values[0], rel=1e-8)


def test_twice_published_is_the_ridge() -> None:
    """printed(K, C) = 2 correct(K + diag K, C/2) for kernels of any diagonal."""
    Ks, Y = labelled(n=12, m=4, seed=5)
    K = Ks[2] + 0.2 * np.eye(12)
    printed = ref.balanced(ref.Ranking("narrow", 1.4), K, Y, sweeps=300, half=True)
    ours = MLRL1(0.7, ridge=np.diag(K)).solve(K, Y, accuracy=1e-13)
    np.testing.assert_allclose(2 * ours.coef, printed, atol=1e-6)


# --- symmetries -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("c", [1e-3, 7.0, 1e4])
@each_machine
def test_scaling_of_the_kernel(machine: Machine, c: float) -> None:
    """f(cK, C/c) = f(K, C)."""
    Ks, Y = labelled(unknown=0.1)
    one, other = machine.solve(Ks[0], Y, accuracy=1e-9), scaled(machine, c).solve(c * Ks[0], Y, accuracy=1e-9)
    assert c * other.primal == pytest.approx(one.primal, rel=1e-8)
    np.testing.assert_allclose(c * Ks[0] @ other.coef, Ks[0] @ one.coef, atol=3 * distance(one, Ks[0]))


@each_machine
def test_order_of_labels_and_samples(machine: Machine) -> None:
    Ks, Y = labelled(unknown=0.1)
    K = Ks[0]
    rng = np.random.default_rng(0)
    here, labels = rng.permutation(len(Y)), rng.permutation(Y.shape[1])
    one = machine.solve(K, Y, accuracy=1e-9)
    other = machine.solve(K[np.ix_(here, here)], Y[np.ix_(here, labels)], accuracy=1e-9)
    assert other.primal == pytest.approx(one.primal, rel=2e-9)
    shuffled = K[np.ix_(here, here)] @ other.coef
    np.testing.assert_allclose(shuffled, (K @ one.coef)[np.ix_(here, labels)], atol=2 * distance(one, K))


@each_machine
def test_single_precision(machine: Machine) -> None:
    Ks, Y = labelled(n=40, m=6, unknown=0.1)
    K = Ks[0].astype(np.float32)
    solution = machine.solve(K, Y, accuracy=1e-5)
    exact = machine.solve(Ks[0], Y, accuracy=1e-9)
    assert solution.coef.dtype == np.float64
    assert closed(solution, 1e-5)
    assert solution.primal == pytest.approx(exact.primal, rel=1.1e-5)
    # certified in double precision for the kernel as it was given
    assert solution.primal == pytest.approx(ref.primal(stated(machine), K.astype(float), Y, solution.coef), rel=1e-9)
    np.testing.assert_allclose(K @ solution.coef, Ks[0] @ exact.coef, atol=distance(solution, K) + 1e-4)


@each_machine
def test_many_samples_are_visited_in_blocks(machine: Machine) -> None:
    """More samples than a block holds; the certificate is from scratch."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 4))
    Y = np.where(X @ rng.standard_normal((4, 6)) + 0.5 * rng.standard_normal((600, 6)) > 0.5, 1.0, -1.0)
    K = gaussian(X)
    solution = machine.solve(K, Y, accuracy=1e-2)
    primal, dual = ref.primal(stated(machine), K, Y, solution.coef), ref.dual(stated(machine), K, Y, solution.coef)
    assert solution.primal == pytest.approx(primal, rel=1e-9) and solution.dual == pytest.approx(dual, rel=1e-9)
    assert 0 <= primal - dual <= 1e-2 * primal


@each_machine
def test_kernels_of_any_memory_layout(machine: Machine) -> None:
    Ks, Y = labelled()
    K = Ks[0]
    wide = np.zeros((40, 60))
    wide[::2, ::3] = K
    expected = machine.solve(K, Y, accuracy=1e-6).coef
    for given in (np.asfortranarray(K), wide[::2, ::3]):
        np.testing.assert_array_equal(machine.solve(given, Y, accuracy=1e-6).coef, expected)
    before = K.copy(), Y.copy()
    machine.solve(K, np.asfortranarray(Y), accuracy=1e-6)
    np.testing.assert_array_equal(K, before[0])
    np.testing.assert_array_equal(Y, before[1])


# --- labels that nobody judged, rows that compare nothing -------------------------------------------------------------


@each_machine
def test_a_label_that_nobody_judged_changes_nothing(machine: Machine) -> None:
    Ks, Y = labelled(unknown=0.1)
    one = machine.solve(Ks[0], Y, accuracy=1e-8)
    other = machine.solve(Ks[0], np.insert(Y, 2, 0.0, axis=1), accuracy=1e-8)
    np.testing.assert_array_equal(other.coef[:, 2], 0.0)
    assert other.primal == pytest.approx(one.primal, rel=2e-8)
    np.testing.assert_allclose(
        np.delete(Ks[0] @ other.coef, 2, axis=1), Ks[0] @ one.coef, atol=2 * distance(one, Ks[0])
    )


@pytest.mark.parametrize(
    "row", [[0, 0, 0, 0, 0], [1, 1, 1, 1, 1], [-1, -1, -1, -1, -1], [0, 1, 0, 1, 0], [0, 0, -1, 0, 0]]
)
@each_machine
def test_a_row_that_compares_nothing_is_left_out(machine: Machine, row: list[int]) -> None:
    Ks, Y = labelled()
    Y, kept = Y.copy(), np.arange(len(Y)) % 4 != 1
    Y[~kept] = row
    one = machine.solve(Ks[0], Y, accuracy=1e-8)
    np.testing.assert_array_equal(one.coef[~kept], 0.0)
    K = Ks[0][np.ix_(kept, kept)]
    other = machine.solve(K, Y[kept], accuracy=1e-8)
    assert one.primal == pytest.approx(other.primal, rel=2e-8)
    np.testing.assert_allclose((Ks[0] @ one.coef)[kept], K @ other.coef, atol=distance(one, K) + distance(other, K))


@pytest.mark.parametrize(("i", "k"), [(0, 0), (3, 2), (7, 4)])
def test_an_unknown_label_leaves_its_pairs_out(i: int, k: int) -> None:
    """Pair by pair: the loss without the pairs of (i, k), written out and minimised by the conic solver."""
    Ks, Y = labelled()
    K, unknown = Ks[0], Y.copy()
    unknown[i, k] = 0.0
    L = ref.root(K)
    W = cp.Variable((L.shape[1], Y.shape[1]))
    F = L @ W
    pairs = [(r, p, q) for r, y in enumerate(Y) for p in ref.sides(y)[0] for q in ref.sides(y)[1]]
    kept = [(r, p, q) for r, p, q in pairs if r != i or k not in (p, q)]
    assert len(kept) < len(pairs)
    loss = cp.sum(cp.hstack([cp.pos(2 - F[r, p] + F[r, q]) for r, p, q in kept]))
    expected = ref.solve_conic(cp.Problem(cp.Minimize(cp.sum_squares(W) / 2 + 0.3 * loss)))
    solution = MLRPairwise(0.3).solve(K, unknown, accuracy=1e-9)
    assert solution.primal == pytest.approx(expected, rel=1e-7)
    np.testing.assert_allclose(K @ solution.coef, F.value, atol=1e-4)


def test_one_pair_a_row_is_all_that_unknowns_leave() -> None:
    """Everything unknown but one relevant and one irrelevant label a row: a plain hinge on their difference."""
    Ks, Y = labelled()
    rng = np.random.default_rng(1)
    few = np.zeros_like(Y)
    for i, y in enumerate(Y):
        P, N = ref.sides(y)
        if len(P) and len(N):
            few[i, rng.choice(P)], few[i, rng.choice(N)] = 1.0, -1.0
    solution = MLRL1(0.8).solve(Ks[0], few, accuracy=1e-10)
    difference = np.sum(few * (Ks[0] @ solution.coef), axis=1)
    hinge = np.maximum(0, 2 - difference)[few.any(axis=1)]
    assert solution.loss == pytest.approx(0.8 * hinge.sum(), rel=1e-9)


@pytest.mark.parametrize("n", [1, 4])
@pytest.mark.parametrize("row", [[0, 0, 0], [1, 1, 0], [-1, -1, -1]])
@each_machine
def test_nothing_to_compare_anywhere(machine: Machine, row: list[int], n: int) -> None:
    solution = machine.solve(np.eye(n), np.tile(np.array(row, dtype=float), (n, 1)))
    np.testing.assert_array_equal(solution.coef, np.zeros((n, 3)))
    assert solution.primal == solution.dual == 0


@each_machine
def test_one_sample(machine: Machine) -> None:
    Y = np.array([[1.0, -1.0, -1.0, 1.0, 0.0]])
    solution = machine.solve(np.array([[0.7]]), Y, accuracy=1e-9)
    assert solution.primal == pytest.approx(ref.conic_dual(stated(machine), np.array([[0.7]]), Y).value, rel=1e-7)


@each_machine
def test_samples_at_the_origin(machine: Machine) -> None:
    """K_ii = 0: no score of theirs can move, so their loss is that of zero scores and their duals are at the edge."""
    Ks, Y = labelled(unknown=0.1)
    K, Y = Ks[0].copy(), Y.copy()
    zero = np.arange(len(K)) % 5 == 0
    K[zero], K[:, zero] = 0.0, 0.0
    solution = machine.solve(K, Y, accuracy=1e-8)
    assert closed(solution, 1e-8)
    assert solution.primal == pytest.approx(ref.conic_primal(stated(machine), K, Y).value, rel=1e-7)
    np.testing.assert_array_equal((K @ solution.coef)[zero], 0.0)
    np.testing.assert_allclose(solution.coef.sum(axis=1), 0, atol=1e-12)


@each_machine
def test_a_kernel_of_zeros(machine: Machine) -> None:
    _, Y = labelled(unknown=0.1)
    solution = machine.solve(np.zeros((len(Y), len(Y))), Y, accuracy=1e-8)
    assert solution.quadratic == 0
    assert closed(solution, 1e-8)
    if machine != MACHINES["ridge"]:  # nothing can be learned, so this is the loss of zero scores
        assert solution.primal == pytest.approx(ref.loss(stated(machine), np.zeros(Y.shape), Y), rel=1e-12)


@each_machine
def test_repeated_samples(machine: Machine) -> None:
    """The same sample with other labels each time: a singular kernel, and labels that contradict each other."""
    Ks, Y = labelled()
    K = Ks[0][np.ix_(np.arange(20) // 4, np.arange(20) // 4)]
    solution = machine.solve(K, Y, accuracy=1e-7)
    assert closed(solution, 1e-7)
    assert solution.primal == pytest.approx(ref.conic_dual(stated(machine), K, Y).value, rel=2e-7)


# --- warm starts ------------------------------------------------------------------------------------------------------


@each_machine
def test_starting_from_the_solution(machine: Machine) -> None:
    Ks, Y = labelled(unknown=0.1)
    first = machine.solve(Ks[0], Y, accuracy=1e-6)
    kept = first.coef.copy()
    again = machine.solve(Ks[0], Y, start=first, accuracy=1e-6)
    assert first.steps > 2 >= again.steps
    assert again.dual >= first.dual * (1 - 1e-12) and again.gap <= 1e-6 * again.primal
    machine.solve(Ks[1], Y, start=first, accuracy=1e-6)
    np.testing.assert_array_equal(first.coef, kept)  # a start is not written to
    assert machine.solve(Ks[0], Y, start=first, accuracy=1e-6).steps == again.steps


@pytest.mark.parametrize("factor", [0.01, 0.5, 1.1, 3.0, 100.0])
@each_machine
def test_starting_from_another_cost(machine: Machine, factor: float) -> None:
    Ks, Y = labelled(unknown=0.1)
    first = machine.solve(Ks[0], Y, accuracy=1e-6)
    other = replace(machine, C=machine.C * factor)
    warm, cold = other.solve(Ks[0], Y, start=first, accuracy=1e-5), other.solve(Ks[0], Y, accuracy=1e-5)
    assert np.all(np.abs(warm.coef) <= ref.caps(stated(other), Y) * (1 + 1e-12))
    assert np.abs(warm.coef.sum(axis=1)).max() <= 1e-10 * other.C
    assert closed(warm, 1e-5)
    assert warm.primal == pytest.approx(cold.primal, rel=1.1e-5)
    begin = other.solve(Ks[0], Y, start=first, accuracy=np.inf)
    assert begin.steps == 0 and np.abs(begin.coef.sum(axis=1)).max() <= 1e-10 * other.C
    assert np.all(np.abs(begin.coef) <= ref.caps(stated(other), Y) * (1 + 1e-12))
    if 0.5 <= factor <= 1.1:  # the start was used
        assert begin.dual >= 0.5 * cold.dual


@each_machine
def test_starting_from_another_kernel(machine: Machine) -> None:
    Ks, Y = labelled(unknown=0.1)
    first = machine.solve(Ks[0], Y, accuracy=1e-6)
    for K in (0.9 * Ks[0] + 0.1 * Ks[1], Ks[2], 1e-3 * Ks[0], 1e3 * Ks[0]):
        warm, cold = machine.solve(K, Y, start=first, accuracy=1e-5), machine.solve(K, Y, accuracy=1e-5)
        assert closed(warm, 1e-5)
        assert warm.primal == pytest.approx(cold.primal, rel=1.1e-5)


@pytest.mark.parametrize("other", ["narrow", "wide", "pairwise", "group"])
@each_machine
def test_starting_from_another_machine(machine: Machine, other: str) -> None:
    """Whatever a start holds, it is a start only."""
    Ks, Y = labelled(unknown=0.1)
    start = MACHINES[other].solve(Ks[0], Y, accuracy=1e-4)
    warm = machine.solve(Ks[0], Y, start=start, accuracy=1e-5)
    assert np.all(np.abs(warm.coef) <= ref.caps(stated(machine), Y) * (1 + 1e-12))
    assert closed(warm, 1e-5)
    assert warm.dual == pytest.approx(ref.dual(stated(machine), Ks[0], Y, warm.coef), rel=1e-9)
    assert warm.primal == pytest.approx(machine.solve(Ks[0], Y, accuracy=1e-5).primal, rel=1.1e-5)


@pytest.mark.parametrize("eta", [1.5, 10.0])
def test_starting_the_published_update(eta: float) -> None:
    """From eta = m/2 on its surrogate is concave, so the start does not matter; and a finished one is finished."""
    Ks, Y = labelled(unknown=0.1)
    machine = MLRGL(0.5, eta=eta)
    first = machine.solve(Ks[0], Y, accuracy=1e-8)
    again = machine.solve(Ks[0], Y, start=first, accuracy=1e-8)
    assert again.steps <= 2
    np.testing.assert_allclose(again.coef, first.coef, atol=1e-6)
    if eta >= Y.shape[1] / 2:
        warm = machine.solve(Ks[0], Y, start=machine.solve(Ks[1], Y), accuracy=1e-8)
        np.testing.assert_allclose(warm.coef, first.coef, atol=1e-5)


# --- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "culprit"),
    [
        (lambda: MLRL1(0.0), "C must be positive"),
        (lambda: MLRL1(np.inf), "C must be positive and finite"),
        (lambda: MLRPairwise(-1.0), "C must be positive"),
        (lambda: MLRGL(np.nan), "C must be positive"),
        (lambda: MLRL1(box="broad"), "box must be 'narrow' or 'wide', got 'broad'"),
        (lambda: MLRL1(ridge=-0.1), "ridge must"),
        (lambda: MLRL1(ridge=np.array([0.0, np.nan])), "ridge must"),
        (lambda: MLRGL(eta=0.0), "eta must be"),
        (lambda: MLRGL(eta=-2.0), "eta must be"),
    ],
)
def test_bad_settings(make: Callable[[], Machine], culprit: str) -> None:
    with pytest.raises(ValueError, match=culprit):
        make()


def test_restricted_to_some_samples() -> None:
    Ks, Y = labelled()
    some = np.array([1, 4, 5, 9, 12, 17])
    ridge = np.linspace(0, 2, 20)
    K = Ks[0][np.ix_(some, some)]
    cut = MLRL1(2.0, ridge=ridge, box="wide").restrict(some).solve(K, Y[some], accuracy=1e-8)
    expected = MLRL1(2.0, ridge=ridge[some], box="wide").solve(K, Y[some], accuracy=1e-8)
    np.testing.assert_array_equal(cut.coef, expected.coef)
    for machine in (MLRL1(2.0, ridge=0.3), MLRPairwise(2.0), MLRGL(2.0, eta=3.0)):
        assert machine.restrict(some) == machine


# --- curvature --------------------------------------------------------------------------------------------------------

WEIGHTS = np.array([0.4, 0.25, 0.15, 0.2])


@pytest.mark.parametrize("unknown", [0.0, 0.2])
@each_machine
def test_slope_of_the_optimal_value(machine: Machine, unknown: float) -> None:
    Ks, Y = labelled(unknown=unknown)

    def optimal(b: NDArray) -> tuple[float, NDArray]:
        solution = machine.solve(np.tensordot(b, Ks, axes=1), Y, accuracy=1e-11)
        return solution.dual, np.array([0.5 * np.sum(solution.coef * (K @ solution.coef)) for K in Ks])

    _, h = optimal(WEIGHTS)
    for d in np.eye(4):
        (up, _), (down, _) = optimal(WEIGHTS + 1e-4 * d), optimal(WEIGHTS - 1e-4 * d)
        assert (up - down) / 2e-4 == pytest.approx(-h @ d, rel=1e-3, abs=1e-3 * h.max())


@pytest.mark.parametrize("unknown", [0.0, 0.2])
@each_machine
def test_curvature_of_the_optimal_value(machine: Machine, unknown: float) -> None:
    """It is found by a few steps of an iterative method, so up to a tenth of its size; newton needs no more."""
    Ks, Y = labelled(unknown=unknown)

    def solve(b: NDArray) -> Solution:
        return machine.solve(np.tensordot(b, Ks, axes=1), Y, accuracy=1e-12)

    def energies(solution: Solution) -> NDArray:
        return np.array([0.5 * np.sum(solution.coef * (K @ solution.coef)) for K in Ks])

    H = machine.curvature(np.tensordot(WEIGHTS, Ks, axes=1), Y, solve(WEIGHTS), bank_of(Ks))
    step = 1e-5
    change = [energies(solve(WEIGHTS + step * d)) - energies(solve(WEIGHTS - step * d)) for d in np.eye(4)]
    exact = -np.stack(change) / (2 * step)
    np.testing.assert_allclose(exact, exact.T, atol=1e-3 * exact.max())  # the differences are good
    np.testing.assert_allclose(H, exact, rtol=0, atol=0.1 * exact.max())


@each_machine
def test_curvature_is_that_of_a_convex_function(machine: Machine) -> None:
    """Twelve kernels that are nearly alike."""
    rng = np.random.default_rng(5)
    X = rng.standard_normal((40, 4))
    Y = np.where(X @ rng.standard_normal((4, 5)) + 0.5 * rng.standard_normal((40, 5)) > 0.4, 1.0, -1.0)
    Ks = np.stack([gaussian(X, width) for width in np.geomspace(0.1, 10, 12)])
    K = Ks.mean(axis=0)
    H = machine.curvature(K, Y, machine.solve(K, Y, accuracy=1e-5), bank_of(Ks))
    np.testing.assert_allclose(H, H.T, atol=1e-10 * np.abs(H).max())
    assert np.linalg.eigvalsh(H)[0] >= -1e-9 * np.abs(H).max()


def test_flat_directions() -> None:
    """Two copies of one sample that ask for opposite things: the dual is constant along a line."""
    Y = np.array([[-1.0, 1.0, -1.0], [0.0, -1.0, 1.0]])
    for C in (1.0, 50.722151070357036, 1e3):
        for machine in (MLRL1(C), MLRL1(C, box="wide"), MLRPairwise(C), MLRGL(C)):
            assert closed(machine.solve(np.ones((2, 2)), Y, accuracy=9.024376328589238e-07), 1e-6)
