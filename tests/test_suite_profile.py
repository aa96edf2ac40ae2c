"""Suites whose workload names a profile: the load has the profile's times where it says none."""

from pathlib import Path

import pytest

from harness.load import Closed
from results.errors import InputError
from suites.suite import load, shipped

SUITE = """
suite: lanes
experiments:
  - name: lanes
    engine: {kind: sim}
    topology: TP1
    workload: WORKLOAD
    load: LOAD
"""
LANES = "{kind: agentx, profile: ci-synth, generated: 2}"


def loads(folder: Path, said: str, workload: str = LANES) -> list[Closed]:
    """The loads of a suite's points."""
    path = folder / "suite.yaml"
    path.write_text(SUITE.replace("WORKLOAD", workload).replace("LOAD", said))
    (experiment,) = load(str(path)).experiments
    found = [point.load for point in experiment.grid]
    assert all(isinstance(one, Closed) for one in found)
    return found  # type: ignore[return-value]


def test_a_load_without_an_end_has_the_times_of_the_profile(tmp_path: Path) -> None:
    (one,) = loads(tmp_path, "{kind: closed, concurrency: 8}")
    assert one == Closed(concurrency=8, duration=60.0, grace=30.0, warmup=0)
    both = loads(tmp_path, "[{kind: closed, concurrency: 1}, {kind: closed, concurrency: 2}]")
    assert [(load.concurrency, load.duration) for load in both] == [(1, 60.0), (2, 60.0)]
    hour = "{kind: agentx, profile: agentx-v1, generated: 2}"
    assert loads(tmp_path, "{kind: closed, concurrency: 8}", hour)[0].duration == 3600.0


def test_several_profiles_give_the_times_that_they_share(tmp_path: Path) -> None:
    both = "{kind: agentx, profile: [ci-synth, agentx-v1], generated: 2}"
    found = loads(tmp_path, "{kind: closed, concurrency: 8, duration: 10m}", both)
    assert found == [Closed(concurrency=8, duration=600.0, grace=30.0, warmup=0)] * 2
    with pytest.raises(InputError, match="says neither sessions nor duration"):
        loads(tmp_path, "{kind: closed, concurrency: 8}", both)


def test_what_a_load_says_of_its_times_stays(tmp_path: Path) -> None:
    (one,) = loads(tmp_path, "{kind: closed, concurrency: 8, duration: 5s, grace: 1, warmup: 1}")
    assert one == Closed(concurrency=8, duration=5.0, grace=1.0, warmup=1)


@pytest.mark.parametrize(
    ("said", "got"),
    [
        ("{kind: open, rate: 1, duration: 60}", "got open"),
        ("{kind: recorded, sessions: 2}", "got recorded"),
        ("{kind: closed, concurrency: 1, sessions: 4}", "got closed"),
    ],
)
def test_only_a_closed_load_replays_lanes(tmp_path: Path, said: str, got: str) -> None:
    with pytest.raises(InputError, match="expected a closed load without sessions") as caught:
        loads(tmp_path, said)
    assert "experiments[0].load: " in str(caught.value)
    assert got in str(caught.value)


def test_without_one_profile_for_all_a_load_must_say_when_it_ends(tmp_path: Path) -> None:
    plain = "{kind: agentx, generated: 2}"
    for workload in (plain, f"[{LANES}, {plain}]"):
        with pytest.raises(InputError, match="says neither sessions nor duration"):
            loads(tmp_path, "{kind: closed, concurrency: 8}", workload)
    # Nothing of this is a profile, and each is told where it is wrong.
    for workload in ("[]", "7", "{kind: agentx, profile: 7, generated: 2}"):
        with pytest.raises(InputError):
            loads(tmp_path, "{kind: closed, concurrency: 8}", workload)


def test_the_suite_that_ships_replays_lanes_by_a_profile() -> None:
    (experiment,) = load(str(shipped()["agentx"])).experiments
    assert {point.identity["profile"] for point in experiment.grid} == {"ci-synth"}
    assert {point.load.duration for point in experiment.grid} == {60.0}
