"""Topologies as they are written, and what was meant where one is not."""

import re
from collections.abc import Callable
from typing import Any

from harness.topology import Topology, parse
from results.errors import InputError
from suites.reading import Path, Problem, one_line
from suites.words import listed, nearest, quoted

By = Callable[[str], str | None]

MOST_GPUS = 1_000_000
LONGEST = 80

_KINDS = ("TP", "PP", "DP", "DEP")
_STANDS_FOR = {"": "TP", "EP": "DEP"}
"""What stands for a number alone, and for expert parallelism, which is never without data's."""


def read(written: Any, path: Path, problems: list[Problem]) -> Topology | None:
    """The topology of that name; None, and a problem, where there is none or it is absurd."""
    name = str(written)[:LONGEST]
    try:
        made = parse(name)
    except InputError as error:
        near = dict.fromkeys(filter(None, (_meant(name, by) for by in (_near, _swapped))))
        way = f": write it as {listed(near)}" if near else ""
        problems.append(Problem(path, one_line(error) + way))
        return None
    if made.gpus > MOST_GPUS:
        sentence = f"expected at most {MOST_GPUS:,} GPUs, got {quoted(written)}: write fewer"
        problems.append(Problem(path, sentence))
    return made


def _near(kind: str) -> str | None:
    """The kind that looks most like what is written: `TP` for `TPP`, `DEP` for `EP`."""
    return _STANDS_FOR.get(kind) or nearest(kind, _KINDS)


def _swapped(kind: str) -> str | None:
    """The kind of the same letters, if any: `DEP` for `DPE`, which looks more like `DP`."""
    same = (known for known in _KINDS if sorted(known) == sorted(kind))
    return next(same, None) or _near(kind)


def _meant(name: str, by: By) -> str | None:
    """The topology that was meant if `by` knows kinds: `TP4` for `tp4`, `TPP4` and `4`."""
    first, *others = re.sub(r"[\s_=:-]", "", name.upper()).split("+")
    pools = [_degrees(pool, by, counted=bool(others)) for pool in (first, *others)]
    try:
        return None if None in pools else parse("+".join(filter(None, pools))).name
    except InputError:
        return None


def _degrees(pool: str, by: By, *, counted: bool) -> str | None:
    """The degrees of one pool, or of all, as they are rightly written; first its count, if any."""
    first, *others = pool.split("X")
    count = [first] if counted and others and re.fullmatch(r"[1-9]\d*", first) else []
    parts = []
    for part in others if count else (first, *others):
        match = re.fullmatch(r"([A-Z]*)([1-9]\d*)", part)
        kind = by(match[1]) if match else None
        if not match or not kind:
            return None
        parts.append(f"{kind}{match[2]}")
    return "x".join(count + parts)
