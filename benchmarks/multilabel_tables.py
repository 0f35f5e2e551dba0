"""The tables of `multilabel.py`, in reStructuredText, from its lines of results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from kernelweave.evaluation import Table, summary_table

Record = Mapping[str, Any]

#: As columns, those with few labels first. The noisy one counts in no mean and no rank.
ORDER = (
    *("scene", "emotions", "mirflickr_pml", "birds", "tmc2007_500", "enron", "bibtex", "corel5k", "delicious"),
    "mirflickr_noisy",
)
NOISY = "mirflickr_noisy"


def print_tables(records: Iterable[Record]) -> None:
    """Everything there is, those cut to some labels apart."""
    every = list(records)
    if not every:
        print("The output holds no results yet.")
        return
    whole = [record for record in every if "@" not in record["set"]]
    if whole:
        fractions = sorted({record["fraction"] for record in whole})
        print_sets(whole, fractions)
        for fraction in fractions:
            print_measure(whole, fraction, "image_auc", "Image AUC")
        for fraction in (fractions[0], fractions[-1]):
            print_measure(whole, fraction, "image_ap", "Image AP")
        print_measure(whole, 0.0, "category_auc", "Category AUC")
        print_measure(whole, 0.0, "one_error", "One-error", sign=-1)
        print_ranks(whole, fractions)
        print_drop(whole, fractions[-1], "image_auc", "Image AUC")
        print_drop(whole, fractions[-1], "image_ap", "Image AP")
        print_measure(whole, 0.0, "one label", "Image AUC of test rows with one label")
        print_measure(whole, 0.0, "several labels", "Image AUC of test rows with several labels")
        for fraction in fractions[1:]:
            print_measure(whole, fraction, "recovery", "Recovery of removed labels on training rows")
        print_seconds(whole)
        for fraction in (fractions[0], fractions[-1]):
            print_chosen(whole, fraction)
    print_label_counts(every)


# --- tables -----------------------------------------------------------------------------------------------------------


def print_sets(records: list[Record], fractions: list[float]) -> None:
    head = ["set", "training rows", "test rows", "labels", "labels a row"]
    head += [f"gone of {100 * fraction:.0f} %" for fraction in fractions[1:]]
    rows = []
    for name in ordered(records):
        of = [record for record in records if record["set"] == name]
        cells = [mean(of, key) for key in ("n", "n_new", "m")]
        row = [name, *(f"{cell:.0f}" for cell in cells), f"{mean(of, 'labels_a_row'):.2f}"]
        gone = [[r for r in of if r["fraction"] == fraction] for fraction in fractions[1:]]
        rows.append(row + [f"{100 * mean(part, 'realised'):.0f} %" if part else "" for part in gone])
    show("Sets (means over splits; labels removed, realised)", head, rows)


def print_measure(records: list[Record], fraction: float, measure: str, title: str, sign: int = 1) -> None:
    part = [record for record in records if record["fraction"] == fraction and record[measure] is not None]
    if not part:
        return
    table = tabulate(part, measure)
    ranks = mean_ranks(table, sign)
    show_table(f"{title}, {100 * fraction:.0f} % of labels removed", table, sign, [("mean rank", ranks, 1)])


def print_ranks(records: list[Record], fractions: list[float]) -> None:
    """Mean rank over the sets of methods run with every fraction."""
    columns: dict[str, dict[str, float]] = {}
    always = set.intersection(*({r["method"] for r in records if r["fraction"] == f} for f in fractions))
    for measure, title in (("image_auc", "AUC"), ("image_ap", "AP")):
        for fraction in fractions:
            table = tabulate([r for r in records if r["fraction"] == fraction and r["method"] in always], measure)
            columns[f"{title}, {100 * fraction:.0f} %"] = dict(zip(table.rows, mean_ranks(table), strict=True))
    methods = next(iter(columns.values()))
    rows = [[method, *(f"{column[method]:.1f}" for column in columns.values())] for method in methods]
    show("Mean rank over the sets (1 is best)", ["method", *columns], rows)


def print_drop(records: list[Record], fraction: float, measure: str, title: str) -> None:
    """What is lost from complete labels to the largest fraction, on the same splits."""
    complete = {(r["set"], r["method"], r["split"]): r[measure] for r in records if r["fraction"] == 0}
    drops = [
        {**r, "drop": complete[r["set"], r["method"], r["split"]] - r[measure]}
        for r in records
        if r["fraction"] == fraction and (r["set"], r["method"], r["split"]) in complete
    ]
    if not drops:
        return
    table = tabulate(drops, "drop")
    means = 100 * np.nanmean(table.mean, axis=1)
    show_table(f"{title} lost from 0 to {100 * fraction:.0f} % removed", table, -1, [("mean", means, 1)])


def print_seconds(records: list[Record]) -> None:
    part = [record for record in records if record["fraction"] == 0]
    table = tabulate(part, "seconds")
    rows = [[str(name), *map(short, values)] for name, values in zip(table.rows, table.mean, strict=True)]
    show("Seconds a fit, complete labels", ["method", *table.columns], rows)


def print_chosen(records: list[Record], fraction: float) -> None:
    part = [record for record in records if record["fraction"] == fraction]
    table = tabulate(part, "value")
    rows = [[str(name), *(f"{v:g}" for v in values)] for name, values in zip(table.rows, table.mean, strict=True)]
    show(f"Parameters chosen, {100 * fraction:.0f} % of labels removed", ["method", *table.columns], rows)


def print_label_counts(records: list[Record]) -> None:
    """Sets cut to their most frequent labels, beside the whole sets: does ranking gain with the number of labels?"""
    cut = [record for record in records if "@" in record["set"]]
    sets, methods = {record["set"].partition("@")[0] for record in cut}, {record["method"] for record in cut}
    part = [record for record in records if record["set"].partition("@")[0] in sets and record["method"] in methods]
    part = sorted((r for r in part if r["fraction"] == 0), key=lambda r: (r["set"].partition("@")[0], r["m"]))
    named = [{**r, "set": f"{r['set'].partition('@')[0]}, {r['m']}"} for r in part]
    for measure, title in (("image_auc", "Image AUC"), ("image_ap", "Image AP")):
        if named:
            table = summary_table(named, rows="method", columns="set", value=measure)
            show_table(f"{title} with the most frequent labels only, complete labels", table, 1, [])


# --- from records to cells --------------------------------------------------------------------------------------------


def ordered(records: Iterable[Record]) -> list[str]:
    present = {record["set"] for record in records}
    return [name for name in ORDER if name in present]


def tabulate(records: Iterable[Record], measure: str) -> Table:
    """Methods against sets, sets in their order."""
    part = sorted(records, key=lambda record: ORDER.index(record["set"]))
    return summary_table(part, rows="method", columns="set", value=measure)


def mean_ranks(table: Table, sign: int = 1) -> NDArray:
    counted = [k for k, name in enumerate(table.columns) if name != NOISY]
    values = sign * table.mean[:, counted]
    return rankdata(-values, axis=0, nan_policy="omit").mean(axis=1)


def mean(records: Iterable[Record], key: str) -> float:
    return float(np.mean([record[key] for record in records]))


def short(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.{0 if value >= 10 else 1 if value >= 1 else 2}f}"


def show_table(title: str, table: Table, sign: int, extra: list[tuple[str, NDArray, int]]) -> None:
    """Means and standard deviations in per cent, the best mean of each column in bold."""
    printed = np.round(100 * table.mean, 1)
    best = np.nanmax(sign * printed, axis=0)
    rows = []
    for i, name in enumerate(table.rows):
        cells = [cell(printed[i, k], 100 * table.std[i, k], sign * printed[i, k] == best[k]) for k in range(len(best))]
        rows.append([str(name), *cells, *(f"{values[i]:.{digits}f}" for _, values, digits in extra)])
    show(title, ["method", *map(str, table.columns), *(name for name, _, _ in extra)], rows)


def cell(value: float, deviation: float, is_best: bool) -> str:
    if np.isnan(value):
        return ""
    text = f"**{value:.1f}**" if is_best else f"{value:.1f}"
    return text if np.isnan(deviation) else f"{text} ± {deviation:.1f}"


def show(title: str, head: list[str], rows: list[list[str]]) -> None:
    print(f".. csv-table:: {title}\n   :header-rows: 1\n   :delim: |\n")
    for row in [head, *rows]:
        print(f"   {' | '.join(row)}")
    print()
