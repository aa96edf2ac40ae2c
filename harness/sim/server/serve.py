"""Runs a simulated server until it is told to stop."""

import asyncio
import errno
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from harness.sim.server.app import SimulatedServer
from harness.sim.server.site import Site
from results.errors import InputError

BACKLOG = 1024
"""Connections that may wait to be accepted."""

STOP_SECONDS = 0.2
"""How long requests in flight may still take when the server stops."""


@asynccontextmanager
async def serving(site: Site) -> AsyncIterator[str]:
    """The URL of a server that listens, on the running loop, until the context is left.

    Raises InputError where it cannot listen there, or a file of the site cannot be used.
    """
    # First of all, so that a server that has no place empties nobody's log.
    listener = _listener(site)
    try:
        server = SimulatedServer(site)
    except OSError as error:
        listener.close()
        raise InputError(f"log {site.log}: cannot be written: {error.strerror or error}") from error
    runner = web.AppRunner(
        server.app(), handler_cancellation=True, access_log=None, shutdown_timeout=STOP_SECONDS
    )
    try:
        await runner.setup()
        await web.SockSite(runner, listener, backlog=BACKLOG).start()
        host, port = listener.getsockname()[:2]
        yield f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    finally:
        await runner.cleanup()
        listener.close()
        server.close()


def serve(site: Site, ready: Callable[[str], None]) -> None:
    """Serves until SIGINT or SIGTERM; `ready` is handed the URL when it listens."""
    asyncio.run(_until_stopped(site, ready))


async def _until_stopped(site: Site, ready: Callable[[str], None]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with serving(site) as url:
        ready(url)
        await stop.wait()


def _listener(site: Site) -> socket.socket:
    family = socket.AF_INET6 if ":" in site.host else socket.AF_INET
    try:
        return socket.create_server((site.host, site.port), family=family, backlog=BACKLOG)
    except OSError as error:
        place = f"{site.host}:{site.port}"
        if error.errno == errno.EADDRINUSE:
            raise InputError(
                f"{place} is in use: choose another --port, or 0 for a free one"
            ) from error
        raise InputError(f"cannot listen on {place}: {error.strerror or error}") from error
