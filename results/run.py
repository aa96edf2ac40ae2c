"""A run folder as it is read: which points, what became of them, and their rows."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pyarrow as pa

from results import document, rows, samples
from results.cell import Cell
from results.errors import FolderError, InputError
from results.evidence import Evidence, Observed
from results.folder import run_id


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPoint:
    """One point of a run. `status` is `broken` where it began and has no outcome."""

    path: Path
    cell: Cell
    status: str
    reason: str | None
    evidence: Evidence | None

    def rows(self) -> pa.Table:
        """Its requests; of a broken point, all that reached the disk."""
        return rows.read(self.path)

    def steps(self) -> pa.Table | None:
        """Its engine steps, where there are any."""
        return rows.read_steps(self.path)

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


def read(path: Path) -> Run:
    """The run kept in the folder.

    Raises InputError where it is not one, FolderError where it cannot be read.
    """
    if not (path / "plan.json").is_file():
        there = "is not a run folder: it has no plan.json" if path.exists() else "does not exist"
        raise InputError(
            f"{path} {there}. Name a folder that `run` made, such as runs/<suite>-<time>"
        )
    plan = document.read(path / "plan.json")
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
    try:
        return RunPoint(
            path=folder,
            cell=Cell(**{field.name: facts[field.name] for field in fields(Cell)}),
            status=ended["status"],
            reason=ended.get("reason"),
            evidence=_evidence(document.read(evidence)) if evidence.exists() else None,
        )
    except (KeyError, TypeError) as error:
        raise FolderError(
            f"{folder}: point.json, evidence.json or outcome.json was not written by this "
            f"version of paceline ({error}): use the version that wrote it, or run again"
        ) from error


def _evidence(content: dict[str, Any]) -> Evidence:
    return Evidence(**{**content, "observed": Observed(**content["observed"])})
