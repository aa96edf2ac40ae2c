"""Where a series changes its level: simulated truth, and cases that can be worked by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from results.changes import FEWEST, LEVEL, PERMUTATIONS, SHORTEST, _clearness, changes, detectable


def noise(seed: int, count: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.random.default_rng(seed).normal(size=count)


def test_a_clear_step_is_found_where_it_is_with_the_smallest_p() -> None:
    values = noise(1, 20) + 10 * (np.arange(20) >= 12)
    (split,) = changes(values)
    assert (split.at, split.low, split.high) == (12, 12, 12)
    assert split.p == 1 / (PERMUTATIONS + 1)


def test_a_step_and_its_repair_are_two_changes() -> None:
    values = noise(2, 40)
    values[15:25] += 5
    assert [split.at for split in changes(values)] == [15, 25]


def test_few_runs_show_no_change_however_clear() -> None:
    values = np.repeat([0.0, 100.0], [FEWEST // 2, FEWEST - 1 - FEWEST // 2])
    assert changes(values) == ()
    assert detectable(values) is None


def test_equal_numbers_have_no_change_and_two_equal_levels_have_one() -> None:
    assert changes(np.full(20, 3.0)) == ()
    (split,) = changes(np.repeat([3.0, 4.0], 10))
    assert (split.at, split.low, split.high) == (10, 10, 10)


def test_rounding_is_no_change() -> None:
    values = 0.1 + 1e-17 * np.arange(20)
    values[10:] = np.nextafter(values[10:], 1)
    assert changes(values) == ()


def test_one_odd_run_is_no_new_level() -> None:
    values = noise(3, 20)
    values[10] += 20
    assert all(split.at not in {10, 11} for split in changes(values))


def test_a_small_step_says_that_its_place_is_not_sure() -> None:
    steps = [changes(noise(seed, 30) + 1.6 * (np.arange(30) >= 15)) for seed in range(16)]
    found = [split for splits in steps for split in splits[:1]]
    assert len(found) >= 11
    assert np.mean([split.high - split.low for split in found]) > 1
    assert sum(split.low <= 15 <= split.high for split in found) >= 0.9 * len(found)


def test_noise_alone_seldom_shows_a_change() -> None:
    false = sum(bool(changes(noise(seed, 12), seed=seed)) for seed in range(200))
    # Three standard errors above the nominal share.
    assert false <= 200 * LEVEL + 3 * (200 * LEVEL * (1 - LEVEL)) ** 0.5


def test_a_step_of_three_deviations_in_twenty_runs_is_found_where_it_is() -> None:
    near = 0
    for seed in range(40):
        splits = changes(noise(seed, 20) + 3 * (np.arange(20) >= 10), seed=seed)
        near += any(abs(split.at - 10) <= 1 for split in splits)
    assert near >= 36


def test_what_is_called_detectable_mostly_is() -> None:
    found = 0
    for seed in range(40):
        values = noise(seed, 20)
        step = detectable(values)
        found += bool(changes(values + step * (np.arange(20) >= 10), seed=seed))
    assert found >= 27


@given(
    st.lists(st.integers(-100, 100), min_size=0, max_size=24),
    st.sampled_from([0.5, 2.0, 64.0]),
    st.integers(-1000, 1000),
)
@settings(max_examples=30, deadline=None)
def test_levels_are_in_order_and_of_some_length(
    values: list[int], factor: float, shift: int
) -> None:
    series = np.array(values, dtype=np.float64)
    splits = changes(series)
    ends = [0, *(split.at for split in splits), len(series)]
    if splits:
        assert min(np.diff(ends)) >= SHORTEST
    for split, before, after in zip(splits, ends, ends[2:], strict=False):
        assert before < split.low <= split.at <= split.high < after
        assert 0 < split.p <= LEVEL
    assert changes(series) == splits
    scaled = changes(series * factor + shift)
    assert [split.at for split in scaled] == [split.at for split in splits]


def test_the_order_of_time_backwards_gives_the_same_changes() -> None:
    values = noise(4, 30) + 4 * (np.arange(30) >= 11)
    (there,), (back,) = changes(values), changes(values[::-1])
    assert back.at == 30 - there.at


def test_clearness_is_the_energy_distance_of_both_parts() -> None:
    values = noise(6, 9)
    clear = _clearness(values[None])[0]
    for t in range(SHORTEST, 7):
        for k in range(t + SHORTEST, 10):
            parts = values[:t], values[t:k]
            m, n = map(len, parts)
            across = np.abs(parts[0][:, None] - parts[1]).mean()
            inside = [
                np.abs(part[:, None] - part).sum() / len(part) / (len(part) - 1) for part in parts
            ]
            energy = m * n / (m + n) * (2 * across - sum(inside))
            assert clear[t - SHORTEST, k - 2 * SHORTEST] == pytest.approx(energy)
