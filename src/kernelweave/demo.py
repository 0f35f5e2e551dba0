"""The whole way in one command: ``kernelweave demo``, or ``make demo`` in a checkout.

Pictures are drawn, a tagger is trained on them, new pictures are tagged, forgotten labels are found, and a report is
written for the browser.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from .app.report import write_report
from .app.reporting import report_content
from .app.tagger import PictureTagger
from .datasets import read_pictures, write_scenes
from .datasets.scenes import Scenes
from .evaluation import average_precision

#: Share of the labels that are left out of the training pictures, as people forget to write them.
FORGOTTEN = 0.2
N_NEW, SIZE = 100, 160


def main(arguments: list[str] | None = None) -> None:
    """Run the demonstration; see ``--help`` for its options."""
    parser = argparse.ArgumentParser(prog="kernelweave demo", description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="folder for all that is made")
    parser.add_argument("--pictures", type=int, default=300, help="training pictures, 60 to 5000 (default: 300)")
    options = parser.parse_args(arguments)
    if not 60 <= options.pictures <= 5000:
        parser.error(f"--pictures must be between 60 and 5000, got {options.pictures}")
    console = Console(highlight=False, soft_wrap=True)
    console.print("[bold]kernelweave: from a folder of pictures to ranked tags[/bold]\n")

    known, new = options.output / "pictures", options.output / "new"
    with _step(console, f"1. Drawing {options.pictures} scenes to learn from and {N_NEW} new ones"):
        complete = write_scenes(known, options.pictures, random_state=0, hidden=FORGOTTEN, size=SIZE)
        truth = write_scenes(new, N_NEW, random_state=1, size=SIZE)
    console.print(f"   Each has some of the labels {', '.join(complete.label_names)}.")
    console.print(f"   {known}/labels.csv has lost {FORGOTTEN:.0%} of them, as when people forget to write some.")
    console.print("   The first run on a machine also compiles the fast parts, about half a minute.\n")

    with _step(console, "2. Training: features, kernels, settings by cross-validation, the model"):
        pictures = read_pictures(known)
        tagger = PictureTagger(n_jobs=-1, verbose=1).fit(pictures)
        tagger.save(options.output / "model.kw")
    _say_what_was_learned(console, tagger)

    with _step(console, f"3. Tagging {N_NEW} new pictures"):
        scores = tagger.scores(read_pictures(new).paths).scores
    _show_tags(console, tagger, scores, truth)

    with _step(console, "4. Looking for the labels that were forgotten"):
        suggestions = tagger.suggest(pictures, top=60)
    hits = [complete.Y[s.row, complete.label_names.index(s.label)] for s in suggestions]
    console.print(f"   Of the {len(hits)} clearest suggestions {np.mean(hits):.0%} are right; the first five:")
    for suggestion, hit in zip(suggestions[:5], hits, strict=False):
        console.print(f"   {Path(suggestion.picture).name}: {suggestion.label} {'(right)' if hit else '(wrong)'}")

    report = options.output / "report.html"
    write_report(report, report_content(tagger, "Drawn scenes"))
    console.print(
        f"\n[bold]Open {report} in a browser[/bold]: which descriptions mattered for which label, precision and"
    )
    console.print("recall, the best and the worst pictures, how the fit went. With pictures of your own:\n")
    console.print("   kernelweave train FOLDER -o model.kw --report report.html")
    console.print("   kernelweave tag model.kw NEW_PICTURES", markup=False)


@contextmanager
def _step(console: Console, what: str) -> Iterator[None]:
    started = time.perf_counter()
    console.print(f"[bold]{what}[/bold] ...")
    yield
    console.print(f"   done in {time.perf_counter() - started:.1f} s")


def _table(console: Console, *headings: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD if console.is_terminal else box.ASCII2)
    for heading in headings:
        table.add_column(heading, justify="right" if heading.endswith("precision") else "left")
    return table


def _say_what_was_learned(console: Console, tagger: PictureTagger) -> None:
    model = tagger.model_
    active = int(np.count_nonzero(np.atleast_2d(model.weights_).any(axis=0)))
    console.print(f"   {len(tagger.view_names_)} descriptions (views), a kernel on each; {active} kernels have weight.")
    console.print(f"   Of {len(tagger.choice_)} settings the best was: {tagger.setting_.label}.")
    console.print(f"   The certificate: the objective is proven to be within {model.gap_:.1e} of the best possible.")
    console.print("   What each label listens to, by the share of its score's variance that a view explains:")
    table = _table(console, "label", "views that count most")
    for label, shares in zip(tagger.label_names_, tagger.contributions_, strict=True):
        order = np.argsort(-shares)[:3]
        table.add_row(label, ", ".join(f"{tagger.view_names_[v]} {shares[v]:.0%}" for v in order))
    console.print(table)


def _show_tags(console: Console, tagger: PictureTagger, scores: np.ndarray, truth: Scenes) -> None:
    precision = [average_precision(truth.Y[:, k], scores[:, k]) for k in range(scores.shape[1])]
    console.print(
        f"   Mean average precision: {np.mean(precision):.3f} (1 is perfect; by chance {truth.Y.mean():.3f})."
    )
    names = np.array(truth.label_names)
    table = _table(console, "picture", "what is in it", "tags, best first")
    for row, tags in enumerate(tagger.best(scores[:6], top=len(names))):
        given = [tag.label for tag in tags if tag.given]
        table.add_row(f"scene-{row + 1:04d}.png", ", ".join(names[truth.Y[row] > 0]), ", ".join(given) or "(none)")
    console.print(table)


if __name__ == "__main__":
    main()
