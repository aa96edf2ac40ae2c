"""vLLM as an engine kind: started from its own environment, asked, watched and stopped."""

import os
import shlex
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import orjson
import pyarrow as pa
from annotated_types import Ge, Gt, Le, Lt

from harness import gpus, processes
from harness.client import Page
from harness.clock import Clock, now
from harness.endpoint import Endpoint
from harness.engine import Affinity, Deployment, Server
from harness.load import Load
from harness.vllm import birth, devices, fleet, forward, knobs, nodes, places, router, variant
from harness.vllm.affinity import tried
from harness.vllm.command import HOST
from harness.vllm.flags import offered
from harness.vllm.fleet import Fleet
from harness.vllm.knobs import Engram, Graphs, Recipe, Speculation
from harness.vllm.nodes import Launch
from harness.vllm.pages import joined
from harness.vllm.pulse import Pulse
from harness.vllm.ready import answering, emptied, ended
from harness.vllm.resident import Start, Up, held, neighbours, newer, resident, together
from harness.vllm.witness import witnessed
from harness.wire.client import HttpClient
from harness.wire.deadline import Timeouts
from harness.wire.dialect import Mode
from results.errors import UnsupportedError
from results.evidence import Observed
from workloads.forward import Forward
from workloads.questions import Questions
from workloads.session import Workload

ANYWHERE = f"http://{HOST}"
"""Stands for an address that is not known yet."""

