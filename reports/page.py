"""One HTML page that shows runs and needs nothing else: no server, no network, no other file."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from reports import delivery
from reports.charts import charts, styles
from reports.command import command
from reports.experiment import every_point
from reports.forest import forest
from reports.gaps import arms_apart, gap_lines, gap_sheets
from reports.labels import outcome, why
from reports.markup import banner, drawing, file, listed, notes, publish, scripts, section, table
from reports.notation import counted, number
from reports.notes import failures
from reports.tables import Sheet, headings, sheets
from results.delivery import Delivery
from results.delivery import delivery as delivered
from results.errors import InputError
from results.figure import Summary
from results.metrics import pool, summarise
from results.run import Run
from results.secret import secret

TERMS = {
    "replay": "SWA bounded replay: vLLM re-runs the last 128 tokens of a prompt through the upper "
    "layers, instead of all of them. off: all of them; on-eager: replay, without CUDA graphs for "
    "it; on: replay, with them.",
    "arm": "One of the things compared: an engine with its topology, replay and flags.",
    "TP4, DEP2": "Topologies. TP4: tensor parallel, each layer split over 4 GPUs. DEP2: data "
    "parallel over 2 GPUs, each with sessions of its own, and the experts spread over both.",
    "load": "How much work there is. closed 16: 16 live sessions, the next one begins when one "
    "ends. open 2/s: 2 sessions begin each second, however slow the answers are.",
    "session": "One agent at its task: requests that build on one another, and those of its "
    "sub-agents. Where nothing builds on anything, one request or one batch.",
    "window": "The time that counts. Warm-up requests come before it; primer requests only fill "
    "the cache for the one that follows. Both are kept as rows, and are in no figure.",
    "cut": "Requests still under way when the window closed: neither a success nor a failure.",
}

METRICS = {
    "TTFT": "Time to first token: from sending a request to its first piece of output, whether "
    "reasoning, tool call or answer.",
    "TPOT": "Time per output token: from the first piece of output to the last, over the tokens "
    "after the first piece; in a fixed batch, while all of it decodes.",
    "interactivity": "Tokens per second that one user sees while an answer comes (tok/s/user), "
    "1 / TPOT; p90 is the slow tail: nine requests in ten are at least as fast.",
    "output": "Generated tokens per second in the window, over all GPUs or over each.",
    "input + output": "Prompt and generated tokens per second in the window.",
    "cache hit": "Prompt tokens taken from the prefix cache, as a share of all; the ceiling is "
    "what a cache without end would reach.",
    "goodput": "Requests per second that kept all limits set for them.",
}

SIGNS = {
    "185–228 ms, n 354": "The figure's true value lies between these with 95 % confidence, from so "
    "many samples.",
    "n 354 in 6 runs": "The point was run so often: the figure is the mean over the runs, and the "
    "interval is of their spread. Counts are sums over the runs.",
    "no interval": "Too few samples or runs to say how sure the figure is: why is below its table.",
    "n too small": "Too few samples for the percentile: it is left out, not guessed.",
    "n/a": "There is no such number; it is never taken for 0.",
    "~": "The figure is approximate, for the reason below its table.",
    "INVALID": "The point finished, but something speaks against its numbers: do not use them. "
    "They are drawn hollow and grey, and joined to no line.",
}

_MOMENT = re.compile(r"-(\d{8}T\d{6}Z)(?:-\d+)?$")


def render(runs: Sequence[Run]) -> str:
    """The page of these runs. Arms of one experiment carry their run's name where several have it.

    Raises InputError where two of the runs are one folder.
    """
    _check_apart(runs)
    points = [[summarise(point) for point in run.points] for run in runs]
    points = _told_apart(runs, points)
    pooled = [summary for of_run in points for summary in pool(of_run)]
    flat = [summary for of_run in points for summary in of_run]
    results = "".join(map(table, sheets(pooled)))
    drawn = _experiments(runs, pooled, _delivered(runs, points)) + _gaps(runs)
    used = {name: words for name, words in METRICS.items() if name in results + drawn}
    told = {**TERMS, **used, **SIGNS}
    return Template(file("page.html")).substitute(
        title=escape("paceline: " + ", ".join(dict.fromkeys(run.suite for run in runs) or ["n/a"])),
        style=file("page.css"),
        banner=banner(one.provenance for one in flat),
        summary=_summary(runs, points),
        problems=_problems(runs, flat),
        results=section("Results", results),
        experiments=drawn,
        definitions=section("What the figures mean", listed(told.items())),
        environment=_environment(runs),
        reproduction=_reproduction(runs),
        scripts=scripts() if 'class="chart"' in drawn else "",
    )


def write(runs: Sequence[Run], path: Path) -> None:
    """Writes the page through a temporary name.

    Raises InputError as `render` does, and FolderError where it cannot be written.
    """
    publish(render(runs), path)


def _check_apart(runs: Sequence[Run]) -> None:
    folders = Counter(run.path.resolve() for run in runs)
    for run in runs:
        if folders[run.path.resolve()] > 1:
            raise InputError(f"{run.path} is named more than once: name each run folder once")


def _told_apart(runs: Sequence[Run], points: Sequence[list[Summary]]) -> list[list[Summary]]:
    """The summaries, with the run's name before every arm that an experiment has of several."""
    arms = [{(one.cell.experiment, one.cell.arm) for one in of_run} for of_run in points]
    owners = Counter(arm for of_run in arms for arm in of_run)
    return [
        [
            _prefixed(one, name) if owners[one.cell.experiment, one.cell.arm] > 1 else one
            for one in of_run
        ]
        for name, of_run in zip(_names(runs), points, strict=True)
    ]


