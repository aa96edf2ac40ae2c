"""What a replay by a profile must have delivered, and what is remarked of it."""

from dataclasses import replace
from typing import Any

from results.columns import columns, of_phase
from results.evidence import Protocol
from results.protocol import remarks, shortfalls
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
    rows = table(*(made([0.5, 0.6], input_tokens=100) for _ in range(3)))
    intended = {"input": {"p50": 400.0}, "output": {"p50": 3.0}}
    told = replace(TOLD, departures=("duration: 5 s, not the 60 s of p",), intended=intended)
    said = list(remarks(rows, replace(evidence(), protocol=told)))
    assert said[0] == "duration: 5 s, not the 60 s of p"
    assert said[1].startswith("the median of the prompts is less than half")
    assert len(said) == 2


def test_of_enough_traces_a_workload_that_shrank_is_not_the_profiles() -> None:
    intended = {"input": {"p50": 2500.0}, "output": {"p50": 2.0}}

    def said(traces: int, **changes: Any) -> list[str]:
        rows = [made([105.0, 105.5], sent=0.0, trace=f"t{number}") for number in range(traces)]
        return short(*rows, intended=intended, published=True, **changes)

    assert said(30) == [
        "the median of the prompts is less than half that of the profile's traces: what was "
        "delivered is not the workload of p"
    ]
    assert said(29) == []
    assert short(*[made([105.0, 105.5], sent=0.0)] * 30, intended=intended) == []


def test_repeats_of_a_profile_that_fixes_the_seed_are_said_to_be_the_same() -> None:
    told = replace(evidence(), protocol=replace(TOLD, seed=42))
    rows = table(made([0.5, 0.6]))
    assert list(remarks(rows, told)) == []
    assert list(remarks(rows, told, repeat=1)) == [
        "p fixes the seed: all repeats send the same requests, and an interval over them says "
        "nothing of other sessions"
    ]
