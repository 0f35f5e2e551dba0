"""The loop, with columns that are just numbers of given kernels: it knows nothing of families."""

from __future__ import annotations

import numpy as np
import pytest
from conic import optimum
from problems import bank_of, binary, solve

from kernelweave.generation import Proposal, Rules, generate
from kernelweave.generation.columns import check_weights, has_limit
from kernelweave.machines import SVM, NuSVM, Ridge
from kernelweave.weights import (
    Average,
    Best,
    CappedSimplex,
    ElasticNetBall,
    Entropy,
    Grouped,
    GroupSparse,
    LpBall,
    Simplex,
    TikhonovLp,
)


class NumberedStore:
    """Columns are the numbers of kernels in a stack."""

    def __init__(self, Ks):
        self.Ks, self.used, self.added = Ks, [], 0

    @property
    def bank(self):
        return bank_of(self.Ks[self.used])

    def add(self, columns):
        self.used += list(columns)
        self.added += len(columns)

    def keep(self, kept):
        self.used = [j for j, keep in zip(self.used, kept, strict=True) if keep]


class NumberedOracle:
    """Looks at all kernels of the stack, or keeps the bound to itself."""

    def __init__(self, Ks, tells=True):
        self.Ks, self.tells = Ks, tells

    def propose(self, V, known, most, level, accuracy):
        h = np.array([0.5 * np.sum(V * (K @ V)) for K in self.Ks])
        order = np.argsort(-h)[:most]
        return Proposal(order.tolist(), h[order], h.max() if self.tells else np.inf)


