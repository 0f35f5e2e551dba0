"""Measures of ranked labels against slow loops, against scikit-learn, and against each other."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_array
from sklearn import metrics

from kernelweave.evaluation import (
    DEFAULT_MEASURES,
    MEASURES,
    auc,
    average_precision,
    coverage,
    evaluate,
    f1_at,
    lrap,
    mean_average_precision,
    measure,
    one_error,
    precision_at,
    ranking_loss,
    recall_at,
    subpopulations,
)

# The words of the definitions -----------------------------------------------------------------------------------------


def ranked(truth, scores):
    """Truth of the judged entries, best first, ties in the order given."""
    entries = [(-s, i, t) for i, (t, s) in enumerate(zip(truth, scores, strict=True)) if not np.isnan(t)]
    return [t for _, _, t in sorted(entries, key=lambda e: e[:2])]


def judged(truth, scores):
    return [(t, s) for t, s in zip(truth, scores, strict=True) if not np.isnan(t)]


def split(truth, scores):
    """Scores of the relevant and of the irrelevant entries, or None if there are none of one kind."""
    good = [s for t, s in judged(truth, scores) if t == 1]
    bad = [s for t, s in judged(truth, scores) if t == 0]
    return (good, bad) if good and bad else None


def slow_auc(truth, scores):
    if split(truth, scores) is None:
        return np.nan
    good, bad = split(truth, scores)
    return np.mean([1.0 if p > q else 0.5 if p == q else 0.0 for p in good for q in bad])


def slow_ap(truth, scores):
    hits = ranked(truth, scores)
    precisions = [sum(hits[: k + 1]) / (k + 1) for k in range(len(hits)) if hits[k]]
    return np.mean(precisions) if precisions else np.nan


def slow_ap11(truth, scores):
    """For each level, the largest precision among the cut-offs whose recall reaches it."""
    hits = ranked(truth, scores)
    if not any(hits):
        return np.nan
    total = 0.0
    for level in range(11):
        cuts = [k for k in range(1, len(hits) + 1) if sum(hits[:k]) * 10 >= level * sum(hits)]
        total += max(sum(hits[:k]) / k for k in cuts)
    return total / 11


def slow_one_error(truth, scores):
    return np.nan if split(truth, scores) is None else 1.0 - ranked(truth, scores)[0]


def slow_coverage(truth, scores):
    if split(truth, scores) is None:
        return np.nan
    worst = min(split(truth, scores)[0])
    return sum(s >= worst for _, s in judged(truth, scores))


def slow_lrap(truth, scores):
    if split(truth, scores) is None:
        return np.nan
    good, bad = split(truth, scores)
    return np.mean([sum(q >= p for q in good) / sum(q >= p for q in good + bad) for p in good])


def slow_pooled_auc(Y, scores):
    """Trapezoids under the points (sum of FP_k, sum of TP_k); a tied label is a hit with the share of its block."""
    usable = [judged(t, s) for t, s in zip(Y, scores, strict=True) if split(t, s) is not None]
    if not usable:
        return np.nan
    curve = [(0.0, 0.0)]
    for k in range(1, Y.shape[1] + 1):
        true = false = 0.0
        for row in usable:
            for score in sorted((s for _, s in row), reverse=True)[:k]:
                share = np.mean([t for t, s in row if s == score])
                true, false = true + share, false + 1 - share
        curve.append((false, true))
    area = sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in pairwise(curve))
    return area / (curve[-1][0] * curve[-1][1])


def slow_taken(Y, scores, k):
    """Which entries are among the first k judged ones of their row."""
    taken = np.zeros(Y.shape, dtype=bool)
    for i, (truth, row) in enumerate(zip(Y, scores, strict=True)):
        places = sorted((j for j in range(len(row)) if not np.isnan(truth[j])), key=lambda j, row=row: (-row[j], j))
        taken[i, places[:k]] = True
    return taken


def slow_at_k(quantity, truth, taken):
    """Precision, recall or F1 of what was taken, from flat lists of entries."""
    hits, n_taken, n_relevant = np.sum((truth == 1) & taken), np.sum(taken), np.sum(truth == 1)
    above, below = {
        "precision": (hits, n_taken),
        "recall": (hits, n_relevant),
        "f1": (2 * hits, n_taken + n_relevant if n_relevant else 0),
    }[quantity]
    return above / below if below else np.nan


SLOW = {"auc": slow_auc, "ap": slow_ap, "ap11": slow_ap11}
SLOW_BY_IMAGE = {
    "one_error": slow_one_error,
    "coverage": slow_coverage,
    "ranking_loss": lambda truth, scores: 1.0 - slow_auc(truth, scores),
    "lrap": slow_lrap,
}
#: Measures whose tie rule does not depend on the order of labels.
SYMMETRIC = [name for name in MEASURES if "auc" in name or name in ("coverage", "ranking_loss", "lrap")]
WAYS = ("image", "category", "micro")


def slow_each(name, Y, scores):
    """The values a measure is the mean of."""
    if name == "pooled_auc":
        return [slow_pooled_auc(Y, scores)]
    by, _, quantity = name.partition("_")
    pairs = {"category": (Y.T, scores.T), "micro": (Y.reshape(1, -1), scores.reshape(1, -1))}.get(by, (Y, scores))
    if "@" in name:
        quantity, _, k = quantity.partition("@")
        taken = slow_taken(Y, scores, int(k))
        shaped = {"image": (Y, taken), "category": (Y.T, taken.T), "micro": (Y.reshape(1, -1), taken.reshape(1, -1))}
        return [slow_at_k(quantity, t, chosen) for t, chosen in zip(*shaped[by], strict=True)]
    slow = SLOW[quantity] if by in WAYS else SLOW_BY_IMAGE[name]
    return [slow(t, s) for t, s in zip(*pairs, strict=True)]


def assert_is_mean_of(result, values, name):
    np.testing.assert_allclose(result.each, values, rtol=1e-12, atol=1e-12, err_msg=name)
    kept = [value for value in values if not np.isnan(value)]
    assert result.value == pytest.approx(np.mean(kept) if kept else np.nan, nan_ok=True), name


# Data -----------------------------------------------------------------------------------------------------------------


@st.composite
def problems(draw, values=(0.0, 1.0, np.nan), distinct=False, max_side=6):
    """A label matrix and scores, with many ties unless distinct."""
    shape = draw(st.integers(1, max_side)), draw(st.integers(1, max_side))
    Y = draw(arrays(np.float64, shape, elements=st.sampled_from(values)))
    if distinct:
        scores = np.array(draw(st.permutations(range(Y.size))), dtype=np.float64).reshape(shape) - Y.size / 2
    else:
        scores = draw(arrays(np.float64, shape, elements=st.integers(-2, 2)))
    return Y, scores


def at(name, k):
    return name.replace("@k", f"@{k}")


def all_names(data, n_labels):
    """The names of all measures, with one k."""
    k = data.draw(st.integers(1, n_labels), label="k")
    return [at(name, k) for name in MEASURES]


def each(name, Y, scores):
    return measure(name, Y, scores).each


def random_problem(n=40, m=9, seed=0, ties=False):
    """Complete labels without degenerate rows or columns."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n, m))
    Y = (rng.random((n, m)) < 0.3).astype(float)
    Y[np.arange(m), np.arange(m)] = 1
    Y[np.arange(n), np.arange(n) % m] = 1
    Y[np.arange(n), (np.arange(n) + 1) % m] = 0
    return Y, np.round(scores) if ties else scores


