"""DeepInfer as an engine kind: a worker for each rank in its own interpreter, asked in lines."""

import asyncio
import shlex
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Le

from harness import processes
from harness.client import Page
from harness.clock import Clock
from harness.deepinfer import stats
from harness.deepinfer.client import WorkerClient
from harness.deepinfer.link import Event, Link, linked, parted
from harness.engine import Deployment, Replay, Server
from harness.load import Closed, Load
from harness.wire.pool import Pool, plain, tokenized
from harness.wire.render import Renderer
from results.errors import UnsupportedError
from results.evidence import Observed
from results.secret import stated
from workloads.batch import Batch
from workloads.questions import Questions
from workloads.session import Workload
from workloads.single import Single

WORKER = Path(__file__).with_name("worker.py")

HOST = "127.0.0.1"

MODE, KEEP = "DEEPINFER_YOCO_PREFILL_TRUNCATION_MODE", "DEEPINFER_YOCO_PREFILL_KEEP_TOKENS"

REPLAY: dict[Replay, dict[str, str]] = {
    "off": {MODE: "off"},
    # A window of 128 tokens, and what drafts may take back.
    "on": {MODE: "compact", KEEP: "140"},
}
"""The variables of each arm: what vLLM calls bounded replay is compact here."""

ARMS = {"off": "off", "compact": "on"}
"""The arm that a mode of the engine's own is."""

BELOW_MASTER = 50
"""How far below MASTER_PORT the ranks of deepinfer 0.1.0 meet."""

