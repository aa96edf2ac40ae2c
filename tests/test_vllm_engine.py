"""vLLM as an engine kind, with a script in the place of the vllm command."""

import asyncio
import fcntl
import os
import shutil
import signal
import socket
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from harness import processes
from harness.client import Request
from harness.engine import Deployment
from harness.load import Closed
from harness.point import Point
from harness.run import run
from harness.topology import parse
from harness.vllm.engine import Vllm
from results.errors import EngineError
from results.folder import create
from results.metrics import summarise
from results.run import read
from workloads.growing import Growing
from workloads.prompt import marked


def engine(folder: Path, *flags: str, **settings) -> Vllm:
    """An engine whose environment is a folder with a script named vllm."""
    place = folder / "environment/bin"
    if not place.exists():
        place.mkdir(parents=True)
        (place / "python").symlink_to(sys.executable)
        shutil.copy(Path(__file__).with_name("fake_vllm.py"), place / "vllm")
    settings = {"model": "m", "ready_timeout": 20, "stop_timeout": 1.6, **settings}
    return Vllm(python=str(place / "python"), flags=flags, **settings)


def deployment(vllm: Vllm, topology: str = "TP1", **settings) -> Deployment:
    return Deployment(engine=vllm, topology=parse(topology), **settings)


@asynccontextmanager
async def started(vllm: Vllm, folder: Path):
    log = folder / "point/server.log"
    log.parent.mkdir(exist_ok=True)
    async with vllm.start(deployment(vllm, replay="on"), seed=1, log=log, keys={}) as server:
        yield server


def start(vllm: Vllm, folder: Path) -> str:
    """Starts and stops it; what its log then says."""

    async def main():
        async with started(vllm, folder):
            pass

    asyncio.run(main())
    return (folder / "point/server.log").read_text()


def test_the_command_line_says_topology_arm_and_flags():
    vllm = Vllm(
        python="env/bin/python", model="m", port=9, flags=("--a",), environment={"X": "1 2"}
    )
    (line,) = vllm.describe(deployment(vllm, "DEP2", replay="off", flags=("--b", "{}")))
    assert line == (
        "DO_NOT_TRACK=1 VLLM_NO_USAGE_STATS=1 VLLM_SERVER_DEV_MODE=1 X='1 2' "
        "env/bin/python env/bin/vllm serve m --host 127.0.0.1 --port 9 --served-model-name vllm "
        "--data-parallel-size 2 --enable-expert-parallel --no-swa-bounded-replay "
        "--enable-prompt-tokens-details --enable-per-request-metrics "
        "--disable-uvicorn-access-log --a --b '{}'"
    )


def test_what_cannot_be_worded_is_said_before_anything_starts(tmp_path):
    with pytest.raises(ValueError, match="state a tokenizer"):
        Vllm(python=str(tmp_path / "python"), mode="chat")


def test_flags_that_the_help_does_not_name_are_left_out(tmp_path):
    async def main():
        async with started(engine(tmp_path), tmp_path) as server:
            return server.observe()

    observed = asyncio.run(main())
    command = observed.configuration["command"]
    assert command.endswith("--swa-bounded-replay --enable-prompt-tokens-details")
    assert (observed.gpus, observed.provenance) == (1, "measured")
    assert observed.configuration["version"] == {"version": "fake"}


def test_a_server_answers_and_nothing_of_it_is_left(tmp_path):  # F-20
    lock = tmp_path / "lock"
    before = set(Path("/dev/shm").iterdir())

    async def main():
        vllm = engine(tmp_path, "--fake-core", str(lock))
        async with started(vllm, tmp_path) as server:
            request = Request(id="r", prompt=marked((1, 16)), output=4, session="s")
            reply = await server.client.send(request, cut=asyncio.Event(), on_first=lambda _: None)
            return reply, processes.leftovers(tmp_path)

    reply, during = asyncio.run(main())
    assert (reply.error, reply.input_tokens, reply.output_tokens) == (None, 16, 4)
    assert len(during) == 3
    assert processes.leftovers(tmp_path) == []
    assert {
        path for path in set(Path("/dev/shm").iterdir()) - before if "fake" in path.name
    } == set()
    assert (
        "removed what the server left: /dev/shm/fake-"
        in (tmp_path / "point/server.log").read_text()
    )
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_an_early_health_is_not_readiness(tmp_path):
    vllm = engine(tmp_path, "--fake-loading", "1.2")

    async def main():
        loop = asyncio.get_running_loop()
        begun = loop.time()
        async with started(vllm, tmp_path):
            return loop.time() - begun

    assert asyncio.run(main()) > 1.2


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--fake-death"], r"status 3 before it had answered .* says: ValueError: no such layer"),
        (["--fake-loading", "60"], r"within 1 s \(ready_timeout\): .*HTTP 503: still loading"),
        (["--fake-mute"], r"within 1 s .* still without an answer"),
        (["--fake-refusal"], "HTTP 400: there is no chat template"),
    ],
)
def test_a_server_that_does_not_come_up_is_said_to(flags, words, tmp_path):
    with pytest.raises(EngineError, match=words):
        start(engine(tmp_path, *flags, ready_timeout=1), tmp_path)
    assert processes.leftovers(tmp_path) == []


