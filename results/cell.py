"""What point.json says of a point: enough to label it, group it and draw it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A point as its folder tells it; the nested mappings are the point's own settings."""

    id: str
    pairing: str
    cell: str
    name: str
    experiment: str
    arm: str
    engine: str
    gpus: int
    seed: int
    repeat: int
    position: int
    deployment: Mapping[str, Any]
    workload: Mapping[str, Any]
    load: Mapping[str, Any]
    objectives: Mapping[str, Any]