Size = Annotated[int, Ge(1), Le(100_000_000)]
Interval = Annotated[int, Ge(1), Le(1_000_000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Vllm:
    """An environment of vLLM's own, by its `python`, and how to start and ask a server of it.

    `variant` is what a build is called that is not the stock one. `model` is a folder or an id, the
    deployment's where it is None; `served_model_name` is what
    requests call it, `vllm` where it is None. Port 0 is a free one. `flags` and `environment` come
    before the deployment's own; neither is a place for secrets. A server with a `resident_share`
    of each GPU's memory stays up between its points. What may be turned by name, and where several
    servers run, is in docs/vllm.md. The rest is as in `Endpoint`.
    """

    kind: Literal["vllm"] = "vllm"
    name: str = "vllm"
    python: str = ".venv-vllm/bin/python"
    variant: str | None = None
    model: str | None = None
    served_model_name: str | None = None
    port: Annotated[int, Ge(0), Le(65_535)] = 0
    flags: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    recipe: Recipe | None = None
    capture_size: Size | None = None
    max_batched_tokens: Size | None = None
    max_sequences: Size | None = None
    prefix_caching: bool | None = None
    graphs: Graphs | None = None
    attention: str | None = None
    kv_format: str | None = None
    index_format: str | None = None
    sparse_logits: bool | None = None
    moe: str | None = None
    engram: Engram | None = None
    speculation: Speculation | None = None
    draft_tokens: Annotated[int, Ge(1), Le(32)] = 5
    acceptance_length: float = 3.51
    eplb: bool = False
    redundant_experts: Annotated[int, Ge(0), Le(100_000)] = 0
    rebalance_window: Interval = 1000
    rebalance_interval: Interval = 3000
    forced_outputs: bool = False
    layer_partition: tuple[int, ...] = ()
    affinity: Affinity = "rank-header"
    api_servers: Annotated[int, Ge(1), Le(1024)] | None = None
    gpus_per_node: Annotated[int, Ge(1), Le(1024)] | None = None
    nodes: tuple[str, ...] = ()
    launcher: str | None = None
    router: str | None = None
    interface: str | None = None
    prefill_flags: tuple[str, ...] = ()
    decode_flags: tuple[str, ...] = ()
    ready_timeout: Annotated[float, Gt(0)] = 1800.0
    stop_timeout: Annotated[float, Gt(0)] = 60.0
    resident_share: Annotated[float, Gt(0), Lt(1)] | None = None
    kv_cache_memory_bytes: Annotated[int, Gt(0)] | None = None
    mode: Mode = "ids"
    tokenizer: str | None = None
    vocabulary: int = 32_000
    thinking: bool = False
    reasoning_effort: str | None = None
    exact_output: bool = True
    chunk_usage: bool = True
    body: dict[str, Any] = field(default_factory=dict)
    timeouts: Timeouts = field(default_factory=Timeouts)
    provenance: Literal["measured", "plumbing"] = "measured"

    def __post_init__(self) -> None:
        # Made once for its own checks: what cannot be asked should not be started.
        self._endpoint(ANYWHERE)
        knobs.check(self)
        fleet.check(self)
        if self.router is not None:
            router.check(self.router)

    @property
    def clock(self) -> Clock:
        """The wall's."""
        return "wall"

    @property
    def secrets(self) -> tuple[str, ...]:
        """None."""
        return ()

    def check(self, workload: Workload, load: Load, deployment: Deployment) -> None:
        """Raises UnsupportedError where it cannot do this work."""
        if workload.kind == "questions" and knobs.made_up(self, deployment):
            raise UnsupportedError(
                f"{self.name} accepts drafts without looking at them (synthetic acceptance), so "
                "its answers mean nothing: write speculation: real, or none"
            )
        flags = {flag.partition("=")[0] for flag in (*self.flags, *deployment.flags)}
        if isinstance(workload, Questions) and flags & knobs.TELLING and workload.exam().withheld:
            raise UnsupportedError(
                f"{self.name} would log the questions, which may be written nowhere: leave out "
                f"{min(flags & knobs.TELLING)}"
            )
        self._endpoint(ANYWHERE).check(workload, load, deployment)

    def describe(self, deployment: Deployment) -> list[str]:
        """The command lines, with port 0 where a free one will be taken, and their environment.

        Raises UnsupportedError where requests could not be worded as the settings say, and where
        the topology, the arm and the knobs cannot be had together.
        """
        stated = {**deployment.environment, "model": deployment.model}
        if refused := knobs.secret(deployment.flags, stated):
            raise UnsupportedError(refused)
        self._endpoint(ANYWHERE).describe(_plain(deployment))
        return nodes.described(self, deployment)

    def probing(self, deployment: Deployment, workload: Forward) -> list[str]:
        """The command line that times the steps, with what it adds to the environment.

        Raises UnsupportedError where a step, the arm or the topology cannot be had alone.
        """
        words = forward.command(self, deployment, workload, Path(forward.OUTPUT))
        variables = knobs.variables(self, deployment).items()
        return [" ".join([*(f"{n}={shlex.quote(v)}" for n, v in variables), shlex.join(words)])]

    async def probe(
        self, deployment: Deployment, workload: Forward, *, log: Path
    ) -> tuple[Observed, pa.Table]:
        """What ran, and a row for each run of a step. Raises as `harness.vllm.forward.probe`."""
        await self._refuse_leftovers(log)
        return await forward.probe(self, deployment, workload, log)

    @asynccontextmanager
    async def start(
        self,
        deployment: Deployment,
        *,
        seed: int,
        log: Path,
        keys: Mapping[str, str],  # noqa: ARG002
    ) -> AsyncIterator[Server]:
        """A server that has answered a request, and of which nothing is left afterwards.

        With a `resident_share` it stays up for the next point of its deployment. Raises InputError
        where something of an earlier run is still there, and EngineError where a port is taken, it
        ends before it answers or takes too long, or something of it cannot be ended.
        """
        variables = knobs.variables(self, deployment)
        if self.resident_share is None or _name(_kept(deployment)) not in held():
            await self._refuse_leftovers(log)
        async with self._up(deployment, seed, log) as up, AsyncExitStack() as stack:
            if up.fleet.logs[0] != log:
                _note(log, await _taken_up(up))
            page = up.pulse.page
            if self.launcher is None:
                watching = gpus.watched(page, variables, up.born.held or ())
                page = await stack.enter_async_context(watching)
            yield replace(
                up.server,
                observe=lambda: witnessed(
                    _shown(up, deployment), deployment, neighbours(up), self.variant
                ),
                metrics=page,
                made_up=knobs.made_up(self, deployment),
                compiles=self.provenance == "measured",
                ended=lambda: ended(up.fleet, up.pulse),
            )

    async def _refuse_leftovers(self, log: Path) -> None:
        members = [process for one in held().values() for process in one.up.fleet.members()]
        staying = {process.identity for process in members}
        await processes.refuse_leftovers(log.parent.parent, self.stop_timeout, staying)

    def _refuse(self, deployment: Deployment) -> None:
        """Raises UnsupportedError where the deployment cannot be had here."""
        self.describe(deployment)
        if refused := nodes.refusal(self, deployment):
            raise UnsupportedError(refused)
        if self.provenance == "measured" and self.launcher is None:
            variables = knobs.variables(self, deployment)
            devices.check(deployment.topology, variables)
            variant.check(self.variant, variables)

    def _up(self, deployment: Deployment, seed: int, log: Path) -> AbstractAsyncContextManager[Up]:
        """The server, from when it has come up; it stays up where it is resident."""
        if self.resident_share is None:
            return self.up(deployment, seed, log)
        kept = _kept(deployment)
        return resident(_name(kept), self.resident_share, partial(self.up, kept, seed, log))

    async def together(self, deployments: Iterable[Deployment], *, seed: int, log: Path) -> None:
        """Starts at once those that stay up with a stated size of KV cache.

        vLLM measures what is left for its cache, which others may not change meanwhile. Each logs
        into a folder beside `log`. Raises InputError where a server of an earlier run is there.
        """
        starts: dict[str, tuple[float, Start]] = {}
        wide = set()
        for one in map(_kept, deployments):
            match one.engine:
                case Vllm(resident_share=float(share), kv_cache_memory_bytes=int()) as engine:
                    wide.add(one.topology.gpus)
                    if (name := _name(one)) not in held().keys() | starts.keys():
                        place = log.parent / f"start-{len(starts) + 1}" / log.name
                        start = partial(engine.up, one, seed, place, alone=False)
                        starts[name] = share, start
        # What GPUs hold more than before is all that tells on how many of them a server is.
        if len(starts) > 1 and len(wide) == 1:
            await self._refuse_leftovers(log)
            await together(starts)

    @asynccontextmanager
    async def up(
        self, deployment: Deployment, seed: int, log: Path, *, alone: bool = True
    ) -> AsyncIterator[Up]:
        """Servers of its own, and what was noted of them; they are gone afterwards."""
        self._refuse(deployment)
        log.parent.mkdir(exist_ok=True)
        variables, there = knobs.variables(self, deployment), frozenset(held())
        through = fleet.reach(self, self.nodes[0]) if self.nodes else None
        known = await offered(self.python, through=through)
        made = places.placed(self, deployment, known)
        await places.refuse_taken(self, made)
        build = await birth.installed(self.python, variables, through)
        places.check_libraries(self, made, build)
        # What this machine's GPUs hold says nothing of another one's.
        before, began = None if through else await gpus.memory(variables), now()
        running = Fleet(self, log)
        try:
            async with self._answering(deployment, made, running, seed) as server:
                running.note()
                page = self._page(server, made)
                affinity = None
                ranks = deployment.topology.ranks
                if deployment.pinned and ranks > 1:
                    affinity = await tried(server.client, page, self.affinity, ranks, seed)
                born = await birth.noted(
                    list(zip(made, running.logs, strict=True)),
                    seconds=now() - began,
                    build=build,
                    before=before,
                    alone=alone,
                    pids=[process.pid for process in running.members()],
                    surroundings=variables,
                    affinity=affinity,
                )
                pulse = Pulse(page, running.logs, self.timeouts.first_token)
                yield Up(arm=deployment.arm, server=server, fleet=running, pulse=pulse, born=born)
        finally:
            if cleared := await running.stop():
                _note(log, f"removed what the server left: {', '.join(cleared)}")
            await places.refuse_taken(self, made)
            if not newer(there):
                await birth.released(before, variables, self.stop_timeout)

    @asynccontextmanager
    async def _answering(
        self, deployment: Deployment, made: list[Launch], running: Fleet, seed: int
    ) -> AsyncIterator[Server]:
        """What requests are sent to, once every server has answered one."""
        servers = [launch for launch in made if launch.role != "router"]
        await running.start(servers)
        urls = [url for launch in servers for url in launch.urls]
        fronts = [launch for launch in made if launch.role == "router"]
        routed = nodes.routed(self, deployment.topology)
        if routed or len(urls) > 1:
            for url in urls:
                async with self._asked(self._endpoint(url), deployment, running, seed):
                    continue
        await running.start(fronts)
        front = next((launch.urls[0] for launch in fronts), self.router if routed else urls[0])
        assert front is not None
        by_port = len(urls) > 1 and not routed
        endpoint = self._endpoint(front, urls if by_port else (), routed=routed)
        async with self._asked(endpoint, deployment, running, seed) as server:
            yield server

    def _page(self, server: Server, made: list[Launch]) -> Page:
        """The counters of all servers."""
        assert isinstance(server.client, HttpClient)
        asked = [(launch, url) for launch in made if launch.role != "router" for url in launch.urls]
        return joined([(launch, server.client.page("/metrics", url)) for launch, url in asked])

    @property
    def _served(self) -> str:
        return self.served_model_name or "vllm"

    def _asked(
        self, endpoint: Endpoint, deployment: Deployment, running: Fleet, seed: int
    ) -> AbstractAsyncContextManager[Server]:
        port = urlsplit(endpoint.url).port
        mine = self.launcher is None and endpoint.url != self.router
        return answering(
            # The log is the server's own, so what the endpoint has to say goes nowhere.
            lambda: endpoint.start(_plain(deployment), seed=seed, log=Path(os.devnull), keys={}),
            running,
            port if mine else None,
            self.ready_timeout,
        )

    def _endpoint(self, url: str, ranks: Sequence[str] = (), *, routed: bool = False) -> Endpoint:
        return Endpoint(
            name=self.name,
            url=url,
            rank_urls=tuple(ranks),
            affinity="port" if ranks else "router" if routed else "rank-header",
            model=self._served,
            mode=self.mode,
            tokenizer=self.tokenizer,
            vocabulary=self.vocabulary,
            thinking=self.thinking,
            reasoning_effort=self.reasoning_effort,
            exact_output=self.exact_output,
            chunk_usage=self.chunk_usage,
            forced_outputs=self.forced_outputs,
            body=self.body,
            timeouts=self.timeouts,
            provenance=self.provenance,
        )


def _kept(deployment: Deployment) -> Deployment:
    """What stays up for it: sessions of the same server are pinned or not by whoever sends them."""
    return replace(deployment, pinned=True)


def _shown(up: Up, deployment: Deployment) -> Up:
    """What there is to tell of a server; how it keeps sessions only where they are pinned."""
    return up if deployment.pinned else replace(up, born=replace(up.born, affinity=None))


def _name(deployment: Deployment) -> str:
    return orjson.dumps(asdict(deployment), option=orjson.OPT_SORT_KEYS).decode()


def _plain(deployment: Deployment) -> Deployment:
    """The deployment as an endpoint sees it: already started."""
    return replace(deployment, flags=(), environment={})


def _note(log: Path, words: str) -> None:
    with log.open("a") as file:
        file.write(f"paceline: {words}\n")


async def _taken_up(up: Up) -> str:
    """Makes a server ready that another point has used; what there is to say of it."""
    emptied_all = all([await emptied(url) for url in up.fleet.urls])
    done = "was emptied" if emptied_all else "could not be emptied"
    return (
        f"this server is up since an earlier point, and its log is {up.fleet.logs[0]}; "
        f"its prefix cache {done}"
    )
