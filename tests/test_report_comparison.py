"""What a comparison says to a reader, in words and tables."""

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reports.comparison import comparison_text
from reports.gate import answer, gate_text, verdict_line
from reports.notation import by, changed, percent
from reports.verdicts import headline, limit
from results.contrast import IDENTICAL, Drift
from results.verdict import Margin, judge
from tests.hand_built import (
    EQUAL,
    MATCHED,
    OPEN,
    SLOW,
    bad,
    cell,
    effect,
    everything,
    free,
    gated,
    measured,
    refused,
    request,
    told,
)

FASTER = (0.88, 0.85, 0.91)

TEXT = """\
SIMULATED. graphs is 12.0 % slower than eager in TTFT p90 (95 % interval 9.0 to 15.0 %).

base:  eager
other: graphs

closed 8, 4 + 4 runs: gated (SIMULATED)

 metric      base   other                   change  margin    MDD  verdict
 ─────────────────────────────────────────────────────────────────────────
 TTFT p90  800 ms  896 ms  +12.0 % (+9.0 to +15.0)     5 %  3.8 %  worse

closed 8, 4 + 4 runs: exploratory, no rule names them (SIMULATED)

 metric       base   other                 change  margin    MDD  verdict
 ─────────────────────────────────────────────────────────────────────────────
 TPOT       800 ms  802 ms  +0.3 % (-0.9 to +1.5)     5 %  1.7 %  same
 cache hit  80.0 %     n/a                    n/a     5 %    n/a  inconclusive

cache hit: inconclusive: the server does not tell it

requests: 1,234 on both sides, in 24 sessions; 3.2 % of all were answered by one side only; of the
    side that answered fewer, 0.4 % are missing on the other

MDD: the smallest difference that such runs show in 80 of 100 cases; changes are other against base,
    with 95 % intervals
12 % slower is 12 % more time, or 12 % fewer tokens a second for a user"""


STILL = {"how": "no spread", "reason": IDENTICAL}
"""What an effect of runs has that are all alike on each side."""


def said(*cells, **changes):
    return list(headline(measured(told(*cells, **changes))))


def test_the_whole_text_of_one_cell():
    absent = free("cache_hit", None, base=0.8, reason="the server does not tell it")
    one = cell("closed 8", gated("ttft.p90", SLOW), free("tpot", EQUAL, matched=MATCHED), absent)
    assert comparison_text(told(one)) == TEXT


@pytest.mark.parametrize(
    ("metric", "change", "told"),
    [
        ("ttft.p90", "slow", "slower than eager in TTFT p90"),
        ("ttft.p90", "fast", "faster than eager in TTFT p90"),
        ("output_rate", "fast", "lower than eager in output, which is worse"),
        ("interactivity.p90", "fast", "slower than eager in interactivity p90"),
    ],
)
def test_the_first_line_says_which_way_by_how_much_and_how_sure(metric, change, told):
    one = gated(metric, {"slow": SLOW, "fast": FASTER}[change])
    assert said(cell("closed 8", one)) == [
        f"graphs is 12.0 % {told} (95 % interval 9.0 to 15.0 %)."
    ]


def test_over_several_cells_the_line_counts_them_and_names_the_one_that_changed_most():
    six = [cell(f"closed {load}", gated("ttft", (1.1, 1.07, 1.13))) for load in (1, 2, 4, 8, 16)]
    assert said(*six, cell("closed 32", gated("ttft", SLOW))) == [
        "graphs is slower than eager in TTFT in 6 of 6 cells; most in closed 32: 12.0 % (95 % "
        "interval 9.0 to 15.0 %)."
    ]


