"""`ImageFeatures`, a scikit-learn transformer: from pictures to the views and the kernel bank that estimators take."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from .._spec import from_spec, to_spec
from ..kernels import KernelBank
from ..kernels.kernel_bank import leaves
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
    >>> from kernelweave.images.extraction import extract
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
    features : str or list of Feature
        The name of a preset ("quick", "voc15", "imagenet10", "flowers", "caltech48"), or a list of features.
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
    >>> from kernelweave.images import ImageFeatures
    >>> from kernelweave.images.histograms import ColourHistogram
    >>> rng = np.random.default_rng(0)
    >>> pictures = [rng.integers(0, 256, (40, 60, 3), dtype=np.uint8) for _ in range(5)]
    >>> images = ImageFeatures([ColourHistogram("rgb", bins=4)])
    >>> images.fit_transform(pictures)
    Views(5 samples; ...)
    """

    def __init__(
        self,
        features: str | Sequence[Feature] = "quick",
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
            return run.extract(run.sources(pictures), self._described(), self.learned_)

    def fit_extract(self, pictures: Iterable[Any], y: object = None) -> Extracted:
        """`fit` and `extract` on the same pictures; what is in the files is found out only once."""
        with self._run() as run:
            sources = self._learn(run, pictures)
            return run.extract(sources, self._described(), self.learned_)

    def kernel_bank(self) -> KernelBank:
        """The kernels of all features: one a view, and those over several views.

        Examples
        --------
        >>> from kernelweave.images import ImageFeatures
        >>> from kernelweave.images.histograms import ColourHistogram
        >>> ImageFeatures([ColourHistogram("rgb", bins=4)]).kernel_bank()
        KernelBank({...ChiSquared()})
        """
        return KernelBank({name: kernel for line in self._lines() for name, kernel in line.kernels.items()})

    # -- files -----------------------------------------------------------------------------------------------------

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        """All that `from_state` needs: plain data as JSON can hold it, and arrays by name.

        Returns
        -------
        state : dict
            "features", descriptions; "max_side".
        arrays : dict of str to array
            What features learned, as ``"position/name"``.
        """
        check_is_fitted(self)
        state = {
            "features": [to_spec(line) for line in self._lines()],
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
            The features and their parts that may be in `features`.
        """
        missing = {"features", "max_side"} - set(state)
        if missing:
            raise ValueError(f"the description of image features lacks {sorted(missing)}")
        classes = list(classes)
        lines = [from_spec(spec, classes) for spec in state["features"]]
        check_max_side(state["max_side"])
        images = cls(features=lines, max_side=state["max_side"])
        features = images._described()
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
        features = self._described()
        sources = run.sources(pictures)
        generator = check_random_state(self.random_state)
        seed = int(self.random_state) if isinstance(self.random_state, Integral) else int(generator.randint(2**31 - 1))
        self._keep(run.learn(sources, features, seed))
        return sources

    def _keep(self, learned: dict[int, dict[str, NDArray]]) -> None:
        self.learned_ = learned
        self.view_names_ = tuple(view for feature in self._described() for view in feature.views)

    def _described(self) -> list[Feature]:
        """The features that have views of their own."""
        return [line for line in self._lines() if line.views]

    def _lines(self) -> Sequence[Feature]:
        from .presets import preset

        lines = preset(self.features) if isinstance(self.features, str) else self.features
        if not isinstance(lines, Sequence):
            raise TypeError(f"features is the name of a preset or a list of features, got {type(lines).__name__}")
        for line in lines:
            if not isinstance(line, Feature):
                raise TypeError(f"features is a list of features, got {line!r} in it")
        if not any(line.views for line in lines):
            raise ValueError("features is an empty list; at least one feature is needed")
        check_view_names(lines)
        _check_kernels(lines)
        return lines


def _all_of_them(extracted: Extracted) -> Views:
    if extracted.problems:
        raise unreadable(extracted.problems)
    return extracted.views


def _check_kernels(lines: Sequence[Feature]) -> None:
    """Refuse two kernels of one name, and kernels over views that no feature makes."""
    views = {view for line in lines for view in line.views}
    owners: dict[str, Feature] = {}
    for line in lines:
        for name, kernel in line.kernels.items():
            if name in owners or (name in views and name not in line.views):
                raise ValueError(f"the kernel {name!r} of {line!r} has the name of another kernel or view")
            owners[name] = line
            lacking = sorted({str(view) for view, _ in leaves(kernel, name)} - views)
            if lacking:
                raise ValueError(
                    f"the kernel {name!r} is over views that no feature in the list makes: {', '.join(lacking)}"
                )
