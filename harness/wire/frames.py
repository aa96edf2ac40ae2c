"""What the frames of one answer say: pieces, tokens, how it ended and what the server counted."""

from array import array
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from harness.client import ANSWER, REASONING, TOOL, Moments
from harness.wire.pattern import Pattern
from harness.wire.stream import Reader

TOGETHER = 64
"""Frames parsed at once: few enough that the collector of cycles does not start for them."""

LUMP = 1 << 12
"""A read of more bytes than this is worth dividing into whole events and what was cut."""

LESSONS = 16
"""How often a stream may show a new pattern of its frames."""

Counts = NDArray[np.int64]
Frame = dict[str, Any]

MORE = "the server sent more tokens after the answer's finish and usage"

_NONE = 255
_DONE = b"[DONE]"
_FAILED = ("error", "abort", "cancelled")
_COMPLAINTS = ("message", "detail", "code")
_ODD = (AttributeError, IndexError, KeyError, TypeError, ValueError)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Contents:
    """What an answer held. The arrays have one entry a piece; absent is None.

    `finished` is true where an end of its body would be the end of the answer: after a finish
    reason, or with the usage of the whole in the last frame. `terminated` is true where `[DONE]`
    came, and `done` where the answer is whole whatever becomes of its connection. `frames` counts
    everything that came before `[DONE]`, pieces or not. Server words are as long as the server made
    them.
    """

    stamps: Moments
    tokens: NDArray[np.int32] | None
    kinds: NDArray[np.uint8]
    frames: int
    finished: bool
    terminated: bool
    done: bool
    error: str | None
    finish_reason: str | None
    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    server_queue: float | None
    server_ttft: float | None
    draft_tokens: int | None
    accepted_tokens: int | None
    fingerprint: str | None
    model: str | None


