"""When lanes send what, every moment worked out by hand.

Recorded calls took a second each, and the client takes a second for each token asked for, which is
one where nothing else is said.
"""

from pathlib import Path

import pytest

from results.errors import EngineError
from results.record import RequestRecord
from tests.recordings import call, main
from tests.replayed import PLAIN, Patient, agent, play, trace
from workloads.plan import plan
from workloads.profile import AGENTX_V1
from workloads.prompt import MARKER_TOKENS
from workloads.session import Key
from workloads.weka import read

SUB = "t::sa:a"


def test_a_turn_follows_its_delay_after_the_end_of_the_one_before() -> None:
    # Recorded: 0-1, 5-6, 20-21, so 4 s and 14 s of delay.
    found = play(trace(main(0, 5, 20)), duration=30)
    assert list(found.lanes())[:3] == [(0, "t", 0, 0), (0, "t", 1, 5), (0, "t", 2, 20)]
    slow = play(trace(main(0, 5, 20, output=3)), duration=23)
    assert slow.sent() == {("t", 0): 0, ("t", 1): 7}


def test_a_sub_agent_begins_as_long_after_the_turn_as_it_did_after_its_spawn() -> None:
    # Spawned at 2.5, first call at 3.
    found = play(trace(main(0, 40), agent(1, 2.5, 60.0, call(3, [9]))), duration=20)
    assert found.sent() == {("t", 0): 0, (SUB, 0): 1.5}


def test_a_sub_agent_spawned_while_the_turn_ran_counts_from_its_sending() -> None:
    calls = main(0, 40, output=8)
    calls[0] = call(0, [1], took=5.0, output=8)
    found = play(trace(calls, agent(1, 2.5, 60.0, call(3, [9]))), duration=20)
    assert found.sent() == {("t", 0): 0, (SUB, 0): 3}


def test_a_join_waits_for_its_own_delay_and_for_the_last_sub_agent() -> None:
    # The main stream goes on at 4; the turn at 10 joins what ended at 7.
    calls = main(0, 4, 10)
    inner = call(1, [9], took=6.0, output=1)
    quick = play(trace(calls, agent(1, 1.0, 7.0, inner)), duration=20)
    assert quick.sent() == {("t", 0): 0, (SUB, 0): 1, ("t", 1): 4, ("t", 2): 10}
    slow = play(trace(calls, agent(1, 1.0, 7.0, call(1, [9], output=30))), duration=40)
    assert slow.sent() == {("t", 0): 0, (SUB, 0): 1, ("t", 1): 4, ("t", 2): 31}
    held = next(one for one in slow.records if one.turn == 2)
    assert (held.planned, held.ready) == (10, 31)


def test_a_join_follows_the_last_sub_agent_at_once_in_the_older_profile() -> None:
    calls = main(0, 10)
    late = agent(1, 1.0, 7.0, call(1, [9], output=4))
    found = play(trace(calls, late), duration=8, joins_keep_delay=False)
    assert found.sent() == {("t", 0): 0, (SUB, 0): 1, ("t", 1): 5}
    # Nothing was left to join when the turn before ended, so its delay counts.
    calls = main(0, 2, 30)
    early = agent(1, 1.0, 3.0, call(1, [9], output=1))
    done = play(trace(calls, early), duration=40, joins_keep_delay=False)
    assert done.sent()["t", 2] == 30


def test_a_turn_waits_for_those_of_other_streams_that_had_ended_when_it_began() -> None:
    # Two agents that forked from the first call, one after the other.
    calls = [
        call(0, [1, 2]),
        call(2, [1, 9], output=10),
        call(4, [1, 8], output=2),
        call(30, [1, 2, 3]),
    ]
    found = play(trace(calls), duration=20)
    first, second = "t::aux:000", "t::aux:001"
    # Spawned together at 2: due at 1 and at 3, and the second waits until the first has ended.
    assert found.sent() == {("t", 0): 0, (first, 0): 1, (second, 0): 11}
    held = next(one for one in found.records if one.stream == second)
    assert (held.planned, held.ready) == (3, 11)


