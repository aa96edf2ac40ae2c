"""How figures, rows and durations are written for people; nothing else in the house formats."""

import io
import math
import shutil
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from results.cell import Cell
from results.figure import Figure, Summary

WIDTH = 78

LABELS = {
    "ttft.p50": "TTFT p50",
    "ttft.p90": "TTFT p90",
    "tpot.p50": "TPOT p50",
    "interactivity.p50": "interactivity p50",
    "interactivity.p90": "interactivity p90",
    "output_rate": "output",
    "output_rate_per_gpu": "output per GPU",
    "total_rate_per_gpu": "input + output per GPU",
    "cache_hit": "cache hit",
    "cache_ceiling": "cache ceiling",
    "requests": "requests",
    "ok": "ok",
    "failed": "failed",
    "cut": "cut",
    "goodput": "goodput",
    "batch_size": "batch size",
    "prompt": "prompt length",
    "batch_tpot": "TPOT",
    "batch_rate": "output",
    "batch_rate_per_gpu": "output per GPU",
}

Written = Callable[[Figure], str]

_ABSENT = Figure(value=None, unit="count", n=0, reason="not measured")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """What a value is multiplied by to be shown, and the unit it then has."""

    factor: float
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A heading, and whether what stands under it is a number."""

    name: str
    number: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """A table as text, before it is drawn on a terminal or a page."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def figure(summary: Summary, key: str) -> Figure:
    """The summary's figure of that key, or an absent one."""
    return summary.figures.get(key, _ABSENT)


def present(figure: Figure) -> bool:
    """Whether there is a number to show."""
    return figure.value is not None and math.isfinite(figure.value)


def scale(value: float, unit: str) -> Scale:
    """The scale in which a value of that unit reads best."""
    match unit:
        case "s" | "s/token":
            # 0.9996 s would round to 1,000 ms.
            small = abs(value) < 0.9995
            return Scale(factor=1000.0 if small else 1.0, unit="ms" if small else "s")
        case "share":
            return Scale(factor=100.0, unit="%")
        case "count":
            return Scale(factor=1.0, unit="")
        case _:
            return Scale(factor=1.0, unit=unit)


def number(value: float, decimals: int | None = None) -> str:
    """The value with thousands separated, to three significant digits unless decimals are given."""
    if decimals is None:
        decimals = _decimals(value)
    return f"{value:,.{decimals}f}"


def counted(count: int, noun: str) -> str:
    """So many of them: `1 request`, `1,200 requests`."""
    return f"{number(count, 0)} {noun}{'' if count == 1 else 's'}"


def show(figure: Figure, *, unit: bool = True) -> str:
    """The figure with its unit: `812 ms`, `~1.20 s`, `n too small`, `n/a`.

    Without `unit`, units that a heading can carry are left off; a scaled one never is.
    """
    if not present(figure) or figure.value is None:
        return "n too small" if "too small" in (figure.reason or "") else "n/a"
    approximate = "~" if figure.reason else ""
    fit = scale(figure.value, figure.unit)
    shown = number(figure.value * fit.factor, _figure_decimals(figure, fit))
    return approximate + shown + _suffix(fit, unit=unit)


def interval(figure: Figure, *, unit: bool = True) -> str:
    """The figure's 95 % interval in the figure's own scale: `790–850 ms`; `n/a` without one."""
    if not present(figure) or figure.value is None or figure.low is None or figure.high is None:
        return "n/a"
    if not math.isfinite(figure.low) or not math.isfinite(figure.high):
        return "n/a"
    fit = scale(figure.value, figure.unit)
    decimals = _figure_decimals(figure, fit)
    low, high = (number(end * fit.factor, decimals) for end in (figure.low, figure.high))
    return f"{low}–{high}{_suffix(fit, unit=unit)}"


def doubt(figure: Figure) -> str:
    """How sure a figure is: its interval and its n."""
    known = interval(figure, unit=False)
    return f"{'no interval' if known == 'n/a' else known}, n {number(figure.n, 0)}"


def bare(figure: Figure) -> str:
    """The figure without a unit that its heading has."""
    return show(figure, unit=False)


