"""The effect of every metric in a cell: request by request, or a figure a run."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, hypot, inf, log, log1p
from pathlib import Path
from typing import Any, Literal

import numpy as np

from results import accuracy
from results.columns import Ints
from results.contest import Contest, Entry
from results.contrast import Estimate, How, Series, across, combined, contrast, quantile
from results.direction import DIRECTIONS, REQUESTS, in_points
from results.effect import Effect, RunValue, of_estimate
from results.failures import by_chance, chance, counts, differ, difference
from results.figure import Figure
from results.pairing import MOST_LOST, Singles
from results.spread import FEWEST, MOST, Spread, over_sessions
from results.work import Compared, compared, doubts, further, unlike, unshared

FAR = 700.0
"""The logarithm of a ratio to 0, which is beyond all bounds and stays a number."""

ONE_FOLDER = (
    "the calibration tells nothing of how much folders differ, and these runs lie in several: "
    "calibrate from three folders or more, or add folders to a side"
)

Known = tuple[float, float, bool]

Noise = Mapping[str, Known]
"""For each metric how much the logarithm of a run varies, its degrees of freedom, and whether what
folders differ by is part of it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Kept:
    """What both sides have of a pair's requests: both means, and each one's change and session."""

    workload: str
    means: tuple[float, float]
    changes: Singles
    sessions: Ints


def effects(
    cell: Contest, noise: Noise, seed: int, wanted: Collection[str] = ()
) -> Iterator[Effect]:
    """The effect of every metric that some run has, and of those wanted whatever they have.

    Where questions were asked it is their scores that count, and no time of any request.
    """
    if accuracy.asks(cell):
        yield from accuracy.effects(cell)
        return
    failures, unlike_work = differ(cell), doubts(cell)
    for metric in DIRECTIONS:
        if metric not in wanted and not _told(cell, metric):
            continue
        if in_points(metric):
            yield _in_points(cell, metric)
            continue
        known = noise.get(metric)
        if metric in REQUESTS:
            effect = _of_requests(cell, metric, known, seed)
        else:
            effect = _of_runs(cell, metric, known)
        if effect.how == "one pair, calibrated" and known and not known[2] and _folders(cell):
            effect = replace(effect, doubt=ONE_FOLDER, doubted_either_way=True)
        doubt, either_way = (
            (failures, False) if failures else unlike_work.get(metric, (None, False))
        )
        if effect.doubt is None:
            effect = replace(effect, doubt=doubt, doubted_either_way=either_way)
        yield effect


def _told(cell: Contest, metric: str) -> bool:
    """Whether any run has the metric."""
    entries = [entry for side in cell.sides for entry in side]
    if metric in REQUESTS:
        return any(metric in entry.means for entry in entries)
    figures = [entry.summary.figures.get(metric) for entry in entries]
    return any(figure is not None and figure.value is not None for figure in figures)


def _of_requests(cell: Contest, metric: str, noise: Known | None, seed: int) -> Effect:
    """The geometric mean ratio over the requests that both sides answered."""
    if cell.matched is None or cell.matched.lost > MOST_LOST:
        return _unpaired(cell, metric)
    kept = _kept(cell, metric)
    if not kept:
        return nothing(cell, metric, "no request that both sides answered has it")
    entries = [_first(side, [one.workload for one in kept]) for side in cell.sides]
    base, other = (
        _series(cell, entries[side], [one.means[side] for one in kept]) for side in (0, 1)
    )
    estimate = contrast(base, other, twins=cell.twins)
    spread = None
    if estimate.how != "identical" and (cell.recurring or estimate.error is None):
        changes = np.concatenate([one.changes for one in kept])
        sessions = np.concatenate([one.sessions for one in kept])
        spread = over_sessions(changes, sessions, seed)
    counts = len(kept), len(kept)
    wide = across(estimate, *_run_by_run(cell, metric, kept))
    settled = _settled(wide, spread, noise, counts, "paired requests")
    effect = _from_runs(metric, entries, (base, other), settled, _selection(cell))
    over = spread.error if spread and wide.error is not None else None
    base_runs, other_runs = (_sent(side, kept) for side in cell.sides)
    told = replace(effect, runs=(base_runs, other_runs), matched=cell.matched, sessions=over)
    return replace(told, alone=_alone(cell, kept))


