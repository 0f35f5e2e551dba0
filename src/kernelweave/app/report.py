"""The report: one HTML file that says what was learned, how good it is, and where it errs.

The file stands alone: style, charts and pictures are inside it, nothing is fetched, and it is complete without its
script, which only sorts tables and opens the pictures of a label.
"""

from __future__ import annotations

import base64
import hashlib
import os
from importlib.resources import files

from .._files import atomic_write
from .report_content import Page, ReportContent
from .report_markup import escaped
from .report_sections import SECTIONS, thumbnails

__all__ = ["ReportContent", "pictures_to_show", "render_report", "write_report"]


def write_report(path: str | os.PathLike[str], content: ReportContent) -> None:
    """Write the report as one HTML file, whole or not at all.

    Parameters
    ----------
    path : path
        A file of this name is replaced.
    content : ReportContent

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from kernelweave.app.report import write_report
    >>> from kernelweave.app.report_content import ReportContent
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_report(Path(folder) / "report.html", ReportContent("Empty"))
    ...     [file.name for file in Path(folder).iterdir()]
    ['report.html']
    """
    page = render_report(content)
    with atomic_write(path, text=True) as file:
        file.write(page)


def pictures_to_show(content: ReportContent) -> tuple[int, ...]:
    """Rows of the pictures that the page shows: those that thumbnails are needed of.

    Parameters
    ----------
    content : ReportContent
        With ``label_names``, ``scores`` and ``Y``.

    Returns
    -------
    tuple of int

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.app.report import pictures_to_show
    >>> from kernelweave.app.report_content import ReportContent
    >>> pictures_to_show(ReportContent("Beach", label_names=("beach",), Y=np.array([[1], [0]]),
    ...                                scores=np.array([[0.7], [-0.2]])))
    (0, 1)
    """
    return Page(content).rows_shown


def render_report(content: ReportContent) -> str:
    """The report as a page of HTML; the same content gives the same page.

    Parameters
    ----------
    content : ReportContent

    Returns
    -------
    str

    Examples
    --------
    >>> from kernelweave.app.report import render_report
    >>> from kernelweave.app.report_content import ReportContent
    >>> page = render_report(ReportContent("Beach or not", label_names=("beach",)))
    >>> page.startswith("<!DOCTYPE html>"), "Beach or not" in page
    (True, True)
    """
    page = Page(content)
    sections = [(key, name, section(page)) for key, name, section in SECTIONS]
    title = escaped(content.title)
    links = "".join(f'<li><a href="#{key}">{name}</a></li>' for key, name, _ in sections)
    body = "".join(f'<section id="{key}"><h2>{name}</h2>{inside}</section>\n' for key, name, inside in sections)
    # Even if a name slipped through unescaped, nothing but the script below would run and nothing would be fetched.
    digest = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    style = files(__package__).joinpath("report.css").read_text(encoding="utf-8")
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><title>{title}</title>\n<style>\n{style}</style></head>\n'
        f'<body>{thumbnails(page)}<header><p class="kind">kernelweave report</p><h1><bdi>{title}</bdi></h1>'
        f'<nav aria-label="Sections"><ul>{links}</ul></nav></header>\n<main>{body}</main>\n'
        "<footer><p>Written by kernelweave. This file stands alone: it fetches nothing.</p></footer>\n"
        f"<script>{_SCRIPT}</script></body></html>\n"
    )


_SCRIPT = """
"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells].filter((head, i) => i === 0 || head.classList.contains("number"));
  for (const head of heads) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const number = head.classList.contains("number");
      // Numbers start with the largest, names with the first.
      const down = head.ariaSort ? head.ariaSort === "ascending" : number;
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = (row) => {
        const cell = row.cells[head.cellIndex];
        if (!number) return cell.textContent;
        return cell.dataset.value === undefined ? parseFloat(cell.textContent) : +cell.dataset.value;
      };
      const compare = (a, b) => (number ? a - b : a.localeCompare(b)) * (down ? -1 : 1);
      const missing = (value) => +Number.isNaN(value);
      const rows = [...table.tBodies[0].rows].map((row) => [key(row), row]);
      rows.sort(([a], [b]) => missing(a) - missing(b) || compare(a, b));
      table.tBodies[0].append(...rows.map(([, row]) => row));
    });
  }
}
const open = () => document.getElementById(location.hash.slice(1))?.closest("details")?.setAttribute("open", "");
addEventListener("hashchange", open);
open();
"""
