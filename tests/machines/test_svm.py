"""Support vector machines against scikit-learn, a conic solver and their own definitions."""

from __future__ import annotations

import numpy as np
import pytest
from conic import hinge_primal, optimum
from numpy.typing import NDArray
from problems import binary, gaussian
from sklearn.svm import SVC, NuSVC

from kernelweave.machines import SVM, NuSVM, Solution
from kernelweave.machines.svm import HingeMachine
from kernelweave.weights import Fixed


def problem(n: int = 50, seed: int = 0) -> tuple[NDArray, NDArray]:
    """One kernel with overlapping classes, so that some duals are at C, some free and some zero."""
    Ks, y = binary(n, seed)
    return 0.7 * Ks[1] + 0.3 * Ks[2], y


def primal(machine: HingeMachine, K: NDArray, y: NDArray, coef: NDArray, intercept: float) -> float:
    """The primal objective as it is written, at f = K coef and this intercept."""
    f = K @ coef
    margins = y * (f + intercept)
    if isinstance(machine, SVM):
        return 0.5 * coef @ f + machine._costs(y) @ np.maximum(0, 1 - margins)
    # nu-form: the best rho is a margin (the objective is piecewise linear in it)
    costs = 1 / (machine.nu * len(y))
    return min(0.5 * coef @ f + costs * np.maximum(0, rho - margins).sum() - rho for rho in margins)


def dual(machine: HingeMachine, K: NDArray, y: NDArray, coef: NDArray) -> float:
    return (y @ coef if isinstance(machine, SVM) else 0.0) - 0.5 * coef @ K @ coef


def distance_from_optimum(solution: Solution, K: NDArray) -> float:
    """How far a value f(x_i) can be from the optimal one: 1/2 |f - f*|^2 is at most the gap."""
    return float(np.sqrt(2 * max(solution.gap, 0.0) * K.diagonal().max())) + 1e-9


HINGE = {
    "bias": SVM(2.0),
    "no bias": SVM(2.0, fit_intercept=False),
    "sample weights": SVM(2.0, sample_weight=np.linspace(0, 3, 50)),
    "class weights": SVM(2.0, class_weight={-1: 0.3, 1: 2.0}),
    "balanced": SVM(2.0, class_weight="balanced", fit_intercept=False),
    "nu": NuSVM(0.4),
}
each_machine = pytest.mark.parametrize("machine", HINGE.values(), ids=HINGE)


@pytest.mark.parametrize("C", [0.2, 1.0, 100.0])
@pytest.mark.parametrize("weighting", ["none", "samples", "classes", "balanced"])
def test_agrees_with_sklearn_svc(C: float, weighting: str) -> None:
    K, y = problem()
    weight = np.linspace(0.2, 3, len(y)) if weighting == "samples" else None
    classes = {"classes": {-1: 0.3, 1: 2.0}, "balanced": "balanced"}.get(weighting)
    theirs = SVC(C=C, kernel="precomputed", tol=1e-10, class_weight=classes).fit(K, y, sample_weight=weight)
    ours = SVM(C, sample_weight=weight, class_weight=classes).solve(K, y[:, None], accuracy=1e-11)
    coef = np.zeros(len(y))
    coef[theirs.support_] = theirs.dual_coef_[0]
    assert ours.dual == pytest.approx(dual(SVM(C), K, y, coef), rel=1e-8)
    np.testing.assert_allclose(K @ ours.coef[:, 0], K @ coef, atol=2 * distance_from_optimum(ours, K))
    # a free dual makes the intercept unique, but less sharply than the gap: one sample decides it
    cost = np.abs(SVM(C, sample_weight=weight, class_weight=classes)._costs(y))
    assert np.any((np.abs(coef) > 1e-6 * cost) & (np.abs(coef) < (1 - 1e-6) * cost))
    assert ours.intercept[0] == pytest.approx(theirs.intercept_[0], abs=1e-3)
    np.testing.assert_allclose(K @ ours.coef[:, 0] + ours.intercept, theirs.decision_function(K), atol=2e-3)


