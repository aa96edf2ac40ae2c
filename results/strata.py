"""TTFT by how many tokens of a request are new: where an average hides opposite effects."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf, log, sqrt
from typing import Self

import numpy as np

from results.columns import Floats, Ints
from results.contest import Contest
from results.contrast import LEVEL, quantile
from results.pairing import MOST_LOST, Keys, Pairs, Singles

EDGES = np.array([edge for power in range(4, 40) for edge in (2**power, 3 * 2 ** (power - 1))])
"""The most new tokens of each stratum, half an octave apart."""

FEWEST = 5
"""A stratum of fewer requests has no interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stratum:
    """TTFT of the matched requests of a cell that have `first` to `last` new tokens.

    `base` and `other` are geometric means, `ratio` is other / base. `spread` is the standard
    deviation of the logarithm of the ratio over requests; `low` and `high` are Student's 95 %
    interval, as if requests were independent. None where there are too few.
    """

    first: int
    last: int
    requests: int
    sessions: int
    base: float
    other: float
    ratio: float
    spread: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Changes:
    """Changes on the log scale: how many, their mean, and the squares of what they are off it."""

    count: int
    mean: float
    squares: float

    @classmethod
    def of(cls, strata: Sequence[Stratum]) -> Self:
        """Those of all requests of the strata."""
        counts = [one.requests for one in strata]
        means = [log(one.ratio) for one in strata]
        count = sum(counts)
        mean = sum(n * each for n, each in zip(counts, means, strict=True)) / count
        inside = sum(
            (n - 1) * (one.spread or 0.0) ** 2 for n, one in zip(counts, strata, strict=True)
        )
        between = sum(n * (each - mean) ** 2 for n, each in zip(counts, means, strict=True))
        return cls(count=count, mean=mean, squares=inside + between)

    def interval(self, level: float) -> tuple[float, float]:
        """Student's of the mean; without bounds where they are too few."""
        if self.count < FEWEST:
            return -inf, inf
        error = sqrt(self.squares / (self.count - 1) / self.count)
        half = quantile(self.count - 1, (1 + level) / 2) * error
        return self.mean - half, self.mean + half


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Requests:
    """For each request the logarithm of base's TTFT, its change, its stratum and its session."""

    base: Floats
    changes: Floats
    places: Ints
    sessions: Ints


def strata(cell: Contest) -> tuple[Stratum, ...]:
    """Those of the cell that have requests, by their new tokens.

    Repeats of one request are averaged first. None where too few requests have a partner.
    """
    lost = cell.matched is None or cell.matched.lost > MOST_LOST
    sent = None if lost else _once(cell)
    if sent is None:
        return ()
    counts = np.bincount(sent.places)
    sums, before = (np.bincount(sent.places, weights=each) for each in (sent.changes, sent.base))
    means = sums / np.maximum(counts, 1)
    squares = np.bincount(sent.places, weights=(sent.changes - means[sent.places]) ** 2)
    return tuple(
        _stratum(
            place,
            _Changes(
                count=int(counts[place]), mean=float(means[place]), squares=float(squares[place])
            ),
            float(before[place] / counts[place]),
            len(np.unique(sent.sessions[sent.places == place])),
        )
        for place in np.flatnonzero(counts).tolist()
    )


def looked_at(found: Sequence[Stratum]) -> int:
    """How many of them are held against the others: those with an interval, where there are two."""
    told = sum(one.low is not None for one in found)
    return told if len(found) > 1 else 0


def contrary(
    found: Sequence[Stratum], whole: float, margin: float, among: int
) -> tuple[Stratum, ...]:
    """Which strata contradict the ratio over all most: one, or two with the worse one first.

    One contradicts it where its interval and that of all other requests exclude each other
    (Bonferroni, where so many are looked at), and where that matters: one of both changes is
    within the margin and the other beyond it, or beyond it the other way, and they are more than
    the margin apart. Beside the one that is farthest off stands the one that is farthest on its
    other side, of those that it surely differs from.
    """
    level = 1 - (1 - LEVEL) / max(1, among)
    told = [one for one in found if one.low is not None]
    against = [
        one
        for one in told
        if _beyond(one.ratio, margin) != _beyond(whole, margin)
        and abs(one.ratio - whole) > margin
        and _apart([one], [each for each in found if each is not one], level)
    ]
    if not against:
        return ()
    most = max(against, key=lambda one: abs(log(one.ratio / whole)))
    way = 1 if most.ratio > whole else -1
    others = [one for one in told if one.ratio * way < most.ratio * way]
    surely = [one for one in others if _apart([one], [most], level)]
    farthest = sorted(surely, key=lambda one: one.ratio * way)[:1]
    return tuple(sorted((most, *farthest), key=lambda one: -one.ratio))


def _beyond(ratio: float, margin: float) -> int:
    """1 where it is worse by more than the margin, -1 where it is better by more, else 0."""
    return (ratio - 1 > margin) - (1 - ratio > margin)


def _apart(one: Sequence[Stratum], other: Sequence[Stratum], level: float) -> bool:
    """Whether the intervals of both exclude each other."""
    if not other:
        return False
    ends = [_Changes.of(each).interval(level) for each in (one, other)]
    return ends[0][1] < ends[1][0] or ends[1][1] < ends[0][0]


def _once(cell: Contest) -> _Requests | None:
    """The requests that have TTFT and a length on both sides, repeats of one averaged."""
    values, sessions, shapes = (
        np.concatenate(each, axis=-1)
        for each in zip(
            *(_had(one, cell.sessions[name]) for name, one in cell.pairs.items()), strict=True
        )
    )
    if not len(shapes):
        return None
    base, changes, new = values.astype(np.float64)
    if cell.recurring:
        order = np.argsort(shapes)
        begins = np.flatnonzero(np.diff(shapes[order], prepend=shapes[order[0]] + np.uint64(1)))
        times = np.diff(begins, append=len(order))
        base, changes = (np.add.reduceat(each[order], begins) / times for each in (base, changes))
        new, sessions = np.minimum.reduceat(new[order], begins), sessions[order[begins]]
    places = np.searchsorted(EDGES, new)
    return _Requests(base=base, changes=changes, places=places, sessions=sessions)


def _had(pairs: Pairs, sessions: Ints) -> tuple[Singles, Ints, Keys]:
    """Base's TTFT, its change and the new tokens of requests with all three; session and shape."""
    values = np.stack([pairs.base["ttft"], pairs.changes["ttft"], pairs.new])
    held = ~np.isnan(values).any(axis=0)
    return values[:, held], sessions[held], pairs.shapes[held]


def _stratum(place: int, changes: _Changes, before: float, sessions: int) -> Stratum:
    low, high = changes.interval(LEVEL)
    return Stratum(
        first=int(EDGES[place - 1]) + 1 if place else 0,
        last=int(EDGES[place]),
        requests=changes.count,
        sessions=sessions,
        base=exp(before),
        other=exp(before + changes.mean),
        ratio=exp(changes.mean),
        spread=sqrt(changes.squares / (changes.count - 1)) if changes.count > 1 else None,
        low=exp(low) if changes.count >= FEWEST else None,
        high=exp(high) if changes.count >= FEWEST else None,
    )
