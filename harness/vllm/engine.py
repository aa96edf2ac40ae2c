"""vLLM as an engine kind: started from its own environment, asked, watched and stopped."""

import os
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import orjson
from annotated_types import Ge, Gt, Le, Lt

from harness import gpus, processes
from harness.clock import Clock, now
from harness.endpoint import Endpoint
from harness.engine import Deployment, Server
from harness.vllm import birth, devices, knobs, nodes
from harness.vllm.command import HOST
from harness.vllm.flags import Offer, offered
from harness.vllm.knobs import Affinity, Engram, Graphs, Recipe, Speculation
from harness.vllm.pulse import Pulse
from harness.vllm.ready import answering, emptied, ended
from harness.vllm.resident import Up, held, neighbours, resident
from harness.vllm.witness import witnessed
from harness.wire.client import HttpClient
from harness.wire.deadline import Timeouts
from harness.wire.dialect import Mode
from results.errors import EngineError, UnsupportedError

Size = Annotated[int, Ge(1), Le(100_000_000)]
Interval = Annotated[int, Ge(1), Le(1_000_000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Vllm:
    """An environment of vLLM's own, by its `python`, and how to start and ask a server of it.

    `model` is a folder or an id, the deployment's where it is None; `served_model_name` is what
    requests call it, `vllm` where it is None. Port 0 is a free one. `flags` and `environment` come
    before the deployment's own; neither is a place for secrets. A server with a `resident_share`
    of each GPU's memory stays up between its points. What may be turned by name, and where several
    servers run, is in docs/vllm.md. The rest is as in `Endpoint`.
    """

    kind: Literal["vllm"] = "vllm"
    name: str = "vllm"
    python: str = ".venv-vllm/bin/python"
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
    interface: str | None = None
    prefill_flags: tuple[str, ...] = ()
    decode_flags: tuple[str, ...] = ()
    ready_timeout: Annotated[float, Gt(0)] = 1800.0
    stop_timeout: Annotated[float, Gt(0)] = 60.0
    resident_share: Annotated[float, Gt(0), Lt(1)] | None = None
    mode: Mode = "ids"
    tokenizer: str | None = None
    vocabulary: int = 32_000
    thinking: bool = False
    reasoning_effort: str | None = None
    exact_output: bool = True
    chunk_usage: bool = False
    body: dict[str, Any] = field(default_factory=dict)
    timeouts: Timeouts = field(default_factory=Timeouts)
    provenance: Literal["measured", "plumbing"] = "measured"

    def __post_init__(self) -> None:
        # Made once for its own checks: what cannot be asked should not be started.
        self._endpoint(self.port)
        knobs.check(self)

    @property
    def clock(self) -> Clock:
        """The wall's."""
        return "wall"

    @property
    def secrets(self) -> tuple[str, ...]:
        """None."""
        return ()

    def describe(self, deployment: Deployment) -> list[str]:
        """The command lines, with port 0 where a free one will be taken, and their environment.

        Raises UnsupportedError where requests could not be worded as the settings say, and where
        the topology, the arm and the knobs cannot be had together.
        """
        self._endpoint(self.port).describe(_plain(deployment))
        return nodes.described(self, deployment)

    def command(self, deployment: Deployment, port: int, known: Offer | None = None) -> list[str]:
        """The command line of the server; of flags to measure by only the `known` ones, or all.

        Raises UnsupportedError where another flag of ours is not known.
        """
        return nodes.command(self, deployment, port, known)

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

        With a `resident_share` it stays up for the next point of its deployment. Raises EngineError
        where another one is in the way, where it ends before it answers or takes too long, and
        where something of it cannot be ended.
        """
        self.describe(deployment)
        if refused := nodes.refusal(self, deployment):
            raise UnsupportedError(refused)
        variables = knobs.variables(self, deployment)
        if self.provenance == "measured":
            devices.check(deployment.topology, variables)
        async with self._up(deployment, seed, log) as up:
            if up.log != log:
                _note(log, await _taken_up(up))
            chosen = up.born.held or ()
            async with gpus.watched(up.pulse.page, variables, chosen) as page:
                yield replace(
                    up.server,
                    observe=lambda: witnessed(up, deployment, neighbours(up)),
                    metrics=page,
                    compiles=self.provenance == "measured",
                    ended=lambda: ended(up.program, up.pulse, up.log),
                )

    def _up(self, deployment: Deployment, seed: int, log: Path) -> AbstractAsyncContextManager[Up]:
        """The server, from when it has come up; it stays up where it is resident."""
        start = partial(self._started, deployment, seed, log)
        if self.resident_share is None:
            return start()
        name = orjson.dumps(asdict(deployment), option=orjson.OPT_SORT_KEYS).decode()
        return resident(name, self.resident_share, start)

    @asynccontextmanager
    async def _started(self, deployment: Deployment, seed: int, log: Path) -> AsyncIterator[Up]:
        """A server of its own, and what was noted of it; it is gone afterwards."""
        _refuse_leftovers(log)
        variables = knobs.variables(self, deployment)
        known = await offered(self.python)
        port = self.port or _free_port()
        _refuse_taken(port)
        command = self.command(deployment, port, known)
        build = await birth.installed(self.python, variables)
        before, began = await gpus.memory(variables), now()
        # Speed that means nothing may wait for a client on the same cores.
        background = self.provenance == "plumbing"
        program = await processes.start(command, variables, log, background=background)
        try:
            async with self._answering(deployment, port, seed, log, program) as server:
                program.note()
                born = await birth.noted(
                    server,
                    command=command,
                    seconds=now() - began,
                    build=build,
                    before=before,
                    pids=[process.pid for process in program.members()],
                    surroundings=variables,
                    log=log,
                )
                assert server.metrics is not None
                pulse = Pulse(server.metrics, log, self.timeouts.first_token)
                yield Up(
                    arm=deployment.arm,
                    server=server,
                    program=program,
                    pulse=pulse,
                    born=born,
                    log=log,
                )
        finally:
            if cleared := await program.stop(self.stop_timeout):
                _note(log, f"removed what the server left: {', '.join(cleared)}")
            _refuse_taken(port)
            await birth.released(before, variables, self.stop_timeout)

    @property
    def _served(self) -> str:
        return self.served_model_name or "vllm"

    def _answering(
        self, deployment: Deployment, port: int, seed: int, log: Path, program: processes.Program
    ) -> AbstractAsyncContextManager[Server]:
        endpoint = self._endpoint(port)
        return answering(
            # The log is the server's own, so what the endpoint has to say goes nowhere.
            lambda: endpoint.start(_plain(deployment), seed=seed, log=Path(os.devnull), keys={}),
            program,
            port,
            log,
            self.ready_timeout,
        )

    def _endpoint(self, port: int) -> Endpoint:
        return Endpoint(
            name=self.name,
            url=f"http://{HOST}:{port}",
            model=self._served,
            mode=self.mode,
            tokenizer=self.tokenizer,
            vocabulary=self.vocabulary,
            thinking=self.thinking,
            reasoning_effort=self.reasoning_effort,
            exact_output=self.exact_output,
            chunk_usage=self.chunk_usage,
            body=self.body,
            timeouts=self.timeouts,
            provenance=self.provenance,
        )


def _plain(deployment: Deployment) -> Deployment:
    """The deployment as an endpoint sees it: already started."""
    return replace(deployment, flags=(), environment={})


def _note(log: Path, words: str) -> None:
    with log.open("a") as file:
        file.write(f"paceline: {words}\n")


async def _taken_up(up: Up) -> str:
    """Makes a server ready that another point has used; what there is to say of it."""
    assert isinstance(up.server.client, HttpClient)
    done = "was emptied" if await emptied(up.server.client.url) else "could not be emptied"
    return (
        f"this server is up since an earlier point, and its log is {up.log}; "
        f"its prefix cache {done}"
    )


def _refuse_leftovers(log: Path) -> None:
    staying = {process.identity for one in held().values() for process in one.up.program.members()}
    found = processes.leftovers(log.parent.parent)
    if left := [process for process in found if process.identity not in staying]:
        raise EngineError(
            f"a server of an earlier run is still here: {processes.named(left)}: end these "
            "processes first, since nothing can be measured beside them"
        )


def _refuse_taken(port: int) -> None:
    """Raises EngineError where the port cannot be had."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise EngineError(
                f"port {port} is in use ({error.strerror}): what answers there is not the server "
                "that was asked for; end it, or state another port"
            ) from error


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
