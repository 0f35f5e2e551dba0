"""The cache of features: what is kept comes back, whatever happens to the process or to the file."""

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from kernelweave.images import cache as module
from kernelweave.images.cache import CacheError, FeatureCache


def vector(*numbers):
    return np.array(numbers, dtype=np.float32)


def fill(path, n=200, length=500):
    with FeatureCache(path) as cache:
        cache.put_many({f"key {k}": np.full(length, k, dtype=np.float32) for k in range(n)})


def test_what_is_kept_comes_back(tmp_path):
    with FeatureCache(tmp_path) as cache:
        cache.put_many({"a": vector(1, 2.5, -3), "b": vector(), "ü": vector(np.nan, np.inf)})
        cache.put_many({})
    with FeatureCache(tmp_path) as cache:
        found = cache.get_many(["a", "b", "ü", "missing"])
        assert set(found) == {"a", "b", "ü"}
        assert_array_equal(found["a"], vector(1, 2.5, -3))
        assert found["a"].dtype == np.float32
        assert found["b"].shape == (0,)
        assert_array_equal(found["ü"], vector(np.nan, np.inf))
        assert cache.get_many([]) == {}
        cache.put_many({"a": vector(7)})
        assert_array_equal(cache.get_many(iter(["a", "a"]))["a"], vector(7))


def test_many_keys_at_once(tmp_path):
    fill(tmp_path, 3000, 3)
    with FeatureCache(tmp_path) as cache:
        found = cache.get_many([f"key {k}" for k in range(5000)])
    assert len(found) == 3000
    assert_array_equal(found["key 2999"], vector(2999, 2999, 2999))


@pytest.mark.parametrize(
    ("given_path", "file"),
    [("", "features.sqlite"), ("new/folder", "new/folder/features.sqlite"), ("new/my.db", "new/my.db")],
)
def test_folder_or_file(given_path, file, tmp_path):
    with FeatureCache(str(tmp_path / given_path)) as cache:
        assert cache.path == tmp_path / file
    assert (tmp_path / file).is_file()
    assert [path.name for path in (tmp_path / file).parent.iterdir()] == [Path(file).name]  # nothing is left beside it


@pytest.mark.parametrize("question", ["is_file", "is_dir"])
def test_a_folder_that_somebody_else_makes_meanwhile(question, tmp_path, monkeypatch):
    ask = getattr(Path, question)

    def answered_and_made(path, *args, **kwargs):
        answer = ask(path, *args, **kwargs)
        (tmp_path / "folder").mkdir(exist_ok=True)
        return answer

    monkeypatch.setattr(Path, question, answered_and_made)
    with FeatureCache(tmp_path / "folder") as cache:
        assert cache.path == tmp_path / "folder" / "features.sqlite"


def test_existing_file_without_suffix(tmp_path):
    (tmp_path / "cache").touch()
    with FeatureCache(tmp_path / "cache") as cache:
        assert cache.path == tmp_path / "cache"


@pytest.mark.parametrize("value", [np.zeros(3), np.zeros((2, 2), dtype=np.float32), np.zeros(3, dtype=int)])
def test_only_float32_vectors(value, tmp_path):
    with FeatureCache(tmp_path) as cache:
        with pytest.raises(ValueError, match=r"keeps float32 vectors, got .* for 'k'"):
            cache.put_many({"fine": vector(1), "k": value})
        assert cache.get_many(["fine"]) == {}


@settings(max_examples=30)
@given(st.dictionaries(st.text(max_size=8), st.lists(st.floats(width=32), max_size=5), max_size=8))
def test_any_keys_and_numbers(values):
    arrays = {key: vector(*numbers) for key, numbers in values.items() if "\ud800" > max(key, default="") < "\udfff"}
    with tempfile.TemporaryDirectory() as folder, FeatureCache(folder) as cache:
        cache.put_many(arrays)
        found = cache.get_many(arrays)
        assert set(found) == set(arrays)
        for key, array in arrays.items():
            assert_array_equal(found[key], array)


