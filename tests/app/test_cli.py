"""The command line: what is printed where, exit codes, bad input, and that nothing else is written."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import cv2
import numpy as np
import pytest

import kernelweave as kw
from kernelweave import _archive
from kernelweave.app import commands
from kernelweave.app.cli import main
from kernelweave.app.output import printable
from kernelweave.app.tagger import PictureTagger
from kernelweave.datasets.feature_files import load_npz
from kernelweave.datasets.picture_sets import read_pictures
from kernelweave.datasets.scenes import LABELS, write_scenes
from kernelweave.datasets.xmp import read_keywords
from kernelweave.images.presets import PRESETS, preset

FEATURES = [{"is": "ColourHistogram", "colour": "hsv", "bins": 4}, {"is": "LBPHistogram"}]


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A folder with scenes, new scenes, a list of features and a model."""
    folder = tmp_path_factory.mktemp("work")
    write_scenes(folder / "scenes", n_scenes=40, random_state=0, size=32)
    write_scenes(folder / "new", n_scenes=4, random_state=1, size=32)
    (folder / "features.json").write_text(json.dumps(FEATURES))
    assert run("train", folder / "scenes", "-o", folder / "model.kw", *quickly(folder)) == 0
    return folder


@pytest.fixture
def photos(tmp_path):
    """One folder a class, with pictures that cannot be read among them."""
    scenes = kw.datasets.make_scenes(n_scenes=12, size=32, random_state=0)
    for row, picture in enumerate(scenes.pictures):
        folder = tmp_path / "photos" / ("night" if row % 2 else "the day")
        folder.mkdir(parents=True, exist_ok=True)
        picture = picture // 4 if row % 2 else picture
        (folder / f"été {row}.png").write_bytes(cv2.imencode(".png", picture)[1].tobytes())
    whole = (tmp_path / "photos" / "night" / "été 1.png").read_bytes()
    (tmp_path / "photos" / "night" / "half.png").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "photos" / "night" / "empty.jpg").touch()
    (tmp_path / "photos" / "night" / "text.jpg").write_text("this is text")
    (tmp_path / "features.json").write_text(json.dumps(FEATURES))
    return tmp_path / "photos"


def run(*arguments):
    return main([str(argument) for argument in arguments])


def quickly(folder, *more):
    return ["--features", folder / "features.json", "--weights", "average", "--C", "1", "--jobs", "1", *more]


def files_in(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# --- train -----------------------------------------------------------------------------------------------------------


def test_train_writes_the_model_and_nothing_else(work, tmp_path, capsys):
    before = files_in(work)
    assert run("train", work / "scenes", "-o", tmp_path / "model.kw", *quickly(work)) == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "weights average, C = 1, learned from 40 pictures" in printed.err
    assert "mean average precision by label on pictures held out" in printed.err
    assert files_in(work) == before and [path.name for path in tmp_path.iterdir()] == ["model.kw"]
    assert PictureTagger.load(tmp_path / "model.kw").label_names_ == LABELS


def test_train_with_report_and_cache(work, tmp_path, capsys):
    paths = ["-o", tmp_path / "model.kw", "--report", tmp_path / "report.html", "--cache", tmp_path / "cache"]
    for _ in range(2):  # a model and a report may be replaced
        assert run("train", work / "scenes", *paths, *quickly(work)) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"model.kw", "report.html", "cache"}
    page = (tmp_path / "report.html").read_text()
    assert page.startswith("<!DOCTYPE html>") and "horizon" in page


def test_train_prints_json(work, tmp_path, capsys):
    assert run("--json", "train", work / "scenes", "-o", tmp_path / "model.kw", "--quiet", *quickly(work)) == 0
    printed = capsys.readouterr()
    result = json.loads(printed.out)
    assert printed.err == ""
    assert result["model"] == str(tmp_path / "model.kw") and result["n_pictures"] == 40
    assert result["labels"] == list(LABELS) and 0 < result["held_out"]["category_ap"] <= 1


