"""Alternation and annealing: every step against slow references, and the claims about where they end."""

from __future__ import annotations

from itertools import pairwise, product

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kernelweave.ambiguity.annealing import Schedule, alternate, anneal
from kernelweave.ambiguity.bags import Bags
from kernelweave.ambiguity.hidden import Hidden, InstanceLabels, Witnesses
from kernelweave.datasets import make_bags
from kernelweave.machines.squared_hinge import Point, WeightedProblem


def toy(n_bags: int = 20, fraction: float = 0.5, seed: int = 0) -> tuple[Bags, NDArray[np.bool_], WeightedProblem]:
    bags, y, _ = make_bags(n_bags, fraction, random_state=seed)
    together = Bags(bags)
    distances = ((together.instances[:, None] - together.instances[None]) ** 2).sum(axis=2)
    return together, y == 1, WeightedProblem(np.exp(-0.5 * distances))


def one_bag(m: int, **settings: float) -> InstanceLabels:
    """A positive bag of m instances and a negative one of one."""
    bags = Bags(np.zeros((m + 1, 1)), [0] * m + [1])
    return InstanceLabels(bags, np.array([True, False]), 1.0, **settings)


def scores_of(losses: NDArray) -> NDArray:
    """Scores at which the cost of being positive less that of being negative is the given one, for C = 1."""
    # (1 - f)^2 - (1 + f)^2 = -4 f within the margin; beyond it (1 - f)^2, so that any difference is reached
    return np.where(
        losses > 4, 1 - np.sqrt(np.abs(losses)), np.where(losses < -4, np.sqrt(np.abs(losses)) - 1, -losses / 4)
    )


def energy(p: NDArray, d: NDArray, T: float, D: float, fraction: float) -> float:
    """What a step in p minimises, as it is written."""
    with np.errstate(divide="ignore", invalid="ignore"):
        negative_entropy = np.nan_to_num(p * np.log(p)).sum() + np.nan_to_num((1 - p) * np.log(1 - p)).sum()
    return float(p @ d + T * negative_entropy + D * (p.sum() - len(p) * fraction) ** 2)


def conic_probabilities(d: NDArray, T: float, D: float, fraction: float) -> NDArray:
    p = cp.Variable(len(d))
    entropy = cp.sum(cp.entr(p)) + cp.sum(cp.entr(1 - p))
    cost = p @ d - T * entropy + D * cp.square(cp.sum(p) - len(d) * fraction)
    cp.Problem(cp.Minimize(cost), [cp.sum(p) >= 1]).solve(solver=cp.CLARABEL, tol_gap_rel=1e-10, tol_gap_abs=1e-10)
    return p.value


@pytest.mark.parametrize("D", [0.0, 0.3, 20.0])
@pytest.mark.parametrize("fraction", [0.1, 0.8])
def test_label_probabilities_agree_with_a_conic_solver(D: float, fraction: float) -> None:
    rng = np.random.default_rng(0)
    for _ in range(10):
        m, T = int(rng.integers(1, 8)), float(rng.choice([0.5, 2.0, 10.0]))
        d = rng.normal(2.0, 3.0, m)
        p = one_bag(m, D=D, positive_fraction=fraction).probabilities(np.append(scores_of(d), 0.0), T)[:m]
        expected = conic_probabilities(d, T, D, fraction)
        assert energy(p, d, T, D, fraction) <= energy(np.clip(expected, 0, 1), d, T, D, fraction) + 1e-7
        np.testing.assert_allclose(p, expected, atol=2e-4)
        assert p.sum() >= 1 - 1e-12


@settings(max_examples=300, deadline=None)
@given(
    d=st.lists(st.floats(-30, 30), min_size=1, max_size=6),
    log_T=st.floats(-8, 2),
    D=st.sampled_from([0.0, 0.1, 1.0, 100.0]),
    fraction=st.floats(0.05, 1.0),
)
def test_conditions_of_label_probabilities(d: list[float], log_T: float, D: float, fraction: float) -> None:
    """``p = sigma((pull - d) / T)`` with one pull a bag; above that of the balance only if one is left."""
    T, m = 10.0**log_T, len(d)
    p = one_bag(m, D=D, positive_fraction=fraction).probabilities(np.append(scores_of(np.array(d)), 0.0), T)[:m]
    assert np.all((p >= 0) & (p <= 1)) and p.sum() >= 1 - 1e-9
    if m == 1:
        assert p[0] == 1
        return
    inner = (p > 1e-12) & (p < 1 - 1e-9)
    pulls = np.array(d)[inner] + T * np.log(p[inner] / (1 - p[inner]))
    if len(pulls):
        scale = 1 + np.abs(d).max() + 200 * D
        np.testing.assert_allclose(pulls, pulls[0], atol=2e-5 * scale)
        balance = -2 * D * (p.sum() - m * fraction)
        slack = 1e-5 * scale + 4 * D * m * 1e-9
        assert pulls[0] >= balance - slack  # the multiplier of "at least one" is not negative
        if p.sum() > 1 + 1e-6:
            assert pulls[0] == pytest.approx(balance, abs=slack)


