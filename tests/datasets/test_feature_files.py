"""Feature files of other programs, with their labels; errors name file and line."""

from __future__ import annotations

import bz2
import gzip

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file

from kernelweave.datasets import load_arff, load_libsvm, load_npz

UNKNOWN = float("nan")


@pytest.fixture
def write(tmp_path):
    def write_file(name, text):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write_file


# libsvm


@pytest.mark.parametrize("pack", [None, gzip.compress, bz2.compress])
def test_libsvm_classes(write, pack):
    text = b"# made by hand\n-1 1:0.5 3:2 # first\n\n+1 2:1e-1\n-1 qid:4 1:1\n"
    path = write(
        "a.libsvm" + {None: "", gzip.compress: ".gz", bz2.compress: ".bz2"}[pack], pack(text) if pack else text
    )
    loaded = load_libsvm(path)
    np.testing.assert_array_equal(loaded.views["x"], [[0.5, 0, 2], [0, 0.1, 0], [1, 0, 0]])
    assert loaded.single and loaded.label_names == ("-1", "1")
    assert loaded.classes.tolist() == ["-1", "1", "-1"]
    assert load_libsvm(path, n_features=5).views.shape == (3, 5)


def test_libsvm_labels_and_lines_without(write):
    loaded = load_libsvm(write("a.libsvm", "2,10 1:1\n1:2 2:3\n10 2:1\n"))
    assert not loaded.single and loaded.label_names == ("2", "10")
    np.testing.assert_array_equal(loaded.Y, [[1, 1], [0, 0], [0, 1]])
    np.testing.assert_array_equal(loaded.views["x"], [[1, 0], [2, 3], [0, 1]])
    with pytest.raises(ValueError, match="several can apply"):
        _ = loaded.classes


def test_libsvm_written_by_scikit_learn(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((20, 4)).round(3), np.arange(20) % 3
    dump_svmlight_file(X, y, str(tmp_path / "a"), zero_based=False)
    loaded = load_libsvm(tmp_path / "a")
    np.testing.assert_allclose(loaded.views["x"], X)
    assert loaded.classes.astype(int).tolist() == y.tolist()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 1:0.5\n2 1:x\n", r"a\.libsvm, line 2 \('2 1:x'\)"),
        ("1 1:0.5\nwren 2:1\n", r"line 2 \('wren 2:1'\)"),
        ("1 1:0.5\n2 3\n", r"line 2 \('2 3'\)"),
        ("1 1:0.5\n2 1:inf\n", r"line 2 .*must be finite"),
        ("0.5 1:1\n1.25 1:2\n", "there is a 0.5; is this file for regression"),
        ("1 1:1\n2 2000000000:1\n", "too many for a dense array"),
        ("", r"a\.libsvm: "),
    ],
    ids=["value", "label", "pair", "infinite", "regression", "wide", "empty"],
)
def test_bad_libsvm(write, text, message):
    with pytest.raises(ValueError, match=message):
        load_libsvm(write("a.libsvm", text))


# npz


def test_npz_views_and_labels(tmp_path):
    Y = np.array([[1, 0], [np.nan, 1], [0, 0]])
    sift, gist = np.ones((3, 4), np.float32), np.zeros((3, 2))
    np.savez_compressed(tmp_path / "a.npz", sift=sift, gist=gist, Y=Y, label_names=["sea", "été"])
    loaded = load_npz(tmp_path / "a.npz")
    assert loaded.views.names == ("sift", "gist") and loaded.views["sift"].dtype == np.float32
    np.testing.assert_array_equal(loaded.Y, Y)
    assert loaded.label_names == ("sea", "été") and not loaded.single


@pytest.mark.parametrize(
    ("arrays", "classes", "names"),
    [
        ({"y": ["wren", "gull", "gull"]}, ["wren", "gull", "gull"], ("gull", "wren")),
        ({"y": [1, 0, 1], "label_names": ["wren", "gull", "owl"]}, ["gull", "wren", "gull"], ("wren", "gull", "owl")),
        ({"labels": [10, 9, 10]}, ["10", "9", "10"], ("9", "10")),
        ({"y": [1.0, np.nan, -1.0]}, ["1", "", "-1"], ("-1", "1")),
    ],
    ids=["texts", "numbers of names", "numbers", "gaps"],
)
def test_npz_classes(tmp_path, arrays, classes, names):
    np.savez(tmp_path / "a.npz", x=np.ones((3, 2)), **arrays)
    loaded = load_npz(tmp_path / "a.npz")
    assert loaded.single and loaded.classes.tolist() == classes and loaded.label_names == names


