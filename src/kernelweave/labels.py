"""Label matrices with three states: relevant, irrelevant, never judged.

People write them in many ways: an indicator matrix of 0 and 1, or of -1 and +1, with NaN or a mask where nobody
looked, sparse, as a frame whose columns are the names, or as a list of tags a sample. :func:`as_labels` reads them all;
the rest of the package sees one form.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import _check_sample_weight

Signs = NDArray[np.int8]


@dataclass(frozen=True, eq=False)
class Labels:
    """A label matrix.

    Attributes
    ----------
    signs : array of shape (n_samples, n_labels), int8
        +1 relevant, -1 irrelevant, 0 never judged.
    names : array of shape (n_labels,)
        Names of the labels: those of the columns of a frame, the tags, or 0, 1, ...
    irrelevant_as : int
        How the matrix that was read writes an irrelevant label: 0 or -1.
    """

    signs: Signs
    names: NDArray
    irrelevant_as: int = 0

    @property
    def relevant(self) -> NDArray[np.bool_]:
        """Where a label was given, shape (n_samples, n_labels)."""
        return self.signs > 0

    @property
    def known(self) -> NDArray[np.bool_]:
        """Where somebody judged, shape (n_samples, n_labels)."""
        return self.signs != 0

    def write(self, signs: Signs) -> NDArray:
        """Signs in the values of the matrix that was read: integers, or floats with NaN where some are 0.

        Examples
        --------
        >>> from kernelweave.labels import as_labels
        >>> labels = as_labels([[1, 0], [0, 1]])
        >>> labels.write(-labels.signs)
        array([[0, 1],
               [1, 0]])
        """
        values = np.where(signs > 0, 1, self.irrelevant_as)
        return np.where(signs == 0, np.nan, values) if (signs == 0).any() else values


def as_labels(Y: Any, names: ArrayLike | None = None, what: str = "Y") -> Labels:
    """Read a label matrix.

    Parameters
    ----------
    Y : matrix of shape (n_samples, n_labels), frame, or sequence of n_samples collections of tags
        Values 0 and 1, or -1 and +1, or booleans; NaN, None or a mask where a label was never judged. In a sparse
        matrix what is not stored is 0, "irrelevant". Tags are strings, or numbers in sets; None instead of a
        collection says that nobody looked at this sample.
    names : array of shape (n_labels,), optional
        The labels to read, in this order: needed for tags of new samples, checked against the columns of a frame.
    what : str
        How error messages call it.

    Returns
    -------
    Labels

    Examples
    --------
    >>> from kernelweave.labels import as_labels
    >>> as_labels([[1, 0, float("nan")], [0, 1, 1]]).signs.tolist()
    [[1, -1, 0], [-1, 1, 1]]
    >>> tags = as_labels([["sky", "sea"], ["tree"]])
    >>> tags.names.tolist(), tags.signs.tolist()
    (['sea', 'sky', 'tree'], [[1, 1, -1], [-1, -1, 1]])
    """
    expected = None if names is None else _different(np.asarray(names), "The names of the labels")
    if isinstance(Y, Labels):
        return _checked_names(Y, expected, what)
    Y = _listed(Y)
    if is_tags(Y):
        labels = _from_tags(Y, expected, what)
    elif hasattr(Y, "columns"):
        columns = _different(np.asarray(Y.columns), f"The columns of {what}")
        labels = _checked_names(_from_matrix(_frame_values(Y, what), columns, what), expected, what)
    else:
        labels = _checked_names(_from_matrix(Y, None, what), expected, what)
    if labels.signs.size == 0:
        n_samples, n_labels = labels.signs.shape
        raise ValueError(f"{what} is empty: {n_samples} samples, {n_labels} labels. At least one of each is needed.")
    return labels


def is_label_matrix(y: Any) -> bool:
    """Whether y has labels, several or none for a sample, and not one class; `as_labels` refuses what is neither."""
    if isinstance(y, Labels) or issparse(y) or is_tags(y):
        return True
    try:
        shape = np.asarray(y).shape
    except ValueError:  # rows of different length
        return True
    # One column is a vector of classes, as everywhere in scikit-learn, unless some of it was never judged.
    return len(shape) > 2 or (len(shape) == 2 and (shape[1] != 1 or has_missing(y)))


def has_missing(y: Any) -> bool:
    """Whether a label is masked, NaN, None or NA."""
    if np.ma.is_masked(y):
        return True
    if hasattr(y, "isna"):
        return bool(np.any(y.isna()))
    return any(map(is_missing, np.asarray(y).ravel().tolist()))


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, or the NA or NaT of pandas."""
    if value is None or type(value).__name__ == "NAType":
        return True
    differs = value != value
    return bool(differs) if isinstance(differs, (bool, np.bool_)) else False


