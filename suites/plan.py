"""Plans: the points of a suite in the order in which they run."""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import islice
from typing import Any

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Points in running order, and what the user asked for to have them.

    `gate` holds the suite's rules as they are written, `maker` is the command that begins the run;
    like `overrides` they are no part of the hash.
    """

    suite: str
    points: tuple[Point, ...]
    suite_path: str
    overrides: tuple[str, ...] = ()
    gate: Mapping[str, Any] = field(default_factory=dict)
    maker: Maker = "run"

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


def plan(suite: Suite) -> Plan:
    """The points of every repeat, in the suite's order, each with its position.

    Raises InputError where servers that stay up do not fit beside each other.
    """
    match suite.order:
        case "as-written":
            ordered = _as_written(suite)
        case "shuffled":
            ordered = _shuffled(suite)
        case "abba":
            ordered = _there_and_back(suite)
    if refused := crowded(staying(ordered).values()):
        raise InputError(f"{suite.name}: {refused}")
    return Plan(
        suite=suite.name,
        points=tuple(replace(point, position=n) for n, point in enumerate(ordered)),
        suite_path=suite.asked,
        overrides=suite.overrides,
        gate=suite.gate,
    )


def staying(points: Iterable[Point]) -> dict[str, float]:
    """The servers that stay up between points, by what makes them one, and their shares."""
    shares: dict[str, float] = {}
    for deployment in {id(point.deployment): point.deployment for point in points}.values():
        match deployment.engine:
            case Vllm(resident_share=float(share)):
                shares[repr(replace(deployment, pinned=True))] = share
    return shares


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
    On the virtual clock: 30 ms, and 1.5 ms for each request there may be, of which a lane sends one
    in ten seconds; as measured on one core.
    """
    load = point.load
    if point.deployment.engine.clock == "wall":
        return load.duration + load.grace if load.duration else None
    requests = []
    if load.duration:
        requests.append(_lanes(load) * load.duration / 10)
    if load.sessions:
        turns = _turns(point.workload)  # type: ignore[arg-type]  # a frozen dataclass has a hash
        requests.append(float(load.sessions * turns))
    return 0.03 + 0.0015 * min(requests)


def _lanes(load: Load) -> float:
    match load:
        case Closed():
            return load.concurrency
        case Open():
            return load.rate * 100  # sessions of about 100 seconds
        case Recorded():
            return load.sessions * load.speed


@cache
def _turns(workload: Workload) -> int:
    # To make the first one would load lm-eval.
    if isinstance(workload, Questions):
        return 1
    return sum(len(session.turns) for session in islice(workload.sessions(0), 1))