def _run_by_run(cell: Contest, metric: str, kept: Sequence[Kept]) -> tuple[Series, Series]:
    """The mean of each run that was sent these workloads, over requests that all of them answered.

    Over all that each one answered where they have none in common.
    """
    names = {one.workload for one in kept}
    sides = [
        [one for one in side if one.workload in names and metric in one.means]
        for side in cell.sides
    ]
    shared = [[one for one in side if metric in one.shared_means] for side in sides]
    base, other = (
        _series(cell, side, [one.shared_means[metric] for one in side])
        if all(shared)
        else _series(cell, side, [one.means[metric] for one in side])
        for side in (shared if all(shared) else sides)
    )
    return base, other


def _sent(side: Sequence[Entry], kept: Sequence[Kept]) -> int:
    """How many runs of the side were sent a workload of which requests are compared."""
    names = {one.workload for one in kept}
    return sum(entry.workload in names for entry in side)


def _selection(cell: Contest) -> str | None:
    """What to know of the requests that were compared."""
    if cell.matched and cell.matched.unmatched > MOST_LOST:
        return "only one side got to some of the requests, and those are not compared"
    return None


def _alone(cell: Contest, kept: Sequence[Kept]) -> int | None:
    """How many sessions every run plays, where they are too few to tell how others would do."""
    sessions = len(np.unique(np.concatenate([one.sessions for one in kept])))
    return sessions if cell.recurring and sessions < FEWEST else None


def nothing(cell: Contest, metric: str, reason: str | None) -> Effect:
    """The effect of a metric of which nothing is known, and why."""
    return Effect(
        metric=metric,
        unit=DIRECTIONS[metric].unit,
        better=DIRECTIONS[metric].better,
        how="none",
        runs=(len(cell.base), len(cell.other)),
        matched=cell.matched if metric in REQUESTS else None,
        reason=reason,
    )


def _unpaired(cell: Contest, metric: str) -> Effect:
    """The same of all requests of each run: where too few of them are on both sides."""
    told = [[entry for entry in side if metric in entry.means] for side in cell.sides]
    if any(len(has) < len(side) or not has for has, side in zip(told, cell.sides, strict=True)):
        return nothing(cell, metric, "a run has no request with it")
    base, other = (
        _series(cell, entries, [entry.means[metric] for entry in entries]) for entries in told
    )
    reason = unshared(cell)
    doubt = unlike(cell) if cell.matched is None else reason
    estimate = across(contrast(base, other), base, other)
    effect = _from_runs(metric, cell.sides, (base, other), estimate, reason)
    return replace(effect, matched=cell.matched, **_doubt(cell, doubt))


def _doubt(cell: Contest, doubt: str | None) -> dict[str, Any]:
    """What an effect says of itself where it is of other work on each side."""
    return {"doubt": doubt, "doubted_either_way": doubt is not None and further(cell)}


def _of_runs(cell: Contest, metric: str, noise: Known | None) -> Effect:
    """The ratio of one figure a run."""
    told = compared(cell, metric)
    if absent := _absent(told.figures):
        return nothing(cell, metric, absent)
    effect = _with_zeros(cell, metric, told) or _ratio(cell, metric, told, noise)
    return replace(effect, **_doubt(cell, told.doubt))


