"""Paired gaps in accuracy: held against cases worked out by hand, and against real answers."""

import csv
import os
from math import comb, isinf, sqrt
from pathlib import Path

import numpy as np
import pytest

from results.accuracy import of_gap
from results.comparison import A_POINT
from results.gap import (
    detectable,
    epochs_needed,
    gap,
    mcnemar,
    planned_error,
    provable,
    standard_error,
    swapped_error,
    tango,
    unseen,
    wilson,
)
from results.verdict import Margin, judge

DATA = Path(os.environ.get("PACELINE_DATA", "")) / "gsm8k" / "four-models-correct.csv"


def scores(right: int, wrong: int) -> np.ndarray:
    return np.array([1.0] * right + [0.0] * wrong)


def discordant(questions: int, gained: int, lost: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores of both sides that differ in so many questions each way."""
    base, other = np.ones(questions), np.ones(questions)
    base[:gained] = 0.0
    other[gained : gained + lost] = 0.0
    return base, other


def test_the_paired_error_is_that_of_the_changes() -> None:
    # Changes 1, 0, 0, -1, 1: mean 0.2, squares 0.64 + 0.04 + 0.04 + 1.44 + 0.64 = 2.8.
    base, other = np.array([0.0, 1, 1, 1, 0]), np.array([1.0, 1, 1, 0, 1])
    found = gap(base, other)
    assert found.change == pytest.approx(0.2)
    assert found.error == pytest.approx(sqrt(2.8 / 4) / sqrt(5))
    # Both sides have variances 0.3 and 0.2: sqrt((0.3 + 0.2) / 5).
    assert found.unpaired == pytest.approx(sqrt(0.1))
    assert (found.gained, found.lost) == (2, 1)
    assert found.in_errors == (
        pytest.approx(0.2 / sqrt(0.14)),
        pytest.approx(0.2 / sqrt(0.1)),
    )


def test_a_clustered_error_adds_up_what_a_group_has_in_common() -> None:
    # Mean 0; the sums of the groups are 2, -2 and 0: sqrt((4 + 4 + 0) * 3/2) / 6.
    changes, groups = np.array([1.0, 1, -1, -1, 0, 0]), np.array([0, 0, 1, 1, 2, 2])
    assert standard_error(changes, groups) == pytest.approx(sqrt(8 * 1.5) / 6)
    found = gap(np.array([0.0, 0, 1, 1, 1, 1]), np.array([1.0, 1, 0, 0, 1, 1]), groups)
    assert found.test == "clustered t"
    assert (found.groups, found.freedom, found.exact) == (3, 2, None)
    assert found.error == pytest.approx(sqrt(12) / 6)
    # Each its own group is no clustering at all.
    assert standard_error(changes, np.arange(6)) == pytest.approx(standard_error(changes))


def test_clusters_of_unlike_sizes_are_as_many_as_alike_ones_that_they_are_worth() -> None:
    groups = np.array([0] * 100 + list(range(1, 99)))
    found = gap(np.ones(198), np.array([0.0] * 100 + [0.5] * 98), groups)
    # 198 squared over 100 squared and 98: 3.88.
    assert (found.groups, found.freedom) == (99, 2)
    random, alarms = np.random.default_rng(5), 0
    for _ in range(300):
        # A passage is read once a run, and so are all questions about it.
        base, other = ((random.random(99) < 0.5)[groups].astype(float) for _ in range(2))
        alarms += judge(of_gap("accuracy", gap(base, other, groups)), A_POINT).verdict != (
            "inconclusive"
        )
    assert alarms / 300 <= 0.05 + 1.96 * sqrt(0.05 * 0.95 / 300)


def test_the_error_of_runs_that_may_be_swapped_is_mcnemars_for_any_number_of_runs() -> None:
    base, other = discordant(100, 3, 6)
    sides, questions = np.array([0, 1]), np.arange(100)
    one_each = swapped_error(np.stack([base, other]), sides, questions)
    assert one_each == pytest.approx(sqrt(9) / 100)
    # An answer that is wrong in one of three runs varies by 1/3, and a mean of two less one by 3/2.
    runs = np.array([[1.0, 1, 0], [1, 1, 1], [1, 1, 1]])
    assert swapped_error(runs, np.array([0, 0, 1]), np.arange(3)) == pytest.approx(sqrt(1 / 2) / 3)
    # Two epochs of one question are half each, and an answer that never came says nothing.
    runs = np.array([[1.0, 1, 0], [1, 1, 1], [1, 1, np.nan]])
    halved = swapped_error(runs, np.array([0, 0, 1]), np.array([0, 1, 1]))
    assert halved == pytest.approx(sqrt((1 / 16 + 1 / 16) / 2 * 3 / 2) / 2)


def test_mcnemar_is_the_binomial_of_the_discordant_pairs() -> None:
    # One of six: 2 (1 + 6) / 64, and half of the 6 less for the mid-p.
    assert mcnemar(1, 5) == (pytest.approx(8 / 64), pytest.approx(14 / 64))
    assert mcnemar(5, 1) == mcnemar(1, 5)
    assert mcnemar(0, 6) == (pytest.approx(1 / 64), pytest.approx(2 / 64))
    assert mcnemar(4, 4) == (1.0, 1.0)
    assert mcnemar(0, 0) == (1.0, 1.0)
    tail = sum(comb(30, k) for k in range(11)) / 2**30
    assert mcnemar(20, 10)[1] == pytest.approx(2 * tail)
    assert mcnemar(20, 10)[0] == pytest.approx(2 * tail - comb(30, 10) / 2**30)


def rejected(gained: int, lost: int, questions: int, change: float) -> float:
    """The score statistic of a difference, its nuisance share found by trying them all."""
    shares = np.linspace(max(0.0, -change), (1 - change) / 2, 200_001)[1:-1]
    likelihood = gained * np.log(shares + change) + lost * np.log(shares)
    likelihood += (questions - gained - lost) * np.log(1 - 2 * shares - change)
    share = shares[likelihood.argmax()]
    return (gained - lost - questions * change) / sqrt(questions * (2 * share + change - change**2))


def test_tangos_interval_ends_where_the_score_test_rejects() -> None:
    assert tango(0, 0, 44) == (pytest.approx(-unseen(44)), pytest.approx(unseen(44)))
    for gained, lost, questions in ((1, 4, 44), (12, 3, 100), (9, 30, 198)):
        low, high = tango(gained, lost, questions)
        assert rejected(gained, lost, questions, low) == pytest.approx(1.96, abs=0.002)
        assert rejected(gained, lost, questions, high) == pytest.approx(-1.96, abs=0.002)
        assert tango(lost, gained, questions) == (pytest.approx(-high), pytest.approx(-low))
    for gained, lost in ((4, 0), (3, 0), (12, 3), (10, 3)):
        beyond = (gained - lost) / sqrt(gained + lost) > 1.959964
        assert (tango(gained, lost, 100)[0] > 0) == beyond


def test_wilsons_interval_is_the_published_one() -> None:
    # Newcombe 1998, 81 of 263: 0.2553 to 0.3662; and 0 of 20: 0 to 0.1611.
    assert wilson(81 / 263, 263) == (
        pytest.approx(0.2553, abs=1e-4),
        pytest.approx(0.3662, abs=1e-4),
    )
    assert wilson(0.0, 20) == (pytest.approx(0.0), pytest.approx(0.1611, abs=1e-4))


def test_graded_scores_are_told_apart_by_the_paired_t() -> None:
    changes = np.linspace(-0.2, 0.6, 30)
    found = gap(np.full(30, 0.3), 0.3 + changes)
    assert found.test == "paired t"
    error = float(changes.std(ddof=1)) / sqrt(30)
    assert found.error == pytest.approx(error)
    # t of 29 degrees: 2.0452.
    assert found.low == pytest.approx(0.2 - 2.04523 * error, abs=1e-5)
    assert found.p == pytest.approx(1.2e-4, rel=0.5)


def test_what_a_set_can_show_follows_from_its_error() -> None:
    assert detectable(0.01) == pytest.approx(0.028016, abs=1e-5)
    assert provable(0.01) == pytest.approx(0.024865, abs=1e-5)
    assert detectable(0.01, 4) > detectable(0.01)
    # GSM8K with 0.95 % discordant: SE 0.27 points, MDD 0.75; GPQA needs twelve epochs for 2 points.
    error = planned_error(1319, 1, 0.0095)
    assert (error, detectable(error)) == (
        pytest.approx(0.00268, abs=1e-5),
        pytest.approx(0.0075, abs=1e-4),
    )
    assert epochs_needed(planned_error(198, 1, 0.15), 0.02) == 12
    assert planned_error(198, 12, 0.15) == pytest.approx(planned_error(198, 1, 0.15) / sqrt(12))


@pytest.mark.parametrize("questions", [5, 50, 100, 198])
def test_a_small_set_in_which_nothing_changed_is_never_the_same(questions: int) -> None:
    same = np.array([1.0, 0.0] * questions)[:questions]
    for base in (same, same * 0.5):
        found = gap(base, base.copy())
        judged = judge(of_gap("accuracy", found), A_POINT, gated=True)
        assert (judged.verdict, judged.gate) == ("inconclusive", "inconclusive")
        # What no question of so many shows, one in so many may still do.
        assert found.high == pytest.approx(unseen(questions))
        assert found.detectable > found.high
        assert 200 < judged.questions_needed < 400
        assert judged.runs_needed is None


def test_a_small_unpaired_gap_on_few_questions_is_no_equality() -> None:
    # 50 questions, unpaired z far below 1.5, though five of them changed for the worse.
    base, other = discordant(50, 2, 5)
    found = gap(base, other)
    assert found.in_errors[1] < 1.5
    for margin in (0.01, 0.05, 0.1):
        judged = judge(of_gap("accuracy", found), Margin(absolute=margin), gated=True)
        assert judged.verdict == "inconclusive"
        assert judged.gate == "inconclusive"


@pytest.mark.parametrize(
    ("gained", "lost", "verdict", "gate"),
    [
        (0, 0, "same", "pass"),
        (5, 5, "same", "pass"),
        (2, 25, "worse", "fail"),
        (25, 2, "better", "pass"),
        (4, 16, "worse", "inconclusive"),
        (0, 6, "same", "pass"),
        (14, 20, "inconclusive", "inconclusive"),
    ],
)
def test_verdicts_of_1319_questions(gained: int, lost: int, verdict: str, gate: str) -> None:
    found = gap(*discordant(1319, gained, lost))
    judged = judge(of_gap("accuracy", found), A_POINT, gated=True)
    assert (judged.verdict, judged.gate) == (verdict, gate)


def test_worse_needs_more_than_half_the_margin_as_well() -> None:
    # Surely worse, by a third of the margin.
    found = gap(*discordant(20_000, 0, 60))
    assert found.high < 0
    assert judge(of_gap("accuracy", found), A_POINT).verdict == "same"
    wide = gap(*discordant(1319, 1, 7))
    assert judge(of_gap("accuracy", wide), A_POINT).verdict == "inconclusive"


def test_a_single_question_or_group_has_no_interval_and_no_verdict() -> None:
    for found in (
        gap(np.array([1.0]), np.array([0.0])),
        gap(np.array([1.0, 1.0]), np.array([0.0, 0.0]), np.array([0, 0])),
    ):
        assert (found.low, found.error, found.p) == (None, None, None)
        judged = judge(of_gap("accuracy", found), A_POINT, gated=True)
        assert (judged.verdict, judged.gate) == ("inconclusive", "inconclusive")
        assert "says nothing of how sure it is" in judged.reason


def test_all_right_against_all_wrong_stays_finite() -> None:
    found = gap(scores(40, 0), scores(0, 40))
    assert found.change == -1.0
    assert found.in_errors == (None, None)
    effect = of_gap("accuracy", found)
    assert effect.ratio > 0
    assert not isinf(effect.p)
    assert judge(effect, A_POINT, gated=True).gate == "fail"


def test_the_intervals_of_identical_engines_leave_out_nothing_in_95_of_100_cases() -> None:
    random = np.random.default_rng(3)
    cases, missed, alarms = 600, 0, 0
    for _ in range(cases):
        known = random.random(198) < 0.7
        base, other = (
            np.where(random.random(198) < 0.2, random.random(198) < 0.7, known).astype(float)
            for _ in range(2)
        )
        found = gap(base, other)
        missed += not found.low <= 0 <= found.high
        alarms += judge(of_gap("accuracy", found), A_POINT).verdict in {"worse", "better"}
    # 5 % and two standard errors of so many cases.
    most = 0.05 + 1.96 * sqrt(0.05 * 0.95 / cases)
    assert missed / cases <= most
    assert alarms / cases <= most


@pytest.mark.skipif(not DATA.is_file(), reason=f"PACELINE_DATA names no folder with {DATA.name}")
def test_real_models_are_told_apart_as_by_hand() -> None:
    with DATA.open() as file:
        rows = list(csv.DictReader(file))
    base, other = (
        np.array([float(row[name]) for row in rows])
        for name in ("6b_verification", "175b_finetuning")
    )
    found = gap(base, other)
    # By hand: 152 gained, 209 lost of 1,319; (361 - 57^2 / 1319) / 1318 is the variance.
    assert (found.questions, found.gained, found.lost) == (1319, 152, 209)
    assert found.change == pytest.approx(-57 / 1319)
    assert found.error == pytest.approx(sqrt((361 - 57**2 / 1319) / 1318 / 1319))
    assert round(-found.change * 100, 1) == 4.3
    assert (round(found.error * 100, 2), round(found.unpaired * 100, 2)) == (1.44, 1.88)
    assert judge(of_gap("accuracy", found), A_POINT, gated=True).gate == "fail"
