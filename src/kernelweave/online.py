"""Online multiple kernel learning: one sample after the other, and never a kernel matrix of all of them."""

from __future__ import annotations

import copy
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils import check_consistent_length, check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets, unique_labels
from sklearn.utils.validation import check_is_fitted

from ._estimator import BankEstimator
from .kernels.fitted import Blocks, Node, RightRows, all_steps
from .kernels.quantities import PRECOMPUTED, Quantity
from .kernels.steps import Scale, Spherical, Step
from .views import Views, as_views

Array = NDArray[np.float64]

#: Samples learned from before their kernels with the support are computed again, all at once.
CHUNK = 128
#: Support samples kept together; a full slab is prepared for kernel blocks once.
SLAB = 512
#: Samples of the first batch, evenly spaced, that bandwidths and normalisations are learned from.
FITTING_SAMPLES = 500
#: A function counts as 0 at a sample (or as 1, on the margin) when it is that close, as a share of the sum of the sizes
#: of its terms. Rounding depends on how samples are batched, and must not decide ties, which are common in count data.
TIE = 1e-10


class OnlineMKLClassifier(ClassifierMixin, BankEstimator):
    """Classification of streams with a combination of kernels that is learned sample by sample.

    Only samples that corrected the model are kept (its *support*), and no kernel matrix between all samples is made.
    More than two classes are learned one-vs-rest. How a stream is cut into batches does not change the model, except
    for the first batch, from which (at most 500 samples of it) bandwidths and normalisations are learned.

    Parameters
    ----------
    kernels : KernelBank, mapping of view names to kernels, list of kernels, kernel or None
        None: three Gaussian kernels (narrow, medium, wide) on each view. Of a `KernelBank`, only the kernels, columns,
        normalisation and check count: nothing is stored, and values are double precision. Precomputed, centred and
        repaired kernels are refused, since they need all training samples. Give kernels of different magnitude a
        normalisation ("trace" or "spherical").
    method : {"om2", "hedge"}, default="om2"
        "hedge": a perceptron for each kernel, and a vote among them in which a kernel loses weight whenever its
        perceptron errs. Every perceptron keeps the samples it erred on, so useless kernels cost memory and time.
        "om2": one predictor on all kernels, corrected when a sample is within the margin; kernels weigh more the longer
        their part of the predictor is.
    discount : float in (0, 1), optional
        For "hedge": the weight of a kernel is ``discount ** (errors of its perceptron)``. By default it follows the
        stream, ``sqrt(t) / (sqrt(t) + sqrt(log(n_kernels)))`` after t samples, which is the published value for a
        stream of known length t.
    q : float, optional
        For "om2", at least 2: kernel weights are proportional to ``length ** (q - 2)``, so 2 keeps them equal and large
        values favour the best kernel. By default ``2 * log(n_kernels)``, at least 2.
    n_epochs : int, default=1
        Passes of `fit` over its data; `partial_fit` makes one.
    random_state : int, RandomState or None
        If given, `fit` shuffles the samples before every pass. By default it takes them in order, which is bad when
        they are sorted by class.

    Attributes
    ----------
    weights_ : array of shape (n_kernels,), or (n_classes, n_kernels) for more than two classes
        Weights of the kernels; the sum over kernels is 1.
    kernel_names_ : tuple of str
    classes_ : array of shape (n_classes,)
    n_mistakes_ : int
        How many samples `predict` would have got wrong just before learning from them.
    n_samples_seen_ : int
    n_support_ : int
        Number of samples kept.

    Notes
    -----
    Let ``f_j`` be the function of kernel j in a two-class problem with labels ``y`` of -1 and +1.

    - "hedge" adds ``y k_j(x, .)`` to ``f_j`` when ``y f_j(x) <= 0``. The decision value of two classes is the vote
      ``sum_j weights_[j] sign(f_j(x))``, in [-1, 1]. Votes of several classes would often be equal, so with more than
      two classes the decision value of a class is ``sum_j weights_[j] cos_j``, where ``cos_j = f_j(x) / (|f_j|
      sqrt(k_j(x, x)))`` is the cosine of the angle between ``f_j`` and the sample in the space of kernel j: in [-1, 1]
      too, whatever the magnitude of the kernel and the number of corrections.
    - "om2" adds ``y k_j(x, .)`` to every ``f_j`` when ``y f(x) < 1``, with ``f = 1/q sum_j (|f_j| / L) ** (q - 2) f_j``
      and ``L = (sum_j |f_j| ** q) ** (1/q)``. The decision value is ``f(x)``.

    Kernels that take their bandwidth from the data need a first batch with at least two different samples in their
    view; for a stream that comes sample by sample fix it, as in ``Gaussian(gamma=0.5)``.

    Examples
    --------
    >>> import kernelweave as kw
    >>> views, y = kw.datasets.make_views(n_samples=400, n_useful=1, n_redundant=0, n_noise=1, random_state=0)
    >>> clf = kw.OnlineMKLClassifier(kernels=kw.kernels.Gaussian(), method="hedge")
    >>> for start in range(0, 400, 50):
    ...     batch = slice(start, start + 50)
    ...     clf = clf.partial_fit(views[batch], y[batch], classes=[0, 1])
    >>> clf.kernel_names_
    ('useful0:Gaussian', 'noise0:Gaussian')
    >>> bool(clf.weights_[0] > 0.9)
    True
    """

    def __init__(
        self,
        kernels: Any = None,
        method: str = "om2",
        discount: float | None = None,
        q: float | None = None,
        n_epochs: int = 1,
        random_state: Any = None,
    ) -> None:
        self.kernels = kernels
        self.method = method
        self.discount = discount
        self.q = q
        self.n_epochs = n_epochs
        self.random_state = random_state

    def fit(self, X: Any, y: ArrayLike) -> OnlineMKLClassifier:
        """Forget what was learned and learn from one data set, in `n_epochs` passes.

        Parameters
        ----------
        X : Views, mapping, array of shape (n_samples, n_features) or frame
        y : array of shape (n_samples,)
        """
        if not isinstance(self.n_epochs, (int, np.integer)) or self.n_epochs < 1:
            raise ValueError(f"n_epochs must be an integer of at least 1, got {self.n_epochs!r}")
        views = self._views(X, reset=True)
        if y is None:
            raise ValueError("This OnlineMKLClassifier requires y to be passed, but the target y is None.")
        check_classification_targets(y)
        classes = _checked_classes(column_or_1d(y, warn=True))
        codes = _codes(y, classes, len(views))
        self._start(views, classes)
        rng = None if self.random_state is None else check_random_state(self.random_state)
        places = np.full(len(views), -1)
        for _ in range(self.n_epochs):
            self._learn(views, codes, np.arange(len(views)) if rng is None else rng.permutation(len(views)), places)
        return self

    def partial_fit(self, X: Any, y: ArrayLike, classes: ArrayLike | None = None) -> OnlineMKLClassifier:
        """Learn from the next samples of a stream, in order.

        Parameters
        ----------
        X : Views, mapping, array of shape (n_samples, n_features) or frame
        y : array of shape (n_samples,)
        classes : array of shape (n_classes,)
            All classes the stream may bring; needed in the first call.
        """
        first = not hasattr(self, "_support")
        if first and classes is None:
            raise ValueError("classes must be passed on the first call to partial_fit: all labels the stream may bring")
        known = self.classes_ if classes is None else _checked_classes(classes)
        if not first and not np.array_equal(known, self.classes_):
            raise ValueError(f"classes={known.tolist()} is not what the first call was given: {self.classes_.tolist()}")
        views = self._views(X, reset=first)
        codes = _codes(y, known, len(views))
        if first:
            self._start(views, known)
        self._learn(views, codes, np.arange(len(views)), np.full(len(views), -1))
        return self

    def decision_function(self, X: Any) -> Array:
        """Scores of shape (n_samples,) for two classes (positive: ``classes_[1]``), else (n_samples, n_classes)."""
        check_is_fitted(self)
        views = self._views(X, reset=False)
        self._check_rows(views)
        parts = []
        for start in range(0, len(views), CHUNK):
            samples = Samples(views, slice(start, start + CHUNK), self._support.widths)
            parts.append(self._learner.decisions(*self._support.values(samples)))
        decisions = np.concatenate(parts, axis=1)
        return decisions[0] if len(decisions) == 1 else decisions.T

    def predict(self, X: Any) -> NDArray:
        """Classes of shape (n_samples,)."""
        decisions = np.atleast_2d(self.decision_function(X).T)
        return self.classes_[_winners(decisions)]

    def _views(self, X: Any, reset: bool) -> Views:
        spec = self._spec()
        if isinstance(spec.kernels, str):
            raise ValueError(
                f"OnlineMKLClassifier cannot use kernels={spec.kernels!r}: the samples of a stream are not known "
                "beforehand. Give kernels on features, or use MKLClassifier"
            )
        return as_views(self._read(X, reset), spec.columns)

    def _start(self, views: Views, classes: NDArray) -> None:
        n_outputs = 1 if len(classes) == 2 else len(classes)
        names, nodes = self._fitted_kernels(views)
        learner = self._new_learner(n_outputs, len(nodes))
        widths = {leaf.view: views[leaf.view].shape[1] for node in nodes for leaf in node.leaves}
        self._learner = learner
        self._support = Support(names, nodes, widths, (learner.n_coefficients, n_outputs))
        self.classes_ = classes
        self.kernel_names_ = names
        self.n_mistakes_ = 0

    def _fitted_kernels(self, views: Views) -> tuple[tuple[str, ...], tuple[Node, ...]]:
        spec = copy.copy(self._spec())
        spec.storage, spec.dtype = "recompute", "float64"
        some = views[np.unique(np.linspace(0, len(views) - 1, FITTING_SAMPLES).astype(int))]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="all training samples are equal")  # an error below
            bank = spec.build(some)
        for name, node in zip(bank.names, bank._nodes, strict=True):
            _check_fitted(name, node, some)
        return bank.names, bank._nodes

    def _new_learner(self, n_outputs: int, n_kernels: int) -> Learner:
        if self.method == "hedge":
            if self.discount is not None and not 0 < self.discount < 1:
                raise ValueError(f"discount must be a number between 0 and 1, both excluded, got {self.discount!r}")
            return Hedge(n_outputs, n_kernels, self.discount)
        if self.method == "om2":
            if self.q is not None and not 2 <= self.q < math.inf:
                raise ValueError(f"q must be a finite number of at least 2, got {self.q!r}")
            return OM2(n_outputs, n_kernels, max(2.0, 2 * math.log(n_kernels)) if self.q is None else float(self.q))
        raise ValueError(f"method must be 'hedge' or 'om2', got {self.method!r}")

    def _check_rows(self, views: Views) -> None:
        """Refuse views that are missing, have the wrong width, or hold values a kernel is not defined for."""
        for view, width in self._support.widths.items():
            if view not in views:
                raise ValueError(f"view {view!r} is missing: the kernels need it, but X has only {list(views.names)}")
            if views[view].shape[1] != width:
                raise ValueError(
                    f"view {view!r} has {views[view].shape[1]} columns, but had {width} in the first batch"
                )
        for leaf in (leaf for node in self._support.nodes for leaf in node.leaves):
            leaf.kernel.quantity.check(views[leaf.view], leaf.view)

    def _learn(self, views: Views, codes: NDArray, order: NDArray, places: NDArray) -> None:
        """Learn from all samples once; ``places`` says, and is told, where in the support each of them is (or -1)."""
        self._check_rows(views)
        for start in range(0, len(order), CHUNK):
            rows = order[start : start + CHUNK]
            samples = Samples(views, rows, self._support.widths)
            places[rows] = self._learn_chunk(samples, codes[rows], places[rows])
        weights = self._learner.weights()
        self.weights_ = weights[0] if len(weights) == 1 else weights
        self.n_samples_seen_ = self._learner.seen
        self.n_support_ = len(self._support)

    def _learn_chunk(self, samples: Samples, codes: NDArray, places: NDArray) -> NDArray:
        support, learner = self._support, self._learner
        kernels, diagonals, norms = support.kernels_within(samples)
        values, _ = support.values(samples)
        own_class = codes == 1 if learner.n_outputs == 1 else codes == np.arange(learner.n_outputs)[:, None]
        signs = np.where(np.atleast_2d(own_class), 1.0, -1.0)
        coef = np.zeros((learner.n_outputs, learner.n_coefficients, len(samples)))
        for i in range(len(samples)):
            decision = learner.decisions(values[:, :, i : i + 1], diagonals[:, i : i + 1])
            self.n_mistakes_ += int(_winners(decision)[0] != codes[i])
            correction = learner.learn(values[:, :, i], diagonals[:, i], signs[:, i])
            if correction.any():
                coef[:, :, i] = correction
                values[:, :, i + 1 :] += correction[:, :, None] * kernels[:, i, i + 1 :]
        return support.add(samples, norms, coef, places)


