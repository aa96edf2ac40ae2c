"""The memory of this machine that processes hold, and the huge pages in it."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

_PROC = Path("/proc")
_HUGE = Path("/sys/kernel/mm/transparent_hugepage/enabled")

_HELD = {
    "held_bytes": "Pss",
    "transparent_huge_bytes": "AnonHugePages",
    "shared_huge_bytes": "ShmemPmdMapped",
    "reserved_huge_bytes": "Private_Hugetlb",
}
"""By our name, what the kernel calls it in /proc/PID/smaps_rollup; memory that is shared counts for
each by its part."""


def memory(pids: Iterable[int]) -> dict[str, Any]:
    """What the processes hold together, and what the machine has; what cannot be read is absent."""
    rolled = [told for pid in pids if (told := _table(_PROC / f"{pid}/smaps_rollup"))]
    held: dict[str, Any] = {
        name: sum(told.get(field, 0) for told in rolled) for name, field in _HELD.items() if rolled
    }
    machine = _table(_PROC / "meminfo")
    there: dict[str, int | str | None] = {
        "available_bytes": machine.get("MemAvailable"),
        "huge_pages": machine.get("HugePages_Total"),
        "huge_pages_free": machine.get("HugePages_Free"),
        "transparent_huge_pages": _chosen(_HUGE),
    }
    return held | {name: value for name, value in there.items() if value is not None}


def _table(path: Path) -> dict[str, int]:
    """The fields of one of the kernel's tables, sizes in bytes."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    found = {}
    for line in lines:
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            found[name] = int(words[0]) * (1024 if words[1:] == ["kB"] else 1)
    return found


def _chosen(path: Path) -> str | None:
    """The one of several words that stands in brackets."""
    try:
        return path.read_text().partition("[")[2].partition("]")[0] or None
    except OSError:
        return None
