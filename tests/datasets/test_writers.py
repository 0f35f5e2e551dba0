"""What is written reads back the same, and a file is there whole or not at all."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelweave._files import atomic_write
from kernelweave.datasets import read_keywords, read_pictures, write_csv, write_jsonl, write_sidecars, write_table

characters = st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\ufffe\uffff")
awkward = st.sampled_from(
    ["file_name", "path", "label", "tags", "text", "not", "-no", "a,b", 'q"q', ";;;", "x|y", "c.png"]
)
labels = st.one_of(awkward, st.text(characters, min_size=1, max_size=8).map(str.strip).filter(bool))
names = st.text(characters | st.sampled_from("\r\n\t ,;\"'"), min_size=1, max_size=8).filter(
    lambda text: "/" not in text
)


@st.composite
def tagged(draw, min_labels=2):
    """File names, label names and a matrix of 1, 0 and NaN."""
    files = [f"{k}{name}.jpg" for k, name in enumerate(draw(st.lists(names, min_size=1, max_size=4)))]
    label_names = draw(st.lists(labels, min_size=min_labels, max_size=4, unique=True))
    states = st.sampled_from([1.0, 0.0, np.nan])
    Y = [draw(st.lists(states, min_size=len(label_names), max_size=len(label_names))) for _ in files]
    return files, label_names, np.array(Y)


def made_in(folder, files):
    paths = [Path(folder) / name for name in files]
    for path in paths:
        path.write_bytes(b"picture")
    return paths


@pytest.mark.parametrize(("write", "name"), [(write_csv, "labels.csv"), (write_jsonl, "metadata.jsonl")])
@settings(max_examples=60)
@given(data=tagged())
def test_tables_read_back_the_same(write, name, data):
    files, label_names, Y = data
    with tempfile.TemporaryDirectory() as folder:
        paths = made_in(folder, files)
        write(Path(folder) / name, paths, label_names, Y)
        for source in (folder, Path(folder) / name):
            pictures = read_pictures(source, strict=True)
            assert pictures.paths == tuple(paths)
            assert pictures.label_names == tuple(label_names)
            np.testing.assert_array_equal(pictures.Y, Y)
            assert not pictures.single


@settings(max_examples=40)
@given(data=tagged(min_labels=1), unlisted=st.sampled_from(["no", "unknown"]))
def test_sidecars_read_back_the_same(data, unlisted):
    files, label_names, Y = data
    Y[0, 0] = 1  # a folder without any keyword has no labels
    with tempfile.TemporaryDirectory() as folder:
        paths = made_in(folder, files)
        written = write_sidecars(paths, label_names, Y)
        assert len(written) == np.any(~np.isnan(Y), axis=1).sum()
        pictures = read_pictures(folder, unlisted=unlisted, strict=True)
    assert sorted(pictures.paths) == sorted(paths)
    kept = [k for k in range(len(label_names)) if not np.isnan(Y[:, k]).all()]
    assert list(pictures.label_names) == sorted(label_names[k] for k in kept)
    for k in kept:
        column = pictures.label_names.index(label_names[k])
        read = [pictures.Y[pictures.paths.index(path), column] for path in paths]
        np.testing.assert_array_equal(read, Y[:, k])


def test_pictures_elsewhere_are_written_absolute(tmp_path, monkeypatch):
    (tmp_path / "photos").mkdir()
    (tmp_path / "tables").mkdir()
    made_in(tmp_path / "photos", ["a.jpg"])
    monkeypatch.chdir(tmp_path)
    write_csv("tables/t.csv", ["photos/a.jpg"], ["sea", "sky"], [[1, 0]])
    assert read_pictures("tables/t.csv", strict=True).paths == (tmp_path / "photos" / "a.jpg",)
    write_csv("photos/t.csv", ["photos/a.jpg"], ["sea", "sky"], [[1, 0]])
    assert "\r\na.jpg,1,0" in Path("photos/t.csv").read_bytes().decode()


def test_names_that_are_not_unicode_keep_their_bytes(tmp_path):
    name = os.fsdecode(b"caf\xe9.jpg")
    try:
        (tmp_path / name).write_bytes(b"picture")
    except OSError:
        pytest.skip("this file system has only Unicode names")
    for write, table in ((write_csv, "labels.csv"), (write_jsonl, "t.jsonl")):
        write(tmp_path / table, [tmp_path / name], ["sea", "sky"], [[1, 0]])
        assert read_pictures(tmp_path / table, strict=True).paths == (tmp_path / name,)


def test_labels_in_any_form(tmp_path):
    paths = made_in(tmp_path, ["a.jpg", "b.jpg"])
    for Y in ([[1, -1], [-1, 1]], [["sea"], ["sky"]], np.array([[True, False], [False, True]])):
        write_csv(tmp_path / "labels.csv", paths, ["sea", "sky"], Y)
        np.testing.assert_array_equal(read_pictures(tmp_path).Y, [[1, 0], [0, 1]])


@pytest.mark.parametrize("write", [write_csv, write_jsonl, lambda _, *rest: write_sidecars(*rest)])
def test_refuses_what_does_not_fit(tmp_path, write):
    paths = made_in(tmp_path, ["a.jpg", "b.jpg"])
    with pytest.raises(ValueError, match="2 pictures, but Y has 1 rows"):
        write(tmp_path / "t", paths, ["sea", "sky"], [[1, 0]])
    with pytest.raises(ValueError, match="spaces around"):
        write(tmp_path / "t", paths, ["sea", "sky "], [[1, 0], [0, 1]])
    with pytest.raises(ValueError, match="must differ"):
        write(tmp_path / "t", paths, ["sea", "sea"], [[1, 0], [0, 1]])
    assert sorted(os.listdir(tmp_path)) == ["a.jpg", "b.jpg"]


def test_refuses_one_label_that_would_read_as_classes(tmp_path):
    with pytest.raises(ValueError, match="'Label' would be read as a column of classes"):
        write_csv(tmp_path / "t.csv", ["a.jpg"], ["Label"], [[1]])


def test_sidecars_keep_keywords_of_others_and_are_not_shared(tmp_path):
    first, second = made_in(tmp_path, ["a.jpg", "a.png"])
    write_sidecars([first], ["sea", "sky"], [[1, 1]])
    (tmp_path / "a.jpg.xmp").rename(tmp_path / "a.xmp")
    assert write_sidecars([first], ["sky", "tree"], [[0, np.nan]]) == [tmp_path / "a.xmp"]
    assert read_keywords(tmp_path / "a.xmp") == ["sea"]
    written = write_sidecars([first, second], ["tree"], [[1], [0]])
    assert written == [tmp_path / "a.jpg.xmp", tmp_path / "a.png.xmp"]
    assert read_keywords(tmp_path / "a.jpg.xmp") == ["tree"]
    assert first.read_bytes() == second.read_bytes() == b"picture"


def test_tables_of_anything(tmp_path):
    rows = [["a.jpg", np.float64(0.1), np.int64(3)], ["b, c.jpg", float("nan"), None]]
    write_table(tmp_path / "t.csv", ["picture", "score", "rank"], rows)
    assert (tmp_path / "t.csv").read_text() == '"picture","score","rank"\na.jpg,0.1,3\n"b, c.jpg",,\n'
    write_table(tmp_path / "t.jsonl", ["picture", "score", "rank"], iter(rows), "jsonl")
    read = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert read == [
        {"picture": "a.jpg", "score": 0.1, "rank": 3},
        {"picture": "b, c.jpg", "score": None, "rank": None},
    ]
    with pytest.raises(ValueError, match="2 values for 1 columns"):
        write_table(tmp_path / "new.csv", ["picture"], [["a.jpg", 1]])
    with pytest.raises(ValueError, match="different names"):
        write_table(tmp_path / "new.jsonl", ["x", "x"], [], "jsonl")
    with pytest.raises(ValueError, match="format must be 'csv' or 'jsonl', got 'xls'"):
        write_table(tmp_path / "new.xls", ["x"], [], "xls")
    assert sorted(os.listdir(tmp_path)) == ["t.csv", "t.jsonl"]


@pytest.mark.parametrize("interruption", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(tmp_path, interruption):
    path = tmp_path / "model.bin"
    path.write_bytes(b"old")
    with pytest.raises(interruption), atomic_write(path) as file:
        file.write(b"half of the new")
        raise interruption
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["model.bin"]


def test_a_finished_write_replaces_and_keeps_permissions(tmp_path):
    path = tmp_path / "été 1.txt"
    path.write_bytes(b"old")
    path.chmod(0o640)
    with atomic_write(path, text=True) as file:
        file.write("neu\r\nü")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"neu\r\n\xc3\xbc"
    assert path.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["été 1.txt"]


def test_says_why_it_cannot_write(tmp_path, monkeypatch):
    with (
        pytest.raises(FileNotFoundError, match=r"there is no folder .*missing"),
        atomic_write(tmp_path / "missing" / "x"),
    ):
        pass
    with pytest.raises(IsADirectoryError, match="it is a folder"), atomic_write(tmp_path):
        pass

    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(PermissionError, match=r"in the folder .*: Permission denied"), atomic_write(tmp_path / "x"):
        pass
