"""Where lanes begin. Golden values are computed with agentx-harness 1.0.12, or derived from it."""

from dataclasses import replace
from itertools import cycle

import pytest

from tests.recordings import SUB, call
from tests.recordings import example as published
from workloads.plan import Plan, plan
from workloads.profile import AGENTX_V1, PROFILES
from workloads.prompt import seed_of
from workloads.session import Key
from workloads.start import Start, again, anchor, moment, offset, start, starts, waits
from workloads.weka import Agent, Trace

MVP = PROFILES["aiperf-mvp-0.13"]


ROOT = "synth-0001"


def example(name: str = ROOT, end: float = 19.5) -> Plan:
    return plan(published(name, end), AGENTX_V1)


def begun(lane: int) -> Start:
    made = example()
    found = start(made, lane, moment(made, lane, AGENTX_V1, 42), AGENTX_V1)
    assert found is not None
    return found


def test_golden_moments() -> None:
    assert seed_of(42, ROOT, 0) == 4809368361451693802
    assert seed_of(42, ROOT, 1) == 5970535730050890164
    assert begun(0).moment == pytest.approx(8.50794220823081, rel=1e-14)
    assert begun(1).moment == pytest.approx(11.476398650094827, rel=1e-14)


def test_golden_start_before_the_spawn() -> None:
    first = begun(0)
    (place,) = first.places
    assert (place.next, place.waiting) == (Key(ROOT, 1), False)
    assert place.offset == pytest.approx(0.49206, abs=1e-5)
    (primer,) = first.primers
    assert primer.key == Key(ROOT, 0)
    assert primer.lead == pytest.approx(8.50794, abs=1e-5)
    assert first.ended == {ROOT: 1, SUB: 0}


def test_golden_start_with_a_join_pending() -> None:
    second = begun(1)
    assert [(place.next, place.waiting) for place in second.places] == [
        (Key(ROOT, 2), True),
        (Key(SUB, 0), False),
    ]
    assert second.places[1].offset == pytest.approx(0.02360, abs=1e-5)
    assert [primer.key for primer in second.primers] == [Key(ROOT, 1)]
    assert second.primers[0].lead == pytest.approx(2.47640, abs=1e-5)


def at(moment: float, end: float = 19.5) -> Start | None:
    return start(example(end=end), 0, moment, AGENTX_V1)


def test_a_stream_goes_on_with_its_first_step_at_or_after_the_moment() -> None:
    exact, after = at(9.0), at(9.0001)
    assert exact is not None
    assert after is not None
    assert exact.places[0].next == Key(ROOT, 1)
    assert after.places[0].next == Key(ROOT, 2)


def test_a_sub_agent_is_under_way_once_the_turn_that_spawns_it_has_gone() -> None:
    waiting, running, done = at(10.0), at(12.0), at(16.0)
    assert waiting is not None
    assert running is not None
    assert done is not None
    assert [place.next for place in waiting.places] == [Key(ROOT, 2), Key(SUB, 0)]
    assert waiting.places[1].offset == 1.5
    assert [place.next for place in running.places] == [Key(ROOT, 2), Key(SUB, 1)]
    # All its steps have begun, so nothing is left to join.
    assert [(place.next, place.waiting) for place in done.places] == [(Key(ROOT, 2), False)]
    assert done.ended == {ROOT: 2, SUB: 2}


def test_sub_agents_go_on_without_a_main_stream_that_has_no_step_left() -> None:
    inner = (call(2.0, [7], 1.0), call(30.0, [7, 8], 1.0))
    agent = Agent(id="a", place=1, end=31.0, preamble=0, calls=inner)
    main = (call(0.0, [1], 1.0),)
    made = plan(Trace(id="t", preamble=0, calls=main, agents=(agent,)), AGENTX_V1)
    found = start(made, 0, 1.5, AGENTX_V1)
    assert found is not None
    assert [place.next for place in found.places] == [Key("t::sa:a", 0)]
    assert start(made, 0, 30.5, AGENTX_V1) is None


def test_a_lead_is_at_most_the_system_idle_cap() -> None:
    late = at(20.5)
    assert late is not None
    assert [primer.lead for primer in late.primers] == [10.0]


def test_primers_are_sent_so_that_the_moments_coincide() -> None:
    found = waits([begun(0), replace(begun(1), lane=1)])
    assert found[0, Key(ROOT, 0)] == 0.0
    assert found[1, Key(ROOT, 1)] == pytest.approx(8.50794 - 2.47640, abs=1e-5)


def test_the_window_opens_with_the_earliest_step_that_is_ready() -> None:
    both = [begun(0), begun(1)]
    places = [place for one in both for place in one.places]
    assert anchor(places, AGENTX_V1) == both[1].places[1].offset
    assert anchor(places, MVP) == 0.0
    assert anchor([], AGENTX_V1) == 0.0


def test_after_warm_up_a_step_is_due_on_its_trees_clock() -> None:
    step = example().main.steps[2]
    assert offset(step, 8.5) == 12.5
    assert offset(step, 30.0) == 0.0


def test_one_moment_is_the_start_of_a_trace_whose_requests_all_start_together() -> None:
    calls = (call(11.5003, [1], 1.0),)
    made = plan(Trace(id="t", preamble=0, calls=calls, agents=()), AGENTX_V1)
    assert moment(made, 0, AGENTX_V1, 42) == 11.5003
    assert start(made, 0, 11.5003, AGENTX_V1) is not None


def test_lanes_take_traces_in_turn_and_begin_at_moments_of_their_own() -> None:
    found = starts(cycle([example("a"), example("b")]), 3, 2, AGENTX_V1, 42)
    assert [(one.lane, one.trace) for one in found] == [(0, "a"), (1, "b"), (2, "a")]
    assert found[0].moment != found[2].moment


def test_there_are_no_starts_where_every_trace_is_over() -> None:
    beyond = replace(AGENTX_V1, start_from=1.5, start_to=2.0)
    assert starts(cycle([example("a"), example("b")]), 3, 2, beyond, 42) == []


def test_a_lane_begins_its_next_trace_at_the_beginning() -> None:
    found = again(example(), 3)
    assert [(place.next, place.offset) for place in found.places] == [(Key(ROOT, 0), 0.0)]
    assert (found.lane, found.moment, found.primers) == (3, 0.0, ())
