"""The GPUs that a server started here would see."""

import os
from collections.abc import Mapping

from harness.environment import ask
from harness.gpus import MASK, TOOL
from harness.topology import Topology
from results.errors import UnsupportedError


def check(topology: Topology, variables: Mapping[str, str]) -> None:
    """Raises UnsupportedError where a topology needs more GPUs than a server would see.

    Where the driver's own tool is not there, nothing is known and nothing is refused.
    """
    told = _told("index")
    count = None if told is None else len(told)
    there = visible(count, {**os.environ, **variables}.get(MASK))
    if there is not None and topology.gpus > there:
        raise UnsupportedError(
            f"{topology.name} needs {topology.gpus} GPUs and {there} can be seen here: write a "
            f"smaller topology, or widen {MASK} if that is what hides them"
        )


def capabilities(variables: Mapping[str, str]) -> list[str]:
    """The compute capability of every GPU that a server would see; none where nobody tells."""
    told = _told("compute_cap") or []
    mask = {**os.environ, **variables}.get(MASK, "")
    chosen = [int(entry) for entry in mask.split(",") if entry.strip().isdigit()]
    return [told[index] for index in chosen if index < len(told)] or told


def visible(count: int | None, mask: str | None) -> int | None:
    """How many of `count` GPUs a mask leaves; as in CUDA, it ends at the first one that is none."""
    if count is None or mask is None:
        return count
    seen = 0
    for entry in map(str.strip, mask.split(",")):
        # Names of GPUs and of their parts are taken at their word.
        if not (entry.startswith(("GPU-", "MIG-")) or (entry.isdigit() and int(entry) < count)):
            break
        seen += 1
    return seen


def _told(field: str) -> list[str] | None:
    """What the driver's tool tells of each GPU; None where it does not."""
    answer = ask(TOOL, f"--query-gpu={field}", "--format=csv,noheader")
    return None if answer is None else answer.split()
