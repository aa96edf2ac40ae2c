"""What is noted of a vLLM when it has come up, before anything is measured."""

import asyncio
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from harness import gpus, memory
from harness.clock import now
from harness.engine import Server
from harness.wire.client import HttpClient
from results import document
from results.errors import EngineError
from results.secret import open_setting, secret

TAKEN, SLACK = 512 << 20, 1 << 30
"""Bytes from which a GPU counts as taken, and which one that is given back may still hold more."""

PATIENCE = 60.0
"""Seconds in which the engine's Python must have told what is installed."""

PAUSE = 0.5
"""Seconds between two looks at GPUs that should be given back."""

LOOKING, LARGEST = 180.0, 1 << 23
"""Seconds in which a server must have told its configuration, since it looks at its whole machine
first and goes on with that when nobody waits any more; and bytes that are read of it."""

INFO = "server_info.json"
"""The file in which all that a server tells of its configuration is kept, beside its log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Birth:
    """How a server came up. `held` are the GPUs that it took memory of, where that is known."""

    command: tuple[str, ...]
    seconds: float
    installed: dict[str, Any]
    config: dict[str, Any]
    held: tuple[str, ...] | None
    memory: dict[str, Any] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        """What evidence.json keeps of it."""
        return {
            "seconds_until_it_answered": round(self.seconds, 3),
            "gpus": None if self.held is None else list(self.held),
            **self.memory,
        }


async def installed(python: str, surroundings: Mapping[str, str]) -> dict[str, Any]:
    """Digest of vLLM's files and versions of what it stands on; empty where it cannot be had."""
    script = str(Path(__file__).with_name("installed.py"))
    try:
        process = await asyncio.create_subprocess_exec(
            *(python, script),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={**os.environ, **surroundings},
        )
    except OSError:
        return {}
    try:
        async with asyncio.timeout(PATIENCE):
            told, _ = await process.communicate()
            return _mapping(orjson.loads(told))
    except (TimeoutError, ValueError):
        return {}
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def noted(
    server: Server,
    *,
    command: Sequence[str],
    seconds: float,
    build: dict[str, Any],
    before: Mapping[str, int] | None,
    pids: Iterable[int],
    surroundings: Mapping[str, str],
    log: Path,
) -> Birth:
    """Everything about a server that has just answered; what it tells of itself goes into a file.

    `before` are the bytes in use on every GPU before it was started.
    """
    assert isinstance(server.client, HttpClient)
    told = await _asked(server.client.url)
    after = await gpus.memory(surroundings)
    taken = None if before is None or after is None else _taken(before, after)
    if told:
        document.write(log.with_name(INFO), open_settings(told))
    held = {index: size for index, size in (taken or {}).items() if size >= TAKEN}
    return Birth(
        command=tuple(command),
        seconds=seconds,
        installed=build,
        config=_mapping(told.get("vllm_config")),
        held=None if taken is None else tuple(sorted(held, key=int)),
        memory={"gpu_bytes": held, "host": memory.memory(pids)},
    )


async def released(
    before: Mapping[str, int] | None, surroundings: Mapping[str, str], seconds: float
) -> None:
    """Waits until no GPU holds more than before, but for a GiB.

    Raises EngineError where one still does after so many seconds.
    """
    if before is None:
        return
    deadline = now() + seconds
    while kept := await _kept(before, surroundings):
        if now() >= deadline:
            told = ", ".join(f"GPU {index} {more / 2**30:.1f} GiB" for index, more in kept.items())
            raise EngineError(
                f"{seconds:g} s after the server's end there is more memory in use than before its "
                f"start: {told}: end what holds it before anything else is measured here"
            )
        await asyncio.sleep(PAUSE)


def open_settings(value: Mapping[str, Any]) -> dict[str, Any]:
    """Settings within settings, without what is or may be a secret."""
    return {name: _open(name, one) for name, one in value.items() if name != "system_env"}


def _open(name: str, value: Any) -> Any:
    match value:
        case dict():
            return open_settings(value)
        case list():
            return [_open(name, one) for one in value]
        case str():
            return open_setting(name, value)
    return None if secret(name) else value


async def _kept(before: Mapping[str, int], surroundings: Mapping[str, str]) -> dict[str, int]:
    """By how much GPUs hold more than before, where it counts."""
    after = await gpus.memory(surroundings)
    more = _taken(before, after or {})
    return {index: size for index, size in more.items() if size > SLACK}


def _taken(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    return {index: size - before.get(index, 0) for index, size in after.items()}


async def _asked(url: str) -> dict[str, Any]:
    """What the server tells of its configuration; empty where it does not."""
    limit = aiohttp.ClientTimeout(total=LOOKING)
    try:
        async with (
            aiohttp.ClientSession(timeout=limit, trust_env=False) as session,
            session.get(f"{url}/server_info?config_format=json", allow_redirects=False) as response,
        ):
            told = b""
            async for part in response.content.iter_any():
                told += part
                if len(told) > LARGEST or response.status != 200:
                    return {}
            return _mapping(orjson.loads(told))
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
        return {}


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
