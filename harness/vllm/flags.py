"""The flags that an installed vLLM has, by its own help, and what it lacks of those asked for."""

import asyncio
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.processes import Reach
from results.errors import EngineError, UnsupportedError

Offer = Mapping[str, frozenset[str]]
"""The long flags of `vllm serve`, each with the only values that it takes, or with none told."""

HAVING = {"serve": "0.32.0", "bench forward": "0.33.0"}
"""The vLLM in whose help, of each command, all flags of ours were seen."""

PROBE_SECONDS = 180.0
"""How long a help may take: it imports torch."""

REFUSED = 2
"""What a command line ends with that its parser does not take."""

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

_FOUND: dict[tuple[str, int, str], Offer] = {}


def vllm_of(python: str) -> Path:
    """The vllm command of the environment whose interpreter this is."""
    return Path(python).parent / "vllm"


def read(text: str) -> Offer:
    """The flags that the text of a help names where options begin."""
    found = (match for head in _HEAD.findall(text) for match in _FLAG.findall(head))
    return {flag: frozenset(filter(None, values.split(","))) for flag, values in found}


async def offered(python: str, command: str = "serve", through: Reach | None = None) -> Offer:
    """What `vllm serve --help=all` names, or another command's; asked once an installation.

    One of another machine is asked `through` what reaches that. Raises EngineError where there is
    no vLLM or its help does not come, and UnsupportedError where it has no such command.
    """
    script = vllm_of(python)
    words = [python, str(script), *command.split(), "--help=all"]
    if through:
        words = [*through.words, shlex.join(words)]
    try:
        changed = 0 if through else script.stat().st_mtime_ns
    except OSError as error:
        raise EngineError(
            f"{script} is not there: state, as python, the interpreter of an environment that has "
            "vLLM (make vllm-cpu builds .venv-vllm-cpu)"
        ) from error
    installation = (shlex.join(words), changed, command)
    if installation not in _FOUND:
        _FOUND[installation] = await _probed(python, words, command)
    return _FOUND[installation]


def check(words: Sequence[str], known: Offer, python: str, command: str = "serve") -> None:
    """Raises UnsupportedError where a flag of ours, or its value, is not among the `known`."""
    for flag, value in zip(words, [*words[1:], ""], strict=True):
        if not flag.startswith("--"):
            continue
        if flag not in known:
            raise _lacking(python, flag, command)
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


def _lacking(python: str, what: str, command: str) -> UnsupportedError:
    return UnsupportedError(
        f"the vLLM of {python} has no {what}, by its own help, and vLLM {HAVING[command]} has: "
        "state, as python, an environment with that version or a later one"
    )


async def _probed(python: str, command: Sequence[str], of: str) -> Offer:
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        raise EngineError(f"{command[0]} cannot be started: {error.strerror}") from error
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
    if process.returncode == REFUSED and b"invalid choice" in complaint:
        raise _lacking(python, of, of)
    if process.returncode or not known:
        last = complaint.decode(errors="replace").strip().splitlines()[-1:]
        raise EngineError(f"{' '.join(command)} failed with {process.returncode}: {last}")
    return known