def test_rescaled_sigmoids_are_not_the_minimum() -> None:
    """The published shortcut gives (0.850, 0.150) here."""
    p = one_bag(2).probabilities(np.append(scores_of(np.array([1.0, 3.0])), 0.0), 1.0)[:2]
    np.testing.assert_allclose(p, [0.7310585786, 0.2689414214], atol=1e-9)


@pytest.mark.parametrize("D", [0.0, 0.4, 5.0])
def test_best_labels_agree_with_enumeration(D: float) -> None:
    rng = np.random.default_rng(1)
    for m in (1, 2, 5, 8):
        d, fraction = rng.normal(1.0, 2.0, m), float(rng.uniform(0.1, 1.0))
        found = one_bag(m, D=D, positive_fraction=fraction).choice(np.append(scores_of(d), 0.0))[:m]
        costs = {
            labels: np.dot(labels, d) + D * (sum(labels) - m * fraction) ** 2
            for labels in product([0, 1], repeat=m)
            if any(labels)
        }
        assert np.dot(found, d) + D * (found.sum() - m * fraction) ** 2 == pytest.approx(min(costs.values()), abs=1e-12)


def test_labels_follow_the_scores_and_one_is_left_positive() -> None:
    bags = Bags(np.zeros((7, 1)), [0, 0, 0, 1, 1, 2, 2])
    hidden = InstanceLabels(bags, np.array([True, True, False]))
    labels = hidden.choice(np.array([0.5, -0.1, 0.0, -2.0, -0.3, 3.0, 3.0]))
    assert labels.tolist() == [1, 0, 0, 0, 1, 0, 0]


def test_witness_probabilities_are_a_softmax_of_losses() -> None:
    bags = Bags(np.zeros((5, 1)), [0, 0, 0, 1, 2])
    hidden = Witnesses(bags, np.array([True, False, True]), 2.0)
    f = np.array([0.5, -1.0, 3.0, 0.0, -5.0])
    loss = 2 * np.maximum(0, 1 - f[:3]) ** 2
    p = hidden.probabilities(f, 3.0)
    np.testing.assert_allclose(p[:3], np.exp(-loss / 3) / np.exp(-loss / 3).sum())
    assert p[3] == 0 and p[4] == 1
    cold = hidden.probabilities(np.array([2.0, 0.3, 1.5, 0.0, 0.0]), 1e-9)
    assert cold.tolist() == [0.5, 0.0, 0.5, 0.0, 1.0]  # several at a loss of zero stay witnesses


def test_hot_means_undecided() -> None:
    bags, positive, problem = toy()
    f = np.clip(problem.solve(0.5 + np.zeros(bags.n_instances), 0.2 + np.zeros(bags.n_instances)).scores, -1, 1)
    labels, witnesses = InstanceLabels(bags, positive, 100.0), Witnesses(bags, positive, 100.0)
    many = positive[bags.bag_of] & (bags.sizes[bags.bag_of] > 1)
    assert np.abs(labels.probabilities(f, 1e9)[many] - 0.5).max() < 1e-5
    assert np.abs(witnesses.probabilities(f, 1e9) - witnesses.start()).max() < 1e-5
    assert np.abs(labels.probabilities(f, 1000.0)[many] - 0.5).max() < 0.1


HIDDEN = {
    "labels": lambda bags, positive: InstanceLabels(bags, positive, 20.0),
    "balanced labels": lambda bags, positive: InstanceLabels(bags, positive, 20.0, D=10.0, positive_fraction=0.4),
    "witnesses": lambda bags, positive: Witnesses(bags, positive, 20.0),
    "weighted": lambda bags, positive: InstanceLabels(
        bags, positive, 20.0, (1.5, 0.7), np.linspace(0.5, 2, len(bags)), D=10.0, positive_fraction=0.4
    ),
}
each = pytest.mark.parametrize("kind", HIDDEN)


