"""The charts of a comparison: every change with its interval and margin, and run by run."""

from collections.abc import Iterator, Sequence
from html import escape
from math import ceil, exp, floor, log, log10
from typing import Any

from reports.account import Account, CellAccount
from reports.charts import COLOURS, GREY, SYMBOLS, Chart, framed
from reports.labels import marked
from reports.notation import changed, label, measured, number
from reports.tables import Sheet, headings
from reports.verdicts import change, leading, share
from results.direction import DIRECTIONS, in_points
from results.effect import Effect, RunValue
from results.verdict import Judgement, Verdict

LOOKS: dict[Verdict, tuple[str, str]] = {
    "worse": (COLOURS[1], "triangle-up"),
    "better": (COLOURS[2], "triangle-down"),
    "same": (COLOURS[0], "circle"),
    "inconclusive": (GREY, "diamond-open"),
}
"""The colour and the symbol of a verdict, so that none is told by its colour alone."""

TICKS = (
    *(0.01, 0.1, 0.2, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 1),
    *(1.02, 1.05, 1.1, 1.2, 1.5, 2, 5, 10, 100),
)
"""The ratios at which the axis of changes may be marked."""

STEPS, MOST_TICKS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5), 8
"""How far apart differences may be marked, and how often at most."""

FARTHEST = 1000.0
"""A ratio beyond this factor, as of what fell to nothing, is drawn at it."""

WIDEST = 3.0
"""An interval that goes further off than this factor beyond all points is cut at the edge."""

SIDES = {"base": (COLOURS[0], ""), "other": (COLOURS[1], "-open")}
"""The colour of a side, and how its symbols differ."""

Row = tuple[CellAccount, Judgement]


def forest(account: Account, rows: Sequence[Row], title: str) -> Chart:
    """The changes of these judgements, each before its margin; all of them ratios, or in points."""
    # Metrics together, each over its cells.
    metrics = list(dict.fromkeys(one.effect.metric for _, one in rows))
    rows = sorted(rows, key=lambda row: metrics.index(row[1].effect.metric))
    drawn = [row for row in rows if row[1].effect.ratio is not None and row[1].verdict in LOOKS]
    missing = (
        f"not drawn: {_row(row)}: {row[1].effect.reason or row[1].reason}"
        for row in rows
        if row not in drawn
    )
    title = marked(title, account.mark)
    return Chart(
        title=title,
        figure=_forest(account, drawn) if drawn else None,
        missing=tuple(missing),
        sheet=_sheet(title, rows),
    )


def run_charts(account: Account) -> Iterator[Chart]:
    """The runs of each leading metric in their order, so that a drift is seen."""
    for metric in leading(account):
        rows = [
            row
            for row in account.judgements()
            if row[1].effect.metric == metric and row[1].effect.values
        ]
        if rows:
            yield _runs(account, metric, rows)


def _forest(account: Account, rows: Sequence[Row]) -> dict[str, Any]:
    data = []
    for verdict, (colour, symbol) in LOOKS.items():
        places = [place for place, (_, one) in enumerate(rows) if one.verdict == verdict]
        if places:
            data.append(_dots(rows, places, colour, symbol))
    layout = {
        **framed(account.mark, 120 + 28 * len(rows), legend=(1.02, "bottom")),
        "xaxis": {
            **(_points if in_points(rows[0][1].effect.metric) else _ratios)(rows),
            "title": {"text": "change from base to other", "standoff": 8},
            "automargin": True,
            "ticks": "outside",
        },
        "yaxis": {
            "range": [len(rows) - 0.5, -0.5],
            "tickvals": list(range(len(rows))),
            "ticktext": [escape(_row(row), quote=False) for row in rows],
            "automargin": True,
            "zeroline": False,
            "showgrid": False,
        },
        "shapes": [*_bands(rows), _nothing()],
    }
    return {"data": data, "layout": layout}