def test_npz_without_labels(tmp_path):
    np.savez(tmp_path / "a.npz", np.ones((3, 2)), b=np.ones((3, 1)))
    loaded = load_npz(tmp_path / "a.npz")
    assert loaded.views.names == ("b", "arr_0") and loaded.Y is None and loaded.label_names == ()


class Explosive:
    """Something that runs code when it is unpickled."""

    def __reduce__(self):
        return (print, ("this must never be run",))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.array([Explosive()], dtype=object)}, "allow_pickle"),
        ({"x": np.ones((3, 2)), "y": np.ones(2)}, "'y' has 2 rows, but the views have 3"),
        ({"x": np.ones((3, 2)), "y": np.ones(3), "Y": np.ones((3, 2))}, "labels are in Y and y"),
        ({"x": np.ones((3, 2)), "z": np.ones((2, 2))}, "view 'z' has 2 rows"),
        ({"x": np.ones(3)}, r"view 'x' must have the shape"),
        ({"x": np.array([[0.0, np.nan], [1.0, 2.0]])}, "must be finite"),
        ({"x": np.ones((3, 2)), "Y": np.full((3, 2), 7)}, "'Y' must hold 0 and 1"),
        ({"x": np.ones((3, 2)), "Y": np.ones((3, 2)), "label_names": ["sea"]}, "2 label columns, expected 1"),
        ({"x": np.ones((3, 2)), "y": [0, 1, 5], "label_names": ["a", "b"]}, "from 0 to 5, but there are 2"),
        ({"y": np.ones(3)}, "labels but no features"),
    ],
)
def test_bad_npz(tmp_path, capsys, arrays, message):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(ValueError, match=rf"a\.npz cannot be read as features: .*{message}"):
        load_npz(tmp_path / "a.npz")
    assert "never" not in capsys.readouterr().out


def test_npz_that_is_none(tmp_path, write):
    whole = tmp_path / "whole.npz"
    np.savez(whole, x=np.arange(200.0).reshape(100, 2))
    for content in (b"", b"some text", whole.read_bytes()[:300]):
        with pytest.raises(ValueError, match="cannot be read as features"):
            load_npz(write("a.npz", content))
    np.save(tmp_path / "one.npy", np.ones((3, 2)))
    with pytest.raises(ValueError, match=r"one array without a name; save several with numpy\.savez"):
        load_npz(tmp_path / "one.npy")


# ARFF

HEADER = """% a comment
@RELATION  birds

@attribute 'wing span' NUMERIC % not a comment, but ignored
@attribute colour {red,'dark \\'blue\\'',"a,b"}
@attribute note string
@attribute tame {no,yes}
@attribute class {wren,gull,owl}
@data
"""


def test_arff_of_weka(write):
    text = HEADER + "1.5,red,'a, note',yes,gull\n % more\n-2e1,'dark \\'blue\\'',x,no,wren\n0,\"a,b\",?,no,?\n"
    loaded = load_arff(write("a.arff", text))
    np.testing.assert_array_equal(loaded.views["x"], [[1.5, 1, 0, 0, 1], [-20, 0, 1, 0, 0], [0, 0, 0, 1, 0]])
    assert loaded.single and loaded.label_names == ("wren", "gull", "owl")
    assert loaded.classes.tolist() == ["gull", "wren", ""]


def test_arff_missing_features_need_a_number(write):
    path = write("a.arff", HEADER + "1,red,x,no,gull\n?,?,x,yes,wren\n")
    with pytest.raises(ValueError, match=r"line 11, attribute 'wing span': a value is missing \(\?\); give missing="):
        load_arff(path)
    np.testing.assert_array_equal(load_arff(path, missing=-1).views["x"], [[1, 1, 0, 0, 0], [-1, -1, -1, -1, 1]])


TAGS = """@relation 'scenes{}'
@attribute sea {{0,1}}
@attribute 'blue sky' {{0,1}}
@attribute x1 real
@attribute x2 integer
@attribute sand {{0,1}}
@data
1,0,0.5,2,?
{{1 1, 3 7, 4 1}}
{{}}
"""


