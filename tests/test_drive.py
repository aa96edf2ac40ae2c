import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from harness import clock
from harness.client import ANSWER, Reply, Request
from harness.drive import drive
from harness.engine import Deployment
from harness.load import Closed, Open, Recorded, arrivals
from harness.point import Point
from harness.topology import parse
from workloads.prompt import MARKER_TOKENS, Prompt
from workloads.session import Key, Session, Turn


@dataclass(frozen=True, kw_only=True)
class FixedEngine:
    """An engine that only has a name; the client below stands for its server."""

    kind: str = "fixed"
    name: str = "fixed"
    clock: str = "virtual"


@dataclass(kw_only=True)
class FixedClient:
    """Answers with `pieces` pieces, evenly spaced over `service` seconds; notes what it saw."""

    service: float = 1.0
    pieces: int = 4
    error: str | None = None
    seen: list[tuple[float, Request]] = field(default_factory=list)
    prepared: list[tuple[float, Request]] = field(default_factory=list)
    in_flight: int = 0
    peak: int = 0

    async def prepare(self, request):
        self.prepared.append((clock.now(), request))

    async def send(self, request, *, cut, on_first):
        sent = clock.now()
        self.seen.append((sent, request))
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        stamps = sent + self.service * np.arange(1, self.pieces + 1) / self.pieces
        stop = asyncio.ensure_future(cut.wait())
        await asyncio.wait({stop}, timeout=self.service)
        stop.cancel()
        self.in_flight -= 1
        arrived = stamps[stamps <= clock.now()]
        return Reply(
            sent=sent,
            stamps=arrived,
            tokens=np.ones(len(arrived), dtype=np.int32),
            kinds=np.full(len(arrived), ANSWER, dtype=np.uint8),
            closed=clock.now(),
            cut=cut.is_set() and len(arrived) < self.pieces,
            error=self.error,
            input_tokens=request.prompt.length,
            output_tokens=len(arrived),
        )


def prompt(*seeds: int, tokens: int = 64) -> Prompt:
    return Prompt(
        seeds=np.array([0, *seeds], dtype=np.uint64),
        tokens=np.array([MARKER_TOKENS, *[tokens] * len(seeds)]),
        marker=0,
    )


def turn(number: int, *seeds: int, **more: Any) -> Turn:
    stream = more.pop("stream", "main")
    return Turn(key=Key(stream, number), prompt=prompt(*seeds), output=4, **more)


@dataclass(frozen=True, kw_only=True)
class Scripted:
    """Sessions as given, over and over."""

    script: tuple[Session, ...]
    kind: str = "scripted"
    label: str = "scripted"

    def identity(self) -> dict[str, Any]:
        return {"script": len(self.script)}

    def sessions(self, seed: int) -> Iterator[Session]:
        while True:
            yield from self.script

    def warmup(self, seed: int) -> Iterator[Session]:
        yield Session(trace="warm-up-0", turns=(turn(0, 1),))
        yield Session(trace="warm-up-1", turns=(turn(0, 1, 2),))


def one_turn() -> Scripted:
    return Scripted(script=(Session(trace="t", turns=(turn(0, 7),)),))


def replay(
    load, client, workload=None, topology="TP1", pinned=True, keep=None, stop=None, settle=False
):
    """The window and its records; an interrupt comes at `stop`."""
    records = []
    deployment = Deployment(engine=FixedEngine(), topology=parse(topology), pinned=pinned)
    point = Point(experiment="x", deployment=deployment, workload=workload or one_turn(), load=load)
    point = SteadyPoint(point)

    async def main():
        interrupt = asyncio.Event()
        if stop:
            asyncio.get_running_loop().call_at(stop, interrupt.set)
        kept = keep or records.append
        more = {"run": "r", "salt": 5, "interrupt": interrupt, "settle": settle}
        return await drive(point, client, kept, **more)

    return clock.run("virtual", main()), records


class SteadyPoint:
    """A point whose workload holds arrays, which a hash of its content cannot."""

    id, repeat, position, seed = "00000000", 0, 0, 1

    def __init__(self, point: Point) -> None:
        self.deployment, self.workload, self.load = point.deployment, point.workload, point.load


def test_a_closed_load_keeps_just_its_concurrency_in_flight():
    client = FixedClient()
    window, records = replay(Closed(concurrency=3, sessions=9, warmup=0), client)
    assert client.peak == 3
    assert [record.state for record in records] == ["ok"] * 9
    assert window.closed - window.opened == pytest.approx(3.0)


def test_requests_cut_at_the_deadline_are_rows_with_what_had_arrived():
    # F-14: 60 s window, 50 s requests, concurrency 8.
    client = FixedClient(service=50.0, pieces=50)
    window, records = replay(Closed(concurrency=8, duration=60.0, warmup=0), client)
    assert (window.opened, window.closed) == (0.0, 60.0)
    by_state = {state: [r for r in records if r.state == state] for state in ("ok", "cut")}
    assert len(by_state["ok"]) == 8
    assert len(by_state["cut"]) == 8
    assert {record.output_tokens for record in by_state["cut"]} == {10}
    assert {record.reason for record in by_state["cut"]} == {"cut at the end of the window"}


