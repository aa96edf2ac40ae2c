from collections.abc import Mapping

import orjson
import pytest

from reports.traces import (
    DISTRIBUTIONS,
    TOTALS,
    portrait_tables,
    portrait_values,
    problem_lines,
)
from results.figure import Figure
from workloads.entry import Problem
from workloads.portrait import LONG_GAPS, QUANTILES, UNITS, describe, figures
from workloads.synthesis import generate
from workloads.targets import TARGETS


@pytest.fixture(scope="module")
def found() -> Mapping[str, Figure]:
    return figures(describe(generate(24, 1)))


def row(table: str, name: str) -> list[str]:
    """The line of a quantity and the one under it, in words."""
    lines = table.splitlines()
    place = next(number for number, line in enumerate(lines) if line.strip().startswith(name))
    return [" ".join(line.split()) for line in lines[place : place + 2]]


def test_each_quantity_stands_beside_its_target_with_its_n(found: Mapping[str, Figure]) -> None:
    table = portrait_tables(found, 120)
    first, second = row(table, "main requests a session")
    assert first.startswith("main requests a session 24 ")
    assert "n too small" in first
    assert second == "(65) (330) (144)"
    assert row(table, "sessions with sub-agents")[0] == "sessions with sub-agents 45.8 % 44.5 % 24"
    assert row(table, "gap between main requests")[1] == "(4.90 s) (132 s) (3,257 s) (395 s)"
    assert row(table, "cache ceiling, blocks of 256")[0].startswith(
        "cache ceiling, blocks of 256 9"
    )
    assert "as published: the cc-traces-weka-062126 corpus of 393 sessions" in table


def test_what_is_far_from_its_target_is_said(found: Mapping[str, Figure]) -> None:
    shifted = {
        **found,
        "main_input.p50": Figure(value=127_040.0, unit="tokens", n=9),
        "requests": Figure(value=TARGETS["requests"].value * 3, unit="count", n=9),
    }
    told = " ".join(portrait_tables(shifted, 120).split("further than", 1)[1].split())
    assert told.startswith(
        "10 % from the published corpus, 20 % for p99: requests a session +200 %"
    )
    assert "main input p50 −50 %" in told
    met = {
        key: Figure(value=TARGETS[key].value, unit=figure.unit, n=9) if key in TARGETS else figure
        for key, figure in found.items()
    }
    assert portrait_tables(met, 120).endswith("20 % for p99: none")


def test_the_values_are_json_with_targets_where_there_are_some(found: Mapping[str, Figure]) -> None:
    values = orjson.loads(orjson.dumps(portrait_values(found)))
    assert values.keys() == found.keys()
    assert values["main_turns.p50"] == {
        "value": found["main_turns.p50"].value,
        "unit": "count",
        "n": 24,
        "target": 65.0,
        "within": 0.1,
        "deviation": pytest.approx(0, abs=0.05),
        "met": True,
    }
    assert values["main_turns.p90"]["value"] is None
    assert values["main_turns.p90"]["reason"].startswith("n too small")
    assert values["ceiling_16"].keys() == {"value", "unit", "n"}


def test_every_figure_has_a_name() -> None:
    statistics = {f"{name}.{part}" for name in DISTRIBUTIONS for part in (*QUANTILES, "mean")}
    assert set(DISTRIBUTIONS) == set(UNITS)
    assert set(LONG_GAPS) <= set(TOTALS)
    assert statistics | set(TOTALS) == set(figures(describe(generate(1, 1, 4096))))


def test_fatal_problems_come_first_and_notes_say_how_often() -> None:
    note = Problem(place="a.jsonl: line 1: requests[0]", field="mood", wrong="is odd", fatal=False)
    often = Problem(place="a.jsonl", field="x", wrong="is odd", fatal=False, times=1200)
    fatal = Problem(place="b.json", field="", wrong="is not one JSON value", fatal=True)
    assert problem_lines([note, often, fatal]).splitlines() == [
        "fatal: b.json: is not one JSON value",
        "note: a.jsonl: line 1: requests[0].mood: is odd",
        "note: a.jsonl: x: is odd (1,200 times in this file)",
        "1 fatal problem, 2 notes: mend these fields, or take the records out, before a run",
    ]
    assert problem_lines([]) == "0 fatal problems, 0 notes"
