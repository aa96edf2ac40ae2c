"""What only run folders can say of a comparison: places, provenance, moved requests, commands."""

from dataclasses import asdict, replace
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest

from reports.account import account
from reports.command import commands, judging
from reports.comparison import comparison_text
from reports.gate import answer, gate_text
from results import folder
from results.comparison import compare
from results.evidence import Evidence, Observed
from results.moved import moved
from results.run import Kept, read
from results.side import side
from results.verdict import Margin, Rule
from tests.test_results_record import cell
from tests.test_results_record import made as request

SESSIONS, TURNS = 10, 3


def facts(arm, load, repeat, position):
    name = f"agents-{arm}-closed-{load}"
    return asdict(
        cell(
            id=f"{crc32(f'{name}-{repeat}'.encode()):08x}",
            pairing=f"{load}-{repeat}",
            cell=name,
            name=f"{name}-r{repeat}",
            arm=arm,
            seed=1,
            repeat=repeat,
            position=position,
            deployment={"engine": {"kind": "sim"}, "topology": {"name": "TP1"}, "replay": arm},
            load={"kind": "closed", "concurrency": load},
        )
    )


def record(point, session, turn, seconds):
    return request(
        [seconds, seconds + 0.01, seconds + 0.02],
        point=point["id"],
        trace=f"trace-{session}",
        tree=session,
        turn=turn,
        sent=float(10 * session + turn),
        prompt_hash=f"{point['pairing']}-{session}-{turn}",
        request_id=f"{session}-{turn}",
    )


def seconds(point, session, turn, slower):
    """A TTFT that varies from session to session and a little from run to run."""
    noise = np.random.default_rng(point["position"] + 100 * (point["arm"] == "on")).normal(0, 0.004)
    base = 0.1 * (1 + session / 50) * (1 + noise)
    odd = 3.0 if slower > 1 and (session, turn) == (5, 2) else 1.0
    return base * slower * odd


def run(path, slower, *, loads=(8,), plan=None, provenance="simulated", repeats=4):
    """A run of two arms in ABBA order; `on` is slower, one request of it by far."""
    points, place = [], 0
    for load in loads:
        for repeat in range(repeats):
            arms = ("off", "on") if repeat % 2 == 0 else ("on", "off")
            for arm in arms:
                points.append(facts(arm, load, repeat, place))
                place += 1
    told = {"hash": "0" * 8, "points": points, **(plan or {})}
    with folder.create(path, "ab", "suite: ab\n", told, {"host": "one"}, 7) as made:
        for point in points:
            writer = made.open_point(point)
            for session in range(SESSIONS):
                for turn in range(TURNS):
                    factor = slower if point["arm"] == "on" else 1.0
                    time = seconds(point, session, turn, factor)
                    writer.add(record(point, session, turn, time))
            observed = Observed(provenance=provenance, gpus=1, features={"replay": point["arm"]})
            evidence = Evidence(observed=observed, clock="virtual", opened=0.0, closed=130.0)
            writer.finish("finished", None, evidence, None)
    return read(made.path)


def judged(path, slower=1.2, **changes):
    return told_of(run(path, slower, **changes))


def told_of(made):
    sides = (side([f"{made.path}:off"]), side([f"{made.path}:on"]))
    rules = [Rule(metric="ttft", margin=Margin(relative=0.05))]
    return account(compare(*sides, rules), *sides)


@pytest.fixture(scope="module")
def slower(tmp_path_factory):
    """A run whose second arm is slower by a fifth."""
    plan = {"suite_path": "suites/a b.yaml", "overrides": ["seed=3", "repeats=3"]}
    return run(tmp_path_factory.mktemp("slower"), 1.2, plan=plan, repeats=3)


@pytest.fixture(scope="module")
def failing(slower):
    """What a gate makes of it."""
    return told_of(slower)


def test_a_slower_arm_fails_and_the_request_that_moved_most_is_named(failing):
    assert answer(failing) == "fail"
    first = failing.cells[0].moved[0]
    assert (first.metric, first.trace, first.stream, first.turn) == ("ttft", "trace-5", "main", 2)
    assert first.ratio == pytest.approx(3.6, rel=0.05)
    assert len(failing.cells[0].moved) == 10
    assert "trace-5" in gate_text(failing)


