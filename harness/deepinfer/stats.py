"""What DeepInfer's log says of its own steps, as counters for the samples of a point."""

import re
from pathlib import Path

TAIL = 1 << 17
"""How many bytes of the log are looked at."""

_LINE = re.compile(r"RANK (\d+), GPU \d+, step \d+, \[stats\] \((.*)\)")
_NUMBER = re.compile(r"(-?\d+(?:\.\d+)?)(%?)")


def pairs(text: str) -> dict[str, float]:
    """The plain numbers among the `name value` pairs of a stats line; shares are below 1.

    With `moe_lb`, the highest load of an expert over the mean one, comes `balancedness`: its
    inverse, as vLLM tells it.
    """
    found = {}
    for part in text.split(" | "):
        name, _, value = part.partition(" ")
        if number := _NUMBER.match(value):
            found[name] = float(number[1]) / (100 if number[2] else 1)
    if found.get("moe_lb"):
        found["balancedness"] = 1 / found["moe_lb"]
    return found


def latest(log: Path) -> dict[int, dict[str, float]]:
    """The last stats line of each rank that the end of the log holds."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TAIL))
            text = file.read().decode(errors="replace")
    except OSError:
        return {}
    return {int(rank): pairs(inside) for rank, inside in _LINE.findall(text)}


def exposition(log: Path) -> list[str]:
    """The same in Prometheus's words, a line each."""
    return [
        f'deepinfer:{re.sub("[^A-Za-z0-9_]", "_", name)}{{rank="{rank}"}} {value:.9g}'
        for rank, values in sorted(latest(log).items())
        for name, value in values.items()
    ]
