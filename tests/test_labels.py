"""Label matrices in every form people write them, and what is refused."""

from __future__ import annotations

import datetime
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_array_equal
from scipy import sparse

from kernelweave.labels import Labels, as_labels, is_tags

NAN = float("nan")
#: One matrix, complete and with a label nobody judged, and what it means.
COMPLETE, COMPLETE_SIGNS = [[1, 0, 1], [0, 0, 1]], [[1, -1, 1], [-1, -1, 1]]
PARTLY, PARTLY_SIGNS = [[1, 0, NAN], [0, NAN, 1]], [[1, -1, 0], [-1, 0, 1]]
NONES = [[1, 0, None], [0, None, 1]]
COLUMNS = ["sky", "sea", "tree"]


def frame(rows, **kwargs):
    return pd.DataFrame(rows, columns=COLUMNS, **kwargs)


def by_column(rows, dtype):
    """A polars frame: it is made of columns."""
    return pl.DataFrame({name: pl.Series([row[k] for row in rows], dtype=dtype) for k, name in enumerate(COLUMNS)})


def truths(rows):
    return [[None if value is None else bool(value) for value in row] for row in rows]


COMPLETE_FORMS = {
    "int array": np.array(COMPLETE),
    "uint8": np.array(COMPLETE, dtype=np.uint8),
    "float32": np.array(COMPLETE, dtype=np.float32),
    "bool array": np.array(COMPLETE, dtype=bool),
    "object array": np.array(COMPLETE, dtype=object),
    "fortran order": np.asfortranarray(COMPLETE),
    "read-only": np.frombuffer(np.array(COMPLETE, dtype=np.int64).tobytes(), dtype=np.int64).reshape(2, 3),
    "lists": COMPLETE,
    "tuples": tuple(map(tuple, COMPLETE)),
    "list of arrays": [np.array(row) for row in COMPLETE],
    "lists of bools": truths(COMPLETE),
    "-1 and +1": np.array(COMPLETE_SIGNS),
    "-1 and +1 lists": COMPLETE_SIGNS,
    "unmasked": np.ma.array(COMPLETE),
    "csr matrix": sparse.csr_matrix(COMPLETE),
    "csc array": sparse.csc_array(COMPLETE),
    "coo of bools": sparse.coo_array(np.array(COMPLETE, dtype=bool)),
    "sparse, zeros stored": sparse.csr_array((np.array([1, 0, 1, 1]), ([0, 0, 0, 1], [0, 1, 2, 2])), shape=(2, 3)),
    "sparse -1 and +1": sparse.csr_array(np.array(COMPLETE_SIGNS)),
    "array of lists": pd.Series(COMPLETE).to_numpy(),
    "series of lists": pd.Series(COMPLETE),
    "polars series of lists": pl.Series(COMPLETE),
    "pandas": frame(COMPLETE),
    "pandas of bools": frame(COMPLETE).astype(bool),
    "pandas of mixed types": frame(COMPLETE).astype({"sky": bool, "sea": float}),
    "pandas sparse": frame(COMPLETE).astype(pd.SparseDtype(int, 0)),
    "pandas categories": frame(COMPLETE).astype("category"),
    "pandas without names": pd.DataFrame(COMPLETE),
    "polars": by_column(COMPLETE, pl.Int8),
    "polars of bools": by_column(truths(COMPLETE), pl.Boolean),
}
PARTLY_FORMS = {
    "NaN": np.array(PARTLY),
    "lists with NaN": PARTLY,
    "lists with None": NONES,
    "lists with NA": [[pd.NA if value is None else value for value in row] for row in NONES],
    "bools and None": truths(NONES),
    "-1 and +1 with NaN": np.where(np.array(PARTLY_SIGNS) == 0, NAN, PARTLY_SIGNS),
    "masked": np.ma.array([[1, 0, 1], [0, 1, 1]], mask=np.isnan(PARTLY)),
    "masked nonsense": np.ma.array(np.nan_to_num(PARTLY, nan=7), mask=np.isnan(PARTLY)),
    "masked NaN": np.ma.array(PARTLY, mask=np.isnan(PARTLY)),
    "partly masked, partly NaN": np.ma.array(PARTLY, mask=[[0, 0, 1], [0, 0, 0]]),
    "stored NaN": sparse.csr_array(np.array(PARTLY)),
    "pandas": frame(PARTLY),
    "pandas Int64": frame(NONES, dtype="Int64"),
    "pandas boolean": frame(truths(NONES), dtype="boolean"),
    "pandas arrow": frame(truths(NONES), dtype="bool[pyarrow]"),
    "pandas object": frame(NONES, dtype=object),
    "pandas object with NA": frame(NONES, dtype="Int64").astype(object),
    "pandas mixed": frame(NONES).astype({"sky": bool, "sea": "Int64", "tree": object}),
    "values of Int64": frame(NONES, dtype="Int64").to_numpy(dtype=object),
    "polars": by_column(NONES, pl.Int64),
    "polars of bools": by_column(truths(NONES), pl.Boolean),
    "polars of floats": by_column(PARTLY, pl.Float32),
    "polars mixed": by_column(NONES, pl.Int64).with_columns(pl.col("sea").cast(pl.Boolean)),
}


