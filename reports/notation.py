"""How figures, counts and durations are written for people; nothing else in the house formats."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from results.figure import Figure, Summary, Unit

NAMES = {
    "ttft": "TTFT",
    "first_answer": "first answer",
    "tpot": "TPOT",
    "e2el": "E2E latency",
    "norm_e2el": "E2E latency per token",
    "schedule_ttft": "TTFT from schedule",
    "schedule_e2el": "E2E latency from schedule",
    "piece_gap": "gap between pieces",
    "itl": "ITL",
    "norm_interactivity": "E2E tokens per second",
    "output_rate_per_user": "output per user",
    "request_rate": "requests",
    "input_rate": "input",
    "total_rate": "input + output",
    "goodput_share": "share within limits",
    "failed_share": "failed requests",
    "output_rate": "output",
    "output_rate_per_gpu": "output per GPU",
    "total_rate_per_gpu": "input + output per GPU",
    "cache_hit": "cache hit",
    "cache_ceiling": "cache ceiling",
    "batch_size": "batch size",
    "prompt": "prompt length",
    "batch_tpot": "batch TPOT",
    "batch_rate": "batch output",
    "batch_rate_per_gpu": "batch output per GPU",
    "step_time": "step time",
    "step_rate_per_gpu": "computed per GPU",
    "step_batch": "batch size",
    "step_new_tokens": "new tokens of each request",
    "step_context": "cached tokens of each request",
}
"""What figures and metrics are called, a statistic of them left off."""

ABSENT = Figure(value=None, unit="count", n=0, reason="not measured")

_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What moves a cursor, begins a line, or turns the direction of writing."""

TIMES = frozenset(("s", "s/token"))

ENDLESS = 1e100
"""A ratio from here on is one to nothing."""

TIMES_FROM = 9.0
"""From this relative change on, a ratio reads better: `12.3 times`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """What a value is multiplied by to be shown, and the unit it then has."""

    factor: float
    unit: str


def label(key: str) -> str:
    """What the figure or the metric of that key is called."""
    name, _, statistic = key.partition(".")
    return f"{NAMES.get(name, name)} {statistic}".rstrip()


def figure(summary: Summary, key: str) -> Figure:
    """The summary's figure of that key, or an absent one."""
    return summary.figures.get(key, ABSENT)


def present(figure: Figure) -> bool:
    """Whether there is a number to show."""
    return figure.value is not None and math.isfinite(figure.value)


def scale(value: float, unit: str) -> Scale:
    """The scale in which a value of that unit reads best."""
    if unit in TIMES:
        # 0.9996 s would round to 1,000 ms.
        small = abs(value) < 0.9995
        return Scale(factor=1000.0 if small else 1.0, unit="ms" if small else "s")
    if unit == "share":
        return Scale(factor=100.0, unit="%")
    return Scale(factor=1.0, unit="" if unit == "count" else unit)


def shared_scale(figures: Iterable[Figure]) -> Scale:
    """One scale for a column of figures of one kind: milliseconds while all are below 10 s."""
    shown = [one for one in figures if present(one)]
    if not shown:
        return Scale(factor=1.0, unit="")
    largest = max(abs(one.value or 0.0) for one in shown)
    unit = shown[0].unit
    return scale(largest / 10 if unit in TIMES else largest, unit)


def number(value: float, decimals: int | None = None) -> str:
    """The value with thousands separated, to three significant digits unless decimals are given."""
    if decimals is None:
        decimals = _decimals(value)
    return f"{value:,.{decimals}f}"


def counted(count: int, noun: str) -> str:
    """So many of them: `1 request`, `1,200 requests`."""
    return f"{number(count, 0)} {noun}{'' if count == 1 else 's'}"


def harmless(words: str) -> str:
    """The words on one line, with every control character as source code would escape it.

    Names of folders, engines and traces are anyone's, and a terminal does what it is told.
    """
    return _CONTROLS.sub(lambda found: repr(found[0])[1:-1], words)


def harmless_lines(words: str) -> str:
    """The same of several lines, which stay lines."""
    return "\n".join(map(harmless, words.split("\n")))


