"""How good a distance is: verification of pairs, identification in a gallery, and pictures of both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils import check_random_state, column_or_1d

from .formulas import _auc, _lrap
from .plots import _axes
from .rankings import Rankings

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = NDArray[np.float64]
Indices = NDArray[np.intp]


@dataclass(frozen=True)
class Verification:
    """How well scores tell similar pairs from dissimilar ones.

    Attributes
    ----------
    average_precision : float
        Mean, over the similar pairs, of the share of similar pairs among those with at least the same score.
    auc : float
        Share of (similar, dissimilar) couples in the right order; ties count half.
    n_similar, n_dissimilar : int
    """

    average_precision: float
    auc: float
    n_similar: int
    n_dissimilar: int


def verification(scores: ArrayLike, similar: ArrayLike) -> Verification:
    """Average precision and area under the ROC curve of the scores of pairs.

    Parameters
    ----------
    scores : array of shape (n_pairs,)
        The larger, the more alike; of a distance, minus its square (``score_pairs``).
    similar : array of shape (n_pairs,)
        +1 (or True) for pairs that belong together, -1 (or False) for others; at least one of each.

    Returns
    -------
    Verification

    Examples
    --------
    >>> from kernelweave.evaluation import verification
    >>> verification([-0.1, -0.2, -0.9, -1.5], [1, -1, 1, -1])
    Verification(average_precision=0.8333333333333333, auc=0.75, n_similar=2, n_dissimilar=2)
    """
    scores, together = _scored_pairs(scores, similar, "scores")
    ranks = Rankings(np.where(together, 1, -1).astype(np.int8)[None], scores[None])
    # The formula that does not depend on the order of tied pairs: pair sets have all similar pairs first.
    return Verification(float(_lrap(ranks)[0]), float(_auc(ranks)[0]), int(together.sum()), int((~together).sum()))


def cumulative_match(distances: ArrayLike, gallery_labels: ArrayLike, probe_labels: ArrayLike) -> Array:
    """Cumulative match curve: how often the right person is among the nearest 1, 2, ... of a gallery.

    Parameters
    ----------
    distances : array of shape (n_probes, n_gallery)
        Or anything that grows with the distance.
    gallery_labels : array of shape (n_gallery,)
        Who is in the gallery, each once.
    probe_labels : array of shape (n_probes,)
        Who the probes are, all of them in the gallery.

    Returns
    -------
    array of shape (n_gallery,)
        Entry r - 1 is the share of probes whose right picture has rank r or better: the first is the rank-1 rate, the
        last is 1. Someone else at the same distance comes first.

    Examples
    --------
    >>> from kernelweave.evaluation import cumulative_match
    >>> cumulative_match([[0.1, 0.5, 0.9], [0.4, 0.2, 0.3]], ["ann", "bob", "cy"], ["ann", "cy"])
    array([0.5, 1. , 1. ])
    """
    distances = np.asarray(distances, dtype=np.float64)
    gallery, probes = column_or_1d(gallery_labels), column_or_1d(probe_labels)
    if distances.shape != (len(probes), len(gallery)) or not distances.size:
        raise ValueError(
            f"distances must have a row a probe and a column a gallery picture, ({len(probes)}, {len(gallery)}) and at "
            f"least one of each; got the shape {distances.shape}."
        )
    if np.isnan(distances).any():
        raise ValueError(f"distances must not hold NaN; {np.isnan(distances).sum()} of them do.")
    names, counts = np.unique(gallery, return_counts=True)
    if counts.max() > 1:
        raise ValueError(
            f"the gallery has {counts.max()} pictures of {names[counts.argmax()]!r}; it must have one a person: see "
            "one_gallery_split."
        )
    strangers = ~np.isin(probes, gallery)
    if strangers.any():
        raise ValueError(f"{strangers.sum()} probe(s), such as {probes[strangers][0]!r}, are not in the gallery.")
    order = np.argsort(gallery)
    own = order[np.searchsorted(gallery, probes, sorter=order)]
    right = distances[np.arange(len(probes)), own]
    rank = np.sum(distances <= right[:, None], axis=1)
    return np.cumsum(np.bincount(rank, minlength=len(gallery) + 1)[1:]) / len(probes)


def one_gallery_split(y: ArrayLike, random_state: int | RandomState | None = None) -> tuple[Indices, Indices]:
    """Split samples into a gallery with one of each person, drawn at random, and probes: all others.

    Parameters
    ----------
    y : array of shape (n_samples,)
        Who the samples are; at least one person has two.
    random_state : int, RandomState or None, default=None

    Returns
    -------
    gallery, probes : arrays of int
        Rows, in ascending order.

    Examples
    --------
    >>> from kernelweave.evaluation import one_gallery_split
    >>> gallery, probes = one_gallery_split([7, 7, 7, 8, 8, 9], random_state=0)
    >>> len(gallery), len(probes)
    (3, 3)
    """
    rng = check_random_state(random_state)
    _, person = np.unique(column_or_1d(y), return_inverse=True)
    order = rng.permutation(len(person))
    _, first = np.unique(person[order], return_index=True)
    gallery = np.sort(order[first])
    probes = np.setdiff1d(np.arange(len(person)), gallery)
    if not len(probes):
        raise ValueError("every person in y has one sample only, so that nobody is left to be found in the gallery.")
    return gallery, probes


def privileged_ratio_curve(
    estimator: Any,
    pairs: Any,
    X: Any,
    Z: Any,
    score: Callable[[Any], float],
    shares: Sequence[float] = (0.0, 0.25, 0.5, 0.75, 1.0),
) -> Array:
    """What it is worth to know privileged features of more pairs.

    Parameters
    ----------
    estimator : PartialITMLPlus, or another with ``fit_pairs(pairs, X, Z)``
        Cloned, not changed.
    pairs : PairSet
        Of them, the first share of the similar and of the dissimilar ones have privileged features.
    X, Z : arrays of shape (n_samples, n_features) and (n_samples, n_privileged)
    score : callable
        Called with every fitted estimator; returns a number.
    shares : sequence of float in [0, 1]

    Returns
    -------
    array of shape (n_shares,)

    Examples
    --------
    >>> import kernelweave as kw
    >>> from kernelweave.evaluation import privileged_ratio_curve
    >>> X, Z, y = kw.datasets.make_privileged(n_identities=8, random_state=0)
    >>> pairs = kw.PairSet.from_classes(y, max_positives=60, random_state=0)
    >>> model = kw.PartialITMLPlus(gamma=0.1, random_state=0)
    >>> privileged_ratio_curve(model, pairs, X, Z, lambda fitted: fitted.objective_, shares=[0.0, 1.0]).shape
    (2,)
    """
    return np.array([float(score(clone(estimator).fit_pairs(pairs.with_privileged(share), X, Z))) for share in shares])


def plot_distances(distances: ArrayLike, similar: ArrayLike, bins: int = 40, ax: Axes | None = None) -> Axes:
    """Draw the histograms of the distances of similar and of dissimilar pairs, each with an area of one.

    Parameters
    ----------
    distances : array of shape (n_pairs,)
    similar : array of shape (n_pairs,)
        As in :func:`verification`.
    bins : int, default=40
    ax : matplotlib Axes, optional
        Where to draw; a new figure otherwise.

    Returns
    -------
    ax : matplotlib Axes

    Examples
    --------
    >>> import matplotlib; matplotlib.use("agg")
    >>> from kernelweave.evaluation import plot_distances
    >>> ax = plot_distances([0.1, 0.2, 0.9, 1.5], [1, 1, -1, -1], bins=5)
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['similar (2)', 'dissimilar (2)']
    """
    values, together = _scored_pairs(distances, similar, "distances")
    edges = np.histogram_bin_edges(values, bins).tolist()
    ax = _axes(ax, height=3.5)
    for name, members, colour in (("similar", together, "C0"), ("dissimilar", ~together, "C3")):
        label = f"{name} ({members.sum()})"
        ax.hist(values[members], edges, density=True, alpha=0.55, color=colour, label=label)
    ax.set_xlabel("distance")
    ax.set_ylabel("density")
    ax.legend(fontsize="small")
    return ax


def plot_cumulative_match(curves: ArrayLike | Mapping[str, ArrayLike], ax: Axes | None = None) -> Axes:
    """Draw one or several cumulative match curves.

    Parameters
    ----------
    curves : array of shape (n_gallery,), or dict of them by name
        As :func:`cumulative_match` returns them.
    ax : matplotlib Axes, optional
        Where to draw; a new figure otherwise.

    Returns
    -------
    ax : matplotlib Axes

    Examples
    --------
    >>> import matplotlib; matplotlib.use("agg")
    >>> from kernelweave.evaluation import plot_cumulative_match
    >>> ax = plot_cumulative_match({"learned": [0.8, 0.9, 1.0], "plain": [0.5, 0.7, 1.0]})
    >>> [line.get_label() for line in ax.get_lines()]
    ['learned', 'plain']
    """
    named = curves if isinstance(curves, Mapping) else {"": curves}
    if not named:
        raise ValueError("plot_cumulative_match was given no curves; expected one, or a dict of them by name.")
    ax = _axes(ax, height=3.5)
    for name, curve in named.items():
        rates = np.asarray(curve, dtype=np.float64)
        ax.plot(np.arange(1, len(rates) + 1), rates, ".-", label=name)
    ax.set_xlabel("rank")
    ax.set_ylabel("share of probes found")
    ax.set_ylim(top=1.02)
    if isinstance(curves, Mapping):
        ax.legend(fontsize="small")
    return ax


def _scored_pairs(values: ArrayLike, similar: ArrayLike, name: str) -> tuple[Array, NDArray[np.bool_]]:
    numbers, signs = np.asarray(values, dtype=np.float64), np.asarray(similar)
    if numbers.ndim != 1 or numbers.shape != signs.shape:
        raise ValueError(f"{name} and similar must be vectors of one length, got {numbers.shape} and {signs.shape}.")
    if np.isnan(numbers).any():
        raise ValueError(f"{name} must not hold NaN; {np.isnan(numbers).sum()} of {len(numbers)} do.")
    if signs.dtype != bool and not np.isin(signs, (-1, 1)).all():
        raise ValueError(f"similar must hold +1 and -1, or booleans; got the values {np.unique(signs)[:5].tolist()}.")
    together = np.asarray(signs > 0)
    if together.all() or not together.any():
        which = "similar" if together.any() else "dissimilar"
        raise ValueError(f"all {len(together)} pairs are {which}: there is nothing to tell apart.")
    return numbers, together