@pytest.mark.parametrize("Y", COMPLETE_FORMS.values(), ids=COMPLETE_FORMS.keys())
def test_complete_matrices(Y):
    labels = as_labels(Y)
    assert_array_equal(labels.signs, COMPLETE_SIGNS)
    assert labels.signs.dtype == np.int8
    assert labels.signs.flags.c_contiguous
    assert labels.known.all()
    assert_array_equal(labels.relevant, np.array(COMPLETE) == 1)


@pytest.mark.parametrize("Y", PARTLY_FORMS.values(), ids=PARTLY_FORMS.keys())
def test_matrices_with_labels_nobody_judged(Y):
    labels = as_labels(Y)
    assert_array_equal(labels.signs, PARTLY_SIGNS)
    assert_array_equal(labels.known, ~np.isnan(PARTLY))
    assert_array_equal(labels.relevant, np.array(PARTLY) == 1)


@pytest.mark.parametrize(
    "Y",
    [
        [["a", "c"], ["b"], [], ["c", "a", "c"]],
        (("a", "c"), ("b",), (), ("c", "a")),
        [{"a", "c"}, {"b"}, set(), frozenset("ac")],
        [("a", "c"), ["b"], frozenset(), {"c", "a"}],
        [np.array(["a", "c"]), np.array(["b"]), np.array([], dtype=str), ["a", "c"]],
        [{"a": 1, "c": 2}.keys(), ["b"], [], ["a", "c"]],
        np.array([["a", "c"], ["b"], [], ["a", "c"]], dtype=object),
        pd.Series([["a", "c"], ["b"], [], ["a", "c"]]),
        pl.Series([["a", "c"], ["b"], [], ["a", "c"]]),
    ],
    ids=lambda Y: type(Y).__name__,
)
def test_tags(Y):
    assert is_tags(Y)
    labels = as_labels(Y)
    assert labels.names.tolist() == ["a", "b", "c"]
    assert_array_equal(labels.signs, [[1, -1, 1], [-1, 1, -1], [-1, -1, -1], [1, -1, 1]])


@pytest.mark.parametrize("nobody", [None, NAN, np.float64("nan")])
def test_a_sample_nobody_looked_at(nobody):
    for Y in ([["a"], nobody, ["b"]], pd.Series([["a"], nobody, ["b"]])):
        assert_array_equal(as_labels(Y).signs, [[1, -1], [0, 0], [-1, 1]])


def test_a_polars_series_with_a_null():
    assert_array_equal(as_labels(pl.Series([["a"], None, ["b"]])).signs, [[1, -1], [0, 0], [-1, 1]])


def test_numbers_as_tags_come_in_sets():
    labels = as_labels([{30, 10}, {np.int64(20)}, set()])
    assert labels.names.tolist() == [10, 20, 30]
    assert_array_equal(labels.signs, [[1, -1, 1], [-1, 1, -1], [-1, -1, -1]])


