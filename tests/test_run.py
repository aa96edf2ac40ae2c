"""Points run through the real run folder, on the simulated engine and on engines that fail."""

import signal
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import ClassVar

import orjson
import pytest

from harness.drive import Window
from harness.engine import Deployment, Server
from harness.load import Closed
from harness.point import Point
from harness.run import late, run
from harness.sim.engine import SimulatedEngine
from harness.topology import parse
from results.errors import EngineError, InputError, UnsupportedError
from results.evidence import Observed
from results.folder import create, reopen
from results.metrics import summarise
from results.run import read
from tests.test_drive import FixedClient
from workloads.agentx import AgentX
from workloads.growing import Growing
from workloads.single import Single


@dataclass
class Notes:
    """A watch that writes down what it is told."""

    finished: list[tuple[str, str]] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    rows: int = 0
    on_row: object = None

    def point_started(self, name, number, total, estimate):
        pass

    def request_done(self, record):
        self.rows += 1
        if self.on_row:
            self.on_row(self.rows)

    def point_finished(self, name, status, reason, seconds):
        self.finished.append((status, reason))

    def point_skipped(self, name, status):
        self.skipped.append(status)


@dataclass(frozen=True, kw_only=True)
class BrokenEngine:
    """An engine that does not come up."""

    error: str
    kind: str = "broken"
    name: str = "broken"
    clock: str = "virtual"
    secrets: tuple = ()

    def describe(self, deployment):
        return ["starts nothing"]

    @asynccontextmanager
    async def start(self, deployment, *, seed, log, keys):
        raise {"EngineError": EngineError, "UnsupportedError": UnsupportedError}[self.error](
            "out of memory while loading weights"
        )
        yield


def point(engine=None, position=0, sessions=3):
    deployment = Deployment(engine=engine or SimulatedEngine(), topology=parse("TP1"))
    return Point(
        experiment="cold",
        deployment=deployment,
        workload=Single(prompt=2048, output=8),
        load=Closed(concurrency=1, sessions=sessions),
        position=position,
    )


def folder_for(points, path):
    plan = {"hash": "0" * 8, "points": [point.facts() for point in points]}
    return create(path, "test", "suite: test\n", plan, {"host": "here"}, 7)


def test_every_point_gets_rows_evidence_and_an_outcome(tmp_path):
    points = [point(position=number) for number in range(3)]
    notes = Notes()
    with folder_for(points, tmp_path) as folder:
        statuses = run(points, folder, notes)
    assert statuses == {"finished": 3}
    finished = read(folder.path).points
    assert [each.status for each in finished] == ["finished"] * 3
    assert finished[0].evidence.observed.provenance == "simulated"
    assert finished[0].evidence.clock == "virtual"
    phases = finished[0].rows().column("phase").to_pylist()
    assert phases.count("window") == 3
    assert phases.count("warm-up") >= 1
    assert summarise(finished[0]).valid


def test_a_finished_point_is_not_run_again(tmp_path):
    points = [point(position=number) for number in range(3)]
    with folder_for(points, tmp_path) as folder:
        run(points[:2], folder, Notes())
    before = {path: path.stat().st_mtime_ns for path in folder.path.rglob("*.parquet")}
    notes = Notes()
    with reopen(folder.path) as folder:
        statuses = run(points, folder, notes)
    assert statuses == {"finished": 3}
    assert notes.skipped == ["finished", "finished"]
    assert len(notes.finished) == 1
    assert (
        before.items()
        <= {path: path.stat().st_mtime_ns for path in folder.path.rglob("*.parquet")}.items()
    )


@pytest.mark.parametrize(
    ("error", "status"), [("EngineError", "failed"), ("UnsupportedError", "unsupported")]
)
def test_an_engine_that_does_not_come_up_is_an_outcome_and_the_run_goes_on(tmp_path, error, status):
    points = [point(BrokenEngine(error=error)), point(position=1)]
    notes = Notes()
    with folder_for(points, tmp_path) as folder:
        statuses = run(points, folder, notes)
    assert statuses == {status: 1, "finished": 1}
    assert notes.finished[0] == (status, "out of memory while loading weights")
    assert read(folder.path).points[0].reason == "out of memory while loading weights"


