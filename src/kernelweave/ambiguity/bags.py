"""Bags: samples made of several instances, with a label a bag but none an instance."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from sklearn.model_selection import BaseCrossValidator, StratifiedKFold
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets, type_of_target

from ..labels import has_missing, is_missing
from ..views import KernelStack, Views, _as_float, as_row_index, as_views, check_finite

Index = NDArray[np.intp]


class Bags:
    """Instances in bags, indexable by bag so that scikit-learn's cross-validation works.

    Parameters
    ----------
    instances : list of arrays or frames of shape (size of the bag, n_columns); or array of shape
        (n_instances, n_columns), Views, mapping of names to arrays, frame or KernelStack
        One array a bag, or the instances of all bags together. Kernels that are computed already are a KernelStack,
        which knows that samples are on both sides of a matrix.
    groups : sequence of n_instances hashable ids, optional
        The bag of each instance, in any order; bags are numbered as they first appear. Only when all instances come
        together; without groups, each is a bag of its own.

    Attributes
    ----------
    instances : array of shape (n_instances, n_columns), frame, Views or KernelStack
    bag_of : array of int of shape (n_instances,)
        Number of the bag of each instance.
    ids : tuple
        What `groups` calls the bags; their numbers where there were no groups.
    sizes : array of int of shape (n_bags,)

    Notes
    -----
    ``bags[which]``, with an integer array, a mask or a slice, is a `Bags` of these bags, their instances one bag after
    the other. ``list(bags)`` is the list of the instances of every bag.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.ambiguity import Bags
    >>> bags = Bags([np.ones((2, 3)), np.zeros((1, 3))])
    >>> len(bags), bags.instances.shape, bags.bag_of.tolist()
    (2, (3, 3), [0, 0, 1])
    >>> bags = Bags(np.arange(8.0).reshape(4, 2), groups=["b", "a", "b", "b"])
    >>> bags.members(0).tolist(), bags[[1]].instances.tolist()
    ([0, 2, 3], [[2.0, 3.0]])
    """

    def __init__(self, instances: Any, groups: Iterable | None = None) -> None:
        ids: tuple
        if is_list_of_bags(instances):
            if groups is not None:
                raise ValueError(
                    "groups say which rows of ONE array are a bag; a list of arrays needs none: leave them out."
                )
            rows = _stacked(instances)
            bag_of, ids = np.repeat(np.arange(len(instances)), [len(bag) for bag in instances]), ()
        else:
            rows = _together(instances)
            bag_of, ids = _numbered(groups, len(rows))
        self._set(rows, bag_of, ids or tuple(range(int(bag_of.max()) + 1)))

    def _set(self, instances: Any, bag_of: Index, ids: tuple) -> None:
        self.instances = instances
        self.bag_of = bag_of
        self.ids = ids
        self.sizes = np.bincount(bag_of, minlength=len(ids))
        self._order = np.argsort(bag_of, kind="stable")
        self._ends = np.cumsum(self.sizes)

    @property
    def n_instances(self) -> int:
        """Number of instances of all bags."""
        return len(self.bag_of)

    @property
    def shape(self) -> tuple[int, int]:
        """``(n_bags, n_columns)``."""
        return len(self), self.instances.shape[1]

    def __len__(self) -> int:
        return len(self.ids)

    def members(self, bag: int | np.integer) -> Index:
        """Rows of the instances of one bag, ascending."""
        return self._order[self._ends[bag] - self.sizes[bag] : self._ends[bag]]

    def rows(self, which: Index) -> Index:
        """Rows of the instances of some bags, one bag after the other."""
        sizes = self.sizes[which]
        within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return self._order[np.repeat(self._ends[which] - sizes, sizes) + within]

    def reduce(self, operation: np.ufunc, values: NDArray) -> NDArray:
        """One value a bag from those of its instances: ``bags.reduce(np.maximum, scores)``.

        Parameters
        ----------
        operation : ufunc of two arguments
        values : array of shape (n_instances, ...)

        Returns
        -------
        array of shape (n_bags, ...)
        """
        return operation.reduceat(values[self._order], self._ends - self.sizes, axis=0)

    def __getitem__(self, key: Any) -> Bags:
        which = np.arange(len(self))[as_row_index(key, len(self))]
        if len(which) == 0:
            raise IndexError("no bag is chosen: Bags hold at least one bag.")
        part = Bags.__new__(Bags)
        bag_of = np.repeat(np.arange(len(which)), self.sizes[which])
        # A bag that is taken twice is two bags, of the same name.
        part._set(_take(self.instances, self.rows(which)), bag_of, tuple(self.ids[i] for i in which))
        return part

    def holding(self, instances: Any) -> Bags:
        """The same bags, of other descriptions of their instances, row by row."""
        same = Bags.__new__(Bags)
        same._set(instances, self.bag_of, self.ids)
        return same

    def __iter__(self) -> Iterator[Any]:
        return (_take(self.instances, self.members(i)) for i in range(len(self)))

    def __repr__(self) -> str:
        return (
            f"Bags({len(self)} bags of {self.sizes.min()} to {self.sizes.max()} instances; {self.n_instances} in all)"
        )

    def of_rows(self, rows: ArrayLike) -> Index:
        """Numbers of the bags that some rows are; rows that cut a bag are refused.

        Examples
        --------
        >>> import numpy as np
        >>> from kernelweave.ambiguity import Bags
        >>> Bags(np.ones((4, 2)), groups=[0, 0, 1, 1]).of_rows([2, 3]).tolist()
        [1]
        """
        seen = np.bincount(self.bag_of[as_row_index(rows, self.n_instances)], minlength=len(self))
        cut = np.flatnonzero((seen > 0) & (seen != self.sizes))
        if len(cut):
            raise ValueError(
                f"bag {self.ids[cut[0]]!r} has {self.sizes[cut[0]]} instances but {seen[cut[0]]} of its rows are taken "
                f"({len(cut)} bag(s) are cut in all): a bag goes whole to one side of a split. Use BagKFold."
            )
        return np.flatnonzero(seen)


def as_bags(X: Any, groups: Iterable | None = None) -> Bags:
    """Read X as `Bags`; see there for the forms it may have.

    Examples
    --------
    >>> from kernelweave.ambiguity import as_bags
    >>> as_bags([[0.0, 1.0], [2.0, 3.0]])
    Bags(2 bags of 1 to 1 instances; 2 in all)
    """
    if not isinstance(X, Bags):
        return Bags(X, groups)
    if groups is not None:
        raise ValueError("X is a Bags object, which knows its bags: leave groups out.")
    return X


def bag_labels(y: ArrayLike, bags: Bags) -> NDArray:
    """One label a bag, from labels of bags or of rows.

    Parameters
    ----------
    y : array of shape (n_bags,) or (n_instances,)
        Labels of rows must agree within a bag.
    bags : Bags

    Returns
    -------
    array of shape (n_bags,)

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.ambiguity import Bags, bag_labels
    >>> bag_labels(["yes", "no", "no"], Bags(np.ones((3, 2)), groups=[0, 1, 1])).tolist()
    ['yes', 'no']
    """
    if has_missing(y):
        raise ValueError("y contains NaN or None: every bag needs a label. Leave bags without one out.")
    labels = column_or_1d(y, warn=True)
    if len(labels) == len(bags):
        return labels
    if len(labels) != bags.n_instances:
        raise ValueError(
            f"y has {len(labels)} labels, but there are {len(bags)} bags of {bags.n_instances} instances in all: "
            "give one label a bag, or one a row."
        )
    first = labels[bags._order[bags._ends - bags.sizes]]
    differ = np.flatnonzero(labels != first[bags.bag_of])
    if len(differ):
        bag = bags.bag_of[differ[0]]
        one, other = first[[bag]].tolist() + labels[differ[:1]].tolist()
        raise ValueError(
            f"bag {bags.ids[bag]!r} has the labels {one!r} and {other!r}: the rows of a bag share "
            "the label of the bag. If these are labels of instances, take their maximum."
        )
    return first


def positive_bags(y: Any, bags: Bags, who: str) -> tuple[NDArray, NDArray[np.bool_]]:
    """The two classes of bags, and which bags are of the second: of shape (n_bags,). Errors name `who` needs them."""
    if y is None:
        raise ValueError(f"This {who} requires y to be passed, but the target y is None.")
    labels = bag_labels(y, bags)
    check_classification_targets(labels)
    classes = np.unique(labels)
    if len(classes) < 2:
        raise ValueError(
            f"{who} needs positive and negative bags, but y contains only one class: {classes.tolist()[0]!r}."
        )
    if len(classes) > 2:
        raise ValueError(
            f"Only binary classification is supported. The type of the target is {type_of_target(labels)}, with "
            f"{len(classes)} classes: use OneVsRestClassifier."
        )
    return classes, labels == classes[1]


class BagKFold(BaseCrossValidator):
    """K-fold cross-validation over bags: no bag is cut, and folds have like shares of every bag label.

    Parameters
    ----------
    n_splits : int, default=5
    shuffle : bool, default=False
        Take the bags in random order.
    random_state : int, RandomState or None
        With `shuffle` only.

    Notes
    -----
    ``split(bags, y)`` gives numbers of bags. ``split(X, y, groups)``, with the instances of all bags in one array,
    gives rows.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.ambiguity import BagKFold
    >>> groups, y = [0, 0, 1, 2, 2, 3], [0, 0, 1, 1, 1, 0]
    >>> for _, test in BagKFold(2).split(np.ones((6, 2)), y, groups):
    ...     print(test.tolist())
    [0, 1, 2]
    [3, 4, 5]
    """

    def __init__(
        self, n_splits: int = 5, *, shuffle: bool = False, random_state: int | RandomState | None = None
    ) -> None:
        StratifiedKFold(n_splits, shuffle=shuffle, random_state=random_state)  # refuses wrong settings here
        self.n_splits = n_splits
        self.shuffle = shuffle
        self.random_state = random_state

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Number of folds."""
        return self.n_splits

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[tuple[Index, Index]]:
        """Training and test indices: of bags if X is `Bags` or a list of bags, of rows if `groups` are given.

        Parameters
        ----------
        X : Bags, list of bags, or data of n_instances rows
        y : array of shape (n_bags,) or (n_instances,)
        groups : sequence of n_instances ids, optional

        Yields
        ------
        train, test : arrays of int
        """
        bags = as_bags(X, groups)
        if y is None:
            raise ValueError("BagKFold stratifies by the labels of bags: call split(X, y).")
        folds = StratifiedKFold(self.n_splits, shuffle=self.shuffle, random_state=self.random_state)
        for train, test in folds.split(np.zeros((len(bags), 1)), bag_labels(y, bags)):
            yield (train, test) if groups is None else (np.sort(bags.rows(train)), np.sort(bags.rows(test)))