def test_tags_of_new_samples_follow_the_given_names():
    names = as_labels([["sky", "sea"], ["tree"]]).names
    assert_array_equal(as_labels([["tree"], []], names=names).signs, [[-1, -1, 1], [-1, -1, -1]])
    labels = as_labels([["tree"], ["sea"]], names=["tree", "sky", "sea"])
    assert labels.names.tolist() == ["tree", "sky", "sea"]
    assert_array_equal(labels.signs, [[1, -1, -1], [-1, -1, 1]])


@pytest.mark.parametrize("Y", [[[], []], [set(), set()], pd.Series([[], []])], ids=["lists", "sets", "series"])
def test_samples_without_any_tag_need_the_names(Y):
    assert_array_equal(as_labels(Y, names=["a", "b", "c"]).signs, -np.ones((2, 3)))
    with pytest.raises(ValueError, match="Y is empty: 2 samples, 0 labels"):
        as_labels(Y)


def test_unknown_tags_are_listed():
    with pytest.raises(ValueError, match=r"test labels has tags that are not among the 2 known labels: cat, dog\."):
        as_labels([["dog", "sky"], ["cat"]], names=["sea", "sky"], what="test labels")
    with pytest.raises(ValueError, match=r"0, 1, 2, 3, 4, \.\.\."):
        as_labels([set(range(9))], names=["sea", "sky"])


@pytest.mark.parametrize(
    "Y",
    [
        np.array([["a", "b"]]),
        COMPLETE,
        np.array(COMPLETE),
        np.array(COMPLETE, dtype=object),
        pd.DataFrame(COMPLETE),
        sparse.eye_array(3),
        "abc",
        b"abc",
        None,
        3,
        [],
        ["a", "b"],
        [["a"], "b"],
        pd.Series([1, 0]),
        pd.Series(["a", "b"]),
        [None, None],
    ],
    ids=repr,
)
def test_what_is_no_list_of_tags(Y):
    assert not is_tags(Y)


