"""A plan as text: what it comes to, what would run, and what starting it does."""

import shutil
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from reports.experiment import Settings, alike, fitted, words
from reports.notation import counted, duration, number
from reports.tables import NARROW, Column, Sheet, drawn
from results.gap import detectable, planned_error, provable
from results.run import Run

PARTS = ("workload", "load")

GUESSED = (
    "What is simulated starts nothing, and may take half or twice as long, as cores differ; how "
    "many requests fit into a window is a guess"
)

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
    gpus: int = 0,
    guessed: bool = False,
    resident: Sequence[Sequence[str]] = (),
    missing: Sequence[str] = (),
    width: int | None = None,
) -> str:
    """What it comes to, a row a point, then the lines that say what starting each arm does.

    The arguments are the fields of `suites.description.Description`, its rows as mappings.
    """
    width = width or shutil.get_terminal_size((NARROW, 24)).columns
    total = _total(rows, seconds, unknown, simulated, gpus)
    summary = [
        total + _on_top(servers, warmups),
        *_refusals(rows),
        *_resident(resident),
        *_single(rows),
    ]
    if guessed:
        summary.append(GUESSED)
    lines = [_filled(line, width) for line in summary]
    # Longer than the width where they are, because they are commands to copy.
    lines += [*missing, "", drawn(_sheet(rows), width), "", "What starting each arm does"]
    for arm, told in starts.items():
        lines += ["", arm, *(f"    {line}" for line in told)]
    return "\n".join(lines)


def _filled(line: str, width: int) -> str:
    return textwrap.fill(line, width, subsequent_indent="    ", break_on_hyphens=False)


def by_experiment(names: Iterable[str]) -> str:
    """How many points have each experiment: `4 points of a, 2 points of b`."""
    counts = Counter(names).items()
    return ", ".join(f"{counted(count, 'point')} of {name}" for name, count in counts)


def left_to_run(run: Run) -> str:
    """Which points of its plan a run has yet to run, and how."""
    begun = {one.cell.name for one in run.points if one.status in {"broken", "not started"}}
    names = {*run.planned, *begun}
    left = by_experiment(one["experiment"] for one in run.plan["points"] if one["name"] in names)
    way = "the same command without --only goes on with them"
    return f"Left to run of the suite: {f'{left}: {way}' if left else 'nothing'}"


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
        title="Points in their order",
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


def _total(
    rows: Sequence[Settings], seconds: float, unknown: int, simulated: float, gpus: int
) -> str:
    """`Plan: 24 points, at most 2 GPUs at once, about 32 s in all`, and what that does not say."""
    refused = sum(bool(row.get("unsupported")) for row in rows)
    known = len(rows) - refused - unknown
    about = duration(seconds) if seconds >= 60 else f"{max(1, round(seconds))} s"
    told = [f"Plan: {counted(len(rows), 'point')}"]
    if refused:
        told.append(f"{refused} unsupported, {len(rows) - refused or 'none'} to run")
    if gpus:
        told.append(f"at most {counted(gpus, 'GPU')} at once")
    if known:
        told.append(
            f"at least {about} ({counted(known, 'point')})" if unknown else f"about {about} in all"
        )
    if simulated:
        told.append(f"simulating at least {duration(simulated)}")
    return "; ".join([", ".join(told), *_open_ended(rows, unknown)])


def _open_ended(rows: Sequence[Settings], unknown: int) -> Iterator[str]:
    """How many points end by their work and not by the clock."""
    if not unknown:
        return
    works = {
        "steps are timed" if row["workload"]["kind"] == "forward" else "requests are answered"
        for row in rows
        if row["seconds"] is None and not row.get("unsupported")
    }
    its, s = ("its", "s") if unknown == 1 else ("their", "")
    yield f"{counted(unknown, 'point')} last{s} until {its} {' or '.join(sorted(works))}"


def _refusals(rows: Sequence[Settings]) -> Iterator[str]:
    """Why points would not run, each reason once."""
    reasons = Counter(row["unsupported"] for row in rows if row.get("unsupported"))
    yield from (f"{counted(count, 'point')} unsupported: {why}" for why, count in reasons.items())


def _single(rows: Sequence[Settings]) -> Iterator[str]:
    """The experiments that compare arms and repeat nothing, in one line.

    Questions are paired with each other, and a repeat would ask the same ones again.
    """
    running = [
        row for row in rows if not row.get("unsupported") and row["workload"]["kind"] != "questions"
    ]
    arms: dict[str, set[str]] = {}
    for row in running:
        arms.setdefault(row["experiment"], set()).add(row["arm"])
    repeated = {row["experiment"] for row in running if row["repeat"]}
    several = [name for name, of_one in arms.items() if len(of_one) > 1]
    if once := [name for name in several if name not in repeated]:
        which = "" if once == several else f" of {', '.join(once)}"
        yield (f"one repeat{which}: compare will not tell how much runs vary; repeats: 3 or more")


def _on_top(servers: int, warmups: int) -> str:
    """What takes time that the total does not say."""
    if servers:
        return f"; {counted(servers, 'start')} of a server and the warm-ups come on top"
    return "; the warm-ups come on top" if warmups else ""


def _resident(servers: Sequence[Sequence[str]]) -> Iterator[str]:
    """Which servers stay up between their points, and which arms have one in common."""
    if servers:
        beside = " beside each other on the same GPUs" if len(servers) > 1 else ""
        names = [f"{' and '.join(arms)}{' (one server)' * (len(arms) > 1)}" for arms in servers]
        yield f"Started once, and then up{beside} to the end: {', '.join(names)}"
