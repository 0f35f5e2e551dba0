"""What each command of ``kernelweave`` does. Options come from :mod:`kernelweave.app.cli`."""

from __future__ import annotations

import os
import zipfile
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__
from .._files import atomic_write
from ..datasets.picture_sets import PictureSet, find_pictures, read_pictures
from ..datasets.writers import write_rows, write_sidecars
from ..images.extraction import ImageFeatures
from ..images.presets import PRESETS
from ..labels import Labels
from .feature_lists import features_as_data, read_features
from .labelled import Labelled, read_labelled
from .output import (
    SUGGESTION_COLUMNS,
    TAG_COLUMNS,
    Output,
    check_output,
    file_name,
    opened,
    print_table,
)
from .report import write_report
from .reporting import facts, report_content, report_on
from .tagged import Tag, Tagged, measures
from .tagger import PictureTagger


class NothingDone(Exception):
    """There was nothing that the command could work with."""


def train(options: Namespace, output: Output) -> None:
    """``kernelweave train``"""
    check_output(options.output, "model")
    if options.report is not None:
        check_output(options.report, "report")
    tagger = PictureTagger(
        features=read_features(options.features),
        method=options.method,
        weights=options.weights,
        C=options.C,
        folds=options.folds,
        cache=options.cache,
        max_side=options.max_side,
        n_jobs=options.jobs,
        verbose=output.progress,
        random_state=options.seed,
    )
    tagger.fit(_pictures(options), strict=options.strict)
    tagger.save(options.output)
    if options.report is not None:
        write_report(options.report, report_content(tagger, _title(options.output)))
    output.problems(tagger.problems_)
    for note in tagger.notes_:
        output.say(f"note: {note}")
    output.say(f"{options.output}: {facts(tagger)['model']}, learned from {len(tagger.paths_)} pictures")
    if tagger.measures_:
        name, value = next(iter(tagger.measures_.items()))
        output.say(f"{_called(name)} on pictures held out: {value:.3f}")
    written = {"model": str(options.output), "report": None if options.report is None else str(options.report)}
    output.result(written | _described(tagger), lambda: None)


def tag(options: Namespace, output: Output) -> None:
    """``kernelweave tag``"""
    form = _form(options)
    if options.output is not None:
        check_output(options.output, "tags")
    tagger = _load(options, output)
    problems: list[tuple[str, str]] = []
    pictures = _found(options.pictures, problems)
    tagged = tagger.scores(pictures, strict=options.strict) if pictures else _no_scores(tagger)
    problems += tagged.problems
    if options.strict and problems:
        raise ValueError("{}: {}".format(*problems[0]))
    output.problems(problems)
    if not len(tagged.rows):
        raise NothingDone("none of the pictures can be read, so there is nothing to tag")
    readable = [pictures[row] for row in tagged.rows]
    best = tagger.best(tagged.scores, options.top)
    if options.sidecars:
        written = _write_keywords(readable, best, tagger.label_names_)
        output.say(f"keywords written into {len(written)} sidecars")
    names = [file_name(picture, options.output) for picture in readable]
    rows = [[name, _given(tags), _scores(tags)] for name, tags in zip(names, best, strict=True)]
    if options.output is not None or form != "table":
        with opened(options.output) as file:
            if form == "csv":
                write_rows(file, *_wide(rows, min(options.top, len(tagger.label_names_))), form)
            else:
                write_rows(file, TAG_COLUMNS, rows, form)
        return
    data = {
        "pictures": [dict(zip(TAG_COLUMNS, row, strict=True)) for row in rows],
        "problems": [list(problem) for problem in problems],
    }
    output.result(data, lambda: _print_tags(names, best))


def suggest(options: Namespace, output: Output) -> None:
    """``kernelweave suggest``"""
    form = _form(options)
    if options.output is not None:
        check_output(options.output, "suggestions")
    tagger = _load(options, output)
    given, tagged = _looked_at(tagger, options, output)
    found = tagger.missing(given, tagged, options.top)
    rows: list[list[Any]] = [
        [file_name(given.pictures[one.row], options.output), one.label, round(one.score, 4), one.instead_of]
        for one in found
    ]
    if options.output is not None or form != "table":
        with opened(options.output) as file:
            write_rows(file, SUGGESTION_COLUMNS, rows, form)
        return
    if not rows:
        output.say("no label seems to be missing")
    sides = {"picture": "left", "label": "left", "score": "right"} | ({"instead of": "left"} if tagger.single_ else {})
    shown = [[name, label, f"{score:.3f}", instead][: len(sides)] for name, label, score, instead in rows]
    data = [dict(zip(SUGGESTION_COLUMNS, row, strict=True)) for row in rows]
    output.result(data, lambda: print_table(sides, shown) if shown else None)


