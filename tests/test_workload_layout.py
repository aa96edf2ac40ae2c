"""Golden values computed with the code of agentx-harness 1.0.12 (facts/agentx.md, section 11)."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from workloads.layout import Part, layouts
from workloads.messages import messages
from workloads.messages import prompts as made_of
from workloads.prompt import MARKER_TOKENS, Prompt
from workloads.stream import Source, Stream, steps
from workloads.weka import Call


def call(hash_ids: list[int], tokens: int, output: int) -> Call:
    ids = np.array(hash_ids, dtype=np.int64)
    return Call(start=0.0, duration=0.0, input=tokens, output=output, hash_ids=ids)


def prompts(calls: list[Call], preamble: int, block_seed: Callable[[int], int]) -> list[Prompt]:
    """The prompts of a stream, their marker first of all."""
    placed = [(Source(place, None), one) for place, one in enumerate(calls)]
    of_calls = steps("s", placed)
    stream = Stream(id="s", kind="main", scope="s", preamble=preamble, steps=of_calls)
    planned = messages(stream, repeats_are_whole=True)
    return made_of(stream, planned, block_seed, marker_first=True)


def shown(parts: tuple[Part, ...]) -> str:
    return " ".join(f"{part.role}:{part.blocks}" for part in parts)


STREAM = [
    call([0, 1, 2, 3, 4], 330, 70),
    call([0, 1, 2, 3, 4, 5, 6, 7], 512, 200),
    call([0, 1, 2, 3], 256, 10),
    call([0, 1, 8], 200, 10),
]


def test_roles_follow_the_reference_through_cuts_and_tails() -> None:
    turns = [turn.parts for turn in layouts(STREAM, 0)]
    assert [shown(parts) for parts in turns] == [
        "user:5",
        "user:5 assistant:2 user:1",
        "user:4",
        "user:2 assistant:1 user:0",
    ]
    assert [parts[-1].tail for parts in turns] == [10, 0, 0, 8]
    # What was sent before was changed or cut each time, so a client that sends deltas starts anew.
    assert all(after[: len(before)] != before for before, after in pairwise(turns))


def test_the_system_message_takes_the_preamble_and_the_marker_comes_before_it() -> None:
    stream = [call([0, 1, 2, 3], 256, 64), call([0, 1, 2, 3, 4, 5], 384, 1)]
    first, second = prompts(stream, 100, lambda number: 100 + number)
    assert first.messages == (("system", 3), ("user", 2))
    assert first.seeds.tolist() == [0, 100, 101, 102, 103]
    assert first.tokens.tolist() == [MARKER_TOKENS, 64, 64, 64, 64]
    assert (first.marker, second.marker) == (0, 0)
    assert second.messages == (("system", 3), ("user", 2), ("assistant", 1), ("user", 1))
    assert np.shares_memory(first.seeds, second.seeds)


def test_a_later_cut_caps_the_reply_before_it() -> None:
    # Turn 2 repeats the first five blocks; uncapped, the three-block reply would be its last word.
    stream = [
        call([0, 1, 2, 3], 256, 192),
        call([0, 1, 2, 3, 4, 5, 6, 7], 512, 10),
        call([0, 1, 2, 3, 4], 320, 10),
    ]
    assert [shown(turn.parts) for turn in layouts(stream, 0)] == [
        "user:4",
        "user:4 user:4",
        "user:4 user:1",
    ]


def test_more_or_fewer_hash_ids_than_blocks_still_make_the_recorded_length() -> None:
    more, fewer = call([0, 1, 2], 150, 5), call([0], 150, 5)
    for stream in ([more, fewer], [fewer, more]):
        lengths = [prompt.length for prompt in prompts(stream, 0, lambda number: number)]
        assert lengths == [150 + MARKER_TOKENS] * 2


@st.composite
def streams(draw: st.DrawFn) -> list[Call]:
    calls: list[Call] = []
    ids: list[int] = []
    fresh = 0
    for _ in range(draw(st.integers(1, 6))):
        new = draw(st.integers(0, 5))
        ids = ids[: draw(st.integers(0, len(ids)))] + list(range(fresh, fresh + new))
        fresh += new
        tokens = max(1, 64 * len(ids) + draw(st.integers(-70, 140)))
        calls.append(call(ids, tokens, draw(st.integers(0, 300))))
    return calls


@given(stream=streams(), preamble=st.integers(0, 200))
def test_every_turn_has_its_recorded_tokens_and_ends_with_the_user(
    stream: list[Call], preamble: int
) -> None:
    made = prompts(stream, preamble, lambda number: 1000 + number)
    for turn, (recorded, prompt) in enumerate(zip(stream, made, strict=True)):
        assert prompt.length == recorded.input + MARKER_TOKENS
        assert sum(segments for _, segments in prompt.messages) == len(prompt.seeds)
        assert prompt.marker is not None
        blocks = np.delete(prompt.seeds, prompt.marker)[: recorded.blocks]
        assert blocks.tolist() == [1000 + number for number in recorded.hash_ids[: recorded.blocks]]
        before = stream[turn - 1].hash_ids[: stream[turn - 1].blocks] if turn else np.zeros(0)
        only_cut = np.array_equal(before[: recorded.blocks], recorded.hash_ids[: recorded.blocks])
        all_system = prompt.messages[-1][0] == "system"
        if (recorded.tail or not only_cut) and not (all_system and turn == 0):
            assert prompt.messages[-1][0] == "user"
