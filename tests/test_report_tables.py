"""What figures and rows look like in tables."""

import re
from dataclasses import replace
from math import inf, nan

import pytest

from reports.notation import brief, doubt, duration, interval, shared_scale, show
from reports.notes import whose
from reports.tables import sheets, summary_table
from results.figure import Figure, Summary
from tests.test_results_record import cell

CELL = cell(gpus=4, workload={"kind": "growing", "turns": 8}, objectives={})
FIGURES = {
    "sessions": Figure(value=24, unit="count", n=240),
    "requests": Figure(value=240, unit="count", n=240),
    "ok": Figure(value=238, unit="count", n=240),
    "failed": Figure(value=2, unit="count", n=240),
    "cut": Figure(value=0, unit="count", n=240),
    "ttft.p50": Figure(value=0.8123, unit="s", n=238, runs=3, low=0.79, high=0.85),
    "ttft.p90": Figure(value=None, unit="s", n=12, reason="n too small (n=12, needs 64)"),
    "tpot.p50": Figure(value=0.0123, unit="s/token", n=238, low=0.0121, high=0.0126),
    "interactivity.p90": Figure(value=61.24, unit="tok/s/user", n=238),
    "output_rate": Figure(value=1234.5, unit="tok/s", n=238, reason="counted from pieces"),
    "output_rate_per_gpu": Figure(value=308.6, unit="tok/s/GPU", n=238),
    "cache_hit": Figure(value=0.61, unit="share", n=238),
    "cache_ceiling": Figure(value=0.702, unit="share", n=238),
}
GOOD = Summary(
    cell=CELL,
    status="finished",
    reason=None,
    repeats=3,
    provenance="simulated",
    problems=(),
    figures=FIGURES,
)
INVALID = replace(
    GOOD, cell=replace(CELL, arm="sim [bold]x"), problems=("the client was the bottleneck",)
)
FAILED = replace(
    GOOD,
    cell=replace(CELL, arm="vllm TP4"),
    status="failed",
    reason="the server died",
    repeats=1,
    provenance=None,
    figures={},
)


def column(sheet, name):
    """What stands under that heading."""
    place = [column.name for column in sheet.columns].index(name)
    return [row[place] for row in sheet.rows]


TABLE = """\
Results: agents (SIMULATED)

                                                                          TTFT        TPOT  tok/s                 cache
                                               sessions                    p50  TTFT   p50  /user  output  tok/s    hit
 arm                load      status    runs  /requests  failed             ms   p90    ms    p90   tok/s   /GPU      %
 ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
 sim TP4 replay=on  closed 8  finished     3     24/240       2  812 (790–850)   n/a  12.3   61.2  ~1,234    309   61.0
 sim [bold]x        closed 8  INVALID      3     24/240       2  812 (790–850)   n/a  12.3   61.2  ~1,234    309   61.0
 vllm TP4           closed 8  failed       1        n/a     n/a            n/a   n/a   n/a    n/a     n/a    n/a    n/a

± and (a–b) are 95 % intervals; intervals of the other columns: in the report
sim [bold]x, closed 8: INVALID: the client was the bottleneck
vllm TP4, closed 8: failed: the server died
TTFT p90 not shown: n too small (n=12, needs 64)
~ output tok/s: counted from pieces"""  # noqa: E501

PLAIN = """\
Results: agents (SIMULATED), 3 runs a cell

sim TP4 replay=on, closed 8
    sessions/requests 24/240; failed 2; TTFT p50 812 (790–850) ms; TTFT p90
    n/a; TPOT p50 12.3 ms; tok/s/user p90 61.2; output tok/s ~1,234; tok/s/GPU
    309; cache hit 61.0 %

± and (a–b) are 95 % intervals; intervals of the other columns: in the report
TTFT p90 not shown: n too small (n=12, needs 64)
~ output tok/s: counted from pieces"""


def test_a_terminal_gets_a_table_with_every_row():
    assert summary_table([GOOD, INVALID, FAILED], width=130) == TABLE


