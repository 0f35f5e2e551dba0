"""What the report says about a tagger."""

from __future__ import annotations

import os
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from .. import __version__
from ..images.pictures import UnreadablePicture, read_picture, shrink
from ..labels import Labels
from .labelled import Labelled, picture_name
from .report import ReportContent, pictures_to_show
from .tagged import Tagged, measures
from .tagger import PictureTagger

#: Small pictures: pixels on the longer side, and quality of the JPEG.
SIDE, QUALITY = 96, 80


def report_content(tagger: PictureTagger, title: str = "Picture tagger") -> ReportContent:
    """What the report of a tagger is made of; the pictures are those it learned from, held out.

    Parameters
    ----------
    tagger : PictureTagger
        Fitted.
    title : str
    """
    known = len(tagger.choice_) > 0  # with too few pictures nothing was held out
    model = tagger.model_
    history = model.history_ if isinstance(model.history_, list) else [model.history_]
    return ReportContent(
        title,
        facts=facts(tagger),
        label_names=tagger.label_names_,
        kernel_names=model.kernel_names_,
        view_of=tuple(tagger.view_names_[view] for view in tagger.view_of_),
        weights=model.weights_,
        histories=history,
        scores=tagger.held_out_ if known else None,
        Y=tagger.Y_.write(tagger.Y_.signs) if known else None,
        names=tagger.paths_ if known else (),
        thumbnails=tagger.thumbnails_ if known else {},
        views=tagger.view_names_,
        contributions=tagger.contributions_.T,
        choice=[
            {
                "method": tried.method,
                "weights": str(tried.weights),
                "C": tried.C,
                "mean": tried.score,
                "std": tried.std,
                "chosen": tried == tagger.setting_,
            }
            for tried in tagger.choice_
        ],
        problems=tagger.problems_,
        measures=tagger.measures_,
    )


def report_on(tagger: PictureTagger, given: Labelled, tagged: Tagged, title: str = "Picture tagger") -> ReportContent:
    """The report of a tagger on other pictures.

    Parameters
    ----------
    tagger : PictureTagger
        Fitted.
    given : Labelled of n_pictures
        With the labels of the tagger.
    tagged : Tagged
        Their scores.
    title : str
    """
    content = report_content(tagger, title)
    labels = Labels(given.labels.signs[tagged.rows], given.labels.names)
    pictures = [given.pictures[row] for row in tagged.rows]
    content.scores, content.Y = tagged.scores, labels.write(labels.signs)
    content.names = [picture_name(picture, row) for picture, row in zip(pictures, tagged.rows.tolist(), strict=True)]
    content.problems = [*given.problems, *tagged.problems]
    content.measures = measures(labels, tagged.scores, tagger.single_)
    content.facts["pictures shown here"] = f"{len(pictures):,} given for this report"
    content.thumbnails = thumbnails(pictures, labels, tagged.scores)
    return content


def facts(tagger: PictureTagger) -> dict[str, str]:
    """What a tagger is, in a few words each."""
    setting = tagger.setting_
    kind = "one class a picture" if tagger.single_ else "labels of which several can apply"
    found = {
        "model": f"{type(tagger.model_).__name__}, weights {setting.weights}, C = {setting.C:g}",
        "learned from": f"{len(tagger.paths_):,} pictures",
        "labels": f"{len(tagger.label_names_):,} ({kind})",
        "views": f"{len(tagger.view_names_):,}, {len(tagger.model_.kernel_names_):,} kernels",
        "features": tagger.features if isinstance(tagger.features, str) else "a list of its own",
        "duality gap": f"{tagger.model_.gap_:.1e}",
        "kernelweave": __version__,
    }
    if tagger.notes_:
        found["notes"] = "; ".join(tagger.notes_)
    return found


def thumbnails(pictures: list[Any], labels: Labels, scores: NDArray[np.float64]) -> dict[int, bytes]:
    """Small JPEG files of the pictures that the report shows, by row.

    Parameters
    ----------
    pictures : list of n_pictures paths or arrays (height, width, 3)
    labels : Labels of n_pictures
    scores : array of shape (n_pictures, n_labels)
    """
    names = tuple(labels.names.tolist())
    content = ReportContent("", label_names=names, Y=labels.write(labels.signs), scores=scores)
    made = {}
    for row in pictures_to_show(content):
        try:
            made[row] = thumbnail(pictures[row])
        except UnreadablePicture:  # it was there a moment ago
            continue
    return made


def thumbnail(picture: Any) -> bytes:
    """A picture, a path or an array (height, width, 3), as a small JPEG file."""
    is_file = isinstance(picture, (str, os.PathLike))
    rgb = read_picture(picture, max_side=SIDE).rgb if is_file else shrink(np.asarray(picture), SIDE)
    _, encoded = cv2.imencode(".jpg", cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, QUALITY])
    return encoded.tobytes()
