"""A history as a table for a terminal, and as sheets for a page."""

from collections.abc import Iterator, Sequence

from reports.labels import differing, marked, marks, place, settings
from reports.notation import changed, counted, label, measured, number, percent
from reports.tables import Sheet, drawn, headings
from results.cell import Cell
from results.changes import FEWEST, LEVEL
from results.copies import counted_once
from results.history import Change, Course, Moment
from results.standing import Difference

LISTED = 5
"""How many differences a sentence names."""

HASH = 9
"""How much of a commit is shown."""


def history_table(courses: Sequence[Course], width: int | None = None) -> str:
    """The changes of a history for a terminal of that width, or of the terminal's own."""
    return "\n\n".join(drawn(sheet, width) for sheet in history_sheets(courses))


def history_sheets(courses: Sequence[Course]) -> list[Sheet]:
    """A sheet with a row a change, and one of the courses without one."""
    made = []
    if any(course.changes for course in courses):
        made.append(_changed(courses))
    steady = [course for course in courses if not course.changes]
    if steady or not courses:
        made.append(_steady(steady))
    return made


def _places(courses: Sequence[Course]) -> Iterator[str]:
    """The load of each course, and what else tells the cells of its experiment apart."""
    cells: dict[str, list[Cell]] = {}
    for course in courses:
        cells.setdefault(course.cell.experiment, []).append(course.cell)
    keys = {name: differing(list(map(settings, members))) for name, members in cells.items()}
    for course in courses:
        name = course.cell.experiment
        before = f"{name}, " if len(cells) > 1 else ""
        yield f"{before}{place(course.cell, keys[name])}"


def _changed(courses: Sequence[Course]) -> Sheet:
    rows = [
        (course, where, change)
        for course, where in zip(courses, _places(courses), strict=True)
        for change in course.changes
    ]
    return Sheet(
        title=_headed(f"History, {counted(len(rows), 'change')} of level", courses),
        columns=headings(
            ("arm", "load", "metric", "verdict"), ("runs", "before", "after", "change", "p")
        ),
        rows=tuple(
            (
                course.cell.arm,
                where,
                label(course.metric),
                change.verdict,
                " + ".join(number(runs, 0) for runs in change.runs),
                _level(change.before, course),
                _level(change.after, course),
                _change(change),
                number(change.p),
            )
            for course, where, change in rows
        ),
        notes=(*dict.fromkeys(_told(*row) for row in rows), *_notes(courses)),
    )


def _steady(courses: Sequence[Course]) -> Sheet:
    return Sheet(
        title=_headed("History, no change of level", courses),
        columns=headings(("arm", "load", "metric"), ("runs", "level", "would show from")),
        rows=tuple(
            (
                course.cell.arm,
                where,
                label(course.metric),
                number(_count(course), 0),
                _level(course.level, course),
                "too few runs" if course.reason else percent(course.detectable),
            )
            for course, where in zip(courses, _places(courses), strict=True)
        ),
        notes=(
            *dict.fromkeys(filter(None, (course.reason for course in courses))),
            *_breaks(courses),
        ),
    )


def _headed(words: str, courses: Sequence[Course]) -> str:
    """A heading that says so where its numbers are not measured ones."""
    provenances = (moment.provenance for course in courses for moment in course.moments)
    return marked(words, marks(provenances))


def _level(value: float | None, course: Course) -> str:
    return measured(value, course.unit, with_unit=True)


def _change(change: Change) -> str:
    if change.ratio is None:
        return "n/a"
    told, ends = changed(change.ratio, change.low, change.high)
    return f"{told} ({ends})" if ends else told


def _count(course: Course) -> int:
    return sum(moment.value is not None for moment in course.moments)


def _told(course: Course, where: str, change: Change) -> str:
    """A change in a sentence: between which runs, and what became different there."""
    what = f"{label(course.metric)}, {course.cell.arm}, {where}"
    head = (
        f"{what}: the last run before it is {_named(change.good)}, the first one after it "
        f"{_named(change.bad)}"
    )
    if change.apart:
        return (
            f"{head}; there the runs are not comparable, so it need not be the engine: "
            f"{_listed(change.apart)}"
        )
    stated = [one for one in change.news if one.standing != "refusing"]
    return f"{head}; different there: {_listed(stated)}" if stated else head


def _named(moment: Moment) -> str:
    commit = f"commit {moment.commit[:HASH]}" if moment.commit else None
    version = f"engine {moment.version}" if moment.version else None
    told = ", ".join(filter(None, (version, commit)))
    return f"{moment.folder} ({told})" if told else moment.folder


def _listed(found: Sequence[Difference]) -> str:
    words = [f"{one.key} {one.base} → {one.other}" for one in found[:LISTED]]
    more = len(found) - LISTED
    return ", ".join([*words, *([f"and {number(more, 0)} more"] if more > 0 else [])])


def _notes(courses: Sequence[Course]) -> Iterator[str]:
    """What is to be known of every change."""
    looked = [course for course in courses if _count(course) >= FEWEST]
    yield (
        "p is how often shuffled runs show as clear a change; the change has the 95 % interval "
        "of both means, which is somewhat too narrow, as the place was chosen by the same runs"
    )
    yield (
        f"{number(LEVEL * 100, 0)} of 100 rows without a change show one by chance, and "
        f"{number(len(looked), 0)} were looked at: confirm a change with fresh runs"
    )
    yield from _breaks(courses)


def _breaks(courses: Sequence[Course]) -> Iterator[str]:
    """Where runs are not comparable with those before them, and which runs have no value."""
    apart = {
        moment.folder: moment.apart
        for course in courses
        for moment in course.moments
        if moment.apart
    }
    for folder, found in apart.items():
        yield f"{folder} is not comparable with the run before it: {_listed(found)}"
    runs = {moment.folder for course in courses for moment in course.moments}
    copies = {moment.folder for course in courses for moment in course.moments if moment.copy}
    if copies:
        yield counted_once(len(copies), len(runs))
    absent = dict.fromkeys(
        f"{moment.folder} has no {label(course.metric)}: {moment.reason}"
        for course in courses
        for moment in course.moments
        if moment.value is None and not moment.copy
    )
    yield from list(absent)[:LISTED]
    if len(absent) > LISTED:
        yield f"and {counted(len(absent) - LISTED, 'value')} more are missing"