def test_a_narrow_terminal_gets_paragraphs():
    assert summary_table([GOOD], width=80) == PLAIN


def test_no_line_is_wider_than_the_terminal():
    for width in (40, 80, 100, 110, 120):
        table = summary_table([GOOD, INVALID, FAILED], width=width)
        assert max(map(len, table.splitlines())) <= width


def test_a_terminal_too_narrow_for_all_columns_is_told_which_are_left_out():
    table = summary_table([GOOD, INVALID, FAILED], width=100)
    assert "left out, as the terminal is narrow: cache hit %" in table
    assert "812 (790–850)" in table
    assert "cache hit" not in table.partition("\n\n")[2].partition("left out")[0]


def test_what_gives_way_first_is_the_widest_name_and_no_word_is_broken():
    table = summary_table([GOOD, INVALID, FAILED], width=114)
    assert re.search(r"^ sim TP4 .*\n replay=on$", table, flags=re.MULTILINE)
    assert "left out" not in table


@pytest.mark.parametrize(
    ("low", "high", "shown"),
    [
        (0.0449, 0.0465, "45.7 ±0.8"),
        (0.0449, 0.0475, "45.7 (44.9–47.5)"),
        (0.04568, 0.04572, "45.7 ±0.02"),
        (None, None, "45.7"),
    ],
)
def test_a_short_interval_is_half_its_length_where_it_is_even(low, high, shown):
    figure = Figure(value=0.0457, unit="s", n=9, low=low, high=high)
    assert brief(figure, shared_scale([figure])) == shown


def test_a_column_has_one_unit_and_keeps_milliseconds_below_ten_seconds():
    fast, slow = (Figure(value=value, unit="s", n=9) for value in (0.05, 2.0))
    fit = shared_scale([fast, slow])
    assert [brief(one, fit) for one in (fast, slow)] == ["50.0", "2,000"]
    assert shared_scale([fast, replace(slow, value=12.0)]).unit == "s"


def test_a_run_without_points_has_a_table_that_says_so():
    assert "n/a: no points" in summary_table([], width=80)


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (0.000812, "s", "0.812 ms"),
        (0.9994, "s", "999 ms"),
        (0.9996, "s", "1.00 s"),
        (75.21, "s", "75.2 s"),
        (0.0123, "s/token", "12.3 ms"),
        (9.996, "tok/s", "10.0 tok/s"),
        (1234567.8, "tok/s", "1,234,568 tok/s"),
        (0.8701, "share", "87.0 %"),
        (12.0, "count", "12"),
        (3.456, "count", "3.46"),
        (0.0, "s", "0 ms"),
        (None, "s", "n/a"),
        (nan, "s", "n/a"),
        (inf, "tok/s", "n/a"),
    ],
)
def test_a_figure_is_shown_in_the_unit_it_reads_best_in(value, unit, shown):
    assert show(Figure(value=value, unit=unit, n=5)) == shown


def test_an_interval_has_the_scale_of_its_figure():
    figure = Figure(value=0.9, unit="s", n=5, low=0.8, high=1.1)
    assert interval(figure) == "800–1,100 ms"


def test_a_narrow_interval_has_more_digits_than_its_figure():
    figure = Figure(value=0.0169, unit="s", n=5, low=0.01687, high=0.01692)
    assert interval(figure) == "16.87–16.92 ms"


def test_half_an_interval_is_none():
    assert interval(Figure(value=0.9, unit="s", n=5, low=0.8)) == "n/a"


def test_tables_of_plumbing_say_that_speed_means_nothing():
    assert "means nothing" in summary_table([replace(GOOD, provenance="plumbing")], width=180)


def test_rows_beside_rows_of_another_provenance_say_theirs():
    (sheet,) = sheets([GOOD, replace(GOOD, provenance="measured")])
    assert sheet.title == "Results: agents (partly SIMULATED)"
    assert column(sheet, "status") == ["finished, simulated", "finished, measured"]


