"""Sends a point's load through a client, and hands on one record a request."""

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, count, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.client import ANSWER, Client, Moments, Reply, Request
from harness.clock import MICROSECONDS, now, until
from harness.load import Closed, Open, Recorded, arrivals
from harness.point import Point
from results.record import Phase, RequestRecord
from workloads.prompt import Prompt, seed_of
from workloads.session import Key, Session, Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A turn about to be sent: when it was due, and since when nothing held it back."""

    turn: Turn
    request: Request
    planned: float
    ready: float


Keep = Callable[[RequestRecord], None]

MADE_AHEAD = 16
"""Sessions made before the window opens, where the load does not say how many start together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """When the load that counts began and ended, in seconds since the point began."""

    opened: float
    closed: float


@dataclass(slots=True, kw_only=True)
class Trial:
    """One point under way: what every request of it shares."""

    point: Point
    id: str
    arm: str
    client: Client
    keep: Keep
    run: str
    salt: int
    sends: asyncio.TaskGroup
    limit: asyncio.Semaphore | None
    origin: float
    speed: float | None
    cut: asyncio.Event = field(default_factory=asyncio.Event)
    flying: set[asyncio.Task[None]] = field(default_factory=set)
    trees: Iterator[int] = field(default_factory=count)


@dataclass(slots=True, kw_only=True)
class Tree:
    """One session under way: its salt, its place, who has ended, and which prefixes were sent."""

    session: Session
    number: int
    lane: int
    start: float
    warmup: bool
    salt: int
    ends: dict[Key, asyncio.Future[float]]
    seen: set[int] = field(default_factory=set)


async def drive(
    point: Point, client: Client, keep: Keep, *, run: str, salt: int, interrupt: asyncio.Event
) -> Window:
    """Warms the server up, opens the window, follows the load, and closes it.

    Every request sent becomes a record, also those cut at the end. Returns early, with everything
    in flight cut, when `interrupt` is set.
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
            run=run,
            salt=salt,
            sends=sends,
            limit=asyncio.Semaphore(limit) if limit else None,
            origin=now(),
            speed=load.speed if isinstance(load, Recorded) else None,
        )
        stop = sends.create_task(interrupt.wait())
        await _race(_warm_up(trial), stop)
        sessions = _sessions(trial)
        opened = now()
        await _race(_follow(trial, sessions, opened), stop, seconds=load.duration)
        closed = now()
        await _race(_landed(trial), stop, seconds=load.grace)
        trial.cut.set()
        stop.cancel()
    return Window(opened=opened - trial.origin, closed=closed - trial.origin)


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


async def _landed(trial: Trial) -> None:
    """Waits until nothing is in flight."""
    while trial.flying:
        await asyncio.wait(set(trial.flying))


async def _warm_up(trial: Trial) -> None:
    """Sends every shape of the workload to every rank, one session at a time."""
    for turn in range(trial.point.load.warmup):
        for rank in range(trial.point.deployment.topology.ranks):
            seed = seed_of(trial.point.seed, "warm-up", turn, rank)
            for session in trial.point.workload.warmup(seed):
                await _walk(trial, session, lane=rank, start=now(), warmup=True)


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
    tree = Tree(
        session=session,
        number=number,
        lane=lane,
        start=start,
        warmup=warmup,
        salt=seed_of(trial.salt, trial.id, number),
        ends={turn.key: asyncio.get_running_loop().create_future() for turn in session.turns},
    )
    streams: dict[str, list[Turn]] = {}
    for turn in session.turns:
        streams.setdefault(turn.key.stream, []).append(turn)
    async with asyncio.TaskGroup() as group:
        for place, turns in enumerate(streams.values()):
            group.create_task(_stream(trial, tree, turns, place if session.apart else 0))


async def _stream(trial: Trial, tree: Tree, turns: Sequence[Turn], place: int) -> None:
    """Sends one stream's turns, each when it is due and all it waits for has ended."""
    deployment = trial.point.deployment
    ranks = deployment.topology.ranks
    rank = (tree.lane + place) % ranks if deployment.pinned and ranks > 1 else None
    for number, turn in enumerate(turns):
        request = _request(trial, tree, turn, rank)
        await trial.client.prepare(request)
        planned, ready = await _due(trial, tree, turn)
        await until(ready)
        if trial.limit:
            held = trial.limit.locked()
            try:
                await trial.limit.acquire()
            except asyncio.CancelledError:
                _never_sent(trial, tree, turns[number:], rank)
                raise
            ready = now() if held else ready
        call = Call(turn=turn, request=request, planned=planned, ready=ready)
        _launch(trial, _send(trial, tree, call))
    await asyncio.gather(*(tree.ends[turn.key] for turn in turns))


