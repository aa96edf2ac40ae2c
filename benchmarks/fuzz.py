"""Whether a stream, cut and written in 100,000 random other ways, gives the same row."""

import random
import sys
from collections.abc import Iterator

import orjson

from harness.wire.frames import Contents, Transcript

WAYS = 100_000
SEED = 1
DONE = b"[DONE]"


def chat(delta: dict[str, object], finish: str | None = None, **more: object) -> bytes:
    return orjson.dumps({"choices": [{"delta": delta, "finish_reason": finish}], **more})


def text(word: str, ids: list[int] | None = None, finish: str | None = None) -> bytes:
    return orjson.dumps({"choices": [{"text": word, "token_ids": ids, "finish_reason": finish}]})


def usage(prompt: int, completion: int) -> dict[str, object]:
    details = {"cached_tokens": prompt // 2}
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "prompt_tokens_details": details,
    }


def last(prompt: int, completion: int, **more: object) -> bytes:
    return orjson.dumps({"choices": [], "usage": usage(prompt, completion), **more})


ROLE = chat({"role": "assistant", "content": ""})
WORDS = ["a", " data: b", "\n\n", "中文", "🦀", "\r\n: c", "", "event: x", "\ufeff", "z" * 300]
METRICS = {"time_to_first_token_ms": 8.5, "queue_time_ms": 1.5}
STREAMS = {
    "chat": [
        ROLE,
        *(chat({"content": word}) for word in WORDS),
        chat({}, "stop"),
        last(9, 12),
        DONE,
    ],
    "reasoning and tools": [
        ROLE,
        *(chat({"reasoning": word}) for word in WORDS),
        *(chat({"reasoning_content": word, "content": None}) for word in WORDS),
        chat({"content": "so"}),
        chat({"tool_calls": [{"function": {"arguments": "{"}}]}),
        chat({}, "tool_calls", usage=usage(40, 31)),
        DONE,
    ],
    "a count in every frame": [
        *(chat({"content": w}, usage=usage(7, 2 * n)) for n, w in enumerate(WORDS, start=1)),
        last(7, 21, metrics=METRICS),
        DONE,
    ],
    "token ids": [
        *(text(word, [n] * (n % 4)) for n, word in enumerate(WORDS)),
        text("", [], "length"),
        last(64, 14),
    ],
    "an error": [ROLE, chat({"content": "a"}), orjson.dumps({"error": {"message": "died"}}), DONE],
    "no end": [text(word) for word in WORDS],
    "one token": [text("a", None, "length"), last(3, 1), DONE],
}


def row(found: Contents) -> tuple[object, ...]:
    """Everything of the contents but the moments."""
    return (
        len(found.stamps),
        found.kinds.tolist(),
        None if found.tokens is None else found.tokens.tolist(),
        found.frames,
        found.done,
        found.error,
        found.finish_reason,
        found.input_tokens,
        found.output_tokens,
        found.cached_tokens,
        found.server_ttft,
        found.server_queue,
    )


def read(parts: Iterator[bytes]) -> tuple[object, ...]:
    transcript = Transcript()
    for part in parts:
        transcript.add(0.0, part)
    return row(transcript.end(0.0))


def written(frames: list[bytes], draw: random.Random) -> bytes:
    """The frames as a stream with one kind of line ending and any decoration."""
    end = draw.choice([b"\n", b"\r\n", b"\r"])
    decorated = draw.random() < 0.7
    lines: list[bytes] = []
    for payload in frames:
        if decorated:
            lines += draw.choice([[], [b": ping", b""], [b""], [b": ping"], [b"event: token"]])
            lines += draw.choice([[], [b"id: 7"], [b"retry: 10"], [b"unknown"], [b"event:"]])
        lines += [draw.choice([b"data: ", b"data:"]) + payload]
        lines += draw.choice([[], [b"id:"], [b": between"]]) if decorated else []
        lines += [b""]
    mark = b"\xef\xbb\xbf" if draw.random() < 0.2 else b""
    return mark + b"".join(line + end for line in lines)


def cut(stream: bytes, draw: random.Random) -> Iterator[bytes]:
    """The stream in random parts, from single bytes to all at once, some of them empty."""
    size = draw.choice([1, 3, 20, 200, 2000, 10**6]) if draw.random() < 0.9 else 0
    at = 0
    while at < len(stream):
        step = draw.randint(0, 2 * size) if size else draw.choice([0, 1, 2, 5000])
        yield stream[at : at + step]
        at += step


def main() -> int:
    draw = random.Random(SEED)
    plain = {
        name: read(iter([b"".join(b"data: %b\n\n" % payload for payload in frames)]))
        for name, frames in STREAMS.items()
    }
    names = list(STREAMS)
    different = 0
    for way in range(WAYS):
        name = names[way % len(names)]
        stream = written(STREAMS[name], draw)
        found = read(cut(stream, draw))
        if found != plain[name]:
            different += 1
            if different <= 3:
                print(f"{name}, way {way}:\n  {plain[name]}\n  {found}\n  {stream!r}")
    print(f"{WAYS - different:,} of {WAYS:,} ways gave the row of the plain stream")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
