"""Two sides contrasted over runs: how far apart their means are on the log scale, and how sure."""

from dataclasses import dataclass, replace
from functools import reduce
from math import expm1, inf, log1p, sqrt
from typing import Literal

import numpy as np
from scipy.special import fdtrc, stdtr, stdtrit

from results.columns import Floats, Ints

How = Literal[
    "paired requests",
    "paired questions",
    "pairs of runs",
    "runs with drift",
    "Welch",
    "one pair",
    "one pair, calibrated",
    "folders",
    "exact",
    "identical",
    "no spread",
    "none",
]
"""What an effect's interval rests on; docs/verdicts.md says which is taken when."""

LEVEL = 0.95
"""The level of every interval of a comparison."""

TWO_WAYS = 0.959
"""The level at which an interval is taken whose way was chosen by a look at the same runs.

So that both ways together cover at least 95 of 100, at any spread of the repeats' workloads:
simulated for three to five pairs.
"""

PAIRS = 6
"""From so many pairs on each pair is one number; below, their number is too dear to give away."""

CHOICE = 0.02
"""The level of the test whether repeats differ by more than runs do."""

NOTHING = 1e-9
"""A spread of logarithms below this is rounding."""

IDENTICAL = "the runs of each side are identical, so nothing tells how much runs vary"
STEADY = "every pair of runs differs by the very same, so nothing tells how much runs vary"
FEW = "with one run on a side, nothing tells how much runs vary"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """By how much a metric changed from one run to the next, relative, with its interval.

    `steps` is how many runs the last one came after the first; `freedom` are the interval's
    degrees of freedom.
    """

    slope: float
    low: float
    high: float
    steps: float = 1.0
    freedom: float = inf

    @property
    def whole(self) -> float:
        """The relative change over all runs."""
        return expm1(min(log1p(self.slope) * self.steps, 700.0))

    def sure(self, among: int = 1) -> bool:
        """Whether it leaves out no drift, where so many are looked at (Bonferroni)."""
        width = log1p(self.high) - log1p(self.low)
        wider = quantile(self.freedom, 1 - (1 - LEVEL) / 2 / max(1, among))
        half = width / 2 * wider / quantile(self.freedom, (1 + LEVEL) / 2)
        return abs(log1p(self.high) + log1p(self.low)) / 2 > half


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Series:
    """One number a run, on the log scale; `pairs` names the workload that each run was sent.

    `positions` are the places in the one order in which the runs of both sides were made.
    `folders` numbers the folder of each, where the sides lie in different ones.
    """

    values: Floats
    pairs: Ints
    positions: Floats | None = None
    folders: Ints | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A difference of logarithms, its standard error and degrees of freedom; error 0 is certain.

    `error` is None where there is none, and `reason` says why. `level` is that of the interval.
    `folders` are how many of each side tell how much folders differ; None where none do.
    """

    change: float
    how: How
    error: float | None = None
    freedom: float = inf
    level: float = LEVEL
    drift: Drift | None = None
    reason: str | None = None
    folders: tuple[int, int] | None = None

    @property
    def half(self) -> float:
        """Half the width of the interval; 0 where there is no error."""
        return quantile(self.freedom, (1 + self.level) / 2) * (self.error or 0.0)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The two-sided 95 % interval of the change."""
        if self.error is None:
            return None
        return self.change - self.half, self.change + self.half

    @property
    def p(self) -> float | None:
        """How often equal sides differ so much; below 0.05 where the interval leaves 0 out."""
        if self.error is None:
            return None
        if not self.error:
            return 0.0 if self.change else 1.0
        tail = 2 * float(stdtr(min(self.freedom, 1e9), -abs(self.change) / self.error))
        return min(1.0, tail * (1 - LEVEL) / (1 - self.level))

    @property
    def detectable(self) -> float | None:
        """The smallest relative difference found in 80 of 100 cases: (t.975 + t.8) x error."""
        if self.error is None:
            return None
        steps = quantile(self.freedom, (1 + self.level) / 2) + quantile(self.freedom, 0.8)
        return expm1(min(steps * self.error, 700.0))