def _ratios(rows: Sequence[Row]) -> dict[str, Any]:
    """The axis of ratios: half and double are equally far from no change."""
    low, high = _range([one for _, one in rows])
    ticks = _apart([tick for tick in TICKS if low <= tick <= high], log10(high / low) / MOST_TICKS)
    return {
        "type": "log",
        "range": [log10(low), log10(high)],
        "tickvals": ticks,
        "ticktext": [changed(tick, None, None)[0].replace(".0 %", " %") for tick in ticks],
    }


def _apart(ticks: Sequence[float], least: float) -> list[float]:
    """Those whose words do not run into one another, from no change outwards."""
    kept: list[float] = []
    for tick in sorted(ticks, key=lambda tick: abs(log10(tick))):
        if all(abs(log10(tick / one)) >= least for one in kept):
            kept.append(tick)
    return sorted(kept)


def _points(rows: Sequence[Row]) -> dict[str, Any]:
    """The axis of differences, which stand as 1 and the difference."""
    low, high = _range([one for _, one in rows])
    step = next((step for step in STEPS if (high - low) / step <= MOST_TICKS), STEPS[-1])
    places = range(ceil((low - 1) / step), floor((high - 1) / step) + 1)
    return {
        "type": "linear",
        "range": [low, high],
        "tickvals": [1 + place * step for place in places],
        "ticktext": [f"{place * step * 100:+g} points" if place else "0" for place in places],
    }


def _dots(rows: Sequence[Row], places: Sequence[int], colour: str, symbol: str) -> dict[str, Any]:
    effects = [rows[place][1].effect for place in places]
    ratios = [_near(effect.ratio or 1.0) for effect in effects]
    above = [_off(effect, effect.high) for effect in effects]
    below = [_off(effect, effect.low) for effect in effects]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": rows[places[0]][1].verdict,
        "x": ratios,
        "y": list(places),
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": above,
            "arrayminus": below,
            "color": colour,
            "thickness": 1.5,
            "width": 4,
        },
        "marker": {"color": colour, "symbol": symbol, "size": 10},
        "hovertext": [_hover(rows[place]) for place in places],
        "hoverinfo": "text",
    }


def _near(ratio: float) -> float:
    return min(max(ratio, 1 / FARTHEST), FARTHEST)


def _off(effect: Effect, end: float | None) -> float | None:
    return None if end is None or effect.ratio is None else abs(end - effect.ratio)


