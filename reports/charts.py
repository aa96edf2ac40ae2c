"""What the charts of a report show: plotly figures as plain mappings, each with its table."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

from reports.labels import (
    differing,
    headed,
    is_batch,
    is_single,
    level,
    load_level,
    mark,
    outcome,
    place,
    pressure,
    settings,
    why,
)
from reports.notation import (
    Scale,
    doubt,
    doubted,
    figure,
    interval,
    label,
    number,
    present,
    scale,
    show,
    unscaled,
)
from reports.notes import notes
from reports.steps import AXES, SCOPE, SHOWN, apart, axis
from reports.tables import Column, Sheet, status
from results.cell import Cell
from results.figure import Figure, Summary
from results.scores import asks
from results.steps import is_stepwise

# Every colour keeps 3:1 against the light and the dark page. 7, 8 and 5 have no common factor, so
# 280 arms differ in one of the three at least.
COLOURS = ("#1f83c4", "#d55e00", "#0d9f76", "#c2619d", "#a67c00", "#7c6bd6", "#3a9bb0")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star", "hexagon", "pentagon")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
# Where arms coincide, the later one lies on the earlier as a smaller mark on a larger.
SIZES = (13, 9, 6)
WIDTHS = (3.5, 2.0, 1.25)
# Neighbours write their levels on opposite sides, and none of them across a whisker.
CORNERS = ("top left", "bottom right", "top right", "bottom left")
GREY = "#7d828b"

Looks = dict[str, "Style"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """How an arm is drawn, in every chart of a page alike."""

    colour: str
    symbol: str
    dash: str
    layer: int
    corner: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A plotly figure with its numbers as a table; no figure where nothing could be drawn."""

    title: str
    figure: dict[str, Any] | None
    missing: tuple[str, ...]
    sheet: Sheet


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What a chart draws across and up, a panel a figure, and which figures its table holds.

    `sizes` puts a tick at every value across, and doublings at equal distances.
    """

    heading: str
    across: str
    ups: tuple[str, ...]
    keys: tuple[str, ...]
    order: Callable[[Cell], float]
    sizes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A figure drawn along an axis in one scale, and how far it goes from end to end."""

    key: str
    scale: Scale
    low: float
    high: float

    @property
    def title(self) -> str:
        """The figure with its unit."""
        name, unit = label(self.key).removesuffix(" per GPU"), self.scale.unit
        return f"{name} ({unit})" if unit else name


def styles(arms: Iterable[str]) -> Looks:
    """A style for every arm, by its place."""
    return {
        arm: Style(
            colour=COLOURS[place % len(COLOURS)],
            symbol=SYMBOLS[place % len(SYMBOLS)],
            dash=DASHES[place % len(DASHES)],
            layer=place % len(SIZES),
            corner=CORNERS[place % len(CORNERS)],
        )
        for place, arm in enumerate(dict.fromkeys(arms))
    }


def charts(summaries: Sequence[Summary], looks: Looks) -> list[Chart]:
    """The charts of one experiment, a set for each workload in it.

    Prompt lengths of single requests, and batch sizes, are drawn across one chart. Answers to
    questions are no load, and have none.
    """
    loads = [summary for summary in summaries if not asks(summary.cell)]
    summaries = [_with_prompt(one) for summary in loads for one in apart(summary)]
    along = axis(summaries)
    swept = (
        len({summary.cell.workload["prompt"] for summary in summaries if is_single(summary.cell)})
        > 1
    )
    groups: dict[str, list[Summary]] = {}
    told = [_apart(summary, along, swept=swept) for summary in summaries]
    keys = _settings_told(told)
    for summary, settled in zip(summaries, told, strict=True):
        group = ", ".join(f"{key} {settled[key]}" for key in keys if key in settled)
        groups.setdefault(group, []).append(summary)
    return [
        _chart(kind, group, members, looks)
        for group, members in groups.items()
        for kind in _kinds(members, along, swept=swept and is_single(members[0].cell))
    ]


def _settings_told(told: Sequence[dict[str, str]]) -> tuple[str, ...]:
    """What a title says: the settings that differ, and a cached prefix in any case."""
    cached = any(one.get("cached", "0") != "0" for one in told)
    return tuple(dict.fromkeys([*differing(told), *(["cached"] if cached else [])]))