def _ratio(cell: Contest, metric: str, told: Compared, noise: Known | None) -> Effect:
    base, other = (
        _series(cell, entries, [log(value) for value in side])
        for entries, side in zip(told.sides, told.values, strict=True)
    )
    estimate = across(contrast(base, other, twins=cell.twins), base, other)
    inside = [_inside(side[0]) for side in told.figures]
    spread = None
    if all(inside):
        spread = Spread(error=hypot(*(one or 0.0 for one in inside)), sessions=MOST)
    counts = len(base.values), len(other.values)
    settled = _settled(estimate, spread if estimate.error is None else None, noise, counts)
    own = next(
        (figure.reason for side in told.figures for figure in side if figure and figure.reason),
        None,
    )
    caveats = "; ".join(filter(None, [own, told.reason])) or None
    return _from_runs(metric, told.sides, (base, other), settled, caveats)


def _with_zeros(cell: Contest, metric: str, told: Compared) -> Effect | None:
    """The effect where runs have a figure of 0, to which there is no ratio; None where none has."""
    base, other = told.values
    if min(*base, *other) > 0:
        return None
    effect = nothing(cell, metric, told.reason)
    if not any((*base, *other)) and (cell.twins or len(base) + len(other) > 2):
        return replace(effect, how="identical", base=0.0, other=0.0, ratio=1.0, low=1.0, high=1.0)
    ends = _to_or_from_zero(base, other)
    if ends is None or DIRECTIONS[metric].better == "lower" or min(len(base), len(other)) < 2:
        return replace(effect, reason="it is 0 in a run, and a ratio to 0 says nothing")
    if metric.startswith("goodput") and by_chance(cell, "goodput_share"):
        return replace(effect, reason="it is 0 on one side, and as little as chance on the other")
    zero, some = ("other", "base") if any(base) else ("base", "other")
    reason = f"it is 0 in every run of {zero}, and in none of {some}"
    return replace(
        effect,
        base=float(np.mean(base)),
        other=float(np.mean(other)),
        ratio=ends,
        low=ends,
        high=ends,
        reason="; ".join(filter(None, [reason, told.reason])),
    )


def _to_or_from_zero(base: Sequence[float], other: Sequence[float]) -> float | None:
    """The ratio where one side has only zeros and the other none."""
    if not any(other) and min(base) > 0:
        return exp(-FAR)
    return exp(FAR) if not any(base) and min(other) > 0 else None


def _in_points(cell: Contest, metric: str) -> Effect:
    """The difference of one share a run, as 1 and the difference."""
    told = compared(cell, metric)
    if absent := _absent(told.figures):
        return nothing(cell, metric, absent)
    base, other = (
        _series(cell, entries, side) for entries, side in zip(told.sides, told.values, strict=True)
    )
    estimate = across(contrast(base, other, twins=cell.twins), base, other)
    effect = _from_runs(metric, told.sides, (base, other), estimate, None)
    ends = estimate.interval
    if estimate.how == "no spread":
        # Where no run is chance, the requests that failed may be.
        failed = [counts(side) for side in told.sides]
        ends = difference(*failed)
        effect = replace(effect, how="exact", p=chance(*failed), reason=None)
    low, high = (max(exp(-FAR), 1 + end) for end in ends) if ends else (None, None)
    return replace(
        effect,
        base=float(base.values.mean()),
        other=float(other.values.mean()),
        ratio=max(exp(-FAR), 1 + estimate.change),
        low=low,
        high=high,
        detectable=None if estimate.detectable is None else log1p(estimate.detectable),
        values=(),
        drift=None,
    )


def _absent(figures: Sequence[Sequence[Figure | None]]) -> str | None:
    """Why the figure cannot be compared; None where every run has it."""
    flat = [figure for side in figures for figure in side]
    missing = [figure for figure in flat if figure is None or figure.value is None]
    if not missing:
        return None
    reason = next((one.reason for one in missing if one and one.reason), "nothing tells it")
    return reason if len(missing) == len(flat) else f"{len(missing)} of {len(flat)} runs: {reason}"


