"""Baseline files: what they keep, what they never keep, and how they grow."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson
import pytest

from cli import Exit
from results import ledger
from results.baseline import REQUESTS, Baseline, baseline, keep
from results.contest import read as entry
from results.direction import DIRECTIONS
from results.errors import InputError
from results.pairing import requests
from results.run import read
from results.veil import veiled
from tests.gate_runs import SLOWER, made, paceline


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return made(tmp_path_factory.mktemp("runs"), "repeats=2")


@pytest.fixture(scope="module")
def again(tmp_path_factory):
    """Another run of the same plan."""
    return made(tmp_path_factory.mktemp("again"), "repeats=2")


def written(path: Path, made_of: Baseline) -> Baseline:
    ledger.write(path, made_of)
    return ledger.read(path)


@pytest.mark.parametrize("alone", [False, True])
def test_a_file_gives_back_every_figure_that_can_be_compared(folder, tmp_path, alone):
    run = read(folder)
    if alone:
        run = replace(run, points=run.points[:1])
    back = written(tmp_path / "b.json", baseline([run])).runs[0]
    for point, kept in zip(run.points, back.points, strict=True):
        told, known = (entry(one, alone)[0] for one in (point, kept))
        assert known.means == pytest.approx(told.means, rel=1e-11)
        for name, figure in told.summary.figures.items():
            if name in DIRECTIONS and figure.value is not None:
                found = known.summary.figures[name]
                assert found.unit == figure.unit
                assert found.value == pytest.approx(figure.value, rel=1e-11)
                assert found.reason == figure.reason
                if alone and figure.low and figure.high:
                    assert found.high / found.low == pytest.approx(
                        figure.high / figure.low, rel=1e-2
                    )


def test_what_has_no_value_has_none_in_a_file(folder, tmp_path):
    run = read(folder)
    back = written(tmp_path / "b.json", baseline([run])).runs[0]
    told, known = (entry(one.points[0], False)[0].summary for one in (run, back))
    absent = [n for n, one in told.figures.items() if n in DIRECTIONS and one.value is None]
    assert {"ttft.p99", "goodput"} <= set(absent)
    for name in absent:
        assert known.figures[name].value is None
        assert known.figures[name].reason


def test_a_file_gives_back_every_request_that_was_answered(folder, tmp_path):
    run = read(folder)
    back = written(tmp_path / "b.json", baseline([run]))
    assert back.paired == 1
    for point, kept in zip(run.points, back.runs[0].points, strict=True):
        told, known = (entry(one, False)[1] for one in (point, kept))
        assert (told.keys == known.keys).all()
        assert (told.shapes == known.shapes).all()
        for name, values in told.values.items():
            assert known.values[name] == pytest.approx(values, abs=1e-6, nan_ok=True)


def test_requests_are_kept_of_the_newest_runs_as_far_as_there_is_room(folder, tmp_path):
    run = keep(read(folder))
    point = run.points[0]

    def of(count, name):
        rows = point.kept.rows.take([0] * count)
        answered = replace(point.kept.figures["ok"], value=float(count))
        values = requests(rows).values
        kept = replace(
            point.kept,
            rows=rows,
            figures={**point.kept.figures, "ok": answered},
            means={name: logs[0] for name, logs in values.items() if not np.isnan(logs[0])},
        )
        return replace(run, path=Path(name), points=(replace(point, kept=kept),))

    few, rest = REQUESTS // 3, REQUESTS - REQUESTS // 3
    for counts, paired in (((few, few, rest), 2), ((few, REQUESTS + 1), 0), ((few, few), 2)):
        runs = tuple(of(count, f"run-{place}") for place, count in enumerate(counts))
        whole = baseline([], old=Baseline(suite="tiny", keeps=3, runs=runs))
        assert whole.paired == paired
        assert written(tmp_path / "b.json", whole).paired == paired


def test_a_file_is_small_and_sorted_and_written_the_same_twice(folder, tmp_path):
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    ledger.write(one, baseline([read(folder)]))
    ledger.write(two, ledger.read(one))
    assert one.read_bytes() == two.read_bytes()
    assert one.stat().st_size < 30_000
    content = orjson.loads(one.read_bytes())
    assert content["format"] == 1
    assert list(content) == sorted(content)
    packages = next(iter(content["runs"].values()))["environment"]
    assert content["shared"][packages]["packages"]["paceline"]


def test_a_baseline_keeps_its_newest_runs(folder, again, tmp_path):
    path = tmp_path / "b.json"
    assert paceline("baseline", folder, "-o", path, "--keep", "2").exit_code == Exit.GOOD
    # Names of their own: two runs may begin within one second.
    second, later = (again.parent / f"tiny-{year}0101T000000Z" for year in (2998, 2999))
    second.symlink_to(again)
    later.symlink_to(again)
    assert "2 runs" in paceline("baseline", second, "--update", path).stdout
    result = paceline("baseline", later, "--update", path)
    assert result.exit_code == Exit.GOOD
    assert f"left it: {folder.name}" in result.stdout
    kept = ledger.read(path)
    assert [run.path.name for run in kept.runs] == [second.name, later.name]
    assert kept.keeps == 2


def test_an_update_adds_lines_and_changes_none(folder, again, tmp_path):
    path = tmp_path / "b.json"
    paceline("baseline", folder, "-o", path)
    before = set(path.read_text().splitlines())
    paceline("baseline", again, "--update", path)
    gone = before - set(path.read_text().splitlines())
    assert len(gone) <= 2  # a comma after what was last


def test_the_same_run_is_kept_once(folder, tmp_path):
    path = tmp_path / "b.json"
    paceline("baseline", folder, "-o", path)
    assert "1 run of tiny" in paceline("baseline", folder, "--update", path).stdout


def test_two_runs_of_one_name_are_told_apart(folder, tmp_path):
    other = tmp_path / folder.name
    made(tmp_path, "repeats=1").rename(other)
    result = paceline("baseline", folder, other, "-o", tmp_path / "b.json")
    assert result.exit_code == Exit.BAD_INPUT
    assert "is the name of two different runs" in result.stderr


def test_runs_of_different_things_make_no_baseline(folder, tmp_path):
    other = made(tmp_path, "repeats=2", SLOWER)
    result = paceline("baseline", folder, other, "-o", tmp_path / "b.json")
    assert result.exit_code == Exit.BAD_INPUT
    assert "deployment.engine.slowdown: 1.0 against 1.15" in result.stderr
    assert not (tmp_path / "b.json").exists()


@pytest.mark.parametrize(
    ("left", "sentence"),
    [
        (("outcome.json",), "it was interrupted"),
        (("outcome.json", "point.json", "evidence.json"), "has not begun: finish it first"),
    ],
)
def test_a_run_that_is_not_finished_is_no_baseline(folder, tmp_path, left, sentence):
    part = tmp_path / "part"
    shutil.copytree(folder, part)
    for name in left:
        next(part.glob(f"*-r1-*/{name}")).unlink()
    with pytest.raises(InputError, match=sentence):
        baseline([read(part)])


def test_a_failed_point_is_no_baseline(tmp_path):
    broken = made(tmp_path, "repeats=1", "experiments.0.engine.context_limit=100")
    with pytest.raises(InputError, match=r"cannot be a baseline: talk.* is "):
        baseline([read(broken)])


def test_where_it_goes_is_said_once(folder, tmp_path):
    path = tmp_path / "b.json"
    assert paceline("baseline", folder).exit_code == Exit.BAD_INPUT
    both = paceline("baseline", folder, "-o", path, "--update", path)
    assert both.exit_code == Exit.BAD_INPUT
    path.write_text("mine")
    result = paceline("baseline", folder, "-o", path)
    assert result.exit_code == Exit.BAD_INPUT
    assert "is there already" in result.stderr
    assert path.read_text() == "mine"
    nowhere = paceline("baseline", folder, "--update", tmp_path / "none.json")
    assert nowhere.exit_code == Exit.BAD_INPUT


def test_no_secret_is_kept(folder):
    run = read(folder)
    point = run.points[0]
    secrets = ("sk-first", "second", "third", "fourth", "user:fifth", "s-sixth", "seventh")
    deployment = {
        **point.cell.deployment,
        "flags": ["--api-key", "sk-first", "--hf-token=second", "--max-model-len", "64"],
        "environment": {"HF_TOKEN": "third", "PATH_TO": "/a/b", "VLLM_USE_V1": "1"},
        "engine": {
            "kind": "endpoint",
            "url": "http://user:fifth@host:1",
            "headers": {"Authorization": "fourth", "X-Name": "some s-sixth"},
        },
    }
    command = "vllm serve m --api-key seventh --port 1"
    observed = replace(point.evidence.observed, configuration={"command": command})
    told = veiled(
        replace(
            point,
            cell=replace(point.cell, deployment=deployment),
            evidence=replace(point.evidence, observed=observed),
        )
    )
    shown = f"{told.cell.deployment} {told.evidence.observed}"
    assert not [secret for secret in secrets if secret in shown]
    for kept in ("--max-model-len", "64", "VLLM_USE_V1", "http://host:1", "--port 1"):
        assert kept in shown


def test_hidden_values_that_differ_stay_different(folder):
    point = read(folder).points[0]

    def of(value):
        deployment = {**point.cell.deployment, "environment": {"CACHE_ROOT": value}}
        told = veiled(replace(point, cell=replace(point.cell, deployment=deployment)))
        return told.cell.deployment["environment"]["CACHE_ROOT"]

    assert of("/a/b") == of("/a/b") != of("/a/c")
    assert "/a/b" not in of("/a/b")


REPLAY = """
suite: tiny
seed: 5
experiments:
  - name: lanes
    engine: {kind: sim}
    topology: TP2
    workload: {kind: agentx, profile: PROFILE, generated: 3, context_limit: 8192}
    load: {kind: closed, concurrency: 1, duration: 20}
"""


def test_a_file_keeps_the_profile_of_a_replay_and_refuses_runs_of_another(tmp_path):
    texts = [REPLAY.replace("PROFILE", profile) for profile in ("ci-synth", "aiperf-mvp-0.13")]
    one, other = (
        made(tmp_path / str(number), text=text + "gate: {ttft: no worse than 5 %}\n")
        for number, text in enumerate(texts)
    )
    path = tmp_path / "b.json"
    assert paceline("baseline", one, "-o", path).exit_code == Exit.GOOD
    (told,), (known,) = read(one).points, ledger.read(path).runs[0].points
    assert known.evidence.protocol == told.evidence.protocol
    assert known.evidence.protocol.profile == "ci-synth"
    refused = paceline("gate", other, "--baseline", path)
    assert refused.exit_code == Exit.BAD_INPUT
    assert "workload.profile: ci-synth against aiperf-mvp-0.13" in refused.output