@pytest.mark.parametrize("relation", [": -C 2", ": -C 2 -split-percentage 50"])
def test_arff_of_meka(write, relation):
    loaded = load_arff(write("a.arff", TAGS.format(relation)), missing=0)
    assert loaded.label_names == ("sea", "blue sky") and not loaded.single
    np.testing.assert_array_equal(loaded.Y, [[1, 0], [0, 1], [0, 0]])
    np.testing.assert_array_equal(loaded.views["x"], [[0.5, 2, 0], [0, 7, 1], [0, 0, 0]])


@pytest.mark.parametrize(("relation", "labels"), [(": -C -1", None), ("", 1), ("", ["sand"]), (": -C 2", ["sand"])])
def test_arff_labels_at_the_end_or_by_name(write, relation, labels):
    loaded = load_arff(write("a.arff", TAGS.format(relation)), labels)
    assert loaded.label_names == ("sand",)
    np.testing.assert_array_equal(loaded.Y, [[UNKNOWN], [1], [0]])
    np.testing.assert_array_equal(loaded.views["x"], [[1, 0, 0.5, 2], [0, 1, 0, 7], [0, 0, 0, 0]])


def test_arff_labels_at_the_start_by_number(write):
    assert load_arff(write("a.arff", TAGS.format("")), -2, missing=0).label_names == ("sea", "blue sky")


def test_arff_of_mulan(write):
    xml = '<labels xmlns="http://mulan.sourceforge.net/labels"><label name="sand"/><label name="sea"></label></labels>'
    path, beside = write("a.arff", TAGS.format("")), write("a.xml", xml)
    for loaded in (load_arff(path), load_arff(path, beside), load_arff(path, str(beside))):
        assert loaded.label_names == ("sand", "sea")
        np.testing.assert_array_equal(loaded.Y, [[UNKNOWN, 1], [1, 0], [0, 0]])


def test_arff_without_labels(write):
    loaded = load_arff(write("a.arff", "@relation x\n@attribute a real\n@attribute b real\n@data\n1,2\n"))
    assert loaded.Y is None and loaded.views.shape == (1, 2)


@pytest.mark.parametrize(
    ("text", "labels", "message"),
    [
        (HEADER + "1,red,x,no\n", None, r"a\.arff, line 10: there are 4 values for 5 attributes"),
        (HEADER + "one,red,x,no,gull\n", None, "line 10, attribute 'wing span': 'one' is not a number"),
        (HEADER + "1,pink,x,no,gull\n", None, "line 10, attribute 'colour': 'pink' is not one of 'red', "),
        (HEADER + "1,red,x,no,duck\n", None, "attribute 'class': 'duck' is not one of"),
        (HEADER + "1,red,'x,no,gull\n", None, r"line 10: expected a value, got"),
        (HEADER + "1,red,'x'y,no,gull\n", None, "line 10: expected a comma before 'y,no,gull'"),
        (HEADER + "{0 1, 9 2}\n", None, "line 10: attribute numbers of sparse rows go from 0 to 4, got '9'"),
        (HEADER + "{0 1\n", None, r"line 10: a sparse row must end with a }"),
        (HEADER + "{0}\n", None, "line 10: expected a value"),
        (HEADER + "inf,red,x,no,gull\n", None, "must be finite"),
        (HEADER, None, "5 attributes, 0 rows"),
        ("some text\n", None, r"line 1: expected @relation"),
        ("@attribute a relational\n", None, "line 1: attribute 'a' has the type 'relational'"),
        ("@attribute a real\n@attribute a real\n@data\n1,2\n", None, "two attributes named 'a'"),
        (TAGS.format(""), ["sun"], "no attribute 'sun'"),
        (TAGS.format(""), ["x1"], "'x1' cannot be a label"),
        (TAGS.format(""), 9, "5 attributes; 9 of them cannot be the labels"),
        ("@attribute a {0,1}\n@attribute b string\n@data\n1,x\n", ["a"], "no numeric or nominal attributes besides"),
    ],
)
def test_bad_arff(write, text, labels, message):
    with pytest.raises(ValueError, match=message):
        load_arff(write("a.arff", text), labels)


def test_bad_mulan_label_files(write):
    path = write("a.arff", TAGS.format(""))
    for xml, message in (
        ("<labels/>", "not a label file of MULAN"),
        ('<!DOCTYPE labels [<!ENTITY a "b">]><labels/>', "definitions of its own"),
        ('<labels><label name="sun"/></labels>', "no attribute 'sun'"),
    ):
        with pytest.raises(ValueError, match=message):
            load_arff(path, write("other.xml", xml))
