"""The simulated engine: what it can be set to, and a server of it."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import orjson
import pyarrow as pa
from annotated_types import Ge, Le

from harness.client import Request, Room
from harness.clock import Clock
from harness.engine import Deployment, Replay, Server
from harness.load import Load
from harness.sim.answers import Accuracy, Said, said
from harness.sim.client import Pump, SimulatedClient
from harness.sim.cost import Cost
from harness.sim.machine import Machine, Settings
from results.errors import UnsupportedError
from results.evidence import Observed
from workloads.chat import Chat
from workloads.session import Workload

Count = Annotated[int, Ge(1), Le(1_000_000_000)]

MOST_BLOCKS = 10_000_000

USUAL: Replay = "on"
"""What it does where nothing else is asked for, as vLLM does."""

STEPS = pa.schema(
    [
        pa.field("rank", pa.int32(), nullable=False),
        pa.field("steps", pa.int32(), nullable=False),
        pa.field("start_us", pa.int64(), nullable=False),
        pa.field("end_us", pa.int64(), nullable=False),
        pa.field("prefill_tokens", pa.int32(), nullable=False),
        pa.field("decode_rows", pa.int32(), nullable=False),
        pa.field("context_tokens", pa.float64(), nullable=False),
        pa.field("waiting", pa.int32(), nullable=False),
        pa.field("kv_blocks", pa.int32(), nullable=False),
    ]
)
"""One row a run of `steps` steps of equal composition; `context_tokens` is the mean of a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedEngine:
    """An engine that is arithmetic: its speed is made up, its queues and caches are kept exactly.

    `kv_tokens` is for each rank. `noise` is the relative standard deviation of a step's time,
    `drift` its relative change per hour, applied in ticks of ten seconds. `slowdown` multiplies
    every step: a truth that comparisons can be checked against. With `draft_tokens`, a decode step
    delivers `acceptance_length` tokens on average. Data-parallel ranks do not wait for one another.
    With an `accuracy` it answers questions, as often rightly as that says.
    """

    clock: ClassVar[Clock] = "virtual"
    secrets: ClassVar[tuple[str, ...]] = ()
    kind: Literal["sim"] = "sim"
    name: str = "sim"
    block_size: Count = 64
    kv_tokens: Count = 4_000_000
    max_batched_tokens: Count = 8192
    max_sequences: Count = 256
    draft_tokens: Annotated[int, Ge(0), Le(64)] = 0
    acceptance_length: Annotated[float, Ge(1)] | None = None
    noise: Annotated[float, Ge(0), Le(1)] = 0.0
    drift: Annotated[float, Ge(-0.99), Le(100)] = 0.0
    slowdown: Annotated[float, Ge(1e-3), Le(1e3)] = 1.0
    context_limit: Count | None = None
    cost: Cost = field(default_factory=Cost)
    accuracy: Accuracy | None = None

    def __post_init__(self) -> None:
        if (self.acceptance_length is None) != (self.draft_tokens == 0):
            raise ValueError("draft_tokens and acceptance_length belong together: set both")
        if self.acceptance_length is not None and self.acceptance_length > self.draft_tokens + 1:
            raise ValueError(
                f"acceptance_length is {self.acceptance_length}, but {self.draft_tokens} draft "
                f"tokens give at most {self.draft_tokens + 1}"
            )
        if not self.name.isprintable() or not self.name.strip():
            raise ValueError(f"name {self.name!r} cannot be shown: use printable characters")
        if self.kv_tokens // self.block_size > MOST_BLOCKS:
            raise ValueError(
                f"kv_tokens {self.kv_tokens} are more than {MOST_BLOCKS} blocks of "
                f"{self.block_size}: lower them, or raise block_size"
            )
        if self.max_batched_tokens < self.max_sequences * (1 + self.draft_tokens):
            raise ValueError(
                "max_batched_tokens is too small for a decode step of max_sequences: "
                f"raise it to {self.max_sequences * (1 + self.draft_tokens)}"
            )

    def check(self, workload: Workload, load: Load, deployment: Deployment) -> None:  # noqa: ARG002
        """Raises UnsupportedError for questions, unless it is stated how often it is right."""
        if workload.kind == "questions" and self.accuracy is None:
            raise UnsupportedError(
                "The simulated engine knows no answers: state how often it does, as in accuracy: "
                "{right: 0.9, redrawn: 0.05}"
            )

    def describe(self, deployment: Deployment) -> list[str]:
        """What it simulates. Raises UnsupportedError for pools, and for flags and environment."""
        if deployment.flags or deployment.environment:
            raise UnsupportedError(
                "The simulated engine takes no flags and no environment: set its own fields."
            )
        topology = deployment.topology
        if topology.pools:
            raise UnsupportedError(
                f"The simulated engine has no pools, and {topology.name} names two: write a "
                "topology without a +"
            )
        return [
            f"SIMULATED, nothing is started: {topology.name}, {topology.ranks} rank(s), "
            f"replay {deployment.replay or USUAL}, {self.kv_tokens:,} KV tokens a rank",
            "step times are plausible constants, not a prediction of any machine",
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
        """A server on the running loop; its log, written when it stops, holds the truth."""
        self.describe(deployment)
        settings = self.settings(deployment)
        machines = [
            Machine(settings, rank=rank, seed=seed) for rank in range(deployment.topology.ranks)
        ]
        client = SimulatedClient(
            [Pump(machine) for machine in machines],
            drafts=self.draft_tokens,
            context_limit=self.context_limit,
            say=self._sayer(deployment, seed),
        )
        observed = self._observed(deployment)
        try:
            yield Server(
                client=client,
                observe=lambda: observed,
                steps=lambda: _steps(machines),
                room=self._room,
                made_up=False,
            )
        finally:
            client.stop()
            _write(log, {"SIMULATED": observed.configuration, "seed": seed}, client.truth)

    def _sayer(self, deployment: Deployment, seed: int) -> Callable[[Chat], Said]:
        """What answers the questions of one run."""

        def say(chat: Chat) -> Said:
            return said(
                self.accuracy or Accuracy(),
                chat.question,
                chat.target,
                replay=deployment.replay or USUAL,
                run=(seed, chat.epoch),
                thinks=bool(chat.thinking),
            )

        return say

    async def _room(self, request: Request) -> Room:
        """What a question takes of the context, as it is counted here."""
        return Room(tokens=request.prompt.length, context=self.context_limit)

    def settings(self, deployment: Deployment) -> Settings:
        """What each rank of a deployment is."""
        return Settings(
            block_size=self.block_size,
            blocks=self.kv_tokens // self.block_size,
            max_batched_tokens=self.max_batched_tokens,
            max_sequences=self.max_sequences,
            draft_tokens=self.draft_tokens,
            acceptance_length=self.acceptance_length,
            noise=self.noise,
            drift=self.drift,
            slowdown=self.slowdown,
            replay=deployment.replay or USUAL,
            topology=deployment.topology,
            cost=self.cost,
        )

    def _observed(self, deployment: Deployment) -> Observed:
        topology, replay = deployment.topology, deployment.replay or USUAL
        return Observed(
            provenance="simulated",
            gpus=topology.gpus,
            requested={"replay": replay},
            features={"replay": replay},
            configuration={**asdict(self), "topology": topology.name, "ranks": topology.ranks},
        )


def _steps(machines: list[Machine]) -> pa.Table:
    rows = [row for machine in machines for row in machine.taken]
    return pa.Table.from_pylist(rows, schema=STEPS)


def _write(log: Path, head: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    log.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in [head, *rows]))
