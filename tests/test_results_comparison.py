"""Two sides compared through their run folders, from rows to verdicts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from results.comparison import CellComparison, Comparison, compare
from results.contrast import IDENTICAL
from results.errors import InputError
from results.failures import difference
from results.record import RequestRecord
from results.run import Run
from results.side import Side, side, within
from results.verdict import Judgement, Margin, Rule
from tests.run_folders import Requests, run_folder, served
from tests.test_results_record import failed

GATE = (Rule(metric="ttft", margin=Margin(relative=0.05)),)
COUNT = 40


def noisy(
    arm: int, *, factor: float = 1.0, run: float = 0.01, own: float = 0.02, **changes: Any
) -> Requests:
    """Requests of 20 sessions whose TTFT differ tenfold, times a factor and noise of two kinds."""

    def rows(repeat: int) -> list[RequestRecord]:
        shared = np.random.default_rng(repeat).uniform(0.1, 1.0, size=COUNT)
        random = np.random.default_rng([arm, repeat])
        whole = factor * np.exp(random.normal() * run + random.normal(size=COUNT) * own)
        return served((shared * whole).tolist(), repeat, **changes)

    return rows


@pytest.fixture(scope="module")
def slower(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Arm b takes 1.2 times as long."""
    folder = tmp_path_factory.mktemp("slower")
    return run_folder(folder, {"a": noisy(1), "b": noisy(2, factor=1.2)})


def compared(run: Run, **options: Any) -> Comparison:
    base, other = within(run)[0]
    return compare(base, other, options.pop("rules", GATE), **options)


def cell(comparison: Comparison) -> CellComparison:
    (only,) = comparison.cells
    return only


def judged(comparison: Comparison, metric: str = "ttft") -> Judgement:
    return next(one for one in cell(comparison).judgements if one.effect.metric == metric)


def test_gpus_that_are_clocked_apart_are_told(tmp_path: Path) -> None:
    arms = {"a": noisy(1), "b": noisy(2)}
    apart = run_folder(tmp_path / "apart", arms, clocks={"a": 1.80e9, "b": 1.85e9})
    (note,) = (note for note in cell(compared(apart)).notes if "clocked" in note)
    assert "at 1,800 MHz on average on base and at 1,850 MHz on other" in note
    assert note.endswith("that alone makes other 2.7 % faster")
    alike = run_folder(tmp_path / "alike", arms, clocks={"a": 1.80e9, "b": 1.81e9})
    assert not [note for note in cell(compared(alike)).notes if "clocked" in note]


def test_what_was_made_slower_is_worse_and_its_ratio_is_found(slower: Run) -> None:
    told = judged(compared(slower))
    assert (told.verdict, told.gate, told.gated) == ("worse", "fail", True)
    assert told.effect.how == "paired requests"
    assert told.effect.ratio == pytest.approx(1.2, abs=0.03)
    assert told.effect.runs == (4, 4)
    assert (told.effect.matched.pairs, told.effect.matched.lost) == (160, 0)
    assert len(told.effect.values) == 8
    assert told.effect.detectable is not None


def test_all_other_metrics_are_exploratory_and_each_has_its_own_way(slower: Run) -> None:
    # Of what no run has, nothing is said, unless a rule names it.
    absent = Rule(metric="batch_rate", margin=Margin(relative=0.05))
    told = compared(slower, rules=[*GATE, absent])
    figure, rate = judged(told, "ttft.p50"), judged(told, "batch_rate")
    assert (figure.gated, figure.gate) == (False, None)
    assert figure.effect.how in {"runs with drift", "pairs of runs"}
    assert figure.effect.matched is None
    assert (rate.verdict, rate.gate) == ("inconclusive", "inconclusive")
    names = [one.effect.metric for one in cell(told).judgements]
    assert "batch_tpot" not in names


def test_runs_without_any_noise_are_the_same_with_ratio_one(tmp_path: Path) -> None:
    def exact(repeat: int) -> list[RequestRecord]:
        return served([0.1 + 0.01 * n for n in range(20)], repeat)

    for repeats in (1, 3):
        told = compared(run_folder(tmp_path / str(repeats), {"a": exact, "b": exact}, repeats))
        for one in cell(told).judgements:
            assert one.verdict == "same", one.effect.metric
            assert (one.effect.ratio, one.effect.low, one.effect.high) == (1.0, 1.0, 1.0)
            assert one.effect.how == "identical"


