"""What the HTTP client costs: CPU beside a bare epoll reader, and how fast it parses unpaced.

`python benchmarks/client.py` takes about two minutes on two cores, one for the server and one for
the client, and exits 0 where the goals are reached. Other clients can be measured beside it:
`--peer "GOAL COMMAND"`, run as `COMMAND URL STREAMS PIECES`, which must ask for as many streams at
once, read them to their end, and stop; GOAL is the share of its cost that ours may come to. Streams
are longer then, because such clients take seconds to start, and few turns.
"""

import argparse
import asyncio
import os
import select
import shlex
import socket
import statistics
import subprocess
import sys
import time
from functools import partial

import numpy as np

from harness.client import Request
from harness.wire.client import HttpClient
from harness.wire.dialect import Dialect
from harness.wire.pool import plain
from harness.wire.render import Renderer
from workloads.prompt import marked

GAP = 0.02
SHORT, LONG = 50, 250
LONG_BESIDE_PEERS = {64: 3050, 256: 1050}
REPEATS, REPEATS_BESIDE_PEERS = 5, 2
GOALS = {64: 2.5, 256: 2.0}
UNPACED_GOAL = 400_000
UNPACED_STREAMS, UNPACED_PIECES, TOGETHER = 4, 200_000, 8
SERVER_CORE, CLIENT_CORE = 1, 0

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
FRAME = (
    b'data: {"id":"chatcmpl-2f0a7b6c5d4e4f3a8b9c0d1e2f3a4b5c","object":"chat.completion.chunk",'
    b'"created":1790000000,"model":"deepseek-ai/DeepSeek-V4.1-Flash","choices":[{"index":0,'
    b'"delta":{"content":"%b"},"logprobs":null,"finish_reason":null}]}\n\n'
)
WORDS = (
    b" the",
    b" token",
    b",",
    b" is",
    " é".encode(),
    b"\\n",
    b" run",
    b".",
    b" 42",
    b"s",
    b"(",
    b" if",
)
LAST = (
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    b'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":%d}}\n\ndata: [DONE]\n\n'
)


NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def pin(core: int) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core % (os.cpu_count() or 1)})