# Against the definitions ----------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(problem=problems(), data=st.data())
def test_agrees_with_slow_loops(problem, data):
    Y, scores = problem
    for name, result in evaluate(Y, scores, all_names(data, Y.shape[1])).items():
        assert_is_mean_of(result, slow_each(name, Y, scores), name)


@pytest.mark.parametrize("name", MEASURES)
def test_agrees_with_slow_loops_on_long_rows_with_many_ties(name):
    # Long enough that a sort that is not stable shows.
    rng = np.random.default_rng(3)
    Y = rng.choice([0.0, 1.0, np.nan], size=(3, 120), p=[0.6, 0.3, 0.1])
    scores = rng.integers(0, 5, size=Y.shape).astype(float)
    name = at(name, 40)
    assert_is_mean_of(measure(name, Y, scores), slow_each(name, Y, scores), name)


@settings(max_examples=60)
@given(problem=problems(), data=st.data())
def test_skipped_rows_and_columns_are_counted(problem, data):
    Y, scores = problem
    for name, result in evaluate(Y, scores, all_names(data, Y.shape[1])).items():
        if name == "pooled_auc":
            kept = np.array([split(t, s) is not None for t, s in zip(Y, scores, strict=True)])
        elif name.startswith("micro") and "@" in name:
            kept = ~np.isnan(Y).all(axis=1) & ~np.isnan(result.value)
        else:
            kept = ~np.isnan(slow_each(name, Y, scores))
        assert (result.n_used, result.n_skipped) == (kept.sum(), (~kept).sum()), name
        assert np.isnan(result.value) == (result.n_used == 0), name


