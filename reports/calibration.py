"""A calibration as text: how much an engine differs from itself, and which margins that allows."""

from collections.abc import Callable, Iterator, Sequence
from math import ceil, log2

from reports.comparison import WIDTH, whole, wrapped
from reports.labels import marked, marks
from reports.notation import counted, label, number, percent
from reports.tables import Column, Sheet
from reports.verdict_tables import drifted
from reports.verdicts import CORE
from results.calibration import (
    ALARMS,
    FREEDOM,
    Calibration,
    CellNoise,
    MetricNoise,
    detectable,
)
from results.copies import counted_once
from results.evidence import Provenance

RUNS = (4, 8)
"""For so many runs a side the smallest detectable difference is told before they are made."""

TOLD = (
    "spread: of one run about their mean, as a standard deviation",
    "floor: two single runs stay within it in 95 of 100 cases",
    "false alarms: of the engine against itself, better or worse at that margin; at most "
    f"{percent(ALARMS)} should be",
    "smallest: the smallest margin with no more of them; provable: the smallest at which the "
    "engine is found the same as itself in 80 of 100 comparisons like this one",
    "MDD: the smallest difference that so many runs a side show in 80 of 100 cases",
)

Filled = tuple[str, Callable[[MetricNoise], str]]


def calibration_text(calibration: Calibration, width: int = WIDTH) -> str:
    """Which margins hold, then the noise of each cell's metrics."""
    lines = [*_headline(calibration), *_stated(calibration)]
    parts = ["\n".join(wrapped(line, width) for line in lines)]
    mark = _mark(calibration)
    among = sum(one.drift is not None for cell in calibration.cells for one in _shown(cell))
    parts += [whole(_sheet(cell, mark, among), width) for cell in calibration.cells]
    parts.append("\n".join(wrapped(line, width) for line in TOLD))
    return "\n\n".join(parts)


def _headline(calibration: Calibration) -> Iterator[str]:
    prefix = f"{mark}. " if (mark := _mark(calibration)) else ""
    shown = [(cell, one) for cell in calibration.cells for one in _shown(cell)]
    told = [(cell, one) for cell, one in shown if one.false_alarms is not None]
    loud = [(cell, one) for cell, one in told if (one.false_alarms or 0.0) > ALARMS]
    doubts = [*_narrow(told), *_few([one for _, one in told])]
    if not told:
        yield f"{prefix}No false alarms could be counted: runs are no pairs, or have no margin."
    elif not loud and not doubts:
        yield (
            f"{prefix}All margins hold: {counted(len(told), 'metric')} of "
            f"{counted(len(calibration.cells), 'cell')}, each with at most {percent(ALARMS)} "
            "false alarms."
        )
    for cell, one in loud:
        wider = "" if one.smallest is None else f": take {percent(one.smallest)} or more"
        yield (
            f"{prefix}{label(one.metric)} in {cell.name} is too noisy for a margin of "
            f"{percent(one.margin)}: {percent(one.false_alarms)} false alarms{wider}."
        )
    yield from (f"{prefix}{doubt}" for doubt in [*doubts, *_unsure([one for _, one in shown])])


def _narrow(told: Sequence[tuple[CellNoise, MetricNoise]]) -> Iterator[str]:
    """Where so many runs could not show that nothing changed, however quiet they are."""
    narrow = [(cell, one) for cell, one in told if one.provable > (one.margin or 0.0)]
    if narrow:
        cell, one = max(narrow, key=lambda pair: pair[1].provable / (pair[1].margin or 1e-9))
        yield (
            f"{number(len(narrow), 0)} of {counted(len(told), 'margin')} cannot be proved by so "
            f"few runs, the least {label(one.metric)} in {cell.name}: {percent(one.margin)}, and "
            f"{percent(one.provable, 2)} could be: take wider ones or more repeats."
        )


def _few(told: Sequence[MetricNoise]) -> Iterator[str]:
    """Where there are too few ways to name the runs to find one false alarm in so many."""
    least = min((one.labelings for one in told), default=0)
    if told and least * ALARMS < 1:
        repeats = ceil(log2(1 / ALARMS)) + 1
        yield (
            f"False alarms were counted over {counted(least, 'way')} to name the runs, which is "
            f"too few to tell {percent(ALARMS)} of them: calibrate with --set repeats={repeats}."
        )


def _unsure(told: Sequence[MetricNoise]) -> Iterator[str]:
    """Where too few runs tell the noise for a margin to be a multiple of it."""
    if few := sum(one.freedom < FREEDOM for one in told):
        yield (
            f"The noise of {number(few, 0)} of {counted(len(told), 'metric')} is told by fewer "
            f"than {FREEDOM} degrees of freedom, so no margin can be a multiple of it: calibrate "
            "with more repeats."
        )


def _stated(calibration: Calibration) -> Iterator[str]:
    yield ""
    yield f"made {calibration.made} from {', '.join(calibration.runs)}"
    for key, values in calibration.stated.items():
        yield f"{key}: {', '.join(values)}"


def _mark(calibration: Calibration) -> str:
    known: tuple[Provenance, ...] = ("measured", "simulated", "plumbing")
    stated = calibration.stated.get("provenance", ())
    return marks(one for one in known if one in stated)


def _shown(cell: CellNoise) -> Sequence[MetricNoise]:
    """The metrics told one by one; all where none of them is among these."""
    core = sorted(
        (one for one in cell.metrics if one.metric in CORE), key=lambda one: CORE.index(one.metric)
    )
    return core or cell.metrics


def _sheet(cell: CellNoise, mark: str, among: int) -> Sheet:
    columns: list[Filled] = [
        ("metric", lambda one: label(one.metric)),
        ("spread", lambda one: percent(one.spread, 2)),
        ("floor", lambda one: percent(one.floor, 2)),
        ("drift", lambda one: _drift(one, among)),
        ("margin", lambda one: percent(one.margin)),
        ("false alarms", lambda one: percent(one.false_alarms, 2)),
        ("smallest", lambda one: percent(one.smallest, 2)),
        ("provable", lambda one: percent(one.provable, 2)),
        *((f"MDD, {runs} runs", _foretold(runs)) for runs in RUNS),
    ]
    runs = dict.fromkeys(number(one.runs, 0) for one in _shown(cell))
    title = f"{cell.name}, {' or '.join(runs)} runs a side: the engine against itself"
    rest = len(cell.metrics) - len(_shown(cell))
    return Sheet(
        title=marked(title, mark),
        columns=tuple(Column(name=name, number=name != "metric") for name, _ in columns),
        rows=tuple(tuple(value(one) for _, value in columns) for one in _shown(cell)),
        notes=(
            *([counted_once(cell.copies, cell.runs)] if cell.copies else []),
            *([f"{counted(rest, 'more metric')} with --json"] if rest else []),
        ),
    )


def _drift(one: MetricNoise, among: int) -> str:
    """The drift from run to run, where it surely is one and is enough to matter."""
    if one.drift is None:
        return "n/a"
    return drifted(one.drift, one.margin, among)[0] or "not shown"


def _foretold(runs: int) -> Callable[[MetricNoise], str]:
    return lambda one: percent(detectable(one, runs), 2)