@pytest.mark.parametrize("nu", [0.1, 0.45, 0.7])
def test_agrees_with_sklearn_nusvc(nu: float) -> None:
    """With nu n / 2 not whole, each class has a dual inside its box, and only then the intercept is unique."""
    K, y = problem()
    assert nu * len(y) / 2 % 1 > 0.1
    theirs = NuSVC(nu=nu, kernel="precomputed", tol=1e-10, max_iter=200_000).fit(K, y)
    ours = NuSVM(nu).solve(K, y[:, None], accuracy=1e-11)
    size = np.abs(theirs.dual_coef_).sum()  # LIBSVM divides by its rho; here the duals sum to one
    coef = np.zeros(len(y))
    coef[theirs.support_] = theirs.dual_coef_[0] / size
    assert ours.dual == pytest.approx(dual(NuSVM(nu), K, y, coef), rel=1e-6)
    np.testing.assert_allclose(K @ ours.coef[:, 0], K @ coef, atol=2 * distance_from_optimum(ours, K) + 1e-6)
    assert ours.intercept[0] == pytest.approx(theirs.intercept_[0] / size, abs=1e-4)
    assert np.abs(ours.coef).sum() == pytest.approx(1.0, abs=1e-12)


def test_an_intercept_that_is_not_unique_is_as_good_as_that_of_sklearn() -> None:
    """nu n / 2 is whole: all duals of a class can be at a bound, and a whole interval of intercepts is optimal."""
    K, y = problem()
    theirs = NuSVC(nu=0.4, kernel="precomputed", tol=1e-10).fit(K, y)
    machine = NuSVM(0.4)
    ours = machine.solve(K, y[:, None], accuracy=1e-11)
    other = theirs.intercept_[0] / np.abs(theirs.dual_coef_).sum()
    value = primal(machine, K, y, ours.coef[:, 0], ours.intercept[0])
    assert value == pytest.approx(primal(machine, K, y, ours.coef[:, 0], other), abs=1e-11)
    assert value == pytest.approx(ours.primal, abs=1e-11)


@pytest.mark.parametrize("nu", [0.1, 0.4, 0.7])
def test_nu_bounds_margin_errors_and_support_vectors(nu: float) -> None:
    K, y = problem()
    solution = NuSVM(nu).solve(K, y[:, None], accuracy=1e-11)
    alpha, margins = np.abs(solution.coef[:, 0]), y * (K @ solution.coef[:, 0] + solution.intercept)
    rho = np.median(margins[(alpha > 1e-9) & (alpha < (1 - 1e-9) / (nu * len(y)))])
    assert np.mean(margins < rho - 1e-7) <= nu <= np.mean(alpha > 0) + 1e-12


@pytest.mark.parametrize("C", [0.2, 1.0, 100.0])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_agrees_with_the_primal_in_feature_space(C: float, fit_intercept: bool) -> None:
    K, y = problem(40)
    machine = SVM(C, fit_intercept=fit_intercept, sample_weight=np.linspace(0.1, 2, 40))
    value, f = hinge_primal(machine, K, y)
    ours = machine.solve(K, y[:, None], accuracy=1e-11)
    assert ours.primal == pytest.approx(value, rel=1e-7)
    np.testing.assert_allclose((K @ ours.coef)[:, 0], f, atol=distance_from_optimum(ours, K) + 1e-4)


@each_machine
@pytest.mark.parametrize("accuracy", [1e-2, 1e-5, 1e-10])
def test_primal_dual_and_gap_are_what_the_definitions_say(machine: HingeMachine, accuracy: float) -> None:
    K, y = problem()
    solution = machine.solve(K, y[:, None], accuracy=accuracy)
    coef = solution.coef[:, 0]
    box = machine.box(y)
    assert np.all((box.lower <= coef) & (coef <= box.upper))
    np.testing.assert_allclose(box.groups @ coef, box.groups @ machine.feasible_start(y), atol=1e-12)
    assert solution.dual == pytest.approx(dual(machine, K, y, coef), abs=1e-11)
    assert solution.primal == pytest.approx(primal(machine, K, y, coef, solution.intercept[0]), abs=1e-11)
    assert solution.quadratic == pytest.approx(0.5 * coef @ K @ coef, abs=1e-11)
    assert 0 <= solution.gap <= max(accuracy * abs(solution.primal), 1e-11)


