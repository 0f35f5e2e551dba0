"""The transformer: what is learned and from what, how it behaves in scikit-learn, its kernel bank and its state."""

import json
import pickle
import sys
import threading
import types
from dataclasses import dataclass

import cv2
import numpy as np
import pytest
from counted_features import CALLS, FEATURES, MeanColour, Size, Words, described, expected, pixels, same, write_pictures
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline

from kernelweave import MKLClassifier
from kernelweave.images import runs
from kernelweave.images.extraction import ImageFeatures
from kernelweave.images.joint import ProductOf
from kernelweave.images.pictures import UnreadablePicture
from kernelweave.views import Views


@pytest.fixture(autouse=True)
def fresh_counts():
    CALLS.clear()


@pytest.fixture
def folder(tmp_path):
    """Twelve pictures; their paths with `sorted(folder.iterdir())`."""
    return write_pictures(tmp_path / "pictures")


# -- the transformer -----------------------------------------------------------------------------------------------


def test_fit_and_transform(folder):
    paths = sorted(folder.iterdir())
    images = ImageFeatures([Size(), Words()], n_jobs=2)
    views = images.fit_transform(paths)
    assert isinstance(views, Views)
    assert views.names == images.view_names_ == ("size", "words")
    assert set(images.learned_) == {1}
    assert images.learned_[1]["words"].shape == (4, 3)
    assert images.learned_[1]["n"] == 12 * 5
    assert_array_equal(views["words"], expected(Words(), paths, images.learned_[1])["words"])
    same(images.transform(paths), views)
    same(images.transform(paths[3:5]), views[3:5])
    again = ImageFeatures([Size(), Words()]).fit(paths, y=np.zeros(12))
    same(again.transform(paths), views)
    found = ImageFeatures([Size(), Words()]).fit_extract(paths)
    same(found.views, views)
    same(pickle.loads(pickle.dumps(images)).transform(paths), views)


def test_learning_depends_on_the_seed_but_not_on_the_company(folder):
    paths = sorted(folder.iterdir())

    def words(features, **settings):
        images = ImageFeatures(features, **settings).fit(paths)
        (position,) = (k for k, feature in enumerate(features) if feature == Words())
        return images.learned_[position]["words"]

    assert_array_equal(words([Words()]), words([Size(), MeanColour(), Words()], n_jobs=2))
    assert_array_equal(words([Words()], random_state=3), words([Words()], random_state=np.int64(3)))
    assert not np.array_equal(words([Words()]), words([Words()], random_state=1))
    generators = [np.random.RandomState(5), np.random.RandomState(5)]
    assert_array_equal(*(words([Words()], random_state=generator) for generator in generators))
    assert words([Words()], random_state=None).shape == (4, 3)


def test_at_most_some_pictures_are_learned_from(folder, monkeypatch):
    monkeypatch.setattr(runs, "LEARN_FROM", 5)
    images = ImageFeatures([Words()]).fit(sorted(folder.iterdir()))
    assert CALLS["sample"] == 5
    assert images.learned_[0]["n"] == 25


def test_nothing_is_read_where_nothing_is_learned(tmp_path):
    images = ImageFeatures(FEATURES).fit([tmp_path / "not there.jpg"])
    assert images.learned_ == {}
    assert images.view_names_ == ("colour.mean", "colour.spread", "size")


def test_second_run_learns_nothing(folder, tmp_path):
    paths = sorted(folder.iterdir())
    first = ImageFeatures([Words(), Size()], cache=tmp_path / "c").fit_transform(paths)
    assert (CALLS["sample"], CALLS["learn"], described()) == (12, 1, 24)
    CALLS.clear()
    images = ImageFeatures([Words(), Size()], cache=tmp_path / "c", n_jobs=2)
    same(images.fit_transform(paths), first)
    same(images.transform(paths), first)
    assert CALLS == {}
    same(
        ImageFeatures([MeanColour(), Words(), Size()], cache=tmp_path / "c").fit_transform(paths)[:],
        Views({**expected(MeanColour(), paths), "words": first["words"], "size": first["size"]}),
    )
    assert (CALLS["sample"], CALLS["learn"]) == (0, 0)