def test_learned_arrays_keep_their_shapes_and_types(tmp_path):
    learned = {
        "words": np.arange(12, dtype=np.float32).reshape(3, 4),
        "scale": np.array(2.5),
        "counts": np.arange(3, dtype=np.int64)[::-1],
        "mask": np.array([[True], [False]]),
        "swapped": np.arange(3, dtype=">f8"),
        "none": np.zeros((0, 5), dtype=np.uint8),
    }
    with FeatureCache(tmp_path) as cache:
        assert cache.get_learned("k") is None
        cache.put_learned("k", learned)
        cache.put_learned("other", {"words": vector(1)})
        found = cache.get_learned("k")
        assert set(found) == set(learned)
        for name, array in learned.items():
            assert found[name].dtype == array.dtype.newbyteorder("=")
            assert found[name].shape == array.shape
            assert_array_equal(found[name], array)
        with pytest.raises(TypeError, match="arrays of numbers"):
            cache.put_learned("bad", {"objects": np.array([{}], dtype=object)})
        assert cache.get_learned("bad") is None


def test_contents_are_known_while_the_stamp_is_the_same(tmp_path):
    odd = os.fsdecode(b"/p/\xff\xfe.jpg")
    with FeatureCache(tmp_path) as cache:
        cache.put_contents({"/p/a.jpg": ("1", "aaa"), odd: ("2", "bbb")})
        assert cache.get_contents({"/p/a.jpg": "1", odd: "2", "/p/c.jpg": "3"}) == {"/p/a.jpg": "aaa", odd: "bbb"}
        assert cache.get_contents({"/p/a.jpg": "changed"}) == {}
        cache.put_contents({"/p/a.jpg": ("changed", "ccc")})
        assert cache.get_contents({"/p/a.jpg": "changed"}) == {"/p/a.jpg": "ccc"}


# -- a hard life ---------------------------------------------------------------------------------------------------

WRITER = """
import sys
import numpy as np
from kernelweave.images.cache import FeatureCache
with FeatureCache(sys.argv[1]) as cache:
    for k in range(int(sys.argv[3])):
        cache.put_many({f"{sys.argv[2]} {k} {j}": np.full(5000, k, dtype=np.float32) for j in range(10)})
        print(k, flush=True)
"""


def writer(path, name, rounds):
    command = [sys.executable, "-c", WRITER, str(path), name, str(rounds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.skipif(os.name == "nt", reason="kill -9 is of other systems")
def test_killed_while_writing(tmp_path):
    path = tmp_path / "c.sqlite"
    process = writer(path, "w", 100_000)
    done = -1
    for line in process.stdout:
        done = int(line)
        if done >= 20:
            break
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    with FeatureCache(path) as cache:
        for k in range(done + 1):  # what was reported as written is there, and every transaction is there whole or not
            assert len(cache.get_many([f"w {k} {j}" for j in range(10)])) == 10
        for k in range(done + 1, done + 200):
            assert len(cache.get_many([f"w {k} {j}" for j in range(10)])) in (0, 10)
        cache.put_many({"after": vector(1)})
        assert cache._connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_several_processes_at_once(tmp_path):
    path = tmp_path / "c.sqlite"
    processes = [writer(path, f"p{number}", 10) for number in range(4)]
    for process in processes:
        process.communicate(timeout=120)
        assert process.returncode == 0
    with FeatureCache(path) as cache:
        keys = [f"p{number} {k} {j}" for number in range(4) for k in range(10) for j in range(10)]
        assert len(cache.get_many(keys)) == 400


def test_made_by_many_threads_at_once(tmp_path):
    failures = []

    def make(number):
        try:
            with FeatureCache(tmp_path / "c.sqlite") as cache:
                cache.put_many({str(number): vector(number)})
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=make, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with FeatureCache(tmp_path / "c.sqlite") as cache:
        assert len(cache.get_many(map(str, range(16)))) == 16


def test_a_writer_that_does_not_end(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 0.1)
    with FeatureCache(tmp_path) as first, FeatureCache(tmp_path) as second:
        first.put_many({"a": vector(1)})
        first._connection.execute("BEGIN IMMEDIATE")
        assert_array_equal(second.get_many(["a"])["a"], vector(1))  # reading goes on
        with pytest.raises(CacheError, match=r"another process has been writing .* for more than 0 seconds"):
            second.put_many({"b": vector(2)})
        first._connection.execute("ROLLBACK")
        second.put_many({"b": vector(2)})


def test_failed_transaction_leaves_nothing(tmp_path):
    class Broken(dict):
        def items(self):
            yield from super().items()
            if self.armed:
                raise RuntimeError("out of milk")
            self.armed = True

    values = Broken(a=vector(1))
    values.armed = False
    with FeatureCache(tmp_path) as cache:
        with pytest.raises(RuntimeError, match="out of milk"):
            cache.put_many(values)
        assert cache.get_many(["a"]) == {}
        cache.put_many({"b": vector(2)})
        assert set(cache.get_many(["a", "b"])) == {"b"}


@pytest.mark.parametrize("data", [b"not a database at all" * 100, b"SQLite format 3\0" + b"\x99" * 5000])
def test_file_that_is_no_cache(data, tmp_path):
    path = tmp_path / "c.sqlite"
    path.write_bytes(data)
    with pytest.raises(CacheError, match=r"c.sqlite is damaged \(.*\): delete it"):
        FeatureCache(path)
    assert path.read_bytes() == data


def test_empty_file_is_a_new_cache(tmp_path):
    (tmp_path / "c.sqlite").touch()
    fill(tmp_path / "c.sqlite", 3)


def test_damaged_in_the_middle(tmp_path):
    path = tmp_path / "c.sqlite"
    fill(path)
    data = bytearray(path.read_bytes())
    for start in range(8192, len(data) - 4096, 8192):
        data[start : start + 4096] = os.urandom(4096)
    path.write_bytes(data)
    with pytest.raises(CacheError, match=r"is damaged .*delete it"), FeatureCache(path) as cache:
        cache.get_many([f"key {k}" for k in range(200)])


@pytest.mark.parametrize("share", [0.02, 0.3, 0.8, 0.99])
def test_truncated_file(share, tmp_path):
    path = tmp_path / "c.sqlite"
    fill(path)
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    with pytest.raises(CacheError, match=r"is damaged .*delete it"), FeatureCache(path) as cache:
        cache.get_many([f"key {k}" for k in range(200)])


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE features SET value = x'0000'",
        "UPDATE features SET value = 'text'",
        "UPDATE features SET value = NULL",
        "UPDATE features SET checksum = 5",
        "UPDATE features SET checksum = 'x'",
        "DROP TABLE features; CREATE TABLE features (other TEXT)",
    ],
)
def test_tampered_values_are_noticed(change, tmp_path):
    fill(tmp_path, 1)
    with sqlite3.connect(tmp_path / "features.sqlite") as connection:
        connection.executescript(change)
    connection.close()
    with pytest.raises(CacheError, match="is damaged"), FeatureCache(tmp_path) as cache:
        cache.get_many(["key 0"])


