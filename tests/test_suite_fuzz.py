from contextlib import suppress

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from results.errors import InputError
from suites.override import apply
from suites.plan import plan
from suites.reading import read
from suites.suite import load

QUICK = settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

KEYS = st.sampled_from(
    [
        "suite", "seed", "repeats", "order", "budget", "experiments", "name", "engine", "topology",
        "replay", "pinned", "workload", "load", "objectives", "flags", "environment", "model",
        "kind", "prompt", "output", "cached", "requests", "context", "turns", "first", "fresh",
        "generated", "context_limit", "concurrency", "sessions", "duration", "grace", "rate",
        "cost", "noise", "slowdown", "draft_tokens", "acceptance_length", "ttft", "traces",
        "gate", "x",
    ]
)  # fmt: skip
WORDS = st.sampled_from(
    [
        "s", "on", "off", "abba", "shuffled", "sim", "single", "batch", "growing", "agentx",
        "closed", "open", "recorded", "TP4", "DEP2", "TP4xTP4", "10m", "8,16", "", ".", "true",
    ]
)  # fmt: skip
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-2, 12)
    | st.integers()
    | st.floats()
    | WORDS
    | st.text(max_size=5)
)
TREES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=20,
)

SINGLE = {"kind": "single", "prompt": 1, "output": 1}
GOOD = {
    "name": "a",
    "engine": {"kind": "sim"},
    "topology": "TP1",
    "workload": SINGLE,
    "load": {"kind": "closed", "sessions": 1},
}


@pytest.fixture
def check(tmp_path):
    path = tmp_path / "s.yaml"

    def read_and_plan(tree):
        path.write_text(yaml.safe_dump(tree, allow_unicode=False), "utf-8")
        with suppress(InputError):
            plan(load(str(path)))

    return read_and_plan


@QUICK
@given(TREES)
def test_any_tree_is_a_suite_or_an_input_error(check, tree):
    check(tree)


@QUICK
@given(st.dictionaries(st.sampled_from(sorted(GOOD)) | KEYS, TREES, max_size=3))
def test_any_experiment_is_one_or_an_input_error(check, changes):
    check({"suite": "s", "experiments": [GOOD | changes]})


@QUICK
@given(
    st.sampled_from(["engine", "workload", "load"]),
    st.sampled_from(["sim", "single", "batch", "growing", "closed", "open", "recorded"]),
    st.dictionaries(KEYS, SCALARS | st.lists(SCALARS, max_size=3), max_size=5),
)
def test_any_settings_are_taken_or_an_input_error(check, part, kind, changes):
    check({"suite": "s", "experiments": [GOOD | {part: GOOD[part] | {"kind": kind} | changes}]})


@QUICK
@given(st.text(st.sampled_from("ab01: -[]{}&*!<>|%@'\"\\#?,\n\t\r\0\ufeffé~.eU"), max_size=40))
def test_any_text_is_yaml_or_an_input_error(text):
    with suppress(InputError):
        read(text, "s.yaml")


@QUICK
@given(st.lists(KEYS | WORDS | st.text(max_size=3), max_size=4), st.text(max_size=6))
def test_any_override_is_applied_or_an_input_error(keys, value):
    tree = {"suite": "s", "experiments": [{**GOOD, "load": [1, {"a": 2}]}]}
    with suppress(InputError):
        apply(tree, f"{'.'.join(keys)}={value}")
