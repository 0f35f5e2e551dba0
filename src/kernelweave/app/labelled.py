"""Pictures with labels in the forms a tagger is given them, as one form."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..datasets.picture_sets import PictureSet
from ..images.pictures import shown_name
from ..images.sources import content_of_array, content_of_file
from ..labels import Labels, Signs, as_labels, is_label_matrix

#: What was left out, and why.
Problem = tuple[str, str]


@dataclass(frozen=True, eq=False)
class Labelled:
    """Pictures and their labels.

    Attributes
    ----------
    pictures : list of n_pictures paths or arrays (height, width, 3)
    labels : Labels of n_pictures
        Their names are texts.
    single : bool
        Whether every picture has exactly one class, or was not judged.
    problems : list of (what, reason)
    notes : list of str
        What a person should know about how they were read.
    """

    pictures: list[Any]
    labels: Labels
    single: bool
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, rows: NDArray[np.intp]) -> Labelled:
        labels = Labels(self.labels.signs[rows], self.labels.names)
        return replace(self, pictures=[self.pictures[row] for row in rows], labels=labels)


def read_labelled(pictures: Any, Y: Any = None) -> Labelled:
    """Read pictures that come with labels.

    Parameters
    ----------
    pictures : PictureSet, or sequence of n_pictures paths or arrays (height, width, 3)
    Y : labels of n_pictures
        None with a PictureSet, which has its own. A vector of classes, a list of tags a picture, or a label matrix or
        frame (see :func:`kernelweave.labels.as_labels`).

    Examples
    --------
    >>> from kernelweave.app.labelled import read_labelled
    >>> given = read_labelled(["a.jpg", "b.jpg"], ["cat", "dog"])
    >>> given.single, given.labels.names.tolist(), given.labels.signs.tolist()
    (True, ['cat', 'dog'], [[1, -1], [-1, 1]])
    """
    if isinstance(pictures, PictureSet):
        if Y is not None:
            raise ValueError("a PictureSet has its own labels: leave Y out, or give pictures.paths and Y")
        if pictures.Y is None:
            raise ValueError(
                "the pictures have no labels: put them into one folder a class, or list them with their labels in a "
                "table labels.csv beside them"
            )
        labels = Labels(as_labels(pictures.Y).signs, np.array(pictures.label_names))
        return Labelled(list(pictures.paths), labels, pictures.single, list(pictures.problems))
    sources = as_sources(pictures)
    if Y is None:
        raise ValueError("labels are needed to learn from: give Y, or a PictureSet that has some")
    single = not is_label_matrix(Y)
    labels = _of_classes(Y) if single else as_labels(Y)
    if len(labels.signs) != len(sources):
        raise ValueError(f"there are {len(sources)} pictures, but Y has {len(labels.signs)} rows")
    return Labelled(sources, Labels(labels.signs, np.array([str(name) for name in labels.names.tolist()])), single)


def as_sources(pictures: Any) -> list[Any]:
    """Pictures without labels as a list of paths or arrays."""
    if isinstance(pictures, PictureSet):
        return list(pictures.paths)
    if isinstance(pictures, (str, os.PathLike)):
        raise TypeError(
            f"pictures are a list of paths or arrays, got the one path {os.fspath(pictures)!r}: write "
            "[path], or read_pictures(folder) for a folder"
        )
    return list(pictures)


def align(given: Labelled, names: Sequence[str], single: bool) -> Labelled:
    """The same pictures with the labels a model knows, in its order; the others are ignored, with a note.

    Of single classes, pictures of a class that the model does not know are left out: it could not be right about them.

    Parameters
    ----------
    given : Labelled of n_pictures
    names : sequence of n_labels labels the model knows
    single : bool
        Whether the model gives every picture one class.
    """
    place = {name: column for column, name in enumerate(names)}
    own = given.labels.names.tolist()
    unknown = [name for name in own if name not in place]
    notes = list(given.notes)
    # What a folder of classes says about a class it does not have is "no"; a table of labels says nothing about it.
    rest = np.where(given.labels.known.any(axis=1), -1, 0) if single and given.single else np.zeros(len(given))
    signs: Signs = np.repeat(rest[:, None], len(names), axis=1).astype(np.int8)
    for column, name in enumerate(own):
        if name in place:
            signs[:, place[name]] = given.labels.signs[:, column]
    aligned = replace(given, labels=Labels(signs, np.array(names)), single=single)
    if len(unknown) == len(own):
        raise ValueError(
            f"none of the labels of the pictures ({_some(own)}) is known to the model, which knows {_some(names)}"
        )
    if unknown:
        notes.append(f"labels that the model does not know are ignored: {_some(unknown)}")
    if single and unknown:
        strange = given.labels.relevant[:, [own.index(name) for name in unknown]].any(axis=1)
        aligned = aligned[np.flatnonzero(~strange)]
        notes.append(f"{int(strange.sum())} pictures of classes that the model does not know are left out")
    return replace(aligned, notes=notes)


def content_key(picture: Any) -> bytes:
    """SHA-256 of a picture as it is given: of the bytes of its file, or of the array. Empty if it cannot be read."""
    is_file = isinstance(picture, (str, os.PathLike))
    content = content_of_file(os.fspath(picture))[0] if is_file else content_of_array(np.asarray(picture))
    return bytes.fromhex(content or "")


def picture_name(picture: Any, row: int) -> str:
    """The path of a picture, or which one in the list it is."""
    return shown_name(picture) if isinstance(picture, (str, os.PathLike)) else f"picture {row}"


def _of_classes(Y: Any) -> Labels:
    classes = np.asarray(Y).ravel()
    names, codes = np.unique(classes.astype(str), return_inverse=True)
    return Labels(np.where(codes[:, None] == np.arange(len(names)), 1, -1).astype(np.int8), names)


def _some(names: Sequence[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
