"""What is left when any one process of a server is killed while it is measured.

Measures points on a server of several processes, kills one of them at random, at a random moment
after the first row, and looks: no process of it may be alive, its port must be free, its shared
memory and temporary files gone, and the point either finished well, where the server did without
the process, or failed, with a reason. Then the next point must start. The server is a script that
does as vLLM does (an engine core that survives its API server); with --real it is the vLLM that
`make vllm-cpu` builds. Prints its figure last, and exits 0 only when nothing was left.
"""

import argparse
import os
import random
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path

from harness import processes
from harness.engine import Deployment
from harness.load import Closed
from harness.point import Point
from harness.run import run
from harness.topology import parse
from harness.vllm.engine import Vllm
from results.folder import create
from results.metrics import summarise
from results.run import RunPoint, read
from workloads.growing import Growing

KILLS, SEED = 20, 11
LIMIT_SECONDS = 60.0
"""How long an ending may take, beside what the point itself takes."""

ROOT = Path(__file__).parents[1]
REAL = Vllm(
    python=str(ROOT / ".venv-vllm-cpu/bin/python"),
    model=str(ROOT / ".models/nano"),
    provenance="plumbing",
    ready_timeout=300,
    stop_timeout=30,
    flags=("--load-format", "dummy", "--enforce-eager", "--max-model-len", "8192"),
    environment={"HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1"},
)


@dataclass(kw_only=True)
class Killer:
    """Kills one process of the server that writes into a folder, some time after the first row."""

    folder: Path
    chance: random.Random
    most: float
    killed: str = "nothing"
    at: float = 0.0

    rows: int = 0

    def request_done(self, _: object) -> None:
        """Sets the timer at the first row."""
        self.rows += 1
        if self.rows == 1:
            threading.Timer(self.chance.uniform(0, self.most), self.kill).start()

    def kill(self) -> None:
        """Kills one of the server's processes."""
        victim = self.chance.choice(processes.leftovers(self.folder))
        self.killed, self.at = victim.name, time.monotonic()
        os.kill(victim.pid, signal.SIGKILL)

    def point_started(self, *_: object) -> None:
        """Nothing to do."""

    def point_finished(self, *_: object) -> None:
        """Nothing to do."""

    def point_skipped(self, *_: object) -> None:
        """Nothing to do."""


class Calm(Killer):
    """Kills nothing."""

    def kill(self) -> None:
        """Lets them live."""


def scripted(folder: Path) -> Vllm:
    """A server of three processes that is up at once."""
    place = folder / "environment/bin"
    place.mkdir(parents=True)
    (place / "python").symlink_to(sys.executable)
    shutil.copy(ROOT / "tests/fake_vllm.py", place / "vllm")
    flags = ("--fake-core", str(folder / "lock"), "--fake-loading", "0.5")
    python = str(place / "python")
    return Vllm(python=python, model="m", flags=flags, ready_timeout=20, stop_timeout=3)


def measured(engine: Vllm, folder: Path, watch: Killer, seconds: float) -> RunPoint:
    point = Point(
        experiment="kill",
        deployment=Deployment(engine=engine, topology=parse("TP1")),
        workload=Growing(turns=20, first=64, fresh=16, output=8),
        load=Closed(concurrency=2, duration=seconds),
    )
    plan = {"hash": "0" * 8, "points": [point.facts()]}
    with create(folder, "kill", "suite: kill\n", plan, {"host": "here"}, 7) as run_folder:
        run([point], run_folder, watch)
    return read(run_folder.path).points[0]


def left(folder: Path, before: set[Path], port: int) -> list[str]:
    """What is still there of a server."""
    found = [f"process {processes.named([one])}" for one in processes.leftovers(folder)]
    held = "".join(maps(process.pid) for process in processes.living())
    found += [str(path) for path in remains() - before if str(path) not in held]
    with socket.socket() as probe:
        if not probe.connect_ex(("127.0.0.1", port)):
            found.append(f"port {port}")
    return found


def remains() -> set[Path]:
    """All shared memory, and the temporary folders of servers that this benchmark started."""
    return {*Path("/dev/shm").iterdir(), *Path(tempfile.gettempdir()).glob("paceline-*")}


def maps(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return ""


def trusted(point: RunPoint) -> list[str]:
    """What is wrong with the outcome of a point whose server lost a process."""
    if point.status == "failed":
        return [] if point.reason else ["it failed and does not say why"]
    problems = [words for words in summarise(point).problems if "bottleneck" not in words]
    states = set(point.rows()["state"].to_pylist())
    if point.status == "finished" and (problems or "failed" in states):
        return [f"it is called finished, with {sorted(states)} and {problems}"]
    return [] if point.status == "finished" else [f"its status is {point.status}"]


def once(engine: Vllm, folder: Path, chance: random.Random, seconds: float) -> str:
    """Kills one process; what went wrong, in words, or nothing."""
    before = remains()
    killer = Killer(folder=folder, chance=chance, most=seconds * 0.8)
    point = measured(engine, folder, killer, seconds)
    took = time.monotonic() - killer.at if killer.at else 0.0
    wrong = [*left(folder, before, engine.port), *trusted(point)]
    if took > LIMIT_SECONDS + seconds:
        wrong.append(f"the point ended {took:.0f} s after the kill")
    print(
        f"killed {killer.killed}: {point.status}, {point.rows().num_rows} rows, ended "
        f"{took:.1f} s later{'; ' + (point.reason or '')[:90] if point.reason else ''}",
        flush=True,
    )
    return "; ".join(wrong)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--real", action="store_true", help="against the vLLM of make vllm-cpu")
    options.add_argument("--kills", type=int, default=KILLS)
    chosen = options.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="kill-") as name:
        # Short, since sockets of a server lie in it.
        folder = Path(name)
        tempfile.tempdir = name
        engine = REAL if chosen.real else scripted(folder)
        engine = replace(engine, port=port)
        chance = random.Random(SEED)
        seconds = 8.0 if chosen.real else 1.0
        runs = folder / "runs"
        wrong = []
        for number in range(1, chosen.kills + 1):
            if words := once(engine, runs, chance, seconds):
                wrong.append(f"kill {number}: {words}")
            if not chosen.real or number == chosen.kills:
                after = measured(engine, runs, Calm(folder=runs, chance=chance, most=0), 0.3)
                if after.status != "finished":
                    wrong.append(f"after kill {number} the next point: {after.reason}")
    for line in wrong:
        print(line)
    print(f"{chosen.kills} kills: {len(wrong)} left something behind (limit 0)")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
