"""The machine that measures: host, GPUs, driver, versions and source revision."""

import os
import platform
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_PACKAGES = (
    *("paceline", "aiohttp", "numpy", "orjson", "tokenizers"),
    *("pyarrow", "plotly", "pydantic"),
)
_GPU_FIELDS = ("index", "name", "uuid", "memory.total", "driver_version", "power.limit")
_GPU_MODES = ("mig.mode.current", "ecc.mode.current", "clocks.max.sm")


def environment() -> dict[str, Any]:
    """What to know of this machine to understand a run; holds no variables and no secrets."""
    return {
        "host": platform.node(),
        "system": platform.platform(),
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        # Which of them this process may run on, not every system tells.
        "usable_cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "memory_bytes": _memory(),
        "python": sys.version.split()[0],
        "packages": {name: _version(name) for name in _PACKAGES},
        "gpus": _gpus(),
        "git": _revision(),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or None
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, None)


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def _gpus() -> list[dict[str, str]] | None:
    """One entry a GPU as the driver's own tool tells it; None where there is no such tool."""
    # An older driver refuses the whole question for one field that it does not know.
    return _asked_gpus((*_GPU_FIELDS, *_GPU_MODES)) or _asked_gpus(_GPU_FIELDS)


def _asked_gpus(names: tuple[str, ...]) -> list[dict[str, str]] | None:
    answer = ask("nvidia-smi", f"--query-gpu={','.join(names)}", "--format=csv,noheader")
    if answer is None:
        return None
    rows = [line.split(",") for line in answer.splitlines() if line]
    return [dict(zip(names, map(str.strip, row), strict=False)) for row in rows]


def _revision() -> dict[str, Any] | None:
    """The commit of the folder that the run was started in, and whether it had changes."""
    commit = ask("git", "rev-parse", "HEAD")
    if commit is None:
        return None
    return {"commit": commit, "changed": bool(ask("git", "status", "--porcelain", "-uno"))}


def ask(program: str, *arguments: str) -> str | None:
    """What a program of this machine says; None where it is not there, fails or takes too long."""
    path = shutil.which(program)
    if path is None:
        return None
    try:
        answer = subprocess.run(
            [path, *arguments], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None
