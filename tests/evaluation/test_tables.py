"""Tables of means and deviations."""

from __future__ import annotations

import statistics

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelweave.evaluation.tables import summary_table

NAN = float("nan")
RUNS = {
    ("ranker", "scene"): [0.90, 0.92, 0.94],
    ("ranker", "birds"): [0.70, NAN, 0.72],
    ("svm", "scene"): [0.92],
    ("svm", "flags"): [NAN, None],
}


def test_numbers_are_means_deviations_and_counts():
    table = summary_table(RUNS)
    assert table.rows == ("ranker", "svm")
    assert table.columns == ("scene", "birds", "flags")
    np.testing.assert_allclose(table.mean, [[0.92, 0.71, NAN], [0.92, NAN, NAN]])
    np.testing.assert_allclose(table.std, [[0.02, np.sqrt(2) / 100, NAN], [NAN, NAN, NAN]])
    assert table.count.tolist() == [[3, 2, 0], [1, 0, 0]]
    assert table.missing.tolist() == [[0, 1, 0], [0, 0, 2]]


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=8), st.integers(0, 3))
def test_nan_is_left_out(values, n_missing):
    table = summary_table({("a", "b"): [*values, *[NAN] * n_missing]})
    assert table.mean[0, 0] == pytest.approx(statistics.fmean(values), abs=1e-12)
    assert table.std[0, 0] == pytest.approx(statistics.stdev(values), abs=1e-6)
    assert (table.count[0, 0], table.missing[0, 0]) == (len(values), n_missing)


def test_plain_text():
    assert summary_table(RUNS).text(scale=100) == (
        "             scene             birds  flags\n"
        "ranker  92.0 ± 2.0  71.0 ± 1.4 (n=2)      -\n"
        "svm           92.0                 -      -"
    )
    assert str(summary_table(RUNS)) == summary_table(RUNS).text()


def test_markdown():
    assert summary_table(RUNS).markdown(scale=100, digits=2, best="largest") == (
        "|  | scene | birds | flags |\n"
        "|---|---:|---:|---:|\n"
        "| ranker | **92.00** ± 2.00 | **71.00** ± 1.41 (n=2) | - |\n"
        "| svm | **92.00** | - | - |"
    )
    assert "| a\\|b | 1.0 |" in summary_table({("a|b", "c"): 1.0})._repr_markdown_()


def test_the_best_of_each_column_is_marked_and_all_that_print_alike():
    table = summary_table({("a", "x"): 1.04, ("b", "x"): 0.99, ("c", "x"): 2.0, ("a", "y"): 3.0, ("b", "y"): NAN})
    assert [line.split()[1:] for line in table.text(best="smallest").splitlines()[1:]] == [
        ["1.0*", "3.0*"],
        ["1.0*", "-"],
        ["2.0", "-"],
    ]
    assert [line.split()[1:] for line in table.text(best="largest", digits=2).splitlines()[1:]] == [
        ["1.04", "3.00*"],
        ["0.99", "-"],
        ["2.00*", "-"],
    ]
    with pytest.raises(ValueError, match="'largest', 'smallest' or None, got 'max'"):
        table.text(best="max")


def test_records_give_the_table_of_their_mapping():
    records = [
        {"method": method, "data": data, "auc": value, "seed": seed}
        for (method, data), values in RUNS.items()
        for seed, value in enumerate(values)
    ]
    table = summary_table(records, rows="method", columns="data", value="auc")
    assert table.text(digits=4) == summary_table(RUNS).text(digits=4)
    from_frame = summary_table(pd.DataFrame(records).to_dict("records"), rows="method", columns="data", value="auc")
    assert from_frame.text(digits=4) == table.text(digits=4)
    assert summary_table(iter(records), rows="method", columns="seed", value="auc").columns == (0, 1, 2)


@pytest.mark.parametrize(
    ("results", "keys", "error", "message"),
    [
        ({}, {}, ValueError, "results is empty"),
        ([], {"rows": "a", "columns": "b", "value": "c"}, ValueError, "results is empty"),
        ({"scene": [1.0]}, {}, ValueError, r"pairs \(row, column\), got 'scene'"),
        ({("a", "b"): "high"}, {}, ValueError, r"results\[\('a', 'b'\)\] must be a number .* got 'high'"),
        ({("a", "b"): [1.0]}, {"rows": "a"}, ValueError, "are for records"),
        ([{"a": 1}], {"rows": "a"}, ValueError, "give rows, columns and value"),
        ([{"a": 1, "b": 2}], {"rows": "a", "columns": "b", "value": "c"}, ValueError, "Record 0 has no 'c'.*'a', 'b'"),
        (pd.DataFrame({"a": [1]}), {"rows": "a", "columns": "b", "value": "c"}, TypeError, "got str.*to_dict"),
        (
            [{"a": 1, "b": 2, "c": "x"}],
            {"rows": "a", "columns": "b", "value": "c"},
            ValueError,
            "'c' of record 0 must be a number",
        ),
    ],
)
def test_refusals(results, keys, error, message):
    with pytest.raises(error, match=message):
        summary_table(results, **keys)