def test_one_pair_of_runs_is_inconclusive_however_far_apart(tmp_path: Path) -> None:
    run = run_folder(tmp_path, {"a": noisy(1), "b": noisy(2, factor=2.0)}, repeats=1)
    for metric in ("ttft", "ttft.p50", "output_rate"):
        told = judged(compared(run), metric)
        assert told.verdict == "inconclusive"
        assert told.effect.low is not None
        assert told.effect.how == "one pair"
        assert told.more_runs == 3


def test_the_interval_of_one_pair_widens_with_the_likeness_inside_sessions(tmp_path: Path) -> None:
    def correlated(share: float) -> Requests:
        def rows(repeat: int) -> list[RequestRecord]:
            random = np.random.default_rng(5)
            own = random.normal(size=(20, 4)) * np.sqrt(1 - share)
            alike = random.normal(size=(20, 1)) * np.sqrt(share)
            return served((0.2 * np.exp(0.1 * (own + alike))).ravel().tolist(), repeat, turns=4)

        return rows

    def steady(repeat: int) -> list[RequestRecord]:
        return served([0.2] * 80, repeat, turns=4)

    widths = []
    for share in (0.0, 0.5, 0.95):
        arms = {"a": steady, "b": correlated(share)}
        effect = judged(compared(run_folder(tmp_path / str(share), arms, repeats=1))).effect
        widths.append(effect.high - effect.low)
    assert widths[0] < widths[1] < widths[2]


def test_runs_of_the_same_few_sessions_do_not_stand_for_other_sessions(tmp_path: Path) -> None:
    # Every session changes by another factor, in every run alike: runs hardly differ at all.
    factors = np.exp(np.random.default_rng(3).normal(size=20) * 0.3)

    def rows(arm: int) -> Requests:
        def made(repeat: int) -> Sequence[RequestRecord]:
            noise = np.exp(np.random.default_rng([arm, repeat]).normal(size=20) * 0.001)
            ttfts = 0.2 * noise * (factors if arm else 1.0)
            return served(ttfts.tolist(), repeat, turns=1)

        return made

    effect = judged(compared(run_folder(tmp_path, {"a": rows(0), "b": rows(1)}))).effect
    # The standard error of 20 sessions: 0.3 / sqrt(20) = 0.067, by their own spread.
    assert effect.error == pytest.approx(np.log(factors).std(ddof=1) / np.sqrt(20), rel=0.1)
    assert effect.sessions == pytest.approx(effect.error, rel=0.01)


def test_requests_without_a_partner_make_it_a_comparison_of_runs_and_say_so(tmp_path: Path) -> None:
    def other(repeat: int) -> list[RequestRecord]:
        return list(noisy(2, factor=1.2, content="else")(repeat))

    effect = judged(compared(run_folder(tmp_path, {"a": noisy(1), "b": other}))).effect
    assert effect.how != "paired requests"
    assert effect.matched.lost == 1.0
    assert "all requests of each run are compared" in effect.reason


