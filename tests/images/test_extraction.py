"""Features of many pictures: right numbers for the right pictures, nothing computed twice, nothing lost by a kill."""

import io
import os
import shutil
import signal
import subprocess
import sys
import weakref
from dataclasses import dataclass
from typing import ClassVar

import cv2
import numpy as np
import pytest
from counted_features import (
    CALLS,
    FEATURES,
    LOCK,
    MeanColour,
    Size,
    Words,
    count,
    described,
    expected,
    pixels,
    same,
    write_pictures,
)
from numpy.testing import assert_array_equal

from kernelweave.images import runs, sources
from kernelweave.images.base import Feature
from kernelweave.images.cache import CacheError, FeatureCache
from kernelweave.images.extraction import ImageFeatures, extract
from kernelweave.images.pictures import UnreadablePicture, read_picture


@pytest.fixture(autouse=True)
def fresh_counts():
    CALLS.clear()


@pytest.fixture
def folder(tmp_path):
    """Twelve pictures; their paths with `sorted(folder.iterdir())`."""
    return write_pictures(tmp_path / "pictures")


@pytest.fixture
def settled(monkeypatch):
    """Files just written count as left alone."""
    monkeypatch.setattr(sources, "SETTLED", -1.0)


# -- the numbers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_jobs", [None, 1, 2])
@pytest.mark.parametrize("cached", [False, True])
def test_every_row_belongs_to_its_picture(folder, tmp_path, n_jobs, cached):
    paths = sorted(folder.iterdir())
    cache = FeatureCache(tmp_path / "cache") if cached else None
    found = extract(paths, FEATURES, {}, cache=cache, n_jobs=n_jobs)
    assert found.views.names == ("colour.mean", "colour.spread", "size")
    for feature in FEATURES:
        for view, array in expected(feature, paths).items():
            assert_array_equal(found.views[view], array)
            assert found.views[view].dtype == np.float32
    assert_array_equal(found.rows, np.arange(12))
    assert found.problems == []
    if cached:
        same(extract(paths, FEATURES, {}, cache=cache, n_jobs=n_jobs).views, found.views)