def _settled(
    estimate: Estimate,
    spread: Spread | None,
    noise: Known | None,
    counts: tuple[int, int],
    how: How | None = None,
) -> Estimate:
    """The estimate with what sessions add to it; of one pair, with what a calibration knows."""
    if estimate.how == "identical" or (estimate.how == "no spread" and noise is None):
        return estimate
    if estimate.error is not None:
        run = replace(estimate, how=how or estimate.how)
        return combined(run, spread.error, spread.freedom, run.how) if spread else run
    if spread is None:
        return estimate
    alone = replace(estimate, error=spread.error, freedom=spread.freedom, how="one pair")
    if noise is None:
        return alone
    run_error = noise[0] * hypot(*(count**-0.5 for count in counts))
    known = combined(alone, run_error, noise[1], "one pair, calibrated")
    return replace(known, reason=None)


def _from_runs(
    metric: str,
    entries: Sequence[Sequence[Entry]],
    sides: tuple[Series, Series],
    estimate: Estimate,
    reason: str | None,
) -> Effect:
    base, other = sides
    sentences = [one for one in (estimate.reason, reason) if one]
    return of_estimate(
        metric,
        DIRECTIONS[metric],
        estimate,
        (float(base.values.mean()), float(other.values.mean())),
        runs=(len(base.values), len(other.values)),
        values=(*_values("base", entries[0], base), *_values("other", entries[1], other)),
        reason="; ".join(sentences) or None,
    )


def _series(cell: Contest, entries: Sequence[Entry], logs: Sequence[float]) -> Series:
    names = {name: number for number, name in enumerate(_workloads(cell))}
    folders = _folders(cell)
    positions = np.array([float(entry.point.cell.position) for entry in entries])
    return Series(
        values=np.array(logs),
        pairs=np.array([names[entry.workload] for entry in entries]),
        positions=positions if cell.ordered else None,
        folders=np.array([folders[entry.point.path.parent] for entry in entries])
        if folders
        else None,
    )


def _folders(cell: Contest) -> dict[Path, int]:
    """The folders of all runs as numbers; none where both sides lie in the same ones."""
    base, other = ({entry.point.path.parent: 0 for entry in side} for side in cell.sides)
    if base.keys() == other.keys():
        return {}
    return {path: number for number, path in enumerate(base | other)}


def _workloads(cell: Contest) -> list[str]:
    return list(dict.fromkeys(one.workload for side in cell.sides for one in side))


def _first(side: Sequence[Entry], names: Sequence[str]) -> list[Entry]:
    """For each workload the first run of the side that was sent it."""
    return [next(one for one in side if one.workload == name) for name in names]


def _kept(cell: Contest, metric: str) -> list[Kept]:
    """What both sides have of the metric, pair by pair."""
    kept = []
    for name, one in cell.pairs.items():
        base, changes, sessions = one.base[metric], one.changes[metric], cell.sessions[name]
        held = ~np.isnan(changes)
        if not held.any():
            continue
        if not held.all():
            base, changes, sessions = base[held], changes[held], sessions[held]
        before = float(base.mean(dtype=np.float64))
        after = before + float(changes.mean(dtype=np.float64))
        kept.append(Kept(workload=name, means=(before, after), changes=changes, sessions=sessions))
    return kept


def _values(
    side: Literal["base", "other"], entries: Sequence[Entry], series: Series
) -> Iterator[RunValue]:
    for entry, value in zip(entries, series.values, strict=True):
        cell = entry.point.cell
        yield RunValue(
            side=side,
            folder=entry.folder,
            pairing=cell.pairing,
            repeat=cell.repeat,
            position=cell.position,
            value=exp(value),
        )


def _inside(figure: Figure | None) -> float | None:
    """The standard error of the logarithm that the run itself tells."""
    if figure is None or not figure.low or not figure.high:
        return None
    return log(figure.high / figure.low) / (2 * quantile(inf, 0.975))