def test_train_passes_its_options_on(work, tmp_path):
    choice = ["--method", "classifier", "--weights", "average,l2", "--C", "1,10", "--folds", "2"]
    options = [*choice, "--max-side", "0", "--seed", "3"]
    arguments = ["train", work / "scenes", "-o", tmp_path / "model.kw", "--features", work / "features.json", *options]
    assert run(*arguments) == 0
    tagger = PictureTagger.load(tmp_path / "model.kw")
    assert (tagger.method, tagger.weights, tagger.C) == ("classifier", ["average", "l2"], [1.0, 10.0])
    assert (tagger.folds, tagger.max_side, tagger.random_state) == (2, None, 3)
    assert len(tagger.choice_) == 4


def test_unreadable_pictures_are_listed_and_the_rest_goes_on(photos, tmp_path, capsys):
    assert run("train", photos, "-o", tmp_path / "model.kw", *quickly(tmp_path)) == 0
    printed = capsys.readouterr().err
    for name, reason in (("half.png", "truncated"), ("empty.jpg", "empty"), ("text.jpg", "is no JPEG")):
        assert any(name in line and reason in line for line in printed.splitlines())
    tagger = PictureTagger.load(tmp_path / "model.kw")
    assert tagger.single_ and tagger.label_names_ == ("night", "the day") and len(tagger.paths_) == 12


def test_strict_stops_at_an_unreadable_picture(photos, tmp_path, capsys):
    assert run("train", photos, "-o", tmp_path / "model.kw", "--strict", *quickly(tmp_path)) == 2
    assert "half.png" in capsys.readouterr().err
    assert not (tmp_path / "model.kw").exists()


def test_labels_for_missing_files(work, tmp_path, capsys):
    table = tmp_path / "labels.csv"
    lines = (work / "scenes" / "labels.csv").read_text().splitlines()
    names = [work / "scenes" / line.split(",")[0] for line in lines[1:]]
    rows = [",".join([str(name), *line.split(",")[1:]]) for name, line in zip(names, lines[1:], strict=True)]
    table.write_text("\n".join([lines[0], *rows, "lost.png,1,0,0,0,0,0,0,0,0"]) + "\n")
    assert run("train", table, "-o", tmp_path / "model.kw", *quickly(work)) == 0
    assert "lost.png" in capsys.readouterr().err
    assert run("train", table, "-o", tmp_path / "model.kw", "--strict", *quickly(work)) == 2


def test_labels_in_another_table_and_what_they_leave_out(work, tmp_path):
    table = tmp_path / "tags.csv"
    pictures = read_pictures(work / "scenes")
    tags = [";".join(np.array(LABELS)[row == 1]) for row in pictures.Y]
    rows = [f"{path.name},{tag}" for path, tag in zip(pictures.paths, tags, strict=True)]
    table.write_text("\n".join(["file,tags", *rows]) + "\n")
    arguments = ["train", work / "scenes", "--labels", table, "-o", tmp_path / "model.kw", *quickly(work)]
    assert run(*arguments) == 0
    signs = PictureTagger.load(tmp_path / "model.kw").Y_.signs
    assert set(np.unique(signs)) == {-1, 1}
    assert run(*arguments, "--unlisted", "unknown") == 2  # then no label is known not to apply


@pytest.mark.parametrize(
    ("content", "message"), [([], "there are no pictures"), (["a.png"], "no labels"), (["one/a.png"], "no labels")]
)
def test_folders_without_pictures_or_labels(work, tmp_path, capsys, content, message):
    (tmp_path / "folder").mkdir()
    for name in content:
        (tmp_path / "folder" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "folder" / name).write_bytes((work / "new" / "scene-0001.png").read_bytes())
    assert run("train", tmp_path / "folder", "-o", tmp_path / "model.kw", *quickly(work)) == 2
    printed = capsys.readouterr().err
    assert message in printed and "Traceback" not in printed
    assert not (tmp_path / "model.kw").exists()


