"""How much is sent, and when: values only; `harness.drive` follows them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from annotated_types import Ge, Gt, Le

Count = Annotated[int, Ge(1), Le(1_000_000)]
Seconds = Annotated[float, Gt(0), Le(1e8)]
Rounds = Annotated[int, Ge(0), Le(1000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """`concurrency` live sessions: a lane takes the next one when its last has ended.

    Ends after `sessions` sessions or `duration` seconds, whichever comes first.
    `warmup` is how many times every shape of the workload is sent before the window opens.
    """

    kind: Literal["closed"] = "closed"
    concurrency: Annotated[int, Ge(1), Le(100_000)] = 1
    sessions: Count | None = None
    duration: Seconds | None = None
    grace: Annotated[float, Ge(0), Le(1e8)] = 0.0
    warmup: Rounds = 1

    def __post_init__(self) -> None:
        _ends(self.sessions, self.duration)
        if self.sessions is not None and self.sessions < self.concurrency:
            raise ValueError(
                f"sessions {self.sessions} never fill concurrency {self.concurrency}: "
                "raise one or lower the other"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """Sessions that start at `rate` a second, on a schedule fixed before the first one.

    `process` spaces them evenly (`constant`), exponentially (`poisson`), or by a gamma distribution
    of shape `burstiness` (`gamma`; below 1 is burstier than Poisson). At most `limit` requests are
    in flight; what waits for its place shows in schedule latency.
    """

    rate: Annotated[float, Ge(1e-6), Le(1e6)]
    kind: Literal["open"] = "open"
    process: Literal["constant", "poisson", "gamma"] = "poisson"
    burstiness: Annotated[float, Ge(0.01), Le(1000)] = 1.0
    limit: Count | None = None
    sessions: Count | None = None
    duration: Seconds | None = None
    grace: Annotated[float, Ge(0), Le(1e8)] = 0.0
    warmup: Rounds = 1

    def __post_init__(self) -> None:
        _ends(self.sessions, self.duration)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """The first `sessions` sessions at once, each turn at its recorded moment divided by `speed`.

    Turns without a recorded moment keep their delays. Nothing waits for an answer to be complete.
    """

    sessions: Count
    kind: Literal["recorded"] = "recorded"
    speed: Annotated[float, Ge(1e-3), Le(1e6)] = 1.0
    limit: Count | None = None
    duration: Seconds | None = None
    grace: Annotated[float, Ge(0), Le(1e8)] = 0.0
    warmup: Rounds = 1


Load = Closed | Open | Recorded


def _ends(sessions: int | None, duration: float | None) -> None:
    if sessions is None and duration is None:
        raise ValueError("says neither sessions nor duration, so it would never end: add one")


def arrivals(load: Open, seed: int) -> Iterator[float]:
    """Absolute arrival moments in seconds since the window opened, the first at 0.

    Gaps are summed before anything is sent, so a late sender cannot make the schedule drift.
    """
    random = np.random.default_rng(seed)
    mean = 1.0 / load.rate
    moment, number = 0.0, 0
    while True:
        yield moment
        number += 1
        match load.process:
            case "constant":
                moment = number * mean
            case "poisson":
                moment += float(random.exponential(mean))
            case "gamma":
                moment += float(random.gamma(load.burstiness, mean / load.burstiness))
