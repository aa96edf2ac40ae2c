"""What all requests of one point share, and how one of them is sent and becomes a record."""

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.client import ANSWER, Client, Moments, Reply, Request
from harness.clock import MICROSECONDS
from harness.point import Point
from results.record import Phase, RequestRecord
from workloads.chat import Chat
from workloads.prompt import Prompt
from workloads.session import Key

Keep = Callable[[RequestRecord], None]

Hear = Callable[["Call", Reply], None]
"""Is told what came of a question."""

UNCONNECTED = "never sent: it waited for its connection when the window ended"


def unheard(call: "Call", reply: Reply) -> None:
    """Does nothing about what came of a question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A turn about to be sent: when it was due, and since when nothing held it back."""

    trace: str
    tree: int
    lane: int
    key: Key
    depth: int
    phase: Phase
    request: Request
    planned: float
    ready: float


@dataclass(slots=True, kw_only=True)
class Trial:
    """One point under way: what every request of it shares."""

    point: Point
    id: str
    arm: str
    client: Client
    keep: Keep
    hear: Hear
    run: str
    salt: int
    sends: asyncio.TaskGroup
    limit: asyncio.Semaphore | None
    origin: float
    speed: float | None
    cut: asyncio.Event = field(default_factory=asyncio.Event)
    flying: set[asyncio.Task[None]] = field(default_factory=set)
    trees: Iterator[int] = field(default_factory=count)
    restless: str | None = None


def launch(trial: Trial, send: Coroutine[Any, Any, None]) -> None:
    """Starts a request that outlives whoever waits for it."""
    task = trial.sends.create_task(send)
    trial.flying.add(task)
    task.add_done_callback(trial.flying.discard)


async def landed(trial: Trial) -> None:
    """Waits until nothing is in flight."""
    while trial.flying:
        await asyncio.wait(set(trial.flying))


def _ignore(moment: float) -> None:
    """Does nothing about a first token."""


async def send(
    trial: Trial, call: Call, seen: set[int], on_first: Callable[[float], None] = _ignore
) -> Reply:
    """Sends one request and keeps the record of it; `seen` are the prefixes sent before."""
    request = call.request
    # Questions share their examples, so what a session had sent bounds no hit.
    ceiling = ceiling_of(request.prompt, seen) if request.chat is None else None
    reply = await trial.client.send(request, cut=trial.cut, on_first=on_first)
    if request.chat:
        reply = _veiled(request.chat, reply)
        trial.hear(call, reply)
    trial.keep(record(trial, call, reply, ceiling))
    return reply


def _veiled(chat: Chat, reply: Reply) -> Reply:
    """The reply without what the server said of a question that may be shown nowhere."""
    if not chat.withheld or reply.error is None or reply.status is None:
        return reply
    return replace(reply, error=f"HTTP {reply.status}, and what the server said of it is withheld")


def rank_of(trial: Trial, lane: int, place: int = 0) -> int | None:
    """The rank of a lane, where sessions are pinned to theirs."""
    deployment = trial.point.deployment
    ranks = deployment.topology.ranks
    return (lane + place) % ranks if deployment.pinned and ranks > 1 else None


def ceiling_of(prompt: Prompt, seen: set[int]) -> int:
    """Tokens of the longest prefix that this session has sent before; notes this prompt's own.

    What a cache without end could hit at most.
    """
    ends = prompt.ends()
    hashes = prompt.prefix_hashes(ends).tolist()
    # Prefixes are seen from the shortest on, so the longest seen one is found by halving.
    known = bisect_left(hashes, True, key=lambda prefix: prefix not in seen)
    seen.update(hashes[known:])
    return int(ends[known - 1]) if known else 0


def record(trial: Trial, call: Call, reply: Reply, ceiling: int | None) -> RequestRecord:
    """The row of a request of which the cache could hold `ceiling` tokens."""
    point, origin, request = trial.point, trial.origin, call.request
    stamps = reply.stamps - origin
    sent = None if reply.sent is None else reply.sent - origin
    answers = stamps[reply.kinds == ANSWER]
    return RequestRecord(
        run=trial.run,
        point=trial.id,
        arm=trial.arm,
        repeat=point.repeat,
        position=point.position,
        trace=call.trace,
        tree=call.tree,
        lane=call.lane,
        stream=call.key.stream,
        turn=call.key.turn,
        depth=call.depth,
        phase=call.phase,
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
        asked_input=request.prompt.length if request.chat is None else None,
        asked_output=request.output,
        input_tokens=reply.input_tokens,
        output_tokens=reply.output_tokens,
        cached_tokens=reply.cached_tokens,
        ceiling_tokens=ceiling,
        prompt_hash=request.prompt.hash if request.chat is None else request.chat.hash,
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
        return reply.error or UNCONNECTED
    return "cut at the end of the window" if reply.cut else reply.error


def _offsets(stamps: Moments, sent: float | None) -> NDArray[np.int64]:
    """Whole microseconds from sending to each piece."""
    return np.rint((stamps - (sent or 0.0)) * MICROSECONDS).astype(np.int64)