def slow_n_tied(name, Y, scores):
    """Rankings with a score that a relevant and an irrelevant entry share, on both sides of the cut if there is one."""
    by, cut = name.partition("_")[0], None
    if "@" in name or name == "one_error":
        by, cut = "image", 1 if name == "one_error" else int(name.partition("@")[2])
    pairs = {"category": (Y.T, scores.T), "micro": (Y.reshape(1, -1), scores.reshape(1, -1))}.get(by, (Y, scores))
    n_tied = 0
    for truth, row in zip(*pairs, strict=True):
        good, bad = split(truth, row) or ([], [])
        shared = set(good) & set(bad)
        if cut is not None:
            descending = sorted(good + bad, reverse=True)
            shared &= set(descending[:cut]) & set(descending[cut:])
        n_tied += bool(shared)
    return n_tied


@settings(max_examples=60)
@given(problem=problems(), data=st.data())
def test_ties_are_counted_where_they_matter(problem, data):
    Y, scores = problem
    for name, result in evaluate(Y, scores, all_names(data, Y.shape[1])).items():
        assert result.n_tied == slow_n_tied(name, Y, scores), name


def test_plain_functions_are_the_measures():
    Y, scores = random_problem(ties=True)
    for by in ("image", "pooled", "category", "micro"):
        assert auc(Y, scores, by) == measure(f"{by}_auc", Y, scores).value
    for by in WAYS:
        assert mean_average_precision(Y, scores, by=by) == measure(f"{by}_ap", Y, scores).value
        assert mean_average_precision(Y, scores, "11-point", by) == measure(f"{by}_ap11", Y, scores).value
        for name, function in (("precision", precision_at), ("recall", recall_at), ("f1", f1_at)):
            assert function(Y, scores, 3, by) == measure(f"{by}_{name}@3", Y, scores).value
    for function in (one_error, coverage, ranking_loss, lrap):
        assert function(Y, scores) == measure(function.__name__, Y, scores).value
    assert auc(Y, scores) == auc(Y, scores, "image")
    assert mean_average_precision(Y, scores) == mean_average_precision(Y, scores, by="category")


# Against scikit-learn -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ties", [False, True])
def test_agrees_with_scikit_learn(ties):
    Y, scores = random_problem(ties=ties)
    assert coverage(Y, scores) == pytest.approx(metrics.coverage_error(Y, scores))
    assert lrap(Y, scores) == pytest.approx(metrics.label_ranking_average_precision_score(Y, scores))
    for by, average in (("image", "samples"), ("category", "macro"), ("micro", "micro")):
        assert auc(Y, scores, by) == pytest.approx(metrics.roc_auc_score(Y, scores, average=average))
        if not ties:  # tied entries there make one step of the curve
            expected = metrics.average_precision_score(Y, scores, average=average)
            assert mean_average_precision(Y, scores, by=by) == pytest.approx(expected)
    if not ties:  # a tie there is a whole error
        assert ranking_loss(Y, scores) == pytest.approx(metrics.label_ranking_loss(Y, scores))


