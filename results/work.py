"""Whether both sides did the same work, and what must not be said where they did not."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, expm1, sqrt

import numpy as np

from results.contest import Contest, Entry
from results.contrast import quantile
from results.direction import OF_REQUESTS, REQUESTS
from results.figure import Figure
from results.pairing import MOST_LOST, Held

SHARED = "over the requests that both sides answered"
MIXED = "more than 5 % of the requests are on one side only, and here each side counts its own"

AS_LONG = 0.01
"""By what share answers may be shorter or longer on one side and still be the same work."""

CHANCE = 0.01
"""Answers whose lengths chance sets so far apart less often than this are of unlike length."""

Sides = Sequence[Sequence[Entry]]

Doubt = tuple[str, bool]
"""Why nothing good is to be said of other, and whether nothing bad either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The runs over which a figure is compared, and the figure of each.

    `reason` is what to know of it, `doubt` why other must not be called better or the same.
    """

    sides: Sides
    figures: Sequence[Sequence[Figure | None]]
    reason: str | None = None
    doubt: str | None = None

    @property
    def values(self) -> list[list[float]]:
        """The figures' values, of which none may be absent."""
        values = [[one.value if one else None for one in side] for side in self.figures]
        return [[value for value in side if value is not None] for side in values]


def compared(cell: Contest, metric: str) -> Compared:
    """What both sides have of a figure: of requests, as far as possible, over the same ones."""
    if metric not in OF_REQUESTS:
        reason = _mixed(cell)
        # A share of other requests is of other work; of a rate, what it is a rate of is plain.
        return _whole(cell, metric, reason, reason if metric == "goodput_share" else None)
    apart = unlike(cell)
    lost = cell.matched is not None and cell.matched.lost > MOST_LOST
    told = [[entry for entry in side if metric in entry.shared] for side in cell.sides]
    every = all(len(has) == len(side) for has, side in zip(told, cell.sides, strict=True))
    if lost or not all(told) or not (every or apart):
        doubt = unshared(cell) if lost else apart
        return _whole(cell, metric, doubt, doubt)
    partial = any(entry.partial for side in told for entry in side)
    runs = "" if every else ", of the runs that have any"
    return Compared(
        sides=told,
        figures=[[entry.shared[metric] for entry in side] for side in told],
        reason=f"{SHARED}{runs}" if partial or runs else None,
    )


def doubts(cell: Contest) -> dict[str, Doubt]:
    """What stands in the way of figures of requests, by metric: waits without end, less to do."""
    if cell.matched is None:
        return {}
    length, waits = _length(cell), next(iter(cell.pairs.values())).held[0]
    held: dict[str, Doubt | None] = {}
    found: dict[str, Doubt] = {}
    for metric in (*REQUESTS, *OF_REQUESTS - {"cache_hit"}):
        name = metric.partition(".")[0]
        # What is told a token of a request is known where the request has ended.
        until = name if name in waits else "e2el"
        if until not in held:
            held[until] = _unanswered(cell, until)
        told = held[until] or (length if name in {"e2el", "schedule_e2el"} else None)
        if told:
            found[metric] = told
    return found


def _unanswered(cell: Contest, until: str) -> Doubt | None:
    """That more than MOST_LOST were cut on one side after they had waited longer than on the other.

    Longer is also than that other took times the change that is seen: what is slower by so much is
    only late.
    """
    pairs = cell.pairs.values()
    changes = np.concatenate([one.changes[until] for one in pairs])
    held = ~np.isnan(changes)
    change = float(changes[held].mean(dtype=np.float64)) if held.any() else 0.0
    base = _too_long(cell, "base", [one.held[0][until] for one in pairs], -change)
    other = _too_long(cell, "other", [one.held[1][until] for one in pairs], change)
    told = "; ".join(filter(None, [base, other]))
    return (told, base is not None) if told else None


def _too_long(cell: Contest, side: str, held: Sequence[Held], change: float) -> str | None:
    over = np.concatenate([one.over for one in held]) > max(0.0, change)
    count, compared = int(over.sum()), cell.matched.pairs if cell.matched else 0
    if count <= MOST_LOST * (compared + count):
        return None
    longest = exp(np.concatenate([one.waited for one in held])[over].max())
    return (
        f"{count:,} requests beside the {compared:,} compared were cut on {side} when they had "
        f"waited longer than the other side took, {longest:,.3g} s at most"
    )


def _length(cell: Contest) -> Doubt | None:
    """That answers to the same requests are shorter or longer on other, by more than chance."""
    told = np.concatenate([one.longer for one in cell.pairs.values()]).astype(np.float64)
    told = told[~np.isnan(told)]
    if not len(told):
        return None
    change = float(told.mean())
    error = float(told.std(ddof=1)) / sqrt(len(told)) if len(told) > 1 else 0.0
    chance = error * quantile(max(1, len(told) - 1), 1 - CHANCE / 2)
    if abs(expm1(change)) <= AS_LONG or abs(change) <= chance:
        return None
    by = f"{100 * abs(expm1(change)):,.3g} % {'longer' if change > 0 else 'shorter'}"
    return f"answers to the same requests are {by} on other, which is not the same work", change > 0


def unshared(cell: Contest) -> str:
    """Why all requests of each run are compared, and not those that both sides have."""
    few = "no request is" if cell.matched is None else "too few requests are"
    kept = [entry.point.kept for side in cell.sides for entry in side if entry.point.kept]
    why = f"{few} on both sides"
    if kept and all(one.rows is None for one in kept):
        why = "the baseline file keeps no single requests"
    return f"{why}, so all requests of each run are compared, whatever they are"


def unlike(cell: Contest) -> str | None:
    """That one side answered more requests in a run; None where they are as many, to 5 %."""
    counts = [_answered(side) for side in cell.sides]
    base, other = counts
    if base is None or other is None or abs(base - other) <= MOST_LOST * max(base, other):
        return None
    return (
        f"a run of base answered {base:,.0f} requests and one of other {other:,.0f}, which is not "
        "the same work"
    )


def further(cell: Contest) -> bool:
    """Whether other answered more, so that it looks slower for the work that only it got to."""
    base, other = (_answered(side) or 0.0 for side in cell.sides)
    return other > (1 + MOST_LOST) * base


def _answered(side: Sequence[Entry]) -> float | None:
    """How many requests a run of the side answered in the mean."""
    figures = [entry.summary.figures.get("ok") for entry in side]
    values = [one.value for one in figures if one is not None and one.value is not None]
    return sum(values) / len(values) if values else None


def _mixed(cell: Contest) -> str | None:
    """What to know of what the window brought, where that were other requests on each side."""
    if cell.matched is None:
        return unlike(cell)
    return MIXED if cell.matched.unmatched > MOST_LOST else None


def _whole(cell: Contest, metric: str, reason: str | None, doubt: str | None) -> Compared:
    figures = [[entry.summary.figures.get(metric) for entry in side] for side in cell.sides]
    return Compared(sides=cell.sides, figures=figures, reason=reason, doubt=doubt)
