"""Golden values are computed with agentx-harness 1.0.12."""

from pathlib import Path
from typing import Any

import pytest

from tests.recordings import call, example
from workloads.ceiling import Reuse, reuses
from workloads.synthesis import generate
from workloads.weka import Agent, Call, Trace, stream


def trace(*calls: Call, agents: tuple[Agent, ...] = ()) -> Trace:
    return Trace(id="x", preamble=0, calls=calls, agents=agents)


def agent(place: int, *calls: Call) -> Agent:
    return Agent(id=f"{place}", place=place, end=calls[-1].end, preamble=0, calls=calls)


def test_the_published_example_has_13_of_27_blocks_in_the_order_of_starts() -> None:
    found = list(reuses(example()))
    assert [(one.agent, one.turn, one.seen, one.blocks) for one in found] == [
        (None, 0, 0, 4),
        (None, 1, 4, 7),
        (0, 0, 0, 2),
        (0, 1, 2, 4),
        (None, 2, 7, 10),
    ]
    assert (sum(one.seen for one in found), sum(one.blocks for one in found)) == (13, 27)


def test_only_leading_blocks_count_and_all_streams_share_one_memory() -> None:
    found = list(
        reuses(
            trace(call(0.0, [0, 1]), call(5.0, [9, 1]), agents=(agent(1, call(2.0, [0, 1, 2])),))
        )
    )
    assert [one.seen for one in found] == [0, 2, 0]


def test_of_equal_starts_the_entry_that_stands_first_is_first() -> None:
    same = trace(call(0.0, [5]), call(3.0, [7]), agents=(agent(1, call(3.0, [7, 8])),))
    assert [(one.agent, one.seen) for one in reuses(same)] == [(None, 0), (0, 0), (None, 1)]


def test_ids_may_be_negative_or_far_apart() -> None:
    far = trace(call(0.0, [-3, 2**60]), call(1.0, [-3, 2**60, 7]), call(2.0, []))
    assert [one.seen for one in reuses(far)] == [0, 2, 0]


@pytest.mark.parametrize(
    ("changes", "block", "before", "tokens"),
    [
        ({}, 64, 0, 256),
        ({}, 16, 8, 256),  # 8 + 256 shared tokens hold 16 whole blocks of 16
        ({}, 256, 0, 256),
        ({}, 256, 8, 256),
        ({"seen": 3}, 256, 8, 0),  # 200 shared tokens fill no block of 256
        ({"seen": 3}, 64, 8, 192),
        ({"seen": 0}, 16, 24, 16),  # what precedes the recorded tokens is shared as well
        ({"seen": 7}, 64, 0, 384),  # the last token is computed, so its block is not found
        ({"first": True}, 16, 24, 0),
    ],
)
def test_an_engine_finds_whole_blocks_of_its_own(
    changes: dict[str, Any], block: int, before: int, tokens: int
) -> None:
    shape: dict[str, Any] = {"agent": None, "turn": 1, "seen": 4, "blocks": 7, "input": 448}
    assert Reuse(**(shape | changes)).cached(block, before) == tokens


def test_larger_engine_blocks_never_find_more() -> None:
    (made,) = generate(1, 3, 16_384)
    sums = [sum(one.cached(block, 8) for one in reuses(made)) for block in (16, 64, 256, 1024)]
    assert sums == sorted(sums, reverse=True)
    assert sums[0] > sums[-1] > 0


def test_recorded_traces_have_the_hits_of_the_reference(recorded: Path) -> None:
    found = [one for trace in stream(str(recorded)) for one in reuses(trace)]
    assert sum(one.seen for one in found) == 1_467_755
    assert sum(one.blocks for one in found) == 1_534_880