@pytest.mark.parametrize(("by", "average"), [("image", "samples"), ("category", "macro"), ("micro", "micro")])
@pytest.mark.parametrize("k", [1, 3, 9])
def test_measures_at_k_agree_with_scikit_learn(by, average, k):
    Y, scores = random_problem()
    first = slow_taken(Y, scores, k).astype(int)
    assert first.any(axis=0).all()  # otherwise precision is 0 there, and skipped here
    for function, theirs in (
        (precision_at, metrics.precision_score),
        (recall_at, metrics.recall_score),
        (f1_at, metrics.f1_score),
    ):
        assert function(Y, scores, k, by) == pytest.approx(theirs(Y, first, average=average))


def test_a_label_that_is_never_taken_counts_in_f1_and_not_in_precision():
    Y, scores = [[1, 1], [0, 1]], [[2.0, 1.0], [2.0, 1.0]]
    assert measure("category_precision@1", Y, scores).each == pytest.approx([0.5, np.nan], nan_ok=True)
    assert measure("category_f1@1", Y, scores).each == pytest.approx([2 / 3, 0.0])


# Identities -----------------------------------------------------------------------------------------------------------


@given(problem=problems(values=(0.0, 1.0), distinct=True))
def test_area_under_the_sweep_over_k_is_the_share_of_pairs_in_order(problem):
    Y, scores = problem
    for truth, row, area in zip(Y, scores, measure("image_auc", Y, scores).each, strict=True):
        if split(truth, row) is None:
            continue
        hits = np.array(ranked(truth, row))
        tpr, fpr = np.cumsum(hits) / hits.sum(), np.cumsum(1 - hits) / (1 - hits).sum()
        assert np.sum(np.diff(fpr) * (tpr[1:] + tpr[:-1]) / 2) == pytest.approx(area, abs=1e-12)


@given(problem=problems())
def test_auc_and_ranking_loss_add_up_to_one(problem):
    total = measure("image_auc", *problem).each + measure("ranking_loss", *problem).each
    assert total[~np.isnan(total)] == pytest.approx(1.0)


@given(problem=problems())
def test_pooled_and_micro_of_one_row_are_its_own(problem):
    Y, scores = problem[0][:1], problem[1][:1]
    alone = measure("image_auc", Y, scores).value
    for name in ("pooled_auc", "micro_auc"):
        assert measure(name, Y, scores).value == pytest.approx(alone, nan_ok=True)


def test_one_error_is_what_precision_at_one_lacks():
    Y, scores = random_problem()
    assert one_error(Y, scores) == pytest.approx(1 - precision_at(Y, scores, 1))


def test_lrap_without_ties_is_average_precision_by_image():
    Y, scores = random_problem()
    assert lrap(Y, scores) == pytest.approx(mean_average_precision(Y, scores, by="image"))


def test_known_values_of_average_precision():
    assert average_precision([1, 0, 1, 0, 0], [5, 4, 3, 2, 1], "11-point") == pytest.approx(28 / 33)
    assert average_precision([1, 0, 1, 0], [4, 3, 2, 1], "11-point") == pytest.approx((6 * 1 + 5 * 2 / 3) / 11)
    assert average_precision([1, 0, 1, 0], [4, 3, 2, 1]) == pytest.approx((1 + 2 / 3) / 2)
    assert average_precision([0, 0, 1], [3, 2, 1]) == pytest.approx(1 / 3)
    assert average_precision([True, False], [1, 1]) == 1.0
    assert average_precision([False, True], [1, 1]) == 0.5


@settings(max_examples=30)
@given(problem=problems(), data=st.data())
def test_only_the_order_of_scores_counts(problem, data):
    Y, scores = problem
    for name in all_names(data, Y.shape[1]):
        squeezed = each(name, Y, np.arctan(scores / 10) * 7 - 2)
        np.testing.assert_array_equal(each(name, Y, scores), squeezed, err_msg=name)


