"""A baseline: several runs in one small file, to hold later runs against."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from results import contest
from results.answers import compact
from results.comparability import differences
from results.copies import Seen, copied
from results.direction import DIRECTIONS
from results.errors import InputError
from results.excerpt import excerpt
from results.pairing import requests
from results.run import Kept, Run, RunPoint, identity
from results.scores import AMISS
from results.side import Side, of_arm
from results.steps import TIME
from results.tokens import KEPT, drawn
from results.veil import veiled

KEEPS = 10
"""How many runs a baseline keeps unless it says otherwise: the newest ones."""

REQUESTS = 3000
"""So many requests at most are kept one by one: those of the newest runs."""

COUNTS = ("requests", "ok", "failed", "answers", *AMISS)
"""What is kept beside everything that can be compared."""

OF_PLAN = ("hash", "salt", "suite_path", "overrides")
"""What is kept of plan.json beside its points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """Runs of one suite, the oldest first, all of them complete and valid."""

    suite: str
    keeps: int
    runs: tuple[Run, ...]

    @property
    def paired(self) -> int:
        """How many of its runs keep every request, or answer, to be compared with its own."""
        return sum(all(p.kept and p.kept.whole for p in run.points) for run in self.runs)

    @property
    def copies(self) -> int:
        """How many of its runs are copies of others, and count once in a comparison."""
        seen: Seen = {}
        return sum(_copied(run, seen) for run in self.runs)


def _copied(run: Run, seen: Seen) -> bool:
    """Whether every point of the run is one that was seen already."""
    told = [
        copied(seen, f"{one.cell.arm} {one.cell.pairing}", one.kept.figures)
        for one in run.points
        if one.kept
    ]
    return bool(told) and all(told)


def baseline(runs: Sequence[Run], *, keeps: int = KEEPS, old: Baseline | None = None) -> Baseline:
    """The baseline of these runs and of those in an old one, of them all the newest `keeps`.

    Raises InputError where a run is of another suite, is not complete and valid, or was made of
    something else than the others.
    """
    kept = [keep(run) for run in runs]
    known = {run.path.name: run for run in (old.runs if old else ())}
    for run in kept:
        if known.get(run.path.name, run).run_id != run.run_id:
            raise InputError(
                f"{run.path.name} is the name of two different runs: rename the folder of one"
            )
        known[run.path.name] = run
    refuse_copies(tuple(known.values()))
    whole = sorted(known.values(), key=lambda run: (made(run), run.path.name))[-keeps:]
    for run in whole[1:]:
        _agree(whole[0], run)
    if not whole:
        raise InputError("a baseline needs a run at least: name run folders")
    return Baseline(suite=whole[0].suite, keeps=keeps, runs=_affordable(whole))


def refuse_copies(runs: Sequence[Run]) -> None:
    """Raises InputError where a run stands twice among them, under whatever names."""
    known: dict[str, Run] = {}
    for run in runs:
        same = known.setdefault(identity(run), run)
        if same is not run:
            raise InputError(
                f"{same.path.name} and {run.path.name} are one run under two names: keep one"
            )


def keep(run: Run) -> Run:
    """The run as a baseline keeps it: figures in place of folders, and no secrets.

    Raises InputError where it is not complete, or a point is not valid.
    """
    where = f"{run.path} cannot be a baseline"
    if run.planned or not run.points:
        left = f": {run.planned[0]} has not begun" if run.planned else ""
        raise InputError(f"{where}, because it is not complete{left}: finish it first")
    folders = {point["id"]: point for point in run.plan["points"]}
    kept = ("id", "name", "cell", "identity", "suite_seed")
    points = [
        {name: folders[point.cell.id].get(name) for name in kept} | {"folder": point.path.name}
        for point in run.points
    ]
    times = Counter(point.cell.cell for point in run.points)
    plan = {"suite": run.suite, **{name: run.plan.get(name) for name in OF_PLAN}}
    return replace(
        run,
        plan={**plan, "made": made(run), "points": points},
        points=tuple(_kept(point, where, times[point.cell.cell] < 2) for point in run.points),
    )


def made(run: Run) -> str:
    """When the run began, as its folder is called, or as its plan was written."""
    if "made" in run.plan:
        return str(run.plan["made"])
    if stamp := re.search(r"-(\d{8}T\d{6}Z)(?:-\d+)?$", run.path.name):
        return stamp[1]
    written = (run.path / "plan.json").stat().st_mtime
    return f"{datetime.fromtimestamp(written, UTC):%Y%m%dT%H%M%SZ}"


def of_runs(name: str, runs: Sequence[Run], arm: str | None = None) -> Side:
    """The side that these runs are, or one arm of them."""
    points = [point for run in runs for point in of_arm(run, arm)]
    return Side(name=name, runs=tuple(runs), points=tuple(points))


def _kept(point: RunPoint, where: str, alone: bool) -> RunPoint:
    # Several runs say better than any one of them how sure a figure is.
    entry, sent = contest.read(point, alone)
    summary = entry.summary
    if not summary.valid:
        told = "INVALID" if summary.problems else summary.status
        because = next(iter(summary.problems), summary.reason or "it was interrupted")
        raise InputError(f"{where}: {point.cell.name} is {told}, {because}: run it again")
    figures = {
        name: figure
        for name, figure in summary.figures.items()
        if name in DIRECTIONS or name in COUNTS or name.startswith(f"{TIME}.")
    }
    graded = entry.answers
    few = graded is None and len(sent) <= REQUESTS
    rows, tokens = (excerpt(point.rows()), None) if few else (None, drawn(sent, KEPT))
    kept = Kept(
        figures=figures,
        means=entry.means,
        rows=rows,
        tokens=tokens,
        answers=None if graded is None else compact(graded),
    )
    return veiled(replace(point, path=Path(point.path.parent.name, point.path.name), kept=kept))


def _agree(one: Run, other: Run) -> None:
    """Raises InputError where two runs are not runs of one thing."""
    found = differences(of_runs(one.path.name, [one]), of_runs(other.path.name, [other]))
    apart = [each for each in found if each.standing in {"refusing", "factor"}]
    if apart:
        told = "; ".join(f"{each.key}: {each.base} against {each.other}" for each in apart)
        raise InputError(
            f"{one.path.name} and {other.path.name} are no runs of one thing ({told}): make a new "
            "baseline with -o, of the runs that agree"
        )


def _affordable(runs: Sequence[Run]) -> tuple[Run, ...]:
    """The runs, of which the newest keep their requests as far as there is room for them."""
    kept: list[Run] = []
    room = REQUESTS
    for run in reversed(runs):
        told = [point.kept for point in run.points if point.kept]
        rows = [one.rows for one in told if one.answers is None]
        held = [one.num_rows for one in rows if one is not None]
        room = room - sum(held) if len(held) == len(rows) else -1
        whole = room >= 0
        kept.append(run if whole else replace(run, points=tuple(map(_without_rows, run.points))))
    return tuple(reversed(kept))


def _without_rows(point: RunPoint) -> RunPoint:
    if point.kept is None or point.kept.rows is None:
        return point
    tokens = drawn(requests(point.kept.rows), KEPT)
    return replace(point, kept=replace(point.kept, rows=None, tokens=tokens))
