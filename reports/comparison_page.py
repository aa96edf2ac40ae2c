"""One HTML page of a comparison: what it says, how sure that is, and every run behind it."""

from collections.abc import Iterator
from html import escape
from pathlib import Path
from string import Template

from reports.account import Account, CellAccount
from reports.comparison import SLOWER, refused, sides
from reports.crossings import crossing_lines
from reports.forest import forest, run_charts
from reports.gate import confirmation, verdict_line
from reports.labels import marked
from reports.markup import banner, drawing, file, listed, notes, publish, scripts, section, table
from reports.verdict_tables import (
    cell_notes,
    cell_sheets,
    difference_sheet,
    gate_sheet,
    moved_sheet,
)
from reports.verdicts import explored, gated, headline
from results.direction import in_points

WORDS = {
    "worse, better": "The interval leaves no change out, and the change itself is beyond half the "
    "margin.",
    "same": "The whole interval lies within the margin. How small a difference would have been "
    "seen is its MDD.",
    "inconclusive": "Neither: so many runs cannot tell. It says how many would.",
    "invalid": "Something speaks against the runs: they are not judged.",
    "gated, exploratory": "A rule names the metric, and it counts; no rule does, and of twenty "
    "such metrics one may look changed by chance.",
    "margin": "By how much a metric may change without mattering.",
    "MDD": "The smallest difference that such runs show in 80 of 100 cases.",
    "12 % slower": f"{SLOWER.removeprefix('12 % slower is ').capitalize()}.",
    "cell": "One workload under one load, on both sides.",
}


def render_comparison(account: Account, *, decides: bool = False) -> str:
    """The page of a comparison; `decides` says that a gate is made of it."""
    nothing = bool(account.comparison.refusals)
    gaps = list(refused(account.comparison))
    charts = "" if nothing else _charts(account)
    return Template(file("page.html")).substitute(
        title=escape(f"paceline: {account.comparison.base} against {account.comparison.other}"),
        style=file("page.css"),
        banner=banner(account.provenances),
        summary=_summary(account, decides=decides),
        problems=section(f"Why {'nothing' if nothing else 'not all'} is judged", notes(gaps))
        if gaps
        else "",
        experiments=charts,
        results=""
        if nothing
        else section("Verdicts, cell by cell", _cells(account, decides=decides)),
        definitions=section("What the words mean", listed(WORDS.items())),
        environment=_differences(account),
        reproduction=_again(account, decides=decides),
        scripts=scripts() if 'class="chart"' in charts else "",
    )


def write_comparison(account: Account, path: Path, *, decides: bool = False) -> None:
    """Writes the page through a temporary name. Raises FolderError where it cannot be written."""
    publish(render_comparison(account, decides=decides), path)


def _summary(account: Account, *, decides: bool) -> str:
    said = "".join(f'<p class="verdict">{escape(line)}</p>\n' for line in headline(account))
    lines = [*crossing_lines(account.comparison, account.mark), *sides(account)]
    told = f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>\n"
    if not (decides and account.gated):
        return said + told
    line = f'<p class="verdict"><strong>{escape(verdict_line(account))}</strong></p>\n'
    return line + said + told


def _charts(account: Account) -> str:
    rules = gated(account)
    core = [(cell, one) for cell in account.cells for one in explored(cell)[0]]
    shown = []
    for rows, named in ((rules, "Gated"), (core, "Exploratory")):
        for points, unit in ((False, ""), (True, " in points")):
            told = [row for row in rows if in_points(row[1].effect.metric) == points]
            if told:
                title = f"{named} metrics: change{unit} and margin"
                shown.append(drawing(forest(account, told, title)))
    shown += map(drawing, run_charts(account))
    return section("Changes", "".join(shown)) if shown else ""


def _cells(account: Account, *, decides: bool) -> str:
    parts = [table(gate_sheet(account))] if decides and account.gated else []
    slower = moved_sheet(account)
    if slower.rows:
        parts.append(table(slower))
    for cell in account.cells:
        parts += _cell(cell, account)
    return "".join(parts)


def _cell(cell: CellAccount, account: Account) -> Iterator[str]:
    yield f'<h3 dir="auto">{escape(marked(cell.place, cell.mark))}</h3>\n'
    yield notes(cell_notes(cell, account, whole=True))
    yield from map(table, cell_sheets(cell, whole=True))


def _differences(account: Account) -> str:
    sheet = difference_sheet(account.comparison, whole=True)
    nothing = "<p>Nothing that either side tells.</p>\n"
    return section(sheet.title, table(sheet) if sheet.rows else nothing)


def _again(account: Account, *, decides: bool) -> str:
    asked = list(confirmation(account)) if decides else []
    lines = asked or [f"    {command}" for command in account.confirm]
    told = "".join(f"<p>{escape(line)}</p>\n" for line in lines if not line.startswith(" "))
    commands = "\n".join(line.strip() for line in lines if line.startswith(" "))
    return section("Run it again", f"{told}<pre>{escape(commands)}</pre>\n" if commands else "")
