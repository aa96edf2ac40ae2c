"""The examples as CI runs them: their own lines, in a folder of their own."""

import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from xml.etree import ElementTree

import orjson
import pytest
import yaml
from typer.main import get_command

from cli import app
from suites.description import describe
from suites.plan import plan
from suites.suite import load
from tests.gate_runs import SLOWER, made, paceline

EXAMPLES = Path("examples").absolute()
PAGES = (Path("README.md"), *sorted(Path("docs").glob("*.md")))
BLOCK = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WRITTEN = {
    f"{page.stem}-{yaml.safe_load(text)['suite']}": text
    for page in PAGES
    for text in BLOCK.findall(page.read_text())
    if re.search("^suite:", text, re.MULTILINE)
}
"""The complete suites that the docs have to copy."""
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
SMALL = ("repeats=3", "experiments.0.load.concurrency=2", "experiments.0.load.sessions=10")


def github():
    """The script of the workflow, without what installs, and its variables."""
    workflow = yaml.safe_load((EXAMPLES / "github-actions.yml").read_text())
    steps = workflow["jobs"]["gate"]["steps"]
    lines = [step["run"] for step in steps if "run" in step and step["name"] != "Install"]
    return lines, workflow["env"]


def gitlab():
    """The script of the job, and its variables."""
    job = yaml.safe_load((EXAMPLES / "gitlab-ci.yml").read_text())["performance"]
    return job["script"], job["variables"]