def show(figure: Figure, *, unit: bool = True) -> str:
    """The figure with its unit: `812 ms`, `~1.20 s`, `n too small`, `n/a`.

    Without `unit`, units that a heading can carry are left off; a scaled one never is.
    """
    if not present(figure) or figure.value is None:
        return "n too small" if "too small" in (figure.reason or "") else "n/a"
    fit = scale(figure.value, figure.unit)
    return _value(figure, fit) + _suffix(fit, unit=unit)


def interval(figure: Figure, *, unit: bool = True) -> str:
    """The figure's 95 % interval in the figure's own scale: `790–850 ms`; `n/a` without one."""
    if not bounded(figure) or figure.value is None:
        return "n/a"
    fit = scale(figure.value, figure.unit)
    return _range(figure, fit) + _suffix(fit, unit=unit)


def brief(figure: Figure, fit: Scale) -> str:
    """The figure in that scale and its interval, without unit: `45.7 ±0.8`, `812 (790–850)`."""
    if not present(figure) or figure.value is None:
        return "n/a"
    value = _value(figure, fit)
    if not bounded(figure) or figure.low is None or figure.high is None:
        return value
    below, above = figure.value - figure.low, figure.high - figure.value
    decimals = _figure_decimals(figure, fit)
    ends = {number(half * fit.factor, decimals) for half in (below, above)}
    if len(ends) > 1:
        return f"{value} ({_range(figure, fit)})"
    half = ends.pop()
    # To the digits of its figure a small half would be 0, as if nothing were in doubt.
    exact = half if float(half.replace(",", "")) else f"{above * fit.factor:.1g}"
    return f"{value} ±{exact}"


def bare(figure: Figure, fit: Scale) -> str:
    """The figure in that scale, without unit and interval."""
    return _value(figure, fit) if present(figure) else "n/a"


def bounded(figure: Figure) -> bool:
    """Whether there is a number with both ends of its interval."""
    ends = (figure.low, figure.high)
    return present(figure) and all(end is not None and math.isfinite(end) for end in ends)


def doubt(figure: Figure) -> str:
    """How sure a figure is: its interval and its n, `790–850, n 364 in 6 runs`."""
    known = interval(figure, unit=False)
    runs = f" in {counted(figure.runs, 'run')}" if figure.runs > 1 else ""
    return f"{'no interval' if known == 'n/a' else known}, n {number(figure.n, 0)}{runs}"


def doubted(figure: Figure, *, unit: bool = False) -> str:
    """The figure, and on a second line how sure it is."""
    shown = show(figure, unit=unit)
    return f"{shown}\n{doubt(figure)}" if present(figure) else shown


def measured(value: float | None, unit: Unit, *, with_unit: bool = False) -> str:
    """A bare number of that unit: `812 ms`; `n/a` where there is none."""
    return show(Figure(value=value, unit=unit, n=0), unit=with_unit)


def percent(share: float | None, digits: int = 3) -> str:
    """A share that is a bound and not an estimate: `5 %`, `2.1 %`, `12 times`; `n/a` without."""
    if share is None or not math.isfinite(share):
        return "n/a"
    if share >= TIMES_FROM:
        return f"{1 + share:.{digits}g} times"
    told = f"{share * 100:.{digits}g}"
    return f"{number(share * 100, 0) if 'e+' in told or share >= 1 else told} %"


def changed(ratio: float, low: float | None, high: float | None) -> tuple[str, str]:
    """A ratio as a change, and its interval: `+12.0 %`, `+9.1 to +15.2 %`; empty without one."""
    ends = None if low == high == ratio != 1 else _ends(low, high)
    decimals = _change_decimals(ratio, *(ends or ()))
    told = _change(ratio, decimals)
    if ends is None:
        return told, ""
    if max(ratio, *ends) >= TIMES_FROM + 1:
        return told, f"{_change(ends[0], decimals)} to {_change(ends[1], decimals)}"
    return told, f"{_points(ends[0], decimals)} to {_points(ends[1], decimals)} %"


def by(ratio: float, low: float | None, high: float | None) -> tuple[str, str]:
    """The same without signs, for sentences that say which way: `12.0 %`, `9.1 to 15.2 %`.

    An interval that holds no change keeps its signs.
    """
    told, ends = changed(ratio, low, high)
    whole = _ends(low, high)
    if whole and (min(whole) >= 1 or max(whole) <= 1) and ends.endswith(" %"):
        points = re.findall(r"[\d.,]+", ends)
        ends = f"{' to '.join(points if whole[0] >= 1 else reversed(points))} %"
    return told.lstrip("+-"), ends


