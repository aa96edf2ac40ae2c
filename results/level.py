"""Whether one load level holds: the demanded share of its requests keeps every objective."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from typing import Literal

from results.attainment import Kept, attained, kept
from results.columns import columns
from results.figure import Figure, Summary
from results.metrics import summarise
from results.pool import pool
from results.run import RunPoint
from results.validity import overload

Answer = Literal["holds", "fails", "undecided", "invalid", "unmeasured"]

FULL = 0.8
"""A closed load of which a smaller share was live, on average, is not the load that was asked."""

MOST_MORE = 100
"""More repeats than this are not worth naming: the share is too close to the one demanded."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Taken:
    """One run at a level; `amiss` are its problems but those that too much load alone can bring."""

    summary: Summary
    kept: Kept | None
    amiss: tuple[str, ...]

    @property
    def broke(self) -> bool:
        """Whether the engine gave up under the load: the run did not finish, as requests failed."""
        return self.summary.status == "failed" and bool(self.summary.failures)

    @property
    def counts(self) -> bool:
        """Whether its requests say something of the level."""
        return self.summary.status == "finished" and self.kept is not None and not self.amiss


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A load level and what its runs say of it.

    `share` is that of requests within every objective. `summary` pools the runs that count, or
    all where none does. `reason` says why a level is neither, or fails for another reason than its
    share; `more` is about how many more repeats would decide an undecided one, None where that
    cannot be said.
    """

    load: float
    answer: Answer
    share: Figure
    summary: Summary
    reason: str | None = None
    more: int | None = None


def taken(point: RunPoint) -> Taken:
    """A run with what speaks for and against it."""
    summary = summarise(point)
    by_load = set(overload(columns(point.rows())))
    return Taken(
        summary=summary,
        kept=kept(point),
        amiss=tuple(problem for problem in summary.problems if problem not in by_load),
    )


def judge(load: float, runs: Sequence[Taken], *, demanded: float, looks: int) -> Level:
    """What the runs of a level say of it, where the share must surely be at least `demanded`.

    An engine that gave up while its requests failed does not hold the level, whatever came before;
    a run in which something else was amiss says nothing. `looks` as in `attained`.
    """
    counting = [run for run in runs if run.counts]
    told = [run.kept for run in counting if run.kept]
    share = attained(told, looks)
    (summary,) = pool([run.summary for run in counting or runs])
    answer, reason = _answer(share, counting, runs, demanded)
    more = None
    if answer == "undecided" and told:
        cut, more = _missing(told, demanded, looks)
        reason = cut or reason
    return Level(load=load, answer=answer, share=share, summary=summary, reason=reason, more=more)


def _answer(
    share: Figure, counting: Sequence[Taken], runs: Sequence[Taken], demanded: float
) -> tuple[Answer, str | None]:
    if broken := next((run.summary for run in runs if run.broke), None):
        return "fails", f"the engine gave up: {broken.reason}"
    if not counting:
        return _unusable(runs)
    if share.low is None or share.high is None:
        return "undecided", share.doubt or share.reason
    if share.high < demanded:
        return "fails", None
    if share.low < demanded:
        return "undecided", None
    against = next(_against(counting), None)
    return ("invalid", against) if against else ("holds", None)


def _unusable(runs: Sequence[Taken]) -> tuple[Answer, str]:
    """What is said where no run counts: whether one might have, and why the first did not."""
    first = runs[0]
    finished = all(run.summary.status == "finished" for run in runs)
    reason = first.amiss[0] if first.amiss else first.summary.reason
    return "invalid" if finished else "unmeasured", reason or "no reason was recorded"


def _against(runs: Sequence[Taken]) -> Iterator[str]:
    """Why a level whose share is good enough still cannot be said to hold."""
    for run in runs:
        yield from run.summary.problems
        load, live = run.summary.cell.load, run.summary.figures["live.mean"].value
        bounded = load.get("kind") == "closed" and load.get("sessions") is not None
        if bounded and live is not None and live < FULL * load["concurrency"]:
            yield (
                f"on average only {live:.3g} sessions were live, as they ran out: its load is not "
                f"{load['concurrency']}: state more sessions, or a duration"
            )


def _missing(runs: Sequence[Kept], demanded: float, looks: int) -> tuple[str | None, int | None]:
    """What keeps a level open where no number of repeats helps, or about how many more decide it.

    As many as it takes where each further run is like one of those that there are.
    """

    def decided(more: int, told: Sequence[Kept]) -> bool:
        longer = list(islice(cycle(told), len(told) + more))
        share = attained(longer, looks + more)
        if share.low is None or share.high is None:
            return False
        return share.high < demanded or share.low >= demanded

    if decided(MOST_MORE, runs):
        named = range(1, MOST_MORE + 1)
        return None, named[bisect_left(named, True, key=lambda more: decided(more, runs))]
    cut, good = sum(run.cut for run in runs), sum(len(run.good) for run in runs)
    if cut and decided(MOST_MORE, [replace(run, cut=0) for run in runs]):
        return (
            f"{cut} of {cut + good} requests were cut before they showed whether they are good: "
            "add a grace to the load, or make it last longer"
        ), None
    return None, None
