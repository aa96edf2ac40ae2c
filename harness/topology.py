"""How a model lies on GPUs, and how many GPUs that takes."""

import re
from dataclasses import dataclass

from results.errors import InputError

_PART = re.compile(r"(?P<kind>TP|PP|DP|DEP)(?P<degree>[1-9]\d*)")
_POOL = re.compile(r"(?:(?P<count>[1-9]\d{0,8})x)?(?P<shape>[A-Z].*)")

POOLS = ("prefill", "decode")
"""What the two pools of a name with a + are for, in the order in which they are written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Engines of one shape that share one task: `count` of them, each with GPUs of its own."""

    count: int
    shape: "Topology"

    @property
    def gpus(self) -> int:
        """GPUs of all its engines."""
        return self.count * self.shape.gpus


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """Tensor, pipeline and data parallel degrees, and whether experts are spread over ranks.

    With `pools`, one that prefills and one that decodes, the degrees are those of the pools' own
    shapes, and these here are 1.
    """

    name: str
    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    experts: bool = False
    pools: tuple[Pool, ...] = ()

    @property
    def gpus(self) -> int:
        """GPUs in all: tensor x pipeline x data, summed over pools; experts add none."""
        if self.pools:
            return sum(pool.gpus for pool in self.pools)
        return self.tensor * self.pipeline * self.data

    @property
    def ranks(self) -> int:
        """Engine cores with a queue and a cache of their own that a request can be sent to.

        One for pools: what stands before them chooses for itself.
        """
        return self.data

    @property
    def expert_ranks(self) -> int:
        """Over how many GPUs of a pipeline stage the experts of a layer are spread; 1 for none."""
        return self.tensor * self.data if self.experts else 1


def parse(name: str) -> Topology:
    """The topology called `TP4`, `DEP2`, `DEP32`, `TP2xPP3`, `TP4xDP4`, `4xDEP2+1xDEP32`.

    Pools that are written without a count are one engine each. Raises InputError where the name is
    not one.
    """
    first, *others = name.split("+")
    if not others:
        return _shape(name, name)
    if len(others) > 1:
        raise InputError(
            f'"{name}" names {len(others) + 1} pools: write two, the one that prefills and the one '
            "that decodes, such as 4xDEP2+1xDEP32"
        )
    pools = tuple(_pool(part, name) for part in (first, *others))
    return Topology(name="+".join(f"{pool.count}x{pool.shape.name}" for pool in pools), pools=pools)


def _pool(part: str, name: str) -> Pool:
    match = _POOL.fullmatch(part)
    if not match:
        raise _none(name)
    return Pool(count=int(match["count"] or 1), shape=_shape(match["shape"], name))


def _shape(written: str, name: str) -> Topology:
    """The topology without pools that is written so, as all or a part of a name."""
    degrees: dict[str, int] = {}
    for part in written.split("x"):
        match = _PART.fullmatch(part)
        if not match or match["kind"] in degrees:
            raise _none(name)
        degrees[match["kind"]] = int(match["degree"])
    if "DP" in degrees and "DEP" in degrees:
        raise InputError(f'"{name}" names data parallelism twice: write DP or DEP, not both')
    return Topology(
        name=written,
        tensor=degrees.get("TP", 1),
        pipeline=degrees.get("PP", 1),
        data=degrees.get("DP", degrees.get("DEP", 1)),
        experts="DEP" in degrees,
    )


def _none(name: str) -> InputError:
    return InputError(f'expected a topology such as TP4, DEP2, DEP32 or TP2xPP3, got "{name}"')
