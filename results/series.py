"""What is measured once a request, or once a piece, and its mean and percentiles."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from results import interval
from results.columns import UNCOUNTED, Columns, Floats, Ints, Mask
from results.figure import Figure, Unit
from results.quantile import quantile, too_small

SHARES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Series:
    """Samples of one kind: a value, the request it belongs to, and how often it counts.

    `absent` is the reason where there are none; `caveat` is what to know of those there are.
    `beyond` is the share of all that is longer than anything seen; one entry, the last, stands for
    it with the longest time that it is known to have exceeded.
    """

    name: str
    unit: Unit
    values: Floats
    rows: Ints
    times: Floats
    absent: str
    caveat: str | None = None
    beyond: float = 0.0


def figures(series: Series, resample: interval.Resample) -> dict[str, Figure]:
    """Mean and percentiles with intervals, keyed `name.statistic`."""
    n = round(series.times.sum())
    keys = ["mean", *SHARES]
    if not n:
        nothing = Figure(value=None, unit=series.unit, n=0, reason=series.absent)
        return {f"{series.name}.{key}": nothing for key in keys}
    values, rows, times = _ascending(series, resample)
    totals = np.cumsum(times)
    doubt = resample.enough(rows)
    means = float(np.average(values, weights=times))
    numbers = [means, *(quantile(values, totals, share) for share in SHARES.values())]
    intervals: list[interval.Interval | tuple[None, None]] = [(None, None)] * len(keys)
    if doubt is None:
        intervals = [
            interval.of_ratio(resample, rows, values * times, times),
            *interval.of_quantiles(resample, rows, values, totals, list(SHARES.values())),
        ]
    maximum = f"{values[-1]:.4g} {series.unit}"
    result = {}
    for key, number, (low, high) in zip(keys, numbers, intervals, strict=True):
        small = too_small(n, SHARES.get(key, 0.5), maximum) or _unseen(series, key)
        shown = Figure(
            value=number,
            unit=series.unit,
            n=n,
            low=low,
            high=high,
            reason=series.caveat,
            doubt=doubt,
        )
        hidden = Figure(value=None, unit=series.unit, n=n, reason=small)
        result[f"{series.name}.{key}"] = hidden if small else shown
    return result


def _ascending(series: Series, resample: interval.Resample) -> tuple[Floats, Ints, Floats]:
    """The samples by value, their requests, and how often each counts."""
    # Without intervals nobody asks whose a sample is, and values alone sort in half the time.
    if not resample.asked and (series.times == 1).all():
        return np.sort(series.values), series.rows, series.times
    order = np.argsort(series.values, kind="stable")
    return series.values[order], series.rows[order], series.times[order]


def _unseen(series: Series, key: str) -> str | None:
    """Why a percentile cannot be known; None where it can."""
    if series.beyond and SHARES.get(key, 0.0) >= 1 - series.beyond:
        return f"{series.beyond:.0%} were still going on, for longer, when the window ended"
    return None


def inverted(figure: Figure) -> Figure:
    """Tokens a second for a user, from seconds a token: p90 is the slow tail."""
    if figure.value is None:
        # The maximum that an absent percentile tells is in seconds a token, and no speed.
        reason = (figure.reason or "").partition("; maximum")[0]
        closed = reason + ")" * (reason.count("(") - reason.count(")"))
        return replace(figure, unit="tok/s/user", reason=closed)
    if figure.value <= 0:
        reason = "all tokens came at one moment"
        return Figure(value=None, unit="tok/s/user", n=figure.n, reason=reason)
    return replace(
        figure,
        value=1 / figure.value,
        unit="tok/s/user",
        low=1 / figure.high if figure.high else None,
        high=1 / figure.low if figure.low else None,
    )


def series(rows: Columns) -> Iterator[Series]:
    """Every series, over requests that succeeded, and cut ones as far as they got."""
    none = "no request was sent" if not len(rows.ok) else "no request succeeded"
    if rows.counted.any():
        none = "no request that succeeded has it"
    length = rows.last - rows.sent
    ended = np.where(rows.ok, rows.last, np.nan)
    for name, reached, begun in (
        ("ttft", rows.first, rows.sent),
        ("first_answer", rows.first_answer, rows.sent),
        ("e2el", ended, rows.sent),
        ("schedule_ttft", rows.first, rows.planned),
        ("schedule_e2el", ended, rows.planned),
    ):
        yield _until(name, rows, reached, begun, none)
    yield _a_request("client_lag", "s", rows.lag, np.ones_like(rows.ok), none)
    with np.errstate(divide="ignore", invalid="ignore"):
        norm = np.where(rows.output > 0, length / rows.output, np.nan)
    yield _a_request("norm_e2el", "s/token", norm, rows.ok, none)
    yield _tpot(rows, none)
    yield _piece_gap(rows, none)
    yield _itl(rows, none)


def _until(name: str, rows: Columns, reached: Floats, begun: Floats, absent: str) -> Series:
    """The time from one moment to another, of requests that were cut before it as far as known."""
    seen = np.flatnonzero(rows.counted & ~np.isnan(reached - begun))
    short = np.flatnonzero(rows.cut & np.isnan(reached) & ~np.isnan(begun))
    values, bounds = (reached - begun)[seen], (rows.closed - begun)[short]
    if not len(seen) or not len(short):
        return Series(
            name=name, unit="s", values=values, rows=seen, times=np.ones(len(seen)), absent=absent
        )
    shares, beyond = weights(values, bounds)
    last = int(bounds.argmax())
    return Series(
        name=name,
        unit="s",
        values=np.append(values, bounds[last]),
        rows=np.append(seen, short[last]),
        times=np.append(shares, beyond) * len(seen),
        absent=absent,
        caveat=f"approximate: {len(short)} of {len(seen) + len(short)} requests were cut before "
        "it, and count as longer than they had lasted",
        beyond=beyond,
    )


def weights(seen: Floats, bounds: Floats) -> tuple[Floats, float]:
    """How much each seen time counts beside times known to be longer than their bounds.

    Also the weight that lies beyond all that was seen, 0 where the longest time is a seen one. The
    weights and what lies beyond add up to 1 (Kaplan and Meier 1958). Without it a window that cuts
    long requests would report the short ones only.
    """
    times = np.concatenate([seen, bounds])
    event = np.arange(len(times)) < len(seen)
    order = np.lexsort((~event, times))
    at_risk = len(times) - np.arange(len(times))
    ended = event[order]
    left = np.cumprod(np.where(ended, 1 - 1 / at_risk, 1.0))
    before = np.concatenate([[1.0], left[:-1]])
    jumps = np.empty(len(times))
    jumps[order] = np.where(ended, before / at_risk, 0.0)
    return jumps[: len(seen)], 0.0 if not len(times) or ended[-1] else float(left[-1])


def _a_request(
    name: str, unit: Unit, values: Floats, chosen: Mask, absent: str, caveat: str | None = None
) -> Series:
    rows = np.flatnonzero(chosen & ~np.isnan(values))
    return Series(
        name=name,
        unit=unit,
        values=values[rows],
        rows=rows,
        times=np.ones(len(rows)),
        absent=absent,
        caveat=caveat,
    )


def tpot(rows: Columns) -> Floats:
    """(last - first) / (output tokens - tokens in the first piece); NaN below two tokens."""
    pieces = rows.pieces
    count = np.bincount(pieces.row, minlength=len(rows.ok))
    first = np.zeros(len(rows.ok))
    first[pieces.row[pieces.ordinal == 0]] = pieces.tokens[pieces.ordinal == 0]
    later = rows.output - first
    fits = (count > 1) & (rows.output >= 2) & (later > 0)
    return np.where(fits, (rows.last - rows.first) / np.where(fits, later, 1.0), np.nan)


def _tpot(rows: Columns, absent: str) -> Series:
    values = tpot(rows)
    held = rows.counted & ~np.isnan(values)
    unknown = int((held & ~rows.pieces.known).sum())
    caveat = (
        f"approximate: {unknown} of {int(held.sum())} requests {UNCOUNTED} first piece, taken as 1"
    )
    if rows.ok.any():
        absent = "no request has two tokens in more than one piece"
    return _a_request("tpot", "s/token", values, rows.counted, absent, caveat if unknown else None)


def _piece_gap(rows: Columns, absent: str) -> Series:
    """Inter-chunk time: from piece to piece, whatever they hold."""
    pieces = rows.pieces
    later = rows.counted[pieces.row] & (pieces.ordinal > 0)
    return Series(
        name="piece_gap",
        unit="s",
        values=np.diff(pieces.stamp, prepend=0.0)[later],
        rows=pieces.row[later],
        times=np.ones(int(later.sum())),
        absent="no request has more than one piece" if rows.ok.any() else absent,
    )


def _itl(rows: Columns, absent: str) -> Series:
    """The gap before a piece divided by its tokens, once for each of them."""
    pieces = rows.pieces
    told = rows.counted & pieces.known
    holds = told[pieces.row] & (pieces.tokens > 0)
    row, stamp, tokens = pieces.row[holds], pieces.stamp[holds], pieces.tokens[holds]
    later = np.diff(row, prepend=-1) == 0
    gaps = np.diff(stamp, prepend=0.0)[later]
    left_out = int((rows.counted & ~pieces.known).sum())
    whole = int(rows.counted.sum())
    caveat = f"over the {int(told.sum())} of {whole} requests whose pieces are counted"
    if rows.ok.any():
        absent = "no request tells the tokens of more than one piece"
    return Series(
        name="itl",
        unit="s/token",
        values=gaps / tokens[later],
        rows=row[later],
        times=tokens[later],
        absent=absent,
        caveat=caveat if left_out else None,
    )
