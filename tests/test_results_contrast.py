"""Runs of two sides: worked by hand, and held against simulated truth."""

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
from scipy.stats import ttest_ind

from results.contrast import IDENTICAL, STEADY, Drift, Estimate, Series, across, combined, contrast


def sides(
    base: list[float], other: list[float], positions: tuple[list[int], list[int]] | None = None
) -> tuple[Series, Series]:
    places = [None, None] if positions is None else [np.array(one, float) for one in positions]
    one, two = (
        Series(values=np.array(values), pairs=np.arange(len(values)), positions=place)
        for values, place in zip((base, other), places, strict=True)
    )
    return one, two


def abba(runs: int) -> tuple[list[int], list[int]]:
    return (
        [2 * run + run % 2 for run in range(runs)],
        [2 * run + 1 - run % 2 for run in range(runs)],
    )


def test_two_runs_a_side_without_an_order_are_welchs_t() -> None:
    # Means 1 and 4, variances 2 and 8 over 2 runs each: error sqrt(1 + 4), freedom
    # (1 + 4)^2 / (1 + 16) = 1.4706.
    estimate = contrast(*sides([0, 2], [2, 6]))
    assert estimate.how == "Welch"
    assert estimate.change == 3
    assert estimate.error == pytest.approx(sqrt(5))
    assert estimate.freedom == pytest.approx(25 / 17)
    assert estimate.level == 0.95


def test_six_pairs_are_students_t_of_their_differences() -> None:
    # Differences 1..6: mean 3.5, sd 1.8708, error 0.7638, t(0.975, 5) = 2.5706.
    base = [10.0, 50.0, 20.0, 70.0, 0.0, 30.0]
    other = [value + rise for value, rise in zip(base, [1, 2, 3, 4, 5, 6], strict=True)]
    estimate = contrast(*sides(base, other, abba(6)))
    assert estimate.how == "pairs of runs"
    assert estimate.error == pytest.approx(0.763763, rel=1e-6)
    assert estimate.freedom == 5
    assert estimate.interval == pytest.approx((3.5 - 1.96331, 3.5 + 1.96331), rel=1e-5)
    # t = 4.5826: p = 0.00594; detectable with (2.5706 + 0.9195) x 0.7638 = 2.6655.
    assert estimate.p == pytest.approx(0.00594, rel=1e-2)
    assert estimate.detectable == pytest.approx(np.expm1(2.6655), rel=1e-3)


def test_a_drift_is_told_and_taken_out() -> None:
    base, other = abba(4)
    noise = [0.01, -0.02, 0.01, 0.0, 0.02, -0.01, 0.0, -0.01]
    values = [place * 0.5 + noise[place] for place in range(8)]
    made = sides([values[p] for p in base], [values[p] + 0.2 for p in other], (base, other))
    estimate = contrast(*made)
    assert estimate.how == "runs with drift"
    assert estimate.freedom == 5
    assert estimate.change == pytest.approx(0.2, abs=0.02)
    assert estimate.error < 0.02
    assert estimate.drift.low < np.expm1(0.5) < estimate.drift.high
    assert (estimate.drift.steps, estimate.drift.freedom) == (7, 5)


def test_least_squares_with_drift_as_worked_by_hand() -> None:
    # Positions A 0 3, B 1 2: the drift cancels, so the change is the difference of the means, and
    # one degree of freedom is left. A = 1 5, B = 3 3: means 3 and 3, slope sum((p - 1.5) y) / 5 =
    # (-1.5 - 1.5 + 1.5 + 7.5) / 5 = 1.2; what is left is A 1 - (3 - 1.8) = -0.2, 0.2, B 0.6, -0.6,
    # squares 0.8; error sqrt(0.8 x (1/2 + 1/2)).
    estimate = contrast(*sides([1, 5], [3, 3], abba(2)))
    assert estimate.change == pytest.approx(0)
    assert estimate.error == pytest.approx(sqrt(0.8))
    assert estimate.freedom == 1
    assert estimate.drift.slope == pytest.approx(np.expm1(1.2))


def test_a_drift_that_no_order_tells_apart_makes_the_interval_wide() -> None:
    values = [0.0, 0.11, 0.19, 0.3, 0.41, 0.5, 0.6, 0.69]
    one_after_the_other = contrast(*sides(values[:4], values[4:], ([0, 1, 2, 3], [4, 5, 6, 7])))
    base, other = abba(4)
    by_turns = contrast(
        *sides([values[p] for p in base], [values[p] for p in other], (base, other))
    )
    low, high = one_after_the_other.interval or (1, 1)
    assert low < 0 < high
    assert one_after_the_other.error > 1.5 * by_turns.error


