"""From pictures with labels to tags of others: the whole way in Python."""

from __future__ import annotations

import shutil

import cv2
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import f1_score

import kernelweave as kw
from kernelweave._archive import write_archive
from kernelweave.app import choosing
from kernelweave.app.labelled import read_labelled
from kernelweave.app.report import render_report
from kernelweave.app.reporting import report_content, report_on, thumbnail
from kernelweave.app.tagger import PictureTagger
from kernelweave.datasets.picture_sets import PictureSet, read_pictures
from kernelweave.datasets.scenes import make_scenes, write_scenes
from kernelweave.evaluation import evaluate
from kernelweave.images.bag import BagOfWords
from kernelweave.images.histograms import ColourHistogram, LBPHistogram
from kernelweave.images.joint import ProductOf
from kernelweave.images.pictures import UnreadablePicture
from kernelweave.images.places import DenseGrid
from kernelweave.images.sift import SIFT
from kernelweave.images.words import KMeans
from kernelweave.weights import LpBall

COLOURS = {"blue": (40, 60, 200), "green": (50, 190, 60), "red": (210, 40, 40)}
FEATURES = [ColourHistogram("hsv", bins=4), LBPHistogram()]


def coloured(colour, n, seed=0):
    """Noisy pictures of one colour, (16, 16, 3) each."""
    rng = np.random.default_rng([seed, *COLOURS[colour]])
    return [np.clip(rng.normal(COLOURS[colour], 30, (16, 16, 3)), 0, 255).astype(np.uint8) for _ in range(n)]


def some_of_each(n=6, seed=0):
    pictures = [picture for colour in COLOURS for picture in coloured(colour, n, seed)]
    return pictures, np.repeat(list(COLOURS), n)


def quick_tagger(**settings):
    return PictureTagger(**({"features": FEATURES, "C": 1.0} | settings))


@pytest.fixture(scope="module")
def by_class():
    return quick_tagger(C="auto").fit(*some_of_each())


@pytest.fixture(scope="module")
def scenes():
    return make_scenes(n_scenes=60, size=32, random_state=0)


@pytest.fixture(scope="module")
def by_labels(scenes):
    Y = pd.DataFrame(scenes.Y, columns=list(scenes.label_names))
    return quick_tagger(C="auto").fit(scenes.pictures, Y)


@pytest.fixture
def folder(tmp_path):
    """Pictures in one folder a class, as files."""
    for colour in COLOURS:
        (tmp_path / "pictures" / colour).mkdir(parents=True)
        for number, picture in enumerate(coloured(colour, 5)):
            cv2.imwrite(str(tmp_path / "pictures" / colour / f"{number}.png"), picture[:, :, ::-1])
    return tmp_path / "pictures"


# --- learning --------------------------------------------------------------------------------------------------------


def test_classes_are_learned_by_a_classifier(by_class):
    assert isinstance(by_class.model_, kw.MKLClassifier)
    assert by_class.single_ and by_class.label_names_ == ("blue", "green", "red")
    assert by_class.measures_["accuracy"] == 1.0
    new, colours = some_of_each(3, seed=1)
    best = by_class.tag(new, top=1)
    assert [tags[0].label for tags in best] == colours.tolist()
    assert all(tags[0].given for tags in best)


def test_labels_are_learned_by_the_better_method(by_labels, scenes):
    kinds = {"ranker": kw.LabelRanker, "classifier": kw.MKLClassifier}
    assert {tried.method for tried in by_labels.choice_} == set(kinds)
    assert type(by_labels.model_) is kinds[by_labels.setting_.method]
    assert by_labels.label_names_ == scenes.label_names
    new = make_scenes(n_scenes=40, size=32, random_state=1)
    found = by_labels.evaluate(new.pictures, pd.DataFrame(new.Y, columns=list(new.label_names)))
    assert found["image_auc"] > 0.6  # guessing gives one half