def test_no_request_is_named_where_no_rule_failed(tmp_path):
    told = judged(tmp_path, 1.0, repeats=3)
    assert answer(told) == "pass"
    assert told.cells[0].moved == ()


def test_requests_are_of_the_metric_that_a_statistic_is_over(slower):
    base, other = (side([f"{slower.path}:{arm}"]).points for arm in ("off", "on"))
    assert moved(base, other, "ttft.p90") == moved(base, other, "ttft")
    assert moved(base, other, "output_rate") == ()
    assert moved(base, base, "ttft") == ()
    assert len(moved(base, other, "ttft", most=3)) == 3


def test_a_baseline_that_keeps_no_rows_names_no_request(slower):
    base, other = (side([f"{slower.path}:{arm}"]).points for arm in ("off", "on"))
    kept = Kept(figures={}, means={})
    assert moved([replace(point, kept=kept) for point in base], other, "ttft") == ()


def test_places_say_what_tells_the_cells_apart(tmp_path):
    told = judged(tmp_path, 1.0, loads=(1, 8), repeats=1)
    assert [cell.place for cell in told.cells] == ["closed 1", "closed 8"]


@pytest.mark.parametrize(
    ("provenance", "mark"),
    [
        ("measured", ""),
        ("simulated", "SIMULATED"),
        ("plumbing", "PLUMBING: real code, but its speed means nothing"),
    ],
)
def test_marks_come_from_the_evidence_of_the_runs(tmp_path, provenance, mark):
    told = judged(tmp_path, 1.0, provenance=provenance, repeats=1)
    assert told.mark == told.cells[0].mark == mark
    assert (mark.split(":")[0] in comparison_text(told).splitlines()[0]) or not mark


def test_the_command_to_confirm_is_the_one_that_was_given_begun_anew(failing, slower):
    asked = "paceline run 'suites/a b.yaml' --set seed=3 --set repeats=3 --new"
    expected = f"{asked} --out {slower.path.parent}"
    assert failing.confirm == (expected,)
    assert gate_text(failing).endswith(f"    {expected}")
    assert failing.enlarge == ()


def test_more_runs_are_asked_for_by_the_suite_s_repeats(tmp_path):
    plan = {"suite_path": "ab.yaml", "overrides": ["repeats=1"]}
    told = judged(tmp_path, plan=plan, repeats=1)
    assert answer(told) == "inconclusive"
    (expected,) = told.enlarge
    assert expected.startswith("paceline run ab.yaml --set repeats=4 --new --out ")
    assert gate_text(told).endswith(f"    {expected}")


def test_the_usual_folder_is_not_named_and_a_baseline_file_knows_none(slower):
    usual = replace(slower, path=Path("runs/agents-20260101T000000Z"))
    assert commands([usual])[0].endswith("--set repeats=3 --new")
    kept = replace(slower.points[0], kept=Kept(figures={}, means={}))
    assert commands([replace(slower, points=(kept,))])[0].endswith("--new")


def test_the_gate_to_run_then_names_the_new_folder_its_arm_and_every_option(slower):
    one = side([f"{slower.path}:on"])
    told = judging(one, {"baseline": ["b.json"], "rules": [], "allow": ["gpu", "driver"]})
    folder = f"'{slower.path.parent}/{slower.suite}-<utc>:on'"
    assert told == f"paceline gate {folder} --baseline b.json --allow gpu --allow driver"
    assert ":on" not in judging(side([str(slower.path)]), {})


def test_sides_that_refuse_are_accounted_for_without_reading_a_row(slower):
    sides = (side([f"{slower.path}:off"]), side([f"{slower.path}:on"]))
    refused = compare(*sides, factors=["topology"])
    assert refused.refusals
    gone = tuple(replace(one, path=Path("gone")) for one in sides[1].points)
    told = account(refused, sides[0], replace(sides[1], points=gone))
    assert told.cells == ()
    assert comparison_text(told).startswith("SIMULATED. Not compared")
