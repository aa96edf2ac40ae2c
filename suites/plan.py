"""Plans: the points of a suite in the order in which they run."""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import islice
from statistics import fmean
from typing import Any

from harness.engine import Deployment
from harness.load import Closed, Load, Open, Recorded
from harness.point import Point
from harness.vllm.engine import Vllm
from harness.vllm.resident import crowded
from results.errors import InputError
from results.origin import Maker
from suites.suite import Suite
from suites.words import listed, nearest, quoted
from workloads.prompt import seed_of
from workloads.questions import Questions
from workloads.session import Workload

TYPICAL = 4
"""From how many sessions of a workload it is guessed how long simulating others takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Points in running order, and what the user asked for to have them.

    `gate` holds the suite's rules as they are written, `maker` is the command that begins the run,
    `engines` those of each experiment as they are written; like `overrides` they are no part of the
    hash.
    """

    suite: str
    points: tuple[Point, ...]
    suite_path: str
    overrides: tuple[str, ...] = ()
    gate: Mapping[str, Any] = field(default_factory=dict)
    maker: Maker = "run"
    engines: Mapping[str, Any] = field(default_factory=dict)

    @property
    def hash(self) -> str:
        """8 hex digits over the suite's name and every point, in order."""
        names = "\n".join([self.suite, *(point.id for point in self.points)])
        return hashlib.sha256(names.encode()).hexdigest()[:8]

    def of(self, experiments: Collection[str]) -> tuple[Point, ...]:
        """The points of some experiments. Raises InputError where the plan has none of a name."""
        there = list(dict.fromkeys(point.experiment for point in self.points))
        for name in experiments:
            if name not in there:
                near = nearest(name, there)
                way = f"did you mean {near}?" if near else "name one of these"
                raise InputError(
                    f"{self.suite}: expected an experiment of {listed(there)}, got {quoted(name)}: "
                    f"{way}"
                )
        return tuple(point for point in self.points if point.experiment in experiments)

    def facts(self) -> dict[str, Any]:
        """What plan.json says of it."""
        return {
            "hash": self.hash,
            "suite_path": self.suite_path,
            "overrides": list(self.overrides),
            "gate": dict(self.gate),
            "maker": self.maker,
            "points": [point.facts() for point in self.points],
        }


def plan(suite: Suite, only: Collection[str] = ()) -> Plan:
    """The points of every repeat, in the suite's order, each with its position.

    Raises InputError where servers that stay up do not fit beside each other: those of some
    experiments, if `only` they are to run.
    """
    match suite.order:
        case "as-written":
            ordered = _as_written(suite)
        case "shuffled":
            ordered = _shuffled(suite)
        case "abba":
            ordered = _there_and_back(suite)
    beside = [point for point in ordered if not only or point.experiment in only]
    if refused := _unfit(staying(beside).values()):
        raise InputError(f"{suite.name}: {refused}")
    return Plan(
        suite=suite.name,
        points=tuple(replace(point, position=n) for n, point in enumerate(ordered)),
        suite_path=suite.asked,
        overrides=suite.overrides,
        gate=suite.gate,
        engines={one.name: one.engine for one in suite.experiments},
    )


def staying(points: Iterable[Point]) -> dict[str, Vllm]:
    """The engines of servers that stay up between points, by what makes each one server."""
    engines: dict[str, Vllm] = {}
    for deployment in {id(point.deployment): point.deployment for point in points}.values():
        match deployment.engine:
            case Vllm(resident_share=float()) as engine:
                engines[one_server(deployment)] = engine
    return engines


def _unfit(engines: Collection[Vllm]) -> str | None:
    """Why servers that stay up cannot do so beside each other; None where they can."""
    ports = [engine.port for engine in engines if engine.port]
    if twice := next((port for port in ports if ports.count(port) > 1), None):
        return (
            f"arms that stay up together all state port {twice}: state one for each, or leave it "
            "out, so that each finds one that is free"
        )
    return crowded(engine.resident_share or 0.0 for engine in engines)


def one_server(deployment: Deployment) -> str:
    """What makes a server one: who sends to it pins sessions to its ranks, or does not."""
    return repr(replace(deployment, pinned=True))


def _as_written(suite: Suite) -> list[Point]:
    return [
        replace(point, repeat=repeat)
        for experiment in suite.experiments
        for repeat in suite.repeated(experiment)
        for point in experiment.grid
    ]


def _shuffled(suite: Suite) -> list[Point]:
    numbered = list(enumerate(_as_written(suite)))
    # Not random.shuffle, whose order may differ between versions of Python.
    numbered.sort(key=lambda entry: seed_of(suite.seed, "order", entry[0]))
    return [point for _, point in numbered]


def _there_and_back(suite: Suite) -> list[Point]:
    """A B, then B A: what is compared runs side by side, and drift falls on both alike."""
    return [
        replace(point, repeat=repeat)
        for experiment in suite.experiments
        for arms in _compared(experiment.grid)
        for repeat in suite.repeated(experiment)
        for point in (reversed(arms) if repeat % 2 else arms)
    ]


def _compared(grid: Sequence[Point]) -> list[list[Point]]:
    """The points that differ in their deployments only, together."""
    cells: dict[str, list[Point]] = {}
    for point in grid:
        cells.setdefault(point.pairing, []).append(point)
    return list(cells.values())


def estimate(point: Point) -> float | None:
    """About how many seconds of wall time a point takes; None where nobody can know.

    On the wall clock: the window and its grace; the server's start and the warm-up come on top.
    On the virtual clock, as timed on one core: 40 ms, and what each request takes, warm-ups too.
    How many requests a window holds is a guess.
    """
    load = point.load
    if point.deployment.engine.clock == "wall":
        return load.duration + load.grace if load.duration else None
    session = _effort(point.workload)  # type: ignore[arg-type]  # a frozen dataclass has a hash
    requests = []
    if load.duration:
        requests.append(_in_window(load, load.duration, session))
    if load.sessions:
        requests.append(load.sessions * session.requests)
    rounds = load.warmup * point.deployment.topology.ranks
    return 0.04 + session.cost * min(requests) + 0.0007 * rounds * session.shapes


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """What a typical session asks of the simulator.

    `cost` are the seconds of wall time that a request takes, `pace` the seconds of virtual time
    from one to the next; `shapes` are the requests of a round of warm-up.
    """

    requests: float
    cost: float
    pace: float
    shapes: int


def _in_window(load: Load, seconds: float, session: Effort) -> float:
    """About how many requests are sent within so many seconds."""
    in_turn = seconds / session.pace
    match load:
        case Closed():
            return load.concurrency * in_turn
        case Open():
            return load.rate * seconds * min(session.requests, max(1.0, in_turn / 2))
        case Recorded():
            return load.sessions * min(session.requests, load.speed * in_turn)


@cache
def _effort(workload: Workload) -> Effort:
    # To make a session would load lm-eval, and most of what a question takes is its grading.
    if isinstance(workload, Questions):
        return Effort(requests=1, cost=0.003, pace=1.0, shapes=1)
    sessions = list(islice(workload.sessions(0), TYPICAL))
    turns = [turn for session in sessions for turn in session.turns]
    if not turns:
        return Effort(requests=0, cost=0.0, pace=1.0, shapes=0)
    return Effort(
        requests=len(turns) / len(sessions),
        cost=0.0006 + 1e-5 * fmean(turn.output for turn in turns),
        # The mean of all delays would be that of a few long ones, which few windows hold.
        pace=fmean(min(10.0, 0.05 + 0.01 * turn.output + turn.delay) for turn in turns),
        shapes=sum(len(session.turns) for session in workload.warmup(0)),
    )
