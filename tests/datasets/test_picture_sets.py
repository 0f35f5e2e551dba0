"""Pictures and labels are found in all the forms people have, and what is wrong is named without stopping the rest."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

from kernelweave.datasets import read_pictures, write_keywords
from kernelweave.labels import as_labels

NO, YES, UNKNOWN = 0.0, 1.0, float("nan")


@pytest.fixture
def folder(tmp_path):
    """A folder with pictures a.jpg, b.jpg and sub/c ü.PNG, and files that are none."""
    for name in ("a.jpg", "b.jpg", "sub/c ü.PNG", ".hidden.jpg", ".cache/d.jpg", "notes.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"picture")
    return tmp_path


def table(folder, text, name="labels.csv", encoding="utf-8"):
    path = folder / name
    path.write_bytes(text.encode(encoding) if isinstance(text, str) else text)
    return path


def labels_of(pictures):
    """Labels by picture name: {name: {label: state}}."""
    return {
        path.name: dict(zip(pictures.label_names, row.tolist(), strict=True))
        for path, row in zip(pictures.paths, pictures.Y, strict=True)
    }


def check(pictures, names, Y):
    assert pictures.label_names == tuple(names)
    np.testing.assert_array_equal(pictures.Y, Y)
    assert as_labels(pictures.Y, pictures.label_names).signs.shape == pictures.Y.shape


# CSV tables


def test_one_column_a_label(folder):
    path = table(folder, "path,sea,sky\na.jpg,1,0\nb.jpg,,yes\nsub/c ü.PNG,-1,False\n")
    pictures = read_pictures(path, strict=True)
    check(pictures, ["sea", "sky"], [[YES, NO], [UNKNOWN, YES], [NO, NO]])
    assert pictures.paths == (folder / "a.jpg", folder / "b.jpg", folder / "sub" / "c ü.PNG")
    assert not pictures.single and len(pictures) == 3
    with pytest.raises(ValueError, match="several can apply"):
        _ = pictures.classes


def test_one_column_of_numbers_with_gaps_as_frames_write_them(folder):
    check(read_pictures(table(folder, ",file,sea\n0,a.jpg,1.0\n1,b.jpg,\n")), ["sea"], [[YES], [UNKNOWN]])


@pytest.mark.parametrize("column", ["label", "Class", "species", "what it is"])
def test_one_column_of_classes(folder, column):
    pictures = read_pictures(table(folder, f"file_name,{column}\na.jpg,wren\nb.jpg,gull\nsub/c ü.PNG,\n"))
    check(pictures, ["gull", "wren"], [[NO, YES], [YES, NO], [UNKNOWN, UNKNOWN]])
    assert pictures.single
    assert pictures.classes.tolist() == ["wren", "gull", ""]
    assert pictures.judged.tolist() == [True, True, False]


def test_classes_that_are_numbers(folder):
    pictures = read_pictures(table(folder, "image,label\na.jpg,0\nb.jpg,1\n"))
    assert pictures.single and pictures.classes.tolist() == ["0", "1"]


@pytest.mark.parametrize(
    "text",
    [
        "image,tags\na.jpg,sea;sky\nb.jpg,sky ; \n",
        "image,label\na.jpg,sea|sky\nb.jpg,sky\n",
        'image,keywords\na.jpg,"sea, sky"\nb.jpg,sky\n',
        'image;tags\na.jpg;"sea;sky"\nb.jpg;sky\n',
        "image\ttags\r\na.jpg\tsea;sky\r\n\r\nb.jpg\tsky\r\n",
        "\ufeffimage,tags\na.jpg,sea;sky\nb.jpg,sky\n",
        "tags,image,author\nsea;sky,a.jpg,Ann\nsky,b.jpg,Bo\n",
        "name,text,tags\na.jpg,a boat,sea;sky\nb.jpg,a cloud,sky\n",
        "name,text,tags\na.jpg,a boat,sea\na.jpg,a boat,sky\nb.jpg,a cloud,sky\n",
    ],
    ids=["semicolon", "bar", "comma", "semicolons", "tabs", "mark", "order", "text", "lines"],
)
def test_one_column_of_tags(folder, text):
    path = table(folder, text)
    check(read_pictures(path, strict=True), ["sea", "sky"], [[YES, YES], [NO, YES]])
    check(read_pictures(path, unlisted="unknown"), ["sea", "sky"], [[YES, YES], [UNKNOWN, YES]])


def test_tags_that_do_not_apply_and_pictures_nobody_looked_at(folder):
    pictures = read_pictures(table(folder, "path,tags\na.jpg,sea;-sky\nb.jpg,\nsub/c ü.PNG,tree\n"))
    check(pictures, ["sea", "sky", "tree"], [[YES, NO, UNKNOWN], [UNKNOWN, UNKNOWN, UNKNOWN], [NO, NO, YES]])


def test_list_without_labels(folder):
    pictures = read_pictures(table(folder, "path\na.jpg\nb.jpg\n"))
    assert pictures.Y is None and pictures.label_names == () and len(pictures) == 2
    assert not pictures.judged.any()


# JSON Lines


def test_json_lists(folder):
    lines = [
        {"file_name": "a.jpg", "labels": ["sea", "sky"], "not": ["tree"]},
        {"file_name": "b.jpg", "labels": ["sky"]},
        {"file_name": "sub/c ü.PNG", "labels": []},
    ]
    path = table(folder, "\n".join(map(json.dumps, lines)), "metadata.jsonl")
    expected = [[YES, YES, NO], [NO, YES, NO], [NO, NO, NO]]
    check(read_pictures(path, strict=True), ["sea", "sky", "tree"], expected)
    expected = [[YES, YES, NO], [UNKNOWN, YES, UNKNOWN], [UNKNOWN] * 3]
    check(read_pictures(path, unlisted="unknown"), ["sea", "sky", "tree"], expected)


@pytest.mark.parametrize(
    "lines",
    [
        [{"file_name": "a.jpg", "sky": 1, "sea": False}, {"file_name": "b.jpg", "sea": 1, "text": "a boat"}],
        [{"file_name": "a.jpg", "labels": {"sky": True, "sea": 0}}, {"file_name": "b.jpg", "labels": {"sea": "yes"}}],
    ],
    ids=["keys", "object"],
)
def test_json_labels_by_name(folder, lines):
    path = table(folder, "\n".join(map(json.dumps, lines)), "t.jsonl")
    check(read_pictures(path, strict=True), ["sky", "sea"], [[YES, NO], [UNKNOWN, YES]])


def test_json_classes(folder):
    path = table(folder, '{"file_name": "a.jpg", "label": "gull"}\n{"file_name": "b.jpg", "label": 3}\n', "t.jsonl")
    pictures = read_pictures(path, strict=True)
    assert pictures.single and pictures.classes.tolist() == ["gull", "3"]


# Folders


@pytest.mark.parametrize("name", ["metadata.csv", "labels.csv"])
def test_folder_with_a_table_has_all_its_pictures(folder, name):
    table(folder, "file_name,label\nsub/c ü.PNG,wren\na.jpg,gull\n", name)
    pictures = read_pictures(folder, strict=True)
    assert [path.name for path in pictures.paths] == ["c ü.PNG", "a.jpg", "b.jpg"]
    assert pictures.classes.tolist() == ["wren", "gull", ""]


def test_folder_with_metadata_before_labels(folder):
    table(folder, "file_name,label\na.jpg,second\n", "labels.csv")
    table(folder, '{"file_name": "a.jpg", "label": "first"}', "metadata.jsonl")
    assert read_pictures(folder).label_names == ("first",)


def test_table_given_beside_the_folder(folder, tmp_path_factory):
    path = table(tmp_path_factory.mktemp("elsewhere"), "path,sea,sky\na.jpg,1,0\n")
    pictures = read_pictures(folder, labels=path, strict=True)
    assert labels_of(pictures)["a.jpg"] == {"sea": YES, "sky": NO}
    assert len(pictures) == 3
    with pytest.raises(ValueError, match="goes with a folder"):
        read_pictures(path, labels=path)


def test_sidecars(folder):
    write_keywords(folder / "a.jpg.xmp", ["sea", "été"])
    write_keywords(folder / "sub" / "c ü.xmp", ["sea"], absent=["sky"])
    pictures = read_pictures(folder, strict=True)
    assert labels_of(pictures)["a.jpg"] == {"sea": YES, "sky": NO, "été": YES}
    np.testing.assert_array_equal(pictures.Y[1], [UNKNOWN] * 3)
    np.testing.assert_array_equal(pictures.Y[2], [YES, NO, UNKNOWN])
    np.testing.assert_array_equal(read_pictures(folder, unlisted="unknown").Y[0], [YES, UNKNOWN, YES])


def test_unreadable_sidecar_is_a_problem(folder):
    write_keywords(folder / "a.jpg.xmp", ["sea"])
    (folder / "b.xmp").write_text("<!DOCTYPE x><x/>")
    pictures = read_pictures(folder)
    assert len(pictures) == 3 and pictures.label_names == ("sea",)
    assert [what for what, _ in pictures.problems] == [str(folder / "b.xmp")]


def test_folder_a_class(tmp_path):
    for name in ("gull/1.jpg", "gull/more/deep/2.jpg", "wren/1.jpg", "loose.jpg", ".git/x.jpg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"picture")
    (tmp_path / "empty").mkdir()
    pictures = read_pictures(tmp_path)
    assert pictures.single and pictures.label_names == ("gull", "wren")
    found = [
        (path.relative_to(tmp_path).as_posix(), c) for path, c in zip(pictures.paths, pictures.classes, strict=True)
    ]
    assert found == [
        ("gull/1.jpg", "gull"),
        ("gull/more/deep/2.jpg", "gull"),
        ("loose.jpg", ""),
        ("wren/1.jpg", "wren"),
    ]
    assert pictures.problems == ((str(tmp_path / "empty"), "the folder has no pictures, so there is no such class"),)


def test_plain_folder(folder):
    pictures = read_pictures(str(folder), strict=True)
    assert [path.name for path in pictures.paths] == ["a.jpg", "b.jpg", "c ü.PNG"]
    assert pictures.Y is None and not pictures.single


def test_links_are_followed_once(folder):
    (folder / "sub" / "back").symlink_to(folder)
    (folder / "sub" / "lost.jpg").symlink_to(folder / "nothing.jpg")
    pictures = read_pictures(folder)
    assert len(pictures) == 3
    assert [what for what, _ in pictures.problems] == [str(folder / "sub" / "lost.jpg")]


def test_unreadable_folder_is_a_problem(folder, monkeypatch):
    scandir = os.scandir

    def refuse_sub(path):
        if Path(path).name == "sub":
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse_sub)
    pictures = read_pictures(folder)
    assert [path.name for path in pictures.paths] == ["a.jpg", "b.jpg"]
    assert pictures.problems == ((str(folder / "sub"), "the folder cannot be read: Permission denied"),)


# Rows


def test_rows_can_be_chosen(folder):
    pictures = read_pictures(table(folder, "path,label\na.jpg,x\nb.jpg,y\nsub/c ü.PNG,x\n"))
    for rows in ([2, 0], np.array([2, 0]), [-1, 0]):
        part = pictures[rows]
        assert [path.name for path in part.paths] == ["c ü.PNG", "a.jpg"]
        assert part.classes.tolist() == ["x", "x"] and part.label_names == ("x", "y")
    assert len(pictures[np.array([True, False, True])]) == len(pictures[1:]) == 2
    with pytest.raises(TypeError, match="slice or a list"):
        _ = pictures[0]
    assert read_pictures(folder / "sub")[[0]].Y is None


# What is wrong with single pictures or lines


@pytest.mark.parametrize(
    ("line", "what", "reason"),
    [
        ("lost.jpg,1,0", "lost.jpg", "line 3: there is no such file"),
        ("../x.jpg,1,0", "../x.jpg", "leads out of the folder"),
        ("sub/../../x.jpg,1,0", "sub/../../x.jpg", "leads out of the folder"),
        ("sub,1,0", "sub", "is a folder"),
        ("b.jpg,1", "labels.csv, line 3", "has 2 cells, but the first line has 3"),
        (",1,0", "labels.csv, line 3", "no picture named in column 'path'"),
        ("./a.jpg,0,", "a.jpg", "contradictory labels sea"),
        ("b\0.jpg,1,0", None, None),
    ],
    ids=["missing", "outside", "dots", "folder", "cells", "nameless", "contradiction", "nul"],
)
def test_problems_do_not_stop_the_rest(folder, line, what, reason):
    (folder.parent / "x.jpg").write_bytes(b"picture")
    path = table(folder, f"path,sea,sky\na.jpg,1,0\n{line}\n")
    if what is None:
        with pytest.raises(ValueError, match="is not UTF-8 text"):
            read_pictures(path)
        return
    pictures = read_pictures(path)
    assert [path.name for path in pictures.paths] == ["a.jpg"]
    ((found, why),) = pictures.problems
    assert found.endswith(what) and reason in why
    with pytest.raises(ValueError, match=re.escape(reason)):
        read_pictures(path, strict=True)


def test_lines_about_one_picture_are_joined(folder):
    pictures = read_pictures(table(folder, "path,sea,sky\na.jpg,1,\nb.jpg,0,0\n./a.jpg,1,0\nsub/../a.jpg,,1\n"))
    check(pictures, ["sea", "sky"], [[YES, UNKNOWN], [NO, NO]])
    assert len(pictures.problems) == 1 and "contradictory labels sky" in pictures.problems[0][1]


def test_two_classes_of_one_picture_are_a_problem(folder):
    pictures = read_pictures(table(folder, "path,label\na.jpg,gull\na.jpg,wren\nb.jpg,gull\nb.jpg,gull\n"))
    assert pictures.classes.tolist() == ["", "gull"]
    np.testing.assert_array_equal(pictures.Y[0], [UNKNOWN, UNKNOWN])
    assert len(pictures.problems) == 1 and "gull, wren" in pictures.problems[0][1]


def test_absolute_names_and_names_of_other_systems(folder, tmp_path_factory, monkeypatch):
    other = tmp_path_factory.mktemp("other") / "x.jpg"
    other.write_bytes(b"picture")
    table(folder, f"path,tags\n{other},sea\n{folder / 'a.jpg'},sky\nsub\\c ü.PNG,sea\n b.jpg ,sky\n")
    monkeypatch.chdir(folder.parent)
    pictures = read_pictures(folder.name, strict=True)
    here = Path(folder.name)
    assert pictures.paths == (other, here / "a.jpg", here / "sub" / "c ü.PNG", here / "b.jpg")
    np.testing.assert_array_equal(pictures.Y[:, 0], [YES, NO, YES, NO])


def test_names_with_spaces_around_are_found(folder):
    (folder / " x.jpg").write_bytes(b"picture")
    pictures = read_pictures(table(folder, "path,tags\n x.jpg,sea\na.jpg, sky \n"), strict=True)
    assert [path.name for path in pictures.paths] == [" x.jpg", "a.jpg"]
    assert pictures.label_names == ("sea", "sky")


def test_bad_json_lines_are_problems(folder):
    text = '{"file_name": "a.jpg", "labels": ["sea"]}\nno json\n[1]\n' + "[" * 100_000 + "\n"
    pictures = read_pictures(table(folder, text, "t.jsonl"))
    assert len(pictures) == 1
    assert [what.rsplit(" ")[-1] for what, _ in pictures.problems] == ["2", "3", "4"]


# What is wrong with a whole table


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("path,sea,sky\na.jpg,1,maybe\n", r"labels\.csv, line 2, label 'sky': 'maybe' is neither yes"),
        ("path,sea,sky\na.jpg,1,0\nb.jpg,2,0\n", r"line 3, label 'sea': '2' is neither"),
        ("path,label,tags\na.jpg,x,y\n", r"labels in the columns 'label' and 'tags'; keep"),
        ("path,sea,sea\na.jpg,1,0\n", "two columns are named 'sea'"),
        ("a.jpg,gull\nb.jpg,wren\n", r"line 1: 'a\.jpg' looks like a picture"),
        ('path,tags\na.jpg,"sea\nb.jpg,sky\n', "line 3: unexpected end of data; is a quotation mark missing"),
        ("", "has no lines"),
        (b"path,label\na.jpg,caf\xe9\n", r"line 2, column 'label': the label .* is not UTF-8"),
        ("path,label\na.jpg,caf\u0007\n", "control character"),
        ("path,label\na.jpg,x\n".encode("utf-16"), "is not UTF-8 text"),
        ("path,label\nlost.jpg,x\n", r"none of the pictures .*lost\.jpg: .*line 2: there is no such file.*labels="),
        ("path,label\n", "there are no pictures in"),
    ],
    ids=["word", "number", "both", "twice", "headless", "quote", "empty", "latin-1", "bell", "utf-16", "lost", "none"],
)
def test_tables_that_cannot_be_understood_are_refused(folder, text, message):
    with pytest.raises(ValueError, match=message):
        read_pictures(table(folder, text))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"labels": ["sea"]}, "no line names its picture"),
        ({"file_name": "a.jpg", "labels": [1.5]}, "a label is a text, got 1.5"),
        ({"file_name": "a.jpg", "labels": ["sea", ""]}, "a label is a text"),
        ({"file_name": "a.jpg", "labels": ["sea"], "not": "sky"}, "must be a list of labels, got 'sky'"),
        ({"file_name": "a.jpg", "labels": {"sea": "often"}}, "label 'sea': 'often' is neither"),
    ],
)
def test_json_that_cannot_be_understood_is_refused(folder, line, message):
    with pytest.raises(ValueError, match=message):
        read_pictures(table(folder, json.dumps(line), "t.jsonl"))


def test_sources_that_are_no_sources(folder, tmp_path_factory):
    with pytest.raises(FileNotFoundError, match=r"no file or folder .*lost"):
        read_pictures(folder / "lost")
    with pytest.raises(ValueError, match=r"a\.jpg is a picture; give its folder"):
        read_pictures(folder / "a.jpg")
    with pytest.raises(ValueError, match=r"notes\.txt is no table.* \.csv, \.jsonl"):
        read_pictures(folder / "notes.txt")
    with pytest.raises(ValueError, match="there are no pictures in"):
        read_pictures(tmp_path_factory.mktemp("empty"))
    with pytest.raises(ValueError, match="unlisted must be 'no' or 'unknown', got 'maybe'"):
        read_pictures(folder, unlisted="maybe")
