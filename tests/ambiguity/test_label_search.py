"""The oracle against enumeration of all labellings, the factorised bank against explicit kernels, and the loop.

The value of the master problem itself is tested in test_input_output.py, against a conic solver.
"""

from __future__ import annotations

import numpy as np
import pytest
from labelled_problems import all_labelings, bags, bank, kernels, scenarios

from kernelweave.ambiguity.label_search import Ascent, LabelOracle, enumerate_bags
from kernelweave.ambiguity.labelings import Clustering, InstanceBags, SemiSupervised
from kernelweave.generation import Proposal, Rules, generate
from kernelweave.generation.labelled_bank import InputKernels, LabelledBank, LabelledStore
from kernelweave.machines.simplex import SimplexSVM
from kernelweave.solvers import Saddle, Stopping, run
from kernelweave.weights import CappedSimplex, GroupSparse, LpBall

NAMES = [name for name in scenarios() if name != "supervised"]


def duals(scenario, seed, share=0.8):
    """Random duals of the units, some of them zero, (n_units, 1)."""
    rng = np.random.default_rng(seed)
    a = rng.exponential(size=len(scenario.shares)) * (rng.random(len(scenario.shares)) < share)
    a[0] = 1.0
    return (a / a.sum())[:, None]


def energies(Ks, scenario, a, every):
    """1/2 (a o y)' K (a o y) of every kernel and labelling, (s, number)."""
    of_item = a[:, 0] if scenario.unit_of is None else a[scenario.unit_of, 0]
    V = every * of_item
    return 0.5 * np.einsum("kti,ti->kt", V @ Ks, V)


@pytest.mark.parametrize("name", NAMES)
def test_nearly_always_the_best_of_all(name):
    """Fourteen items, kernel by kernel: as good as enumeration nearly always, never much worse."""
    ratios = []
    for seed in range(12):
        scenario, Ks = scenarios(14)[name], kernels(14, seed)
        inputs = InputKernels(bank(Ks), scenario.unit_of)
        a = duals(scenario, seed)
        found = LabelOracle(inputs, scenario).propose(a, [], 1, 0.0, 0.0)
        assert all(scenario.is_feasible(y) for y in found.columns[0])
        best = energies(Ks, scenario, a, all_labelings(scenario)).max(axis=1)
        ratios += list(found.energies[0] / best)
    assert np.max(ratios) <= 1 + 1e-9
    assert np.mean(np.array(ratios) > 1 - 1e-9) >= 0.9
    assert np.min(ratios) >= 0.95


@pytest.mark.parametrize("name", NAMES)
def test_shared_labels(name):
    """One labelling for all kernels: the norm of the energies, against enumeration."""
    ratios = []
    for seed in range(12):
        scenario, Ks = scenarios(14)[name], kernels(14, seed)
        inputs = InputKernels(bank(Ks), scenario.unit_of)
        a = duals(scenario, seed)
        found = LabelOracle(inputs, scenario, shared=True).propose(a, [], 1, 0.0, 0.0)
        signs = found.columns[0]
        assert np.all(signs == signs[0]) and scenario.is_feasible(signs[0])
        best = np.linalg.norm(energies(Ks, scenario, a, all_labelings(scenario)), axis=0).max()
        ratios.append(np.linalg.norm(found.energies[0]) / best)
    assert np.max(ratios) <= 1 + 1e-9
    assert np.mean(np.array(ratios) > 1 - 1e-9) >= 0.8
    assert np.min(ratios) >= 0.95


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shared", [False, True])
def test_never_worse_than_what_is_known(name, shared):
    scenario, Ks = scenarios(14)[name], kernels(14, 3)
    inputs = InputKernels(bank(Ks), scenario.unit_of)
    a = duals(scenario, 7)
    rng = np.random.default_rng(0)
    known = [np.tile(scenario.linear_argmax(rng.standard_normal(14)), (3, 1)) for _ in range(30)]
    pool = energies(Ks, scenario, a, np.stack([y[0] for y in known]))
    found = LabelOracle(inputs, scenario, shared, n_starts=1).propose(a, known, 1, 0.0, 0.0)
    if found.columns and shared:
        assert np.linalg.norm(found.energies[0]) >= np.linalg.norm(pool, axis=0).max() * (1 - 1e-12)
    elif found.columns:
        assert np.all(found.energies[0] >= pool.max(axis=1) * (1 - 1e-12))
    else:
        assert found.bound == np.inf


