"""Containers for data seen in several ways: feature views, and precomputed kernels that survive cross-validation."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

#: A precomputed kernel may differ from its transpose by this share of its largest entry (single-precision rounding).
ASYMMETRY_TOLERANCE = 1e-5


class Views:
    """Several descriptions of the same samples, one array a view.

    Parameters
    ----------
    arrays : mapping of str to array of shape (n_samples, n_columns of the view)
        Rows are samples, in the same order in every view. ``float32`` and ``float64`` arrays are kept as they are
        (not copied); integers and booleans become ``float64``. A row that is NaN in all columns of a view says that the
        sample lacks that view; NaN in a part of a row is an error.

    Attributes
    ----------
    device : torch.device or None
        Where the arrays were, if they were torch tensors: kernels are then computed there.

    Notes
    -----
    ``views["name"]`` is the array of one view, with zeros in the rows of samples that lack it (see `present`).
    ``views[rows]``, with an integer array, a mask or a slice, is a `Views` of these samples: scikit-learn's splitters
    and searches index it as they index an array.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave import Views
    >>> views = Views({"sift": np.ones((4, 3)), "gist": np.zeros((4, 2))})
    >>> views.shape, views.names
    ((4, 5), ('sift', 'gist'))
    >>> views[[0, 2]]["gist"].shape
    (2, 2)
    """

    def __init__(self, arrays: Mapping[str, ArrayLike]) -> None:
        if not isinstance(arrays, Mapping):
            raise TypeError(f"Views takes a mapping of view names to 2-D arrays, got {type(arrays).__name__}")
        if not arrays:
            raise ValueError("Views needs at least one view, got an empty mapping")
        self._arrays: dict[str, NDArray] = {}
        self._absent: dict[str, NDArray] = {}
        self.device = device_of(arrays)
        for name, array in arrays.items():
            self._arrays[str(name)], absent = _checked_view(name, array)
            if absent.any():
                self._absent[str(name)] = absent
        first = self.names[0]
        for name, array in self._arrays.items():
            if len(array) != self.n_samples:
                raise ValueError(
                    f"view {name!r} has {len(array)} rows but view {first!r} has {self.n_samples}: "
                    "every view must hold the same samples in the same order"
                )

    @classmethod
    def _trusted(cls, arrays: dict[str, NDArray], absent: dict[str, NDArray] | None = None) -> Views:
        """Wrap arrays that were checked before."""
        views = cls.__new__(cls)
        views._arrays = arrays
        views._absent = absent or {}
        views.device = None
        return views

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the views, in the order given."""
        return tuple(self._arrays)

    @property
    def n_samples(self) -> int:
        """Number of rows every view has."""
        return len(next(iter(self._arrays.values())))

    @property
    def shape(self) -> tuple[int, int]:
        """``(n_samples, number of columns of all views together)``."""
        return self.n_samples, sum(array.shape[1] for array in self._arrays.values())

    @property
    def complete(self) -> bool:
        """Whether every sample has every view."""
        return not self._absent

    def present(self, name: str) -> NDArray[np.bool_]:
        """Which samples have a view: (n_samples,).

        Examples
        --------
        >>> import numpy as np
        >>> from kernelweave import Views
        >>> Views({"sift": [[1.0, 2.0], [np.nan, np.nan]], "gist": [[3.0], [4.0]]}).present("sift")
        array([ True, False])
        """
        return ~self._absent[name] if name in self._absent else np.ones(self.n_samples, dtype=bool)

    def __len__(self) -> int:
        return self.n_samples

    def __contains__(self, name: object) -> bool:
        return name in self._arrays

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            if key not in self._arrays:
                raise KeyError(f"no view named {key!r}; the views are {', '.join(map(repr, self.names))}")
            return self._arrays[key]
        rows = as_row_index(key, self.n_samples)
        absent = {name: lacking[rows] for name, lacking in self._absent.items()}
        arrays = {name: array[rows] for name, array in self._arrays.items()}
        part = Views._trusted(arrays, {name: lacking for name, lacking in absent.items() if lacking.any()})
        part.device = self.device
        return part

    def __repr__(self) -> str:
        parts = ", ".join(f"{name!r}: {array.shape[1]} columns" for name, array in self._arrays.items())
        return f"Views({self.n_samples} samples; {parts})"


