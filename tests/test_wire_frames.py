from itertools import pairwise

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.client import ANSWER, REASONING, TOOL
from harness.wire.frames import Contents, Transcript
from tests.scripted_server import (
    DONE,
    ROLE,
    c,
    chat,
    completion,
    frame,
    r,
    stop,
    t,
    u,
    usage,
)


def contents(*reads: tuple[float, bytes]) -> Contents:
    transcript = Transcript()
    for stamp, data in reads:
        transcript.add(stamp, data)
    return transcript.end(reads[-1][0] if reads else 0.0)


def together(*frames: bytes) -> Contents:
    return contents(*((float(place), data) for place, data in enumerate(frames)))


def row(found: Contents) -> tuple:
    tokens = None if found.tokens is None else found.tokens.tolist()
    return (
        len(found.stamps),
        found.kinds.tolist(),
        tokens,
        found.finish_reason,
        found.input_tokens,
        found.output_tokens,
        found.cached_tokens,
        found.error,
        found.done,
    )


def test_the_frame_that_names_the_role_is_no_piece():  # F-01
    found = contents((0.005, ROLE), (0.4, c("a")), (0.42, c("b")), (0.421, u(9, 2) + DONE))
    assert found.stamps.tolist() == [0.4, 0.42]
    assert found.tokens is None
    assert (found.input_tokens, found.output_tokens) == (9, 2)


@pytest.mark.parametrize("key", ["reasoning", "reasoning_content"])
def test_reasoning_is_output_under_both_its_names(key):  # F-02, invariant 7
    found = together(ROLE, r("x", key), r("y", key), c("z"), t("{"), u(5, 4), DONE)
    assert found.kinds.tolist() == [REASONING, REASONING, ANSWER, TOOL]
    assert found.stamps.tolist() == [1, 2, 3, 4]


def test_a_count_in_every_frame_gives_tokens_a_piece():  # F-03
    counted = [c("abc", usage=usage(10, 3 * n)) for n in range(1, 31)]
    found = together(chat({"role": "assistant"}, usage=usage(10, 0)), *counted, u(10, 90), DONE)
    assert found.tokens.tolist() == [3] * 30


def test_tokens_without_text_count_where_the_server_says_so():
    # Half a character gives no text yet; its token has come all the same.
    found = together(
        c("", usage=usage(5, 1)), c("é", usage=usage(5, 2)), stop(usage=usage(5, 3)), u(5, 3)
    )
    assert found.stamps.tolist() == [0, 1, 2]
    assert found.tokens.tolist() == [1, 1, 1]
    silent = together(c(""), c("é"), stop(), u(5, 3))
    assert silent.stamps.tolist() == [1]


def test_token_ids_give_tokens_a_piece():
    found = together(
        completion("ab", ids=[1, 2]),
        completion("", ids=[3]),
        completion("", "length", ids=[]),
        u(5, 3),
    )
    assert found.tokens.tolist() == [2, 1]
    assert found.kinds.tolist() == [ANSWER, ANSWER]


def test_usage_on_the_last_choice_frame_is_read():  # F-07, invariant 7
    apart = together(ROLE, c("a"), c("b"), stop(), u(7, 3), DONE)
    riding = together(ROLE, c("a"), c("b"), stop(usage=usage(7, 3)), DONE)
    assert row(apart) == row(riding)
    assert (riding.input_tokens, riding.output_tokens) == (7, 3)


def test_usage_on_a_last_choice_frame_with_text_is_not_taken_for_that_frame_alone():
    found = together(ROLE, c("a"), c("b", usage=usage(7, 3)), DONE)
    assert found.tokens is None
    assert found.output_tokens == 3


def test_a_role_named_late_or_with_text_changes_nothing():  # invariant 7
    named = together(chat({"role": "assistant", "content": "a"}), c("b"), u(1, 2), DONE)
    assert row(named) == row(together(ROLE, c("a"), c("b"), u(1, 2), DONE))
    assert row(named) == row(together(c("a"), ROLE, c("b"), u(1, 2), DONE))


def test_an_error_object_in_the_stream_is_a_failure_with_the_servers_words():  # F-09
    for error in (
        {"error": {"message": "engine died", "code": 500}},
        {"error": "engine died"},
        {"object": "error", "message": "engine died"},
    ):
        found = together(c("a"), frame(error), DONE)
        assert found.error == "the server sent an error: engine died"
        assert len(found.stamps) == 1


@pytest.mark.parametrize(
    "odd",
    [b"{nonsense", b"[]", b"3", b'{"choices":[3]}', b'{"choices":[{"delta":"x"}]}', b'{"usage":7}'],
)
def test_a_frame_that_makes_no_sense_is_a_failure_and_never_an_exception(odd):
    found = together(c("a"), b"data: " + odd + b"\n\n", c("b"))
    assert found.error.startswith("a frame of the stream could not be read")
    assert len(found.stamps) == 2
    assert row(contents((0, c("a") + b"data: " + odd + b"\n\n" + c("b")))) == row(found)