def serve(streams: int, pieces: int, gap: float, together: int) -> None:
    """Answers so many requests at once, `together` frames in each write, `gap` seconds apart."""
    pin(SERVER_CORE)
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    print(listener.getsockname()[1], flush=True)
    connections: list[socket.socket] = []
    while len(connections) < streams:
        connection = listener.accept()[0]
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if b"completions" in _take(connection).partition(b"\r\n")[0]:
            connections.append(connection)
        else:
            # Some clients ask for models, counters or token counts first.
            connection.sendall(NOT_FOUND)
            connection.close()
    for connection in connections:
        connection.sendall(HEAD)
    outs = [
        chunk(b"".join(FRAME % WORDS[(start + n) % len(WORDS)] for n in range(together)))
        for start in range(len(WORDS))
    ]
    began = time.monotonic()
    for step in range(pieces // together):
        wait = began + step * gap - time.monotonic()
        if gap and wait > 0:
            time.sleep(wait)
        for connection in connections:
            connection.sendall(outs[step % len(outs)])
    for connection in connections:
        connection.sendall(chunk(LAST % pieces) + b"0\r\n\r\n")
        connection.close()


def _take(connection: socket.socket) -> bytes:
    """Reads one request, and gives its head."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")]
    left = int(lengths[0].split(b":")[1]) - len(body) if lengths else 0
    while left > 0:
        left -= len(connection.recv(left))
    return head


def floor(port: int, streams: int) -> tuple[float, int]:
    """The least there is to do: wait, read, stamp and keep. Nothing is parsed."""
    poller = select.epoll()
    connections, reads = {}, {}
    for _ in range(streams):
        connection = socket.create_connection(("127.0.0.1", port))
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}")
        connection.setblocking(False)
        connections[connection.fileno()], reads[connection.fileno()] = connection, []
        poller.register(connection.fileno(), select.EPOLLIN)
    began = time.process_time()
    live = streams
    while live:
        for number, _ in poller.poll():
            data = connections[number].recv(65536)
            reads[number].append((time.monotonic(), data))
            if not data:
                poller.unregister(number)
                live -= 1
    spent = time.process_time() - began
    found = sum(
        b"".join(part for _, part in each).count(b'"delta":{"content"') for each in reads.values()
    )
    return spent, found


def ours(port: int, streams: int) -> tuple[float, int]:
    """The client as it is, from the request to the parsed reply."""
    renderer = Renderer(plain(32_000))

    async def main() -> tuple[float, int]:
        client = HttpClient(f"http://127.0.0.1:{port}", Dialect(model="m"), renderer)
        requests = [
            Request(id=str(n), prompt=marked((n, 16)), output=1, session="s")
            for n in range(streams)
        ]
        began = time.process_time()
        replies = await asyncio.gather(
            *(client.send(r, cut=asyncio.Event(), on_first=lambda _: None) for r in requests)
        )
        spent = time.process_time() - began
        await client.close()
        assert all(reply.error is None for reply in replies), replies[0].error
        assert all(np.all(np.diff(reply.stamps) >= 0) for reply in replies)
        return spent, sum(len(reply.stamps) for reply in replies)

    return asyncio.run(main())


def run(client: str, streams: int, pieces: int, gap: float, together: int = 1) -> float:
    """CPU seconds of one client reading the streams to their end."""
    script = [sys.executable, __file__]
    settings = [str(value) for value in (streams, pieces, gap, together)]
    with subprocess.Popen([*script, "serve", *settings], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        port = server.stdout.readline().decode().strip()
        if client in {"floor", "ours"}:
            done = subprocess.run(
                [*script, client, port, str(streams)], stdout=subprocess.PIPE, check=True
            )
            spent, found = done.stdout.split()
            assert int(found) == streams * pieces, f"{client}: {int(found)} pieces"
            return float(spent)
        url = f"http://127.0.0.1:{port}"
        peer = subprocess.Popen(
            [*shlex.split(client)[1:], url, str(streams), str(pieces)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=partial(pin, CLIENT_CORE),  # noqa: PLW1509 - there are no threads
        )
        _, status, used = os.wait4(peer.pid, 0)
        peer.returncode = os.waitstatus_to_exitcode(status)
        assert peer.returncode == 0, f"{client}: exit code {peer.returncode}"
        return used.ru_utime + used.ru_stime


def slope(client: str, streams: int, most: int) -> float:
    """CPU seconds per 1,000 pieces, starting and ending left out."""
    short, long = (run(client, streams, pieces, GAP) for pieces in (SHORT, most))
    return (long - short) / (streams * (most - SHORT)) * 1000


def paced(streams: int, peers: list[str]) -> dict[str, float]:
    """Each client's slope, the clients taking turns; the median of all turns."""
    found: dict[str, list[float]] = {client: [] for client in ["floor", "ours", *peers]}
    for _ in range(REPEATS_BESIDE_PEERS if peers else REPEATS):
        for client, slopes in found.items():
            slopes.append(slope(client, streams, LONG_BESIDE_PEERS[streams] if peers else LONG))
    for client, slopes in found.items():
        shown = " ".join(f"{value * 1000:.2f}" for value in slopes)
        print(f"{streams} streams, {client}: ms of CPU per 1,000 pieces: {shown}", flush=True)
    return {client: statistics.median(slopes) for client, slopes in found.items()}


def compare(peers: list[str]) -> int:
    reached = True
    for streams, goal in GOALS.items():
        costs = paced(streams, peers)
        for client, cost in costs.items():
            ratio = cost / costs["floor"]
            note = f" (goal {goal})" if client == "ours" else ""
            print(f"{streams} streams, {client}: {cost * 1000:.2f} ms, {ratio:.2f}x floor{note}")
        reached &= costs["ours"] <= goal * costs["floor"]
        for peer in peers:
            share, most = costs["ours"] / costs[peer], float(shlex.split(peer)[0])
            print(f"{streams} streams: ours is {share:.2f}x of {peer} (goal {most})")
            reached &= share <= most
    pieces = UNPACED_STREAMS * UNPACED_PIECES
    spent = [run("ours", UNPACED_STREAMS, UNPACED_PIECES, 0, TOGETHER) for _ in range(REPEATS)]
    rate = pieces / statistics.median(spent)
    reached &= rate >= UNPACED_GOAL
    print(f"unpaced, {TOGETHER} frames a write: {rate:,.0f} pieces per CPU second, all parsed")
    return 0 if reached else 1


def main() -> int:
    match sys.argv[1:]:
        case ["serve", streams, pieces, gap, together]:
            serve(int(streams), int(pieces), float(gap), int(together))
            return 0
        case [("floor" | "ours") as client, port, streams]:
            pin(CLIENT_CORE)
            print(*{"floor": floor, "ours": ours}[client](int(port), int(streams)))
            return 0
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", action="append", default=[], metavar="COMMAND")
    return compare(parser.parse_args().peer)


if __name__ == "__main__":
    sys.exit(main())