def test_what_differs_between_workloads_of_an_experiment_stands_beside_the_load():
    longer = replace(GOOD, cell=replace(CELL, workload={"kind": "growing", "turns": 16}))
    (sheet,) = sheets([longer, GOOD])
    assert column(sheet, "load") == ["closed 8, turns 8", "closed 8, turns 16"]


def test_a_cached_prefix_stands_beside_the_load_though_all_points_share_it():
    workload = {"kind": "single", "prompt": 1024, "output": 4, "cached": 8192}
    cached = replace(GOOD, cell=replace(CELL, workload=workload))
    assert column(sheets([cached])[0], "load") == ["closed 8, cached 8192"]
    cold = replace(GOOD, cell=replace(CELL, workload={**workload, "cached": 0}))
    assert column(sheets([cold])[0], "load") == ["closed 8"]
    assert column(sheets([cached, cold])[0], "load") == [
        "closed 8, cached 0",
        "closed 8, cached 8192",
    ]


def test_rows_stand_by_arm_and_then_by_load_whatever_the_order_of_the_run():
    cells = [
        replace(CELL, arm=arm, load={"kind": "closed", "concurrency": level})
        for level, arm in ((16, "b"), (2, "a"), (2, "b"), (16, "a"))
    ]
    (sheet,) = sheets([replace(GOOD, cell=cell) for cell in cells])
    assert [row[:2] for row in sheet.rows] == [
        ("b", "closed 2"),
        ("b", "closed 16"),
        ("a", "closed 2"),
        ("a", "closed 16"),
    ]


def test_each_experiment_has_a_table_of_its_own():
    other = replace(GOOD, cell=replace(CELL, experiment="cold"))
    assert [sheet.title for sheet in sheets([GOOD, other])] == [
        "Results: agents (SIMULATED)",
        "Results: cold (SIMULATED)",
    ]


def test_the_status_comes_before_all_figures_and_sessions_before_requests():
    (sheet,) = sheets([GOOD])
    names = [column.name for column in sheet.columns]
    assert names[:5] == ["arm", "load", "status", "sessions", "requests"]
    assert column(sheet, "sessions") == ["24\nin 3 runs"]
    assert column(sheet, "requests") == ["240\n238 ok, 2 failed"]


def test_a_figure_of_several_runs_says_so():
    assert doubt(FIGURES["ttft.p50"]) == "790–850 ms, n 238 in 3 runs"
    assert doubt(replace(FIGURES["ttft.p50"], runs=1)) == "790–850 ms, n 238"


def test_reasons_of_one_kind_are_told_once_and_without_another_unit():
    small = "n too small (n={}, needs 64; maximum 0.123 s)"
    points = [
        replace(
            GOOD,
            figures={
                **FIGURES,
                "ttft.p90": Figure(value=None, unit="s", n=n, reason=small.format(n)),
                "tpot.p50": Figure(value=None, unit="s/token", n=n, reason=reason),
            },
        )
        for n, reason in ((7, small.format(7)), (9, "no request has two tokens"))
    ]
    (sheet,) = sheets(points)
    assert sheet.notes[:2] == (
        "TTFT p90, TPOT p50 not shown: n too small (n=7, needs 64) (and 1 more of the kind)",
        "TPOT p50 not shown: no request has two tokens",
    )


def test_why_no_figure_has_an_interval_is_told_once():
    doubt = "too few runs for an interval (2, needs 3)"
    figures = {
        key: replace(figure, low=None, high=None, doubt=doubt) for key, figure in FIGURES.items()
    }
    figures["ttft.p90"] = replace(figures["ttft.p50"])
    (sheet,) = sheets([replace(GOOD, figures=figures)])
    assert f"all figures without interval: {doubt}" in sheet.notes


