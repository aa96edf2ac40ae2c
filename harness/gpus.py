"""What the driver's own tool tells of this machine's GPUs: memory, clocks, power and throttling."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress

from harness.client import Page

TOOL = "nvidia-smi"

MASK = "CUDA_VISIBLE_DEVICES"
"""The variable that hides GPUs from a program, though not from the tool."""

PERIOD = 1.0
"""Seconds between two looks of the tool."""

PATIENCE = 20.0
"""Seconds in which it must have answered a question."""

LONGEST = 1 << 12
"""Characters of a line beyond which it is none of the tool's."""

_MIB = 1 << 20

FIELDS: dict[str, tuple[tuple[str, ...], float]] = {
    "gpu:sm_clock_hertz": (("clocks.sm",), 1e6),
    "gpu:memory_clock_hertz": (("clocks.mem",), 1e6),
    "gpu:power_watts": (("power.draw",), 1.0),
    "gpu:temperature_celsius": (("temperature.gpu",), 1.0),
    "gpu:memory_used_bytes": (("memory.used",), _MIB),
    "gpu:throttle_reasons": (("clocks_event_reasons.active", "clocks_throttle_reasons.active"), 1),
}
"""By the name of the sample: what the tool calls it, newest name first, and in units of what."""

Looks = dict[str, dict[str, float]]
"""The last values of every GPU, by its index and the name of the sample."""


async def memory(surroundings: Mapping[str, str]) -> dict[str, int] | None:
    """The bytes in use on every GPU by its index; None where nobody tells.

    GPUs that a program in these surroundings does not see are left out: they are another's.
    """
    mask = {**os.environ, **surroundings}.get(MASK)
    only = ("-i", mask.replace(" ", "")) if mask else ()
    answer = await _answer(("index", "memory.used"), surroundings, only)
    if answer is None:
        return None
    rows = (line.split(",") for line in answer.splitlines())
    return {
        row[0].strip(): int(float(row[1]) * _MIB)
        for row in rows
        if len(row) == 2 and _number(row[1]) is not None
    }


@asynccontextmanager
async def watched(
    page: Page, surroundings: Mapping[str, str], chosen: Iterable[str] = ()
) -> AsyncIterator[Page]:
    """The server's page with what the tool last said of the chosen GPUs, or of all, beneath it.

    One process of the tool runs meanwhile; where there is none the page stays as it is.
    """
    fields = await _known(surroundings)
    if not fields:
        yield page
        return
    looks: Looks = {}
    process = await _looking(fields, surroundings, chosen)
    reading = asyncio.ensure_future(_read(process, fields, looks))

    async def read() -> str | None:
        told = await page.read()
        return None if told is None else told + _lines(looks)

    try:
        yield Page(url=page.url, read=read)
    finally:
        reading.cancel()
        with suppress(ProcessLookupError):
            process.kill()
        await asyncio.wait({reading})
        await process.wait()


def parsed(line: str, names: Iterable[str]) -> tuple[str, dict[str, float]] | None:
    """The index of a GPU and its values, from a line of the tool; None where it is no such line.

    What the tool does not know of a GPU is left out.
    """
    names = tuple(names)
    words = [word.strip() for word in line.split(",")]
    if len(words) != 1 + len(names) or not words[0].isdigit():
        return None
    values = zip(names, map(_number, words[1:]), strict=True)
    return words[0], {name: value * FIELDS[name][1] for name, value in values if value is not None}


def _number(word: str) -> float | None:
    word = word.strip()
    with suppress(ValueError):
        return float(int(word, 16)) if word.startswith("0x") else float(word)
    return None


def _lines(looks: Looks) -> str:
    """The values in Prometheus's text format."""
    told = [
        f'{name}{{gpu="{index}"}} {value:.10g}'
        for index, values in looks.items()
        for name, value in values.items()
    ]
    return "\n".join(["", *told, ""])


async def _known(surroundings: Mapping[str, str]) -> dict[str, str]:
    """What this machine's tool calls the fields that it knows, by the name of the sample."""
    # It refuses a whole question for one field that it does not know.
    for place in (0, -1):
        asked = {name: words[place] for name, (words, _) in FIELDS.items()}
        if await _answer(asked.values(), surroundings) is not None:
            return asked
    alone = {name: words[-1] for name, (words, _) in FIELDS.items()}
    return {
        name: word
        for name, word in alone.items()
        if await _answer((word,), surroundings) is not None
    }


async def _looking(
    fields: Mapping[str, str], surroundings: Mapping[str, str], chosen: Iterable[str]
) -> asyncio.subprocess.Process:
    only = ("-i", ",".join(chosen)) if chosen else ()
    return await asyncio.create_subprocess_exec(
        _tool(surroundings) or TOOL,
        *_question(("index", *fields.values())),
        *("-lms", str(round(PERIOD * 1000)), *only),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        limit=LONGEST,
    )


async def _read(
    process: asyncio.subprocess.Process, fields: Mapping[str, str], looks: Looks
) -> None:
    assert process.stdout is not None
    # A line that is too long raises ValueError: then this is another program.
    with suppress(ValueError):
        while line := await process.stdout.readline():
            if found := parsed(line.decode(errors="replace"), fields):
                looks[found[0]] = found[1]


async def _answer(
    fields: Iterable[str], surroundings: Mapping[str, str], only: Iterable[str] = ()
) -> str | None:
    """What the tool answers to one question; None where there is no tool, or it refuses."""
    tool = _tool(surroundings)
    if tool is None:
        return None
    try:
        process = await asyncio.create_subprocess_exec(
            *(tool, *_question(fields), *only),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError:
        return None
    try:
        async with asyncio.timeout(PATIENCE):
            told, _ = await process.communicate()
    except TimeoutError:
        return None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return told.decode(errors="replace") if process.returncode == 0 else None


def _question(fields: Iterable[str]) -> tuple[str, str]:
    return f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"


def _tool(surroundings: Mapping[str, str]) -> str | None:
    """The tool that a program in these surroundings would find."""
    return shutil.which(TOOL, path=surroundings.get("PATH"))