class KernelStack:
    """Precomputed kernels of one set of samples, indexable by rows so that cross-validation works.

    Indexing keeps the whole stack and remembers which samples are meant. A model trained on ``stack[R]`` uses the
    entries between samples ``R``; its predictions for ``stack[T]`` use those between ``T`` and ``R``.

    Parameters
    ----------
    K : array of shape (n_kernels, n, n), or (n, n) for one kernel
        Symmetric, finite kernels. Not copied when it is a float array.
    rows : array of int, optional
        The samples this object stands for; all of them by default.
    names : sequence of str, optional
        One name a kernel; ``"K0"``, ``"K1"``, ... by default.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave import KernelStack
    >>> stack = KernelStack(np.stack([np.eye(5), np.ones((5, 5))]))
    >>> stack[[0, 3]].shape, stack.names
    ((2, 5), ('K0', 'K1'))
    """

    def __init__(self, K: ArrayLike, rows: ArrayLike | None = None, names: Sequence[str] | None = None) -> None:
        stack = _as_float(K, "the precomputed kernels")
        stack = stack[None] if stack.ndim == 2 else stack
        if stack.ndim != 3 or stack.shape[1] != stack.shape[2] or stack.size == 0:
            raise ValueError(
                f"precomputed kernels must have the square shape (n_kernels, n, n), got {np.shape(K)}; "
                "kernels between test and training samples, (n_kernels, n_test, n_train), belong in predict"
            )
        self.names = tuple(f"K{j}" for j in range(len(stack))) if names is None else tuple(names)
        if len(self.names) != len(stack) or len(set(self.names)) != len(stack):
            raise ValueError(f"{len(stack)} kernels need {len(stack)} different names, got {list(self.names)}")
        for name, kernel in zip(self.names, stack, strict=True):
            check_symmetric(kernel, f"precomputed kernel {name!r}")
        self.base = stack
        self.rows = np.arange(stack.shape[1])
        if rows is not None:
            self.rows = self.rows[as_row_index(np.asarray(rows), stack.shape[1])]

    @property
    def n_kernels(self) -> int:
        """Number of kernels in the stack."""
        return len(self.base)

    @property
    def n_samples(self) -> int:
        """Number of samples this object stands for."""
        return len(self.rows)

    @property
    def shape(self) -> tuple[int, int]:
        """``(n_samples, number of samples of the whole stack)``."""
        return self.n_samples, self.base.shape[1]

    def __len__(self) -> int:
        return self.n_samples

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return GramRows(self.base[self.names.index(key)], self.rows)
        part = KernelStack.__new__(KernelStack)
        part.base, part.names = self.base, self.names
        part.rows = self.rows[as_row_index(key, self.n_samples)]
        return part

    def __repr__(self) -> str:
        return f"KernelStack({self.n_kernels} kernels; {self.n_samples} of {self.base.shape[1]} samples)"


class GramRows:
    """Some rows of one precomputed kernel, with the numbers these rows have in the whole kernel.

    Parameters
    ----------
    gram : array of shape (n, n)
        The whole kernel.
    ids : array of int of shape (n_rows,)
        Which of its rows are meant.
    """

    def __init__(self, gram: NDArray, ids: NDArray) -> None:
        self.gram = gram
        self.ids = ids

    @property
    def shape(self) -> tuple[int, int]:
        """``(number of rows meant, n)``."""
        return len(self.ids), self.gram.shape[1]

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, rows: Any) -> GramRows:
        return GramRows(self.gram, self.ids[rows])


def as_views(X: Any, columns: Mapping[str, Any] | None = None, incomplete: bool = False) -> Views:
    """Read X, in any of the forms users have, as `Views`.

    Parameters
    ----------
    X : Views, mapping of str to array, array of shape (n_samples, n_columns), or a pandas or polars frame
        One array is one view named ``"x"`` unless `columns` says otherwise. The columns of a frame are grouped by the
        top level of a pandas MultiIndex, or else by what stands before the first ``"."`` or ``"__"`` of their names;
        columns without such a prefix form the view ``"x"``.
    columns : mapping of str to slice, list of int or list of column names, optional
        The columns of every view, when X is one array or a frame.
    incomplete : bool, default=False
        Whether samples may lack views.

    Returns
    -------
    Views

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.views import as_views
    >>> as_views(np.ones((3, 5)), columns={"shape": slice(0, 2), "colour": [2, 3, 4]})
    Views(3 samples; 'shape': 2 columns, 'colour': 3 columns)
    """
    views = _read_views(X, columns)
    if not incomplete:
        check_complete(views, "give the view for all samples, or leave these samples out")
    return views


