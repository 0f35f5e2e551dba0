"""Features of many pictures: each picture is read once, described by all features and forgotten. What was computed is
kept in a cache by content and settings, so that nothing is computed twice and a run that was stopped goes on.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import cv2
import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray

from .._config import one_blas_thread, progress
from .._spec import to_spec
from ..views import Views
from .base import Array, Feature, Learned
from .cache import FeatureCache
from .pictures import UnreadablePicture, check_max_side
from .sources import Source, as_sources, content_of_array, content_of_file, stamp_of_file

#: Part of every key of the cache: to be raised when the numbers that features give, or the pixels they see, change.
FEATURES_VERSION = 1

#: Most pictures a codebook is learned from.
LEARN_FROM = 300

#: Pixels on the longer side to which pictures are shrunk unless said otherwise, as in the published studies.
MAX_SIDE = 300

#: What is computed goes to the cache after so many pictures or seconds: all that a kill can lose.
PICTURES_AT_ONCE, SECONDS_AT_ONCE = 50, 2.0

#: What features learned, by position in the list of features.
AllLearned = Mapping[int, Learned]


@dataclass(frozen=True, eq=False)
class Extracted:
    """The features of those pictures that could be read.

    Attributes
    ----------
    views : Views
        A row for each picture that could be read.
    rows : array of int of shape (n_readable,)
        Which of the pictures given these are, in increasing order.
    problems : list of (str, str)
        Name and reason of every other picture.
    """

    views: Views
    rows: NDArray[np.intp]
    problems: list[tuple[str, str]]


@dataclass(frozen=True, eq=False)
class Run:
    """How pictures are worked on.

    Parameters
    ----------
    cache : FeatureCache, optional
        Where results are looked for and kept.
    n_jobs : int, optional
        Pictures that are worked on at once (joblib; threads). The results do not depend on it.
    max_side : int, optional
        Shrink pictures to this many pixels on their longer side; None: leave them as they are.
    verbose : int
        Show progress when on a terminal.
    """

    cache: FeatureCache | None = None
    n_jobs: int | None = None
    max_side: int | None = MAX_SIDE
    verbose: int = 0

    def __post_init__(self) -> None:
        check_max_side(self.max_side)

    def sources(self, pictures: Iterable[Any]) -> list[Source]:
        """The pictures given; with a cache, also what is in them."""
        sources = as_sources(pictures)
        if self.cache is None:
            return sources
        contents = self._contents(self.cache, [s.where for s in sources if isinstance(s.where, str)])
        return [
            replace(s, content=contents[s.where] if isinstance(s.where, str) else content_of_array(s.where))
            for s in sources
        ]

    def _contents(self, cache: FeatureCache, paths: Iterable[str]) -> dict[str, str | None]:
        """What is in files; None for those that cannot be read. Files that did not change are not read again."""
        contents: dict[str, str | None] = dict.fromkeys(paths)
        stamps = {path: stamp for path in contents if (stamp := stamp_of_file(path)) is not None}
        contents |= cache.get_contents(stamps)
        unknown = [path for path in stamps if contents[path] is None]
        new = {}
        with self._each(content_of_file, ((path,) for path in unknown), len(unknown), "files") as found:
            for path, (content, stamp) in zip(unknown, found, strict=True):
                contents[path] = content
                if content is not None and stamp is not None:
                    new[path] = (stamp, content)
        cache.put_contents(new)
        return contents

    # -- describing ------------------------------------------------------------------------------------------------

    def extract(self, sources: Sequence[Source], features: Sequence[Feature], learned: AllLearned) -> Extracted:
        """Describe pictures; those that cannot be read are left out and listed."""
        check_view_names(features)
        digests = [_digest(feature, self.max_side, learned.get(k, {})) for k, feature in enumerate(features)]
        table = _Table(features, len(sources))
        rows_of: dict[str | int, list[int]] = {}  # the same content is described once
        for row, source in enumerate(sources):
            rows_of.setdefault(source.content or row, []).append(row)
        missing_rows = self._fill_from_cache(table, sources, list(rows_of.values()), digests)
        jobs = (
            (sources[rows[0]], {k: (features[k], learned.get(k, {})) for k in positions}, self.max_side)
            for rows, positions in missing_rows
        )
        problems: dict[int, tuple[str, str]] = {}
        with self._saving() as save, self._each(_describe, jobs, len(missing_rows), "pictures") as results:
            for (rows, _), described in zip(missing_rows, results, strict=True):
                if isinstance(described, UnreadablePicture):
                    problems |= {row: (sources[row].name, described.reason) for row in rows}
                    continue
                name, content = sources[rows[0]].name, sources[rows[0]].content
                for position, vectors in described.items():
                    table.write(position, rows, vectors, name)
                if content is not None:
                    save({_key(content, digests[k]): _joined(vectors) for k, vectors in described.items()})
        listed = [problems[row] for row in sorted(problems)]
        if len(listed) == len(sources):
            raise unreadable(listed)
        readable = np.array([row for row in range(len(sources)) if row not in problems], dtype=np.intp)
        return Extracted(table.views(readable), readable, listed)

    def _fill_from_cache(
        self, table: _Table, sources: Sequence[Source], groups: list[list[int]], digests: list[str]
    ) -> list[tuple[list[int], list[int]]]:
        """Write what is known into the table; return rows and positions of features that remain to be computed."""
        every = list(range(len(digests)))
        if self.cache is None:
            return [(rows, every) for rows in groups]
        missing_rows = []
        for start in range(0, len(groups), PICTURES_AT_ONCE):
            batch = [(rows, sources[rows[0]]) for rows in groups[start : start + PICTURES_AT_ONCE]]
            keys = {
                s.content: [_key(s.content, digest) for digest in digests] for _, s in batch if s.content is not None
            }
            found = self.cache.get_many(key for some in keys.values() for key in some)
            for rows, source in batch:
                missing = every
                if source.content is not None:
                    missing = []
                    for position, key in enumerate(keys[source.content]):
                        vectors = _taken_apart(found.get(key), len(table.names[position]))
                        if vectors is None:
                            missing.append(position)
                        else:
                            table.write(position, rows, vectors, source.name)
                if missing:
                    missing_rows.append((rows, missing))
        return missing_rows

    # -- learning --------------------------------------------------------------------------------------------------

    def learn(self, sources: Sequence[Source], features: Sequence[Feature], seed: int) -> dict[int, dict[str, NDArray]]:
        """What features learn from pictures, of which at most `LEARN_FROM` are drawn, by position of the feature."""
        drawn = np.sort(np.random.default_rng(seed).permutation(len(sources))[:LEARN_FROM])
        chosen = [sources[row] for row in drawn]
        digests = {k: _digest(feature, self.max_side, {}) for k, feature in enumerate(features) if feature.learns}
        contents = ",".join(str(source.content) for source in chosen)
        keys = {k: _key(contents, f"{digest} learned with seed {seed}") for k, digest in digests.items()}
        learned: dict[int, dict[str, NDArray]] = {}
        if self.cache is not None:
            learned = {k: known for k, key in keys.items() if (known := self.cache.get_learned(key)) is not None}
        missing = [k for k in keys if k not in learned]
        # A seed of its own for every feature, wherever in the list it stands.
        seeds = {k: [seed, int(digests[k][:16], 16)] for k in missing}
        samples = self._samples(chosen, {k: features[k] for k in missing}, seeds) if missing else {}
        jobs = ((features[k], samples.pop(k), seeds[k]) for k in missing)
        with self._each(_learn, jobs, len(missing), "codebooks") as results:
            for position, arrays in zip(missing, results, strict=True):
                learned[position] = arrays
                if self.cache is not None:
                    self.cache.put_learned(keys[position], arrays)
        return {position: learned[position] for position in keys}

    def _samples(
        self, chosen: Sequence[Source], features: Mapping[int, Feature], seeds: Mapping[int, list[int]]
    ) -> dict[int, list[NDArray]]:
        """What features draw from each picture that can be read, by position of the feature."""
        jobs = (
            (source, {k: (feature, [*seeds[k], number]) for k, feature in features.items()}, self.max_side)
            for number, source in enumerate(chosen)
        )
        samples: dict[int, list[NDArray]] = {k: [] for k in features}
        problems = []
        with self._each(_draw, jobs, len(chosen), "samples") as results:
            for drawn in results:
                if isinstance(drawn, UnreadablePicture):
                    problems.append((drawn.path, drawn.reason))
                    continue
                for k, sample in drawn.items():
                    samples[k].append(sample)
        if len(problems) == len(chosen):
            raise unreadable(problems)
        return samples

    # -- doing it --------------------------------------------------------------------------------------------------

    @contextmanager
    def _each(self, function: Callable, jobs: Iterable[tuple], total: int, what: str) -> Iterator[Iterable[Any]]:
        """``function(*job)`` of every job, in order, each as soon as it is ready."""
        parallel = Parallel(n_jobs=self.n_jobs, prefer="threads", return_as="generator")
        calls = (delayed(_attempt)(function, *job) for job in jobs)
        with _one_thread_each, one_blas_thread(), _closing(parallel(calls)) as attempts:
            yield map(_result, progress(self.verbose, what, total)(attempts))

    @contextmanager
    def _saving(self) -> Iterator[Callable[[Mapping[str, Array]], None]]:
        """A function that hands vectors to the cache, those of several pictures at once; the last ones at the end."""
        waiting: list[Mapping[str, Array]] = []
        last = time.monotonic()

        def flush() -> None:
            nonlocal last
            if self.cache is not None and waiting:
                self.cache.put_many({key: vector for values in waiting for key, vector in values.items()})
            waiting.clear()
            last = time.monotonic()

        def save(values: Mapping[str, Array]) -> None:
            waiting.append(values)
            if len(waiting) >= PICTURES_AT_ONCE or time.monotonic() - last >= SECONDS_AT_ONCE:
                flush()

        try:
            yield save
        finally:  # also when something went wrong: what was computed was computed
            flush()


def check_view_names(features: Sequence[Feature]) -> None:
    """Refuse two views of the same name."""
    owners: dict[str, Feature] = {}
    for feature in features:
        for view in feature.views:
            if view in owners:
                raise ValueError(
                    f"the view {view!r} is made by both {owners[view]!r} and {feature!r}: leave one out, or name them "
                    "differently"
                )
            owners[view] = feature


def unreadable(problems: Sequence[tuple[str, str]]) -> UnreadablePicture:
    """One error for all the pictures that cannot be read."""
    return UnreadablePicture(*problems[0], tuple(problems[1:]))


class _Table:
    """One array a view, with a row for every picture; made when the length of the view is first seen."""

    def __init__(self, features: Sequence[Feature], n_rows: int) -> None:
        self.features = features
        self.names = [feature.views for feature in features]
        self.n_rows = n_rows
        self.arrays: dict[str, Array] = {}

    def write(self, position: int, rows: list[int], vectors: Sequence[Array], picture: str) -> None:
        for name, vector in zip(self.names[position], vectors, strict=True):
            if name not in self.arrays:
                self.arrays[name] = np.empty((self.n_rows, len(vector)), dtype=np.float32)
            array = self.arrays[name]
            if array.shape[1] != len(vector):
                raise ValueError(
                    f"{self.features[position]!r} gave {len(vector)} numbers for the view {name!r} of {picture}, but "
                    f"{array.shape[1]} for another picture: they must be as many for all"
                )
            array[rows] = vector

    def views(self, rows: NDArray[np.intp]) -> Views:
        if len(rows) < self.n_rows:
            for name in self.arrays:
                self.arrays[name] = self.arrays[name][rows]  # one view after the other: at most one is there twice
        return Views({name: self.arrays[name] for names in self.names for name in names})


def _digest(feature: Feature, max_side: int | None, learned: Learned) -> str:
    """Everything the numbers of a feature depend on but the picture."""
    kind = type(feature)
    settings = {
        "version": FEATURES_VERSION,
        "class": f"{kind.__module__}.{kind.__qualname__}",
        "feature": to_spec(feature),
        "max_side": max_side,
    }
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True, separators=(",", ":")).encode())
    for name in sorted(learned):
        array = np.asarray(learned[name])
        digest.update(f"\n{name} {array.dtype.str} {array.shape} ".encode() + array.tobytes())
    return digest.hexdigest()


def _key(content: str, digest: str) -> str:
    return hashlib.sha256(f"{content} {digest}".encode()).hexdigest()


def _joined(vectors: Sequence[Array]) -> Array:
    """The vectors of a feature as one, their lengths in front (exact in single precision up to 16 million)."""
    return np.concatenate([np.array([len(vector) for vector in vectors], dtype=np.float32), *vectors])


def _taken_apart(joined: Array | None, n_views: int) -> list[Array] | None:
    """The vectors that were `_joined`, or None when there are none or not so many."""
    if joined is None or len(joined) < n_views:
        return None
    lengths = joined[:n_views].astype(np.intp)
    if lengths.min() < 1 or lengths.sum() + n_views != len(joined):
        return None
    return np.split(joined[n_views:], np.cumsum(lengths)[:-1])


# -- what workers do: functions of plain arguments, so that other processes could do it too ---------------------------


def _describe(
    source: Source, features: Mapping[int, tuple[Feature, Learned]], max_side: int | None
) -> dict[int, list[Array]] | UnreadablePicture:
    """The vectors of some features of one picture, by position."""
    try:
        picture = source.picture(max_side)
    except UnreadablePicture as problem:
        return problem
    described = {}
    for position, (feature, learned) in features.items():
        with _blaming(feature, source.name):
            # Copies: what a feature returns may be a part of something large.
            vectors = [np.array(vector, dtype=np.float32) for vector in feature.describe(picture, learned)]
        _check_vectors(feature, source.name, vectors)
        described[position] = vectors
    return described


def _draw(
    source: Source, features: Mapping[int, tuple[Feature, list[int]]], max_side: int | None
) -> dict[int, NDArray] | UnreadablePicture:
    """What some features draw from one picture to learn from, by position."""
    try:
        picture = source.picture(max_side)
    except UnreadablePicture as problem:
        return problem
    drawn = {}
    for position, (feature, seed) in features.items():
        with _blaming(feature, source.name):
            drawn[position] = np.array(feature.sample(picture, np.random.default_rng(seed)))
    return drawn


def _learn(feature: Feature, samples: list[NDArray], seed: list[int]) -> dict[str, NDArray]:
    with _blaming(feature, "what it drew from the training pictures"):
        learned = feature.learn(np.concatenate(samples), np.random.default_rng(seed))
    return {name: np.asarray(array) for name, array in learned.items()}


def _attempt(function: Callable, *job: Any) -> tuple[Any, Exception | None]:
    """What a function gives or raises: joblib would drop the results that are ready when one call raises."""
    try:
        return function(*job), None
    except Exception as error:
        return None, error


def _result(attempt: tuple[Any, Exception | None]) -> Any:
    result, error = attempt
    if error is not None:
        raise error
    return result


@contextmanager
def _closing(generator: Generator[Any]) -> Iterator[Generator[Any]]:
    """Stop the workers in the end. When somebody interrupts them, it is no news that some results were not used."""
    try:
        yield generator
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            generator.close()


@contextmanager
def _blaming(feature: Feature, what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise RuntimeError(f"{feature!r} failed on {what}: {type(error).__name__}: {error}") from error


def _check_vectors(feature: Feature, name: str, vectors: list[Array]) -> None:
    if len(vectors) != len(feature.views) or any(vector.ndim != 1 or vector.size == 0 for vector in vectors):
        raise ValueError(
            f"{feature!r} must give one vector for each of its {len(feature.views)} views, got the shapes "
            f"{[vector.shape for vector in vectors]} for {name}"
        )
    for view, vector in zip(feature.views, vectors, strict=True):
        if not np.isfinite(vector).all():
            raise ValueError(f"{feature!r} gave values that are not finite for the view {view!r} of {name}")


class _OneThreadEach:
    """Keeps OpenCV to the threads that call it, and off the terminal, in ``with`` blocks that may overlap."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0
        self.before = (0, 0)

    def __enter__(self) -> None:
        with self.lock:
            self.users += 1
            if self.users == 1:
                self.before = cv2.getNumThreads(), cv2.utils.logging.getLogLevel()
                cv2.setNumThreads(1)
                cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.users -= 1
            if self.users == 0:
                cv2.setNumThreads(self.before[0])
                cv2.utils.logging.setLogLevel(self.before[1])


_one_thread_each = _OneThreadEach()
