"""A calibration as text: how much an engine differs from itself, and which margins that allows."""

from collections.abc import Callable, Iterator, Sequence

from reports.comparison import WIDTH, whole, wrapped
from reports.labels import marks
from reports.notation import changed, counted, label, number, percent
from reports.tables import Column, Sheet
from reports.verdicts import CORE
from results.calibration import ALARMS, Calibration, CellNoise, MetricNoise, detectable
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
    parts += [whole(_sheet(cell, mark), width) for cell in calibration.cells]
    parts.append("\n".join(wrapped(line, width) for line in TOLD))
    return "\n\n".join(parts)


def _headline(calibration: Calibration) -> Iterator[str]:
    prefix = f"{mark}. " if (mark := _mark(calibration)) else ""
    told = [
        (cell, one)
        for cell in calibration.cells
        for one in _shown(cell)
        if one.false_alarms is not None
    ]
    loud = [(cell, one) for cell, one in told if (one.false_alarms or 0.0) > ALARMS]
    if not told:
        yield f"{prefix}No false alarms could be counted: runs are no pairs, or have no margin."
    elif not loud:
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


def _sheet(cell: CellNoise, mark: str) -> Sheet:
    columns: list[Filled] = [
        ("metric", lambda one: label(one.metric)),
        ("spread", lambda one: percent(one.spread, 2)),
        ("floor", lambda one: percent(one.floor, 2)),
        ("drift", _drift),
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
        title=f"{title} ({mark})" if mark else title,
        columns=tuple(Column(name=name, number=name != "metric") for name, _ in columns),
        rows=tuple(tuple(value(one) for _, value in columns) for one in _shown(cell)),
        notes=(f"{counted(rest, 'more metric')} with --json",) if rest else (),
    )


def _drift(one: MetricNoise) -> str:
    """The drift from run to run where it surely is one."""
    if one.drift is None:
        return "n/a"
    if one.drift.low <= 0 <= one.drift.high:
        return "not shown"
    return changed(1 + one.drift.slope, 1 + one.drift.low, 1 + one.drift.high)[0]


def _foretold(runs: int) -> Callable[[MetricNoise], str]:
    return lambda one: percent(detectable(one, runs), 2)