def test_scores_are_those_of_the_model_on_the_features(by_labels, scenes):
    tagged = by_labels.scores(scenes.pictures[:7])
    expected = by_labels.model_.decision_function(by_labels.features_.transform(scenes.pictures[:7]))
    assert tagged.rows.tolist() == list(range(7)) and tagged.problems == []
    np.testing.assert_array_equal(tagged.scores, expected)


def test_many_pictures_are_scored_in_parts(by_labels, scenes, monkeypatch):
    whole = by_labels.scores(scenes.pictures[:7]).scores
    monkeypatch.setattr("kernelweave.app.tagger.PICTURES_AT_ONCE", 3)
    parts = by_labels.scores([*scenes.pictures[:3], "lost.png", *scenes.pictures[3:7]])
    assert parts.rows.tolist() == [0, 1, 2, 4, 5, 6, 7]
    assert parts.problems == [("lost.png", "there is no such file")]
    np.testing.assert_allclose(parts.scores, whole, atol=1e-6)


def test_the_choice_and_its_measures(by_labels, scenes):
    costs = {"ranker": [cost / 9 for cost in (2, 6, 20)], "classifier": [1, 10, 100]}
    assert [(tried.method, tried.weights, tried.C) for tried in by_labels.choice_] == [
        (method, weights, pytest.approx(cost))
        for method in costs
        for weights in ("average", "l1", "l2")
        for cost in costs[method]
    ]
    assert by_labels.setting_.score == max(tried.score for tried in by_labels.choice_)
    assert by_labels.model_.C == by_labels.setting_.C and by_labels.model_.weights == by_labels.setting_.weights
    assert by_labels.held_out_.shape == scenes.Y.shape
    expected = {name: of.value for name, of in evaluate(scenes.Y, by_labels.held_out_).items()}
    assert by_labels.measures_ == pytest.approx(expected)
    assert next(iter(by_labels.measures_)) == "category_ap"


def test_held_out_scores_are_not_those_of_the_model(by_labels, scenes):
    """The model knows what it has learned from, and ranks it better."""
    own = by_labels.scores(scenes.pictures).scores
    assert kw.evaluation.auc(scenes.Y, own) > kw.evaluation.auc(scenes.Y, by_labels.held_out_)


def test_the_method_can_be_chosen(scenes):
    one = quick_tagger(method="classifier", weights="average").fit(scenes.pictures[:20], scenes.Y[:20])
    assert isinstance(one.model_, kw.MKLClassifier)
    other = quick_tagger(method="ranker", weights=LpBall(2.0)).fit(*some_of_each(4))
    assert isinstance(other.model_, kw.LabelRanker) and other.single_
    assert other.measures_["accuracy"] == 1.0


def test_settings_are_tried_on_some_of_many_pictures(monkeypatch):
    monkeypatch.setattr(choosing, "MOST_PICTURES", 12)
    tagger = quick_tagger().fit(*some_of_each(8))
    assert any("chosen on 12 of the 24 pictures" in note for note in tagger.notes_)
    assert np.isfinite(tagger.held_out_).all()
    assert tagger.measures_["accuracy"] == 1.0


def test_the_same_seed_gives_the_same_tagger(by_class):
    again = clone(by_class).fit(*some_of_each())
    np.testing.assert_array_equal(again.held_out_, by_class.held_out_)
    assert again.choice_ == by_class.choice_


# --- labels in all forms ---------------------------------------------------------------------------------------------


def test_tags_and_matrices_say_the_same(scenes):
    pictures, Y = scenes.pictures[:30], scenes.Y[:30]
    names = np.array(scenes.label_names)
    from_tags = quick_tagger(weights="average").fit(pictures, [names[row == 1].tolist() for row in Y])
    from_matrix = quick_tagger(weights="average").fit(pictures, Y[:, np.argsort(names)])
    assert from_tags.label_names_ == tuple(sorted(names))
    assert from_matrix.label_names_ == tuple("012345678")
    np.testing.assert_array_equal(from_tags.held_out_, from_matrix.held_out_)


