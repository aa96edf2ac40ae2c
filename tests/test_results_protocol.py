"""What a replay by a profile must have delivered, and what is remarked of it."""

from dataclasses import replace
from typing import Any

from results.columns import columns, of_phase
from results.evidence import Protocol
from results.protocol import realised, remarks, shortfalls
from tests.test_results_record import evidence, failed, made, table

TOLD = Protocol(profile="p", hash="h", coverage=0.95, overflow_share=0.01)


def short(*records: Any, **changes: Any) -> list[str]:
    rows = table(*records)
    told = replace(evidence(opened=10.0, closed=110.0), protocol=replace(TOLD, **changes))
    return list(shortfalls(of_phase(rows), columns(rows), told))


def test_tokens_must_come_until_the_end_of_the_window() -> None:
    late = made([100.0, 105.5], sent=0.0)
    assert short(late) == [
        "the last first token came before 95% of the window had passed: nothing was answered after "
        "it"
    ]
    assert short(late, made([105.0], sent=0.0)) == []
    early = made([94.0, 104.0], sent=0.0)
    assert len(short(early)) == 2
    assert short(early, coverage=None) == []


def test_requests_beyond_the_context_must_be_few() -> None:
    over = failed(reason="HTTP 400: exceeds the maximum context length")
    good = [made([105.0, 105.5], sent=0.0) for _ in range(99)]
    assert short(*good, over) == []
    assert (
        "2 of 101 requests did not fit the model's context, more than 1%"
        in short(*good, over, over)[0]
    )
    assert short(*good, failed(), failed(), overflow_share=None) == []
    assert short(*good, failed(), failed()) == []


def test_nothing_is_asked_of_points_without_a_profile() -> None:
    rows = table(made([0.5, 0.6]))
    for told in (None, evidence()):
        assert not list(shortfalls(rows, columns(rows), told))
        assert not list(remarks(rows, told))


def test_departures_and_other_lengths_than_those_of_whole_traces_are_remarked_on() -> None:
    rows = table(*(made([0.5, 0.6], asked_input=100, asked_output=2) for _ in range(3)))
    intended = {"input": {"p50": 400.0}, "output": {"p50": 3.0}}
    told = replace(TOLD, departures=("duration: 5 s, not the 60 s of p",), intended=intended)
    said = list(remarks(rows, replace(evidence(), protocol=told)))
    assert said[0] == "duration: 5 s, not the 60 s of p"
    assert said[1].startswith("the median of the prompts is less than half")
    assert len(said) == 2


def test_what_the_window_sent_is_told_in_quantiles() -> None:
    rows = table(
        *(made([0.5], asked_input=size, tree=size // 300) for size in (100, 200, 300)),
        made([0.5], asked_input=9, phase="primer"),
    )
    found = realised(rows)
    assert found["input"]["p50"] == 200
    assert found["turns"]["p50"] == 1.5
