from itertools import islice

import numpy as np

from workloads.single import Single


def test_a_cold_request_is_one_turn_of_exactly_the_stated_length() -> None:
    for length in (1, 8, 8192):
        (turn,) = next(Single(prompt=length, output=100).sessions(1)).turns
        assert (turn.prompt.length, turn.output, turn.primer) == (length, 100, False)


def test_a_cached_request_extends_its_primer() -> None:
    primer, turn = next(Single(prompt=500, output=100, cached=3000).sessions(1)).turns
    assert (primer.prompt.length, primer.output, primer.primer) == (3000, 1, True)
    assert (turn.prompt.length, turn.output, turn.primer) == (3500, 100, False)
    assert turn.previous == primer.key
    prefix = np.array([1, 1500, 3000])
    assert (turn.prompt.prefix_hashes(prefix) == primer.prompt.prefix_hashes(prefix)).all()


def test_sessions_differ_from_one_another_and_repeat_with_their_seed() -> None:
    def hashes(seed: int) -> list[str]:
        sessions = islice(Single(prompt=500, output=1).sessions(seed), 5)
        return [turn.prompt.hash for session in sessions for turn in session.turns]

    assert hashes(3) == hashes(3)
    assert len(set(hashes(3) + hashes(4))) == 10
    names = [session.trace for session in islice(Single(prompt=5, output=1).sessions(3), 2)]
    assert names == ["single-0", "single-1"]


def test_warm_up_has_the_same_lengths_and_other_content() -> None:
    workload = Single(prompt=500, output=100, cached=3000)
    (warm,) = workload.warmup(1)
    real = next(workload.sessions(1))
    assert warm.trace == "warm-up-0"
    assert [turn.prompt.length for turn in warm.turns] == [3000, 3500]
    assert warm.turns[1].output == 8
    assert warm.turns[0].prompt.hash != real.turns[0].prompt.hash
