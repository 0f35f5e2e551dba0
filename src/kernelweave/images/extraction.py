"""`ImageFeatures`, a scikit-learn transformer: from pictures to the views and the kernel bank that estimators take."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from .. import kernels as known_kernels
from .._spec import from_spec, to_spec
from ..kernels import Kernel, KernelBank
from ..kernels.functions import Joined
from ..kernels.kernel_bank import _leaves
from ..views import Views
from .base import Feature
from .cache import FeatureCache
from .pictures import check_max_side
from .runs import MAX_SIDE, AllLearned, Extracted, Run, check_view_names, unreadable


def extract(
    pictures: Iterable[Any],
    features: Sequence[Feature],
    learned: AllLearned,
    *,
    cache: FeatureCache | None = None,
    n_jobs: int | None = None,
    max_side: int | None = MAX_SIDE,
    verbose: int = 0,
) -> Extracted:
    """Describe pictures by features.

    Parameters
    ----------
    pictures : iterable of path or array (height, width, 3) of uint8
        Pictures that cannot be read are left out and listed.
    features : sequence of Feature
    learned : mapping of int to mapping of str to array
        What features have learned, by position in `features`.
    cache : FeatureCache, optional
        Where results are looked for and kept.
    n_jobs : int, optional
        Pictures that are worked on at once (joblib; threads). The results do not depend on it.
    max_side : int, optional
        Shrink pictures to this many pixels on their longer side; None: leave them as they are.
    verbose : int
        Show progress when on a terminal.

    Returns
    -------
    Extracted

    Raises
    ------
    UnreadablePicture
        When not one of the pictures can be read.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.images.histograms import ColourHistogram
    >>> pictures = [np.full((40, 60, 3), grey, dtype=np.uint8) for grey in (0, 100, 200)]
    >>> extract([*pictures, "missing.jpg"], [ColourHistogram("rgb", bins=4)], {}).problems
    [('missing.jpg', 'there is no such file')]
    """
    run = Run(cache, n_jobs, max_side, verbose)
    return run.extract(run.sources(pictures), features, learned)


class ImageFeatures(TransformerMixin, BaseEstimator):
    """Describe pictures in several ways at once.

    Parameters
    ----------
    features : str or list
        The name of a preset ("quick", "voc15", "imagenet10", "flowers", "caltech48"), or a list of features. Kernels
        over several of their views, such as a `Product` of a mapping, may be in the list too: they go into the bank.
    cache : path, optional
        File or folder where everything computed is kept by content and settings; see `FeatureCache`. Nothing is then
        computed twice, and a run that was stopped goes on.
    max_side : int, optional
        Shrink pictures to this many pixels on their longer side; None: leave them as they are.
    n_jobs : int, optional
        Pictures that are worked on at once (joblib; threads). The results do not depend on it.
    verbose : int
        Show progress when on a terminal.
    random_state : int, RandomState or None
        Which training pictures codebooks are learned from, and how. What is learned is only found again in the cache
        when this is an integer.

    Attributes
    ----------
    view_names_ : tuple of str
        Names of the views.
    learned_ : dict of int to dict of str to array
        What features learned from training pictures, by position among the features.

    Notes
    -----
    Pictures are paths or arrays (height, width, 3) of uint8, mixed as you like. They are not rows of numbers, so
    scikit-learn's `check_estimator`, which tries its own tables of numbers, does not apply; cloning, parameters and
    pipelines work as always.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.images.histograms import ColourHistogram
    >>> rng = np.random.default_rng(0)
    >>> pictures = [rng.integers(0, 256, (40, 60, 3), dtype=np.uint8) for _ in range(5)]
    >>> images = ImageFeatures([ColourHistogram("rgb", bins=4)])
    >>> images.fit_transform(pictures)
    Views(5 samples; ...)
    """

    def __init__(
        self,
        features: str | Sequence[Feature | Kernel] = "quick",
        cache: str | os.PathLike[str] | None = None,
        max_side: int | None = MAX_SIDE,
        n_jobs: int | None = None,
        verbose: int = 0,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.features = features
        self.cache = cache
        self.max_side = max_side
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    def fit(self, pictures: Iterable[Any], y: object = None) -> ImageFeatures:
        """Learn codebooks from some of the pictures; those that cannot be read are passed over.

        Parameters
        ----------
        pictures : iterable of path or array (height, width, 3) of uint8
            Training pictures.
        y : ignored

        Returns
        -------
        self
        """
        with self._run() as run:
            self._learn(run, pictures)
        return self

    def transform(self, pictures: Iterable[Any]) -> Views:
        """Describe pictures.

        Parameters
        ----------
        pictures : iterable of path or array (height, width, 3) of uint8

        Returns
        -------
        Views
            A row a picture.

        Raises
        ------
        UnreadablePicture
            When some pictures cannot be read, with all of them; `extract` goes on without them.
        """
        return _all_of_them(self.extract(pictures))

    def fit_transform(self, pictures: Iterable[Any], y: object = None) -> Views:
        """`fit` and `transform` on the same pictures."""
        return _all_of_them(self.fit_extract(pictures))

    def extract(self, pictures: Iterable[Any]) -> Extracted:
        """Describe those pictures that can be read, and list the others with the reasons.

        Parameters
        ----------
        pictures : iterable of path or array (height, width, 3) of uint8

        Returns
        -------
        Extracted
        """
        check_is_fitted(self)
        with self._run() as run:
            return run.extract(run.sources(pictures), self._lines()[0], self.learned_)

    def fit_extract(self, pictures: Iterable[Any], y: object = None) -> Extracted:
        """`fit` and `extract` on the same pictures; what is in the files is found out only once."""
        with self._run() as run:
            sources = self._learn(run, pictures)
            return run.extract(sources, self._lines()[0], self.learned_)

    def kernel_bank(self) -> KernelBank:
        """The kernel of its feature for every view, and the kernels over several views under their own names.

        Examples
        --------
        >>> from kernelweave.images.histograms import ColourHistogram
        >>> ImageFeatures([ColourHistogram("rgb", bins=4)]).kernel_bank()
        KernelBank({...ChiSquared()})
        """
        features, over_views = self._lines()
        of_views = {view: feature.kernel for feature in features for view in feature.views}
        return KernelBank(of_views | {kernel.label: kernel for kernel in over_views})

    # -- files -----------------------------------------------------------------------------------------------------

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        """All that `from_state` needs: plain data as JSON can hold it, and arrays by name.

        Returns
        -------
        state : dict
            "features" and "kernels", descriptions; "max_side".
        arrays : dict of str to array
            What features learned, as ``"position/name"``.
        """
        check_is_fitted(self)
        features, over_views = self._lines()
        state = {
            "features": [to_spec(feature) for feature in features],
            "kernels": [_kernel_spec(kernel) for kernel in over_views],
            "max_side": None if self.max_side is None else int(self.max_side),
        }
        arrays = {f"{k}/{name}": array for k, learned in self.learned_.items() for name, array in learned.items()}
        return state, arrays

    @classmethod
    def from_state(
        cls, state: Mapping[str, Any], arrays: Mapping[str, NDArray], classes: Iterable[type]
    ) -> ImageFeatures:
        """A fitted object made of what `to_state` gave.

        Parameters
        ----------
        state, arrays : mappings
            They may come from a file that is not trusted: nothing but the classes named here is made of them.
        classes : iterable of type
            The features and their parts that may be in `features`. Kernels are those of `kernelweave.kernels`.
        """
        missing = {"features", "kernels", "max_side"} - set(state)
        if missing:
            raise ValueError(f"the description of image features lacks {sorted(missing)}")
        classes = list(classes)
        lines = [from_spec(spec, classes) for spec in state["features"]]
        lines += [_kernel_from_spec(spec) for spec in state["kernels"]]
        check_max_side(state["max_side"])
        images = cls(features=lines, max_side=state["max_side"])
        features, _ = images._lines()
        learned: dict[int, dict[str, NDArray]] = {k: {} for k, feature in enumerate(features) if feature.learns}
        for key, array in arrays.items():
            number, _, name = key.partition("/")
            if not (number.isdecimal() and int(number) in learned and name):
                raise ValueError(f"the array {key!r} belongs to no feature that learns")
            learned[int(number)][name] = np.asarray(array)
        for position, found in learned.items():
            if not found:
                raise ValueError(f"what {features[position]!r} learned is missing: no array begins with '{position}/'")
        images._keep(learned)
        return images

    # -- inside ----------------------------------------------------------------------------------------------------

    @contextmanager
    def _run(self) -> Iterator[Run]:
        if self.cache is None:
            yield Run(None, self.n_jobs, self.max_side, self.verbose)
        else:
            with FeatureCache(self.cache) as cache:
                yield Run(cache, self.n_jobs, self.max_side, self.verbose)

    def _learn(self, run: Run, pictures: Iterable[Any]) -> list[Any]:
        features, _ = self._lines()
        sources = run.sources(pictures)
        generator = check_random_state(self.random_state)
        seed = int(self.random_state) if isinstance(self.random_state, Integral) else int(generator.randint(2**31 - 1))
        self._keep(run.learn(sources, features, seed))
        return sources

    def _keep(self, learned: dict[int, dict[str, NDArray]]) -> None:
        self.learned_ = learned
        self.view_names_ = tuple(view for feature in self._lines()[0] for view in feature.views)

    def _lines(self) -> tuple[list[Feature], list[Kernel]]:
        """The features, and the kernels over their views."""
        lines = self.features
        if isinstance(lines, str):
            from .presets import preset

            lines = preset(lines)
        if not isinstance(lines, Sequence):
            raise TypeError(f"features is the name of a preset or a list of features, got {type(lines).__name__}")
        features = [line for line in lines if isinstance(line, Feature)]
        over_views = [line for line in lines if isinstance(line, Kernel)]
        for line in lines:
            if not isinstance(line, (Feature, Kernel)):
                raise TypeError(f"features holds features and kernels over their views, got {line!r}")
        if not features:
            raise ValueError("features is an empty list; at least one feature is needed")
        check_view_names(features)
        _check_kernels(over_views, {view for feature in features for view in feature.views})
        return features, over_views


def _all_of_them(extracted: Extracted) -> Views:
    if extracted.problems:
        raise unreadable(extracted.problems)
    return extracted.views


def _check_kernels(over_views: Sequence[Kernel], views: set[str]) -> None:
    labels = set(views)
    for kernel in over_views:
        for view, leaf in _leaves(kernel, None):
            if view is None:
                raise ValueError(
                    f"a kernel in features says which views it is on, as in Product({{'view': {leaf.label}()}}), but "
                    f"{kernel!r} does not"
                )
            if view not in views:
                raise ValueError(f"{kernel!r} is on view {view!r}, but the views are {sorted(views)}")
        if kernel.label in labels:
            raise ValueError(f"the kernel {kernel.label} is given twice, or a view has its name")
        labels.add(kernel.label)


#: Kernels that are plain data.
_KERNELS: dict[str, type[Kernel]] = {
    name: kind
    for name in known_kernels.__all__
    if isinstance(kind := getattr(known_kernels, name), type) and issubclass(kind, Kernel)
}


def _kernel_spec(kernel: Kernel) -> dict[str, Any]:
    """`to_spec` of a kernel that may be made of other kernels."""
    if isinstance(kernel, Joined):
        return {
            "is": type(kernel).__name__,
            "factors": [[view, _kernel_spec(factor)] for view, factor in kernel.factors],
        }
    assert is_dataclass(kernel)
    values = {field.name: getattr(kernel, field.name) for field in fields(kernel)}
    described = {name: _kernel_spec(v) if isinstance(v, Kernel) else to_spec(v) for name, v in values.items()}
    return {"is": type(kernel).__name__, **described}


def _kernel_from_spec(spec: Mapping[str, Any]) -> Kernel:
    kind = _KERNELS.get(str(spec.get("is")) if isinstance(spec, Mapping) else "")
    if kind is None:
        raise ValueError(f"unknown kernel {spec!r}; known are {sorted(_KERNELS)}")
    try:
        if issubclass(kind, Joined):
            factors = [(view, _kernel_from_spec(factor)) for view, factor in spec["factors"]]
            return kind(*({view: factor} if view is not None else factor for view, factor in factors))
        values = {name: value for name, value in spec.items() if name != "is"}
        return kind(
            **{n: _kernel_from_spec(v) if isinstance(v, Mapping) else from_spec(v, ()) for n, v in values.items()}
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"{kind.__name__} cannot be made of {sorted(set(spec) - {'is'})}: {error}") from error