# -- what is learned ------------------------------------------------------------------------------------------------


class Learner(ABC):
    """Two-class problems on the same kernels, learned side by side: one for two classes, else one a class.

    It sees samples only through ``values`` (n_outputs, n_kernels, ...), the functions ``f_j`` at the samples, and
    ``diagonals`` (n_kernels, ...), the kernels of the samples with themselves.

    Parameters
    ----------
    n_outputs, n_kernels : int
    n_coefficients : int
        How many coefficients a support sample has in each problem: one a kernel, or 1 that is shared by all kernels.
    """

    def __init__(self, n_outputs: int, n_kernels: int, n_coefficients: int) -> None:
        self.n_outputs = n_outputs
        self.n_kernels = n_kernels
        self.n_coefficients = n_coefficients
        self.seen = 0
        self.squared_norms = np.zeros((n_outputs, n_kernels))
        self._sizes = np.zeros((n_outputs, n_kernels))  # sums of |coefficient| sqrt(k(x, x)), which bound the f_j

    @abstractmethod
    def weights(self) -> Array:
        """Kernel weights (n_outputs, n_kernels) with the sum 1 for each output."""

    @abstractmethod
    def decisions(self, values: Array, diagonals: Array) -> Array:
        """Decision values (n_outputs, n) from values (n_outputs, n_kernels, n) and diagonals (n_kernels, n)."""

    @abstractmethod
    def correction(self, values: Array, diagonals: Array, signs: Array) -> Array:
        """Coefficients (n_outputs, n_coefficients) a sample gets that has the labels ``signs`` (n_outputs,)."""

    def learn(self, values: Array, diagonals: Array, signs: Array) -> Array:
        """Learn from one sample; return the coefficients it gets."""
        correction = self.correction(values, diagonals, signs)
        # |f + c k(x, .)|^2 = |f|^2 + 2 c f(x) + c^2 k(x, x); rounding must not take it below zero.
        self.squared_norms += 2 * correction * values + correction**2 * diagonals
        np.maximum(self.squared_norms, 0.0, out=self.squared_norms)
        self._sizes += np.abs(correction) * _root(diagonals)
        self.seen += 1
        return correction


