"""What charts draw, join, mark and leave out."""

from dataclasses import replace
from itertools import product

import plotly.graph_objects as go
import pytest

from reports.charts import charts, styles
from reports.notation import doubt, show
from results.figure import Figure, Summary
from tests.test_results_record import cell

CELL = cell(arm="TP4", gpus=4, workload={"kind": "growing", "turns": 8}, objectives={})


def _about(value, unit, n=100):
    return Figure(value=value, unit=unit, n=n, low=value * 0.9, high=value * 1.2)


def _point(arm="TP4", concurrency=8, **changes):
    base = float(concurrency)
    summary = Summary(
        cell=replace(CELL, arm=arm, load={"kind": "closed", "concurrency": concurrency}),
        status="finished",
        reason=None,
        repeats=1,
        provenance="measured",
        problems=(),
        figures={
            "ttft.p50": _about(0.05 * base, "s"),
            "ttft.p90": _about(0.1 * base, "s"),
            "interactivity.p50": _about(200 / base, "tok/s/user"),
            "interactivity.p90": _about(100 / base, "tok/s/user"),
            "output_rate_per_gpu": _about(50 * base, "tok/s/GPU"),
            "total_rate_per_gpu": _about(5000 * base, "tok/s/GPU"),
        },
    )
    return replace(summary, **changes)


def _without(summary, key, reason):
    absent = Figure(value=None, unit="s", n=12, reason=reason)
    return replace(summary, figures={**summary.figures, key: absent})


def _batch(size, context=1024):
    workload = {"kind": "batch", "requests": size, "context": context, "output": 64}
    figures = {
        "batch_size": Figure(value=float(size), unit="count", n=12),
        "batch_tpot": _about(0.01 + size / 1000, "s/token"),
        "batch_rate_per_gpu": _about(25.0 * size, "tok/s/GPU"),
    }
    return _point(cell=replace(CELL, workload=workload), figures=figures)


def _single(prompt, arm="TP4"):
    workload = {"kind": "single", "prompt": prompt, "output": 8, "cached": 0}
    return _point(cell=replace(CELL, arm=arm, workload=workload))


def _drawn(*summaries):
    return charts(summaries, styles(summary.cell.arm for summary in summaries))


def test_points_stand_in_the_order_of_load_whatever_the_order_of_the_run():
    latency, _ = _drawn(_point(concurrency=16), _point(concurrency=2), _point(concurrency=4))
    (line,) = latency.figure["data"]
    assert line["text"] == ["2", "4", "16"]
    assert line["x"] == [10000, 20000, 80000]


def test_ttft_is_the_slow_tail_where_every_point_has_it():
    latency, _ = _drawn(_point(concurrency=2), _point(concurrency=4))
    assert latency.figure["layout"]["yaxis"]["title"]["text"] == "TTFT p90 (ms)"
    assert latency.figure["data"][0]["y"] == pytest.approx([200, 400])


def test_ttft_is_the_median_where_one_point_has_no_tail_and_the_axis_says_so():
    short = _without(_point(concurrency=2), "ttft.p90", "n too small (n=12, needs 64)")
    latency, _ = _drawn(short, _point(concurrency=40))
    assert latency.figure["layout"]["yaxis"]["title"]["text"] == "TTFT p50 (s)"
    assert latency.figure["data"][0]["y"] == pytest.approx([0.1, 2.0])


def test_whiskers_end_where_the_interval_ends():
    latency, _ = _drawn(_point(concurrency=2))
    whiskers = latency.figure["data"][0]["error_y"]
    assert whiskers["array"] == pytest.approx([40.0])
    assert whiskers["arrayminus"] == pytest.approx([20.0])


def test_a_point_that_is_not_valid_is_hollow_grey_and_joined_to_no_line():
    bad = _point(concurrency=4, problems=("the client was the bottleneck",))
    latency, _ = _drawn(_point(concurrency=2), bad, _point(concurrency=8))
    line, apart = latency.figure["data"]
    assert line["text"] == ["2", "8"]
    assert apart["text"] == ["4"]
    assert "lines" not in apart["mode"]
    assert apart["marker"]["symbol"] == "circle-open"
    assert apart["marker"]["color"] != line["marker"]["color"]
    assert "the client was the bottleneck" in apart["hovertext"][0]


def test_what_cannot_be_drawn_is_listed_with_its_reason():
    lost = _point(concurrency=4)
    for key in ("total_rate_per_gpu", "output_rate_per_gpu"):
        lost = _without(lost, key, "the window has no length")
    dead = _point("DEP8", 2, status="failed", reason="the server died", figures={})
    latency, interactivity = _drawn(_point(concurrency=2), lost, dead)
    assert latency.missing == (
        "not drawn: TP4, closed 4: input + output per GPU: the window has no length",
        "not drawn: DEP8, closed 2: failed: the server died",
    )
    assert len(latency.sheet.rows) == len(interactivity.sheet.rows) == 3


def test_a_chart_without_any_point_has_a_table_and_no_figure():
    latency, _ = _drawn(_point(status="failed", reason="the server died", figures={}))
    assert latency.figure is None
    assert latency.sheet.rows[0][:3] == ("TP4", "closed 8", "failed")