def test_a_lane_starts_in_the_middle_and_primes_what_was_under_way() -> None:
    # The middle is 10: the turn at 10 is next, the one at 0 is primed.
    found = play(trace(main(0, 10, 20), name="a"), start_from=0.5, start_to=0.5, duration=15)
    (primer,) = [one for one in found.records if one.phase == "primer"]
    assert (primer.turn, primer.sent, primer.asked_output) == (0, 0, 1)
    assert found.window.opened == 1
    assert found.sent() == {("a", 1): 0, ("a", 2): 10}


def test_primers_are_spread_so_that_the_moments_of_all_lanes_coincide() -> None:
    # Moments at 10 and at 20; the turns before them began 10 s and 4 s earlier.
    traces = trace(main(0, 10, 20), name="a"), trace(main(0, 16, 40), name="b")
    found = play(*traces, concurrency=2, start_from=0.5, start_to=0.5, duration=30)
    assert found.sent("primer") == {("a", 0): -7, ("b", 1): -1}
    # The next ones are due 0 s and 20 s after the moments.
    assert found.sent()["a", 1] == 0
    assert found.sent()["b", 2] == 20
    capped = play(
        *traces,
        concurrency=2,
        start_from=0.5,
        start_to=0.5,
        system_idle_cap=5.0,
        duration=1,
    )
    assert capped.sent("primer") == {("a", 0): -2, ("b", 1): -1}


def test_the_window_opens_with_the_earliest_request_and_keeps_the_distances() -> None:
    # Moments at 9 and at 6: what is next is due 11 s and 6 s after them.
    traces = trace(main(0, 20, 22), name="a"), trace(main(0, 12, 16), name="b")
    spread = {"start_from": 9 / 22, "start_to": 9 / 22}
    found = play(*traces, concurrency=2, duration=8, **spread)
    moment = 16 * 9 / 22
    assert found.sent()["b", 1] == 0
    assert found.sent()["a", 1] == pytest.approx(11 - (12 - moment), abs=1e-5)
    held = play(*traces, concurrency=2, duration=12, starts_at_first=False, **spread)
    assert held.sent()["a", 1] == pytest.approx(11, abs=1e-5)
    assert held.sent()["b", 1] == pytest.approx(12 - moment, abs=1e-5)


def test_a_main_stream_that_waits_for_its_sub_agent_goes_on_when_both_are_due() -> None:
    # At 5 the sub-agent has a call left, at 8, which the turn at 20 joins.
    inner = call(2, [9], output=1), call(8, [9, 10], output=1)
    one = trace(main(0, 1.5, 20), agent(2, 2.0, 9.5, *inner))
    found = play(one, start_from=0.25, start_to=0.25, duration=15)
    # Their leads are 3.5 s and 3 s, and the second primer takes one.
    assert found.sent("primer") == {("t", 1): -1.5, (SUB, 0): -1}
    # The window opens with the sub-agent, so 3 s come off: the join is due at 12.
    assert found.sent() == {(SUB, 1): 0, ("t", 2): 12}
    older = play(one, start_from=0.25, start_to=0.25, duration=15, joins_keep_delay=False)
    assert older.sent() == {(SUB, 1): 0, ("t", 2): 1}


def test_pressure_sends_each_lanes_next_requests_at_once_for_one_token() -> None:
    one = trace(main(0, 10, 20, 30, 47, output=3))
    found = play(one, start_from=10 / 47, start_to=10 / 47, pressure=2, duration=40)
    assert found.sent("primer") == {("t", 0): -3}
    assert found.sent("warm-up") == {("t", 1): -2, ("t", 2): -1}
    assert {one.asked_output for one in found.records if one.phase != "window"} == {1}
    # The window goes on with the turn after them; its delay after that is as recorded.
    assert found.sent() == {("t", 3): 0, ("t", 4): 19}
    assert {one.asked_output for one in found.records if one.phase == "window"} == {3}


def test_a_lane_that_has_had_its_pressure_waits_for_the_others_on_its_own_clock() -> None:
    # After two more requests each, the next ones are due 20 s and 30 s after the moments.
    traces = trace(main(0, 10, 20, 30, 40), name="a"), trace(main(0, 15, 30, 45, 60), name="b")
    found = play(*traces, concurrency=2, start_from=0.25, start_to=0.25, pressure=2, duration=15)
    assert found.sent("warm-up") == {("a", 1): -2, ("b", 1): -2, ("a", 2): -1, ("b", 2): -1}
    assert found.sent() == {("a", 3): 0, ("b", 3): 10, ("a", 4): 10}