class Hedge(Learner):
    """A perceptron for each kernel and weights that fall exponentially with their errors."""

    def __init__(self, n_outputs: int, n_kernels: int, discount: float | None) -> None:
        super().__init__(n_outputs, n_kernels, n_kernels)
        self._discount = discount
        self._errors = np.zeros((n_outputs, n_kernels))

    def weights(self) -> Array:
        fewest = self._errors.min(axis=1, keepdims=True)
        weights = np.exp(self._log_discount() * (self._errors - fewest))
        return weights / weights.sum(axis=1, keepdims=True)

    def decisions(self, values: Array, diagonals: Array) -> Array:
        if self.n_outputs > 1:
            return np.einsum("cj,cjn->cn", self.weights(), self._cosines(values, diagonals))
        sides = np.sign(_without_ties(values, self._sizes[:, :, None] * _root(diagonals)))
        return _without_ties(np.einsum("cj,cjn->cn", self.weights(), sides), 1.0)

    def correction(self, values: Array, diagonals: Array, signs: Array) -> Array:
        wrong = signs[:, None] * _without_ties(values, self._sizes * _root(diagonals)) <= 0
        self._errors += wrong
        return wrong * signs[:, None]

    def _log_discount(self) -> float:
        if self._discount is not None:
            return math.log(self._discount)
        return -math.log1p(math.sqrt(math.log(self.n_kernels) / max(1, self.seen)))

    def _cosines(self, values: Array, diagonals: Array) -> Array:
        lengths = np.sqrt(self.squared_norms)[:, :, None] * _root(diagonals)
        return np.divide(values, lengths, out=np.zeros_like(values), where=lengths > 0)


