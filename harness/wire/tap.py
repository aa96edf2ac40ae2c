"""The hook in aiohttp's connections: moments taken where the socket is read and written.

The only file that knows aiohttp's insides; tested with 3.12 to 3.14 (see docs/client.md).
"""

import asyncio
import os
import re
import select
import ssl
from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.client_proto import ResponseHandler
from aiohttp.payload import Payload

from harness.wire.frames import Transcript
from results.errors import EngineError

READ = 1 << 16
"""Bytes asked of the socket at once: at asyncio's own 256 KiB each read maps and unmaps memory."""

SLICE = 1 << 18
"""Bytes of a body written at once."""

SMALL = 1 << 12
"""Bytes of a read up to which aiohttp may be spared; beyond, it is the faster."""

KEPT = 4.0
"""Seconds an idle connection is kept: uvicorn closes its end after 5, and nothing is sent twice."""

TAIL = 16
"""Bytes kept of the read before, so that a line cut between reads is seen."""

_DATA = re.compile(rb"[\r\n]data:(?! ?[\r\n])")
# JSON holds no bare line end, so this is never part of an answer's text.
_DONE = re.compile(rb"[\r\n]data: ?\[DONE\][\r\n]")

_ONE = {len(head) + size + 2: head for size in range(1, SMALL) for head in [b"%x\r\n" % size]}
"""How a read of so many bytes begins that is one chunk, whose size has no leading zero."""

UNLIMITED = 1 << 30
"""The size of aiohttp's buffer, so that it never stops reading to wait for us."""


class Exchange:
    """One request under way: when its body began to leave, and every read that answered it.

    Read i came at `stamps[i]` and brought `parts[i]` of the response's body; the transcript has
    been told of the first `told`. `moved` is when a frame last began to come, or the first token
    was whole; `ended` when `[DONE]` came, after which nothing is kept. `on_step` is called when the
    request's body begins to leave, when the first token has come, and at `[DONE]`.
    """

    def __init__(self, on_first: Callable[[float], None]) -> None:
        self.transcript = Transcript()
        self.on_first = on_first
        self.on_step: Callable[[], None] = nothing
        self.tap: Tap | None = None
        self.content: aiohttp.StreamReader | None = None
        self.sent: float | None = None
        self.first: float | None = None
        self.moved = 0.0
        self.ended: float | None = None
        self.tail = b"\n"
        self.stamps = array("d")
        self.parts: list[bytes] = []
        self.told = 0
        self.status: int | None = None
        self.kind: str = ""
        self.closed: float | None = None

    def begin(self, tap: object) -> None:
        """Notes that the first byte of the body is about to be written on this connection."""
        if isinstance(tap, Tap):
            self.tap = tap
            tap.attach(self)
        self.sent = monotonic()
        self.on_step()

    def gather(self, stamp: float, part: bytes) -> None:
        """Keeps what a read brought; until the first token has come, also looks into it."""
        if self.ended is not None:
            return
        self.stamps.append(stamp)
        self.parts.append(part)
        if len(part) < TAIL or not part.startswith(b"data: {") or b"[DONE]" in part:
            self._look(stamp, part)
        else:
            self.moved, self.tail = stamp, part
        if self.first is None:
            self.told = len(self.parts)
            self.transcript.add(stamp, part)
            if self.transcript.began():
                self.first = self.moved = stamp
                self.on_first(stamp)
                self.on_step()

    def _look(self, stamp: float, part: bytes) -> None:
        """Sees whether a read that is no plain frame begins one, or ends the stream."""
        recent = self.tail[-TAIL:] + part
        self.tail = recent[-TAIL:]
        if part.startswith(b"data: {") or _DATA.search(recent):
            self.moved = stamp
        if b"DONE]" in recent and _DONE.search(recent):
            self.ended = stamp
            self.on_step()

    def check(self) -> None:
        """Raises EngineError where aiohttp has changed so that no moments could be taken."""
        untapped = self.sent is not None and self.tap is None
        unseen = self.status is not None and self.content is None
        lost = self.content is not None and self.content.total_bytes and not self.parts
        if untapped or unseen or lost:
            raise unfit()

    def leave(self) -> None:
        """Lets go of the connection."""
        if self.tap is not None:
            self.tap.detach(self)


