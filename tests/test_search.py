"""Searches through the real run folder, over engines whose capacity is known."""

from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest

from harness.engine import Deployment, Server
from harness.load import Closed, Open
from harness.point import Point
from harness.run import run
from harness.search import ladders, search
from harness.sim.engine import SimulatedEngine
from harness.topology import parse
from reports.search import search_facts, search_table, sentence
from results.errors import EngineError, InputError
from results.evidence import Observed
from results.folder import reopen
from results.objectives import Objectives
from results.run import read
from tests.test_drive import FixedClient
from tests.test_run import Notes, folder_for
from workloads.growing import Growing
from workloads.single import Single

LADDER = (1, 2, 4, 8, 16)


@dataclass(kw_only=True)
class CrowdedClient(FixedClient):
    """Answers in an eighth of a second, and far more slowly where more than `capacity` are served.

    Where it `breaks`, it refuses these instead.
    """

    capacity: int
    breaks: bool

    async def send(self, request, *, cut, on_first):
        crowded = self.in_flight >= self.capacity
        self.service = 2.0 if crowded and not self.breaks else 0.125
        self.error = "HTTP 503" if crowded and self.breaks else None
        return await super().send(request, cut=cut, on_first=on_first)


@dataclass(frozen=True, kw_only=True)
class CrowdedEngine:
    """An engine on the virtual clock that serves so many at once."""

    capacity: int = 2
    breaks: bool = False
    absent: bool = False
    kind: str = "crowded"
    clock: str = "virtual"
    secrets: tuple = ()

    @property
    def name(self):
        return f"crowded {self.capacity}"

    @asynccontextmanager
    async def start(self, deployment, *, seed, log, keys):
        if self.absent:
            raise EngineError("out of memory while loading weights")
        client = CrowdedClient(capacity=self.capacity, breaks=self.breaks)
        observed = Observed(provenance="plumbing", gpus=1)
        yield Server(client=client, observe=lambda: observed, steps=lambda: None)


@dataclass
class Starts(Notes):
    """Notes that also say which point began."""

    started: list[str] = field(default_factory=list)
    totals: set[int | None] = field(default_factory=set)

    def point_started(self, name, number, total, estimate):
        self.started.append(name)
        self.totals.add(total)


def plan(*engines, repeats=3, levels=LADDER, **changes):
    """The points of these engines, repeat by repeat, level by level."""
    points = [
        Point(
            experiment="find",
            deployment=Deployment(engine=engine, topology=parse("TP1")),
            workload=Single(prompt=64, output=4),
            load=Closed(concurrency=level, duration=7.0, grace=3.0),
            objectives=Objectives(ttft=0.2),
            repeat=repeat,
        )
        for repeat in range(repeats)
        for level in levels
        for engine in engines
    ]
    return [replace(point, position=n, **changes) for n, point in enumerate(points)]


def found(points, path, demanded=0.9, **settings):
    notes = Starts()
    with folder_for(points, path) as folder:
        brackets = search(points, folder, notes, demanded=demanded, **settings)
    return brackets, notes, folder.path


def test_the_rung_below_the_capacity_is_found_in_few_points_and_again_in_none(tmp_path):
    points = plan(CrowdedEngine())
    (bracket,), notes, path = found(points, tmp_path)
    assert (bracket.holding.load, bracket.failing.load) == (2, 4)
    assert sentence(bracket) == "closed 2 holds and closed 4 fails"
    # Three levels, and two further runs of each of the two that the answer rests on.
    assert [level.summary.repeats for level in bracket.levels] == [1, 3, 3]
    assert len(notes.finished) == 7
    assert notes.totals == {None}
    assert len(read(path).planned) == len(points) - 7
    again = Notes()
    with reopen(path) as folder:
        assert search(points, folder, again, demanded=0.9) == [bracket]
    assert again.finished == []


def test_arms_climb_side_by_side_and_each_finds_its_own_rung(tmp_path):
    points = plan(CrowdedEngine(capacity=1), CrowdedEngine(capacity=2), levels=(1, 2, 4), repeats=1)
    (low, high), notes, _ = found(points, tmp_path)
    assert (low.holding.load, high.holding.load) == (1, 2)
    first, second = notes.started[:2]
    assert first == second.replace("crowded-2", "crowded-1")


def test_a_ladder_that_holds_or_fails_throughout_is_not_bracketed(tmp_path):
    points = plan(CrowdedEngine(capacity=9), levels=(1, 2), repeats=1)
    (bracket,), _, _ = found(points, tmp_path / "a")
    assert sentence(bracket) == "holds up to closed 2, the top of its ladder: not bracketed"
    points = plan(CrowdedEngine(capacity=2), levels=(4, 8), repeats=1)
    (bracket,), _, _ = found(points, tmp_path / "b")
    assert sentence(bracket) == "fails already at closed 4: not bracketed"


