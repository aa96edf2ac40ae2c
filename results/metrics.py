"""From a point's rows to its summary; docs/metrics.md states every figure."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from results import batches, interval, machine, protocol, rates, scores, series, steps, validity
from results.cell import Cell
from results.columns import UNTOLD, Columns, Floats, Ints, columns, number, of_phase, text
from results.direction import OF_REQUESTS
from results.evidence import Evidence
from results.figure import Figure, Summary
from results.pool import pool
from results.ranks import by_rank
from results.run import Kept, RunPoint
from results.window import Window

MOST_REASONS, LONGEST_REASON = 5, 200

__all__ = ["pool", "summarise"]


def summarise(
    point: RunPoint,
    *,
    table: pa.Table | None = None,
    rows: Columns | None = None,
    intervals: bool = True,
) -> Summary:
    """All figures of a point and what speaks against them; never raises for want of rows.

    `table` is its rows where they have been read already, `rows` those of the window as arrays.
    Without `intervals` figures over sessions have none, and take a fraction of the time.
    """
    evidence = point.evidence
    if point.kept:
        return _remembered(point, point.kept)
    table = point.rows() if table is None else table
    rows = columns(table) if rows is None else rows
    window = (evidence.opened, evidence.closed) if evidence else None
    finished = point.status == "finished"
    samples = point.samples() if finished else None
    return Summary(
        cell=point.cell,
        status=point.status,
        reason=point.reason,
        repeats=1,
        provenance=evidence.observed.provenance if evidence else None,
        problems=_problems(point, table, rows, samples) if finished else (),
        figures=steps.figures(point.steps(), point.cell)
        if steps.is_stepwise(point.cell)
        else _counts(rows) | scores.figures(point.answers(), evidence)
        if scores.asks(point.cell)
        else figures(rows, point.cell, window, primed=_primed(table, window), intervals=intervals),
        ranks=by_rank(table),
        failures=_failures(table),
        remarks=(
            *_remarks(evidence),
            *protocol.remarks(table, evidence, point.cell.repeat),
            *machine.remarks(samples, evidence, _tokens(table)),
        ),
    )


def _remembered(point: RunPoint, kept: Kept) -> Summary:
    """That of a valid point that a baseline file keeps."""
    return Summary(
        cell=point.cell,
        status=point.status,
        reason=None,
        repeats=1,
        provenance=point.evidence.observed.provenance if point.evidence else None,
        problems=(),
        figures=steps.of_step(kept.figures, point.cell),
        remarks=tuple(_remarks(point.evidence)),
    )


def _remarks(evidence: Evidence | None) -> Iterator[str]:
    """What a server does otherwise than asked without being wrong, and what may be in its times."""
    if evidence and evidence.restless:
        yield evidence.restless
    yield from _changed(evidence)
    if evidence and (kept := evidence.observed.start.get("affinity")):
        yield f"affinity {evidence.observed.requested.get('affinity', 'none')}: {kept}"
    served = evidence.observed.features.get("model served") if evidence else None
    if served:
        yield f"answers name another model than asked for: {', '.join(served)}"


def _changed(evidence: Evidence | None) -> Iterator[str]:
    """That a build is not the stock one, where nobody says so: its version does not show it."""
    version = evidence.observed.configuration.get("version") if evidence else None
    changed = version.get("changed") if isinstance(version, dict) else None
    if evidence and changed and "variant" not in evidence.observed.requested:
        yield f"not as its wheel brought it, and no variant is stated: {', '.join(changed)}"


def _failures(table: pa.Table) -> tuple[tuple[str, int], ...]:
    """The commonest reasons of failed requests in the window."""
    window = of_phase(table)
    reasons = text(window, "reason")[text(window, "state") == "failed"]
    counts = Counter(str(reason or "no reason given")[:LONGEST_REASON] for reason in reasons)
    return tuple(counts.most_common(MOST_REASONS))


def _primed(table: pa.Table, window: Window | None) -> bool:
    """Whether primers ran while the window was open."""
    return window is not None and bool((columns(table, "primer").closed > window[0]).any())


def _problems(
    point: RunPoint, table: pa.Table, rows: Columns, samples: pa.Table | None
) -> tuple[str, ...]:
    found = validity.problems(table, point.cell, point.evidence, samples, rows)
    if not scores.asks(point.cell):
        return found
    return (*found, *scores.problems(point.answers(), point.cell, point.evidence))


def _tokens(table: pa.Table) -> float:
    """The output tokens of the window."""
    return float(np.nansum(number(of_phase(table), "output_tokens")))


def figures(
    rows: Columns,
    cell: Cell,
    window: Window | None,
    *,
    primed: bool = False,
    intervals: bool = True,
) -> Mapping[str, Figure]:
    """Every figure of the rows, keyed as in docs/metrics.md.

    There are no rates where the window is `primed`: its time is not that of its requests alone.
    """
    resample = interval.unasked()
    if intervals:
        resample = interval.resample(rows.tree, rows.sent, cell.seed)
    result = _times(rows, resample)
    result |= rates.figures(rows, cell, window, resample, primed=primed)
    result |= _caches(rows, resample)
    result |= _counts(rows) | {"failed_share": _failed(rows, resample)}
    if cell.load.get("kind") == "open":
        result |= _arrivals(rows, cell.load)
    if cell.workload.get("kind") == "batch":
        result |= batches.figures(rows, cell, resample)
    return result


def of_requests(
    rows: Columns, sessions: Ints, window: Window | None, seed: int, *, intervals: bool = True
) -> Mapping[str, Figure]:
    """The figures that say something of these requests, and nothing of the window's time.

    `sessions` names the session of each. They are those of direction.OF_REQUESTS.
    """
    resample = interval.resample(sessions, rows.sent, seed) if intervals else interval.unasked()
    result = _times(rows, resample) | _caches(rows, resample)
    if window is not None and window[1] > window[0] and len(rows.ok):
        result["output_rate_per_user"] = rates.per_user(rows, window, resample)
    return {name: figure for name, figure in result.items() if name in OF_REQUESTS}


def _times(rows: Columns, resample: interval.Resample) -> dict[str, Figure]:
    """What is measured once a request or a piece, and the speeds that follow."""
    result: dict[str, Figure] = {}
    for one in series.series(rows):
        result |= series.figures(one, resample)
    for statistic in ("p50", "p90"):
        result[f"interactivity.{statistic}"] = series.inverted(result[f"tpot.{statistic}"])
        normal = series.inverted(result[f"norm_e2el.{statistic}"])
        result[f"norm_interactivity.{statistic}"] = normal
    return result


def _failed(rows: Columns, resample: interval.Resample) -> Figure:
    """Of the requests that succeeded or failed, those that failed."""
    ended = np.flatnonzero(rows.ok | rows.failed)
    if not len(ended):
        return Figure(value=None, unit="share", n=0, reason="no request ended")
    failed = rows.failed[ended].astype(np.float64)
    if not failed.any():
        reason = "none failed, so nothing tells how much that varies"
        return Figure(value=0.0, unit="share", n=len(ended), doubt=reason)
    return rates.share(failed, np.ones(len(ended)), ended, resample)


def _counts(rows: Columns) -> dict[str, Figure]:
    n = len(rows.ok)
    if not n:
        return {
            **dict.fromkeys(
                ("requests", "sessions", "ok", "failed", "cut", "unsent"), _nothing("count", rows)
            ),
            **dict.fromkeys(("input_tokens", "output_tokens"), _nothing("tokens", rows)),
        }
    sessions = len(np.unique(rows.tree[~rows.unsent]))
    result = {
        "requests": Figure(value=n, unit="count", n=n),
        "sessions": Figure(value=sessions, unit="count", n=n),
    }
    states = {"ok": rows.ok, "failed": rows.failed, "cut": rows.cut & ~rows.unsent}
    for name, mask in {**states, "unsent": rows.unsent}.items():
        result[name] = Figure(value=int(mask.sum()), unit="count", n=n)
    for name, tokens in {"input_tokens": rows.input, "output_tokens": rows.output}.items():
        ok = int(rows.ok.sum())
        total = Figure(value=float(tokens[rows.ok].sum()), unit="tokens", n=ok)
        if np.isnan(tokens[rows.ok]).any():
            total = Figure(value=None, unit="tokens", n=0, reason=UNTOLD)
        result[name] = total if ok else _nothing("tokens", rows)
    return result


def _caches(rows: Columns, resample: interval.Resample) -> dict[str, Figure]:
    """Cached tokens, and those that could have been at best, as shares of the input."""
    if not rows.ok.any():
        return dict.fromkeys(("cache_hit", "cache_ceiling"), _nothing("share", rows))
    ceiling = _of_input(rows, rows.ceiling, resample)
    told = ~np.isnan(rows.cached)
    if not told[rows.ok].any():
        reason = "the server does not tell cached tokens"
        return {
            "cache_hit": Figure(value=None, unit="share", n=0, reason=reason),
            "cache_ceiling": ceiling,
        }
    return {"cache_hit": _of_input(rows, rows.cached, resample), "cache_ceiling": ceiling}


def _of_input(rows: Columns, tokens: Floats, resample: interval.Resample) -> Figure:
    index = np.flatnonzero(rows.ok & ~np.isnan(tokens))
    return rates.share(tokens[index], rows.input[index], index, resample)


def _arrivals(rows: Columns, load: Mapping[str, Any]) -> dict[str, Figure]:
    """The rate of sessions that was asked for, that was drawn, and that was sent."""
    result = {"target_rate": Figure(value=float(load["rate"]), unit="sessions/s", n=0)}
    for name, moments in {"planned_rate": rows.planned, "arrival_rate": rows.sent}.items():
        starts = _starts(rows, moments)
        n = len(starts)
        span = float(starts.max() - starts.min()) if n > 1 else 0.0
        result[name] = Figure(
            value=(n - 1) / span if span > 0 else None,
            unit="sessions/s",
            n=n,
            reason=None if span > 0 else "fewer than two sessions began",
            doubt="the schedule is fixed" if span > 0 else None,
        )
    return result


def _starts(rows: Columns, moments: Floats) -> Floats:
    """The first moment of every session that has one."""
    index = np.flatnonzero(~np.isnan(moments))
    trees, place = np.unique(rows.tree[index], return_inverse=True)
    starts = np.full(len(trees), np.inf)
    np.minimum.at(starts, place, moments[index])
    return starts


def _nothing(unit: Any, rows: Columns) -> Figure:
    reason = "no request succeeded" if len(rows.ok) else "no request was sent"
    return Figure(value=None, unit=unit, n=0, reason=reason)