def test_a_known_candidate_is_not_proposed_again():
    scenario, Ks = scenarios(12)["semi"], kernels(12)
    oracle, a = LabelOracle(InputKernels(bank(Ks)), scenario), duals(scenario, 0)
    first = oracle.propose(a, [], 1, 0.0, 0.0).columns
    assert oracle.propose(a, first, 1, 0.0, 0.0).columns == []


def test_nothing_to_search_where_labels_are_certain():
    scenario, Ks = scenarios(10)["supervised"], kernels(10)
    y = np.tile(scenario.known, (3, 1))
    answer = LabelOracle(InputKernels(bank(Ks)), scenario).propose(duals(scenario, 0), [y], 1, 0.7, 0.0)
    assert answer.columns == [] and answer.bound == 0.7


def test_more_starts_are_needed_than_one():
    """What a single random start reaches is often worse: several eigenvectors are not for show."""
    worse = 0
    for seed in range(12):
        scenario, Ks = Clustering(14, 2), kernels(14, seed)[2:]
        inputs, a = InputKernels(bank(Ks)), duals(scenario, seed)
        ascent = Ascent(inputs, np.array([0]), a[:, 0], scenario, 2.0)
        start = scenario.linear_argmax(np.random.default_rng(seed).standard_normal((1, 14)))
        single = ascent.run(start)[1][0]
        worse += single < LabelOracle(inputs, scenario).propose(a, [], 1, 0.0, 0.0).energies[0, 0] * (1 - 1e-9)
    assert worse >= 3


@pytest.mark.parametrize("name", NAMES)
def test_ascent_never_descends(name):
    scenario, Ks = scenarios(14)[name], kernels(14, 5)
    a = duals(scenario, 5)
    of_item = a[:, 0] if scenario.unit_of is None else a[scenario.unit_of, 0]
    ascent = Ascent(InputKernels(bank(Ks), scenario.unit_of), np.arange(3), of_item, scenario, 2.0)
    start = scenario.linear_argmax(np.random.default_rng(0).standard_normal((1, 14)))
    before = ascent.values(start)[0][0]
    _, reached = ascent.run(start.copy())
    assert np.linalg.norm(reached) >= before


def test_enumeration_of_bags_ends_where_no_bag_can_improve():
    for seed in range(5):
        scenario, Ks = InstanceBags(bags([3, 2, 4, 2, 3]), [1, -1, 1, -1, 1]), kernels(14, seed, 1)
        inputs, a = InputKernels(bank(Ks)), duals(InstanceBags(bags([3, 2, 4, 2, 3]), [1, -1, 1, -1, 1]), seed)
        ascent = Ascent(inputs, np.array([0]), a[:, 0], scenario, 2.0)
        signs = enumerate_bags(ascent, scenario.initial(Ks[0]), scenario)
        value = ascent.values(signs[None])[0][0]
        every = all_labelings(scenario)
        for members in scenario.positive:
            rest = np.setdiff1d(np.arange(14), members)
            same = every[np.all(every[:, rest] == signs[rest], axis=1)]
            assert energies(Ks, scenario, a, same).max() <= value * (1 + 1e-9)
        by_both = LabelOracle(inputs, scenario, enumerate_bags=True).propose(a, [], 1, 0.0, 0.0).energies[0, 0]
        assert by_both >= LabelOracle(inputs, scenario).propose(a, [], 1, 0.0, 0.0).energies[0, 0] * (1 - 1e-12)


@pytest.mark.parametrize("shared", [False, True])
def test_opposite_clusterings_are_turned_to_agree(shared):
    """Those of other kernels with that of the first kernel, and all with the first candidate there is."""
    scenario = Clustering(14, 2)
    for seed in range(8):
        oracle, a = LabelOracle(InputKernels(bank(kernels(14, seed))), scenario, shared), duals(scenario, seed)
        first = oracle.propose(a, [], 1, 0.0, 0.0).columns[0]
        assert np.all(first @ first[0].astype(float) >= 0)
        for known in (first, -first):
            reference = known.copy()
            reference[:, [0, 1]] *= -1  # not what will be found
            found = oracle.propose(a, [reference], 1, 0.0, 0.0).columns[0]
            assert np.all(found @ reference[0].astype(float) >= 0)


def test_signs_of_a_clustering_do_not_matter():
    """y and -y are the same kernel."""
    Ks = kernels(9)
    y = np.sign(np.random.default_rng(0).standard_normal((1, 3, 9))).astype(np.int8)
    inputs = InputKernels(bank(Ks))
    plus, minus = LabelledBank(inputs, y), LabelledBank(inputs, -y)
    b = np.array([0.2, 0.5, 0.3])
    np.testing.assert_array_equal(plus.combine(b), minus.combine(b))


