"""Runs points one after another into a run folder, and leaves alone those that are finished."""

import asyncio
import gc
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from harness import clock
from harness.client import Page
from harness.drive import Window, drive
from harness.engine import Deployment, Keeping, Server, prober
from harness.gpus import TOOL, watched
from harness.hearing import Hearing, hearing
from harness.point import Point
from harness.sampling import sampled
from harness.trial import unheard
from results.errors import EngineError, InputError, UnsupportedError
from results.evidence import Evidence
from results.folder import RunFolder
from results.record import RequestRecord
from results.writer import PointWriter
from workloads.forward import Forward
from workloads.prompt import seed_of
from workloads.questions import Questions

T = TypeVar("T")

Measured = tuple[str | None, Evidence, pa.Table | None]
"""Why a point failed, if it did, what it was observed to be, and the steps that it took."""

Look = tuple[float, float]
"""A moment at which the event loop was to come, and the one at which it came."""

FAILURES_IN_A_ROW = 50
"""After so many failures, with nothing else between them, a point ends."""

UNDONE = frozenset({None, "not started"})
"""The outcomes of points that are run when a folder is taken up."""

LOOK, FEWEST_LOOKS = 0.02, 25
"""Seconds between two looks at whether the event loop comes in time, and how many say something."""

LAST_WORDS = 0.2
"""Seconds between the end of a server and the end of its point."""

DYING = 5.0
"""How many seconds a server whose requests all fail is given to say why, by ending."""


class Watch(Protocol):
    """Is told how a run goes."""

    def point_started(
        self, name: str, number: int, total: int | None, estimate: float | None
    ) -> None:
        """Point `number` of `total`, counted from 1, begins; a search does not know its total."""

    def request_done(self, record: RequestRecord) -> None:
        """A request became a row."""

    def point_finished(self, name: str, status: str, reason: str | None, seconds: float) -> None:
        """A point has its outcome, after so many seconds on the wall."""

    def point_skipped(self, name: str, status: str) -> None:
        """A point has had its outcome since an earlier run."""


def run(
    points: Sequence[Point],
    folder: RunFolder,
    watch: Watch,
    *,
    budget: float | None = None,
    estimates: Sequence[float | None] = (),
    keys: Mapping[str, str] | None = None,
    begun: int | None = None,
) -> Counter[str]:
    """Gives every point that has no outcome one, in order; how many points have which status.

    `estimates` are the points' seconds on the wall, where anyone can guess them; `keys` are the
    secrets that engines need; `begun` is how many points came before where nobody knows how many
    will come after. Points that would begin after `budget` seconds become `not started`, and run
    when the folder is taken up again. Raises KeyboardInterrupt, with the rows of the broken point
    kept, on Ctrl-C.
    """
    started = time.monotonic()
    left = [one for one in points if folder.outcome(one.name, one.id) in UNDONE]
    for point in left:
        if isinstance(point.workload, Questions):
            # What cannot be asked should not be found out when a server is up.
            point.workload.exam()
    coming = deque(point.deployment for point in left)
    statuses: Counter[str] = Counter()
    guesses = iter(estimates)
    total = len(points) if begun is None else None
    with clock.lasting() as on:
        for number, point in enumerate(points, start=1 + (begun or 0)):
            guess = next(guesses, None)
            status = folder.outcome(point.name, point.id)
            if status is None or status in UNDONE:
                spent = time.monotonic() - started
                if budget is not None and spent >= budget:
                    reason = f"the time budget of {budget:g} s was spent: run again to go on"
                    folder.not_started(point.facts(), reason)
                    watch.point_finished(point.name, "not started", reason, 0.0)
                    status = "not started"
                else:
                    watch.point_started(point.name, number, total, guess)
                    status = _run_point(point, folder, watch, keys or {}, on, coming)
                coming.popleft()
            else:
                watch.point_skipped(point.name, status)
            statuses[status] += 1
    return statuses