def test_pictures_of_one_class(work, tmp_path, capsys):
    names = [f"{work}/new/scene-000{number}.png" for number in (1, 2, 3)]
    (tmp_path / "table.csv").write_text("path,class\n" + "".join(f"{name},sea\n" for name in names))
    assert run("train", tmp_path / "table.csv", "-o", tmp_path / "model.kw", *quickly(work)) == 2
    assert "all pictures are of the class sea" in capsys.readouterr().err


def test_no_picture_can_be_read(work, tmp_path, capsys):
    for name in ("one/a.jpg", "two/b.jpg"):
        (tmp_path / "folder" / name).parent.mkdir(parents=True)
        (tmp_path / "folder" / name).touch()
    assert run("train", tmp_path / "folder", "-o", tmp_path / "model.kw", *quickly(work)) == 3
    assert "2 pictures cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--features", "fast"], "neither a preset"),
        (["--weights", "l0x"], "l0x"),
        (["--C", "-1"], "C must be"),
        (["--folds", "1"], "folds must be"),
        (["--cache", "{here}/model.kw/cache"], "cache"),
    ],
)
def test_wrong_options(work, tmp_path, capsys, options, message):
    options = [option.format(here=work) for option in options]
    assert run("train", work / "scenes", "-o", tmp_path / "model.kw", *quickly(work), *options) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("options", [["--C", "much"], ["--method", "magic"], ["--max-side", "x"], ["--unlisted", "x"]])
def test_wrong_usage(work, tmp_path, capsys, options):
    with pytest.raises(SystemExit) as stopped:
        run("train", work / "scenes", "-o", tmp_path / "model.kw", *options)
    assert stopped.value.code == 2
    assert options[0] in capsys.readouterr().err


# --- outputs that exist ----------------------------------------------------------------------------------------------