def test_cells_that_disagree_are_told_apart_the_worse_first():
    cells = [
        cell("closed 1", gated("ttft", FASTER)),
        cell("closed 8", gated("ttft", SLOW)),
        cell("closed 16", gated("ttft", EQUAL)),
    ]
    assert said(*cells) == [
        "graphs is slower than eager in TTFT in 1 of 3 cells; in closed 8: 12.0 % (95 % interval "
        "9.0 to 15.0 %); graphs is faster than eager in TTFT in 1 of 3 cells; in closed 1: 12.0 % "
        "(95 % interval 9.0 to 15.0 %); graphs and eager are the same in TTFT, within 5 % in 1 of "
        "3 cells: in closed 16: +0.3 % (95 % interval -0.9 to +1.5 %); smallest detectable "
        "difference 1.7 %."
    ]


def test_what_is_not_decided_says_why_and_how_many_more_runs_would():
    one = gated("ttft", OPEN)
    assert one.more_runs
    assert said(cell("closed 8", one)) == [
        "not decided in TTFT: +3.0 % (95 % interval -3.0 to +9.4 %); it may not have changed at "
        f"all, or by as much as the margin; {one.more_runs} more runs a side "
        f"({one.runs_needed} in all) would decide."
    ]


@pytest.mark.parametrize(
    ("change", "way"),
    [
        ((1.06, 0.98, 1.14), "about 8 runs a side would show it worse"),
        ((0.5, 0.05, 1.7), "about 11 runs a side would show it better"),
        (
            (1.06, 0.01, 2.11),
            "as many runs as make the interval narrower than ±6 % would show it worse",
        ),
        (
            (1.0499, 0.97, 1.13),
            "as many runs as make the interval narrower than ±0.01 % would show it within the "
            "margin",
        ),
    ],
)
def test_what_no_number_of_runs_shows_the_same_says_what_they_would_show(change, way):
    one = gated("ttft", change)
    assert one.runs_needed is None
    assert said(cell("closed 8", one))[0].endswith(f"; {way}, if the change is as seen.")


def test_one_pair_of_runs_is_labelled_as_such():
    one = gated("ttft", SLOW, how="one pair", runs=(1, 1))
    assert (
        "+12.0 % in this pair of runs alone (95 % interval +9.0 to +15.0 %)"
        in said(cell("closed 8", one))[0]
    )
    text = comparison_text(told(cell("closed 8", one, runs=(1, 1))))
    assert "~+12.0 % (+9.0 to +15.0)" in text
    assert "~ holds for this pair of runs only" in text


def test_without_rules_a_few_metrics_lead_and_all_are_called_exploratory():
    one = cell("closed 8", free("ttft", SLOW), free("itl.p99", SLOW), free("goodput", EQUAL))
    lines = said(one)
    assert len(lines) == 1
    assert "TTFT" in lines[0]
    text = comparison_text(told(one))
    assert "rules: no metric is named by one, so every verdict is exploratory" in text
    assert "1 more metric, exploratory: 1 worse (ITL p99)" in text


def test_a_fixed_batch_is_told_as_a_whole_unless_a_rule_is_about_its_requests():
    batch = {"kind": "batch", "requests": 8}
    times = free("ttft", OPEN), free("tpot", OPEN), free("batch_tpot", SLOW)
    one = cell("batch 8", *times, workload=batch)
    assert [line.partition(" (")[0] for line in said(one)] == [
        "graphs is 12.0 % slower than eager in batch TPOT"
    ]
    text = comparison_text(told(one))
    assert text.count("TPOT  ") == 1
    assert "2 more metrics, exploratory: 2 inconclusive" in text
    ruled = cell("batch 8", gated("ttft", SLOW), *times[1:], workload=batch)
    assert said(ruled)[0].startswith("graphs is 12.0 % slower than eager in TTFT")


def test_a_rule_that_holds_in_some_cells_is_not_mixed_with_the_others():
    lines = said(cell("closed 1", gated("ttft", SLOW)), cell("closed 8", free("ttft", FASTER)))
    assert lines == ["graphs is 12.0 % slower than eager in TTFT (95 % interval 9.0 to 15.0 %)."]


