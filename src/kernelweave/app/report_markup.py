"""Words, numbers and small pieces of HTML that the sections of the report are put together from."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Sequence

#: What no page can show: control characters, and the halves of characters that undecodable file names come with.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")

#: A table with more rows has a height of its own and scrolls, so that what comes after it is not out of sight.
_LONG = 30


def escaped(text: object) -> str:
    """Text as it may stand in a page, between tags or in a quoted attribute.

    Examples
    --------
    >>> from kernelweave.app.report_markup import escaped
    >>> escaped('<b>"cats" & dogs')
    '&lt;b&gt;&quot;cats&quot; &amp; dogs'
    """
    return html.escape(_UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", str(text)))


def isolated(text: object) -> str:
    """Text of the user's, escaped, whose direction of writing does not spill into the words around it."""
    return f"<bdi>{escaped(text)}</bdi>"


def decimal(value: float) -> str:
    """A number with three decimals, or a dash for NaN."""
    return "–" if math.isnan(value) else f"{value:.3f}"


def percent(share: float) -> str:
    """A share in per cent with two digits that count.

    Examples
    --------
    >>> from kernelweave.app.report_markup import percent
    >>> percent(0.000058), percent(0.314), percent(4e-15), percent(0.0), percent(1.0)
    ('0.0058%', '31%', 'less than 0.0001%', '0%', '100%')
    """
    if math.isnan(share):
        return "–"
    if 0 < share < 1e-6:
        return "less than 0.0001%"
    return f"{100 * share:.0f}%" if abs(share) >= 0.1 or share == 0 else f"{100 * share:.2g}%"


def count(number: int, noun: str) -> str:
    """A number of things.

    Examples
    --------
    >>> from kernelweave.app.report_markup import count
    >>> count(1, "picture"), count(2500, "picture")
    ('1 picture', '2,500 pictures')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def left_out(number: int, noun: str, which: str) -> str:
    """A line on what did not fit in; empty if everything did."""
    return f'<p class="more">and {count(number, f"more {noun}")} {which}</p>' if number > 0 else ""


def paragraph(*sentences: str) -> str:
    return f"<p>{' '.join(filter(None, sentences))}</p>"


def explain(*sentences: str) -> str:
    """A paragraph for those who are new to a word or a chart."""
    return f'<p class="explain">{" ".join(filter(None, sentences))}</p>'


def nothing(text: str) -> str:
    """A line where there is nothing to show."""
    return f'<p class="nothing">{text}</p>'


def terms(meanings: dict[str, str], kind: str) -> str:
    """A list of terms and what they mean, or of facts and their values; HTML in, HTML out."""
    inside = "".join(f"<div><dt>{word}</dt><dd>{meaning}</dd></div>" for word, meaning in meanings.items())
    return f'<dl class="{kind}">{inside}</dl>' if inside else ""


def head(name: object) -> str:
    """The cell that names a row of a table."""
    return f'<th scope="row">{isolated(name)}</th>'


def cell(value: float) -> str:
    """A number in a table, with the value to sort by."""
    if math.isnan(value):
        return '<td class="number">–</td>'
    text = f"{value:,}" if isinstance(value, int) else f"{value:.3f}"
    return f'<td class="number" data-value="{value:.6g}">{text}</td>'


def table(heads: Sequence[str], rows: Sequence[str], kind: str) -> str:
    """A table that scrolls if it is wider than the page or long; heads that start with # are above numbers."""
    frame = "wide long" if len(rows) > _LONG else "wide"
    cells = "".join(
        f'<th scope="col" class="number">{name[1:]}</th>' if name.startswith("#") else f'<th scope="col">{name}</th>'
        for name in heads
    )
    return (
        f'<div class="{frame}" tabindex="0"><table class="{kind}"><thead><tr>{cells}</tr></thead>\n'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )
