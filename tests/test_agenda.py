"""What falls due when, and that all of it can be moved."""

from harness import clock
from harness.agenda import Agenda


def rung(*moves: tuple[float, float, int | None]) -> list[tuple[float, int, str]]:
    """When each entry came; after so many seconds the rest is advanced, of all trees or of one."""
    came: list[tuple[float, int, str]] = []

    async def run() -> None:
        def ring() -> None:
            came.extend((clock.now(), entry.tree, entry.stream) for entry in agenda.take())

        agenda = Agenda(ring)
        for due, tree, stream in ((30.0, 1, "a"), (10.0, 0, "b"), (10.0, 1, "c"), (20.0, 0, "d")):
            agenda.add(due, tree, stream)
        for moment, seconds, tree in moves:
            await clock.until(moment)
            agenda.advance(seconds, tree)
        await clock.until(100.0)
        agenda.close()

    clock.run("virtual", run())
    return came


def test_entries_come_when_they_are_due_and_those_of_one_moment_in_the_order_of_writing() -> None:
    assert rung() == [(10, 0, "b"), (10, 1, "c"), (20, 0, "d"), (30, 1, "a")]


def test_what_is_advanced_keeps_its_distances_and_never_lies_in_the_past() -> None:
    assert rung((5.0, 3.0, None)) == [(7, 0, "b"), (7, 1, "c"), (17, 0, "d"), (27, 1, "a")]
    assert rung((5.0, 3.0, 1)) == [(7, 1, "c"), (10, 0, "b"), (20, 0, "d"), (27, 1, "a")]
    assert rung((5.0, 12.0, None)) == [(5, 0, "b"), (5, 1, "c"), (8, 0, "d"), (18, 1, "a")]


def test_a_closed_agenda_never_rings() -> None:
    came: list[object] = []

    async def run() -> None:
        agenda = Agenda(lambda: came.append(agenda.take()))
        agenda.add(1.0, 0)
        agenda.close()
        agenda.add(2.0, 0)
        await clock.until(10.0)

    clock.run("virtual", run())
    assert not came
