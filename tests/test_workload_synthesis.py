import numpy as np
import pytest

from workloads.synthesis import Corpus, synthesize
from workloads.weka import Trace


def hit_rate(traces: tuple[Trace, ...]) -> float:
    """The share of blocks that an unlimited cache has seen before."""
    ids = [[call.hash_ids for call in trace.all_calls()] for trace in traces]
    blocks = sum(len(hashes) for lists in ids for hashes in lists)
    # Ids are numbered on first use, so the greatest one tells how many there are.
    return 1 - sum(max(int(hashes.max()) for hashes in lists) + 1 for lists in ids) / blocks


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


def test_full_scale_sessions_have_the_quantiles_of_the_published_corpus() -> None:
    traces = synthesize(60, 5)
    main = [call for trace in traces for call in trace.calls]
    inner = [call for trace in traces for agent in trace.agents for call in agent.calls]
    gaps = [
        b.start - a.end
        for trace in traces
        for a, b in zip(trace.calls, trace.calls[1:], strict=False)
    ]
    assert np.median([len(trace.calls) for trace in traces]) == pytest.approx(65, rel=0.15)
    assert np.median([call.input for call in main]) == pytest.approx(254_080, rel=0.35)
    assert np.median([call.output for call in main]) == pytest.approx(616, rel=0.1)
    assert np.median([call.input for call in inner]) == pytest.approx(64_000, rel=0.35)
    assert np.median(gaps) == pytest.approx(4.9, rel=0.25)
    assert np.mean([bool(trace.agents) for trace in traces]) == pytest.approx(0.445, abs=0.02)
    assert hit_rate(traces) == pytest.approx(0.983, abs=0.01)


@pytest.mark.parametrize("limit", [4096, 8192, 32_768, 131_072])
def test_no_call_needs_more_than_the_context_limit(limit: int) -> None:
    traces = [trace for seed in range(5) for trace in synthesize(24, seed, limit)]
    peaks = [trace.peak for trace in traces]
    assert limit / 2 < max(peaks) <= limit - 8
    assert all(call.input >= 64 for trace in traces for call in trace.all_calls())


def test_a_small_limit_makes_few_and_short_turns() -> None:
    small, full = synthesize(24, 1, 32_768), synthesize(24, 1)
    assert sum(len(trace.calls) for trace in small) < sum(len(trace.calls) for trace in full) / 4
    assert Corpus().scaled(10**9) == Corpus()


def test_sub_agents_end_before_the_main_turn_after_them() -> None:
    traces = synthesize(24, 1, 131_072)
    agents = [(trace, agent) for trace in traces for agent in trace.agents]
    assert agents
    assert all(agent.end <= trace.calls[agent.place].start for trace, agent in agents)
