"""Figures of the same work, and nothing good of what is not the same work."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from results.baseline import baseline, of_runs
from results.comparison import CellComparison, compare
from results.failures import chance
from results.record import RequestRecord
from results.run import Run, RunPoint
from results.side import Side, side, within
from results.verdict import Judgement, Margin, Rule
from tests.run_folders import Requests, run_folder, served
from tests.test_results_record import failed, made

SESSIONS, TURNS = 12, 10


def deepening(arm: int, *, factor: float = 1.0, turns: int = TURNS, **changes: Any) -> Requests:
    """Sessions whose every turn takes a fifth longer than the one before, told as far as it got."""

    def rows(repeat: int) -> list[RequestRecord]:
        noise = np.random.default_rng([arm, repeat]).normal(size=(SESSIONS, TURNS)) * 0.02
        run = np.random.default_rng([arm, repeat, 1]).normal() * 0.01
        ttfts = 0.1 * factor * 1.2 ** np.arange(TURNS) * np.exp(noise + run)
        whole = served(ttfts.ravel().tolist(), repeat, turns=TURNS, **changes)
        return [row for row in whole if row.turn < turns]

    return rows


def told(run: Run, *rules: Rule) -> CellComparison:
    (only,) = compare(*within(run)[0], rules).cells
    return only


def of(cell: CellComparison, metric: str) -> Judgement:
    return next(one for one in cell.judgements if one.effect.metric == metric)


def ruled(metric: str, margin: float = 0.05) -> Rule:
    return Rule(metric=metric, margin=Margin(relative=margin))


def without_requests(run: Run) -> Side:
    """The run as a baseline file keeps one with too many requests."""
    (kept,) = baseline([run]).runs

    def bare(point: RunPoint) -> RunPoint:
        return replace(point, kept=replace(point.kept, rows=None))

    return of_runs("kept", [replace(kept, points=tuple(map(bare, kept.points)))])


def test_a_slower_side_is_no_better_for_the_deep_turns_that_it_never_got_to(tmp_path: Path) -> None:
    arms = {"a": deepening(1), "b": deepening(2, factor=1.15, turns=8)}
    cell = told(run_folder(tmp_path, arms), ruled("ttft.p90"))
    for metric in ("ttft", "ttft.p50", "ttft.p90", "ttft.mean"):
        one = of(cell, metric)
        assert one.effect.ratio == pytest.approx(1.15, abs=0.03), metric
        assert one.verdict == "worse", metric
    p90 = of(cell, "ttft.p90")
    assert p90.gate == "fail"
    assert p90.effect.reason == "over the requests that both sides answered"


def test_figures_of_requests_are_those_of_the_shared_ones_by_hand(tmp_path: Path) -> None:
    def arm(factor: float, count: int) -> Requests:
        def rows(repeat: int) -> list[RequestRecord]:
            made = deepening(1, factor=factor, turns=count)(repeat)
            return [
                replace(row, cached_tokens=100 * row.turn, ceiling_tokens=100 * row.turn)
                for row in made
            ]

        return rows

    # Of 1,000 tokens each: turns 0 to 4 are on both sides: 0, 100, ... 400 cached, 0.2 of all.
    hit = of(told(run_folder(tmp_path, {"a": arm(1.0, 10), "b": arm(1.0, 5)})), "cache_hit")
    assert hit.effect.base == pytest.approx(0.2)
    assert hit.effect.other == pytest.approx(0.2)
    assert hit.verdict == "same"


def test_where_both_sides_answered_all_nothing_is_said_of_it(tmp_path: Path) -> None:
    cell = told(run_folder(tmp_path, {"a": deepening(1), "b": deepening(2)}))
    for metric in ("ttft.p90", "output_rate"):
        assert of(cell, metric).effect.reason is None


def test_what_was_cut_counts_on_neither_side(tmp_path: Path) -> None:
    def open_end(repeat: int) -> list[RequestRecord]:
        *rows, last = deepening(2)(repeat)
        return [*rows, replace(last, state="cut", reason="the window ended", finish_reason=None)]

    effect = of(told(run_folder(tmp_path, {"a": deepening(1), "b": open_end})), "e2el.mean").effect
    assert effect.reason == "over the requests that both sides answered"


def test_of_more_work_on_one_side_a_baseline_without_requests_shows_nothing_good(
    tmp_path: Path,
) -> None:
    base = run_folder(tmp_path / "base", {"a": deepening(1)})
    slower = run_folder(tmp_path / "new", {"a": deepening(2, factor=1.15, turns=8)}).path
    (cell,) = compare(without_requests(base), side([str(slower)]), [ruled("ttft.p90")]).cells
    for metric in ("ttft", "ttft.p90", "goodput_share"):
        for one in (each for each in cell.judgements if each.effect.metric == metric):
            assert one.verdict == "inconclusive"
            assert "answered 120 requests and one of other 96" in one.reason
            assert one.runs_needed is None
    assert of(cell, "ttft.p90").gate == "inconclusive"
    assert "not the same work" in (of(cell, "output_rate").effect.reason or "")


def test_who_gets_further_is_not_worse_for_it(tmp_path: Path) -> None:
    base = run_folder(tmp_path / "base", {"a": deepening(1, turns=8)})
    faster = run_folder(tmp_path / "new", {"a": deepening(2, factor=0.95)}).path
    (cell,) = compare(without_requests(base), side([str(faster)]), [ruled("ttft.p90")]).cells
    one = of(cell, "ttft.p90")
    assert one.effect.ratio > 1.2
    assert (one.verdict, one.gate) == ("inconclusive", "inconclusive")


def test_as_much_work_is_judged_without_single_requests(tmp_path: Path) -> None:
    base = run_folder(tmp_path / "base", {"a": deepening(1)})
    for factor, verdict in ((1.0, "same"), (1.2, "worse"), (0.8, "better")):
        new = run_folder(tmp_path / str(factor), {"a": deepening(2, factor=factor)}).path
        (cell,) = compare(without_requests(base), side([str(new)])).cells
        assert [of(cell, metric).verdict for metric in ("ttft", "ttft.p90")] == [verdict] * 2


def test_a_baseline_with_requests_compares_those_that_both_answered(tmp_path: Path) -> None:
    base = run_folder(tmp_path / "base", {"a": deepening(1)})
    slower = run_folder(tmp_path / "new", {"a": deepening(2, factor=1.15, turns=8)}).path
    kept = of_runs("kept", baseline([base]).runs)
    (cell,) = compare(kept, side([str(slower)]), [ruled("ttft.p90")]).cells
    one = of(cell, "ttft.p90")
    assert one.effect.ratio == pytest.approx(1.15, abs=0.03)
    assert one.gate == "fail"


def test_requests_without_a_partner_are_never_better_and_never_pass(tmp_path: Path) -> None:
    for factor, verdict in ((0.7, "inconclusive"), (1.0, "inconclusive"), (1.3, "worse")):
        arms = {"a": deepening(1), "b": deepening(2, factor=factor, content="else")}
        cell = told(run_folder(tmp_path / str(factor), arms), ruled("ttft"), ruled("ttft.p90"))
        for metric in ("ttft", "ttft.p90"):
            one = of(cell, metric)
            assert one.verdict == verdict
            assert one.gate == ("fail" if verdict == "worse" else "inconclusive")
            if verdict == "inconclusive":
                assert "too few requests are on both sides" in one.reason


def failing(share: int, arm: int = 2, factor: float = 1.0) -> Requests:
    """The same with so many in a hundred requests that fail."""

    def rows(repeat: int) -> list[RequestRecord]:
        random = np.random.default_rng([arm, repeat, 7])
        made: Sequence[RequestRecord] = deepening(arm, factor=factor)(repeat)
        chosen = random.random(len(made)) < share / 100
        return [
            failed(trace=row.trace, tree=row.tree, turn=row.turn, sent=row.sent) if bad else row
            for row, bad in zip(made, chosen, strict=True)
        ]

    return rows


def test_who_fails_requests_passes_nothing_else(tmp_path: Path) -> None:
    rules = [ruled(metric) for metric in ("ttft", "ttft.p90", "output_rate")]
    points = Rule(metric="failed_share", margin=Margin(absolute=0.01))
    arms = {"a": deepening(1), "b": failing(8, factor=0.8)}
    cell = told(run_folder(tmp_path, arms), *rules, points)
    for metric in ("ttft", "ttft.p90"):
        one = of(cell, metric)
        assert (one.verdict, one.gate) == ("inconclusive", "inconclusive")
        assert (
            f"0 of 480 requests failed in base and {cell.failed[1]} of 480 in other" in one.reason
        )
    share = of(cell, "failed_share")
    assert (share.verdict, share.gate) == ("worse", "fail")
    assert share.effect.base == 0
    # In points: 1 and the difference.
    assert share.effect.ratio == pytest.approx(1 + cell.failed[1] / 480)
    assert share.margin == pytest.approx(0.01)


def test_what_is_slower_and_fails_requests_is_still_worse(tmp_path: Path) -> None:
    arms = {"a": deepening(1), "b": failing(8, factor=1.2)}
    one = of(told(run_folder(tmp_path, arms), ruled("ttft")), "ttft")
    assert (one.verdict, one.gate) == ("worse", "fail")


def test_failures_that_may_be_chance_stand_in_the_way_of_nothing(tmp_path: Path) -> None:
    arms = {"a": failing(1, arm=1), "b": failing(1)}
    cell = told(run_folder(tmp_path, arms), ruled("ttft"))
    assert sum(cell.failed) > 0
    assert of(cell, "ttft").gate == "pass"
    assert of(cell, "failed_share").verdict == "same"


def test_the_exact_test_as_worked_by_hand() -> None:
    # Three of three against none of three: 1 of the 20 ways each way.
    assert chance((3, 3), (0, 3)) == pytest.approx(0.1)
    # Four of eight lady's cups: (1 + 16 + 16 + 1) / 70.
    assert chance((3, 4), (1, 4)) == pytest.approx(34 / 70)
    assert chance((0, 50), (0, 70)) == 1
    assert chance((0, 0), (3, 9)) == 1


def good(limit: float) -> dict[str, Any]:
    return {"objectives": {"ttft": limit, "tpot": None, "e2el": None}}


def test_what_falls_to_nothing_in_every_run_is_worse_and_the_other_way_better(
    tmp_path: Path,
) -> None:
    quick, slow = deepening(1), deepening(2, factor=10.0)
    for arms, verdict in (((quick, slow), "worse"), ((slow, quick), "better")):
        made = run_folder(tmp_path / verdict, dict(zip("ab", arms, strict=True)), **good(0.5))
        cell = told(made, ruled("goodput"), Rule(metric="cache_hit", margin=Margin(absolute=0.1)))
        for metric in ("goodput", "goodput_share"):
            assert of(cell, metric).verdict == verdict
        assert of(cell, "goodput").gate == ("fail" if verdict == "worse" else "pass")
        assert "it is 0 in every run of" in (of(cell, "goodput").effect.reason or "")


def test_what_falls_to_nothing_by_chance_or_in_one_run_is_not_judged(tmp_path: Path) -> None:
    def one_good(repeat: int) -> list[RequestRecord]:
        return [*deepening(2, factor=10.0)(repeat)[1:], deepening(1)(repeat)[0]]

    few = run_folder(tmp_path / "few", {"a": one_good, "b": deepening(3, factor=10.0)}, **good(0.5))
    alone = run_folder(
        tmp_path / "alone", {"a": deepening(1), "b": deepening(3, factor=10.0)}, 1, **good(0.5)
    )
    for run in (few, alone):
        assert of(told(run), "goodput").verdict == "inconclusive"


def test_rates_say_that_each_side_counts_its_own_requests(tmp_path: Path) -> None:
    arms = {"a": deepening(1), "b": deepening(2, turns=8)}
    cell = told(run_folder(tmp_path, arms))
    for metric in ("output_rate", "request_rate"):
        assert "on one side only" in (of(cell, metric).effect.reason or "")


def hanging(arm: int, waited: float, *, factor: float = 1.0) -> Requests:
    """Sessions of which the later ones are cut in their first turn, after so many seconds."""

    def rows(repeat: int) -> list[RequestRecord]:
        return [
            _cut(row, waited) if row.tree >= 4 else row
            for row in deepening(arm, factor=factor)(repeat)
            if row.tree < 4 or not row.turn
        ]

    return rows


def _cut(row: RequestRecord, waited: float) -> RequestRecord:
    return made(
        trace=row.trace,
        tree=row.tree,
        turn=row.turn,
        sent=row.sent,
        closed=row.sent + waited,
        prompt_hash=row.prompt_hash,
        state="cut",
        reason="cut at the deadline",
        finish_reason=None,
        input_tokens=None,
        output_tokens=None,
    )


def test_who_hangs_until_it_is_cut_passes_on_no_latency(tmp_path: Path) -> None:
    names = ("ttft", "tpot", "e2el", "ttft.p50", "itl.p50")
    cell = told(
        run_folder(tmp_path, {"a": deepening(1), "b": hanging(2, 50.0)}), *map(ruled, names)
    )
    for metric in names:
        one = of(cell, metric)
        assert (one.verdict, one.gate) == ("inconclusive", "inconclusive"), metric
        assert one.reason == (
            "32 requests beside the 160 compared were cut on other when they had waited longer "
            "than the other side took, 50 s at most"
        )
        assert one.runs_needed is None
    assert (
        "requests that the end of the window cut, which are in no latency: 0 of 480 (base), "
        "32 of 192 (other)"
    ) in cell.notes


def test_nobody_is_worse_than_who_hangs(tmp_path: Path) -> None:
    arms = {"a": hanging(1, 50.0), "b": deepening(2, factor=1.2)}
    one = of(told(run_folder(tmp_path, arms), ruled("ttft")), "ttft")
    assert (one.verdict, one.gate) == ("inconclusive", "inconclusive")
    assert "were cut on base" in one.reason


def test_what_is_cut_no_later_than_it_would_have_been_answered_is_not_held(tmp_path: Path) -> None:
    # The first turn takes 0.1 s, and 0.02 more to the end: 0.11 s are longer than its TTFT alone.
    for waited, factor, metrics in ((0.09, 1.0, ("ttft", "e2el")), (0.13, 1.5, ("ttft", "e2el"))):
        arms = {"a": deepening(1), "b": hanging(2, waited, factor=factor)}
        cell = told(run_folder(tmp_path / str(factor), arms))
        assert [of(cell, metric).effect.doubt for metric in metrics] == [None, None]
    early = told(run_folder(tmp_path, {"a": deepening(1), "b": hanging(2, 0.11)}))
    assert "were cut on other" in (of(early, "ttft").effect.doubt or "")
    assert of(early, "e2el").effect.doubt is None


def speaking(arm: int, tokens: int, spread: int = 0) -> Requests:
    """Answers of so many tokens, or of so many more by chance, 20 ms from one to the next."""

    def rows(repeat: int) -> list[RequestRecord]:
        more = np.random.default_rng([arm, repeat, 3]).integers(0, spread + 1, SESSIONS * TURNS)
        return [
            made(
                [stamp + 0.02 * number for number in range(tokens + extra)],
                trace=row.trace,
                tree=row.tree,
                turn=row.turn,
                sent=row.sent,
                prompt_hash=row.prompt_hash,
            )
            for row, extra in zip(deepening(arm)(repeat), more.tolist(), strict=True)
            for stamp in [(row.first or 0.0) - (row.sent or 0.0)]
        ]

    return rows


def test_shorter_answers_are_no_faster_ones_and_longer_ones_no_slower(tmp_path: Path) -> None:
    for one, two, by in ((36, 21, "41.7 % shorter"), (21, 36, "71.4 % longer")):
        arms = {"a": speaking(1, one), "b": speaking(2, two)}
        cell = told(run_folder(tmp_path / by[:2], arms), ruled("e2el"), ruled("tpot"))
        for metric in ("e2el", "schedule_e2el", "e2el.p50"):
            assert of(cell, metric).verdict == "inconclusive"
            assert f"answers to the same requests are {by} on other" in of(cell, metric).reason
        assert of(cell, "e2el").gate == "inconclusive"
        assert (of(cell, "tpot").verdict, of(cell, "ttft").verdict) == ("same", "same")


def test_answers_whose_lengths_chance_alone_sets_apart_are_the_same_work(tmp_path: Path) -> None:
    arms = {"a": speaking(1, 10, 20), "b": speaking(2, 10, 20)}
    assert of(told(run_folder(tmp_path, arms)), "e2el").effect.doubt is None
