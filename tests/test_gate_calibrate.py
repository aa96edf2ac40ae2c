"""An engine against itself: the plan, and what is taken for one engine twice."""

import pytest

from cli import Exit
from results.calibration import read
from results.errors import InputError
from suites.gate import calibrated
from suites.plan import plan
from suites.suite import load
from suites.twice import FEWEST, twice
from tests.gate_runs import SLOWER, SUITE, made, paceline


@pytest.fixture
def suite(tmp_path):
    path = tmp_path / "tiny.yaml"
    path.write_text(SUITE)

    def loaded(*overrides):
        return load(str(path), overrides)

    return loaded


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return [made(folder / name, "repeats=4") for name in ("one", "other")]


def test_an_engine_runs_against_itself_there_and_back(suite):
    points = twice(suite()).points
    assert [point.position for point in points] == list(range(2 * FEWEST))
    arms = [point.deployment.arm for point in points]
    assert arms == ["sim TP2", "sim again TP2", "sim again TP2", "sim TP2"] * (FEWEST // 2)
    assert [point.repeat for point in points] == [n // 2 for n in range(2 * FEWEST)]


def test_both_are_sent_what_the_suite_sends_and_differ_in_noise(suite):
    first, second, *_ = twice(suite()).points
    asked = plan(suite()).points[0]
    assert first.pairing == second.pairing == asked.pairing
    assert first.seed == second.seed == asked.seed
    assert first.noise_seed != second.noise_seed


def test_the_suites_repeats_are_kept_where_they_are_more(suite):
    assert len(twice(suite("repeats=8")).points) == 16


def test_the_first_arm_is_taken_or_the_one_that_is_named(suite):
    arms = suite("experiments.0.topology=[TP1, TP2]", "experiments.0.replay=[off, on]")

    def taken(words):
        return {point.deployment.arm for point in twice(arms, words).points}

    assert taken(None) == {"sim TP1 replay=off", "sim again TP1 replay=off"}
    assert taken("TP2 replay=on") == {"sim TP2 replay=on", "sim again TP2 replay=on"}
    for words in ("TP2", "TP8"):
        with pytest.raises(InputError, match="--arm: expected words that one arm alone has"):
            twice(arms, words)


def test_a_calibration_is_made_written_and_read(suite, tmp_path):
    path = tmp_path / "calibration.json"
    suite()
    asked = ("calibrate", tmp_path / "tiny.yaml", "--runs", tmp_path, "-o", path, "--quiet")
    result = paceline(*asked)
    assert result.exit_code == Exit.GOOD, result.stderr
    found = read(path)
    assert found.runs[0].startswith("tiny-calibration-")
    (cell,) = found.cells
    noise = {one.metric: one for one in cell.metrics}
    assert 0 < noise["tpot"].spread < 0.02
    assert noise["ttft"].margin == 0.05


def test_runs_that_are_there_calibrate_too(two):
    one, other = map(str, two)
    # The other one is the same to the byte, as simulated runs are, and tells nothing of noise.
    with pytest.raises(InputError, match="4 of 8 runs are copies of others"):
        calibrated([one, other], made="2026-01-01")
    inside = calibrated([one], made="2026-01-01")
    assert inside.cells[0].metrics


def test_what_differs_is_not_one_engine_twice(two, tmp_path):
    slower = made(tmp_path, "repeats=2", SLOWER)
    with pytest.raises(InputError, match=r"not one engine twice.*slowdown: 1.0 against 1.15"):
        calibrated([str(two[0]), str(slower)])


def test_too_few_runs_calibrate_nothing(tmp_path):
    single = made(tmp_path, "repeats=1")
    with pytest.raises(InputError):
        calibrated([str(single)])
