"""Which requests moved most between two sides: the ones to look at first."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from results.columns import columns, of_phase
from results.direction import REQUESTS
from results.pairing import times
from results.run import RunPoint

MOST = 10
"""How many are told."""

KEY = ("trace", "stream", "turn", "prompt_hash")
"""What makes two requests the same request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A request on both sides, what it had of a metric there, and other / base.

    Where it was sent several times, the values are geometric means.
    """

    metric: str
    pairing: str
    repeat: int
    trace: str
    stream: str
    turn: int
    base: float
    other: float

    @property
    def ratio(self) -> float:
        """Other / base."""
        return self.other / self.base


def moved(
    base: Sequence[RunPoint], other: Sequence[RunPoint], metric: str, most: int = MOST
) -> tuple[Moved, ...]:
    """The requests of one cell that got slower by the largest factors, the slowest first.

    Of a metric that is a statistic over requests (`ttft.p90`) it is the requests' own (`ttft`);
    none of a metric that no single request has.
    """
    name = metric.partition(".")[0]
    if name not in REQUESTS:
        return ()
    found: list[Moved] = []
    for pairing in dict.fromkeys(point.cell.pairing for point in base):
        sides = [
            [point for point in side if point.cell.pairing == pairing] for side in (base, other)
        ]
        if all(sides):
            found += _slowed(name, sides[0], sides[1], most)
    slowest = sorted(found, key=lambda one: (-one.ratio, one.pairing, one.trace, one.turn))
    return tuple(slowest[:most])


def _logs(points: Sequence[RunPoint], name: str) -> pa.Table:
    """The mean logarithm of every request that was answered and has the metric."""
    parts = []
    for point in points:
        rows = point.rows()
        read, window = columns(rows), of_phase(rows)
        with np.errstate(divide="ignore", invalid="ignore"):
            log = np.log(times(read)[name])
        kept = pa.array(read.ok & np.isfinite(log))
        keys = {key: window[key].cast(pa.string() if key != "turn" else pa.int64()) for key in KEY}
        parts.append(pa.table({**keys, "log": log}).filter(kept))
    return pa.concat_tables(parts).group_by(list(KEY)).aggregate([("log", "mean")])


def _slowed(
    name: str, base: Sequence[RunPoint], other: Sequence[RunPoint], most: int
) -> list[Moved]:
    both = _logs(base, name).join(
        _logs(other, name), list(KEY), join_type="inner", right_suffix="_other"
    )
    change = pc.subtract(both["log_mean_other"], both["log_mean"])
    both = both.append_column("change", change).filter(pc.greater(change, 0))
    order = [("change", "descending"), *((key, "ascending") for key in KEY)]
    return [
        Moved(
            metric=name,
            pairing=base[0].cell.pairing,
            repeat=base[0].cell.repeat,
            trace=row["trace"],
            stream=row["stream"],
            turn=row["turn"],
            base=exp(row["log_mean"]),
            other=exp(row["log_mean_other"]),
        )
        for row in both.sort_by(order).slice(0, most).to_pylist()
    ]
