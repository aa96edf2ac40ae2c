"""Which rung a search looks at next, and what its answers come to."""

from math import ceil, log2

import pytest

from results.bracket import Bracket, next_rung
from results.figure import Figure
from results.level import Level
from tests.test_report_tables import GOOD


def climb(rungs, answer):
    """Follows next_rung to its end; the answers, by rung, in the order of asking."""
    answers = {}
    for _ in range(rungs + 1):
        rung = next_rung(rungs, answers)
        if rung is None:
            return answers
        assert rung not in answers
        answers[rung] = answer(rung)
    raise AssertionError("it never ends")


def bracket(answers, ladder=(1, 2, 4, 8, 16)):
    share = Figure(value=0.9, unit="share", n=100)
    return Bracket(
        experiment="agents",
        arm="sim TP1",
        workload="growing",
        kind="closed",
        demanded=0.9,
        ladder=ladder,
        levels=tuple(
            Level(load=ladder[rung], answer=answer, share=share, summary=GOOD)
            for rung, answer in sorted(answers.items())
        ),
    )


@pytest.mark.parametrize("rungs", [1, 2, 3, 5, 8, 100])
def test_bisection_finds_every_boundary_in_as_few_looks_as_there_can_be(rungs):
    for boundary in range(rungs + 1):
        answers = climb(rungs, lambda rung, top=boundary: "holds" if rung < top else "fails")
        held = [rung for rung, answer in answers.items() if answer == "holds"]
        failed = [rung for rung, answer in answers.items() if answer == "fails"]
        assert max(held, default=-1) == boundary - 1
        assert min(failed, default=rungs) == boundary
        assert len(answers) <= ceil(log2(rungs + 1))


def test_rungs_that_stay_open_are_left_between_and_both_sides_are_still_found():
    def answer(rung):
        return "holds" if rung < 5 else "fails" if rung > 8 else "undecided"

    answers = climb(16, answer)
    assert answers[4] == "holds"
    assert answers[9] == "fails"
    assert len(answers) < 10


def test_a_rung_that_cannot_be_measured_ends_the_search():
    assert climb(9, lambda _: "unmeasured") == {4: "unmeasured"}
    assert bracket({2: "unmeasured"}).outcome == "not measured"


def test_the_bracket_is_between_neighbours():
    found = bracket({1: "holds", 2: "holds", 3: "fails"})
    assert found.outcome == "bracketed"
    assert (found.holding.load, found.failing.load) == (4, 8)
    assert found.between == ()


def test_nothing_is_bracketed_where_all_holds_or_nothing_does():
    assert bracket({2: "holds", 3: "holds", 4: "holds"}).outcome == "holds throughout"
    assert bracket({2: "fails", 0: "fails"}).outcome == "fails throughout"


def test_an_open_level_between_makes_the_answer_undecided():
    found = bracket({1: "holds", 2: "undecided", 3: "fails"})
    assert found.outcome == "undecided"
    assert [level.load for level in found.between] == [4]
    assert bracket({1: "holds", 2: "invalid", 3: "fails"}).outcome == "not measured"


def test_open_levels_that_others_answer_for_are_not_needed():
    found = bracket({0: "undecided", 1: "holds", 2: "invalid", 3: "fails", 4: "undecided"})
    assert [level.load for level in found.needless] == [1, 16]
    assert [level.load for level in found.between] == [4]
    assert bracket({0: "undecided", 4: "holds"}).outcome == "holds throughout"


def test_an_unmeasured_level_below_one_that_holds_does_not_end_the_search():
    answers = {0: "unmeasured", 2: "holds"}
    assert next_rung(5, answers) == 3
    assert bracket(answers).outcome == "not measured"
    assert bracket(answers | {3: "fails"}).outcome == "bracketed"
    assert next_rung(5, {0: "holds", 2: "unmeasured"}) is None


def test_what_was_not_looked_at_is_no_answer():
    assert bracket({2: "holds"}).outcome == "not measured"
    assert bracket({}).outcome == "not measured"


def test_a_level_that_holds_above_one_that_fails_is_told_and_never_the_answer():
    found = bracket({0: "holds", 1: "fails", 3: "holds", 4: "fails"})
    assert found.outcome == "not monotone"
    assert (found.holding.load, found.failing.load) == (1, 2)
    assert [level.load for level in found.astray] == [8]
