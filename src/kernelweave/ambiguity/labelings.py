"""Which labellings are possible: one object a way in which labels are not fully known.

A labelling gives every item a sign: -1 or +1, or 0 where a bag speaks through another of its items. A scenario knows
the set of the possible ones through two questions, which is the best for given linear scores and whether one is
possible, and proposes one to begin with. Units are what the machine learns on: items, or bags that choose an item.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..machines.simplex import SimplexSVM
from .bags import Bags

Array = NDArray[np.float64]
Signs = NDArray[np.int8]

#: Shares that differ by less differ by rounding, be it that of single precision.
_SHARE = 1e-6
#: Steps of the power method for the sign of a first eigenvector.
_POWER_STEPS = 50


class Labelings(ABC):
    """A set of possible labellings of `n_items` items.

    Attributes
    ----------
    n_items : int
    unit_of : array of int of shape (n_items,), or None
        The unit of each item; None: each is its own.
    shares : array of shape (n_units,)
        What a unit counts beside others, at most one: a bag whose items are units of their own counts once in all.
    """

    n_items: int
    unit_of: NDArray[np.intp] | None = None

    @property
    def shares(self) -> Array:
        return np.ones(self.n_items)

    @property
    def is_certain(self) -> bool:
        """Whether there is one labelling only."""
        return False

    @property
    def is_symmetric(self) -> bool:
        """Whether with a labelling its opposite is possible, too: then only differences between items mean anything."""
        return False

    @abstractmethod
    def linear_argmax(self, scores: ArrayLike) -> Signs:
        """The possible labellings of the largest sum ``signs * scores``, for scores of shape (..., n_items)."""

    @abstractmethod
    def is_feasible(self, signs: ArrayLike) -> bool:
        """Whether one labelling, (n_items,), is possible."""

    @abstractmethod
    def initial(self, K: NDArray) -> Signs:
        """A possible labelling to begin with, given the mean kernel between items, (n_items, n_items)."""


class PartlyKnown(Labelings):
    """Some labels are known, and of the others between `low` and `high` are positive.

    Parameters
    ----------
    known : array of shape (n_items,)
        -1, +1, or 0 where the label is not known.
    low, high : int
    """

    def __init__(self, known: ArrayLike, low: int, high: int) -> None:
        self.known = np.asarray(known, dtype=np.int8)
        self.n_items = len(self.known)
        self.unknown = np.flatnonzero(self.known == 0)
        self.low, self.high = int(low), int(high)
        if not 0 <= self.low <= self.high <= len(self.unknown):
            raise ValueError(
                f"between {low} and {high} of {len(self.unknown)} unlabelled samples are to be positive, which no "
                "labelling is: give numbers from 0 to the number of unlabelled samples, the smaller one first."
            )

    @property
    def is_certain(self) -> bool:
        return not len(self.unknown) or self.high == 0 or self.low == len(self.unknown)

    @property
    def is_symmetric(self) -> bool:
        return len(self.unknown) == self.n_items == self.low + self.high

    def linear_argmax(self, scores: ArrayLike) -> Signs:
        """Known labels as they are; of the others the highest scores are positive, as many as are above zero if that
        is allowed."""
        scores = np.asarray(scores, dtype=np.float64)
        signs = np.broadcast_to(self.known, scores.shape).copy()
        part = scores[..., self.unknown]
        count = np.clip((part > 0).sum(axis=-1, keepdims=True), self.low, self.high)
        signs[..., self.unknown] = np.where(among_highest(part, count), 1, -1)
        return signs

    def is_feasible(self, signs: ArrayLike) -> bool:
        signs = np.asarray(signs)
        judged = self.known != 0
        allowed = np.all(np.abs(signs) == 1) and np.array_equal(signs[judged], self.known[judged])
        return bool(allowed and self.low <= np.count_nonzero(signs[self.unknown] > 0) <= self.high)

    def initial(self, K: NDArray) -> Signs:
        """The answer of a machine that was taught the known labels; without any, the first eigenvector's."""
        judged = np.flatnonzero(self.known)
        if not len(judged):
            return self.linear_argmax(first_eigenvector(K))
        y = self.known[judged].astype(np.float64)
        part = K[np.ix_(judged, judged)] * np.outer(y, y)
        duals = SimplexSVM(1.0 / max(float(part.diagonal().mean()), 1e-12)).solve(part, np.ones((len(y), 1))).coef[:, 0]
        return self.linear_argmax(K[:, judged] @ (duals * y))


