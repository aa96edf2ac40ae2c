"""What is noted of a vLLM when it has come up, before anything is measured."""

import asyncio
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from harness import gpus, memory
from harness.clock import now
from harness.processes import Reach
from harness.vllm.affinity import Affinity
from harness.vllm.effective import effective
from harness.vllm.nodes import Launch
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
class Part:
    """One engine of a deployment: its first process, what it tells of itself, and all its logs.

    `effective` is that setting by setting, without secrets.
    """

    launch: Launch
    config: dict[str, Any]
    effective: dict[str, Any]
    logs: tuple[Path, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Birth:
    """How a server came up. `held` are the GPUs that it took memory of, where that is known.

    `affinity` is how its sessions turned out to be kept at their ranks, where they are to be.
    """

    parts: tuple[Part, ...]
    seconds: float
    installed: dict[str, Any]
    held: tuple[str, ...] | None
    memory: dict[str, Any] = field(default_factory=dict)
    affinity: Affinity | None = None

    def facts(self) -> dict[str, Any]:
        """What evidence.json keeps of it."""
        return {
            "seconds_until_it_answered": round(self.seconds, 3),
            "gpus": None if self.held is None else list(self.held),
            **self.memory,
        }


async def installed(
    python: str, surroundings: Mapping[str, str], through: Reach | None = None
) -> dict[str, Any]:
    """Digest of vLLM's files and versions of what it stands on; empty where it cannot be had."""
    script = Path(__file__).with_name("installed.py")
    command = [python, str(script)]
    if through:
        command = [*through.words, shlex.join([python, "-c", script.read_text(encoding="utf-8")])]
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
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
    processes: Sequence[tuple[Launch, Path]],
    *,
    seconds: float,
    build: dict[str, Any],
    before: Mapping[str, int] | None,
    alone: bool,
    pids: Iterable[int],
    surroundings: Mapping[str, str],
    affinity: Affinity | None,
) -> Birth:
    """Everything about `processes`, with their logs, that have just answered.

    What engines tell of themselves goes into files beside the logs. `before` are the bytes in use
    on every GPU before they were started, where these are this machine's; what each took since is
    told where they came up alone.
    """
    parts = [await _part(processes, engine) for engine in _engines(processes)]
    after = None if before is None else await gpus.memory(surroundings)
    taken = None if before is None or after is None else _taken(before, after)
    held = {index: size for index, size in (taken or {}).items() if size >= TAKEN}
    return Birth(
        parts=tuple(parts),
        seconds=seconds,
        installed=build,
        held=None if taken is None else tuple(sorted(held, key=int)),
        memory={**({"gpu_bytes": held} if alone else {}), "host": memory.memory(pids)},
        affinity=affinity,
    )


def _engines(processes: Sequence[tuple[Launch, Path]]) -> list[int]:
    return sorted({launch.engine for launch, _ in processes if launch.role != "router"})


async def _part(processes: Sequence[tuple[Launch, Path]], engine: int) -> Part:
    ours = [one for one in processes if one[0].engine == engine and one[0].role != "router"]
    launch, log = ours[0]
    told = await _asked(launch.urls[0])
    shown = open_settings(told)
    if told:
        name = INFO if not engine else f"{Path(INFO).stem}-{engine + 1}.json"
        document.write(log.with_name(name), shown)
    logs = tuple(log for _, log in ours)
    return Part(
        launch=launch,
        config=_mapping(told.get("vllm_config")),
        effective=effective(shown),
        logs=logs,
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
