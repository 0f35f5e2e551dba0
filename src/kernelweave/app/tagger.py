"""`PictureTagger`: features, kernels, a choice of settings and a model, in one estimator that takes pictures."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from .._config import progress
from .._estimator import BankEstimator
from ..images.extraction import ImageFeatures
from ..images.pictures import UnreadablePicture
from ..kernels import KernelBank
from ..labels import Labels
from ..mkl import MKLClassifier
from ..ranking import LabelRanker, best_threshold
from ..views import Views
from ..weights import WeightSet, parse_weights
from .choosing import (
    FEWEST_PICTURES,
    WEIGHTS,
    Choice,
    Setting,
    all_settings,
    choose,
    few_enough,
    held_out_scores,
    kernel_stack,
    make_folds,
    why_nothing,
)
from .labelled import Labelled, align, as_sources, content_key, picture_name, read_labelled
from .tagged import Array, Suggestion, Tag, Tagged, measures, other_classes

#: Costs of an error that are tried: for classes as they are, for rankings times 1 / n_labels.
CLASSIFIER_COSTS, RANKER_COSTS = (1.0, 10.0, 100.0), (2.0, 6.0, 20.0)

#: With more labels than this, "auto" does not try to learn each of them on its own.
MOST_ON_THEIR_OWN = 50

#: Relative duality gap of the final model.
FINAL_GAP = 1e-3

#: Pictures scored at a time, so that memory does not grow with their number.
PICTURES_AT_ONCE = 1000

#: Most training pictures from which the contributions of the views are computed.
CONTRIBUTION_PICTURES = 1000


class PictureTagger(BaseEstimator):
    """Learns from pictures with labels to name what is in other pictures.

    `fit` computes features, makes kernels of them, chooses the kernel weights and the cost of errors by
    cross-validation, and fits the model on all pictures.

    Parameters
    ----------
    features : str or list of features, default="quick"
        A preset ("quick", "voc15", "imagenet10", "flowers", "caltech48") or a list such as presets are.
    method : {"auto", "ranker", "classifier"}, default="auto"
        "ranker" ranks the labels of each picture, with one weight vector for all of them (:class:`LabelRanker`);
        "classifier" learns each label on its own, with weights of its own (:class:`MKLClassifier`). "auto": the
        classifier where every picture has one class; else the better of the two, or the ranker where there are more
        than 50 labels.
    weights : "auto", str, WeightSet, or list of them, default="auto"
        Weights of the kernels; of several the best is chosen. "auto": "average", "l1" and "l2". Of equally good ones
        the first in this order is taken: "average" learns nothing that could go wrong, "l1" leaves views out, "l2"
        keeps all.
    C : "auto", float, or list of float, default="auto"
        Cost of errors; of several the best is chosen, of equally good ones the smallest.
    folds : int, default=3
        Parts of the cross-validation; fewer are used if a label is too rare.
    cache : path, optional
        Where features are kept so that they are not computed twice.
    max_side : int, optional
        Pictures are shrunk to this many pixels on their longer side first; 300 by default, None: never.
    n_jobs : int, optional
        Pictures whose features are computed at once.
    verbose : int, default=0
        Show progress when on a terminal.
    random_state : int, default=0

    Attributes
    ----------
    features_ : ImageFeatures
        With the codebooks that were learned.
    model_ : MKLClassifier or LabelRanker
    label_names_ : tuple of str
    single_ : bool
        Whether every picture has exactly one class.
    setting_ : Setting
        Method, weights and C of the model.
    choice_ : tuple of Setting
        All that were tried, with mean and standard deviation over the folds of what they were compared by: accuracy for
        classes, else mean average precision by label. Empty where there were too few pictures to choose by.
    held_out_ : array of shape (n_pictures, n_labels)
        Scores of every training picture by a model that has not learned from it. (Codebooks are learned without labels,
        from all pictures.) NaN where there were too few pictures.
    thresholds_ : array of shape (n_labels,)
        Score above which a label is given to a picture: where the F1 of these scores is largest. Not used where every
        picture has one class.
    measures_ : dict of str to float
        Measures of these scores: see :func:`kernelweave.evaluation.evaluate`; and "accuracy" for classes.
    contributions_ : array of shape (n_labels, n_views)
        How much of the variance of the scores of a label each view explains; see `contributions`.
    view_names_ : tuple of str
        Names of the views that kernels are on; a kernel over several views counts as one of its own.
    view_of_ : tuple of int
        The number of the view of each kernel.
    Y_ : Labels
        Labels of the training pictures: those that could be read and were judged.
    paths_ : tuple of str
        Their names.
    keys_ : list of bytes
        Their contents, in short (SHA-256).
    thumbnails_ : dict of int to bytes
        Small JPEG pictures of some of them, by row.
    problems_ : list of (picture, reason)
        What was left out.
    notes_ : list of str
        What else a person should know about the fit.

    Examples
    --------
    >>> from kernelweave.app.tagger import PictureTagger
    >>> from kernelweave.datasets import make_scenes
    >>> from kernelweave.images.histograms import ColourHistogram, LBPHistogram
    >>> scenes = make_scenes(n_scenes=40, size=32, random_state=0)
    >>> tagger = PictureTagger([ColourHistogram("hsv", bins=4), LBPHistogram()], C=1.0)
    >>> _ = tagger.fit(scenes.pictures, scenes.Y)
    >>> tagger.scores(scenes.pictures[:2]).scores.shape
    (2, 9)
    >>> len(tagger.tag(scenes.pictures[:2], top=3)[0])
    3
    """

    def __init__(
        self,
        features: Any = "quick",
        method: str = "auto",
        weights: Any = "auto",
        C: Any = "auto",
        folds: int = 3,
        cache: str | os.PathLike[str] | None = None,
        max_side: int | None = 300,
        n_jobs: int | None = None,
        verbose: int = 0,
        random_state: int | None = 0,
    ) -> None:
        self.features = features
        self.method = method
        self.weights = weights
        self.C = C
        self.folds = folds
        self.cache = cache
        self.max_side = max_side
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    # -- learning -----------------------------------------------------------------------------------------------------

    def fit(self, pictures: Any, Y: Any = None, strict: bool = False) -> PictureTagger:
        """Learn from pictures.

        Parameters
        ----------
        pictures : PictureSet, or sequence of n_pictures paths or arrays (height, width, 3)
        Y : labels of n_pictures, unless `pictures` has them
            A vector of classes, a list of tags a picture, or a matrix or frame of 0 and 1 with NaN where nobody judged.
        strict : bool, default=False
            Whether to stop at pictures that cannot be read, instead of leaving them out.
        """
        self._forget()
        given = read_labelled(pictures, Y)
        self.single_, self.notes_ = given.single, list(given.notes)
        given = self._useful(given)
        self._settings()  # wrong ones are refused before anything is computed
        self.features_ = ImageFeatures(
            self.features, self.cache, self.max_side, self.n_jobs, self.verbose, self.random_state
        )
        extracted = self.features_.fit_extract(given.pictures)
        if strict and extracted.problems:
            raise UnreadablePicture(*extracted.problems[0], extracted.problems[1:])
        self.problems_ = [*given.problems, *extracted.problems]
        self.paths_ = tuple(picture_name(given.pictures[row], row) for row in extracted.rows.tolist())
        given = self._useful(given[extracted.rows])
        self.Y_ = given.labels

        bank = self.features_.kernel_bank()
        choice = self._choose(bank, extracted.views)
        self.setting_, self.choice_, self.held_out_ = choice.best, choice.settings, choice.held_out
        self.measures_ = measures(self.Y_, self.held_out_, self.single_) if choice.settings else {}
        self.model_ = self._make(bank, choice.best, FINAL_GAP).fit(extracted.views, self.Y_)
        self.thresholds_ = self._thresholds()
        self.view_names_, self.view_of_ = _views_of(bank)
        self.contributions_ = self._contributions(extracted.views)
        self.keys_ = [content_key(picture) for picture in given.pictures]
        self.thumbnails_ = self._thumbnails(given.pictures) if choice.settings else {}
        return self

    def _thumbnails(self, pictures: list[Any]) -> dict[int, bytes]:
        from .reporting import thumbnails  # which needs this module

        return thumbnails(pictures, self.Y_, self.held_out_)

    def _useful(self, given: Labelled) -> Labelled:
        """The pictures of which something was judged and, of classes, those that have pictures; sets `label_names_`."""
        rows = np.flatnonzero(given.labels.known.any(axis=1))
        if not len(rows):
            raise ValueError("none of the pictures has a label that was judged: there is nothing to learn from")
        if len(rows) < len(given):
            self.notes_.append(f"pictures without any label that was judged were not used: {len(given) - len(rows)}")
            given = given[rows]
        labels = given.labels
        without = ~labels.relevant.any(axis=0)
        if self.single_ and without.any():
            self.notes_.append(f"classes without a picture were left out: {', '.join(labels.names[without].tolist())}")
            labels = Labels(labels.signs[:, ~without], labels.names[~without])
        self.label_names_ = tuple(labels.names.tolist())
        why = why_nothing(labels.signs, "classifier" not in self._methods())
        if why and self.single_:
            why = f"all pictures are of the class {labels.names[0]!s}; pictures of at least two classes are needed"
        if why:
            raise ValueError(why)
        return replace(given, labels=labels)

    def _forget(self) -> None:
        """What an earlier fit learned; a fit that fails leaves no half-learned tagger."""
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)

    def _methods(self) -> list[str]:
        """Those to be tried."""
        if self.method not in ("auto", "ranker", "classifier"):
            raise ValueError(f"method must be 'auto', 'ranker' or 'classifier', got {self.method!r}")
        if self.method != "auto":
            return [self.method]
        if self.single_ or len(self.label_names_) < 2:
            return ["classifier"]
        return ["ranker", "classifier"] if len(self.label_names_) <= MOST_ON_THEIR_OWN else ["ranker"]

    def _settings(self) -> list[Setting]:
        """All that are to be tried."""
        if isinstance(self.folds, bool) or not isinstance(self.folds, (int, np.integer)) or self.folds < 2:
            raise ValueError(f"folds must be a whole number of at least 2, got {self.folds!r}")
        return all_settings({method: self._costs(method) for method in self._methods()}, self._weights())

    def _weights(self) -> list[Any]:
        if isinstance(self.weights, str) and self.weights == "auto":
            return list(WEIGHTS)
        one = isinstance(self.weights, (str, WeightSet))
        weights = [self.weights] if one else list(self.weights)
        for each in weights:
            parse_weights(each)  # refuses what is unknown before anything is computed
        return weights

    def _costs(self, method: str) -> list[float]:
        if isinstance(self.C, str):
            if self.C != "auto":
                raise ValueError(f"C must be a positive number, a list of them or 'auto', got {self.C!r}")
            if method == "ranker":
                return [cost / len(self.label_names_) for cost in RANKER_COSTS]
            return list(CLASSIFIER_COSTS)
        costs = [float(cost) for cost in np.atleast_1d(self.C)]
        if not costs or not all(0 < cost < math.inf for cost in costs):
            raise ValueError(f"C must be a positive number, a list of them or 'auto', got {self.C!r}")
        return costs

    def _make(self, kernels: KernelBank, setting: Setting, gap: float) -> BankEstimator:
        kind = LabelRanker if setting.method == "ranker" else MKLClassifier
        return kind(kernels=kernels, weights=setting.weights, C=setting.C, tol=gap, random_state=self.random_state)

    def _thresholds(self) -> Array:
        """Learned from scores of pictures that were held out; without them, those of the model."""
        if not self.choice_:
            return getattr(self.model_, "thresholds_", np.zeros(len(self.label_names_)))
        return np.array([best_threshold(*column) for column in zip(self.held_out_.T, self.Y_.signs.T, strict=True)])

    def _choose(self, bank: KernelBank, views: Views) -> Choice:
        """Settings tried by cross-validation, and the scores of pictures held out with the best of them."""
        labels, settings = self.Y_, self._settings()
        ranks = any(setting.method == "ranker" for setting in settings)
        n_pictures = len(labels.signs)
        rows = few_enough(labels, len(_views_of(bank)[1]), self.random_state)
        chosen_by = Labels(labels.signs[rows], labels.names)
        enough = n_pictures >= FEWEST_PICTURES
        folds = make_folds(chosen_by, ranks, self.folds, self.random_state) if enough else []
        if not folds:
            middle = settings[len(self._costs(settings[0].method)) // 2]
            self.notes_.append(
                f"{n_pictures} pictures are too few to choose settings by, or to say how good the model is: "
                f"{middle.label} was taken"
            )
            return Choice((), middle, np.full(labels.signs.shape, np.nan))
        if len(folds) < self.folds:
            self.notes_.append(f"{len(folds)} folds were used instead of {self.folds}, because a label is rare")
        stack = kernel_stack(bank, views[rows])
        choice = choose(
            settings,
            self._make,
            stack,
            chosen_by,
            folds,
            self.single_,
            progress(self.verbose, "settings", len(settings)),
        )
        if len(rows) == n_pictures:
            return choice
        self.notes_.append(f"settings were chosen on {len(rows)} of the {n_pictures} pictures, to save time and memory")
        folds = make_folds(labels, ranks, self.folds, self.random_state)
        best = choice.best
        held_out = held_out_scores(lambda: self._make(bank, best, FINAL_GAP), views, labels, folds)
        return Choice(choice.settings, best, held_out)

    # -- new pictures -------------------------------------------------------------------------------------------------

    def scores(self, pictures: Any, strict: bool = False) -> Tagged:
        """Scores of all labels.

        Parameters
        ----------
        pictures : PictureSet, or sequence of paths or arrays (height, width, 3)
        strict : bool, default=False
            Whether to stop at pictures that cannot be read, instead of listing them.

        Returns
        -------
        Tagged
        """
        check_is_fitted(self, "thumbnails_")
        sources = as_sources(pictures)
        if not sources:
            raise ValueError("there are no pictures to look at: an empty list was given")
        parts = [self._scores_of(sources, start) for start in range(0, len(sources), PICTURES_AT_ONCE)]
        problems = [problem for part in parts for problem in part.problems]
        if strict and problems:
            raise UnreadablePicture(*problems[0], problems[1:])
        rows, scores = np.concatenate([part.rows for part in parts]), np.concatenate([part.scores for part in parts])
        return Tagged(rows, scores, problems)

    def _scores_of(self, sources: list[Any], start: int) -> Tagged:
        try:
            extracted = self._extractor().extract(sources[start : start + PICTURES_AT_ONCE])
        except UnreadablePicture as nothing:
            return Tagged(np.empty(0, np.intp), np.empty((0, len(self.label_names_))), list(nothing.problems))
        scores = self.model_.decision_function(extracted.views)
        return Tagged(extracted.rows + start, scores, extracted.problems)

    def _extractor(self) -> ImageFeatures:
        """The fitted features, working as the parameters say now: after a file was read they are of this machine."""
        return self.features_.set_params(cache=self.cache, n_jobs=self.n_jobs, verbose=self.verbose)

    def tag(self, pictures: Any, top: int = 5) -> list[list[Tag]]:
        """The best labels of each picture that can be read, best first.

        Parameters
        ----------
        pictures : as in `scores`
        top : int, default=5
            How many; all if there are fewer.

        Returns
        -------
        list of lists of (label, score, given)
            `given` says whether the model would give the label to the picture: its score is above the threshold of the
            label or, where every picture has one class, above all others.
        """
        return self.best(self.scores(pictures).scores, top)

    def best(self, scores: Array, top: int = 5) -> list[list[Tag]]:
        """The best labels by given scores, (n_pictures, n_labels); see `tag`."""
        if isinstance(top, bool) or not isinstance(top, (int, np.integer)) or top < 1:
            raise ValueError(f"top must be a whole number of at least 1, got {top!r}")
        given, names = self.given(scores), self.label_names_
        order = np.argsort(-scores, axis=1, kind="stable")[:, :top]
        return [
            [Tag(names[k], float(scores[row, k]), bool(given[row, k])) for k in columns]
            for row, columns in enumerate(order.tolist())
        ]

    def given(self, scores: Array) -> NDArray[np.bool_]:
        """Which labels the model would give by these scores, both (n_pictures, n_labels)."""
        if self.single_:
            return np.arange(scores.shape[1]) == scores.argmax(axis=1)[:, None]
        return scores > self.thresholds_

    def unseen_scores(self, pictures: Any, strict: bool = False) -> Tagged:
        """As `scores`, but training pictures have the scores of a model that has not learned from them.

        They are recognised by their content, wherever they are now.
        """
        check_is_fitted(self, "thumbnails_")
        sources = as_sources(pictures)
        row_of = {key: row for row, key in enumerate(self.keys_) if not np.isnan(self.held_out_[row]).any()}
        known = {row: row_of[key] for row, key in enumerate(map(content_key, sources)) if key in row_of}
        new = [row for row in range(len(sources)) if row not in known]
        if new:
            tagged = self.scores([sources[row] for row in new], strict)
        else:
            tagged = Tagged(np.empty(0, np.intp), np.empty((0, len(self.label_names_))), [])
        rows = np.array([*known, *(new[row] for row in tagged.rows)], dtype=np.intp)
        scores = np.concatenate([self.held_out_[list(known.values())], tagged.scores])
        order = np.argsort(rows)
        return Tagged(rows[order], scores[order], tagged.problems, len(known))

    def suggest(self, pictures: Any, Y: Any = None, top: int | None = None) -> list[Suggestion]:
        """Labels that the given ones lack and probably should have.

        Training pictures are judged by models that have not learned from them. Both labels that were said not to apply
        and those that were not judged are candidates.

        Parameters
        ----------
        pictures, Y : as in `fit`
        top : int, optional
            How many at most; None: all.

        Returns
        -------
        list of Suggestion
            Labels above their thresholds or, where every picture has one class, classes above the one it has; the
            clearest first.
        """
        given = self.align(read_labelled(pictures, Y))
        return self.missing(given, self.unseen_scores(given.pictures), top)

    def missing(self, given: Labelled, tagged: Tagged, top: int | None = None) -> list[Suggestion]:
        """Suggestions by the scores of pictures with labels; see `suggest`."""
        if top is not None and (isinstance(top, bool) or not isinstance(top, (int, np.integer)) or top < 1):
            raise ValueError(f"top must be a whole number of at least 1, got {top!r}")
        signs, scores = given.labels.signs[tagged.rows], tagged.scores
        if self.single_:
            rows, columns, values = other_classes(signs, scores)
        else:
            excess = scores - self.thresholds_
            rows, columns = np.nonzero((signs <= 0) & (excess > 0))
            values = excess[rows, columns]
        names = self.label_names_
        found = []
        for i in np.argsort(-values, kind="stable")[:top]:
            row, had = int(tagged.rows[rows[i]]), np.flatnonzero(signs[rows[i]] > 0)
            instead = names[had[0]] if self.single_ and len(had) else ""
            picture = picture_name(given.pictures[row], row)
            found.append(Suggestion(row, picture, names[columns[i]], float(values[i]), instead))
        return found

    def evaluate(self, pictures: Any, Y: Any = None) -> dict[str, float]:
        """Measures of the model on pictures with labels.

        Training pictures among them are scored by models that have not learned from them.

        Parameters
        ----------
        pictures, Y : as in `fit`
            Labels that the model does not know are ignored.

        Returns
        -------
        dict of str to float
            As in `measures_`.
        """
        given = self.align(read_labelled(pictures, Y))
        tagged = self.unseen_scores(given.pictures)
        labels = Labels(given.labels.signs[tagged.rows], given.labels.names)
        return measures(labels, tagged.scores, self.single_)

    def align(self, given: Labelled) -> Labelled:
        """Pictures with labels in the order of the model, (n_pictures, n_labels)."""
        check_is_fitted(self, "thumbnails_")
        return align(given, self.label_names_, self.single_)

    # -- looking inside -----------------------------------------------------------------------------------------------

    def contributions(self, pictures: Any = None) -> Array:
        """How much each view contributes to the scores of each label, (n_labels, n_views).

        The score f of a label is a sum of what each view brings, f_v. The share of view v is cov(f_v, f) / var(f) over
        the pictures: shares sum to 1, and one below 0 works against the others. NaN for a label whose score is the same
        for all pictures.

        Parameters
        ----------
        pictures : as in `scores`, optional
            None: training pictures (at most 1000), as kept in `contributions_`.
        """
        check_is_fitted(self, "thumbnails_")
        return (
            self.contributions_ if pictures is None else self._contributions(self._extractor().extract(pictures).views)
        )

    def _contributions(self, views: Views) -> Array:
        if len(views) > CONTRIBUTION_PICTURES:
            rng = np.random.default_rng(self.random_state)
            views = views[np.sort(rng.choice(len(views), CONTRIBUTION_PICTURES, replace=False))]
        model = self.model_
        weights = model.weights_[..., model._active]
        parts = np.zeros((len(self.view_names_), len(views), len(self.label_names_)))
        for place, kernel in enumerate(model._active):
            alone = np.zeros_like(weights)
            alone[..., place] = weights[..., place]
            parts[self.view_of_[kernel]] += model._expansion.scores(views, alone, model.dual_coef_.T)
        total = parts.sum(axis=0)
        total -= total.mean(axis=0)
        variances = np.square(total).sum(axis=0)
        covariances = np.einsum("vik,ik->kv", parts, total)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(variances[:, None] > 0, covariances / variances[:, None], np.nan)

    # -- files --------------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all of it to one file, whole or not at all; see :meth:`load`."""
        from .tagger_files import write_tagger

        check_is_fitted(self, "thumbnails_")
        write_tagger(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PictureTagger:
        """Read what :meth:`save` wrote. No code from the file is run. The path of the cache is not kept.

        Raises
        ------
        ValueError
            If the file is damaged, holds something else, or was written by a newer version.
        """
        from .tagger_files import read_tagger

        return read_tagger(path)


def _views_of(bank: KernelBank) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Names of the views that kernels are on, and the number of the view of each kernel."""
    assert isinstance(bank.kernels, dict)
    sizes = [len(group) if isinstance(group, (list, tuple)) else 1 for group in bank.kernels.values()]
    return tuple(bank.kernels), tuple(number for number, size in enumerate(sizes) for _ in range(size))
