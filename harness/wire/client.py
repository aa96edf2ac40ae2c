"""Sends requests over HTTP and gives back what came of them, stamped at the socket."""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from time import monotonic

import aiohttp
import orjson

from harness.client import Reply, Request
from harness.wire.deadline import Deadline, Timeouts
from harness.wire.dialect import Dialect, worded
from harness.wire.frames import Contents, said
from harness.wire.render import Renderer
from harness.wire.tap import UNLIMITED, Body, Exchange, connector
from results.errors import InputError

BATCH = 1 << 15
"""Bytes parsed before the loop may read its sockets again."""

LONGEST = 400
"""How many characters of an error are kept."""

_FAULTS = (aiohttp.ClientError, OSError, asyncio.TimeoutError, ValueError)


@dataclass(slots=True, kw_only=True)
class Seen:
    """What the replies of a server have shown of it so far."""

    replies: int = 0
    usage: int = 0
    cached: int = 0
    exact: int = 0
    fingerprints: set[str] = field(default_factory=set)


class HttpClient:
    """A client of one server, with as many connections as there are requests in flight.

    Is made inside the running loop and must be closed. `key` is sent as a bearer token and shown
    nowhere. Nothing is sent twice, and proxies of the environment are not used.
    """

    def __init__(
        self,
        url: str,
        dialect: Dialect,
        renderer: Renderer,
        *,
        timeouts: Timeouts | None = None,
        headers: Mapping[str, str] | None = None,
        key: str | None = None,
        ca_file: str | None = None,
        proxy: str | None = None,
    ) -> None:
        self.seen = Seen()
        self.url = url.rstrip("/").removesuffix("/v1")
        self._dialect = dialect
        self._renderer = renderer
        self._timeouts = timeouts or Timeouts()
        # As it is, and as JSON would quote it.
        self._secrets = (key, orjson.dumps(key).decode()[1:-1]) if key else ()
        self._bodies: dict[str, bytes] = {}
        # Compressed frames would reach us in lumps.
        shared = {"Accept": "text/event-stream", "Accept-Encoding": "identity", **(headers or {})}
        if key:
            shared["Authorization"] = f"Bearer {key}"
        self._session = aiohttp.ClientSession(
            connector=connector(_trust(ca_file)),
            timeout=aiohttp.ClientTimeout(total=None),
            headers=shared,
            read_bufsize=UNLIMITED,
            trust_env=False,
            proxy=proxy,
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def close(self) -> None:
        """Closes every connection."""
        await self._session.close()

    async def prepare(self, request: Request) -> bytes:
        """The request's body, made ahead of time and kept until the request is sent."""
        body = await worded(self._dialect, request, self._renderer)
        self._bodies[request.id] = body
        return body

    async def send(
        self, request: Request, *, cut: asyncio.Event, on_first: Callable[[float], None]
    ) -> Reply:
        """Sends one request and gives back its reply, as `Client` says.

        Raises EngineError where aiohttp has changed so that no moments can be taken.
        """
        asked = self._bodies.pop(request.id, None)
        if asked is None:
            asked = await worded(self._dialect, request, self._renderer)
        exchange = Exchange(on_first)
        post = asyncio.create_task(self._post(request, asked, exchange))
        cutting = asyncio.create_task(cut.wait())
        deadline = Deadline(self._timeouts, exchange, post.cancel)
        try:
            await asyncio.wait({post, cutting}, return_when=asyncio.FIRST_COMPLETED)
            stopped = not post.done()
        finally:
            deadline.stop()
            cutting.cancel()
            post.cancel()
            await asyncio.wait({post, cutting})
            fault = None if post.cancelled() else post.exception()
        closed = exchange.closed or monotonic()
        exchange.check()
        contents = await _contents(exchange)
        contents = replace(contents, finish_reason=self._shown(contents.finish_reason))
        reply = _reply(request, exchange, contents, closed)
        if stopped:
            return replace(reply, cut=True)
        error = _error(exchange, contents, deadline.passed or self._broken(fault))
        self._note(contents, error)
        return replace(reply, error=self._shown(error))

    async def get(self, path: str) -> object:
        """What the server says at a path, as JSON; None where it says nothing of use."""
        limit = aiohttp.ClientTimeout(total=self._timeouts.connect)
        try:
            async with self._session.get(self.url + path, timeout=limit) as response:
                return await response.json(content_type=None) if response.status == 200 else None
        except _FAULTS:
            return None

    async def _post(self, request: Request, body: bytes, exchange: Exchange) -> None:
        headers = {
            "X-Request-Id": request.id,
            "X-Session-ID": request.session,
            "X-Correlation-ID": request.session,
        }
        if request.rank is not None:
            headers["X-data-parallel-rank"] = str(request.rank)
        url = self.url + self._dialect.path
        data = Body(body, exchange)
        try:
            async with self._session.post(
                url, data=data, headers=headers, allow_redirects=False
            ) as response:
                exchange.status = response.status
                exchange.kind = response.content_type
                try:
                    await response.content.wait_eof()
                finally:
                    exchange.leave()
        finally:
            exchange.closed = monotonic()
            exchange.leave()

    def _broken(self, fault: BaseException | None) -> str | None:
        """What broke the exchange, in words, if something did."""
        if fault is None:
            return None
        if not isinstance(fault, _FAULTS):
            raise fault
        if isinstance(fault, aiohttp.ClientConnectorError):
            # Its own words name the address twice more, and ssl where there is none.
            why = fault.os_error.strerror or type(fault.os_error).__name__
            return f"no connection to {self.url}: {why.lower()}"
        return f"the connection to {self.url} failed: {fault or type(fault).__name__}"

    def _note(self, contents: Contents, error: str | None) -> None:
        if error is None:
            self.seen.replies += 1
            self.seen.usage += contents.output_tokens is not None
            self.seen.cached += contents.cached_tokens is not None
            self.seen.exact += contents.tokens is not None
            if fingerprint := self._shown(contents.fingerprint):
                self.seen.fingerprints.add(fingerprint)

    def _shown(self, text: str | None) -> str | None:
        """A server's words within bounds, without the key, should it have sent that back."""
        if text is None:
            return None
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


async def _contents(exchange: Exchange) -> Contents:
    """Parses all that came, in batches between which other streams are read."""
    transcript, told = exchange.transcript, exchange.told
    stamp = exchange.stamps[-1] if exchange.stamps else 0.0
    size = 0
    for moment, part in zip(exchange.stamps[told:], exchange.parts[told:], strict=True):
        transcript.add(moment, part)
        size += len(part)
        if size > BATCH:
            size = 0
            await asyncio.sleep(0)
    return transcript.end(stamp)


def _reply(request: Request, exchange: Exchange, contents: Contents, closed: float) -> Reply:
    return Reply(
        sent=exchange.sent,
        stamps=contents.stamps,
        tokens=contents.tokens,
        kinds=contents.kinds,
        closed=closed,
        status=exchange.status,
        finish_reason=contents.finish_reason,
        input_tokens=contents.input_tokens,
        output_tokens=contents.output_tokens,
        cached_tokens=contents.cached_tokens,
        rank=request.rank,
        server_queue=contents.server_queue,
        server_ttft=contents.server_ttft,
        draft_tokens=contents.draft_tokens,
        accepted_tokens=contents.accepted_tokens,
    )


def _error(exchange: Exchange, contents: Contents, fault: str | None) -> str | None:
    """Why the request failed, if it did."""
    body = b"".join(exchange.parts) if exchange.status != 200 or not contents.frames else b""
    if exchange.status is not None and exchange.status != 200:
        return f"HTTP {exchange.status}: {said(body)}"
    tokens = bool(len(contents.stamps) or contents.output_tokens)
    if contents.error or (contents.done and tokens):
        return contents.error
    if fault:
        return fault
    if body and not contents.frames:
        return f"HTTP 200 with {exchange.kind} instead of a stream: {said(body)}"
    if not contents.done and not contents.finish_reason:
        return "the stream ended before its finish"
    return None if tokens else "the stream ended without a token"


def _trust(ca_file: str | None) -> ssl.SSLContext | None:
    if ca_file is None:
        return None
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise InputError(f"ca_file {ca_file}: {error}") from error