def test_sub_agents_and_joins_keep_their_order_under_pressure() -> None:
    inner = call(15, [9]), call(19, [9, 10])
    one = trace(main(0, 10, 30, 47), agent(2, 14.0, 20.0, *inner))
    found = play(one, start_from=5 / 47, start_to=5 / 47, pressure=4, duration=30)
    assert found.sent("warm-up") == {
        ("t", 1): -4,
        (SUB, 0): -3,
        (SUB, 1): -2,
        ("t", 2): -1,
    }
    assert found.sent() == {("t", 3): 0}


def test_a_tree_that_ends_under_pressure_is_followed_by_the_next_from_its_beginning() -> None:
    traces = trace(main(0, 10, 11), name="a"), trace(main(100, 107, 115), name="b")
    found = play(*traces, start_from=0.5, start_to=0.5, pressure=3, duration=10)
    assert list(found.lanes("warm-up")) == [(0, "a", 1, -3), (0, "a", 2, -2), (0, "b", 0, -1)]
    # On its own clock the next one is due 7 s after its first.
    assert next(found.lanes()) == (0, "b", 1, 0)
    spent = play(*traces, start_from=0.5, start_to=0.5, pressure=2, duration=8)
    assert list(spent.lanes()) == [(0, "b", 0, 0), (0, "b", 1, 7)]


def test_a_tree_that_is_idle_for_too_long_is_hurried_and_keeps_its_distances() -> None:
    # Idle from 1 on: at 6 the sub-agent, due at 21, is moved there, and the turn from 31 to 16.
    one = trace(main(0, 31), agent(1, 1.0, 60.0, call(21, [9], output=2)))
    other = trace([call(0, [1], output=50)], name="b")
    found = play(one, other, concurrency=2, tree_idle_cap=5.0, duration=13.5)
    assert found.sent() == {("t", 0): 0, ("b", 0): 0, (SUB, 0): 6, ("t", 1): 13}
    assert found.window.protocol is not None
    # 15 s at 6, when nothing had been in flight for 5 s, and 3 s at 13, 5 s after the end at 8.
    assert found.window.protocol.hurried == {"tree": (2, 18.0), "system": (0, 0)}


def test_a_hurried_turn_that_must_wait_lets_the_next_one_go_at_once() -> None:
    # The join is due at 8, before the sub-agent that it waits for, at 11.
    one = trace(main(0, 8), agent(1, 1.0, 5.0, call(11, [9])))
    found = play(one, tree_idle_cap=5.0, duration=10)
    assert found.sent() == {("t", 0): 0, (SUB, 0): 6, ("t", 1): 7}


def test_all_timers_are_moved_when_nothing_is_in_flight_for_too_long() -> None:
    traces = trace(main(0, 51, 90), name="a"), trace(main(0, 61, 90), name="b")
    found = play(*traces, concurrency=2, system_idle_cap=2.0, duration=6.5)
    # From 51 to 3, and so from 61 to 13; from there to 6, when the first has ended at 4.
    assert found.sent() == {("a", 0): 0, ("b", 0): 0, ("a", 1): 3, ("b", 1): 6}
    assert found.window.protocol is not None
    assert found.window.protocol.hurried["system"] == (2, 55.0)


def test_idle_times_count_from_an_answers_end_and_not_from_when_it_has_been_read() -> None:
    # The first answer ends at 1 and is read until 1.5.
    one = trace(main(0, 51, 90))
    alone = play(one, client=Patient(reading=0.5), system_idle_cap=2.0, duration=6.5)
    assert alone.sent() == {("t", 0): 0, ("t", 1): 3, ("t", 2): 6}
    assert all(row.planned == row.sent for row in alone.records)
    busy = trace([call(0, [1], output=50)], name="b")
    client = Patient(reading=0.5)
    beside = play(one, busy, client=client, concurrency=2, tree_idle_cap=5.0, duration=12.5)
    assert beside.sent() == {("t", 0): 0, ("b", 0): 0, ("t", 1): 6, ("t", 2): 12}