def _run_point(
    point: Point,
    folder: RunFolder,
    watch: Watch,
    keys: Mapping[str, str],
    on: clock.Lasting,
    coming: Iterable[Deployment],
) -> str:
    started = time.monotonic()
    if point.changed:
        raise InputError(
            f"{point.name}: its traces have changed on disk since the run was planned: put them "
            "back, or start a run of its own with --new"
        )
    writer = folder.open_point(point.facts())
    status = "finished"
    reason, evidence, steps, answers = None, None, None, None
    try:
        point.check()
        heard = hearing(point, writer.add_answer)
        engine = point.deployment.engine
        measuring = (
            _probed(point, point.workload, writer)
            if isinstance(point.workload, Forward)
            else _measure(
                point, folder, writer, watch, heard, _started(point, coming, writer.log_path, keys)
            )
        )
        reason, evidence, steps = on(engine.clock, measuring)
        if heard and evidence:
            evidence, answers = heard.marked(evidence)
        status = "failed" if reason else "finished"
    except UnsupportedError as error:
        status, reason = "unsupported", str(error)
    except EngineError as error:
        status, reason = "failed", str(error)
    except BaseException:
        writer.abandon()
        raise
    writer.finish(status, reason, evidence, steps, answers)
    watch.point_finished(point.name, status, reason, time.monotonic() - started)
    return status


@dataclass(slots=True, kw_only=True)
class Tally:
    """What became of a point's requests, and why it ends early, if so, by setting `stop`.

    `failures` are those of the last requests, as long as nothing else has come since.
    """

    stop: asyncio.Event
    states: Counter[str] = field(default_factory=Counter)
    deaths: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def count(self, record: RequestRecord) -> None:
        """Takes one more request into account."""
        self.states[record.state] += 1
        if record.state != "failed":
            self.failures.clear()
            return
        self.failures.append(record.reason or "no reason given")
        # A server that refuses everything at once would be asked for ever, and fill the disk.
        if len(self.failures) == FAILURES_IN_A_ROW:
            told = f"the last {FAILURES_IN_A_ROW} requests all failed: {self.failures[-1]}"
            self.deaths.append(told)
            self.stop.set()

    @property
    def why(self) -> str | None:
        """Why the point failed, if it did."""
        if not self.states["ok"] and not self.states["cut"]:
            return f"no request succeeded: {self.failures[0] if self.failures else 'none was sent'}"
        return self.deaths[0] if self.deaths else None


async def _measure(
    point: Point,
    folder: RunFolder,
    writer: PointWriter,
    watch: Watch,
    heard: Hearing | None,
    starting: AbstractAsyncContextManager[Server],
) -> Measured:
    """One point from the start of its server to its end: why it failed, if so, and the evidence."""
    tally = Tally(stop=asyncio.Event())

    def keep(record: RequestRecord) -> None:
        writer.add(record)
        watch.request_done(record)
        tally.count(record)

    engine, stop, salt = point.deployment.engine, tally.stop, folder.salt
    if engine.clock == "wall":
        # A real server may remember what a broken attempt sent; a simulated one is new each time.
        salt = seed_of(salt, writer.attempts)
    with _on_interrupt(stop):
        async with (
            _unless(stop, starting) as server,
            _on_the_wall(writer, engine.clock) as looks,
            sampled(server.metrics, writer.add_samples),
            _watched(server, tally),
        ):
            if heard:
                await heard.admit(server)
            window = await _alone(
                drive(
                    point,
                    server.client,
                    keep,
                    run=folder.run_id,
                    salt=salt,
                    interrupt=stop,
                    settle=server.compiles,
                    hear=heard.hear if heard else unheard,
                )
            )
            observed, steps = server.observe(), server.steps()
    if stop.is_set() and not tally.deaths:
        raise KeyboardInterrupt
    evidence = Evidence(
        observed=observed,
        clock=engine.clock,
        opened=window.opened,
        closed=window.closed,
        client_late=late(looks, window),
        protocol=window.protocol,
        restless=window.restless,
    )
    return tally.why, evidence, steps


def late(looks: Iterable[Look], window: Window) -> float | None:
    """How long 99 of 100 moments of the window had to wait at most until the event loop came.

    In seconds; None of too few looks. While the loop stands still there is no look but the one that
    comes at its end, so those that it should have had meanwhile are counted, each with its wait.
    What keeps the loop before the window opens, as the making of sessions, does not touch a request
    that counts.
    """
    opened, closed = window.origin + window.opened, window.origin + window.closed
    inside = [(due, came) for due, came in looks if came > opened and due < closed]
    if len(inside) < FEWEST_LOOKS:
        return None
    waits = [came - np.arange(max(due, opened), came + LOOK / 2, LOOK) for due, came in inside]
    return float(np.quantile(np.maximum(0.0, np.concatenate(waits)), 0.99))