def test_repeats_that_differ_by_far_more_than_runs_are_taken_pair_by_pair() -> None:
    base = [0.0, 5.0, 1.0, 7.0]
    other = [0.11, 5.09, 1.10, 7.12]
    estimate = contrast(*sides(base, other, abba(4)))
    assert estimate.how == "pairs of runs"
    assert estimate.freedom == 3
    # The way was chosen by the same runs, so the interval is wider than one at 95 %.
    assert estimate.level > 0.95


def test_pairs_whose_one_side_always_came_first_are_not_taken_alone() -> None:
    first, second = [0, 2, 4, 6, 8, 10], [1, 3, 5, 7, 9, 11]
    values = [0.0, 5.0, 1.0, 7.0, 2.0, 9.0]
    later = [value + 0.1 for value in values]
    assert contrast(*sides(values, later, (first, second))).how == "runs with drift"


def test_identical_runs_have_ratio_one_for_certain() -> None:
    estimate = contrast(*sides([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], abba(3)))
    assert (estimate.how, estimate.change, estimate.interval) == ("identical", 0.0, (0.0, 0.0))
    assert estimate.p == 1.0


def test_one_equal_pair_may_be_chance_unless_every_request_was_equal() -> None:
    assert contrast(*sides([1.0], [1.0])).error is None
    assert contrast(*sides([1.0], [1.0]), twins=True).interval == (0.0, 0.0)


@pytest.mark.parametrize("positions", [None, abba(3)])
def test_runs_that_repeat_one_another_exactly_say_nothing_of_their_spread(
    positions: tuple[list[int], list[int]] | None,
) -> None:
    estimate = contrast(*sides([1.0] * 3, [2.0] * 3, positions))
    assert estimate.error is None
    assert estimate.interval is None
    assert estimate.reason == IDENTICAL


@pytest.mark.parametrize("counts", [(9, 3), (2, 5), (3, 3)])
def test_sides_whose_runs_all_have_one_value_are_identical_whatever_their_numbers(
    counts: tuple[int, int],
) -> None:
    base, other = ([0.3 + 1e-12 * n for n in range(count)] for count in counts)
    estimate = contrast(*sides(base, other))
    assert (estimate.how, estimate.change, estimate.interval) == ("identical", 0.0, (0.0, 0.0))
    assert contrast(*sides(base, [*other[1:], 0.31])).how != "identical"
    assert contrast(*sides(base, other[:1])).interval is None


def test_pairs_that_all_differ_by_the_same_are_not_called_identical_runs() -> None:
    values = [0.1, 0.7, 0.2, 0.9, 0.4, 0.5]
    estimate = contrast(*sides(values, [value + 0.02 for value in values], abba(6)))
    assert (estimate.how, estimate.error, estimate.reason) == ("no spread", None, STEADY)


def test_a_drift_is_sure_only_beyond_what_many_looks_allow() -> None:
    # Half of 0.8 % is 1.96 standard errors, and 1 % is 2.45 of them: p = 0.0143.
    drift = Drift(slope=np.expm1(0.01), low=np.expm1(0.002), high=np.expm1(0.018), steps=7)
    assert [drift.sure(among) for among in (1, 3, 4, 50)] == [True, True, False, False]
    assert drift.whole == pytest.approx(np.expm1(0.07))
    # With 3 degrees of freedom wide quantiles grow faster: t(0.975) = 3.182, t(0.9875) = 4.177.
    assert [replace(drift, freedom=3).sure(among) for among in (1, 2)] == [True, False]


def test_the_order_in_which_runs_are_given_changes_nothing() -> None:
    base, other = abba(4)
    values = np.random.default_rng(1).normal(size=8)
    one = contrast(*sides(values[:4].tolist(), values[4:].tolist(), (base, other)))
    turned = np.array([2, 0, 3, 1])
    two = contrast(
        Series(values=values[:4][turned], pairs=turned, positions=np.array(base, float)[turned]),
        Series(values=values[4:], pairs=np.arange(4), positions=np.array(other, float)),
    )
    assert one.change == pytest.approx(two.change)
    assert one.error == pytest.approx(two.error)


def test_errors_add_in_quadrature_with_satterthwaites_freedom() -> None:
    run = contrast(*sides([0, 2], [2, 6]))
    both = combined(run, 2.0, 9, "paired requests")
    assert both.error == pytest.approx(3.0)
    assert both.freedom == pytest.approx(81 / (25 / (25 / 17) + 16 / 9))


