"""Streams of a trace: anchors, delays, and who waits for whom. Golden values are the client's."""

from collections.abc import Sequence
from dataclasses import replace
from graphlib import TopologicalSorter
from itertools import pairwise

import pytest

from tests.recordings import SUB, call, example, main
from workloads.edges import Interval, edges
from workloads.plan import Plan, plan
from workloads.profile import AGENTX_V1
from workloads.session import Key
from workloads.weka import Agent, Call, Trace


def agent(name: str, place: int, end: float, *calls: Call, preamble: int = 0) -> Agent:
    return Agent(id=name, place=place, end=end, preamble=preamble, calls=calls)


def planned(calls: Sequence[Call], *agents: Agent, preamble: int = 0) -> Plan:
    trace = Trace(id="t", preamble=preamble, calls=tuple(calls), agents=agents)
    return plan(trace, AGENTX_V1)


def test_golden_streams_anchors_and_delays() -> None:
    made = plan(example(), AGENTX_V1)
    root, sub = made.streams
    assert [(stream.id, stream.kind, stream.depth) for stream in made.streams] == [
        ("synth-0001", "main", 0),
        (SUB, "sub-agent", 1),
    ]
    assert [step.delay for step in root.steps] == pytest.approx([0, 5.9, 10.0])
    assert [step.delay for step in sub.steps] == pytest.approx([0, 1.0])
    assert [step.spawns for step in root.steps] == [(), (SUB,), ()]
    assert [step.joins for step in root.steps] == [(), (), (SUB,)]
    assert (sub.spawn, sub.early, sub.offset) == (Key("synth-0001", 1), False, 0.0)
    assert all(not step.after for step in made.steps())
    assert made.models == ("m-large", "m-small")
    assert [made.model(step, ["a", "b"]) for step in made.steps()] == ["a"] * 3 + ["b"] * 2
    assert [made.model(step, ["a"]) for step in made.steps()] == ["a"] * 5


def test_golden_edges_of_one_scope() -> None:
    keys = {step.key: step.call for step in plan(example(), AGENTX_V1).steps()}
    found = edges([Interval(one.end, one.start, key) for key, one in keys.items()])
    assert found == {
        Key("synth-0001", 0): (),
        Key("synth-0001", 1): (),
        Key("synth-0001", 2): (Key(SUB, 1),),
        Key(SUB, 0): (Key("synth-0001", 1),),
        Key(SUB, 1): (Key("synth-0001", 1),),
    }


def test_a_sub_agent_before_every_main_call_is_dropped() -> None:
    made = planned(main(5, 9), agent("a", 0, 4, call(1, [9])))
    assert [stream.id for stream in made.streams] == ["t"]


def test_each_sub_agent_joins_the_first_later_turn_at_or_after_its_end() -> None:
    made = planned(
        main(0, 6, 20),
        *(agent(name, 1, end, call(1, [place])) for place, (name, end) in enumerate(ENDS, 90)),
    )
    assert [(b.spawn, b.join, [s[-1] for s in b.streams]) for b in made.branches] == [
        (0, 1, ["a", "b"]),
        (0, 2, ["c", "d"]),
        (0, None, ["e"]),
    ]
    assert [step.joins for step in made.main.steps] == [
        (),
        ("t::sa:a", "t::sa:b"),
        ("t::sa:c", "t::sa:d"),
    ]


ENDS = [("a", 5.0), ("b", 6.0 + 5e-7), ("c", 6.1), ("d", 20.0), ("e", 20.1)]


def test_a_turn_that_began_before_the_sub_agent_does_not_join_it_though_it_ended_later() -> None:
    made = planned(main(0, 6, 20), agent("a", 2, 5.0, call(1, [90])))
    assert [(branch.spawn, branch.join) for branch in made.branches] == [(1, 2)]


def test_agents_in_a_flat_list_are_spawned_and_joined_like_tagged_ones() -> None:
    calls = [*main(0, 10, 20)]
    calls[1:1] = [call(2, [90] * 300, 3.0)]
    made = planned(calls)
    assert [stream.id for stream in made.streams] == ["t", "t::aux:000"]
    assert [(branch.spawn, branch.join, branch.start) for branch in made.branches] == [(0, 1, 2.0)]
    assert [step.source.outer for step in made.main.steps] == [0, 2, 3]


def test_a_flat_agent_before_the_main_stream_is_spawned_by_its_first_turn() -> None:
    # In the file it stands first, yet it started last.
    made = planned([call(30, [90]), *main(0, 10)])
    assert [(branch.spawn, branch.join) for branch in made.branches] == [(0, None)]


def test_streams_are_named_by_kind_and_place() -> None:
    flat = [call(2, [1, 2, 50 + n], 9.0) for n in range(3)]
    flat = [replace(one, input=20_000, output=9000) for one in flat]
    alone = replace(call(30, [80], 9.0), input=20_000, output=9000)
    calls = [*main(0), call(1, [1, 2, 3]), *flat, alone, call(40, [1, 2, 3, 4])]
    inner = (call(2, [70], 5.0), call(3, [71], 5.0), call(9, [70, 72]))
    made = planned(calls, agent("a", 1, 12.0, *inner))
    assert [(stream.id, stream.kind, stream.number) for stream in made.streams] == [
        ("t", "main", 0),
        ("t::sa:a", "sub-agent", 0),
        ("t::sa:a:aux:000", "aside", 1),
        ("t::wg:000_000", "worker", 0),
        ("t::wg:000_001", "worker", 0),
        ("t::wg:000_002", "worker", 0),
        ("t::fa:003", "flat agent", 0),
    ]
    assert {stream.id: stream.scope for stream in made.streams if "sa" in stream.id} == {
        "t::sa:a": "t::sa:a",
        "t::sa:a:aux:000": "t::sa:a",
    }
    assert made.stream("t::sa:a").steps[1].source == (1, 2)


