"""How sure a number is: resampled sessions within a run, Student's t over parts and runs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.special import ndtri, stdtrit

from results.columns import Floats, Ints

DRAWS = 1000
FEWEST = 10
"""With fewer sessions than this, resampling them says too little."""

MOST = 1000
"""More sessions than this are resampled in so many groups, which bounds memory."""

PARTS = 10
"""Into how many parts of time requests are sorted, to see how much they vary over it."""

BINS = 512
"""Longer series are resampled in so many bins of equal weight."""

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Draws:
    """Clusters drawn with replacement, 1,000 times: `times[b, c]` is how often c is in draw b.

    `cluster` is the cluster of each request, counted from 0; `widen` makes up for few of them.
    """

    cluster: Ints
    times: np.ndarray[tuple[int, int], np.dtype[np.float32]]
    widen: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Resample:
    """The same requests drawn by whole sessions, and by parts of the window.

    Requests of one session resemble one another (Cameron, Gelbach and Miller 2008); so do those
    that share the engine's steps at one time. An interval is as wide as the wider of both.
    """

    sessions: Draws
    parts: Draws

    @property
    def asked(self) -> bool:
        """Whether there are draws at all."""
        return len(self.sessions.times) > 0

    def enough(self, rows: Ints) -> str | None:
        """Why these requests are too few sessions for an interval; None where they are not."""
        if not self.asked:
            return "its interval was not asked for"
        sessions = len(np.unique(self.sessions.cluster[rows]))
        if sessions >= FEWEST:
            return None
        return f"too few sessions for an interval ({sessions}, needs {FEWEST})"


def resample(trees: Ints, moments: Floats, seed: int) -> Resample:
    """The draws for requests of these trees, sent at these moments; the same for the same seed."""
    known = moments[~np.isnan(moments)]
    span = np.nan_to_num(moments - (known.min() if len(known) else 0.0))
    length = span.max(initial=0.0) or 1.0
    return Resample(
        sessions=_draws(trees, seed),
        parts=_draws(np.minimum(span / length * PARTS, PARTS - 1).astype(np.int64), seed + 1),
    )


def unasked() -> Resample:
    """No draws at all: for figures whose intervals nobody will look at, which take most time."""
    nothing = Draws(cluster=np.zeros(0, np.int64), times=np.zeros((0, 0), np.float32), widen=1.0)
    return Resample(sessions=nothing, parts=nothing)


def _draws(clusters: Ints, seed: int) -> Draws:
    _, cluster = np.unique(clusters, return_inverse=True)
    cluster = cluster % MOST
    count = int(cluster.max()) + 1 if len(cluster) else 1
    drawn = np.random.default_rng(seed).integers(count, size=(DRAWS, count))
    flat = (drawn + np.arange(DRAWS)[:, None] * count).ravel()
    times = np.bincount(flat, minlength=DRAWS * count).reshape(DRAWS, count)
    # Drawn from few clusters, the spread comes out too small: by (count - 1) / count, and by what
    # Student's factor is above the normal one.
    few = max(2, count)
    widen = float(stdtrit(few - 1, 0.975) / ndtri(0.975) * np.sqrt(few / (few - 1)))
    return Draws(cluster=cluster, times=times.astype(np.float32), widen=widen)


def of_ratio(resample: Resample, rows: Ints, tops: Floats, bottoms: Floats) -> Interval:
    """The interval of sum(tops) / sum(bottoms); each entry belongs to the request in `rows`."""
    return _wider(_of_ratio(draws, rows, tops, bottoms) for draws in _both(resample))


def of_quantiles(
    resample: Resample, rows: Ints, values: Floats, totals: Floats, shares: Sequence[float]
) -> list[Interval]:
    """The intervals of percentiles of ascending values, weighted as in `quantile`."""
    both = [_of_quantiles(draws, rows, values, totals, shares) for draws in _both(resample)]
    return [_wider(pair) for pair in zip(*both, strict=True)]


def _both(resample: Resample) -> tuple[Draws, Draws]:
    return resample.sessions, resample.parts


def _wider(intervals: Iterable[Interval]) -> Interval:
    lows, highs = zip(*intervals, strict=True)
    return min(lows), max(highs)


def _of_ratio(draws: Draws, rows: Ints, tops: Floats, bottoms: Floats) -> Interval:
    size = draws.times.shape[1]
    cluster = draws.cluster[rows]
    sums = [np.bincount(cluster, weights=each, minlength=size) for each in (tops, bottoms)]
    top, bottom = (draws.times @ np.stack(sums, axis=1)).T
    return _middle(top[bottom > 0] / bottom[bottom > 0], draws.widen)


def _of_quantiles(
    draws: Draws, rows: Ints, values: Floats, totals: Floats, shares: Sequence[float]
) -> list[Interval]:
    weights = np.diff(totals, prepend=0.0)
    bins = _bins(totals, weights)
    count = int(bins[-1]) + 1
    # A bin without values has no weight, so what stands for it is never taken.
    begins = np.minimum(np.searchsorted(bins, np.arange(count)), len(bins) - 1)
    ends = np.searchsorted(bins, np.arange(count), side="right") - 1
    size = draws.times.shape[1]
    cells = draws.cluster[rows] * count + bins
    held = np.bincount(cells, weights=weights, minlength=size * count).reshape(size, count)
    product = draws.times @ np.cumsum(held.astype(np.float32), axis=1)
    running = np.asarray(product, dtype=np.float64)
    running = running[running[:, -1] >= 1]
    ladder = Ladder.of(values[begins], values[ends], running)
    return [_middle(_quantile(ladder, share), draws.widen) for share in shares]


def of_mean(values: Sequence[float] | Floats) -> Interval | None:
    """Student's 95 % interval of the mean of independent values; None for fewer than two."""
    count = len(values)
    if count < 2:
        return None
    half = float(stdtrit(count - 1, 0.975) * np.std(values, ddof=1) / np.sqrt(count))
    mean = float(np.mean(values))
    # Nothing measured here can be negative.
    return max(0.0, mean - half), mean + half


