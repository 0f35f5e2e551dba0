"""The references of label ranking against each other: row by row, by a conic solver from both sides, as published."""

from __future__ import annotations

import numpy as np
import pytest
import ranking_reference as ref
from ranking_reference import Ranking, fixture, labelled

from kernelweave.machines import SVM
from kernelweave.weights import LpBall, Simplex, WeightSet

KINDS = ("narrow", "wide", "pairwise", "group")
#: Scores from the conic solver: its values are good to 1e-8, and scores only to about the root of that.
SCORES = 1e-4


# --- values that were published ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "value", "first_row"),
    [
        ("narrow", 11.481663, (1.021863, 0.571623, -0.615349, -0.978137)),
        ("wide", 17.262950, None),
        ("pairwise", 17.241439, None),
        ("group", 5.890692, (0.952831, 0.349056, -0.650944, -0.650944)),
    ],
)
def test_published_values(kind: str, value: float, first_row: tuple[float, ...] | None) -> None:
    (K, _), Y = fixture()
    problem = Ranking(kind)
    B = ref.rows(problem, K, Y, sweeps=150)
    for found in (
        ref.primal(problem, K, Y, B),
        ref.dual(problem, K, Y, B),
        ref.conic_dual(problem, K, Y).value,
        ref.conic_primal(problem, K, Y).value,
    ):
        assert found == pytest.approx(value, abs=1e-6)
    if first_row is not None:
        np.testing.assert_allclose((K @ B)[0], first_row, atol=1e-6)


def test_published_variants() -> None:
    (K, _), Y = fixture()
    printed = ref.balanced(Ranking("narrow"), K, Y, sweeps=150, half=True)
    assert ref.dual(Ranking("narrow"), K, Y, printed) == pytest.approx(11.360831, abs=1e-6)
    np.testing.assert_allclose((K @ printed)[0], (1.207915, 0.696349, -0.739240, -1.165024), atol=1e-6)
    alone = ref.one_versus_all(K, Y, C=1.0, sweeps=150)
    assert np.sum(Y * alone) - 0.5 * np.sum(alone * (K @ alone)) == pytest.approx(13.349112, abs=1e-6)
    B, Z, values = ref.group_published(K, Y, C=1.0, eta=2.0, sweeps=150)
    assert values[-1] == ref.surrogate(K, 1.0, 2.0, B, Z) == pytest.approx(4.510414, abs=1e-6)
    assert ref.primal(Ranking("group"), K, Y, B) == pytest.approx(6.884554, abs=1e-6)
    assert ref.dual(Ranking("group"), K, Y, B) == pytest.approx(5.247417, abs=1e-6)
    np.testing.assert_allclose((K @ B)[0], (0.967840, 0.203649, -0.427620, -0.743869), atol=1e-6)


def test_published_weights() -> None:
    Ks, Y = fixture()
    saddle = ref.conic_dual(Ranking("narrow"), Ks, Y, Simplex())
    assert saddle.value == pytest.approx(11.195607, abs=1e-6)
    np.testing.assert_allclose(saddle.weights, (0.6632, 0.3368), atol=5e-5)
    np.testing.assert_allclose(2 * saddle.h, 8.6056, atol=5e-5)


# --- optima -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unknown", [0.0, 0.3])
@pytest.mark.parametrize(
    "problem",
    [*(Ranking(kind, C) for kind in KINDS for C in (0.1, 2.0)), Ranking("narrow", 1.0, ridge=np.linspace(0, 2, 9))],
    ids=lambda p: f"{p.kind} {p.C}{'' if np.ndim(p.ridge) == 0 else ' ridge'}",
)
def test_rows_reach_the_conic_optimum_from_below_and_above(problem: Ranking, unknown: float) -> None:
    Ks, Y = labelled(n=9, m=4, seed=3, unknown=unknown)
    K = Ks[0] + 0.2 * np.eye(9)
    below, above = ref.conic_dual(problem, K, Y), ref.conic_primal(problem, K, Y)
    B = ref.rows(problem, K, Y, sweeps=60)
    assert below.value == pytest.approx(above.value, rel=1e-7)
    assert ref.dual(problem, K, Y, B) == pytest.approx(above.value, rel=1e-5)
    assert ref.primal(problem, K, Y, B) == pytest.approx(above.value, rel=1e-3)
    assert ref.dual(problem, K, Y, B) <= ref.primal(problem, K, Y, B) * (1 + 1e-12)
    np.testing.assert_allclose(below.scores, above.scores, atol=SCORES)
    np.testing.assert_allclose(problem.ridged(K) @ B, above.scores, atol=2e-2)


@pytest.mark.parametrize("weight_set", [Simplex(), LpBall(2.0), LpBall(4 / 3)], ids=repr)
@pytest.mark.parametrize("kind", KINDS)
def test_several_kernels_from_both_sides(kind: str, weight_set: WeightSet) -> None:
    Ks, Y = labelled(n=10, m=4, seed=1, unknown=0.1)
    below, above = (side(Ranking(kind), Ks, Y, weight_set) for side in (ref.conic_dual, ref.conic_primal))
    assert below.value == pytest.approx(above.value, rel=1e-7)
    np.testing.assert_allclose(below.scores, above.scores, atol=SCORES)
    # weights are prices of constraints, which come out no more exactly than scores
    assert weight_set.feasible(below.weights, tol=SCORES)
    assert below.weights @ below.h == pytest.approx(weight_set.support(below.h), rel=SCORES)