def _bands(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The margin of each row, shaded: what lies within it is the same."""
    return [
        {
            "type": "rect",
            "x0": max(1 - one.margin, 1e-9),
            "x1": 1 + one.margin,
            "y0": place - 0.5,
            "y1": place + 0.5,
            "fillcolor": GREY,
            "opacity": 0.18,
            "line": {"width": 0},
            "layer": "below",
        }
        for place, (_, one) in enumerate(rows)
        if one.margin is not None
    ]


def _nothing() -> dict[str, Any]:
    """The line at which nothing changed."""
    line = {"color": GREY, "width": 1, "dash": "dot"}
    return {"type": "line", "x0": 1, "x1": 1, "yref": "paper", "y0": 0, "y1": 1, "line": line}


def _range(shown: Sequence[Judgement]) -> tuple[float, float]:
    """From end to end of what is drawn: all points, margins up to 100 %, and most intervals."""
    points = [_near(one.effect.ratio or 1.0) for one in shown]
    points += [
        side for one in shown if one.margin for side in (1 + one.margin, 1 / (1 + one.margin))
    ]
    ends = [end for one in shown for end in (one.effect.low, one.effect.high) if end]
    low, high = min(points), max(points)
    low = max(min([low, *ends]), low / WIDEST)
    high = min(max([high, *ends]), high * WIDEST)
    edge = max((high / low) ** 0.05, 1.01)
    return low / edge, high * edge


def _row(row: Row) -> str:
    return f"{label(row[1].effect.metric)}, {row[0].place}"


def _hover(row: Row) -> str:
    one, unit = row[1], row[1].effect.unit
    values = [
        f"{side} {measured(value, unit, with_unit=True)}"
        for side, value in (("base", one.effect.base), ("other", one.effect.other))
    ]
    lines = [
        f"<b>{escape(_row(row), quote=False)}</b>",
        ", ".join(values),
        f"{change(one.effect)}, margin {share(one.effect, one.margin)}",
        escape(f"{one.verdict}: {one.reason}", quote=False),
    ]
    return "<br>".join([*lines, row[0].mark] if row[0].mark else lines)


def _sheet(title: str, rows: Sequence[Row]) -> Sheet:
    return Sheet(
        title=title,
        columns=headings(("metric", "cell"), ("change", "margin"), ("verdict",)),
        rows=tuple(
            (
                label(one.effect.metric),
                cell.place,
                change(one.effect),
                share(one.effect, one.margin),
                one.verdict,
            )
            for cell, one in rows
        ),
    )


def _runs(account: Account, metric: str, rows: Sequence[Row]) -> Chart:
    title = marked(f"{label(metric)} run by run", account.mark)
    folders = {run.folder for _, one in rows for run in one.effect.values}
    several = "runs of several folders: each is drawn at its place in its own folder"
    layout = {
        **framed(account.mark, 420, legend=(1.02, "bottom")),
        "xaxis": {
            "title": {"text": "place in the order of runs", "standoff": 8},
            "automargin": True,
            "ticks": "outside",
            "zeroline": False,
        },
        "yaxis": {
            "title": {"text": "against the mean of base in its cell (%)", "standoff": 8},
            "automargin": True,
            "ticks": "outside",
            "zeroline": True,
        },
    }
    data = [line for place, row in enumerate(rows) for line in _lines(place, row)]
    return Chart(
        title=title,
        figure={"data": data, "layout": layout},
        missing=(several,) if len(folders) > 1 else (),
        sheet=_run_sheet(title, metric, rows),
    )


def _lines(place: int, row: Row) -> Iterator[dict[str, Any]]:
    cell, one = row
    of_base = [run.value for run in one.effect.values if run.side == "base"]
    mean = exp(sum(map(log, of_base)) / len(of_base)) if of_base else 1.0
    for side, (colour, open_symbol) in SIDES.items():
        runs = sorted(
            (run for run in one.effect.values if run.side == side), key=lambda run: run.position
        )
        name = f"{side}, {cell.place}"
        yield {
            "type": "scatter",
            "mode": "markers",
            "name": escape(name, quote=False),
            "x": [run.position for run in runs],
            "y": [(run.value / mean - 1) * 100 for run in runs],
            "marker": {
                "color": colour,
                "symbol": f"{SYMBOLS[place % len(SYMBOLS)]}{open_symbol}",
                "size": 10,
            },
            "hovertext": [_run_hover(name, run, one, cell.mark) for run in runs],
            "hoverinfo": "text",
        }


def _run_hover(name: str, run: RunValue, one: Judgement, mark: str) -> str:
    shown = measured(run.value, one.effect.unit, with_unit=True)
    told = f"{shown}, repeat {run.repeat}, place {run.position}, {run.folder}"
    lines = [f"<b>{escape(name, quote=False)}</b>", escape(told, quote=False), mark]
    return "<br>".join(filter(None, lines))


def _run_sheet(title: str, metric: str, rows: Sequence[Row]) -> Sheet:
    unit = DIRECTIONS[metric].unit
    return Sheet(
        title=title,
        columns=headings(("cell", "side", "folder"), ("repeat", "place", "value")),
        rows=tuple(
            (
                cell.place,
                run.side,
                run.folder,
                number(run.repeat, 0),
                number(run.position, 0),
                measured(run.value, unit, with_unit=True),
            )
            for cell, one in rows
            for run in one.effect.values
        ),
    )
