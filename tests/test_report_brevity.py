"""What a comparison leaves out because something else says it already."""

from dataclasses import replace

from reports.comparison import comparison_text
from reports.verdicts import headline
from tests.hand_built import MATCHED, SLOW, bad, cell, free, measured, told


def test_of_few_sessions_alone_is_said_beside_the_interval_and_shortly_below_the_table():
    for sessions, told_as in ((6, "these 6 sessions"), (1, "this session")):
        one = free("ttft", SLOW, alone=sessions)
        account = measured(told(cell("closed 8", one)))
        assert headline(account) == (
            "graphs is 12.0 % slower than eager in TTFT (95 % interval 9.0 to 15.0 %; of "
            f"{told_as} alone).",
        )
        assert f"\nTTFT: of {told_as} alone\n" in comparison_text(account)


def test_output_is_left_out_where_the_same_per_gpu_says_it():
    change = (1.12, 1.09, 1.15)
    both = [free("output_rate", change), free("output_rate_per_gpu", change)]
    text = comparison_text(told(cell("closed 8", *both)))
    assert " output per GPU" in text
    assert " output, " not in text
    assert "1 more metric, exploratory: 1 better" in text
    halved = free("output_rate_per_gpu", (0.56, 0.545, 0.575))
    assert " output, tok/s" in comparison_text(told(cell("closed 8", both[0], halved)))


def test_requests_that_are_missing_are_told_where_there_are_any():
    whole = replace(MATCHED, lost=0.0)
    text = comparison_text(told(cell("closed 8", free("ttft", SLOW, matched=whole))))
    assert "3.2 % of all were answered by one side only\n" in text
    assert "missing on the other" not in text


def test_sides_that_are_the_very_same_have_no_tables():
    same = [free(name, (1.0, 1.0, 1.0), how="identical") for name in ("ttft", "tpot")]
    cells = [
        cell(f"closed {load}", *same, notes=("both sides are the very same runs",))
        for load in (1, 8)
    ]
    text = comparison_text(told(*cells))
    assert text.endswith("\n\nEvery number is the same on both sides, so no table follows.")
    assert "note: both sides are the very same runs" in text
    assert "verdict\n" not in text
    assert "verdict\n" in comparison_text(told(*cells, cell("closed 16", free("ttft", SLOW))))


def test_what_speaks_against_a_point_is_one_paragraph():
    problems = (
        "ab: agents-r0 (sim TP4): late",
        "ab: agents-r0 (sim TP4): cold",
        "ab: agents-r1 (sim TP4): late",
    )
    text = comparison_text(told(cell("closed 8", bad("ttft"), problems=problems)))
    assert "not judged: ab: agents-r0 (sim TP4): late; cold\n" in text
    assert "not judged: ab: agents-r1 (sim TP4): late" in text
    assert text.count("not judged: ") == 2
