"""What figures and rows look like in tables."""

from dataclasses import replace
from math import inf, nan

import pytest

from reports.tables import duration, interval, plan_table, sheets, show, summary_table
from results.cell import Cell
from results.figure import Figure, Summary

CELL = Cell(
    id="a1",
    pairing="p1",
    cell="c1",
    name="agents-sim-TP4-on-growing-closed-8-r0",
    experiment="agents",
    arm="sim TP4 replay=on",
    engine="sim",
    gpus=4,
    seed=1,
    repeat=0,
    position=0,
    deployment={},
    workload={"kind": "growing", "turns": 8},
    load={"kind": "closed", "concurrency": 8},
    objectives={},
)
FIGURES = {
    "requests": Figure(value=240, unit="count", n=240),
    "ok": Figure(value=238, unit="count", n=240),
    "failed": Figure(value=2, unit="count", n=240),
    "cut": Figure(value=0, unit="count", n=240),
    "ttft.p50": Figure(value=0.8123, unit="s", n=238, low=0.79, high=0.85),
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

TABLE = """\
Results (SIMULATED)

                                                                       ok,                                                                                cache
                                                                   failed,     TTFT          TTFT      TPOT   tok/s/user   output                           hit
  experiment   arm                 load       repeats   requests       cut      p50           p90       p50          p90    tok/s   tok/s/GPU         (ceiling)   status
 ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
  agents       sim TP4 replay=on   closed 8         3        240   238/2/0   812 ms   n too small   12.3 ms         61.2   ~1,234         309   61.0 % (70.2 %)   finished
  agents       sim [bold]x         closed 8         3        240   238/2/0   812 ms   n too small   12.3 ms         61.2   ~1,234         309   61.0 % (70.2 %)   INVALID
  agents       vllm TP4            closed 8         1        n/a       n/a      n/a           n/a       n/a          n/a      n/a         n/a               n/a   failed

agents, sim [bold]x, closed 8: INVALID: the client was the bottleneck
agents, vllm TP4, closed 8: failed: the server died
TTFT p90 not shown: n too small (n=12, needs 64)
~ output: counted from pieces"""  # noqa: E501

PLAIN = """\
Results (SIMULATED)

agents, sim TP4 replay=on, closed 8
    repeats 3; requests 240; ok, failed, cut 238/2/0; TTFT p50 812 ms; TTFT
    p90 n too small; TPOT p50 12.3 ms; tok/s/user p90 61.2; output tok/s
    ~1,234; tok/s/GPU 309; cache hit (ceiling) 61.0 % (70.2 %); status
    finished

TTFT p90 not shown: n too small (n=12, needs 64)
~ output: counted from pieces"""


def test_a_wide_terminal_gets_a_table_with_every_row():
    assert summary_table([GOOD, INVALID, FAILED], width=180) == TABLE


def test_a_narrow_terminal_gets_paragraphs():
    assert summary_table([GOOD], width=80) == PLAIN


def test_no_line_of_plain_text_is_wider_than_the_terminal():
    assert max(map(len, summary_table([GOOD], width=40).splitlines())) <= 40


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


def test_half_an_interval_is_none():
    assert interval(Figure(value=0.9, unit="s", n=5, low=0.8)) == "n/a"


def test_tables_of_plumbing_say_that_speed_means_nothing():
    assert "means nothing" in summary_table([replace(GOOD, provenance="plumbing")], width=180)


def test_rows_beside_rows_of_another_provenance_say_theirs():
    (sheet,) = sheets([GOOD, replace(GOOD, provenance="measured")])
    assert sheet.title == "Results (partly SIMULATED)"
    assert [row[-1] for row in sheet.rows] == ["finished, simulated", "finished, measured"]


def test_what_differs_between_workloads_of_an_experiment_stands_beside_the_load():
    longer = replace(GOOD, cell=replace(CELL, workload={"kind": "growing", "turns": 16}))
    (sheet,) = sheets([GOOD, longer])
    assert [row[2] for row in sheet.rows] == ["closed 8, turns 8", "closed 8, turns 16"]


def test_fixed_batches_have_a_table_of_their_own():
    cell = replace(CELL, workload={"kind": "batch", "requests": 32, "context": 1024})
    figures = {"batch_tpot": Figure(value=0.0105, unit="s/token", n=12)}
    requests, batches = sheets([GOOD, replace(GOOD, cell=cell, figures=figures)])
    assert len(requests.rows) == 1
    assert batches.rows[0][2:6] == ("batch 32", "3", "12", "10.5 ms")


def test_goodput_has_a_column_where_limits_were_set():
    limited = replace(GOOD, cell=replace(CELL, objectives={"ttft": 2.0}))
    assert "goodput req/s" not in [column.name for column in sheets([GOOD])[0].columns]
    assert "goodput req/s" in [column.name for column in sheets([limited])[0].columns]


def test_a_plan_has_every_key_of_every_row():
    table = plan_table([{"point": "a", "command": "vllm serve"}, {"point": "b", "note": "x"}], 80)
    assert table.startswith("Plan: 2 points")
    assert all(word in table for word in ("point", "command", "note", "vllm serve"))


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(59.96, "60.0 s"), (60, "1 min 00 s"), (250.4, "4 min 10 s"), (3725, "1 h 02 min")],
)
def test_lengths_of_time_read_as_people_say_them(seconds, shown):
    assert duration(seconds) == shown
