"""All that a side states and shows of itself, by dotted key, as comparisons look at it."""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import orjson

from results.cell import Cell
from results.evidence import Evidence
from results.run import Run, RunPoint
from results.secret import open_setting, open_variable, secret
from results.side import Side
from results.steps import is_stepwise

Fact = tuple[str, Any]
"""A key and its value, a plain JSON one."""

Facts = Mapping[str, Mapping[str, str]]
"""By key, every value that a side has of it, each in an exact form and as it may be shown."""

OBSERVED = ("environment.", "evidence.")
"""How the keys begin of what nobody stated."""

ACCURACY = "evidence.accuracy."
"""How the keys begin of which questions were asked, and how."""

CHOSEN = "evidence.chosen."
"""How the keys begin of what an engine took by itself, since nobody asked for anything."""

EFFECTIVE = "evidence.effective."
"""How the keys begin of what an engine says that it runs with, whether anybody stated it or not."""

CHOOSING = frozenset(
    (
        *("attention", "kv_format", "moe", "replay", "capture_size"),
        *("max_sequences", "max_batched_tokens", "max_model_len"),
    )
)
"""Features that an engine sees to by itself where it is not told."""

REPEATED = frozenset(("flags", "environment"))
"""Settings that an engine and its deployment both have: the deployment's come last."""

# They differ at every start, say where and how a server is reached and not what it is, or list
# steps, of which each is looked at by itself.
_OF_A_START = frozenset(
    (
        "--case",
        *("--host", "--port", "--served-model-name"),
        *("--data-parallel-address", "--data-parallel-supervisor-port"),
    )
)
_VARIABLES = ("deployment.environment.", "deployment.engine.headers.")


def environments(runs: Iterable[Run]) -> Facts:
    """The machines that runs were made on; memory in whole GiB, GPUs by what they are."""
    return _gathered(fact for run in runs for fact in _environment(run))


def settings(side: Side) -> list[tuple[Cell, Facts]]:
    """The points of a side, each with its facts: what it was to be, and what it was seen to be."""
    planned = {point["id"]: point for run in side.runs for point in run.plan["points"]}
    return [
        (point.cell, _gathered(_of_point(point, planned.get(point.cell.id, {}))))
        for point in side.points
    ]


def joined(told: Iterable[Facts]) -> Facts:
    """Facts together: a key has more than one value where they differ in it."""
    found: dict[str, dict[str, str]] = {}
    for each in told:
        for key, values in each.items():
            found.setdefault(key, {}).update(values)
    return found


def _gathered(told: Iterable[Fact]) -> Facts:
    """The facts by key; what was looked for and not found is none of them."""
    found: dict[str, dict[str, str]] = {}
    for key, value in told:
        if value is not None or not key.startswith(OBSERVED):
            exact = orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
            found.setdefault(key, {})[exact] = _shown(key, value)
    return found


def _environment(run: Run) -> Iterator[Fact]:
    told = dict(run.environment)
    gpus = told.pop("gpus", None) or ()
    memory, python = told.pop("memory_bytes", None), told.pop("python", None)
    yield "environment.memory", None if memory is None else f"{round(memory / 2**30)} GiB"
    yield "environment.python", python and ".".join(python.split(".")[:2])
    yield from _flat(told, "environment.")
    yield "environment.gpus.count", len(gpus)
    for name in dict.fromkeys(name for gpu in gpus for name in gpu if name != "index"):
        of_each = sorted({str(gpu.get(name)) for gpu in gpus})
        yield f"environment.gpus.{name}", of_each


