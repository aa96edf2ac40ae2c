"""What a plan comes to, told before anything starts."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any

from harness.endpoint import Endpoint
from harness.point import Point
from harness.vllm.engine import Vllm
from reports.notation import counted
from results.errors import UnsupportedError
from suites.plan import Plan, estimate
from suites.words import listed
from workloads.questions import Questions


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One point: where it stands, what it is, and its wall time where anyone can guess it.

    `fitting` is how many of its recorded traces fit its context limit, and of how many; `answers`
    how many it asks for at most, where it asks questions and that is known, and `prompt_tokens`
    about how long these are in all, where their data is at hand.
    """

    position: int
    experiment: str
    arm: str
    repeat: int
    workload: dict[str, Any]
    load: dict[str, Any]
    seconds: float | None
    fitting: list[int] | None = None
    answers: int | None = None
    prompt_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """A row a point, what starting each arm would do, line by line, and totals.

    `seconds` sums what can be guessed, `unknown` counts the points whose time cannot; `simulated`
    is the virtual time that is sure to pass, `servers` the number of real servers to start and
    `warmups` how often a real one is warmed up, whoever started it.
    """

    rows: tuple[Row, ...]
    starts: dict[str, tuple[str, ...]]
    seconds: float
    unknown: int
    simulated: float
    servers: int
    warmups: int


def describe(plan: Plan) -> Description:
    """What the plan comes to; nothing is started."""
    times = [estimate(point) for point in plan.points]
    rows = [_row(point, seconds) for point, seconds in zip(plan.points, times, strict=True)]
    return Description(
        rows=tuple(rows),
        starts=dict(_starts(plan)),
        seconds=sum(seconds for seconds in times if seconds is not None),
        unknown=times.count(None),
        simulated=sum(map(_simulated, plan.points)),
        servers=_servers(plan),
        warmups=sum(p.deployment.engine.clock == "wall" and p.load.warmup > 0 for p in plan.points),
    )


def _servers(plan: Plan) -> int:
    """How many real servers are started: one a point, and one in all where it stays up."""
    own, staying = 0, set()
    for point in plan.points:
        match point.deployment.engine:
            case Vllm(resident_share=float()):
                staying.add(repr(replace(point.deployment, pinned=True)))
            case Endpoint():
                pass
            case engine:
                own += engine.clock == "wall"
    return own + len(staying)


def _row(point: Point, seconds: float | None) -> Row:
    settings = asdict(point)
    asked = point.workload if isinstance(point.workload, Questions) else None
    return Row(
        position=point.position,
        experiment=point.experiment,
        arm=point.deployment.arm,
        repeat=point.repeat,
        workload=settings["workload"],
        load=settings["load"],
        seconds=seconds,
        fitting=point.identity.get("fitting"),
        answers=asked.most if asked else None,
        prompt_tokens=_prompt_tokens(asked) if asked and asked.at_hand else None,
    )


@cache
def _prompt_tokens(workload: Questions) -> int:
    return sum(chat.prompt.length for chat in workload.chats())


def _simulated(point: Point) -> float:
    """Seconds that pass on the virtual clock at least: a window that nothing ends early."""
    load = point.load
    virtual = point.deployment.engine.clock == "virtual"
    return load.duration if virtual and load.duration and not load.sessions else 0.0


def _starts(plan: Plan) -> Iterator[tuple[str, tuple[str, ...]]]:
    """What starts each arm, with its GPUs; with its experiments, where they do it differently."""
    gpus = {
        point.deployment.arm: counted(point.deployment.topology.gpus, "GPU")
        for point in plan.points
    }
    firsts = {(point.deployment.arm, point.experiment): point for point in plan.points}
    ways: dict[str, dict[tuple[str, ...], list[str]]] = {}
    for (arm, experiment), point in firsts.items():
        ways.setdefault(arm, {}).setdefault(_start(point), []).append(experiment)
    for arm, by_lines in ways.items():
        for lines, experiments in by_lines.items():
            told = f" in {listed(experiments, 'and')}" if len(by_lines) > 1 else ""
            yield f"{arm} ({gpus[arm]}){told}", lines


def _start(point: Point) -> tuple[str, ...]:
    try:
        return tuple(point.describe())
    except UnsupportedError as error:
        return (f"unsupported: {error}",)
