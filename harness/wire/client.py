"""Sends requests over HTTP and gives back what came of them, stamped at the socket."""

import asyncio
import re
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle
from time import monotonic
from typing import Any

import aiohttp
import orjson

from harness.client import Page, Reply, Request, Room
from harness.wire.deadline import Deadline, Timeouts
from harness.wire.dialect import CHAT, Dialect, worded
from harness.wire.forced import answer, strayed
from harness.wire.frames import Contents, said
from harness.wire.render import Renderer
from harness.wire.speech import speech
from harness.wire.tap import KEPT, UNLIMITED, Body, Exchange, connector
from results.errors import InputError

BATCH = 1 << 15
"""Bytes parsed before the loop may read its sockets again."""

LONGEST = 400
"""How many characters of an error are kept."""

MOST = 1 << 20
"""How many bytes of an answer to a question about the server are read: vLLM's can be long."""

DEEPEST = 32
"""How many levels such an answer may have."""

VARIETY = 16
"""How many names of models, and how many fingerprints, are kept."""

LARGEST = 1 << 24
"""How many bytes of a page of counters are read."""

PATIENCE = 5.0
"""Seconds in which such a page must have come."""

_FAULTS = (aiohttp.ClientError, OSError, asyncio.TimeoutError, ValueError)


@dataclass(slots=True, kw_only=True)
class Seen:
    """What the replies of a server have shown of it so far."""

    replies: int = 0
    usage: int = 0
    cached: int = 0
    exact: int = 0
    models: set[str] = field(default_factory=set)
    fingerprints: set[str] = field(default_factory=set)


