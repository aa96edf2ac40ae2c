"""How much a mean over requests varies with the sessions that they happen to belong to."""

from dataclasses import dataclass
from functools import lru_cache
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from results.columns import Floats, Ints
from results.pairing import Singles

DRAWS = 2000

FEWEST = 10
"""With fewer sessions than this, drawing them says too little."""

MOST = 1000
"""More sessions than this are drawn in so many groups, which bounds memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The standard error of a mean over sessions, and how many sessions it rests on."""

    error: float
    sessions: int

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the error."""
        return min(self.sessions, MOST) - 1


def over_sessions(values: Floats | Singles, sessions: Ints, seed: int) -> Spread | None:
    """That of the mean of the values, by whole sessions drawn with replacement 2,000 times.

    `sessions` are numbers from 0. None where there are fewer than ten: requests of one session
    resemble one another (Cameron, Gelbach and Miller 2008), so sessions were sampled, not requests.
    """
    held = np.bincount(sessions)
    sums = np.bincount(sessions, weights=values - values.mean(dtype=np.float64))
    sums, held = sums[held > 0], held[held > 0]
    count, size = len(held), min(len(held), MOST)
    if count < FEWEST:
        return None
    group = np.arange(count) % MOST
    tops, bottoms = (np.bincount(group, weights=each) for each in (sums, held))
    drawn = _drawn(size, seed)
    means = (drawn @ tops) / (drawn @ bottoms)
    few = sqrt(size / (size - 1))
    return Spread(error=float(means.std(ddof=1)) * few, sessions=count)


@lru_cache(maxsize=4)
def _drawn(size: int, seed: int) -> NDArray[np.float64]:
    """How often each of so many is in each draw, the same for every metric of a comparison."""
    random = np.random.default_rng(seed)
    times = random.multinomial(size, np.full(size, 1 / size), size=DRAWS)
    return times.astype(np.float64)