def whole_bags(splits: Iterable[tuple[Index, Index]], groups: Iterable) -> Iterator[tuple[Index, Index]]:
    """The splits of any splitter over rows, refusing those that cut a bag.

    Parameters
    ----------
    splits : iterable of (train, test)
        Rows, as ``KFold().split(X)`` gives them.
    groups : sequence of ids
        The bag of each row.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.model_selection import GroupKFold
    >>> from kernelweave.ambiguity import whole_bags
    >>> X, groups = np.ones((4, 1)), [0, 0, 1, 1]
    >>> [test.tolist() for _, test in whole_bags(GroupKFold(2).split(X, groups=groups), groups)]
    [[2, 3], [0, 1]]
    """
    groups = list(groups)
    bags = Bags(np.zeros((len(groups), 1)), groups)
    for train, test in splits:
        bags.of_rows(train)
        bags.of_rows(test)
        yield train, test


def is_list_of_bags(X: Any) -> bool:
    """Whether X is a sequence of 2-D arrays (or frames); a nested list of numbers is one array."""
    if not isinstance(X, Sequence) and not (isinstance(X, np.ndarray) and X.dtype == object and X.ndim == 1):
        return False
    return any(getattr(bag, "ndim", 0) == 2 or is_frame(bag) or _depth(bag) == 2 for bag in X)


