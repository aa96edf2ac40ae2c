"""The command line as a user meets it: what it prints, what it says when wrong, how it exits."""

import subprocess
import sys
from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner

from cli import Exit, app, on_traces

TINY = """
suite: tiny
seed: 3
experiments:
  - name: cold
    engine: {kind: sim}
    topology: TP1
    replay: [off, on]
    workload: {kind: single, prompt: 1024, output: 4}
    load: {kind: closed, concurrency: 1, sessions: 12}
"""


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY)
    return path


def paceline(*arguments):
    return CliRunner().invoke(app, [str(each) for each in arguments])


def last_json(result):
    return orjson.loads(result.stdout.splitlines()[-1])


def test_plan_shows_every_point_and_starts_nothing(tiny):
    result = paceline("plan", tiny, "--json")
    assert result.exit_code == Exit.GOOD
    assert "SIMULATED" in result.stdout
    assert last_json(result)["points"] == 2
    assert list(tiny.parent.iterdir()) == [tiny]


def test_run_then_report(tiny):
    result = paceline("run", tiny, "--quiet", "--json")
    assert result.exit_code == Exit.GOOD
    said = last_json(result)
    assert said["statuses"] == {"finished": 2}
    assert "SIMULATED" in result.stdout
    page = tiny.parent / "page.html"
    result = paceline("report", said["run"], "-o", page)
    assert result.exit_code == Exit.GOOD
    assert "SIMULATED" in page.read_text()


def test_a_complete_run_is_followed_by_a_new_one_and_a_broken_one_is_resumed(tiny):
    first = last_json(paceline("run", tiny, "--quiet", "--json"))["run"]
    second = last_json(paceline("run", tiny, "--quiet", "--json"))["run"]
    assert second != first
    point = next(Path(second).glob("*/outcome.json"))
    point.unlink()
    result = paceline("run", tiny, "--quiet", "--json")
    assert last_json(result)["run"] == second
    assert f"Resuming {second}" in result.stderr
    assert point.exists()


def test_bad_input_is_a_sentence_with_file_key_and_fix_and_starts_nothing(tiny):
    tiny.write_text(TINY.replace("prompt: 1024", "promt: 1024"))
    result = paceline("run", tiny)
    assert result.exit_code == Exit.BAD_INPUT
    assert f"Error: {tiny}: experiments[0].workload.promt" in result.stderr
    assert "prompt" in result.stderr
    assert not (tiny.parent / "runs").exists()


def test_an_unknown_suite_names_the_shipped_ones(tiny):
    result = paceline("plan", "smok")
    assert result.exit_code == Exit.BAD_INPUT
    assert "did you mean smoke?" in result.stderr


def test_one_experiment_runs_alone_and_the_same_folder_takes_the_others_up(tiny):
    experiment = TINY[TINY.index("  - name") :]
    tiny.write_text(TINY + experiment.replace("cold", "warm").replace("prompt: 1024", "prompt: 64"))
    planned = [last_json(paceline("plan", tiny, *o, "--json")) for o in ((), ("--only", "warm"))]
    assert [one["points"] for one in planned] == [4, 2]
    assert planned[0]["hash"] == planned[1]["hash"]
    alone = last_json(paceline("run", tiny, "--only", "warm", "--quiet", "--json"))
    assert alone["statuses"] == {"finished": 2}
    ended = {path.parent.name.split("-")[0] for path in Path(alone["run"]).glob("*/outcome.json")}
    assert ended == {"warm"}
    result = paceline("run", tiny, "--quiet", "--json")
    assert last_json(result) == alone | {"statuses": {"finished": 4}}
    assert len(list(Path(alone["run"]).glob("*/outcome.json"))) == 4


def test_an_experiment_that_ended_well_ends_so_beside_one_that_did_not(tiny):
    experiment = TINY[TINY.index("  - name") :].replace("cold", "long")
    tiny.write_text(TINY + experiment.replace("{kind: sim}", "{kind: sim, context_limit: 100}"))
    assert paceline("run", tiny, "--quiet", "--only", "long").exit_code == Exit.INCOMPLETE
    assert paceline("run", tiny, "--quiet", "--only", "cold").exit_code == Exit.GOOD
    assert paceline("run", tiny, "--quiet").exit_code == Exit.INCOMPLETE


def test_an_experiment_needs_no_key_of_another_one(tiny):
    experiment = TINY[TINY.index("  - name") :].replace("cold", "far")
    far = "{kind: endpoint, url: 'http://127.0.0.1:1', model: m, api_key_env: NOBODY_SET_IT}"
    tiny.write_text(TINY + experiment.replace("{kind: sim}", far))
    refused = paceline("run", tiny, "--quiet")
    assert "NOBODY_SET_IT: the suite needs this environment variable" in refused.stderr
    assert paceline("run", tiny, "--quiet", "--only", "cold").exit_code == Exit.GOOD


@pytest.mark.parametrize(
    ("name", "way"), [("cald", "did you mean cold?"), ("other", "name one of these")]
)
def test_an_experiment_that_is_not_there_is_refused_before_anything_starts(tiny, name, way):
    result = paceline("run", tiny, "--only", name)
    assert result.exit_code == Exit.BAD_INPUT
    assert f'tiny: expected an experiment of cold, got "{name}": {way}' in result.stderr
    assert not (tiny.parent / "runs").exists()


