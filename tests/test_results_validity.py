"""Every reason not to use a point, and that a good point has none."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from results.validity import problems
from tests.test_results_record import cell, evidence, failed, made, table

GOOD = [made([0.5, 0.6], sent=float(i), tree=i) for i in range(10)]


def found(*records: Any, observed: dict[str, Any] | None = None, **changes: Any) -> str:
    return "\n".join(problems(table(*records), cell(**changes), evidence(**(observed or {}))))


def test_a_good_point_has_no_problem() -> None:
    assert not found(*GOOD)
    cut = made([0.5], state="cut", reason="cut at the end of the window", output_tokens=None)
    assert not found(*GOOD, cut)


def test_no_success_and_no_evidence_are_problems() -> None:
    assert problems(table(), cell(), None) == (
        "there is no evidence of what ran",
        "no request succeeded",
    )
    assert found(failed()) == "no request succeeded"


def test_more_than_a_tenth_of_failures_is_a_problem() -> None:
    assert not found(*GOOD[:9], failed(tree=10))
    assert found(*GOOD[:9], failed(), failed()) == "2 of 11 requests failed, more than 10%"


def test_a_request_that_stands_in_two_rows_is_a_problem() -> None:
    again = made([0.5, 0.6], sent=3.0, tree=3, request_id="request-3")
    assert found(*GOOD, again) == (
        "1 of 11 rows have the request id of another one: the folder was changed"
    )


@pytest.mark.parametrize("cached", [1001, 1200])
def test_more_cached_tokens_than_input_is_a_problem(cached: int) -> None:
    row = made([0.5], cached_tokens=cached, ceiling_tokens=1000 + cached)
    assert "1 of 1 requests report more cached than input tokens" in found(row)


def test_hits_beyond_what_the_session_sent_show_an_earlier_run() -> None:
    assert not found(made([0.5], cached_tokens=628, ceiling_tokens=500))
    warm = found(made([0.5], cached_tokens=629, ceiling_tokens=500))
    assert "the cache holds content of an earlier run" in warm


def test_a_chat_template_adds_tokens_for_every_message_and_they_may_be_cached() -> None:
    chat: dict[str, Any] = {"deployment": {"engine": {"mode": "chat"}}}
    late = made([0.5], turn=10, input_tokens=1192, cached_tokens=820, ceiling_tokens=500)
    assert not found(late, **chat)
    assert "another input length" in found(late)
    longer = made([0.5], turn=10, input_tokens=1193, cached_tokens=822, ceiling_tokens=500)
    assert "another input length" in found(longer, **chat)
    assert "earlier run" in found(longer, **chat)


def test_a_cold_single_request_may_not_hit_at_all() -> None:
    row = made([0.5], cached_tokens=64)
    assert not found(row)
    assert "earlier run" in found(row, workload={"kind": "single"})


def test_input_of_another_length_than_asked_is_a_problem() -> None:
    template = made([0.5], input_tokens=1030)
    assert not found(template)
    assert "up to 30 tokens" in found(template, observed={"provenance": "simulated"})
    assert "up to 79 tokens" in found(made([0.5], input_tokens=1079))


def test_output_of_another_length_than_asked_is_a_problem() -> None:
    assert "another output length" in found(made([0.5, 0.6], asked_output=3))
    short = made([0.5, 0.6], asked_output=3, finish_reason="stop")
    assert "another output length" in found(short)
    free = {"engine": {"kind": "endpoint", "exact_output": False}}
    assert not found(short, deployment=free)


def test_tokens_that_contradict_the_stream_are_a_problem() -> None:
    few = made([0.5, 0.6, 0.7], asked_output=2, output_tokens=2, piece_tokens=None)
    assert "more pieces than the server says they have tokens" in found(few)
    other = made([0.5, 0.6], [5, 5], asked_output=2, output_tokens=2)
    assert "other tokens in their pieces than in all" in found(other)


def test_a_client_whose_loop_stood_still_is_a_problem() -> None:
    rows = table(*GOOD)
    assert not problems(rows, cell(), replace(evidence(), client_late=0.009))
    (said,) = problems(rows, cell(), replace(evidence(), client_late=0.03))
    assert "its event loop came 30.0 ms late" in said
    assert said.endswith(
        ": give paceline a core of its own, lower the concurrency, or serve elsewhere"
    )


def test_what_starts_with_the_window_may_be_sent_one_after_another() -> None:
    burst = [made([0.5], client_lag=0.07, tree=i) for i in range(10)]
    assert not found(*burst)


def test_a_late_client_is_a_problem_with_its_numbers() -> None:
    late = [made([0.5], client_lag=0.024, sent=1.0, tree=i) for i in range(10)]
    assert not found(*late)
    late = [made([0.5], client_lag=0.026, sent=1.0, tree=i) for i in range(10)]
    assert found(*late) == (
        "the client was the bottleneck: it sent 10 of 10 requests more than 25.0 ms late, by up to "
        "26.0 ms and 26.0 ms on average, at a median TTFT of 500.0 ms: give paceline a core of its "
        "own, lower the concurrency, or serve elsewhere"
    )


@pytest.mark.parametrize(
    ("count", "late", "lag", "fits"),
    [
        (12, 1, 0.030, True),
        (12, 2, 0.030, False),
        (1, 1, 0.024, True),
        (1, 1, 0.026, False),
        (12, 1, 12 * 0.026, False),
        # Of 300 with 1 % late, 6 or fewer are so with a probability of 0.967, 5 with 0.917.
        (300, 6, 0.030, True),
        (300, 7, 0.030, False),
    ],
)
def test_one_late_request_or_one_in_a_hundred_is_no_bottleneck_unless_it_weighs_like_many(
    count: int, late: int, lag: float, fits: bool
) -> None:
    lags = [lag] * late + [0.0] * (count - late)
    rows = [made([0.5], client_lag=one, sent=1.0 + i, tree=i) for i, one in enumerate(lags)]
    assert (not found(*rows)) is fits


def test_another_number_of_gpus_than_asked_is_a_problem() -> None:
    assert found(*GOOD, gpus=16) == "GPUs: the server runs on 1, asked for 16"
    assert not found(*GOOD, gpus=16, observed={"gpus": None})


def test_a_feature_that_is_not_as_asked_is_a_problem() -> None:
    asked = {"replay": "on"}
    other = found(*GOOD, observed={"requested": asked, "features": {"replay": "off"}})
    assert other == "replay: asked for on, observed off"
    assert not found(*GOOD, observed={"requested": asked, "features": {"replay": "on", "x": 1}})
    assert "nothing shows" in found(*GOOD, observed={"requested": asked})


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        (made([0.0, 0.5]), "sent < first"),
        (made([0.5], first_answer=0.4), "sent < first"),
        (made([0.5], closed=0.3), "sent < first"),
        (made([]), "sent < first"),
        (made([0.5, 0.4, 0.6]), "before the one it follows"),
        (made([0.5, 0.6], last=0.9, closed=0.9), "do not add up to E2E"),
        (failed(reason=None), "do not say why"),
    ],
)
def test_a_row_that_contradicts_itself_is_a_problem(row: Any, sentence: str) -> None:
    assert sentence in found(*GOOD, row)


def test_only_rows_of_the_window_are_judged() -> None:
    warm = made([0.5], phase="warm-up", cached_tokens=900, finish_reason="length", asked_output=9)
    assert not found(warm, *GOOD)


def test_rounding_to_microseconds_is_no_contradiction() -> None:
    stamps = (np.pi * np.arange(1, 50) / 100).tolist()
    assert not found(made(stamps, sent=1.0 / 3))


def test_a_batch_whose_request_stood_still_while_others_went_on_is_a_problem() -> None:
    steps = np.arange(1, 101) * 0.01
    held = np.concatenate([steps[:30], steps[60:]])
    workload = {"kind": "batch", "requests": 3, "context": 100, "output": 100}
    good = [made(steps, tree=0, stream=str(n), asked_output=100) for n in range(3)]
    assert not found(*good, workload=workload)
    preempted = made(held, tree=0, stream="2", asked_output=70)
    assert "stood still while the others went on" in found(*good[:2], preempted, workload=workload)


def test_a_pause_of_a_whole_batch_is_not_a_request_left_behind() -> None:
    paused = np.concatenate([np.arange(1, 51) * 0.01, 2.0 + np.arange(1, 51) * 0.01])
    workload = {"kind": "batch", "requests": 3, "context": 100, "output": 100}
    rows = [made(paused, tree=0, stream=str(n), asked_output=100) for n in range(3)]
    assert not found(*rows, workload=workload)


def test_a_batch_that_never_decoded_together_is_a_problem_and_says_when() -> None:
    workload = {"kind": "batch", "requests": 2, "context": 100, "output": 3}
    early = made([0.1, 0.2, 0.3], tree=0, stream="0")
    late = made([0.4, 0.5, 0.6], tree=0, stream="1")
    said = found(early, late, workload=workload)
    assert "1 of 1 batches never decoded together" in said
    assert "0.4 s" in said


def test_a_batch_with_requests_missing_is_a_problem() -> None:
    workload = {"kind": "batch", "requests": 3, "context": 100, "output": 3}
    rows = [made([0.1, 0.2, 0.3], tree=0, stream=str(n)) for n in range(2)]
    assert "not every batch has its 3 requests" in found(*rows, workload=workload)


def test_primers_beside_measured_requests_are_a_problem() -> None:
    primer = made([0.5], sent=2.2, tree=50, phase="primer")
    before = made([0.1], sent=-1.0, tree=50, phase="primer")
    between = made([0.2], sent=0.7, tree=50, phase="primer")
    assert not found(*GOOD, before, between)
    assert "1 of 1 primers ran beside requests" in found(*GOOD, primer)


def test_rows_of_another_point_are_a_problem() -> None:
    assert "2 of 12 rows belong to another point" in found(
        *GOOD, made([0.5, 0.6], point="ffff0000"), made([0.5, 0.6], point="ffff0000")
    )
