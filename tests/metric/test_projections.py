"""Projections against plain loops, a conic solver and the identities that hold at every step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from metric_reference import clustered, dual_value, is_feasible, kernelised_itml, optimum, plain_projections

from kernelweave.metric import cyclic
from kernelweave.metric.certificates import certify, proves_infeasible
from kernelweave.metric.cyclic import Outcome, Stopping, advice, run
from kernelweave.metric.pairs import PairSet
from kernelweave.metric.projections import Problem, State, rebuild, squared_distances, sweep, weighted_outer
from kernelweave.metric.space import Space

EXACT = Stopping(tol=1e-9, max_sweeps=5000)
problems = st.builds(
    clustered,
    n_pairs=st.integers(4, 30),
    h=st.integers(1, 5),
    g=st.integers(1, 5),
    gamma=st.sampled_from([0.1, 1.0, 10.0]),
    lam=st.sampled_from([0.1, 1.0, 10.0]),
    slack=st.sampled_from([0.0, 0.05, 1.0]),
    privileged=st.sampled_from([0.0, 0.5, 1.0]),
    seed=st.integers(0, 50),
)


def ended(problem: Problem, stopping: Stopping = EXACT, corrected: bool = True) -> Outcome:
    return run(problem, stopping, corrected, True, np.random.RandomState(0))


def swept(problem: Problem, sweeps: int = 1, corrected: bool = True) -> State:
    state = State.start(problem)
    for _ in range(sweeps):
        sweep(problem, state, np.arange(len(problem.pairs)), corrected)
    return state


def is_positive_definite(M: np.ndarray) -> bool:
    return bool(np.allclose(M, M.T, rtol=1e-9, atol=1e-13 * np.abs(M).max()) and np.linalg.eigvalsh(M).min() > 0)


def harmonic_means(problem: Problem) -> np.ndarray:
    """What r, s and xi of the first pair become if nothing is clipped."""
    gamma, lam = problem.gamma, problem.lam if problem.pairs.privileged[0] else 0.0
    r, s = (np.sum(problem.pairs.differences(features)[0] ** 2) for features in (problem.X, problem.Z))
    return (1 + gamma + lam) / (1 / r + lam / s + gamma / problem.targets[0])


# --- one projection ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("privileged", [0.0, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_an_unclipped_projection_makes_all_distances_the_harmonic_mean(privileged, seed):
    problem = clustered(privileged=privileged, seed=seed)
    mean = harmonic_means(problem)
    apart = problem.pairs.differences(problem.X)[0]
    if problem.signs[0] * (apart @ apart - mean) < 0:  # then the pair pulls the other way: look at it as the other kind
        pairs = PairSet(problem.pairs.first, problem.pairs.second, -problem.pairs.similar, problem.pairs.privileged)
        problem = replace(problem, pairs=pairs)
    state = State.start(problem)
    sweep(problem, state, np.array([0]), True)
    assert squared_distances(problem.X, state.M, problem.pairs)[0] == pytest.approx(mean, rel=1e-12)
    assert 1 / state.inverse_xi[0] == pytest.approx(mean, rel=1e-12)
    if privileged:
        assert squared_distances(problem.Z, state.P, problem.pairs)[0] == pytest.approx(mean, rel=1e-12)


def test_a_clipped_projection_moves_the_privileged_distance_only():
    problem = clustered(n_pairs=2, seed=1)
    problem = replace(problem, targets=np.where(problem.signs > 0, 1e3, 1e-3))  # far from being violated
    state = State.start(problem)
    sweep(problem, state, np.array([0]), True)
    s = np.sum(problem.pairs.differences(problem.Z)[0] ** 2)
    expected = (problem.lam / s + problem.gamma / problem.targets[0]) / (problem.lam + problem.gamma)
    assert state.a[0] == 0
    np.testing.assert_array_equal(state.M, np.eye(3))
    assert state.inverse_xi[0] == pytest.approx(expected, rel=1e-12)
    assert 1 / squared_distances(problem.Z, state.P, problem.pairs)[0] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("corrected", [True, False])
@pytest.mark.parametrize("privileged", [0.0, 0.5, 1.0])
def test_the_compiled_loop_does_what_the_printed_increments_say(privileged, corrected):
    problem = clustered(n_pairs=20, h=4, g=2, gamma=0.5, lam=2.0, privileged=privileged)
    order = np.tile(np.random.default_rng(0).permutation(len(problem.pairs)), 3)
    M, P, a, b, xi = plain_projections(problem, order, corrected)
    state = State.start(problem)
    sweep(problem, state, order, corrected)
    for ours, theirs in ((state.M, M), (state.P, P), (state.a, a), (state.b, b), (1 / state.inverse_xi, xi)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-11)


@settings(max_examples=60, deadline=None)
@given(problems)
def test_a_projection_is_the_maximum_of_the_dual_over_its_multipliers(problem):
    """No small change of a_k and b_k of the pair that was just projected on makes the dual larger."""
    state = swept(problem)
    last = len(problem.pairs) - 1
    best = dual_value(problem, state.a, state.b)
    for size in (1e-2, 1e-4):
        step = size * state.inverse_xi[last]
        for up_a, up_b in ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, -1), (1, -1), (-1, 1)):
            a, b = state.a.copy(), state.b.copy()
            a[last] = max(a[last] + step * up_a, 0.0)
            b[last] += step * up_b * problem.pairs.privileged[last]
            assert dual_value(problem, a, b) <= best + 1e-9 * max(1, abs(best))


# --- what holds at every step -----------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(problems, st.integers(1, 30), st.booleans())
def test_matrices_belong_to_the_multipliers(problem, sweeps, corrected):
    state = swept(problem, sweeps, corrected)
    assert is_positive_definite(state.M) and is_positive_definite(state.P)
    assert (state.a >= 0).all() and not state.b[~problem.pairs.privileged].any()
    inverse = np.eye(len(state.M)) + weighted_outer(problem.X, problem.pairs, problem.signs * state.a)
    np.testing.assert_allclose(state.M @ inverse, np.eye(len(inverse)), atol=1e-6)
    inverse = np.eye(len(state.P)) - weighted_outer(problem.Z, problem.pairs, state.b) / problem.lam
    np.testing.assert_allclose(state.P @ inverse, np.eye(len(inverse)), atol=1e-6)
    stationary = 1 / problem.targets + (state.b - problem.signs * state.a) / problem.gamma
    np.testing.assert_allclose(state.inverse_xi, stationary, rtol=1e-6, atol=1e-9 * stationary.max())
    np.testing.assert_allclose(
        state.inverse_p, 1 - problem.slack * problem.targets * state.b / problem.slack_cost, rtol=1e-9
    )


@settings(max_examples=40, deadline=None)
@given(problems, st.integers(1, 10))
def test_the_dual_only_rises_and_bounds_the_objective(problem, sweeps):
    state, order = State.start(problem), np.arange(len(problem.pairs))
    dual = certify(problem, state).dual
    for _ in range(sweeps):
        sweep(problem, state, order, True)
        certificate = certify(problem, state)
        assert certificate.dual >= dual - 1e-9 * max(1, abs(dual))
        dual = certificate.dual
        assert dual == pytest.approx(dual_value(problem, state.a, state.b), rel=1e-7, abs=1e-9)
        if not problem.hard.any():
            assert certificate.objective >= dual - 1e-9 * max(1, abs(dual))


def test_thousands_of_sweeps_leave_no_rounding_behind():
    problem = clustered(n_pairs=40, h=6, g=6, privileged=0.0, gamma=10.0)
    state = swept(problem, 6000)  # 240,000 projections: the matrices are made anew on the way
    assert is_positive_definite(state.M)
    running = state.M.copy()
    rebuild(problem, state)
    np.testing.assert_allclose(running, state.M, rtol=1e-8, atol=1e-10 * np.abs(running).max())


# --- the optimum ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gamma", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("seed", range(2))
def test_itml_agrees_with_a_conic_solver(gamma, seed):
    problem = clustered(gamma=gamma, privileged=0.0, seed=seed)
    outcome, best = ended(problem), optimum(problem)
    assert outcome.converged
    assert outcome.certificate.dual == pytest.approx(best.value, rel=1e-6)
    assert outcome.certificate.objective == pytest.approx(best.value, rel=1e-6)
    np.testing.assert_allclose(outcome.state.M, best.M, atol=1e-3 * np.abs(best.M).max())


@pytest.mark.parametrize(("gamma", "lam"), [(0.1, 1.0), (1.0, 0.1), (1.0, 10.0)])
@pytest.mark.parametrize("privileged", [0.5, 1.0])
def test_itml_plus_agrees_with_a_conic_solver(gamma, lam, privileged):
    problem = clustered(n_pairs=8, h=4, g=4, gamma=gamma, lam=lam, privileged=privileged, seed=3)
    outcome, best = ended(problem), optimum(problem)
    assert outcome.converged
    assert outcome.certificate.dual == pytest.approx(best.value, rel=1e-5)
    for ours, theirs in ((outcome.state.M, best.M), (outcome.state.P, best.P)):
        np.testing.assert_allclose(ours, theirs, atol=1e-3 * np.abs(theirs).max())


@pytest.mark.parametrize("slack", [0.05, 1.0])
def test_slack_agrees_with_a_conic_solver_where_nothing_else_is_feasible(slack):
    problem = clustered(n_pairs=50, h=3, g=3, slack=slack, gamma=0.5)
    assert not is_feasible(problem)
    outcome, best = ended(problem, Stopping(tol=1e-7, max_sweeps=5000)), optimum(problem)
    assert outcome.converged
    assert outcome.certificate.dual == pytest.approx(best.value, rel=1e-5)
    assert outcome.certificate.objective == pytest.approx(best.value, rel=1e-5)
    np.testing.assert_allclose(outcome.state.M, best.M, atol=3e-3 * np.abs(best.M).max())


@pytest.mark.parametrize("privileged", [0.0, 1.0])
def test_complementarity_at_the_optimum(privileged):
    problem = clustered(n_pairs=8, h=4, g=4, privileged=privileged, seed=3)
    state = ended(problem, Stopping(tol=1e-13, max_sweeps=5000)).state  # violations are like the root of the gap
    r = squared_distances(problem.X, state.M, problem.pairs)
    violation = problem.signs * (r * state.inverse_xi - 1)
    assert violation.max() < 1e-6
    np.testing.assert_allclose(state.a / problem.gamma / state.inverse_xi * violation, 0.0, atol=1e-6)


def test_without_the_correction_a_feasible_point_that_is_no_better():
    worse = 0
    for seed in range(6):
        problem = clustered(n_pairs=8, h=4, g=4, seed=seed)
        best = ended(problem).certificate
        printed = ended(problem, Stopping(by="change", tol=1e-10, max_sweeps=3000), corrected=False).certificate
        assert printed.hard_violation < 1e-6
        assert printed.objective >= best.dual * (1 - 10 * printed.hard_violation)
        worse += printed.objective > 1.01 * best.objective
    assert worse >= 1  # and usually it is worse


# --- special cases ----------------------------------------------------------------------------------------------------


def test_pairs_without_privileged_features_make_it_itml_bit_for_bit():
    problem = clustered(n_pairs=16, privileged=0.0)
    alone = replace(problem, Z=np.zeros((len(problem.X), 0)))
    with_unused, without = swept(problem, 5), swept(alone, 5)
    np.testing.assert_array_equal(with_unused.M, without.M)
    np.testing.assert_array_equal(with_unused.a, without.a)
    np.testing.assert_array_equal(with_unused.P, np.eye(3))


def test_indicator_features_of_disjoint_pairs_make_it_itml_with_both_prices():
    rng = np.random.default_rng(0)
    N = 6
    pairs = PairSet(np.arange(N), np.arange(N, 2 * N), [1, -1] * 3)
    targets = np.where(pairs.similar > 0, 1.0, 4.0)
    Z = np.zeros((2 * N, N))
    Z[:N] = np.diag(np.sqrt(targets))  # P = diag(targets) as prior, in coordinates in which the prior is the identity
    X = rng.standard_normal((2 * N, 4))
    plus = swept(Problem(X, Z, pairs, targets, 0.3, lam=0.9), 4)
    plain = swept(Problem(X, Z, pairs.with_privileged(0.0), targets, 1.2), 4)
    np.testing.assert_allclose(plus.M, plain.M, rtol=0, atol=1e-14 * np.abs(plain.M).max())


def test_a_free_privileged_matrix_makes_it_itml():
    rng = np.random.default_rng(1)
    N = 6  # of the 10 entries that P has
    pairs = PairSet(np.arange(N), np.arange(N, 2 * N), [1, -1] * 3)
    targets = np.where(pairs.similar > 0, 1.0, 6.0)
    X, Z = rng.standard_normal((2 * N, 4)), rng.standard_normal((2 * N, 4))
    plus = ended(Problem(X, Z, pairs, targets, 0.5, lam=1e-7), Stopping(tol=1e-6, max_sweeps=20_000))
    plain = ended(Problem(X, Z, pairs.with_privileged(0.0), targets, 0.5))
    np.testing.assert_allclose(plus.state.M, plain.state.M, atol=1e-4 * np.abs(plain.state.M).max())


@pytest.mark.parametrize("privileged", [0.0, 1.0])
def test_pairs_that_are_right_leave_the_matrix_alone(privileged):
    problem = clustered(privileged=privileged)
    r, s = (np.sum(problem.pairs.differences(F) ** 2, axis=1) for F in (problem.X, problem.Z))
    satisfied = problem.signs * (r - s) < 0
    pairs = problem.pairs.subset(satisfied)
    assert 0 < len(pairs) < len(satisfied)
    state = swept(Problem(problem.X, problem.Z, pairs, np.where(pairs.similar > 0, 1e4, 1e-4), 1e-6), 3)
    np.testing.assert_array_equal(state.M, np.eye(3))
    assert not state.a.any()


def test_a_satisfied_pair_that_comes_twice_changes_nothing():
    problem = clustered(n_pairs=16, privileged=0.0)
    once = ended(problem)
    idle = np.flatnonzero(once.state.a == 0)
    assert len(idle)
    twice = np.concatenate([np.arange(len(problem.pairs)), idle])
    again = ended(replace(problem, pairs=problem.pairs.subset(twice), targets=problem.targets[twice]))
    np.testing.assert_allclose(again.state.M, once.state.M, atol=1e-4 * np.abs(once.state.M).max())
    assert again.certificate.dual == pytest.approx(once.certificate.dual, rel=1e-8)


@settings(max_examples=20, deadline=None)
@given(problems)
def test_rotated_features_have_the_rotated_matrix(problem):
    h = problem.X.shape[1]
    Q = np.linalg.qr(np.random.default_rng(0).standard_normal((h, h)))[0]
    here, there = swept(problem, 3), swept(replace(problem, X=problem.X @ Q.T), 3)
    np.testing.assert_allclose(there.M, Q @ here.M @ Q.T, atol=1e-9 * np.abs(here.M).max())


def test_more_features_than_samples_is_the_kernelised_form():
    rng = np.random.default_rng(0)
    X, new = rng.standard_normal((12, 30)), rng.standard_normal((5, 30))
    pairs = PairSet.from_classes(np.arange(12) % 3, random_state=0).with_privileged(0.0)
    targets = np.where(pairs.similar > 0, 20.0, 80.0)
    space = Space.of(X, "identity", "prior")
    assert space.n_axes == 11
    state = swept(Problem(space.rows, np.zeros((12, 0)), pairs, targets, 0.5), 3)
    distance = space.distance(state.M)
    S = kernelised_itml(X @ X.T, pairs, targets, 0.5, 3)
    M = np.eye(30) + X.T @ S @ X
    differences = new[:, None] - new[None]
    expected = np.einsum("ijd,de,ije->ij", differences, M, differences)
    embedded = distance.embed(new)
    np.testing.assert_allclose(
        ((embedded[:, None] - embedded[None]) ** 2).sum(axis=2), expected, rtol=1e-10, atol=1e-10
    )


# --- problems without a solution --------------------------------------------------------------------------------------


def impossible() -> Problem:
    """m <= p and m >= 9 p."""
    X, Z = np.array([[0.0], [1.0], [5.0], [6.0]]), np.array([[0.0], [1.0], [0.0], [3.0]])
    return Problem(X, Z, PairSet([0, 2], [1, 3], [1, -1]), np.array([0.5, 2.0]), 1.0)


def test_multipliers_of_an_impossible_problem_grow_into_a_proof():
    problem = impossible()
    few, many = swept(problem, 10), swept(problem, 100)
    assert many.a.max() > 1e6 * few.a.max()
    assert proves_infeasible(problem, many)
    outcome = ended(problem)
    assert outcome.infeasible and len(outcome.history) <= 10
    assert "no distances satisfy all pairs" in advice(outcome, problem, EXACT)


def test_growing_multipliers_are_suspicious_before_they_prove_anything():
    problem, stopping = impossible(), Stopping(max_sweeps=8)
    outcome = ended(problem, stopping)
    unproved = Outcome(outcome.state, outcome.certificate, outcome.history, converged=False, infeasible=False)
    assert "probably infeasible" in advice(unproved, problem, stopping)


def test_a_fit_without_a_proof_ends_before_numbers_overflow(monkeypatch):
    monkeypatch.setattr(cyclic, "proves_infeasible", lambda problem, state: False)
    outcome = ended(impossible(), Stopping(max_sweeps=100_000))
    assert len(outcome.history) < 1000 and not outcome.converged and outcome.runs_away
    assert np.isfinite(outcome.state.M).all() and np.isfinite(outcome.certificate.dual)


@pytest.mark.parametrize("n_pairs", [8, 24, 50])
def test_proofs_agree_with_a_conic_solver(n_pairs):
    for seed in range(3):
        problem = clustered(n_pairs=n_pairs, h=3, g=3, seed=seed)
        outcome = ended(problem, Stopping(tol=1e-6, max_sweeps=3000))
        assert outcome.converged or outcome.infeasible
        assert outcome.infeasible != is_feasible(problem)