def test_infinite_scores_are_ranked():
    assert measure("image_auc", [[1, 0, np.nan, 0, 1]], [[np.inf, 1, 5, -np.inf, -np.inf]]).value == 0.625


@pytest.mark.parametrize("distinct", [False, True])
@settings(max_examples=30)
@given(data=st.data())
def test_permuted_rows_and_columns_give_permuted_values(distinct, data):
    Y, scores = data.draw(problems(distinct=distinct))
    rows, columns = (np.array(data.draw(st.permutations(range(size)))) for size in Y.shape)
    names = all_names(data, Y.shape[1]) if distinct else SYMMETRIC
    before, after = evaluate(Y, scores, names), evaluate(Y[rows][:, columns], scores[rows][:, columns], names)
    for name in names:
        one_value = name.startswith(("pooled", "micro"))
        places = [0] if one_value else columns if name.startswith("category") else rows
        np.testing.assert_allclose(after[name].each, before[name].each[places], rtol=1e-12, atol=1e-12, err_msg=name)
        counts = [(of.n_used, of.n_skipped, of.n_tied) for of in (before[name], after[name])]
        assert counts[0] == counts[1], name


# Labels never judged --------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(problem=problems(), data=st.data())
def test_a_label_never_judged_is_a_pair_left_out(problem, data):
    Y, scores = problem
    names = all_names(data, Y.shape[1])
    row, column = (data.draw(st.integers(0, size)) for size in Y.shape)
    before = evaluate(Y, scores, names)
    wider = evaluate(np.insert(Y, column, np.nan, axis=1), np.insert(scores, column, 1.0, axis=1), names)
    longer = evaluate(np.insert(Y, row, np.nan, axis=0), np.insert(scores, row, 1.0, axis=0), names)
    for name, result in before.items():
        expected = np.insert(result.each, column, np.nan) if name.startswith("category") else result.each
        # The shares of tied labels in the pooled curve are rounded; the rest is the same to the last bit.
        np.testing.assert_allclose(wider[name].each, expected, rtol=1e-14 * (name == "pooled_auc"), err_msg=name)
        assert longer[name].value == pytest.approx(result.value, nan_ok=True), name
        assert wider[name].n_tied == longer[name].n_tied == result.n_tied, name


@settings(max_examples=40)
@given(problem=problems(), data=st.data())
def test_scores_of_labels_never_judged_do_not_matter(problem, data):
    Y, scores = problem
    other = np.where(np.isnan(Y), data.draw(arrays(np.float64, Y.shape, elements=st.integers(-9, 9))), scores)
    for name in all_names(data, Y.shape[1]):
        np.testing.assert_array_equal(each(name, Y, scores), each(name, Y, other), err_msg=name)


def test_one_pair_left_out_of_one_row():
    # Row 0 without its second label is a ranking of two labels: the miss that came first is gone.
    scores = [[0.5, 0.9, 0.1], [0.2, 0.8, 0.3]]
    assert measure("image_auc", [[1, 0, 0], [0, 1, 0]], scores).each.tolist() == [0.5, 1.0]
    assert measure("image_auc", [[1, np.nan, 0], [0, 1, 0]], scores).each.tolist() == [1.0, 1.0]
    assert measure("coverage", [[0, np.nan, 1], [0, 1, 0]], scores).each.tolist() == [2.0, 1.0]
    assert measure("image_precision@2", [[1, np.nan, np.nan], [0, 1, 0]], scores).each.tolist() == [1.0, 0.5]


def test_average_precision_leaves_out_what_nobody_judged():
    assert average_precision([np.nan, 1, 0, 1], [9, 3, 2, 1]) == average_precision([1, 0, 1], [3, 2, 1])
    masked = np.ma.array([0, 1, 0, 1], mask=[1, 0, 0, 0])
    assert average_precision(masked, [9, 3, 2, 1]) == average_precision([1, 0, 1], [3, 2, 1])