class Supervised(PartlyKnown):
    """All labels are known.

    Parameters
    ----------
    y : array of shape (n_items,) of -1 and +1
    """

    def __init__(self, y: ArrayLike) -> None:
        super().__init__(y, 0, 0)
        if len(self.unknown):
            raise ValueError(f"all labels must be -1 or +1, but {len(self.unknown)} are 0; use SemiSupervised.")


class SemiSupervised(PartlyKnown):
    """Some labels are known, and so is the share of positive ones among the others.

    Parameters
    ----------
    y : array of shape (n_items,)
        -1, +1, or 0 where the label is not known.
    balance : float or (low, high)
        Share of the unlabelled samples that are positive, or the smallest and largest it may be.

    Examples
    --------
    >>> from kernelweave.ambiguity.labelings import SemiSupervised
    >>> scenario = SemiSupervised([1, -1, 0, 0, 0, 0], balance=0.25)
    >>> scenario.linear_argmax([0.0, 0.0, 0.1, 0.9, 0.3, 0.2])
    array([ 1, -1, -1,  1, -1, -1], dtype=int8)
    """

    def __init__(self, y: ArrayLike, balance: float | tuple[float, float]) -> None:
        n_unknown = int(np.count_nonzero(np.asarray(y) == 0))
        low, high = as_interval(balance)
        # A share that no whole number has is rounded; an interval is one of counts that lie inside it, if any do.
        least, most = int(np.ceil(low * n_unknown - 1e-9)), int(np.floor(high * n_unknown + 1e-9))
        if least > most:
            least = most = int(np.rint(0.5 * (low + high) * n_unknown))
        super().__init__(y, least, most)


class Clustering(PartlyKnown):
    """No label is known, and neither side has many more items than the other: ``|sum of signs| <= beta``.

    Parameters
    ----------
    n_items : int
    beta : float
        Largest difference between the sizes of the two sides, less than `n_items`.
    """

    def __init__(self, n_items: int, beta: float) -> None:
        if not 0 <= beta < n_items:
            raise ValueError(
                f"beta must be at least 0 and less than the number of samples {n_items}, got {beta!r}: else all "
                "samples may be one cluster, which is always best."
            )
        beta = max(beta, n_items % 2)
        low = int(np.ceil((n_items - beta) / 2 - 1e-9))  # beta is often a share of n_items, with its rounding
        super().__init__(np.zeros(n_items), low, n_items - low)


class _OfBags(Labelings):
    """Instances of negative bags are negative; what is possible in positive bags, a subclass says."""

    def __init__(self, bags: Bags, y: ArrayLike) -> None:
        self.bags = bags
        self.y = np.asarray(y)
        if self.y.shape != (len(bags),) or not np.all(np.abs(self.y) == 1):
            raise ValueError(f"labels must be -1 or +1, one for each of {len(bags)} bags, got {y!r}.")
        self.n_items = bags.n_instances
        self.positive = [bags.members(i) for i in np.flatnonzero(self.y > 0)]
        if not self.positive:
            raise ValueError("there is no positive bag: nothing is unknown and nothing can be learned.")
        sizes = np.array([len(members) for members in self.positive])
        self._filled = np.arange(sizes.max()) < sizes[:, None]
        self._places = np.zeros(self._filled.shape, dtype=np.intp)
        self._places[self._filled] = np.concatenate(self.positive)

    def _by_bag(self, scores: Array) -> Array:
        """Scores of the instances of positive bags, (..., n_positive_bags, size of the largest), -inf beyond a bag."""
        return np.where(self._filled, scores[..., self._places], -np.inf)


