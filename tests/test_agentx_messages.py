"""What each step sends, and what of it is new. Golden values are the client's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.hits import hits, theoretical
from workloads.messages import Messages, messages, prompts
from workloads.plan import plan
from workloads.profile import AGENTX_V1
from workloads.prompt import MARKER_TOKENS
from workloads.session import Key
from workloads.stream import Source, Stream, steps
from workloads.weka import BLOCK, Agent, Call, Trace


def call(hash_ids: list[int], tokens: int, output: int, start: float = 0.0) -> Call:
    ids = np.array(hash_ids, dtype=np.int64)
    return Call(start=start, duration=1.0, input=tokens, output=output, hash_ids=ids)


def stream(*calls: Call, preamble: int = 0) -> Stream:
    placed = [(Source(place, None), one) for place, one in enumerate(calls)]
    return Stream(id="s", kind="main", scope="s", preamble=preamble, steps=steps("s", placed))


def planned(*calls: Call, preamble: int = 0) -> list[Messages]:
    return messages(stream(*calls, preamble=preamble), repeats_are_whole=True)


def shown(step: Messages) -> str:
    parts = [f"{part.role}:{part.blocks}+{part.tail}" for part in step.parts]
    parts.insert(step.fresh, "|")
    return " ".join(parts).replace("+0", "") + (" reset" if step.reset else "")


def test_golden_main_stream() -> None:
    found = planned(
        call([*range(4)], 256, 90),
        call([*range(7)], 448, 40),
        call([*range(7), 11, 12, 13], 640, 300),
    )
    assert [shown(step) for step in found] == [
        "| user:4",
        "user:4 | assistant:2 user:1",
        "user:4 assistant:2 user:1 | assistant:1 user:2",
    ]


def test_golden_sub_agent() -> None:
    found = planned(call([7, 8], 128, 64), call([7, 8, 9, 10], 256, 128))
    assert [shown(step) for step in found] == ["| user:2", "user:2 | assistant:1 user:1"]


def test_golden_stream_of_cuts() -> None:
    found = planned(
        call([*range(5)], 330, 70),
        call([*range(8)], 512, 200),
        call([*range(4)], 256, 10),
        call([0, 1, 8], 200, 10),
    )
    assert [shown(step) for step in found] == [
        "| user:5+10",
        "| user:5 assistant:2 user:1 reset",
        "| user:4 reset",
        "| user:2 assistant:1 user:0+8 reset",
    ]


def test_golden_theoretical_hits() -> None:
    main = (
        call([*range(4)], 256, 90),
        call([*range(7)], 448, 40, 9.0),
        call([*range(7), 11, 12, 13], 640, 300, 21.0),
    )
    inner = (call([7, 8], 128, 64, 11.5), call([7, 8, 9, 10], 256, 128, 15.0))
    agent = Agent(id="a", place=2, end=19.5, preamble=0, calls=inner)
    found = hits(plan(Trace(id="t", preamble=0, calls=main, agents=(agent,)), AGENTX_V1))
    assert found == {
        Key("t", 0): (0, 4),
        Key("t", 1): (4, 7),
        Key("t", 2): (7, 10),
        Key("t::sa:a", 0): (0, 2),
        Key("t::sa:a", 1): (2, 4),
    }
    assert theoretical(found) == pytest.approx(13 / 27)
    assert theoretical({}) is None


def test_hits_count_leading_blocks_whatever_their_numbers_are() -> None:
    calls = (call([-5, 10**15], 128, 1), call([-5, 3, 10**15], 192, 1, 9.0), call([], 5, 1, 10.0))
    found = hits(plan(Trace(id="t", preamble=0, calls=calls, agents=()), AGENTX_V1))
    assert list(found.values()) == [(0, 2), (1, 3), (0, 0)]


def test_a_repeated_context_is_sent_whole_in_the_profile_that_says_so() -> None:
    calls = [call([0, 1], 128, 9), call([0, 1], 128, 9)]
    assert [shown(step) for step in planned(*calls)] == ["| user:2", "| user:2 reset"]
    lenient = messages(stream(*calls), repeats_are_whole=False)
    assert [shown(step) for step in lenient] == ["| user:2", "user:2 |"]


def test_a_cut_that_is_filled_alike_is_still_sent_anew() -> None:
    found = planned(
        call([0, 1], 128, 64),
        call([0, 1, 2, 3], 256, 64),
        call([0, 1, 7, 8, 9], 320, 64),
    )
    assert shown(found[2]) == "| user:2 assistant:1 user:2 reset"


def test_a_step_that_adds_nothing_is_known_and_gets_no_token() -> None:
    found = planned(call([0, 1, 2], 192, 9), call([0, 1], 128, 9), preamble=128)
    assert [shown(step) for step in found] == ["| system:2 user:1", "| system:2 reset"]


def test_the_marker_precedes_the_first_user_message() -> None:
    calls = stream(call([0, 1, 2], 192, 70), call([0, 1, 2, 3, 4], 330, 9), preamble=100)
    found = prompts(calls, messages(calls, repeats_are_whole=True), lambda one: 100 + one)
    assert found[0].messages == (("system", 2), ("user", 2))
    assert found[0].seeds.tolist() == [100, 101, 0, 102]
    assert found[0].tokens.tolist() == [64, 64, MARKER_TOKENS, 64]
    assert [one.marker for one in found] == [2, 2]
    assert found[1].messages == (("system", 2), ("user", 2), ("assistant", 2), ("user", 1))
    assert found[1].tokens.tolist()[-1] == 10
    assert np.shares_memory(found[0].seeds, found[1].seeds)


def test_the_marker_may_come_before_the_system_message() -> None:
    calls = stream(call([0, 1, 2, 3], 256, 64), call([*range(6)], 384, 1), preamble=100)
    told = messages(calls, repeats_are_whole=True)
    first, second = prompts(calls, told, lambda one: 100 + one, marker_first=True)
    assert first.messages == (("system", 3), ("user", 2))
    assert first.seeds.tolist() == [0, 100, 101, 102, 103]
    assert first.tokens.tolist() == [MARKER_TOKENS, 64, 64, 64, 64]
    assert (first.marker, second.marker) == (0, 0)
    assert second.messages == (("system", 3), ("user", 2), ("assistant", 1), ("user", 1))
    assert np.shares_memory(first.seeds, second.seeds)


def test_a_later_cut_caps_the_reply_before_it() -> None:
    # Turn 2 repeats the first five blocks; uncapped, the three-block reply would be its last word.
    found = planned(
        call([*range(4)], 256, 192),
        call([*range(8)], 512, 10),
        call([*range(5)], 320, 10),
    )
    assert [shown(step) for step in found] == [
        "| user:4",
        "user:4 | user:4",
        "| user:4 user:1 reset",
    ]


def test_more_or_fewer_hash_ids_than_blocks_still_make_the_recorded_length() -> None:
    more, fewer = call([0, 1, 2], 150, 5), call([0], 150, 5)
    for calls in (stream(more, fewer), stream(fewer, more)):
        told = messages(calls, repeats_are_whole=True)
        lengths = [prompt.length for prompt in prompts(calls, told, lambda one: one)]
        assert lengths == [150 + MARKER_TOKENS] * 2


def test_a_prompt_without_a_user_has_no_marker() -> None:
    calls = stream(call([0, 1], 128, 9), preamble=128)
    (only,) = prompts(calls, messages(calls, repeats_are_whole=True), lambda one: one)
    assert (only.marker, only.messages, only.length) == (None, (("system", 2),), 128)


@st.composite
def streams(draw: st.DrawFn) -> Stream:
    calls: list[Call] = []
    ids: list[int] = []
    fresh = 0
    for _ in range(draw(st.integers(1, 6))):
        new = draw(st.integers(0, 5))
        ids = ids[: draw(st.integers(0, len(ids)))] + list(range(fresh, fresh + new))
        fresh += new
        tokens = max(1, BLOCK * len(ids) + draw(st.integers(-70, 140)))
        calls.append(call(ids, tokens, draw(st.integers(0, 300))))
    return stream(*calls, preamble=draw(st.integers(0, 200)))


@given(made=streams())
def test_deltas_add_up_to_what_is_sent(made: Stream) -> None:
    found = messages(made, repeats_are_whole=True)
    sent: list[tuple[str, int, int]] = []
    for step, plan_ in zip(made.steps, found, strict=True):
        sent = [*sent[: plan_.fresh], *map(tuple, plan_.parts[plan_.fresh :])]
        assert sent == [*map(tuple, plan_.parts)]
        assert sum(blocks * BLOCK + tail for _, blocks, tail in sent) == step.call.input
        assert plan_.fresh < len(plan_.parts)
        if step.call.tail:
            assert sent[-1][0] == "user"
        assert all(not tail for _, _, tail in sent[:-1])


@given(made=streams())
def test_prompts_hold_every_block_and_the_recorded_tokens(made: Stream) -> None:
    found = messages(made, repeats_are_whole=True)
    for step, prompt in zip(made.steps, prompts(made, found, lambda one: 1000 + one), strict=True):
        marked = prompt.marker is not None
        assert prompt.length == step.call.input + MARKER_TOKENS * marked
        assert sum(segments for _, segments in prompt.messages) == len(prompt.seeds)
        seeds = np.delete(prompt.seeds, prompt.marker) if marked else prompt.seeds
        ids = step.call.hash_ids[: step.call.blocks]
        assert seeds[: len(ids)].tolist() == [1000 + one for one in ids.tolist()]