def test_fixed_batches_have_a_table_of_their_own():
    cell = replace(CELL, workload={"kind": "batch", "requests": 32, "context": 1024})
    figures = {"batch_tpot": Figure(value=0.0105, unit="s/token", n=12)}
    requests, batches = sheets([GOOD, replace(GOOD, cell=cell, figures=figures)])
    assert len(requests.rows) == 1
    assert batches.title == "Fixed batches: agents (SIMULATED)"
    assert column(batches, "batch") == ["batch 32"]
    assert column(batches, "TPOT") == ["10.5 ms\nno interval, n 12"]


def test_goodput_has_a_column_where_limits_were_set():
    limited = replace(GOOD, cell=replace(CELL, objectives={"ttft": 2.0}))
    assert "goodput req/s" not in [column.name for column in sheets([GOOD])[0].columns]
    assert "goodput req/s" in [column.name for column in sheets([limited])[0].columns]


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(59.96, "60.0 s"), (60, "1 min 00 s"), (250.4, "4 min 10 s"), (3725, "1 h 02 min")],
)
def test_lengths_of_time_read_as_people_say_them(seconds, shown):
    assert duration(seconds) == shown


def _beside(*levels, **changes):
    """Good rows of one arm at these concurrencies."""
    cells = [replace(CELL, load={**CELL.load, "concurrency": level, **changes}) for level in levels]
    return [replace(GOOD, cell=cell) for cell in cells]


def test_reasons_of_failed_requests_stand_below_the_table_and_name_their_cells():
    reasons = (("HTTP 429 Too Many Requests", 1), ("the stream broke off", 1))
    low, high = _beside(8, 16)
    (alone,) = sheets([replace(low, failures=reasons)])
    assert "failed: 1 x HTTP 429 Too Many Requests" in alone.notes
    (sheet,) = sheets([low, replace(high, failures=reasons[:1])])
    assert "closed 16: failed: 1 x HTTP 429 Too Many Requests" in sheet.notes
    assert "failed: 3 for other reasons" in sheet.notes


def test_requests_that_were_never_sent_are_named_apart_from_cut_ones():
    low, high = _beside(8, 16)
    unsent = {**FIGURES, "cut": Figure(value=3, unit="count", n=240)}
    unsent |= {"unsent": Figure(value=12, unit="count", n=240)}
    rows = [low, replace(high, figures={**unsent, "ok": Figure(value=223, unit="count", n=240)})]
    (sheet,) = sheets(rows)
    assert column(sheet, "requests")[1] == "240\n223 ok, 2 failed, 3 cut, 12 never sent"
    assert (
        "closed 16: 12 of 240 requests were never sent: they were due, and still waited when the "
        "window ended"
    ) in sheet.notes
    brief = summary_table(rows, width=70)
    assert "failed 2; cut 3; never sent 12;" in " ".join(brief.split())
    assert "never sent" not in summary_table([low], width=70)


def test_a_remark_names_its_rows_and_makes_none_invalid():
    low, high = _beside(8, 16)
    named = replace(high, remarks=("answers name another model than asked for: m-2024",))
    (sheet,) = sheets([low, named])
    assert "closed 16: answers name another model than asked for: m-2024" in sheet.notes
    assert "INVALID" not in "".join(sheet.notes)


def test_remarks_of_a_rows_runs_that_differ_in_one_number_are_told_as_a_span():
    low, high = _beside(8, 16)
    told = [f"GPU 0 of 2 used {joules} J a token" for joules in ("1,210", "990.5", "1,005")]
    named = replace(high, remarks=(*told, "GPU 0 of 2 was busy", "GPU 1 of 3 was busy"))
    (sheet,) = sheets([low, named])
    assert "closed 16: GPU 0 of 2 used 990.5 to 1,210 J a token" in sheet.notes
    assert "closed 16: GPU 1 of 3 was busy" in sheet.notes


