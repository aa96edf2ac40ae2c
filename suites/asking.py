"""How questions are put into a grid: each is asked once an epoch, so no load says how many."""

from dataclasses import replace
from typing import Any

from harness.load import Closed, Load
from suites.reading import Path, Problem
from workloads.questions import Questions
from workloads.session import Workload

EVERY = 1_000_000
"""Sessions of a load until it is known how many questions there are."""


def endless(written: dict[Any, Any]) -> dict[Any, Any]:
    """The mapping of an experiment that asks questions, with sessions enough in its loads."""
    workload, load = written.get("workload"), written.get("load")
    asked = workload if isinstance(workload, list) else [workload]
    if not all(isinstance(one, dict) and one.get("kind") == "questions" for one in asked):
        return written
    loads = [_endless(one) for one in (load if isinstance(load, list) else [load])]
    return {**written, "load": loads if isinstance(load, list) else loads[0]}


def check(axes: dict[str, list[Any]], path: Path, problems: list[Problem]) -> None:
    """Adds a problem where questions meet a load that would leave some out."""
    if not any(isinstance(one, Questions) for one in axes.get("workload", [])):
        return
    for load in axes.get("load", []):
        if not isinstance(load, Closed) or load.sessions != EVERY or load.duration is not None:
            sentence = (
                "expected a closed load without sessions and duration, because every question is "
                f"asked once an epoch, got {load.kind}: write {{kind: closed, concurrency: 64}}, "
                "and limit in the workload for fewer questions"
            )
            problems.append(Problem((*path, "load"), sentence))
            return


def counted(workload: Workload, load: Load) -> Load:
    """The load with a session for each question, as far as their number is known."""
    if not isinstance(workload, Questions) or not isinstance(load, Closed):
        return load
    most = workload.most
    return load if most is None else replace(load, sessions=max(most, load.concurrency))


def _endless(load: Any) -> Any:
    if not isinstance(load, dict) or load.get("kind") != "closed" or "duration" in load:
        return load
    return {"sessions": EVERY, **load}
