"""The same request on both sides: found wherever it stands, and only where it is the same."""

from typing import Any

import numpy as np
import pytest

from results.pairing import Pairs, joined, pair, requests
from results.record import RequestRecord
from tests.run_folders import served
from tests.test_results_record import failed, made, table


def paired(base: list[RequestRecord], other: list[RequestRecord]) -> Pairs:
    return pair(requests(table(*base)), requests(table(*other)))


def ratio(pairs: Pairs, metric: str = "ttft") -> float:
    return float(np.exp(pairs.changes[metric].mean(dtype=np.float64)))


def test_the_order_of_requests_changes_nothing() -> None:
    base, other = served([0.1, 0.2, 0.3, 0.4]), served([0.2, 0.2, 0.6, 0.8])
    one, two = paired(base, other), paired(base[::-1], other[2:] + other[:2])
    assert one.count == two.count == 4
    assert ratio(one) == ratio(two) == pytest.approx(2 ** (3 / 4), rel=1e-6)


def test_each_request_meets_itself_whatever_lane_and_moment_it_came_at() -> None:
    base = served([0.1, 0.2, 0.4, 0.8])
    other = served([0.2, 0.4, 0.8, 1.6], lane=3, tree=9)
    pairs = paired(base, other)
    assert np.exp(pairs.changes["ttft"]) == pytest.approx([2.0] * 4)


@pytest.mark.parametrize(
    "changes",
    [{"trace": "another"}, {"turn": 7}, {"stream": "agent"}, {"prompt_hash": "f" * 16}],
)
def test_a_request_that_differs_in_its_key_is_another_one(changes: dict[str, Any]) -> None:
    pairs = paired([made([0.5])], [made([0.5], **changes)])
    assert pairs.count == 0
    assert pairs.unmatched == (1, 1)


def test_only_requests_of_the_window_that_succeeded_on_both_sides_are_paired() -> None:
    base = [made([0.5], turn=0), made([0.5], turn=1), made([0.5], turn=2, phase="warm-up")]
    other = [made([0.5], turn=0), failed(turn=1), made([0.5], turn=2, phase="warm-up")]
    pairs = paired(base, other)
    assert pairs.count == 1
    assert pairs.unmatched == (1, 0)


def test_a_request_sent_again_is_averaged_on_the_log_scale_first() -> None:
    again = [made([0.1], tree=0), made([0.4], tree=1)]
    pairs = paired(again, [made([0.2])])
    assert pairs.count == 1
    assert ratio(pairs) == pytest.approx(1.0)


def test_runs_of_one_workload_are_averaged_too() -> None:
    runs = [requests(table(*served([0.1, 0.1]))), requests(table(*served([0.4, 0.1])))]
    pairs = pair(joined(runs), requests(table(*served([0.2, 0.1]))))
    assert pairs.count == 2
    assert ratio(pairs) == pytest.approx(1.0)


def test_other_prompt_tokens_for_the_same_message_are_told_with_both_numbers() -> None:
    base, other = served([0.1, 0.1], input_tokens=17), served([0.1, 0.1], input_tokens=96)
    pairs = paired(base, other)
    assert pairs.apart == 2
    assert pairs.told == (17.0, 96.0)


def test_a_server_that_does_not_tell_its_input_tokens_differs_from_nobody() -> None:
    pairs = paired(served([0.1], input_tokens=None), served([0.1], input_tokens=96))
    assert (pairs.count, pairs.apart, pairs.told) == (1, 0, None)


def test_a_time_that_a_request_does_not_have_is_absent_and_not_zero() -> None:
    pairs = paired([made([0.5])], [made([0.5])])
    assert np.isnan(pairs.base["tpot"]).all()
    assert not np.isnan(pairs.base["ttft"]).any()


def test_words_of_all_lengths_have_keys_of_their_own() -> None:
    words = ["", "a", "aa", "ab", "b", "x" * 40, "é", "x" * 39 + "y"]
    found = requests(table(*(made([0.5], prompt_hash=word) for word in words)))
    assert len(set(found.keys.tolist())) == len(words)
    assert len(set(found.shapes.tolist())) < len(words)


def test_no_rows_have_no_pairs() -> None:
    pairs = paired([], served([0.1]))
    assert (pairs.count, pairs.unmatched) == (0, (0, 1))
