"""Repeats of one cell together: each run is one sample."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from results.figure import Figure, Summary
from results.interval import of_mean
from results.ranks import added
from results.scores import AMISS, HEADLINE

FEWEST_RUNS = 3
"""With two runs Student's factor is 12.7: the interval would say nothing."""

EQUAL = 1e-9
"""By no larger share do runs differ that differ in the order of their sums alone."""

COUNTS = frozenset(
    (
        *("answers", *AMISS),
        *("requests", "ok", "failed", "cut", "unsent", "sessions", "input_tokens", "output_tokens"),
    )
)
"""Figures that are added over runs, and not averaged."""


def pool(summaries: Sequence[Summary]) -> list[Summary]:
    """One summary a cell, in order of appearance.

    A figure is the mean over the runs that finished and have it, with Student's interval over
    those runs where they are three or more, and `n` in all; a count is the sum. A cell of one
    repeat keeps that run's own intervals.
    """
    cells: dict[str, list[Summary]] = {}
    for summary in summaries:
        cells.setdefault(summary.cell.cell, []).append(summary)
    return [_one(repeats) if len(repeats) > 1 else repeats[0] for repeats in cells.values()]


def _one(repeats: Sequence[Summary]) -> Summary:
    finished = [summary for summary in repeats if summary.status == "finished"]
    open_ends = [summary for summary in repeats if summary.status != "finished"]
    reasons = _told(
        (summary, f"{summary.status}: {summary.reason or 'it was interrupted'}")
        for summary in open_ends
    )
    kept = finished or repeats
    names = dict.fromkeys(name for summary in kept for name in summary.figures)
    return Summary(
        cell=repeats[0].cell,
        status=open_ends[0].status if open_ends else "finished",
        reason="; ".join(reasons) or None,
        repeats=len(repeats),
        provenance=next((one.provenance for one in repeats if one.provenance), None),
        problems=_told((summary, problem) for summary in repeats for problem in summary.problems),
        figures={
            name: _pooled(name, [one.figures[name] for one in kept if name in one.figures])
            for name in names
        },
        ranks=added(share for one in kept for share in one.ranks),
        failures=_failures(kept),
        remarks=tuple(dict.fromkeys(remark for one in kept for remark in one.remarks)),
    )


def _failures(summaries: Sequence[Summary]) -> tuple[tuple[str, int], ...]:
    counts: Counter[str] = Counter()
    for summary in summaries:
        counts.update(dict(summary.failures))
    return tuple(counts.most_common())


def _told(sentences: Iterable[tuple[Summary, str]]) -> tuple[str, ...]:
    """Each sentence once, with the repeats that it is true of."""
    repeats: dict[str, list[int]] = {}
    for summary, sentence in sentences:
        repeats.setdefault(sentence, []).append(summary.cell.repeat)
    return tuple(
        f"repeat{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}: {sentence}"
        for sentence, numbers in repeats.items()
    )


def _pooled(name: str, figures: Sequence[Figure]) -> Figure:
    held = [figure for figure in figures if figure.value is not None]
    n, runs = sum(figure.n for figure in held or figures), len(held)
    if not held:
        reason = f"in every run: {figures[0].reason}" if len(figures) > 1 else figures[0].reason
        return replace(figures[0], n=n, reason=reason)
    if len(figures) == 1:
        return figures[0]
    values = [figure.value for figure in held if figure.value is not None]
    caveat = next((figure.reason for figure in held if figure.reason), None)
    if runs < len(figures):
        missing = next(figure.reason for figure in figures if figure.value is None)
        caveat = f"from {runs} of {len(figures)} repeats: elsewhere {missing}"
    pooled = Figure(
        value=float(sum(values) if name in COUNTS else np.mean(values)),
        unit=held[0].unit,
        n=n,
        runs=runs,
        reason=caveat,
    )
    if name.partition(".")[0] == HEADLINE:
        # The same questions again: what is unsure of them is no surer for the repeats.
        ends = [(one.low, one.high) for one in held if one.low is not None and one.high is not None]
        if ends:
            low, high = np.mean(ends, axis=0)
            return replace(pooled, n=held[0].n, low=float(low), high=float(high))
    doubt = "a count has no interval" if name in COUNTS else _doubt(values)
    if doubt:
        return replace(pooled, doubt=doubt)
    low, high = of_mean(values) or (None, None)
    return replace(pooled, low=low, high=high)


def _doubt(values: Sequence[float]) -> str | None:
    """Why these runs give no interval; None where they do."""
    if len(values) < FEWEST_RUNS:
        return f"too few runs for an interval ({len(values)}, needs {FEWEST_RUNS})"
    if max(values) - min(values) <= EQUAL * max(map(abs, values)):
        return "the runs are identical, and say nothing of the spread between runs"
    return None
