"""What is named counts once however it is spelled, and a baseline file that was edited is none."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from results import ledger
from results.baseline import baseline
from results.comparison import compare
from results.errors import InputError
from results.run import Run, read
from tests.run_folders import run_folder, served

Edit = Callable[[dict[str, Any]], Any]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    arms = {
        name: lambda repeat: served([0.1 + n / 100 for n in range(20)], repeat) for name in "ab"
    }
    return run_folder(tmp_path_factory.mktemp("run"), arms, repeats=2)


@pytest.fixture(scope="module")
def content(run: Run, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("file") / "baseline.json"
    ledger.write(path, baseline([run]))
    return path.read_bytes()


def spellings(path: Path) -> list[str]:
    """One folder, spelled in four ways."""
    winding = path / ".." / path.name
    link = path.parent / "link"
    if not link.exists():
        link.symlink_to(path)
    return [str(path), os.path.relpath(path), str(winding), str(link)]


def test_a_run_counts_once_however_its_folder_is_spelled(run: Run) -> None:
    whole = ledger.side(spellings(run.path))
    assert (len(whole.runs), len(whole.points)) == (1, 4)
    part = ledger.side([f"{one}:a" for one in spellings(run.path)])
    assert (len(part.runs), len(part.points)) == (1, 2)


@pytest.mark.parametrize("spelling", range(4))
def test_arms_of_one_folder_are_in_one_order_however_it_is_spelled(run: Run, spelling: int) -> None:
    other = spellings(run.path)[spelling]
    told = compare(*ledger.sides([f"{run.path}:a"], [f"{other}:b"]))
    assert not [note for note in told.cells[0].notes if "several folders" in note]


def test_the_very_same_runs_are_told_however_they_are_spelled(run: Run) -> None:
    base, *others = spellings(run.path)
    for other in others:
        told = compare(*ledger.sides([base], [other]))
        assert "both sides are the very same runs" in told.cells[0].notes


def test_a_file_counts_once_however_it_is_spelled(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    path.write_bytes(content)
    twice = ledger.side([str(path), str(tmp_path / ".." / tmp_path.name / path.name)])
    assert (len(twice.runs), len(twice.points)) == (1, 4)


def points(file: dict[str, Any]) -> list[dict[str, Any]]:
    return [point for run in file["runs"].values() for point in run["points"].values()]


def longer(file: dict[str, Any]) -> None:
    for point in points(file):
        point["series"]["ttft"] = [value * 2 for value in point["series"]["ttft"]]


def swapped(file: dict[str, Any]) -> None:
    ones = points(file)
    ones[0]["series"], ones[1]["series"] = ({**one["series"], "tpot": [9.0]} for one in ones[:2])


def falling(file: dict[str, Any]) -> None:
    points(file)[0]["series"]["e2el"][2:] = [2.0, 1.0]


def again(file: dict[str, Any]) -> None:
    (run,) = file["runs"].values()
    file["runs"]["another"] = run


EDITS: tuple[tuple[Edit, str], ...] = (
    (longer, "its requests are not those of its ttft"),
    (swapped, "its requests are not those of its tpot"),
    (lambda file: points(file)[0]["single"].update(ok=19.0), "has 20 requests, and says 19.0"),
    (lambda file: points(file)[0].pop("requests"), "'tokens'"),
    (lambda file: points(file)[0].update(requests=""), "cannot be read"),
    (lambda file: file["columns"].reverse(), "was not written by this version"),
    (lambda file: file.pop("columns"), "was not written by this version"),
    (falling, "e2el: percentiles .* do not rise"),
    (again, "another and .* are one run under two names"),
)


@pytest.mark.parametrize(("edit", "sentence"), EDITS)
def test_a_file_that_contradicts_itself_is_refused(
    content: bytes, tmp_path: Path, edit: Edit, sentence: str
) -> None:
    file = orjson.loads(content)
    edit(file)
    path = tmp_path / "baseline.json"
    path.write_bytes(orjson.dumps(file))
    with pytest.raises(InputError, match=sentence):
        ledger.read(path)


def test_a_file_as_it_was_written_is_read(content: bytes, tmp_path: Path, run: Run) -> None:
    path = tmp_path / "baseline.json"
    path.write_bytes(content)
    (back,) = ledger.read(path).runs
    assert [point.cell.id for point in back.points] == [point.cell.id for point in run.points]


def test_a_measured_run_under_two_names_makes_no_baseline(run: Run) -> None:
    other = run.path.parent / "copy"
    shutil.copytree(run.path, other)
    with pytest.raises(InputError, match="one run under two names"):
        baseline([read(run.path), read(other)])