def test_a_refusal_names_key_values_and_way_out_and_shows_no_ratio():
    text = comparison_text(refused())
    assert text.startswith("SIMULATED. Not compared: 1 reason stands in the way")
    assert re.search(
        r"refused: environment\.gpus\.name: NVIDIA H200 against NVIDIA H100: .*"
        r"--allow\s+environment\.gpus\.name",
        text,
        re.DOTALL,
    )
    assert not re.search(r"\d %|times|worse|better|same", text)


def test_a_cell_that_is_not_valid_is_named_with_its_reason():
    broken = cell("closed 16", bad("ttft"), problems=("ab: the client was the bottleneck",))
    lines = said(cell("closed 8", gated("ttft", SLOW)), broken)
    assert lines[-1] == ("1 cell of 2 must not be judged, as runs in it are not valid: closed 16.")
    text = comparison_text(told(broken))
    assert "not judged: ab: the client was the bottleneck" in text


def test_cells_of_one_side_and_allowed_keys_are_told():
    text = comparison_text(everything())
    assert "not compared: agents-closed-32 (sim TP4) is on one side only" in text
    assert "allowed to differ: environment.gpus" in text
    assert "failed requests, which are in no latency: 3 of 1,300 (base), 0 of 1,290 (other)" in text
    names = tuple(f"agents-closed-{level}" for level in range(9))
    several = comparison_text(told(cell("closed 8", free("ttft", SLOW)), unmatched=names))
    assert several.count("not compared") == 1
    assert "agents-closed-2 and 6 more" in " ".join(several.split())


def test_what_rules_are_about_and_nobody_ran_is_told_and_never_passes():
    account = told(
        cell("closed 8", gated("ttft", EQUAL)), missing=("closed 32 is not in b: run it too",)
    )
    text = comparison_text(account)
    assert "Not all that rules are about was judged: 1 gap, each told below." in text
    assert "missing: closed 32 is not in b: run it too" in text
    assert answer(account) == "invalid"


def test_nothing_in_common_is_said():
    assert said(unmatched=("a", "b")) == [
        "Nothing to compare: eager and graphs have no workload under one load in common."
    ]


def test_a_drift_is_told_only_where_it_is_sure():
    sure, unsure = Drift(slope=0.012, low=0.008, high=0.016), Drift(slope=0.0, low=-0.1, high=0.1)
    assert (
        "drift from run to run: TTFT +1.20 % (95 % interval +0.80 to +1.60 %), +8.7 % over all runs"
    ) in drifting(sure)
    assert drifting(unsure).endswith(NO_DRIFT)


def test_a_drift_is_told_only_where_its_size_over_all_runs_matters():
    # Half of the margin are 2.5 %; seven runs on, 0.3 % a run are 2.1 %, and 0.4 % are 2.8 %.
    small, large = (Drift(slope=one, low=one - 1e-4, high=one + 1e-4) for one in (0.003, 0.004))
    assert drifting(small).endswith(NO_DRIFT)
    assert "+2.8 % over all runs" in drifting(large)


def test_a_drift_is_told_only_where_it_is_sure_among_all_that_are_looked_at():
    # 0.8 % of 0.5 % to either side: 3.1 standard errors, p = 0.0017; 0.05 / 40 = 0.00125.
    drift = Drift(slope=0.008, low=0.003, high=0.013)
    assert "+0.80 %" in drifting(drift)
    assert drifting(drift, cells=40).endswith(NO_DRIFT)


NO_DRIFT = "drift from run to run: none that matters is shown in any metric above"


def drifting(drift: Drift, cells: int = 1) -> str:
    """What is said of the last cell, of so many in which TTFT drifted so over eight runs."""
    one = gated("ttft", SLOW, drift=replace(drift, steps=7.0))
    text = comparison_text(told(*(cell(f"closed {number + 1}", one) for number in range(cells))))
    return " ".join(text.split("\n\n")[-2].split())


def test_paths_are_called_base_and_other():
    assert said(cell("closed 8", gated("ttft", SLOW)), base="runs/a", other="runs/b")[0].startswith(
        "other is 12.0 % slower than base"
    )


