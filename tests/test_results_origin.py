"""Which runs belong together: by the command that made them, and by their cells."""

from contextlib import chdir
from dataclasses import replace
from pathlib import Path

import pytest

from cli import Exit
from results.errors import InputError
from results.origin import check_cells, check_makers
from results.run import read
from suites.plan import plan
from suites.suite import load
from suites.twice import twice
from tests.gate_runs import SUITE, made, paceline

LEVELS = "experiments.0.load.concurrency=[1, 2, 4]"
AIMS = "experiments.0.objectives={ttft: 1ms}"


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    return made(tmp_path_factory.mktemp("usual"), "repeats=1")


def file(folder):
    path = folder / "tiny.yaml"
    path.write_text(SUITE)
    return path


def test_a_plan_says_which_command_begins_it_and_its_hash_does_not(tmp_path):
    suite = load(str(file(tmp_path)))
    planned = plan(suite)
    searched = replace(planned, maker="search")
    makers = [one.facts()["maker"] for one in (planned, searched, twice(suite))]
    assert makers == ["run", "search", "calibrate"]
    assert planned.hash == searched.hash


def test_a_calibration_goes_where_the_runs_of_its_suite_are_not_looked_for(tmp_path, usual):
    with chdir(tmp_path):
        assert paceline("calibrate", file(tmp_path), "--quiet").exit_code == Exit.GOOD
    assert list((tmp_path / "runs").glob("tiny-*")) == []
    (folder,) = (tmp_path / "runs/calibration").glob("tiny-calibration-*")
    for command in (
        ("baseline", folder, usual, "-o", tmp_path / "b.json"),
        ("history", folder, usual),
    ):
        result = paceline(*command)
        assert result.exit_code == Exit.BAD_INPUT
        assert f"{folder} was made by `calibrate`" in result.stderr
        assert "leave it out" in result.stderr


def test_a_search_is_part_of_nothing_until_it_is_completed(tmp_path):
    asked = (file(tmp_path), "--out", tmp_path, "--quiet", "--set", LEVELS, "--set", AIMS)
    asked += ("--set", "repeats=1")
    searched = paceline("search", *asked)
    assert "Run folder" in searched.stdout, searched.stderr
    (folder,) = tmp_path.glob("tiny-*/")
    assert read(folder).planned
    result = paceline("history", folder)
    assert result.exit_code == Exit.BAD_INPUT
    assert f"{folder} was made by `search`" in result.stderr
    assert "complete it with `paceline run`" in result.stderr
    paceline("run", *asked)
    check_makers([read(folder)], "a baseline")


def test_a_run_of_other_cells_is_named_with_one_of_them(usual, tmp_path):
    run = read(usual)
    check_cells([run, run, replace(run, path=Path("again"))])
    more = read(made(tmp_path, "repeats=1", LEVELS))
    words = "is not a run of the same cells as the others, for one because it has"
    with pytest.raises(InputError, match=rf"{more.path.name} {words} .*closed-1"):
        check_cells([run, run, more])
    with pytest.raises(InputError, match="because it lacks talk-sim-TP2-growing-3x300-closed-1"):
        check_cells([more, more, run])


def test_an_arm_more_or_less_is_another_cell(usual, tmp_path):
    both = made(tmp_path, "repeats=1", "experiments.0.topology=[TP2, TP1]")
    result = paceline("baseline", usual, usual, both, "-o", tmp_path / "b.json")
    assert result.exit_code == Exit.BAD_INPUT
    assert not (tmp_path / "b.json").exists()