def doubted(figure: Figure, *, unit: bool = False) -> str:
    """The figure, and on a second line how sure it is."""
    shown = show(figure, unit=unit)
    return f"{shown}\n{doubt(figure)}" if present(figure) else shown


def duration(seconds: float) -> str:
    """A length of time: `12.3 s`, `4 min 10 s`, `1 h 02 min`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def level(cell: Cell) -> str:
    """How much load the cell puts on: `closed 8`, `open 0.5/s`, `recorded 2x`."""
    value = f"{pressure(cell):g}"
    match cell.load.get("kind"):
        case "open":
            return f"open {value}/s"
        case "recorded":
            return f"recorded {value}x"
        case kind:
            return f"{kind or 'load'} {value}"


def pressure(cell: Cell) -> float:
    """The number by which load levels are ordered: concurrency, rate or speed."""
    keys = {"open": "rate", "recorded": "speed"}
    return float(cell.load.get(keys.get(cell.load.get("kind", ""), "concurrency")) or 0)


def settings(cell: Cell) -> dict[str, str]:
    """What the cell is besides its arm and its load level, in words."""
    shape = {key: value for key, value in cell.load.items() if key in {"process", "burstiness"}}
    told = {"workload": cell.workload.get("kind"), **cell.workload, **shape}
    left_out = {"kind", "requests"} if is_batch(cell) else {"kind"}
    return {key: str(value) for key, value in told.items() if key not in left_out}


def differing(told: Sequence[Mapping[str, str]]) -> tuple[str, ...]:
    """The settings in which not all are alike."""
    keys = dict.fromkeys(key for one in told for key in one)
    return tuple(key for key in keys if len({one.get(key) for one in told}) > 1)


def place(cell: Cell, keys: Iterable[str] = ()) -> str:
    """Where in its experiment the cell stands: load level, or batch size, and those settings."""
    told = settings(cell)
    first = f"batch {cell.workload.get('requests', '?')}" if is_batch(cell) else level(cell)
    return ", ".join([first, *(f"{key} {told[key]}" for key in keys if key in told)])


def is_batch(cell: Cell) -> bool:
    """Whether the cell is a fixed batch, which has columns and charts of its own."""
    return bool(cell.workload.get("kind") == "batch")


def mark(summaries: Iterable[Summary]) -> str:
    """What must be said beside every number of these: `SIMULATED`, or nothing where measured."""
    provenances = {summary.provenance for summary in summaries} - {None}
    words = {
        "simulated": "SIMULATED",
        "plumbing": "PLUMBING: real code, but its speed means nothing",
    }
    marks = [word for name, word in words.items() if name in provenances]
    if marks and "measured" in provenances:
        return "partly " + " and ".join(marks)
    return " and ".join(marks)


def outcome(summary: Summary) -> str:
    """The status as it is shown: a finished point that must not be used is `INVALID`."""
    return "INVALID" if summary.status == "finished" and summary.problems else summary.status


def why(summary: Summary) -> str:
    """Why the summary is not valid."""
    reasons = [summary.reason] if summary.reason else []
    return "; ".join([*reasons, *summary.problems]) or "no reason was recorded"


def request_sheet(summaries: Sequence[Summary], written: Written) -> Sheet:
    """One row a cell of request load, whatever became of it; goodput where limits were set."""
    limited = any(limit for summary in summaries for limit in summary.cell.objectives.values())
    times = ("ttft.p50", "ttft.p90", "tpot.p50")
    rates = ("interactivity.p90", "output_rate", "output_rate_per_gpu")
    columns = (
        *_text("experiment", "arm", "load"),
        *_numbers("repeats", "requests", "ok, failed, cut", "TTFT p50", "TTFT p90", "TPOT p50"),
        *_numbers("tok/s/user p90", "output tok/s", "tok/s/GPU", "cache hit (ceiling)"),
        *(_numbers("goodput req/s") if limited else ()),
        *_text("status"),
    )
    rows = tuple(
        (
            summary.cell.experiment,
            summary.cell.arm,
            where,
            str(summary.repeats),
            show(figure(summary, "requests")),
            _ends(summary),
            *(written(figure(summary, key)) for key in (*times, *rates)),
            _cache(summary),
            *([written(figure(summary, "goodput"))] if limited else ()),
            status(summary, summaries),
        )
        for summary, where in zip(summaries, _places(summaries), strict=True)
    )
    told = notes(summaries, (*times, *rates, "cache_hit", "goodput"))
    return Sheet(title=headed("Results", summaries), columns=columns, rows=rows, notes=told)


def batch_sheet(summaries: Sequence[Summary], written: Written) -> Sheet:
    """One row a cell of fixed batches, whatever became of it."""
    columns = (
        *_text("experiment", "arm", "batch"),
        *_numbers("repeats", "n", "TPOT", "output tok/s", "tok/s/GPU"),
        *_text("status"),
    )
    keys = ("batch_tpot", "batch_rate", "batch_rate_per_gpu")
    rows = tuple(
        (
            summary.cell.experiment,
            summary.cell.arm,
            where,
            str(summary.repeats),
            number(figure(summary, "batch_tpot").n, 0),
            *(written(figure(summary, key)) for key in keys),
            status(summary, summaries),
        )
        for summary, where in zip(summaries, _places(summaries), strict=True)
    )
    heading = headed("Fixed batches", summaries)
    return Sheet(title=heading, columns=columns, rows=rows, notes=notes(summaries, keys))


def sheets(summaries: Sequence[Summary], *, doubts: bool = False) -> list[Sheet]:
    """The tables of a run, requests and fixed batches, on demand with each figure's doubt."""
    written = doubted if doubts else bare
    batches = [summary for summary in summaries if is_batch(summary.cell)]
    requests = [summary for summary in summaries if not is_batch(summary.cell)]
    made = [request_sheet(requests, written)] if requests or not batches else []
    return [*made, *([batch_sheet(batches, written)] if batches else [])]