def n_parts(name):
    """How many parts a (4, 3) matrix has for a measure: one list, columns, or rows."""
    return 1 if name.startswith("micro") and "@" not in name else 3 if name.startswith("category") else 4


@pytest.mark.parametrize("name", MEASURES)
def test_when_nothing_is_known_all_is_skipped(name):
    result = measure(at(name, 2), np.full((4, 3), np.nan), np.zeros((4, 3)))
    assert np.isnan(result.value) and np.isnan(result.each).all()
    assert (result.n_used, result.n_skipped, result.n_tied) == (0, n_parts(name), 0)


@pytest.mark.parametrize("name", [name for name in MEASURES if "precision@" not in name])
def test_without_a_relevant_label_all_is_skipped(name):
    result = measure(at(name, 2), np.zeros((4, 3)), np.zeros((4, 3)))
    assert np.isnan(result.value) and result.n_used == 0
    assert result.n_skipped == n_parts(name)


def test_where_all_is_relevant_only_what_compares_is_skipped():
    Y, scores = np.ones((4, 3)), np.arange(12.0).reshape(4, 3)
    skipped = {name for name in MEASURES if np.isnan(measure(at(name, 2), Y, scores).value)}
    comparing = {
        "image_auc",
        "pooled_auc",
        "category_auc",
        "micro_auc",
        "one_error",
        "coverage",
        "ranking_loss",
        "lrap",
    }
    assert skipped == comparing
    assert measure("category_precision@2", Y, scores).n_skipped == 1  # column 0 is never among the first two of a row
    assert precision_at(np.zeros((4, 3)), scores, 2) == 0.0


# Tables and parts of the rows -----------------------------------------------------------------------------------------


def test_subpopulations_count_relevant_labels():
    Y = [[1, 0, np.nan], [1, 1, 0], [0, 0, 0], [np.nan, 1, 1], [np.nan] * 3]
    parts = subpopulations(Y)
    assert parts["one label"].tolist() == [True, False, False, False, False]
    assert parts["several labels"].tolist() == [False, True, False, True, False]


def test_evaluate_gives_each_measure_and_the_same_on_parts():
    Y, scores = random_problem(ties=True)
    Y[0, :3] = np.nan
    names = (*DEFAULT_MEASURES, "image_f1@3", "micro_recall@2")
    parts = subpopulations(Y)
    table = evaluate(Y, scores, names, by={**parts, "nobody": np.zeros(len(Y), dtype=bool)})
    assert list(table) == list(names) and len(table) == len(names) and table.n_samples == len(Y)
    for name in names:
        assert table[name].value == float(table[name]) == measure(name, Y, scores).value
        for part, rows in parts.items():
            expected = measure(name, Y[rows], scores[rows])
            np.testing.assert_array_equal(table.groups[part][name].each, expected.each)
        nobody = table.groups["nobody"][name]
        assert np.isnan(nobody.value) and nobody.n_used == 0


def test_table_can_be_read():
    Y, scores = random_problem(n=2000, ties=True)
    Y[:10] = 0
    text = str(evaluate(Y, scores, ["image_auc", "coverage"], by={"first": np.arange(2000) < 10}))
    head, first, _, blank, part, *_ = text.splitlines()
    assert head.split() == ["measure", "value", "used", "skipped", "tied"]
    result = measure("image_auc", Y, scores)
    assert first.split() == ["image_auc", f"{result.value:.4f}", "1,990", "10", f"{result.n_tied:,}"]
    assert (blank, part) == ("", "first (10 of 2,000 rows)")
    assert "nan" in text
    assert len({len(line) for line in text.splitlines()[:3]}) == 1


# What may be given ----------------------------------------------------------------------------------------------------


