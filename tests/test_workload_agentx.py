"""Golden values are computed with agentx-harness 1.0.12 (facts/agentx.md, section 11)."""

from itertools import islice
from pathlib import Path
from typing import Any

import orjson
import pytest

from results.errors import InputError
from workloads.agentx import AgentX
from workloads.prompt import MARKER_TOKENS
from workloads.session import Key, Session

EXAMPLE = """
{"id":"synth-0001","models":["m-large","m-small"],"block_size":64,"hash_id_scope":"local",
 "tool_tokens":0,"system_tokens":0,"requests":[
 {"t":0.0,"type":"s","model":"m-large","in":256,"out":90,"hash_ids":[0,1,2,3],"api_time":3.1},
 {"t":9.0,"type":"s","model":"m-large","in":448,"out":40,"hash_ids":[0,1,2,3,4,5,6],
  "api_time":2.0,"ttft":0.7,"think_time":5.9},
 {"t":11.5,"type":"subagent","agent_id":"subagent_001_ab12cd34","subagent_type":"Subagent",
  "duration_ms":8000,"total_tokens":700,"tool_use_count":null,"status":"completed",
  "models":["m-small"],"requests":[
   {"t":11.5,"type":"n","model":"m-small","in":128,"out":64,"hash_ids":[7,8],"api_time":2.5},
   {"t":15.0,"type":"n","model":"m-small","in":256,"out":128,"hash_ids":[7,8,9,10],
    "api_time":4.5,"think_time":1.0}]},
 {"t":21.0,"type":"s","model":"m-large","in":640,"out":300,
  "hash_ids":[0,1,2,3,4,5,6,11,12,13],"api_time":7.0,"ttft":0.8,"think_time":1.5}]}
"""
SUB = "synth-0001::sa:subagent_001_ab12cd34"


@pytest.fixture
def example(tmp_path: Path) -> str:
    path = tmp_path / "example.json"
    path.write_text(EXAMPLE)
    return str(path)


def one(path: str, seed: int = 42) -> Session:
    return next(AgentX(traces=path).sessions(seed))


def test_golden_streams_delays_spawn_and_join(example: str) -> None:
    turns = {turn.key: turn for turn in one(example).turns}
    assert list(turns) == [
        ("synth-0001", 0),
        ("synth-0001", 1),
        (SUB, 0),
        (SUB, 1),
        ("synth-0001", 2),
    ]
    main = [turns[Key("synth-0001", number)] for number in range(3)]
    first, second = turns[Key(SUB, 0)], turns[Key(SUB, 1)]
    assert [turn.delay for turn in main] == pytest.approx([0, 5.9, 10.0])
    assert [turn.after for turn in main] == [(), (), (second.key,)]
    assert (first.previous, second.previous) == (main[1].key, first.key)
    assert [first.delay, second.delay] == pytest.approx([0.0, 1.0])
    assert [turn.recorded for turn in turns.values()] == [0.0, 9.0, 11.5, 15.0, 21.0]
    assert [turn.depth for turn in turns.values()] == [0, 0, 1, 1, 0]
    assert [turn.output for turn in turns.values()] == [90, 40, 64, 128, 300]


def test_delays_are_clamped(example: str) -> None:
    session = next(AgentX(traces=example, max_delay=2.0).sessions(1))
    assert [turn.delay for turn in session.turns] == pytest.approx([0, 2, 0.0, 1, 2])


def test_equal_seeds_make_equal_sessions_that_wrap_around() -> None:
    workload = AgentX(generated=3, context_limit=8192)

    def hashes(seed: int) -> list[list[str]]:
        sessions = islice(workload.sessions(seed), 6)
        return [[turn.prompt.hash for turn in session.turns] for session in sessions]

    assert hashes(1) == hashes(1)
    assert hashes(1)[:3] == hashes(1)[3:]
    assert hashes(1) != hashes(2)
    names = [session.trace for session in islice(workload.sessions(1), 4)]
    assert names == ["synthetic-0000", "synthetic-0001", "synthetic-0002", "synthetic-0000"]


def check_order(session: Session) -> None:
    ended: set[Key] = set()
    for turn in session.turns:
        assert turn.key not in ended
        assert {*turn.after, *([turn.previous] if turn.previous else [])} <= ended
        ended.add(turn.key)


def test_turns_stand_after_all_they_wait_for() -> None:
    workload = AgentX(generated=12, context_limit=65_536)
    sessions = list(islice(workload.sessions(1), 12))
    assert any(turn.after for session in sessions for turn in session.turns)
    for session in sessions:
        check_order(session)