@pytest.mark.parametrize(
    "column", ["dtype = '|O'", "dtype = 'nonsense'", "shape = '9,9'", "shape = 'x'", "shape = NULL"]
)
def test_tampered_learned_arrays_are_noticed(column, tmp_path):
    with FeatureCache(tmp_path) as cache:
        cache.put_learned("k", {"words": vector(1, 2)})
        cache._connection.execute(f"UPDATE learned SET {column}")
        with pytest.raises(CacheError, match="is damaged"):
            cache.get_learned("k")


def test_databases_of_others_and_of_the_future(tmp_path):
    with sqlite3.connect(tmp_path / "others.db") as connection:
        connection.execute("CREATE TABLE things (name TEXT)")
    connection.close()
    before = (tmp_path / "others.db").read_bytes()
    with pytest.raises(CacheError, match="of another program, not a feature cache: choose another path"):
        FeatureCache(tmp_path / "others.db")
    assert (tmp_path / "others.db").read_bytes() == before
    fill(tmp_path / "c.sqlite", 1)
    with sqlite3.connect(tmp_path / "c.sqlite") as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(CacheError, match="newer version of kernelweave"):
        FeatureCache(tmp_path / "c.sqlite")


def test_place_that_cannot_be(tmp_path):
    (tmp_path / "file.txt").touch()
    with pytest.raises(CacheError, match=r"cannot be written \(.*\): choose a path where you may write"):
        FeatureCache(tmp_path / "file.txt" / "cache.sqlite")


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="rights work differently here")
def test_place_without_permission():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fill(folder / "there.sqlite", 1)
        (folder / "there.sqlite").chmod(0o444)
        folder.chmod(0o555)
        root = os.geteuid() == 0
        if root:
            os.seteuid(65534)
        try:
            for file in ("new.sqlite", "deep/new.sqlite", "there.sqlite"):
                with pytest.raises(CacheError, match=r"cannot be written .*: choose a path"):
                    FeatureCache(folder / file)
        finally:
            if root:
                os.seteuid(0)
            folder.chmod(0o755)
