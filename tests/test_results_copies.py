"""Runs that are the same again: counted once wherever runs are counted."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from reports.calibration import calibration_text
from results.baseline import baseline
from results.calibration import calibrate
from results.comparison import EXPLORED, CellComparison, compare
from results.copies import copied, counted_once
from results.errors import InputError
from results.figure import Figure
from results.run import Run, read
from results.side import Side, side
from results.verdict import Margin, Rule
from tests.run_folders import run_folder
from tests.test_results_comparison import noisy

GATE = (Rule(metric="ttft", margin=Margin(relative=0.05)),)


def night(folder: Path, number: int, arm: int) -> Run:
    """A run of one arm in a folder of its own."""
    return run_folder(folder / str(number), {"a": noisy(arm)}, 3)


def again(folder: Path, run: Run, times: int = 1) -> list[Run]:
    """The run, and copies of its folder."""
    copies = [folder / f"{folder.name}-{number}" for number in range(times)]
    return [run, *(read(Path(shutil.copytree(run.path, path))) for path in copies)]


def of(runs: Sequence[Run]) -> Side:
    return side([str(run.path) for run in runs])


def cell(base: Sequence[Run], other: Sequence[Run]) -> CellComparison:
    (only,) = compare(of(base), of(other), GATE).cells
    return only


def test_a_run_is_a_copy_where_it_was_sent_the_same_and_every_metric_is_equal() -> None:
    def figures(ttft: float, rate: float | None = 3.0) -> dict[str, Figure]:
        return {
            "ttft.p50": Figure(value=ttft, unit="s", n=4),
            "output_rate": Figure(value=rate, unit="tok/s", n=4),
        }

    seen: dict[str, list[np.ndarray]] = {}
    assert not copied(seen, "one", figures(0.1))
    assert copied(seen, "one", figures(0.1 * (1 + 1e-14)))
    assert not copied(seen, "two", figures(0.1))
    assert not copied(seen, "one", figures(0.1 * (1 + 1e-9)))
    assert not copied(seen, "one", figures(0.1, None))
    assert not copied(seen, "one", {})
    assert not copied(seen, "one", {})


def test_copies_make_no_side_surer_of_itself(tmp_path: Path) -> None:
    base, other = night(tmp_path, 1, 1), night(tmp_path, 2, 2)
    alone, thrice = cell([base], [other]), cell(again(tmp_path, base, 2), [other])
    assert (alone.runs, thrice.runs) == ((3, 3), (3, 3))
    assert thrice.judgements == alone.judgements
    assert not any("copies" in note for note in alone.notes)
    assert (
        "6 of 9 runs of base are copies of others, the same to the last digit, and count once"
    ) in thrice.notes


def test_copies_that_leave_one_run_are_one_pair_with_its_own_interval(tmp_path: Path) -> None:
    base, other = (
        run_folder(tmp_path / name, {"a": noisy(arm)}, 1) for name, arm in (("x", 1), ("y", 2))
    )
    told = cell(again(tmp_path / "more", base, 2), again(tmp_path / "others", other))
    assert told.runs == (1, 1)
    figure = next(one for one in told.judgements if one.effect.metric == "ttft.p50")
    assert (figure.effect.how, figure.verdict) == ("one pair", "inconclusive")
    assert figure.effect.low is not None


def test_an_engine_is_not_calibrated_by_copies_of_itself(tmp_path: Path) -> None:
    run, fresh = night(tmp_path, 1, 1), night(tmp_path, 2, 2)
    one, copy = again(tmp_path, run)
    with pytest.raises(InputError, match="3 of 6 runs are copies of others"):
        calibrate(of([one]), of([copy]), made="2026-01-01", explored=EXPLORED)
    made = calibrate(of([one, copy]), of([fresh]), made="2026-01-01", explored=EXPLORED)
    assert made.cells[0].metrics[0].runs == 3
    text = " ".join(calibration_text(made).split())
    assert "3 of 9 runs are copies of others, the same to the last digit, and count once" in text


def test_a_baseline_knows_which_of_its_runs_are_copies(tmp_path: Path) -> None:
    nights = [night(tmp_path, 1, 1), again(tmp_path / "other", night(tmp_path, 2, 2))[1]]
    # A simulated engine that ran again: another run, the same to the byte.
    runs = [
        replace(one, run_id=str(place))
        for place, one in enumerate([*nights, *again(tmp_path / "more", nights[0], 2)[1:]])
    ]
    assert [baseline(runs[:count]).copies for count in (1, 2, 3, 4)] == [0, 0, 1, 2]


def test_one_copy_is_told_as_one() -> None:
    assert counted_once(1, 4, "other") == (
        "1 of 4 runs of other is a copy of another one, the same to the last digit, and counts once"
    )