class OM2(Learner):
    """One predictor in the product of the kernels' spaces, regularised by a group norm; corrected on margin errors."""

    def __init__(self, n_outputs: int, n_kernels: int, q: float) -> None:
        super().__init__(n_outputs, n_kernels, 1)
        self._q = q

    def weights(self) -> Array:
        factors = self._factors()
        return factors / factors.sum(axis=1, keepdims=True)

    def decisions(self, values: Array, diagonals: Array) -> Array:
        factors = self._factors()
        sizes = (factors * self._sizes) @ _root(diagonals)
        return _without_ties(np.einsum("cj,cjn->cn", factors, values), sizes)

    def correction(self, values: Array, diagonals: Array, signs: Array) -> Array:
        factors = self._factors()
        missing = 1 - signs * (factors * values).sum(axis=1)
        sizes = 1 + (factors * self._sizes * _root(diagonals)).sum(axis=1)
        return np.where(_without_ties(missing, sizes) > 0, signs, 0.0)[:, None]

    def _factors(self) -> Array:
        """What multiplies each f_j: ``1/q (|f_j| / (sum_j |f_j|^q)^(1/q))^(q - 2)``."""
        norms = np.sqrt(self.squared_norms)
        longest = norms.max(axis=1, keepdims=True)  # divided out first, so that powers cannot overflow
        relative = np.divide(norms, longest, out=np.ones_like(norms), where=longest > 0)
        total = (relative**self._q).sum(axis=1, keepdims=True) ** (1 / self._q)
        return (relative / total) ** (self._q - 2) / self._q


