"""A comparison as text for a terminal: what it says first, then every number behind it."""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace

from reports.account import Account
from reports.crossings import crossing_lines
from reports.gaps import arms_apart, gap_lines, gap_sheets
from reports.labels import marked
from reports.notation import harmless
from reports.tables import Sheet, drawn
from reports.verdict_tables import TOLD, cell_notes, cell_sheets, difference_sheet
from reports.verdicts import headline
from results.comparison import Comparison
from results.run import Run

WIDTH = 100
"""How wide a line is at most, other than a command or a name that has no space."""

SLOWER = "12 % slower is 12 % more time, or 12 % fewer tokens a second for a user"


FEW = 4
"""So many cells of one side alone are named; of more, all but the first are counted."""


def comparison_text(account: Account, width: int = WIDTH) -> str:
    """What the comparison says, cell by cell, and in what the sides differ."""
    parts = ["\n".join(wrapped(line, width) for line in headline(account))]
    parts.append("\n".join(wrapped(line, width) for line in sides(account)))
    if account.identical:
        parts.append("Every number is the same on both sides, so no table follows.")
    elif not account.comparison.refusals:
        lines = crossing_lines(account.comparison, account.mark)
        parts.append("\n".join(wrapped(line, width) for line in lines))
        parts += _cells(account, width)
    parts += _apart(account.comparison, width)
    return "\n\n".join(filter(None, parts))


def gap_text(run: Run, width: int = WIDTH) -> str:
    """The gap in accuracy of a run's arms that were asked the same questions; else nothing."""
    parts = [
        "\n\n".join(
            [
                "\n".join(wrapped(line, width) for line in gap_lines(found)),
                *(whole(sheet, width) for sheet in gap_sheets(found)),
            ]
        )
        for found in arms_apart(run)
    ]
    return "".join(f"\n{part}\n\n" for part in parts)


def sides(account: Account) -> Iterator[str]:
    """What is compared, against what, and with which reservations."""
    comparison = account.comparison
    yield f"base:  {comparison.base}"
    yield f"other: {comparison.other}"
    if account.cells and not account.gated:
        yield "rules: no metric is named by one, so every verdict is exploratory"
    if comparison.allowed:
        yield f"allowed to differ: {', '.join(comparison.allowed)}"
    if comparison.calibration:
        unused = ", not used, as it was made elsewhere" if comparison.uncalibrated else ""
        yield f"noise: {comparison.calibration}{unused}"
    yield from comparison.uncalibrated
    yield from (f"note: {note}" for note in account.notes)
    yield from _alone(comparison.unmatched)


def _alone(names: Sequence[str]) -> Iterator[str]:
    """The cells that only one side has, a few of many."""
    if len(names) <= FEW:
        yield from (f"not compared: {name} is on one side only" for name in names)
        return
    first = ", ".join(names[: FEW - 1])
    yield (
        f"not compared: {len(names)} cells are on one side only: {first} and "
        f"{len(names) - FEW + 1} more"
    )


def left_out(arms: Sequence[str], width: int = WIDTH) -> Iterator[str]:
    """Which arms of a run are compared with none."""
    if arms:
        told = f"Left out: {', '.join(arms)}: no other arm did the same work under the same load."
        yield wrapped(told, width)


def refused(comparison: Comparison) -> Iterator[str]:
    """Why nothing was judged, or not all: each key with both values, each cell, and the way out."""
    yield from (f"refused: {sentence}" for sentence in comparison.refusals)
    yield from (f"missing: {sentence}" for sentence in comparison.missing)
    yield from (f"not judged: {sentence}" for sentence in comparison.unjudged)


def whole(sheet: Sheet, width: int) -> str:
    """The sheet under a title that may be wider than it."""
    rows = tuple(tuple(map(harmless, row)) for row in sheet.rows)
    below = drawn(replace(sheet, title="", rows=rows), width).strip("\n")
    return f"{wrapped(sheet.title, width)}\n\n{below}"


def wrapped(words: str, width: int) -> str:
    """A line in lines of that width, the later ones indented; no word is broken."""
    return textwrap.fill(
        harmless(words),
        width,
        subsequent_indent="    ",
        break_on_hyphens=False,
        break_long_words=False,
    )


def _cells(account: Account, width: int) -> Iterator[str]:
    shown = False
    for cell in account.cells:
        sheets = [whole(sheet, width) for sheet in cell_sheets(cell)]
        notes = [wrapped(note, width) for note in cell_notes(cell, account)]
        heading = [] if sheets else [marked(cell.place, cell.mark)]
        yield "\n\n".join([*heading, *sheets, *(["\n".join(notes)] if notes else [])])
        shown = shown or bool(sheets)
    if shown:
        yield "\n".join(wrapped(line, width) for line in (TOLD, SLOWER))


def _apart(comparison: Comparison, width: int) -> Iterator[str]:
    yield "\n".join(wrapped(line, width) for line in refused(comparison))
    sheet = difference_sheet(comparison)
    if sheet.rows and not comparison.refusals:
        yield whole(sheet, width)
