"""What came to nothing is run again where that is asked for, and what cannot run is not begun."""

import orjson
import pytest

from cli import Exit
from tests.sim_server import hosted, serving, site
from tests.test_cli import TINY, last_json, paceline
from tests.test_vllm_ranks import free_port


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY.replace("suite: tiny", "suite: tiny\nrepeats: 3"))
    return path


def spoilt(run):
    """Makes the first point of a run one that failed, and the second one that is INVALID."""
    failed, invalid, *_ = sorted(path.parent for path in run.glob("*/outcome.json"))
    changed(failed / "outcome.json", status="failed", reason="no server")
    observed = orjson.loads((invalid / "evidence.json").read_bytes())["observed"]
    changed(invalid / "evidence.json", observed=observed | {"gpus": 8})
    return failed, invalid


def changed(path, **keys):
    path.write_bytes(orjson.dumps(orjson.loads(path.read_bytes()) | keys))


def ran(path, *options):
    result = paceline("run", path, "--quiet", "--json", *options)
    return result, path.parent / last_json(result)["run"]


def test_what_failed_or_is_invalid_is_run_again_in_its_folder_and_nothing_else_is(tiny):
    _, run = ran(tiny)
    spoilt_points = spoilt(run)
    before = {path: path.stat().st_mtime_ns for path in run.glob("*/outcome.json")}
    result, again = ran(tiny, "--retry")
    assert (result.exit_code, again) == (Exit.GOOD, run)
    assert f"Resuming {run.relative_to(tiny.parent)}, running again: 1 " in result.stderr
    assert "1 failed" in result.stderr
    assert "1 INVALID" in result.stderr
    assert last_json(result) | {"run": ""} == {"run": "", "statuses": {"finished": 6}, "invalid": 0}
    anew = {path.parent for path, at in before.items() if path.stat().st_mtime_ns != at}
    assert anew == set(spoilt_points)
    assert all((point / "broken-1.parquet").exists() for point in spoilt_points)
    result, again = ran(tiny, "--retry")
    assert (result.exit_code, again) == (Exit.GOOD, run)
    assert "running again: nothing" in result.stderr


def test_a_server_that_was_down_costs_its_points_and_no_more(tiny):
    port = free_port()
    engine = f"{{kind: endpoint, url: 'http://127.0.0.1:{port}', model: simulated}}"
    tiny.write_text(TINY.replace("{kind: sim}", engine).replace("replay: [off, on]", "replay: on"))
    result, run = ran(tiny)
    assert (result.exit_code, last_json(result)["statuses"]) == (Exit.INCOMPLETE, {"failed": 1})
    assert "Again what failed or is INVALID: the same command with --retry" in result.stdout
    with hosted(serving(site(tiny.parent, port=port))):
        result, again = ran(tiny, "--retry")
    assert (again, last_json(result)["statuses"]) == (run, {"finished": 1})


def test_a_new_run_says_what_the_last_one_left_behind(tiny):
    _, run = ran(tiny)
    anew = "An earlier run of this very plan has nothing left to begin ({}): starting anew in runs/"
    result, second = ran(tiny)
    assert second != run
    assert anew.format("6 finished") in result.stderr
    spoilt(second)
    result, _ = ran(tiny)
    told = result.stderr.split("nothing left to begin (")[1].split(")")[0]
    *counts, way = told.replace("; ", ", ").split(", ")
    assert sorted(counts) == ["1 INVALID", "1 failed", "4 finished"]
    assert way == "--retry runs those again"


def test_only_the_points_of_the_experiment_are_run_again_where_one_is_chosen(tiny):
    experiment = TINY[TINY.index("  - name") :]
    tiny.write_text(TINY + experiment.replace("cold", "warm"))
    _, run = ran(tiny)
    failed, invalid = spoilt(run)
    result, _ = ran(tiny, "--retry", "--only", "warm")
    assert last_json(result)["statuses"] == {"finished": 2}
    assert orjson.loads((failed / "outcome.json").read_bytes())["status"] == "failed"
    result, _ = ran(tiny, "--retry", "--only", "cold")
    assert last_json(result)["statuses"] == {"finished": 2}
    assert orjson.loads((failed / "outcome.json").read_bytes())["status"] == "finished"
    assert (invalid / "broken-1.parquet").exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--retry"], "runs has no run of this very plan to run anything again in"),
        (["--retry", "--new"], "--new starts afresh, and --retry does not: leave one of them out"),
    ],
)
def test_there_must_be_something_to_run_again(tiny, options, sentence):
    result = paceline("run", tiny, *options)
    assert result.exit_code == Exit.BAD_INPUT
    assert sentence in result.stderr
    assert not (tiny.parent / "runs").exists()


def test_what_a_point_needs_and_does_not_find_is_refused_before_the_first_one(tiny):
    experiment = TINY[TINY.index("  - name") :].replace("cold", "real")
    lacking = "{kind: vllm, python: gone/bin/python, model: ./gone}"
    tiny.write_text(TINY + experiment.replace("{kind: sim}", lacking))
    assert paceline("plan", tiny).exit_code == Exit.GOOD
    result = paceline("run", tiny)
    assert result.exit_code == Exit.BAD_INPUT
    interpreter, model = result.stderr.splitlines()
    assert interpreter.startswith("Error: missing: gone/bin/python, which vllm runs in: install ")
    assert model == "    missing: ./gone, the model of vllm: put it there, or correct the path"
    assert not (tiny.parent / "runs").exists()
    assert paceline("run", tiny, "--only", "cold", "--quiet").exit_code == Exit.GOOD
    assert paceline("run", tiny).exit_code == Exit.BAD_INPUT


@pytest.mark.parametrize("out", ["tiny.yaml", "tiny.yaml/deeper"])
def test_runs_do_not_go_into_a_file(tiny, out):
    result = paceline("run", tiny, "--out", out)
    assert result.exit_code == Exit.BAD_INPUT
    assert result.stderr == "Error: tiny.yaml is a file, not a folder: name another one\n"
