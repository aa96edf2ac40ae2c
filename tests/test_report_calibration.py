"""What is said of an engine that was compared with itself."""

import re
from dataclasses import replace
from math import inf

from reports.calibration import calibration_text
from results.calibration import Calibration, CellNoise, MetricNoise
from results.contrast import Drift

QUIET = MetricNoise(
    metric="ttft",
    runs=5,
    spread=0.0062,
    freedom=7.0,
    floor=0.019,
    error=0.004,
    sessions=None,
    drift=Drift(slope=0.01, low=0.008, high=0.012),
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
