"""One cell on both sides: its runs read, and the effect of every metric."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial as given
from functools import reduce
from pathlib import Path

import numpy as np
import pyarrow as pa

from results.columns import Ints, Mask, columns
from results.copies import Seen, copied
from results.direction import OF_REQUESTS, REQUESTS
from results.effect import Matched
from results.figure import Figure, Summary
from results.metrics import of_requests, summarise
from results.pairing import Keys, Pairs, Requests, among, common, distinct, joined, pair, requests
from results.run import RunPoint
from results.tokens import HELD, Tokens, drawn

RECURRING = 0.8
"""The share of a pair's requests that every pair must have for sessions to count as the same."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Entry:
    """A run of the cell: its figures, and the mean logarithm of what each request has.

    Runs with the same `workload` were sent the same: those of both sides are a pair. `shared` are
    the figures over the requests that all runs of the workload answered, where both sides have
    any, and `shared_means` the means; `partial` says that this run has more. `answers` are there
    where questions were asked.
    """

    point: RunPoint
    folder: str
    workload: str
    summary: Summary
    means: Mapping[str, float]
    tokens: Tokens
    shared: Mapping[str, Figure] = field(default_factory=dict)
    shared_means: Mapping[str, float] = field(default_factory=dict)
    partial: bool = False
    answers: pa.Table | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Contest:
    """A cell's runs on both sides and the requests they share, pair by pair of workloads.

    `pairs` is keyed by workload, and so are the `sessions` of their requests. Where runs are
    `recurring`, every pair plays the same sessions, and `pairs` are of the requests that all of
    them have. `ordered` says that all runs stand in one order, `twins` that every request was
    answered alike. `copies` are how many runs of base and other are left out, as they repeat one of
    their side to the last digit.
    """

    base: tuple[Entry, ...]
    other: tuple[Entry, ...]
    pairs: Mapping[str, Pairs]
    sessions: Mapping[str, Ints]
    matched: Matched | None
    recurring: bool
    ordered: bool
    twins: bool
    copies: tuple[int, int] = (0, 0)

    @property
    def sides(self) -> tuple[tuple[Entry, ...], tuple[Entry, ...]]:
        """Base and other."""
        return self.base, self.other


def contest(
    base: Sequence[RunPoint], other: Sequence[RunPoint], *, one_engine: bool = False
) -> Contest:
    """The cell read, a workload at a time, so that only two runs are held at once.

    A run that repeats another one of its side is left out; of `one_engine` twice, also one that
    repeats the same point of the other side.
    """
    # Several runs say better than any one of them how sure a figure is.
    alone = min(len(base), len(other)) < 2
    read_cell = _read(base, other, alone=alone, one_engine=one_engine)
    told = read_cell.sides
    if alone or min(map(len, told)) != 1:
        return read_cell
    kept = ([entry.point for entry in side] for side in told)
    return replace(_read(*kept, alone=True, one_engine=one_engine), copies=read_cell.copies)


def _read(
    base: Sequence[RunPoint], other: Sequence[RunPoint], *, alone: bool, one_engine: bool
) -> Contest:
    entries: tuple[list[Entry], list[Entry]] = ([], [])
    pairs: dict[str, Pairs] = {}
    counts: list[tuple[int, int]] = []
    seen: tuple[Seen, Seen] = ({}, {})
    points: Seen | None = {} if one_engine else None
    named = _workloads(base, other)
    for name in dict.fromkeys(named.values()):
        chosen = [[one for one in side if named[one.path] == name] for side in (base, other)]
        found, met = _met(name, chosen, seen, points, alone=alone)
        for side, new in zip(entries, found, strict=True):
            side.extend(new)
        if met:
            pairs[name] = met
            counts.append((met.count + met.unmatched[0], met.count + met.unmatched[1]))
    recurring = _shared(pairs)
    kept = pairs if recurring is None else recurring
    return Contest(
        base=tuple(entries[0]),
        other=tuple(entries[1]),
        pairs=kept,
        sessions=_numbered(kept),
        matched=_matched(list(pairs.values()), counts),
        recurring=recurring is not None,
        ordered=len({entry.point.path.parent for side in entries for entry in side}) == 1,
        twins=any(one.count for one in pairs.values()) and all(map(_alike, pairs.values())),
        copies=(len(base) - len(entries[0]), len(other) - len(entries[1])),
    )


def _met(
    name: str,
    chosen: Sequence[Sequence[RunPoint]],
    seen: tuple[Seen, Seen],
    points: Seen | None,
    *,
    alone: bool,
) -> tuple[list[list[Entry]], Pairs | None]:
    """The runs of one workload on both sides, and the requests that are on both."""
    both = []
    for side, known in zip(chosen, seen, strict=True):
        runs = [read(one, alone) for one in side]
        both.append([run for run in runs if not _repeated(run[0], known, points)])
    keys = _in_all([[sent for _, sent in runs] for runs in both])
    found = [[_in_place(entry, name, sent, keys, alone) for entry, sent in runs] for runs in both]
    if not all(both):
        return found, None
    base, other = (joined([sent for _, sent in runs]) for runs in both)
    return found, pair(base, other)


def _in_place(entry: Entry, workload: str, sent: Requests, keys: Keys | None, alone: bool) -> Entry:
    """The run among those of its workload, with its figures over the requests that all have."""
    if entry.answers is not None:
        # Answers are compared, and no time of any request.
        return replace(entry, workload=workload)
    figures, partial = _over_shared(entry.point, entry.summary, sent, keys, alone)
    means: Mapping[str, float] = {}
    if figures and keys is not None:
        means = _means(sent, among(sent.keys, keys)) if partial else entry.means
    return replace(entry, workload=workload, shared=figures, shared_means=means, partial=partial)


def _in_all(runs: Sequence[Sequence[Requests]]) -> Keys | None:
    """The keys that all runs of both sides have, those without any left off.

    None where a side has no run with requests.
    """
    told = [[sent for sent in side if len(sent)] for side in runs]
    return common([*told[0], *told[1]]) if all(told) else None


def _over_shared(
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
        # The requests that a baseline file keeps have few pieces, and do not tell every figure.
        figures = {
            name: figure
            for name, figure in figures.items()
            if name.partition(".")[0] in REQUESTS or "interactivity" in name
        }
    return figures, rest > 0


def _count(summary: Summary, name: str) -> int:
    figure = summary.figures.get(name)
    return int(figure.value or 0) if figure else 0


def _repeated(entry: Entry, seen: Seen, points: Seen | None) -> bool:
    """Whether the run is one that its side has already, or the same point of either side."""
    summary, cell = entry.summary, entry.point.cell
    if not summary.valid:
        return False
    if copied(seen, cell.pairing, summary.figures):
        return True
    return points is not None and copied(points, cell.id, summary.figures)


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
    means = point.kept.means if point.kept else _means(sent)
    summary = summarise(point, table=table, rows=rows, intervals=alone)
    folder = point.path.parent.name
    known = point.kept.tokens if point.kept else None
    entry = Entry(
        point=point,
        folder=folder,
        workload=point.cell.pairing,
        summary=summary,
        means=means,
        tokens=known or drawn(sent, HELD),
        answers=point.answers(),
    )
    return entry, sent


def _means(sent: Requests, chosen: Mask | None = None) -> dict[str, float]:
    """The mean logarithm of each metric over the chosen requests, or over all."""
    logs = ((name, each if chosen is None else each[chosen]) for name, each in sent.values.items())
    return {name: float(np.nanmean(each)) for name, each in logs if not np.isnan(each).all()}


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
    shared = reduce(given(np.intersect1d, assume_unique=True), others, first)
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
