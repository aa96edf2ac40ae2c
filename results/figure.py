"""Numbers with their doubt."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from results.cell import Cell
from results.evidence import Provenance

Unit = Literal[
    "s",
    "s/token",
    "tok/s",
    "req/s",
    "sessions/s",
    "tok/s/user",
    "tok/s/GPU",
    "share",
    "count",
    "tokens",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number: its unit, how many samples it rests on, and its 95 % interval where there is one.

    `value` is None where there is nothing to show, and then `reason` says why; a figure that is
    shown with a caveat has both. `doubt` says why a shown figure has no interval. `runs` is how
    many runs a pooled figure, and its interval, rest on.
    """

    value: float | None
    unit: Unit
    n: int
    runs: int = 1
    low: float | None = None
    high: float | None = None
    reason: str | None = None
    doubt: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankShare:
    """What one data-parallel rank did: requests, their input tokens, and how many were cached.

    Tokens are those of requests that tell their cached ones.
    """

    rank: int
    requests: int
    input_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What one point, or one cell over its repeats, comes to.

    `figures` is keyed `metric` or `metric.statistic`: `ttft.p90`, `output_rate`. `status` is the
    outcome's; `problems` says why the numbers must not be used, and is empty for a valid point.
    `ranks` are there where requests name more than one; `failures` are the commonest reasons of
    failed requests, and how many have each; `remarks` is what else a reader should know.
    """

    cell: Cell
    status: str
    reason: str | None
    repeats: int
    provenance: Provenance | None
    problems: tuple[str, ...]
    figures: Mapping[str, Figure]
    ranks: tuple[RankShare, ...] = ()
    failures: tuple[tuple[str, int], ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def valid(self) -> bool:
        """Whether the point finished and nothing speaks against its numbers."""
        return self.status == "finished" and not self.problems