def test_simulated_is_said_in_every_first_line_and_table():
    text = comparison_text(everything())
    first = text.split("\n\n")[0]
    starts = [line for line in first.splitlines() if not line.startswith("    ")]
    assert all(line.startswith("SIMULATED. ") for line in starts)
    titles = [line for line in text.splitlines() if " runs: " in line]
    assert len(titles) > 2
    assert all("(SIMULATED)" in title for title in titles)
    assert "SIMULATED" not in comparison_text(measured(everything()))


@pytest.mark.parametrize(
    ("judgements", "expected"),
    [
        ([gated("ttft", EQUAL)], "pass"),
        ([gated("ttft", EQUAL), gated("tpot", SLOW)], "fail"),
        ([gated("ttft", OPEN), gated("tpot", SLOW)], "fail"),
        ([gated("ttft", OPEN), gated("tpot", EQUAL)], "inconclusive"),
        ([gated("ttft", OPEN), bad("tpot")], "invalid"),
        ([gated("ttft", SLOW), bad("tpot")], "fail"),
        ([free("ttft", SLOW)], "invalid"),
    ],
)
def test_a_gate_has_one_answer(judgements, expected):
    assert answer(told(cell("closed 8", *judgements))) == expected


def test_a_refused_comparison_never_passes_a_gate():
    assert answer(refused()) == "invalid"
    assert verdict_line(refused()) == (
        "Gate REFUSED (SIMULATED): the sides are not compared, for 1 reason."
    )


def test_an_invalid_cell_spoils_a_gate_that_would_pass():
    good = cell("closed 8", gated("ttft", EQUAL))
    assert answer(told(good, cell("closed 16", problems=("it broke",)))) == "invalid"


def test_a_failed_gate_lists_what_failed_first_then_what_moved_and_how_to_confirm():
    one = cell(
        "closed 8", gated("tpot", EQUAL), gated("ttft", SLOW), moved=(request(), request(turn=4))
    )
    lines = gate_text(told(one)).splitlines()
    assert lines[0] == "Gate FAILED (SIMULATED): of 2 rules 1 failed, 1 passed."
    rules = [line.split()[0] for line in lines if re.search(r"closed 8  +\+", line)]
    assert rules == ["FAIL", "pass"]
    moved = next(line for line in lines if "t-7" in line)
    assert re.split(r"  +", moved.strip()) == (
        ["TTFT", "closed 8", "t-7", "main", "3", "0", "800 ms", "1.20 s", "1.50 times"]
    )
    assert lines[-1] == "    paceline run suites/ab.yaml --new"


def test_at_most_ten_requests_are_named_the_slowest_first():
    moved = tuple(request(turn=turn, other=0.8 + turn / 10) for turn in range(1, 15))
    text = gate_text(told(cell("closed 8", gated("ttft", SLOW), moved=moved)))
    turns = [int(line.split()[5]) for line in text.splitlines() if "t-7" in line]
    assert turns == list(range(14, 4, -1))


def test_an_inconclusive_gate_says_how_to_decide_it():
    text = gate_text(told(cell("closed 8", gated("ttft", OPEN))))
    assert text.startswith("Gate INCONCLUSIVE (SIMULATED): of 1 rule 1 inconclusive.")
    assert text.endswith("    paceline run suites/ab.yaml --set repeats=8 --new")


def test_what_is_worse_by_less_than_its_margin_is_not_decided_by_a_gate():
    one = gated("ttft", (1.04, 1.02, 1.06))
    text = " ".join(gate_text(told(cell("closed 8", one))).split())
    assert text.startswith("Gate INCONCLUSIVE (SIMULATED): of 1 rule 1 inconclusive.")
    assert (
        "TTFT, closed 8: worse: it is worse, though by less than the margin as far as these runs "
        f"tell; {one.more_runs} more runs a side ({one.runs_needed} in all) would decide"
    ) in text
    assert text.endswith("--set repeats=8 --new")
    compared = " ".join(comparison_text(told(cell("closed 8", one))).split())
    assert "TTFT: worse: it is worse, though by less than the margin" in compared


