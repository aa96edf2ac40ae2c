"""Verdicts: the precedence, what margins mean, how many runs are missing, and Holm's rule."""

from dataclasses import replace
from typing import Any

import pytest

from results.contrast import IDENTICAL
from results.effect import Effect
from results.verdict import Judgement, Margin, holm, invalid, judge, together


def effect(ratio: float, low: float, high: float, **changes: Any) -> Effect:
    """An effect on TTFT over four pairs of runs."""
    made: dict[str, Any] = {
        "metric": "ttft",
        "unit": "s",
        "better": "lower",
        "how": "paired requests",
        "base": 0.2,
        "other": 0.2 * ratio,
        "ratio": ratio,
        "low": low,
        "high": high,
        "error": 0.01,
        "freedom": 3.0,
        "p": 0.01 if low > 1 or high < 1 else 0.5,
        "runs": (4, 4),
    }
    return Effect(**{**made, **changes})


FIVE = Margin(relative=0.05)


def verdict(*ends: float, margin: Margin = FIVE, **changes: Any) -> str:
    return judge(effect(*ends, **changes), margin).verdict


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ((1.00, 0.97, 1.03), "same"),
        ((1.03, 1.02, 1.04), "same"),
        ((0.97, 0.96, 0.98), "same"),
        ((1.08, 1.04, 1.12), "worse"),
        ((0.92, 0.88, 0.96), "better"),
        ((1.02, 1.001, 1.06), "inconclusive"),
        ((1.04, 0.99, 1.09), "inconclusive"),
        ((1.00, 0.90, 1.10), "inconclusive"),
        ((1.00, 0.95, 1.00), "inconclusive"),
    ],
)
def test_the_precedence_is_same_then_worse_and_better_then_inconclusive(
    ends: tuple[float, float, float], expected: str
) -> None:
    assert verdict(*ends) == expected


def test_fewer_tokens_a_second_are_worse() -> None:
    rate = {"metric": "output_rate", "unit": "tok/s", "better": "higher"}
    assert verdict(0.90, 0.87, 0.93, **rate) == "worse"
    assert verdict(1.10, 1.07, 1.13, **rate) == "better"
    # 0.955 is 4.5 % fewer.
    assert verdict(0.98, 0.955, 1.0, **rate) == "same"


def test_a_small_but_certain_difference_inside_the_margin_is_same_and_stated() -> None:
    assert "not nothing" in judge(effect(1.03, 1.02, 1.04), FIVE).reason


def test_where_a_margin_is_relative_and_absolute_both_must_be_exceeded() -> None:
    # 5 % of 200 ms are 10 ms, 50 ms are 25 %.
    both = Margin(relative=0.05, absolute=0.050)
    assert judge(effect(1.10, 1.08, 1.12), both).margin == pytest.approx(0.25)
    assert verdict(1.10, 1.08, 1.12, margin=both) == "same"
    assert verdict(1.40, 1.30, 1.50, margin=both) == "worse"
    assert judge(effect(1.1, 1.0, 1.2), Margin(relative=0.05, absolute=0.001)).margin == 0.05
    assert verdict(1.10, 1.08, 1.12, margin=Margin(absolute=0.050)) == "same"


def test_noise_widens_a_margin_and_never_narrows_it() -> None:
    margin = Margin(relative=0.05, noise=2)
    assert judge(effect(1.0, 0.9, 1.1), margin, floor=0.04).margin == 0.08
    assert judge(effect(1.0, 0.9, 1.1), margin, floor=0.01).margin == 0.05
    unknown = judge(effect(1.0, 0.999, 1.001), margin)
    assert (unknown.verdict, unknown.margin) == ("inconclusive", None)
    assert "calibrate" in unknown.reason


