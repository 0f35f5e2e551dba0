"""Small charts for a page: HTML with inline SVG, no library and no script.

Colours, line widths and letters come from the style sheet of the page (``report.css``) by class, so that a chart is
right in light and in dark mode. Every chart says in words what it shows, for those who cannot see it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .report_markup import escaped

Floats = NDArray[np.float64]

#: Points of a curve that are drawn; more would not be seen.
_MOST_POINTS = 64
#: Width of a letter in the charts, and of a cell of the heat map with and without a number in it, in pixels.
_LETTER, _WIDE, _NARROW = 7.2, 58, 24
_ROW = 24
#: So many columns of a heat map leave room for numbers.
_COLUMNS_WITH_NUMBERS = 10
#: A cell with less than this share of the largest value has no number.
_FAINT = 0.01
_LONGEST_NAME = 34


def shortened(text: str, longest: int = _LONGEST_NAME) -> str:
    """The text, or its start and end with an ellipsis between them, at most `longest` characters.

    Examples
    --------
    >>> from kernelweave.app.report_charts import shortened
    >>> shortened("a rather long name", 11)
    'a rathe…ame'
    """
    if len(text) <= longest:
        return text
    tail = longest // 3
    return f"{text[: longest - tail - 1]}…{text[-tail:]}"


def horizontal_bars(names: Sequence[str], values: Sequence[float], largest: float) -> str:
    """Bars from left to right, each with its name and its number.

    Parameters
    ----------
    names : sequence of str
    values : sequence of float, not negative
    largest : float
        The value of a bar of full length, so that bars of several charts can be compared.

    Returns
    -------
    str
        HTML.

    Examples
    --------
    >>> from kernelweave.app.report_charts import horizontal_bars
    >>> horizontal_bars(["colour", "texture"], [0.5, 0.25], largest=0.5).count("<li>")
    2
    """
    # Small weights need more decimals to differ.
    decimals = 3 if largest <= 0 else max(3, 2 - math.floor(math.log10(largest)))
    rows = "".join(
        f'<li><span class="name" title="{escaped(name)}"><bdi>{escaped(name)}</bdi></span>'
        '<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="track" width="100" height="10"/>'
        f'<rect class="fill" width="{_px(100 * value / largest if largest > 0 else 0)}" height="10"/></svg>'
        f'<span class="number">{value:.{decimals}f}</span></li>'
        for name, value in zip(names, values, strict=True)
    )
    return f'<ul class="bars">{rows}</ul>'


@dataclass(frozen=True)
class Line:
    """A line of a chart: x and y of shape (n_points,); one that is marked stands out and is drawn over the others."""

    name: str
    x: Floats
    y: Floats
    marked: bool = True


def line_chart(lines: Sequence[Line], x_title: str, y_title: str, what: str) -> str:
    """Lines over a linear horizontal and a logarithmic vertical axis.

    Parameters
    ----------
    lines : sequence of Line
        Values that are not finite are left out; those at or below zero, which have no logarithm, lie on the floor.
    x_title, y_title : str
    what : str
        What the chart shows, in words.

    Returns
    -------
    str
        HTML; empty if there is nothing to draw.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.app.report_charts import Line, line_chart
    >>> chart = line_chart([Line("gap", np.arange(3.0), np.array([1.0, 0.1, 0.01]))], "iteration", "gap", "The gap.")
    >>> chart.count("<path"), ">0.1</text>" in chart
    (1, True)
    """
    finite = [(line, np.isfinite(line.x) & np.isfinite(line.y)) for line in lines]
    drawn = [(line, line.x[keep], line.y[keep]) for line, keep in finite if keep.any()]
    if not drawn:
        return ""
    box = _Box(left=62, top=12, width=400, height=210)
    y_all = np.concatenate([y for _, _, y in drawn])
    positive = y_all[y_all > 0]
    bottom, top = _decades(positive)
    x_all = np.concatenate([x for _, x, _ in drawn])
    x_low, x_high = float(x_all.min()), max(float(x_all.max()), float(x_all.min()) + 1.0)

    def across(x: Floats) -> Floats:
        return box.left + box.width * (x - x_low) / (x_high - x_low)

    def up(y: Floats) -> Floats:
        floored = np.maximum(y, 10.0**bottom)
        return box.top + box.height * (top - np.log10(floored)) / (top - bottom)

    step = -(-(top - bottom) // 6)
    parts = []
    for exponent in range(top, bottom - 1, -step):
        at = _px(up(np.array([10.0**exponent]))[0])
        parts.append(f'<line class="grid" x1="{box.left}" x2="{box.right}" y1="{at}" y2="{at}"/>')
        parts.append(f'<text class="tick end" x="{box.left - 8}" y="{at}" dy="4">{10.0**exponent:g}</text>')
    for tick in _whole_ticks(x_low, x_high):
        at = _px(across(np.array([tick]))[0])
        parts.append(f'<text class="tick middle" x="{at}" y="{box.bottom + 18}">{tick:g}</text>')
    parts.append(_axis_titles(box, x_title, y_title))
    for line, x, y in sorted(drawn, key=lambda entry: entry[0].marked):
        points = " L".join(f"{_px(px)} {_px(py)}" for px, py in zip(across(x), up(y), strict=True))
        kind, title = "marked" if line.marked else "plain", f"<title>{escaped(line.name)}</title>"
        parts.append(f'<path class="line {kind}" d="M{points}">{title}</path>')
        if line.marked:
            parts.extend(
                f'<circle class="dot" cx="{_px(px)}" cy="{_px(py)}" r="2.6"/>'
                for px, py in zip(across(x), up(y), strict=True)
                if len(x) <= _MOST_POINTS
            )
    return _svg("chart", box.right + 12, box.bottom + 44, what, "".join(parts))


def recall_chart(recall: Floats, precision: Floats, baseline: float, what: str, large: bool = False) -> str:
    """A precision-recall curve in a unit square.

    The area under the curve is the average precision, for it is drawn as steps: on the way to a hit it has the
    precision at that hit.

    Parameters
    ----------
    recall, precision : arrays of shape (n_points,)
        At every picture with the label, best first; recall does not fall.
    baseline : float
        The precision of guessing, drawn as a dashed line.
    what : str
        What the chart shows, in words.
    large : bool, default=False
        Whether there is room for numbers and titles at the axes.

    Returns
    -------
    str
        HTML.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.app.report_charts import recall_chart
    >>> 'aria-label="A curve."' in recall_chart(np.array([0.5, 1.0]), np.array([1.0, 0.8]), 0.5, "A curve.")
    True
    """
    box = _Box(left=52, top=10, width=300, height=230) if large else _Box(left=1, top=1, width=158, height=96)
    ticks = (0.0, 0.25, 0.5, 0.75, 1.0) if large else (0.5,)
    parts = [f'<rect class="frame" x="{box.left}" y="{box.top}" width="{box.width}" height="{box.height}"/>']
    for tick in ticks:
        x, y = _px(box.left + box.width * tick), _px(box.bottom - box.height * tick)
        parts.append(f'<line class="grid" x1="{box.left}" x2="{box.right}" y1="{y}" y2="{y}"/>')
        parts.append(f'<line class="grid" x1="{x}" x2="{x}" y1="{box.top}" y2="{box.bottom}"/>')
        if large:
            parts.append(f'<text class="tick end" x="{box.left - 8}" y="{y}" dy="4">{tick:g}</text>')
            parts.append(f'<text class="tick middle" x="{x}" y="{box.bottom + 18}">{tick:g}</text>')
    level = _px(box.bottom - box.height * baseline)
    parts.append(f'<line class="baseline" x1="{box.left}" x2="{box.right}" y1="{level}" y2="{level}"/>')
    parts.append(_steps(box, recall, precision))
    if large:
        parts.append(_axis_titles(box, "recall: share of those with the label that are found", "precision"))
        return _svg("chart square", box.right + 12, box.bottom + 44, what, "".join(parts))
    return _svg("small", box.right + 1, box.bottom + 1, what, "".join(parts))


def sparkline(recall: Floats, precision: Floats) -> str:
    """A precision-recall curve the size of a word; decoration beside numbers, hidden from screen readers.

    Parameters
    ----------
    recall, precision : arrays of shape (n_points,)
        As in `recall_chart`.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.app.report_charts import sparkline
    >>> sparkline(np.array([1.0]), np.array([1.0])).startswith("<svg")
    True
    """
    box = _Box(left=0, top=1, width=72, height=20)
    curve = _steps(box, recall, precision, points=24)
    return f'<svg class="spark" viewBox="0 0 72 22" width="72" height="22" aria-hidden="true">{curve}</svg>'


def heat_map(values: Floats, rows: Sequence[str], columns: Sequence[str], what: str) -> str:
    """A matrix as coloured cells: the stronger the colour, the farther from zero; another colour below zero.

    A few columns leave room for numbers, which cells near zero go without: what matters is easier to see.

    Parameters
    ----------
    values : array of shape (n_rows, n_columns)
        NaN where there is nothing to show.
    rows, columns : sequences of str
        Their names.
    what : str
        What the chart shows, in words.

    Returns
    -------
    str
        HTML.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.app.report_charts import heat_map
    >>> heat_map(np.array([[0.2, 0.8]]), ["colour"], ["sky", "sea"], "Weights.").count('class="cell')
    2
    """
    numbered = len(columns) <= _COLUMNS_WITH_NUMBERS
    cell = _WIDE if numbered else _NARROW
    row_names, column_names = [shortened(name) for name in rows], [shortened(name) for name in columns]
    left = 12 + math.ceil(_LETTER * max(map(len, row_names)))
    longest = max(map(len, column_names))
    upright = numbered and longest * _LETTER <= cell - 4
    # Slanted names rise by their length times the sine of 50 degrees and reach out to the right by its cosine.
    top = 24 if upright else 14 + math.ceil(0.77 * _LETTER * longest)
    reach = 8 if upright else 8 + math.ceil(0.64 * _LETTER * longest)
    largest = float(np.nanmax(np.abs(values), initial=0.0)) or 1.0
    parts = []
    for j, (name, full) in enumerate(zip(column_names, columns, strict=True)):
        x = left + cell * j + cell / 2
        place = f'class="tick middle" x="{_px(x)}" y="{top - 8}"'
        if not upright:
            place = f'class="tick" transform="translate({_px(x)} {top - 6}) rotate(-50)"'
        parts.append(f"<text {place}>{escaped(name)}<title>{escaped(full)}</title></text>")
    for i, (name, full) in enumerate(zip(row_names, rows, strict=True)):
        y = top + _ROW * i
        parts.append(
            f'<text class="tick end" x="{left - 8}" y="{y + 16}">{escaped(name)}<title>{escaped(full)}</title></text>'
        )
        for j, column in enumerate(columns):
            words = f"{full}, {column}: {_cell_text(values[i, j])}"
            parts.append(_cell(float(values[i, j]), largest, (left + cell * j, y, cell), numbered, words))
    width, height = left + cell * len(columns) + reach, top + _ROW * len(rows) + 4
    return f'<div class="wide" tabindex="0">{_svg("heat", width, height, what, "".join(parts))}</div>'


def _cell(value: float, largest: float, place: tuple[float, float, float], numbered: bool, words: str) -> str:
    """One cell of a heat map at (x, y, width), with its number if there is room."""
    x, y, width = place
    known = not math.isnan(value)
    strength = abs(value) / largest if known else 0.0
    sign = "minus" if known and value < 0 else "plus"
    drawn = (
        f'<rect class="empty" x="{x + 1}" y="{y + 1}" width="{width - 2}" height="{_ROW - 2}" rx="2"/>'
        f'<rect class="cell {sign}" x="{x + 1}" y="{y + 1}" width="{width - 2}" height="{_ROW - 2}" rx="2" '
        f'fill-opacity="{strength:.2f}"><title>{escaped(words)}</title></rect>'
    )
    if numbered and strength >= _FAINT:
        # What is legible on a colour of middling strength depends on whether the page is light or dark.
        shade = "on-weak" if strength < 0.55 else "on-middle" if strength < 0.78 else "on-strong"
        drawn += f'<text class="value {shade}" x="{_px(x + width / 2)}" y="{y + 16}">{_cell_text(value)}</text>'
    return drawn


def _cell_text(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.2f}"


@dataclass(frozen=True)
class _Box:
    """Where the lines of a chart go, in pixels from the top left."""

    left: int
    top: int
    width: int
    height: int

    @property
    def right(self) -> int:
        return self.left + self.width

    @property
    def bottom(self) -> int:
        return self.top + self.height


def _svg(kind: str, width: float, height: float, what: str, inside: str) -> str:
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return f'<svg class="{kind}" {size} role="img" aria-label="{escaped(what)}">{inside}</svg>'


def _axis_titles(box: _Box, x_title: str, y_title: str) -> str:
    middle_x, middle_y = box.left + box.width / 2, box.top + box.height / 2
    return (
        f'<text class="title middle" x="{_px(middle_x)}" y="{box.bottom + 38}">{escaped(x_title)}</text>'
        f'<text class="title middle" transform="translate(12 {_px(middle_y)}) rotate(-90)">{escaped(y_title)}</text>'
    )


def _steps(box: _Box, recall: Floats, precision: Floats, points: int = _MOST_POINTS) -> str:
    """A curve in steps and the area under it; the last point is always kept."""
    keep = np.unique(np.linspace(0, len(recall) - 1, min(points, len(recall))).round().astype(int))
    xs = [_px(box.left + box.width * value) for value in recall[keep]]
    ys = [_px(box.bottom - box.height * value) for value in precision[keep]]
    if not xs:
        return ""
    path = f"M{box.left} {ys[0]} " + " ".join(f"V{y} H{x}" for x, y in zip(xs, ys, strict=True))
    return f'<path class="area" d="{path} V{box.bottom} H{box.left} Z"/><path class="line marked" d="{path}"/>'


def _decades(positive: Floats) -> tuple[int, int]:
    """Powers of ten below and above all values, at least one apart."""
    if not len(positive):
        return -1, 0
    bottom, top = math.floor(np.log10(positive.min())), math.ceil(np.log10(positive.max()))
    return bottom, max(top, bottom + 1)


def _whole_ticks(low: float, high: float) -> list[float]:
    """At most about six round whole numbers between two values."""
    rough = max((high - low) / 5, 1.0)
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough)
    return [float(tick) for tick in np.arange(math.ceil(low / step) * step, high + step / 1e6, step)]


def _px(value: float) -> str:
    """A length in pixels, to a tenth."""
    return f"{value:.1f}".removesuffix(".0")