def test_what_nobody_judged_is_not_learned_from(scenes):
    pictures, Y = scenes.pictures[:30], scenes.Y[:30].astype(float)
    Y[3, 2] = np.nan
    unjudged = np.vstack([Y, np.full((2, 9), np.nan)])
    tagger = quick_tagger(weights="average").fit([*pictures, *scenes.pictures[30:32]], unjudged)
    expected = quick_tagger(weights="average").fit(pictures, Y)
    assert len(tagger.paths_) == 30 and tagger.Y_.signs[3, 2] == 0
    assert any("without any label that was judged were not used: 2" in note for note in tagger.notes_)
    np.testing.assert_array_equal(tagger.held_out_, expected.held_out_)


def test_many_labels_are_ranked_only(scenes, monkeypatch):
    monkeypatch.setattr("kernelweave.app.tagger.MOST_ON_THEIR_OWN", 8)
    tagger = quick_tagger(weights="average").fit(scenes.pictures[:30], scenes.Y[:30])
    assert {tried.method for tried in tagger.choice_} == {"ranker"}


def test_thresholds_are_those_of_the_best_f1_on_held_out_scores(by_labels, scenes):
    for label in range(9):
        truth, scores = scenes.Y[:, label], by_labels.held_out_[:, label]
        best = f1_score(truth, scores > by_labels.thresholds_[label])
        assert best == pytest.approx(max(f1_score(truth, scores >= cut) for cut in scores))


def test_one_label_is_learned_by_a_classifier():
    pictures = [*coloured("red", 6), *coloured("green", 6)]
    tagger = quick_tagger().fit(pictures, pd.DataFrame({"red": [1] * 6 + [0] * 5 + [None]}))
    assert tagger.label_names_ == ("red",) and not tagger.single_
    best = tagger.tag([*coloured("red", 1, seed=1), *coloured("green", 1, seed=1)])
    assert [[tag.given for tag in tags] for tags in best] == [[True], [False]]


def test_classes_without_pictures_are_left_out(folder):
    pictures = read_pictures(folder)
    tagger = quick_tagger().fit(pictures[pictures.classes != "green"])
    assert tagger.label_names_ == ("blue", "red")
    assert any("green" in note for note in tagger.notes_)


# --- too little, or nothing ------------------------------------------------------------------------------------------


def test_few_pictures_are_learned_without_a_choice():
    tagger = quick_tagger(C="auto").fit([*coloured("red", 2), *coloured("blue", 2)], ["red", "red", "blue", "blue"])
    assert tagger.choice_ == () and tagger.measures_ == {} and tagger.thumbnails_ == {}
    assert np.isnan(tagger.held_out_).all()
    assert "too few" in tagger.notes_[0]
    assert (tagger.setting_.weights, tagger.setting_.C) == ("average", 10.0)
    assert tagger.tag(coloured("red", 1, seed=1))[0][0].label == "red"
    render_report(report_content(tagger))


def test_a_class_of_one_picture():
    pictures = [*coloured("red", 6), *coloured("blue", 6), *coloured("green", 1)]
    tagger = quick_tagger(C=100.0).fit(pictures, ["red"] * 6 + ["blue"] * 6 + ["green"])
    assert tagger.measures_["accuracy"] == pytest.approx(12 / 13)  # nobody could know about green
    assert tagger.tag(coloured("green", 1, seed=1))[0][0].label == "green"


def test_a_rare_class_means_fewer_folds():
    pictures = [*coloured("red", 6), *coloured("blue", 2)]
    tagger = quick_tagger().fit(pictures, ["red"] * 6 + ["blue"] * 2)
    assert "2 folds were used instead of 3, because a label is rare" in tagger.notes_