def test_a_port_in_use_is_refused(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(EngineError, match=f"port {port} is in use"):
            start(engine(tmp_path, port=port), tmp_path)


def test_a_server_that_is_left_over_is_refused(tmp_path):
    point = tmp_path / "earlier"
    point.mkdir()

    async def main():
        program = await processes.start(["sleep", "60"], {}, point / "server.log")
        try:
            with pytest.raises(EngineError, match=r"still here: sleep \d+"):
                async with started(engine(tmp_path), tmp_path):
                    pass
        finally:
            await program.stop(4)

    asyncio.run(main())


def test_without_vllm_the_way_to_get_it_is_said(tmp_path):
    with pytest.raises(EngineError, match="make vllm-cpu builds"):
        start(Vllm(python=str(tmp_path / "python")), tmp_path)


class Silent:
    """A watch that does something at one of the rows."""

    def __init__(self, row: int = -1, act=None) -> None:
        self.left, self.act = row, act

    def point_started(self, *_):
        pass

    def request_done(self, _):
        self.left -= 1
        if self.left == 0:
            self.act()

    def point_finished(self, *_):
        pass

    def point_skipped(self, *_):
        pass


def measured(vllm: Vllm, folder: Path, watch: Silent | None = None, sessions: int = 6):
    """A point of this engine run into a folder."""
    point = Point(
        experiment="wire",
        deployment=deployment(vllm, replay="on"),
        workload=Growing(turns=4, first=40, fresh=10, output=6),
        load=Closed(concurrency=2, sessions=sessions),
    )
    plan = {"hash": "0" * 8, "points": [point.facts()]}
    with create(folder / "runs", "test", "suite: test\n", plan, {"host": "here"}, 7) as run_folder:
        run([point], run_folder, watch or Silent())
    return read(run_folder.path).points[0]


def test_counters_are_kept_and_agree_with_the_requests(tmp_path):
    point = measured(engine(tmp_path), tmp_path)
    summary = summarise(point)
    assert (point.status, summary.problems) == ("finished", ())
    samples = point.samples().to_pylist()
    assert {row["name"] for row in samples} >= {"up", "vllm:prompt_tokens_total"}
    assert samples[0]["moment"] == 0
    assert not (point.path / "server.arrow").exists()


def test_requests_that_do_not_add_up_make_a_point_invalid(tmp_path):
    summary = summarise(measured(engine(tmp_path, "--fake-miscount", "3"), tmp_path))
    (problem,) = [words for words in summary.problems if "counted" in words]
    assert "prompt tokens, and the requests add up to" in problem


def test_a_server_that_ends_while_it_is_measured_fails_the_point(tmp_path):
    point = measured(engine(tmp_path, "--fake-crash-at", "9"), tmp_path)
    assert point.status == "failed"
    assert "ended with status 17 while it was measured: its engine core died" in point.reason
    rows = point.rows().to_pylist()
    assert "failed" in {row["state"] for row in rows}
    assert processes.leftovers(tmp_path) == []


def test_an_engine_core_that_is_killed_fails_the_point(tmp_path):
    vllm = engine(tmp_path, "--fake-core", str(tmp_path / "lock"))

    def kill():
        members = processes.leftovers(tmp_path)
        (core,) = [
            one
            for one in members
            if one.parent in {root.pid for root in members}
            and one.pid in {worker.parent for worker in members}
        ]
        os.kill(core.pid, signal.SIGKILL)

    point = measured(vllm, tmp_path, Silent(5, kill), sessions=500)
    assert point.status == "failed"
    assert "EngineDeadError: the engine core ended with -9" in point.reason
    assert processes.leftovers(tmp_path) == []
    assert measured(engine(tmp_path), tmp_path / "next").status == "finished"


def test_ctrl_c_ends_a_server_that_is_not_up_yet(tmp_path):
    vllm = engine(tmp_path, "--fake-loading", "60", ready_timeout=60)
    previous = signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
    signal.setitimer(signal.ITIMER_REAL, 1.0)
    try:
        with pytest.raises(KeyboardInterrupt):
            measured(vllm, tmp_path)
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert processes.leftovers(tmp_path) == []
