"""A comparison as Markdown for a pull request or a step's summary: short, its details folded."""

import re
from collections.abc import Iterable, Iterator, Sequence

from reports.account import Account
from reports.comparison import refused, sides
from reports.gate import confirmation, verdict_line
from reports.labels import marked
from reports.notation import harmless
from reports.tables import Sheet
from reports.verdict_tables import (
    TOLD,
    cell_notes,
    cell_sheets,
    difference_sheet,
    gate_sheet,
    moved_sheet,
)
from reports.verdicts import headline

LONGEST = 60_000
"""So many characters at most: a comment on GitHub takes 65,536."""

ROWS = 100
"""Rows of a table at most: rules that did not pass come first."""

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~@])")


def comparison_markdown(account: Account) -> str:
    """What it says in a few lines, the rules as a table, and the rest folded."""
    parts = []
    if account.gated:
        parts.append(f"**{_plain(verdict_line(account))}**")
    parts.append(_bullets(headline(account)))
    parts.append(_bullets(refused(account.comparison)))
    if account.gated:
        rules = gate_sheet(account)
        parts += [_table(rules), _bullets(rules.notes)]
    parts += _confirm(account)
    for part in _folded(account):
        # What does not fit whole is left out whole, so that nothing is cut inside a table.
        if sum(map(len, parts)) + len(part) > LONGEST:
            parts.append("More is left out here, as a comment must be short: see the page.")
            break
        parts.append(part)
    return "\n\n".join(filter(None, parts)) + "\n"


def _folded(account: Account) -> Iterator[str]:
    comparison = account.comparison
    yield _details("Sides", [_bullets(sides(account)), _table(difference_sheet(comparison))])
    slower = moved_sheet(account)
    if slower.rows:
        yield _details(slower.title, [_table(slower)])
    for cell in account.cells:
        sheets = [
            part
            for sheet in cell_sheets(cell)
            for part in (f"**{_plain(sheet.title)}**", _table(sheet))
        ]
        notes = [note for sheet in cell_sheets(cell) for note in sheet.notes]
        yield _details(
            marked(cell.place, cell.mark),
            [*sheets, _bullets([*notes, *cell_notes(cell, account), TOLD])],
        )


def _confirm(account: Account) -> Iterator[str]:
    lines = list(confirmation(account))
    if lines:
        commands = "\n".join(line.strip() for line in lines[1:])
        yield f"{_plain(lines[0])}\n\n```\n{commands}\n```"


def _details(summary: str, parts: Sequence[str]) -> str:
    content = "\n\n".join(filter(None, parts))
    # Markdown is not read inside the summary, where a backslash would be shown.
    return f"<details><summary>{_html(summary)}</summary>\n\n{content}\n\n</details>"


def _table(sheet: Sheet) -> str:
    if not sheet.rows:
        return ""
    lines = [
        _row(column.heading for column in sheet.columns),
        _row(("--:" if column.number else "---" for column in sheet.columns), plain=False),
        *(_row(row) for row in sheet.rows[:ROWS]),
    ]
    left = len(sheet.rows) - ROWS
    return "\n".join(lines) + (f"\n\n{left} more rows are in the page." if left > 0 else "")


def _row(values: Iterable[str], *, plain: bool = True) -> str:
    return f"| {' | '.join(_plain(value) if plain else value for value in values)} |"


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {_plain(' '.join(line.split()))}" for line in lines)


def _plain(words: str) -> str:
    """The words as they are: no name among them is taken for markup, or for a person to notify."""
    told = _SPECIAL.sub(r"\\\1", harmless(" ".join(words.split())))
    return told.replace("\\@", "&#64;").replace("\\<", "&lt;").replace("\\>", "&gt;")


def _html(words: str) -> str:
    return harmless(words).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