# -- the bank ----------------------------------------------------------------------------------------------------------


def explicit(Ks, scenario, signs):
    """Every input-output kernel as a matrix, (T * s, n_units, n_units), candidate after candidate."""
    n_units = len(scenario.shares)
    B = np.zeros((n_units, scenario.n_items))
    B[np.arange(n_units) if scenario.unit_of is None else scenario.unit_of, np.arange(scenario.n_items)] = 1
    return np.stack([B @ (K * np.outer(y, y)) @ B.T for candidate in signs for K, y in zip(Ks, candidate, strict=True)])


@pytest.mark.parametrize("name", ["semi", "instances", "representatives"])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 2e-6)])
def test_factorised_bank_is_the_explicit_one(name, dtype, tolerance):
    scenario, Ks = scenarios(12)[name], kernels(12, 1)
    rng = np.random.default_rng(0)
    signs = scenario.linear_argmax(rng.standard_normal((5, 3, 12)))
    labelled = LabelledBank(InputKernels(bank(Ks, dtype), scenario.unit_of), signs)
    every = explicit(Ks, scenario, signs)
    b = rng.exponential(size=15) * (rng.random(15) < 0.7)
    a = duals(scenario, 2)
    K = labelled.combine(b)
    assert K.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(K, K.T)
    np.testing.assert_allclose(K, np.tensordot(b, every, 1), atol=tolerance * 10)
    np.testing.assert_allclose(
        labelled.quadratics(a), 0.5 * np.einsum("i,jik,k->j", a[:, 0], every, a[:, 0]), atol=tolerance
    )
    few = np.array([0, 3])
    np.testing.assert_allclose(labelled.products(a[:, 0], few), (every @ a[:, 0])[:, few], atol=tolerance)
    np.testing.assert_allclose(labelled.rows(few), every[:, few], atol=tolerance * 10)
    np.testing.assert_allclose(labelled.diagonals(), np.einsum("jii->ji", every), atol=tolerance * 10)
    part = labelled.select([4, 1, 7])
    np.testing.assert_allclose(part.quadratics(a), labelled.quadratics(a)[[4, 1, 7]], rtol=1e-12)
    np.testing.assert_allclose(
        part.combine([1.0, 2.0, 3.0]), np.tensordot([1.0, 2, 3], every[[4, 1, 7]], 1), atol=10 * tolerance
    )
    some = np.array([3, 0, 2])
    np.testing.assert_allclose(labelled.restrict(some).combine(b), K[np.ix_(some, some)], atol=10 * tolerance)
    np.testing.assert_allclose(part.restrict(some).diagonals(), every[[4, 1, 7]][:, some, some], atol=10 * tolerance)


def test_blocks_of_rows_join_without_seams():
    n = 300
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 4))
    Ks = np.stack([X @ X.T, np.exp(-((X[:, None] - X[None]) ** 2).sum(axis=2))])
    signs = rng.choice([-1, 1], size=(3, 2, n)).astype(np.int8)
    b = rng.random(6)
    combined = LabelledBank(InputKernels(bank(Ks)), signs).combine(b)
    scenario = SemiSupervised(np.zeros(n), 0.5)
    np.testing.assert_allclose(combined, np.tensordot(b, explicit(Ks, scenario, signs), 1), atol=1e-10)


def test_store():
    store = LabelledStore(InputKernels(bank(kernels(8))))
    y = np.sign(np.random.default_rng(0).standard_normal((4, 3, 8))).astype(np.int8)
    store.add(list(y[:3]))
    assert store.bank.n_kernels == 9
    store.keep(np.array([True, False, True]))
    store.add([y[3]])
    np.testing.assert_array_equal(store.bank.signs, y[[0, 2, 3]])
    store.add([])
    assert len(store.bank.names) == 9 and "candidate 2" in store.bank.names[-1]


# -- special cases of the problem with given candidates ----------------------------------------------------------------

N, M, T = 20, 3, 6


def candidates(n=N, count=T, seed=0):
    """Random labellings for every kernel, (count, M, n)."""
    return np.random.default_rng(seed).choice([-1, 1], size=(count, M, n)).astype(np.int8)


def costs(n=N, seed=0):
    return np.random.default_rng(seed).choice([1.0, 30.0], size=n)


def master(Ks, signs, weights, C, tol=1e-7):
    labelled, ones = LabelledBank(InputKernels(bank(Ks)), signs), np.ones((len(C), 1))
    return run("auto", Saddle(labelled, SimplexSVM(C), weights, ones, Stopping(tol, 5000)))


