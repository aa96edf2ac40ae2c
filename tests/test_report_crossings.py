"""The sentences that say where sides change places."""

from reports.crossings import crossing_lines
from tests.test_results_crossing import compared


def said(*ratios):
    (line,) = crossing_lines(compared(ratios))
    return line


def test_who_overtakes_is_said_with_the_load_and_its_interval():
    assert said(-0.10, -0.05, 0.10) == (
        "output per GPU: base is ahead at first, and other from about concurrency 25.4 on (95 % "
        "interval 21.1 to 30.6), by straight lines between the loads"
    )
    assert "other is ahead at first, and base from" in said(0.10, 0.05, -0.10)


def test_places_that_are_not_changed_are_said_too():
    span = "nobody overtakes from concurrency 4 to 64: output per GPU: "
    assert said(-0.10, -0.05, -0.10) == f"{span}base ahead"
    assert said(0.10, 0.01, 0.01) == f"{span}other ahead, if anybody"
    assert said(0.01, 0.0, -0.01) == f"{span}nobody ahead"