def _of_point(point: RunPoint, plan: Mapping[str, Any]) -> Iterator[Fact]:
    cell = point.cell
    yield from _deployment(cell.deployment)
    # As it is hashed: where traces lie says nothing, what they hold does.
    content = {} if is_stepwise(cell) else plan.get("identity")
    yield from _flat(content or cell.workload, "workload.")
    yield from _flat(cell.load, "load.")
    yield from _flat(cell.objectives, "objectives.")
    if "suite_seed" in plan:
        yield "suite_seed", plan["suite_seed"]
    if point.evidence is not None:
        yield from _evidence(point.evidence)
        asked = point.evidence.accuracy
        yield from _flat(asdict(asked) if asked else {}, ACCURACY)


def _deployment(stated: Mapping[str, Any]) -> Iterator[Fact]:
    """What was to run; settings that do the same wherever they stand have one key."""
    engine = dict(stated.get("engine", {}))
    model = engine.pop("model", None) or stated.get("model")
    yield "deployment.model", model
    yield "deployment.topology", stated.get("topology", {}).get("name")
    both = [{name: one.get(name) or () for name in REPEATED} for one in (engine, stated)]
    yield from _flags((*both[0]["flags"], *both[1]["flags"]), "deployment.flags.")
    yield from _flat(
        {**dict(both[0]["environment"]), **dict(both[1]["environment"])}, "deployment.environment."
    )
    own = {name: engine[name] for name in engine.keys() - REPEATED - {"provenance"}}
    yield from _flat(own, "deployment.engine.")
    left = stated.keys() - REPEATED - {"engine", "model", "topology"}
    yield from _flat({name: stated[name] for name in left}, "deployment.")


def _evidence(evidence: Evidence) -> Iterator[Fact]:
    """What was observed of a server; counts of replies as shares, since their number is chance."""
    observed = evidence.observed
    yield "provenance", observed.provenance
    yield "evidence.clock", evidence.clock
    if observed.gpus is not None:
        yield "evidence.gpus", observed.gpus
    features = dict(observed.features)
    replies = features.pop("replies", None)
    for name, value in features.items():
        key = f"evidence.features.{name.replace('replies ', 'replies.').replace(' ', '_')}"
        if name in CHOOSING and name not in observed.requested:
            yield f"{CHOSEN}{name}", value
        elif name.startswith("replies ") and isinstance(value, int):
            share = "all" if value == replies else "some" if value else "no"
            yield key, f"{share} replies"
        else:
            yield key, value
    for name, value in observed.effective.items():
        yield f"{EFFECTIVE}{name}", value
    configuration = dict(observed.configuration)
    command = configuration.pop("command", None)
    yield from _flat(configuration, "evidence.configuration.")
    if isinstance(command, str):
        yield from _flags(_words(command), "evidence.configuration.command.", _OF_A_START)


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        # A server told it, and not as a shell would take it.
        return command.split()


def _flat(settings: Mapping[str, Any], prefix: str) -> Iterator[Fact]:
    """Every setting with the path to it; one that holds settings is those."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _flags(
    words: Sequence[Any], prefix: str, left_out: Iterable[str] = frozenset()
) -> Iterator[Fact]:
    """The flags among a command's words, each with all that follows it; what comes before is not.

    A flag that is written with underscores is the one with hyphens.
    """
    found: dict[str, list[str]] = {}
    values: list[str] = []
    for word in map(str, words):
        if re.match(r"--?[A-Za-z]", word):
            name, given, value = word.partition("=")
            name = name.replace("_", "-") if name.startswith("--") else name
            values = found.setdefault(name, [])
            values += [value] if given else []
        else:
            values.append(word)
    for name in found.keys() - left_out:
        yield f"{prefix}{name}", found[name]


def _shown(key: str, value: Any) -> str:
    """The value in words, and never a secret."""
    if value is None:
        return "none"
    if isinstance(value, list | tuple):
        told = " ".join(map(str, value)) or ("set" if ".-" in key else "none")
    else:
        told = str(value).lower() if isinstance(value, bool) else str(value)
    if key.startswith(_VARIABLES):
        return open_variable(key.rpartition(".")[2], told)
    if secret(key) and not isinstance(value, str | list | tuple):
        return told
    return open_setting(key, told)
