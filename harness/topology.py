"""How a model lies on GPUs, and how many GPUs that takes."""

import re
from dataclasses import dataclass

from results.errors import InputError

_PART = re.compile(r"(?P<kind>TP|PP|DP|DEP)(?P<degree>[1-9]\d*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """Tensor, pipeline and data parallel degrees, and whether experts are spread over ranks."""

    name: str
    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    experts: bool = False

    @property
    def gpus(self) -> int:
        """GPUs in all: tensor x pipeline x data; expert parallelism adds none."""
        return self.tensor * self.pipeline * self.data

    @property
    def ranks(self) -> int:
        """Engine cores with a queue and a cache of their own."""
        return self.data


def parse(name: str) -> Topology:
    """The topology called `TP4`, `DEP2`, `DEP32`, `TP2xPP3`, `TP4xDP4`.

    Raises InputError where the name is not one.
    """
    degrees: dict[str, int] = {}
    for part in name.split("x"):
        match = _PART.fullmatch(part)
        if not match or match["kind"] in degrees:
            raise InputError(
                f'expected a topology such as TP4, DEP2, DEP32 or TP2xPP3, got "{name}"'
            )
        degrees[match["kind"]] = int(match["degree"])
    if "DP" in degrees and "DEP" in degrees:
        raise InputError(f'"{name}" names data parallelism twice: write DP or DEP, not both')
    return Topology(
        name=name,
        tensor=degrees.get("TP", 1),
        pipeline=degrees.get("PP", 1),
        data=degrees.get("DP", degrees.get("DEP", 1)),
        experts="DEP" in degrees,
    )
