"""The page of a comparison: verdicts on top, a forest of changes, the runs in their order."""

import html
import json
import re
from math import log10

import plotly.graph_objects as go
import pytest
from plotly.offline import get_plotlyjs

from reports.comparison_page import render_comparison, write_comparison
from reports.verdicts import headline
from results.errors import FolderError
from tests.hand_built import (
    EQUAL,
    OPEN,
    SLOW,
    cell,
    everything,
    free,
    gated,
    measured,
    refused,
    told,
)
from tests.test_report_page import seen, without_plotly


def figures(page):
    """The charts of the page by their headings."""
    found = re.findall(
        r'<h3 dir="auto">([^<]*)</h3>\s*<div class="chart".*?<script type="application/json">(.*?)'
        r"</script>",
        without_plotly(page),
        re.DOTALL,
    )
    return {html.unescape(title): json.loads(content) for title, content in found}


def test_the_page_needs_nothing_from_outside():
    page = without_plotly(render_comparison(everything()))
    assert not re.search(r"""(?:src|href)\s*=|@import|\burl\(|https?://""", page)
    assert "default-src 'none'" in page


def test_the_verdicts_come_first():
    account = everything()
    text = seen(render_comparison(account))
    places = [text.index(line) for line in headline(account)]
    assert places == sorted(places)
    assert places[-1] < text.index("Changes")


def test_the_forest_draws_every_change_with_its_interval_before_its_margin():
    rows = [gated("ttft", SLOW), gated("tpot", EQUAL), gated("output_rate", OPEN)]
    charts = figures(render_comparison(told(cell("closed 8", *rows))))
    forest = charts["Gated metrics: change and margin (SIMULATED)"]
    dots = {trace["name"]: trace for trace in forest["data"]}
    assert set(dots) == {"worse", "same", "inconclusive"}
    assert dots["worse"]["x"] == [1.12]
    assert dots["worse"]["error_x"]["array"] == pytest.approx([0.03])
    assert dots["worse"]["error_x"]["arrayminus"] == pytest.approx([0.03])
    assert forest["layout"]["yaxis"]["ticktext"][int(dots["same"]["y"][0])] == "TPOT, closed 8"
    bands = [shape for shape in forest["layout"]["shapes"] if shape["type"] == "rect"]
    assert [(band["x0"], band["x1"]) for band in bands] == [(0.95, 1.05)] * 3
    axis = forest["layout"]["xaxis"]
    assert axis["type"] == "log"
    assert axis["range"][0] < log10(0.95)
    assert axis["range"][1] > log10(1.15)


def test_an_interval_without_end_does_not_widen_the_axis_beyond_use():
    wide = free("ttft", (1.2, 1e-300, 1e300))
    charts = figures(render_comparison(told(cell("closed 8", wide))))
    axis = charts["Exploratory metrics: change and margin (SIMULATED)"]["layout"]["xaxis"]
    assert axis["range"][1] - axis["range"][0] < 2


def test_the_runs_are_drawn_in_their_order_against_the_mean_of_their_base():
    charts = figures(render_comparison(told(cell("closed 8", gated("ttft", SLOW)))))
    base, other = charts["TTFT run by run (SIMULATED)"]["data"]
    assert (base["x"], other["x"]) == ([0, 3, 4, 7], [1, 2, 5, 6])
    assert sum(base["y"]) == pytest.approx(0, abs=0.01)
    assert base["y"] == sorted(base["y"])
    assert min(other["y"]) > 11


def test_plotly_takes_every_chart():
    charts = figures(render_comparison(everything()))
    assert len(charts) == 6
    for chart in charts.values():
        go.Figure(data=chart["data"], layout=chart["layout"])


def test_what_has_no_ratio_is_named_below_the_forest():
    account = told(cell("closed 8", gated("ttft", SLOW), gated("tpot", None)))
    assert "not drawn: TPOT, closed 8: no run tells it" in seen(render_comparison(account))


def test_simulated_is_said_on_top_in_every_table_and_across_every_chart():
    page = render_comparison(everything())
    assert "SIMULATED. These numbers come from a model of an engine" in seen(page)
    for title, chart in figures(page).items():
        assert "(SIMULATED)" in title
        assert [note["text"] for note in chart["layout"]["annotations"]] == ["SIMULATED"]
    captions = re.findall(r"<caption[^>]*>(.*?)</caption>", page)
    told_apart = [one for one in captions if one != "What the sides differ in"]
    assert all("SIMULATED" in caption for caption in told_apart)
    assert "SIMULATED" not in render_comparison(measured(everything()))


def test_a_refusal_has_its_reasons_and_no_chart_no_ratio_and_no_plotly():
    page = render_comparison(refused())
    assert get_plotlyjs() not in page
    text = seen(page).split("What the words mean")[0]
    assert "NVIDIA H200 against NVIDIA H100" in text
    assert not re.search(r"\d %|\d times", text)


def test_a_gap_is_told_and_what_was_judged_is_still_shown():
    account = told(cell("closed 8", gated("ttft", EQUAL)), missing=("closed 32 is not in b",))
    page = render_comparison(account)
    assert "Why not all is judged" in seen(page)
    assert "closed 32 is not in b" in seen(page)
    assert figures(page)


def test_the_page_of_a_gate_says_what_it_came_to_and_that_of_a_comparison_decides_nothing():
    judged = "Rules: no metric is worse by more than its margin"
    decided, plain = (seen(render_comparison(everything(), decides=one)) for one in (True, False))
    assert "Gate FAILED" in decided
    assert judged in decided
    assert "Gate FAILED" not in plain
    assert judged not in plain


def test_no_name_is_taken_for_markup():
    page = without_plotly(render_comparison(everything()))
    assert "<b>|" not in page.replace("\\u003cb>", "")
    assert "&lt;b&gt;|`closed` 64" in page


def test_nothing_absent_is_shown_as_python_writes_it():
    for account in (everything(), refused(), told()):
        page = without_plotly(render_comparison(account))
        assert not re.search(r"\b(nan|inf|None|NaN|Infinity)\b", seen(page))
        assert not re.search(r"\b(NaN|Infinity|None)\b", page)


def test_a_page_is_never_half_written(tmp_path):
    path = tmp_path / "out.html"
    write_comparison(everything(), path)
    assert path.read_text(encoding="utf-8") == render_comparison(everything())
    with pytest.raises(FolderError):
        write_comparison(everything(), tmp_path / "no" / "out.html")