def test_grace_lets_requests_finish_after_the_window_and_sends_no_new_one():
    client = FixedClient(service=50.0)
    window, records = replay(Closed(concurrency=2, duration=60.0, grace=45.0, warmup=0), client)
    assert window.closed == 60.0
    assert [record.state for record in records] == ["ok"] * 4
    assert max(sent for sent, _ in client.seen) == 50.0


def test_an_open_load_with_a_limit_shows_the_wait_for_its_place_in_schedule_latency():
    # F-12: 500 ms service, 10 requests a second, one at a time, 8 requests.
    client = FixedClient(service=0.5)
    load = Open(rate=10.0, process="constant", limit=1, sessions=8, warmup=0)
    _, records = replay(load, client)
    service = [record.last - record.sent for record in records]
    schedule = [record.last - record.planned for record in records]
    assert service == pytest.approx([0.5] * 8)
    assert np.mean(schedule) == pytest.approx(1.9)
    assert max(schedule) == pytest.approx(3.3)
    assert max(record.client_lag for record in records) == pytest.approx(0.0, abs=1e-9)


def test_requests_that_never_got_their_place_are_rows_too():
    # F-12, F-14: 100 requests are due in 10 s, one at a time, 0.5 s each.
    client = FixedClient(service=0.5)
    load = Open(rate=10.0, process="constant", limit=1, duration=9.95, warmup=0)
    _, records = replay(load, client)
    unsent = [record for record in records if record.sent is None]
    assert len(records) == 100
    assert len(unsent) == 80
    assert {record.state for record in unsent} == {"cut"}
    assert "waited for its place" in unsent[0].reason
    assert max(record.planned for record in records) == pytest.approx(9.9)


def test_a_request_that_had_no_connection_yet_says_so():
    class Connecting(FixedClient):
        async def send(self, request, *, cut, on_first):
            return replace(await super().send(request, cut=cut, on_first=on_first), sent=None)

    client = Connecting(service=50.0, pieces=1)
    _, (record,) = replay(Closed(concurrency=1, duration=9.0, warmup=0), client)
    assert (record.state, record.sent) == ("cut", None)
    assert record.reason == "never sent: it waited for its connection when the window ended"


def test_recorded_turns_that_were_due_behind_a_held_one_are_rows_too():
    turns = tuple(turn(k, *range(1, k + 2), recorded=float(k)) for k in range(20))
    workload = Scripted(script=(Session(trace="t", turns=turns),))
    load = Recorded(sessions=1, limit=1, duration=9.5, warmup=0)
    _, records = replay(load, FixedClient(service=4.0), workload)
    assert [record.turn for record in records if record.sent is not None] == [0, 1, 2]
    assert sorted(record.turn for record in records) == list(range(10))


def test_an_open_load_keeps_its_rate_without_drift():
    # F-13: 200 requests a second, 2,000 requests, a 1 ms server.
    client = FixedClient(service=0.001, pieces=1)
    load = Open(rate=200.0, process="constant", sessions=2000, warmup=0)
    _, records = replay(load, client)
    sent = sorted(record.sent for record in records)
    assert sent[-1] == pytest.approx(1999 / 200, abs=2e-6)


def test_poisson_and_gamma_arrivals_have_the_stated_rate_and_spread():
    def gaps(load):
        source = arrivals(load, 3)
        return np.diff([next(source) for _ in range(20_000)])

    poisson = gaps(Open(rate=4.0, sessions=1))
    assert poisson.mean() == pytest.approx(0.25, rel=0.03)
    assert poisson.std() / poisson.mean() == pytest.approx(1.0, rel=0.05)
    bursty = gaps(Open(rate=4.0, process="gamma", burstiness=0.25, sessions=1))
    assert bursty.mean() == pytest.approx(0.25, rel=0.06)
    assert bursty.std() / bursty.mean() == pytest.approx(2.0, rel=0.06)


def test_a_recorded_load_sends_each_turn_at_its_recorded_moment_whatever_is_still_running():
    turns = tuple(
        turn(k, *range(1, k + 2), recorded=2.0 * k, previous=Key("main", k - 1) if k else None)
        for k in range(4)
    )
    workload = Scripted(script=(Session(trace="t", turns=turns),))
    client = FixedClient(service=10.0)
    _, records = replay(Recorded(sessions=1, speed=2.0, warmup=0), client, workload)
    assert [sent for sent, _ in client.seen] == pytest.approx([0.0, 1.0, 2.0, 3.0])
    assert len(records) == 4


