"""One virtual hour of 32 closed-loop agent sessions, contexts up to 250K tokens, in <= 60 s.

Runs the hour twice with one seed, each in a process of its own: the rows must be the same to the
byte. Then every request's times and tokens, and the metrics made of them, must equal the simulated
engine's own log exactly. Prints its figure last, and exits 0 only when all of it is reached.
"""

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import orjson

from results.metrics import summarise
from results.run import read

LIMIT_SECONDS = 60.0
SUITE = """
suite: virtual-hour
seed: 11
experiments:
  - name: hour
    engine: {kind: sim, noise: 0.03}
    topology: TP4
    workload: {kind: agentx, generated: 64, context_limit: 250000, max_delay: 10}
    load: {kind: closed, concurrency: 32, duration: 1h, grace: 15m}
"""


def run_hour(out: Path) -> tuple[Path, float]:
    """One run by the command line; its point's folder and the CPU seconds it took."""
    suite = out / "virtual-hour.yaml"
    suite.write_text(SUITE)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [Path(sys.executable).with_name("paceline"), "run", suite, "--out", out, "--quiet"]
    subprocess.run(command, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)
    (point,) = out.glob("virtual-hour-*/*/")
    return point, seconds


def disagreements(folder: Path) -> list[str]:
    """Where rows or metrics differ from the engine's own log."""
    (point,) = read(folder.parent).points
    rows = {row["request_id"]: row for row in point.rows().to_pylist()}
    lines = (folder / "server.log").read_bytes().splitlines()[1:]
    log = {line["id"]: line for line in map(orjson.loads, lines)}
    wrong = [f"request {name} is in one only" for name in rows.keys() ^ log.keys()]
    for name in rows.keys() & log.keys():
        row, line = rows[name], log[name]
        told = [
            line["arrived_us"] / 1e6,
            None if line["first_us"] is None else line["first_us"] / 1e6,
            None if line["last_us"] is None else line["last_us"] / 1e6,
            line["prompt"],
            line["output"],
            line["cached_reported"],
            line["pieces"],
        ]
        seen = [row[key] for key in ("sent", "first", "last", "input_tokens", "output_tokens")]
        if told != [*seen, row["cached_tokens"], len(row["piece_offsets"])]:
            wrong.append(f"request {name}: the log says {told}, the row {seen}")
    window = [name for name, row in rows.items() if row["phase"] == "window"]
    done = [log[name] for name in window if log[name]["finish"] == "length"]
    first = np.array([line["first_us"] / 1e6 for line in done])
    last = np.array([line["last_us"] / 1e6 for line in done])
    sent = np.array([line["arrived_us"] / 1e6 for line in done])
    tokens = np.array([line["output"] for line in done])
    many = tokens > 1
    truth = {
        "ttft.p50": np.percentile(first - sent, 50),
        "ttft.p90": np.percentile(first - sent, 90),
        "e2el.p50": np.percentile(last - sent, 50),
        "tpot.p50": np.percentile(((last - first)[many]) / (tokens[many] - 1), 50),
        "ok": float(len(done)),
    }
    figures = summarise(point).figures
    wrong += [
        f"{name}: the log gives {value!r}, the metrics {figures[name].value!r}"
        for name, value in truth.items()
        if figures[name].value != value
    ]
    print(
        f"{len(rows):,} requests, {sum(line['output'] for line in log.values()):,} tokens compared"
    )
    longest = max(row["input_tokens"] for row in rows.values())
    print(f"longest context {longest:,} tokens; {figures['ok'].value:.0f} requests in the window")
    return wrong


def main() -> int:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        start = time.perf_counter()
        first, seconds = run_hour(Path(one))
        wall = time.perf_counter() - start
        second, again = run_hour(Path(two))
        names = ("requests.parquet", "steps.parquet", "server.log", "evidence.json", "point.json")
        differ = [n for n in names if (first / n).read_bytes() != (second / n).read_bytes()]
        wrong = disagreements(first)
    for line in wrong[:10]:
        print(line)
    print(f"differ between two runs of one seed: {differ or 'nothing'}")
    print(f"differ from the engine's own log: {len(wrong)}")
    print(
        f"one virtual hour, 32 sessions: {seconds:.1f} and {again:.1f} CPU s "
        f"({wall:.1f} s on the wall, limit {LIMIT_SECONDS:.0f})"
    )
    return 0 if max(seconds, again) <= LIMIT_SECONDS and not differ and not wrong else 1


if __name__ == "__main__":
    sys.exit(main())
