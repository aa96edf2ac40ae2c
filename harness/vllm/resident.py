"""Servers that stay up between their points, beside those of other arms on the same GPUs."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from harness.engine import Server
from harness.vllm.birth import Birth
from harness.vllm.fleet import Fleet
from harness.vllm.pulse import Pulse
from results.errors import EngineError, UnsupportedError

HEARING = 0.2
"""Seconds in which the end of a server that was idle must have been heard of."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Up:
    """A server that has come up: how to ask it, its processes, and what was noted."""

    arm: str
    server: Server
    fleet: Fleet
    pulse: Pulse
    born: Birth

    @property
    def gone(self) -> bool:
        """Whether nothing more can be expected of it."""
        return self.fleet.status is not None or self.pulse.over


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Held:
    """A server that stays up until its task is told to let it go, or the event loop ends."""

    up: Up
    share: float
    task: asyncio.Task[None]
    release: asyncio.Event


Start = Callable[[], AbstractAsyncContextManager[Up]]
"""Brings a server up, and ends it."""

# A server lives as long as the event loop that its client and its processes belong to.
_HELD: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, Held]] = WeakKeyDictionary()

# Those that came up with others, or did not: whether they do is tried once.
_TRIED: WeakKeyDictionary[asyncio.AbstractEventLoop, set[str]] = WeakKeyDictionary()


def held() -> dict[str, Held]:
    """The servers that are up on the running event loop, by what makes them one."""
    return _HELD.setdefault(asyncio.get_running_loop(), {})


def newer(there: Collection[str]) -> bool:
    """Whether servers stay up that were not `there`: their memory is not told from another's."""
    others = (one for name, one in held().items() if name not in there)
    return any(not one.task.cancelling() for one in others)


def neighbours(up: Up) -> list[str]:
    """The arms that are up beside this one."""
    return sorted(one.up.arm for one in held().values() if one.up is not up)


@asynccontextmanager
async def resident(name: str, share: float, start: Start) -> AsyncIterator[Up]:
    """The server of that name, started where it is not up yet; it stays up afterwards.

    `share` is how much of each GPU's memory it takes. One that has ended is let go. Raises
    EngineError where the shares add up to more than all, and what `start` raises.
    """
    one = held().get(name)
    if one is not None:
        # Between points no event loop runs that would have heard of its end.
        await asyncio.wait({one.up.fleet.exit}, timeout=HEARING)
        if one.up.gone:
            await _let_go(name, one)
            one = None
    if one is None:
        if refused := crowded([share, *_shares()]):
            raise EngineError(refused)
        one = held()[name] = await _begin(share, start)
    try:
        yield one.up
    finally:
        if one.up.gone:
            await _let_go(name, one)


async def together(starts: Mapping[str, tuple[float, Start]]) -> None:
    """Starts servers of these names, none of which is up, at the same time, each with its share.

    One that does not come up is left out, now and later, and so are all where shares add up to more
    than there is: their own points will say so.
    """
    tried = _TRIED.setdefault(asyncio.get_running_loop(), set())
    starts = {name: one for name, one in starts.items() if name not in tried}
    tried.update(starts)
    if crowded([*_shares(), *(share for share, _ in starts.values())]):
        return

    async def begin(name: str, share: float, start: Start) -> None:
        with suppress(EngineError, UnsupportedError):
            held()[name] = await _begin(share, start)

    async with asyncio.TaskGroup() as group:
        for name, (share, start) in starts.items():
            group.create_task(begin(name, share, start))


async def _let_go(name: str, one: Held) -> None:
    """Ends what is left of it. Raises EngineError where that cannot be ended."""
    del held()[name]
    one.release.set()
    await one.task


def crowded(shares: Iterable[float]) -> str | None:
    """Why servers with these shares cannot be up at once; None where they can."""
    # Ten shares of a tenth add up to a hair less or more than all.
    if (whole := round(sum(shares), 6)) <= 1:
        return None
    return (
        f"the arms that stay up together ask for {whole:.2f} of each GPU's memory: state smaller "
        "shares as resident_share, or leave it out, so that one runs after the other"
    )


def _shares() -> list[float]:
    return [one.share for one in held().values()]


async def _begin(share: float, start: Start) -> Held:
    """Starts a server in a task of its own, which outlives the point that needs it first."""
    ready: asyncio.Future[Up] = asyncio.get_running_loop().create_future()
    release = asyncio.Event()
    task = asyncio.create_task(_hold(start, ready, release))
    try:
        both: set[asyncio.Future[Any]] = {ready, task}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait({task})
        raise
    if not ready.done():
        # It did not come up, and this says why.
        await task
    return Held(up=ready.result(), share=share, task=task, release=release)


async def _hold(
    start: Start,
    ready: asyncio.Future[Up],
    release: asyncio.Event,
) -> None:
    async with start() as up:
        ready.set_result(up)
        await release.wait()
