"""The sections of the report, from its content to HTML."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .report_charts import Line, heat_map, horizontal_bars, line_chart, recall_chart, sparkline
from .report_content import Page
from .report_markup import (
    cell,
    count,
    decimal,
    escaped,
    explain,
    head,
    isolated,
    left_out,
    nothing,
    paragraph,
    percent,
    table,
    terms,
)
from .report_results import LabelResults

Floats = NDArray[np.float64]

#: What is shown at most; the rest is counted.
MOST_BARS = 60
MOST_ROWS = 40
MOST_LINES = 24
MOST_PROBLEMS = 200
_MOST_NAMED = 6
#: So many labels have their pictures open when the page is.
_OPEN = 4
#: With fewer held-out pictures the page warns that its numbers say little.
_FEW_PICTURES = 30
#: A relative gap above this leaves room for visibly different weights.
_LOOSE_GAP = 0.01


# What it is.


def _what_it_is(page: Page) -> str:
    facts = {escaped(name): isolated(value) for name, value in page.content.facts.items()}
    return (
        f'<div class="lead">{_how_good(page.results)}{_certificate(page.content.histories)}</div>'
        + _headline(page)
        + ("<h3>Facts</h3>" if facts else "")
        + terms(facts, "facts")
        + _measures(page.content.measures)
    )


def _how_good(results: LabelResults | None) -> str:
    """In plain words, how good the scores of held-out pictures are."""
    if results is None:
        return paragraph("No held-out pictures were scored, so this page cannot say how good the tags are.")
    sentences = [f"Checked on {count(results.n_samples, 'picture')} that the fit had not seen."]
    first_wrong, order = results.value("one_error"), results.value("category_auc")
    if not math.isnan(first_wrong):
        sentences.append(
            f"Of those with a label, <strong>{100 * (1 - first_wrong):.0f} in 100</strong> get a right label in first "
            "place."
        )
    if not math.isnan(order):
        sentences.append(
            "Of a picture with a label and one without it, the one with it gets the higher score "
            f"<strong>{100 * order:.0f} times in 100</strong> (guessing: 50)."
        )
    if math.isnan(order):
        sentences.append("No label is both present and absent among them, so they cannot say how good the tags are.")
    elif results.n_samples < _FEW_PICTURES:
        sentences.append("So few pictures say little: take the numbers as a first hint.")
    return paragraph(*sentences)


def _certificate(histories: Sequence[NDArray]) -> str:
    gap = _final_gap(histories)
    if math.isnan(gap):
        return ""
    many = f" in any of the {len(histories)} fits" if len(histories) > 1 else ""
    return paragraph(
        f"The fit is certified: with the same settings, no other weights{many} could make the training objective "
        f"better by more than <strong>{percent(gap)}</strong> (the gap).",
        "That is loose; with more iterations the weights may still change." if gap > _LOOSE_GAP else "",
    )


def _headline(page: Page) -> str:
    """The few numbers one looks at first."""
    tiles = []
    if page.results is not None:
        precision = page.results.value("category_ap")
        guess = page.results.mean_guessing
        tiles = [
            (decimal(precision), "mean average precision", f"guessing gives {decimal(guess)}"),
            (decimal(page.results.value("category_auc")), "mean ROC area", "guessing gives 0.5"),
            (decimal(float(_mean(page.results.f1))), "mean best F1", "1 is perfect"),
        ]
    gap = _final_gap(page.content.histories)
    if not math.isnan(gap):
        tiles.append((percent(gap), "gap", "0% is the exact optimum"))
    inside = "".join(
        f'<li><span class="big">{value}</span><span class="what">{name}</span><span class="hint">{hint}</span></li>'
        for value, name, hint in tiles
    )
    return f'<ul class="tiles">{inside}</ul>' if tiles else ""


#: What the measures of `kernelweave.evaluation` are called here, and what they mean.
_MEASURES = {
    "image_auc": ("ROC area, by picture", "in a picture, how often a right label is above a wrong one"),
    "pooled_auc": ("ROC area, pooled", "the same, from one curve over all pictures"),
    "category_auc": ("ROC area, by label", "for a label, how often a picture with it is above one without"),
    "micro_auc": ("ROC area, all together", "one ranking of all scores"),
    "image_ap": ("mean average precision, by picture", "labels ranked within each picture"),
    "category_ap": ("mean average precision, by label", "pictures ranked for each label"),
    "micro_ap": ("average precision, all together", "one ranking of all scores"),
    "one_error": ("one-error", "share of pictures whose first label is wrong; less is better"),
    "coverage": ("coverage", "labels to read until all right ones are seen; less is better"),
    "ranking_loss": ("ranking loss", "share of pairs of labels in the wrong order; less is better"),
    "lrap": ("label ranking average precision", "of the labels down to a right one, the share that is right"),
}


def _measures(measures: Mapping[str, float]) -> str:
    if not measures:
        return ""
    rows = []
    for name, value in measures.items():
        called, meaning = _MEASURES.get(name, (name, ""))
        rows.append(f"<tr>{head(called)}{cell(float(value))}<td>{meaning}</td></tr>")
    return f"<h3>Measures on held-out pictures</h3>{table(('measure', '#value', 'meaning'), rows, 'measures')}"


# Which descriptions mattered.


def _descriptions(page: Page) -> str:
    parts = []
    if page.weights is not None:
        parts.append(_weight_bars(page, page.weights))
        if len(page.weights) > 1:
            parts.append(_weight_map(page, page.weights))
    if page.contributions is not None:
        parts.append(_contributions(page, page.contributions))
    return "".join(parts) or nothing("No weights were given.")


def _weight_bars(page: Page, by_label: Floats) -> str:
    """Kernels by view, the heaviest view and kernel first; those without weight are only named."""
    weights = by_label.mean(axis=0)
    n_active = int(np.count_nonzero(weights > 0))
    order = [int(j) for j in np.argsort(-weights, kind="stable")]
    views: dict[str, list[int]] = {}
    # Views with one kernel each need no headings.
    grouped = len({page.view_of(j) for j in order}) < len(order)
    for j in order:
        views.setdefault(page.view_of(j) if grouped else "", []).append(j)
    drawn = set(order[: min(n_active, MOST_BARS)])
    groups = sorted(views, key=lambda view: -weights[views[view]].sum())
    idle = [view for view in groups if drawn.isdisjoint(views[view])]
    return (
        "<h3>Weights of the kernels</h3>"
        + explain(
            "A kernel measures how alike two pictures are in one description (a view), such as colour or texture.",
            f"Its weight{' (here the mean over all labels)' if len(by_label) > 1 else ''} says how much the fit relies "
            f"on it. It is above zero for {n_active} of {count(len(weights), 'kernel')}.",
        )
        + "".join(_weights_of_view(page, view, views[view], weights, drawn) for view in groups if view not in idle)
        + _named("Views with little or no weight", idle)
    )


def _weights_of_view(page: Page, view: str, kernels: list[int], weights: Floats, drawn: set[int]) -> str:
    """Bars of the kernels that are drawn, and the others in words."""
    share = f"{percent(weights[kernels].sum() / weights.sum())} of the weight"
    names = {j: str(page.content.kernel_names[j]).removeprefix(f"{view}:") for j in kernels}
    bars = [j for j in kernels if j in drawn]
    n_active = int(np.count_nonzero(weights[kernels] > 0))
    return (
        (f'<h4>{isolated(view)} <span class="aside">{share}</span></h4>' if view else "")
        + horizontal_bars([names[j] for j in bars], weights[bars].tolist(), float(weights.max()))
        + left_out(n_active - len(bars), "kernel", "with less weight")
        + _named("without weight", [names[j] for j in kernels if weights[j] <= 0])
    )


def _named(what: str, names: Sequence[str]) -> str:
    """A line that names the first few of some things; empty if there are none."""
    if not any(names):
        return ""
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f'<p class="more">{what}: {", ".join(map(isolated, names[:_MOST_NAMED]))}{more}</p>'


def _weight_map(page: Page, weights: Floats) -> str:
    labels, active = page.labels_shown, np.flatnonzero(weights.max(axis=0) > 0)
    if not len(active):
        return ""
    heaviest = active[np.argsort(-weights[:, active].mean(axis=0), kind="stable")][:MOST_ROWS]
    chart = heat_map(
        weights[labels][:, heaviest].T,
        [str(page.content.kernel_names[j]) for j in heaviest],
        [page.label(k) for k in labels],
        f"Weights of {count(len(heaviest), 'kernel')} for {count(len(labels), 'label')}.",
    )
    return (
        "<h3>Weights for each label</h3>"
        + explain("The stronger the colour, the larger the weight. Labels that rely on the same kernels look alike.")
        + chart
        + page.labels_left_out
        + left_out(len(active) - len(heaviest), "kernel", "with less weight")
    )


def _contributions(page: Page, shares: Floats) -> str:
    labels = page.labels_shown
    means = np.array([_mean(row) for row in shares])
    largest = np.argsort(-np.nan_to_num(means), kind="stable")[:MOST_ROWS]
    views = [str(page.content.views[i]) for i in largest]
    words = ", ".join(f"{view} {percent(mean)}" for view, mean in zip(views, means[largest], strict=True))
    chart = heat_map(
        shares[largest][:, labels].T,
        [page.label(k) for k in labels],
        views,
        f"Share of each view in the scores of each label; on average {words}.",
    )
    return (
        "<h3>What each view contributes</h3>"
        + explain(
            "Share of each view in the scores of a label.",
            "Another colour marks a view that works against the others." if (shares < 0).any() else "",
        )
        + chart
        + page.labels_left_out
        + left_out(len(page.content.views) - len(largest), "view", "with smaller shares")
    )


# Label by label; precision and recall.

_TERMS = {
    "Average precision": "reading pictures from the highest score down, the share of right ones so far, averaged over "
    "all right ones; 1 is perfect, guessing gives the share of pictures with the label.",
    "ROC area": "how often a picture with the label is scored above one without it; 1 is perfect, 0.5 is guessing.",
    "Best F1": "precision and recall in one number (their harmonic mean) at the best threshold on the score. It is "
    "chosen on these same pictures, so expect a little less on others.",
    "Not judged": "nobody said whether these pictures have the label; they count neither way.",
}


def _labels(page: Page) -> str:
    results = page.results
    if results is None:
        return nothing("No held-out pictures were scored.")
    linked = set(page.labels_shown)
    rows = []
    for k in range(len(page.content.label_names)):
        name = isolated(page.label(k))
        name = f'<a href="#label-{k}">{name}</a>' if k in linked else name
        rows.append(
            f'<tr><th scope="row">{name}</th>{cell(int(results.n_with[k]))}{cell(int(results.n_unjudged[k]))}'
            f"{cell(results.average_precision[k])}{cell(results.roc_area[k])}{cell(results.f1[k])}"
            f"<td>{sparkline(*results.curve(k))}</td></tr>\n"
        )
    heads = ("label", "#pictures with it", "#not judged", "#average precision", "#ROC area", "#best F1", "curve")
    return (
        explain(f"{count(len(rows), 'label')}, on the held-out pictures; a linked name leads to pictures.")
        + table(heads, rows, "labels sortable")
        + terms(_TERMS, "terms")
    )


def _curves(page: Page) -> str:
    results = page.results
    if results is None or not results.n_with.any():
        return nothing("No held-out picture is known to have a label, so there is nothing to draw.")
    words = f"Mean precision-recall curve; mean average precision {results.value('category_ap'):.3f}."
    large = recall_chart(*results.mean_curve(), results.mean_guessing, words, large=True)
    small = [_small_curve(page, results, k) for k in page.labels_shown if results.n_with[k]]
    each = f'<h3>Each label</h3><div class="multiples">{"".join(small)}</div>{page.labels_left_out}'
    return (
        explain(
            "Take the pictures with the highest scores for a label. Precision is the share of them that have it; "
            "recall is the share of all pictures with it that were taken. Taking more finds more and errs more.",
            "The area under a curve is the average precision; the dashed line is guessing.",
        )
        + f'<figure class="mean"><figcaption>Mean over labels</figcaption>{large}</figure>'
        + (each if len(small) > 1 else "")
    )


def _small_curve(page: Page, results: LabelResults, k: int) -> str:
    precision = results.average_precision[k]
    words = f"Precision-recall curve of {page.label(k)}; average precision {precision:.3f}."
    chart = recall_chart(*results.curve(k), float(results.guessing[k]), words)
    return (
        f'<figure class="multiple"><figcaption><span class="name" title="{escaped(page.label(k))}">'
        f'{isolated(page.label(k))}</span><span class="number">{precision:.2f}</span></figcaption>{chart}</figure>'
    )


# Pictures.


def thumbnails(page: Page) -> str:
    """Every thumbnail once, unseen; the places that show it refer to it."""
    symbols = "".join(
        f'<symbol id="picture-{row}" viewBox="0 0 100 100"><image width="100" height="100" '
        f'href="data:image/jpeg;base64,{base64.b64encode(page.content.thumbnails[row]).decode()}"/></symbol>\n'
        for row in page.rows_shown
        if row in page.content.thumbnails
    )
    return f'<svg class="store" width="0" height="0" aria-hidden="true">{symbols}</svg>' if symbols else ""


def _pictures(page: Page) -> str:
    results = page.results
    if results is None:
        return nothing("No held-out pictures were scored.")
    parts = [explain("Held-out pictures only. The number under each is its score: the order matters, not the size.")]
    for place, k in enumerate(page.labels_shown):
        facts = f"{count(int(results.n_with[k]), 'picture')}, average precision {decimal(results.average_precision[k])}"
        parts.append(
            f'<details class="label"{" open" if place < _OPEN else ""}>'
            f'<summary><h3>{isolated(page.label(k))}</h3><span class="aside">{facts}</span></summary>'
            f'<div class="strips" id="label-{k}">{_strips(page, results, k)}</div></details>\n'
        )
    return "".join(parts) + page.labels_left_out


def _strips(page: Page, results: LabelResults, label: int) -> str:
    """The pictures of a label: the best-ranked ones, then the mistakes of either kind."""

    def strip(title: str, hint: str, rows: Iterable[int]) -> str:
        tiles = "".join(_tile(page, results, int(row), label) for row in rows)
        return (
            f'<div class="strip"><h4>{title} <span class="aside">{hint}</span></h4>'
            f'<div class="tiles-of-pictures">{tiles}</div></div>'
        )

    shown = results.shown(label)
    best = strip("Highest scores", "what the model is surest of", shown.best)
    if results.n_with[label] == 0:
        return best + nothing("No held-out picture is known to have this label.")
    if not len(shown.extra):
        return best + nothing("No mistakes: no picture without the label is scored above one with it.")
    extra = strip("Scored high without the label", "perhaps it is missing", shown.extra)
    return f'{best}<div class="pair">{extra}{strip("Scored low with it", "overlooked", shown.overlooked)}</div>'


#: Class, mark and words by the sign of a judgement.
_VERDICTS = {1: ("right", "✓", "has it"), -1: ("wrong", "✗", "without"), 0: ("unjudged", "?", "not judged")}


def _tile(page: Page, results: LabelResults, row: int, label: int) -> str:
    kind, mark, words = _VERDICTS[int(results.signs[row, label])]
    name = page.picture(row)
    picture = '<div class="blank">no preview</div>'
    if row in page.content.thumbnails:
        use = f'<use href="#picture-{row}" width="100" height="100"/>'
        picture = f'<svg viewBox="0 0 100 100" role="img" aria-label="{escaped(name)}">{use}</svg>'
    score = f"{results.scores[row, label]:.2f}".replace("-", "\N{MINUS SIGN}")
    last = re.split(r"[/\\]", name)[-1] or name
    return (
        f'<figure class="tile {kind}">{picture}<figcaption>'
        f'<span class="verdict"><span aria-hidden="true">{mark}</span> {words}</span>'
        f'<span class="number">{score}</span>'
        f'<span class="name" title="{escaped(name)}">{isolated(last)}</span></figcaption></figure>'
    )


# How the fit went.


def _fit(page: Page) -> str:
    return _gaps(page) + _choice(page.content.choice) or nothing("No history of the fit was given.")


def _gaps(page: Page) -> str:
    """The gap over the iterations, and where it ended."""
    histories = [history for history in page.content.histories if len(history)]
    if not histories:
        return ""
    named = 1 < len(histories) == len(page.content.label_names)
    names = [page.label(i) if named else f"fit {i + 1}" for i in range(len(histories))]
    last = np.array([history["gap"][-1] for history in histories], dtype=np.float64)
    order = np.argsort(-np.nan_to_num(last, nan=np.inf), kind="stable")
    lines = [
        Line(names[i], histories[i]["iteration"].astype(float), 100.0 * histories[i]["gap"], i == order[0])
        for i in order[:MOST_LINES]
    ]
    words = f"The gap over the iterations; at the end {percent(_final_gap(histories))}."
    stands_out = f"Of the {len(histories)} fits, the one with the largest final gap stands out: "
    return (
        "<h3>Gap</h3>"
        + explain(
            "The gap is a proven bound on how far the fit still is from the best one possible, as a share of the "
            "objective (what the fit makes small). The fit stops when the gap is small enough.",
            f"{stands_out}{isolated(names[order[0]])}." if len(histories) > 1 else "",
        )
        + line_chart(lines, "iteration", "gap in %", words)
        + left_out(len(histories) - len(lines), "fit", "with smaller gaps")
        + terms(_ends(histories), "facts")
    )


def _ends(histories: Sequence[NDArray]) -> dict[str, str]:
    """Where the fits ended."""
    iterations = [int(history["iteration"][-1]) for history in histories]
    few, many = min(iterations), max(iterations)
    ends = {
        "iterations": f"{few:,}" if few == many else f"{few:,} to {many:,}",
        "seconds": f"{sum(float(history['seconds'][-1]) for history in histories):.2f}",
        "final gap": percent(_final_gap(histories)),
    }
    if len(histories) == 1:
        ends["objective"] = f"{float(histories[0]['objective'][-1]):.6g}"
        ends["kernels with weight"] = f"{int(histories[0]['active'][-1])}"
    return ends


def _choice(choice: Sequence[Mapping[str, Any]]) -> str:
    """The settings that were tried, best first."""
    if not choice:
        return ""

    def mean(tried: Mapping[str, Any]) -> float:
        value = float(tried["mean"])
        return -math.inf if math.isnan(value) else value

    ordered = sorted(choice, key=mean, reverse=True)
    shown = [tried for place, tried in enumerate(ordered) if place < MOST_ROWS or tried["chosen"]]
    rows = [
        f"<tr{' class=chosen' if tried['chosen'] else ''}>{head(tried['method'])}"
        f"<td>{escaped(str(tried['weights']))}</td>"
        f'<td class="number">{escaped(format(tried["C"], ".4g"))}</td>{cell(float(tried["mean"]))}'
        f"{cell(float(tried['std']))}<td>{'✓ chosen' if tried['chosen'] else ''}</td></tr>"
        for tried in shown
    ]
    return (
        "<h3>Settings tried</h3>"
        + explain(
            "Each was fitted on some of the training pictures and scored on the others, several times "
            "(cross-validation). C is the price of errors on training pictures: the larger, the closer the fit "
            "follows them."
        )
        + table(("method", "weights", "#C", "#mean score", "#± between parts", ""), rows, "choice sortable")
        + left_out(len(choice) - len(shown), "setting", "with lower scores")
    )


# Pictures left out.


def _problems(page: Page) -> str:
    problems = page.content.problems
    if not problems:
        return nothing("Every picture could be used.")
    rows = [f"<tr>{head(what)}<td>{isolated(reason)}</td></tr>" for what, reason in problems[:MOST_PROBLEMS]]
    return (
        explain(f"{count(len(problems), 'picture')} could not be used; everything else went on without.")
        + table(("picture", "reason"), rows, "problems")
        + left_out(len(problems) - len(rows), "picture", "")
    )


def _final_gap(histories: Sequence[NDArray]) -> float:
    """The largest gap at the end of a fit; NaN if there is none, or one is unknown."""
    last = [float(history["gap"][-1]) for history in histories if len(history)]
    return max(last) if last and all(map(math.isfinite, last)) else math.nan


def _mean(values: Floats) -> float:
    """Mean of what is not NaN; NaN if nothing is left."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else math.nan


#: The key of each section (its address in the page), its heading, and what writes it.
SECTIONS: tuple[tuple[str, str, Callable[[Page], str]], ...] = (
    ("what", "What it is", _what_it_is),
    ("descriptions", "Which descriptions mattered", _descriptions),
    ("labels", "Label by label", _labels),
    ("curves", "Precision and recall", _curves),
    ("pictures", "Pictures", _pictures),
    ("fit", "How the fit went", _fit),
    ("problems", "Pictures left out", _problems),
)
