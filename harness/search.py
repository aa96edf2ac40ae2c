"""Runs only those points of a plan that bracket the highest load at which objectives hold."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from harness.load import Closed, Load, Open, Recorded
from harness.point import Point
from harness.run import Watch, run
from results.bracket import Bracket, bounds, next_rung
from results.errors import InputError
from results.folder import RunFolder
from results.level import Level, Taken, judge, taken
from results.pool import FEWEST_RUNS
from results.run import read


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """The points of an arm under one workload: its loads, ascending, and the repeats of each."""

    loads: tuple[float, ...]
    rungs: tuple[tuple[Point, ...], ...]


def search(
    points: Sequence[Point],
    folder: RunFolder,
    watch: Watch,
    *,
    demanded: float,
    budget: float | None = None,
    estimates: Sequence[float | None] = (),
    keys: Mapping[str, str] | None = None,
) -> list[Bracket]:
    """A bracket for each ladder of the plan, in the plan's order; the rest stays planned.

    The ladders climb side by side: each round runs one more point of every ladder that is not
    decided, in the order of the plan. A level gets repeats until it is decided or has them all, and
    those that the answer rests on get three where there are as many. Points that have an outcome
    are used and not run again. Raises InputError where there is no ladder; the other arguments are
    those of `harness.run.run`.
    """
    found, _ = ladders(points)
    guesses = dict(zip((point.id for point in points), estimates, strict=False))
    started, begun = time.monotonic(), 0
    seen = _taken(folder, {})
    while wanted := _wanted(found, seen, demanded):
        statuses = run(
            wanted,
            folder,
            watch,
            budget=None if budget is None else max(0.0, budget - (time.monotonic() - started)),
            estimates=[guesses.get(point.id) for point in wanted],
            keys=keys,
            begun=begun,
        )
        if statuses["not started"]:
            break
        begun += len(wanted)
        seen = _taken(folder, seen)
    return [_bracket(ladder, seen, demanded) for ladder in found]


def ladders(points: Iterable[Point]) -> tuple[list[Ladder], tuple[str, ...]]:
    """The ladders of a plan, and a sentence for each of its parts that is none.

    Raises InputError where no part is one, or where a load would hide its waiting from objectives.
    """
    groups: dict[str, list[Point]] = {}
    for point in points:
        alike = replace(point, load=_unloaded(point.load), repeat=0, position=0)
        groups.setdefault(alike.id, []).append(point)
    found: list[Ladder] = []
    left_out: list[str] = []
    for group in groups.values():
        if why := _no_ladder(group):
            left_out.append(f"{group[0].experiment}: {why}")
        else:
            found.append(_ladder(group))
    left_out = list(dict.fromkeys(left_out))
    if not found:
        raise InputError("\n".join(left_out) or "the suite has no points: add an experiment")
    return found, tuple(left_out)


def _no_ladder(points: Sequence[Point]) -> str | None:
    """Why there is no highest load to search for among these points; None where there is."""
    aims = points[0].objectives
    if aims.ttft is None and aims.tpot is None and aims.e2el is None:
        return "states no objectives, so there is nothing to hold: add objectives: {ttft: 2s}"
    if len({_pressure(point.load) for point in points}) < 2:
        return (
            "has one load level only, so there is nothing to search: write a list of them, such as "
            "concurrency: [1, 2, 4, 8]"
        )
    return None


def _ladder(points: Sequence[Point]) -> Ladder:
    rungs: dict[float, list[Point]] = {}
    for point in sorted(points, key=lambda point: (_pressure(point.load), point.repeat)):
        rungs.setdefault(_pressure(point.load), []).append(point)
        name = point.experiment
        if not isinstance(point.load, Closed) and point.load.limit:
            raise InputError(
                f"{name}: load.limit lets requests wait before they are sent, where objectives do "
                "not see it: leave limit out"
            )
    for load, members in rungs.items():
        if len({point.repeat for point in members}) < len(members):
            raise InputError(
                f"{points[0].experiment}: expected one load of each level, got several of "
                f"{load:g}: leave all but one out"
            )
    return Ladder(loads=tuple(rungs), rungs=tuple(map(tuple, rungs.values())))


def _pressure(load: Load) -> float:
    """The number by which levels are ordered."""
    match load:
        case Closed():
            return float(load.concurrency)
        case Open():
            return load.rate
        case Recorded():
            return load.speed


def _unloaded(load: Load) -> Load:
    """What loads of one ladder have in common."""
    match load:
        case Closed():
            return Closed(sessions=1)
        case Open():
            return Open(rate=1, process=load.process, burstiness=load.burstiness, sessions=1)
        case Recorded():
            return Recorded(sessions=1)


def _taken(folder: RunFolder, before: Mapping[str, Taken]) -> dict[str, Taken]:
    """Every point that has an outcome, by its id; rows that were read before are not read again."""
    ended = [
        point for point in read(folder.path).points if point.status not in {"broken", "not started"}
    ]
    return {point.cell.id: before.get(point.cell.id) or taken(point) for point in ended}


def _wanted(found: Iterable[Ladder], seen: Mapping[str, Taken], demanded: float) -> list[Point]:
    """The next point of every ladder that is not decided, in the order of the plan."""
    wanted = (_next(ladder, seen, demanded) for ladder in found)
    return sorted(filter(None, wanted), key=lambda point: point.position)


def _next(ladder: Ladder, seen: Mapping[str, Taken], demanded: float) -> Point | None:
    levels = _levels(ladder, seen, demanded)
    answers = {rung: level.answer for rung, level in levels.items()}
    bottom, top = bounds(len(ladder.rungs), answers)
    left = {
        rung: [point for point in ladder.rungs[rung] if point.id not in seen] for rung in levels
    }
    for rung in range(bottom + 1, top):
        if left.get(rung) and answers[rung] in {"undecided", "invalid"}:
            return left[rung][0]
    following = next_rung(len(ladder.rungs), answers)
    if following is not None:
        return ladder.rungs[following][0]
    return _confirming(ladder, {bottom, top} & levels.keys(), left)


def _confirming(
    ladder: Ladder, edges: Iterable[int], left: Mapping[int, Sequence[Point]]
) -> Point | None:
    """A further run of a level that the answer rests on: fewer do not show the spread of runs."""
    for rung in sorted(edges):
        if left[rung] and len(ladder.rungs[rung]) - len(left[rung]) < FEWEST_RUNS:
            return left[rung][0]
    return None


def _levels(ladder: Ladder, seen: Mapping[str, Taken], demanded: float) -> dict[int, Level]:
    """The levels that have runs, by their rung."""
    levels = {}
    for rung, (load, repeats) in enumerate(zip(ladder.loads, ladder.rungs, strict=True)):
        runs = [seen[point.id] for point in repeats if point.id in seen]
        if runs:
            levels[rung] = judge(load, runs, demanded=demanded, looks=len(repeats))
    return levels


def _bracket(ladder: Ladder, seen: Mapping[str, Taken], demanded: float) -> Bracket:
    point = ladder.rungs[0][0]
    return Bracket(
        experiment=point.experiment,
        arm=point.deployment.arm,
        workload=point.workload.label,
        kind=point.load.kind,
        demanded=demanded,
        ladder=ladder.loads,
        levels=tuple(_levels(ladder, seen, demanded).values()),
    )
