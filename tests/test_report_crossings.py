"""The sentences that say where sides change places."""

from dataclasses import replace

from reports.crossings import crossing_lines
from tests.test_results_crossing import compared


def said(*ratios):
    (line,) = crossing_lines(compared(ratios))
    return line


def test_who_overtakes_is_said_with_the_load_and_its_interval():
    assert said(-0.10, -0.05, 0.10) == (
        "output per GPU: base is ahead at concurrency 16 and other at 64; were the change straight "
        "in between, they would be equal at 25.4, and neither surely ahead from 21.1 to 30.6"
    )
    assert "other is ahead at concurrency 16 and base at 64;" in said(0.10, 0.05, -0.10)


def test_arms_are_told_apart_where_there_are_several():
    whole = compared((-0.10, -0.05, 0.10))
    other = tuple(replace(cell, arms=("c", "d")) for cell in whole.cells)
    lines = list(crossing_lines(replace(whole, cells=whole.cells + other)))
    assert [line.split(" ")[0] for line in lines] == ["b:", "d:"]


def test_what_was_simulated_is_called_so():
    (line,) = crossing_lines(compared((-0.10, -0.05, 0.10)), "SIMULATED")
    assert line.startswith("SIMULATED. output per GPU: base is ahead")


def test_places_that_are_not_changed_are_said_too():
    metric = "in output per GPU"
    assert said(-0.10, -0.05, -0.10) == f"base is ahead at all loads from 4 to 64, {metric}"
    assert said(0.10, 0.01, 0.01) == (
        f"other is ahead at some loads from 4 to 64 and base at none, {metric}"
    )
    assert said(0.01, 0.0, -0.01) == (
        f"neither is ahead by more than the margin at any of the loads from 4 to 64, {metric}"
    )
