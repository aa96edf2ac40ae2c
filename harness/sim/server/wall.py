"""Moves a rank's machine along with the wall clock, and hands out tokens as their steps end."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import monotonic

from harness.sim.job import Job
from harness.sim.machine import Machine
from workloads.prompt import Prompt

Take = Callable[[Job, int, int], None]
"""Is handed a request's job, the end of a step in microseconds, and the tokens it brought."""


@dataclass(slots=True, kw_only=True, eq=False)
class Ticket:
    """A request in a machine, and how much of it has been handed out."""

    job: Job
    take: Take
    given: int = 0
    scheduled: bool = False
    preemptions: int = 0
    run: int = 0
    place: int = 0

    def pieces(self, at: int) -> Iterator[tuple[int, int]]:
        """Ends and tokens of the steps that have ended by a moment, each once."""
        job = self.job
        while self.run < len(job.ends):
            ends, counts = job.ends[self.run], job.counts[self.run]
            while self.place < len(ends):
                if ends[self.place] > at:
                    return
                yield int(ends[self.place]), int(counts[self.place])
                self.place += 1
            self.run, self.place = self.run + 1, 0


@dataclass(slots=True, kw_only=True)
class Totals:
    """What a rank has done since it started, in tokens where nothing else is said."""

    queried: int = 0
    hit: int = 0
    prompt: int = 0
    cached: int = 0
    generated: int = 0
    preemptions: int = 0
    drafts: int = 0
    accepted: list[int] = field(default_factory=list)
    ended: Counter[str] = field(default_factory=Counter)


class Pump:
    """One rank on the wall: a single timer, set for the end of the step under way.

    Where the host is late, all the steps that have ended meanwhile are handed out in order.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.totals = Totals(accepted=[0] * machine.settings.draft_tokens)
        self._tickets: dict[Job, Ticket] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def load(self) -> tuple[int, int]:
        """Requests waiting, and requests running."""
        waiting = len(self.machine.waiting)
        return waiting, len(self._tickets) - waiting

    def enqueue(self, name: str, prompt: Prompt, output: int, take: Take) -> Ticket:
        """A place in the machine's queue; `take` is called as each of its steps ends."""
        job = self.machine.enqueue(name, prompt, output, microseconds())
        ticket = self._tickets[job] = Ticket(job=job, take=take)
        self._wake()
        return ticket

    def withdraw(self, ticket: Ticket) -> None:
        """Ends a request early; does nothing where it has ended."""
        if self._tickets.pop(ticket.job, None):
            self.machine.withdraw(ticket.job, microseconds())
            self.totals.ended["abort"] += 1
            self._wake()

    def forget(self) -> bool:
        """Empties the prefix cache, if no request holds a block of it."""
        return self.machine.forget(microseconds())

    def stop(self) -> None:
        """Sets no more timers."""
        if self._timer:
            self._timer.cancel()

    def _wake(self) -> None:
        machine, at = self.machine, microseconds()
        machine.advance(at)
        # Kept for reports on the virtual clock; a server would gather them for ever.
        machine.taken.clear()
        machine.due.clear()
        self._hand_out(at)
        self.stop()
        moment = machine.clock if machine.clock > at else at + 1
        if self._tickets:
            self._timer = asyncio.get_running_loop().call_at(moment / 1e6, self._wake)

    def _hand_out(self, at: int) -> None:
        """Hands out what is due: step by step, and within a step from the oldest request on."""
        due = []
        for ticket in self._tickets.values():
            self._count(ticket)
            due += [(end, tokens, ticket) for end, tokens in ticket.pieces(at)]
        due.sort(key=lambda piece: piece[0])
        for end, tokens, ticket in due:
            self._count_piece(ticket, end, tokens)
            ticket.given += tokens
            if ticket.given == ticket.job.output:
                del self._tickets[ticket.job]
                self.totals.ended["length"] += 1
            ticket.take(ticket.job, end, tokens)

    def _count(self, ticket: Ticket) -> None:
        job, totals = ticket.job, self.totals
        if not ticket.scheduled and job.scheduled is not None:
            ticket.scheduled = True
            totals.queried += job.prompt
            totals.hit += job.cached
        totals.preemptions += job.preemptions - ticket.preemptions
        ticket.preemptions = job.preemptions

    def _count_piece(self, ticket: Ticket, end: int, tokens: int) -> None:
        job, totals = ticket.job, self.totals
        totals.generated += tokens
        if not ticket.given:
            totals.prompt += job.prompt
            totals.cached += job.cached
        if totals.accepted and end not in job.sampled:
            totals.drafts += 1
            for position in range(tokens - 1):
                totals.accepted[position] += 1


def microseconds() -> int:
    """The moment on the wall, as machines count."""
    return round(monotonic() * 1e6)