def test_gap_is_never_negative_and_closes():
    saddle = master(kernels(N), candidates(), GroupSparse(M, 0.3), costs(), 1e-7)
    rows = saddle.history
    assert np.all(rows["gap"] >= 0) and np.all(rows["upper"] >= rows["lower"]) and rows["gap"][-1] <= 1e-7
    norms = np.linalg.norm(saddle.best.weights.reshape(T, M), axis=1)
    assert norms.sum() <= 1 + 1e-9 and norms.max() <= 0.3 + 1e-9


@pytest.mark.parametrize(("p", "q"), [(1.0, 1.0), (2.0, 2.0), (1.0, 2.0), (1.5, 3.0)])
def test_other_norms_reach_their_certificate(p, q):
    """The gap is exact for any weight set, so that a small one is proof; the l1 ball is inside all others."""
    Ks, signs, C = kernels(N), candidates(), costs()
    saddle = master(Ks, signs, GroupSparse(M, p=p, q=q), C, 1e-3)
    assert saddle.converged
    assert saddle.lower <= master(Ks, signs, GroupSparse(M, p=1.0), C, 1e-3).upper


def test_conditions_of_optimality():
    """Norms of energies: above a threshold at the cap, below it without weight; inside a group weights go with them."""
    saddle = master(kernels(N), candidates(), GroupSparse(M, 0.3), costs(), 1e-8)
    h = saddle.best.h.reshape(T, M)
    D = saddle.best.weights.reshape(T, M)
    energies, sizes = np.linalg.norm(h, axis=1), np.linalg.norm(D, axis=1)
    at_cap, without = sizes > 0.3 - 1e-5, sizes < 1e-5
    between = ~at_cap & ~without
    assert at_cap.any() and without.any()
    threshold = energies[between].mean() if between.any() else energies[at_cap].min()
    assert np.all(energies[at_cap] >= threshold * (1 - 1e-3))
    assert np.all(energies[without] <= threshold * (1 + 1e-3))
    np.testing.assert_allclose(energies[between], threshold, rtol=1e-3)
    used = ~without
    np.testing.assert_allclose(D[used] / sizes[used, None], h[used] / energies[used, None], atol=2e-3)


def test_a_large_cap_is_a_hard_margin():
    Ks, signs, C = kernels(N), candidates(), costs()
    hard = master(Ks, signs, GroupSparse(M), C).upper
    assert master(Ks, signs, GroupSparse(M, theta=2.0), C).upper == pytest.approx(hard, rel=1e-6)
    assert master(Ks, signs, GroupSparse(M, c_theta=T), C).upper == pytest.approx(hard, rel=1e-6)


def test_one_candidate_is_l2_mkl():
    """Weights go with the energies, and the problem is that of an l2 ball over the labelled kernels."""
    Ks, signs, C = kernels(N), candidates(count=1), costs()
    saddle = master(Ks, signs, GroupSparse(M), C, 1e-9)
    h = saddle.best.h
    np.testing.assert_allclose(saddle.best.weights, h / np.linalg.norm(h), atol=1e-4)
    labelled = np.stack([K * np.outer(y, y) for K, y in zip(Ks, signs[0], strict=True)])
    other = run("auto", Saddle(bank(labelled), SimplexSVM(C), LpBall(2.0), np.ones((N, 1)), Stopping(1e-9)))
    assert saddle.upper == pytest.approx(other.upper, rel=1e-8)


@pytest.mark.parametrize("theta", [1.0, 0.4, 1 / T])
def test_one_kernel_is_soft_margin_mkl_over_candidates(theta):
    Ks, signs, C = kernels(N), candidates()[:, :1], costs()
    saddle = master(Ks[:1], signs, GroupSparse(1, theta), C, 1e-8)
    labelled = np.stack([Ks[0] * np.outer(y, y) for y in signs[:, 0]])
    weights = CappedSimplex(theta=theta)
    other = run("auto", Saddle(bank(labelled), SimplexSVM(C), weights, np.ones((N, 1)), Stopping(1e-8)))
    assert saddle.upper == pytest.approx(other.upper, rel=1e-7)


def test_caps_of_the_mean_share_leave_no_choice():
    saddle = master(kernels(N), candidates(), GroupSparse(M, 1 / T), costs())
    np.testing.assert_allclose(np.linalg.norm(saddle.best.weights.reshape(T, M), axis=1), 1 / T, rtol=1e-6)


