"""When a server has been warmed up: its times have settled."""

from collections.abc import Sequence

TOLERANCE, SLACK = 0.10, 0.02
"""By which share, or by how many seconds, two rounds may differ that took the same time."""

MOST_ROUNDS = 8
"""How many rounds more than the load asks for are tried at most."""


def due(rounds: Sequence[Sequence[float]], asked: int, *, settle: bool) -> bool:
    """Whether another round is to be sent, after rounds that took so many seconds a shape.

    `asked` are the rounds that the load asks for, 0 for none at all. With `settle` there are more
    of them until the last two took the same time in every shape: a server that compiles what it
    meets for the first time is slow in the round in which it does.
    """
    if len(rounds) < asked:
        return True
    return bool(settle and asked and len(rounds) < asked + MOST_ROUNDS and not settled(rounds))


def settled(rounds: Sequence[Sequence[float]]) -> bool:
    """Whether the last two rounds took the same time in every shape."""
    if len(rounds) < 2:
        return False
    return all(
        abs(one - two) <= max(SLACK, TOLERANCE * min(one, two))
        for one, two in zip(rounds[-2], rounds[-1], strict=True)
    )