def test_a_point_in_which_no_request_succeeds_has_failed_and_says_why(tmp_path):
    # F-10: not a division by zero, and not a success.
    points = [point(SimulatedEngine(context_limit=100))]
    with folder_for(points, tmp_path) as folder:
        statuses = run(points, folder, Notes())
    assert statuses == {"failed": 1}
    failed = read(folder.path).points[0]
    assert failed.reason.startswith("no request succeeded: ")
    assert "maximum context" in failed.reason
    assert failed.rows().num_rows > 0


def test_a_server_that_refuses_everything_at_once_ends_its_point_and_not_the_disk(tmp_path):
    # F-10 with a duration: on the virtual clock a refusal takes no time, so the end never comes.
    load = Closed(concurrency=1, duration=10.0)
    points = [replace(point(SimulatedEngine(context_limit=100)), load=load)]
    with folder_for(points, tmp_path) as folder:
        assert run(points, folder, Notes()) == {"failed": 1}
    failed = read(folder.path).points[0]
    assert failed.rows().num_rows <= 100
    assert failed.reason.startswith("no request succeeded: ")


def test_a_server_that_stops_answering_well_ends_its_point(tmp_path):
    growing = Growing(turns=400, first=1000, fresh=200, output=8)
    load = Closed(concurrency=1, sessions=1)
    engine = SimulatedEngine(context_limit=4000)
    points = [replace(point(engine), workload=growing, load=load)]
    with folder_for(points, tmp_path) as folder:
        assert run(points, folder, Notes()) == {"failed": 1}
    assert "the last 50 requests all failed" in read(folder.path).points[0].reason


def test_traces_that_change_after_the_plan_stop_the_run_and_nothing_is_mixed_up(tmp_path):
    traces = tmp_path / "one.jsonl"
    calls = [{"t": 0.0, "type": "n", "model": "m", "in": 128, "out": 4, "hash_ids": [0, 1]}]
    trace = {"id": "a", "models": ["m"], "block_size": 64, "hash_id_scope": "local"}
    traces.write_bytes(orjson.dumps({**trace, "requests": calls}))
    workload = AgentX(traces=str(traces))
    points = [replace(point(position=n), workload=workload) for n in range(2)]
    with folder_for(points, tmp_path) as folder:
        run(points[:1], folder, Notes())
        calls[0]["in"], calls[0]["hash_ids"] = 192, [0, 1, 2]
        traces.write_bytes(orjson.dumps({**trace, "requests": calls}))
        with pytest.raises(InputError, match="traces have changed on disk"):
            run(points, folder, Notes())
    assert [each.status for each in read(folder.path).points] == ["finished"]


def test_the_order_of_points_changes_no_result(tmp_path):
    noisy = SimulatedEngine(noise=0.05)
    figures = []
    for name, position in (("first", 0), ("later", 5)):
        points = [point(noisy, position=position)]
        with folder_for(points, tmp_path / name) as folder:
            run(points, folder, Notes())
        figures.append(summarise(read(folder.path).points[0]).figures["e2el.mean"].value)
    assert figures[0] == figures[1]


def test_points_beyond_the_time_budget_are_not_started_and_run_when_taken_up_again(tmp_path):
    points = [point(position=number) for number in range(2)]
    with folder_for(points, tmp_path) as folder:
        assert run(points, folder, Notes(), budget=0.0) == {"not started": 2}
    with reopen(folder.path) as folder:
        assert run(points, folder, Notes()) == {"finished": 2}


def test_ctrl_c_keeps_the_rows_of_the_broken_point_and_leaves_it_to_be_run(tmp_path):
    points = [point(sessions=50), point(position=1)]
    # Ignored, where a shell has put these tests into the background.
    before = signal.getsignal(signal.SIGINT)

    def interrupt(rows):
        if rows == 20:
            signal.raise_signal(signal.SIGINT)

    with folder_for(points, tmp_path) as folder, pytest.raises(KeyboardInterrupt):
        run(points, folder, Notes(on_row=interrupt))
    broken = read(folder.path).points[0]
    assert broken.status == "broken"
    assert broken.rows().num_rows >= 20
    with reopen(folder.path) as folder:
        assert run(points, folder, Notes()) == {"finished": 2}
    assert signal.getsignal(signal.SIGINT) is before