def is_tags(Y: Any) -> bool:
    """Whether Y is a sequence of collections of tags rather than a matrix."""
    Y = _listed(Y)
    if not isinstance(Y, Sequence) or isinstance(Y, (str, bytes)):
        return False
    rows = [row for row in Y if not _nobody_looked(row)]
    if not rows or not all(isinstance(row, Collection) and not isinstance(row, (str, bytes)) for row in rows):
        return False
    return (
        any(isinstance(row, (set, frozenset, Mapping)) for row in rows)
        or not any(len(row) for row in rows)
        or any(isinstance(tag, str) for row in rows for tag in row)
    )


def _listed(Y: Any) -> Any:
    """A series, or an array of lists, as a list of rows."""
    if isinstance(Y, np.ndarray) and Y.dtype == object and Y.ndim == 1:
        return Y.tolist()
    return Y.to_list() if hasattr(Y, "to_list") else Y


def _nobody_looked(row: Any) -> bool:
    return row is None or (isinstance(row, float) and np.isnan(row))


def _from_tags(Y: Sequence[Any], names: NDArray | None, what: str) -> Labels:
    rows = [None if _nobody_looked(row) else _tags_of(row, i, what) for i, row in enumerate(Y)]
    seen = {tag for row in rows if row is not None for tag in row}
    if names is None and len({isinstance(tag, str) for tag in seen}) > 1:
        raise ValueError(f"Tags in {what} must be all strings or all numbers, got both.")
    known = np.array(sorted(seen)) if names is None else names
    place = {name: k for k, name in enumerate(known.tolist())}
    strange = sorted(map(str, seen - set(place)))
    if strange:
        raise ValueError(
            f"{what} has tags that are not among the {len(place)} known labels: {', '.join(strange[:5])}"
            f"{', ...' if len(strange) > 5 else ''}. Remove them or fit with them."
        )
    signs = np.full((len(rows), len(known)), -1, dtype=np.int8)
    for row, tags in zip(signs, rows, strict=True):
        if tags is None:
            row[:] = 0
        else:
            row[[place[tag] for tag in tags]] = 1
    return Labels(signs, known)


def _tags_of(row: Any, i: int, what: str) -> list[Any]:
    """Tags of one sample as plain strings and numbers."""
    if isinstance(row, Mapping):
        raise TypeError(f"Row {i} of {what} is a mapping; give only its relevant labels, as a list or a set.")
    tags = [tag.item() if isinstance(tag, np.generic) else tag for tag in row]
    for tag in tags:
        # NaN is no name: it does not equal itself, so it would never be found again.
        if not isinstance(tag, (str, Real)) or tag != tag:
            raise TypeError(f"Tags in {what} must be strings or numbers, row {i} has {tag!r} ({type(tag).__name__}).")
    return tags


def _frame_values(Y: Any, what: str) -> NDArray:
    """Values of a pandas or polars frame, missing ones as NaN, None or NA."""
    if not hasattr(Y, "to_numpy"):
        raise TypeError(
            f"{what} is a {type(Y).__name__}; give an array, or a pandas or polars frame (collect a lazy one)."
        )
    if hasattr(Y, "isna"):
        numeric = all(dtype.kind in "biuf" for dtype in Y.dtypes)
        return Y.to_numpy(dtype=np.float64, na_value=np.nan) if numeric else Y.to_numpy(dtype=object)
    return Y.to_numpy()


def _from_matrix(Y: Any, names: NDArray | None, what: str) -> Labels:
    values = _numbers(Y.toarray() if issparse(Y) else np.ma.getdata(Y) if isinstance(Y, np.ma.MaskedArray) else Y, what)
    known = ~np.isnan(values)
    if isinstance(Y, np.ma.MaskedArray):
        known &= ~np.ma.getmaskarray(Y)
    signs = np.where(values > 0, np.int8(1), np.int8(-1))
    signs[~known] = 0
    irrelevant_as = _checked_values(values, known, what)
    return Labels(signs, np.arange(values.shape[1]) if names is None else names, irrelevant_as)