def test_remarks_of_rows_that_differ_in_one_number_are_one_line_with_the_rows_at_its_ends():
    rows = _beside(8, 16, 32)
    joules = (("20 J", "24 J"), ("9 J",), ("12 J",))
    told = [
        replace(row, remarks=(*(f"its GPUs used {one} a token" for one in of_row), f"beside TP{n}"))
        for n, (row, of_row) in enumerate(zip(rows, joules, strict=True))
    ]
    (sheet,) = sheets(told)
    assert "its GPUs used 9 to 24 J a token (least in closed 16; most in closed 8)" in sheet.notes
    assert sum("its GPUs used" in note for note in sheet.notes) == 1
    assert "closed 16: beside TP1" in sheet.notes


@pytest.mark.parametrize(
    ("engine", "hinted"),
    [
        ({"kind": "endpoint", "chunk_usage": False}, True),
        ({"kind": "vllm", "chunk_usage": True}, False),
        ({"kind": "sim"}, False),
    ],
)
def test_what_would_make_a_figure_exact_is_said_where_it_was_not_asked_for(engine, hinted):
    reason = "approximate: 3 of 9 requests do not tell the tokens of their pieces"
    figures = {**FIGURES, "output_rate": replace(FIGURES["output_rate"], reason=reason)}
    (sheet,) = sheets(
        [replace(GOOD, cell=replace(CELL, deployment={"engine": engine}), figures=figures)]
    )
    hint = "; engine.chunk_usage: true asks for them" * hinted
    assert f"~ output tok/s: {reason}{hint}" in sheet.notes


def test_the_limits_of_goodput_stand_below_the_table():
    limits = {"ttft": 2.0, "tpot": 0.05, "e2el": None}
    table = summary_table([replace(GOOD, cell=replace(CELL, objectives=limits))], width=130)
    assert "\ngoodput: TTFT <= 2 s, TPOT <= 50 ms\n" in table
    assert "goodput:" not in summary_table([GOOD], width=130)


def test_a_closed_load_that_ran_out_of_sessions_is_not_that_load():
    live = {**FIGURES, "live.mean": Figure(value=2.7, unit="count", n=20)}
    low, high = _beside(3, 16, sessions=20)
    (sheet,) = sheets([replace(one, figures=live) for one in (low, high)])
    told = "on average only 2.70 sessions were live, as they ran out: its load is not 16"
    assert [note for note in sheet.notes if "live" in note] == [f"closed 16: {told}"]


def test_a_load_without_a_number_of_sessions_cannot_run_out_of_them():
    (one,) = _beside(16)
    live = {**FIGURES, "live.mean": Figure(value=2.7, unit="count", n=20)}
    (sheet,) = sheets([replace(one, figures=live)])
    (note,) = [note for note in sheet.notes if "live" in note]
    assert "ran out" not in note


def test_figures_without_interval_name_their_cells_where_others_have_one():
    same = replace(FIGURES["cache_hit"], doubt="the runs are identical")
    low, high = _beside(8, 16)
    one = replace(low, figures={**FIGURES, "cache_hit": same})
    assert "cache hit (closed 8) without interval: the runs are identical" in (
        sheets([one, high])[0].notes
    )
    assert "cache hit without interval: the runs are identical" in sheets([one])[0].notes


def test_most_of_the_rows_are_named_by_those_that_are_not_meant():
    rows = _beside(1, 2, 4, 8)
    assert whose(rows[:3], rows) == "all but closed 8"
    assert whose(rows[:2], rows) == "closed 1; closed 2"
    others = [replace(one, cell=replace(one.cell, arm="other")) for one in rows]
    assert whose(others, [*rows, *others]) == "other"
    assert whose([rows[0], others[0], rows[1]], [*rows, *others]) == (
        "closed 1; sim TP4 replay=on, closed 2"
    )


def test_a_wide_interval_leaves_its_figure_no_digits_that_mean_nothing():
    figure = Figure(value=0.04568, unit="s", n=9, low=0.03368, high=0.05768)
    assert brief(figure, shared_scale([figure])) == "46 ±12"
    assert interval(figure) == "34–58 ms"
    assert show(figure) == "46 ms"