@each_machine
def test_no_other_intercept_gives_a_smaller_primal(machine: HingeMachine) -> None:
    K, y = problem()
    solution = machine.solve(K, y[:, None], accuracy=1e-2)
    if isinstance(machine, SVM) and not machine.fit_intercept:
        assert solution.intercept[0] == 0.0
        return
    least = min(primal(machine, K, y, solution.coef[:, 0], b) for b in np.linspace(-2, 2, 801))
    assert solution.primal <= least + 1e-11


@each_machine
def test_optimality_conditions(machine: HingeMachine) -> None:
    K, y = problem()
    solution = machine.solve(K, y[:, None], accuracy=1e-12)
    box, coef = machine.box(y), solution.coef[:, 0]
    margins = y * (K @ coef + solution.intercept)
    alpha, cost = np.abs(coef), box.upper - box.lower
    inside = (alpha > 1e-9) & (alpha < cost - 1e-9)
    target = 1.0 if isinstance(machine, SVM) else margins[inside].mean()
    np.testing.assert_allclose(margins[inside], target, atol=1e-4)
    assert np.all(margins[(alpha == 0) & (cost > 0)] >= target - 1e-4)
    assert np.all(margins[(alpha == cost) & (cost > 0)] <= target + 1e-4)


@each_machine
def test_warm_start_from_the_solution_takes_no_step(machine: HingeMachine) -> None:
    K, y = problem()
    first = machine.solve(K, y[:, None], accuracy=1e-8)
    again = machine.solve(K, y[:, None], start=first, accuracy=1e-8)
    assert first.steps > 0 and again.steps == 0
    np.testing.assert_array_equal(again.coef, first.coef)
    assert again.primal == pytest.approx(first.primal, rel=1e-12)


@pytest.mark.parametrize("machine", [SVM(100.0), SVM(2.0, fit_intercept=False), NuSVM(0.4)], ids=repr)
def test_warm_start_from_a_near_kernel_is_shorter(machine: HingeMachine) -> None:
    K, y = problem(300)
    near = machine.solve(K, y[:, None], accuracy=1e-6)
    other = K + 1e-6 * binary(300)[0][0]  # so near that its solution is nearly within the accuracy
    cold = machine.solve(other, y[:, None], accuracy=1e-6)
    warm = machine.solve(other, y[:, None], start=near, accuracy=1e-6)
    assert warm.primal == pytest.approx(cold.primal, rel=2e-6)
    assert warm.steps < cold.steps


@each_machine
@pytest.mark.parametrize("wrong", ["outside the box", "wrong sum"])
def test_infeasible_warm_start_is_ignored(machine: HingeMachine, wrong: str) -> None:
    K, y = problem()
    cold = machine.solve(K, y[:, None], accuracy=1e-8)
    if wrong == "outside the box":
        coef = 100.0 * y[:, None]
    elif len(machine.box(y).groups):
        coef = cold.coef * np.where(y > 0, 0.5, 1.0)[:, None]
    else:
        coef = -cold.coef
    start = Solution(coef, np.zeros(1), 0.0, 0.0, 0.0)
    warm = machine.solve(K, y[:, None], start=start, accuracy=1e-8)
    np.testing.assert_array_equal(warm.coef, cold.coef)
    assert warm.steps == cold.steps


