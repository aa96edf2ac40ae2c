"""When a started server may be trusted, and how it is noticed that it has ended."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp

from harness.clock import now
from harness.engine import Server
from harness.vllm.fleet import Fleet
from harness.vllm.log import telling
from harness.vllm.pulse import Pulse
from harness.wire.forced import STRAYED
from results.errors import EngineError

PAUSE = 0.5
"""Seconds between two attempts to get a first answer."""

EMPTYING = 30.0
"""Seconds in which a server must have emptied its prefix cache."""

Ask = Callable[[], AbstractAsyncContextManager[Server]]


@asynccontextmanager
async def answering(
    ask: Ask, fleet: Fleet, port: int | None, seconds: float
) -> AsyncIterator[Server]:
    """The server, from when it has answered a real request and its own processes are alive.

    `ask` makes a context that cannot be entered until then; a /health that answers earlier counts
    for nothing. Raises EngineError where a process ends, where the request is refused, where
    another process answers at the port, if it is one of this machine, and where no answer comes in
    so many seconds.
    """
    deadline = now() + seconds
    last = "the server does not listen"
    async with AsyncExitStack() as stack:
        while (left := deadline - now()) > 0:
            attempt = asyncio.ensure_future(stack.enter_async_context(ask()))
            try:
                both: set[asyncio.Future[Any]] = {attempt, fleet.exit}
                await asyncio.wait(both, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                _check_alive(fleet)
                if not attempt.done():
                    last = "the last request is still without an answer"
                    continue
            finally:
                await _given_up(attempt)
            if attempt.exception() is None:
                _check_own(fleet, port)
                yield attempt.result()
                return
            last = _reason(attempt)
            fleet.note()
            await asyncio.wait({fleet.exit}, timeout=PAUSE)
    _check_alive(fleet)
    raise EngineError(
        f"the server answered no request within {seconds:g} s (ready_timeout): {last}; "
        f"{telling(fleet.log)}"
    )


async def ended(fleet: Fleet, pulse: Pulse) -> str:
    """Why the server ended, or is to be given up, once one of them is so."""
    hanging = asyncio.ensure_future(pulse.hung())
    try:
        both: set[asyncio.Future[Any]] = {fleet.exit, hanging}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    finally:
        hanging.cancel()
    if fleet.status is None:
        return f"{hanging.result()}: {telling(fleet.log)}"
    return f"the server ended with {fleet.status} while it was measured: {telling(fleet.log)}"


async def emptied(url: str) -> bool:
    """Empties the prefix cache of a server that was measured before; whether it says it did."""
    limit = aiohttp.ClientTimeout(total=EMPTYING)
    try:
        async with (
            aiohttp.ClientSession(timeout=limit, trust_env=False) as session,
            session.post(f"{url}/reset_prefix_cache", json={}, allow_redirects=False) as response,
        ):
            # Older ones answer with nothing, newer ones with {"success": false} while it is in use.
            return response.status == 200 and b"false" not in await response.read()
    except (aiohttp.ClientError, OSError, TimeoutError):
        return False


async def _given_up(attempt: asyncio.Future[Server]) -> None:
    """Ends the attempt, where it goes on."""
    if not attempt.done():
        attempt.cancel()
        await asyncio.wait({attempt})


def _check_alive(fleet: Fleet) -> None:
    if fleet.status is not None:
        raise EngineError(
            f"the server ended with {fleet.status} before it had answered a request: "
            f"{telling(fleet.log)}"
        )


def _check_own(fleet: Fleet, port: int | None) -> None:
    if port is not None and not fleet.listens(port):
        raise EngineError(
            f"port {port} is answered by another process than the server that was started: "
            "end it, or state another port"
        )


def _reason(attempt: asyncio.Future[Server]) -> str:
    """Why the request got no answer yet. Raises where waiting will not help."""
    error = attempt.exception()
    assert error is not None
    # A server that says what is wrong with the request will say so again.
    final = any(words in str(error) for words in (": HTTP 4", STRAYED))
    if final or not isinstance(error, EngineError):
        raise error
    return str(error)
