"""Which metrics can be compared, their units, and which way is better."""

from dataclasses import dataclass
from typing import Literal

from results.figure import Unit

Better = Literal["lower", "higher"]

REQUESTS: dict[str, Unit] = {
    "ttft": "s",
    "first_answer": "s",
    "tpot": "s/token",
    "e2el": "s",
    "norm_e2el": "s/token",
    "schedule_ttft": "s",
    "schedule_e2el": "s",
}
"""What every request has, and is compared request by request."""

_STATISTICS = ("mean", "p50", "p90", "p95", "p99")

_SERIES: dict[str, Unit] = {**REQUESTS, "piece_gap": "s", "itl": "s/token"}

_SPEEDS: dict[str, Unit] = {
    "interactivity.p50": "tok/s/user",
    "interactivity.p90": "tok/s/user",
    "norm_interactivity.p50": "tok/s/user",
    "norm_interactivity.p90": "tok/s/user",
    "output_rate_per_user": "tok/s/user",
    "request_rate": "req/s",
    "output_rate": "tok/s",
    "input_rate": "tok/s",
    "total_rate": "tok/s",
    "output_rate_per_gpu": "tok/s/GPU",
    "total_rate_per_gpu": "tok/s/GPU",
    "goodput": "req/s",
    "goodput_share": "share",
    "cache_hit": "share",
    "batch_rate": "tok/s",
    "batch_rate_per_gpu": "tok/s/GPU",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Direction:
    """The unit of a metric, and which way it is better."""

    unit: Unit
    better: Better


DIRECTIONS: dict[str, Direction] = {
    **{name: Direction(unit=unit, better="lower") for name, unit in REQUESTS.items()},
    **{
        f"{name}.{statistic}": Direction(unit=unit, better="lower")
        for name, unit in _SERIES.items()
        for statistic in _STATISTICS
    },
    "batch_tpot": Direction(unit="s/token", better="lower"),
    "step_time": Direction(unit="s", better="lower"),
    "failed_share": Direction(unit="share", better="lower"),
    "accuracy": Direction(unit="share", better="higher"),
    **{name: Direction(unit=unit, better="higher") for name, unit in _SPEEDS.items()},
}
"""Every metric that can be compared: of counts, and of what was asked for, no way is better."""

OF_REQUESTS = frozenset(
    (
        *(f"{name}.{statistic}" for name in _SERIES for statistic in _STATISTICS),
        *(name for name in _SPEEDS if "interactivity" in name),
        *("output_rate_per_user", "cache_hit"),
    )
)
"""Figures of requests, whatever the time they took: compared over those that both sides answered.

All others are of the window: what it brought, whichever requests that were.
"""

_IN_POINTS = frozenset(("failed_share", "accuracy"))


def in_points(metric: str) -> bool:
    """Whether it is a share whose changes are differences and not ratios."""
    return metric.partition(".")[0] in _IN_POINTS
