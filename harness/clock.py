"""The two clocks: the wall's, and one that jumps to the next timer when nothing is ready."""

import asyncio
import math
from asyncio import base_events
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Literal, Never, Protocol, TypeVar

from results.errors import EngineError

T = TypeVar("T")


class Lasting(Protocol):
    """Runs a coroutine to its end on a clock, beside what is still up from those before."""

    def __call__(self, clock: "Clock", main: Coroutine[Any, Any, T]) -> T:
        """What the coroutine gives."""


MICROSECONDS = 1_000_000

Clock = Literal["virtual", "wall"]


def now() -> float:
    """The moment, in seconds, on the clock of the running event loop."""
    return asyncio.get_running_loop().time()


async def until(moment: float) -> None:
    """Waits for an absolute moment; returns at once when it has passed."""
    loop = asyncio.get_running_loop()
    if loop.time() >= moment:
        return
    reached = loop.create_future()
    timer = loop.call_at(moment, _reach, reached)
    try:
        await reached
    finally:
        timer.cancel()


def _reach(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def run(clock: Clock, main: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine to its end on the clock."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None = (
        VirtualLoop if clock == "virtual" else None
    )
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)


@contextmanager
def lasting() -> Iterator["Lasting"]:
    """Runs coroutines one after the other: on the wall all on one event loop, which ends last.

    What a task keeps up there is up for the next coroutine, and is cancelled in the end. On the
    virtual clock each begins at 0.
    """
    with asyncio.Runner() as wall:

        def on(clock: Clock, main: Coroutine[Any, Any, T]) -> T:
            return wall.run(main) if clock == "wall" else run(clock, main)

        yield on


class _Jump:
    """Stands where a loop keeps its selector, and lets time pass instead of waiting."""

    def __init__(self, loop: "VirtualLoop") -> None:
        self.loop = loop

    def select(self, timeout: float | None) -> list[Never]:
        if timeout is None:
            raise EngineError("the virtual clock has stopped: everything waits and no timer is set")
        if timeout > 0:
            self.loop.jump()
        return []


class VirtualLoop(base_events.BaseEventLoop):
    """An event loop whose time is its own, starting at 0.

    It refuses threads, sockets and subprocesses: waiting for one of them would look like nothing
    to do, and time would jump by hours.
    """

    def __init__(self) -> None:
        super().__init__()
        self._moment = 0.0
        self._selector = _Jump(self)

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._moment

    def jump(self) -> None:
        """Moves time to the next timer, up to a whole microsecond.

        Whole microseconds make every moment exact in the rows and in an engine's own log.
        """
        scheduled: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        exact = scheduled[0].when() * MICROSECONDS
        nearest = round(exact)
        # A sum of floats may lie a hair above the whole number it stands for.
        whole = nearest if abs(exact - nearest) < 1e-3 else math.ceil(exact)
        self._moment = max(self._moment, whole / MICROSECONDS)

    def run_in_executor(self, *_: Any) -> Never:  # type: ignore[override]
        """Refuses."""
        raise EngineError("the virtual clock cannot wait for a thread")

    def _process_events(self, event_list: object) -> None:
        """Nothing ever comes from outside."""

    def _write_to_self(self) -> None:
        """Nobody sleeps, so nobody needs waking."""