def written_free_energy(hidden: Hidden, point: Point, K: NDArray, p: NDArray, T: float) -> float:
    """The free energy, term by term as it is defined."""
    f = K @ point.coef + point.intercept
    value = 0.5 * point.coef @ K @ point.coef
    plus, minus = hidden._costs
    weight = np.ones(len(hidden.bags))
    weight[hidden.positive] = hidden.bag_weight
    weight[~hidden.positive] = np.linspace(0.5, 2, len(weight))[~hidden.positive] if plus != minus else 1.0
    for i, bag_weight in enumerate(weight):
        rows = hidden.bags.members(i)
        q = p[rows]
        if not hidden.positive[i]:
            value += bag_weight * minus * np.sum(np.maximum(0, 1 + f[rows]) ** 2)
            continue
        inner = q[(q > 0) & (q < 1)]
        value += bag_weight * plus * q @ np.maximum(0, 1 - f[rows]) ** 2 + bag_weight * T * np.sum(
            inner * np.log(inner)
        )
        if isinstance(hidden, InstanceLabels):
            value += bag_weight * minus * (1 - q) @ np.maximum(0, 1 + f[rows]) ** 2
            value += bag_weight * T * np.sum((1 - inner) * np.log(1 - inner))
            value += bag_weight * hidden.D * (q.sum() - len(q) * hidden.positive_fraction) ** 2
    return float(value)


@each
def test_the_free_energy_is_what_it_is_said_to_be_and_never_rises(kind: str) -> None:
    bags, positive, problem = toy()
    hidden = HIDDEN[kind](bags, positive)
    p, point = hidden.start(), None
    for T in (200.0, 50.0, 10.0, 1.0, 0.01):
        last = np.inf
        for _ in range(12):
            point = problem.solve(*hidden.weights(p), point, accuracy=1e-11)
            value = hidden.free_energy(point, p, T)
            assert value == pytest.approx(written_free_energy(hidden, point, problem.K, p, T), rel=1e-9)
            assert value <= last + 1e-8 * abs(value)
            p = hidden.probabilities(point.scores, T)
            last = written_free_energy(hidden, point, problem.K, p, T)
            assert last <= value + 1e-8 * abs(value)


@each
def test_machines_of_probabilities_close_small_gaps(kind: str) -> None:
    """Where the primal value cannot fall any more, but for rounding, steps go on as long as they close the gap."""
    for seed in range(20):
        bags, positive, problem = toy(seed=seed)
        hidden = HIDDEN[kind](bags, positive)
        p = hidden.probabilities(np.random.default_rng(seed).uniform(-1, 1, bags.n_instances), 40.0)
        point = problem.solve(*hidden.weights(p), accuracy=1e-9)
        assert point.gap <= 1e-9 * point.primal


@each
@pytest.mark.parametrize(
    "schedule",
    [
        Schedule(initial_temperature=10.0, min_temperature=10.0),
        Schedule(initial_temperature=1.0, min_temperature=1.0),
        Schedule(),
    ],
    ids=["hot", "warm", "whole"],
)
def test_annealing_ends_where_turns_change_nothing(kind: str, schedule: Schedule) -> None:
    bags, positive, problem = toy()
    hidden = HIDDEN[kind](bags, positive)
    outcome = anneal(problem, hidden, schedule, accuracy=1e-9)
    assert outcome.point.gap <= 1e-9 * outcome.point.primal
    again = problem.solve(*hidden.weights(outcome.p), accuracy=1e-10)
    change = hidden.probabilities(again.scores, outcome.path[-1][0]) - outcome.p
    assert np.abs(change).max() < 1e-3
    assert sum(row[3] for row in outcome.path) == outcome.solves


@each
def test_temperatures_on_the_way_are_left_near_their_minimum(kind: str) -> None:
    """Where nothing is decided yet there is one minimum, which turns at that temperature alone find, too."""
    bags, positive, problem = toy()
    hidden = HIDDEN[kind](bags, positive)
    for T, entropy, value, _ in anneal(problem, hidden, Schedule()).path[:4]:
        alone = anneal(
            problem,
            hidden,
            Schedule(initial_temperature=T / hidden.C, min_temperature=1.01 * T / hidden.C),
            accuracy=1e-10,
        )
        [(_, settled_entropy, least, _)] = alone.path
        assert least - 1e-7 * abs(least) <= value <= least + 3e-4 * abs(least)
        assert entropy == pytest.approx(settled_entropy, rel=2e-3)


