import json
from pathlib import Path

import jsonschema
import pytest

from suites import reading
from suites.schema import schema
from suites.suite import shipped

SCHEMA = schema()

EXPERIMENT = """
name: a
engine: [{kind: sim}, {kind: sim, name: b, noise: [0, 0.1], cost: {host: 1}}]
topology: [TP4, DEP2xPP3]
replay: on
pinned: [true, false]
workload: [{kind: single, prompt: [1, 2], output: 1}, {kind: agentx}]
load: {kind: closed, concurrency: [1, 2], duration: [2m, 60], sessions: null}
objectives: {ttft: 2, tpot: 50ms}
flags: [-x]
environment: {A: b}
"""


def suite_of(experiment):
    return {"suite": "s", "experiments": [experiment]}


def errors_of(document):
    return list(jsonschema.Draft7Validator(SCHEMA).iter_errors(document))


def written(text):
    value, problems = reading.read(text, "s.yaml")
    assert problems == []
    return value


def test_the_file_that_ships_is_the_schema_of_the_code():
    path = Path(reading.__file__).parent / "schema.json"
    fresh = "paceline schema | python -m json.tool > suites/schema.json"
    assert json.loads(path.read_text()) == SCHEMA, f"write it anew: {fresh}"


def test_the_schema_is_one():
    jsonschema.Draft7Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("name", sorted(shipped()))
def test_a_shipped_suite_is_valid(name):
    assert errors_of(written(shipped()[name].read_text())) == []


def test_every_axis_may_be_a_list():
    assert errors_of(suite_of(written(EXPERIMENT))) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", "A b"),
        ("engine", {"kind": "none"}),
        ("engine", {"name": "sim"}),
        ("topology", "TQ4"),
        ("topology", []),
        ("replay", True),
        ("pinned", "yes"),
        ("workload", {"kind": "single", "prompt": 1}),
        ("workload", {"kind": "single", "prompt": "8", "output": 1}),
        ("workload", {"kind": "single", "prompt": [0], "output": 1}),
        ("load", {"kind": "closed", "concurency": 1}),
        ("load", {"kind": "closed", "duration": "10 min"}),
        ("load", {"kind": "closed", "concurrency": [1, 1]}),
        ("objectives", {"tttf": 1}),
        ("flags", "-x"),
        ("environment", {"A": 1}),
        ("wrokload", 1),
    ],
)
def test_a_broken_suite_is_not_valid(key, value):
    assert errors_of(suite_of({**written(EXPERIMENT), key: value}))


@pytest.mark.parametrize("key", ["name", "engine", "topology", "workload", "load"])
def test_a_suite_that_lacks_something_is_not_valid(key):
    experiment = written(EXPERIMENT)
    del experiment[key]
    assert errors_of(suite_of(experiment))
    assert errors_of({"suite": "s"})
    assert errors_of({**suite_of(written(EXPERIMENT)), "sede": 1})


def test_editors_know_rules():
    suite = suite_of(written(EXPERIMENT))
    good = {"ttft": "no worse than 5 %", "a": {"tpot": "no worse than 2x noise"}}
    assert not errors_of({**suite, "gate": good})
    for bad in ({}, {"ttft": 5}, {"ttft": "5 %"}, "no worse than 5 %"):
        assert errors_of({**suite, "gate": bad})


def test_every_kind_is_described():
    for name in ("engine", "workload", "load"):
        for kind in SCHEMA["definitions"][name]["oneOf"]:
            assert kind["description"]
            assert kind["properties"]["kind"]["const"]