def test_what_only_the_faster_side_got_to_costs_nothing_but_is_told(tmp_path: Path) -> None:
    def shorter(repeat: int) -> list[RequestRecord]:
        return list(noisy(2)(repeat))[: COUNT // 2]

    effect = judged(compared(run_folder(tmp_path, {"a": noisy(1), "b": shorter}))).effect
    assert effect.how == "paired requests"
    assert (effect.matched.pairs, effect.matched.lost) == (80, 0)
    assert effect.matched.unmatched == pytest.approx(0.5)
    assert "only one side got to" in effect.reason


def test_other_prompt_tokens_for_the_same_message_are_refused_unless_allowed(
    tmp_path: Path,
) -> None:
    arms = {"a": noisy(1), "b": noisy(2, input_tokens=1001)}
    run = run_folder(tmp_path, arms)
    refused = compared(run)
    assert refused.cells == ()
    assert "1000 against 1001 input tokens for the same message" in refused.refusals[0]
    assert "--allow prompt_tokens" in refused.refusals[0]
    allowed = compared(run, allow=["prompt_tokens"])
    assert allowed.allowed == ("prompt_tokens",)
    assert judged(allowed).verdict == "same"


def test_a_point_that_did_not_finish_makes_its_cell_invalid_and_says_why(tmp_path: Path) -> None:
    run = run_folder(tmp_path, {"a": noisy(1), "b": noisy(2)}, status="failed")
    told = cell(compared(run))
    assert "failed: the engine died" in told.problems[0]
    assert [(one.verdict, one.gate) for one in told.judgements] == [("invalid", "invalid")]


def test_a_run_whose_numbers_must_not_be_used_makes_its_cell_invalid(tmp_path: Path) -> None:
    def beyond(repeat: int) -> list[RequestRecord]:
        return list(noisy(2, cached_tokens=2000)(repeat))

    told = cell(compared(run_folder(tmp_path, {"a": noisy(1), "b": beyond})))
    assert any("more cached than input" in problem for problem in told.problems)
    assert {one.verdict for one in told.judgements} == {"invalid"}


def test_failed_requests_are_left_out_and_counted_for_each_side(tmp_path: Path) -> None:
    def failing(repeat: int) -> list[RequestRecord]:
        rows = list(noisy(2)(repeat))
        return [*rows[:-1], failed(tree=19, trace="session-19", turn=1, sent=1.0)]

    told = cell(compared(run_folder(tmp_path, {"a": noisy(1), "b": failing})))
    assert (told.failed, told.asked) == ((0, 4), (160, 160))
    effect = told.judgements[0].effect
    assert effect.matched.pairs == 156


def test_loads_are_never_pooled(tmp_path: Path) -> None:
    loads = [{"kind": "closed", "concurrency": number} for number in (8, 16)]
    runs = [
        run_folder(
            tmp_path / str(number),
            {"a": noisy(1), "b": noisy(2, factor=1 + number / 5)},
            3,
            load=load,
        ).path
        for number, load in enumerate(loads)
    ]
    base, other = (side([f"{path}:{arm}" for path in runs]) for arm in "ab")
    told = compare(base, other, GATE)
    assert [one.load["concurrency"] for one in told.cells] == [8, 16]
    assert [one.judgements[0].verdict for one in told.cells] == ["same", "worse"]


def test_two_folders_of_one_suite_are_compared_arm_by_arm_and_cell_by_cell(tmp_path: Path) -> None:
    old = run_folder(tmp_path / "old", {"a": noisy(1), "b": noisy(2)}).path
    new = run_folder(tmp_path / "new", {"a": noisy(3), "b": noisy(4, factor=1.2)}).path
    told = compare(side([str(old)]), side([str(new)]), GATE)
    assert [one.arms for one in told.cells] == [("a", "a"), ("b", "b")]
    assert [one.judgements[0].verdict for one in told.cells] == ["same", "worse"]
    assert any("several folders" in note for note in told.cells[0].notes)
    alone = compare(side([f"{old}:a"]), side([str(new)]), GATE)
    assert [one.arms for one in alone.cells] == [("a", "a")]
    assert len(alone.unmatched) == 1


def test_a_baseline_of_several_runs_counts_them_all(tmp_path: Path) -> None:
    old = [run_folder(tmp_path / name, {"a": noisy(n)}, 3).path for n, name in enumerate("xyz")]
    new = run_folder(tmp_path / "new", {"a": noisy(9)}, 3).path
    told = compare(side([str(path) for path in old]), side([str(new)]), GATE)
    effect = cell(told).judgements[0].effect
    assert effect.runs == (9, 3)
    assert effect.matched.pairs == 120
    assert cell(told).judgements[0].verdict == "same"


def test_arms_of_several_folders_are_paired_folder_by_folder(tmp_path: Path) -> None:
    def shifted(arm: int, day: float) -> Requests:
        return noisy(arm, factor=day * (1.1 if arm == 2 else 1.0))

    paths = [
        run_folder(tmp_path / str(day), {"a": shifted(1, day), "b": shifted(2, day)}, 3).path
        for day in (1.0, 4.0)
    ]
    base, other = (side([f"{path}:{arm}" for path in paths]) for arm in "ab")
    told = compare(base, other, GATE)
    for metric in ("ttft", "ttft.p50"):
        one = next(one for one in told.cells[0].judgements if one.effect.metric == metric)
        assert one.effect.freedom >= 5
        assert one.effect.ratio == pytest.approx(1.1, abs=0.03)
        assert one.verdict == "worse"


def nightly(path: Path, factors: Sequence[float], first: int, repeats: int = 3) -> list[str]:
    """The paths of one run folder a night, on which everything takes so many times as long."""
    return [
        str(run_folder(path / str(first + n), {"a": noisy(first + n, factor=one)}, repeats).path)
        for n, one in enumerate(factors)
    ]


@pytest.mark.parametrize("repeats", [1, 3])
def test_a_night_like_those_of_the_baseline_is_neither_better_nor_worse(
    tmp_path: Path, repeats: int
) -> None:
    old = nightly(tmp_path, [0.95, 1.0, 1.05], 0, repeats)
    for first, factor, verdicts in ((10, 1.09, {"inconclusive"}), (20, 1.5, {"worse"})):
        new = nightly(tmp_path, [factor], first, repeats)
        told = compare(side(old), side(new), GATE)
        for metric in ("ttft", "ttft.mean"):
            one = judged(told, metric)
            assert one.effect.folders == (3, 1)
            assert (one.effect.freedom or 0) == pytest.approx(2, abs=0.5)
            assert {one.verdict} == verdicts
        assert judged(told).effect.how == "paired requests"
        assert judged(told, "ttft.mean").effect.how == "folders"


def test_three_nights_a_side_find_what_lies_beyond_their_spread(tmp_path: Path) -> None:
    old, new = nightly(tmp_path, [0.98, 1.0, 1.02], 0), nightly(tmp_path, [1.18, 1.2, 1.22], 10)
    one = judged(compare(side(old), side(new), GATE))
    assert (one.verdict, one.effect.folders) == ("worse", (3, 3))
    assert one.effect.ratio == pytest.approx(1.2, abs=0.02)


def test_a_night_counts_by_the_requests_that_all_nights_answered(tmp_path: Path) -> None:
    def shorter(repeat: int) -> list[RequestRecord]:
        return list(noisy(3)(repeat))[: COUNT // 2]

    old = nightly(tmp_path, [1.0, 1.0], 0)
    short = run_folder(tmp_path / "short", {"a": shorter}, 3).path
    new = nightly(tmp_path, [1.0], 10)
    effect = judged(compare(side([*old, str(short)]), side(new), GATE)).effect
    assert effect.folders == (3, 1)
    # Requests of one repeat differ tenfold, so a mean over half of them would be far off.
    assert effect.error < 0.03


def test_failures_that_are_the_same_in_every_run_are_counted(tmp_path: Path) -> None:
    def failing(count: int) -> Requests:
        def rows(repeat: int) -> list[RequestRecord]:
            lost = [failed(tree=n, trace=f"session-{n}", turn=1, sent=1.0) for n in range(count)]
            return [*list(noisy(2)(repeat))[count:], *lost]

        return rows

    point = [Rule(metric="failed_share", margin=Margin(absolute=0.01))]
    for count, verdict, gate in ((4, "worse", "fail"), (1, "inconclusive", "inconclusive")):
        run = run_folder(tmp_path / str(count), {"a": noisy(1), "b": failing(count)}, 3)
        one = judged(compared(run, rules=point), "failed_share")
        assert (one.verdict, one.gate, one.effect.how) == (verdict, gate, "exact")
        assert one.effect.ratio == pytest.approx(1 + count / COUNT)
    wide = [Rule(metric="failed_share", margin=Margin(absolute=0.2))]
    assert judged(compared(run, rules=wide), "failed_share").gate == "pass"


@pytest.mark.parametrize(
    ("base", "other", "expected"),
    [
        # Newcombe 1998, table II, method 10.
        ((48, 80), (56, 70), (0.0524, 0.3339)),
        ((3, 10), (9, 10), (0.1705, 0.8090)),
        ((0, 10), (10, 10), (0.6075, 1.0000)),
        # It alone would leave out 0, which Fisher's p = 0.087 does not.
        ((0, 10), (4, 10), (0.0, 0.6873)),
    ],
)
def test_the_difference_of_two_shares_has_newcombes_interval(
    base: tuple[int, int], other: tuple[int, int], expected: tuple[float, float]
) -> None:
    assert difference(base, other) == pytest.approx(expected, abs=5e-5)


def test_holm_is_over_the_gated_metrics_of_all_cells(slower: Run) -> None:
    rules = [Rule(metric=name, margin=Margin(relative=0.05)) for name in ("ttft", "output_rate")]
    told = [one for one in cell(compared(slower, rules=rules)).judgements if one.gated]
    values = sorted((one.effect.p or 0.0, one.adjusted or 0.0) for one in told)
    assert values[0][1] == pytest.approx(2 * values[0][0])


def test_a_rule_for_what_cannot_be_compared_is_refused_by_name(tmp_path: Path) -> None:
    run = run_folder(tmp_path, {"a": noisy(1), "b": noisy(2)}, repeats=1)
    for name in ("requests", "tfft", "ttft.p42"):
        with pytest.raises(InputError, match=name):
            compared(run, rules=[Rule(metric=name, margin=Margin(relative=0.05))])


def test_arms_that_ran_one_after_the_other_are_told_apart_with_a_warning(tmp_path: Path) -> None:
    run = run_folder(tmp_path, {"a": noisy(1), "b": noisy(2)}, 2, apart=True)
    notes = cell(compared(run)).notes
    assert any("wholly before the other" in note for note in notes)


def test_repeats_of_one_side_alone_are_told_where_requests_are_compared(tmp_path: Path) -> None:
    few = run_folder(tmp_path / "few", {"a": noisy(1)}, 3)
    many = run_folder(tmp_path / "many", {"a": noisy(2)}, 5)
    told = compare(side([str(few.path)]), side([str(many.path)]), GATE)
    assert cell(told).runs == (3, 5)
    assert judged(told).effect.runs == (3, 3)
    assert judged(told, "output_rate").effect.runs == (3, 5)
    assert (
        "request by request, only 3 of the 5 runs of other are compared: the others are of repeats "
        "that the other side did not run"
    ) in cell(told).notes


@pytest.mark.parametrize(("sessions", "few"), [(16, False), (3, True)])
def test_only_few_sessions_are_called_few(tmp_path: Path, sessions: int, *, few: bool) -> None:
    def rows(factor: float) -> Requests:
        return lambda repeat: served([0.2 * factor] * 2 * sessions)

    for name, factor in (("alike", 1.0), ("slower", 1.02)):
        arms = {"a": rows(1.0), "b": rows(factor)}
        effect = judged(compared(run_folder(tmp_path / name, arms, 3))).effect
        assert effect.alone == (3 if few else None)


def test_sides_that_differ_and_do_not_vary_at_all_are_inconclusive_for_that_reason(
    tmp_path: Path,
) -> None:
    def rows(factor: float) -> Requests:
        return lambda repeat: served([factor * (0.1 + 0.01 * n) for n in range(24)], repeat)

    told = compared(run_folder(tmp_path, {"a": rows(1.0), "b": rows(1.2)}))
    for metric in ("ttft", "ttft.p50", "ttft.mean"):
        one = judged(told, metric)
        assert one.effect.how == "no spread"
        assert (one.verdict, one.reason) == ("inconclusive", IDENTICAL)
        assert (one.runs_needed, one.effect.low, one.effect.detectable) == (None, None, None)
        assert one.effect.ratio == pytest.approx(1.2)


def test_figures_that_never_vary_are_the_same_with_nine_runs_against_three(tmp_path: Path) -> None:
    def steady(arm: int) -> Requests:
        # Times vary, and the share that is cached does not.
        return noisy(arm, cached_tokens=500, ceiling_tokens=500)

    old = [run_folder(tmp_path / n, {"a": steady(k)}, 3).path for k, n in enumerate("xyz")]
    new = run_folder(tmp_path / "new", {"a": steady(9)}, 3).path
    told = compare(side([str(path) for path in old]), side([str(new)]), GATE)
    one = judged(told, "cache_hit")
    assert one.effect.runs == (9, 3)
    assert (one.verdict, one.effect.how, one.effect.ratio) == ("same", "identical", 1.0)


def test_experiments_of_other_names_are_not_paired_by_their_place(tmp_path: Path) -> None:
    def suite(**factors: float) -> Side:
        return side(
            [
                str(
                    run_folder(
                        tmp_path / name,
                        {"a": noisy(1, factor=factor)},
                        experiment=name,
                        name=f"{name}-closed-8-r0",
                    ).path
                )
                for name, factor in factors.items()
            ]
        )

    base = suite(fast=1.0, slow=2.0)
    told = compare(base, suite(slow2=2.0, fast2=1.0), GATE)
    assert (told.cells, told.unmatched, told.missing) == ((), (), ())
    (tied,) = told.unjudged
    assert tied.startswith(
        "fast-closed-8 (a) and slow-closed-8 (a) of base and slow2-closed-8 (a) and "
        "fast2-closed-8 (a) of other were all asked the same"
    )
    # Two names for one cell are no better than two cells for one name.
    assert not compare(base, suite(either=1.0), GATE).cells
    # What is left where all others have their names can only be the one.
    renamed = compare(base, suite(slower=2.0, fast=1.0), GATE)
    assert [(one.name, one.experiment) for one in renamed.cells] == [
        ("fast-closed-8", "fast"),
        ("slow-closed-8", "slower"),
    ]
    assert all(one.gate == "pass" for one in renamed.cells[0].judgements if one.gated)