@pytest.mark.parametrize("machine", [HINGE["bias"], HINGE["no bias"], HINGE["balanced"], NuSVM(0.3)], ids=repr)
def test_columns_are_separate_problems(machine: HingeMachine) -> None:
    K, y = problem()
    turn = np.arange(len(y))
    Y = np.stack([y, np.where(turn % 3 == 0, 1.0, -1.0), np.where(turn < 20, -y, y)], axis=1)
    together = machine.solve(K, Y, accuracy=1e-9)
    apart = [machine.solve(K, Y[:, [k]], accuracy=1e-9) for k in range(3)]
    np.testing.assert_array_equal(together.coef, np.hstack([s.coef for s in apart]))
    np.testing.assert_array_equal(together.intercept, np.concatenate([s.intercept for s in apart]))
    for part in ("linear", "loss", "quadratic", "steps"):
        assert getattr(together, part) == pytest.approx(sum(getattr(s, part) for s in apart), rel=1e-12)


@pytest.mark.parametrize("machine", [SVM(2.0), SVM(2.0, fit_intercept=False), NuSVM(0.3)], ids=repr)
def test_many_columns_start_warm_each_from_its_own(machine: HingeMachine) -> None:
    K, y = problem(120)
    rng = np.random.default_rng(0)
    Y = np.where(rng.random((120, 30)) < 0.1, -y[:, None], y[:, None])
    Y[rng.random(Y.shape) < 0.2] = 0.0
    near = machine.solve(K, Y, accuracy=1e-3)
    other = 1.1 * K
    warm = machine.solve(other, Y, start=near, accuracy=1e-3)
    cold = machine.solve(other, Y, accuracy=1e-3)
    assert 0 <= warm.gap <= 1e-3 * abs(warm.primal)
    assert warm.primal == pytest.approx(cold.primal, rel=2e-3)
    assert warm.steps < 0.5 * cold.steps
    assert warm.quadratic == pytest.approx(0.5 * np.sum(warm.coef * (other @ warm.coef)), rel=1e-9)
    near.coef[:, 3] = 100.0  # not feasible: that column alone begins anew
    again = machine.solve(other, Y, start=near, accuracy=1e-3)
    np.testing.assert_array_equal(again.coef[:, 3], cold.coef[:, 3])
    np.testing.assert_array_equal(np.delete(again.coef, 3, axis=1), np.delete(warm.coef, 3, axis=1))


@each_machine
def test_single_precision_kernel(machine: HingeMachine) -> None:
    K, y = problem()
    K32 = K.astype(np.float32)
    exact = machine.solve(K32.astype(np.float64), y[:, None], accuracy=1e-9)
    ours = machine.solve(K32, y[:, None], accuracy=1e-6)
    assert ours.coef.dtype == np.float64
    assert ours.primal == pytest.approx(exact.primal, rel=2e-6)
    # sums of the gradient are in double precision: the books hold for the kernel as it is stored
    assert ours.dual == pytest.approx(dual(machine, K32.astype(np.float64), y, ours.coef[:, 0]), rel=1e-9)


def test_samples_of_weight_zero_do_not_count() -> None:
    K, y = problem()
    kept = np.arange(len(y)) % 3 != 0
    whole = SVM(2.0, sample_weight=kept.astype(float)).solve(K, y[:, None], accuracy=1e-11)
    part = SVM(2.0).solve(K[np.ix_(kept, kept)], y[kept, None], accuracy=1e-11)
    assert np.all(whole.coef[~kept] == 0)
    np.testing.assert_allclose(whole.coef[kept], part.coef, atol=1e-5)
    assert whole.primal == pytest.approx(part.primal, rel=1e-9)


@each_machine
def test_targets_never_judged_leave_their_samples_out(machine: HingeMachine) -> None:
    K, y = problem()
    kept = np.flatnonzero(np.arange(len(y)) % 3)
    judged = np.where(np.isin(np.arange(len(y)), kept), y, 0.0)
    whole = machine.solve(K, judged[:, None], accuracy=1e-11)
    part = machine.restrict(kept).solve(K[np.ix_(kept, kept)], y[kept, None], accuracy=1e-11)
    assert np.all(whole.coef[judged == 0] == 0)
    np.testing.assert_allclose(whole.coef[kept], part.coef, atol=1e-5)
    assert whole.primal == pytest.approx(part.primal, rel=1e-9)
    assert whole.intercept[0] == pytest.approx(part.intercept[0], abs=1e-6)
    again = machine.solve(K, judged[:, None], start=whole, accuracy=1e-11)
    assert again.steps == 0


