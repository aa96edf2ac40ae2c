"""Distributions as the values at some of their ranks, and draws that match them in few numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, exp, inf
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

Floats = NDArray[np.float64]

GOLDEN = (5**0.5 - 1) / 2
"""Multiples of it, modulo one, spread evenly over every stretch of themselves."""

SAMPLES = 4096
"""Ranks at which a curve is looked at, at least, to know the means of its strata."""

FEWEST = 8
"""Ranks at which each stratum is looked at, at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A positive distribution: values at ascending ranks, between them lognormal.

    Beyond its first and last point a curve goes on as it came, between `least` and `most`.
    """

    points: tuple[tuple[float, float], ...]
    least: float = 0.0
    most: float = inf

    def at(self, ranks: Floats) -> Floats:
        """The values at these ranks, each strictly between 0 and 1."""
        scores = ndtri(ranks)
        known = ndtri([rank for rank, _ in self.points])
        logs = np.log([value for _, value in self.points])
        piece = np.clip(np.searchsorted(known, scores) - 1, 0, len(known) - 2)
        slopes = np.diff(logs) / np.diff(known)
        values = np.exp(logs[piece] + (scores - known[piece]) * slopes[piece])
        clipped: Floats = np.clip(values, self.least, self.most)
        return clipped

    def strata(self, count: int) -> Floats:
        """The means of that many equally likely parts, ascending: together they keep the mean."""
        looks = max(FEWEST, ceil(SAMPLES / max(1, count)))
        ranks = (np.arange(count * looks) + 0.5) / (count * looks)
        means: Floats = self.at(ranks).reshape(count, looks).mean(axis=1)
        return means

    def times(self, factor: float) -> Self:
        """The curve of values so many times as large."""
        return type(self)(
            points=tuple((rank, value * factor) for rank, value in self.points),
            least=self.least * factor,
            most=self.most * factor,
        )


def lognormal(median: float, sigma: float, least: float = 0.0, most: float = inf) -> Curve:
    """The lognormal distribution of that median and log-sigma, cut at both ends."""
    points = ((0.5, median), (float(ndtri(0.5) + 0.8413447460685429), median * exp(sigma)))
    return Curve(points=points, least=least, most=most)


def dealt(random: np.random.Generator, curve: Curve, counts: Sequence[int]) -> list[Floats]:
    """So many values of a curve for each of several, in random order.

    All values together are the curve's strata, and each one's share of them is nearly so.
    """
    strata = curve.strata(sum(counts))
    return [strata[part] for part in _parts(random, counts)]


def chances(random: np.random.Generator, counts: Sequence[int]) -> list[Floats]:
    """So many numbers between 0 and 1 for each of several, spread evenly in the same way."""
    return [(part + 0.5) / sum(counts) for part in _parts(random, counts)]


def _parts(random: np.random.Generator, counts: Sequence[int]) -> list[NDArray[np.int64]]:
    """The whole numbers below the sum of the counts, mixed and cut into parts of these sizes."""
    ranks = ranked(random.random() + np.arange(sum(counts)) * GOLDEN)
    ends = np.cumsum(counts, dtype=np.int64)
    return [
        random.permutation(ranks[end - count : end])
        for count, end in zip(counts, ends, strict=True)
    ]


def ranked(places: NDArray[Any]) -> NDArray[np.int64]:
    """The rank, from 0, of the fractional part of each of these numbers."""
    ranks: NDArray[np.int64] = np.argsort(np.argsort(places % 1.0, kind="stable"), kind="stable")
    return ranks
