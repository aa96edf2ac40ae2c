"""Suites of questions run from a file to their answers."""

import csv
import hashlib

from harness.run import run
from results import answers
from results.folder import create
from results.run import read
from suites.plan import plan
from suites.suite import load
from tests.test_run import Notes

SUITE = """
suite: s
seed: 4
repeats: {repeats}
experiments:
  - name: e
    engine: {engine}
    topology: TP1
    {more}
    workload: {{kind: questions, max_tokens: {tokens}, {workload}}}
    load: {{kind: closed, concurrency: {concurrency}}}
"""

SIM = "{kind: sim, accuracy: {right: 0.8, redrawn: 0.1}}"
ARITHMETIC = "task: paceline-arithmetic, limit: 30"


def planned(tmp_path, workload=ARITHMETIC, *, engine=SIM, **settings):
    """The points of a suite with one experiment."""
    settings = {"repeats": 1, "more": "", "tokens": 512, "concurrency": 4} | settings
    path = tmp_path / "s.yaml"
    path.write_text(SUITE.format(workload=workload, engine=engine, **settings))
    return plan(load(str(path)))


def folder_for(made, tmp_path):
    """A run folder for the points."""
    return create(tmp_path / "runs", "s", "suite: s\n", made.facts(), {}, 7)


def answered(tmp_path, workload=ARITHMETIC, **settings):
    """The points of a suite that has been run, and the answers of each, as rows."""
    points = ran(tmp_path, workload, **settings)
    return points, [answers.read(point.path).to_pylist() for point in points]


def ran(tmp_path, workload=ARITHMETIC, **settings):
    """The points of a suite that has been run."""
    made = planned(tmp_path, workload, **settings)
    with folder_for(made, tmp_path) as folder:
        run(made.points, folder, Notes())
    return read(folder.path).points


def digest(text):
    """What tables keep of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


COLUMNS = (
    "Record ID",
    "Question",
    "Correct Answer",
    "Incorrect Answer 1",
    "Incorrect Answer 2",
    "Incorrect Answer 3",
)


def invented(path, count=20):
    """A file with the columns of GPQA and questions that nobody ever asked; its texts."""
    rows = [
        [
            f"rec{number:03}",
            f"Which zorblat, of those that quimmed {number} vexels, was brindled first?\n",
            f"The quendling frabble {number}",
            *(f"A morbid sprocken {number}-{wrong}" for wrong in "xyz"),
        ]
        for number in range(count)
    ]
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([COLUMNS, *rows])
    return [text.strip() for row in rows for text in row[1:]]
