"""What the points of an experiment have in common and what varies between them, in words."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from reports.labels import limits
from reports.notation import counted, duration, number
from results.cell import Cell
from results.run import Run
from results.secret import HIDDEN, flags, secret, without_login

Settings = Mapping[str, Any]

_LEVELS = {
    "batch": ("requests", ""),
    "closed": ("concurrency", ""),
    "open": ("rate", "/s"),
    "recorded": ("speed", "x"),
}
"""What each kind varies, said right after its name, and the unit."""


def alike(settings: Sequence[Settings]) -> Settings:
    """The settings that are the same in all."""
    return {
        key: value
        for key, value in settings[0].items()
        if all(key in one and one[key] == value for one in settings)
    }


def words(settings: Settings, left_out: Iterable[str] = ()) -> str:
    """Settings in words: `closed 16, sessions 4`; the kind and its level are never left out."""
    kind = settings.get("kind", "")
    level, unit = _LEVELS.get(kind, ("", ""))
    head = f"{kind} {settings[level]:g}{unit}" if level in settings else kind
    told = {
        key.replace("_", " "): duration(value) if key in {"duration", "grace"} else value
        for key, value in settings.items()
        if value is not None and key not in {"kind", level, *left_out}
    }
    return ", ".join(filter(None, [head, *(f"{key} {_value(told[key])}" for key in told)]))


def fitted(points: Iterable[tuple[Settings, Sequence[int] | None]]) -> str:
    """How many recorded traces fit each context limit: `13 of 24 traces fit context_limit 65,536`.

    Of every point, its workload, and how many of its traces fit and of how many, where known.
    """
    told = (
        f"{number(found[0], 0)} of {counted(found[1], 'trace')} "
        f"fit context_limit {number(workload['context_limit'], 0)}"
        for workload, found in points
        if found
    )
    return "; ".join(dict.fromkeys(told))


def every_point(cells: Sequence[Cell], runs: Sequence[Run]) -> list[tuple[str, str]]:
    """What was run in an experiment: settings that all its cells share, and those that vary.

    `runs` are asked for the seeds of their suites and how often each cell was to run.
    """
    told = [_parts(cell) for cell in cells]
    names = dict.fromkeys(name for one in told for name in one)
    parts = {name: [one.get(name, {}) for one in told] for name in names}
    facts = [(name, words(alike(settings))) for name, settings in parts.items()]
    planned = [
        point
        for run in runs
        for point in run.plan["points"]
        if point.get("experiment") == cells[0].experiment
    ]
    seeds = dict.fromkeys(str(point["suite_seed"]) for point in planned if "suite_seed" in point)
    repeats = Counter(point.get("cell", point["id"]) for point in planned)
    fits = fitted(
        (point.get("workload", {}), point.get("identity", {}).get("fitting")) for point in planned
    )
    facts += [
        ("traces", fits),
        ("seed of the suite", ", ".join(seeds)),
        ("repeats", " or ".join(map(str, sorted(set(repeats.values()))))),
        ("varies", "; ".join(_varying(parts))),
    ]
    return [(name, value) for name, value in facts if value]


def _parts(cell: Cell) -> dict[str, Settings]:
    """The settings of a cell by what they are of, those that are not stated left out."""
    deployment, workload = cell.deployment, dict(cell.workload)
    engine = deployment.get("engine", {})
    if workload.get("traces"):
        workload = {key: workload[key] for key in workload.keys() - {"generated", "trace_seed"}}
    ordered = {key: workload[key] for key in cell.workload if key in workload}
    single = {
        "topology": deployment.get("topology", {}).get("name"),
        "replay": deployment.get("replay"),
        "pinned": deployment.get("pinned"),
        # An engine that names its model is asked for that one.
        "model": engine.get("model") or deployment.get("model"),
        "flags": flags(deployment.get("flags", ())),
        "variables": " ".join(deployment.get("environment", ())),
        "goodput": limits(cell),
    }
    return {
        "workload": _stated(ordered),
        "load": _stated(cell.load),
        "engine": {key: value for key, value in _flat(engine) if key != "model"},
        **{name: _stated({"kind": _value(value)}) for name, value in single.items() if value},
    }


def _stated(settings: Settings) -> Settings:
    return {key: value for key, value in settings.items() if value is not None}


def _flat(settings: Settings, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every stated setting with the path to it, and nothing that may be a secret."""
    for key, value in settings.items():
        name = f"{prefix}{key}"
        if value in (None, "", [], {}, ()):
            continue
        if name in {"environment", "headers"}:
            yield name, " ".join(value)
        elif isinstance(value, Mapping):
            yield from _flat(value, f"{name}.")
        elif isinstance(value, list | tuple):
            yield name, flags(value)
        else:
            yield (
                name,
                without_login(HIDDEN if secret(name) and isinstance(value, str) else value),
            )


def _varying(parts: Mapping[str, Sequence[Settings]]) -> Iterator[str]:
    """The settings in which not all are alike, each with the values that it has."""
    for name, settings in parts.items():
        for key in dict.fromkeys(key for one in settings for key in one):
            values = dict.fromkeys(_value(one[key]) if key in one else "none" for one in settings)
            if len(values) > 1:
                called = name if key == "kind" else f"{name} {key.replace('_', ' ')}"
                yield f"{called} {', '.join(values)}"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return " ".join(f"{name} {_value(told)}" for name, told in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value)
