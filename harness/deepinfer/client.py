"""The client of offline engines: orders to worker processes, and the events that come back."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from harness.client import ANSWER, Reply, Request
from harness.clock import now
from harness.deepinfer.link import Event, Link
from harness.wire.render import Renderer

LOOK = 1.0
"""Seconds between two looks at whether a worker still says something."""

ENDINGS = frozenset(("stop", "length"))

STEPS = pa.schema(
    [
        pa.field("rank", pa.int32(), nullable=False),
        pa.field("start_us", pa.int64(), nullable=False),
        pa.field("end_us", pa.int64(), nullable=False),
        pa.field("first_tokens", pa.int32(), nullable=False),
        pa.field("tokens", pa.int32(), nullable=False),
        pa.field("running", pa.int32(), nullable=False),
    ]
)
"""One row a step, on the monotonic clock; tokens may be those of the step before."""


@dataclass(slots=True, kw_only=True, eq=False)
class Ticket:
    """A request with a worker: what has arrived, and the last that is said of it."""

    on_first: Callable[[float], None]
    stamps: list[float] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    end: asyncio.Future[Event] = field(default_factory=asyncio.Future)

    def add(self, moment: float, tokens: int) -> None:
        """Takes the tokens of one step."""
        if not self.stamps:
            self.on_first(moment)
        self.stamps.append(moment)
        self.counts.append(tokens)


@dataclass(slots=True, kw_only=True)
class Pace:
    """How long a rank was in its steps, and between two of them while it had work."""

    stepping: float = 0.0
    between: float = 0.0


class WorkerClient:
    """Sends requests to the workers of one engine, one for each rank.

    A worker that says nothing for `silence` seconds while it has a request has failed it.
    """

    def __init__(self, links: Sequence[Link], renderer: Renderer, *, silence: float) -> None:
        self.paces = [Pace() for _ in links]
        self._links = links
        self._renderer = renderer
        self._silence = silence
        self._tickets: dict[str, Ticket] = {}
        self._prompts: dict[str, asyncio.Future[Event]] = {}
        self._ranks: dict[str, int] = {}
        self._steps: list[dict[str, int]] = []
        self._loads = [0] * len(links)
        self._listening = [
            asyncio.ensure_future(link.follow(partial(self._hear, link.rank))) for link in links
        ]
        for task in self._listening:
            task.add_done_callback(self._fail)

    async def prepare(self, request: Request) -> None:
        """Hands the prompt to its worker, so that its way there is no part of what is measured."""
        if request.id in self._ranks:
            return
        rank = self._ranks[request.id] = self._choose(request)
        self._loads[rank] += 1
        link = self._links[rank]
        ids = await self._renderer.ids(request.prompt)
        taken = self._prompts[request.id] = asyncio.Future()
        try:
            link.tell(op="prompt", id=request.id, prompt_token_ids=ids)
            await link.told()
            # Whatever goes wrong here is said of the request when it is sent.
            await self._until(taken, link, since=now())
        finally:
            del self._prompts[request.id]

    async def send(
        self, request: Request, *, cut: asyncio.Event, on_first: Callable[[float], None]
    ) -> Reply:
        """Sends one request and gives back its reply; see `harness.client.Client`."""
        await self.prepare(request)
        rank = self._ranks.pop(request.id)
        link = self._links[rank]
        ticket = self._tickets[request.id] = Ticket(on_first=on_first)
        sent = now()
        link.tell(
            op="submit",
            id=request.id,
            max_tokens=request.output,
            ignore_eos=True,
            session=request.session,
        )
        stop = asyncio.ensure_future(cut.wait())
        try:
            complaint = await self._until(ticket.end, link, since=sent, stop=stop)
        finally:
            stop.cancel()
            self._loads[rank] -= 1
            del self._tickets[request.id]
            if not ticket.end.done():
                link.tell(op="abort", id=request.id)
        return _reply(ticket, sent, rank, complaint)

    def steps(self) -> pa.Table:
        """Every step so far."""
        return pa.Table.from_pylist(self._steps, schema=STEPS)

    async def ended(self) -> str:
        """Why the first worker ended, once it has."""
        done, _ = await asyncio.wait(self._listening, return_when=asyncio.FIRST_COMPLETED)
        return done.pop().result()

    async def close(self) -> None:
        """Listens no more."""
        for task in self._listening:
            task.cancel()
        await asyncio.wait(self._listening)

    def _choose(self, request: Request) -> int:
        """The rank asked for, else the one with the fewest requests."""
        if request.rank is not None:
            return request.rank
        return min(range(len(self._links)), key=self._loads.__getitem__)

    async def _until(
        self,
        end: asyncio.Future[Event],
        link: Link,
        *,
        since: float,
        stop: asyncio.Future[Any] | None = None,
    ) -> str | None:
        """Waits for the event, or for `stop`; a sentence where the worker says nothing more."""
        while not end.done() and not (stop and stop.done()):
            if link.ended is not None:
                return link.ended
            if now() - max(since, link.heard) > self._silence:
                return f"the worker of rank {link.rank} said nothing for {self._silence:g} s"
            await asyncio.wait(
                {end, stop} if stop else {end},
                timeout=min(LOOK, self._silence),
                return_when=asyncio.FIRST_COMPLETED,
            )
        return None

    def _hear(self, rank: int, event: Event) -> None:
        """Takes one event to whoever waits for it; what nobody waits for is dropped."""
        name = str(event.get("id"))
        ticket = self._tickets.get(name)
        match event.get("ev"):
            case "tok" if ticket and event["ids"]:
                ticket.add(event["t"], len(event["ids"]))
            case "done" | "error" if ticket and not ticket.end.done():
                ticket.end.set_result(event)
            case "prompt" | "error" if name in self._prompts and not self._prompts[name].done():
                self._prompts[name].set_result(event)
            case "step":
                self._note(rank, event)

    def _note(self, rank: int, event: Event) -> None:
        self.paces[rank].stepping += event["t1"] - event["t0"]
        self.paces[rank].between += event.get("gap", 0.0)
        self._steps.append(
            {
                "rank": rank,
                "start_us": round(event["t0"] * 1e6),
                "end_us": round(event["t1"] * 1e6),
                "first_tokens": event.get("first_tokens", 0),
                "tokens": event.get("num_tokens", 0),
                "running": event.get("running", 0),
            }
        )

    def _fail(self, task: asyncio.Future[str]) -> None:
        """Wakes everybody who waits for a worker that has ended."""
        if task.cancelled():
            return
        end = {"ev": "error", "msg": task.result()}
        for future in [*(one.end for one in self._tickets.values()), *self._prompts.values()]:
            # With one rank gone the others wait for it for ever.
            if not future.done():
                future.set_result(end)


def _reply(ticket: Ticket, sent: float, rank: int, complaint: str | None) -> Reply:
    """What came of a request; without an end and a complaint it was cut."""
    end = ticket.end.result() if ticket.end.done() else {}
    finish = end.get("finish")
    error = complaint or (str(end.get("msg")) if end.get("ev") == "error" else None)
    if error is None and end and finish not in ENDINGS:
        error = f"the engine ended it: {finish}"
    spec = end.get("spec") or {}
    drafted = spec.get("drafted") or None
    return Reply(
        sent=sent,
        stamps=np.array(ticket.stamps),
        tokens=np.array(ticket.counts, dtype=np.int32),
        kinds=np.full(len(ticket.stamps), ANSWER, dtype=np.uint8),
        closed=now(),
        cut=not end and complaint is None,
        error=error,
        finish_reason=finish,
        input_tokens=end.get("n_in"),
        output_tokens=end.get("n_out", sum(ticket.counts)),
        rank=rank,
        draft_tokens=drafted,
        accepted_tokens=spec.get("accepted") if drafted else None,
    )
