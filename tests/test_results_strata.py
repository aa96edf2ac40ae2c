"""TTFT by new tokens: opposite effects behind an average are told, and one effect is not."""

from collections.abc import Callable
from dataclasses import replace
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from results.comparison import CellComparison, compare
from results.contest import Contest
from results.effect import Matched
from results.pairing import Pairs
from results.record import RequestRecord
from results.side import within
from results.strata import Stratum, contrary, looked_at, strata
from tests.run_folders import Requests, run_folder, served

LENGTHS = (72, 136, 200, 264, 328, 392, 456, 520, 648, 712, 840, 1096, 1480, 2760)
MARGIN = 0.05

Values = NDArray[Any]


def stepped(new: Values) -> Values:
    """Half as much again from 385 to 512 new tokens, and 39 % less beyond."""
    return np.where(new <= 384, 0.0, np.where(new <= 512, log(1.49), log(0.61)))


def level(new: Values) -> Values:
    return np.full(len(new), log(0.78))


def made(
    effect: Callable[[Values], Values], random: np.random.Generator, count: int = 66, **has: Any
) -> Contest:
    """A cell of two repeats of so many requests, eleven a session, with noise of their own."""
    new = random.choice(LENGTHS, count).astype(np.float32)
    sessions = np.arange(count) // 11
    pairs = {
        name: Pairs(
            shapes=np.arange(count).astype(np.uint64),
            sessions=sessions.astype(np.uint64),
            new=new,
            base={"ttft": np.full(count, log(0.2), np.float32)},
            changes={"ttft": (effect(new) + random.normal(size=count) * 0.35).astype(np.float32)},
            longer=np.zeros(count, np.float32),
            held=({}, {}),
            unmatched=(0, 0),
            apart=0,
            told=None,
        )
        for name in ("first", "second")
    }
    whole: dict[str, Any] = {
        "base": (),
        "other": (),
        "pairs": pairs,
        "sessions": dict.fromkeys(pairs, sessions),
        "matched": Matched(pairs=2 * count, unmatched=0.0, lost=0.0, sessions=count // 11),
        "recurring": True,
        "ordered": True,
        "twins": False,
    }
    return Contest(**{**whole, **has})


def told(cell: Contest) -> tuple[Stratum, ...]:
    """The strata that contradict the mean of the cell."""
    found = strata(cell)
    changes = [pairs.changes["ttft"].mean() for pairs in cell.pairs.values()]
    return contrary(found, float(np.exp(np.mean(changes))), MARGIN, looked_at(found))


def lengthy(arm: int, effect: Callable[[Values], Values], **changes: Any) -> Requests:
    """Requests of ten sessions with prompts of unlike lengths, of which 1,000 tokens are cached."""

    def sent(repeat: int) -> list[RequestRecord]:
        new = np.resize(LENGTHS, 100)
        random = np.random.default_rng([arm, repeat])
        ttfts = 0.2 * np.exp(effect(new) + random.normal(size=100) * 0.05)
        known: dict[str, Any] = {"cached_tokens": 1000, "ceiling_tokens": 1000, **changes}
        rows = served(ttfts.tolist(), repeat, turns=10)
        return [
            replace(row, asked_input=length, input_tokens=length, **known)
            for row, length in zip(rows, (1000 + new).tolist(), strict=True)
        ]

    return sent


def compared(out: Path, *arms: Requests) -> CellComparison:
    base, other = within(run_folder(out, dict(zip("ab", arms, strict=True)), 2))[0]
    return compare(base, other).cells[0]


def nothing(new: Values) -> Values:
    return np.zeros(len(new))


def by_span(found: tuple[Stratum, ...]) -> dict[tuple[int, int], Stratum]:
    return {(one.first, one.last): one for one in found}


def test_the_new_tokens_of_requests_are_sorted_by_half_octaves(tmp_path: Path) -> None:
    found = by_span(compared(tmp_path, lengthy(1, nothing), lengthy(2, stepped)).strata)
    assert list(found)[:7] == [
        *((65, 96), (129, 192), (193, 256), (257, 384)),
        *((385, 512), (513, 768), (769, 1024)),
    ]
    assert sum(one.requests for one in found.values()) == 100
    assert found[385, 512].ratio == pytest.approx(1.49, rel=0.05)
    assert found[513, 768].ratio == pytest.approx(0.61, rel=0.05)
    assert found[257, 384].base == pytest.approx(0.2, rel=0.05)
    assert (found[385, 512].requests, found[385, 512].sessions) == (14, 9)


def test_the_side_that_found_more_in_the_cache_says_what_is_new(tmp_path: Path) -> None:
    # Without hits all 1,072 to 3,760 tokens of a prompt are computed, by base alone.
    one = compared(tmp_path, lengthy(1, nothing, cached_tokens=0), lengthy(2, nothing))
    assert (65, 96) in by_span(one.strata)


@pytest.mark.parametrize(("ceiling", "first"), [(1000, 65), (None, 1025)])
def test_of_a_cache_that_is_not_told_it_is_what_the_session_had_not_sent(
    tmp_path: Path, ceiling: int | None, first: int
) -> None:
    untold = lengthy(1, nothing, cached_tokens=None, ceiling_tokens=None)
    one = compared(tmp_path, untold, lengthy(2, nothing, ceiling_tokens=ceiling))
    assert one.strata[0].first == first


def test_intervals_are_students_over_requests_whose_repeats_are_averaged() -> None:
    changes = np.array([0.1, 0.2, 0.3, 0.4, 0.5], np.float32)
    cell = made(level, np.random.default_rng(1), 5)
    pairs = {
        name: replace(one, new=np.full(5, 400, np.float32), changes={"ttft": changes * factor})
        for (name, one), factor in zip(cell.pairs.items(), (0.5, 1.5), strict=True)
    }
    (only,) = strata(replace(cell, pairs=pairs))
    # 0.3, and 2.776 times 0.1581 over the root of 5 either way.
    assert only.requests == 5
    assert only.low is not None
    assert only.high is not None
    ends = [log(one) for one in (only.low, only.ratio, only.high)]
    assert ends == pytest.approx((0.1037, 0.3, 0.4963), abs=1e-4)


def test_fewer_than_five_requests_have_no_interval_and_one_stratum_is_not_looked_at() -> None:
    alone = [one for one in strata(made(level, np.random.default_rng(1), 66)) if one.requests < 5]
    assert alone
    assert all(one.low is None for one in alone)
    cell = made(level, np.random.default_rng(1), 66)
    pairs = {name: replace(one, new=0 * one.new + 400) for name, one in cell.pairs.items()}
    assert looked_at(strata(replace(cell, pairs=pairs))) == 0
    assert told(replace(cell, pairs=pairs)) == ()


def test_too_few_partners_have_no_strata() -> None:
    lost = Matched(pairs=100, unmatched=0.3, lost=0.06, sessions=6)
    assert strata(made(level, np.random.default_rng(1), matched=lost)) == ()
    assert strata(made(level, np.random.default_rng(1), matched=None)) == ()


def test_one_effect_for_all_lengths_is_told_as_several_in_at_most_5_of_100() -> None:
    for effect in (nothing, level):
        random = np.random.default_rng(2)
        assert sum(bool(told(made(effect, random))) for _ in range(200)) <= 10


def test_a_step_is_told_with_the_stratum_that_is_worst_and_the_one_that_is_best() -> None:
    random = np.random.default_rng(3)
    found = [told(made(stepped, random, 177)) for _ in range(100)]
    assert sum(map(bool, found)) >= 80
    assert all(one[0].ratio > one[-1].ratio for one in found if len(one) == 2)
    firsts = [one[0].first for one in found if one]
    assert max(set(firsts), key=firsts.count) == 385


def test_a_step_that_does_not_matter_is_not_told() -> None:
    def small(new: Values) -> Values:
        return np.where(new <= 512, log(0.78), log(0.70))

    random = np.random.default_rng(4)
    assert not any(told(made(small, random, 500)) for _ in range(20))