@pytest.mark.parametrize(("runs", "shared"), [(2, 0.0), (3, 0.0), (3, 1.0), (4, 3.0), (6, 0.0)])
def test_intervals_cover_no_change_at_least_as_often_as_they_say(runs: int, shared: float) -> None:
    random = np.random.default_rng(runs)
    base, other = (np.array(one, float) for one in abba(runs))
    covered = []
    for _ in range(400):
        repeats = random.normal(size=runs) * shared
        one, two = (
            Series(
                values=repeats + random.normal(size=runs) + 0.3 * places,
                pairs=np.arange(runs),
                positions=places,
            )
            for places in (base, other)
        )
        low, high = contrast(one, two).interval or (0.0, 0.0)
        covered.append(low <= 0 <= high)
    # 0.95 less two standard errors of 400 cases.
    assert np.mean(covered) >= 0.95 - 0.022


def in_folders(*nights: list[float], first: int = 0) -> Series:
    """Runs of one side, a folder for each list, of workloads that are the same in each."""
    return Series(
        values=np.concatenate(nights),
        pairs=np.concatenate([np.arange(len(night)) for night in nights]),
        folders=np.repeat(np.arange(len(nights)) + first, [len(night) for night in nights]),
    )


def told(base: Series, other: Series) -> Estimate:
    return across(contrast(base, other), base, other)


def test_folders_of_one_side_tell_how_much_those_of_the_other_may_differ() -> None:
    # Means 0, 1, 2 and 4: spread 1 with 2 degrees of freedom, error sqrt(1/3 + 1), t(0.975, 2) =
    # 4.3027.
    base, other = in_folders([-0.1, 0.1], [0.9, 1.1], [1.9, 2.1]), in_folders([3.9, 4.1], first=3)
    estimate = told(base, other)
    assert (estimate.how, estimate.folders, estimate.freedom) == ("folders", (3, 1), 2)
    assert estimate.change == pytest.approx(3)
    assert estimate.error == pytest.approx(sqrt(4 / 3))
    assert estimate.interval == pytest.approx((3 - 4.96828, 3 + 4.96828), rel=1e-5)


def test_several_folders_a_side_are_students_t_of_their_means() -> None:
    random = np.random.default_rng(1)
    nights = [(random.normal() + random.normal(size=3) * 0.1).tolist() for _ in range(5)]
    estimate = told(in_folders(*nights[:3]), in_folders(*nights[3:], first=3))
    means = [np.mean(night) for night in nights]
    test = ttest_ind(means[3:], means[:3])
    assert estimate.p == pytest.approx(test.pvalue)
    assert estimate.interval == pytest.approx(tuple(test.confidence_interval()))


def test_one_run_a_folder_is_judged_by_folders_alone() -> None:
    base, other = in_folders([0.0], [1.0], [2.0]), in_folders([4.0], first=3)
    assert contrast(base, other).error is None
    assert (told(base, other).error, told(base, other).reason) == (pytest.approx(sqrt(4 / 3)), None)


def test_folders_that_are_alike_by_chance_make_no_interval_narrower() -> None:
    base, other = in_folders([0.0, 2.0], [2.0, 0.0001]), in_folders([0.5, 2.5], [2.5, 0.5], first=2)
    alone = contrast(base, other)
    assert told(base, other) == replace(alone, folders=(2, 2))


def test_a_folder_against_another_and_sides_in_the_same_folders_are_as_without() -> None:
    base, other = in_folders([0.0, 0.1, 0.3]), in_folders([1.0, 1.1, 1.2], first=1)
    assert told(base, other) == contrast(base, other)
    inside = (replace(side, folders=None) for side in (base, other))
    assert told(*inside) == contrast(base, other)


def test_workloads_that_one_folder_alone_ran_say_nothing_of_how_folders_differ() -> None:
    fewer = in_folders([0.0, 5.0], [1.0, 6.0, 40.0]), in_folders([3.0, 8.0], first=2)
    assert told(*fewer).folders == (2, 1)
    # Means 2.5 and 3.5, of 2 and 3 runs of 5: spread 0.5, weights 0.16 + 0.36 + 1.
    means = replace(contrast(*fewer), error=None, how="none")
    assert across(means, *fewer).error == pytest.approx(sqrt(0.5 * 1.52))


@pytest.mark.parametrize(("counts", "night"), [((3, 1), 3.0), ((3, 3), 3.0), ((3, 1), 0.0)])
def test_intervals_over_folders_cover_no_change_at_least_as_often_as_they_say(
    counts: tuple[int, int], night: float
) -> None:
    random = np.random.default_rng(7)
    covered = []
    for _ in range(400):
        base, other = (
            in_folders(
                *(random.normal(size=(count, 1)) * night + random.normal(size=(count, 3))).tolist(),
                first=first,
            )
            for count, first in zip(counts, (0, 3), strict=True)
        )
        low, high = told(base, other).interval or (0.0, 0.0)
        covered.append(low <= 0 <= high)
    assert np.mean(covered) >= 0.95 - 0.022