@each_machine
def test_a_column_that_was_never_judged_is_zero(machine: HingeMachine) -> None:
    K, y = problem()
    solution = machine.solve(K, np.stack([np.zeros(len(y)), y], axis=1), accuracy=1e-9)
    alone = machine.solve(K, y[:, None], accuracy=1e-9)
    assert np.all(solution.coef[:, 0] == 0) and solution.intercept[0] == 0
    np.testing.assert_array_equal(solution.coef[:, 1:], alone.coef)
    assert (solution.primal, solution.dual) == (alone.primal, alone.dual)


def test_restriction_cuts_the_sample_weights() -> None:
    K, y = problem()
    kept = np.flatnonzero(np.arange(len(y)) % 2)
    machine = SVM(2.0, sample_weight=np.linspace(0.1, 3, len(y)))
    part = machine.restrict(kept)
    np.testing.assert_array_equal(part.sample_weight, machine.sample_weight[kept])
    assert part.solve(K[np.ix_(kept, kept)], y[kept, None]).coef.shape == (len(kept), 1)
    assert NuSVM(0.3).restrict(kept) == NuSVM(0.3)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_duplicated_samples_count_twice(fit_intercept: bool) -> None:
    K, y = problem()
    twice = np.concatenate([np.arange(len(y)), np.arange(10)])
    duplicated = SVM(2.0, fit_intercept=fit_intercept).solve(K[np.ix_(twice, twice)], y[twice, None], accuracy=1e-11)
    weight = np.where(np.arange(len(y)) < 10, 2.0, 1.0)
    weighted = SVM(2.0, fit_intercept=fit_intercept, sample_weight=weight).solve(K, y[:, None], accuracy=1e-11)
    assert duplicated.primal == pytest.approx(weighted.primal, rel=1e-9)
    merged = duplicated.coef[: len(y)].copy()
    merged[:10] += duplicated.coef[len(y) :]
    np.testing.assert_allclose(merged, weighted.coef, atol=1e-5)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_one_class_only(sign: float, fit_intercept: bool) -> None:
    K, _ = problem()
    y = np.full(len(K), sign)
    machine = SVM(2.0, fit_intercept=fit_intercept)
    solution = machine.solve(K, y[:, None], accuracy=1e-9)
    assert primal(machine, K, y, solution.coef[:, 0], solution.intercept[0]) == pytest.approx(
        solution.primal, abs=1e-10
    )
    if fit_intercept:
        assert solution.primal == solution.dual == 0.0
        assert np.all(solution.coef == 0)
        assert sign * solution.intercept[0] >= 1.0
    else:
        assert solution.primal == pytest.approx(hinge_primal(machine, K, y)[0], rel=1e-7)


def test_one_sample() -> None:
    K, y = np.array([[2.0]]), np.array([[1.0]])
    assert SVM(1.0).solve(K, y).primal == 0.0
    free = SVM(1.0, fit_intercept=False).solve(K, y, accuracy=1e-12)
    assert free.coef[0, 0] == pytest.approx(0.5)
    assert free.primal == pytest.approx(0.25)
    assert SVM(0.1, fit_intercept=False).solve(K, y, accuracy=1e-12).coef[0, 0] == 0.1