def test_files_of_another_kind_are_not_replaced(work, tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("important")
    (tmp_path / "labels.csv").write_text("file_name,sea\na.png,1\n")
    (tmp_path / "metadata.jsonl").write_text('{"file_name": "a.png", "labels": ["sea"]}\n')
    (tmp_path / "page.html").write_text("<!DOCTYPE html>\nmine")
    before = files_in(tmp_path)
    model, scenes = work / "model.kw", work / "scenes"
    for arguments in (
        ["train", scenes, "-o", tmp_path / "notes.txt"],
        ["train", scenes, "-o", tmp_path / "model.kw", "--report", tmp_path / "page.html"],
        ["tag", model, work / "new", "-o", tmp_path / "labels.csv"],
        ["tag", model, work / "new", "-o", tmp_path / "metadata.jsonl"],
        ["suggest", model, scenes, "-o", tmp_path / "labels.csv"],
        ["report", model, "-o", tmp_path / "page.html"],
        ["features", scenes, "-o", model],
    ):
        assert run(*arguments) == 2
        assert "it is not replaced" in capsys.readouterr().err
    assert run("train", scenes, "-o", work / "new" / "scene-0001.png") == 2
    assert "name of a picture" in capsys.readouterr().err
    assert run("train", scenes, "-o", tmp_path) == 2
    assert "it is a folder" in capsys.readouterr().err
    assert run("train", scenes, "-o", tmp_path / "nowhere" / "model.kw") == 2
    assert "there is no folder" in capsys.readouterr().err
    assert files_in(tmp_path) == before


def test_own_files_are_replaced(work, tmp_path):
    for name in ("tags.csv", "tags.jsonl"):
        for _ in range(2):
            assert run("tag", work / "model.kw", work / "new", "-o", tmp_path / name) == 0
    for _ in range(2):
        assert run("suggest", work / "model.kw", work / "scenes", "-o", tmp_path / "missing.csv") == 0
        assert run("report", work / "model.kw", "-o", tmp_path / "report.html") == 0
        features = ["--features", work / "features.json"]
        assert run("features", work / "new", "-o", tmp_path / "features.npz", *features) == 0


# --- tag -------------------------------------------------------------------------------------------------------------


def expected_tags(work, top=5):
    tagger = PictureTagger.load(work / "model.kw")
    return tagger.tag(sorted((work / "new").glob("*.png")), top=top)


def test_tag_prints_a_table(work, capsys):
    assert run("tag", work / "model.kw", work / "new", "--top", "2") == 0
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert printed.err == "" and len(lines) == 9
    first = expected_tags(work)[0][0]
    assert lines[1].split()[:3] == [str(work / "new" / "scene-0001.png"), first.label, f"{first.score:.3f}"]


def test_tag_prints_csv_and_json_lines(work, capsys):
    expected = expected_tags(work, top=3)
    assert run("tag", work / "model.kw", work / "new", "--top", "3", "--format", "csv") == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert run("tag", work / "model.kw", work / "new", "--top", "3", "--format", "jsonl") == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == len(records) == 4
    for row, record, tags in zip(rows, records, expected, strict=True):
        given = [tag.label for tag in tags if tag.given]
        assert row["file_name"] == record["file_name"]
        assert row["labels"] == ";".join(given) and record["labels"] == given
        assert [row[f"tag_{k}"] for k in (1, 2, 3)] == list(record["scores"]) == [tag.label for tag in tags]
        assert [float(row[f"score_{k}"]) for k in (1, 2, 3)] == [round(tag.score, 4) for tag in tags]


def test_tag_prints_json(work, capsys):
    assert run("tag", work / "model.kw", work / "new", "lost.jpg", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert len(result["pictures"]) == 4
    assert result["problems"] == [["lost.jpg", "there is no such file"]]


@pytest.mark.parametrize("name", ["tags.csv", "tags.jsonl"])
def test_written_tags_can_be_read_as_labels(work, tmp_path, name):
    assert run("tag", work / "model.kw", work / "new", "-o", tmp_path / name) == 0
    pictures = read_pictures(tmp_path / name)
    assert list(pictures.paths) == sorted((work / "new").glob("*.png"))
    found = [{pictures.label_names[k] for k in np.flatnonzero(row == 1)} for row in pictures.Y]
    assert found == [{tag.label for tag in tags if tag.given} for tags in expected_tags(work)]


def test_names_are_relative_to_the_table(work):
    try:
        assert run("tag", work / "model.kw", work / "new" / "scene-0002.png", "-o", work / "tags.csv") == 0
        assert (work / "tags.csv").read_text().splitlines()[1].startswith("new/scene-0002.png,")
    finally:
        (work / "tags.csv").unlink()


def test_top_beyond_the_number_of_labels(work, capsys):
    assert run("tag", work / "model.kw", work / "new" / "scene-0001.png", "--top", "100", "--json") == 0
    assert len(json.loads(capsys.readouterr().out)["pictures"][0]["scores"]) == len(LABELS)
    with pytest.raises(SystemExit):
        run("tag", work / "model.kw", work / "new", "--top", "0")


def test_tag_goes_on_without_unreadable_pictures(work, photos, capsys):
    assert run("tag", work / "model.kw", photos, "--format", "jsonl") == 0
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 12 and printed.err.count("left out") == 3
    assert run("tag", work / "model.kw", photos, "--strict") == 2
    assert run("tag", work / "model.kw", photos / "night" / "text.jpg") == 3
    assert "nothing to tag" in capsys.readouterr().err


def test_tag_an_empty_folder(work, tmp_path, capsys):
    assert run("tag", work / "model.kw", tmp_path) == 3
    assert "no pictures in this folder" in capsys.readouterr().err


def test_sidecars_are_written_only_when_asked_for(work, tmp_path):
    picture = tmp_path / "a.png"
    picture.write_bytes((work / "new" / "scene-0001.png").read_bytes())
    assert run("tag", work / "model.kw", picture) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]
    assert run("tag", work / "model.kw", picture, "--sidecars") == 0
    assert {path.name for path in tmp_path.iterdir()} == {"a.png", "a.png.xmp"}
    assert read_keywords(tmp_path / "a.png.xmp") == sorted(
        (tag.label for tag in expected_tags(work)[0] if tag.given), key=LABELS.index
    )
    assert picture.read_bytes() == (work / "new" / "scene-0001.png").read_bytes()


@pytest.mark.parametrize(
    "options",
    [["--json", "--format", "csv"], ["-o", "{here}/tags.txt"], ["-o", "{here}/tags.csv", "--format", "table"]],
)
def test_forms_that_do_not_go_together(work, tmp_path, capsys, options):
    options = [option.format(here=tmp_path) for option in options]
    assert run("tag", work / "model.kw", work / "new", *options) == 2
    assert list(tmp_path.iterdir()) == []


# --- models that cannot be used --------------------------------------------------------------------------------------


def test_a_damaged_model(work, tmp_path, capsys):
    data = bytearray((work / "model.kw").read_bytes())
    data[data.index(b"\x93NUMPY") + 20] ^= 255  # in an array: other bytes of a zip file need not matter
    (tmp_path / "damaged.kw").write_bytes(data)
    assert run("tag", tmp_path / "damaged.kw", work / "new") == 3
    assert "damaged" in capsys.readouterr().err


def test_a_model_of_a_newer_version(work, tmp_path, capsys, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(_archive, "VERSION", _archive.VERSION + 1)
        PictureTagger.load(work / "model.kw").save(tmp_path / "newer.kw")
    assert run("info", tmp_path / "newer.kw") == 3
    assert "update kernelweave" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["tag", "suggest", "evaluate"])
def test_no_such_model(work, tmp_path, capsys, command):
    assert run(command, tmp_path / "no.kw", work / "new") == 2
    assert "there is no model file" in capsys.readouterr().err
    (tmp_path / "text.kw").write_text("no model")
    assert run(command, tmp_path / "text.kw", work / "new") == 3


# --- suggest, evaluate, report ---------------------------------------------------------------------------------------


def test_suggest(work, capsys):
    tagger = PictureTagger.load(work / "model.kw")
    expected = tagger.suggest(read_pictures(work / "scenes"), top=4)
    assert run("suggest", work / "model.kw", work / "scenes", "--top", "4", "--format", "csv") == 0
    printed = capsys.readouterr()
    rows = list(csv.DictReader(io.StringIO(printed.out)))
    assert [(row["file_name"], row["label"]) for row in rows] == [(one.picture, one.label) for one in expected]
    assert "40 of the pictures are among those the model learned from" in printed.err
    assert run("suggest", work / "model.kw", work / "scenes", "--top", "4") == 0
    assert len(capsys.readouterr().out.splitlines()) == 5
    assert run("suggest", work / "model.kw", work / "scenes", "--top", "4", "--json") == 0
    assert [row["label"] for row in json.loads(capsys.readouterr().out)] == [one.label for one in expected]


def test_suggest_classes(photos, tmp_path, capsys):
    assert run("train", photos, "-o", tmp_path / "model.kw", *quickly(tmp_path)) == 0
    wrong = photos / "the day" / "été 1.png"
    (photos / "night" / "été 1.png").rename(wrong)
    capsys.readouterr()
    assert run("suggest", tmp_path / "model.kw", photos, "--format", "jsonl") == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (found[0]["file_name"], found[0]["label"], found[0]["instead_of"]) == (str(wrong), "night", "the day")


def test_evaluate(work, capsys):
    expected = PictureTagger.load(work / "model.kw").evaluate(read_pictures(work / "new"))
    assert run("evaluate", work / "model.kw", work / "new", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["n_pictures"] == 4 and result["measures"] == pytest.approx(expected)
    assert run("evaluate", work / "model.kw", work / "new") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == [*["mean", "average", "precision", "by", "label"], f"{expected['category_ap']:.4f}"]


def test_evaluate_needs_labels(work, tmp_path, capsys):
    (tmp_path / "a.png").write_bytes((work / "new" / "scene-0001.png").read_bytes())
    assert run("evaluate", work / "model.kw", tmp_path) == 2
    assert "no labels" in capsys.readouterr().err


def test_report_on_training_and_on_other_pictures(work, tmp_path, capsys):
    assert run("report", work / "model.kw", "-o", tmp_path / "a.html") == 0
    assert run("report", work / "model.kw", work / "new", "-o", tmp_path / "b.html", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"report": str(tmp_path / "b.html")}
    training, other = ((tmp_path / name).read_text() for name in ("a.html", "b.html"))
    assert "model.kw" in training and "40 pictures" in training
    assert "4 given for this report" in other


# --- features, info, demo --------------------------------------------------------------------------------------------


def test_features(work, photos, tmp_path, capsys):
    options = ["--features", tmp_path / "features.json", "--jobs", "1"]
    assert run("features", photos, "-o", tmp_path / "photos.npz", *options, "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["n_pictures"] == 12 and result["views"] == {"colour-hsv/1x1": 64, "lbp/1x1": 10}
    with np.load(tmp_path / "photos.npz") as arrays:
        assert set(arrays) == {"names", "problems", "y", "colour-hsv/1x1", "lbp/1x1"}
        assert arrays["colour-hsv/1x1"].shape == (12, 64) and arrays["problems"].shape == (3, 2)
        assert sorted(set(arrays["y"])) == ["night", "the day"]
        assert arrays["names"][0] == "photos/night/été 1.png"
    assert run("features", photos, "-o", tmp_path / "photos.npz", *options, "--strict") == 2
    assert run("features", work / "new", "-o", tmp_path / "new.npz", *options) == 0
    with np.load(tmp_path / "new.npz") as arrays:
        np.testing.assert_array_equal(arrays["Y"], read_pictures(work / "new").Y)
        assert tuple(arrays["label_names"]) == LABELS
    loaded = load_npz(tmp_path / "new.npz")
    assert loaded.views.names == ("colour-hsv/1x1", "lbp/1x1") and loaded.label_names == LABELS
    assert run("info", tmp_path / "new.npz") == 0
    assert "4 x 64" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "Expecting"),
        ("{}", "must hold a list"),
        ("[]", "empty"),
        ('[{"is": "Unknown"}]', "Unknown"),
        ('[{"is": "KMeans", "n_words": 3}]', "KMeans"),
        ('[{"is": "LBPHistogram", "depth": 3}]', "depth"),
        ('[{"is": "LBPHistogram"}, {"is": "LBPHistogram"}]', "lbp/1x1"),
    ],
)
def test_lists_of_features_that_cannot_be_used(work, tmp_path, capsys, text, message):
    (tmp_path / "list.json").write_text(text)
    options = ["--features", tmp_path / "list.json"]
    assert run("features", work / "new", "-o", tmp_path / "new.npz", *options) == 2
    printed = capsys.readouterr().err
    assert "list.json holds no list of features" in printed and message in printed