@each
@pytest.mark.parametrize("T", [100.0, 10.0, 2.0])
def test_bend_is_the_second_derivative_of_the_free_energy(kind: str, T: float) -> None:
    """Where p follows the scores: differences of the gradient of the losses at the probabilities of moved scores."""
    bags, positive, _ = toy(8)
    hidden = HIDDEN[kind](bags, positive)
    rng = np.random.default_rng(2)
    f = rng.uniform(-1.5, 1.5, bags.n_instances)

    def gradient(f: NDArray) -> NDArray:
        w_plus, w_minus = hidden.weights(hidden.probabilities(f, T))
        return 2 * (w_minus * np.maximum(0, 1 + f) - w_plus * np.maximum(0, 1 - f))

    p = hidden.probabilities(f, T)
    bend = hidden.bend(f, p, T, *hidden.weights(p))
    H = np.diag(bend.own)
    for start, end, strength in zip(bend.starts, bend.ends, bend.strength, strict=True):
        rows = bend.members[start:end]
        H[np.ix_(rows, rows)] += strength * np.outer(bend.along[rows], bend.along[rows])
    differences = np.stack([(gradient(f + e) - gradient(f - e)) / 2e-6 for e in 1e-6 * np.eye(len(f))])
    np.testing.assert_allclose(differences, H, atol=2e-6 * np.abs(H).max())
    assert np.linalg.eigvalsh(np.diag(bend.bound) - H).min() >= -1e-10 * bend.bound.max()


@each
@pytest.mark.parametrize("T", [200.0, 100.0])
def test_newton_steps_end_where_many_turns_end(kind: str, T: float) -> None:
    bags, positive, problem = toy(30)
    hidden = HIDDEN[kind](bags, positive)
    steps = anneal(problem, hidden, Schedule(initial_temperature=T / 20, min_temperature=T / 19), accuracy=1e-11)
    p, point, turns, change = hidden.start(), None, 0, 1.0
    while change > 1e-9:
        point = problem.solve(*hidden.weights(p), point, accuracy=1e-12)
        p, before = hidden.probabilities(point.scores, T), p
        turns, change = turns + 1, float(np.abs(p - before).max())
    np.testing.assert_allclose(steps.p, p, atol=1e-4)
    assert steps.path[-1][2] == pytest.approx(hidden.free_energy(point, p, T), rel=1e-7)
    assert steps.path[0][3] < turns


def test_it_may_begin_as_hot_as_one_likes() -> None:
    """Where it is so hot that p stays as it is nothing is decided, and cooling goes on."""
    bags, positive, problem = toy(20)
    hidden = Witnesses(bags, positive, 20.0)
    usual, hot = (anneal(problem, hidden, Schedule(initial_temperature=initial)) for initial in (10.0, 1e6))
    assert hot.path[-1][0] < 0.1 * hidden.C
    assert hidden.objective(hot.point) == pytest.approx(hidden.objective(usual.point), rel=0.05)


@each
def test_pairs_begin_as_hot_as_one_likes(kind: str) -> None:
    """Of two instances each has half a chance, no further from a decision than from none."""
    X = np.random.default_rng(0).standard_normal((40, 2))
    bags, positive = Bags(X, np.repeat(np.arange(20), 2)), np.arange(20) < 10
    problem = WeightedProblem(np.exp(-0.5 * ((X[:, None] - X[None]) ** 2).sum(axis=2)))
    outcome = anneal(problem, HIDDEN[kind](bags, positive), Schedule(initial_temperature=1e6))
    assert outcome.path[-1][0] < 10.0


