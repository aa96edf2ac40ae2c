from itertools import islice, pairwise

import numpy as np
import pytest

from workloads.corpus import PUBLISHED
from workloads.layout import common
from workloads.synthesis import generate, synthesize
from workloads.weka import EPSILON, Trace


def test_the_same_seed_makes_the_same_sessions() -> None:
    synthesize.cache_clear()
    first = synthesize(6, 1, 32_768)
    synthesize.cache_clear()
    again = synthesize(6, 1, 32_768)
    other = synthesize(6, 2, 32_768)

    def content(traces: tuple[Trace, ...]) -> list[tuple[float, int, int, int]]:
        calls = [call for trace in traces for call in trace.all_calls()]
        return [(call.start, call.input, call.output, int(call.hash_ids.sum())) for call in calls]

    assert content(first) == content(again)
    assert content(first) != content(other)


@pytest.mark.parametrize("limit", [4096, 8192, 32_768, 131_072])
def test_no_call_needs_more_than_the_context_limit(limit: int) -> None:
    traces = [trace for seed in range(5) for trace in synthesize(24, seed, limit)]
    peaks = [trace.peak for trace in traces]
    assert limit / 2 < max(peaks) <= limit - 8
    assert all(call.input >= 64 for trace in traces for call in trace.all_calls())


def test_a_small_limit_makes_few_and_short_turns() -> None:
    small, full = synthesize(24, 1, 32_768), synthesize(24, 1)
    assert sum(len(trace.calls) for trace in small) < sum(len(trace.calls) for trace in full) / 4
    assert PUBLISHED.scaled(10**9) == PUBLISHED


def test_sub_agents_end_before_the_main_turn_after_them() -> None:
    traces = synthesize(24, 1, 131_072)
    agents = [(trace, agent) for trace in traces for agent in trace.agents]
    assert agents
    assert all(agent.end <= trace.calls[agent.place].start + EPSILON for trace, agent in agents)


def test_sub_agents_of_a_session_begin_alike() -> None:
    starts = [
        [agent.calls[0].hash_ids for agent in trace.agents]
        for trace in generate(24, 3)
        if len(trace.agents) > 1
    ]
    assert starts
    for first, *others in starts:
        for other in others:
            both = min(len(first), len(other))
            alike = int((first[:both] == other[:both]).sum())
            assert alike >= min(both - 1, int(PUBLISHED.agent_base) // 64)


def test_ids_are_new_on_first_use_and_turns_that_only_add_share_their_memory() -> None:
    for trace in generate(6, 3, 65_536):
        seen = -1
        added = 0
        for before, after in pairwise(trace.calls):
            seen = max(seen, int(before.hash_ids.max()))
            kept = common(before, after)
            assert (after.hash_ids[kept:] > seen).all()
            if kept == len(before.hash_ids):
                added += np.shares_memory(before.hash_ids, after.hash_ids)
        assert added > len(trace.calls) / 2


def test_sessions_are_made_one_at_a_time_and_mixed_from_the_first_on() -> None:
    first = list(islice(generate(96, 2), 12))
    assert np.median([len(trace.calls) for trace in first]) == pytest.approx(65, rel=0.35)
    assert 3 <= sum(bool(trace.agents) for trace in first) <= 8


def test_times_are_whole_milliseconds_in_order() -> None:
    for trace in generate(6, 5, 65_536):
        for stream in (trace.calls, *(agent.calls for agent in trace.agents)):
            starts = np.array([call.start for call in stream])
            assert starts * 1000 == pytest.approx(np.rint(starts * 1000))
            assert all(a.end <= b.start + EPSILON for a, b in pairwise(stream))
