"""Whether a replay by a profile delivered what the profile says, and where it departed from it."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from results.columns import Columns, number, of_phase, text
from results.evidence import Evidence, Protocol
from results.overflow import overflowed

FAR = 2.0
"""How many times more or less than in whole traces a median may be before it is remarked on."""


def shortfalls(table: pa.Table, rows: Columns, evidence: Evidence | None) -> Iterator[str]:
    """Why the window, whose rows these are, must not be used; nothing without a profile."""
    told = evidence.protocol if evidence else None
    if evidence is None or told is None:
        return
    yield from _overflows(table, rows, told)
    if told.coverage is None:
        return
    reached = evidence.opened + told.coverage * (evidence.closed - evidence.opened)
    several = rows.ok & (rows.output > 1)
    for name, moments in (("first token", rows.first[rows.ok]), ("ITL", rows.last[several])):
        latest = float(np.nanmax(moments)) if len(moments) else -np.inf
        if not latest >= reached:
            yield (
                f"the last {name} came before {told.coverage:.0%} of the window had passed: "
                "nothing was answered after it"
            )


def remarks(table: pa.Table, evidence: Evidence | None) -> Iterator[str]:
    """In what a replay was not as its profile says without being wrong."""
    told = evidence.protocol if evidence else None
    if told is None:
        return
    yield from told.departures
    found = realised(table)
    for name, kind in (("input", "prompts"), ("output", "answers")):
        intended = told.intended.get(name, {}).get("p50", np.nan)
        ratio = found[name]["p50"] / intended
        if ratio > FAR or ratio < 1 / FAR:
            size = "more than twice" if ratio > FAR else "less than half"
            yield (
                f"the median of the {kind} is {size} that of the whole traces: the window is short "
                "for them, or few of them are under way"
            )


def realised(table: pa.Table) -> dict[str, dict[str, float]]:
    """Quantiles of what the window sent: tokens of a request, and requests of a session."""
    window = of_phase(table)
    sent = ~np.isnan(number(window, "sent"))
    _, turns = np.unique(number(window, "tree")[sent], return_counts=True)
    values = {
        "input": number(window, "asked_input")[sent],
        "output": number(window, "asked_output")[sent],
        "turns": turns.astype(np.float64),
    }
    return {
        name: {
            f"p{share}": float(np.percentile(of, share)) if len(of) else np.nan
            for share in (10, 50, 90, 99)
        }
        for name, of in values.items()
    }


def _overflows(table: pa.Table, rows: Columns, told: Protocol) -> Iterator[str]:
    """Where too many requests did not fit the model's context."""
    failed = text(table, "reason")[rows.failed]
    over, ended = sum(overflowed(str(reason)) for reason in failed), int((~rows.cut).sum())
    if told.overflow_share is not None and over > told.overflow_share * ended:
        yield (
            f"{over} of {ended} requests did not fit the model's context, more than "
            f"{told.overflow_share:.0%}: their sessions ended early; drop such traces with "
            "context_limit"
        )
