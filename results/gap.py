"""How far apart two accuracies are, question by question, and how sure that is."""

from dataclasses import dataclass, replace
from math import ceil, inf, sqrt
from typing import Literal

import numpy as np
from scipy.special import bdtr, stdtr

from results.columns import Floats, Ints
from results.contrast import LEVEL, quantile

Test = Literal["McNemar mid-p", "paired t", "clustered t"]

POWER = 0.8

FEW = 10
"""Where fewer questions changed, their spread alone does not say how many others might have."""

_HALVINGS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Two sides' scores on the same questions, each question one number a side.

    `change` is the mean of other less that of base. `error` is its paired standard error, of
    clusters where questions share one of so many `groups`; `unpaired` is what it would be of
    different questions. None of a single question or group, which has no interval either.
    `gained` questions have a better score in other, `lost` ones a worse one. `exact` is McNemar's
    exact p beside the mid-p. `detectable` is the smallest gap that such data show in 80 of 100
    cases, `provable` the smallest margin at which equal sides are shown no worse as often.

    Of `asked` questions and epochs, `answered` are on both sides. `flips` are the shares of them
    whose score changes from one run to the next of base, and of other; `alike` says how many have
    the same text on both sides, of how many. `amiss` counts what came to nothing, by what it came
    to, of base and other; None where a file does not keep it.
    """

    questions: int
    groups: int | None
    base: float
    other: float
    change: float
    gained: int
    lost: int
    test: Test
    error: float | None = None
    unpaired: float | None = None
    freedom: int | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    exact: float | None = None
    detectable: float | None = None
    provable: float | None = None
    asked: int = 0
    answered: int = 0
    flips: tuple[float | None, float | None] = (None, None)
    alike: tuple[int, int] | None = None
    amiss: tuple[tuple[str, int | None, int | None], ...] = ()

    @property
    def few(self) -> bool:
        """Whether so few questions changed that their number bounds the interval."""
        return self.gained + self.lost < FEW

    @property
    def in_errors(self) -> tuple[float | None, float | None]:
        """The gap in standard errors, paired and unpaired; None where there is no error."""
        paired, unpaired = (
            abs(self.change) / error if error else None for error in (self.error, self.unpaired)
        )
        return paired, unpaired


def gap(base: Floats, other: Floats, groups: Ints | None = None, least: float = 0.0) -> Gap:
    """The gap of scores from 0 to 1, one a question and side, epochs averaged before.

    `groups` says which questions share something, such as a passage. What is right or wrong is
    told apart by McNemar's mid-p, with Tango's score interval; all else by the paired t, over
    clusters where there are groups, and with no smaller an error than `least`.
    """
    changes = other - base
    clusters = None if groups is None else len(np.unique(groups))
    binary = groups is None and bool(np.isin((base, other), (0.0, 1.0)).all())
    alone = Gap(
        questions=len(changes),
        groups=clusters,
        base=float(base.mean()),
        other=float(other.mean()),
        change=float(changes.mean()),
        gained=int((changes > 0).sum()),
        lost=int((changes < 0).sum()),
        test="McNemar mid-p" if binary else "paired t" if groups is None else "clustered t",
    )
    if (len(changes) if clusters is None else clusters) < 2:
        return alone
    error, freedom = max(standard_error(changes, groups), least), _freedom(changes, groups)
    sides = float(base.var(ddof=1)) + float(other.var(ddof=1))
    sure = replace(alone, error=error, unpaired=sqrt(sides / len(changes)), freedom=freedom)
    return _seen(_by_counts(sure) if binary else _by_t(sure, changes, groups))


def standard_error(changes: Floats, groups: Ints | None = None) -> float:
    """That of the mean; over clusters the jackknife's, which stands clusters of unlike sizes."""
    if groups is None:
        return float(changes.std(ddof=1)) / sqrt(len(changes))
    _, place, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    sums = np.bincount(place, weights=changes - changes.mean()) / (1 - sizes / len(changes))
    return sqrt(float(sums @ sums) * (len(sums) - 1) / len(sums)) / len(changes)


def _freedom(changes: Floats, groups: Ints | None) -> int:
    """One less than the units: of clusters as many alike ones as they are worth (Kish 1965)."""
    if groups is None:
        return len(changes) - 1
    _, sizes = np.unique(groups, return_counts=True)
    return max(1, int(len(changes) ** 2 / float(sizes @ sizes) + 1e-9) - 1)


def swapped_error(runs: Floats, sides: Ints, questions: Ints, groups: Ints | None = None) -> float:
    """The error of the gap were every run of either side a run of one engine.

    `runs` has a row a run and a column an answer, NaN where there is none, `sides` says which rows
    are other's, and `questions` which question each column is of, from 0. It is McNemar's own
    error for any number of runs: a lucky run of few has no spread to tell how lucky it was.
    """
    apart = np.nan_to_num(runs - np.nanmean(runs, axis=0)) / np.bincount(questions)[questions]
    place = questions if groups is None else np.unique(groups, return_inverse=True)[1][questions]
    sums = np.array([np.bincount(place, weights=row) for row in apart])
    other = int(sides.sum())
    share = (1 / other + 1 / (len(runs) - other)) / (len(runs) - 1)
    return sqrt(float((sums**2).sum()) * share) / (int(questions.max()) + 1)