def _root(diagonals: Array) -> Array:
    return np.sqrt(np.maximum(diagonals, 0.0))  # an indefinite kernel may be negative there


def _without_ties(values: Array, sizes: Array | float) -> Array:
    """Values, with 0 where they are rounding of terms whose sizes add up to ``sizes``."""
    return np.where(np.abs(values) > TIE * sizes, values, 0.0)


# -- kernels with what is kept --------------------------------------------------------------------------------------


class Samples:
    """Some samples of a batch: their rows in the views that count (``names``), in double precision."""

    def __init__(self, views: Views, rows: NDArray | slice, names: Iterable[str]) -> None:
        self.rows = {name: np.ascontiguousarray(views[name][rows], dtype=np.float64) for name in names}
        self._diagonals: dict[tuple[str, Quantity], Array] = {}

    def __len__(self) -> int:
        return len(next(iter(self.rows.values())))

    def __getitem__(self, view: str) -> Array:
        return self.rows[view]

    def diagonal(self, view: str, quantity: Quantity) -> Array:
        """A quantity of every sample with itself, computed once."""
        key = (view, quantity)
        if key not in self._diagonals:
            self._diagonals[key] = quantity.diagonal(self.rows[view])
        return self._diagonals[key]


class StreamBlocks(Blocks):
    """Kernel values between samples that all came after the kernels were fitted.

    ``inverse_norms`` says what every normalisation to a unit diagonal multiplies the right-hand samples by (n_right,).
    Without it, the right-hand samples are the left-hand ones, and it is filled in.
    """

    def __init__(
        self, left: Samples, right: RightRows, n_right: int, inverse_norms: dict[Step, Array] | None = None
    ) -> None:
        super().__init__(left, len(left), n_right, right)
        self.inverse_norms = {} if inverse_norms is None else inverse_norms
        self._with_themselves = inverse_norms is None

    def block_and_diagonal(self, node: Node) -> tuple[Array, Array]:
        """Values of one kernel (n_left, n_right), and of the left-hand samples with themselves (n_left,)."""
        block, diagonal = self._evaluate(node, needs_diagonal=True)
        assert diagonal is not None
        return block, diagonal

    def _diagonal(self, view: str, quantity: Quantity) -> NDArray:
        return self.left.diagonal(view, quantity)

    def _apply(self, step: Step, block: NDArray, diagonal: NDArray | None) -> NDArray | None:
        if isinstance(step, Spherical):
            assert diagonal is not None
            if self._with_themselves:
                norms = _root(diagonal)
                self.inverse_norms[step] = np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)
            step = replace(step, inverse_norms=self.inverse_norms[step])
        return step.on_new(block, diagonal, np.arange(self.shape[1]))


