"""How late our stamps are: `paceline sim` paces 64 streams and logs the moment of every write.

Three readers take turns at one server, each in a process of its own: a bare epoll loop, our client,
and plain aiohttp iterating `response.content`. A stamp's lateness is stamp minus write, on one
monotonic clock. The goal: our p99 is at most the bare loop's plus 1 ms, and every token is counted.
Prints its figure last, and exits 0 only when that is reached. Takes about a minute on two cores.
"""

import argparse
import asyncio
import os
import select
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from urllib.parse import urlsplit

import aiohttp
import numpy as np
import orjson
from numpy.typing import NDArray

from harness.client import Reply, Request
from harness.wire.client import HttpClient
from harness.wire.dialect import Dialect
from harness.wire.pool import plain
from harness.wire.render import Renderer
from workloads.prompt import Prompt

STREAMS, PACE, TOKENS, ROUNDS = 64, 50, 150, 5
SLACK_MS = 1.0
SERVER_CORE, READER_CORE = 0, 1

Lateness = NDArray[np.float64]
Seen = dict[str, list[list[float]]]
"""Pairs of stamp and tokens, by request id."""


def names(prefix: str) -> list[str]:
    return [f"{prefix}-{number}" for number in range(STREAMS)]


def body(number: int) -> bytes:
    fields = {
        "prompt": list(range(number, number + 16)),
        "max_tokens": TOKENS,
        "stream": True,
        "return_token_ids": True,
        "stream_options": {"include_usage": True},
    }
    return orjson.dumps(fields)


def bare(url: str, prefix: str) -> Seen:
    """Sockets and epoll, nothing else; what was read is looked at afterwards."""
    place = urlsplit(url)
    epoll, streams = select.epoll(), {}
    for number, name in enumerate(names(prefix)):
        stream = socket.create_connection((place.hostname, place.port))
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream.setblocking(False)
        epoll.register(stream, select.EPOLLIN)
        streams[stream.fileno()] = (stream, name, list[tuple[float, bytes]](), body(number))
    for stream, name, _, data in streams.values():
        head = f"POST /v1/completions HTTP/1.1\r\nHost: sim\r\nX-Request-Id: {name}\r\n"
        stream.sendall(f"{head}Connection: close\r\nContent-Length: {len(data)}\r\n\r\n".encode())
        stream.sendall(data)
    left = set(streams)
    while left:
        for number, _ in epoll.poll():
            stream, _, reads, _ = streams[number]
            data = stream.recv(65536)
            reads.append((monotonic(), data))
            if not data:
                left.discard(number)
                epoll.unregister(number)
    return {name: list(_events(reads)) for _, name, reads, _ in streams.values()}


def _events(reads: list[tuple[float, bytes]]) -> Iterator[list[float]]:
    """One token for each event that a read completed."""
    last = b""
    for stamp, data in reads:
        for _ in range((last + data).count(b"\n\n")):
            yield [stamp, 1]
        last = data[-1:]


async def _ours(url: str, prefix: str) -> Seen:
    dialect = Dialect(model="simulated", body={"return_token_ids": True})
    client = HttpClient(url, dialect, Renderer(plain(32_000)))

    async def one(number: int, name: str) -> Reply:
        prompt = Prompt(seeds=np.array([number], np.uint64), tokens=np.array([16], np.int64))
        request = Request(id=name, prompt=prompt, output=TOKENS, session=name)
        return await client.send(request, cut=asyncio.Event(), on_first=lambda _: None)

    found = names(prefix)
    replies = await asyncio.gather(*(one(number, name) for number, name in enumerate(found)))
    await client.close()
    if faults := {reply.error for reply in replies if reply.error}:
        sys.exit(f"our client failed: {faults}")
    return {
        name: [[stamp, tokens] for stamp, tokens in zip(reply.stamps, reply.tokens, strict=True)]
        for name, reply in zip(found, replies, strict=True)
        if reply.tokens is not None and reply.output_tokens == reply.tokens.sum()
    }


async def _aiohttp(url: str, prefix: str) -> Seen:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def one(number: int, name: str) -> list[list[float]]:
            headers = {"X-Request-Id": name}
            data, place = body(number), url + "/v1/completions"
            async with session.post(place, data=data, headers=headers) as response:
                return [[monotonic(), 1] async for line in response.content if line.strip()]

        found = names(prefix)
        seen = await asyncio.gather(*(one(number, name) for number, name in enumerate(found)))
        return dict(zip(found, seen, strict=True))