def _depth(nested: Any) -> int:
    depth = 0
    while isinstance(nested, (list, tuple)):
        depth += 1
        nested = nested[0] if len(nested) else None
    return depth


def is_frame(X: Any) -> bool:
    """Whether X is a pandas or polars frame."""
    return hasattr(X, "columns") and (hasattr(X, "iloc") or hasattr(X, "select"))


def _take(instances: Any, rows: Index) -> Any:
    return instances.iloc[rows] if hasattr(instances, "iloc") else instances[rows]


def _stacked(bags: Sequence) -> Any:
    """The instances of all bags: an array, or of frames a frame."""
    arrays: list[NDArray] = []
    for i, bag in enumerate(bags):
        array = _as_float(bag, f"bag {i}")
        if array.size == 0:
            raise ValueError(f"bag {i} is empty: its shape is {array.shape}. A bag needs an instance: leave it out.")
        if array.ndim != 2:
            raise ValueError(f"bag {i} must have the shape (n_instances, n_columns), got {array.shape}.")
        if arrays and array.shape[1] != arrays[0].shape[1]:
            raise ValueError(
                f"bag {i} has {array.shape[1]} columns but bag 0 has {arrays[0].shape[1]}: all instances need the same."
            )
        if not is_frame(bag):
            check_finite(array, f"bag {i}")
        arrays.append(array)
    together = np.concatenate(arrays)
    return _as_frame(bags, together) if all(map(is_frame, bags)) else as_views(together)["x"]


