"""Faults by script: which request goes wrong, how, and when."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from results.errors import InputError

BREAKING = frozenset({"error-frame", "stall", "drop"})
"""Faults after which nothing more of the answer comes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One line of a script. `request` counts from 1; without any choice, every request is meant.

    `after` counts frames with tokens, `frames` are written at once, `seconds` delay the head.
    """

    fault: str
    request: int | None = None
    id: str | None = None
    header: str | None = None
    after: int = 1
    status: int = 503
    retry_after: float | None = None
    frames: int = 4
    seconds: float = 1.0

    def chosen(self, ordinal: int, name: str, headers: Mapping[str, str]) -> bool:
        """Whether it is meant for this request: every choice that the line makes must hold."""
        if self.request not in {None, ordinal}:
            return False
        if self.id is not None and self.id not in name:
            return False
        if self.header is None:
            return True
        key, value = self.header.split(":", 1)
        return headers.get(key.strip()) == value.strip()


HARMLESS = Fault(fault="none")
"""What befalls a request that no line is meant for."""

_OWN: dict[str, frozenset[str]] = {
    "error-frame": frozenset({"after"}),
    "status": frozenset({"status", "retry_after"}),
    "html": frozenset(),
    "stall": frozenset({"after"}),
    "drop": frozenset({"after"}),
    "no-done": frozenset(),
    "role-late": frozenset({"after"}),
    "split-bytes": frozenset(),
    "coalesce": frozenset({"frames"}),
    "duplicate-usage": frozenset(),
    "slow-headers": frozenset({"seconds"}),
}
_CHOICES = frozenset({"fault", "request", "id", "header"})


def _whole(lowest: int, highest: float = float("inf")) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and lowest <= value <= highest


def _seconds(value: object) -> bool:
    return type(value) in {int, float} and value >= 0  # type: ignore[operator]


_CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "request": (_whole(1), "a whole number of at least 1"),
    "id": (lambda value: isinstance(value, str) and bool(value), "a part of a request id"),
    "header": (
        lambda value: isinstance(value, str) and ":" in value,
        'text such as "X-Key: value"',
    ),
    "after": (_whole(0), "a whole number of at least 0"),
    "status": (_whole(400, 599), "a status from 400 to 599"),
    "retry_after": (_seconds, "seconds, 0 or more"),
    "frames": (_whole(2), "a whole number of at least 2"),
    "seconds": (_seconds, "seconds, 0 or more"),
}


def read(path: Path) -> tuple[Fault, ...]:
    """The faults in a file of JSON lines; empty lines and lines that begin with `#` are skipped.

    Raises InputError naming file and line where one cannot be used.
    """
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    numbered = [(number, line.strip()) for number, line in enumerate(lines, start=1)]
    return tuple(
        _fault(f"{path}: line {number}", line)
        for number, line in numbered
        if line and not line.startswith("#")
    )


def _fault(place: str, line: str) -> Fault:
    try:
        found = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise InputError(f"{place}: not JSON: {error}") from error
    if not isinstance(found, dict):
        raise InputError(f'{place}: expected an object such as {{"request": 3, "fault": "drop"}}')
    kind = found.get("fault")
    if not isinstance(kind, str) or kind not in _OWN:
        raise InputError(f"{place}: fault: expected one of {', '.join(_OWN)}, got {_shown(kind)}")
    allowed = _CHOICES | _OWN[kind]
    for key, value in found.items():
        if key not in allowed:
            known = ", ".join(sorted(allowed - {"fault"}))
            raise InputError(f"{place}: {key}: {kind} does not take it; it takes {known}")
        check, expected = _CHECKS.get(key, (lambda _: True, ""))
        if not check(value):
            raise InputError(f"{place}: {key}: expected {expected}, got {_shown(value)}")
    return Fault(**found)


def _shown(value: object) -> str:
    return "nothing" if value is None else orjson.dumps(value).decode()
