"""The pieces of a page: sections, tables, charts and lists, every name in them escaped."""

import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path

import orjson
from plotly.offline import get_plotlyjs

from reports.charts import Chart
from reports.tables import Column, Sheet
from results import document
from results.evidence import Provenance

BANNERS = {
    "simulated": "SIMULATED. These numbers come from a model of an engine, not from an engine: "
    "they say nothing of real hardware beyond what the model was fitted to.",
    "plumbing": "PLUMBING. Real engine code ran where its speed means nothing: these numbers show "
    "that everything works, and not how fast anything is.",
}

BAD = frozenset(("invalid", "worse", "FAIL"))
"""What stands in a cell that a reader must not miss."""


def banner(provenances: Iterable[Provenance | None]) -> str:
    """What must be said on top of a page with numbers of these provenances."""
    told = set(provenances)
    partly = "Partly " if "measured" in told else ""
    return "".join(
        f'<p class="banner">{escape(partly + words)}</p>\n'
        for provenance, words in BANNERS.items()
        if provenance in told
    )


def section(heading: str, content: str) -> str:
    """A part of the page under a heading of its own; `content` is HTML."""
    return f'<section>\n<h2 dir="auto">{escape(heading)}</h2>\n{content}</section>\n'


def drawing(chart: Chart) -> str:
    """A chart with its title, what it leaves out, and its numbers as a table."""
    title = escape(chart.title)
    shown = "<p>n/a: no point can be drawn.</p>\n"
    if chart.figure is not None:
        # An opened angle bracket would let a name end the script.
        content = orjson.dumps(chart.figure).decode().replace("<", "\\u003c")
        shown = (
            f'<div class="chart" role="img" aria-label="{title}. The table below has its numbers.">'
            f'</div><script type="application/json">{content}</script>\n'
        )
    return f'<h3 dir="auto">{title}</h3>\n{shown}{notes(chart.missing)}{table(chart.sheet)}'


def table(sheet: Sheet) -> str:
    """A sheet as a table that can be scrolled sideways, its notes below it."""
    if not sheet.rows:
        return "<p>n/a: no points</p>\n"
    head = "".join(
        f'<th scope="col"{_kind(column)}>{escape(column.name)}</th>' for column in sheet.columns
    )
    # Rows that begin like the one above them show that beginning faintly.
    above, again = [None, *(row[0] for row in sheet.rows)], ' class="again"'
    body = "".join(
        f"<tr{again * (row[0] == name)}>{''.join(_cells(sheet.columns, row))}</tr>\n"
        for name, row in zip(above, sheet.rows, strict=False)
    )
    title = escape(sheet.title)
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{title}">\n<table>\n'
        f'<caption dir="auto">{title}</caption>\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{body}</tbody>\n</table>\n</div>\n{notes(sheet.notes)}"
    )


def _cells(columns: Sequence[Column], row: Sequence[str]) -> Iterator[str]:
    for place, (column, value) in enumerate(zip(columns, row, strict=True)):
        first, _, second = value.partition("\n")
        content = escape(first) + (f"<small>{_pieces(second)}</small>" if second else "")
        tag, scope = ("td", "") if place else ("th", ' scope="row"')
        attributes = _kind(column, bad=first in BAD or first.startswith("INVALID"))
        yield f"<{tag}{scope}{attributes}>{content}</{tag}>"


def _pieces(doubt: str) -> str:
    """The interval, the n and the runs, each of which stays on one line."""
    pieces = re.split(r"(?<=,) | (?=in )", doubt)
    return " ".join(f"<span>{escape(piece)}</span>" for piece in pieces)


def _kind(column: Column, *, bad: bool = False) -> str:
    if column.number:
        return ' class="number"'
    return f' class="text{" bad" if bad else ""}" dir="auto"'


def notes(lines: Iterable[str]) -> str:
    """Lines in small print; nothing where there are none."""
    items = "".join(f'<li dir="auto">{escape(line)}</li>\n' for line in lines)
    return f'<ul class="notes">\n{items}</ul>\n' if items else ""


def listed(facts: Iterable[tuple[str, str]]) -> str:
    """Names with what they stand for."""
    items = "".join(
        f'<dt>{escape(name)}</dt><dd dir="auto">{escape(value)}</dd>\n' for name, value in facts
    )
    return f"<dl>\n{items}</dl>\n"


def scripts() -> str:
    """The charting library and what draws with it, for a page that has charts."""
    return f"<script>{get_plotlyjs()}</script>\n<script>\n{file('page.js')}</script>\n"


def publish(page: str, path: Path) -> None:
    """Writes the page through a temporary name."""
    with document.published(path) as temporary:
        temporary.write_bytes(page.encode())


def file(name: str) -> str:
    """The text of a file that lies beside the reports' code."""
    return files("reports").joinpath(name).read_text(encoding="utf-8")
