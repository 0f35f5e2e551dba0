"""From kernels a user wrote and training data to feature maps of limited width."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from .._config import one_blas_thread
from . import quantities
from .feature_maps import Coordinates, FeatureMap, Fourier, Homogeneous, Nystrom, Rows, as_landmarks, n_landmarks
from .fitted import Leaf, NewBlocks, Node, RightRows, all_steps, at_samples
from .fitting import Fitting, Item, leaves
from .functions import (
    AdditiveChiSquared,
    ChiSquared,
    Gaussian,
    HistogramIntersection,
    Kernel,
    Laplacian,
    Linear,
    Precomputed,
)
from .steps import REPAIRS, unwrap
from .triangle import packed_length

#: Training samples that mean distances, and normalisations inside products, are taken from; for few samples all.
SAMPLE = 2000
#: The same beside the rank, and samples that k-means sees.
SAMPLE_A_RANK, KMEANS_A_RANK = 4, 20
#: Rows of the map inside Fourier features of chi-squared kernels: columns a feature are 2 * order + 1.
INNER_ORDER = 2
#: Samples, and steps of the spectrum, that explicit maps are fitted on.
FEW, STEPS = 200, np.geomspace(0.05, 1.5, 40)

_EXPLICIT = {AdditiveChiSquared: "chi2", HistogramIntersection: "intersection"}
#: Kernels of vectors, for which the mean of some samples is a sample.
_HAS_CENTRES = (
    quantities.DOT,
    quantities.SQEUCLIDEAN,
    quantities.CITYBLOCK,
    quantities.CHI2,
    quantities.MINIMUM,
    quantities.ADDITIVE_CHI2,
)

APPROXIMATIONS = ("auto", "nystrom", "fourier", "explicit")
LANDMARKS = ("kmeans", "leverage", "uniform")


@dataclass
class MapFitting:
    """Fits feature maps on training data.

    Parameters
    ----------
    features : Views
        Training data.
    dtype : dtype
        Precision of the kernel values with landmarks.
    check : {"auto", "always", "never"}
        As in `KernelBank`.
    rank : int
        Largest width of a map.
    approximation, landmarks : str
        As in `KernelBank`.
    seed : int or None

    Attributes
    ----------
    places : list of RightRows
        Sets of landmarks that the maps refer to.
    """

    features: Any
    dtype: np.dtype
    check: str
    rank: int
    approximation: str
    landmarks: str
    seed: int | None
    places: list[RightRows] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.seed)
        n = len(self.features)
        self.rank = min(self.rank, n)
        size = min(n, max(SAMPLE, SAMPLE_A_RANK * self.rank))
        self._sample = np.sort(self._random.choice(n, size, replace=False)) if size < n else np.arange(n)
        self._places: dict[str, int] = {}
        self._uniform: NDArray | None = None

    def run(self, items: tuple[Item, ...]) -> list[FeatureMap]:
        """A map for every kernel, without the normalisations around it."""
        for item in items:
            _refuse(item)
        nodes = self._fit_nodes(items)
        with one_blas_thread():  # small matrices between compiled loops, whose threads would be in the way of BLAS's
            return [self._map(item, node) for item, node in zip(items, nodes, strict=True)]

    def _fit_nodes(self, items: tuple[Item, ...]) -> list[Node]:
        """The kernels without the steps around them, fitted on the sample; there their eigenvalues are checked, too."""
        nodes: dict[int, Node] = {}
        scratch = np.empty((2, packed_length(len(self._sample))))
        few = self.features[self._sample]
        for clip, check in ((False, self.check), (True, "never")):
            members = [j for j, item in enumerate(items) if clipped(item) == clip]
            if members:
                cores = tuple(Item(items[j].name, items[j].view, unwrap(items[j].kernel)[0]) for j in members)
                fitted = Fitting(cores, few, np.float64, (), check).run(lambda j, shared: scratch[int(shared)])
                nodes.update(zip(members, fitted, strict=True))
        return [nodes[j] for j in range(len(items))]

    def _map(self, item: Item, node: Node) -> FeatureMap:
        kernel = unwrap(item.kernel)[0]
        if self.approximation == "fourier":
            return self._fourier(item, kernel, node)
        if isinstance(kernel, Linear) and self.approximation in ("auto", "explicit"):
            assert isinstance(node, Leaf)
            d = self.features[node.view].shape[1]
            if d <= self.rank:
                return Coordinates(node.view, d)
        if self.approximation == "explicit":
            return self._explicit(item, kernel, node)
        return self._nystrom(item, kernel, node)

    # -- explicit maps ----------------------------------------------------------------------------------------------

    def _explicit(self, item: Item, kernel: Kernel, node: Node) -> FeatureMap:
        spectrum = _EXPLICIT.get(type(kernel))
        if spectrum is None and not isinstance(kernel, Linear):
            raise ValueError(
                f"approximation='explicit' is known for Linear, AdditiveChiSquared and HistogramIntersection, but "
                f"kernel {item.name!r} is {kernel.label}: use 'nystrom', which works for every kernel, or 'auto'"
            )
        assert isinstance(node, Leaf)
        d = self.features[node.view].shape[1]
        order = (self.rank // d - 1) // 2
        if spectrum is None or order < 1:
            least = d if spectrum is None else 3 * d
            raise ValueError(
                f"approximation='explicit' needs a rank of at least {least} for kernel {item.name!r} on {d} columns, "
                f"got rank={self.rank}: raise it, or use 'nystrom', which keeps the rank whatever the columns"
            )
        return self._homogeneous(node.view, spectrum, order)

    def _homogeneous(self, view: str, spectrum: str, order: int) -> Homogeneous:
        """The map whose step fits the kernel best on a few samples."""
        X = np.asarray(self.features[view], dtype=np.float64)
        X = X[self._sample[:: max(1, len(self._sample) // FEW)]]
        kernel = {"chi2": quantities.ADDITIVE_CHI2, "intersection": quantities.MINIMUM}[spectrum]
        exact = np.empty((len(X), len(X)))
        kernel.block(X, kernel.prepare(X, np.float64), exact)
        maps = [Homogeneous(view, X.shape[1], spectrum, order, float(step)) for step in STEPS]
        few = Rows({view: X}, len(X), ())
        errors = [float(np.square(Z @ Z.T - exact).sum()) for Z in (each.features(few) for each in maps)]
        return maps[int(np.argmin(errors))]

    # -- random Fourier features ------------------------------------------------------------------------------------

    def _fourier(self, item: Item, kernel: Kernel, node: Node) -> FeatureMap:
        width = self.rank // 2
        if width == 0:
            raise ValueError(f"approximation='fourier' needs a rank of at least 2, got {self.rank}")
        if isinstance(node, Leaf):
            d, rate = self.features[node.view].shape[1], node.rate
            plain = Coordinates(node.view, d)
            normal = self._random.standard_normal
            if isinstance(kernel, Gaussian) and kernel.metric == "euclidean":
                return Fourier(plain, np.sqrt(2 * rate) * normal((d, width)))
            if isinstance(kernel, Laplacian) and kernel.metric == "euclidean":
                # The spectrum of exp(-|t|) is a Cauchy distribution: a normal vector over a normal number.
                return Fourier(plain, np.sqrt(rate) * normal((d, width)) / np.abs(normal(width)))
            if isinstance(kernel, Laplacian) and kernel.metric == "cityblock":
                return Fourier(plain, np.sqrt(rate) * self._random.standard_cauchy((d, width)))
            if isinstance(kernel, ChiSquared) or (isinstance(kernel, Laplacian) and kernel.metric == "chi2"):
                # The chi-squared distance is half the squared distance of the features of the additive kernel.
                inner = self._homogeneous(node.view, "chi2", INNER_ORDER)
                gamma = rate if isinstance(kernel, ChiSquared) else np.sqrt(rate)
                return Fourier(inner, np.sqrt(gamma) * normal((inner.width, width)))
        raise ValueError(
            f"approximation='fourier' is known for Gaussian, Laplacian and ChiSquared kernels, but kernel "
            f"{item.name!r} is {kernel.label}: use 'nystrom', which works for every kernel"
        )

    # -- Nystrom ----------------------------------------------------------------------------------------------------

    def _nystrom(self, item: Item, kernel: Kernel, node: Node) -> Nystrom:
        if any(step.needs_all_training for step in all_steps(node)):
            raise ValueError(
                f"kernel {item.name!r} has a kernel inside that is centred or clipped, which needs all training "
                "samples and has no low rank of its own: normalise the whole, Normalised(Product(...), 'center')"
            )
        if self.landmarks == "kmeans" and self.rank < len(self.features) and _has_centres(node):
            place = self._place(f"centres of {node.leaves[0].view}", self._kmeans, node)
        else:
            positions = self._chosen(node)
            views = sorted({leaf.view for leaf in node.leaves})
            rows = {view: self.features[view][self._sample[positions]] for view in views}
            key = f"{views}: {positions.tobytes().hex()}"
            place, node = self._place(key, lambda _: rows, node), at_samples(node, positions)
        right = self.places[place]
        projection = self._projection(self._between_landmarks(right, node))
        return Nystrom(place, node, projection, {leaf.view: right.rows[leaf.view].shape[1] for leaf in node.leaves})

    def _place(self, key: str, make: Callable[[Node], dict[str, NDArray]], node: Node) -> int:
        """Where the landmarks of that key are, made if they are not there yet."""
        if key not in self._places:
            self._places[key] = len(self.places)
            self.places.append(as_landmarks(make(node), self.dtype))
        return self._places[key]

    def _between_landmarks(self, right: RightRows, node: Node) -> NDArray:
        n = n_landmarks(right)
        return NewBlocks(right.rows, n, np.arange(n), right).kernel(node).astype(np.float64)

    def _projection(self, W: NDArray) -> NDArray:
        """``W^-1/2`` without the directions that rounding of kernel values could have made, the strongest first."""
        values, vectors = linalg.eigh((W + W.T) / 2)
        kept = values > np.finfo(self.dtype).eps * len(values) * max(values[-1], np.finfo(float).tiny)
        return np.ascontiguousarray((vectors[:, kept] / np.sqrt(values[kept]))[:, ::-1])

    def _kmeans(self, node: Node) -> dict[str, NDArray]:
        from sklearn.cluster import KMeans  # here, because it takes a second to import

        view = node.leaves[0].view
        n, most = len(self.features), max(KMEANS_A_RANK * self.rank, SAMPLE)
        few = self.features[view][np.sort(self._random.choice(n, most, replace=False)) if most < n else slice(None)]
        different = np.unique(few, axis=0)
        if len(different) <= self.rank:
            return {view: different}
        seed = int(self._random.integers(2**31))
        # From random samples: among so many centres, a careful choice of the first ones costs more than all the rest.
        search = KMeans(self.rank, init="random", n_init=1, max_iter=20, random_state=seed)
        return {view: search.fit(few).cluster_centers_}

    def _chosen(self, node: Node) -> NDArray:
        """Samples that are landmarks, as positions in the sample: all, random ones, or by their leverage."""
        size = len(self._sample)
        if self.rank == size:
            return np.arange(size)
        if self._uniform is None:
            self._uniform = np.sort(self._random.choice(size, self.rank, replace=False))
        if self.landmarks == "uniform":
            return self._uniform
        odds = self._leverage(node, self._uniform)
        return np.sort(self._random.choice(size, self.rank, replace=False, p=odds / odds.sum()))

    def _leverage(self, node: Node, first: NDArray) -> NDArray:
        """Ridge leverage scores of the sample, from the features that random landmarks give (Musco and Musco).

        The ridge is the mean of the eigenvalues in the lower half of the rank; what the random landmarks miss of a
        sample counts as lying in a direction of its own.
        """
        few = {leaf.view: self.features[leaf.view][self._sample] for leaf in node.leaves}
        at_first = at_samples(node, first)
        right = as_landmarks({view: rows[first] for view, rows in few.items()}, self.dtype)
        blocks = NewBlocks(few, len(self._sample), np.arange(len(first)), right)
        block, diagonal = blocks.with_diagonal(at_first)
        Z = block.astype(np.float64) @ self._projection(self._between_landmarks(right, at_first))
        values, vectors = linalg.eigh(Z.T @ Z)
        ridge = max(float(values[: max(1, len(values) // 2)].mean()), 1e-12 * float(values[-1]))
        scores = np.einsum("ij,ij->i", Z @ (vectors / (values + ridge)), Z @ vectors)
        missed = np.maximum(diagonal - np.einsum("ij,ij->i", Z, Z), 0.0)
        return np.minimum(scores + missed / ridge, 1.0) + 1e-12


def _has_centres(node: Node) -> bool:
    return isinstance(node, Leaf) and node.kernel.quantity in _HAS_CENTRES


def clipped(item: Item) -> bool:
    """Whether the first step around a kernel takes its negative eigenvalues away: Nystrom features have none."""
    return unwrap(item.kernel)[1][:1] == ("clip",)


def normalisations(item: Item) -> tuple[str, ...]:
    """The steps around a kernel that are done to its features."""
    steps = unwrap(item.kernel)[1]
    return steps[1:] if clipped(item) else steps


def _refuse(item: Item) -> None:
    """Refuse kernels that have no factors, by name."""
    repairs = [step for step in normalisations(item) if step in REPAIRS]
    if repairs:
        raise ValueError(
            f"kernel {item.name!r} is repaired by {repairs[0]!r}, which a bank of low rank does only right after the "
            "kernel itself and by 'clip': write Normalised(Repaired(kernel, 'clip'), ...)"
        )
    for _, leaf in leaves(item.kernel, item.view):
        if isinstance(leaf, Precomputed):
            raise ValueError(
                f"kernel {item.name!r} is precomputed: its values are all there already, and there are no features "
                "to map. Leave rank out, or give the features"
            )