@pytest.mark.parametrize(
    ("pictures", "Y", "message"),
    [
        (coloured("red", 3), ["red"] * 3, "all pictures are of the class red"),
        (coloured("red", 3), [[1, 0]] * 3, "no label divides"),
        (coloured("red", 2), [[1, 1], [0, 0]], "nothing to rank"),
        (coloured("red", 2), [[None, None]] * 2, "nothing to learn from"),
        (coloured("red", 2), None, "labels are needed"),
        (coloured("red", 2), ["red"], "2 pictures, but Y has 1 rows"),
        (PictureSet(("a.png",)), None, "have no labels"),
    ],
)
def test_labels_from_which_nothing_can_be_learned(pictures, Y, message):
    with pytest.raises(ValueError, match=message):
        quick_tagger().fit(pictures, Y)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "magic"}, "method must be"),
        ({"weights": "l0x"}, "l0x"),
        ({"C": 0.0}, "C must be"),
        ({"C": "much"}, "C must be"),
        ({"folds": 1}, "folds must be"),
        ({"features": "fast"}, "no preset is called 'fast'"),
        ({"max_side": 0}, "max_side"),
    ],
)
def test_wrong_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        quick_tagger(**settings).fit(*some_of_each(3))


def test_a_fit_that_fails_leaves_no_tagger(by_class):
    tagger = clone(by_class).fit(*some_of_each(3))
    with pytest.raises(ValueError, match="of the class red"):
        tagger.fit(coloured("red", 3), ["red"] * 3)
    with pytest.raises(NotFittedError):
        tagger.scores(coloured("red", 1))


# --- pictures that cannot be read ------------------------------------------------------------------------------------