@dataclass(frozen=True, kw_only=True)
class RealTimeEngine:
    """An engine on the wall clock that notes the markers of the prompts it is sent."""

    markers: ClassVar[list[set[int]]] = []
    kind: str = "real"
    name: str = "real"
    clock: str = "wall"
    secrets: tuple = ()

    @asynccontextmanager
    async def start(self, deployment, *, seed, log, keys):
        client = FixedClient(service=0.001, pieces=1)
        observed = Observed(provenance="plumbing", gpus=1)
        yield Server(client=client, observe=lambda: observed, steps=lambda: None)
        self.markers.append({int(request.prompt.seeds[0]) for _, request in client.seen})


def test_a_point_that_is_run_again_never_sends_what_its_broken_attempt_sent(tmp_path):
    # F-18: a real server remembers the attempt, and would answer from its cache.
    RealTimeEngine.markers.clear()
    points = [point(RealTimeEngine(), sessions=40)]

    def interrupt(rows):
        if rows == 20:
            signal.raise_signal(signal.SIGINT)

    with folder_for(points, tmp_path) as folder, pytest.raises(KeyboardInterrupt):
        run(points, folder, Notes(on_row=interrupt))
    with reopen(folder.path) as folder:
        run(points, folder, Notes())
    broken, whole = RealTimeEngine.markers
    assert len(broken) >= 20
    assert len(whole) >= 40
    assert not broken & whole


def test_two_runs_with_one_seed_are_the_same_to_the_byte(tmp_path):
    noisy = SimulatedEngine(noise=0.05)
    for name in ("a", "b"):
        with folder_for([point(noisy)], tmp_path / name) as folder:
            run([point(noisy)], folder, Notes())
    first, second = sorted(tmp_path.rglob("requests.parquet"))
    assert first.read_bytes() == second.read_bytes()


def test_a_slower_engine_is_slower_by_what_was_set(tmp_path):
    slow = point(SimulatedEngine(slowdown=2.0), position=1)
    with folder_for([point(), slow], tmp_path) as folder:
        run([point(), slow], folder, Notes())
    fast, slowed = (summarise(each).figures["ttft.p50"].value for each in read(folder.path).points)
    assert slowed / fast == pytest.approx(2.0, rel=1e-3)


def test_a_point_is_named_by_its_content():
    assert point().id == point().id
    assert point().id != point(position=1).id
    assert point().pairing == point(position=1).pairing
    other = point(SimulatedEngine(slowdown=2.0))
    assert other.id != point().id
    assert other.pairing == point().pairing
    assert other.seed == point().seed
    assert replace(point(), repeat=1).pairing != point().pairing
    assert replace(point(), repeat=1).cell == point().cell


def test_an_event_loop_is_late_only_where_it_was_in_the_window():
    window = Window(origin=100.0, opened=5.0, closed=7.0)
    inside = [(105.0 + 0.02 * number, 105.001 + 0.02 * number) for number in range(100)]
    before = [(104.0, 104.3), (104.5, 104.6)]
    assert late([*before, *inside], window) == pytest.approx(0.001)
    # It was to come before the window opened, and came late in it: only what is inside counts.
    across = [(104.9, 105.1)]
    assert late([*across, *inside], window) == pytest.approx(0.08, abs=0.01)
    assert late(inside[:24], window) is None


def test_an_event_loop_that_stands_still_is_late_for_as_long():
    # A second in four: that is one look of 150, and a quarter of the time.
    window = Window(origin=0.0, opened=0.0, closed=12.0)
    looks, moment = [], 0.0
    while moment < 12.0:
        came = moment + (1.0 if len(looks) % 150 == 149 else 0.0)
        looks.append((moment, came))
        moment = came + 0.02
    assert late(looks, window) > 0.8