def test_one_pair_of_runs_is_never_a_verdict() -> None:
    for ends in ((2.0, 1.9, 2.1), (1.0, 0.999, 1.001), (0.5, 0.4, 0.6)):
        one = judge(effect(*ends, how="one pair", runs=(1, 1)), FIVE, gated=True)
        assert (one.verdict, one.gate) == ("inconclusive", "inconclusive")
        assert (one.runs_needed, one.more_runs) == (4, 3)
    assert verdict(2.0, 1.9, 2.1, how="one pair, calibrated", runs=(1, 1)) == "worse"


def test_the_runs_that_are_missing_follow_from_width_and_target() -> None:
    # Half width 0.10, target 0.05: 4 x 2^2 = 16.
    wide = judge(effect(1.0, 0.9, 1.1), FIVE)
    assert (wide.runs_needed, wide.more_runs) == (16, 12)
    # Point 0.03, half width 0.04, target 0.02: 16 as well.
    near = judge(effect(1.03, 0.99, 1.07), FIVE)
    assert near.runs_needed == 16
    # A point at the margin or beyond cannot become the same.
    beyond = judge(effect(1.06, 0.99, 1.13), FIVE)
    assert (beyond.runs_needed, beyond.more_runs) == (None, None)


def test_a_gate_passes_what_is_no_worse_than_the_margin() -> None:
    def gate(*ends: float) -> str | None:
        return judge(effect(*ends), FIVE, gated=True).gate

    assert gate(1.0, 0.97, 1.03) == "pass"
    assert gate(0.9, 0.88, 0.92) == "pass"
    # Perhaps better, but no worse for certain.
    assert gate(0.97, 0.90, 1.04) == "pass"
    assert gate(1.10, 1.06, 1.14) == "fail"
    assert gate(1.04, 0.99, 1.09) == "inconclusive"
    assert invalid(effect(1, 1, 1), "the cell is invalid", gated=True).gate == "invalid"
    assert judge(effect(1.0, 0.97, 1.03), FIVE).gate is None


def test_a_rule_does_not_fail_at_a_point_within_its_margin() -> None:
    # Surely worse, by 2.86 %, which the rule allows, and perhaps by more than the 3 % it allows.
    rate = {"metric": "output_rate", "unit": "tok/s", "better": "higher", "runs": (3, 3)}
    found = effect(0.9714, 0.9696, 0.9732, **rate)
    one = judge(found, Margin(relative=0.03), gated=True)
    assert (one.verdict, one.gate) == ("worse", "inconclusive")
    assert one.reason == "it is worse, though by less than the margin as far as these runs tell"
    # Half width 0.18 %, target 0.14 %: 3 x (0.18 / 0.14)^2 = 4.96.
    assert (one.runs_needed, one.more_runs) == (5, 2)
    assert judge(found, Margin(relative=0.0285), gated=True).gate == "fail"
    assert judge(found, Margin(relative=0.0310), gated=True).gate == "pass"
    (adjusted,) = together([one])
    assert (adjusted.verdict, adjusted.gate, adjusted.runs_needed) == ("worse", "inconclusive", 5)
    assert judge(found, Margin(relative=0.03)).runs_needed is None


def test_without_an_interval_nothing_is_said_but_why() -> None:
    unknown = replace(effect(1, 1, 1), low=None, high=None, p=None, reason="n too small")
    one = judge(unknown, FIVE)
    assert (one.verdict, one.reason) == ("inconclusive", "n too small")


def test_holm_as_worked_by_hand() -> None:
    # Sorted 0.005 0.01 0.03 0.04: x 4, 3, 2, 1 = 0.02 0.03 0.06 0.04, and never falling.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def gated(p: float, ratio: float = 1.10) -> Judgement:
    return judge(effect(ratio, ratio - 0.04, ratio + 0.04, p=p), FIVE, gated=True)


def test_of_several_gated_metrics_one_needs_a_smaller_p() -> None:
    alone = together([gated(0.03)])
    assert alone[0].verdict == "worse"
    three = together([gated(0.03), gated(0.2, 1.02), gated(0.4, 1.01)])
    assert three[0].adjusted == pytest.approx(0.09)
    assert (three[0].verdict, three[0].gate) == ("inconclusive", "inconclusive")
    assert together([gated(0.01), gated(0.2, 1.02), gated(0.4, 1.01)])[0].verdict == "worse"


