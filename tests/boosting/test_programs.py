"""The linear programs of LP-beta, LP-B and LPBoost against the whole programs written out, and their duals."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

from kernelweave.boosting.programs import lp_b, lp_beta, lp_boost, solve_path

NUS = (0.03, 0.1, 0.37, 0.6, 0.83, 1.0)
each_program = pytest.mark.parametrize("solve", [lp_beta, lp_b], ids=["LP-beta", "LP-B"])


def problem(n=41, n_machines=6, n_classes=4, seed=0):
    """Scores (n, F, Q) of machines that are more or less good, and classes."""
    rng = np.random.default_rng(seed)
    codes = np.concatenate([np.arange(n_classes), rng.integers(n_classes, size=n - n_classes)])
    scores = rng.normal(size=(n, n_machines, n_classes))
    scores[np.arange(n), :, codes] += np.linspace(0.0, 1.5, n_machines)
    return scores, codes


def whole_program(scores, codes, nu, per_class, apart=False):
    """Value of the program with a row for every sample and wrong class."""
    n, F, Q = scores.shape
    n_weights = Q * F if per_class else F
    n_slacks = n * (Q - 1) if apart else n
    rows = []
    for i in range(n):
        for c in range(Q):
            if c == codes[i]:
                continue
            row = np.zeros(n_weights + 1 + n_slacks)
            if per_class:
                row[codes[i] * F : (codes[i] + 1) * F] = -scores[i, :, codes[i]]
                row[c * F : (c + 1) * F] = scores[i, :, c]
            else:
                row[:F] = scores[i, :, c] - scores[i, :, codes[i]]
            row[n_weights] = 1.0
            row[n_weights + 1 + (len(rows) if apart else i)] = -1.0
            rows.append(row)
    sums = np.zeros((n_weights // F, n_weights + 1 + n_slacks))
    for k, row in enumerate(sums):
        row[k * F : (k + 1) * F] = 1.0
    cost = np.concatenate([np.zeros(n_weights), [-1.0], np.full(n_slacks, 1 / (nu * n_slacks))])
    bounds = [(0, None)] * n_weights + [(None, None)] + [(0, None)] * n_slacks
    answer = linprog(cost, np.array(rows), np.zeros(len(rows)), sums, np.ones(len(sums)), bounds)
    assert answer.status == 0
    return answer.fun


@each_program
@pytest.mark.parametrize("slack", ["sample", "pair"])
@pytest.mark.parametrize("nu", NUS)
def test_equals_the_whole_program(solve, slack, nu):
    for seed in range(3):
        scores, codes = problem(seed=seed)
        found = solve(scores, codes, nu, slack=slack)
        expected = whole_program(scores, codes, nu, solve is lp_b, apart=slack == "pair")
        assert found.value == pytest.approx(expected, abs=1e-9)


@each_program
def test_many_samples_beside_few_weights_equal_the_whole_program(solve):
    scores, codes = problem(n=400, n_machines=3, n_classes=3, seed=5)
    for nu in (0.05, 0.4, 0.9):
        found = solve(scores, codes, nu)
        assert found.value == pytest.approx(whole_program(scores, codes, nu, solve is lp_b), abs=1e-9)
        assert abs(found.gap) < 1e-9


def test_interior_points_equal_the_whole_program():
    scores, codes = problem(n=60, n_machines=20, n_classes=9)  # more weights than the simplex method is used for
    found = lp_b(scores, codes, 0.5)
    assert found.value == pytest.approx(whole_program(scores, codes, 0.5, True), abs=1e-9)
    assert abs(found.gap) < 1e-9


@each_program
@pytest.mark.parametrize("slack", ["sample", "pair"])
@pytest.mark.parametrize("nu", NUS)
def test_duals_are_feasible_and_close_the_gap(solve, slack, nu):
    scores, codes = problem(seed=7)
    n, _, n_classes = scores.shape
    found = solve(scores, codes, nu, slack=slack)
    u, gammas = found.duals, np.atleast_2d(found.edges).max(axis=1)
    assert np.all(u >= 0)
    assert np.all(u[np.arange(n), codes] == 0)
    assert u.sum() == pytest.approx(1, abs=1e-9)
    most = u.sum(axis=1) if slack == "sample" else u * (n_classes - 1)
    assert most.max() <= 1 / (nu * n) + 1e-9
    assert found.value == pytest.approx(-gammas.sum(), abs=1e-9)
    weights, edges = np.atleast_2d(found.weights), np.atleast_2d(found.edges)
    np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-12)
    assert np.all(weights >= 0)
    used = weights > 1e-8
    np.testing.assert_allclose(edges[used], np.broadcast_to(gammas[:, None], edges.shape)[used], atol=1e-9)


def test_edges_are_what_they_are_said_to_be():
    scores, codes = problem(n=12)
    found, by_class = lp_beta(scores, codes, 0.4), lp_b(scores, codes, 0.4)
    every = range(len(codes))
    for m in range(scores.shape[1]):
        edge = sum(found.duals[i, c] * (scores[i, m, codes[i]] - scores[i, m, c]) for i in every for c in range(4))
        assert found.edges[m] == pytest.approx(edge, abs=1e-12)
        for c in range(4):
            right = sum(by_class.duals[i].sum() * scores[i, m, c] for i in every if codes[i] == c)
            wrong = sum(by_class.duals[i, c] * scores[i, m, c] for i in every if codes[i] != c)
            assert by_class.edges[c, m] == pytest.approx(right - wrong, abs=1e-12)


@each_program
@pytest.mark.parametrize("nu", NUS)
def test_nu_is_between_the_shares_below_and_up_to_the_margin(solve, nu):
    scores, codes = problem(n=150, seed=11)
    found = solve(scores, codes, nu)
    weights = np.broadcast_to(found.weights, (4, 6))
    T = np.einsum("imc,cm->ic", scores, weights)
    right = T[np.arange(150), codes]
    T[np.arange(150), codes] = -np.inf
    np.testing.assert_allclose(found.margins, right - T.max(axis=1), atol=1e-12)
    assert np.mean(found.margins < found.rho - 1e-8) <= nu + 1e-12
    assert np.mean(found.margins <= found.rho + 1e-8) >= nu - 1e-12
    assert found.value == pytest.approx(-found.rho + np.maximum(found.rho - found.margins, 0).sum() / (nu * 150))


def test_both_ends_of_nu():
    scores, codes = problem(seed=13)
    hard, mean = lp_beta(scores, codes, 1 / 41), lp_beta(scores, codes, 1.0)
    assert hard.value == pytest.approx(-hard.margins.min(), abs=1e-9)  # no sample may miss it
    assert lp_beta(scores, codes, 1e-6).value == pytest.approx(hard.value, abs=1e-9)
    assert mean.value == pytest.approx(-mean.margins.mean(), abs=1e-9)


@pytest.mark.parametrize("nu", NUS)
def test_a_weight_a_class_is_never_worse(nu):
    for seed in range(4):
        scores, codes = problem(seed=seed)
        assert lp_b(scores, codes, nu).value <= lp_beta(scores, codes, nu).value + 1e-9


@pytest.mark.parametrize("nu", NUS)
def test_two_classes_are_twice_the_binary_program(nu):
    rng = np.random.default_rng(3)
    signs = rng.choice([-1, 1], size=37)
    f = signs[:, None] * np.linspace(0, 1, 5) + rng.normal(size=(37, 5))
    both = lp_beta(np.stack([-f, f], axis=2), (signs > 0).astype(int), nu)
    binary = lp_boost(f, signs, nu)
    assert both.value == pytest.approx(2 * binary.value, abs=1e-9)
    np.testing.assert_allclose(both.weights, binary.weights, atol=1e-9)
    np.testing.assert_allclose(binary.margins, signs * (f @ binary.weights), atol=1e-12)
    # The binary program itself, written out.
    cost = np.concatenate([np.zeros(5), [-1.0], np.full(37, 1 / (nu * 37))])
    rows = np.hstack([-signs[:, None] * f, np.ones((37, 1)), -np.eye(37)])
    total = np.concatenate([np.ones(5), np.zeros(38)])[None]
    bounds = [(0, None)] * 5 + [(None, None)] + [(0, None)] * 37
    assert binary.value == pytest.approx(linprog(cost, rows, np.zeros(37), total, [1.0], bounds).fun, abs=1e-9)


@each_program
def test_order_of_classes_machines_and_samples_does_not_matter(solve):
    scores, codes = problem(seed=2)
    found = solve(scores, codes, 0.37)
    classes, machines, samples = np.array([2, 0, 3, 1]), np.array([5, 3, 0, 1, 4, 2]), np.arange(41)[::-1]
    moved = scores[np.ix_(samples, machines, classes)]
    again = solve(moved, np.argsort(classes)[codes[samples]], 0.37)
    expected = found.weights[machines] if solve is lp_beta else found.weights[np.ix_(classes, machines)]
    np.testing.assert_allclose(again.weights, expected, atol=1e-8)
    np.testing.assert_allclose(again.margins, found.margins[samples], atol=1e-8)


@each_program
def test_scores_in_another_unit_have_the_same_weights(solve):
    scores, codes = problem(seed=4)
    small, large = solve(1e-7 * scores, codes, 0.6), solve(scores, codes, 0.6)
    np.testing.assert_allclose(small.weights, large.weights, atol=1e-8)
    assert small.value == pytest.approx(1e-7 * large.value, rel=1e-8)


@each_program
def test_a_path_gives_what_each_nu_alone_gives(solve):
    scores, codes = problem(n=120, seed=6)
    for nu, found in zip(NUS, solve_path(scores, codes, NUS, solve is lp_b), strict=True):
        assert found.value == pytest.approx(solve(scores, codes, nu).value, abs=1e-9)


def test_solutions_are_sparse():
    scores, codes = problem(n=200, n_machines=12, seed=8)
    scores[:, :6] *= 0.01  # machines that say nothing
    found = lp_beta(scores, codes, 0.5)
    assert (found.weights > 1e-8).sum() < 12
    assert found.weights[6:].sum() > 0.9


@each_program
def test_scores_that_say_nothing_have_a_margin_of_zero(solve):
    found = solve(np.zeros((6, 2, 3)), np.arange(6) % 3, 0.5)
    assert found.rho == pytest.approx(0, abs=1e-9)
    assert found.value == pytest.approx(0, abs=1e-9)


def test_refuses_what_it_cannot_solve():
    scores, codes = problem()
    for nu in (0.0, -0.1, 1.01, np.nan):
        with pytest.raises(ValueError, match=r"nu must lie in \(0, 1\]"):
            lp_beta(scores, codes, nu)
    with pytest.raises(ValueError, match="slack must be one of"):
        lp_beta(scores, codes, 0.5, slack="class")
    with pytest.raises(ValueError, match="n_classes >= 2"):
        lp_beta(scores[:, :, :1], codes, 0.5)
    with pytest.raises(ValueError, match="integers from 0 to 3"):
        lp_beta(scores, codes + 1, 0.5)
    with pytest.raises(ValueError, match="integers from 0 to 3"):
        lp_beta(scores, codes[:-1], 0.5)
    scores[3, 2, 1] = np.nan
    with pytest.raises(ValueError, match="machine 2 gives sample 3 the score nan for class 1"):
        lp_beta(scores, codes, 0.5)