def _read_views(X: Any, columns: Mapping[str, Any] | None) -> Views:
    if isinstance(X, Views):
        return X
    if isinstance(X, KernelStack):
        raise TypeError("a KernelStack holds precomputed kernels, not features: use it with kernels='precomputed'")
    if isinstance(X, Mapping):
        return Views(X)
    if hasattr(X, "columns") and (hasattr(X, "iloc") or hasattr(X, "select")):
        return _frame_views(X, columns)
    if device_of(X) is not None:
        views = _read_views(_from_tensor(X), columns)
        views.device = device_of(X)
        return views
    array = _checked_matrix(X)
    if columns is None:
        return Views._trusted({"x": array})
    return Views._trusted({name: _take_columns(array, name, which) for name, which in columns.items()})


def as_row_index(key: Any, n: int) -> Any:
    """Turn what users and scikit-learn index samples with into a slice or an array of non-negative integers."""
    if isinstance(key, tuple) and len(key) == 2 and key[1] is Ellipsis:  # scikit-learn writes array[key, ...]
        key = key[0]
    if isinstance(key, slice):
        return key
    if isinstance(key, (int, np.integer)):
        raise TypeError(f"one sample is taken with a slice or a list, as in views[[{key}]], not with the integer {key}")
    index = np.asarray(key)
    if index.ndim != 1 or (index.size and index.dtype.kind not in "biu"):
        raise TypeError(f"samples are chosen by a slice, a mask or integers in one dimension, got {key!r}")
    if index.dtype.kind == "b":
        if len(index) != n:
            raise IndexError(f"the mask has {len(index)} entries but there are {n} samples")
        return np.flatnonzero(index)
    index = index.astype(np.intp)
    if index.size and (index.max() >= n or index.min() < -n):
        raise IndexError(f"sample {index[(index >= n) | (index < -n)][0]} is out of range: there are {n} samples")
    return np.where(index < 0, index + n, index)


def check_symmetric(kernel: NDArray, what: str, ids: NDArray | None = None) -> None:
    """Refuse a square kernel with an entry that is not finite or differs from its mirror image.

    Parameters
    ----------
    kernel : array of shape (n, n)
    what : str
        How the error names the kernel.
    ids : array of int of shape (n,), optional
        How the error numbers its rows.
    """
    largest, worst, where = 0.0, 0.0, (0, 0)
    for start in range(0, len(kernel), 256):
        rows = kernel[start : start + 256]
        check_finite(rows, what, first_row=start)
        largest = max(largest, float(np.abs(rows).max()))
        difference = np.abs(rows - kernel[:, start : start + 256].T)
        i, k = np.unravel_index(int(difference.argmax()), difference.shape)
        if difference[i, k] > worst:
            worst, where = float(difference[i, k]), (int(i) + start, int(k))
    if worst > ASYMMETRY_TOLERANCE * largest:
        value, mirrored = kernel[where], kernel[where[::-1]]
        row, column = where if ids is None else ids[list(where)]
        raise ValueError(
            f"{what} is not symmetric: entry ({row}, {column}) is {value:.6g} but entry ({column}, {row}) is "
            f"{mirrored:.6g}; pass (K + K.T) / 2 if that is what you mean"
        )


def check_finite(array: NDArray, what: str, first_row: int = 0) -> None:
    """Refuse NaN and infinity, saying where the first one is."""
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(array.sum(dtype=np.float64)):  # one pass without a temporary, and nearly always enough
            return
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        row, column = map(int, bad[0])
        raise ValueError(
            f"{what} contains {'NaN' if np.isnan(array[row, column]) else array[row, column]} at row "
            f"{first_row + row}, column {column}; it must be finite"
        )


def _as_float(array: ArrayLike, what: str) -> NDArray:
    if hasattr(array, "toarray"):
        raise TypeError(f"{what} is a sparse matrix; kernelweave needs dense arrays: call .toarray() on it")
    dense = np.asarray(array if device_of(array) is None else _from_tensor(array))
    if dense.dtype.kind in "biu":
        return dense.astype(np.float64)
    if dense.dtype.kind != "f":
        raise TypeError(f"{what} must hold real numbers, got an array of {dense.dtype}")
    return dense if dense.dtype in (np.float32, np.float64) else dense.astype(np.float64)