def test_metrics_that_do_not_gate_are_left_alone_and_cost_nothing() -> None:
    explored = replace(judge(effect(1.1, 1.06, 1.14, p=0.04), FIVE))
    one, two = together([gated(0.04), explored])
    assert (one.adjusted, one.verdict) == (0.04, "worse")
    assert (two.adjusted, two.verdict) == (None, "worse")


def test_same_is_not_adjusted_since_all_must_pass() -> None:
    same = judge(effect(1.01, 0.98, 1.04), FIVE, gated=True)
    assert together([same, same, same])[2].verdict == "same"


def test_runs_without_noise_are_not_asked_for_more_of_the_same() -> None:
    ends = {"low": None, "high": None, "p": None}
    alike = replace(effect(1.02, 1.0, 1.0), how="no spread", reason=IDENTICAL, **ends)
    one = judge(alike, FIVE, gated=True)
    assert (one.verdict, one.runs_needed, one.more_runs) == ("inconclusive", None, None)


RATE: dict[str, Any] = {"metric": "output_rate", "unit": "tok/s", "better": "higher", "base": 60.0}


@pytest.mark.parametrize(
    ("margin", "part"),
    [
        (
            Margin(relative=0.05, absolute=100.0),
            "the absolute part of its margin is 166.7 % of base",
        ),
        (Margin(relative=0.05, noise=30.0), "the multiple of the noise of its margin is 120.0 %"),
    ],
)
def test_a_margin_that_nothing_can_exceed_is_not_judged(margin: Margin, part: str) -> None:
    found = effect(0.03, 0.02, 0.04, **RATE)
    one = judge(found, margin, floor=0.04, gated=True)
    assert (one.verdict, one.gate, one.runs_needed) == ("inconclusive", "inconclusive", None)
    assert part in one.reason
    assert "can get worse by 100.0 at most" in one.reason
    (adjusted,) = together([one])
    assert (adjusted.gate, adjusted.reason) == ("inconclusive", one.reason)
    assert judge(found, Margin(absolute=60.0), gated=True).gate == "inconclusive"
    assert judge(found, Margin(absolute=57.0), gated=True).gate == "fail"
    # Seconds can rise by any amount.
    assert judge(effect(3.0, 2.9, 3.1), Margin(absolute=0.3), gated=True).gate == "fail"


def test_a_share_cannot_change_by_more_than_there_is_of_it() -> None:
    share = {"unit": "share", "base": 0.6}
    failed = effect(1.4, 1.4, 1.4, metric="failed_share", **share)
    assert judge(failed, Margin(absolute=0.39), gated=True).gate == "fail"
    one = judge(failed, Margin(absolute=0.4), gated=True)
    assert (one.gate, "40.0 points, and it can get worse by 40.0" in one.reason) == (
        "inconclusive",
        True,
    )
    right = effect(0.4, 0.4, 0.4, metric="accuracy", better="higher", **share)
    assert judge(right, Margin(absolute=0.59), gated=True).gate == "fail"
    assert judge(right, Margin(absolute=0.6), gated=True).gate == "inconclusive"


def test_where_folders_differ_it_is_folders_that_are_missing() -> None:
    # Of 3 + 1 folders half an interval is 4.3027 sqrt(1/3 + 1) = 4.968 spreads, here 10 %: one is
    # 2.013 %. 5 % take t(0.975, 2n - 2) sqrt(2/n) <= 2.484: 2.267 at 3 folders a side.
    one = judge(effect(1.0, 0.9, 1.1, folders=(3, 1), runs=(9, 3)), FIVE)
    assert (one.runs_needed, one.folders_needed) == (None, 3)
    beyond = judge(effect(1.06, 0.96, 1.16, folders=(3, 1)), FIVE)
    assert (beyond.runs_needed, beyond.folders_needed) == (None, None)