def evaluate(options: Namespace, output: Output) -> None:
    """``kernelweave evaluate``"""
    tagger = _load(options, output)
    given, tagged = _looked_at(tagger, options, output)
    labels = Labels(given.labels.signs[tagged.rows], given.labels.names)
    found = measures(labels, tagged.scores, tagger.single_)
    if not found:
        raise ValueError("no label of these pictures was judged, so there is nothing to measure")
    data = {"n_pictures": len(tagged.rows), "measures": found, "problems": [*given.problems, *tagged.problems]}
    rows = [[_called(name), f"{value:.4f}"] for name, value in found.items()]
    output.result(data, lambda: print_table({"measure": "left", "value": "right"}, rows))


def report(options: Namespace, output: Output) -> None:
    """``kernelweave report``"""
    check_output(options.output, "report")
    tagger = _load(options, output)
    title = _title(options.model)
    if options.source is None:
        content = report_content(tagger, title)
    else:
        content = report_on(tagger, *_looked_at(tagger, options, output), title=title)
    write_report(options.output, content)
    output.say(f"report written to {options.output}")
    output.result({"report": str(options.output)}, lambda: None)


def features(options: Namespace, output: Output) -> None:
    """``kernelweave features``"""
    check_output(options.output, "features")
    pictures = _pictures(options)
    extractor = ImageFeatures(
        read_features(options.features), options.cache, options.max_side, options.jobs, output.progress, options.seed
    )
    extracted = extractor.fit_extract(pictures.paths)
    problems = [*pictures.problems, *extracted.problems]
    if options.strict and extracted.problems:
        what, reason = extracted.problems[0]
        raise ValueError(f"{what}: {reason}")
    used = pictures[extracted.rows]
    arrays: dict[str, Any] = {
        "names": np.array([file_name(path, options.output) for path in used.paths]),
        "problems": np.array([[what, reason] for what, reason in problems], dtype=str).reshape(-1, 2),
    }
    if used.Y is not None:
        arrays |= {"y": used.classes} if used.single else {"Y": used.Y, "label_names": np.array(used.label_names)}
    taken = sorted(set(arrays) & set(extracted.views.names))
    if taken:
        raise ValueError(f"a view is called {taken[0]!r}, which the file needs for something else: give it a name")
    arrays |= {view: extracted.views[view] for view in extracted.views.names}
    with atomic_write(options.output) as file:
        np.savez(file, **arrays)
    output.problems(problems)
    output.say(f"{options.output}: {len(extracted.views.names)} views of {len(used)} pictures")
    data = {
        "features": str(options.output),
        "n_pictures": len(used),
        "views": {name: int(extracted.views[name].shape[1]) for name in extracted.views.names},
        "problems": problems,
    }
    output.result(data, lambda: None)


def info(options: Namespace, output: Output) -> None:
    """``kernelweave info``"""
    if options.what in PRESETS:
        lines = features_as_data(options.what)
        output.result(lines, lambda: print("\n".join(map(repr, PRESETS[options.what]()))))
        return
    path = Path(options.what)
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}, and no preset of that name ({', '.join(PRESETS)})")
    if path.suffix.lower() == ".npz":
        _info_of_features(path, output)
        return
    tagger = _loaded(path)
    data = {"path": str(path)} | _described(tagger)
    rows = [[name, value] for name, value in facts(tagger).items()]
    rows += [["label names", ", ".join(tagger.label_names_)]]
    rows += [[f"{_called(name)} (held out)", f"{value:.4f}"] for name, value in tagger.measures_.items()]
    shares = np.nan_to_num(np.nanmean(tagger.contributions_, axis=0)) if tagger.contributions_.size else ()
    rows += [[f"share of {view}", f"{share:.1%}"] for view, share in zip(tagger.view_names_, shares, strict=False)]
    output.result(data, lambda: print_table({"what": "left", "value": "left"}, rows))


def demo(options: Namespace, output: Output) -> None:
    """``kernelweave demo``"""
    from ..demo import main

    main(["--output", str(options.output)])


# -- what they share --------------------------------------------------------------------------------------------------


def _pictures(options: Namespace) -> PictureSet:
    return read_pictures(options.source, options.labels, options.unlisted, options.strict)


def _load(options: Namespace, output: Output) -> PictureTagger:
    """The model, working as the options say."""
    tagger = _loaded(options.model)
    return tagger.set_params(cache=options.cache, n_jobs=options.jobs, verbose=output.progress)


def _loaded(path: Path) -> PictureTagger:
    if not path.is_file():
        raise FileNotFoundError(f"there is no model file {path}" + (": it is a folder" if path.is_dir() else ""))
    try:
        return PictureTagger.load(path)
    except ValueError as error:
        raise NothingDone(str(error)) from error