def _apart(summary: Summary, along: str, *, swept: bool) -> dict[str, str]:
    """What must be alike for two points to stand in one chart; steps are drawn `along` one size."""
    cell = summary.cell
    told = settings(cell)
    if is_stepwise(cell):
        return told | {name: str(cell.workload[name]) for name in AXES if name != along}
    if is_batch(cell):
        return told
    if swept and is_single(summary.cell):
        return {"load": load_level(cell), **{key: told[key] for key in told if key != "prompt"}}
    return {"load": str(cell.load.get("kind")), **told}


def _kinds(summaries: Sequence[Summary], along: str, *, swept: bool) -> list[Kind]:
    """The charts of summaries that differ only in arm and in load, or size."""
    if is_stepwise(summaries[0].cell):
        return [_of_steps(summaries, along)]
    if is_batch(summaries[0].cell):
        rate = _most_told(summaries, "batch_rate_per_gpu", "batch_rate")
        return [
            Kind(
                heading="Throughput and time per token against batch size",
                across="batch_size",
                ups=(rate, "batch_tpot"),
                keys=(rate, "batch_tpot"),
                order=lambda cell: float(cell.workload["requests"]),
                sizes=True,
            )
        ]
    if swept:
        return [
            Kind(
                heading="TTFT against prompt length",
                across="prompt",
                # One request at a time has no slow tail of load: the median is the answer.
                ups=("ttft.p50",),
                keys=("ttft.p50", "ttft.p90"),
                order=lambda cell: float(cell.workload["prompt"]),
                sizes=True,
            )
        ]
    totals = ("total_rate_per_gpu", "output_rate_per_gpu", "output_rate")
    output = _most_told(summaries, "output_rate_per_gpu", "output_rate")
    return [
        Kind(
            heading="TTFT against throughput",
            across=_most_told(summaries, *totals),
            ups=(_most_told(summaries, "ttft.p90", "ttft.p50"),),
            keys=("ttft.p50", "ttft.p90", "total_rate_per_gpu", output),
            order=pressure,
        ),
        Kind(
            heading="Throughput against interactivity",
            across=_most_told(summaries, "interactivity.p90", "interactivity.p50"),
            ups=(output,),
            keys=("interactivity.p50", "interactivity.p90", output),
            order=pressure,
        ),
    ]


def _of_steps(summaries: Sequence[Summary], along: str) -> Kind:
    told = [key for key in SHOWN if any(present(figure(one, key)) for one in summaries)]
    keys = tuple(told or SHOWN)
    return Kind(
        heading=f"Step time against {label(AXES[along])} ({SCOPE})",
        across=AXES[along],
        ups=keys,
        keys=keys,
        order=lambda cell: float(cell.workload[along]),
        sizes=True,
    )


def _most_told(summaries: Sequence[Summary], *keys: str) -> str:
    """The figure that most valid summaries have, the first of equals: no line mixes two."""
    valid = [summary for summary in summaries if summary.valid] or summaries
    return max(keys, key=lambda key: sum(present(figure(summary, key)) for summary in valid))


def _chart(kind: Kind, group: str, summaries: Sequence[Summary], looks: Looks) -> Chart:
    arms = list(dict.fromkeys(summary.cell.arm for summary in summaries))
    ordered = sorted(
        summaries, key=lambda summary: (arms.index(summary.cell.arm), kind.order(summary.cell))
    )
    heading = headed(f"{kind.heading}: {group}" if group else kind.heading, ordered)
    drawn, missing = _drawable(ordered, (kind.across, *kind.ups))
    return Chart(
        title=heading,
        figure=_figure(kind, drawn, looks) if drawn else None,
        missing=missing,
        sheet=_sheet(heading, kind, ordered),
    )


def _drawable(
    summaries: Sequence[Summary], keys: Sequence[str]
) -> tuple[list[Summary], tuple[str, ...]]:
    """The summaries that can be drawn, and for each other one a line that says why not."""
    drawn: list[Summary] = []
    missing: list[str] = []
    for summary in summaries:
        absent = [key for key in keys if not present(figure(summary, key))]
        name = f"{summary.cell.arm}, {_at(summary.cell)}"
        told = {key: unscaled(figure(summary, key).reason or "n/a") for key in absent}
        reasons = [f"{label(key)}: {reason}" for key, reason in told.items()]
        if not summary.valid:
            reasons = [f"{outcome(summary)}: {why(summary)}"]
        if absent:
            missing.append(f"not drawn: {name}: {'; '.join(reasons)}")
        else:
            drawn.append(summary)
    return drawn, tuple(missing)