@pytest.mark.parametrize("K", [np.zeros((9, 9)), np.full((9, 9), 3.0)], ids=["zero", "constant"])
def test_kernels_that_say_nothing(K: NDArray) -> None:
    """Without information the best function is a constant: with a bias it errs on the smaller class."""
    y = np.array([1.0, 1, 1, -1, -1, -1, -1, -1, -1])
    solution = SVM(0.5).solve(K, y[:, None], accuracy=1e-9)
    assert solution.primal == pytest.approx(2 * 0.5 * 3)
    assert solution.gap <= 1e-9 * solution.primal
    alone = SVM(0.5, fit_intercept=False).solve(K, y[:, None], accuracy=1e-9)
    assert alone.primal == pytest.approx(hinge_primal(SVM(0.5, fit_intercept=False), K, y)[0], rel=1e-6)
    nu = NuSVM(0.5).solve(K, y[:, None])
    assert nu.primal == pytest.approx(0.0, abs=1e-12) and nu.dual == pytest.approx(0.0, abs=1e-12)


def test_separable_data_at_huge_cost_is_the_hard_margin() -> None:
    X = np.array([[0.0], [1.0], [3.0], [4.0]])
    y = np.array([-1.0, -1.0, 1.0, 1.0])
    solution = SVM(1e6).solve(X @ X.T, y[:, None], accuracy=1e-10)
    assert (X.T @ solution.coef).item() == pytest.approx(1.0, rel=1e-6)
    assert solution.intercept[0] == pytest.approx(-2.0, rel=1e-6)


def test_kernel_scale_and_cost_trade_off() -> None:
    K, y = problem()
    scaled = SVM(2.0).solve(5 * K, y[:, None], accuracy=1e-11)
    costly = SVM(10.0).solve(K, y[:, None], accuracy=1e-11)
    np.testing.assert_allclose(5 * scaled.coef, costly.coef, atol=1e-4)
    assert 5 * scaled.primal == pytest.approx(costly.primal, rel=1e-9)
    np.testing.assert_allclose(scaled.intercept, costly.intercept, atol=1e-5)


@pytest.mark.parametrize("nu", [0.2, 0.6])
def test_nu_svm_agrees_with_the_conic_solver(nu: float) -> None:
    K, y = problem(40)
    expected = optimum(Fixed([1.0]), NuSVM(nu), K[None], y).value
    assert NuSVM(nu).solve(K, y[:, None], accuracy=1e-9).primal == pytest.approx(expected, rel=1e-6)


def test_nu_svm_that_cannot_separate_stops() -> None:
    """The reduced convex hulls meet: the optimum is zero, where no relative gap can be small."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((40, 1))
    y = np.where(rng.random(40) < 0.5, 1.0, -1.0)
    solution = NuSVM(0.9 * 2 * min(np.mean(y > 0), np.mean(y < 0))).solve(x @ x.T, y[:, None], accuracy=1e-6)
    assert np.isfinite(solution.coef).all()
    assert -1e-6 <= solution.dual <= 0 <= solution.primal + 1e-6


@pytest.mark.parametrize("C", [0.0, -1.0, np.nan])
def test_refuses_costs_that_are_not_positive(C: float) -> None:
    with pytest.raises(ValueError, match="C must be positive and finite, got"):
        SVM(C)


@pytest.mark.parametrize("nu", [0.0, -0.1, 1.5, np.nan])
def test_refuses_nu_outside_its_interval(nu: float) -> None:
    with pytest.raises(ValueError, match=r"nu must lie in \(0, 1\]"):
        NuSVM(nu)


def test_refuses_an_infeasible_nu_and_says_what_would_do() -> None:
    y = np.array([1.0, 1.0] + [-1.0] * 8)
    K = gaussian(np.random.default_rng(0).standard_normal((10, 2)))
    with pytest.raises(ValueError, match=r"nu=0.5 is infeasible: the smaller class has 2 of 10.*at most 0.4"):
        NuSVM(0.5).solve(K, y[:, None])
    assert NuSVM(0.4).solve(K, y[:, None]).gap >= 0
    with pytest.raises(ValueError, match="at most 0"):
        NuSVM(0.1).solve(K, np.ones((10, 1)))


def test_refuses_unknown_class_weights() -> None:
    K, y = problem()
    with pytest.raises(ValueError, match="class_weight must be a mapping, 'balanced' or None, got 'equal'"):
        SVM(class_weight="equal").solve(K, y[:, None])