def _looked_at(tagger: PictureTagger, options: Namespace, output: Output) -> tuple[Labelled, Tagged]:
    """Pictures with labels, and scores by models that have not learned from them."""
    given = tagger.align(read_labelled(_pictures(options)))
    tagged = tagger.unseen_scores(given.pictures, strict=options.strict)
    output.problems([*given.problems, *tagged.problems])
    for note in given.notes:
        output.say(f"note: {note}")
    if tagged.n_known:
        output.say(
            f"note: {tagged.n_known} of the pictures are among those the model learned from; they are judged by models "
            "that have not seen them"
        )
    if not len(tagged.rows):
        raise NothingDone("none of the pictures can be read")
    return given, tagged


def _found(given: Sequence[Path], problems: list[tuple[str, str]]) -> list[Path]:
    """Pictures, and those in folders, each once."""
    found: list[Path] = []
    for path in given:
        inside = find_pictures(path, problems) if path.is_dir() else [path]
        if not inside:
            problems.append((str(path), "there are no pictures in this folder"))
        found += inside
    return list(dict.fromkeys(found))


def _no_scores(tagger: PictureTagger) -> Tagged:
    return Tagged(np.empty(0, np.intp), np.empty((0, len(tagger.label_names_))), [])


def _form(options: Namespace) -> str:
    """The form of the result: as asked for, else by the end of the name of the file, else a table to read."""
    if options.json:
        if options.format is not None or options.output is not None:
            raise ValueError("--json prints one JSON text: leave --format and -o away, or leave --json away")
        return "table"
    by_name = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
    form = options.format
    if form is None and options.output is not None:
        form = by_name.get(options.output.suffix.lower())
        if form is None:
            raise ValueError(f"{options.output} ends neither in .csv nor in .jsonl: say which with --format")
    if form == "table" and options.output is not None:
        raise ValueError("a table is for reading on the terminal: write --format csv or --format jsonl with -o")
    return form or "table"


def _write_keywords(pictures: list[Path], best: list[list[Tag]], names: Sequence[str]) -> list[Path]:
    """Write the labels given into sidecars; nothing is said about the others."""
    place = {name: column for column, name in enumerate(names)}
    keywords = np.full((len(pictures), len(names)), np.nan)
    for row, tags in enumerate(best):
        keywords[row, [place[label] for label in _given(tags)]] = 1
    return write_sidecars(pictures, names, keywords)


def _given(tags: list[Tag]) -> list[str]:
    return [each.label for each in tags if each.given]


def _scores(tags: list[Tag]) -> dict[str, float]:
    return {each.label: round(each.score, 4) for each in tags}


def _wide(rows: list[list[Any]], top: int) -> tuple[list[str], list[list[Any]]]:
    """Columns and rows of a CSV file with a row a picture."""
    columns = ["file_name", "labels", *(f"{what}_{k}" for k in range(1, top + 1) for what in ("tag", "score"))]
    return columns, [[name, labels, *(cell for pair in by.items() for cell in pair)] for name, labels, by in rows]


def _print_tags(names: list[str], best: list[list[Tag]]) -> None:
    rows = [
        [name if k == 0 else "", each.label, f"{each.score:.3f}", "*" if each.given else ""]
        for name, tags in zip(names, best, strict=True)
        for k, each in enumerate(tags)
    ]
    print_table({"picture": "left", "label": "left", "score": "right", "given": "left"}, rows)


def _info_of_features(path: Path, output: Output) -> None:
    try:
        with np.load(path, allow_pickle=False) as archive:
            shapes = {name: list(archive[name].shape) for name in archive.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise NothingDone(f"{path} is damaged, or no file of features: {error}") from error
    rows = [[name, " x ".join(map(str, shape))] for name, shape in shapes.items()]
    output.result({"path": str(path), "arrays": shapes}, lambda: print_table({"array": "left", "shape": "right"}, rows))


def _described(tagger: PictureTagger) -> dict[str, Any]:
    """A tagger as JSON holds it."""
    setting = tagger.setting_
    return {
        "method": type(tagger.model_).__name__,
        "weights": str(setting.weights),
        "C": setting.C,
        "labels": list(tagger.label_names_),
        "single": tagger.single_,
        "n_pictures": len(tagger.paths_),
        "views": list(tagger.view_names_),
        "gap": float(tagger.model_.gap_),
        "held_out": tagger.measures_,
        "problems": [list(problem) for problem in tagger.problems_],
        "notes": tagger.notes_,
        "written_by": __version__,
    }


_NAMES = {
    "accuracy": "accuracy",
    "category_ap": "mean average precision by label",
    "image_ap": "mean average precision by picture",
}


def _called(measure: str) -> str:
    return _NAMES.get(measure, measure.replace("_", " "))


def _title(model: Path) -> str:
    return os.path.basename(model)
