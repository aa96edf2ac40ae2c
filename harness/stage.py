"""All lanes of one point: what they are when they start, and what they say of themselves."""

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal

from harness import live
from harness.agenda import Agenda
from harness.live import Live
from harness.load import Closed
from harness.making import Made
from harness.trial import Trial
from results.errors import EngineError, InputError
from results.evidence import Protocol
from results.record import Phase
from workloads.agentx import AgentX
from workloads.content import marker
from workloads.plan import Plan
from workloads.profile import Profile
from workloads.replay import Replay
from workloads.session import Key
from workloads.start import Start, starts

MADE_AHEAD = 64
"""Replays that are kept ready, beyond those that lanes begin with."""


@dataclass(slots=True, kw_only=True)
class Stage:
    """All lanes of one point: what every event needs.

    `phase` is that of the requests sent now; when `closed`, no more are sent. `over` is set when a
    phase has ended, and `failure` is why all of it must. `unmarked` are the prefixes of each trace
    that stand before a marker: all its trees share them. `coming` are as many replays as are kept
    `ahead`; one more is being made by `building`. Lanes that are `free`, since when, wait for one.
    The last answer of all ended at `idle`, or the window opened then.
    """

    trial: Trial
    workload: AgentX
    profile: Profile
    source: Iterator[Replay]
    ahead: int
    coming: deque[Replay]
    building: asyncio.Task[None] | None = None
    free: deque[tuple[int, float]] = field(default_factory=deque)
    begun: list[tuple[Start, Live]]
    trees: dict[int, Live] = field(default_factory=dict)
    passes: Counter[str] = field(default_factory=Counter)
    unmarked: defaultdict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    agenda: Agenda
    watch: Agenda
    phase: Phase = "primer"
    closed: bool = False
    over: asyncio.Event = field(default_factory=asyncio.Event)
    failure: str | None = None
    made: dict[tuple[int, Key], Made] = field(default_factory=dict)
    admitted: Counter[int] = field(default_factory=Counter)
    fuse: asyncio.TimerHandle | None = None
    flying: int = 0
    idle: float = 0.0
    ended: int = 0
    failed: int = 0
    hurried: dict[Literal["tree", "system"], list[float]] = field(
        default_factory=lambda: {"tree": [], "system": []}
    )
    recycled: int = 0
    unready: int = 0


Told = Callable[[Stage], None]


def set_up(trial: Trial, workload: AgentX, ring: Told, look: Told) -> Stage:
    """The lanes as they stand before anything is sent.

    `ring` is told when a step has fallen due, `look` when a tree may have been idle for too long.
    Raises InputError where the load is none for a profile, EngineError where too few traces have
    anything to send.
    """
    load, profile = trial.point.load, workload.rules
    assert profile is not None
    if not isinstance(load, Closed) or load.duration is None or load.sessions is not None:
        raise InputError(
            f"{trial.point.name}: {profile.id} is for a closed load with a duration and no "
            "number of sessions: write kind, concurrency and duration"
        )
    seed = trial.point.seed if profile.seed is None else profile.seed
    source = workload.replays(seed)
    found = _begun(source, load.concurrency, workload.pool, profile, seed)
    ahead = min(MADE_AHEAD, workload.pool)
    stage = Stage(
        trial=trial,
        workload=workload,
        profile=profile,
        source=source,
        ahead=ahead,
        coming=deque(islice(source, ahead)),
        begun=[],
        agenda=Agenda(lambda: ring(stage)),
        watch=Agenda(lambda: look(stage)),
    )
    # Markers count in the order in which the public client makes them: lanes with primers first.
    for start, replay in sorted(found, key=lambda one: (not one[0].primers, one[0].lane)):
        stage.begun.append((start, plant(stage, replay, start)))
    stage.begun.sort(key=lambda one: one[0].lane)
    return stage


def _begun(
    source: Iterator[Replay], lanes: int, pool: int, profile: Profile, seed: int
) -> list[tuple[Start, Replay]]:
    """Where each lane starts, and in which replay."""
    taken: dict[str, Replay] = {}
    found = starts(_plans(source, taken), lanes, pool, profile, seed)
    if len(found) < lanes:
        raise EngineError(
            f"only {len(found)} of {lanes} lanes find a trace with something to send after its "
            "start: add traces"
        )
    return [(start, taken[start.trace]) for start in found]


def _plans(source: Iterator[Replay], taken: dict[str, Replay]) -> Iterator[Plan]:
    """The plans of the replays, each of which is noted by its trace."""
    for replay in source:
        taken[replay.plan.trace] = replay
        yield replay.plan


def make_ahead(stage: Stage, then: Told) -> None:
    """Has the next replay made, and `then` told; at once where nobody's time passes meanwhile."""
    trial = stage.trial
    if stage.building is not None or stage.closed or len(stage.coming) >= stage.ahead:
        return
    if trial.point.deployment.engine.clock == "virtual":
        stage.coming.append(next(stage.source))
    else:
        stage.building = trial.sends.create_task(_made(stage, then))


async def _made(stage: Stage, then: Told) -> None:
    # A large trace takes a few tenths of a second, for which no answer may wait. Nobody else
    # touches the source meanwhile.
    stage.coming.append(await asyncio.to_thread(next, stage.source))
    stage.building = None
    then(stage)


def plant(stage: Stage, replay: Replay, start: Start) -> Live:
    """The tree that a lane replays from now on, with a marker of its own."""
    trial = stage.trial
    passed = stage.passes[start.trace]
    stage.passes[start.trace] += 1
    text = marker(f"{trial.salt}:{trial.id}", passed, start.lane, start.trace)
    tree = live.begin(replay, start, number=next(trial.trees), text=text)
    stage.trees[tree.number] = tree
    return tree


def protocol(stage: Stage) -> Protocol:
    """What the replay says of itself, for the evidence."""
    profile = stage.profile
    return Protocol(
        profile=profile.id,
        hash=profile.hash,
        departures=(*stage.workload.departures(), *_departures(stage)),
        coverage=profile.coverage,
        overflow_share=profile.overflow_share,
        intended=stage.workload.intended(),
        hurried={kind: (len(moved), sum(moved)) for kind, moved in stage.hurried.items()},
        recycled=stage.recycled,
        unready=stage.unready,
        traces=stage.workload.pool,
        seed=profile.seed,
        published=profile.published,
    )


def _departures(stage: Stage) -> Iterator[str]:
    """In what the load is not the profile's."""
    load, profile = stage.trial.point.load, stage.profile
    assert load.duration is not None
    for name in ("duration", "grace"):
        stated, own = getattr(load, name), getattr(profile, name)
        if stated != own:
            yield f"{name}: {stated:g} s, not the {own:g} s of {profile.id}"
    if load.duration < profile.least_duration:
        yield f"{profile.id} asks for at least {profile.least_duration:g} s"
    if load.warmup:
        yield "requests of every shape are sent before the primers: write warmup: 0"