def test_a_turn_waits_for_its_delay_and_for_all_that_it_joins():
    child = Key("child", 0)
    session = Session(
        trace="t",
        turns=(
            turn(0, 1),
            turn(0, 9, stream="child", previous=Key("main", 0), delay=5.0, depth=1),
            turn(1, 1, 2, previous=Key("main", 0), delay=2.0, after=(child,)),
            turn(2, 1, 2, 3, previous=Key("main", 1), delay=3.0),
        ),
    )
    client = FixedClient(service=1.0)
    _, records = replay(Closed(sessions=1, warmup=0), client, Scripted(script=(session,)))
    sent = {(record.stream, record.turn): record.sent for record in records}
    assert sent == pytest.approx(
        {("main", 0): 0.0, ("child", 0): 6.0, ("main", 1): 7.0, ("main", 2): 11.0}
    )
    joined = next(record for record in records if record.turn == 1)
    assert joined.planned == pytest.approx(3.0)
    assert joined.ready == pytest.approx(7.0)


def test_a_request_is_prepared_before_it_is_due_and_that_very_request_is_sent():
    turns = (turn(0, 1), turn(1, 1, 2, previous=Key("main", 0), delay=5.0))
    client = FixedClient(service=1.0)
    replay(
        Closed(sessions=1, warmup=0),
        client,
        Scripted(script=(Session(trace="t", turns=turns),)),
    )
    assert [moment for moment, _ in client.prepared] == [0.0, 0.0]
    assert [moment for moment, _ in client.seen] == pytest.approx([0.0, 6.0])
    assert [id(sent) for _, sent in client.seen] == [id(ready) for _, ready in client.prepared]


def test_a_failed_turn_is_a_row_and_its_session_goes_on():
    session = Session(
        trace="t", turns=(turn(0, 1), turn(1, 1, 2, previous=Key("main", 0), delay=1.0))
    )
    client = FixedClient(error="connection refused")
    _, records = replay(Closed(sessions=1, warmup=0), client, Scripted(script=(session,)))
    assert [(record.turn, record.state, record.reason) for record in records] == [
        (0, "failed", "connection refused"),
        (1, "failed", "connection refused"),
    ]


def test_warm_up_sends_every_shape_to_every_rank_before_the_window_opens():
    client = FixedClient()
    window, records = replay(Closed(sessions=4, warmup=2), client, topology="DEP2")
    warm = [record for record in records if record.phase == "warm-up"]
    assert len(warm) == 2 * 2 * 2
    assert max(record.closed for record in warm) <= window.opened
    assert {request.rank for sent, request in client.seen if sent < window.opened} == {0, 1}
    assert sum(record.phase == "window" for record in records) == 4


def test_salts_differ_between_sessions_and_leave_hash_and_length_alone():
    client = FixedClient()
    _, records = replay(Closed(sessions=3, warmup=1), client)
    markers = {int(request.prompt.seeds[0]) for _, request in client.seen}
    assert len(markers) == len(client.seen)
    window_rows = [record for record in records if record.phase == "window"]
    assert len({record.prompt_hash for record in window_rows}) == 1
    assert {record.asked_input for record in window_rows} == {MARKER_TOKENS + 64}


def test_the_ceiling_is_the_longest_prefix_the_session_has_sent_before():
    turns = (
        turn(0, 1, 2),
        turn(1, 1, 2, 3, previous=Key("main", 0)),
        turn(2, 1, 9, previous=Key("main", 1)),
    )
    workload = Scripted(script=(Session(trace="t", turns=turns),))
    _, records = replay(Closed(sessions=2, warmup=0), FixedClient(), workload)
    ceilings = [record.ceiling_tokens for record in records]
    assert ceilings == [0, 8 + 128, 8 + 64] * 2


def test_a_session_stays_on_one_rank_when_pinned_and_on_none_when_not():
    turns = (turn(0, 1), turn(1, 1, 2, previous=Key("main", 0)))
    workload = Scripted(script=(Session(trace="t", turns=turns),))
    pinned = FixedClient()
    replay(Closed(concurrency=4, sessions=4, warmup=0), pinned, workload, topology="DEP4")
    ranks: dict[str, set[int]] = {}
    for _, request in pinned.seen:
        ranks.setdefault(request.session, set()).add(request.rank)
    assert sorted(ranks.values(), key=min) == [{0}, {1}, {2}, {3}]
    free = FixedClient()
    replay(Closed(sessions=2, warmup=0), free, workload, topology="DEP4", pinned=False)
    assert {request.rank for _, request in free.seen} == {None}


def test_an_interrupt_cuts_what_is_in_flight_and_keeps_it_as_rows():
    client = FixedClient(service=10.0, pieces=10)
    load = Closed(concurrency=2, duration=1000.0, warmup=0)
    window, records = replay(load, client, stop=14.5)
    assert window.closed == 14.5
    assert [record.state for record in records] == ["ok", "ok", "cut", "cut"]
    assert {record.output_tokens for record in records if record.state == "cut"} == {4}


def test_a_failure_to_keep_a_row_ends_the_point_and_nothing_hangs():
    def refuse(record):
        raise OSError("no space left")

    with pytest.raises(ExceptionGroup) as caught:
        replay(Closed(concurrency=4, duration=100.0, warmup=0), FixedClient(), keep=refuse)
    assert caught.group_contains(OSError)