def test_what_an_earlier_run_of_the_plan_measured_is_used(tmp_path):
    points = plan(CrowdedEngine(), repeats=1, levels=(1, 2, 4))
    with folder_for(points, tmp_path) as folder:
        run(points, folder, Notes())
        notes = Notes()
        (bracket,) = search(points, folder, notes, demanded=0.9)
    assert notes.finished == []
    assert bracket.holding.load == 2
    assert len(bracket.levels) == 3


def test_repeats_are_taken_until_a_level_is_decided(tmp_path):
    # In 7 s a lane has 56 sessions, and 0.95 with three looks needs 94 that are all good.
    points = plan(CrowdedEngine(capacity=100), levels=(1, 2))
    (bracket,), notes, _ = found(points, tmp_path, demanded=0.95)
    assert [level.summary.repeats for level in bracket.levels] == [2, 3]
    assert len(notes.finished) == 5


def test_a_level_that_all_repeats_leave_open_is_undecided_and_says_how_many_more(tmp_path):
    points = plan(CrowdedEngine(capacity=100), levels=(1, 2))
    points = [point for point in points if point.repeat < 2]
    (bracket,), _, _ = found(points, tmp_path, demanded=0.99)
    assert bracket.outcome == "undecided"
    assert bracket.levels[0].more >= 1
    assert "more repeats would decide" in sentence(bracket)


def test_an_engine_that_refuses_under_load_does_not_hold(tmp_path):
    (bracket,), _, _ = found(plan(CrowdedEngine(breaks=True), levels=(2, 4), repeats=1), tmp_path)
    assert (bracket.holding.load, bracket.failing.load) == (2, 4)
    assert "requests all failed: HTTP 503" in bracket.failing.reason


def test_an_engine_that_does_not_come_up_is_tried_once_and_is_no_answer(tmp_path):
    (bracket,), notes, _ = found(plan(CrowdedEngine(absent=True)), tmp_path)
    assert len(notes.finished) == 1
    assert bracket.outcome == "not measured"
    assert "out of memory while loading weights" in sentence(bracket)


def test_the_budget_ends_a_search_and_the_same_command_goes_on(tmp_path):
    points = plan(CrowdedEngine(), levels=(2, 4), repeats=1)
    (bracket,), _, path = found(points, tmp_path, budget=0.0)
    assert bracket.outcome == "not measured"
    with reopen(path) as folder:
        (bracket,) = search(points, folder, Notes(), demanded=0.9)
    assert bracket.holding.load == 2


def test_the_simulated_engine_is_searched_and_called_simulated(tmp_path):
    growing = Growing(turns=3, first=2000, fresh=200, output=20)
    points = plan(SimulatedEngine(noise=0.03), levels=(4, 32), repeats=1, workload=growing)
    points = [replace(point, objectives=Objectives(ttft=0.6, tpot=0.03)) for point in points]
    brackets, _, path = found(points, tmp_path, demanded=0.8)
    assert "Search: find (SIMULATED)" in search_table(brackets, width=120)
    assert search_facts(brackets[0])["outcome"] == "bracketed"
    assert len(read(path).points) == 2


def test_what_has_nothing_to_hold_or_nothing_to_climb_is_left_out_or_refused():
    points = plan(CrowdedEngine())
    one_level = plan(CrowdedEngine(), levels=(8,), experiment="flat")
    rungs, left_out = ladders([*points, *one_level])
    assert len(rungs) == 1
    assert left_out[0].startswith("flat: has one load level only")
    without = [replace(point, objectives=Objectives()) for point in points]
    with pytest.raises(InputError, match="find: states no objectives"):
        ladders(without)


def test_a_limit_that_hides_waiting_from_objectives_is_refused():
    loads = [Open(rate=rate, duration=10.0, limit=4) for rate in (1.0, 2.0)]
    points = [replace(plan(CrowdedEngine())[0], load=load) for load in loads]
    with pytest.raises(InputError, match="leave limit out"):
        ladders(points)


def test_two_loads_of_one_level_are_refused():
    points = plan(CrowdedEngine(), repeats=1)
    longer = replace(points[0], load=replace(points[0].load, duration=9.0))
    with pytest.raises(InputError, match="several of 1"):
        ladders([*points, longer])


def test_the_lengths_of_loads_may_differ_along_a_ladder():
    loads = [Closed(concurrency=level, sessions=20 * level) for level in (1, 4)]
    points = [replace(plan(CrowdedEngine())[0], load=load) for load in loads]
    (ladder,), _ = ladders(points)
    assert ladder.loads == (1, 4)
