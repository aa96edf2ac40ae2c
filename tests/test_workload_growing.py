from itertools import islice, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.growing import Growing
from workloads.prompt import Prompt

PLAIN = Growing(turns=4, first=1000, fresh=100, output=50)


def extends(later: Prompt, earlier: Prompt) -> bool:
    ends = earlier.ends()
    return bool((later.prefix_hashes(ends) == earlier.prefix_hashes(ends)).all())


def test_each_prompt_adds_the_reply_and_the_fresh_tokens() -> None:
    session = next(PLAIN.sessions(1))
    assert [turn.prompt.length for turn in session.turns] == [1000, 1150, 1300, 1450]
    assert all(extends(b.prompt, a.prompt) for a, b in pairwise(session.turns))
    assert [turn.previous for turn in session.turns[1:]] == [t.key for t in session.turns[:-1]]


def test_messages_alternate_and_hold_every_segment() -> None:
    for turn in next(PLAIN.sessions(1)).turns:
        roles = [role for role, _ in turn.prompt.messages]
        assert roles == ["user", *["assistant", "user"] * turn.key.turn]
        assert sum(segments for _, segments in turn.prompt.messages) == len(turn.prompt.seeds)


def test_the_prompts_of_a_session_share_their_memory() -> None:
    turns = next(PLAIN.sessions(1)).turns
    assert all(np.shares_memory(turns[0].prompt.seeds, turn.prompt.seeds) for turn in turns)


def test_a_session_ends_before_its_context_limit() -> None:
    session = next(
        Growing(turns=9, first=1000, fresh=100, output=50, context_limit=1350).sessions(1)
    )
    assert [turn.prompt.length for turn in session.turns] == [1000, 1150, 1300]


def test_a_limit_below_the_first_turn_is_refused() -> None:
    with pytest.raises(ValueError, match="not even the first turn fits"):
        Growing(turns=2, first=1000, fresh=100, output=50, context_limit=1049)


def test_delays_are_constant_or_exponential_around_their_mean() -> None:
    def delays(spread: str) -> list[float]:
        workload = Growing(turns=2000, first=9, fresh=1, output=1, delay=5.0, spread=spread)  # type: ignore[arg-type]
        return [turn.delay for turn in next(workload.sessions(1)).turns]

    assert set(delays("constant")[1:]) == {5.0}
    exponential = delays("exponential")
    assert exponential[0] == 0
    assert np.mean(exponential) == pytest.approx(5, rel=0.1)
    assert np.std(exponential) == pytest.approx(5, rel=0.15)


@given(
    seed=st.integers(0, 2**64 - 1),
    first=st.integers(1, 3000),
    variation=st.floats(0, 2),
    room=st.integers(0, 5000),
)
def test_varied_sessions_keep_growing_within_the_limit(
    seed: int, first: int, variation: float, room: int
) -> None:
    limit = first + 70 + room
    workload = Growing(
        turns=6, first=first, fresh=30, output=70, variation=variation, context_limit=limit
    )
    for session in islice(workload.sessions(seed), 2):
        assert session.turns
        assert all(turn.prompt.length + turn.output <= limit for turn in session.turns)
        assert all(extends(b.prompt, a.prompt) for a, b in pairwise(session.turns))
        assert all((turn.prompt.tokens > 0).all() for turn in session.turns)


def test_sessions_repeat_with_their_seed_and_differ_otherwise() -> None:
    def hashes(seed: int) -> list[str]:
        return [t.prompt.hash for s in islice(PLAIN.sessions(seed), 3) for t in s.turns]

    assert hashes(1) == hashes(1)
    assert len(set(hashes(1) + hashes(2))) == 24


def test_warm_up_sends_the_first_and_the_largest_prompt() -> None:
    warm = list(PLAIN.warmup(1))
    assert [session.trace for session in warm] == ["warm-up-0", "warm-up-1"]
    assert [session.turns[0].prompt.length for session in warm] == [1000, 1450]
    assert [session.turns[0].output for session in warm] == [8, 8]
