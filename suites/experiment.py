"""Experiments: one question each, a grid of points over engine, deployment, workload and load."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from itertools import product
from math import prod
from os.path import exists
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge
from pydantic import StringConstraints

from harness.deepinfer.engine import DeepInfer
from harness.endpoint import Endpoint
from harness.engine import Deployment, Replay
from harness.load import Closed, Load
from harness.point import Point
from harness.sim.engine import SimulatedEngine
from harness.vllm.engine import Vllm
from results.objectives import Objectives
from suites import grid, reading, topology
from suites.field import annotations, build, check, check_keys, check_mapping
from suites.reading import Problem, one_line
from suites.words import expected, quoted
from workloads.agentx import AgentX
from workloads.batch import Batch
from workloads.forward import Forward
from workloads.growing import Growing
from workloads.profile import PROFILES, Profile
from workloads.questions import Questions
from workloads.single import Single

Engines = SimulatedEngine | Endpoint | Vllm | DeepInfer
Workloads = AgentX | Batch | Forward | Growing | Questions | Single
Loads = Load
"""The kinds that a suite may name."""

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]+$")]
Repeats = Annotated[int, Ge(1)]

DETAILS = {key: annotations(Deployment)[key] for key in ("model", "flags", "environment")}
"""What an experiment takes beside its name, its grid and its objectives."""

EVERY = 1_000_000
"""Sessions of a load that asks questions, until it is known how many there are."""

_KIND = "a mapping with a kind"
_NEEDED = {
    "name": expected(Name),
    "engine": _KIND,
    "topology": "a topology such as TP4 or DEP2",
    "workload": _KIND,
    "load": _KIND,
}
KEYS = (*_NEEDED, "replay", "pinned", *DETAILS, "objectives", "repeats")


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """One question: a grid of points, in the order in which it is written.

    `engine` is what stands under that key; `repeats` are its own, the suite's where it is None.
    """

    name: Name
    grid: tuple[Point, ...]
    engine: Any
    repeats: Repeats | None = None


def read(
    written: Any, path: reading.Path, problems: list[Problem], *, folder: Path, seed: int
) -> Experiment | None:
    """The experiment that a mapping says; None where there is a problem.

    Traces are looked for in `folder`, where the suite is; `seed` is the suite's.
    """
    before = len(problems)
    if not check_keys(written, KEYS, _NEEDED, path, problems):
        return None
    name = check(Name, written.get("name", "unnamed"), (*path, "name"), problems)
    details = {
        key: check(annotation, written[key], (*path, key), problems)
        for key, annotation in DETAILS.items()
        if key in written
    }
    repeats = check(Repeats, written.get("repeats", 1), (*path, "repeats"), problems)
    aims = check_mapping(Objectives, written.get("objectives", {}), (*path, "objectives"), problems)
    read_axes = _axes(folder)
    axes = {
        key: read_axes[key](value, (*path, key), problems)
        for key, value in _completed(written).items()
        if key in read_axes
    }
    _possible(axes, path, problems)
    _sized(axes, (*path, "topology"), problems)
    if len(problems) > before:
        return None
    point = partial(Point, experiment=name, objectives=aims, suite_seed=seed)
    return Experiment(
        name=name,
        grid=tuple(
            point(deployment=Deployment(**deployment, **details), workload=workload, load=load)
            for deployment, workload, load in _cells(axes)
        ),
        engine=written["engine"],
        repeats=repeats if "repeats" in written else None,
    )


def _completed(written: dict[Any, Any]) -> dict[Any, Any]:
    """The mapping with what its workloads say of a closed load in each that does not say it.

    Profiles say how long it takes, questions that it has sessions enough.
    """
    workload, load = written.get("workload"), written.get("load")
    asked = workload if isinstance(workload, list) else [workload]
    said, unless = _times(_profiles(asked)), "sessions"
    if all(isinstance(one, dict) and one.get("kind") == "questions" for one in asked):
        said, unless = {"sessions": EVERY}, "duration"
    loads = [
        {**said, **one}
        if isinstance(one, dict) and one.get("kind") == "closed" and unless not in one
        else one
        for one in (load if isinstance(load, list) else [load])
    ]
    return {**written, "load": loads if isinstance(load, list) else loads[0]} if said else written


def _times(profiles: list[Profile]) -> dict[str, Any]:
    """What profiles say of a load, where they agree."""
    times: dict[str, Any] = {"warmup": 0} if profiles else {}
    for name in ("duration", "grace"):
        if len({getattr(profile, name) for profile in profiles}) == 1:
            times[name] = getattr(profiles[0], name)
    return times


def _profiles(workloads: list[Any]) -> list[Profile]:
    """The profiles that the workloads name; none where any workload names none."""
    found = []
    for one in workloads:
        named = one.get("profile") if isinstance(one, dict) else None
        for name in named if isinstance(named, list) else [named]:
            if not isinstance(name, str) or name not in PROFILES:
                return []
            found.append(PROFILES[name])
    return found


def _possible(axes: dict[str, list[Any]], path: reading.Path, problems: list[Problem]) -> None:
    """Adds problems where the grid is too large, or a workload meets a load not of its kind."""
    points = prod(map(len, axes.values()))
    if points > grid.POINTS:
        problems.append(grid.too_large(path, f"{points:,}"))
    refuse = partial(_refuse, axes.get("load", []), (*path, "load"), problems)
    workloads = axes.get("workload", [])
    if any(isinstance(one, Forward) for one in workloads):
        refuse(
            lambda load: replace(load, warmup=1) == Closed(sessions=1),
            "no load beside forward, which sends nothing",
            "{kind: closed, sessions: 1}",
        )
    if any(isinstance(one, Questions) for one in workloads):
        refuse(
            lambda load: _is_closed(load, EVERY) and load.duration is None,
            "a closed load without sessions and duration, because every question is asked once an "
            "epoch",
            "{kind: closed, concurrency: 64}, and limit in the workload for fewer questions",
        )
    named = [one.profile for one in workloads if isinstance(one, AgentX)]
    if profile := next(filter(None, named), None):
        refuse(
            lambda load: _is_closed(load, None) and load.duration is not None,
            f"a closed load without sessions, because {profile} replays lanes for a time",
            "{kind: closed, concurrency: 8}",
        )


def _sized(axes: dict[str, list[Any]], path: reading.Path, problems: list[Problem]) -> None:
    """Adds a problem where no engine has the GPUs of any topology, by what their owner says."""
    pairs = list(product(axes.get("engine", []), axes.get("topology", [])))
    if pairs and all(
        isinstance(engine, Endpoint) and engine.gpus not in {None, shape.gpus}
        for engine, shape in pairs
    ):
        engine, shape = pairs[0]
        sentence = (
            f"{engine.name} states gpus: {engine.gpus}, and {shape.name} has {shape.gpus}: write "
            "the topology that it really has"
        )
        problems.append(Problem(path, sentence))


def _refuse(
    loads: list[Any],
    path: reading.Path,
    problems: list[Problem],
    fits: Callable[[Any], bool],
    wanted: str,
    way: str,
) -> None:
    """Adds a problem with the first load that does not fit."""
    if other := next((load for load in loads if not fits(load)), None):
        sentence = f"expected {wanted}, got {other.kind}: write {way}"
        problems.append(Problem(path, sentence))


def _is_closed(load: Load, sessions: int | None) -> bool:
    return isinstance(load, Closed) and load.sessions == sessions


def _axes(folder: Path) -> dict[str, Callable[..., list[Any]]]:
    """What reads each key that spans the grid."""
    return {
        "engine": _engines,
        "topology": partial(grid.axis, topology.read),
        "replay": partial(grid.axis, partial(check, Replay)),
        "pinned": partial(grid.axis, partial(check, bool)),
        "workload": partial(grid.expand, Workloads, finish=partial(_found, folder)),
        "load": partial(grid.expand, Loads),
    }


def _cells(axes: dict[str, list[Any]]) -> Iterator[tuple[dict[str, Any], Any, Any]]:
    for values in product(*axes.values()):
        deployment = dict(zip(axes, values, strict=True))
        # One rank has nothing to be pinned to, so there is one deployment, not one for each value.
        unpinnable = deployment["topology"].ranks == 1 and "pinned" in axes
        if unpinnable and deployment["pinned"] != axes["pinned"][0]:
            continue
        workload = deployment.pop("workload")
        yield deployment, workload, _counted(workload, deployment.pop("load"))


def _counted(workload: Any, load: Load) -> Load:
    """The load with a session for each question, as far as their number is known."""
    if not isinstance(workload, Questions) or workload.most is None or not isinstance(load, Closed):
        return load
    return replace(load, sessions=max(workload.most, load.concurrency))


def _found(folder: Path, workload: Any, path: reading.Path, problems: list[Problem]) -> Any:
    """The workload with its files looked for beside the suite, and read once to be sure."""
    match workload:
        case AgentX(traces=str()):
            return _beside(
                folder, workload, "traces", "a trace file or a folder of them", path, problems
            )
        case Questions(data=str()):
            workload = _beside(folder, workload, "data", "a file of questions", path, problems)
        case Questions(task=str(task)) if task.endswith((".yaml", ".yml")):
            workload = _beside(folder, workload, "task", "a task file", path, problems)
        case Questions():
            build(workload.check, path, problems)
    return workload


def _beside(
    folder: Path,
    workload: Any,
    key: str,
    words: str,
    path: reading.Path,
    problems: list[Problem],
) -> Any:
    """The workload with the path of this key as seen from the folder, if all is well with it."""
    written = getattr(workload, key)
    workload = replace(workload, **{key: str(folder / written)})
    # Path.exists raises for names that are too long.
    if exists(getattr(workload, key)):  # noqa: PTH110
        build(workload.check, (*path, key), problems)
    else:
        sentence = (
            f"expected {words}, got {quoted(written)}, but there is no "
            f"{Path(getattr(workload, key)).absolute()}: write the path as seen from the suite "
            "file's folder"
        )
        problems.append(Problem((*path, key), one_line(sentence)))
    return workload


def _engines(written: Any, path: reading.Path, problems: list[Problem]) -> list[Any]:
    """The engines, those of one name told apart by the settings in which they differ."""
    engines = grid.expand(Engines, written, path, problems)
    alike: dict[tuple[str, str], list[Any]] = {}
    for engine in engines:
        alike.setdefault((engine.kind, engine.name), []).append(engine)
    varied = {shared: _varied(group) for shared, group in alike.items()}
    named = [_named(engine, varied[engine.kind, engine.name]) for engine in engines]
    for name, times in Counter(engine.name for engine in named).items():
        if times > 1:
            sentence = f"expected a name for every engine, got {quoted(name)} twice: add name"
            problems.append(Problem(path, sentence))
    return named


def _varied(engines: list[Any]) -> list[str]:
    """The plain settings that are not the same in all of these engines."""
    first = engines[0]
    names = [f.name for f in fields(first) if not is_dataclass(getattr(first, f.name))]
    return [name for name in names if len({repr(getattr(e, name)) for e in engines}) > 1]


def _named(engine: Any, varied: list[str]) -> Any:
    settings = [f"{name}={getattr(engine, name)}" for name in varied]
    return replace(engine, name=" ".join([engine.name, *settings]))