def test_a_lane_takes_the_next_trace_when_its_tree_has_ended_with_a_marker_of_its_own() -> None:
    background = agent(1, 1.0, 9.0, call(1, [9], output=5))
    traces = trace(main(0), background, name="a"), trace(main(0, 3), name="b")
    found = play(*traces, duration=12)
    assert list(found.lanes()) == [
        (0, "a", 0, 0),
        (0, "a::sa:a", 0, 1),
        (0, "b", 0, 6),
        (0, "b", 1, 9),
        (0, "a", 0, 10),
        (0, "a::sa:a", 0, 11),
    ]
    markers: dict[str | None, set[int]] = {}
    for _, request in found.client.seen:
        assert request.prompt.marker is not None
        marker = int(request.prompt.seeds[request.prompt.marker])
        markers.setdefault(request.tree, set()).add(marker)
    assert [len(of_tree) for of_tree in markers.values()] == [1, 1, 1]
    assert len(set.union(*markers.values())) == 3
    assert len({request.session for _, request in found.client.seen}) == 5
    assert found.window.protocol is not None
    assert found.window.protocol.recycled == 2


def test_a_tree_keeps_its_marker_from_its_primer_to_the_window() -> None:
    found = play(trace(main(0, 10, 20, 30)), start_from=0.4, start_to=0.4, pressure=1, duration=0.5)
    assert [one.phase for one in found.records] == ["primer", "warm-up", "window"]
    marked = [request for _, request in found.client.seen]
    assert len({int(request.prompt.seeds[request.prompt.marker or 0]) for request in marked}) == 1
    assert len({(request.tree, request.session) for request in marked}) == 1


def test_a_prompt_beyond_the_context_ends_its_session_and_the_lane_goes_on() -> None:
    traces = trace(main(0, 3, 6), name="a"), trace(main(0, 40), name="b")
    client = Patient(errors={("a", 1): "HTTP 400: exceeds the maximum context length of 9 tokens"})
    found = play(*traces, client=client, duration=20)
    assert list(found.lanes()) == [(0, "a", 0, 0), (0, "a", 1, 3), (0, "b", 0, 4)]


def test_a_sub_agent_beyond_the_context_ends_and_releases_its_join() -> None:
    inner = call(1, [9]), call(3, [9, 10])
    client = Patient(errors={(SUB, 0): "prompt is too long"})
    found = play(trace(main(0, 5), agent(1, 1.0, 4.0, *inner)), client=client, duration=9)
    assert list(found.lanes())[:3] == [(0, "t", 0, 0), (0, SUB, 0, 1), (0, "t", 1, 5)]
    assert (0, SUB, 1) not in [one[:3] for one in found.lanes()]


def test_any_other_error_counts_as_an_end() -> None:
    inner = (call(1, [9], output=7),)
    client = Patient(errors={("t", 0): "HTTP 500: no", (SUB, 0): "the connection was reset"})
    found = play(trace(main(0, 5), agent(1, 1.0, 4.0, *inner)), client=client, duration=9)
    assert found.sent() == {("t", 0): 0, (SUB, 0): 1, ("t", 1): 8}
    assert [one.state for one in found.records][:3] == ["failed", "failed", "ok"]


def test_nothing_is_sent_after_the_window_and_what_outlives_the_grace_is_cut() -> None:
    traces = trace(main(0, 10, output=4), name="a"), trace([call(0, [1], output=30)], name="b")
    found = play(*traces, concurrency=2, duration=12.5, grace=5.0)
    assert found.window.closed == 12.5
    assert {(one.stream, one.turn): one.state for one in found.records} == {
        ("a", 0): "ok",
        ("b", 0): "cut",
    }
    assert max(one.closed for one in found.records) == 17.5


def test_a_main_primer_that_fails_ends_the_point_with_its_reason_and_keeps_the_rows() -> None:
    kept: list = []
    traces = trace(main(0, 10), name="a"), trace(main(0, 10), name="b")
    client = Patient(errors={("b", 0): "HTTP 503: loading"})
    with pytest.raises(ExceptionGroup) as caught:
        play(
            *traces,
            concurrency=2,
            start_from=0.5,
            start_to=0.5,
            client=client,
            kept=kept,
        )
    (error,) = caught.value.exceptions
    assert isinstance(error, EngineError)
    assert str(error) == "the primer of b, turn 0, failed: HTTP 503: loading"
    assert sorted((one.stream, one.phase, one.state) for one in kept) == [
        ("a", "primer", "ok"),
        ("b", "primer", "failed"),
    ]