def summary_table(summaries: Sequence[Summary], width: int | None = None) -> str:
    """The tables of a run for a terminal of that width, or of the terminal's own."""
    return "\n\n".join(drawn(sheet, width) for sheet in sheets(summaries))


def plan_table(rows: Sequence[Mapping[str, str]], width: int | None = None) -> str:
    """What would run: one row a point, one column a key, in the order they first appear."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    sheet = Sheet(
        title=f"Plan: {counted(len(rows), 'point')}",
        columns=_text(*names),
        rows=tuple(tuple(row.get(name, "") for name in names) for row in rows),
    )
    return drawn(sheet, width)


def drawn(sheet: Sheet, width: int | None = None) -> str:
    """The sheet as a table where one fits the width, else as paragraphs; without colours."""
    width = width or shutil.get_terminal_size().columns
    console = Console(file=io.StringIO(), width=width, color_system=None, force_terminal=False)
    table = rich_table(sheet)
    needed = console.measure(table, options=console.options.update(width=10_000)).minimum
    if not sheet.rows or needed > width:
        return plain(sheet, min(width, WIDTH))
    with console.capture() as capture:
        console.print(table)
    lines = [line.rstrip() for line in capture.get().splitlines()]
    return "\n".join([*lines, *sheet.notes])


def rich_table(sheet: Sheet) -> Table:
    """The sheet as a rich table, its notes left out."""
    # Text objects, because a name such as `[bold]` would be taken for markup.
    table = Table(title=Text(sheet.title), title_justify="left", box=box.SIMPLE_HEAD)
    for column in sheet.columns:
        if column.number:
            heading = Text(column.name.replace(" ", "\n"))
            table.add_column(heading, justify="right", no_wrap=True)
        else:
            table.add_column(Text(column.name))
    for row in sheet.rows:
        table.add_row(*(Text(value) for value in row))
    return table


def plain(sheet: Sheet, width: int = WIDTH) -> str:
    """The sheet as text for narrow terminals and logs: a paragraph a row."""
    lines = [sheet.title]
    for row in sheet.rows:
        head = [
            value
            for column, value in zip(sheet.columns[:3], row, strict=False)
            if not column.number
        ]
        rest = [
            f"{column.name} {value}"
            for column, value in list(zip(sheet.columns, row, strict=True))[len(head) :]
        ]
        lines += ["", _wrapped(", ".join(head), width), _wrapped("; ".join(rest), width, "    ")]
    if not sheet.rows:
        lines += ["", "n/a: no points"]
    if sheet.notes:
        lines += ["", *(_wrapped(note, width) for note in sheet.notes)]
    return "\n".join(lines)


def status(summary: Summary, beside: Iterable[Summary]) -> str:
    """The outcome, with its provenance where rows of another provenance stand beside it."""
    mixed = len({other.provenance for other in beside} - {None}) > 1
    suffix = f", {summary.provenance}" if mixed and summary.provenance else ""
    return outcome(summary) + suffix


def headed(words: str, summaries: Iterable[Summary]) -> str:
    """A heading that says so where its numbers are not measured ones."""
    marked = mark(summaries)
    return f"{words} ({marked})" if marked else words


def notes(summaries: Sequence[Summary], keys: Iterable[str]) -> tuple[str, ...]:
    """Why rows are not valid, figures approximate or absent, and intervals missing."""
    lines = [
        f"{summary.cell.experiment}, {summary.cell.arm}, {where}: "
        f"{outcome(summary)}: {why(summary)}"
        for summary, where in zip(summaries, _places(summaries), strict=True)
        if not summary.valid
    ]
    for key in keys:
        figures = [figure(one, key) for one in summaries if one.status == "finished"]
        shown = [one for one in figures if present(one)]
        name = LABELS.get(key, key)
        absent = [one.reason for one in figures if not present(one) and one is not _ABSENT]
        lines += _told_once(f"{name} not shown", absent)
        lines += _told_once(f"~ {name}", [one.reason for one in shown])
        lines += _told_once(f"{name} without interval", [one.doubt for one in shown])
    return tuple(dict.fromkeys(lines))


def _told_once(name: str, reasons: Iterable[str | None]) -> list[str]:
    """The first reason, and how many others there are: they differ only in their counts."""
    found = list(dict.fromkeys(filter(None, reasons)))
    more = f" (and {len(found) - 1} more of the kind)" if len(found) > 1 else ""
    return [f"{name}: {found[0]}{more}"] if found else []


def _places(summaries: Sequence[Summary]) -> list[str]:
    """The place of each summary, with the settings that differ within its experiment."""
    told: dict[str, list[Mapping[str, str]]] = {}
    for summary in summaries:
        told.setdefault(summary.cell.experiment, []).append(settings(summary.cell))
    keys = {experiment: differing(members) for experiment, members in told.items()}
    return [place(summary.cell, keys[summary.cell.experiment]) for summary in summaries]


def _ends(summary: Summary) -> str:
    """How many requests went well, failed and were cut."""
    counts = [figure(summary, key) for key in ("ok", "failed", "cut")]
    return "/".join(map(show, counts)) if any(map(present, counts)) else "n/a"


def _cache(summary: Summary) -> str:
    """The cache hit share beside the highest one possible: `61.0 % (70.2 %)`."""
    hit, ceiling = figure(summary, "cache_hit"), figure(summary, "cache_ceiling")
    return f"{show(hit)} ({show(ceiling)})" if present(hit) and present(ceiling) else show(hit)


def _text(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name=name, number=False) for name in names)


def _numbers(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name=name) for name in names)


def _decimals(value: float) -> int:
    if not value or abs(value) >= 100:
        return 0
    return max(0, 2 - math.floor(math.log10(abs(float(f"{value:.3g}")))))


def _figure_decimals(figure: Figure, fit: Scale) -> int:
    value = (figure.value or 0.0) * fit.factor
    if figure.unit in {"count", "tokens"} and value.is_integer():
        return 0
    return 1 if figure.unit == "share" else _decimals(value)


def _suffix(fit: Scale, *, unit: bool) -> str:
    kept = unit or fit.unit in {"s", "ms", "%"}
    return f" {fit.unit}" if kept and fit.unit else ""


def _wrapped(words: str, width: int, indent: str = "") -> str:
    return textwrap.fill(
        words, width, initial_indent=indent, subsequent_indent="    ", break_on_hyphens=False
    )