@pytest.mark.parametrize("name", PRESETS)
def test_presets_can_be_printed_edited_and_read(name, tmp_path, capsys):
    from kernelweave.app.feature_lists import read_features

    assert run("info", name, "--json") == 0
    (tmp_path / "list.json").write_text(capsys.readouterr().out)
    assert read_features(str(tmp_path / "list.json")) == preset(name)


def test_info(work, tmp_path, capsys):
    assert run("info", work / "model.kw") == 0
    printed = capsys.readouterr().out
    assert "weights average" in printed and "40 pictures" in printed and "colour-hsv/1x1" in printed
    assert run("info", work / "model.kw", "--json") == 0
    assert json.loads(capsys.readouterr().out)["labels"] == list(LABELS)
    assert run("info", "quick") == 0
    assert capsys.readouterr().out.splitlines()[0] == repr(preset("quick")[0])
    assert run("info", tmp_path / "nothing") == 2
    (tmp_path / "broken.npz").write_bytes(b"PK")
    assert run("info", tmp_path / "broken.npz") == 3


def test_demo_gets_its_folder(tmp_path, monkeypatch):
    called = []
    monkeypatch.setattr("kernelweave.demo.main", called.append)
    assert run("demo", "-o", tmp_path / "demo") == 0
    assert called == [["--output", str(tmp_path / "demo")]]


