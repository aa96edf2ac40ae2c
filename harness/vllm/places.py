"""The ports of a deployment's servers: free ones where none is stated, and nobody else's."""

import asyncio
import os
import shutil
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.engine import Deployment
from harness.vllm.command import HOST
from harness.vllm.flags import Offer
from harness.vllm.nodes import PORT, Launch, launches
from results.errors import EngineError, UnsupportedError

if TYPE_CHECKING:
    from harness.vllm.engine import Vllm

ATTEMPTS = 50
"""How many first ports are tried where several in a row have to be free."""

_GIVEN: set[int] = set()
"""Ports that servers started by this process were told, which may not listen there yet."""

PATIENCE = 2.0
"""Seconds in which a port of another machine must have taken a connection, or else is free."""


def placed(engine: "Vllm", deployment: Deployment, known: Offer) -> list[Launch]:
    """Every process, at the ports that it will have.

    Raises UnsupportedError where a program that has to stand before them is not there, and
    EngineError where no ports are free.
    """
    made = launches(engine, deployment, known, os.environ)
    for launch in made:
        if launch.role == "router" and engine.launcher is None:
            _check_there(launch.words[0], engine.python)
    if engine.port or engine.launcher:
        return made
    base = min(port for launch in made for port in launch.ports) or PORT
    offsets = {port - base if port else 0 for one in made for port in (*one.ports, *one.others)}
    return launches(replace(engine, port=_free(max(offsets))), deployment, known, os.environ)


def check_libraries(engine: "Vllm", made: list[Launch], build: Mapping[str, Any]) -> None:
    """Raises UnsupportedError where pools have nothing to hand caches over with.

    Where nobody tells what is installed, nothing is refused.
    """
    there = build.get("libraries")
    wanted = any("NixlConnector" in word for launch in made for word in launch.words)
    if wanted and there is not None and not any(name.startswith("nixl") for name in there):
        raise UnsupportedError(
            f"pools hand their caches over by NixlConnector, and the environment of {engine.python}"
            " has no nixl: install it there, or state another --kv-transfer-config in prefill_flags"
            " and in decode_flags"
        )


async def refuse_taken(engine: "Vllm", made: list[Launch]) -> None:
    """Raises EngineError where a port cannot be had."""
    for launch in made:
        for port in (*launch.ports, *launch.others):
            if engine.launcher is None:
                _refuse_bound(port)
            else:
                await _refuse_answering(launch.host, port)


def _check_there(program: str, python: str) -> None:
    beside = os.pathsep.join((str(Path(python).parent), os.environ.get("PATH", "")))
    if shutil.which(program, path=beside) is None:
        raise UnsupportedError(
            f"{program}, which is to stand before the servers, is not there: install it, or state "
            "as router the command of another one, or the address of one that runs"
        )


def _free(more: int) -> int:
    """A port that is free, as are so many after it."""
    for _ in range(ATTEMPTS):
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            first = int(probe.getsockname()[1])
        ports = range(first, first + more + 1)
        if not _GIVEN.isdisjoint(ports):
            continue
        with suppress(EngineError, OverflowError):
            for port in ports:
                _refuse_bound(port)
            _GIVEN.update(ports)
            return first
    raise EngineError(f"{more + 1} ports in a row are not free here: state the first one as port")


def _refuse_bound(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise _taken(f"port {port} is in use ({error.strerror})") from error


async def _refuse_answering(host: str, port: int) -> None:
    try:
        async with asyncio.timeout(PATIENCE):
            _, writer = await asyncio.open_connection(host, port)
    except (OSError, TimeoutError):
        return
    writer.close()
    raise _taken(f"port {port} of {host} answers already")


def _taken(how: str) -> EngineError:
    return EngineError(
        f"{how}: what answers there is not the server that was asked for; end it, or state "
        "another port"
    )
