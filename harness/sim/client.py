"""The simulated engine's client: each rank's machine, moved along by the clock of the run."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from harness.client import ANSWER, Reply, Request
from harness.clock import now
from harness.sim.answers import Said
from harness.sim.job import Job
from harness.sim.machine import Machine
from workloads.chat import LETTERS_A_TOKEN, Chat, tokens

_STOPPED = "The simulated server stopped before the request had ended."


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ticket:
    """A request in a machine, and the two moments that its sender waits for."""

    job: Job
    first: asyncio.Future[float] = field(default_factory=asyncio.Future)
    done: asyncio.Future[None] = field(default_factory=asyncio.Future)


class Pump:
    """Moves one machine along, and wakes senders at the moments of their tokens."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._tickets: dict[Job, Ticket] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def load(self) -> tuple[int, int]:
        """Requests waiting, and requests running, at this moment."""
        self.machine.advance(_microseconds(now()))
        return len(self.machine.waiting), len(self.machine.running)

    def enqueue(self, request: Request) -> Ticket:
        """A place in the machine's queue."""
        at = _microseconds(now())
        ticket = Ticket(job=self.machine.enqueue(request.id, request.prompt, request.output, at))
        self._tickets[ticket.job] = ticket
        self.wake()
        return ticket

    def withdraw(self, ticket: Ticket) -> None:
        """Ends a request now, unless it has already got its last token."""
        self.machine.withdraw(ticket.job, _microseconds(now()))
        del self._tickets[ticket.job]
        self.wake()

    def wake(self) -> None:
        """Brings the machine to this moment and sets the timer for the next one that matters."""
        at = _microseconds(now())
        self.machine.advance(at)
        while self.machine.due and self.machine.due[0][0] <= at:
            _, job = self.machine.due.popleft()
            if job in self._tickets:
                _tell(self._tickets[job], at)
        if self._timer:
            self._timer.cancel()
            self._timer = None
        moment = self.machine.next_moment()
        if moment is not None:
            self._timer = asyncio.get_running_loop().call_at(moment / 1e6, self.wake)

    def stop(self) -> None:
        """Sets no more timers, and wakes every sender."""
        if self._timer:
            self._timer.cancel()
        for ticket in self._tickets.values():
            ticket.first.cancel()
            ticket.done.cancel()


async def _either(one: asyncio.Future[Any], other: asyncio.Future[Any]) -> None:
    await asyncio.wait({one, other}, return_when=asyncio.FIRST_COMPLETED)


def _tell(ticket: Ticket, at: int) -> None:
    if not ticket.first.done():
        ticket.first.set_result(at / 1e6)
    # The step that ends it may have been taken already, though it ends later.
    if ticket.job.finish and ticket.job.last == at and not ticket.done.done():
        ticket.done.set_result(None)