def test_a_sub_agents_primer_may_fail() -> None:
    inner = call(2, [9]), call(8, [9, 10])
    one = trace(main(0, 1.5, 20), agent(2, 2.0, 9.5, *inner))
    client = Patient(errors={(SUB, 0): "HTTP 503: loading"})
    found = play(one, client=client, start_from=0.25, start_to=0.25, duration=15)
    assert found.sent() == {(SUB, 1): 0, ("t", 2): 12}


def test_a_warm_up_that_never_lands_ends_the_point() -> None:
    class Stalled(Patient):
        async def send(self, request, **more):
            self.service = 1e5 if self.seen else None
            return await super().send(request, **more)

    with pytest.raises(ExceptionGroup, match="unhandled") as caught:
        play(
            trace(main(0, 10, 20, 30)),
            client=Stalled(),
            start_from=0.5,
            start_to=0.5,
            pressure=1,
            warmup_grace=60.0,
        )
    assert "did not end within 60 s" in str(caught.value.exceptions[0])


def test_too_many_failures_end_the_point_and_overflows_are_none_of_them() -> None:
    traces = [trace(main(0), name=f"t{number}") for number in range(20)]
    wrong = {(f"t{number}", 0): "HTTP 500: no" for number in (8, 12)}
    with pytest.raises(ExceptionGroup) as caught:
        play(*traces, client=Patient(errors=wrong), error_share=0.1)
    assert str(caught.value.exceptions[0]) == "2 of 13 requests failed, more than 10%"
    wide = dict.fromkeys(wrong, "the context length is exceeded")
    assert len(play(*traces, client=Patient(errors=wide), error_share=0.1).records) == 51


def test_a_tree_without_a_main_turn_left_is_followed_when_its_sub_agents_have_ended() -> None:
    inner = call(2, [9]), call(30, [9, 10])
    one = trace(main(0), agent(1, 1.0, 31.0, *inner))
    found = play(one, start_from=0.5, start_to=0.5, duration=5)
    assert list(found.lanes())[:2] == [(0, SUB, 1, 0), (0, "t", 0, 1)]


def test_a_tree_stays_on_one_rank_and_its_sub_agents_with_it() -> None:
    traces = [trace(main(0), agent(1, 1.0, 9.0, call(1, [9])), name=name) for name in "abc"]
    found = play(*traces, concurrency=3, topology="DEP2", duration=1.5)
    ranks = {request.tree: set[int | None]() for _, request in found.client.seen}
    for _, request in found.client.seen:
        ranks[request.tree].add(request.rank)
    assert list(ranks.values()) == [{0}, {1}, {0}]


def test_requests_are_made_ready_while_the_ones_before_them_are_answered() -> None:
    found = play(trace(main(0, 5, 9)), duration=10)
    prepared, sent = found.client.prepared, found.client.seen
    ahead = [moment - prepared[request.id] for moment, request in sent[:3]]
    assert ahead == [0, 5, 4]


def test_equal_runs_have_equal_rows() -> None:
    traces = [trace(main(0, 3, 9, 30), name=name) for name in "abc"]
    both = [
        [(one.sent, one.lane, one.request_id, one.prompt_hash) for one in found.records]
        for found in (play(*traces, concurrency=2, start_from=0.2, pressure=1) for _ in range(2))
    ]
    assert both[0] == both[1]


def test_the_first_moment_of_a_lane_is_drawn_for_the_lane() -> None:
    traces = [trace(main(*range(0, 200, 2)), name="a")]
    found = play(*traces, concurrency=2, start_from=0.25, start_to=0.75, duration=1)
    turns = [one[2] for one in found.lanes()]
    assert len(set(turns)) == 2
    assert all(25 <= turn <= 75 for turn in turns)


def test_ceilings_count_what_earlier_passes_of_the_trace_sent_without_a_marker() -> None:
    # A system message of a block stands before the marker, so a second pass finds it.
    calls = [call(0, [1, 2]), call(3, [1, 2, 3])]
    found = play(trace(calls, preamble=64), duration=6)
    ceilings = [one.ceiling_tokens for one in found.records]
    assert ceilings == [0, 64 + 8 + 64, 64, 64 + 8 + 64][: len(ceilings)]
    assert [one.turn for one in found.records][:3] == [0, 1, 0]


