"""Tables of a run: whole ones with every doubt for a page, brief ones for a terminal."""

import io
import re
import shutil
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rich import box
from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from reports.labels import differing, headed, is_batch, outcome, places, pressure, settings
from reports.notation import (
    Scale,
    bare,
    bounded,
    brief,
    counted,
    doubted,
    figure,
    harmless,
    harmless_lines,
    number,
    present,
    shared_scale,
    show,
)
from reports.notes import failed, limited, notes
from reports.steps import SCOPE, SHOWN, apart
from results.figure import Figure, RankShare, Summary
from results.scores import HEADLINE, asks
from results.steps import is_stepwise

WIDTH = 78
"""How wide paragraphs are at most."""

LOG = 120
"""How wide it is where there is no terminal."""

NARROW = 100
"""Terminals from this width on get a table, if need be without its spare columns."""

REQUEST = {
    "ttft.p50": "TTFT p50",
    "ttft.p90": "TTFT p90",
    "tpot.p50": "TPOT p50",
    "interactivity.p90": "tok/s/user p90",
    "output_rate": "output tok/s",
    "output_rate_per_gpu": "tok/s/GPU",
    "cache_hit": "cache hit",
}
SCHEDULED = {
    "arrival_rate": "sessions/s sent",
    "schedule_ttft.p50": "TTFT p50 from schedule",
}
LIMITED = {"goodput": "goodput req/s"}
BATCH = {
    "batch_tpot": "TPOT",
    "batch_rate": "output tok/s",
    "batch_rate_per_gpu": "tok/s/GPU",
}
"""The columns of figures, and their headings."""

ANSWERED = {
    "answers": "answers",
    "unanswered": "failed",
    "truncated": "truncated",
    "empty": "empty",
    "unparsed": "unparsed",
    "stopped": "stopped",
}
"""How many answers there are, and how many of them came to nothing."""

BATCHES, STEPS, ANSWERS = "Fixed batches", f"Steps ({SCOPE})", "Accuracy"
"""The titles of what is no load."""

ENDS = {"ok": "ok", "failed": "failed", "cut": "cut", "unsent": "never sent"}
"""What can become of a request, and how it is called."""

BOUNDED = frozenset((HEADLINE, "ttft.p50", "output_rate", "batch_tpot", "batch_rate"))
"""The figures whose interval a terminal shows."""

SIGNS = "± and (a–b) are 95 % intervals; intervals of the other columns: in the report"

SPARE = frozenset(("tpot.p50", "interactivity.p90", "cache_hit", "goodput"))
"""The figures that a terminal can do without."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A heading, the unit of what stands under it, and whether that is a number.

    `spare` columns are left out where a terminal is too narrow, the last one first.
    """

    name: str
    number: bool = True
    unit: str = ""
    spare: bool = False

    @property
    def heading(self) -> str:
        """The name with the unit."""
        return f"{self.name} {self.unit}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """A table as text, before it is drawn on a terminal or a page."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def headings(
    texts: Iterable[str], numbers: Iterable[str] = (), after: Iterable[str] = ()
) -> tuple[Column, ...]:
    """Columns of text, then of numbers, then of text again."""
    return (
        *(Column(name=name, number=False) for name in texts),
        *(Column(name=name) for name in numbers),
        *(Column(name=name, number=False) for name in after),
    )


Filled = tuple[Column, list[str]]
"""A column with what stands in it."""


def sheets(summaries: Sequence[Summary]) -> list[Sheet]:
    """The whole tables of a run, a row a cell whatever became of it, each figure with its doubt."""
    made = []
    for title, of_table, shown in _tables(summaries):
        made.append(_sheet(title, of_table, _whole(of_table, shown), shown))
        if any(summary.ranks for summary in of_table):
            made.append(_ranks(of_table))
    return made


def brief_sheets(summaries: Sequence[Summary]) -> list[Sheet]:
    """The tables of a run in few columns: what is alike in all rows is left out."""
    made = []
    for title, of_table, shown in _tables(summaries):
        sheet = _sheet(title + _runs(of_table), of_table, _brief(of_table, shown), shown)
        kept = (figure(one, key) for one in of_table for key in BOUNDED & shown.keys())
        signs = (SIGNS,) if any(map(bounded, kept)) else ()
        made.append(replace(sheet, notes=(*signs, *sheet.notes)))
    return made


