"""Average precision against its definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from kernelweave.evaluation import average_precision, mean_average_precision

rankings = st.lists(
    st.tuples(st.booleans(), st.integers(-1000, 1000)), min_size=1, max_size=30, unique_by=lambda t: t[1]
)


def eleven_points(hits, scores):
    """Word for word: for each level, the largest precision among the cut-offs whose recall reaches it."""
    order = np.argsort(-np.asarray(scores), kind="stable")
    hits = np.asarray(hits)[order]
    total = 0.0
    for level in range(11):
        best = 0.0
        for cut in range(1, len(hits) + 1):
            found = hits[:cut].sum()
            if found * 10 >= level * hits.sum():
                best = max(best, found / cut)
        total += best
    return total / 11


def test_known_values():
    assert average_precision([1, 0, 1, 0], [4, 3, 2, 1], "11-point") == pytest.approx((6 * 1 + 5 * 2 / 3) / 11)
    assert average_precision([1, 0, 1, 0], [4, 3, 2, 1]) == pytest.approx((1 + 2 / 3) / 2)
    assert average_precision([0, 0, 1], [3, 2, 1]) == pytest.approx(1 / 3)


@given(rankings)
def test_agrees_with_the_definitions(ranking):
    hits, scores = zip(*ranking, strict=True)
    if not any(hits):
        assert np.isnan(average_precision(hits, scores))
        return
    assert average_precision(hits, scores) == pytest.approx(average_precision_score(hits, scores))
    assert average_precision(hits, scores, "11-point") == pytest.approx(eleven_points(hits, scores))


@given(rankings)
def test_only_the_order_counts(ranking):
    hits, scores = (np.array(part) for part in zip(*ranking, strict=True))
    if hits.any():
        for interpolation in ("exact", "11-point"):
            before = average_precision(hits, scores, interpolation)
            assert average_precision(hits, np.arctan(scores / 1e3) * 7 - 2, interpolation) == before


def test_mean_leaves_out_empty_columns():
    Y = np.array([[1, 0, 0], [0, 1, 0], [1, 0, 0]])
    scores = np.array([[0.9, 0.3, 0.1], [0.8, 0.2, 0.2], [0.1, 0.1, 0.3]])
    expected = (average_precision(Y[:, 0], scores[:, 0]) + average_precision(Y[:, 1], scores[:, 1])) / 2
    assert mean_average_precision(Y, scores) == pytest.approx(expected)
    assert np.isnan(mean_average_precision(np.zeros((3, 2)), scores[:, :2]))


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="same length"):
        average_precision([1, 0], [1.0])
    with pytest.raises(ValueError, match="NaN"):
        average_precision([1, 0], [1.0, np.nan])
    with pytest.raises(ValueError, match="11-point"):
        average_precision([1, 0], [1.0, 2.0], "voc")
    with pytest.raises(ValueError, match="same shape"):
        mean_average_precision([[1, 0]], [[1.0]])