@pytest.mark.parametrize(
    ("Y", "error", "message"),
    [
        ([[1, 0], [2, 1]], ValueError, r"row 1, column 0 is 2\. Numbers as tags are given as a set a sample\."),
        ([[0.5, 0]], ValueError, "row 0, column 0 is 0.5"),
        ([[np.inf, 0]], ValueError, "row 0, column 0 is inf"),
        ([[1, 0], [-1, 1]], ValueError, "mixes 0 and -1.*NaN where"),
        ([[1, 0], [-1, NAN]], ValueError, "mixes 0 and -1"),
        (sparse.csr_array([[1, 0], [0, -1]]), ValueError, "mixes 0 and -1"),
        (np.array([1, 0, 1]), ValueError, r"must be a label matrix .* got an array of shape \(3,\)"),
        (pd.Series([1, 0, 1]), ValueError, r"got an array of shape \(3,\)"),
        (np.zeros((2, 2, 2)), ValueError, r"got an array of shape \(2, 2, 2\)"),
        ([], ValueError, r"got an array of shape \(0,\)"),
        (None, ValueError, "got NoneType"),
        ("sky", ValueError, "got str"),
        ({"sky": [1, 0]}, ValueError, "got dict"),
        (["sky", "sea"], ValueError, r"got an array of shape \(2,\)"),
        (np.zeros((0, 3)), ValueError, "Y is empty: 0 samples, 3 labels"),
        (np.zeros((3, 0)), ValueError, "Y is empty: 3 samples, 0 labels"),
        (pd.DataFrame(index=[0, 1]), ValueError, "Y is empty: 2 samples, 0 labels"),
        ([[1, 0], [1]], ValueError, "rows of Y differ in length or kind.*a set, a sample"),
        (np.array([[1, 2], [3]], dtype=object), ValueError, "rows of Y differ in length or kind"),
        ([["sky"], "sea"], ValueError, "rows of Y differ in length or kind"),
        (np.array([["sky", "sea"]]), ValueError, "must hold numbers.*list of tags"),
        (np.array([["1", "0"]]), ValueError, "must hold numbers"),
        (np.array([["1", 0]], dtype=object), ValueError, "must hold numbers"),
        (np.array([[b"1", 0]], dtype=object), ValueError, "must hold numbers"),
        (pd.DataFrame({"sky": ["1", "0"]}), ValueError, "must hold numbers"),
        (pd.DataFrame({"tags": [["sky"], ["sea"]]}), ValueError, "must hold numbers.*list of tags"),
        (pl.DataFrame({"sky": ["1", "0"]}), ValueError, "must hold numbers"),
        (np.array([[1 + 0j, 0]]), ValueError, "must hold numbers"),
        (np.array([["1970-01-02"]], dtype="datetime64[D]"), ValueError, "must hold numbers"),
        ([[1j, None]], ValueError, "must hold numbers"),
        (np.zeros(2, dtype=[("sky", int)]).reshape(1, 2), ValueError, "must hold numbers"),
        ([["sky", 3]], ValueError, "all strings or all numbers, got both"),
        ([["sky"], ["sea", None]], TypeError, r"row 1 has None \(NoneType\)"),
        ([["sky", NAN]], TypeError, r"row 0 has nan \(float\)"),
        ([{("sky", "sea")}], TypeError, "strings or numbers, row 0 has .*tuple"),
        ([["sky"], [["sea"]]], TypeError, r"row 1 has \['sea'\] \(list\)"),
        ([{datetime.date(2020, 1, 1)}], TypeError, "row 0 has .*date"),
        ([{"sky": 1, "sea": 0}], TypeError, "Row 0 of Y is a mapping; give only its relevant labels"),
        (pl.DataFrame({"sky": [1, 0]}).lazy(), TypeError, "Y is a LazyFrame.*collect"),
        (pd.DataFrame([[1, 0]], columns=["sky", "sky"]), ValueError, "columns of Y must differ, 'sky' occurs twice"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else value[:40],
)
@pytest.mark.filterwarnings("ignore::polars.exceptions.PerformanceWarning")  # a lazy frame is asked for its columns
def test_refusals_say_what_was_given(Y, error, message):
    with pytest.raises(error, match=message):
        as_labels(Y)


@pytest.mark.parametrize(("value", "expected"), [(1, 1), (0, -1), (-1, -1), (NAN, 0), (True, 1), (None, 0)])
def test_a_matrix_of_one_value(value, expected):
    assert_array_equal(as_labels([[value] * 2] * 3).signs, np.full((3, 2), expected))


@pytest.mark.parametrize("Y", [frame(COMPLETE), by_column(COMPLETE, pl.Int8)], ids=["pandas", "polars"])
def test_names_come_from_the_columns_and_are_checked(Y):
    labels = as_labels(Y)
    assert labels.names.tolist() == COLUMNS
    assert as_labels(Y, names=labels.names).names.tolist() == COLUMNS
    with pytest.raises(ValueError, match=r"column 0 is 'tree', expected 'sky'\. Choose and reorder them by name"):
        as_labels(Y[["tree", "sea", "sky"]], names=labels.names)
    with pytest.raises(ValueError, match="labels of test has 2 label columns, expected 3"):
        as_labels(Y[["sky", "sea"]], names=labels.names, what="labels of test")


def test_columns_without_names_go_by_position():
    names = as_labels(frame(COMPLETE)).names
    for Y in (COMPLETE, np.array(COMPLETE), pd.DataFrame(COMPLETE), sparse.csr_array(COMPLETE)):
        assert as_labels(Y).names.tolist() == [0, 1, 2]
        assert as_labels(Y, names=names).names.tolist() == COLUMNS
    assert as_labels(frame(COMPLETE), names=np.arange(3)).names.tolist() == [0, 1, 2]


def test_numbers_as_names_of_columns_are_names():
    Y = pd.DataFrame(COMPLETE, columns=[30, 10, 20])
    names = as_labels(Y).names
    assert names.tolist() == [30, 10, 20]
    with pytest.raises(ValueError, match="column 0 is 10, expected 30"):
        as_labels(Y[[10, 20, 30]], names=names)
    with pytest.raises(ValueError, match="column 0 is 2, expected 0"):
        as_labels(pd.DataFrame(COMPLETE, columns=[2, 0, 1]), names=[0, 1, 2])


@pytest.mark.parametrize("Y", [COMPLETE, [["a"], ["b"]], as_labels(COMPLETE)], ids=["matrix", "tags", "labels"])
def test_names_must_be_different_and_a_vector(Y):
    with pytest.raises(ValueError, match="names of the labels must differ, 'a' occurs twice"):
        as_labels(Y, names=["a", "b", "a"])
    with pytest.raises(ValueError, match=r"must be a vector, got an array of shape \(1, 2\)"):
        as_labels(Y, names=[["a", "b"]])


def test_labels_are_read_once():
    labels = as_labels(frame(PARTLY))
    assert as_labels(labels) is labels
    assert as_labels(labels, names=COLUMNS).names.tolist() == COLUMNS
    with pytest.raises(ValueError, match="column 0 is 'sky', expected 'sea'"):
        as_labels(labels, names=["sea", "sky", "tree"])
    with pytest.raises(ValueError, match="has 3 label columns, expected 2"):
        as_labels(labels, names=["sky", "sea"])


def test_what_is_read_is_not_changed_and_not_shared():
    for Y in (np.array(PARTLY), np.array(COMPLETE, dtype=np.int8), np.ma.array(COMPLETE, mask=np.isnan(PARTLY))):
        before = Y.copy()
        as_labels(Y).signs[:] = 1
        assert_array_equal(np.ma.getdata(Y), np.ma.getdata(before))


def test_labels_compare_and_pickle():
    labels = as_labels(PARTLY)
    again = pickle.loads(pickle.dumps(labels))
    assert_array_equal(again.signs, labels.signs)
    assert again.irrelevant_as == labels.irrelevant_as
    assert (labels == again) is False  # by identity: arrays have no single truth
    assert isinstance(hash(labels), int)


matrices = st.sampled_from([0, -1]).flatmap(
    lambda low: st.tuples(st.integers(1, 6), st.integers(1, 5)).flatmap(
        lambda shape: arrays(np.float64, shape, elements=st.sampled_from([1.0, float(low), NAN]))
    )
)


@given(matrices)
def test_writing_gives_back_what_was_read(Y):
    labels = as_labels(Y)
    written = labels.write(labels.signs)
    assert_array_equal(written, Y)
    assert written.dtype.kind == ("f" if np.isnan(Y).any() else "i")
    assert_array_equal(as_labels(written).signs, labels.signs)


@given(matrices)
def test_every_container_reads_the_same(Y):
    expected = np.array([[0 if np.isnan(v) else 1 if v > 0 else -1 for v in row] for row in Y])
    columns = [f"label {k}" for k in range(Y.shape[1])]
    for same in (
        Y,
        Y.tolist(),
        np.ma.masked_invalid(Y),
        sparse.csr_array(Y) if not (Y == -1).any() else Y,
        pd.DataFrame(Y, columns=columns),
        pd.DataFrame(Y, columns=columns).astype("Int64"),
        pl.DataFrame(Y, schema=columns),
        pl.DataFrame(Y, schema=columns).fill_nan(None),
    ):
        assert_array_equal(as_labels(same).signs, expected)


@given(st.lists(st.sets(st.sampled_from("abcdef")), min_size=1, max_size=8).filter(any))
def test_tags_and_their_matrix_agree(rows):
    labels = as_labels(rows)
    assert [set(labels.names[row > 0].tolist()) for row in labels.signs] == rows
    assert_array_equal(as_labels([sorted(row) for row in rows]).signs, labels.signs)
    table = pd.DataFrame(labels.write(labels.signs), columns=labels.names)
    assert_array_equal(as_labels(table, names=labels.names).signs, labels.signs)
    assert isinstance(labels, Labels)
