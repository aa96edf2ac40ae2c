"""The JSON schema of suite files, for editors; `schema.json` beside it is what ships."""

from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from inspect import getdoc
from typing import Any

from pydantic import TypeAdapter

from harness.engine import Deployment
from results.objectives import Objectives
from suites import duration, experiment, rules, suite
from suites.field import annotations, is_scalar, required
from suites.grid import kinds
from suites.words import bare

Schema = dict[str, Any]

_DESCRIPTIONS = {
    "suite": "What the suite is called.",
    "seed": "Seeds the workloads, the arrivals and a shuffled order.",
    "repeats": "How many times every point runs; an experiment's own come before the suite's.",
    "order": "abba runs what is compared side by side, and turns it round every other repeat.",
    "budget": "Wall time for the whole run; points that would begin later are left for a next run.",
    "experiments": "One question each: a grid over engine, deployment, workload and load.",
    "gate": "By how much metrics may be worse than a baseline, for all experiments or for one.",
    "name": "What the experiment is called.",
    "topology": "How the model lies on GPUs: TP4, DEP2, TP2xPP3; prefill+decode: 4xDEP2+1xDEP32.",
    "replay": "SWA bounded replay: off, on without graphs for it, or on.",
    "pinned": "Whether a session stays on the rank where it began.",
    "flags": "Arguments for the engine's own command line.",
    "environment": "Variables for the engine's process. No secrets.",
    "objectives": "What a request must keep to count as goodput, in seconds.",
}


_SHAPE = r"(TP|PP|DP|DEP)[1-9]\d*(x(TP|PP|DP|DEP)[1-9]\d*)*"
_POOL = rf"([1-9]\d*x)?{_SHAPE}"
_TOPOLOGY = {"type": "string", "pattern": rf"^({_SHAPE}|{_POOL}\+{_POOL})$"}

_RULE = {"type": "string", "pattern": f"^{rules.PATTERN.pattern}$"}


def schema() -> Schema:
    """The schema of a whole suite file."""
    properties = {
        "suite": _value("suite", experiment.Name),
        **_fields(suite.Suite, suite.SETTINGS),
        "experiments": {"type": "array", "minItems": 1, "items": _experiment()},
        rules.KEY: _rules({"anyOf": [_RULE, _rules(_RULE)]}),
    }
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "A paceline suite",
        **_object(properties, ["suite", "experiments"]),
        "definitions": {
            "engine": _kinds(experiment.Engines),
            "workload": _kinds(experiment.Workloads),
            "load": _kinds(experiment.Loads),
        },
    }


def _experiment() -> Schema:
    axes = _fields(Deployment, ("replay", "pinned"))
    properties = {
        "name": _value("name", experiment.Name),
        "engine": _one_or_more({"$ref": "#/definitions/engine"}),
        "topology": _one_or_more(_TOPOLOGY),
        **{name: _one_or_more(value) for name, value in axes.items()},
        "workload": _one_or_more({"$ref": "#/definitions/workload"}),
        "load": _one_or_more({"$ref": "#/definitions/load"}),
        **_fields(Deployment, experiment.DETAILS),
        "objectives": _mapping(Objectives),
        "repeats": _value("repeats", experiment.Repeats),
    }
    return _object(properties, ["name", "engine", "topology", "workload", "load"])


def _object(properties: Schema, needed: Iterable[str]) -> Schema:
    described = {
        name: {"description": _DESCRIPTIONS[name], **value} if name in _DESCRIPTIONS else value
        for name, value in properties.items()
    }
    return {
        "type": "object",
        "properties": described,
        "required": list(needed),
        "additionalProperties": False,
    }


def _rules(rule: Schema) -> Schema:
    """A mapping from metrics, or from experiments, to rules."""
    return {"type": "object", "minProperties": 1, "additionalProperties": rule}


def _kinds(union: Any) -> Schema:
    """A mapping with one of the kinds."""
    return {"oneOf": [_kind(name, cls) for name, cls in kinds(union).items()]}


def _kind(name: str, cls: type) -> Schema:
    hints = annotations(cls)
    settings = {
        field: _one_or_more(value) if is_scalar(hints[field]) else value
        for field, value in _fields(cls, [field for field in hints if field != "kind"]).items()
    }
    properties = {"kind": {"const": name}, **settings}
    return {"description": getdoc(cls), **_object(properties, ["kind", *required(cls)])}


def _one_or_more(value: Schema) -> Schema:
    """A value, or a list of values that makes it an axis of the grid."""
    items = {key: part for key, part in value.items() if key not in {"default", "description"}}
    axis = {"type": "array", "items": items, "minItems": 1, "uniqueItems": True}
    return {**{k: value[k] for k in value if k not in items}, "anyOf": [items, axis]}


def _mapping(cls: type) -> Schema:
    return {"description": getdoc(cls), **_object(_fields(cls, annotations(cls)), required(cls))}


def _fields(cls: type, names: Iterable[str]) -> Schema:
    """The schema of each of these fields of a dataclass, with its default."""
    hints = annotations(cls)
    defaults = {field.name: field.default for field in fields(cls)}
    values = {name: _value(name, hints[name]) for name in names}
    for name, value in values.items():
        default = defaults[name]
        if isinstance(default, str | int | float):
            value["default"] = default
    return values


def _value(name: str, annotation: Any) -> Schema:
    if is_dataclass(bare(annotation)):
        return _mapping(bare(annotation))
    value: Schema = TypeAdapter(annotation).json_schema()
    if name in duration.FIELDS:
        return {"anyOf": [value, {"type": "string", "pattern": f"^{duration.PATTERN.pattern}$"}]}
    return value