class InstanceBags(_OfBags):
    """Every instance has a label; in a positive bag at least so many are positive.

    Parameters
    ----------
    bags : Bags
    y : array of shape (n_bags,) of -1 and +1
    positives : int or float
        Least number of positive instances of a positive bag (an integer, at least 1; bags that have fewer instances are
        all positive), or their least share (a float up to 1).

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.ambiguity import Bags
    >>> from kernelweave.ambiguity.labelings import InstanceBags
    >>> scenario = InstanceBags(Bags(np.ones((5, 1)), groups=[0, 0, 0, 1, 1]), [1, -1], positives=1)
    >>> scenario.linear_argmax([-3.0, -1.0, -2.0, 5.0, 5.0])
    array([-1,  1, -1, -1, -1], dtype=int8)
    """

    def __init__(self, bags: Bags, y: ArrayLike, positives: int | float = 1) -> None:
        super().__init__(bags, y)
        is_count = isinstance(positives, (int, np.integer)) and not isinstance(positives, bool)
        is_share = isinstance(positives, (float, np.floating)) and 0 < positives <= 1
        if not (is_count and positives >= 1) and not is_share:
            raise ValueError(f"positives must be an integer of at least 1 or a share in (0, 1], got {positives!r}.")
        self.needed = [
            min(int(positives), len(members)) if is_count else max(int(np.ceil((positives - _SHARE) * len(members))), 1)
            for members in self.positive
        ]

    @property
    def is_certain(self) -> bool:
        return all(needed == len(members) for needed, members in zip(self.needed, self.positive, strict=True))

    def linear_argmax(self, scores: ArrayLike) -> Signs:
        """The signs of the scores; where too few of a bag are positive, its highest are."""
        scores = np.asarray(scores, dtype=np.float64)
        signs = np.full(scores.shape, -1, dtype=np.int8)
        part = self._by_bag(scores)
        positive = (part > 0) | among_highest(part, np.array(self.needed)[:, None])
        signs[..., self._places[self._filled]] = np.where(positive, 1, -1)[..., self._filled]
        return signs

    def is_feasible(self, signs: ArrayLike) -> bool:
        signs = np.asarray(signs)
        negative = np.isin(self.bags.bag_of, np.flatnonzero(self.y < 0))
        enough = [
            np.count_nonzero(signs[members] > 0) >= needed
            for members, needed in zip(self.positive, self.needed, strict=True)
        ]
        return bool(np.all(np.abs(signs) == 1) and np.all(signs[negative] == -1) and all(enough))

    def initial(self, K: NDArray) -> Signs:
        """The labels of the bags."""
        return self.y[self.bags.bag_of].astype(np.int8)


class BagRepresentatives(_OfBags):
    """A positive bag is one of its instances, nobody knows which; instances of negative bags stand for themselves.

    Units are the positive bags, in order, then the instances of negative bags, each with its share of its bag.

    Parameters
    ----------
    bags : Bags
    y : array of shape (n_bags,) of -1 and +1
    """

    def __init__(self, bags: Bags, y: ArrayLike) -> None:
        super().__init__(bags, y)
        unit_of = np.empty(self.n_items, dtype=np.intp)
        for unit, members in enumerate(self.positive):
            unit_of[members] = unit
        self.negative = np.flatnonzero(self.y[bags.bag_of] < 0)
        unit_of[self.negative] = len(self.positive) + np.arange(len(self.negative))
        self.unit_of = unit_of

    @property
    def shares(self) -> Array:
        of_negative = 1.0 / self.bags.sizes[self.bags.bag_of[self.negative]]
        return np.concatenate([np.ones(len(self.positive)), of_negative])

    @property
    def is_certain(self) -> bool:
        return all(len(members) == 1 for members in self.positive)

    def linear_argmax(self, scores: ArrayLike) -> Signs:
        """In every positive bag the instance of the highest score."""
        scores = np.asarray(scores, dtype=np.float64)
        signs = np.zeros(scores.shape, dtype=np.int8)
        signs[..., self.negative] = -1
        best = self._by_bag(scores).argmax(axis=-1)
        chosen = self._places[np.arange(len(self.positive)), best]
        np.put_along_axis(signs, chosen, 1, axis=-1)
        return signs

    def is_feasible(self, signs: ArrayLike) -> bool:
        signs = np.asarray(signs)
        one_each = all(sorted(signs[members].tolist()) == [0] * (len(members) - 1) + [1] for members in self.positive)
        return bool(one_each and np.all(signs[self.negative] == -1))

    def initial(self, K: NDArray) -> Signs:
        """The instance that is nearest to the positive bags and farthest from the negative ones, on average."""
        n_bags = np.where(self.y > 0, len(self.positive), max(len(self.y) - len(self.positive), 1))
        return self.linear_argmax(K @ (self.y / n_bags / self.bags.sizes)[self.bags.bag_of])