@pytest.mark.parametrize("change", ["seed", "setting", "pictures", "content", "max_side"])
def test_learning_again_when_something_changed(folder, tmp_path, change):
    paths = sorted(folder.iterdir())
    ImageFeatures([Words()], cache=tmp_path / "c").fit(paths)
    CALLS.clear()
    settings = {"random_state": 1} if change == "seed" else {"max_side": 10} if change == "max_side" else {}
    if change == "pictures":
        paths = paths[1:]
    if change == "content":
        cv2.imwrite(str(paths[4]), pixels(77))
    features = [Words(3 if change == "setting" else 4)]
    fitted = ImageFeatures(features, cache=tmp_path / "c", **settings).fit(paths)
    assert CALLS["learn"] == 1
    fresh = ImageFeatures(features, **settings).fit(paths)
    assert_array_equal(fitted.learned_[0]["words"], fresh.learned_[0]["words"])


def test_unreadable_pictures_while_learning(folder):
    paths = sorted(folder.iterdir())
    paths[2].write_bytes(b"")
    images = ImageFeatures([Words()])
    found = images.fit_extract(paths)
    assert images.learned_[0]["n"] == 55
    assert_array_equal(found.rows, [0, 1, *range(3, 12)])
    assert [name for name, _ in found.problems] == [str(paths[2])]
    with pytest.raises(UnreadablePicture, match=r"02.png: the file is empty"):
        images.fit_transform(paths)
    with pytest.raises(UnreadablePicture, match=r"02.png: the file is empty"):
        images.transform(paths)
    with pytest.raises(UnreadablePicture, match="2 pictures cannot be read"):
        images.fit([paths[2], folder / "gone.jpg"])


def test_learning_that_fails_names_the_feature(folder):
    @dataclass(frozen=True)
    class Forgetful(Words):
        def learn(self, samples, rng):
            raise RuntimeError("what was it?")

    with pytest.raises(RuntimeError, match=r"Forgetful\(.*\) failed on what it drew .*: RuntimeError: what was it\?"):
        ImageFeatures([Forgetful()]).fit(sorted(folder.iterdir()))


def test_all_unreadable_pictures_are_named(folder):
    images = ImageFeatures([Size()]).fit([folder / "00.png"])
    with pytest.raises(UnreadablePicture, match=r"13 pictures cannot be read.*; and 3 more") as caught:
        images.transform([folder / "00.png", *(folder / f"gone {k}.jpg" for k in range(13))])
    assert [name for name, _ in caught.value.problems] == [str(folder / f"gone {k}.jpg") for k in range(13)]


def test_a_good_citizen_of_scikit_learn(folder, tmp_path):
    images = ImageFeatures([Size(), Words()], cache=tmp_path, max_side=64, n_jobs=2, verbose=1, random_state=3)
    copied = clone(images)
    assert copied.get_params() == images.get_params()
    assert copied.set_params(max_side=None).max_side is None
    with pytest.raises(NotFittedError):
        copied.transform([folder / "00.png"])
    paths = sorted(folder.iterdir())
    y = np.arange(12) % 2
    pipeline = Pipeline([("images", images), ("mkl", MKLClassifier(kernels=images.kernel_bank()))]).fit(paths, y)
    assert set(pipeline.predict(paths[:3])) <= {0, 1}


def test_settings_that_cannot_be(folder):
    path = [folder / "00.png"]
    for settings, error, words in (
        ({"max_side": 0}, ValueError, "max_side is a number of pixels"),
        ({"features": []}, ValueError, "at least one feature is needed"),
        ({"features": [ProductOf((Size(),), "p")]}, ValueError, "at least one feature is needed"),
        ({"features": Size()}, TypeError, "a preset or a list of features, got Size"),
        ({"features": [Size(), "gist"]}, TypeError, "a list of features, got 'gist' in it"),
        ({"features": [Size(), Size()]}, ValueError, "'size' is made by both"),
        ({"features": [Size()], "random_state": -1}, ValueError, "random_state|[Ss]eed"),
        ({"features": [Size()], "random_state": "x"}, ValueError, "cannot be used to seed"),
    ):
        with pytest.raises(error, match=words):
            ImageFeatures(**({"features": FEATURES} | settings)).fit(path)


def test_presets_are_looked_up_by_name(folder, monkeypatch):
    known = types.ModuleType("presets")
    known.preset = {"tiny": [Size()]}.__getitem__
    monkeypatch.setitem(sys.modules, "kernelweave.images.presets", known)
    assert ImageFeatures("tiny").fit_transform([folder / "00.png"]).names == ("size",)


