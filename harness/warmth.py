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
    return len(rounds) > 1 and not _apart(rounds)


def restless(rounds: Sequence[Sequence[float]], asked: int, *, settle: bool) -> str | None:
    """A sentence on times that never settled, however many rounds there were; else None."""
    if not (settle and asked) or len(rounds) < 2 or not (apart := _apart(rounds)):
        return None
    one, two = apart[0]
    return (
        f"the warm-up never settled: after {len(rounds)} rounds a shape still took {one:.3g} s and "
        f"then {two:.3g} s, so what was measured may hold what only a first time takes"
    )


def _apart(rounds: Sequence[Sequence[float]]) -> list[tuple[float, float]]:
    """What shapes took in the last two rounds, where it is not the same."""
    return [
        (one, two)
        for one, two in zip(rounds[-2], rounds[-1], strict=True)
        if abs(one - two) > max(SLACK, TOLERANCE * min(one, two))
    ]