def test_a_run_with_a_failed_point_exits_3_and_still_reports(tiny):
    tiny.write_text(TINY.replace("{kind: sim}", "{kind: sim, context_limit: 100}"))
    result = paceline("run", tiny, "--quiet", "--json")
    assert result.exit_code == Exit.INCOMPLETE
    said = last_json(result)
    assert said["statuses"] == {"failed": 2}
    assert "n/a" in result.stdout
    page = tiny.parent / "page.html"
    assert paceline("report", said["run"], "-o", page).exit_code == Exit.GOOD
    assert "maximum context" in page.read_text()


HEARD = {
    "nobody reads on": "{} 2>&1 | head -n 1; exit ${{PIPESTATUS[0]}}",
    "there is no output": "{} >&- 2>&-",
}


@pytest.mark.parametrize("shell", HEARD.values(), ids=HEARD)
def test_a_run_goes_on_where_nobody_reads_to_the_end_and_exits_by_its_points(tiny, shell):
    tiny.write_text(TINY.replace("suite: tiny", "suite: tiny\nrepeats: 4"))
    command = shell.format(f"{sys.executable} -m cli run {tiny} --out {tiny.parent}/runs")
    done = subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[1],
    )
    assert done.returncode == Exit.GOOD, done.stderr
    assert "BrokenPipe" not in done.stderr
    assert len(list(tiny.parent.glob("runs/*/*/outcome.json"))) == 8


def test_what_cannot_be_written_is_said_before_anything_is_read(tiny):
    compared, judged = ["compare", "nowhere"], ["gate", "nowhere", "--baseline", "nowhere"]
    of_one = [[name, "nowhere"] for name in ("report", "calibrate", "baseline")]
    for command in (*of_one, compared, judged, ["traces", "make"]):
        result = paceline(*command, "-o", tiny.parent / "none" / "x.html")
        assert result.exit_code == Exit.BAD_INPUT
        assert result.stderr == f"Error: {tiny.parent}/none does not exist: make it first\n"


def test_report_of_something_else_is_a_sentence(tiny):
    result = paceline("report", tiny.parent)
    assert result.exit_code == Exit.BAD_INPUT
    assert "is not a run folder" in result.stderr
    assert "does not exist" in paceline("report", "nowhere").stderr


def test_schema_is_json(tiny):
    result = paceline("schema")
    assert "properties" in orjson.loads(result.stdout)


def test_every_command_has_help_an_example_and_a_line_in_the_docs():
    text = "\n".join(path.read_text() for path in Path("docs").glob("*.md"))
    text += Path("README.md").read_text()
    for command in app.registered_commands:
        help_text = command.callback.__doc__
        assert f"Example: paceline {command.callback.__name__}" in help_text
        assert f"paceline {command.callback.__name__}" in text
    for command in on_traces.registered_commands:
        assert f"Example: paceline traces {command.callback.__name__}" in command.callback.__doc__
        assert f"paceline traces {command.callback.__name__}" in text


def test_no_command_imports_what_help_does_not_need():
    heavy = "import sys, cli; print(*{'numpy', 'pyarrow', 'scipy', 'pydantic'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


BARE = "import sys; sys.modules |= {'datasets': None, 'lm_eval': None}; import cli; cli.app()"


def without_extra(*arguments):
    """The command where nothing of the extra `accuracy` can be imported."""
    command = [sys.executable, "-c", BARE, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_what_asks_no_questions_runs_without_the_extra(tiny):
    done = without_extra("run", tiny, "--quiet", "--json")
    assert done.returncode == Exit.GOOD, done.stderr
    assert last_json(done)["statuses"] == {"finished": 2}


def test_questions_without_the_extra_are_refused_with_what_to_install(tiny):
    asked = "kind: questions, task: paceline-arithmetic, max_tokens: 64"
    suite = TINY.replace("kind: single, prompt: 1024, output: 4", asked)
    tiny.write_text(suite.replace(", sessions: 12", ""))
    done = without_extra("run", tiny, "--quiet")
    assert done.returncode == Exit.BAD_INPUT
    assert "needs lm-eval, which is not installed: install 'paceline[accuracy]'" in done.stderr
    assert not (tiny.parent / "runs").exists()


def test_what_is_left_of_the_suite_is_said_where_an_experiment_is_chosen(tiny):
    tiny.write_text(TINY + TINY[TINY.index("  - name") :].replace("cold", "warm"))
    planned = paceline("plan", tiny, "--only", "cold")
    left_out = "Left out of the suite by --only: 2 points of warm\nPlan: 2 points"
    assert planned.stdout.startswith(left_out)
    run = ("run", tiny, "--quiet", "--only")
    told = paceline(*run, "cold").stdout
    assert "\nLeft to run of the suite: 2 points of warm: the same command without --only" in told
    again = paceline(*run, "cold")
    assert "Nothing of cold is left to begin: add --retry, or --new for all" in again.stderr
    assert "Left to run of the suite: nothing" in paceline(*run, "warm").stdout
    anew = paceline(*run, "cold")
    assert "has nothing left to begin (4 finished): starting anew in runs/tiny" in anew.stderr
    assert "2 points of warm" in anew.stdout
