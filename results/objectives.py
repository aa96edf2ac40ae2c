"""Service level objectives: what a request must keep for it to count as goodput."""

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Gt, Le

Seconds = Annotated[float, Gt(0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Objectives:
    """Limits in seconds; one that is None is not asked for."""

    ttft: Seconds | None = None
    tpot: Annotated[float, Gt(0), Le(10)] | None = None
    e2el: Seconds | None = None
