from itertools import islice

import numpy as np

from workloads.batch import FRESH_TOKENS, Batch


def test_every_request_of_a_batch_waits_for_all_primers() -> None:
    session = next(Batch(requests=3, context=1000, output=50).sessions(1))
    primers, requests = session.turns[:3], session.turns[3:]
    assert all(primer.primer and primer.output == 1 for primer in primers)
    for primer, request in zip(primers, requests, strict=True):
        assert request.previous == primer.key
        assert request.after == tuple(turn.key for turn in primers)
        assert (request.output, request.primer) == (50, False)


def test_a_request_is_its_primed_context_and_a_few_fresh_tokens() -> None:
    session = next(Batch(requests=2, context=1000, output=50).sessions(1))
    primer, request = session.turns[1], session.turns[3]
    assert primer.prompt.length == 1000
    assert request.prompt.length == 1000 + FRESH_TOKENS
    prefix = np.array([500, 1000])
    assert (request.prompt.prefix_hashes(prefix) == primer.prompt.prefix_hashes(prefix)).all()


def test_contexts_differ_between_streams_and_sessions() -> None:
    sessions = islice(Batch(requests=2, context=1000, output=50).sessions(1), 2)
    turns = [turn for session in sessions for turn in session.turns]
    assert len({turn.prompt.hash for turn in turns}) == 8
    assert len({turn.key for turn in turns}) == 8


def test_warm_up_is_as_wide_and_short() -> None:
    (warm,) = Batch(requests=3, context=1000, output=50).warmup(1)
    assert warm.trace == "warm-up-0"
    assert [turn.output for turn in warm.turns] == [1, 1, 1, 4, 4, 4]
