"""Sends a point's load through a client, and hands on one record a request."""

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Any

import numpy as np

from harness import lanes
from harness.client import Client, Reply, Request
from harness.clock import now, until
from harness.load import Closed, Open, Recorded, arrivals
from harness.point import Point
from harness.stage import protocol
from harness.trial import (
    Call,
    Hear,
    Keep,
    Trial,
    ceiling_of,
    landed,
    launch,
    rank_of,
    record,
    send,
    unheard,
)
from harness.warmth import due, restless
from results.errors import EngineError
from results.evidence import Protocol
from results.record import Phase
from workloads.agentx import AgentX
from workloads.prompt import seed_of
from workloads.session import Key, Session, Turn

UNPLACED = "never sent: it waited for its place when the window ended"

MADE_AHEAD = 16
"""Sessions made before the window opens, where the load does not say how many start together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """When the load that counts began and ended, in seconds since the point began.

    `origin` is that moment on the clock of the event loop. `protocol` is what a replay by a profile
    says of itself, `restless` why its warm-up was none.
    """

    origin: float
    opened: float
    closed: float
    protocol: Protocol | None = None
    restless: str | None = None


@dataclass(slots=True, kw_only=True)
class Tree:
    """One session under way: its salt, its place, who began and ended, which prefixes were sent."""

    session: Session
    number: int
    lane: int
    start: float
    warmup: bool
    salt: int
    begins: dict[Key, asyncio.Future[float]]
    ends: dict[Key, asyncio.Future[float]]
    seen: set[int] = field(default_factory=set)


async def drive(
    point: Point,
    client: Client,
    keep: Keep,
    *,
    run: str,
    salt: int,
    interrupt: asyncio.Event,
    settle: bool = False,
    hear: Hear = unheard,
) -> Window:
    """Warms the server up, opens the window, follows the load, and closes it.

    Every request sent becomes a record, also those cut at the end; `hear` is told what came of
    those for a question. Returns early, with everything in flight cut, when `interrupt` is set.
    Raises EngineError where a profile's rules end it.
    """
    load = point.load
    limit = None if isinstance(load, Closed) else load.limit
    async with asyncio.TaskGroup() as sends:
        trial = Trial(
            point=point,
            id=point.id,
            arm=point.deployment.arm,
            client=client,
            keep=keep,
            hear=hear,
            run=run,
            salt=salt,
            sends=sends,
            limit=asyncio.Semaphore(limit) if limit else None,
            origin=now(),
            speed=load.speed if isinstance(load, Recorded) else None,
        )
        stop = sends.create_task(interrupt.wait())
        await _race(_warm_up(trial, settle=settle), stop)
        if isinstance(point.workload, AgentX) and point.workload.rules is not None:
            window = await _replay(trial, point.workload, stop)
        else:
            window = await _sessions_in_turn(trial, stop)
        trial.cut.set()
        stop.cancel()
    return replace(window, restless=trial.restless)


async def _sessions_in_turn(trial: Trial, stop: asyncio.Task[Any]) -> Window:
    """Follows the load through a window, with sessions that start at their first turns."""
    load = trial.point.load
    sessions = _sessions(trial)
    opened = now()
    await _race(_follow(trial, sessions, opened), stop, seconds=load.duration)
    closed = now()
    await _race(landed(trial), stop, seconds=load.grace)
    origin = trial.origin
    return Window(origin=origin, opened=opened - origin, closed=closed - origin)


async def _replay(trial: Trial, workload: AgentX, stop: asyncio.Task[Any]) -> Window:
    """Replays lanes by the workload's profile: primers, pressure, then the window."""
    load = trial.point.load
    stage = lanes.set_up(trial, workload)
    try:
        await _race(lanes.warm_up(stage), stop)
        opened = now()
        if not stage.failure:
            await _race(lanes.follow(stage, opened), stop, seconds=load.duration)
    finally:
        lanes.close(stage)
    closed = now()
    if not stage.failure:
        await _race(landed(trial), stop, seconds=load.grace)
    else:
        trial.cut.set()
        await landed(trial)
        raise EngineError(stage.failure)
    return Window(
        origin=trial.origin,
        opened=opened - trial.origin,
        closed=closed - trial.origin,
        protocol=protocol(stage),
    )


