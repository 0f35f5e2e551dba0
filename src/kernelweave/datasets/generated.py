"""Generated data with a known answer: views that are useful, redundant or noise, a chessboard, and Gaussian clouds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from ..views import Views

Array = NDArray[np.float64]

#: Standard deviation of what a redundant view adds to the rotated useful view it copies (whose own noise has 1).
COPY_NOISE = 0.5


def make_views(
    n_samples: int = 200,
    n_useful: int = 2,
    n_redundant: int = 1,
    n_noise: int = 3,
    n_classes: int = 2,
    n_features: int = 5,
    separation: float = 2.0,
    random_state: int | RandomState | None = None,
    multilabel: bool = False,
) -> tuple[Views, NDArray[np.int64]]:
    """Generate views of labelled samples: some useful, some redundant, some noise.

    A *useful* view is a Gaussian cloud around a centre of the sample's class. Given the class, useful views are
    independent of each other, so each holds its own part of the information and all together beat any one. A
    *redundant* view is a rotated, noisy copy of a useful one and adds nothing to it. A *noise* view has clusters just
    as a useful one has, but made for labels in random order: only its lack of connection to `y` gives it away.

    Parameters
    ----------
    n_samples : int, default=200
    n_useful, n_redundant, n_noise : int, default=2, 1, 3
        Number of views of each kind. The k-th redundant view copies the useful view number ``k % n_useful``.
    n_classes : int, default=2
        Number of classes, or of labels if `multilabel`.
    n_features : int, default=5
        Columns of every view.
    separation : float, default=2.0
        Mean distance between class centres in one view, in standard deviations of the cloud. With two classes the
        best possible accuracy is ``Phi(separation / 2)`` from one useful view alone, with Phi the normal distribution
        function, and ``Phi(separation / 2 * sqrt(n_useful))`` from all of them.
    random_state : int, RandomState or None, default=None
    multilabel : bool, default=False
        If true, every label is on or off by a fair coin, independently of the others, and `y` is an indicator matrix.

    Returns
    -------
    views : Views
        Views named ``useful0``, ..., ``redundant0``, ..., ``noise0``, ..., each ``(n_samples, n_features)``.
    y : ndarray of int, shape (n_samples,) or (n_samples, n_classes)
        Classes ``0 .. n_classes - 1``, as equal in size as possible; with `multilabel`, ones and zeros.

    Examples
    --------
    >>> from kernelweave.datasets import make_views
    >>> views, y = make_views(n_samples=100, n_useful=2, n_redundant=1, n_noise=1, random_state=0)
    >>> list(views.names)
    ['useful0', 'useful1', 'redundant0', 'noise0']
    >>> views["noise0"].shape, y.shape
    ((100, 5), (100,))
    """
    _check_counts(n_samples=n_samples, n_useful=n_useful, n_redundant=n_redundant, n_noise=n_noise)
    if n_classes < 2 - multilabel or n_features < 1:
        raise ValueError(
            f"make_views needs at least 2 classes (1 if multilabel) and 1 feature; got n_classes={n_classes}, "
            f"n_features={n_features}."
        )
    if n_samples < n_classes and not multilabel:
        raise ValueError(
            f"n_samples={n_samples} cannot fill n_classes={n_classes}; ask for at least one sample a class."
        )
    rng = check_random_state(random_state)
    if multilabel:
        y = rng.randint(2, size=(n_samples, n_classes))
        membership = y - 0.5  # a label moves the cloud half a separation one way or the other
    else:
        y = rng.permutation(np.arange(n_samples) % n_classes)
        membership = np.eye(n_classes)[y]

    def cloud(rows: NDArray[np.intp]) -> Array:
        centres = separation * _centres(rng, n_classes, n_features, around_origin=not multilabel)
        return membership[rows] @ centres + rng.standard_normal((n_samples, n_features))

    in_order = np.arange(n_samples)
    views = _assemble(
        rng,
        n_useful,
        n_redundant,
        n_noise,
        useful=lambda: cloud(in_order),
        noise=lambda: cloud(rng.permutation(n_samples)),
    )
    return views, y.astype(np.int64)


def make_tagged_views(
    n_samples: int = 300,
    n_labels: int = 12,
    n_tags: float = 3.0,
    n_useful: int = 2,
    n_noise: int = 1,
    n_features: int = 10,
    separation: float = 3.0,
    random_state: int | RandomState | None = None,
) -> tuple[Views, NDArray[np.int64]]:
    """Generate samples with a few tags each, as pictures have: some tags are frequent, and no view shows them all.

    Label k shows in the useful view number ``k % n_useful`` only: it moves the sample by `separation` in a direction of
    its own, whatever else the sample is tagged with. Label k is about 2 / (k + 2) times as frequent as the first.

    Parameters
    ----------
    n_samples : int, default=300
    n_labels : int, default=12
    n_tags : float, default=3.0
        Mean number of tags a sample, roughly; every sample has at least one.
    n_useful, n_noise : int, default=2, 1
        Number of views of each kind. A noise view shows the tags of samples in random order.
    n_features : int, default=10
        Columns of every view.
    separation : float, default=3.0
        By how much a tag moves a sample, in standard deviations of the noise in each direction.
    random_state : int, RandomState or None, default=None

    Returns
    -------
    views : Views
        Views named ``useful0``, ..., ``noise0``, ..., each ``(n_samples, n_features)``.
    Y : ndarray of int, shape (n_samples, n_labels)
        Ones and zeros.

    Examples
    --------
    >>> from kernelweave.datasets import make_tagged_views
    >>> views, Y = make_tagged_views(n_samples=100, n_labels=6, random_state=0)
    >>> list(views.names), Y.shape, int(Y.sum(axis=1).min()) >= 1
    (['useful0', 'useful1', 'noise0'], (100, 6), True)
    """
    _check_counts(n_samples=n_samples, n_useful=n_useful, n_redundant=0, n_noise=n_noise)
    if n_labels < 2 or n_features < 1 or not 0 < n_tags < n_labels:
        raise ValueError(
            f"make_tagged_views needs at least 2 labels, 1 feature and 0 < n_tags < n_labels; got n_labels={n_labels}, "
            f"n_features={n_features}, n_tags={n_tags}."
        )
    rng = check_random_state(random_state)
    frequency = 1.0 / np.arange(2, n_labels + 2)
    chance = np.minimum(frequency * n_tags / frequency.sum(), 0.9)
    Y = (rng.random_sample((n_samples, n_labels)) < chance).astype(np.int64)
    bare = np.flatnonzero(Y.sum(axis=1) == 0)
    Y[bare, rng.choice(n_labels, size=len(bare), p=frequency / frequency.sum())] = 1
    shown = iter(range(n_useful))

    def cloud(rows: NDArray[np.intp], labels: slice) -> Array:
        centres = np.zeros((n_labels, n_features))
        centres[labels] = _centres(rng, n_labels, n_features, around_origin=False)[labels]
        return separation * Y[rows] @ centres + rng.standard_normal((n_samples, n_features))

    in_order = np.arange(n_samples)
    views = _assemble(
        rng,
        n_useful,
        0,
        n_noise,
        useful=lambda: cloud(in_order, slice(next(shown), None, n_useful)),
        noise=lambda: cloud(rng.permutation(n_samples), slice(None)),
    )
    return views, Y


def make_regression_views(
    n_samples: int = 200,
    n_useful: int = 2,
    n_redundant: int = 1,
    n_noise: int = 3,
    n_features: int = 5,
    noise: float = 0.1,
    random_state: int | RandomState | None = None,
) -> tuple[Views, Array]:
    """Generate views for regression: the target is a sum of smooth functions, one of each useful view.

    Every useful view contributes a part of unit variance, ``sin(1.5 x.u) + (x.w)^2 / 2`` along random directions u and
    w, standardised. Redundant views are rotated, noisy copies of useful ones; noise views do not touch the target.

    Parameters
    ----------
    n_samples : int, default=200
    n_useful, n_redundant, n_noise : int, default=2, 1, 3
        Number of views of each kind. The k-th redundant view copies the useful view number ``k % n_useful``.
    n_features : int, default=5
        Columns of every view.
    noise : float, default=0.1
        Standard deviation of what is added to the target.
    random_state : int, RandomState or None, default=None

    Returns
    -------
    views : Views
        Views named as those of `make_views`, each ``(n_samples, n_features)``.
    y : ndarray of float, shape (n_samples,)

    Examples
    --------
    >>> from kernelweave.datasets import make_regression_views
    >>> views, y = make_regression_views(n_samples=50, n_useful=3, n_redundant=0, n_noise=1, random_state=0)
    >>> list(views.names), y.shape
    (['useful0', 'useful1', 'useful2', 'noise0'], (50,))
    """
    _check_counts(n_samples=n_samples, n_useful=n_useful, n_redundant=n_redundant, n_noise=n_noise)
    if n_features < 1 or noise < 0:
        raise ValueError(f"n_features must be at least 1 and noise at least 0; got {n_features} and {noise}.")
    rng = check_random_state(random_state)
    y = noise * rng.standard_normal(n_samples)

    def cloud() -> Array:
        return rng.standard_normal((n_samples, n_features))

    def contributing_cloud() -> Array:
        x = cloud()
        y[:] += _smooth_part(rng, x)
        return x

    return _assemble(rng, n_useful, n_redundant, n_noise, useful=contributing_cloud, noise=cloud), y


def make_chessboard(
    n_samples: int = 300,
    n_noise: int = 18,
    gap: float = 0.3,
    random_state: int | RandomState | None = None,
) -> tuple[Array, NDArray[np.int64]]:
    """Generate points on a chessboard of two columns and four rows, with features of noise beside the two that matter.

    Neither of the two features says anything about the colour by itself, and a distance of all features is mostly
    noise: only a kernel that weighs the features can tell the colours apart.

    Parameters
    ----------
    n_samples : int, default=300
    n_noise : int, default=18
        Normally distributed features after the first two.
    gap : float, default=0.3
        Points keep to the middle ``1 - gap`` of their square in both directions; at 0 the squares touch.
    random_state : int, RandomState or None, default=None

    Returns
    -------
    X : ndarray of shape (n_samples, 2 + n_noise)
        Every feature standardised to mean 0 and variance 1.
    y : ndarray of int, shape (n_samples,)
        The colour of the square, 0 or 1.

    Examples
    --------
    >>> from kernelweave.datasets import make_chessboard
    >>> X, y = make_chessboard(n_samples=50, n_noise=3, random_state=0)
    >>> X.shape, sorted(set(y.tolist()))
    ((50, 5), [0, 1])
    """
    if n_samples < 2 or n_noise < 0 or not 0 <= gap < 1:
        raise ValueError(
            "make_chessboard needs at least 2 samples, no negative n_noise and a gap from 0 to below 1; "
            f"got n_samples={n_samples}, n_noise={n_noise}, gap={gap}."
        )
    rng = check_random_state(random_state)
    squares = np.column_stack([rng.randint(2, size=n_samples), rng.randint(4, size=n_samples)])
    points = squares + 0.5 + (1 - gap) * (rng.random_sample((n_samples, 2)) - 0.5)
    X = np.hstack([points, rng.standard_normal((n_samples, n_noise))])
    X -= X.mean(axis=0)
    X /= X.std(axis=0)
    return X, (squares.sum(axis=1) % 2).astype(np.int64)


def make_two_clouds(
    kind: str = "ringnorm", n_samples: int = 400, n_features: int = 20, random_state: int | RandomState | None = None
) -> tuple[Array, NDArray[np.int64]]:
    """Generate the benchmark problems "ringnorm" and "twonorm": two Gaussian clouds.

    With ``a = 2 / sqrt(n_features)``: in "ringnorm", class 1 is ``N(0, 4 I)`` and class 0 is ``N((a, ..., a), I)``, so
    that one lies around the other; in "twonorm", they are ``N((a, ..., a), I)`` and ``N((-a, ..., -a), I)``.

    Parameters
    ----------
    kind : {"ringnorm", "twonorm"}
    n_samples : int, default=400
    n_features : int, default=20
    random_state : int, RandomState or None, default=None

    Returns
    -------
    X : ndarray of shape (n_samples, n_features)
    y : ndarray of int, shape (n_samples,)
        Classes 0 and 1, equally likely.

    Examples
    --------
    >>> from kernelweave.datasets import make_two_clouds
    >>> X, y = make_two_clouds("twonorm", n_samples=30, random_state=0)
    >>> X.shape
    (30, 20)
    """
    if kind not in ("ringnorm", "twonorm"):
        raise ValueError(f"kind must be 'ringnorm' or 'twonorm', got {kind!r}.")
    if n_samples < 2 or n_features < 1:
        raise ValueError(f"n_samples must be at least 2 and n_features at least 1; got {n_samples} and {n_features}.")
    rng = check_random_state(random_state)
    y = rng.randint(2, size=n_samples)
    noise, shift = rng.standard_normal((n_samples, n_features)), 2 / np.sqrt(n_features)
    if kind == "twonorm":
        return noise + shift * (2 * y - 1)[:, None], y.astype(np.int64)
    return np.where(y[:, None] == 1, 2 * noise, noise + shift), y.astype(np.int64)


def _check_counts(n_samples: int, n_useful: int, n_redundant: int, n_noise: int) -> None:
    if n_samples < 1 or n_useful < 1:
        raise ValueError(f"n_samples and n_useful must be at least 1; got n_samples={n_samples}, n_useful={n_useful}.")
    if n_redundant < 0 or n_noise < 0:
        raise ValueError(f"n_redundant and n_noise cannot be negative; got {n_redundant} and {n_noise}.")


def _assemble(
    rng: RandomState,
    n_useful: int,
    n_redundant: int,
    n_noise: int,
    useful: Callable[[], Array],
    noise: Callable[[], Array],
) -> Views:
    views = {f"useful{k}": useful() for k in range(n_useful)}
    for k in range(n_redundant):
        views[f"redundant{k}"] = _noisy_rotation(rng, views[f"useful{k % n_useful}"])
    for k in range(n_noise):
        views[f"noise{k}"] = noise()
    return Views(views)


def _centres(rng: RandomState, n_classes: int, n_features: int, around_origin: bool) -> Array:
    """Random class centres at mean distance one, (n_classes, n_features); or random unit shifts, one a label."""
    centres = rng.standard_normal((n_classes, n_features))
    if not around_origin:
        return centres / np.linalg.norm(centres, axis=1, keepdims=True)
    centres -= centres.mean(axis=0)
    first, second = np.triu_indices(n_classes, k=1)
    return centres / np.linalg.norm(centres[first] - centres[second], axis=1).mean()


def _noisy_rotation(rng: RandomState, x: Array) -> Array:
    """A random orthogonal change of coordinates of x, plus independent noise; same shape."""
    rotation, _ = np.linalg.qr(rng.standard_normal((x.shape[1], x.shape[1])))
    return x @ rotation + COPY_NOISE * rng.standard_normal(x.shape)


def _smooth_part(rng: RandomState, x: Array) -> Array:
    """One useful view's contribution to a regression target, (n_samples,), with mean zero and variance one."""
    directions = rng.standard_normal((x.shape[1], 2))
    along = x @ (directions / np.linalg.norm(directions, axis=0))
    part = np.sin(1.5 * along[:, 0]) + along[:, 1] ** 2 / 2
    part -= part.mean()
    spread = part.std()
    return part / spread if spread > 0 else part
