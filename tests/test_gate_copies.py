"""A run is always as good as itself, so no copy of it passes for a later run."""

import shutil
from pathlib import Path

import pytest

from cli import Exit
from tests.gate_runs import made, paceline
from tests.run_folders import run_folder, served


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    arms = {name: lambda repeat: served([0.1, 0.2, 0.3, 0.4], repeat) for name in ("a", "b")}
    return run_folder(tmp_path_factory.mktemp("measured"), arms, repeats=2).path


@pytest.fixture
def rules(tmp_path):
    path = tmp_path / "rules.yaml"
    path.write_text("ttft: no worse than 5 %\n")
    return path


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_a_copy_of_a_measured_run_under_another_name_is_refused(measured, rules, tmp_path, kind):
    copy = shutil.copytree(measured, tmp_path / "later-20990101T000000Z")
    against = measured
    if kind == "file":
        against = tmp_path / "baseline.json"
        assert paceline("baseline", measured, "-o", against).exit_code == Exit.GOOD
    result = paceline("gate", copy, "--baseline", against, "--rules", rules)
    assert result.exit_code == Exit.BAD_INPUT
    assert "always as good as itself" in result.stderr


def test_another_spelling_of_a_simulated_run_is_refused(tmp_path):
    run = made(tmp_path)
    winding = run.parent / "x" / ".." / run.name
    (run.parent / "x").mkdir()
    link = run.parent / "link"
    link.symlink_to(run)
    for spelled in (winding, link):
        result = paceline("gate", spelled, "--baseline", run)
        assert result.exit_code == Exit.BAD_INPUT
        assert "always as good as itself" in result.stderr


def test_two_arms_of_one_measured_run_are_two_things(measured, rules):
    result = paceline("gate", f"{measured}:b", "--baseline", f"{measured}:a", "--rules", rules)
    assert "always as good as itself" not in result.stderr
    assert result.exit_code in {Exit.GOOD, Exit.INCONCLUSIVE}


def test_a_simulated_run_that_repeats_another_to_the_byte_is_told_to_be_one(tmp_path):
    run = made(tmp_path)
    copy = Path(shutil.copytree(run, tmp_path / "tiny-20990101T000000Z"))
    result = paceline("gate", copy, "--baseline", run)
    assert "a simulated run is repeated or copied" in " ".join(result.stdout.split())


def test_a_run_is_not_calibrated_against_itself(tmp_path):
    run = made(tmp_path)
    result = paceline("calibrate", run, run.parent / "." / run.name, "-o", tmp_path / "c.json")
    assert result.exit_code == Exit.BAD_INPUT