def test_traces_are_filtered_before_the_first_ones_are_kept(recorded: Path) -> None:
    workload = AgentX(traces=str(recorded), context_limit=100_000, first=3)
    names = [session.trace for session in islice(workload.sessions(1), 4)]
    assert names == ["trace_0026", "trace_0277", "trace_0283", "trace_0026"]


def test_how_many_traces_fit_is_part_of_what_a_workload_is(example: str) -> None:
    fits = {
        limit: AgentX(traces=example, context_limit=limit).identity().get("fitting")
        for limit in (900, 1_000_000, None)
    }
    assert fits == {900: [0, 1], 1_000_000: [1, 1], None: None}
    assert "fitting" not in AgentX(generated=2, context_limit=8192).identity()


def test_traces_that_cannot_be_used_are_found_early(example: str, tmp_path: Path) -> None:
    AgentX(traces=example).check()
    with pytest.raises(InputError, match="no trace fits context_limit 900"):
        AgentX(traces=example, context_limit=900).check()
    with pytest.raises(InputError, match=r"none\.json: cannot be read"):
        AgentX(traces=str(tmp_path / "none.json")).check()


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"traces": "a.json", "generated": 3}, "drop them"),
        ({"generated": 3, "first": 4}, "first 4 is more than generated 3"),
        ({"context_limit": 1000}, "say at least 4096"),
    ],
)
def test_fields_that_contradict_one_another_are_refused(
    fields: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        AgentX(**fields)


def test_warm_up_sends_the_quantiles_of_the_prompt_lengths(example: str) -> None:
    workload = AgentX(traces=example)
    warm = list(workload.warmup(1))
    assert [session.trace for session in warm] == [f"warm-up-{n}" for n in range(4)]
    lengths = [length + MARKER_TOKENS for length in (128, 256, 448, 640)]
    assert [session.turns[0].prompt.length for session in warm] == lengths
    assert all(session.turns[0].output == 8 for session in warm)


def test_a_profile_is_part_of_what_a_workload_is() -> None:
    plain, profiled = AgentX(generated=2), AgentX(generated=2, profile="ci-synth")
    assert profiled.label == "agentx generated ci-synth"
    assert plain.label == "agentx generated"
    assert profiled.rules is not None
    assert profiled.identity()["profile_hash"] == profiled.rules.hash
    assert plain.identity() != profiled.identity()
    other = AgentX(generated=2, profile="agentx-v1").identity()
    assert other["profile_hash"] != profiled.identity()["profile_hash"]
    with pytest.raises(ValueError, match="max_delay changes what the profile says"):
        AgentX(generated=2, profile="ci-synth", max_delay=3.0)


def test_traces_that_are_not_the_profiles_are_told(example: str) -> None:
    def told(**fields: Any) -> list[str]:
        return list(AgentX(**fields).departures())

    assert told(generated=2) == []
    assert told(generated=2, profile="ci-synth") == [
        "ci-synth is for a look, and its results are never published"
    ]
    assert told(generated=2, profile="agentx-v1") == [
        "sessions are generated, and agentx-v1 replays recorded ones",
        "traces: 2, not the 393 of agentx-v1",
    ]
    assert told(traces=example, context_limit=1_000_000, profile="aiperf-mvp-0.13") == []


def test_what_whole_traces_send_is_told_in_quantiles(example: str) -> None:
    intended = AgentX(traces=example, profile="ci-synth").intended()
    assert intended["input"]["p50"] == 256
    assert intended["output"]["p50"] == 90
    assert intended["turns"] == {"p10": 5, "p50": 5, "p90": 5, "p99": 5}


def test_replays_come_round_and_are_made_once(example: str) -> None:
    one, other = islice(AgentX(traces=example, profile="ci-synth").replays(42), 2)
    assert one is other
    assert [stream.id for stream in one.plan.streams] == ["synth-0001", SUB]
    first = one.prompts[Key("synth-0001", 0)]
    assert (first.marker, int(first.seeds[1])) == (0, 15164217037664222151)
    assert first.length == 256 + MARKER_TOKENS


def test_a_sub_agent_that_began_while_its_turn_ran_counts_from_its_sending(tmp_path: Path) -> None:
    record = orjson.loads(EXAMPLE)
    record["requests"][2] |= {"t": 10.0, "duration_ms": 9500}
    path = tmp_path / "early.json"
    path.write_bytes(orjson.dumps(record))
    turns = {turn.key: turn for turn in one(str(path)).turns}
    begun = turns[Key(SUB, 0)]
    assert (begun.previous, begun.early, begun.delay) == (Key("synth-0001", 1), True, 2.5)