SCRIPTS = {"github": github, "gitlab": gitlab}
COMMANDS = get_command(app)
SCRIPTED = """#!/bin/bash
echo "$*" >> words
[ "$1" != gate ] || exit "$(sed -n "$(grep -c ^gate words)p" codes)"
"""
"""A command that keeps what it was asked, and ends each gate as it was told to."""


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A repository with a suite and a baseline in it."""
    bench = tmp_path_factory.mktemp("repository") / "bench"
    text = (EXAMPLES / "suite.yaml").read_text()
    run = made(bench / "runs", *SMALL, text=text)
    (bench / "suite.yaml").write_text(text)
    result = paceline("baseline", run, "-o", bench / "baseline.json")
    assert result.exit_code == 0, result.stderr
    return bench


def carried_out(kind, folder, path, *changes):
    """What became of the script in the folder: as CI does it, each line ends it where it fails."""
    lines, variables = SCRIPTS[kind]()
    environment = {
        **{name: str(value) for name, value in variables.items()},
        "CHANGES": " ".join(f"--set {change}" for change in (*SMALL, *changes)),
        "PATH": path,
        "GITHUB_STEP_SUMMARY": "summary.md",
    }
    return subprocess.run(
        ["bash", "-e", "-c", "\n".join(lines)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def measured(kind, bench, folder, *changes):
    """What becomes of it with the real command."""
    (folder / "bench").symlink_to(bench)
    return carried_out(kind, folder, PATH, *changes)


@pytest.mark.parametrize("kind", SCRIPTS)
@pytest.mark.parametrize(
    ("codes", "ends"),
    [((0,), 0), ((2,), 2), ((3,), 3), ((1, 0), 0), ((1, 1), 1), ((4, 0), 0), ((4, 1), 1)],
)
def test_a_fresh_run_decides_where_the_first_gate_fails_or_is_open(kind, codes, ends, tmp_path):
    command = tmp_path / "bin/paceline"
    command.parent.mkdir()
    command.write_text(SCRIPTED)
    command.chmod(0o755)
    (tmp_path / "codes").write_text("".join(f"{code}\n" for code in codes))
    done = carried_out(kind, tmp_path, f"{command.parent}{os.pathsep}{os.environ['PATH']}")
    assert done.returncode == ends, done.stderr
    asked = [line.split() for line in (tmp_path / "words").read_text().splitlines()]
    assert [name for name, *_ in asked] == ["run", "gate"] * len(codes)
    assert done.stdout.count("Confirming with a fresh run") == len(codes) - 1
    # What the real command does not know is refused here.
    told = [COMMANDS.commands[name].make_context(name, words).params for name, *words in asked]
    for run, gate in zip(told[::2], told[1::2], strict=True):
        assert (run["suite"], run["new"]) == ("bench/suite.yaml", True)
        assert (gate["candidate"], gate["baseline"]) == ([str(run["out"])], ["bench/baseline.json"])
        assert gate["junit"] == Path("gate.xml")
    assert [one["inconclusive"] for one in told[1::2]] == [None, "fail"][: len(codes)]
    assert len({one["out"] for one in told[::2]}) == len(codes)


@pytest.mark.slow
@pytest.mark.parametrize("kind", SCRIPTS)
def test_what_is_as_good_passes_at_once(kind, repository, tmp_path):
    done = measured(kind, repository, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Gate PASSED (SIMULATED)" in done.stdout
    assert not (tmp_path / "confirmation").exists()
    assert ElementTree.parse(tmp_path / "gate.xml").getroot()[0].get("failures") == "0"


@pytest.mark.slow
@pytest.mark.parametrize("kind", SCRIPTS)
def test_what_is_15_percent_slower_fails_once_a_fresh_run_confirms_it(kind, repository, tmp_path):
    done = measured(kind, repository, tmp_path, SLOWER)
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout.count("Gate FAILED (SIMULATED)") == 2
    assert "Requests that got slower by most" in done.stdout
    assert len(list((tmp_path / "confirmation").iterdir())) == 1
    told = (tmp_path / ("summary.md" if kind == "github" else "gate.md")).read_text()
    assert told.count("**Gate FAILED (SIMULATED)") == 2
    assert (tmp_path / "gate.html").exists()


@pytest.mark.slow
@pytest.mark.parametrize("kind", SCRIPTS)
def test_a_run_of_something_else_ends_without_a_confirmation(kind, repository, tmp_path):
    done = measured(kind, repository, tmp_path, "seed=12")
    assert done.returncode == 2
    assert not (tmp_path / "confirmation").exists()


def test_the_example_suite_is_one_with_rules():
    suite = load(str(EXAMPLES / "suite.yaml"))
    assert set(suite.gate) == {"ttft", "tpot", "output_rate"}
    assert len(plan(suite).points) == 8


@pytest.mark.parametrize("name", WRITTEN)
def test_a_suite_of_the_docs_is_planned_as_it_is_written(name, tmp_path):
    (tmp_path / "gsm8k").mkdir()
    question = {"question": "How many is one and one?", "answer": "#### 2"}
    (tmp_path / "gsm8k" / "test.jsonl").write_bytes(orjson.dumps(question))
    (tmp_path / "traces").mkdir()
    call = {"t": 0.0, "type": "n", "in": 500, "out": 5, "hash_ids": [1, 2]}
    (tmp_path / "traces" / "a.json").write_bytes(orjson.dumps({"id": "a", "requests": [call]}))
    path = tmp_path / "suite.yaml"
    path.write_text(WRITTEN[name])
    assert not any(row.unsupported for row in describe(plan(load(str(path)))).rows)


def test_the_docs_have_a_whole_suite_that_asks_servers_questions():
    (experiment,) = yaml.safe_load(WRITTEN["accuracy-answers"])["experiments"]
    assert [engine["kind"] for engine in experiment["engine"]] == ["endpoint"] * 2
    assert experiment["workload"]["kind"] == "questions"


PINNED = ("vllm DEP2 replay=on unpinned", "vllm DEP2 replay=on")
REPLAY = ("vllm TP1 replay=off", "vllm TP1 replay=on")
H200 = {
    "h200.tar.xz": (
        ("h200-2*T1425*", *REPLAY, "-46.32 % (-46.70 to -45.94)"),
        ("h200-2*T2153*", *REPLAY, "-46.89 % (-47.02 to -46.76)"),
        ("h200-agents-*T1425*", *REPLAY, "-32.2 % (-39.3 to -24.2)"),
        ("h200-agents-*T2137*", *REPLAY, "-18.2 % (-19.9 to -16.4)"),
        ("h200-curves-*", *REPLAY, "-41.6 % (-49.1 to -32.9)"),
    ),
    "h200-two.tar.xz": (
        (
            "h200-two-*T1851*",
            "vllm TP2 replay=off",
            "vllm TP2 replay=on",
            "-44.99 % (-45.30 to -44.67)",
        ),
        ("h200-two-*T1851*", *PINNED, "-22.0 % (-26.5 to -17.3)"),
        ("h200-two-*T2157*", "vllm DEP2 replay=off", "vllm DEP2 replay=on", "-39 % (-49 to -27)"),
        ("h200-curves-*", "vllm TP2 replay=on", "vllm DEP2 replay=on", "+16.9 % (+15.0 to +18.9)"),
    ),
}
"""Of each archive that ships, what the page says of two arms of a run in it."""


@pytest.mark.parametrize("archive", H200)
def test_the_changes_on_the_h200_page_come_out_of_the_folders_that_ship(archive, tmp_path):
    page = Path("docs/results-h200.md").read_text()
    with tarfile.open(EXAMPLES / archive) as packed:
        packed.extractall(tmp_path, filter="data")
    for name, base, other, change in H200[archive]:
        (run,) = tmp_path.glob(name)
        result = paceline("compare", f"{run}:{base}", f"{run}:{other}")
        assert result.exit_code == 0, result.stderr
        assert change in result.stdout
        assert change in page
