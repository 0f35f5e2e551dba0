"""The container of model files: what goes in comes out, and nothing else is ever read."""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import zipfile

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from kernelweave import _archive
from kernelweave._archive import VERSION, read_archive, write_archive

CONTENT = {"text": "größe \ud800", "numbers": [0.1, -3, 1e-300, True, None], "inside": {"": []}}
ARRAYS = {
    "weights": np.linspace(0, 1, 7),
    "rows/0": np.arange(12, dtype=np.float32).reshape(3, 4),
    "rows/1": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "names": np.array(["sky", "größe"]),
    "record": np.array([(1, 0.5)], dtype=[("iteration", np.int64), ("gap", float)]),
    "thumbnail": np.zeros((2, 2, 3), dtype=np.uint8),
    "nothing": np.empty((0, 3)),
}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "model.kw"
    write_archive(path, "example", CONTENT, ARRAYS)
    return path


def assert_same_arrays(given, expected):
    assert list(given) == list(expected)
    for name, array in expected.items():
        assert given[name].dtype == array.dtype
        assert given[name].shape == array.shape
        assert given[name].tobytes() == array.tobytes()


def rewrite(path, head=None, members=None, keep_checksum=False, compression=zipfile.ZIP_STORED):
    """Write the file again with a changed description or changed members (None: without them), checksums and all."""
    with zipfile.ZipFile(path) as old:
        kept = {name: old.read(name) for name in old.namelist()}
        comment = old.comment
    described = json.loads(kept.pop("model.json")) | (head or {})
    for name, data in (members or {}).items():
        if data is None:
            del kept[name]
        else:
            kept[name] = data
            described["members"][name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    text = json.dumps(described).encode()
    with zipfile.ZipFile(path, "w", compression) as new:
        new.writestr("model.json", text)
        for name, data in kept.items():
            new.writestr(name, data)
        new.comment = comment if keep_checksum else hashlib.sha256(text).hexdigest().encode()


# --- what goes in comes out -------------------------------------------------------------------------------------------


def test_what_goes_in_comes_out(path):
    archive = read_archive(path)
    assert (archive.kind, archive.content) == ("example", CONTENT)
    assert archive.written_by == _archive.__version__
    assert_same_arrays(archive.arrays, ARRAYS)
    assert archive.arrays["rows/1"].flags.f_contiguous and not archive.arrays["rows/1"].flags.c_contiguous


@given(
    array=hnp.arrays(
        st.one_of(hnp.scalar_dtypes(), hnp.unicode_string_dtypes(max_len=3)), hnp.array_shapes(min_dims=0, min_side=0)
    ),
    content=st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()),
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)),
        max_leaves=6,
    ),
)
@settings(max_examples=60)
def test_any_plain_data_and_array_comes_out(array, content, tmp_path_factory):
    path = tmp_path_factory.mktemp("any") / "a.kw"
    write_archive(path, "any", {"value": content}, {"a": array})
    archive = read_archive(path)
    assert archive.content == {"value": content}
    assert_same_arrays(archive.arrays, {"a": array})


def test_the_description_comes_first_and_the_same_things_give_the_same_bytes(path, tmp_path):
    write_archive(tmp_path / "again.kw", "example", CONTENT, ARRAYS)
    assert (tmp_path / "again.kw").read_bytes() == path.read_bytes()
    assert zipfile.ZipFile(path).namelist()[0] == "model.json"
    assert zipfile.ZipFile(path).testzip() is None


def test_arrays_are_not_larger_in_the_file_than_in_memory(tmp_path):
    array = np.zeros((1000, 100))
    write_archive(tmp_path / "a.kw", "example", {}, {"a": array})
    assert (tmp_path / "a.kw").stat().st_size < array.nbytes + 2000


def test_numpy_opens_the_arrays(path):
    with np.load(path, allow_pickle=False) as opened:
        np.testing.assert_array_equal(opened["weights"], ARRAYS["weights"])


# --- what cannot go in ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "arrays", "error", "message"),
    [
        ({"a": {1: 2}}, {}, TypeError, r"content\['a'\] has the key 1"),
        ({"a": [0, np.nan]}, {}, ValueError, r"content\['a'\]\[1\] is nan"),
        ({"a": np.ones(2)}, {}, TypeError, "of type ndarray"),
        ({"a": {1, 2}}, {}, TypeError, "of type set"),
        ({}, {"a": np.array([{}, None])}, TypeError, "array 'a' is of object"),
        ({}, {"a": np.zeros(1, dtype=[("x", object)])}, TypeError, "only pickle can write"),
        ({}, {"a": [1, 2]}, TypeError, "plain numpy array, got list"),
        ({}, {"a": np.ma.masked_array([1, 2], [0, 1])}, TypeError, "plain numpy array, got MaskedArray"),
        ({}, {"../a": np.ones(2), "a b": np.ones(1)}, ValueError, "got 'a b'"),
        ({}, {"": np.ones(2)}, ValueError, "got ''"),
        ({}, {"/a": np.ones(2)}, ValueError, "got '/a'"),
    ],
)
def test_what_cannot_be_written_is_refused_before_a_file_is_made(content, arrays, error, message, tmp_path):
    with pytest.raises(error, match=message):
        write_archive(tmp_path / "a.kw", "example", content, arrays)
    assert list(tmp_path.iterdir()) == []