def _figure(kind: Kind, summaries: Sequence[Summary], looks: Looks) -> dict[str, Any]:
    across = _axis(summaries, kind.across)
    ups = [_axis(summaries, key) for key in kind.ups]
    layout = _layout(summaries, panels=len(ups))
    data: list[dict[str, Any]] = []
    height = 1 / len(ups)
    for panel, up in enumerate(ups):
        suffix, top = str(panel + 1) if panel else "", 1 - panel * height
        anchored = {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}", "showlegend": panel == 0}
        data += [{**line, **anchored} for line in _lines(kind, summaries, looks, across, up)]
        bottom = top - height + (0.06 if panel < len(ups) - 1 else 0)
        layout[f"yaxis{suffix}"] = {**_drawn_axis(up), "domain": [max(bottom, 0), top]}
        layout[f"xaxis{suffix}"] = {**_drawn_axis(across), "anchor": f"y{suffix}"}
        if kind.sizes:
            values = sorted({_value(summary, across) for summary in summaries})
            texts = [number(value, 0) for value in values]
            steps = "log" if min(values) > 0 else "linear"
            layout[f"xaxis{suffix}"] |= {"type": steps, "tickvals": values, "ticktext": texts}
        if panel < len(ups) - 1:
            del layout[f"xaxis{suffix}"]["title"]
    return {"data": data, "layout": layout}


def _lines(
    kind: Kind, summaries: Sequence[Summary], looks: Looks, across: Axis, up: Axis
) -> list[dict[str, Any]]:
    """A line an arm through its valid points, and its invalid points apart from any line."""
    lines = []
    for arm in dict.fromkeys(summary.cell.arm for summary in summaries):
        of_arm = [summary for summary in summaries if summary.cell.arm == arm]
        for valid in (True, False):
            points = [summary for summary in of_arm if summary.valid is valid]
            if points:
                dots = _dots(points, across, up, looks[arm], valid=valid)
                lines.append({**dots, **_labels(kind, points, looks[arm], valid=valid)})
    return lines


def _labels(kind: Kind, points: Sequence[Summary], look: Style, *, valid: bool) -> dict[str, Any]:
    """What joins the points and what is written at them: their load, unless the axis says it."""
    line = "lines+markers" if valid else "markers"
    if kind.sizes:
        return {"mode": line}
    texts = [f"{pressure(point.cell):g}" for point in points]
    return {"mode": f"{line}+text", "text": texts, "textposition": look.corner}


def _dots(
    points: Sequence[Summary], across: Axis, up: Axis, look: Style, *, valid: bool
) -> dict[str, Any]:
    arm = escape(points[0].cell.arm, quote=False)
    colour = look.colour if valid else GREY
    symbol = look.symbol if valid else f"{look.symbol}-open"
    return {
        "type": "scatter",
        "name": arm if valid else f"{arm}, not valid",
        "legendgroup": arm,
        "x": [_value(point, across) for point in points],
        "y": [_value(point, up) for point in points],
        "error_x": _whiskers(points, across, colour),
        "error_y": _whiskers(points, up, colour),
        "line": {"color": colour, "dash": look.dash, "width": WIDTHS[look.layer]},
        "marker": {"color": colour, "symbol": symbol, "size": SIZES[look.layer]},
        "zorder": look.layer,
        "cliponaxis": False,
        "hovertext": [_hover(point, (across.key, up.key)) for point in points],
        "hoverinfo": "text",
    }


def _value(summary: Summary, axis: Axis) -> float:
    return (figure(summary, axis.key).value or 0.0) * axis.scale.factor


def _whiskers(points: Sequence[Summary], axis: Axis, colour: str) -> dict[str, Any]:
    """The ends of the intervals as plotly wants them: as distances; null where there is none."""
    shown = [figure(point, axis.key) for point in points]
    factor = axis.scale.factor
    above = [_distance(one, one.value, one.high, factor) for one in shown]
    below = [_distance(one, one.low, one.value, factor) for one in shown]
    return {
        "type": "data",
        "symmetric": False,
        "array": above,
        "arrayminus": below,
        "color": colour,
        "thickness": 1,
        "width": 4,
        "visible": any(end is not None for end in above),
    }