def test_a_candidate_given_twice_changes_nothing():
    Ks, signs, C = kernels(N), candidates(), costs()
    once = master(Ks, signs, GroupSparse(M), C)
    twice = master(Ks, np.concatenate([signs, signs[:2]]), GroupSparse(M), C)
    assert twice.upper == pytest.approx(once.upper, rel=1e-6)


# -- the loop ----------------------------------------------------------------------------------------------------------


class Enumeration:
    """The exact oracle: all labellings of every kernel are looked at, so that its answer is a bound."""

    def __init__(self, inputs, scenario):
        self.inputs, self.every = inputs, all_labelings(scenario)

    def propose(self, V, known, most, level, accuracy):
        v = self.every * V[:, 0]
        h = np.stack([0.5 * np.einsum("ti,ti->t", v @ K, v) for K in self.inputs.values])
        best = h.argmax(axis=1)
        signs = self.every[best]
        energies = h.max(axis=1)
        return Proposal([signs], energies[None], float(np.linalg.norm(energies)))


def grown(Ks, scenario, weights, oracle, **rules):
    inputs = InputKernels(bank(Ks))
    n = scenario.n_items
    start = [np.tile(scenario.initial(Ks.mean(axis=0)), (len(Ks), 1))]
    rules = Rules(n_price=1, **rules)
    store = LabelledStore(inputs)
    result = generate(store, oracle(inputs, scenario), SimplexSVM(1.0), weights, np.ones((n, 1)), rules, start)
    return result, store


def test_hard_margin_with_an_exact_oracle_is_certified():
    """All labellings of all kernels as one problem, or generated: the same value, enclosed from both sides."""
    scenario, Ks = SemiSupervised([1, -1, 0, 0, 0, 0, 0, 0], 0.5), kernels(8)[:2]
    result, _ = grown(Ks, scenario, GroupSparse(2), Enumeration, tol=1e-5)
    every = all_labelings(scenario)
    pairs = np.stack([np.stack([a, b]) for a in every for b in every])
    whole = master(Ks, pairs, GroupSparse(2), np.ones(8), 1e-6)
    assert result.certified and result.converged
    assert result.lower <= whole.upper * (1 - 1e-9) and result.upper >= whole.lower * (1 + 1e-9)
    assert result.upper == pytest.approx(whole.upper, rel=3e-5)
    rows = result.history
    assert np.all(np.diff(rows["upper"]) <= 0) and np.all(np.diff(rows["lower"]) >= 0)


def test_hard_margin_falls_with_every_candidate():
    """The restricted value never rises (it is a bound), and the gap of the loop never becomes negative."""
    scenario, Ks = scenarios(16)["semi"], kernels(16)
    result, store = grown(
        Ks, scenario, GroupSparse(3), LabelOracle, tol=1e-4, max_columns=12, violation=1e-3, removes=False
    )
    rows = result.history
    assert np.all(np.diff(rows["upper"]) <= 1e-12) and np.all(rows["gap"] >= 0)
    assert len(store.bank.signs) == rows["generated"][-1] == rows["kernels"][-1]
    assert not result.certified


def test_a_cap_that_falls_with_the_candidates():
    """theta = c/T: every master is the problem of its own cap, and its bounds are not those of others."""
    scenario, Ks = scenarios(16)["semi"], kernels(16)
    weights = GroupSparse(3, c_theta=1.2)
    result, store = grown(Ks, scenario, weights, LabelOracle, tol=1e-4, max_columns=8, violation=1e-3, removes=False)
    last = master(Ks, store.bank.signs, weights, np.ones(16), 1e-7)
    assert result.upper == pytest.approx(last.upper, rel=2e-4)
    assert result.upper >= last.lower and len(store.bank.signs) > 1
    assert all(scenario.is_feasible(y) for candidate in store.bank.signs for y in candidate)


@pytest.mark.parametrize("name", ["semi", "instances", "representatives", "clustering"])
def test_candidates_are_possible_and_different(name):
    scenario = scenarios(14)[name]
    inputs = InputKernels(bank(kernels(14)), scenario.unit_of)
    start = [np.tile(scenario.initial(kernels(14).mean(axis=0)), (3, 1))]
    store, rules = LabelledStore(inputs), Rules(max_columns=6, n_price=1, violation=1e-3, removes=False)
    oracle, machine = LabelOracle(inputs, scenario), SimplexSVM(scenario.shares)
    generate(store, oracle, machine, GroupSparse(3), np.ones((inputs.n_units, 1)), rules, start)
    signs = store.bank.signs
    assert len(signs) > 1
    assert all(scenario.is_feasible(y) for candidate in signs for y in candidate)
    assert len({candidate.tobytes() for candidate in signs}) == len(signs)