class HttpClient:
    """A client of one server, with as many connections as there are requests in flight.

    Is made inside the running loop and must be closed. `key` is sent as a bearer token and shown
    nowhere. Nothing is sent twice, and proxies of the environment are not used. Questions about the
    server have connections of their own, so that no request has to wait for one. Where each rank
    has an address of its own, `ranks`, requests go there, and those of no rank to each in turn;
    otherwise they name their rank in a header, unless they are `routed`.
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
        ranks: Sequence[str] = (),
        routed: bool = False,
    ) -> None:
        self.seen = Seen()
        self._ranks = [url.rstrip("/").removesuffix("/v1") for url in ranks]
        self._turns = cycle(range(len(ranks)))
        self._routed = routed
        self.url = url.rstrip("/").removesuffix("/v1")
        self._dialect = dialect
        self._renderer = renderer
        self._timeouts = timeouts or Timeouts()
        # As it is, and as JSON would quote it.
        forms = (key, orjson.dumps(key).decode()[1:-1]) if key else ()
        self._secret = re.compile("|".join(map(re.escape, forms)) or "(?!)", re.IGNORECASE)
        self._bodies: dict[str, bytes] = {}
        trust = _trust(ca_file)
        # Compressed frames would reach us in lumps.
        shared = {"Accept-Encoding": "identity", **(headers or {})}
        if key:
            shared["Authorization"] = f"Bearer {key}"
        self._session = _session(connector(trust), {"Accept": "text/event-stream", **shared}, proxy)
        plain = aiohttp.TCPConnector(ssl=trust or True, keepalive_timeout=KEPT)
        self._questions = _session(plain, shared, proxy)

    async def close(self) -> None:
        """Closes every connection."""
        await self._session.close()
        await self._questions.close()

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
        rank = self._rank(request)
        post = asyncio.create_task(self._post(request, asked, exchange, rank))
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
        closed = exchange.ended or exchange.closed or monotonic()
        exchange.check()
        contents = await _contents(exchange)
        contents = replace(contents, finish_reason=self._shown(contents.finish_reason))
        reply = _reply(rank, exchange, contents, closed)
        if request.chat:
            reply = self._spoken(reply, exchange)
        if stopped and not (contents.done or contents.terminated):
            return replace(reply, cut=True)
        error = _error(exchange, contents, deadline.passed or self._broken(fault))
        if self._dialect.forced_outputs and not (error or request.chat):
            error = strayed(exchange.parts, await answer(request, self._renderer))
        self._note(contents, error)
        return replace(reply, error=self._shown(error))

    async def room(self, request: Request) -> Room:
        """How long a question is, and what the model can hold; absent where the server tells not.

        vLLM tells it of `/tokenize`.
        """
        body = await worded(self._dialect, request, self._renderer)
        told = await self._told("/tokenize", PATIENCE, LARGEST, asked=body)
        try:
            found = orjson.loads(told or b"{}")
        except orjson.JSONDecodeError:
            found = None
        found = found if isinstance(found, dict) else {}
        count, limit = found.get("count"), found.get("max_model_len")
        return Room(
            tokens=count if isinstance(count, int) else None,
            context=limit if isinstance(limit, int) else None,
        )

    def _spoken(self, reply: Reply, exchange: Exchange) -> Reply:
        """The reply with the words of the answer."""
        words = [self._secret.sub("***", one) for one in speech(exchange.parts)]
        return replace(reply, text=words[0], reasoning=words[1] or None)

    async def get(self, path: str, *, most: int = MOST) -> object:
        """What the server says at a path, as JSON without the key; None where that is of no use.

        Of no use are also more than `most` bytes, more than 32 levels, and a redirect.
        """
        body = await self._told(path, self._timeouts.connect, most)
        try:
            return None if body is None else self._redacted(orjson.loads(body), DEEPEST)
        except ValueError:
            return None

    def page(self, path: str, url: str | None = None) -> Page:
        """The page of text at a path, without the key; up to 16 MiB of it, and no redirect.

        It is the server's own, or that of another one at a `url`.
        """
        url = url or self.url

        async def read() -> str | None:
            body = await self._told(path, PATIENCE, LARGEST, url)
            try:
                return None if body is None else self._secret.sub("***", body.decode())
            except UnicodeDecodeError:
                return None

        return Page(url=url + path, read=read)

    async def _told(
        self,
        path: str,
        seconds: float,
        most: int,
        url: str | None = None,
        asked: bytes | None = None,
    ) -> bytes | None:
        """The bytes at a path, if there are no more than `most` and they come in time.

        Where a body is `asked`, it is sent there.
        """
        limit = aiohttp.ClientTimeout(total=seconds)
        parts, size = [], 0
        try:
            async with self._questions.request(
                "GET" if asked is None else "POST",
                (url or self.url) + path,
                data=asked,
                headers={"Content-Type": "application/json"} if asked else None,
                timeout=limit,
                allow_redirects=False,
            ) as response:
                async for part in response.content.iter_any():
                    parts.append(part)
                    size += len(part)
                    if size > most or response.status != 200:
                        return None
                return b"".join(parts) if response.status == 200 else None
        except _FAULTS:
            return None

    def _rank(self, request: Request) -> int | None:
        """The rank that it goes to, where that is known."""
        if self._ranks and request.rank is None:
            return next(self._turns)
        return None if self._routed else request.rank

    async def _post(
        self, request: Request, body: bytes, exchange: Exchange, rank: int | None
    ) -> None:
        headers = {
            "X-Request-Id": request.id,
            "X-Session-ID": request.tree or request.session,
            "X-Correlation-ID": request.session,
        }
        if rank is not None and not self._ranks:
            headers["X-data-parallel-rank"] = str(rank)
        place = self.url if rank is None or not self._ranks else self._ranks[rank]
        url = place + (CHAT if request.chat else self._dialect.path)
        data = Body(body, exchange)
        try:
            async with self._session.post(
                url, data=data, headers=headers, allow_redirects=False
            ) as response:
                exchange.status = response.status
                exchange.kind = response.content_type
                try:
                    # What broke before anyone waited would not wake the waiting.
                    if fault := response.content.exception():
                        raise fault
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
            cause = fault.args[-1]
            why = getattr(cause, "strerror", None) or type(cause).__name__
            return f"no connection to {self.url}: {why.lower()}"
        return f"the connection to {self.url} failed: {fault or type(fault).__name__}"

    def _note(self, contents: Contents, error: str | None) -> None:
        if error is None:
            self.seen.replies += 1
            self.seen.usage += contents.output_tokens is not None
            self.seen.cached += contents.cached_tokens is not None
            self.seen.exact += contents.tokens is not None
            for told, found in (
                (contents.model, self.seen.models),
                (contents.fingerprint, self.seen.fingerprints),
            ):
                if told and len(found) < VARIETY:
                    found.add(self._shown(told) or "")

    def _shown(self, text: str | None) -> str | None:
        """A server's words on a line within bounds, without the key, should it have sent that."""
        if text is None:
            return None
        text = self._secret.sub("***", text)
        text = text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
        return " ".join(_legible(text).split())

    def _redacted(self, value: Any, levels: int) -> Any:
        """A value of JSON, legible and without the key.

        Raises ValueError where it has more levels.
        """
        match value:
            case str():
                return _legible(self._secret.sub("***", value))
            case list() | dict() if not levels:
                raise ValueError("too many levels")
            case list():
                return [self._redacted(entry, levels - 1) for entry in value]
            case dict():
                pairs = value.items()
                return {self._redacted(k, 0): self._redacted(v, levels - 1) for k, v in pairs}
        return value


def _session(
    made: aiohttp.TCPConnector, headers: Mapping[str, str], proxy: str | None
) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=made,
        timeout=aiohttp.ClientTimeout(total=None),
        headers=headers,
        read_bufsize=UNLIMITED,
        trust_env=False,
        proxy=proxy,
        cookie_jar=aiohttp.DummyCookieJar(),
    )


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


def _reply(rank: int | None, exchange: Exchange, contents: Contents, closed: float) -> Reply:
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
        rank=rank,
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
    if fault and not contents.terminated:
        return fault
    if body and not contents.frames:
        return f"HTTP 200 with {exchange.kind} instead of a stream: {said(body)}"
    if not tokens and (contents.finished or contents.terminated):
        return "the stream ended without a token"
    return None if contents.finished else "the stream ended before its finish"


def _legible(text: str) -> str:
    """A text in which nothing moves a terminal's cursor."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


def _trust(ca_file: str | None) -> ssl.SSLContext | None:
    if ca_file is None:
        return None
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise InputError(f"ca_file {ca_file}: {error}") from error