def device_of(X: Any) -> Any:
    """The torch device of tensors, X itself or the values of a mapping; None if there are none."""
    torch = sys.modules.get("torch")  # who has tensors has imported it
    if torch is None:
        return None
    arrays = X if isinstance(X, Mapping) else {"X": X}
    devices = {name: array.device for name, array in arrays.items() if isinstance(array, torch.Tensor)}
    if len(set(devices.values())) > 1:
        places = ", ".join(f"{name!r} is on {device}" for name, device in devices.items())
        raise ValueError(f"the tensors are on different devices ({places}): move them to one, tensor.to(device)")
    return next(iter(devices.values()), None)


def _from_tensor(tensor: Any) -> NDArray:
    host = tensor.detach().cpu()
    return (host.float() if host.is_floating_point() and host.element_size() < 4 else host).numpy()


def check_complete(views: Views, advice: str) -> None:
    """Refuse samples that lack a view, naming the first; `advice` says what to do."""
    for name in views.names:
        lacking = np.flatnonzero(~views.present(name))
        if len(lacking):
            raise ValueError(
                f"view {name!r} is missing (NaN in all columns) for {len(lacking)} of {len(views)} samples, the first "
                f"in row {lacking[0]}: {advice}"
            )


def _checked_view(name: Any, array: ArrayLike) -> tuple[NDArray, NDArray]:
    """A view, and which of its rows are missing; these are filled with zeros in a copy."""
    view = _as_float(array, f"view {name!r}")
    if view.ndim != 2:
        raise ValueError(
            f"view {name!r} must have the shape (n_samples, n_columns), got {view.shape}; "
            "a single column is array.reshape(-1, 1)"
        )
    if view.shape[0] == 0 or view.shape[1] == 0:
        raise ValueError(f"view {name!r} is empty: its shape is {view.shape}")
    absent = np.isnan(view[:, 0])
    if absent.any():  # most often not, and then the rows need no second look
        absent = np.isnan(view).all(axis=1)
        view = np.where(absent[:, None], view.dtype.type(0), view)
    check_finite(view, f"view {name!r}")
    return view, absent


def _checked_matrix(X: Any) -> NDArray:
    """Check one plain array; scikit-learn says what is wrong with its form, and one sum that all is finite."""
    good = isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype in (np.float32, np.float64) and X.size > 0
    if good and np.isfinite(X.sum(dtype=np.float64)):
        return X
    from sklearn.utils import check_array

    matrix = check_array(X, dtype=[np.float64, np.float32], ensure_all_finite=False)
    check_finite(matrix, "X")
    return matrix


def _take_columns(array: NDArray, name: str, which: Any) -> NDArray:
    if not isinstance(which, slice):
        which = np.atleast_1d(np.asarray(which))
        if which.dtype.kind not in "iub":
            raise TypeError(f"columns of view {name!r} in an array are a slice or integers, got {which.tolist()!r}")
        width = array.shape[1]
        if which.dtype.kind != "b" and which.size and not -width <= which.min() <= which.max() < width:
            raise ValueError(
                f"columns of view {name!r} go from {which.min()} to {which.max()}, but X has {width} columns"
            )
    taken = array[:, which]
    if taken.shape[1] == 0:
        raise ValueError(f"view {name!r} has no columns: {which!r} of the {array.shape[1]} columns of X")
    return taken


def _frame_views(frame: Any, columns: Mapping[str, Any] | None) -> Views:
    names = list(frame.columns)
    if columns is None:
        columns = _column_groups(frame, names)
    arrays = {}
    for view, which in columns.items():
        if isinstance(which, slice):
            chosen = names[which]
        else:
            chosen = [names[c] if isinstance(c, (int, np.integer)) and c not in names else c for c in which]
        missing = [c for c in chosen if c not in names]
        if missing:
            raise ValueError(f"view {view!r} asks for columns {missing} that the frame does not have")
        part = frame[chosen] if hasattr(frame, "iloc") else frame.select(chosen)
        arrays[view] = np.ascontiguousarray(part.to_numpy())
    return Views(arrays)


def _column_groups(frame: Any, names: list) -> dict[str, list]:
    groups: dict[str, list] = {}
    for name in names:
        view = str(name[0]) if isinstance(name, tuple) else _prefix(str(name))
        groups.setdefault(view, []).append(name)
    return groups


def _prefix(name: str) -> str:
    ends = [position for position in (name.find("."), name.find("__")) if position > 0]
    return name[: min(ends)] if ends else "x"
