"""The two sides: run folders, or an arm of them."""

from dataclasses import replace
from pathlib import Path

import pytest

from results.errors import InputError
from results.side import side, within
from tests.run_folders import run_folder, served

ARMS = {
    name: lambda repeat: served([0.1] * 4, repeat)
    for name in ("sim TP4 replay=off", "sim TP4 replay=on", "sim DEP2 replay=on")
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return run_folder(tmp_path, ARMS, repeats=1).path


def test_a_folder_is_all_its_points_in_the_order_of_the_plan(path: Path) -> None:
    whole = side([str(path)])
    assert whole.arms == tuple(ARMS)
    assert len(whole.points) == 3


@pytest.mark.parametrize("asked", ["sim TP4 replay=off", "replay=off", "replay=off TP4"])
def test_an_arm_is_named_in_full_or_by_words_it_alone_has(path: Path, asked: str) -> None:
    assert side([f"{path}:{asked}"]).arms == ("sim TP4 replay=off",)


@pytest.mark.parametrize("asked", ["TP4", "TP8", "replay"])
def test_words_of_several_arms_or_of_none_are_refused_with_the_arms(path: Path, asked: str) -> None:
    with pytest.raises(InputError, match=r'"sim TP4 replay=off".*"sim TP4 replay=on"'):
        side([f"{path}:{asked}"])


def test_several_folders_make_up_one_side(tmp_path: Path, path: Path) -> None:
    another = run_folder(tmp_path / "later", ARMS, repeats=2).path
    both = side([f"{path}:DEP2", f"{another}:DEP2"])
    assert [run.path for run in both.runs] == [path, another]
    assert len(both.points) == 3
    assert both.arms == ("sim DEP2 replay=on",)


def test_a_path_may_hold_a_colon(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "a:b", ARMS, repeats=1)
    assert len(side([str(run.path)]).points) == 3
    assert len(side([f"{run.path}:DEP2"]).points) == 1


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a run folder"):
        side([str(tmp_path)])
    with pytest.raises(InputError, match="does not exist"):
        side([f"{tmp_path / 'gone'}:TP4"])


def test_the_first_arm_of_a_folder_stands_against_each_other_one(tmp_path: Path) -> None:
    run = run_folder(tmp_path, ARMS, repeats=1)
    assert [(base.name, other.name) for base, other in within(run)] == [
        ("sim TP4 replay=off", "sim TP4 replay=on"),
        ("sim TP4 replay=off", "sim DEP2 replay=on"),
    ]


def test_arms_are_in_the_order_of_the_experiment_that_has_most_of_them(tmp_path: Path) -> None:
    run = run_folder(tmp_path, ARMS, repeats=1)
    last = run.points[-1]
    alone = replace(last, cell=replace(last.cell, experiment="alone"))
    assert [
        (base.name, other.name) for base, other in within(replace(run, points=(alone, *run.points)))
    ] == [(base.name, other.name) for base, other in within(run)]


def test_a_folder_of_one_arm_has_nothing_to_compare_inside_it(tmp_path: Path) -> None:
    run = run_folder(tmp_path, {"sim TP4": ARMS["sim TP4 replay=on"]}, repeats=1)
    with pytest.raises(InputError, match="1 arm, so there is nothing"):
        within(run)