class Slab:
    """Places for `SLAB` support samples: their rows, norms and coefficients (n_coefficients, SLAB, n_outputs)."""

    def __init__(self, widths: dict[str, int], steps: Sequence[Step], coefficients: tuple[int, int]) -> None:
        self.n = 0
        # Zeros and not garbage: models that are equal then are equal when pickled.
        self.rows = {view: np.zeros((SLAB, width)) for view, width in widths.items()}
        self.inverse_norms = {step: np.zeros(SLAB) for step in steps}
        self.coef = np.zeros((coefficients[0], SLAB, coefficients[1]))
        self._right: RightRows | None = None

    def append(self, samples: Samples, inverse_norms: dict[Step, Array], i: int) -> None:
        """Put sample ``i`` into the next free place."""
        for view, rows in self.rows.items():
            rows[self.n] = samples[view][i]
        for step, values in self.inverse_norms.items():
            values[self.n] = inverse_norms[step][i]
        self.n += 1

    def blocks(self, left: Samples) -> StreamBlocks:
        """Kernels of some samples with the samples in this slab."""
        right = self._right
        if right is None:
            right = RightRows({view: rows[: self.n] for view, rows in self.rows.items()}, np.float64)
            if self.n == SLAB:
                self._right = right  # rows do not change any more, so what blocks prepare from them is kept
        norms = {step: values[: self.n] for step, values in self.inverse_norms.items()}
        return StreamBlocks(left, right, self.n, norms)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_right": None}  # as large as the rows, and made again from them


