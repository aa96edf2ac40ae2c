"""What a plan comes to, told before anything starts."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any

from harness.endpoint import Endpoint
from harness.point import Point
from harness.vllm import nodes
from harness.vllm.engine import Vllm
from reports.notation import counted
from results.errors import UnsupportedError
from suites.needs import missing
from suites.plan import Plan, estimate, one_server, staying
from suites.words import listed
from workloads import documents
from workloads.agentx import AgentX
from workloads.questions import Questions


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One point: where it stands, what it is, and its wall time where anyone can guess it.

    `unsupported` is why it would not run, and then it asks for nothing. `departures` are in what
    its traces are not those of its profile, `fitting` how many of them fit its context limit, and
    of how many. `answers` is how many it asks for at most, where it asks questions and that is
    known, `different` how many of them are not to the same question drawn the same way, and
    `prompt_tokens` about how long the questions are in all, where their data is at hand.
    """

    position: int
    experiment: str
    arm: str
    repeat: int
    workload: dict[str, Any]
    load: dict[str, Any]
    seconds: float | None
    unsupported: str | None = None
    departures: tuple[str, ...] = ()
    fitting: list[int] | None = None
    answers: int | None = None
    different: int | None = None
    prompt_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """A row a point, what starting each arm would do, line by line, and totals of what would run.

    `seconds` sums what can be guessed, `unknown` counts the points whose time cannot; `simulated`
    is the virtual time that is sure to pass, `servers` the number of real servers to start and
    `warmups` how often a real one is warmed up, whoever started it. `gpus` are those that real ones
    take at once at most. `guessed` says that simulated points are among it, whose time is a guess.
    `resident` names the arms of each server that stays up, `missing` is what is not there yet.
    """

    rows: tuple[Row, ...]
    starts: dict[str, tuple[str, ...]]
    seconds: float
    unknown: int
    simulated: float
    servers: int
    warmups: int
    gpus: int
    guessed: bool
    resident: tuple[tuple[str, ...], ...]
    missing: tuple[str, ...]


def describe(plan: Plan) -> Description:
    """What the plan comes to; nothing is started."""
    refusals = [refusal(point) for point in plan.points]
    asked = list(zip(plan.points, refusals, strict=True))
    rows = tuple(_row(point, refusal) for point, refusal in asked)
    running = [point for point, refusal in asked if refusal is None]
    real = [point for point in running if point.deployment.engine.clock == "wall"]
    times = [row.seconds for row in rows if row.unsupported is None]
    return Description(
        rows=rows,
        starts=dict(_starts(asked)),
        seconds=sum(seconds for seconds in times if seconds is not None),
        unknown=times.count(None),
        simulated=sum(map(_simulated, running)),
        servers=_servers(running),
        warmups=sum(point.load.warmup > 0 for point in real),
        gpus=max((point.deployment.topology.gpus for point in real), default=0),
        guessed=len(real) < len(running),
        resident=tuple(_resident(running)),
        missing=missing(running, plan.engines),
    )


def refusal(point: Point) -> str | None:
    """Why the point would be unsupported, as far as is known without starting anything."""
    engine = point.deployment.engine
    try:
        point.check()
        point.describe()
    except UnsupportedError as error:
        return str(error)
    return nodes.refusal(engine, point.deployment) if isinstance(engine, Vllm) else None


def _servers(points: Sequence[Point]) -> int:
    """How many real servers are started: one a point, and one in all where it stays up."""
    own = 0
    for point in points:
        match point.deployment.engine:
            case Vllm(resident_share=float()) | Endpoint():
                pass
            case engine:
                own += engine.clock == "wall"
    return own + len(staying(points))


def _resident(points: Sequence[Point]) -> Iterator[tuple[str, ...]]:
    """The arms of each server that stays up between its points."""
    arms: dict[str, dict[str, None]] = {}
    for point in points:
        arms.setdefault(one_server(point.deployment), {})[point.deployment.arm] = None
    yield from (tuple(arms[server]) for server in staying(points))


def _row(point: Point, refusal: str | None) -> Row:
    settings, workload = asdict(point), point.workload
    row = Row(
        position=point.position,
        experiment=point.experiment,
        arm=point.deployment.arm,
        repeat=point.repeat,
        workload=settings["workload"],
        load=settings["load"],
        seconds=None if refusal else estimate(point),
        unsupported=refusal,
        fitting=point.identity.get("fitting"),
    )
    match workload:
        case AgentX(profile=str()):
            return replace(row, departures=_departures(workload))
        case Questions() if not refusal:
            return replace(
                row,
                answers=workload.most,
                different=_different(workload),
                prompt_tokens=_prompt_tokens(workload) if workload.at_hand else None,
            )
    return row


@cache
def _departures(workload: AgentX) -> tuple[str, ...]:
    return tuple(workload.departures())


def _different(workload: Questions) -> int | None:
    most = workload.most
    # At temperature 0 an epoch draws nothing anew, but GPQA's order of choices is another one.
    anew = workload.temperature > 0 or workload.task == documents.GPQA
    return most if most is None or anew else most // workload.epochs


@cache
def _prompt_tokens(workload: Questions) -> int:
    return sum(chat.prompt.length for chat in workload.chats())


def _simulated(point: Point) -> float:
    """Seconds that pass on the virtual clock at least: a window that nothing ends early."""
    load = point.load
    virtual = point.deployment.engine.clock == "virtual"
    return load.duration if virtual and load.duration and not load.sessions else 0.0


def _starts(
    asked: Sequence[tuple[Point, str | None]],
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """What starts each arm, with its GPUs; with its experiments, where they do it differently."""
    gpus = {p.deployment.arm: counted(p.deployment.topology.gpus, "GPU") for p, _ in asked}
    members: dict[tuple[str, str], list[tuple[Point, str | None]]] = {}
    for point, refusal in asked:
        of_one = members.setdefault((point.deployment.arm, point.experiment), [])
        of_one.append((point, refusal))
    ways: dict[str, dict[tuple[str, ...], list[str]]] = {}
    for (arm, experiment), of_one in members.items():
        ways.setdefault(arm, {}).setdefault(_start(of_one), []).append(experiment)
    for arm, by_lines in ways.items():
        for lines, experiments in by_lines.items():
            told = f" in {listed(experiments, 'and')}" if len(by_lines) > 1 else ""
            yield f"{arm} ({gpus[arm]}){told}", lines


def _start(asked: Sequence[tuple[Point, str | None]]) -> tuple[str, ...]:
    """What starting the first one does, and which points are unsupported all the same."""
    try:
        lines = tuple(asked[0][0].describe())
    except UnsupportedError as error:
        return (f"unsupported: {error}",)
    refused = Counter(refusal for _, refusal in asked if refusal)
    return lines + tuple(
        f"unsupported in {counted(count, 'point')}: {refusal}"
        for refusal, count in refused.items()
        if f"# {refusal}" not in lines
    )
