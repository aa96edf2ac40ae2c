"""Lengths of time as they are written: `500ms`, `90s`, `10m`, `2h`."""

import re
from fractions import Fraction
from typing import Any

FIELDS = frozenset({"budget", "duration", "grace", "ttft", "tpot", "e2el"})
"""The fields that take a unit beside plain seconds."""

PATTERN = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|s|m|h)")

# Fractions, so that 7ms is 0.007 and not a neighbour of it.
_UNITS = {"ms": Fraction(1, 1000), "s": Fraction(1), "m": Fraction(60), "h": Fraction(3600)}

_NAMES = {
    "ms": ("msec", "msecs", "milli", "millis", "millisecond", "milliseconds"),
    "s": ("sec", "secs", "second", "seconds"),
    "m": ("min", "mins", "minute", "minutes"),
    "h": ("hr", "hrs", "hour", "hours"),
}
_SPELLED = {name: unit for unit, names in _NAMES.items() for name in (unit, *names)}
_PART = re.compile(r"\s*([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*([a-z]+)[\s,]*")


def seconds(written: Any) -> Any:
    """The seconds that a text with a unit stands for; anything else as it is."""
    match = PATTERN.fullmatch(written) if isinstance(written, str) else None
    return float(Fraction(match[1]) * _UNITS[match[2]]) if match else written


def meant(written: Any) -> str | None:
    """How `10 minutes`, `10 Min` or `1h 30m` should have been written: `10m`, `5400s`."""
    text = written.lower() if isinstance(written, str) else ""
    parts = [(number, _SPELLED.get(name)) for number, name in _PART.findall(text)]
    if _PART.sub("", text) or not parts or any(unit is None for _, unit in parts):
        return None
    if len(parts) == 1:
        return f"{parts[0][0]}{parts[0][1]}"
    whole = sum(Fraction(number) * _UNITS[unit] for number, unit in parts if unit)
    return f"{float(whole):g}s"
