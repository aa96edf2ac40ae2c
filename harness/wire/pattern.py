"""What the plain frames of one stream have in common, so that most of them need no parsing."""

from dataclasses import dataclass
from typing import Any, Self

import orjson

HARMLESS = bytes(byte for byte in range(32, 256) if byte not in b'"\\')
"""Bytes that stand for themselves in a JSON string."""

KEYS = (b"content", b"text", b"reasoning", b"reasoning_content")

_ESCAPES = (b"\\\\", b'\\"', b"\\n", b"\\t", b"\\r", b"\\/", b"\\b", b"\\f")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pattern:
    """Events that are the same to the byte but for the words of one JSON string.

    `head` is what comes before the words, `tail` what comes after them to the end of the event,
    `between` what lies between the words of two events in a row; `begin` and `end` are where the
    words of data that holds one event begin and end.
    """

    head: bytes
    tail: bytes
    between: bytes
    begin: int
    end: int

    @classmethod
    def of(cls, payload: bytes, frame: dict[str, Any]) -> Self | None:
        """The pattern that the frame of this payload follows, if its words can be told apart."""
        choice = frame["choices"][0]
        words = choice.get("delta") or choice
        for key in KEYS:
            before, found, rest = payload.partition(b'"%b":"' % key)
            value, name = words.get(key.decode()) if found else None, key.decode()
            if not isinstance(value, str) or not value:
                continue
            after = rest[len(orjson.dumps(value)) - 2 :]
            head = before + found
            # The proof that these words and no others stand at this place.
            words[name] = "~"
            try:
                same = orjson.loads(head + b"~" + after) == frame
            except orjson.JSONDecodeError:
                same = False
            words[name] = value
            if same and b"\n" not in payload and b"\r" not in payload:
                head, tail = b"data: " + head, after + b"\n\n"
                between = tail + head
                return cls(head=head, tail=tail, between=between, begin=len(head), end=-len(tail))
        return None

    def events(self, data: bytes) -> int:
        """How many events the data holds, if it is whole events of this pattern; 0 if it is not."""
        if not data.startswith(self.head) or not data.endswith(self.tail):
            return 0
        words = data[self.begin : self.end]
        if len(words) <= len(self.between):
            # A head and a tail that share bytes leave no words between them.
            return 1 if words and _plain(words) else 0
        every = words.split(self.between)
        return len(every) if all(every) and _plain(b" ".join(every)) else 0


def _plain(words: bytes) -> bool:
    """Whether these are the insides of a JSON string."""
    if words.translate(None, HARMLESS):
        for escape in _ESCAPES:
            words = words.replace(escape, b" ")
        if words.translate(None, HARMLESS):
            return False
    try:
        return words.isascii() or bool(words.decode())
    except UnicodeDecodeError:
        return False