def _prefixed(summary: Summary, name: str) -> Summary:
    return replace(summary, cell=replace(summary.cell, arm=f"{name}: {summary.cell.arm}"))


def _names(runs: Sequence[Run]) -> list[str]:
    """What each run is called: its folder's name, or the path where two have the same name."""
    names = [run.path.name for run in runs]
    twice = {name for name, count in Counter(names).items() if count > 1}
    return [str(run.path) if run.path.name in twice else run.path.name for run in runs]


def _summary(runs: Sequence[Run], points: Sequence[Sequence[Summary]]) -> str:
    parts = []
    for run, name, of_run in zip(runs, _names(runs), points, strict=True):
        arms = dict.fromkeys(f"{one.cell.arm} ({counted(one.cell.gpus, 'GPU')})" for one in of_run)
        provenances = dict.fromkeys(str(one.provenance) for one in of_run if one.provenance)
        facts = [
            ("suite", run.suite),
            ("run", name),
            ("when", _moment(run)),
            ("points", _counts(run, of_run)),
            ("arms", ", ".join(arms) or "n/a"),
            ("provenance", ", ".join(provenances) or "n/a"),
        ]
        parts.append(listed(facts))
    return "".join(parts) or "<p>n/a: no runs</p>\n"


def _moment(run: Run) -> str:
    found = _MOMENT.search(run.path.name)
    if not found:
        return "n/a"
    moment = datetime.strptime(found[1], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def _counts(run: Run, summaries: Sequence[Summary]) -> str:
    """How many points were planned, of how many cells, and what came of them."""
    counts = Counter(outcome(summary) for summary in summaries)
    counts["not begun"] = len(run.planned)
    words = [f"{number(count, 0)} {status}" for status, count in counts.items() if count]
    if not words:
        return "n/a: none were planned"
    return f"{_multiplied(run.plan['points'])}: {', '.join(words)}"


def _multiplied(points: Sequence[Mapping[str, Any]]) -> str:
    """How many points there are, and of how many cells: `52 cells × 2 repeats = 104 points`."""
    repeats = Counter(point.get("cell", point["id"]) for point in points)
    total = counted(len(points), "point")
    if len(repeats) == len(points):
        return total
    if len(set(repeats.values())) > 1:
        return f"{total} of {counted(len(repeats), 'cell')}"
    each = next(iter(repeats.values()))
    return f"{counted(len(repeats), 'cell')} × {counted(each, 'repeat')} = {total}"


def _problems(runs: Sequence[Run], summaries: Sequence[Summary]) -> str:
    """Every point whose numbers are missing or must not be used, and why."""
    rows = [
        (f"{one.cell.name} ({one.cell.arm})", outcome(one), why(one))
        for one in summaries
        if not one.valid
    ]
    rows += [
        (
            run.planned[0]
            + (f" and {number(more, 0)} more" if (more := len(run.planned) - 1) else ""),
            "not begun",
            f"{run.path.name} ended before it: paceline run goes on from there",
        )
        for run in runs
        if run.planned
    ]
    lost = [
        (f"{one.cell.name} ({one.cell.arm})", outcome(one), failures(one))
        for one in summaries
        if one.failures
    ]
    valid = "every planned point finished and is valid"
    told = "" if rows else f"<p>None: {valid}.</p>\n"
    if lost and not rows:
        told = f"<p>{valid.capitalize()}, but some of their requests failed.</p>\n"
    tables = {"Points without numbers that can be used": rows, "Requests that failed": lost}
    columns = headings(("point", "outcome", "reason"))
    drawn = (
        table(Sheet(title=title, columns=columns, rows=tuple(of_title)))
        for title, of_title in tables.items()
        if of_title
    )
    return section("Problems", told + "".join(drawn))


def _delivered(
    runs: Sequence[Run], points: Sequence[Sequence[Summary]]
) -> dict[str, list[tuple[Summary, Delivery]]]:
    """What the points of each experiment delivered that were replayed by a profile."""
    found: dict[str, list[tuple[Summary, Delivery]]] = {}
    for run, of_run in zip(runs, points, strict=True):
        for point, summary in zip(run.points, of_run, strict=True):
            if (told := delivered(point)) is not None:
                found.setdefault(point.cell.experiment, []).append((summary, told))
    return found


def _experiments(
    runs: Sequence[Run],
    summaries: Sequence[Summary],
    replays: Mapping[str, Sequence[tuple[Summary, Delivery]]],
) -> str:
    """A section for each experiment: what was run, and charts, each with its numbers below."""
    looks = styles(summary.cell.arm for summary in summaries)
    by_experiment: dict[str, list[Summary]] = {}
    for summary in summaries:
        by_experiment.setdefault(summary.cell.experiment, []).append(summary)
    return "".join(
        section(
            experiment,
            _settings(runs, members)
            + "".join(map(drawing, charts(members, looks)))
            + (table(delivery.sheet(replays[experiment])) if experiment in replays else ""),
        )
        for experiment, members in by_experiment.items()
    )


def _gaps(runs: Sequence[Run]) -> str:
    """Arms of one run that answered the same questions, held against one another."""
    parts = []
    for run, name in zip(runs, _names(runs), strict=True):
        for found in arms_apart(run):
            sides = f"{found.comparison.base} against {found.comparison.other}"
            title = f"Gap in accuracy: {sides}" + (f", {name}" if len(runs) > 1 else "")
            rows = [row for row in found.judgements() if row[1].effect.gap]
            parts.append(notes(gap_lines(found)))
            parts += [drawing(forest(found, rows, title))] if rows else []
            parts += map(table, gap_sheets(found))
    return section("Accuracy, arm against arm", "".join(parts)) if parts else ""


def _settings(runs: Sequence[Run], summaries: Sequence[Summary]) -> str:
    """What every point of the experiment was run with, and what varies."""
    facts = every_point([summary.cell for summary in summaries], runs)
    heading = escape(f"Every point of {summaries[0].cell.experiment}")
    return f'<details>\n<summary dir="auto">{heading}</summary>\n{listed(facts)}</details>\n'


def _environment(runs: Sequence[Run]) -> str:
    tables = [
        Sheet(
            title=name,
            columns=headings(("key", "value")),
            rows=tuple(_flat(run.environment)),
        )
        for run, name in zip(runs, _names(runs), strict=True)
    ]
    return section("Environment", "".join(map(table, tables)) or "<p>n/a</p>\n")


def _flat(content: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Every value with the path to it; what has the name of a secret is hidden."""
    for key, value in content.items():
        name = f"{prefix}{key}"
        inner = dict(enumerate(value)) if isinstance(value, list) else value
        if isinstance(inner, Mapping) and inner:
            yield from _flat({str(part): inner[part] for part in inner}, f"{name}.")
        elif secret(name):
            yield name, "hidden"
        else:
            yield name, "n/a" if value in (None, "", [], {}) else str(value)


def _reproduction(runs: Sequence[Run]) -> str:
    """The commands that were given, and where the suites lie as they were then."""
    commands = "\n".join(dict.fromkeys(map(command, runs))) or "n/a"
    copies = "".join(
        f"<li><code>{escape(str(run.path / 'suite.yaml'))}</code></li>\n" for run in runs
    )
    told = (
        "<p>In the folder where it was run. A suite may have changed since: as it was, without "
        f"--set, it is kept in</p>\n<ul>\n{copies}</ul>\n"
    )
    return section("Run it again", f"<pre>{escape(commands)}</pre>\n{told if copies else ''}")
