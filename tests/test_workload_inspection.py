import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from results.errors import InputError
from tests.test_workload_weka import agent, trace, written
from tests.test_workload_weka import request as timeless
from workloads.export import write
from workloads.inspection import check
from workloads.synthesis import generate
from workloads.weka import read


def request(**changes: Any) -> dict[str, Any]:
    return timeless(**{"api_time": 1.0} | changes)


def told(path: str) -> list[str]:
    return [problem.sentence.removeprefix(f"{path}: ") for problem in check(path)]


def test_every_fatal_problem_is_listed_and_not_only_the_first(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        trace(request(out=-1, **{"in": "9"}), request(t=None), 7, id=""),
        trace(request(), id="good"),
        [],
        trace(request(), agent(request(type="z", t=10.0), {"t": 10.0}), block_size=16, id="b"),
    )
    # The second request of the sub-agent lacks everything.
    fatal = [problem.sentence for problem in check(path) if problem.fatal]
    assert [sentence.removeprefix(f"{path}: ").split(": expected")[0] for sentence in fatal] == [
        "line 1: requests[2]",
        "line 1: id",
        "line 1: requests[0].in",
        "line 1: requests[0].out",
        "line 1: requests[1].t",
        "line 3",
        "line 4: block_size",
        "line 4: requests[1].requests[1].hash_ids",
        "line 4: requests[1].requests[0].type",
        "line 4: requests[1].requests[1].in",
        "line 4: requests[1].requests[1].out",
    ]


def test_what_is_made_up_for_is_a_note_told_once_a_file(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        trace(
            request(mood=1),
            request(mood=2, t=5.0, api_time=None),
            request(t=4.0, **{"in": 900}),
            request(t=6.0, hash_ids=[0, 1, 2]),
            agent(request(t=0.5)),
        ),
    )
    notes = check(path)
    assert not any(note.fatal for note in notes)
    assert {note.field: note.times for note in notes if note.field != "t"} == {
        "mood": 2,
        "api_time": 1,
        "hash_ids": 1,
    }
    sentences = "\n".join(note.sentence for note in notes)
    assert f"{path}: line 1: requests[0].mood: is not in the format, and is kept aside" in sentences
    assert "requests[2].t: is earlier than that of the request before" in sentences
    assert "requests[2].hash_ids: cover less than the whole blocks of `in`" in sentences
    assert "requests[3].hash_ids: cover more than the whole blocks of `in`" in sentences
    assert "requests[4].requests[0].t: counts from the sub-agent's start" in sentences


def test_an_agent_that_nothing_spawns_and_ids_at_two_places_are_notes(tmp_path: Path) -> None:
    path = written(
        tmp_path, trace(agent(request(t=10.0, hash_ids=[1, 0])), request(hash_ids=[0, 1]))
    )
    assert [sentence.split(": ", 1)[1][:40] for sentence in told(path)] == [
        "requests[0].t: stands before any main re"[:40],
        "hash_ids: one id stands at two places, s"[:40],
    ]


def test_an_id_twice_in_one_list_and_ids_far_apart_are_seen(tmp_path: Path) -> None:
    twice = trace(request(hash_ids=[2**60, 2**60]))
    assert [problem.field for problem in check(written(tmp_path, twice))] == ["hash_ids"]
    once = trace(request(hash_ids=[-5, 2**60]), request(t=3.0, hash_ids=[-5, 7]))
    assert check(written(tmp_path, once)) == []


def test_files_that_cannot_be_read_are_problems_and_the_others_are_checked(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{")
    (tmp_path / "b.jsonl").write_text("\n".join(["nope", json.dumps(trace(request()))]))
    packed = gzip.compress(
        b"\n".join(json.dumps(trace(request(out=-1), id=n)).encode() for n in "cd")
    )
    (tmp_path / "c.jsonl.gz").write_bytes(packed[:-9])
    found = [problem.sentence.removeprefix(f"{tmp_path}/") for problem in check(str(tmp_path))]
    assert [sentence.split(": ")[:2] for sentence in found] == [
        ["a.json", "is not one JSON value"],
        ["b.jsonl", "line 1"],
        ["c.jsonl.gz", "line 1"],
        ["c.jsonl.gz", "cannot be read"],
    ]
    assert all(problem.fatal for problem in check(str(tmp_path)))


def test_a_place_without_traces_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n")
    assert told(str(tmp_path / "empty.jsonl")) == ["holds no trace"]
    assert "cannot be read" in told(str(tmp_path / "none.json"))[0]


def test_the_same_id_twice_names_both_places(tmp_path: Path) -> None:
    path = written(tmp_path, trace(request()), trace(request()))
    assert told(path) == [f'line 2: id: "x" is also in {path}: line 1; give each its own']


def test_generated_traces_have_no_problem(tmp_path: Path) -> None:
    path = tmp_path / "made.jsonl.gz"
    write(generate(8, 5, 16_384), path)
    assert check(str(path)) == []


@pytest.mark.parametrize("record", [trace(request(out=-1)), trace(request(), id=4), trace(3), {}])
def test_reading_refuses_what_is_fatal_with_the_first_sentence(tmp_path: Path, record: Any) -> None:
    path = written(tmp_path, record)
    with pytest.raises(InputError) as refusal:
        read(path)
    assert str(refusal.value) == check(path)[0].sentence


def test_recorded_traces_can_all_be_used(recorded: Path) -> None:
    found = check(str(recorded))
    assert found
    assert not any(problem.fatal for problem in found)
    assert {problem.field for problem in found} == {"t", "api_time"}
