"""One suite over many runs: how each metric went, and where it changed its level."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, expm1
from typing import Any, Literal

import numpy as np

from results.cell import Cell
from results.changes import FEWEST, Split, changes, detectable
from results.columns import Floats
from results.comparability import differences
from results.contrast import Series, contrast
from results.copies import Seen, copied
from results.direction import DIRECTIONS
from results.errors import InputError
from results.evidence import Provenance
from results.figure import Figure, Summary, Unit
from results.metrics import summarise
from results.run import Run, RunPoint
from results.side import Side
from results.standing import Difference

METRICS = (
    *("ttft.p50", "ttft.p90", "tpot.p50", "output_rate", "goodput", "cache_hit"),
    *("batch_tpot", "batch_rate", "accuracy"),
)
"""What is looked at where nothing else is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A run in a course. `value` is the mean of its valid repeats; None with the reason why.

    A `copy` is an earlier run again, to the last digit, and has no value either. `commit` is that
    of the folder it was started in, `version` what its engine called itself. `news` is in what it
    differs from the last run before it that has a value.
    """

    folder: str
    repeats: int
    value: float | None = None
    reason: str | None = None
    provenance: Provenance | None = None
    commit: str | None = None
    version: str | None = None
    news: tuple[Difference, ...] = ()
    copy: bool = False

    @property
    def apart(self) -> tuple[Difference, ...]:
        """Why it is not comparable with the run before it; empty where it is."""
        return tuple(one for one in self.news if one.standing == "refusing")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of level that came after the run `good` and not after the run `bad`.

    They are the last run that is surely on the old level and the first one surely on the new one,
    at 95 %; `at` is the likeliest first run of the new level. `before` and `after` are the means
    of both levels, up to the changes before and after, `ratio` theirs with its 95 % interval:
    geometric means, and no ratio where a value is not positive. `p` is that of the change, not of
    the ratio. `verdict` is `spread` where the interval of the means leaves it open which is higher.
    `news` is all that became different between `good` and `bad`.
    """

    good: Moment
    at: Moment
    bad: Moment
    p: float
    before: float
    after: float
    runs: tuple[int, int]
    verdict: Literal["better", "worse", "spread"]
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    news: tuple[Difference, ...] = ()

    @property
    def apart(self) -> tuple[Difference, ...]:
        """What became different beside the engine, which the change may come of as well."""
        return tuple(one for one in self.news if one.standing == "refusing")


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """One metric of one arm under one workload and load, over runs in the order of their time.

    `level` is the mean over all runs. Where there are no changes, `detectable` is by what share a
    step in the middle would have to be off to be found in 80 of 100 cases; `reason` says why
    nothing can be said of changes.
    """

    cell: Cell
    metric: str
    unit: Unit
    moments: tuple[Moment, ...]
    level: float | None = None
    changes: tuple[Change, ...] = ()
    detectable: float | None = None
    reason: str | None = None


def history(
    runs: Sequence[Run], metrics: Sequence[str] = METRICS, *, seed: int = 0
) -> tuple[Course, ...]:
    """The courses of the metrics over all runs of one suite; those without any value are left out.

    A run is one number, however many repeats it has: they share a machine and an hour. Copies of
    a run count once, and the first one has the value. Raises InputError where runs are of several
    suites, have no time in their names, or a metric is none.
    """
    for metric in metrics:
        if metric not in DIRECTIONS:
            raise InputError(
                f"{metric} is no metric that a history can show: docs/metrics.md names them"
            )
    courses = []
    for members in _groups(_in_order(runs)).values():
        summaries = [[summarise(point) for point in side.points] for side in members]
        news = [(), *(_news(members, summaries, place) for place in range(1, len(members)))]
        copies = _copies(summaries)
        for metric in metrics:
            course = _course(metric, members, summaries, (news, copies), seed)
            if any(moment.value is not None for moment in course.moments):
                courses.append(course)
    return tuple(courses)


def _in_order(runs: Sequence[Run]) -> list[Run]:
    """The runs by the time in their names, each once."""
    suites = sorted({run.suite for run in runs})
    if len(suites) > 1:
        raise InputError(
            f"a history is of one suite, and these runs are of {' and '.join(suites)}: name those "
            "of one"
        )
    unique = {run.path.resolve(): run for run in runs}
    return sorted(unique.values(), key=_time)


def _time(run: Run) -> tuple[str, int]:
    match = re.fullmatch(r".*-(\d{8}T\d{6}Z)(?:-(\d+))?", run.path.resolve().name)
    if match is None:
        raise InputError(
            f"{run.path}: a history goes by the time in the names of run folders, and this one has "
            "none: give it back its name, <suite>-<utc>"
        )
    return match[1], int(match[2] or 1)


def _groups(runs: Sequence[Run]) -> dict[str, list[Side]]:
    """The points of every arm under every workload and load, a side a run that has some."""
    found: dict[str, dict[int, list[RunPoint]]] = {}
    for number, run in enumerate(runs):
        planned = {point["id"]: point for point in run.plan["points"]}
        for point in run.points:
            cell = point.cell
            content: Any = planned.get(cell.id, {}).get("identity") or cell.workload
            key = repr((cell.experiment, cell.arm, _sorted(content), _sorted(cell.load)))
            found.setdefault(key, {}).setdefault(number, []).append(point)
    return {
        key: [
            Side(name=runs[number].path.resolve().name, runs=(runs[number],), points=tuple(points))
            for number, points in of_runs.items()
        ]
        for key, of_runs in found.items()
    }


