"""A point's figures in few numbers: a row a series, and nothing that follows from another one."""

from collections.abc import Iterator, Mapping
from math import exp, log
from typing import Any

from results.direction import DIRECTIONS, REQUESTS
from results.figure import Figure, Unit
from results.rates import per_gpu
from results.run import Kept
from results.series import inverted

COLUMNS = ("geometric mean", "mean", "p50", "p90", "p95", "p99")
"""What the numbers of a series are, in order; absent ones are null, and missing at the end."""

SMALL = "n too small"

_Z = 1.959964
"""Half the width of a 95 % interval in standard errors."""

_SERIES = (*REQUESTS, "piece_gap", "itl")
_ALIKE = {
    "schedule_ttft": "ttft",
    "schedule_e2el": "e2el",
    "first_answer": "ttft",
    "piece_gap": "itl",
}
"""Series that are often the very same: where nothing waits, thinks, or shares a frame."""

_INVERTED = {"interactivity": "tpot", "norm_interactivity": "norm_e2el"}
_PER_GPU = ("output_rate", "total_rate", "batch_rate")

Row = list[float | list[float] | None]


def condensed(kept: Kept) -> dict[str, Any]:
    """The figures and means as plain values, to thirteen digits."""
    rows = {name: _row(kept, name) for name in _SERIES}
    left_out = {name for name, same in _ALIKE.items() if rows[name] == rows[same]}
    follows = _following(kept.figures)
    single = {
        name: _number(figure)
        for name, figure in kept.figures.items()
        if name not in follows and name.partition(".")[0] not in _SERIES
    }
    return {
        "series": {name: row for name, row in rows.items() if row and name not in left_out},
        "single": {name: number for name, number in single.items() if number is not None},
        "remarks": _remarks(kept.figures),
    }


def restored(written: Mapping[str, Any], gpus: int) -> Kept:
    """The figures and means that plain values stand for.

    Raises KeyError, TypeError or ValueError on others.
    """
    rows = dict(written["series"])
    for name, same in _ALIKE.items():
        if name not in rows and same in rows:
            rows[name] = rows[same]
    remarks = {name: why for why, names in written["remarks"].items() for name in names.split()}
    figures = {name: _figure(one, name, remarks) for name, one in written["single"].items()}
    means: dict[str, float] = {}
    for name, row in rows.items():
        geometric, *statistics = row + [None] * (len(COLUMNS) - len(row))
        if geometric is not None:
            means[name] = log(geometric)
        _check(name, statistics[1:])
        for column, one in zip(COLUMNS[1:], statistics, strict=True):
            figures[f"{name}.{column}"] = _figure(one, f"{name}.{column}", remarks)
    for name in remarks.keys() - figures.keys():
        figures[name] = _figure(None, name, remarks)
    return Kept(figures={**figures, **dict(_derived(figures, gpus))}, means=means)


def _check(name: str, percentiles: Row) -> None:
    """Raises ValueError where a higher percentile is less than a lower one."""
    told = [one[0] if isinstance(one, list) else one for one in percentiles if one is not None]
    if told != sorted(told):
        raise ValueError(f"{name}: percentiles {told} do not rise")


def _row(kept: Kept, name: str) -> Row:
    geometric = kept.means.get(name)
    row: Row = [None if geometric is None else _digits(exp(geometric))]
    for column in COLUMNS[1:]:
        figure = kept.figures.get(f"{name}.{column}")
        row.append(_number(figure) if figure else None)
    while row and row[-1] is None:
        row.pop()
    return row


def _number(figure: Figure) -> float | list[float] | None:
    """The value; with the standard error of its logarithm where it has one."""
    if figure.value is None:
        return None
    low, high = figure.low, figure.high
    if not low or not high or low < 0:
        return _digits(figure.value)
    return [_digits(figure.value), float(f"{log(high / low) / (2 * _Z):.3g}")]


def _figure(number: float | list[float] | None, name: str, remarks: Mapping[str, str]) -> Figure:
    known = DIRECTIONS.get(name) or DIRECTIONS.get(name.partition(".")[0])
    unit: Unit = known.unit if known else "count"
    if number is None:
        return Figure(value=None, unit=unit, n=0, reason=remarks.get(name, SMALL))
    value, error = number if isinstance(number, list) else (number, None)
    return Figure(
        value=value,
        unit=unit,
        n=0,
        low=None if error is None else value * exp(-_Z * error),
        high=None if error is None else value * exp(_Z * error),
        reason=remarks.get(name),
    )


def _derived(figures: Mapping[str, Figure], gpus: int) -> Iterator[tuple[str, Figure]]:
    for name, origin in _INVERTED.items():
        for statistic in ("p50", "p90"):
            if f"{origin}.{statistic}" in figures:
                yield f"{name}.{statistic}", inverted(figures[f"{origin}.{statistic}"])
    for name in _PER_GPU:
        if name in figures:
            yield f"{name}_per_gpu", per_gpu(figures[name], gpus)


def _following(figures: Mapping[str, Figure]) -> set[str]:
    """The names of figures that can be derived from others."""
    return {name for name, _ in _derived(figures, 1)}


def _remarks(figures: Mapping[str, Figure]) -> dict[str, str]:
    """What is to be known of figures, each reason once with the metrics that it is about."""
    told: dict[str, list[str]] = {}
    follows = _following(figures)
    for name, figure in figures.items():
        if figure.reason and not figure.reason.startswith(SMALL) and name not in follows:
            told.setdefault(figure.reason, []).append(name)
    return {reason: " ".join(sorted(names)) for reason, names in told.items()}


def _digits(value: float) -> float:
    """To thirteen digits: what is lost is less than the spread that counts as none."""
    return float(f"{value:.13g}")
