"""Runs of one tiny simulated suite, to compare and to gate."""

from collections import Counter
from functools import cache
from pathlib import Path

import orjson
from typer.testing import CliRunner

from cli import app
from harness.environment import environment
from harness.run import run
from results.folder import create
from suites.plan import plan
from suites.suite import load
from tests.sim_server import Quiet

SUITE = """
suite: tiny
seed: 5
repeats: 3
experiments:
  - name: talk
    engine: {kind: sim, noise: 0.02}
    topology: TP2
    workload: {kind: growing, turns: 3, first: 3000, fresh: 300, output: 24, spread: constant}
    load: {kind: closed, concurrency: 2, sessions: 10}
gate:
  ttft: no worse than 5 %
  tpot: no worse than 5 %
"""

SLOWER = "experiments.0.engine.slowdown=1.15"
ALIKE = "experiments.0.engine.slowdown=1.001"


def paceline(*arguments):
    return CliRunner().invoke(app, [str(each) for each in arguments])


def said(result):
    return orjson.loads(result.stdout.splitlines()[-1])


@cache
def machine():
    return environment()


def made(folder: Path, *overrides, text=SUITE):
    """The folder of a run of the suite, with these overrides."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "tiny.yaml"
    path.write_text(text)
    suite = load(str(path), overrides)
    planned = plan(suite)
    facts = planned.facts()
    with create(folder, suite.name, text, facts, machine(), suite.seed) as opened:
        run(planned.points, opened, Quiet())
    return opened.path


def gates(result) -> Counter[str]:
    """How many rules came to what."""
    cells = said(result)["cells"]
    return Counter(one["gate"] for cell in cells for one in cell["judgements"] if one["gated"])