def _sorted(settings: Any) -> Any:
    return sorted(settings.items(), key=lambda setting: str(setting[0]))


def _copies(summaries: Sequence[Sequence[Summary]]) -> list[bool]:
    """Which runs repeat earlier ones in every valid point."""
    seen: Seen = {}
    found = []
    for run in summaries:
        valid = [one for one in run if one.valid]
        again = [copied(seen, one.cell.pairing, one.figures) for one in valid]
        found.append(bool(again) and all(again))
    return found


def _news(
    members: Sequence[Side], summaries: Sequence[Sequence[Summary]], place: int
) -> tuple[Difference, ...]:
    """In what a run differs from the last one before it that counts; what is harmless left out."""
    earlier = [n for n in range(place) if any(summary.valid for summary in summaries[n])]
    if not earlier or not any(summary.valid for summary in summaries[place]):
        return ()
    found = differences(members[earlier[-1]], members[place])
    return tuple(one for one in found if one.standing != "harmless")


def _course(
    metric: str,
    members: Sequence[Side],
    summaries: Sequence[Sequence[Summary]],
    known: tuple[Sequence[tuple[Difference, ...]], Sequence[bool]],
    seed: int,
) -> Course:
    alike: dict[str, Any] = {
        "value": None,
        "copy": True,
        "reason": "it is a copy of an earlier run",
    }
    moments = tuple(
        replace(_moment(metric, side, told, new), **(alike if again else {}))
        for side, told, new, again in zip(members, summaries, *known, strict=True)
    )
    held = [place for place, moment in enumerate(moments) if moment.value is not None]
    values = np.array([moment.value for moment in moments if moment.value is not None])
    logs = bool((values > 0).all())
    # Equal runs may differ in the last digits, and their logarithms near 0 in all of them.
    series = np.round(np.log(values), 12) if logs else values
    splits = changes(series, seed=seed)
    ends = [0, *(split.at for split in splits), len(series)]
    found = tuple(
        _change(metric, moments, held, split, levels, series, logs=logs)
        for split, levels in zip(splits, zip(ends, ends[2:], strict=False), strict=True)
    )
    step = None if found or not logs else detectable(series)
    have = "1 has" if len(held) == 1 else f"{len(held)} have"
    needed = f"{FEWEST} runs are needed to tell a change from chance, and {have} a value"
    return Course(
        cell=members[-1].points[0].cell,
        metric=metric,
        unit=DIRECTIONS[metric].unit,
        moments=moments,
        level=_back(float(series.mean()), logs=logs) if held else None,
        changes=found,
        detectable=expm1(step) if step is not None else None,
        reason=needed if len(held) < FEWEST else None,
    )


def _moment(
    metric: str, side: Side, summaries: Sequence[Summary], news: tuple[Difference, ...]
) -> Moment:
    valid = [summary for summary in summaries if summary.valid]
    figures = [summary.figures[metric] for summary in valid if metric in summary.figures]
    values = [figure.value for figure in figures if figure.value is not None]
    git = side.runs[0].environment.get("git") or {}
    return Moment(
        folder=side.name,
        repeats=len(values),
        value=float(np.mean(values)) if values else None,
        reason=None if values else _missing(summaries, figures),
        provenance=next((one.provenance for one in summaries if one.provenance), None),
        commit=git.get("commit"),
        version=_version(side),
        news=news,
    )


def _missing(summaries: Sequence[Summary], figures: Sequence[Figure]) -> str:
    """Why a run has no value."""
    if figures:
        return figures[0].reason or "it was not measured"
    told = (problem for summary in summaries for problem in (summary.reason, *summary.problems))
    return next((problem for problem in told if problem), "it was not measured")


def _version(side: Side) -> str | None:
    """What the engine calls its version, by the last point that tells it."""
    for point in reversed(side.points):
        if point.evidence is not None:
            told = point.evidence.observed.configuration.get("version")
            told = told.get("version") if isinstance(told, dict) else told
            if told is not None:
                return str(told)
    return None


def _change(
    metric: str,
    moments: Sequence[Moment],
    held: Sequence[int],
    split: Split,
    ends: tuple[int, int],
    series: Floats,
    *,
    logs: bool,
) -> Change:
    """A change with its size, by Welch's interval of two means."""
    before, after = series[ends[0] : split.at], series[split.at : ends[1]]
    names = np.arange(len(before)), len(before) + np.arange(len(after))
    estimate = contrast(Series(values=before, pairs=names[0]), Series(values=after, pairs=names[1]))
    low, high = estimate.interval or (None, None)
    # Levels without any spread differ for sure.
    moved = low is None or high is None or low * high > 0
    good_way = (estimate.change < 0) == (DIRECTIONS[metric].better == "lower")
    good, bad = held[split.low - 1], held[split.high]
    between = moments[good + 1 : bad + 1]
    return Change(
        good=moments[good],
        at=moments[held[split.at]],
        bad=moments[bad],
        p=split.p,
        before=_back(float(before.mean()), logs=logs),
        after=_back(float(after.mean()), logs=logs),
        runs=(len(before), len(after)),
        verdict=("better" if good_way else "worse") if moved else "spread",
        ratio=exp(estimate.change) if logs else None,
        low=exp(low) if logs and low is not None else None,
        high=exp(high) if logs and high is not None else None,
        news=tuple(dict.fromkeys(one for moment in between for one in moment.news)),
    )


def _back(value: float, *, logs: bool) -> float:
    return exp(value) if logs else value