def test_a_failure_half_way_leaves_the_old_file(path, monkeypatch):
    before = path.read_bytes()
    write, calls = _archive._write_array, []

    def break_while_writing(file, array):
        calls.append(array)  # every array is measured first, and then written
        if len(calls) == len(ARRAYS) + 3:
            raise OSError("no space left on device")
        write(file, array)

    monkeypatch.setattr(_archive, "_write_array", break_while_writing)
    with pytest.raises(OSError, match="no space left"):
        write_archive(path, "other", {}, ARRAYS)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


# --- damage -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("written") / "model.kw"
    write_archive(path, "example", CONTENT, ARRAYS)
    return path.read_bytes()


def assert_refused_or_the_same(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("damaged") / "model.kw"
    path.write_bytes(data)
    try:
        archive = read_archive(path)
    except ValueError as error:
        assert str(error).startswith(str(path))
        return
    assert (archive.kind, archive.content) == ("example", CONTENT)
    assert_same_arrays(archive.arrays, ARRAYS)


@given(data=st.data())
@settings(max_examples=300)
def test_flipped_bytes_are_noticed_or_do_not_matter(data, written, tmp_path_factory):
    damaged = bytearray(written)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(written) - 1))] ^= data.draw(st.integers(1, 255))
    assert_refused_or_the_same(bytes(damaged), tmp_path_factory)


def test_every_byte_of_the_directory_of_the_zip_file(written, tmp_path_factory):
    start = written.index(b"PK\x01\x02")
    for position in range(start, len(written)):
        for change in (0x01, 0x80, 0xFF):
            damaged = bytearray(written)
            damaged[position] ^= change
            assert_refused_or_the_same(bytes(damaged), tmp_path_factory)


@given(length=st.integers(0, 10_000))
@example(length=0)
def test_a_file_that_was_cut_off_is_refused(length, written, tmp_path_factory):
    path = tmp_path_factory.mktemp("cut") / "model.kw"
    path.write_bytes(written[: min(length, len(written) - 1)])
    with pytest.raises(ValueError, match=r"model.kw is "):
        read_archive(path)


@given(position=st.integers(0, 10_000), inserted=st.binary(min_size=1, max_size=40))
def test_inserted_bytes_are_noticed_or_do_not_matter(position, inserted, written, tmp_path_factory):
    position = min(position, len(written))
    assert_refused_or_the_same(written[:position] + inserted + written[position:], tmp_path_factory)


@given(data=st.binary(max_size=300))
@example(data=b"PK\x05\x06" + bytes(18))
def test_other_files_are_refused(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("other") / "model.kw"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"model.kw is "):
        read_archive(path)


def test_a_flipped_byte_of_an_array_is_named(path):
    data = bytearray(path.read_bytes())
    data[data.index(ARRAYS["weights"].tobytes()) + 9] ^= 4
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"model.kw is damaged: weights.npy"):
        read_archive(path)


def test_a_changed_array_is_noticed_though_the_zip_file_is_whole(path):
    with zipfile.ZipFile(path) as old:
        kept = {name: old.read(name) for name in old.namelist()}
        comment = old.comment
    kept["weights.npy"] = kept["weights.npy"][:-1] + b"x"
    with zipfile.ZipFile(path, "w") as new:
        for name, data in kept.items():
            new.writestr(name, data)
        new.comment = comment
    with pytest.raises(ValueError, match=r"weights.npy is not what was written \(its SHA-256 differs\)"):
        read_archive(path)