def test_a_margin_says_where_it_comes_from_where_it_is_no_share_of_base():
    def margin(**parts):
        one = judge(effect("ttft", EQUAL, base=0.08), Margin(**parts), floor=0.06, gated=True)
        account = told(cell("closed 8", one))
        assert limit(one) in comparison_text(account)
        assert limit(one) in gate_text(account)
        return limit(one)

    assert margin(relative=0.05) == "5 %"
    assert margin(relative=0.05, absolute=0.02) == "25 % (20 ms)"
    assert margin(relative=0.30, absolute=0.02) == "30 %"
    assert margin(relative=0.05, noise=2) == "12 % (2x noise)"
    assert margin(absolute=0.02, noise=2) == "25 % (20 ms)"
    share = judge(effect("cache_hit", EQUAL, base=0.8), Margin(absolute=0.02))
    assert limit(share) == "2.5 % (2 points)"
    rate = judge(effect("output_rate", EQUAL, base=1000.0), Margin(absolute=50))
    assert limit(rate) == "5 % (50 tok/s)"
    assert limit(judge(effect("tpot", EQUAL), Margin(absolute=0.08))) == "10 % (80 ms/token)"


def test_a_gate_says_what_is_the_same_and_yet_not_nothing():
    certain = (1.03, 1.02, 1.04)
    cells = [cell(f"closed {load}", gated("ttft", certain)) for load in (1, 8)]
    text = " ".join(gate_text(told(*cells)).split())
    assert (
        "TTFT, closed 1; TTFT, closed 8: same: the whole interval lies within the margin, though "
        "it is not nothing"
    ) in text


def test_runs_that_do_not_vary_at_all_are_told_below_and_not_in_the_first_lines():
    still = gated("cache_hit", (1.1, 1.1, 1.1), low=None, high=None, p=None, **STILL)
    assert said(cell("closed 8", still, gated("ttft", EQUAL)))[0].startswith("graphs and eager are")
    assert len(said(cell("closed 8", still, gated("ttft", EQUAL)))) == 1
    (line,) = said(cell("closed 8", still))
    assert line == f"Nothing is decided, as {IDENTICAL}: cache hit +10.0 % (no interval)."
    text = " ".join(comparison_text(told(cell("closed 8", still))).split())
    assert f"cache hit: inconclusive: {IDENTICAL}" in text
    assert not re.search("one pair|this pair of runs|more runs", text)
    assert (still.gate, still.runs_needed) == ("inconclusive", None)


def test_what_leads_and_does_not_vary_is_said_with_its_size():
    still = [
        free(name, (1.3, 1.3, 1.3), low=None, high=None, p=None, **STILL)
        for name in ("ttft", "tpot", "itl.p99")
    ]
    (line,) = said(cell("open 2", *still))
    told = "TTFT +30.0 % (no interval), TPOT +30.0 % (no interval)."
    assert line == f"Nothing is decided, as {IDENTICAL}: {told}"
    same, line = said(cell("open 2", *still, free("output_rate_per_gpu", EQUAL)))
    assert "are the same in output per GPU" in same
    assert line == f"Not decided, as {IDENTICAL}: {told}"


def test_batches_beside_another_workload_do_not_speak_for_it():
    batch = {"kind": "batch", "requests": 8}
    cells = [
        cell(f"batch {size}", free("batch_tpot", EQUAL), free("tpot", EQUAL), workload=batch)
        for size in (1, 8, 32)
    ]
    lines = said(*cells, cell("closed 8", free("tpot", SLOW)))
    assert lines[0] == "graphs is 12.0 % slower than eager in TPOT (95 % interval 9.0 to 15.0 %)."
    assert lines[1].startswith("graphs and eager are the same in batch TPOT, within 5 % in 3 of 3")


