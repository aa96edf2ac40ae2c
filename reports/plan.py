"""A plan as a table: what would run, what starting it does, and how long all of it takes."""

import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence

from reports.experiment import Settings, alike, fitted, words
from reports.notation import counted, duration, number
from reports.tables import NARROW, Column, Sheet, drawn
from results.gap import detectable, planned_error, provable

PARTS = ("workload", "load")

DISCORDANT = (0.01, 0.05, 0.15)
"""Shares of answers whose score two runs of one engine may differ in: few, some, and many."""


def plan_table(
    rows: Sequence[Settings],
    starts: Mapping[str, Sequence[str]],
    *,
    seconds: float,
    unknown: int = 0,
    simulated: float = 0.0,
    servers: int = 0,
    warmups: int = 0,
    width: int | None = None,
) -> str:
    """A row a point, then the lines that say what starting each arm does, then the total.

    The arguments are the fields of `suites.description.Description`, its rows as mappings.
    """
    width = width or shutil.get_terminal_size((NARROW, 24)).columns
    lines = [drawn(_sheet(rows), width), "", "What starting each arm does"]
    for arm, told in starts.items():
        # Longer than the width where they are, because they are commands to copy.
        lines += ["", arm, *(f"    {line}" for line in told)]
    refused = sum(bool(row.get("unsupported")) for row in rows)
    total = _total(len(rows), refused, seconds, unknown, simulated) + _on_top(servers, warmups)
    return "\n".join([*lines, "", textwrap.fill(total, width)])


def _sheet(rows: Sequence[Settings]) -> Sheet:
    """A row a point; the settings that all points of an experiment share are notes."""
    members: dict[str, list[Settings]] = {}
    for row in rows:
        members.setdefault(row["experiment"], []).append(row)
    shared = {
        name: {part: alike([row[part] for row in of_one]) for part in PARTS}
        for name, of_one in members.items()
    }
    fitting = {
        name: fitted((row["workload"], row.get("fitting")) for row in of_one)
        for name, of_one in members.items()
    }
    names = ("position", "experiment", "arm", "repeat", *PARTS, "time")
    numbers = {"position", "repeat", "time"}
    return Sheet(
        title=f"Plan: {counted(len(rows), 'point')}",
        columns=tuple(Column(name=name, number=name in numbers) for name in names),
        rows=tuple(_row(row, shared[row["experiment"]]) for row in rows),
        notes=(
            *(
                f"every point of {name}: {'; '.join(filter(None, map(words, parts.values())))}"
                for name, parts in shared.items()
            ),
            *(f"{name}: {told}" for name, told in fitting.items() if told),
            *_departures(members),
            *_volumes(members),
            *_gaps(members),
        ),
    )


def _departures(members: Mapping[str, Sequence[Settings]]) -> Iterator[str]:
    """In what the traces of experiments are not those of their profile."""
    told: dict[str, dict[str, None]] = {}
    for name, of_one in members.items():
        for departure in (one for row in of_one for one in row.get("departures", ())):
            told.setdefault(departure, {})[name] = None
    yield from (f"{', '.join(names)}: {departure}" for departure, names in told.items())


def _volumes(members: Mapping[str, Sequence[Settings]]) -> Iterator[str]:
    """How much each experiment asks in all, and how much may be answered."""
    for name, of_one in members.items():
        asked = [row for row in of_one if row.get("answers")]
        if not asked:
            continue
        prompts = [row["prompt_tokens"] for row in asked]
        told = f"about {number(sum(prompts), 0)}" if all(prompts) else "an unknown number of"
        most = sum(row["answers"] * row["workload"]["max_tokens"] for row in asked)
        yield (
            f"{name}: {number(sum(row['answers'] for row in asked), 0)} questions in "
            f"{counted(len(asked), 'point')}, {told} prompt tokens, and at most {number(most, 0)} "
            "tokens of answers"
        )


def _gaps(members: Mapping[str, Sequence[Settings]]) -> Iterator[str]:
    """How small a gap in accuracy each experiment can show, by how much answers vary by chance."""
    for name, of_one in members.items():
        # A repeat asks the same again with the same seeds, so no point has more than its own.
        answers = [row["different"] for row in of_one if row.get("different")]
        if not answers:
            continue
        fewest = min(answers)
        errors = [planned_error(fewest, 1, share) for share in DISCORDANT]
        shares, found, proved = (
            ", ".join(f"{share * 100:.2g}" for share in of_all)
            for of_all in (DISCORDANT, map(detectable, errors), map(provable, errors))
        )
        yield (
            f"{name}: {counted(fewest, 'answer')} an arm, the same asked again not counted. Where "
            f"{shares} % of the answers differ by chance, it finds gaps of {found} points in 80 of "
            f"100 cases, and proves margins of {proved} points"
        )


def _row(row: Settings, shared: Mapping[str, Settings]) -> tuple[str, ...]:
    seconds = row["seconds"]
    unknown = "unsupported" if row.get("unsupported") else "unknown"
    return (
        str(row["position"]),
        row["experiment"],
        row["arm"],
        str(row["repeat"]),
        *(words(row[part], shared[part]) for part in PARTS),
        # What takes less is still not done at once.
        unknown if seconds is None else duration(max(0.1, seconds)),
    )


def _total(points: int, refused: int, seconds: float, unknown: int, simulated: float) -> str:
    """`24 points, about 32 s in all`, and what that does not say."""
    about = duration(seconds) if seconds >= 60 else f"{max(1, round(seconds))} s"
    told = [counted(points, "point")]
    if refused:
        told.append(f"{refused} unsupported")
    if points > unknown + refused:
        told.append(f"about {about} in all")
    if unknown:
        told.append(f"{unknown} of unknown length")
    if simulated:
        told.append(f"simulating at least {duration(simulated)}")
    return ", ".join(told)


def _on_top(servers: int, warmups: int) -> str:
    """What takes time that the total does not say."""
    if servers:
        return f"; {counted(servers, 'start')} of a server and the warm-ups come on top"
    return "; the warm-ups come on top" if warmups else ""
