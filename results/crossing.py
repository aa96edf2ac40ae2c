"""Where two sides change places: one is ahead at a low load, the other at a high one."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import log
from typing import Any

import numpy as np
import orjson

from results.columns import Floats
from results.comparison import CellComparison, Comparison
from results.effect import Effect
from results.verdict import Judgement

METRICS = ("output_rate_per_gpu", "ttft", "tpot", "interactivity.p90")
"""The figures in which topologies are chosen."""

BATCH_METRICS = ("batch_rate_per_gpu", "batch_tpot")
"""Those of a fixed batch, which is timed as a whole."""

_AHEAD = {"better": 1, "worse": -1}

_LEVELS = {"closed": "concurrency", "open": "rate", "recorded": "speed"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """Who is ahead in a metric at each load of a series, and where that changes.

    `ahead` says for each of `loads`, in ascending order, whether the verdict is that other is
    better (1), or worse (-1), or neither (0). `overtakes` is who is ahead after the change, in the
    same numbers, and `between` the loads of the verdicts that it lies between; 0 and None where
    nobody is seen to overtake. Were the change a straight line between loads, both would be equal
    at `at`, and by their 95 % intervals nobody would be ahead from `low` to `high`. `load` says
    what the loads are.
    """

    experiment: str
    arms: tuple[str, str]
    load: str
    metric: str
    loads: tuple[float, ...]
    ahead: tuple[int, ...]
    overtakes: int = 0
    between: tuple[float, float] | None = None
    at: float | None = None
    low: float | None = None
    high: float | None = None


def crossings(comparison: Comparison) -> Iterator[Crossing]:
    """For every workload under several loads, and each metric: every change of places, or none.

    Straight lines are of the logarithm of the ratio, and of the ends of its interval, over that of
    the load.
    """
    series: dict[bytes, list[tuple[float, CellComparison]]] = {}
    for cell in comparison.cells:
        name, level = _level(cell)
        if level:
            rest = _without(cell.workload, name), _without(cell.load, name)
            told = (cell.experiment, cell.arms, name, cell.load.get("kind"), *rest)
            key = orjson.dumps(told, option=orjson.OPT_SORT_KEYS)
            series.setdefault(key, []).append((level, cell))
    for cells in series.values():
        for metric in BATCH_METRICS if cells[0][1].workload["kind"] == "batch" else METRICS:
            yield from _of(metric, sorted(cells, key=lambda one: one[0]))


def _level(cell: CellComparison) -> tuple[str, float]:
    """What is varied, and its value: the size of a batch, or the concurrency, rate or speed."""
    if cell.workload.get("kind") == "batch":
        return "requests", float(cell.workload["requests"])
    name = _LEVELS.get(cell.load.get("kind", ""), "")
    return name, float(cell.load.get(name) or 0)


def _without(settings: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key != name}


def _of(metric: str, cells: Sequence[tuple[float, CellComparison]]) -> Iterator[Crossing]:
    judged = [(level, _judged(cell, metric)) for level, cell in cells]
    found = [(level, judgement) for level, judgement in judged if judgement]
    if len(found) < 2:
        return
    loads = [level for level, _ in found]
    places, bands = np.log(loads), np.array([_band(one.effect) for _, one in found])
    ahead = [_AHEAD.get(one.verdict, 0) for _, one in found]
    plain = Crossing(
        experiment=cells[0][1].experiment,
        arms=cells[0][1].arms,
        load=_level(cells[0][1])[0],
        metric=metric,
        loads=tuple(loads),
        ahead=tuple(ahead),
    )
    clear = np.flatnonzero(ahead)
    turns = [(a, b) for a, b in pairwise(clear) if ahead[a] != ahead[b]]
    for first, last in turns:
        between = slice(first, last + 1)
        # Whoever is ahead in the end rises from below nothing to above it.
        rising = bands[between] if ahead[last] > 0 else -bands[between, ::-1]
        low, at, high = _zeros(places[between], rising)
        span = (loads[first], loads[last])
        yield replace(plain, overtakes=ahead[last], between=span, low=low, at=at, high=high)
    if not turns:
        yield plain


def _judged(cell: CellComparison, metric: str) -> Judgement | None:
    """What is said of a metric where there is a change with an interval."""
    for one in cell.judgements:
        if one.effect.metric == metric and one.verdict != "invalid" and one.effect.low:
            return one
    return None


def _band(effect: Effect) -> tuple[float, float, float]:
    """The logarithm of the ratio between the ends of its interval; above 0 other is better."""
    assert effect.low
    assert effect.ratio
    assert effect.high
    low, ratio, high = log(effect.low), log(effect.ratio), log(effect.high)
    return (low, ratio, high) if effect.better == "higher" else (-high, -ratio, -low)


def _zeros(places: Floats, rising: Floats) -> list[float]:
    """The loads between which nobody is ahead, and in the middle that of equality."""
    columns = ((2, 0), (1, 0), (0, -1))
    return [float(np.exp(_zero(places, rising[:, column])[which])) for column, which in columns]


def _zero(places: Floats, values: Floats) -> Floats:
    """Where straight lines between values rise above nothing."""
    here = np.flatnonzero((values[:-1] <= 0) & (values[1:] > 0))
    share = -values[here] / (values[here + 1] - values[here])
    return places[here] + share * (places[here + 1] - places[here])