def test_arrays_and_paths_mixed_and_text_paths(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    given = ["03.png", pixels(5)[:, :, ::-1], folder / "01.png"]  # OpenCV writes blue first
    for cache in (None, FeatureCache(tmp_path / "cache")):
        found = extract(given, FEATURES, {}, cache=cache)
        assert_array_equal(
            found.views["colour.mean"],
            expected(MeanColour(), [folder / "03.png", folder / "05.png", folder / "01.png"])["colour.mean"],
        )
    stack = np.stack([pixels(0), pixels(7)])
    assert len(extract(stack, FEATURES, {}).views) == 2


def test_pictures_are_shrunk(folder):
    assert_array_equal(extract([pixels(0)], [Size()], {}, max_side=15).views["size"], [[10, 15]])
    assert_array_equal(extract([folder / "00.png"], [Size()], {}, max_side=15).views["size"], [[10, 15]])
    assert_array_equal(extract([folder / "00.png"], [Size()], {}, max_side=None).views["size"], [[20, 30]])


def test_learned_arrays_reach_their_feature(folder):
    paths = sorted(folder.iterdir())
    learned = {1: {"words": np.array([[0, 0, 0], [255, 255, 255.0], [200, 0, 0], [0, 0, 200]])}}
    found = extract(paths, [Size(), Words()], learned, n_jobs=2)
    assert_array_equal(found.views["words"], expected(Words(), paths, learned[1])["words"])


# -- pictures that cannot be read ----------------------------------------------------------------------------------


@pytest.mark.parametrize("cached", [False, True])
def test_unreadable_pictures_in_the_middle(folder, tmp_path, cached):
    (folder / "03.png").write_bytes(b"")
    (folder / "04.jpg").write_text("a letter to grandmother")
    data = (folder / "07.png").read_bytes()
    (folder / "07.png").write_bytes(data[:-30])
    paths = [*sorted(folder.iterdir()), folder / "gone.png", folder]
    for _ in range(2):
        found = extract(paths, FEATURES, {}, cache=FeatureCache(tmp_path / "c") if cached else None, n_jobs=2)
        good = [path for k, path in enumerate(paths) if k in found.rows]
        assert [path.name for path in good] == [f"{k:02d}.png" for k in range(12) if k not in (3, 7)]
        for feature in FEATURES:
            for view, array in expected(feature, good).items():
                assert_array_equal(found.views[view], array)
        names, reasons = zip(*found.problems, strict=True)
        assert names == tuple(str(paths[k]) for k in (3, 4, 8, 13, 14))
        for reason, word in zip(reasons, ("empty", "no JPEG", "truncated", "no such file", "folder"), strict=True):
            assert word in reason


def test_all_unreadable(tmp_path):
    paths = [tmp_path / f"{k}.jpg" for k in range(12)]
    for cache in (None, FeatureCache(tmp_path)):
        with pytest.raises(
            UnreadablePicture, match=r"12 pictures cannot be read: .*no such file.*; and 2 more"
        ) as caught:
            extract(paths, FEATURES, {}, cache=cache)
        assert len(caught.value.problems) == 12


@pytest.mark.parametrize(
    ("pictures", "error", "words"),
    [
        ([], ValueError, "no pictures were given"),
        (iter(()), ValueError, "no pictures were given"),
        ("some/folder", TypeError, r"read_pictures\('some/folder'\).paths"),
        ([pixels(0), 5], TypeError, "number 1 is int"),
        ([pixels(0)[:, :, 0]], ValueError, r"number 0 is uint8 \(20, 30\)"),
        ([pixels(0) / 255], ValueError, r"number 0 is float64 \(20, 30, 3\)"),
        ([pixels(0)[:0]], ValueError, r"number 0 is uint8 \(0, 30, 3\)"),
    ],
)
def test_what_are_no_pictures(pictures, error, words):
    with pytest.raises(error, match=words):
        extract(pictures, FEATURES, {})


# -- features that are wrong ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wrong(Feature):
    """Does what a feature must not do, on the picture with 23 rows."""

    way: str
    views: ClassVar = ("wrong",)

    def describe(self, picture, learned):
        count(self)
        good = [np.ones(3, dtype=np.float32)]
        if picture.height != 23:
            return good
        if self.way == "raises":
            raise KeyError("teapot")
        return {
            "many": good * 2,
            "matrix": [np.ones((3, 1))],
            "nothing": [np.ones(0)],
            "infinite": [np.array([1, np.inf, 1])],
            "longer": [np.ones(4)],
        }[self.way]


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize(
    ("way", "error", "words"),
    [
        ("raises", RuntimeError, r"Wrong\(way='raises'\) failed on .*03.png: KeyError: 'teapot'"),
        ("many", ValueError, r"each of its 1 views, got the shapes \[\(3,\), \(3,\)\] for .*03.png"),
        ("matrix", ValueError, r"got the shapes \[\(3, 1\)\] for .*03.png"),
        ("nothing", ValueError, r"got the shapes \[\(0,\)\] for .*03.png"),
        ("infinite", ValueError, r"not finite for the view 'wrong' of .*03.png"),
        ("longer", ValueError, r"gave 4 numbers for the view 'wrong' of .*03.png, but 3 for another"),
    ],
)
def test_errors_name_the_feature_and_the_picture(folder, tmp_path, way, error, words, n_jobs):
    threads = cv2.getNumThreads()
    with FeatureCache(tmp_path) as cache:
        with pytest.raises(error, match=words):
            extract(sorted(folder.iterdir()), [Size(), Wrong(way)], {}, cache=cache, n_jobs=n_jobs)
        assert cv2.getNumThreads() == threads
        CALLS.clear()
        extract(sorted(folder.iterdir())[:3], [Size(), Wrong(way)], {}, cache=cache)
        assert described() == 0  # what was computed before the error was kept


def test_views_of_the_same_name():
    with pytest.raises(ValueError, match=r"'colour.mean' is made by both MeanColour\(.*\) and MeanColour\(scale=2.0"):
        extract([pixels(0)], [MeanColour(), Size(), MeanColour(2.0)], {})
    found = extract([pixels(0)], [MeanColour(), MeanColour(2.0, "twice")], {})
    assert len(found.views.names) == 4


# -- the cache -----------------------------------------------------------------------------------------------------


def test_second_run_computes_nothing_and_reads_no_picture(folder, tmp_path, settled, monkeypatch):
    paths = sorted(folder.iterdir())
    with FeatureCache(tmp_path) as cache:
        first = extract(paths, FEATURES, {}, cache=cache, n_jobs=2)
    assert described() == 24
    CALLS.clear()
    monkeypatch.setattr(sources, "read_file", lambda *_: pytest.fail("a file was read"))
    with FeatureCache(tmp_path) as cache:
        second = extract(paths, FEATURES, {}, cache=cache)
    same(first.views, second.views)
    assert described() == 0


def test_files_just_written_are_read_again_but_not_described_again(folder, tmp_path, monkeypatch):
    paths = sorted(folder.iterdir())
    with FeatureCache(tmp_path) as cache:
        extract(paths, FEATURES, {}, cache=cache)
        assert cache._connection.execute("SELECT count(*) FROM files").fetchone() == (0,)
        CALLS.clear()
        read = []
        monkeypatch.setattr(
            sources, "read_file", lambda path, read_file=sources.read_file: read.append(path) or read_file(path)
        )
        extract(paths, FEATURES, {}, cache=cache)
    assert described() == 0
    assert sorted(read) == [str(path) for path in paths]


def test_changed_files_are_noticed_whatever_their_times_say(folder, tmp_path, settled):
    path = folder / "00.bmp"  # without compression: pictures of a size are files of a size
    cv2.imwrite(str(path), pixels(0))
    with FeatureCache(tmp_path) as cache:
        extract([path], FEATURES, {}, cache=cache)
        before = path.stat()
        cv2.imwrite(str(path), pixels(7))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert path.stat().st_size == before.st_size
        assert path.stat().st_mtime_ns == before.st_mtime_ns
        found = extract([path], FEATURES, {}, cache=cache)
        assert_array_equal(found.views["colour.mean"], expected(MeanColour(), [path])["colour.mean"])
        path.write_bytes(b"")
        with pytest.raises(UnreadablePicture, match="empty"):
            extract([path], FEATURES, {}, cache=cache)


def test_moved_and_copied_pictures_are_known_by_content(folder, tmp_path):
    with FeatureCache(tmp_path / "cache") as cache:
        extract(sorted(folder.iterdir()), FEATURES, {}, cache=cache)
        CALLS.clear()
        shutil.copytree(folder, tmp_path / "elsewhere")
        extract(sorted((tmp_path / "elsewhere").iterdir()), FEATURES, {}, cache=cache)
    assert described() == 0


def test_the_same_picture_several_times_is_described_once(folder, tmp_path):
    shutil.copy(folder / "02.png", folder / "copy.png")
    paths = [folder / name for name in ("02.png", "05.png", "copy.png", "02.png")]
    array = pixels(9)
    with FeatureCache(tmp_path) as cache:
        found = extract([*paths, array, array.copy()], FEATURES, {}, cache=cache, n_jobs=2)
    assert described() == 3 * 2
    for feature in FEATURES:
        for view, rows in expected(feature, paths).items():
            assert_array_equal(found.views[view][:4], rows)
    assert_array_equal(found.views["size"][4], found.views["size"][5])
    assert len(extract(paths, FEATURES, {}).views) == 4  # and without a cache


def test_only_what_changed_is_computed_again(folder, tmp_path, monkeypatch):
    paths = sorted(folder.iterdir())

    def calls(features, learned=None, **settings):
        CALLS.clear()
        with FeatureCache(tmp_path / "cache") as cache:
            extract(paths, features, learned or {}, cache=cache, **settings)
        return {type(what).__name__: number for what, number in CALLS.items() if isinstance(what, Feature)}

    words = {1: {"words": np.zeros((4, 3))}}
    assert calls([Size(), Words()], words) == {"Size": 12, "Words": 12}
    assert calls([Size(), Words()], words) == {}
    assert calls([Words(), Size()], {0: words[1]}) == {}  # the order does not matter
    assert calls([Size(), Words()], {1: {"words": np.ones((4, 3))}}) == {"Words": 12}
    assert calls([Size(), Words()], {1: {"words": np.zeros((4, 3), dtype=np.float32)}}) == {"Words": 12}
    assert calls([Size(), Words(3)], {1: {"words": np.zeros((3, 3))}}) == {"Words": 12}
    assert calls([Size(), MeanColour()]) == {"MeanColour": 12}
    assert calls([Size(), MeanColour(1.5)]) == {"MeanColour": 12}
    assert calls([Size()], max_side=25) == {"Size": 12}
    assert calls([Size()], max_side=None) == {"Size": 12}
    assert calls([Size()], n_jobs=2) == {}
    paths = paths[3:]
    paths.append(folder / "new.png")
    cv2.imwrite(str(paths[-1]), pixels(50))
    assert calls([Size()]) == {"Size": 1}
    monkeypatch.setattr(runs, "FEATURES_VERSION", 2)
    assert calls([Size()]) == {"Size": 10}


def test_classes_of_the_same_name_are_told_apart(folder, tmp_path):
    other = dataclass(frozen=True)(type("Size", (Size,), {"views": ("size",), "__module__": "elsewhere"}))
    with FeatureCache(tmp_path) as cache:
        extract(sorted(folder.iterdir()), [Size()], {}, cache=cache)
        CALLS.clear()
        extract(sorted(folder.iterdir()), [other()], {}, cache=cache)
    assert described() == 12


def test_entries_that_do_not_fit_are_computed_again(folder, tmp_path):
    paths = sorted(folder.iterdir())
    with FeatureCache(tmp_path) as cache:
        first = extract(paths, FEATURES, {}, cache=cache)
        keys = [key for (key,) in cache._connection.execute("SELECT key FROM features")]
        for key, junk in zip(keys, ([], [1], [9, 9, 1], [-1, 4, 0, 0, 0], [0, 0, 0, 0]), strict=False):
            cache.put_many({key: np.array(junk, dtype=np.float32)})
        CALLS.clear()
        same(extract(paths, FEATURES, {}, cache=cache).views, first.views)
    assert described() == 5


def test_damaged_cache(folder, tmp_path):
    (tmp_path / "features.sqlite").write_bytes(b"rubbish" * 1000)
    with pytest.raises(CacheError, match=r"is damaged .*: delete it"):
        ImageFeatures(FEATURES, cache=tmp_path).fit_transform(sorted(folder.iterdir()))


def test_file_that_changes_between_hashing_and_describing(folder, tmp_path, monkeypatch):
    path = folder / "00.png"
    run = runs.Run(FeatureCache(tmp_path))
    given = run.sources([path, folder / "01.png"])
    cv2.imwrite(str(path), pixels(40))
    found = run.extract(given, FEATURES, {})
    assert found.problems == [(str(path), "the file was changed while features were computed")]
    assert_array_equal(found.rows, [1])


KILLED = """
import sys, time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
import numpy as np
from kernelweave.images import runs
from kernelweave.images.base import Feature
from kernelweave.images.cache import FeatureCache
from kernelweave.images.extraction import extract

runs.PICTURES_AT_ONCE = 5
folder, cache, seconds, results = sys.argv[1:]

@dataclass(frozen=True)
class Slow(Feature):
    views: ClassVar = ("slow",)
    def describe(self, picture, learned):
        time.sleep(float(seconds))
        print("described", flush=True)
        return [picture.rgb.mean(axis=(0, 1)).astype(np.float32)]

with FeatureCache(cache) as kept:
    found = extract(sorted(Path(folder).iterdir()), [Slow()], {}, cache=kept, n_jobs=2)
np.save(results, found.views["slow"])
"""


@pytest.mark.skipif(os.name == "nt", reason="kill -9 is of other systems")
def test_killed_and_started_again(tmp_path):
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number in range(40):
        cv2.imwrite(str(folder / f"{number:02d}.png"), pixels(number))

    def start(seconds):
        command = [sys.executable, "-c", KILLED, str(folder), str(tmp_path / "c.db"), seconds, str(tmp_path / "r.npy")]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    process = start("0.02")
    for number, _ in enumerate(process.stdout):
        if number == 30:
            break
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    with FeatureCache(tmp_path / "c.db") as cache:
        (kept,) = cache._connection.execute("SELECT count(*) FROM features").fetchone()
    assert kept > 0
    again = start("0")
    calls = again.communicate(timeout=120)[0].count("described")
    assert again.returncode == 0
    assert calls == 40 - kept
    expected_rows = [read_picture(path).rgb.mean(axis=(0, 1)) for path in sorted(folder.iterdir())]
    assert_array_equal(np.load(tmp_path / "r.npy"), np.array(expected_rows, dtype=np.float32))


def test_interrupted_by_the_user(folder, tmp_path, monkeypatch):
    write = runs._Table.write

    def interrupted(self, position, rows, *rest):
        if rows == [6]:
            raise KeyboardInterrupt
        write(self, position, rows, *rest)

    threads = cv2.getNumThreads()
    monkeypatch.setattr(runs._Table, "write", interrupted)
    with FeatureCache(tmp_path) as cache:
        with pytest.raises(KeyboardInterrupt):
            extract(sorted(folder.iterdir()), FEATURES, {}, cache=cache, n_jobs=2)
        assert cv2.getNumThreads() == threads
        monkeypatch.undo()
        CALLS.clear()
        extract(sorted(folder.iterdir()), FEATURES, {}, cache=cache)
    assert described() == (12 - 6) * 2


# -- resources -----------------------------------------------------------------------------------------------------

ALIVE = weakref.WeakSet()
MOST_ALIVE = []


@dataclass(frozen=True)
class Watching(Feature):
    """Returns a part of something large, and counts the pictures that are in memory."""

    views: ClassVar = ("watching",)

    def describe(self, picture, learned):
        with LOCK:
            ALIVE.add(picture)
            MOST_ALIVE.append(len(ALIVE))
        return [picture.channels("lab").ravel()[:3]]


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_pictures_are_forgotten(n_jobs):
    MOST_ALIVE.clear()
    extract([pixels(k) for k in range(60)], [Watching()], {}, n_jobs=n_jobs)
    assert len(MOST_ALIVE) == 60
    assert max(MOST_ALIVE) <= n_jobs + 1


def test_results_hold_on_to_nothing_large():
    vectors = runs._describe(sources.as_sources([pixels(0)])[0], {0: (Watching(), {})}, None)[0]
    assert all(vector.base is None for vector in vectors)


@dataclass(frozen=True)
class Threads(Feature):
    """The threads OpenCV may use."""

    views: ClassVar = ("threads",)

    def describe(self, picture, learned):
        return [np.array([cv2.getNumThreads()], dtype=np.float32)]


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_opencv_uses_one_thread_a_picture_and_its_settings_come_back(n_jobs):
    before = cv2.getNumThreads(), cv2.utils.logging.getLogLevel()
    cv2.setNumThreads(3)
    try:
        found = extract([pixels(0), pixels(1)], [Threads()], {}, n_jobs=n_jobs)
        assert_array_equal(found.views["threads"], [[1], [1]])
        assert cv2.getNumThreads() == 3
        with runs._one_thread_each:
            with runs._one_thread_each:
                assert cv2.getNumThreads() == 1
            assert cv2.getNumThreads() == 1
        assert cv2.getNumThreads() == 3
    finally:
        cv2.setNumThreads(before[0])
    assert cv2.utils.logging.getLogLevel() == before[1]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_is_shown_on_a_terminal_only(folder, tmp_path, monkeypatch, capfd):
    paths = sorted(folder.iterdir())
    extract(paths, FEATURES, {}, verbose=1)
    assert capfd.readouterr() == ("", "")
    for verbose, shown in ((0, False), (1, True)):
        terminal = Terminal()
        monkeypatch.setattr(sys, "stderr", terminal)
        with FeatureCache(tmp_path / str(verbose)) as cache:
            extract(paths, FEATURES, {}, verbose=verbose, cache=cache)
        assert ("pictures" in terminal.getvalue()) == shown
        assert ("files" in terminal.getvalue()) == shown
    assert capfd.readouterr() == ("", "")


def test_pictures_of_one_pixel(tmp_path):
    found = extract([np.zeros((1, 1, 3), dtype=np.uint8)], FEATURES, {}, cache=FeatureCache(tmp_path))
    assert_array_equal(found.views["size"], [[1, 1]])
