"""What a crash costs: `kill -9` at 50 random moments, Ctrl-C, and a full disk.

Kills runs of 20 points at random moments and takes them up again: finished points must stay as they
are to the byte, only missing ones may run, and of the broken point at most the last second of rows
may be lost. Ctrl-C must leave a readable folder and exit 130. A disk of a few megabytes must end in
one sentence, with no broken point called finished. Prints its figure last, and exits 0 only when
all of it is reached.
"""

import hashlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from results.run import read

KILLS, POINTS, SEED = 50, 20, 5
LOST_SECONDS, SLACK_SECONDS = 1.0, 0.5
PACELINE = Path(sys.executable).with_name("paceline")
SUITE = """
suite: crash
seed: 3
repeats: 10
experiments:
  - name: points
    engine: {kind: sim, noise: 0.02}
    topology: TP1
    replay: ["off", "on"]
    workload: {kind: growing, turns: 200, first: 2000, fresh: 300, output: 200, delay: 1}
    load: {kind: closed, concurrency: 8, duration: 400}
"""


def start(folder: Path, *more: str) -> subprocess.Popen[str]:
    suite = folder / "crash.yaml"
    suite.write_text(SUITE)
    command = [PACELINE, "run", suite, "--out", folder / "runs", "--quiet", *more]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def newest(folder: Path) -> Path | None:
    return max(
        (folder / "runs").glob("crash-*"), default=None, key=lambda path: path.stat().st_ctime
    )


def finished(run: Path | None) -> dict[str, str]:
    """The finished points, each with a hash over its files."""
    points = {}
    for outcome in run.glob("*/outcome.json") if run else ():
        digest = hashlib.sha256()
        for path in sorted(outcome.parent.iterdir()):
            digest.update(path.name.encode() + path.read_bytes())
        points[outcome.parent.name] = digest.hexdigest()
    return points


def broken_rows(run: Path, killed: float) -> tuple[int, float]:
    """Rows of broken points that can be read, and how old the last one on disk was at the kill."""
    rows, age = 0, 0.0
    for point in read(run).points:
        if point.status == "broken":
            rows += point.rows().num_rows
            stream = point.path / "requests.arrow"
            if stream.exists():
                age = max(age, killed - stream.stat().st_mtime)
    return rows, age


def kills(folder: Path) -> list[str]:
    """What went wrong over all the kills."""
    chance = random.Random(SEED)
    wrong: list[str] = []
    rows = runs = done = 0
    oldest, kept = 0.0, {}
    while done < KILLS:
        process = start(folder)
        try:
            process.wait(timeout=chance.uniform(0.3, 5.0))
            if process.returncode:
                wrong.append(f"a run ended with {process.returncode}: {process.stderr.read()}")
                return wrong
            run = newest(folder)
            runs += 1
            if len(finished(run)) != POINTS:
                wrong.append(f"{run} ended with {len(finished(run))} of {POINTS} points")
            shutil.rmtree(run)
            kept = {}
            continue
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            killed = time.time()
        done += 1
        run = newest(folder)
        now = finished(run)
        changed = [name for name in kept if now.get(name) != kept[name]]
        wrong += [f"kill {done}: finished point {name} was touched" for name in changed]
        if len(now) == POINTS:
            # Killed while it printed its table: the next start is a new run.
            shutil.rmtree(run)
            kept = {}
            continue
        kept = now
        if run and (run / "plan.json").exists():
            more, age = broken_rows(run, killed)
            rows, oldest = rows + more, max(oldest, age)
    process = start(folder)
    _, told = process.communicate(timeout=300)
    now = finished(newest(folder))
    changed = [name for name in kept if now.get(name) != kept[name]]
    if process.returncode or len(now) != POINTS or changed:
        wrong.append(f"the last run ended with {process.returncode}: {len(now)} points; {told}")
    print(f"left alone, the last run kept {len(kept)} points and finished {len(now) - len(kept)}")
    print(
        f"{done} kills, {runs} runs finished in between; {rows:,} rows of broken points read; "
        f"the last row on disk was at most {oldest:.2f} s old"
    )
    if oldest > LOST_SECONDS + SLACK_SECONDS:
        wrong.append(f"a kill lost {oldest:.2f} s of rows")
    return wrong


def interrupted(folder: Path) -> list[str]:
    shutil.rmtree(folder / "runs", ignore_errors=True)
    process = start(folder)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (newest(folder) and finished(newest(folder))):
        time.sleep(0.05)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    run = read(newest(folder))
    statuses = [point.status for point in run.points]
    rows = sum(point.rows().num_rows for point in run.points)
    print(f"Ctrl-C: exit {process.returncode}; {statuses.count('finished')} points, {rows:,} rows")
    return [] if process.returncode == 130 and "Interrupted" in told else [f"Ctrl-C: {told}"]


def full_disk(folder: Path) -> list[str]:
    """Runs into a file system of 3 MB that only the child sees."""
    small, copy = folder / "small", folder / "copy"
    small.mkdir()
    script = f"mount -t tmpfs -o size=3m tmpfs {small} && cp {folder}/crash.yaml {small} && "
    script += f"{PACELINE} run {small}/crash.yaml --out {small}/runs --quiet; code=$?; "
    script += f"cp -r {small}/runs {copy}; exit $code"
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script], check=False, capture_output=True, text=True
    )
    if not copy.exists():
        return [f"no small disk could be made here: {done.stderr}"]
    errors = [line for line in done.stderr.splitlines() if line.startswith("Error")]
    points = read(next(copy.iterdir())).points
    bad = [point for point in points if point.status == "finished" and not point.rows().num_rows]
    statuses = [point.status for point in points]
    print(f"full disk: exit {done.returncode}; {statuses}; {errors}")
    said = len(errors) == 1 and "disk full" in errors[0] and "Traceback" not in done.stderr
    return [] if said and done.returncode == 3 and not bad else [f"full disk: {done.stderr}"]


def main() -> int:
    # A shell may have started this in the background with Ctrl-C ignored, and children inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wrong = [*kills(folder), *interrupted(folder), *full_disk(folder)]
    for line in wrong:
        print(line)
    print(f"{KILLS} kills, Ctrl-C and a full disk: {len(wrong)} things went wrong (limit 0)")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