class Tap(ResponseHandler):
    """A connection that stamps each read before anything is parsed.

    What aiohttp makes of a read is taken from its buffer, and stays there: to take it out makes
    aiohttp parse anew for each chunk, and fails when the connection has. A read that is whole
    chunks, when the last one ended between two, is not shown to aiohttp at all, which costs half.
    What comes when nothing is asked for ends the connection: it would be taken for the next answer.
    """

    exchange: Exchange | None = None
    used = False
    buffer: Sequence[bytes] = ()
    taken = 0
    between = False
    opening = False

    def attach(self, exchange: Exchange) -> None:
        """Gives what comes from now on to an exchange."""
        self.exchange, self.used = exchange, True
        self.buffer, self.taken, self.between = (), 0, False

    def detach(self, exchange: Exchange) -> None:
        """Gives nothing more to the exchange."""
        if self.exchange is exchange:
            self.exchange = None
            self.between = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Has the transport read in portions that cost no mapping of memory."""
        super().connection_made(transport)
        if hasattr(transport, "max_size"):
            transport.max_size = READ

    def data_received(self, data: bytes) -> None:
        """Stamps a read, and lets aiohttp have it if it must."""
        stamp = monotonic()
        exchange = self.exchange
        if exchange is None:
            # A proxy that opens a tunnel answers before there is an exchange.
            if self.used and data:
                self.close()
            else:
                super().data_received(data)
            return
        if self.between and data:
            if part := unchunked(data):
                exchange.gather(stamp, part)
                return
            self.between = False
        super().data_received(data)
        if fault := self.exception():
            self._break(exchange, fault)
        if self.opening:
            self.opening = False
            head, blank, rest = data.partition(b"\r\n\r\n")
            whole = head.startswith(b"HTTP/") and bool(blank)
            self.between = whole and (not rest or bool(unchunked(rest)))
        if new := len(self.buffer) - self.taken:
            self.taken += new
            parts = [self.buffer[place] for place in range(-new, 0)]
            exchange.gather(stamp, b"".join(parts))

    def _break(self, exchange: Exchange, fault: BaseException) -> None:
        """Wakes the reader of a body, whom aiohttp tells nothing when it ends the connection."""
        if exchange.content is not None and not exchange.content.is_eof():
            words = getattr(fault, "message", "") or str(fault)
            exchange.content.set_exception(aiohttp.ClientPayloadError(words))

    def feed_data(self, data: Any, size: int = 0) -> None:
        """Notes the body of the first response whose head is complete and final."""
        message, content = data
        if self.exchange is not None and message.code >= 200:
            if self.exchange.content is not None:
                self.close()
                return
            self.exchange.content = content
            self.buffer, self.taken = getattr(content, "_buffer", ()), 0
            self.opening = bool(message.chunked and not message.compression)
        super().feed_data(data, size)

    def is_connected(self) -> bool:
        """Whether it can carry a request: it is open, and nothing waits in it to be read."""
        exchange = self.exchange
        idle = exchange is None or (exchange.content is not None and exchange.content.is_eof())
        return super().is_connected() and not (self.used and idle and _readable(self.transport))

    def close(self) -> None:
        """Ends the connection, also where the rest of a body waits to leave that nobody reads."""
        transport = self.transport
        # One of TLS that is closing no longer knows what waits in it.
        open_end = transport is not None and not transport.is_closing()
        if transport is not None and open_end and transport.get_write_buffer_size():
            transport.abort()
        super().close()

    def set_exception(self, exc: BaseException, exc_cause: Any = None) -> None:
        """Notes why no answer can come, once what had come by then is read."""
        self._rescue(exc)
        super().set_exception(exc, *(() if exc_cause is None else (exc_cause,)))

    def connection_lost(self, exc: BaseException | None) -> None:
        """Notes the end of the connection, once what had come by then is read."""
        self._rescue(exc)
        super().connection_lost(exc)

    def _rescue(self, exc: BaseException | None) -> None:
        """Reads what a server said before it stopped to listen: a failed write hides it."""
        exchange, transport = self.exchange, self.transport
        if exchange is None or exchange.content is not None or not isinstance(exc, OSError):
            return
        if transport is None or transport.get_extra_info("ssl_object") is not None:
            return
        with suppress(OSError):
            while data := os.read(transport.get_extra_info("socket").fileno(), READ):
                self.data_received(data)


def _readable(transport: asyncio.BaseTransport | None) -> bool:
    """Whether a transport's socket has bytes, or the end of them, that nobody has read."""
    if transport is None:
        return False
    poll = select.poll()
    poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
    return bool(poll.poll(0))


def unchunked(data: bytes) -> bytes:
    """What chunks hold, if the data is some whole chunks and nothing else; empty if it is not."""
    if (head := _ONE.get(len(data))) and data.startswith(head) and data.endswith(b"\r\n"):
        return data[len(head) : -2]
    parts = []
    rest = data if len(data) <= SMALL else b""
    while rest:
        line, _, rest = rest.partition(b"\r\n")
        try:
            size = int(line, 16) if line.isalnum() else 0
        except ValueError:
            return b""
        # The chunk without content ends the body, so aiohttp has to see it.
        if not size or rest[size : size + 2] != b"\r\n":
            return b""
        parts.append(rest[:size])
        rest = rest[size + 2 :]
    return parts[0] if len(parts) == 1 else b"".join(parts)


class Body(Payload):
    """A request's body, which tells its exchange when it begins to leave."""

    def __init__(self, data: bytes, exchange: Exchange) -> None:
        super().__init__(data, content_type="application/json")
        self._size = len(data)
        self._exchange = exchange

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """The body as text."""
        return bytes(self._value).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Writes the body, a slice at a time so that a long one does not hold the loop."""
        self._exchange.begin(getattr(writer, "protocol", None))
        whole = memoryview(self._value)
        for start in range(0, len(whole), SLICE):
            await writer.write(whole[start : start + SLICE])

    async def write_with_length(self, writer: AbstractStreamWriter, _: int | None) -> None:
        """Writes the body, whose length is known."""
        await self.write(writer)


def connector(trust: ssl.SSLContext | None) -> aiohttp.TCPConnector:
    """Connections without limit, all of them tapped; `trust` is what TLS is checked against.

    Raises EngineError where aiohttp is no longer made the way the tap needs.
    """
    made = aiohttp.TCPConnector(limit=0, ssl=trust or True, keepalive_timeout=KEPT)
    factory = getattr(made, "_factory", None)
    if not isinstance(factory, partial) or factory.func is not ResponseHandler:
        raise unfit()
    tapped: Any = partial(Tap, loop=asyncio.get_running_loop())
    made._factory = tapped  # noqa: SLF001
    return made


def unfit() -> EngineError:
    """What to say where no moments can be taken."""
    return EngineError(
        f"aiohttp {aiohttp.__version__}: its connections cannot be tapped, so no moment would be "
        "that of the socket read; install a version named in docs/client.md"
    )


def nothing() -> None:
    """What is done at a step for which nobody waits."""
