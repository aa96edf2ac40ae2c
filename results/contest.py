"""One cell on both sides: its runs read, and the effect of every metric."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from pathlib import Path

import numpy as np

from results.columns import Ints, columns
from results.effect import Matched
from results.figure import Summary
from results.metrics import summarise
from results.pairing import Pairs, Requests, distinct, joined, pair, requests
from results.run import RunPoint

RECURRING = 0.8
"""The share of a pair's requests that every pair must have for sessions to count as the same."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Entry:
    """A run of the cell: its figures, and the mean logarithm of what each request has.

    Runs with the same `workload` were sent the same: those of both sides are a pair.
    """

    point: RunPoint
    folder: str
    workload: str
    summary: Summary
    means: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Contest:
    """A cell's runs on both sides and the requests they share, pair by pair of workloads.

    `pairs` is keyed by workload, and so are the `sessions` of their requests. Where runs are
    `recurring`, every pair plays the same sessions, and `pairs` are of the requests that all of
    them have. `ordered` says that all runs stand in one order, `twins` that every request was
    answered alike.
    """

    base: tuple[Entry, ...]
    other: tuple[Entry, ...]
    pairs: Mapping[str, Pairs]
    sessions: Mapping[str, Ints]
    matched: Matched | None
    recurring: bool
    ordered: bool
    twins: bool

    @property
    def sides(self) -> tuple[tuple[Entry, ...], tuple[Entry, ...]]:
        """Base and other."""
        return self.base, self.other


def contest(base: Sequence[RunPoint], other: Sequence[RunPoint]) -> Contest:
    """The cell read, a workload at a time, so that only two runs are held at once."""
    entries: tuple[list[Entry], list[Entry]] = ([], [])
    pairs: dict[str, Pairs] = {}
    counts: list[tuple[int, int]] = []
    # Several runs say better than any one of them how sure a figure is.
    alone = min(len(base), len(other)) < 2
    named = _workloads(base, other)
    for name in dict.fromkeys(named.values()):
        both: list[Requests] = []
        for side, points in zip(entries, (base, other), strict=True):
            runs = [read(one, alone) for one in points if named[one.path] == name]
            side += [replace(entry, workload=name) for entry, _ in runs]
            if runs:
                both.append(joined([sent for _, sent in runs]))
        if len(both) == 2:
            pairs[name] = pair(*both)
            counts.append((len(both[0]), len(both[1])))
    folders = {point.path.parent for point in (*base, *other)}
    shared = _shared(pairs)
    kept = pairs if shared is None else shared
    return Contest(
        base=tuple(entries[0]),
        other=tuple(entries[1]),
        pairs=kept,
        sessions=_numbered(kept),
        matched=_matched(list(pairs.values()), counts),
        recurring=shared is not None,
        ordered=len(folders) == 1,
        twins=bool(pairs) and all(_alike(one) for one in pairs.values()),
    )


def _workloads(base: Sequence[RunPoint], other: Sequence[RunPoint]) -> dict[Path, str]:
    """What names the workload of each run, and so the runs that are pairs.

    Where both sides lie in the same folders, runs of one folder belong together.
    """
    folders = [{point.path.parent for point in side} for side in (base, other)]
    abreast = folders[0] == folders[1]
    return {
        point.path: f"{point.path.parent if abreast else ''}/{point.cell.pairing}"
        for point in (*base, *other)
    }


def read(point: RunPoint, alone: bool) -> tuple[Entry, Requests]:
    """A run's figures, with their intervals where it stands alone, and its requests."""
    table = point.rows()
    rows = columns(table)
    sent = requests(table, rows)
    means = {
        name: float(np.nanmean(logs))
        for name, logs in sent.values.items()
        if not np.isnan(logs).all()
    }
    means = dict(point.kept.means) if point.kept else means
    summary = summarise(point, table=table, rows=rows, intervals=alone)
    folder = point.path.parent.name
    entry = Entry(
        point=point, folder=folder, workload=point.cell.pairing, summary=summary, means=means
    )
    return entry, sent


def _matched(pairs: Sequence[Pairs], counts: Sequence[tuple[int, int]]) -> Matched | None:
    both = sum(one.count for one in pairs)
    alone = sum(sum(one.unmatched) for one in pairs)
    smaller = sum(min(count) for count in counts)
    if not smaller:
        return None
    sessions = np.concatenate([one.sessions for one in pairs])
    return Matched(
        pairs=both,
        unmatched=alone / (both + alone),
        lost=1 - both / smaller,
        sessions=len(distinct(sessions)),
    )


def _shared(pairs: Mapping[str, Pairs]) -> Mapping[str, Pairs] | None:
    """The requests that every pair has, where those are most of each: runs of the same sessions."""
    if len(pairs) < 2:
        return None
    first, *others = (distinct(one.shapes) for one in pairs.values())
    shared = reduce(partial(np.intersect1d, assume_unique=True), others, first)
    if not len(shared):
        return None
    chosen = {}
    for name, one in pairs.items():
        place = np.minimum(np.searchsorted(shared, one.shapes), len(shared) - 1)
        chosen[name] = shared[place] == one.shapes
    if any(mask.mean() < RECURRING for mask in chosen.values()):
        return None
    return {name: one.of(chosen[name]) for name, one in pairs.items()}


def _numbered(pairs: Mapping[str, Pairs]) -> dict[str, Ints]:
    """The session of every request as a number from 0, the same in every pair."""
    if not pairs:
        return {}
    names = distinct(np.concatenate([one.sessions for one in pairs.values()]))
    return {name: np.searchsorted(names, one.sessions) for name, one in pairs.items()}


def _alike(pairs: Pairs) -> bool:
    """Whether both sides answered the same requests, each in the same time."""
    return not any(pairs.unmatched) and not any(
        np.nan_to_num(changes).any() for changes in pairs.changes.values()
    )
