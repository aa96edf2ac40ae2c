"""What a page and its JSON say of what a replay delivered, beside what was meant."""

import re

import orjson
import pytest

from reports.delivery import sheet
from results.delivery import delivery
from results.metrics import summarise
from results.run import read
from tests.gate_runs import SUITE, made, paceline, said

REPLAY = """
suite: tiny
seed: 5
repeats: 2
experiments:
  - name: lanes
    engine: {kind: sim, noise: 0.02}
    topology: TP2
    workload: {kind: agentx, profile: ci-synth, generated: 4, context_limit: 8192}
    load: {kind: closed, concurrency: 2, duration: 20}
"""


@pytest.fixture(scope="module")
def replayed(tmp_path_factory):
    return made(tmp_path_factory.mktemp("replayed"), text=REPLAY)


def test_intended_and_delivered_lengths_stand_one_above_the_other(replayed):
    points = read(replayed).points
    table = sheet([(summarise(point), delivery(point)) for point in points])
    whole, first, second = (
        dict(zip([column.name for column in table.columns], row, strict=True)) for row in table.rows
    )
    assert whole["arm"] == "ci-synth: whole traces"
    assert whole["traces sent from"] == "4"
    assert (first["load"], second["load"]) == ("closed 2, repeat 0", "closed 2, repeat 1")
    assert first["blocks off the ceiling"] == "0.00, most 0.00"
    assert first["sent late p99"] == "0.0 ms"
    told = delivery(points[0])
    assert first["prompt p50"] == f"{told.delivered['input']['p50']:,.0f}"
    assert whole["prompt p50"] == f"{told.intended['input']['p50']:,.0f}"
    assert table.title.endswith("(SIMULATED)")


def test_repeats_of_a_profile_without_a_seed_send_other_requests(replayed):
    one, two = (
        [row["prompt_hash"] for row in point.rows().to_pylist()] for point in read(replayed).points
    )
    assert one != two


def test_the_page_and_its_json_hold_it(replayed, tmp_path):
    page = tmp_path / "page.html"
    result = paceline("report", replayed, "-o", page, "--json")
    assert re.search(r"<caption[^>]*>Delivered beside whole traces", page.read_text())
    told = said(result)["replays"]
    assert [one["profile"] for one in told] == ["ci-synth", "ci-synth"]
    evidence = orjson.loads(next(replayed.glob("*-r0-*/evidence.json")).read_bytes())
    assert told[0]["hash"] == evidence["protocol"]["hash"]
    assert told[0]["reach"]["most"] == 0
    assert set(told[0]["delivered"]) == set(told[0]["intended"]) == {"input", "output", "turns"}
    assert told[0]["traces"][1] == 4


def test_a_run_without_a_profile_has_no_such_table(tmp_path):
    page = tmp_path / "page.html"
    result = paceline("report", made(tmp_path, "repeats=1", text=SUITE), "-o", page, "--json")
    assert "Delivered beside" not in page.read_text()
    assert said(result)["replays"] == []
