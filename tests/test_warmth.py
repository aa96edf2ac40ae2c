"""How long a server is warmed up."""

from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from harness.engine import Server
from harness.load import Closed
from harness.run import run
from harness.warmth import MOST_ROUNDS, due, restless, settled
from results.evidence import Observed
from results.metrics import summarise
from results.run import read
from tests.test_drive import FixedClient, FixedEngine, replay
from tests.test_run import Notes, folder_for, point
from workloads.growing import Growing


class MoodyClient(FixedClient):
    """Takes a second more in every other round of two shapes."""

    async def send(self, request, *, cut, on_first):
        self.service = 1.0 + len(self.seen) // 2 % 2
        return await super().send(request, cut=cut, on_first=on_first)


@dataclass(frozen=True, kw_only=True)
class MoodyEngine(FixedEngine):
    """An engine that compiles, and whose server is moody."""

    secrets: tuple = ()

    @asynccontextmanager
    async def start(self, deployment, *, seed, log, keys):
        observed = Observed(provenance="plumbing", gpus=1)
        yield Server(
            client=MoodyClient(), observe=lambda: observed, steps=lambda: None, compiles=True
        )


def warmed(client) -> str | None:
    window, _ = replay(Closed(sessions=1), client, settle=True)
    return window.restless


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
    moody = [[1.0 + number % 2] for number in range(1 + MOST_ROUNDS)]
    assert not due(moody, 1, settle=True)
    assert due(moody[:-1], 1, settle=True)


def test_without_a_warm_up_there_is_none():
    assert not due([], 0, settle=True)


def test_times_that_never_settle_are_told_with_both_of_them():
    rounds = [[0.5, 1.0 + number % 2] for number in range(9)]
    told = restless(rounds, 1, settle=True)
    assert told.startswith("the warm-up never settled: after 9 rounds a shape still took 2 s and")
    assert restless([[0.5], [0.5]], 1, settle=True) is None
    assert restless(rounds, 1, settle=False) is None
    assert restless(rounds, 0, settle=True) is None


def test_a_server_whose_times_never_settle_is_told_of_beside_its_figures(tmp_path):
    assert warmed(FixedClient()) is None
    work = Growing(turns=2, first=40, fresh=10, output=4)
    points = [replace(point(MoodyEngine()), workload=work)]
    with folder_for(points, tmp_path) as folder:
        run(points, folder, Notes())
    (measured,) = read(folder.path).points
    assert measured.evidence.restless in summarise(measured).remarks
    assert "after 9 rounds a shape still took 2 s and then 1 s" in measured.evidence.restless