def _ends(low: float | None, high: float | None) -> tuple[float, float] | None:
    if low is None or high is None or not math.isfinite(low) or not math.isfinite(high):
        return None
    return low, high


def _change_decimals(ratio: float, *ends: float) -> int:
    """Two digits of the interval's half width; one decimal without an interval."""
    half = (max(ends) - min(ends)) * 50 if ends else 0.0
    if not half and 1e-6 < ratio < 0.001:
        # What nearly fell to nothing did not fall to nothing.
        return min(4, places(ratio * 100))
    if not half:
        return 1 if round(abs(ratio - 1) * 1000) or ratio == 1 else 3
    return min(4, places(half))


def places(half: float) -> int:
    """As many as show two digits of the half width of an interval."""
    return max(0, 1 - math.floor(math.log10(half)))


def _change(ratio: float, decimals: int) -> str:
    if ratio >= ENDLESS:
        return "∞ times"
    if ratio >= TIMES_FROM + 1:
        return f"{ratio:.3g} times"
    return f"{_points(ratio, decimals)} %"


def _points(ratio: float, decimals: int) -> str:
    """The change in per cent with its sign, and no sign where it is 0."""
    rounded = round((ratio - 1) * 100, decimals)
    return f"{rounded:+,.{decimals}f}" if rounded else number(0.0, decimals)


def unscaled(reason: str) -> str:
    """The reason without a maximum in seconds, which would stand beside milliseconds."""
    return re.sub(r"; maximum [^)]*", "", reason)


def exact(seconds: float) -> str:
    """A length of time that was set and not measured, in full: `50 ms`, `1.5 s`."""
    fit = scale(seconds, "s")
    return f"{seconds * fit.factor:g} {fit.unit}"


def bound(value: float, unit: Unit) -> str:
    """A margin in a metric's unit, in full: `20 ms`, `2 points`, `50 tok/s`."""
    if unit in TIMES:
        return f"{exact(value)}{unit.removeprefix('s')}"
    return f"{value * 100:g} points" if unit == "share" else f"{value:g} {unit}"


def multiple(times: float) -> str:
    """A margin in multiples of the noise: `2x noise`."""
    return f"{times:g}x noise"


def duration(seconds: float) -> str:
    """A length of time: `12.3 s`, `4 min 10 s`, `1 h 02 min`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def _value(figure: Figure, fit: Scale) -> str:
    approximate = "~" if figure.reason else ""
    value = (figure.value or 0.0) * fit.factor
    return approximate + number(value, _figure_decimals(figure, fit))


def _range(figure: Figure, fit: Scale) -> str:
    """Both ends, to the figure's digits, or up to two more where they would look the same."""
    fewest = _figure_decimals(figure, fit)
    for decimals in (fewest, fewest + 1, fewest + 2):
        low, high = (
            number((end or 0.0) * fit.factor, decimals) for end in (figure.low, figure.high)
        )
        if low != high:
            break
    return f"{low}–{high}"


def _decimals(value: float) -> int:
    if not value or abs(value) >= 100:
        return 0
    return max(0, 2 - math.floor(math.log10(abs(float(f"{value:.3g}")))))


def _figure_decimals(figure: Figure, fit: Scale) -> int:
    value = (figure.value or 0.0) * fit.factor
    if figure.unit in {"count", "tokens"} and value.is_integer():
        return 0
    most = _share_decimals(value) if figure.unit == "share" else _decimals(value)
    half = ((figure.high or 0.0) - (figure.low or 0.0)) / 2 * fit.factor if bounded(figure) else 0.0
    return min(most, places(half)) if half > 0 else most


def _share_decimals(value: float) -> int:
    """One, or as many as tell a share in per cent from none and from all."""
    off = min(value, 100 - value)
    return min(4, places(off)) if 0 < off < 0.1 else 1


def _suffix(fit: Scale, *, unit: bool) -> str:
    kept = unit or fit.unit in {"s", "ms", "%"}
    return f" {fit.unit}" if kept and fit.unit else ""