def test_the_canonical_profile_keeps_to_its_own_caps() -> None:
    own = AGENTX_V1.tree_idle_cap, AGENTX_V1.system_idle_cap, AGENTX_V1.pressure
    assert own == (300.0, 10.0, 10)
    caps = {"tree_idle_cap": own[0], "system_idle_cap": own[1]}
    # A tree idle from 1 on goes on at 301, while another one has a request in flight.
    one, busy = trace(main(0, 1000)), trace([call(0, [1], output=600)], name="b")
    found = play(one, busy, concurrency=2, duration=500, **caps)
    assert found.sent() == {("t", 0): 0, ("b", 0): 0, ("t", 1): 301}
    # Alone, everything is idle from 1 on, and goes on at 11.
    assert play(one, duration=11.5, **caps).sent() == {("t", 0): 0, ("t", 1): 11}
    # A primer's lead is bounded by the same 10 s, and the lane then sends ten more.
    long = trace(main(*range(0, 60, 2)))
    found = play(long, start_from=0.5, start_to=0.5, pressure=own[2], duration=2, **caps)
    turns = [one[2] for one in found.lanes("warm-up")]
    assert turns == list(range(15, 25))
    assert next(found.lanes())[2:] == (25, 0)


def test_a_session_beyond_the_context_ends_when_the_sub_agents_it_had_begun_have() -> None:
    calls = main(0, 4, 8, 40)
    first, second = (
        agent(1, 1.0, 30.0, call(1, [9], output=9)),
        agent(3, 9.0, 12.0, call(9, [8]), name="z"),
    )
    traces = trace(calls, first, second), trace(main(0), name="next")
    client = Patient(errors={("t", 1): "This model's maximum context length is 4 tokens"})
    found = play(*traces, client=client, duration=20)
    assert list(found.lanes())[:4] == [
        (0, "t", 0, 0),
        (0, SUB, 0, 1.0),
        (0, "t", 1, 4),
        (0, "next", 0, 10),
    ]


def test_recorded_traces_are_replayed_whole_and_in_order(recorded: Path) -> None:
    traces = read(str(recorded))
    found = play(
        *traces, client=Patient(service=0.01), tree_idle_cap=0.2, system_idle_cap=0.1, duration=110
    )
    of_trees: dict[int, list[RequestRecord]] = {}
    for one in found.records:
        of_trees.setdefault(one.tree, []).append(one)
    for number, one in enumerate(traces):
        made = plan(one, PLAIN)
        rows = {Key(row.stream, row.turn): row for row in of_trees[number]}
        assert (len(rows), {row.trace for row in rows.values()}) == (
            len(of_trees[number]),
            {one.id},
        )
        assert rows.keys() == {step.key for step in made.steps()}
        ends = {key: row.closed for key, row in rows.items()}
        for step in made.steps():
            stream, turn = step.key
            before = [made.stream(name).steps[-1].key for name in step.joins]
            before += [*step.after, *([Key(stream, turn - 1)] if turn else [])]
            row = rows[step.key]
            assert row.sent is not None
            assert row.sent >= max((ends[key] for key in before), default=0.0)
            assert row.asked_input == step.call.input + MARKER_TOKENS
            assert row.asked_output == step.output


def test_every_recorded_trace_starts_in_its_middle_under_pressure(recorded: Path) -> None:
    traces = read(str(recorded))
    found = play(
        *traces,
        client=Patient(service=0.01),
        concurrency=24,
        start_from=0.25,
        start_to=0.75,
        pressure=10,
        tree_idle_cap=5.0,
        system_idle_cap=0.2,
        duration=15,
    )
    pressed = [one for one in found.records if one.phase == "warm-up"]
    assert {lane: sum(one.lane == lane for one in pressed) for lane in range(24)} == dict.fromkeys(
        range(24), 10
    )
    assert {one.asked_output for one in pressed} == {1}
    assert max(one.closed for one in pressed) <= found.window.opened
    begun = {(one.tree, one.stream, one.turn) for one in found.records}
    assert len(begun) == len(found.records)
