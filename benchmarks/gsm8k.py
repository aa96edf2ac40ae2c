"""All of GSM8K through lm-eval, against the simulated server over HTTP, every answer kept.

Asks each of the 1,319 questions once, from the suite to answers.parquet, as a user would. The data
is read from PACELINE_DATA/gsm8k/test.jsonl. Prints its figure last, and exits 0 only when every
question has its row with text, finish reason and usage, within a minute of wall time, and is right
as often as the server was told to be.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow.compute as pc

from results import answers
from results.run import read

QUESTIONS, SECONDS = 1319, 60.0
RIGHT, FARTHEST = 0.95, 0.025
"""What the server knows, and how far from it the share may be: four standard errors."""

SUITE = """
suite: gsm8k
seed: 1
experiments:
  - name: all
    engine: {{kind: endpoint, url: "{url}", model: simulated}}
    topology: TP1
    workload: {{kind: questions, task: gsm8k, data: "{data}", max_tokens: 512}}
    load: {{kind: closed, concurrency: 64}}
"""


def main() -> int:
    data = Path(os.environ.get("PACELINE_DATA", "data")).absolute() / "gsm8k" / "test.jsonl"
    if not data.exists():
        print(f"there is no {data}: set PACELINE_DATA to the folder that holds gsm8k/test.jsonl")
        return 1
    paceline = Path(sys.executable).with_name("paceline")
    words = [paceline, "sim", "--port", "0", "--pace", "200"]
    words += ["--answers", data, "--right", str(RIGHT)]
    server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        url = re.search(r"http://\S+", server.stdout.readline())
        assert url is not None
        return judge(*ask(paceline, url.group(), data))
    finally:
        server.terminate()
        server.wait(timeout=10)


def ask(paceline: Path, url: str, data: Path) -> tuple[answers.pa.Table, float]:
    """The graded answers, and how many seconds they took from the command to its end."""
    with tempfile.TemporaryDirectory() as folder:
        suite = Path(folder) / "gsm8k.yaml"
        suite.write_text(SUITE.format(url=url, data=data))
        began = time.monotonic()
        subprocess.run([paceline, "run", suite, "--quiet"], cwd=folder, check=True)
        seconds = time.monotonic() - began
        (path,) = (Path(folder) / "runs").iterdir()
        (point,) = read(path).points
        table = answers.read(point.path)
        assert table is not None
        return table, seconds


def judge(table: answers.pa.Table, seconds: float) -> int:
    whole = table.filter(pc.equal(table["state"], "ok"))
    for name in ("text", "finish_reason", "input_tokens", "output_tokens", "score"):
        whole = whole.filter(whole[name].is_valid())
    asked, right = pc.count_distinct(whole["question"]).as_py(), pc.mean(whole["score"]).as_py()
    print(
        f"{whole.num_rows} of {table.num_rows} rows have text, finish reason and usage; "
        f"{asked} of {QUESTIONS} questions in {seconds:.1f} s (at most {SECONDS:g}); "
        f"{right:.1%} right, {RIGHT:.0%} known"
    )
    complete = whole.num_rows == table.num_rows == asked == QUESTIONS
    return 0 if complete and seconds <= SECONDS and abs(right - RIGHT) <= FARTHEST else 1


if __name__ == "__main__":
    sys.exit(main())