def test_a_changed_description_is_noticed_though_the_zip_file_is_whole(path):
    rewrite(path, head={"content": {"text": "other"}}, keep_checksum=True)
    with pytest.raises(ValueError, match=r"model.json is not what was written"):
        read_archive(path)


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ({"format": "other"}, "is no kernelweave-model file"),
        ({"version": "1"}, "gives the format as '1'"),
        ({"version": True}, "gives the format as True"),
        ({"version": 0}, "gives the format as 0"),
        ({"written_by": 3}, "written by 3"),
        ({"kind": None}, "has no kind"),
        ({"content": [], "members": 3}, "has no content and no members"),
        ({"members": {}}, "not part of it"),
        ({"members": {"weights.npy": None, "more.npy": None}}, r"\['more.npy'\] missing"),
    ],
)
def test_a_wrong_description_is_refused(path, head, message):
    rewrite(path, head=head)
    with pytest.raises(ValueError, match=message):
        read_archive(path)


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"\xff\xfe", b'{"format": NaN}', b"[" * 100_000, b"3"])
def test_a_description_that_is_no_json_is_refused(text, tmp_path):
    with zipfile.ZipFile(tmp_path / "a.kw", "w") as archive:
        archive.writestr("model.json", text)
    with pytest.raises(ValueError, match=r"a.kw is (damaged|no kernelweave-model file)"):
        read_archive(tmp_path / "a.kw")


def test_a_missing_member_is_named(path):
    rewrite(path, members={"rows/0.npy": None})
    with pytest.raises(ValueError, match=r"model.kw is damaged: \['rows/0.npy'\] missing"):
        read_archive(path)


def test_a_zip_file_of_something_else_is_refused(tmp_path):
    np.savez(tmp_path / "a.npz", a=np.ones(3))
    with pytest.raises(ValueError, match=r"a.npz is a zip file, but no kernelweave-model file"):
        read_archive(tmp_path / "a.npz")


def test_a_newer_file_says_what_to_do(path):
    rewrite(path, head={"version": VERSION + 2, "written_by": "9.1", "content": "unknown yet"})
    with pytest.raises(ValueError, match=rf"by kernelweave 9.1 with format {VERSION + 2}, .* up to {VERSION}: "):
        read_archive(path)


def test_two_members_of_one_name_are_refused(path):
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(path, "a") as archive:
        archive.writestr("weights.npy", b"")
    with pytest.raises(ValueError, match="two of its members have the same name"):
        read_archive(path)


def test_a_file_that_is_not_there_is_the_usual_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_archive(tmp_path / "none.kw")
    with pytest.raises(OSError):
        read_archive(tmp_path)


# --- hostile files ----------------------------------------------------------------------------------------------------


class RunsWhenOpened:
    ran = False

    def __reduce__(self):
        return (setattr, (RunsWhenOpened, "ran", True))


@pytest.mark.parametrize("kind", ["object array", "pickle"])
def test_pickles_are_refused_and_not_run(path, kind):
    buffer = io.BytesIO()
    if kind == "pickle":
        pickle.dump(RunsWhenOpened(), buffer)
    else:
        np.save(buffer, np.array([RunsWhenOpened()], dtype=object), allow_pickle=True)
    rewrite(path, members={"weights.npy": buffer.getvalue()})
    with pytest.raises(ValueError, match=r"model.kw is damaged: weights.npy holds no plain array"):
        read_archive(path)
    assert not RunsWhenOpened.ran


def test_a_header_that_claims_more_than_there_is(path):
    buffer = io.BytesIO()
    np.save(buffer, np.ones(3))
    data = buffer.getvalue().replace(b"(3,), }           ", b"(99999999999999,)}")
    assert b"99999999999999" in data
    rewrite(path, members={"weights.npy": data})
    with pytest.raises(ValueError, match=r"weights.npy holds no plain array"):
        read_archive(path)


def test_a_bomb_is_refused_before_it_is_read(path, monkeypatch):
    rewrite(path, members={"weights.npy": bytes(20_000_000)}, compression=zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 100_000
    monkeypatch.setattr(_archive, "_bytes_of", lambda *arguments: pytest.fail("read"))
    with pytest.raises(ValueError, match=r"says it holds 20,0\d\d,\d\d\d bytes, more than the limit of 1,000,000"):
        read_archive(path, max_bytes=1_000_000)


def test_a_bomb_that_understates_its_size_yields_no_more_than_it_states(path):
    rewrite(path, members={"weights.npy": bytes(20_000_000)}, compression=zipfile.ZIP_DEFLATED)
    stated = (20_000_000).to_bytes(4, "little")
    assert path.read_bytes().count(stated) == 2
    path.write_bytes(path.read_bytes().replace(stated, (1000).to_bytes(4, "little")))
    with pytest.raises(ValueError, match=r"weights.npy"):
        read_archive(path, max_bytes=1_000_000)


def test_unknown_compression_and_encryption_are_refused(path):
    rewrite(path, members={"weights.npy": b"x"}, compression=zipfile.ZIP_BZIP2)
    with pytest.raises(ValueError, match=r"model.json is compressed in an unknown way"):
        read_archive(path)
    rewrite(path)
    data = bytearray(path.read_bytes())
    data[data.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"model.json cannot be read"):
        read_archive(path)