def test_unreadable_pictures_are_left_out_and_listed(folder):
    (folder / "red" / "text.jpg").write_text("this is no picture")
    (folder / "red" / "empty.png").touch()
    whole = (folder / "blue" / "0.png").read_bytes()
    (folder / "blue" / "0.png").write_bytes(whole[: len(whole) // 2])
    tagger = quick_tagger().fit(read_pictures(folder))
    assert [path.rsplit("/", 1)[1] for path, _ in tagger.problems_] == ["0.png", "empty.png", "text.jpg"]
    assert len(tagger.paths_) == len(tagger.keys_) == len(tagger.held_out_) == 14
    with pytest.raises(UnreadablePicture, match="truncated"):
        quick_tagger().fit(read_pictures(folder), strict=True)


def test_problems_of_new_pictures(by_class, tmp_path):
    (tmp_path / "no.jpg").write_text("no picture")
    tagged = by_class.scores([tmp_path / "no.jpg", *coloured("red", 1)])
    assert tagged.rows.tolist() == [1] and tagged.scores.shape == (1, 3)
    assert tagged.problems[0][0] == str(tmp_path / "no.jpg")
    assert by_class.scores([tmp_path / "no.jpg"]).scores.shape == (0, 3)
    with pytest.raises(UnreadablePicture):
        by_class.scores([tmp_path / "no.jpg", *coloured("red", 1)], strict=True)


def test_all_pictures_unreadable(tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.jpg").touch()
    with pytest.raises(UnreadablePicture, match="2 pictures"):
        quick_tagger().fit([tmp_path / "a.jpg", tmp_path / "b.jpg"], ["x", "y"])


# --- tags ------------------------------------------------------------------------------------------------------------


def test_tags_are_sorted_and_given_by_their_thresholds(by_labels, scenes):
    scores = by_labels.scores(scenes.pictures[:5]).scores
    for row, tags in enumerate(by_labels.tag(scenes.pictures[:5], top=4)):
        assert [tag.score for tag in tags] == sorted(scores[row], reverse=True)[:4]
        columns = [by_labels.label_names_.index(tag.label) for tag in tags]
        assert [tag.given for tag in tags] == (scores[row, columns] > by_labels.thresholds_[columns]).tolist()


def test_all_labels_if_more_are_asked_for(by_class):
    assert len(by_class.tag(coloured("red", 1), top=100)[0]) == 3


@pytest.mark.parametrize("top", [0, -1, 1.5, True])
def test_a_wrong_number_of_tags(by_class, top):
    with pytest.raises(ValueError, match="top must be"):
        by_class.tag(coloured("red", 1), top=top)


def test_nothing_to_tag(by_class):
    with pytest.raises(ValueError, match="empty list"):
        by_class.tag([])
    with pytest.raises(TypeError, match="the one path"):
        by_class.tag("red.png")


# --- training pictures are recognised --------------------------------------------------------------------------------


def test_training_pictures_are_judged_by_others_wherever_they_are(folder, tmp_path):
    tagger = quick_tagger().fit(read_pictures(folder))
    moved = read_pictures(shutil.copytree(folder, tmp_path / "elsewhere"))
    tagged = tagger.unseen_scores(moved)
    assert tagged.n_known == 15
    np.testing.assert_array_equal(tagged.scores, tagger.held_out_)
    mixed = tagger.unseen_scores([*coloured("red", 1, seed=1), moved.paths[4], "lost.png"])
    assert mixed.n_known == 1 and mixed.rows.tolist() == [0, 1]
    np.testing.assert_array_equal(mixed.scores[1], tagger.held_out_[4])
    np.testing.assert_allclose(mixed.scores[0], tagger.scores(coloured("red", 1, seed=1)).scores[0])


def test_wrong_classes_are_found():
    pictures, colours = some_of_each(8)
    wrong = colours.copy()
    wrong[[2, 20]] = "green"  # a blue and a red one
    tagger = quick_tagger(C=0.1).fit(pictures, wrong)
    found = tagger.suggest(pictures, wrong)
    assert {(one.row, one.label, one.instead_of) for one in found} == {(2, "blue", "green"), (20, "red", "green")}
    assert found[0].score >= found[1].score > 0
    assert len(tagger.suggest(pictures, wrong, top=1)) == 1


def test_missing_labels_are_found():
    pictures, colours = some_of_each(12)
    tags = [[colour, "bright"] if colour != "blue" else [colour] for colour in colours]
    tags[15] = ["green"]  # which is as bright as the others
    tagger = quick_tagger().fit(pictures, tags)
    found = tagger.suggest(pictures, tags)
    assert found[0][:3] == (15, "picture 15", "bright") and found[0].instead_of == ""
    new = tagger.suggest(coloured("red", 1, seed=1), [["red"]])
    assert [one.label for one in new] == ["bright"]


def test_a_wrong_number_of_suggestions(by_class):
    with pytest.raises(ValueError, match="top must be"):
        by_class.suggest(*some_of_each(1), top=0)


# --- evaluation ------------------------------------------------------------------------------------------------------


def test_evaluation_of_the_training_pictures_is_that_of_the_held_out_scores(by_class, by_labels, scenes):
    assert by_class.evaluate(*some_of_each()) == pytest.approx(by_class.measures_)
    Y = pd.DataFrame(scenes.Y, columns=list(scenes.label_names))
    assert by_labels.evaluate(scenes.pictures, Y) == pytest.approx(by_labels.measures_)


def test_labels_are_matched_by_name(by_labels, scenes):
    """In another order, some missing, some unknown."""
    new = make_scenes(n_scenes=20, size=32, random_state=1)
    frame = pd.DataFrame(new.Y, columns=list(new.label_names))
    part = frame[["star", "night", "red"]].assign(unknown=1)
    scores = by_labels.scores(new.pictures).scores
    Y = np.full(new.Y.shape, np.nan)
    columns = [new.label_names.index(name) for name in ("star", "night", "red")]
    Y[:, columns] = new.Y[:, columns]
    found = by_labels.evaluate(new.pictures, part)
    assert found["category_ap"] == pytest.approx(evaluate(Y, scores)["category_ap"].value)


def test_pictures_of_unknown_classes_are_left_out(by_class):
    pictures = [*coloured("red", 2, seed=1), *coloured("blue", 1, seed=1)]
    given = by_class.align(read_labelled(pictures, ["red", "purple", "blue"]))
    assert len(given) == 2 and given.labels.names.tolist() == ["blue", "green", "red"]
    assert given.labels.signs.tolist() == [[-1, -1, 1], [1, -1, -1]]
    assert by_class.evaluate(pictures, ["red", "purple", "blue"])["accuracy"] == 1.0
    with pytest.raises(ValueError, match="none of the labels"):
        by_class.evaluate(pictures, ["purple", "pink", "black"])


# --- contributions ---------------------------------------------------------------------------------------------------


def test_contributions_are_shares_of_the_variance(by_labels, scenes):
    """By the definition, with whole kernels."""
    views = by_labels.features_.transform(scenes.pictures)
    bank, model = by_labels.features_.kernel_bank().build(views), by_labels.model_
    coef = np.zeros((60, 9))
    coef[model.support_] = model.dual_coef_.T
    weights = np.broadcast_to(model.weights_, (9, 2))  # those of a ranker are the same for all labels
    parts = np.array([bank.gram(j) @ (coef * weights[:, j]) for j in range(2)])
    total = parts.sum(axis=0)
    for label in range(9):
        for view in range(2):
            covariance = np.cov(parts[view, :, label], total[:, label])[0, 1]
            expected = covariance / np.var(total[:, label], ddof=1)
            assert by_labels.contributions_[label, view] == pytest.approx(expected, abs=1e-5)
    np.testing.assert_allclose(by_labels.contributions_.sum(axis=1), 1.0)
    np.testing.assert_allclose(by_labels.contributions(scenes.pictures), by_labels.contributions_)


def test_colour_contributes_to_colours(by_class):
    assert by_class.view_names_ == ("colour-hsv/1x1", "lbp/1x1")
    assert np.all(by_class.contributions_[:, 0] > 0.9)


def test_a_kernel_over_several_views_counts_as_one():
    both = ProductOf(tuple(FEATURES), name="both")
    tagger = quick_tagger(features=[*FEATURES, both], weights="average").fit(*some_of_each(4))
    assert tagger.view_names_ == ("colour-hsv/1x1", "lbp/1x1", "both")
    np.testing.assert_allclose(tagger.contributions_.sum(axis=1), 1.0)


# --- files -----------------------------------------------------------------------------------------------------------


def test_a_file_gives_back_the_tagger(by_labels, scenes, tmp_path):
    by_labels.save(tmp_path / "model.kw")
    again = PictureTagger.load(tmp_path / "model.kw")
    np.testing.assert_array_equal(again.scores(scenes.pictures).scores, by_labels.scores(scenes.pictures).scores)
    assert again.tag(scenes.pictures[:3]) == by_labels.tag(scenes.pictures[:3])
    assert again.choice_ == by_labels.choice_ and again.setting_ == by_labels.setting_
    assert again.thumbnails_ == by_labels.thumbnails_ and again.keys_ == by_labels.keys_
    for name in ("measures_", "label_names_", "paths_", "problems_", "notes_", "view_names_", "view_of_", "single_"):
        assert getattr(again, name) == getattr(by_labels, name)
    for name in ("held_out_", "contributions_"):
        np.testing.assert_array_equal(getattr(again, name), getattr(by_labels, name))
    assert render_report(report_content(again)) == render_report(report_content(by_labels))


def test_codebooks_and_settings_are_kept(tmp_path):
    words = BagOfWords(DenseGrid(step=8, radii=(4.0,)), SIFT(), KMeans(6), layouts=("1x1",))
    pictures, colours = some_of_each(4)
    tagger = quick_tagger(features=[words], weights=LpBall(2.0), cache=tmp_path / "cache").fit(pictures, colours)
    tagger.save(tmp_path / "model.kw")
    again = PictureTagger.load(tmp_path / "model.kw")
    assert again.features == [words] and again.weights == LpBall(2.0) and again.cache is None
    np.testing.assert_array_equal(again.scores(pictures).scores, tagger.scores(pictures).scores)
    refitted = clone(again).fit(pictures, colours)
    np.testing.assert_array_equal(refitted.held_out_, tagger.held_out_)


def test_a_preset_is_kept_by_name(by_class, tmp_path):
    tagger = clone(by_class).fit(*some_of_each(3))
    tagger.features = "quick"  # it was made of something else, but that is not what is asked here
    tagger.save(tmp_path / "model.kw")
    assert PictureTagger.load(tmp_path / "model.kw").features == "quick"


def test_a_file_that_is_no_tagger(by_class, tmp_path):
    by_class.save(tmp_path / "model.kw")
    data = bytearray((tmp_path / "model.kw").read_bytes())
    data[data.index(b"\x93NUMPY") + 20] ^= 255  # in an array: other bytes of a zip file need not matter
    (tmp_path / "damaged.kw").write_bytes(data)
    with pytest.raises(ValueError, match="damaged"):
        PictureTagger.load(tmp_path / "damaged.kw")
    write_archive(tmp_path / "note.kw", "note", {}, {})
    with pytest.raises(ValueError, match="holds a 'note', not a picture tagger"):
        PictureTagger.load(tmp_path / "note.kw")
    write_archive(tmp_path / "hollow.kw", "picture-tagger", {}, {})
    with pytest.raises(ValueError, match="no picture tagger that can be used"):
        PictureTagger.load(tmp_path / "hollow.kw")
    with pytest.raises(NotFittedError):
        quick_tagger().save(tmp_path / "unfitted.kw")


def test_parts_that_do_not_fit_together_are_refused(by_class, tmp_path):
    tagger = clone(by_class).fit(*some_of_each(3))
    tagger.contributions_ = tagger.contributions_[:, :1]
    tagger.save(tmp_path / "model.kw")
    with pytest.raises(ValueError, match="do not fit together"):
        PictureTagger.load(tmp_path / "model.kw")


# --- the report ------------------------------------------------------------------------------------------------------


def test_the_report_has_what_was_learned(by_class):
    content = report_content(by_class, "Colours")
    assert content.title == "Colours" and content.label_names == ("blue", "green", "red")
    assert content.view_of == ("colour-hsv/1x1", "lbp/1x1") and content.contributions.shape == (2, 3)
    assert sum(row["chosen"] for row in content.choice) == 1
    assert content.measures["accuracy"] == 1.0
    assert set(content.thumbnails) == set(range(18))
    page = render_report(content)
    assert "colour-hsv/1x1" in page and "18 pictures" in page


def test_the_report_on_other_pictures(by_class):
    pictures, colours = some_of_each(2, seed=1)
    given = by_class.align(read_labelled(pictures, colours))
    content = report_on(by_class, given, by_class.unseen_scores(pictures))
    assert content.scores.shape == (6, 3) and len(content.names) == 6
    assert content.measures["accuracy"] == 1.0
    assert set(content.thumbnails) == set(range(6))


def test_thumbnails_are_small_pictures():
    wide = np.full((50, 200, 3), (200, 30, 30), dtype=np.uint8)
    decoded = cv2.imdecode(np.frombuffer(thumbnail(wide), np.uint8), cv2.IMREAD_COLOR)
    assert decoded.shape == (24, 96, 3)
    np.testing.assert_allclose(decoded[12, 48, ::-1], (200, 30, 30), atol=4)


def test_scenes_from_a_folder(tmp_path):
    write_scenes(tmp_path / "scenes", n_scenes=30, random_state=0, size=32)
    tagger = quick_tagger(weights="average").fit(read_pictures(tmp_path / "scenes"))
    assert tagger.paths_[0] == str(tmp_path / "scenes" / "scene-0001.png")
    assert len(tagger.label_names_) == 9 and len(tagger.thumbnails_) > 10
