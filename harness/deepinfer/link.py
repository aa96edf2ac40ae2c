"""A worker process, and the JSON lines that go to it and come from it."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from harness import processes
from harness.clock import now
from harness.processes import Program
from harness.vllm.log import telling
from results.errors import EngineError, UnsupportedError

LINE = 1 << 26
"""Bytes that a line may have."""

DYING = 5.0
"""Seconds between the end of what a worker says and its own."""

APART = 5.0
"""Seconds by which a worker's word of what time it is may lie back when it is read."""

PARTING = 0.25
"""The share of the time to stop in which workers may end by themselves."""

Event = dict[str, Any]
Hear = Callable[[Event], None]


class Link:
    """One worker, by the number of its rank; must be stopped.

    `heard` is when it said something last, `ended` why it will say no more.
    """

    def __init__(self, rank: int, program: Program, log: Path):
        self.rank = rank
        self.program = program
        self.heard = now()
        self.ended: str | None = None
        self._writer, self._reader = program.lines
        self._log = log

    def tell(self, **order: Any) -> None:
        """Sends one order; a worker that has ended is told nothing."""
        if self.ended is None and not self._writer.is_closing():
            self._writer.write(orjson.dumps(order, option=orjson.OPT_SERIALIZE_NUMPY) + b"\n")

    async def told(self) -> None:
        """Waits until it can be told more."""
        try:
            await self._writer.drain()
        except (BrokenPipeError, ConnectionResetError):
            # Its end is noticed where it is listened to.
            return

    async def ready(self, order: Mapping[str, Any], seconds: float) -> Event:
        """What it says of itself once the engine is up.

        Raises EngineError where it ends before or takes longer, and UnsupportedError where it
        says that it cannot do what is asked.
        """
        self.tell(**order)
        try:
            async with asyncio.timeout(seconds):
                while event := await self._next():
                    if event.get("ev") == "ready":
                        return self._checked(event)
                    if event.get("ev") == "error":
                        kind = UnsupportedError if event.get("unsupported") else EngineError
                        raise kind(f"the worker of rank {self.rank}: {event.get('msg')}")
        except TimeoutError as error:
            raise EngineError(
                f"the worker of rank {self.rank} was not ready within {seconds:g} s "
                f"(ready_timeout); {telling(self._log)}"
            ) from error
        raise EngineError(await self._end())

    async def follow(self, hear: Hear) -> str:
        """Hands on every event until there are no more; why there are none."""
        while event := await self._next():
            try:
                hear(event)
            except (KeyError, TypeError, ValueError) as error:
                self.ended = f"the worker of rank {self.rank} said {event}: {error!r}"
                break
        return await self._end()

    def close(self) -> None:
        """Says nothing more to it."""
        self._writer.close()

    def _checked(self, event: Event) -> Event:
        """Raises EngineError where its words or its clock are not ours."""
        if event.get("protocol", 1) != 1:
            raise EngineError(
                f"the worker of rank {self.rank} speaks protocol {event.get('protocol')} and not 1"
            )
        told = event.get("now")
        # Both clocks are the machine's monotonic one, so that moments need no translation.
        if not isinstance(told, float) or not now() - APART <= told <= now():
            raise EngineError(
                f"the worker of rank {self.rank} says that it is {told} on its clock, and here it "
                f"is {now():.3f}: it must stamp by the monotonic clock of this machine"
            )
        return event

    async def _next(self) -> Event | None:
        """The next event; None where there is none, because it has ended or speaks no JSON."""
        try:
            line = await self._reader.readline()
            event = orjson.loads(line) if line else None
        except ValueError:
            self.ended = f"the worker of rank {self.rank} said what is no JSON line"
            return None
        self.heard = now()
        return event if isinstance(event, dict) else None

    async def _end(self) -> str:
        if self.ended is None:
            await asyncio.wait({self.program.exit}, timeout=DYING)
            status = self.program.status or "no status, and goes on without a word"
            self.ended = f"the worker of rank {self.rank} ended with {status}: {telling(self._log)}"
        return self.ended


async def linked(
    command: Sequence[str], environment: Mapping[str, str], log: Path, *, rank: int, seconds: float
) -> Link:
    """A started worker, what it logs added to `log`; it is gone so many seconds after paceline.

    Raises EngineError where there is no such program, and where this is not Linux.
    """
    program = await processes.start(command, environment, log, seconds=seconds, line=LINE)
    return Link(rank, program, log)


async def parted(links: Sequence[Link], seconds: float) -> None:
    """Ends the workers, by their own doing where they do it in time, and all that is left of them.

    Raises EngineError where something of one cannot be ended within so many seconds.
    """
    for link in links:
        link.tell(op="shutdown")
        link.close()
    if links:
        await asyncio.wait({link.program.exit for link in links}, timeout=seconds * PARTING)
    for link in links:
        await link.program.stop(seconds)