def test_a_batch_whose_requests_surely_wait_longer_says_so():
    batch = {"kind": "batch", "requests": 8}
    times = free("ttft", (20.0, 19.0, 21.0)), free("tpot", SLOW), free("batch_tpot", EQUAL)
    lines = said(cell("batch 8", *times, workload=batch))
    assert "slower than eager in TTFT" in lines[0]
    assert "the same in batch TPOT" in lines[1]
    assert len(lines) == 2


def test_output_per_gpu_leads_also_where_one_cell_of_it_says_nothing():
    still = free("output_rate_per_gpu", (2.0, 2.0, 2.0), low=None, high=None, p=None, **STILL)
    alike = free("output_rate", EQUAL)
    cells = [cell("closed 1", still, alike)]
    cells += [
        cell(f"closed {n}", free("output_rate_per_gpu", (1.94, 1.93, 1.95)), alike) for n in (4, 16)
    ]
    (line,) = said(*cells)
    assert line.startswith("graphs is higher than eager in output per GPU in 2 of 3 cells")


def test_a_rule_passes_where_it_is_surely_no_worse_though_not_the_same():
    one = gated("ttft", (0.97, 0.91, 1.03))
    assert (one.verdict, one.gate) == ("inconclusive", "pass")
    assert "inconclusive, but surely no worse" in gate_text(told(cell("closed 8", one)))


def test_nothing_is_confirmed_where_a_gate_passes():
    assert "paceline run" not in gate_text(told(cell("closed 8", gated("ttft", EQUAL))))


def plain(text):
    """Raises where a line is wider than a hundred columns, or written as Python writes it."""
    assert max(map(len, text.splitlines())) <= 100
    assert not re.search(r"\b(nan|inf|None)\b", text, re.IGNORECASE)


def test_lines_have_a_hundred_columns_and_nothing_absent_is_printed_as_python_writes_it():
    for account in (everything(), refused(), told()):
        plain(comparison_text(account))
        plain(gate_text(account))


@given(
    st.floats(1e-300, 1e300),
    st.floats(1e-12, 1.0),
    st.floats(1.0, 1e12),
    st.sampled_from(["ttft", "output_rate", "cache_hit", "goodput"]),
    st.sampled_from(["runs with drift", "one pair", "Welch"]),
)
@settings(max_examples=60, deadline=None)
def test_whatever_the_numbers_are_the_text_has_lines_of_a_hundred(ratio, below, above, metric, how):
    change = (ratio, max(ratio * below, 1e-304), min(ratio * above, 1e304))
    plain(comparison_text(told(cell("closed 8", gated(metric, change, how=how)))))


@pytest.mark.parametrize(
    ("ratio", "low", "high", "expected"),
    [
        (1.12, 1.091, 1.152, ("+12.0 %", "+9.1 to +15.2 %")),
        (1.0, 1.0, 1.0, ("0.0 %", "0.0 to 0.0 %")),
        (0.9999, 0.99985, 0.99995, ("-0.0100 %", "-0.0150 to -0.0050 %")),
        (12.3, 11.0, 14.0, ("12.3 times", "11 times to 14 times")),
        (1.2, None, None, ("+20.0 %", "")),
        (1.2, float("nan"), float("inf"), ("+20.0 %", "")),
    ],
)
def test_a_change_is_written_to_the_digits_of_its_interval(ratio, low, high, expected):
    assert changed(ratio, low, high) == expected


def test_a_change_without_signs_turns_its_interval_round():
    assert by(0.88, 0.85, 0.91) == ("12.0 %", "9.0 to 15.0 %")
    assert by(1.003, 0.991, 1.015) == ("0.3 %", "-0.9 to +1.5 %")


@pytest.mark.parametrize(
    ("share", "expected"),
    [(0.05, "5 %"), (0.125, "12.5 %"), (1.2, "120 %"), (30.0, "31 times"), (None, "n/a")],
)
def test_a_bound_is_written_as_it_was_stated(share, expected):
    assert percent(share) == expected