def quantile(freedom: float, share: float) -> float:
    """That of Student's distribution."""
    return float(stdtrit(min(freedom, 1e9), share))


def contrast(base: Series, other: Series, *, twins: bool = False) -> Estimate:
    """The mean of other less that of base; docs/verdicts.md says which way is taken when.

    `twins` says that both sides gave the same answer to every request: then even one pair of runs
    that do not differ is no chance.
    """
    pairs = _pairs(base, other)
    fewest = min(len(base.values), len(other.values))
    paired = pairs is not None and np.abs(pairs.changes).max() <= NOTHING
    if (paired and (twins or fewest > 1)) or (fewest > 1 and _level(base, other)):
        return Estimate(change=0.0, how="identical", error=0.0)
    if fewest < 2:
        change = float(other.values.mean() - base.values.mean())
        return Estimate(change=change, how="none", reason=FEW)
    together = _with_drift(base, other) or _welch(base, other)
    if _level(base) and _level(other):
        return replace(together, error=None, how="no spread", reason=IDENTICAL, drift=None)
    if pairs is None or len(pairs.changes) < 3 or not pairs.by_turns:
        return _sound(together)
    alone = replace(_of_pairs(pairs.changes), drift=together.drift)
    if len(pairs.changes) >= PAIRS:
        return _sound(alone)
    chosen = alone if _repeats_differ(pairs) else together
    return _sound(replace(chosen, level=TWO_WAYS))


def across(estimate: Estimate, base: Series, other: Series) -> Estimate:
    """The estimate by the spread between folders, where that makes its interval wider.

    What runs of one folder share, as those of one night do, is no chance of each run: each folder
    is one number, and Student's t of both sides' folders, of one spread, is the least that is said.
    The estimate itself where both sides lie in the same folders, or in one each.
    """
    if base.folders is None or other.folders is None or estimate.how == "identical":
        return estimate
    sides = _of_folders(base, base.folders), _of_folders(other, other.folders)
    counts = len(sides[0][0]), len(sides[1][0])
    freedom = sum(counts) - 2
    if not freedom:
        return estimate
    spread = sum(float(means.var()) * len(means) for means, _ in sides) / freedom
    error = sqrt(spread * sum(float(shares @ shares) for _, shares in sides))
    told = replace(estimate, folders=counts)
    wide = replace(
        told, how="folders", error=error, freedom=freedom, level=LEVEL, drift=None, reason=None
    )
    return wide if error > NOTHING and wide.half > estimate.half else told


def _of_folders(side: Series, folders: Ints) -> tuple[Floats, Floats]:
    """The mean of each folder, over workloads that all ran where there are any, and its share."""
    runs = [folders == number for number in np.unique(folders)]
    shared = reduce(np.intersect1d, (side.pairs[mask] for mask in runs))
    chosen = np.isin(side.pairs, shared) if len(shared) else np.ones(len(side.pairs), np.bool_)
    means = np.array([side.values[mask & chosen].mean() for mask in runs])
    return means, np.array([mask.mean() for mask in runs])


def combined(run: Estimate, error: float, freedom: float, how: How) -> Estimate:
    """The estimate with another, independent error added in quadrature (Satterthwaite 1946)."""
    if run.error is None:
        return run
    whole = sqrt(run.error**2 + error**2)
    if not whole:
        return replace(run, how=how)
    shares = (run.error / whole) ** 4 / run.freedom + (error / whole) ** 4 / freedom
    return replace(run, error=whole, freedom=1 / shares if shares else inf, how=how)


def _level(*sides: Series) -> bool:
    """Whether all runs of the sides have one value, but for rounding."""
    values = np.concatenate([side.values for side in sides])
    return bool(np.ptp(values) <= NOTHING)