def _as_frame(bags: Sequence, together: NDArray) -> Any:
    """The values of frames, one below the other, as a frame."""
    names = list(bags[0].columns)
    if len(set(names)) != len(names):
        raise ValueError(f"columns need different names, got {names}.")
    differ = [i for i, bag in enumerate(bags) if list(bag.columns) != names]
    if differ:
        raise ValueError(
            f"bag {differ[0]} has the columns {list(bags[differ[0]].columns)}, but bag 0 has {names}: all instances "
            "need the same, in the same order."
        )
    return _together(type(bags[0])(dict(zip(names, together.T, strict=True))))


def _together(X: Any) -> Any:
    if isinstance(X, (Views, KernelStack)):
        return X
    if is_frame(X):
        as_views(X, incomplete=True)  # refuses what is no number, here and by name
        return X
    return as_views(X, incomplete=True) if isinstance(X, Mapping) else as_views(X)["x"]


def _numbered(groups: Iterable | None, n_instances: int) -> tuple[Index, tuple]:
    """Number of the bag of each row, and what the bags are called."""
    if groups is None:
        return np.arange(n_instances), tuple(range(n_instances))
    if getattr(groups, "ndim", 1) == 2:
        groups = column_or_1d(groups)
    listed = [group.item() if isinstance(group, np.generic) else group for group in groups]
    if len(listed) != n_instances:
        raise ValueError(f"groups has {len(listed)} entries but there are {n_instances} instances: give one a row.")
    numbers: dict[Any, int] = {}
    for row, group in enumerate(listed):
        if is_missing(group):
            raise ValueError(f"groups contains {group!r} at row {row}: every instance needs the id of its bag.")
        numbers.setdefault(group, len(numbers))
    return np.array([numbers[group] for group in listed], dtype=np.intp), tuple(numbers)
