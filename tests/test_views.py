"""Containers of views and precomputed kernels."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples, check_array

from kernelweave.kernels import Gaussian, KernelBank
from kernelweave.views import KernelStack, Views, as_views

RNG = np.random.default_rng(0)
A, B = RNG.normal(size=(40, 3)), RNG.normal(size=(40, 2)).astype(np.float32)


class NearestTraining(ClassifierMixin, BaseEstimator):
    """Class of the training sample with the largest mean kernel: the smallest estimator over a bank."""

    def __init__(self, kernels=None, power=1.0):
        self.kernels = kernels
        self.power = power

    def fit(self, X, y):
        bank = KernelBank(self.kernels).build(X)
        self.classes_ = np.unique(y)
        self.y_ = np.asarray(y)
        self.expansion_ = bank.expansion(np.arange(bank.n_kernels), np.arange(bank.n_samples))
        return self

    def predict(self, X):
        return self.y_[self.expansion_.cross(X).mean(axis=0).argmax(axis=1)]


def test_shape_names_and_arrays_are_those_given():
    views = Views({"a": A, "b": B, "c": [[1]] * 40})
    assert views.shape == (40, 6)
    assert len(views) == views.n_samples == 40
    assert views.names == ("a", "b", "c")
    assert views["a"] is A
    assert views["b"].dtype == np.float32
    assert views["c"].dtype == np.float64
    assert "a" in views
    assert "z" not in views
    assert repr(views) == "Views(40 samples; 'a': 3 columns, 'b': 2 columns, 'c': 1 columns)"


@pytest.mark.parametrize(
    "rows", [[3, 1, 1], np.array([0, -1]), np.arange(40) % 3 == 0, slice(2, 9, 2), slice(0, 0), []], ids=repr
)
def test_rows_are_taken_from_every_view(rows):
    views = Views({"a": A, "b": B})
    index = np.asarray(rows, dtype=int) if isinstance(rows, list) else rows
    assert_array_equal(views[rows]["a"], A[index])
    assert_array_equal(views[rows]["b"], B[index])
    assert_array_equal(_safe_indexing(views, rows)["a"], A[index])
    assert _num_samples(views[rows]) == len(A[index])


def test_views_pickle():
    views = pickle.loads(pickle.dumps(Views({"a": A, "b": B})))
    assert_array_equal(views["b"], B)


@pytest.mark.parametrize(
    ("arrays", "error", "message"),
    [
        ({}, ValueError, "at least one view"),
        ([A], TypeError, "mapping of view names to 2-D arrays, got list"),
        ({"a": A, "b": B[:39]}, ValueError, "view 'b' has 39 rows but view 'a' has 40"),
        ({"a": A[:, 0]}, ValueError, r"view 'a' must have the shape \(n_samples, n_columns\), got \(40,\)"),
        ({"a": A[:0]}, ValueError, "view 'a' is empty"),
        ({"a": A[:, :0]}, ValueError, r"view 'a' is empty: its shape is \(40, 0\)"),
        ({"a": A, "b": np.where(B[5, 1] == B, np.nan, B)}, ValueError, "view 'b' contains NaN at row 5, column 1"),
        ({"a": np.where(A[2, 0] == A, -np.inf, A)}, ValueError, "view 'a' contains -inf at row 2, column 0"),
        ({"a": sparse.csr_array(A)}, TypeError, r"view 'a' is a sparse matrix.*call \.toarray\(\)"),
        ({"a": A.astype(str)}, TypeError, "view 'a' must hold real numbers"),
        ({"a": A + 1j}, TypeError, "complex128"),
    ],
)
def test_bad_views_are_refused_by_name(arrays, error, message):
    with pytest.raises(error, match=message):
        Views(arrays)


def test_large_finite_values_are_no_infinities():
    assert Views({"a": np.full((3, 2), 1e308)}).n_samples == 3


def test_bad_rows():
    views = Views({"a": A})
    with pytest.raises(IndexError, match="sample 40 is out of range: there are 40 samples"):
        views[[0, 40]]
    with pytest.raises(IndexError, match="mask has 3 entries but there are 40"):
        views[np.array([True, False, True])]
    with pytest.raises(TypeError, match=r"views\[\[3\]\]"):
        views[3]
    with pytest.raises(TypeError, match="mask or integers"):
        views[[0.5]]
    with pytest.raises(KeyError, match="no view named 'z'; the views are 'a'"):
        views["z"]


def test_one_array_and_columns():
    assert as_views(A).names == ("x",)
    assert as_views(A)["x"] is A
    views = as_views(
        A, columns={"shape": slice(0, 2), "colour": [2], "last": -1, "mask": np.array([True, False, True])}
    )
    assert_array_equal(views["colour"], A[:, [2]])
    assert_array_equal(views["last"], A[:, [2]])
    assert_array_equal(views["mask"], A[:, [0, 2]])
    assert as_views(views) is views
    assert as_views({"a": A}).names == ("a",)
    assert as_views([[1, 2], [3, 4]])["x"].dtype == np.float64
    with pytest.raises(ValueError, match="columns of view 'far' go from 3 to 9, but X has 3 columns"):
        as_views(A, columns={"far": [3, 9]})
    with pytest.raises(ValueError, match="view 'none' has no columns"):
        as_views(A, columns={"none": slice(3, 9)})
    with pytest.raises(TypeError, match="slice or integers"):
        as_views(A, columns={"names": ["a"]})


@pytest.mark.parametrize(
    "X",
    [
        A[:, 0],
        A[:0],
        A[:, :0],
        sparse.csr_array(A),
        A.astype(complex),
        [["a", "b"]],
        A[None],
    ],
    ids=["1-D", "no rows", "no columns", "sparse", "complex", "strings", "3-D"],
)
def test_errors_for_the_form_of_one_array_are_those_of_scikit_learn(X):
    with pytest.raises((ValueError, TypeError)) as theirs:
        check_array(X, dtype=[np.float64, np.float32])
    with pytest.raises(type(theirs.value)) as ours:
        as_views(X)
    assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize(("value", "name"), [(np.nan, "NaN"), (-np.inf, "-inf")])
def test_one_array_says_where_it_is_not_finite(value, name):
    with pytest.raises(ValueError, match=f"X contains {name} at row 1, column 2"):
        as_views(np.where(A[1, 2] == A, value, A))


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_columns_of_frames_are_grouped_by_their_names(frame):
    table = frame({"sift.0": A[:, 0], "gist__mean.red": A[:, 1], "sift.1": A[:, 2], "age": B[:, 0]})
    views = as_views(table)
    assert views.names == ("sift", "gist", "x")
    assert_array_equal(views["sift"], A[:, [0, 2]])
    named = as_views(table, columns={"mine": ["age", "sift.0"], "rest": slice(1, 3), "first": [0]})
    assert_allclose(named["mine"], np.column_stack([B[:, 0], A[:, 0]]))
    assert_array_equal(named["rest"], A[:, 1:])
    assert_array_equal(named["first"], A[:, [0]])
    with pytest.raises(ValueError, match=r"view 'v' asks for columns \['nose'\]"):
        as_views(table, columns={"v": ["nose"]})


def test_top_level_of_a_pandas_multi_index_names_the_views():
    table = pd.DataFrame(A, columns=pd.MultiIndex.from_tuples([("a", 0), ("b", 0), ("a", 1)]))
    views = as_views(table)
    assert_array_equal(views["a"], A[:, [0, 2]])
    assert_array_equal(views["b"], A[:, [1]])


def test_views_go_through_scikit_learn():
    y = np.repeat(["cat", "dog"], 20)
    views = Views({"a": A + 3 * (y == "dog")[:, None], "b": B})
    estimator = NearestTraining([Gaussian()])
    assert cross_val_score(estimator, views, y, cv=4).mean() > 0.8
    search = GridSearchCV(estimator, {"kernels": [[Gaussian(0.1)], [Gaussian()]]}, cv=3).fit(views, y)
    assert search.best_score_ > 0.8
    train, test, y_train, y_test = train_test_split(views, y, random_state=0)
    assert isinstance(train, Views)
    assert search.best_estimator_.fit(train, y_train).score(test, y_test) > 0.8


def test_kernel_stack_goes_through_cross_validation():
    y = np.repeat([0, 1], 20)
    features = A + 3 * y[:, None]
    D = ((features[:, None] - features) ** 2).sum(axis=2)
    stack = KernelStack(np.stack([np.exp(-D), np.exp(-D / 10)]), names=["narrow", "wide"])
    scores = cross_val_score(NearestTraining("precomputed"), stack, y, cv=4)
    assert scores.mean() > 0.8
    order = RNG.permutation(40)
    part = stack[order][:10]
    assert_array_equal(part.rows, order[:10])
    assert part.shape == (10, 40)
    assert part.base is stack.base
    assert repr(part) == "KernelStack(2 kernels; 10 of 40 samples)"
    assert_array_equal(KernelStack(stack.base, rows=[5, 2]).rows, [5, 2])
    assert pickle.loads(pickle.dumps(part)).n_samples == 10


def test_bad_stacks():
    with pytest.raises(ValueError, match="2 kernels need 2 different names"):
        KernelStack(np.stack([np.eye(2)] * 2), names=["a", "a"])
    with pytest.raises(ValueError, match="square shape"):
        KernelStack(np.ones(4))
    with pytest.raises(IndexError, match="sample 3 is out of range"):
        KernelStack(np.eye(3), rows=[3])
    with pytest.raises(TypeError, match="sparse"):
        KernelStack(sparse.eye_array(3))
    big = np.eye(600)
    big[599, 300] = 1e-3
    with pytest.raises(ValueError, match=r"'K0' is not symmetric: entry \(300, 599\) is 0 but .* is 0.001"):
        KernelStack(big)
    big[599, 300] = np.inf
    with pytest.raises(ValueError, match="contains inf at row 599, column 300"):
        KernelStack(big)
