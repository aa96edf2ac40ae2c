"""The seam to engines: a deployment in, a running server out."""

from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import pyarrow as pa

from harness.client import Client, Page, Request, Room
from harness.clock import Clock
from harness.load import Load
from harness.topology import Topology
from results.errors import UnsupportedError
from results.evidence import Observed
from workloads.forward import Forward
from workloads.session import Workload

Replay = Literal["off", "on-eager", "on"]

Affinity = Literal["rank-header", "port", "router"]
"""How sessions are kept at their data-parallel ranks: by a header that names the rank, by a port
that each rank has, or by a router that knows sessions by theirs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """What is to run: engine, model, topology, replay arm, flags. Holds no secrets.

    Where `replay` is None the engine does as it is wont, and nothing is claimed of it.
    """

    engine: "Engine"
    topology: Topology
    replay: Replay | None = None
    model: str = "deepseek-ai/DeepSeek-V4.1-Flash"
    pinned: bool = True
    flags: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def arm(self) -> str:
        """The short name of everything that is compared: `sim TP4 replay=on`."""
        unpinned = "" if self.pinned or self.topology.ranks == 1 else " unpinned"
        replay = f" replay={self.replay}" if self.replay else ""
        return f"{self.engine.name} {self.topology.name}{replay}{unpinned}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A running engine: its client, and what it was observed to be, read when the point ends.

    `metrics` is where it tells its counters, in Prometheus's words. `ended` gives a coroutine that
    waits until the server has ended by itself, and says why. One that `compiles` is slow at first,
    and is warmed up until its times settle. `room` tells what there is for an answer to a
    question, `made_up` whether drafts are accepted without looking, where that is known.
    """

    client: Client
    observe: Callable[[], Observed]
    steps: Callable[[], pa.Table | None]
    metrics: Page | None = None
    ended: Callable[[], Coroutine[Any, Any, str]] | None = None
    compiles: bool = False
    room: Callable[[Request], Coroutine[Any, Any, Room]] | None = None
    made_up: bool | None = None


class Engine(Protocol):
    """Turns a deployment into a running server. A kind is a frozen dataclass of its settings."""

    @property
    def kind(self) -> str:
        """The name of this kind in a suite."""

    @property
    def name(self) -> str:
        """What this engine is called in arms, tables and charts."""

    @property
    def clock(self) -> Clock:
        """The clock its points run on."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """The names of the environment variables whose values it needs to start."""

    def describe(self, deployment: Deployment) -> list[str]:
        """What starting it would do, a line each: the exact commands where there are any.

        Raises UnsupportedError where it cannot run the deployment.
        """

    def start(
        self, deployment: Deployment, *, seed: int, log: Path, keys: Mapping[str, str]
    ) -> AbstractAsyncContextManager[Server]:
        """A server that is up when the context is entered and gone when it is left.

        It writes its own log to the path `log`. `keys` are secrets by the name of the environment
        variable that holds them; they are written nowhere. Raises EngineError where it does not
        come up.
        """


@runtime_checkable
class Choosy(Protocol):
    """An engine that cannot do all work, whatever its deployment."""

    def check(self, workload: Workload, load: Load, deployment: Deployment) -> None:
        """Raises UnsupportedError where it cannot do this work."""


@runtime_checkable
class Keeping(Protocol):
    """An engine whose servers may stay up, and come up together before their first points."""

    async def together(self, deployments: Iterable[Deployment], *, seed: int, log: Path) -> None:
        """Has the servers of all that may come up at once do so, beside those that are up.

        One that does not come up is left to its own point, which says why. Raises InputError where
        something is in their way.
        """


@runtime_checkable
class Prober(Protocol):
    """An engine that can time single steps of itself, without a server."""

    def probing(self, deployment: Deployment, workload: Forward) -> list[str]:
        """What timing the steps would do, a line each: the exact commands.

        Raises UnsupportedError where it cannot time them.
        """

    async def probe(
        self, deployment: Deployment, workload: Forward, *, log: Path
    ) -> tuple[Observed, pa.Table]:
        """What ran, and rows of results.steps.SCHEMA; its own log goes to the path `log`.

        Raises EngineError where it fails, and UnsupportedError where it cannot be had.
        """


def prober(engine: Engine) -> Prober:
    """The engine as one that times its own steps. Raises UnsupportedError where it cannot."""
    if isinstance(engine, Prober):
        return engine
    raise UnsupportedError(
        f"kind {engine.kind} cannot time single steps: write kind: vllm, whose bench forward does, "
        "or a batch or single workload, which any engine answers"
    )
