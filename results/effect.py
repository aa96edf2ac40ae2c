"""How far apart two sides are in one metric, and how sure that is."""

from dataclasses import dataclass
from math import exp, isfinite
from typing import Any, Literal

from results.contrast import Drift, Estimate, How
from results.direction import Better, Direction, in_points
from results.figure import Unit
from results.gap import Gap


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """How many requests of two sides are the same request.

    `unmatched` is the share, of all that either side answered, that only one side answered;
    `lost` the same of the side that answered fewer: a faster engine gets further, and what only
    it reached takes nothing from the other.
    """

    pairs: int
    unmatched: float
    lost: float
    sessions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunValue:
    """What one run came to: for plots, and to see which run is the odd one."""

    side: Literal["base", "other"]
    folder: str
    pairing: str
    repeat: int
    position: int
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """The change of one metric from base to other.

    `ratio` is other / base, `low` and `high` its two-sided 95 % interval; None with `reason` where
    there is none. `base` and `other` are geometric means in `unit`. `error` is the standard error
    of log(ratio) with `freedom` degrees, `sessions` the part of it that was added because all runs
    play the same sessions, `detectable` the smallest relative difference that such data show in 80
    of 100 cases. `runs` are those of base and other that are compared. A reason beside a ratio
    says what is to be known of it, `doubt` why other must not be called better or the
    same; where it is `doubted_either_way` not worse either.

    Of shares that are compared in points the ratio is 1 and the difference: 1.02 is two points
    more. An accuracy has its `gap`, question by question, and no order of runs. `folders` are how
    many of each side tell how much folders differ; None where none do. Where every run plays the
    same sessions, too few to tell how others would do, they are `alone`, and how many.
    """

    metric: str
    unit: Unit
    better: Better
    how: How
    base: float | None = None
    other: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    error: float | None = None
    freedom: float | None = None
    sessions: float | None = None
    p: float | None = None
    detectable: float | None = None
    runs: tuple[int, int] = (0, 0)
    values: tuple[RunValue, ...] = ()
    matched: Matched | None = None
    drift: Drift | None = None
    gap: Gap | None = None
    folders: tuple[int, int] | None = None
    alone: int | None = None
    reason: str | None = None
    doubt: str | None = None
    doubted_either_way: bool = False

    @property
    def scale(self) -> float:
        """What the change is a share of, in the metric's unit."""
        if in_points(self.metric):
            return 1.0
        return self.base or (self.other or 0.0) / (self.ratio or 1.0)

    @property
    def worsening(self) -> tuple[float, float, float] | None:
        """The relative change for the worse, with its low and high end; None without interval.

        Positive is worse: 0.05 is 5 % more seconds, or 5 % fewer tokens a second.
        """
        if self.ratio is None or self.low is None or self.high is None:
            return None
        if self.better == "lower":
            return self.ratio - 1, self.low - 1, self.high - 1
        return 1 - self.ratio, 1 - self.high, 1 - self.low


def of_estimate(
    metric: str,
    direction: Direction,
    estimate: Estimate,
    means: tuple[float, float],
    **known: Any,
) -> Effect:
    """The effect that an estimate on the log scale comes to; `means` are those of both sides."""
    ends = estimate.interval
    return Effect(
        metric=metric,
        unit=direction.unit,
        better=direction.better,
        how=estimate.how,
        base=_exp(means[0]),
        other=_exp(means[1]),
        ratio=_exp(estimate.change),
        low=_exp(ends[0]) if ends else None,
        high=_exp(ends[1]) if ends else None,
        error=estimate.error,
        freedom=estimate.freedom if isfinite(estimate.freedom) else None,
        p=estimate.p,
        detectable=estimate.detectable,
        drift=estimate.drift,
        folders=estimate.folders,
        **{"reason": estimate.reason, **known},
    )


def _exp(value: float) -> float:
    """Never infinite: what is beyond all bounds stays a number."""
    return exp(max(-700.0, min(value, 700.0)))