async def _race(
    work: Coroutine[Any, Any, None], stop: asyncio.Task[Any], *, seconds: float | None = None
) -> None:
    """Does the work until it is done, time is up or `stop` has ended, and then no longer."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task, stop}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        task.cancel()
        await asyncio.wait({task})
    if not task.cancelled():
        task.result()


async def _warm_up(trial: Trial, *, settle: bool) -> None:
    """Sends every shape of the workload to every rank, one session at a time, in rounds."""
    rounds: list[list[float]] = []
    while due(rounds, trial.point.load.warmup, settle=settle):
        rounds.append(await _round(trial, len(rounds)))
    trial.restless = restless(rounds, trial.point.load.warmup, settle=settle)


async def _round(trial: Trial, turn: int) -> list[float]:
    """Sends every shape once; how many seconds each took."""
    took = []
    for rank in range(trial.point.deployment.topology.ranks):
        seed = seed_of(trial.point.seed, "warm-up", turn, rank)
        for session in trial.point.workload.warmup(seed):
            began = now()
            await _walk(trial, session, lane=rank, start=began, warmup=True)
            took.append(now() - began)
    return took


def _sessions(trial: Trial) -> Iterator[Session]:
    """The sessions of the load, the first of them made at once.

    Making a long session takes a while, and those that start together should not wait for it.
    """
    load = trial.point.load
    sessions = islice(trial.point.workload.sessions(trial.point.seed), load.sessions)
    together = load.concurrency if isinstance(load, Closed) else MADE_AHEAD
    return chain(list(islice(sessions, together)), sessions)


async def _follow(trial: Trial, sessions: Iterator[Session], opened: float) -> None:
    """Starts sessions as the load says, until there are no more."""
    load = trial.point.load
    async with asyncio.TaskGroup() as lanes:
        match load:
            case Closed():
                for lane in range(load.concurrency):
                    lanes.create_task(_lane(trial, sessions, lane))
            case Open():
                moments = arrivals(load, seed_of(trial.point.seed, "arrivals"))
                for lane, (moment, session) in enumerate(zip(moments, sessions, strict=False)):
                    await until(opened + moment)
                    lanes.create_task(_walk(trial, session, lane=lane, start=opened + moment))
            case Recorded():
                for lane, session in enumerate(sessions):
                    lanes.create_task(_walk(trial, session, lane=lane, start=opened))


async def _lane(trial: Trial, sessions: Iterator[Session], lane: int) -> None:
    for session in sessions:
        await _walk(trial, session, lane=lane, start=now())


async def _walk(
    trial: Trial, session: Session, *, lane: int, start: float, warmup: bool = False
) -> None:
    """Sends a session's turns to the last, each stream beside the others."""
    number = next(trial.trees)
    future = asyncio.get_running_loop().create_future
    tree = Tree(
        session=session,
        number=number,
        lane=lane,
        start=start,
        warmup=warmup,
        salt=seed_of(trial.salt, trial.id, number),
        begins={turn.previous: future() for turn in session.turns if turn.early and turn.previous},
        ends={turn.key: future() for turn in session.turns},
    )
    streams: dict[str, list[Turn]] = {}
    for turn in session.turns:
        streams.setdefault(turn.key.stream, []).append(turn)
    async with asyncio.TaskGroup() as group:
        for place, turns in enumerate(streams.values()):
            group.create_task(_stream(trial, tree, turns, place if session.apart else 0))


