"""How long a server is warmed up."""

from harness.warmth import MOST_ROUNDS, due, settled


def test_a_first_round_never_shows_that_times_have_settled():
    assert not settled([])
    assert not settled([[0.3, 1.1]])


def test_times_have_settled_when_every_shape_took_as_long_as_before():
    assert settled([[0.80, 6.7], [0.28, 1.10], [0.27, 1.15]])
    assert not settled([[0.80, 6.7], [0.28, 1.10], [0.27, 1.30]])
    # Of times as short as this, two hundredths of a second are noise.
    assert settled([[0.010], [0.025]])


def test_the_rounds_that_are_asked_for_are_sent_in_any_case():
    assert due([[1.0], [1.0]], 3, settle=True)
    assert due([[1.0], [1.0]], 3, settle=False)
    assert not due([[1.0], [1.0], [1.0]], 3, settle=False)


def test_a_server_that_still_compiles_gets_more_rounds_but_not_for_ever():
    assert due([[6.7]], 1, settle=True)
    assert due([[6.7], [1.1]], 1, settle=True)
    assert not due([[6.7], [1.1], [1.1]], 1, settle=True)
    restless = [[1.0 + number % 2] for number in range(1 + MOST_ROUNDS)]
    assert not due(restless, 1, settle=True)
    assert due(restless[:-1], 1, settle=True)


def test_without_a_warm_up_there_is_none():
    assert not due([], 0, settle=True)