def summary_table(summaries: Sequence[Summary], width: int | None = None) -> str:
    """The tables of a run for a terminal of that width, or of the terminal's own."""
    return "\n\n".join(drawn(sheet, width) for sheet in brief_sheets(summaries))


def drawn(sheet: Sheet, width: int | None = None) -> str:
    """The sheet as a table where one fits the width, else as paragraphs; without colours."""
    width = width or shutil.get_terminal_size((LOG, 24)).columns
    sheet = _harmless(sheet)
    fitting, left_out = sheet, list[str]()
    while (widths := _widths(fitting, width)) is None:
        spare = [place for place, column in enumerate(fitting.columns) if column.spare]
        if width < NARROW or not spare:
            break
        left_out.append(fitting.columns[spare[-1]].heading)
        fitting = _without(fitting, spare[-1])
    if widths is None or not sheet.rows:
        return plain(sheet, min(width, WIDTH))
    console = Console(file=io.StringIO(), width=width, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(_table(fitting, widths))
    lines = [line.rstrip() for line in capture.get().splitlines()]
    told = [f"left out, as the terminal is narrow: {', '.join(left_out)}"] if left_out else []
    return "\n".join([*lines, *(_wrapped(note, width) for note in (*sheet.notes, *told))])


def _harmless(sheet: Sheet) -> Sheet:
    """The sheet as a terminal may be shown it, whatever is called how."""
    return replace(
        sheet,
        title=harmless(sheet.title),
        rows=tuple(tuple(map(harmless_lines, row)) for row in sheet.rows),
        notes=tuple(map(harmless, sheet.notes)),
    )


def _table(sheet: Sheet, widths: Sequence[int]) -> Table:
    """The sheet as a rich table with columns of these widths, its notes left out."""
    # Text objects, because a name such as `[bold]` would be taken for markup.
    table = Table(
        title=Text(sheet.title),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    for column, width in zip(sheet.columns, widths, strict=True):
        side: JustifyMethod = "right" if column.number else "left"
        heading = Text("\n".join(_heading(column)))
        table.add_column(heading, justify=side, width=width, overflow="fold")
    for row in sheet.rows:
        table.add_row(*(Text(value) for value in row))
    return table


def _widths(sheet: Sheet, width: int) -> list[int] | None:
    """How wide each column is, or None where they do not fit.

    Of the columns of text, the widest gives way first, and none to less than its longest word.
    """
    values = [[row[place] for row in sheet.rows] for place in range(len(sheet.columns))]
    told = [
        [*_heading(column), *(line for value in of_column for line in value.splitlines())]
        for column, of_column in zip(sheet.columns, values, strict=True)
    ]
    widths = [max(map(cell_len, lines)) for lines in told]
    least = [
        wide if column.number else max(cell_len(word) for line in lines for word in line.split())
        for column, lines, wide in zip(sheet.columns, told, widths, strict=True)
    ]
    # A margin on either side, and two spaces between columns.
    room = width - 2 * len(widths)
    while sum(widths) > room:
        able = [place for place, wide in enumerate(widths) if wide > least[place]]
        if not able:
            return None
        widths[max(able, key=widths.__getitem__)] -= 1
    return widths


def _heading(column: Column) -> list[str]:
    """The lines of a heading: one over numbers should not be wider than they are."""
    if not column.number:
        return [column.heading]
    return re.sub(r" |(?<=s)(?=/[a-zA-Z]{2})", "\n", column.heading).splitlines()


def plain(sheet: Sheet, width: int = WIDTH) -> str:
    """The sheet as text for narrow terminals and logs: a paragraph a row."""
    lines = [sheet.title]
    for row in sheet.rows:
        cells = list(zip(sheet.columns, row, strict=True))
        head = [value for column, value in cells[:3] if not column.number]
        rest = [
            f"{column.name} {value} {column.unit if value != 'n/a' else ''}".rstrip()
            for column, value in cells[len(head) :]
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


def _tables(summaries: Sequence[Summary]) -> Iterator[tuple[str, list[Summary], Mapping[str, str]]]:
    """A table for each experiment, one for its fixed batches, one for its steps timed alone.

    Each with its title, its cells, and its figures.
    """
    groups: dict[tuple[str, str], list[Summary]] = {}
    for summary in (one for whole in summaries for one in apart(whole)):
        groups.setdefault((summary.cell.experiment, _title(summary)), []).append(summary)
    if not groups:
        yield "Results", [], {}
    for (experiment, title), members in groups.items():
        heading = f"{title}: {experiment}"
        limited = any(limit for one in members for limit in one.cell.objectives.values())
        scheduled = any(one.cell.load.get("kind") == "open" for one in members)
        shown = REQUEST | (SCHEDULED if scheduled else {}) | (LIMITED if limited else {})
        of_title = {BATCHES: BATCH, STEPS: SHOWN, ANSWERS: _scores(members)}
        shown = of_title.get(title, shown)
        yield headed(heading, members), _ordered(members), shown


def _scores(summaries: Sequence[Summary]) -> dict[str, str]:
    """The headline, then every other score, each with its heading."""
    names = dict.fromkeys(name for one in summaries for name in one.figures if _beside(name))
    return {HEADLINE: HEADLINE, **{name: name.partition(".")[2] for name in names}}


def _beside(key: str) -> bool:
    """Whether the figure is a score beside the headline."""
    return key.startswith(f"{HEADLINE}.")


def _title(summary: Summary) -> str:
    if is_stepwise(summary.cell):
        return STEPS
    if asks(summary.cell):
        return ANSWERS
    return BATCHES if is_batch(summary.cell) else "Results"


def _ordered(summaries: Sequence[Summary]) -> list[Summary]:
    """By arm, then by the settings that differ, then by load or size."""
    arms = list(dict.fromkeys(summary.cell.arm for summary in summaries))
    keys = differing([settings(summary.cell) for summary in summaries])

    def rank(summary: Summary) -> tuple[int, list[tuple[float, str]], str, float]:
        told = settings(summary.cell)
        values = [_natural(told.get(key, "")) for key in keys]
        kind = str(summary.cell.load.get("kind"))
        return arms.index(summary.cell.arm), values, kind, pressure(summary.cell)

    return sorted(summaries, key=rank)


def _natural(value: str) -> tuple[float, str]:
    """A key that sorts numbers as such, and before words."""
    return (float(value), "") if re.fullmatch(r"\d+(\.\d+)?", value) else (float("inf"), value)


def _sheet(
    title: str, summaries: Sequence[Summary], filled: Iterable[Filled], names: Mapping[str, str]
) -> Sheet:
    columns, values = zip(*filled, strict=True)
    rows = tuple(zip(*values, strict=True))
    limits = limited(summaries) if "goodput" in names else ()
    told = (*limits, *failed(summaries), *notes(summaries, names))
    return Sheet(title=title, columns=columns, rows=rows, notes=told)


def _whole(summaries: Sequence[Summary], shown: Mapping[str, str]) -> Iterator[Filled]:
    yield from _named(summaries)
    yield Column(name="status", number=False), [status(one, summaries) for one in summaries]
    if not all(map(_loadless, summaries)):
        yield Column(name="sessions"), [_sessions(summary) for summary in summaries]
        yield Column(name="requests"), [_requests(summary) for summary in summaries]
    yield from _answers(summaries)
    for key, name in shown.items():
        if key == "cache_hit":
            yield Column(name="cache hit"), [_cache(summary) for summary in summaries]
        else:
            yield Column(name=name), [doubted(figure(summary, key)) for summary in summaries]


def _ranks(summaries: Sequence[Summary]) -> Sheet:
    """How requests and cache hits fell on the ranks of each cell."""
    rows = [
        (
            summary.cell.arm,
            place,
            str(share.rank),
            number(share.requests, 0),
            show(_hit(share)),
        )
        for summary, place in zip(summaries, places(summaries), strict=True)
        for share in summary.ranks
    ]
    title = headed(f"Data-parallel ranks: {summaries[0].cell.experiment}", summaries)
    columns = headings(("arm", "load"), ("rank", "requests", "cache hit"))
    return Sheet(title=title, columns=columns, rows=tuple(rows))


def _hit(share: RankShare) -> Figure:
    if not share.input_tokens:
        reason = "no request tells its cached tokens"
        return Figure(value=None, unit="share", n=0, reason=reason)
    value = share.cached_tokens / share.input_tokens
    return Figure(value=value, unit="share", n=share.requests)


def _brief(summaries: Sequence[Summary], shown: Mapping[str, str]) -> Iterator[Filled]:
    yield from _named(summaries)
    statuses = [status(summary, summaries) for summary in summaries]
    if set(statuses) != {"finished"}:
        yield Column(name="status", number=False), statuses
    if len({summary.repeats for summary in summaries}) > 1:
        yield Column(name="runs", spare=True), [str(summary.repeats) for summary in summaries]
    if not all(map(_loadless, summaries)):
        yield from _counts(summaries)
    yield from _answers(summaries)
    for key, name in shown.items():
        figures = [figure(summary, key) for summary in summaries]
        fit = shared_scale(figures)
        written: Callable[[Figure, Scale], str] = brief if key in BOUNDED else bare
        unit = fit.unit if fit.unit in {"s", "ms", "%"} else ""
        column = Column(name=name, unit=unit, spare=key in SPARE or _beside(key))
        yield column, [written(one, fit) for one in figures]


def _runs(summaries: Sequence[Summary]) -> str:
    """How many runs each cell had, where that is one number and more than one."""
    repeats = {summary.repeats for summary in summaries}
    each = next(iter(repeats), 1)
    return f", {each} runs a cell" if len(repeats) == 1 and each > 1 else ""


def _counts(summaries: Sequence[Summary]) -> Iterator[Filled]:
    """How many sessions and requests there were, and how many of these came to nothing."""
    told = [[figure(one, key) for key in ("sessions", "requests")] for one in summaries]
    counts = ["/".join(map(show, pair)) if any(map(present, pair)) else "n/a" for pair in told]
    yield Column(name="sessions/requests"), counts
    for key in ("failed", "cut", "unsent"):
        figures = [figure(summary, key) for summary in summaries]
        if any(one.value for one in figures):
            yield Column(name=ENDS[key]), [show(one) for one in figures]


def _answers(summaries: Sequence[Summary]) -> Iterator[Filled]:
    """How many questions were answered, where any were asked, and what came to nothing."""
    if any(asks(summary.cell) for summary in summaries):
        for key, name in ANSWERED.items():
            yield Column(name=name), [show(figure(summary, key)) for summary in summaries]


def _named(summaries: Sequence[Summary]) -> Iterator[Filled]:
    """Which cell each row is."""
    batches = bool(summaries) and all(map(_loadless, summaries)) and not asks(summaries[0].cell)
    yield Column(name="arm", number=False), [summary.cell.arm for summary in summaries]
    yield Column(name="batch" if batches else "load", number=False), places(summaries)


def _loadless(summary: Summary) -> bool:
    """Whether sessions and requests say nothing of it."""
    return is_batch(summary.cell) or is_stepwise(summary.cell) or asks(summary.cell)


def _sessions(summary: Summary) -> str:
    """How many sessions began, and in how many runs."""
    shown = show(figure(summary, "sessions"))
    return f"{shown}\nin {counted(summary.repeats, 'run')}" if summary.repeats > 1 else shown


def _requests(summary: Summary) -> str:
    """How many requests there were, and on a second line what came of them."""
    shown = figure(summary, "requests")
    ends = {key: figure(summary, key).value or 0 for key in ENDS}
    if not present(shown) or not any(ends.values()):
        return show(shown)
    words = [f"{number(count, 0)} {ENDS[key]}" for key, count in ends.items() if count]
    return f"{show(shown)}\n{', '.join(words) if ends['ok'] != shown.value else 'all ok'}"


def _cache(summary: Summary) -> str:
    """The cache hit share, and on a second line the highest one possible."""
    hit, ceiling = figure(summary, "cache_hit"), figure(summary, "cache_ceiling")
    told = present(hit) and present(ceiling)
    return f"{show(hit)}\nceiling {show(ceiling)}" if told else show(hit)


def _without(sheet: Sheet, place: int) -> Sheet:
    """The sheet without that column."""
    return replace(
        sheet,
        columns=sheet.columns[:place] + sheet.columns[place + 1 :],
        rows=tuple(row[:place] + row[place + 1 :] for row in sheet.rows),
    )


def _wrapped(words: str, width: int, indent: str = "") -> str:
    return textwrap.fill(
        words, width, initial_indent=indent, subsequent_indent="    ", break_on_hyphens=False
    )
