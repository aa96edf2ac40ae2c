"""A suite over many simulated runs: where a metric changed its level, and what may have done it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.engine import Deployment
from harness.load import Closed
from harness.point import Point
from harness.run import run as run_points
from harness.sim.engine import SimulatedEngine
from harness.topology import parse
from reports.history import history_sheets, history_table
from results.errors import InputError
from results.folder import create
from results.history import Course, history
from results.run import Run, read
from tests.test_run import Notes
from workloads.single import Single

MACHINE = {
    "cores": 8,
    "packages": {"paceline": "0.1.0"},
    "gpus": None,
    "git": {"commit": "0123456789abcdef", "changed": False},
}
NOISE = (1.0, 1.01, 0.99, 1.005, 0.995, 1.001, 1.011, 0.991, 1.006, 0.994, 1.002, 0.998)


def made(out: Path, number: int, slowdown: float, **changes: Any) -> Run:
    """A run, the first one of two repeats, whose steps take so many times as long."""
    machine = {**MACHINE, **changes}
    engine = SimulatedEngine(slowdown=slowdown)
    points = [
        Point(
            experiment="cold",
            deployment=Deployment(engine=engine, topology=parse("TP4")),
            workload=Single(prompt=1000, output=4),
            load=Closed(sessions=3),
            repeat=repeat,
            position=repeat,
        )
        for repeat in range(1 if number else 2)
    ]
    plan = {"hash": f"{number:08x}", "points": [point.facts() for point in points]}
    with create(out / str(number), "nightly", "suite: nightly", plan, machine, salt=1) as folder:
        run_points(points, folder, Notes())
    # Names carry the time that a run began.
    return read(folder.path.rename(out / f"nightly-202601{number + 1:02d}T000000Z"))


@pytest.fixture(scope="module")
def slower(tmp_path_factory: pytest.TempPathFactory) -> Sequence[Run]:
    """Twelve runs, of which the last six take a tenth longer."""
    out = tmp_path_factory.mktemp("slower")
    return [made(out, n, factor * (1.1 if n >= 6 else 1.0)) for n, factor in enumerate(NOISE)]


def only(courses: Sequence[Course], metric: str = "ttft.p50") -> Course:
    (course,) = (course for course in courses if course.metric == metric)
    return course


def test_a_change_names_the_last_good_and_the_first_bad_run(slower: Sequence[Run]) -> None:
    course = only(history(slower, ["ttft.p50"]))
    (change,) = course.changes
    assert change.verdict == "worse"
    assert change.good.folder == "nightly-20260106T000000Z"
    assert change.bad.folder == change.at.folder == "nightly-20260107T000000Z"
    assert change.good.commit == MACHINE["git"]["commit"]  # type: ignore[index]
    assert change.runs == (6, 6)
    assert change.low is not None
    assert change.high is not None
    assert change.ratio == pytest.approx(1.1, rel=0.01)
    assert change.low < 1.1 < change.high
    assert [one.key for one in change.news] == ["deployment.engine.slowdown"]
    assert change.apart == ()


def test_less_output_a_second_is_worse(slower: Sequence[Run]) -> None:
    (change,) = only(history(slower, ["output_rate"]), "output_rate").changes
    assert change.verdict == "worse"
    assert change.ratio is not None
    assert change.ratio < 1


def test_repeats_of_a_run_are_one_number(slower: Sequence[Run]) -> None:
    course = only(history(slower, ["ttft.p50"]))
    assert len(course.moments) == 12
    assert [moment.repeats for moment in course.moments] == [2, *[1] * 11]


def test_runs_are_ordered_by_the_time_in_their_names_and_counted_once(
    slower: Sequence[Run],
) -> None:
    metrics = ["ttft.p50"]
    assert history([*reversed(slower), slower[0]], metrics) == history(slower, metrics)


def test_runs_without_a_change_say_what_would_have_shown(
    slower: Sequence[Run], tmp_path: Path
) -> None:
    rest = [made(tmp_path, n, factor + 0.0003) for n, factor in enumerate(NOISE) if n >= 6]
    runs = [*slower[:6], *rest]
    course = only(history(runs, ["ttft.p50"]))
    assert course.changes == ()
    assert course.detectable == pytest.approx(0.024, abs=0.006)
    (sheet,) = history_sheets([course])
    assert [column.name for column in sheet.columns][-1] == "would show from"
    assert sheet.rows[0][-1] == "2.1 %"


def test_few_runs_say_that_nothing_can_be_said(slower: Sequence[Run]) -> None:
    course = only(history(slower[3:10], ["ttft.p50"]))
    assert course.changes == ()
    assert course.detectable is None
    assert course.reason == "8 runs are needed to tell a change from chance, and 7 have a value"
    assert "too few runs" in history_table([course], 120)


def test_a_change_beside_another_simulator_is_not_laid_to_the_engine(
    slower: Sequence[Run],
) -> None:
    newer = {**MACHINE, "packages": {"paceline": "0.2.0"}}
    runs = [replace(one, environment=newer) if n >= 6 else one for n, one in enumerate(slower)]
    course = only(history(runs, ["ttft.p50"]))
    (change,) = course.changes
    assert [one.key for one in change.apart] == ["environment.packages.paceline"]
    assert [len(moment.apart) for moment in course.moments] == [0] * 6 + [1] + [0] * 5
    shown = " ".join(history_table([course], 200).split())
    assert "need not be the engine: environment.packages.paceline 0.1.0 → 0.2.0" in shown
    assert "nightly-20260107T000000Z is not comparable with the run before it" in shown


def test_a_run_that_is_not_valid_has_no_value_and_says_why(slower: Sequence[Run]) -> None:
    broken = tuple(replace(one, status="failed", reason="it died") for one in slower[3].points)
    runs = [replace(one, points=broken) if n == 3 else one for n, one in enumerate(slower)]
    course = only(history(runs, ["ttft.p50"]))
    assert (course.moments[3].value, course.moments[3].reason) == (None, "it died")
    assert len(course.changes) == 1
    assert "has no TTFT p50: it died" in history_table([course], 120)


def test_copies_of_a_run_count_once_and_are_told(slower: Sequence[Run]) -> None:
    copies = [replace(slower[2], path=Path(f"nightly-202602{n:02d}T000000Z")) for n in (1, 2, 3)]
    alone, more = (only(history(runs, ["ttft.p50"])) for runs in (slower, [*slower, *copies]))
    assert more.changes == alone.changes
    assert [moment.copy for moment in more.moments] == [False] * 12 + [True] * 3
    assert [moment.value for moment in more.moments[12:]] == [None] * 3
    table = " ".join(history_table([more], 200).split())
    assert "3 of 15 runs are copies of others, the same to the last digit, and count once" in table
    assert "has no TTFT p50" not in table


def test_the_table_shows_levels_ratio_and_the_runs_between(slower: Sequence[Run]) -> None:
    courses = history(slower, ["ttft.p50", "cache_hit"])
    changed, steady = history_sheets(courses)
    row = dict(zip((column.name for column in changed.columns), changed.rows[0], strict=True))
    assert row["verdict"] == "worse"
    assert row["runs"] == "6 + 6"
    assert row["change"].startswith("+10.")
    assert row["before"].endswith(" ms")
    assert (
        "the last run before it is nightly-20260106T000000Z (commit 012345678)" in changed.notes[0]
    )
    assert "the first one after it nightly-20260107T000000Z" in changed.notes[0]
    assert [one.metric for one in courses] == ["ttft.p50", "cache_hit"]
    assert len(steady.rows) == 1
    assert changed.title == "History, 1 change of level (SIMULATED)"
    assert steady.title == "History, no change of level (SIMULATED)"


def test_what_is_no_history_is_an_error(slower: Sequence[Run]) -> None:
    with pytest.raises(InputError, match="speed is no metric"):
        history(slower, ["speed"])
    with pytest.raises(InputError, match="of hourly and nightly"):
        history([*slower, replace(slower[0], suite="hourly")])
    with pytest.raises(InputError, match="has none: give it back its name"):
        history([replace(slower[0], path=Path("baseline"))])


def test_no_runs_have_no_history() -> None:
    assert history([]) == ()
    assert "n/a" in history_table([], 120)


def test_cells_of_one_arm_and_load_are_told_apart(slower: Sequence[Run]) -> None:
    (course,) = history(slower[:1], ["ttft.p50"])
    assert course.reason is not None
    assert course.reason.endswith("and 1 has a value")
    longer = replace(
        course, cell=replace(course.cell, workload={**course.cell.workload, "prompt": 2000})
    )
    (sheet,) = history_sheets([course, longer])
    assert [row[1] for row in sheet.rows] == ["closed 1, prompt 1000", "closed 1, prompt 2000"]
    other = replace(course, cell=replace(course.cell, experiment="warm"))
    (sheet,) = history_sheets([course, other])
    assert [row[1] for row in sheet.rows] == ["cold, closed 1", "warm, closed 1"]