class Transcript:
    """Takes the reads of one answer, of chat or of completions, and gives its contents.

    A frame is a piece where it carries text (answer, reasoning or a tool call), token ids, or a
    per-chunk count that rose. A frame that only names the role is none.
    """

    def __init__(self) -> None:
        self._reader = Reader()
        # Arrays, because the collector walks long lists again and again.
        self._stamps = array("d")
        self._kinds = array("B")
        self._counts = array("q")
        self._ids = array("q")
        self._held: list[bytes] = []
        self._moments: list[float] = []
        self._looked = 0
        self._frames = 0
        self._terminated = False
        self._summed = False
        self._whole = False
        self._error: str | None = None
        self._finish: str | None = None
        self._fingerprint: str | None = None
        self._model: str | None = None
        self._usage: Frame = {}
        self._metrics: Frame = {}
        self._pattern: Pattern | None = None
        self._kind = _NONE
        self._lessons = 0

    def add(self, stamp: float, data: bytes) -> None:
        """Reads what one read of the socket brought."""
        if not self._repeated(stamp, data):
            if len(data) > LUMP:
                self._divide(stamp, data)
            else:
                self._feed(stamp, data)

    def _divide(self, stamp: float, data: bytes) -> None:
        """Reads a lump whose first and last events may be cut."""
        begin = 0 if self._reader.idle else data.find(b"\n\n") + 2
        end = data.rfind(b"\n\n") + 2
        self._feed(stamp, data[:begin])
        if self._repeated(stamp, data[begin:end]):
            begin = end
        self._feed(stamp, data[begin:])

    def _feed(self, stamp: float, data: bytes) -> None:
        if payloads := self._reader.feed(data):
            self._held += payloads
            self._moments += [stamp] * len(payloads)
            if len(self._held) >= TOGETHER:
                self._flush()

    def began(self) -> bool:
        """Whether a token has come, asked again and again until one has."""
        self._flush()
        looked, self._looked = self._looked, len(self._kinds)
        rows = zip(self._kinds[looked:], self._counts[looked:], self._ids[looked:], strict=True)
        return any(kind != _NONE or count > 0 or ids > 0 for kind, count, ids in rows)

    def end(self, stamp: float) -> Contents:
        """What it all came to, the last read having come at `stamp`."""
        self._flush()
        rest = self._reader.rest()
        if rest == _DONE or _whole(rest):
            self._take(stamp, rest)
        usage, drafts = self._usage, _nested(self._metrics, "speculative_decoding")
        stamps, kinds, tokens = self._pieces()
        finished = bool(self._finish) or self._summed
        return Contents(
            stamps=stamps,
            tokens=tokens,
            kinds=kinds,
            frames=self._frames,
            finished=finished,
            terminated=self._terminated,
            done=self._whole or (self._terminated and finished),
            error=self._error,
            finish_reason=self._finish and str(self._finish),
            input_tokens=_count(usage, "prompt_tokens"),
            output_tokens=_count(usage, "completion_tokens"),
            cached_tokens=_count(_nested(usage, "prompt_tokens_details"), "cached_tokens"),
            server_queue=_seconds(self._metrics, "queue_time_ms"),
            server_ttft=_seconds(self._metrics, "time_to_first_token_ms"),
            draft_tokens=_count(drafts, "num_draft_tokens"),
            accepted_tokens=_count(drafts, "num_accepted_draft_tokens"),
            fingerprint=self._fingerprint and str(self._fingerprint),
            model=self._model and str(self._model),
        )

    def _flush(self) -> None:
        """Parses the frames that have been held back, some at once at half the cost of each."""
        held, moments = self._held, self._moments
        self._held, self._moments = [], []
        for start in range(0, len(held), TOGETHER):
            if self._terminated:
                return
            part = slice(start, start + TOGETHER)
            frames = _parsed(held[part])
            if frames is None:
                for stamp, payload in zip(moments[part], held[part], strict=True):
                    self._take(stamp, payload)
                continue
            self._frames += len(frames)
            for stamp, frame in zip(moments[part], frames, strict=True):
                try:
                    self._read(stamp, frame)
                except _ODD:
                    self._refuse(orjson.dumps(frame))
            if self._error is None:
                self._learn(held[part][-1], frames[-1])

    def _repeated(self, stamp: float, data: bytes) -> bool:
        """Takes whole frames that differ in their words alone from one that was parsed, if any."""
        if self._pattern is None or not self._reader.idle:
            return False
        events = self._pattern.events(data)
        if not events:
            return False
        # What is held may bring another pattern.
        kind = self._kind
        if self._held:
            self._flush()
        if self._terminated:
            return True
        if self._whole:
            self._fail(MORE)
        self._frames += events
        self._summed = False
        if events == 1:
            self._stamps.append(stamp)
            self._kinds.append(kind)
            self._counts.append(-1)
            self._ids.append(-1)
        else:
            self._stamps.extend([stamp] * events)
            self._kinds.extend([kind] * events)
            self._counts.extend([-1] * events)
            self._ids.extend([-1] * events)
        return True

    def _learn(self, payload: bytes, frame: Frame) -> None:
        """Takes a frame for the pattern of those to come, if it says nothing beside its words."""
        choices = frame.get("choices")
        if not choices or frame.get("usage") or self._lessons == LESSONS:
            return
        kind = _kind(choices[0])
        silent = not choices[0].get("finish_reason") and choices[0].get("token_ids") is None
        if silent and kind != _NONE:
            self._lessons += 1
            self._pattern, self._kind = Pattern.of(payload, frame), kind

    def _take(self, stamp: float, payload: bytes) -> None:
        if self._terminated:
            return
        self._frames += 1
        if payload == _DONE:
            self._terminated = True
            return
        try:
            self._read(stamp, orjson.loads(payload))
        except _ODD:
            self._refuse(payload)

    def _refuse(self, payload: bytes) -> None:
        self._fail(f"a frame of the stream could not be read: {said(payload)}")

    def _fail(self, sentence: str) -> None:
        """Notes why the answer failed; the first reason stays."""
        self._error = self._error or sentence

    def _read(self, stamp: float, frame: Frame) -> None:
        count = -1
        choices = frame.get("choices")
        if usage := frame.get("usage"):
            count = -1 if (found := _count(usage, "completion_tokens")) is None else found
            self._usage = usage
            self._metrics = _nested(frame, "metrics") or self._metrics
        failed = frame.get("error")
        if not choices:
            wordless = not usage and any(map(frame.get, _COMPLAINTS))
            failed = failed or frame.get("object") == "error" or wordless
            # A count in every frame says nothing of the end; one beside no choice does, until more
            # choices come.
            self._summed = self._summed or bool(usage)
        if failed:
            self._fail(f"the server sent an error: {_words(frame)}")
        if choices:
            self._summed = False
            self._choice(stamp, choices[0], count)
        if usage and self._finish:
            self._whole = True
        if self._fingerprint is None:
            self._fingerprint = frame.get("system_fingerprint")
        if self._model is None:
            self._model = frame.get("model")

    def _choice(self, stamp: float, choice: Frame, count: int) -> None:
        kind = _kind(choice)
        ids = choice.get("token_ids")
        if self._whole and (kind != _NONE or ids):
            self._fail(MORE)
        if finish := choice.get("finish_reason"):
            self._finish = finish
            if finish in _FAILED:
                self._fail(f"the server ended the answer with finish reason {finish}")
        elif kind == _NONE and not ids and "role" in (choice.get("delta") or ()):
            return
        many = -1 if ids is None else len(ids)
        self._stamps.append(stamp)
        self._kinds.append(kind)
        self._counts.append(count)
        self._ids.append(many)

    def _pieces(self) -> tuple[Moments, NDArray[np.uint8], NDArray[np.int32] | None]:
        """Stamps, kinds and tokens a piece, exact or absent."""
        kinds, counts, ids = np.array(self._kinds), np.array(self._counts), np.array(self._ids)
        text = kinds != _NONE
        total = _count(self._usage, "completion_tokens")
        # Usage that rides on the last frame only says nothing of the frames before it, and a count
        # that falls says nothing of any.
        counted = bool(len(counts)) and bool((np.diff(counts, prepend=0) >= 0).all())
        counted = counted and (total is None or total >= counts[-1])
        shown = text | (ids > 0)
        pieces = shown | (np.diff(counts, prepend=0) > 0) if counted else shown
        tokens = None
        summed = int(ids[shown].sum())
        if shown.any() and (ids[shown] >= 0).all() and total in (None, summed):
            pieces, tokens = shown, ids[shown].astype(np.int32)
        elif counted and pieces.any():
            tokens = _steps(counts[pieces], total)
        stamps = np.array(self._stamps)
        return stamps[pieces], _filled(kinds, text)[pieces], tokens