class Support:
    """The samples a model keeps: rows of the views in ``widths`` (columns of each), coefficients as in `Learner`."""

    def __init__(
        self, names: tuple[str, ...], nodes: tuple[Node, ...], widths: dict[str, int], coefficients: tuple[int, int]
    ) -> None:
        self.names = names
        self.nodes = nodes
        self.widths = widths
        self._coefficients = coefficients
        self._spherical = [step for node in nodes for step in all_steps(node) if isinstance(step, Spherical)]
        self._slabs: list[Slab] = []

    def __len__(self) -> int:
        return sum(slab.n for slab in self._slabs)

    def kernels_within(self, samples: Samples) -> tuple[Array, Array, dict[Step, Array]]:
        """Kernels between samples (n_kernels, n, n), their diagonals (n_kernels, n), inverse norms of the samples."""
        blocks = StreamBlocks(samples, RightRows(samples.rows, np.float64), len(samples))
        kernels = np.empty((len(self.nodes), len(samples), len(samples)))
        diagonals = np.empty((len(self.nodes), len(samples)))
        for j, block, diagonal in self._each(blocks):
            kernels[j], diagonals[j] = block, diagonal
        return kernels, diagonals, blocks.inverse_norms

    def values(self, samples: Samples) -> tuple[Array, Array]:
        """Functions f_j at some samples (n_outputs, n_kernels, n), and the diagonals (n_kernels, n) of the samples."""
        values = np.zeros((self._coefficients[1], len(self.nodes), len(samples)))
        diagonals = np.zeros((len(self.nodes), len(samples)))
        for slab in self._slabs:
            for j, block, diagonal in self._each(slab.blocks(samples)):
                coef = slab.coef[j if len(slab.coef) > 1 else 0, : slab.n]
                values[:, j] += (block @ coef).T
                diagonals[j] = diagonal
        return values, diagonals

    def add(self, samples: Samples, norms: dict[Step, Array], coef: Array, places: NDArray) -> NDArray:
        """Add coefficients (n_outputs, n_coefficients, n) of samples; return their places, -1 for those not kept."""
        places = places.copy()
        for i in np.flatnonzero(coef.any(axis=(0, 1))).tolist():
            if places[i] < 0:
                if len(self) % SLAB == 0:
                    self._slabs.append(Slab(self.widths, self._spherical, self._coefficients))
                places[i] = len(self)
                self._slabs[-1].append(samples, norms, i)
            slab, row = divmod(int(places[i]), SLAB)
            self._slabs[slab].coef[:, row] += coef[:, :, i].T
        return places

    def _each(self, blocks: StreamBlocks) -> Iterator[tuple[int, Array, Array]]:
        for j, node in enumerate(self.nodes):
            with np.errstate(over="ignore", invalid="ignore"):
                block, diagonal = blocks.block_and_diagonal(node)
            if not np.isfinite(block).all():
                raise ValueError(
                    f"kernel {self.names[j]!r} has values that are not finite: scale the features, or leave it out"
                )
            yield j, block, diagonal


# -- checks ---------------------------------------------------------------------------------------------------------


def _check_fitted(name: str, node: Node, first: Views) -> None:
    """Refuse kernels that need all training samples, and bandwidths the first batch cannot give."""
    for leaf in node.leaves:
        if leaf.kernel.quantity is PRECOMPUTED:
            raise ValueError(f"kernel {name!r} is precomputed, but the samples of a stream are not known beforehand")
        rows = first[leaf.view]
        if leaf.kernel.needs_mean and (rows == rows[0]).all():
            found = "has 1 sample" if len(rows) == 1 else f"has {len(rows)} equal samples"
            raise ValueError(
                f"kernel {name!r} takes its bandwidth from the distances between the samples of the first batch, but "
                f"that {found} in view {leaf.view!r}: begin with a batch of several different samples, or fix the "
                f"bandwidth, as in {type(leaf.kernel).__name__}(gamma=0.5)"
            )
    for step in all_steps(node):
        if not isinstance(step, (Scale, Spherical)):
            raise ValueError(
                f"kernel {name!r} is centred or repaired, which needs all training samples, and a stream does not keep "
                "them: use the normalisations 'trace', 'variance' or 'spherical'"
            )


def _checked_classes(labels: ArrayLike) -> NDArray:
    classes = unique_labels(labels)
    if len(classes) < 2:
        raise ValueError(f"The classifier needs at least 2 classes, but got only one class: {classes.tolist()}")
    return classes


def _codes(y: ArrayLike, classes: NDArray, n_samples: int) -> NDArray:
    """The number of every sample's class."""
    labels = column_or_1d(y, warn=True)
    check_consistent_length(np.empty(n_samples), labels)
    unknown = ~np.isin(labels, classes)
    if unknown.any():
        raise ValueError(
            f"y contains new labels {np.unique(labels[unknown]).tolist()}; the classes of this stream are "
            f"{classes.tolist()}: name all of them in the first call to partial_fit"
        )
    return np.searchsorted(classes, labels)


def _winners(decisions: Array) -> NDArray:
    """Numbers of the predicted classes (n,) from decision values (n_outputs, n)."""
    if len(decisions) == 1:
        return (decisions[0] > 0).astype(int)
    return (decisions >= decisions.max(axis=0) - TIE).argmax(axis=0)
