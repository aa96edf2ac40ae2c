"""Whether both sides did the same work, and what must not be said where they did not."""

from collections.abc import Sequence
from dataclasses import dataclass

from results.contest import Contest, Entry
from results.direction import OF_REQUESTS
from results.figure import Figure
from results.pairing import MOST_LOST

SHARED = "over the requests that both sides answered"
MIXED = "more than 5 % of the requests are on one side only, and here each side counts its own"

Sides = Sequence[Sequence[Entry]]


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
