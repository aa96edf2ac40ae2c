"""A run's figures over the requests that other runs answered too."""

from collections.abc import Mapping, Sequence

import numpy as np

from results.columns import columns
from results.direction import OF_REQUESTS, REQUESTS
from results.figure import Figure, Summary
from results.metrics import of_requests
from results.pairing import Keys, Requests, among, common
from results.run import RunPoint


def in_all(runs: Sequence[Sequence[Requests]]) -> Keys | None:
    """The keys that all runs of both sides have, those without any left off.

    None where a side has no run with requests.
    """
    told = [[sent for sent in side if len(sent)] for side in runs]
    return common([*told[0], *told[1]]) if all(told) else None


def shared(
    point: RunPoint, summary: Summary, sent: Requests, keys: Keys | None, alone: bool
) -> tuple[Mapping[str, Figure], bool]:
    """The figures of a run over the requests with these keys, and whether it has more than those.

    They are of direction.OF_REQUESTS; none where the run has none of the keys. With intervals
    where it stands `alone`.
    """
    if keys is None or not len(keys) or not len(sent):
        return {}, False
    # Every run that has requests has all of the keys, each once.
    rest = _count(summary, "requests") - _count(summary, "failed") - len(keys)
    if not rest and not point.kept:
        return {name: one for name, one in summary.figures.items() if name in OF_REQUESTS}, False
    mask = among(sent.keys, keys)
    order = np.argsort(sent.rows[mask])
    places, sessions = sent.rows[mask][order], sent.sessions[mask][order].view(np.int64)
    rows = columns(point.rows())
    chosen = np.zeros(len(rows.ok), dtype=np.bool_)
    chosen[places] = True
    window = (point.evidence.opened, point.evidence.closed) if point.evidence else None
    figures = of_requests(rows.of(chosen), sessions, window, point.cell.seed, intervals=alone)
    if point.kept:
        figures = {name: figure for name, figure in figures.items() if _excerpted(name)}
    return figures, rest > 0


def _count(summary: Summary, name: str) -> int:
    figure = summary.figures.get(name)
    return int(figure.value or 0) if figure else 0


def _excerpted(name: str) -> bool:
    """Whether the requests that a baseline file keeps tell the figure: they keep few pieces."""
    return name.partition(".")[0] in REQUESTS or "interactivity" in name
