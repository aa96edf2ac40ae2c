"""What users install: the wheel holds what the product needs, and works away from its sources."""

import os
import subprocess
import sys
import zipfile

import pytest


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with the wheel's content, as an installer lays it out."""
    out = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = out.glob("paceline-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(out / "site")
    return out / "site"


BOTH = """
import cli, pathlib, sys
sys.argv[0] = "paceline"
print(cli.__file__)
assert not cli.app(["run", "smoke", "--quiet", *sys.argv[1:]], standalone_mode=False)
assert not cli.app(["report", *map(str, pathlib.Path("runs").iterdir())], standalone_mode=False)
"""


def test_a_shipped_suite_is_run_and_reported_by_an_installed_copy(installed, tmp_path):
    short = ["--set", "repeats=1", "--set", "experiments.agents.load.concurrency=[2]"]
    short += ["--set", "experiments.batches.workload.requests=[2]"]
    said = subprocess.run(
        [sys.executable, "-B", "-c", BOTH, *short],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert said.startswith(str(installed))
    assert "SIMULATED" in said
    page = (tmp_path / "report.html").read_text()
    assert "TTFT against throughput" in page
    assert "Plotly" in page


def test_the_wheel_holds_the_house_and_nothing_else(installed):
    top = {path.name for path in installed.iterdir() if not path.name.endswith(".dist-info")}
    assert top == {"cli.py", "suites", "harness", "workloads", "results", "reports"}
    for folder in top - {"cli.py"}:
        assert (installed / folder / "py.typed").exists()
    assert (installed / "workloads" / "tasks" / "gsm8k.yaml").exists()