def _parsed(payloads: list[bytes]) -> list[Frame] | None:
    """The payloads as one JSON array of objects; None where they are not that."""
    try:
        frames: list[Frame] = orjson.loads(b"[%b]" % b",".join(payloads))
    except orjson.JSONDecodeError:
        return None
    if len(frames) != len(payloads) or not all(type(frame) is dict for frame in frames):
        return None
    return frames


def said(body: bytes) -> str:
    """A server's own words, from a body of any kind, on one line."""
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        found = None
    if isinstance(found, dict) and found:
        return _words(found)
    return " ".join(body.decode(errors="replace").split()) or "nothing"


def _words(frame: Frame) -> str:
    """The message of an error object, in any of its customary shapes."""
    error = frame.get("error") or frame
    if isinstance(error, dict):
        for name in ("message", "detail"):
            if error.get(name):
                return str(error[name])
        return orjson.dumps(error).decode()
    return str(error)


def _whole(payload: bytes) -> bool:
    """Whether an event that was cut short before its blank line is whole all the same."""
    try:
        return isinstance(orjson.loads(payload), dict)
    except orjson.JSONDecodeError:
        return False


def _kind(choice: Frame) -> int:
    delta = choice.get("delta")
    if delta is None:
        return ANSWER if choice.get("text") else _NONE
    if delta.get("content") or delta.get("refusal"):
        return ANSWER
    if delta.get("reasoning") or delta.get("reasoning_content"):
        return REASONING
    return TOOL if delta.get("tool_calls") or delta.get("function_call") else _NONE


def _steps(counts: Counts, total: int | None) -> NDArray[np.int32]:
    """Tokens a piece from a running count; what the last usage adds belongs to the last piece."""
    counts[-1] = max(counts[-1], total or 0)
    return np.diff(counts, prepend=0).astype(np.int32)


def _filled(kinds: NDArray[np.uint8], text: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Kinds in which tokens without text are of the kind that came before them."""
    last = np.maximum.accumulate(np.where(text, np.arange(len(kinds)), -1))
    return np.where(last >= 0, kinds[last], ANSWER).astype(np.uint8)


def _nested(frame: Frame, name: str) -> Frame:
    found = frame.get(name)
    return found if isinstance(found, dict) else {}


def _count(frame: Frame, name: str) -> int | None:
    found = frame.get(name)
    return found if type(found) is int and 0 <= found < 2**53 else None


def _seconds(frame: Frame, name: str) -> float | None:
    found = frame.get(name)
    return found / 1000 if isinstance(found, int | float) and found >= 0 else None
