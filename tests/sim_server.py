"""A simulated server on loopback, and ways to ask it."""

import asyncio
import threading
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import aiohttp
import numpy as np
import orjson

from harness.client import Request
from harness.sim.cost import even
from harness.sim.engine import SimulatedEngine
from harness.sim.server.serve import serving
from harness.sim.server.site import Site
from harness.topology import parse
from harness.wire.client import HttpClient
from harness.wire.deadline import Timeouts
from harness.wire.dialect import Dialect
from harness.wire.pool import plain, tokenized
from harness.wire.render import Renderer
from workloads.prompt import Prompt

STEP = 0.002


def site(path: Path, *, topology="TP1", step=STEP, engine=None, **settings) -> Site:
    """A site whose steps are short, and whose log is `log.jsonl`."""
    made = SimulatedEngine(cost=even(step), **(engine or {}))
    return Site(engine=made, topology=parse(topology), log=path / "log.jsonl", **settings)


def request(name, *segments, output=12, rank=None) -> Request:
    seeds, tokens = zip(*(segments or [(1, 40)]), strict=True)
    prompt = Prompt(
        seeds=np.array(seeds, dtype=np.uint64),
        tokens=np.array(tokens, dtype=np.int64),
        messages=(("user", len(seeds)),),
    )
    return Request(id=name, prompt=prompt, output=output, session=f"of {name}", rank=rank)


@asynccontextmanager
async def client(url, *, tokenizer=None, stall=5.0, **dialect):
    pool = tokenized(str(tokenizer)) if tokenizer else plain(32_000)
    timeouts = Timeouts(first_token=5.0, stall=stall)
    made = HttpClient(url, Dialect(model="simulated", **dialect), Renderer(pool), timeouts=timeouts)
    try:
        yield made
    finally:
        await made.close()


async def send(sender, wanted, cut=None, on_first=lambda _: None):
    return await sender.send(wanted, cut=cut or asyncio.Event(), on_first=on_first)


def drive(made: Site, work):
    """What `work(url)` gives while the server runs, and the lines of its log by request id."""

    async def main():
        async with serving(made) as url:
            return await work(url)

    outcome = asyncio.run(main())
    head, *lines = map(orjson.loads, made.log.read_bytes().splitlines())
    assert head["SIMULATED"] == made.configuration
    return outcome, {line["id"]: line for line in lines}


@contextmanager
def hosted(server):
    """What a server's context gives, while it runs on a loop of its own, in a thread."""
    started = []
    ready = threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def main():
        async with server as entered:
            started.append(entered)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=[main()])
    thread.start()
    ready.wait()
    try:
        yield started[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


class Quiet:
    """A watch that looks away."""

    def point_started(self, *_):
        pass

    def request_done(self, _):
        pass

    def point_finished(self, *_):
        pass

    def point_skipped(self, *_):
        pass


async def call(url, path, body=None, headers=None):
    """Status, headers and body of one plain exchange."""
    async with aiohttp.ClientSession() as session:
        method = "GET" if body is None else "POST"
        async with session.request(method, url + path, data=body, headers=headers) as response:
            return response.status, response.headers, await response.read()


async def ask(url, body, path="/v1/completions", headers=None):
    """The status of an answer, and its JSON."""
    status, _, text = await call(url, path, orjson.dumps(body), headers)
    return status, orjson.loads(text)


async def scrape(url):
    """What /metrics says, by name and labels."""
    _, _, text = await call(url, "/metrics")
    lines = [line.rsplit(" ", 1) for line in text.decode().splitlines() if line[0] != "#"]
    return {name: float(value) for name, value in lines}


def total(samples, name):
    """A metric over all its labels."""
    return sum(value for key, value in samples.items() if key.startswith(f"vllm:{name}{{"))
