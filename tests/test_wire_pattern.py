"""Frames that are told by their pattern say what they would have said when parsed."""

import random
from dataclasses import asdict

import numpy as np
import pytest

from harness.client import ANSWER, REASONING
from harness.wire.frames import Contents, Transcript
from harness.wire.pattern import Pattern

CHAT = b'data: {"id":"x","choices":[{"index":0,"delta":{"content":"%b"},"finish_reason":null}]}\n\n'
THOUGHT = b'data: {"id":"x","choices":[{"delta":{"content":null,"reasoning_content":"%b"}}]}\n\n'
TEXT = b'data: {"id":"x","choices":[{"index":0,"text":"%b","finish_reason":null}],"usage":null}\n\n'
FRAMES = (CHAT, THOUGHT, TEXT)
LAST = (
    b'data: {"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"completion_tokens":%d}}\n\n'
)
WORDS = [
    b" the",
    b",",
    b"\\n",
    b'\\"',
    b"\\\\",
    b"\\\\\\n",
    b"\\u00e9",
    b"\\ud83d\\ude00",
    "é中🦀".encode(),
    b"",
]
BROKEN = [
    b'"',
    b"\\",
    b"\\x",
    b"\n",
    b"\t",
    b"\x00",
    b"\xff",
    b"\xe4\xb8",
    b'","content":"',
    b"\\\\\\",
]


def read(parts: list[bytes]) -> Contents:
    transcript = Transcript()
    for place, part in enumerate(parts):
        transcript.add(float(place), part)
        if place == 0:
            transcript.began()
    return transcript.end(float(len(parts)))


def said(contents: Contents) -> dict[str, object]:
    """All but the stamps, which depend on how the bytes were cut."""
    told = asdict(contents)
    del told["stamps"]
    return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in told.items()}


def bytewise(parts: list[bytes]) -> Contents:
    """The same, so that no event ever comes whole and each is parsed."""
    return read([bytes([byte]) for byte in b"".join(parts)])


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("words", WORDS + BROKEN)
def test_whatever_the_words_are_the_frame_says_the_same(frame: bytes, words: bytes) -> None:
    for together in (1, 2, 40):
        parts = [frame % b"Hi", (frame % words) * together, frame % b"!", LAST % (together + 2)]
        assert said(read(parts)) == said(bytewise(parts))


@pytest.mark.parametrize("frame", FRAMES)
def test_no_byte_of_a_frame_can_change_unseen(frame: bytes) -> None:
    rng = random.Random(5)
    plain = frame % b" word"
    for _ in range(500):
        place = rng.randrange(len(plain))
        kept, new = rng.choice([(0, 1), (1, 0), (1, 1)]), bytes([rng.choice(b'"\\{}[]:,x0 \n\r1')])
        odd = plain[:place] + new * kept[1] + plain[place + kept[0] :]
        parts = [plain, odd + plain * rng.randrange(3), plain, LAST % 4]
        assert said(read(parts)) == said(bytewise(parts))


def test_a_lump_may_be_cut_anywhere() -> None:
    rng = random.Random(9)
    stream = b"".join(CHAT % words for _ in range(60) for words in WORDS[:9]) + LAST % 540
    whole = said(bytewise([CHAT % b"a", stream]))
    for _ in range(30):
        cuts = sorted(rng.randrange(len(stream)) for _ in range(rng.randrange(12)))
        ends = zip([0, *cuts], [*cuts, len(stream)], strict=True)
        assert said(read([CHAT % b"a", *(stream[a:b] for a, b in ends)])) == whole


def test_stamps_are_those_of_the_reads() -> None:
    stamps = read([CHAT % b"a", (CHAT % b"b") * 3, CHAT % b"c"]).stamps
    assert stamps.tolist() == [0.0, 1.0, 1.0, 1.0, 2.0]


def test_each_piece_keeps_the_kind_of_its_frame() -> None:
    parts = [THOUGHT % b"a", THOUGHT % b"b", CHAT % b"c", CHAT % b"d", THOUGHT % b"e"]
    kinds = [REASONING, REASONING, ANSWER, ANSWER, REASONING]
    assert read(parts).kinds.tolist() == kinds


def test_more_after_the_end_is_still_an_error() -> None:
    parts = [CHAT % b"a", CHAT % b"b", LAST % 2, CHAT % b"c"]
    assert "more tokens after" in (read(parts).error or "")


def test_a_plain_frame_makes_a_pattern_and_its_words_stand_alone() -> None:
    payload = (CHAT % b"Hi")[6:-2]
    frame = {
        "id": "x",
        "choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": None}],
    }
    pattern = Pattern.of(payload, frame)
    assert pattern is not None
    assert pattern.events(CHAT % b"yes" + CHAT % b"no") == 2
    assert pattern.events(CHAT % b"") == 0
    assert frame["choices"] == [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": None}]


def test_words_that_stand_twice_in_a_frame_make_no_pattern() -> None:
    payload = b'{"choices":[{"content":"Hi","delta":{"content":"Hi"}}]}'
    assert Pattern.of(payload, {"choices": [{"content": "Hi", "delta": {"content": "Hi"}}]}) is None
