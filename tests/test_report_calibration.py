"""What is said of an engine that was compared with itself."""

import re
from dataclasses import replace
from math import inf

from reports.calibration import calibration_text
from results.calibration import Calibration, CellNoise, MetricNoise
from results.contrast import Drift

QUIET = MetricNoise(
    metric="ttft",
    runs=6,
    spread=0.0062,
    freedom=7.0,
    floor=0.019,
    error=0.004,
    sessions=None,
    drift=Drift(slope=0.01, low=0.008, high=0.012, steps=9, freedom=7),
    margin=0.05,
    false_alarms=0.031,
    smallest=0.014,
    provable=0.016,
)
LOUD = replace(QUIET, metric="ttft.p90", false_alarms=0.12, smallest=0.08, drift=None)
STATED = {"environment.gpus.name": ["NVIDIA H200"], "provenance": ["simulated"]}


def calibration(*metrics, stated=STATED):
    cell = CellNoise(name="agents-closed-8", asked={}, metrics=metrics)
    return Calibration(made="2026-01-01", runs=("aa",), stated=stated, cells=(cell,))


def test_margins_that_hold_are_said_to_in_the_first_line():
    assert calibration_text(calibration(QUIET)).splitlines()[0] == (
        "SIMULATED. All margins hold: 1 metric of 1 cell, each with at most 5 % false alarms."
    )


def test_no_margin_is_said_to_hold_that_so_few_runs_cannot_prove():
    narrow = replace(QUIET, metric="tpot", provable=0.08)
    text = calibration_text(calibration(QUIET, narrow), 200)
    assert "All margins hold" not in text
    assert text.splitlines()[0] == (
        "SIMULATED. 1 of 2 margins cannot be proved by so few runs, the least TPOT in "
        "agents-closed-8: 5 %, and 8 % could be: take wider ones or more repeats."
    )


def test_no_margin_is_said_to_hold_where_the_runs_can_be_named_in_few_ways():
    few = replace(QUIET, runs=5, false_alarms=0.0)
    text = calibration_text(calibration(few), 200)
    assert "All margins hold" not in text
    assert "over 16 ways to name the runs" in text
    assert "--set repeats=6" in text


def test_too_few_degrees_of_freedom_for_multiples_of_the_noise_are_said():
    text = calibration_text(calibration(replace(QUIET, freedom=1.0)), 200)
    assert "fewer than 5 degrees of freedom" in text


def test_a_metric_that_is_too_noisy_is_named_with_the_margin_to_take():
    text = calibration_text(calibration(QUIET, LOUD), 200)
    assert text.splitlines()[0] == (
        "SIMULATED. TTFT p90 in agents-closed-8 is too noisy for a margin of 5 %: 12 % false "
        "alarms: take 8 % or more."
    )


def test_what_it_holds_for_and_every_number_are_told():
    text = calibration_text(calibration(QUIET))
    assert "environment.gpus.name: NVIDIA H200" in text
    row = next(line for line in text.splitlines() if line.startswith(" TTFT "))
    assert re.split(r"  +", row.strip())[:8] == (
        ["TTFT", "0.62 %", "1.9 %", "+1.00 %", "5 %", "3.1 %", "1.4 %", "1.6 %"]
    )
    assert max(map(len, text.splitlines())) <= 100


def test_measured_calibrations_carry_no_mark():
    text = calibration_text(calibration(QUIET, stated={"provenance": ["measured"]}))
    assert "SIMULATED" not in text


def test_what_could_not_be_counted_is_said_and_never_printed_as_a_number():
    unknown = replace(QUIET, margin=None, false_alarms=None, smallest=None, freedom=inf, floor=inf)
    text = calibration_text(calibration(unknown))
    assert "No false alarms could be counted" in text
    assert not re.search(r"\b(nan|inf|None)\b", text, re.IGNORECASE)


def test_a_drift_too_small_to_matter_over_all_runs_is_not_shown():
    small = Drift(slope=0.001, low=0.0008, high=0.0012, steps=9, freedom=7)
    row = calibration_text(calibration(replace(QUIET, drift=small)))
    assert "not shown" in row
    # Without a margin, 1 % over all runs is what matters: nine steps of 0.1 % are less.
    assert "not shown" in calibration_text(calibration(replace(QUIET, drift=small, margin=None)))
    longer = replace(small, steps=20)
    assert "+0.100 %" in calibration_text(calibration(replace(QUIET, drift=longer, margin=None)))
