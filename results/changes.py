"""Where a series of numbers changes its level: E-divisive (Matteson and James 2014)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np

from results.columns import Floats

SHORTEST = 3
"""How many numbers a level has at least: fewer show no spread worth the name."""

FEWEST = 8
"""In a shorter series a change cannot be told from chance."""

LEVEL = 0.05
"""In how many series without a change one may be found."""

PERMUTATIONS = 499
"""How often a series is shuffled: a p-value goes down to 1 in 500."""

LIKELY = 7.35
"""How far a place may fall behind the best one and still be in its 95 % set (Hansen 2000)."""

# As many numbers as are handled at once: more no longer fit a processor's cache.
_AT_ONCE = 50_000

Segment = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A change: `at` is the place of the first number of the new level, counted from 0.

    `low` and `high` are the first and the last place where it may have been, at 95 %. `p` is how
    often a shuffled series shows a change as clear: (k + 1) / (N + 1) of N shuffled ones.
    """

    at: int
    low: int
    high: int
    p: float


def changes(values: Floats, *, seed: int = 0) -> tuple[Split, ...]:
    """The changes of a series, in order; none in one that is shorter than FEWEST.

    The clearest change is looked for first, then the clearest in what lies on either side of those
    that were found, until one could as well be chance. All of it is the same for the same seed.
    """
    found: dict[int, float] = {}
    largest = np.abs(values).max(initial=0.0)
    if len(values) < FEWEST or not largest:
        return ()
    # The last digits of a float are no change.
    values = np.round(values / largest, 12)
    random = np.random.default_rng(seed)
    for _ in range(len(values) // SHORTEST):
        segments = list(pairwise([0, *sorted(found), len(values)]))
        clearest, at = max(_clearest(values, segment) for segment in segments)
        p = _chance(values, segments, clearest, random)
        if clearest <= 0 or p > LEVEL:
            break
        found[at] = p
    ends = [0, *sorted(found), len(values)]
    return tuple(
        _placed(values, before, at, after, found[at])
        for before, at, after in zip(ends, ends[1:], ends[2:], strict=False)
    )


def detectable(values: Floats) -> float | None:
    """The step in the middle of such numbers that is found in about 80 of 100 cases.

    For numbers without a change; the factor was simulated for 8 to 40 normal ones.
    """
    count = len(values)
    if count < FEWEST:
        return None
    return float(2 * (4.5 + 8 / count) / np.sqrt(count) * np.std(values, ddof=1))


def _clearest(values: Floats, segment: Segment) -> tuple[float, int]:
    """How clear the clearest change within a segment is, and where it is."""
    begin, end = segment
    if end - begin < 2 * SHORTEST:
        return -np.inf, begin
    clear = _clearness(values[None, begin:end])[0]
    at = begin + SHORTEST + int(clear.argmax()) // clear.shape[1]
    return float(clear.max()), at


def _chance(
    values: Floats, segments: Sequence[Segment], clearest: float, random: np.random.Generator
) -> float:
    """How often segments, each shuffled in itself, show a change as clear.

    Ends early, with too small a p-value that still is above LEVEL, where it can no longer fall.
    """
    long = [segment for segment in segments if segment[1] - segment[0] >= 2 * SHORTEST]
    enough = LEVEL * (PERMUTATIONS + 1)
    beyond = drawn = 0
    size = sum((end - begin) ** 2 for begin, end in long)
    while drawn < PERMUTATIONS and beyond + 1 <= enough:
        count = min(max(1, _AT_ONCE // max(1, size)), PERMUTATIONS - drawn)
        best = np.full(count, -np.inf)
        for begin, end in long:
            rows = np.tile(values[begin:end], (count, 1))
            shuffled = random.permuted(rows, axis=1)
            np.maximum(best, _clearness(shuffled).max(axis=(1, 2)), out=best)
        # Sums in another order differ by rounding, and equal is as clear.
        beyond += int((best >= clearest * (1 - 1e-9)).sum())
        drawn += count
    return (beyond + 1) / (PERMUTATIONS + 1)


def _clearness(series: Floats) -> Floats:
    """Of each series, [t, k]: how far its first t numbers and the next, up to k, are apart.

    t counts from SHORTEST, k from twice that. It is m n / (m + n) times the energy distance of
    both (Székely and Rizzo 2013), from sums of the distances of all pairs; negative infinity where
    a part is too short.
    """
    count = series.shape[1]
    sums = np.zeros((len(series), count + 1, count + 1))
    np.abs(series[:, :, None] - series[:, None, :], out=sums[:, 1:, 1:])
    np.cumsum(sums, axis=1, out=sums)
    np.cumsum(sums, axis=2, out=sums)
    inside = np.einsum("bii->bi", sums)
    of_across, of_before, of_whole, too_short = _weights(count)
    clear = sums[:, SHORTEST : count - SHORTEST + 1, 2 * SHORTEST :] * of_across
    clear += inside[:, SHORTEST : count - SHORTEST + 1, None] * of_before
    clear += inside[:, None, 2 * SHORTEST :] * of_whole
    clear += too_short
    return clear


@cache
def _weights(count: int) -> tuple[Floats, Floats, Floats, Floats]:
    """What sums of distances count for: across [0, t) x [0, k), in [0, t)², and in [0, k)².

    The last one is negative infinity where a part is too short.
    """
    m = np.arange(SHORTEST, count - SHORTEST + 1, dtype=np.float64)[:, None]
    n = np.arange(2 * SHORTEST, count + 1)[None, :] - m
    too_short = np.where(n >= SHORTEST, 0.0, -np.inf)
    n = np.maximum(n, 2.0)
    scale = m * n / (m + n)
    across, first, second = 2 / (m * n), 1 / (m * (m - 1)), 1 / (n * (n - 1))
    return (
        scale * (across + 2 * second),
        -scale * (across + first + second),
        -scale * second,
        too_short,
    )


def _placed(values: Floats, before: int, at: int, after: int, p: float) -> Split:
    """A change with the places where it may have been, if both levels are even but for noise.

    A place is likely where the squares around both means are less than LIKELY variances above
    those of the best place.
    """
    part = values[before:after]
    places = np.arange(1, len(part))
    sums, squares = np.cumsum(part - part.mean()), np.cumsum((part - part.mean()) ** 2)
    head = sums[:-1]
    rest = squares[-1] - head**2 / places - (sums[-1] - head) ** 2 / (len(part) - places)
    variance = rest.min() / max(1, len(part) - 2)
    likely = before + places[rest - rest.min() <= LIKELY * variance + 1e-12 * squares[-1]]
    return Split(at=at, low=min(at, int(likely.min())), high=max(at, int(likely.max())), p=p)
