"""Server-sent events out of bytes, however the network cut them."""

from collections.abc import Iterable, Iterator

import orjson

BOM = b"\xef\xbb\xbf"


class Reader:
    """Takes the bytes of one stream a read at a time, and gives the payloads they complete.

    A payload is the data of one event, its lines joined by a line feed; that of an event named
    `error` is an error object. Follows "Parsing an event stream" of the HTML standard; events
    without data are left out.
    """

    def __init__(self) -> None:
        self._opening: bytes | None = b""
        self._returned = False
        self._pending: list[bytes] = []

    @property
    def idle(self) -> bool:
        """Whether the next byte begins an event."""
        return not self._pending and not self._returned and self._opening is None

    def feed(self, data: bytes) -> list[bytes]:
        """The payloads completed by this read, in order."""
        if self._returned or b"\r" in data or self._opening is not None:
            data = self._plain(data)
        line = data.find(b"\n")
        if line < 0:
            self._pending.append(data)
            return []
        if self._pending:
            data = b"".join([*self._pending, data])
        elif 6 < line == len(data) - 2 and data.startswith(b"data: ") and data.endswith(b"\n"):
            return [data[6:-2]]
        end = data.rfind(b"\n\n")
        if end < 0:
            self._pending = [data]
            return []
        rest = data[end + 2 :]
        self._pending = [rest] if rest else []
        return _payloads(data[:end])

    def rest(self) -> bytes:
        """The payload of an event whose closing blank line never came; empty if there is none."""
        return _payload(b"".join(self._pending))

    def _plain(self, data: bytes) -> bytes:
        """The bytes without a byte order mark, every line ended by a single line feed."""
        if self._opening is not None:
            data = self._opening + data
            if len(data) < len(BOM) and BOM.startswith(data):
                self._opening = data
                return b""
            self._opening = None
            data = data.removeprefix(BOM)
        if self._returned and data:
            # The carriage return that ended the last read has ended the line already.
            data = data.removeprefix(b"\n")
            self._returned = False
        if b"\r" in data:
            self._returned = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return data


def payloads(reads: Iterable[tuple[float, bytes]]) -> Iterator[tuple[float, bytes]]:
    """Each payload with the stamp of the read that completed it."""
    reader = Reader()
    stamp = 0.0
    for stamp, data in reads:
        for payload in reader.feed(data):
            yield stamp, payload
    if rest := reader.rest():
        yield stamp, rest


def _payloads(events: bytes) -> list[bytes]:
    """The payloads of whole events."""
    if events.startswith(b"data: "):
        plain = events[6:].split(b"\n\ndata: ")
        # Every line feed lies between two of these, so there is nothing else in the stream.
        if events.count(b"\n") == 2 * len(plain) - 2 and all(plain):
            return plain
    return [payload for event in events.split(b"\n\n") if (payload := _payload(event))]


def _payload(event: bytes) -> bytes:
    if event.startswith(b"data: ") and b"\n" not in event:
        return event[6:]
    lines = event.split(b"\n")
    found = b"\n".join(line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:"))
    names = [line[6:].strip() for line in lines if line.startswith(b"event:")]
    return _error(found) if found and names and names[-1] == b"error" else found


def _error(words: bytes) -> bytes:
    """The data of an error event as an object that says so."""
    try:
        found = orjson.loads(words)
    except orjson.JSONDecodeError:
        found = words.decode(errors="replace")
    if isinstance(found, dict) and found.get("error"):
        return words
    return orjson.dumps({"error": found or "an error without words"})
