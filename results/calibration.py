"""An engine against itself: how much it varies from run to run, and what margins that allows."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from math import expm1, hypot, inf, isfinite, sqrt
from pathlib import Path
from typing import Any

import numpy as np

from results import document, facts
from results.contest import contest
from results.contrast import Drift, Series, contrast, quantile
from results.copies import counted_once
from results.direction import DIRECTIONS
from results.effect import Effect, RunValue, of_estimate
from results.effects import Noise, effects
from results.errors import InputError
from results.matching import Match, match
from results.side import Side
from results.verdict import Margin, judge

LABELINGS = 128
"""Ways to call one run of each pair base and the other one other; of more, so many are drawn.

All ways of eight pairs: which of the two is base in the first of them makes no difference.
"""

ALARMS = 0.05
"""The share of false alarms that a margin may have."""

FREEDOM = 5
"""With fewer degrees of freedom a spread is too unsure for a margin to be a multiple of it."""

HARDWARE = (
    *("environment.processor", "environment.cores", "environment.gpus.name"),
    *("environment.gpus.count", "environment.gpus.memory.total", "provenance"),
    *("deployment.engine.kind", "deployment.topology", "deployment.model"),
)
"""What a calibration holds for; beside it, for the workloads and loads that were run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricNoise:
    """How much one metric varies where nothing differs.

    `spread` is the standard deviation of a run's logarithm, with `freedom` degrees. `floor` is the
    relative difference that two single runs of that spread stay within in 95 of 100 cases, which
    is not made wider where few runs tell the spread: it makes margins. `error` is that of a
    whole comparison like the calibration's, `sessions` the part of it that sessions have.
    `false_alarms` is the share of better and worse, at `margin`, over all ways to name the runs of
    each pair; `smallest` the smallest margin with 5 % of them at most; `provable` the smallest at
    which an engine is found the same as itself in 80 of 100 such comparisons. `folders` says that
    what folders differ by is part of the spread.
    """

    metric: str
    runs: int
    spread: float
    freedom: float
    floor: float
    error: float
    sessions: float | None
    drift: Drift | None
    margin: float | None
    false_alarms: float | None
    smallest: float | None
    provable: float
    folders: bool = False

    @property
    def labelings(self) -> int:
        """Over how many ways to name the runs false alarms were counted; 0 where over none."""
        if self.false_alarms is None:
            return 0
        return LABELINGS if self.runs > LABELINGS.bit_length() else 2 ** (self.runs - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellNoise:
    """The noise of every metric in one cell; `asked` says of which workload and load.

    `copies` of its `runs` are the same as others to the last digit, and count once.
    """

    name: str
    asked: Mapping[str, Sequence[str]]
    metrics: tuple[MetricNoise, ...]
    copies: int = 0
    runs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What an engine against itself showed, and on what: only there it holds.

    `made` is the date as it was given; `stated` is the hardware and engine, by key.
    """

    made: str
    runs: tuple[str, ...]
    stated: Mapping[str, Sequence[str]]
    cells: tuple[CellNoise, ...]

    @property
    def provenance(self) -> str:
        """What it says of itself in one line."""
        return f"calibration of {self.made} from {', '.join(self.runs)}"


def calibrate(
    base: Side,
    other: Side,
    *,
    made: str,
    margins: Mapping[str, Margin] | None = None,
    explored: Margin,
    seed: int = 0,
) -> Calibration:
    """What the two sides, which must be one engine twice, tell of its noise.

    Raises InputError where they have no valid cell in common with two runs on each side.
    """
    cells = [_cell(base, one, margins or {}, explored, seed=seed) for one in match(base, other)[0]]
    if not any(cell.metrics for cell in cells):
        again = [f"; {counted_once(cell.copies, cell.runs)}" for cell in cells if cell.copies]
        raise InputError(
            f"{base.name} against {other.name} cannot calibrate anything: it takes a valid cell "
            f"that both have, with two runs or more on each side{''.join(again[:1])}: add repeats"
        )
    return Calibration(
        made=made,
        runs=tuple(dict.fromkeys(run.path.name for run in (*base.runs, *other.runs))),
        stated=_stated(base),
        cells=tuple(cell for cell in cells if cell.metrics),
    )


def _cell(
    base: Side, one: Match, margins: Mapping[str, Margin], explored: Margin, *, seed: int
) -> CellNoise:
    """The noise of a cell; of one that is not valid on both sides, none."""
    read = contest(one.base, one.other, one_engine=True)
    valid = all(read.sides) and all(run.summary.valid for side in read.sides for run in side)
    found = effects(read, {}, seed) if valid else ()
    noises = [_noise(each, margins.get(each.metric, explored), seed) for each in found]
    return CellNoise(
        name=one.name,
        asked=_asked(base, one),
        metrics=tuple(each for each in noises if each is not None),
        copies=sum(read.copies),
        runs=len(one.base) + len(one.other),
    )


def noise(calibration: Calibration, base: Side, cell: Match) -> tuple[Noise, dict[str, float]]:
    """What it knows of a cell: for each metric its noise, and its floor; nothing elsewhere.

    There is no floor where too few runs tell it: those metrics are `unsure`.
    """
    known = _known(calibration, base, cell)
    spreads = {one.metric: (one.spread, one.freedom, one.folders) for one in known}
    return spreads, {one.metric: one.floor for one in known if one.freedom >= FREEDOM}


def unsure(calibration: Calibration, base: Side, cell: Match) -> dict[str, float]:
    """The metrics of a cell that too few runs calibrated for a floor, with degrees of freedom."""
    known = _known(calibration, base, cell)
    return {one.metric: one.freedom for one in known if one.freedom < FREEDOM}


def _known(calibration: Calibration, base: Side, cell: Match) -> list[MetricNoise]:
    if mismatches(calibration, base):
        return []
    asked = _asked(base, cell)
    return [each for one in calibration.cells if one.asked == asked for each in one.metrics]


def mismatches(calibration: Calibration, base: Side) -> tuple[str, ...]:
    """In what the base is not what was calibrated, as finished sentences."""
    there = _stated(base)
    return tuple(
        f"the calibration was made with {key} {' '.join(calibration.stated.get(key, ['absent']))}, "
        f"and here it is {' '.join(there.get(key, ['absent']))}: calibrate here too"
        for key in HARDWARE
        if calibration.stated.get(key) != there.get(key)
    )


def detectable(noise: MetricNoise, runs: int) -> float:
    """The smallest relative difference that so many runs a side would show in 80 of 100 cases."""
    freedom = max(1, 2 * runs - 3)
    steps = quantile(freedom, 0.975) + quantile(freedom, 0.8)
    return expm1(steps * noise.spread * sqrt(2 / runs))


def write(path: Path, calibration: Calibration) -> None:
    """Keeps it as a JSON file."""
    document.write(path, asdict(calibration))


def read(path: Path) -> Calibration:
    """The calibration that a file holds. Raises InputError where it holds none."""
    content = document.read(path)
    try:
        cells = [
            CellNoise(**{**cell, "metrics": tuple(_metric(one) for one in cell["metrics"])})
            for cell in content["cells"]
        ]
        _words("runs", content["runs"])
        for where in (content["stated"], *(cell["asked"] for cell in content["cells"])):
            for key, values in where.items():
                _words(key, values)
        whole = {**content, "cells": tuple(cells), "runs": tuple(content["runs"])}
        return Calibration(**whole)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError(
            f"{path} is no calibration ({error}): write one with `paceline calibrate`"
        ) from error


def _words(key: str, values: Any) -> None:
    """Raises ValueError where these are no list of words."""
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError(f"{key} is {values!r}")


_ALWAYS = ("runs", "spread", "floor", "error", "provable")
_PERHAPS = ("freedom", "sessions", "margin", "false_alarms", "smallest")


def _metric(written: Mapping[str, Any]) -> MetricNoise:
    drift = Drift(**written["drift"]) if written["drift"] else None
    if type(written.get("folders", False)) is not bool:
        raise ValueError(f"folders of {written['metric']} is {written['folders']!r}")
    told = [(name, written[name]) for name in _ALWAYS]
    told += [(name, written[name]) for name in _PERHAPS if written[name] is not None]
    for name, value in told:
        if type(value) not in {int, float} or not isfinite(value) or value < 0:
            raise ValueError(f"{name} of {written['metric']} is {value!r}")
    for name, value in (written["drift"] or {}).items():
        if type(value) not in {int, float}:
            raise ValueError(f"{name} of the drift of {written['metric']} is {value!r}")
    freedom = inf if written["freedom"] is None else written["freedom"]
    return MetricNoise(**{**written, "drift": drift, "freedom": freedom})


def _stated(side: Side) -> dict[str, list[str]]:
    settings = (each for _, each in facts.settings(side))
    told = facts.joined([facts.environments(side.runs), *settings])
    return {key: sorted(told[key].values()) for key in HARDWARE if key in told}


def _asked(side: Side, cell: Match) -> dict[str, list[str]]:
    told = facts.joined(each for _, each in facts.settings(replace(side, points=cell.base)))
    kept = [key for key in sorted(told) if key.startswith(("workload.", "load."))]
    return {key: sorted(told[key].values()) for key in kept}


def _noise(effect: Effect, margin: Margin, seed: int) -> MetricNoise | None:
    """The noise that an effect without a cause tells; None where it has no error over runs."""
    if effect.error is None or effect.how == "one pair" or not effect.values or effect.base is None:
        return None
    over_runs = sqrt(max(0.0, effect.error**2 - (effect.sessions or 0.0) ** 2))
    spread = over_runs / hypot(*(count**-0.5 for count in effect.runs))
    freedom = effect.freedom or inf
    share = margin.of(effect.base, None)
    alarms, smallest = _alarms(effect, share, seed)
    return MetricNoise(
        metric=effect.metric,
        runs=min(effect.runs),
        spread=spread,
        freedom=freedom,
        floor=expm1(quantile(inf, 0.975) * spread * sqrt(2)),
        error=effect.error,
        sessions=effect.sessions,
        drift=effect.drift,
        margin=share,
        false_alarms=alarms,
        smallest=smallest,
        provable=expm1((quantile(freedom, 0.975) + quantile(freedom, 0.9)) * effect.error),
        folders=effect.folders is not None,
    )


def _alarms(effect: Effect, margin: float | None, seed: int) -> tuple[float | None, float | None]:
    """The share of false alarms at the margin, and the smallest margin with few enough of them."""
    if effect.folders:
        # A run of one folder that changes sides is in no folder of the other one.
        return None, None
    base, other = (_series(effect, side) for side in ("base", "other"))
    order = np.argsort(base.pairs), np.argsort(other.pairs)
    if not np.array_equal(base.pairs[order[0]], other.pairs[order[1]]):
        return None, None
    changes, alarms = [], 0
    labelings = _labelings(len(base.values), seed)
    for swapped in labelings:
        sides = _swapped(base, other, order, swapped)
        estimate = contrast(*sides)
        named = of_estimate(
            effect.metric, DIRECTIONS[effect.metric], estimate, (sides[0].values.mean(), 0.0)
        )
        if margin is not None:
            verdict = judge(named, Margin(relative=margin)).verdict
            alarms += verdict in {"better", "worse"}
        if named.worsening and named.p is not None and named.p < ALARMS:
            changes.append(abs(named.worsening[0]))
    few = int(ALARMS * len(labelings))
    over = sorted(changes, reverse=True)[few:]
    share = None if margin is None else alarms / len(labelings)
    return share, 2 * over[0] if over else 0.0


def _labelings(pairs: int, seed: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which pairs to turn round, a row a labeling: all ways, or LABELINGS of them drawn."""
    if 2 ** (pairs - 1) <= LABELINGS:
        return np.array([(False, *rest) for rest in product([False, True], repeat=pairs - 1)])
    return np.random.default_rng(seed).random((LABELINGS, pairs)) < 0.5


def _swapped(
    base: Series, other: Series, order: tuple[Any, Any], swapped: Any
) -> tuple[Series, Series]:
    def mixed(one: Any, two: Any) -> tuple[Any, Any]:
        one, two = one[order[0]], two[order[1]]
        return np.where(swapped, two, one), np.where(swapped, one, two)

    values = mixed(base.values, other.values)
    pairs = base.pairs[order[0]]
    if base.positions is None or other.positions is None:
        return Series(values=values[0], pairs=pairs), Series(values=values[1], pairs=pairs)
    places = mixed(base.positions, other.positions)
    return (
        Series(values=values[0], pairs=pairs, positions=places[0]),
        Series(values=values[1], pairs=pairs, positions=places[1]),
    )


def _series(effect: Effect, side: str) -> Series:
    """The runs of a side as the effect tells them."""
    runs = [one for one in effect.values if one.side == side]
    names = {
        name: number
        for number, name in enumerate(sorted({_workload(effect, one) for one in effect.values}))
    }
    folders = {one.folder for one in effect.values}
    return Series(
        values=np.log([one.value for one in runs]),
        pairs=np.array([names[_workload(effect, one)] for one in runs]),
        positions=np.array([float(one.position) for one in runs]) if len(folders) == 1 else None,
    )


def _workload(effect: Effect, run: RunValue) -> tuple[str, str]:
    """What pairs it: its workload, and its folder where both sides lie in the same folders."""
    folders = [
        {one.folder for one in effect.values if one.side == side} for side in ("base", "other")
    ]
    return run.folder if folders[0] == folders[1] else "", run.pairing
