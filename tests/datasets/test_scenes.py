"""Drawn scenes are deterministic, their labels are frequent enough, and each shows in its own way."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from kernelweave.datasets import make_scenes, read_pictures, write_scenes


@pytest.fixture(scope="module")
def scenes():
    return make_scenes(400, random_state=0)


def ranking_quality(scenes, describe, label):
    """Area under the curve of a linear model on this feature, cross-validated."""
    X = np.array([describe(picture) for picture in scenes.pictures], dtype=float)
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.3, max_iter=500))
    target = scenes.Y[:, scenes.label_names.index(label)]
    return cross_val_score(model, X, target, cv=3, scoring="roc_auc").mean()


def vivid_hues(picture):
    hue, saturation, _ = cv2.split(cv2.cvtColor(picture, cv2.COLOR_RGB2HSV))
    return np.sqrt(np.histogram(hue[saturation > 140], bins=18, range=(0, 180))[0])


def brightness_down_the_picture(picture):
    return picture.mean(axis=(1, 2))[np.linspace(0, len(picture) - 1, 8).astype(int)]


def contrast_at_scales(picture):
    grey = np.log1p(cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY).astype(np.float32))
    bands = [np.abs(cv2.GaussianBlur(grey, (0, 0), s) - cv2.GaussianBlur(grey, (0, 0), 2 * s)) for s in (0.7, 1.5, 3)]
    return [statistic for band in bands for statistic in (band.mean(), np.percentile(band, 90))]


def test_pictures_are_small_colour_pictures(scenes):
    assert len(scenes) == len(scenes.pictures) == len(scenes.Y) == 400
    for picture in scenes.pictures:
        assert picture.dtype == np.uint8 and picture.ndim == 3 and picture.shape[2] == 3
        assert min(picture.shape[:2]) == 96 and max(picture.shape[:2]) <= 120
        assert picture.std() > 5


def test_labels_are_neither_rare_nor_everywhere(scenes):
    assert set(np.unique(scenes.Y)) == {0, 1}
    assert (scenes.Y.mean(axis=0) > 0.15).all() and (scenes.Y.mean(axis=0) < 0.5).all()
    assert 2 < scenes.Y.sum(axis=1).mean() < 4
    assert np.abs(np.corrcoef(scenes.Y.T) - np.eye(scenes.Y.shape[1])).max() < 0.3


def test_same_seed_same_scenes_and_few_are_the_first_of_many(scenes):
    few, again = make_scenes(5, random_state=0), make_scenes(5, random_state=np.random.RandomState(0))
    other = make_scenes(5, random_state=1)
    for k in range(5):
        np.testing.assert_array_equal(few.pictures[k], scenes.pictures[k])
        np.testing.assert_array_equal(few.pictures[k], again.pictures[k])
    np.testing.assert_array_equal(few.Y, scenes.Y[:5])
    assert any(not np.array_equal(one, two) for one, two in zip(few.pictures, other.pictures, strict=True))


@pytest.mark.parametrize(
    ("describe", "sees", "misses"),
    [
        (vivid_hues, ["red", "blue"], ["striped", "triangle", "horizon"]),
        (brightness_down_the_picture, ["night"], ["star", "striped", "circle"]),
        (contrast_at_scales, ["striped", "dotted"], ["triangle", "star"]),
    ],
    ids=["colour", "layout", "texture"],
)
def test_every_cue_shows_some_labels_and_not_others(scenes, describe, sees, misses):
    assert min(ranking_quality(scenes, describe, label) for label in sees) > 0.72
    assert max(ranking_quality(scenes, describe, label) for label in misses) < 0.68


def test_other_sizes(scenes):
    small = make_scenes(3, size=32, random_state=0)
    assert [min(picture.shape[:2]) for picture in small.pictures] == [32] * 3
    with pytest.raises(ValueError, match="size at least 32, got 1 and 20"):
        make_scenes(1, size=20)


def test_written_scenes_read_back(tmp_path):
    scenes = write_scenes(tmp_path / "new" / "folder", n_scenes=12, random_state=3)
    pictures = read_pictures(tmp_path / "new" / "folder", strict=True)
    assert [path.name for path in pictures.paths[:2]] == ["scene-0001.png", "scene-0002.png"]
    assert pictures.label_names == scenes.label_names
    np.testing.assert_array_equal(pictures.Y, scenes.Y)
    for path, picture in zip(pictures.paths, scenes.pictures, strict=True):
        np.testing.assert_array_equal(cv2.imread(str(path))[..., ::-1], picture)


def test_hidden_labels_only_take_away(tmp_path):
    scenes = write_scenes(tmp_path, n_scenes=40, random_state=0, hidden=0.3)
    shown = read_pictures(tmp_path).Y
    assert ((shown == 0) | (scenes.Y == 1)).all()
    assert scenes.Y.sum() - shown.sum() == round(0.3 * scenes.Y.sum())
    np.testing.assert_array_equal(scenes.Y, make_scenes(40, random_state=0).Y)
    with pytest.raises(ValueError, match="hidden is a share"):
        write_scenes(tmp_path, n_scenes=1, hidden=30)