def test_labels_may_be_written_in_many_ways():
    Y, scores = random_problem()
    names = [at(name, 3) for name in MEASURES]
    expected = {name: of.value for name, of in evaluate(Y, scores, names).items()}
    tags = [[f"label {j}" for j in np.flatnonzero(row)] for row in Y]
    frame = pd.DataFrame(Y, columns=[f"label {j}" for j in range(Y.shape[1])])
    for written in (2 * Y - 1, Y.astype(bool), csr_array(Y), frame, tags, Y.tolist()):
        assert {name: of.value for name, of in evaluate(written, scores, names).items()} == expected
    hidden = np.arange(Y.size).reshape(Y.shape) % 4 == 0
    with_nan = evaluate(np.where(hidden, np.nan, Y), scores.astype(np.float32).tolist(), names)
    masked = evaluate(np.ma.array(Y, mask=hidden), scores.astype(np.float32), names)
    assert {name: of.value for name, of in masked.items()} == {name: of.value for name, of in with_nan.items()}


def test_nothing_given_is_changed():
    Y, scores = random_problem(ties=True)
    Y[0] = np.nan
    copies = Y.copy(), scores.copy()
    evaluate(Y, scores, [at(name, 2) for name in MEASURES])
    np.testing.assert_array_equal(Y, copies[0])
    np.testing.assert_array_equal(scores, copies[1])


def test_bad_scores_are_named():
    with pytest.raises(ValueError, match="same length, got 2 and 1"):
        average_precision([1, 0], [1.0])
    with pytest.raises(ValueError, match="row 0, column 1 is NaN"):
        average_precision([1, 0], [1.0, np.nan])
    with pytest.raises(ValueError, match=r"same shape, got \(1, 2\) and \(1, 1\)"):
        mean_average_precision([[1, 0]], [[1.0]])
    with pytest.raises(ValueError, match=r"row 1, column 0 is NaN \(2 in all\)"):
        auc([[1, 0], [0, 1]], [[1.0, 2.0], [np.nan, np.nan]])
    with pytest.raises(ValueError, match="row 0, column 1 is NaN"):
        auc([[1, 0]], np.ma.array([[1.0, 2.0]], mask=[[0, 1]]))
    with pytest.raises(ValueError, match="dense matrix of numbers"):
        auc([[1, 0]], csr_array([[1.0, 2.0]]))
    with pytest.raises(ValueError, match="relevant must hold 0 and 1"):
        average_precision([1, 2], [1.0, 2.0])


def test_bad_choices_are_named():
    Y, scores = [[1, 0]], [[1.0, 2.0]]
    with pytest.raises(ValueError, match="'exact' or '11-point', got 'voc'"):
        average_precision([1, 0], [1.0, 2.0], "voc")
    with pytest.raises(ValueError, match="by must be one of 'image', 'pooled', 'category', 'micro'; got 'rows'"):
        auc(Y, scores, by="rows")
    with pytest.raises(ValueError, match="by must be one of 'image', 'category', 'micro'; got 'pooled'"):
        recall_at(Y, scores, 1, by="pooled")
    for k in (0, 3):
        with pytest.raises(ValueError, match=f"k must be between 1 and the number of labels, 2; got {k}"):
            precision_at(Y, scores, k)
    for k in (-1, 1.5, "k"):
        with pytest.raises(ValueError, match=r"must end in a whole number k.*'image_f1@5'"):
            f1_at(Y, scores, k)
    with pytest.raises(ValueError, match="'image_recall' must end in a whole number"):
        measure("image_recall", Y, scores)
    with pytest.raises(ValueError, match=r"no measure 'imgae_auc'\. Did you mean 'image_auc'"):
        measure("imgae_auc", Y, scores)
    with pytest.raises(ValueError, match="no measure 'lrap@5'"):
        evaluate(Y, scores, ["lrap@5"])
    with pytest.raises(TypeError, match=r"write \['lrap'\]"):
        evaluate(Y, scores, "lrap")
    for rows in ([1], [True, False], [[True]]):
        with pytest.raises(ValueError, match=r"by\['part'\] must be a boolean array of shape \(1,\)"):
            evaluate(Y, scores, by={"part": rows})
