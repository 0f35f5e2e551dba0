"""Visual words: codebooks learned from local descriptors, and the nearest words of new descriptors.

The search is exact, without all distances being computed. The projections of descriptors and words on the directions in
which the words vary most, and the lengths of what is left, give a lower bound of every distance by one short matrix
product. Only words whose bound is below the best distance so far are looked at in full: a few in a thousand.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from .._config import FASTMATH
from .base import Array
from .checks import check_whole

#: Words are learned from at most this many descriptors, or ten a word where that is more.
SAMPLES = 30_000

#: Share of the variance of the words in the directions that bounds are made of: more makes bounds tighter and dearer.
VARIANCE = 0.9

#: Numbers in a block of bounds, which stays in a processor's cache.
BLOCK = 1 << 18

#: Words are looked at in so many groups, each passed over at once when the lowest of its bounds is too high.
GROUPS = 64


@dataclass(frozen=True)
class Words(ABC):
    """How a codebook is made of sampled descriptors.

    Parameters
    ----------
    n_words : int
        Words in the codebook.
    """

    n_words: int = 300

    def __post_init__(self) -> None:
        check_whole(self, "n_words")

    @property
    @abstractmethod
    def label(self) -> str:
        """Short name, part of the names of views."""

    def learn(self, samples: NDArray, rng: np.random.Generator) -> Array:
        """The words (n_words, length) from descriptors (n_samples, length). Equal generators give equal words.

        Fewer different descriptors than words become words all, and are repeated (with a warning) up to `n_words`:
        the length of the histograms stays what was asked for. A descriptor belongs to the first of equal words.
        """
        different = _different(_checked(samples), max(SAMPLES, 10 * self.n_words), rng)
        if len(different) > self.n_words:
            return self._learn(different, rng)
        if len(different) < self.n_words:
            warnings.warn(
                f"only {len(different)} different descriptors for {self.n_words} words: the words repeat, and the "
                "repetitions stay unused. Learn from more pictures, or ask for fewer words",
                stacklevel=2,
            )
        return np.resize(different, (self.n_words, different.shape[1]))

    @abstractmethod
    def _learn(self, different: Array, rng: np.random.Generator) -> Array:
        """The words from more different descriptors than there are words, in random order."""


@dataclass(frozen=True)
class Prototypes(Words):
    """Words that are training descriptors drawn at random, without clustering.

    As good as k-means when the kernels of several codebooks are combined, and learned in no time.

    Parameters
    ----------
    n_words : int
        Words in the codebook.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.images import Prototypes
    >>> rng = np.random.default_rng(0)
    >>> Prototypes(3).learn(rng.normal(size=(50, 8)), rng).shape
    (3, 8)
    """

    @property
    def label(self) -> str:
        return f"random{self.n_words}"

    def _learn(self, different: Array, rng: np.random.Generator) -> Array:
        return different[: self.n_words]


@dataclass(frozen=True)
class KMeans(Words):
    """Words that are centres of clusters of training descriptors: k-means that starts from random descriptors.

    Parameters
    ----------
    n_words : int
        Words in the codebook.
    n_iter : int
        Most passes over the sampled descriptors.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.images import KMeans
    >>> rng = np.random.default_rng(0)
    >>> sorted(KMeans(2).learn(np.array([[0.0], [1.0], [10.0], [11.0]]), rng).ravel().tolist())
    [0.5, 10.5]
    """

    n_iter: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(self, "n_iter")

    @property
    def label(self) -> str:
        return str(self.n_words)

    def _learn(self, different: Array, rng: np.random.Generator) -> Array:
        from sklearn.cluster import KMeans as Lloyd

        lloyd = Lloyd(self.n_words, init=different[: self.n_words], n_init=1, max_iter=self.n_iter)
        with threadpool_limits(limits=1):  # more threads add up in the order in which they finish
            return lloyd.fit(different).cluster_centers_


def principal_directions(words: NDArray) -> Array:
    """Directions that hold most of the variance of the words, for `nearest_words`: (length, n_directions), orthonormal.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.images.words import principal_directions
    >>> principal_directions(np.array([[1.0, 0.0], [2.0, 0.0], [3.0, 0.01]])).shape
    (2, 1)
    """
    words = np.asarray(words, dtype=np.float64)
    centred = words - words.mean(axis=0)
    variances, directions = np.linalg.eigh(centred.T @ centred)
    shares = np.cumsum(variances[::-1])
    n_directions = 1 + int(np.searchsorted(shares, VARIANCE * shares[-1]))
    return directions[:, ::-1][:, :n_directions].astype(np.float32)


def nearest_words(
    descriptors: NDArray, words: NDArray, nearest: int = 1, directions: Array | None = None
) -> tuple[NDArray[np.int32], Array]:
    """The words at the smallest Euclidean distances from each descriptor, nearest first; of equal ones the first.

    Parameters
    ----------
    descriptors : array of shape (n_descriptors, length)
        Finite.
    words : array of shape (n_words, length)
    nearest : int
        How many words a descriptor gets.
    directions : array of shape (length, n_directions), optional
        What `principal_directions` gives, where the same words are searched many times. Any orthonormal columns give
        the same result, in other time.

    Returns
    -------
    numbers : array of shape (n_descriptors, nearest)
    squared : array of shape (n_descriptors, nearest)
        Squared distances, in single precision.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.images.words import nearest_words
    >>> numbers, squared = nearest_words(np.array([[0.0, 1.0], [4.0, 5.0]]), np.array([[0.0, 0.0], [4.0, 4.0]]))
    >>> numbers.tolist(), squared.tolist()
    ([[0], [1]], [[1.0], [1.0]])
    """
    descriptors = np.ascontiguousarray(descriptors, dtype=np.float32)
    words = np.ascontiguousarray(words, dtype=np.float32)
    if words.ndim != 2 or descriptors.ndim != 2 or descriptors.shape[1] != words.shape[1]:
        raise ValueError(f"descriptors and words have the same length, got {descriptors.shape} and {words.shape}")
    if not 1 <= nearest <= len(words):
        raise ValueError(f"nearest is 1 to the number of words, {len(words)}, got {nearest!r}")
    directions = principal_directions(words) if directions is None else directions
    left, right = _sketches(descriptors, words, directions)
    numbers = np.zeros((len(descriptors), nearest), dtype=np.int32)
    squared = np.full((len(descriptors), nearest), np.inf, dtype=np.float32)
    rows = max(16, BLOCK // len(words))
    bounds = np.empty((min(rows, len(descriptors)), len(words)), dtype=np.float32)
    lows = np.empty(GROUPS, dtype=np.float32)
    for start in range(0, len(descriptors), rows):
        part = slice(start, start + rows)
        block = np.matmul(left[part], right, out=bounds[: len(left[part])])
        _search(descriptors[part], words, block, lows, numbers[part], squared[part])
    return numbers, squared


def spacing(words: NDArray) -> float:
    """Mean distance from a word to the nearest that is not equal to it; 1 where all are equal.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.images.words import spacing
    >>> spacing(np.array([[0.0], [1.0], [4.0]]))
    1.6666666...
    """
    different = np.unique(np.asarray(words, dtype=np.float32), axis=0)
    if len(different) < 2:
        return 1.0
    numbers, _ = nearest_words(different, different, nearest=2)
    itself = numbers[:, 0] == np.arange(len(different))  # the distance zero: no other word is as near
    other = np.where(itself, numbers[:, 1], numbers[:, 0])
    return float(np.linalg.norm(different - different[other].astype(np.float64), axis=1).mean())


def soft_weights(squared: NDArray, bandwidth: float) -> Array:
    """How much of a descriptor each of its nearest words gets: ``exp(-distance ** 2 / (2 * bandwidth ** 2))``, made to
    sum to one.

    Parameters
    ----------
    squared : array of shape (n_descriptors, nearest)
        Squared distances, nearest first.
    bandwidth : float
        Positive, such as the `spacing` of the words.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.images.words import soft_weights
    >>> soft_weights(np.array([[1.0, 1.0], [0.0, 2000.0]]), bandwidth=1.0).tolist()
    [[0.5, 0.5], [1.0, 0.0]]
    """
    if not bandwidth > 0:
        raise ValueError(f"the bandwidth of soft weights is positive, got {bandwidth!r}")
    beyond = squared - squared[:, :1]  # the nearest word then counts 1 before sums are made one, however far it is
    weights = np.exp(beyond / (-2.0 * bandwidth**2)).astype(np.float32)
    return weights / weights.sum(axis=1, keepdims=True)


def _checked(samples: NDArray) -> Array:
    samples = np.asarray(samples, dtype=np.float32)
    if samples.ndim != 2 or samples.size == 0:
        raise ValueError(f"words are learned from descriptors (n_samples, length), at least one, got {samples.shape}")
    if not np.isfinite(samples).all():
        raise ValueError(
            f"descriptor {int(np.argmin(np.isfinite(samples).all(axis=1)))} has a value that is not finite"
        )
    return samples


def _different(samples: Array, most: int, rng: np.random.Generator) -> Array:
    """At most so many rows in random order, each once."""
    drawn = samples[rng.permutation(len(samples))[:most]]
    _, firsts = np.unique(drawn, axis=0, return_index=True)
    return drawn[np.sort(firsts)]


def _sketches(descriptors: Array, words: Array, directions: Array) -> tuple[Array, Array]:
    """Matrices (n_descriptors, n) and (n, n_words) whose product is below every squared distance.

    With x and w as seen from the mean of the words, of projections p and remainders r, ``|x - w| ** 2`` is ``|x| ** 2 +
    |w| ** 2 - 2 p(x) p(w) - 2 r(x) r(w)``, and the last product is at most that of the lengths of the remainders.
    """
    length, n = directions.shape
    rounding = np.float32((length + n + 3) * np.finfo(np.float32).eps)
    centre = words.mean(axis=0)

    def sketch(rows: Array) -> tuple[Array, Array]:
        """Projections, length of the remainder and two columns of ones, (n_rows, n + 3); squared lengths."""
        rows = rows - centre
        columns = np.ones((len(rows), n + 3), dtype=np.float32)
        projected = np.matmul(rows, directions, out=columns[:, :n])
        squares = _squares(rows)
        # A remainder that comes out too short by rounding would make the product too large.
        columns[:, n] = np.sqrt(np.maximum(squares - _squares(projected), 0) + rounding * squares)
        return columns, squares

    right, of_words = sketch(words)
    right[:, : n + 1] *= -2
    right[:, n + 1] = of_words
    left, of_descriptors = sketch(descriptors)
    left[:, n + 2] = of_descriptors - rounding * (np.sqrt(of_descriptors) + np.sqrt(of_words.max())) ** 2
    return left, np.ascontiguousarray(right.T)


def _squares(rows: Array) -> Array:
    """Squared lengths: (n_rows,)."""
    return np.einsum("ij,ij->i", rows, rows)


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _search(descriptors, words, bounds, lows, numbers, squared):
    """Fill `numbers` and `squared`. The bounds are used up."""
    last = numbers.shape[1] - 1
    for row in range(descriptors.shape[0]):
        _group_lows(bounds, row, lows)
        for _ in range(last + 1):
            word = _take_lowest(bounds, row, lows)
            _enter(_distance(descriptors, row, words, word), word, numbers, squared, row)
        worst = squared[row, last]
        for group in range(GROUPS):
            if lows[group] <= worst:
                for word in range(group, words.shape[0], GROUPS):
                    if bounds[row, word] <= worst:
                        distance = _distance(descriptors, row, words, word)
                        if distance <= worst:
                            _enter(distance, word, numbers, squared, row)
                            worst = squared[row, last]


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _group_lows(bounds, row, lows):
    """The lowest bound of every group; group g is the words g, g + GROUPS, ..., so that groups are vector lanes."""
    n_words = bounds.shape[1]
    whole = n_words - n_words % GROUPS
    lows[:] = np.inf
    for first in range(0, whole, GROUPS):
        for group in range(GROUPS):
            bound = bounds[row, first + group]
            lows[group] = bound if bound < lows[group] else lows[group]
    for group in range(n_words - whole):
        bound = bounds[row, whole + group]
        lows[group] = bound if bound < lows[group] else lows[group]


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _take_lowest(bounds, row, lows):
    """The word with the lowest bound, which is not met again."""
    group = 0
    for other in range(1, GROUPS):
        if lows[other] < lows[group]:
            group = other
    word, second = group, np.float32(np.inf)
    for other in range(group + GROUPS, bounds.shape[1], GROUPS):
        if bounds[row, other] < bounds[row, word]:
            word, second = other, bounds[row, word]
        elif bounds[row, other] < second:
            second = bounds[row, other]
    bounds[row, word] = np.inf
    lows[group] = second
    return word


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _distance(descriptors, row, words, word):
    total = np.float32(0)
    for k in range(words.shape[1]):
        difference = descriptors[row, k] - words[word, k]
        total += difference * difference
    return total


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _enter(distance, word, numbers, squared, row):
    """Put a word where it belongs among the nearest: by distance, then by number."""
    place = numbers.shape[1]
    while place > 0 and (
        distance < squared[row, place - 1] or (distance == squared[row, place - 1] and word < numbers[row, place - 1])
    ):
        place -= 1
    for later in range(numbers.shape[1] - 1, place, -1):
        squared[row, later] = squared[row, later - 1]
        numbers[row, later] = numbers[row, later - 1]
    if place < numbers.shape[1]:
        squared[row, place] = distance
        numbers[row, place] = word
