"""What replays by a profile delivered, beside what the whole traces of the profile hold."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from reports.labels import headed, places
from reports.notation import number, percent
from reports.tables import Sheet, headings
from results.delivery import Delivery, Quantiles, delivery
from results.figure import Summary
from results.run import Run

ABSENT = "n/a"

_QUANTITIES = (("input", "prompt"), ("output", "answer"), ("turns", "requests a session"))
_SHARES = ("p10", "p50", "p90", "p99")
_NUMBERS = (
    *(f"{words} {share}" for _, words in _QUANTITIES for share in _SHARES),
    *("traces sent from", "last first token", "sent late p50", "sent late p99"),
    *("counted beyond asked p50", "blocks off the ceiling"),
)


def facts(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """The delivery of every point that was replayed by a profile, as plain values."""
    return [
        {"run": run.path.name, "point": point.cell.name, "arm": point.cell.arm, **asdict(found)}
        for run in runs
        for point in run.points
        if (found := delivery(point)) is not None
    ]


def sheet(told: Sequence[tuple[Summary, Delivery]]) -> Sheet:
    """A row for the whole traces of each workload, and one below it for each of its points."""
    rows: list[tuple[str, ...]] = []
    above: Mapping[str, Quantiles] | None = None
    for (summary, found), where in zip(told, places([one for one, _ in told]), strict=True):
        if found.intended != above:
            above = found.intended
            whole = (f"{found.profile}: whole traces", "", *_quantiles(above))
            rows.append((*whole, number(found.traces[1], 0), *[""] * 5))
        point = f"{where}, repeat {summary.cell.repeat}"
        rows.append((summary.cell.arm, point, *_quantiles(found.delivered), *_rest(found)))
    return Sheet(
        title=headed("Delivered beside whole traces", [one for one, _ in told]),
        columns=headings(("arm", "load"), _NUMBERS),
        rows=tuple(rows),
        notes=tuple(_notes(told)),
    )


def _quantiles(of: Mapping[str, Quantiles]) -> Iterator[str]:
    for name, _ in _QUANTITIES:
        for share in _SHARES:
            value = of.get(name, {}).get(share)
            yield ABSENT if value is None else number(value, 0)


def _rest(found: Delivery) -> Iterator[str]:
    """How much of the traces and of the window was reached, how late, and how far off the cache."""
    yield number(found.traces[0], 0)
    yield percent(found.covered.get("first token"))
    for share in ("p50", "p99"):
        late = found.lag.get(share)
        yield ABSENT if late is None else f"{number(late * 1e3, 1)} ms"
    drift = found.drift.get("p50")
    yield ABSENT if drift is None else number(drift, 0)
    reach = found.reach
    yield ABSENT if reach is None else f"{number(reach.mean, 2)}, most {number(reach.most, 2)}"


def _notes(told: Sequence[tuple[Summary, Delivery]]) -> Iterator[str]:
    """What the columns mean, where their names do not say it."""
    yield (
        "lengths in tokens, as the server counts them; whole traces: of one pass over all of them; "
        "requests a session: those in the window, so that fewer than in whole traces are no fault"
    )
    sizes = dict.fromkeys(found.reach.block for _, found in told if found.reach)
    if sizes:
        told_sizes = ", ".join(number(size, 0) for size in sizes)
        yield (
            "blocks off the ceiling: by how many blocks of the engine's cache "
            f"({told_sizes} tokens) a request found less or more than its session had sent before, "
            "on average and at most"
        )
