"""vLLM as an engine kind: started from its own environment, asked, watched and stopped."""

import os
import shlex
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le

from harness import processes
from harness.client import Client
from harness.clock import Clock
from harness.endpoint import Endpoint
from harness.engine import Deployment, Server
from harness.vllm.command import flags_of, offered, vllm_of
from harness.vllm.ready import answering, ended
from harness.wire.client import HttpClient
from harness.wire.deadline import Timeouts
from harness.wire.dialect import Mode
from results.errors import EngineError
from results.evidence import Observed

HOST = "127.0.0.1"

SURROUNDINGS = {
    "DO_NOT_TRACK": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_SERVER_DEV_MODE": "1",
}
"""What every server's environment has, unless the suite says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vllm:
    """An environment of vLLM's own, by its `python`, and how to start and ask a server of it.

    `model` is a folder or an id, the deployment's where it is None; `served_model_name` is what
    requests call it, `vllm` where it is None. Port 0 is a free one. `flags` and `environment` come
    before the deployment's own; neither is a place for secrets. The rest is as in `Endpoint`.
    """

    kind: Literal["vllm"] = "vllm"
    name: str = "vllm"
    python: str = ".venv-vllm/bin/python"
    model: str | None = None
    served_model_name: str | None = None
    port: Annotated[int, Ge(0), Le(65_535)] = 0
    flags: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    ready_timeout: Annotated[float, Gt(0)] = 1800.0
    stop_timeout: Annotated[float, Gt(0)] = 60.0
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

    @property
    def clock(self) -> Clock:
        """The wall's."""
        return "wall"

    @property
    def secrets(self) -> tuple[str, ...]:
        """None."""
        return ()

    def describe(self, deployment: Deployment) -> list[str]:
        """The command line, with port 0 where a free one will be taken, and the environment.

        Flags of the replay arm are left out at the start where `vllm serve --help=all` lacks them.
        Raises UnsupportedError where requests could not be worded as the settings say.
        """
        self._endpoint(self.port).describe(_plain(deployment))
        variables = {**SURROUNDINGS, **self.environment, **deployment.environment}
        words = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
        return [" ".join([*words, shlex.join(self.command(deployment, self.port))])]

    def command(
        self, deployment: Deployment, port: int, known: frozenset[str] | None = None
    ) -> list[str]:
        """The command line of the server; of our own flags only the `known` ones, or all."""
        return [
            *(self.python, str(vllm_of(self.python)), "serve", self.model or deployment.model),
            *("--host", HOST, "--port", str(port), "--served-model-name", self._served),
            *flags_of(deployment, known),
            *self.flags,
            *deployment.flags,
        ]

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

        Raises EngineError where another one is in the way, where it ends before it answers or
        takes too long, and where something of it cannot be ended.
        """
        self.describe(deployment)
        _refuse_leftovers(log)
        known = await offered(self.python)
        port = self.port or _free_port()
        _refuse_taken(port)
        command = self.command(deployment, port, known)
        variables = {**SURROUNDINGS, **self.environment, **deployment.environment}
        # Speed that means nothing may wait for a client on the same cores.
        background = self.provenance == "plumbing"
        program = await processes.start(command, variables, log, background=background)
        try:
            async with self._answering(deployment, port, seed, log, program) as server:
                program.note()
                info = await _asked(server.client)
                yield replace(
                    server,
                    observe=lambda: self._observed(server, command, info),
                    ended=lambda: ended(program, log),
                )
        finally:
            cleared = await program.stop(self.stop_timeout)
            _note_cleared(log, cleared)
            _refuse_taken(port)

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

    def _observed(self, server: Server, command: list[str], info: dict[str, Any]) -> Observed:
        """What the endpoint saw, and what the server says of its parallelism."""
        seen = server.observe()
        parallel = info.get("parallel_config", {})
        sizes = [parallel.get(f"{kind}_parallel_size") for kind in ("tensor", "pipeline", "data")]
        gpus = sizes[0] * sizes[1] * sizes[2] if all(isinstance(n, int) for n in sizes) else None
        return Observed(
            provenance=self.provenance,
            gpus=gpus,
            features=seen.features,
            configuration={**seen.configuration, "command": shlex.join(command)},
        )


def _plain(deployment: Deployment) -> Deployment:
    """The deployment as an endpoint sees it: already started."""
    return replace(deployment, flags=(), environment={})


async def _asked(client: Client) -> dict[str, Any]:
    """The server's own configuration, where it tells it."""
    assert isinstance(client, HttpClient)
    told = await client.get("/server_info?config_format=json")
    config = told.get("vllm_config") if isinstance(told, dict) else None
    return config if isinstance(config, dict) else {}


def _note_cleared(log: Path, cleared: list[str]) -> None:
    if cleared:
        with log.open("a") as file:
            file.write(f"paceline: removed what the server left: {', '.join(cleared)}\n")


def _refuse_leftovers(log: Path) -> None:
    if left := processes.leftovers(log.parent.parent):
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