def many_kernels(n=40, s=25, seed=0):
    """Gaussian kernels of random groups of features, (s, n, n), and labels."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 6))
    y = np.sign(X[:, 0] + X[:, 1] * X[:, 2] + 0.3 * rng.standard_normal(n))
    rates = rng.random((s, 6)) * (rng.random((s, 6)) < 0.4)
    D = (X[:, None] - X[None]) ** 2
    return np.exp(-np.einsum("ijd,sd->sij", D, rates)), y


def run(Ks, y, machine, weights=Simplex(), tells=True, **rules):  # noqa: B008 (immutable)
    store = NumberedStore(Ks)
    Y = y.reshape(len(y), -1)
    result = generate(store, NumberedOracle(Ks, tells), machine, weights, Y, Rules(**rules))
    return result, store


@pytest.mark.parametrize(
    "machine", [SVM(1.0), SVM(10.0), SVM(1.0, fit_intercept=False), NuSVM(0.5), Ridge(1.0)], ids=repr
)
def test_working_set_reaches_the_optimum_of_all(machine):
    """Generated one after the other, the kernels reach the value that a conic solver finds with all of them."""
    Ks, y = many_kernels()
    result, store = run(Ks, y, machine, tol=1e-5, n_price=2)
    expected = optimum(Simplex(), machine, Ks, y).value
    assert result.certified and result.converged
    assert result.upper == pytest.approx(expected, rel=2e-5)
    assert result.lower <= expected + 1e-7 * abs(expected)
    assert store.added < len(Ks) + 10


@pytest.mark.parametrize("C", [0.5, 1.0, 10.0])
def test_bounds(C):
    """Upper bounds never rise, lower bounds stay below, and both enclose the optimum in every round."""
    Ks, y = many_kernels(seed=1)
    whole = solve("newton", Simplex(), SVM(C), Ks, y, tol=1e-8)
    rows = run(Ks, y, SVM(C), tol=1e-6, n_price=1)[0].history
    assert np.all(np.diff(rows["upper"]) <= 0)
    assert np.all(np.diff(rows["lower"]) >= 0)
    assert np.all(rows["lower"] <= whole.upper * (1 + 1e-9))
    assert np.all(rows["upper"] >= whole.lower * (1 - 1e-9))
    assert rows["gap"][-1] <= 1e-6
    assert len(rows) > 1


def test_conditions_of_optimality():
    """Energies of kernels in use are equal, those of all others are not larger; weights sum to one."""
    Ks, y = many_kernels(seed=2)
    result, store = run(Ks, y, SVM(1.0), tol=1e-6)
    best = result.saddle.best
    h = np.array([0.5 * float(best.solution.coef[:, 0] @ K @ best.solution.coef[:, 0]) for K in Ks])
    used = best.weights > 1e-4
    level = best.weights @ best.h
    np.testing.assert_allclose(best.h[used], level, rtol=1e-3)
    assert h.max() <= level * (1 + 1e-4)
    assert best.weights.sum() == pytest.approx(1.0)
    assert result.upper == pytest.approx(best.solution.linear - level, rel=1e-4)
    assert store.used == result.columns


def test_same_as_a_solver_on_all_kernels():
    Ks, y = binary()
    whole = solve("newton", Simplex(), SVM(1.0), Ks, y, tol=1e-7)
    result, _ = run(Ks, y, SVM(1.0), tol=1e-7, n_price=1)
    assert result.upper == pytest.approx(whole.upper, rel=1e-6)


def test_columns_without_weight_are_removed():
    Ks, y = many_kernels(seed=3)
    result, store = run(Ks, y, SVM(10.0), tol=1e-6, n_price=5)
    rows = result.history
    assert store.added == rows["generated"][-1] > rows["kernels"][-1]
    assert len(store.used) == rows["kernels"][-1]


def test_without_a_bound_there_is_no_certificate():
    Ks, y = many_kernels()
    result, _ = run(Ks, y, SVM(1.0), tells=False, tol=1e-4)
    assert result.converged and not result.certified
    assert result.gap <= 1e-4  # over all that was found


def test_most_columns():
    Ks, y = many_kernels()
    result, store = run(Ks, y, SVM(10.0), tol=1e-8, n_price=1, max_columns=4)
    assert store.added == 4 and not result.converged
    assert result.saddle.gap <= 1e-8  # those there are have been weighed as well as asked
    assert np.all(result.history["lower"] <= result.upper)


def test_initial_columns_and_known_solution():
    """From the optimum of some kernels on, the value can only become better."""
    Ks, y = many_kernels(seed=4)
    part = solve("newton", Simplex(), SVM(1.0), Ks[:8], y, tol=1e-7)
    store = NumberedStore(Ks)
    rules = Rules(tol=1e-5)
    result = generate(
        store, NumberedOracle(Ks), SVM(1.0), Simplex(), y[:, None], rules, initial=np.flatnonzero(part.best.weights)
    )
    assert result.upper <= part.upper * (1 + 1e-6)


def test_several_tasks_share_columns():
    Ks, y = many_kernels()
    rng = np.random.default_rng(0)
    Y = np.column_stack([y, np.where(rng.random(len(y)) < 0.4, 1.0, -1.0)])
    result, _ = run(Ks, Y, SVM(1.0), tol=1e-5)
    assert result.upper == pytest.approx(optimum(Simplex(), SVM(1.0), Ks, Y).value, rel=2e-5)


# --- weight sets ------------------------------------------------------------------------------------------------------


def test_which_sets_have_an_optimum_over_endless_columns():
    assert has_limit(Simplex()) and has_limit(LpBall(1.0)) and has_limit(TikhonovLp(1.0, 2.0))
    assert not any(map(has_limit, (LpBall(2.0), LpBall(np.inf), Entropy(1.0), ElasticNetBall(0.5), TikhonovLp(2.0))))
    assert has_limit(GroupSparse(3), 3)
    for settings in ({"theta": 0.3}, {"c_theta": 1.2}, {"c_theta": 50.0}, {"q": 2.0}):
        assert not has_limit(GroupSparse(3, **settings), 3)


@pytest.mark.parametrize("weights", [LpBall(1.0), TikhonovLp(1.0, 5.0)], ids=repr)
def test_other_sets_with_an_optimum(weights):
    Ks, y = many_kernels()
    result, _ = run(Ks, y, SVM(1.0), weights, tol=1e-4)
    assert result.certified and result.converged
    assert result.upper == pytest.approx(optimum(weights, SVM(1.0), Ks, y).value, rel=2e-4)


@pytest.mark.parametrize("weights", [LpBall(2.0), LpBall(4.0), ElasticNetBall(0.5), Entropy(1.0)], ids=repr)
def test_sets_without_one_stop_when_little_is_gained(weights):
    Ks, y = many_kernels()
    result, store = run(Ks, y, SVM(1.0), weights, tol=1e-2, max_columns=15)
    assert not result.certified
    assert result.converged or store.added == 15
    assert result.saddle.gap <= 1e-2
    assert np.all(np.diff(result.history["upper"]) <= 0)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_cap_that_falls_forgets_older_bounds(seed):
    """The cap is 1.2 over the number of columns: a new one may make the best value worse, which is then reported."""
    Ks, y = many_kernels(seed=seed)
    rules = {"tol": 1e-5, "n_price": 1, "max_columns": 8, "violation": 0.0, "removes": False}
    result, store = run(Ks, y, SVM(1.0), GroupSparse(1, c_theta=1.2), **rules)
    last = CappedSimplex(theta=1.2 / len(store.used))
    assert result.upper == pytest.approx(optimum(last, SVM(1.0), Ks[store.used], y).value, rel=2e-5)
    upper = result.history["upper"]
    assert np.any(upper[1:] > 1.005 * upper[:-1])


@pytest.mark.parametrize("weights", [Average(), Best(), Grouped((0, 0, 1))], ids=repr)
def test_sets_about_given_kernels_are_refused(weights):
    with pytest.raises(ValueError, match="generated one after the other"):
        check_weights(weights)


def test_copies_of_a_kernel_change_l2_but_not_l1():
    """Why l2 has no limit: the values of the books fall without end as a kernel is repeated."""
    Ks, y = many_kernels()
    l1, l2 = [], []
    for copies in (1, 4, 16):
        stack = np.repeat(Ks[:1], copies, axis=0)
        l1.append(solve("newton", Simplex(), SVM(1.0), stack, y, tol=1e-6).upper)
        l2.append(solve("newton", LpBall(2.0), SVM(1.0), stack, y, tol=1e-6).upper)
    np.testing.assert_allclose(l1, l1[0], rtol=1e-5)
    assert l2[0] > 1.1 * l2[1] > 1.21 * l2[2]