def _never_sent(trial: Trial, tree: Tree, turns: Sequence[Turn], rank: int | None) -> None:
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
        request = _request(trial, tree, turn, rank)
        call = Call(turn=turn, request=request, planned=planned, ready=planned)
        reply = Reply(
            sent=None,
            stamps=np.zeros(0),
            tokens=None,
            kinds=np.zeros(0, dtype=np.uint8),
            closed=now(),
            cut=True,
        )
        trial.keep(_record(trial, tree, call, reply, _ceiling(request.prompt, tree.seen)))


def _launch(trial: Trial, send: Coroutine[Any, Any, None]) -> None:
    """Starts a request that outlives whoever waits for it."""
    task = trial.sends.create_task(send)
    trial.flying.add(task)
    task.add_done_callback(trial.flying.discard)


async def _due(trial: Trial, tree: Tree, turn: Turn) -> tuple[float, float]:
    """When the turn should be sent by its delay or recording, and when nothing holds it back."""
    if trial.speed and turn.recorded is not None:
        planned = tree.start + turn.recorded / trial.speed
        return planned, planned
    base = tree.start if turn.previous is None else await tree.ends[turn.previous]
    planned = base + turn.delay
    return planned, max([planned, *[await tree.ends[key] for key in turn.after]])


def _request(trial: Trial, tree: Tree, turn: Turn, rank: int | None) -> Request:
    session = f"{trial.id}-{tree.number}-{turn.key.stream}"
    return Request(
        id=f"{session}-{turn.key.turn}",
        prompt=turn.prompt.salted(tree.salt),
        output=turn.output,
        session=session,
        rank=rank,
    )


async def _send(trial: Trial, tree: Tree, call: Call) -> None:
    """Sends one turn, records what came of it, and lets those go on that wait for it."""
    turn, request = call.turn, call.request
    ceiling = _ceiling(request.prompt, tree.seen)
    try:
        reply = await trial.client.send(request, cut=trial.cut, on_first=_ignore)
        trial.keep(_record(trial, tree, call, reply, ceiling))
    finally:
        if trial.limit:
            trial.limit.release()
        end = tree.ends[turn.key]
        if not end.done():
            end.set_result(now())


def _ignore(moment: float) -> None:
    """Nothing waits for first tokens yet."""


def _ceiling(prompt: Prompt, seen: set[int]) -> int:
    """Tokens of the longest prefix that this session has sent before; notes this prompt's own.

    What a cache without end could hit at most.
    """
    ends = prompt.ends()
    hashes = prompt.prefix_hashes(ends).tolist()
    # Prefixes are seen from the shortest on, so the longest seen one is found by halving.
    known = bisect_left(hashes, True, key=lambda prefix: prefix not in seen)
    seen.update(hashes[known:])
    return int(ends[known - 1]) if known else 0


def _record(trial: Trial, tree: Tree, call: Call, reply: Reply, ceiling: int) -> RequestRecord:
    point, origin, turn, request = trial.point, trial.origin, call.turn, call.request
    stamps = reply.stamps - origin
    sent = None if reply.sent is None else reply.sent - origin
    answers = stamps[reply.kinds == ANSWER]
    phase: Phase = "warm-up" if tree.warmup else "primer" if turn.primer else "window"
    return RequestRecord(
        run=trial.run,
        point=trial.id,
        arm=trial.arm,
        repeat=point.repeat,
        position=point.position,
        trace=tree.session.trace,
        tree=tree.number,
        lane=tree.lane,
        stream=turn.key.stream,
        turn=turn.key.turn,
        depth=turn.depth,
        phase=phase,
        planned=call.planned - origin,
        ready=call.ready - origin,
        sent=sent,
        first=float(stamps[0]) if len(stamps) else None,
        first_answer=float(answers[0]) if len(answers) else None,
        last=float(stamps[-1]) if len(stamps) else None,
        closed=reply.closed - origin,
        state="cut" if reply.cut else "failed" if reply.error else "ok",
        reason=_reason(reply),
        status=reply.status,
        finish_reason=reply.finish_reason,
        asked_input=request.prompt.length,
        asked_output=request.output,
        input_tokens=reply.input_tokens,
        output_tokens=reply.output_tokens,
        cached_tokens=reply.cached_tokens,
        ceiling_tokens=ceiling,
        prompt_hash=turn.prompt.hash,
        rank=reply.rank,
        request_id=request.id,
        client_lag=None if reply.sent is None else max(0.0, reply.sent - call.ready),
        server_queue=reply.server_queue,
        server_ttft=reply.server_ttft,
        draft_tokens=reply.draft_tokens,
        accepted_tokens=reply.accepted_tokens,
        piece_offsets=_offsets(stamps, sent),
        piece_tokens=reply.tokens,
    )


def _reason(reply: Reply) -> str | None:
    if reply.cut and reply.sent is None:
        return "never sent: it waited for its place when the window ended"
    return "cut at the end of the window" if reply.cut else reply.error


def _offsets(stamps: Moments, sent: float | None) -> NDArray[np.int64]:
    """Whole microseconds from sending to each piece."""
    return np.rint((stamps - (sent or 0.0)) * MICROSECONDS).astype(np.int64)