# --- what is said, and how -------------------------------------------------------------------------------------------


def test_quiet_says_nothing_but_results(work, capsys):
    assert run("tag", work / "model.kw", work / "new", "lost.jpg", "--quiet", "--format", "jsonl") == 0
    printed = capsys.readouterr()
    assert printed.err == "" and len(printed.out.splitlines()) == 4


def test_many_problems_are_counted_and_verbose_lists_them(work, tmp_path, capsys):
    lost = [tmp_path / f"lost-{number}.jpg" for number in range(30)]
    assert run("tag", work / "model.kw", work / "new", *lost) == 0
    printed = capsys.readouterr().err
    assert printed.count("no such file") == 20 and "10 more (--verbose lists all)" in printed
    assert run("tag", work / "model.kw", work / "new", *lost, "--verbose") == 0
    assert capsys.readouterr().err.count("no such file") == 30


def test_errors_are_sentences_and_verbose_shows_where(work, capsys):
    assert run("info", "nothing") == 2
    printed = capsys.readouterr().err
    assert printed.startswith("kernelweave: there is no file nothing") and "Traceback" not in printed
    assert run("info", "nothing", "--verbose") == 2
    assert "Traceback" in capsys.readouterr().err


def test_an_error_that_should_not_happen(work, capsys, monkeypatch):
    def broken(*_):
        raise KeyError("oops")

    monkeypatch.setattr(commands, "info", broken)
    assert run("info", "quick") == 1
    assert "unexpected KeyError: 'oops'" in capsys.readouterr().err