def _distance(shown: Figure, low: float | None, high: float | None, factor: float) -> float | None:
    if interval(shown) == "n/a" or low is None or high is None:
        return None
    return max(0.0, (high - low) * factor)


def _hover(summary: Summary, keys: Iterable[str]) -> str:
    lines = [f"<b>{escape(summary.cell.arm, quote=False)}</b>, {_at(summary.cell)}"]
    for key in keys:
        shown = figure(summary, key)
        # The prompt's length and the batch's size were set, not measured, and have no doubt.
        told = "" if key in {"prompt", "batch_size", *AXES.values()} else f" ({doubt(shown)})"
        told += f"<br>no interval: {escape(shown.doubt, quote=False)}" if shown.doubt else ""
        lines.append(f"{label(key)} {show(shown)}{told}")
    if not summary.valid:
        lines.append(escape(f"{outcome(summary)}: {why(summary)}", quote=False))
    return "<br>".join(filter(None, [*lines, mark([summary])]))


def _sheet(heading: str, kind: Kind, summaries: Sequence[Summary]) -> Sheet:
    """The numbers of a chart: each figure with its doubt on a second line."""
    columns = (
        Column(name="arm", number=False),
        Column(name=label(kind.across) if kind.sizes else "load"),
        Column(name="status", number=False),
        *(Column(name=label(key)) for key in kind.keys),
    )
    rows = tuple(
        (
            summary.cell.arm,
            number(kind.order(summary.cell), 0) if kind.sizes else level(summary.cell),
            status(summary, summaries),
            *(doubted(figure(summary, key), unit=True) for key in kind.keys),
        )
        for summary in summaries
    )
    told = notes(summaries, {key: label(key) for key in kind.keys})
    return Sheet(title=heading, columns=columns, rows=rows, notes=told)


def _axis(summaries: Sequence[Summary], key: str) -> Axis:
    figures = [figure(summary, key) for summary in summaries]
    values = [abs(shown.value or 0.0) for shown in figures]
    low, high = min(values), max(values)
    return Axis(key=key, scale=scale(high, figures[0].unit), low=low, high=high)


def _drawn_axis(axis: Axis) -> dict[str, Any]:
    kind: dict[str, Any] = {"rangemode": "tozero" if axis.high > 2 * axis.low else "normal"}
    if 0 < 20 * axis.low < axis.high:
        kind = {"type": "log", "dtick": "D2"}
    return {
        **kind,
        "title": {"text": axis.title, "standoff": 8},
        "automargin": True,
        "tickformat": ",~g",
        "zeroline": False,
        "ticks": "outside",
    }


def _layout(summaries: Sequence[Summary], *, panels: int) -> dict[str, Any]:
    lines = len({(summary.cell.arm, summary.valid) for summary in summaries})
    height, legend = 100 + 300 * panels + 20 * lines, (-0.2 / panels, "top")
    return framed(mark(summaries), height, legend=legend, middle=1 - 0.5 / panels)


def framed(
    said: str, height: int, *, legend: tuple[float, str], middle: float = 0.5
) -> dict[str, Any]:
    """The layout around what a chart draws.

    What must be `said` beside its numbers lies across it at `middle`, nothing over measured ones;
    the legend is at a height, which its top or bottom has.
    """
    drawn = {
        "text": said.split(":", maxsplit=1)[0],
        "xref": "paper",
        "yref": "paper",
        "x": 0.5,
        "y": middle,
        "showarrow": False,
        "textangle": -20,
        "opacity": 0.35,
        "font": {"size": 40, "color": GREY},
    }
    return {
        "height": height,
        "margin": {"l": 56, "r": 24, "t": 16, "b": 48},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "hovermode": "closest",
        "showlegend": True,
        "legend": {"orientation": "h", "x": 0, "y": legend[0], "yanchor": legend[1]},
        "annotations": [drawn] if said else [],
    }


def _with_prompt(summary: Summary) -> Summary:
    """The summary with its prompt's length among its figures, so that it can be drawn."""
    if not is_single(summary.cell):
        return summary
    length = Figure(value=float(summary.cell.workload["prompt"]), unit="tokens", n=1)
    return replace(summary, figures={**summary.figures, "prompt": length})


def _at(cell: Cell) -> str:
    """Where a point stands in its chart."""
    return f"prompt {cell.workload['prompt']}, {level(cell)}" if is_single(cell) else place(cell)