def among_highest(scores: Array, count: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Whether a score is among the `count` highest of its row, for rows of shape (..., n)."""
    order = np.argsort(-scores, axis=-1)
    first = np.empty(scores.shape, dtype=bool)
    np.put_along_axis(first, order, np.arange(scores.shape[-1]) < count, axis=-1)
    return first


def as_interval(balance: float | tuple[float, float]) -> tuple[float, float]:
    """A share, or the least and the largest one, as a pair; an error if they contradict each other."""
    try:
        pair = np.asarray(balance, dtype=np.float64)
    except (TypeError, ValueError):
        pair = np.empty(0)
    if pair.shape not in ((), (2,)) or np.any(np.isnan(pair)):
        raise ValueError(f"a balance is a share of positive samples or a pair (low, high) of them, got {balance!r}.")
    low, high = np.broadcast_to(pair, 2)
    if not 0 <= low <= high <= 1:
        raise ValueError(
            f"the balance {balance!r} is contradictory: shares of positive samples are from 0 to 1, the smaller first."
        )
    return float(low), float(high)


def class_shares(balance: Any, classes: list, known: Signs) -> list[tuple[float, float]]:
    """Least and largest share of positive samples among the unlabelled ones, problem by problem.

    Parameters
    ----------
    balance : "labelled", float, (low, high), or mapping of classes to either
    classes : list
        Two, whose second one is positive in the one problem there is; or more, each the positive one of a problem.
    known : array of shape (n_problems, n_samples)
        Known labels as signs, 0 where not known.
    """
    if isinstance(balance, str):
        if balance != "labelled":
            raise ValueError(f"balance must be 'labelled', a share, a pair or a mapping, got {balance!r}.")
        return [as_interval(np.count_nonzero(y > 0) / np.count_nonzero(y)) for y in known]
    if not isinstance(balance, Mapping):
        if len(known) > 1:
            raise ValueError(
                f"balance={balance!r} is the share of one class, but there are {len(known)}: give a mapping such "
                f"as {{{classes[0]!r}: 0.5, ...}}."
            )
        return [as_interval(balance)]
    unknown = set(balance) - set(classes)
    if unknown or (len(known) > 1 and set(balance) != set(classes)) or not balance:
        raise ValueError(f"balance must have a share for each of the classes {classes}, got {balance!r}.")
    pairs = {label: as_interval(share) for label, share in balance.items()}
    low, high = (sum(pair[side] for pair in pairs.values()) for side in (0, 1))
    if set(balance) == set(classes) and (low > 1 + 1e-9 or high < 1 - 1e-9):
        raise ValueError(
            f"the balance {balance!r} is contradictory: shares of all classes sum to one, these to {low:g} at "
            f"least and {high:g} at most."
        )
    if len(known) > 1:
        return [pairs[label] for label in classes]
    if classes[1] in pairs:
        return [pairs[classes[1]]]
    return [(1.0 - pairs[classes[0]][1], 1.0 - pairs[classes[0]][0])]


def first_eigenvector(K: NDArray) -> Array:
    """The first eigenvector of a positive semi-definite matrix, about, by the power method."""
    vector = np.random.default_rng(0).standard_normal(len(K))
    for _ in range(_POWER_STEPS):
        following = K @ vector
        size = float(np.linalg.norm(following))
        if size == 0.0:
            break
        vector = following / size
    return vector