async def _stream(trial: Trial, tree: Tree, turns: Sequence[Turn], place: int) -> None:
    """Sends one stream's turns, each when it is due and all it waits for has ended."""
    pinned = rank_of(trial, tree.lane, place)
    for number, turn in enumerate(turns):
        request = _request(trial, tree, turn, pinned)
        await trial.client.prepare(request)
        planned, ready = await _due(trial, tree, turn)
        await until(ready)
        if trial.limit:
            held = trial.limit.locked()
            try:
                await trial.limit.acquire()
            except asyncio.CancelledError:
                _never_sent(trial, tree, turns[number:], pinned)
                raise
            ready = now() if held else ready
        launch(trial, _send(trial, tree, _call(tree, turn, request, planned, ready)))
    await asyncio.gather(*(tree.ends[turn.key] for turn in turns))


def _never_sent(trial: Trial, tree: Tree, turns: Sequence[Turn], pinned: int | None) -> None:
    """Records the first turn, which waited for its place when the window closed, and more like it.

    Of a recorded stream, all turns that were due by then wait behind the first.
    """
    for turn in turns:
        planned = tree.start + turn.delay
        if trial.speed and turn.recorded is not None:
            planned = tree.start + turn.recorded / trial.speed
        elif turn is not turns[0]:
            return
        elif turn.previous is not None:
            planned = tree.ends[turn.previous].result() + turn.delay
        if planned > now():
            return
        request = _request(trial, tree, turn, pinned)
        call = _call(tree, turn, request, planned, planned)
        reply = Reply(
            sent=None,
            stamps=np.zeros(0),
            tokens=None,
            kinds=np.zeros(0, dtype=np.uint8),
            closed=now(),
            cut=True,
            error=UNPLACED,
        )
        trial.keep(record(trial, call, reply, ceiling_of(request.prompt, tree.seen)))


async def _due(trial: Trial, tree: Tree, turn: Turn) -> tuple[float, float]:
    """When the turn should be sent by its delay or recording, and when nothing holds it back."""
    if trial.speed and turn.recorded is not None:
        planned = tree.start + turn.recorded / trial.speed
        return planned, planned
    moments = tree.begins if turn.early else tree.ends
    base = tree.start if turn.previous is None else await moments[turn.previous]
    planned = base + turn.delay
    return planned, max([planned, *[await tree.ends[key] for key in turn.after]])


def _request(trial: Trial, tree: Tree, turn: Turn, pinned: int | None) -> Request:
    session = f"{trial.id}-{tree.number}-{turn.key.stream}"
    return Request(
        id=f"{session}-{turn.key.turn}",
        prompt=turn.prompt.salted(tree.salt),
        output=turn.output,
        session=session,
        rank=pinned,
        chat=turn.chat,
    )


def _call(tree: Tree, turn: Turn, request: Request, planned: float, ready: float) -> Call:
    phase: Phase = "warm-up" if tree.warmup else "primer" if turn.primer else "window"
    return Call(
        trace=tree.session.trace,
        tree=tree.number,
        lane=tree.lane,
        key=turn.key,
        depth=turn.depth,
        phase=phase,
        request=request,
        planned=planned,
        ready=ready,
    )


async def _send(trial: Trial, tree: Tree, call: Call) -> None:
    """Sends one turn, records what came of it, and lets those go on that wait for it."""
    begin, end = tree.begins.get(call.key), tree.ends[call.key]
    if begin is not None:
        begin.set_result(now())
    try:
        reply = await send(trial, call, tree.seen)
        while call.request.chat and call.key.turn < call.request.chat.retries and _passing(reply):
            await asyncio.sleep(0.25 * 4.0**call.key.turn)
            call = _again(call)
            reply = await send(trial, call, tree.seen)
    finally:
        if trial.limit:
            trial.limit.release()
        if not end.done():
            end.set_result(now())


def _passing(reply: Reply) -> bool:
    """Whether a request failed in a way that may not befall it again."""
    refused = (
        reply.status is not None and 400 <= reply.status < 500 and reply.status not in {408, 429}
    )
    return reply.error is not None and not reply.cut and not refused


def _again(call: Call) -> Call:
    """The same question once more, under a name of its own."""
    turn = call.key.turn + 1
    name = f"{call.request.session}-{turn}"
    moment = now()
    return replace(
        call,
        key=call.key._replace(turn=turn),
        request=replace(call.request, id=name),
        planned=moment,
        ready=moment,
    )
