"""A baseline as a file: sorted JSON that changes in few lines, small enough to be committed."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from results import answers, document
from results.baseline import OF_PLAN, Baseline, of_runs, refuse_copies
from results.cell import Cell
from results.condensed import COLUMNS, condensed, restored
from results.errors import FolderError, InputError
from results.evidence import Asked, Evidence, Observed, Protocol
from results.excerpt import packed, unpacked
from results.folder import run_id
from results.pairing import requests
from results.run import Kept, Run, RunPoint
from results.scores import accuracy
from results.side import Side
from results.side import side as folders
from results.tokens import packed as packed_tokens
from results.tokens import unpacked as unpacked_tokens
from results.veil import veiled

KIND = "paceline baseline"

ROUNDED = 1e-3
"""By so much the mean logarithm of requests may be off, as their times are kept to eight digits."""

WIDTH = 100
"""A mapping that is longer than this has a line for each of its keys."""

_OF_CELL = ("cell", "experiment", "arm", "engine", "gpus", "workload", "load", "objectives")
_OF_POINT = ("id", "pairing", "seed", "repeat", "position", "name")
_OF_PLAN = ("identity", "suite_seed")


def write(path: Path, baseline: Baseline) -> None:
    """Keeps the baseline as a file. Raises FolderError where it cannot be written."""
    shared: dict[str, dict[str, Any]] = {}
    content = {
        "format": document.FORMAT,
        "kind": KIND,
        "suite": baseline.suite,
        "keeps": baseline.keeps,
        "columns": COLUMNS,
        "runs": {run.path.name: _run(run, shared) for run in baseline.runs},
        "shared": shared,
    }
    with document.published(path) as temporary:
        temporary.write_text(_lines(content, "") + "\n")


def read(path: Path) -> Baseline:
    """The baseline in a file. Raises InputError where it holds none."""
    try:
        content = document.read(path)
    except FolderError as error:
        raise InputError(f"{error}; a baseline is made with `paceline baseline RUN...`") from None
    if content.get("kind") != KIND:
        raise InputError(f"{path} is no baseline: make one with `paceline baseline RUN... -o FILE`")
    try:
        _check_columns(content["columns"])
        runs = [_read_run(path / name, run, content) for name, run in content["runs"].items()]
        runs.sort(key=lambda run: (run.plan["made"], run.path.name))
        found = Baseline(suite=content["suite"], keeps=int(content["keeps"]), runs=tuple(runs))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError(
            f"{path} was not written by this version of paceline, or was damaged ({error}): make "
            "it anew with `paceline baseline RUN... -o FILE`"
        ) from error
    refuse_copies(runs)
    if not any(run.points for run in runs):
        raise InputError(f"{path} holds no run: make it anew with `paceline baseline RUN... -o`")
    return found


def sides(base: Sequence[str], other: Sequence[str]) -> tuple[Side, Side]:
    """The sides made of what is written: run folders, baseline files, and `:ARM` after either.

    Where one is a file, which holds no secrets, the other one is read without them too.
    """
    made = _spelled_alike(side(base), side(other))
    if not any(point.kept for one in made for point in one.points):
        return made
    first, second = (
        replace(one, points=tuple(veiled(point) for point in one.points)) for one in made
    )
    return first, second


def side(written: Sequence[str]) -> Side:
    """One side made of run folders and baseline files, each with or without `:ARM`.

    A folder of run folders stands for all of them. Raises InputError where one is neither, or has
    not just one arm of that name.
    """
    whole = [str(path) for each in written for path in runs_in(Path(each))]
    parts = [_of_file(each) or folders([each]) for each in whole]
    runs: dict[Path, Run] = {}
    for run in (run for part in parts for run in part.runs):
        runs.setdefault(run.path.resolve(), run)
    points = {
        (one.path, one.cell.name): one
        for part in parts
        for one in (_moved(point, runs[_home(point)].path) for point in part.points)
    }
    return Side(name=" ".join(written), runs=tuple(runs.values()), points=tuple(points.values()))


def _spelled_alike(base: Side, other: Side) -> tuple[Side, Side]:
    """The sides with one spelling for the path of a run folder that both have."""
    known = {run.path.resolve(): run.path for run in base.runs}
    runs = (replace(run, path=known.get(run.path.resolve(), run.path)) for run in other.runs)
    points = (_moved(point, known.get(_home(point), point.path.parent)) for point in other.points)
    return base, replace(other, runs=tuple(runs), points=tuple(points))


def _home(point: RunPoint) -> Path:
    """The run folder of a point, as the system calls it."""
    return point.path.parent.resolve()


def _moved(point: RunPoint, folder: Path) -> RunPoint:
    return replace(point, path=folder / point.path.name)


def runs_in(path: Path) -> list[Path]:
    """The run folders in a folder that is none itself; else the path alone."""
    if not path.is_dir() or (path / "plan.json").exists():
        return [path]
    return sorted(plan.parent for plan in path.glob("*/plan.json")) or [path]


def _of_file(written: str) -> Side | None:
    """The side in a baseline file; None where no file is named."""
    head, _, arm = written.rpartition(":")
    path, asked = (Path(written), None) if Path(written).is_file() else (Path(head), arm)
    return of_runs(written, read(path).runs, asked) if path.is_file() else None


def _run(run: Run, shared: dict[str, Any]) -> dict[str, Any]:
    plan = {point["id"]: point for point in run.plan["points"]}
    return {
        "made": run.plan["made"],
        **{name: run.plan[name] for name in OF_PLAN},
        "environment": _share(dict(run.environment), shared),
        "points": {
            point.path.name: _point(point, plan[point.cell.id], shared) for point in run.points
        },
    }


def _point(point: RunPoint, plan: Mapping[str, Any], shared: dict[str, Any]) -> dict[str, Any]:
    assert point.kept is not None
    assert point.evidence is not None
    cell = asdict(point.cell)
    written: dict[str, Any] = {
        "point": {name: cell[name] for name in _OF_POINT},
        "cell": _share({name: cell[name] for name in _OF_CELL}, shared),
        "deployment": _share(cell["deployment"], shared),
        "plan": _share({name: plan[name] for name in _OF_PLAN}, shared),
        "observed": _share(asdict(point.evidence.observed) | {"effective": {}}, shared),
        # Of every start the same, which the rest of what was observed is not.
        "effective": _share(point.evidence.observed.effective, shared),
        "window": [point.evidence.clock, point.evidence.opened, point.evidence.closed],
        "late": point.evidence.client_late,
        **condensed(point.kept),
    }
    if point.evidence.protocol is not None:
        written["protocol"] = _share(asdict(point.evidence.protocol), shared)
    if point.evidence.accuracy is not None:
        written["accuracy"] = _share(asdict(point.evidence.accuracy), shared)
    if point.kept.answers is not None:
        written["answers"] = answers.packed(point.kept.answers)
    if point.kept.rows is not None:
        written["requests"] = packed(point.kept.rows)
    elif point.kept.tokens is not None:
        written["tokens"] = packed_tokens(point.kept.tokens)
    return written


def _share(value: dict[str, Any], shared: dict[str, Any]) -> str:
    """The name under which the value stands once for all that have it."""
    exact = orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_SERIALIZE_NUMPY)
    name = hashlib.sha256(exact).hexdigest()[:8]
    shared[name] = orjson.loads(exact)
    return name


def _read_run(path: Path, written: Mapping[str, Any], file: Mapping[str, Any]) -> Run:
    shared = file["shared"]
    points = [
        _read_point(path / folder, each, shared) for folder, each in written["points"].items()
    ]
    points.sort(key=lambda entry: entry[0].cell.position)
    plan = {
        "suite": file["suite"],
        **{name: written[name] for name in ("made", *OF_PLAN)},
        "points": [plan for _, plan in points],
    }
    return Run(
        path=path,
        suite=file["suite"],
        run_id=run_id(plan),
        plan=plan,
        environment=shared[written["environment"]],
        points=tuple(point for point, _ in points),
        planned=(),
    )


def _read_point(
    path: Path, written: Mapping[str, Any], shared: Mapping[str, Any]
) -> tuple[RunPoint, dict[str, Any]]:
    deployment = {"deployment": shared[written["deployment"]]}
    told = {**shared[written["cell"]], **written["point"], **deployment}
    cell = Cell(**{field.name: told[field.name] for field in fields(Cell)})
    clock, opened, closed = written["window"]
    replayed, asked = "protocol" in written, "accuracy" in written
    evidence = Evidence(
        observed=Observed(
            **{**shared[written["observed"]], "effective": shared[written["effective"]]}
        ),
        clock=clock,
        opened=opened,
        closed=closed,
        client_late=written["late"],
        protocol=Protocol(**shared[written["protocol"]]) if replayed else None,
        accuracy=Asked(**shared[written["accuracy"]]) if asked else None,
    )
    whole = "requests" in written
    kept = replace(
        restored(written, cell.gpus),
        rows=unpacked(written["requests"]) if whole else None,
        tokens=None if whole else unpacked_tokens(written["tokens"]),
        answers=answers.unpacked(written["answers"]) if asked else None,
    )
    _check(path, kept)
    point = RunPoint(
        path=path, cell=cell, status="finished", reason=None, evidence=evidence, kept=kept
    )
    names = {name: getattr(cell, name) for name in ("id", "name", "cell")}
    return point, {**names, **shared[written["plan"]], "folder": path.name}


def _check_columns(told: Sequence[str]) -> None:
    if told != list(COLUMNS):
        raise ValueError(f"columns {told}")


def _check(path: Path, kept: Kept) -> None:
    """Raises ValueError where the requests of a point say something else than its figures."""
    if kept.answers is not None:
        told, found = kept.figures["accuracy"].value, accuracy(kept.answers).value
        if told is None or found is None or abs(told - found) > ROUNDED:
            raise ValueError(f"{path.name}: its answers come to {found}, and it says {told}")
    if kept.rows is None:
        return
    answered = kept.figures["ok"].value if "ok" in kept.figures else 0
    if answered != kept.rows.num_rows:
        raise ValueError(f"{path.name} has {kept.rows.num_rows} requests, and says {answered}")
    for name, logs in requests(kept.rows).values.items():
        held = logs[~np.isnan(logs)]
        told = kept.means.get(name)
        if len(held) and (told is None or abs(held.mean() - told) > ROUNDED):
            raise ValueError(f"{path.name}: its requests are not those of its {name}")


def _lines(value: Any, indent: str) -> str:
    """JSON with sorted keys and a line for each thing, short things on one."""
    compact = orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    nested = isinstance(value, dict) and any(isinstance(one, dict | list) for one in value.values())
    if not isinstance(value, dict) or not (nested or len(compact) > WIDTH):
        return compact
    inner = indent + " "
    body = ",\n".join(
        f"{inner}{orjson.dumps(key).decode()}: {_lines(value[key], inner)}" for key in sorted(value)
    )
    return f"{{\n{body}\n{indent}}}"
