"""What a second of the window brings: requests, tokens, goodput, and how much is under way."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from results import interval
from results.cell import Cell
from results.columns import UNTOLD, Columns, Floats, Ints, Mask
from results.figure import Figure, Unit
from results.series import tpot
from results.window import Window, amounts, at_once, decoding, inside, overlap, parts

_UNITS: tuple[tuple[str, Unit], ...] = (
    ("request_rate", "req/s"),
    ("output_rate", "tok/s"),
    ("input_rate", "tok/s"),
    ("computed_prefill_rate", "tok/s"),
    ("cached_rate", "tok/s"),
    ("total_rate", "tok/s"),
    ("output_rate_per_user", "tok/s/user"),
    ("output_rate_per_gpu", "tok/s/GPU"),
    ("total_rate_per_gpu", "tok/s/GPU"),
    ("goodput", "req/s"),
    ("goodput_share", "share"),
    ("in_flight.mean", "count"),
    ("in_flight.max", "count"),
    ("live.mean", "count"),
    ("live.max", "count"),
    ("decode_batch.mean", "count"),
    ("decode_batch.max", "count"),
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Flow:
    """Amounts that come at moments, and the requests that bring them."""

    moments: Floats
    amounts: Floats
    rows: Ints
    caveat: str | None = None
    missing: str | None = None


def figures(
    rows: Columns,
    cell: Cell,
    window: Window | None,
    resample: interval.Resample,
    *,
    primed: bool = False,
) -> dict[str, Figure]:
    """Every rate of the window; all absent, with the reason, where there is no window."""
    reason = absent(rows, window)
    if primed and not reason:
        reason = "primers, which do not count, took a part of the window's time"
    if window is None or reason:
        return {name: Figure(value=None, unit=unit, n=0, reason=reason) for name, unit in _UNITS}
    output, prompts, computed, cached = _flows(rows)
    result = {
        "request_rate": rate(_completed(rows, rows.ok), window, "req/s"),
        "output_rate": rate(output, window, "tok/s"),
        "input_rate": rate(prompts, window, "tok/s"),
        "computed_prefill_rate": rate(computed, window, "tok/s"),
        "cached_rate": rate(cached, window, "tok/s"),
        "total_rate": rate(_joined(output, prompts), window, "tok/s"),
        "output_rate_per_user": per_user(rows, window, resample),
    }
    for name in ("output_rate", "total_rate"):
        result[f"{name}_per_gpu"] = per_gpu(result[name], cell.gpus)
    return {
        **result,
        **_goodput(rows, cell.objectives, window, resample),
        **_at_once("in_flight", rows.sent, rows.ended, window),
        **_at_once("live", *_trees(rows), window),
        **_at_once("decode_batch", *decoding(rows), window),
    }


def absent(rows: Columns, window: Window | None) -> str | None:
    """Why there can be no rates; None where there can."""
    if not len(rows.ok):
        return "no request was sent"
    if not rows.counted.any():
        return "no request succeeded"
    if window is None:
        return "the point did not finish, so its window is unknown"
    return None if window[1] > window[0] else "the window has no length"


def rate(flow: Flow, window: Window, unit: Unit) -> Figure:
    """The amount a second inside the window, with Student's interval over its ten parts.

    Batch means (Law 2015, section 9.5): parts long against a request are nearly independent.
    """
    seconds = window[1] - window[0]
    chosen = inside(flow.moments, window)
    n = int(np.count_nonzero(np.bincount(flow.rows[chosen])))
    if flow.missing or not n:
        reason = flow.missing or "nothing of the kind fell inside the window"
        return Figure(value=None, unit=unit, n=0, reason=reason)
    sums = amounts(flow.moments, flow.amounts, window)
    low, high = interval.of_mean(sums * len(sums) / seconds) or (None, None)
    return Figure(
        value=float(sums.sum()) / seconds, unit=unit, n=n, low=low, high=high, reason=flow.caveat
    )


def per_gpu(figure: Figure, gpus: int) -> Figure:
    """The figure divided by the GPUs of the deployment."""
    value, low, high = (
        None if number is None else number / gpus
        for number in (figure.value, figure.low, figure.high)
    )
    return replace(figure, value=value, low=low, high=high, unit="tok/s/GPU")


def share(
    tops: Floats, bottoms: Floats, rows: Ints, resample: interval.Resample, unit: Unit = "share"
) -> Figure:
    """sum(tops) / sum(bottoms), with its interval over sessions."""
    if not bottoms.sum() > 0:
        return Figure(value=None, unit=unit, n=len(rows), reason="there is nothing to divide by")
    doubt = resample.enough(rows)
    low, high = (None, None) if doubt else interval.of_ratio(resample, rows, tops, bottoms)
    value = float(tops.sum() / bottoms.sum())
    return Figure(value=value, unit=unit, n=len(rows), low=low, high=high, doubt=doubt)


def _flows(rows: Columns) -> tuple[Flow, Flow, Flow, Flow]:
    """Output tokens; input tokens when their first token comes, and of them computed and cached."""
    pieces = rows.pieces
    counted = rows.counted[pieces.row]
    output = Flow(
        moments=pieces.stamp[counted],
        amounts=pieces.tokens[counted],
        rows=pieces.row[counted],
        caveat=rows.approximate,
        missing=UNTOLD if np.isnan(pieces.tokens[counted]).any() else None,
    )
    arrived = np.flatnonzero(rows.counted & ~np.isnan(rows.first))
    prompts = Flow(moments=rows.first[arrived], amounts=rows.input[arrived], rows=arrived)
    cached = rows.cached[arrived]
    untold = int(np.isnan(cached).sum())
    missing = f"{untold} of {len(arrived)} requests do not tell their cached tokens"
    hits = replace(prompts, amounts=cached, missing=missing if untold else None)
    return output, prompts, replace(hits, amounts=prompts.amounts - cached), hits


def _completed(rows: Columns, chosen: Mask) -> Flow:
    index = np.flatnonzero(chosen)
    return Flow(moments=rows.ended[index], amounts=np.ones(len(index)), rows=index)


def _joined(one: Flow, other: Flow) -> Flow:
    return Flow(
        moments=np.concatenate([one.moments, other.moments]),
        amounts=np.concatenate([one.amounts, other.amounts]),
        rows=np.concatenate([one.rows, other.rows]),
        caveat=one.caveat or other.caveat,
        missing=one.missing or other.missing,
    )


def per_user(rows: Columns, window: Window, resample: interval.Resample) -> Figure:
    """Tokens after each first piece for a second of decoding, both inside the window."""
    pieces = rows.pieces
    later = rows.counted[pieces.row] & (pieces.ordinal > 0) & inside(pieces.stamp, window)
    tokens = np.bincount(
        pieces.row[later], weights=pieces.tokens[later], minlength=len(rows.ok)
    ).astype(np.float64)
    if np.isnan(tokens).any():
        return Figure(value=None, unit="tok/s/user", n=0, reason=UNTOLD)
    index = np.flatnonzero(rows.counted & (rows.last > rows.first))
    seconds = overlap(rows.first[index], rows.last[index], window)
    speed = share(tokens[index], seconds, index, resample, "tok/s/user")
    return replace(speed, reason=speed.reason or rows.approximate)


def _goodput(
    rows: Columns, objectives: Mapping[str, Any], window: Window, resample: interval.Resample
) -> dict[str, Figure]:
    """Requests that keep every stated limit, a second and as a share of those that ended.

    One that was cut counts where it had already broken a limit.
    """
    stated = {name: limit for name, limit in objectives.items() if limit is not None}
    if not stated:
        reason = "no objectives are stated"
        return {
            "goodput": Figure(value=None, unit="req/s", n=0, reason=reason),
            "goodput_share": Figure(value=None, unit="share", n=0, reason=reason),
        }
    ended = np.flatnonzero(
        (rows.ok | rows.failed) & inside(rows.ended, window) | broken(rows, stated)
    )
    good = kept(rows, stated)[ended].astype(np.float64)
    moments = np.minimum(rows.ended[ended], window[1])
    flow = Flow(moments=moments, amounts=good, rows=ended)
    return {
        "goodput": rate(flow, window, "req/s"),
        "goodput_share": share(good, np.ones(len(ended)), ended, resample),
    }


def kept(rows: Columns, limits: Mapping[str, float]) -> Mask:
    """Which requests succeeded within all limits; a time a request does not have breaks none."""
    times = {
        "ttft": rows.first - rows.sent,
        "tpot": tpot(rows),
        "e2el": rows.last - rows.sent,
    }
    kept = rows.ok.copy()
    for name, limit in limits.items():
        kept &= ~(times[name] > limit)
    return kept


def broken(rows: Columns, limits: Mapping[str, float]) -> Mask:
    """Which requests were cut when they had already broken a limit."""
    reached = {"ttft": rows.first, "tpot": rows.sent, "e2el": np.full_like(rows.first, np.nan)}
    broken = np.zeros_like(rows.cut)
    for name, limit in limits.items():
        lasted = np.where(np.isnan(reached[name]), rows.closed, reached[name]) - rows.sent
        broken |= rows.cut & (lasted > limit)
    return broken


def _trees(rows: Columns) -> tuple[Floats, Floats]:
    """When each session began and ended: its first request was due, and its last one left."""
    _, place = np.unique(rows.tree, return_inverse=True)
    count = int(place.max()) + 1 if len(place) else 0
    begins, ends = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(begins, place, rows.planned)
    np.maximum.at(ends, place, rows.closed)
    return begins, ends


def _at_once(name: str, begins: Floats, ends: Floats, window: Window) -> dict[str, Figure]:
    """How many there are at once, over the window's time, and at most."""
    covering = overlap(begins, ends, window)
    n = int((covering > 0).sum())
    if not n:
        nothing = Figure(value=None, unit="count", n=0, reason="none lasted for any time")
        return {f"{name}.mean": nothing, f"{name}.max": nothing}
    spread = [overlap(begins, ends, part).sum() / (part[1] - part[0]) for part in parts(window)]
    low, high = interval.of_mean(np.asarray(spread)) or (None, None)
    mean = float(covering.sum() / (window[1] - window[0]))
    most = float(at_once(begins, ends, window)[1].max())
    return {
        f"{name}.mean": Figure(value=mean, unit="count", n=n, low=low, high=high),
        f"{name}.max": Figure(value=most, unit="count", n=n, doubt="a maximum has no interval"),
    }