def _numbers(Y: Any, what: str) -> NDArray[np.float64]:
    """Y as a matrix of floats."""
    try:
        raw = np.asarray(Y)
    except ValueError:
        raise ValueError(
            f"The rows of {what} differ in length or kind. A label matrix has the same columns in every row; tags are "
            "a list of strings, or a set, a sample."
        ) from None
    if raw.ndim != 2:
        raise ValueError(
            f"{what} must be a label matrix of shape (n_samples, n_labels) or a list of tags a sample, got "
            f"{f'an array of shape {raw.shape}' if raw.ndim else type(Y).__name__}."
        )
    try:
        if raw.dtype == object:
            return np.array([_number(value) for value in raw.flat], dtype=np.float64).reshape(raw.shape)
        if raw.dtype.kind in "biuf":
            return raw.astype(np.float64, order="C")
    except (TypeError, ValueError):
        pass
    raise ValueError(
        f"{what} must hold numbers (0 and 1, or -1 and +1, NaN where a label was never judged). For names of labels "
        "give a list of tags a sample, or a frame with one column a label."
    )


def share_all_right(predicted: NDArray, labels: Labels, sample_weight: ArrayLike | None = None) -> float:
    """Share of the samples for which all that was judged is predicted right, of those for which anything was.

    Parameters
    ----------
    predicted : array of shape (n_samples, n_labels)
        Positive where a label is given.
    labels : Labels
    sample_weight : array of shape (n_samples,), optional
    """
    signs = labels.signs
    check_consistent_length(predicted, signs)
    judged = signs.any(axis=1)
    if not judged.any():
        raise ValueError("Nothing in y was judged: there is nothing to score.")
    right = ((np.where(predicted > 0, 1, -1) == signs) | (signs == 0)).all(axis=1)
    weights = _check_sample_weight(sample_weight, right[:, None], dtype=np.float64)
    return float(np.average(right[judged], weights=weights[judged]))


def _number(value: Any) -> float:
    # Written digits are refused: a list of them would be read as tags. NAType is what pandas calls a missing value.
    if isinstance(value, (str, bytes)):
        raise TypeError("text")
    return np.nan if value is None or type(value).__name__ == "NAType" else float(value)


def _checked_values(values: NDArray, known: NDArray, what: str) -> int:
    """How irrelevant labels are written, 0 or -1, after a check that this is clear."""
    zero, minus = known & (values == 0), known & (values == -1)
    strange = np.argwhere(known & (values != 1) & ~zero & ~minus)
    if len(strange):
        i, k = strange[0]
        raise ValueError(
            f"{what} must hold 0 and 1, or -1 and +1, with NaN where a label was never judged; row {i}, column {k} is "
            f"{values[i, k]:g}. Numbers as tags are given as a set a sample."
        )
    if zero.any() and minus.any():
        raise ValueError(
            f"{what} mixes 0 and -1, so it is not clear what 0 means. Write irrelevant labels as 0 (or all as -1), and "
            "NaN where a label was never judged."
        )
    return -1 if minus.any() else 0


def _different(names: NDArray, which: str) -> NDArray:
    """Names, after a check that no two are the same."""
    if names.ndim != 1:
        raise ValueError(f"{which} must be a vector, got an array of shape {names.shape}.")
    seen: set[Any] = set()
    for name in names.tolist():
        if name in seen:
            raise ValueError(f"{which} must differ, {name!r} occurs twice.")
        seen.add(name)
    return names


def _checked_names(labels: Labels, expected: NDArray | None, what: str) -> Labels:
    if expected is None:
        return labels
    if len(labels.names) != len(expected):
        raise ValueError(f"{what} has {len(labels.names)} label columns, expected {len(expected)}.")
    given, wanted, positions = labels.names.tolist(), expected.tolist(), list(range(len(expected)))
    # Columns without names, 0, 1, ..., go by position, on either side; other numbers are names.
    nameless = given == positions or (wanted == positions and labels.names.dtype.kind not in "iu")
    if given != wanted and not nameless:
        k = next(k for k, (one, other) in enumerate(zip(given, wanted, strict=True)) if one != other)
        raise ValueError(
            f"The columns of {what} are not the expected ones in the expected order: column {k} is {given[k]!r}, "
            f"expected {wanted[k]!r}. Choose and reorder them by name."
        )
    return replace(labels, names=expected)
