"""Whether a replay by a profile delivered what the profile says, and where it departed from it."""

from collections.abc import Iterator

import pyarrow as pa

from results.columns import Columns, text
from results.delivery import covered, realised, touched
from results.evidence import Evidence, Protocol
from results.overflow import overflowed

FAR = 2.0
"""How many times more or less than in whole traces a median may be before it is remarked on."""

ENOUGH = 30
"""Of so many traces on, a median that is so far off is not the sample's but the workload's."""


def shortfalls(table: pa.Table, rows: Columns, evidence: Evidence | None) -> Iterator[str]:
    """Why the window, whose rows these are, must not be used; nothing without a profile."""
    told = evidence.protocol if evidence else None
    if evidence is None or told is None:
        return
    yield from _overflows(table, rows, told)
    if told.published and touched(table) >= ENOUGH:
        for kind, size in _far(table, told):
            yield (
                f"the median of the {kind} is {size} that of the profile's traces: what was "
                f"delivered is not the workload of {told.profile}"
            )
    if told.coverage is None:
        return
    for name, share in covered(rows, evidence).items():
        if share is None or share < told.coverage:
            yield (
                f"the last {name} came before {told.coverage:.0%} of the window had passed: "
                "nothing was answered after it"
            )


def remarks(table: pa.Table, evidence: Evidence | None, repeat: int = 0) -> Iterator[str]:
    """In what a replay was not as its profile says without being wrong."""
    told = evidence.protocol if evidence else None
    if told is None:
        return
    yield from told.departures
    if told.seed is not None and repeat:
        yield (
            f"{told.profile} fixes the seed: all repeats send the same requests, and an interval "
            "over them says nothing of other sessions"
        )
    if told.unready:
        yield (
            f"{told.unready} sessions had not been made when a lane was free for them: the client "
            "held it back meanwhile"
        )
    if not told.published or touched(table) < ENOUGH:
        for kind, size in _far(table, told):
            yield (
                f"the median of the {kind} is {size} that of the whole traces: the window is short "
                "for them, or few of them are under way"
            )


def _far(table: pa.Table, told: Protocol) -> Iterator[tuple[str, str]]:
    """Of prompts and answers, those whose median is far from that of whole traces, and whither."""
    found = realised(table)
    for name, kind in (("input", "prompts"), ("output", "answers")):
        intended, median = told.intended.get(name, {}).get("p50"), found[name]["p50"]
        if intended and median is not None and not 1 / FAR <= median / intended <= FAR:
            yield kind, "more than twice" if median > intended else "less than half"


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
