"""How many requests failed on each side, and whether that can be chance."""

from collections.abc import Sequence
from math import hypot, inf, sqrt

import numpy as np
from scipy.special import gammaln

from results.columns import Floats, Ints
from results.contest import Contest, Entry
from results.contrast import LEVEL, quantile

CHANCE = 0.01
"""Shares of failed requests that chance sets so far apart less often than this do differ."""


def counts(side: Sequence[Entry]) -> tuple[int, int]:
    """How many requests failed, and how many ended, in the runs of a side."""
    told = []
    for name in ("failed", "ok"):
        figures = [entry.summary.figures.get(name) for entry in side]
        told.append(sum(int(one.value or 0) for one in figures if one))
    return told[0], sum(told)


def differ(cell: Contest) -> str | None:
    """That the sides failed requests unlike beyond chance; None where they did not."""
    (few, base), (many, other) = (counts(side) for side in cell.sides)
    if chance((few, base), (many, other)) >= CHANCE:
        return None
    return (
        f"{few:,} of {base:,} requests failed in base and {many:,} of {other:,} in other, which is "
        "no chance, and an engine that fails requests has less to do"
    )


def by_chance(cell: Contest, share: str) -> bool:
    """Whether the sides' shares of the requests that ended may differ by chance alone."""
    base, other = (_having(side, share) for side in cell.sides)
    return chance(base, other) >= CHANCE


def _having(side: Sequence[Entry], share: str) -> tuple[int, int]:
    """Of how many requests of how many a side's shares are, as nearly as can be told."""
    hits, whole = 0, 0
    for entry in side:
        ended, figure = counts([entry])[1], entry.summary.figures.get(share)
        hits += round((figure.value or 0.0) * ended) if figure else 0
        whole += ended
    return hits, whole


def chance(base: tuple[int, int], other: tuple[int, int]) -> float:
    """How often counts of equal shares lie so far apart: Fisher's exact test, two-sided.

    Each count is so many of so many.
    """
    whole, some = base[1], base[1] + other[1]
    hits = base[0] + other[0]
    places = np.arange(max(0, hits - other[1]), min(hits, whole) + 1)
    ways = _ways(whole, places) + _ways(other[1], hits - places) - _ways(some, np.array([hits]))
    shares = np.exp(ways)
    seen = shares[base[0] - places[0]]
    # Rounding must not leave out what is as likely as what was seen.
    return float(min(1.0, shares[shares <= seen * (1 + 1e-7)].sum()))


def difference(base: tuple[int, int], other: tuple[int, int]) -> tuple[float, float]:
    """The 95 % interval of the second share less the first, each of them so many of so many.

    Newcombe's hybrid score interval (Statistics in Medicine 1998, method 10), which leaves no
    difference out only where Fisher's exact test does.
    """
    shares = [hits / whole for hits, whole in (base, other)]
    ends = [_score(*counts) for counts in (base, other)]
    point = shares[1] - shares[0]
    low = point - hypot(shares[1] - ends[1][0], ends[0][1] - shares[0])
    high = point + hypot(ends[1][1] - shares[1], shares[0] - ends[0][0])
    if chance(base, other) < 1 - LEVEL:
        return low, high
    return min(low, 0.0), max(high, 0.0)


def _score(hits: int, whole: int) -> tuple[float, float]:
    """Wilson's interval of a share."""
    z = quantile(inf, (1 + LEVEL) / 2)
    middle = hits + z * z / 2
    half = z * sqrt(hits * (whole - hits) / whole + z * z / 4)
    return (middle - half) / (whole + z * z), (middle + half) / (whole + z * z)


def _ways(whole: int, chosen: Ints) -> Floats:
    """The logarithm of the number of ways to choose so many."""
    ways = gammaln(whole + 1) - gammaln(chosen + 1) - gammaln(whole - chosen + 1)
    return np.asarray(ways, dtype=np.float64)