def test_only_a_stream_that_begins_with_the_declared_blocks_has_a_system_message() -> None:
    calls = [*main(0, 5), call(2, [1, 90], 9.0), call(2, [91, 92], 9.0)]
    calls[0] = call(0, [1, 2])
    calls[1] = call(5, [1, 2, 3])
    preambles = {stream.id: stream.preamble for stream in planned(calls, preamble=64).streams}
    assert preambles == {"t": 64, "t::aux:000": 64, "t::aux:001": 0}


def test_a_delay_is_the_idle_time_between_calls_and_never_negative() -> None:
    made = planned([call(0, []), call(0.5, []), call(3, [])])
    assert [step.delay for step in made.main.steps] == [0.0, 0.0, 1.5]


def test_a_stream_spawned_while_its_turn_ran_begins_after_that_turn_was_sent() -> None:
    late = planned(main(0, 9), agent("a", 1, 5.0, call(4, [90], 9.0), call(6, [90, 91])))
    early = planned(main(0, 9, took=4.5), agent("a", 1, 5.0, call(4, [90])))
    assert [(stream.early, stream.offset) for stream in late.streams[1:]] == [
        (False, 0.0),
        (False, 2.0),
    ]
    assert (early.streams[1].early, early.streams[1].offset) == (True, 4.0)
    # To the recording's last bit, a spawn at the very end is not while it ran.
    assert not planned(main(0, 9, took=4), agent("a", 1, 5.0, call(4, [90]))).streams[1].early


def told(*spans: tuple[str, float, float]) -> dict[str, str]:
    """Edges between turns of named streams that ran then."""
    turns: dict[str, int] = {}
    intervals = []
    for stream, start, end in spans:
        turn = turns[stream] = turns.get(stream, -1) + 1
        intervals.append(Interval(end, start, Key(stream, turn)))
    found = edges(intervals)
    return {
        f"{key.stream}{key.turn}": " ".join(f"{one.stream}{one.turn}" for one in before)
        for key, before in found.items()
        if before
    }


def test_a_turn_waits_for_the_last_one_of_each_other_stream_that_had_ended() -> None:
    assert told(("a", 0, 1), ("a", 2, 3), ("b", 4, 5)) == {"b0": "a1"}
    assert told(("a", 0, 1), ("b", 0, 2), ("c", 3, 4)) == {"c0": "a0 b0"}


def test_touching_is_ordered_and_overlap_and_equal_starts_are_not() -> None:
    assert told(("a", 0, 1), ("b", 1, 2)) == {"b0": "a0"}
    assert told(("a", 0, 1.1), ("b", 1, 2)) == {}
    assert told(("a", 1, 1), ("b", 1, 2)) == {}
    assert told(("a", 1, 1), ("b", 1, 1)) == {}


def test_what_another_predecessor_waited_for_is_left_out() -> None:
    assert told(("a", 0, 1), ("b", 2, 3), ("c", 4, 5)) == {"b0": "a0", "c0": "b0"}
    assert told(("a", 0, 2), ("b", 2, 3), ("c", 3, 5)) == {"b0": "a0", "c0": "b0"}
    assert told(("a", 0, 2.5), ("b", 2, 3), ("c", 3, 5)) == {"c0": "a0 b0"}


def test_of_one_stream_the_latest_end_counts_then_the_latest_start() -> None:
    assert told(("a", 0, 3), ("a", 1, 2), ("b", 4, 5)) == {"b0": "a0"}
    assert told(("a", 0, 3), ("a", 1, 3), ("b", 4, 5)) == {"b0": "a1"}
    # The call at 3 had no width and began with b0, so the one before it counts.
    assert told(("a", 0, 3), ("a", 3, 3), ("b", 3, 5)) == {"b0": "a0"}


def test_a_recording_out_of_order_never_makes_steps_wait_for_one_another() -> None:
    # A call without hash ids stands before the compaction that started before it, and after the
    # agent that started after that compaction.
    calls = [call(0, [1, 2, 3]), call(20, [1, 9]), call(30, [90]), call(50, [])]
    made = planned(calls)
    assert [step.call.start for step in made.main.steps] == [0, 50, 20]
    waits = {step.key: {*step.after} for step in made.steps()}
    for stream in made.streams:
        for one, other in pairwise([stream.spawn, *(step.key for step in stream.steps)]):
            if one is not None and other is not None:
                waits[other].add(one)
    assert len([*TopologicalSorter(waits).static_order()]) == len(calls)
    # The turn after the agent in the file comes before the one that spawns it.
    assert [(branch.spawn, branch.join) for branch in made.branches] == [(2, None)]
