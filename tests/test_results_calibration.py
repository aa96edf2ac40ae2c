"""An engine against itself: what it tells of noise, kept, read back, and used where it holds."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from results.calibration import (
    FREEDOM,
    Calibration,
    MetricNoise,
    calibrate,
    detectable,
    mismatches,
    read,
    write,
)
from results.comparison import EXPLORED, compare
from results.effects import ONE_FOLDER
from results.errors import FolderError, InputError
from results.record import RequestRecord
from results.side import Side, side, within
from results.verdict import Judgement, Margin, Rule
from tests.run_folders import Requests, run_folder, served

NOISE = 0.02


def noisy(arm: int, factor: float = 1.0, spread: float = NOISE) -> Requests:
    """Requests of 12 sessions whose runs vary by the spread."""

    def rows(repeat: int) -> list[RequestRecord]:
        shared = np.random.default_rng(repeat).uniform(0.1, 1.0, size=24)
        run = factor * np.exp(np.random.default_rng([arm, repeat]).normal() * spread)
        return served((shared * run).tolist(), repeat)

    return rows


def calibrated(path: Path, repeats: int = 8, spread: float = NOISE, **options: Any) -> Calibration:
    run = run_folder(path, {"a": noisy(1, spread=spread), "b": noisy(2, spread=spread)}, repeats)
    return calibrate(*within(run)[0], made="2026-11-30", explored=EXPLORED, **options)


@pytest.fixture(scope="module")
def calibration(tmp_path_factory: pytest.TempPathFactory) -> Calibration:
    """Eight runs a side that vary by NOISE."""
    return calibrated(tmp_path_factory.mktemp("calibration"))


def noise(calibration: Calibration, metric: str = "ttft") -> MetricNoise:
    return next(one for one in calibration.cells[0].metrics if one.metric == metric)


def one_pair(path: Path, factor: float, **options: Any) -> tuple[tuple[Side, Side], dict[str, Any]]:
    run = run_folder(path, {"a": noisy(3), "b": noisy(4, factor)}, repeats=1, **options)
    return within(run)[0], {"rules": [Rule(metric="ttft", margin=Margin(relative=0.05))]}


def judged(sides: tuple[Side, Side], metric: str = "ttft", **options: Any) -> Judgement:
    told = compare(*sides, **options)
    return next(one for one in told.cells[0].judgements if one.effect.metric == metric)


def test_the_spread_of_runs_is_that_of_their_pairs_by_hand(calibration: Calibration) -> None:
    found = noise(calibration)
    drawn = [
        [np.random.default_rng([arm, repeat]).normal() * NOISE for repeat in range(8)]
        for arm in (1, 2)
    ]
    changes = np.subtract(*drawn)
    assert found.spread == pytest.approx(changes.std(ddof=1) / np.sqrt(2), rel=0.02)
    assert (found.runs, found.freedom) == (8, 7)
    # Two single runs of a known spread differ by less than 1.96 x sqrt(2) x spread in 95 of 100.
    assert found.floor == pytest.approx(np.expm1(1.95996 * np.sqrt(2) * found.spread), rel=1e-4)


def test_what_is_detectable_before_a_run_shrinks_with_its_runs(calibration: Calibration) -> None:
    found = noise(calibration)
    few, many = detectable(found, 4), detectable(found, 16)
    # (t.975 + t.8) at 29 degrees = 2.0452 + 0.8542 would be known noise; at 2 x 16 - 3 it is so.
    assert many == pytest.approx(np.expm1(2.8994 * found.spread * np.sqrt(2 / 16)), rel=0.01)
    assert few > 2 * many


def test_one_pair_becomes_a_verdict_where_a_calibration_tells_the_spread(
    tmp_path: Path, calibration: Calibration
) -> None:
    sides, options = one_pair(tmp_path / "run", 1.5)
    assert judged(sides, **options).verdict == "inconclusive"
    told = judged(sides, calibration=calibration, **options)
    assert told.effect.how == "one pair, calibrated"
    assert (told.verdict, told.gate) == ("worse", "fail")
    # Both errors are in it: that of runs alone is spread x sqrt(2).
    assert told.effect.error >= noise(calibration).spread * np.sqrt(2)


def test_a_calibration_of_one_folder_does_not_judge_runs_of_two(
    tmp_path: Path, calibration: Calibration
) -> None:
    paths = [
        run_folder(tmp_path / str(arm), {"a": noisy(arm, factor)}, repeats=1).path
        for arm, factor in ((3, 1.0), (4, 1.5), (5, 1.01))
    ]
    rules = [Rule(metric="ttft", margin=Margin(relative=0.3))]
    nights = [
        side([str(run_folder(tmp_path / f"night-{arm}", {"a": noisy(arm)}, 1).path)])
        for arm in range(11, 19)
    ]
    whole = calibrate(
        *(_together(nights[half::2]) for half in (0, 1)), made="2026-11-30", explored=EXPLORED
    )
    assert [noise(calibration).folders, noise(whole).folders] == [False, True]
    for path, gate in ((paths[1], "fail"), (paths[2], "pass")):
        sides = side([str(paths[0])]), side([str(path)])
        told = judged(sides, calibration=calibration, rules=rules)
        assert (told.effect.how, told.verdict, told.gate) == (
            "one pair, calibrated",
            "inconclusive",
            "inconclusive",
        )
        assert told.reason == ONE_FOLDER
        assert judged(sides, calibration=whole, rules=rules).gate == gate


def _together(sides: list[Side]) -> Side:
    points = tuple(point for one in sides for point in one.points)
    return Side(name="several", runs=tuple(run for one in sides for run in one.runs), points=points)


def test_a_difference_that_noise_alone_makes_stays_inconclusive(
    tmp_path: Path, calibration: Calibration
) -> None:
    loud = replace(noise(calibration), spread=0.10)
    cell = replace(calibration.cells[0], metrics=(loud,))
    sides, options = one_pair(tmp_path / "run", 1.10)
    told = judged(sides, calibration=replace(calibration, cells=(cell,)), **options)
    assert (told.effect.how, told.verdict) == ("one pair, calibrated", "inconclusive")


def test_a_margin_in_multiples_of_noise_needs_a_calibration(
    tmp_path: Path, calibration: Calibration
) -> None:
    run = run_folder(tmp_path / "run", {"a": noisy(3), "b": noisy(4)})
    rules = [Rule(metric="ttft", margin=Margin(relative=0.01, noise=2))]
    assert judged(within(run)[0], rules=rules).gate == "inconclusive"
    told = judged(within(run)[0], rules=rules, calibration=calibration)
    assert told.margin == pytest.approx(2 * noise(calibration).floor)
    assert told.margin > 0.01


def test_two_runs_are_too_few_for_a_margin_in_multiples_of_their_noise(tmp_path: Path) -> None:
    few = calibrated(tmp_path / "few", repeats=2)
    assert noise(few).freedom < FREEDOM
    # The floor itself is what the spread says, and not wider for being unsure.
    assert noise(few).floor == pytest.approx(np.expm1(1.959964 * 2**0.5 * noise(few).spread))
    run = run_folder(tmp_path / "run", {"a": noisy(3), "b": noisy(4)})
    told = compare(*within(run)[0], [Rule(metric="ttft", margin=Margin(noise=2))], calibration=few)
    (cell,) = told.cells
    gated = next(one for one in cell.judgements if one.gated)
    assert (gated.margin, gated.gate) == (None, "inconclusive")
    assert any("fewer than 5 degrees of freedom" in note for note in cell.notes)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, None) for name in ("spread", "floor", "error", "provable", "runs")),
        *((name, -0.1) for name in ("spread", "floor", "margin", "freedom")),
        *((name, "0.1") for name in ("spread", "false_alarms")),
        ("spread", True),
        ("floor", [0.1]),
        ("drift", {"slope": None, "low": 0.0, "high": 0.0}),
        ("drift", {"slope": 0.1}),
        ("drift", 3),
        ("folders", 1),
    ],
)
def test_a_calibration_with_a_number_that_is_none_is_refused(
    tmp_path: Path, calibration: Calibration, name: str, value: object
) -> None:
    path = tmp_path / "calibration.json"
    write(path, calibration)
    content = orjson.loads(path.read_bytes())
    content["cells"][0]["metrics"][0][name] = value
    path.write_bytes(orjson.dumps(content))
    with pytest.raises(InputError, match="is no calibration"):
        read(path)


@pytest.mark.parametrize(
    ("name", "value"), [("cells", None), ("stated", []), ("runs", "aa"), ("cells", [3])]
)
def test_a_calibration_that_lacks_its_parts_is_refused(
    tmp_path: Path, calibration: Calibration, name: str, value: object
) -> None:
    path = tmp_path / "calibration.json"
    write(path, calibration)
    path.write_bytes(orjson.dumps({**orjson.loads(path.read_bytes()), name: value}))
    with pytest.raises(InputError, match="is no calibration"):
        read(path)


def test_it_holds_only_for_the_hardware_engine_and_workload_it_was_made_on(
    tmp_path: Path, calibration: Calibration
) -> None:
    sides, options = one_pair(
        tmp_path / "other-load", 1.5, load={"kind": "closed", "concurrency": 9}
    )
    assert judged(sides, calibration=calibration, **options).effect.how == "one pair"
    sides, options = one_pair(tmp_path / "other-machine", 1.5, environment={"processor": "another"})
    told = compare(*sides, calibration=calibration, **options)
    assert told.cells[0].judgements[0].verdict == "inconclusive"
    assert "environment.processor absent, and here it is another" in told.uncalibrated[0]
    assert mismatches(calibration, sides[0]) == told.uncalibrated


def test_false_alarms_are_counted_over_all_ways_to_name_the_runs_of_each_pair(
    tmp_path: Path,
) -> None:
    run = run_folder(tmp_path, {"a": noisy(1), "b": noisy(2)}, repeats=4)

    def found(margin: float) -> MetricNoise:
        margins = {"ttft": Margin(relative=margin)}
        made = calibrate(
            *within(run)[0], made="2026-11-30", margins=margins, explored=Margin(relative=9.0)
        )
        return noise(made)

    tight, wide = found(1e-9), found(0.5)
    assert wide.false_alarms == 0
    assert tight.false_alarms is not None
    assert tight.smallest is not None
    assert wide.smallest == tight.smallest
    at_smallest = found(tight.smallest or 1e-9).false_alarms
    assert at_smallest <= 0.05


def test_noisier_engines_need_wider_margins(tmp_path: Path) -> None:
    quiet, loud = (noise(calibrated(tmp_path / str(spread), 3, spread)) for spread in (0.01, 0.05))
    assert loud.provable > 3 * quiet.provable
    assert loud.floor > 3 * quiet.floor


def test_it_is_kept_and_read_back_as_it_was(tmp_path: Path, calibration: Calibration) -> None:
    write(tmp_path / "calibration.json", calibration)
    again = read(tmp_path / "calibration.json")
    assert asdict(again) == asdict(calibration)
    assert "2026-11-30" in again.provenance
    sides, options = one_pair(tmp_path / "pair", 1.5)
    assert judged(sides, calibration=again, **options) == judged(
        sides, calibration=calibration, **options
    )


def test_another_file_is_no_calibration(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text('{"format": 1, "points": []}')
    with pytest.raises(InputError, match="no calibration"):
        read(tmp_path / "plan.json")
    with pytest.raises(FolderError, match="cannot be read"):
        read(tmp_path / "gone.json")


def test_one_run_a_side_cannot_calibrate(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="add repeats"):
        calibrated(tmp_path, repeats=1)


def test_runs_that_do_not_vary_at_all_have_no_noise_to_tell(tmp_path: Path) -> None:
    calibration = calibrated(tmp_path, repeats=3, spread=0.0)
    found = noise(calibration)
    assert (found.spread, found.floor, found.false_alarms, found.smallest) == (0, 0, 0, 0)