class SimulatedClient:
    """Sends requests to the ranks of one simulated server, and keeps the truth about each."""

    def __init__(
        self,
        pumps: list[Pump],
        *,
        drafts: int,
        context_limit: int | None,
        say: Callable[[Chat], Said],
    ) -> None:
        self._say = say
        self.truth: list[dict[str, Any]] = []
        self._pumps = pumps
        self._drafts = drafts
        self._context_limit = context_limit
        self._turn = 0
        self._stopped = False

    async def prepare(self, request: Request) -> None:
        """Nothing: prompts are never rendered here."""

    async def send(
        self, request: Request, *, cut: asyncio.Event, on_first: Callable[[float], None]
    ) -> Reply:
        """Sends one request and gives back its reply; see `harness.client.Client`."""
        refusal = self._refusal(request)
        if refusal:
            return self._refuse(request, refusal)
        if request.chat:
            return await self._answer(request, request.chat, cut, on_first)
        return await self._generate(request, cut, on_first)

    async def _answer(
        self, request: Request, chat: Chat, cut: asyncio.Event, on_first: Callable[[float], None]
    ) -> Reply:
        """The reply to a question: as many tokens as its answer has, if it may have so many."""
        said = self._say(chat)
        whole = said.reasoning + said.text
        wanted = tokens(whole)
        fits = wanted <= request.output
        generated = replace(request, output=min(wanted, request.output))
        reply = await self._generate(generated, cut, on_first)
        if reply.error or reply.cut:
            return reply
        come = whole if fits else whole[: request.output * LETTERS_A_TOKEN]
        thought = len(said.reasoning)
        return replace(
            reply,
            finish_reason="stop" if fits else "length",
            text=come[thought:],
            reasoning=come[:thought] or None,
        )

    async def _generate(
        self, request: Request, cut: asyncio.Event, on_first: Callable[[float], None]
    ) -> Reply:
        sent, rank = now(), self._choose(request)
        pump = self._pumps[rank]
        ticket = pump.enqueue(request)
        entry = {"id": request.id, "rank": rank, "arrived_us": ticket.job.arrived}
        self.truth.append(entry)
        stop = asyncio.ensure_future(cut.wait())
        try:
            await _either(ticket.first, stop)
            pump.wake()
            if ticket.first.done() and not ticket.first.cancelled():
                on_first(ticket.first.result())
            await _either(ticket.done, stop)
        finally:
            stop.cancel()
            pump.withdraw(ticket)
            entry |= _truth(ticket.job, _microseconds(now()))
        return self._reply(ticket.job, sent, rank)

    def stop(self) -> None:
        """Ends what is still running; its senders get a reply with an error."""
        self._stopped = True
        for pump in self._pumps:
            pump.stop()

    def _choose(self, request: Request) -> int:
        """The rank asked for, else the least loaded; equals take turns."""
        if request.rank is not None:
            return request.rank
        rank = least_loaded([pump.load for pump in self._pumps], self._turn)
        self._turn = rank + 1
        return rank

    def _refusal(self, request: Request) -> str | None:
        prompt, output = request.prompt.length, request.output
        asked = f"The request has {prompt:,} prompt tokens and asks for {output:,} more"
        if prompt < 1 or output < 1:
            return f"{asked}: it needs at least one of each."
        if self._context_limit is not None and prompt + output > self._context_limit:
            return f"{asked}, but the maximum context length is {self._context_limit:,} tokens."
        if request.rank is not None and not 0 <= request.rank < len(self._pumps):
            return f"The request asks for rank {request.rank} of {len(self._pumps)}."
        if not self._pumps[0].machine.fits(prompt, output):
            return f"{asked}, but the KV cache of a rank can never hold them: raise kv_tokens."
        return None

    def _refuse(self, request: Request, sentence: str) -> Reply:
        moment = now()
        self.truth.append(
            {
                "id": request.id,
                "rank": request.rank,
                "arrived_us": _microseconds(moment),
                "prompt": request.prompt.length,
                "finish": "refused",
            }
        )
        return Reply(
            sent=moment,
            stamps=np.zeros(0),
            tokens=np.zeros(0, dtype=np.int32),
            kinds=np.zeros(0, dtype=np.uint8),
            closed=moment,
            error=sentence,
            status=400,
        )

    def _reply(self, job: Job, sent: float, rank: int) -> Reply:
        at = _microseconds(now())
        ends, counts = job.pieces(at)
        tokens, speculated = int(counts.sum()), len(ends) - job.samples(at)
        first = job.first if len(ends) else None
        finished = job.finish == "length"
        return Reply(
            sent=sent,
            stamps=ends / 1e6,
            tokens=counts.astype(np.int32),
            kinds=np.full(len(ends), ANSWER, dtype=np.uint8),
            closed=now(),
            cut=not finished and not self._stopped,
            error=None if finished or not self._stopped else _STOPPED,
            status=200,
            finish_reason="length" if finished else None,
            input_tokens=job.prompt,
            output_tokens=tokens,
            cached_tokens=None if job.scheduled is None else job.cached,
            rank=rank,
            server_queue=_between(job.arrived, job.scheduled),
            server_ttft=_between(job.scheduled, first),
            draft_tokens=self._drafts * speculated if self._drafts else None,
            accepted_tokens=tokens - len(ends) if self._drafts else None,
        )


def least_loaded(loads: Sequence[tuple[int, int]], turn: int) -> int:
    """The rank with the fewest requests waiting, then running; equals take turns."""
    turns = [(turn + step) % len(loads) for step in range(len(loads))]
    return min(turns, key=loads.__getitem__)


def _truth(job: Job, at: int) -> dict[str, Any]:
    ends, counts = job.pieces(at)
    return {
        "scheduled_us": job.scheduled,
        "first_us": int(ends[0]) if len(ends) else None,
        "last_us": int(ends[-1]) if len(ends) else None,
        "prompt": job.prompt,
        "output": int(counts.sum()),
        "cached_reported": None if job.scheduled is None else job.cached,
        "cached_true": None if job.scheduled is None else job.reused,
        "preemptions": job.preemptions,
        "pieces": len(ends),
        "finish": job.finish,
    }


def _between(start: int | None, end: int | None) -> float | None:
    return None if start is None or end is None else (end - start) / 1e6


def _microseconds(moment: float) -> int:
    return round(moment * 1e6)
