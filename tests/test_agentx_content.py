"""Golden values are computed with agentx-harness 1.0.12."""

import numpy as np

from results.overflow import overflowed
from workloads.content import base_seed, block, block_seed, block_start, marker, tail, tail_start

BENCHMARK = "11111111-1111-1111-1111-111111111111"


def test_golden_block_seed_and_start() -> None:
    base = base_seed(42)
    assert base == 5261745454011363258
    assert block_seed(base, "synth-0001", 0) == 15164217037664222151
    assert block_start(15164217037664222151, 1_000_000) == 493944


def test_golden_marker() -> None:
    assert marker(BENCHMARK, 0, 0, "synth-0001") == "[rid:0a883333ad8d]\n\n"
    others = [(1, 0, "synth-0001"), (0, 1, "synth-0001"), (0, 0, "synth-0002")]
    assert len({marker(BENCHMARK, *other) for other in others}) == 3


def test_a_block_goes_on_at_the_beginning_of_the_pool() -> None:
    pool = np.arange(100)
    seed = next(seed for seed in range(1000) if block_start(seed, 100) == 90)
    assert block(pool, seed).tolist() == [*range(90, 100), *range(54)]


def test_a_tail_begins_at_its_seed_modulo_the_room_that_it_has() -> None:
    pool = np.arange(100)
    assert tail(pool, 85, 10).tolist() == list(range(85, 95))
    assert tail(pool, 95, 10).tolist() == list(range(5, 15))
    assert tail_start(95, 100, 100) == 0
    assert tail(pool, 95, 101).tolist() == [*range(100), 0]


def test_an_overflow_is_told_by_its_words_in_any_case() -> None:
    assert overflowed('{"error": {"message": "This model\'s Maximum Context is 8192"}}')
    assert overflowed("Prompt is too long")
    assert not overflowed("internal error")
    assert not overflowed("")