def _by_counts(sure: Gap) -> Gap:
    low, high = tango(sure.gained, sure.lost, sure.questions)
    p, exact = mcnemar(sure.gained, sure.lost)
    return replace(sure, low=low, high=high, p=p, exact=exact)


def _by_t(sure: Gap, changes: Floats, groups: Ints | None) -> Gap:
    """Student's interval; where hardly a question changed, never less than none leaves open."""
    freedom, error = sure.freedom or 1, sure.error or 0.0
    steps = quantile(freedom, (1 + LEVEL) / 2)
    moved = changes != 0 if groups is None else groups[changes != 0]
    few = (moved.sum() if groups is None else len(np.unique(moved))) < FEW
    half = max(steps * error, unseen(freedom + 1) if few else 0.0)
    p = 2 * float(stdtr(freedom, -abs(sure.change) * steps / half)) if half else 1.0
    low, high = max(-1.0, sure.change - half), min(1.0, sure.change + half)
    return replace(sure, low=low, high=high, p=p)


def _seen(sure: Gap) -> Gap:
    """With the smallest gaps to be seen: where hardly a question changed, by its interval."""
    freedom, error = sure.freedom or 1, sure.error or 0.0
    if sure.few:
        half = ((sure.high or 0.0) - (sure.low or 0.0)) / 2
        error = max(error, half / quantile(freedom, (1 + LEVEL) / 2))
    return replace(sure, detectable=detectable(error, freedom), provable=provable(error, freedom))


def mcnemar(gained: int, lost: int) -> tuple[float, float]:
    """McNemar's two-sided mid-p (Fagerland 2013), and the exact p, of the discordant pairs."""
    fewer, pairs = min(gained, lost), gained + lost
    if gained == lost:
        return 1.0, 1.0
    tail = float(bdtr(fewer, pairs, 0.5))
    at = tail - float(bdtr(fewer - 1, pairs, 0.5)) if fewer else tail
    return 2 * tail - at, min(1.0, 2 * tail)


def tango(gained: int, lost: int, questions: int) -> tuple[float, float]:
    """Tango's 95 % score interval of a paired difference of shares (Statistics in Medicine 1998).

    It inverts McNemar's test, and stays wide where no pair is discordant.
    """
    return -_bound(lost, gained, questions), _bound(gained, lost, questions)


def _bound(gained: int, lost: int, questions: int) -> float:
    """The upper end: the largest difference that is not rejected."""
    steps = quantile(inf, (1 + LEVEL) / 2)
    low, high = (gained - lost) / questions, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        beyond = _score(gained, lost, questions, middle) < -steps
        low, high = (low, middle) if beyond else (middle, high)
    return high


def _score(gained: int, lost: int, questions: int, change: float) -> float:
    """Tango's score statistic of a difference."""
    linear = -gained - lost + (2 * questions - gained + lost) * change
    constant = -lost * change * (1 - change)
    root = sqrt(max(0.0, linear**2 - 8 * questions * constant))
    share = (root - linear) / (4 * questions)
    variance = questions * (2 * share + change * (1 - change))
    apart = gained - lost - questions * change
    return apart / sqrt(variance) if variance > 0 else (-inf if apart < 0 else 0.0)


def unseen(units: int) -> float:
    """How many may change where none of so many did: the score interval's end, about 3.84 / n."""
    square = quantile(inf, (1 + LEVEL) / 2) ** 2
    return square / (units + square)


def wilson(share: float, count: float) -> tuple[float, float]:
    """Wilson's 95 % interval of a share of so many (Journal of the ASA 1927)."""
    steps = quantile(inf, (1 + LEVEL) / 2)
    whole = 1 + steps**2 / count
    middle = (share + steps**2 / (2 * count)) / whole
    half = steps * sqrt(share * (1 - share) / count + steps**2 / (4 * count**2)) / whole
    return max(0.0, middle - half), min(1.0, middle + half)


def detectable(error: float, freedom: float = inf) -> float:
    """The smallest gap found in 80 of 100 cases, two-sided: 2.80 errors of many questions."""
    return (quantile(freedom, (1 + LEVEL) / 2) + quantile(freedom, POWER)) * error


def provable(error: float, freedom: float = inf) -> float:
    """The smallest margin at which no loss is shown to be none in 80 of 100: 2.49 errors."""
    return (quantile(freedom, LEVEL) + quantile(freedom, POWER)) * error


def planned_error(questions: int, epochs: int, discordant: float) -> float:
    """The paired standard error to expect where that share of answers differs by chance."""
    return sqrt(discordant / (questions * epochs))


def epochs_needed(error: float, margin: float) -> int:
    """How many epochs prove the margin, of the error of one: a lower bound."""
    return max(1, ceil((provable(error) / margin) ** 2 - 1e-9))
