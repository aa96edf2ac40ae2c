"""Sessions beyond those made before the window are made beside the event loop."""

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from harness.client import Request
from harness.drive import Window, drive
from harness.load import Closed
from results.record import RequestRecord
from tests.recordings import call
from tests.replayed import PLAIN, NoEngine, Patient, Played, SteadyPoint, trace
from workloads.content import base_seed
from workloads.replay import Replay, replay

LONG = trace([call(turn / 1000, [*range(1, turn + 2)], 0.001) for turn in range(400)], name="long")
SHORT = trace([call(0, [1])], name="short")
READY = 3
"""The sessions of SHORT that are made before the window: one begins it, two are kept ahead."""


@dataclass(frozen=True, kw_only=True)
class Slow(Played):
    """Sessions of which one, after so many that are `ready`, is not made until it may be."""

    ready: int
    go: threading.Event = field(default_factory=threading.Event)

    def replays(self, seed: int) -> Iterator[Replay]:
        for number in range(1000):
            if number == self.ready:
                assert self.go.wait(timeout=20), "the event loop stood still meanwhile"
            one = LONG if len(self.given) > 1 and not number else SHORT
            yield replay(one, PLAIN, base_seed(seed))


@dataclass(kw_only=True)
class Watching(Patient):
    """Lets the fourth be made when five requests of the long one came after the third's end."""

    go: threading.Event
    stop: asyncio.Event
    ended: int = 0
    meanwhile: int = 0

    async def send(self, request: Request, **more: Any) -> Any:
        short = "short" in str(request.session)
        if not short and self.ended == READY:
            self.meanwhile += 1
            if self.meanwhile == 5:
                self.go.set()
        reply = await super().send(request, **more)
        self.ended += short
        if self.ended > READY:
            self.stop.set()
        return reply


@dataclass(kw_only=True)
class Preparing(Watching):
    """Lets it be made when the warm-up has ended and the window has not begun."""

    async def prepare(self, request: Request) -> None:
        self.go.set()
        for _ in range(1000):
            await asyncio.sleep(0)
        await super().prepare(request)


def driven(
    workload: Slow, kind: type[Watching], concurrency: int, duration: float
) -> tuple[Window, Watching, list[RequestRecord]]:
    """What came of the sessions on the clock of the wall."""
    load = Closed(concurrency=concurrency, duration=duration, grace=0.0, warmup=0)
    point = SteadyPoint(workload, load, "TP1")
    point.deployment = replace(point.deployment, engine=NoEngine(clock="wall"))  # type: ignore[arg-type]
    records: list[RequestRecord] = []

    async def main() -> tuple[Window, Watching]:
        stop = asyncio.Event()
        client = kind(service=0.001, go=workload.go, stop=stop)
        kept = records.append
        return await drive(point, client, kept, run="r", salt=5, interrupt=stop), client  # type: ignore[arg-type]

    return *asyncio.run(main()), records


def test_a_lane_waits_for_its_session_to_be_made_and_the_others_go_on() -> None:
    workload = Slow(given=(LONG, SHORT), ready=READY + 1)
    window, client, records = driven(workload, Watching, concurrency=2, duration=30.0)
    assert client.meanwhile >= 5
    assert window.protocol is not None
    assert window.protocol.unready >= 1
    assert window.protocol.recycled >= READY
    fourth = [one for one in records if one.trace == "short"][READY]
    between = [one for one in records if one.trace == "long" and one.sent]
    assert sum(fourth.ready <= (one.sent or 0.0) <= (fourth.sent or 0.0) for one in between) >= 5
    assert fourth.client_lag == (fourth.sent or 0.0) - fourth.ready


def test_a_session_made_before_the_window_opens_does_not_end_it() -> None:
    # One begins, one is kept ahead, and the next is asked for when the first ends under pressure.
    workload = Slow(given=(SHORT,), own=replace(PLAIN, pressure=1), ready=2)
    _, client, _ = driven(workload, Preparing, concurrency=1, duration=30.0)
    assert client.ended > READY
