"""The container of bags and its splitter."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.model_selection import GroupKFold, KFold, cross_val_score

import kernelweave as kw
from kernelweave.ambiguity import BagKFold, Bags, MIClassifier, as_bags, bag_labels, set_kernel, whole_bags

X = np.arange(12.0).reshape(6, 2)
GROUPS = ["b", "a", "b", "c", "a", "b"]


def test_a_list_and_groups_are_the_same_bags() -> None:
    together = Bags(X, GROUPS)
    apart = Bags([X[[0, 2, 5]], X[[1, 4]], X[[3]]])
    assert together.ids == ("b", "a", "c") and len(together) == len(apart) == 3
    assert together.bag_of.tolist() == [0, 1, 0, 2, 1, 0]
    assert together.sizes.tolist() == apart.sizes.tolist() == [3, 2, 1]
    for one, other in zip(together, apart, strict=True):
        np.testing.assert_array_equal(one, other)
    assert [together.members(i).tolist() for i in range(3)] == [[0, 2, 5], [1, 4], [3]]
    assert together.n_instances == 6 and together.shape == (3, 2)


@pytest.mark.parametrize(
    "groups",
    [
        np.array([5, 2, 5, 9, 2, 5]),
        [5, 2, 5, 9, 2, 5],
        [(0, 1), 7.5, (0, 1), "c", 7.5, (0, 1)],
        np.array([[5, 2, 5, 9, 2, 5]]).T,
    ],
)
def test_any_hashable_is_an_id(groups: object) -> None:
    assert Bags(X, groups).bag_of.tolist() == [0, 1, 0, 2, 1, 0]  # type: ignore[arg-type]


def test_without_groups_every_row_is_a_bag() -> None:
    bags = as_bags(X)
    assert len(bags) == 6 and bags.sizes.tolist() == [1] * 6
    assert as_bags(bags) is bags
    assert len(as_bags(X.tolist())) == 6
    assert len(as_bags([[[1.0, 2.0]], [[3.0, 4.0], [5.0, 6.0]]])) == 2


@pytest.mark.parametrize("key", [[2, 0], np.array([False, True, True]), slice(1, None), np.array([-1])])
def test_some_bags(key: object) -> None:
    bags = Bags(X, GROUPS)
    part = bags[key]
    numbers = np.arange(3)[key]  # type: ignore[call-overload]
    assert part.ids == tuple(bags.ids[i] for i in numbers)
    for taken, i in zip(part, numbers, strict=True):
        np.testing.assert_array_equal(taken, X[bags.members(i)])
    assert part.bag_of.tolist() == np.repeat(np.arange(len(numbers)), bags.sizes[numbers]).tolist()


def test_a_bag_taken_twice_is_two_bags() -> None:
    part = Bags(X, GROUPS)[[1, 1]]
    assert len(part) == 2 and part.ids == ("a", "a") and part.bag_of.tolist() == [0, 0, 1, 1]


def test_views_and_kernels_in_bags() -> None:
    views = kw.Views({"left": X, "right": X[:, :1]})
    part = Bags(views, GROUPS)[[1]]
    assert isinstance(part.instances, kw.Views)
    np.testing.assert_array_equal(part.instances["right"], X[[1, 4], :1])
    assert isinstance(Bags({"left": X, "right": X}, GROUPS).instances, kw.Views)
    stack = Bags(kw.KernelStack(X @ X.T), GROUPS)[[2, 1]].instances
    assert stack.rows.tolist() == [3, 1, 4]


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize("as_list", [True, False])
def test_frames_keep_the_names_of_their_columns(frame: type, as_list: bool) -> None:
    """In Bags, or as a list of bags: columns are found by name, and others are refused."""
    X = np.random.default_rng(0).normal(size=(30, 3))
    groups, y = np.repeat(np.arange(10), 3), np.arange(10) % 2
    spec = kw.KernelBank(kw.kernels.Gaussian(), columns={"first": ["a"], "rest": ["b", "c"]})
    clf = MIClassifier("instance", "alternation", kernels=spec)

    def described(columns: dict) -> Bags:
        return Bags(
            [frame({n: v[3 * i : 3 * i + 3] for n, v in columns.items()}) for i in range(10)]
            if as_list
            else frame(columns),
            None if as_list else groups,
        )

    bags = described(dict(zip("abc", X.T, strict=True)))
    expected = clone(clf).fit(kw.Views({"first": X[:, :1], "rest": X[:, 1:]}), y, groups)
    np.testing.assert_allclose(
        clf.fit(bags, y).decision_function(bags[[3, 1]]),
        expected.decision_function(kw.Views({"first": X[:, :1], "rest": X[:, 1:]}), groups)[[3, 1]],
        rtol=1e-6,
    )
    assert len(cross_val_score(clf, bags, y, cv=2)) == 2
    with pytest.raises(ValueError, match="feature names should match"):
        clf.decision_function(described({"b": X[:, 1], "a": X[:, 0], "c": X[:, 2]}))
    gaussian = kw.kernels.Gaussian(gamma=1.0)
    np.testing.assert_allclose(
        set_kernel(bags, kernel=gaussian), set_kernel(Bags(X, groups), kernel=gaussian), rtol=1e-12
    )


def test_instances_that_lack_views() -> None:
    rng = np.random.default_rng(0)
    left, right, groups, y = (
        rng.normal(size=(24, 2)),
        rng.normal(size=(24, 2)),
        np.repeat(np.arange(8), 3),
        np.arange(8) % 2,
    )
    right[[2, 7]] = np.nan
    clf = MIClassifier("witness", "alternation", kernels=kw.KernelBank(kw.kernels.Gaussian(), missing="zero"))
    views = {"left": left, "right": right}
    expected = clone(clf).fit(views, y, groups).decision_function(views, groups)
    bags = Bags(views, groups)
    np.testing.assert_allclose(clf.fit(bags, y).decision_function(bags), expected)
    assert len(cross_val_score(clf, bags, y, cv=2)) == 2
    names = [f"{view}.{side}" for view in views for side in "ab"]
    frame = pd.DataFrame(np.hstack([left, right]), columns=names)
    for described in (Bags(frame, groups), Bags([frame.iloc[3 * i : 3 * i + 3] for i in range(8)])):
        np.testing.assert_allclose(clone(clf).fit(described, y).decision_function(described), expected)


def test_precomputed_kernels_in_bags_are_a_stack() -> None:
    K, y = X @ X.T + np.eye(6), [1, 0, 1]
    clf = MIClassifier("instance", "single-instance", kernels="precomputed")
    stack = Bags(kw.KernelStack(K), GROUPS)
    part = clf.fit(stack[[0, 1]], y[:2]).decision_function(stack[[2]])
    assert part.shape == (1,)
    with pytest.raises(ValueError, match=r"precomputed kernel is square, .*Bags\(KernelStack\(K\), groups\)"):
        clf.fit(Bags(K, GROUPS)[[0, 1]], y[:2])


def test_reduce_takes_rows_in_any_order() -> None:
    bags = Bags(X, GROUPS)
    assert bags.reduce(np.maximum, X[:, 0]).tolist() == [10.0, 8.0, 6.0]
    np.testing.assert_array_equal(bags.reduce(np.add, X), [X[[0, 2, 5]].sum(0), X[[1, 4]].sum(0), X[3]])


def test_labels_of_bags_from_rows() -> None:
    bags = Bags(X, GROUPS)
    assert bag_labels([1, 0, 1, 0, 0, 1], bags).tolist() == [1, 0, 0]
    assert bag_labels(["x", "y", "z"], bags).tolist() == ["x", "y", "z"]
    with pytest.raises(ValueError, match=r"bag 'a' has the labels 0 and 1: the rows of a bag share"):
        bag_labels([1, 0, 1, 0, 1, 1], bags)
    for missing in ([1, None, 0], [1, np.nan, 0], pd.Series(["a", None, "b"], dtype="string")):
        with pytest.raises(ValueError, match="y contains NaN or None: every bag needs a label"):
            bag_labels(missing, bags)
    with pytest.raises(ValueError, match="y has 4 labels, but there are 3 bags of 6 instances"):
        bag_labels([1, 0, 1, 0], bags)


@pytest.mark.parametrize(
    ("instances", "groups", "message"),
    [
        ([X, np.empty((0, 2))], None, r"bag 1 is empty: its shape is \(0, 2\)"),
        ([X, []], None, "bag 1 is empty"),
        ([X, X[:, :1]], None, "bag 1 has 1 columns but bag 0 has 2"),
        ([X, X[0]], None, r"bag 1 must have the shape \(n_instances, n_columns\)"),
        ([X, np.array([[np.nan, 1.0]])], None, "bag 1 contains NaN at row 0, column 0"),
        ([X, X], [0, 1], "groups say which rows of ONE array are a bag"),
        (X, [0, 1], "groups has 2 entries but there are 6 instances"),
        (X, [0, 1, np.nan, 1, 1, 1], "groups contains nan at row 2"),
        (X, ["a", None, "b", "b", "b", "b"], "groups contains None at row 1"),
        (X, pd.Series([0, 1, 1, None, 0, 1], dtype="Int64"), "groups contains <NA> at row 3"),
        ([pd.DataFrame({"a": [1.0]}), pd.DataFrame({"b": [1.0]})], None, r"bag 1 has the columns \['b'\], but bag 0"),
        ([pd.DataFrame([[1.0, 2.0]], columns=["a", "a"])] * 2, None, "columns need different names, got"),
        (pd.DataFrame({"a": [np.nan, 1.0], "b": [1.0, 2.0]}), [0, 1], "view 'x' contains NaN at row 0, column 0"),
        ([pd.DataFrame({"a": [np.nan], "b": [1.0]})] * 2, None, "view 'x' contains NaN at row 0, column 0"),
        (pd.DataFrame({"a": []}), [], "0 sample|no rows|empty"),
        (np.where(X == 3, np.nan, X), GROUPS, "NaN"),
        (Bags(X), GROUPS, "X is a Bags object, which knows its bags"),
        (np.empty((0, 2)), None, "0 sample"),
        ([], None, "Expected 2D array|empty|0 sample"),
        (X[0], None, "Expected 2D array"),
    ],
)
def test_refuses_what_is_no_bags(instances: object, groups: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        as_bags(instances, groups)  # type: ignore[arg-type]


def test_no_bag_is_no_bags() -> None:
    with pytest.raises(IndexError, match="no bag is chosen"):
        Bags(X, GROUPS)[[]]
    with pytest.raises(TypeError, match="one sample is taken with a slice or a list"):
        Bags(X, GROUPS)[1]


def many_bags(n: int = 40) -> tuple[Bags, np.ndarray]:
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 6, n)
    groups = rng.permutation(np.repeat(np.arange(n), sizes))
    bags = Bags(rng.standard_normal((len(groups), 3)), groups)
    return bags, (np.arange(n) < 16).astype(int)


@pytest.mark.parametrize("shuffle", [False, True])
def test_folds_are_stratified_and_every_bag_is_tested_once(shuffle: bool) -> None:
    bags, y = many_bags()
    splitter = BagKFold(4, shuffle=shuffle, random_state=0 if shuffle else None)
    assert splitter.get_n_splits() == 4
    tested = []
    for train, test in splitter.split(bags, y):
        assert y[test].sum() == 4 and len(test) == 10
        assert sorted([*train, *test]) == list(range(40))
        tested += test.tolist()
    assert sorted(tested) == list(range(40))


def test_folds_of_rows_cut_no_bag() -> None:
    bags, y = many_bags()
    rows = list(BagKFold(4).split(bags.instances, y[bags.bag_of], bags.bag_of))
    for (train, test), (train_bags, test_bags) in zip(rows, BagKFold(4).split(bags, y), strict=True):
        assert bags.of_rows(train).tolist() == train_bags.tolist()
        assert bags.of_rows(test).tolist() == test_bags.tolist()
        assert sorted([*train, *test]) == list(range(bags.n_instances))


def test_splits_that_cut_a_bag_are_refused() -> None:
    bags, _ = many_bags()
    rows = bags.instances
    with pytest.raises(ValueError, match=r"bag \d+ has \d+ instances but \d+ of its rows are taken .* Use BagKFold"):
        list(whole_bags(KFold(4).split(rows), bags.bag_of))
    kept = list(whole_bags(GroupKFold(4).split(rows, groups=bags.bag_of), bags.bag_of))
    assert len(kept) == 4


def test_a_splitter_needs_labels_and_folds() -> None:
    bags, _ = many_bags()
    with pytest.raises(ValueError, match="stratifies by the labels of bags"):
        next(BagKFold(4).split(bags))
    with pytest.raises(ValueError, match="n_splits"):
        BagKFold(1)


def test_cross_validation_of_bags_lists_and_rows_agree() -> None:
    bags, y, _ = kw.datasets.make_bags(n_bags=24, random_state=0)
    clf = MIClassifier(method="alternation", C=10.0, kernels=kw.kernels.Gaussian(gamma=0.5))
    in_list = cross_val_score(clf, bags, y, cv=BagKFold(3))
    in_bags = cross_val_score(clf, Bags(bags), y, cv=BagKFold(3))
    np.testing.assert_array_equal(in_list, in_bags)
    together = Bags(bags)
    by_rows = [
        clf.fit(together.instances[train], y[together.bag_of[train]], together.bag_of[train]).score(
            together.instances[test], y[together.bag_of[test]], groups=together.bag_of[test]
        )
        for train, test in BagKFold(3).split(together.instances, y, together.bag_of)
    ]
    np.testing.assert_array_equal(in_list, by_rows)