def _bins(totals: Floats, weights: Floats) -> Ints:
    if len(totals) <= BINS:
        return np.arange(len(totals))
    places = (totals - weights / 2) / totals[-1] * BINS
    return np.asarray(np.minimum(places, BINS - 1), dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ladder:
    """Cumulated weights of bins, a row a draw, set end to end so that one search serves all draws.

    Bin j of draw b holds the weights up to `running[b, j]`, its values lie in lows[j]..highs[j].
    """

    lows: Floats
    highs: Floats
    running: Floats
    offsets: Floats
    steps: Floats

    @classmethod
    def of(cls, lows: Floats, highs: Floats, running: Floats) -> Self:
        """The ladder of these bins."""
        offsets = np.arange(len(running)) * (running[:, -1].max(initial=0.0) + 1.0)
        steps = (running + offsets[:, None]).ravel()
        return cls(lows=lows, highs=highs, running=running, offsets=offsets, steps=steps)


def _quantile(ladder: Ladder, share: float) -> Floats:
    """The percentile in every draw, as `quantile` takes it of one; even within a bin."""
    place = (ladder.running[:, -1] - 1) * share
    below = np.floor(place)
    low, high = (_ranked(ladder, rank) for rank in (below, below + 1))
    return low + (place - below) * (high - low)


def _ranked(ladder: Ladder, ranks: Floats) -> Floats:
    """The value of a rank, counted from 0, in every draw."""
    running = ladder.running
    draw, bins = np.arange(len(running)), running.shape[1]
    found = np.searchsorted(ladder.steps, ranks + ladder.offsets, side="right")
    index = np.clip(found - draw * bins, 0, bins - 1)
    before = np.where(index > 0, running[draw, index - 1], 0.0)
    width = np.maximum(running[draw, index] - before - 1, 1)
    along = np.clip((ranks - before) / width, 0.0, 1.0)
    low = ladder.lows[index]
    return np.asarray(low + along * (ladder.highs[index] - low))


def _middle(draws: Floats, widen: float) -> Interval:
    """The middle 95 % of the draws, its halves made wider."""
    low, middle, high = np.quantile(draws, [0.025, 0.5, 0.975]).tolist()
    # Nothing measured here can be negative.
    return max(0.0, middle - widen * (middle - low)), middle + widen * (high - middle)