def test_an_arm_looks_the_same_in_every_chart_and_no_two_arms_look_alike():
    looks = styles(f"arm {number}" for number in range(280))
    assert len(set(looks.values())) == 280
    looks = styles(["DEP8", "TP4"])
    drawn = charts([_point("TP4"), _point("DEP8", 4)], looks)
    for line in (line for chart in drawn for line in chart.figure["data"]):
        look = looks[line["name"]]
        assert line["line"]["color"] == look.colour
        assert line["line"]["dash"] == look.dash
        assert line["marker"]["symbol"] == look.symbol


def test_arms_that_coincide_can_both_be_seen_and_read():
    latency, _ = _drawn(_point("off"), _point("on"))
    below, above = latency.figure["data"]
    assert below["x"] == above["x"]
    assert below["zorder"] < above["zorder"]
    assert below["marker"]["size"] > above["marker"]["size"]
    assert below["line"]["width"] > above["line"]["width"]
    assert {below["textposition"], above["textposition"]} == {"top left", "bottom right"}


def test_a_point_without_interval_says_why_in_its_hover_text():
    bare = Figure(value=0.2, unit="s", n=9, runs=2, doubt="too few runs (2, needs 3)")
    point = _point()
    latency, _ = _drawn(replace(point, figures={**point.figures, "ttft.p90": bare}))
    (told,) = latency.figure["data"][0]["hovertext"]
    assert "TTFT p90 200 ms (no interval, n 9 in 2 runs)<br>no interval: too few runs" in told


def test_why_a_point_is_not_drawn_names_no_maximum_in_another_unit():
    reason = "n too small (n=7, needs 64; maximum 0.123 s)"
    short = _without(_without(_point(), "ttft.p90", reason), "ttft.p50", reason)
    latency, _ = _drawn(short)
    assert latency.missing == ("not drawn: TP4, closed 8: TTFT p90: n too small (n=7, needs 64)",)


def test_a_cached_prefix_is_in_the_title_and_at_every_point():
    points = [_single(prompt) for prompt in (1024, 8192)]
    cached = [
        replace(one, cell=replace(one.cell, workload={**one.cell.workload, "cached": 4096}))
        for one in points
    ]
    (chart,) = _drawn(*cached)
    assert chart.title == "TTFT against prompt length: cached 4096"
    assert "prompt 1024, closed 8, cached 4096" in chart.figure["data"][0]["hovertext"][0]
    (cold,) = _drawn(*points)
    assert cold.title == "TTFT against prompt length"


def test_simulated_charts_say_so_in_title_and_drawing():
    for chart in _drawn(_point(provenance="simulated")):
        assert "SIMULATED" in chart.title
        assert "SIMULATED" in chart.sheet.title
        assert chart.figure["layout"]["annotations"][0]["text"] == "SIMULATED"
        assert "SIMULATED" in chart.figure["data"][0]["hovertext"][0]
    for chart in _drawn(_point()):
        assert chart.figure["layout"]["annotations"] == []


def test_batches_have_a_tick_at_every_size_and_a_panel_for_each_figure():
    (chart,) = _drawn(_batch(8), _batch(1), _batch(2))
    layout = chart.figure["layout"]
    assert layout["xaxis"]["type"] == layout["xaxis2"]["type"] == "log"
    assert layout["xaxis"]["ticktext"] == ["1", "2", "8"]
    assert layout["yaxis"]["title"]["text"] == "batch output (tok/s/GPU)"
    assert layout["yaxis2"]["title"]["text"] == "batch TPOT (ms)"
    rate, tpot = chart.figure["data"]
    assert rate["y"] == pytest.approx([25, 50, 200])
    assert tpot["y"] == pytest.approx([11, 12, 18])


def test_batches_of_other_contexts_have_a_chart_of_their_own():
    titles = [chart.title for chart in _drawn(_batch(1), _batch(2), _batch(1, 65536))]
    assert [title.partition(": ")[2] for title in titles] == ["context 1024", "context 65536"]


def test_prompt_lengths_of_single_requests_stand_across_one_chart():
    pairs = product((1024, 8192), ("TP4", "DEP8"))
    (chart,) = _drawn(*(_single(prompt, arm) for prompt, arm in pairs))
    assert chart.figure["layout"]["xaxis"]["title"]["text"] == "prompt length (tokens)"
    assert [line["x"] for line in chart.figure["data"]] == [[1024, 8192]] * 2


def test_the_table_of_a_chart_has_every_figure_with_interval_and_n():
    points = [_point(concurrency=level) for level in (2, 16)]
    for chart, keys in zip(
        _drawn(*points),
        (("ttft.p50", "ttft.p90", "total_rate_per_gpu"), ("interactivity.p90",)),
        strict=True,
    ):
        for point, row in zip(points, chart.sheet.rows, strict=True):
            for key in keys:
                figure = point.figures[key]
                assert f"{show(figure)}\n{doubt(figure)}" in row


def test_names_are_escaped_where_plotly_would_read_them_as_markup():
    latency, _ = _drawn(_point("<b>&amp;"))
    (line,) = latency.figure["data"]
    assert line["name"] == "&lt;b&gt;&amp;amp;"
    assert "&lt;b&gt;&amp;amp;" in line["hovertext"][0]


def test_every_figure_is_one_that_plotly_takes():
    good, bad = _point(concurrency=2), _point(concurrency=64, problems=("why",))
    for chart in [*_drawn(good, bad), *_drawn(_batch(1)), *_drawn(_single(1), _single(2))]:
        assert go.Figure(chart.figure).data