@each
@pytest.mark.parametrize("seed", range(3))
def test_alternation_never_raises_its_objective(kind: str, seed: int) -> None:
    bags, positive, problem = toy(seed=seed)
    hidden = HIDDEN[kind](bags, positive)
    start = hidden.choice(np.random.default_rng(seed).standard_normal(bags.n_instances))
    outcome = alternate(problem, hidden, start, accuracy=1e-10)
    objectives = [row[2] for row in outcome.path]
    assert all(after <= before * (1 + 1e-9) for before, after in pairwise(objectives))
    np.testing.assert_array_equal(hidden.choice(outcome.point.scores), outcome.p)
    if isinstance(hidden, Witnesses):
        assert hidden.objective(outcome.point) == pytest.approx(objectives[-1], rel=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_annealing_from_the_cold_is_alternation(seed: int) -> None:
    bags, positive, problem = toy(seed=seed)
    hidden = InstanceLabels(bags, positive, 100.0)
    cold = anneal(problem, hidden, Schedule(initial_temperature=1e-8), p=hidden.all_positive())
    turns = alternate(problem, hidden, hidden.all_positive())
    np.testing.assert_array_equal(cold.p > 0.5, turns.p > 0.5)


@pytest.mark.parametrize("seed", range(4))
def test_no_cost_of_balance_is_no_balance(seed: int) -> None:
    bags, positive, problem = toy(seed=seed)
    plain = anneal(problem, InstanceLabels(bags, positive, 50.0), Schedule())
    balanced = anneal(problem, InstanceLabels(bags, positive, 50.0, D=0.0, positive_fraction=0.9), Schedule())
    np.testing.assert_array_equal(plain.p, balanced.p)


def test_the_mean_of_a_bag_is_a_point_between_its_instances() -> None:
    """With a linear kernel the mean in feature space is the mean instance."""
    bags, positive, _ = toy()
    X = bags.instances
    hidden = Witnesses(bags, positive, 3.0)
    scores = hidden.mean_scores(WeightedProblem(X @ X.T), 1e-12)
    means = np.array([bag.mean(axis=0) for bag, sign in zip(bags, positive, strict=True) if sign])
    points = np.vstack([means, X[~positive[bags.bag_of]]])
    plus = np.repeat([3.0, 0.0], [len(means), len(points) - len(means)])
    machine = WeightedProblem(points @ points.T).solve(plus, 3.0 - plus, accuracy=1e-12)
    np.testing.assert_allclose(scores, X @ points.T @ machine.coef + machine.intercept, atol=1e-5)


def test_witness_and_mixture_objectives_are_equal_at_any_scores() -> None:
    """Of all mixtures of the instances of a bag, one instance alone has the least loss."""
    bags, positive, problem = toy()
    rng = np.random.default_rng(0)
    hidden = Witnesses(bags, positive, 2.0)
    coef = rng.standard_normal(bags.n_instances)
    point = problem.start(coef - coef.mean(), 0.3)
    f = point.scores
    best = 0.0
    for i in np.flatnonzero(positive):
        m = int(bags.sizes[i])
        nu = cp.Variable(m, nonneg=True)
        mixed = cp.square(cp.pos(1 - nu @ f[bags.members(i)]))
        best += cp.Problem(cp.Minimize(mixed), [cp.sum(nu) == 1]).solve(solver=cp.CLARABEL)
    best += np.sum(np.maximum(0, 1 + f[~positive[bags.bag_of]]) ** 2)
    assert hidden.objective(point) - point.quadratic == pytest.approx(2.0 * best, rel=1e-5)


def test_fractional_labels_stop_at_the_lowest_temperature() -> None:
    """A high cost of balance keeps labels undecided however cold it is."""
    bags, positive, problem = toy(10)
    hidden = InstanceLabels(bags, positive, 1.0, D=100.0, positive_fraction=0.45)
    outcome = anneal(problem, hidden, Schedule(min_temperature=0.1))
    assert outcome.path[-1][1] > 0.1
    assert outcome.path[-1][0] < 0.1 <= outcome.path[-2][0]


def test_fractional_labels_that_stay_need_no_more_cooling() -> None:
    """They are what they would be at the lowest temperature, which is far below."""
    bags, positive, problem = toy(10)
    hidden = InstanceLabels(bags, positive, 1.0, D=100.0, positive_fraction=0.45)
    outcome = anneal(problem, hidden, Schedule())
    T, entropy, *_ = outcome.path[-1]
    assert entropy > 0.1
    assert T > 1e-6
    cold = anneal(problem, hidden, Schedule(initial_temperature=1e-8), p=outcome.p)
    np.testing.assert_allclose(cold.p, outcome.p, atol=5e-3)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"initial_temperature": 0.0}, "initial_temperature must be positive"),
        ({"cooling": 1.0}, "cooling must be above 1, got 1.0: it divides the temperature"),
        ({"min_temperature": -1.0}, "min_temperature must be positive"),
        ({"tol": np.nan}, "tol must be positive"),
    ],
)
def test_refuses_schedules_that_do_not_cool(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Schedule(**wrong)