@pytest.mark.parametrize("kind", KINDS)
def test_no_row_lowers_the_dual(kind: str) -> None:
    Ks, Y = labelled(n=8, m=4, seed=2, unknown=0.1)
    problem, values = Ranking(kind, 1.0), [0.0]
    ref.rows(problem, Ks[1], Y, sweeps=4, watch=lambda B: values.append(ref.dual(problem, Ks[1], Y, B)))
    assert len(values) > 30
    assert np.diff(values).min() >= -1e-12 * values[-1]


def test_without_the_balance_it_is_one_svm_a_label() -> None:
    Ks, Y = labelled(n=12, m=3, seed=4)
    K = Ks[0] + 0.1 * np.eye(12)
    exact = SVM(0.8, fit_intercept=False).solve(K, Y, accuracy=1e-12)
    np.testing.assert_allclose(K @ ref.one_versus_all(K, Y, 0.8, sweeps=400), K @ exact.coef, atol=1e-6)


@pytest.mark.parametrize("C", [0.3, 1.0, 5.0])
def test_the_printed_half_update_is_a_ridge_as_large_as_the_diagonal(C: float) -> None:
    Ks, Y = labelled(n=10, m=4, seed=5)
    K = Ks[2] + 0.3 * np.eye(10)
    printed = ref.balanced(Ranking("narrow", C), K, Y, sweeps=120, half=True)
    ridged = ref.balanced(Ranking("narrow", C / 2, ridge=np.diag(K)), K, Y, sweeps=120)
    np.testing.assert_allclose(printed, 2 * ridged, atol=1e-9 * C)
    halved = ref.balanced(Ranking("narrow", C), 0.5 * (K + np.diag(np.diag(K))), Y, sweeps=120)
    np.testing.assert_allclose(printed, halved, atol=1e-9 * C)
    stated = Ranking("narrow", C)
    assert ref.primal(stated, K, Y, printed) - ref.dual(stated, K, Y, printed) > 0.01 * ref.dual(stated, K, Y, printed)


# --- the published group update ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("eta", [1.01, 2.0, 3.0, 6.0, 50.0])
def test_the_published_update_climbs_its_surrogate_only(eta: float) -> None:
    Ks, Y = labelled(n=12, m=6, seed=6)
    K = Ks[0]
    B, _, values = ref.group_published(K, Y, C=1.0, eta=eta, sweeps=100)
    assert np.diff(values).min() >= -1e-12 * abs(values[-1])
    stated = Ranking("group")
    best = ref.conic_dual(stated, K, Y).value
    assert ref.dual(stated, K, Y, B) < best * (1 - 1e-3) < best < ref.primal(stated, K, Y, B)
    if eta >= 3.0:  # half the labels: the surrogate is concave
        assert values[-1] == pytest.approx(ref.conic_surrogate(K, Y, 1.0, eta).value, rel=1e-7)


# --- the loss and the projection --------------------------------------------------------------------------------------


def test_the_closed_form_of_the_narrow_loss() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        m = rng.integers(1, 8)
        y, f = rng.choice([-1.0, 0.0, 1.0], m), rng.choice([0.5, 2.0]) * rng.standard_normal(m)
        cap = ref.caps(Ranking("narrow"), y[None])[0]
        assert ref.sorted_loss(f, y) == pytest.approx(ref.threshold_loss(f, y, cap), abs=1e-12)


def blocks(count: int, unknown: bool) -> list[tuple[np.ndarray, float, np.ndarray, float]]:
    """Random (f, kappa, y, C) with both sides present."""
    rng = np.random.default_rng(1)
    found = []
    while len(found) < count:
        m = rng.integers(2, 8)
        y = rng.choice([-1.0, 0.0, 1.0] if unknown else [-1.0, 1.0], m)
        if (y > 0).any() and (y < 0).any():
            kappa, C = 10 ** rng.uniform(-1, 1, 2)
            found.append((rng.choice([0.3, 3.0]) * rng.standard_normal(m), kappa, y, C))
    return found


@pytest.mark.parametrize("version", ["corrected", "2009"])
@pytest.mark.parametrize("unknown", [False, True])
def test_projection_by_sorting_is_projection_by_bisection(version: str, unknown: bool) -> None:
    for f, kappa, y, C in blocks(120, unknown):
        sorted_, shift = ref.project_by_sorting((1 - y * f) / kappa, y, np.where(y == 0, 0.0, C))
        bisected, lam = ref.project_by_bisection(f, kappa, y, C, version)
        np.testing.assert_allclose(sorted_, bisected, atol=1e-10 * C)
        assert y @ sorted_ == pytest.approx(0, abs=1e-12 * C * len(y))
        # the shift itself is unique only where an entry is inside the box
        if np.any((sorted_ > 1e-9 * C) & (sorted_ < C * (1 - 1e-9))):
            assert shift == pytest.approx(lam / kappa, abs=1e-9 * max(1, abs(shift)))


def test_the_bracket_printed_in_the_thesis_misses_the_root() -> None:
    f, y = np.zeros(4), np.array([1.0, -1.0, -1.0, -1.0])
    assert ref.bracket(f, 1.0, y, 1.0, "thesis") == (0.0, 0.0)
    tau, lam = ref.project_by_bisection(f, 1.0, y, 1.0)
    assert lam == pytest.approx(2 / 3) and tau == pytest.approx([1, 1 / 3, 1 / 3, 1 / 3])
    wrong, _ = ref.project_by_bisection(f, 1.0, y, 1.0, "thesis")
    assert abs(y @ wrong) > 1
    fails = [abs(y @ ref.project_by_bisection(f, k, y, C, "thesis")[0]) > 1e-9 * C for f, k, y, C in blocks(120, False)]
    assert np.mean(fails) > 0.1  # the corrected one: never, see above