def _sound(estimate: Estimate) -> Estimate:
    """Without an error where nothing varies: that no run differs does not say that none would."""
    if estimate.error is None or estimate.error > NOTHING:
        return estimate
    return replace(estimate, error=None, how="no spread", reason=STEADY)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Pairs:
    """For each workload that both sides ran once: by how much they differ, their mean, and where.

    `places` are the middles of their positions, `apart` how far other came after base.
    """

    changes: Floats
    means: Floats
    places: Floats | None
    apart: Floats | None

    @property
    def by_turns(self) -> bool:
        """Whether neither side came first by and large, so that a drift cancels."""
        if self.apart is None:
            return True
        return bool(abs(self.apart.mean()) <= 0.5 * np.abs(self.apart).mean())


def _pairs(base: Series, other: Series) -> _Pairs | None:
    """The pairs, by the names of their workloads; None where the runs are no pairs."""
    one, two = np.argsort(base.pairs), np.argsort(other.pairs)
    names = base.pairs[one]
    if (np.diff(names) == 0).any() or not np.array_equal(names, other.pairs[two]):
        return None
    first, second = base.values[one], other.values[two]
    places = apart = None
    if base.positions is not None and other.positions is not None:
        before, after = base.positions[one], other.positions[two]
        places, apart = (before + after) / 2, after - before
    return _Pairs(changes=second - first, means=(first + second) / 2, places=places, apart=apart)


def _of_pairs(changes: Floats) -> Estimate:
    count = len(changes)
    return Estimate(
        change=float(changes.mean()),
        how="pairs of runs",
        error=float(changes.std(ddof=1)) / sqrt(count),
        freedom=count - 1,
    )


def _welch(base: Series, other: Series) -> Estimate:
    """Welch's t, which takes neither equal spreads nor any pairs for granted."""
    sizes = len(base.values), len(other.values)
    parts = [float(side.values.var(ddof=1)) / len(side.values) for side in (base, other)]
    below = sum(part**2 / (size - 1) for part, size in zip(parts, sizes, strict=True))
    return Estimate(
        change=float(other.values.mean() - base.values.mean()),
        how="Welch",
        error=sqrt(sum(parts)),
        freedom=sum(parts) ** 2 / below if below else inf,
    )


def _with_drift(base: Series, other: Series) -> Estimate | None:
    """Least squares of both sides and one drift from each position to the next.

    None where the runs stand in no one order, or are too few to tell a drift.
    """
    if base.positions is None or other.positions is None:
        return None
    sizes = len(base.values), len(other.values)
    freedom = sum(sizes) - 3
    middles = float(base.positions.mean()), float(other.positions.mean())
    ends = np.concatenate([base.positions, other.positions])
    places = np.concatenate([base.positions - middles[0], other.positions - middles[1]])
    spread = float(places @ places)
    if freedom < 1 or not spread:
        return None
    means = float(base.values.mean()), float(other.values.mean())
    values = np.concatenate([base.values - means[0], other.values - means[1]])
    slope, lag = float(places @ values) / spread, middles[1] - middles[0]
    rest = values - slope * places
    scale = float(rest @ rest) / freedom
    return Estimate(
        change=means[1] - means[0] - slope * lag,
        how="runs with drift",
        error=sqrt(scale * (1 / sizes[0] + 1 / sizes[1] + lag**2 / spread)),
        freedom=freedom,
        drift=_drift(slope, sqrt(scale / spread), freedom, ends),
    )


def _drift(slope: float, error: float, freedom: int, places: Floats) -> Drift:
    half = quantile(freedom, (1 + LEVEL) / 2) * error
    return Drift(
        slope=expm1(slope),
        low=expm1(slope - half),
        high=expm1(slope + half),
        steps=float(np.ptp(places)),
        freedom=freedom,
    )


def _repeats_differ(pairs: _Pairs) -> bool:
    """Whether the means of pairs, less a drift, vary by more than the runs inside them (F test)."""
    inside = float(pairs.changes.var(ddof=1)) / 2
    if inside <= NOTHING**2:
        return True
    rest, freedom = pairs.means - pairs.means.mean(), len(pairs.means) - 1
    if pairs.places is not None:
        places = pairs.places - pairs.places.mean()
        rest = rest - places * float(places @ rest) / float(places @ places)
        freedom -= 1
    between = 2 * float(rest @ rest) / freedom
    return bool(fdtrc(freedom, len(pairs.means) - 1, between / inside) < CHOICE)
