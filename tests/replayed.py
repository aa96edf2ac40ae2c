"""Hand-made traces, replayed on the virtual clock by a client that takes the seconds it is told."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from harness import clock
from harness.client import ANSWER, Reply, Request
from harness.drive import Window, drive
from harness.engine import Deployment
from harness.load import Closed
from harness.topology import parse
from results.record import RequestRecord
from workloads.agentx import AgentX
from workloads.profile import AGENTX_V1, Profile
from workloads.weka import Agent, Call, Trace

NEVER = 1e6

PLAIN = replace(
    AGENTX_V1,
    id="plain",
    start_from=0.0,
    start_to=0.0,
    pressure=0,
    tree_idle_cap=None,
    system_idle_cap=NEVER,
    grace=0.0,
    error_share=None,
    coverage=None,
    traces=None,
)
"""From the first turn on, with nothing before the window and no idle caps."""


def agent(place: int, start: float, end: float, *calls: Call, name: str = "a") -> Agent:
    """A sub-agent spawned at `start` by the main call before `place`."""
    return Agent(id=name, place=place, end=end, preamble=0, calls=calls, start=start)


def trace(calls: Sequence[Call], *agents: Agent, name: str = "t", preamble: int = 0) -> Trace:
    """A trace of those calls."""
    return Trace(id=name, preamble=preamble, calls=tuple(calls), agents=agents)


@dataclass(frozen=True, kw_only=True)
class Played(AgentX):
    """Traces as given, replayed by a profile of one's own."""

    own: Profile = PLAIN
    given: tuple[Trace, ...] = ()

    @property
    def rules(self) -> Profile:
        return self.own

    def identity(self) -> dict[str, Any]:
        return {"given": len(self.given)}

    def _chosen(self) -> Sequence[Trace]:
        return self.given


@dataclass(frozen=True, kw_only=True)
class NoEngine:
    """An engine that only has a name."""

    kind: str = "fixed"
    name: str = "fixed"
    clock: str = "virtual"


class SteadyPoint:
    """A point whose workload holds arrays, which a hash of its content cannot."""

    id, name, repeat, position, seed = "00000000", "played", 0, 0, 1

    def __init__(self, workload: AgentX, load: Closed, topology: str) -> None:
        self.workload, self.load = workload, load
        self.deployment = Deployment(engine=NoEngine(), topology=parse(topology))  # type: ignore[arg-type]


@dataclass(kw_only=True)
class Patient:
    """Takes as many seconds as tokens are asked for, or `service`; fails by name of the turn.

    It reads for so many seconds more before it gives its reply back.
    """

    errors: dict[tuple[str, int], str] = field(default_factory=dict)
    service: float | None = None
    reading: float = 0.0
    seen: list[tuple[float, Request]] = field(default_factory=list)
    prepared: dict[str, float] = field(default_factory=dict)

    async def prepare(self, request: Request) -> None:
        self.prepared[request.id] = clock.now()

    async def send(self, request: Request, *, cut: asyncio.Event, on_first: Any) -> Reply:
        sent = clock.now()
        self.seen.append((sent, request))
        on_first(sent)
        stop = asyncio.ensure_future(cut.wait())
        await asyncio.wait({stop}, timeout=self.service or float(request.output))
        stop.cancel()
        stream, turn = request.session.split("-", 2)[2], int(request.id.rsplit("-", 1)[1])
        stamps = np.zeros(0) if cut.is_set() else np.array([clock.now()])
        reply = Reply(
            sent=sent,
            stamps=stamps,
            tokens=np.ones(len(stamps), dtype=np.int32),
            kinds=np.full(len(stamps), ANSWER, dtype=np.uint8),
            closed=clock.now(),
            cut=cut.is_set(),
            error=self.errors.get((stream, turn)),
            input_tokens=request.prompt.length,
            output_tokens=request.output,
        )
        await asyncio.sleep(self.reading)
        return reply


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of it. The first `begun` trees are those that the lanes began with."""

    begun: int
    window: Window
    records: list[RequestRecord]
    client: Patient

    def sent(self, phase: str = "window") -> dict[tuple[str, int], float]:
        """When each turn of the phase was sent by the trees that lanes began with."""
        told = [one for one in self.records if one.phase == phase and one.tree < self.begun]
        moments = {(one.stream, one.turn): _since(one.sent, self.window) for one in told}
        assert len(moments) == len(told), "a turn was sent twice"
        return dict(sorted(moments.items(), key=lambda one: one[1]))

    def lanes(self, phase: str = "window") -> Iterator[tuple[int, str, int, float]]:
        """Lane, stream, turn and moment of each request of the phase, in their order."""
        for one in sorted(self.records, key=lambda one: (one.sent or 0.0, one.lane)):
            if one.phase == phase:
                yield one.lane, one.stream, one.turn, _since(one.sent, self.window)


def _since(sent: float | None, window: Window) -> float:
    assert sent is not None
    return round(sent - window.opened, 6)


def play(
    *traces: Trace,
    concurrency: int = 1,
    duration: float = 50.0,
    client: Patient | None = None,
    topology: str = "TP1",
    kept: list[RequestRecord] | None = None,
    **changes: Any,
) -> Outcome:
    """Replays the traces by PLAIN with those changes; `kept` has the records where that fails."""
    profile = replace(PLAIN, **changes)
    client = client or Patient()
    records: list[RequestRecord] = [] if kept is None else kept
    load = Closed(concurrency=concurrency, duration=duration, grace=profile.grace, warmup=0)
    point = SteadyPoint(Played(own=profile, given=traces), load, topology)

    async def run() -> Window:
        stop = asyncio.Event()
        return await drive(point, client, records.append, run="r", salt=5, interrupt=stop)  # type: ignore[arg-type]

    return Outcome(
        window=clock.run("virtual", run()), records=records, client=client, begun=concurrency
    )