OURS = frozenset(
    (
        *("model", "decode_sequence", "disable_log_stats", "offline_inference", "engine_rank"),
        *("data_parallel_size", "expert_parallel_size", "context_parallel_size"),
    )
)
"""Arguments of its `LLM` that follow from the deployment, or from how it is measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepInfer:
    """An environment of DeepInfer's own, by its `python`, and how to start an engine of it.

    `arguments` are those of its `LLM`, and `environment` its switches; neither is a place for
    secrets. `devices` are the GPUs, one for each rank, counted from 0 where they are left out.
    `worker` is a program that speaks for another engine. Without a `tokenizer`, prompts are ids
    below `vocabulary`. A worker that is silent for `silence` seconds has failed its requests.
    """

    clock: ClassVar[Clock] = "wall"
    secrets: ClassVar[tuple[str, ...]] = ()
    kind: Literal["deepinfer"] = "deepinfer"
    name: str = "deepinfer"
    python: str = ".venv-deepinfer/bin/python"
    worker: str | None = None
    model: str | None = None
    arguments: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    devices: tuple[Annotated[int, Ge(0), Le(1024)], ...] = ()
    tokenizer: str | None = None
    vocabulary: Annotated[int, Ge(64), Le(10_000_000)] = 32_000
    ready_timeout: Annotated[float, Gt(0)] = 1800.0
    stop_timeout: Annotated[float, Gt(0)] = 60.0
    silence: Annotated[float, Gt(0)] = 300.0

    def __post_init__(self) -> None:
        if taken := sorted(OURS & self.arguments.keys()):
            raise ValueError(
                f"arguments hold {taken[0]}, which is set from the topology and from how it is "
                "measured: leave it out"
            )
        if refused := _secret({**self.arguments, **self.environment}):
            raise ValueError(refused)

    def check(self, workload: Workload, load: Load, deployment: Deployment) -> None:
        """Raises UnsupportedError where it cannot do this work."""
        if not isinstance(load, Closed):
            raise UnsupportedError(
                f"DeepInfer takes requests between its steps only, and no {load.kind} load: write "
                "a closed load"
            )
        match workload:
            case Single(cached=0) if load.concurrency > deployment.topology.ranks:
                raise UnsupportedError(
                    "DeepInfer tries to prefill only every so many decode steps, so a TTFT under "
                    "load says how many: write a concurrency of at most one for each rank"
                )
            case Single(cached=0) | Batch():
                return
            case Questions():
                raise UnsupportedError(
                    "DeepInfer takes token ids and gives ids back, so it can neither be asked in "
                    "words nor be graded: ask a vLLM of the same model"
                )
            case _:
                raise UnsupportedError(
                    f"DeepInfer has no prefix cache, and {workload.label} measures what comes of "
                    "one: ask it for kind single without cached tokens, or for kind batch"
                )

    def describe(self, deployment: Deployment) -> list[str]:
        """The command of each rank with its variables, and the call that it makes.

        Raises UnsupportedError where it cannot run the deployment.
        """
        self._check_deployment(deployment)
        lines = []
        for rank in range(deployment.topology.ranks):
            variables = self.variables(deployment, rank).items()
            words = [f"{name}={shlex.quote(value)}" for name, value in variables]
            lines.append(" ".join([*words, shlex.join(self.command)]))
        settings = {"model": self.model or deployment.model, **self.settings(deployment, 0)}
        told = ", ".join(f"{name}={value!r}" for name, value in settings.items())
        return [*lines, f"LLM({told})"]

    @property
    def command(self) -> list[str]:
        """The command of a worker."""
        # With -P the folder of the worker hides no module of the engine's.
        return [self.python, "-P", self.worker or str(WORKER)]

    def variables(self, deployment: Deployment, rank: int) -> dict[str, str]:
        """The environment of a rank, beside what it inherits."""
        return {
            "CUDA_VISIBLE_DEVICES": str(self.devices[rank] if self.devices else rank),
            **(REPLAY[deployment.replay] if deployment.replay else {}),
            **self.environment,
            **deployment.environment,
        }

    def settings(self, deployment: Deployment, rank: int) -> dict[str, Any]:
        """The arguments of a rank's `LLM` beside the model."""
        topology = deployment.topology
        return {
            **self.arguments,
            "expert_parallel_size": topology.data if topology.experts else 1,
            "data_parallel_size": topology.data,
            "engine_rank": rank,
            "decode_sequence": False,
            "disable_log_stats": False,
        }

    @asynccontextmanager
    async def start(
        self,
        deployment: Deployment,
        *,
        seed: int,  # noqa: ARG002
        log: Path,
        keys: Mapping[str, str],  # noqa: ARG002
    ) -> AsyncIterator[Server]:
        """An engine whose every rank is ready, and of which nothing is left afterwards.

        Raises EngineError where a worker ends before it is ready, takes too long or cannot be
        ended, and UnsupportedError where it says that it cannot do what is asked.
        """
        self.describe(deployment)
        await processes.refuse_leftovers(log.parent.parent, self.stop_timeout)
        # First of all, so that a tokenizer that is none starts no engine.
        renderer = Renderer(self._pool())
        log.write_bytes(b"")  # noqa: ASYNC240
        links: list[Link] = []
        try:
            told = await self._started(deployment, log, links)
            client = WorkerClient(links, renderer, silence=self.silence)
            try:
                yield Server(
                    client=client,
                    observe=lambda: self._observed(deployment, told),
                    steps=client.steps,
                    metrics=Page(url="deepinfer:stats", read=partial(_counters, client, log)),
                    ended=client.ended,
                )
            finally:
                await client.close()
        finally:
            await parted(links, self.stop_timeout)

    async def _started(
        self, deployment: Deployment, log: Path, links: list[Link]
    ) -> tuple[Event, ...]:
        """What every rank says when it is ready; the links are added as they are made."""
        meeting = {"MASTER_ADDR": HOST, "MASTER_PORT": str(_free_port() + BELOW_MASTER)}
        for rank in range(deployment.topology.ranks):
            variables = {**meeting, **self.variables(deployment, rank)}
            links.append(
                await linked(self.command, variables, log, rank=rank, seconds=self.stop_timeout)
            )
        orders = [
            {
                "op": "init",
                "protocol": 1,
                "model": self.model or deployment.model,
                "engine_args": self.settings(deployment, link.rank),
            }
            for link in links
        ]
        return tuple(
            await asyncio.gather(
                *(
                    link.ready(order, self.ready_timeout)
                    for link, order in zip(links, orders, strict=True)
                )
            )
        )

    def _check_deployment(self, deployment: Deployment) -> None:
        """Raises UnsupportedError where it cannot run this deployment."""
        topology = deployment.topology
        if topology.gpus != topology.data:
            raise UnsupportedError(
                f"DeepInfer has neither tensor nor pipeline parallelism nor pools of its own, so "
                f"there is no {topology.name}: write TP1, DP2 or DEP2"
            )
        if self.devices and len(self.devices) != topology.gpus:
            raise UnsupportedError(
                f"{topology.name} takes {topology.gpus} GPUs, and devices names "
                f"{len(self.devices)}: name as many"
            )
        if deployment.replay == "on-eager":
            raise UnsupportedError(
                "DeepInfer's bounded replay has no way without graphs: write replay off or on"
            )
        if deployment.flags:
            raise UnsupportedError(
                "DeepInfer is no command, so it takes no flags: write them as the engine's "
                "arguments"
            )

        if deployment.replay and MODE in {**self.environment, **deployment.environment}:
            raise UnsupportedError(
                f"replay is {deployment.replay}, and {MODE} is stated too: leave one of them out"
            )
        if refused := _secret(deployment.environment):
            raise UnsupportedError(refused)

    def _pool(self) -> Pool:
        return tokenized(self.tokenizer) if self.tokenizer else plain(self.vocabulary)

    def _observed(self, deployment: Deployment, told: tuple[Event, ...]) -> Observed:
        """What the ranks say of themselves; the first speaks for all where they agree."""
        features = [one.get("features_observed", {}) for one in told]
        modes = {one["mode"] for one in features if "mode" in one}
        gpus = {one.get("gpus") for one in features}
        arms = sorted(ARMS.get(mode, mode) for mode in modes)
        simulated = any(one.get("simulated") is True for one in told)
        return Observed(
            provenance="simulated" if simulated else "measured",
            gpus=gpus.pop() if len(gpus) == 1 else None,
            requested={"replay": deployment.replay} if deployment.replay else {},
            features={"replay": " and ".join(arms)} if arms else {},
            configuration={
                "command": shlex.join(self.command),
                "version": {"deepinfer": told[0].get("version")},
                "capabilities": told[0].get("caps", {}),
                "arguments": features[0].get("arguments", {}),
                "environment": features[0].get("environment", {}),
            },
        )


async def _counters(client: WorkerClient, log: Path) -> str:
    """What the steps and the log add up to so far, in Prometheus's words."""
    lines = stats.exposition(log)
    for rank, pace in enumerate(client.paces):
        lines.append(f'paceline:step_seconds_total{{rank="{rank}"}} {pace.stepping:.9g}')
        lines.append(f'paceline:between_steps_seconds_total{{rank="{rank}"}} {pace.between:.9g}')
    return "\n".join(lines)


def _secret(settings: Mapping[str, Any]) -> str | None:
    """Why one of the settings must not be stated; None where none is secret."""
    if (name := stated(settings)) is None:
        return None
    return (
        f"{name} holds a secret, and a suite is copied into every run folder: set it as a variable "
        "where paceline is started, which workers inherit"
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