def test_what_is_absent_or_odd_is_none():
    usages = [None, {}, {"prompt_tokens": None, "completion_tokens": "7"}, {"prompt_tokens": 2**63}]
    for odd in usages:
        found = together(c("a", usage=odd), DONE)
        assert (found.input_tokens, found.output_tokens, found.cached_tokens) == (None, None, None)
        assert found.error is None


def test_the_servers_own_figures_are_kept():
    metrics = {
        "time_to_first_token_ms": 12.5,
        "queue_time_ms": 2,
        "speculative_decoding": {"num_draft_tokens": 9, "num_accepted_draft_tokens": 6},
    }
    found = together(
        c("a", system_fingerprint="v1-tp4"),
        frame({"choices": [], "usage": usage(640, 1, cached=512), "metrics": metrics}),
    )
    assert (found.server_ttft, found.server_queue) == (0.0125, 0.002)
    assert (found.draft_tokens, found.accepted_tokens) == (9, 6)
    assert (found.cached_tokens, found.fingerprint) == (512, "v1-tp4")


def test_a_last_frame_cut_short_is_no_frame():
    found = contents((0, c("a") + b'data: {"choices":[{"delta":{"content":"b"}}'))
    assert (found.error, found.done, len(found.stamps)) == (None, False, 1)
    assert contents((0, c("a") + u(1, 1).rstrip())).finished


def test_a_count_in_every_frame_is_no_end():
    assert not together(c("a", usage=usage(5, 1)), c("b", usage=usage(5, 2))).finished


@pytest.mark.parametrize(
    ("frames", "finished", "done"),
    [
        ([c("a"), stop(), u(1, 1)], True, True),
        ([c("a"), stop(usage=usage(1, 1))], True, True),
        ([c("a"), stop()], True, False),
        ([c("a"), u(1, 1)], True, False),
        ([c("a"), u(1, 1), DONE], True, True),
        ([u(1, 1), c("a")], False, False),
        ([u(1, 1), c("a"), DONE], False, False),
        ([u(1, 1), c("a"), stop()], True, False),
        ([c("a"), DONE], False, False),
    ],
)
def test_only_what_comes_at_the_end_completes_an_answer(frames, finished, done):
    found = together(*frames)
    assert (found.finished, found.done) == (finished, done)


def test_counts_that_contradict_themselves_are_unknown():
    falling = together(*(c("a", usage=usage(5, n)) for n in (1, 2, 30, 4)), stop(), u(5, 4))
    assert (falling.tokens, len(falling.stamps)) == (None, 4)
    beyond = together(*(c("a", usage=usage(5, n)) for n in (1, 2, 30)), u(5, 3))
    assert (beyond.tokens, beyond.output_tokens) == (None, 3)
    ids = together(*[completion("a", ids=[1, 2, 3, 4, 5])] * 4, completion("", "length"), u(5, 4))
    assert (ids.tokens, ids.output_tokens) == (None, 4)


def test_nothing_counts_after_the_terminator():
    found = together(c("a"), stop(), u(1, 1), DONE, c("b"), frame({"error": "late"}), u(9, 9))
    assert (len(found.stamps), found.error, found.output_tokens) == (1, None, 1)
    assert row(contents((0, c("a") + stop() + u(1, 1) + DONE + c("b") * 99))) == row(found)


STREAMS = [
    [ROLE, r("mm"), c("a\n中"), c(""), t("{}"), stop(), u(9, 5), DONE],
    [c("é🦀", usage=usage(3, 2)), c("", usage=usage(3, 3)), stop(usage=usage(3, 4)), u(3, 4), DONE],
    [completion("a b", ids=[4, 5]), completion("", ids=[6]), completion("c", "length", ids=[7])],
    [c("a"), frame({"error": {"message": "no"}}), DONE],
]


@given(
    st.sampled_from(STREAMS),
    st.lists(st.integers(0, 2000), max_size=40),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
    st.booleans(),
    st.booleans(),
)
def test_cuts_endings_comments_and_fields_change_no_row(frames, cuts, end, spaced, decorated):
    # Invariant 6.
    written = []
    for data in frames:
        line = data.rstrip(b"\n")
        line = line if spaced else b"data:" + line.removeprefix(b"data: ")
        extra = b": ping\n\nevent: message\nid: 1\n" if decorated else b""
        written.append((extra + line + b"\n\n").replace(b"\n", end))
    stream = b"".join(written)
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    reads = [(float(a), stream[a:b]) for a, b in pairwise(edges)]
    found = contents(*reads)
    assert row(found) == row(together(*frames))
    assert np.all(np.diff(found.stamps) >= 0)


def test_looking_for_the_first_token_reads_nothing_twice():
    transcript = Transcript()
    transcript.add(1.0, ROLE)
    assert not transcript.began()
    transcript.add(2.0, c("a"))
    assert transcript.began()
    assert transcript.end(2.0).stamps.tolist() == [2.0]
    assert orjson.loads(c("a")[6:])["choices"]
