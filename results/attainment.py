"""The share of requests that keep every objective, and how sure it is, over the runs of a level."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import betaincinv, stdtrit

from results.columns import Floats, Ints, columns
from results.figure import Figure
from results.interval import FEWEST, PARTS, Interval
from results.pool import FEWEST_RUNS
from results.rates import broken
from results.rates import kept as within
from results.run import RunPoint

DOUBT = 0.05
"""The chance that an interval misses its share, on both sides together, over all looks at it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Kept:
    """The requests of one run that showed whether they keep every objective.

    `good` is 1 for each that does; `session` and `part` say to which session of the run, and to
    which tenth of its window, each belongs. `cut` counts the requests that showed neither.
    """

    good: Floats
    session: Ints
    part: Ints
    cut: int = 0


def kept(point: RunPoint) -> Kept | None:
    """Who kept the point's own objectives; None where its window is unknown."""
    if point.evidence is None:
        return None
    rows = columns(point.rows())
    opened, closed = point.evidence.opened, point.evidence.closed
    limits = {name: limit for name, limit in point.cell.objectives.items() if limit is not None}
    shown = rows.ok | rows.failed | broken(rows, limits)
    place = (rows.planned[shown] - opened) / max(closed - opened, 1e-9) * PARTS
    return Kept(
        good=within(rows, limits)[shown].astype(np.float64),
        session=rows.tree[shown],
        part=np.clip(place.astype(np.int64), 0, PARTS - 1),
        cut=int(np.sum(~shown)),
    )


def attained(runs: Sequence[Kept], looks: int = 1) -> Figure:
    """The share over all requests of the runs, with its interval.

    The interval is the widest of three: requests of one session resemble one another, so do those
    sent in one tenth of a window, and, from three runs on, those of one run. The first two are
    exact binomial ones for as many independent requests as these are worth (Korn and Graubard
    1998); sessions that are all alike are worth one request each. Its low end takes every request
    that was cut for a bad one, its high end for a good one (Manski 2003). Where the share is looked
    at up to `looks` times, as runs come in, each look has its part of the doubt (Bonferroni).
    """
    held = [run for run in runs if len(run.good)]
    if not held:
        return Figure(value=None, unit="share", n=0, reason="no request showed whether it is good")
    good = np.concatenate([run.good for run in held])
    sessions = _numbered([run.session for run in held])
    count = int(sessions.max()) + 1
    figure = Figure(value=float(good.mean()), unit="share", n=len(good), runs=len(held))
    if count < FEWEST:
        doubt = f"too few sessions for an interval ({count}, needs {FEWEST})"
        return replace(figure, doubt=doubt)
    share, tail = float(good.mean()), DOUBT / 2 / looks
    parts = _numbered([run.part for run in held])
    ends = [
        _exact(share, min(_worth(good, sessions), _worth(good, parts)), tail),
        _of_runs([float(run.good.mean()) for run in held], tail) or (share, share),
        # Sessions that were not seen may be unlike all that were.
        (min(share, tail ** (1 / count)), max(share, 1 - tail ** (1 / count))),
    ]
    lows, highs = zip(*ends, strict=True)
    cut = sum(run.cut for run in held)
    cut_share = cut / (cut + len(good))
    low, high = min(lows) * (1 - cut_share), max(highs) * (1 - cut_share) + cut_share
    return replace(figure, low=low, high=high)


def _numbered(clusters: Sequence[Ints]) -> Ints:
    """The clusters of all runs from 0 on, none of one run the same as one of another."""
    told: list[Ints] = []
    first = 0
    for cluster in clusters:
        names, place = np.unique(cluster, return_inverse=True)
        told.append(place + first)
        first += len(names)
    return np.concatenate(told)


def _worth(good: Floats, cluster: Ints) -> float:
    """As many independent requests as would be as sure of the share as these clusters are."""
    n, count, share = len(good), int(cluster.max()) + 1, float(good.mean())
    apart = np.bincount(cluster, weights=good - share)
    variance = count / max(1, count - 1) * float(np.sum(apart**2)) / n**2
    if not variance:
        return float(n)
    few = float(stdtrit(n - 1, 0.975) / stdtrit(max(1, count - 1), 0.975)) ** 2
    return min(float(n), share * (1 - share) / variance * few)


def _exact(share: float, n: float, tail: float) -> Interval:
    """The binomial interval of Clopper and Pearson, whose n need not be whole."""
    good, bad = share * n, (1 - share) * n
    low = float(betaincinv(good, bad + 1, tail)) if good else 0.0
    high = float(betaincinv(good + 1, bad, 1 - tail)) if bad else 1.0
    return low, high


def _of_runs(shares: Sequence[float], tail: float) -> Interval | None:
    """Student's interval of the runs' mean; None for fewer than three, or for equal ones."""
    count, spread = len(shares), float(np.std(shares, ddof=1)) if len(shares) > 1 else 0.0
    if count < FEWEST_RUNS or not spread:
        return None
    half = float(stdtrit(count - 1, 1 - tail)) * spread / count**0.5
    mean = float(np.mean(shares))
    return max(0.0, mean - half), min(1.0, mean + half)
