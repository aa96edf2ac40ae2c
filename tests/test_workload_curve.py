import numpy as np
import pytest

from workloads.curve import Curve, chances, dealt, lognormal, ranked

ANSWERS = lognormal(616, 1.2)


def test_a_curve_goes_through_its_points_and_on_beyond_them() -> None:
    curve = Curve(points=((0.1, 10.0), (0.5, 100.0), (0.9, 400.0)), most=2000.0)
    found = curve.at(np.array([0.1, 0.5, 0.9, 0.99, 0.9999]))
    assert found[:3] == pytest.approx([10, 100, 400])
    # Beyond the last point with its slope: ln 4 over 1.2816 scores.
    assert found[3] == pytest.approx(400 * np.exp(np.log(4) / 1.2815516 * (2.3263479 - 1.2815516)))
    assert found[4] == 2000


def test_a_lognormal_curve_has_its_quantiles() -> None:
    found = ANSWERS.at(np.array([0.5, 0.9]))
    assert found == pytest.approx([616, 616 * np.exp(1.2 * 1.2815516)])


@pytest.mark.parametrize("count", [1, 7, 300])
def test_strata_of_any_number_have_the_mean_of_the_whole(count: int) -> None:
    strata = lognormal(616, 1.2, most=50_000).strata(count)
    assert len(strata) == count
    assert (np.diff(strata) > 0).all()
    assert strata.mean() == pytest.approx(616 * np.exp(1.2**2 / 2), rel=0.01)


def test_a_multiplied_curve_has_multiplied_values() -> None:
    curve = lognormal(100, 1, least=20, most=300).times(0.5)
    assert curve.at(np.array([0.001, 0.5, 0.999])) == pytest.approx([10, 50, 150])


def test_all_strata_are_dealt_and_each_hand_is_mixed() -> None:
    hands = dealt(np.random.default_rng(1), ANSWERS, [40, 0, 400, 60])
    assert [len(hand) for hand in hands] == [40, 0, 400, 60]
    assert np.sort(np.concatenate(hands)) == pytest.approx(ANSWERS.strata(500))
    for hand in (hands[0], hands[2], hands[3]):
        assert np.median(hand) == pytest.approx(616, rel=0.12)
        assert not (np.diff(hand) >= 0).all()


def test_nothing_is_dealt_to_nobody() -> None:
    random = np.random.default_rng(1)
    assert dealt(random, ANSWERS, []) == []
    assert [len(hand) for hand in chances(random, [0, 0])] == [0, 0]


def test_chances_are_even() -> None:
    (first, second) = chances(np.random.default_rng(2), [10, 90])
    assert np.sort(np.concatenate([first, second])) == pytest.approx((np.arange(100) + 0.5) / 100)
    assert np.histogram(first, bins=5, range=(0, 1))[0].min() >= 1


def test_ranks_are_those_of_the_fractional_parts() -> None:
    assert ranked(np.array([3.9, 0.1, 7.5])).tolist() == [2, 0, 1]
