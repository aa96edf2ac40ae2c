"""The gap in accuracy between two sides: every number that says how sure it is, in one table."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from reports.account import Account, CellAccount, account
from reports.labels import marked
from reports.notation import number, percent
from reports.tables import ANSWERED, Column, Sheet
from reports.verdicts import headline, in_unit
from results.comparison import compare
from results.gap import Gap
from results.run import Run
from results.scores import HEADLINE, asks
from results.side import within
from results.verdict import Judgement

NOTES = (
    "gap in SE: the gap over its standard error, paired by question, and as if they were others; "
    "1.5 and less of an unpaired one on few questions shows nothing, and no equality either",
    "provable: the smallest margin at which equal sides are shown no worse in 80 of 100 cases",
    "better / worse: questions with another score in other; failed and the like: base / other",
)

Measure = tuple[str, Callable[[Judgement, Gap], str]]

MEASURES: tuple[Measure, ...] = (
    ("base", lambda _, gap: f"{gap.base * 100:.1f} %"),
    ("other", lambda _, gap: f"{gap.other * 100:.1f} %"),
    ("difference", lambda one, _: in_unit(one.effect)[0]),
    ("95 % interval", lambda one, _: in_unit(one.effect)[1] or "n/a"),
    ("SE, paired", lambda _, gap: _points(gap.error)),
    ("SE, unpaired", lambda _, gap: _points(gap.unpaired)),
    ("gap in SE, paired", lambda _, gap: _times(gap.in_errors[0])),
    ("gap in SE, unpaired", lambda _, gap: _times(gap.in_errors[1])),
    ("p", lambda _, gap: _p(gap.p)),
    ("p, exact", lambda _, gap: _p(gap.exact)),
    ("p by", lambda _, gap: gap.test),
    ("better / worse", lambda _, gap: f"{gap.gained:,} / {gap.lost:,}"),
    ("questions", lambda _, gap: _questions(gap)),
    ("answers on both", lambda _, gap: f"{gap.answered:,} of {gap.asked:,}"),
    ("identical texts", lambda _, gap: _alike(gap)),
    ("flips in base", lambda _, gap: percent(gap.flips[0], 2)),
    ("flips in other", lambda _, gap: percent(gap.flips[1], 2)),
    ("MDD", lambda _, gap: _points(gap.detectable)),
    ("provable", lambda _, gap: _points(gap.provable)),
    ("verdict", lambda one, _: one.verdict),
)
"""What is told of a gap, in order."""


def gap_sheet(cell: CellAccount) -> Sheet | None:
    """A column for each score of the answers, a row for each number; None where none were asked."""
    told = [(one, one.effect.gap) for one in cell.cell.judgements if one.effect.gap]
    if not told:
        return None
    name = cell.cell.experiment
    place = cell.place if cell.place.startswith(name) else f"{name}, {cell.place}"
    rows = [(name, *(value(one, gap) for one, gap in told)) for name, value in MEASURES]
    # Before the verdict: they are of the answers, whatever is made of them.
    rows[-1:-1] = [
        (ANSWERED[name], *[f"{_counted(base)} / {_counted(other)}"] * len(told))
        for name, base, other in told[0][1].amiss
    ]
    return Sheet(
        title=marked(f"Gap in accuracy: {place}", cell.mark),
        columns=(
            Column(name="measure", number=False),
            *(Column(name=one.effect.metric.partition(".")[2] or HEADLINE) for one, _ in told),
        ),
        rows=tuple(row for row in rows if set(row[1:]) != {"n/a"}),
        notes=(*NOTES, *_flipping(told[0][1])),
    )


def arms_apart(run: Run) -> Iterator[Account]:
    """In each experiment, the accuracies of the first arm against those of each other one."""
    asked = [point for point in run.points if asks(point.cell)]
    for name in dict.fromkeys(point.cell.experiment for point in asked):
        points = tuple(point for point in asked if point.cell.experiment == name)
        if len({point.cell.arm for point in points}) > 1:
            for base, other in within(replace(run, points=points)):
                yield account(compare(base, other), base, other)


def gap_lines(found: Account) -> Iterator[str]:
    """What a comparison of accuracies says first, and why not all of it was judged."""
    name = f"{found.cells[0].cell.experiment}: " if found.cells else ""
    yield from (f"{name}{line}" for line in headline(found))
    yield from (f"refused: {sentence}" for sentence in found.comparison.refusals)
    for cell in found.cells:
        yield from (f"{cell.place}: not judged: {problem}" for problem in cell.cell.problems)


def gap_sheets(found: Account) -> list[Sheet]:
    """The table of every cell's gap."""
    return [sheet for cell in found.cells if (sheet := gap_sheet(cell))]


def _flipping(gap: Gap) -> Iterator[str]:
    """What an engine against itself shows, which a gap has to be more than."""
    if any(one is not None for one in gap.flips):
        yield (
            "flips: answers whose score is another one in the next run of the very same arm: so "
            "many change without any cause"
        )


def _points(share: float | None) -> str:
    return "n/a" if share is None else f"{share * 100:.2f} points"


def _counted(count: int | None) -> str:
    return "n/a" if count is None else number(count, 0)


def _times(errors: float | None) -> str:
    return "n/a" if errors is None else number(errors, 1)


def _p(p: float | None) -> str:
    if p is None:
        return "n/a"
    return f"{p:.2g}" if p >= 0.0001 else "< 0.0001"


def _questions(gap: Gap) -> str:
    groups = "" if gap.groups is None else f" in {gap.groups:,} groups"
    return f"{gap.questions:,}{groups}"


def _alike(gap: Gap) -> str:
    return "n/a" if gap.alike is None else f"{gap.alike[0]:,} of {gap.alike[1]:,}"