# -- kernels -------------------------------------------------------------------------------------------------------

BOTH = ProductOf((Size(), MeanColour()), "both", most=2)


def test_kernel_bank(folder):
    images = ImageFeatures([MeanColour(), BOTH, Size()])
    bank = images.kernel_bank().build(images.fit_transform(sorted(folder.iterdir())))
    assert bank.names == ("colour.mean:ChiSquared", "colour.spread:ChiSquared", "both", "size:Gaussian")
    np.testing.assert_allclose(bank.gram(2), bank.gram(3) * bank.gram(0), rtol=1e-6)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([ProductOf((MeanColour(2.0, "other"),), "p")], "'p' is over views that no feature in the list makes: other"),
        ([BOTH, BOTH], "the kernel 'both' of ProductOf.* has the name of another"),
        ([ProductOf((Size(),), "size")], "the kernel 'size' of ProductOf.* has the name of another"),
    ],
)
def test_kernels_that_do_not_fit(lines, words):
    with pytest.raises(ValueError, match=words):
        ImageFeatures([*FEATURES, *lines]).kernel_bank()


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: ProductOf((), "p"), ValueError, "needs features and a name"),
        (lambda: ProductOf((Size(),), ""), ValueError, "needs features and a name"),
        (lambda: ProductOf([Size()], "p"), TypeError, "is a tuple of features"),
        (lambda: ProductOf((Size(),), "p", most=0), ValueError, "most of ProductOf is a whole number"),
    ],
)
def test_products_that_cannot_be(make, error, words):
    with pytest.raises(error, match=words):
        make()


# -- states --------------------------------------------------------------------------------------------------------

KINDS = (MeanColour, Size, Words, ProductOf)


def test_state_and_back(folder):
    paths = sorted(folder.iterdir())
    both = ProductOf((Size(), Words()), "both")
    images = ImageFeatures([MeanColour(0.5), both, Words(), Size()], max_side=18).fit(paths)
    state, arrays = images.to_state()
    assert set(arrays) == {"1/words", "1/n"}
    again = ImageFeatures.from_state(json.loads(json.dumps(state)), arrays, KINDS)
    same(again.transform(paths), images.transform(paths))
    assert again.features == [MeanColour(0.5), both, Words(), Size()]
    assert again.kernel_bank().kernels == images.kernel_bank().kernels
    assert again.view_names_ == images.view_names_
    assert again.max_side == 18
    with pytest.raises(NotFittedError):
        ImageFeatures([Size()]).to_state()


def test_states_that_cannot_be(folder):
    images = ImageFeatures([Words(), Size(), BOTH, MeanColour()], max_side=18).fit(sorted(folder.iterdir()))
    state, arrays = images.to_state()
    for change, words in (
        ({"features": [{"is": "Popen", "args": ["ls"]}]}, "unknown kind 'Popen'"),
        ({"features": [{"is": "Size", "colour": 3}]}, "Size cannot be made of"),
        ({"features": ["Size"]}, "a list of features, got 'Size' in it"),
        ({"max_side": "large"}, "max_side is a number of pixels"),
    ):
        with pytest.raises((ValueError, TypeError), match=words):
            ImageFeatures.from_state(state | change, arrays, KINDS)
    with pytest.raises(ValueError, match=r"lacks \['max_side'\]"):
        ImageFeatures.from_state({"features": []}, arrays, KINDS)
    for wrong in ({"7/words": np.ones(3)}, {"1/words": np.ones(3)}, {"words": np.ones(3)}, {"0/": np.ones(3)}):
        with pytest.raises(ValueError, match="belongs to no feature that learns"):
            ImageFeatures.from_state(state, arrays | wrong, KINDS)
    with pytest.raises(ValueError, match=r"what Words\(n_words=4\) learned is missing"):
        ImageFeatures.from_state(state, {}, KINDS)


def test_several_extractions_at_once_share_a_cache(folder, tmp_path):
    def work(results, number):
        results[number] = ImageFeatures([Size(), Words()], cache=tmp_path / "c").fit_transform(sorted(folder.iterdir()))

    results = {}
    threads = [threading.Thread(target=work, args=(results, number)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(results) == {0, 1, 2}
    same(results[0], results[1])
    same(results[0], results[2])
