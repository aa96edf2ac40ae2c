"""A run folder as it is read: which points, what became of them, and their rows."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pyarrow as pa

from results import answers, document, rows, samples
from results.cell import Cell
from results.errors import FolderError, InputError
from results.evidence import Asked, Evidence, Observed, Protocol
from results.figure import Figure
from results.folder import STATUSES, run_id
from results.tokens import Tokens


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Kept:
    """What a baseline file keeps of a point.

    `means` are the mean logarithms of what each request has; `rows` are there where all are kept,
    else `tokens` are those of a few messages. `answers` are compact.
    """

    figures: Mapping[str, Figure]
    means: Mapping[str, float]
    rows: pa.Table | None = None
    tokens: Tokens | None = None
    answers: pa.Table | None = None

    @property
    def whole(self) -> bool:
        """Whether all that is compared one by one is kept so."""
        return self.rows is not None or self.answers is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPoint:
    """One point of a run. `status` is `broken` where it began and has no outcome.

    What comes out of a baseline file is `kept`, and there is no folder at its path.
    """

    path: Path
    cell: Cell
    status: str
    reason: str | None
    evidence: Evidence | None
    kept: Kept | None = None

    def rows(self) -> pa.Table:
        """Its requests; of a broken point, all that reached the disk."""
        if self.kept:
            return rows.SCHEMA.empty_table() if self.kept.rows is None else self.kept.rows
        return rows.read(self.path)

    def steps(self) -> pa.Table | None:
        """Its engine steps, where there are any."""
        return rows.read_steps(self.path)

    def answers(self) -> pa.Table | None:
        """Its graded answers, where questions were asked."""
        return self.kept.answers if self.kept else answers.read(self.path)

    def samples(self) -> pa.Table | None:
        """What its server's counters showed every second, where it told them."""
        return samples.read(self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run folder: its points in the order of the plan, and the names of those not yet begun."""

    path: Path
    suite: str
    run_id: str
    plan: Mapping[str, Any]
    environment: Mapping[str, Any]
    points: tuple[RunPoint, ...]
    planned: tuple[str, ...]


def identity(run: Run) -> str:
    """What a run has in common with its copies alone, whatever their folders are called.

    Simulated runs repeat to the byte, so theirs alone may be alike and not the same.
    """
    told = [point.evidence.observed.provenance for point in run.points if point.evidence]
    repeats = bool(told) and set(told) == {"simulated"}
    return f"{run.path.name} {run.run_id}" if repeats else run.run_id


def read(path: Path) -> Run:
    """The run kept in the folder.

    Raises InputError where it is not one, FolderError where it cannot be read.
    """
    if not (path / "plan.json").is_file():
        there = "is not a run folder: it has no plan.json" if path.exists() else "does not exist"
        raise InputError(
            f"{path} {there}. Name a folder that `run` made, such as runs/<suite>-<time>"
        )
    try:
        return _read(path, document.read(path / "plan.json"))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise FolderError(
            f"{path}: its JSON files were not written by this version of paceline, or were damaged "
            f"({error}): use the version that wrote them, or run again"
        ) from error


def _read(path: Path, plan: dict[str, Any]) -> Run:
    begun, planned = [], []
    for point in plan["points"]:
        folder = path / point["folder"]
        if (folder / "point.json").exists():
            begun.append(_point(folder))
        else:
            planned.append(point["name"])
    return Run(
        path=path,
        suite=plan["suite"],
        run_id=run_id(plan),
        plan=plan,
        environment=document.read(path / "environment.json"),
        points=tuple(begun),
        planned=tuple(planned),
    )


def _point(folder: Path) -> RunPoint:
    facts = document.read(folder / "point.json")
    outcome, evidence = folder / "outcome.json", folder / "evidence.json"
    ended = document.read(outcome) if outcome.exists() else {"status": "broken"}
    if ended["status"] not in {*STATUSES, "broken"}:
        raise ValueError(f"{outcome}: status {ended['status']!r}")
    return RunPoint(
        path=folder,
        cell=_cell(facts, folder),
        status=ended["status"],
        reason=ended.get("reason"),
        evidence=_evidence(document.read(evidence)) if evidence.exists() else None,
    )


def _cell(facts: dict[str, Any], folder: Path) -> Cell:
    cell = Cell(**{field.name: facts[field.name] for field in fields(Cell)})
    numbers = (cell.gpus, cell.seed, cell.repeat, cell.position)
    if not all(isinstance(number, int) for number in numbers) or cell.gpus < 1 or cell.seed < 0:
        raise ValueError(f"{folder / 'point.json'}: gpus, seed, repeat or position")
    for name in ("deployment", "workload", "load", "objectives"):
        if not isinstance(facts[name], dict):
            raise TypeError(f"{folder / 'point.json'}: {name}")
    return cell


def _evidence(content: dict[str, Any]) -> Evidence:
    read = {**content, "observed": Observed(**content["observed"])}
    for name, kind in (("protocol", Protocol), ("accuracy", Asked)):
        if read.get(name) is not None:
            read[name] = kind(**read[name])
    evidence = Evidence(**read)
    if not evidence.closed >= evidence.opened:
        raise ValueError("evidence.json: the window ends before it begins")
    return evidence
