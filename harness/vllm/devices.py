"""The GPUs that a server started here would see."""

import os
import shutil
import subprocess
from collections.abc import Mapping

from harness.gpus import MASK
from harness.topology import Topology
from results.errors import UnsupportedError


def check(topology: Topology, variables: Mapping[str, str]) -> None:
    """Raises UnsupportedError where a topology needs more GPUs than a server would see.

    Where the driver's own tool is not there, nothing is known and nothing is refused.
    """
    there = visible(_count(), {**os.environ, **variables}.get(MASK))
    if there is not None and topology.gpus > there:
        raise UnsupportedError(
            f"{topology.name} needs {topology.gpus} GPUs and {there} can be seen here: write a "
            f"smaller topology, or widen {MASK} if that is what hides them"
        )


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


def _count() -> int | None:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    ask = [tool, "--query-gpu=index", "--format=csv,noheader"]
    try:
        answer = subprocess.run(ask, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return len(answer.stdout.split()) if answer.returncode == 0 else None