async def _probed(point: Point, workload: Forward, writer: PointWriter) -> Measured:
    """The evidence of what ran, and a row for each run of a step; they never fail in part.

    What the machine's GPUs show meanwhile is kept. Raises EngineError where the engine's tool
    fails, and UnsupportedError where there is none.
    """

    async def silent() -> str:
        return ""

    engine, began, page = prober(point.deployment.engine), clock.now(), Page(url=TOOL, read=silent)
    async with watched(page, {}) as beneath, sampled(beneath, writer.add_samples):
        observed, steps = await engine.probe(point.deployment, workload, log=writer.log_path)
    evidence = Evidence(observed=observed, clock="wall", opened=0.0, closed=clock.now() - began)
    return None, evidence, steps


@asynccontextmanager
async def _started(
    point: Point, coming: Iterable[Deployment], log: Path, keys: Mapping[str, str]
) -> AsyncIterator[Server]:
    """The point's server, beside those of other points that may come up at the same time."""
    deployment, seed = point.deployment, point.noise_seed
    engine = deployment.engine
    if isinstance(engine, Keeping):
        await _alone(engine.together(coming, seed=seed, log=log))
    async with engine.start(deployment, seed=seed, log=log, keys=keys) as server:
        yield server


@asynccontextmanager
async def _unless(
    stop: asyncio.Event, starting: AbstractAsyncContextManager[Server]
) -> AsyncIterator[Server]:
    """The server; raises KeyboardInterrupt where `stop` is set before it is up."""
    async with AsyncExitStack() as stack:
        entering = asyncio.ensure_future(stack.enter_async_context(starting))
        stopping = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait({entering, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            if not entering.done():
                entering.cancel()
                await asyncio.wait({entering})
        if entering.cancelled():
            raise KeyboardInterrupt
        yield entering.result()


@asynccontextmanager
async def _watched(server: Server, tally: Tally) -> AsyncIterator[None]:
    """Notes it where the server ends by itself, and stops the load then."""

    async def watch(ended: Coroutine[Any, Any, str]) -> None:
        # Before what its requests say of it.
        tally.deaths.insert(0, await ended)
        # What was in flight should fail for its own reason before the rest is cut.
        await asyncio.sleep(LAST_WORDS)
        tally.stop.set()

    task = asyncio.ensure_future(watch(server.ended())) if server.ended else None
    try:
        yield
        # Its last requests may fail before it has ended.
        if task and (tally.deaths or tally.failures):
            await asyncio.wait({task}, timeout=DYING)
    finally:
        if task:
            task.cancel()
            await asyncio.wait({task})


@asynccontextmanager
async def _on_the_wall(writer: PointWriter, pace: clock.Clock) -> AsyncIterator[list[Look]]:
    """Puts rows on disk every second, also while none come in, and keeps the collector away.

    Gives the looks at the clock. On the virtual clock there are none, since nothing is late, and
    rows come in as fast as they can be made: the writer's own pace will do.
    """
    looks: list[Look] = []

    async def look() -> None:
        while True:
            due = clock.now() + LOOK
            await clock.until(due)
            looks.append((due, clock.now()))

    async def flush() -> None:
        while True:
            await asyncio.sleep(1.0)
            writer.flush()

    if pace == "virtual":
        yield looks
        return
    tasks = [asyncio.ensure_future(flush()), asyncio.ensure_future(look())]
    # What is there now stays; going through it again and again would hold up sends and reads.
    gc.collect()
    gc.freeze()
    try:
        yield looks
    finally:
        gc.unfreeze()
        for task in tasks:
            task.cancel()


@contextmanager
def _on_interrupt(event: asyncio.Event) -> Iterator[None]:
    """Sets the event on Ctrl-C, so that the point can put its rows away; a second one raises.

    What goes wrong with a server afterwards is no outcome of a point that was broken off.
    """
    loop = asyncio.get_running_loop()
    asked = False

    def ask(*_: object) -> None:
        nonlocal asked
        if event.is_set():
            raise KeyboardInterrupt
        asked = True
        loop.call_soon_threadsafe(event.set)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, ask)
    try:
        yield
    except EngineError as error:
        if asked:
            raise KeyboardInterrupt from error
        raise
    finally:
        signal.signal(signal.SIGINT, before)


async def _alone(work: Coroutine[Any, Any, T]) -> T:
    """Does the work, and raises the first failure of its task groups as itself."""
    try:
        return await work
    except BaseExceptionGroup as group:
        first: BaseException = group
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from group
