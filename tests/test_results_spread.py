"""The spread over sessions: by hand, wider with their likeness, and none of too few."""

import numpy as np
import pytest

from results.spread import over_sessions


def test_one_request_a_session_has_the_usual_standard_error() -> None:
    values = np.random.default_rng(1).normal(size=40)
    spread = over_sessions(values, np.arange(40), seed=0)
    assert spread.error == pytest.approx(values.std(ddof=1) / np.sqrt(40), rel=0.05)
    assert (spread.sessions, spread.freedom) == (40, 39)


def test_requests_that_repeat_their_session_add_nothing() -> None:
    values = np.random.default_rng(2).normal(size=20)
    once = over_sessions(values, np.arange(20), seed=0)
    again = over_sessions(np.repeat(values, 7), np.repeat(np.arange(20), 7), seed=0)
    assert again.error == pytest.approx(once.error)


def test_the_order_of_requests_and_the_numbers_of_sessions_change_nothing() -> None:
    random = np.random.default_rng(3)
    values, sessions = random.normal(size=60), np.repeat(np.arange(12), 5)
    turned = random.permutation(60)
    one = over_sessions(values, sessions, seed=0)
    two = over_sessions(values[turned], sessions[turned] * 3, seed=0)
    assert two.error == pytest.approx(one.error)
    assert two.sessions == 12


def test_fewer_than_ten_sessions_say_too_little() -> None:
    values = np.arange(90.0)
    assert over_sessions(values, np.arange(90) % 9, seed=0) is None
    assert over_sessions(values, np.arange(90) % 10, seed=0) is not None


def test_very_many_sessions_are_drawn_in_groups_and_say_the_same() -> None:
    values = np.random.default_rng(4).normal(size=20_000)
    spread = over_sessions(values, np.arange(20_000), seed=0)
    assert spread.error == pytest.approx(1 / np.sqrt(20_000), rel=0.08)
    assert spread.freedom == 999


def test_the_same_seed_gives_the_same_spread() -> None:
    values, sessions = np.random.default_rng(5).normal(size=30), np.arange(30)
    one, same, other = (over_sessions(values, sessions, seed) for seed in (1, 1, 2))
    assert one == same
    assert one != other
