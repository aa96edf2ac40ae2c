"""A loopback server that writes exact bytes at exact times, and remembers what it was asked."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import numpy as np
import orjson

from harness.client import Reply, Request
from harness.wire.client import HttpClient
from harness.wire.dialect import Dialect
from harness.wire.pool import plain
from harness.wire.render import Renderer
from workloads.prompt import Prompt

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A request as it arrived."""

    path: str
    headers: dict[str, str]
    body: bytes
    at: float

    @property
    def fields(self) -> dict[str, Any]:
        return orjson.loads(self.body)


@dataclass(kw_only=True)
class Scripted:
    """What the server was asked, how many requests were in flight at most, and where it is."""

    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    in_flight: int = 0
    peak: int = 0
    connections: int = 0


Answer = Callable[[Asked, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(answer: Answer, trust: ssl.SSLContext | None = None) -> AsyncIterator[Scripted]:
    """A server that lets `answer` write the bytes of every response."""
    scripted = Scripted()
    tasks: set[asyncio.Task[None]] = set()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        scripted.connections += 1
        try:
            while asked := await _request(reader):
                scripted.asked.append(asked)
                scripted.in_flight += 1
                scripted.peak = max(scripted.peak, scripted.in_flight)
                try:
                    await answer(asked, reader, writer)
                finally:
                    scripted.in_flight -= 1
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0, limit=1 << 24, backlog=512, ssl=trust)
    scripted.url = f"http{'s' if trust else ''}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield scripted
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks)


async def _request(reader: asyncio.StreamReader) -> Asked | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode().splitlines()
    headers = dict(line.split(": ", 1) for line in lines if line)
    headers = {name.lower(): value for name, value in headers.items()}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Asked(path=first.split()[1], headers=headers, body=body, at=monotonic())


def chunk(data: bytes) -> bytes:
    """Bytes as one chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def script(*steps: tuple[float, bytes], end: bool = True, head: bytes = HEAD) -> Answer:
    """Writes the head with the first step, each step's bytes at its seconds since the request."""

    async def answer(asked: Asked, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        before = head
        for moment, data in steps:
            await asyncio.sleep(asked.at + moment - monotonic())
            writer.write(before + chunk(data))
            before = b""
        writer.write(before + END if end else before)
        await writer.drain()
        if not end:
            writer.close()

    return answer


def whole(status: str, body: bytes, kind: str = "application/json") -> Answer:
    """Answers with one plain body."""

    async def answer(_: Asked, __: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        length = len(body)
        head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()

    return answer


def frame(value: Any) -> bytes:
    return b"data: %b\n\n" % orjson.dumps(value)


def chat(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    """A chat frame."""
    return frame({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more})


ROLE = chat({"role": "assistant", "content": ""})


def c(text: str, **more: Any) -> bytes:
    return chat({"content": text}, **more)


def r(text: str, key: str = "reasoning_content") -> bytes:
    return chat({key: text})


def t(arguments: str) -> bytes:
    return chat({"tool_calls": [{"index": 0, "function": {"arguments": arguments}}]})


def usage(prompt: int, completion: int, cached: int | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": completion}
    if cached is not None:
        found["prompt_tokens_details"] = {"cached_tokens": cached}
    return found


def u(prompt: int, completion: int, **more: Any) -> bytes:
    return frame({"choices": [], "usage": usage(prompt, completion), **more})


def stop(**more: Any) -> bytes:
    return chat({}, "stop", **more)


def completion(text: str, finish: str | None = None, ids: list[int] | None = None) -> bytes:
    """A completions frame."""
    choice: dict[str, Any] = {"index": 0, "text": text, "finish_reason": finish}
    if ids is not None:
        choice["token_ids"] = ids
    return frame({"choices": [choice]})


def request(name: str = "r1", tokens: int = 6, output: int = 4, rank: int | None = None) -> Request:
    prompt = Prompt(
        seeds=np.array([1, 2], dtype=np.uint64), tokens=np.array([2, tokens - 2], dtype=np.int64)
    )
    return Request(id=name, prompt=prompt, output=output, session="s1", rank=rank)


@asynccontextmanager
async def client(
    url: str, dialect: Dialect | None = None, **options: Any
) -> AsyncIterator[HttpClient]:
    """A client of the server, closed at the end."""
    made = HttpClient(url, dialect or Dialect(model="m"), Renderer(plain(1000)), **options)
    try:
        yield made
    finally:
        await made.close()


async def ask(
    sender: HttpClient,
    asked: Request | None = None,
    cut: asyncio.Event | None = None,
    firsts: list[float] | None = None,
) -> Reply:
    firsts = [] if firsts is None else firsts
    return await sender.send(asked or request(), cut=cut or asyncio.Event(), on_first=firsts.append)


def reply_to(answer: Answer, **options: Any) -> tuple[Reply, Scripted]:
    """The reply to one request under a script, and what the server saw."""

    async def main() -> tuple[Reply, Scripted]:
        async with serving(answer) as server, client(server.url, **options) as sender:
            return await ask(sender), server

    return asyncio.run(main())
