"""Which flat calls are one agent's: detection, its ties, and the names it gives."""

from dataclasses import replace

import pytest

from tests.recordings import call
from workloads.chains import detect, groups, is_aside, preamble_of
from workloads.profile import Detection
from workloads.weka import Call

RULES = Detection()


def places(*calls: Call) -> list[tuple[int, ...]]:
    return [chain.places for chain in detect(calls, RULES)]


def test_a_call_that_begins_with_all_of_another_goes_on_with_it() -> None:
    assert places(call(0, [1, 2]), call(2, [1, 2, 3]), call(4, [1, 2, 3, 4])) == [(0, 1, 2)]


def test_a_call_that_shares_nothing_is_another_agent() -> None:
    first, second = detect([call(0, [1, 2]), call(2, [7, 8])], RULES)
    assert (first.places, second.places, second.fork) == ((0,), (1,), None)


def test_calls_are_told_apart_in_the_order_of_time_and_then_of_the_file() -> None:
    assert places(call(9, [1, 2, 3]), call(0, [1]), call(4, [1, 2])) == [(1, 2, 0)]
    assert places(call(0, [1], 0.0), call(0, [1, 2], 0.0)) == [(0, 1)]


def test_only_what_has_ended_is_gone_on_with_and_touching_has_ended() -> None:
    assert places(call(0, [1], 2.0), call(2, [1, 2])) == [(0, 1)]
    assert places(call(0, [1], 2.0), call(2 - 5e-7, [1, 2])) == [(0, 1)]
    assert places(call(0, [1], 2.0), call(1.9, [1, 2])) == [(0,), (1,)]


def test_another_model_never_goes_on_nor_is_spliced() -> None:
    other = call(2, [1, 2, 3], model="small")
    assert places(call(0, [1, 2], model="large"), other) == [(0,), (1,)]


def test_the_longest_context_is_gone_on_with_and_the_first_of_equal_ones() -> None:
    both = [call(0, [1, 2], 5.0), call(1, [1, 2], 1.0)]
    assert places(*both, call(6, [1, 2, 3])) == [(0, 2), (1,)]
    deeper = call(1, [1, 2, 3], 1.0)
    assert places(both[0], deeper, call(6, [1, 2, 3, 4])) == [(0,), (1, 2)]


def test_a_cut_context_is_the_same_agent_where_nothing_longer_follows() -> None:
    long, compacted = call(0, [1, 2, 3, 4]), call(2, [1, 9])
    assert places(long, compacted, call(4, [1, 9, 10])) == [(0, 1, 2)]
    # Here the longer context goes on, so the cut one was another agent's.
    assert places(long, compacted, call(4, [1, 2, 3, 4, 5])) == [(0, 2), (1,)]


def test_of_several_cuts_the_deepest_goes_on_then_the_earliest() -> None:
    long = call(0, [1, 2, 3, 4])
    shallow, deep = call(2, [1, 9], 30.0), call(3, [1, 2, 8], 30.0)
    # The other one shares a block with what then goes on, but runs at the same time.
    assert places(long, shallow, deep) == [(0, 2), (1,)]
    assert places(long, call(2, [1, 2, 9], 30.0), deep) == [(0, 1), (2,)]


def test_a_fork_that_was_passed_over_may_go_on_later() -> None:
    long, deep = call(0, [1, 2, 3, 4]), call(2, [1, 2, 8])
    assert places(long, deep, call(5, [1, 9])) == [(0, 1, 2)]


def test_a_fork_that_overlaps_its_tail_is_never_spliced() -> None:
    assert places(call(0, [1, 2, 3], 5.0), call(2, [1, 9])) == [(0,), (1,)]


@pytest.mark.parametrize(
    ("start", "ids", "same"),
    [
        (3601.0, [1, 9], True),
        (3601.5, [1, 9], False),
        (3601.5, [1, 2, 9], True),
    ],
)
def test_a_late_cut_must_keep_half_of_the_context(start: float, ids: list[int], same: bool) -> None:
    assert (len(places(call(0, [1, 2, 3, 4]), call(start, ids))) == 1) is same


def test_calls_without_hash_ids_stay_on_the_main_chain_and_tell_nothing() -> None:
    assert places(call(0, []), call(2, [1]), call(4, []), call(6, [1, 2])) == [(0, 1, 2, 3)]


def test_a_first_call_that_shares_nothing_is_a_preamble_and_founds_no_chain() -> None:
    title, rest = call(0, [90], output=64), [call(2, [1, 2]), call(4, [1, 2, 3])]
    calls = [title, *rest]
    assert preamble_of(calls, RULES) == 0
    assert [c.places for c in detect(calls, RULES, preamble=0)] == [(0, 1, 2)]
    assert preamble_of([title], RULES) is None
    assert preamble_of([replace(title, hash_ids=title.hash_ids[:0]), *rest], RULES) is None


def test_a_large_preamble_is_one_only_if_none_of_its_blocks_comes_back() -> None:
    large = call(0, [90, 91], output=65)
    assert preamble_of([large, call(2, [1, 2])], RULES) == 0
    assert preamble_of([large, call(2, [1, 91])], RULES) is None
    assert preamble_of([replace(large, output=64), call(2, [1, 91])], RULES) == 0
    assert preamble_of([large, call(2, [90])], RULES) is None


def fan(*spans: tuple[float, float]) -> dict[int, tuple[int, int]]:
    """Groups of forks that run then from the first two blocks of a call that goes on."""
    forks = [call(start, [1, 2, 50 + n], end - start) for n, (start, end) in enumerate(spans)]
    calls = [call(0, [1, 2, 3]), *forks, call(99, [1, 2, 3, 4])]
    return groups(detect(calls, RULES), calls, RULES)


def test_three_forks_that_overlap_are_a_worker_group() -> None:
    assert fan((2, 9), (3, 4), (5, 10)) == {1: (0, 0), 2: (0, 1), 3: (0, 2)}
    assert fan((2, 9), (3, 4)) == {}
    assert fan((2, 4), (3, 5), (5, 10)) == {}
    twice = fan((2, 4), (3, 5), (4, 6), (7, 9), (7, 8), (7, 9))
    assert list(twice.values()) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]


@pytest.mark.parametrize(
    ("peak", "tokens", "output", "model", "aside"),
    [
        (1_000, 16_383, 100_000, "m", True),
        (1_000, 16_384, 100_000, "m", False),
        (200_000, 19_999, 100_000, "m", True),
        (200_000, 20_000, 100_000, "m", False),
        (1_000, 90_000, 100_000, "other", True),
        (1_000, 79_981, 3999, "m", True),
        (1_000, 79_980, 3999, "m", False),
        (1_000, 90_000, 4000, "m", False),
        (1_000, 90_000, 0, "m", False),
    ],
)
def test_an_aside_is_small_or_of_another_model_or_a_reduction(
    peak: int, tokens: int, output: int, model: str, aside: bool
) -> None:
    main = [call(0, [1], model="m", input=peak)]
    one = call(1, [9], model=model, input=tokens, output=output)
    assert is_aside([one], main, RULES) is aside
    assert not is_aside([one, one], main, RULES)