def test_ctrl_c_leaves_the_old_model(work, tmp_path, capsys, monkeypatch):
    (tmp_path / "model.kw").write_bytes((work / "model.kw").read_bytes())
    before = files_in(tmp_path)

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("kernelweave._archive._write_array", interrupted)
    assert run("train", work / "scenes", "-o", tmp_path / "model.kw", *quickly(work)) == 130
    assert files_in(tmp_path) == before
    assert "stopped" in capsys.readouterr().err


def test_names_cannot_write_to_the_terminal():
    assert printable("a\x1b[2Jb\nc") == "a\\x1b[2Jb\nc"


def test_help_names_every_command(capsys):
    with pytest.raises(SystemExit) as stopped:
        run("--help")
    assert stopped.value.code == 0
    printed = capsys.readouterr().out
    for command in ("train", "tag", "suggest", "evaluate", "report", "features", "info", "demo"):
        assert f"\n    {command} " in printed
        with pytest.raises(SystemExit):
            run(command, "--help")
        assert "examples:" in capsys.readouterr().out


# --- as a program ----------------------------------------------------------------------------------------------------


def program(*arguments, **options):
    source = str(Path(kw.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": source, "NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "kernelweave", *map(str, arguments)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


def test_version():
    with program("--version") as process:
        out, err = process.communicate(timeout=120)
    assert (process.returncode, out.decode().strip(), err) == (0, f"kernelweave {kw.__version__}", b"")


def test_ctrl_c_while_features_are_computed(work, tmp_path):
    """The cache tells when the work has begun."""
    pictures = tmp_path / "many"
    write_scenes(pictures, n_scenes=300, random_state=0, size=96)
    (tmp_path / "out").mkdir()
    options = ["-o", tmp_path / "out" / "model.kw", "--report", tmp_path / "out" / "report.html"]
    with program("train", pictures, *options, "--cache", tmp_path / "cache.sqlite", "--jobs", "2") as process:
        while not (tmp_path / "cache.sqlite").exists():
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert b"stopped" in err and b"Traceback" not in err
    assert list((tmp_path / "out").iterdir()) == []