READERS: dict[str, Callable[[str, str], Seen]] = {
    "bare epoll": bare,
    "paceline": lambda url, prefix: asyncio.run(_ours(url, prefix)),
    "plain aiohttp": lambda url, prefix: asyncio.run(_aiohttp(url, prefix)),
}


def favour(process: int, core: int) -> None:
    """Gives a process a core, and real-time priority where we may, whatever else runs here."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(process, {core % (os.cpu_count() or 1)})
        with suppress(PermissionError):
            os.sched_setscheduler(process, os.SCHED_FIFO, os.sched_param(10))


@contextmanager
def serving(log: Path) -> Iterator[str]:
    program = Path(sys.executable).with_name("paceline")
    command = [program, "sim", "--port", "0", "--pace", str(PACE), "--log", log]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[-1]
            favour(process.pid, SERVER_CORE)
            yield url
        finally:
            process.terminate()


def read(reader: str, url: str, prefix: str) -> Seen:
    """What a reader saw, in a process of its own."""
    command = [sys.executable, __file__, "--reader", reader, "--url", url, "--prefix", prefix]
    ended = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    seen: Seen = orjson.loads(ended.stdout)
    return seen


def judge(seen: Seen, log: dict[str, dict[str, list[float]]]) -> tuple[Lateness, int]:
    """How late each token's stamp is, in milliseconds, and in how many streams counts differ."""
    late, wrong = [], 0
    for name, pieces in seen.items():
        line = log[name]
        told = np.array(line["tokens"])
        writes = np.array(line["writes"])[told > 0]
        stamps, tokens = np.array(pieces)[: len(writes)].T
        late.append(1e3 * (stamps - writes[: len(stamps)]))
        wrong += tokens.tolist() != told[told > 0].tolist() or tokens.sum() != TOKENS
    return np.concatenate(late), wrong + STREAMS - len(seen)


def main() -> int:
    taken: list[tuple[str, Seen]] = []
    order = list(READERS)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "truth.jsonl"
        with serving(path) as url:
            for turn in range(ROUNDS):
                for reader in order[turn % 3 :] + order[: turn % 3]:
                    prefix = f"{reader.replace(' ', '-')}-{turn}"
                    taken.append((reader, read(reader, url, prefix)))
        log = {line["id"]: line for line in map(orjson.loads, path.read_bytes().splitlines()[1:])}
    late: dict[str, list[Lateness]] = {reader: [] for reader in READERS}
    wrong = dict.fromkeys(READERS, 0)
    for reader, seen in taken:
        lateness, differ = judge(seen, log)
        late[reader].append(lateness)
        wrong[reader] += differ
    written = [lag for line in log.values() for lag in line["lags"]]
    print(f"{STREAMS} streams at {PACE} tokens/s, {ROUNDS} rounds of {TOKENS} tokens, in ms")
    p50, p99 = 1e3 * np.percentile(written, [50, 99])
    print(f"the server's own lag behind its steps: p50 {p50:.3f}, p99 {p99:.3f}")
    print(f"{'reader':16}{'n':>8}{'p50':>9}{'p99':>9}   p99 of each round")
    for reader, rounds in late.items():
        p50, p99 = np.percentile(np.concatenate(rounds), [50, 99])
        each = " ".join(f"{np.percentile(lateness, 99):.3f}" for lateness in rounds)
        print(f"{reader:16}{sum(map(len, rounds)):8,}{p50:9.3f}{p99:9.3f}   {each}")
    ours, least = (
        float(np.percentile(np.concatenate(late[reader]), 99))
        for reader in ("paceline", "bare epoll")
    )
    print(f"streams whose tokens were miscounted: {wrong['paceline']} of {STREAMS * ROUNDS}")
    print(f"p99 lateness beside bare epoll: {ours - least:+.3f} ms (limit {SLACK_MS:+} ms)")
    return 0 if ours <= least + SLACK_MS and not wrong["paceline"] else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reader", choices=READERS)
    parser.add_argument("--url", default="")
    parser.add_argument("--prefix", default="")
    asked = parser.parse_args()
    if asked.reader:
        favour(0, READER_CORE)
        found = READERS[asked.reader](asked.url, asked.prefix)
        sys.stdout.buffer.write(orjson.dumps(found, option=orjson.OPT_SERIALIZE_NUMPY))
        sys.exit(0)
    sys.exit(main())
